"""Whose topic is it: retry, pop retry and dead-letter topics by their names."""

import pytest

from rmqinspect.broker.groups import is_own_topic, is_retry_of, kind_of, owner_of
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
