"""Record batches in every format: what a stranger's text may do to it, how it ends, and where it goes."""

import csv
import io
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import duckdb
import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqinspect import text
from rmqinspect.errors import Refused
from rmqinspect.output import FORMATS, View, cut_bodies, open_writer
from rmqinspect.output.columnar import GROUP_ROWS
from rmqinspect.output.rows import csv_lines, json_objects
from rmqinspect.tables import redact

SCHEMA = pa.schema(
    [
        ("physical_offset", pa.int64()),
        ("topic", pa.string()),
        ("keys", pa.list_(pa.string())),
        ("store_timestamp", pa.timestamp("us", "UTC")),
        ("tags_code", pa.int64()),
        ("body_crc_ok", pa.bool_()),
        ("body", pa.binary()),
        ("properties", pa.map_(pa.string(), pa.string())),
        ("status", pa.string()),
    ]
)
ROW: dict[str, Any] = {
    "physical_offset": 525,
    "topic": "orders",
    "keys": ["K2"],
    "store_timestamp": datetime(2022, 3, 2, 2, 4, 22, 123000, UTC),
    "tags_code": (1 << 53) + 1,
    "body_crc_ok": True,
    "body": b"hello",
    "properties": [("KEYS", "K2"), ("city", "Köln")],
    "status": "ok",
}
HOSTILE = 'a\x1b[31m\x9b"\\\u202e\u2066\r\n\t,\x00\x7f[bold]付\U000e0041'


def batch_of(*rows: dict[str, Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{**ROW, **row} for row in rows], SCHEMA)


def write(tmp_path: Path, format_: str, *batches: pa.RecordBatch, view: View | None = None) -> bytes:
    path = tmp_path / f"out.{format_}"
    with open_writer(format_, batches[0].schema, str(path), view=view) as writer:
        for batch in batches:
            writer.write(batch)
    return path.read_bytes()


def json_rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    return [json.loads(line) for line in json_objects(batch, UTC).to_pylist()]


def test_a_json_line_has_each_column_and_the_encoding_of_the_body(tmp_path: Path) -> None:
    assert write(tmp_path, "jsonl", batch_of({})).decode() == (
        '{"physical_offset":525,"topic":"orders","keys":["K2"],"store_timestamp":"2022-03-02T02:04:22.123Z",'
        '"tags_code":"9007199254740993","body_crc_ok":true,"body":"hello","body_encoding":"utf-8",'
        '"properties":{"KEYS":"K2","city":"Köln"},"status":"ok"}\n'
    )


def test_a_json_document_says_at_its_end_whether_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    with open_writer("json", SCHEMA, str(path), view=View(redacted=("body",))) as writer:
        writer.write(batch_of({}, {}))
        writer.write(batch_of({}))
        writer.complete = False
    document = json.loads(path.read_text())
    assert document["schema_version"] == 1
    assert document["tool"].startswith("rmqinspect ")
    assert document["redacted"] == ["body"]
    assert (document["complete"], document["more"]) == (False, False)
    assert len(document["rows"]) == 3


@pytest.mark.parametrize("format_", FORMATS)
def test_no_rows_are_a_valid_output_in_every_format(tmp_path: Path, format_: str) -> None:
    raw = write(tmp_path, format_, batch_of().slice(0, 0))
    if format_ == "json":
        assert json.loads(raw)["rows"] == []
    if format_ == "parquet":
        assert pq.read_table(io.BytesIO(raw)).num_rows == 0
    if format_ == "table":
        assert raw.decode().split() == SCHEMA.names


def test_nulls_and_empty_values_differ_in_json() -> None:
    empty, null = json_rows(
        batch_of(
            {"topic": "", "keys": [], "properties": [], "body": b""},
            dict.fromkeys(SCHEMA.names),
        )
    )
    assert (empty["topic"], empty["keys"], empty["properties"], empty["body"]) == ("", [], {}, "")
    assert set(null) == {*SCHEMA.names, "body_encoding"}
    assert set(null.values()) == {None}


def test_a_body_that_is_no_text_is_base64_and_its_neighbours_stay_text() -> None:
    rows = json_rows(batch_of({"body": b"\xff\x00"}, {"body": "付款".encode()}, {"body": None}))
    assert [(row["body"], row["body_encoding"]) for row in rows] == [
        ("/wA=", "base64"),
        ("付款", "utf-8"),
        (None, None),
    ]


def test_json_of_a_slice_is_the_json_of_its_rows() -> None:
    batch = batch_of(
        *({"physical_offset": n, "keys": ["k"] * n, "properties": [("n", str(n))] * (n > 1)} for n in range(5))
    )
    assert json_rows(batch.slice(2, 2)) == json_rows(batch)[2:4]


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), min_size=1, max_size=5))
def test_any_text_comes_back_from_json_and_nothing_hostile_is_written_raw(texts: list[str]) -> None:
    batch = batch_of(
        *({"topic": one, "keys": [one], "body": one.encode(), "properties": [(one, one)]} for one in texts)
    )
    lines = json_objects(batch, UTC).to_pylist()
    for one, line in zip(texts, lines, strict=True):
        row = json.loads(line)
        assert (row["topic"], row["keys"], row["body"], row["properties"]) == (one, [one], one, {one: one})
        assert text.escape(line) == line


@given(st.lists(st.text(max_size=8), min_size=1, max_size=4))
def test_csv_fields_come_back_through_a_csv_reader(texts: list[str]) -> None:
    texts = [one.encode("utf-8", "replace").decode() for one in texts]
    batch = batch_of(*({"topic": one, "keys": [one]} for one in texts)).select(["topic", "keys"])
    lines = "".join(csv_lines(batch, UTC).to_pylist())
    rows = list(csv.reader(io.StringIO(lines, newline="")))
    assert [(row[0], json.loads(row[1])) for row in rows] == [(text.escape(one), [one]) for one in texts]


def test_csv_has_a_header_and_tells_null_from_the_empty_text(tmp_path: Path) -> None:
    batch = batch_of({"topic": None}, {"topic": ""}, {"topic": 'a,"b"'}).select(["topic", "status"])
    assert write(tmp_path, "csv", batch).decode() == 'topic,status\n,ok\n"",ok\n"a,""b""",ok\n'


def test_csv_keeps_what_a_spreadsheet_would_take_for_a_formula(tmp_path: Path) -> None:
    """It is data for programs, and lossless; docs/tables.md says how to open it in a spreadsheet."""
    topics = ["=1+2", "+1", "-1", "@x"]
    lines = csv_lines(pa.record_batch({"topic": topics}), UTC).to_pylist()
    assert [row for (row,) in csv.reader(lines)] == topics


def test_a_body_with_control_characters_is_base64_in_csv(tmp_path: Path) -> None:
    batch = batch_of({"body": b"\x1b[2J"}, {"body": b"two\nlines"}, {"body": b"\xff"}).select(["body"])
    out = write(tmp_path, "csv", batch).decode()
    assert out == 'body,body_encoding\nG1sySg==,base64\n"two\nlines",utf-8\n/w==,base64\n'


@pytest.mark.parametrize("format_", ["table", "jsonl", "json", "csv"])
def test_hostile_text_never_reaches_a_terminal_raw(tmp_path: Path, format_: str) -> None:
    hostile = {
        "topic": HOSTILE,
        "keys": [HOSTILE],
        "body": HOSTILE.encode(),
        "properties": [(HOSTILE, HOSTILE)],
    }
    out = write(tmp_path, format_, batch_of(hostile, {"status": HOSTILE}), view=View(width=1000)).decode()
    for line in out.splitlines():
        assert text.escape(line) == line
    assert "付" in out
    assert "[bold]" in out


def test_the_table_view_aligns_numbers_right_and_texts_left(tmp_path: Path) -> None:
    batch = batch_of({}, {"physical_offset": 1502, "topic": None, "keys": ["K6", "付款"], "status": "body_crc"})
    out = write(tmp_path, "table", batch.select(["physical_offset", "topic", "keys", "store_timestamp", "status"]))
    assert out.decode().splitlines() == [
        "physical_offset  topic   keys     store_timestamp           status",
        "            525  orders  K2       2022-03-02T02:04:22.123Z  ok",
        "           1502  -       K6 付款  2022-03-02T02:04:22.123Z  body_crc",
    ]


def test_a_pipe_cuts_nothing_and_a_terminal_cuts_to_its_width(tmp_path: Path) -> None:
    batch = batch_of({"topic": "t" * 300}).select(["physical_offset", "topic", "status"])
    assert "t" * 300 in write(tmp_path, "table", batch).decode()
    (tmp_path / "out.table").unlink()
    lines = write(tmp_path, "table", batch, view=View(width=50)).decode().splitlines()
    assert all(len(line) <= 50 for line in lines)
    assert "t…  ok" in lines[1]


@pytest.mark.parametrize(
    ("width", "chosen", "header", "left_out"),
    [
        (62, False, "physical_offset  topic  keys  store_timestamp           status", []),
        (54, False, "physical_offset  topic  keys  store_timestamp", ["status"]),
        (50, False, "physical_offset  keys  store_timestamp", ["topic", "status"]),
        (44, False, "physical_offset  0", []),
        (25, False, "physical_offset  0", []),
        (50, True, "physical_offset  0", []),
    ],
)
def test_a_narrow_terminal_leaves_out_the_widest_columns_and_at_last_shows_a_value_per_line(
    tmp_path: Path, width: int, chosen: bool, header: str, left_out: list[str]
) -> None:
    batch = batch_of({"physical_offset": 0, "topic": "t", "keys": ["k"]}).select(
        ["physical_offset", "topic", "keys", "store_timestamp", "status"]
    )
    with open_writer("table", batch.schema, str(tmp_path / "out"), view=View(width=width, chosen=chosen)) as writer:
        writer.write(batch)
    lines = (tmp_path / "out").read_text().splitlines()
    assert lines[0] == header
    assert max(map(len, lines)) <= width
    assert writer.left_out == left_out


def test_a_status_is_left_out_while_it_is_sound_and_ends_the_line_of_a_later_row_that_is_not(tmp_path: Path) -> None:
    sound, bad = batch_of({"keys": ["K1"]}), batch_of({"keys": ["K2"], "status": "body_crc"})
    names = ["physical_offset", "topic", "keys", "store_timestamp", "status"]

    def lines(*batches: pa.RecordBatch) -> list[str]:
        with open_writer("table", sound.select(names).schema, str(tmp_path / "out"), view=View(width=57)) as writer:
            for batch in batches:
                writer.write(batch.select(names))
        text_ = (tmp_path / "out").read_text()
        (tmp_path / "out").unlink()
        return text_.splitlines()

    assert lines(sound, bad) == [
        "physical_offset  topic   keys  store_timestamp",
        "            525  orders  K1    2022-03-02T02:04:22.123Z",
        "            525  orders  K2    2022-03-02T02:04:22.123Z  body_crc",
    ]
    assert lines(bad)[0] == "physical_offset  keys  store_timestamp           status"


def test_the_same_rows_look_the_same_in_any_batches(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"topic": "x" * n} for n in range(1, 30)]
    whole = write(tmp_path, "table", batch_of(*rows))
    (tmp_path / "out.table").unlink()
    assert write(tmp_path, "table", *(batch_of(row) for row in rows)) == whole


def test_colour_is_in_the_header_and_in_a_bad_status_only(tmp_path: Path) -> None:
    batch = batch_of({}, {"status": "stale"}).select(["topic", "status"])
    header, good, bad = write(tmp_path, "table", batch, view=View(colour=True)).decode().splitlines()
    assert header.startswith("\x1b[1m")
    assert "\x1b" not in good
    assert bad == "orders  \x1b[31mstale \x1b[0m"


def test_a_preview_is_cut_at_a_character_and_marked() -> None:
    assert text.escape_bytes("付款".encode(), 4) == "付…"
    assert text.escape_bytes(b"\xff\x01\x02", 2) == "0xff01…"
    assert text.escape_bytes(b"a\x1bb") == r"a\x1bb"
    assert cut_bodies(batch_of({"body": "付款".encode()}), 4).column("body").to_pylist() == ["付".encode()]


def test_times_in_another_zone_carry_its_offset(tmp_path: Path) -> None:
    batch = batch_of({}).select(["store_timestamp"])
    out = write(tmp_path, "csv", batch, view=View(zone=ZoneInfo("Asia/Shanghai")))
    assert out.decode().splitlines()[1] == "2022-03-02T10:04:22.123+08:00"


def test_parquet_keeps_values_and_says_version_and_completeness(tmp_path: Path) -> None:
    raw = write(tmp_path, "parquet", batch_of({}, {"body": None}))
    file = pq.ParquetFile(io.BytesIO(raw))
    metadata = file.metadata.metadata
    assert (metadata[b"schema_version"], metadata[b"complete"]) == (b"1", b"true")
    assert file.read().to_pylist() == batch_of({}, {"body": None}).to_pylist()
    assert file.schema_arrow.equals(SCHEMA)
    column = file.metadata.row_group(0).column(0)
    assert (column.compression, column.is_stats_set) == ("ZSTD", True)


def test_parquet_has_dictionaries_and_statistics_where_they_are_of_use(tmp_path: Path) -> None:
    group = pq.ParquetFile(io.BytesIO(write(tmp_path, "parquet", batch_of({})))).metadata.row_group(0)
    columns = [group.column(i) for i in range(group.num_columns)]
    both = {"topic", "store_timestamp", "tags_code", "status"}
    dictionaries = {column.path_in_schema for column in columns if column.has_dictionary_page}
    assert dictionaries == both | {"properties.key_value.key"}
    statistics = {column.path_in_schema for column in columns if column.is_stats_set}
    assert statistics == both | {"physical_offset", "body_crc_ok"}


def test_parquet_row_groups_do_not_depend_on_how_rows_came(tmp_path: Path) -> None:
    numbers = pa.record_batch({"n": pa.array(range(GROUP_ROWS + 10), pa.int64())})
    raw = write(tmp_path, "parquet", numbers.slice(0, 7), numbers.slice(7, 50_000), numbers.slice(50_007))
    metadata = pq.ParquetFile(io.BytesIO(raw)).metadata
    assert [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)] == [GROUP_ROWS, 10]


def write_arrow(path: str | None) -> None:
    with open_writer("arrow", SCHEMA, path) as writer:
        writer.write(batch_of({}))
        writer.write(batch_of({"topic": "b"}))


def test_an_arrow_file_is_read_by_pandas_and_duckdb(tmp_path: Path) -> None:
    path = str(tmp_path / "rows.arrow")
    write_arrow(path)
    with pa.ipc.open_file(path) as reader:
        assert reader.schema.metadata[b"schema_version"] == b"1"
    assert list(pd.read_feather(path)["topic"]) == ["orders", "b"]
    rows = pa.dataset.dataset(path, format="arrow")  # noqa: F841  # DuckDB finds it by its name
    assert duckdb.execute("SELECT topic FROM rows").fetchall() == [("orders",), ("b",)]


def test_a_pipe_gets_an_arrow_stream(tmp_path: Path) -> None:
    """A pipe cannot be read from its end, where the footer of an Arrow file is; stdout may also be a file."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with ThreadPoolExecutor(1) as pool:
        raw = pool.submit(fifo.read_bytes)
        write_arrow(str(fifo))
        assert pa.ipc.open_stream(raw.result()).read_all().column("topic").to_pylist() == ["orders", "b"]


def test_stdout_that_is_a_file_gets_an_arrow_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open(tmp_path / "out", "w") as out:
        monkeypatch.setattr(sys, "stdout", out)
        write_arrow(None)
        monkeypatch.undo()
    with open(tmp_path / "out", "a") as out:
        monkeypatch.setattr(sys, "stdout", out)
        write_arrow(None)
        monkeypatch.undo()
    whole = (tmp_path / "out").read_bytes()
    end = whole.index(b"ARROW1", 8) + len(b"ARROW1")
    assert pa.ipc.open_file(whole[:end]).read_all().num_rows == 2
    assert pa.ipc.open_stream(whole[end:]).read_all().num_rows == 2  # appended: not at the start of its file


@pytest.mark.parametrize("format_", FORMATS)
def test_a_failure_leaves_no_file_behind(tmp_path: Path, format_: str) -> None:
    with pytest.raises(ZeroDivisionError), open_writer(format_, SCHEMA, str(tmp_path / "out")) as writer:
        writer.write(batch_of({}))
        assert not (tmp_path / "out").exists()
        raise ZeroDivisionError
    assert os.listdir(tmp_path) == []


def test_an_existing_output_is_refused_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    path.write_text("mine")
    with pytest.raises(Refused, match="exists"), open_writer("csv", SCHEMA, str(path)):
        pass
    assert path.read_text() == "mine"


@pytest.mark.parametrize("given_as", ["", "commitlog", "commitlog/00000000000000000000"])
def test_an_output_inside_the_store_is_refused(tmp_path: Path, given_as: str) -> None:
    store = tmp_path / "store"
    (store / "commitlog").mkdir(parents=True)
    (store / "commitlog" / "00000000000000000000").touch()
    (tmp_path / "link").symlink_to(store)
    before = sorted(store.rglob("*"))
    for place in (store, store / "commitlog", tmp_path / "link"):
        evidence = [str(store / given_as)]
        with (
            pytest.raises(Refused, match="inside"),
            open_writer("csv", SCHEMA, str(place / "o.csv"), evidence=evidence),
        ):
            pass
    assert sorted(store.rglob("*")) == before


def test_an_output_beside_a_loose_segment_is_fine(tmp_path: Path) -> None:
    segment = tmp_path / "00000000000000131072"
    segment.touch()
    with open_writer("csv", SCHEMA, str(tmp_path / "o.csv"), evidence=[str(segment)]):
        pass
    assert (tmp_path / "o.csv").exists()


def test_what_is_no_ordinary_file_is_written_to_directly() -> None:
    with open_writer("csv", SCHEMA, os.devnull) as writer:
        writer.write(batch_of({}))
    assert Path(os.devnull).is_char_device(), "nothing was renamed over it"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize("format_", FORMATS)
def test_a_full_disk_is_said_in_one_line(format_: str) -> None:
    with pytest.raises(Refused, match="No space left"), open_writer(format_, SCHEMA, "/dev/full") as writer:
        writer.write(batch_of({}))


def test_an_interrupted_document_on_stdout_is_ended_as_incomplete(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyboardInterrupt), open_writer("json", SCHEMA) as writer:
        writer.write(batch_of({}))
        raise KeyboardInterrupt
    document = json.loads(capsys.readouterr().out)
    assert (document["complete"], len(document["rows"])) == (False, 1)


@pytest.mark.parametrize("format_", FORMATS)
def test_a_reader_that_goes_away_is_a_broken_pipe_and_nothing_else(
    format_: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    stdout = io.TextIOWrapper(io.FileIO(writing, "wb"))
    monkeypatch.setattr(sys, "stdout", stdout)
    with pytest.raises(BrokenPipeError), open_writer(format_, SCHEMA) as writer:
        for _ in range(3):
            writer.write(batch_of({}))
    monkeypatch.undo()
    stdout.close()


def redacted(words: str) -> dict[str, Any]:
    schema = SCHEMA.append(pa.field("msg_id", pa.string())).append(pa.field("born_port", pa.int32()))
    properties = [("KEYS", "K2"), ("TAGS", "a"), ("UNIQ_KEY", "0A"), ("city", "Köln")]
    row = {**ROW, "msg_id": "0A", "born_port": 1, "properties": properties}
    batch = redact.parse_redaction(words).mask(pa.RecordBatch.from_pylist([row], schema))
    assert batch.schema.equals(schema)
    shown: dict[str, Any] = batch.to_pylist()[0]
    return shown


@pytest.mark.parametrize(
    ("words", "hidden", "hidden_properties"),
    [
        ("hosts", {"msg_id", "born_port"}, {"UNIQ_KEY"}),
        ("keys,tags,body", {"keys", "tags_code", "body"}, {"KEYS", "TAGS"}),
    ],
)
def test_what_a_hidden_value_can_be_read_from_is_hidden_too(
    words: str, hidden: set[str], hidden_properties: set[str]
) -> None:
    row = redacted(words)
    assert {name for name, value in row.items() if value is None} == hidden
    assert {name for name, value in row["properties"] if value is None} == hidden_properties
    assert dict(row["properties"])["city"] == "Köln"


def test_a_keyed_hash_is_the_same_wherever_the_value_stands(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"secret\n")
    row = redacted(f"keys=hash:{tmp_path}/key,properties=hash:{tmp_path}/key")
    expected = redact.hash_value(b"K2", b"secret")
    assert expected.startswith("sha256:")
    assert row["keys"] == [expected]
    assert dict(row["properties"])["city"] == redact.hash_value("Köln".encode(), b"secret")


@pytest.mark.parametrize("words", ["", "bodies", "body=hash", "body=hash:/nonexistent", "keys=sha"])
def test_a_redaction_that_cannot_be_done_is_an_error(words: str) -> None:
    with pytest.raises(ValueError):
        redact.parse_redaction(words)


@pytest.mark.parametrize(
    ("size", "words"),
    [(1, "1 byte"), (326, "326 bytes"), (99_960, "100.0 kB"), (999_960, "1.0 MB"), (320e9, "320.0 GB")],
)
def test_sizes_are_given_in_decimal_units(size: float, words: str) -> None:
    assert text.describe_size(size) == words


def test_numbers_are_grouped_for_people() -> None:
    assert text.group_digits(97187) == "97 187"
    assert text.describe_offset(31651) == "31 651 (0x7ba3)"
    assert (text.count(1, "row"), text.count(1234, "row")) == ("1 row", "1 234 rows")
