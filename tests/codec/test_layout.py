"""A layout is declared once in construct: what construct reads from bytes, numpy reads too, and back again."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from construct import Construct, Struct
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqinspect.codec.layout import dtype_of, parse
from rmqinspect.commitlog.gaps import Split
from rmqinspect.commitlog.scan import RecordRun, scan_split
from rmqinspect.errors import BadRecord
from rmqinspect.schemas import checkpoint, consumequeue, dledger, index, message, messageid, timer
from rmqinspect.schemas.message import HEADS, Message, SysFlag
from rmqinspect.store.model import Store
from tests.support.building import PRODUCER_V6, batch_item, lay, record, various
from tests.support.side_tables import broker, crash

FIXED: dict[str, Construct] = {
    **{f"head of {born} and {store}": head for (born, store), head in HEADS.items()},
    "HostV4": message.HostV4,
    "HostV6": message.HostV6,
    "Blank": message.Blank,
    "QueueUnit": consumequeue.QueueUnit,
    "BatchUnit": consumequeue.BatchUnit,
    "ExtHead": consumequeue.ExtHead,
    "IndexHeader": index.IndexHeader,
    "IndexSlot": index.IndexSlot,
    "IndexEntry": index.IndexEntry,
    "Checkpoint": checkpoint.Checkpoint,
    "EntryHead": dledger.EntryHead,
    "EntryBlank": dledger.EntryBlank,
    "EntryIndexUnit": dledger.EntryIndexUnit,
    "TimerUnit": timer.TimerUnit,
    "TimerBlank": timer.TimerBlank,
    "WheelSlot": timer.WheelSlot,
    "TimerCheck": timer.TimerCheck,
    "OffsetIdV4": messageid.OffsetIdV4,
    "OffsetIdV6": messageid.OffsetIdV6,
}

# The sizes that RocketMQ's sources name.
SIZES = {
    "QueueUnit": 20,
    "BatchUnit": 46,
    "ExtHead": 20,
    "IndexHeader": 40,
    "IndexSlot": 4,
    "IndexEntry": 20,
    "Checkpoint": 48,
    "EntryHead": 48,
    "EntryIndexUnit": 32,
    "TimerUnit": 52,
    "TimerBlank": 16,
    "WheelSlot": 32,
    "Blank": 8,
    "OffsetIdV4": 16,
    "OffsetIdV6": 28,
}

STORES = ("base-4.2.0-clean", "base-4.9.7-halt", "base-5.5.0-clean")


def agree(parsed: Any, seen: Any) -> None:
    """Check that a parsed struct and a numpy struct have the same fields with the same values."""
    assert list(seen.dtype.names) == [name for name in parsed if not name.startswith("_")]
    for name in seen.dtype.names:
        field = seen[name]
        if field.dtype.names:
            agree(parsed[name], field)
        elif field.shape:
            assert field.tobytes() == parsed[name]
        else:
            assert field.item() == parsed[name]


@pytest.mark.parametrize("name", FIXED)
def test_construct_and_numpy_read_the_same(name: str) -> None:
    layout = FIXED[name]
    dtype = dtype_of(layout)
    assert dtype.itemsize == layout.sizeof() == SIZES.get(name, layout.sizeof())

    @settings(max_examples=20, deadline=None)
    @given(st.binary(min_size=dtype.itemsize, max_size=dtype.itemsize))
    def check(raw: bytes) -> None:
        parsed = layout.parse(raw)
        agree(parsed, np.frombuffer(raw, dtype)[0])
        assert layout.build(parsed) == raw

    check()
    for raw in (bytes(dtype.itemsize), b"\xff" * dtype.itemsize, b"\x80" + bytes(dtype.itemsize - 1)):
        agree(layout.parse(raw), np.frombuffer(raw, dtype)[0])


def test_every_fixed_layout_of_the_schemas_is_tried() -> None:
    of_ids = {"ClientIdV4", "ClientIdV6", "GrpcClientId"}  # unsigned, and read one at a time only
    sized = set()
    for module in (checkpoint, consumequeue, dledger, index, message, messageid, timer):
        for name, layout in vars(module).items():
            if isinstance(layout, Struct) and name not in of_ids:
                try:
                    dtype_of(layout)
                except TypeError:
                    assert name in ("Message", "BatchItem", "ExtUnit")
                else:
                    sized.add(name)
    assert sized <= FIXED.keys()


@pytest.mark.parametrize("layout", [message.Message, message.BatchItem, consumequeue.ExtUnit])
def test_a_layout_of_variable_size_has_no_dtype(layout: Construct) -> None:
    with pytest.raises(TypeError, match="no fixed size"):
        dtype_of(layout)


def test_bytes_that_end_early_are_a_bad_record_that_says_where() -> None:
    with pytest.raises(BadRecord, match=r"^segment 7 at 12: "):
        parse(message.Blank, bytes(7), lambda: "segment 7 at 12")
    with pytest.raises(BadRecord, match="at 0"):
        parse(Message, record()[:-1], lambda: "at 0")
    assert parse(message.Blank, bytes(9), str).total_size == 0


def raw_records(store: Store) -> list[tuple[bytes, dict[str, int]]]:
    """Return each record's bytes, and what the bulk reader says about the integers of its head."""
    found = []
    for segment in store.segments:
        for event in scan_split(Split(segment, 0, segment.size)):
            if not isinstance(event, RecordRun):
                continue
            records = event.records
            names = [*(field.name for field in (*message.FRONT, *message.TAIL)), "store_timestamp"]
            columns = {name: records.field(name).tolist() for name in names}
            columns["topic_size"] = (records.topic_ends - records.topic_starts).tolist()
            columns["properties_size"] = (records.properties_ends - records.properties_starts).tolist()
            for side in ("born_host", "store_host"):
                columns[f"{side}.port"] = records.field(side.replace("host", "port")).tolist()
            spans = zip(records.starts.tolist(), records.ends.tolist(), strict=True)
            for number, (start, end) in enumerate(spans):
                numbers = {name: column[number] for name, column in columns.items()}
                found.append((bytes(records.raw[start:end]), numbers))
    return found


@pytest.mark.parametrize("name", STORES)
def test_real_records_read_and_build_the_same(name: str) -> None:
    found = raw_records(crash(name))
    assert len(found) > 200
    for raw, numbers in found[::4]:
        parsed = Message.parse(raw)
        assert Message.build(parsed) == raw
        for field, value in numbers.items():
            inner: Any = parsed
            for part in field.split("."):
                inner = inner[part]
            assert inner == value
        head = HEADS[len(parsed.born_host.address) == 16, len(parsed.store_host.address) == 16]
        seen = np.frombuffer(raw, dtype_of(head), 1)[0]
        agree({field: parsed[field] for field in seen.dtype.names}, seen)


def test_all_four_heads_occur_in_real_records() -> None:
    v6 = (SysFlag.BORNHOST_V6, SysFlag.STOREHOSTADDRESS_V6)
    kinds = {
        tuple(16 if numbers["sys_flag"] & flag else 4 for flag in v6)
        for raw, numbers in raw_records(broker("main-5.3.3"))
    }
    assert kinds == {(4, 4), (16, 4), (4, 16), (16, 16)}


@pytest.mark.parametrize(
    ("kind", "layout", "family", "name"),
    [
        ("queue", consumequeue.QueueUnit, "crash", "base-5.5.0-clean"),
        ("batch_queue", consumequeue.BatchUnit, "broker", "main-5.3.3"),
        ("checkpoint", checkpoint.Checkpoint, "crash", "base-5.5.0-clean"),
        ("index", index.IndexHeader, "crash", "base-4.2.0-clean"),
        ("dledger", dledger.EntryHead, "broker", "dledger-5.3.3"),
        ("dledger_index", dledger.EntryIndexUnit, "broker", "dledger-5.3.3"),
    ],
)
def test_real_files_read_the_same(kind: str, layout: Construct, family: str, name: str) -> None:
    dtype = dtype_of(layout)
    files = (crash(name) if family == "crash" else broker(name)).of_kind(kind)
    assert files
    for file in files:
        with Path(file.path).open("rb") as opened:
            raw = opened.read(200 * dtype.itemsize)
        count = len(raw) // dtype.itemsize
        for number, seen in enumerate(np.frombuffer(raw, dtype, count)):
            parsed = layout.parse(raw[number * dtype.itemsize :])
            agree(parsed, seen)
            assert layout.build(parsed) == raw[number * dtype.itemsize : (number + 1) * dtype.itemsize]


def test_built_records_read_as_they_were_built() -> None:
    raw = lay(various(16), 4096)
    places = []
    at = 0
    while at < len(raw):
        parsed = Message.parse(raw[at:])
        places.append(at)
        assert parsed.physical_offset == 4096 + at
        assert Message.build(parsed) == raw[at : at + parsed.total_size]
        at += parsed.total_size
    assert at == len(raw)
    assert len(places) == 16
    assert all(before < after for before, after in pairwise(places))


def test_a_negative_length_counts_as_none() -> None:
    parsed = Message.parse(record(body=b""))
    for name, size in (("body_size", -1), ("properties_size", -(2**15))):
        again = Message.parse(Message.build({**parsed, name: size}))
        assert (again[name], again[name.removesuffix("_size")]) == (size, b"")


def test_an_item_of_a_batch_reads_as_it_was_built() -> None:
    item = message.BatchItem.parse(batch_item(b"body", b"a\x01b\x02", 7) + b"next")
    assert (item.body, item.properties, item.flag) == (b"body", b"a\x01b\x02", 7)
    assert item.total_size == len(batch_item(b"body", b"a\x01b\x02", 7))


def test_a_host_of_version_six_moves_what_follows() -> None:
    short, long = (Message.parse(record(born_host=host)) for host in ("10.0.0.1:1", PRODUCER_V6))
    assert long.total_size - short.total_size == 12
    assert (short.store_host.port, long.store_host.port) == (10911, 10911)
