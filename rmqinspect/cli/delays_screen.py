"""The screen of `delays`: counts by level, for the timer and by topic, then single messages."""

from collections.abc import Iterator, Sequence
from datetime import tzinfo
from typing import TYPE_CHECKING

from rmqinspect.cli.labelled import Screen, pad
from rmqinspect.text import cell_width, count, cut_cells, describe_duration, escape, group_digits
from rmqinspect.times import format_millis, to_micros

if TYPE_CHECKING:
    from rmqinspect.find.delay_summary import DelaySummary, PlaceCount, Row
    from rmqinspect.tables.delays import Delays

_SCREEN = Screen(12, phrases=True)
_TOPICS = 8  # on the screen
_WIDEST = 72  # cells of a column
_COUNTED = ("pending", "overdue", "delivered", "cancelled", "lost", "unknown")
_NAMES = {"timer": "timer", "rocksdb_timer": "timer in RocksDB"}


def delay_lines(summary: "DelaySummary", delays: "Delays", path: str, zone: tzinfo) -> Iterator[str]:
    """Yield the lines for one store; `path` is how its commands name it."""
    now = delays.now
    yield from _SCREEN.rows("store", _store_words(summary, delays, zone))
    yield from _SCREEN.several("not known", _unknown(delays))
    levels = {level: place for (source, level), place in summary.places.items() if source == "level" and level}
    yield from _table("levels", _level_rows(levels, delays, zone))
    for (source, _), place in sorted(summary.places.items(), key=lambda one: one[0][0]):
        if source != "level":
            yield from _SCREEN.rows(_NAMES[source].split()[0], _timer_words(source, place, delays, zone))
    topics = summary.topics.most_common(_TOPICS)
    rest = len(summary.topics) - len(topics)
    words = [f"{topic or 'records that cannot be read'} {group_digits(number)}" for topic, number in topics]
    yield from _SCREEN.rows("waiting for", ", ".join([*words, f"{count(rest, 'more topic')}"] if rest else words))
    yield from _table("next due", _message_rows(summary.next, now, zone))
    yield from _table("lost", _missing_rows(summary.missing, zone))
    yield from _SCREEN.command("next", _next(summary, delays, path))


def _store_words(summary: "DelaySummary", delays: "Delays", zone: tzinfo) -> str:
    total = sum(sum(place.states.values()) for place in summary.places.values())
    place = "in the queues and the timer" if delays.unqueued or not delays.store.segments else "in the log"
    place += "" if delays.store.segments else "; no commit log was given"
    what = "that wait" if delays.choice.waiting else place
    words = f"{delays.store.name}: {count(total, 'delayed message')} {what}; "
    if delays.now:
        told = "given with --at" if delays.choice.at is not None else "the last activity"
        words += f"overdue if due before {format_millis(delays.now, zone) or delays.now}, {told}"
    else:
        words += "nothing tells the last activity, so none is overdue: --at TIME"
    if not summary.with_system and summary.system:
        words += f"; not counted: {count(summary.system, 'message')} to topics of the broker (--system-topics)"
    return words


def _unknown(delays: "Delays") -> Iterator[str]:
    from rmqinspect.tables.delays import NO_QUEUES, unqueued_words

    if not delays.queues_given:
        yield NO_QUEUES
    if delays.unqueued:
        yield unqueued_words(delays.unqueued)


# --- levels and timer -------------------------------------------------------------------------------


def _level_rows(levels: "dict[int, PlaceCount]", delays: "Delays", zone: tzinfo) -> list[Sequence[str]]:
    if not levels:
        return []
    states = [state for state in _COUNTED if any(place.states[state] for place in levels.values())]
    rows: list[Sequence[str]] = [("level", "delay", *states, "next due", "last due", "offset")]
    offsets = delays.sources.level_offsets
    for level, place in sorted(levels.items()):
        numbers = [group_digits(place.states[state]) for state in states]
        delay = "" if place.delay is None else _span(place.delay // 1000)
        offset = "unknown" if offsets is None else group_digits(offsets.get(level, 0))
        rows.append((str(level), delay, *numbers, _second(place.next_due, zone), _second(place.last_due, zone), offset))
    return rows


def _timer_words(source: str, place: "PlaceCount", delays: "Delays", zone: tzinfo) -> str:
    sources = delays.sources
    words = [f"{state} {group_digits(place.states[state])}" for state in (*_COUNTED, "rolled") if place.states[state]]
    text = ", ".join(words) or "nothing"
    if source == "rocksdb_timer" and sources.entries is not None:
        fired = format_millis(sources.entries.checkpoints.timeline, zone)
        text = f"in RocksDB; {text}; delivered what was due before {fired or 'an unknown time'}"
    else:
        slots = len(set((sources.units.fires // sources.precision).tolist()))
        fired = format_millis(sources.read_time, zone) if sources.read_time else None
        text = f"{text}; {count(slots, 'slot')} ahead, fired before {fired or 'an unknown time'}"
    if place.next_due is not None:
        text += f"; next due {_time(place.next_due, zone)}, last {_time(place.last_due, zone)}"
    return text


# --- single messages --------------------------------------------------------------------------------


def _message_rows(messages: "Sequence[Row]", now: int, zone: tzinfo) -> list[Sequence[str]]:
    rows: list[Sequence[str]] = []
    for row in messages:
        due = _due(row)
        away = "" if due is None or not now else _away(due // 1000 - now)
        rows.append((_second(due, zone), away, _where(row), row["real_topic"] or "?", _place(row)))
    return rows


def _missing_rows(messages: "Sequence[Row]", zone: tzinfo) -> list[Sequence[str]]:
    rows: list[Sequence[str]] = []
    for row in messages:
        why = f"{row['state']}: {row['reason']}"
        rows.append((_second(_due(row), zone), _where(row), _place(row), row["real_topic"] or "?", why))
    return rows


def _due(row: "Row") -> int | None:
    return None if row["due_timestamp"] is None else to_micros(row["due_timestamp"])


def _where(row: "Row") -> str:
    return f"level {row['level']}" if row["source"] == "level" else _NAMES[row["source"]]


def _place(row: "Row") -> str:
    return f"at {group_digits(row['physical_offset'])}"


def _away(millis: int) -> str:
    span = describe_duration(abs(millis) / 1000)
    return f"in {span}" if millis >= 0 else f"{span} ago"


def _span(millis: int) -> str:
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000)):
        if millis >= size and millis % size == 0:
            return f"{millis // size}{unit}"
    return f"{millis}ms"


def _time(micros: int | None, zone: tzinfo) -> str:
    return "" if micros is None else format_millis(micros // 1000, zone) or ""


def _second(micros: int | None, zone: tzinfo) -> str:
    """Return a time for a table: to the second."""
    return "" if micros is None else _time(micros // 1_000_000 * 1_000_000, zone).replace(".000", "", 1)


def _next(summary: "DelaySummary", delays: "Delays", path: str) -> str:
    from rmqinspect.broker.delays import LOST
    from rmqinspect.commands import fill_command

    if summary.total(LOST):
        return fill_command("rmqinspect delays {store} --state lost -f jsonl", [path])
    if delays.choice.waiting and delays.store.segments:
        return fill_command("rmqinspect delays {store}", [path]) + "    # reads the log: what was delivered or lost"
    return ""


# --- columns ----------------------------------------------------------------------------------------


def _table(label: str, rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield rows under one label, their cells aligned; numbers to the right."""
    cells = [[_short(escape(cell)) for cell in row] for row in rows]
    widths = [max(map(cell_width, column)) for column in zip(*cells, strict=True)]
    numeric = [all(_is_number(cell) for cell in column) for column in zip(*cells[1:], strict=True)] if cells[1:] else []
    for number, row in enumerate(cells):
        shown = [
            " " * (width - cell_width(cell)) + cell if numeric and numeric[place] else pad(cell, width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield _SCREEN.line("" if number else label, "  ".join(shown)).rstrip()


def _short(text: str) -> str:
    return text if cell_width(text) <= _WIDEST else f"{cut_cells(text, _WIDEST - 1)}…"


def _is_number(cell: str) -> bool:
    return cell.removeprefix("-").replace(" ", "").isdecimal()
