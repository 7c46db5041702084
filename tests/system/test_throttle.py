"""A bounded run keeps its rate over all threads, and leaves the page cache as it found it."""

import ctypes
import mmap
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqinspect.store.model import StoreFile
from rmqinspect.store.reader import FileReader, open_file
from rmqinspect.system.workers import ReadRate, bound_reads, read_bound, run_ordered
from tests.support.command import Run, runner
from tests.support.samples import sample

HEALTHY = sample("healthy-5.5.0")
PAGE = mmap.PAGESIZE


class Clock:
    """Time that passes only while somebody sleeps, or is told to."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.slept += seconds
        self.now += seconds


@pytest.fixture(autouse=True)
def unbound() -> Iterator[None]:
    yield
    bound_reads(None)


def a_file(folder: Path, raw: bytes) -> StoreFile:
    path = folder / "file"
    path.write_bytes(raw)
    return StoreFile(str(path), "file", len(raw), "other")


def test_many_small_reads_take_the_time_of_the_rate() -> None:
    clock = Clock()
    rate = ReadRate(1000, clock, clock.sleep)
    for _ in range(1000):
        rate.pay(10)
    assert clock.now - 1000.0 == pytest.approx(10.0, abs=0.06)


def test_time_spent_elsewhere_counts_but_is_not_saved_up() -> None:
    clock = Clock()
    rate = ReadRate(1000, clock, clock.sleep)
    rate.pay(100)
    slept = clock.slept
    clock.now += 3600
    rate.pay(1)
    assert clock.slept == slept
    # An hour of rest allows no burst: all but a moment of the second is slept.
    rate.pay(1000)
    assert clock.slept - slept == pytest.approx(1.0, abs=0.06)


def test_all_threads_share_one_budget() -> None:
    """Each pays for a second at a rate that no clock of this test reaches: the seconds add up."""
    rate = 10**9
    bound = ReadRate(rate, sleep=lambda seconds: None)
    list(run_ordered(bound.pay, [rate] * 40, 4))
    clock = Clock()
    after = ReadRate(rate, clock, clock.sleep)
    after._paid_until = bound._paid_until
    clock.now = time.monotonic()
    after.pay(0)
    assert clock.slept == pytest.approx(40, abs=1)


def test_every_byte_read_is_paid_for_in_small_pieces(tmp_path: Path) -> None:
    raw = os.urandom((1 << 20) + 12345)
    paid: list[int] = []
    clock = Clock()

    class Noted(ReadRate):
        def pay(self, raw: int) -> None:
            paid.append(raw)
            super().pay(raw)

    bound_reads(Noted(10**6, clock, clock.sleep))
    before = FileReader.bytes_read
    with open_file(a_file(tmp_path, raw)) as reader:
        assert reader.read(7, len(raw)) == raw[7:]
        assert reader.read(len(raw) - 5, 100) == raw[-5:]
    assert sum(paid) == FileReader.bytes_read - before == len(raw) - 7 + 5
    assert max(paid) <= 128 << 10
    assert clock.slept == pytest.approx(sum(paid) / 10**6, abs=0.06)


def test_without_a_bound_nothing_is_slept_and_a_read_is_one_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[int, ...]] = []
    real = os.preadv

    def preadv(descriptor: int, buffers: list[memoryview], offset: int, *flags: int) -> int:
        calls.append(flags)
        return real(descriptor, buffers, offset, *flags)

    monkeypatch.setattr(os, "preadv", preadv)
    with open_file(a_file(tmp_path, bytes(1 << 20))) as reader:
        reader.read(0, 1 << 20)
    assert calls == [()]


def _cached(path: str) -> list[bool]:
    """Return of each page of a file whether the page cache holds it."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    descriptor = os.open(path, os.O_RDONLY)
    size = os.fstat(descriptor).st_size
    address = libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, 0)
    os.close(descriptor)
    pages = (ctypes.c_ubyte * -(-size // PAGE))()
    assert libc.mincore(address, size, pages) == 0
    libc.munmap(address, size)
    return [bool(page & 1) for page in pages]


def test_pages_that_a_bounded_run_brought_in_are_dropped_and_others_stay(tmp_path: Path) -> None:
    # Linux does not drop a page that another processor has in a batch of its own at the moment: a busy one needs tries.
    attempts = (_hot_pages_before_and_after(tmp_path) for _ in range(20))
    assert any(before == after for before, after in attempts)


def _hot_pages_before_and_after(folder: Path) -> tuple[list[bool], list[bool]]:
    """Read a whole file of which somebody else has read the middle half, and return its cached pages."""
    raw = os.urandom(1 << 20)
    file = a_file(folder, raw)
    descriptor = os.open(file.path, os.O_RDONLY)
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    if any(_cached(file.path)):
        os.close(descriptor)
        pytest.skip("this file system keeps all files in memory")
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
    os.preadv(descriptor, [bytearray(512 << 10)], 256 << 10)
    os.close(descriptor)
    hot = _cached(file.path)
    assert sum(hot) == (512 << 10) // PAGE
    clock = Clock()
    bound_reads(ReadRate(10**6, clock, clock.sleep))
    with open_file(file) as reader:
        # Windows as a scan has them: not at the borders of pages.
        window = 100_001
        assert b"".join(reader.read(at, window) for at in range(0, len(raw), window)) == raw
    return hot, _cached(file.path)


# --- the option ---------------------------------------------------------------------------------------------


run = runner()


@pytest.mark.parametrize("words", [("info",), ("decode", "-f", "csv", "-j", "1"), ("verify", "-j", "1")])
def test_a_bounded_command_says_the_same(run: Run, words: tuple[str, ...]) -> None:
    free = run(*words, HEALTHY)
    assert run(*words, HEALTHY, "--read-rate", "10G") == free
    bound = read_bound()
    assert bound is not None and bound.rate == 10**10
    run(*words, HEALTHY)
    assert read_bound() is None


@pytest.mark.parametrize("rate", ["0", "fast", "-1", "1.5M", "10", "999999"])
def test_what_is_no_rate_is_wrong_usage(run: Run, rate: str) -> None:
    status, out, err = run("verify", HEALTHY, "--read-rate", rate)
    assert (status, out) == (2, "")
    assert "--read-rate" in err


def test_a_rate_so_low_that_mb_were_meant_needs_a_unit(run: Run) -> None:
    assert "10 bytes a second? Give a unit: 10M for megabytes" in run("info", HEALTHY, "--read-rate", "10")[2]
    assert run("info", HEALTHY, "--read-rate", "1000000")[0] == 0
    assert run("info", HEALTHY, "--read-rate", "900000B")[0] == 0


def test_a_long_bounded_read_says_how_long_it_takes_at_least(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmqinspect.cli.verify.LONG_READ", 1000)
    assert "at least" not in run("verify", HEALTHY)[2]
    said = run("verify", HEALTHY, "--read-rate", "10M")[2]
    assert "they against the log; at least 0 s at 10.0 MB/s. --level quick" in said
