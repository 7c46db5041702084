"""Configuration in RocksDB: in the first form against real brokers, in the second built by its layout."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rmqinspect.config.json_files import read_config, read_consumer_offsets
from rmqinspect.rocksdb.unpack import Unpacking, unpacked
from rmqinspect.schemas import rocksdb as layouts
from rmqinspect.store.discover import open_store
from rmqinspect.tables.config import SUBSCRIPTION_GROUPS, TOPICS
from rmqinspect.tables.groups import GROUPS
from tests.support import oracle
from tests.support.rocksdb import database, needs_rocksdict
from tests.support.side_tables import ROCKSDB, broker, rows, store_of, write

pytestmark = needs_rocksdict

# A topic that the broker makes again at each start, and does not store.
NOT_STORED = {"rmq_sys_wheel_timer"}


@pytest.mark.parametrize("name", ROCKSDB)
def test_groups_topics_and_subscriptions_are_those_of_the_broker(name: str) -> None:
    truth = oracle.truth("broker", name)
    with unpacked(broker(name), Unpacking()) as store:
        groups, topics, subscriptions = (rows(table, store) for table in (GROUPS, TOPICS, SUBSCRIPTION_GROUPS))
    offsets = {(row["group"], row["topic"], row["queue_id"]): row for row in groups}
    assert offsets.keys() == {(row["group"], row["topic"], row["queue_id"]) for row in truth["groups"]}
    for row in truth["groups"]:
        ours = offsets[row["group"], row["topic"], row["queue_id"]]
        assert (ours["consumer_offset"], ours["max_offset"] or 0) == (row["offset"], max(row["broker_max"], 0))
        if ours["status"] != "no_queue":
            assert ours["lag"] == row["diff"]
    read = {row["topic"]: (row["read_queues"], row["write_queues"], row["perm"], row["order"]) for row in topics}
    settings = {row["topic"]: (row["read"], row["write"], row["perm"], row["order"]) for row in truth["topic_configs"]}
    assert read == {topic: value for topic, value in settings.items() if topic not in NOT_STORED}
    assert [row["group"] for row in subscriptions] == sorted(truth["subscription_groups"])
    assert {row["file"] for row in subscriptions} == {"config/subscriptionGroups (RocksDB)"}


# --- databases made by hand --------------------------------------------------------------------------

OFFSETS = {"T@g": {"0": 14, "1": 3}, "%LMQ%x@g": {"0": 1}, "T@h": {"0": 7}}
TOPIC = {"topicName": "T", "readQueueNums": 8, "writeQueueNums": 8, "perm": 6}


def version(counter: int, timestamp: int = 0) -> dict[str, int]:
    return {"stateVersion": 0, "timestamp": timestamp, "counter": counter}


def raw(value: Any) -> bytes:
    return json.dumps(value).encode()


def first_form(root: Path, folder: str, family: str, table: Mapping[str, Any], counter: int) -> None:
    """Make `config/topics` or another database of the first form."""
    versions = "kvDataVersion" if family == "default" else f"{family}Version"
    families = {family: [(name.encode(), raw(value)) for name, value in table.items()]}
    database(root / "config" / folder, {**families, versions: [(b"kvDataVersionKey", raw(version(counter)))]})


def second_form(root: Path, timestamp: int) -> None:
    """Make `config/rdb`."""

    def head(table: int, record: int = layouts.RECORD_DATA) -> dict[str, int]:
        return {"prefix": layouts.CONFIG_PREFIX, "table": table, "record": record}

    def named(table: int, name: bytes, value: Any) -> tuple[bytes, bytes]:
        key: bytes = layouts.ConfigKey.build({**head(table), "name_size": len(name), "name": name})
        return key, bytes([layouts.JSON_TEXT]) + raw(value)

    def offset(pair: str, queue_id: int, value: int) -> tuple[bytes, bytes]:
        topic, group = pair.encode().split(b"@")
        parts = {"group_size": len(group), "group": group, "topic_size": len(topic), "topic": topic}
        ends = {"group_separator": layouts.SEPARATOR, "topic_separator": layouts.SEPARATOR, "queue_id": queue_id}
        key: bytes = layouts.ConsumerOffsetKey.build({**head(layouts.CONSUMER_OFFSETS), **parts, **ends})
        return key, layouts.ConsumerOffsetValue.build({"queue_offset": value})

    items = [
        offset(pair, int(queue_id), value) for pair, queues in OFFSETS.items() for queue_id, value in queues.items()
    ]
    items += [named(layouts.TOPICS, b"T", TOPIC), named(layouts.SUBSCRIPTION_GROUPS, b"g", {"groupName": "g"})]
    stamp = layouts.ConfigDataVersion.build({"state_version": 0, "timestamp": timestamp, "counter": 1})
    for table in (layouts.CONSUMER_OFFSETS, layouts.TOPICS):
        items.append((layouts.ConfigKeyHead.build(head(table, layouts.RECORD_DATA_VERSION)) + b"data_version", stamp))
    database(root / "config" / "rdb", {"default": items})


def test_the_second_form_is_read(tmp_path: Path) -> None:
    second_form(tmp_path, 5)
    with unpacked(store_of(tmp_path), Unpacking()) as store:
        assert not store.oddities
        offsets, _ = read_consumer_offsets(store)
        assert {(one.topic, one.group, one.queue_id): one.offset for one in offsets} == {
            (*pair.split("@"), int(queue_id)): value
            for pair, queues in OFFSETS.items()
            for queue_id, value in queues.items()
        }
        assert [row["read_queues"] for row in rows(TOPICS, store)] == [8]
        assert [row["group"] for row in rows(SUBSCRIPTION_GROUPS, store)] == ["g"]


def test_all_in_one_database_is_read(tmp_path: Path) -> None:
    first_form(tmp_path, "metadata", "consumerOffset", {name: {"offsetTable": one} for name, one in OFFSETS.items()}, 4)
    with unpacked(store_of(tmp_path), Unpacking()) as store:
        document = read_config(store, "consumerOffset.json")
        assert document is not None
        assert document.table("offsetTable") == OFFSETS
        assert document.table("dataVersion")["counter"] == 4


@pytest.mark.parametrize(
    ("json_counter", "old_counter", "topics", "source"),
    [
        (None, None, {"M": 4}, "config/metadata (RocksDB)"),
        (7, None, {"M": 4}, "config/metadata (RocksDB)"),  # not greater
        (8, None, {"M": 1, "J": 1}, "config/topics.json"),
        (None, 8, {"M": 2, "S": 2}, "config/topics (RocksDB)"),
        (9, 8, {"M": 1, "S": 2, "J": 1}, "config/topics.json"),
    ],
)
def test_what_has_the_greater_version_is_merged_in(
    json_counter: int | None, old_counter: int | None, topics: dict[str, int], source: str, tmp_path: Path
) -> None:
    first_form(tmp_path, "metadata", "topic", {"M": {"readQueueNums": 4}}, 7)
    if json_counter is not None:
        table = {name: {"readQueueNums": 1} for name in ("M", "J")}
        write(tmp_path, "config/topics.json", raw({"topicConfigTable": table, "dataVersion": version(json_counter)}))
    if old_counter is not None:
        first_form(tmp_path, "topics", "default", {name: {"readQueueNums": 2} for name in ("M", "S")}, old_counter)
    with unpacked(store_of(tmp_path), Unpacking()) as store:
        document = read_config(store, "topics.json")
    assert document is not None
    assert {name: entry["readQueueNums"] for name, entry in document.table("topicConfigTable").items()} == topics
    assert document.source is not None
    assert document.source.name == source


@pytest.mark.parametrize(("timestamp", "queues"), [(50, 8), (3, 4)])
def test_the_form_that_was_changed_last_counts(timestamp: int, queues: int, tmp_path: Path) -> None:
    second_form(tmp_path, timestamp)
    entries = {"topicConfigTable": {"T": {"readQueueNums": 4}}, "dataVersion": version(99, 40)}
    write(tmp_path, "config/topics.json", raw(entries))
    with unpacked(store_of(tmp_path), Unpacking()) as store:
        assert [row["read_queues"] for row in rows(TOPICS, store)] == [queues]


def test_what_no_broker_writes_is_left_out_and_told(tmp_path: Path) -> None:
    first_form(tmp_path, "topics", "default", {"T": TOPIC, "Odd": [1]}, 1)
    with unpacked(open_store([str(store_of(tmp_path).paths[0])]), Unpacking()) as store:
        assert [row["topic"] for row in rows(TOPICS, store)] == ["T"]
        (oddity,) = store.oddities
    assert oddity.name == "config/topics"
    assert oddity.detail == "1 pair of key and value in its RocksDB that no broker writes"
