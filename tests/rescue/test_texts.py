"""Flipped bits of topics and properties: the queue unit and the index determine them, or nobody touches the record."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from rmqinspect.codec.java import java_string_hash
from rmqinspect.index.geometry import read_index_files
from rmqinspect.rescue.entries import Entry
from rmqinspect.rescue.repair import Unit
from rmqinspect.rescue.texts import TextRepairs
from rmqinspect.schemas.consumequeue import QueueUnit
from rmqinspect.schemas.index import IndexEntry
from rmqinspect.schemas.message import TRANSACTION_MASK, SysFlag
from rmqinspect.schemas.places import place_of
from rmqinspect.store.discover import open_store
from rmqinspect.topics import SCHEDULE_TOPIC
from tests.rescue.test_repairs import plan_of
from tests.rescue.test_salvage import sound_records
from tests.support import oracle
from tests.support.building import fields_of, record
from tests.support.sampling import rare

_STORES = (
    "base-5.3.3-clean",
    "base-4.7.1-clean",
    *(rare(f"base-{name}-clean") for name in ("4.2.0", "4.3.2", "4.9.7", "5.1.4", "5.2.0", "5.4.0", "5.5.0")),
)
_TAG_AT, _HASH_AT = place_of(QueueUnit, "tags_code"), place_of(IndexEntry, "key_hash")


class Item(NamedTuple):
    """One property of a record: `name 01 value 02`."""

    name: str
    value: bytes
    places: range  # in the record


def items_of(raw: bytes) -> Iterator[Item]:
    at = fields_of(raw).index("properties")
    for item in raw[at:].split(b"\x02"):
        name, _, value = item.partition(b"\x01")
        if item:
            yield Item(name.decode("utf-8", "replace"), value, range(at, min(at + len(item) + 1, len(raw))))
        at += len(item) + 1


def _tags_decide(raw: bytes, item: Item, changed: bytes) -> bool:
    """Whether the unit has the hash of the tags, and one flipped bit of that would not explain the change."""
    has_unit = int.from_bytes(raw[36:40], "big") & TRANSACTION_MASK in (0, SysFlag.TRANSACTION_COMMIT)
    if SCHEDULE_TOPIC.encode() in raw or not has_unit:
        return False
    now = next((one.value for one in items_of(changed) if one.name == "TAGS"), b"").decode("utf-8", "replace")
    return ((java_string_hash(item.value.decode()) ^ java_string_hash(now)) & 0xFFFFFFFF).bit_count() != 1


def _write(store: Path, changes: dict[int, bytes]) -> None:
    """Write records at their physical offsets."""
    size = open_store([str(store)]).segment_size or 0
    for place, raw in changes.items():
        path = store / f"commitlog/{place - place % size:020}"
        path.write_bytes(path.read_bytes()[: place % size] + raw + path.read_bytes()[place % size + len(raw) :])


@pytest.mark.parametrize("name", _STORES)
def test_flipped_bits_of_keys_and_tags_are_set_back(name: str, tmp_path: Path) -> None:
    store = oracle.copy("crash", name, tmp_path)
    rng = random.Random(name)
    records, changes, proven = sound_records(open_store([str(store)])), dict[int, bytes](), set[int]()
    for place, raw in records.items():
        if "properties" not in fields_of(raw):
            continue
        item = rng.choice(list(items_of(raw)))
        at, bit = rng.choice(item.places), rng.randrange(8)
        changed = raw[:at] + bytes([raw[at] ^ 1 << bit]) + raw[at + 1 :]
        changes[place] = changed
        has_entries = int.from_bytes(raw[36:40], "big") & TRANSACTION_MASK != TRANSACTION_MASK
        if (item.name in ("KEYS", "UNIQ_KEY") and has_entries) or (
            item.name == "TAGS" and _tags_decide(raw, item, changed)
        ):
            proven.add(place)
    assert len(proven) > 50
    _write(store, changes)
    repaired = {one.place: one.raw for one, _ in plan_of(store).repaired}
    assert proven - repaired.keys() == set()
    assert {place: raw for place, raw in repaired.items() if raw != records[place]} == {}


@pytest.mark.parametrize("name", _STORES)
def test_a_flipped_bit_of_a_unit_or_an_entry_changes_no_record(name: str, tmp_path: Path) -> None:
    store = oracle.copy("crash", name, tmp_path)
    rng = random.Random(name)
    opened = open_store([str(store)])
    for file in opened.queue_files:
        raw = bytearray((path := store / file.name).read_bytes())
        for at in range(0, len(raw), QueueUnit.sizeof()):
            if any(raw[at : at + 8]) and rng.random() < 0.3:
                raw[at + _TAG_AT + rng.randrange(8)] ^= 1 << rng.randrange(8)
        path.write_bytes(raw)
    for index in read_index_files(opened):
        assert index.geometry is not None
        raw = bytearray((path := store / index.file.name).read_bytes())
        for number in range(1, index.entries + 1, 7):
            raw[index.geometry.entry_position(number) + _HASH_AT + rng.randrange(4)] ^= 1 << rng.randrange(8)
        path.write_bytes(raw)
    plan = plan_of(store)
    assert [one.changes for one, _ in plan.repaired] == []
    assert plan.in_doubt > 20


def _unit(raw: bytes, tag: str) -> Unit:
    return Unit("TopicTest", 0, 0, 0, len(raw), java_string_hash(tag))


def test_a_tag_that_one_flipped_bit_of_its_unit_would_explain_is_left_alone() -> None:
    # The hashes of "TagB" and "TagC" differ in one bit, those of "TagB" and "TigB" in many.
    right, near, far = (record(0, properties={"TAGS": tag}) for tag in ("TagB", "TagC", "TigB"))
    assert TextRepairs().find(near, 0, _unit(right, "TagB"), []) is None
    change = TextRepairs().find(far, 0, _unit(right, "TagB"), [])
    assert change is not None
    assert far[: change.at] + change.after + far[change.at + 1 :] == right
    assert change.field == "PROPERTIES"


def test_texts_are_looked_through_within_bounds() -> None:
    long = record(0, properties={"TAGS": "TigA", "note": "x" * 5000})
    assert TextRepairs().find(long, 0, _unit(long, "TagA"), []) is None
    short, twice = record(0, properties={"TAGS": "TigA"}), TextRepairs(budget=300 << 10)
    assert [twice.find(short, 0, _unit(short, "TagA"), []) is None for _ in range(2)] == [False, True]
    assert TextRepairs().find(short, 0, None, list[Entry]()) is None
