"""What a broker dispatches for each record of the log: its queue units and index entries.

Columns for the records of one split, collected run by run, without a Python object per record.

    record    CommitLog dispatches       to
    ------    one unit                   its own queue, unless prepared or rolled back
              further units              the queues in INNER_MULTI_DISPATCH (4.9.3+)
              index entries              UNIQ_KEY, each word of KEYS, TAGS (5.4.0+), unless rolled back

Source: CommitLog#checkMessageAndReturnSize (DispatchRequest), CommitLogDispatcherBuildConsumeQueue,
MultiDispatch (4.9.3+), IndexService#buildIndex; RocketMQ 4.0.0 to 5.5.0.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from rmqinspect.codec.arrays import Bools, Ints
from rmqinspect.codec.byte_ranges import take_ranges
from rmqinspect.codec.hash_columns import hash_texts, index_hashes, java_string_hashes, joined_hashes
from rmqinspect.codec.hashes import java_string_hash
from rmqinspect.codec.properties import Items
from rmqinspect.commitlog.queue_offsets import Queue
from rmqinspect.commitlog.records import Records
from rmqinspect.schemas import message
from rmqinspect.schemas.message import SysFlag
from rmqinspect.topics import LMQ_PREFIX, SCHEDULE_TOPIC, SYSTEM_PREFIX

# Records of these topics are never multi-dispatched. Source: MultiDispatchUtils#checkMultiDispatchQueue.
_NOT_MULTIPLIED = (b"%RETRY%", SYSTEM_PREFIX.encode(), SCHEDULE_TOPIC.encode())

_SPACE = 0x20  # MessageConst.KEY_SEPARATOR
_TAG_KEY = b"T#"  # precedes the tags in the text that 5.4.0 and later index

UNIQUE, KEY, TAG = 0, 1, 2  # kinds of index keys, in the order in which they are written


class Difference(NamedTuple):
    """A behaviour of the brokers from one release to another."""

    first: str
    last: str | None  # None: all later ones
    what: str


# Differences between versions. A rule may hold if any release that can have written the store has it. None must
# hold: an older release may have written before.
DIFFERENCES = {
    "multi_dispatch": Difference("4.9.3", None, "INNER_MULTI_DISPATCH gives further units"),
    "inner_batch": Difference("5.0.0", None, "a record with INNER_NUM takes so many queue offsets"),
    "tag_keys": Difference("5.4.0", None, "the tags are a key of the index"),
    # Recovery runs before ScheduleMessageService#load has read the table of delays (up to 4.9.8; later versions
    # keep such units).
    "plain_schedule_tags": Difference("4.9.2", None, "recovery may have given delayed messages the hash of their tags"),
}


def holding(releases: Sequence[str], known: Sequence[str]) -> frozenset[str]:
    """Return the rules that may hold for a store that one of `releases` wrote.

    `known` are all releases in their order.
    """

    def has(release: str, rule: Difference) -> bool:
        last = known[-1] if rule.last is None else rule.last
        return known.index(rule.first) <= known.index(release) <= known.index(last)

    return frozenset(name for name, rule in DIFFERENCES.items() if any(has(release, rule) for release in releases))


@overload
def has_queue_unit(sys_flag: int) -> bool: ...
@overload
def has_queue_unit(sys_flag: Ints) -> Bools: ...
def has_queue_unit(sys_flag: int | Ints) -> bool | Bools:
    """Return whether records get queue units: not prepared and rolled back ones.

    Source: CommitLogDispatcherBuildConsumeQueue#dispatch.
    """
    transaction = sys_flag & message.TRANSACTION_MASK
    return (transaction == 0) | (transaction == SysFlag.TRANSACTION_COMMIT)


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


@dataclass(slots=True)
class Dispatched:
    """Columns of n records in log order, and of their k index keys."""

    physical_offset: Ints  # where the record lies, whatever it says
    size: Ints
    queue: Ints  # index of `queues`
    queue_offset: Ints
    tags_code: Ints  # of the plain tags
    store_timestamp: Ints  # ms
    messages: Ints  # INNER_NUM of an inner batch, else 1
    entitled: Bools  # to a unit at all: neither prepared nor rolled back
    sound: Bools  # body CRC and stored physical offset are right, so the head can be believed
    real_topic: Ints  # hash of REAL_TOPIC, 0 without
    delayed: Bools  # has a delay level
    extras: list[Extra]
    key_record: Ints  # ascending
    key_hash: Ints
    key_kind: NDArray[np.int8]
    queues: list[Queue] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.physical_offset)


class Dispatcher:
    """Collects what is dispatched for the records of a split."""

    def __init__(
        self, *, keys: bool, real_topics: bool = False, rules: Collection[str] = frozenset(DIFFERENCES)
    ) -> None:
        """Collect index keys and hashes of real topics, if asked; `rules` are the DIFFERENCES that may hold."""
        self.keys, self.real_topics, self.rules = keys, real_topics, rules
        self.count = 0
        self._columns: dict[str, list[NDArray[Any]]] = {}
        self._extras: list[Extra] = []
        self._prefixes = np.zeros(0, np.int32)  # hash of "topic#" by number of the queue

    def take(self, records: Records, numbers: Ints, queues: list[Queue], sound: Bools) -> None:
        """Add records with their properties; `numbers` has the index in `queues` of each."""
        count = len(records)
        transaction = records.sys_flag & message.TRANSACTION_MASK
        self._add(
            physical_offset=records.base + records.starts,
            size=records.total_size,
            queue=numbers.astype(np.int64),
            queue_offset=records.field("queue_offset"),
            tags_code=_hashes_of(records, b"TAGS"),  # MessageExtBrokerInner#tagsString2tagsCode
            store_timestamp=records.field("store_timestamp"),
            entitled=has_queue_unit(records.sys_flag),
            sound=sound,
            real_topic=_hashes_of(records, b"REAL_TOPIC") if self.real_topics else np.zeros(count, np.int64),
            delayed=records.properties.of(b"DELAY") >= 0,
            messages=_batch_sizes(records) if "inner_batch" in self.rules else np.ones(count, np.int64),
        )
        if "multi_dispatch" in self.rules:
            self._extras += self._multi_dispatch(records, numbers, queues)
        if self.keys:
            self._index_keys(records, numbers, queues, transaction)
        self.count += count

    def _add(self, **columns: NDArray[Any]) -> None:
        for name, column in columns.items():
            self._columns.setdefault(name, []).append(column)

    def _multi_dispatch(self, records: Records, numbers: Ints, queues: list[Queue]) -> Iterator[Extra]:
        which, starts, ends = _find(records.properties, b"INNER_MULTI_QUEUE_OFFSET")
        if not len(which):
            return
        offsets = {int(at): bytes(records.raw[a:b]) for at, a, b in zip(which, starts, ends, strict=True)}
        for at, begin, end in zip(*_find(records.properties, b"INNER_MULTI_DISPATCH"), strict=True):
            topic, queue_id = queues[numbers[at]]
            if not topic.startswith(_NOT_MULTIPLIED):
                for name, offset in _pairs(bytes(records.raw[begin:end]), offsets.get(int(at), b"")):
                    yield Extra(self.count + int(at), name, 0 if name.startswith(LMQ_PREFIX) else queue_id, offset)

    def _index_keys(self, records: Records, numbers: Ints, queues: list[Queue], transaction: Ints) -> None:
        known = len(self._prefixes)
        if len(queues) > known:
            fresh = [java_string_hash(topic.decode("utf-8", "replace") + "#") for topic, _ in queues[known:]]
            self._prefixes = np.concatenate((self._prefixes, np.array(fresh, np.int32)))
        marker = java_string_hash(_TAG_KEY.decode())
        parts = [
            (UNIQUE, *_hashed(records, *_find(records.properties, b"UNIQ_KEY"))),
            (KEY, *_hashed(records, *_tokens(records, *_find(records.properties, b"KEYS")))),
        ]
        if "tag_keys" in self.rules:
            parts.append((TAG, *_hashed(records, *_find(records.properties, b"TAGS"), marker, len(_TAG_KEY))))
        columns = [
            (
                which,
                index_hashes(joined_hashes(self._prefixes[numbers[which]], hashed, lengths)),
                np.full(len(which), kind, np.int8),
            )
            for kind, which, hashed, lengths in parts
        ]
        # Keys of a record together, in the order in which they are written; rollbacks are not indexed.
        if all(len(which) == len(numbers) for which, _, _ in columns):  # each record has one key of each kind
            record, hashes, kind = (np.stack(column, axis=1).ravel() for column in zip(*columns, strict=True))
        else:
            record, hashes, kind = (np.concatenate(column) for column in zip(*columns, strict=True))
            order = np.argsort(record, kind="stable")
            record, hashes, kind = record[order], hashes[order], kind[order]
        indexed = transaction[record] != message.TRANSACTION_MASK  # rollback has both bits
        if not indexed.all():
            record, hashes, kind = record[indexed], hashes[indexed], kind[indexed]
        self._add(key_record=self.count + record, key_hash=hashes.astype(np.int64), key_kind=kind)

    def columns(self, queues: list[Queue]) -> Dispatched:
        """Return the columns of all records."""

        def whole(name: str, dtype: type = np.int64) -> NDArray[Any]:
            parts = self._columns.pop(name, [])
            return np.concatenate(parts) if parts else np.empty(0, dtype)

        flags = {name: whole(name, np.bool_) for name in ("entitled", "sound", "delayed")}
        numbers = {
            name: whole(name)
            for name in (
                "physical_offset",
                "size",
                "queue",
                "queue_offset",
                "tags_code",
                "real_topic",
                "store_timestamp",
                "messages",
                "key_record",
                "key_hash",
                "key_kind",
            )
        }
        return Dispatched(**numbers, **flags, extras=self._extras, queues=queues)


def _find(items: Items, name: bytes) -> tuple[Ints, Ints, Ints]:
    """Return (record, value start, value end) of each record with a property, ascending."""
    item = items.of(name)
    which = np.flatnonzero(item >= 0)
    return which, items.name_ends[item[which]] + 1, items.value_ends[item[which]]


def _hashes_of(records: Records, name: bytes) -> Ints:
    """Return the hash of a property's text in each record, 0 where there is none."""
    codes: Ints = np.zeros(len(records), np.int64)
    which, starts, ends = _find(records.properties, name)
    codes[which] = java_string_hashes(records.bytes, starts, ends)
    return codes


def _batch_sizes(records: Records) -> Ints:
    """Return how many messages INNER_NUM says that each record has; 1 where it is no small number."""
    numbers: Ints = np.ones(len(records), np.int64)
    for at in np.flatnonzero(records.properties.of(b"INNER_NUM") >= 0).tolist():
        value = records.properties.value_of(b"INNER_NUM", at)
        numbers[at] = int(value) if value is not None and value.isdigit() and len(value) < 6 else 1
    return numbers


@lru_cache(maxsize=4096)
def _pairs(names: bytes, offsets: bytes) -> tuple[tuple[str, int], ...]:
    """Return (queue name, queue offset) of a multi-dispatched record.

    Where offsets and names differ in number, nothing is dispatched. A name without an offset gets no unit: 5.2.0
    and later compute offsets of `%LMQ%` names only. A name that is a path is skipped.
    """
    listed, numbers = names.decode("utf-8", "replace").split(","), offsets.decode("ascii", "replace").split(",")
    while numbers and not numbers[-1]:
        numbers.pop()  # Java's split drops trailing empty strings
    if len(listed) != len(numbers):
        return ()
    pairs = zip(listed, numbers, strict=True)
    return tuple((name, int(n)) for name, n in pairs if n.isdecimal() and len(n) < 19 and "/" not in name)


def _hashed(
    records: Records, which: Ints, starts: Ints, ends: Ints, before: int = 0, before_length: int = 0
) -> tuple[Ints, NDArray[np.int32], Ints]:
    """Return (records, hashes, lengths in UTF-16 units) of texts, each appended to a text with the hash `before`."""
    hashes, lengths = hash_texts(records.bytes, starts, ends)
    if before_length:
        hashes = joined_hashes(before, hashes, lengths)
    return which, hashes, lengths + before_length


def _tokens(records: Records, which: Ints, starts: Ints, ends: Ints) -> tuple[Ints, Ints, Ints]:
    """Return (records, starts, ends) of the words of each KEYS value; empty words are skipped."""
    values = take_ranges(records.raw, starts, ends)
    content = values.buffers()[2]
    inside = (
        np.flatnonzero(np.frombuffer(content, np.uint8) == _SPACE) if content is not None else np.empty(0, np.int64)
    )
    begins = np.frombuffer(values.buffers()[1], np.int32)[: len(starts) + 1].astype(np.int64)
    inside = inside[inside < begins[-1]]
    if not len(inside):
        return which, starts, ends
    value = np.searchsorted(begins, inside, "right") - 1
    spaces = starts[value] + inside - begins[value]
    word_starts = np.concatenate((starts, spaces + 1))
    word_ends = np.concatenate((ends, spaces))
    order_starts, order_ends = np.argsort(word_starts, kind="stable"), np.argsort(word_ends, kind="stable")
    owner = np.concatenate((np.arange(len(starts)), value))[order_starts]
    word_starts, word_ends = word_starts[order_starts], word_ends[order_ends]
    used = word_starts < word_ends
    return which[owner[used]], word_starts[used], word_ends[used]
