"""Cases of every kind through Spark: files of the same names with the same bytes as without it."""

from pathlib import Path
from typing import TYPE_CHECKING

from rmqinspect.export.job import local_engine
from rmqinspect.export.request import MESSAGES, ExportRequest
from tests.support import oracle
from tests.support.exporting import case_store, export, names
from tests.support.sparks import quiet

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = quiet

# Spark only distributes the parts, which tests/export/test_export_cases.py reads: some stores, or all of brokers and of
# each damage.
CASES: list[tuple[oracle.Family, str]] = [("crash", name) for name in oracle.cases("crash")[::4]]
CASES += [("broker", name) for name in oracle.cases("broker")]


def test_spark_writes_the_files_that_this_machine_writes(
    spark: "SparkSession", tmp_path: Path, all_cases: bool
) -> None:
    from rmqinspect.spark.engine import context_engine

    cases = CASES if all_cases else CASES[::7]
    stores = [case_store(*case) for case in cases]
    request = ExportRequest((MESSAGES, "gaps", "queues"))
    local = export(tmp_path / "local", stores, request, local_engine(1))
    distributed = export(tmp_path / "spark", stores, request, context_engine(spark.sparkContext))
    assert names(tmp_path / "spark") == names(tmp_path / "local")
    assert distributed.manifest.as_json() == local.manifest.as_json()
    assert len(names(tmp_path / "local")) > 2 * len(cases)
    for name in names(tmp_path / "local"):
        assert (tmp_path / "spark" / name).read_bytes() == (tmp_path / "local" / name).read_bytes(), name
