"""Single bits of a whole small store, flipped: `verify --level deep` says something, or nothing can protect the bit.

The log, its queues, its index, the checkpoint and the configuration check each other: a topic, a queue
offset, tags, keys and store times are covered by no CRC and are found all the same. By default a sample
of the bits is flipped; `pytest tests/properties/test_store_flips.py --every-bit` flips all (half an hour).
"""

import re
import shutil
from collections.abc import Callable, Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

from rmqinspect.schemas import message
from rmqinspect.schemas.checkpoint import Checkpoint
from rmqinspect.schemas.index import IndexEntry, IndexHeader, IndexSlot
from rmqinspect.store.discover import open_store
from rmqinspect.topics import SCHEDULE_TOPIC
from rmqinspect.verify.result import VerifyOptions
from rmqinspect.verify.run import verify
from tests.support import unprotected
from tests.support.building import fields_of
from tests.support.unprotected import Bit, flip_each
from tests.support.whole_stores import WholeStore

# Nothing of the whole store knows of these more than the log alone does. Its queues know topics and queues, and its
# index store times, keys and tags.
OF_THE_LOG = re.compile(r"flag|born_|store_host|reconsume|prepared|sys_flag (?!0x4,)|body_size|behind a blank")
# What a flip of is silent, and why nothing in the formats can tell it.
UNPROTECTED = {
    **{f"log: {name}": why for name, why in unprotected.UNPROTECTED.items() if OF_THE_LOG.match(name)},
    "log: store_timestamp, below 1024 ms": "the index knows whole seconds only",
    "log: other property": "any name and any value is possible; no index and no queue knows them",
    "log: TAGS of a delayed message": "its unit holds the time of delivery, and tags are keys from 5.4.0 on only",
    # The index.
    "index header: hash_slot_count": "versions count used slots or entries: any number between them is possible",
    "index header: end_timestamp, below 1024 ms": "a put that a kill cut short leaves the time of the record before",
    "index: entry 0": "it is never used",
    "index: time of the first entry": "a file made when another was full has there the distance of the two",
    "index: unused entries": "a broker overwrites what is there without looking",
    # The checkpoint: times and offsets that are behind what is stored, by any distance, are normal.
    **{f"checkpoint: {part.name}": "an older value is normal" for part in Checkpoint.subcons},
    # Texts of numbers and names.
    "config: text or number": "another offset within the queue, number of queues, group, version are possible",
}

SEGMENT, ROWS, SLOTS, ENTRIES = 2048, 4, 5, 14


def _message(number: int, **more: Any) -> dict[str, Any]:
    properties = {"UNIQ_KEY": f"{number:032X}", "KEYS": f"k{number}", "TAGS": "ab"[number % 2], "note": "x"}
    return {"topic": "orders", "queue_id": number % 2, "properties": properties | more.pop("properties", {}), **more}


DELAYED = {"DELAY": "3", "REAL_TOPIC": "orders", "REAL_QID": "0"}
LIGHT = {"INNER_MULTI_DISPATCH": "%LMQ%a", "INNER_MULTI_QUEUE_OFFSET": "0"}
PIECES = [
    _message(0),
    _message(1),
    _message(2, body=b""),
    _message(3, topic="payments"),
    _message(4, topic=SCHEDULE_TOPIC, queue_id=2, properties=DELAYED),
    _message(5, properties=LIGHT),
    _message(6),
    _message(7, topic=SCHEDULE_TOPIC, queue_id=2, properties=DELAYED),
    _message(8, topic="payments"),
    _message(9),
]
VERSION = {"stateVersion": 0, "timestamp": 1716193815000, "counter": 3}
CONFIGS = {
    "topics.json": {
        "dataVersion": VERSION,
        "topicConfigTable": {
            name: {"topicName": name, "readQueueNums": 4, "writeQueueNums": 4, "perm": 6, "order": False}
            for name in ("orders", "payments", SCHEDULE_TOPIC)
        },
    },
    "consumerOffset.json": {"dataVersion": VERSION, "offsetTable": {"orders@group": {"0": 1, "1": 2}}},
    "subscriptionGroup.json": {
        "dataVersion": VERSION,
        "subscriptionGroupTable": {"group": {"groupName": "group", "consumeEnable": True, "retryQueueNums": 1}},
    },
    "delayOffset.json": {"dataVersion": VERSION, "offsetTable": {"3": 0}},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    root = tmp_path_factory.mktemp("flips") / "store"
    stored = WholeStore(PIECES, SEGMENT, ROWS, SLOTS, ENTRIES, configs=CONFIGS)
    yield stored.write(root)
    shutil.rmtree(root)


Namer = Callable[[int, int], str]  # (byte, bit) → what the bit is part of


def name_log(raw: bytes) -> Namer:
    sizes, at = [], 0
    while raw[at + 4 : at + 8] == message.MAGIC_V1.to_bytes(4, "big", signed=True):
        sizes.append(int.from_bytes(raw[at : at + 4], "big"))
        at += sizes[-1]
    names = list(unprotected.names_of_segment(raw, sizes))
    for start, size in zip(accumulate(sizes, initial=0), sizes, strict=False):
        record = raw[start : start + size]
        at = start + fields_of(record).index("properties")
        for item in raw[at : start + size].split(bytes([message.PROPERTY_SEPARATOR])):
            end = min(at + len(item) + 1, start + size)
            names[at:end] = [[_property(item, record)] * 8] * (end - at)
            at = end
    return lambda position, bit: f"log: {names[position][bit]}"


def _property(item: bytes, record: bytes) -> str:
    key = item.partition(bytes([message.NAME_VALUE_SEPARATOR]))[0].decode()
    if key == "TAGS" and SCHEDULE_TOPIC.encode() in record:
        return "TAGS of a delayed message"
    return "property" if key in ("UNIQ_KEY", "KEYS", "TAGS") else "other property"


def name_index(raw: bytes) -> Namer:
    header, entries = IndexHeader.sizeof(), IndexHeader.sizeof() + SLOTS * IndexSlot.sizeof()
    used = int(IndexHeader.parse(raw).index_count) - 1

    def name(position: int, bit: int) -> str:
        if position < header:
            field = _part_at(IndexHeader, position)
            low = field == "end_timestamp" and 8 * (15 - position) + bit < 10
            return f"index header: {field}" + (", below 1024 ms" if low else "")
        if position < entries:
            return "index: slots"
        number, at = divmod(position - entries, IndexEntry.sizeof())
        field = _part_at(IndexEntry, at)
        if number == 0:
            return "index: entry 0"
        if number > used:
            return "index: unused entries"
        return "index: time of the first entry" if number == 1 and field == "time_diff" else f"index: {field}"

    return name


def _part_at(layout: Any, position: int) -> str:
    for part in layout.subcons:
        if position < part.sizeof():
            return str(part.name)
        position -= part.sizeof()
    return "behind the fields"


def name_checkpoint(position: int, bit: int) -> str:
    field = _part_at(Checkpoint, position)
    # No store has been written for thirty thousand years, and none is of an exbibyte.
    high = field.endswith("timestamp") and position % 8 < 2
    return f"checkpoint: {field}" + (", far in the future or negative" if high else "")


def name_config(octet: int) -> str:
    return "config: syntax" if octet in b'{}[]:,"' else "config: text or number"


NAMERS: dict[str, Callable[[bytes], Namer]] = {
    "commitlog": name_log,
    "index": name_index,
    "checkpoint": lambda raw: name_checkpoint,
    "config": lambda raw: lambda position, bit: name_config(raw[position]),
    "consumequeue": lambda raw: lambda position, bit: "queue unit",
}
# One of so many bits is flipped, unless all are asked for.
SAMPLES = {"commitlog": 127, "consumequeue": 47, "index": 83, "checkpoint": 211, "config": 37}


def files_of(folder: Path, kind: str) -> list[Path]:
    place = folder / kind
    return [place] if place.is_file() else sorted(path for path in place.rglob("*") if path.is_file())


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("kind", SAMPLES)
def test_every_flipped_bit_is_found_or_known_to_be_unprotectable(
    kind: str, folder: Path, request: pytest.FixtureRequest
) -> None:
    every = bool(request.config.getoption("--every-bit"))
    store = open_store([str(folder)])
    options = VerifyOptions(level="deep")
    assert verify(store, options).findings.rows == []
    bits = [
        Bit(namer(position, bit), path, position, bit)
        for path in files_of(folder, kind)
        for raw in (path.read_bytes(),)
        for namer in (NAMERS[kind](raw),)
        for position in range(len(raw))
        for bit in range(8)
    ]
    flipped, unnoticed = flip_each(
        bits if every else bits[:: SAMPLES[kind]], lambda: not verify(store, options).findings.rows
    )
    assert flipped.total() > 50
    assert unnoticed - UNPROTECTED.keys() == set(), "unnoticed, and not on the list"
    if every:
        mine = {name for name in UNPROTECTED if name in flipped}
        assert mine - unnoticed == set(), "on the list, but always found"
