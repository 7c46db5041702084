"""Whose topic is it: retry, pop retry and dead-letter topics by their names.

Checkpoints and acks of popped messages, matched by hand.
"""

from typing import Any

import pytest

from rmqinspect.broker.groups import (
    Ack,
    Checkpoint,
    Pop,
    PopCount,
    PopStates,
    is_own_topic,
    is_retry_of,
    kind_of,
    owner_of,
    read_body,
)
from tests.support import oracle

KINDS = {
    ("g", "T"): "normal",
    ("g", "rmq_sys_wheel_timer"): "normal",
    ("g", "%RETRY%g"): "retry",
    ("g", "%RETRY%other"): "normal",
    ("g", "%RETRY%g_T"): "pop_retry",
    ("g", "%RETRY%g+T"): "pop_retry",
    ("g", "%RETRY%g_"): "normal",
    ("g", "%DLQ%g"): "dlq",
    ("%LMQ%g", "%LMQ%a"): "lmq",
    ("g", "%LMQ%$T$lite"): "lmq",
    ("g@broadcast-1", "T"): "broadcast",
    ("CID_RMQ_SYS_TRANS", "RMQ_SYS_TRANS_HALF_TOPIC"): "system",
    ("TOOLS_CONSUMER", "T"): "system",
}


@pytest.mark.parametrize(("position", "kind"), KINDS.items(), ids=map("@".join, KINDS))
def test_the_kind_of_a_consumer_offset_follows_from_its_names(position: tuple[str, str], kind: str) -> None:
    assert kind_of(*position) == kind


def test_a_pop_retry_topic_belongs_to_the_group_whose_topic_is_known() -> None:
    groups, topics = {"a", "a_b", "x"}, {"b_c", "T_1"}
    assert owner_of("%RETRY%a_b_c", groups, topics) == "a"
    assert owner_of("%RETRY%a_b_c", groups, {"c"}) == "a_b"
    assert owner_of("%RETRY%a_b_z", groups, topics) == "a_b"
    assert owner_of("%RETRY%a_b", groups, topics) == "a_b"
    assert owner_of("%RETRY%x+T_1", groups, topics) == "x"
    assert owner_of("%RETRY%new_T_1", groups, topics) == "new_T_1"
    assert owner_of("%DLQ%a_b_c", groups, topics) == "a_b_c"
    assert (owner_of("T", groups, topics), owner_of("%RETRY%", groups, topics), owner_of("%DLQ%", set(), ())) == (
        None,
        None,
        None,
    )


@pytest.mark.parametrize("name", ["main-5.3.3", "main-5.5.0", "compaction-5.3.3", "lmq-5.3.3"])
def test_every_retry_topic_that_a_broker_keeps_an_offset_of_belongs_to_that_group(name: str) -> None:
    truth = oracle.truth("broker", name)
    groups = {row["group"] for row in truth["groups"]}
    topics = {row["topic"] for row in truth["queues"]}
    kinds = set()
    for row in truth["groups"]:
        kind = kind_of(row["group"], row["topic"])
        kinds.add(kind)
        is_retry = kind in ("retry", "pop_retry")
        assert is_retry == row["topic"].startswith("%RETRY%")
        assert is_retry == is_retry_of(row["topic"], row["group"])
        assert owner_of(row["topic"], groups, topics) == (row["group"] if is_retry else None)
        assert is_own_topic(row["topic"]) or kind in ("normal", "system")
    assert {"normal", "retry", "pop_retry", "system"} <= kinds


POP = {"c": "G", "t": "T", "q": 1, "so": 10, "pt": 1000, "bn": "broker-a"}
CHECKPOINT = {**POP, "n": 3, "d": [0, 2, 5], "it": 500, "bm": 0, "ro": 0}
PLACE = ("G", "T", 1)


def states(*bodies: dict[str, Any], handled: bool = False) -> PopStates:
    found = PopStates()
    for body in bodies:
        read = read_body(body)
        assert read is not None
        found.add(read, handled=handled)
    return found


def test_bodies_are_read_under_short_and_long_names() -> None:
    pop = Pop("G", "T", 1, 10, 1000)
    assert read_body(CHECKPOINT) == Checkpoint(pop, 1500, (10, 12, 15), 0)
    assert read_body({**CHECKPOINT, "d": []}) == Checkpoint(pop, 1500, (10, 11, 12), 0)
    assert read_body({**POP, "ao": 12}) == Ack(pop, (12,))
    assert read_body({**POP, "aol": [10, 15]}) == Ack(pop, (10, 15))
    long = {"consumerGroup": "G", "topic": "T", "queueId": 1, "startOffset": 10, "popTime": 1000, "ackOffset": 11}
    assert read_body(long) == Ack(pop, (11,))


@pytest.mark.parametrize(
    "body",
    [
        {},
        POP,
        {**POP, "n": 10**12, "it": 1},
        {**POP, "n": 0, "it": 1},
        {**POP, "c": 5, "ao": 1},
        {**POP, "q": 1 << 70, "ao": 1},
        {**POP, "ao": True},
    ],
)
def test_what_is_neither_a_checkpoint_nor_an_ack_is_none(body: dict[str, Any]) -> None:
    assert read_body(body) is None


def test_messages_are_in_flight_until_they_are_due_and_revived_when_the_broker_has_looked() -> None:
    ack = {**POP, "ao": 12}
    assert states(CHECKPOINT, ack).count(1499) == {PLACE: PopCount(in_flight=2, acked=1)}
    assert states(ack, CHECKPOINT, CHECKPOINT, ack).count(1500) == {PLACE: PopCount(acked=1, awaiting_revive=2)}
    assert states(CHECKPOINT, ack, handled=True).count(1500) == {PLACE: PopCount(acked=1, revived=2)}
    assert states({**CHECKPOINT, "bm": 0b101}).count(0) == {PLACE: PopCount(in_flight=1, acked=2)}


def test_a_changed_invisible_time_is_counted_once_by_the_newer_checkpoint() -> None:
    changed = {**POP, "so": 12, "pt": 1200, "n": 1, "d": [0], "it": 9000}
    assert states(CHECKPOINT, {**POP, "ao": 12}, changed).count(2000) == {
        PLACE: PopCount(in_flight=1, awaiting_revive=2)
    }
    done = {**POP, "so": 12, "pt": 1200, "ao": 12}
    assert states(CHECKPOINT, {**POP, "ao": 12}, changed, done).count(2000) == {
        PLACE: PopCount(acked=1, awaiting_revive=2)
    }


def test_an_ack_of_another_pop_or_an_ack_alone_counts_nothing() -> None:
    assert states(CHECKPOINT, {**POP, "pt": 999, "ao": 10}).count(0) == {PLACE: PopCount(in_flight=3)}
    assert states({**POP, "ao": 10}).count(0) == {}


def test_of_one_message_the_newest_checkpoint_of_a_group_counts() -> None:
    changed = {**CHECKPOINT, "so": 12, "pt": 1200, "n": 1, "d": [0]}
    found = states(CHECKPOINT, {**POP, "ao": 12}, changed, {**CHECKPOINT, "c": "H", "bm": 0b100})
    popped = found.of_message("T", 1, 12)
    assert {group: (one.pops, one.acked) for group, one in popped.items()} == {"G": (2, False), "H": (1, False)}
    assert popped["G"].checkpoint.revive_time == 1700
    assert found.of_message("T", 1, 15)["H"].acked
    assert found.of_message("T", 1, 11) == {}
