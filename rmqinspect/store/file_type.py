"""What a single file is: its type, from its first bytes, for files given without their folders.

Most files of a store have no magic at their start. Each type therefore has a test on the first
struct of its layout: sizes, offsets and times must be plausible together. Random data passes none
of them, and the order of the tests settles what two layouts have in common. Where the first
records of a segment are damaged, any whole record in the first MiB identifies it.
"""

from collections import Counter
from collections.abc import Callable

from rmqinspect.codec.layout import Container, parse
from rmqinspect.codec.record_proof import find_magics, read_head
from rmqinspect.errors import BadRecord, Unreadable
from rmqinspect.schemas import checkpoint, consumequeue, dledger, index, message, timer
from rmqinspect.schemas.places import place_of
from rmqinspect.store.model import LAST_BASE, StoreFile
from rmqinspect.store.reader import FileReader, open_file
from rmqinspect.system import uri

_PAGE = 4096
# Bytes searched for records: a segment's first ones, even when one or two are damaged.
_SEARCHED = 1 << 20
_FRONT = message.HEADS[False, False]
_OFFSET_AT = place_of(_FRONT, "physical_offset")
_OFFSET_SIZE = place_of(_FRONT, "sys_flag") - _OFFSET_AT
_LOOKS = 64  # at places in a file, one page each
# No log is 64 PiB long, so the first byte of an offset is 0; in text it never is.
_OFFSET_LIMIT = 1 << 56
# Milliseconds of the years 2004 and 3084: the range of plausible store timestamps.
_FIRST_TIME, _LAST_TIME = 1 << 40, 1 << 45

# First bytes of archives: magic, where it stands, and the command that unpacks with holes kept.
_ARCHIVES: tuple[tuple[bytes, int, str], ...] = (
    (b"\x1f\x8b", 0, "tar -xSzf"),
    (b"\xfd7zXZ\x00", 0, "tar -xSJf"),
    (b"BZh", 0, "tar -xSjf"),
    (b"\x28\xb5\x2f\xfd", 0, "tar --zstd -xSf"),
    (b"ustar", 257, "tar -xSf"),
    (b"PK\x03\x04", 0, "unzip"),
)
_ARCHIVE_HEAD = 512


def archive_advice(file: StoreFile) -> str | None:
    """Return one line that says how to unpack an archive, None if the file is no archive.

    :raises Unreadable: the file cannot be read.
    """
    with open_file(file) as reader:
        head, size = reader.read(0, _ARCHIVE_HEAD), reader.size
    for magic, at, command in _ARCHIVES:
        if head[at : at + len(magic)] == magic:
            target = "-d DIR" if command == "unzip" else "-C DIR"
            needs = "the unpacked size" if command != "tar -xSf" else f"about {size / 1e9:.1f} GB"
            return (
                f"{file.name}: an archive cannot be read in place. Unpack it, keeping holes: "
                f"{command} {uri.basename(file.path)} {target} (needs {needs}); then give DIR"
            )
    return None


def file_type(file: StoreFile) -> str | None:
    """Return the type of a file: a kind of `directory.PLACES`, "zeros", or None if it is no file of a store.

    :raises Unreadable: the file cannot be read.
    """
    name = uri.basename(file.path)
    with open_file(file) as reader:
        return _type_of(reader, name)


def _type_of(reader: FileReader, name: str) -> str | None:
    head, size = reader.read(0, _PAGE), reader.size
    if not head:
        return None
    if name.startswith("timerwheel") and size == timer.WHEEL_SLOTS * timer.WheelSlot.sizeof():
        return "timer_wheel"  # nearly all of it is zeros
    if not any(head):
        head = reader.read(reader.next_allocated(_PAGE), _SEARCHED)
        if not any(head):
            return "checkpoint" if name == "checkpoint" else "zeros"
    if name in ("checkpoint", "checkpoint.bak") or (name != "timercheck" and _is_checkpoint(head, size)):
        return "checkpoint"
    if head.lstrip()[:1] == b"{":
        return "config"
    for kind, test in _TESTS:
        if test(head, size):
            return kind
    return "segment" if _holds_record(reader.read(0, _SEARCHED), name) else None


def own_base(file: StoreFile) -> int | None:
    """Return a loose segment's base, by majority of PHYSICALOFFSET - position; None without one.

    :raises Unreadable: the file cannot be read.
    """
    votes = base_votes(file)
    # A body may hold the magic by chance: two votes must agree, unless there is only one.
    base, count = max(votes.items(), key=lambda vote: vote[1], default=(-1, 0))
    return base if 0 <= base <= LAST_BASE and (count > 1 or len(votes) == 1) else None


def base_votes(file: StoreFile) -> Counter[int]:
    """Return how many records near the beginning of a segment say each base.

    :raises Unreadable: the file cannot be read.
    """
    with open_file(file) as reader:
        raw = reader.read(0, _SEARCHED)
    votes: Counter[int] = Counter()
    for start in find_magics(raw):
        own = raw[start + _OFFSET_AT : start + _OFFSET_AT + _OFFSET_SIZE]
        if len(own) == _OFFSET_SIZE:
            votes[int.from_bytes(own, "big", signed=True) - start] += 1
    return votes


def fullness(file: StoreFile) -> int:
    """Return how many of some places in a file are used; 0: all zeros, it seems, or it cannot be read."""
    step = max(_PAGE, file.size // _LOOKS // _PAGE * _PAGE)
    try:
        with open_file(file) as reader:
            return sum(any(reader.read(place, _PAGE)) for place in range(0, file.size, step))
    except Unreadable:
        return 0


def _first(layout: object, raw: bytes) -> Container | None:
    """Return the struct at the start of `raw`, None where `raw` is too short for it."""
    try:
        return parse(layout, raw, str)
    except BadRecord:
        return None


def _has_magic(raw: bytes, *magics: int) -> bool:
    blank = _first(message.Blank, raw)
    return blank is not None and blank.magic in magics


def _is_segment(head: bytes, _: int) -> bool:
    return _has_magic(head, *message.RECORD_MAGICS, message.MAGIC_BLANK)


def _is_dledger(head: bytes, size: int) -> bool:
    blank, entry = _first(dledger.EntryBlank, head), _first(dledger.EntryHead, head)
    if blank is not None and blank.magic == dledger.ENTRY_MAGIC_BLANK:
        return bool(blank.total_size == size)
    if entry is None or entry.magic not in dledger.ENTRY_MAGICS:
        return False
    entry_head = dledger.EntryHead.sizeof()
    return _has_magic(head[entry_head:], *message.RECORD_MAGICS) or entry.size == entry_head + entry.body_size


def _is_index(head: bytes, size: int) -> bool:
    header = _first(index.IndexHeader, head)
    slots_and_entries = size - index.IndexHeader.sizeof()
    return (
        header is not None
        and 0 < header.begin_timestamp <= header.end_timestamp < _LAST_TIME
        and 0 <= header.begin_physical_offset <= header.end_physical_offset
        and header.index_count > 0
        and slots_and_entries > 0
        and slots_and_entries % index.IndexSlot.sizeof() == 0
    )


def _is_checkpoint(head: bytes, size: int) -> bool:
    fields = _first(checkpoint.Checkpoint, head)
    return (
        size == checkpoint.CHECKPOINT_SIZE
        and fields is not None
        and all(0 <= fields[name] < _LAST_TIME for name in checkpoint.TIMESTAMP_FIELDS)
    )


def _is_batch_queue(head: bytes, size: int) -> bool:
    unit = _first(consumequeue.BatchUnit, head)
    return (
        unit is not None
        and size % consumequeue.BatchUnit.sizeof() == 0
        and 0 <= unit.physical_offset < _OFFSET_LIMIT
        and unit.size > 0
        and unit.queue_offset >= 0
        and unit.message_count > 0
    )


def _is_queue(head: bytes, size: int) -> bool:
    unit = _first(consumequeue.QueueUnit, head)
    return (
        unit is not None
        and size % consumequeue.QueueUnit.sizeof() == 0
        and 0 <= unit.physical_offset < _OFFSET_LIMIT
        and unit.size >= message.FIXED_SIZE
    )


def _is_timer_log(head: bytes, _: int) -> bool:
    unit = _first(timer.TimerUnit, head)
    return (
        unit is not None
        and unit.size == timer.UNIT_SIZE
        and unit.magic in timer.UNIT_MAGICS
        and timer.NO_UNIT <= unit.previous < _OFFSET_LIMIT
        # A queue unit may have an offset that looks like size and previous, but not this time.
        and _FIRST_TIME < unit.enqueue_timestamp < _LAST_TIME
        and 0 <= unit.physical_offset < _OFFSET_LIMIT
        and unit.record_size >= message.FIXED_SIZE
    )


# In this order: the start of a batch unit also passes as a queue unit, a timer unit as an index header.
_TESTS: tuple[tuple[str, Callable[[bytes, int], bool]], ...] = (
    ("segment", _is_segment),
    ("dledger", _is_dledger),
    ("timer_log", _is_timer_log),
    ("index", _is_index),
    ("batch_queue", _is_batch_queue),
    ("queue", _is_queue),
)


def _holds_record(raw: bytes, name: str) -> bool:
    """Whether a record begins in `raw` at its own place, if the file's name says what place that is."""
    base = int(name) if name.isdecimal() else None
    heads = ((start, read_head(raw, start)) for start in find_magics(raw))
    return any(
        head is not None and head.size > message.FIXED_SIZE and base in (None, head.own_offset - start)
        for start, head in heads
    )
