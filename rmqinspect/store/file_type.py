"""What a single file is, told from its first bytes; for pieces given without their folders."""

import os
from collections import Counter

from rmqinspect.errors import Unreadable
from rmqinspect.schemas import checkpoint as checkpoint_layout
from rmqinspect.schemas import consumequeue, dledger, index, message, timer
from rmqinspect.system import filesystem, uri

# Enough for the first records of any segment, even when the first one or two are damaged.
_LOOK = 1 << 20
_FRONT_SIZE = sum(part.sizeof() for part in message.FRONT)
_ENTRY_HEAD = dledger.EntryHead.sizeof()
# No log is that long (64 PiB): the first byte of an offset is 0, which it never is in text.
_OFFSET_LIMIT = 1 << 56

# First bytes of what people put tickets in → how it is unpacked with its holes kept.
_ARCHIVES: tuple[tuple[bytes, int, str], ...] = (
    (b"\x1f\x8b", 0, "tar -xSzf"),
    (b"\xfd7zXZ\x00", 0, "tar -xSJf"),
    (b"BZh", 0, "tar -xSjf"),
    (b"\x28\xb5\x2f\xfd", 0, "tar --zstd -xSf"),
    (b"ustar", 257, "tar -xSf"),
    (b"PK\x03\x04", 0, "unzip"),
)


def archive_advice(shown: str, path: str) -> str | None:
    """Return one line that says how to unpack `path`, or None if it is no archive."""
    head = _head(path, 512)
    for magic, at, command in _ARCHIVES:
        if head[at : at + len(magic)] == magic:
            size = filesystem.stat(path).st_size
            target = "-d DIR" if command == "unzip" else "-C DIR"
            needs = "the unpacked size" if command != "tar -xSf" else f"about {size / 1e9:.1f} GB"
            return (
                f"{shown}: an archive cannot be read in place. Unpack it, keeping holes: "
                f"{command} {uri.basename(path)} {target} (needs {needs}); then give DIR"
            )
    return None


def sniff(path: str) -> str | None:
    """Return the kind of a file by its bytes: a kind of store.PLACES, "zeros", or None.

    :raises Unreadable: it cannot be read.
    """
    head = _head(path, 4096)
    size = filesystem.stat(path).st_size
    name = uri.basename(path)
    if not head:
        return None
    if name.startswith("timerwheel") and size == timer.WHEEL_SLOTS * timer.WheelSlot.sizeof():
        return "timer_wheel"  # nearly all of it is zeros
    if not any(head):
        head = _first_data(path)
        if not any(head):
            return "checkpoint" if name == "checkpoint" else "zeros"
    looks_so = name != "timercheck" and size == checkpoint_layout.CHECKPOINT_SIZE and _is_checkpoint(head)
    if name in ("checkpoint", "checkpoint.bak") or looks_so:
        return "checkpoint"
    if head.lstrip()[:1] == b"{":
        return "config"
    for kind, test in _TESTS:
        if test(head, size):
            return kind
    return "segment" if _find_record(path) is not None else None


def own_base(path: str, size: int) -> int | None:
    """Return a loose segment's base: the majority of PHYSICALOFFSET - position, if there is one."""
    raw = _head(path, _LOOK)
    votes: Counter[int] = Counter()
    at = raw.find(message.MAGIC_PREFIX)
    while 4 <= at <= len(raw) - _FRONT_SIZE:
        start = at - 4
        votes[_int(raw, start + 28, 8) - start] += 1
        at = raw.find(message.MAGIC_PREFIX, at + 1)
    # A body may hold the magic by chance; two that agree, or the only one at the start, decide.
    base, count = max(votes.items(), key=lambda vote: vote[1], default=(-1, 0))
    return base if base >= 0 and (count > 1 or len(votes) == 1) else None


def _int(raw: bytes, at: int, size: int) -> int:
    return int.from_bytes(raw[at : at + size], "big", signed=True)


def _head(path: str, size: int) -> bytes:
    try:
        if uri.is_remote(path):
            return filesystem.read_remote(path, size)
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            return file.read(size)
    except OSError as error:
        raise Unreadable(f"{uri.shown(path)}: {error.strerror}") from error


def _first_data(path: str) -> bytes:
    """Return 4 KiB from where the file's first allocated block is (holes are skipped)."""
    if uri.is_remote(path):
        return filesystem.read_remote(path, _LOOK, 4096)
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        try:
            file.seek(os.lseek(file.fileno(), 4096, os.SEEK_DATA))
        except OSError:
            return b""
        return file.read(_LOOK)


def _is_record(head: bytes, at: int = 0) -> bool:
    return _int(head, at + 4, 4) in (message.MAGIC_V1, message.MAGIC_V2)


def _is_segment(head: bytes, _: int) -> bool:
    return _is_record(head) or _int(head, 4, 4) == message.MAGIC_BLANK


def _is_dledger(head: bytes, size: int) -> bool:
    if _int(head, 0, 4) == dledger.ENTRY_MAGIC_BLANK:
        return _int(head, 4, 4) == size
    return _int(head, 0, 4) in dledger.ENTRY_MAGICS and (
        _is_record(head, _ENTRY_HEAD) or _int(head, 4, 4) == _ENTRY_HEAD + _int(head, 44, 4)
    )


def _is_index(head: bytes, size: int) -> bool:
    header = index.IndexHeader.parse(head) if size > index.IndexHeader.sizeof() else None
    return (
        header is not None
        and 0 < header.begin_timestamp <= header.end_timestamp < 1 << 45
        and 0 <= header.begin_physical_offset <= header.end_physical_offset
        and header.index_count > 0
        and (size - index.IndexHeader.sizeof()) % 4 == 0
    )


def _is_checkpoint(head: bytes) -> bool:
    fields = checkpoint_layout.Checkpoint.parse(head)
    return all(0 <= fields[name] < 1 << 45 for name in checkpoint_layout.TIMESTAMP_FIELDS)


def _is_batch_queue(head: bytes, size: int) -> bool:
    unit = consumequeue.BatchUnit
    if size % unit.sizeof() or size < unit.sizeof():
        return False
    first = unit.parse(head)
    sizes = first.size > 0 and first.queue_offset >= 0 and first.message_count > 0
    return bool(0 <= first.physical_offset < _OFFSET_LIMIT and sizes)


def _is_queue(head: bytes, size: int) -> bool:
    unit = consumequeue.QueueUnit
    if size % unit.sizeof() or size < unit.sizeof():
        return False
    first = unit.parse(head)
    return bool(0 <= first.physical_offset < _OFFSET_LIMIT and first.size >= message.FIXED_SIZE)


def _is_timer_log(head: bytes, size: int) -> bool:
    unit = timer.TimerUnit.parse(head) if size >= timer.UNIT_SIZE else None
    return (
        unit is not None
        and unit.size == timer.UNIT_SIZE
        and unit.magic in timer.UNIT_MAGICS
        and timer.NO_UNIT <= unit.previous < _OFFSET_LIMIT
        # The time tells it from a queue unit whose offset begins like this.
        and 1 << 40 < unit.enqueue_timestamp < 1 << 45
        and 0 <= unit.physical_offset < _OFFSET_LIMIT
        and unit.record_size >= message.FIXED_SIZE
    )


# In this order: a batch queue's first 20 bytes also look like a queue unit, a timer unit like an index header.
_TESTS = (
    ("segment", _is_segment),
    ("dledger", _is_dledger),
    ("timer_log", _is_timer_log),
    ("index", _is_index),
    ("batch_queue", _is_batch_queue),
    ("queue", _is_queue),
)


def _find_record(path: str) -> int | None:
    """Return where in the first MiB a record stands that knows its own place, or None."""
    raw = _head(path, _LOOK)
    at = raw.find(message.MAGIC_PREFIX, 4)
    name = uri.basename(path)
    base = int(name) if name.isdecimal() else None
    while at != -1:
        start = at - 4
        size, offset = _int(raw, start, 4), _int(raw, start + 28, 8)
        if _is_record(raw, start) and size > message.FIXED_SIZE and base in (None, offset - start):
            return start
        at = raw.find(message.MAGIC_PREFIX, at + 1)
    return None
