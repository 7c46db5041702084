"""The screen of `verify`: findings folded to a screen, commands that can be copied, lines as wide as the terminal."""

import json
import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest

from rmqinspect.cli import VERBS, main
from rmqinspect.cli import verify_screen as finding_blocks
from rmqinspect.schemas.checkpoint import TIMESTAMP_FIELDS
from rmqinspect.store.discover import open_store
from rmqinspect.text import cell_width
from rmqinspect.verify.findings import Finding, Findings, next_command
from rmqinspect.verify.result import VerifyOptions
from rmqinspect.verify.run import verify
from tests.support import oracle
from tests.support.building import fill, lay, write_segment
from tests.support.command import Run, runner
from tests.support.samples import sample
from tests.support.whole_stores import WholeStore

QUEUES = 160

run = runner("verify")


@pytest.fixture
def without_units(tmp_path: Path) -> Path:
    """A store of many queues, one record each, that has lost its consume queues."""
    topics = [{"topic": f"Topic{number:03}"} for number in range(QUEUES)]
    write_segment(tmp_path / "store" / "commitlog", fill(lay(topics), 65536))
    (tmp_path / "store" / "lock").touch()  # without it, this would be a copy of the log alone
    return tmp_path / "store"


def deep(run: Run, store: Path, *words: str) -> list[str]:
    return run(store, "--level", "deep", "-j", "1", *words)[1].splitlines()


def test_findings_of_one_cause_are_one_block_and_v_unfolds_it(run: Run, without_units: Path) -> None:
    lines = deep(run, without_units, "--skip", "ST-CHECKPOINT")
    assert len(lines) < 32  # with what to do, and what consumers get after a start
    assert lines[0].startswith("CQ-MISSING   error ")
    assert f"             4 shown, {QUEUES} in all; -v shows each" in lines
    assert sum("also Topic" in line for line in lines) == 3
    assert sum("rmqinspect explain CQ-MISSING" in line for line in lines) == 1
    unfolded = deep(run, without_units, "--skip", "ST-CHECKPOINT", "-v")
    assert sum(line.startswith("CQ-MISSING ") for line in unfolded) == QUEUES
    assert sum("rmqinspect explain CQ-MISSING" in line for line in unfolded) == 1
    assert unfolded[-1] == lines[-1]


def test_the_total_of_a_block_includes_findings_without_a_row(run: Run, without_units: Path) -> None:
    lines = deep(run, without_units, "--skip", "ST-CHECKPOINT", "--max-findings", "2")
    assert f"             {QUEUES} in all" in lines
    # The formats have all rows that there are.
    status, out, _ = run(without_units, "--level", "deep", "-f", "jsonl", "--skip", "ST-CHECKPOINT")
    assert (status, out.count("CQ-MISSING")) == (3, QUEUES)


@pytest.mark.parametrize(
    ("height", "labels"),
    [
        (24, ["0", "65536", "131072 to …: 2 segments", "262144", "all"]),
        (50, ["0", "65536", "131072", "196608", "262144", "all"]),
    ],
)
def test_sound_segments_share_a_row_where_the_screen_is_low(
    run: Run, monkeypatch: pytest.MonkeyPatch, height: int, labels: list[str]
) -> None:
    monkeypatch.setattr("rmqinspect.cli.verify_screen.screen_height", lambda: height)
    lines = run(oracle.store("crash", "flip_body_third-5.3.3-h"))[1].splitlines()
    rows = [re.split("  +", line)[0] for line in lines]
    assert rows[rows.index("segment") + 1 : rows.index("queues")] == labels


def test_fields_of_the_checkpoint_are_one_block_and_a_row_each(run: Run) -> None:
    """They lie side by side like findings of one kind, but each has a value of its own."""
    store = oracle.store("crash", "log_dir_lost-5.3.3-c")
    out = run(store, "--check", "ST-CHECKPOINT", "-f", "jsonl")[1]
    messages = [json.loads(line)["message"] for line in out.splitlines()]
    assert [message.split(": ")[1].split(";")[0] for message in messages] == list(TIMESTAMP_FIELDS)
    lines = run(store, "--check", "ST-CHECKPOINT")[1].splitlines()
    assert sum(line.startswith("ST-CHECKPOINT ") for line in lines) == 1
    assert "             also checkpoint at 16 (0x10), 8 bytes" in lines
    assert not any(" shown, " in line for line in lines)  # all are


def test_blocks_become_shorter_until_they_fit(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    store = oracle.store("crash", "log_dir_lost-5.3.3-c")
    long = deep(run, store)
    monkeypatch.setattr("rmqinspect.cli.verify_screen.screen_height", lambda: 24)
    short = deep(run, store)
    assert len(short) <= 24 < len(long)
    codes = [re.findall(r"^(?:CQ|ST|IX)-[A-Z]+", "\n".join(lines), re.MULTILINE) for lines in (long, short)]
    assert codes[0] == codes[1] == ["ST-CHECKPOINT", "CQ-BEYOND", "IX-BEYOND"]
    # What was lost is told first, and again where the eye is at the end.
    lost = [number for number, line in enumerate(short) if line.startswith("lost  ")]
    start = next(number for number, line in enumerate(short) if line.startswith("NEXT START  "))
    assert lost == [0, start - 2]
    monkeypatch.setattr("rmqinspect.cli.verify_screen.screen_height", lambda: 4)
    assert "             and 2 more kinds of findings: -v shows all" in deep(run, store)


def test_many_causes_of_one_code_are_one_block() -> None:
    """What differs between them is a name."""
    findings = Findings(limit=4)
    for name in ("a", "b", "c", "d"):
        findings.add(Finding("ST-GROUP-LOST", f"group {name}: lost"))
    rows = list(findings.as_rows(["STORE"], "STORE"))
    blocks = finding_blocks._blocks(rows, {"ST-GROUP-LOST": 4})
    assert [(len(block.findings), block.total) for block in blocks] == [(4, 4)]
    assert len(finding_blocks._blocks(rows[:3], {"ST-GROUP-LOST": 3})) == 3


@pytest.mark.parametrize("columns", [80, 100])
def test_a_long_topic_pushes_nothing_off_the_screen(
    columns: int, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = "T" * 200
    pieces = [{"topic": topic, "properties": {"UNIQ_KEY": f"{number:032X}"}} for number in range(9)]
    store = WholeStore(pieces).write(tmp_path / "s")
    segment, queue = (next((store / folder).rglob("0" * 20)) for folder in ("commitlog", "consumequeue"))
    for file, at, raw in ((segment, 4, b"XXXX"), (queue, 100, bytes(20))):  # a magic code; the sixth unit
        file.write_bytes(file.read_bytes()[:at] + raw + file.read_bytes()[at + len(raw) :])
    monkeypatch.setattr("rmqinspect.cli.terminal.WIDTH", columns)
    lines = deep(run, store)
    assert any(line.startswith("CL-") for line in lines)
    assert any("the queue says: 1 message of" in line for line in lines)
    assert topic in "".join(line.strip() for line in lines)  # folded, not clipped
    commands = ("next    rmqinspect", "NEXT START", "VERDICT")
    wide = [line for line in lines if cell_width(line) > columns and not line.strip().startswith(commands)]
    assert wide == []


# --- next -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "cq_lost-4.9.7-h",
        "cp_missing-4.7.1-h",
        "idx_header_zero-4.9.7-c",
        "log_dir_lost-5.3.3-c",
        "magic_third-4.9.7-c",
        "seg_missing_mid-4.9.7-c",
    ],
)
def test_the_next_command_shows_what_the_finding_is_about(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    root = oracle.store("crash", name)
    findings = verify(open_store([str(root)]), VerifyOptions(level="deep")).findings.rows
    by_code = {finding.code: finding for finding in findings if finding.severity != "info"}
    assert by_code
    for finding in by_code.values():
        command = next_command(finding, [str(root)], str(root))
        if finding.absent:
            assert command is None
            continue
        assert command is not None
        words = shlex.split(command)
        assert words[0] == "rmqinspect"
        assert main(words[1:]) in (0, 3)
        out = capsys.readouterr().out
        assert len(out.splitlines()) > 1
        if finding.topic is not None:
            assert finding.topic in out


def test_a_stray_file_and_a_shifted_queue_are_named(tmp_path: Path) -> None:
    stray = Finding("CL-NAME", "stray", file="commitlog/a b")
    assert next_command(stray, ["my store"], "my store") == "ls -ld 'my store/commitlog/a b'"
    assert next_command(stray, ["s3://bucket/store"], "s3://bucket/store") is None
    assert next_command(stray, ["./commitlog/a b"], "./commitlog/a b") == "ls -ld './commitlog/a b'"
    shifted = Finding("CQ-SHIFT", "shifted", topic="TopicA", queue_id=0, file="consumequeue/TopicA/0/0")
    assert next_command(shifted, ["S"], "S") == "rmqinspect decode S --table queue_units -t TopicA --queue 0"


# --- the width of the terminal ------------------------------------------------------------------------------


def on_terminal(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)


def labels(lines: list[str]) -> list[str]:
    """Return the words that begin a line; not the numbers of segments, of which a low screen shows fewer."""
    return [line.split()[0] for line in lines if line[:1] not in ("", " ") and not line[0].isdigit()]


@pytest.mark.parametrize("columns", [80, 100, 200])
def test_no_line_is_wider_than_the_terminal_and_commands_can_be_copied(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    folder = tmp_path / "a store's copy"
    shutil.copytree(sample("flipped-bit-5.3.3"), folder)
    monkeypatch.chdir(tmp_path)
    in_a_pipe = run(folder.name)[1].splitlines()
    on_terminal(monkeypatch, columns)
    lines = run(folder.name, "--color", "never")[1].splitlines()
    assert max(map(cell_width, lines)) <= columns
    assert max(map(cell_width, lines)) > min(columns, 150) - 20
    printed = "\n".join(lines)
    command = re.search(r"next +(rmqinspect(?:.*\\\n)*.*)", printed)
    assert command
    words = shlex.split(command[1])
    assert words == ["rmqinspect", "show", folder.name, "--at", "97187"]
    assert sum("next " in line and "--at 97187" in line for line in in_a_pipe) == 1
    # The row of the log is for a terminal only.
    assert [label for label in labels(lines) if label != "log"] == labels(in_a_pipe)
    assert "log" in labels(lines)


def test_the_byte_account_leaves_out_columns_on_a_narrow_terminal(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    on_terminal(monkeypatch, 70)
    header = next(line for line in run(sample("healthy-5.5.0"))[1].splitlines() if line.startswith("segment"))
    assert header.split() == ["segment", "records", "bytes", "filler", "zeros", "unknown"]


@pytest.mark.parametrize("columns", [80, 100, 200])
def test_prose_and_options_of_a_help_page_end_at_the_same_width(
    columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At most 100 cells, as wider prose is hard to read; examples are whole commands."""
    monkeypatch.setenv("COLUMNS", str(columns))
    for words in ([], *([verb] for verb in VERBS)):
        main([*words, "--help"])
        lines = capsys.readouterr().out.splitlines()
        assert max(map(len, lines)) <= min(columns, 100), words
        examples = [line for line in lines if line.startswith("    rmqinspect ")]
        assert all(shlex.split(line) for line in examples)
    main(["verify", "--help"])
    prose, options = capsys.readouterr().out.split("Checks:")
    ends = [max(map(len, part.splitlines())) for part in (prose, options)]
    assert min(ends) > min(columns, 100) - 8


def test_the_verdict_is_coloured(run: Run) -> None:
    last = run(sample("healthy-5.5.0"), "--color", "always")[1].splitlines()[-1]
    assert last.startswith("\x1b[32m\x1b[1mVERDICT      WHOLE")
    last = run(sample("flipped-bit-5.3.3"), "--color", "always")[1].splitlines()[-1]
    assert last.startswith("\x1b[31m\x1b[1mVERDICT      DAMAGED")


def test_quiet_is_silence_and_the_exit_status(run: Run) -> None:
    assert run(sample("flipped-bit-5.3.3"), "-q") == (3, "", "")
