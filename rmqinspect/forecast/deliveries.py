"""What the broker delivers by itself after a start: messages of delay levels and of the timer.

    queue of a level   |.........|...........|        messages, and where the level goes on, by delayOffset.json
    offset                  ^                         those behind it that were due come again, if they were delivered
    offset                                ^           beyond the end: up to 4.9.1 it stays there, and what comes is
                                                      never delivered; since 4.9.2 it is set to the end
    not due            .....xxxx                      before the offset: never delivered, in all releases

The timer takes its topic from an offset, too, and delivers the slots of its wheel from a time on: both are in
timercheck, which is written every second.

Source: ScheduleMessageService#load, #correctDelayOffset, TimerMessageStore#recover, #enqueue; RocketMQ 4.0.0 to 5.5.0.
"""

from collections.abc import Iterator

from rmqinspect.broker.clock import runs_ahead
from rmqinspect.broker.eras import rules_of_start
from rmqinspect.broker.own_rules import DelayRules
from rmqinspect.errors import Unreadable
from rmqinspect.forecast.evidence import Evidence
from rmqinspect.forecast.outcome import LevelStart, Outcome, QueueOutcome, TimerStart, note_unread
from rmqinspect.times import format_millis
from rmqinspect.topics import SCHEDULE_TOPIC, TIMER_TOPIC


def note_deliveries(outcome: Outcome, evidence: Evidence) -> None:
    """Note what the broker never delivers of delayed messages after a start, and what it delivers again."""
    outcome.delay_levels = list(_levels(outcome, evidence))
    outcome.timer = _timer(outcome, evidence)


# --- delay levels -------------------------------------------------------------------------------


def _levels(outcome: Outcome, evidence: Evidence) -> Iterator[LevelStart]:
    """Yield the levels that pass over something, or deliver something again."""
    if evidence.store.given != "store":
        return
    offsets = evidence.delay_offsets
    queues = {queue.queue_id: queue for queue in outcome.queues if queue.topic == SCHEDULE_TOPIC}
    # A level whose queue is not there begins at 0, once a message comes.
    for level in sorted({queue_id + 1 for queue_id in queues} | offsets.keys()):
        queue = queues.get(level - 1) or QueueOutcome(SCHEDULE_TOPIC, level - 1, 0, 0, 0, 0)
        try:
            found = _level(outcome, evidence, level, offsets.get(level, 0), queue)
        except Unreadable as error:
            note_unread(evidence.unread, str(error))
            continue
        if found.set_back is not None or found.again != 0:
            yield found


def _level(outcome: Outcome, evidence: Evidence, level: int, offset: int, queue: QueueOutcome) -> LevelStart:
    """Return what becomes of a level that goes on at an offset.

    :raises Unreadable: a file of its queue cannot be read.
    """
    low, high = queue.min_after, queue.max_after
    log = range(max(0, outcome.min_offset), outcome.end_offset)
    goes_on = high if offset > high and DelayRules(outcome.release).level_beyond == "end" else max(low, offset)
    waiting = evidence.levels.waiting(level, low, min(offset, high), log)
    passed, skips = (0 if waiting is None else waiting.messages), max(0, goes_on - high)
    # What was delivered behind the end that the log has lost has no copy either.
    is_known = evidence.acknowledged is None
    return LevelStart(
        level=level,
        offset=offset,
        next_offset=goes_on,
        max_offset=high,
        passed=passed * is_known,
        copies_gone=passed * (not is_known),
        skips=skips,
        again=evidence.levels.due(level, goes_on, high, log),
        set_back=waiting.first if waiting is not None else high if skips else None,
    )


# --- the timer ----------------------------------------------------------------------------------


def _timer(outcome: Outcome, evidence: Evidence) -> TimerStart | None:
    """Return where the timer goes on; None where it has no message, or goes on where it stopped."""
    queue = next((queue for queue in outcome.queues if queue.topic == TIMER_TOPIC), None)
    has_timer = rules_of_start(outcome.release).timer and evidence.settings.timer_wheel_enable
    place = evidence.timer_goes_on
    if queue is None or not has_timer or place is None:
        return None
    fired, taken, goes_on = place
    waits = DelayRules(outcome.release).timer_beyond == "wait"
    skips = max(0, goes_on - queue.max_after) if waits else 0
    if not fired and not goes_on:  # without a timercheck all of the topic is taken again
        return TimerStart(skips, max(0, queue.max_after - queue.min_after), 0, None, None)
    newest = evidence.log_end.newest_timestamp
    if newest is not None and runs_ahead(newest, fired):
        return TimerStart(skips, 0, evidence.stuck_timers, format_millis(fired), newest)
    # What it takes again of its topic it has put into the wheel before.
    again = evidence.fired_again(fired)
    again = None if again is None else again + max(0, min(taken, queue.max_after) - goes_on)
    return TimerStart(skips, again, 0, None, None) if skips or again != 0 else None
