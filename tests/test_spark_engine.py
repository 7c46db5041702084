"""An export as a Spark job: the files are the local engine's, whatever happens to its tasks."""

import pickle
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from rmqinspect.errors import Refused
from rmqinspect.export.job import LocalEngine, Outcome, run_export
from rmqinspect.export.part import LogPartRead, Orders, write_part
from rmqinspect.export.store_plan import StorePlan, plan_store
from rmqinspect.export.target import FRESH, Target
from rmqinspect.export.wish import Wish
from rmqinspect.parallel import WorkerLost
from rmqinspect.store import open_store
from tests import oracle
from tests.sparks import quiet

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
WISH = Wish(("messages", "segments", "gaps", "queues", "queue_units", "index_entries", "topics"), file_size=1 << 17)


def plans(wish: Wish = WISH, stores: Sequence[tuple[oracle.Family, str]] = STORES) -> list[StorePlan]:
    opened = [replace(open_store([str(oracle.store(family, name))]), name=name) for family, name in stores]
    return [plan_store(store, wish) for store in opened]


def export(engine: Any, target: Path, wish: Wish = WISH) -> tuple[Outcome, list[tuple[int, int]]]:
    told: list[tuple[int, int]] = []
    outcome = run_export(
        plans(wish), Orders(str(target), RUN, wish), engine, lambda size, rows: told.append((size, rows))
    )
    return outcome, told


def files(target: Path, outcome: Outcome) -> dict[str, Any]:
    return {name: pq.read_table(target / written_as) for name, written_as in outcome.names.items()}


def test_the_files_are_the_local_engine_s(spark: "SparkSession", tmp_path: Path) -> None:
    from rmqinspect.spark.engine import ConnectEngine, SparkEngine

    expected, expected_told = export(LocalEngine(1), tmp_path / "local")
    local = files(tmp_path / "local", expected)
    assert len(local) > 3 * len(STORES)
    # What a session behind Spark Connect can do, an ordinary one can, too.
    for number, engine in enumerate((SparkEngine(spark.sparkContext), ConnectEngine(spark))):
        found, told = export(engine, tmp_path / str(number))
        spark_files = files(tmp_path / str(number), found)
        assert spark_files.keys() == local.keys()
        for name, table in spark_files.items():
            assert table.equals(local[name]), name
            assert table.schema.equals(local[name].schema, check_metadata=True), name
        assert told == expected_told
        assert [result.statuses for result in found.results] == [result.statuses for result in expected.results]
        assert [store.lost for store in found.manifest.stores] == [store.lost for store in expected.manifest.stores]


def test_what_a_second_attempt_wrote_does_not_stay(spark: "SparkSession", tmp_path: Path) -> None:
    """As with speculation: two tasks wrote the same part, one of them is taken."""
    from rmqinspect.spark.engine import SparkEngine

    wish = Wish(file_size=1 << 20)
    target = Target(str(tmp_path / "out"), FRESH, [])
    (plan,) = plans(wish, STORES[:1])
    orders = Orders(str(tmp_path / "out"), RUN, wish)
    outcome = run_export([plan], orders, SparkEngine(spark.sparkContext))
    loser = write_part(plan.parts[0], orders)
    assert {file.name for file in loser.files} <= outcome.names.keys()
    target.commit(outcome.manifest, outcome.names)
    left = [path.relative_to(tmp_path / "out").as_posix() for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert sorted(left) == sorted([*outcome.names, "_SUCCESS", "_manifest.json"])


def test_what_a_task_cannot_do_is_told_as_it_would_be_here(spark: "SparkSession", tmp_path: Path) -> None:
    from rmqinspect.spark.engine import ConnectEngine, SparkEngine

    (tmp_path / "file").write_bytes(b"")
    orders = Orders(str(tmp_path / "file"), RUN, WISH)
    for engine in (SparkEngine(spark.sparkContext), ConnectEngine(spark)):
        with pytest.raises(Refused, match="cannot be written: Not a directory"):
            list(engine.run(plans(stores=STORES[:1])[0].parts, orders))


def test_a_job_that_fails_says_why(spark: "SparkSession", tmp_path: Path) -> None:
    from rmqinspect.spark.engine import ConnectEngine, SparkEngine

    broken: Any = ["no part"]
    for engine in (SparkEngine(spark.sparkContext), ConnectEngine(spark)):
        with pytest.raises(WorkerLost, match="the Spark job failed: a task ended with AttributeError: ") as told:
            list(engine.run(broken, Orders(str(tmp_path), RUN, WISH)))
        assert "\n" not in str(told.value)


def test_who_closes_the_answers_ends_the_job(spark: "SparkSession", tmp_path: Path) -> None:
    from rmqinspect.spark.engine import SparkEngine

    parts = [part for plan in plans(Wish(file_size=1 << 12), STORES[:1]) for part in plan.parts]
    run = SparkEngine(spark.sparkContext).run(parts, Orders(str(tmp_path), RUN, WISH))
    first = next(run)
    assert isinstance(first, LogPartRead) and first.part == parts[0]
    run.close()
    assert not spark.sparkContext.statusTracker().getActiveJobsIds()
    assert len(list(tmp_path.rglob("*.parquet.*"))) < len(parts)


def test_a_part_is_paths_and_numbers() -> None:
    for plan in plans(stores=STORES[:2]):
        assert max(len(pickle.dumps(part)) for part in (*plan.parts, *plan.side_parts)) < 6000


def test_nothing_to_do_is_no_job(spark: "SparkSession", tmp_path: Path) -> None:
    from rmqinspect.spark.engine import ConnectEngine, SparkEngine

    for engine in (SparkEngine(spark.sparkContext), ConnectEngine(spark)):
        assert list(engine.run([], Orders(str(tmp_path), RUN, WISH))) == []
