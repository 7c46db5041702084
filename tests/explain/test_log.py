"""Whole logs: what each start of a broker did, compared with what the brokers of the oracle really did."""

import gzip
import io
import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqinspect.cli import ExitStatus
from rmqinspect.explain.log import TELLS, Log, Start, read_log
from rmqinspect.explain.lookup import LOG_LINES, SERIOUS
from rmqinspect.explain.start_words import details, headline
from tests.support import oracle
from tests.support.command import Run, runner


def log_of(*rows: str) -> Log:
    """Return what is known of a log of these lines."""
    log = Log()
    for row in rows:
        log.add(row)
    return log


def start_of(name: str) -> Start:
    """Return the start of a case of the crash family, from the lines that the broker logged."""
    (start,) = log_of(*oracle.truth("crash", name)["log"]).starts.found
    return start


def undamaged_end(name: str) -> int | None:
    """Return where the log ended before a case was damaged, by the broker that opened the undamaged store."""
    match = re.fullmatch(r"[^-]+-([\d.]+)-([ch])(?:-.*)?", name)
    exits = {"c": "clean", "h": "halt"}
    base = f"base-{match[1]}-{exits[match[2]]}" if match else ""
    if base not in oracle.cases("crash"):
        return None
    end: int = oracle.truth("crash", base)["after_load"]["max_phy"]
    return end


# --- the starts of real brokers -------------------------------------------------------------------


def test_what_a_line_can_tell_is_told_by_some_line() -> None:
    assert {line.tells for line in LOG_LINES} == {"", *TELLS}


@pytest.mark.parametrize("refused", [False, True])
def test_a_start_was_refused_if_the_real_one_was(refused: bool) -> None:
    starts = {
        name: start_of(name) for name in oracle.cases("crash") if oracle.truth("crash", name)["load_ok"] != refused
    }
    assert len(starts) > 15
    for name, start in starts.items():
        assert (start.loaded and not start.refused_by) != refused, name
        if refused:
            # A record with a huge size: OutOfMemoryError is no Exception, so the store logs nothing.
            expected = "did not finish" if name.startswith("size_huge_third-4.7.1") else "the broker refused to start: "
            assert headline(start).startswith(expected), name


def test_a_refusal_names_the_file() -> None:
    assert headline(start_of("seg_long_mid-5.3.3-h")) == (
        "the broker refused to start: WARN Store <root>/commitlog/00000000000000065536 69632 length not matched message"
        " store config value, please check it manually"
    )
    # Since 5.1.0 a folder among the index files refuses the start; before, and a stray file, it does not.
    assert start_of("idx_dir-5.3.3-c").refused_by == ["ERROR Store load file <root>/index/20200101000000000 error"]
    assert not start_of("idx_dir-4.9.7-c").refused_by
    assert not start_of("idx_stray-4.9.7-c").refused_by


def test_the_log_ends_where_the_real_one_did() -> None:
    for name in oracle.cases("crash"):
        truth = oracle.truth("crash", name)
        if truth["load_ok"]:
            assert start_of(name).end == truth["after_load"]["max_phy"], name


def test_the_bytes_cut_are_those_that_the_real_start_cut() -> None:
    exact = 0
    for name in oracle.cases("crash"):
        start, before = start_of(name), undamaged_end(name)
        if before is None or not start.cut:
            continue
        cut = before - oracle.truth("crash", name)["after_load"]["max_phy"]
        exact += start.cut == cut
        # Up to 4.4.0 the line of the queues has the begin of their last record, not its end.
        assert start.cut <= cut if "4.3.2" in name else start.cut == cut, name
        assert headline(start).startswith("cut at least "), name
    assert exact >= 20


def test_no_cut_is_made_up() -> None:
    for name in oracle.cases("crash"):
        if undamaged_end(name) == oracle.truth("crash", name).get("after_load", {}).get("max_phy"):
            assert not start_of(name).cut, name
            assert not headline(start_of(name)).startswith("cut the log"), name


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "flip_body_third-5.3.3-h",
            "cut at least 120 511 bytes of the log: it reached 217 698 (0x35262) and ends at 97 187",
        ),
        # No queue line up to 4.4.0, unless units were cut off.
        ("flip_body_last-4.2.0-h", "cut the log at 199 279 (0x30a6f); the lines do not say how far it reached before"),
        # A negative size is not logged: only that the scan ended.
        ("size_neg_last-5.2.0-c", "cut at least 16 949 bytes"),
        # Zeros look like the end of the log, and the deleted segments are the proof.
        ("blank_magic-5.4.0-h", "cut at least 26 916 bytes"),
        ("first_rec_last-5.3.3-c", "cut off queue units for 49 504 bytes behind the end of the log"),
        ("cq_beyond-5.1.4-c", "Its end is lost, or these units were wrong"),
        ("log_dir_lost-5.3.3-c", "found no segment of the log and deleted all consume queues"),
        ("stray_ds-4.3.2-c", "ignored files of the store"),
        ("base-5.3.3-clean", "loaded; no sign that anything was cut; the log ends at 246 112 (0x3c160)"),
    ],
)
def test_what_a_start_did_is_one_sentence(name: str, words: str) -> None:
    assert words in headline(start_of(name))


def test_a_start_is_told_with_its_cause_and_what_it_deleted() -> None:
    told = dict(details(start_of("flip_body_third-5.3.3-h")))
    assert told["because"] == "WARN Store CRC check failed. bodyCRC=949938881, currentCRC=600743239"
    assert told["scan"] == "ended in <root>/commitlog/00000000000000065536"
    removed = oracle.truth("crash", "flip_body_third-5.3.3-h")["files_after_load"]["removed"]
    # At most four lines alike were recorded.
    assert told["deleted"] == "1 index file, 6 queue files, 3 segments"
    assert sum(name.startswith("commitlog/") for name in removed) == 3
    assert told["ended"] == "an orderly shutdown"


def test_what_a_start_cut_is_told_by_serious_lines() -> None:
    """No truth says which line is serious: every log whose broker cut or refused has one, and no other has."""
    for name in oracle.cases("crash"):
        truth, before = oracle.truth("crash", name), undamaged_end(name)
        log = log_of(*truth["log"])
        serious = [seen.line.template for seen in log.by_alarm() if seen.line.alarm == SERIOUS]
        start = start_of(name)
        if start.cut or start.units_cut or start.refused_by or start.emptied:
            assert serious, name
        if truth["load_ok"] and truth["after_load"]["max_phy"] == before and not start.units_cut:
            assert not log.starts.found[0].harmful, name


# --- several starts in one log --------------------------------------------------------------------


def test_the_end_of_the_start_before_is_compared() -> None:
    rows = (
        "2026-11-21 12:00:00 INFO main - last shutdown normally",
        "2026-11-21 12:00:01 INFO main - load over, and the max phy offset = 369354",
        "2026-11-21 12:30:00 INFO main - last shutdown abnormally",
        "2026-11-21 12:30:01 INFO main - recover physics file end, /s/commitlog/00000000000000000000 pos=4053",
        "2026-11-21 12:30:02 INFO main - load over, and the max phy offset = 4045",
        "2026-11-21 12:31:00 INFO main - /s/abort delete OK",
    )
    first, second = log_of(*rows).starts.found
    assert first.ended == "not in order: killed, crashed, or power was lost"
    assert headline(second).startswith("cut at least 365 309 bytes of the log: it reached 369 354")
    assert second.cause.startswith("no line says why")
    assert (second.time, second.ended) == ("2026-11-21 12:30:00", "an orderly shutdown, 2026-11-21 12:31:00")


def test_a_refused_start_between_changes_nothing() -> None:
    begin, end = "INFO Store last shutdown normally", "INFO Store load over, and the max phy offset = {}"
    refused = (begin, "INFO Store load commit log Failed", end.format(65536))
    starts = log_of(begin, end.format(900), *refused, *refused, begin, end.format(700)).starts.found
    assert [start.cut for start in starts] == [0, 0, 0, 200]
    assert [bool(start.refused_by) for start in starts] == [False, True, True, False]


def test_files_deleted_after_the_loading_are_retention() -> None:
    delete = "INFO Store delete file[REF:0] /s/commitlog/00000000000000000000 OK, W:65536 M:65536, 0"
    (start,) = log_of("last shutdown normally", "load over, and the max phy offset = 9", delete).starts.found
    assert not start.deleted


def test_a_log_that_begins_in_the_middle_of_a_start_is_told() -> None:
    rows = oracle.truth("crash", "flip_body_third-5.3.3-h")["log"]
    (start,) = log_of(*rows[10:]).starts.found
    assert (start.last_exit, start.cut) == ("", 120_511)


def test_lines_of_a_running_broker_are_no_start_that_failed() -> None:
    rows = ("WARN ReputMessageService - found a illegal magic code 0x66666", "java.lang.OutOfMemoryError: Map failed")
    (start,) = log_of(*rows).starts.found
    assert headline(start) == "the broker was started before these lines begin"
    assert [(label, text) for label, text in details(start) if text] == [("failed", rows[1])]


# --- the lines ------------------------------------------------------------------------------------


def test_like_lines_are_counted_with_their_times() -> None:
    rows = [f"2026-11-21 12:0{minute}:01,123 WARN X - found a illegal magic code 0x{minute}" for minute in range(1, 8)]
    (seen,) = log_of(*reversed(rows)).kinds.values()
    assert (seen.count, seen.first, seen.last) == (7, "2026-11-21 12:01:01", "2026-11-21 12:07:01")


def test_a_stack_trace_belongs_to_the_line_above() -> None:
    log = log_of(
        "2026-11-21 12:00:01 ERROR main - load exception",
        'java.lang.NumberFormatException: For input string: "x"',
        "\tat java.base/java.lang.Long.parseLong(Long.java:1)",
        "Caused by: java.lang.IllegalStateException: why",
        "\t... 3 more",
        "a second line of a message",
        "",
        "2026-11-21 12:00:02 ERROR main - no one knows this, 17",
        "2026-11-21 12:00:03 ERROR main - no one knows this, 18",
        "",
    )
    (seen,) = log.kinds.values()
    assert list(seen.exceptions) == [
        'java.lang.NumberFormatException: For input string: "x"',
        "java.lang.IllegalStateException: why",
    ]
    assert (log.lines, log.known, log.traces, log.unknown) == (10, 1, 5, 2)
    assert log.unknown_alarms == {"ERROR main - no one knows this, #": 2}


def test_without_times_every_line_counts() -> None:
    log = log_of("INFO Store load commit log Failed", "unknown", "\tat a.b.C.d(C.java:1)", "INFO also unknown")
    assert (log.known, log.unknown, log.traces) == (1, 2, 1)


@pytest.mark.parametrize(
    "prefix",
    [
        "2023-01-01 12:00:00 INFO main - ",
        "2023-01-01 12:00:00,GMT+8 INFO main - ",
        "2023-01-01 12:00:00.123 INFO main - ",
        "broker-a  | 2023-01-01 12:00:00,123 INFO main - ",
        "2023-01-01T12:00:00.123456789Z stderr F INFO main - ",
    ],
)
def test_a_time_is_found_in_every_form(prefix: str) -> None:
    log = log_of(f"{prefix}last shutdown normally")
    assert (log.first, log.last) == ("2023-01-01 12:00:00",) * 2
    assert log.starts.found[0].time == "2023-01-01 12:00:00"


# --- reading --------------------------------------------------------------------------------------


def read(raw: bytes) -> Log:
    log = Log()
    read_log(io.BufferedReader(io.BytesIO(raw)), log)
    return log


def test_line_ends_and_bytes_of_any_kind_are_read() -> None:
    raw = b"last shutdown normally\r\n\xff\xfe\x00 GBK \xd6\xd0\r\nload over, and the max phy offset = 7\r\n"
    log = read(raw)
    assert (log.lines, log.known, log.unknown) == (3, 2, 1)
    assert log.starts.found[0].end == 7
    assert read(gzip.compress(raw)).kinds.keys() == log.kinds.keys()


def test_a_very_long_line_is_read_up_to_a_limit() -> None:
    log = read(b"last shutdown normally " + b"x" * 5_000_000 + b"\nload commit log Failed\n")
    assert (log.lines, log.known) == (2, 2)
    assert max(len(seen.first_row) for seen in log.kinds.values()) <= 500


@given(st.lists(st.one_of(st.sampled_from([line.template for line in LOG_LINES]), st.text(max_size=60)), max_size=20))
@settings(max_examples=60)
def test_any_lines_give_a_summary(rows: list[str]) -> None:
    log = log_of(*rows)
    for start in log.starts.found:
        assert headline(start)
        assert all(isinstance(text, str) for _, text in details(start))
    assert log.lines == len(rows)
    assert log.known + log.traces + log.unknown <= log.lines


# --- the command ----------------------------------------------------------------------------------

run = runner("explain")


@pytest.fixture
def store_log(tmp_path: Path) -> Path:
    path = tmp_path / "store.log"
    rows = [f"2026-11-21 12:00:{second:02} {row}" for second, row in enumerate(truth_log("flip_body_third-5.3.3-h"))]
    path.write_text("\n".join([*rows, "2026-11-21 12:09:00 ERROR main - \x1b[31mred\u202e"]) + "\n")
    return path


def truth_log(name: str) -> list[str]:
    rows: list[str] = oracle.truth("crash", name)["log"]
    return rows


def test_the_screen_ends_with_what_happened(run: Run, store_log: Path) -> None:
    status, out, err = run(store_log)
    assert (status, err) == (ExitStatus.DONE, "")
    summary = " ".join(out[out.rindex("\nserious ") :].split())
    assert "start 1 2026-11-21 12:00:02: cut at least 120 511 bytes of the log: it reached 217 698" in summary
    assert summary.endswith("next rmqinspect show STORE --at 97187 next rmqinspect verify STORE")
    assert "\nCRC check failed. bodyCRC={}" not in summary and "CRC check failed. bodyCRC={}" in summary
    assert "rmqinspect show STORE --at 97187" in out
    assert "CRC check failed. bodyCRC={}, currentCRC={}\nseen         \N{MULTIPLICATION SIGN}1, 2026-11-21" in out
    assert "lines not known" in out
    assert "\x1b" not in out and "\u202e" not in out
    assert r"1 ERROR main - \x1b[#mred\u202e" in out  # digits of unknown lines are not told apart
    assert max(map(len, out.splitlines())) <= 100


def test_json_has_the_starts_and_the_kinds_of_lines(run: Run, store_log: Path) -> None:
    status, out, _ = run(store_log, "-f", "json")
    document = json.loads(out)
    assert (status, document["complete"], document["schema_version"]) == (0, True, 1)
    assert document["log"]["lines"] == len(truth_log("flip_body_third-5.3.3-h")) + 1
    (start,) = document["starts"]
    assert (start["bytes_cut"], start["end_before"], start["end"]) == (120_511, 217_698, 97_187)
    rows = {row["name"]: row for row in document["rows"]}
    assert rows["delete file[REF:{}] {} OK, W:{} M:{}, {}"]["count"] == 10
    assert json.loads(run("CL-MAGIC", "-f", "json")[1])["rows"][0].keys() < document["rows"][0].keys()


def test_several_files_are_one_log(run: Run, tmp_path: Path, store_log: Path) -> None:
    rolled = tmp_path / "store.1.log.gz"
    rolled.write_bytes(gzip.compress(b"2026-11-21 11:00:00 INFO main - last shutdown normally\n"))
    document = json.loads(run(rolled, store_log, "-f", "json")[1])
    assert [start["number"] for start in document["starts"]] == [1, 2]
    assert document["starts"][0]["ended"].startswith("not in order")


def test_like_starts_are_one_row(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "store.log"
    path.write_text("INFO Store last shutdown normally\nINFO Store load commit log Failed\n" * 400)
    out = run(path)[1]
    assert "\nstarts 1-400 the broker refused to start: INFO Store load commit log Failed" in out
    assert out.count("refused") == 2


def test_stdin_is_read(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(b"load commit log Failed\n"))))
    status, out, _ = run("-")
    assert status == ExitStatus.DONE
    assert "stdin: 1 line" in out


def test_a_log_without_a_known_line_is_nothing_found(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "other.log"
    path.write_text("hello\n")
    status, out, _ = run(path)
    assert status == ExitStatus.NOTHING_FOUND
    assert "1 line not known" in out


def test_a_name_is_no_file(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "DAMAGED").write_text("a note\n")
    assert run("DAMAGED")[1].startswith("DAMAGED\nword")
    assert "1 line" in run("./DAMAGED")[1]


def test_a_damaged_gzip_file_gives_what_was_read(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "store.log.gz"
    path.write_bytes(gzip.compress(b"load commit log Failed\n" * 10_000)[:-8])
    status, out, err = run(path)
    assert status == ExitStatus.UNREADABLE
    assert "store.log.gz: Compressed file ended" in err
    assert "not read to its end" in out and "load commit log Failed" in out


def test_ctrl_c_gives_what_was_read(run: Run, store_log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add = Log.add

    def add_some(log: Log, row: str) -> None:
        if log.lines == 20:
            raise KeyboardInterrupt
        add(log, row)

    monkeypatch.setattr(Log, "add", add_some)
    status, out, _ = run(store_log)
    assert status == ExitStatus.INTERRUPTED
    words = " ".join(out.split())  # wherever the path of the log breaks the lines
    assert "20 lines" in words and "not read to its end" in words


def test_memory_does_not_grow_with_the_log() -> None:
    log = Log()
    rows = ["2026-11-21 12:00:00 ERROR main - unknown %s", "last shutdown normally", "java.lang.E%sException: %s"]
    for number in range(30_000):
        log.add(rows[number % 3].replace("%s", str(number) if number % 3 else chr(65 + number % 26) * (number % 300)))
    assert len(log.unknown_alarms) <= 2000
    assert len(log.starts.found) <= 10_000
    assert all(len(seen.exceptions) <= 5 for seen in log.kinds.values())


def test_a_binary_file_of_a_store_is_a_name_and_no_log(run: Run) -> None:
    root = oracle.store("crash", "base-4.9.7-halt")
    for name, words in (("checkpoint", "flushed"), ("commitlog/00000000000000000000", "a file of the commit log")):
        status, out, _ = run(root / name)
        assert status == ExitStatus.DONE
        assert words in out
        assert "not known" not in out
