"""One walk over the records and the queue units of a split: which record each unit points at, and what is wrong.

    record of the log      the next unit of its queue
    100  orders/0          100     right
    220  orders/1          220     right
    340  orders/0          341     not the record's: its own is searched for, and the two are judged
    520  orders/0          520     right

A unit that points too far ahead holds up those behind it: their records are searched for as well. Every unit is judged
by the same rules, in `_judge`; what breaks one is written down with the bits of its verdict, which
`verify.queue_join` words.

Source: ConsumeQueue#putMessagePositionInfo, BatchConsumeQueue; RocketMQ 4.0.0 to 5.5.0.

The queue units that point into one split: their bytes, and columns of those that break a rule.
"""

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from rmqinspect.broker.dispatch import Dispatched
from rmqinspect.codec.kernels import (
    Bytes,
    BytesOut,
    Int32s,
    Ints,
    IntsOut,
    TableOut,
    inlined,
    int16_at,
    int32_at,
    int64_at,
    kernel,
)
from rmqinspect.codec.layout import dtype_of
from rmqinspect.consumequeue.units import LAYOUTS, MESSAGES, OFFSET, PLACE, SIZE, STORED, TAGS, UNIT_SIZE, is_filler
from rmqinspect.schemas.consumequeue import EXT_ADDRESS_MAX
from rmqinspect.store.reader import open_file
from rmqinspect.verify.findings import Finding
from rmqinspect.verify.plan import CrossPlan, QueueName, split_of, start_at
from rmqinspect.verify.pointers import DANGLING, Pointers, read_runs

# Bits of a verdict. The first three hide all others: a unit of the wrong record says nothing about tags or offsets.
WRONG_QUEUE, WRONG_SIZE, NOT_ENTITLED, SHIFTED, WRONG_TAGS, WRONG_DELAY, WRONG_COUNT, WRONG_TIME = (
    DANGLING << bit for bit in range(1, 9)
)
IN_EXT = WRONG_TIME << 1  # not judged: the tags code is the address of an ext unit, which has the true one
OF_FURTHER = IN_EXT << 1  # with IN_EXT: the unit is one of multi-dispatch, which has no time of delivery
WRONG_RECORD = WRONG_QUEUE | WRONG_SIZE | NOT_ENTITLED

# Bits of a record: which units it has.
OWN_UNIT, FURTHER_UNIT, WRONG_UNIT = 1, 2, 4

# Columns of the runs of units: next row and row behind the last, what to add to a row for its queue offset, the queue,
# whether the next run is of the same queue, whether units hold times of delivery, and how many have no wrong record.
NEXT, BEHIND, SHIFT, QUEUE, GOES_ON, SCHEDULED, JOINED, RUN_COLUMNS = range(8)

# Columns of the units that break a rule; EXPECTED is the queue offset that the record gives.
ROW, RECORD, VERDICT, EXPECTED, UNIT_COLUMNS = range(5)

_SECOND = 1000  # ms
_LAST_TIME = 2**63 - 1
_STRANGE, _OWN, _FURTHER = range(3)  # what a queue is to a record


@kernel
def step_units(
    raw: Bytes,
    unit_size: int,
    low: int,
    most: int,
    by_recovery: int,
    own_queue: Ints,
    queue: Int32s,
    physical_offset: Ints,
    size: Int32s,
    queue_offset: Ints,
    tags_code: Int32s,
    store_timestamp: Ints,
    messages: Int32s,
    entitled: Bytes,
    delayed: Bytes,
    queues: int,
    further: Ints,
    further_offset: Ints,
    has_further: BytesOut,
    run_of: IntsOut,
    runs: TableOut,
    has_unit: BytesOut,
    wrong: TableOut,
) -> int:
    """Judge the units of messages that point at [low, most]; return how many break a rule.

    `queue` to `delayed` are columns of the records, `own_queue` numbers their queues as `runs` do, and `run_of` has the
    run that each is at, -1: none. `further`, ascending, are record * `queues` + queue of the units by multi-dispatch.
    `by_recovery`: delayed messages may have the hash of their tags. `has_unit` and `has_further` are marked.
    """
    count = record = rest = 0
    while record < len(has_unit) or rest < len(runs):
        # The next unit of the record's queue; behind the last record, the next of those that are left.
        in_step = record < len(has_unit)
        own, run = -1, rest
        if in_step:
            own, run = queue[record], -1
            if 0 <= own < len(run_of):
                run = run_of[own]
            if run < 0 or run >= len(runs):
                record += 1
                continue
        row = runs[run, NEXT]
        at = row * unit_size
        if row < 0 or row >= runs[run, BEHIND] or at + unit_size > len(raw):
            if in_step:
                run_of[own] = run + 1 if runs[run, GOES_ON] else -1
            else:
                rest += 1
            continue
        if not is_judged(raw, at, unit_size, low, most):
            runs[run, NEXT] = row + 1
            continue
        place = int64_at(raw, at + PLACE)
        if in_step and place > physical_offset[record]:
            record += 1
            continue
        runs[run, NEXT] = row + 1
        at_hand = in_step and place == physical_offset[record]
        hit = record if at_hand else start_at(physical_offset, place)
        expected, verdict = 0, DANGLING
        if 0 <= hit < len(has_unit):
            relation, expected, of_record = _OWN, queue_offset[hit], -1
            of_hit = queue[hit]
            if not at_hand and not (0 <= of_hit < len(own_queue) and own_queue[of_hit] == runs[run, QUEUE]):
                key = hit * queues + runs[run, QUEUE]
                of_record, relation = split_of(further, key - 1) + 1, _STRANGE
                if of_record < len(further) and further[of_record] == key:
                    relation, expected = _FURTHER, further_offset[of_record]
            verdict = _judge(
                raw,
                at,
                unit_size,
                row + runs[run, SHIFT],
                relation,
                expected,
                runs[run, SCHEDULED],
                by_recovery,
                size[hit],
                tags_code[hit],
                store_timestamp[hit],
                messages[hit],
                entitled[hit],
                delayed[hit],
            )
            if verdict & WRONG_RECORD:
                has_unit[hit] = has_unit[hit] | WRONG_UNIT
            else:
                runs[run, JOINED] += 1
                if relation == _OWN:
                    has_unit[hit] = has_unit[hit] | OWN_UNIT
                else:
                    has_unit[hit] = has_unit[hit] | FURTHER_UNIT
                    has_further[of_record] = 1
        if verdict == 0 and at_hand:
            record += 1
        if verdict != 0 and count < len(wrong):
            wrong[count, ROW], wrong[count, RECORD], wrong[count, VERDICT] = row, hit, verdict
            wrong[count, EXPECTED] = expected
            count += 1
    return count


@inlined
def is_judged(raw: Bytes, at: int, unit_size: int, low: int, most: int) -> bool:
    """Return whether a unit is of a message and points at [low, most]."""
    place, size = int64_at(raw, at + PLACE), int32_at(raw, at + SIZE)
    if place < low or place > most or size <= 0:
        return False
    if unit_size > UNIT_SIZE and (int64_at(raw, at + OFFSET) < 0 or int16_at(raw, at + MESSAGES) <= 0):
        return False
    return not is_filler(place, size, int64_at(raw, at + TAGS))


@inlined
def _judge(
    raw: Bytes,
    at: int,
    unit_size: int,
    offset: int,
    relation: int,
    expected: int,
    scheduled: int,
    by_recovery: int,
    size: int,
    tags_code: int,
    stored: int,
    messages: int,
    entitled: int,
    delayed: int,
) -> int:
    """Return the verdict on a unit with a queue offset, by the record that it points at.

    `relation` is that of the unit's queue to the record, `expected` the queue offset that the record has in it.
    """
    if relation == _STRANGE:
        return WRONG_QUEUE
    if int32_at(raw, at + SIZE) != size:
        return WRONG_SIZE
    if relation == _OWN and entitled == 0:
        return NOT_ENTITLED
    tags = int64_at(raw, at + TAGS)
    if tags <= EXT_ADDRESS_MAX:
        verdict = IN_EXT if relation == _OWN else IN_EXT | OF_FURTHER
    else:
        has_delay = scheduled != 0 and delayed != 0 and relation == _OWN
        verdict = judge_tags(tags, tags_code, stored, has_delay, by_recovery)
    if unit_size > UNIT_SIZE:
        offset = int64_at(raw, at + OFFSET)
        time = int64_at(raw, at + STORED)
        if time != 0 and int16_at(raw, at + MESSAGES) != messages:
            verdict |= WRONG_COUNT
        if time != 0 and time != stored:
            verdict |= WRONG_TIME
    if offset != expected:
        verdict |= SHIFTED
    return verdict


@inlined
def judge_tags(tags: int, tags_code: int, stored: int, has_delay: int, by_recovery: int) -> int:
    """Return the verdict on a tags code; with a delay it is the time of delivery.

    A recovery may have given delayed messages the hash of their tags. The table of delays is a setting, which is not in
    the store; but a delay is whole seconds, and no single flipped bit of the time keeps it so.
    """
    if tags == tags_code and (by_recovery != 0 or not has_delay):
        return 0
    if not has_delay:
        return WRONG_TAGS
    if tags <= stored or (stored < 0 and tags > _LAST_TIME + stored):
        return WRONG_DELAY
    return 0 if (tags - stored) % _SECOND == 0 else WRONG_DELAY


@kernel
def judge_all_tags(
    tags: Ints,
    record: Ints,
    has_delay: Bytes,
    by_recovery: int,
    tags_code: Int32s,
    store_timestamp: Ints,
    verdict: IntsOut,
) -> None:
    """Add the verdicts on tags codes that were read from ext units, of the records with these numbers."""
    for at in range(min(len(tags), len(record), len(has_delay), len(verdict))):
        if 0 <= record[at] < len(tags_code):
            code, stored = tags_code[record[at]], store_timestamp[record[at]]
            verdict[at] = verdict[at] | judge_tags(tags[at], code, stored, has_delay[at] != 0, by_recovery)


VALUES = ("physical_offset", "size", "tags", "offset", "messages", "timestamp", "expected")
"""What is known of a unit: `offset` is its queue offset, `expected` the one that its record gives it; `timestamp` is 0
for a plain unit, which has none."""


class UnitBytes:
    """Rows of one kind of file, one behind another: in a split, thousands of queues may have a few units each."""

    def __init__(self, plan: CrossPlan, kind: str, rows: int) -> None:
        """Make room for so many rows."""
        self.plan, self.layout = plan, dtype_of(LAYOUTS[kind])
        self.runs: list[tuple[int, int, int]] = []  # number of the file, first row, rows
        self._room, self._used = np.empty(rows * self.layout.itemsize, np.uint8).data, 0

    def read(self, number: int, first: int, count: int) -> None:
        """Append rows of a file.

        :raises Unreadable: the system reports an I/O error.
        """
        size = self.layout.itemsize
        with open_file(self.plan.queue_files[number]) as reader:
            rows = reader.read_into(self._room[self._used : self._used + count * size], first * size) // size
        self.runs.append((number, first, rows))
        self._used += rows * size

    @property
    def raw(self) -> Bytes:
        """The rows that were read."""
        return np.frombuffer(self._room[: self._used], np.uint8)

    def pointers(self, wrong: Ints) -> Pointers:
        """Return the units in a table that `step_units` filled."""
        which = wrong[:, ROW]
        units = self.raw.view(self.layout)[which]
        number, first, rows = np.array(self.runs, np.int64).T
        behind = np.cumsum(rows)
        run = np.searchsorted(behind, which, "right")
        file, row = number[run], first[run] + which - (behind - rows)[run]
        names = self.layout.names or ()

        def column(name: str, default: Ints) -> Ints:
            return units[name].astype(np.int64) if name in names else default

        values = (
            units["physical_offset"].astype(np.int64),
            units["size"].astype(np.int64),
            units["tags_code"].astype(np.int64),
            column("queue_offset", self.plan.queues.first_offset[file] + row),
            column("message_count", np.ones_like(row)),
            column("store_timestamp", np.zeros_like(row)),
            wrong[:, EXPECTED],
        )
        values_by_name = dict(zip(VALUES, values, strict=True))
        return Pointers(file, row, wrong[:, RECORD], wrong[:, VERDICT], values_by_name)


def read_unit_bytes(plan: CrossPlan, number: int, problems: list[Finding], unread: set[QueueName]) -> list[UnitBytes]:
    """Return the units that the survey found to point into split `number`, and others between them.

    Queues with an I/O error are added to `unread`, ST-IO to `problems`.
    """
    runs, files = plan.runs_of("unit", number), plan.queue_files
    rows = dict.fromkeys(LAYOUTS, 0)
    for file, _, count in runs:
        rows[files[file].kind] += count
    parts = {kind: UnitBytes(plan, kind, of_kind) for kind, of_kind in rows.items()}

    def read(file: int, first: int, count: int) -> bool:
        parts[files[file].kind].read(file, first, count)
        return True

    for file, done in read_runs(runs, read, problems):
        if not done:
            unread.add((files[file].topic, files[file].queue_id))
    return [part for part in parts.values() if part.runs]


class JoinedUnits(Struct):
    """The units of a split, and what its records have of them."""

    plan: CrossPlan
    records: Dispatched
    own_names: list[QueueName]  # of the records' queues, as the records number them
    own_numbers: Ints  # their numbers in `plan.queues`; -1: no file
    wrong: Pointers  # units that break a rule
    has_unit: NDArray[np.uint8]  # by record: `step.OWN_UNIT` and others
    further: set[tuple[int, int]]  # (record, number of the queue) of the units by multi-dispatch that are there
    joined: Ints  # by number of the file: how many units point at a record of theirs
