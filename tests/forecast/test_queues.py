"""Queues that a start makes anew, and one that cannot be read. `test_recorded_starts` has all the others."""

import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace

from rmqinspect.broker.eras import rules_of_start
from rmqinspect.forecast.evidence import Evidence
from rmqinspect.forecast.queues import QueueEnds, Queues
from rmqinspect.forecast.scan import LogScanner
from rmqinspect.forecast.settings import settings_of
from rmqinspect.forecast.walk import walk
from rmqinspect.store.discover import open_store
from tests.support import oracle
from tests.support.broken_disk import broken_disk


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
    queues = Queues(QueueEnds.read(store, settings), rules)
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
