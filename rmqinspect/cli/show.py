"""`rmqinspect show`: one record, every byte of it explained."""

import base64
import hashlib
import re
import sys
from collections.abc import Iterator
from typing import Any

import click

from rmqinspect.cli import ExitStatus
from rmqinspect.cli.options import (
    use_colour,
)
from rmqinspect.cli.session import document_format, print_document, print_lines, printed_to
from rmqinspect.cli.terminal import Screen, fold, line_width, pad, print_remark
from rmqinspect.cli.verbs.show import ShowArguments
from rmqinspect.codec import message_id as ids
from rmqinspect.codec.layout import FieldRow
from rmqinspect.commitlog.record_reader import Spot
from rmqinspect.show.offset import Inspected, inspect_offset
from rmqinspect.show.record import hex_lines
from rmqinspect.store.discover import open_store
from rmqinspect.store.model import Store
from rmqinspect.store.reader import open_file
from rmqinspect.text import cell_width, count, cut_cells, describe_offset, escape, escape_bytes

_SCREEN = Screen(indent=14, cut=True)
_MOST_NAMED = 8  # of several records that an answer has
_PREVIEW_LINES = 8
_PREVIEW_TEXT = 400  # bytes
_SHOWN_BYTES = 8  # of a field, in the table
_NAME_WIDTH = 18  # cells of a field's name
_KINDS = {"unknown": "no record", "entry": "no record", "blank": "blank record"}


def run(arguments: ShowArguments) -> int:
    """Do what `show` is asked for, and return the exit status."""
    _refuse_unfit(arguments)
    place = _parse_place(arguments)
    store = open_store(arguments.paths, **arguments.opening)
    asked, identity = place if place is not None else (_find_one(store, arguments), None)
    found = inspect_offset(
        store, asked, identity, raw_body=arguments.raw_body, max_body=arguments.max_body, zone=arguments.zone
    )
    if arguments.raw:
        return _write_raw(store, found, arguments)
    if arguments.redact is not None:
        from rmqinspect.show.offset import redact_record

        found = redact_record(found, arguments.redact)
    for remark in store.remarks if arguments.verbose and not arguments.quiet else ():
        print_remark(remark)
    colour = use_colour(arguments.color, arguments.output)
    with printed_to(arguments.output, store.paths):
        if document_format(arguments) == "json":
            print_document(**_document(found, arguments.body or "full"))
        else:
            print_lines(_lines(found, arguments.body or "preview"), colour=colour)
    if found.spot.kind == "zeros":
        return ExitStatus.NOTHING_FOUND
    return ExitStatus.DAMAGE if found.damaged and arguments.fail_on != "never" else ExitStatus.DONE


def _refuse_unfit(arguments: ShowArguments) -> None:
    """Refuse options that do not fit the bytes alone, or belong to them.

    :raises click.UsageError: there are some.
    """
    if arguments.raw and (arguments.redact is not None or arguments.format or arguments.body):
        raise click.UsageError("--raw writes the bytes as they are: not with --redact, -f or --body.")
    if arguments.size is not None and not arguments.raw:
        raise click.UsageError("--size belongs to --raw.")
    if arguments.raw and arguments.output in (None, "-") and sys.stdout.isatty():
        raise click.UsageError("--raw is not for a terminal: give -o PATH, or a pipe.")


def _write_raw(store: Store, found: Inspected, arguments: ShowArguments) -> ExitStatus:
    """Write the bytes of what was found as they lie in the log, with `--size` those from the offset on.

    The status is that of the bytes: whether all could be written, not whether they are a sound record.

    :raises click.UsageError: nothing proves where it ends, or the file ends before that.
    """
    from rmqinspect.output import open_destination

    spot = found.spot
    start = spot.start if arguments.size is None else found.asked
    end = spot.end if arguments.size is None else found.asked + arguments.size
    if end is None:
        raise click.UsageError(f"{_KINDS.get(spot.kind, spot.kind)}: nothing proves where it ends; give --size.")
    position, size = start - spot.segment.base, end - start
    with open_file(spot.segment) as reader:
        raw = reader.read(position, size)
    if len(raw) < size:
        raise click.UsageError(f"{spot.segment.name} ends {count(size - len(raw), 'byte')} earlier.")
    with open_destination(arguments.output, store.paths) as out:
        out.write(raw)
    if not arguments.quiet:
        digest = hashlib.sha256(raw).hexdigest()
        where = f"{spot.segment.name} at {describe_offset(position)}, {count(size, 'byte')}"
        print_remark(f"{_KINDS.get(spot.kind, spot.kind)} at {describe_offset(start)}: {where}, sha256 {digest}")
    return ExitStatus.DONE


def _parse_place(arguments: ShowArguments) -> tuple[int, ids.OffsetId | None] | None:
    """Return the physical offset that is named, and the id it was read from, if any; None: it has to be looked up.

    :raises click.UsageError: not exactly one record is named.
    """
    ways = [arguments.at, arguments.id, arguments.key, arguments.queue_offset]
    if sum(way is not None for way in ways) != 1:
        raise click.UsageError("Name one record: --at, --id, -k, or -t with --queue and --queue-offset.")
    queue = (arguments.queue_id, arguments.queue_offset)
    if queue != (None, None) and None in (arguments.topic, *queue):
        raise click.UsageError("A queue offset needs all of -t, --queue and --queue-offset.")
    if arguments.at is not None:
        return _parse_at(arguments.at)
    if arguments.id is not None and ids.offset_place(arguments.id) is not None:
        return _parse_at(arguments.id)
    return None


def _find_one(store: Store, arguments: ShowArguments) -> int:
    """Return the physical offset of the one record that is asked for.

    :raises click.UsageError: there are several.
    :raises NothingFound: there is none.
    """
    from rmqinspect.find.finding import find_records
    from rmqinspect.tables.filters import Selection

    offset = arguments.queue_offset
    selection = Selection(
        topics=() if arguments.topic is None else (arguments.topic,),
        queue_id=arguments.queue_id,
        queue_offsets=None if offset is None else (offset, offset + 1),
        in_queues=True,
        keys=() if arguments.key is None else (arguments.key,),
        ids=() if arguments.id is None else (arguments.id,),
    )
    places, way = find_records(store, selection, _MOST_NAMED + 1)
    if len(places) > 1:
        shown = ", ".join(f"--at {place}" for place in places[:_MOST_NAMED])
        more = ", …" if len(places) > _MOST_NAMED else ""
        raise click.UsageError(f"Several records, found {way}; show one of them: {shown}{more}")
    return places[0]


def _parse_at(text: str) -> tuple[int, ids.OffsetId | None]:
    """Return the physical offset asked for, and the id it was read from, if any."""
    number = r"0[xX][0-9a-fA-F]{1,16}|\d{1,20}"
    if match := re.fullmatch(rf"({number})(?:\+({number}))?", text, re.ASCII):
        return sum(int(part, 16 if part[:2] in ("0x", "0X") else 10) for part in match.groups() if part), None
    readings = ids.decode(text)
    for reading in readings:
        if isinstance(reading, ids.OffsetId) and not reading.doubts:
            return reading.physical_offset, reading
    if readings:
        raise click.UsageError(f"--at {escape(text)}: this message id holds no offset")
    forms = "a physical offset (97187 or 0x17ba3), SEGMENT+POSITION or an offset message id"
    raise click.UsageError(f"--at '{escape(text[:80])}': give {forms}")


# --- the screen -----------------------------------------------------------------------------------


def _lines(found: Inspected, body_form: str) -> Iterator[str]:
    yield from _title(found)
    if found.rows:
        yield ""
        yield f"{'+':>5} {'in file':>8} {'size':>5}  {'bytes':<16}  field"
    if found.spot.entry is not None:
        for row in found.entry_rows:
            yield from _field_lines(row, found.spot.entry - found.spot.segment.base, "entry ")
    for row in found.rows:
        yield from _field_lines(row, found.position, "")
    yield from _unparsed_lines(found, body_form == "full")
    if found.body is not None and body_form != "none":
        yield ""
        yield from _body_lines(found, found.body, body_form == "full")
    if found.facts:
        yield ""
    for fact in found.facts:
        yield from _SCREEN.rows(fact.name, fact.text)
    if found.damaged:
        yield from _SCREEN.rows("DAMAGED", ", ".join(found.problems))


def _title(found: Inspected) -> Iterator[str]:
    spot = found.spot
    size = f", {count(spot.end - spot.start, 'byte')}" if spot.end is not None else ""
    yield _SCREEN.line(_KINDS.get(spot.kind, spot.kind), f"{describe_offset(spot.start)}{size}")
    yield _SCREEN.line("file", f"{spot.segment.name} at {describe_offset(found.position)}")
    if found.asked > spot.start:
        inside = f"{describe_offset(found.asked)} is {count(found.asked - spot.start, 'byte')} into it"
        yield _SCREEN.line("asked", inside)
    if spot.entry is not None:
        yield _SCREEN.line("entry", f"{describe_offset(spot.entry)}: DLedger entry head in front of the record")


def _field_lines(row: FieldRow, position: int, prefix: str) -> Iterator[str]:
    """Yield the lines of one field; `position` is where its record begins in the file."""
    raw = (
        "hidden"
        if row.hidden
        else row.raw.hex()
        if row.size <= _SHOWN_BYTES
        else row.raw[: _SHOWN_BYTES - 1].hex() + "…"
    )
    # The position has the format of hexdump -C.
    place = f"{row.offset:>5} {position + row.offset:08x} {row.size:>5}  {raw:<16}  "
    text = f"{pad('  ' * row.depth + prefix + row.name, _NAME_WIDTH)} {row.value}"
    note = f"! {row.note}" if row.problem else row.note
    if note and len(place) + 2 + cell_width(text) + cell_width(note) <= line_width():
        text, note = f"{text}  {note}", ""
    indent = " " * (len(place) + 2 * row.depth + 2)
    lines = fold(text, line_width() - len(indent), cut=True)
    yield f"{place}{lines[0]}"
    for line in (*lines[1:], *fold(note, line_width() - len(indent), cut=True)):
        if line:
            yield indent + line


def _unparsed_lines(found: Inspected, full: bool) -> Iterator[str]:
    """Yield the bytes that no field explains, up to the size of a preview."""
    for row in found.rows:
        if row.name.startswith("(") and row.depth == 0 and row.problem and not row.hidden:
            position = found.position + row.offset
            yield ""
            yield f"{row.name} at {describe_offset(position)}: {row.note}"
            yield from _indent(hex_lines(row.raw, position, None if full else _PREVIEW_LINES))


def _body_lines(found: Inspected, body: bytes, full: bool) -> Iterator[str]:
    limit = None if full else _PREVIEW_LINES
    is_text = _is_text(body)
    size = count(len(body), "byte") + (" of text" if body and is_text else "")
    yield from _SCREEN.rows("body", f"{size}, {found.body_note}" if found.body_note else size)
    if is_text:
        yield from _indent(_cut_lines(escape_bytes(body, None if full else _PREVIEW_TEXT)))
    else:
        yield from _indent(hex_lines(body, found.body_position, limit))
    for row in found.items:
        yield from _field_lines(row, 0, "")


def _cut_lines(text: str) -> Iterator[str]:
    """Yield a text in lines of equal width, cut anywhere: spaces of a body are shown as they are."""
    at, width = 0, line_width()
    while at < len(text):
        line = cut_cells(text[at : at + width], width - _SCREEN.indent)
        yield line
        at += len(line)


def _is_text(body: bytes) -> bool:
    """Return whether a body is UTF-8 without control characters other than white space."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return False
    return not re.search(r"[\x00-\x08\x0e-\x1f\x7f]", text)


def _indent(lines: Iterator[str]) -> Iterator[str]:
    for line in lines:
        yield " " * _SCREEN.indent + line


# --- the JSON document -------------------------------------------------------------------------------


def _document(found: Inspected, body_form: str) -> dict[str, Any]:
    spot = found.spot
    body: dict[str, Any] = {}
    if found.body is not None and body_form != "none":
        content = found.body if body_form == "full" else found.body[:_PREVIEW_TEXT]
        body = {"body_size": len(found.body), "body_note": found.body_note, **_binary("body", content)}
    rows = [(spot.entry, row) for row in found.entry_rows] + [(spot.start, row) for row in found.rows]
    return {
        "asked": found.asked,
        "kind": spot.kind,
        "physical_offset": spot.start,
        "end": spot.end,
        "file": spot.segment.name,
        "position": found.position,
        "previous": None if spot.previous is None else spot.previous.start,
        "damaged": found.damaged,
        **body,
        "facts": [{"name": fact.name, "text": fact.text, "damage": fact.is_damage} for fact in found.facts],
        "rows": [_json_row(row, start or 0, spot, body_form) for start, row in rows],
    }


def _json_row(row: FieldRow, start: int, spot: Spot, body_form: str) -> dict[str, Any]:
    left_out = row.name == "body" and row.depth == 0 and start == spot.start and body_form != "full"
    return {
        "name": row.name,
        "depth": row.depth,
        "offset": row.offset,
        "position": start - spot.segment.base + row.offset,
        "physical_offset": start + row.offset,
        "size": row.size,
        "bytes": None if left_out or row.hidden else row.raw.hex(),
        "value": row.value,
        "note": row.note,
        "problem": row.problem,
    }


def _binary(name: str, content: bytes) -> dict[str, str]:
    try:
        return {name: content.decode(), f"{name}_encoding": "utf-8"}
    except UnicodeDecodeError:
        return {name: base64.b64encode(content).decode(), f"{name}_encoding": "base64"}
