"""The walk against what real brokers did: 215 starts of store classes of nine releases, most of damaged stores.

Compared: whether the start succeeds, the ends of the log, the segments, every queue, and every file that is gone.
"""

import shutil
import struct
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from rmqinspect.forecast.document import document
from rmqinspect.forecast.outcome import Forecast, Outcome, Verdict
from rmqinspect.forecast.versions import ForecastRequest, forecast
from rmqinspect.forecast.words import already_lost
from rmqinspect.store.discover import open_store
from tests.support import oracle
from tests.support.broker_answers import differences, recorded_answer
from tests.support.sampling import sampled

CASES = oracle.cases("crash")


def outcome_of(name: str, **changes: Any) -> Outcome:
    """Return our answer for a case: by the release that opened it, with its settings."""
    store = replace(
        open_store([str(oracle.store("crash", name))]), settings=oracle.case("crash", name)["settings"], has_conf=True
    )
    request = ForecastRequest(release=oracle.truth("crash", name)["opened_by"])
    return forecast(store, replace(request, **changes)).worst


@pytest.mark.parametrize("name", sampled(CASES, 2))
def test_a_start_does_what_the_broker_did(name: str) -> None:
    outcome, answer = outcome_of(name), recorded_answer(name)
    assert differences(document(Forecast([outcome])), answer) == []
    assert len(set(outcome.deleted_files)) == len(outcome.deleted_files)
    if answer.serves:
        # Those too that are empty, and in the broker's memory alone.
        assert {(queue.topic, queue.queue_id) for queue in outcome.queues} == answer.serves.queues.keys()


@pytest.mark.parametrize("name", ["log_dir_lost-5.3.3-c", "log_empty-5.2.0-c", "log_only_zero_len-5.3.3-c"])
def test_a_broker_without_its_log_starts_empty(name: str) -> None:
    outcome = outcome_of(name)
    assert outcome.verdict is Verdict.EMPTY
    assert outcome.losses.messages == 0 < outcome.losses.units


def test_a_log_that_no_queue_leads_to_is_noted() -> None:
    outcome = outcome_of("cq_lost-5.2.0-c")
    assert (outcome.verdict, outcome.proofs) == (Verdict.EMPTY, ["235 454 bytes of log"])
    assert any(note.startswith("no queue leads to what the log holds") for note in outcome.notes)
    assert not outcome_of("cq_lost-5.3.3-r").notes


@pytest.mark.parametrize(
    ("family", "name", "left", "verdict"),
    [
        ("broker", "main-5.3.3", "batchconsumequeue", Verdict.EMPTY),
        ("broker", "main-5.3.3", "consumequeue/CourierLog", Verdict.LOSES),
        ("crash", "base-5.2.0-clean", "consumequeue/Other/0", Verdict.EMPTY),
        ("crash", "base-5.2.0-clean", "consumequeue/TopicA/0", Verdict.LOSES),
    ],
)
def test_queues_are_gone_though_one_is_left_that_leads_to_little(
    family: oracle.Family, name: str, left: str, verdict: Verdict, tmp_path: Path
) -> None:
    """Of topic Other the log has no record; of what stays gone is told where a queue leads to a part of the log."""
    root = oracle.copy(family, name, tmp_path)
    kept = tmp_path / left.replace("/", "_")
    if (root / left).exists():
        (root / left).rename(kept)
    else:
        kept.mkdir()
        (kept / f"{0:020}").write_bytes(struct.pack(">qiq", 100, 50, 7).ljust(400, b"\0"))
    shutil.rmtree(root / "consumequeue")
    (root / left).parent.mkdir(parents=True, exist_ok=True)
    kept.rename(root / left)
    found = forecast(open_store([str(root)]), ForecastRequest(release="5.2.0", instead=True))
    outcome = found.worst
    assert outcome.verdict is verdict
    if verdict is Verdict.LOSES:
        assert outcome.unreachable > 0
        assert {queue.topic for queue in outcome.lost_queues} <= set(outcome.unreachable_by_topic)
    if verdict is Verdict.EMPTY:
        assert "of their queue offsets will be used again" in already_lost(outcome)[-1]
        assert outcome.proofs == [f"records of {len(outcome.lost_queues)} queues"]
        assert any(note.startswith("no queue of consumequeue leads to what the log holds") for note in outcome.notes)
        assert any(way.is_better and way.outcome.healed_units for way in found.instead)


@pytest.mark.parametrize(("name", "records"), [("cq_queue_lost-4.9.7-c", 62), ("cq_queue_lost-5.2.0-c", 50)])
def test_a_queue_that_did_not_come_back_was_told(name: str, records: int) -> None:
    """There is no config/topics.json: the stores are those of a store class."""
    outcome = outcome_of(name)
    assert outcome.lost_queues == [("TopicA", 0, records)]
    # `rebuild` before the start brings them back: they are lost by this start, not already.
    assert not any("used again" in text for text in already_lost(outcome))
    assert outcome.unreachable_by_topic["TopicA"] >= records


def test_a_queue_that_came_back_was_not_called_lost() -> None:
    assert outcome_of("cq_queue_lost-4.2.0-h").lost_queues == []


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("cq_tail_zero_all")])
def test_the_broker_went_on_where_the_lost_end_of_a_queue_begins(name: str) -> None:
    outcome = outcome_of(name)
    ends = {(queue.topic, queue.queue_id): queue.max_after for queue in outcome.queues}
    probes = {(put["topic"], put["queue_id"]): put["queue_offset"] for put in oracle.truth("crash", name)["probe_puts"]}
    assert outcome.lost_queues
    assert all(probes[queue[:2]] == ends[queue[:2]] and queue.given_twice for queue in outcome.lost_queues)
