"""Consume queues in RocksDB, against what real brokers served from them, and databases that are damaged."""

import io
import json
import os
import re
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import rmqinspect.consumequeue.rocksdb
from rmqinspect.cli import main
from rmqinspect.cli.status import ExitStatus
from rmqinspect.codec.layout import dtype_of
from rmqinspect.consumequeue.rocksdb import (
    NoRocksdict,
    QueueEnd,
    RocksQueues,
    database_files,
    has_rocksdict,
    unpack_queues,
)
from rmqinspect.consumequeue.rocksdb_reader import read_end, write_queues
from rmqinspect.consumequeue.units import find_unit, survey_queues
from rmqinspect.errors import Refused, Unreadable
from rmqinspect.schemas.consumequeue import QueueUnit
from rmqinspect.schemas.rocksdb import EndKeyTail, EndValue, KeyHead, UnitKeyTail, UnitValue
from rmqinspect.store.discover import open_store
from rmqinspect.tables.queues import QUEUE_UNITS
from tests.support import oracle
from tests.support.side_tables import ROCKSDB, broker, rows, write

needs_rocksdict = pytest.mark.skipif(not has_rocksdict(), reason="rocksdict is not installed")

Item = tuple[bytes, bytes]
Queue = tuple[str, int, list[int]]  # topic, number, physical offsets of its units


def unpacked(name: str, folder: Path) -> RocksQueues:
    return unpack_queues(broker(name), str(folder))


@needs_rocksdict
@pytest.mark.parametrize("name", ROCKSDB)
def test_queues_are_those_the_broker_serves(name: str, tmp_path: Path) -> None:
    queues, truth = unpacked(name, tmp_path), oracle.truth("broker", name)
    store = replace(broker(name), queue_files=queues.files)
    units = {(row["topic"], row["queue_id"], row["queue_offset"]): row for row in rows(QUEUE_UNITS, store)}
    for row in truth["served"]:
        unit = units.pop((row["topic"], row["queue_id"], row["queue_offset"]))
        assert unit["physical_offset"] == row.get("cq_physical_offset", row["physical_offset"])
        assert unit["size"] == row.get("cq_size", row["store_size"])
        assert unit["tags_code"] == row["cq_tags_code"]
        assert unit["file"] == f"consumequeue (RocksDB)/{row['topic']}/{row['queue_id']}"
    assert not units
    assert queues.entries == len(truth["served"])
    assert (queues.malformed, queues.ends) == (0, ())

    ends = {(queue.topic, queue.queue_id): (queue.min_offset, queue.max_offset) for queue in survey_queues(store)}
    assert ends == {(row["topic"], row["queue_id"]): (row["min"], row["max"]) for row in truth["queues"] if row["max"]}


@needs_rocksdict
def test_what_is_unpacked_is_all_that_is_left(tmp_path: Path) -> None:
    queues = unpacked(ROCKSDB[0], tmp_path)
    left = {Path(file.path) for file in queues.files}
    assert {path for path in tmp_path.rglob("*") if path.is_file() and path.stem.isdecimal()} == left
    assert not (tmp_path / "database").exists()


def test_a_store_without_the_database_is_told(tmp_path: Path) -> None:
    assert database_files(broker("main-5.3.3")) == []
    if has_rocksdict():
        with pytest.raises(Unreadable, match="no consume queue in RocksDB"):
            unpack_queues(broker("main-5.3.3"), str(tmp_path))


def test_the_database_is_found_where_it_is_given(tmp_path: Path) -> None:
    names = {os.path.basename(file.name) for file in database_files(broker(ROCKSDB[0]))}
    assert {"CURRENT", "MANIFEST-000005", "000010.sst"} <= names
    for name in ("commitlog/00000000000000000000", "consumequeue/CURRENT", "config/topics/CURRENT"):
        write(tmp_path, name, b"x")
    assert [file.name for file in database_files(open_store([str(tmp_path)]))] == ["consumequeue/CURRENT"]
    write(tmp_path, "consumequeue_rocksdb/CURRENT", b"x")
    with pytest.raises(Unreadable, match="in consumequeue/ and in consumequeue_rocksdb/"):
        database_files(open_store([str(tmp_path)]))


def test_without_the_library_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(rmqinspect.consumequeue.rocksdb, "find_spec", lambda name: None)
    with pytest.raises(NoRocksdict, match=r"pip install 'rmqinspect\[rocksdb\]'"):
        unpacked(ROCKSDB[0], tmp_path)


@needs_rocksdict
def test_too_little_space_is_told_before_anything_is_copied(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=10**6))
    with pytest.raises(Refused, match=r"takes about 17\.0 MB in .*, where 1\.0 MB are free"):
        unpacked(ROCKSDB[0], tmp_path)
    assert not any(tmp_path.iterdir())


# --- damage ---------------------------------------------------------------------------------------


def _cut(raw: bytes) -> bytes:
    return raw[: len(raw) // 2]


def _flip(raw: bytes) -> bytes:
    at = len(raw) // 3
    return raw[:at] + bytes([raw[at] ^ 0x10]) + raw[at + 1 :]


def _flip_late(raw: bytes) -> bytes:
    """A block that the items of a column family come to late: rocksdict alone would end there in silence."""
    at = len(raw) * 9 // 10
    return raw[:at] + bytes([raw[at] ^ 0x10]) + raw[at + 1 :]


@needs_rocksdict
@pytest.mark.parametrize(
    ("file", "change"),
    [
        ("000010.sst", _flip_late),
        ("000011.sst", _flip),
        ("000011.sst", _cut),
        ("MANIFEST-000005", _flip),
        ("CURRENT", lambda _: b"\0" * 16),
    ],
)
def test_a_damaged_database_is_one_clear_line(file: str, change: Any, tmp_path: Path) -> None:
    root = oracle.copy("broker", ROCKSDB[0], tmp_path)
    place = root / "consumequeue" / file
    place.write_bytes(change(place.read_bytes()))
    before = oracle.snapshot(root)
    folder = tmp_path / "unpacked"
    folder.mkdir()
    with pytest.raises(Unreadable, match=r"^store/consumequeue: RocksDB cannot read it: ") as caught:
        unpack_queues(open_store([str(root)]), str(folder))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400
    assert oracle.snapshot(root) == before
    assert not (folder / "database").exists()


def die(copy: str, units: str) -> None:
    """Stand in for RocksDB when it ends its process."""
    os.abort()


@needs_rocksdict
def test_a_library_that_ends_its_process_costs_no_more_than_that(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(rmqinspect.consumequeue.rocksdb, "unpack_database", die)
    with pytest.raises(Unreadable, match="ended its process with signal 6"):
        unpacked(ROCKSDB[0], tmp_path)


# --- entries made by hand -------------------------------------------------------------------------


def entry(topic: bytes, queue_id: int, queue_offset: int, physical_offset: int = 0, **changes: int) -> Item:
    head = {"topic_size": len(topic), "separator": 1}
    tail = {"separator": 1, "queue_id": queue_id, "queue_separator": 1, "queue_offset": queue_offset}
    value = {"physical_offset": physical_offset, "size": 100, "tags_code": 7, "store_timestamp": 9}
    key: bytes = KeyHead.build({**head, **changes}) + topic + UnitKeyTail.build({**tail, **changes})
    return key, UnitValue.build(value)


def end(topic: bytes, queue_id: int, which: bytes, physical_offset: int, queue_offset: int) -> Item:
    tail = {"separator": 1, "which": which, "which_separator": 1, "queue_id": queue_id}
    key: bytes = KeyHead.build({"topic_size": len(topic), "separator": 1}) + topic + EndKeyTail.build(tail)
    return key, EndValue.build({"physical_offset": physical_offset, "queue_offset": queue_offset})


def written(folder: Path, items: list[Item], chunk: int = 1_000) -> tuple[dict[str, Any], list[Queue]]:
    """Return the totals and the queues of entries that come in chunks."""
    index = io.StringIO()
    totals = write_queues([items[at : at + chunk] for at in range(0, len(items), chunk)], str(folder), index)
    found = []
    for line in map(json.loads, index.getvalue().splitlines()):
        units = np.fromfile(folder / line["file"], dtype_of(QueueUnit))
        found.append((bytes.fromhex(line["topic"]).decode(), line["queue_id"], units["physical_offset"].tolist()))
        assert units["size"][0] == 100
        assert units["tags_code"][-1] == 7
    return totals, found


def test_queues_are_told_apart_by_topic_and_number(tmp_path: Path) -> None:
    items = [
        *(entry(b"A", 0, number, 10 + number) for number in range(3)),
        entry(b"A", 1, 0, 20),
        entry(b"B", 1, 1, 30),
        entry(b"B", 1, 2, 31),
        entry(b"B", -1, 5, 32),
        entry(b"Long", 0, 0, 40),
    ]
    totals, found = written(tmp_path, items)
    assert found == [
        ("A", 0, [10, 11, 12]),
        ("A", 1, [20]),
        ("B", 1, [30, 31]),
        ("B", -1, [32]),
        ("Long", 0, [40]),
    ]
    assert totals == {"entries": 8, "malformed": 0}


def test_a_queue_longer_than_a_chunk_is_one_file(tmp_path: Path) -> None:
    _, found = written(tmp_path, [entry(b"T", 0, number, number) for number in range(100, 150)], chunk=7)
    assert found == [("T", 0, list(range(100, 150)))]


def test_missing_entries_are_unused_units(tmp_path: Path) -> None:
    totals, found = written(tmp_path, [entry(b"T", 0, number, number) for number in (100, 101, 104)])
    assert found == [("T", 0, [100, 101, 0, 0, 104])]
    assert totals["entries"] == 3


def test_an_entry_far_behind_its_queue_is_left_out(tmp_path: Path) -> None:
    numbers = (5, 6, 7 + (1 << 24), 8 + (1 << 24), 2**57)
    totals, found = written(tmp_path, [entry(b"T", 0, number, number) for number in numbers])
    assert found == [("T", 0, [5, 6])]
    assert totals == {"entries": 2, "malformed": 3}


@pytest.mark.parametrize(
    "item",
    [
        (b"", b""),
        (b"\0" * 19, bytes(28)),
        (b"\0" * 20, bytes(28)),
        (entry(b"T", 0, 1)[0], bytes(27)),
        (entry(b"T", 0, 1)[0], bytes(29)),
        entry(b"T", 0, 1, topic_size=2),
        entry(b"T", 0, 1, separator=2),
        entry(b"T", 0, 1, queue_separator=0),
        entry(b"T", 0, -1),
        entry(b"T", 0, 2**62),
    ],
)
def test_what_is_no_entry_is_counted_and_left_out(item: Item, tmp_path: Path) -> None:
    totals, found = written(tmp_path, [entry(b"S", 0, 0, 50), item, entry(b"T", 0, 2, 60)])
    assert found == [("S", 0, [50]), ("T", 0, [60])]
    assert totals == {"entries": 2, "malformed": 1}


def test_the_ends_of_queues_are_read() -> None:
    assert read_end(*end(b"Topic", 3, b"max", 100, 7)) == {
        "topic": b"Topic".hex(),
        "queue_id": 3,
        "which": "max",
        "physical_offset": 100,
        "queue_offset": 7,
    }
    key, _ = end(b"CHECKPOINT_TOPIC", 0, b"max", 0, 0)
    assert read_end(key, (12345).to_bytes(8, "big")) == {}
    for wrong in (b"", b"\0" * 14, key[1:], end(b"T", 0, b"mid", 0, 0)[0]):
        assert read_end(wrong, bytes(16)) is None
    assert read_end(end(b"T", 0, b"max", 0, 0)[0], bytes(15)) is None


def database(folder: Path, entries: list[Item], ends: list[Item]) -> None:
    from rocksdict import Options, Rdict

    options = Options(raw_mode=True)
    options.create_if_missing(True)
    with Rdict(str(folder), options=options) as made:
        offsets = made.create_column_family("offset", Options(raw_mode=True))
        for key, value in entries:
            made[key] = value
        for key, value in ends:
            offsets[key] = value
        made.flush()
        offsets.flush()


@needs_rocksdict
def test_ends_that_contradict_the_entries_are_told(tmp_path: Path) -> None:
    write(tmp_path, "store/commitlog/00000000000000005000", bytes(100))
    write(tmp_path, "store/consumequeue/FileTopic/0/00000000000000000000", bytes(20))
    entries = [entry(b"T", queue, number, 5_000 + number) for queue in range(4) for number in range(3, 6)]
    ends = [
        end(b"T", 0, b"max", 5_005, 5),
        end(b"T", 0, b"min", 5_003, 3),  # as it should be
        end(b"T", 1, b"max", 5_009, 9),
        end(b"T", 1, b"min", 5_001, 1),  # entries are missing at both ends
        end(b"T", 2, b"min", 5_006, 6),  # all are to be removed
        end(b"T", 3, b"max", 5_004, 4),  # one entry more
        end(b"Unused", 0, b"min", 0, 0),
        end(b"Unused", 1, b"max", -1, -1),
        end(b"Expired", 0, b"max", 4_000, 40),
        end(b"Lost", 0, b"max", 5_050, 40),
    ]
    database(tmp_path / "store" / "consumequeue", entries, ends)
    (tmp_path / "out").mkdir()
    queues = unpack_queues(open_store([str(tmp_path / "store")]), str(tmp_path / "out"))
    assert set(queues.ends) == {
        QueueEnd("T", 1, "max", 5_009, 9, (5_005, 5)),
        QueueEnd("T", 1, "min", 5_001, 1, (5_003, 3)),
        QueueEnd("T", 3, "max", 5_004, 4, (5_005, 5)),
        QueueEnd("Lost", 0, "max", 5_050, 40, None),
    }
    assert [file.base for file in queues.files] == [60] * 4
    assert find_unit(queues.files[:1], 4) == (5_004, 100)
    assert {file.topic for file in queues.files} == {"T"}  # not the file queue beside it


# --- verify --rocksdb -----------------------------------------------------------------------------


@needs_rocksdict
@pytest.mark.parametrize("name", ROCKSDB)
def test_verify_follows_the_units_in_rocksdb_when_asked(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(oracle.store("broker", name))
    assert main(["verify", path, "--level", "deep", "--rocksdb"]) == ExitStatus.DONE
    printed = capsys.readouterr().out
    assert re.search(r"^queues       (\d+) of \1 units lead to their record$", printed, re.MULTILINE)
    assert "consume queues in RocksDB" not in printed
    assert main(["verify", path, "--level", "deep"]) == ExitStatus.DONE
    assert "consume queues in RocksDB" in capsys.readouterr().out


@needs_rocksdict
@pytest.mark.parametrize("lost", ["CURRENT", "MANIFEST"])
def test_a_database_that_cannot_be_read_leaves_the_rest_to_be_judged(
    lost: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = oracle.copy("broker", ROCKSDB[0], tmp_path)
    (path,) = (folder / "consumequeue").glob(f"{lost}*")
    raw = path.read_bytes()
    path.unlink()
    if lost == "MANIFEST":
        path.write_bytes(raw[:40])
    assert main(["verify", str(folder), "--level", "deep", "--rocksdb"]) == ExitStatus.UNREADABLE
    assert "VERDICT      INCOMPLETE: 1 place could not be read, no damage so far" in capsys.readouterr().out
