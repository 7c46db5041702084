"""Notes on the fields of a record: the value for people, what it means, and whether it is damage."""

from collections.abc import Callable, Mapping
from datetime import UTC, tzinfo
from typing import Any

from rmqinspect.codec import message_id as ids
from rmqinspect.codec.fields import ParsedFields
from rmqinspect.codec.hashes import masked_crc32
from rmqinspect.schemas import dledger, message
from rmqinspect.schemas.message import SysFlag
from rmqinspect.text import count, describe_offset, escape_bytes, is_utf8
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
    return f"{value & 0xFFFFFFFF:#010x}", name or "no magic of a record", name is None


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


def _sys_flag(value: int, _: ParsedFields) -> Words:
    return f"{value & 0xFFFFFFFF:#x}", sys_flag_words(value), False


def timestamp_words(value: int, zone: tzinfo = UTC) -> Words:
    """Return the words of a timestamp in ms."""
    text = format_millis(value, zone)
    return str(value), text or "outside of the years 1 to 9999", text is None


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


def _properties(value: bytes, _: ParsedFields) -> Words:
    return count(len(value), "byte"), "", False


MESSAGE_WORDS: Mapping[str, FieldWords] = {
    "total_size": _total_size,
    "magic": _magic,
    "body_crc": _body_crc,
    "queue_id": _at_least_zero,
    "flag": lambda value, _: (str(value), "", False),
    "queue_offset": _queue_offset,
    "physical_offset": _own_offset,
    "sys_flag": _sys_flag,
    "born_timestamp": lambda value, _: timestamp_words(value),
    "born_host": _host,
    "store_timestamp": lambda value, _: timestamp_words(value),
    "store_host": _store_host,
    "reconsume_times": _at_least_zero,
    "prepared_transaction_offset": _prepared_offset,
    "body_size": _at_least_zero,
    "body": _body,
    "topic_size": _at_least_zero,
    "topic": _text,
    "properties_size": _at_least_zero,
    "properties": _properties,
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


def _plain(value: int, _: ParsedFields) -> Words:
    return str(value), "", False


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
