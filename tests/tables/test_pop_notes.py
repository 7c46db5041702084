"""What groups have in flight and have acknowledged, against what a client popped, acknowledged and left."""

import shutil
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from rmqinspect.store.discover import open_store
from rmqinspect.tables import pops
from rmqinspect.tables.groups import GROUPS
from rmqinspect.tables.request import Request
from rmqinspect.topics import REVIVE_PREFIX, TIMER_TOPIC
from tests.support import oracle
from tests.support.outcome_stores import copy_of_case, outcome_store
from tests.support.side_tables import broker, rows

OF_POP = Request(columns=frozenset({"in_flight", "awaiting_revive", "acked"}))


def popped(name: str) -> dict[tuple[str, str, int], Counter[str]]:
    """Return by (group, topic, queue id) how many messages the client acknowledged, or left or kept invisible."""
    truth = oracle.truth("broker", name)
    topic = truth["names"]["topics"]["pop"]
    found: dict[tuple[str, str, int], Counter[str]] = defaultdict(Counter)
    for row in truth["pop"]:
        *_, retry, _, queue_id, _ = row["extra_info"].split()  # 1: from the pop retry topic
        place = row["group"], f"%RETRY%{row['group']}_{topic}" if retry == "1" else topic, int(queue_id)
        # The store ends within 290 s of the pop, and long after 9 s.
        is_long = row["invisible_time"] > 60_000
        found[place]["acked" if row["outcome"] == "ack" else "in_flight" if is_long else "due"] += 1
    return found


@pytest.mark.parametrize("name", ["halt-5.1.4", "main-5.3.3", "ext-5.3.3", "main-5.5.0"])
def test_messages_in_flight_and_acknowledged_are_those_of_the_client(name: str) -> None:
    expected = popped(name)
    found = {
        (row["group"], row["topic"], row["queue_id"]): (row["in_flight"], row["acked"], row["awaiting_revive"])
        for row in rows(GROUPS, broker(name), OF_POP)
        if row["in_flight"] is not None
    }
    assert found == {place: (count["in_flight"], count["acked"], 0) for place, count in expected.items()}
    assert any(in_flight for in_flight, _, _ in found.values())


def test_before_the_broker_looked_at_them_due_messages_await_revival(tmp_path: Path) -> None:
    root = oracle.copy("broker", "main-5.3.3", tmp_path)
    offsets = root / "config" / "consumerOffset.json"
    # As if the revive service had never run.
    offsets.write_bytes(offsets.read_bytes().replace(b"@CID_RMQ_SYS_REVIVE_GROUP", b"@other"))
    found = {
        (row["group"], row["topic"], row["queue_id"]): row["awaiting_revive"]
        for row in rows(GROUPS, open_store([str(root)]), OF_POP)
        if row["in_flight"] is not None
    }
    assert found == {place: count["due"] for place, count in popped("main-5.3.3").items()}


def test_of_very_many_checkpoints_the_newest_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pops, "MOST_RECORDS", 5)
    remarks: list[str] = []
    request = Request(columns=OF_POP.columns, on_remark=remarks.append)
    found = [row["in_flight"] for row in rows(GROUPS, broker("main-5.3.3"), request)]
    assert 0 < len([number for number in found if number is not None]) < 10
    assert len(remarks) == 1


def test_a_broker_that_knows_no_pop_has_none() -> None:
    assert not any(row["in_flight"] is not None for row in rows(GROUPS, broker("main-4.9.7"), OF_POP))


def test_before_there_is_a_revive_queue_the_checkpoints_on_the_timer_count() -> None:
    store = open_store([str(outcome_store("s10"))])
    assert not any(file.topic.startswith(REVIVE_PREFIX) for file in store.queue_files)
    found = [row for row in rows(GROUPS, store, OF_POP) if row["in_flight"] is not None]
    assert {(row["group"], row["topic"]) for row in found} == {("workers", "jobs")}
    assert sum(row["in_flight"] for row in found) == 32
    assert sum(row["acked"] for row in found) == 132


def test_without_the_revive_queues_the_timer_says_the_same(tmp_path: Path) -> None:
    def states(root: Path) -> set[tuple[object, ...]]:
        found = rows(GROUPS, open_store([str(root)]), OF_POP)
        return {tuple(row[name] for name in ("group", "topic", "queue_id", "acked")) for row in found if row["acked"]}

    root = oracle.copy("broker", "main-5.3.3", tmp_path)
    before = states(root)
    for folder in (root / "consumequeue").glob(f"{REVIVE_PREFIX}*"):
        shutil.rmtree(folder)
    assert states(root) == before != set()


def test_without_the_timer_nothing_was_popped(tmp_path: Path) -> None:
    root = copy_of_case("s10", tmp_path / "case")
    shutil.rmtree(root / "consumequeue" / TIMER_TOPIC)
    assert pops.pop_queues(open_store([str(root)])) == set()
