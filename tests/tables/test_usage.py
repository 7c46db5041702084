"""The sums of `usage`, against the rows of `messages` and `segments`, which are compared with real brokers."""

import pickle
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rmqinspect.tables.read_log
from rmqinspect.broker.copies import RECORD_KINDS, record_kind
from rmqinspect.commitlog.gaps import Split
from rmqinspect.store.model import Segment, Store
from rmqinspect.tables import tally
from rmqinspect.tables.log import MESSAGES_TABLE, SEGMENTS_TABLE
from rmqinspect.tables.read_log import folds_of, splits_in
from rmqinspect.tables.redact import parse_redaction
from rmqinspect.tables.request import Request
from rmqinspect.tables.usage import (
    DIMENSIONS,
    USAGE,
    WINDOW,
    Sample,
    UsageFold,
    UsageSums,
    inflow_of,
    plan_sample,
    read_usage,
    usage_batches,
)
from tests.support.building import lay, record, write_segment
from tests.support.side_tables import broker, crash, rows, store_of

# Plain, DLedger, inner batches (main-5.3.3), IPv6 hosts or damage: gaps, lost pages, a hole between segments.
CASES = ("main-5.3.3", "main-4.7.1", "dledger-5.3.3", "lmq-4.9.7", "rocksdb-5.4.0")
DAMAGED = ("zero_page_last-4.7.1-h", "seg_missing_mid-4.9.7-c", "magic_third-5.5.0-h", "sysflag_v6_last-4.3.2-h")
SEGMENT = Segment("", "", 40 * WINDOW, "segment", 0)
Sums = dict[tuple[str, Any, Any], tuple[int, int, int]]


def case(name: str) -> Store:
    return broker(name) if name in CASES else crash(name)


def messages_in(row: dict[str, Any]) -> int:
    """Return the messages of a row of `messages`."""
    return int(dict(row["properties"])["INNER_NUM"]) if row["sys_flag"] & 0x80 else 1


def values_of(row: dict[str, Any], store: Store) -> Iterator[tuple[str, Any, Any]]:
    """Yield what a row of `messages` counts for: dimension, value, queue id."""
    transaction = ("none", "prepared", "commit", "rollback").index(row["transaction"])
    segment = store.segment_at(row["physical_offset"])
    assert segment is not None
    yield "content", "records", None
    yield "kind", record_kind(row["topic"], transaction), None
    yield "topic", row["topic"], None
    yield "queue", row["topic"], row["queue_id"]
    yield "tag", row["tags"], None
    yield "host", row["born_host"], None
    yield "hour", f"{row['store_timestamp']:%Y-%m-%dT%H}:00:00.000Z", None
    yield "size", str(max(256, 1 << (row["size"] - 1).bit_length())), None
    yield "segment", segment.name, None


def expected(store: Store) -> Sums:
    """Return the sums of records, messages and bytes, from other tables."""
    sums: dict[tuple[str, Any, Any], list[int]] = defaultdict(lambda: [0, 0, 0])
    for row in rows(MESSAGES_TABLE, store):
        for value in values_of(row, store):
            for at, number in enumerate((1, messages_in(row), row["size"])):
                sums[value][at] += number
    for segment in rows(SEGMENTS_TABLE, store):
        for name in ("filler", "zero", "unknown"):
            sums["content", "zeros" if name == "zero" else name, None][2] += segment[f"{name}_bytes"]
    return {value: (records, messages, size) for value, (records, messages, size) in sums.items()}


def sums_of(found: list[dict[str, Any]]) -> Sums:
    return {
        (row["dimension"], row["value"], row["queue_id"]): (row["records"], row["messages"], row["bytes"])
        for row in found
    }


@pytest.mark.parametrize("name", [*CASES, *DAMAGED])
def test_the_sums_are_those_of_the_messages(name: str) -> None:
    store = case(name)
    found = rows(USAGE, store)
    assert sums_of(found) == expected(store)
    sizes = Counter[str]()
    for row in found:
        sizes[row["dimension"]] += row["bytes"]
        assert row["covers"] == ("none" if row["dimension"] == "tag" and row["value"] is None else "value")
        assert row["bytes_error"] is None
    assert tuple(sizes) == DIMENSIONS
    assert sizes.pop("content") == sum(segment.size for segment in store.segments)
    assert len(set(sizes.values())) == 1  # each dimension has all records


@pytest.mark.parametrize("name", ["dledger-5.3.3", "magic_third-5.5.0-h"])
def test_threads_and_splits_change_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = case(name)
    whole = rows(USAGE, store)
    monkeypatch.setattr(rmqinspect.tables.read_log, "SPLIT_SIZE", 30_011)
    assert rows(USAGE, store, Request(jobs=3)) == rows(USAGE, store) == whole


def test_records_that_are_not_chosen_count_as_content_only() -> None:
    store = broker("main-5.3.3")
    usage = read_usage(store, Request(), lambda run: run.records.field("queue_id") == 1)
    found = [row for batch in usage_batches(usage) for row in batch.to_pylist()]
    content = {row["value"]: row["bytes"] for row in found if row["dimension"] == "content"}
    records = [row for row in rows(MESSAGES_TABLE, store) if row["queue_id"] == 1]
    assert content["records"] == sum(row["size"] for row in records)
    assert sum(content.values()) == sum(segment.size for segment in store.segments)
    assert {row["queue_id"] for row in found if row["dimension"] == "queue"} == {1}


def test_kinds_are_told_by_topic_then_by_transaction() -> None:
    assert [record_kind("orders", transaction) for transaction in range(4)] == ["normal", "half", "commit", "rollback"]
    topics = {
        "RMQ_SYS_TRANS_HALF_TOPIC": "half",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC": "op",
        "SCHEDULE_TOPIC_XXXX": "delayed",
        "rmq_sys_wheel_timer": "timer",
        "%RETRY%group": "retry",
        "%DLQ%group": "dlq",
        "rmq_sys_REVIVE_LOG_DefaultCluster": "pop",
        "TBW102": "system",
    }
    for topic, kind in topics.items():
        assert record_kind(topic, 2) == kind
    assert {*topics.values(), "normal", "commit", "rollback"} == set(RECORD_KINDS)


def log_of(tmp_path: Path, count: int) -> Store:
    """Return a store of records with many tags, one in ten alike, in time order."""
    records = [
        record(
            topic=b"orders",
            store_timestamp=1_700_000_000_000 + 1000 * number,
            properties={"TAGS": f"tag-{number}" if number % 10 else "frequent"},
        )
        for number in range(count)
    ]
    write_segment(tmp_path / "store" / "commitlog", lay(records))
    return store_of(tmp_path / "store")


def test_too_many_values_are_others_and_the_sums_stay_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = log_of(tmp_path, 400)
    exact = [row for row in rows(USAGE, store) if row["dimension"] == "tag"]
    monkeypatch.setattr(tally, "MOST", 40)
    monkeypatch.setattr("rmqinspect.tables.usage.MOST", 40)
    monkeypatch.setattr(rmqinspect.tables.read_log, "SPLIT_SIZE", 10_007)
    found = [row for row in rows(USAGE, store, Request(jobs=2)) if row["dimension"] == "tag"]
    assert found == [row for row in rows(USAGE, store) if row["dimension"] == "tag"]
    assert (
        found[0]["value"] == "frequent" and found[0]["records"] == exact[0]["records"] and found[0]["bytes_error"] > 0
    )
    assert found[-1]["covers"] == "others" and len(found) <= 41
    for name in ("records", "messages", "bytes"):
        assert sum(row[name] for row in found) == sum(row[name] for row in exact)


def test_very_many_minutes_are_counted_by_the_hour(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = log_of(tmp_path, 400)
    exact = [row for row in rows(USAGE, store) if row["dimension"] == "hour"]
    monkeypatch.setattr("rmqinspect.tables.usage.MOST", 4)
    monkeypatch.setattr(rmqinspect.tables.read_log, "SPLIT_SIZE", 10_007)
    assert [row for row in rows(USAGE, store) if row["dimension"] == "hour"] == exact
    assert read_usage(store, Request()).unit == 3_600_000


def test_a_sample_says_how_far_it_may_be_off() -> None:
    rng = np.random.default_rng(7)
    windows = rng.integers(0, 1000, (200, 40))  # of 200 logs, the bytes of one value in 40 windows
    hits = 0
    for log in windows:
        seen = log[::4]
        sample = Sample((Split(SEGMENT, 0, WINDOW),) * 10, 10 * WINDOW, 40 * WINDOW)
        (error,) = sample.errors(np.array([seen.sum()]), np.array([float((seen**2).sum())]))
        hits += abs(seen.sum() * sample.scale - log.sum()) <= error
    assert 170 <= hits <= 200  # 95 % of them, with few windows somewhat less


def test_windows_are_evenly_spread() -> None:
    assert plan_sample([SEGMENT], 30 * WINDOW) is None  # most of it
    sizes = [3 * WINDOW, 20 * WINDOW, WINDOW // 2, 30 * WINDOW]
    bases = [sum(sizes[:number]) for number in range(len(sizes))]
    segments = [Segment("", "", size, "segment", base) for size, base in zip(sizes, bases, strict=True)]
    sample = plan_sample(segments, 8 * WINDOW)
    assert sample is not None and len(sample.splits) == 8
    starts = [split.segment.base + split.start for split in sample.splits]
    assert all(4 * WINDOW <= later - before <= 9 * WINDOW for before, later in pairwise(starts))
    assert sample.size == sum(split.end - split.start for split in sample.splits) and sample.whole == sum(sizes)


def test_tags_and_hosts_are_redacted_by_their_words() -> None:
    shown = {row["dimension"]: row["value"] for row in rows(USAGE, broker("main-5.3.3"))}
    batches = list(USAGE.rows(broker("main-5.3.3"), Request()))
    hidden = [row for batch in batches for row in parse_redaction("tags,hosts").mask(batch).to_pylist()]
    assert {row["dimension"] for row in hidden if row["value"] is None} == {"tag", "host"}
    assert shown["tag"] and shown["host"] not in str(hidden)


@pytest.mark.parametrize(("most", "step", "columns"), [(7, 60_000, 7), (6, 120_000, 4), (1, 600_000, 1)])
def test_the_inflow_fits_into_a_line(tmp_path: Path, most: int, step: int, columns: int) -> None:
    usage = read_usage(log_of(tmp_path, 400), Request())  # 400 seconds
    inflow = inflow_of(usage, most)
    assert inflow is not None and (inflow.step, len(inflow.sizes)) == (step, columns)
    assert inflow.begin <= 1_700_000_000_000 < inflow.begin + step and inflow.end > 1_700_000_399_000
    assert sum(inflow.sizes) == sum(row["bytes"] for row in rows(USAGE, usage.store) if row["dimension"] == "kind")


def test_the_sums_of_another_process_can_be_joined() -> None:
    """Hashes differ from process to process."""
    store = broker("main-5.3.3")
    sums = UsageSums(store)
    for made, account in folds_of(splits_in(store.segments, Request()), Request(), UsageFold):
        fold = pickle.loads(pickle.dumps(made))
        fold.queues.keys._seed ^= 1  # as if made elsewhere
        sums.join(account.segment, fold)
    found = [row for batch in usage_batches(sums.usage({})) for row in batch.to_pylist() if row["dimension"] == "queue"]
    assert found == [row for row in rows(USAGE, store) if row["dimension"] == "queue"]
