"""What groups have in flight and have acknowledged, against what a client popped, acknowledged and left."""

from collections import Counter, defaultdict
from pathlib import Path

import pytest

from rmqinspect.store.discover import open_store
from rmqinspect.tables import groups as pop_notes
from rmqinspect.tables.groups import GROUPS
from rmqinspect.tables.table import Request
from tests.support import oracle
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
    monkeypatch.setattr(pop_notes, "MOST_RECORDS", 5)
    remarks: list[str] = []
    request = Request(columns=OF_POP.columns, on_remark=remarks.append)
    found = [row["in_flight"] for row in rows(GROUPS, broker("main-5.3.3"), request)]
    assert 0 < len([number for number in found if number is not None]) < 10
    assert len(remarks) == 1


def test_a_broker_that_knows_no_pop_has_none() -> None:
    assert not any(row["in_flight"] is not None for row in rows(GROUPS, broker("main-4.9.7"), OF_POP))
