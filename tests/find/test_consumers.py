"""Which consumer groups have passed a message, against the offsets that brokers report."""

from collections import defaultdict
from pathlib import Path

import pytest

from rmqinspect.find.consumers import Consumers, Passed
from tests.support import oracle
from tests.support.side_tables import broker, store_of, units_of, write


@pytest.mark.parametrize("name", ["main-5.3.3", "halt-4.7.1", "retention-5.3.3", "lmq-4.9.7"])
def test_the_groups_that_have_passed_a_message_are_those_whose_offset_the_broker_reports_behind_it(name: str) -> None:
    truth, consumers = oracle.truth("broker", name), Consumers(broker(name))
    offsets: dict[tuple[str, int], dict[str, int]] = defaultdict(dict)
    for row in truth["groups"]:
        offsets[row["topic"], row["queue_id"]][row["group"]] = row["offset"]
    minima = {(row["topic"], row["queue_id"]): row["min"] for row in truth["queues"]}
    for queue, groups in offsets.items():
        lowest = minima.get(queue, 0)
        for queue_offset in {0, lowest, *groups.values()}:
            found = consumers.of(*queue, queue_offset)
            assert {one.group: one.consumer_offset for one in found} == groups
            assert [one.passed for one in found] == [queue_offset < one.consumer_offset for one in found]
            assert [one.lost for one in found] == [one.consumer_offset <= queue_offset < lowest for one in found]


def test_a_message_below_the_minimum_is_lost_to_a_group_that_has_not_passed_it(tmp_path: Path) -> None:
    write(tmp_path, "config/consumerOffset.json", b'{"offsetTable":{"T@G":{0:2},"T@H":{0:7},"U@G":{0:1}}}')
    write(tmp_path, "consumequeue/T/0/00000000000000000000", units_of(*((i * 100, 100, 0) for i in range(8))))
    write(tmp_path, "commitlog/00000000000000000500", bytes(300))
    consumers = Consumers(store_of(tmp_path))
    assert consumers.of("T", 0, 3) == [Passed("G", 2, False, True), Passed("H", 7, True, False)]
    assert consumers.of("T", 0, 1) == [Passed("G", 2, True, False), Passed("H", 7, True, False)]
    assert consumers.of("T", 0, 7) == [Passed("G", 2, False, False), Passed("H", 7, False, False)]
    assert consumers.of("U", 0, 5) == [Passed("G", 1, False, False)]
    assert consumers.of("T", 1, 5) == []
