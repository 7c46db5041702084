"""The walk against what real brokers did: 215 starts of store classes of nine releases, most of damaged stores.

Compared: whether the start succeeds, the ends of the log, the segments, every queue, and every file that is gone.
"""

from dataclasses import replace
from typing import Any

import pytest

from rmqinspect.forecast.outcome import Outcome, Verdict
from rmqinspect.forecast.versions import ForecastRequest, forecast
from rmqinspect.store.discover import open_store
from tests.support import oracle

CASES = oracle.cases("crash")
FOLDERS = ("commitlog/", "consumequeue/", "index/")


def outcome_of(name: str, **changes: Any) -> Outcome:
    """Return our answer for a case: by the release that opened it, with its settings."""
    store = replace(open_store([str(oracle.store("crash", name))]), settings=oracle.case("crash", name)["settings"])
    request = ForecastRequest(release=oracle.truth("crash", name)["opened_by"])
    return forecast(store, replace(request, **changes)).worst


def removed(truth: dict[str, Any]) -> set[str]:
    """Return the files that are gone once the broker serves."""
    gone = truth["files_after_dispatch"]["removed"]
    return {file for file in gone if file.startswith(FOLDERS) and not file.endswith("/")}


@pytest.mark.parametrize("name", CASES)
def test_a_start_does_what_the_broker_did(name: str) -> None:
    outcome, truth = outcome_of(name), oracle.truth("crash", name)
    assert (outcome.verdict is not Verdict.REFUSES) == bool(truth["load_ok"] and truth["start"]["ok"])
    if outcome.verdict is Verdict.REFUSES:
        return
    after = truth["after_dispatch"]
    assert (outcome.min_offset, outcome.end_offset) == (after["min_phy"], after["max_phy"])
    assert outcome.segments_after == [base for base, _, _ in after["commitlog_files"]]
    ours = {(queue.topic, queue.queue_id): (queue.min_after, queue.max_after) for queue in outcome.queues}
    assert ours == {(q["topic"], q["queue_id"]): (q["min_offset"], q["max_offset"]) for q in after["queues"]}
    assert set(outcome.deleted_files) == removed(truth)
    made = [file for file, _ in truth["files_after_dispatch"]["added"] if file.startswith("index/")]
    assert outcome.new_index_files == len(made)
