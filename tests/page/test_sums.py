"""What a page counts while `verify` reads is what the commands say that read the log for themselves."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from rmqinspect.codec.arrays import merge
from rmqinspect.loops import record_rows as columns
from rmqinspect.page.documents import Document, documents_of
from rmqinspect.page.sums import PageFold, flow_of, lost_ranges, times_at
from rmqinspect.rocksdb.unpack import Unpacking, unpacked
from rmqinspect.store.discover import open_store
from rmqinspect.tables import TABLES
from rmqinspect.tables.request import Request
from rmqinspect.tables.tally import Tally
from rmqinspect.verify.result import VerifyOptions, VerifyResult
from rmqinspect.verify.run import nothing_judged, verify_after
from tests.support import oracle
from tests.support.command import Run, runner
from tests.support.samples import sample
from tests.support.sampling import rare, sampled

run = runner()

STORES = ("main-5.4.0", "main-4.7.1", "dledger-5.3.3", "retention-4.9.7")
ALL = [name for name in oracle.cases("broker") if name not in STORES]
DAMAGED = ("magic_third-4.9.7-c", "seg_missing_mid-4.9.7-c", "torn_last-5.2.0-h")


def place_of(name: str) -> Path:
    return oracle.store("crash" if name in oracle.cases("crash") else "broker", name)


def documents(path: Path, jobs: int = 1) -> tuple[Document, VerifyResult]:
    with unpacked(open_store([str(path)]), Unpacking()) as store:
        options = VerifyOptions(jobs=jobs, fold=PageFold, instead=True)
        result = verify_after(nothing_judged(store, options), lambda size: None)
        run = {"store": "STORE"}
        report = {"run": run, "findings": [], "counts": {}}
        return documents_of("STORE", result, report, Request(jobs=jobs), lambda outcome: None), result


@pytest.mark.parametrize("name", [*sampled((*STORES, *DAMAGED), 4), *(rare(name) for name in ALL)])
def test_the_sums_are_those_of_the_commands(run: Run, name: str) -> None:
    path = place_of(name)
    told, _ = documents(path)

    rows = json.loads(run("usage", path, "-f", "json", "--by", "topic,kind,content")[1])["rows"]
    expected = {(row["dimension"], row["value"]): (row["records"], row["messages"], row["bytes"]) for row in rows}
    found = {
        (dimension, row["value"]): (row["records"], row["messages"], row["bytes"])
        for dimension in ("topic", "kind", "content")
        for row in told["usage"].get(dimension, ())
        if row["covers"] == "value"
    }
    assert found == expected

    states = Counter(row["state"] for row in json.loads(run("transactions", path, "-f", "json")[1])["rows"])
    assert {state: number for state, number in told["transactions"]["states"].items() if number} == states
    delays = json.loads(run("delays", path, "-f", "json")[1])["rows"]
    states = Counter(row["state"] for row in delays if not row["system"])
    assert {state: number for state, number in told["delays"]["states"].items() if number} == states

    groups = json.loads(run("groups", path, "-f", "json")[1])["rows"]
    lags: Counter[tuple[str, str]] = Counter()
    for row in groups:
        lags[row["group"], row["topic"]] += max(0, row["lag"] or 0)
    assert {(line["group"], line["topic"]): line["lag"] for line in told["groups"]["lines"]} == lags


@pytest.mark.parametrize("name", sampled((*STORES, *DAMAGED), 4))
def test_the_time_line_has_each_message_once(name: str) -> None:
    _, result = documents(place_of(name))
    assert isinstance(result.fold, PageFold)
    flow = flow_of(result.fold.flow, 120, 1000)
    assert flow is not None
    expected: dict[str, Counter[int]] = {}
    for batch in TABLES["messages"].rows(result.store, Request(with_damaged=True)):
        for row in batch.select(["topic", "store_timestamp", "status", "physical_offset"]).to_pylist():
            column = (int(row["store_timestamp"].timestamp() * 1000) - flow.begin) // flow.step
            expected.setdefault(row["topic"], Counter())[column] += 1
    records = sum(sum(counts.values()) for counts in expected.values())
    shown = sum(sum(one.messages) for one in flow.topics) + flow.outside
    # An inner batch holds several messages; these stores have none, but for the offsets that it takes.
    assert shown >= records
    for one in flow.topics:
        assert one.topic is not None
        assert {at for at, number in enumerate(one.messages) if number} == set(expected[one.topic])


def test_one_thread_and_two_say_the_same() -> None:
    assert documents(sample("flipped-bit-5.3.3"))[0] == documents(sample("flipped-bit-5.3.3"), jobs=2)[0]


def test_the_lost_ranges_are_those_that_a_table_tells() -> None:
    for name in DAMAGED:
        _, result = documents(place_of(name))
        told: set[tuple[int, int]] = set()
        request = Request(on_gap=lambda _, start, end, told=told: told.add((start, end)))  # type: ignore[misc]
        list(TABLES["usage"].rows(result.store, request))
        assert lost_ranges(result.store, result.accounts) == merge(told)


# --- odd clocks, many topics ------------------------------------------------------------------------------


def flow_with(*records: tuple[str, int, int]) -> PageFold:
    """Return a fold that has met records: topic, seconds since 1970, how many."""
    fold = PageFold()
    tally = Tally()
    for topic, second, number in records:
        name = np.frombuffer(topic.encode(), np.uint8)
        rows = np.zeros((number, 32), np.int64)
        rows[:, 0] = 10
        zeros = np.zeros(number, np.int64)
        rows[:, columns.TOTAL_SIZE], rows[:, columns.STORE_TIMESTAMP] = 100, second * 1000
        tally.take(name, zeros, zeros + len(name), zeros + second, rows, np.zeros(0, np.int64))
    fold.flow.tally = tally
    return fold


def test_a_record_with_an_odd_clock_does_not_make_the_rest_one_column() -> None:
    day = 1_700_000_000
    fold = flow_with(("a", day, 500), ("a", day + 3600, 499), ("a", 7, 1), ("b", 4_000_000_000, 1))
    flow = flow_of(fold.flow, 120, 6)
    assert flow is not None
    assert flow.outside == 2
    assert flow.step == 60_000
    assert [one.topic for one in flow.topics] == ["a"]
    assert (flow.topics[0].messages[0], flow.topics[0].messages[-1], sum(flow.topics[0].messages)) == (500, 499, 999)


def test_the_rest_of_the_topics_are_one() -> None:
    fold = flow_with(*((f"t{number}", 1_700_000_000 + number, 10 - number) for number in range(9)))
    flow = flow_of(fold.flow, 120, 4)
    assert flow is not None
    assert [(one.topic, sum(one.messages)) for one in flow.topics] == [("t0", 10), ("t1", 9), ("t2", 8), (None, 27)]


def test_clocks_that_are_millions_of_years_apart_have_a_time_line() -> None:
    most = (1 << 63) // 1_000 - 1
    flow = flow_of(flow_with(("a", -most, 5), ("a", most, 5)).flow, 120, 4)
    assert flow is not None
    assert len(flow.topics[0].messages) <= 120
    assert sum(flow.topics[0].messages) == 10


def test_without_records_there_is_no_time_line() -> None:
    assert flow_of(PageFold().flow, 120, 6) is None
    assert times_at(PageFold().delays, [0, 5]) == [None, None]
