r"""Names are data: bytes that are not UTF-8 reach every output, escaped as `\xNN`."""

import json
import shlex
import shutil
import subprocess
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from rmqinspect.commands import SHOW, fill_command, quote, quote_path
from rmqinspect.text import escape, name_text, text_of
from tests.support.command import Run, runner
from tests.support.whole_stores import WholeStore

run = runner()
FORMATS = ("table", "jsonl", "json", "csv", "parquet", "arrow")
TOPIC = b"T\xff\\x"  # in the log, and as a folder of queues
ESCAPED = r"T\xff\x5cx"
STRAY = "commitlog/\udcff"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store whose name, topic and stray file are not UTF-8, with a record that has no unit."""
    pieces = [{"topic": TOPIC if number else "T", "queue_offset": max(0, number - 1)} for number in range(3)]
    folder = WholeStore(pieces, dispatched=1).write(tmp_path / "store\udcff")
    (folder / STRAY).write_bytes(b"x")
    shutil.copytree(folder / "consumequeue" / "T", folder / "consumequeue" / TOPIC.decode("utf-8", "surrogateescape"))
    return folder


@pytest.mark.parametrize(
    "raw", [b"T", b"T\xff", rb"T\xff", rb"\x\\x5c\xff" + b"\xff\xc3", "é\\n".encode(), b"\xed\xb3\xbf"]
)
def test_a_name_can_be_read_back_from_its_text(raw: bytes) -> None:
    text = text_of(raw)
    assert text == name_text(raw.decode("utf-8", "surrogateescape"))
    text.encode()
    pieces = text.split("\\x")
    assert b"".join([pieces[0].encode(), *(bytes.fromhex(p[:2]) + p[2:].encode() for p in pieces[1:])]) == raw


@pytest.mark.parametrize("format_", FORMATS)
def test_findings_are_written_in_every_format(format_: str, store: Path, tmp_path: Path, run: Run) -> None:
    out = tmp_path / "out"
    status, _, errors = run("verify", store, "--level", "deep", "-f", format_, "-o", out)
    assert (status, "Unicode" in errors) == (3, False)
    if format_ == "parquet":
        rows = pq.read_table(out).to_pylist()
        assert ESCAPED in {row["topic"] for row in rows}
        assert r"commitlog/\xff" in {row["file"] for row in rows}
    elif format_ != "arrow":
        written = out.read_text()
        assert (json.dumps(ESCAPED)[1:-1] if "json" in format_ else ESCAPED) in written


@pytest.mark.parametrize("table", ["messages", "queue_units", "queues", "segments"])
@pytest.mark.parametrize("format_", FORMATS)
def test_rows_are_written_in_every_format(format_: str, table: str, store: Path, tmp_path: Path, run: Run) -> None:
    status, _, _ = run("decode", store, "--table", table, "-f", format_, "-o", tmp_path / "out")
    assert status == (3 if table == "messages" else 0)  # its status says invalid_utf8


def test_one_topic_has_one_name_in_all_tables(store: Path, tmp_path: Path, run: Run) -> None:
    names = {}
    for table in ("messages", "queue_units", "queues"):
        run("decode", store, "--table", table, "-f", "parquet", "-o", tmp_path / table)
        names[table] = set(pq.read_table(tmp_path / table)["topic"].to_pylist())
    assert names == {table: {"T", ESCAPED} for table in names}
    status, rows, _ = run("decode", store, "-t", ESCAPED, "-f", "csv", "--columns", "topic")
    assert (status, rows.split()) == (3, ["topic", ESCAPED, ESCAPED])


def test_reports_screens_and_exports_have_the_names(store: Path, tmp_path: Path, run: Run) -> None:
    assert run("verify", store, "--level", "deep", "--hash", "sha256", "--report", tmp_path / "report.json")[0] == 3
    report = json.loads((tmp_path / "report.json").read_text())
    assert ESCAPED in {row["topic"] for row in report["findings"]}
    assert r"commitlog/\xff" in {row["file"] for row in report["custody"]["files"]}
    assert run("verify", store, "--against", tmp_path / "report.json")[0] == 0
    for words in (["info", store], ["info", store, "-f", "json"], ["show", store, "--at", "0"], ["diff", store, store]):
        status, written, _ = run(*words)
        assert status == 0
        written.encode()
    assert run("export", store, "--all", "--engine", "local", "-o", tmp_path / "exported")[0] in (0, 3)
    assert ESCAPED in {row["topic"] for row in pq.read_table(tmp_path / "exported" / "messages").to_pylist()}


NAMES = [bytes([byte]) + b"a1" for byte in range(1, 256)]
NAMES += [
    b"\x1b[0m",
    b"\x1b\x1b",
    rb"\x1b",
    rb"\x1b" + b"\x1b",
    "\u202e\x85é😀'\\".encode(),
    b"'\n\\",
    b"$(id)`id`",
    b"-n",
]


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_a_shell_reads_each_quoted_name_as_its_bytes(locale: str) -> None:
    texts = list(map(text_of, NAMES))
    quoted = [*map(quote_path, texts), *map(quote, texts)]
    assert quoted == list(map(escape, quoted))  # a screen, a pipe and a terminal leave them as they are
    words = ["bash", "-c", r"printf '%s\0' " + " ".join(quoted)]
    read = subprocess.run(words, env={"LC_ALL": locale}, capture_output=True, check=True).stdout.split(b"\0")
    # A topic or a group is asked for by its text.
    assert read == [*NAMES, *(text.encode() for text in texts), b""]


def test_no_output_is_altered_on_its_way_to_a_pipe(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names with codes of a terminal: click takes such codes out of what is no terminal."""
    topic = "T\x1b[31m"
    pieces = [{"topic": topic, "queue_offset": number, "properties": {"KEYS": "k\x1b[0m"}} for number in range(3)]
    configs = {"consumerOffset.json": {"offsetTable": {f"{topic}@g\x1b[0m": {"0": 1}}}}
    store = WholeStore(pieces, dispatched=1, configs=configs).write(tmp_path / "store\x1b[0m")
    (store / "commitlog" / "stray\x1b[0m").write_bytes(b"x")
    altered: list[str] = []

    def kept(text: str) -> str:
        altered.append(text)
        return text

    monkeypatch.setattr("click.utils.strip_ansi", kept)
    for words in (("info",), ("verify",), ("forecast",), ("groups",), ("find", "--key", "k"), ("usage",), ("show",)):
        for format_ in ("table", "json"):
            run(words[0], store, *words[1:], "-f", format_)
    run("forecast", store, "--script")
    run("diff", store, store)
    assert altered
    assert [text for text in altered if "\x1b" in text] == []
    assert escape(topic) in run("decode", store, "-f", "csv", "--columns", "topic")[1]
    rows = [json.loads(line) for line in run("decode", store, "-f", "jsonl", "--columns", "topic")[1].splitlines()]
    assert rows == [{"topic": topic}] * 3


def test_a_shell_reads_a_recommended_command_as_the_path(store: Path) -> None:
    words = fill_command(SHOW, [name_text(str(store / "it's \\n"))], at=0)
    assert words.startswith("rmqinspect show $'")
    read = subprocess.run(["bash", "-c", f"printf %s {words.split(' ', 2)[2]}"], capture_output=True, check=True).stdout
    assert read.startswith(f"{store}/it's \\n".encode("utf-8", "surrogateescape"))
    assert fill_command(SHOW, ["a b"], at=0) == f"rmqinspect show {shlex.quote('a b')} --at 0"
