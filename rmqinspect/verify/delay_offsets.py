"""ST-DELAY-OFFSET, ST-DELAY-LOST, ST-CLOCK: how far the broker says to be with delayed messages, against the log.

    delayOffset.json   a level's next queue offset     beyond the queue's end, behind messages that were not due,
                                                       or before the queue's start
    timercheck         up to when the timer has fired  more than a day beyond the log's last record

A delay level is no consumer group: nobody pulls from its queue, and nobody resets its offset but the broker itself.
A message that was delivered is a record of the log, stored when it was due. So one that was due later than the newest
record was not delivered, whatever delayOffset.json says.

Source: ScheduleMessageService#correctDelayOffset, .DeliverDelayedMessageTimerTask#executeOnTimeUp,
TimerMessageStore#dequeue; RocketMQ 4.0.0 to 5.5.0.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow.compute as pc

from rmqinspect.broker.clock import DAY, runs_ahead, set_back
from rmqinspect.broker.delays import STATES, STUCK
from rmqinspect.broker.gone import TIMERCHECK
from rmqinspect.codec.arrays import Ints
from rmqinspect.config.json_files import integer, key_number, read_delay_offsets
from rmqinspect.consumequeue.units import find_units, message_units
from rmqinspect.errors import Unreadable
from rmqinspect.store.model import QueueFile, Store
from rmqinspect.tables.delays import DelayChoice, Delays
from rmqinspect.tables.groups import ExpectedQueues
from rmqinspect.tables.table import Request
from rmqinspect.text import count, describe_duration, group_digits
from rmqinspect.timer.log import read_timercheck
from rmqinspect.times import time_words
from rmqinspect.topics import SCHEDULE_TOPIC
from rmqinspect.verify.findings import Finding
from rmqinspect.verify.group_offsets import Ends, Pending

_AT_ONCE = 1 << 16  # units


class _Level(NamedTuple):
    """What delayOffset.json says of a delay level, whose queue is level - 1."""

    level: int
    offset: int  # the next to deliver
    file: str


class _Waiting(NamedTuple):
    """Messages of a level that were not due when the log's newest record was stored."""

    first: int  # queue offset
    messages: int  # before the offset of the level


def check_levels(
    store: Store, ends: Ends | None, pending: Pending | None = None, newest: int | None = None
) -> Iterator[Finding]:
    """Yield ST-DELAY-OFFSET and ST-DELAY-LOST, by level; `newest`: store time in ms of the log's newest record.

    `ends` has every queue that was read.
    """
    if not ends:
        return
    expected = ExpectedQueues(store)
    for level in _levels(store):
        name = SCHEDULE_TOPIC, level.level - 1
        first, behind = ends.get(name, (0, 0))
        behind += (pending or {}).get(name, 0)
        if level.offset < first:
            yield _lost(level, first)
            continue
        beyond = level.offset > behind
        if beyond and name not in ends and not expected.had_files(*name):
            continue
        waiting = _not_due(store, level, first, behind, newest)
        if beyond or waiting is not None:
            yield _ahead(level, behind if beyond else None, waiting)


def _levels(store: Store) -> Sequence[_Level]:
    document = read_delay_offsets(store)
    if document is None or document.source is None:
        return ()
    numbers = ((key_number(level), integer(offset)) for level, offset in document.table("offsetTable").items())
    known = sorted((level, offset) for level, offset in numbers if level and level > 0 and offset is not None)
    return [_Level(level, offset, document.source.name) for level, offset in known]


def _not_due(store: Store, level: _Level, first: int, behind: int, newest: int | None) -> _Waiting | None:
    """Return the messages before a level's offset that were not due at the newest record; None without any.

    Those of a level fall due in the order of its queue, so the last one before the offset tells whether there are any.
    """
    files = _files_of(store, level.level - 1)
    end = min(level.offset, behind)
    if newest is None or not files or end <= first:
        return None
    try:
        (last,) = find_units(files, [end - 1])
        if last is None or last[2] <= newest:
            return None
        found: list[Ints] = []
        while end > first:
            low = max(first, end - _AT_ONCE)
            some = [offsets[units["tags_code"] > newest] for offsets, units in message_units(files, low, end)]
            found += some
            end = low if any(len(one) for one in some) else first
    except Unreadable:  # the survey of the queue says so
        return None
    late = np.concatenate(found)
    return _Waiting(int(late.min()), len(late)) if len(late) else None


def _files_of(store: Store, queue_id: int) -> list[QueueFile]:
    return [
        file
        for file in store.queue_files
        if (file.topic, file.queue_id, file.kind) == (SCHEDULE_TOPIC, queue_id, "queue")
    ]


def _ahead(level: _Level, behind: int | None, waiting: _Waiting | None) -> Finding:
    """Return ST-DELAY-OFFSET; `behind`: the end of the queue, if the level's offset lies beyond it."""
    waits = "" if waiting is None else f"{count(waiting.messages, 'message')} that {_was(waiting)} not due"
    what = f"before that {_lie(waiting)} {waits} when the newest record was stored" if waiting is not None else ""
    if behind is not None:
        ends_at = f"its queue ends at {group_digits(behind)}" if behind else "its queue has no message"
        what = f"{ends_at}{f', with {waits}' if waits else ''}: the queue lost its end, or the file is another's"
    back_to, is_what = behind or 0, "the end of its queue"
    if waiting is not None:
        back_to, is_what = waiting.first, "the queue offset of the first message that was not due"
    do = (
        f"with the broker stopped, set {level.level} in {level.file} to {back_to}, {is_what}; before that, rmqinspect "
        "delays says which messages have no delivered copy"
    )
    return _of_level(level, "ST-DELAY-OFFSET", what, f"at most {back_to}", do)


def _was(waiting: _Waiting) -> str:
    return "was" if waiting.messages == 1 else "were"


def _lie(waiting: _Waiting) -> str:
    return "lies" if waiting.messages == 1 else "lie"


def _lost(level: _Level, first: int) -> Finding:
    missed = count(first - max(level.offset, 0), "message")
    what = f"its queue begins at {group_digits(first)}: {missed} gone before delivery"
    return _of_level(level, "ST-DELAY-LOST", what, f"at least {first}")


def _of_level(level: _Level, code: str, what: str, expected: str, do: str = "") -> Finding:
    return Finding(
        code,
        f"delay level {level.level} goes on at {group_digits(level.offset)}, but {what}",
        file=level.file,
        topic=SCHEDULE_TOPIC,
        queue_id=level.level - 1,
        queue_offset=level.offset,
        expected=expected,
        found=str(level.offset),
        do=do,
    )


def check_clock(store: Store, last: int | None, newest: int | None, *, is_step: bool) -> Iterator[Finding]:
    """Yield ST-CLOCK where the broker's clock was more than a day ahead of the log's last record.

    `last` and `newest`: store times in ms of the log's last record, and the greatest of all. `is_step`: the clock was
    set back, and no single record is out of line.
    """
    if last is None:
        return
    if newest is not None and is_step and newest > last + DAY:
        yield Finding(
            "ST-CLOCK",
            f"records were stored up to {time_words(newest)}, {_ahead_by(newest, last)} later than the last one: the "
            "broker's clock was ahead, and was set back",
            file=store.segments[-1].name if store.segments else None,
            expected=f"at most {time_words(last)} and a day",
            found=time_words(newest),
        )
    try:
        fired = int(read_timercheck(store.config_files.get(TIMERCHECK)).last_read_timestamp)
    except Unreadable:  # the check of the timer's files says so
        return
    if runs_ahead(max(last, newest or 0), fired):
        yield _timer_ahead(store, max(last, newest or 0), fired)


def _timer_ahead(store: Store, last: int, fired: int) -> Finding:
    choice = DelayChoice(waiting=True, system=False, states=frozenset({STATES[STUCK]}))
    delays = Delays(store, Request(on_unreadable=lambda message: None), choice)
    stuck = sum(pc.sum(pc.not_equal(batch.column("source"), "level")).as_py() for batch in delays.rows())
    waits = f"; {count(stuck, 'timer message')} {'waits' if stuck == 1 else 'wait'} for a time before" if stuck else ""
    return Finding(
        "ST-CLOCK",
        f"timercheck says that the timer has fired up to {time_words(fired)}, {_ahead_by(fired, last)} later than the "
        f"log's newest record: the clock was wrong, or nothing was stored for so long{waits}",
        file=f"config/{TIMERCHECK}",
        offset=0,
        length=8,
        expected=f"at most {time_words(last)} and a day",
        found=time_words(fired),
        do=set_back(last),
    )


def _ahead_by(late: int, early: int) -> str:
    return describe_duration((late - early) / 1000)
