"""Stores that real brokers wrote, and the answers of real brokers about them.

The archives in `data/` hold 242 cases of three families (`data/README.md` tells them apart). A family's stores
are unpacked once per run, all together, into one temporary folder that every test and worker reads; its truths are read
into memory. Nothing may change there: the files are read-only, and `changed_stores` compares every byte and
time at the end of the run. A test that has to change a store takes a `copy`.
"""

import atexit
import fcntl
import hashlib
import json
import os
import shutil
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

Family = Literal["crash", "broker", "rust"]

DATA = Path(__file__).parents[1] / "data"


class Fingerprint(NamedTuple):
    """State of a file that must not change. A folder has size 0, no hash, and the time of its last new entry."""

    size: int
    mtime_ns: int
    sha256: str


_SHARED = "RMQINSPECT_TEST_STORES"  # variable with the folder of a run of several workers

# What was unpacked, as it was then: the root of the family -> its snapshot.
_unpacked: dict[Path, dict[str, Fingerprint]] = {}


def cases(family: Family) -> tuple[str, ...]:
    """Return the names of all cases of a family, sorted. Unpacks nothing, so it serves `parametrize`."""
    return _listing()[family]


def store(family: Family, name: str) -> Path:
    """Return the root folder of a store, shared by all tests and read-only.

    :raises KeyError: there is no such case.
    """
    _expect(family, name)
    return _stores(family) / name / "store"


def copy(family: Family, name: str, target: Path) -> Path:
    """Copy a store to `target`/store, times kept and writable, and return that folder."""
    place = target / "store"
    root = store(family, name)
    for path in (root, *root.rglob("*")):
        twin = place / path.relative_to(root)
        if path.is_dir():
            twin.mkdir(parents=True)
        else:
            _copy_sparsely(path, twin)
    for path in (place, *place.rglob("*")):
        shutil.copystat(root / path.relative_to(place), path)
        path.chmod(0o755 if path.is_dir() else 0o644)
    return place


@cache
def truth(family: Family, name: str) -> dict[str, Any]:
    """Return the broker's answers as dicts and lists. Shared between tests: do not change it."""
    plain: dict[str, Any] = json.loads(_truths(family)[name, "truth.json"])
    return plain if family == "crash" else {key: _as_rows(value) for key, value in plain.items()}


@cache
def case(family: Family, name: str) -> dict[str, Any]:
    """Return how the case was made (`case.json`); {} for the families whose truth says it.

    Shared between tests: do not change it.
    """
    _expect(family, name)
    described: dict[str, Any] = json.loads(_truths(family).get((name, "case.json"), b"{}"))
    return described


@cache
def puts(name: str) -> list[dict[str, Any]]:
    """Return the writer's own list of what it put, one dict per put, of a case of the crash family.

    :raises KeyError: no such list was kept; only the undamaged `base-*` cases have one.
    """
    return [json.loads(line) for line in _truths("crash")[name, "puts.jsonl"].splitlines()]


def is_damaged(name: str) -> bool:
    """Say whether a store of the crash family was damaged after its writer ended; no broker store was."""
    return any(kind != "none" for kind in case("crash", name)["damage_kinds"])


def snapshot(root: Path) -> dict[str, Fingerprint]:
    """Return the fingerprint of everything below `root` by its name relative to it; folders end in '/'."""
    found = {}
    for path in sorted(root.rglob("*")):
        name, status = path.relative_to(root).as_posix(), path.lstat()
        if path.is_dir():
            found[name + "/"] = Fingerprint(0, status.st_mtime_ns, "")
        else:
            content = hashlib.sha256()
            for start, block in _filled_blocks(path):
                content.update(start.to_bytes(8) + block)
            found[name] = Fingerprint(status.st_size, status.st_mtime_ns, content.hexdigest())
    return found


def differences(before: Mapping[str, Fingerprint], after: Mapping[str, Fingerprint]) -> list[str]:
    """Return the names that two snapshots of one folder do not agree on, sorted."""
    return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))


def changed_stores() -> list[str]:
    """Return the paths that differ from what was unpacked: empty unless a test wrote into a shared store."""
    return [str(root / name) for root, was in _unpacked.items() for name in differences(was, snapshot(root))]


@cache
def _listing() -> dict[str, tuple[str, ...]]:
    return {family: tuple(names) for family, names in json.loads((DATA / "cases.json").read_text()).items()}


def _expect(family: Family, name: str) -> None:
    if name not in cases(family):
        raise KeyError(f"no case {name} in {family}")


@cache
def _truths(family: Family) -> dict[tuple[str, str], bytes]:
    """Return every file of the family's truths by (case, file name)."""
    found = {}
    with tarfile.open(DATA / f"{family}-truths.tar.xz") as tar:
        for member in tar:
            content = tar.extractfile(member)
            assert content is not None, member.name
            name, _, file = member.name.partition("/")
            found[name, file] = content.read()
    return found


@cache
def _stores(family: Family) -> Path:
    """Unpack the stores of a family, unless another worker has, and return the folder that holds a folder for each."""
    root = _scratch() / family
    known = root.with_suffix(".json")
    with root.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # until it is closed
        if not known.exists():
            with tarfile.open(DATA / f"{family}-stores.tar.xz") as tar:
                # As the documentation of tarfile has it, for the 3.11 that came before the filters.
                tar.extraction_filter = getattr(tarfile, "data_filter", lambda member, path: member)
                tar.extractall(root)
            for path in root.rglob("*"):
                path.chmod(0o555 if path.is_dir() else 0o444)
            known.write_text(json.dumps(snapshot(root)))
    _unpacked[root] = {name: Fingerprint(*found) for name, found in json.loads(known.read_text()).items()}
    return root


def share() -> None:
    """Let the workers that this process starts unpack each family once, into one folder; it goes away with this one."""
    os.environ[_SHARED] = str(_scratch())


@cache
def _scratch() -> Path:
    """Return this run's folder for stores. It goes away with the process that made it."""
    if _SHARED in os.environ:
        return Path(os.environ[_SHARED])
    folder = Path(tempfile.mkdtemp(prefix="rmqinspect-oracle-"))
    atexit.register(_remove, folder)
    return folder


def _remove(folder: Path) -> None:
    # Nobody but root may empty a folder that is read-only.
    for path in folder.rglob("*"):
        if path.is_dir():
            path.chmod(0o755)
    shutil.rmtree(folder)


def _copy_sparsely(source: Path, target: Path) -> None:
    with target.open("wb") as new:
        for start, block in _filled_blocks(source):
            new.seek(start)
            new.write(block)
        new.truncate(source.stat().st_size)


def _filled_blocks(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield (offset, bytes) of each block that is not all zeros, and read no holes.

    A timer wheel of 38 MB holds a few kB, an index file of a default broker 420 MB.
    """
    size, at = 1 << 16, 0
    with path.open("rb", buffering=0) as file:
        end = os.fstat(file.fileno()).st_size
        while at < end:
            try:
                at = file.seek(at, os.SEEK_DATA)
            except OSError:
                return  # a hole to the end
            at -= at % size
            file.seek(at)
            block = file.read(size)
            if block.strip(b"\0"):
                yield at, block
            at += len(block)


def _as_rows(value: Any) -> Any:
    """Turn the column tables of a broker truth into lists of dicts, at any depth of dicts.

    A table is {"columns": [...], "rows": [[...], ...]}. Null means the row has no such field, and a dict
    more at the end of a row holds fields too rare for a column.
    """
    if not isinstance(value, dict):
        return value
    if value.keys() != {"columns", "rows"}:
        return {key: _as_rows(part) for key, part in value.items()}
    columns = value["columns"]
    return [
        {name: cell for name, cell in zip(columns, row, strict=False) if cell is not None}
        | (row[len(columns)] if len(row) > len(columns) else {})
        for row in value["rows"]
    ]
