"""What a start does to every consume queue: recover, dispatch, cut, minimum.

    QueueTable.read            the files, once for all walks
        recover(rules) -> Queues   what `recover` leaves; a walk's own state
            dispatch(batch)        records of the scan, in log order
            truncate(end)          all queues are cut at the end of the log
            correct_minimum(...)   the minimum follows the log
            outcomes()             every queue before and after

Units that a walk writes are not kept one by one: the state of a queue says where they begin and end. The newest ones
are kept as columns (`Written`), and all whose record lies elsewhere than its PHYSICALOFFSET says: only those can be
cut at the end of the scan, before which all others lie.

Source: ConsumeQueue, DefaultMessageStore#recover, ConsumeQueueStore (5.0.0+); RocketMQ 4.0.0 to 5.5.0.
"""

from collections.abc import Collection
from typing import Protocol

import numpy as np

from rmqinspect.broker.dispatch import has_queue_unit
from rmqinspect.broker.eras import Rules
from rmqinspect.codec.arrays import Bools, Ints
from rmqinspect.commitlog.records import Records
from rmqinspect.forecast.outcome import QueueOutcome
from rmqinspect.forecast.queue_ends import Before, Queue, QueueEnds, max_physic_of
from rmqinspect.forecast.queue_units import (
    APPENDED,
    BASE,
    BLANK_END,
    COLUMNS,
    FILE_SIZE,
    FILLER,
    FIRST,
    FIRST_WRITTEN,
    IS_FRESH,
    KEPT,
    LAST,
    MADE,
    MAX_PHYSIC,
    MIN_LOGIC,
    POSITION,
    TOP,
    UNIT,
    WRITTEN,
    put,
)
from rmqinspect.forecast.written import Written
from rmqinspect.schemas.message import TRANSACTION_SHIFT, TRANSACTIONS
from rmqinspect.store.model import QueueFile
from rmqinspect.topics import SCHEDULE_TOPIC

_FAR = 2**62  # a queue offset in bytes beyond it is hostile: kept inside 64 bits
_NEW = Before(0, 0, 0)


class Batch(Protocol):
    """Valid records of the scan in log order, and the queue of each."""

    records: Records
    numbers: Ints  # index in `queues` of each record
    queues: list[Queue]  # grows


class Queues:
    """The state of all queues in one walk."""

    def __init__(self, table: QueueEnds, rules: Rules, absent: Collection[str] = ()) -> None:
        """Take the queues as they are after ConsumeQueue#recover.

        `absent`: names of the files, relative to the store, that this release did not load or has deleted.
        """
        recovered = table.recovered(frozenset(absent))
        self._table = table
        self._rules = rules
        self._files = recovered.files
        self._recovered = recovered
        self._state = recovered.state.copy()
        self._queues = list(table.queues)
        self._rows = {queue: row for row, queue in enumerate(self._queues)}
        self._state[:, MAX_PHYSIC] = max_physic_of(rules, self._state[:, LAST], recovered.last_sizes)
        self._cut = np.zeros(len(self._queues), np.bool_)  # not as `recover` left it, apart from what was written
        self._written = Written()
        self._numbers: Ints = np.empty(0, np.int64)  # row of each queue of the scan
        self._deleted: list[QueueFile] = list(recovered.deleted)

    # --- what the walk asks ---------------------------------------------------------------------

    @property
    def max_physic_offset(self) -> int:
        """The largest maxPhysicOffset of all queues; -1: none."""
        return int(self._state[:, MAX_PHYSIC].max(initial=-1))

    @property
    def deleted_files(self) -> list[str]:
        """Names of the queue files that are gone, relative to the store; not those that the start makes again."""
        made = {
            (*self._queues[row], base)
            for row in np.flatnonzero(self._state[:, MADE]).tolist()
            for base in self._made(row)
        }
        return sorted(file.name for file in self._deleted if (file.topic, file.queue_id, file.base) not in made)

    # --- what the start does --------------------------------------------------------------------

    def dispatch(self, batch: Batch, from_offset: int | None = None) -> None:
        """Put the units of records; with `from_offset`, of those whose PHYSICALOFFSET is larger."""
        records = batch.records
        entitled = has_unit(records.sys_flag)
        if from_offset is not None:
            entitled &= records.physical_offset > from_offset
        chosen = np.flatnonzero(entitled)
        if not len(chosen):
            return
        for queue in batch.queues[len(self._numbers) :]:
            self._numbers = np.append(self._numbers, self._row(queue, make=False))
        numbers = batch.numbers[chosen]
        # A queue is made by the first record that is put into it.
        for number in np.unique(numbers[self._numbers[numbers] < 0]).tolist():
            self._numbers[number] = self._row(batch.queues[number])
        places = records.base + records.starts[chosen]
        self._put(
            self._numbers[numbers],
            records.physical_offset[chosen],
            records.total_size[chosen],
            records.field("queue_offset")[chosen],
            places,
        )

    def put_nameless(self, size: int) -> None:
        """Put the unit that 4.3.1 and earlier make of a record whose lengths do not add up.

        Source: CommitLog#recoverAbnormally, which dispatches a request without topic.
        """
        row = np.array([self._row(("", 0))])
        zero = np.zeros(1, np.int64)
        self._put(row, zero, np.array([size], np.int64), zero, zero)

    def truncate(self, end: int) -> None:
        """Cut all queues at the end of the log. Source: ConsumeQueue#truncateDirtyLogicFiles."""
        state = self._state
        has_files = state[:, KEPT] + state[:, MADE] > 0
        none_left = end if self._rules.queue_end == "end" else end - 1
        recovered = self._recovered
        # As `recover` left it, the last file holds accepted units up to its end, or up to one that is not accepted.
        same = np.zeros(len(state), np.bool_)
        known = len(recovered.accepted)
        same[:known] = (recovered.accepted > 0) & (recovered.tops < end) & (state[:known, APPENDED] < 0)
        same &= ~self._cut
        for row in np.flatnonzero(has_files & ~same).tolist():
            self._truncate(row, end, none_left)
        state[state[:, KEPT] + state[:, MADE] == 0, MAX_PHYSIC] = none_left

    def destroy(self) -> None:
        """Delete all queues: the log has no segment. Source: ConsumeQueue#destroy."""
        for row in range(len(self._files)):
            kept = int(self._state[row, KEPT])
            self._deleted += self._files[row][:kept]
        for column in (KEPT, MADE, MIN_LOGIC, POSITION, BASE, FIRST, WRITTEN, IS_FRESH):
            self._state[:, column] = 0
        for column in (MAX_PHYSIC, LAST, APPENDED, TOP):
            self._state[:, column] = -1
        self._written = Written()
        self._cut[:] = True

    def correct_minimum(self, log_min: int) -> None:
        """Let the minimum of each queue follow that of the log; then make the queues of all delay levels.

        Source: ConsumeQueue#correctMinOffset, ScheduleMessageService#correctDelayOffset.
        """
        correct = self._search_minimum if self._rules.minimum == "search" else self._scan_minimum
        for row in range(len(self._state)):
            correct(row, log_min)
        if self._rules.schedule_queues:
            for level in range(len(self._table.settings.message_delay_level.split())):
                self._row((SCHEDULE_TOPIC, level))

    def outcomes(self) -> list[QueueOutcome]:
        """Return every queue before and after, by topic and queue id."""
        state, found = self._state, []
        ends = state[:, BASE] + state[:, POSITION]
        minima, maxima = (_java_divided(column, UNIT).tolist() for column in (state[:, MIN_LOGIC], ends))
        for row in sorted(range(len(self._queues)), key=self._queues.__getitem__):
            topic, queue_id = self._queues[row]
            before = self._before(row)
            cut, added = self._difference(row)
            found.append(
                QueueOutcome(
                    topic, queue_id, before.min_offset, before.max_offset, minima[row], maxima[row], cut, added
                )
            )
        return found

    # --- one queue ------------------------------------------------------------------------------

    def _row(self, queue: Queue, *, make: bool = True) -> int:
        """Return the row of a queue; without one, make it, or return -1."""
        row = self._rows.get(queue, -1)
        if row < 0 and make:
            row = self._rows[queue] = len(self._queues)
            self._queues.append(queue)
            fresh = np.zeros((1, COLUMNS), np.int64)
            fresh[0, FILE_SIZE] = self._table.file_size
            for column in (MAX_PHYSIC, LAST, APPENDED, TOP):
                fresh[0, column] = -1
            self._state = np.concatenate((self._state, fresh))
            self._cut = np.append(self._cut, True)
            self._files.append(())
        return row

    def _put(self, rows: Ints, offsets: Ints, sizes: Ints, numbers: Ints, places: Ints) -> None:
        addresses = np.empty(len(rows), np.int64)
        expected = np.clip(numbers * UNIT, -_FAR, _FAR)  # wraps, as in Java
        offsets, numbers = np.ascontiguousarray(offsets), np.ascontiguousarray(numbers)
        is_end = int(self._rules.queue_end == "end")
        if put(self._state, is_end, rows, offsets, offsets + sizes, numbers, expected, addresses):
            self._written.add(rows, addresses, offsets, sizes, places)

    def _end(self, row: int) -> int:
        """Return the address behind the newest unit; 0 without files."""
        return int(self._state[row, BASE] + self._state[row, POSITION])

    def _before(self, row: int) -> Before:
        return self._table.before[row] if row < len(self._table.before) else _NEW

    def _file_at(self, row: int, base: int) -> QueueFile | None:
        """Return the file with a base that was there before, None for one that the start has made."""
        kept = self._files[row][: int(self._state[row, KEPT])]
        return next((file for file in reversed(kept) if file.base == base), None)

    def _units(self, row: int, base: int) -> tuple[Ints, Ints]:
        """Return offsets and sizes of all units of a file, as they are now."""
        state, size = self._state[row], self._table.file_size
        file = self._file_at(row, base)
        if file is None:
            offsets, sizes = (np.zeros(size // UNIT, np.int64) for _ in range(2))
        else:
            units = self._table.units_of(file)
            offsets, sizes = units["physical_offset"].astype(np.int64), units["size"].astype(np.int64)
        if state[APPENDED] >= 0:
            first, blank, end = (
                (int(address) - base) // UNIT for address in (state[APPENDED], state[BLANK_END], self._end(row))
            )
            inside = slice(max(0, first), max(0, blank))
            offsets[inside], sizes[inside] = 0, FILLER
            inside = slice(max(0, blank), max(0, end))
            offsets[inside], sizes[inside] = state[FIRST_WRITTEN], 1
            self._written.lay_over(row, base, base + size, self._end(row), offsets, sizes)
        return offsets, sizes

    def _truncate(self, row: int, end: int, none_left: int) -> None:
        state = self._state[row]
        state[MAX_PHYSIC] = none_left
        while state[KEPT] + state[MADE]:
            offsets, sizes = self._units(row, int(state[BASE]))
            if offsets[0] >= end:
                self._delete_last(row)
                continue
            refused = (offsets < 0) | (sizes <= 0) | (offsets >= end)
            refused[0] = False
            units = int(refused.argmax()) if refused.any() else len(refused)
            self._cut[row] = True
            state[POSITION] = units * UNIT
            state[LAST] = offsets[units - 1]
            state[MAX_PHYSIC] = state[LAST] + (sizes[units - 1] if self._rules.queue_end == "end" else 0)
            break
        self._forget_behind(row)

    def _delete_last(self, row: int) -> None:
        state, size = self._state[row], self._table.file_size
        self._cut[row] = True
        if state[MADE]:
            state[MADE] -= 1
        else:
            state[KEPT] -= 1
            self._deleted.append(self._files[row][int(state[KEPT])])
        if state[MADE]:
            state[BASE] -= size
            state[POSITION] = size
        elif state[KEPT]:
            state[BASE] = self._files[row][int(state[KEPT]) - 1].base
            state[POSITION] = size
        else:
            state[BASE] = state[POSITION] = state[FIRST] = 0
        state[IS_FRESH] = 0

    def _forget_behind(self, row: int) -> None:
        """Forget what was written at or behind the end of a queue."""
        state = self._state[row]
        end = self._end(row) if state[KEPT] + state[MADE] else -1
        if state[APPENDED] >= 0 and state[APPENDED] >= end:
            state[APPENDED] = state[TOP] = -1
        self._written.forget(row, end)

    # --- minimum --------------------------------------------------------------------------------

    def _scan_minimum(self, row: int, log_min: int) -> None:
        state = self._state[row]
        readable = self._readable(row)
        if readable == 0:
            return
        offsets = self._units(row, int(state[FIRST]))[0][: -(-readable // UNIT)]
        reached = offsets >= log_min
        if reached.any():
            state[MIN_LOGIC] = state[FIRST] + int(reached.argmax()) * UNIT

    def _readable(self, row: int) -> int:
        """Return the read position of the first file; 0 without files."""
        state = self._state[row]
        if state[KEPT] + state[MADE] == 0:
            return 0
        return int(state[POSITION] if state[KEPT] + state[MADE] == 1 else state[FILE_SIZE])

    def _search_minimum(self, row: int, log_min: int) -> None:
        state = self._state[row]
        if state[KEPT] + state[MADE] == 0 or state[MIN_LOGIC] >= self._end(row):
            return
        if state[POSITION] >= UNIT and state[LAST] < log_min:
            state[MIN_LOGIC] = self._end(row)
            return
        first, readable = int(state[FIRST]), self._readable(row)
        start = int(state[MIN_LOGIC]) - first
        is_intact, start = start >= 0, max(0, start)
        if start >= readable:
            return
        offsets = self._units(row, first)[0][start // UNIT : readable // UNIT].tolist()
        if is_intact and offsets[0] >= log_min:
            return
        low, high = 0, len(offsets) - 1
        while high - low > 1:
            middle = (low + high) // 2
            if offsets[middle] == log_min:
                low = high = middle
            elif offsets[middle] > log_min:
                high = middle
            else:
                low = middle
        for at in range(low, high + 1):
            if offsets[at] >= log_min:
                state[MIN_LOGIC] = first + start + at * UNIT
                return

    # --- before and after -----------------------------------------------------------------------

    def _difference(self, row: int) -> tuple[int, int]:
        """Return how many units of a queue are gone, and how many new ones it has."""
        state, before = self._state[row], self._before(row)
        end = self._end(row) if state[KEPT] + state[MADE] else 0
        since = int(state[APPENDED]) if state[APPENDED] >= 0 else end
        added = (end - int(state[BLANK_END])) // UNIT if state[APPENDED] >= 0 else 0
        if since >= before.max_offset * UNIT:
            return 0, added
        gone = same = 0
        for file in self._table.files[row]:
            if file.base + file.size <= since:
                continue
            units = self._table.units_of(file)
            offsets, sizes = units["physical_offset"], units["size"]
            here = file.base + UNIT * np.arange(len(units)) >= since
            messages: Bools = here & (offsets >= 0) & (sizes > 0) & (sizes != FILLER)
            gone += int(messages.sum())
            is_left = file.base in self._bases(row)
            if is_left and state[APPENDED] >= 0:
                now, lengths = self._units(row, file.base)
                again = (now == offsets) & (lengths == sizes)
                again &= file.base + UNIT * np.arange(len(units)) < end
                same += int((messages & again).sum())
        return gone - same, added - same

    def _bases(self, row: int) -> set[int]:
        return {file.base for file in self._files[row][: int(self._state[row, KEPT])]} | self._made(row)

    def _made(self, row: int) -> set[int]:
        """Return the bases of the files that the start has made."""
        size, last, made = (int(self._state[row, column]) for column in (FILE_SIZE, BASE, MADE))
        return {last - number * size for number in range(made)}


class QueueTable(QueueEnds):
    """All consume queues of a store, read once, from which each walk takes a state of its own."""

    def recover(self, rules: Rules, absent: Collection[str] = ()) -> Queues:
        """Return the queues as ConsumeQueue#recover leaves them; `absent` as in `Queues`."""
        return Queues(self, rules, absent)


def has_unit(sys_flags: Ints) -> Bools:
    """Return which records get queue units."""
    transactions = np.array(
        [has_queue_unit(number << TRANSACTION_SHIFT) for number in range(len(TRANSACTIONS))], np.bool_
    )
    entitled: Bools = transactions[(sys_flags >> TRANSACTION_SHIFT) & 3]
    return entitled


def _java_divided(values: Ints, by: int) -> Ints:
    """Return quotients rounded towards zero."""
    return np.where(values < 0, -(-values // by), values // by)
