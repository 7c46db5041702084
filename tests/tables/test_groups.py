"""The table `groups`, against what brokers say of their consumer groups."""

from collections import defaultdict
from pathlib import Path

import pytest

from rmqinspect.config.json_files import read_consumer_offsets
from rmqinspect.store.discover import open_store
from rmqinspect.tables.groups import GROUPS
from rmqinspect.tables.request import Request
from tests.support import oracle
from tests.support.building import record
from tests.support.side_tables import FILE_QUEUES, broker, milliseconds, rows, store_of, units_of, write


@pytest.mark.parametrize("name", FILE_QUEUES)
def test_consumer_offsets_and_lags_are_the_brokers(name: str) -> None:
    found = {(row["group"], row["topic"], row["queue_id"]): row for row in rows(GROUPS, broker(name))}
    truth = {(row["group"], row["topic"], row["queue_id"]): row for row in oracle.truth("broker", name)["groups"]}
    assert found.keys() == truth.keys()
    minima = {(row["topic"], row["queue_id"]): row["min"] for row in oracle.truth("broker", name)["queues"]}
    stored: dict[tuple[str, int], dict[int, int | None]] = defaultdict(dict)
    first_kept: dict[tuple[str, int], int] = {}
    for row in oracle.truth("broker", name)["served"]:
        queue = row["topic"], row["queue_id"]
        stored[queue][row["queue_offset"]] = row.get("store_timestamp")
        place = row.get("cq_physical_offset", row.get("physical_offset"))
        if place is not None and place >= oracle.truth("broker", name)["store"]["min_phy"]:
            first_kept.setdefault(queue, row["queue_offset"])
    for key, row in truth.items():
        ours, queue = found[key], key[1:]
        assert ours["consumer_offset"] == row["offset"]
        if ours["status"] == "no_queue":
            assert queue not in minima
            assert row["broker_max"] is None
            assert (ours["max_offset"], ours["lag"]) == (None, None)
            continue
        assert (ours["max_offset"], ours["lag"]) == (row["broker_max"], row["diff"])
        assert ours["min_offset"] == minima[queue]
        kept = first_kept.get(queue, row["broker_max"])
        assert ours["status"] == ("ok" if row["offset"] >= kept else "behind_min")
        following = max(row["offset"], kept)
        if name != "compaction-5.3.3" and following in stored[queue]:
            assert milliseconds(ours["oldest_unconsumed"]) == stored[queue][following]
        if row["diff"] == 0:
            assert ours["oldest_unconsumed"] is None
        assert ours["lost"] == max(0, kept - row["offset"])
        for column, offset in (("last_consumed", row["offset"] - 1), ("newest", row["broker_max"] - 1)):
            if name != "compaction-5.3.3" and offset in stored[queue]:
                assert milliseconds(ours[column]) == (stored[queue][offset] or 0)  # none: the broker refuses it


def test_every_status_of_a_group_and_its_oldest_unconsumed_record(tmp_path: Path) -> None:
    table = b"""{"offsetTable":{"T@ok":{0:6},"T@done":{0:8},"T@behind":{0:2},"T@beyond":{0:9},"T@none":{1:0},
        "T@G@broadcast-1":{0:7},"T":{0:1},"T@odd":{x:1},"T@odder":[1],"T@wide":{0:99999999999999999999}}}"""
    write(tmp_path, "config/consumerOffset.json", table.replace(b"{x:", b'{"x":'))
    units = units_of(*((number * 100, 100, 0) for number in range(8)))
    write(tmp_path, "consumequeue/T/0/00000000000000000000", units.ljust(400, b"\0"))
    write(tmp_path, "commitlog/00000000000000000500", bytes(300))
    store = open_store([str(tmp_path)])
    names = ("group", "queue_id", "consumer_offset", "min_offset", "max_offset", "lag", "status", "lost", "kind")
    assert [tuple(row[column] for column in names) for row in rows(GROUPS, store)] == [
        ("G@broadcast-1", 0, 7, 5, 8, 1, "ok", 0, "broadcast"),
        ("behind", 0, 2, 5, 8, 6, "behind_min", 3, "normal"),
        ("beyond", 0, 9, 5, 8, -1, "beyond_max", 0, "normal"),
        ("done", 0, 8, 5, 8, 0, "ok", 0, "normal"),
        ("none", 1, 0, None, None, None, "no_queue", None, "normal"),
        ("ok", 0, 6, 5, 8, 2, "ok", 0, "normal"),
    ]
    _, problems = read_consumer_offsets(store)
    assert len(problems) == 4


def test_a_queue_whose_files_are_lost_is_no_queue_that_was_never_written_to(tmp_path: Path) -> None:
    write(tmp_path, "config/topics.json", b'{"topicConfigTable":{"T":{"readQueueNums":2,"writeQueueNums":2}}}')
    write(tmp_path, "config/consumerOffset.json", b'{"offsetTable":{"T@G":{1:5},"T@new":{1:0},"gone@G":{0:5}}}')
    write(tmp_path, "consumequeue/T/0/00000000000000000000", units_of((0, 100, 0)))
    statuses = [(row["group"], row["topic"], row["status"]) for row in rows(GROUPS, store_of(tmp_path))]
    assert statuses == [("G", "T", "beyond_max"), ("G", "gone", "no_queue"), ("new", "T", "no_queue")]


def test_the_inflow_is_that_of_the_last_thousand_messages_of_a_queue(tmp_path: Path) -> None:
    start = 1_795_250_000_000
    # Two hundred messages an hour apart, then one each 250 ms: the last thousand are among those.
    times = [start + 3_600_000 * number for number in range(200)]
    times += [times[-1] + 250 * number for number in range(1, 1801)]
    log, units = b"", []
    for number, time in enumerate(times):
        raw = record(len(log), queue_offset=number, store_timestamp=time)
        units.append((len(log), len(raw), 0))
        log += raw
    write(tmp_path, "commitlog/00000000000000000000", log)
    write(tmp_path, "consumequeue/TopicTest/0/00000000000000000000", units_of(*units))
    write(tmp_path, "config/consumerOffset.json", b'{"offsetTable":{"TopicTest@G":{0:200},"TopicTest@H":{0:2000}}}')
    found = rows(GROUPS, store_of(tmp_path))
    assert [row["inflow"] for row in found] == [14400, 14400]
    moments = [(row["last_consumed"], row["oldest_unconsumed"], row["newest"]) for row in found]
    assert [tuple(map(milliseconds, three)) for three in moments] == [
        (times[199], times[200], times[-1]),
        (times[-1], 0, times[-1]),
    ]


def test_only_the_times_that_are_asked_for_are_read(tmp_path: Path) -> None:
    found = rows(GROUPS, broker("main-5.3.3"), Request(columns=frozenset({"lag", "newest"})))
    assert any(row["newest"] for row in found)
    assert not any(row["oldest_unconsumed"] or row["last_consumed"] or row["inflow"] for row in found)
