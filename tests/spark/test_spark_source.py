"""The data source: the rows that a load gives are the local tables', whatever the stores and the splits."""

import datetime
import json
import pickle
import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from rmqinspect.errors import BadOption, Unreadable
from rmqinspect.export.request import FINDINGS, ExportRequest
from rmqinspect.forecast.lost_records import lost_at_start
from rmqinspect.rocksdb.unpack import has_rocksdict, unpacked
from rmqinspect.spark.options import OPTIONS, SCHEMAS, read_options
from rmqinspect.spark.planning import RangeTask, StoresTask
from rmqinspect.spark.source import Reader, RocketMQDataSource, register
from rmqinspect.store.discover import open_store
from rmqinspect.store.model import Store
from rmqinspect.store.names import split_name
from rmqinspect.tables import TABLES
from rmqinspect.tables.lost_records import AskedStart
from rmqinspect.tables.request import Request
from rmqinspect.tables.table import STORE
from rmqinspect.verify.result import VerifyOptions, finding_batches
from rmqinspect.verify.run import verify_and_forecast
from tests.support import oracle, traced
from tests.support.building import fill, lay, pad, various, write_segment
from tests.support.exporting import export
from tests.support.s3_server import serving
from tests.support.samples import ROOT, sample
from tests.support.sampling import sampled
from tests.support.sparks import quiet

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = quiet


# Whole and damaged, of several versions and layouts: DLedger, RocksDB, ext and light queues, a lost segment.
STORES: tuple[tuple[oracle.Family, str], ...] = (
    ("broker", "main-4.9.7"),
    ("broker", "dledger-5.3.3"),
    ("broker", "ext-5.3.3"),
    ("broker", "lmq-4.9.7"),
    ("broker", "rocksdb-5.4.0"),
    ("crash", "flip_body_third-4.7.1-c"),
    ("crash", "seg_missing_last-4.7.1-h"),
    ("crash", "queueid_third-4.3.2-h"),
)


def paths(stores: tuple[tuple[oracle.Family, str], ...] = STORES) -> list[str]:
    return [f"{name}={oracle.store(family, name)}" for family, name in stores]


def load(spark: "SparkSession", places: Any, **options: Any) -> "DataFrame":
    reader = spark.read.format("rocketmq")
    for name, value in options.items():
        reader = reader.option(name, value)
    return reader.load(places)


def rows(frame: "DataFrame", table: str = "messages") -> pa.Table:
    """Return the rows of a frame with the types of the local table: those it has, or the cast fails."""
    schema = SCHEMAS[table].insert(0, STORE)
    return frame.toArrow().cast(pa.schema([schema.field(name) for name in frame.columns]))


def local_rows(table: str, stores: dict[str, Store]) -> pa.Table:
    found = [pa.Table.from_batches([], SCHEMAS[table].insert(0, STORE))]
    for name, listed in stores.items():
        with unpacked(listed) as store:
            if table == FINDINGS:
                batches = list(finding_batches(verify_and_forecast(store, VerifyOptions())))
            else:
                batches = list(TABLES[table].rows(store, Request()))
        own = pa.Table.from_batches(batches, SCHEMAS[table])
        found.append(own.add_column(0, STORE, pa.repeat(pa.scalar(name), own.num_rows)))
    return pa.concat_tables(found)


# --- the rows -------------------------------------------------------------------------------------


@pytest.mark.parametrize("table", sampled(SCHEMAS, 4))
def test_several_stores_in_one_load_give_the_local_tables(spark: "SparkSession", table: str, all_cases: bool) -> None:
    # DLedger, RocksDB, damage: the command reads every table of each kind of store elsewhere.
    chosen = STORES if all_cases or table in ("messages", "findings") else STORES[1::3]
    if table == "rocksdb_entries":
        if not has_rocksdict():
            pytest.skip("rocksdict is not installed")
        chosen = (STORES[0], ("broker", "rocksopt-5.5.0"))
    given = {name: str(oracle.store(family, name)) for family, name in chosen}
    if table == "traces":  # none of those has any
        given = {name: str(traced.store(name)) for name in traced.NAMES}
    expected = local_rows(table, {name: open_store([path]) for name, path in given.items()})
    places = [f"{name}={path}" for name, path in given.items()]
    found = rows(load(spark, places, table=table, split_size="1GiB"), table)
    assert found.equals(expected)
    assert expected.num_rows > 0


@pytest.mark.parametrize("given", [{}, {"rocksdb": "false"}])
def test_a_table_in_rocksdb_that_is_not_read_fails_and_is_not_empty(
    given: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this process, where the extra can be hidden."""
    from rmqinspect.spark.source import RocketMQDataSource

    monkeypatch.setitem(sys.modules, "rocksdict", None)

    def read(table: str) -> list[pa.RecordBatch]:
        path = str(oracle.store("broker", "rocksdb-5.4.0"))
        source = RocketMQDataSource({"path": path, "table": table, **given})
        reader = source.reader(source.schema())
        return [batch for partition in reader.partitions() for batch in reader.read(partition)]

    for table in ("queue_units", "queues", "topics", "subscription_groups", "groups", "delays"):
        with pytest.warns(UserWarning, match="not read: a RocksDB"), pytest.raises(Unreadable, match="RocksDB"):
            read(table)
    assert pa.Table.from_batches(read("messages")).num_rows > 0
    codes = pa.Table.from_batches(read(FINDINGS)).column("code").to_pylist()
    assert set(codes) == {"ST-UNCHECKED"}


def test_borders_of_splits_do_not_matter(spark: "SparkSession", tmp_path: Path) -> None:
    """Damage on both sides of the borders, among them a gap over one."""
    stores = {tmp_path.name: write_damaged(tmp_path)}
    for table in ("messages", "gaps"):
        frame = load(spark, str(tmp_path), table=table, split_size="4000")
        assert rows(frame, table).equals(local_rows(table, stores)), table
        assert frame.rdd.getNumPartitions() == (10 if table == "messages" else 2)


def write_damaged(folder: Path) -> Store:
    """Write two segments with one missing between them; in the first a page of zeros and some junk."""
    log = bytearray(fill(lay(various(40)), 1 << 14))
    log[3000:5000] = bytes(2000)
    log[9000:9004] = b"junk"
    write_segment(folder / "commitlog", bytes(log))
    write_segment(folder / "commitlog", pad(lay(various(9), 1 << 15), 1 << 14), 1 << 15)
    return open_store([str(folder)])


def test_types_are_those_people_expect(spark: "SparkSession") -> None:
    place = str(oracle.store("broker", "main-4.9.7"))
    frame = load(spark, place)
    types = dict(frame.dtypes)
    assert types["store_timestamp"] == "timestamp"
    assert types["properties"] == "map<string,string>"
    assert types["keys"] == "array<string>"
    assert types["body"] == "binary"
    assert frame.schema["physical_offset"].metadata["comment"].startswith("where the record starts")
    (first,) = frame.orderBy("physical_offset").limit(1).collect()
    (batch, *_) = TABLES["messages"].rows(open_store([place]), Request())
    expected = batch.slice(0, 1).to_pylist()[0]
    assert bytes(first.body) == expected["body"]
    assert first.properties == dict(expected["properties"])
    assert first.store_timestamp.astimezone(datetime.UTC) == expected["store_timestamp"]


def test_a_parquet_file_shows_spark_the_comments_and_what_is_never_null(spark: "SparkSession", tmp_path: Path) -> None:
    store = open_store([str(oracle.store("broker", "main-4.9.7"))])
    export(tmp_path / "lake", [store], ExportRequest(tables=tuple(SCHEMAS)))
    for table in SCHEMAS:
        read, loaded = spark.read.parquet(str(tmp_path / "lake" / table)), load(spark, store.paths[0], table=table)
        assert [(field.name, field.dataType, field.metadata) for field in read.schema] == [
            (field.name, field.dataType, field.metadata) for field in loaded.schema
        ]
        assert "comment" in read.schema["store"].metadata
        assert not loaded.schema["store"].nullable  # Spark takes every column of a file for nullable


def test_bodies_as_text(spark: "SparkSession") -> None:
    place = str(oracle.store("broker", "main-5.5.0"))
    texts = load(spark, place, body="text", columns="physical_offset,body").orderBy("physical_offset").collect()
    plain = load(spark, place, columns="physical_offset,body").orderBy("physical_offset").collect()
    assert [row.body for row in texts] == [_as_text(row.body) for row in plain]
    assert 0 < sum(row.body is None for row in texts) < len(texts)


def test_bodies_that_are_json_are_queried_where_they_are(spark: "SparkSession", tmp_path: Path) -> None:
    bodies = [b'{"orderId": "b"}', b'{"orderId": "a", "n": [1]}', b"no json", b"\xff", b""]
    write_segment(
        tmp_path / "store" / "commitlog", pad(lay([{"topic": "orders", "body": body} for body in bodies]), 4096)
    )
    export(tmp_path / "lake", [open_store([str(tmp_path / "store")])], ExportRequest(text_bodies=True))
    page = (ROOT / "docs" / "export.md").read_text()
    blocks = re.findall(r"```sql\n--.*?\n(.*?)```", page, re.DOTALL)
    in_duckdb, in_spark = (code.replace("lake/messages", f"{tmp_path}/lake/messages") for code in blocks)
    wanted = ("orders", 5, 2, "a")
    found = duckdb.sql(in_duckdb)
    assert found is not None and found.fetchall() == [wanted]
    assert [tuple(row) for row in spark.sql(in_spark).collect()] == [wanted]


def _as_text(body: bytes) -> str | None:
    with suppress(UnicodeDecodeError):
        return bytes(body).decode()
    return None


def test_all_tables_of_one_store_speak_of_it_by_its_folder(spark: "SparkSession", tmp_path: Path) -> None:
    write_segment(tmp_path / "a=b" / "commitlog", pad(lay(various(3)), 4096))
    frame = load(spark, str(tmp_path / "a=b"), columns="store,queue_id")
    assert [tuple(row) for row in frame.collect()] == [("a=b", 0), ("a=b", 1), ("a=b", 2)]


def test_a_store_without_a_record_has_no_row(spark: "SparkSession", tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    assert load(spark, str(tmp_path)).count() == 0
    assert load(spark, str(tmp_path), table="queue_units").collect() == []


def test_stores_behind_uris(spark: "SparkSession") -> None:
    """Its password is in the URI: the workers' environment is that of the first test's session."""
    store = sample("flipped-bit-5.3.3")
    with serving() as server:
        uri = server.upload(store, "broker/store").replace("s3://", "s3://testing:testing@")
        for table in ("messages", "queue_units"):
            found = load(spark, f"b={uri}", table=table, split_size="70000")
            assert rows(found, table).equals(local_rows(table, {"b": open_store([str(store)])}))
        assert not [row for row in load(spark, uri, table=FINDINGS).collect() if ":testing@" in str(row)]


def test_small_stores_of_many_share_tasks_and_the_rows_are_the_same(spark: "SparkSession", tmp_path: Path) -> None:
    made: list[str] = []
    for number in range(8):
        pieces = [{"topic": f"t{number}", "queue_offset": at} for at in range(3)]
        write_segment(tmp_path / f"s{number}" / "commitlog", pad(lay(pieces), 4096))
        made.append(str(tmp_path / f"s{number}"))
    # Stores of other layouts, and one too large to share, stay in their place among them.
    given = [*made[:5], *paths(STORES[0:5:2]), *made[5:], *paths(STORES[6:7])]
    named = [split_name(text) for text in given]
    stores = {name or Path(path).name: open_store([path]) for name, path in named}
    for table in ("messages", "gaps", "groups", "queue_units"):
        options = {"paths": json.dumps(given), "split_size": "200000", "table": table}
        reader = pickle.loads(pickle.dumps(Reader(read_options(options))))
        tasks = [pickle.loads(pickle.dumps(task)) for task in reader.partitions()]
        shared = [task.stores for task in tasks if isinstance(task, StoresTask)]
        assert max(map(len, shared)) > 1
        assert any(isinstance(task, RangeTask) for task in tasks) == (table != "queue_units")
        batches = [batch for task in tasks for batch in reader.read(task)]
        assert pa.Table.from_batches(batches, reader.settings.schema).equals(local_rows(table, stores)), table
    assert rows(load(spark, given, split_size="200000")).equals(local_rows("messages", stores))
    one = load(spark, given, split_size="200000", pushdown="true").where("store = 's7'")
    assert [row.topic for row in one.collect()] == ["t7"] * 3


def test_what_is_added_while_tasks_begin_is_read_once(tmp_path: Path) -> None:
    """The log of one store grows by a segment, another loses its first, between the plan and the tasks."""
    made: list[str] = []
    for number in range(9):
        for segment in range(3):
            pieces = [{"topic": f"s{number}", "queue_offset": at} for at in range(3)]
            write_segment(tmp_path / f"s{number}" / "commitlog", pad(lay(pieces), 4096), segment * 4096)
        made.append(str(tmp_path / f"s{number}"))
    reader = Reader(read_options({"paths": json.dumps(made), "split_size": "3000"}))
    tasks = reader.partitions()
    assert len([task for task in tasks if isinstance(task, RangeTask)]) == 9 * 6
    write_segment(tmp_path / "s1" / "commitlog", pad(lay([{"topic": "s1"}]), 4096), 3 * 4096)
    (tmp_path / "s2" / "commitlog" / f"{0:020}").unlink()
    stores = {Path(path).name: open_store([path]) for path in made}
    batches = [batch for task in tasks for batch in reader.read(task)]
    assert pa.Table.from_batches(batches, reader.settings.schema).equals(local_rows("messages", stores))


def test_a_session_tells_how_many_tasks_run_at_a_time(spark: "SparkSession", tmp_path: Path) -> None:
    write_segment(tmp_path / "a" / "commitlog", bytes(1 << 20))
    with (tmp_path / "a" / "commitlog" / f"{0:020}").open("r+b") as file:
        file.truncate(1 << 30)
    kept = spark.dataSource.register
    try:
        register(spark)
        partitions = load(spark, str(tmp_path / "a")).rdd.getNumPartitions()
    finally:
        kept(RocketMQDataSource)
    assert partitions == 2 * spark.sparkContext.defaultParallelism == 4


def test_a_store_of_many_that_is_none_is_said_before_any_task(spark: "SparkSession", tmp_path: Path) -> None:
    given = [*(f"{name}=samples/healthy-4.9.7" for name in "abcdefghi"), f"z={tmp_path / 'absent'}"]
    with pytest.raises(Exception, match=r"absent: no such file or folder|absent"):
        load(spark, given).count()


# --- options ---------------------------------------------------------------------------------------


def test_filters_and_columns_are_the_command_line_s(spark: "SparkSession") -> None:
    stores = {name: open_store([str(oracle.store(family, name))]) for family, name in STORES[:2]}
    whole = local_rows("messages", stores)
    topic = whole.column("topic")[0].as_py()
    times = whole.filter(pc.equal(whole["topic"], topic))["store_timestamp"]
    middle = times[len(times) // 2].as_py()
    frame = load(
        spark,
        paths(STORES[:2]),
        topic=[topic, "no-such-*"],
        since=middle.isoformat(),
        Columns="queue_offset,topic,body",
        redact="body",
    )
    kept = whole.filter(pc.and_(pc.equal(whole["topic"], topic), pc.greater_equal(whole["store_timestamp"], middle)))
    found = rows(frame)
    assert found.column_names == ["queue_offset", "topic", "body"]
    assert found["queue_offset"].equals(kept["queue_offset"])
    assert found["body"].null_count == found.num_rows == kept.num_rows > 0


def test_a_time_from_the_last_record_is_each_store_s_own(spark: "SparkSession", tmp_path: Path) -> None:
    for number, name in enumerate(("early", "late")):
        pieces = [{"store_timestamp": 1_700_000_000_000 + number * 10**9 + at * 60_000} for at in range(10)]
        write_segment(tmp_path / name / "commitlog", pad(lay(pieces), 4096))
    frame = load(spark, [str(tmp_path / "early"), str(tmp_path / "late")], since="last-2m", columns="store")
    assert [row.store for row in frame.collect()] == ["early"] * 3 + ["late"] * 3


def test_pushed_filters_read_less_and_give_the_same(spark: "SparkSession") -> None:
    stores = paths((STORES[0], STORES[2]))
    whole, pushed = load(spark, stores), load(spark, stores, pushdown="true")
    local = rows(whole)
    some = local.filter(pc.invert(pc.match_substring(local["topic"], "%"))).slice(40, 1).to_pylist()[0]
    conditions = [
        f"topic = '{some['topic']}' and queue_id = {some['queue_id']} and physical_offset < 90000",
        f"store_timestamp >= timestamp '{some['store_timestamp'].isoformat()}' and queue_offset <= 3",
        "store = 'ext-5.3.3' and tags is not null and not queue_id in (1, 2)",
    ]
    for condition in conditions:
        expected = rows(whole.where(condition))
        assert rows(pushed.where(condition)).equals(expected), condition
        assert 0 < expected.num_rows < local.num_rows
    reach = pushed.where("physical_offset < 20000 and store = 'ext-5.3.3'").rdd.getNumPartitions()
    assert reach < whole.rdd.getNumPartitions()


def test_a_task_gets_nothing_but_paths_and_numbers() -> None:
    from rmqinspect.spark.source import Reader

    reader = Reader(read_options({"paths": json.dumps(paths()), "split_size": "20kB"}))
    partitions = reader.partitions()
    assert len(partitions) > 20
    assert max(len(pickle.dumps((reader, partition))) for partition in partitions) < 6000


# --- what is refused ------------------------------------------------------------------------------


def test_damage_fails_a_job_only_where_asked(spark: "SparkSession", tmp_path: Path) -> None:
    from pyspark.errors import PySparkException

    write_damaged(tmp_path)
    assert load(spark, str(tmp_path), mode="permissive").count() > 0
    for table in ("messages", "gaps", FINDINGS):
        with pytest.raises(PySparkException, match=r"DamageFound: .*\(mode=FAILFAST\)"):
            load(spark, str(tmp_path), mode="FAILFAST", table=table).collect()
    flipped = str(oracle.store("crash", "flip_body_third-4.7.1-c"))
    with pytest.raises(PySparkException, match="DamageFound: store: status body_crc: physical_offset"):
        load(spark, flipped, mode="FAILFAST", columns="topic").collect()
    whole = str(oracle.store("broker", "main-4.9.7"))
    assert load(spark, whole, mode="FAILFAST").count() == load(spark, whole).count()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"tabel": "gaps"}, "BadOption: no option 'tabel'; there are: table, columns"),
        ({"table": "gap"}, "BadOption: option table: no table 'gap'"),
        ({"path": "/no/such/store"}, "NotAStore: /no/such/store"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(spark: "SparkSession", options: dict[str, str], said: str) -> None:
    from pyspark.errors import PySparkException

    place = options.pop("path", None) or str(oracle.store("broker", "main-4.9.7"))
    with pytest.raises(PySparkException, match=said):
        load(spark, place, **options).count()


def test_another_schema_is_refused(spark: "SparkSession") -> None:
    from pyspark.errors import PySparkException

    place = str(oracle.store("broker", "main-4.9.7"))
    with pytest.raises(PySparkException, match="BadOption: the schema of messages is fixed"):
        spark.read.format("rocketmq").schema("a int").load(place).count()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "no store"),
        ({"path": "a", "split_size": "0"}, "option split_size"),
        ({"path": "a", "columns": "topic,nothing"}, "option columns: no column 'nothing' in messages"),
        ({"path": "a", "mode": "DROPMALFORMED"}, "option mode: 'DROPMALFORMED' is not one of PERMISSIVE, FAILFAST"),
        ({"path": "a", "table": "topics", "since": "-2h"}, "the table topics has no column for since, until"),
        ({"path": "a", "since": "yesterday"}, "option since"),
        ({"path": "a", "queue": "-1"}, "option queue: '-1' is not a queue id"),
        ({"path": "a", "queue-offset": "1", "queue_offset": "1"}, "option queue_offset is given twice"),
        ({"paths": '["a/store", "b/store"]'}, "two stores are called 'store'"),
    ],
)
def test_options_that_cannot_be_meant(options: dict[str, str], said: str) -> None:
    with pytest.raises(BadOption, match=said):
        read_options(options)


def test_names_and_lists_as_spark_gives_them() -> None:
    settings = read_options(
        {
            "paths": '["x=a/store", "y=s3://bucket/b/store?region=r"]',
            "Topic": "['a', 'b,c']",
            "key": '["k"]',
            "tag": "[ab]*",
        }
    )
    assert [name for name, _ in settings.stores] == ["x", "y"]
    assert settings.stores[1][1].paths == ("s3://bucket/b/store?region=r",)
    assert settings.selection.topics == ("a", "b,c")
    assert settings.selection.keys == ("k",)
    assert settings.selection.tags == ("[ab]*",)


def test_every_option_says_what_it_means() -> None:
    assert all(option.meaning.endswith(".") for option in OPTIONS)
    assert len({option.name for option in OPTIONS}) == len(OPTIONS)


# --- what is written about it ---------------------------------------------------------------------


def test_the_examples_run(spark: "SparkSession", monkeypatch: pytest.MonkeyPatch) -> None:
    name = "docs/spark.md"
    monkeypatch.chdir(ROOT)
    blocks = re.findall(r"```python spark\n(.*?)```", (ROOT / name).read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, Any] = {"spark": spark}
    for block in blocks:
        exec(compile(block, name, "exec"), names)
    frames = [frame for frame in names.values() if hasattr(frame, "toArrow")]
    assert frames
    assert all(frame.count() for frame in frames)


def test_a_stream_is_refused_in_words(spark: "SparkSession", tmp_path: Path) -> None:
    rows = spark.readStream.format("rocketmq").load(str(sample("healthy-4.9.7")))
    query = rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start()
    with pytest.raises(Exception, match="BadOption: rocketmq is no stream: it reads files as they are"):
        query.awaitTermination(60)


# --- what the next start gives up -----------------------------------------------------------------


def test_the_records_that_a_start_gives_up_are_those_of_decode(spark: "SparkSession") -> None:
    names = ("propslen_third-5.3.3-h", "none-5.3.3-h-to-4.9.7")
    asked = AskedStart("4.9.7", clean_exit=False)
    frame = load(
        spark,
        paths(tuple(("crash", name) for name in names)),
        lost_at_start="true",
        broker_version="4.9.7",
        exit="unclean",
        split_size="40000",
    )
    found = rows(frame)
    for name in names:
        store = open_store([str(oracle.store("crash", name))])
        lost = lost_at_start(store, asked).records
        own = found.filter(pc.equal(found.column("store"), name))
        everything = local_rows("messages", {name: store})
        here = lost.mask(everything.column("physical_offset").to_numpy())
        walked = own.filter(pc.not_equal(own.column("status"), "bad_head"))
        assert walked.sort_by("physical_offset").equals(everything.filter(pa.array(here)).combine_chunks())
        assert own.num_rows - walked.num_rows == len(lost.named)


def test_the_options_of_a_start_need_the_start() -> None:
    with pytest.raises(BadOption, match="belongs to lost_at_start"):
        read_options({"path": "x", "exit": "clean"})
