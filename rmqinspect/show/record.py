"""One record as annotated bytes: every field with its place, bytes, value and meaning.

The fields come from the construct layouts, walked one by one. Nothing raises on damaged bytes: what
cannot be parsed is a row of raw bytes, with the reason. Why a checksum differs is asked of `damage`.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta, tzinfo

from rmqinspect.codec import message_id as ids
from rmqinspect.codec.fields import Field, FieldRow, ParsedFields, walk_fields
from rmqinspect.codec.hashes import java_string_hash, masked_crc32
from rmqinspect.codec.layout import place_of
from rmqinspect.schemas import dledger, message
from rmqinspect.schemas.message import SysFlag
from rmqinspect.show.field_notes import (
    ENTRY_WORDS,
    MESSAGE_WORDS,
    FieldWords,
    timestamp_words,
)
from rmqinspect.text import count, escape, escape_bytes, is_utf8
from rmqinspect.times import format_millis

_MAGIC_AT = place_of(message.HEADS[False, False], "magic")
_TIMES = ("born_timestamp", "store_timestamp")

NOT_PARSED = "(not parsed)"
BEYOND_FIELDS = "(beyond the fields)"

# Fewer zeros in a row are too common in healthy bodies to say anything.
_TELLING_ZEROS = 64

# Items listed one by one: a crafted body may hold millions.
_MAX_ITEMS = 1000
_ITEM_PREVIEW = 200  # bytes of its body and properties


def describe_record(
    content: bytes, physical_offset: int | None = None, position: int | None = None, zone: tzinfo = UTC
) -> list[FieldRow]:
    """Return the rows of the record at the beginning of `content`, a blank record included.

    `content` may go on behind the record. `physical_offset` is where it lies in the log, `position` where
    in its file; None if unknown. Times are shown in `zone`. Rows of depth 0 tile what they describe without
    holes. Never raises on damage.
    """
    blank = walk_fields(message.Blank.subcons, content, physical_offset)
    if blank.number("magic") == message.MAGIC_BLANK:
        return _blank_rows(blank)
    record = walk_fields(message.Message.subcons, content, physical_offset)
    words = {**MESSAGE_WORDS, **dict.fromkeys(_TIMES, lambda value, _: timestamp_words(value, zone))}
    rows: list[FieldRow] = []
    for field in record.fields.values():
        row = _row(field, record, words)
        cause = _body_crc_cause(record, position) if row.problem and field.name == "body_crc" else None
        rows.append(replace(row, note=f"{row.note}; {cause}") if cause else row)
        if field.name == "properties":
            rows += _property_rows(field, record, position, zone)
        if field.name == "body" and record.number("sys_flag") & SysFlag.INNER_BATCH and not record.compressed:
            rows += describe_items(field.value, field.start)
    return rows + _leftover(record)


def _body_crc_cause(record: ParsedFields, position: int | None) -> str | None:
    from rmqinspect.damage.checksums import explain_body_crc  # imports numpy, which sound records do without

    return explain_body_crc(record.raw, position, record.physical_offset) or _zeros_inside(record)


def _zeros_inside(record: ParsedFields) -> str | None:
    """Return words for the longest run of zeros in a damaged body: a torn write, or a lost page."""
    body, start = record.body or b"", record.fields["body"].start
    runs = re.finditer(rb"\0{%d,}" % _TELLING_ZEROS, body)
    longest = max(runs, key=lambda run: run.end() - run.start(), default=None)
    return f"bytes +{start + longest.start()} to +{start + longest.end()} are zero" if longest else None


def describe_entry_head(content: bytes, physical_offset: int | None = None) -> list[FieldRow]:
    """Return the rows of the DLedger entry head (or blank) at the beginning of `content`."""
    entry = walk_fields(dledger.EntryBlank.subcons, content, physical_offset)
    if entry.number("magic") != dledger.ENTRY_MAGIC_BLANK:
        entry = walk_fields(dledger.EntryHead.subcons, content, physical_offset)
    rows = [_row(field, entry, ENTRY_WORDS) for field in entry.fields.values()]
    if entry.reason is not None:
        rest = content[entry.end :]
        rows.append(FieldRow(NOT_PARSED, entry.end, rest, "", escape(entry.reason), problem=True))
    return rows


def describe_items(body: bytes, start: int = 0) -> list[FieldRow]:
    """Return a row for each message of an inner batch; they tile `body`, which begins at `start`."""
    rows: list[FieldRow] = []
    at = 0
    while at < len(body):
        item = walk_fields(message.BatchItem.subcons, body, start=at)
        reason = item.reason
        if reason is None and item.end - at != item.number("total_size"):
            reason = f"total_size {item.number('total_size')}, but the fields take {item.end - at}"
        if reason is not None:
            rows.append(FieldRow(NOT_PARSED, start + at, body[at:], "", escape(reason), True, 1))
            break
        if len(rows) == _MAX_ITEMS:
            rows.append(FieldRow("(more items)", start + at, body[at:], "", "not listed one by one", depth=1))
            break
        value = escape_bytes(item.fields["body"].value, _ITEM_PREVIEW)
        note = escape_bytes(item.fields["properties"].value, _ITEM_PREVIEW)
        rows.append(FieldRow(f"item {len(rows)}", start + at, body[at : item.end], value, note, depth=1))
        at = item.end
    return rows


def _row(field: Field, record: ParsedFields, words: Mapping[str, FieldWords]) -> FieldRow:
    value, note, problem = words[field.name](field.value, record)
    return FieldRow(field.name, field.start, record.raw[field.start : field.end], value, note, problem)


def _blank_rows(blank: ParsedFields) -> list[FieldRow]:
    size, head = blank.number("total_size"), blank.end
    size_row, magic_row = (_row(field, blank, MESSAGE_WORDS) for field in blank.fields.values())
    if size < head:
        note = f"less than the {head} bytes of a blank record"
        return [replace(size_row, note=note, problem=True), replace(magic_row, problem=False)]
    rows = [
        replace(size_row, note="all bytes left in the file", problem=False),
        replace(magic_row, note="blank: the segment ends here", problem=False),
    ]
    if filler := blank.raw[head:size]:
        # The value counts what the size claims, also where fewer bytes were given.
        rows.append(FieldRow("(filler)", head, filler, count(size - head, "byte"), "without a meaning"))
    return rows


def _leftover(record: ParsedFields) -> list[FieldRow]:
    """Return a row for the bytes behind the last field that belong to the record all the same."""
    size, end, content = record.number("total_size"), record.end, record.raw
    stop = size if end < size <= len(content) else end
    if record.reason is None:
        rest = content[end:stop]
        note = "total_size counts them in" if any(rest) else "total_size counts them in; all are zero"
        return [FieldRow(BEYOND_FIELDS, end, rest, "", note, True)] if rest else []
    if stop == end:  # TOTALSIZE is wrong: up to what looks like the next record
        magic = content.find(message.MAGIC_PREFIX, end + _MAGIC_AT)
        stop = magic - _MAGIC_AT if magic >= 0 else len(content)
    return [FieldRow(NOT_PARSED, end, content[end:stop], "", escape(record.reason), problem=True)]


# --- properties ---------------------------------------------------------------------------------


def _split_properties(content: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield (start, bytes) of every property, its separator included; they tile `content`."""
    start = 0
    while start < len(content):
        end = content.find(message.PROPERTY_SEPARATOR, start) + 1 or len(content)
        yield start, content[start:end]
        start = end


def _property_rows(field: Field, record: ParsedFields, position: int | None, zone: tzinfo) -> list[FieldRow]:
    rows: list[FieldRow] = []
    names: set[bytes] = set()
    for start, raw in _split_properties(field.value):
        offset = field.start + start
        item = raw.removesuffix(bytes([message.PROPERTY_SEPARATOR]))
        name, separator, value = item.partition(bytes([message.NAME_VALUE_SEPARATOR]))
        if not item:
            rows.append(FieldRow("(separator)", offset, raw, "", "an empty item", depth=1))
            continue
        if not separator:
            text = escape_bytes(item)
            rows.append(FieldRow("(no separator)", offset, raw, text, "no name and value", True, 1))
            continue
        note, problem = _property_note(name, value, offset, record, position, zone)
        if name in names:
            note = f"again: the last one counts; {note}" if note else "again: the last one counts"
        names.add(name)
        rows.append(FieldRow(escape_bytes(name), offset, raw, escape_bytes(value), note, problem, 1))
    return rows + _glued_crc(field, record, rows, position)


def _property_note(
    name: bytes, value: bytes, offset: int, record: ParsedFields, position: int | None, zone: tzinfo
) -> tuple[str, bool]:
    if not (is_utf8(name) and is_utf8(value)):
        return "not valid UTF-8", True
    if name == message.CRC32_NAME:
        if offset != record.fields["properties"].end - message.CRC32_RESERVED_SIZE:
            return "not the last 20 bytes of the record: cannot be checked", True
        return _record_crc(record, position)
    if name in _TIME_PROPERTIES:
        return _millis(value.decode(), zone), False
    words = _PROPERTY_WORDS.get(name)
    return (escape(words(value.decode(), record)) if words is not None else ""), False


def _record_crc(record: ParsedFields, position: int | None) -> tuple[str, bool]:
    """Return the note on the `__CRC32#` tail, and whether it is damage.

    Source: CommitLog#checkMessageAndReturnSize.
    """
    end = record.fields["properties"].end
    covered = record.raw[: end - message.CRC32_RESERVED_SIZE]
    stored = _crc_of_tail(record.raw[len(covered) : end])
    if stored is None:
        return "ten digits and a separator are expected", True
    computed = masked_crc32(covered)
    if stored == computed:
        return f"ok: {stored}, all bytes before it are as written", False
    from rmqinspect.damage.checksums import explain_record_crc

    note, cause = f"differs: stored {stored}, computed {computed}", explain_record_crc(record.raw[:end], position)
    return f"{note}; {cause}" if cause else note, True


def _crc_of_tail(tail: bytes) -> int | None:
    """Return the CRC in the 20 bytes that end a record, None when they are no such tail."""
    name = message.CRC32_NAME + bytes([message.NAME_VALUE_SEPARATOR])
    digits = tail[len(name) : -1]
    if not (tail.startswith(name) and tail.endswith(bytes([message.PROPERTY_SEPARATOR]))):
        return None
    if len(digits) != message.CRC32_DIGITS or not digits.isdigit():
        return None
    return int(digits[::-1])  # the least significant digit stands first


def _glued_crc(field: Field, record: ParsedFields, rows: list[FieldRow], position: int | None) -> list[FieldRow]:
    """Return a row for a CRC tail that no separator parts from the value before it (batches of 5.4.0)."""
    tail = field.value[-message.CRC32_RESERVED_SIZE :]
    start = field.end - len(tail)
    if _crc_of_tail(tail) is None or any(row.offset == start for row in rows):
        return []
    note, problem = _record_crc(record, position)
    value = tail[len(message.CRC32_NAME) + 1 : -1].decode()
    note = f"{note}; glued to the value before it: no broker finds it"
    return [FieldRow(message.CRC32_NAME.decode(), start, tail, value, note, problem, 2)]


def _uniq_key(value: str, record: ParsedFields) -> str:
    for reading in ids.decode(value):
        if isinstance(reading, ids.ClientId) and not reading.doubts:
            return f"{reading.address} pid {reading.pid} counter {reading.counter}{_made(reading, record)}"
        if isinstance(reading, ids.GrpcId) and not reading.doubts:
            return f"gRPC client {reading.mac} pid {reading.pid} sequence {reading.sequence}"
    return "of no form known"


def _made(reading: ids.ClientId, record: ParsedFields) -> str:
    born = record.number("born_timestamp")
    if format_millis(born) is None:
        return ""
    zone = ids.client_zone(reading, datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=born))
    return f", client in {zone}" if zone is not None else ", another time than born_timestamp"


def _offset_id(value: str, _: ParsedFields) -> str:
    for reading in ids.decode(value):
        if isinstance(reading, ids.OffsetId) and not reading.doubts:
            broker = ids.host_text(reading.address, reading.port)
            return f"{broker}, physical offset {reading.physical_offset}"
    return ""


def _millis(value: str, zone: tzinfo) -> str:
    number = value.isascii() and value.isdecimal() and len(value) < 19
    return format_millis(int(value), zone) or "" if number else ""


_PROPERTY_WORDS: Mapping[bytes, Callable[[str, ParsedFields], str]] = {
    b"UNIQ_KEY": _uniq_key,
    b"TAGS": lambda value, _: f"tags code {java_string_hash(value)}",
    b"ORIGIN_MESSAGE_ID": _offset_id,
    b"DLQ_ORIGIN_MESSAGE_ID": _offset_id,
}

# Properties that hold a time in ms.
_TIME_PROPERTIES = frozenset(
    {
        b"BORN_TIMESTAMP",
        b"TIMER_DELIVER_MS",
        b"TIMER_ENQUEUE_MS",
        b"TIMER_DEQUEUE_MS",
        b"TIMER_OUT_MS",
        b"CONSUME_START_TIME",
    }
)


def hex_lines(content: bytes, start: int, limit: int | None = None) -> Iterator[str]:
    """Yield lines like `hexdump -C`, 16 bytes each, numbered from `start`; at most `limit` lines."""
    for number, at in enumerate(range(0, len(content), 16)):
        if number == limit:
            yield f"… {count(len(content) - at, 'more byte')}"
            return
        line = content[at : at + 16]
        shown = "".join(chr(octet) if 0x20 <= octet < 0x7F else "." for octet in line)
        yield f"{start + at:08x}  {line[:8].hex(' '):<23}  {line[8:].hex(' '):<23}  |{shown}|"
