"""The answer to a pull in words: why a broker gives it, and what the consumer does with it.

Source: PullMessageProcessor#composeResponseHeader for the response code of a status,
DefaultMQPushConsumerImpl#pullMessage for what a push consumer makes of it.
"""

from rmqinspect.broker import pull as statuses
from rmqinspect.broker.pull import Answer, Pull
from rmqinspect.text import count, group_digits

_AT_ONCE = "the consumer asks again at once, from offset {next}"
_WAITS = (
    "the broker holds the request up to 15 s until a message arrives; then the consumer asks again from offset {next}"
)
_CORRECTS = "the consumer drops what it has of the queue, and begins it again at offset {next}"


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
    }
    more = [
        f"{count(answer.filtered, 'unit')} left out by tag" if answer.filtered else "",
        f"{count(answer.unreadable, 'unit')} passed over: not in the log, or in the same segment behind one that is not"
        if answer.unreadable
        else "",
    ]
    return "; ".join(filter(None, (reasons[answer.status], *more)))


def consequence(asked: Pull, answer: Answer, dropped: int = 0) -> str:
    """Return what the consumer does next; `dropped`: messages that are given, but not of a tag it asked for."""
    return _THEN[answer.status](asked, answer, dropped).format(next=group_digits(answer.next_offset))


def _found(_: Pull, answer: Answer, dropped: int) -> str:
    messages = sum(unit.messages for unit in answer.units)
    given = f"the consumer gets {count(messages, 'message')}, and asks again from offset {{next}}"
    if not dropped:
        return given
    return f"{given}; it drops {dropped} of them: another tag with the same hash"


def _too_small(asked: Pull, answer: Answer, _: int) -> str:
    lost = answer.min_offset - max(asked.offset, 0)
    return f"{_CORRECTS}; {count(lost, 'offset')} below it cannot be consumed any more"


def _far_behind(_: Pull, answer: Answer, __: int) -> str:
    again = answer.max_offset - answer.next_offset
    return f"{_CORRECTS}; it consumes {count(again, 'message')} there again" if again else _CORRECTS


def _no_messages(asked: Pull, _: Answer, __: int) -> str:
    return _CORRECTS if asked.offset else _WAITS


def _no_unit(asked: Pull, answer: Answer, _: int) -> str:
    skipped = answer.next_offset - asked.offset
    return f"{_WAITS}; {count(skipped, 'offset')} are skipped" if skipped > 0 else _WAITS


_THEN = {
    statuses.FOUND: _found,
    statuses.NO_MATCHED_MESSAGE: lambda *_: _AT_ONCE,
    statuses.MESSAGE_WAS_REMOVING: lambda *_: _AT_ONCE,
    statuses.NO_MESSAGE_IN_QUEUE: _no_messages,
    statuses.OFFSET_TOO_SMALL: _too_small,
    statuses.OFFSET_OVERFLOW_ONE: lambda *_: _WAITS,
    statuses.OFFSET_OVERFLOW_BADLY: _far_behind,
    statuses.OFFSET_FOUND_NULL: _no_unit,
}
