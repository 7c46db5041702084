"""The evidence that version clues are judged by: small samples of a store, read once.

Source: StorePathConfigHelper, BrokerPathConfigHelper, StoreCheckpoint, IndexHeader.

Other programs that write a broker's files: named by what they leave and Java releases do not.

A Java broker may have run on the same store before or after; its traces are told, too.

Source: rocketmq-rust 1.0.0 (rocketmq-store/src/timer, rocketmq-store-local/src/index/service.rs).
"""

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple, TypeVar

import numpy as np
from msgspec import Struct

from rmqinspect.codec.java import ID_MARK, TAG_MARK, index_hash, index_key
from rmqinspect.codec.layout import dtype_of, parse
from rmqinspect.commitlog.tail import Sample
from rmqinspect.config.json_files import read_checkpoint
from rmqinspect.errors import Unreadable
from rmqinspect.index.geometry import DEFAULT_GEOMETRY, read_index_files
from rmqinspect.schemas.index import IndexEntry, IndexHeader
from rmqinspect.store.model import QueueFile, Segment, Store
from rmqinspect.store.reader import open_file

RUST = "rocketmq-rust"
_RUST_FILES = ("timer-v2", "timerlog/v2", "timerwheel.v2", "config/timercheck.a", "config/timer-role.meta")
_JAVA_FILES = ("abort.bak",)
_ENOUGH = 3  # entries: one alone may be forged, or damaged


class OtherWriter(Struct, frozen=True):
    """A program that wrote a store, and is no release of RocketMQ."""

    name: str
    clues: tuple[str, ...]
    alone: bool  # nothing shows that a Java broker wrote, too

    def __str__(self) -> str:
        return self.name if self.alone else f"{self.name} and a Java broker in turn"

    @property
    def about_starts(self) -> str:
        """Say what a forecast for Java releases means for such a store."""
        return (
            f"{self} wrote this store; the start is that of Java releases, which do not find messages by id through "
            "index entries of rocketmq-rust"
        )


def other_writer(names: Collection[str], marked_ids: int = 0, plain_ids: int = 0) -> OtherWriter | None:
    """Return who else wrote a store; None if nothing shows it.

    `names` are of files and folders, one and two components; the numbers are of sampled records that the index names
    with ID_MARK (`codec.java`), and without.
    """
    clues = [name for name in _RUST_FILES if name in names]
    if marked_ids >= _ENOUGH:
        clues.insert(0, "ids in the index as topic#U#id")
    java = plain_ids > 0 or any(name in names for name in _JAVA_FILES)
    return OtherWriter(RUST, tuple(clues), not java) if clues else None


_INDEX_FILES = 3  # the newest
_INFERRED_SIZE = 64 << 20  # largest index file whose geometry is inferred
_LAST_ENTRIES = 4096
_CONFIG_WINDOW = 1 << 20  # bytes of topics.json that are searched
_QUEUE_FOLDERS = {"batch_queue": "batchconsumequeue", "ext_queue": "consumequeue_ext"}

Answer = TypeVar("Answer")


class Evidence(Struct, frozen=True):
    """What the clues are judged by."""

    store: Store
    first: Sample  # the log's first records, and blank records
    last: Sample  # the log's last records
    names: frozenset[str]  # of files and folders, one and two components
    topics: frozenset[str]  # with queue files; system topics with sampled records
    checkpoint: Mapping[str, int]
    abort: bytes | None  # its content
    index_headers: tuple[tuple[int, int, int], ...]  # (used slots, entries, file size), newest first
    tag_keys: tuple[int, int]  # sampled records that are indexed with, without their tag
    attributes: bool | None  # whether topics.json has "attributes"; None without the file
    other: OtherWriter | None = None  # besides Java releases

    @property
    def whole(self) -> bool:
        """Whether a store root was given: only then does an absent file mean anything."""
        return self.store.given == "store" and bool({"checkpoint", "lock"} & self.names)

    @property
    def served(self) -> bool:
        """Whether a broker ran on the store, not a bare message store: it keeps its topics there."""
        return "config/topics.json" in self.names

    @property
    def dledger(self) -> bool:
        """Whether the log is DLedger's, which stores batches differently."""
        return any(segment.kind == "dledger" for segment in self.store.segments)


def gather(store: Store, first: Sample, last: Sample, problems: list[str]) -> Evidence:
    """Read the evidence; `first` and `last` are samples of the log. What cannot be read is added to `problems`."""

    def attempt(read: Callable[[], Answer], otherwise: Answer) -> Answer:
        try:
            return read()
        except Unreadable as error:
            problems.append(str(error))
            return otherwise

    names = names_in(store)
    keys = attempt(lambda: _index_keys(store, last), _NO_KEYS)
    own = {topic.decode("utf-8", "replace") for topic in first.system_topics | last.system_topics}
    no_headers: tuple[tuple[int, int, int], ...] = ()
    return Evidence(
        store,
        first,
        last,
        names,
        frozenset({file.topic for file in store.queue_files} | own),
        attempt(lambda: read_checkpoint(store), {}),
        attempt(lambda: _read_abort(store), None),
        attempt(lambda: _index_headers(store), no_headers),
        (keys.tagged, keys.untagged),
        attempt(lambda: _has_attributes(store), None),
        other_writer(names, keys.marked_ids, keys.plain_ids),
    )


def names_in(store: Store) -> frozenset[str]:
    """Return the names of files and folders, one and two components."""
    names: set[str] = {_QUEUE_FOLDERS.get(file.kind, "consumequeue") for file in store.queue_files}
    for file in store.files:
        if not isinstance(file, (QueueFile, Segment)):
            parts = (f"config/{file.name}" if store.given == "config" else file.name).split("/")
            names |= {parts[0], "/".join(parts[:2])}
    return frozenset(names)


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
        raw = reader.read(0, _CONFIG_WINDOW)
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


class _IndexKeys(NamedTuple):
    """Numbers of sampled records that have an entry for what they say, and how it is spelled (`codec.java`)."""

    tagged: int
    untagged: int
    marked_ids: int
    plain_ids: int


_NO_KEYS = _IndexKeys(0, 0, 0, 0)


def _index_keys(store: Store, sample: Sample) -> _IndexKeys:
    """Return what the newest index files say of sampled records: of tags and of ids, the newest that has some.

    Only the last entries are read, and a geometry is inferred only where that is quick.
    """
    tagged: list[bool] = []
    marked = plain = 0
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
        tagged = [_is_indexed(hashes[at], *texts, TAG_MARK) for at, texts in sample.tags.items() if at in hashes]
        if not marked + plain:
            ids = [(hashes[at], *texts) for at, texts in sample.ids.items() if at in hashes]
            marked, plain = (sum(_is_indexed(*one, mark) for one in ids) for mark in (ID_MARK, ""))
        if tagged:
            break
    return _IndexKeys(sum(tagged), len(tagged) - sum(tagged), marked, plain)


def _is_indexed(hashes: set[int], topic: bytes, key: bytes, mark: str) -> bool:
    text = index_key(topic.decode("utf-8", "replace"), key.decode("utf-8", "replace"), mark)
    return index_hash(text) in hashes
