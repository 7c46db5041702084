"""`rmqinspect info`: one screen about any store, and never a traceback."""

import json
import os
import re
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from rmqinspect.cli import ExitStatus, main
from tests.support import oracle
from tests.support.locks import HOLD, other_process
from tests.support.outcome_stores import outcome_store
from tests.support.samples import sample
from tests.support.sampling import sampled

FIRST = "0" * 20


def info(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    status = main(["info", *words])
    printed = capsys.readouterr()
    return status, printed.out, printed.err


def bound_reads(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """Let no log be short enough to be counted, and no start read more than `most` bytes."""
    monkeypatch.setattr("rmqinspect.show.short_start._COUNTED", -1)
    monkeypatch.setattr("rmqinspect.show.short_start._MOST_READ", most)


def rows(text: str) -> dict[str, str]:
    """Return the texts of a screen by label, continued lines joined."""
    found: dict[str, str] = {}
    label = ""
    for line in text.splitlines():
        label = line[:14].strip() or label
        found[label] = f"{found.get(label, '')} {line[14:].strip()}".strip()
    return found


@pytest.fixture(autouse=True)
def hook_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put back the hook for exceptions that the entry point replaces."""
    monkeypatch.setattr(sys, "excepthook", sys.__excepthook__)


def test_the_screen_of_the_transcript(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("S").symlink_to(oracle.store("crash", "flip_body_third-5.3.3-h"))
    status, out, err = info(capsys, "S")
    assert status == ExitStatus.DONE
    assert re.fullmatch(r"read \d\.\d MB", err.splitlines()[0])
    shown = rows(out)
    assert shown.pop("next").startswith("rmqinspect ")
    assert shown == {
        "store": "S: classic commit log, file queues, file index; 31 files, 355 705 bytes",
        "stopped": "unclean: abort exists (pid 28407), no process holds the lock",
        "last record": "2026-11-21T08:48:46.708Z, physical offset 214 163; log ends at 217 698",
        "writer": "5.2.0 to 5.3.3, from content: V2 records, properties end with the separator, "
        "CLUSTER in batches only",
        "commit log": "5 segments of 65 536: 0 to 262 144, none missing; the last is preallocated (zeros)",
        "checkpoint": "log 2026-11-21T08:48:40.000Z, queues 2026-11-21T08:48:46.708Z, index 2026-11-21T08:48:45.095Z: "
        "none newer than the log",
        "queues": "13 in 7 topics, 250 units; deepest TopicA queue 0: 0 to 51",
        "index": "3 files, 530 entries, newest 2026-11-21T08:48:46.708Z",
        "groups": "none: no consumer offsets",
        "next start": "STARTS, LOSES DATA with 5.2.0 to 5.3.3: 145 records "
        "the log would end at 97 187 of 217 698: BODYCRC does not match the body "
        "3 segments, 6 queue files, 1 index file deleted "
        "do first: start it differently: the same broker without the file abort: loses nothing",
    }


@pytest.mark.parametrize(
    ("name", "label", "text"),
    [
        ("dledger-5.3.3", "store", "store: DLedger commit log, file queues, file index"),
        ("rocksdb-5.3.3", "layout", "RocksDB queues, RocksDB config, timer wheel"),
        ("main-5.3.3", "layout", "batch queues, timer wheel"),
        ("ext-4.9.7", "layout", "ext queues"),
        ("compaction-5.3.3", "layout", "timer wheel, compaction"),
        ("rocksopt-5.5.0", "layout", "timer wheel, rocksdbstore"),
        ("main-5.3.3", "stopped", "clean: no abort file, no process holds the lock"),
        ("main-5.3.3", "groups", "12 groups, 22 subscriptions, in config/consumerOffset.json"),
    ],
)
def test_what_is_special_is_said(name: str, label: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = info(capsys, str(oracle.store("broker", name)))
    assert status == ExitStatus.DONE
    assert rows(out)[label].startswith(text)


@pytest.mark.parametrize("name", sampled(oracle.cases("crash"), 5))
def test_every_damaged_store_has_a_screen(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = info(capsys, str(oracle.store("crash", name)))
    assert status == ExitStatus.DONE
    assert all(len(line) <= 100 for line in out.splitlines() if "rmqinspect" not in line and "/" not in line)
    damages = oracle.case("crash", name)["damage_kinds"]
    shown = rows(out)
    if "log_hole" in damages or any("hole" in damage for damage in damages):
        assert "missing: " in shown["commit log"]
    if damages == ["cp_future"]:
        assert shown["checkpoint"].endswith("newer than the log")
        assert "none newer" not in shown["checkpoint"]


@pytest.mark.parametrize("below", ["commitlog", f"commitlog/{FIRST}", "consumequeue/TopicA/0", "index", "checkpoint"])
def test_a_piece_is_not_blamed_for_what_was_not_given(below: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = info(capsys, str(oracle.store("crash", "base-5.3.3-halt") / below))
    shown = rows(out)
    assert status == ExitStatus.DONE
    assert "stopped" not in shown
    assert "groups" in shown["not given"]
    assert "missing:" not in out


def test_hostile_names_are_escaped_and_odd_entries_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "a\x1b[31m" / "commitlog"
    log.mkdir(parents=True)
    for number in range(6):
        (log / f"x\x1b]0;{number}\x07").write_bytes(b"x")
    queue = log.parent / "consumequeue" / "t\u202eopic" / "0"
    queue.mkdir(parents=True)
    (queue / FIRST).write_bytes(bytes.fromhex("0000000000000000000000c80000000000000001"))
    status, out, err = info(capsys, str(log.parent))
    assert status == ExitStatus.DONE
    assert "\x1b" not in out + err
    assert "\u202e" not in out
    assert r"t\u202eopic queue 0: 0 to 1" in out
    assert "and 2 more entries" in out


def test_what_cannot_be_read_is_said_and_is_status_4(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = oracle.copy("crash", "base-5.3.3-clean", tmp_path)
    (root / "commitlog" / "00000000000009999360").symlink_to("nowhere")
    status, out, err = info(capsys, str(root))
    assert status == ExitStatus.UNREADABLE
    assert "not read: commitlog/00000000000009999360: a dangling link" in err
    assert rows(out)["odd"] == "commitlog/00000000000009999360: a dangling link"


def test_an_empty_log_and_a_sparse_one_have_a_screen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "commitlog").mkdir()
    status, out, _ = info(capsys, str(tmp_path))
    assert status == ExitStatus.DONE
    assert rows(out)["commit log"] == "none: no segment"
    with (tmp_path / "commitlog" / FIRST).open("wb") as file:
        file.truncate(1 << 30)
    status, out, err = info(capsys, str(tmp_path))
    assert status == ExitStatus.DONE
    assert rows(out)["last record"].startswith("none found")
    assert float(err.split()[1]) < 70


def test_a_hole_and_wrong_lengths_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = oracle.copy("crash", "base-5.3.3-halt", tmp_path)
    segments = sorted((root / "commitlog").iterdir())
    os.truncate(segments[0], 1000)
    segments[1].unlink()
    _, out, _ = info(capsys, str(root))
    text = rows(out)["commit log"]
    assert "missing: 1 000 to 65 536, 65 536 to 131 072" in text
    assert f"other length: commitlog/{FIRST} (1 000 bytes)" in text


def test_a_lock_that_is_held_means_running(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = oracle.copy("crash", "base-5.3.3-halt", tmp_path)
    with other_process(HOLD, root / "lock") as pid:
        _, out, _ = info(capsys, str(root))
        assert rows(out)["stopped"].startswith(f"no: process {pid} holds the lock")
        assert rows(out)["next start"].startswith(f"A BROKER RUNS ON THIS STORE (pid {pid}): do not start another")
        start = json.loads(info(capsys, str(root), "-f", "json")[1])["next_start"]
    assert (start["verdict"], start["versions"][0]["starts"]) == ("A BROKER RUNS ON THIS STORE", None)


def test_a_broker_that_runs_is_told_of_a_large_store_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bound_reads(monkeypatch, most=1000)
    root = oracle.copy("crash", "base-5.3.3-halt", tmp_path)
    with other_process(HOLD, root / "lock") as pid:
        _, out, _ = info(capsys, str(root))
    assert rows(out)["next start"].startswith(f"A BROKER RUNS ON THIS STORE (pid {pid}): do not start another")


def test_next_commands_take_the_same_configuration(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bound_reads(monkeypatch, most=1000)
    conf = tmp_path / "broker.conf"
    conf.write_text("mappedFileSizeCommitLog=65536\n")
    store = oracle.store("crash", "base-5.3.3-halt")
    _, out, _ = info(capsys, str(store), "--config", str(conf))
    words = out.split()
    assert words.count("rmqinspect") == words.count("--config") == words.count(str(conf)) > 1


def test_json_holds_the_same_facts(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = info(capsys, str(oracle.store("crash", "flip_body_third-5.3.3-h")), "-f", "json")
    document = json.loads(out)
    assert "versions" not in document  # the estimate is called `writer` in the document, and is there once
    assert set(document["writer"]) == {"low", "high", "clues"}
    assert status == ExitStatus.DONE
    assert document["complete"] is True
    assert document["stop"] == {
        "state": "unclean",
        "abort": True,
        "abort_pid": 28407,
        "lock": True,
        "lock_holder": None,
        "lock_seen": True,
    }
    assert (document["log"]["last_record"], document["log"]["end"]) == (214163, 217698)
    assert document["queues"]["deepest"]["topic"] == "TopicA"
    assert document["next_start"]["verdict"] == "STARTS, LOSES DATA"
    assert document["next_start"]["versions"][0]["lost_messages"] == 145
    assert (document["writer"]["low"], document["writer"]["high"]) == ("5.2.0", "5.3.3")


def test_quiet_says_nothing_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    _, _, err = info(capsys, "-q", str(oracle.store("crash", "base-5.3.3-clean")))
    assert err == ""


def test_no_printer_of_tables_is_imported_for_it() -> None:
    code = "import sys; from rmqinspect.cli import main; main(['info', sys.argv[1]]);assert 'rich' not in sys.modules"
    path = str(oracle.store("crash", "base-5.3.3-clean"))
    subprocess.run([sys.executable, "-c", code, path], check=True, capture_output=True)


def test_garbage_in_every_place_has_a_screen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = oracle.copy("broker", "main-5.3.3", tmp_path)
    shutil.rmtree(root / "timerlog")
    for path in sorted(root.rglob("*")):
        if path.is_file() and path.stat().st_size < 1 << 20:
            path.write_bytes(b"\xff\x00\x7f" * (path.stat().st_size // 3 + 1))
    status, out, _ = info(capsys, str(root))
    assert status == ExitStatus.DONE
    assert rows(out)["last record"].startswith("none found")


def test_configuration_that_is_gone_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    root = oracle.copy("broker", "main-4.9.7", tmp_path)
    for path in (root / "config").glob("consumerOffset.json*"):
        path.unlink()
    assert "config/consumerOffset.json: gone with its .bak; " in rows(info(capsys, str(root))[1])["odd"]


def test_an_uncounted_start_is_not_called_safe(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = str(outcome_store("s03"))
    counted = rows(info(capsys, store)[1])["next start"]
    assert counted.startswith("STARTS, LOSES DATA with 5.2.0 to 5.3.3: 3 041 messages out of reach for consumers")
    assert "do first: rebuild it before any start: loses nothing" in counted
    safe = str(sample("healthy-5.5.0"))
    assert rows(info(capsys, safe)[1])["next start"] == "STARTS, LOSES NOTHING MORE with 5.5.0"
    bound_reads(monkeypatch, most=10_000_000)
    text = rows(info(capsys, safe)[1])["next start"]
    assert text.startswith("STARTS with 5.5.0; what consumers lose by it was not counted")
    assert text.endswith(f"do first: count it with forecast before any start: rmqinspect forecast {safe}")
    start = json.loads(info(capsys, safe, "-f", "json")[1])["next_start"]
    assert start["verdict"] is start["versions"][0]["verdict"] is start["versions"][0]["unreachable_messages"] is None
    fleet = info(capsys, safe, store)[1]
    assert "NOTHING MORE" not in fleet
    assert "start it" not in fleet
    assert "count it with forecast before any start" in fleet


def test_a_start_that_reads_much_is_left_to_forecast(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = str(sample("healthy-5.5.0"))
    assert rows(info(capsys, store)[1])["next start"].startswith("STARTS, LOSES NOTHING MORE")
    bound_reads(monkeypatch, most=1000)
    text = rows(info(capsys, store)[1])["next start"]
    assert re.fullmatch(r"not read here, about [\d.]+ kB: rmqinspect forecast .*", text)
    assert json.loads(info(capsys, store, "-f", "json")[1])["next_start"] is None


@pytest.mark.parametrize(
    ("age", "said"), [(0, ""), (60_000, ""), (86_400_000, ", the newest 24 h older than its last record")]
)
def test_a_checkpoint_of_another_day_is_told(
    age: int, said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    root = oracle.copy("broker", "main-4.9.7", tmp_path)
    file = root / "checkpoint"
    raw = file.read_bytes()
    file.write_bytes(struct.pack(">3q", *(time - age for time in struct.unpack(">3q", raw[:24]))) + raw[24:])
    shown = rows(info(capsys, str(root))[1])["checkpoint"]
    assert shown.partition("none newer than the log")[2] == (
        f"{said}: of another time or store? (verify)" if said else ""
    )


def test_no_checkpoint_of_a_real_stop_is_called_old(capsys: pytest.CaptureFixture[str]) -> None:
    for name in oracle.cases("broker"):
        assert "older than" not in rows(info(capsys, str(oracle.store("broker", name)))[1]).get("checkpoint", "")
