"""What a start does to consume queues, against the real brokers' queues after they loaded damaged stores."""

from typing import Any

import pytest

from rmqinspect.broker.eras import Rules, rules_of_start
from rmqinspect.config.checkpoint import read_checkpoint
from rmqinspect.forecast.load import load
from rmqinspect.forecast.queues import Queues, QueueTable
from rmqinspect.forecast.scan import Batch, LogScanner
from rmqinspect.forecast.settings import settings_of
from rmqinspect.forecast.start_segment import start_segment
from rmqinspect.store.discover import open_store
from rmqinspect.store.model import Store
from tests.support import oracle

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
