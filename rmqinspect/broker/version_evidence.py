"""The evidence that version clues are judged by: small samples of a store, read once.

Source: StorePathConfigHelper, BrokerPathConfigHelper, StoreCheckpoint, IndexHeader.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from rmqinspect.codec.hashes import index_hash, index_key
from rmqinspect.codec.layout import dtype_of, parse
from rmqinspect.commitlog.sample import Sample
from rmqinspect.config.checkpoint import read_checkpoint
from rmqinspect.errors import Unreadable
from rmqinspect.index.geometry import DEFAULT_GEOMETRY, read_index_files
from rmqinspect.schemas.index import IndexEntry, IndexHeader
from rmqinspect.store.model import QueueFile, Segment, Store
from rmqinspect.store.reader import open_file

_INDEX_FILES = 3  # the newest
_INFERRED_SIZE = 64 << 20  # largest index file whose geometry is inferred
_LAST_ENTRIES = 4096
_CONFIG_WINDOW = 1 << 20  # bytes of topics.json that are searched
_QUEUE_FOLDERS = {"batch_queue": "batchconsumequeue", "ext_queue": "consumequeue_ext"}

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Evidence:
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

    names: set[str] = {_QUEUE_FOLDERS.get(file.kind, "consumequeue") for file in store.queue_files}
    for file in store.files:
        if not isinstance(file, (QueueFile, Segment)):
            parts = (f"config/{file.name}" if store.given == "config" else file.name).split("/")
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


def _tag_keys(store: Store, sample: Sample) -> tuple[int, int]:
    """Return how many sampled records of the newest index files have an entry for their tag, and how many none.

    Only the last entries are read, and a geometry is inferred only where that is quick.
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
