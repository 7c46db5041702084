"""One record as annotated bytes: every field with its place, bytes, value and meaning.

The fields come from the construct layouts, walked one by one. Nothing raises on damaged bytes: what
cannot be parsed is a row of raw bytes, with the reason. Why a checksum differs is asked of `damage`.

Notes on the fields of a record: the value for people, what it means, and whether it is damage.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

from msgspec.structs import replace

from rmqinspect.codec import message_id as ids
from rmqinspect.codec.java import java_string_hash, masked_crc32
from rmqinspect.codec.layout import Field, FieldRow, ParsedFields, walk_fields
from rmqinspect.schemas import dledger, message
from rmqinspect.schemas.message import SysFlag
from rmqinspect.schemas.places import place_of
from rmqinspect.text import count, describe_offset, escape, escape_bytes, is_utf8
from rmqinspect.times import format_millis

# A field's value for people, what it means, and whether that is damage.
Words = tuple[str, str, bool]
FieldWords = Callable[[Any, ParsedFields], Words]


def sys_flag_words(sys_flag: int) -> str:
    """Return the names of the bits of SYSFLAG: `COMPRESSED, BORNHOST_V6, transaction commit`."""
    single = ~(message.TRANSACTION_MASK | message.COMPRESSION_MASK)
    words = [flag.name or "" for flag in SysFlag if sys_flag & flag & single]
    transaction = (sys_flag & message.TRANSACTION_MASK) >> message.TRANSACTION_SHIFT
    if transaction:
        words.append(f"transaction {message.TRANSACTIONS[transaction]}")
    kind = (sys_flag & message.COMPRESSION_MASK) >> message.COMPRESSION_SHIFT
    if kind or sys_flag & SysFlag.COMPRESSED:
        without = "" if sys_flag & SysFlag.COMPRESSED else " (of no effect: not compressed)"
        words.append(f"compression {compression_name(sys_flag) or f'type {kind}, unknown'}{without}")
    unknown = sys_flag & 0xFFFFFFFF & ~sum(SysFlag)
    if unknown:
        words.append(f"bits {unknown:#x} without a meaning")
    return ", ".join(words) or "none"


def compression_name(sys_flag: int) -> str | None:
    """Return zlib, lz4 or zstd by the type bits; None for the types at which the Java client throws."""
    kind = (sys_flag & message.COMPRESSION_MASK) >> message.COMPRESSION_SHIFT
    return message.COMPRESSIONS[kind] if kind < len(message.COMPRESSIONS) else None


def _total_size(value: int, record: ParsedFields) -> Words:
    if record.reason is not None:
        return str(value), "the fields do not add up: one cannot be parsed", True
    if record.end != value:
        return str(value), f"differs: the fields take {record.end}", True
    return str(value), "ok", False


def _magic(value: int, _: ParsedFields) -> Words:
    name = {message.MAGIC_V1: "V1", message.MAGIC_V2: "V2"}.get(value)
    wrong = "that of a blank record" if value == message.MAGIC_BLANK else "no magic of a record"
    return f"{value & 0xFFFFFFFF:#010x}", name or wrong, name is None


def _body_crc(value: int, record: ParsedFields) -> Words:
    body = record.body
    if body is None:
        return str(value), "not checked: the body cannot be parsed", False
    if not body:
        return str(value), "not checked by a broker: no body", False
    computed = masked_crc32(body)
    if value == computed:
        return str(value), "ok", False
    return str(value), f"differs: computed {computed}", True


def _plain(value: int, _: ParsedFields) -> Words:
    return str(value), "", False


def _at_least_zero(value: int, _: ParsedFields) -> Words:
    return str(value), "negative" if value < 0 else "", value < 0


def _queue_offset(value: int, record: ParsedFields) -> Words:
    if value < 0:
        return str(value), "negative", True
    transaction = record.number("sys_flag") & message.TRANSACTION_MASK
    without_unit = transaction in (SysFlag.TRANSACTION_PREPARED, message.TRANSACTION_MASK)
    return str(value), "prepared and rollback records have no queue unit" if without_unit else "", False


def _own_offset(value: int, record: ParsedFields) -> Words:
    if record.physical_offset is None:
        return str(value), "", False
    if value == record.physical_offset:
        return str(value), "ok", False
    return str(value), f"differs: the record lies at {describe_offset(record.physical_offset)}", True


def _host(value: Mapping[str, Any], _: ParsedFields) -> Words:
    port = value["port"]
    wrong = not 0 <= port <= 0xFFFF
    return ids.host_text(ids.address_text(value["address"]), port), "no port number" if wrong else "", wrong


def _store_host(value: Mapping[str, Any], record: ParsedFields) -> Words:
    text, note, wrong = _host(value, record)
    if wrong or record.physical_offset is None:
        return text, note, wrong
    identity = ids.offset_msg_id(value["address"], value["port"], record.physical_offset)
    return text, f"offset msg id {identity}", False


def _prepared_offset(value: int, record: ParsedFields) -> Words:
    transaction = record.number("sys_flag") & message.TRANSACTION_MASK
    if transaction in (SysFlag.TRANSACTION_COMMIT, message.TRANSACTION_MASK):
        return str(value), "physical offset of the half message", False
    return str(value), "", False


def _body(value: bytes, record: ParsedFields) -> Words:
    notes = []
    if record.compressed:
        kind = compression_name(record.number("sys_flag"))
        notes.append(f"compressed: {kind or 'of no type a reader knows'}")
    if record.number("sys_flag") & SysFlag.INNER_BATCH:
        notes.append("inner batch")
    return count(len(value), "byte"), ", ".join(notes), False


def _text(value: bytes, _: ParsedFields) -> Words:
    wrong = not is_utf8(value)
    return escape_bytes(value), "not valid UTF-8" if wrong else "", wrong


# Times are those of `describe_record`, which knows the zone.
MESSAGE_WORDS: Mapping[str, FieldWords] = {
    "total_size": _total_size,
    "magic": _magic,
    "body_crc": _body_crc,
    "queue_id": _at_least_zero,
    "flag": _plain,
    "queue_offset": _queue_offset,
    "physical_offset": _own_offset,
    "sys_flag": lambda value, _: (f"{value & 0xFFFFFFFF:#x}", sys_flag_words(value), False),
    "born_host": _host,
    "store_host": _store_host,
    "reconsume_times": _at_least_zero,
    "prepared_transaction_offset": _prepared_offset,
    "body_size": _at_least_zero,
    "body": _body,
    "topic_size": _at_least_zero,
    "topic": _text,
    "properties_size": _at_least_zero,
    "properties": lambda value, _: (count(len(value), "byte"), "", False),
}


def _entry_magic(value: int, _: ParsedFields) -> Words:
    if value == dledger.ENTRY_MAGIC_BLANK:
        return str(value), "blank: the file ends here", False
    name = dict(zip(dledger.ENTRY_MAGICS, ("entry", "no-op", "configuration change"), strict=True)).get(value)
    return str(value), name or "no magic of a DLedger entry", name is None


def _entry_size(value: int, record: ParsedFields) -> Words:
    expected = dledger.EntryHead.sizeof() + record.number("body_size")
    wrong = "body_size" in record.fields and value != expected
    return str(value), f"differs: head and body take {expected}" if wrong else "", wrong


ENTRY_WORDS: Mapping[str, FieldWords] = {
    "magic": _entry_magic,
    "size": _entry_size,
    "total_size": _plain,
    "index": _at_least_zero,
    "term": _at_least_zero,
    "position": _own_offset,
    "channel": _plain,
    "chain_crc": lambda value, _: (str(value), "not computed by the library", False),
    "body_crc": lambda value, _: (str(value), "not computed by the library", False),
    "body_size": _at_least_zero,
}


_MAGIC_AT = place_of(message.HEADS[False, False], "magic")

NOT_PARSED = "(not parsed)"
BEYOND_FIELDS = "(beyond the fields)"

# One property with its separator, which the last one may lack.
_ITEM = re.compile(b"[^%c]*%c|[^%c]+" % (3 * (message.PROPERTY_SEPARATOR,)))

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
    record = walk_fields(message.Message.subcons, content, physical_offset)
    # A record that says where it lies had another magic.
    is_record = physical_offset is not None and record.number("physical_offset") == physical_offset
    if blank.number("magic") == message.MAGIC_BLANK and not is_record:
        return _blank_rows(blank)

    def time(value: int, _: ParsedFields) -> Words:
        text = format_millis(value, zone)
        return str(value), text or "outside of the years 1 to 9999", text is None

    words = {**MESSAGE_WORDS, "born_timestamp": time, "store_timestamp": time}
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
    """Return why a body's checksum differs; else its longest run of zeros: a torn write, or a lost page."""
    from rmqinspect.damage.misplaced import explain_body_crc  # compiles loops, which sound records do without

    if cause := explain_body_crc(record.raw, position, record.physical_offset):
        return cause
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


def _property_rows(field: Field, record: ParsedFields, position: int | None, zone: tzinfo) -> list[FieldRow]:
    rows: list[FieldRow] = []
    names: set[bytes] = set()
    behind = field.start
    # Each with its separator: they tile the field.
    for raw in _ITEM.findall(field.value):
        offset, behind = behind, behind + len(raw)
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
        is_number = value.isdigit() and len(value) < 19
        return (format_millis(int(value), zone) or "" if is_number else ""), False
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
    from rmqinspect.damage.misplaced import explain_record_crc

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
            words = f"{reading.address} pid {reading.pid} counter {reading.counter}"
            born = record.number("born_timestamp")
            if format_millis(born) is None:
                return words
            zone = ids.client_zone(reading, datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=born))
            return f"{words}, another time than born_timestamp" if zone is None else f"{words}, client in {zone}"
        if isinstance(reading, ids.GrpcId) and not reading.doubts:
            return f"gRPC client {reading.mac} pid {reading.pid} sequence {reading.sequence}"
    return "of no form known"


def _offset_id(value: str, _: ParsedFields) -> str:
    for reading in ids.decode(value):
        if isinstance(reading, ids.OffsetId) and not reading.doubts:
            broker = ids.host_text(reading.address, reading.port)
            return f"{broker}, physical offset {reading.physical_offset}"
    return ""


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
