"""Two stores side by side: segments, log, records, queues, groups, topics; one verdict.

What is told is a table of differences, bounded in its rows and exact in its counts, and around it
the facts that a screen or a document shows. Index files and checkpoints differ between replicas by
nature (each broker writes its own when it pleases) and are not compared.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, tzinfo
from typing import Any

import pyarrow as pa

from rmqinspect.commitlog.find_record import RecordFinder
from rmqinspect.commitlog.locate import locate
from rmqinspect.commitlog.records import Records
from rmqinspect.commitlog.scan import RecordRun
from rmqinspect.config.json_files import read_config, read_consumer_offsets
from rmqinspect.diff.log import SIDES, LogDiff, OneSided, compare_logs, cover
from rmqinspect.diff.queues import QueueDiff, QueueEnds, compare_queues
from rmqinspect.diff.records import OnlyIn
from rmqinspect.errors import NotAStore, NothingFound, Unreadable
from rmqinspect.store.model import Segment, Store
from rmqinspect.store.reader import open_file
from rmqinspect.tables.arrow import batches_of, printable
from rmqinspect.tables.capped_list import CappedList
from rmqinspect.tables.messages import message_batches
from rmqinspect.tables.table import Request, column
from rmqinspect.text import group_digits
from rmqinspect.times import format_millis
from rmqinspect.version import tool_name

# A minor change adds fields at the end, a major one renames.
SCHEMA_VERSION = 1

Stores = tuple[Store, Store]

# What can differ, and the part of the store that it is about: the word of the verdict.
KINDS = {
    "segment_only": "segments",
    "segment_length": "segments",
    "range_only": "log",
    "log_end": "log",
    "bytes": "log",
    "record_only": "records",
    "queue_only": "queues",
    "queue_min": "queues",
    "queue_max": "queues",
    "queue_units": "queues",
    "group_offset": "groups",
    "topic_only": "topics",
}

SCHEMA = pa.schema(
    [
        column("what", pa.string(), ", ".join(KINDS)),
        column("only_in", pa.string(), "A or B where only one has it, else null"),
        column("topic", pa.string(), "topic"),
        column("group", pa.string(), "consumer group"),
        column("queue_id", pa.int32(), "queue"),
        column("queue_offset", pa.int64(), "logical offset in the queue; queue_units: the first that differs"),
        column("physical_offset", pa.int64(), "where it begins in the commit log"),
        column("length", pa.int64(), "bytes concerned"),
        column("count", pa.int64(), "bytes that differ in a range, units of a queue, else 1"),
        column("a", pa.string(), "what A has, short"),
        column("b", pa.string(), "what B has, short"),
        column("message", pa.string(), "what it is and what it may come from"),
    ]
)

_BETWEEN = {
    "before": "{other} begins behind it: expired there, or never replicated",
    "hole": "a segment of {other} is missing",
    "behind": "{other} has no segment there",
}
_ONLY = {
    "hole": "a segment of {other} is missing",
    "behind": "{other} ends before it",
    "other": "{other} has other bytes there",
}

_MOST_NOTES = 100

# Kinds of files that are not compared, and what they are called.
_LEFT_OUT = {
    "index": "index files",
    "checkpoint": "checkpoint",
    "abort": "abort",
    "lock": "lock",
    "rocksdb": "RocksDB files",
    "timer_log": "timer log",
    "timer_wheel": "timer wheel",
    "compaction_log": "compaction logs",
    "compaction_queue": "compaction queues",
    "dledger_index": "DLedger index",
    "other": "other files",
}


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference. The fields are the columns of the table."""

    what: str
    message: str
    only_in: str | None = None
    topic: str | None = None
    group: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    physical_offset: int | None = None
    length: int | None = None
    count: int = 1
    a: str | None = None
    b: str | None = None


class Differences:
    """The first rows of each kind and side, and exact counts."""

    def __init__(self, limit: int) -> None:
        self._capped = CappedList[Difference, tuple[str, str | None]](limit, lambda row: (row.what, row.only_in))
        self.rows = self._capped.rows
        self.counts = dict.fromkeys(KINDS, 0)

    def add(self, difference: Difference) -> None:
        """Count a difference and keep it, unless there are enough of its kind."""
        self.counts[difference.what] += 1
        self._capped.add(difference)

    def count_more(self, what: str, number: int) -> None:
        """Count differences of which no row is kept."""
        self.counts[what] += number

    def of(self, *kinds: str) -> list[Difference]:
        """Return the rows of some kinds, in the order in which they were found."""
        return [row for row in self.rows if row.what in kinds]

    @property
    def left_out(self) -> int:
        """How many have no row."""
        return sum(self.counts.values()) - len(self.rows)

    @property
    def parts(self) -> list[str]:
        """The parts of the stores that differ, in the order of KINDS."""
        return list(dict.fromkeys(part for what, part in KINDS.items() if self.counts[what]))


@dataclass(frozen=True, slots=True)
class Stand:
    """What stands at a physical offset of one log."""

    kind: str  # record, blank, entry, zeros, unknown, nothing (no segment), unread
    text: str
    start: int | None = None
    row: Mapping[str, Any] = field(default_factory=dict)  # columns of `messages`, of a record


@dataclass(slots=True)
class DiffResult:
    """What the comparison of two stores found."""

    stores: Stores
    differences: Differences
    compared: dict[str, str] = field(default_factory=dict)  # part → why it was not compared, "" if it was
    log: LogDiff | None = None
    stands: tuple[Stand, Stand] | None = None  # at the first offset where the logs differ
    queues: int = 0  # that both have
    same_queues: int = 0
    group_offsets: int = 0  # that both have
    topics: int = 0
    notes: list[str] = field(default_factory=list)  # what only one has and is no part of what is compared
    unread: list[str] = field(default_factory=list)  # one line each
    interrupted: str | None = None  # where

    @property
    def complete(self) -> bool:
        """Whether everything that was to be compared could be."""
        return not self.unread and self.interrupted is None

    @property
    def verdict(self) -> str:
        """SAME or DIFFERENT, then `, INCOMPLETE` where it holds."""
        words = "DIFFERENT" if any(self.differences.counts.values()) else "SAME"
        return words if self.complete else words + ", INCOMPLETE"


def compare_stores(
    stores: Stores, limit: int = 10, progress: Callable[[int], None] = lambda size: None, zone: tzinfo = UTC
) -> DiffResult:
    """Compare two stores, reading only; `limit` bounds the rows of each kind, never the counts.

    What only one of the two was given, a loose segment has no queues, is not compared. `progress` is
    told how many more bytes were read; times are told in `zone`. Ctrl-C ends the reading, not the outcome.

    :raises NotAStore: nothing that both have can be compared.
    """
    outcome = DiffResult(stores, Differences(limit))
    outcome.compared = {part: _why_not(stores, part) for part in _PARTS}
    if all(outcome.compared.values()) or _is_disjoint(outcome):
        raise NotAStore(f"{stores[0].name} and {stores[1].name} have nothing in common that could be compared")
    _note_oddities(outcome)
    try:
        if not outcome.compared["groups"]:
            _compare_groups(outcome)
        if not outcome.compared["topics"]:
            _compare_topics(outcome)
        if not outcome.compared["queues"]:
            _compare_queues(outcome, progress)
    except KeyboardInterrupt:
        outcome.interrupted = "before the logs were compared"
    if not outcome.compared["log"] and outcome.interrupted is None:
        outcome.log = compare_logs(stores, limit, progress)
        _tell_log(outcome, outcome.log, zone)
    return outcome


def difference_batches(outcome: DiffResult) -> Iterator[pa.RecordBatch]:
    """Yield the table of differences."""
    yield from batches_of(SCHEMA, ([getattr(row, name) for name in SCHEMA.names] for row in outcome.differences.rows))


# --- what there is to compare ---------------------------------------------------------------------


def _has_log(store: Store) -> bool:
    return bool(store.segments)


def _has_queues(store: Store) -> bool:
    return any(file.kind != "ext_queue" for file in store.queue_files)


def _has_groups(store: Store) -> bool:
    return any(name.startswith(("consumerOffset.json", "lmqConsumerOffset.json")) for name in store.config_files)


def _has_topics(store: Store) -> bool:
    return any(name.startswith("topics.json") for name in store.config_files)


# Part → whether a store has it, where RocksDB keeps it instead.
_PARTS: dict[str, tuple[Callable[[Store], bool], tuple[str, ...]]] = {
    "log": (_has_log, ()),
    "queues": (_has_queues, ("consumequeue/", "consumequeue_rocksdb/")),
    "groups": (_has_groups, ("config/",)),
    "topics": (_has_topics, ("config/",)),
}


def _why_not(stores: Stores, part: str) -> str:
    """Return why a part cannot be compared, "" if it can: a whole store without it has lost it, a piece has not."""
    has, in_rocksdb = _PARTS[part]
    lacking = [(side, store) for side, store in zip(SIDES, stores, strict=True) if not has(store)]
    for side, store in lacking:
        if in_rocksdb and any(file.name.startswith(in_rocksdb) for file in store.of_kind("rocksdb")):
            return f"{side} keeps them in RocksDB"
    if len(lacking) == len(stores):
        return "none in either"
    pieces = [side for side, store in lacking if store.place != "store"]
    return f"not given in {pieces[0]}" if pieces else ""


def _is_disjoint(outcome: DiffResult) -> bool:
    """Whether loose segments are given, nothing else, and they lie elsewhere in the log."""
    if outcome.compared["log"] or not all(why for part, why in outcome.compared.items() if part != "log"):
        return False
    if all(store.neighbours for store in outcome.stores):
        return False
    a, b = (cover(store.segments) for store in outcome.stores)
    return not any(max(one.start, two.start) < min(one.end, two.end) for one in a for two in b)


def _note_oddities(outcome: DiffResult) -> None:
    """Tell of entries that are no files of a store: what nobody could see, and names that only one has."""
    found = [{oddity.name: oddity for oddity in store.oddities} for store in outcome.stores]
    for side, here, there in zip(SIDES, found, reversed(found), strict=True):
        for name, oddity in here.items():
            if oddity.is_unread:
                outcome.unread.append(f"{side}: {name}: {oddity.detail}")
            elif name not in there and len(outcome.notes) < _MOST_NOTES:
                outcome.notes.append(f"{name} only in {side}: {oddity.detail}")


# --- groups and topics ----------------------------------------------------------------------------


def _compare_groups(outcome: DiffResult) -> None:
    found = []
    for side, store in zip(SIDES, outcome.stores, strict=True):
        offsets, problems = read_consumer_offsets(store)
        if problems and not offsets:
            outcome.unread += [f"{side}: {problem}" for problem in problems]
            return
        found.append({(entry.group, entry.topic, entry.queue_id): entry.offset for entry in offsets})
    a, b = found
    outcome.group_offsets = len(a.keys() & b.keys())
    for key in sorted(a.keys() | b.keys()):
        if a.get(key) != b.get(key):
            group, topic, queue_id = key
            outcome.differences.add(
                Difference(
                    "group_offset",
                    "the group goes on at another message"
                    if key in a and key in b
                    else "the group has no offset for this queue in the other store",
                    only_in=_only_in(key in a, key in b),
                    topic=printable(topic),
                    group=printable(group),
                    queue_id=queue_id,
                    a=_number(a.get(key)),
                    b=_number(b.get(key)),
                )
            )


def _compare_topics(outcome: DiffResult) -> None:
    found = []
    for side, store in zip(SIDES, outcome.stores, strict=True):
        document = read_config(store, "topics.json")
        if document is not None and document.source is None:
            outcome.unread += [f"{side}: {problem}" for problem in document.problems]
            return
        found.append(set(document.table("topicConfigTable")) if document else set())
    a, b = found
    outcome.topics = len(a & b)
    for topic in sorted(a ^ b):
        outcome.differences.add(
            Difference(
                "topic_only",
                "topics.json of the other store does not have it",
                only_in=_only_in(topic in a, topic in b),
                topic=printable(topic),
            )
        )


def _only_in(a: bool, b: bool) -> str | None:
    return None if a and b else SIDES[0] if a else SIDES[1]


def _number(value: int | None) -> str | None:
    return None if value is None else str(value)


# --- queues ---------------------------------------------------------------------------------------


def _compare_queues(outcome: DiffResult, progress: Callable[[int], None]) -> None:
    def note(side: int, message: str) -> None:
        outcome.unread.append(f"{SIDES[side]}: {message}")

    for queue in compare_queues(outcome.stores, progress, note):
        outcome.queues += None not in queue.ends
        outcome.same_queues += None not in queue.ends and queue.is_same
        for difference in () if queue.is_same else _queue_rows(queue):
            outcome.differences.add(difference)


def _queue_rows(queue: QueueDiff) -> Iterator[Difference]:
    where: dict[str, Any] = {"topic": printable(queue.topic), "queue_id": queue.queue_id}
    a, b = queue.ends
    if a is None or b is None:
        ends = a or b
        assert ends is not None
        yield Difference(
            "queue_only",
            "the other store has no files of this queue",
            only_in=_only_in(a is not None, b is not None),
            count=ends.units,
            a=_span(a),
            b=_span(b),
            **where,
        )
        return
    if a.min_offset != b.min_offset and not queue.loose:
        yield Difference(
            "queue_min",
            "the queue begins elsewhere: expired in one store, or never replicated",
            a=str(a.min_offset),
            b=str(b.min_offset),
            **where,
        )
    if a.max_offset != b.max_offset and not queue.loose:
        yield Difference(
            "queue_max",
            "the queue ends elsewhere: one log ends earlier, or was not dispatched",
            a=str(a.max_offset),
            b=str(b.max_offset),
            **where,
        )
    if queue.differing:
        yield Difference(
            "queue_units",
            "units of the same queue offset differ: consumers get other messages",
            queue_offset=queue.first,
            count=queue.differing,
            a=queue.units[0],
            b=queue.units[1],
            **where,
        )


def _span(ends: QueueEnds | None) -> str | None:
    return None if ends is None else f"{ends.min_offset} to {ends.max_offset}"


# --- the log --------------------------------------------------------------------------------------


def _tell_log(outcome: DiffResult, log: LogDiff, zone: tzinfo) -> None:
    outcome.unread += log.unread
    if log.interrupted:
        outcome.interrupted = f"at physical offset {log.reached or 0}"
    _compare_segments(outcome, log)
    for part in log.one_sided:
        outcome.differences.add(_range_only(part))
    if log.reach[0] != log.reach[1]:
        outcome.differences.add(_log_end(log))
    for run in log.runs.kept:
        outcome.differences.add(
            Difference(
                "bytes",
                "bytes of the log differ",
                physical_offset=run.start,
                length=run.end - run.start,
                count=run.differing,
            )
        )
    outcome.differences.count_more("bytes", log.runs.count - len(log.runs.kept))
    for side, only in enumerate(log.only):
        for record in only.rows:
            stored: list[str | None] = [None, None]
            stored[side] = _time(record.store_timestamp, zone)
            outcome.differences.add(
                Difference(
                    "record_only",
                    _ONLY[record.why].format(other=SIDES[1 - side]),
                    only_in=SIDES[side],
                    topic=record.topic,
                    queue_id=record.queue_id,
                    queue_offset=record.queue_offset,
                    physical_offset=record.physical_offset,
                    length=record.size,
                    a=stored[0],
                    b=stored[1],
                )
            )
        outcome.differences.count_more("record_only", only.count - len(only.rows))
    if log.first is not None:
        a, b = (describe(store, log.first, zone) for store in outcome.stores)
        outcome.stands = a, b


def _range_only(part: OneSided) -> Difference:
    return Difference(
        "range_only",
        _BETWEEN[part.why].format(other=SIDES[1 - part.side]),
        only_in=SIDES[part.side],
        physical_offset=part.start,
        length=part.end - part.start,
    )


def _log_end(log: LogDiff) -> Difference:
    first, last = min(log.reach), max(log.reach)
    a, b = ("no record" if end is None else str(end) for end in log.ends)
    longer = SIDES[log.reach.index(last)]
    return Difference(
        "log_end",
        f"the log of {longer} goes on",
        only_in=longer,
        physical_offset=max(first, 0),
        length=last - max(first, 0),
        a=a,
        b=b,
    )


def _compare_segments(outcome: DiffResult, log: LogDiff) -> None:
    """Compare bases and lengths; loose files say nothing about the segments beside them."""
    by_base: list[dict[int, Segment]] = []
    for store in outcome.stores:
        by_base.append({})
        for segment in store.segments:
            by_base[-1].setdefault(segment.base, segment)
    a, b = by_base
    bases = a.keys() | b.keys() if all(store.neighbours for store in outcome.stores) else a.keys() & b.keys()
    for base in sorted(bases):
        sizes = [segments[base].size if base in segments else None for segments in by_base]
        if None in sizes:
            side = 0 if base in a else 1
            segment = by_base[side][base]
            if segment.size and base >= max(log.reach) and _is_zeros(outcome, side, segment):
                outcome.notes.append(f"segment {group_digits(base)} only in {SIDES[side]}: preallocated, zeros only")
                continue
        elif sizes[0] == sizes[1]:
            continue
        there = (_only_in(base in a, base in b), *map(_number, sizes))
        outcome.differences.add(
            Difference(
                "segment_only" if there[0] else "segment_length",
                "a segment that the other log does not have" if there[0] else "a segment of another length",
                only_in=there[0],
                physical_offset=base,
                length=max(size or 0 for size in sizes),
                a=there[1],
                b=there[2],
            )
        )


def _is_zeros(outcome: DiffResult, side: int, segment: Segment) -> bool:
    window = 1 << 20
    try:
        with open_file(segment) as reader:
            position = 0
            while (position := reader.next_allocated(position)) < reader.size:
                raw = reader.read(position, window)
                if raw.count(0) < len(raw):
                    return False
                position += window
    except Unreadable as error:
        outcome.unread.append(f"{SIDES[side]}: {error}")
    return True


def describe(store: Store, offset: int, zone: tzinfo = UTC) -> Stand:
    """Return what stands at a physical offset of a store's log."""
    try:
        spot = locate(store, offset)
    except NothingFound:
        return Stand("nothing", "no segment")
    except Unreadable as error:
        return Stand("unread", str(error))
    row = _row_at(spot.segment, spot.start, zone) if spot.kind == "record" else {}
    if row:
        return Stand("record", _words(row), spot.start, row)
    words = {
        "record": "a record that does not prove itself",
        "blank": "the blank record that ends a segment",
        "entry": "a DLedger entry without a record",
        "zeros": "zeros",
        "unknown": "bytes that are no record",
    }[spot.kind]
    return Stand(spot.kind, f"{words}, from {group_digits(spot.start)} on", spot.start)


def _row_at(segment: Segment, offset: int, zone: tzinfo) -> Mapping[str, Any]:
    """Return the record that begins at a physical offset, as columns of `messages`; {} if none is whole."""
    try:
        with open_file(segment) as reader:
            frame = RecordFinder(segment, reader.size, reader.read).frame_at(offset, anywhere=True)
            if frame is None:
                return {}
            record = Records.of_one(reader.read(offset - segment.base, frame.head.size), offset)
    except Unreadable:
        return {}
    batch = next(message_batches(RecordRun(record, False, False), Request(columns=frozenset((*_SHOWN, "status")))))
    row = {name: batch.column(name)[0].as_py() for name in _SHOWN}
    return row | {"store_timestamp": _time(int(record.field("store_timestamp")[0]), zone)}


_SHOWN = ("physical_offset", "size", "topic", "queue_id", "queue_offset", "keys", "status")


def _words(row: Mapping[str, Any]) -> str:
    key = f", key {row['keys'][0]}" if row["keys"] else ""
    status = "" if row["status"] == "ok" else f", status {row['status']}"
    return (
        f"record {group_digits(row['physical_offset'])}: {row['topic']} queue {row['queue_id']} "
        f"offset {row['queue_offset']}{key}, {row['store_timestamp']}{status}"
    )


def _time(milliseconds: int, zone: tzinfo) -> str:
    return format_millis(milliseconds, zone) or f"{milliseconds} ms"


# --- for programs ---------------------------------------------------------------------------------


def diff_document(outcome: DiffResult, names: Sequence[str]) -> dict[str, Any]:
    """Return all that was found as one document; `names` are the stores as they were given."""
    differences = outcome.differences
    return {
        "schema_version": SCHEMA_VERSION,
        "tool": tool_name(),
        "complete": outcome.complete,
        "verdict": outcome.verdict,
        "different": differences.parts,
        "a": names[0],
        "b": names[1],
        "counts": differences.counts,
        "log": None if outcome.log is None else _log_document(outcome, outcome.log),
        "queues": {"in_both": outcome.queues, "same": outcome.same_queues},
        "groups": {"offsets_in_both": outcome.group_offsets},
        "topics": {"in_both": outcome.topics},
        "not_compared": not_compared(outcome),
        "notes": outcome.notes,
        "unread": outcome.unread,
        "interrupted": outcome.interrupted,
        "rows_left_out": differences.left_out,
        "rows": [asdict(row) for row in differences.rows],
    }


def _log_document(outcome: DiffResult, log: LogDiff) -> dict[str, Any]:
    stands = [None, None] if outcome.stands is None else [asdict(stand) for stand in outcome.stands]
    return {
        "covered": {side: log.ranges(number) for number, side in enumerate(("a", "b"))},
        "end": {"a": log.ends[0], "b": log.ends[1]},
        "bytes_behind_the_first_end": log.tail,
        "compared": log.compared,
        "compared_bytes": log.compared_bytes,
        "first_difference": None
        if log.first is None
        else {"physical_offset": log.first, "a": stands[0], "b": stands[1]},
        "ranges": log.runs.count,
        "differing_bytes": log.runs.differing,
        "records_only_in": {side: _only_document(log.only[number]) for number, side in enumerate(("a", "b"))},
    }


def _only_document(only: OnlyIn) -> dict[str, Any]:
    return {
        "records": only.count,
        "bytes": only.raw,
        "by_topic": only.by_topic,
        "elsewhere_in_the_other": only.elsewhere,
        "elsewhere_exact": only.elsewhere_exact,
    }


def not_compared(outcome: DiffResult) -> list[str]:
    """Return what was not compared, and why where that is not its nature."""
    kinds = {file.kind for store in outcome.stores for file in store.files}
    reasons = [f"{part}: {why}" for part, why in outcome.compared.items() if why]
    behind = ["bytes behind the ends of the logs"] if outcome.log is not None else []
    lengths = ["lengths of queue files"] if not outcome.compared["queues"] else []
    return reasons + [words for kind, words in _LEFT_OUT.items() if kind in kinds] + behind + lengths
