"""The records of transactions, collected in one pass over the log: numbers only, 16 to 35 bytes for each.

A half copy has `half` columns, a commit record `commit` columns and so on. Names repeat, so of each half copy only the
number of its origin is kept: producer group, real topic, real queue. Ids are read again for the rows that are shown.
"""

from collections.abc import Sequence
from mmap import mmap
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rmqinspect.broker.transactions import IN_HALF_TOPIC, IN_REAL_TOPIC, IN_ROCKSDB, Decisions, Halves
from rmqinspect.codec.arrays import Bools, Ints
from rmqinspect.codec.byte_ranges import NOT_A_NUMBER, hash_ranges, join_hashes, read_numbers
from rmqinspect.codec.properties import Items
from rmqinspect.commitlog.records import Records
from rmqinspect.commitlog.scan import RecordRun
from rmqinspect.schemas.message import TRANSACTION_MASK, TRANSACTION_SHIFT, TRANSACTIONS
from rmqinspect.text import text_of
from rmqinspect.topics import GIVEN_UP_TOPIC, HALF_TOPIC, OP_TOPIC, ROCKSDB_HALF_TOPIC, ROCKSDB_OP_TOPIC

_TOPICS = tuple(name.encode() for name in (HALF_TOPIC, OP_TOPIC, ROCKSDB_HALF_TOPIC, ROCKSDB_OP_TOPIC, GIVEN_UP_TOPIC))
_HALF, _OP, _ROCKSDB_HALF, _ROCKSDB_OP, _CHECK_MAX = range(len(_TOPICS))
_OTHER = -1  # any other topic

_LONGEST = max(map(len, _TOPICS))
_SIZES = np.zeros(_LONGEST + 2, np.bool_)  # by the size of a topic's name: whether one of _TOPICS has it
_SIZES[[len(name) for name in _TOPICS]] = True

_NONE, _PREPARED, _COMMIT, _ROLLBACK = range(len(TRANSACTIONS))
_MOST_CHECKS = np.iinfo(np.int16).max

_DTYPES: dict[str, dict[str, type]] = {
    "half": {
        "physical_offset": np.int64,
        "size": np.int32,
        "queue_offset": np.int64,
        "key": np.uint64,
        "origin": np.int32,
        "check_times": np.int16,
        "kept_in": np.int8,
    },
    "commit": {"of": np.int64, "offset": np.int64, "size": np.int32, "key": np.uint64},
    "op": {"of": np.int64, "offset": np.int64},
    "end": {"of": np.int64, "offset": np.int64},
    "discard": {"key": np.uint64, "offset": np.int64},
}

Origin = tuple[str | None, str | None, int | None]
"""Producer group, real topic, real queue id."""


class _Column:
    """Numbers that become more, in memory of their own: what they leave goes back to the system, without holes."""

    def __init__(self, dtype: type) -> None:
        self._room: NDArray[Any] = np.zeros(0, dtype)
        self._count = 0

    @property
    def values(self) -> NDArray[Any]:
        return self._room[: self._count]

    def add(self, values: NDArray[Any] | int, count: int) -> None:
        end = self._count + count
        if end > len(self._room):
            # Twice as much as is needed: what is not written yet takes no memory.
            room: NDArray[Any] = np.frombuffer(mmap(-1, 2 * end * self._room.itemsize), self._room.dtype)
            room[: self._count] = self.values
            self._room = room
        self._room[self._count : end] = values
        self._count = end


class TransactionRecords:
    """A fold of the log (`tables.read_log.LogFold`)."""

    def __init__(self) -> None:
        self._columns = {
            kind: {name: _Column(dtype) for name, dtype in dtypes.items()} for kind, dtypes in _DTYPES.items()
        }
        self.origins: list[Origin] = []
        self._origin_numbers: dict[int, int] = {}  # by hash
        self.damaged_ops = 0  # op records whose body is not what was written, or no list of offsets
        self.last_store_timestamp: int | None = None  # ms, the highest

    def take(self, run: RecordRun) -> None:
        """Collect what a run of records says; nothing of an earlier life of the file."""
        if run.stale:
            return
        records = run.records
        self._note_time(int(records.field("store_timestamp").max()))
        flags = records.sys_flag & TRANSACTION_MASK
        sizes = np.minimum(records.topic_ends - records.topic_starts, _LONGEST + 1)
        which = np.flatnonzero((flags != 0) | _SIZES[sizes])
        if not len(which):
            return
        some = records.select(which)
        topics, flags = _topics_of(some), flags[which] >> TRANSACTION_SHIFT
        for topic, kept_in in ((_HALF, IN_HALF_TOPIC), (_ROCKSDB_HALF, IN_ROCKSDB)):
            self._take_halves(some, topics == topic, kept_in)
        other = topics == _OTHER
        self._take_halves(some, other & (flags == _PREPARED), IN_REAL_TOPIC)
        self._take_commits(some, other & (flags == _COMMIT))
        self._take_ops(some, topics == _OP)
        self._take_ends(some, topics == _ROCKSDB_OP, other & (flags == _ROLLBACK))
        self._take_discards(some, topics == _CHECK_MAX)

    def join(self, following: "TransactionRecords") -> None:
        """Add what the part that follows holds."""
        numbers = np.array(
            [self._number_of(hashed, following.origins[at]) for hashed, at in following._origin_numbers.items()],
            np.int32,
        )
        origins = following._columns["half"]["origin"].values
        origins[:] = numbers[origins]
        for kind, columns in following._columns.items():
            self._add(kind, *(column.values for column in columns.values()))
        self.damaged_ops += following.damaged_ops
        if following.last_store_timestamp is not None:
            self._note_time(following.last_store_timestamp)

    def halves(self) -> tuple[Halves, dict[str, NDArray[Any]]]:
        """Return the half copies, and of each `size`, the number of its `origin`, and its `check_times`. Once only."""
        taken = self._taken("half")
        halves = Halves(*(taken.pop(name) for name in ("physical_offset", "queue_offset", "key", "kept_in")))
        return halves, taken

    def decisions(self) -> tuple[Decisions, NDArray[np.int32]]:
        """Return what the other records say, and the sizes of the commit records. Once only."""
        columns: dict[str, NDArray[Any]] = {}
        for kind in ("commit", "op", "end", "discard"):
            columns |= {f"{kind}_{name}": values for name, values in self._taken(kind).items()}
        sizes = columns.pop("commit_size")
        return Decisions(**columns), sizes

    # --- collecting -----------------------------------------------------------------------------

    def _add(self, kind: str, *columns: NDArray[Any] | int) -> None:
        count = max(len(column) for column in columns if isinstance(column, np.ndarray))
        for own, values in zip(self._columns[kind].values(), columns, strict=True):
            own.add(values, count)

    def _taken(self, kind: str) -> dict[str, NDArray[Any]]:
        return {name: column.values for name, column in self._columns.pop(kind).items()}

    def _take_halves(self, records: Records, which: Bools, kept_in: int) -> None:
        if not which.any():
            return
        some = records.select(which)
        items = some.properties
        # A prepared record of 4.2.0 and before is never stored again.
        keys = _keys(items) if kept_in != IN_REAL_TOPIC else np.zeros(len(some), np.uint64)
        checks = _first_numbers(items, items.find(b"TRANSACTION_CHECK_TIMES"))
        checks = np.clip(checks, 0, _MOST_CHECKS)
        origins = self._origins_of(some, in_real_topic=kept_in == IN_REAL_TOPIC)
        places, sizes = _places(some), some.total_size
        self._add("half", places, sizes, some.field("queue_offset"), keys, origins, checks, kept_in)

    def _take_commits(self, records: Records, which: Bools) -> None:
        if which.any():
            some = records.select(which)
            of = some.field("prepared_transaction_offset")
            self._add("commit", of, _places(some), some.total_size, _keys(some.properties))

    def _take_ops(self, records: Records, which: Bools) -> None:
        """Take op records: queue offsets as text. Source: TransactionalMessageServiceImpl#fillOpRemoveMap."""
        if not which.any():
            return
        some = records.select(which)
        sound = some.select(some.body_crc_ok)
        rows, numbers = read_numbers(sound.bytes, sound.body_starts, sound.body_ends)
        good = numbers != NOT_A_NUMBER
        damaged = np.setdiff1d(np.arange(len(sound)), rows[good])
        self.damaged_ops += len(some) - len(sound) + len(np.union1d(damaged, rows[~good]))
        self._add("op", numbers[good], _places(sound)[rows[good]])

    def _take_ends(self, records: Records, ops: Bools, rollbacks: Bools) -> None:
        """Take what names a half message by its physical offset."""
        if ops.any():
            some = records.select(ops)
            of = _first_numbers(some.properties, some.properties.find(b"TRANS_OFFSET"))
            good = of != NOT_A_NUMBER
            self.damaged_ops += int(np.count_nonzero(~good))
            self._add("end", of[good], _places(some)[good])
        if rollbacks.any():
            some = records.select(rollbacks)
            self._add("end", some.field("prepared_transaction_offset"), _places(some))

    def _take_discards(self, records: Records, which: Bools) -> None:
        if which.any():
            some = records.select(which)
            self._add("discard", _keys(some.properties), _places(some))

    # --- origins --------------------------------------------------------------------------------

    def _origins_of(self, records: Records, *, in_real_topic: bool) -> NDArray[np.int32]:
        """Return the number of each record's producer group, real topic and queue."""
        items = records.properties
        group, topic, queue = (items.find(name) for name in (b"PGROUP", b"REAL_TOPIC", b"REAL_QID"))
        hashes = [_hash_values(items, which) for which in (group, topic, queue)]
        if in_real_topic:
            hashes[1:] = [
                hash_ranges(records.bytes, records.topic_starts, records.topic_ends),
                records.field("queue_id").astype(np.uint64),
            ]
        distinct, samples, of = np.unique(join_hashes(*hashes), return_index=True, return_inverse=True)
        numbers = np.empty(len(distinct), np.int32)
        for row, (hashed, sample) in enumerate(zip(distinct.tolist(), samples.tolist(), strict=True)):
            names = _text_at(items, group, sample), _text_at(items, topic, sample)
            queue_id = _queue_id(_text_at(items, queue, sample))
            if in_real_topic:
                start, end = int(records.topic_starts[sample]), int(records.topic_ends[sample])
                names = names[0], text_of(records.bytes[start:end].tobytes())
                queue_id = int(records.field("queue_id")[sample])
            numbers[row] = self._number_of(hashed, (*names, queue_id))
        return numbers[of]

    def _number_of(self, hashed: int, origin: Origin) -> int:
        number = self._origin_numbers.setdefault(hashed, len(self.origins))
        if number == len(self.origins):
            self.origins.append(origin)
        return number

    def _note_time(self, timestamp: int) -> None:
        if self.last_store_timestamp is None or timestamp > self.last_store_timestamp:
            self.last_store_timestamp = timestamp


def _topics_of(records: Records) -> NDArray[np.int8]:
    """Return which of _TOPICS each record has, _OTHER for any other."""
    found = np.full(len(records), _OTHER, np.int8)
    sizes = records.topic_ends - records.topic_starts
    for number, name in enumerate(_TOPICS):
        same = np.flatnonzero(sizes == len(name))
        if len(same):
            names = records.gather(np.dtype(f"S{len(name)}"), records.topic_starts[same])
            found[same[names == name]] = number
    return found


def _places(records: Records) -> Ints:
    return records.base + records.starts


def _keys(items: Items) -> NDArray[np.uint64]:
    """Return the hash of each record's UNIQ_KEY, else of its transaction id, which is the same; 0 without either."""
    which = items.of(b"UNIQ_KEY")
    if (which < 0).any():
        which = np.where(which < 0, items.find(b"__transactionId__"), which)
    return _hash_values(items, which)


def _hash_values(items: Items, which: NDArray[np.int32]) -> NDArray[np.uint64]:
    if not len(items.value_ends):
        return np.zeros(len(which), np.uint64)
    absent = which < 0
    at = np.where(absent, 0, which)
    return hash_ranges(
        items.raw, items.value_starts[at], np.where(absent, items.value_starts[at], items.value_ends[at])
    )


def _first_numbers(items: Items, which: NDArray[np.int32]) -> Ints:
    """Return the number that is the value of each item, NOT_A_NUMBER where there is none."""
    found = np.full(len(which), NOT_A_NUMBER, np.int64)
    there = np.flatnonzero(which >= 0)
    rows, numbers = read_numbers(items.raw, items.value_starts[which[there]], items.value_ends[which[there]])
    found[there[rows[::-1]]] = numbers[::-1]
    return found


def _text_at(items: Items, which: Sequence[int] | NDArray[np.int32], record: int) -> str | None:
    item = int(which[record])
    if item < 0:
        return None
    return text_of(items.raw[items.value_starts[item] : items.value_ends[item]].tobytes())


def _queue_id(text: str | None) -> int | None:
    """Return a queue id written as text, None if it is none."""
    if text is None or not text.isascii() or not text.isdecimal() or len(text) > 10:
        return None
    number = int(text)
    return number if number < 1 << 31 else None
