"""An export as a Spark job: the files are the local engine's, whatever happens to its tasks."""

import json
import pickle
import subprocess
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from rmqinspect.cli import ExitStatus, main
from rmqinspect.errors import Refused, Unreachable
from rmqinspect.export.job import ExportResult, local_engine, run_export
from rmqinspect.export.part import ExportSpec, LogPartRead, write_part
from rmqinspect.export.plan import StorePlan
from rmqinspect.export.request import ExportRequest
from rmqinspect.export.target import FRESH, Target
from rmqinspect.spark import session
from rmqinspect.store.discover import open_store
from tests.support import oracle
from tests.support.exporting import case_store, names, planned
from tests.support.exporting import export as whole_export
from tests.support.sparks import MASTER, quiet

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = quiet

STORES: tuple[tuple[oracle.Family, str], ...] = (
    ("broker", "main-5.3.3"),
    ("broker", "dledger-4.9.7"),
    ("broker", "rocksdb-5.3.3"),
    ("crash", "flip_body_third-4.7.1-c"),
    ("crash", "seg_missing_last-4.7.1-h"),
)
RUN = "0ab1"
WISH = ExportRequest(
    ("messages", "segments", "gaps", "queues", "queue_units", "index_entries", "topics"), file_size=1 << 17
)


def plans(request: ExportRequest = WISH, stores: Sequence[tuple[oracle.Family, str]] = STORES) -> list[StorePlan]:
    opened = [replace(open_store([str(oracle.store(family, name))]), name=name) for family, name in stores]
    return [planned(store, request) for store in opened]


def export(engine: Any, plans: Sequence[StorePlan], target: Path) -> tuple[ExportResult, list[tuple[int, int]]]:
    reported: list[tuple[int, int]] = []
    spec = ExportSpec(str(target), RUN, WISH)
    return run_export(plans, spec, engine, lambda size, rows: reported.append((size, rows))), reported


def files(target: Path, outcome: ExportResult) -> dict[str, Any]:
    return {name: pq.read_table(target / written_as) for name, written_as in outcome.names.items()}


def test_the_files_are_the_local_engine_s_byte_for_byte(spark: "SparkSession", tmp_path: Path, all_cases: bool) -> None:
    """Spark only distributes the parts, which tests/export reads of all cases; here some, of brokers and of damage."""
    from rmqinspect.spark.engine import context_engine

    every: list[tuple[oracle.Family, str]] = [("crash", name) for name in oracle.cases("crash")[::4]]
    every += [("broker", name) for name in oracle.cases("broker")]
    stores = [case_store(family, name) for family, name in (every if all_cases else STORES)]
    local = whole_export(tmp_path / "local", stores, WISH, local_engine(1))
    distributed = whole_export(tmp_path / "spark", stores, WISH, context_engine(spark.sparkContext))
    assert names(tmp_path / "spark") == names(tmp_path / "local")
    assert distributed.manifest.as_json() == local.manifest.as_json()
    assert len(names(tmp_path / "local")) > 2 * len(stores)
    for name in names(tmp_path / "local"):
        assert (tmp_path / "spark" / name).read_bytes() == (tmp_path / "local" / name).read_bytes(), name


@pytest.mark.all_cases
def test_the_files_are_the_same_without_jobs_of_our_own(spark: "SparkSession", tmp_path: Path) -> None:
    """What a session behind Spark Connect can do, an ordinary one can, too."""
    from rmqinspect.spark.engine import connect_engine

    expected, expected_told = export(local_engine(1), plans(stores=STORES[3:4]), tmp_path / "local")
    found, reported = export(connect_engine(spark), plans(stores=STORES[3:4]), tmp_path / "spark")
    local, spark_files = files(tmp_path / "local", expected), files(tmp_path / "spark", found)
    assert spark_files.keys() == local.keys() and len(local) > 3
    for name, table in spark_files.items():
        assert table.equals(local[name], check_metadata=True), name
    assert reported == expected_told
    assert [result.statuses for result in found.planned] == [result.statuses for result in expected.planned]
    assert [store.lost for store in found.manifest.stores] == [store.lost for store in expected.manifest.stores]


def test_what_a_second_attempt_wrote_does_not_stay(spark: "SparkSession", tmp_path: Path) -> None:
    """As with speculation: two tasks wrote the same part, one of them is taken."""
    from rmqinspect.spark.engine import context_engine

    request = ExportRequest(file_size=1 << 20)
    target = Target(str(tmp_path / "out"), FRESH, [])
    (plan,) = plans(request, STORES[:1])
    spec = ExportSpec(str(tmp_path / "out"), RUN, request)
    outcome = run_export([plan], spec, context_engine(spark.sparkContext))
    loser = write_part(plan.parts[0], spec)
    assert {file.name for file in loser.files} <= outcome.names.keys()
    target.commit(outcome.manifest, outcome.names)
    left = [path.relative_to(tmp_path / "out").as_posix() for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert sorted(left) == sorted([*outcome.names, "_SUCCESS", "_manifest.json"])


def test_what_a_task_cannot_do_is_told_as_it_would_be_here(spark: "SparkSession", tmp_path: Path) -> None:
    from rmqinspect.spark.engine import connect_engine, context_engine

    (tmp_path / "file").write_bytes(b"")
    spec = ExportSpec(str(tmp_path / "file"), RUN, WISH)
    for engine in (context_engine(spark.sparkContext), connect_engine(spark)):
        with pytest.raises(Refused, match="cannot be written: Not a directory"):
            list(engine.run(plans(stores=STORES[:1])[0].parts, spec))


def test_a_job_that_fails_says_why(spark: "SparkSession", tmp_path: Path) -> None:
    from rmqinspect.spark.engine import JobFailed, connect_engine, context_engine

    broken: Any = ["no part"]
    for engine in (context_engine(spark.sparkContext), connect_engine(spark)):
        with pytest.raises(JobFailed, match="the Spark job failed: a task ended with AttributeError: ") as reported:
            list(engine.run(broken, ExportSpec(str(tmp_path), RUN, WISH)))
        assert "\n" not in str(reported.value)


def test_who_closes_the_answers_ends_the_job(spark: "SparkSession", tmp_path: Path) -> None:
    from rmqinspect.spark.engine import context_engine

    parts = [part for plan in plans(ExportRequest(file_size=1 << 12), STORES[:1]) for part in plan.parts]
    run = context_engine(spark.sparkContext).run(parts, ExportSpec(str(tmp_path), RUN, WISH))
    first = next(run)
    assert isinstance(first, LogPartRead) and first.part == parts[0]
    run.close()
    assert not spark.sparkContext.statusTracker().getActiveJobsIds()
    assert len(list(tmp_path.rglob("*.parquet.*"))) < len(parts)


def test_a_task_asks_once_more_where_nobody_answered(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from rmqinspect.spark import engine

    answers: list[Any] = []

    def run_part(part: Any, spec: ExportSpec) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(engine, "run_part", run_part)
    monkeypatch.setattr(engine, "_PAUSE", 0)
    spec, part = ExportSpec(str(tmp_path), RUN, WISH), plans(stores=STORES[:1])[0].parts[0]
    answers += [Unreachable("s3://b: no answer"), "written"]
    assert pickle.loads(engine._write_and_pickle(part, spec)) == "written"
    answers += [Unreachable("s3://b: no answer"), Unreachable("s3://b: still none")]
    assert str(pickle.loads(engine._write_and_pickle(part, spec))) == "s3://b: still none"
    answers += [Refused("full"), "not asked for"]
    assert str(pickle.loads(engine._write_and_pickle(part, spec))) == "full"


def test_a_part_is_paths_and_numbers() -> None:
    for plan in plans(stores=STORES[:2]):
        assert max(len(pickle.dumps(part)) for part in (*plan.parts, *plan.side_parts)) < 6000


def test_nothing_to_do_is_no_job(spark: "SparkSession", tmp_path: Path) -> None:
    from rmqinspect.spark.engine import connect_engine, context_engine

    for engine in (context_engine(spark.sparkContext), connect_engine(spark)):
        assert list(engine.run([], ExportSpec(str(tmp_path), RUN, WISH))) == []


# --- the command -----------------------------------------------------------------------------------


def test_the_command_runs_on_spark_where_it_is_there(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the context that is there; a Spark that is on the path and not installed says its version, too."""
    version = metadata.version

    def not_installed(name: str) -> str:
        if name == "pyspark":
            raise metadata.PackageNotFoundError(name)
        return version(name)

    monkeypatch.setattr(metadata, "version", not_installed)
    stores = [f"{name}={oracle.store(family, name)}" for family, name in STORES[2:4]]
    assert main(["export", *stores, "-o", str(tmp_path / "lake")]) == ExitStatus.DAMAGE
    said = capsys.readouterr()
    assert f"Spark {spark.version}, {MASTER}" in said.err
    assert "DAMAGED: 1 row" in said.out
    run = json.loads((tmp_path / "lake" / "_manifest.json").read_bytes())["run"]
    assert run["engine"] == "spark"
    assert run["versions"]["pyspark"] == spark.version
    assert spark.range(3).count() == 3  # what was there stays


@pytest.mark.parametrize("words", [["--engine", "spark"], ["--master", "local[1]"]])
def test_who_insists_on_spark_is_told_what_it_lacks_before_anything_begins(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(session, "running_context", lambda: None)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert main(["export", "no-store", "-o", str(tmp_path / "lake"), *words]) == ExitStatus.USAGE
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("rmqinspect: Spark needs Java") and said.err.count("\n") == 1
    assert not (tmp_path / "lake").exists()


@pytest.mark.parametrize("quiet", [False, True])
def test_without_java_the_local_engine_writes_with_one_remark(
    quiet: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(session, "running_context", lambda: None)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    words = ["export", str(oracle.store(*STORES[0])), "-o", str(tmp_path / "lake"), "-j", "1"]
    assert main([*words, "-q"] if quiet else words) == ExitStatus.DONE
    said = capsys.readouterr().err.splitlines()
    why = [line for line in said if line.startswith(f"Spark needs Java; JAVA_HOME={tmp_path} has no working java")]
    assert [line.endswith(". Engine local: the files are the same") for line in why] == [True] * (not quiet)
    assert not any("--engine" in line for line in said)
    assert json.loads((tmp_path / "lake" / "_manifest.json").read_bytes())["run"]["engine"] == "local"


def test_the_local_engine_needs_no_pyspark(tmp_path: Path) -> None:
    words = ["export", str(oracle.store(*STORES[0])), "-o", str(tmp_path / "lake"), "-q"]
    script = "import sys; sys.modules['pyspark'] = None\nfrom rmqinspect.cli import main\nsys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", script, *words]
    ended = subprocess.run([*command, "--engine", "local"], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    ended = subprocess.run([*command, "--engine", "spark"], capture_output=True, text=True, timeout=60)
    assert ended.returncode == ExitStatus.USAGE
    assert ended.stderr.startswith("rmqinspect: pyspark is not installed: pip install")
    assert ended.stderr.count("\n") == 1
