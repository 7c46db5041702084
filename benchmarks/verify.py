"""Measures `verify` and `decode` against other readers of the same bytes, all in turn in one run.

    python -m benchmarks.verify [--size 1GiB] [--profile mid|small|both] [--rounds 5]

README.md says what each peer is and how to read the table.
"""

import argparse
import json
import os
import platform
import re
import shutil
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import product
from pathlib import Path
from statistics import median
from threading import Thread
from typing import IO, NamedTuple

from benchmarks.broker import NoJavaError, WarmLoop, build, run_cold
from benchmarks.make_store import PROFILES, make_store
from benchmarks.measure import Cost, run_here, run_process
from rmqinspect.commitlog.scan import RecordRun, scan_split
from rmqinspect.commitlog.splits import plan_splits
from rmqinspect.store.discover import open_store
from rmqinspect.text import parse_size
from rmqinspect.version import tool_name

_BUFFER_SIZE = 4 << 20
_PIECE_SIZE = 64 << 20  # bytes a reading thread takes at a time
_TICK = 0.01  # seconds: resolution of the JVM's CPU time
_TINY = 16 << 10  # a store of this size shows the cost of a command before it reads
# Queues and index of a generated store take less than this share of its log.
_POINTERS_SHARE = 0.25

Checksum = Callable[[memoryview], int]

WARM_JVM, COLD_JVM = "JVM loop, warm", "JVM loop, cold process"


@dataclass(frozen=True, slots=True)
class Log:
    """The input of every peer: the used bytes of each segment, without the zeros after the last record."""

    path: str  # the whole store, or only its commitlog folder
    folder: Path  # of the segments: the input of all peers except those that read the whole store
    pointed_at: bool  # the store has queues or index files
    ends: tuple[tuple[str, int], ...]  # (segment, end of its last record)
    records: int
    record_bytes: int  # of all records; the unit of all GB


@dataclass(frozen=True, slots=True)
class Peer:
    """One row of the table."""

    name: str
    run: Callable[[bool], Cost]  # argument: sample memory
    starts_like: str | None = None  # the peer that measures this one's start-up
    more_than: str | None = None  # the peer that does part of this one's work
    reads: bool = True  # False: start-up only


class Command(NamedTuple):
    """A measured command of rmqinspect."""

    name: str  # in the table
    verb: str
    options: tuple[str, ...]
    whole_store: bool = False  # reads the whole store, not only the log
    more_than: str | None = None  # the command that does part of its work


_COMMANDS = (
    Command("verify", "verify", ("--level", "standard")),
    Command("verify deep", "verify", ("--level", "deep"), whole_store=True, more_than="verify"),
    Command("decode", "decode", ("-f", "arrow")),
)


def read_log(path: str) -> Log:
    """Count records and bytes of a store without damage."""
    store = open_store([path])
    ends: dict[str, int] = {segment.path: 0 for segment in store.segments}
    records = size = 0
    for split in plan_splits(store.segments, _PIECE_SIZE):
        for event in scan_split(split):
            if isinstance(event, RecordRun):
                records += len(event.records)
                size += int(event.records.total_size.sum())
                last = event.records.base + int(event.records.ends[-1])
                ends[split.segment.path] = last - split.segment.base
    if not records:
        raise SystemExit(f"{path}: no records")
    pointed_at = bool(store.queue_files or store.index_files)
    return Log(path, Path(store.segments[0].path).parent, pointed_at, tuple(ends.items()), records, size)


def read_bytes(log: Log, threads: int, checksum: Checksum | None = None) -> None:
    """Read the log into one buffer per thread, and compute a checksum of each filled buffer."""
    pieces = iter(
        [(path, start, min(start + _PIECE_SIZE, end)) for path, end in log.ends for start in range(0, end, _PIECE_SIZE)]
    )  # shared by the threads
    workers = [Thread(target=_read_pieces, args=(pieces, checksum)) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def _read_pieces(pieces: Iterable[tuple[str, int, int]], checksum: Checksum | None) -> None:
    view = memoryview(bytearray(_BUFFER_SIZE))
    for path, start, end in pieces:
        file = os.open(path, os.O_RDONLY)
        while start < end and (size := os.preadv(file, [view[: end - start]], start)):
            if checksum:
                checksum(view[:size])
            start += size
        os.close(file)


def plan_peers(log: Log, tiny: str) -> Iterator[Peer]:
    """Yield every peer except the JVM, each for one core and for all cores."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    counts = sorted({1, cores})
    checksums: dict[str, Checksum | None] = {"read": None, "read, CRC by zlib": zlib.crc32}
    with suppress(ImportError):  # no wheel for this machine
        from isal import isal_zlib

        checksums["read, CRC by isal"] = isal_zlib.crc32
    for name, checksum in checksums.items():
        for threads in counts:
            read = partial(read_bytes, log, threads, checksum)
            yield Peer(f"{name}, {threads} thread{'s'[: threads > 1]}", partial(_run_here, read))
    # A command runs right after the one it is compared with, with the same number of processes.
    for jobs, command in product(counts, _COMMANDS):
        if command.whole_store and not log.pointed_at:
            continue
        path, small = (log.path, tiny) if command.whole_store else (str(log.folder), os.path.join(tiny, "commitlog"))
        front = [sys.executable, "-m", "rmqinspect", command.verb]
        back = [*command.options, "-q", "-j", str(jobs)]
        name, start_up = f"{command.name} -j {jobs}", f"{command.name} -j {jobs}, start-up"
        more_than = f"{command.more_than} -j {jobs}" if command.more_than else None
        yield Peer(name, partial(run_process, [*front, path, *back]), start_up, more_than)
        yield Peer(start_up, partial(run_process, [*front, small, *back]), reads=False)


def _run_here(function: Callable[[], None], _: bool) -> Cost:
    return run_here(function)


def plan_jvm(log: Log, scratch: Path, stack: ExitStack) -> Iterator[Peer]:
    """Yield the JVM peers; the warm JVM ends with `stack`.

    :raises NoJavaError: this machine cannot run them.
    """
    build()
    for name in ("warm", "cold"):
        (scratch / name).mkdir()
    loop = stack.enter_context(WarmLoop(log.folder, scratch / "warm"))

    def run_warm(watch: bool) -> Cost:
        cost = loop.run(watch)
        if loop.records != log.records:
            raise RuntimeError(f"the JVM walked {loop.records} records of {log.records}: is the store damaged?")
        return cost

    yield Peer(WARM_JVM, run_warm)
    yield Peer(COLD_JVM, partial(run_cold, log.folder, scratch / "cold"))


def measure(log: Log, rounds: int, only: re.Pattern[str], out: IO[str] | None) -> None:
    """Run the peers whose names match `only` in turn, and print the tables.

    An extra first round samples memory and warms up caches and the JVM; its times are discarded.
    """
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rmqinspect-")))
        make_store(str(scratch / "tiny"), "mid", _TINY)
        peers = list(plan_peers(log, str(scratch / "tiny")))
        if only.search(WARM_JVM) or only.search(COLD_JVM):
            try:
                peers += plan_jvm(log, scratch, stack)
            except NoJavaError as reason:
                print(f"The JVM is omitted: {reason}.\n")
        peers = [peer for peer in peers if only.search(peer.name)]
        costs: dict[str, list[Cost]] = {peer.name: [] for peer in peers}
        memory: dict[str, int | None] = {}
        for number in range(rounds + 1):
            print(f"{log.path}: round {number} of {rounds}", file=sys.stderr)
            for peer in peers:
                cost = peer.run(number == 0)
                if number == 0:
                    memory[peer.name] = cost.memory
                    continue
                costs[peer.name].append(cost)
                if out:
                    line = {"peer": peer.name, "round": number, "wall": cost.wall, "cpu": cost.cpu}
                    more = {"peak": memory[peer.name], "records": log.records, "bytes": log.record_bytes}
                    out.write(json.dumps({**line, **more}) + "\n")
    print_costs(log, peers, costs, memory)
    if any(peer.more_than in costs for peer in peers):
        print_surplus(peers, costs, memory)
    if WARM_JVM in costs:
        print_ratios(peers, costs)


def print_costs(log: Log, peers: list[Peer], costs: dict[str, list[Cost]], memory: dict[str, int | None]) -> None:
    """Print the table: rates are of the medians, GB are 10^9 bytes of records, MB 10^6."""
    print("| peer | wall s: min / median / max | CPU s | GB/s | GB per CPU s | M records/s | peak MB |")
    print("|---|---|---|---|---|---|---|")
    for peer in peers:
        walls = [cost.wall for cost in costs[peer.name]]
        wall, cpu = _medians(costs[peer.name])
        rates = ["", "", ""]
        if peer.reads:
            rates = [
                f"{log.record_bytes / wall / 1e9:.2f}",
                f"{log.record_bytes / cpu / 1e9:.2f}",
                f"{log.records / wall / 1e6:.2f}",
            ]
        held = memory[peer.name]
        cells = [
            peer.name,
            f"{min(walls):.3f} / {wall:.3f} / {max(walls):.3f}",
            f"{cpu:.3f}",
            *rates,
            f"{held / 1e6:.0f}" if held else "",
        ]
        print(f"| {' | '.join(cells)} |")


def print_surplus(peers: list[Peer], costs: dict[str, list[Cost]], memory: dict[str, int | None]) -> None:
    """Print, per round, the cost of each peer divided by the cost of the peer that does part of its work."""
    print("\n| times the cost | wall: min / median / max | CPU: min / median / max | peak MB |")
    print("|---|---|---|---|")
    for peer in peers:
        if peer.more_than not in costs:
            continue
        pairs = list(zip(costs[peer.name], costs[peer.more_than], strict=True))
        walls, cpus = [more.wall / part.wall for more, part in pairs], [more.cpu / part.cpu for more, part in pairs]
        held = [memory[name] for name in (peer.name, peer.more_than)]
        cells = [
            f"{peer.name} / {peer.more_than}",
            *(" / ".join(f"{times:.2f}" for times in (min(row), median(row), max(row))) for row in (walls, cpus)),
            " / ".join(f"{size / 1e6:.0f}" for size in held if size),
        ]
        print(f"| {' | '.join(cells)} |")


def print_ratios(peers: list[Peer], costs: dict[str, list[Cost]]) -> None:
    """Print the speed of each peer relative to the warm JVM loop, by medians."""
    jvm = _medians(costs[WARM_JVM])
    print("\n| against the warm JVM loop | wall | CPU | wall without start-up | CPU without start-up |")
    print("|---|---|---|---|---|")
    for peer in peers:
        if not peer.reads or peer.name == WARM_JVM:
            continue
        whole = _medians(costs[peer.name])
        cells = [f"{other / ours:.2f}" for other, ours in zip(jvm, whole, strict=True)]
        if peer.starts_like in costs:
            pairs = zip(jvm, whole, _medians(costs[peer.starts_like]), strict=True)
            cells += [f"{other / (ours - start):.2f}" if ours > start else "" for other, ours, start in pairs]
        print(f"| {peer.name} | {' | '.join(cells + [''] * (4 - len(cells)))} |")


def _medians(costs: list[Cost]) -> tuple[float, float]:
    """Return (wall, CPU) in seconds; CPU is at least one tick of the system's clock."""
    return median(cost.wall for cost in costs), max(median(cost.cpu for cost in costs), _TICK)


def describe_machine() -> str:
    """Return one line: versions, machine, date and load."""
    model = platform.processor() or platform.machine()
    if os.path.exists("/proc/cpuinfo"):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next((line.split(": ", 1)[1] for line in lines if line.startswith("model name")), model)
    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    return (
        f"{tool_name()}, Python {platform.python_version()}, {os.cpu_count()} x {model}, "
        f"{platform.system()} {platform.release()}, {datetime.now(UTC):%Y-%m-%d}{load}"
    )


def find_stores(options: argparse.Namespace, stack: ExitStack) -> Iterator[str]:
    """Yield the stores to measure; generated stores that are not kept are removed with `stack`."""
    if options.store:
        yield os.path.abspath(options.store)
        return
    for profile in PROFILES if options.profile == "both" else (options.profile,):
        folder = options.keep or stack.enter_context(tempfile.TemporaryDirectory(prefix="rmqinspect-"))
        path = os.path.abspath(os.path.join(folder, f"{profile}-{options.size}"))
        if not os.path.exists(path):
            free = shutil.disk_usage(folder).free
            needed = int(options.size * (1 + _POINTERS_SHARE))
            if free < needed:
                raise SystemExit(f"{folder}: {free} bytes are free, {needed} are needed")
            make_store(path, profile, options.size)
        yield path


def read_options(arguments: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.verify")
    parser.add_argument("--size", type=parse_size, default=1 << 30, help="of the generated store; default 1GiB")
    parser.add_argument("--profile", choices=(*PROFILES, "both"), default="mid")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--store", help="measure this store or commitlog folder instead of a generated one")
    parser.add_argument("--keep", metavar="DIR", help="keep generated stores here, and reuse them")
    parser.add_argument("--only", metavar="REGEX", type=re.compile, default="", help="only peers whose names match")
    parser.add_argument("--out", metavar="FILE", help="append every measurement to FILE, as JSON lines")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> None:
    """Run the benchmark."""
    options = read_options(arguments)
    if options.keep:
        os.makedirs(options.keep, exist_ok=True)
    print(describe_machine())
    with ExitStack() as stack:
        out = stack.enter_context(open(options.out, "a", encoding="utf-8")) if options.out else None
        for path in find_stores(options, stack):
            log = read_log(path)
            mean = log.record_bytes // log.records
            print(f"\n{Path(path).name}: {log.record_bytes / 1e9:.3f} GB, {log.records} records of {mean} bytes\n")
            measure(log, options.rounds, options.only, out)


if __name__ == "__main__":
    main()
