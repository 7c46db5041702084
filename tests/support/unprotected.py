"""Flips of single bits, the names of the bits of a commit log, and those whose flip cannot be detected: and why.

Nothing in the format protects them, or only a neighbour that is missing. `test_bit_flips` checks the list in
both directions: every undetected bit is listed, and every listed name has one.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from rmqinspect.schemas import message
from tests.support.building import fields_of


class Bit(NamedTuple):
    """One bit of a file, and what it is part of."""

    name: str
    path: Path
    position: int  # of its byte
    bit: int  # 0 is the lowest


def flip_each(bits: Iterable[Bit], is_silent: Callable[[], bool]) -> tuple[Counter[str], set[str]]:
    """Flip bits, one at a time; return how many of each name, and the names of those of which a flip was silent."""
    flipped, silent = Counter[str](), set[str]()
    for name, path, position, bit in bits:
        with path.open("r+b", buffering=0) as file:
            file.seek(position)
            (octet,) = file.read(1)
            for value in (octet ^ 1 << bit, octet):
                file.seek(position)
                file.write(bytes([value]))
                if value != octet:
                    flipped[name] += 1
                    silent |= {name} if is_silent() else set()
    return flipped, silent


def names_of_segment(raw: bytes, sizes: Iterable[int]) -> Iterator[list[str]]:
    """Yield the names of the eight bits, lowest first, of each byte: of sound records of these sizes, then the end."""
    at = 0
    for size in sizes:
        yield from names_of_record(raw[at : at + size])
        at += size
    full = any(raw[at:])
    for position in range(at, len(raw)):
        yield [("blank record" if position < at + 8 else "behind a blank record") if full else "zero tail"] * 8


def names_of_record(raw: bytes) -> Iterator[list[str]]:
    """Yield the names of the eight bits, lowest first, of each byte of a sound record."""
    fields, parsed = fields_of(raw), message.Message.parse(raw)
    covered = len(raw) - message.CRC32_RESERVED_SIZE if "crc" in fields else 0
    place = 0
    for field, octets in groupby(fields):
        size = len(list(octets))
        for left in reversed(range(size)):
            if place < covered:
                yield ["covered by __CRC32#"] * 8
            elif field.startswith("crc"):
                last = "its last byte" if place == len(raw) - 1 else "its value"
                yield [f"__CRC32#, {'its name' if field == 'crc_name' else last}"] * 8
            else:
                yield [_name(field, 8 * left + bit, raw[place], parsed) for bit in range(8)]
            place += 1


def _name(field: str, bit: int, octet: int, record: Any) -> str:
    """Return the name of a bit, by its number from the field's end: the field, and where it has parts, which."""
    match field:
        case "born_host" | "store_host":
            return f"{field}." + ("address" if bit >= 32 else f"port, {'low' if bit < 16 else 'high'} half")
        case "sys_flag":
            known = 1 << bit < message.SysFlag.COMPRESSION_BIT_0
            return f"sys_flag {1 << bit:#x}" if known else "sys_flag 0x100 to 0x400" if bit < 11 else "sys_flag above"
        case "store_timestamp":
            return f"{field}, below 1024 ms" if bit < 10 else field
        case "body_size" if bit == 31 and not record.body:
            return "body_size, sign, without a body"
        case "properties_size" if bit == 15 and not record.properties:
            return "properties_size, sign, without properties"
        case "properties" if octet == message.NAME_VALUE_SEPARATOR:
            return "properties, 01 behind a name"
        case "properties" if octet == message.PROPERTY_SEPARATOR:
            return "properties, 02 behind a value"
        case "properties":
            return "properties, names and values"
    return field


UNPROTECTED = {
    # No checksum covers the head of a record, and any value of these is possible.
    "flag": "the user's own number",
    "born_timestamp": "the producer's clock may be wrong by any time",
    "born_host.address": "any address is possible",
    "born_host.port, low half": "any of 65536 ports is possible",
    "store_host.address": "any address is possible; a log may have been written by several brokers",
    "store_host.port, low half": "any of 65536 ports is possible",
    "reconsume_times": "any number is possible",
    "prepared_transaction_offset": "only a commit means something by it, and its half message may be gone",
    "sys_flag 0x1": "compressed: the body is not unpacked to see whether it is",
    "sys_flag 0x2": "several tags: nothing depends on it",
    "sys_flag 0x8": "committed: a message may be one without a trace of its half",
    "sys_flag 0x40": "an inner batch that is to be unwrapped: nothing in the log depends on it",
    "sys_flag 0x80": "inner batch: one without INNER_NUM counts as one message",
    "sys_flag 0x100 to 0x400": "how a body was compressed; means nothing for one that is not",
    "sys_flag above": "bits without a meaning yet",
    # Store times show a flip by their order alone.
    "store_timestamp, below 1024 ms": "clocks are set back a little now and then, and a second is no jump",
    "store_timestamp, first of the log": "no record before it could seem newer",
    "store_timestamp, last of the log": "no record behind it could seem older",
    # What queue a record belongs to shows in the numbers of the record behind it and before it.
    "queue_id, first of its queue": "the queue seems to begin one record later, and another one with this record",
    "queue_id, last of its queue": "the queue seems to end one record earlier",
    "topic, first of its queue": "as its queue id, where the letter is still a letter of topics",
    "topic, last of its queue": "as its queue id",
    "sys_flag 0x4, first of its queue": "prepared: its queue offset, now said not to count, is 0 as it should be",
    "sys_flag 0x4, last of its queue": "prepared: the queue seems to end one record earlier",
    # Property texts have no checksum (but see __CRC32#), and any name and value is possible.
    "properties, names and values": "any text is possible",
    "properties, 02 behind a value": "a value may hold any byte: the next property is taken for a part of it",
    "properties_size, sign, without properties": "a negative length counts as none, for a broker too",
    "body_size, sign, without a body": "a negative length counts as none, for a broker too",
    "__CRC32#, its name": "the record seems to be one of the many that have no CRC",
    # Not part of the log.
    "behind a blank record": "bytes there are not defined: some versions leave old messages in them",
}
