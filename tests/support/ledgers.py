"""DLedger logs of recorded stores: their entries, and damage done to them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rmqinspect.schemas.dledger import ENTRY_MAGICS, EntryHead

HEAD = EntryHead.sizeof()
SIZE = 131072  # bytes of a segment of the recorded stores
FOLDER = "dledger-n0"
FIRST, LAST = (f"{FOLDER}/data/{base:020d}" for base in (0, SIZE))
INDEX = f"{FOLDER}/index/{0:020d}"

Change = Callable[[Path], None]


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry, its record included: physical offsets."""

    start: int
    end: int
    index: int


def entries_of(root: Path) -> list[Entry]:
    """Return the entries of an undamaged log."""
    return [entry for path in sorted((root / FOLDER / "data").iterdir()) for entry in _chain(path)]


def _chain(path: Path) -> list[Entry]:
    raw, base, at, found = path.read_bytes(), int(path.name), 0, []
    while at + HEAD <= len(raw):
        head = EntryHead.parse(raw[at : at + HEAD])
        if head.magic != ENTRY_MAGICS[0]:
            break
        found.append(Entry(base + at, base + at + head.size, head.index))
        at += head.size
    return found


def write(offset: int, raw: bytes) -> Change:
    """Return what writes bytes at a physical offset, over the end of a segment, too."""

    def change(root: Path) -> None:
        for base in range(offset - offset % SIZE, offset + len(raw), SIZE):
            low, high = max(base, offset), min(base + SIZE, offset + len(raw))
            with (root / FOLDER / "data" / f"{base:020d}").open("r+b") as file:
                file.seek(low - base)
                file.write(raw[low - offset : high - offset])

    return change


def zeros(start: int, end: int) -> Change:
    """Return what writes zeros over [start, end)."""
    return write(start, bytes(end - start))


def remove(name: str) -> Change:
    return lambda root: (root / name).unlink()


def fill(name: str, raw: bytes) -> Change:
    def change(root: Path) -> None:
        (root / name).write_bytes(raw)

    return change


def cut(name: str, size: int) -> Change:
    def change(root: Path) -> None:
        with (root / name).open("r+b") as file:
            file.truncate(size)

    return change


def all_of(*changes: Change) -> Change:
    def change(root: Path) -> None:
        for one in changes:
            one(root)

    return change


def damages(entries: Sequence[Entry]) -> dict[str, Change]:
    """Return damage by name, of a log of two segments with these entries."""
    first = [entry for entry in entries if entry.start < SIZE]
    last = entries[-1]
    return {
        "none": all_of(),
        "body": write(first[50].start + 148, b"\xff\0\xaa\x55"),
        "magic": write(first[40].start, b"\0\0\0\3"),
        "size": write(first[40].start + 4, b"\7\7\7\7"),
        "index": write(first[40].start + 8, b"\7\7\7\7"),
        "term": write(first[40].start + 16, b"\x7f"),
        "position": write(first[40].start + 24, b"\1"),
        "head": zeros(first[40].start, first[40].start + HEAD),
        "total size": write(first[60].start + HEAD, b"\0\1"),
        "page": zeros(81920, 86016),
        "to the end of a segment": zeros(first[-9].start + 17, SIZE),
        "over the end of a segment": zeros(first[-9].start + 17, SIZE + 9000),
        "start of the log": zeros(0, 9000),
        "start of a segment": zeros(SIZE, SIZE + 9000),
        "blank": write(first[-1].end, b"\0\0\0\7\x11"),
        "last entry": zeros(last.start + 60, last.end),
        "last head": write(last.start + 8, b"\5"),
        "last three": zeros(entries[-3].start, last.end),
        "no last segment": remove(LAST),
        "short segment": cut(FIRST, 60000),
        "no index": all_of(remove(INDEX), zeros(first[20].start, first[30].start + 5)),
        "state": all_of(
            fill(f"{FOLDER}/currterm", b"\xff" * 25),
            fill(f"{FOLDER}/checkpoint", b"committedIndex=x9\n"),
            write(first[50].start + 148, b"\xff\0\xaa\x55"),
        ),
    }
