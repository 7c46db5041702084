"""The walk over a segment: whatever its bytes are, each is reported once, and no record is missed or invented."""

import os
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import rmqinspect.commitlog.scan
from rmqinspect import loops
from rmqinspect.commitlog.gaps import ZERO_RUN, Gap, Split
from rmqinspect.commitlog.scan import Event, RecordRun, scan_split
from rmqinspect.schemas.dledger import EntryHead
from rmqinspect.schemas.message import FIXED_SIZE, MAGIC_BLANK, SysFlag
from rmqinspect.store.model import Segment
from rmqinspect.store.reader import FileReader
from rmqinspect.tables.messages import message_batches
from rmqinspect.tables.request import Request
from tests.support.building import (
    BROKER_V6,
    PRODUCER_V6,
    STORED,
    Piece,
    blank,
    entry,
    entry_blank,
    fields_of,
    fill,
    flips,
    lay,
    pad,
    record,
    various,
    write_segment,
)
from tests.support.scanning import Found, Scan, scan, statuses, table
from tests.support.side_tables import crash

BASE = 1 << 30
SMALL = various(12)
SMALL_LOG = lay(SMALL, BASE)
LATER: list[dict[str, Any]] = [{"store_timestamp": STORED + 50 + number} for number in range(3)]

few = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(params=[16384, 2], ids=["large batches", "batches of two"])
def batches(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a test with batches of many records and of two."""
    monkeypatch.setattr(rmqinspect.commitlog.scan, "BATCH_RECORDS", request.param)


BATCHES = pytest.mark.usefixtures("batches")


def offsets(found: Scan) -> list[int]:
    return [one.physical_offset for one in found.records]


def ends_of(pieces: list[dict[str, Any]], base: int = 0) -> list[int]:
    """Return where each record of a log ends, from its first byte."""
    return [len(lay(pieces[: count + 1], base)) for count in range(len(pieces))]


# --- any bytes ------------------------------------------------------------------------------------

HOSTILE = st.one_of(
    st.binary(max_size=200),
    st.integers(0, 700).map(bytes),
    st.sampled_from([blank(0), blank(64), blank(-1), entry_blank(64), record()[:8], record()[4:8], entry(b"", 0)]),
    st.sampled_from(SMALL),
    # A record of which four bytes, of a length or a magic perhaps, were overwritten.
    st.tuples(st.sampled_from(SMALL), st.integers(0, 140), st.binary(min_size=4, max_size=4)).map(
        lambda drawn: overwritten(record(**drawn[0]), drawn[1], drawn[2])
    ),
)


def overwritten(raw: bytes, at: int, by: bytes) -> bytes:
    return raw[:at] + by + raw[at + len(by) :]


@few
@given(pieces=st.lists(HOSTILE, max_size=12), dledger=st.booleans(), window=st.sampled_from([100, 333, 4 << 20]))
@BATCHES
def test_any_bytes_are_rows_and_gaps(tmp_path: Path, pieces: list[Piece], dledger: bool, window: int) -> None:
    raw = lay(pieces, BASE, dledger=dledger)
    segment = write_segment(tmp_path, raw, BASE, "dledger" if dledger else "segment")
    found = scan(segment)
    assert scan(segment, window_size=window) == found
    rows = table(segment, window_size=window)
    assert rows["physical_offset"].to_pylist() == offsets(found)
    scan(segment, split_size=77, window_size=window)


@few
@given(raw=st.binary(max_size=2000), dledger=st.booleans())
def test_random_bytes_hold_no_record(tmp_path: Path, raw: bytes, dledger: bool) -> None:
    segment = write_segment(tmp_path, raw, BASE, "dledger" if dledger else "segment")
    found = scan(segment)
    assert not found.records
    assert {gap.kind for gap in found.gaps} <= {"unknown", "zeros"}


def test_an_empty_segment_holds_nothing(tmp_path: Path) -> None:
    for kind in ("segment", "dledger"):
        assert scan(write_segment(tmp_path, b"", 0, kind))[:2] == ([], [])


@pytest.mark.parametrize("size", range(1, 8))
def test_a_few_bytes_are_a_gap(size: int, tmp_path: Path) -> None:
    assert scan(write_segment(tmp_path, bytes(size))).gaps == [Gap(0, size, "zeros", None)]
    raw = SMALL_LOG + b"\xff" * size
    end = BASE + len(SMALL_LOG)
    found = scan(write_segment(tmp_path, raw, BASE))
    assert len(found.records) == len(SMALL)
    assert found.gaps == [Gap(end, end + size, "unknown", "short")]


# --- cut --------------------------------------------------------------------------------------------


def cut_everywhere(segment: Segment, sizes: Iterator[int] | range) -> None:
    """Check that a segment cut to any of these sizes, descending, gives the first of its rows."""
    rows = table(segment).combine_chunks()
    ends = [
        offset + size - segment.base
        for offset, size in zip(rows["physical_offset"].to_pylist(), rows["size"].to_pylist(), strict=True)
    ]
    path = Path(segment.path)
    for size in sizes:
        os.truncate(path, size)
        cut = Segment(segment.path, segment.name, size, segment.kind, segment.base)
        count = sum(end <= size for end in ends)
        assert len(scan(cut).records) == count
        if size % 31 == 0 or size in ends:
            assert table(cut).combine_chunks() == rows.slice(0, count)


@pytest.mark.parametrize("kind", ["segment", "dledger"])
@BATCHES
def test_a_log_cut_at_any_byte_gives_the_first_of_its_rows(kind: str, tmp_path: Path) -> None:
    raw = fill(lay(SMALL, BASE, dledger=kind == "dledger"), 3000)
    cut_everywhere(write_segment(tmp_path, raw, BASE, kind), range(3000, -1, -3))


def test_a_real_log_cut_at_any_byte_gives_the_first_of_its_rows(tmp_path: Path) -> None:
    first = crash("base-5.5.0-clean").segments[0]
    raw = Path(first.path).read_bytes()[:1800]
    cut_everywhere(write_segment(tmp_path, raw, first.base), range(1800, -1, -7))


# --- flipped ----------------------------------------------------------------------------------------

# Fields in which a flipped bit can go unnoticed by the scan and by a row's status. Nothing in a record
# covers them unless it ends in `__CRC32#`; other witnesses do: queue units, queue offsets in order, ids.
UNPROTECTED = {
    "queue_id",
    "flag",
    "queue_offset",
    "sys_flag",
    "born_timestamp",
    "born_host",
    "store_timestamp",
    "store_host",
    "reconsume_times",
    "prepared_transaction_offset",
    "topic",
    "properties",
}
# The CRC of a record covers all before it, not its own name: without that, it is no CRC.
UNPROTECTED_BY_CRC = {"crc_name"}

FLIPPED: list[dict[str, Any]] = [
    {"topic": "T", "body": b"abc", "properties": {"TAGS": "a", "KEYS": "k"}},
    {"topic": "%RETRY%" + "g" * 121, "body": b"d", "properties": {"TAGS": "a"}},
    {"topic": "T", "body": b"ef", "born_host": PRODUCER_V6, "store_host": BROKER_V6},
    {"topic": "T", "body": b"gh", "properties": {"TAGS": "a"}, "crc": True},
]


def test_a_flipped_bit_is_noticed_or_in_a_field_that_nothing_protects(tmp_path: Path) -> None:
    log = lay(FLIPPED, BASE)
    segment = write_segment(tmp_path, fill(log, len(log) + 64), BASE)
    raw = Path(segment.path).read_bytes()
    whole = said(segment)
    assert whole[0] == ["ok"] * 4
    names: list[tuple[int, str]] = []
    start = 0
    for number, end in enumerate(ends_of(FLIPPED, BASE)):
        names += [(number, name) for name in fields_of(raw[start:end])]
        start = end
    unnoticed: dict[int, Counter[str]] = {number: Counter() for number in range(4)}
    with Path(segment.path).open("r+b", buffering=0) as file:
        for position, _, changed in flips(raw[: len(log) + 8]):
            os.pwrite(file.fileno(), changed[position : position + 1], position)
            now = said(segment)
            os.pwrite(file.fileno(), raw[position : position + 1], position)
            if now == whole:
                assert position < len(log), "a blank record was changed, and nobody noticed"
                number, name = names[position]
                unnoticed[number][name] += 1
    # No properties and less than none are the same to the broker: the sign bit of their length.
    assert unnoticed[2].pop("properties_size") == 1
    for number in range(3):
        assert unnoticed[number].keys() == UNPROTECTED - ({"properties"} if number == 2 else set())
    assert unnoticed[3].keys() == UNPROTECTED_BY_CRC


def said(segment: Segment) -> tuple[list[str], list[Event]]:
    """Return what the scan and the rows' status say about a segment: statuses, and gaps and places of records."""
    reported: list[str] = []
    places: list[Any] = []
    for event in scan_split(Split(segment, 0, segment.size)):
        if isinstance(event, RecordRun):
            reported += next(message_batches(event, STATUS_ONLY))["status"].to_pylist()
            places.append((event.records.base + event.records.starts).tolist())
        else:
            places.append(event)
    return reported, places


STATUS_ONLY = Request(columns=frozenset({"status"}))


# --- windows and splits -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["segment", "dledger"])
@BATCHES
def test_the_size_of_the_window_changes_nothing(kind: str, tmp_path: Path) -> None:
    pieces = [*SMALL, {"body": bytes(range(256)) * 16}, *various(5)]
    log = lay(pieces, BASE, dledger=kind == "dledger")
    damaged = overwritten(log, len(SMALL_LOG) // 2, b"\xff" * 40)
    for raw in (fill(log, len(log) + 100), pad(log, len(log) + 999), damaged):
        segment = write_segment(tmp_path, raw, BASE, kind)
        whole, rows = scan(segment), table(segment).combine_chunks()
        # Also windows that end exactly where a record does, or a byte before or after.
        ends = [end + more for end in ends_of(SMALL, BASE) for more in (-1, 0, 1)]
        for window in (*range(100, 5000, 197), *ends):
            assert scan(segment, window_size=window) == whole
        for window in (100, 1000, ends[4], ends[7]):
            assert table(segment, window_size=window).combine_chunks() == rows


@pytest.mark.parametrize("kind", ["segment", "dledger"])
@BATCHES
def test_the_size_of_the_splits_changes_nothing(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = lay([*SMALL, bytes(700), *LATER], BASE, dledger=kind == "dledger")
    damaged = overwritten(overwritten(log, 400, b"\xff" * 40), 1000, bytes(600))
    for raw in (log, fill(log, len(log) + 100), pad(damaged, len(damaged) + 999)):
        segment = write_segment(tmp_path, raw, BASE, kind)
        whole = scan(segment)
        for look_back in (1000, 6 << 20):
            monkeypatch.setattr(rmqinspect.commitlog.scan, "LOOK_BACK", look_back)
            for split_size in (13, 61, 200, 531, 1999) if look_back > 1000 else (350, 777):
                parts = scan(segment, split_size, window_size=500)
                assert (parts.records, parts.gaps) == (whole.records, whole.gaps)
                assert parts.account.gap_bytes == whole.account.gap_bytes


@BATCHES
def test_a_record_larger_than_the_window_is_one_row(tmp_path: Path) -> None:
    body = os.urandom(20_000)
    segment = write_segment(tmp_path, lay([{}, {"body": body}, {}]))
    found = table(segment, window_size=1000)
    assert found["body"].to_pylist() == [b"Hello RocketMQ", body, b"Hello RocketMQ"]
    assert found["status"].to_pylist() == ["ok"] * 3


@BATCHES
def test_a_size_that_leads_beyond_a_window_is_not_believed_alone(tmp_path: Path) -> None:
    log = lay([{}, {"body": b"x"}, *various(40)])
    start = len(record())
    lying = overwritten(log, start, (3000).to_bytes(4, "big"))
    found = scan(write_segment(tmp_path, lying), window_size=500)
    assert found == scan(write_segment(tmp_path, lying))
    assert [gap for gap in found.gaps if gap.reason] == [
        Gap(start, start + len(record(body=b"x")), "unknown", "length")
    ]


@pytest.mark.parametrize("kind", ["segment", "dledger"])
def test_records_in_their_place_inside_of_bodies_are_no_records(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces: list[Piece] = []
    lead = EntryHead.sizeof() if kind == "dledger" else 0
    at = BASE
    for number in range(60):
        inside = b""
        for _ in range(number % 5):
            inside += record(at + lead + 88 + len(inside), body=b"inner")
        pieces.append({"body": inside, "store_timestamp": STORED + number})
        at += lead + len(record(body=inside))
    segment = write_segment(tmp_path, lay(pieces, BASE, dledger=kind == "dledger"), BASE, kind)
    whole = scan(segment)
    assert (len(whole.records), whole.gaps) == (60, [])
    for most in (1, 2, 7):
        monkeypatch.setattr(rmqinspect.commitlog.scan, "BATCH_RECORDS", most)
        assert scan(segment) == whole
        assert scan(segment, window_size=2000) == whole


# --- what looks like a record and is none -----------------------------------------------------------


@BATCHES
def test_a_record_in_a_body_is_no_row(tmp_path: Path) -> None:
    outer = {"body": b"before" + record(12345) + b"after" + record(0)}
    segment = write_segment(tmp_path, lay([{}, outer, {}]))
    assert len(scan(segment).records) == 3
    assert statuses(segment) == ["ok"] * 3


@pytest.mark.parametrize("own_place", [True, False])
@BATCHES
def test_of_a_damaged_record_only_a_copy_at_its_own_offset_is_carved(own_place: bool, tmp_path: Path) -> None:
    first = lay([{}])
    # Where the copy comes to stand: behind the first record, the head of the second, and five bytes.
    inside = len(first) + FIXED_SIZE - 3 + 5
    outer = {"body": b"12345" + record(inside if own_place else inside + 1) + b"after"}
    log = lay([{}, outer, {}])
    assert len(scan(write_segment(tmp_path, log)).records) == 3
    damaged = overwritten(log, len(first) + 4, bytes(4))
    found = scan(write_segment(tmp_path, damaged))
    behind = len(log) - len(record())
    assert offsets(found) == ([0, inside, behind] if own_place else [0, behind])
    assert [one.carved for one in found.records] == ([False, True, True] if own_place else [False, True])


def test_a_copy_in_the_wrong_place_is_a_row_of_the_chain_but_never_carved(tmp_path: Path) -> None:
    moved = record(5)
    segment = write_segment(tmp_path, lay([{}]) + moved + lay([{}], len(record()) * 2))
    assert statuses(segment) == ["ok", "offset_mismatch", "ok"]
    segment = write_segment(tmp_path, lay([{}]) + b"x" + moved + lay([{}], len(record()) * 2 + 1))
    assert statuses(segment) == ["ok", "carved"]


@BATCHES
def test_junk_behind_a_blank_gives_no_row(tmp_path: Path) -> None:
    log = lay(SMALL, BASE)
    # Right offsets, right CRCs: behind a blank record it is filler all the same.
    junk = lay(SMALL[:4], BASE + len(log) + 8)
    raw = fill(log, len(log) + 2000, junk)
    segment = write_segment(tmp_path, raw, BASE)
    found = scan(segment)
    assert len(found.records) == len(SMALL)
    assert found.gaps == [Gap(BASE + len(log), BASE + len(raw), "filler", None)]
    assert scan(segment, split_size=500)[:2] == found[:2]


WRONG_SIZES = pytest.mark.parametrize("size", [8, 91, 100_000, 0, -1])


@WRONG_SIZES
def test_a_blank_with_a_wrong_size_ends_the_segment_and_says_so(size: int, tmp_path: Path) -> None:
    log = lay(SMALL, BASE)
    raw = log + blank(size) + lay(SMALL, BASE)  # what stands behind it is of another place
    found = scan(write_segment(tmp_path, raw, BASE))
    assert len(found.records) == len(SMALL)
    assert found.gaps == [Gap(BASE + len(log), BASE + len(raw), "filler", "blank_size")]


@WRONG_SIZES
@pytest.mark.parametrize("split_size", [500, 1 << 20])
def test_a_blank_with_a_wrong_size_hides_no_records_behind_it(size: int, split_size: int, tmp_path: Path) -> None:
    log = lay(SMALL, BASE)
    raw = log + blank(size) + lay(SMALL, BASE + len(log) + 8)
    found = scan(write_segment(tmp_path, raw, BASE), split_size=split_size)
    assert len(found.records) == 2 * len(SMALL)
    assert found.gaps == [Gap(BASE + len(log), BASE + len(log) + 8, "unknown", "blank_size")]


@pytest.mark.parametrize("behind", [0, 1])
def test_a_record_with_the_magic_of_a_blank_is_damage_of_its_own_length(behind: int, tmp_path: Path) -> None:
    with_key: dict[str, Any] = {"properties": {"KEYS": "a"}}
    log = bytearray(lay([with_key] * (2 + behind), BASE))
    size = len(record(**with_key))
    log[size + 4 : size + 8] = blank(8)[4:]
    found = scan(write_segment(tmp_path, bytes(log) + bytes(3000), BASE))
    assert len(found.records) == 1 + behind
    start = BASE + size
    assert found.gaps[0] == Gap(start, start + size, "unknown", "blank_size")
    assert found.gaps[1].kind == "zeros"


def test_a_blank_of_eight_bytes_fills_a_segment(tmp_path: Path) -> None:
    found = scan(write_segment(tmp_path, SMALL_LOG + blank(8), BASE))
    assert found.gaps == [Gap(BASE + len(SMALL_LOG), BASE + len(SMALL_LOG) + 8, "filler", None)]


def test_a_blank_behind_damage_is_found(tmp_path: Path) -> None:
    raw = fill(SMALL_LOG + b"\xff" * 50, 3000, b"junk")
    found = scan(write_segment(tmp_path, raw, BASE))
    start = BASE + len(SMALL_LOG)
    assert found.gaps == [Gap(start, start + 50, "unknown", "magic"), Gap(start + 50, BASE + 3000, "filler", None)]


# --- zeros, and what stands behind them -------------------------------------------------------------


def test_zeros_to_the_end_are_no_damage(tmp_path: Path) -> None:
    found = scan(write_segment(tmp_path, pad(SMALL_LOG, 9000), BASE))
    assert found.gaps == [Gap(BASE + len(SMALL_LOG), BASE + 9000, "zeros", None)]
    assert found.account.state(follows_data=False, segment_size=9000) == "current"
    assert found.account.state(follows_data=True, segment_size=9000) == "damaged"


def test_a_gibibyte_of_holes_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    segment = write_segment(tmp_path, SMALL_LOG, BASE)
    os.truncate(segment.path, 1 << 30)
    sparse = Segment(segment.path, segment.name, 1 << 30, "segment", BASE)
    if os.stat(segment.path).st_blocks * 512 > 1 << 20:
        pytest.skip("the file system has no holes")
    expected: list[int] = []
    monkeypatch.setattr(loops, "expect", expected.append)
    before = FileReader.bytes_read
    found = scan(sparse)
    assert 0 < expected[0] < 1 << 20  # what is on disk: no word about loops that are not compiled
    parts = scan(sparse, split_size=16 << 20)
    assert FileReader.bytes_read - before < 16 << 20
    assert len(found.records) == len(SMALL)
    assert found.gaps == parts.gaps == [Gap(BASE + len(SMALL_LOG), BASE + (1 << 30), "zeros", None)]


def test_newer_records_behind_zeros_are_carved_once_then_ok(tmp_path: Path) -> None:
    later = lay(LATER, BASE + 8192)
    segment = write_segment(tmp_path, pad(pad(SMALL_LOG, 8192) + later, 16384), BASE)
    found = scan(segment)
    assert statuses(segment)[len(SMALL) :] == ["carved", "ok", "ok"]
    assert [one.stale for one in found.records] == [False] * 15
    assert [gap.kind for gap in found.gaps] == ["zeros", "zeros"]


@pytest.mark.parametrize("split_size", [1 << 40, 500, 333])
@BATCHES
def test_records_of_an_earlier_life_are_stale(split_size: int, tmp_path: Path) -> None:
    old = lay([{"body": b"old " * 9, "store_timestamp": STORED + number} for number in range(10)], BASE)
    new = lay([{"body": b"new", "store_timestamp": STORED + 60_000 + number} for number in range(4)], BASE)
    segment = write_segment(tmp_path, pad(new + old[len(new) :], 4000), BASE)
    found = scan(segment, split_size)
    stale = [one for one in found.records if one.stale]
    assert len(found.records) - len(stale) == 4
    assert [one.physical_offset for one in stale] == [
        BASE + start for start in range(0, len(old), len(old) // 10) if start >= len(new)
    ]
    assert [one.carved for one in found.records] == [False] * 4 + [True] + [False] * (len(stale) - 1)
    # Of the two the status tells the one that stands first in STATUSES.
    assert statuses(segment) == ["ok"] * 4 + ["carved"] + ["stale"] * (len(stale) - 1)
    assert found.gaps[0].kind == "unknown"


def test_old_records_that_begin_where_the_new_ones_end_are_the_chain(tmp_path: Path) -> None:
    # A restarted broker would go on into them as well: nothing but their times and numbers tells.
    old = lay([{"store_timestamp": STORED + number} for number in range(6)])
    new = lay([{"store_timestamp": STORED + 60_000 + number} for number in range(3)])
    segment = write_segment(tmp_path, new + old[len(new) :])
    assert statuses(segment) == ["ok"] * 6


@pytest.mark.parametrize(("zeros", "kinds"), [(ZERO_RUN - 1, ["unknown"]), (ZERO_RUN, ["unknown", "zeros", "unknown"])])
def test_a_run_of_zeros_inside_damage_is_told_from_a_sector_on(zeros: int, kinds: list[str], tmp_path: Path) -> None:
    raw = SMALL_LOG + b"\xff" * 20 + bytes(zeros) + b"\xff" * 20
    segment = write_segment(tmp_path, raw + lay([{}], BASE + len(raw)), BASE)
    found = scan(segment)
    assert [gap.kind for gap in found.gaps] == kinds
    for split_size in (len(SMALL_LOG) + 30, len(SMALL_LOG) + 100, 700):
        assert scan(segment, split_size).gaps == found.gaps


# --- DLedger ----------------------------------------------------------------------------------------


def test_records_of_dledger_stand_behind_their_entries(tmp_path: Path) -> None:
    log = lay(SMALL, BASE, dledger=True)
    raw = pad(log + entry_blank(3000 - len(log)), 3000)
    segment = write_segment(tmp_path, raw, BASE, "dledger")
    found = scan(segment)
    assert found.records[0] == Found(BASE + 48, len(record(**SMALL[0])), False, False)
    assert set(statuses(segment)) == {"ok"}
    assert found.gaps == [Gap(BASE + len(log), BASE + 3000, "filler", None)]
    assert found.account.gap_bytes["filler"] == 3000 - len(log) + 48 * len(SMALL)


@pytest.mark.parametrize("at", [0, 4, 44])
@BATCHES
def test_a_damaged_entry_is_a_gap_and_the_next_is_found(at: int, tmp_path: Path) -> None:
    log = lay(SMALL, BASE, dledger=True)
    lengths = [len(record(**piece)) + 48 for piece in SMALL]
    start = sum(lengths[:3])
    segment = write_segment(tmp_path, overwritten(log, start + at, b"\x7f\xff\xff\xff"), BASE, "dledger")
    found = scan(segment)
    assert found.gaps == [Gap(BASE + start, BASE + start + lengths[3], "unknown", "entry")]
    assert statuses(segment) == ["ok"] * 3 + ["carved"] + ["ok"] * 7


# --- evidence that changes, or cannot be read -------------------------------------------------------


def test_a_segment_that_grew_shorter_since_it_was_listed_is_read_to_its_end(tmp_path: Path) -> None:
    segment = write_segment(tmp_path, SMALL_LOG, BASE)
    os.truncate(segment.path, 500)
    listed = Segment(segment.path, segment.name, len(SMALL_LOG), "segment", BASE)
    found = list(scan_split(Split(listed, 0, listed.size)))
    assert isinstance(found[-2], Gap)
    assert found[-2].end == BASE + 500


def test_the_crc_of_an_empty_body_is_zero(tmp_path: Path) -> None:
    assert zlib.crc32(b"") == 0
    log = lay([{"body": b""}, {"body": b"", "sys_flag": SysFlag.COMPRESSED}])
    assert statuses(write_segment(tmp_path, log)) == ["ok", "ok"]


def test_a_blank_magic_is_what_the_broker_writes() -> None:
    assert MAGIC_BLANK.to_bytes(4, "big", signed=True).hex() == "cbd43194"
    assert blank(1234).hex(" ") == "00 00 04 d2 cb d4 31 94"
