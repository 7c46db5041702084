"""What `groups` says of a store: sums of what a broker says, and the topics that nobody consumes."""

from collections import defaultdict
from pathlib import Path

import pytest

from rmqinspect.find.consumers import GroupSurvey, OffsetCopy, survey_groups
from rmqinspect.store.discover import open_store
from rmqinspect.tables.table import Request
from tests.support import oracle
from tests.support.side_tables import broker, store_of, units_of, write


def survey(name: str) -> GroupSurvey:
    return survey_groups(broker(name), Request(), lambda position: True)


@pytest.mark.parametrize("name", ["main-5.5.0", "halt-4.9.7", "retention-5.3.3", "lmq-5.3.3"])
def test_each_line_is_the_sum_of_what_the_broker_says_of_a_group_and_a_topic(name: str) -> None:
    truth, found = oracle.truth("broker", name), survey(name)
    minima = {(row["topic"], row["queue_id"]): row["min"] for row in truth["queues"]}
    expected: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0, 0])
    for row in truth["groups"]:
        sums = expected[row["group"], row["topic"]]
        sums[0] += max(0, row["diff"] or 0)
        sums[1] += max(0, minima.get((row["topic"], row["queue_id"]), 0) - row["offset"])
        sums[2] += 1
    assert {(one.group, one.topic): [one.lag, one.lost, len(one.positions)] for one in found.lines} == expected
    weights = [one.weight for one in found.lines if one.kind != "system"]
    assert weights == sorted(weights, reverse=True)
    assert found.lag == sum(one.lag for one in found.lines)


@pytest.mark.parametrize("name", ["main-5.5.0", "halt-4.9.7", "retention-5.3.3", "lmq-5.3.3"])
def test_dead_letters_and_topics_that_nobody_consumes_hold_what_the_broker_serves(name: str) -> None:
    truth, found = oracle.truth("broker", name), survey(name)
    held: dict[str, int] = defaultdict(int)
    for row in truth["queues"]:
        held[row["topic"]] += max(0, row["max"] - row["min"])
    # 4.9.7 says 0 for the minimum of a queue of which everything is expired.
    dead = {one.topic: (one.group, one.messages) for one in found.dead_letters}
    assert dead == {f"%DLQ%{one}": (one, held[f"%DLQ%{one}"]) for one in [truth["names"]["groups"]["dlq"]]}
    consumed = {row["topic"] for row in truth["groups"]}
    assert found.unconsumed
    for one in found.unconsumed:
        assert one.topic not in consumed
        assert one.messages == held[one.topic]
    own = ("%", "rmq_sys_", "RMQ_SYS_", "SCHEDULE_TOPIC", "TRANS_CHECK")
    others = {topic for topic in held if not topic.startswith(own) and held[topic] and topic not in consumed}
    assert {one.topic for one in found.unconsumed} == others


def test_another_copy_of_the_offsets_tells_how_many_messages_come_again(tmp_path: Path) -> None:
    write(tmp_path, "config/consumerOffset.json", b'{"offsetTable":{"T@G":{0:7,1:5},"T@H":{0:2}}}')
    write(tmp_path, "config/consumerOffset.json.bak", b'{"offsetTable":{"T@G":{0:4,1:5},"T@H":{0:3}}}')
    write(tmp_path, "consumequeue/T/0/00000000000000000000", units_of(*((i * 100, 100, 0) for i in range(8))))
    (file,) = survey_groups(store_of(tmp_path), Request(), lambda position: True).files
    assert (file.file, file.is_copy) == ("config/consumerOffset.json", False)
    assert file.copies == (OffsetCopy("config/consumerOffset.json.bak", 3, 1),)
    write(tmp_path, "config/consumerOffset.json", b"\0" * 40)
    found = survey_groups(open_store([str(tmp_path)]), Request(), lambda position: True)
    assert [(one.file, one.is_copy, one.copies) for one in found.files] == [
        ("config/consumerOffset.json.bak", True, ()),
    ]
    assert len(found.problems) == 2


def test_retry_topics_without_an_offset_belong_to_their_group(tmp_path: Path) -> None:
    write(tmp_path, "config/consumerOffset.json", b'{"offsetTable":{"T@G":{0:1}}}')
    for topic in ("T", "U", "%RETRY%G", "%RETRY%G_T", "%RETRY%gone", "%DLQ%only", "%LMQ%a", "rmq_sys_wheel_timer"):
        write(tmp_path, f"consumequeue/{topic}/0/00000000000000000000", units_of((0, 100, 0), (100, 100, 0)))
    write(tmp_path, "consumequeue/empty/0/00000000000000000000", bytes(40))
    found = survey_groups(store_of(tmp_path), Request(), lambda position: True)
    assert {one.topic: one.group for one in found.retries} == {
        "%RETRY%G": "G",
        "%RETRY%G_T": "G",
        "%RETRY%gone": "gone",
    }
    assert [(one.topic, one.group, one.messages) for one in found.dead_letters] == [("%DLQ%only", "only", 2)]
    assert [one.topic for one in found.unconsumed] == ["U"]
    assert found.light_queues == 1
