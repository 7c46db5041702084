"""Other shapes of an export: folders by value, Kafka's columns, values that must not leave the house."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from rmqinspect.choices import PARTITIONS
from rmqinspect.export.job import local_engine, run_export
from rmqinspect.export.part import ExportSpec
from rmqinspect.export.request import MESSAGES, ExportRequest, partition_folder, safe_name
from rmqinspect.export.target import FRESH, Target
from rmqinspect.store.discover import open_store
from rmqinspect.store.model import Store
from rmqinspect.tables.filters import Selection
from rmqinspect.tables.redact import parse_redaction
from rmqinspect.text import is_utf8
from tests.support import oracle
from tests.support.building import lay, pad, write_segment
from tests.support.exporting import case_store, expected, export, exported, names, planned

STORES: list[tuple[oracle.Family, str]] = [("crash", "flip_body_third-4.7.1-c"), ("broker", "main-5.5.0")]
ODD = ["../../etc", "a/b", "a%2Fb", ".", "..", "_hidden", ".hidden", "topic=x", "付款", "x" * 120, "a b", "a\x1b[31m"]
ODD += [""]


@pytest.fixture
def odd_store(tmp_path: Path) -> Store:
    pieces: list[Any] = [{"topic": topic, "store_timestamp": day * 86_400_000} for topic in ODD for day in (0, 19000)]
    write_segment(tmp_path / "store" / "commitlog", pad(lay(pieces), 1 << 16))
    return replace(open_store([str(tmp_path / "store")]), name="s")


def test_names_of_folders_are_harmless_and_can_be_read_back(odd_store: Store, tmp_path: Path) -> None:
    export(tmp_path / "lake", [odd_store], ExportRequest(partition_by=("topic", "day")))
    folders = {name.split("/")[1] for name in names(tmp_path / "lake")}
    assert len(folders) == len(ODD)
    for folder in folders:
        column, value = folder.split("=", 1)
        topics = {
            topic
            for path in (tmp_path / "lake" / MESSAGES / folder).rglob("*.parquet")
            for topic in pq.read_table(path, partitioning=None).column(column).to_pylist()
        }
        assert topics == {"" if value == "__HIVE_DEFAULT_PARTITION__" else unquote(value)}
    days = {name.split("/")[2] for name in names(tmp_path / "lake")}
    assert days == {"day=1970-01-01", "day=2022-01-08"}


def test_a_store_may_have_a_long_name(odd_store: Store, tmp_path: Path) -> None:
    stores = [replace(odd_store, name="付" * 40 + end) for end in "ab"]
    outcome = export(tmp_path / "lake", stores, ExportRequest())
    assert len(set(names(tmp_path / "lake"))) == 2
    assert outcome.manifest.rows(MESSAGES) == 2 * len(ODD) * 2


def test_long_names_are_cut_and_stay_different() -> None:
    one, other = safe_name("付" * 200 + "a"), safe_name("付" * 200 + "b")
    assert one != other
    assert max(len(one), len(other)) < 230
    assert partition_folder("queue_id", None) == "queue_id=__HIVE_DEFAULT_PARTITION__"


@pytest.mark.parametrize("schema", ["native", "kafka"])
@pytest.mark.parametrize("by", [(column,) for column in PARTITIONS] + [PARTITIONS])
def test_partitions_hold_the_rows_of_one_file(by: tuple[str, ...], schema: str, tmp_path: Path) -> None:
    stores = [case_store(*case) for case in STORES]
    flat, cut = ExportRequest(schema=schema), ExportRequest(schema=schema, partition_by=by)
    export(tmp_path / "flat", stores, flat)
    export(tmp_path / "cut", stores, cut)
    keys = [("store", "ascending"), ("topic", "ascending")]
    keys += [(name, "ascending") for name in (("physical_offset",) if schema == "native" else ("partition", "offset"))]

    def ordered(folder: str) -> pa.Table:
        files = sorted((tmp_path / folder / MESSAGES).rglob("*.parquet"))
        return pa.concat_tables([pq.read_table(path, partitioning=None) for path in files]).sort_by(keys)

    one, other = ordered("flat"), ordered("cut")
    assert one.schema.equals(other.schema)
    if schema == "native":
        assert one.equals(other)
    else:  # a topic may hold an offset twice
        assert Counter(map(repr, one.to_pylist())) == Counter(map(repr, other.to_pylist()))
    depth = {name.count("/") for name in names(tmp_path / "cut")}
    assert depth == {1 + len(by)}


def test_more_partitions_than_files_may_be_open(tmp_path: Path) -> None:
    pieces = [{"topic": f"topic-{number % 90}", "body": b"%d" % number} for number in range(900)]
    write_segment(tmp_path / "store" / "commitlog", pad(lay(pieces), 1 << 18))
    program = (
        "import resource, sys; from rmqinspect.cli import main\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (40, 60))\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    command = ["export", str(tmp_path / "store"), "-o", str(tmp_path / "lake"), "--engine", "local", "-j", "1"]
    subprocess.run([sys.executable, "-c", program, *command, "--partition-by", "topic"], check=True)
    written = names(tmp_path / "lake")
    assert len(written) == 90
    assert sum(pq.read_metadata(tmp_path / "lake" / name).num_rows for name in written) == 900


def test_of_many_partitions_the_fullest_are_written_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"large": 4000, "small": 10}
    pieces = [{"topic": topic, "body": bytes(size)} for _ in range(40) for topic, size in sizes.items()]
    write_segment(tmp_path / "store" / "commitlog", pad(lay(pieces), 1 << 18))
    monkeypatch.setattr("rmqinspect.export.part.MOST_WAITING", 60_000)
    export(
        tmp_path / "lake",
        [replace(open_store([str(tmp_path / "store")]), name="s")],
        ExportRequest(partition_by=("topic",)),
    )
    files = {name.split("/")[1]: pq.read_metadata(tmp_path / "lake" / name) for name in names(tmp_path / "lake")}
    assert {name: file.num_rows for name, file in files.items()} == {"topic=large": 40, "topic=small": 40}
    assert files["topic=small"].num_row_groups == 1


def test_hive_readers_find_the_partitions(tmp_path: Path) -> None:
    stores = [case_store(*case) for case in STORES]
    export(tmp_path / "lake", stores, ExportRequest(partition_by=("topic", "queue_id")))
    files = f"{tmp_path}/lake/messages/*/*/*.parquet"
    for hive in ("true", "false"):
        query = f"select topic, queue_id, count(*) from read_parquet('{files}', hive_partitioning={hive}) group by all"
        counted = {(row[0], str(row[1])): row[2] for row in duckdb.connect().execute(query).fetchall()}
        both = pa.concat_tables([expected(store, MESSAGES) for store in stores])
        truth = Counter(
            zip(both.column("topic").to_pylist(), map(str, both.column("queue_id").to_pylist()), strict=True)
        )
        assert counted == truth


def test_the_kafka_schema_is_that_of_sparks_kafka_source(tmp_path: Path) -> None:
    store = case_store("broker", "main-5.5.0")
    request = ExportRequest(schema="kafka")
    export(tmp_path / "lake", [store], request)
    table = exported(tmp_path / "lake", store.name, MESSAGES, request)
    types = {field.name: field.type for field in table.schema}
    assert list(types) == [
        "store",
        "key",
        "value",
        "topic",
        "partition",
        "offset",
        "timestamp",
        "timestampType",
        "headers",
    ]
    native = expected(store, MESSAGES).to_pylist()
    for kafka, message in zip(table.to_pylist(), native, strict=True):
        assert kafka["key"] == (message["keys"][0].encode() if message["keys"] else None)
        assert kafka["value"] == message["body"]
        assert (kafka["topic"], kafka["partition"], kafka["offset"]) == (
            message["topic"],
            message["queue_id"],
            message["queue_offset"],
        )
        assert kafka["timestamp"] == message["store_timestamp"]
        assert kafka["timestampType"] == 1
        headers = [(header["key"], header["value"].decode()) for header in kafka["headers"] or ()]
        assert headers == list(message["properties"] or ())


@pytest.mark.parametrize("schema", ["native", "kafka"])
def test_what_is_redacted_is_nowhere_in_the_files(schema: str, tmp_path: Path) -> None:
    store = case_store("broker", "main-5.5.0")
    request = ExportRequest(schema=schema, redaction=parse_redaction("body,keys,tags,properties,hosts"))
    outcome = export(tmp_path / "lake", [store], request)
    messages = expected(store, MESSAGES)
    secrets = {key for keys in messages.column("keys").to_pylist() for key in keys or () if len(key) > 5}
    secrets |= {ident for ident in messages.column("msg_id").to_pylist() if ident}
    content = b"".join(path.read_bytes() for path in (tmp_path / "lake").rglob("*") if path.is_file())
    plain = exported(tmp_path / "lake", store.name, MESSAGES, request).to_pylist()
    assert len(plain) == messages.num_rows
    shown = repr(plain)
    assert not [secret for secret in secrets if secret in shown or secret.encode() in content]
    assert len(secrets) > 100
    assert outcome.manifest.request["redacted"].keys() == {"body", "keys", "tags", "properties", "hosts"}
    metadata = pq.read_metadata(tmp_path / "lake" / names(tmp_path / "lake")[0]).metadata
    assert metadata[b"redacted"]


def test_findings_quote_nothing_that_is_redacted(tmp_path: Path) -> None:
    store = case_store("crash", "flip_body_third-4.7.1-c")
    request = ExportRequest(("findings",), redaction=parse_redaction("body"))
    export(tmp_path / "lake", [store], request)
    (found,) = [
        row
        for row in exported(tmp_path / "lake", store.name, "findings", request).to_pylist()
        if row["code"] == "CL-CRC-BODY"
    ]
    assert (found["expected"], found["found"], found["message"]) == (None, None, None)
    assert found["physical_offset"] == 88312


def test_filters_choose_rows(tmp_path: Path) -> None:
    store = case_store("broker", "main-5.5.0")
    messages = expected(store, MESSAGES)
    topic = messages.column("topic")[0].as_py()
    request = ExportRequest((MESSAGES, "queue_units"), selection=Selection(topics=(topic,)))
    export(tmp_path / "lake", [store], request)
    for table in request.tables:
        rows = expected(store, table)
        chosen = rows.filter(pc.equal(rows.column("topic"), topic)).combine_chunks()
        assert 0 < chosen.num_rows < rows.num_rows
        assert exported(tmp_path / "lake", store.name, table, request).equals(chosen)


def test_bytes_of_bodies_choose_rows(tmp_path: Path) -> None:
    store = case_store("broker", "main-5.5.0")
    messages = expected(store, MESSAGES)
    end = max(messages.column("body").to_pylist(), key=len)[-9:]
    chosen = messages.filter(pc.match_substring(messages.column("body"), end)).combine_chunks()
    assert 0 < chosen.num_rows < messages.num_rows
    request = ExportRequest(selection=Selection(body_bytes=end))
    assert request.as_document()["filters"] == {"body_bytes": end.hex()}
    export(tmp_path / "lake", [store], request)
    assert exported(tmp_path / "lake", store.name, MESSAGES, request).equals(chosen)


def test_a_range_of_the_log_is_read_alone(tmp_path: Path) -> None:
    store = case_store("broker", "main-5.5.0")
    request = ExportRequest(file_size=20_000, selection=Selection(offsets=(100_000, 150_000)))
    outcome = export(tmp_path / "lake", [store], request)
    rows = expected(store, MESSAGES)
    place = rows.column("physical_offset")
    chosen = rows.filter(pc.and_(pc.greater_equal(place, 100_000), pc.less(place, 150_000))).combine_chunks()
    assert exported(tmp_path / "lake", store.name, MESSAGES, request).equals(chosen)
    assert sum(part.size for part in outcome.planned[0].plan.parts) < 100_000


def test_a_range_in_a_file_that_is_gone_is_missed_and_the_rest_written(tmp_path: Path) -> None:
    store = replace(open_store([str(oracle.copy("crash", "none-5.4.0-g", tmp_path))]), name="s")
    first, second = store.segments[:2]
    request = ExportRequest(file_size=20_000, selection=Selection(offsets=(first.base + 30_000, second.base + 30_000)))
    plan = planned(store, request)
    os.unlink(first.path)
    target = Target(str(tmp_path / "lake"), FRESH, [])
    outcome = run_export([plan], ExportSpec(target.folder.path, "0123abcd", request), local_engine(1))
    assert not outcome.manifest.complete
    assert all(Path(first.path).name in text for text in outcome.manifest.stores[0].unread)
    assert outcome.manifest.rows(MESSAGES) > 0


def test_raw_bodies_and_a_limit_for_bodies(tmp_path: Path) -> None:
    store = case_store("broker", "main-5.5.0")
    export(tmp_path / "plain", [store], ExportRequest())
    export(tmp_path / "raw", [store], ExportRequest(raw_body=True))
    plain, raw = (exported(tmp_path / name, store.name, MESSAGES, ExportRequest()) for name in ("plain", "raw"))
    compressed = pc.not_equal(pc.fill_null(plain.column("compression"), "none"), "none")
    assert pc.sum(compressed).as_py() > 0
    assert not plain.filter(compressed).column("body").equals(raw.filter(compressed).column("body"))
    rest = pc.invert(compressed)
    assert plain.filter(rest).column("body").equals(raw.filter(rest).column("body"))


def test_bodies_as_text_are_null_where_they_are_none(tmp_path: Path) -> None:
    store = case_store("broker", "main-5.5.0")
    export(tmp_path / "bytes", [store], ExportRequest())
    export(tmp_path / "text", [store], ExportRequest(text_bodies=True))
    plain, texts = (
        exported(tmp_path / name, store.name, MESSAGES, ExportRequest(text_bodies=name == "text"))
        for name in ("bytes", "text")
    )
    assert texts.schema.field("body").type == pa.string()
    wanted = [body if is_utf8(body) else None for body in plain.column("body").to_pylist()]
    assert [text and text.encode() for text in texts.column("body").to_pylist()] == wanted
    assert None in wanted and any(wanted)
    assert plain.drop_columns("body").equals(texts.drop_columns("body"))


def test_every_file_says_what_it_is(tmp_path: Path) -> None:
    store = case_store("crash", "flip_body_third-4.7.1-c")
    assert oracle.is_damaged("flip_body_third-4.7.1-c")
    outcome = export(tmp_path / "lake", [store], ExportRequest(file_size=100_000))
    for file in outcome.manifest.files:
        metadata = pq.read_metadata(tmp_path / "lake" / file.name)
        said = {key.decode(): value.decode() for key, value in metadata.metadata.items() if key != b"ARROW:schema"}
        assert said["store"] == store.name
        assert said["offsets"] == f"{file.start}..{file.end}"
        assert said["complete"] == "true"
        assert "schema_version" in said
        assert metadata.num_rows == file.rows
        assert (tmp_path / "lake" / file.name).stat().st_size == file.size
