"""`ConsumeQueue` and `BatchConsumeQueue`, line by line as in RocketMQ: slow, and on bytes in memory.

What `forecast.queues` computes in columns is compared with this.
"""

import struct
from dataclasses import dataclass, field

from rmqinspect.broker.start_rules import Rules

UNIT = 20
FILLER = struct.pack(">qiq", 0, 0x7FFFFFFF, 0)


@dataclass
class File:
    """A MappedFile."""

    base: int
    data: bytearray
    position: int
    is_first: bool = False  # isFirstCreateInQueue

    def unit(self, at: int) -> tuple[int, int]:
        offset, size, _ = struct.unpack_from(">qiq", self.data, at)
        return offset, size

    def append(self, raw: bytes) -> None:
        self.data[self.position : self.position + len(raw)] = raw
        self.position += len(raw)


@dataclass
class SlowQueue:
    """One queue; `deleted` has the bases of deleted files."""

    rules: Rules
    file_size: int
    files: list[File]
    max_physic: int = -1
    min_logic: int = 0
    deleted: list[int] = field(default_factory=list)

    def _reach(self, offset: int, size: int) -> int:
        return offset + size if self.rules.queue_end == "end" else offset

    def recover(self) -> None:
        if not self.files:
            return
        index = max(0, len(self.files) - 3)
        file = self.files[index]
        while True:
            done = 0
            for at in range(0, self.file_size, UNIT):
                offset, size = file.unit(at)
                if not (offset >= 0 and size > 0):
                    break
                done = at + UNIT
                self.max_physic = self._reach(offset, size)
            process = file.base + done
            if done != self.file_size or index + 1 >= len(self.files):
                break
            index += 1
            file = self.files[index]
        for file in list(self.files):
            if file.base + self.file_size > process:
                if process >= file.base:
                    file.position = process % self.file_size
                else:
                    self._delete(file)

    def _delete(self, file: File) -> None:
        self.files.remove(file)
        self.deleted.append(file.base)

    def put(self, offset: int, size: int, number: int) -> None:
        if self._reach(offset, size) <= self.max_physic:
            return
        expect = number * UNIT
        if not self.files:
            self.files.append(File(expect - expect % self.file_size, bytearray(self.file_size), 0, is_first=True))
        elif self.files[-1].position == self.file_size:
            self.files.append(File(self.files[-1].base + self.file_size, bytearray(self.file_size), 0))
        file = self.files[-1]
        if file.is_first and number and file.position == 0:
            self.min_logic = expect
            for _ in range(0, expect % self.file_size, UNIT):
                file.append(FILLER)
        if number and expect < file.base + file.position and self.rules.repeated_unit == "ignore":
            return
        self.max_physic = self._reach(offset, size)
        file.append(struct.pack(">qiq", offset, size, 0))

    def truncate(self, end: int) -> None:
        self.max_physic = end if self.rules.queue_end == "end" else end - 1
        while self.files:
            file = self.files[-1]
            file.position = 0
            for at in range(0, self.file_size, UNIT):
                offset, size = file.unit(at)
                if at == 0:
                    if offset >= end:
                        self._delete(file)
                        break
                elif offset < 0 or size <= 0 or offset >= end:
                    return
                file.position = at + UNIT
                self.max_physic = self._reach(offset, size)
                if at and file.position == self.file_size:
                    return

    def correct_minimum(self, log_min: int) -> bool:
        """Return whether the start goes on."""
        if self.rules.minimum == "scan":
            first = self.files[0] if self.files else None
            for at in range(0, first.position if first else 0, UNIT):
                if first and first.unit(at)[0] >= log_min:
                    self.min_logic = first.base + at
                    break
            return True
        if self.min_logic >= self.max_offset or not self.files:
            return True
        last = self.files[-1]
        if last.position < UNIT:
            if self.rules.empty_queue_file == "refuse":
                return False
        elif last.unit(last.position - UNIT)[0] < log_min:
            self.min_logic = self.max_offset
            return True
        self._search(log_min)
        return True

    def _search(self, log_min: int) -> None:
        first = self.files[0]
        start = self.min_logic - first.base
        is_intact, start = start >= 0, max(0, start)
        if start >= first.position or (is_intact and first.unit(start)[0] >= log_min):
            return
        low, high = 0, first.position - start - UNIT
        while high - low > UNIT:
            middle = (low + high) // 2 // UNIT * UNIT
            offset = first.unit(start + middle)[0]
            if offset >= log_min:
                high = middle
            if offset <= log_min:
                low = middle
            if offset == log_min:
                break
        for at in range(low, high + 1, UNIT):
            if first.unit(start + at)[0] >= log_min:
                self.min_logic = first.base + start + at
                return

    @property
    def max_offset(self) -> int:
        return self.files[-1].base + self.files[-1].position if self.files else 0

    def destroy(self) -> None:
        self.max_physic, self.min_logic = -1, 0
        for file in list(self.files):
            self._delete(file)

    def units(self) -> list[tuple[int, list[tuple[int, int]]]]:
        """Return the base of each file, and its units."""
        return [(file.base, [file.unit(at) for at in range(0, file.position, UNIT)]) for file in self.files]
