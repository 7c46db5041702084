"""The one damaged field of a record: found wherever the rest proves it, and nowhere else."""

from collections.abc import Iterator
from typing import Any

import pytest

from rmqinspect.damage.patterns import one_flip
from rmqinspect.damage.single_field import Repair, find_repair
from rmqinspect.schemas.dledger import EntryHead
from tests.support.building import (
    blank,
    entry,
    entry_blank,
    fields_of,
    lay,
    record,
    various,
)

PLACE = 65_536 + 1_000

# The fields by which a scan follows the chain, as the layout and as RocketMQ calls them.
CHAIN = {
    "total_size": "TOTALSIZE",
    "magic": "MAGICCODE",
    "sys_flag": "SYSFLAG",
    "body_size": "BODYLEN",
    "topic_size": "the topic's length",
    "properties_size": "PROPERTIESLEN",
}
# Bits of SYSFLAG that change no length break nothing.
V6_BITS = (4, 5)


def repaired(raw: bytes, *, behind: bytes = b"", wraps: bool = False, end: int | None = None) -> Repair | None:
    size = len(raw)
    return find_repair(raw + behind, PLACE, 100_000, wraps=wraps, end=size if end is None else end)


def chain_flips(raw: bytes, lead: int = 0) -> Iterator[tuple[str, int, int, bytes]]:
    """Yield (field, position, bit, bytes with that bit flipped) for the fields that make the chain."""
    for at, name in enumerate(fields_of(raw[lead:]), lead):
        for bit in range(8) if name in CHAIN else ():
            last_byte = name != "sys_flag" or at == lead + 39
            if name != "sys_flag" or (last_byte and bit in V6_BITS):
                yield name, at, bit, raw[:at] + bytes([raw[at] ^ 1 << bit]) + raw[at + 1 :]


@pytest.mark.parametrize("piece", [*various(8), {"body": b"x" * 5_000, "properties": {"KEYS": "a b"}}])
def test_every_flipped_bit_that_breaks_the_chain_is_named(piece: dict[str, Any]) -> None:
    raw = record(PLACE, **piece)
    for name, at, _, damaged in chain_flips(raw):
        repair = repaired(damaged)
        assert repair is not None
        assert (repair.field, repair.size) == (CHAIN[name], len(raw))
        assert one_flip(repair.found, repair.expected) == at - repair.at
        assert damaged[: repair.at] + repair.expected + damaged[repair.at + len(repair.expected) :] == raw
        assert repair.at <= at < repair.at + len(repair.expected)
        assert (repair.queue_id, repair.queue_offset) == (piece.get("queue_id", 0), piece.get("queue_offset", 0))


@pytest.mark.parametrize("field", ["magic", "size", "body_size"])
def test_a_damaged_dledger_entry_head_is_repaired(field: str) -> None:
    head = [name for part in EntryHead.subcons for name in [part.name] * part.sizeof()]
    raw = entry(record(PLACE + EntryHead.sizeof(), queue_id=3, queue_offset=61), PLACE)
    at = head.index(field) + 3
    for change in (0x01, 0x7E):
        damaged = raw[:at] + bytes([raw[at] ^ change]) + raw[at + 1 :]
        repair = repaired(damaged, wraps=True)
        assert repair is not None
        assert "entry" in repair.field
        assert damaged[: repair.at] + repair.expected + damaged[repair.at + 4 :] == raw
        assert (repair.topic, repair.queue_id, repair.queue_offset) == ("TopicTest", 3, 61)


def test_a_record_in_a_dledger_entry_is_repaired() -> None:
    lead = EntryHead.sizeof()
    raw = entry(record(PLACE + lead, properties={"KEYS": "a"}), PLACE)
    for name, at, _, damaged in chain_flips(raw, lead):
        repair = repaired(damaged, wraps=True)
        assert repair is not None
        assert repair.field == CHAIN[name]
        assert repair.at <= at


@pytest.mark.parametrize("wraps", [False, True])
def test_a_blank_record_is_known_by_the_bytes_left(wraps: bool) -> None:
    raw = entry_blank(777) if wraps else blank(777)
    at = 0 if wraps else 4
    damaged = raw[:at] + bytes(4) + raw[at + 4 :]
    repair = find_repair(damaged + bytes(769), PLACE, 777, wraps=wraps, end=777)
    assert repair is not None
    assert (repair.field, repair.at, repair.expected) == ("MAGICCODE of the blank record", at, raw[at : at + 4])
    assert repair.topic is None
    assert find_repair(damaged + bytes(769), PLACE, 778, wraps=wraps, end=778) is None
    assert find_repair(raw, PLACE, 777, wraps=wraps, end=777) is None


def test_a_record_that_fills_the_file_is_no_blank_record() -> None:
    raw = record(PLACE)
    assert find_repair(raw, PLACE, len(raw), wraps=False, end=len(raw)) is None


def test_a_total_size_is_believed_where_the_log_goes_on() -> None:
    first, second = record(PLACE, properties={"KEYS": "a"}), record(PLACE + 200, body=b"next")
    assert len(first) == 121
    damaged = b"\0\0\x40\0" + first[4:]
    assert repaired(damaged, behind=second[:50]) is not None
    # The next record is damaged as well, so the gap goes on: only a record that knows its place may follow.
    following = record(PLACE + 121, body=b"next")
    assert repaired(damaged, behind=following, end=500) is not None
    assert repaired(damaged, behind=second, end=500) is None
    assert repaired(damaged, behind=following[:60], end=500) is None
    # The last record: nothing follows.
    assert repaired(damaged, behind=bytes(300), end=421) is not None
    assert repaired(damaged, behind=bytes(300) + b"\1", end=422) is None


def test_properties_and_the_whole_are_told_apart_by_the_end() -> None:
    raw = record(PLACE, properties={"KEYS": "0123456789", "TAGS": "abcdefghijk"})
    shorter = (len(raw) - 4).to_bytes(4, "big") + raw[4:]
    repair = repaired(shorter)
    assert repair is not None
    assert repair.field == "TOTALSIZE"
    at = raw.index(b"KEYS") - 1
    repair = repaired(raw[:at] + bytes([raw[at] - 4]) + raw[at + 1 :])
    assert repair is not None
    assert repair.field == "PROPERTIESLEN"


@pytest.mark.parametrize(
    "change",
    [
        {0: 0x40, 4: 0x00},  # TOTALSIZE and the magic
        {4: 0x00, 90: 0x00},  # the magic and the body
        {4: 0x00, 35: 0x00},  # the magic and the own offset
        {87: 0x55, 102: 0x55},  # two lengths
    ],
)
def test_two_damaged_fields_are_not_guessed(change: dict[int, int]) -> None:
    raw = bytearray(record(PLACE, properties={"KEYS": "a"}, born_host="1.2.3.4:5"))
    for at, value in change.items():
        assert raw[at] != value
        raw[at] = value
    assert repaired(bytes(raw)) is None


def test_a_sound_record_and_no_record_need_no_repair() -> None:
    assert repaired(record(PLACE)) is None
    for raw in (b"", b"\0" * 7, b"\0" * 500, b"\xda\xa3\x20\xa7" * 200):
        assert repaired(raw) is None
        assert repaired(raw, wraps=True) is None


@pytest.mark.parametrize(("number", "found"), [(60, True), (70, False)])
def test_a_body_that_could_end_in_many_places_is_given_up(number: int, found: bool) -> None:
    """Each four bytes of the body are a topic and the length of properties that reach to the record's end."""
    size = len(record(PLACE, body=bytes(4 * number)))
    body = b"".join(b"\1A" + (size - 88 - at - 4).to_bytes(2, "big") for at in range(0, 4 * number, 4))
    raw = record(PLACE, body=body)
    repair = repaired(raw[:84] + (2).to_bytes(4, "big") + raw[88:])
    assert (repair is not None) == found
    assert repair is None or repair.expected == len(body).to_bytes(4, "big")


def test_the_neighbour_is_not_taken_for_the_record() -> None:
    raw = lay(various(4), PLACE)
    size = len(record(PLACE, **various(1)[0]))
    damaged = raw[:4] + bytes(4) + raw[8:]
    repair = repaired(damaged, end=size)
    assert repair is not None
    assert repair.size == size
