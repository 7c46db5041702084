"""Which broker versions can have written a store: no file says it, the content gives it away.

Each clue allows some releases. A clue that shows what a release introduced is believed. One that
rests on something being absent may be wrong for a store that was copied in part or written through
another program, so it is left out where it contradicts the others. Several versions can have
written a store in turn: the last one is meant.

Source: the history of the store's classes, RocketMQ 4.0.0 to 5.5.0.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np

from rmqinspect.codec.hashes import index_hash, index_key
from rmqinspect.codec.layout import dtype_of, parse
from rmqinspect.commitlog.sample import BROKER_NAMES, Sample, sample_edges
from rmqinspect.commitlog.tail import find_log_end
from rmqinspect.config.checkpoint import read_checkpoint
from rmqinspect.errors import Unreadable
from rmqinspect.index.geometry import DEFAULT_GEOMETRY, read_index_files
from rmqinspect.schemas.index import IndexEntry, IndexHeader, IndexSlot
from rmqinspect.store.model import QueueFile, Segment, Store
from rmqinspect.store.reader import open_file

RELEASES = (
    "4.0.0",
    "4.1.0",
    "4.2.0",
    "4.3.0",
    "4.3.1",
    "4.3.2",
    "4.4.0",
    "4.5.0",
    "4.5.1",
    "4.5.2",
    "4.6.0",
    "4.6.1",
    "4.7.0",
    "4.7.1",
    "4.8.0",
    "4.9.0",
    "4.9.1",
    "4.9.2",
    "4.9.3",
    "4.9.4",
    "4.9.5",
    "4.9.6",
    "4.9.7",
    "4.9.8",
    "5.0.0",
    "5.1.0",
    "5.1.1",
    "5.1.2",
    "5.1.3",
    "5.1.4",
    "5.2.0",
    "5.3.0",
    "5.3.1",
    "5.3.2",
    "5.3.3",
    "5.4.0",
    "5.5.0",
)
"""All releases that are known, in the order of their numbers; previews are left out."""

OLDEST, YOUNGEST = RELEASES[0], RELEASES[-1]


@dataclass(frozen=True, slots=True)
class VersionEstimate:
    """The releases from `low` to `high`, both included, and the clues that say so."""

    low: str
    high: str
    clues: tuple[str, ...]

    @property
    def releases(self) -> tuple[str, ...]:
        """All releases of the range."""
        return RELEASES[RELEASES.index(self.low) : RELEASES.index(self.high) + 1]

    def __str__(self) -> str:
        if self.high == YOUNGEST:
            return f"{self.low} or later" if self.low != OLDEST else "any version"
        return self.low if self.low == self.high else f"{self.low} to {self.high}"


# --- what is looked at --------------------------------------------------------------------------

_INDEX_FILES = 3  # the last ones
_INFERRED_SIZE = 64 << 20  # of an index file whose geometry is worth inferring
_LAST_ENTRIES = 4096
_CONFIG_LOOK = 1 << 20
_QUEUE_FOLDERS = {"batch_queue": "batchconsumequeue", "ext_queue": "consumequeue_ext"}

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Evidence:
    """What the clues are asked about."""

    store: Store
    first: Sample  # of the log's first records, and of fillers
    last: Sample  # of the log's last records
    names: frozenset[str]  # of files and folders, one and two components
    topics: frozenset[str]  # with queue files, and the broker's own ones with records
    checkpoint: Mapping[str, int]
    abort: bytes | None  # its content
    index_headers: tuple[tuple[int, int, int], ...]  # (used slots, entries, file size), newest first
    tag_keys: tuple[int, int]  # sampled records in the index with, without an entry for their tag
    attributes: bool | None  # whether topics.json has such a member; None without the file

    @property
    def whole(self) -> bool:
        """Whether a store root was given, with the files that lie directly in it."""
        return self.store.place == "store" and bool({"checkpoint", "lock"} & self.names)

    @property
    def served(self) -> bool:
        """Whether a whole broker ran on the store: it keeps its topics there."""
        return "config/topics.json" in self.names

    @property
    def dledger(self) -> bool:
        """Whether the log is DLedger's, which stores batches in another way."""
        return any(segment.kind == "dledger" for segment in self.store.segments)


def gather(store: Store, first: Sample, last: Sample, problems: list[str]) -> Evidence:
    """Read what the clues ask about; what cannot be read is missing, and told in `problems`."""

    def attempt(read: Callable[[], Answer], otherwise: Answer) -> Answer:
        try:
            return read()
        except Unreadable as error:
            problems.append(str(error))
            return otherwise

    names: set[str] = {_QUEUE_FOLDERS.get(file.kind, "consumequeue") for file in store.queue_files}
    for file in store.files:
        if not isinstance(file, (QueueFile, Segment)):
            parts = (f"config/{file.name}" if store.place == "config" else file.name).split("/")
            names |= {parts[0], "/".join(parts[:2])}
    own = {topic.decode("utf-8", "replace") for topic in first.system_topics | last.system_topics}
    no_headers: tuple[tuple[int, int, int], ...] = ()
    return Evidence(
        store,
        first,
        last,
        frozenset(names),
        frozenset({file.topic for file in store.queue_files} | own),
        attempt(lambda: read_checkpoint(store), {}),
        attempt(lambda: _read_abort(store), None),
        attempt(lambda: _index_headers(store), no_headers),
        attempt(lambda: _tag_keys(store, last), (0, 0)),
        attempt(lambda: _has_attributes(store), None),
    )


def _read_abort(store: Store) -> bytes | None:
    for file in store.of_kind("abort"):
        with open_file(file) as reader:
            return reader.read(0, 64)
    return None


def _has_attributes(store: Store) -> bool | None:
    file = store.config_files.get("topics.json")
    if file is None:
        return None
    with open_file(file) as reader:
        raw = reader.read(0, _CONFIG_LOOK)
    return b'"attributes"' in raw if b'"topicName"' in raw else None


def _index_headers(store: Store) -> tuple[tuple[int, int, int], ...]:
    headers = []
    for file in store.index_files[: -_INDEX_FILES - 1 : -1]:
        with open_file(file) as reader:
            raw = reader.read(0, IndexHeader.sizeof())
        if len(raw) == IndexHeader.sizeof():
            header = parse(IndexHeader, raw, lambda: "index header")
            headers.append((int(header.hash_slot_count), int(header.index_count) - 1, file.size))
    return tuple(headers)


def _tag_keys(store: Store, sample: Sample) -> tuple[int, int]:
    """Return how many sampled records of the newest index files have an entry for their tag, and not.

    Only the last entries are read, and a file's geometry is inferred only where that is quick.
    """
    having = lacking = 0
    for file in store.index_files[: -_INDEX_FILES - 1 : -1]:
        if file.size > _INFERRED_SIZE and file.size != DEFAULT_GEOMETRY.size:
            continue
        [index] = read_index_files(store, files=[file])
        count = min(index.readable_entries, _LAST_ENTRIES)
        if index.geometry is None or not count:
            continue
        with open_file(file) as reader:
            position = index.geometry.entry_position(index.readable_entries + 1 - count)
            raw = reader.read(position, count * IndexEntry.sizeof())
        layout = dtype_of(IndexEntry)
        entries = np.frombuffer(raw, layout, len(raw) // layout.itemsize)
        hashes: dict[int, set[int]] = {}
        for offset, key_hash in zip(entries["physical_offset"].tolist(), entries["key_hash"].tolist(), strict=True):
            hashes.setdefault(offset, set()).add(key_hash)
        for offset, (topic, tags) in sample.tags.items():
            if offset in hashes:
                text = index_key(topic.decode("utf-8", "replace"), "T#" + tags.decode("utf-8", "replace"))
                found = index_hash(text) in hashes[offset]
                having, lacking = having + found, lacking + (not found)
        if having + lacking:
            break
    return having, lacking


# --- the clues ----------------------------------------------------------------------------------


class Clue(NamedTuple):
    """Something that only some releases leave behind."""

    text: str
    spans: tuple[tuple[str, str], ...]  # of releases, both ends included
    applies: Callable[[Evidence], bool]
    strong: bool = True  # it rests on something that is there


def _since(release: str) -> tuple[tuple[str, str], ...]:
    return ((release, YOUNGEST),)


def _until(release: str) -> tuple[tuple[str, str], ...]:
    return ((OLDEST, release),)


def _named(release: str, *names: str) -> Clue:
    return Clue(names[0], _since(release), lambda evidence: not evidence.names.isdisjoint(names))


def _topic(release: str, text: str, pattern: str) -> Clue:
    test = re.compile(pattern, re.DOTALL).fullmatch
    return Clue(f"topic {text}", _since(release), lambda evidence: any(map(test, evidence.topics)))


def _property(release: str, name: str) -> Clue:
    raw = name.encode()
    return Clue(f"property {name}", _since(release), lambda e: raw in e.first.names or raw in e.last.names)


def _field(release: str, name: str) -> Clue:
    def applies(evidence: Evidence) -> bool:
        # A value behind the log's end is damage, and no trace of a version.
        ends = [segment.base + segment.size for segment in evidence.store.segments]
        return 0 < evidence.checkpoint.get(name, 0) <= max(ends, default=0)

    return Clue(f"checkpoint field {name}", _since(release), applies)


def _either(name: str) -> Callable[[Evidence], bool]:
    return lambda evidence: getattr(evidence.first, name) + getattr(evidence.last, name) > 0


def _mostly(one: int, other: int) -> bool:
    # A batch keeps the habits of its client's version: a few records may differ from the rest.
    return one > 0 and other * 20 <= one


def _counts_entries(evidence: Evidence) -> bool:
    """Whether an index header's slot count is its number of entries, although slots must be shared.

    n entries in m slots share none with a probability of about exp(-n² / 2m).
    """
    return any(
        used == entries and entries > 0 and entries**2 > 40 * (size // IndexSlot.sizeof())
        for used, entries, size in evidence.index_headers
    )


def _counts_slots(evidence: Evidence) -> bool:
    return any(0 < used < entries for used, entries, _ in evidence.index_headers)


def _tag_entries(evidence: Evidence) -> bool:
    having, lacking = evidence.tag_keys
    return having >= 3 and _mostly(having, lacking)


def _no_tag_entries(evidence: Evidence) -> bool:
    having, lacking = evidence.tag_keys
    return lacking >= 3 and _mostly(lacking, having)


_SEPARATED = "properties end with the separator"
_UNSEPARATED = "no separator at the end of properties"
_BATCH_PROPERTIES = (("4.8.0", "5.3.3"),)

CLUES: tuple[Clue, ...] = (
    # Records. Source: MessageExtEncoder, CommitLog, MessageDecoder.
    Clue("V2 records", _since("5.1.0"), _either("v2")),
    Clue("IPv6 hosts", _since("4.6.0"), _either("ipv6")),
    Clue("__CRC32#", _since("5.2.0"), _either("record_crc")),
    Clue(
        _SEPARATED,
        (*_until("4.9.0"), *_since("5.2.0")),
        lambda e: _mostly(e.last.separated, e.last.unseparated),
    ),
    Clue(_UNSEPARATED, (("4.9.1", "5.1.4"),), lambda e: _mostly(e.last.unseparated, e.last.separated)),
    Clue("batch properties appended", _BATCH_PROPERTIES, lambda e: e.last.repeated_names > 0),
    Clue(
        "CLUSTER in batches only",
        _BATCH_PROPERTIES,
        lambda e: e.last.batched_with_cluster > 3 and e.last.singles > 9 and not e.last.singles_with_cluster,
    ),
    *(_property(release, name) for name, release in BROKER_NAMES.items()),
    # Topics of the broker's own. Source: TopicValidator, MixAll.
    _topic("4.3.0", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_(OP_)?HALF_TOPIC"),
    _topic("4.9.3", "%LMQ%", "%LMQ%.+"),
    _topic("5.0.0", "rmq_sys_wheel_timer", "rmq_sys_wheel_timer"),
    _topic("5.0.0", "rmq_sys_REVIVE_LOG", "rmq_sys_REVIVE_LOG_.*"),
    _topic("5.2.0", "%RETRY%group+topic", r"%RETRY%[^+]+\+.+"),
    _topic("5.4.0", "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", "RMQ_SYS_ROCKSDB_TRANS_(OP_)?HALF_TOPIC"),
    _topic("5.5.0", "of a lite topic", r"%LMQ%\$[^$]+\$.+"),
    # Files and folders. Source: StorePathConfigHelper, BrokerPathConfigHelper.
    _named("4.1.0", "consumequeue_ext"),
    _named("4.2.0", "lock"),
    _named("4.9.3", "config/lmqConsumerOffset.json"),
    _named("5.0.0", "abort.bak"),
    _named("5.0.0", "batchconsumequeue"),
    _named("5.0.0", "timerwheel"),
    _named("5.0.0", "timerlog"),
    _named("5.0.0", "epochFileCheckpoint"),
    _named("5.0.0", "config/timermetrics", "config/timercheck", "config/consumerOrderInfo.json"),
    _named("5.0.0", "config/messageRequestMode.json", "config/topicQueueMapping.json"),
    _named("5.1.0", "compaction"),
    _named("5.1.1", "brokerIdentity"),
    _named("5.1.4", "config/topics", "config/consumerOffsets", "config/subscriptionGroups"),
    _named("5.2.0", "config/transactionMetrics"),
    _named("5.2.0", "consumequeue/CURRENT"),
    _named("5.3.0", "config/users", "config/acls"),
    _named("5.3.2", "kvStore"),
    _named("5.3.2", "config/rdb"),
    _named("5.4.0", "rocksdbstore"),
    _named("5.4.0", "config/metadata"),
    _named("5.5.0", "consumequeue_rocksdb"),
    Clue("attributes in topics.json", _since("5.0.0"), lambda e: e.attributes is True),
    Clue("a pid in abort", _since("5.0.0"), lambda e: e.abort is not None and e.abort.isdigit()),
    # Source: StoreCheckpoint.
    _field("5.0.0", "master_flushed_offset"),
    _field("5.1.1", "confirm_phy_offset"),
    _field("5.5.0", "logics_physical_offset"),
    # Source: IndexFile#putKey, IndexService#buildIndex.
    Clue("index headers count entries as slots", _until("4.7.0"), _counts_entries),
    Clue("index headers count slots", _since("4.7.1"), _counts_slots),
    Clue("tags in the index", _since("5.4.0"), _tag_entries),
    Clue("no tags in the index", _until("5.3.3"), _no_tag_entries),
    # What is not there.
    Clue(
        "an empty abort, no abort.bak",
        _until("4.9.8"),
        lambda e: e.whole and e.abort == b"" and "abort.bak" not in e.names,
        strong=False,
    ),
    Clue("no abort.bak", _until("4.9.8"), lambda e: e.whole and "abort.bak" not in e.names, strong=False),
    Clue("no attributes in topics.json", _until("4.9.8"), lambda e: e.attributes is False, strong=False),
    Clue(
        "no rocksdbstore",
        _until("5.3.3"),
        lambda e: e.whole and "timerwheel" in e.names and "rocksdbstore" not in e.names,
        strong=False,
    ),
    Clue(
        "no transactionMetrics",
        _until("5.1.4"),
        lambda e: "config/timermetrics" in e.names and "config/transactionMetrics" not in e.names,
        strong=False,
    ),
    Clue(
        "no CLUSTER",
        _until("4.5.2"),
        lambda e: e.served and e.last.singles > 20 and not e.last.singles_with_cluster,
        strong=False,
    ),
    Clue(
        "no MSG_REGION",
        _until("4.9.8"),
        lambda e: e.last.singles_with_cluster > 9 and not e.last.singles_with_region,
        strong=False,
    ),
    Clue(
        "no batch properties appended",
        (*_until("4.7.1"), *_since("5.4.0")),
        lambda e: (
            e.last.singles_with_cluster > 9 and e.last.batched > 3 and not e.last.batched_with_cluster and not e.dledger
        ),
        strong=False,
    ),
    Clue("half messages in user topics", _until("4.2.0"), _either("halves_in_user_topics"), strong=False),
    Clue(
        "old bytes behind blank records",
        _until("4.9.0"),
        lambda e: e.first.stale_fillers > 1 and not e.first.zero_fillers,
        strong=False,
    ),
    Clue(
        "zeros behind blank records",
        _since("4.9.1"),
        lambda e: e.first.zero_fillers > 1 and not e.first.stale_fillers,
        strong=False,
    ),
)


def estimate(evidence: Evidence) -> VersionEstimate:
    """Return the releases that all clues allow.

    Where strong clues contradict each other, several versions wrote in turn: the last one is at
    least as young as what is there demands.
    """
    believed = [clue for clue in CLUES if clue.strong and clue.applies(evidence)]
    notes: list[str] = []
    if not _allowed(believed):
        believed = [clue for clue in believed if clue.spans[-1][1] == YOUNGEST]
        notes = ["several versions wrote in turn, the last one is meant"]
    for clue in CLUES:
        if not clue.strong and clue.applies(evidence) and _allowed([*believed, clue]):
            believed.append(clue)
    allowed = _allowed(believed)
    return VersionEstimate(allowed[0], allowed[-1], (*_telling(believed), *notes))


def _allowed(clues: list[Clue]) -> list[str]:
    ranges = [[(RELEASES.index(low), RELEASES.index(high)) for low, high in clue.spans] for clue in clues]
    return [
        release
        for number, release in enumerate(RELEASES)
        if all(any(low <= number <= high for low, high in spans) for spans in ranges)
    ]


def _telling(clues: list[Clue]) -> Iterator[str]:
    """Yield the texts of the clues without which the range would be wider; of equals the first."""
    kept = list(clues)
    for clue in reversed(clues):
        others = [other for other in kept if other is not clue]
        if _ends(others) == _ends(clues):
            kept = others
    return (clue.text for clue in kept)


def _ends(clues: list[Clue]) -> tuple[str, str]:
    allowed = _allowed(clues)
    return allowed[0], allowed[-1]


def assume_writer(store: Store, hints: Sequence[int], release: str | None) -> VersionEstimate:
    """Return the version whose rules to apply: `release` if given, else estimated from the store.

    `hints` are physical offsets of records that may be the log's last ones.
    """
    if release is not None:
        return VersionEstimate(release, release, ("as asked for",))
    return estimate_writer(store, find_log_end(store, hints).sample)


def estimate_writer(store: Store, last: Sample) -> VersionEstimate:
    """Return the version estimated from the store and the sample of its last records, which `find_log_end` takes."""
    problems: list[str] = []
    first, last = sample_edges(store, last, problems)
    return estimate(gather(store, first, last, problems))
