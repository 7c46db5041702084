"""The life of a message in words, for `find`: one chain for the message, one for each group.

    life        delayed 10 s (level 3) -> delivered to orders queue 1 offset 4, 2026-11-21T08:48:38Z
    g_dlq_2     passed -> delayed 1 s (level 1) -> %RETRY%g_dlq_2 offset 1, 2026-11-21T09:22:52Z

(with real arrows). `life_document` has the same as plain values.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, tzinfo
from typing import Any

from msgspec.structs import asdict

from rmqinspect.cli.terminal import Screen
from rmqinspect.find.life import GroupLife, Life, Passing
from rmqinspect.find.life_index import KeyEntry
from rmqinspect.find.life_records import MessagePop, Step
from rmqinspect.find.life_traces import Traced
from rmqinspect.find.queue_units import Unit
from rmqinspect.tables.redact import Redaction
from rmqinspect.text import count, describe_duration, describe_offset, describe_size, group_digits
from rmqinspect.times import format_millis, format_seconds

_SCREEN = Screen(indent=12)
_ARROW = " → "
_MOST_GROUPS = 20  # with lines of their own, and named in a line, unless all are asked for
_HIDDEN = "hidden"
# A broker keeps the tags that a group asks for in memory alone; consumerFilter.json has SQL filters.
# Source: ConsumerManager, ConsumerFilterManager#register.
_PASSED = ": offset beyond it; filtered or processed, no file says which"
_WORDS = {"hosts": "msg_id", "keys": "key"}  # what is masked, and the kind of key that it masks


def life_lines(
    life: Life,
    zone: tzinfo = UTC,
    redaction: Redaction | None = None,
    *,
    record: str | None = None,
    everything: bool = False,
) -> Iterator[str]:
    """Yield the lines of one life, escaped.

    `record` is what stands before the record's place; None: the record is not named. `everything`: a line for each
    group.
    """
    words = _Words(life, zone)
    if record is not None:
        yield from _SCREEN.rows("record", f"{record}{describe_offset(life.record.physical_offset)}")
    yield from _SCREEN.rows("life", _ARROW.join(words.main_chain()))
    yield from _SCREEN.rows("transaction", (life.transaction.why if life.transaction else None) or "")
    units = (
        f"{unit.topic} queue {unit.queue_id} offset {group_digits(unit.queue_offset)}: {unit.state}"
        + (f": {_detail(unit, redaction)}" if unit.detail else "")
        for unit in life.units
    )
    yield from _SCREEN.several("queue unit", units)
    yield from _SCREEN.several("index", _index_words(life.entries, redaction))
    yield from _group_lines(life, words, everything=everything)
    yield from _SCREEN.several("trace", _trace_words(life, words, redaction, everything=everything))
    if life.stored_twice:
        yield from _SCREEN.rows("stored", f"{count(1 + len(life.stored_twice), 'time')}: the producer sent it again")
    if life.others:
        yield from _SCREEN.rows("same id", f"{count(len(life.others), 'other message')}, as in a batch of one id")
    unknown = list(life.remarks)
    if left := sum(end - start for start, end in life.searched.not_read):
        unknown.insert(
            0, f"copies in {describe_size(left)} of the log that the index does not cover; --scan reads them"
        )
    yield from _SCREEN.several("not known", unknown)


class _Words:
    """Words for the steps of one life."""

    def __init__(self, life: Life, zone: tzinfo) -> None:
        self._life = life
        self._zone = zone

    def iso(self, time: int | None) -> str | None:
        """Return ms since 1970 as ISO 8601; None outside the years 1 to 9999."""
        return None if time is None else format_millis(time, self._zone)

    def time(self, time: int | None) -> str:
        """Return a time in seconds."""
        text = None if time is None else format_seconds(time, self._zone)
        return text or "at an unknown time"

    def main_chain(self) -> Iterator[str]:
        """Yield what became of the message itself, step by step; retries belong to their groups."""
        life = self._life
        checks = life.transaction.checks if life.transaction else 0
        halves = {step.physical_offset for step in life.steps if step.copy.kind == "half"}
        checked = 0
        sent = 0
        for step in life.steps:
            kind, place = step.copy.kind, self.place(step)
            if step.copy.group is not None:
                continue
            if kind == "half":
                checked += 1
                if checked == 1:
                    yield f"half message {place}"
                if step.physical_offset == max(halves) and checks:
                    yield f"checked {count(checks, 'time')}"
            elif kind == "sent":
                sent += 1
                batch = f" ({count(step.copy.messages, 'message')})" if step.copy.messages > 1 else ""
                yield f"{'sent' if sent == 1 else 'sent again'} to {place}{batch}"
            elif kind == "scheduled":
                yield f"{'committed, ' if step.links.half is not None else ''}{self._delay(step)}"
            elif kind == "timer":
                due = f"on the timer wheel since {self.time(step.store_timestamp)}, due {self.time(step.copy.due)}"
                yield f"rolled {count(step.copy.rolls, 'time')}" if step.copy.rolls else due
            elif kind not in ("timer_cancel", "rollback") or step is life.record:
                yield f"{_VERBS.get(kind, kind)} {place}"
        yield from self._ending()

    def _ending(self) -> Iterator[str]:
        """Yield how the chain ends where no record of the message says it."""
        life = self._life
        if life.transaction is not None:
            match life.transaction.state:
                case "rolled_back":
                    places = {step.physical_offset for step in life.steps}
                    what = "rollback" if life.transaction.op in places else "op"
                    yield f"rolled back by the {what} record at {describe_offset(life.transaction.op or 0)}"
                case "pending":
                    yield f"pending{self._bound('for')}"
                case "outcome_unknown":
                    yield "neither commit nor rollback found"
        kinds = [step.copy.kind for step in life.steps if step.copy.group is None]
        if life.cancelled_by is not None:
            yield f"cancelled by the record at {describe_offset(life.cancelled_by)}"
        elif kinds and kinds[-1] in ("scheduled", "timer"):
            # Without an id nothing leads to a copy.
            sure = not life.searched.not_read and "UNIQ_KEY" in life.record.properties
            yield f"{'not delivered' if sure else 'no delivery found'}{self._bound('to')}"

    def _bound(self, word: str) -> str:
        bound = next((step.copy.bound_for for step in self._life.steps if step.copy.bound_for is not None), None)
        return f" {word} {bound[0]} queue {bound[1]}" if bound is not None else ""

    def group_chain(self, group: GroupLife) -> Iterator[str]:
        """Yield what a group did with the message, step by step."""
        own = {(step.topic, step.queue_id, step.queue_offset) for step in group.steps}
        pops = {pop.physical_offset: pop for pop in group.pops}
        others = [passing for passing in group.passings if _queue(passing) not in own]
        popped = [pops[step.physical_offset] for step in self._life.steps if step.physical_offset in pops]
        popped = [pop for pop in popped if pop.physical_offset not in {step.physical_offset for step in group.steps}]
        if popped:
            yield from (f"popped {self._pop(pop)}" for pop in popped)
        else:
            named, gave_back = len(others) > 1, bool(group.steps)
            yield from (self._passing(passing, named=named, gave_back=gave_back) for passing in others)
        for step in group.steps:
            if step.copy.kind == "scheduled":
                last = step is group.steps[-1]
                yield self._delay(step) + (f", due {self.time(step.copy.due)}" if last else "")
                continue
            state = ""
            if step.physical_offset in pops:
                state = f", popped {self._pop(pops[step.physical_offset])}"
            elif step.copy.kind != "dlq":
                place = (step.topic, step.queue_id, step.queue_offset)
                places = (passing for passing in group.passings if _queue(passing) == place)
                state = "".join(f", {self._passing(passing, named=False)}" for passing in places)
            yield f"{self.place(step)}{state}"

    def _passing(self, passing: Passing, *, named: bool, gave_back: bool = False) -> str:
        """Return how a group stands to a place of the message; `gave_back`: it is there again for the group."""
        where = ""
        if named:
            where = f" {passing.topic} queue {passing.queue_id} offset {group_digits(passing.queue_offset)}"
        passed = passing.passed
        done = passed.consumer_offset - passing.queue_offset
        if 0 < done < passing.messages:
            return f"passed {done} of {count(passing.messages, 'message')}{where}"
        if passed.passed:
            return f"passed{where}"
        if passed.lost:
            return f"lost{where}: below the queue's minimum"
        offset = group_digits(passed.consumer_offset)
        if gave_back:
            return f"consumed{where} and given back, though its offset is {offset}: the offsets are older"
        if passed.as_of is not None:
            stored = next(
                (step.store_timestamp for step in self._life.steps if _queue(passing) == _place_of(step)), None
            )
            return f"not known{where}: the offsets are of {self.time(passed.as_of)}, the message of {self.time(stored)}"
        return f"not passed{where}: its offset is {offset}"

    def place(self, step: Step) -> str:
        """Return where and when a step is stored."""
        queue = f" queue {step.queue_id}" if step.queue_id or step.copy.kind in _QUEUES_MATTER else ""
        return f"{step.topic}{queue} offset {group_digits(step.queue_offset)}, {self.time(step.store_timestamp)}"

    def _delay(self, step: Step) -> str:
        level = f"level {step.copy.level}"
        if step.copy.due is None or step.store_timestamp is None:
            return f"delayed ({level})"
        # ScheduleMessageService delivers up to a second late; the level has whole seconds.
        return f"delayed {describe_duration(round((step.copy.due - step.store_timestamp) / 1000))} ({level})"

    def _pop(self, pop: MessagePop) -> str:
        times = f"{count(pop.pops, 'time')}, last " if pop.pops > 1 else ""
        state = "acknowledged" if pop.acknowledged else f"not acknowledged until {self.time(pop.visible_again)}"
        return f"{times}{self.time(pop.pop_time)}, {state}"


_VERBS = {
    "commit": "committed to",
    "delivered": "delivered to",
    "given_up": "given up to",
    "rollback": "rollback record",
    "op": "op record",
    "timer_cancel": "cancels a timer message,",
    "checkpoint": "checkpoint of a pop,",
    "ack": "ack of a pop,",
}
_QUEUES_MATTER = frozenset({"sent", "commit", "delivered", "checkpoint", "ack", "rollback"})


def _queue(passing: Passing) -> tuple[str, int, int]:
    return passing.topic, passing.queue_id, passing.queue_offset


def _place_of(step: Step) -> tuple[str, int, int]:
    return step.topic, step.queue_id, step.queue_offset


def _detail(unit: Unit, redaction: Redaction | None) -> str:
    """Return what is wrong with a unit, which may quote a tags code."""
    return _HIDDEN if redaction is not None and redaction.hides("tags") and "tags code" in unit.detail else unit.detail


def _index_words(entries: Sequence[KeyEntry], redaction: Redaction | None) -> Iterator[str]:
    """Yield the keys by what leads to them: nearly always one file has all."""
    by_files: dict[tuple[tuple[str, ...], str], list[str]] = {}
    for entry in entries:
        name = "msg id" if entry.kind == "msg_id" else f"key {_key(entry, redaction) or _HIDDEN}"
        by_files.setdefault((entry.files, entry.detail), []).append(name)
    for (files, detail), names in by_files.items():
        without = detail if detail.startswith("not known") else f"no entry: {detail}"
        yield f"{', '.join(names)}: {', '.join(files) or without}"


def _key(entry: KeyEntry, redaction: Redaction | None) -> str | None:
    """Return a key as it may be shown; None: not at all."""
    word = next(word for word, kind in _WORDS.items() if kind == entry.kind)
    if redaction is None or not redaction.hides(word):
        return entry.key
    return redaction.value(word, entry.key.encode("utf-8", "surrogateescape"))


def _group_lines(life: Life, words: _Words, *, everything: bool) -> Iterator[str]:
    """Yield a line for each group that did more than to pass the message, and one for those that did not."""
    chains = {group.group: _ARROW.join(words.group_chain(group)) for group in life.groups}
    plain = {group.group for group in life.groups if len(group.passings) == 1 and not group.steps and not group.pops}
    shown = [group for group in chains if everything or group not in plain]
    most = len(shown) if everything else _MOST_GROUPS
    for group in shown[:most]:
        yield from _SCREEN.rows(group, chains[group])
    if len(shown) > most:
        yield from _SCREEN.rows("", f"and {count(len(shown) - most, 'group')} more with retries")
    proven = {one.group for one in life.traces if one.kind == "consumed"}  # a trace says more
    alike: dict[str, list[str]] = {}
    for group in sorted(plain - set(shown)):
        alike.setdefault(chains[group].partition(":")[0], []).append(group)
    for words_of, all_names in alike.items():
        names = [name for name in all_names if words_of != "passed" or name not in proven]
        if not names:
            continue
        more = f" and {count(len(names) - most, 'group')} more" if len(names) > most else ""
        why = _PASSED if words_of == "passed" else ""
        if words_of == "not known":
            why = chains[names[0]].removeprefix(words_of)
        yield from _SCREEN.rows(words_of, ", ".join(names[:most]) + more + why)
    if life.groups_unknown is not None:
        yield from _SCREEN.rows("groups", f"not known: {life.groups_unknown}")
    elif not life.groups and any(step.copy.is_consumed for step in life.steps):
        yield from _SCREEN.rows("groups", "none has an offset in its queue")


# --- traces ---------------------------------------------------------------------------------------

_MOST_TRACES = 40  # with lines of their own, unless all are asked for
# Source: ConsumeReturnType, ConsumeMessageConcurrentlyService.ConsumeRequest#run.
_RESULTS = {"TIME_OUT": "after the timeout", "EXCEPTION": "an exception", "RETURNNULL": "no answer"}


def _trace_words(life: Life, words: _Words, redaction: Redaction | None, *, everything: bool) -> Iterator[str]:
    """Yield what clients traced, a line each; where they traced other messages only, that."""
    if life.trace_topics and not life.traces:
        yield f"none in {', '.join(life.trace_topics)}: what is not traced may have happened all the same"
    most = len(life.traces) if everything else _MOST_TRACES
    for one in life.traces[:most]:
        client = _client(one, redaction)
        yield f"{_traced(one, words)}{f', from {client}' if client else ''}"
    if len(life.traces) > most:
        yield f"and {count(len(life.traces) - most, 'trace')} more"


def _traced(one: Traced, words: _Words) -> str:
    group = one.group or "an unknown group"
    cost = "" if one.cost_ms is None else f" in {group_digits(one.cost_ms)} ms"
    match one.kind:
        case "sent":
            batch = f" with {count(one.messages - 1, 'other')}" if one.messages > 1 else ""
            return f"sent{batch} by {group}, {words.time(one.began)}{cost}: {_outcome(one)}"
        case "ended":
            state = {"COMMIT_MESSAGE": "committed", "ROLLBACK_MESSAGE": "rolled back", "UNKNOW": "left undecided"}
            checked = " when the broker asked" if one.from_check else ""
            return f"{state.get(one.transaction_state or '', 'ended')} by {group}, {words.time(one.began)}{checked}"
        case "recalled":
            return f"recalled by {group}, {words.time(one.began)}: {_outcome(one)}"
    retry = f", retry {one.reconsume_times}" if one.reconsume_times else ""
    if one.success is None:
        return f"given to {group}, {words.time(one.began)}{retry}: its end is not traced"
    return f"consumed by {group}, {words.time(one.ended or one.began)}{cost}{retry}: {_outcome(one)}"


def _outcome(one: Traced) -> str:
    how = _RESULTS.get(one.result or "")
    return ("success" if one.success else "failed") + (f", {how}" if how else "")


def _client(one: Traced, redaction: Redaction | None) -> str | None:
    """Return the address of the client as it may be shown; None: not at all."""
    if one.client is None or redaction is None or not redaction.hides("hosts"):
        return one.client
    return redaction.value("hosts", one.client.encode())


def _trace_document(one: Traced, words: _Words, redaction: Redaction | None) -> dict[str, Any]:
    times = {"began": words.iso(one.began), "ended": words.iso(one.ended)}
    return {**asdict(one), **times, "client": _client(one, redaction), "places": list(one.places)}


# --- as a document --------------------------------------------------------------------------------


def life_document(life: Life, zone: tzinfo = UTC, redaction: Redaction | None = None) -> dict[str, Any]:
    """Return one life as plain values: places are physical offsets, times ISO 8601 in `zone`."""
    words = _Words(life, zone)
    return {
        "physical_offset": life.record.physical_offset,
        "life": _ARROW.join(words.main_chain()),
        "units": [{**asdict(unit), "detail": _detail(unit, redaction)} for unit in life.units],
        "index": [
            {"kind": entry.kind, "key": _key(entry, redaction), "files": list(entry.files), "detail": entry.detail}
            for entry in life.entries
        ],
        "steps": [_step_document(step, words) for step in life.steps],
        "stored_again": list(life.stored_twice),
        "cancelled_by": life.cancelled_by,
        "same_id": list(life.others),
        "transaction": asdict(life.transaction) if life.transaction is not None else None,
        "groups": [_group_document(group, words) for group in life.groups],
        "traces": [_trace_document(one, words, redaction) for one in life.traces],
        "trace_topics": list(life.trace_topics),
        "searched": {
            "index_files": life.searched.index_files,
            "read": _spans(life.searched.read),
            "not_read": _spans(life.searched.not_read),
        },
        "remarks": list(life.remarks),
        "groups_unknown": life.groups_unknown,
    }


def _spans(spans: Iterable[tuple[int, int]]) -> list[dict[str, int]]:
    return [{"start": start, "end": end} for start, end in spans]


def _step_document(step: Step, words: _Words) -> dict[str, Any]:
    copy = step.copy
    bound = copy.bound_for
    return {
        "physical_offset": step.physical_offset,
        "kind": copy.kind,
        "topic": step.topic,
        "queue_id": step.queue_id,
        "queue_offset": step.queue_offset,
        "store_timestamp": words.iso(step.store_timestamp),
        "group": copy.group,
        "reconsume_times": step.reconsume_times,
        "level": copy.level,
        "due": words.iso(copy.due),
        "real_topic": bound[0] if bound is not None else None,
        "real_queue_id": bound[1] if bound is not None else None,
        "messages": copy.messages,
        "status": step.status,
    }


def _group_document(group: GroupLife, words: _Words) -> dict[str, Any]:
    return {
        "group": group.group,
        "chain": _ARROW.join(words.group_chain(group)),
        "queues": [
            {
                "topic": passing.topic,
                "queue_id": passing.queue_id,
                "queue_offset": passing.queue_offset,
                "consumer_offset": passing.passed.consumer_offset,
                "passed": passing.passed.passed,
                "lost": passing.passed.lost,
                "known_until": words.iso(passing.passed.as_of),
            }
            for passing in group.passings
        ],
        "steps": [step.physical_offset for step in group.steps],
        "pops": [
            {
                "physical_offset": pop.physical_offset,
                "pop_time": words.iso(pop.pop_time),
                "visible_again": words.iso(pop.visible_again),
                "acknowledged": pop.acknowledged,
                "pops": pop.pops,
            }
            for pop in group.pops
        ],
    }
