"""A store of another writer of these formats, the broker of rocketmq-rust 1.0.0, against what its client was told."""

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rmqinspect.broker.version_evidence import RUST
from rmqinspect.codec.java import ID_MARKS, index_hash, index_key
from rmqinspect.find.life import trace_life
from rmqinspect.forecast.versions import ForecastRequest, forecast
from rmqinspect.index.geometry import read_entries, read_index_files
from rmqinspect.store.discover import open_store
from rmqinspect.store.model import Store
from rmqinspect.store.reader import open_file
from rmqinspect.tables.delays import DELAYS
from rmqinspect.tables.groups import GROUPS
from rmqinspect.tables.log import MESSAGES_TABLE
from rmqinspect.tables.pointers import QUEUES
from rmqinspect.tables.transactions import TRANSACTIONS
from rmqinspect.verify.result import VerifyOptions, VerifyResult
from rmqinspect.verify.run import verify
from tests.support import oracle
from tests.support.side_tables import rows

NAME = "clean-1.0.0"
LEVELS = 3
DELAYED = 63


@pytest.fixture(scope="module")
def rust() -> Store:
    return open_store([str(oracle.store("rust", NAME))])


@pytest.fixture(scope="module")
def messages(rust: Store) -> list[dict[str, Any]]:
    return rows(MESSAGES_TABLE, rust)


def sent() -> list[dict[str, Any]]:
    return [message for message in oracle.truth("rust", NAME)["sent"] if "msg_id" in message]


def batch() -> list[str]:
    [ids] = [message["batch"] for message in oracle.truth("rust", NAME)["sent"] if "batch" in message]
    return [one for one in ids if one]


def is_delayed(message: dict[str, Any]) -> bool:
    return bool(message["i"] % 40 == LEVELS)


def test_every_message_lies_where_the_client_was_told(messages: list[dict[str, Any]]) -> None:
    places = {row["physical_offset"]: row for row in messages}
    for message in sent():
        row, number = places[int(message["offset_msg_id"][-16:], 16)], message["i"]
        assert row["msg_id"] == message["msg_id"]
        assert row["offset_msg_id"] == message["offset_msg_id"]
        assert row["queue_offset"] == message["queue_offset"]
        assert (row["tags"], row["keys"]) == (f"Tag{number % 3}", [f"order-{number}"])
        assert dict(row["properties"])["shop"] == f"s{number % 5}"
        if is_delayed(message):
            waits = "SCHEDULE_TOPIC_XXXX", number % LEVELS
            assert (row["topic"], row["queue_id"], row["real_queue_id"]) == (*waits, message["queue_id"])
        else:
            assert (row["topic"], row["queue_id"]) == ("orders", message["queue_id"])
    assert len(messages) == len(sent()) + len(batch()) + DELAYED
    assert {row["status"] for row in messages} == {"ok"}
    # The messages of a batch of this client share an id (`find.life`).
    ids = {row["msg_id"] for row in messages if not row["keys"][0].startswith("b-")}
    assert ids == {message["msg_id"] for message in sent()}
    assert [row["keys"] for row in messages if row["tags"] == "B"] == [
        [f"b-{number}"] for number in range(len(batch()))
    ]


def test_queues_count_what_was_sent_and_delivered(rust: Store) -> None:
    queues = {(row["topic"], row["queue_id"]): row for row in rows(QUEUES, rust)}
    assert {queue[0] for queue in queues} == {"orders", "SCHEDULE_TOPIC_XXXX"}
    counts = Counter[str]()
    for (topic, _), row in queues.items():
        counts[topic] += row["max_offset"]
    assert counts == {"orders": len(sent()) + len(batch()), "SCHEDULE_TOPIC_XXXX": DELAYED}
    assert {row["min_offset"] for row in queues.values()} == {0}


def test_no_group_has_consumed_and_no_transaction_was_begun(rust: Store) -> None:
    assert rows(GROUPS, rust) == []
    assert rows(TRANSACTIONS, rust) == []


def test_every_delayed_message_was_delivered(rust: Store, messages: list[dict[str, Any]]) -> None:
    """The broker ran on until all were due; its copies have the properties in another order, and no DELAY."""
    told = {message["msg_id"] for message in sent() if is_delayed(message)}
    delays = rows(DELAYS, rust)
    assert {row["msg_id"] for row in delays} == told
    assert len(delays) == DELAYED
    assert {(row["state"], row["deliveries"], row["reason"]) for row in delays} == {("delivered", 1, None)}
    places = {row["physical_offset"]: row for row in messages}
    for row in delays:
        copy = places[row["delivered_physical_offset"]]
        assert (copy["topic"], copy["queue_id"], copy["msg_id"]) == ("orders", row["real_queue_id"], row["msg_id"])
        assert copy["store_timestamp"] >= row["due_timestamp"]


def test_a_life_leads_from_the_delay_to_the_delivery_by_the_index(rust: Store) -> None:
    message = next(message for message in sent() if is_delayed(message))
    life = trace_life(rust, int(message["offset_msg_id"][-16:], 16))
    assert [step.copy.kind for step in life.steps] == ["scheduled", "delivered"]
    assert {entry.files != () for entry in life.entries} == {True}
    assert [entry.kind for entry in life.entries] == ["msg_id", "key"]


# --- verify, and who wrote it ---------------------------------------------------------------------


def test_nothing_is_wrong_with_it(rust: Store) -> None:
    result = verify(rust, VerifyOptions(level="deep"))
    assert [finding.code for finding in result.findings.rows] == []
    assert result.joined_entries == 3 * result.joined_units  # an id, a key and a tag of each record
    assert result.versions is not None
    assert result.versions.other is not None
    assert str(result.versions.other) == RUST


@pytest.mark.parametrize("release", [None, "5.3.3"])
def test_the_forecast_says_that_the_start_is_that_of_java_releases(rust: Store, release: str | None) -> None:
    found = forecast(rust, ForecastRequest(release))
    assert found.other_writer.startswith("rocketmq-rust wrote this store; the start is that of Java releases")
    assert all(found.other_writer in outcome.assumptions and not outcome.notes for outcome in found.outcomes)


def test_without_its_own_files_the_index_alone_names_the_writer(tmp_path: Path) -> None:
    root = oracle.copy("rust", NAME, tmp_path)
    for name in ("timer-v2", "timerlog", "timerwheel.v2", "config"):
        shutil.rmtree(root / name)
    result = verified(root)
    assert result.versions is not None
    assert result.versions.other is not None
    assert result.versions.other.clues == ("ids in the index as topic#U#id",)
    assert "IX-KEY" not in {finding.code for finding in result.findings.rows}


def test_an_entry_with_the_hash_of_no_key_stays_an_error(tmp_path: Path) -> None:
    root = oracle.copy("rust", NAME, tmp_path)
    forge(root, 301, index_hash("orders#another"))
    assert "IX-KEY" in {finding.code for finding in verified(root).findings.rows}


def test_where_a_java_broker_indexed_a_record_too_both_are_named(tmp_path: Path) -> None:
    root = oracle.copy("rust", NAME, tmp_path)
    (root / "abort.bak").touch()
    versions = verified(root).versions
    assert versions is not None
    assert str(versions.other) == "rocketmq-rust and a Java broker in turn"


def test_one_such_entry_in_a_store_of_java_stays_an_error(tmp_path: Path) -> None:
    root = oracle.copy("crash", "base-5.5.0-clean", tmp_path)
    store = open_store([str(root)])
    record = next(row for row in rows(MESSAGES_TABLE, store)[50:] if row["msg_id"])
    index = read_index_files(store)[0]
    assert index.geometry is not None
    with open_file(index.file) as reader:
        entries = read_entries(reader, index.geometry, 1, index.readable_entries)
    plain, marked = (index_hash(index_key(record["topic"], record["msg_id"], mark)) for mark in ID_MARKS)
    [number] = np.flatnonzero(
        (entries["key_hash"] == plain) & (entries["physical_offset"] == record["physical_offset"])
    )
    forge(root, 1 + int(number), marked)
    result = verified(root)
    assert "IX-KEY" in {finding.code for finding in result.findings.rows}
    assert result.versions is not None
    assert result.versions.other is None


def verified(root: Path) -> VerifyResult:
    return verify(open_store([str(root)]), VerifyOptions(level="deep"))


def forge(root: Path, number: int, key_hash: int) -> None:
    """Give an entry of the oldest index file another hash."""
    index = read_index_files(open_store([str(root)]))[0]
    assert index.geometry is not None
    with Path(index.file.path).open("r+b") as file:
        file.seek(index.geometry.entry_position(number))
        file.write(key_hash.to_bytes(4, "big"))
