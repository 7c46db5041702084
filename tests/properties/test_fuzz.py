"""Random damage to every kind of file: `verify --level deep` says something sensible, or nothing, and always ends.

By default a file of each kind is damaged twenty times; `pytest tests/properties/test_fuzz.py --mutations 10000`
tries as many. What a number gives is the same in every run.
"""

import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from rmqinspect.store.discover import open_store
from rmqinspect.verify.result import VerifyOptions
from rmqinspect.verify.run import verify
from tests.support import oracle
from tests.support.memory import peak_of

LONGEST = 20.0  # CPU seconds for one small store
WINDOW = 128 << 10  # bytes that are damaged at a time at most
MEMORY = 256 << 20  # bytes that a process may grow by

# Where files of each kind are found, whole and undamaged.
STORES: dict[str, tuple[oracle.Family, str]] = {
    "segment": ("crash", "base-5.3.3-halt"),
    "queue": ("crash", "base-5.3.3-halt"),
    "index": ("crash", "base-4.7.1-clean"),
    "checkpoint": ("crash", "base-5.5.0-clean"),
    "batch_queue": ("broker", "main-5.1.4"),
    "ext_queue": ("broker", "ext-4.9.7"),
    "timer_log": ("broker", "halt-5.1.4"),
    "timer_wheel": ("broker", "halt-5.1.4"),
    "config": ("broker", "halt-5.2.0"),
    "dledger": ("broker", "dledger-4.9.7"),
    "dledger_index": ("broker", "dledger-4.9.7"),
}
EDGES = (0, 1, -1, 0x7F, 0x7FFF, 0x7FFFFFFF, -0x80000000, 2**63 - 1, -(2**63), 0x7FFFFFFE, 1 << 40)

Mutation = Callable[[random.Random, bytearray], None]


def flip(chance: random.Random, raw: bytearray) -> None:
    for _ in range(chance.choice((1, 1, 1, 5, 200))):
        raw[chance.randrange(len(raw))] ^= 1 << chance.randrange(8)


def overwrite(chance: random.Random, raw: bytearray) -> None:
    at, size = chance.randrange(len(raw)), chance.choice((1, 4, 20, 512, 4096))
    filler = chance.choice((b"\0" * size, b"\xff" * size, chance.randbytes(size), b"text " * size))[:size]
    raw[at : at + size] = filler[: len(raw) - at]


def set_number(chance: random.Random, raw: bytearray) -> None:
    """Put an extreme number where a field may be."""
    size = chance.choice((1, 2, 4, 8))
    at = chance.randrange(max(1, len(raw) - size))
    raw[at : at + size] = (chance.choice(EDGES) & (1 << 8 * size) - 1).to_bytes(size, "big")


def cut(chance: random.Random, raw: bytearray) -> None:
    del raw[chance.choice((0, 1, len(raw) // 2, len(raw) - 1, chance.randrange(len(raw)))) :]


def lengthen(chance: random.Random, raw: bytearray) -> None:
    raw += chance.randbytes(chance.choice((1, 3, 20, 5000)))


def move(chance: random.Random, raw: bytearray) -> None:
    """Copy a part over another one."""
    size = chance.choice((20, 46, 52, 300, 4096))
    source, target = (chance.randrange(len(raw)) for _ in range(2))
    part = raw[source : source + size][: len(raw) - target]
    raw[target : target + len(part)] = part


def shift(chance: random.Random, raw: bytearray) -> None:
    at, size = chance.randrange(len(raw)), chance.choice((1, 4, 20))
    length = len(raw)
    raw[at:at] = bytes(size)
    del raw[length:]


MUTATIONS: tuple[Mutation, ...] = (flip, flip, overwrite, set_number, set_number, cut, lengthen, move, shift)


def extents(path: Path) -> list[tuple[int, int]]:
    """Return the parts of a file that hold anything: most of a wheel or a queue file is a hole."""
    parts: list[tuple[int, int]] = []
    with path.open("rb") as file:
        end, size = 0, path.stat().st_size
        while end < size:
            try:
                start = os.lseek(file.fileno(), end, os.SEEK_DATA)
            except OSError:
                break
            end = os.lseek(file.fileno(), start, os.SEEK_HOLE)
            file.seek(start)
            used = len(file.read(end - start).rstrip(b"\0"))
            if used:
                parts.append((start, min(start + used + 64, size)))
    return parts


@contextmanager
def damaged(path: Path, parts: Sequence[tuple[int, int]], chance: random.Random) -> Iterator[None]:
    """Damage a part of a file, and put all back."""
    start, end = chance.choice(parts)
    start = chance.randrange(start, max(start + 1, end - WINDOW))
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(start)
        original = file.read(min(WINDOW, end - start))
        raw = bytearray(original)
        for _ in range(chance.choice((1, 1, 2, 4))):
            if raw:
                chance.choice(MUTATIONS)(chance, raw)
        file.seek(start)
        file.write(raw[: len(original)])
        if len(raw) < len(original) and start + len(original) >= parts[-1][1]:
            file.truncate(start + len(raw))
        else:
            file.seek(0, os.SEEK_END)
            file.write(raw[len(original) :])
        file.flush()
        try:
            yield
        finally:
            file.truncate(size)
            file.seek(start)
            file.write(original)


def damage_often(kind: str, folder: Path, count: int) -> int:
    """Verify a store with `count` different damages to files of one kind; return how many had a finding."""
    store = open_store([str(folder)])
    paths = sorted(Path(file.path) for file in store.files if file.kind == kind and file.size)
    # Those with something in them: a flip of a preallocated zero says little.
    files = [(path, parts) for path in paths if (parts := extents(path))]
    assert files, f"{STORES[kind]} has no {kind}"
    found = 0
    for number in range(count):
        chance = random.Random(number)
        path, parts = chance.choice(files)
        with damaged(path, parts, chance):
            begin = time.process_time()
            outcome = verify(open_store([str(folder)]), VerifyOptions(level="deep", max_findings=20))
            took = time.process_time() - begin
        assert took < LONGEST, f"mutation {number} of {path.name} took {took:.0f} s"
        # A broker's settings say how many slots and entries an index file has, the file does not: so damaged, it may
        # stay unread, as is said.
        unread = [row for row in outcome.findings.rows if row.covered]
        assert outcome.complete == (not unread)
        assert not unread or kind == "index"
        assert all((row.code, row.file) == ("ST-UNCHECKED", f"index/{path.name}") for row in unread)
        assert all(row.message and row.count > 0 for row in outcome.findings.rows)
        found += bool(outcome.findings.rows)
    return found


@pytest.mark.timeout(36_000)
@pytest.mark.parametrize("kind", STORES)
def test_damage_of_any_kind_is_survived_in_little_memory(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    folder = oracle.copy(*STORES[kind], tmp_path)
    before = {path: path.stat().st_size for path in folder.rglob("*")}
    count = request.config.getoption("--mutations")
    found, peak = peak_of(partial(damage_often, kind, folder, count))
    assert peak < MEMORY
    assert found > count // 3, "most damage is reported"
    assert {path: path.stat().st_size for path in folder.rglob("*")} == before
    assert verify(open_store([str(folder)]), VerifyOptions(level="deep")).verdict == "WHOLE", "all was put back"


def allocate(size: int) -> int:
    return len(b"x" * size)


def test_the_measure_of_memory_sees_what_exceeds_it() -> None:
    ballast = b"x" * (MEMORY + (64 << 20))  # this process has been as large before; the child has not
    assert peak_of(partial(allocate, len(ballast)))[1] > MEMORY
    assert peak_of(partial(allocate, 1 << 10))[1] < MEMORY // 8
