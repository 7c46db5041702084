"""Every block of docs/recipes.md runs, and agrees with the brokers or with a second, slow reader of the files."""

import ast
import hashlib
import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pytest

from rmqinspect.cli import main
from tests.support import oracle, slow_pointers, traced
from tests.support.samples import ROOT
from tests.support.sparks import quiet

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = quiet

PAGE = (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")

# Exported stores: whole brokers, light queues, a broker whose oldest segments were deleted, and two damaged stores.
BROKERS = {"main": "main-5.3.3", "four": "main-4.9.7", "light": "lmq-5.3.3", "short": "retention-4.9.7"}
TRACED = "files-4.9.7"
DAMAGED = {"hole": "seg_missing_mid-4.9.7-c", "unqueued": "cq_queue_lost-5.5.0-h"}

Rows = list[dict[str, Any]]
Ask = Callable[[str], Rows]  # the heading of a recipe → what its block gives


# --- the page -------------------------------------------------------------------------------------

FENCE = re.compile(r"^```(\w+)(?: (\w+))?\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def sections() -> dict[str, list[tuple[str, str, str]]]:
    """Return the blocks of each section: language, engine or "", code."""
    parts = re.split(r"^## (.+)$", PAGE, flags=re.MULTILINE)
    return dict(zip(parts[1::2], map(FENCE.findall, parts[2::2]), strict=True))


def blocks(heading: str, engine: Literal["duckdb", "spark", "pandas"]) -> list[tuple[str, str]]:
    """Return (language, code) of the blocks that one engine runs."""
    return [
        (language, code)
        for language, of, code in sections()[heading]
        if of == engine or (not of and language == "sql" and engine != "pandas")
    ]


SETUP, *RECIPES = sections()


@pytest.mark.parametrize("heading", RECIPES)
def test_a_recipe_has_one_query_for_each_engine_of_sql(heading: str) -> None:
    assert [len(blocks(heading, "duckdb")), len(blocks(heading, "spark"))] == [1, 1]


# --- the engines ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Export the stores, and change to the folder where the blocks of the page find them."""
    folder = tmp_path_factory.mktemp("recipes")
    stores = [f"{name}={oracle.store('broker', case)}" for name, case in BROKERS.items()]
    stores += [f"{name}={oracle.store('crash', case)}" for name, case in DAMAGED.items()]
    before = Path.cwd()
    os.chdir(folder)
    options = ["--all", "--engine", "local", "-j", "1", "--fail-on", "never", "-q"]
    assert main(["export", *stores, "-o", "lake", *options]) == 0
    # Other recipes know the records of all stores: of the one with traces only these are added.
    with_traces = f"traced={traced.store(TRACED)}"
    assert main(["export", with_traces, "-o", "traced", "--table", "traces", *options[1:]]) == 0
    for file in (folder / "traced" / "traces").glob("*.parquet"):
        file.rename(folder / "lake" / "traces" / file.name)
    yield folder
    os.chdir(before)


@pytest.fixture(scope="module")
def duck(lake: Path) -> Ask:
    import duckdb

    connection = duckdb.connect()

    def run(code: str) -> Rows:
        relation = connection.sql(code)  # None for a statement without rows
        rows: Rows = [] if relation is None else relation.to_arrow_table().to_pylist()
        return rows

    return _asker("duckdb", run)


@pytest.fixture(scope="module")
def spark_sql(lake: Path, spark: "SparkSession") -> Ask:
    own = spark.newSession()  # views and settings of the page are no other test's
    # The JVM is in the folder of the project, not in that of the lake.
    code = blocks(SETUP, "spark")[0][1]
    assert 'f"lake/' in code
    exec(code.replace('f"lake/', f'f"{lake}/lake/'), {"spark": own})

    def run(code: str) -> Rows:
        for statement in filter(str.strip, code.split(";")):
            frame = own.sql(statement)
        rows: Rows = frame.toArrow().to_pylist()
        return rows

    return _asker("spark", run, skip=1)


def _asker(engine: Literal["duckdb", "spark"], run: Callable[[str], Rows], skip: int = 0) -> Ask:
    for _, code in blocks(SETUP, engine)[skip:]:
        run(code)

    @cache
    def ask(heading: str) -> Rows:
        return run(blocks(heading, engine)[0][1])

    return ask


@pytest.fixture(scope="module")
def frames(lake: Path) -> Ask:
    names: dict[str, Any] = {}
    for _, code in blocks(SETUP, "pandas"):
        exec(code, names)

    def ask(heading: str) -> Rows:
        ((_, code),) = blocks(heading, "pandas")
        exec(code, names)
        last = ast.parse(code).body[-1]
        assert isinstance(last, ast.Assign) and isinstance(last.targets[0], ast.Name)
        frame = names[last.targets[0].id]
        frame = frame.to_frame() if frame.ndim == 1 else frame
        rows: Rows = pa.Table.from_pandas(frame, preserve_index=False).to_pylist()
        return rows

    return ask


@pytest.fixture(params=["duck", "spark_sql"])
def ask(request: pytest.FixtureRequest) -> Ask:
    asker: Ask = request.getfixturevalue(request.param)
    return asker


@pytest.fixture(params=["duck", "spark_sql", "frames"])
def ask_all(request: pytest.FixtureRequest) -> Ask:
    asker: Ask = request.getfixturevalue(request.param)
    return asker


# --- rows -----------------------------------------------------------------------------------------


def tuples(rows: Rows, *columns: str) -> list[tuple[Any, ...]]:
    """Return the values of some columns, sorted; sums are int, times in milliseconds."""
    return sorted((tuple(_value(row[column]) for column in columns) for row in rows), key=repr)


def _value(value: Any) -> Any:
    if isinstance(value, datetime):
        return round(value.timestamp() * 1000)
    return int(value) if isinstance(value, Decimal) else value


def of(name: str, rows: Rows) -> Rows:
    """Return the rows of one store."""
    return [row for row in rows if row["store"] == name]


def own_records(truth: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the broker's description of every record of its log, once, with the record's own topic and queue."""
    seen = set()
    for row in (*truth["served"], *truth["unserved_records"]):
        if row.get("physical_offset") in seen or "physical_offset" not in row:
            continue
        seen.add(row["physical_offset"])
        yield row | {
            "topic": row.get("record_topic", row.get("topic")),
            "queue_id": row.get("record_queue_id", row.get("queue_id")),
            "queue_offset": row.get("record_queue_offset", row.get("queue_offset")),
        }


# Topics in which messages bound for another topic wait or end.
ON_THE_WAY = ("SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer", "RMQ_SYS_TRANS_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC")


def arrived(truth: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the records of messages in the topic they were sent to."""
    for row in own_records(truth):
        if row["topic"] not in ON_THE_WAY and not row["topic"].startswith(("%RETRY%", "%DLQ%")):
            yield row


def keys_of(row: Mapping[str, Any]) -> set[str]:
    return set((row.get("keys") or "").split())


def truths() -> Iterable[tuple[str, dict[str, Any]]]:
    return [(name, oracle.truth("broker", case)) for name, case in BROKERS.items()]


# --- the recipes ----------------------------------------------------------------------------------


def test_lag_is_what_the_broker_says(ask_all: Ask) -> None:
    rows = ask_all("Lag of consumer groups")
    for name, truth in truths():
        ends = {(queue["topic"], queue["queue_id"]): queue["max"] for queue in truth["queues"]}
        times = {
            (row["topic"], row["queue_id"], row["queue_offset"]): row["store_timestamp"]
            for row in truth["served"]
            if "store_timestamp" in row
        }
        lag: dict[tuple[str, str], list[Any]] = {}
        for group in truth["groups"]:
            place = group["topic"], group["queue_id"]
            if group.get("broker_max") is None:
                continue
            # A message the broker no longer serves is lost, even if the queue still counts it.
            first = min((offset for *queue, offset in times if (*queue,) == place), default=ends[place])
            following = max(group["offset"], first)
            found = lag.setdefault((group["group"], group["topic"]), [0, 0, None])
            found[0] += max(ends[place] - following, 0)
            found[1] += following - group["offset"]
            oldest = times.get((*place, following))
            found[2] = min(filter(None, (found[2], oldest)), default=None)
        assert tuples(of(name, rows), "group", "topic", "waiting", "lost", "oldest") == sorted(
            ((*key, *value) for key, value in lag.items()), key=repr
        )
    assert any(row["waiting"] for row in rows) and any(row["lost"] for row in rows)


def test_what_a_group_has_not_consumed_is_what_the_broker_would_serve_it(ask: Ask) -> None:
    rows = ask("What a group has not consumed")
    for name, truth in truths():
        offsets = {
            (group["topic"], group["queue_id"]): group["offset"]
            for group in truth["groups"]
            if group["group"] == "g_half_1"
        }
        expected = [
            (row["topic"], row["queue_id"], row["queue_offset"], row["msg_id"], row["body_sha256"])
            for row in truth["served"]
            if "msg_id" in row and row["queue_offset"] >= offsets.get((row["topic"], row["queue_id"]), 1 << 62)
        ]
        found = of(name, rows)
        for row in found:
            row["sha256"] = hashlib.sha256(row["body"]).hexdigest()
        assert tuples(found, "topic", "queue_id", "queue_offset", "msg_id", "sha256") == sorted(expected, key=repr)
    assert of("light", rows) and of("main", rows)


def test_messages_in_no_queue_are_those_that_the_broker_serves_from_none(ask_all: Ask) -> None:
    rows = ask_all("Messages in no queue")
    columns = "topic", "queue_id", "records", "first", "last"
    for name, truth in truths():
        assert tuples(of(name, rows), *columns) == _spans(
            (row["record_topic"], row["record_queue_id"], row["store_timestamp"]) for row in truth["unserved_records"]
        )
    for name, case in DAMAGED.items():
        root = oracle.store("crash", case)
        units = {
            (*queue, unit.physical_offset)
            for queue, units in slow_pointers.read_queues(root).items()
            for unit in units
            if slow_pointers.is_message(unit)
        }
        assert tuples(of(name, rows), *columns) == _spans(
            (record.topic, record.queue_id, record.store_timestamp)
            for record in _slow_records(root)
            if record.transaction in (slow_pointers.NONE, slow_pointers.COMMIT)
            and (record.topic, record.queue_id, record.physical_offset) not in units
        )
    assert of("unqueued", rows) and of("main", rows)


def _slow_records(root: Path) -> list[slow_pointers.Record]:
    settings = slow_pointers.Settings((5, 5, 0), 65536, 400, 100, 250, ())
    return list(slow_pointers.read_log(root, settings).records.values())


def _spans(found: Iterable[tuple[str, int, int]]) -> list[tuple[Any, ...]]:
    """Return topic, queue, count, first and last time."""
    times = defaultdict(list)
    for topic, queue_id, time in found:
        times[topic, queue_id].append(time)
    return sorted(((*queue, len(of), min(of), max(of)) for queue, of in times.items()), key=repr)


def test_duplicates_are_keys_that_several_messages_of_a_topic_have(ask_all: Ask) -> None:
    rows = ask_all("Duplicates by key")
    found = defaultdict(list)
    for _, truth in truths():
        for row in arrived(truth):
            for key in keys_of(row):
                found[row["topic"], key].append((row["msg_id"], row["store_timestamp"]))
    expected = [
        (*place, len(of), len({id for id, _ in of if id}), min(time for _, time in of), max(time for _, time in of))
        for place, of in found.items()
        if len(of) > 1
    ]
    column = "keys" if "keys" in rows[0] else "key"
    theirs = {topic for topic, _ in found}
    rows = [row for row in rows if row["topic"] in theirs]  # the damaged stores have other topics
    assert tuples(rows, "topic", column, "messages", "ids", "first", "last") == sorted(expected, key=repr)


def test_throughput_counts_every_record_of_the_broker(ask_all: Ask) -> None:
    rows = ask_all("Throughput per minute")
    for name, truth in truths():
        sums: Counter[tuple[int, str]] = Counter()
        sizes: Counter[tuple[int, str]] = Counter()
        for row in truth["log"]:
            if not row.get("blank"):
                place = row["store_timestamp"] // 60_000 * 60_000, row["topic"]
                sums[place] += 1
                sizes[place] += row["size"]
        expected = [(*place, number, sizes[place]) for place, number in sums.items()]
        assert tuples(of(name, rows), "minute", "topic", "records", "bytes") == sorted(expected, key=repr)
    assert len({row["minute"] for row in rows}) > 2


def test_a_message_is_found_by_its_key_with_the_groups_that_passed_it(ask: Ask) -> None:
    rows = ask("Did this order message ever arrive?")
    for name, truth in truths():
        expected = []
        for row in own_records(truth):
            if "K95" in keys_of(row):
                place = row["topic"], row["queue_id"]
                groups = [group for group in truth["groups"] if (group["topic"], group["queue_id"]) == place]
                expected += [
                    (*place, row["queue_offset"], row["msg_id"], group["group"], group["offset"] > row["queue_offset"])
                    for group in groups
                ] or [(*place, row["queue_offset"], row["msg_id"], None, None)]
        columns = "topic", "queue_id", "queue_offset", "msg_id", "group", "passed"
        assert tuples(of(name, rows), *columns) == sorted(expected, key=repr)
    assert {row["passed"] for row in of("main", rows)} == {True}


def test_traces_say_what_listeners_answered(ask: Ask) -> None:
    rows = ask("Was it consumed? The trace says")
    consumed = [row for row in traced.truth(TRACED)["consumed"] if row["group"] != "g_untraced"]
    expected = [(row["msg_id"], row["group"], row["reconsume_times"], row["outcome"] == "success") for row in consumed]
    columns = "msg_id", "group", "reconsume_times", "success"
    assert tuples(rows, *columns) == sorted(expected, key=repr)
    times = {(row["msg_id"], row["group"], row["outcome"]): row["at"] for row in consumed}
    for row in rows:
        ended = round(row["client_timestamp"].timestamp() * 1000)
        assert any(abs(ended - at) < 3000 for key, at in times.items() if key[:2] == (row["msg_id"], row["group"]))


def test_producers_are_those_the_broker_stored_messages_of(ask: Ask) -> None:
    rows = ask("Which producers send what")
    found = defaultdict(list)
    for _, truth in truths():
        for row in arrived(truth):
            host = str(ip_address(row["born_host"].rpartition(":")[0].strip("[]")))
            found[host, row["topic"]].append((row["store_size"], row["born_timestamp"]))
    theirs = {topic for _, topic in found}
    expected = [
        (*place, len(of), sum(size for size, _ in of), min(time for _, time in of), max(time for _, time in of))
        for place, of in found.items()
    ]
    rows = [row for row in rows if row["topic"] in theirs]  # the damaged stores have other topics
    columns = "born_host", "topic", "messages", "bytes", "first", "last"
    assert tuples(rows, *columns) == sorted(expected, key=repr)


def test_lost_ranges_list_their_queue_units(ask: Ask) -> None:
    rows = ask("Lost ranges, and what stood there")
    assert {row["store"] for row in rows} == {"hole"}
    units = slow_pointers.read_queues(oracle.store("crash", DAMAGED["hole"]))
    expected = []
    for queue, of in units.items():
        used = filter(slow_pointers.is_message, of)
        lost = [unit.number for unit in used if 131072 <= unit.physical_offset < 196608]
        if lost:
            expected.append((131072, 196608, "missing", *queue, len(lost), min(lost), max(lost)))
    columns = "start", "end", "kind", "topic", "queue_id", "messages", "first", "last"
    assert tuples(rows, *columns) == sorted(expected, key=repr)
    assert sum(row["messages"] for row in rows) == 89


def test_a_time_without_a_zone_is_read_in_the_zone_of_the_session(ask: Ask) -> None:
    (row,) = ask("Times and zones")
    stored = sorted(_times_since(datetime(2026, 11, 21, 8, 49, tzinfo=UTC)))
    assert row["records"] == len(stored)
    assert _value(row["first"]) == stored[0]


def test_pandas_converts_times_to_a_zone(frames: Ask) -> None:
    rows = frames("Times and zones")
    assert sorted(_value(row["store_timestamp"]) for row in rows) == sorted(
        _times_since(datetime(2026, 11, 21, 8, 49, tzinfo=UTC))
    )
    assert {str(row["store_timestamp"].tzinfo) for row in rows} == {"Asia/Shanghai"}


def _times_since(since: datetime) -> Iterator[int]:
    first = int(since.timestamp() * 1000)
    for _, truth in truths():
        yield from (row["store_timestamp"] for row in truth["log"] if row.get("store_timestamp", 0) >= first)
    for case in DAMAGED.values():
        times = (record.store_timestamp for record in _slow_records(oracle.store("crash", case)))
        yield from (time for time in times if time >= first)
