"""What a night costs: `verify --since` of a store that grew, beside a full run.

    python -m benchmarks.since [--size 10GiB] [--grown 256MiB] [--rounds 3] [--jobs 2] [--keep DIR]

Of yesterday's store there are all segments but the newest. A file that has the same bytes today is the same file, as
on a broker: segments and full index files. Every queue has grown. Yesterday's files are an hour old when verified,
for what was written in the last minute before a run is never taken over.
"""

import argparse
import filecmp
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from benchmarks.make_store import KEYS_PER_RECORD, make_store
from benchmarks.measure import Cost, run_process
from benchmarks.pointers import QUEUE_FILE_SIZE, geometry_for, write_pointers
from benchmarks.rounds import describe_machine
from rmqinspect.text import parse_size

_RECORD = 1260  # bytes, of the profile `mid`
_AGE = 3600  # seconds
_MOST_RATIO = 0.1  # the goal


def two_days(folder: Path, size: int, grown: int) -> tuple[Path, Path]:
    """Return the store of yesterday and that of today, which has one segment of `grown` bytes more."""
    today, yesterday = folder / "today", folder / "yesterday"
    geometry = geometry_for(size // _RECORD * KEYS_PER_RECORD)
    if not today.exists():
        make_store(str(today), size=size, segment_size=grown, geometry=geometry)
    if yesterday.exists():
        return yesterday, today
    segments = sorted((today / "commitlog").iterdir())[:-1]
    (yesterday / "commitlog").mkdir(parents=True)
    for segment in segments:
        os.link(segment, yesterday / "commitlog" / segment.name)
    write_pointers(str(yesterday), QUEUE_FILE_SIZE, geometry)
    shutil.copy2(today / "checkpoint", yesterday)
    for path in yesterday.rglob("*"):
        other = today / path.relative_to(yesterday)
        if path.is_file() and other.exists() and filecmp.cmp(path, other, shallow=False):
            other.unlink()
            os.link(path, other)
        os.utime(path, (time.time() - _AGE,) * 2)
    return yesterday, today


def verify(store: Path, report: Path, jobs: int, *more: str) -> Cost:
    """Return the cost of a run of the whole command."""
    report.unlink(missing_ok=True)
    words = [sys.executable, "-m", "rmqinspect", "verify", str(store), "-q", "-j", str(jobs), "--report", str(report)]
    return run_process([*words, *more], may_fail=True)


def main(arguments: list[str] | None = None) -> None:
    """Measure, and print the ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=parse_size, default=10 << 30)
    parser.add_argument("--grown", type=parse_size, default=256 << 20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--keep", type=Path, metavar="DIR", help="make the stores there, and leave them")
    asked = parser.parse_args(arguments)
    print(describe_machine())
    with tempfile.TemporaryDirectory() as scratch:
        folder = asked.keep or Path(scratch)
        yesterday, today = two_days(folder, asked.size, asked.grown)
        store, monday = folder / "store", folder / "monday.json"
        make_store(str(folder / "tiny"), size=16 << 10)
        start = [verify(folder / "tiny", folder / "tiny.json", asked.jobs) for _ in range(asked.rounds)]
        shutil.rmtree(folder / "tiny")
        wall, cpu = (median(values) for values in zip(*((one.wall, one.cpu) for one in start), strict=True))
        print(f"start of the process: wall {wall:.2f} s, CPU {cpu:.2f} s")
        yesterday.rename(store)
        try:
            verify(store, monday, asked.jobs)
        finally:
            store.rename(yesterday)
        today.rename(store)
        walls, cpus = [], []
        try:
            for _ in range(asked.rounds):
                whole = verify(store, folder / "whole.json", asked.jobs)
                night = verify(store, folder / "night.json", asked.jobs, "--since", str(monday))
                print(f"full: wall {whole.wall:.2f} s, CPU {whole.cpu:.2f} s", end="; ")
                print(f"--since: wall {night.wall:.2f} s, CPU {night.cpu:.2f} s")
                walls.append((night.wall - wall) / (whole.wall - wall))
                cpus.append((night.cpu - cpu) / (whole.cpu - cpu))
        finally:
            store.rename(today)
    print(f"wall {median(walls):.3f}, CPU {median(cpus):.3f} of a full run, without the start; at most {_MOST_RATIO}")


if __name__ == "__main__":
    main()
