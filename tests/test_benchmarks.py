"""The benchmark's stores are whole, and its measuring measures what it says."""

import re
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from benchmarks import measure, verify
from benchmarks.make_store import PROFILES, QUEUES, TOPICS, make_store
from rmqinspect.store import open_store
from rmqinspect.tables import TABLES
from rmqinspect.tables.table import Request

ON_LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells it")


def read_messages(path: Path) -> pa.Table:
    """Return the messages table of a store."""
    table = TABLES["messages"]
    return pa.Table.from_batches(table.rows(open_store([str(path)]), Request()), table.schema)


@pytest.mark.parametrize("profile", PROFILES)
def test_a_made_store_is_whole(tmp_path: Path, profile: str) -> None:
    store = tmp_path / "store"
    assert make_store(str(store), profile, 2 << 20) == 2 << 20
    segments = sorted((store / "commitlog").iterdir())
    assert [(int(file.name), file.stat().st_size) for file in segments] == [
        (number << 19, 1 << 19) for number in range(4)
    ]
    measure.run_process([sys.executable, "-m", "rmqinspect", "verify", str(store), "-q", "--fail-on", "warning"])


def test_the_records_of_a_made_store_go_on_in_each_queue(tmp_path: Path) -> None:
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
        make_store(str(tmp_path / name), "mid", 64 << 10, seed=seed)
    first, again, other = ((tmp_path / name / "commitlog" / f"{0:020}").read_bytes() for name in "abc")
    assert first == again != other


def test_the_benchmark_prints_a_row_per_peer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.jsonl"
    chosen = ["--only", "^(read|verify -j 1|decode -j 1$)", "--out", str(out)]
    verify.main(["--size", "4MiB", "--rounds", "1", "--keep", str(tmp_path), *chosen])
    assert (tmp_path / f"mid-{4 << 20}").is_dir()
    lines = capsys.readouterr().out.splitlines()
    peers = [line.split(" | ")[0] for line in lines if re.search(r"\| [\d.]+ / [\d.]+ / [\d.]+ \|", line)]
    assert {"| read, 1 thread", "| verify -j 1", "| verify -j 1, start-up", "| decode -j 1"} < set(peers)
    assert len(out.read_text().splitlines()) == len(peers)


@ON_LINUX
def test_the_cost_of_a_process_includes_what_outlives_it() -> None:
    orphan = "import time\nwhile time.process_time() < 0.3: pass"
    parent = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {orphan!r}])"
    cost = measure.run_process([sys.executable, "-c", parent])
    assert cost.cpu > 0.3


@ON_LINUX
def test_the_memory_of_a_process_is_its_peak() -> None:
    command = [sys.executable, "-c", "import time; a = b'x' * (50 << 20); time.sleep(0.4)"]
    assert 50 << 20 < (measure.run_process(command, watch=True).memory or 0) < 90 << 20


def test_a_process_that_fails_is_not_measured() -> None:
    failing = "import sys; print('words', file=sys.stderr); sys.exit(3)"
    with pytest.raises(RuntimeError, match="status 3\nwords"):
        measure.run_process([sys.executable, "-c", failing])
