"""Measures `export` against writing the same table from memory, all in turn in one run.

    python -m benchmarks.export [--size 1GiB] [--profile mid|small|both] [--rounds 5]
    python -m benchmarks.export --quick

README.md says what each peer is and how to read the tables.
"""

import argparse
import json
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import IO, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.make_store import PROFILES, make_store
from benchmarks.measure import Cost, run_here, run_process
from benchmarks.verify import Log, describe_machine, find_stores, read_log
from rmqinspect.errors import RmqinspectError
from rmqinspect.store.discover import open_store
from rmqinspect.tables import TABLES
from rmqinspect.tables.table import Request
from rmqinspect.text import parse_size

_TINY = 16 << 10  # a store of this size shows what a command costs before it reads
_QUICK = 64 << 20
_MESSAGES = TABLES["messages"]

FLOOR = "floor"


@dataclass(frozen=True, slots=True)
class Peer:
    """One row of the first table."""

    name: str
    run: Callable[[Path, bool], Cost]  # told a folder of its own, and whether to watch the memory
    starts_like: str | None = None  # the peer that is this one's start-up


class Goal(NamedTuple):
    """A row of the second table: the ratio of two peers and its limit."""

    peer: str
    by: str
    limit: float
    most: bool = True  # True: at most the limit; False: at least
    net: bool = False  # both without their start-up


GOALS = (
    Goal("local -j 1", FLOOR, 1.5),
    Goal("local -j 2", FLOOR, 0.9),
    Goal("spark local[2]", "local -j 2", 1.3, net=True),
    Goal("spark local[1]", "spark local[2]", 1.6, most=False, net=True),
)


# --- the peers --------------------------------------------------------------------------------------


class Memory:
    """The whole table in memory. Writing it is the floor: work that every engine has to do."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.table = pa.Table.from_batches(self.batches(), _MESSAGES.schema).combine_chunks()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the store, decoded by one process."""
        return _MESSAGES.rows(open_store([self.path]), Request())

    def write(self, folder: Path, _: bool) -> Cost:
        """Write the table as one file, with pyarrow's defaults except the compression."""
        place = str(folder / "table.parquet")
        write = partial(pq.write_table, self.table, place, compression="zstd", compression_level=1)
        return run_here(write)

    def make(self, _: Path, __: bool) -> Cost:
        """Decode the rows and discard them."""
        return run_here(lambda: [None for _ in self.batches()].clear())


def _run(command: list[str], folder: Path, watch: bool) -> Cost:
    """Run a command that writes to a new folder."""
    return run_process([*command, str(folder / "out")], watch, scattered=True)


def plan_peers(log: Log, tiny: str, memory: Memory) -> Iterator[Peer]:
    """Yield all peers, each followed by its start-up; without Spark if it is not installed."""
    yield Peer(FLOOR, memory.write)
    yield Peer("rows", memory.make)
    commands = {f"local -j {jobs}": partial(_export, ("--engine", "local", "-j", str(jobs))) for jobs in (1, 2)}
    reason = _without_spark()
    if reason:
        print(f"Spark is omitted: {reason}\n")
    else:
        for master in ("local[1]", "local[2]"):
            commands[f"spark {master}"] = partial(_export, ("--engine", "spark", "--master", master))
        for work in ("count", "parquet"):
            commands[f"source {work} local[2]"] = partial(_read_source, work)
    for name, command in commands.items():
        start_up = f"{name}, start-up"
        yield Peer(name, partial(_run, command(log.path)), start_up)
        yield Peer(start_up, partial(_run, command(tiny)))


def _export(options: tuple[str, ...], path: str) -> list[str]:
    return [sys.executable, "-m", "rmqinspect", "export", path, "-q", *options, "-o"]


def _read_source(work: str, path: str) -> list[str]:
    return [sys.executable, "-m", "benchmarks.spark_source", work, path, "local[2]"]


def _without_spark() -> str | None:
    """Return why Spark cannot be measured on this machine, None if it can."""
    from rmqinspect.spark.session import check_spark

    try:
        check_spark("local[2]")
    except RmqinspectError as error:
        return str(error)
    return None


# --- measuring --------------------------------------------------------------------------------------


def measure(log: Log, rounds: int, only: re.Pattern[str], scratch: str | None, out: IO[str] | None) -> None:
    """Run the peers whose names match `only` in turn, and print the tables.

    An extra first round samples memory and warms up caches; its times are discarded. The output of a peer is deleted
    after each measurement.
    """
    with tempfile.TemporaryDirectory(prefix="rmqinspect-", dir=scratch) as folder:
        make_store(str(Path(folder, "tiny")), "mid", _TINY)
        memory = Memory(log.path)
        peers = [peer for peer in plan_peers(log, str(Path(folder, "tiny")), memory) if only.search(peer.name)]
        costs: dict[str, list[Cost]] = {peer.name: [] for peer in peers}
        held: dict[str, Cost] = {}
        for number in range(rounds + 1):
            print(f"{log.path}: round {number} of {rounds}", file=sys.stderr)
            for peer in peers:
                own = Path(folder, "own")
                own.mkdir()
                cost = peer.run(own, number == 0)
                shutil.rmtree(own)
                if number == 0:
                    held[peer.name] = cost
                    continue
                costs[peer.name].append(cost)
                if out:
                    line = {"peer": peer.name, "round": number, "wall": cost.wall, "cpu": cost.cpu}
                    more = {"peak": held[peer.name].memory, "jvm": held[peer.name].jvm}
                    out.write(json.dumps({**line, **more, "records": log.records, "bytes": log.record_bytes}) + "\n")
    print_costs(log, peers, costs, held)
    print_goals(peers, costs)


def print_costs(log: Log, peers: list[Peer], costs: dict[str, list[Cost]], held: dict[str, Cost]) -> None:
    """Print the table: rates are of the median walls, GB are 10^9 bytes of records, MB 10^6."""
    print("| peer | wall s: min / median / max | CPU s | GB/s | M rows/s | peak MB | JVM, peak MB |")
    print("|---|---|---|---|---|---|---|")
    for peer in peers:
        walls = [cost.wall for cost in costs[peer.name]]
        wall = median(walls)
        rates = (
            ["", ""] if peer.name.endswith("start-up") else [log.record_bytes / wall / 1e9, log.records / wall / 1e6]
        )
        cells = [
            peer.name,
            f"{min(walls):.2f} / {wall:.2f} / {max(walls):.2f}",
            f"{median(cost.cpu for cost in costs[peer.name]):.2f}",
            *(f"{rate:.2f}" if rate else "" for rate in rates),
            *(f"{size / 1e6:.0f}" if size else "" for size in (held[peer.name].memory, held[peer.name].jvm)),
        ]
        print(f"| {' | '.join(cells)} |")


def print_goals(peers: list[Peer], costs: dict[str, list[Cost]]) -> None:
    """Print each ratio, computed per round because the two run close together, and its limit."""
    starts = {peer.name: peer.starts_like for peer in peers}
    print("\n| ratio | wall: min / median / max | CPU: min / median / max | goal for wall |")
    print("|---|---|---|---|")
    for goal in GOALS:
        # The ratio without start-up is what a larger store approaches.
        for net in (True,) if goal.net else (False, True):
            rows = [_costs(name, starts, costs, net) for name in (goal.peer, goal.by)]
            if not all(rows):
                continue
            limit = f"{'≤' if goal.most else '≥'} {goal.limit}" if net == goal.net else ""
            cells = [f"{goal.peer} / {goal.by}{', without start-up' if net else ''}"]
            for ratios in _ratios(*rows):
                cells.append(" / ".join(f"{ratio:.2f}" for ratio in (min(ratios), median(ratios), max(ratios))))
            print(f"| {' | '.join([*cells, limit])} |")


def _costs(name: str, starts: dict[str, str | None], costs: dict[str, list[Cost]], net: bool) -> list[Cost]:
    """Return the costs of a peer, with `net` minus the medians of its start-up; empty if one was not measured."""
    start = starts.get(name)
    if not net or start is None:
        return costs.get(name, [])
    begun = costs.get(start, [])
    if not begun:
        return []
    wall, cpu = median(cost.wall for cost in begun), median(cost.cpu for cost in begun)
    return [replace(cost, wall=max(cost.wall - wall, 0.001), cpu=max(cost.cpu - cpu, 0.001)) for cost in costs[name]]


def _ratios(ours: list[Cost], theirs: list[Cost]) -> Iterator[list[float]]:
    yield [one.wall / other.wall for one, other in zip(ours, theirs, strict=True)]
    yield [one.cpu / other.cpu for one, other in zip(ours, theirs, strict=True)]


def read_options(arguments: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.export")
    parser.add_argument("--size", type=parse_size, default=1 << 30, help="of the generated store; default 1GiB")
    parser.add_argument("--profile", choices=(*PROFILES, "both"), default="mid")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="one round on a store of 64 MiB")
    parser.add_argument("--store", help="measure this store instead of a generated one; its table must fit into memory")
    parser.add_argument("--keep", metavar="DIR", help="keep generated stores here, and reuse them")
    parser.add_argument("--scratch", metavar="DIR", help="where exports are written, and deleted")
    parser.add_argument("--only", metavar="REGEX", type=re.compile, default="", help="only peers whose names match")
    parser.add_argument("--out", metavar="FILE", help="append every measurement to FILE, as JSON lines")
    options = parser.parse_args(arguments)
    if options.quick:
        options.size, options.rounds = _QUICK, 1
    return options


def main(arguments: list[str] | None = None) -> None:
    """Run the benchmark."""
    options = read_options(arguments)
    if options.keep:
        Path(options.keep).mkdir(parents=True, exist_ok=True)
    pa.set_cpu_count(1)  # the floor uses one thread
    print(describe_machine())
    with ExitStack() as stack:
        out = stack.enter_context(open(options.out, "a", encoding="utf-8")) if options.out else None
        for path in find_stores(options, stack):
            log = read_log(path)
            mean = log.record_bytes // log.records
            print(f"\n{Path(path).name}: {log.record_bytes / 1e9:.3f} GB, {log.records} records of {mean} bytes\n")
            measure(log, options.rounds, options.only, options.scratch, out)


if __name__ == "__main__":
    main()
