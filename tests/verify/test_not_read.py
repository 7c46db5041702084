"""ST-NOT-READ, and what groups says of it: messages that wait where no consumer can read."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rmqinspect.store.discover import open_store
from rmqinspect.verify.findings import Finding
from rmqinspect.verify.group_offsets import check_refused
from tests.support.command import Run, runner
from tests.support.outcome_stores import copy_of_case, outcome_store
from tests.support.side_tables import broker

run = runner()


def told(root: Path) -> dict[str, Finding]:
    return {row.topic or "": row for row in check_refused(open_store([str(root)]))}


def with_topics(root: Path, **changes: Mapping[str, Any] | None) -> Path:
    """Change topics in topics.json; None removes one."""
    path = root / "config/topics.json"
    document = json.loads(path.read_text())
    table = document["topicConfigTable"]
    for topic, change in changes.items():
        if change is None:
            del table[topic]
        else:
            table[topic] |= change
    path.write_text(json.dumps(document))
    return root


def test_messages_beyond_the_read_queues_and_in_a_closed_topic_are_told() -> None:
    found = told(outcome_store("read-queues"))
    assert set(found) == {"FleetEvents", "CourierLog"}
    assert {(row.code, row.severity, row.file) for row in found.values()} == {
        ("ST-NOT-READ", "warning", "config/topics.json")
    }
    assert (
        "FleetEvents queues 2, 3: topics.json gives it 2 read queues; 44 messages wait" in found["FleetEvents"].message
    )
    assert "updateTopic -t FleetEvents -r 4" in found["FleetEvents"].do
    assert "its perm in topics.json is 2, which allows no reading; 95 messages wait" in found["CourierLog"].message


def test_groups_says_which_messages_no_consumer_gets(run: Run) -> None:
    _, out, _ = run("groups", outcome_store("read-queues"))
    text = " ".join(out.split())
    assert "44 messages wait in queues 2, 3 of FleetEvents: topics.json gives it 2 read queues, so no consumer" in text
    assert "95 messages wait in queues 0, 1, 2 of CourierLog: its perm in topics.json is 2" in text
    _, out, _ = run("groups", outcome_store("read-queues"), "-t", "StockPop")
    assert "refused" not in out


def test_where_consumers_can_read_nothing_is_told(tmp_path: Path) -> None:
    root = copy_of_case("read-queues", tmp_path / "case")
    with_topics(root, FleetEvents={"readQueueNums": 4}, CourierLog={"perm": 6})
    assert told(root) == {}


def test_the_border_is_the_number_of_read_queues(tmp_path: Path) -> None:
    root = copy_of_case("read-queues", tmp_path / "case")
    with_topics(root, FleetEvents={"readQueueNums": 3}, CourierLog={"perm": 4})
    found = told(root)
    assert set(found) == {"FleetEvents"}
    assert "no consumer can read FleetEvents queue 3:" in found["FleetEvents"].message


def test_a_topic_that_topics_json_lost_while_its_queues_are_there_is_told(tmp_path: Path) -> None:
    root = with_topics(copy_of_case("read-queues", tmp_path / "case"), FleetEvents=None, CourierLog={"perm": 6})
    found = told(root)
    assert set(found) == {"FleetEvents"}
    assert "topics.json does not name the topic" in found["FleetEvents"].message


def test_what_all_groups_have_consumed_does_not_wait(tmp_path: Path) -> None:
    root = with_topics(copy_of_case("read-queues", tmp_path / "case"), LedgerOld={"readQueueNums": 0})
    before = told(root)
    assert set(before) == {"FleetEvents", "CourierLog", "LedgerOld"}
    with_topics(root, RefundWork={"readQueueNums": 0})  # consumed to its end
    assert set(told(root)) == set(before)


def test_without_topics_json_nothing_is_known(tmp_path: Path) -> None:
    root = copy_of_case("read-queues", tmp_path / "case")
    for file in (root / "config").glob("topics.json*"):
        file.unlink()
    assert told(root) == {}


@pytest.mark.parametrize("name", ["main-4.7.1", "main-4.9.7", "main-5.5.0", "lmq-5.3.3", "retention-5.3.3"])
def test_no_broker_store_has_any(name: str) -> None:
    assert list(check_refused(broker(name))) == []
