"""Where a start begins to scan the log, and where it ends, against what real brokers did.

Dispatch behind the recovery, on what no broker writes.
"""

import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from rmqinspect.broker.eras import rules_of_start
from rmqinspect.config.json_files import read_checkpoint
from rmqinspect.forecast.batch import Batch
from rmqinspect.forecast.load import load
from rmqinspect.forecast.queues import QueueEnds, Queues
from rmqinspect.forecast.scan import LogScanner, reput
from rmqinspect.forecast.settings import Settings, settings_of
from rmqinspect.forecast.start_segment import Start, start_segment
from rmqinspect.store.discover import open_store
from tests.support import oracle
from tests.support.building import record


@pytest.mark.parametrize("name", oracle.cases("crash")[::3])
def test_the_scan_ends_where_the_brokers_scan_ended(name: str) -> None:
    truth = oracle.truth("crash", name)
    if not truth["load_ok"] or not truth["after_load"]["commitlog_files"]:
        return
    start, scanner, scan = start_and_scan(name)
    assert (start.refusal, start.unknown, scan().killed, scan().unreadable) == (None, None, None, None)
    assert scan().end == truth["after_load"]["max_phy"]
    said = re.search(r"recover from this map+ed file <root>/commitlog/(\d+)", "\n".join(truth["log"]))
    assert said is None or scanner.segments[start.segment].base == int(said[1])
    # All records are handed on, and once: the second scan knows what the first one found.
    batches: list[int] = []
    assert scan(take=lambda batch: batches.append(len(batch.records))) == scan()
    assert sum(batches) == scan().records


def test_an_error_of_java_ends_the_start() -> None:
    name = "size_huge_third-4.7.1-c"
    assert "OutOfMemoryError" in str(oracle.truth("crash", name)["load"])
    killed = start_and_scan(name)[2]().killed
    assert killed is not None
    assert killed.rule == "memory"


def start_and_scan(name: str) -> tuple[Start, LogScanner, Any]:
    """Return where a start begins, and the scan from there on."""
    case, truth = oracle.case("crash", name), oracle.truth("crash", name)
    store = replace(open_store([str(oracle.store("crash", name))]), settings=case["settings"], has_conf=True)
    settings, rules, clean = settings_of(store)[0], rules_of_start(case["opened_by"]), not truth["abort_before"]
    scanner = LogScanner(store, load(store, rules, settings).segments, settings)
    queues_end = Queues(QueueEnds.read(store, settings), rules).max_physic_offset
    start = start_segment(scanner, rules, settings, read_checkpoint(store), queues_end, clean=clean)
    scan = partial(scanner.scan, rules, start.segment, start.position, clean=clean, counted=start.counted)
    return start, scanner, partial(scan, take=None)


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
