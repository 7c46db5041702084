"""The rows of all splits, one behind the other, are the table: for any size of split, on any damage."""

import os
import pickle
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqinspect.commitlog.gaps import SEGMENT_START
from rmqinspect.commitlog.scan import walk_to
from rmqinspect.errors import Unreadable
from rmqinspect.rocksdb.unpack import unpacked
from rmqinspect.schemas.consumequeue import QueueUnit
from rmqinspect.store.discover import open_store
from rmqinspect.store.model import Store
from rmqinspect.store.names import name_store
from rmqinspect.tables import TABLES
from rmqinspect.tables.request import Request
from rmqinspect.tables.splits import SMALLEST_PART, Origin, TableSplit, default_split_size, split_rows, split_table
from tests.support import oracle
from tests.support.building import STORED, fill, lay, pad, record, various, write_segment
from tests.support.sampling import sampled

SEGMENT = 4096

# Damage of every kind, stores of every layout: RocksDB, DLedger, batch and ext queues, timers, lost segments.
CASES = [
    *(("crash", name) for name in oracle.cases("crash")[::12]),
    *(("broker", name) for name in oracle.cases("broker")[::2]),
]


def whole_table(name: str, store: Store, request: Request = Request()) -> pa.Table:  # noqa: B008 (frozen)
    return pa.Table.from_batches(TABLES[name].rows(store, request), TABLES[name].schema)


def table_of_splits(name: str, store: Store, size: int, request: Request = Request(), **how: Any) -> pa.Table:  # noqa: B008
    """Read every split as another process would: from its pickle alone."""
    splits = [pickle.dumps(split) for split in split_table(name, store, size, **how)]
    batches = [batch for split in splits for batch in split_rows(pickle.loads(split), request)]
    return pa.Table.from_batches(batches, TABLES[name].schema)


@pytest.mark.parametrize(("family", "name"), sampled(CASES, 6))
def test_the_splits_of_a_real_store_give_its_tables(family: oracle.Family, name: str) -> None:
    with unpacked(open_store([str(oracle.store(family, name))])) as store:
        for table in TABLES:
            size = {"messages": 9001, "queue_units": 70_000}.get(table, 1)
            assert table_of_splits(table, store, size).equals(whole_table(table, store)), table


def test_the_stores_have_what_is_to_be_split() -> None:
    stores = [open_store([str(oracle.store(family, name))]) for family, name in CASES]  # type: ignore[arg-type]
    most = {table: max(len(split_table(table, store, 9001)) for store in stores) for table in TABLES}
    assert min(most[table] for table in ("messages", "gaps", "queue_units", "index_entries")) > 1
    assert {most[table] for table in TABLES} >= {1}


# --- damage of any kind ---------------------------------------------------------------------------

_DAMAGE = st.tuples(
    st.integers(0, 3 * SEGMENT),
    st.integers(1, 1500),
    st.sampled_from(["zeros", "junk", "old", "cut"]),
)


def _write_damaged(folder: Path, damage: list[tuple[int, int, str]], *, dledger: bool, hole: bool) -> Store:
    """Write three segments of two lives, damaged, perhaps the second one missing."""
    for number in range(3):
        base = number * SEGMENT
        later = [{**piece, "store_timestamp": STORED + 90_000 + at} for at, piece in enumerate(various(9))]
        old, new = (lay(pieces, base, dledger=dledger) for pieces in (various(12), later))
        log = bytearray(pad(new + old[len(new) :], SEGMENT)[:SEGMENT])
        if number < 2:
            log = bytearray(fill(new, SEGMENT))
        for start, size, kind in damage:
            start, end = max(0, start - base), min(start + size - base, SEGMENT)
            if start >= end:
                continue
            raw = {"junk": os.urandom(end - start), "old": old[start:end]}.get(kind, bytes(end - start))
            log[start : start + len(raw)] = raw
            if kind == "cut" and number == 2:
                del log[start:]
        if number != 1 or not hole:
            write_segment(folder / ("dledger-n0/data" if dledger else "commitlog"), bytes(log), base)
    return open_store([str(folder)])


@settings(max_examples=25, deadline=None)
@given(
    damage=st.lists(_DAMAGE, max_size=6),
    dledger=st.booleans(),
    hole=st.booleans(),
    size=st.integers(150, 5000),
    offsets=st.none() | st.tuples(st.integers(0, 2 * SEGMENT), st.integers(1, 2 * SEGMENT)),
)
def test_the_splits_of_any_damaged_log_give_its_tables(
    damage: list[tuple[int, int, str]], dledger: bool, hole: bool, size: int, offsets: tuple[int, int] | None
) -> None:
    reach = None if offsets is None else (offsets[0], sum(offsets))
    with tempfile.TemporaryDirectory() as folder:
        store = _write_damaged(Path(folder), damage, dledger=dledger, hole=hole)
        for name in ("messages", "gaps"):
            reported: list[list[tuple[str, int, int]]] = [[], []]
            whole, parts = (
                Request(offsets=reach, on_gap=lambda *gap, gaps=gaps: gaps.append(gap)) for gaps in reported
            )
            expected = whole_table(name, store, whole)
            assert table_of_splits(name, store, size, parts, offsets=reach).equals(expected), name
            assert _bytes_of(reported[0], "missing") == _bytes_of(reported[1], "missing")
            assert bool(_bytes_of(reported[0], "unknown")) == bool(_bytes_of(reported[1], "unknown"))


def _bytes_of(gaps: list[tuple[str, int, int]], kind: str) -> int:
    return sum(end - start for named, start, end in gaps if named == kind)


def test_the_life_of_the_records_before_a_border_is_known_behind_it(tmp_path: Path) -> None:
    """A border between two gaps in records of an earlier life: only who came by knows how old they are."""
    old = bytearray(lay([{"store_timestamp": STORED + n} for n in range(40)]))
    new = lay([{"store_timestamp": STORED + 60_000 + n} for n in range(4)])
    size = len(old) // 40
    old[: len(new)] = new
    for number in (4, 20):
        old[number * size : (number + 2) * size] = bytes(2 * size)
    store = open_store([write_segment(tmp_path, bytes(old)).path])
    statuses = table_of_splits("messages", store, 20 * size)["status"].to_pylist()
    assert statuses == ["ok"] * 4 + ["carved"] + ["stale"] * 13 + ["carved"] + ["stale"] * 17


def test_one_late_time_at_the_end_of_a_batch_makes_no_earlier_life(tmp_path: Path) -> None:
    """The clock before a gap is that of several records, wherever the batches of the walk end."""
    log = bytearray(lay([{"store_timestamp": STORED + (3_600_000 if n == 9 else n)} for n in range(30)]))
    size = len(log) // 30
    log[10 * size : 12 * size] = bytes(2 * size)
    store = open_store([write_segment(tmp_path, bytes(log)).path])
    for parts in (9 * size, 10 * size):
        assert "stale" not in table_of_splits("messages", store, parts)["status"].to_pylist()


# --- where a split begins -------------------------------------------------------------------------


def test_the_walk_to_a_border_says_where_the_chain_goes_on(tmp_path: Path) -> None:
    log = lay([{}, {"body": bytes(range(1, 250)) * 4}, {}])
    segment = write_segment(tmp_path, log)
    first = len(record())
    assert walk_to(segment, 0, 0) == SEGMENT_START
    assert walk_to(segment, 0, first + 9).position == len(log) - first
    assert walk_to(segment, 0, first).position == first


def test_behind_a_blank_record_in_the_middle_no_split_finds_records(tmp_path: Path) -> None:
    log = lay(various(12))
    segment = write_segment(tmp_path, fill(log, SEGMENT + len(log), lay(various(8), len(log) + 8)))
    assert walk_to(segment, 0, len(log) + 100).closed
    store = open_store([segment.path])
    assert table_of_splits("messages", store, 700).num_rows == 12


def test_offsets_leave_out_the_segments_beyond_them(tmp_path: Path) -> None:
    store = _write_damaged(tmp_path, [], dledger=False, hole=False)
    splits = split_table("messages", store, SEGMENT, offsets=(SEGMENT, SEGMENT + 5))
    assert [split.segment.base for split in splits] == [SEGMENT]


def test_a_split_ends_where_the_offsets_do(tmp_path: Path) -> None:
    store = _write_damaged(tmp_path, [], dledger=False, hole=False)
    splits = split_table("messages", store, SEGMENT, offsets=(100, SEGMENT + 5))
    assert [(split.start, split.end, split.size) for split in splits] == [(100, SEGMENT, SEGMENT - 100), (0, 5, 5)]


def test_a_hole_belongs_to_the_segment_behind_it(tmp_path: Path) -> None:
    store = _write_damaged(tmp_path, [], dledger=False, hole=True)
    first, last = split_table("gaps", store, 1)
    assert not first.missing
    assert [(hole.start, hole.end) for hole in last.missing] == [(SEGMENT, 2 * SEGMENT)]
    assert [split.start for split in split_table("messages", store, SEGMENT, offsets=(SEGMENT, SEGMENT + 1))] == [0]


def test_a_loose_segment_has_no_hole_before_it(tmp_path: Path) -> None:
    _write_damaged(tmp_path, [], dledger=False, hole=True)
    loose = open_store(sorted(str(path) for path in (tmp_path / "commitlog").iterdir()))
    assert not any(split.missing for split in split_table("gaps", loose, 1))


# --- how large splits are, and what they hold -----------------------------------------------------


@pytest.mark.parametrize(
    ("sizes", "workers", "expected"),
    [
        ([1 << 30] * 8, 4, 1 << 30),  # two for each worker
        ([1 << 30] * 7, 4, 7 << 27),
        ([1 << 20] * 3, 4, SMALLEST_PART),
        ([], 4, SMALLEST_PART),
    ],
)
def test_the_default_size(sizes: list[int], workers: int, expected: int) -> None:
    assert default_split_size(sizes, workers) == expected


def _write_queues(folder: Path, topics: int, size: int) -> Store:
    unit = QueueUnit.build({"physical_offset": 5, "size": 100, "tags_code": 0})
    (folder / "commitlog").mkdir(parents=True)
    for number in range(topics):
        for base in (0, size):
            path = folder / "consumequeue" / f"topic-{number:05}" / "0" / f"{base:020}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(unit + bytes(size - len(unit)))
    return open_store([str(folder)])


def test_a_split_of_many_queue_files_holds_few_of_them(tmp_path: Path) -> None:
    store = _write_queues(tmp_path, 60, 2000)
    splits = split_table("queue_units", store, 20 << 16)
    assert [len(split.files) for split in splits] == [20] * 6
    assert max(len(pickle.dumps(split)) for split in splits) < 6000
    assert sum(split.size for split in splits) == 120 * 2000


def test_a_queue_file_larger_than_a_split_is_one(tmp_path: Path) -> None:
    store = _write_queues(tmp_path, 2, 2000)
    assert [len(split.files) for split in split_table("queue_units", store, 1)] == [1] * 4


def test_a_split_reopens_its_store_as_it_was_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    segment = write_segment(tmp_path / "a", lay(various(3)))
    renamed = tmp_path / "a" / "segment.bin"
    os.rename(segment.path, renamed)
    origin = Origin((str(renamed),), base=SEGMENT)
    (split,) = split_table("segments", origin.open(), 1, origin)
    assert [batch["base"].to_pylist() for batch in split_rows(split, Request())] == [[SEGMENT]]

    monkeypatch.chdir(tmp_path)
    (here,) = split_table("topics", open_store(["a/segment.bin"]), 1)
    assert here == TableSplit("topics", Origin((str(renamed),)))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a/store", ("store", "a/store")),
        ("a/store/", ("store", "a/store/")),
        ("x=a/store", ("x", "a/store")),
        ("a/x=y", ("x=y", "a/x=y")),
        ("./a=b", ("a=b", "./a=b")),
        ("s3://bucket/x=1", ("x=1", "s3://bucket/x=1")),
        ("=a", ("=a", "=a")),
        ("x=s3://bucket/b?region=r", ("x", "s3://bucket/b?region=r")),
        ("s3://bucket/b?region=r", ("b", "s3://bucket/b?region=r")),
        ("file:///a/b", ("b", "file:///a/b")),
    ],
)
def test_a_store_has_the_name_given_or_that_of_its_folder(text: str, expected: tuple[str, str]) -> None:
    assert name_store(text) == expected


def test_what_is_there_is_a_path_with_an_equals_sign_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x=y").mkdir()
    assert name_store("x=y") == ("x=y", "x=y")
    assert name_store("x=z") == ("x", "z")


# --- what cannot be read --------------------------------------------------------------------------


@pytest.mark.parametrize("table", ["messages", "gaps", "queue_units", "index_entries"])
def test_a_file_that_is_gone_is_told_or_raised(table: str, tmp_path: Path) -> None:
    case = oracle.cases("broker")[0]
    root = oracle.copy("broker", case, tmp_path)
    store = open_store([str(root)])
    splits = [split for split in split_table(table, store, 1 << 40) if split.files]
    os.unlink(splits[0].files[0].path)
    reported: list[str] = []
    list(split_rows(splits[0], Request(on_unreadable=reported.append)))
    assert len(reported) == 1 and splits[0].files[0].name in reported[0]
    if table != "gaps":  # this table tells it as a gap
        with pytest.raises(Unreadable):
            list(split_rows(splits[0], Request()))


def test_one_unreadable_queue_file_hides_no_other(tmp_path: Path) -> None:
    store = _write_queues(tmp_path, 3, 2000)
    os.unlink(store.queue_files[2].path)
    reported: list[str] = []
    request = Request(on_unreadable=reported.append)
    assert table_of_splits("queue_units", store, 1 << 30, request).num_rows == 5
    assert whole_table("queue_units", store, request).num_rows == 5
    assert len(reported) == 2
