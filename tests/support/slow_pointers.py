"""Reference checks of queue units and index entries, one struct at a time.

The oracle for the columns of `rmqinspect.verify`: it walks the records of a store one by one, then the units of
every queue and the entries of every index file, and shares with the product nothing but the layouts of
`rmqinspect.schemas`. What the product has to estimate (sizes, the writer's version, delays) comes from
the settings with which the store was written.

The rules are those of the brokers: CommitLogDispatcherBuildConsumeQueue, ConsumeQueue#putMessagePositionInfo,
CommitLog#checkMessageAndReturnSize (tags code), IndexService#buildIndex, IndexFile#putKey.
"""

import io
import json
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Any, NamedTuple

from construct import ConstructError, Int32sb

from rmqinspect.schemas.checkpoint import Checkpoint
from rmqinspect.schemas.consumequeue import (
    EXT_ADDRESS_BASE,
    EXT_ADDRESS_MAX,
    PRE_BLANK_SIZE,
    BatchUnit,
    ExtHead,
    QueueUnit,
)
from rmqinspect.schemas.dledger import ENTRY_MAGIC_BLANK, ENTRY_MAGICS, EntryHead
from rmqinspect.schemas.index import IndexEntry, IndexHeader, IndexSlot
from rmqinspect.schemas.message import CRC_MASK, MAGIC_BLANK, MAGIC_PREFIX, MAGIC_V1, MAGIC_V2, Message

UNIT: int = QueueUnit.sizeof()
BATCH_UNIT: int = BatchUnit.sizeof()
HEADER: int = IndexHeader.sizeof()
SLOT: int = IndexSlot.sizeof()
ENTRY: int = IndexEntry.sizeof()
SCHEDULE = "SCHEDULE_TOPIC_XXXX"
NONE, PREPARED, COMMIT, ROLLBACK = 0, 4, 8, 12  # MessageSysFlag#getTransactionValue
INT_MAX = 2**31 - 1
LEADS_ASTRAY = frozenset({"CQ-DANGLING", "CQ-BEYOND", "CQ-MISMATCH"})
# Topics whose records a broker never hands to more queues, whatever their properties say.
NEVER_MULTI_DISPATCHED = ("%RETRY%", "rmq_sys_", SCHEDULE)


class Settings(NamedTuple):
    """How a store was written. Nothing here is read from the store."""

    version: tuple[int, ...]
    segment_size: int
    queue_size: int  # bytes of a queue file
    slots: int
    entries: int
    delays: tuple[int, ...]  # ms, of level 1, 2, ...
    file_queues: bool = True  # False: the queues live in RocksDB
    multi_dispatch: bool = False


class Row(NamedTuple):
    """One finding; `number` is how many were folded into it."""

    code: str
    file: str
    offset: int | None
    physical_offset: int | None
    number: int = 1


class Record(NamedTuple):
    physical_offset: int
    size: int
    topic: str
    queue_id: int
    queue_offset: int
    transaction: int
    store_timestamp: int
    properties: dict[str, str]
    whole: bool  # its body's CRC and its own physical offset are right


class Log(NamedTuple):
    """The records of a store, and where something else stands in their place."""

    records: dict[int, Record]  # by physical offset
    gaps: list[tuple[int, int]]  # start, end
    segments: dict[int, str]  # base -> name below the store's root
    start: int
    end: int  # of the last record

    def in_gap(self, place: int) -> int | None:
        """Return the start of the gap that `place` is in."""
        return next((start for start, end in self.gaps if start <= place < end), None)

    def place_of(self, record: Record) -> tuple[str, int]:
        """Return the segment's name and the position in it."""
        base = max(base for base in self.segments if base <= record.physical_offset)
        return self.segments[base], record.physical_offset - base


class Unit(NamedTuple):
    topic: str
    queue_id: int
    file: str
    offset: int  # in the file
    number: int  # in the queue
    physical_offset: int
    size: int
    tags_code: int


class Verdict(NamedTuple):
    rows: list[Row]  # of level deep
    ends: list[Row]  # CQ-MISSING of level standard: the ends of queues, one row each
    witnesses: dict[int, int]  # start of a gap in the log -> messages known to have stood in it
    lost: dict[str, int]  # by topic: messages that queues know of behind the log's end, and the log does not hold
    joined: int  # units that lead to a record of their queue
    live: int  # units of messages at or behind the log's start
    units: list[Unit]  # of messages, by queue


def judge(root: Path, settings: Settings) -> Verdict:
    """Return every expected finding between the log, the queues and the index of a store."""
    queues = read_queues(root) if settings.file_queues else {}
    used = [unit for units in queues.values() for unit in units if is_message(unit)]
    batches = read_batch_units(root)
    log = read_log(root, settings)
    index = [read_index_file(path, root, settings) for path in index_paths(root)]
    rows: list[Row] = []
    ends: list[Row] = []
    joined = Joined(root, log, settings)
    if settings.file_queues:
        rows += queue_sizes(root, settings.queue_size)
        for units in queues.values():
            joined.take(units)
        joined.right.update(unit for unit in batches if unit[2] in log.records)
        joined.served.update(batches)
        lost, late = missing_units(joined)
        rows += [*joined.rows, *joined.retention_rows(), *missing_rows(log, [[run] for _, run in lost]), *late]
        ends += missing_rows(log, at_ends(lost, reached_by_units(log, queues, batches)))
    rows += [*judge_index(index, log, settings), *not_indexed(root, index, log)]
    for start, end in log.gaps:
        # The index knows messages that have no unit: prepared ones.
        entries = {e.physical_offset for file in index for e in file.entries if start <= e.physical_offset < end}
        if entries:
            joined.held.setdefault(start, entries)
    live = [place for _, _, place in batches] + [unit.physical_offset for unit in used]
    return Verdict(
        rows,
        ends,
        {start: len(places) for start, places in joined.held.items()},
        lost_messages(log, used, settings),
        len(joined.right),
        sum(place >= log.start for place in live),
        used,
    )


# --- the log --------------------------------------------------------------------------------------


def read_log(root: Path, settings: Settings) -> Log:
    """Read every segment from its start; resume behind damage at the next whole record."""
    folder = next((path for path in (*root.glob("dledger-*/data"), root / "commitlog") if path.is_dir()), None)
    paths = sorted(path for path in folder.iterdir() if is_base(path)) if folder is not None else []
    wrapped = folder is not None and folder.name == "data"
    segments = {int(path.name): path.relative_to(root).as_posix() for path in paths}
    records: dict[int, Record] = {}
    gaps: list[tuple[int, int]] = []
    pending: list[tuple[int, int]] = []  # zeros that may be the end of the log
    size = settings.segment_size
    whole = any(path.stat().st_size == size for path in paths)
    for path in paths:
        base, raw = int(path.name), path.read_bytes()
        for start, end, record in _walk(raw[:size], base, wrapped):
            if record is not None:
                gaps += pending
                pending = []
                records[record.physical_offset] = record
            elif any(raw[start - base : end - base]):
                gaps.append((start, end))
            else:
                pending.append((start, end))
        if len(raw) < size and whole:
            gaps.append((base + len(raw), base + size))
    for (before, _), (after, _) in pairwise(segments.items()):
        if before + size < after:
            gaps.append((before + size, after))
    start = min(segments, default=0)
    last = max(records, default=start)
    return Log(records, sorted(gaps), segments, start, last + records[last].size if last in records else start)


def _walk(raw: bytes, base: int, wrapped: bool) -> Iterator[tuple[int, int, Record | None]]:
    """Yield (start, end, record) for each record, and (start, end, None) for what is none, of one segment."""
    position = 0
    while len(raw) - position >= 8:
        size, magic = _two_ints(raw, position)
        if magic == MAGIC_BLANK or (wrapped and size == ENTRY_MAGIC_BLANK):
            return
        head = EntryHead.sizeof() if wrapped and size in ENTRY_MAGICS else 0
        record = read_record(raw, position + head, base + position + head)
        if record is not None:
            yield base + position, base + position + head + record.size, record
            position += head + record.size
            continue
        end = next(_places(raw, position + 1, base), len(raw))
        yield base + position, base + end, None
        position = end


def _places(raw: bytes, position: int, base: int) -> Iterator[int]:
    """Yield every later position where a whole record with the right own offset begins."""
    while (magic := raw.find(MAGIC_PREFIX, position + 4)) >= 0:
        position = magic - 3
        record = read_record(raw, magic - 4, base + magic - 4)
        if record is not None and record.whole:
            yield magic - 4


def _two_ints(raw: bytes, position: int) -> tuple[int, int]:
    return _int(raw[position : position + 4]), _int(raw[position + 4 : position + 8])


@lru_cache(1 << 16)
def _int(raw: bytes) -> int:
    number: int = Int32sb.parse(raw)
    return number


def read_record(raw: bytes, position: int, place: int) -> Record | None:
    """Return the record at a position of a segment, None if its lengths do not agree or there is none."""
    if position < 0 or len(raw) - position < 8:
        return None
    size, magic = _two_ints(raw, position)
    if magic not in (MAGIC_V1, MAGIC_V2) or not 0 < size <= len(raw) - position:
        return None
    record = parse_record(raw[position : position + size])
    if record is None or record.physical_offset == place:
        return record
    return record._replace(physical_offset=place, whole=False)


@lru_cache(1 << 16)  # most stores of the crash family are copies of a few
def parse_record(raw: bytes) -> Record | None:
    """Return a record, `physical_offset` as it says itself; None where lengths do not agree."""
    stream = io.BytesIO(raw)
    try:
        fields = Message.parse_stream(stream)
    except ConstructError:
        return None
    if stream.tell() != len(raw):
        return None
    return Record(
        fields.physical_offset,
        len(raw),
        fields.topic.decode(errors="replace"),
        fields.queue_id,
        fields.queue_offset,
        fields.sys_flag & ROLLBACK,
        fields.store_timestamp,
        parse_properties(fields.properties),
        not fields.body or zlib.crc32(fields.body) & CRC_MASK == fields.body_crc,
    )


def parse_properties(raw: bytes) -> dict[str, str]:
    """Return the properties as MessageDecoder#string2messageProperties: the last of a name wins.

    A value that holds the separator of names is dropped by older versions: `property_of`.
    """
    found = {}
    for item in raw.decode(errors="replace").split("\x02"):
        name, _, value = item.partition("\x01")
        if name and value:
            found[name] = value
    return found


def is_base(path: Path) -> bool:
    """Say whether a file of mapped files has a name that the broker makes."""
    return path.is_file() and len(path.name) == 20 and path.name.isdigit()


# --- what a record is entitled to -----------------------------------------------------------------


@lru_cache(1 << 16)
def java_hash(text: str) -> int:
    """Return String#hashCode."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for at in range(0, len(units), 2):
        value = (31 * value + int.from_bytes(units[at : at + 2], "big")) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def property_of(record: Record, name: str, version: tuple[int, ...]) -> str | None:
    """Return a property as the writer's version reads it."""
    value = record.properties.get(name)
    return None if value is not None and version < (4, 9, 1) and "\x01" in value else value


def more_queues(record: Record, settings: Settings) -> dict[tuple[str, int], int]:
    """Return the other queues of a record and its number in each: CommitLogDispatcherBuildConsumeQueue and
    MultiDispatch (4.9.3 and later, `enableMultiDispatch`)."""
    names = record.properties.get("INNER_MULTI_DISPATCH")
    offsets = record.properties.get("INNER_MULTI_QUEUE_OFFSET")
    if not settings.multi_dispatch or not names or not offsets or record.topic.startswith(NEVER_MULTI_DISPATCHED):
        return {}
    listed, numbers = names.split(","), offsets.split(",")
    if len(listed) != len(numbers):
        return {}
    return {
        (name, 0 if name.startswith("%LMQ%") else record.queue_id): int(number)
        for name, number in zip(listed, numbers, strict=True)
        if number.isdigit()
    }


def tags_codes(record: Record, settings: Settings) -> set[int]:
    """Return the tags codes that a unit of the record's own queue may hold."""
    tags = property_of(record, "TAGS", settings.version)
    plain = java_hash(tags) if tags else 0
    delay = record.properties.get("DELAY", "")
    if record.topic != SCHEDULE or not delay.isdigit() or int(delay) == 0:
        return {plain}
    level = min(int(delay), len(settings.delays))
    codes = {record.store_timestamp + settings.delays[level - 1]}
    # Recovery dispatches before the table of levels is loaded.
    return codes | {plain} if (4, 9, 2) <= settings.version <= (4, 9, 8) else codes


def key_hashes(record: Record, settings: Settings) -> list[int]:
    """Return the hashes of the index entries that the record gets: IndexService#buildIndex."""
    if record.transaction == ROLLBACK:
        return []
    unique, keys, tags = (property_of(record, name, settings.version) for name in ("UNIQ_KEY", "KEYS", "TAGS"))
    texts = [unique] if unique is not None else []
    texts += [key for key in (keys or "").split(" ") if key]
    if settings.version >= (5, 4, 0) and tags:
        texts.append(f"T#{tags}")
    hashes = (abs(java_hash(f"{record.topic}#{text}")) for text in texts)
    return [0 if value > INT_MAX else value for value in hashes]


# --- consume queues -------------------------------------------------------------------------------


def queue_folders(root: Path, kind: str) -> Iterator[tuple[str, int, Path]]:
    for topic in sorted(path for path in (root / kind).glob("*") if path.is_dir()):
        for queue in sorted(path for path in topic.iterdir() if path.is_dir() and path.name.isdigit()):
            yield topic.name, int(queue.name), queue


def read_queues(root: Path) -> dict[tuple[str, int], list[Unit]]:
    """Return all whole units of every file, in order, unused ones too."""
    found: dict[tuple[str, int], list[Unit]] = {}
    for topic, queue_id, folder in queue_folders(root, "consumequeue"):
        units = found[topic, queue_id] = []
        for path in sorted(path for path in folder.iterdir() if is_base(path)):
            raw, name = path.read_bytes(), path.relative_to(root).as_posix()
            for offset in range(0, len(raw) - UNIT + 1, UNIT):
                number = (int(path.name) + offset) // UNIT
                units.append(Unit(topic, queue_id, name, offset, number, *_unit(raw[offset : offset + UNIT])))
    return found


@lru_cache(1 << 16)
def _unit(raw: bytes) -> tuple[int, int, int]:
    unit = QueueUnit.parse(raw)
    return unit.physical_offset, unit.size, unit.tags_code


def is_unused(unit: Unit) -> bool:
    return (unit.physical_offset, unit.size, unit.tags_code) == (0, 0, 0)


def is_filler(unit: Unit) -> bool:
    return (unit.physical_offset, unit.size, unit.tags_code) == (0, PRE_BLANK_SIZE, 0)


def is_message(unit: Unit) -> bool:
    return not is_unused(unit) and not is_filler(unit)


def is_valid(unit: Unit) -> bool:
    """Say whether it is a unit for a broker: ConsumeQueue#recover."""
    return unit.physical_offset >= 0 and unit.size > 0


def read_batch_units(root: Path) -> set[tuple[str, int, int]]:
    """Return (topic, queue, physical offset) of every record in a batch queue."""
    found = set()
    for topic, queue_id, folder in queue_folders(root, "batchconsumequeue"):
        for path in sorted(path for path in folder.iterdir() if is_base(path)):
            raw = path.read_bytes().rstrip(b"\0")  # most of it
            for offset in range(0, len(raw), BATCH_UNIT):
                unit = BatchUnit.parse(raw[offset : offset + BATCH_UNIT].ljust(BATCH_UNIT, b"\0"))
                if unit.size > 0:
                    found.add((topic, queue_id, unit.physical_offset))
    return found


def queue_sizes(root: Path, size: int) -> Iterator[Row]:
    for _, _, folder in queue_folders(root, "consumequeue"):
        for path in sorted(path for path in folder.iterdir() if is_base(path)):
            if path.stat().st_size != size:
                yield Row("CQ-SIZE", path.relative_to(root).as_posix(), None, None)


@dataclass
class Joined:
    """Judge of the units of all queues. Sets hold (topic, queue, physical offset)."""

    root: Path
    log: Log
    settings: Settings
    rows: list[Row] = field(default_factory=list)
    right: set[tuple[str, int, int]] = field(default_factory=set)  # units that lead to a record of their queue
    # Records that any unit leads to, by their own queue, or by the one that they name besides.
    served: set[tuple[str, int, int]] = field(default_factory=set)
    held: dict[int, set[int]] = field(default_factory=dict)  # start of a gap -> places in it
    expired: int = 0
    zero_behind: int = 0

    def take(self, units: list[Unit]) -> None:
        """Judge the units of one queue."""
        messages = [unit for unit in units if is_message(unit)]
        reported: list[tuple[Row, int, int]] = []
        in_order = []
        for unit in messages:
            codes = self.judge(unit)
            place = unit.physical_offset if is_valid(unit) else None
            reported += [(Row(code, unit.file, unit.offset, place), by, unit.number) for code, by in codes]
            if LEADS_ASTRAY.isdisjoint(dict(codes)):
                in_order.append(unit)
        reported += [(Row("CQ-ORDER", unit.file, unit.offset, None), 0, unit.number) for unit in out_of_order(in_order)]
        self.rows += [*holes(units, self.settings.queue_size), *fold(reported)]
        for unit in takewhile(lambda unit: unit.physical_offset < self.log.start, filter(is_valid, messages)):
            self.zero_behind += unit.physical_offset == 0
            self.expired += unit.physical_offset != 0

    def judge(self, unit: Unit) -> list[tuple[str, int]]:
        """Return the codes of one unit, with what must be the same where they are folded."""
        place = unit.physical_offset
        gap, record = self.log.in_gap(place), self.log.records.get(place)
        if not is_valid(unit):
            return [("CQ-DANGLING", 0)]
        if record is not None:
            return self._judge_joined(unit, record)
        if gap is not None:
            self.held.setdefault(gap, set()).add(place)
        elif place >= self.log.start:
            return [("CQ-BEYOND" if place >= self.log.end else "CQ-DANGLING", 0)]
        return []

    def _judge_joined(self, unit: Unit, record: Record) -> list[tuple[str, int]]:
        queue, own = (unit.topic, unit.queue_id), (record.topic, record.queue_id)
        more = queue in more_queues(record, self.settings)
        codes = judge_unit(self.root, unit, record, self.settings)
        self.served.add((*(queue if more else own), record.physical_offset))
        if LEADS_ASTRAY.isdisjoint(dict(codes)):
            self.right.add((*queue, record.physical_offset))
        return codes

    def retention_rows(self) -> Iterator[Row]:
        for code, number in (("CQ-EXPIRED", self.expired), ("CQ-ZERO-BEHIND", self.zero_behind)):
            if number:
                yield Row(code, "consumequeue", None, None, number)


def holes(units: list[Unit], queue_size: int) -> Iterator[Row]:
    """Yield CQ-HOLE for the unit numbers that are not in use, where later ones of the queue are."""
    files = {unit.file: unit.number - unit.offset // UNIT for unit in units}  # number of the first unit
    last = min(files.values(), default=0) - 1
    for unit in (unit for unit in units if not is_unused(unit)):
        first, last, number = last + 1, unit.number, unit.number - last - 1
        if number:
            in_file = [file for file, begin in files.items() if 0 <= first - begin < queue_size // UNIT]
            if in_file:
                yield Row("CQ-HOLE", in_file[0], (first - files[in_file[0]]) * UNIT, None, number)
            else:
                yield Row("CQ-HOLE", f"{unit.file[:-20]}{first * UNIT:020}", None, None, number)


def out_of_order(units: list[Unit]) -> list[Unit]:
    """Return the units without which the physical offsets ascend, where one of two neighbours must be wrong."""
    places = [unit.physical_offset for unit in units]
    found = []
    for at in range(1, len(units)):
        if places[at] <= places[at - 1]:
            without_it = places[at + 1 : at + 2] > places[at - 1 : at]
            without_the_other = at >= 2 and places[at - 2] < places[at]
            found.append(units[at - 1] if without_the_other and not without_it else units[at])
    return list(dict.fromkeys(found))


def judge_unit(root: Path, unit: Unit, record: Record, settings: Settings) -> list[tuple[str, int]]:
    """Return the codes of a unit that leads to a record; for CQ-SHIFT, by how much."""
    more = more_queues(record, settings).get((unit.topic, unit.queue_id))
    own = (unit.topic, unit.queue_id) == (record.topic, record.queue_id)
    entitled = own and record.transaction in (NONE, COMMIT)
    if unit.size != record.size or not (entitled or more is not None):
        return [("CQ-MISMATCH", 0)]
    found = []
    code: int | None = unit.tags_code
    exts = root / "consumequeue_ext" / unit.topic / str(unit.queue_id)
    if own and unit.tags_code <= EXT_ADDRESS_MAX and exts.is_dir():
        code = ext_tags_code(exts, unit.tags_code - EXT_ADDRESS_BASE)
    expected = tags_codes(record, settings) if own else {java_hash(record.properties.get("TAGS", ""))}
    if code is not None and code not in expected:
        found.append(("CQ-TAG", 0))
    number = record.queue_offset if own or more is None else more
    if unit.number != number:
        found.append(("CQ-SHIFT", number - unit.number))
    return found


def ext_tags_code(folder: Path, address: int) -> int | None:
    """Return the tags code of an ext unit, None where there is none: ConsumeQueueExt#get."""
    for path in folder.iterdir():
        position = address - int(path.name)
        if 0 <= position < path.stat().st_size:
            with path.open("rb") as file:
                file.seek(position)
                code: int = ExtHead.parse(file.read(ExtHead.sizeof())).tags_code
                return code
    return None


def lost_messages(log: Log, used: list[Unit], settings: Settings) -> dict[str, int]:
    """Count the units behind the log's end, but those whose message stands in the log at another place."""
    held = {
        (*queue, number)
        for record in log.records.values()
        for queue, number in {
            (record.topic, record.queue_id): record.queue_offset,
            **more_queues(record, settings),
        }.items()
    }
    lost: dict[str, int] = {}
    for unit in used:
        beyond = unit.physical_offset >= log.end and log.in_gap(unit.physical_offset) is None
        if beyond and (unit.topic, unit.queue_id, unit.number) not in held:
            lost[unit.topic] = lost.get(unit.topic, 0) + 1
    return lost


def missing_units(joined: Joined) -> tuple[list[tuple[tuple[str, int], list[Record]]], list[Row]]:
    """Return the records that lost their unit, in runs of queue offsets with their queue, and CQ-BEHIND.

    After an unclean stop, the records behind the one that the newest unit of all queues leads to are not
    dispatched yet, unless the checkpoint says that the queue already had a unit for the first of them.
    """
    root, log = joined.root, joined.log
    newest = max((place for _, _, place in joined.right), default=-1)
    dispatched_to = checkpoint_time(root)
    late: list[Record] = []
    lost = []
    for queue, run in runs_without_unit(joined):
        tail = [record for record in run if record.physical_offset > newest]
        if tail and (root / "abort").exists() and tail[0].store_timestamp >= dispatched_to:
            late += tail
            run = run[: -len(tail)]
        if run:
            lost.append((queue, run))
    if not late:
        return lost, []
    first = min(late, key=lambda record: record.physical_offset)
    return lost, [Row("CQ-BEHIND", *log.place_of(first), first.physical_offset, len(late))]


def missing_rows(log: Log, groups: Iterable[list[list[Record]]]) -> Iterator[Row]:
    """Yield CQ-MISSING, one for each group of runs."""
    for runs in groups:
        first = runs[0][0]
        yield Row("CQ-MISSING", *log.place_of(first), first.physical_offset, sum(map(len, runs)))


def at_ends(
    lost: list[tuple[tuple[str, int], list[Record]]], reached: dict[tuple[str, int], list[int]]
) -> Iterator[list[list[Record]]]:
    """Yield the runs that have no unit of their queue in front of them, or none behind them, together by queue."""
    by_queue: dict[tuple[str, int], list[list[Record]]] = {}
    for queue, run in lost:
        places = reached.get(queue, [])
        if not places or run[-1].physical_offset < places[0] or run[0].physical_offset > places[-1]:
            by_queue.setdefault(queue, []).append(run)
    yield from by_queue.values()


def reached_by_units(
    log: Log, queues: dict[tuple[str, int], list[Unit]], batches: set[tuple[str, int, int]]
) -> dict[tuple[str, int], list[int]]:
    """Return where the units of each queue point, from the first one that leads into the log, in their order."""
    reached: dict[tuple[str, int], list[int]] = {}
    for topic, queue_id, place in sorted(batches):
        reached.setdefault((topic, queue_id), []).append(place)
    for queue, units in queues.items():
        places = [unit.physical_offset for unit in units if is_message(unit) and is_valid(unit)]
        while places and places[0] < log.start:
            places.pop(0)
        if places:
            reached[queue] = sorted([*reached.get(queue, []), places[0], places[-1]])
    return reached


def runs_without_unit(joined: Joined) -> Iterator[tuple[tuple[str, int], list[Record]]]:
    """Yield the records that lack a unit that they are entitled to, by queue and consecutive queue offset."""
    runs: dict[tuple[str, int], list[list[Record]]] = {}
    last: dict[tuple[str, int], int] = {}
    deleted = deleted_topics(joined.root, joined.log)
    for record in joined.log.records.values():
        if record.transaction not in (NONE, COMMIT) or not record.whole or record.topic in deleted:
            continue
        own = (record.topic, record.queue_id)
        for queue, number in {own: record.queue_offset, **more_queues(record, joined.settings)}.items():
            if (*queue, record.physical_offset) not in joined.served:
                of_queue = runs.setdefault(queue, [])
                if not of_queue or number != last[queue] + 1:
                    of_queue.append([])
                of_queue[-1].append(record)
                last[queue] = number
    for queue, of_queue in runs.items():
        yield from ((queue, run) for run in of_queue)


def deleted_topics(root: Path, log: Log) -> set[str]:
    """Return the topics of records that the configuration no longer knows and that have not one unit."""
    path = root / "config" / "topics.json"
    if not path.is_file():
        return set()
    known = set(json.loads(path.read_text())["topicConfigTable"])
    with_units = {topic for (topic, _), units in read_queues(root).items() if any(map(is_message, units))}
    with_units |= {topic for topic, _, _ in read_batch_units(root)}
    return {record.topic for record in log.records.values()} - known - with_units


def checkpoint_time(root: Path) -> int:
    """Return the store time of the newest record that the checkpoint knows in the queues; 0 without it."""
    path = root / "checkpoint"
    raw = path.read_bytes() if path.is_file() else b""
    time: int = Checkpoint.parse(raw.ljust(Checkpoint.sizeof(), b"\0")).logics_msg_timestamp
    return time


# --- index files ----------------------------------------------------------------------------------


class Entry(NamedTuple):
    number: int
    offset: int  # in the file
    key_hash: int
    physical_offset: int
    time_diff: int
    previous: int


class IndexFile(NamedTuple):
    name: str
    size: int
    header: Any
    slots: list[int]
    entries: list[Entry]  # that are in use, whatever the header says


def index_paths(root: Path) -> list[Path]:
    folder = root / "index"
    return sorted(path for path in folder.glob("*") if path.is_file() and path.name.isdigit())


def read_index_file(path: Path, root: Path, settings: Settings) -> IndexFile:
    raw = path.read_bytes()
    header = IndexHeader.parse(raw[:HEADER].ljust(HEADER, b"\0"))
    slots = [_int(raw[at : at + SLOT]) for at in range(HEADER, min(_entries_at(settings), len(raw)), SLOT)]
    entries = []
    for number in range(1, settings.entries):
        at = _entries_at(settings) + number * ENTRY
        if at + ENTRY <= len(raw) and any(raw[at : at + ENTRY]):
            entries.append(Entry(number, at, *_entry(raw[at : at + ENTRY])))
    return IndexFile(path.relative_to(root).as_posix(), len(raw), header, slots, entries)


def _entries_at(settings: Settings) -> int:
    return HEADER + settings.slots * SLOT


@lru_cache(1 << 16)
def _entry(raw: bytes) -> tuple[int, int, int, int]:
    entry = IndexEntry.parse(raw)
    return entry.key_hash, entry.physical_offset, entry.time_diff, entry.previous


def judge_index(files: list[IndexFile], log: Log, settings: Settings) -> Iterator[Row]:
    size = _entries_at(settings) + settings.entries * ENTRY
    for file in files:
        if file.size != size:
            yield Row("IX-SIZE", file.name, None, None)
        timed = True
        if file.size >= size:
            timed = begin_is_right(file, log)
            if not timed or not end_is_right(file, log) or header_is_wrong(file, settings):
                yield Row("IX-HEADER", file.name, 0, None)
            yield from chain_rows(file, settings)
        yield from fold(
            (Row(code, file.name, entry.offset, entry.physical_offset), 0, entry.number)
            for entry in file.entries
            for code in judge_entry(entry, file, log, settings, timed=timed)
        )
    yield from missing_entries(files, log, settings)


def header_is_wrong(file: IndexFile, settings: Settings) -> bool:
    header = file.header
    if not file.entries:
        return bool(header.index_count > 1)
    first, last = file.entries[0], file.entries[-1]
    newest = {slot_of(entry, settings): entry.number for entry in file.entries}
    used = sum(number != 0 and number == newest.get(slot) for slot, number in enumerate(file.slots))
    return not (
        header.index_count == last.number + 1 <= settings.entries
        and len(file.entries) == last.number
        and header.begin_physical_offset == first.physical_offset
        and header.end_physical_offset == last.physical_offset
        and used <= header.hash_slot_count <= last.number
    )


def begin_is_right(file: IndexFile, log: Log) -> bool:
    """Say whether the header's begin is the time that the seconds of the entries count from."""
    if not file.entries:
        return True
    begin, end = file.header.begin_timestamp, file.header.end_timestamp
    first, last = file.entries[0], file.entries[-1]
    record = log.records.get(first.physical_offset)
    if record is not None and record.store_timestamp != begin:
        return False
    return last.number == 1 or last.time_diff == seconds_between(begin, end)


def end_is_right(file: IndexFile, log: Log) -> bool:
    record = log.records.get(file.entries[-1].physical_offset) if file.entries else None
    return record is None or record.store_timestamp == file.header.end_timestamp


def seconds_between(begin: int, time: int) -> int:
    """Return the seconds of an entry: IndexFile#putKey."""
    return min(max((time - begin) // 1000, 0), INT_MAX) if begin > 0 else 0


def chain_rows(file: IndexFile, settings: Settings) -> Iterator[Row]:
    """Follow every chain: an entry belongs to the slot of its hash, and to one chain only."""
    by_number = {entry.number: entry for entry in file.entries}
    seen: set[int] = set()
    for slot, newest in enumerate(file.slots):
        number, before = newest, len(by_number) + 1
        while number != 0:
            entry = by_number.get(number)
            if entry is None or number in seen or number >= before or slot_of(entry, settings) != slot:
                yield Row("IX-CHAIN", file.name, entry.offset if entry else None, None)
                break
            seen.add(number)
            number, before = entry.previous, number
    for number in sorted(by_number.keys() - seen):
        yield Row("IX-CHAIN", file.name, by_number[number].offset, None)


def slot_of(entry: Entry, settings: Settings) -> int:
    return entry.key_hash % settings.slots if entry.key_hash >= 0 else -1


def judge_entry(entry: Entry, file: IndexFile, log: Log, settings: Settings, *, timed: bool) -> Iterator[str]:
    place = entry.physical_offset
    record = log.records.get(place)
    if place < log.start or (record is None and log.in_gap(place) is not None):
        return
    if record is None:
        yield "IX-BEYOND" if place >= log.end else "IX-DANGLING"
        return
    if entry.key_hash not in key_hashes(record, settings):
        yield "IX-KEY"
        return
    # The first entry of a file is timed against the file before.
    seconds = seconds_between(file.header.begin_timestamp, record.store_timestamp)
    if timed and entry.number > 1 and entry.time_diff != seconds:
        yield "IX-TIME"


def missing_entries(files: list[IndexFile], log: Log, settings: Settings) -> Iterator[Row]:
    """Yield IX-MISSING for each run of keys that follow each other in the log and have no entry."""
    indexed: dict[int, set[int]] = {}  # physical offset -> hashes
    for entry in (entry for file in files for entry in file.entries):
        indexed.setdefault(entry.physical_offset, set()).add(entry.key_hash)
    covered = [place for place in indexed if place < log.end]
    first, last = min(covered, default=0), max(covered, default=0)
    run: Row | None = None
    for place, record in log.records.items():
        if not first < place < last or not record.whole:
            continue
        hashes, known = key_hashes(record, settings), indexed.get(place, set())
        for key in hashes:
            # An entry with another hash is the one of a key that changed.
            if key not in known and known.issubset(hashes):
                run = run or Row("IX-MISSING", *log.place_of(record), place, 0)
                run = run._replace(number=run.number + 1)
            elif run is not None:
                yield run
                run = None
    if run is not None:
        yield run


def not_indexed(root: Path, files: list[IndexFile], log: Log) -> Iterator[Row]:
    """Yield IX-NONE: records with keys behind the last entry that the headers tell of.

    After an unclean stop only where no file is left, though the checkpoint says when one was written last.
    """
    unknown = any(file.size < HEADER or file.header.index_count <= 0 for file in files)
    if unknown or not ((root / "lock").exists() or (root / "checkpoint").exists()):
        return
    checkpoint = (root / "checkpoint").read_bytes() if (root / "checkpoint").exists() else b""
    if (root / "abort").exists() and (files or not any(checkpoint[16:24])):
        return
    end = max((file.header.end_physical_offset for file in files), default=-1)
    late = [
        record
        for place, record in log.records.items()
        if place > end and record.transaction != ROLLBACK and {"UNIQ_KEY", "KEYS"} & record.properties.keys()
    ]
    if late:
        yield Row("IX-NONE", *log.place_of(late[0]), late[0].physical_offset, len(late))


# --- both -----------------------------------------------------------------------------------------


def fold(reported: Iterable[tuple[Row, int, int]]) -> Iterator[Row]:
    """Fold neighbours of one code, file and kind: rows with their kind and their number in queue or file.

    A shift goes on over the end of a file.
    """
    runs: dict[str, tuple[Row, int, int]] = {}  # by code, with the number that would go on
    for row, kind, number in reported:
        last = runs.get(row.code)
        if last is not None and last[1:] == (kind, number) and (last[0].file == row.file or row.code == "CQ-SHIFT"):
            row = last[0]._replace(number=last[0].number + 1)
        elif last is not None:
            yield last[0]
        runs[row.code] = row, kind, number + 1
    for row, _, _ in runs.values():
        yield row
