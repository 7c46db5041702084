"""Two stores side by side: what real stores differ in, what a replica may differ in, what the command says."""

import errno
import json
import os
import random
import re
import shutil
import tracemalloc
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

from rmqinspect.commitlog.gaps import Split
from rmqinspect.commitlog.scan import scan_split
from rmqinspect.diff.log import CELL_SIZE, WINDOW_SIZE, compare_logs
from rmqinspect.diff.log_diff import JOIN, LogDiff
from rmqinspect.diff.result import KINDS, SCHEMA, DiffResult
from rmqinspect.diff.stores import compare_stores
from rmqinspect.schemas.consumequeue import PRE_BLANK, BatchUnit, QueueUnit
from rmqinspect.store.discover import open_store
from tests.support import oracle
from tests.support.broken_disk import broken_disk
from tests.support.building import STORED, fill, lay, pad, record, write_segment
from tests.support.command import Run, runner
from tests.support.samples import sample
from tests.support.sampling import sampled
from tests.support.scanning import scan
from tests.support.side_tables import units_of

SIZE = 16384
FLIPPED = sample("flipped-bit-5.3.3")


run = runner("diff")


def compare(a: Path, b: Path, limit: int = 10) -> DiffResult:
    return compare_stores((open_store([str(a)]), open_store([str(b)])), limit)


def logs(a: Path, b: Path, **options: Any) -> LogDiff:
    return compare_logs((open_store([str(a)]), open_store([str(b)])), **options)


def kinds(outcome: DiffResult) -> set[str]:
    return {what for what, count in outcome.differences.counts.items() if count}


# --- real stores: each damaged one against the undamaged one that it was made of ------------------------------

# Kinds of damage, and what differs after them.
_TABLE = (
    # Not compared, or no part of what a store holds; a queue file of zeros has no units.
    ("none abort_added abort_removed cp_future cp_missing cp_short cp_zero lock_removed", ""),
    ("idx_dir idx_empty idx_header_zero idx_long idx_lost idx_stray idx_trunc", ""),
    ("stray_bak stray_cq_qdir stray_dir stray_ds cq_new_zero_file cq_len_short", ""),
    # Queues.
    ("cq_beyond", "queue_units"),
    ("cq_mid_zero cq_shift", "queue_units queue_max"),  # reading stops at the first unused unit
    ("cq_extra_beyond cq_last_file_lost cq_last_file_zeroed cq_tail_zero cq_tail_zero_all", "queue_max"),
    ("cq_lost cq_queue_lost", "queue_only"),
    # Segments.
    ("seg_long_mid seg_short1_last", "segment_length"),
    ("seg_zero_len_last two_zero_len zero_len_then_dir", "segment_only"),
    ("seg_missing_first", "segment_only range_only queue_min"),
    ("seg_missing_mid seg_missing_prev", "segment_only range_only record_only"),
    ("seg_missing_last log_dir_lost log_empty", "segment_only range_only log_end record_only"),
    ("seg_zero_len_real", "segment_length range_only log_end record_only"),
    ("log_only_zero_len", "segment_only segment_length range_only log_end record_only"),
    # Bytes: of blank records; zeros to the end of the log, which ends earlier then. All others: of records.
    ("blank_magic blank_size_large blank_size_small", "bytes"),
    ("torn_last seg_zero_content", "log_end record_only"),
)
DIFFERS = {kind: set(whats.split()) for kinds_, whats in _TABLE for kind in kinds_.split()}
RECORD_DAMAGE = {"bytes", "record_only"}
_NAMED = re.compile(r"commitlog/(\d{20}) at offset (\d+) \((\d+) bytes\)")


def twin_of(name: str) -> str | None:
    """Return an undamaged store that the same writer wrote in the same run; None if there is none."""
    made = oracle.case("crash", name)
    ends = {"c": "clean", "h": "halt"}
    if made["base_variant"] in ends:
        return f"base-{made['written_by']}-{ends[made['base_variant']]}"
    beginning = f"none-{made['written_by']}-{made['base_variant']}"
    others = (case for case in oracle.cases("crash") if case == beginning or case.startswith(beginning + "-"))
    return next((case for case in others if case != name), None)


def changed_bytes(a: Path, b: Path) -> NDArray[np.int64]:
    """Return the physical offsets of bytes that differ where both logs have a segment."""
    found = [np.zeros(0, np.int64)]
    for file in sorted((a / "commitlog").glob("0*")):
        other = b / "commitlog" / file.name
        if file.name.isdigit() and other.exists():
            ours, theirs = (np.frombuffer(path.read_bytes(), np.uint8) for path in (file, other))
            shared = min(len(ours), len(theirs))
            found.append(np.flatnonzero(ours[:shared] != theirs[:shared]) + int(file.name))
    return np.concatenate(found)


DAMAGED = [name for name in oracle.cases("crash") if not name.startswith("base-") and twin_of(name)]


@pytest.mark.parametrize("name", sampled(DAMAGED, 3))
def test_a_damaged_store_differs_from_its_twin_in_what_was_damaged(name: str) -> None:
    made = oracle.case("crash", name)
    twin, store = oracle.store("crash", twin_of(name) or ""), oracle.store("crash", name)
    outcome = compare(twin, store)
    assert kinds(outcome) == set().union(*(DIFFERS.get(kind, RECORD_DAMAGE) for kind in made["damage_kinds"]))
    assert outcome.complete
    log = outcome.log
    changed = changed_bytes(twin, store)
    if log is None or not len(changed):
        return
    if "log_end" in kinds(outcome):
        # The rest is zeros: no other bytes, but no log either.
        assert log.ends[1] == log.first
        assert log.runs.count == 0
        assert log.ends[1] is not None
        assert log.ends[1] <= changed[0]
    else:
        assert (log.first, log.runs.differing) == (changed[0], len(changed))
        assert [run.start for run in log.runs.kept] == [changed[0]]
        assert log.runs.kept[0].end == changed[-1] + 1
    named = [tuple(map(int, place)) for words in made["damage"] for place in _NAMED.findall(words)]
    assert any(base + at <= changed[0] < base + at + size for base, at, size in named)


def test_enough_stores_were_compared() -> None:
    assert len(DAMAGED) > 170


@pytest.mark.parametrize(
    ("name", "where"),
    [
        ("cq_mid_zero-4.7.1-c", ("TopicA", 0, 20 + 10, 1)),
        ("cq_shift-4.3.2-c", ("TopicA", 0, 20, 20)),
        ("cq_beyond-5.1.4-c", ("TopicA", 0, 40 + 19, 1)),
    ],
)
def test_the_first_unit_that_differs_is_the_one_that_was_changed(name: str, where: tuple[str, int, int, int]) -> None:
    outcome = compare(oracle.store("crash", twin_of(name) or ""), oracle.store("crash", name))
    (row,) = (row for row in outcome.differences.rows if row.what == "queue_units")
    assert (row.topic, row.queue_id, row.queue_offset, row.count) == where


@pytest.mark.parametrize("name", ["seg_missing_mid-4.9.7-c", "seg_missing_last-5.4.0-c", "log_dir_lost-5.3.3-c"])
def test_the_records_of_a_lost_segment_are_counted_by_topic(name: str) -> None:
    twin, store = oracle.store("crash", twin_of(name) or ""), oracle.store("crash", name)
    outcome = compare(twin, store)
    assert outcome.log is not None
    lost = [
        found
        for segment in open_store([str(twin)]).segments
        if not (store / segment.name).exists()
        for found in scan(segment).records
    ]
    only = outcome.log.only[0]
    assert (only.count, only.size) == (len(lost), sum(found.size for found in lost))
    assert sum(only.by_topic.values()) == only.count
    assert list(only.by_topic.values()) == sorted(only.by_topic.values(), reverse=True)
    assert [row.physical_offset for row in only.rows] == [found.physical_offset for found in lost[:10]]
    assert outcome.log.only[1].count == 0


# Every kind of store that a broker writes: queues in files and RocksDB, batch and ext queues, DLedger.
KEPT = ["main-5.5.0", "ext-5.3.3", "dledger-5.3.3", "rocksdb-5.4.0", "retention-4.9.7"]


@pytest.mark.parametrize("name", KEPT)
def test_a_copy_is_the_same(run: Run, tmp_path: Path, name: str) -> None:
    status, out, _ = run(oracle.store("broker", name), oracle.copy("broker", name, tmp_path))
    assert (status, out.splitlines()[-1]) == (0, "VERDICT      SAME")


def test_two_brokers_differ_in_everything() -> None:
    a, b = (oracle.store("broker", name) for name in ("main-5.3.3", "halt-5.3.3"))
    outcome = compare(a, b, limit=2)
    assert outcome.differences.parts == ["segments", "log", "records", "queues", "groups", "topics"]
    records = [sum(len(scan(segment).records) for segment in open_store([str(one)]).segments) for one in (a, b)]
    assert outcome.log is not None
    assert [only.count for only in outcome.log.only] == records
    alike = Counter((row.what, row.only_in) for row in outcome.differences.rows)
    assert max(alike.values()) == 2
    groups = [oracle.truth("broker", name)["groups"] for name in ("main-5.3.3", "halt-5.3.3")]
    assert groups[0] != groups[1]


# --- replicas: logs made by hand ---------------------------------------------------------------------------------


def pieces(count: int, first: int = 0, **more: Any) -> list[dict[str, Any]]:
    """Return records of one queue, a millisecond apart, with bodies of different lengths."""
    return [
        {"queue_offset": n, "store_timestamp": STORED + n, "body": b"%d " % n * (n % 40 + 1), **more}
        for n in range(first, first + count)
    ]


def log_of(root: Path, *segments: bytes, base: int = 0) -> Path:
    for number, raw in enumerate(segments):
        write_segment(root / "commitlog", raw, base + number * SIZE)
    return root / "commitlog"


def full(number: int, count: int = 60) -> bytes:
    """Return a full segment, the n-th of a log."""
    return fill(lay(pieces(count, number * count), number * SIZE), SIZE)


def part(number: int, count: int = 30, size: int = SIZE) -> bytes:
    """Return a segment that is still written."""
    return pad(lay(pieces(count, number * 60), number * SIZE), size)


def test_a_replica_that_lags_ends_earlier(tmp_path: Path) -> None:
    master = log_of(tmp_path / "a", full(0), part(1, 30))
    replica = log_of(tmp_path / "b", full(0), part(1, 20))
    outcome = compare(master, replica)
    assert kinds(outcome) == {"log_end", "record_only"}
    assert outcome.log is not None
    ends = [SIZE + len(lay(pieces(count, 60), SIZE)) for count in (30, 20)]
    assert outcome.log.ends == ends
    assert outcome.log.first == ends[1]
    assert [only.count for only in outcome.log.only] == [10, 0]
    assert {row.why for row in outcome.log.only[0].rows} == {"behind"}
    assert outcome.at_first is not None
    assert [stand.kind for stand in outcome.at_first] == ["record", "zeros"]


def test_a_replica_without_the_preallocated_segment_is_the_same(run: Run, tmp_path: Path) -> None:
    a = log_of(tmp_path / "a", full(0), part(1), bytes(SIZE))
    b = log_of(tmp_path / "b", full(0), part(1))
    outcome = compare(a, b)
    assert (outcome.verdict, outcome.notes) == ("SAME", ["segment 32 768 only in A: preallocated, zeros only"])
    status, screen, _ = run(a.parent, b.parent)
    assert status == 0
    assert re.search(r"^segments +2 segments in both, of the same lengths$", screen, re.MULTILINE)


def test_a_segment_behind_the_end_with_any_byte_in_it_is_a_difference(tmp_path: Path) -> None:
    a = log_of(tmp_path / "a", full(0), part(1), bytes(SIZE - 1) + b"x")
    b = log_of(tmp_path / "b", full(0), part(1))
    assert kinds(compare(a, b)) == {"segment_only"}


def test_what_a_new_replica_never_got_is_told_as_a_range(tmp_path: Path) -> None:
    master = log_of(tmp_path / "a", full(0), full(1), part(2))
    replica = log_of(tmp_path / "b", full(1), part(2), base=SIZE)
    outcome = compare(master, replica)
    assert kinds(outcome) == {"segment_only", "range_only"}
    (row,) = outcome.differences.of("range_only")
    assert (row.only_in, row.physical_offset, row.length) == ("A", 0, SIZE)
    assert row.message == "B starts after it: gone there, or never replicated"
    assert outcome.log is not None
    assert outcome.log.compared == [(SIZE, outcome.log.ends[0])]


def test_a_truncated_copy_lacks_the_record_at_the_cut(tmp_path: Path) -> None:
    """The copy ends inside of a record, and goes on in the next segment: no byte that both have differs."""
    whole = [full(0), full(1), part(2)]
    starts = [found.physical_offset for found in scan(write_segment(tmp_path, whole[1], SIZE)).records]
    cut = starts[40] + 20 - SIZE
    a = log_of(tmp_path / "a", *whole)
    b = log_of(tmp_path / "b", whole[0], whole[1][:cut], whole[2])
    outcome = compare(a, b)
    assert kinds(outcome) == {"segment_length", "range_only", "record_only"}
    assert outcome.log is not None
    assert outcome.log.only[0].count == 20
    assert [row.physical_offset for row in outcome.log.only[0].rows][:2] == starts[40:42]


def test_records_written_anew_at_the_same_offsets_differ(tmp_path: Path) -> None:
    """A start cut the log of B behind its record 9; then it wrote others, over the old ones."""
    old = part(0, 30)
    kept = lay(pieces(10))
    new = lay([*pieces(10), *pieces(5, 10, topic="Other", store_timestamp=STORED + 90000)])
    a = log_of(tmp_path / "a", old)
    b = log_of(tmp_path / "b", new + old[len(new) :])
    log = logs(a, b)
    assert log.first is not None
    assert len(kept) <= log.first < len(kept) + 5
    assert [only.count for only in log.only] == [20, 5]
    assert [only.by_topic for only in log.only] == [{"TopicTest": 20}, {"Other": 5}]
    assert log.ends[1] == len(new)
    assert log.tail == len(old.rstrip(b"\0"))  # the old records stand behind the new end, and are none of B's
    assert {row.why for row in log.only[0].rows[-1:]} <= {"other", "behind"}


def test_old_records_behind_both_ends_are_no_difference(tmp_path: Path) -> None:
    log = lay(pieces(10))
    old = lay([{"store_timestamp": STORED - 90000, "queue_offset": 3}], len(log) + 40)
    a = log_of(tmp_path / "a", pad(log + bytes(40) + old, SIZE))
    b = log_of(tmp_path / "b", pad(log, SIZE))
    assert compare(a, b).verdict == "SAME"
    young = lay([{"store_timestamp": STORED + 10, "queue_offset": 10}], len(log) + 40)
    c = log_of(tmp_path / "c", pad(log + bytes(40) + young, SIZE))
    assert kinds(compare(c, b)) == {"log_end", "record_only"}


def test_records_that_stand_at_another_offset_are_told(tmp_path: Path) -> None:
    same = pieces(20)
    a = log_of(tmp_path / "a", pad(lay(same), SIZE))
    b = log_of(tmp_path / "b", pad(lay([*same[:5], {"topic": "Inserted"}, *same[5:]]), SIZE))
    log = logs(a, b)
    assert [(only.count, only.elsewhere, only.elsewhere_exact) for only in log.only] == [(15, 15, True), (16, 15, True)]


def test_a_record_whose_properties_differ_stands_where_it_stood(tmp_path: Path) -> None:
    one, other = ({"properties": {"k": value}, "body": b"x"} for value in ("one", "two"))
    a, b = (log_of(tmp_path / name, pad(lay([{}, piece, {}]), SIZE)) for name, piece in (("a", one), ("b", other)))
    log = logs(a, b)
    assert [(only.count, only.elsewhere) for only in log.only] == [(1, 0), (1, 0)]


def test_of_very_many_records_a_sample_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmqinspect.diff.log_diff.SAMPLE_SIZE", 128)
    same = [{"queue_offset": n, "store_timestamp": STORED + n} for n in range(2000)]
    a = log_of(tmp_path / "a", pad(lay(same), 1 << 19))
    b = log_of(tmp_path / "b", pad(lay([{"topic": "Inserted"}, *same]), 1 << 19))
    only = logs(a, b).only[0]
    assert (only.count, only.elsewhere_exact) == (2000, False)
    assert 1000 < only.elsewhere < 3000


def test_bytes_without_any_record_are_compared_to_the_end(tmp_path: Path) -> None:
    junk = random.Random(1).randbytes(SIZE)
    a = log_of(tmp_path / "a", junk)
    assert compare(a, log_of(tmp_path / "b", junk)).verdict == "SAME"
    log = logs(a, log_of(tmp_path / "c", junk[:-1] + bytes([junk[-1] ^ 1])))
    assert (log.first, log.runs.differing, log.ends) == (SIZE - 1, 1, [None, None])


def test_a_loose_segment_is_compared_with_what_stands_there(tmp_path: Path) -> None:
    whole = log_of(tmp_path / "a", full(0), full(1), part(2))
    other = log_of(tmp_path / "b", full(0), full(1), part(2, 10))
    loose = other / f"{SIZE:020}"
    outcome = compare(whole, loose)
    assert (outcome.verdict, outcome.log and outcome.log.compared) == ("SAME", [(SIZE, 2 * SIZE)])
    assert outcome.compared["queues"] == "none in either"
    assert kinds(compare(loose, whole / f"{SIZE:020}")) == set()
    assert kinds(compare(other, whole)) == {"log_end", "record_only"}


# --- the walk against a plain comparison ---------------------------------------------------------------------------


def plain_comparison(a: Path, b: Path) -> tuple[set[tuple[int, bytes]], set[tuple[int, bytes]]]:
    """Return the records that only one log has, from a scan of all of both."""
    found = []
    for root in (a, b):
        records = set()
        for segment in open_store([str(root)]).segments:
            raw = Path(segment.path).read_bytes()
            for one in scan(segment).records:
                if not one.stale:
                    at = one.physical_offset - segment.base
                    records.add((one.physical_offset, raw[at : at + one.size]))
        found.append(records)
    return found[0] - found[1], found[1] - found[0]


def damage(raw: bytes, chance: random.Random) -> bytes:
    """Return a segment with a few bytes, a page, or its end changed."""
    new = bytearray(raw)
    for _ in range(chance.choice([0, 1, 1, 3])):
        at = chance.randrange(len(new))
        match chance.randrange(4):
            case 0:
                new[at : at + 512] = bytes(len(new[at : at + 512]))
            case 1:
                new[at : at + 100] = new[:100][: len(new[at : at + 100])]
            case _:
                new[at] ^= 1 << chance.randrange(8)
    return bytes(new)


@pytest.mark.parametrize("seed", range(16))
def test_cells_and_windows_of_any_size_tell_what_a_plain_comparison_tells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    chance = random.Random(seed)
    whole = [full(0), full(1), part(2)]
    a = log_of(tmp_path / "a", *(damage(raw, chance) for raw in whole))
    b = log_of(tmp_path / "b", *(damage(raw, chance) for raw in whole))
    ours, theirs = plain_comparison(a, b)
    results = []
    for cell, window in ((CELL_SIZE, WINDOW_SIZE), (SIZE, 4096), (1000, 700), (300, 64)):
        log = logs(a, b, limit=1000, window_size=window, cell_size=cell)
        assert [{row.physical_offset for row in only.rows} for only in log.only] == [
            {offset for offset, _ in some} for some in (ours, theirs)
        ]
        assert [only.count for only in log.only] == [len(ours), len(theirs)]
        results.append((log.first, log.runs.kept, log.runs.count, log.runs.differing, log.ends, log.tail, log.compared))
    assert all(result == results[0] for result in results)
    changed = changed_bytes(tmp_path / "a", tmp_path / "b")
    inside = changed[changed < (log.tail or min(log.reach))]
    assert (log.runs.differing, log.runs.first) == (len(inside), inside[0] if len(inside) else None)
    assert log.runs.count == (np.count_nonzero(np.diff(inside) > JOIN) + 1 if len(inside) else 0)


def test_a_record_that_reaches_over_cells_is_one_difference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    large = lay([{}, {"body": b"x" * 3000}, {}])
    changed = bytearray(large)
    changed[3000] ^= 1  # in the tenth cell that the record covers
    a, b = log_of(tmp_path / "a", pad(large, SIZE)), log_of(tmp_path / "b", pad(bytes(changed), SIZE))
    log = logs(a, b, cell_size=256)
    assert [[row.physical_offset for row in only.rows] for only in log.only] == [[len(record())]] * 2


def test_memory_is_bounded_by_windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two logs of 8 MB that differ nearly everywhere."""
    paths = []
    for name, topic in (("a", "One"), ("b", "Two")):
        body = (b"\x01" if name == "a" else b"\x02") * 4000
        raw = lay([{"topic": topic, "body": body}] * 500)
        for number in range(4):
            write_segment(tmp_path / name / "commitlog", raw, number * len(raw))
        paths.append(tmp_path / name / "commitlog")
    stores = open_store([str(paths[0])]), open_store([str(paths[1])])
    compare_logs(stores, window_size=1 << 16, cell_size=1 << 16)  # loads what is loaded once
    tracemalloc.start()
    try:
        log = compare_logs(stores, window_size=1 << 16, cell_size=1 << 16)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert log.runs.differing > 8e6
    assert log.only[0].count == log.only[1].count == 2000
    assert peak < 5 << 20


def test_holes_that_both_have_are_not_read(tmp_path: Path) -> None:
    """Two files of 40 GB with one record each."""
    for name in "ab":
        segment = write_segment(tmp_path / name / "commitlog", lay([{}]))
        with open(segment.path, "r+b") as file:
            file.truncate(40 << 30)
    outcome = compare(tmp_path / "a" / "commitlog", tmp_path / "b" / "commitlog")
    assert (outcome.verdict, outcome.log and outcome.log.ends) == ("SAME", [len(record())] * 2)


# --- queues --------------------------------------------------------------------------------------------------------


def queue_store(root: Path, files: dict[str, bytes], log: bytes = b"") -> Path:
    write_segment(root / "commitlog", log or pad(lay(pieces(10)), SIZE))
    for name, raw in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(raw)
    return root


UNITS = [(n * 100, 100, n + 7) for n in range(40)]
T0 = "consumequeue/T/0/"


def blank_units(count: int) -> bytes:
    raw: bytes = QueueUnit.build(PRE_BLANK)
    return raw * count


def queue(first: int, last: int, per_file: int, folder: str = T0) -> dict[str, bytes]:
    """Return the files of a queue with the units [first, last) of UNITS; before them stands filler."""
    files = {}
    for begin in range(first // per_file * per_file, last, per_file):
        units = blank_units(max(0, first - begin)) + units_of(*UNITS[max(begin, first) : min(begin + per_file, last)])
        files[f"{folder}{begin * 20:020}"] = pad(units, per_file * 20)
    return files


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (queue(0, 40, 10), queue(0, 40, 16), {}),  # a slave's files may have another size
        (queue(0, 40, 10), queue(0, 33, 16), {"queue_max": ("40", "33")}),
        (
            queue(0, 40, 10),
            queue(13, 40, 16),
            {"queue_units": ("the first message is 0", "the first message is 13")},
        ),  # filler before it
        (queue(0, 40, 10), queue(20, 40, 10), {"queue_min": ("0", "20")}),
        (queue(0, 20, 10), queue(30, 40, 10), {"queue_min": ("0", "30"), "queue_max": ("20", "40")}),
        (queue(0, 40, 10), {}, {"queue_only": ("0 to 40", None)}),
        ({}, queue(0, 40, 10), {"queue_only": (None, "0 to 40")}),
        (queue(0, 40, 10), queue(0, 40, 10) | {T0 + f"{800:020}": bytes(200)}, {}),
        (queue(0, 40, 10), queue(0, 40, 10) | {f"consumequeue/T/1/{0:020}": bytes(200)}, {}),
    ],
)
def test_queues_differ_in_what_they_cover(
    tmp_path: Path, a: dict[str, bytes], b: dict[str, bytes], expected: dict[str, tuple[str | None, str | None]]
) -> None:
    outcome = compare(queue_store(tmp_path / "a", a), queue_store(tmp_path / "b", b))
    assert {row.what: (row.a, row.b) for row in outcome.differences.rows} == expected


@pytest.mark.parametrize("window", [400, 1 << 20])
def test_every_unit_that_differs_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, window: int) -> None:
    monkeypatch.setattr("rmqinspect.consumequeue.units.FIRST_WINDOW", window)
    monkeypatch.setattr("rmqinspect.consumequeue.units.LAST_WINDOW", window)
    changed = list(UNITS)
    changed[7], changed[23], changed[31] = (700, 100, 99), (1, 100, 30), (0, 0, 0)
    raw = units_of(*changed)
    other = {f"{T0}{at * 200:020}": raw[at * 200 :][:200] for at in range(4)}
    outcome = compare(queue_store(tmp_path / "a", queue(0, 40, 16)), queue_store(tmp_path / "b", other))
    end, row = outcome.differences.rows
    assert (end.what, end.a, end.b) == ("queue_max", "40", "31")  # reading stops at the unused unit
    assert (row.what, row.queue_offset, row.count) == ("queue_units", 7, 3)
    assert row.a == "physical 700, 100 bytes, tags code 14"
    assert row.b == "physical 700, 100 bytes, tags code 99"


def test_a_queue_that_begins_where_the_log_begins_is_not_shorter(tmp_path: Path) -> None:
    """Units of expired records may still be there: the broker does not count them."""
    log = fill(lay(pieces(10), SIZE), SIZE)
    stores = []
    for name, first in (("a", 0), ("b", 20)):
        root = tmp_path / name
        write_segment(root / "commitlog", log, SIZE)
        old, new = units_of(*UNITS[:20]), units_of(*((SIZE + n, 100, 1) for n in range(20)))
        (root / "consumequeue/T/0").mkdir(parents=True)
        (root / f"consumequeue/T/0/{first * 20:020}").write_bytes((old if not first else b"") + new)
        stores.append(root)
    assert compare(stores[0], stores[1]).verdict == "SAME"


def batch_units(*units: tuple[int, int, int]) -> bytes:
    fields = {"tags_code": 5, "store_timestamp": STORED, "compacted_offset": -1, "reserved": 0}
    names = ("physical_offset", "queue_offset", "message_count")
    return b"".join(BatchUnit.build(fields | {"size": 100} | dict(zip(names, unit, strict=True))) for unit in units)


def test_batch_units_are_compared_by_their_queue_offsets(tmp_path: Path) -> None:
    units = [(n * 100, n * 3, 3) for n in range(20)]
    name = f"batchconsumequeue/T/0/{0:020}"
    a = queue_store(tmp_path / "a", {name: pad(batch_units(*units), 46 * 30)})
    b = queue_store(tmp_path / "b", {name: pad(batch_units(*units[4:]), 46 * 30)})
    assert {row.what: (row.a, row.b) for row in compare(a, b).differences.rows} == {"queue_min": ("0", "12")}
    units[9] = (900, 27, 2)
    c = queue_store(tmp_path / "c", {name: pad(batch_units(*units), 46 * 30)})
    (row,) = compare(a, c).differences.rows
    assert (row.what, row.queue_offset, row.count) == ("queue_units", 27, 1)
    units[9] = (900, 1 << 40, 3)  # far behind all others: it must not hide them
    d = queue_store(tmp_path / "d", {name: pad(batch_units(*units), 46 * 30)})
    (row,) = compare(a, d).differences.rows
    assert (row.what, row.queue_offset) == ("queue_units", 27)
    assert row.count <= 2


def test_the_last_queue_offset_there_is_ends_a_comparison(tmp_path: Path) -> None:
    name = f"batchconsumequeue/T/0/{0:020}"
    raw = batch_units((0, 0, 1), (100, 1, 1), (200, 2**63 - 1, 1))
    a, b = (queue_store(tmp_path / side, {name: raw}) for side in "ab")
    assert compare(a, b).verdict == "SAME"


def test_ext_addresses_are_compared_by_what_they_lead_to(tmp_path: Path) -> None:
    a, b = oracle.store("broker", "ext-5.3.3"), oracle.copy("broker", "ext-5.3.3", tmp_path)
    extended = next(file for file in open_store([str(b)]).queue_files if file.kind == "ext_queue")
    path = Path(extended.path)
    raw = path.read_bytes()
    path.write_bytes(raw[:2] + b"\x7f" + raw[3:])  # the tags code in the first unit
    outcome = compare(a, b)
    assert kinds(outcome) == {"queue_units"}
    assert {row.topic for row in outcome.differences.rows} == {extended.topic}
    path.unlink()  # now the addresses lead nowhere: only a place in a file that is not there
    shutil.rmtree(b / "consumequeue_ext")
    assert compare(a, b).verdict == "SAME"


def test_single_queues_are_compared_with_their_own_kind_only(tmp_path: Path) -> None:
    a = queue_store(tmp_path / "a", queue(0, 40, 10) | queue(0, 40, 10, "consumequeue/U/0/"))
    b = queue_store(tmp_path / "b", queue(0, 40, 16) | queue(0, 30, 10, "consumequeue/U/0/"))
    assert compare(a / "consumequeue/T", b).verdict == "SAME"
    assert kinds(compare(a / "consumequeue", b)) == {"queue_max"}
    assert kinds(compare(a, b / "consumequeue/U/0")) == {"queue_max"}


def test_a_loose_queue_file_is_not_the_end_of_its_queue() -> None:
    whole = oracle.store("crash", "base-5.3.3-halt") / "consumequeue/TopicA/0"
    shorter, shifted = (oracle.store("crash", f"{kind}-5.3.3-h") for kind in ("cq_last_file_lost", "cq_shift"))
    assert kinds(compare(whole, shorter)) == {"queue_max"}
    assert kinds(compare(whole / f"{400:020}", shorter)) == set()
    assert kinds(compare(whole / f"{400:020}", shifted)) == {"queue_units"}
    assert kinds(compare(whole / f"{0:020}", shifted)) == set()


# --- groups and topics ---------------------------------------------------------------------------------------------


def config_store(root: Path, offsets: dict[str, Any] | str | None, topics: Iterable[str] = ()) -> Path:
    write_segment(root / "commitlog", pad(lay([{}]), SIZE))
    (root / "config").mkdir()
    if offsets is not None:
        text = offsets if isinstance(offsets, str) else json.dumps({"offsetTable": offsets})
        (root / "config/consumerOffset.json").write_text(text)
    table = {topic: {"topicName": topic} for topic in topics}
    (root / "config/topics.json").write_text(json.dumps({"topicConfigTable": table}))
    return root


def test_groups_and_topics_that_differ_are_told(tmp_path: Path) -> None:
    a = config_store(tmp_path / "a", {"T@g": {"0": 5, "1": 7}, "U@g": {"0": 1}}, "TU")
    b = config_store(tmp_path / "b", {"T@g": {"0": 5, "1": 8}, "T@h": {"0": 2}}, "TV")
    outcome = compare(a, b)
    found = outcome.differences.rows
    assert [(row.what, row.only_in, row.group, row.topic, row.queue_id, row.a, row.b) for row in found] == [
        ("group_offset", None, "g", "T", 1, "7", "8"),
        ("group_offset", "A", "g", "U", 0, "1", None),
        ("group_offset", "B", "h", "T", 0, None, "2"),
        ("topic_only", "A", None, "U", None, None, None),
        ("topic_only", "B", None, "V", None, None, None),
    ]
    assert (outcome.group_offsets, outcome.topics) == (2, 1)


def test_offsets_that_cannot_be_parsed_are_not_missing(run: Run, tmp_path: Path) -> None:
    a = config_store(tmp_path / "a", {"T@g": {"0": 5}})
    b = config_store(tmp_path / "b", "{not json")
    outcome = compare(a, b)
    assert (outcome.verdict, kinds(outcome)) == ("INCOMPLETE, no difference so far", set())
    status, out, _ = run(a, b)
    assert status == 4
    assert "not read     B: config/consumerOffset.json" in out
    assert kinds(compare(a, config_store(tmp_path / "c", {}))) == {"group_offset"}


def test_what_rocksdb_keeps_is_not_compared() -> None:
    a, b = oracle.store("broker", "rocksdb-5.4.0"), oracle.store("broker", "main-5.4.0")
    outcome = compare(a, b)
    assert [outcome.compared[part] for part in ("queues", "groups", "topics")] == ["A keeps them in RocksDB"] * 3
    assert not kinds(outcome) & {"queue_only", "group_offset", "topic_only"}


# --- what cannot be read -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize("span", [(4096, 8192), (0, SIZE)])
def test_bytes_that_cannot_be_read_are_no_difference(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, span: tuple[int, int]
) -> None:
    a, b = (log_of(tmp_path / name, full(0), full(1), part(2)) for name in "ab")
    with broken_disk(monkeypatch, (b / f"{number * SIZE:020}").samefile, *span):
        outcome = compare(a, b)
        status, out, _ = run(a, b)
    assert (outcome.verdict, kinds(outcome)) == ("INCOMPLETE, no difference so far", set())
    assert all(line.startswith("B: ") and "Input/output error" in line for line in outcome.unread)
    assert status == 4
    assert out.splitlines()[-1].startswith("VERDICT      INCOMPLETE, no difference so far; ")


@pytest.mark.parametrize("side", ["A", "B"])
def test_a_queue_that_cannot_be_read_is_no_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, side: str
) -> None:
    roots = {name: queue_store(tmp_path / name, queue(0, 40, 10)) for name in "AB"}
    with broken_disk(monkeypatch, (roots[side] / f"{T0}{400:020}").samefile, 0, 200):
        outcome = compare(roots["A"], roots["B"])
    assert (outcome.verdict, kinds(outcome)) == ("INCOMPLETE, no difference so far", set())
    assert [line.split(": ")[:2] for line in outcome.unread] == [[side, f"{T0}{400:020} at 0 (0x0)"]]


def test_a_difference_counts_more_than_what_cannot_be_read(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = log_of(tmp_path / "a", full(0), full(1), part(2)), log_of(tmp_path / "b", full(0), full(1), part(2, 10))
    with broken_disk(monkeypatch, (a / f"{0:020}").samefile, 4096, 8192):
        status, out, _ = run(a, b)
    assert status == 3
    assert out.splitlines()[-1].startswith("VERDICT      INCOMPLETE, DIFFERENT: log, records; ")


def test_a_segment_that_may_not_be_opened_is_no_difference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = (log_of(tmp_path / name, full(0), full(1), part(2)) for name in "ab")
    open_ = os.open

    def refuse(path: str, *others: int) -> int:
        if path in refused:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return open_(path, *others)

    for number in range(3):
        refused = {str((b / f"{number * SIZE:020}").resolve())}
        monkeypatch.setattr(os, "open", refuse)
        outcome = compare(a, b)
        monkeypatch.undo()
        assert (outcome.verdict, kinds(outcome)) == ("INCOMPLETE, no difference so far", set())
        assert outcome.unread == [f"B: {number * SIZE:020}: Permission denied"]


def test_a_link_out_of_the_store_is_not_read(run: Run, tmp_path: Path) -> None:
    a, b = (log_of(tmp_path / name, full(0), part(1)) for name in "ab")
    (b / f"{SIZE:020}").rename(tmp_path / "elsewhere")
    (b / f"{SIZE:020}").symlink_to(tmp_path / "elsewhere")
    status, out, _ = run(a, b)
    assert status == 4
    assert f"a link to {tmp_path / 'elsewhere'}: not followed" in " ".join(out.split())
    assert "INCOMPLETE" in out.splitlines()[-1]


# --- the command ---------------------------------------------------------------------------------------------------


def test_times_are_told_in_the_zone_asked_for(run: Run) -> None:
    _, out, _ = run(oracle.store("crash", "base-5.3.3-halt"), FLIPPED, "--tz", "+08:00")
    assert out.count("2026-11-21T16:48:41.617+08:00") == 4
    assert "41.617Z" not in out


@pytest.mark.parametrize("names", [("main-5.3.3", "halt-5.3.3"), ("rocksdb-5.4.0", "lmq-5.3.3")])
def test_no_line_is_wider_than_the_screen(run: Run, names: tuple[str, str]) -> None:
    a, b = (oracle.store("broker", name) for name in names)
    _, out, _ = run(a, b, "-n", "1000", "-v")
    assert max(len(line) for line in out.splitlines() if "rmqinspect show" not in line) <= 100
    assert "checkpoint   physic_msg_timestamp: " in out


def test_formats_tell_the_same_rows(run: Run, tmp_path: Path) -> None:
    a, b = oracle.store("broker", "main-5.3.3"), oracle.store("broker", "halt-5.3.3")
    status, out, err = run(a, b, "-f", "jsonl", "-n", "3")
    rows = [json.loads(line) for line in out.splitlines()]
    assert (status, err.splitlines()[-1][:22]) == (3, "VERDICT      DIFFERENT")
    assert {row["what"] for row in rows} <= set(KINDS)
    _, out, _ = run(a, b, "-f", "json", "-n", "3")
    document = json.loads(out)
    assert [{name: row[name] for name in SCHEMA.names} for row in document["rows"]] == rows
    assert (document["schema_version"], document["complete"], document["verdict"]) == (1, True, "DIFFERENT")
    assert document["different"] == ["segments", "log", "records", "queues", "groups", "topics"]
    assert document["rows_left_out"] == sum(document["counts"].values()) - len(rows)
    assert document["log"]["first_difference"]["physical_offset"] == 2
    assert document["log"]["records_only_in"]["a"]["by_topic"]["DepotOne"] == 330
    path = tmp_path / "rows.parquet"
    run(a, b, "-o", path, "-n", "3")
    assert pq.read_table(path).to_pylist() == rows
    _, out, _ = run(a, b, "-f", "csv", "-n", "3")
    assert len(out.splitlines()) == 1 + len(rows)
    assert pa.schema(SCHEMA).equals(pq.read_schema(path))


def test_the_counts_do_not_depend_on_the_limit(run: Run) -> None:
    a, b = oracle.store("broker", "main-5.3.3"), oracle.store("broker", "halt-5.3.3")
    found = [json.loads(run(a, b, "-f", "json", "-n", n)[1]) for n in ("0", "1", "100000")]
    assert found[0]["rows"] == []
    assert found[2]["rows_left_out"] == 0
    for document in found:
        document.pop("rows")
        document.pop("rows_left_out")
        document.pop("run")
    assert found[0] == found[1] == found[2]


def test_quiet_is_silent(run: Run) -> None:
    assert run(FLIPPED, FLIPPED, "-q") == (0, "", "")
    twin = oracle.store("crash", "base-5.3.3-halt")
    assert run(twin, FLIPPED, "-q") == (3, "", "")


def test_wrong_usage_and_what_is_no_store(run: Run, tmp_path: Path) -> None:
    assert run(FLIPPED)[0] == 2
    assert run(FLIPPED, FLIPPED, FLIPPED)[0] == 2
    assert run(FLIPPED, FLIPPED, "-n", "-1")[0] == 2
    (tmp_path / "empty").mkdir()
    assert run(FLIPPED, tmp_path / "empty")[0] == 4
    status, out, err = run(tmp_path / "nowhere", FLIPPED)
    assert (status, out) == (4, "")
    assert "no such file or directory" in err


@pytest.mark.parametrize("pair", [("commitlog", "config"), ("commitlog/00000000000000000000", "consumequeue")])
def test_pieces_that_have_nothing_in_common_are_refused(run: Run, pair: tuple[str, str]) -> None:
    store = sample("healthy-4.9.7")
    broker = oracle.store("broker", "main-4.9.7")
    status, _, err = run(store / pair[0], broker / pair[1])
    assert status == 4
    assert "nothing in common that could be compared" in err
    status, _, err = run(FLIPPED / f"commitlog/{0:020}", FLIPPED / f"commitlog/{65536:020}")
    assert (status, "nothing in common" in err) == (4, True)


def test_nothing_is_written_into_a_store(run: Run, tmp_path: Path) -> None:
    a = oracle.copy("crash", "base-5.3.3-halt", tmp_path)
    before = oracle.snapshot(a)
    assert run(a, FLIPPED, "-f", "json", "-o", a / "commitlog" / "x.json")[0] == 6
    assert run(FLIPPED, a, "-f", "jsonl", "-o", a / "x.jsonl")[0] == 6
    assert run(FLIPPED, a)[0] == 3
    assert oracle.differences(before, oracle.snapshot(a)) == []


def test_hostile_names_are_shown_as_escapes(run: Run, tmp_path: Path) -> None:
    a = queue_store(tmp_path / "a", queue(0, 10, 10, "consumequeue/\x1b[31mT/0/"), pad(lay([{"topic": "\x1bT"}]), SIZE))
    b = queue_store(tmp_path / "b", queue(0, 10, 10))
    for words in ((), ("-f", "json"), ("-f", "csv"), ("-v",)):
        status, out, err = run(a, b, *words)
        assert status == 3
        assert "\x1b" not in out + err
    assert "\\x1b[31mT queue 0 only in A" in run(a, b)[1]


INTERRUPTED = {
    "queues": ("rmqinspect.diff.stores.compare_queues", "before the logs were compared"),
    "end of A": ("rmqinspect.diff.log.scan_split", "at physical offset 0"),
    "end of B": ("rmqinspect.diff.log.scan_split", "at physical offset 0"),
    "bytes": ("rmqinspect.diff.log._Comparison._compare_records", "at physical offset 0"),
}


@pytest.mark.parametrize("moment", INTERRUPTED)
def test_ctrl_c_tells_what_was_found_so_far(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, moment: str
) -> None:
    a = config_store(tmp_path / "a", {"T@g": {"0": 5}})
    b = config_store(tmp_path / "b", {"T@g": {"0": 6}})
    for root in (a, b):
        shutil.rmtree(root / "commitlog")
        log_of(root, full(0), full(1), part(2))
        queue_store(root, queue(0, 10, 10), full(0))

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    def interrupt_in_b(split: Split, *more: Any) -> Any:
        return interrupt() if split.segment.path.startswith(str(b)) else scan_split(split, *more)

    name, words = INTERRUPTED[moment]
    monkeypatch.setattr(name, interrupt_in_b if moment == "end of B" else interrupt)
    status, out, _ = run(a, b)
    assert status == 130
    assert "g at T queue 0: 5 in A, 6 in B" in out
    assert out.splitlines()[-1] == f"VERDICT      INCOMPLETE, DIFFERENT: groups; interrupted, {words}"


def test_a_long_read_is_announced(run: Run, tmp_path: Path) -> None:
    """Sparse files: their size is announced, nearly nothing is read."""
    for name in "ab":
        segment = write_segment(tmp_path / name / "commitlog", lay([{}]))
        with open(segment.path, "r+b") as file:
            file.truncate(600 << 20)
    _, _, err = run(tmp_path / "a", tmp_path / "b")
    assert "629.1 MB in A and 629.1 MB in B" in err
    assert run(tmp_path / "a", tmp_path / "b", "-q")[2] == ""
    assert "MB" not in run(FLIPPED, FLIPPED)[2]


@pytest.mark.parametrize("seed", range(12))
def test_random_damage_never_breaks_it(run: Run, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    a = oracle.copy("broker", chance.choice(["main-5.3.3", "ext-5.3.3"]), tmp_path / "a")
    b = oracle.copy("crash", chance.choice(["base-5.3.3-halt", "base-4.9.7-clean"]), tmp_path / "b")
    for root in (a, b):
        files = [path for path in sorted(root.rglob("*")) if path.is_file() and path.stat().st_size < 1 << 20]
        for path in chance.sample(files, min(12, len(files))):
            raw = damage(path.read_bytes() or b"x", chance)
            path.write_bytes(raw[: chance.choice([len(raw), len(raw) // 2])])
    status, out, _ = run(a, b, "-f", "json")
    document = json.loads(out)
    assert status in (3, 4)
    assert document["complete"] is (not document["unread"])


# --- what neither has ------------------------------------------------------------------------------


def in_neither(outcome: DiffResult) -> list[tuple[int | None, int | None]]:
    return [(row.physical_offset, row.length) for row in outcome.differences.of("range_neither")]


def three_segments(folder: Path, *left_out: int, short: int | None = None) -> Path:
    """Write three segments of 1024 bytes; `short`: the second has so many bytes only."""
    for number in range(3):
        if number not in left_out:
            pieces = [{"queue_offset": number * 2 + n, "body": b"m" * 200} for n in range(2)]
            write = pad if number == 2 else fill
            path = folder / "commitlog" / f"{number * 1024:020}"
            path.parent.mkdir(parents=True, exist_ok=True)
            content = write(lay(pieces, number * 1024), 1024)
            path.write_bytes(content[:short] if number == 1 and short else content)
    return folder


def test_a_range_that_neither_log_has_is_named(run: Run, tmp_path: Path) -> None:
    a, b = three_segments(tmp_path / "a", short=700), three_segments(tmp_path / "b", short=600)
    outcome = compare(a, b)
    assert in_neither(outcome) == [(1724, 324)]
    status, out, _ = run(a, b)
    words = " ".join(out.split())
    assert status == 3
    assert "1 724 to 2 048, 324 bytes, in neither: neither log has it, and replication brings it to neither" in words


def test_two_stores_that_lack_the_same_are_the_same_with_a_hole(run: Run, tmp_path: Path) -> None:
    a, b = three_segments(tmp_path / "a", 1), three_segments(tmp_path / "b", 1)
    outcome = compare(a, b)
    assert (in_neither(outcome), outcome.verdict) == ([(1024, 1024)], "SAME, BOTH WITH A HOLE")
    assert run(a, b)[0] == 3


def test_what_only_one_has_is_in_one_of_the_two_and_replication_does_not_bring_it(tmp_path: Path) -> None:
    a, b = three_segments(tmp_path / "a"), three_segments(tmp_path / "b", 1)
    outcome = compare(a, b)
    assert in_neither(outcome) == []
    (row,) = outcome.differences.of("range_only")
    assert "replication does not bring it: it goes on at the end of B" in row.message


def test_what_lies_before_both_logs_is_no_hole(tmp_path: Path) -> None:
    a, b = three_segments(tmp_path / "a", 0), three_segments(tmp_path / "b", 0)
    outcome = compare(a, b)
    assert (in_neither(outcome), outcome.verdict) == ([], "SAME")
