"""Many small stores: what Spark costs beside the local engine, what the driver holds of each, and planning over S3.

    python -m benchmarks.spark_fleet [--stores 1000] [--behind-s3 200] [--delay 0.05] [--scratch DIR]

Each measurement is a process of its own and prints its numbers as a line of JSON; goals are printed beside them.
"""

import argparse
import json
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rmqinspect.spark.options import read_options
from rmqinspect.spark.session import local_session
from rmqinspect.spark.source import Reader, RocketMQDataSource
from tests.support.building import lay, pad, various, write_queue, write_segment
from tests.support.s3_server import CREDENTIALS, gate, serving

RECORDS = 50  # of each store
MASTER = "local[2]"


def make_stores(folder: Path, number: int) -> list[str]:
    """Write stores of some records, with queues, and return their paths."""
    model = folder / "model"
    pieces = various(RECORDS)
    write_segment(model / "commitlog", pad(lay(pieces), 1 << 15))
    write_queue(model, *pieces[:20])
    for at in range(number):
        shutil.copytree(model, folder / f"broker-{at:04}")
    return [str(folder / f"broker-{at:04}") for at in range(number)]


def count(stores: Sequence[str]) -> dict[str, float]:
    """Count the messages of all stores with Spark; tell when the first task ran."""
    begun = time.perf_counter()
    with local_session(MASTER) as spark:
        spark.dataSource.register(RocketMQDataSource)
        ready = time.perf_counter()
        first: list[float] = []
        threading.Thread(target=_watch, args=(spark.sparkContext.statusTracker(), first), daemon=True).start()
        rows = spark.read.format("rocketmq").option("columns", "topic").load(list(stores)).count()
        ended = time.perf_counter()
    assert rows == RECORDS * len(stores)
    return {
        "session": round(ready - begun, 2),
        "first task": round(first[0] - ready, 2) if first else float("nan"),
        "count": round(ended - ready, 2),
        "whole": round(time.perf_counter() - begun, 2),
    }


def _watch(tracker: Any, first: list[float]) -> None:
    while not first:
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        first += [time.perf_counter()] * any(stage is not None and stage.numActiveTasks for stage in stages)
        time.sleep(0.02)


def plan(stores: Sequence[str]) -> dict[str, float]:
    """Plan the load of all stores in this process; tell what is held of each."""
    Reader(read_options({"paths": json.dumps(stores[:20])})).partitions()
    before, begun = _resident(), time.perf_counter()
    reader = Reader(read_options({"paths": json.dumps(stores)}))
    tasks = reader.partitions()
    ended, after = time.perf_counter(), _resident()
    return {
        "seconds": round(ended - begun, 2),
        "tasks": len(tasks),
        "resident bytes a store": round((after - before) / len(stores)),
        "bytes of tasks a store": round(sum(len(pickle.dumps(task)) for task in tasks) / len(stores)),
    }


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def export(stores: Sequence[str], engine: str) -> dict[str, float]:
    """Export all stores; the whole command."""
    with tempfile.TemporaryDirectory() as folder:
        listed = Path(folder, "stores.txt")
        listed.write_text("\n".join(stores))
        words = ["--stores-from", str(listed), "-o", str(Path(folder, "lake")), "--engine", engine, "-q"]
        jobs = ["-j", "2"] if engine == "local" else ["--master", MASTER]
        begun = time.perf_counter()
        subprocess.run([sys.executable, "-m", "rmqinspect", "export", *words, *jobs], check=True)
        return {"whole": round(time.perf_counter() - begun, 2)}


def plan_behind_s3(stores: Sequence[str], delay: float) -> dict[str, float]:
    """Plan the load of stores on a server that answers every request later."""
    os.environ |= CREDENTIALS
    asked = 0

    def judge(_: str) -> Any:
        nonlocal asked
        asked += 1
        time.sleep(delay)
        return "pass"

    with serving() as server, gate(server, judge, 60) as slow:
        for store in stores:
            server.upload(Path(store), Path(store).name)
        uris = [slow.uri(Path(store).name) for store in stores]
        begun = time.perf_counter()
        tasks = Reader(read_options({"paths": json.dumps(uris)})).partitions()
        ended = time.perf_counter()
    return {"stores": len(stores), "seconds": round(ended - begun, 2), "tasks": len(tasks), "requests": asked}


def _measured(work: str, stores: Sequence[str], *more: str) -> dict[str, float]:
    """Run a measurement in a process of its own."""
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.spark_fleet", "--work", work, *more]
    run = subprocess.run(command, input=json.dumps(list(stores)), stdout=subprocess.PIPE, text=True, check=True)
    numbers: dict[str, float] = json.loads(run.stdout.splitlines()[-1])
    print(f"{work:24} {json.dumps(numbers)}", flush=True)
    return numbers


def _goals(local: dict[str, float], spark: dict[str, float], planned: dict[str, float]) -> Iterator[str]:
    ratio = spark["count"] / local["whole"]
    yield f"Spark counts in {ratio:.2f} x the local engine's export with -j 2 (goal: at most 3)"
    yield f"first task after {spark['first task']} s (goal: 10 s)"
    yield f"{planned['resident bytes a store']} bytes of the planning process a store (goal: below 20 000)"


def main() -> None:
    """Measure all, or with `--work` one, of the stores on stdin."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stores", type=int, default=1000)
    parser.add_argument("--behind-s3", type=int, default=200)
    parser.add_argument("--delay", type=float, default=0.05)
    parser.add_argument("--scratch")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.work is not None:
        stores = json.load(sys.stdin)
        works = {
            "count": lambda: count(stores),
            "plan": lambda: plan(stores),
            "export local": lambda: export(stores, "local"),
            "export spark": lambda: export(stores, "spark"),
            "plan behind S3": lambda: plan_behind_s3(stores, asked.delay),
        }
        print(json.dumps(works[asked.work]()))
        return
    with tempfile.TemporaryDirectory(dir=asked.scratch) as folder:
        stores = make_stores(Path(folder), asked.stores)
        local = _measured("export local", stores)
        spark = _measured("count", stores)
        planned = _measured("plan", stores)
        _measured("export spark", stores)
        _measured("plan behind S3", stores[: asked.behind_s3], "--delay", str(asked.delay))
        print(*_goals(local, spark, planned), sep="\n")


if __name__ == "__main__":
    main()
