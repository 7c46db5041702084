"""An export on a standalone cluster: two workers of one core beside one, and one whose executor is killed.

    python -m benchmarks.cluster [--size 10GiB] [--rounds 1] [--store STORE] [--scratch DIR]

Nothing but what the job sends along is known to the workers. Time is that of the export in a driver that has started.
The files of each run are compared with those of the local engine, byte by byte.
"""

import argparse
import filecmp
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import median

from benchmarks.make_store import make_store
from benchmarks.measure import ROOT
from benchmarks.rounds import describe_machine
from rmqinspect.text import parse_size
from tests.support.spark_cluster import Cluster, cluster

_MOST_RATIO = 0.6  # the goal
_SEGMENT = 1 << 28
_WORDS = ["--table", "messages", "--fail-on", "never", "-q"]
_JOB = """
import sys, time
from pyspark.sql import SparkSession
from rmqinspect.cli import main
spark = SparkSession.builder.getOrCreate()
spark.sparkContext.parallelize(range(8), 8).map(lambda one: one).collect()
begun = time.perf_counter()
status = main(["export", *sys.argv[1:], "--engine", "spark"])
print("seconds", time.perf_counter() - begun)
sys.exit(status)
"""


def exported(started: Cluster, store: str, out: Path, *, kill: bool = False) -> float:
    """Export on a cluster; return the seconds that it took."""
    driver = started.submit(_JOB, [store, *_WORDS, "-o", str(out)])
    if kill:
        threading.Thread(target=_kill_one, args=(started, out), daemon=True).start()
    said, _ = driver.communicate()
    if driver.returncode:
        raise RuntimeError(said[-3000:])
    return float(said.rpartition("seconds ")[2].split()[0])


def _kill_one(started: Cluster, out: Path) -> None:
    """Kill an executor when the first parts are written."""
    while len(list(out.glob("messages/.*.done"))) < 2:
        time.sleep(0.05)
    os.kill(started.executors[0], signal.SIGKILL)


def differences(one: Path, other: Path) -> list[str]:
    """Return the Parquet files of two exports that do not have the same bytes in both."""
    names = {str(path.relative_to(root)) for root in (one, other) for path in root.rglob("*.parquet")}
    _, differ, absent = filecmp.cmpfiles(one, other, sorted(names), shallow=False)
    return [*differ, *absent]


def main(arguments: list[str] | None = None) -> None:
    """Measure, and print the ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=parse_size, default=10 << 30)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--store", help="measure this one")
    parser.add_argument("--scratch")
    asked = parser.parse_args(arguments)
    print(describe_machine())
    with tempfile.TemporaryDirectory(dir=asked.scratch) as scratch:
        folder = Path(scratch)
        store = asked.store
        if store is None:
            store = str(folder / "store")
            make_store(store, size=asked.size, segment_size=min(_SEGMENT, asked.size))
        local = folder / "local"
        command = [sys.executable, "-m", "rmqinspect", "export", store, *_WORDS, "--engine", "local", "-j", "2"]
        begun = time.perf_counter()
        subprocess.run([*command, "-o", str(local)], check=True, cwd=ROOT)
        print(f"local engine, -j 2: {time.perf_counter() - begun:.1f} s", flush=True)
        seconds: dict[str, list[float]] = {}
        for number in range(asked.rounds):
            for name, workers, kill in (("one worker", 1, False), ("two workers", 2, False), ("one killed", 2, True)):
                out = folder / "out"
                with cluster(folder / f"cluster{number}-{workers}-{kill}", workers) as started:
                    seconds.setdefault(name, []).append(exported(started, store, out, kill=kill))
                differ = differences(local, out)
                shutil.rmtree(out)
                print(f"{name}: {seconds[name][-1]:.1f} s, {len(differ)} files differ", flush=True)
        ratio = median(seconds["two workers"]) / median(seconds["one worker"])
        print(f"two workers take {ratio:.2f} of the time of one; at most {_MOST_RATIO}")


if __name__ == "__main__":
    main()
