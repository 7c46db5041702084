"""`rmqinspect delays`: which messages still wait for their time, and what became of the others.

The screen has counts by level and for the timer, then single messages, and last the counts by topic and in all.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import tzinfo
from typing import TYPE_CHECKING

from rmqinspect.choices import DELAY_STATES
from rmqinspect.cli.decode import print_rows
from rmqinspect.cli.options import choose_format, open_named, use_colour
from rmqinspect.cli.selection import read_time, with_times
from rmqinspect.cli.session import Session, printed_to, tell_unmatched
from rmqinspect.cli.terminal import Screen, columns
from rmqinspect.cli.verbs.delays import DelaysArguments
from rmqinspect.commands import fill_command
from rmqinspect.text import clip, count, describe_duration, escape, group_digits
from rmqinspect.times import format_millis, format_seconds, to_micros

if TYPE_CHECKING:
    from rmqinspect.find.summaries import DelaySummary, PlaceCount, Row
    from rmqinspect.store.model import Store
    from rmqinspect.tables.delays import DelayChoice, Delays
    from rmqinspect.tables.filters import Selection


_SCREEN = Screen(12, phrases=True)
_SHOWN = 5  # messages of each kind on the screen
_TOPICS = 8  # on the screen
_WIDEST = 72  # cells of a column
_COUNTED = ("pending", "overdue", "stuck", "delivered", "cancelled", "lost", "unknown")
_NAMES = {"timer": "timer", "rocksdb_timer": "timer in RocksDB"}


def run(arguments: DelaysArguments) -> int:
    """Do what `delays` is asked for, and return the exit status."""
    format_ = choose_format(arguments)

    from rmqinspect.tables.delays import DelayChoice, delays_table
    from rmqinspect.tables.filters import Selection

    at = read_time("at", arguments.at, arguments.zone)
    choice = DelayChoice(
        waiting=arguments.pending,
        at=None if at is None else at // 1000,
        states=frozenset(arguments.states),
        system=arguments.system_topics is not False,
    )
    selection = Selection(time_column="due_timestamp", topics=arguments.topics)
    stores = open_named(arguments)
    if format_ == "table" and arguments.columns is None:
        return _print_screens(stores, choice, arguments, selection)
    return print_rows(stores, delays_table(choice), arguments, selection)


def _print_screens(
    stores: "Sequence[Store]", choice: "DelayChoice", arguments: DelaysArguments, selection: "Selection"
) -> int:
    from rmqinspect.find.summaries import DelaySummary
    from rmqinspect.tables.delays import Delays, delays_table
    from rmqinspect.tables.sources import bytes_to_read

    table = delays_table(choice)
    colour = use_colour(arguments.color, arguments.output)
    most = _SHOWN if arguments.limit is None else arguments.limit
    with (
        Session(arguments, stores, sum(bytes_to_read(store, table) for store in stores)) as session,
        printed_to(arguments.output, session.evidence),
    ):
        if not choice.waiting:
            session.announce(", for the delivered copies. Cheaper: --pending")
        for store in session.stores(table.databases, table.name):
            summary = DelaySummary(most, with_system=arguments.system_topics is True)
            delays = Delays(store, session.request(store), choice)
            timed = with_times(selection, arguments, lambda delays=delays: delays.sources.now * 1000 or None)  # type: ignore[misc]
            for batch in delays.rows():
                summary.take(timed.select_rows(batch))
            session.show(_lines(summary, delays, arguments.zone), colour=colour)
        session.tell_gaps("log", " (decode --table gaps)")
    return session.status(damaged=session.gaps, missed=tell_unmatched(selection, session.progress))


# --- the screen -------------------------------------------------------------------------------------------


def _lines(summary: "DelaySummary", delays: "Delays", zone: tzinfo) -> Iterator[str]:
    """Yield the lines for one store."""
    from rmqinspect.broker.delays import LOST
    from rmqinspect.tables.delays import no_queues_words, unqueued_words

    now = delays.now
    yield from _SCREEN.rows("store", _store_words(summary, delays, zone))
    if not delays.queues_given:
        yield from _SCREEN.rows("not known", no_queues_words(delays.store))
    if delays.unqueued:
        yield from _SCREEN.rows("not known" if delays.queues_given else "", unqueued_words(delays))
    levels = {level: place for (source, level), place in summary.places.items() if source == "level" and level}
    yield from _table("levels", _level_rows(levels, delays, zone))
    for (source, _), place in sorted(summary.places.items(), key=lambda one: one[0][0]):
        if source != "level":
            yield from _SCREEN.rows(_NAMES[source].split()[0], _timer_words(source, place, delays, zone))
    yield from _table("next due", _message_rows(summary.next, now, zone))
    yield from _table("stuck", _reason_rows(summary.stuck, zone))
    yield from _cure(summary, delays)
    yield from _table("lost", _reason_rows(summary.missing, zone))
    if summary.total(LOST):
        command = fill_command("rmqinspect delays {store} --state lost -f jsonl", delays.store.words)
        yield from _SCREEN.command("next", command)
    elif delays.choice.waiting and delays.store.segments:
        command = fill_command("rmqinspect delays {store}", delays.store.words)
        yield from _SCREEN.command("next", f"{command}    # reads the log: what was delivered or lost")
    topics = summary.topics.most_common(_TOPICS)
    rest = len(summary.topics) - len(topics)
    words = [f"{topic or 'records that cannot be read'} {group_digits(number)}" for topic, number in topics]
    yield from _SCREEN.rows("waiting for", ", ".join([*words, f"{count(rest, 'more topic')}"] if rest else words))
    yield from _SCREEN.rows("total", _sums(summary))


def _reason_rows(messages: "Sequence[Row]", zone: tzinfo) -> list[Sequence[str]]:
    """Return the cells of messages that have a reason."""
    return [
        (
            _second(_due(row), zone),
            _where(row),
            _place(row),
            row["real_topic"] or "?",
            row["reason"] or "" if row["state"] == "stuck" else f"{row['state']}: {row['reason']}",
        )
        for row in messages
    ]


def _cure(summary: "DelaySummary", delays: "Delays") -> Iterator[str]:
    """Yield what has a broker deliver the messages that are stuck."""
    from rmqinspect.broker.clock import set_back

    sources = delays.sources
    if sources.timercheck_ahead:
        yield from _SCREEN.rows("do", set_back(sources.last_record))
    if any(row["source"] == "level" for row in summary.stuck):
        yield from _SCREEN.rows(
            "do",
            "with the broker stopped, set the number of the level in config/delayOffset.json to the queue offset of "
            "the first message that is not delivered",
        )
        command = fill_command("rmqinspect decode {store} --table delay_offsets", delays.store.words)
        yield from _SCREEN.command("next", command)


def _sums(summary: "DelaySummary") -> str:
    """Return how many messages there are in each state."""
    numbers = Counter[str]()
    for place in summary.places.values():
        numbers.update(place.states)
    return ", ".join(
        f"{state.replace('_', ' ')} {group_digits(numbers[state])}" for state in DELAY_STATES if numbers[state]
    )


def _store_words(summary: "DelaySummary", delays: "Delays", zone: tzinfo) -> str:
    total = sum(sum(place.states.values()) for place in summary.places.values())
    place = "in the queues and the timer" if delays.unqueued or not delays.store.segments else "in the log"
    place = place if delays.queues_given else "in the timer"
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
        read = sources.timercheck_ahead or sources.read_time
        fired = (format_millis(read, zone) or f"{read} ms, not a valid time") if read else "an unknown time"
        far = ", far behind the log's last record: the clock was wrong, or nothing was stored for so long"
        text = f"{text}; {count(slots, 'slot')} ahead, fired before {fired}{far * bool(sources.timercheck_ahead)}"
    if place.next_due is not None:
        text += f"; next due {_time(place.next_due, zone)}, last {_time(place.last_due, zone)}"
    return text


# --- single messages --------------------------------------------------------------------------------


def _message_rows(messages: "Sequence[Row]", now: int, zone: tzinfo) -> list[Sequence[str]]:
    rows: list[Sequence[str]] = []
    for row in messages:
        due = _due(row)
        away = ""
        if due is not None and now:
            span = describe_duration(abs(due // 1000 - now) / 1000)
            away = f"in {span}" if due // 1000 >= now else f"{span} ago"
        rows.append((_second(due, zone), away, _where(row), row["real_topic"] or "?", _place(row)))
    return rows


def _due(row: "Row") -> int | None:
    return None if row["due_timestamp"] is None else to_micros(row["due_timestamp"])


def _where(row: "Row") -> str:
    return f"level {row['level']}" if row["source"] == "level" else _NAMES[row["source"]]


def _place(row: "Row") -> str:
    return f"at {group_digits(row['physical_offset'])}"


def _span(millis: int) -> str:
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000)):
        if millis >= size and millis % size == 0:
            return f"{millis // size}{unit}"
    return f"{millis}ms"


def _time(micros: int | None, zone: tzinfo) -> str:
    return "" if micros is None else format_millis(micros // 1000, zone) or ""


def _second(micros: int | None, zone: tzinfo) -> str:
    """Return a time for a table."""
    return "" if micros is None else format_seconds(micros // 1000, zone) or ""


# --- columns ----------------------------------------------------------------------------------------


def _table(label: str, rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield rows under one label; a column of numbers, but for its first row, stands to the right."""
    cells = [[clip(escape(cell), _WIDEST) for cell in row] for row in rows]
    bodies = zip(*cells[1:], strict=True) if cells[1:] else [()] * len(cells[0]) if cells else ()
    sides = ""
    for column in bodies:
        numbers = [cell.removeprefix("-").replace(" ", "").isdecimal() for cell in column]
        sides += ">" if numbers and all(numbers) else "<"
    for number, line in enumerate(columns(cells, sides)):
        yield _SCREEN.line("" if number else label, line)
