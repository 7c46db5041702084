"""Which records with one UNIQ_KEY are copies of one message."""

from dataclasses import replace

import pytest

from rmqinspect.find.life import family, stored_twice, with_deliveries
from rmqinspect.find.life_records import Step
from tests.support.lives import step


def places(steps: list[Step]) -> list[int]:
    return [one.physical_offset for one in steps]


def origin(place: int) -> dict[str, str]:
    return {"ORIGIN_MESSAGE_ID": f"7F0000010000597F{place:016X}"}


def test_what_a_producer_sent_again_is_the_same_message_stored_twice() -> None:
    steps = [step(0), step(500), step(900, "%RETRY%g", origin(500))]
    copies, others = family(steps[0], steps)
    assert places(copies) == [0, 500, 900]
    assert others == []
    assert places(stored_twice(copies)) == [500]


def test_records_of_one_batch_are_different_messages_even_with_the_same_body() -> None:
    batch = [step(0, time=7), step(100, time=7), step(200, body=2, time=7)]
    retry = step(900, "%RETRY%g", origin(100))
    for start, copies in ((0, [0]), (1, [100, 900]), (2, [200])):
        found, others = family(batch[start], [*batch, retry])
        assert places(found) == copies
        assert sorted(places(found) + places(others)) == [0, 100, 200, 900]
    assert places(family(retry, [*batch, retry])[0]) == [100, 900]


def test_another_body_is_another_message_unless_only_one_was_sent() -> None:
    steps = [step(0), step(500, body=2), step(900, "%RETRY%g_orders", {"1ST_POP_TIME": "1"}, body=2)]
    assert places(family(steps[0], steps)[0]) == [0]
    assert places(family(steps[2], steps)[0]) == [500, 900]
    # A client that sends a dead letter itself may compress the body in another way.
    steps = [step(0), step(900, "%DLQ%g", body=2)]
    assert places(family(steps[0], steps)[0]) == [0, 900]


def test_a_record_that_cancels_belongs_to_the_message_it_names() -> None:
    timer = {"TIMER_OUT_MS": "5000", "REAL_TOPIC": "orders"}
    waiting = step(0, "rmq_sys_wheel_timer", timer)
    for named, belongs in (("U", True), ("orders+U", True), ("V", False)):
        cancel = step(300, "rmq_sys_wheel_timer", {**timer, "TIMER_DEL_UNIQKEY": named}, body=2)
        assert places(family(waiting, [waiting, cancel])[0]) == ([0, 300] if belongs else [0])


def test_a_delivered_record_needs_not_say_so() -> None:
    waits = step(0, "SCHEDULE_TOPIC_XXXX", {"DELAY": "3", "REAL_TOPIC": "orders", "REAL_QID": "0"})
    copies = with_deliveries([waits, step(500), step(900)])
    assert [one.copy.kind for one in copies] == ["scheduled", "delivered", "delivered"]
    assert copies[1].copy.level == copies[0].copy.level
    assert stored_twice(copies) == []


@pytest.mark.parametrize("change", [{"born_timestamp": 1}, {"topic": "other"}, {"queue_id": 5}])
def test_what_was_sent_at_another_time_or_elsewhere_is_no_delivery(change: dict[str, object]) -> None:
    waits = step(0, "SCHEDULE_TOPIC_XXXX", {"DELAY": "3", "REAL_TOPIC": "orders", "REAL_QID": "0"})
    sent = replace(step(500), **change)  # type: ignore[arg-type]
    assert [one.copy.kind for one in with_deliveries([waits, sent])] == ["scheduled", "sent"]
    assert [one.copy.kind for one in with_deliveries([step(500), waits])] == ["sent", "scheduled"]
