"""Why a broker answers a pull so, and what becomes of it, in words.

Source: PullMessageProcessor#composeResponseHeader for the response code of a status,
DefaultMQPushConsumerImpl#pullMessage for what a push consumer makes of it.
"""

from collections import Counter
from collections.abc import Sequence

from rmqinspect.broker import pull as statuses
from rmqinspect.broker.client import WRONG
from rmqinspect.broker.pull import Answer, Pull, Unit
from rmqinspect.find.pull_answers import Given, Refused
from rmqinspect.text import count, group_digits

REFUSED = "REFUSED"
"""The status of a pull that is refused before the broker looks into the queue."""

_MOST_RANGES = 5

_AGAIN = "the consumer gets {messages}, and asks again from offset {next}"
_AT_ONCE = "the consumer asks again at once, from offset {next}"
_WAITS = (
    "the broker holds the request up to 15 s until a message arrives; then the consumer asks again from offset {next}"
)
_CORRECTS = "the consumer drops what it has of the queue, and begins it again at offset {next}"
_FAILS = "the consumer asks again from offset {next}, and gets no message; its group never gets beyond offset {failing}"


def why_refused(refused: Refused) -> str:
    """Return why a broker refuses, in its words."""
    return refused.refusal.remark


def after_refusal(refused: Refused) -> str:
    """Return what becomes of the messages of a queue that is refused."""
    waiting = refused.max_offset - refused.min_offset
    cure = f"to have it answer: {refused.refusal.cure}"
    if not waiting:
        return f"the consumer gets nothing; {cure}"
    return f"no consumer gets the {count(waiting, 'message')} of the queue as long as the broker refuses; {cure}"


def why(asked: Pull, answer: Answer) -> str:
    """Return why a broker gives this answer."""
    low, high = group_digits(answer.min_offset), group_digits(answer.max_offset)
    scanned = count(max(answer.next_offset - asked.offset, 0), "offset")
    reasons = {
        statuses.FOUND: f"{scanned} scanned",
        statuses.NO_MATCHED_MESSAGE: f"{scanned} scanned, and none has a tags code that is asked for",
        statuses.MESSAGE_WAS_REMOVING: f"{scanned} scanned, and no record of them is in the log",
        statuses.NO_MESSAGE_IN_QUEUE: "the queue is empty, or is made now, as it is asked for",
        statuses.OFFSET_TOO_SMALL: f"the queue begins at {low}",
        statuses.OFFSET_OVERFLOW_ONE: f"the queue ends before {high}: there is no newer message",
        statuses.OFFSET_OVERFLOW_BADLY: f"the queue ends before {high}, "
        f"{count(asked.offset - answer.max_offset, 'offset')} before the one asked for",
        statuses.OFFSET_FOUND_NULL: f"the queue goes from {low} to {high}, but no file or entry holds the unit",
        statuses.SYSTEM_ERROR: _why_failing(answer.failing),
    }
    passed = len(answer.passed)
    more = [
        f"{count(answer.filtered, 'unit')} left out by tag" if answer.filtered else "",
        f"{count(passed, 'unit')} passed over: not in the log, or in the same segment behind one that is not"
        if passed
        else "",
    ]
    return "; ".join(filter(None, (reasons[answer.status], *more)))


def _why_failing(unit: Unit | None) -> str:
    if unit is None:
        return ""
    return (
        f"the unit at offset {group_digits(unit.queue_offset)} names {unit.size} bytes, which are no record: "
        "the broker fails with an exception"
    )


def consequence(asked: Pull, given: Given, dropped: int = 0) -> str:
    """Return what the consumer does next; `dropped`: messages that are given, but not of a tag it asked for."""
    answer = given.answer
    then = {
        statuses.FOUND: _AGAIN,
        statuses.NO_MATCHED_MESSAGE: _AT_ONCE,
        statuses.MESSAGE_WAS_REMOVING: _AT_ONCE,
        statuses.NO_MESSAGE_IN_QUEUE: _CORRECTS if asked.offset else _WAITS,
        statuses.OFFSET_TOO_SMALL: _CORRECTS,
        statuses.OFFSET_OVERFLOW_ONE: _WAITS,
        statuses.OFFSET_OVERFLOW_BADLY: _CORRECTS,
        statuses.OFFSET_FOUND_NULL: _WAITS,
        statuses.SYSTEM_ERROR: _FAILS,
    }[answer.status].format(
        next=group_digits(answer.next_offset),
        messages=count(given.messages, "message") if given.messages else "no message",
        failing=group_digits(answer.failing.queue_offset) if answer.failing else "",
    )
    lost = answer.min_offset - max(asked.offset, 0)
    again = answer.max_offset - answer.next_offset
    skipped = answer.next_offset - asked.offset
    more = [
        f"it drops {dropped} of them: another tag with the same hash" if dropped else "",
        f"{count(lost, 'offset')} below it cannot be consumed any more"
        if answer.status == statuses.OFFSET_TOO_SMALL
        else "",
        f"it consumes {count(again, 'message')} there again"
        if answer.status == statuses.OFFSET_OVERFLOW_BADLY and again
        else "",
        f"{count(skipped, 'offset')} are skipped"
        if answer.status == statuses.OFFSET_FOUND_NULL and skipped > 0
        else "",
        _wrong_words(given),
        _missed_words(given),
    ]
    return "; ".join(filter(None, (then, *more)))


def _wrong_words(given: Given) -> str:
    """Say what the consumer gets that is not the message of its place."""
    kinds = Counter(one.kind for one in given.wrong)
    each = [WRONG[kind] + (f" ({number} times)" if number > 1 else "") for kind, number in kinds.items()]
    total = kinds.total()
    return f"{total} of them {'is' if total == 1 else 'are'} not what was sent: {', '.join(each)}" if total else ""


def _missed_words(given: Given) -> str:
    """Say which sound messages the group leaves behind."""
    missed = given.missed
    if not missed:
        return ""
    offsets = [offset for unit in missed for offset in range(unit.queue_offset, unit.queue_offset + unit.messages)]
    undecoded = len(missed) > len(given.passed)
    cause = (
        "a client decodes no further than a record that it cannot decode"
        if undecoded
        else "they lie behind a unit whose record is not in the log"
    )
    return f"it never gets {_ranges(offsets)}, {count(len(offsets), 'sound message')}: {cause}"


def _ranges(offsets: Sequence[int]) -> str:
    """Return ascending offsets as text: `952 to 963, 970`."""
    runs: list[list[int]] = []
    for offset in offsets:
        if runs and runs[-1][-1] + 1 == offset:
            runs[-1][1:] = [offset]
        else:
            runs.append([offset])
    words = [" to ".join(map(group_digits, run)) for run in runs[:_MOST_RANGES]]
    return ", ".join(words) + (f" and {len(runs) - _MOST_RANGES} more ranges" if len(runs) > _MOST_RANGES else "")
