"""States of transactions in logs built for them: what no lab broker did, and what is damaged."""

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rmqinspect.tables.read_log
from rmqinspect.rocksdb.unpack import unpacked
from rmqinspect.schemas import rocksdb as layouts
from rmqinspect.store.discover import open_store
from rmqinspect.tables.request import Request
from rmqinspect.tables.transactions import TRANSACTIONS
from tests.support.building import STORED, Piece, fill, lay, pad, write_segment
from tests.support.rocksdb import database, needs_rocksdict
from tests.support.side_tables import rows, write

SIZE = 8192  # of a segment

HALF, OP = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"
ROCKSDB_HALF, ROCKSDB_OP = "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC"
PREPARED, COMMIT, ROLLBACK = 0x4, 0x8, 0xC


def half(key: str, queue_offset: int = 0, checks: int = 0, topic: str = HALF) -> dict[str, Any]:
    """Return a copy of a half message that was checked so often."""
    names = {"PGROUP": "g", "REAL_TOPIC": "Orders", "REAL_QID": "2", "UNIQ_KEY": key, "__transactionId__": key}
    if checks:
        names["TRANSACTION_CHECK_TIMES"] = str(checks)
    return {"topic": topic, "queue_offset": queue_offset, "properties": names}


def op(body: bytes) -> dict[str, Any]:
    return {"topic": OP, "body": body, "properties": {"TAGS": "d"}}


def commit(of: int, key: str = "A", topic: str = "Orders") -> dict[str, Any]:
    return {
        "topic": topic,
        "queue_id": 2,
        "sys_flag": COMMIT,
        "prepared_transaction_offset": of,
        "properties": {"UNIQ_KEY": key, "TRAN_MSG": "true"},
    }


def given_up(key: str) -> dict[str, Any]:
    return half(key) | {"topic": "TRANS_CHECK_MAX_TIME_TOPIC"}


def place_of(pieces: Sequence[Piece], number: int) -> int:
    """Return the physical offset of a piece."""
    return len(lay(pieces[:number]))


def read(root: Path, pieces: Sequence[Piece], check_offset: int | None = 0) -> list[dict[str, Any]]:
    """Return the rows of a log of one segment; `check_offset` is the consumer offset of the check."""
    write_segment(root / "commitlog", pad(lay(pieces), SIZE))
    return rows_of(root, check_offset)


def rows_of(root: Path, check_offset: int | None, told: list[str] | None = None, jobs: int = 1) -> list[dict[str, Any]]:
    if check_offset is not None:
        table = {f"{HALF}@CID_RMQ_SYS_TRANS": {"0": check_offset}}
        write(root, "config/consumerOffset.json", json.dumps({"offsetTable": table}).encode())
    with unpacked(open_store([str(root)])) as store:
        tell = None if told is None else told.append
        return rows(TRANSACTIONS, store, Request(on_remark=tell, on_unreadable=tell, jobs=jobs))


def short(row: Mapping[str, Any]) -> tuple[str, str, int, str]:
    """Return the id, the state, the copies, and the first words of why."""
    return row["msg_id"], row["state"], row["copies"], (row["why"] or "").split(":")[0]


# --- the half topic ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "decided"),
    [
        (b"1", {1}),  # up to 5.0
        (b"2,0,", {0, 2}),  # 5.1.0 and later
        (b"1,", {1}),
        (b",,1", {1}),
        (b"x,1,-2,1 ,99999999999999999999,2", {1, 2}),  # the broker passes over what is no number
        (b"", set()),
        (b"\xff\x00\x01", set()),
    ],
)
def test_an_op_names_queue_offsets_of_half_messages(tmp_path: Path, body: bytes, decided: set[int]) -> None:
    found = read(tmp_path, [*(half(f"K{number}", number) for number in range(3)), op(body)])
    assert {row["queue_offset"] for row in found if row["state"] == "rolled_back"} == decided
    assert {row["state"] for row in found if row["queue_offset"] not in decided} <= {"pending"}


def test_only_the_newest_copy_tells_whether_the_check_has_passed(tmp_path: Path) -> None:
    pieces = [half("A", 0), half("B", 1), half("A", 2, checks=1), half("A", 3, checks=2)]
    found = read(tmp_path, pieces, check_offset=3)
    assert list(map(short, found)) == [
        ("B", "outcome_unknown", 1, "the check has gone past it, and neither an op nor a newer copy is found"),
        ("A", "pending", 3, ""),
    ]
    assert found[1] | {"x": 0} == found[1] | {
        "x": 0,
        "physical_offset": place_of(pieces, 3),
        "queue_offset": 3,
        "first_physical_offset": 0,
        "first_queue_offset": 0,
        "check_times": 2,
        "producer_group": "g",
        "real_topic": "Orders",
        "real_queue_id": 2,
    }


def test_any_copy_may_be_the_one_that_is_committed(tmp_path: Path) -> None:
    pieces = [half("A", 0), half("A", 1, checks=1), half("A", 2, checks=2)]
    pieces += [commit(place_of(pieces, 1)), op(b"1,")]
    (row,) = read(tmp_path, pieces)
    assert short(row) == ("A", "committed", 3, "")
    assert (row["commits"], row["commit_physical_offset"]) == (1, place_of(pieces, 3))
    assert (row["commit_topic"], row["commit_queue_id"]) == ("Orders", 2)
    assert row["op_physical_offset"] == place_of(pieces, 4)


@pytest.mark.parametrize(
    ("check_offset", "why"),
    [(0, "committed, op missing: will be checked again"), (1, "committed, op missing: the check has gone past it")],
)
def test_a_commit_without_op_may_be_repeated(tmp_path: Path, check_offset: int, why: str) -> None:
    (row,) = read(tmp_path, [{}, half("A"), commit(place_of([{}], 1))], check_offset)
    assert row["state"] == "committed"
    assert row["why"].startswith(why)


def test_a_delayed_commit_is_that_in_the_topic_of_the_delay(tmp_path: Path) -> None:
    pieces = [{}, half("A")]
    pieces += [commit(place_of(pieces, 1), topic="SCHEDULE_TOPIC_XXXX"), op(b"0"), commit(0)]
    (row,) = read(tmp_path, pieces)
    assert (row["state"], row["commits"], row["commit_topic"]) == ("committed", 1, "SCHEDULE_TOPIC_XXXX")
    # Without that record the one delivered from it is evidence enough: it has the same UNIQ_KEY.
    (row,) = read(tmp_path, [{}, half("A"), op(b"0"), commit(0)])
    assert (row["state"], row["commits"], row["commit_topic"]) == ("committed", 0, "Orders")


def test_two_commits_are_a_message_seen_twice(tmp_path: Path) -> None:
    pieces = [{}, half("A", 0), half("A", 1, checks=1)]
    pieces += [commit(place_of(pieces, 1)), commit(place_of(pieces, 2)), op(b"0,1,")]
    (row,) = read(tmp_path, pieces)
    assert (row["state"], row["commits"]) == ("committed", 2)
    assert row["why"].startswith("more than one commit record")


def test_given_up_unless_it_was_put_back(tmp_path: Path) -> None:
    pieces = [half("A", 0), half("B", 1), given_up("A"), given_up("B"), half("B", 2)]
    found = read(tmp_path, pieces, check_offset=2)
    assert list(map(short, found)) == [
        ("A", "given_up", 1, ""),
        ("B", "pending", 2, "given up before, then put back to be checked"),
    ]
    assert [row["given_up_physical_offset"] for row in found] == [place_of(pieces, 2), place_of(pieces, 3)]


def test_an_op_is_about_the_half_message_before_it(tmp_path: Path) -> None:
    """A topic that was deleted and made again gives its queue offsets a second time."""
    pieces = [op(b"0"), half("A", 0), op(b"0"), half("B", 0), half("C", 1), op(b"1,7")]
    told: list[str] = []
    write_segment(tmp_path / "commitlog", pad(lay(pieces), SIZE))
    found = rows_of(tmp_path, 0, told)
    assert [short(row)[:2] for row in found] == [("A", "rolled_back"), ("B", "pending"), ("C", "rolled_back")]
    assert found[0]["op_physical_offset"] == place_of(pieces, 2)
    assert told == ["2 ops about half messages that are not in the log"]


def test_half_messages_without_an_id_are_not_joined(tmp_path: Path) -> None:
    without: dict[str, Any] = {"topic": HALF, "properties": {"PGROUP": "g"}}
    pieces: list[Piece] = [without, without | {"queue_offset": 1}, half("", 2), op(b"1")]
    found = read(tmp_path, pieces)
    assert [(row["msg_id"], row["state"], row["copies"]) for row in found] == [
        (None, "pending", 1),
        (None, "rolled_back", 1),
        (None, "pending", 1),
    ]


def test_the_transaction_id_stands_in_for_a_lost_id(tmp_path: Path) -> None:
    other = half("A", 1, checks=1)
    other["properties"] = {name: text for name, text in other["properties"].items() if name != "UNIQ_KEY"}
    assert [short(row) for row in read(tmp_path, [half("A"), other])] == [("A", "pending", 2, "")]


def test_without_consumer_offsets_a_pending_message_may_be_decided(tmp_path: Path) -> None:
    (row,) = read(tmp_path, [half("A")], check_offset=None)
    assert short(row)[1:] == ("pending", 1, "no consumer offset of CID_RMQ_SYS_TRANS given")


# --- damage -----------------------------------------------------------------------------------------------


def test_a_commit_may_lie_among_lost_records(tmp_path: Path) -> None:
    first, last = fill(lay([half("A", 0), half("B", 1), op(b"1")]), SIZE), lay([op(b"0"), half("C", 2)], 2 * SIZE)
    write_segment(tmp_path / "commitlog", first)
    write_segment(tmp_path / "commitlog", pad(last, SIZE), 2 * SIZE)
    assert list(map(short, rows_of(tmp_path, 0))) == [
        ("A", "rolled_back", 1, "op present, commit not found"),
        ("B", "rolled_back", 1, ""),  # the log is whole from the half message to its op
        ("C", "pending", 1, ""),
    ]


def test_an_op_may_lie_among_lost_records(tmp_path: Path) -> None:
    write_segment(tmp_path / "commitlog", fill(lay([half("A", 0)]), SIZE))
    write_segment(tmp_path / "commitlog", pad(lay([half("B", 1)], 2 * SIZE), SIZE), 2 * SIZE)
    assert list(map(short, rows_of(tmp_path, 0))) == [
        ("A", "pending", 1, "records behind it are lost"),
        ("B", "pending", 1, ""),
    ]


def test_a_damaged_op_decides_nothing_and_is_told(tmp_path: Path) -> None:
    raw = bytearray(lay([half("A", 0), half("B", 1), op(b"0,1,")]))
    raw[raw.index(b"0,1,")] ^= 1
    write_segment(tmp_path / "commitlog", pad(bytes(raw), SIZE))
    told: list[str] = []
    assert [row["state"] for row in rows_of(tmp_path, 0, told)] == ["pending", "pending"]
    assert told == ["1 op record damaged: what they decided looks undecided"]


def test_every_byte_of_a_half_and_an_op_may_be_wrong(tmp_path: Path) -> None:
    sound = lay([half("A", 0, checks=1), op(b"0,"), commit(0), given_up("A")])
    random = np.random.default_rng(12)
    for number in range(150):
        raw = bytearray(sound)
        for place in random.integers(0, len(raw), 3).tolist():
            raw[place] = int(random.integers(0, 256))
        for found in read(tmp_path, [bytes(raw)]):
            assert found["state"] in ("pending", "committed", "rolled_back", "given_up", "outcome_unknown"), number


def test_splits_of_the_log_give_the_same_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pieces: list[Piece] = []
    for number in range(40):
        pieces += [half(f"K{number % 25}", number, checks=number // 25), {"body": bytes(50)}]
        if number % 4 == 0:
            pieces += [commit(place_of(pieces, len(pieces) - 2), f"K{number % 25}"), op(f"{number},".encode())]
    write_segment(tmp_path / "commitlog", pad(lay(pieces), 32 << 10))
    whole = rows_of(tmp_path, 20)
    monkeypatch.setattr(rmqinspect.tables.read_log, "SPLIT_SIZE", 1 << 10)
    assert rows_of(tmp_path, 20, jobs=3) == whole
    assert {row["state"] for row in whole} == {"pending", "committed", "outcome_unknown"}


# --- RocksDB ----------------------------------------------------------------------------------------------


@needs_rocksdict
def test_rocksdb_holds_what_is_not_decided(tmp_path: Path) -> None:
    pieces = [{}, *(half(key, topic=ROCKSDB_HALF) for key in "ABCDE")]
    places = [place_of(pieces, number) for number in range(1, 6)]
    end = {"topic": ROCKSDB_OP, "body": b"\0"}
    pieces += [
        commit(places[0]),
        *(end | {"properties": {"TAGS": "d", "TRANS_OFFSET": str(place)}} for place in places[:2]),
        end,  # it names nothing
        half("F", topic=ROCKSDB_HALF),
    ]
    write_segment(tmp_path / "commitlog", pad(lay(pieces), SIZE))
    unread = {row["msg_id"]: short(row)[1:] for row in rows_of(tmp_path, 0)}
    assert unread["C"] == ("pending", 1, "RocksDB was not read")

    # After a kill nothing may be in it, and the broker enters all again.
    for name in ("CURRENT", "MANIFEST-000005", "000004.log"):
        write(tmp_path, f"rocksdbstore/{name}", b"")
    killed = {row["msg_id"]: short(row)[1:] for row in rows_of(tmp_path, 0)}
    assert killed["C"] == ("pending", 1, "not in RocksDB yet")
    assert killed["B"] == ("rolled_back", 1, "")
    shutil.rmtree(tmp_path / "rocksdbstore")

    def entry(place: int, key: str, checks: int) -> tuple[bytes, bytes]:
        head = layouts.HalfKeyHead.build({"physical_offset": place})
        return head + f"@Orders@{key}".encode(), layouts.HalfValue.build({"check_times": checks, "record_size": 300})

    last = layouts.NumberValue.build({"number": places[-1]})
    entries = [entry(places[2], "C", 2), entry(places[4], "E", 0), (layouts.LAST_HALF, last)]
    database(tmp_path / "rocksdbstore", {"default": [], "timer": [], "trans": entries})
    found = {row["msg_id"]: row for row in rows_of(tmp_path, 0)}
    assert {key: short(row)[1:] for key, row in found.items()} == {
        "A": ("committed", 1, ""),
        "B": ("rolled_back", 1, ""),
        "C": ("pending", 1, ""),
        "D": ("given_up", 1, "no entry in RocksDB and no op"),
        "E": ("pending", 1, ""),
        "F": ("pending", 1, "not in RocksDB yet"),
    }
    assert [found[key]["check_times"] for key in "CE"] == [2, 0]
    assert {row["kept_in"] for row in found.values()} == {"rocksdb"}


# --- 4.2.0 and before -------------------------------------------------------------------------------------


def test_old_half_messages_lie_in_their_real_topic(tmp_path: Path) -> None:
    prepared: list[Piece] = [{}]
    prepared += [
        {"topic": "Orders", "queue_id": 3, "sys_flag": PREPARED, "properties": {"PGROUP": "g", "UNIQ_KEY": key}}
        for key in "ABC"
    ]
    places = [place_of(prepared, number) for number in range(1, 4)]
    end = {"topic": "Orders", "queue_id": 3, "sys_flag": ROLLBACK, "body": b""}
    pieces = [*prepared, commit(places[0]), end | {"prepared_transaction_offset": places[1]}]
    found = read(tmp_path, pieces, check_offset=None)
    assert list(map(short, found)) == [
        ("A", "committed", 1, ""),
        ("B", "rolled_back", 1, ""),
        ("C", "pending", 1, "4.2.0 or before"),
    ]
    assert {(row["real_topic"], row["real_queue_id"], row["queue_offset"]) for row in found} == {("Orders", 3, None)}
    assert found[1]["op_physical_offset"] == place_of(pieces, 5)


def test_times_and_ids_are_those_of_the_newest_copy(tmp_path: Path) -> None:
    pieces = [half("A"), half("A", 1, checks=1) | {"store_timestamp": STORED + 60_000, "body": bytes(3000)}]
    (row,) = read(tmp_path, pieces)
    assert row["store_timestamp"].timestamp() * 1000 == STORED + 60_000
