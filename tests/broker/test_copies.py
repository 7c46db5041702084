"""What a record is in the life of its message, by its topic, flags and properties."""

from collections.abc import Mapping

import pytest

from rmqinspect.broker.copies import Copy, Stored, copy_of, links_of

COMMIT = 0x8
ORIGIN = {"ORIGIN_MESSAGE_ID": "7F0000010000597F0000000000052E56"}
RETRIED = {"DELAY": "1", "REAL_TOPIC": "%RETRY%g", "REAL_QID": "0", "RETRY_TOPIC": "orders", **ORIGIN}
HALF = {"TRAN_MSG": "true", "REAL_TOPIC": "orders", "REAL_QID": "3"}
TIMER = {"REAL_TOPIC": "orders", "REAL_QID": "1", "TIMER_OUT_MS": "1795250945000"}


def stored(topic: str, properties: Mapping[str, str], queue_id: int = 0, sys_flag: int = 0, half: int = 0) -> Stored:
    return Stored(topic, queue_id, sys_flag, half, properties)


@pytest.mark.parametrize(
    ("record", "copy"),
    [
        (stored("orders", {}), Copy("sent")),
        (stored("orders", {"INNER_NUM": "7"}), Copy("sent", messages=7)),
        (
            stored("SCHEDULE_TOPIC_XXXX", {"DELAY": "3", "REAL_TOPIC": "orders", "REAL_QID": "2"}, 2),
            Copy("scheduled", bound_for=("orders", 2), level=3),
        ),
        (
            stored("SCHEDULE_TOPIC_XXXX", RETRIED, 0),
            Copy("scheduled", group="g", bound_for=("%RETRY%g", 0), level=1),
        ),
        (stored("orders", {"DELAY": "3", "REAL_TOPIC": "orders"}), Copy("delivered", level=3)),
        (stored("orders", {"DELAY": "0", "REAL_TOPIC": "orders"}), Copy("sent")),
        (stored("%RETRY%g", RETRIED), Copy("retry", group="g")),
        (stored("%DLQ%g", {**RETRIED, "DELAY": "0"}), Copy("dlq", group="g")),
        (stored("RMQ_SYS_TRANS_HALF_TOPIC", HALF), Copy("half", bound_for=("orders", 3))),
        (
            stored("RMQ_SYS_TRANS_HALF_TOPIC", {**HALF, "TRANSACTION_CHECK_TIMES": "4"}),
            Copy("half", bound_for=("orders", 3), checks=4),
        ),
        (stored("RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", HALF), Copy("half", bound_for=("orders", 3))),
        (stored("TRANS_CHECK_MAX_TIME_TOPIC", HALF), Copy("given_up", bound_for=("orders", 3))),
        (stored("RMQ_SYS_TRANS_OP_HALF_TOPIC", {"TAGS": "d"}), Copy("op")),
        (stored("orders", HALF, sys_flag=COMMIT, half=9), Copy("commit")),
        (stored("orders", {}, sys_flag=0x4), Copy("half")),
        (stored("orders", {}, sys_flag=0xC), Copy("rollback")),
        (stored("rmq_sys_wheel_timer", TIMER), Copy("timer", bound_for=("orders", 1), due=1795250945000)),
        (
            stored("rmq_sys_wheel_timer", {**TIMER, "TIMER_ROLL_TIMES": "2"}),
            Copy("timer", bound_for=("orders", 1), due=1795250945000, rolls=2),
        ),
        (
            stored("rmq_sys_wheel_timer", {**TIMER, "TIMER_ROLL_LABEL": "R"}),
            Copy("timer", bound_for=("orders", 1), due=1795250945000, rolls=1),
        ),
        (
            stored("rmq_sys_wheel_timer", {**TIMER, "TIMER_DEL_UNIQKEY": "K"}),
            Copy("timer_cancel", bound_for=("orders", 1), due=1795250945000),
        ),
        # The RocksDB timer takes REAL_TOPIC away.
        (stored("orders", {"TIMER_OUT_MS": "1795250945000"}), Copy("delivered", due=1795250945000)),
        (stored("orders", {"TIMER_OUT_MS": "soon"}), Copy("delivered")),
        (stored("rmq_sys_wheel_timer", {"REAL_TOPIC": "rmq_sys_REVIVE_LOG_c", "TAGS": "ck"}), Copy("checkpoint")),
        (stored("rmq_sys_REVIVE_LOG_c", {"TAGS": "bAck"}), Copy("ack")),
        (stored("%RETRY%g+orders", {"1ST_POP_TIME": "1"}), Copy("pop_retry", group="g")),
        (stored("%RETRY%g_1_a_b", {"1ST_POP_TIME": "1"}), Copy("pop_retry", group="g_1")),
        (stored("%RETRY%g_1_a_b", {"1ST_POP_TIME": "1", "ORIGIN_GROUP": "g"}), Copy("pop_retry", group="g")),
        (stored("%RETRY%g_1_a_b", RETRIED), Copy("retry", group="g_1_a_b")),
    ],
)
def test_a_record_is_known_by_its_topic_first(record: Stored, copy: Copy) -> None:
    assert copy_of(record, topics=("b", "a_b", "orders")) == copy


def test_links_name_other_records_and_where_copies_may_be() -> None:
    retry = links_of(stored("%RETRY%g", {**RETRIED, "UNIQ_KEY": "U"}))
    assert (retry.unique_key, retry.origins, retry.half) == ("U", (0x52E56,), None)
    assert retry.topics == {"%RETRY%g", "orders"}
    # The physical offset of the half message, which may be 0; a delivered commit has none any more.
    assert links_of(stored("orders", HALF, sys_flag=COMMIT, half=0)).half == 0
    assert links_of(stored("orders", {"DELAY": "1", **HALF}, sys_flag=COMMIT)).half is None
    # A client that could not send a message back stores the producer's id.
    assert links_of(stored("%RETRY%g", {"ORIGIN_MESSAGE_ID": "7F0000016C955FFD2B2768E331AA0303"})).origins == ()
    # Each known topic that a pop retry topic may end with.
    popped = links_of(stored("%RETRY%g_1_a_b", {"1ST_POP_TIME": "1"}), topics=("b", "a_b", "c"))
    assert popped.topics == {"%RETRY%g_1_a_b", "b", "a_b"}
