"""A summary of a store from a bounded read, never a scan of the whole log.

Reads names and sizes, the first page of each queue, headers, small configuration files, and both ends
of the log. What these do not tell stays open.
"""

import re
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise

from msgspec import Struct

from rmqinspect.broker.eras import searches_minimum
from rmqinspect.broker.gone import TIMERCHECK, gone_config, how_gone, tiered_files
from rmqinspect.broker.version_estimate import VersionEstimate, estimate
from rmqinspect.broker.version_evidence import gather
from rmqinspect.codec.layout import parse
from rmqinspect.commitlog.gaps import Gap
from rmqinspect.commitlog.missing import missing_in
from rmqinspect.commitlog.tail import LogEnd, find_log_end, holds_data, sample_edges
from rmqinspect.config.json_files import read_checkpoint, read_consumer_offsets, too_large
from rmqinspect.consumequeue.bounds import QueueSummary, queue_ends
from rmqinspect.errors import Unreadable
from rmqinspect.rocksdb.databases import entries_file, read_entries
from rmqinspect.schemas.checkpoint import TIMESTAMP_FIELDS
from rmqinspect.schemas.consumequeue import QueueUnit
from rmqinspect.schemas.index import IndexHeader
from rmqinspect.store.model import Store, StoreFile
from rmqinspect.store.reader import FileReader, lock_holder, open_file, sees_locks
from rmqinspect.system import uri

# A checkpoint may be this much newer than the newest record: two clocks of one process.
_SKEW_MS = 1000
_PARSED_SIZE = 64 << 10  # bytes of consumer offsets; in larger files the groups are only counted
_GROUP = re.compile(rb'"([^"@\\]+)@([^"\\]+)"\s*:')  # a key of the offset table: topic@group
_RECOVERED = 3  # files that a start reads of a log or a queue: CommitLog#recoverNormally, ConsumeQueue#recover
_UNIT_SIZE = QueueUnit.sizeof()
_CANNOT_READ = ("unreadable", "link", "special")

# Optional parts of a store: kind of file, beginnings of its name, words.
_FEATURES = (
    ("rocksdb", ("consumequeue/", "consumequeue_rocksdb/"), "RocksDB queues"),
    ("batch_queue", ("",), "batch queues"),
    ("ext_queue", ("",), "ext queues"),
    (
        "rocksdb",
        ("config/topics/", "config/subscriptionGroups/", "config/consumerOffsets/", "config/metadata/"),
        "RocksDB config",
    ),
    ("rocksdb", ("config/rdb/",), "RocksDB config v2"),
    ("timer_wheel", ("",), "timer wheel"),
    ("compaction_log", ("",), "compaction"),
    ("rocksdb", ("rocksdbstore/",), "rocksdbstore"),
    ("rocksdb", ("kvStore/",), "POP in RocksDB"),
    ("other", ("epochFileCheckpoint", "brokerIdentity"), "controller mode"),
)


class Stop(Struct, frozen=True):
    """How the last broker ended, by the files that it leaves or removes."""

    state: str  # clean, unclean, running, unknown (the store's root was not given)
    abort: bool
    abort_pid: int | None  # in `abort`, 5.0.0 and later
    lock: bool
    lock_holder: int | None  # process id on this machine; 0 or less: a process invisible from here
    lock_seen: bool  # whether a holder would be visible; locks of remote files are not


class LogFacts(Struct, frozen=True):
    """Segments by name and length, and the log's end."""

    segments: int
    segment_size: int | None
    first_base: int
    last_base: int
    lacks_before: bool  # whether a whole store's log begins behind 0
    holes: tuple[Gap, ...]
    duplicates: tuple[str, ...]
    odd_lengths: tuple[tuple[str, int], ...]  # (name, size)
    empty: tuple[str, ...]  # names of segments behind the log's end that begin with zeros
    end: LogEnd


class QueueFacts(Struct, frozen=True):
    """Sums over all queues; `deepest` holds the most messages."""

    queues: int
    topics: int
    units: int
    deepest: QueueSummary | None
    beyond: int  # queues whose last unit points at or behind the log's end


class IndexFacts(Struct, frozen=True):
    """Sums over the headers of all index files."""

    files: int
    entries: int
    newest: int | None  # store time of the newest entry, ms


class GroupFacts(Struct, frozen=True):
    """Consumer groups and the queues they have offsets for."""

    source: str | None  # names of the files; None without one
    groups: int
    subscriptions: int  # pairs of group and topic
    problems: tuple[str, ...]


class WaitingFacts(Struct, frozen=True):
    """Messages that wait in RocksDB."""

    source: str | None  # None: not in RocksDB, or not read
    timers: int
    halves: int


class Overview(Struct, frozen=True):
    """Everything that `rmqinspect info` shows."""

    name: str
    place: str
    files: int
    total_bytes: int
    layout: tuple[str, ...]  # log, queues, index
    features: tuple[str, ...]
    stop: Stop
    log: LogFacts
    versions: VersionEstimate
    checkpoint: dict[str, int] | None  # None: not there
    newer: tuple[str, ...]  # checkpoint fields that are newer than the log
    queues: QueueFacts
    index: IndexFacts
    groups: GroupFacts
    waiting: WaitingFacts
    oddities: tuple[tuple[str, str], ...]  # (name, what it is)
    remarks: tuple[str, ...]
    unread: tuple[str, ...]  # what could not be read
    bytes_read: int
    start_bytes: int  # of log and queues that the next start reads, about


def overview(store: Store) -> Overview:
    """Return the summary of a store, or of a piece of one. Never raises for what it finds."""
    before = FileReader.bytes_read
    unread = _unread_entries(store)
    queues = list(queue_ends(store, searches_minimum(store), on_unreadable=unread.append))
    hints = [queue.last_physical_offset for queue in queues if queue.last_physical_offset is not None]
    index, indexed = _index_facts(store, unread)
    end = find_log_end(store, [*hints, *indexed])
    unread += end.unread
    first, last = sample_edges(store, end.sample, unread)
    checkpoint: dict[str, int] = {}
    try:
        checkpoint = read_checkpoint(store)
    except Unreadable as error:
        unread.append(str(error))
    entries = entries_file(store)
    waiting = Counter(entry.kind for entry in read_entries(store) if entry.state == "waiting")
    return Overview(
        name=store.name,
        place=store.given,
        files=len(store.files),
        total_bytes=sum(file.size for file in store.files),
        layout=_layout(store),
        features=_features(store),
        stop=how_stopped(store, unread),
        log=_log_facts(store, end, unread),
        versions=estimate(gather(store, first, last, unread)),
        checkpoint=checkpoint if store.checkpoint else None,
        newer=_newer(checkpoint, end),
        queues=_queue_facts(store, queues, end),
        index=index,
        groups=_group_facts(store, unread),
        waiting=WaitingFacts(None if entries is None else entries.name, waiting["timer"], waiting["half"]),
        oddities=(
            *((f"config/{name}", f"{_how_gone(store, name)}; {proof}") for name, proof in gone_config(store).items()),
            *((oddity.name, oddity.detail) for oddity in store.oddities if oddity.kind != "rocksdb"),
        ),
        remarks=store.remarks,
        unread=tuple(dict.fromkeys([*unread, *_unread_databases(store)])),
        bytes_read=FileReader.bytes_read - before,
        start_bytes=_start_bytes(store, queues, end),
    )


def _how_gone(store: Store, name: str) -> str:
    return how_gone(store, name).removeprefix("is ") if name == TIMERCHECK else "gone with its .bak"


def _start_bytes(store: Store, queues: Sequence[QueueSummary], end: LogEnd) -> int:
    """Return about how many bytes a start reads: the last three segments, and the last three files of each queue.

    Of queues in RocksDB it reads where they end. A start after a crash may begin further back; it says so before it
    reads.
    """
    segments = store.segments[-_RECOVERED:]
    log = max((end.end or 0) - segments[0].base, 0) if segments else 0
    units = 0
    for queue in (queue for queue in queues if queue.kind != "rocksdb"):
        behind = queue.max_offset * _UNIT_SIZE if queue.kind == "file" else queue.files[-1].base + queue.files[-1].size
        units += max(behind - queue.files[-_RECOVERED:][0].base, 0)
    return log + units


def entries_not_read(store: Store) -> list[str]:
    """Return a line for each entry of a store that was not read, and for each reason why databases were not."""
    return [*_unread_entries(store), *_unread_databases(store)]


def _unread_entries(store: Store) -> list[str]:
    return [f"{oddity.name}: {oddity.detail}" for oddity in store.oddities if oddity.kind in _CANNOT_READ]


def _unread_databases(store: Store) -> list[str]:
    """Return a line for each reason why databases were not even tried."""
    names: dict[str, list[str]] = {}
    for oddity in store.oddities:
        if oddity.kind == "rocksdb":
            names.setdefault(oddity.detail, []).append(oddity.name)
    return [f"{', '.join(places)}: {detail}" for detail, places in names.items()]


def _read(file: StoreFile, size: int, unread: list[str]) -> bytes:
    """Return the first bytes of a file; none where it cannot be read, which is added to `unread`."""
    try:
        with open_file(file) as reader:
            return reader.read(0, size)
    except Unreadable as error:
        unread.append(str(error))
        return b""


def _layout(store: Store) -> tuple[str, ...]:
    kinds = {segment.kind for segment in store.segments}
    logs = [word for kind, word in (("segment", "classic"), ("dledger", "DLedger")) if kind in kinds]
    parts = [f"{' and '.join(logs)} commit log"] if logs else []
    parts += ["file queues"] if any(file.kind == "queue" and not file.noted for file in store.queue_files) else []
    parts += ["file index"] if store.index_files else []
    return tuple(parts)


def _features(store: Store) -> tuple[str, ...]:
    found = [
        words
        for kind, beginnings, words in _FEATURES
        if any(file.kind == kind and file.name.startswith(beginnings) for file in store.files)
    ]
    if tiered := tiered_files(store):
        found.append(f"tiered storage ({', '.join(tiered)})")
    folders = {uri.dirname(segment.path) for segment in store.segments}
    if len(folders) > 1 and len({segment.kind for segment in store.segments}) == 1:
        found.append(f"log in {len(folders)} folders")
    return tuple(found)


def how_stopped(store: Store, unread: list[str]) -> Stop:
    """Return how the last broker on a store ended; what could not be read is added to `unread`."""
    aborts, holder = store.of_kind("abort"), lock_holder(store)
    text = b"".join(_read(file, 20, unread) for file in aborts[:1])
    pid = int(text) if text.isdigit() and text.isascii() else None
    lock = bool(store.of_kind("lock"))
    known = store.given == "store" and (lock or bool(aborts) or store.checkpoint is not None)
    state = "running" if holder is not None else "unknown" if not known else "unclean" if aborts else "clean"
    return Stop(state, bool(aborts), pid, lock, holder, sees_locks(store))


def _log_facts(store: Store, end: LogEnd, unread: list[str]) -> LogFacts:
    segments, size = store.segments, store.segment_size
    reached = end.end if end.last_record is not None else store.log_start
    empty = []
    for segment in segments:
        if reached is not None and segment.base >= reached and segment.size > 0:
            with suppress(Unreadable):  # noted by the search for the log's end
                if not holds_data(segment):
                    empty.append(segment.name)
    return LogFacts(
        segments=len(segments),
        segment_size=size,
        first_base=segments[0].base if segments else 0,
        last_base=segments[-1].base if segments else 0,
        lacks_before=store.given == "store" and store.log_start > 0,
        holes=tuple(missing_in(store)),
        duplicates=tuple(f"{one.name} and {after.name}" for one, after in pairwise(segments) if one.base == after.base),
        odd_lengths=tuple((s.name, s.size) for s in segments if not s.size or (size is not None and s.size != size)),
        empty=tuple(empty),
        end=end,
    )


def _newer(checkpoint: dict[str, int], end: LogEnd) -> tuple[str, ...]:
    """Return the fields of the checkpoint that are newer than any record of the log."""
    if end.last_timestamp is None or end.end is None:
        return ()
    return tuple(
        name
        for name, value in checkpoint.items()
        if value > (end.last_timestamp + _SKEW_MS if name in TIMESTAMP_FIELDS else end.end)
    )


def _queue_facts(store: Store, queues: list[QueueSummary], end: LogEnd) -> QueueFacts:
    deepest = max(queues, key=lambda queue: queue.max_offset - queue.first_kept, default=None)
    beyond = 0
    if end.end is not None and store.segments:
        ends = (queue.last_physical_offset for queue in queues)
        beyond = sum(offset is not None and offset >= end.end for offset in ends)
    return QueueFacts(
        queues=len(queues),
        topics=len({queue.topic for queue in queues}),
        units=sum(queue.units for queue in queues),
        deepest=deepest,
        beyond=beyond,
    )


def _index_facts(store: Store, unread: list[str]) -> tuple[IndexFacts, list[int]]:
    """Return the sums over all headers, and their last physical offsets."""
    entries, newest, offsets = 0, None, []
    for file in store.index_files:
        raw = _read(file, IndexHeader.sizeof(), unread)
        if len(raw) < IndexHeader.sizeof():
            continue
        header = parse(IndexHeader, raw, lambda: "index header")
        if header.index_count > 1:
            entries += int(header.index_count) - 1
            newest = max(newest or 0, int(header.end_timestamp))
            offsets.append(int(header.end_physical_offset))
    return IndexFacts(len(store.index_files), entries, newest), offsets


def _group_facts(store: Store, unread: list[str]) -> GroupFacts:
    names = [name for name in ("consumerOffset.json", "lmqConsumerOffset.json") if name in store.config_files]
    files = [store.config_files[name] for name in names]
    files += [file for (_, name), file in store.unpacked_config.items() if name == "consumerOffset.json"]
    size = sum(file.size for file in files)
    source = " and ".join(file.name for file in files) or None
    large = tuple(too_large(file, store.max_config) for file in files if file.size > store.max_config)
    if large:
        unread += large
        return GroupFacts(source, 0, 0, large)
    if size > _PARSED_SIZE:
        pairs = {pair for file in files for pair in _GROUP.findall(_read(file, store.max_config, unread))}
        return GroupFacts(source, len({group for _, group in pairs}), len(pairs), ())
    offsets, problems = read_consumer_offsets(store)
    for file in files if problems else ():
        _read(file, 1, unread)  # a file that is no JSON was read
    subscriptions = {(entry.group, entry.topic) for entry in offsets}
    return GroupFacts(source, len({entry.group for entry in offsets}), len(subscriptions), problems)
