"""The screen of `groups`: who is behind, what was popped, dead letters, what nobody consumes.

group           topic      queues     lag  lost  oldest unconsumed          inflow
order-service   orders          8  10 240     0  2026-11-21T08:38:19.980Z    3.2/s
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from typing import TYPE_CHECKING

from rmqinspect.cli.labelled import Screen, line_width, pad
from rmqinspect.commands import UNCONSUMED, fill_command
from rmqinspect.find.group_survey import GroupSurvey, GroupTopic, TopicContent, add_times
from rmqinspect.find.offset_files import OffsetFile
from rmqinspect.system.uri import shown
from rmqinspect.text import cell_width, count, cut_cells, describe_duration, escape, group_digits
from rmqinspect.times import format_micros, format_millis

if TYPE_CHECKING:
    from rmqinspect.store.model import Store
    from rmqinspect.tables.table import Request

_SCREEN = Screen(indent=14, phrases=True)
_LISTED = 20  # lines of groups, unless -n or -v says otherwise
_SOME = 6  # lines of everything else
_NARROWEST = 12  # cells of a name that is cut
_HOUR = 3600


@dataclass(frozen=True, slots=True)
class Look:
    """How the screen is printed."""

    zone: tzinfo
    paths: tuple[str, ...]  # as given, for the commands to run next
    limit: int | None  # lines of each kind; None: as many as fit

    def lines(self, usual: int) -> int:
        """Return how many lines of a kind are shown."""
        return usual if self.limit is None else self.limit


def lines_of(survey: GroupSurvey, store: "Store", look: Look, request: "Request") -> Iterator[str]:
    """Yield the screen of one store; the times of the lines that are shown are read for it."""
    zone, listed = look.zone, look.lines(_LISTED)
    yield from _SCREEN.rows("store", _store(survey, store, zone))
    yield from _SCREEN.several("offsets", _offsets(survey, store, zone))
    lines = survey.lines
    if lines:
        yield from _SCREEN.rows("lag", _sums(lines) if survey.queues else "not known: no consume queue was given")
        telling = [line for line in lines if line.weight] if look.limit is None else lines
        shown_lines = (telling or lines)[:listed]
        add_times(store, shown_lines, request)
        yield from _table(shown_lines, zone, known=survey.queues > 0)
        rest = lines[len(shown_lines) :] if telling is lines else _others(lines, shown_lines)
        yield from _rest(rest, known=survey.queues > 0)
    some = look.lines(_SOME)
    yield from _SCREEN.several("popped", _folded(_popped(lines), some, "topic"))
    retries, dead = (_contents(topics, survey, store, zone) for topics in (survey.retries, survey.dead_letters))
    yield from _SCREEN.several("retry", _folded(retries, some, "topic"))
    yield from _SCREEN.several("dead letters", _folded(dead, some, "topic"))
    yield from _SCREEN.several("nobody", _nobody(survey, some))
    yield from _next(lines, look)


# --- the head ---------------------------------------------------------------------------------------------


def _store(survey: GroupSurvey, store: "Store", zone: tzinfo) -> str:
    groups = {line.group for line in survey.lines}
    queues = {(line.topic, one.entry.queue_id) for line in survey.lines for one in line.positions}
    topics = {topic for topic, _ in queues}
    last = "" if survey.last_time is None else f"; last message {_moment(survey.last_time, zone)}"
    where = f" with offsets in {count(len(queues), 'queue')} of {count(len(topics), 'topic')}" if groups else ""
    return f"{store.name}: {count(len(groups), 'group')}{where}{last}"


def _offsets(survey: GroupSurvey, store: "Store", zone: tzinfo) -> Iterator[str]:
    for file in survey.files:
        yield _file(file, survey, zone)
        for copy in file.copies:
            if copy.behind or copy.ahead:
                ahead = f", {count(copy.ahead, 'message')} not at all" if copy.ahead else ""
                yield f"{copy.file}: with it {count(copy.behind, 'message')} would be consumed again{ahead}"
    if not survey.files:
        config = bool(store.config_files or store.unpacked_config)
        yield "none: no consumerOffset.json that can be read" if config else "none: no config folder was given"


def _file(file: OffsetFile, survey: GroupSurvey, zone: tzinfo) -> str:
    text = file.file
    if file.written is not None:
        text += f", written {_moment(file.written, zone)}{_against(file.written, survey.last_time)}"
    elif file.version_time is not None:
        text += f", changed {_moment(file.version_time, zone)} by its dataVersion"
    if file.is_copy:
        text += (
            f": the file itself is not there or broken; what was consumed since then comes again, "
            f"at most {count(survey.lag, 'message')}"
        )
    return text


def _against(written: int, last: int | None) -> str:
    if last is None:
        return ""
    distance = describe_duration(abs(last - written) / 1000)
    return f", {distance} {'before' if written < last else 'after'} the last message"


def _sums(lines: Sequence[GroupTopic]) -> str:
    others = [line for line in lines if line.kind != "system"]
    parts: list[str] = []
    for name, value in (
        ("{} not consumed", lambda line: line.lag),
        ("{} deleted before they were consumed", lambda line: line.lost),
        ("offsets {} beyond the end of their queue", lambda line: line.beyond),
    ):
        total, groups = _total(others, value)
        if total or not parts:
            of = f" by {count(groups, 'group')}" if groups else ""
            parts.append(name.format(count(total, "message")) + of)
    return "; ".join(parts)


def _total(lines: Sequence[GroupTopic], value: Callable[[GroupTopic], int]) -> tuple[int, int]:
    return sum(map(value, lines)), len({line.group for line in lines if value(line)})


# --- the lines of groups ----------------------------------------------------------------------------------


def _table(lines: Sequence[GroupTopic], zone: tzinfo, *, known: bool) -> Iterator[str]:
    """Yield a header and a line for each; a column in which nothing is said is left out. `known`: whether lags are."""
    columns: list[tuple[str, list[str]]] = [
        ("group", [escape(line.group) for line in lines]),
        ("topic", [escape(line.topic) for line in lines]),
        ("queues", [group_digits(len(line.positions)) for line in lines]),
        ("lag", [group_digits(line.lag) if known else "-" for line in lines]),
    ]
    columns += [
        (name, [group_digits(number) for number in numbers])
        for name, numbers in (("lost", [line.lost for line in lines]), ("beyond", [line.beyond for line in lines]))
        if any(numbers)
    ]
    columns.append(("oldest unconsumed", [_micros(line.oldest_unconsumed, zone) for line in lines]))
    columns.append(("inflow", [_rate(line.inflow) for line in lines]))
    widths = [max(cell_width(text) for text in (name, *texts)) for name, texts in columns]
    while sum(widths) + 2 * (len(widths) - 1) > line_width() and max(widths[:2]) > _NARROWEST:
        widths[widths.index(max(widths[:2]))] -= 1
    for row in zip(*((name, *texts) for name, texts in columns), strict=True):
        cells = [
            pad(_clip(text, width), width) if number < 2 else " " * (width - cell_width(text)) + text
            for number, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()


def _clip(text: str, width: int) -> str:
    return text if cell_width(text) <= width else cut_cells(text, width - 1) + "…"


def _others(lines: Sequence[GroupTopic], told: Sequence[GroupTopic]) -> list[GroupTopic]:
    known = {(line.group, line.topic) for line in told}
    return [line for line in lines if (line.group, line.topic) not in known]


def _rest(lines: Sequence[GroupTopic], *, known: bool) -> Iterator[str]:
    if lines:
        lag = sum(line.lag for line in lines)
        behind = f", lag {group_digits(lag)}" if lag else " without lag" if known else ""
        yield f"and {count(len(lines), 'line')} of {count(len({line.group for line in lines}), 'group')}{behind} (-v)"


def _rate(an_hour: int | None) -> str:
    if an_hour is None:
        return "-"
    return f"{an_hour / _HOUR:.1f}/s" if an_hour >= _HOUR else f"{an_hour}/h"


def _micros(moment: int | None, zone: tzinfo) -> str:
    return "-" if moment is None else format_micros(moment, zone)


def _moment(milliseconds: int, zone: tzinfo) -> str:
    return format_millis(milliseconds, zone) or f"{milliseconds} ms, not a valid time"


# --- what follows -----------------------------------------------------------------------------------------


def _popped(lines: Sequence[GroupTopic]) -> Iterator[str]:
    for line in lines:
        if line.pops is not None:
            to_pop = f"{count(line.lag, 'message')} to pop" if line.lag else "popped to the end"
            waiting = line.pops.awaiting_revive
            parts = (
                f"{group_digits(line.pops.in_flight)} in flight, {group_digits(line.pops.acked)} acknowledged",
                f"{group_digits(waiting)} due again and not revived" if waiting else "",
            )
            yield f"{line.group} of {line.topic}: {to_pop}; {', '.join(filter(None, parts))}"


def _contents(topics: Sequence[TopicContent], survey: GroupSurvey, store: "Store", zone: tzinfo) -> Iterator[str]:
    from rmqinspect.commitlog.store_timestamps import StoreTimes

    with StoreTimes(store) as times:
        for one in topics:
            stored = None if one.newest is None else times.at(*one.newest)
            newest = "" if stored is None else f", the last one {_moment(stored, zone)}"
            gone = "" if one.group in survey.groups or not survey.readable else "; the group has no offsets"
            yield f"{one.topic}: {count(one.messages, 'message')}{newest}{gone}"


def _nobody(survey: GroupSurvey, some: int) -> Iterator[str]:
    if not survey.readable:
        return
    topics = sorted(survey.unconsumed, key=lambda one: -one.messages)
    if topics:
        words = [f"{one.topic} ({count(one.messages, 'message')})" for one in topics[:some]]
        more = f" and {count(len(topics) - some, 'more topic')}" if len(topics) > some else ""
        yield f"no group has an offset in {', '.join(words)}{more}"
    if survey.light_queues:
        yield f"no group has an offset in {count(survey.light_queues, 'light queue')} (%LMQ%)"


def _folded(texts: Iterator[str], some: int, noun: str) -> Iterator[str]:
    """Yield the first texts, and how many follow."""
    for number, text in enumerate(texts):
        if number == some:
            yield f"and {count(1 + sum(1 for _ in texts), f'more {noun}')}"
            return
        yield text


def _next(lines: Sequence[GroupTopic], look: Look) -> Iterator[str]:
    worst = next((line.group for line in lines if line.lag and line.kind not in ("system", "broadcast")), None)
    if worst is not None:
        yield from _SCREEN.command("next", fill_command(UNCONSUMED, stores=tuple(map(shown, look.paths)), group=worst))
