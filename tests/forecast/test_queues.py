"""What a start does to consume queues, against the real brokers' queues after they loaded damaged stores."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rmqinspect.broker.eras import Rules, rules_of_start
from rmqinspect.config.checkpoint import read_checkpoint
from rmqinspect.forecast.evidence import Evidence
from rmqinspect.forecast.load import load
from rmqinspect.forecast.queues import Queues, QueueTable
from rmqinspect.forecast.scan import Batch, LogScanner
from rmqinspect.forecast.settings import settings_of
from rmqinspect.forecast.start_segment import start_segment
from rmqinspect.forecast.walk import walk
from rmqinspect.store.discover import open_store
from rmqinspect.store.model import Store
from tests.support import oracle
from tests.support.broken_disk import broken_disk

CASES = [
    "base-4.2.0-halt",
    "size_small_end-4.2.0-h",
    "base-5.4.0-clean",
    "cq_mid_zero-5.4.0-h",
    "cq_shift-5.3.3-h",
    "cq_tail_zero_all-4.9.7-c",
    "cq_tail_zero_all-5.5.0-c",
    "torn_last-4.3.2-h-to-4.7.1",
    "torn_last-5.2.0-h",
    "zero_page_last-5.4.0-c",
]


@pytest.mark.parametrize("name", CASES)
def test_queues_are_those_of_the_broker(name: str) -> None:
    truth, case = oracle.truth("crash", name), oracle.case("crash", name)
    rules, store = rules_of_start(case["opened_by"]), open_store([str(oracle.store("crash", name))])
    loaded = truth["after_load"]
    queues, end = started(store, rules, clean=not truth["abort_before"])

    assert end == loaded["max_phy"]
    assert ends_of(queues) == ends_in(loaded)
    removed = {name for name in truth["files_after_load"]["removed"] if name.startswith("consumequeue/")}
    assert set(queues.deleted_files) == removed


def ends_of(queues: Queues) -> dict[tuple[str, int], tuple[int, int]]:
    return {(end.topic, end.queue_id): (end.min_after, end.max_after) for end in queues.outcomes(range(1 << 62))}


def ends_in(state: dict[str, Any]) -> dict[tuple[str, int], tuple[int, int]]:
    return {(end["topic"], end["queue_id"]): (end["min_offset"], end["max_offset"]) for end in state["queues"]}


# --- the walk, as far as the queues need it -------------------------------------------------------


def started(store: Store, rules: Rules, *, clean: bool) -> tuple[Queues, int]:
    """Return the queues after the load of a store, and the end of its log."""
    settings, _ = settings_of(store)
    queues = QueueTable.read(store, settings).recover(rules, load(store, rules, settings).queues)
    before = queues.max_physic_offset
    scanner = LogScanner(store, store.segments, settings)
    start, _ = start_segment(scanner, rules, settings, read_checkpoint(store), before, clean=clean)[:2]
    dispatches = not clean or rules.clean_dispatch == "behind_queues"

    def take(batch: Batch) -> None:
        queues.dispatch(batch, before if clean else None)

    end = scanner.scan(rules, start, 0, clean=clean, take=take if dispatches else None).end
    if rules.queue_cut_end == "after_dispatch":
        before = queues.max_physic_offset
    if before >= end if rules.queue_cut == "at_or_behind" else not clean:
        queues.truncate(end)
    assert queues.correct_minimum(store.log_start) is None
    return queues, end


@pytest.mark.parametrize("name", ["lmq-5.3.3", "main-5.1.4"])
def test_lost_queues_come_back_as_the_broker_had_them(name: str, tmp_path: Path) -> None:
    """Batch queues and further units are among them; queues of deleted topics come back, too."""
    place, truth = oracle.copy("broker", name, tmp_path), oracle.truth("broker", name)
    for folder in ("consumequeue", "batchconsumequeue"):
        shutil.rmtree(place / folder, ignore_errors=True)
    store, given = open_store([str(place)]), truth["store"]["settings"]
    settings = replace(
        settings_of(store)[0],
        mapped_file_size_consume_queue=int(given["mappedFileSizeConsumeQueue"]),
        enable_lmq=given.get("enableLmq") == "true",
        enable_multi_dispatch=given.get("enableMultiDispatch") == "true",
    )
    rules = rules_of_start(truth["store"]["rocketmq_version"])
    queues = QueueTable.read(store, settings).recover(rules)
    assert queues.max_physic_offset == -1
    end = LogScanner(store, store.segments, settings).scan(rules, 0, 0, clean=False, take=queues.dispatch).end
    queues.correct_minimum(store.log_start)

    found = {(queue.topic, queue.queue_id): queue for queue in queues.outcomes(range(store.log_start, end))}
    for queue in truth["queues"]:
        if queue["max"]:
            own = found[queue["topic"], queue["queue_id"]]
            assert (own.min_after, own.max_after) == (queue["min"], queue["max"]), own


def test_a_queue_that_cannot_be_read_leaves_the_start_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store([str(oracle.store("crash", "base-5.4.0-clean"))])
    name = store.queue_files[0].name
    with broken_disk(monkeypatch, lambda path: str(path).endswith(name), 40, 60):
        outcome = walk(Evidence(store), "5.4.0", rules_of_start("5.4.0"), clean=True)
    assert outcome.unknown is not None
    assert outcome.unknown.startswith(f"{name} at 40 (0x28): ")
