"""`rmqinspect export` as a command: what it refuses, says, and ends with."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rmqinspect.cli import ExitStatus, main
from rmqinspect.export.job import Engine, Work, WorkRead
from rmqinspect.export.part import ExportSpec, SidePart, write_part
from rmqinspect.export.request import LogPart
from tests.support import oracle
from tests.support.building import fill, lay, pad, various, write_segment
from tests.support.samples import ROOT
from tests.support.sampling import rare

Run = Callable[..., tuple[int, str, str]]


def root(name: str, family: oracle.Family = "crash") -> str:
    return str(oracle.store(family, name))


HEALTHY, FLIPPED, HOLE = (root(name) for name in ("none-5.4.0-g", "flip_body_third-4.7.1-c", "seg_missing_mid-4.9.7-c"))


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run `rmqinspect export … -o lake --engine local` in a folder of its own."""
    monkeypatch.chdir(tmp_path)

    def run_export(*arguments: str) -> tuple[int, str, str]:
        status = main(["export", "-o", "lake", *arguments, "--engine", "local", "-j", "1"])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run_export


def manifest() -> dict[str, object]:
    document: dict[str, object] = json.loads(Path("lake/_manifest.json").read_bytes())
    return document


def rows(table: str = "messages") -> pa.Table:
    files = sorted(Path("lake", table).rglob("*.parquet"))
    return pa.concat_tables([pq.read_table(path, partitioning=None) for path in files])


# What it is asked.


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ((), "Missing argument"),
        (("S", "--all", "--table", "gaps"), "contradict"),
        (("S", "--overwrite", "--incremental"), "contradict"),
        (("S", "--replace-changed"), "--incremental"),
        (("S", "--master", "local[1]"), "--engine spark"),
        (("S", "--table", "nonsense"), "there are: messages"),
        (("S", "--partition-by", "colour"), "topic, day, queue_id, store"),
        (("S", "--partition-by", ""), "topic, day, queue_id, store"),
        (("S", "--file-size", "12"), "at least 4096"),
        (("S", "--file-size", "x"), "size"),
        (("S", "--incremental", "--since", "last-5m"), "absolute time"),
        (("S", "--since", "yesterday"), "--since"),
        (("S", "--table", "checkpoint", "-t", "a"), "checkpoint has no column for --topic"),
        (("S", "--table", "gaps", "--partition-by", "topic"), "--partition-by is for the table messages"),
        (("a=S", "a=S"), "two stores are called a: no answer could say which is meant. Give NAME=STORE"),
        (("S", "-o", ""), "'' is not a folder"),
        (("S", "-o", "-"), "'-' is not a folder"),
    ],
)
def test_wrong_usage_ends_with_2_before_anything_is_written(words: tuple[str, ...], complaint: str, run: Run) -> None:
    status, out, err = run(*(word.replace("S", FLIPPED) if word.endswith("S") else word for word in words))
    assert (status, out) == (ExitStatus.USAGE, "")
    assert complaint in err
    assert not os.path.exists("lake")


def test_a_bound_on_reading_is_for_processes_of_this_machine(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--engine", "spark"], ["--master", "local[1]"]):
        assert main(["export", FLIPPED, "-o", "lake", "--read-rate", "1M", *words]) == ExitStatus.USAGE
        assert "--engine local" in capsys.readouterr().err
    assert main(["export", FLIPPED, "-o", "lake", "--read-rate", "100M", "-j", "1"]) == ExitStatus.DAMAGE
    assert "engine local: --read-rate" in capsys.readouterr().err


@pytest.mark.parametrize(("path", "complaint"), [("nowhere", "no such file"), (".", "an empty directory")])
def test_what_is_no_store_ends_with_4(path: str, complaint: str, run: Run) -> None:
    status, _, err = run(path)
    assert status == ExitStatus.UNREADABLE
    assert complaint in err
    assert err.count("\n") == 1
    assert not os.path.exists("lake")


# What it ends with.


def test_damage_ends_with_3_and_all_that_is_there_is_exported(run: Run) -> None:
    status, out, _ = run(f"a={FLIPPED}", f"b={HOLE}")
    assert status == ExitStatus.DAMAGE
    assert "left out  65 536 bytes of b without a record (missing), physical 131 072 to 196 608" in out
    assert "damaged   1 row has status body_crc (a, physical offset 88 312)" in out
    assert "VERDICT   DAMAGED: 1 row, 1 range without records" in out
    assert os.path.exists("lake/_SUCCESS")
    # A wrong byte is no missing one.
    told: dict[str, Any] = manifest()
    assert [store["complete"] for store in told["stores"]] == [True, False]
    assert told["complete"] is False
    assert rows().num_rows == 261 + 158


def test_damage_outside_of_the_range_asked_for_does_not_count(run: Run) -> None:
    assert run(f"b={HOLE}", "--offset", "0..100000")[0] == ExitStatus.DONE
    assert run(f"b={HOLE}", "--offset", "0..140000", "--overwrite")[0] == ExitStatus.DAMAGE


def test_a_topic_that_matches_nothing_ends_with_5_and_near_names(run: Run) -> None:
    status, out, err = run(FLIPPED, "-t", "order")
    assert (status, out) == (ExitStatus.NOTHING_FOUND, "")
    assert "no topic matches order; near: orders" in err
    assert not os.path.exists("lake")
    assert run(HOLE, "-t", "order")[0] == ExitStatus.NOTHING_FOUND
    assert run(FLIPPED, "-t", "orders")[0] == ExitStatus.DONE


def test_one_topic_of_two_is_better_than_none(run: Run) -> None:
    status, _, err = run(FLIPPED, "-t", "orders", "-t", "nope")
    assert status == ExitStatus.DONE
    assert "no topic matches nope" in err
    assert set(rows().column("topic").to_pylist()) == {"orders"}


def test_what_cannot_be_read_ends_with_4_and_the_rest_is_there(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    store = oracle.copy("crash", "none-5.4.0-g", tmp_path)
    segments = sorted((store / "commitlog").iterdir())
    real = os.open

    def refuse(path: object, *arguments: object, **more: object) -> int:
        if str(path) == str(segments[1]):
            raise PermissionError(13, "Permission denied")
        return real(path, *arguments, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", refuse)
    status, out, err = run(str(store), "--fail-on", "never")
    assert status == ExitStatus.UNREADABLE
    assert "Permission denied" in err
    assert "INCOMPLETE" in out
    assert manifest()["complete"] is False
    assert rows().num_rows > 100


@pytest.mark.parametrize("words", [["export", "-o", "lake", "--engine", "local"], ["decode"]])
def test_a_store_that_may_not_be_listed_is_no_wrong_usage(
    words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    store.mkdir()
    real = os.scandir

    def refuse(path: str) -> Any:
        if str(path) == str(store):
            raise PermissionError(13, "Permission denied", path)
        return real(path)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "access", lambda *_, **__: False)
    monkeypatch.setattr(os, "scandir", refuse)
    assert main([*words, str(store)]) == ExitStatus.UNREADABLE
    assert capsys.readouterr().err == f"rmqinspect: {store}: Permission denied\n"


def test_a_store_whose_log_is_gone_is_not_exported_whole(run: Run) -> None:
    status, out, err = run(f"a={root('log_dir_lost-5.3.3-c')}")
    assert status == ExitStatus.UNREADABLE
    assert "a: no segment of a commit log is there, though queues point into one, up to " in err
    assert "INCOMPLETE" in out
    assert run(f"a={root('log_dir_lost-5.3.3-c')}", "--table", "topics", "--overwrite")[0] == ExitStatus.DONE


def test_more_files_than_anybody_wants_are_refused(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmqinspect.export.plan.MOST_PARTS", 10)
    status, _, err = run(FLIPPED, "--file-size", "8K")
    assert status == ExitStatus.USAGE
    assert "the limit is 10" in err
    assert run(FLIPPED, "--file-size", "64K")[0] == ExitStatus.DAMAGE


def test_it_is_not_begun_where_there_is_no_room(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=10_000))
    status, _, err = run(FLIPPED)
    assert status == ExitStatus.REFUSED
    assert "are needed, 10.0 kB are free" in err
    assert not os.path.exists("lake")


def test_the_estimate_is_near_what_is_written(run: Run) -> None:
    from rmqinspect.export.plan import estimate_size
    from rmqinspect.export.request import ExportRequest
    from tests.support.exporting import case_store, planned

    run(FLIPPED)
    written = sum(path.stat().st_size for path in Path("lake").rglob("*.parquet"))
    plan = planned(case_store("crash", "flip_body_third-4.7.1-c"), ExportRequest())
    assert 0.5 * written < estimate_size([plan]) < 3 * written


# What it says.


def test_quiet_says_nothing(run: Run) -> None:
    assert run(FLIPPED, "-q") == (ExitStatus.DAMAGE, "", "")


def test_long_reads_are_announced(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmqinspect.cli.export_run.LONG_READ", 1000)
    assert "Cheaper: --offset A..B" in run(FLIPPED)[2]


def test_it_says_that_no_commit_log_was_given(run: Run) -> None:
    queues = [str(Path(FLIPPED, "consumequeue")), "--table", "messages", "--table", "queue_units"]
    status, _, err = run(*queues)
    assert status == ExitStatus.DONE
    assert "consumequeue: no commit log segments: no rows of messages\n" in err
    assert "no segment" not in run(queues[0], "--table", "queue_units", "--overwrite")[2]
    assert "no segment" not in run(FLIPPED, "--overwrite")[2]


def test_room_is_asked_for_before_spark_starts(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(master: str | None, *, verbose: bool) -> None:
        raise AssertionError("started")

    monkeypatch.setattr("rmqinspect.spark.session.check_spark", lambda master: None)
    monkeypatch.setattr("rmqinspect.spark.spark_engine", start)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=10_000))
    assert main(["export", FLIPPED, "-o", "lake"]) == ExitStatus.REFUSED
    monkeypatch.undo()


def test_many_partitions_are_warned_of(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmqinspect.cli.export_run.MANY_FILES", 5)
    assert "expect at least 12 files" in run(FLIPPED, "--partition-by", "topic,day")[2]
    assert "expect at least" not in run(FLIPPED, "--overwrite")[2]


def test_progress_has_bytes_rows_and_rate(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]

    def tick() -> float:
        clock[0] += 6
        return clock[0]

    monkeypatch.setattr("rmqinspect.cli.terminal.time.monotonic", tick)
    _, _, err = run(FLIPPED, "--file-size", "32K", "--progress")
    lines = [line for line in err.splitlines() if "ETA" in line]
    assert lines
    assert all(" % " in line and "/s" in line and " rows" in line for line in lines)


@pytest.mark.parametrize(("name", "shown"), [(b"st\x1b[31more", "st\x1b[31more"), (b"st\xff", "st\\xff")])
def test_odd_names_of_stores_do_not_reach_the_terminal(run: Run, tmp_path: Path, name: bytes, shown: str) -> None:
    store = oracle.copy("crash", "none-5.4.0-g", tmp_path)
    os.rename(store, odd := os.fsencode(tmp_path) + b"/" + name)
    status, out, err = run(os.fsdecode(odd))
    assert status == ExitStatus.DONE
    assert "\x1b" not in out + err
    assert set(rows().column("store").to_pylist()) == {shown}


# Again, and later.


@pytest.mark.parametrize(
    "words", [("-t", "orders"), ("--file-size", "8K"), ("--schema", "kafka"), ("--all",), ("--redact", "body")]
)
def test_another_wish_is_not_added_to_an_export(words: tuple[str, ...], run: Run) -> None:
    run(FLIPPED)
    before = manifest()
    status, _, err = run(FLIPPED, "--incremental", *words)
    assert status == ExitStatus.REFUSED
    assert "was made with different" in err
    assert manifest() == before


def test_a_relative_time_is_another_wish_than_none(run: Run) -> None:
    run(FLIPPED, "--since", "last-1s")
    assert manifest()["export"]["filters"] == {"since": "last-1s"}  # type: ignore[index]
    status, _, err = run(FLIPPED, "--incremental")
    assert status == ExitStatus.REFUSED
    assert "was made with different filters" in err


def test_topics_without_new_records_are_not_missed(run: Run, tmp_path: Path) -> None:
    log = tmp_path / "store" / "commitlog"
    pieces = [{"topic": topic} for topic in ("a", "b")]
    for number in range(2):
        write_segment(log, pad(lay([*pieces, {"topic": "a"}][: 2 + number]), 1 << 16))
        status, _, err = run(str(tmp_path / "store"), "-t", "a", "-t", "b", *(["--incremental"] * number))
        assert (status, "no topic matches" in err) == (ExitStatus.DONE, False)
    assert sorted(rows().column("topic").to_pylist()) == ["a", "a", "b"]


def test_the_rows_of_a_store_that_is_left_out_later_stay(run: Run) -> None:
    run(f"a={FLIPPED}", f"b={HEALTHY}")
    status, _, err = run(f"a={FLIPPED}", "--incremental")
    assert status == ExitStatus.DAMAGE
    assert "b: not given: its rows of the earlier export stay" in err
    assert set(rows().column("store").to_pylist()) == {"a", "b"}


def test_last_is_another_time_in_each_store(run: Run) -> None:
    run(f"a={FLIPPED}", f"b={HEALTHY}", "--since", "last-1s")
    assert set(rows().column("store").to_pylist()) == {"a", "b"}
    for name, store in (("a", FLIPPED), ("b", HEALTHY)):
        chosen = rows().filter(pa.compute.equal(rows().column("store"), name)).num_rows
        run(f"{name}={store}", "--since", "last-1s", "--overwrite")
        assert rows().num_rows == chosen > 0
        run(f"a={FLIPPED}", f"b={HEALTHY}", "--since", "last-1s", "--overwrite")


def test_parts_are_written_there_from_any_folder(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "other"
    other.mkdir()

    def elsewhere(parts: Sequence[Work], spec: ExportSpec) -> Generator[WorkRead, None, None]:
        for part in parts:
            assert isinstance(part, LogPart | SidePart)
            monkeypatch.chdir(other)
            read = write_part(part, spec)
            monkeypatch.chdir(tmp_path)
            yield read

    monkeypatch.setattr("rmqinspect.export.job.local_engine", lambda jobs: Engine("local", "elsewhere", elsewhere))
    assert run(FLIPPED, "--table", "messages", "--table", "queue_units")[0] == ExitStatus.DAMAGE
    assert rows().num_rows == 261
    assert not list(other.iterdir())


def test_the_command_is_written_down(run: Run) -> None:
    run(FLIPPED)
    document = manifest()
    assert document["run"]["engine"] == "local"  # type: ignore[index]
    assert document["run"]["versions"].keys() == {"python", "pyarrow"}  # type: ignore[index]


# Interrupted.


@pytest.fixture(scope="module")
def large_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a store of 256 MiB: the same segment many times, which takes some seconds to export."""
    root = tmp_path_factory.mktemp("large") / "store"
    size = 1 << 20
    for number in range(256):
        base = number * size
        if number < 2:
            raw = fill(lay(various(2000), base), size)
            write_segment(root / "commitlog", raw, base)
        else:  # records are found there, at offsets that are not theirs
            os.link(root / "commitlog" / f"{size:020}", root / "commitlog" / f"{base:020}")
    return root


@pytest.mark.parametrize(
    ("number", "jobs"),
    [
        (signal.SIGINT, "2"),
        (signal.SIGHUP, "1"),
        (signal.SIGTERM, "2"),
        *map(rare, [(signal.SIGINT, "1"), (signal.SIGHUP, "2"), (signal.SIGTERM, "1")]),
    ],
)
def test_an_interrupted_export_leaves_nothing(number: int, jobs: str, large_store: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "rmqinspect", "export", str(large_store), "-o", "lake", "--engine", "local"]
    command += ["-j", jobs, "--file-size", "1M"]
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as process:
        limit = time.monotonic() + 60
        while not list(tmp_path.glob("lake/messages/.*")) and time.monotonic() < limit:
            assert process.poll() is None, process.communicate()
            time.sleep(0.02)
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    assert process.returncode == (130 if number == signal.SIGINT else 128 + number)
    assert "Traceback" not in err
    assert not (tmp_path / "lake").exists()


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM])
def test_an_output_file_that_is_not_finished_is_removed(number: int, large_store: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "rmqinspect", "decode", str(large_store), "-o", "rows.jsonl", "-j", "1"]
    with subprocess.Popen(
        command, cwd=tmp_path, stderr=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(ROOT)}
    ) as process:
        limit = time.monotonic() + 60
        while not list(tmp_path.iterdir()) and time.monotonic() < limit:
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(number)
        process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert not list(tmp_path.iterdir())
