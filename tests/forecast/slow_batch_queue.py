"""`BatchConsumeQueue`, line by line as in RocketMQ: what `forecast.queues` computes is compared with this."""

import struct
from dataclasses import dataclass

from tests.forecast.slow_queue import File

BATCH_UNIT = 46
_UNIT = struct.Struct(">qiqqqhii")


def unit(offset: int, size: int, base: int, count: int) -> bytes:
    return _UNIT.pack(offset, size, 0, 0, base, count, 0, 0)


@dataclass
class SlowBatchQueue:
    """One batch queue; minimum and maximum are queue offsets."""

    file_size: int
    files: list[File]
    max_physic: int = -1
    minimum: int = -1
    maximum: int = 0

    @staticmethod
    def _unit(file: File, at: int) -> tuple[int, int, int, int]:
        offset, size, _, _, base, count, _, _ = _UNIT.unpack_from(file.data, at)
        return offset, size, base, count

    def _accepts(self, file: File, at: int) -> bool:
        offset, size, base, count = self._unit(file, at)
        return offset >= 0 and size > 0 and base >= 0 and count > 0

    def recover(self) -> None:
        if not self.files:
            return
        process = 0
        for file in self.files[-3:]:
            process = file.base
            for at in range(0, self.file_size, BATCH_UNIT):
                if not self._accepts(file, at):
                    break
                process, self.max_physic = file.base + at + BATCH_UNIT, self._unit(file, at)[0]
            if process != file.base + self.file_size:
                break
        for file in list(self.files):
            if file.base + self.file_size > process >= file.base:
                file.position = process % self.file_size
            elif file.base > process:
                self.files.remove(file)
        self._revise()

    def put(self, offset: int, size: int, base: int, count: int) -> None:
        if offset <= self.max_physic:
            return
        if not self.files:
            self.files.append(File(0, bytearray(self.file_size), 0, is_first=True))
        elif self.files[-1].position == self.file_size:
            self.files.append(File(self.files[-1].base + self.file_size, bytearray(self.file_size), 0))
        self.files[-1].append(unit(offset, size, base, count))
        self.max_physic, self.maximum = offset, base + count
        if self.files[-1].is_first and self.minimum == -1:
            self._revise_minimum()

    def truncate(self, end: int) -> None:
        self.max_physic, stopped = end - 1, False
        while self.files and not stopped:
            file = self.files[-1]
            file.position = 0
            for at in range(0, self.file_size, BATCH_UNIT):
                offset = self._unit(file, at)[0]
                if at == 0 and offset >= end:
                    self.files.pop()
                    break
                stopped = at > 0 and (not self._accepts(file, at) or offset >= end)
                if stopped:
                    break
                file.position, self.max_physic = at + BATCH_UNIT, offset
                stopped = at > 0 and file.position == self.file_size
        self._revise()

    def correct_minimum(self, log_min: int) -> None:
        self._revise_minimum()
        first = self.files[0] if self.files else None
        for at in range(0, first.position if first else 0, BATCH_UNIT):
            offset, _, base, count = self._unit(self.files[0], at)
            if offset >= log_min:
                break
            self.minimum = base + count

    def _revise_minimum(self) -> None:
        self.minimum = -1
        if not self.files:
            self.maximum = 0
        elif self.files[0].position >= BATCH_UNIT:
            self.minimum = self._unit(self.files[0], 0)[2]

    def _revise(self) -> None:
        self._revise_minimum()
        self.maximum = 0
        for file in self.files[:-3:-1]:
            if file.position >= BATCH_UNIT:
                _, _, base, count = self._unit(file, file.position - BATCH_UNIT)
                self.maximum = base + count
                break
