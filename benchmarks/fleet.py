"""Many stores at once: what a fleet costs beside each store alone.

    python -m benchmarks.fleet [--large 40] [--small 200] [--jobs 2] [--rounds 3] [--keep DIR]

- `info` of 40 stores of 100 GiB, sparse: the wall time of the whole process.
- `forecast` of 200 stores, half of them after a crash: the wall time of the fleet, times -j, beside the sum over the
  stores, one after the other in a process that is warm.

The stores of a kind have one content: their files are links of the first one's.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, redirect_stdout
from io import StringIO
from pathlib import Path
from statistics import median

from benchmarks.make_store import Layout, make_store, write_sparse_store
from benchmarks.measure import ROOT, Cost, run_process
from benchmarks.rounds import describe_machine
from rmqinspect.cli import main as command_line

_SEGMENTS, _SEGMENT_SIZE, _USED = 100, 1 << 30, 64 << 10  # of a large store
_SMALL_LOG, _SMALL_SEGMENT = 2 << 20, 1 << 20
_MOST_SECONDS, _MOST_RATIO = 10.0, 1.3  # the goals


def fleet_of(folder: Path, name: str, number: int, write: Callable[[str], object], *, crashed: int = 0) -> list[str]:
    """Return stores that are links of one that `write` makes, if they are not there yet; every so many has `abort`."""
    first = folder / f"{name}-0"
    if not first.exists():
        write(str(first))
    for at in range(1, number):
        if not (other := folder / f"{name}-{at}").exists():
            _link(first, other)
            if crashed and at % crashed == 0:
                (other / "abort").touch()
    return [str(folder / f"{name}-{at}") for at in range(number)]


def _link(store: Path, other: Path) -> None:
    for path in store.rglob("*"):
        to = other / path.relative_to(store)
        if path.is_file():
            to.parent.mkdir(parents=True, exist_ok=True)
            os.link(path, to)


def one_after_the_other(stores: Sequence[str]) -> Cost:
    """Return the cost of a forecast of each store in this process, without what the first one loads."""
    with redirect_stdout(StringIO()):
        command_line(["forecast", stores[0], "-j", "1", "-q"])
        cpu, wall = time.process_time(), time.perf_counter()
        for store in stores:
            command_line(["forecast", store, "-j", "1", "-q"])
    return Cost(time.perf_counter() - wall, time.process_time() - cpu)


def alone(stores: Sequence[str]) -> Cost:
    """Return the same of a process of its own."""
    command = [sys.executable, "-m", "benchmarks.fleet", "--alone"]
    done = subprocess.run(command, cwd=ROOT, input="\n".join(stores), stdout=subprocess.PIPE, text=True, check=True)
    return Cost(**json.loads(done.stdout))


def together(verb: str, stores: Sequence[str], jobs: int) -> Cost:
    """Return the cost of one command about all stores."""
    command = [sys.executable, "-m", "rmqinspect", verb, "--stores-from", "-", "-j", str(jobs), "--no-progress"]
    return run_process(command, stdin="\n".join(stores).encode(), may_fail=True)


def measured(large: Sequence[str], small: Sequence[str], jobs: int, rounds: int) -> Iterator[str]:
    """Yield a line for each measurement, and for each goal."""
    infos = [together("info", large, jobs) for _ in range(rounds)]
    wall = median(cost.wall for cost in infos)
    cpu = median(cost.cpu for cost in infos)
    what = f"info of {len(large)} stores of {_SEGMENTS} GiB, -j {jobs}"
    yield f"{what}: wall {wall:.1f} s, CPU {cpu:.1f} s; at most {_MOST_SECONDS:.0f} s"
    ratios, of_cpu = [], []
    for _ in range(rounds):
        fleet, each = together("forecast", small, jobs), alone(small)
        ratios.append(fleet.wall * jobs / each.wall)
        of_cpu.append(fleet.cpu / each.cpu)
        yield (
            f"forecast of {len(small)} stores, -j {jobs}: wall {fleet.wall:.1f} s, CPU {fleet.cpu:.1f} s; "
            f"one after the other: wall {each.wall:.1f} s, CPU {each.cpu:.1f} s"
        )
    yield f"wall x {jobs} / sum: {median(ratios):.2f}; CPU / sum: {median(of_cpu):.2f}; at most {_MOST_RATIO}"


def main(arguments: list[str] | None = None) -> None:
    """Make the stores if there are none yet, and measure."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fleet")
    parser.add_argument("--large", type=int, default=40, help="stores of 100 GiB; default 40")
    parser.add_argument("--small", type=int, default=200, help="stores of 2 MiB; default 200")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--keep", metavar="DIR", help="make the stores in this folder, and reuse them")
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.alone:
        cost = one_after_the_other(sys.stdin.read().split("\n"))
        print(json.dumps({"wall": cost.wall, "cpu": cost.cpu}))
        return
    print(describe_machine() + "\n")
    with ExitStack() as stack:
        folder = Path(options.keep or stack.enter_context(tempfile.TemporaryDirectory(prefix="rmqinspect-")))
        folder.mkdir(parents=True, exist_ok=True)
        large = fleet_of(
            folder,
            "large",
            options.large,
            lambda path: write_sparse_store(path, _SEGMENTS, _SEGMENT_SIZE, _USED, Layout(20, 8, 2)),
        )
        small = fleet_of(
            folder,
            "small",
            options.small,
            lambda path: make_store(path, "mid", _SMALL_LOG, _SMALL_SEGMENT),
            crashed=2,
        )
        for line in measured(large, small, options.jobs, options.rounds):
            print(line, flush=True)


if __name__ == "__main__":
    main()
