"""The tables `stores` and `next_starts`: the documents of `info` and `forecast`, as rows, for every kind of store."""

import json
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from rmqinspect.broker.version_estimate import RELEASES
from rmqinspect.cli import ExitStatus
from rmqinspect.forecast.outcome import Verdict
from rmqinspect.rocksdb.databases import Job
from rmqinspect.rocksdb.unpack import has_rocksdict, read_apart
from tests.support import oracle
from tests.support.command import Run, runner
from tests.support.locks import HOLD, other_process
from tests.support.samples import NAMES, sample
from tests.support.sampling import sampled

run = runner()

STORES: list[tuple[Any, str]] = [
    *(("sample", name) for name in NAMES),
    *((family, name) for family in ("broker", "crash", "rust") for name in oracle.cases(family)),
]


def place(family: Any, name: str) -> Path:
    return sample(name) if family == "sample" else oracle.store(family, name)


def rows(run: Run, table: str, *words: str | Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(run("decode", *words, "--table", table, "-f", "json", "-q")[1])["rows"]
    return found


def document(run: Run, *words: str | Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run(*words, "-f", "json", "-q")[1])
    return found


def millis(text: str | None) -> int | None:
    return None if text is None else round(datetime.fromisoformat(text).timestamp() * 1000)


@pytest.mark.skipif(not has_rocksdict(), reason="needs rocksdict")
def test_of_queues_in_rocksdb_only_the_ends_are_unpacked(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row is the same, also beside a table that needs all of them."""
    store, asked = oracle.store("broker", "rocksdb-5.4.0"), list[str]()

    def noted(jobs: Sequence[Job], folder: str) -> dict[str, str]:
        asked.extend(job.reads for job in jobs)
        return read_apart(jobs, folder)

    monkeypatch.setattr("rmqinspect.rocksdb.unpack.read_apart", noted)
    (row,) = rows(run, "stores", store)
    assert "ends" in asked and "queues" not in asked
    words = ("-o", tmp_path / "lake", "--engine", "local", "--table", "stores")
    assert run("export", store, *words, "--table", "queue_units")[0] == ExitStatus.DONE
    assert "queues" in asked
    (exported,) = pq.read_table(tmp_path / "lake" / "stores").to_pylist()
    assert exported["queue_units"] == row["queue_units"] > 0
    assert exported["start_bytes"] == row["start_bytes"] > 0


@pytest.mark.parametrize(("family", "name"), sampled(STORES, 16))
def test_a_row_of_stores_is_what_info_says(run: Run, family: Any, name: str) -> None:
    store = place(family, name)
    (row,), info = rows(run, "stores", store), document(run, "info", store)
    log, queues, index, groups = info["log"], info["queues"], info["index"], info["groups"]
    assert row == {
        "place": info["place"],
        "files": info["files"],
        "size_bytes": info["total_bytes"],
        "layout": info["layout"],
        "features": info["features"],
        "writer": row["writer"],
        "writer_low": info["writer"]["low"],
        "writer_high": info["writer"]["high"],
        "writer_clues": row["writer_clues"] if family == "rust" else info["writer"]["clues"],
        "stopped": info["stop"]["state"],
        "lock_holder": info["stop"]["lock_holder"],
        "segments": log["segments"],
        "segment_size": log["segment_size"],
        "log_start": log["first_base"] if log["segments"] else None,
        "log_end": log["end"],
        "last_record": log["last_record"],
        "last_timestamp": row["last_timestamp"],
        "end_damaged": log["damaged"],
        "holes": len(log["holes"]),
        "hole_bytes": sum(hole["end"] - hole["start"] for hole in log["holes"]),
        "checkpoint_newer": info["newer"],
        "topics": queues["topics"],
        "queues": queues["queues"],
        "queue_units": queues["units"],
        "queues_beyond": queues["beyond"],
        "index_files": index["files"],
        "index_entries": index["entries"],
        "index_newest": row["index_newest"],
        "groups": groups["groups"],
        "subscriptions": groups["subscriptions"],
        "waiting_timers": info["waiting"]["timers"],
        "waiting_halves": info["waiting"]["halves"],
        "next_start": info["next_start"]["verdict"] if info["next_start"] else None,
        "start_bytes": row["start_bytes"],
        "odd": [f"{name}: {what}" for name, what in info["oddities"]],
        "not_read": info["unread"],
    }
    assert millis(row["last_timestamp"]) == log["last_timestamp"]
    assert millis(row["index_newest"]) == index["newest"]
    writer = next((line for line in run("info", store, "-q")[1].splitlines() if line.startswith("writer")), "")
    assert f"writer {row['writer']}" in " ".join(writer.split())


def counted(outcome: dict[str, Any]) -> dict[str, Any]:
    """Return the columns of a row from the document of an outcome."""
    refusal, rejected = outcome["refusal"] or {}, outcome["rejected"] or {}
    told = outcome["lost_messages"] is not None
    return {
        "era": outcome["era"],
        "verdict": outcome["verdict"],
        "starts": outcome["starts"],
        "messages_lost": outcome["lost_messages"],
        "intact_lost": outcome["lost_intact"],
        "bytes_lost": outcome["lost_bytes"],
        "units_lost": outcome["lost_units"],
        "first_lost_timestamp": outcome["first_lost_timestamp"],
        "last_lost_timestamp": outcome["last_lost_timestamp"],
        "lost_by_topic": outcome["lost_by_topic"] if told else None,
        "unreachable_messages": outcome["unreachable_messages"] if told else None,
        "wrong_messages": outcome["wrong_messages"] if told else None,
        "jumped_messages": outcome["jumped_messages"] if told else None,
        "skipped_messages": outcome["skipped_messages"] if told else None,
        "undelivered_messages": outcome["undelivered_messages"] if told else None,
        "healed_units": outcome["healed_units"] if told else None,
        "groups_beyond": len(outcome["groups_beyond"]) if told else None,
        "clean_exit": outcome["clean_exit"] if outcome["broker_version"] else None,
        "scan_start_base": outcome["scan_start_base"],
        "min_offset": outcome["min_offset"],
        "end_offset": outcome["end_offset"],
        "rejected_at": rejected.get("physical_offset"),
        "rejected_rule": rejected.get("rule"),
        "rejected_file": rejected.get("file"),
        "segments_deleted": len(outcome["deleted_segments"]) if told else None,
        "files_deleted": len(outcome["deleted_files"]) if told else None,
        "refused_file": refusal.get("file"),
        "why": refusal.get("why", outcome["cannot_tell"]),
        "remedy": refusal.get("remedy"),
        "already_lost": outcome["already_lost"],
        "assumptions": outcome["assumptions"],
    }


@pytest.mark.parametrize(("family", "name"), sampled(STORES, 24))
def test_next_starts_has_the_documents_of_forecast(run: Run, family: Any, name: str) -> None:
    store = place(family, name)
    found = rows(run, "next_starts", store)
    assert [row["release"] for row in found] == list(RELEASES)
    whole = document(run, "forecast", store, "--all-versions")
    outcomes = {one["era"]: counted(one) for one in whole.get("versions", [whole])}
    for row in found:
        own = {key: value for key, value in row.items() if key not in ("release", "may_be_writer")}
        assert own == outcomes[row["era"]], row["release"]
    assert list(dict.fromkeys(row["era"] for row in found)) == list(outcomes)
    # The worst of those that may have written it is what is answered when nobody names a release.
    (summary,) = rows(run, "stores", store)
    between = RELEASES[RELEASES.index(summary["writer_low"]) : RELEASES.index(summary["writer_high"]) + 1]
    assert [row["release"] for row in found if row["may_be_writer"]] == list(between)
    worst = document(run, "forecast", store)
    order = [str(verdict) for verdict in Verdict]
    verdicts = [row["verdict"] for row in found if row["may_be_writer"]]
    assert max(verdicts, key=order.index) == worst["verdict"]
    lost = [row["messages_lost"] for row in found if row["may_be_writer"] and row["verdict"] == worst["verdict"]]
    assert worst["lost_messages"] in lost


def test_one_release_and_one_exit_are_asked_for(run: Run, tmp_path: Path) -> None:
    store = sample("flipped-bit-5.3.3")
    (row,) = rows(run, "next_starts", store, "--broker-version", "5.3.3")
    assert (row["release"], row["era"], row["clean_exit"], row["messages_lost"]) == ("5.3.3", "5.3.3", False, 145)
    (row,) = rows(run, "next_starts", store, "--broker-version", "5.3.3", "--exit", "clean")
    asked = document(run, "forecast", store, "--broker-version", "5.3.3", "--exit", "clean")
    assert (row["clean_exit"], row["messages_lost"], row["end_offset"]) == (
        *(True, asked["lost_messages"]),
        asked["end_offset"],
    )
    words = ("--engine", "local", "--table", "next_starts", "--broker-version", "5.3.3", "-q")
    status, _, err = run("export", f"b={store}", "-o", tmp_path / "lake", *words)
    assert status == 0, err
    (exported,) = pq.read_table(tmp_path / "lake" / "next_starts").to_pylist()
    assert (exported["store"], exported["release"], exported["messages_lost"]) == ("b", "5.3.3", 145)
    again = ("--incremental", "--engine", "local", "--table", "next_starts", "-q")
    status, _, err = run("export", f"b={store}", "-o", tmp_path / "lake", *again)
    assert (status, "made with different" in err) == (ExitStatus.REFUSED, True)


@pytest.mark.parametrize("words", [("--broker-version", "5.3.3"), ("--exit", "clean")])
def test_a_start_is_described_for_a_table_that_has_one(run: Run, words: tuple[str, ...], tmp_path: Path) -> None:
    status, _, err = run("decode", sample("healthy-5.5.0"), "--table", "stores", *words)
    assert (status, "--table next_starts" in err) == (ExitStatus.USAGE, True)
    status, _, err = run("export", sample("healthy-5.5.0"), "-o", tmp_path / "lake", "--engine", "local", *words)
    assert (status, "--table next_starts" in err) == (ExitStatus.USAGE, True)


def test_of_a_part_of_a_store_one_row_says_why(run: Run) -> None:
    log = sample("healthy-5.5.0") / "commitlog"
    (row,) = rows(run, "next_starts", log)
    assert (row["release"], row["verdict"], row["starts"], row["messages_lost"]) == (None, "CANNOT TELL", None, None)
    assert row["why"] == document(run, "forecast", log)["cannot_tell"]
    (row,) = rows(run, "stores", log)
    assert (row["place"], row["stopped"], row["next_start"]) == ("segment", "unknown", None)


def test_below_a_broker_that_runs_nothing_is_walked(run: Run, tmp_path: Path) -> None:
    root = oracle.copy("crash", "base-5.3.3-halt", tmp_path)
    with other_process(HOLD, root / "lock") as pid:
        (row,), (start,) = rows(run, "stores", root), rows(run, "next_starts", root)
    assert (row["stopped"], row["lock_holder"], row["next_start"]) == ("running", pid, str(Verdict.RUNS))
    assert (start["release"], start["may_be_writer"], start["verdict"]) == (None, None, str(Verdict.RUNS))


def test_several_stores_are_one_table(run: Run) -> None:
    stores = [sample(name).parent for name in ("flipped-bit-5.3.3", "killed-4.9.7")]
    found = rows(run, "next_starts", *stores, "--broker-version", "5.3.3")
    assert [(row["store"], row["messages_lost"]) for row in found] == [("flipped-bit-5.3.3", 145), ("killed-4.9.7", 0)]
