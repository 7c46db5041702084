"""Timer and half messages in RocksDB, written as lines of JSON and as units of a timer log.

    column family timer    messages that wait for their time, and delivered ones   -> ENTRIES, TIMER_UNITS
    column family trans    half messages that wait for commit or rollback          -> ENTRIES
    both                   how far the broker has come                             -> CHECKPOINTS

Source: MessageRocksDBStorage, TimerRocksDBRecord, TransRocksDBRecord; RocketMQ 5.4.0 and 5.5.0.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import TextIO

from rmqinspect.rocksdb.entries import Entry
from rmqinspect.rocksdb.job import CHECKPOINTS, ENTRIES, INDEX_CHECKPOINT, TIMER_UNITS, write_line
from rmqinspect.schemas import rocksdb as layouts
from rmqinspect.schemas.timer import NO_UNIT, UNIT_SIZE, TimerUnit
from rmqinspect.text import text_of

Items = Iterable[tuple[bytes, bytes]]

_TIME_SIZE, _OFFSET_SIZE = layouts.TimerKeyHead.sizeof(), layouts.HalfKeyHead.sizeof()


def write_entries(
    items: Callable[[str], Items], get: Callable[[bytes, str], bytes | None], folder: str, index: TextIO
) -> None:
    """Write what a database holds; `items` returns those of a column family, `get` one value of it."""
    checkpoint = _number(get(layouts.TIMELINE_CHECKPOINT, "timer"))
    malformed = 0
    with (
        open(os.path.join(folder, ENTRIES), "w", encoding="ascii") as lines,
        open(os.path.join(folder, TIMER_UNITS), "wb") as units,
    ):
        for entry in chain(_timers(items("timer"), checkpoint), _halves(items("trans"))):
            if entry is None:
                malformed += 1
                continue
            lines.write(json.dumps(entry) + "\n")
            if entry.deliver_timestamp is not None:
                units.write(_unit(entry))
    keys = [*((key, "timer") for key in layouts.TIMER_KEYS), *((key, "trans") for key in layouts.HALF_KEYS)]
    found = {key.decode(): get(key, family) for key, family in sorted(keys)}
    found[INDEX_CHECKPOINT] = get(layouts.LAST_HALF, "default")  # the same key in each column family
    with open(os.path.join(folder, CHECKPOINTS), "w", encoding="ascii") as checkpoints:
        json.dump({name: _number(value) for name, value in found.items() if value is not None}, checkpoints)
    write_line(index, {"document": TIMER_UNITS})
    write_line(index, {"document": CHECKPOINTS})
    write_line(index, {"document": ENTRIES, "malformed": malformed})


def _number(value: bytes | None) -> int:
    """Return a checkpoint, 0 without one: nothing was delivered yet."""
    if value is None or len(value) != layouts.NumberValue.sizeof():
        return 0
    return int(layouts.NumberValue.parse(value).number)


def _timers(items: Items, checkpoint: int) -> Iterator[Entry | None]:
    """Yield the entries of timer messages by time; None for a malformed one."""
    for key, value in items:
        if key in layouts.TIMER_KEYS:
            continue
        if len(key) <= _TIME_SIZE or len(value) != layouts.TimerValue.sizeof():
            yield None
            continue
        due = int(layouts.TimerKeyHead.parse(key).deliver_timestamp)
        found = layouts.TimerValue.parse(value)
        if due <= 0 or found.record_size <= 0 or found.physical_offset < 0:
            yield None
            continue
        state = "done" if due < checkpoint else "waiting"
        yield Entry("timer", state, int(found.physical_offset), int(found.record_size), text_of(key[_TIME_SIZE:]), due)


def _halves(items: Items) -> Iterator[Entry | None]:
    """Yield the entries of half messages by physical offset; None for a malformed one."""
    for key, value in items:
        if key in layouts.HALF_KEYS:
            continue
        before, *names = key[_OFFSET_SIZE:].split(layouts.HALF_KEY_SEPARATOR, 2)
        if before or len(names) != 2 or not all(names) or len(value) != layouts.HalfValue.sizeof():
            yield None
            continue
        place = int(layouts.HalfKeyHead.parse(key).physical_offset)
        found = layouts.HalfValue.parse(value)
        if place < 0 or found.record_size <= 0 or found.check_times < 0:
            yield None
            continue
        topic, transaction = map(text_of, names)
        size, checks = int(found.record_size), int(found.check_times)
        yield Entry("half", "waiting", place, size, transaction, None, topic, checks)


def _unit(entry: Entry) -> bytes:
    """Return the unit that a broker without timerRocksDBEnable would have; the hash of its topic is not known."""
    unit: bytes = TimerUnit.build(
        {
            "size": UNIT_SIZE,
            "previous": NO_UNIT,
            "magic": 1,
            "enqueue_timestamp": entry.deliver_timestamp,
            "delay": 0,
            "physical_offset": entry.physical_offset,
            "record_size": entry.size,
            "real_topic_hash": 0,
            "reserved": 0,
        }
    )
    return unit
