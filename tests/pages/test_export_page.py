"""docs/export.md is right about layout, types, partitions and every field of a manifest."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

from docs.build.tables_page import schemas, type_words
from rmqinspect.choices import PARTITIONS
from rmqinspect.cli import main
from rmqinspect.system.run import Run
from tests.support import oracle
from tests.support.building import lay, pad, write_segment
from tests.support.documents import fields, page_of, table_of
from tests.support.sparks import quiet

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = page_of("export")
FREE = ("export.filters", "export.redacted", "tables", "tables.*.files[].statuses", "stores[].gaps", "run.versions")

# Python types of the page's type names.
JSON_TYPES = {"text": str, "number": int, "boolean": bool, "list": list, "object": dict, "null": type(None)}


def export(*words: str) -> dict[str, Any]:
    """Export with one thread, and return the manifest."""
    main(["export", *words, "--engine", "local", "-j", "1", "-q"])
    folder = words[words.index("-o") + 1]
    manifest: dict[str, Any] = json.loads((Path(folder) / "_manifest.json").read_bytes())
    # Those of every document are in docs/report.md.
    own = Run.__struct_fields__
    manifest["run"] = {name: value for name, value in manifest["run"].items() if name == "started" or name not in own}
    return manifest


# --- the manifest ---------------------------------------------------------------------------------


@pytest.fixture
def manifests(tmp_path: Path) -> list[dict[str, Any]]:
    """Return manifests that together have every field."""
    hole, flipped = (oracle.store("crash", name) for name in ("seg_missing_mid-4.9.7-c", "flip_body_third-4.7.1-c"))
    stale, empty = tmp_path / "stale", tmp_path / "empty"
    old = lay([{"body": b"old " * 9, "store_timestamp": 1_795_250_916_000 + number} for number in range(10)])
    new = lay([{"body": b"new", "store_timestamp": 1_795_250_976_000 + number} for number in range(4)])
    write_segment(stale / "commitlog", pad(new + old[len(new) :], 1 << 16))  # the log was cut, and went on
    write_segment(empty / "commitlog", bytes(4096))
    secret = tmp_path / "secret"
    secret.write_text("a key")
    everything = ["--all", "--partition-by", "topic,day"]
    hidden = ["--redact", f"body,keys=hash:{secret}", "-t", "*", "--since", "2026-01-01"]
    return [
        export(f"a={hole}", f"b={flipped}", f"c={stale}", "-o", f"{tmp_path}/one", *everything),
        export(str(flipped), "-o", f"{tmp_path}/two", *hidden),
        export(str(empty), f"gone={tmp_path}/gone", "-o", f"{tmp_path}/three", "--skip-unreadable"),
    ]


def test_the_page_has_every_field_of_the_manifest_and_no_other(manifests: list[dict[str, Any]]) -> None:
    described = {path: types for path, types, _ in table_of(PAGE, "The manifest")}
    found = {path for manifest in manifests for path, _ in fields(manifest, FREE)}
    assert found - {"tables.*", "stores[].gaps.*"} == described.keys()
    for manifest in manifests:
        for path, value in fields(manifest, FREE):
            if path in described:
                assert type(value) in [JSON_TYPES[word] for word in described[path].split(" or ")], (path, value)


# --- types ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Export all tables of a whole broker, in both schemas."""
    folder = tmp_path_factory.mktemp("types")
    store = str(oracle.store("broker", "main-5.3.3"))
    export(store, "-o", f"{folder}/native", "--all")
    export(store, "-o", f"{folder}/kafka", "--schema", "kafka")
    return str(folder)


def folders(lake: str) -> Iterator[tuple[str, pa.Schema]]:
    """Yield the folder of each table and its schema."""
    for name, schema in schemas().items():
        table, _, kafka = name.partition(" --schema ")
        yield f"{lake}/{kafka or 'native'}/{table}", schema


def test_duckdb_sees_the_types_of_the_page(lake: str) -> None:
    types = {row[0]: row[1] for row in table_of(PAGE, "Types")}
    assert types.keys() == {type_words(field.type) for _, schema in folders(lake) for field in schema}
    for folder, schema in folders(lake):
        described = duckdb.connect().execute(f"DESCRIBE FROM '{folder}/*.parquet'").fetchall()
        assert [(row[0], row[1]) for row in described] == [
            (field.name, types[type_words(field.type)]) for field in schema
        ]


@quiet
def test_spark_sees_the_types_of_the_page(lake: str, spark: "SparkSession") -> None:
    types = {row[0]: row[2] for row in table_of(PAGE, "Types")}
    for folder, schema in folders(lake):
        found = [(field.name, field.dataType.simpleString()) for field in spark.read.parquet(folder).schema]
        assert found == [(field.name, types[type_words(field.type)]) for field in schema]


def test_duckdb_reads_the_values_of_a_record(lake: str) -> None:
    query = f"""
        SELECT epoch_ms(store_timestamp), properties['UNIQ_KEY'], keys, body FROM '{lake}/native/messages/*.parquet'
        WHERE physical_offset = 63676"""
    record = next(row for row in oracle.truth("broker", "main-5.3.3")["served"] if row.get("physical_offset") == 63676)
    time, unique_key, keys, body = duckdb.connect().execute(query).fetchall()[0]
    assert (time, unique_key) == (record["store_timestamp"], record["msg_id"])
    assert (keys, len(body)) == (record["keys"].split(), record["body_size"])


# --- partitions -----------------------------------------------------------------------------------

TOPICS = ["1", "007", "%RETRY%group", "x" * 200]


@pytest.fixture(scope="module")
def folded(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Export records of awkward topics into folders."""
    folder = tmp_path_factory.mktemp("folded")
    log = lay([{"topic": topic, "queue_id": 1} for topic in TOPICS])
    write_segment(folder / "store" / "commitlog", pad(log, 1 << 16))
    export(f"s={folder}/store", "-o", f"{folder}/all", "--partition-by", "topic,day,queue_id")
    export(f"s={folder}/store", "-o", f"{folder}/numbers", "--partition-by", "topic", "-t", "1", "-t", "007")
    return str(folder)


def test_the_options_for_partitions_are_those_of_the_page() -> None:
    assert all(f"`{name}`" in PAGE.split("## Partitions")[1].split("\n\n")[1] for name in PARTITIONS)


def test_names_of_folders_are_encoded_and_cut_as_the_page_says(folded: str) -> None:
    names = sorted(path.name for path in Path(folded, "all", "messages").iterdir())
    assert names[:3] == ["topic=%25RETRY%25group", "topic=007", "topic=1"]
    assert re.fullmatch(r"topic=x{160}~[0-9a-f]{16}", names[3])


@pytest.mark.parametrize(
    ("option", "queue_id", "topics"),
    [("", "BIGINT", None), (", hive_partitioning = false", "INTEGER", TOPICS)],
)
def test_duckdb_takes_partitions_from_folders_by_default(
    option: str, queue_id: str, topics: list[str] | None, folded: str
) -> None:
    connection = duckdb.connect()
    connection.execute(f"CREATE VIEW rows AS FROM read_parquet('{folded}/all/messages/**/*.parquet'{option})")
    types = {row[0]: row[1] for row in connection.execute("DESCRIBE rows").fetchall()}
    assert (types["topic"], types["queue_id"]) == ("VARCHAR", queue_id)
    assert types.get("day") == (None if topics else "DATE")
    found = [row[0] for row in connection.execute("SELECT topic FROM rows ORDER BY physical_offset").fetchall()]
    assert found[:3] == TOPICS[:3]
    assert (found[3] == TOPICS[3]) is (topics is not None)


@quiet
def test_spark_takes_partitions_from_folders_by_default(folded: str, spark: "SparkSession") -> None:
    def types(session: "SparkSession", folder: str, **options: str) -> dict[str, str]:
        frame = session.read.options(**options).parquet(f"{folded}/{folder}/messages")
        return {field.name: field.dataType.simpleString() for field in frame.schema}

    guessed = types(spark, "all")
    assert (guessed["topic"], guessed["queue_id"], guessed["day"]) == ("string", "int", "date")
    assert types(spark, "numbers")["topic"] == "int"
    reported = types(spark, "numbers", recursiveFileLookup="true")
    assert (reported["topic"], "day" in reported) == ("string", False)
    own = spark.newSession()
    own.conf.set("spark.sql.sources.partitionColumnTypeInference.enabled", "false")
    texts = types(own, "all")
    assert (texts["topic"], texts["queue_id"], texts["day"]) == ("string", "string", "string")


def test_pyarrow_refuses_folders_by_default(folded: str) -> None:
    with pytest.raises(pa.ArrowTypeError, match="incompatible types"):
        pq.read_table(f"{folded}/all/messages")
    rows = pq.read_table(f"{folded}/all/messages", partitioning=None).sort_by("physical_offset")
    assert rows.column("topic").to_pylist() == TOPICS
