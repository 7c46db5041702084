"""Two stores side by side: segments, log, records, queues, groups, topics; one verdict.

Each part is compared, and adds rows to one table of differences. Index files and checkpoints are not compared: each
broker writes its own, so they differ between replicas.
"""

from collections.abc import Callable, Iterator
from datetime import UTC, tzinfo
from typing import Any, NamedTuple

from rmqinspect.config.json_files import OFFSET_FILES, read_config, read_consumer_offsets
from rmqinspect.consumequeue.bounds import QueueSummary
from rmqinspect.diff.log import compare_logs
from rmqinspect.diff.log_diff import LogDiff, cover
from rmqinspect.diff.queues import QueueDiff, compare_queues
from rmqinspect.diff.result import (
    SIDES,
    Difference,
    Differences,
    DiffResult,
    format_store_time,
    only_in,
    read_content,
)
from rmqinspect.errors import NotAStore, Unreadable
from rmqinspect.store.model import Segment, Store
from rmqinspect.store.reader import open_file
from rmqinspect.text import group_digits

_MAX_NOTES = 100
_WINDOW_SIZE = 1 << 20

# Why only one log has a range, and why only one has a record.
_RANGE_ONLY = {
    "before": "{other} starts after it: gone there, or never replicated",
    "hole": "a segment of {other} is missing, and replication does not bring it: it goes on at the end of {other}",
    "behind": "{other} has no segment there",
}
# Source: HAClient#reportSlaveMaxOffset, HAConnection.WriteSocketService: a slave names the end of its log, and is sent
# what follows.
_RANGE_NEITHER = (
    "neither log has it, and replication brings it to neither: it goes on at the end of a log; look for it in backups"
)
_RECORD_ONLY = {
    "hole": "a segment of {other} is missing",
    "behind": "{other} ends before it",
    "other": "{other} has other bytes there",
}
# Which end of a queue differs, and why.
_QUEUE_ENDS = {
    "queue_min": "the queue starts elsewhere: gone in one store, or never replicated",
    "queue_max": "the queue ends elsewhere: one log ends earlier, or was not dispatched",
}


def compare_stores(
    stores: tuple[Store, Store],
    limit: int = 10,
    progress: Callable[[int], None] = lambda size: None,
    zone: tzinfo = UTC,
) -> DiffResult:
    """Compare two stores. `limit` bounds the rows of each kind, never the counts.

    Parts that only one of the two was given (a loose segment has no queues) are not compared. `progress` gets the
    bytes read since its last call; times are shown in `zone`. Ctrl-C ends the comparison and keeps its result so far.

    :raises NotAStore: the two have no part in common.
    """
    result = DiffResult(stores, Differences(limit))
    result.compared = {part: _why_not(stores, part) for part in _PARTS}
    if all(result.compared.values()) or _is_disjoint(result):
        raise NotAStore(f"{stores[0].name} and {stores[1].name} have nothing in common that could be compared")
    _note_oddities(result)
    try:
        if not result.compared["groups"]:
            _compare_groups(result)
        if not result.compared["topics"]:
            _compare_topics(result)
        if not result.compared["queues"]:
            _compare_queues(result, progress)
    except KeyboardInterrupt:
        result.interrupted = "before the logs were compared"
    if not result.compared["log"] and result.interrupted is None:
        _compare_logs(result, limit, progress, zone)
    return result


# --- what can be compared -------------------------------------------------------------------------


class _Part(NamedTuple):
    """A part of stores that is compared."""

    is_in: Callable[[Store], bool]
    is_hidden: Callable[[Store], bool]  # a store may have it in entries that could not be read
    in_rocksdb: tuple[str, ...] = ()  # folders of the RocksDB that may hold it instead


def _has_config(*names: str) -> Callable[[Store], bool]:
    return lambda store: any(
        name.startswith(names) for name in (*store.config_files, *(name for _, name in store.unpacked_config))
    )


_PARTS = {
    "log": _Part(lambda store: bool(store.segments), lambda store: store.hides_log),
    "queues": _Part(
        lambda store: any(file.kind != "ext_queue" for file in store.queue_files),
        lambda store: False,  # each queue by itself
        ("consumequeue/", "consumequeue_rocksdb/"),
    ),
    "groups": _Part(
        _has_config(*OFFSET_FILES), lambda store: store.hides("config", "consumerOffset.json"), ("config/",)
    ),
    "topics": _Part(_has_config("topics.json"), lambda store: store.hides("config", "topics.json"), ("config/",)),
}


def _why_not(stores: tuple[Store, Store], part: str) -> str:
    """Return why a part cannot be compared, "" if it can. A complete store without the part has lost it."""
    rule = _PARTS[part]
    for side, store in zip(SIDES, stores, strict=True):
        if rule.is_hidden(store):
            return f"{side} could not be read"
    lacking = [(side, store) for side, store in zip(SIDES, stores, strict=True) if not rule.is_in(store)]
    for side, store in lacking:
        if any(file.name.startswith(rule.in_rocksdb) for file in store.of_kind("rocksdb")):
            return f"{side} keeps them in RocksDB"
    if len(lacking) == len(stores):
        return "none in either"
    loose = [side for side, store in lacking if store.given != "store"]
    return f"not given in {loose[0]}" if loose else ""


def _is_disjoint(result: DiffResult) -> bool:
    """Whether only logs can be compared, of loose segments, and they share no offset."""
    if result.compared["log"] or not all(why for part, why in result.compared.items() if part != "log"):
        return False
    if all(store.neighbours for store in result.stores):
        return False
    a, b = (cover(store.segments) for store in result.stores)
    return not any(max(one.start, two.start) < min(one.end, two.end) for one in a for two in b)


def _note_oddities(result: DiffResult) -> None:
    """Report unreadable entries, and note odd ones that only one store has."""
    logs = {segment.path for store in result.stores for segment in store.segments}
    found = [{oddity.name: oddity for oddity in store.oddities} for store in result.stores]
    for side, here, there in zip(SIDES, found, reversed(found), strict=True):
        for name, oddity in here.items():
            if oddity.path in logs:
                continue  # reported when it is opened
            if oddity.is_unread or oddity.kind == "rocksdb":
                result.unread.append(f"{side}: {name}: {oddity.detail}")
            elif name not in there and len(result.notes) < _MAX_NOTES:
                result.notes.append(f"{name} only in {side}: {oddity.detail}")


# --- groups and topics ----------------------------------------------------------------------------


def _compare_groups(result: DiffResult) -> None:
    """Add a difference for each consumer offset that differs or that only one store has."""
    found = []
    for side, store in zip(SIDES, result.stores, strict=True):
        entries, problems = read_consumer_offsets(store)
        if problems and not entries:
            result.unread += [f"{side}: {problem}" for problem in problems]
            return
        found.append({(entry.group, entry.topic, entry.queue_id): entry.offset for entry in entries})
    a, b = found
    result.group_offsets = len(a.keys() & b.keys())
    for key in sorted(a.keys() | b.keys()):
        offsets = a.get(key), b.get(key)
        if offsets[0] == offsets[1]:
            continue
        group, topic, queue_id = key
        message = "the group resumes at another message"
        if None in offsets:
            message = "the group has no offset for this queue in the other store"
        in_a, in_b = (None if offset is None else str(offset) for offset in offsets)
        only = only_in(in_a is not None, in_b is not None)
        result.differences.add(Difference("group_offset", message, only, topic, group, queue_id, a=in_a, b=in_b))


def _compare_topics(result: DiffResult) -> None:
    """Add a difference for each topic that only one store's topics.json has."""
    found = []
    for side, store in zip(SIDES, result.stores, strict=True):
        document = read_config(store, "topics.json")
        if document is not None and document.source is None:
            result.unread += [f"{side}: {problem}" for problem in document.problems]
            return
        found.append(set(document.table("topicConfigTable")) if document else set())
    a, b = found
    result.topics = len(a & b)
    for topic in sorted(a ^ b):
        message = "topics.json of the other store does not have it"
        result.differences.add(Difference("topic_only", message, only_in=only_in(topic in a, topic in b), topic=topic))


# --- queues ---------------------------------------------------------------------------------------


def _compare_queues(result: DiffResult, progress: Callable[[int], None]) -> None:
    def note(side: int, message: str) -> None:
        result.unread.append(f"{SIDES[side]}: {message}")

    for queue in compare_queues(result.stores, progress, note):
        result.queues += None not in queue.ends
        result.same_queues += None not in queue.ends and queue.is_same
        for row in () if queue.is_same else _queue_rows(queue):
            result.differences.add(row)


def _queue_rows(queue: QueueDiff) -> Iterator[Difference]:
    """Yield the differences of one queue."""
    where: dict[str, Any] = {"topic": queue.topic, "queue_id": queue.queue_id}
    a, b = queue.ends
    if a is None or b is None:
        ends = a or b
        assert ends is not None
        yield Difference(
            "queue_only",
            "the other store has no files of this queue",
            only_in=only_in(a is not None, b is not None),
            count=ends.units,
            a=_span(a),
            b=_span(b),
            **where,
        )
        return
    offsets = {"queue_min": (a.min_offset, b.min_offset), "queue_max": (a.max_offset, b.max_offset)}
    for what, (in_a, in_b) in offsets.items():
        if in_a != in_b and not queue.loose:
            yield Difference(what, _QUEUE_ENDS[what], a=str(in_a), b=str(in_b), **where)
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


def _span(ends: QueueSummary | None) -> str | None:
    return None if ends is None else f"{ends.min_offset} to {ends.max_offset}"


# --- the log --------------------------------------------------------------------------------------


def _compare_logs(result: DiffResult, limit: int, progress: Callable[[int], None], zone: tzinfo) -> None:
    log = result.log = compare_logs(result.stores, limit, progress)
    result.unread += [f"{SIDES[side]}: {message}" for side, message in log.unread]
    if log.interrupted:
        result.interrupted = f"at physical offset {log.reached or 0}"
    _add_log_rows(result, log, zone)
    if log.first is not None:
        a, b = (read_content(store, log.first, zone) for store in result.stores)
        result.at_first = a, b


def _add_log_rows(result: DiffResult, log: LogDiff, zone: tzinfo) -> None:
    """Add the differences of the logs; times are shown in `zone`."""
    differences = result.differences
    for row in _segment_rows(result, log):
        differences.add(row)
    for part in log.one_sided:
        differences.add(
            Difference(
                "range_only",
                _RANGE_ONLY[part.why].format(other=SIDES[1 - part.side]),
                only_in=SIDES[part.side],
                physical_offset=part.start,
                length=part.end - part.start,
            )
        )
    if all(store.neighbours for store in result.stores):
        for start, end in log.in_neither:
            differences.add(
                Difference(
                    "range_neither", _RANGE_NEITHER, physical_offset=start, length=end - start, count=end - start
                )
            )
    if log.reach[0] != log.reach[1]:
        first, last = max(min(log.reach), 0), max(log.reach)
        a, b = ("no record" if end is None else str(end) for end in log.ends)
        longer = SIDES[log.reach.index(last)]
        differences.add(
            Difference(
                "log_end",
                f"the log of {longer} goes on",
                only_in=longer,
                physical_offset=first,
                length=last - first,
                a=a,
                b=b,
            )
        )
    for run in log.runs.kept:
        differences.add(
            Difference(
                "bytes",
                "bytes of the log differ",
                physical_offset=run.start,
                length=run.end - run.start,
                count=run.differing,
            )
        )
    differences.count_more("bytes", log.runs.count - len(log.runs.kept))
    for side, only in enumerate(log.only):
        for record in only.rows:
            times: list[str | None] = [None, None]
            times[side] = format_store_time(record.store_timestamp, zone)
            differences.add(
                Difference(
                    "record_only",
                    _RECORD_ONLY[record.why].format(other=SIDES[1 - side]),
                    only_in=SIDES[side],
                    topic=record.topic,
                    queue_id=record.queue_id,
                    queue_offset=record.queue_offset,
                    physical_offset=record.physical_offset,
                    length=record.size,
                    a=times[0],
                    b=times[1],
                )
            )
        differences.count_more("record_only", only.count - len(only.rows))


def _segment_rows(result: DiffResult, log: LogDiff) -> Iterator[Difference]:
    """Yield differing bases and lengths of segments; loose files say nothing about the segments next to them."""
    by_base: list[dict[int, Segment]] = []
    for store in result.stores:
        by_base.append({})
        for segment in store.segments:
            by_base[-1].setdefault(segment.base, segment)
    a, b = by_base
    bases = a.keys() | b.keys() if all(store.neighbours for store in result.stores) else a.keys() & b.keys()
    for base in sorted(bases):
        sizes = [segments[base].size if base in segments else None for segments in by_base]
        if None in sizes:
            side = 0 if base in a else 1
            segment = by_base[side][base]
            if segment.size and base >= max(log.reach) and _is_zeros(result, side, segment):
                result.notes.append(f"segment {group_digits(base)} only in {SIDES[side]}: preallocated, zeros only")
                continue
        elif sizes[0] == sizes[1] or any(
            by_base[side][base].path in store.unopened for side, store in enumerate(result.stores)
        ):
            continue
        side_name = only_in(base in a, base in b)
        texts = [None if size is None else str(size) for size in sizes]
        yield Difference(
            "segment_only" if side_name else "segment_length",
            "a segment that the other log does not have" if side_name else "a segment of another length",
            only_in=side_name,
            physical_offset=base,
            length=max(size or 0 for size in sizes),
            a=texts[0],
            b=texts[1],
        )


def _is_zeros(result: DiffResult, side: int, segment: Segment) -> bool:
    try:
        with open_file(segment) as reader:
            position = 0
            while (position := reader.next_allocated(position)) < reader.size:
                content = reader.read(position, _WINDOW_SIZE)
                if content.count(0) < len(content):
                    return False
                position += _WINDOW_SIZE
    except Unreadable as error:
        result.unread.append(f"{SIDES[side]}: {error}")
    return True
