"""Counts over a few records that tell broker versions apart, from both ends of the log.

Source: MessageDecoder#messageProperties2String, MessageExtEncoder; RocketMQ 4.0.0 to 5.5.0.
"""

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field

import numpy as np

from rmqinspect.commitlog.columns import NO_CRC
from rmqinspect.commitlog.gaps import Gap
from rmqinspect.commitlog.records import Records
from rmqinspect.commitlog.scan import RecordRun, scan_split
from rmqinspect.commitlog.splits import Split
from rmqinspect.errors import Unreadable
from rmqinspect.schemas import message
from rmqinspect.schemas.message import SysFlag
from rmqinspect.store.model import Segment, Store
from rmqinspect.store.reader import open_file
from rmqinspect.topics import is_system_topic

_SAMPLED = 1000  # records of a window looked at
_ENOUGH, _FEW = 5000, 50  # after 5,000 records, 50 of each window
_KEPT_TAGS = 500
_HEAD_SIZE = 1 << 20  # bytes of the first segment scanned
_TAIL_SIZE = 64 << 10  # bytes of a closed segment scanned, for its filler
_LONG_FILLER = 64  # bytes: a shorter one may be all zeros by chance

# Properties that only a broker writes, and the first version that does. Clients can send any other.
BROKER_NAMES = {
    "INNER_MULTI_QUEUE_OFFSET": "4.9.3",
    "INNER_BASE": "5.0.0",
    "1ST_POP_TIME": "5.0.0",
    "TIMER_ENQUEUE_MS": "5.0.0",
    "TIMER_OUT_MS": "5.0.0",
    "ORIGIN_GROUP": "5.4.0",
    "TRANS_OFFSET": "5.4.0",
    "TIMER_ROLL_LABEL": "5.4.0",
}
_ENCODED_NAMES = {name.encode() for name in BROKER_NAMES}


@dataclass(slots=True)
class Sample:
    """Numbers of records, unless a comment says otherwise; `take` adds those of a window."""

    records: int = 0
    v2: int = 0
    ipv6: int = 0
    record_crc: int = 0
    halves_in_user_topics: int = 0
    separated: int = 0  # singles whose properties end with the separator
    unseparated: int = 0
    singles: int = 0  # of user topics, with a client's id, no neighbour from the same batch
    singles_with_cluster: int = 0
    singles_with_region: int = 0
    batched: int = 0  # of user topics, with a client's id, beside a record of the same moment and queue
    batched_with_cluster: int = 0
    repeated_names: int = 0  # with a property name twice
    stale_fillers: int = 0  # fillers (not records) that hold older bytes
    zero_fillers: int = 0  # fillers that hold zeros
    names: set[bytes] = field(default_factory=set)  # of BROKER_NAMES
    system_topics: set[bytes] = field(default_factory=set)
    tags: dict[int, tuple[bytes, bytes]] = field(default_factory=dict)  # physical offset -> topic, tag

    def take(self, records: Records) -> None:
        """Count the last records of a window."""
        records = records.select(slice(-(_SAMPLED if self.records < _ENOUGH else _FEW), None))
        self.records += len(records)
        self.v2 += int((records.magic == message.MAGIC_V2).sum())
        v6 = SysFlag.BORNHOST_V6 | SysFlag.STOREHOSTADDRESS_V6
        self.ipv6 += int(((records.sys_flag & v6) != 0).sum())
        self.record_crc += int((records.record_crcs != NO_CRC).sum())
        batched = _side_by_side(records)
        columns = (
            records.starts,
            records.topic_starts,
            records.topic_ends,
            records.properties_starts,
            records.properties_ends,
            records.sys_flag,
            batched,
        )
        for start, topic_start, topic_end, begin, end, flag, beside in zip(
            *(column.tolist() for column in columns), strict=True
        ):
            topic = bytes(records.raw[topic_start:topic_end])
            text = bytes(records.raw[begin:end])
            self._take_one(records.base + start, topic, text, flag, beside)

    def _take_one(self, physical_offset: int, topic: bytes, text: bytes, flag: int, beside: bool) -> None:
        pairs = [item.partition(b"\x01") for item in text.split(b"\x02") if item]
        properties = {name: value for name, _, value in pairs}
        self.names |= _ENCODED_NAMES & properties.keys()
        self.repeated_names += len(properties) < len(pairs)
        if text and not beside:
            self.separated += text.endswith(b"\x02")
            self.unseparated += not text.endswith(b"\x02")
        if topic.startswith(b"%") or is_system_topic(topic.decode(errors="replace")):
            self.system_topics.add(topic)
            return
        prepared = flag & message.TRANSACTION_MASK == SysFlag.TRANSACTION_PREPARED
        self.halves_in_user_topics += prepared and b"TRAN_MSG" in properties
        if b"UNIQ_KEY" in properties and flag & message.TRANSACTION_MASK == 0:
            cluster = b"CLUSTER" in properties
            self.singles += not beside
            self.singles_with_cluster += cluster and not beside
            self.singles_with_region += b"MSG_REGION" in properties and not beside
            self.batched += beside
            self.batched_with_cluster += cluster and beside
        if properties.get(b"TAGS"):
            if len(self.tags) >= _KEPT_TAGS:
                del self.tags[next(iter(self.tags))]
            self.tags[physical_offset] = topic, properties[b"TAGS"]


def _side_by_side(records: Records) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return which records have a neighbour that may come from the same client batch.

    A batch is stored in one append: its records share queue, born time and store time.
    """
    same = np.ones(max(0, len(records) - 1), np.bool_)
    for name in ("store_timestamp", "born_timestamp", "queue_id"):
        same &= np.diff(records.field(name)) == 0
    beside = np.zeros(len(records), np.bool_)
    beside[1:] |= same
    beside[:-1] |= same
    return beside


def sample_edges(store: Store, end: Sample, problems: list[str]) -> tuple[Sample, Sample]:
    """Return a sample of the log's first records and last fillers, and one of its last records.

    The second is `end`, taken by the search for the log's end, plus the last records of closed segments.
    Files that cannot be read are added to `problems`.
    """
    sample, last = Sample(), deepcopy(end)
    for segment in store.segments[:1]:
        for event in _events(Split(segment, 0, min(segment.size, _HEAD_SIZE)), problems):
            if isinstance(event, RecordRun) and not event.carved:
                sample.take(event.records)
    for segment in store.segments[:-1][-2:]:
        for event in _events(Split(segment, max(0, segment.size - _TAIL_SIZE), segment.size), problems):
            if isinstance(event, RecordRun) and not event.carved:
                last.take(event.records)
            elif isinstance(event, Gap) and event.kind == "filler" and event.end - event.start >= _LONG_FILLER:
                stale = _is_stale(segment, event)
                sample.stale_fillers += stale
                sample.zero_fillers += not stale
    return sample, last


def _events(split: Split, problems: list[str]) -> Iterator[object]:
    try:
        yield from scan_split(split, _HEAD_SIZE)
    except Unreadable as error:
        problems.append(str(error))


def _is_stale(segment: Segment, filler: Gap) -> bool:
    with open_file(segment) as reader:
        raw = reader.read(filler.start - segment.base, min(filler.end - filler.start, _TAIL_SIZE))
    return any(raw[message.Blank.sizeof() :])
