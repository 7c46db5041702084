"""Store.segment_at against a plain search, also where segments overlap or one is missing."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from rmqinspect.store.discover import open_store
from rmqinspect.store.model import Segment, Store
from tests.support.building import write_segment


def store_of(folder: Path, ranges: Sequence[tuple[int, int]]) -> Store:
    """Return a store whose segments cover these [base, end) ranges."""
    write_segment(folder / "commitlog", bytes(8))
    segments = (Segment(f"/{base}-{end}", f"{base:020}", end - base, "segment", base) for base, end in ranges)
    return replace(open_store([str(folder)]), segments=tuple(segments))


@pytest.mark.parametrize(
    "ranges",
    [
        [],
        [(0, 100), (100, 200), (200, 300)],
        [(100, 200), (300, 400)],
        [(0, 0), (0, 100), (100, 100), (100, 150)],
        [(0, 350), (100, 200), (100, 210), (300, 400), (500, 600)],
    ],
)
def test_the_segment_at_an_offset_is_the_first_that_holds_it(tmp_path: Path, ranges: list[tuple[int, int]]) -> None:
    store = store_of(tmp_path, ranges)
    for offset in range(-50, 700, 25):
        assert store.segment_at(offset) == next((s for s in store.segments if s.base <= offset < s.end), None)
