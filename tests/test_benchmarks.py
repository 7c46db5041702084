"""The benchmarks' stores are sound, and their measurements include what they claim."""

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from benchmarks import fleet, goals, measure, pointers, scale
from benchmarks.make_store import (
    HALF,
    KEYS_PER_RECORD,
    PROFILES,
    QUEUES,
    TOPICS,
    Layout,
    make_store,
    write_sparse_store,
)
from benchmarks.peers import plan_peers
from benchmarks.stores import opened
from rmqinspect.index.geometry import DEFAULT_GEOMETRY, Geometry, read_index_files
from rmqinspect.store.discover import open_store
from rmqinspect.tables import TABLES
from rmqinspect.tables.request import Request
from rmqinspect.topics import SCHEDULE_TOPIC
from rmqinspect.verify.result import VerifyOptions, VerifyResult
from rmqinspect.verify.run import verify as verify_store
from tests.support.samples import ROOT

ON_LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")


def read_messages(path: Path) -> pa.Table:
    """Return the messages table of a store."""
    table = TABLES["messages"]
    return pa.Table.from_batches(table.rows(open_store([str(path)]), Request()), table.schema)


def verify_deep(path: Path) -> VerifyResult:
    """Return the result of the level that also reads queues and index."""
    return verify_store(open_store([str(path)]), VerifyOptions(level="deep"))


def files_below(folder: Path) -> dict[str, bytes]:
    """Return the content of each file, by its path in the folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("profile", PROFILES)
def test_a_generated_store_is_whole(tmp_path: Path, profile: str) -> None:
    store = tmp_path / "store"
    assert make_store(str(store), profile, 2 << 20) == 2 << 20
    segments = sorted((store / "commitlog").iterdir())
    assert [(int(file.name), file.stat().st_size) for file in segments] == [
        (number << 19, 1 << 19) for number in range(4)
    ]
    outcome = verify_deep(store)
    assert (outcome.verdict, outcome.findings.rows) == ("WHOLE", [])
    records = read_messages(store).num_rows
    assert outcome.units == outcome.joined_units == records
    assert outcome.joined_entries == records * KEYS_PER_RECORD
    assert len(list((store / "consumequeue").glob("*/*/*"))) == TOPICS * QUEUES
    assert len(list((store / "index").iterdir())) == pointers.INDEX_FILES


def test_a_sparse_store_is_whole_and_has_what_questions_are_about(tmp_path: Path) -> None:
    store = tmp_path / "store"
    write_sparse_store(str(store), 3, 1 << 20, 100_000, Layout(30, 2, 1, system=True))
    outcome = verify_deep(store)
    assert outcome.verdict.startswith("WHOLE")
    # Half of the delayed messages are delivered, in a log that spans no second.
    assert {finding.code for finding in outcome.findings.rows} == {"ST-DELAY-OFFSET"}
    table = TABLES["groups"]
    rows = [row for batch in table.rows(open_store([str(store)]), Request()) for row in batch.to_pylist()]
    assert len(rows) > 30
    assert {row["status"] for row in rows} == {"ok"}
    topics = read_messages(store).column("topic").to_pylist()
    assert {HALF, SCHEDULE_TOPIC} < set(topics)


def test_queues_and_index_continue_across_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, piece_size in (("pieces", 100_000), ("whole", 1 << 20)):
        monkeypatch.setattr(pointers, "PIECE_SIZE", piece_size)
        make_store(str(tmp_path / name), "small", 1 << 20, 1 << 20, queue_file_size=81, geometry=Geometry(97, 1001))
    store = tmp_path / "pieces"
    assert files_below(store) == files_below(tmp_path / "whole")
    outcome = verify_deep(store)
    assert outcome.verdict == "WHOLE"
    index = sorted((store / "index").iterdir())
    assert len(index) == -(-outcome.joined_entries // 1000) > 2
    assert {file.stat().st_size for file in index} == {Geometry(97, 1001).size}
    queue = sorted((store / "consumequeue" / "shop-events-00" / "0").iterdir())
    assert [(int(file.name), file.stat().st_size) for file in queue] == [(at * 100, 100) for at in range(len(queue))]
    assert len(queue) > 2
    index[1].write_bytes(index[0].read_bytes())
    assert "IX-MISSING" in verify_deep(store).findings.counts


def test_an_index_may_have_the_settings_of_a_broker(tmp_path: Path) -> None:
    make_store(str(tmp_path / "store"), "mid", 64 << 10, geometry=DEFAULT_GEOMETRY)
    (file,) = (tmp_path / "store" / "index").iterdir()
    assert file.stat().st_size == 420_000_040
    (index,) = read_index_files(open_store([str(tmp_path / "store")]))
    assert index.geometry == DEFAULT_GEOMETRY
    assert index.entries == read_messages(tmp_path / "store").num_rows * KEYS_PER_RECORD


def test_queue_offsets_continue_across_segments(tmp_path: Path) -> None:
    make_store(str(tmp_path / "store"), "small", 2 << 20)
    messages = read_messages(tmp_path / "store").to_pylist()
    assert {row["status"] for row in messages} == {"ok"}
    assert len({row["msg_id"][-8:] for row in messages}) == len(messages)
    queues: dict[tuple[str, int], list[int]] = {}
    for row in messages:
        queues.setdefault((row["topic"], row["queue_id"]), []).append(row["queue_offset"])
    assert len(queues) == TOPICS * QUEUES
    assert all(offsets == list(range(len(offsets))) for offsets in queues.values())


def test_the_same_seed_makes_the_same_store(tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        make_store(str(tmp_path / name), "mid", 64 << 10, seed=seed, queue_file_size=1000)
    first, again, other = (files_below(tmp_path / name) for name in "abc")
    assert first == again
    assert all(first[name] != other[name] for name in first if name.startswith(("commitlog", "index")))


@pytest.mark.all_cases
def test_the_benchmark_prints_a_row_per_peer_and_goals_and_leaves_no_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.jsonl"
    folders = ["--keep", str(tmp_path), "--scratch", str(tmp_path)]
    only = ["--only", "^(read, 1|floor|export -j 1$)"]
    goals.main(["--profile", "mid", "--size", "256KiB", "--rounds", "1", "--out", str(out), *folders, *only])
    assert {path.name for path in tmp_path.iterdir()} == {f"mid-{256 << 10}", "out.jsonl"}
    costs = {line["peer"]: line for line in map(json.loads, out.read_text().splitlines())}
    runs = ["floor", "export -j 1"]
    assert set(costs) == {"read, 1 thread", *runs, "export, start-up"}
    lines = capsys.readouterr().out.splitlines()
    assert {line.split(" | ")[0] for line in lines} >= {f"| {peer}" for peer in costs}
    (row,) = [line for line in lines if line.startswith("| export: CPU of -j 1 / floor |")]
    floor, cpu = (costs[name]["cpu"] for name in runs)
    times = max(cpu - costs["export, start-up"]["cpu"], 0.001) / floor
    assert row.split(" | ")[1] == " / ".join([f"{times:.2f}"] * 3)
    assert row.split(" | ")[2].startswith("≤ 1.45")


def test_level_deep_is_measured_if_queues_or_index_exist(tmp_path: Path) -> None:
    for name, log_only in (("log", True), ("store", False)):
        store = tmp_path / name
        make_store(str(store), "mid", 64 << 10, log_only=log_only)
        pointing = set() if log_only else {"consumequeue", "index"}
        assert {path.name for path in store.iterdir()} == {"commitlog", "checkpoint"} | pointing
        with opened(str(store)) as (log, bounds):
            names = {peer.name for peer in plan_peers(log, log, bounds, tmp_path, spark=False)}
        assert (log.records, log.pointed_at) == (read_messages(store).num_rows, not log_only)
        assert "verify -j 1" in names
        assert ("verify deep -j 1" in names) != log_only


def cost_of(script: str) -> measure.Cost:
    """Return the cost of a script, measured by a small process: a peak begins with that of the one that measures."""
    code = f"""import dataclasses, json, sys
from benchmarks.measure import run_process
print(json.dumps(dataclasses.asdict(run_process([sys.executable, "-c", {script!r}]))))"""
    printed = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=True).stdout
    return measure.Cost(**json.loads(printed))


@ON_LINUX
@pytest.mark.parametrize("leaves", ["", "os.setpgid(0, 0)\n"], ids=["its group", "a group of its own"])
def test_the_cost_of_a_process_includes_descendants_that_outlive_it(leaves: str) -> None:
    orphan = f"import os, time\n{leaves}a = b'x' * (90 << 20)\nwhile time.process_time() < 0.3: pass"
    cost = cost_of(f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {orphan!r}])")
    assert cost.cpu > 0.3
    assert 90 << 20 < (cost.memory or 0) < 140 << 20


def test_a_process_that_fails_is_not_measured() -> None:
    failing = "import sys; print('words', file=sys.stderr); sys.exit(3)"
    with pytest.raises(RuntimeError, match="status 3\nwords"):
        measure.run_process([sys.executable, "-c", failing])


def test_a_fleet_has_links_of_one_store_and_some_that_crashed(tmp_path: Path) -> None:
    def write(path: str) -> None:
        (Path(path) / "commitlog").mkdir(parents=True)
        (Path(path) / "commitlog" / f"{0:020}").write_bytes(b"record")

    stores = fleet.fleet_of(tmp_path, "small", 4, write, crashed=2)
    assert stores == fleet.fleet_of(tmp_path, "small", 4, lambda _: pytest.fail("they are there"), crashed=2)
    assert [sorted(files_below(Path(store))) for store in stores] == [
        [f"commitlog/{0:020}"],
        [f"commitlog/{0:020}"],
        ["abort", f"commitlog/{0:020}"],
        [f"commitlog/{0:020}"],
    ]
    assert (tmp_path / "small-3" / "commitlog" / f"{0:020}").stat().st_nlink == 4


def test_the_cost_of_many_stores_is_the_sum_of_its_terms(capsys: pytest.CaptureFixture[str]) -> None:
    shape = scale.Shape(stores=10, gib=100, segments=200, queues=90)
    assert scale.extrapolated({"start": 1, "a store": 0.5, "a GiB": 2, "a segment": 0.25}, shape) == 1 + 5 + 200 + 50
    # Requests count each queue; of CPU seconds a store has those of 8 queues.
    assert scale.extrapolated({"a queue": 3}, shape) == 270
    assert scale.extrapolated({"a further queue": 3}, shape) == 30
    scale.print_extrapolated({"requests to object storage": {"info": {"a store": 2.0, "a GiB": 1.0}}})
    assert "| info | requests | 2 | 20 | 2,000 | 2,000 |" in capsys.readouterr().out


@ON_LINUX
def test_a_watch_sees_what_descendants_use() -> None:
    work = "sum(i * i for i in range(10 ** 7))"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {work!r}])"
    watch = scale.run_watched([sys.executable, "-c", parent], "")
    assert set(watch.kinds.values()) == {"driver", "worker"}
    assert watch.memory["worker"] > 1 << 20
    assert sum(watch.cpu[process] for process, kind in watch.kinds.items() if kind == "worker") > 0.1
