"""The frame of the command line: exit statuses, streams, laziness; and decode on stores made by hand."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from msgspec import Struct, field

import rmqinspect.find.plan
import rmqinspect.fleet.given
import rmqinspect.tables.sources
from rmqinspect import errors
from rmqinspect.cli import ExitStatus, exit_status, status_of
from rmqinspect.cli.terminal import Progress
from rmqinspect.tables.request import Request
from rmqinspect.tables.table import Table
from rmqinspect.text import parse_size
from tests.support.command import Run, runner

SCHEMA = pa.schema(
    [
        ("physical_offset", pa.int64()),
        ("topic", pa.string()),
        ("store_timestamp", pa.timestamp("us", "UTC")),
        ("body", pa.binary()),
        ("status", pa.string()),
    ]
)
GIB = 1 << 30


class FakeFile(Struct):
    base: int = 0
    size: int = 1000
    lead: int = 0

    @property
    def end(self) -> int:
        return self.base + self.size


class FakeStore(Struct):
    name: str
    given: str = "store"
    paths: tuple[str, ...] = ()
    segments: tuple[FakeFile, ...] = (FakeFile(),)
    segment_size: int | None = None
    log_start: int = 0
    neighbours: bool = True
    queue_files: tuple[FakeFile, ...] = ()
    index_files: tuple[FakeFile, ...] = ()
    config_files: dict[str, FakeFile] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    oddities: tuple[str, ...] = ()
    unread_entries: tuple[str, ...] = ()


def batch(first: int, count: int, topic: str = "orders", status: str = "ok") -> pa.RecordBatch:
    rows = [(n, topic, n * 1_000_000, b"x" * 100, status) for n in range(first, first + count)]
    return pa.RecordBatch.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA)


class Evidence:
    """Stands for stores and one table; records what was asked of it."""

    def __init__(self) -> None:
        self.batches = [batch(0, 3), batch(3, 0), batch(3, 3, "pay")]
        self.requests: list[Request] = []
        self.read = 0
        self.tell: Callable[[Request], None] = lambda request: None
        self.stores: dict[str, FakeStore] = {}

    def open_store(self, paths: Any, **_: Any) -> FakeStore:
        return self.stores.get(paths[0]) or FakeStore(os.path.basename(paths[0]), paths=tuple(paths))

    def rows(self, store: Any, request: Request) -> Iterator[pa.RecordBatch]:
        self.requests.append(request)
        self.tell(request)
        for one in self.batches:
            self.read += 1
            yield one


@pytest.fixture
def evidence(monkeypatch: pytest.MonkeyPatch) -> Evidence:
    made = Evidence()
    brief = ("physical_offset", "topic", "status")
    names = ("messages", "gaps", "queue_units", "index_entries", "checkpoint", "topics", "groups")
    tables = {name: Table(name, SCHEMA, brief, made.rows) for name in names}
    monkeypatch.setattr(rmqinspect.tables, "TABLES", tables)
    monkeypatch.setattr(rmqinspect.tables.sources, "message_rows", made.rows)
    monkeypatch.setattr(rmqinspect.fleet.given, "open_store", made.open_store)
    monkeypatch.setattr(rmqinspect.find.plan, "plan_look_up", lambda *_: None)  # there are no files to look into
    return made


run = runner()


def offsets(out: str) -> list[int]:
    return [json.loads(line)["physical_offset"] for line in out.splitlines()]


# The frame.


def test_help_imports_no_heavy_library() -> None:
    program = (
        "import sys; from rmqinspect.cli import main\n"
        "for words in (['--help'], ['decode', '-h'], ['--version']): main(words)\n"
        "print([name for name in 'pyarrow numpy rich pyspark construct'.split() if name in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert out.endswith("[]\n")


@pytest.mark.parametrize("arguments", [("--help",), ("decode", "--help"), ("decode", "-h")])
def test_help_has_an_example(run: Run, arguments: tuple[str, ...]) -> None:
    status, out, _ = run(*arguments)
    assert (status, "Examples:\n" in out, "rmqinspect decode STORE" in out) == (ExitStatus.DONE, True, True)


def test_the_version_is_printed(run: Run) -> None:
    status, out, _ = run("--version")
    assert (status, out.split()[0]) == (0, "rmqinspect")


@pytest.mark.parametrize(
    ("arguments", "right"),
    [
        ("decoed S", "decode?"),
        ("--nonsense", ""),
        ("decode", ""),
        ("decode S -n x", ""),
        ("decode S --offset 9..1", ""),
        ("decode S --since soon", ""),
        ("decode S --tz Mars", ""),
        ("decode S --redact everything", ""),
        ("decode S --max-body big", ""),
        ("decode S --table tabels", "messages"),
        ("decode S --columns topic,nonsense", "physical_offset"),
        ("decode S -k K1", "--key"),
        ("decode a=S a=T", "Give NAME=STORE"),
    ],
)
def test_wrong_usage_is_status_2_writes_nothing_and_names_what_is_right(
    run: Run, evidence: Evidence, arguments: str, right: str
) -> None:
    status, out, err = run(*arguments.split())
    assert (status, out) == (ExitStatus.USAGE, "")
    assert "Traceback" not in err and right in err


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (errors.NotAStore, 4),
        (errors.Unreadable, 4),
        (errors.BadRecord, 3),
        (errors.NothingFound, 5),
        (errors.RecordLost, 3),
        (errors.Refused, 6),
    ],
)
def test_an_error_is_one_line_and_a_status(
    run: Run, monkeypatch: pytest.MonkeyPatch, error: type[errors.RmqinspectError], status: int
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise error("segment \x1b[31m: not there")

    monkeypatch.setattr(rmqinspect.fleet.given, "open_store", fail)
    assert run("decode", "S") == (status, "", "rmqinspect: segment \\x1b[31m: not there\n")
    assert status_of(error("x")) == status


def test_ctrl_c_is_130_and_says_so(run: Run, evidence: Evidence) -> None:
    def interrupt(_: Request) -> None:
        raise KeyboardInterrupt

    evidence.tell = interrupt
    status, out, err = run("decode", "S", "-f", "json")
    assert status == ExitStatus.INTERRUPTED
    assert json.loads(out)["complete"] is False
    assert err.strip() == "rmqinspect: interrupted"


def test_a_bug_asks_for_a_report_without_a_traceback() -> None:
    program = "import rmqinspect.cli as c; c.group = None; c.main(['id'])"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ended.returncode == ExitStatus.BUG
    assert len(ended.stderr.splitlines()) == 1
    assert "report" in ended.stderr


def test_a_closed_pipe_ends_quietly() -> None:
    program = (
        "import sys, rmqinspect.fleet.given, rmqinspect.tables, tests.cli.test_frame as t, rmqinspect.cli\n"
        "made = t.Evidence(); made.batches = [t.batch(0, 5000)] * 50\n"
        "rmqinspect.tables.TABLES = {'messages': t.Table('messages', t.SCHEMA, ('topic',), made.rows)}\n"
        "rmqinspect.fleet.given.open_store = made.open_store\n"
        "sys.exit(rmqinspect.cli.main(['decode', 'S', '-f', sys.argv[1]]))"
    )
    for format_ in ("table", "jsonl", "parquet"):
        with subprocess.Popen(
            [sys.executable, "-c", program, format_], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as ended:
            assert ended.stdout is not None and ended.stderr is not None
            ended.stdout.read(1)
            ended.stdout.close()
            assert ended.stderr.read() == b""
        assert ended.returncode == ExitStatus.DONE


def test_help_into_a_closed_pipe_is_quiet() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    program = "import sys; from rmqinspect.cli import main; sys.exit(main(['--help']))"
    ended = subprocess.run([sys.executable, "-c", program], stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (ExitStatus.DONE, b"")


def test_progress_elsewhere_than_on_a_terminal_is_a_line_every_ten_seconds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = [0.0]
    monkeypatch.setattr("rmqinspect.cli.terminal.time.monotonic", lambda: clock[0])
    for forced, lines in ((True, ["20 %  200.0 MB  20.0 MB/s  ETA 40 s"]), (None, []), (False, [])):
        clock[0] = 0.0
        with Progress(1_000_000_000, forced) as progress:
            progress(100_000_000)
            clock[0] = 10.0
            progress(100_000_000)
            clock[0] = 11.0
            progress(1)
        assert capsys.readouterr().err.splitlines() == lines


def test_sizes_are_read_in_both_units() -> None:
    assert [parse_size(one) for one in ("65536", "200M", "64MiB", "1g")] == [65536, 200_000_000, 64 << 20, 10**9]


# decode


def test_the_table_view_has_the_short_list_and_other_formats_have_all(run: Run, evidence: Evidence) -> None:
    status, out, err = run("decode", "S")
    assert (status, err) == (0, "")
    assert out.splitlines()[:2] == ["physical_offset  topic   status", "              0  orders  ok"]
    row = json.loads(run("decode", "S", "-f", "jsonl")[1].splitlines()[0])
    assert list(row) == ["physical_offset", "topic", "store_timestamp", "body", "body_encoding", "status"]


def test_what_was_inferred_is_said_on_request(run: Run, evidence: Evidence) -> None:
    evidence.stores["S"] = FakeStore("S", remarks=("segment size 65536",))
    assert run("decode", "S")[2] == ""
    assert "segment size 65536" in run("decode", "S", "-v")[2]


@pytest.mark.parametrize(
    ("limit", "remark", "batches"),
    [
        (0, "shown 0, more exist (-n 0)", 1),
        (2, "shown 2, more exist (-n 2)", 1),
        (3, "shown 3, more may exist (-n 3)", 2),  # a batch without hits follows, and is not read past
        (6, "6 rows, complete", 3),
        (7, "6 rows, complete", 3),
    ],
)
def test_a_limit_says_whether_more_exist(run: Run, evidence: Evidence, limit: int, remark: str, batches: int) -> None:
    status, out, err = run("decode", "S", "-n", str(limit), "-f", "jsonl")
    assert (status, offsets(out), err) == (0, [*range(min(limit, 6))], f"{remark}\n")
    assert evidence.read == batches


def test_a_row_with_a_bad_status_is_written_and_ends_with_3(run: Run, evidence: Evidence) -> None:
    evidence.batches.append(batch(6, 1, status="body_crc"))
    status, out, err = run("decode", "S", "-f", "jsonl")
    assert (status, len(out.splitlines())) == (ExitStatus.DAMAGE, 7)
    assert err == "7 rows, complete; 1 damaged (status not ok)\n"
    assert run("decode", "S", "--fail-on", "never")[0] == 0
    assert run("decode", "S", "--offset", "0..6")[0] == 0
    assert run("decode", "S", "-q")[2] == ""


def test_a_gap_in_the_range_asked_for_ends_with_3(run: Run, evidence: Evidence) -> None:
    def tell(request: Request) -> None:
        assert request.on_gap is not None
        request.on_gap("unknown", 100, 150)
        request.on_gap("unknown", 150, 200)
        request.on_gap("zeros", 2000, 3000)

    evidence.tell = tell
    assert run("decode", "S")[0] == ExitStatus.DAMAGE
    assert "2 gaps in the range read: 1 100 bytes" in run("decode", "S")[2]
    assert run("decode", "S", "--offset", "0..100")[0] == 0
    assert run("decode", "S", "--offset", "199..300")[0] == ExitStatus.DAMAGE


def test_what_cannot_be_read_ends_with_4_and_an_incomplete_document(run: Run, evidence: Evidence) -> None:
    def tell(request: Request) -> None:
        assert request.on_unreadable is not None
        request.on_unreadable("commitlog/0: Input/output error")

    evidence.tell = tell
    status, out, err = run("decode", "S", "-f", "json", "-q")
    assert status == ExitStatus.UNREADABLE
    assert json.loads(out)["complete"] is False
    assert err == "commitlog/0: Input/output error\n"
    evidence.batches.append(batch(6, 1, status="body_crc"))
    status, out, _ = run("decode", "S", "-f", "json")
    assert (status, json.loads(out)["complete"]) == (ExitStatus.DAMAGE, False)


def test_a_store_that_fails_does_not_hide_the_next_one(run: Run, evidence: Evidence) -> None:
    def tell(_: Request) -> None:
        if len(evidence.requests) == 1:
            raise errors.Unreadable("a: gone")

    evidence.tell = tell
    status, out, err = run("decode", "x/a", "x/b", "-f", "jsonl")
    assert (status, len(out.splitlines())) == (ExitStatus.UNREADABLE, 6)
    assert err == "a: gone\n6 rows, incomplete\n"


def test_several_stores_have_the_column_store_first(run: Run, evidence: Evidence) -> None:
    _, out, _ = run("decode", "x/a", "x/b", "-f", "csv", "--columns", "all")
    assert out.splitlines()[0].startswith("store,physical_offset,")
    assert out.splitlines()[-1].startswith("b,5,")
    _, out, _ = run("decode", "x/a", "x/b")
    assert out.splitlines()[0].split() == ["store", "physical_offset", "topic", "status"]


def test_a_topic_that_matches_nothing_ends_with_5_and_near_names(run: Run, evidence: Evidence) -> None:
    status, _, err = run("decode", "S", "-t", "order")
    assert (status, err) == (ExitStatus.NOTHING_FOUND, "no topic matches order; near: orders\n")
    assert run("decode", "S", "-t", "order*")[0] == 0


def test_filters_reach_the_request_and_the_rows(run: Run, evidence: Evidence) -> None:
    _, out, _ = run("decode", "S", "-t", "pay", "--offset", "4..", "--columns", "physical_offset", "-f", "jsonl")
    assert offsets(out) == [4, 5]
    request = evidence.requests[0]
    assert request.offsets == (4, 1 << 63)
    assert request.columns == frozenset({"physical_offset", "topic", "status"})


def test_last_counts_from_the_last_record_of_each_store(run: Run, evidence: Evidence) -> None:
    assert offsets(run("decode", "S", "--since", "last-1s", "-f", "jsonl")[1]) == [4, 5]


def test_bodies_are_previewed_in_the_table_and_whole_elsewhere(run: Run, evidence: Evidence) -> None:
    def body(*options: str) -> Any:
        out = run("decode", "S", "-n", "1", "--columns", "body", *options)[1]
        return json.loads(out)["body"] if "jsonl" in options else out.splitlines()[1]

    assert body() == "x" * 60 + "…"
    assert body("--body", "full") == "x" * 100
    assert body("-f", "jsonl") == "x" * 100
    assert body("-f", "jsonl", "--body", "preview") == "x" * 60
    assert body("-f", "jsonl", "--body", "none") is None
    assert body("-f", "jsonl", "--redact", "body") is None


def test_no_body_is_asked_for_when_none_is_shown(run: Run, evidence: Evidence) -> None:
    run("decode", "S", "-f", "jsonl", "--body", "none")
    run("decode", "S")
    run("decode", "S", "--body", "none", "--body-contains", "x")
    asked = [request.columns and "body" in request.columns for request in evidence.requests]
    assert asked == [False, False, True]


@pytest.mark.parametrize(
    ("given", "table"),
    [
        (FakeStore("S"), "messages"),
        (FakeStore("S", "segment"), "messages"),
        (FakeStore("S", "queue"), "queue_units"),
        (FakeStore("S", "index"), "index_entries"),
        (FakeStore("S", "checkpoint"), "checkpoint"),
        (FakeStore("S", "config", config_files={"topics.json": FakeFile()}), "topics"),
        (FakeStore("S", "config", config_files={"consumerOffset.json.bak": FakeFile()}), "groups"),
    ],
)
def test_the_table_is_chosen_by_what_was_given(run: Run, evidence: Evidence, given: FakeStore, table: str) -> None:
    evidence.stores["S"] = given
    assert f"The table {table} has no column" in run("decode", "S", "-k", "K")[2]


def test_reading_more_than_a_gibibyte_is_announced(run: Run, evidence: Evidence) -> None:
    evidence.stores["S"] = FakeStore("S", segments=(FakeFile(0, GIB), FakeFile(GIB, GIB)))
    assert "2.1 GB to read" in run("decode", "S")[2]
    assert "to read" not in run("decode", "S", "--offset", "0..100")[2]
    assert "to read" not in run("decode", "S", "-n", "5")[2]
    assert "to read" in run("decode", "S", "-n", "5", "-t", "pay")[2]


def test_the_format_follows_the_name_of_the_output(run: Run, evidence: Evidence, tmp_path: Path) -> None:
    for name, start in (
        ("a.jsonl", b"{"),
        ("a.csv", b"physical"),
        ("a.parquet", b"PAR1"),
        ("a.txt", b"physical_offset  "),
    ):
        assert run("decode", "S", "-o", str(tmp_path / name))[0] == 0
        assert (tmp_path / name).read_bytes().startswith(start)
    assert run("decode", "S", "-o", str(tmp_path / "a.csv"))[0] == ExitStatus.REFUSED
    assert sorted(os.listdir(tmp_path)) == ["a.csv", "a.jsonl", "a.parquet", "a.txt"]


def test_a_binary_format_is_not_for_a_terminal(run: Run, evidence: Evidence, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    for format_ in ("parquet", "arrow"):
        status, out, err = run("decode", "S", "-f", format_)
        assert (status, out, "terminal" in err) == (ExitStatus.USAGE, "", True)


def test_colour_follows_the_terminal_and_no_color(
    run: Run, evidence: Evidence, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b" not in run("decode", "S")[1]
    assert "\x1b" in run("decode", "S", "--color", "always")[1]
    monkeypatch.setattr("rmqinspect.cli.options.sys.stdout.isatty", lambda: True)
    assert "\x1b" in run("decode", "S")[1]
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in run("decode", "S")[1]


@pytest.mark.parametrize(
    ("damaged", "unread", "missed", "status", "forgiven"),
    [
        (True, True, True, ExitStatus.DAMAGE, ExitStatus.UNREADABLE),
        (True, False, False, ExitStatus.DAMAGE, ExitStatus.DONE),
        (False, True, True, ExitStatus.UNREADABLE, ExitStatus.UNREADABLE),
        (False, False, True, ExitStatus.NOTHING_FOUND, ExitStatus.NOTHING_FOUND),
        (False, False, False, ExitStatus.DONE, ExitStatus.DONE),
    ],
)
def test_damage_comes_before_what_is_unread_and_that_before_what_is_missed(
    damaged: bool, unread: bool, missed: bool, status: ExitStatus, forgiven: ExitStatus
) -> None:
    assert exit_status("error", damaged=damaged, unread=unread, missed=missed) == status
    assert exit_status("never", damaged=damaged, unread=unread, missed=missed) == forgiven
