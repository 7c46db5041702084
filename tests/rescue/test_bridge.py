"""Bridges: a chain with bridges in it goes on, and every reader takes them for fillers."""

from pathlib import Path

import pytest

from rmqinspect.rescue.bridge import LARGEST, SMALLEST, SMALLEST_AT_END, USUAL, bridge
from rmqinspect.store.discover import open_store
from rmqinspect.verify.result import VerifyOptions
from rmqinspect.verify.run import verify
from tests.support.building import STORED, fill, lay, pad, record, write_segment
from tests.support.scanning import scan

SIZE = 64 << 10


def _segment(folder: Path, gap: int, *, at_end: bool) -> tuple[bytes, int, int]:
    before = lay([{"queue_offset": at} for at in range(3)])
    start, end = len(before), len(before) + gap
    raw = bytearray(before + b"\xa5" * gap)
    if not at_end:
        raw += record(end, queue_offset=4)
    size = end if at_end else SIZE
    raw = bytearray(bytes(raw) if at_end else fill(bytes(raw), size))
    raw[start:end] = bytes(gap)
    for offset, written in bridge(start, end, size, STORED):
        raw[offset : offset + len(written)] = written
    return bytes(raw), start, end


@pytest.mark.parametrize("at_end", [False, True])
@pytest.mark.parametrize("gap", [SMALLEST, SMALLEST + 8, USUAL, USUAL + 7, USUAL + 8, 5000])
def test_a_gap_with_a_bridge_is_a_filler_of_a_whole_log(tmp_path: Path, gap: int, at_end: bool) -> None:
    raw, start, end = _segment(tmp_path, gap, at_end=at_end)
    found = scan(write_segment(tmp_path / "commitlog", raw), 1000)
    assert not [row for row in found.records if start <= row.physical_offset < end]
    gaps = [part for part in found.gaps if part.start == start]
    has_bridge = not at_end or gap >= SMALLEST + SMALLEST_AT_END
    assert [(part.end >= end, part.kind, part.reason) for part in gaps] == [
        (True, "filler", "bridged" if has_bridge else None)
    ]
    result = verify(open_store([str(tmp_path / "commitlog")]), VerifyOptions())
    assert result.verdict == "WHOLE"
    assert [row.code for row in result.findings.rows] == ["CL-BRIDGED"] * has_bridge


@pytest.mark.parametrize(
    "behind",
    [b"\x00\x00\x03\xc7\xda\xa3\x20", bytes(40) + b"\xa5" * 40, bytes(5000) + b"\xa5"],
    ids=["a head", "a few zeros", "pages"],
)
def test_damage_behind_a_bridge_is_a_gap_of_its_own(tmp_path: Path, behind: bytes) -> None:
    raw, _, end = _segment(tmp_path, USUAL, at_end=False)
    raw = raw[:end] + behind + record(end + len(behind), queue_offset=4)
    for split in (1000, 1 << 20):
        gaps = scan(write_segment(tmp_path / "commitlog", raw), split).gaps
        assert [part.reason for part in gaps if part.kind == "unknown"] == ["zero" if behind[4] == 0 else "magic"]
    result = verify(open_store([str(tmp_path / "commitlog")]), VerifyOptions())
    assert sorted({row.code for row in result.findings.rows} - {"CL-BRIDGED"}) in (["CL-MAGIC"], ["CL-ZERO-INSIDE"])


def test_bridges_of_a_wide_gap_are_few_bytes_and_none_is_too_small() -> None:
    for size in (LARGEST, LARGEST + 1, LARGEST + SMALLEST, 3 * LARGEST - 5):
        writes = list(bridge(0, size, 1 << 30, STORED))
        assert sum(len(raw) for _, raw in writes) <= 4 * USUAL
        heads = [(at, int.from_bytes(raw[:4], "big")) for at, raw in writes[::2]]
        assert all(SMALLEST <= claimed <= LARGEST for _, claimed in heads)
        assert [at + claimed for at, claimed in heads] == [*(at for at, _ in heads[1:]), size]


def test_what_holds_no_bridge_is_refused() -> None:
    with pytest.raises(ValueError, match="no record fits"):
        list(bridge(0, SMALLEST - 1, 1000, STORED))
    with pytest.raises(ValueError, match="no blank record fits"):
        list(bridge(993, 1000, 1000, STORED))


def test_a_message_with_the_mark_but_of_another_type_is_a_message(tmp_path: Path) -> None:
    raw = pad(lay([{"flag": 0x42726467}, {"sys_flag": 0xC}]), SIZE)
    assert len(scan(write_segment(tmp_path, raw)).records) == 2
