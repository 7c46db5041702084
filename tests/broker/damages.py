"""Damage to stores, by name and plain arguments: what a crash, a disk or a hand can do to any kind of file.

A damage is a kind and its arguments, so that a case fits into one line of JSON and means the same in every copy of a
store. Places are numbers that go round: `segment=-1` is the last segment, `record=1000` the record 1000 modulo their
number. A place that a store does not have leaves the store as it is.
"""

import random
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from construct import ConstructError

from rmqinspect.codec.layout import dtype_of
from rmqinspect.schemas.checkpoint import Checkpoint
from rmqinspect.schemas.consumequeue import PRE_BLANK, QueueUnit
from rmqinspect.schemas.index import IndexHeader
from rmqinspect.schemas.message import BLANK_MIN_SIZE, FIXED_SIZE, MAGIC_BLANK, RECORD_MAGICS, SysFlag
from tests.support.building import fields_of

PAGE = 4096
UNIT = QueueUnit.sizeof()

Argument = int | str
Change = Callable[..., None]


class Damage(NamedTuple):
    """One damage: a name of `DAMAGES` and the arguments of its function."""

    kind: str
    arguments: Mapping[str, Argument]

    def __str__(self) -> str:
        return f"{self.kind}({', '.join(f'{name}={value!r}' for name, value in self.arguments.items())})"


def damage(root: Path, done: Damage) -> None:
    """Do one damage to a store."""
    DAMAGES[done.kind](root, **done.arguments)


# --- the log ----------------------------------------------------------------------------------------------


def flip_bit(root: Path, segment: int, record: int, byte: int, bit: int) -> None:
    """Flip one bit of a record."""
    for path, raw, (start, end) in _record(root, segment, record):
        raw[start + byte % (end - start)] ^= 1 << bit
        path.write_bytes(raw)


def set_field(root: Path, segment: int, record: int, field: str, value: str, topic: str = "") -> None:
    """Set a field of a record; `value`: "=5", "+1" on what is there, or "^8" for bits."""
    for path, raw, (start, end) in _record(root, segment, record, topic):
        try:
            names = fields_of(bytes(raw[start:end]))
        except (AssertionError, ConstructError):  # damaged already
            return
        if field in names:
            first = start + names.index(field)
            _set_number(raw, first, names.count(field), value)
            path.write_bytes(raw)


def set_property(root: Path, segment: int, record: int, name: str, value: str, topic: str = "") -> None:
    """Put a property over the first bytes of a record's properties; the rest of them stays."""
    for path, raw, (start, end) in _record(root, segment, record, topic):
        try:
            names = fields_of(bytes(raw[start:end]))
        except (AssertionError, ConstructError):
            return
        text = f"{name}\1{value}\2".encode()
        if names.count("properties") >= len(text):
            first = start + names.index("properties")
            raw[first : first + len(text)] = text
            path.write_bytes(raw)


def set_topic(root: Path, segment: int, record: int, text: str) -> None:
    """Put a text over the first bytes of a record's topic."""
    for path, raw, (start, end) in _record(root, segment, record):
        try:
            names = fields_of(bytes(raw[start:end]))
        except (AssertionError, ConstructError):
            return
        if names.count("topic") >= len(text):
            first = start + names.index("topic")
            raw[first : first + len(text)] = text.encode("latin-1")
            path.write_bytes(raw)


def zero_pages(root: Path, segment: int, page: int, pages: int) -> None:
    """Zero pages of a segment, as after a loss of power."""
    for path in _pick(_files(root / "commitlog"), segment):
        _zero(path, page, pages)


def tear(root: Path, segment: int, record: int, byte: int) -> None:
    """Zero a segment from within a record on."""
    for path, raw, (start, end) in _record(root, segment, record):
        at = start + byte % (end - start)
        raw[at:] = bytes(len(raw) - at)
        path.write_bytes(raw)


def set_blank(root: Path, segment: int, field: str, value: str) -> None:
    """Set a field of the blank record that ends a segment."""
    for path in _pick(_files(root / "commitlog"), segment):
        raw = bytearray(path.read_bytes())
        end = max((end for _, end in records_of(raw)), default=0)
        if int.from_bytes(raw[end + 4 : end + 8], "big", signed=True) == MAGIC_BLANK:
            _set_number(raw, end + {"total_size": 0, "magic": 4}[field], 4, value)
            path.write_bytes(raw)


def repeat_records(root: Path, segment: int, record: int, count: int, place: str) -> None:
    """Copy records behind the end of the last segment; `place`: do they name the old offset, or the new one."""
    for path, raw, (start, _) in _record(root, segment, record):
        last = _files(root / "commitlog")[-1]
        target = raw if last == path else bytearray(last.read_bytes())
        end = max((end for _, end in records_of(target)), default=0)
        for first, behind in [span for span in records_of(raw) if span[0] >= start][:count]:
            copied = bytearray(raw[first:behind])
            if place == "new":
                copied[28:36] = (int(last.name) + end).to_bytes(8, "big")
            if end + len(copied) + BLANK_MIN_SIZE <= len(target):
                target[end : end + len(copied)] = copied
                end += len(copied)
        last.write_bytes(target)


def overwrite(root: Path, folder: str, file: int, at: int, size: int, seed: int, queue: int = 0) -> None:
    """Put random bytes over a range of a file; `at` goes round its length."""
    for place in _folder(root, folder, queue):
        for path in _pick(_files(place), file):
            raw = bytearray(path.read_bytes())
            start = at % max(1, len(raw))
            end = min(len(raw), start + size)
            raw[start:end] = random.Random(seed).randbytes(end - start)
            path.write_bytes(raw)


def cut_file(root: Path, folder: str, file: int, at: int, queue: int = 0) -> None:
    """Cut a file to a length; `at` goes round its length."""
    for place in _folder(root, folder, queue):
        for path in _pick(_files(place), file):
            raw = path.read_bytes()
            path.write_bytes(raw[: at % max(1, len(raw))])


# --- whole mapped files -----------------------------------------------------------------------------------


def change_file(root: Path, folder: str, file: int, how: str, queue: int = 0) -> None:
    """Do something to a whole file of the log, of a queue, or of the index: see `_HOWS`."""
    for place in _folder(root, folder, queue):
        for path in _pick(_files(place), file):
            _HOWS[how](path)


def swap_files(root: Path, folder: str, file: int, other: int, queue: int = 0) -> None:
    """Exchange the content of two files."""
    for place in _folder(root, folder, queue):
        for one in _pick(_files(place), file):
            for two in _pick(_files(place), other):
                content = one.read_bytes()
                one.write_bytes(two.read_bytes())
                two.write_bytes(content)


def copy_file(root: Path, folder: str, file: int, other: int, queue: int = 0) -> None:
    """Put the content of one file into another."""
    for place in _folder(root, folder, queue):
        for one in _pick(_files(place), file):
            for two in _pick(_files(place), other):
                two.write_bytes(one.read_bytes())


def add_stray(root: Path, folder: str, name: str, size: int, queue: int = 0) -> None:
    """Add a file, or a folder with size -1, beside the files of the log, of a queue, of a topic or of the index."""
    for place in _folder(root, folder, queue):
        path = place / name
        if path.exists():
            return
        if size < 0:
            path.mkdir(parents=True)
        else:
            path.write_bytes(bytes(size))


def remove_folder(root: Path, folder: str, queue: int = 0) -> None:
    """Remove the folder of a queue, of a topic, or of everything of a kind."""
    for place in _folder(root, folder, queue):
        shutil.rmtree(place)


def empty_folder(root: Path, folder: str, queue: int = 0) -> None:
    """Remove all files of a folder, and keep it."""
    for place in _folder(root, folder, queue):
        for path in _files(place):
            path.unlink()


def _next_to(path: Path, content: bytes, steps: int = 1) -> None:
    size = path.stat().st_size
    name = path.with_name(f"{int(path.name) + steps * size:020}") if path.name.isdigit() else path
    if not name.exists():
        name.write_bytes(content)


def _unaligned(path: Path) -> None:
    name = path.with_name(f"{int(path.name) + UNIT:020}") if path.name.isdigit() else path
    if not name.exists():
        path.rename(name)


def _to_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


_HOWS: Mapping[str, Callable[[Path], Any]] = {
    "lost": lambda path: path.unlink(),
    "zero": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "empty": lambda path: path.write_bytes(b""),
    "short": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "half": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "long": lambda path: path.write_bytes(path.read_bytes() + b"\0"),
    "page_more": lambda path: path.write_bytes(path.read_bytes() + bytes(PAGE)),
    "next_zero": lambda path: _next_to(path, bytes(path.stat().st_size)),
    "next_empty": lambda path: _next_to(path, b""),
    "next_copy": lambda path: _next_to(path, path.read_bytes()),
    "far_zero": lambda path: _next_to(path, bytes(path.stat().st_size), steps=3),
    "backup": lambda path: path.with_name(path.name + ".bak").write_bytes(path.read_bytes()),
    "renamed": lambda path: path.rename(path.with_name(path.name + ".old")),
    "unaligned": _unaligned,
    "folder": _to_folder,
}


# --- any file or folder -----------------------------------------------------------------------------------


def replace(root: Path, name: str, how: str) -> None:
    """Put something else in the place of a file or folder: the last one that a pattern names, or a new one.

    `how`: a "file" of 5 bytes, a "folder", or a "full" folder, which holds a file.
    """
    path = _last(root, name)
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    if path.parent.is_dir():
        if how == "file":
            path.write_bytes(b"12345")
        else:
            path.mkdir()
        if how == "full":
            (path / "1").write_bytes(b"12345")


def add_file(root: Path, name: str, size: int) -> None:
    """Add a file of zeros, or give one another length, with zeros behind what it has."""
    path = root / name
    if path.is_dir() or not all(above.is_dir() for above in path.parents if above.exists()):
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.truncate(size)


def rename_file(root: Path, folder: str, file: int, name: str, queue: int = 0) -> None:
    """Give a mapped file another name."""
    for place in _folder(root, folder, queue):
        for path in _pick(_files(place), file):
            if not (place / name).exists():
                path.rename(place / name)


def _last(root: Path, pattern: str) -> Path:
    return max(root.glob(pattern), default=root / pattern)


# --- queues -----------------------------------------------------------------------------------------------


def set_units(root: Path, queue: int, file: int, unit: int, count: int, how: str) -> None:
    """Change units of a queue: see `_UNITS`."""
    for place in _folder(root, "queue", queue):
        for path in _pick(_files(place), file):
            raw = bytearray(path.read_bytes())
            if not len(raw) // UNIT:
                return
            first = unit % (len(raw) // UNIT)
            for at in range(first * UNIT, min((first + count) * UNIT, len(raw) - UNIT + 1), UNIT):
                raw[at : at + UNIT] = _UNITS[how](bytes(raw[at : at + UNIT]))
            path.write_bytes(raw)


def zero_tails(root: Path, units: int) -> None:
    """Zero the last units of every queue, as when the queues were flushed long before the log."""
    for place in queues_of(root):
        for path in _files(place)[-1:]:
            raw = path.read_bytes()
            used = len(raw.rstrip(b"\0"))
            keep = max(0, (used + UNIT - 1) // UNIT - units) * UNIT
            path.write_bytes(raw[:keep] + bytes(len(raw) - keep))


def change_last_files(root: Path, how: str) -> None:
    """Do the same to the last file of every queue."""
    for place in queues_of(root):
        for path in _files(place)[-1:]:
            _HOWS[how](path)


def shift_units(root: Path, queue: int, file: int, unit: int, units: int) -> None:
    """Put zero units before a unit, or take units away with a negative number; the length of the file stays."""
    for place in _folder(root, "queue", queue):
        for path in _pick(_files(place), file):
            raw = path.read_bytes()
            if not len(raw) // UNIT:
                return
            at = unit % (len(raw) // UNIT) * UNIT
            moved = raw[:at] + bytes(max(0, units) * UNIT) + raw[at + max(0, -units) * UNIT :]
            path.write_bytes(moved[: len(raw)].ljust(len(raw), b"\0"))


def _unit_with(**fields: int) -> Callable[[bytes], bytes]:
    def change(unit: bytes) -> bytes:
        parsed = QueueUnit.parse(unit)
        built: bytes = QueueUnit.build({**parsed, **fields})
        return built

    return change


_UNITS: Mapping[str, Callable[[bytes], bytes]] = {
    "zero": lambda unit: bytes(UNIT),
    "garbage": lambda unit: random.Random(unit).randbytes(UNIT),
    "positive": lambda unit: b"\0\0\0\0\0" + random.Random(unit).randbytes(3) + b"\0\0\1" + unit[11:],
    "blank": lambda unit: QueueUnit.build(PRE_BLANK),
    "no_size": _unit_with(size=0),
    "negative_size": _unit_with(size=-5),
    "most_size": _unit_with(size=2**31 - 1),
    "negative_offset": _unit_with(physical_offset=-1),
    "far_offset": _unit_with(physical_offset=1 << 40),
    "most_offset": _unit_with(physical_offset=2**63 - 1),
    "first_offset": _unit_with(physical_offset=0),
    "tags": _unit_with(tags_code=-(2**63) + 20),
}


# --- index, checkpoint, small files -----------------------------------------------------------------------


def set_index_header(root: Path, file: int, field: str, value: str) -> None:
    """Set a field of the header of an index file."""
    for path in _pick(_files(root / "index"), file):
        _set_in_layout(path, IndexHeader, field, value)


def set_checkpoint(root: Path, field: str, value: str) -> None:
    """Set a field of the checkpoint."""
    _set_in_layout(root / "checkpoint", Checkpoint, field, value)


def cut_checkpoint(root: Path, length: int) -> None:
    """Shorten the checkpoint, or remove it with length -1."""
    path = root / "checkpoint"
    if length < 0:
        path.unlink(missing_ok=True)
    elif path.exists():
        path.write_bytes(path.read_bytes()[:length])


def leave_abort(root: Path, text: str) -> None:
    """Leave `abort` with a text, as an unclean exit does."""
    (root / "abort").write_text(text)


def remove_file(root: Path, name: str) -> None:
    """Remove a file of the root: `abort` makes an exit clean, `lock` and `abort.bak` mean nothing."""
    if not (root / name).is_dir():
        (root / name).unlink(missing_ok=True)


def write_config(root: Path, name: str, text: str, backup: str) -> None:
    """Write config/NAME, or remove it with the text "-"; the same with its .bak."""
    (root / "config").mkdir(exist_ok=True)
    for path, content in ((root / "config" / name, text), (root / "config" / f"{name}.bak", backup)):
        if content == "-":
            path.unlink(missing_ok=True)
        else:
            path.write_text(content)


# --- all files at once ------------------------------------------------------------------------------------


def lose_power(root: Path, seconds: int, odds: int, seed: int) -> None:
    """Zero some of the pages that the last seconds filled, in any order: what a loss of power leaves.

    Of every hundred such pages `odds` are lost, in the log and in the queues; index files begun since are empty,
    and the checkpoint is as it was then. A file shorter than a page is lost as a whole.
    """
    chance, since = random.Random(seed), _offset_before_end(root, seconds)
    pages = [
        *((path, at) for path in _files(root / "commitlog") for at in _late_pages(path, since)),
        *((path, at) for place in queues_of(root) for path in _files(place) for at in _late_units(path, since)),
    ]
    for path, at in pages:
        if chance.randrange(100) < odds:
            raw = bytearray(path.read_bytes())
            lost = slice(at, min(at + PAGE, len(raw)))
            raw[lost] = bytes(lost.stop - lost.start)
            path.write_bytes(raw)
    for path in _files(root / "index"):
        begin = int.from_bytes(path.read_bytes()[16:24], "big", signed=True)
        if begin >= since and chance.randrange(100) < odds:
            path.write_bytes(bytes(path.stat().st_size))
    for field in ("physic_msg_timestamp", "logics_msg_timestamp"):
        set_checkpoint(root, field, f"+{-1000 * seconds}")
    leave_abort(root, "")


def _offset_before_end(root: Path, seconds: int) -> int:
    """Return the physical offset of the first record that was stored less than some seconds before the last one."""
    stored = [
        (int.from_bytes(raw[start + at : start + at + 8], "big", signed=True), int(path.name) + start)
        for path in _files(root / "commitlog")
        if path.name.isdigit()
        for raw in [path.read_bytes()]
        for start, _ in records_of(raw)
        for at in [68 if raw[start + 39] & SysFlag.BORNHOST_V6 else 56]
    ]
    newest = max((time for time, _ in stored), default=0)
    return min((offset for time, offset in stored if time > newest - 1000 * seconds), default=0)


def _late_pages(path: Path, since: int) -> Iterator[int]:
    """Yield the pages of a segment that hold bytes at or behind an offset."""
    base = int(path.name) if path.name.isdigit() else 0
    used = len(path.read_bytes().rstrip(b"\0"))
    return iter(range(max(0, since - base) // PAGE * PAGE, used, PAGE))


def _late_units(path: Path, since: int) -> Iterator[int]:
    """Yield the pages of a queue's file that hold a unit of a record at or behind an offset."""
    raw = path.read_bytes()
    late = [at for at in range(0, len(raw) - UNIT + 1, UNIT) if int.from_bytes(raw[at : at + 8], "big") >= since > 0]
    return iter(sorted({at // PAGE * PAGE for at in late}))


DAMAGES: Mapping[str, Change] = {
    change.__name__: change
    for change in (
        flip_bit,
        set_field,
        set_property,
        set_topic,
        zero_pages,
        tear,
        set_blank,
        repeat_records,
        overwrite,
        cut_file,
        change_file,
        swap_files,
        copy_file,
        add_stray,
        remove_folder,
        empty_folder,
        replace,
        add_file,
        rename_file,
        set_units,
        zero_tails,
        change_last_files,
        shift_units,
        set_index_header,
        set_checkpoint,
        cut_checkpoint,
        leave_abort,
        remove_file,
        write_config,
        lose_power,
    )
}
"""Every damage by its name."""

HOWS, UNITS = tuple(_HOWS), tuple(_UNITS)


# --- places -----------------------------------------------------------------------------------------------


def records_of(raw: bytes | bytearray) -> list[tuple[int, int]]:
    """Return start and end of the records of a segment, up to the first place where there is none."""
    spans, at = [], 0
    while at + FIXED_SIZE <= len(raw):
        size, magic = (int.from_bytes(raw[at + place : at + place + 4], "big", signed=True) for place in (0, 4))
        if magic not in RECORD_MAGICS or not FIXED_SIZE <= size <= len(raw) - at:
            break
        spans.append((at, at + size))
        at += size
    return spans


def queues_of(root: Path) -> list[Path]:
    """Return the folders of all queues, sorted."""
    return sorted(path for path in (root / "consumequeue").glob("*/*") if path.is_dir())


def _folder(root: Path, kind: str, queue: int) -> Iterator[Path]:
    """Yield the folder of the log, of the index, of all queues, of one topic or of one queue, if it is there."""
    if kind in ("queue", "topic"):
        for path in _pick(queues_of(root), queue):
            yield path if kind == "queue" else path.parent
    elif (root / kind).is_dir():
        yield root / kind


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_file()) if folder.is_dir() else []


def _pick(some: Sequence[Path], number: int) -> Iterator[Path]:
    """Yield the one at a place that goes round; nothing where there is none."""
    if some:
        yield some[number % len(some)]


def _record(
    root: Path, segment: int, record: int, topic: str = ""
) -> Iterator[tuple[Path, bytearray, tuple[int, int]]]:
    """Yield a record's segment, its bytes, and where the record is; with a topic only records that name it count."""
    for path in _pick(_files(root / "commitlog"), segment):
        raw = bytearray(path.read_bytes())
        spans = [span for span in records_of(raw) if topic.encode() in raw[slice(*span)]]
        if spans:
            yield path, raw, spans[record % len(spans)]


def _set_number(raw: bytearray, at: int, size: int, value: str) -> None:
    old, number = int.from_bytes(raw[at : at + size], "big", signed=True), int(value[1:])
    new = {"=": number, "+": old + number, "^": old ^ number}[value[0]]
    raw[at : at + size] = (new & ((1 << 8 * size) - 1)).to_bytes(size, "big")


def _set_in_layout(path: Path, layout: Any, field: str, value: str) -> None:
    fields: Mapping[str, Any] = dtype_of(layout).fields or {}
    place = fields[field]
    raw = bytearray(path.read_bytes()) if path.exists() else bytearray()
    if place[1] + place[0].itemsize <= len(raw):
        _set_number(raw, place[1], place[0].itemsize, value)
        path.write_bytes(raw)


def _zero(path: Path, page: int, pages: int) -> None:
    raw = bytearray(path.read_bytes())
    count = len(raw) // PAGE
    for at in range(page % max(1, count), min(count, page % max(1, count) + pages)):
        raw[at * PAGE : (at + 1) * PAGE] = bytes(PAGE)
    path.write_bytes(raw)
