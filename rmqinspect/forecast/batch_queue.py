"""A batch queue in a start: each unit holds the messages of a batch, and says which queue offset its first one has.

Source: BatchConsumeQueue; RocketMQ 5.0.0 to 5.5.0.
"""

import numpy as np

from rmqinspect.codec.arrays import Ints
from rmqinspect.codec.java import wrapped_long
from rmqinspect.forecast.queue import BASE, COUNT, HOSTILE, OFFSET, File, Queue, count_until
from rmqinspect.forecast.shelf import BATCH


class BatchQueue(Queue):
    """A queue of units that each hold some messages of a batch."""

    kind = BATCH
    rows = 4

    def _reset(self) -> None:
        super()._reset()
        self.minimum, self.maximum = -1, 0

    @property
    def ends(self) -> tuple[int, int]:
        """Minimum and maximum, queue offsets."""
        return self.minimum, self.maximum

    def _reach(self, offset: int, size: int) -> int:
        return offset

    def recover(self) -> None:
        """Find the end of the queue, then minimum and maximum."""
        super().recover()
        self._revise()

    def put(self, units: Ints) -> None:
        """Put units, as a plain queue does; those that are no inner batch have a base of -1, and are not put.

        Source: BatchConsumeQueue#putBatchMessagePositionInfo.
        """
        chosen = (units[BASE] >= 0) & (units[COUNT] >= 0)
        units = units[:, chosen]
        highest = np.maximum.accumulate(np.append(self.max_physic, units[OFFSET]))[:-1]
        chosen = units[OFFSET] > highest
        units, at = units[:, chosen], 0
        while at < len(units[OFFSET]):
            if not self.files or self.files[-1].position >= self.size:
                base = self.files[-1].base + self.size if self.files else 0
                self.files.append(File(base, 0, is_fresh=not self.files))
            file = self.files[-1]
            part = slice(at, at + (self.size - file.position) // self.unit)
            if file.is_fresh and self.minimum == -1:
                self.minimum = int(units[BASE, at])
            self._append(file, units[:, part])
            at += len(units[OFFSET, part])
        if at:
            self.maximum = wrapped_long(int(units[BASE, -1]) + int(units[COUNT, -1]))
            if (units[COUNT] == 0).any():
                self.top = HOSTILE

    def truncate(self, end: int) -> None:
        """Cut the queue, then find minimum and maximum."""
        super().truncate(end)
        self._revise()

    def correct_minimum(self, log_min: int) -> bool:
        """Let the minimum follow that of the log. Source: BatchConsumeQueue#correctMinOffset."""
        self._revise_minimum()
        if self.files and self.files[0].position:
            units = self.units(self.files[0], 0, self.files[0].position // self.unit)
            if before := count_until(units[OFFSET] >= log_min):
                self.minimum = wrapped_long(int(units[BASE, before - 1]) + int(units[COUNT, before - 1]))
        return True

    def _revise(self) -> None:
        """Find minimum and maximum. Source: BatchConsumeQueue#reviseMaxAndMinOffsetInQueue."""
        self._revise_minimum()
        self.maximum = 0
        for file in self.files[:-3:-1]:
            if file.position:
                newest = self.units(file, file.position // self.unit - 1, 1)
                self.maximum = wrapped_long(int(newest[BASE, 0]) + int(newest[COUNT, 0]))
                break

    def _revise_minimum(self) -> None:
        self.minimum = -1
        if not self.files:
            self.maximum = 0
        elif self.files[0].position:
            self.minimum = int(self.units(self.files[0], 0, 1)[BASE, 0])

    def _numbers(self, file: File, first: int, units: Ints) -> Ints:
        numbers: Ints = units[BASE]
        return numbers

    def stays(self, before: int) -> int:
        """Return the queue offset behind the messages that stay as they are."""
        return min(before, self.maximum)

    def _end_before(self, before: int) -> int:
        return self.was[-1].base + self.was[-1].size if self.was else 0
