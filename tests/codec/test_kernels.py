"""Kernels: compiled and uncompiled give the same, and the cache harms nobody."""

import os
import shutil
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqinspect.codec import compiling, kernels
from rmqinspect.codec import compiling as machine_code
from rmqinspect.codec.compiling import Parameter
from rmqinspect.codec.kernels import (
    CRC32,
    Bytes,
    BytesOut,
    Ints,
    IntsOut,
    Kernel,
    TableOut,
    byte_at,
    compile_mode,
    copy_bytes,
    crc32_of,
    inlined,
    int16_at,
    int32_at,
    int64_at,
    kernel,
    lowest_bit,
    places_of,
    uint32_at,
)
from rmqinspect.store.discover import open_store
from tests.support import oracle
from tests.support.samples import sample

_WIDTH = 8


@inlined
def twice(number: int) -> int:
    return 2 * number


@kernel
def read_all(address: int, raw: Bytes, rows: TableOut) -> int:
    count = 0
    for at in range(len(raw) - _WIDTH + 1):
        rows[at, 0] = byte_at(raw, at)
        rows[at, 1] = int16_at(raw, at)
        rows[at, 2] = uint32_at(raw, at)
        rows[at, 3] = int32_at(raw, at)
        rows[at, 4] = int64_at(raw, at)
        rows[at, 5] = crc32_of(address, raw, at, _WIDTH)
        rows[at, 6] = twice(at)
        count += 1
    return count


def _expected(raw: bytes, at: int) -> list[int]:
    signed = [int.from_bytes(raw[at : at + size], "big", signed=True) for size in (1, 2, 4, 8)]
    unsigned = int.from_bytes(raw[at : at + 4], "big")
    return [signed[0], signed[1], unsigned, signed[2], signed[3], zlib.crc32(raw[at : at + _WIDTH]), 2 * at]


@pytest.mark.parametrize("mode", ["always", "never"])
@settings(deadline=None)  # the first example compiles
@given(raw=st.binary(min_size=_WIDTH, max_size=64))
def test_numbers_and_checksums_are_right_both_ways(mode: str, raw: bytes) -> None:
    rows = np.zeros((len(raw) - _WIDTH + 1, 7), np.int64)
    with compile_mode(mode):
        assert read_all(CRC32, np.frombuffer(raw, np.uint8), rows) == len(rows)
    assert rows.tolist() == [_expected(raw, at) for at in range(len(rows))]


def test_never_means_never_also_where_a_kernel_is_compiled() -> None:
    """Tests compare both ways in one process."""
    raw, rows = np.zeros(_WIDTH, np.uint8), np.zeros((1, 7), np.int64)
    with compile_mode("always"):
        read_all(CRC32, raw, rows)
    spent = kernels._compiling.spent
    with compile_mode("never"):
        read_all(CRC32, raw, rows)
    assert kernels._compiling.spent > spent


def test_what_is_expected_to_be_large_is_compiled_from_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    fresh = compiling.Compiling(kernels._inlined)
    fresh.mode = "auto"
    monkeypatch.setattr(kernels, "_compiling", fresh)
    for size, wanted in ((compiling.LARGE // 2, False), (compiling.LARGE // 2, False), (compiling.LARGE, True)):
        kernels.expect(size)
        assert fresh.wanted() is wanted


@pytest.mark.parametrize(("given", "remarks"), [("", 0), ("auto", 0), ("Always", 1)])
def test_a_mode_that_there_is_not_is_auto(monkeypatch: pytest.MonkeyPatch, given: str, remarks: int) -> None:
    monkeypatch.setenv(compiling.MODE, given)
    fresh = compiling.Compiling(kernels._inlined)
    fresh.expected = compiling.LARGE
    assert fresh.wanted()
    assert len(fresh.remarks) == remarks


@kernel
def copy_all(raw: Bytes, starts: Ints, ends: Ints, out: BytesOut) -> int:
    at = 0
    for number in range(len(starts)):
        copy_bytes(raw, starts[number], ends[number], out, at)
        at += ends[number] - starts[number]
    return at


@pytest.mark.parametrize("mode", ["always", "never"])
@settings(deadline=None)
@given(raw=st.binary(max_size=200), cuts=st.lists(st.integers(0, 200), max_size=20))
def test_copies_stay_in_their_places_both_ways(mode: str, raw: bytes, cuts: list[int]) -> None:
    borders = sorted(min(cut, len(raw)) for cut in cuts)
    pairs = list(zip(borders[0::2], borders[1::2], strict=False))
    expected = b"".join(raw[start:end] for start, end in pairs)
    out = np.frombuffer(expected + b"kept", np.uint8).copy()
    out[: len(expected)] = 0xFF
    starts, ends = (np.array([pair[side] for pair in pairs], np.int64) for side in (0, 1))
    with compile_mode(mode):
        # The copy has exactly its size: what comes behind it is not its to change.
        assert copy_all(np.frombuffer(raw, np.uint8), starts, ends, out[: len(expected)]) == len(expected)
    assert kernels.remarks() == []
    assert out.tobytes() == expected + b"kept"


def test_places_and_lowest_bits_are_right_both_ways() -> None:
    raw = np.frombuffer(bytes(range(256)) * 2, np.uint8)
    for at, first, count in ((0, 1, 2), (3, 1, 2), (250, 0, 1), (240, 255, 1), (100, 110, 40), (500, 244, 255)):
        expected = [first <= byte < first + count for byte in raw[at : at + 32].tolist()]
        for mode in ("always", "never"):
            out = np.zeros(2, np.int64)
            with compile_mode(mode):
                find_places(raw, at, first, count, out)
            assert out[0] == sum(found << number for number, found in enumerate(expected))
            assert out[1] == (expected.index(True) if any(expected) else -1)


@kernel
def find_places(raw: Bytes, at: int, first: int, count: int, out: IntsOut) -> None:
    out[0] = places_of(raw, at, first, count)
    out[1] = lowest_bit(out[0]) if out[0] != 0 else -1


_RUN = """
import sys
import numpy as np
from tests.codec.test_kernels import read_all
from rmqinspect.codec import compiling, kernels
rows = np.zeros((1, 7), np.int64)
assert read_all(kernels.CRC32, np.arange(8, dtype=np.uint8), rows) == 1
print(rows.tolist(), kernels.remarks())
for name in sys.argv[1:]:
    print(name, name in sys.modules)
"""


def _run(folder: Path, *modules: str, **environment: str) -> "subprocess.Popen[str]":
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA")}
    more = {"XDG_CACHE_HOME": str(folder), compiling.MODE: "always", **environment}
    command = [sys.executable, "-c", _RUN, *modules]
    return subprocess.Popen(command, env=inherited | more, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def _outcome(process: "subprocess.Popen[str]") -> str:
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 0, out
    return out


_RIGHT = f"{[_expected(bytes(range(8)), 0)]} []\n"


def test_compiled_code_is_kept_in_the_users_cache_and_two_processes_at_once_do_no_harm(tmp_path: Path) -> None:
    both = [_run(tmp_path), _run(tmp_path)]
    assert [_outcome(process) for process in both] == [_RIGHT, _RIGHT]
    kept = sorted(tmp_path.glob("rmqinspect/*.o"))
    assert kept
    assert _outcome(_run(tmp_path, "numba", "llvmlite")) == f"{_RIGHT}numba False\nllvmlite True\n"
    assert sorted(tmp_path.glob("rmqinspect/*.o")) == kept


def test_another_processor_has_its_own_code(tmp_path: Path) -> None:
    _outcome(_run(tmp_path))
    assert _outcome(_run(tmp_path, NUMBA_CPU_NAME="generic")) == _RIGHT
    assert len(list(tmp_path.glob("rmqinspect/*.o"))) == 2


def test_a_cache_that_cannot_be_written_to_is_read(tmp_path: Path) -> None:
    _outcome(_run(tmp_path))
    folder = tmp_path / "rmqinspect"
    folder.chmod(0o500)
    try:
        assert _outcome(_run(tmp_path, "numba")) == f"{_RIGHT}numba False\n"
    finally:
        folder.chmod(0o700)


def test_a_loaded_loop_takes_no_array_of_another_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    for _ in range(2):  # compiled, then loaded
        fresh = kernels.Kernel(read_all.function)
        monkeypatch.setattr(kernels, "_compiling", compiling.Compiling(kernels._inlined))
        with compile_mode("always"):
            fresh(CRC32, np.zeros(_WIDTH, np.uint8), np.zeros((1, 7), np.int64))
            for rows in (np.zeros((1, 7), np.int32), np.zeros(7, np.int64), np.zeros((7, 2), np.int64).T):
                with pytest.raises(TypeError):
                    fresh(CRC32, np.zeros(_WIDTH, np.uint8), rows)


def test_a_damaged_cache_is_compiled_anew(tmp_path: Path) -> None:
    _outcome(_run(tmp_path))
    for kept in (path for path in tmp_path.rglob("*") if path.is_file()):
        kept.write_bytes(kept.read_bytes()[:50])
    assert _outcome(_run(tmp_path)) == _RIGHT


def test_what_cannot_be_written_leaves_nothing_in_the_cache(tmp_path: Path) -> None:
    _outcome(_run(tmp_path))
    (kept,) = tmp_path.glob("rmqinspect/*.o")
    kept.unlink()
    kept.mkdir()
    out = _outcome(_run(tmp_path))
    assert out.startswith(_RIGHT.removesuffix("[]\n"))
    assert f"compiled loops are not kept, each run compiles them: {kept.parent}: Is a directory" in out
    assert list(kept.parent.iterdir()) == [kept]


def test_without_a_place_for_the_cache_each_process_compiles_for_itself(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    out = _outcome(_run(tmp_path / "file"))
    assert out.startswith(_RIGHT.removesuffix("[]\n"))
    assert "compiled loops are not kept" in out


def test_a_user_without_a_home_gets_no_cache_below_the_current_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    assert compiling._cache_folder("")[0] is None
    assert not Path("~").exists()


def test_numbas_own_variable_names_the_cache(tmp_path: Path) -> None:
    assert _outcome(_run(tmp_path / "unused", NUMBA_CACHE_DIR=str(tmp_path / "numba"))) == _RIGHT
    assert list((tmp_path / "numba").glob("*.o"))
    assert not (tmp_path / "unused").exists()


def test_without_numba_the_source_runs_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "numba.py").write_text("raise ImportError('broken here')")
    path = os.pathsep.join([str(tmp_path), os.getcwd()])
    out = _outcome(_run(tmp_path, PYTHONPATH=path))
    assert out == _RIGHT.replace("[]", "['loops are not compiled, and slow: numba cannot be used: broken here']")


# --- what lies in the cache is executed ----------------------------------------------------------------


@kernel
def add_one(numbers: IntsOut, count: int) -> int:
    """Add one to each number."""
    for at in range(count):
        numbers[at] += 1
    return count


@kernel
def copy_first(numbers: IntsOut, others: IntsOut) -> int:
    """Copy the first of some numbers."""
    others[0] = numbers[0]
    return 0


def _fresh(monkeypatch: pytest.MonkeyPatch, kept: Kernel[..., int]) -> Kernel[..., int]:
    """Return a kernel as a new process would have it that compiles all."""
    new = compiling.Compiling(kernels._inlined)
    new.mode = "always"
    monkeypatch.setattr(kernels, "_compiling", new)
    return Kernel(kept.function)


def _kept(folder: Path) -> set[Path]:
    return set(folder.glob("*.o"))


def test_files_under_exchanged_names_are_never_linked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Machine code trusts its arguments: another kernel's ends the process."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    numbers, others = np.arange(4), np.zeros(4, np.int64)
    _fresh(monkeypatch, add_one)(numbers, 4)
    (one,) = _kept(tmp_path)
    _fresh(monkeypatch, copy_first)(numbers, others)
    (two,) = _kept(tmp_path) - {one}
    first, second = one.read_bytes(), two.read_bytes()
    one.write_bytes(second)
    two.write_bytes(first)
    assert machine_code.load(str(one).split(".")[0], [], has_result=True) is None
    with compile_mode("always"):
        assert _fresh(monkeypatch, add_one)(numbers, 4) == 4
        assert _fresh(monkeypatch, copy_first)(numbers, others) == 0
    assert (numbers.tolist(), others.tolist()) == ([2, 3, 4, 5], [2, 0, 0, 0])
    assert one.read_bytes().startswith(f"rmqinspect kernel 2 {one.name} (int641w, int) -> int\n".encode())


def test_releases_with_other_files_do_not_write_over_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    numbers = np.arange(4)
    _fresh(monkeypatch, add_one)(numbers, 4)
    before = {path: path.read_bytes() for path in _kept(tmp_path)}
    monkeypatch.setattr(machine_code, "MAGIC", "rmqinspect kernel of tomorrow")
    _fresh(monkeypatch, add_one)(numbers, 4)
    assert len(_kept(tmp_path)) == 2
    assert {path: path.read_bytes() for path in before} == before


def _link(path: Path) -> None:
    path.rename(path.with_suffix(".real"))
    path.symlink_to(path.with_suffix(".real"))


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize(
    "spoil",
    [
        _link,
        _pipe,
        lambda path: path.chmod(0o666),
        lambda path: os.truncate(path, 1 << 30),
        lambda path: os.chown(path, 4711, 4711) if os.geteuid() == 0 else path.chmod(0o620),
    ],
    ids=["a link", "a pipe", "others may write", "a gigabyte", "another owner"],
)
def test_a_file_that_may_be_another_users_is_not_read(
    spoil: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    _fresh(monkeypatch, add_one)(np.arange(4), 4)
    (kept,) = _kept(tmp_path)
    place, parameters = str(kept).split(".")[0], [Parameter(np.dtype(np.int64), 1, True), Parameter()]
    assert machine_code.load(place, parameters, has_result=True) is not None
    spoil(kept)
    assert machine_code.load(place, parameters, has_result=True) is None


@pytest.mark.parametrize("shared", [".", ".."])
def test_a_folder_that_others_may_write_to_is_not_used(
    shared: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "above" / "cache"
    folder.mkdir(parents=True)
    (folder / shared).resolve().chmod(0o777)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(folder))
    assert _fresh(monkeypatch, add_one)(np.arange(4), 4) == 4
    assert f"others may write to {(folder / shared).resolve()}" in kernels.remarks()[0]
    assert not list(folder.iterdir())
    (folder / shared).resolve().chmod(0o1777)  # as /tmp: nobody exchanges what is another's
    _fresh(monkeypatch, add_one)(np.arange(4), 4)
    assert _kept(folder)


@pytest.mark.parametrize("variable", ["NUMBA_CACHE_DIR", "XDG_CACHE_HOME", "HOME"])
@pytest.mark.parametrize("place", ["store", "store/config", "link", "opened later", "loose"])
def test_nothing_is_ever_kept_in_evidence(
    place: str, variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also through a link, in a store that was opened after the cache was found, and beside a loose segment."""
    shutil.copytree(sample("healthy-4.9.7"), tmp_path / "store")
    segment = next((tmp_path / "store" / "commitlog").iterdir())
    (tmp_path / "loose").mkdir()
    shutil.copy(segment, tmp_path / "loose")
    (tmp_path / "link").symlink_to(tmp_path / "store")
    (tmp_path / "opened later").mkdir()
    for name in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, str(tmp_path / place))
    if place == "loose":
        open_store([str(tmp_path / "loose" / segment.name)])
    first = _fresh(monkeypatch, add_one)
    if place == "opened later":
        assert first(np.arange(4), 4) == 4
        shutil.rmtree(tmp_path / place)
        shutil.copytree(tmp_path / "store", tmp_path / place)
        first = Kernel(copy_first.function)
    before = oracle.snapshot(tmp_path)
    first(np.arange(4), 4) if place != "opened later" else first(np.arange(4), np.zeros(4, np.int64))
    assert oracle.snapshot(tmp_path) == before
    assert "lies in a store, where nothing is ever written" in kernels.remarks()[0]
