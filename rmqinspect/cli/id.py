"""`rmqinspect id`: the parts of a message id. Needs no store, and imports no heavy library."""

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, NamedTuple

import click

from rmqinspect import times
from rmqinspect.cli.options import use_colour
from rmqinspect.cli.session import document_format, print_document, printed_to
from rmqinspect.cli.terminal import Screen
from rmqinspect.cli.verbs.id import IdArguments
from rmqinspect.codec import message_id as ids
from rmqinspect.commands import FIND_ID, fill_command
from rmqinspect.text import escape

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_KIND_NAMES = {
    ids.OffsetId.kind: "offset msg id",
    ids.ClientId.kind: "msg id (UNIQ_KEY of a Java client)",
    ids.GrpcId.kind: "msg id of a gRPC client",
}


_SCREEN = Screen(indent=17, lead=4)


def run(arguments: IdArguments) -> None:
    """Do what `id` is asked for, and return the exit status."""
    if arguments.anchor is not None and arguments.year_month is not None:
        raise click.UsageError("give --anchor or --year-month, not both")
    zone = arguments.zone
    when = None
    if arguments.anchor is not None:
        try:
            micros = times.parse_time(arguments.anchor, zone, lambda: datetime.now(UTC), lambda: None)
            when = _EPOCH + timedelta(microseconds=micros)
        except (ValueError, OverflowError) as error:
            raise click.UsageError(f"--anchor: {error}") from error
    month = _parse_month(arguments.year_month) if arguments.year_month is not None else None
    known = _Known(when, month, zone)
    wanted = [part for text in arguments.texts for part in ids.split_batch(text)] or [""]
    decoded = [(text, ids.decode(text)) for text in wanted]
    for text, readings in decoded:
        if not readings:
            raise click.UsageError(f"'{escape(text[:80])}' is not a message id; an id has {ids.ID_FORMS}")
    rows = [_row(reading, known) for _, readings in decoded for reading in readings]
    with printed_to(arguments.output):
        if document_format(arguments) == "json":
            print_document(rows=rows)
        else:
            _print(decoded, known, arguments)


class _Known(NamedTuple):
    """What is known of when and where a message was sent: the id of a Java client has neither month nor zone."""

    anchor: datetime | None  # a time near the message
    month: tuple[int, int] | None
    zone: tzinfo

    def instants(self, reading: ids.ClientId) -> list[datetime]:
        """Return when the message may have been sent."""
        if self.anchor is not None:
            return ids.instants_around(reading, self.anchor, self.zone)
        return [] if self.month is None else [ids.instant_in_month(reading, *self.month, self.zone)]


def _print(decoded: Sequence[tuple[str, Sequence[ids.MessageId]]], known: _Known, arguments: IdArguments) -> None:
    colour = use_colour(arguments.color, arguments.output)
    for number, (_, readings) in enumerate(decoded):
        if number:
            click.echo()
        click.echo(click.style(readings[0].text, bold=True) if colour else readings[0].text, color=colour)
        for reading in readings:
            click.echo(f"  as {_KIND_NAMES[reading.kind]}: {'not plausible' if reading.doubts else 'plausible'}")
            rows = [("because", doubt) for doubt in reading.doubts]
            if not reading.doubts or all(other.doubts for other in readings):
                rows += _rows(reading, known)
            for label, text in rows:
                for line in _SCREEN.rows(label, text):
                    click.echo(line)
        for line in _SCREEN.rows("next", fill_command(FIND_ID, id=readings[0].text)):
            click.echo(line)


def _rows(reading: ids.MessageId, known: _Known) -> Iterator[tuple[str, str]]:
    match reading:
        case ids.OffsetId():
            yield "broker", ids.host_text(reading.address, reading.port)
            yield "physical offset", f"{reading.physical_offset} ({reading.physical_offset:#x})"
        case ids.ClientId():
            yield "client", reading.address
            yield "process", f"pid {reading.pid} (low 16 bits), class loader {reading.loader_hash:#010x}"
            yield "counter", f"{reading.counter} (mod 65536)"
            yield from _client_times(reading, known)
        case ids.GrpcId():
            yield "client", f"MAC {reading.mac}"
            yield "process", f"pid {reading.pid} (low 16 bits)"
            yield "time", f"{_iso(reading.instant)} (to the second)"
            yield "sequence", str(reading.sequence)


def _client_times(reading: ids.ClientId, known: _Known) -> Iterator[tuple[str, str]]:
    anchor, zone = known.anchor, known.zone
    into = reading.since_month_start
    clock = (datetime.min + timedelta(milliseconds=reading.time_in_month)).time().isoformat("milliseconds")
    yield "time in month", f"{reading.time_in_month} ms: day {into.days + 1}, {clock} in the client's zone"
    if anchor is None and known.month is None:
        yield "", "the id contains neither month nor zone: give --anchor or --year-month, --tz"
    for instant in known.instants(reading):
        note = f", {_distance(instant, anchor)} the anchor" if anchor else ""
        name = getattr(zone, "key", None) or str(zone.tzname(instant))
        yield "time", f"{_iso(instant)} with a client in {name}{note}"
    if anchor is not None and (found := ids.client_zone(reading, anchor)) is not None:
        yield "client's zone", f"{found}, if the anchor is the born timestamp"


def _row(reading: ids.MessageId, known: _Known) -> dict[str, Any]:
    row: dict[str, Any] = {
        "id": reading.text,
        "reading": reading.kind,
        "plausible": not reading.doubts,
        "doubts": list(reading.doubts),
    }
    row |= {name: getattr(reading, name) for name in reading.__struct_fields__ if name != "text"}
    if isinstance(reading, ids.ClientId):
        row["candidates"] = [_iso(instant) for instant in known.instants(reading)]
        found = ids.client_zone(reading, known.anchor) if known.anchor is not None else None
        row["client_zone"] = None if found is None else str(found)
    if isinstance(reading, ids.GrpcId):
        row["timestamp"] = _iso(reading.instant)
    return row


def _iso(instant: datetime) -> str:
    return times.format_micros(times.to_micros(instant))


def _distance(instant: datetime, anchor: datetime) -> str:
    apart = abs(instant - anchor)
    size = f"{apart / timedelta(days=1):.1f} days" if apart.days else f"{apart.total_seconds():.3f} s"
    return f"{size} {'before' if instant < anchor else 'after'}"


def _parse_month(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d{4})-(\d{2})", text)
    year, month = (int(match[1]), int(match[2])) if match else (0, 0)
    # datetime ends with the year 9999: the days of an id must not lead beyond it.
    if not (1 < year < 9999 and 1 <= month <= 12):
        raise click.UsageError(f"--year-month {text!r}: not of the form 2024-05")
    return year, month
