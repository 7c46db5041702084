"""Timer and half messages in RocksDB: a real broker's timer messages; half messages as a 5.4.0 broker wrote them."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from rmqinspect.broker.eras import rules_of_start
from rmqinspect.forecast.settings import contradictions, settings_of
from rmqinspect.rocksdb.unpack import Unpacking, unpacked
from rmqinspect.schemas import rocksdb as layouts
from rmqinspect.store.discover import open_store
from rmqinspect.store.model import Store, StoreFile
from rmqinspect.tables.config import ROCKSDB_ENTRIES
from rmqinspect.tables.log import MESSAGES_TABLE
from rmqinspect.verify.findings import Finding
from rmqinspect.verify.result import VerifyOptions
from rmqinspect.verify.run import verify
from tests.support import oracle
from tests.support.building import lay, pad, write_segment
from tests.support.command import Run, runner
from tests.support.rocksdb import database, needs_rocksdict
from tests.support.side_tables import broker, milliseconds, rows, write

NAME = "rocksopt-5.5.0"
SIZE = 4096  # of a segment
TIME = 1_795_000_000_000  # ms
IDS = "7F00000174095FFD2B276EEC"

# Column family trans of a 5.4.0 broker with transRocksDBEnable=true and transWriteOriginTransHalfEnable=false: one
# half message whose producer was not asked yet, and one whose producer was asked twice.
HALVES = [
    (bytes.fromhex("000000000001f8f2") + f"@BasketTx@{IDS}0F0700E7".encode(), bytes.fromhex("0000000000000202")),
    (bytes.fromhex("0000000000030049") + f"@BasketTx@{IDS}7D13012F".encode(), bytes.fromhex("00000002000001d3")),
    (b"lastOffsetPy", bytes.fromhex("00000000000306c9")),
]

run = runner()


def timer(due: int, place: int, size: int, name: str = "A") -> tuple[bytes, bytes]:
    """Return an entry of column family `timer`."""
    value: bytes = layouts.TimerValue.build({"record_size": size, "physical_offset": place})
    return layouts.TimerKeyHead.build({"deliver_timestamp": due}) + name.encode(), value


def entries(store: Store) -> list[dict[str, Any]]:
    """Return the rows of the table."""
    with unpacked(store, Unpacking()) as whole:
        assert not whole.oddities
        return rows(ROCKSDB_ENTRIES, whole)


def store_with(root: Path, timers: list[tuple[bytes, bytes]], halves: list[tuple[bytes, bytes]], base: int = 0) -> Path:
    """Make a store of two records of 100 bytes and more, and a database."""
    write_segment(root / "commitlog", pad(lay([{}, {}], base), SIZE), base)
    database(root / "rocksdbstore", {"default": [], "timer": timers, "trans": halves})
    return root


RECORD = len(lay([{}]))


# --- the table ----------------------------------------------------------------------------------------


@needs_rocksdict
def test_timer_messages_are_those_of_the_broker() -> None:
    found = {row["msg_id"]: row for row in entries(broker(NAME))}
    sent = [row for row in oracle.truth("broker", NAME)["sent"] if row["kind"] == "timer"]
    delivered = {row["msg_id"] for row in sent if row["expected"] == "delivered"}
    pending = {row["msg_id"] for row in sent if row["expected"] == "pending"}
    assert delivered
    assert pending
    of_clients = {name: row["state"] for name, row in found.items() if "@" not in name}  # the others are of pop
    assert of_clients == dict.fromkeys(delivered, "done") | dict.fromkeys(pending, "waiting")
    offsets = {row["msg_id"]: row["offset_msg_id"] for row in sent}
    assert all(int(offsets[name][-16:], 16) == found[name]["physical_offset"] for name in delivered | pending)


@needs_rocksdict
def test_each_entry_is_that_of_its_record() -> None:
    store = broker(NAME)
    columns = ("size", "msg_id", "deliver_timestamp")
    records = {
        row["physical_offset"]: tuple(row[name] for name in columns)
        for row in rows(MESSAGES_TABLE, store)
        if row["topic"] == "rmq_sys_wheel_timer"
    }
    found = entries(store)
    assert len(found) == 57
    assert all(records[row["physical_offset"]] == tuple(row[name] for name in columns) for row in found)
    assert [row["deliver_timestamp"] for row in found] == sorted(row["deliver_timestamp"] for row in found)


@needs_rocksdict
def test_half_messages_follow_the_timer_messages(tmp_path: Path) -> None:
    checkpoint = layouts.NumberValue.build({"number": TIME + 1})
    timers = [timer(TIME, 0, 91), timer(TIME + 1, 91, 91, "B"), (layouts.TIMELINE_CHECKPOINT, checkpoint)]
    found = entries(open_store([str(store_with(tmp_path, timers, HALVES))]))
    assert [(row["kind"], row["state"], row["msg_id"]) for row in found] == [
        ("timer", "done", "A"),
        ("timer", "waiting", "B"),
        ("half", "waiting", f"{IDS}0F0700E7"),
        ("half", "waiting", f"{IDS}7D13012F"),
    ]
    assert [milliseconds(row["deliver_timestamp"]) for row in found[:2]] == [TIME, TIME + 1]
    assert [(row["physical_offset"], row["size"], row["real_topic"], row["check_times"]) for row in found[2:]] == [
        (0x1F8F2, 0x202, "BasketTx", 0),
        (0x30049, 0x1D3, "BasketTx", 2),
    ]


@needs_rocksdict
def test_without_a_checkpoint_nothing_was_delivered(tmp_path: Path) -> None:
    found = entries(open_store([str(store_with(tmp_path, [timer(1, 0, 91)], []))]))
    assert [row["state"] for row in found] == ["waiting"]


@needs_rocksdict
def test_what_no_broker_writes_is_told_and_left_out(tmp_path: Path) -> None:
    bad_timers = [timer(TIME, 0, 91, ""), timer(-5, 0, 91), timer(TIME, 0, 0, "B"), (timer(TIME, 0, 1)[0], b"short")]
    key, value = HALVES[0]
    bad_halves = [(key.replace(b"@", b"#"), value), (key[:8], value), (key + b"x", value[1:])]
    store = store_with(tmp_path, [*bad_timers, timer(TIME, 0, 91, "C")], bad_halves)
    with unpacked(open_store([str(store)]), Unpacking()) as whole:
        (oddity,) = whole.oddities
        assert (oddity.name, oddity.detail[:2]) == ("rocksdbstore", "7 ")
        assert oddity.detail.endswith("that no broker writes")
        assert [row["msg_id"] for row in rows(ROCKSDB_ENTRIES, whole)] == ["C"]


# --- the commands ---------------------------------------------------------------------------------------


@needs_rocksdict
def test_info_counts_what_waits_and_decode_prints_it(tmp_path: Path, run: Run) -> None:
    store = store_with(tmp_path / "store", [timer(TIME, 0, RECORD), timer(TIME, RECORD, RECORD, "B")], HALVES)
    _, shown, _ = run("info", store)
    assert "waiting       2 timer messages, 2 half messages, in rocksdbstore (RocksDB)" in shown
    status, table, _ = run("decode", store, "--table", "rocksdb_entries", "-f", "csv", "--columns", "kind,msg_id")
    assert (status, table.split()) == (
        0,
        ["kind,msg_id", "timer,A", "timer,B", f"half,{IDS}0F0700E7", f"half,{IDS}7D13012F"],
    )


def test_a_database_that_was_never_used_is_not_opened(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers of 5.4.0 and later make it, whatever their settings."""
    write_segment(tmp_path / "commitlog", pad(lay([{}]), SIZE))
    for name, size in (("CURRENT", 16), ("MANIFEST-000005", 170), ("000004.log", 0), ("OPTIONS-000011", 16014)):
        write(tmp_path, f"rocksdbstore/{name}", bytes(size))
    monkeypatch.setattr(subprocess, "Popen", None)
    for arguments in (["verify", tmp_path, "--level", "deep"], ["info", tmp_path]):
        _, shown, told = run(*arguments)
        assert "RocksDB" not in shown + told
    status, table, _ = run("decode", tmp_path, "--table", "rocksdb_entries", "-f", "csv")
    assert (status, len(table.splitlines())) == (0, 1)


# --- verify ---------------------------------------------------------------------------------------------


def found_by_verify(store: Path, level: str = "deep") -> list[Finding]:
    with unpacked(open_store([str(store)]), Unpacking()) as whole:
        return verify(whole, VerifyOptions(level=level)).findings.rows


@needs_rocksdict
@pytest.mark.parametrize(
    ("place", "size", "code"),
    [
        (RECORD, RECORD, None),
        (RECORD, RECORD + 1, "TM-CHAIN"),
        (RECORD + 3, RECORD, "TM-CHAIN"),
        (2 * RECORD, RECORD, "TM-BEYOND"),
        (10 * SIZE, RECORD, "TM-BEYOND"),
    ],
)
def test_a_timer_message_without_its_record_is_told(tmp_path: Path, place: int, size: int, code: str | None) -> None:
    store = store_with(tmp_path, [timer(TIME, 0, RECORD), timer(TIME + 1, place, size, "B")], [])
    found = [row for row in found_by_verify(store) if row.code.startswith("TM-")]
    assert [(row.code, row.physical_offset, row.file) for row in found] == (
        [(code, place, "rocksdbstore (RocksDB)")] if code else []
    )


@needs_rocksdict
def test_a_timer_message_that_retention_took_is_silent(tmp_path: Path) -> None:
    store = store_with(tmp_path, [timer(TIME, SIZE - RECORD, RECORD), timer(TIME, SIZE, RECORD, "B")], [], base=SIZE)
    assert not [row for row in found_by_verify(store) if row.code.startswith("TM-")]


@needs_rocksdict
def test_what_is_not_judged_is_said(tmp_path: Path) -> None:
    store = store_with(tmp_path, [timer(TIME, 0, RECORD)], HALVES)

    def unchecked(level: str) -> list[tuple[str, str]]:
        found = found_by_verify(store, level)
        return [(row.unchecked, row.remedy) for row in found if row.code == "ST-UNCHECKED"]

    assert unchecked("deep") == [("half messages and index in RocksDB", "")]
    assert ("timer messages in RocksDB", "--level deep") in unchecked("standard")


TIMER_OFF = (
    "timer messages in RocksDB, which broker.conf does not say: those that wait there stay; set "
    "timerRocksDBEnable=true there"
)
HALF_OFF = (
    "half messages in RocksDB, which broker.conf does not say: open ones are not checked back; set "
    "transRocksDBEnable=true there"
)
INDEX_OFF = (
    "an index in RocksDB, which broker.conf does not say: no key in it is found; set indexRocksDBEnable=true there"
)
OLD = (
    "timer messages in RocksDB, which is read since 5.4.0: those that wait there stay",
    "half messages in RocksDB, which is read since 5.4.0: open ones are not checked back",
    "an index in RocksDB, which is read since 5.4.0: no key in it is found",
)
ON = ("timerRocksDBEnable", "transRocksDBEnable", "indexRocksDBEnable")


@needs_rocksdict
def test_entries_that_broker_conf_makes_a_broker_not_read(tmp_path: Path) -> None:
    number = (5).to_bytes(8, "big")
    timers = [timer(TIME, 0, 100), (layouts.SCAN_CHECKPOINT, number)]
    write(tmp_path, "commitlog/00000000000000000000", bytes(SIZE))
    database(tmp_path / "rocksdbstore", {"default": [(b"lastOffsetPy", number)], "timer": timers, "trans": HALVES})
    cases: list[tuple[str, tuple[str, ...], tuple[str, ...]]] = [
        ("5.5.0", (), (TIMER_OFF, HALF_OFF, INDEX_OFF)),
        ("5.4.0", ON[1:], (TIMER_OFF,)),
        ("5.4.0", ON[:1], (HALF_OFF, INDEX_OFF)),
        ("5.5.0", ON, ()),
        ("5.3.3", ON, OLD),
    ]
    with unpacked(open_store([str(tmp_path)]), Unpacking()) as whole:
        assert not _told(whole, "5.5.0")  # without a broker.conf
        for release, on, told in cases:
            conf = replace(whole, has_conf=True, settings=dict.fromkeys(on, "true"))
            assert _told(conf, release) == told, (release, on)
        with_files = replace(whole, has_conf=True, settings={}, index_files=(StoreFile("", "index/1", 1, "index"),))
        assert INDEX_OFF not in _told(with_files, "5.5.0")


def _told(store: Store, release: str) -> tuple[str, ...]:
    notes = contradictions(store, settings_of(store)[0], rules_of_start(release))
    return tuple(note for note in notes if "in RocksDB" in note)
