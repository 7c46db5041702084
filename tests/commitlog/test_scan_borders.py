"""Splits give what one reader gives, also where the damage before a split reaches further than it looks back.

The parts of a gap: every run of zeros is found, wherever the borders of the chunks that are read lie.
"""

import os
import re
import tempfile
import zlib
from itertools import pairwise
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import rmqinspect.commitlog.scan
import rmqinspect.tables.record_columns
from rmqinspect.codec.layout import dtype_of
from rmqinspect.commitlog import find_record as lenient_reader
from rmqinspect.commitlog.find_record import Frame, LenientReader, RecordFinder, Unread
from rmqinspect.commitlog.gaps import ZERO_RUN, Gap, Split, describe_gap, plan_splits
from rmqinspect.commitlog.scan import scan_split
from rmqinspect.schemas.messageid import GrpcClientId
from rmqinspect.store.model import Segment
from rmqinspect.store.reader import open_file
from rmqinspect.tables.request import Request
from tests.support.building import STORED, blank, entry, lay, record, various, write_segment
from tests.support.scanning import scan, statuses, table


@pytest.fixture
def short_sight(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a split look back 1,000 bytes, where it looks back 6 MiB in earnest."""
    monkeypatch.setattr(rmqinspect.commitlog.scan, "LOOK_BACK", 1000)
    monkeypatch.setattr(rmqinspect.commitlog.scan, "LOOK_BACK_FIRST", 500)


@pytest.mark.usefixtures("short_sight")
@pytest.mark.parametrize("split_size", [500, 1000])
def test_a_stale_tail_is_stale_in_every_split(split_size: int, tmp_path: Path) -> None:
    old = lay([{"body": b"old " * 9, "store_timestamp": STORED + n} for n in range(40)])
    new = lay([{"body": b"new", "store_timestamp": STORED + 60_000 + n} for n in range(4)])
    segment = write_segment(tmp_path, new + old[len(new) :])
    assert scan(segment, split_size).records == scan(segment).records


@pytest.mark.usefixtures("short_sight")
def test_splits_behind_a_blank_in_the_middle_give_no_rows(tmp_path: Path) -> None:
    log = lay(various(12))
    segment = write_segment(tmp_path, log + blank(8) + lay(various(40), len(log) + 8))
    parts, whole = scan(segment, 1000), scan(segment)
    assert (parts.records, parts.gaps) == (whole.records, whole.gaps)


@pytest.mark.usefixtures("short_sight")
def test_a_record_larger_than_the_look_back_makes_no_gap(tmp_path: Path) -> None:
    segment = write_segment(tmp_path, lay([{}, {"body": bytes(range(1, 256)) * 12}, {}, {}]))
    parts, whole = scan(segment, 1500), scan(segment)
    assert (parts.records, parts.gaps) == (whole.records, whole.gaps)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("size", [0, 100, 500])
def test_a_segment_that_becomes_shorter_while_it_is_read_ends_the_scan(size: int, tmp_path: Path) -> None:
    segment = write_segment(tmp_path, lay(various(12)))
    events = []
    for event in scan_split(Split(segment, 0, segment.size), 300):
        os.truncate(segment.path, size)
        events.append(event)
    reported = [event for event in events if isinstance(event, Unread)]
    assert "shorter" in reported[0].message
    assert reported[-1].end == segment.base + segment.size


def test_a_dledger_entry_without_a_record_is_filler(tmp_path: Path) -> None:
    log = lay([{}, {}], dledger=True)
    log += entry(b"", len(log), index=2, magic=2)
    log += entry(record(len(log) + 48), len(log), index=3)
    segment = write_segment(tmp_path, log, 0, "dledger")
    assert {gap.kind for gap in scan(segment).gaps} == {"filler"}
    assert statuses(segment) == ["ok"] * 3


def test_an_unsigned_field_has_no_dtype_and_says_so() -> None:
    with pytest.raises(TypeError):
        dtype_of(GrpcClientId)


def test_large_payloads_end_a_batch_and_change_no_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = zlib.compress(bytes(5000))
    segment = write_segment(tmp_path, lay([{"body": body, "sys_flag": 1}, {"body": b"plain"}] * 10))
    whole = table(segment)
    monkeypatch.setattr(rmqinspect.tables.record_columns, "BATCH_SIZE", 6000)
    assert table(segment, Request()).equals(whole)
    assert table(segment).column("body").num_chunks > 3


def test_a_record_that_begins_in_the_last_bytes_of_a_hole_is_found(tmp_path: Path) -> None:
    log = bytearray(lay([{"body": bytes(range(1, 200))} for _ in range(40)]))
    starts = [found.physical_offset for found in scan(write_segment(tmp_path, bytes(log))).records]
    victim = next(number for number, start in enumerate(starts) if start > 4200)
    hole = starts[victim] + 2  # its first two bytes are zeros of the size
    log[:hole] = bytes(hole)
    segment = write_segment(tmp_path, bytes(log))
    with open(segment.path, "r+b") as file:  # the same bytes, sparse
        file.truncate(0)
        file.truncate(len(log))
        file.seek(hole // 4096 * 4096)
        file.write(log[hole // 4096 * 4096 :])
    assert scan(segment).records[0].physical_offset == starts[victim]


def test_one_late_time_before_a_gap_makes_no_earlier_life(tmp_path: Path) -> None:
    log = bytearray(lay([{"store_timestamp": STORED + (3_600_000 if n == 9 else n)} for n in range(30)]))
    starts = [found.physical_offset for found in scan(write_segment(tmp_path, bytes(log))).records]
    log[starts[10] : starts[14]] = bytes(starts[14] - starts[10])
    assert not any(found.stale for found in scan(write_segment(tmp_path, bytes(log))).records)


@pytest.mark.parametrize("split_size", [500, 1 << 20])
@pytest.mark.parametrize(
    ("number", "time"),
    [(0, 2**63 - 1), (0, -1), (9, STORED + 3_600_000), (9, 2**63 - 1), (9, 1), (9, STORED - 3_600_000)],
)
def test_one_wrong_time_between_gaps_makes_no_earlier_life(
    number: int, time: int, split_size: int, tmp_path: Path
) -> None:
    """Neither of that record nor of those behind it: it stands alone, and the ones around it count as well."""
    log = bytearray(lay([{"store_timestamp": time if n == number else STORED + n} for n in range(30)]))
    starts = [found.physical_offset for found in scan(write_segment(tmp_path, bytes(log))).records]
    for lost in {max(number - 1, 0), number + 1} - {number}:
        log[starts[lost] : starts[lost + 1]] = bytes(starts[lost + 1] - starts[lost])
    found = scan(write_segment(tmp_path, bytes(log)), split_size).records
    assert [record.physical_offset for record in found if record.stale] == []
    assert starts[number] in {record.physical_offset for record in found}


def test_times_that_say_nothing_are_not_looked_for_at_every_gap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A split asks once for the times before it, and at each gap a few records behind it."""
    asked = 0
    frame_at = RecordFinder.frame_at

    def counting(finder: RecordFinder, offset: int, *, anywhere: bool = False) -> Frame | None:
        nonlocal asked
        asked += 1
        return frame_at(finder, offset, anywhere=anywhere)

    log = bytearray(lay([{"store_timestamp": -1} for _ in range(900)]))
    starts = [found.physical_offset for found in scan(write_segment(tmp_path, bytes(log))).records]
    for number in range(0, 900, 3):
        log[starts[number] + 4] ^= 1
    monkeypatch.setattr(RecordFinder, "frame_at", counting)
    found = scan(write_segment(tmp_path, bytes(log)), 40_000).records
    assert len(found) == 600 and not any(record.stale for record in found)
    assert asked < 300 * 40


def test_a_second_run_of_an_earlier_life_is_stale_too(tmp_path: Path) -> None:
    old = bytearray(lay([{"store_timestamp": STORED + n} for n in range(40)]))
    new = lay([{"store_timestamp": STORED + 60_000 + n} for n in range(4)])
    starts = [found.physical_offset for found in scan(write_segment(tmp_path, bytes(old))).records]
    old[: len(new)] = new
    old[starts[4] : starts[6]] = bytes(starts[6] - starts[4])
    old[starts[20] : starts[22]] = bytes(starts[22] - starts[20])
    found = scan(write_segment(tmp_path, bytes(old))).records
    assert [record.stale for record in found] == [False] * 4 + [True] * (len(found) - 4)


def test_a_negative_topic_length_is_no_record(tmp_path: Path) -> None:
    raw = bytearray(record(0, topic=b""))
    raw[-3] = 0xFF
    assert not scan(write_segment(tmp_path, bytes(raw))).records


def test_a_hole_of_a_terabyte_is_not_cut_into_as_many_splits() -> None:
    splits = plan_splits(
        [Segment("", "", 1 << 40, "segment", 0), Segment("", "", 1 << 30, "segment", 1 << 40)], 16 << 20
    )
    assert len([split for split in splits if split.segment.base == 0]) == 256
    assert len([split for split in splits if split.segment.base]) == 64
    assert splits[255].end == 1 << 40


BASE = 1 << 20
CHUNK = 700  # of a read, more than a run

_sizes = st.one_of(st.integers(1, 3), st.integers(ZERO_RUN - 2, ZERO_RUN + 2), st.integers(1, 3 * CHUNK))


def expected(raw: bytes) -> list[Gap]:
    """Return the parts by a search through the whole gap at once."""
    ends = {0: 1, len(raw): 1}
    runs = [match.span() for match in re.finditer(b"\0+", raw)]
    long = [(a, b) for a, b in runs if b - a >= ZERO_RUN or a in ends or b in ends]
    borders = [0, *(place for run in long for place in run), len(raw)]
    parts = [("zeros" if number % 2 else "unknown", *span) for number, span in enumerate(pairwise(borders))]
    return [Gap(BASE + a, BASE + b, kind, None if kind == "zeros" else "magic") for kind, a, b in parts if a < b]


@given(sizes=st.lists(_sizes, min_size=1, max_size=9), zeros_first=st.booleans())
@example(sizes=[CHUNK, ZERO_RUN - 1, CHUNK], zeros_first=True)  # a run that is short, and ends with a chunk
@example(sizes=[CHUNK - 1, 1], zeros_first=False)
@example(sizes=[4 * CHUNK], zeros_first=True)
def test_the_runs_of_zeros_do_not_depend_on_the_reads(sizes: list[int], zeros_first: bool) -> None:
    raw = b"".join(b"\0x"[number % 2 ^ (not zeros_first)].to_bytes() * size for number, size in enumerate(sizes))
    small = patch.object(LenientReader.chunks, "__defaults__", (0, CHUNK))
    with tempfile.TemporaryDirectory() as folder, patch.object(lenient_reader, "_CHUNK", CHUNK), small:
        segment = write_segment(Path(folder), raw, BASE)
        with open_file(segment) as file:
            found = list(describe_gap(LenientReader(file, segment), 0, len(raw), "magic"))
    assert found == expected(raw)
