"""A standalone cluster of two workers that has nothing of this package but what a job sends along."""

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rmqinspect.cli import ExitStatus, main
from rmqinspect.spark.source import RocketMQDataSource
from rmqinspect.system.output_folder import open_folder
from tests.support import oracle
from tests.support.building import lay, pad, various, write_segment
from tests.support.s3_server import CREDENTIALS, Server, serving
from tests.support.spark_cluster import cluster
from tests.support.sparks import quiet, require_java

pytestmark = [quiet, pytest.mark.skipif(not sys.platform.startswith("linux"), reason="processes are found in /proc")]

# What the driver does, where only what is in the archive is on its path.
JOB = """
import json, sys
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import rmqinspect
from rmqinspect.cli import main
from rmqinspect.spark import register

out, stores, few, words, remote, (lake, options) = Path(sys.argv[1]), *map(json.loads, sys.argv[2:])
spark = SparkSession.builder.getOrCreate()
register(spark)


def package(_):
    import rmqinspect
    from rmqinspect import loops

    return rmqinspect.__file__, loops.way()


here = package(None)
there = spark.sparkContext.parallelize(range(2), 2).map(package).collect()
assert all("rmqinspect-package" in file and way == here[1] for file, way in there), (here, there)
frame = spark.read.format("rocketmq").option("split_size", "300000").load(stores)
pq.write_table(frame.toArrow(), out / "rows.parquet")
status = main(["export", *stores, *words, "--engine", "spark", "-o", str(out / "small")])
status += main(["export", *few, *words, "--file-size", "16384", "--engine", "spark", "-o", str(out / "large")])
cut = ["--file-size", "65536", "--engine", "spark", "-o", lake + "/spark" + options]
status += main(["export", *remote, *words, *cut])
sys.exit(status)
"""
WORDS = ["--table", "messages", "--table", "queues", "--fail-on", "never", "-q"]
SETTINGS = {
    "spark_sql_codegen_wholeStage": "false",
    "spark_speculation": "true",
    "spark_speculation_interval": "20ms",
    "spark_speculation_minTaskRuntime": "20ms",
    "spark_speculation_multiplier": "1.1",
    "spark_speculation_quantile": "0.1",
}


def content(folder: Path) -> dict[str, Any]:
    """Return the files of an export by name; of the manifest all but the object `run`."""
    found: dict[str, Any] = {
        str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }
    return found | {"_manifest.json": json.loads(found["_manifest.json"]) | {"run": None}}


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as started:
        yield started


def test_a_load_and_exports_on_two_workers_one_of_which_loses_its_executor(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same rows, files and bytes as here; of each task several attempts may run.

    Stores of a bucket are opened by tasks, whose executors are told the credentials.
    """
    require_java()
    few = [f"{name}={oracle.store('broker', name)}" for name in ("main-5.3.3", "dledger-4.9.7")]
    few.append(f"bad={oracle.store('crash', 'flip_body_third-4.7.1-c')}")
    stores = list(few)
    for number in range(9):
        write_segment(tmp_path / f"s{number}" / "commitlog", pad(lay(various(5 + number)), 1 << 14))
        stores.append(str(tmp_path / f"s{number}"))
    remote = [server.upload(tmp_path / f"s{number}", f"s{number}") for number in range(2)]
    remote.append(server.upload(oracle.store("crash", "flip_body_third-4.7.1-c"), "flipped"))
    lake, _, options = server.uri("lake").partition("?")
    secrets = {f"spark_executorEnv_{name.replace('_', '__')}": value for name, value in CREDENTIALS.items()}
    with cluster(tmp_path / "cluster") as started:
        arguments = [str(tmp_path), *map(json.dumps, (stores, few, WORDS, remote, (lake, f"?{options}")))]
        for name, value in CREDENTIALS.items():  # of the driver: its workers are there already
            monkeypatch.setenv(name, value)
        driver = started.submit(JOB, arguments, **SETTINGS, **secrets)
        killed = _kill_one_that_writes(tmp_path / "large" / "messages", lambda: started.executors, driver.poll)
        said, _ = driver.communicate(timeout=300)
    assert driver.returncode == ExitStatus.DONE, said[-5000:]
    assert killed
    for name, given, words in (("small", stores, []), ("large", few, ["--file-size", "16384"])):
        local = tmp_path / f"local-{name}"
        assert main(["export", *given, *WORDS, *words, "--engine", "local", "-j", "1", "-o", str(local)]) == 0
        assert content(tmp_path / name) == content(local), name
    local_lake = server.uri("lake/local")
    cut = ["--file-size", "65536", "--engine", "local", "-j", "1", "-o", local_lake]
    assert main(["export", *remote, *WORDS, *cut]) == 0
    folders = [open_folder(server.uri(f"lake/{engine}")) for engine in ("spark", "local")]
    written = [{name: folder.read(name) for name in folder.names()} for folder in folders]
    manifests = [json.loads(files.pop("_manifest.json")) | {"run": None} for files in written]
    assert manifests[0] == manifests[1]
    assert written[0] == written[1]
    assert len(written[0]) > 6
    source = RocketMQDataSource({"paths": json.dumps(stores)})
    reader = source.reader(source.schema())
    rows = [batch for partition in reader.partitions() for batch in reader.read(partition)]
    found = pq.read_table(tmp_path / "rows.parquet")
    assert found.num_rows == sum(batch.num_rows for batch in rows if isinstance(batch, pa.RecordBatch)) > 500
    expected = pq.read_table(tmp_path / "local-small" / "messages")
    assert _keys(found) == _keys(expected)


def _keys(table: Any) -> list[tuple[Any, ...]]:
    columns = ("store", "physical_offset", "topic", "queue_offset", "body", "store_timestamp", "status")
    return sorted(zip(*(map(repr, table.column(name).to_pylist()) for name in columns), strict=True))


def _kill_one_that_writes(folder: Path, executors: Any, ended: Any) -> bool:
    """Kill an executor when some parts are written and others are not; return whether that was so."""
    until = time.monotonic() + 240
    while ended() is None and time.monotonic() < until:
        if folder.exists() and len(list(folder.glob(".*.done"))) >= 3:
            os.kill(executors()[0], signal.SIGKILL)
            return not (folder.parent / "_SUCCESS").exists()
        time.sleep(0.005)
    return False
