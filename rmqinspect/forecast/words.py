"""A start in words: the line `VERDICT` of `forecast`, and what screens, documents and other commands say of a start.

verdict_line      STARTS, LOSES DATA with 5.3.3: 145 records
loss_words        145 records, 44 messages jumped over behind damage
reach_words       44 messages of the log (orders 21, shipments 23): a pull jumps over them, behind damage
already_lost      no segment holds 1 048 576 to 2 097 152 of the log: look for …
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final

from rmqinspect.broker.eras import Era
from rmqinspect.forecast.outcome import (
    COSTS,
    SERVING,
    Alternative,
    Forecast,
    GroupStart,
    LevelStart,
    Outcome,
    Refusal,
    Verdict,
)
from rmqinspect.text import clip, count, group_digits
from rmqinspect.topics import is_system_topic

_QUEUES = ("consumequeue/", "batchconsumequeue/")
LOOK_FOR = "look for the missing segments before a broker is started"
_LISTED = 4  # ranges that are named; the others are counted


def verdict_line(forecast: Forecast) -> str:
    """Return the verdict of the worst outcome, and where releases differ, with which of them it is that.

    Other verdicts of starts that cost something follow: `STARTS EMPTY with 4.9.2 (WILL NOT START with 5.3.3): …`.
    """
    worst = forecast.worst
    runs = [(words, list(run)) for words, run in groupby(forecast.outcomes, key=outcome_words)]
    words = outcome_words(worst)
    if len(runs) == 1:
        return words
    eras: dict[Verdict, list[str]] = {}
    for said, run in runs:
        verdict = run[0].verdict
        if said == words or (verdict is not worst.verdict and verdict in COSTS):
            eras.setdefault(verdict, []).append(span_of(run))
    releases = f" with {', '.join(eras.pop(worst.verdict))}"
    others = "; ".join(f"{verdict} with {', '.join(spans)}" for verdict, spans in eras.items())
    return outcome_words(worst, f"{releases} ({others})" if others else releases)


def span_of(outcomes: Sequence[Outcome]) -> str:
    """Return the releases from the first to the last one of neighbours: `5.2.0 to 5.3.3`."""
    return str(Era(outcomes[0].era.split(" ")[0], outcomes[-1].era.split(" ")[-1]))


_TOPIC_WIDTH = 40  # cells of a topic in a sentence


def topic_words(by_topic: Mapping[str, int]) -> str:
    """Return topics with their numbers, the largest first: `orders 3 041, shipments 23 and 4 more topics`."""
    ordered = sorted(by_topic, key=lambda topic: (-by_topic[topic], topic))
    more = len(ordered) - _LISTED
    named = ", ".join(f"{clip(topic, _TOPIC_WIDTH)} {group_digits(by_topic[topic])}" for topic in ordered[:_LISTED])
    return named + (f" and {count(more, 'more topic')}" if more > 0 else "")


def reach_words(outcome: Outcome) -> Iterator[str]:
    """Yield in sentences what consumers do not get of what stays in the log."""
    for number, by_topic, noun, what in (
        (outcome.unreachable, outcome.unreachable_by_topic, "message", "no queue leads to {them} after this start"),
        (outcome.wrong, outcome.wrong_by_topic, "message", "a pull returns another record, or what is none"),
        (outcome.jumped, outcome.jumped_by_topic, "message", "a pull jumps over {them}, behind damage"),
    ):
        if number:
            named = f" ({topic_words(by_topic)})" if by_topic else ""
            yield f"{count(number, noun)} of the log{named}: {what.format(them='it' if number == 1 else 'them')}"
    if outcome.doubled:
        files = " and ".join(outcome.doubled)
        yield f"{files} begin at one place: new messages get no queue unit, and no consumer gets them"
    if outcome.loses_unknown:
        queues = count(len(outcome.lost_queues), "queue")
        topics = topic_words(Counter(queue.topic for queue in outcome.lost_queues))
        yield f"records of {queues} (queues by topic: {topics}) have no queue unit, by a sample of the log"
    if outcome.sampled:
        yield (
            "the log is long: a sample of its beginning and its end was compared with the queues; "
            "verify --level deep compares all of it"
        )


def no_queue_words(outcome: Outcome) -> str:
    """Return in a sentence what lies in the log, and nothing proves a queue of."""
    if not outcome.in_no_queue:
        return ""
    number = sum(outcome.in_no_queue.values())
    topics = topic_words(outcome.in_no_queue)
    whose = "its topic was" if len(outcome.in_no_queue) == 1 else "their topics were"
    return (
        f"{count(number, 'record')} ({topics}) in no queue, and not in topics.json: {whose} deleted, or lost with the "
        "metadata; rebuild makes the queues, topics.json has to name the topics"
    )


def delay_words(outcome: Outcome) -> Iterator[str]:
    """Yield in sentences what the broker does not deliver of delayed messages, and why."""
    levels, timer = outcome.delay_levels, outcome.timer
    if beyond := [level for level in levels if level.skips]:
        skips = count(sum(level.skips for level in beyond), "new message")
        yield (
            f"{_beyond_words(beyond)}: nothing of {_it(beyond)} is delivered until the queue has grown that far, up to "
            f"{skips} never"
        )
    if moved := [level for level in levels if level.next_offset < level.offset]:
        yield f"{_beyond_words(moved)}, and go{'es' if len(moved) == 1 else ''} on there"
    if passed := [level for level in levels if level.passed]:
        number = sum(level.passed for level in passed)
        wait = "waits" if number == 1 else "wait"
        yield (
            f"{count(number, 'message')} of {_levels(passed)} {wait} before the place where {_it(passed)} goes on: "
            "never delivered"
        )
    if gone := [level for level in levels if level.copies_gone]:
        number = sum(level.copies_gone for level in gone)
        yield (
            f"the delivered copies of {count(number, 'message')} of {_levels(gone)} are gone with the end of the log: "
            f"{level_edits(gone)} in delayOffset.json before the start, and they are delivered again"
        )
    if timer is not None and timer.skips:
        new = count(timer.skips, "new timer message")
        yield f"the timer's offset lies beyond its queue: up to {new} never delivered"
    if timer is not None and timer.until is not None:
        stuck = count(timer.stuck, "timer message")
        yield f"the timer's clock is at {timer.until}: {stuck}, and what comes, not delivered before"


def _levels(levels: Sequence[LevelStart]) -> str:
    """Return levels by number: `delay levels 1, 2 and 9`."""
    *others, last = (str(level.level) for level in levels)
    return f"delay levels {', '.join(others)} and {last}" if others else f"delay level {last}"


def _it(levels: Sequence[LevelStart]) -> str:
    return "it" if len(levels) == 1 else "each"


def _beyond_words(levels: Sequence[LevelStart]) -> str:
    """Return how far levels are beyond the ends of their queues."""
    are = "is" if len(levels) == 1 else "are"
    places = (f"{group_digits(level.offset)} of {group_digits(level.max_offset)}" for level in levels)
    return f"{_levels(levels)} {are} beyond the end of the queue (at {', '.join(places)})"


def level_edits(levels: Sequence[LevelStart]) -> str:
    """Return what to set in delayOffset.json: `1 set to 5, 9 set to 0`."""
    return ", ".join(f"{one.level} set to {group_digits(one.set_back)}" for one in levels if one.set_back is not None)


def transaction_words(outcome: Outcome) -> str:
    """Return in a sentence what becomes of transactions that are not decided."""
    if outcome.transactions is None:
        return ""
    unchecked, again = outcome.transactions.unchecked, outcome.transactions.again
    parts = [f"up to {count(unchecked, 'new half message')} not checked back"] if unchecked else []
    once_more = f"up to {count(again, 'decided half message')} checked back once more, and perhaps committed twice"
    return ", ".join((*parts, once_more) if again else parts)


_AGAIN = (
    ("groups", "to groups"),
    ("queues", "by units of lost messages"),
    ("delay_levels", "of delay levels"),
    ("timers", "of the timer (acknowledgements of pops among them)"),
    ("pops", "popped and not acknowledged"),
)


def again_words(outcome: Outcome) -> str:
    """Return in a sentence which messages come a second time: `up to 12 to groups, 3 of delay levels`."""
    again = outcome.again
    parts = [f"{group_digits(number)} {what}" for name, what in _AGAIN if (number := getattr(again, name))]
    unknown = [what for name, what in _AGAIN if getattr(again, name) is None]
    told = f"up to {', '.join(parts)}" if parts else ""
    return "; ".join(filter(None, (told, f"how many {' and '.join(unknown)} is not known" if unknown else "")))


def outcome_words(outcome: Outcome, releases: str = "") -> str:
    """Return the verdict of an outcome and its reason; `releases` follows the verdict, or who runs."""
    if is_uncounted(outcome):
        return f"STARTS{releases}; {NOT_COUNTED}"
    reason = _REASONS[outcome.verdict](outcome)
    if outcome.verdict is Verdict.RUNS:
        releases = f" (pid {outcome.lock_holder})" if (outcome.lock_holder or 0) > 0 else ""
    return f"{outcome.verdict.value}{releases}" + (f": {reason}" if reason else "")


NOT_COUNTED: Final = "what consumers lose by it was not counted"
"""What stands behind `STARTS` where nothing was counted."""


def is_uncounted(outcome: Outcome) -> bool:
    """Return whether a start cuts no record, and nobody has asked what consumers get after it: that is no verdict."""
    return outcome.verdict is Verdict.SAFE and not outcome.losses_counted


NOT_RECEIVED: Final = (
    ("unreachable", "message", "out of reach for consumers"),
    ("wrong", "message", "returned wrong"),
    ("jumped", "message", "jumped over behind damage"),
    ("skipped", "new message", "skipped by groups"),
    ("undelivered", "delayed message", "never delivered"),
)
"""What consumers do not get that a start does not delete: attribute of `Outcome`, noun, what is said of them."""


def loss_words(outcome: Outcome) -> str:
    """Return what a start that was walked loses: `145 records`; "nothing"."""
    losses = outcome.losses
    parts = [count(losses.messages, "record")] if losses.messages else []
    without_log = outcome.min_offset < 0 and losses.units
    if not outcome.losses_counted and not without_log and outcome.cuts_records:
        parts = ["records not counted"]
    for name, noun, what in NOT_RECEIVED:
        if number := getattr(outcome, name):
            parts.append(f"{count(number, noun)} {what}")
    if outcome.loses_unknown and outcome.verdict is Verdict.LOSES:
        parts.append(f"records of {count(len(outcome.lost_queues), 'queue')} out of reach, not counted")
    parts += [f"{one.holds} in {one.file}, which it does not read" for one in outcome.unread]
    if outcome.doubled:
        parts.append("all new messages, for none reaches a queue")
    if without_log:
        parts.append(f"{count(losses.units, 'queue unit')} of a log that is not here")
    return ", ".join(parts) or "nothing"


def empty_words(outcome: Outcome) -> str:
    """Return what a broker begins without, and what proves it."""
    if 0 <= outcome.min_offset < outcome.end_offset:
        return f"no queue leads to the {outcome.proofs[0]}"
    return f"without the log that {proof_words(outcome)}"


def proof_words(outcome: Outcome) -> str:
    """Return what proves the log that is not there: `3 index files and the checkpoint prove`."""
    *others, last = outcome.proofs
    if others:
        return f"{', '.join(others)} and {last} prove"
    return f"{last} {'prove' if last.endswith('s') else 'proves'}"


def already_lost(outcome: Outcome, missing: int = 0) -> list[str]:
    """Return what is gone before the start, as far as that is known; `missing`: records without a queue unit now."""
    texts = [outcome.gone_first] if outcome.gone_first else []
    if holes := outcome.holes:
        named = [f"{group_digits(start)} to {group_digits(end)}" for start, end in holes[:_LISTED]]
        more = f" and {count(len(holes) - _LISTED, 'more range')}" if len(holes) > _LISTED else ""
        texts.append(f"no segment holds {', '.join(named)}{more} of the log: {LOOK_FOR}")
    if number := outcome.misplaced:
        lie, were = ("lies", "it was") if number == 1 else ("lie", "they were")
        texts.append(
            f"at least {count(number, 'record')} {lie} elsewhere than PHYSICALOFFSET says: {were} copied or moved over "
            "what was there, or the field is damaged"
        )
    if number := outcome.units_without_record:
        texts.append(f"at least {count(number, 'queue unit')} {'leads' if number == 1 else 'lead'} to no record")
    # Where units are cut, those that are added may be theirs; records behind the new end are lost by this start.
    left = missing - outcome.healed_units
    if (
        left > 0
        and not outcome.judged
        and not outcome.losses.messages
        and not any(queue.cut and queue.added for queue in outcome.queues)
    ):
        has, gets = ("has", "gets") if left == 1 else ("have", "get")
        texts.append(f"{count(left, 'record')} of the log {has} no queue unit, and {gets} none")
    if outcome.lost_queues and outcome.verdict is Verdict.EMPTY and not missing:  # else they are lost by this start
        own = {topic: topic.startswith("%") or is_system_topic(topic) for topic, *_ in outcome.lost_queues}
        topics = sorted(own, key=lambda topic: (own[topic], topic))  # those of users first
        first = ", ".join(topics[:_LISTED]) + (f" and {len(topics) - _LISTED} more" if len(topics) > _LISTED else "")
        of = f"of {count(len(outcome.lost_queues), 'queue')} of topic{'s' if len(topics) > 1 else ''} {first}"
        texts.append(f"records {of} have no queue unit, by a sample of the log: verify counts them")
    again = sum(queue.given_twice for queue in outcome.lost_queues)
    if again and outcome.verdict is Verdict.EMPTY:
        texts.append(f"at least {group_digits(again)} of their queue offsets will be used again")
    return texts


def healed_words(outcome: Outcome, missing: int = 0) -> str:
    """Return how many of the units come back that queues miss; `missing`: how many they do, 0 if that is not known."""
    healed = outcome.healed_units
    if not healed:
        return ""
    of_all = f"{group_digits(healed)} of {count(missing, 'missing queue unit')}"
    units = of_all if healed <= missing else count(healed, "queue unit")
    return f"{units} {'comes' if healed == 1 else 'come'} back"


def unit_words(way: Alternative) -> list[str]:
    """Return how many queue units a way brings back, and how many not, as far as another way shows it; or nothing."""
    healed, missed = way.outcome.healed_units, way.units_missed
    if not (healed or missed) or way.outcome.verdict not in SERVING:
        return []
    stay = f", at least {group_digits(missed)} {'stays' if missed == 1 else 'stay'} missing" if missed else ""
    return [f"heals {count(healed, 'unit')}{stay}"]


def deleted_words(outcome: Outcome) -> list[str]:
    """Return how many files of each kind the start deletes: `1 empty segment`, `6 queue files`."""
    empty = len(outcome.empty_segments)
    queue_files = sum(file.startswith(_QUEUES) for file in outcome.deleted_files)
    kinds = (
        (len(outcome.deleted_segments) - empty, "segment"),
        (empty, "empty segment"),
        (queue_files, "queue file"),
        (len(outcome.deleted_index_files), "index file"),
    )
    return [count(number, what) for number, what in kinds if number]


def group_words(group: GroupStart) -> str:
    """Return in one sentence what a start means to a consumer group."""
    parts = []
    if group.again:
        again = f"gets {count(group.again, 'message')} again if it asks at once"
        parts.append(f"{again}, else skips up to {count(group.skips, 'new one')}")
    elif group.skips:
        parts.append(f"skips up to {count(group.skips, 'new message')}")
    if group.unconsumed:
        were = "was" if group.unconsumed == 1 else "were"
        parts.append(f"of the lost messages {group_digits(group.unconsumed)} {were} not consumed by it")
    return "; ".join(parts)


def consumer_words(outcome: Outcome) -> str:
    """Return what a start means to all consumer groups."""
    kinds = (
        ("may skip up to", [group.skips for group in outcome.groups], "new message"),
        ("may get", [group.again for group in outcome.groups], "message"),
        ("had not consumed", [group.unconsumed for group in outcome.groups], "lost message"),
    )
    parts = []
    for verb, numbers, what in kinds:
        if total := sum(numbers):
            ending = " again" if what == "message" else ""
            groups = count(sum(map(bool, numbers)), "group")
            parts.append(f"{groups} {verb} {count(total, what)}{ending}")
    return "; ".join(parts)


def refusal_words(refusal: Refusal) -> str:
    """Return which file a broker refuses, and why."""
    return refusal.why if refusal.file in refusal.why else f"{refusal.file}: {refusal.why}"


_REASONS: dict[Verdict, Callable[[Outcome], str]] = {
    Verdict.SAFE: lambda outcome: "by a sample of the log" if outcome.sampled else "",
    Verdict.LOSES: loss_words,
    Verdict.EMPTY: empty_words,
    Verdict.REFUSES: lambda outcome: outcome.refusal.file if outcome.refusal else "",
    Verdict.UNKNOWN: lambda outcome: outcome.unknown or "",
    Verdict.RUNS: lambda _: "do not start another",
}
