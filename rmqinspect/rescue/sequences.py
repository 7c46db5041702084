"""Queue offsets that the log alone proves or contradicts: those of a queue count up, record by record.

Where a queue has no units (no queue files are left), nothing points at a record; but the records around it do:

    queue offset   0   1   2   7   4   5       7 is wrong: without it all ascend; between 2 and 4 only 3 is free
    queue offset   0   1   2   p   4   5       p: by its SYSFLAG a prepared message; but these have queue offset 0,
                                               and p has 3, which no other record has: the type's bit was flipped
    queue offset   0   1   2       4   5       another queue has a 3 between 2 and 4, which does not fit there:
                                               one bit of its QUEUEID was flipped
    queue offset   0   1   2   9   4   6       9 is wrong, and what it was is not known: it is not taken over

What is wrong is what has to go so that the others ascend, and the least of it (the longest ascending row). A record of
offset 0 begins a row anew, if the records behind it are below those before it: its topic was deleted, and made again.
It does not, if another queue of the topic goes on across it (`broker.former_topics`). A record alone does not, either,
if a group has come further, or if another queue has not begun anew: one number would take all its messages.

A record that jumps ahead, and behind which all go on from there, is right: brokers skip offsets. Only a last record
whose offset lies further ahead than records fit between is wrong, too.

Source: CommitLog.DefaultAppendMessageCallback#doAppend (prepared and rolled-back messages: queue offset 0).
"""

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from operator import attrgetter
from typing import NamedTuple

import numpy as np
from msgspec import Struct, field

from rmqinspect.broker.former_topics import Life, beginnings, lives_of
from rmqinspect.commitlog.gaps import plan_splits
from rmqinspect.commitlog.queue_offsets import QueueOffsets, offsets_taken
from rmqinspect.commitlog.scan import RecordRun, scan_split
from rmqinspect.damage.patterns import one_flip
from rmqinspect.rescue.lost_queues import consumed
from rmqinspect.rescue.repair import Change
from rmqinspect.rescue.sources import Damage, Source
from rmqinspect.schemas import message
from rmqinspect.schemas.message import FIXED_SIZE, SysFlag
from rmqinspect.schemas.places import span_of
from rmqinspect.store.model import Store

Queue = tuple[str, int]  # topic, queue id

_SPLIT_SIZE = 64 << 20
_MOST_RECORDS = 1 << 20  # of topics in doubt that are compared
_MOST_BETWEEN = 1 << 12  # records of another queue that are looked at for one that strayed
_MOST_LIVES = 128  # beginnings of queues that are compared for it: topics are seldom deleted
_MOST_SKIPPED = 4096  # queue offsets that a broker itself may have skipped
_UNCOUNTED = int(SysFlag.TRANSACTION_PREPARED)  # the bit that prepared and rolled-back messages share
_PLACE = attrgetter("place")
_QUEUE_BITS = 31
_QUEUE_ID, _OFFSET, _FLAGS = (
    span_of(message.HEADS[False, False], name) for name in ("queue_id", "queue_offset", "sys_flag")
)


class _Record(NamedTuple):
    place: int  # physical offset
    end: int
    offset: int
    taken: int  # queue offsets
    flags: int
    half: int  # PREPAREDTRANSACTIONOFFSET: only commit records name one

    @property
    def counts(self) -> bool:
        return not self.flags & _UNCOUNTED


class _Life(NamedTuple):
    """The records of a queue from one beginning to the next."""

    records: list[_Record]
    row: list[_Record]  # those that ascend
    takers: Counter[int]  # how many records have an offset

    def between(self, start: int, end: int) -> Iterator[_Record]:
        """Yield the records that begin in [start, end), the first of them."""
        first = bisect_left(self.records, start, key=_PLACE)
        for at in range(first, min(first + _MOST_BETWEEN, len(self.records))):
            if self.records[at].place >= end:
                return
            yield self.records[at]

    def is_at_home(self, one: _Record) -> bool:
        """Whether a record alone has its offset, and follows the one before it, or leads to the one behind it."""
        if self.takers[one.offset] > 1:
            return False
        at = bisect_left(self.row, one.place, key=_PLACE)
        if at == len(self.row) or self.row[at] is not one:
            return False
        before, behind = self.row[at - 1 : at], self.row[at + 1 : at + 2]
        follows = any(other.offset + other.taken == one.offset for other in before)
        return follows or any(one.offset + one.taken == other.offset for other in behind)


class Sequences(Struct):
    """What the order of a source's records tells."""

    changes: dict[int, Change] = field(default_factory=dict)  # by physical offset: proven
    queue_of: dict[int, Queue] = field(default_factory=dict)  # of these records, by what they say
    outliers: dict[Queue, list[int]] = field(
        default_factory=lambda: defaultdict(list)
    )  # wrong, and what they were is not known


def read_sequences(source: Source) -> Sequences:
    """Return what the records of a source tell of each other, where queues are in doubt: they jump, or have no units.

    A sound store with its queue files is not read for it.
    """
    found = Sequences()
    if not source.jumped and source.store.queue_files:
        return found
    in_doubt = {topic for topic, _ in source.jumped}
    if not source.store.queue_files:
        in_doubt |= {queue[0] for queue, one in _records(source.store, None) if not one.counts and one.offset}
    records: dict[Queue, list[_Record]] = defaultdict(list)
    for number, (queue, one) in enumerate(_records(source.store, in_doubt) if in_doubt else ()):
        if number == _MOST_RECORDS:
            return found
        records[queue].append(one)
    reached = dict(consumed(source.store)) if records else {}
    begins = _begins(records, reached)
    lives = {
        queue: [_judge(life, queue, source.damaged, found) for life in _cut(some, begins[queue])]
        for queue, some in records.items()
    }
    _find_strays(lives, source.damaged, found)
    return found


def _records(store: Store, topics: Collection[str] | None) -> Iterator[tuple[Queue, _Record]]:
    """Yield the records of some topics, in the order of the log; of all topics only those that do not count."""
    for split in plan_splits(store.segments, _SPLIT_SIZE):
        names, known = QueueOffsets(), list[Queue]()
        for event in scan_split(split):
            if not isinstance(event, RecordRun) or event.stale:
                continue
            records = event.records
            numbers = names.number(records)
            known += ((topic.decode(errors="replace"), queue_id) for topic, queue_id in names.queues[len(known) :])
            if topics is None:
                rows = np.flatnonzero(records.sys_flag & _UNCOUNTED)
            else:
                rows = np.flatnonzero(np.isin(numbers, [at for at, queue in enumerate(known) if queue[0] in topics]))
            taken = offsets_taken(records)
            columns = (
                records.places,
                records.places + records.total_size,
                records.field("queue_offset"),
                taken if len(taken) else np.ones(len(records), np.int64),
                records.sys_flag,
                records.field("prepared_transaction_offset"),
            )
            for row, *values in zip(rows.tolist(), *(one[rows].tolist() for one in columns), strict=True):
                yield known[int(numbers[row])], _Record._make(values)


def _begins(records: Mapping[Queue, Sequence[_Record]], reached: Mapping[Queue, int]) -> Mapping[Queue, set[int]]:
    """Return the places where queues begin anew; `reached`: the highest offset of the groups of each."""
    counted = {queue: [one for one in some if one.counts] for queue, some in records.items()}
    columns = {
        queue: (np.array([one.place for one in some], np.int64), np.array([one.offset for one in some], np.int64))
        for queue, some in counted.items()
    }
    lives: dict[str, list[Life]] = defaultdict(list)
    for queue, rows in columns.items():
        lives[queue[0]] += lives_of(queue, *rows)
    return {
        queue: {
            place
            for place, is_alone in beginnings(queue, *rows, lives[queue[0]])
            if not is_alone or reached.get(queue, 0) <= 1
        }
        for queue, rows in columns.items()
    }


def _cut(records: Sequence[_Record], begins: Collection[int]) -> Iterator[list[_Record]]:
    """Yield the records of a queue, cut where it begins anew."""
    life: list[_Record] = []
    for one in records:
        if one.place in begins:
            yield life
            life = []
        life.append(one)
    yield life


def _judge(records: Sequence[_Record], queue: Queue, damaged: Sequence[Damage], found: Sequences) -> "_Life":
    """Add what is wrong among the records of a queue; return them, with those that ascend."""
    counted = [one for one in records if one.counts]
    row = _ascending(counted)
    if len(row) > 1 and _leaps(row[-2], row[-1]):
        row.pop()
    kept = {one.place for one in row}
    others = [one for one in records if one.place not in kept and (one.counts or one.offset)]
    places = [one.place for one in row]
    holes: dict[int, list[_Record]] = defaultdict(list)
    for one in others:
        holes[bisect_left(places, one.place)].append(one)
    for at, inside in holes.items():
        first = row[at - 1].offset + row[at - 1].taken if at else 0
        end = row[at].offset if at < len(row) else None
        change = _change(inside[0], first, end) if len(inside) == 1 else None
        around = places[at - 1] if at else 0, places[at] if at < len(row) else inside[-1].end
        if change is not None and (change.bit is not None or _is_whole(damaged, *around)):
            found.changes[inside[0].place], found.queue_of[inside[0].place] = change, queue
        else:
            # What names itself prepared has no queue offset: it is wrong, too, if it names one that is free here.
            free = range(first, end) if end is not None else range(first, first + 1)
            found.outliers[queue] += (one.place for one in inside if one.counts or one.offset in free)
    return _Life(counted, row, Counter(one.offset for one in counted))


def _change(one: _Record, first: int, end: int | None) -> Change | None:
    """Return the change of a record between whose neighbours the offsets [first, end) are free; None: not proven."""
    if not one.counts:
        return _type_change(one, first, end)
    if end is None or end - first != one.taken:
        return None
    size = _OFFSET.stop - _OFFSET.start
    before, after = one.offset.to_bytes(size, "big", signed=True), first.to_bytes(size, "big")
    proof = f"between its neighbours in the queue only the queue offset {first} is free"
    return Change("QUEUEOFFSET", _OFFSET.start, before, after, proof)


def _type_change(one: _Record, first: int, end: int | None) -> Change | None:
    """Return the change of SYSFLAG of a prepared or rolled-back message with an offset that the queue lacks."""
    kept = one.flags & ~_UNCOUNTED
    is_commit = bool(kept & message.TRANSACTION_MASK)
    in_hole = first <= one.offset and (end is None or one.offset + one.taken <= end)
    if is_commit is not bool(one.half) or not in_hole or (one.offset != first and one.offset + one.taken != end):
        return None
    size = _FLAGS.stop - _FLAGS.start
    before, after = (value.to_bytes(size, "big", signed=True) for value in (one.flags, kept))
    if one_flip(before, after) is None:
        return None
    proof = f"it has the queue offset {one.offset}, which its queue lacks; a message of such a type has 0"
    return Change("SYSFLAG", _FLAGS.start, before, after, proof)


def _find_strays(lives: Mapping[Queue, Sequence[_Life]], damaged: Sequence[Damage], found: Sequences) -> None:
    """Add records that strayed in from another queue of their topic by one bit of QUEUEID: it lacks just them."""
    for (topic, queue_id), some in lives.items():
        others = [((topic, queue_id ^ 1 << bit), queue_id ^ 1 << bit) for bit in range(_QUEUE_BITS)]
        there = [(queue, life) for queue, _ in others for life in lives.get(queue, ())]
        for life in some if 0 < len(there) <= _MOST_LIVES and len(some) <= _MOST_LIVES else ():
            for before, behind in zip([None, *life.row], life.row, strict=False):
                first = before.offset + before.taken if before else 0
                start = before.end if before else 0
                if first >= behind.offset or not _is_whole(damaged, start, behind.place):
                    continue
                strays = [
                    (queue, one)
                    for queue, other in there
                    for one in other.between(start, behind.place)
                    if (one.offset, one.taken) == (first, behind.offset - first)
                    if not other.is_at_home(one) and one.place not in found.changes
                ]
                if len(strays) == 1:
                    (queue, one), size = strays[0], _QUEUE_ID.stop - _QUEUE_ID.start
                    before_it, after = queue[1].to_bytes(size, "big"), queue_id.to_bytes(size, "big")
                    proof = f"queue {queue_id} lacks its queue offset {first} just here, and queue {queue[1]} does not"
                    found.changes[one.place] = Change("QUEUEID", _QUEUE_ID.start, before_it, after, proof)
                    found.queue_of[one.place] = queue
                    if one.place in found.outliers.get(queue, ()):
                        found.outliers[queue].remove(one.place)


def _is_whole(damaged: Sequence[Damage], start: int, end: int) -> bool:
    """Whether nothing of [start, end) is damaged, so that no record can be lost there."""
    at = bisect_right(damaged, start, key=attrgetter("end"))
    return not any(one.start < end for one in damaged[at : at + 1])


def _leaps(before: _Record, last: _Record) -> bool:
    """Whether between two records more offsets are missing than records fit there."""
    room: int = (last.place - before.end) // FIXED_SIZE
    return last.offset - before.offset - before.taken > _MOST_SKIPPED + room


def _ascending(records: Sequence[_Record]) -> list[_Record]:
    """Return the longest row of records whose queue offsets ascend; of several the lowest and first ones."""
    if all(one.offset < other.offset for one, other in pairwise(records)):
        return list(records)
    tails: list[int] = []  # the lowest last offset of a row of each length
    last: list[int] = []  # its record
    before: list[int] = []  # of each record the one before it in its row
    for number, one in enumerate(records):
        at = bisect_left(tails, one.offset)
        before.append(last[at - 1] if at else -1)
        if at < len(tails) and tails[at] == one.offset:
            continue  # of two with one offset the first counts, as for a broker
        tails[at : at + 1], last[at : at + 1] = [one.offset], [number]
    row, at = [], last[-1]
    while at >= 0:
        row.append(records[at])
        at = before[at]
    return row[::-1]
