"""What groups have passed, what they have not consumed, and how far they are, as brokers and clients saw it."""

import json
from collections import defaultdict
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from rmqinspect.find import ways
from rmqinspect.find.consumers import (
    Consumers,
    GroupSurvey,
    OffsetCopy,
    Passed,
    survey_groups,
    unconsumed,
    with_unconsumed,
)
from rmqinspect.find.plan import plan_look_up, planned_rows
from rmqinspect.rocksdb.unpack import unpacked
from rmqinspect.store.discover import open_store
from rmqinspect.store.model import Store
from rmqinspect.tables.filters import Selection
from rmqinspect.tables.log import message_rows
from rmqinspect.tables.queue_ranges import QueueRange, in_ranges
from rmqinspect.tables.request import Request
from tests.support import oracle
from tests.support.building import record
from tests.support.command import Run, runner
from tests.support.rocksdb import needs_rocksdict
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


STORES = ("main-5.3.3", "halt-4.7.1", "lmq-4.9.7", "retention-5.3.3", "dledger-5.3.3", "ext-5.3.3")
run_groups, run_export = runner("decode"), runner("export", after=["--engine", "local"])


def served_from_offsets(name: str) -> dict[str, list[int]]:
    """Return by group the physical offsets of what the broker serves from its offsets on, ascending."""
    truth = oracle.truth("broker", name)
    served: dict[tuple[str, int], dict[int, int]] = defaultdict(dict)
    for row in truth["served"]:
        if "physical_offset" in row and "status" not in row:
            served[row["topic"], row["queue_id"]][row["queue_offset"]] = row["physical_offset"]
    starts: dict[str, dict[tuple[str, int], int]] = defaultdict(dict)
    for row in truth["groups"]:
        starts[row["group"]][row["topic"], row["queue_id"]] = row["offset"]
    for group, offsets in starts.items():
        retry = (f"%RETRY%{group}", 0)  # without an offset a consumer reads it from its beginning
        if retry in served:
            offsets.setdefault(retry, 0)
    return {
        group: sorted({place for queue in offsets for at, place in served[queue].items() if at >= offsets[queue]})
        for group, offsets in starts.items()
    }


def found(store: Store, group: str, *, scan: bool = False) -> list[int]:
    selection, of_group = with_unconsumed(store, Selection(unconsumed=group))
    assert of_group is not None
    assert of_group.known
    assert not of_group.unread
    look_up = plan_look_up(store, selection)
    assert look_up is not None
    batches = message_rows(store, Request()) if scan else planned_rows(store, look_up.to_read, Request())
    places: list[int] = [
        place for batch in batches for place in selection.select_rows(batch).column("physical_offset").to_pylist()
    ]
    return places


@pytest.mark.parametrize("name", STORES)
def test_what_a_group_has_not_consumed_is_what_the_broker_serves_from_its_offsets_on(name: str) -> None:
    expected, store = served_from_offsets(name), broker(name)
    assert any(expected.values())
    for group, places in expected.items():
        assert found(store, group) == places, group


def test_of_very_many_messages_the_first_and_the_last_are_looked_up_and_all_between_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    expected, store = served_from_offsets("main-5.3.3"), broker("main-5.3.3")
    monkeypatch.setattr(ways, "_MOST_PROVEN", 4)
    monkeypatch.setattr(ways, "_AROUND", 1)
    assert any(len(places) > 20 for places in expected.values())
    for group, places in expected.items():
        assert found(store, group) == places, group


@needs_rocksdict
def test_offsets_and_queues_in_rocksdb_give_the_same() -> None:
    expected = served_from_offsets("rocksdb-5.3.3")
    with unpacked(broker("rocksdb-5.3.3")) as store:
        for group, places in expected.items():
            assert found(store, group) == places, group


def test_inner_batches_count_where_one_of_their_messages_is_not_consumed(tmp_path: Path) -> None:
    root = oracle.copy("broker", "main-5.5.0", tmp_path)
    batches = [row for row in oracle.truth("broker", "main-5.5.0")["served"] if row.get("cq_batch_num")]
    queue = batches[-1]["topic"], batches[-1]["queue_id"]
    of_queue = [row for row in batches if (row["topic"], row["queue_id"]) == queue]
    assert of_queue[-1]["cq_batch_num"] > 1
    offset = of_queue[-1]["queue_offset"] + 1  # its second message
    table = {"offsetTable": {f"{queue[0]}@G": {str(queue[1]): offset}}}
    (root / "config" / "consumerOffset.json").write_text(json.dumps(table))
    assert found(store_of(root), "G") == [of_queue[-1]["physical_offset"]]


def test_an_inner_batch_at_the_highest_offsets_counts(tmp_path: Path) -> None:
    last = (1 << 63) - 2
    properties = b"INNER_NUM\x01999999999\x02"
    write(tmp_path, "commitlog/00000000000000000000", record(0, topic="T", queue_offset=last, properties=properties))
    (batch,) = message_rows(store_of(tmp_path), Request())
    assert in_ranges([QueueRange("T", 0, last - 1, last + 1)], batch).to_pylist() == [True]


def small_store(root: Path) -> None:
    """Write eight messages, of which the first four are before the log; a prepared record with offset 0 as well."""
    log, units = b"", [(number * 100, 100, 0) for number in range(4)]
    for number in range(4, 8):
        raw = record(1000 + len(log), topic="T", queue_offset=number)
        units.append((1000 + len(log), len(raw), 0))
        log += raw
    log += record(1000 + len(log), topic="T", queue_offset=5, sys_flag=4)
    write(root, "commitlog/00000000000000001000", log)
    write(root, "consumequeue/T/0/00000000000000000000", units_of(*units))
    offsets = {"T@behind": {"0": 1}, "T@G": {"0": 6}, "T@done": {"0": 8}, "T@beyond": {"0": 99}}
    write(root, "config/consumerOffset.json", json.dumps({"offsetTable": offsets}).encode())


@pytest.mark.parametrize(("group", "count"), [("behind", 4), ("G", 2), ("done", 0), ("beyond", 0)])
def test_a_group_behind_the_minimum_starts_there_and_one_beyond_the_end_has_nothing(
    group: str, count: int, tmp_path: Path
) -> None:
    small_store(tmp_path)
    store = store_of(tmp_path)
    assert len(found(store, group)) == len(found(store, group, scan=True)) == count
    assert sum(one.behind - one.first for one in unconsumed(store, group).ranges) == count


def test_a_lost_unit_is_made_up_for_by_reading_what_lies_around_it(tmp_path: Path) -> None:
    small_store(tmp_path)
    queue = tmp_path / "consumequeue/T/0/00000000000000000000"
    raw = bytearray(queue.read_bytes())
    raw[120:128] = (1).to_bytes(8, "big")
    queue.write_bytes(raw)
    assert len(found(store_of(tmp_path), "G")) == 2


def test_the_filter_prints_and_exports_the_messages(run_groups: Run, run_export: Run, tmp_path: Path) -> None:
    root, out = tmp_path / "store", tmp_path / "out"
    small_store(root)
    status, printed, said = run_groups(root, "--unconsumed", "G", "-f", "csv", "--columns", "queue_offset")
    assert (status, printed.split()) == (0, ["queue_offset", "6", "7"])
    assert "by the offsets of the group, by the queue's units" in said
    status, _, said = run_groups(root, "--unconsumed", "behing")
    assert (status, "no consumer offset of a group behing; near: behind" in said) == (5, True)
    assert run_groups(root, "--unconsumed", "G", "--table", "queues")[0] == 2
    assert run_export(root, "-o", out, "--unconsumed", "behind", "--fail-on", "never")[0] == 0
    assert pq.read_table(out / "messages").column("queue_offset").to_pylist() == [4, 5, 6, 7]
    manifest = json.loads((out / "_manifest.json").read_text())
    assert manifest["export"]["filters"] == {"unconsumed": "behind"}
    status, _, said = run_export(root, "-o", out, "--unconsumed", "behind", "--incremental")
    assert (status, "--incremental and --unconsumed contradict each other" in said) == (2, True)
    assert run_export(root, "-o", tmp_path / "none", "--unconsumed", "nobody")[0] == 5


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
