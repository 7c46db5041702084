"""A consume queue in a start, with the verbs of the broker: recover, put, truncate, correct_minimum, destroy.

    address    base                                    base + position
    file       |....accepted....|..filler..|..written..|stale.....|
    from         the file          the start made them    the file, or zeros where the start made it

Units that the start writes are kept as runs of columns, so that a later verb can ask for them. Of a long dispatch only
the newest are (`Kept`), and older runs in which a record lies elsewhere than its PHYSICALOFFSET says: of all others it
is enough to know that they point before the end of the scan, where the log is cut.

Source: ConsumeQueue, BatchConsumeQueue, MappedFileQueue; RocketMQ 4.0.0 to 5.5.0.
"""

from collections import deque
from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct, field

from rmqinspect.broker.start_rules import Rules
from rmqinspect.codec.arrays import Bools, Ints
from rmqinspect.codec.java import wrapped_long
from rmqinspect.consumequeue.bounds import search_units
from rmqinspect.consumequeue.units import message_mask
from rmqinspect.errors import Unreadable
from rmqinspect.forecast.shelf import SIMPLE, UNITS, Shelf
from rmqinspect.schemas.consumequeue import PRE_BLANK_SIZE
from rmqinspect.store.model import QueueFile
from rmqinspect.text import describe_offset, group_digits

# Rows of a table of units, a column for each: physical offset, size, of a batch queue first queue offset and messages;
# of a unit to be put also where its record lies. A plain queue keeps the first two.
OFFSET, SIZE, BASE, COUNT, PLACE = range(5)

_RECOVERED_FILES = 3  # ConsumeQueue#recover begins in the third last file
_FAR = 1 << 62  # a queue offset in bytes beyond it is hostile: kept inside 64 bits
HOSTILE = 1 << 62  # above every offset: a cut has to look at each unit
_FIRST_WINDOW, _LAST_WINDOW = 64, 1 << 14  # units that a cut reads at a time
_LED = 1 << 16  # units that are looked at together, for where they lead
_FEW = 64  # units that are tried at once where the last ones did not continue the queue
_KEPT = 1 << 20  # newest units of all queues that are kept
_RUN_COST = 16  # what a run takes beside its units, in units


class Run(Struct):
    """Units that the start has written one behind the other into a file."""

    first: int  # row in the file
    count: int
    offset: int  # of the first unit
    size: int
    units: Ints | None = None  # None: all are taken for the first one


class File(Struct):
    """A mapped file of a queue."""

    base: int
    position: int  # bytes: where the next unit is written
    disk: QueueFile | None = None  # None: the start has made it
    is_fresh: bool = False  # MappedFile#isFirstCreateInQueue
    accepted: int = 0  # units at its beginning that `recover` has accepted, all in front of what is written
    top: int = -1  # largest physical offset of them
    runs: list[Run] = field(default_factory=list)


class Kept(Struct):
    """The runs of all queues of a walk whose units are kept, in the order of writing."""

    runs: deque[Run] = field(default_factory=deque)
    count: int = 0

    def add(self, run: Run) -> None:
        """Keep a run whose records lie where they say; the oldest ones are given up for it."""
        self.runs.append(run)
        self.count += run.count + _RUN_COST
        while self.count > _KEPT and len(self.runs) > 1:
            old = self.runs.popleft()
            self.count -= old.count + _RUN_COST
            old.units, old.size = None, 1


class Queue:
    """A queue of plain units: a row of a file has the queue offset that its place says."""

    kind = SIMPLE
    rows = 2  # of a table of units that are kept

    def __init__(self, shelf: Shelf, rules: Rules, kept: Kept, files: Sequence[QueueFile] = ()) -> None:
        """Take the files that the start has loaded."""
        self._shelf = shelf
        self._kept = kept
        self.rules = rules
        self.unit: int = UNITS[self.kind]
        self.size = shelf.file_sizes[self.kind]  # bytes of each file
        self.was = files
        self.files = [File(file.base, self.size, file) for file in files]
        self.deleted: list[QueueFile] = []
        self.top = -1  # largest physical offset written
        self._reset()

    def _reset(self) -> None:
        self.max_physic = -1  # maxPhysicOffset; of a batch queue maxMsgPhyOffsetInCommitLog
        self.minimum = 0  # minLogicOffset, bytes; of a batch queue minOffsetInQueue
        self.last = -1  # physical offset of the newest unit
        self.appended = -1  # address of the first unit that the start has written; -1: none
        self.blank_end = -1  # address behind the filler at `appended`

    @property
    def end(self) -> int:
        """Address behind the newest unit; 0 without files. Source: MappedFileQueue#getMaxOffset."""
        return self.files[-1].base + self.files[-1].position if self.files else 0

    @property
    def ends(self) -> tuple[int, int]:
        """Minimum and maximum: queue offsets as the broker gives them, divided as in Java."""
        low, high = (-(-value // self.unit) if value < 0 else value // self.unit for value in (self.minimum, self.end))
        return low, high

    def units(self, file: File, first: int, count: int) -> Ints:
        """Return a table of units of a file as they are now, from a row on; behind its end what lies there."""
        if file.disk is None:
            found = np.zeros((self.rows, count), np.int64)
        else:
            found = self._shelf.table(file.disk, first, count)
        for run in file.runs:
            low, high = max(run.first, first), min(run.first + run.count, first + count)
            if low >= high:
                continue
            part = found[:, low - first : high - first]
            if run.units is None:
                part[OFFSET], part[SIZE] = run.offset, run.size
            else:
                part[:] = run.units[:, low - run.first : high - run.first]
        return found

    @property
    def state(self) -> tuple[object, ...]:
        """What the units of the queue depend on: queues of equal states lead to the same records."""
        files = (
            (file.base, file.position, file.disk and file.disk.path, *((run.first, run.count) for run in file.runs))
            for file in self.files
        )
        return self.ends, self.appended, self.last, *files

    def leads(self) -> Iterator[Ints]:
        """Yield tables of the units between minimum and maximum: queue offsets, physical offsets.

        Filler leads nowhere, and is not among them.
        """
        low, high = self.ends
        for file in self.files:
            for first in range(0, file.position // self.unit, _LED):
                units = self.units(file, first, min(_LED, file.position // self.unit - first))
                numbers = self._numbers(file, first, units)
                is_filler = (units[OFFSET] == 0) & (units[SIZE] == PRE_BLANK_SIZE)
                inside = (numbers >= low) & (numbers < high) & (units[SIZE] > 0) & ~is_filler
                yield np.stack((numbers[inside], units[OFFSET][inside]))

    def _numbers(self, file: File, first: int, units: Ints) -> Ints:
        """Return the queue offset of each unit of a file, from a row on."""
        return file.base // self.unit + first + np.arange(units.shape[1])

    # --- recover --------------------------------------------------------------------------------

    def recover(self) -> None:
        """Find the end of the queue: unit by unit through its last files, to the first that is not accepted."""
        end = -1
        for file in self.files[-_RECOVERED_FILES:]:
            assert file.disk is not None
            prefix = self._shelf.prefix(file.disk)
            end = file.base + prefix.rows * self.unit
            file.accepted, file.top = prefix.rows, prefix.top
            if prefix.rows:
                self._note_newest(prefix.offset, prefix.size)
            if end < file.base + self.size:
                break
        for file in list(self.files):
            if file.base > end:
                self._delete(file)
            elif file.base + self.size > end:
                file.position = end % self.size
                if file.position != file.accepted * self.unit:  # files overlap
                    file.accepted = 0

    def _note_newest(self, offset: int, size: int) -> None:
        self.last, self.max_physic = offset, self._reach(offset, size)

    def _reach(self, offset: int, size: int) -> int:
        """Return maxPhysicOffset by a unit."""
        return offset if self.rules.queue_end == "start" else wrapped_long(offset + size)

    def _delete(self, file: File) -> None:
        self.files.remove(file)
        if file.disk is not None:
            self.deleted.append(file.disk)

    # --- put ------------------------------------------------------------------------------------

    def put(self, units: Ints) -> None:
        """Put the units of records in log order: a table whose bases are the queue offsets of records.

        Units that continue the queue are put at once, any other one by one.
        Source: ConsumeQueue#putMessagePositionInfo.
        """
        reach = units[OFFSET] if self.rules.queue_end == "start" else units[OFFSET] + units[SIZE]
        is_behind = reach > self.max_physic  # which only grows
        if not is_behind.any():
            return
        units, reach = units[:, is_behind], reach[is_behind]
        expected = np.clip(units[BASE] * self.unit, -_FAR, _FAR)  # the product wraps, as in Java
        at, step = 0, _FEW
        while at < len(reach):
            file = self.files[-1] if self.files else None
            if file is None or file.position >= self.size or (file.is_fresh and file.position == 0):
                self._put_first(units[:, at : at + 1], int(expected[at]))
                at += 1
                continue
            span = slice(at, at + step)
            later = reach[span] > self.max_physic
            if not later[0] or not self._continues(units[:, span], expected[span], 0)[0]:
                # Nothing changes before the first one that is put.
                at += count_until(later & self._continues(units[:, span], expected[span], 0))
                continue
            self._expect_room(file)
            span = slice(at, at + min(step, (self.size - file.position) // self.unit))
            before = np.maximum.accumulate(reach[span])[:-1]
            fits = self._continues(units[:, span], expected[span], self.unit)
            fits[1:] &= reach[span][1:] > before
            count = count_until(~fits)
            self._append(file, units[:, at : at + count])
            at += count
            step = 2 * step if count == step else _FEW

    def _expect_room(self, file: File) -> None:
        """Check that a unit fits behind the newest one of a file that is not full.

        :raises Unreadable: its name is off the grid of units; a broker tries to append for 30 seconds, then drops all.
        """
        if self.size - file.position < self.unit:
            name = file.disk.name if file.disk is not None else f"a queue file at {file.base}"
            at = describe_offset(file.position)
            raise Unreadable(
                f"{name}: its queue would go on at {at} of {group_digits(self.size)} bytes, where no unit of "
                f"{self.unit} fits: the name is none that a broker gives, and what follows is not known"
            )

    def _continues(self, units: Ints, expected: Ints, width: int) -> Bools:
        """Return which units are not repeated ones, each behind `width` bytes for every one before it."""
        if self.rules.repeated_unit == "append":
            return np.ones(len(expected), np.bool_)
        fits: Bools = (units[BASE] == 0) | (expected >= self.end + width * np.arange(len(expected)))
        return fits

    def _put_first(self, unit: Ints, expected: int) -> None:
        """Put a unit where a file has to be made for it, or has been; filler goes in front of the first of a queue."""
        offset, size, number = (int(value) for value in unit[: BASE + 1, 0])
        if self._reach(offset, size) <= self.max_physic:
            return
        # Java's remainder: it has the sign of the dividend.
        beyond = expected % self.size if expected >= 0 else -(-expected % self.size)
        if not self.files:
            self.files.append(File(expected - beyond, 0, is_fresh=True))
        elif self.files[-1].position >= self.size:
            self.files.append(File(self.files[-1].base + self.size, 0))
        file = self.files[-1]
        if file.is_fresh and number != 0 and file.position == 0:
            self.minimum = expected
            if beyond > 0:
                count = -(-beyond // self.unit)
                file.runs = [Run(0, count, 0, PRE_BLANK_SIZE)]
                file.position = count * self.unit
                self.appended, self.blank_end = file.base, self.end
                self.last = 0
        if self._continues(unit, np.array([expected]), 0)[0]:
            self._append(file, unit)

    def _append(self, file: File, units: Ints) -> None:
        """Write units behind the newest."""
        if self.appended < 0:
            self.appended = self.blank_end = self.end
        offsets = units[OFFSET]
        run = Run(
            file.position // self.unit, len(offsets), int(offsets[0]), int(units[SIZE, 0]), units[: self.rows].copy()
        )
        file.runs.append(run)
        file.position += run.count * self.unit
        self.top = max(self.top, int(offsets.max()), HOSTILE if offsets.min() < 0 else -1)
        self._note_newest(int(offsets[-1]), int(units[SIZE, -1]))
        # A batch queue is asked for its newest unit, whenever it was written: of that none is given up.
        if self.kind == SIMPLE and (offsets == units[PLACE]).all():
            self._kept.add(run)

    # --- the cut --------------------------------------------------------------------------------

    def truncate(self, end: int) -> None:
        """Cut the queue at the end of the log.

        Of the last file unit 0 only has to point before the end: an unused one, of zeros, becomes a unit. The others
        count up to the first that points behind the end or is not accepted, so that stale ones behind the newest are
        accepted again. A file of which nothing is left is deleted.
        Source: ConsumeQueue#truncateDirtyLogicFiles, BatchConsumeQueue#truncateDirtyLogicFiles.
        """
        if self._ends_before(end):
            return
        written = self.end, self.last, self.max_physic
        self.max_physic = self._reach(end - 1, 1)
        while self.files:
            file = self.files[-1]
            if count := self._accepted(file, end - 1):
                file.position = count * self.unit
                if self.end == written[0]:
                    self.last, self.max_physic = written[1:]
                else:
                    newest = self.units(file, count - 1, 1)
                    self._note_newest(int(newest[OFFSET, 0]), int(newest[SIZE, 0]))
                for run in file.runs:
                    run.count = max(0, min(run.count, count - run.first))
                break
            self._delete(file)
        if not self.files or self.appended >= self.end:
            self.appended = self.top = -1

    def _ends_before(self, end: int) -> bool:
        """Whether a cut changes nothing, without looking: all units are known, and what follows is not accepted."""
        if not self.files or end <= 0 or self.top >= end:
            return False
        file = self.files[-1]
        if file.position == 0 or file.base % self.size:  # else files overlap, and it holds others
            return False
        return file.disk is None or (not file.runs and file.accepted > 0 and file.top < end)

    def _accepted(self, file: File, most: int) -> int:
        """Return how many units of a file a cut accepts; offsets above `most` are not."""
        total, row, window = self.size // self.unit, 0, _FIRST_WINDOW
        if most >= 0 and file.top <= most:
            row = file.accepted
            if (row or file.disk is None) and self.top <= most:
                row = file.position // self.unit
        while row < total:
            units = self.units(file, row, min(window, total - row))
            refused = (units[OFFSET] < 0) | (units[SIZE] <= 0)
            if self.rows > COUNT:
                refused |= (units[BASE] < 0) | (units[COUNT] <= 0)
            if row == 0:
                refused[0] = False
            refused |= units[OFFSET] > most
            if refused.any():
                return row + int(refused.argmax())
            row, window = row + len(refused), min(8 * window, _LAST_WINDOW)
        return total

    # --- the minimum ----------------------------------------------------------------------------

    def correct_minimum(self, log_min: int) -> bool:
        """Let the minimum follow that of the log; return whether the start goes on.

        4.x: the first unit of the first file that points at the start of the log or behind it. 5.0.0: the same by
        binary search, from the present minimum on; the maximum where the newest unit points before the log. 5.0.0 to
        5.4.0 read the unit in front of the position of the last file, also where that is 0.
        Source: ConsumeQueue#correctMinOffset.
        """
        if self.rules.minimum == "scan":
            first, start = (self.files[0] if self.files else None), 0
            while first is not None and start < first.position // self.unit:
                count = min(_LAST_WINDOW if start else 1, first.position // self.unit - start)
                reached = self.units(first, start, count)[OFFSET] >= log_min
                if reached.any():
                    self.minimum = first.base + (start + int(reached.argmax())) * self.unit
                    break
                start += len(reached)
            return True
        if not self.files or self.minimum >= self.end:
            return True
        is_empty = self.files[-1].position == 0
        if not is_empty and self.last < log_min:
            self.minimum = self.end
        else:
            self._search_minimum(log_min)
        return not (is_empty and self.rules.empty_queue_file == "refuse")

    def _search_minimum(self, log_min: int) -> None:
        first = self.files[0]
        behind, start = first.position // self.unit, max(0, self.minimum - first.base) // self.unit
        is_intact = self.minimum >= first.base
        if start >= behind or (is_intact and self.units(first, start, 1)[OFFSET, 0] >= log_min):
            return
        found = search_units(self.units(first, start, behind - start)[OFFSET], log_min)
        if found is not None:
            self.minimum = first.base + (start + found) * self.unit

    def destroy(self) -> None:
        """Delete the queue: the log has no segment. Source: ConsumeQueue#destroy, BatchConsumeQueue#destroy."""
        for file in list(self.files):
            self._delete(file)
        self.top = -1
        self._reset()

    # --- before and after -----------------------------------------------------------------------

    def stays(self, before: int) -> int:
        """Return the queue offset behind the units that stay as they are; `before`: the maximum before the start."""
        return min(before, self.ends[1]) if self.appended < 0 else self.appended // self.unit

    def difference(self, before: int, log: range) -> tuple[int, int, int]:
        """Return how many units are gone, how many new ones there are, and how many records have none now.

        `before`: the maximum before the start; `log`: physical offsets that are left.
        """
        since, added = self.end, 0
        if self.appended >= 0:
            since, added = self.appended, (self.end - self.blank_end) // self.unit
        behind = self._end_before(before)
        now = {file.base: file for file in self.files}
        gone = same = left_alone = 0
        for old in self.was if since < behind else ():
            first = max(0, since - old.base) // self.unit
            count = (min(behind, old.base + old.size) - old.base) // self.unit - first
            if old.base >= behind or old.base + old.size <= since:
                continue
            units = self._shelf.units(old, first, count)
            messages = message_mask(units)
            gone += int(messages.sum())
            again = np.zeros(count, np.bool_)
            if (file := now.get(old.base)) is not None and messages.any():
                again = messages & (self.units(file, first, count)[OFFSET] == units["physical_offset"])
                again[max(0, (self.end - old.base) // self.unit - first) :] = False
            same += int(again.sum())
            in_log = (units["physical_offset"] >= log.start) & (units["physical_offset"] < log.stop)
            left_alone += int((messages & in_log & ~again).sum())
        # A unit that is put at another queue offset than before is gone and new.
        return gone - same, added - same, max(0, left_alone - (added - same))

    def _end_before(self, before: int) -> int:
        return before * self.unit


def count_until(which: Bools) -> int:
    """Return how many places lie in front of the first one that is set."""
    return int(which.argmax()) if which.any() else len(which)
