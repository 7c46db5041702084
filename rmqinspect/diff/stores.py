"""Two stores side by side: segments, log, records, queues, groups, topics; one verdict.

Each part is compared by its own module and adds rows to one table of differences. Index files and checkpoints are not
compared: each broker writes its own, so they differ between replicas.
"""

from collections.abc import Callable
from datetime import UTC, tzinfo
from typing import NamedTuple

from rmqinspect.config.json_files import OFFSET_FILES
from rmqinspect.diff.log import compare_logs
from rmqinspect.diff.log_diff import cover
from rmqinspect.diff.queues import compare_queues
from rmqinspect.diff.result import SIDES, Differences, DiffResult, read_content
from rmqinspect.diff.rows import add_log_rows, compare_groups, compare_topics, queue_rows
from rmqinspect.errors import NotAStore
from rmqinspect.store.model import Store

_MAX_NOTES = 100


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
            compare_groups(result)
        if not result.compared["topics"]:
            compare_topics(result)
        if not result.compared["queues"]:
            _compare_queues(result, progress)
    except KeyboardInterrupt:
        result.interrupted = "before the logs were compared"
    if not result.compared["log"] and result.interrupted is None:
        _compare_logs(result, limit, progress, zone)
    return result


def _compare_queues(result: DiffResult, progress: Callable[[int], None]) -> None:
    def note(side: int, message: str) -> None:
        result.unread.append(f"{SIDES[side]}: {message}")

    for queue in compare_queues(result.stores, progress, note):
        result.queues += None not in queue.ends
        result.same_queues += None not in queue.ends and queue.is_same
        for row in () if queue.is_same else queue_rows(queue):
            result.differences.add(row)


def _compare_logs(result: DiffResult, limit: int, progress: Callable[[int], None], zone: tzinfo) -> None:
    log = result.log = compare_logs(result.stores, limit, progress)
    result.unread += [f"{SIDES[side]}: {message}" for side, message in log.unread]
    if log.interrupted:
        result.interrupted = f"at physical offset {log.reached or 0}"
    add_log_rows(result, log, zone)
    if log.first is not None:
        a, b = (read_content(store, log.first, zone) for store in result.stores)
        result.at_first = a, b


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
