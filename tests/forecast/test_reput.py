"""Dispatch behind the recovery, on what no broker writes."""

from pathlib import Path

from rmqinspect.broker.eras import rules_of_start
from rmqinspect.forecast.batch import Batch
from rmqinspect.forecast.scan import reput
from rmqinspect.forecast.settings import Settings
from rmqinspect.store.discover import open_store
from tests.support.building import record

SIZE = 65536
BASE = 65000  # no multiple of the size: offset % SIZE is no position in this segment


def test_dispatch_gets_stuck_in_a_segment_of_an_odd_name(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    raw = record(BASE) + record(BASE + len(record(BASE)))
    (tmp_path / "commitlog" / f"{BASE:020d}").write_bytes(raw.ljust(SIZE, b"\0"))
    store, taken = open_store([str(tmp_path)]), list[Batch]()
    settings = Settings(mapped_file_size_commit_log=SIZE)
    stuck = reput(store, store.segments, rules_of_start("4.9.7"), settings, BASE, BASE + len(raw), taken.append)
    assert (stuck, taken) == (BASE, [])
