"""`--closed-only`: segments that are still written stay out, and no other."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from rmqinspect.choices import FILE_SIZE
from rmqinspect.export.request import ExportRequest
from rmqinspect.store.discover import open_store
from tests.support.exporting import add, export, names
from tests.support.samples import sample

SAMPLE = sample("flipped-bit-5.3.3")  # segments of 64 KiB, the fourth open


@pytest.mark.parametrize(
    ("file_size", "ends"),
    [
        (FILE_SIZE, [196608]),
        (131072, [131072, 196608]),
        (65536, [65536, 131072, 196608]),
        (65537, [65537, 131074, 196608]),
    ],
)
def test_closed_segments_are_written_though_a_file_would_reach_into_the_open_one(
    tmp_path: Path, file_size: int, ends: list[int]
) -> None:
    stores = [replace(open_store([str(SAMPLE)]), name="broker")]
    export(tmp_path / "lake", stores, ExportRequest(file_size=file_size, closed_only=True))
    assert [int(name[-28:-8]) for name in names(tmp_path / "lake")] == ends

    outcome = add(tmp_path / "lake", stores, ExportRequest(file_size=file_size))
    assert min(outcome.names).startswith("messages/broker-00000000000000196608-")
    assert max(outcome.names).endswith("-00000000000000217698.parquet")
    assert outcome.manifest.rows("messages") == 263


def test_without_it_the_open_segment_is_no_border(tmp_path: Path) -> None:
    stores = [replace(open_store([str(SAMPLE)]), name="broker")]
    outcome = export(tmp_path / "lake", stores, ExportRequest())
    assert sorted(outcome.names) == ["messages/broker-00000000000000000000-00000000000000217698.parquet"]
