"""A timer as a broker writes it: units, slots and the position of its reader, to be damaged before it is written."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rmqinspect.codec.java import java_string_hash
from rmqinspect.schemas.timer import (
    BLANK_MAGIC,
    NO_UNIT,
    UNIT_SIZE,
    WHEEL_SLOTS,
    TimerBlank,
    TimerCheck,
    TimerUnit,
    WheelSlot,
)
from rmqinspect.store.model import Store
from rmqinspect.timer.log import WHEEL_SIZE
from tests.support.side_tables import store_of

NOW = 1_700_000_000  # s
FILE_SIZE = 20 * UNIT_SIZE  # room for 19 units and a blank
ROOM = 19
TOPIC = java_string_hash("orders")


@dataclass
class Timer:
    """What a broker wrote: units by timer log offset, slots by number. Tests change it before it is written."""

    units: dict[int, dict[str, Any]] = field(default_factory=dict)
    slots: dict[int, dict[str, Any]] = field(default_factory=dict)
    flushed: int | None = None  # None: up to the end
    read: int = NOW  # s: slots before have fired
    precision: int = 1000  # ms
    base: int = 0  # of the first file that is left
    abort: bool = False
    wheel: str | None = "timerwheel"

    @property
    def end(self) -> int:
        return max(self.units) + UNIT_SIZE

    def add(self, *due: float, enqueued: float = NOW - 60) -> "Timer":
        """Append units due at these seconds, as TimerMessageStore#doEnqueue does."""
        for second in due:
            at = self.end if self.units else 0
            if at % FILE_SIZE == ROOM * UNIT_SIZE:
                at += FILE_SIZE - ROOM * UNIT_SIZE
            time = round(second * 1000) // self.precision
            slot = self.slots.get(time % WHEEL_SLOTS, {"time": -1})
            known = slot["time"] == time
            self.units[at] = {
                "size": UNIT_SIZE,
                "previous": slot["last"] if known else NO_UNIT,
                "magic": 1,
                "enqueue_timestamp": round(enqueued * 1000),
                "delay": round((second - enqueued) * 1000),
                "physical_offset": 10_000 + 10 * at,
                "record_size": 300,
                "real_topic_hash": TOPIC,
                "reserved": 0,
            }
            self.slots[time % WHEEL_SLOTS] = {
                "time": time,
                "first": slot["first"] if known else at,
                "last": at,
                "message_count": slot["message_count"] + 1 if known else 1,
                "magic": 0,
            }
        return self

    def change(self, number: int, **fields: Any) -> "Timer":
        """Damage the unit with this number in the log."""
        self.units[sorted(self.units)[number]] |= fields
        return self

    def slot(self, second: float, **fields: Any) -> "Timer":
        """Damage the slot of a time."""
        self.slots[round(second * 1000) // self.precision % WHEEL_SLOTS] |= fields
        return self

    def write(self, root: Path) -> Store:
        files: dict[int, bytearray] = {}
        for at in range(self.base, self.end, FILE_SIZE):
            files[at] = bytearray(FILE_SIZE)
        for at, unit in self.units.items():
            if at >= self.base:
                place = at % FILE_SIZE
                files[at - place][place : place + UNIT_SIZE] = TimerUnit.build(unit)
        for base in files:
            if base + FILE_SIZE in files:
                left = FILE_SIZE - ROOM * UNIT_SIZE
                files[base][-left : 16 - left] = TimerBlank.build(
                    {"total_size": left, "reserved": 0, "magic": BLANK_MAGIC}
                )
        (root / "timerlog").mkdir(parents=True)
        (root / "config").mkdir()
        for base, raw in files.items():
            (root / "timerlog" / f"{base:020}").write_bytes(raw)
        if self.wheel is not None:
            write_wheel(root / self.wheel, self.slots)
        check = dict.fromkeys((part.name for part in TimerCheck.subcons), 0) | {
            "last_read_timestamp": self.read * 1000,
            "last_timer_log_flush_pos": self.end if self.flushed is None else self.flushed,
        }
        (root / "config" / "timercheck").write_bytes(TimerCheck.build(check).ljust(4096, b"\0"))
        if self.abort:
            (root / "abort").touch()
        return store_of(root)


def write_wheel(path: Path, slots: dict[int, dict[str, Any]]) -> None:
    """Write a wheel with holes for the slots that were never used."""
    with path.open("wb") as file:
        file.truncate(WHEEL_SIZE)
        for number, slot in slots.items():
            file.seek(number * WheelSlot.sizeof())
            file.write(WheelSlot.build(slot))


def some() -> Timer:
    """Return a timer of 45 units in three files: eight times in turn, all of them pending."""
    return Timer().add(*(NOW + 10 + number % 8 for number in range(45)))
