"""`rmqinspect show`: one record, every byte of it explained."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import click

from rmqinspect.cli.status import ExitStatus
from rmqinspect.codec import message_id as ids
from rmqinspect.codec.decompress import decompress
from rmqinspect.codec.fields import FieldRow, ParsedFields, walk_fields
from rmqinspect.commitlog.locate import Spot, locate, what_begins
from rmqinspect.errors import BadRecord
from rmqinspect.schemas import dledger, message
from rmqinspect.schemas.message import SysFlag
from rmqinspect.show.cause import explain_spot
from rmqinspect.show.field_notes import compression_name
from rmqinspect.show.queue_units import Witness, find_witnesses, has_queue_unit
from rmqinspect.show.record import describe_entry_head, describe_items, describe_record, hex_lines
from rmqinspect.store.discover import open_store
from rmqinspect.store.model import Store
from rmqinspect.store.reader import open_file
from rmqinspect.text import count, describe_offset, escape, escape_bytes, escape_json
from rmqinspect.version import tool_name

_LOOK = 64 << 10  # the first read; holds nearly every record
_PREVIEW_LINES = 8
_PREVIEW_TEXT = 400  # bytes
_SHOWN_BYTES = 8  # of a field, in the table
_WIDTH = 100
_KINDS = {"unknown": "no record", "entry": "no record", "blank": "blank record"}
_MAX_BODY = 64 << 20


@dataclass(frozen=True)
class _Shown:
    """Everything that is known about the place asked for."""

    asked: int
    spot: Spot
    raw: bytes  # from the spot's start on
    rows: list[FieldRow]
    entry_rows: list[FieldRow]  # of the DLedger entry head in front
    body: bytes | None
    body_note: str
    facts: list[tuple[str, str, bool]]  # (name, text, damage) lines below the fields

    @property
    def damaged(self) -> bool:
        rows = (*self.rows, *self.entry_rows)
        return any(row.problem for row in rows) or any(damage for _, _, damage in self.facts)


@click.command("show")
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@click.option(
    "--at",
    required=True,
    metavar="OFFSET",
    help="Physical offset, decimal or 0x hex; SEGMENT+POSITION; or an offset msg id.",
)
@click.option("-f", "--format", "form", type=click.Choice(["table", "json"]), default="table", show_default=True)
@click.option(
    "--body",
    "body_form",
    type=click.Choice(["full", "preview", "none"]),
    help="Default: preview; with json: full.",
)
@click.option("--raw-body", is_flag=True, help="The body as stored, not decompressed.")
@click.option("--max-body", type=click.IntRange(min=0), default=_MAX_BODY, help="Bytes a body may decompress to.")
@click.option("--config", metavar="BROKER.CONF", help="Sizes and paths from a broker configuration.")
@click.option("--base", type=click.IntRange(min=0), help="Physical offset of a loose segment's first byte.")
def command(
    paths: tuple[str, ...],
    at: str,
    form: str,
    body_form: str | None,
    raw_body: bool,
    max_body: int,
    config: str | None,
    base: int | None,
) -> int:
    """Show one record: every field with its bytes, properties, body, neighbours, who points at it.

    Any offset inside of a record finds it. Damaged bytes are shown as far as they go.

    Example: rmqinspect show STORE --at 97187
    """
    asked, identity = _parse_at(at)
    store = open_store(paths, config=config, base=base)
    shown = _look(store, asked, identity, raw_body, max_body)
    if form == "json":
        click.echo(escape_json(json.dumps(_document(shown, body_form or "full"), ensure_ascii=False)))
    else:
        for line in _lines(shown, body_form or "preview"):
            click.echo(line)
    if shown.spot.kind == "zeros":
        return ExitStatus.NOTHING_FOUND
    return ExitStatus.DAMAGE if shown.damaged else ExitStatus.DONE


def _parse_at(text: str) -> tuple[int, ids.OffsetId | None]:
    """Return the physical offset asked for, and the id that says it."""
    number = r"0[xX][0-9a-fA-F]{1,16}|\d{1,20}"
    if match := re.fullmatch(rf"({number})(?:\+({number}))?", text, re.ASCII):
        return sum(_number(part) for part in match.groups() if part), None
    readings = ids.decode(text)
    for reading in readings:
        if isinstance(reading, ids.OffsetId) and not reading.doubts:
            return reading.physical_offset, reading
    if readings:
        raise click.UsageError(f"--at {escape(text)}: a msg id holds no offset; find looks it up")
    forms = "a physical offset (97187 or 0x17ba3), SEGMENT+POSITION or an offset msg id"
    raise click.UsageError(f"--at '{escape(text[:80])}': give {forms}")


def _number(text: str) -> int:
    return int(text, 16) if text[:2] in ("0x", "0X") else int(text)


# --- looking ------------------------------------------------------------------------------------


def _look(store: Store, asked: int, identity: ids.OffsetId | None, raw_body: bool, max_body: int) -> _Shown:
    spot = locate(store, asked)
    raw = _read(spot, max_body)
    if spot.kind == "zeros":
        return _Shown(asked, spot, b"", [], [], None, "", list(_zero_facts(spot)))
    if spot.kind == "entry":
        rows = describe_entry_head(raw, spot.start)
        content, note = raw[dledger.EntryHead.sizeof() :], "of an entry without a record"
        return _Shown(asked, spot, raw, rows, [], content, note, list(_neighbours(store, spot)))
    if spot.kind == "blank" and spot.segment.kind == "dledger":
        rows = describe_entry_head(raw[: dledger.EntryBlank.sizeof()], spot.start)
        return _Shown(asked, spot, raw, rows, [], None, "", list(_neighbours(store, spot)))
    rows = describe_record(raw, spot.start, spot.start - spot.segment.base)
    entry_rows = []
    if spot.entry is not None:
        with open_file(spot.segment) as reader:
            head = reader.read(spot.entry - spot.segment.base, spot.start - spot.entry)
        entry_rows = describe_entry_head(head, spot.entry)
    if spot.kind == "blank":
        return _Shown(asked, spot, raw, rows, entry_rows, None, "", list(_neighbours(store, spot)))
    record = walk_fields(message.Message.subcons, raw, spot.start)
    body, note, undecodable = _readable_body(record, raw_body, max_body)
    facts = [("body", note, True)] if undecodable else []
    cause = explain_spot(store, spot, (*rows, *entry_rows))
    facts += [("cause", cause, False)] if cause else []
    facts += _neighbours(store, spot)
    facts += _identity_facts(record, identity)
    if record.reason is None:
        facts += _witness_facts(store, record)
    return _Shown(asked, spot, raw, rows, entry_rows, body, note, facts)


def _read(spot: Spot, max_body: int) -> bytes:
    """Return the bytes from the spot's start to its end, or as many as its lengths claim."""
    limit = max_body + _LOOK
    position = spot.start - spot.segment.base
    with open_file(spot.segment) as reader:
        if spot.end is not None and spot.kind != "blank":
            return reader.read(position, min(spot.end - spot.start, limit))
        content = reader.read(position, _LOOK)
        if spot.kind == "record":
            record = walk_fields(message.Message.subcons, content)
            claimed = max(record.number("total_size"), record.end + record.number("body_size") + _LOOK)
            if record.reason is not None and claimed > len(content):
                content = reader.read(position, min(claimed, limit))
        return content


def _readable_body(record: ParsedFields, raw_body: bool, max_body: int) -> tuple[bytes | None, str, bool]:
    """Return a record's body, a note on what was done to it, and whether that failed."""
    body = record.body
    if body is None or not record.compressed or raw_body:
        return body, "", False
    compression = compression_name(record.number("sys_flag"))
    if compression is None:
        return body, "compressed in a way that no reader knows; as stored", True
    try:
        content = decompress(body, compression, max_body)
    except BadRecord as error:
        return body, f"not decompressed: {error}; as stored", True
    return content, f"decompressed from {count(len(body), 'byte')} of {compression}", False


def _zero_facts(spot: Spot) -> Iterator[tuple[str, str, bool]]:
    end = "further than was looked" if spot.end is None else f"to {describe_offset(spot.end)}"
    yield "zeros", f"no record here: zeros from here {end}", False
    if spot.previous is not None:
        yield "before", _frame_text(spot.previous.start, spot.previous.end), False


def _frame_text(start: int, end: int) -> str:
    return f"record {describe_offset(start)} to {describe_offset(end)}, {count(end - start, 'byte')}"


def _neighbours(store: Store, spot: Spot) -> Iterator[tuple[str, str, bool]]:
    """Yield the lines about what ends where the spot begins, and what begins where it ends."""
    segment = spot.segment
    border = spot.start if spot.entry is None else spot.entry
    if spot.previous is not None:
        yield "previous", _frame_text(spot.previous.start, spot.previous.end), False
    elif border == segment.base:
        yield "previous", "none: this is the first in its segment", False
    else:
        yield "previous", f"not known: no record ends at {describe_offset(border)}", False
    if spot.end is None:
        yield "next", "not known: where this ends does not prove itself", False
        return
    if spot.end >= segment.base + segment.size:
        after = next((other for other in store.segments if other.base == spot.end), None)
        name = f"segment {after.name} begins there" if after else "the last segment ends here"
        yield "next", f"{describe_offset(spot.end)}: {name}", False
        return
    with open_file(segment) as reader:
        begins = what_begins(reader, segment, spot.end)
        zeros = begins is None and not any(reader.read(spot.end - segment.base, 4096))
    if begins is None:
        what = "zeros: the log ends, or a gap begins" if zeros else "no record"
        yield "next", f"{describe_offset(spot.end)}: {what}", False
    elif begins[2] is None:
        yield "next", f"{describe_offset(begins[1])}: a {begins[0]} that does not prove itself", False
    else:
        kind, start, end = begins[0], begins[1], begins[2]
        text = _frame_text(start, end)
        yield "next", text if kind == "record" else text.replace("record", kind, 1), False


def _identity_facts(record: ParsedFields, identity: ids.OffsetId | None) -> Iterator[tuple[str, str, bool]]:
    if identity is None or "store_host" not in record.fields:
        return
    host = record.fields["store_host"].value
    asked = identity.address, identity.port
    if asked != (ids.address_text(host["address"]), host["port"]):
        yield "id", f"names broker {ids.host_text(*asked)}, another than the store host of this record", False


def _witness_facts(store: Store, record: ParsedFields) -> Iterator[tuple[str, str, bool]]:
    if not store.queue_files:
        yield "queue unit", "not looked for: no file queues given", False
        return
    witnesses = find_witnesses(store, record)
    if not witnesses:
        reason = "none found" if has_queue_unit(record) else "none, as for every prepared and rollback record"
        yield "queue unit", reason, False
    for witness in witnesses:
        wanted = has_queue_unit(record)
        yield "queue unit", _witness_text(witness, wanted), witness.disagrees and wanted


def _witness_text(witness: Witness, wanted: bool) -> str:
    unit = witness.unit
    place = f"{escape(witness.file.name)} at {describe_offset(witness.position)}"
    points = f"{unit.number('physical_offset')}, {count(unit.number('size'), 'byte')}"
    text = f"{place}: unit {witness.number} -> {points}, tags code {unit.number('tags_code')}"
    if not wanted:
        return f"{text}; of another record: prepared and rollback records have none"
    return f"{text}: {'differs: ' + '; '.join(witness.problems) if witness.problems else 'ok'}"


# --- for people ---------------------------------------------------------------------------------


def _lines(shown: _Shown, body_form: str) -> Iterator[str]:
    yield from _title(shown)
    if shown.rows:
        yield ""
        yield f"{'+':>5} {'in file':>8} {'size':>5}  {'bytes':<16}  field"
    if shown.spot.entry is not None:
        for row in shown.entry_rows:
            yield from _field_lines(row, shown.spot.entry - shown.spot.segment.base, "entry ")
    for row in shown.rows:
        yield from _field_lines(row, shown.spot.start - shown.spot.segment.base, "")
    for row in shown.rows:
        # What no field explains is shown whole, up to the size of a preview.
        if row.name.startswith("(") and row.depth == 0 and row.problem:
            yield ""
            position = shown.spot.start - shown.spot.segment.base + row.offset
            yield f"{row.name} at {describe_offset(position)}: {row.note}"
            yield from _indent(hex_lines(row.raw, position, None if body_form == "full" else _PREVIEW_LINES))
    if shown.body is not None and body_form != "none":
        yield ""
        yield from _body_lines(shown, body_form == "full")
    if shown.facts:
        yield ""
    for name, text, _ in shown.facts:
        yield from _fact_lines(name, text)
    if shown.damaged:
        names = [row.name for row in (*shown.entry_rows, *shown.rows) if row.problem]
        names += [name for name, _, damage in shown.facts if damage]
        yield from _fact_lines("DAMAGED", ", ".join(dict.fromkeys(names)))


def _title(shown: _Shown) -> Iterator[str]:
    spot = shown.spot
    size = f", {count(spot.end - spot.start, 'byte')}" if spot.end is not None else ""
    yield f"{_KINDS.get(spot.kind, spot.kind):<14}{describe_offset(spot.start)}{size}"
    position = spot.start - spot.segment.base
    yield f"{'file':<14}{escape(spot.segment.name)} at {describe_offset(position)}"
    if shown.asked > spot.start:
        inside = f"{describe_offset(shown.asked)} lies {count(shown.asked - spot.start, 'byte')} inside of it"
        yield f"{'asked':<14}{inside}"
    if spot.entry is not None:
        yield f"{'entry':<14}{describe_offset(spot.entry)}: DLedger entry head in front of the record"


def _field_lines(row: FieldRow, position: int, prefix: str) -> Iterator[str]:
    raw = row.raw.hex() if row.size <= _SHOWN_BYTES else row.raw[: _SHOWN_BYTES - 1].hex() + "…"
    # The place in the file is written as hexdump -C writes it.
    place = f"{row.offset:>5} {position + row.offset:08x} {row.size:>5}  {raw:<16}"
    name = f"{'  ' * row.depth}{prefix}{row.name}"
    text = f"{name:<18} {row.value}"
    note = f"! {row.note}" if row.problem else row.note
    if note and len(place) + 4 + len(text) + len(note) <= _WIDTH:
        text, note = f"{text}  {note}", ""
    indent = " " * (len(place) + 2 + 2 * row.depth + 2)
    lines = _fold(text, _WIDTH - len(indent))
    yield f"{place}  {lines[0]}"
    for line in (*lines[1:], *_fold(note, _WIDTH - len(indent))):
        if line:
            yield indent + line


def _fold(text: str, width: int) -> list[str]:
    """Return the lines of a text that is folded at spaces and never cut: nothing is hidden."""
    lines, at = [], 0
    while len(text) - at > width:
        space = text.rfind(" ", at + 1, at + width + 1)
        stop = space if space > at else at + width
        lines.append(text[at:stop].rstrip())
        at = stop + 1 if space > at else stop
    return [*lines, text[at:]]


def _fact_lines(name: str, text: str) -> Iterator[str]:
    for number, line in enumerate(_fold(text, _WIDTH - 14)):
        yield f"{name if number == 0 else '':<14}{line}"


def _body_lines(shown: _Shown, full: bool) -> Iterator[str]:
    body = shown.body or b""
    limit = None if full else _PREVIEW_LINES
    text = _as_text(body)
    size = count(len(body), "byte") + (" of text" if text else "")
    yield from _fact_lines("body", f"{size}, {shown.body_note}" if shown.body_note else size)
    if text is None:
        yield from _indent(hex_lines(body, _body_position(shown), limit))
    else:
        shown_text = escape_bytes(body, None if full else _PREVIEW_TEXT)
        width = _WIDTH - 14
        yield from _indent(shown_text[at : at + width] for at in range(0, len(shown_text), width))
    record = walk_fields(message.Message.subcons, shown.raw)
    if record.compressed and record.number("sys_flag") & SysFlag.INNER_BATCH:
        for row in describe_items(body):
            yield from _field_lines(row, 0, "")


def _body_position(shown: _Shown) -> int:
    """Return where in the file a body lies as stored; 0 for one that was decompressed."""
    stored = next((row for row in shown.rows if row.name == "body" and row.depth == 0), None)
    if stored is None or stored.raw != shown.body:
        return 0
    return shown.spot.start - shown.spot.segment.base + stored.offset


def _as_text(body: bytes) -> str | None:
    """Return a body as text; None when it is not UTF-8 or holds other controls than white space."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return None
    return None if re.search(r"[\x00-\x08\x0e-\x1f\x7f]", text) else text


def _indent(lines: Iterator[str]) -> Iterator[str]:
    for line in lines:
        yield " " * 14 + line


# --- for programs -------------------------------------------------------------------------------


def _document(shown: _Shown, body_form: str) -> dict[str, Any]:
    spot = shown.spot
    body: dict[str, Any] = {}
    if shown.body is not None and body_form != "none":
        content = shown.body if body_form == "full" else shown.body[:_PREVIEW_TEXT]
        body = {"body_size": len(shown.body), "body_note": shown.body_note, **_binary("body", content)}
    rows = [(spot.entry, row) for row in shown.entry_rows] + [(spot.start, row) for row in shown.rows]
    return {
        "schema_version": 1,
        "tool": tool_name(),
        "complete": True,
        "asked": shown.asked,
        "kind": spot.kind,
        "physical_offset": spot.start,
        "end": spot.end,
        "file": spot.segment.name,
        "position": spot.start - spot.segment.base,
        "previous": None if spot.previous is None else spot.previous.start,
        "damaged": shown.damaged,
        **body,
        "facts": [{"name": name, "text": text, "damage": damage} for name, text, damage in shown.facts],
        "rows": [_json_row(row, start or 0, spot, body_form) for start, row in rows],
    }


def _json_row(row: FieldRow, start: int, spot: Spot, body_form: str) -> dict[str, Any]:
    hidden = row.name == "body" and row.depth == 0 and start == spot.start and body_form != "full"
    return {
        "name": row.name,
        "depth": row.depth,
        "offset": row.offset,
        "position": start - spot.segment.base + row.offset,
        "physical_offset": start + row.offset,
        "size": row.size,
        "bytes": None if hidden else row.raw.hex(),
        "value": row.value,
        "note": row.note,
        "problem": row.problem,
    }


def _binary(name: str, content: bytes) -> dict[str, str]:
    import base64

    try:
        return {name: content.decode(), f"{name}_encoding": "utf-8"}
    except UnicodeDecodeError:
        return {name: base64.b64encode(content).decode(), f"{name}_encoding": "base64"}
