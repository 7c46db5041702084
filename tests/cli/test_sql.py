"""`rmqinspect sql`: every table as a view, the rows that a query needs and no fewer, and nothing but the stores."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest

from rmqinspect.cli import ExitStatus
from rmqinspect.sql.pushed import pushed
from rmqinspect.sql.result import as_written
from rmqinspect.sql.statement import wanted_keys
from rmqinspect.sql.views import NAMES
from rmqinspect.store.discover import open_store
from rmqinspect.store.reader import FileReader
from rmqinspect.tables import TABLES
from rmqinspect.tables.filters import Selection
from rmqinspect.tables.request import Request
from rmqinspect.tables.table import TIMESTAMP
from tests.support import oracle
from tests.support.command import Run, runner
from tests.support.samples import ROOT, sample
from tests.support.sampling import sampled

run = runner()

FLIPPED = sample("flipped-bit-5.3.3")
# Whole and damaged stores of several layouts: DLedger, RocksDB, ext and light queues, damage in log, queues and index.
STORES: list[tuple[oracle.Family, str]] = [
    ("broker", "main-5.3.3"),
    ("crash", "flip_body_third-4.7.1-c"),
    ("broker", "lmq-4.9.7"),
    ("broker", "rocksdb-5.4.0"),
    ("crash", "queueid_third-4.3.2-h"),
    ("broker", "dledger-5.3.3"),
    ("broker", "main-4.9.7"),
    ("crash", "seg_missing_mid-4.9.7-c"),
    ("rust", "clean-1.0.0"),
    *(("crash", name) for name in oracle.cases("crash")[::9]),
]


def rows(run: Run, query: str, *words: str | Path) -> list[dict[str, Any]]:
    status, out, err = run("sql", query, *words, "-f", "json", "-q")
    assert status in (0, 3, 4), err
    found: list[dict[str, Any]] = json.loads(out)["rows"]
    return found


def in_utc() -> duckdb.DuckDBPyConnection:
    engine = duckdb.connect()
    engine.execute("SET TimeZone = 'UTC'").fetchall()
    return engine


# --- the views ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("family", "name"), sampled(STORES, 12))
@pytest.mark.parametrize("table", sampled(TABLES, 5))
def test_a_view_has_the_rows_of_decode(run: Run, family: oracle.Family, name: str, table: str) -> None:
    store = oracle.store(family, name)
    status, decoded, _ = run("decode", store, "--table", table, "-f", "jsonl", "-q")
    found, out, _ = run("sql", f"FROM {table}", f"a={store}", "-f", "jsonl", "-q")
    prefix = '{"store":"a",'
    assert sorted(out.splitlines()) == sorted(prefix + line[1:] for line in decoded.splitlines())
    assert found == status


def test_findings_are_those_of_verify(run: Run) -> None:
    found = rows(run, "SELECT code, severity, physical_offset, message FROM findings", FLIPPED)
    asked = json.loads(run("verify", FLIPPED, "-f", "json", "-q")[1])["rows"]
    assert found == [{name: row[name] for name in ("code", "severity", "physical_offset", "message")} for row in asked]
    assert found[0]["code"] == "CL-CRC-BODY"


def test_several_stores_are_told_apart(run: Run) -> None:
    words = (f"a={FLIPPED}", f"b={sample('killed-4.9.7')}")
    before = FileReader.bytes_read
    counted = rows(run, "SELECT store, count(*) AS n FROM messages GROUP BY ALL ORDER BY ALL", *words)
    of_both = FileReader.bytes_read - before
    one_by_one = [rows(run, "SELECT count(*) AS n FROM messages", word)[0]["n"] for word in words]
    assert [(row["store"], row["n"]) for row in counted] == list(zip("ab", one_by_one, strict=True))
    before = FileReader.bytes_read
    assert rows(run, "SELECT count(*) AS n FROM messages WHERE store = 'b'", *words)[0]["n"] == one_by_one[1]
    assert FileReader.bytes_read - before < 0.8 * of_both
    question = "SELECT store, max(messages_lost) AS lost FROM next_starts WHERE may_be_writer GROUP BY ALL ORDER BY ALL"
    assert [tuple(row.values()) for row in rows(run, question, *words)] == [("a", 145), ("b", 0)]


def test_columns_have_the_comments_of_the_tables(run: Run) -> None:
    """All of them, also of a table whose comments have quotes."""
    query = "SELECT table_name, column_name, comment FROM duckdb_columns() WHERE NOT internal"
    found = rows(run, query, FLIPPED)
    told = {(row["table_name"], row["column_name"]): row["comment"] for row in found}
    for name, table in TABLES.items():
        for column in table.schema:
            assert told[name, column.name] == column.metadata[b"doc"].decode()
    assert len(told) == len(found) > 200


def test_all_views_are_listed_and_described(run: Run) -> None:
    assert [row["name"] for row in rows(run, "SHOW TABLES", FLIPPED)] == sorted(NAMES)
    described = {row["column_name"]: row["column_type"] for row in rows(run, "DESCRIBE messages", FLIPPED)}
    assert list(described) == ["store", *TABLES["messages"].schema.names]
    assert described["store_timestamp"] == "TIMESTAMP WITH TIME ZONE"
    for name in NAMES:
        assert rows(run, f"SELECT count(*) AS n FROM {name}", sample("healthy-5.5.0"))[0]["n"] >= 0, name


# --- what is read ---------------------------------------------------------------------------------

CONDITIONS = (
    "topic = 'TopicA'",
    "topic IN ('TopicA', 'orders', 'nobody') AND queue_id = 1",
    "topic = 'TopicA' AND queue_id = 0 AND queue_offset BETWEEN 3 AND 9",
    "topic = 'TopicA' AND queue_id = 0 AND queue_offset < 4",
    "topic LIKE 'Topic%' AND queue_offset >= 5",
    "physical_offset >= {middle} AND physical_offset < {middle} + 9000",
    "physical_offset = {place}",
    "store_timestamp >= '{time}' AND store_timestamp < TIMESTAMPTZ '{time}' + INTERVAL 1 SECOND",
    "'{time}' > store_timestamp AND topic <> 'TopicA'",
    "msg_id = '{id}'",
    "msg_id IN ('{id}', 'nothing')",
    "offset_msg_id = '{offset_id}'",
    "list_contains(keys, '{key}')",
    "m.tags = 'TagA' AND '{key}' = ANY (m.keys)",
    "list_has_any(keys, ['{key}', 'it''s \"none\"'])",
    "NOT list_contains(keys, '{key}') AND tags IS NOT NULL",
    "list_contains(keys, '{key}') OR queue_offset = 0",
    "born_host = '{host}' AND body_size > 20",
    "tags = 'Tag\"B' OR tags = 'TagA' OR tags IS NULL",
    "transaction <> 'none' AND status = 'ok'",
    "contains(try(decode(body)), 'row') AND size < 400",
    "topic = 'nobody'",
    "queue_id = 0 AND NOT (topic = 'orders')",
    "queue_offset IN (1, 2, 7) AND store = 'a'",
    "store = 'other' OR keys = []",
)


def reference(store: Path) -> pa.Table:
    """Return all messages, as the table is read by everything else."""
    opened = open_store([str(store)])
    whole = pa.Table.from_batches(list(TABLES["messages"].rows(opened, Request())), TABLES["messages"].schema)
    return whole.add_column(0, "store", pa.repeat("a", whole.num_rows))


@pytest.mark.parametrize(("family", "name"), sampled(STORES, 11))
def test_a_filter_leaves_the_rows_that_the_whole_table_has(
    run: Run, tmp_path: Path, family: oracle.Family, name: str
) -> None:
    store = oracle.store(family, name)
    whole = reference(store)
    middle = whole.slice(whole.num_rows // 2).to_pylist() or reference(FLIPPED).to_pylist()
    row = next((one for one in middle if one["keys"] and one["msg_id"]), middle[0])
    values = {
        "middle": middle[0]["physical_offset"],
        "place": row["physical_offset"],
        "time": row["store_timestamp"].isoformat(),
        "id": row["msg_id"],
        "offset_id": row["offset_msg_id"],
        "key": (row["keys"] or ["none"])[0],
        "host": row["born_host"],
    }
    engine = in_utc()
    engine.register("messages", whole)
    for number, condition in enumerate(CONDITIONS):
        query = f"SELECT physical_offset, body, keys FROM messages m WHERE {condition.format(**values)} ORDER BY ALL"
        expected = engine.sql(query).to_arrow_table().to_pylist()
        for words in ((), ("--scan",)):
            file = tmp_path / f"{number}{''.join(words)}.arrow"
            status, _, err = run("sql", query, f"a={store}", "-o", file, *words, "--fail-on", "never")
            assert status in (0, 4), (query, err)
            with pa.OSFile(str(file)) as opened:
                found = pyarrow.ipc.open_file(opened).read_all().to_pylist()
            assert found == expected, (query, words)


def test_a_look_up_reads_little_and_says_its_way(run: Run) -> None:
    query = "SELECT physical_offset FROM messages WHERE {}"
    for condition, way in (
        ("list_contains(keys, 'K95')", "by the index"),
        ("topic = 'orders' AND queue_id = 1 AND queue_offset = 9", "by the queue's units"),
        ("store_timestamp >= '2026-11-21T08:48:46Z'", "by the times of records"),
    ):
        status, out, err = run("sql", query.format(condition), FLIPPED, "-f", "csv")
        assert (status, len(out.splitlines()) > 1, way in err) == (0, True, True), (condition, err)
        assert run("sql", query.format(condition), FLIPPED, "-f", "csv", "--scan")[1] == out


def test_a_limit_ends_the_reading(run: Run, tmp_path: Path) -> None:
    before = FileReader.bytes_read
    assert len(rows(run, "SELECT physical_offset FROM messages LIMIT 3", FLIPPED, "-j", "1")) == 3
    assert FileReader.bytes_read - before < 300_000


def captured(query: str) -> Iterator[tuple[Any, Any]]:
    """Yield the columns and the filter of each scan that DuckDB asks for."""
    asked: list[tuple[Any, Any]] = []
    schema = TABLES["messages"].schema.insert(0, pa.field("store", pa.string()))

    class Scan:
        def __init__(self, names: list[str]) -> None:
            self.schema = pa.schema([pa.field(name, schema.field(name).type) for name in names])

        def to_reader(self) -> pa.RecordBatchReader:
            return pa.RecordBatchReader.from_batches(self.schema, iter(()))

    class Asked(pyarrow.dataset.Dataset):  # type: ignore[misc]
        def __init__(self) -> None:
            pass

        @property
        def schema(self) -> pa.Schema:
            return schema

        def scanner(self, columns: Any = None, filter: Any = None) -> Scan:
            asked.append((columns, filter))
            return Scan(columns if columns is not None else schema.names)

    engine = in_utc()
    engine.register("messages", Asked())
    engine.sql(query).fetchall()
    yield from asked


@pytest.mark.parametrize(
    ("condition", "selection"),
    [
        ("topic = 'a''b\"\\c'", Selection(topics=("a'b\"\\c",))),
        ("topic = 'a*' AND queue_id = 3", Selection(topics=("a[*]",), queue_id=3)),
        ("queue_offset > 4 AND 9 >= queue_offset", Selection(queue_offsets=(5, 10))),
        ("queue_offset < 4", Selection()),
        ("physical_offset BETWEEN 5 AND 7", Selection(offsets=(5, 8))),
        ("tags IN ('x', 'y')", Selection(tags=("x", "y"))),
        ("tags = 'x' OR tags = 'y'", Selection(tags=("x", "y"))),
        ("tags = 'x' OR topic = 'y'", Selection()),
        ("store_timestamp >= '1970-01-01T00:00:01Z'", Selection(since=1_000_000)),
        ("store_timestamp < '1970-01-01T00:00:01Z'", Selection(until=1_000_000)),
        ("born_host = '10.0.0.1'", Selection(host=("10.0.0.1", None))),
        ("topic <> 'x' AND body IS NULL", Selection()),
        ("msg_id = 'FD00000000000000000000000000000A0B0C'", Selection(ids=("FD00000000000000000000000000000A0B0C",))),
    ],
)
def test_a_pushed_filter_becomes_filters_of_the_reader(condition: str, selection: Selection) -> None:
    ((_, expression),) = captured(f"SELECT size FROM messages WHERE {condition}")
    assert pushed(expression).selection(masked=False) == selection


def test_what_redaction_hides_is_not_looked_up() -> None:
    ((_, expression),) = captured("SELECT size FROM messages WHERE tags = 'x' AND topic = 't' AND msg_id = 'i'")
    assert pushed(expression).selection(masked=True) == Selection(topics=("t",))


@pytest.mark.parametrize(
    ("query", "keys"),
    [
        ("SELECT 1 FROM messages WHERE list_contains(keys, 'a') AND size > 3", ("a",)),
        ("FROM messages AS m WHERE array_has(m.keys, 'a')", ("a",)),
        ("FROM messages WHERE list_has_any(keys, ['a', 'b'])", ("a", "b")),
        ("FROM messages WHERE 'a' = ANY (keys)", ("a",)),
        ("SELECT * FROM (SELECT * FROM messages WHERE list_contains(keys, 'a')) x, topics", ("a",)),
        ("FROM messages WHERE list_contains(keys, 'a') OR size > 3", ()),
        ("FROM messages WHERE NOT list_contains(keys, 'a')", ()),
        ("FROM messages WHERE list_contains(['x'], 'a')", ()),
        ("FROM messages WHERE list_contains(keys, topic)", ()),
        ("FROM messages a, messages b WHERE list_contains(a.keys, 'a')", ()),
        ("FROM messages m, groups WHERE list_contains(m.keys, 'a')", ()),
        ("WITH messages AS (FROM topics) FROM messages WHERE list_contains(keys, 'a')", ()),
        ("FROM messages WHERE list_contains(keys, 'a') UNION ALL FROM messages", ()),
        ("SELECT list_contains(keys, 'a') FROM messages", ()),
        ("SELECT size FROM messages HAVING list_contains(any_value(keys), 'a')", ()),
        ("FROM messages m(keys, x) WHERE list_contains(keys, 'a')", ()),
    ],
)
def test_keys_are_looked_up_where_all_rows_must_have_them(query: str, keys: tuple[str, ...]) -> None:
    assert wanted_keys(duckdb.connect(), query) == keys


# --- what is refused --------------------------------------------------------------------------------

HOSTILE = (
    "COPY messages TO '{0}/rows.csv'",
    "COPY (SELECT 1) TO '{0}/rows.parquet' (FORMAT parquet)",
    "ATTACH '{0}/other.db'",
    "EXPORT DATABASE '{0}/db'",
    "INSTALL httpfs",
    "LOAD httpfs",
    "PRAGMA threads=1",
    "SET memory_limit = '100GB'",
    "RESET lock_configuration",
    "CREATE TABLE t AS FROM messages",
    "INSERT INTO messages VALUES (1)",
    "DROP VIEW messages",
    "CALL pragma_version()",
    "EXPLAIN SELECT 1",
    "CHECKPOINT",
    "USE memory",
    "SELECT 1; SELECT 2",
    "",
    "/* nothing */",
    "FROM '/etc/passwd'",
    "FROM read_csv('/etc/passwd')",
    "FROM read_text('/etc/passwd')",
    "FROM read_blob('{0}/*')",
    "FROM glob('/*')",
    "FROM read_parquet('s3://bucket/x')",
    "FROM query('FROM read_text(''/etc/passwd'')')",
    "FROM sniff_csv('/etc/passwd')",
    "SELECT getenv('HOME')",
    "FROM os",
    "SELEC 1",
    "SELECT nothing FROM messages",
    "FROM nothing",
    "SELECT error('a\nb')",
    "SELECT 'x'::INTEGER",
    "SELECT '\x1b[31m'::INTEGER",
)


@pytest.mark.parametrize("query", HOSTILE)
def test_what_is_no_question_about_the_stores_is_refused_in_one_line(run: Run, tmp_path: Path, query: str) -> None:
    status, out, err = run("sql", query.format(tmp_path), FLIPPED)
    assert (status, out) == (ExitStatus.USAGE, ""), err
    assert err.startswith("rmqinspect: ") and err.count("\n") == 1 and "\x1b" not in err
    assert "root:" not in err
    assert list(tmp_path.iterdir()) == []


def test_the_query_must_be_text(run: Run) -> None:
    assert run("sql", "SELECT '\udcff'", FLIPPED)[0] == ExitStatus.USAGE


def test_no_output_goes_into_a_store_or_over_a_file(run: Run, tmp_path: Path) -> None:
    store = oracle.copy("crash", "base-4.2.0-clean", tmp_path)
    assert run("sql", "SELECT 1", store, "-o", store / "out.csv")[0] == ExitStatus.REFUSED
    (tmp_path / "there.csv").write_text("")
    assert run("sql", "SELECT 1", store, "-o", tmp_path / "there.csv")[0] == ExitStatus.REFUSED


def test_temporary_files_do_not_go_into_a_store(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = oracle.copy("crash", "base-4.2.0-clean", tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(store))
    before = oracle.snapshot(store)
    assert run("sql", "SELECT 1", store)[0] == ExitStatus.REFUSED
    assert oracle.differences(before, oracle.snapshot(store)) == []


def test_without_the_library_a_sentence_says_how_to_get_it(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmqinspect.cli.sql.find_spec", lambda _: None)
    status, _, err = run("sql", "SELECT 1", FLIPPED)
    assert (status, err.count("\n")) == (ExitStatus.USAGE, 1)
    assert "pip install '.[sql]' in a clone of rmqinspect" in err


# --- what comes of it -------------------------------------------------------------------------------


def test_the_exit_status_is_that_of_decode(run: Run, tmp_path: Path) -> None:
    assert run("sql", "FROM messages", FLIPPED, "-q", "-f", "csv")[0] == ExitStatus.DAMAGE
    assert run("sql", "SELECT count(*) FROM messages", FLIPPED, "-q")[0] == ExitStatus.DAMAGE
    assert run("sql", "SELECT count(*) FROM messages", FLIPPED, "-q", "--fail-on", "never")[0] == ExitStatus.DONE
    assert run("sql", "SELECT count(*) FROM messages WHERE topic = 'one'", FLIPPED, "-q")[0] == ExitStatus.DONE
    assert run("sql", "SELECT count(*) FROM queues", FLIPPED, "-q")[0] == ExitStatus.DONE
    assert run("sql", "SELECT 1", tmp_path / "missing")[0] == ExitStatus.UNREADABLE


def test_a_file_that_cannot_be_read_is_told(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = oracle.copy("crash", "base-5.3.3-halt", tmp_path)
    real = os.open

    def refuse(path: Any, *rest: Any, **more: Any) -> int:
        if str(path).endswith("commitlog/00000000000000065536"):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, *rest, **more)

    monkeypatch.setattr(os, "open", refuse)
    status, out, err = run("sql", "SELECT count(*) AS n FROM messages", store, "-f", "json")
    if status == 0:
        pytest.skip("files are opened in another way")
    assert (status, json.loads(out)["complete"]) == (ExitStatus.UNREADABLE, False), err
    assert "Permission denied" in err


def test_every_format_has_the_types_of_a_result(run: Run, tmp_path: Path) -> None:
    query = """SELECT sum(size) AS total, avg(size) AS mean, {'a': 1, 'b': 'x'} AS part, DATE '2026-11-21' AS day,
        INTERVAL 90 SECOND AS span, map {'k': 2} AS pairs, [1, 2] AS list, NULL AS nothing,
        1.50::DECIMAL(9, 2) AS price,
        'nan'::DOUBLE AS odd, max(store_timestamp) AS last, 'x'::ENUM ('x', 'y') AS word, max(body) AS body,
        TIME '10:00' AS clock, [DATE '2026-11-21'] AS days FROM messages WHERE topic = 'one'"""
    (row,) = rows(run, query, FLIPPED)
    assert row["total"] == 12_816 or row["total"] > 1000
    assert {
        name: row[name] for name in ("part", "day", "pairs", "list", "nothing", "price", "odd", "word", "clock")
    } == {
        "part": '{"a":1,"b":"x"}',
        "day": "2026-11-21",
        "pairs": {"k": 2},
        "list": [1, 2],
        "nothing": None,
        "price": 1.5,
        "odd": None,
        "word": "x",
        "clock": "10:00:00",
    }
    assert row["last"].startswith("2026-11-21T08:48:4")
    for format_ in ("table", "csv", "jsonl"):
        assert run("sql", query, FLIPPED, "-f", format_)[0] == 0
    for name in ("out.parquet", "out.arrow"):
        assert run("sql", query, FLIPPED, "-o", tmp_path / name)[0] == 0
    read = pq.read_table(tmp_path / "out.parquet")
    assert (str(read.schema.field("day").type), str(read.schema.field("last").type)) == (
        "date32[day]",
        "timestamp[us, tz=UTC]",
    )


@pytest.mark.parametrize(
    "type_",
    [pa.bool_(), pa.int8(), pa.int64(), pa.float64(), pa.date32(), pa.time64("us"), TIMESTAMP, pa.decimal128(18, 3)],
    ids=str,
)
@pytest.mark.parametrize("start", [0, 3])
def test_equal_rows_are_equal_bytes(type_: pa.DataType, start: int) -> None:
    valid = 0b01101101

    def rows_over(memory: int) -> pa.RecordBatch:
        if type_ == pa.bool_():
            values = bytes([memory & ~valid & 0xFF])
        else:
            size = type_.bit_width // 8
            values = b"".join(bytes(size) if valid >> i & 1 else bytes([memory]) * size for i in range(8))
        array = pa.Array.from_buffers(type_, 8, [pa.py_buffer(bytes([valid])), pa.py_buffer(values)])
        return pa.RecordBatch.from_arrays([array.slice(start, 5)], names=["a"])

    schema = pa.schema([("a", type_)])
    given, written = [], []
    for memory in (0, 0x5A):
        batch = rows_over(memory)
        assert as_written(batch, schema).equals(batch)
        given.append(batch.serialize().to_pybytes())
        written.append(as_written(batch, schema).serialize().to_pybytes())
    assert given[0] != given[1]
    assert written[0] == written[1]


@pytest.mark.parametrize("format_", ["json", "csv", "parquet"])
def test_columns_of_one_name_are_told_apart(run: Run, tmp_path: Path, format_: str) -> None:
    query = """SELECT m.store, m.size, u.store, u.size, 1 AS size_1
        FROM messages m JOIN queue_units u USING (physical_offset)"""
    assert run("sql", query, FLIPPED, "-o", tmp_path / "out", "-f", format_)[0] in (0, 3)
    match format_:
        case "json":
            names = list(json.loads((tmp_path / "out").read_bytes())["rows"][0])
        case "csv":
            names = (tmp_path / "out").read_text().splitlines()[0].split(",")
        case _:
            names = pq.read_table(tmp_path / "out").schema.names
    assert names == ["store", "size", "store_1", "size_2", "size_1"]


def test_times_are_in_the_zone_that_is_asked_for(run: Run) -> None:
    query = "SELECT count(*) AS n, min(store_timestamp) AS first FROM messages WHERE store_timestamp >= '{}'"
    (utc,) = rows(run, query.format("2026-11-21 08:48:45"), FLIPPED)
    status, out, _ = run(
        "sql", query.format("2026-11-21 16:48:45"), FLIPPED, "-f", "json", "-q", "--tz", "Asia/Shanghai"
    )
    (shanghai,) = json.loads(out)["rows"]
    assert status == 0 and utc["n"] == shanghai["n"] > 0
    assert shanghai["first"].endswith("+08:00")


def test_the_query_comes_from_stdin(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO("SELECT 'größer' AS word".encode())))
    assert rows(run, "-", FLIPPED) == [{"word": "größer"}]


COMMAND = [sys.executable, "-m", "rmqinspect", "sql"]
ENDLESS = "SELECT count(*) FROM messages, range(100000000) a, range(100000000) b"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_query(number: signal.Signals) -> None:
    with subprocess.Popen(
        [*COMMAND, ENDLESS, FLIPPED, "-q"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        time.sleep(4)
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    assert process.returncode in (ExitStatus.INTERRUPTED, ExitStatus.TERMINATED)
    assert out == ""
    assert err in ("rmqinspect: interrupted\n", "")


def test_a_reader_that_goes_away_ends_it_quietly() -> None:
    many = "SELECT i, repeat('x', 100) FROM messages, range(20000) t(i)"
    with subprocess.Popen(
        [*COMMAND, many, FLIPPED, "-q", "-f", "csv"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(60) == 0
        assert process.stderr.read() == b""


def test_what_does_not_fit_into_memory_is_one_line(run: Run) -> None:
    query = "SELECT count(DISTINCT hash(i, physical_offset)), list(i) FROM messages, range(300000) t(i)"
    status, _, err = run("sql", query, FLIPPED, "--memory", "20MB", "-q")
    assert (status, err.count("\n"), "--memory" in err) == (ExitStatus.REFUSED, 1, True)
