"""Measures the commands beside other readers of the same bytes, all in turn in one run, and compares with the goals.

    python -m benchmarks.goals [--rounds 5] [--store STORE]... [--only REGEX]
    python -m benchmarks.goals --quick

README.md says what each peer is and how to read the tables.
"""

import argparse
import re
import tempfile
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import IO, NamedTuple

from benchmarks.broker import NoJavaError
from benchmarks.measure import Loop
from benchmarks.peers import (
    COLD_JVM,
    FLOOR,
    HELP,
    SAMPLE,
    WARM_JVM,
    Peer,
    plan_jvm,
    plan_peers,
    without_spark,
)
from benchmarks.rounds import Measured, describe_machine, print_costs, print_start_ups, spread
from benchmarks.stores import PROFILES, Log, find_stores, make, opened
from rmqinspect.text import parse_size

_TINY = 16 << 10  # a store of this size shows what a command costs before it reads
_QUICK = 64 << 20
_LARGE_RECORDS = 600  # bytes: the limits are for records of 1.2 KB and of 0.36 KB


class Goal(NamedTuple):
    """A row of the last table: what is measured of a peer, divided by that of another, and its limits."""

    what: str
    peer: str
    of: str  # wall, cpu, rate or memory
    by: str | None
    limits: tuple[float, float]  # for large and for small records
    most: bool = True  # True: at most the limit; False: at least


# Costs are without start-up where a peer has one.
GOALS = (
    Goal("verify: CPU / the JVM's check", "verify -j 1", "cpu", WARM_JVM, (0.9, 0.75)),
    Goal("verify: wall of -j 2 / -j 1", "verify -j 2", "wall", "verify -j 1", (0.6, 0.6)),
    Goal("verify deep: CPU / the JVM's check of the log", "verify deep -j 1", "cpu", WARM_JVM, (2.0, 1.6)),
    Goal("queues and index from the log: CPU / verify deep", "derived -j 1", "cpu", "verify deep -j 1", (2.0, 2.0)),
    Goal("decode: GB per CPU s", "decode -j 1", "rate", None, (0.85, 0.42), most=False),
    Goal("decode: wall of -j 2 / -j 1", "decode -j 2", "wall", "decode -j 1", (0.65, 0.65)),
    Goal("export: CPU of -j 1 / floor", "export -j 1", "cpu", FLOOR, (1.45, 1.65)),
    Goal("export: wall of -j 2 / floor", "export -j 2", "wall", FLOOR, (0.85, 0.95)),
    Goal("Spark: wall of local[2] / local engine -j 2", "spark -j 2", "wall", "export -j 2", (1.15, 1.15)),
    Goal("verify -j 2: peak MB", "verify -j 2", "memory", None, (250, 250)),
    Goal("verify deep -j 2: peak MB", "verify deep -j 2", "memory", None, (250, 250)),
    Goal("derived -j 2: peak MB", "derived -j 2", "memory", None, (250, 265)),
    Goal("decode -j 2: peak MB", "decode -j 2", "memory", None, (350, 350)),
    Goal("export -j 2: peak MB", "export -j 2", "memory", None, (600, 600)),
    Goal("--help: wall s", HELP, "wall", None, (0.1, 0.1)),
    Goal("verify of a sample: wall s", SAMPLE, "wall", None, (0.5, 0.5)),
)


def _values(measured: Measured, name: str, of: str) -> list[float]:
    """Return one number per round; none if the peer was not measured."""
    costs = measured.net(name)
    match of:
        case "wall":
            return [cost.wall for cost in costs]
        case "cpu":
            return [cost.cpu for cost in costs]
        case "rate":
            return [measured.log.size / cost.cpu / 1e9 for cost in costs]
        case _:
            return [(cost.memory or 0) / 1e6 for cost in costs]


def _cells(goal: Goal, measured: Measured) -> list[str]:
    """Return what was measured, and the limit."""
    values = _values(measured, goal.peer, goal.of)
    if goal.by is not None:
        others = _values(measured, goal.by, goal.of)
        # Per round: the two run close together.
        values = [value / other for value, other in zip(values, others, strict=True)] if values and others else []
    limit = goal.limits[measured.log.record_size < _LARGE_RECORDS]
    if not values:
        return ["", ""]
    middle = median(values)
    shown = f"{max(values):.0f}" if goal.of == "memory" else spread(values)
    reached = (max(values) if goal.of == "memory" else middle) <= limit if goal.most else middle >= limit
    return [shown, f"{'≤' if goal.most else '≥'} {limit}{'' if reached else ' **missed**'}"]


def print_goals(stores: list[Measured]) -> None:
    """Print each goal, with two cells per store."""
    heads = [f"{Path(measured.log.store).name}: min / median / max | goal" for measured in stores]
    print(f"\n| goal | {' | '.join(heads)} |\n|---|{'---|---|' * len(stores)}")
    for goal in GOALS:
        cells = [cell for measured in stores for cell in _cells(goal, measured)]
        if any(cells):
            print(f"| {goal.what} | {' | '.join(cells)} |")


def _choose(every: list[Peer], only: re.Pattern[str] | None) -> list[Peer]:
    """Return the peers whose names match, else those of the goals; each with its start-up."""
    named = {name for goal in GOALS for name in (goal.peer, goal.by)}
    chosen = {peer.name for peer in every if (only.search(peer.name) if only else peer.name in named)}
    chosen |= {peer.start_up for peer in every if peer.name in chosen and peer.start_up}
    return [peer for peer in every if peer.name in chosen]


def _plan(
    log: Log, tiny: Log, bounds: Loop, scratch: Path, only: re.Pattern[str] | None, stack: ExitStack
) -> list[Peer]:
    """Return every peer; without Spark and the JVM where they are not installed, and the JVM only if it is wanted."""
    jvm: list[Peer] = []
    if only is None or only.search(WARM_JVM) or only.search(COLD_JVM):
        try:
            jvm += plan_jvm(log, scratch, stack)
        except NoJavaError as error:
            print(f"The JVM is omitted: {error}.\n")
    reason = without_spark()
    if reason:
        print(f"Spark is omitted: {reason}\n")
    return [*jvm, *plan_peers(log, tiny, bounds, scratch / "cache", spark=not reason)]


def _measure(path: str, options: argparse.Namespace, out: IO[str] | None) -> Measured:
    """Measure one store and print its tables."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rmqinspect-", dir=options.scratch)))
        make(str(folder / "tiny"), "mid", _TINY)
        log, bounds = stack.enter_context(opened(path))
        tiny, _ = stack.enter_context(opened(str(folder / "tiny")))
        print(f"\n{Path(path).name}: {log.size / 1e9:.3f} GB, {log.records} records of {log.record_size} bytes\n")
        measured = Measured(log, _choose(_plan(log, tiny, bounds, folder, options.only, stack), options.only))
        measured.run(options.rounds, folder / "own", out)
        print_costs(measured)
        print_start_ups(measured)
    return measured


def read_options(arguments: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.goals")
    parser.add_argument("--size", type=parse_size, default=1 << 30, help="of the generated stores; default 1GiB")
    parser.add_argument("--profile", choices=PROFILES, action="append", help="of generated stores; default: both")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="one round on stores of 64 MiB")
    parser.add_argument("--store", action="append", default=[], help="measure this store instead of generated ones")
    parser.add_argument("--keep", metavar="DIR", help="keep generated stores here, and reuse them")
    parser.add_argument("--scratch", metavar="DIR", help="where exports are written, and deleted")
    parser.add_argument("--only", metavar="REGEX", type=re.compile, help="only peers whose names match; . for all")
    parser.add_argument("--out", metavar="FILE", help="append every measurement to FILE, as JSON lines")
    options = parser.parse_args(arguments)
    if options.quick:
        options.size, options.rounds = _QUICK, 1
    return options


def main(arguments: list[str] | None = None) -> None:
    """Run the benchmark."""
    options = read_options(arguments)
    print(describe_machine())
    with ExitStack() as stack:
        out = stack.enter_context(open(options.out, "a", encoding="utf-8")) if options.out else None
        stores = find_stores(options.store, options.profile or PROFILES, options.size, options.keep, stack)
        print_goals([_measure(path, options, out) for path in stores])


if __name__ == "__main__":
    main()
