"""The shapes of the page's diagrams: numbers that the template draws as SVG, each with the table that says the same.

    columns    |      ▄▄         one path for each topic, stacked
               |  ▄▄▄ ██ ▄       marks above: damage, the last start; a band: what the next start loses
               +-----------
                first     last

Everything in them is a number or a text; nothing here is markup.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import tzinfo
from itertools import groupby
from typing import Any, NamedTuple

from rmqinspect.page.words import amount, grouped, moment, short, sized
from rmqinspect.times import to_micros
from rmqinspect.verify.findings import moment as parsed

WIDTH, HEIGHT = 960, 150  # of a diagram, in its own units
_TOP = 14  # room for marks
_PAUSES = 3  # the longest that are told
_SHORTEST_PAUSE = 3  # columns


class Area(NamedTuple):
    """What one topic takes of a diagram."""

    number: int  # of its colour
    name: str
    path: str  # of SVG


class Mark(NamedTuple):
    """A moment."""

    x: float | None  # None: it lies outside
    kind: str
    text: str  # with its time


class Diagram(NamedTuple):
    """Columns over time."""

    title: str
    highest: str
    areas: Sequence[Area]


class TimeLine(NamedTuple):
    """Both diagrams, and what they have in common."""

    diagrams: Sequence[Diagram]
    legend: Sequence[tuple[int, str]]  # number of the colour, topic
    step: str  # in words: how long a column is
    begin: str
    end: str
    marks: Sequence[Mark]
    more_marks: int
    outside: int  # messages with odd times
    lost: tuple[float, float] | None  # x and width of what the next start loses
    pauses: Sequence[str]
    head: Sequence[str]  # of the table: topics
    rows: Sequence[tuple[str, Sequence[int], int, int]]  # time, messages by topic, messages, bytes


def time_line(documents: Mapping[str, Any], zone: tzinfo, most: int) -> TimeLine | None:
    """Return the time line of a store in at most so many columns; None where no record was counted."""
    flow = documents.get("flow")
    if flow is None:
        return None
    begin, step, topics = _in_columns(flow, most)
    width = len(topics[0]["messages"])
    end = begin + step * width
    names = [short(one["topic"]) if one["topic"] is not None else "all other topics" for one in topics]
    diagrams = [
        _diagram("Bytes", [one["bytes"] for one in topics], names, sized),
        _diagram("Messages", [one["messages"] for one in topics], names, grouped),
    ]

    def place(time: float) -> float:
        begins, length = float(begin), float(end - begin)
        return round(min(max((time - begins) / length, 0.0), 1.0) * WIDTH, 1)

    def mark(time: int, kind: str, text: str) -> Mark:
        inside = begin <= time <= end
        return Mark(place(time) if inside else None, kind, f"{moment(time, zone)}: {text}")

    events = documents.get("events") or {"moments": [], "more": 0}
    marks = [mark(one["time"], one["kind"], one["text"]) for one in events["moments"]]
    rows = [
        (
            moment(begin + number * step, zone),
            [one["messages"][number] for one in topics],
            sum(one["messages"][number] for one in topics),
            sum(one["bytes"][number] for one in topics),
        )
        for number in range(width)
        if any(one["messages"][number] for one in topics)
    ]
    return TimeLine(
        diagrams,
        list(enumerate(names)),
        _span(step),
        moment(begin, zone),
        moment(end, zone),
        marks,
        events["more"],
        flow["outside"],
        _lost_band(documents, place),
        list(_pauses(topics, begin, step, zone)),
        names,
        rows,
    )


def _in_columns(flow: Mapping[str, Any], most: int) -> tuple[int, int, list[dict[str, Any]]]:
    """Return the begin, the step and the topics with neighbouring columns as one, until there are at most so many."""
    times = -(-len(flow["topics"][0]["messages"]) // most)
    topics = [
        {"topic": one["topic"]}
        | {
            name: [sum(one[name][first : first + times]) for first in range(0, len(one[name]), times)]
            for name in ("messages", "bytes")
        }
        for one in flow["topics"]
    ]
    return flow["begin"], flow["step"] * times, topics


def _diagram(title: str, columns: Sequence[Sequence[int]], names: Sequence[str], words: Any) -> Diagram:
    """Return areas that stand one on the other."""
    sums = [sum(column) for column in zip(*columns, strict=True)]
    highest = max(*sums, 1)
    wide = WIDTH / len(sums)
    below = [0.0] * len(sums)
    areas = []
    for number, (name, sizes) in enumerate(zip(names, columns, strict=True)):
        path = []
        for at, size in enumerate(sizes):
            if size <= 0:
                continue
            tall = size / highest * (HEIGHT - _TOP)
            bottom = HEIGHT - below[at]
            path.append(f"M{at * wide:.1f} {bottom:.1f}v-{tall:.1f}h{wide:.1f}v{tall:.1f}z")
            below[at] += tall
        areas.append(Area(number, name, "".join(path)))
    return Diagram(title, words(highest), areas)


def _lost_band(documents: Mapping[str, Any], place: Any) -> tuple[float, float] | None:
    start = documents.get("forecast") or {}
    times = [start.get(f"{which}_lost_timestamp") for which in ("first", "last")]
    if None in times:
        return None
    first, last = (place(to_micros(parsed(str(time))) / 1000) for time in times)
    return first, max(round(last - first, 1), 2.0)


def _pauses(topics: Sequence[Mapping[str, Any]], begin: int, step: int, zone: tzinfo) -> Iterator[str]:
    """Yield the longest times without a message, by their begin."""
    sums = [sum(column) for column in zip(*(one["messages"] for one in topics), strict=True)]
    runs = [(empty, list(run)) for empty, run in groupby(range(len(sums)), key=lambda number: not sums[number])]
    pauses = [(run[0], len(run)) for empty, run in runs if empty and len(run) >= _SHORTEST_PAUSE]
    longest = sorted(sorted(pauses, key=lambda pause: -pause[1])[:_PAUSES])
    for first, length in longest:
        yield f"no message from {moment(begin + first * step, zone)} to {moment(begin + (first + length) * step, zone)}"


def _span(step: int) -> str:
    units = ((86_400_000, "day"), (3_600_000, "hour"), (60_000, "minute"), (1000, "second"))
    return next(amount(step // size, name) for size, name in units if step % size == 0)


# --- bars -------------------------------------------------------------------------------------------------


class Part(NamedTuple):
    """A part of a bar, in per cent of its width."""

    kind: str
    x: float
    width: float


def bar(**numbers: int) -> list[Part]:
    """Return a bar whose parts are numbers of one whole; what is there can be seen, however little it is."""
    whole = sum(number for number in numbers.values() if number > 0)
    parts: list[Part] = []
    x = 0.0
    for kind, number in numbers.items():
        if number > 0:
            width = max(100 * number / whole, 1.0)
            parts.append(Part(kind, round(x, 2), round(min(width, 100 - x), 2)))
            x = min(x + width, 100.0)
    return parts
