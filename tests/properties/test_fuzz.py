"""Random damage to every kind of file: `verify --level deep` says something sensible, or nothing, and always ends.

Files of each kind are damaged ten times by default; `pytest tests/properties/test_fuzz.py --mutations 10000` tries as
many. What a number gives is the same in every run. `mutate.py` damages files at the borders of their fields, and runs
all commands; here any byte may be the border, and time and memory are measured.
"""

import os
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from rmqinspect.store.discover import open_store
from rmqinspect.verify.result import VerifyOptions
from rmqinspect.verify.run import verify
from tests.properties import mutate
from tests.properties.mutate import Span
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


def overwrite(chance: random.Random, raw: bytearray, spans: Sequence[Span]) -> str:
    """Put noise, text or ones somewhere."""
    at, size = chance.choice(spans).start, chance.choice((1, 4, 20, 512, 4096))
    filler = chance.choice((b"\xff" * size, chance.randbytes(size), b"text " * size))[:size]
    raw[at : at + size] = filler[: len(raw) - at]
    return f"{size} bytes at {at} overwritten"


CHANGES = (*mutate.CHANGES, overwrite, overwrite)


def anywhere(chance: random.Random, size: int) -> list[Span]:
    """Return some places that may be fields."""
    starts = [chance.randrange(size) for _ in range(8)]
    return [Span(start, min(size, start + chance.choice((1, 2, 4, 8)))) for start in starts]


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
                chance.choice(CHANGES)(chance, raw, anywhere(chance, len(raw)))
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


def damage_all_kinds(stores: Mapping[str, Path], count: int) -> dict[str, int]:
    """Damage files of each kind in its store; return how many damages had a finding."""
    found = {}
    for kind, folder in stores.items():
        before = {path: path.stat().st_size for path in folder.rglob("*")}
        found[kind] = damage_often(kind, folder, count)
        assert {path: path.stat().st_size for path in folder.rglob("*")} == before
        assert verify(open_store([str(folder)]), VerifyOptions(level="deep")).verdict == "WHOLE", "all was put back"
    return found


@pytest.mark.timeout(36_000)
def test_damage_of_any_kind_is_survived_in_little_memory(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    count = pytestconfig.getoption("--mutations")
    stores = {kind: oracle.copy(*case, tmp_path / kind) for kind, case in STORES.items()}
    found, peak = peak_of(partial(damage_all_kinds, stores, count))
    assert peak < MEMORY
    assert min(found.values()) > count // 3, f"most damage is reported: {found}"


def allocate(size: int) -> int:
    return len(b"x" * size)


@pytest.mark.all_cases
def test_the_measure_of_memory_sees_what_exceeds_it() -> None:
    ballast = b"x" * (MEMORY + (64 << 20))  # this process has been as large before; the child has not
    assert peak_of(partial(allocate, len(ballast)))[1] > MEMORY
    assert peak_of(partial(allocate, 1 << 10))[1] < MEMORY // 8
