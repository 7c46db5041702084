"""What a broker dispatches for each record of the log: its queue units and index entries.

Columns for the records of one split, collected run by run, without a Python object per record.

    record    CommitLog dispatches       to
    ------    one unit                   its own queue, unless prepared or rolled back
              further units              the queues in INNER_MULTI_DISPATCH (4.9.3+)
              index entries              UNIQ_KEY, each word of KEYS, TAGS (5.4.0+), unless rolled back;
                                         how they are spelled: `codec.java`

Source: CommitLog#checkMessageAndReturnSize (DispatchRequest), CommitLogDispatcherBuildConsumeQueue,
MultiDispatch (4.9.3+), IndexService#buildIndex; RocketMQ 4.0.0 to 5.5.0.
"""

from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct, field
from msgspec.structs import fields
from numpy.typing import NDArray

from rmqinspect.broker.start_rules import Rules
from rmqinspect.codec.arrays import Bools, Ints
from rmqinspect.codec.java import ID_MARK, TAG_MARK, java_number
from rmqinspect.commitlog.queue_offsets import Queue
from rmqinspect.commitlog.records import Records
from rmqinspect.loops.arrays import Int32s
from rmqinspect.loops.record_rows import (
    ASKED_BATCHES,
    ASKED_ID_MARKS,
    ASKED_INDEX_KEYS,
    ASKED_KEY_COUNTS,
    ASKED_REAL_TOPICS,
    ASKED_TAG_KEYS,
)
from rmqinspect.loops.records import dispatch, has_queue_unit
from rmqinspect.loops.text import java_hash
from rmqinspect.schemas import message
from rmqinspect.schemas.message import TRANSACTION_MASK
from rmqinspect.topics import LMQ_PREFIX, SCHEDULE_TOPIC, SYSTEM_PREFIX

# Records of these topics are never multi-dispatched. Source: MultiDispatchUtils#checkMultiDispatchQueue.
_NOT_MULTIPLIED = (b"%RETRY%", SYSTEM_PREFIX.encode(), SCHEDULE_TOPIC.encode())


_FEW = 1 << 10  # records and keys, at first
_MOST_KEYS = 1 << 15  # of a record: its properties have fewer bytes


# What units and entries may hold, by the first release that wrote so. It may hold if any release that can have written
# the store did, and need not: an older release may have written before, and a newer one keeps what is there.
_SINCE = {
    "multi_dispatch": Rules.multi_dispatch.since("all_or_refuse"),
    "inner_batch": Rules.inner_batches.since(True),
    "tag_keys": Rules.tag_keys.since(True),
    # Recovery runs before ScheduleMessageService#load has read the table of delays (up to 4.9.8).
    "plain_schedule_tags": Rules.schedule_tags.since("plain"),
}
DIFFERENCES = frozenset(_SINCE)
MARKED_IDS = "marked_ids"
"""The rule that the index may hold UNIQ_KEY as rocketmq-rust writes it, besides the form of Java; of no release."""


def holding(releases: Sequence[str], known: Sequence[str]) -> frozenset[str]:
    """Return which of DIFFERENCES may hold for a store that one of `releases` wrote; `known` are all, in order."""
    newest = max(map(known.index, releases), default=-1)
    return frozenset(name for name, since in _SINCE.items() if known.index(since) <= newest)


def has_index_keys(sys_flag: int) -> bool:
    """Return whether records get index entries: not rolled back ones. Source: IndexService#buildIndex."""
    return sys_flag & TRANSACTION_MASK != TRANSACTION_MASK


TRANSACTIONS_WITH_UNITS = tuple(
    name for number, name in enumerate(message.TRANSACTIONS) if has_queue_unit(number << message.TRANSACTION_SHIFT)
)
"""Names of `message.TRANSACTIONS` whose records get queue units."""


class Extra(NamedTuple):
    """A further unit of a record, by multi-dispatch."""

    record: int
    topic: str
    queue_id: int
    queue_offset: int


class Dispatched(Struct):
    """Columns of n records in log order, and of their k index keys."""

    physical_offset: Ints  # where the record lies, whatever it says
    queue_offset: Ints
    store_timestamp: Ints  # ms
    size: Int32s
    queue: Int32s  # index of `queues`
    tags_code: Int32s  # of the plain tags: MessageExtBrokerInner#tagsString2tagsCode
    messages: Int32s  # INNER_NUM of an inner batch, else 1
    real_topic: Int32s  # hash of REAL_TOPIC, 0 without
    key_count: Int32s  # index keys, but for that of the tag; if asked
    entitled: Bools  # to a unit at all: neither prepared nor rolled back
    sound: Bools  # body CRC and stored physical offset are right, so the head can be believed
    delayed: Bools  # has a delay level
    tagged: Bools  # has tags, of which 5.4.0 and later make an index key
    key_record: Int32s  # ascending; of a record, the keys are in the order in which they are written
    key_hash: Int32s
    key_kind: NDArray[np.int8]
    extras: list[Extra]
    queues: list[Queue] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.physical_offset)


_MARKS = b"", TAG_MARK.encode(), ID_MARK.encode()


class Dispatcher:
    """Collects what is dispatched for the records of a split."""

    def __init__(
        self,
        *,
        keys: bool,
        real_topics: bool = False,
        key_counts: bool = False,
        rules: Collection[str] = DIFFERENCES,
    ) -> None:
        """Collect index keys, hashes of real topics and the numbers of index keys, if asked.

        `rules` are the DIFFERENCES that may hold, and MARKED_IDS; with that a record has both forms of its UNIQ_KEY.
        """
        asked = {ASKED_INDEX_KEYS: keys, ASKED_REAL_TOPICS: real_topics, ASKED_TAG_KEYS: "tag_keys" in rules}
        asked[ASKED_BATCHES] = "inner_batch" in rules
        asked[ASKED_KEY_COUNTS] = key_counts
        asked[ASKED_ID_MARKS] = MARKED_IDS in rules
        self._asked = sum(bit for bit, is_asked in asked.items() if is_asked)
        self._multiplied = "multi_dispatch" in rules
        self._used = np.zeros(2, np.int64)  # records and keys so far
        self._columns = [np.empty((rows, _FEW), dtype) for rows, dtype in ((3, np.int64), (6, np.int32), (4, np.uint8))]
        self._keys = [np.empty((rows, _FEW), dtype) for rows, dtype in ((2, np.int32), (1, np.uint8))]
        self._prefixes = np.empty((0, len(_MARKS)), np.int64)  # by number of the queue
        self._extras: list[Extra] = []

    def take(self, records: Records, numbers: Ints, queues: list[Queue], sound: Bools) -> None:
        """Add records with their properties; `numbers` has the index in `queues` of each."""
        if self._multiplied:
            self._extras += self._multi_dispatch(records, numbers, queues)
        if len(self._prefixes) < len(queues):
            more = [_prefixes_of(topic) for topic, _ in queues[len(self._prefixes) :]]
            self._prefixes = np.concatenate((self._prefixes, np.array(more, np.int64)))
        items, done = records.properties, 0
        while done < len(records):
            done = dispatch(
                self._asked,
                records.bytes,
                records.base,
                records.rows,
                items.known,
                items.name_ends,
                items.value_ends,
                numbers,
                self._prefixes,
                sound.view(np.uint8),
                done,
                self._used,
                *self._columns,
                *self._keys,
            )
            if done < len(records):
                self._grow(len(records) - done)

    def _multi_dispatch(self, records: Records, numbers: Ints, queues: list[Queue]) -> Iterator[Extra]:
        properties = records.properties
        for at in np.flatnonzero(properties.of(b"INNER_MULTI_QUEUE_OFFSET") >= 0).tolist():
            topic, queue_id = queues[numbers[at]]
            names = properties.value_of(b"INNER_MULTI_DISPATCH", at) or b""
            offsets = properties.value_of(b"INNER_MULTI_QUEUE_OFFSET", at) or b""
            for further in further_units(topic, queue_id, names, offsets):
                yield Extra(int(self._used[0]) + at, *further)

    def _grow(self, records: int) -> None:
        """Make room for so many records, or for the keys of one."""
        count, keys = self._used.tolist()
        if count == self._columns[0].shape[1]:
            self._columns = [_wider(table, count, records) for table in self._columns]
        else:
            self._keys = [_wider(table, keys, _MOST_KEYS) for table in self._keys]

    def columns(self, queues: list[Queue]) -> Dispatched:
        """Return the columns of all records."""
        count, keys = self._used.tolist()
        numbers, smaller, flags = (table[:, :count] for table in self._columns)
        index, kinds = (table[:, :keys] for table in self._keys)
        names = (field.name for field in fields(Dispatched))
        rows = (*numbers, *smaller, *flags.view(np.bool_), *index, *kinds.view(np.int8))
        return Dispatched(**dict(zip(names, rows, strict=False)), extras=self._extras, queues=queues)


@lru_cache(maxsize=4096)
def _prefixes_of(topic: bytes) -> tuple[int, ...]:
    """Return the hashes of what stands before the keys of a topic's records, for each of _MARKS."""
    return tuple(_hash_of(topic + b"#" + mark) for mark in _MARKS)


def _hash_of(text: bytes) -> int:
    return java_hash(np.frombuffer(text, np.uint8), 0, len(text), 0)


def _wider(table: NDArray[Any], used: int, needed: int) -> NDArray[Any]:
    """Return a table twice as wide, with room for `needed` more in each row."""
    wider = np.empty((len(table), 2 * table.shape[1] + needed), table.dtype)
    wider[:, :used] = table[:, :used]
    return wider


def further_units(
    topic: bytes, queue_id: int, names: bytes, offsets: bytes, single: tuple[bytes, ...] = _NOT_MULTIPLIED
) -> Iterator[tuple[str, int, int]]:
    """Yield (queue's name, queue id, queue offset) of the further units of a record by multi-dispatch.

    `names` and `offsets` are its INNER_MULTI_DISPATCH and INNER_MULTI_QUEUE_OFFSET. Topics that begin with one of
    `single` have none.
    Source: CommitLogDispatcherBuildConsumeQueue, MultiDispatch#dispatch.
    """
    if names and not topic.startswith(single):
        for name, offset in _pairs(names, offsets):
            yield name, 0 if name.startswith(LMQ_PREFIX) else queue_id, offset


def unreadable_offset(
    topic: bytes, names: bytes, offsets: bytes, single: tuple[bytes, ...], *, skips_paths: bool
) -> str | None:
    """Return the text of INNER_MULTI_QUEUE_OFFSET that Long#parseLong refuses, None without: dispatch fails there."""
    listed, numbers = _split(names, offsets)
    if not names or topic.startswith(single) or len(listed) != len(numbers):
        return None
    for name, number in zip(listed, numbers, strict=True):
        if not (skips_paths and "/" in name) and java_number(number, 64) is None:
            return number
    return None


def _split(names: bytes, offsets: bytes) -> tuple[list[str], list[str]]:
    """Return names and offsets as Java splits them: without empty texts at the end."""
    both = names.decode("utf-8", "replace").split(","), offsets.decode("ascii", "replace").split(",")
    for texts in both:
        while texts and not texts[-1]:
            texts.pop()
    return both


@lru_cache(maxsize=4096)
def _pairs(names: bytes, offsets: bytes) -> tuple[tuple[str, int], ...]:
    """Return (queue name, queue offset) of a multi-dispatched record.

    Where offsets and names differ in number, nothing is dispatched. A name without an offset gets no unit: 5.2.0
    and later compute offsets of `%LMQ%` names only. A name that is a path is skipped.
    """
    listed, numbers = _split(names, offsets)
    if len(listed) != len(numbers):
        return ()
    pairs = zip(listed, numbers, strict=True)
    return tuple((name, int(n)) for name, n in pairs if n.isdecimal() and len(n) < 19 and "/" not in name)
