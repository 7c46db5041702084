"""ST-DELAY-OFFSET, ST-DELAY-LOST, ST-CLOCK: how far the broker says to be with delayed messages, against the log.

    delayOffset.json   a level's next queue offset     beyond the queue's end, behind messages that were not due,
                                                       or before the queue's start
    timercheck         up to when the timer has fired  more than a day beyond the log's last record

A delay level is no consumer group: nobody pulls from its queue, and nobody resets its offset but the broker itself.
What was due later than the newest record was not delivered (`broker.delay_levels`).

Source: ScheduleMessageService#correctDelayOffset, .DeliverDelayedMessageTimerTask#executeOnTimeUp,
TimerMessageStore#dequeue; RocketMQ 4.0.0 to 5.5.0.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rmqinspect.broker.clock import DAY, runs_ahead, set_back
from rmqinspect.broker.delay_levels import DelayLevels, Waiting, offsets_in
from rmqinspect.broker.gone import TIMERCHECK
from rmqinspect.config.json_files import read_delay_offsets
from rmqinspect.errors import Unreadable
from rmqinspect.store.model import Store
from rmqinspect.tables.group_positions import ExpectedQueues
from rmqinspect.text import count, describe_duration, group_digits
from rmqinspect.timer.log import read_timercheck
from rmqinspect.times import time_words
from rmqinspect.topics import SCHEDULE_TOPIC
from rmqinspect.verify.findings import Finding
from rmqinspect.verify.group_offsets import Ends, Pending


class _Level(NamedTuple):
    """What delayOffset.json says of a delay level, whose queue is level - 1."""

    level: int
    offset: int  # the next to deliver
    file: str


def check_levels(
    store: Store, ends: Ends | None, pending: Pending | None = None, newest: int | None = None
) -> Iterator[Finding]:
    """Yield ST-DELAY-OFFSET and ST-DELAY-LOST, by level; `newest`: store time in ms of the log's newest record.

    `ends` has every queue that was read.
    """
    if not ends:
        return
    expected, queues = ExpectedQueues(store), DelayLevels(store, newest)
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
        try:
            waiting = queues.waiting(level.level, first, min(level.offset, behind))
        except Unreadable:  # the survey of the queue says so
            waiting = None
        if beyond or waiting is not None:
            yield _ahead(level, behind if beyond else None, waiting)


def _levels(store: Store) -> Sequence[_Level]:
    document = read_delay_offsets(store)
    if document is None or document.source is None:
        return ()
    return [_Level(level, offset, document.source.name) for level, offset in offsets_in(document).items()]


def _ahead(level: _Level, behind: int | None, waiting: Waiting | None) -> Finding:
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
        f"with the broker stopped, set {level.level} in {level.file} to {back_to}, {is_what}; before that, the "
        "command delays says which messages have no delivered copy"
    )
    return _of_level(level, "ST-DELAY-OFFSET", what, f"at most {back_to}", do)


def _was(waiting: Waiting) -> str:
    return "was" if waiting.messages == 1 else "were"


def _lie(waiting: Waiting) -> str:
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
    from rmqinspect.tables.delays import count_stuck  # a table, which few stores need

    stuck = count_stuck(store)
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
