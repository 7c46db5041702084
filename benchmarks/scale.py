"""What large stores and many cost: measures the constants of docs/scale.md again, and prints its tables.

    python -m benchmarks.scale [STORE...] [--only REGEX] [--keep DIR] [--rounds 3] [--constants FILE]

    CPU s     =  start + a x stores + b x GiB of log + c x segments + q x queues
    requests  =          a x stores + b x GiB of log + c x segments + q x queues

For CPU seconds a store is one of 8 queues and 4 segments, and q and c are what each further one takes.

Each constant is the difference of two measurements that differ in one thing:

    log        stores of 1 GiB, the given ones or two generated ones, beside one of 16 KiB     b
    fleet      200 stores of 50 records beside 20 of them                                      start, a
    sparse     10 stores of 100 segments of 1 GiB, nearly all of it holes; 10 of 160 queues   c, q
    requests   stores with 2 and 8 segments, 8 and 24 queues, and segments of 32 and 96 MiB,   a, b, c, q
               on the S3 server of the tests, behind a proxy that counts
    spark      the same stores through the data source and the export, in local[2]; Python     start, a, b, memory
               workers and the JVM are watched, for nobody waits for them

CPU seconds are those of all processes. They alone are comparable on a machine that has other work.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from benchmarks.fleet import fleet_of
from benchmarks.make_store import QUEUES, TOPICS, Layout, make_store, write_sparse_store
from benchmarks.measure import ROOT, Cost, run_process
from benchmarks.rounds import describe_machine
from benchmarks.stores import PROFILES, find_stores

GIB = 1 << 30
MANY, FEW, SPARSE = 200, 20, 10  # stores
_TINY_LOG, _SEGMENT = 64 << 10, 16 << 10  # of a store of some 50 records
_QUEUE_FILE = 6000  # bytes
_SEGMENTS = 100  # of a sparse store
_QUEUES = 8  # of each store, unless there are many

_COUNT = "SELECT topic, count(*) FROM messages GROUP BY ALL"
# Name -> the words of a command; STORES is replaced.
COMMANDS: Mapping[str, list[str]] = {
    "info": ["info", "STORES"],
    "forecast": ["forecast", "STORES", "-q"],
    "verify": ["verify", "STORES", "-q", "--level", "standard"],
    "verify deep": ["verify", "STORES", "-q", "--level", "deep"],
    "sql, count by topic": ["sql", _COUNT, "STORES", "-q"],
    "export": ["export", "STORES", "-q", "--engine", "local", "-o", "OUT"],
}
_SPARK: Mapping[str, list[str]] = {
    "Spark, count": ["benchmarks.scale", "--load", "count"],
    "Spark, all columns": ["benchmarks.scale", "--load", "noop"],
    "export, Spark": ["rmqinspect", "export", "STORES", "-q", "--engine", "spark", "--master", "local[2]", "-o", "OUT"],
}

_KINDS = ("driver", "JVM", "worker")  # of the processes of Spark

_SECTIONS = ("log", "fleet", "sparse", "requests", "spark")
# Commands that do not read the whole log, and what their constants of it count: `info` reads its end and some samples,
# `forecast` what a start walks, behind a clean stop the last three segments (CommitLog#recoverNormally).
_READ_LITTLE: Mapping[str, str | None] = {"info": None, "forecast": "{} walked"}
_OF_LOG = ("a GiB", "a long segment")

Constants = dict[str, dict[str, float]]  # of each command, by name


# --- running ----------------------------------------------------------------------------------------


def run(words: Sequence[str], stores: Sequence[str], out: Path, *, rounds: int) -> tuple[Cost, int]:
    """Return the median cost of a command about stores, and the bytes that it wrote."""
    listed = [part for word in words for part in (("--stores-from", "-") if word == "STORES" else (word,))]
    command = [sys.executable, "-m", "rmqinspect", *(str(out) if word == "OUT" else word for word in listed)]
    costs = []
    for _ in range(rounds):
        shutil.rmtree(out, ignore_errors=True)
        costs.append(run_process([*command, "-j", "2"], stdin="\n".join(stores).encode(), may_fail=True))
    written = sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
    shutil.rmtree(out, ignore_errors=True)
    if bad := {cost.status for cost in costs} - {0, 3}:
        raise RuntimeError(f"{' '.join(command)} ended with status {bad}")
    costs.sort(key=lambda cost: cost.cpu)
    return costs[len(costs) // 2], written


def _shown(cell: object) -> str:
    if not isinstance(cell, float):
        return str(cell)
    return f"{cell:,.0f}" if abs(cell) >= 100 else f"{cell:.2g}"


def print_rows(title: str, heads: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table in Markdown."""
    print(f"\n{title}\n\n| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for row in rows:
        print("| " + " | ".join(_shown(cell) for cell in row) + " |")
    sys.stdout.flush()


# --- CPU ---------------------------------------------------------------------------------------------


def measure_log(stores: Sequence[str], tiny: str, out: Path, rounds: int) -> Constants:
    """Return by command and store the CPU seconds, peak MB and written GiB for each GiB of log."""
    found: Constants = {}
    for name, words in COMMANDS.items():
        start, _ = run(words, [tiny], out, rounds=rounds)
        for store in stores:
            size = sum(file.stat().st_size for file in Path(store, "commitlog").iterdir()) / GIB
            cost, written = run(words, [store], out, rounds=rounds)
            key = f"{name} of {Path(store).name}"
            found[key] = {
                "CPU s a GiB": max(cost.cpu - start.cpu, 0.0) / size,
                "peak MB": (cost.memory or 0) / 1e6,
                "GiB written a GiB": written / GIB / size,
            }
    return found


def measure_fleet(stores: Sequence[str], out: Path, rounds: int) -> Constants:
    """Return by command the CPU seconds of the start and of each small store, and the peak MB with many."""
    found: Constants = {}
    for name, words in COMMANDS.items():
        few, _ = run(words, stores[:FEW], out, rounds=rounds)
        many, written = run(words, stores, out, rounds=rounds)
        each = (many.cpu - few.cpu) / (len(stores) - FEW)
        found[name] = {
            "CPU s, start": few.cpu - FEW * each,
            "CPU s a store": each,
            f"peak MB, {FEW} stores": (few.memory or 0) / 1e6,
            f"peak MB, {len(stores)} stores": (many.memory or 0) / 1e6,
            "kB written a store": written / len(stores) / 1e3,
        }
    return found


def measure_shape(small: str, long: Sequence[str], wide: Sequence[str], out: Path, rounds: int) -> Constants:
    """Return by command the CPU milliseconds of each segment of which nearly nothing is to be read, and of each queue.

    All stores have 8 queues, but for the wide ones; `long` ones have 100 segments.
    """
    found: Constants = {}
    for name, words in COMMANDS.items():
        start, _ = run(words, [small], out, rounds=rounds)
        of_long, _ = run(words, long, out, rounds=rounds)
        of_wide, _ = run(words, wide, out, rounds=rounds)
        found[name] = {
            "CPU ms a further segment": (of_long.cpu - start.cpu) / len(long) / _SEGMENTS * 1e3,
            "CPU ms a further queue": (of_wide.cpu - start.cpu) / len(wide) / (TOPICS * QUEUES - _QUEUES) * 1e3,
            "peak MB": (of_long.memory or 0) / 1e6,
        }
    return found


# --- requests ----------------------------------------------------------------------------------------


def measure_requests(folder: Path) -> Constants:
    """Return by command the requests of a store, a segment, a queue and a GiB of log."""
    from tests.support.s3_server import CREDENTIALS, gate, serving

    shapes = {"small": (2, 8), "segments": (8, 8), "queues": (2, 24), "log": (2, 8), "longer": (2, 8)}
    sizes = dict.fromkeys(shapes, _SEGMENT) | {"log": 32 << 20, "longer": 96 << 20}
    seen: list[str] = []
    counts: dict[str, dict[str, int]] = {}

    def note(line: str) -> str:
        seen.append(line)
        return "pass"

    with serving() as server, gate(server, note) as counted:  # type: ignore[arg-type]
        for shape, (segments, queues) in shapes.items():
            store = folder / f"remote-{shape}"
            if not store.exists():
                layout = Layout(queues // 8, 8, 8)
                size = sizes[shape]
                make_store(str(store), "mid", segments * size, size, layout=layout)
            server.upload(store, shape)
            uri = counted.uri(shape)
            for name, words in COMMANDS.items():
                seen.clear()
                out = folder / "out"
                shutil.rmtree(out, ignore_errors=True)
                said = [uri if word == "STORES" else str(out) if word == "OUT" else word for word in words]
                run_process([sys.executable, "-m", "rmqinspect", *said, "-j", "1"], CREDENTIALS)
                kinds = Counter("list" if "list-type" in line else line.split()[0] for line in seen)
                counts.setdefault(name, {})[shape] = len(seen)
                print(f"{name}, {shape}: {dict(kinds)}", file=sys.stderr)
            seen.clear()
            code = f"from rmqinspect.store.log_size import log_files; print(log_files({uri!r}))"
            run_process([sys.executable, "-c", code], CREDENTIALS)
            counts.setdefault("Spark, plan of a small store", {})[shape] = len(seen)
    found: Constants = {}
    for name, by in counts.items():
        queue, of_gib = (by["queues"] - by["small"]) / 16, (by["longer"] - by["log"]) / (128 / 1024)
        # A reader asks for blocks until it has seen that it reads on and on: each longer segment begins with some.
        blocks = max(by["log"] - by["small"] - of_gib * 64 / 1024, 0.0)
        segment = (by["segments"] - by["small"]) / 6
        of_store = by["small"] - 2 * segment - 8 * queue
        constants = (of_store, segment, queue, of_gib, blocks / 2)
        found[name] = dict(zip(("a store", "a segment", "a queue", *_OF_LOG), constants, strict=True))
    return found


# --- Spark -------------------------------------------------------------------------------------------


class Watch:
    """What the descendants of a process use, by kind, looked at several times a second until it ends."""

    def __init__(self) -> None:
        self.cpu: dict[int, float] = {}  # seconds, by process
        self.memory: Counter[str] = Counter()  # peak bytes of the largest, by kind
        self.kinds: dict[int, str] = {}
        self._tick, self._page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")

    def look(self, root: int) -> None:
        """Take down what the process and its descendants have used so far."""
        parents, used = {}, {}
        for place in Path("/proc").glob("[0-9]*"):
            try:
                name, _, rest = (place / "stat").read_text().partition("(")[2].rpartition(")")
            except OSError:  # it has just ended
                continue
            fields, process = rest.split(), int(place.name)
            parents[process] = int(fields[1])
            used[process] = (name, (int(fields[11]) + int(fields[12])) / self._tick, int(fields[21]) * self._page)
        for process, (name, cpu, memory) in used.items():
            above = process
            while above not in (root, 0, 1) and above in parents:
                above = parents[above]
            if above != root:
                continue
            kind = "JVM" if name == "java" else "driver" if process == root else "worker"
            self.cpu[process], self.kinds[process] = cpu, kind
            self.memory[kind] = max(self.memory[kind], memory)


def run_watched(command: Sequence[str], stdin: str) -> Watch:
    """Run a process that starts Spark, and watch it.

    :raises RuntimeError: its exit status is neither 0 nor that of damage.
    """
    watch, ended = Watch(), threading.Event()
    child = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)

    def keep_looking() -> None:
        while not ended.wait(0.1):
            watch.look(child.pid)

    looking = threading.Thread(target=keep_looking)
    looking.start()
    child.communicate(stdin)
    ended.set()
    looking.join()
    if child.returncode not in (0, 3):
        raise RuntimeError(f"{' '.join(command)} ended with status {child.returncode}")
    return watch


def measure_spark(large: str, small: Sequence[str], out: Path) -> Constants:
    """Return by job the CPU seconds of the start, a store and a GiB, and the peak MB of each kind of process.

    What a store takes is measured with the count only.
    """

    def watched(name: str, stores: Sequence[str]) -> Watch:
        shutil.rmtree(out, ignore_errors=True)
        said = [part for word in _SPARK[name] for part in (("--stores-from", "-") if word == "STORES" else (word,))]
        command = [sys.executable, "-m", *(str(out) if word == "OUT" else word for word in said)]
        watch = run_watched(command, "\n".join(stores))
        print(f"{name} of {len(stores)}: {sum(watch.cpu.values()):.1f} s, {watch.memory}", file=sys.stderr)
        return watch

    few, many = (watched("Spark, count", stores) for stores in (small[:FEW], small))
    each = (sum(many.cpu.values()) - sum(few.cpu.values())) / (len(small) - FEW)
    size = sum(file.stat().st_size for file in Path(large, "commitlog").iterdir()) / GIB
    found: Constants = {}
    for name in _SPARK:
        one, log = (watched(name, [store]) for store in (small[0], large))
        found[name] = {
            "CPU s, start": sum(one.cpu.values()) - each,
            "CPU s a store": each,
            "CPU s a GiB": (sum(log.cpu.values()) - sum(one.cpu.values())) / size,
            **{f"{kind}, MB": max(few.memory[kind], many.memory[kind], log.memory[kind]) / 1e6 for kind in _KINDS},
        }
    shutil.rmtree(out, ignore_errors=True)
    return found


def load(work: str, stores: Sequence[str]) -> None:
    """Read stores through the data source, in a process of its own."""
    from rmqinspect.spark.session import local_session
    from rmqinspect.spark.source import RocketMQDataSource

    with local_session("local[2]") as spark:
        spark.dataSource.register(RocketMQDataSource)
        reader = spark.read.format("rocketmq")
        if work == "count":
            print(reader.option("columns", "physical_offset").load(list(stores)).count())
        else:
            reader.load(list(stores)).write.format("noop").mode("overwrite").save()


def plan(stores: Sequence[str]) -> dict[str, float]:
    """Return what the plan of a load of these stores takes in the driver's Python, for each of them."""
    import pickle
    import tracemalloc

    from rmqinspect.spark.options import read_options
    from rmqinspect.spark.source import Reader

    tracemalloc.start()
    tasks = Reader(read_options({"paths": json.dumps(list(stores))})).partitions()
    _, peak = tracemalloc.get_traced_memory()
    pickled = sum(len(pickle.dumps(task, protocol=5)) for task in tasks)
    return {
        "tasks": len(tasks),
        "kB a store": peak / len(stores) / 1e3,
        "pickled kB a store": pickled / len(stores) / 1e3,
    }


# --- extrapolated ------------------------------------------------------------------------------------


class Shape(NamedTuple):
    """What the costs are about."""

    stores: int
    gib: float  # of log
    segments: int
    queues: int


def _walked(shape: Shape) -> int:
    return min(shape.segments, 3 * shape.stores)


_TB = 1e12 / GIB
_LONG = 1 / 1024  # GiB
SHAPES: Mapping[str, Shape] = {
    "1 TB in 1 store": Shape(1, _TB, round(_TB), 160),
    "10 TB in 10 stores": Shape(10, 10 * _TB, round(10 * _TB), 1600),
    "1,000 stores of 1 GiB": Shape(1000, 1000, 1000, 8000),
    "1,000 stores of 50 records": Shape(1000, 1000 * _TINY_LOG / GIB, 1000, 8000),
}
# The constants that the number of each is multiplied by.
_TERMS: Mapping[str, Callable[[Shape], float]] = {
    "start": lambda _: 1,
    "a store": lambda shape: shape.stores,
    "a GiB": lambda shape: shape.gib,
    "a GiB walked": lambda shape: shape.gib / shape.segments * _walked(shape),
    "a long segment": lambda shape: shape.segments if shape.gib / shape.segments > _LONG else 0,
    "a long segment walked": lambda shape: _walked(shape) if shape.gib / shape.segments > _LONG else 0,
    "a segment": lambda shape: shape.segments,
    "a queue": lambda shape: shape.queues,
    "a further segment": lambda shape: max(shape.segments - _TINY_LOG // _SEGMENT * shape.stores, 0),
    "a further queue": lambda shape: max(shape.queues - _QUEUES * shape.stores, 0),
}


def extrapolated(constants: Mapping[str, float], shape: Shape) -> float:
    """Return a cost of this many stores: the sum of the constants, each times what it is of."""
    return sum(value * _TERMS[name](shape) for name, value in constants.items())


def terms_of(measured: Mapping[str, Constants]) -> Iterator[tuple[str, str, dict[str, float]]]:
    """Yield each command, the kind of its cost and the constants, from the sections that were measured."""
    log, fleet, sparse, requests, spark = (
        next((found for title, found in measured.items() if title.startswith(word)), {}) for word in _SECTIONS
    )
    for name in COMMANDS if fleet else ():
        of_fleet = {"start": fleet[name]["CPU s, start"], "a store": fleet[name]["CPU s a store"]}
        shape = {
            f"a {of}": sparse[name][f"CPU ms a {of}"] / 1e3 for of in ("further segment", "further queue") if sparse
        }
        for key in (key for key in log if key.startswith(f"{name} of ")):
            yield key, "CPU h", _renamed(name, of_fleet | shape | {"a GiB": log[key]["CPU s a GiB"]})
    for name, found in requests.items():
        yield name, "requests", _renamed(name, found)
    for name, found in spark.items():
        yield (
            name,
            "CPU h",
            {key.removeprefix("CPU s").strip(", "): value for key, value in found.items() if "CPU" in key},
        )


def _renamed(name: str, constants: Mapping[str, float]) -> dict[str, float]:
    """Return the constants of a command by what they count."""
    counted = _READ_LITTLE.get(name, "{}")
    return {
        counted.format(of) if counted and of in _OF_LOG else of: value
        for of, value in constants.items()
        if counted or of not in _OF_LOG
    }


def print_extrapolated(measured: Mapping[str, Constants]) -> None:
    """Print what each command costs for each shape."""
    rows = []
    for name, kind, constants in terms_of(measured):
        costs = [extrapolated(constants, shape) / (3600 if kind == "CPU h" else 1) for shape in SHAPES.values()]
        rows.append([name, kind, *costs])
    if rows:
        print_rows("extrapolated", ["", "", *SHAPES], rows)


# --- all of it -----------------------------------------------------------------------------------------


def _rows(constants: Constants) -> tuple[list[str], list[list[object]]]:
    heads = list(next(iter(constants.values())))
    return ["", *heads], [[name, *values.values()] for name, values in constants.items()]


def sections(
    options: argparse.Namespace, folder: Path, stack: ExitStack
) -> Iterator[tuple[str, Callable[[], Constants]]]:
    """Yield the title of each section, and what measures it; stores are made when they are needed."""
    out, rounds = folder / "out", options.rounds

    def small() -> list[str]:
        def write(path: str) -> None:
            make_store(path, "mid", _TINY_LOG, _SEGMENT, queue_file_size=_QUEUE_FILE, layout=Layout(1, _QUEUES, 8))

        return fleet_of(folder, "tiny", options.small, write)

    def large() -> list[str]:
        return list(find_stores(options.stores, PROFILES, GIB, str(folder), stack))

    def sparse() -> list[str]:
        def write(path: str) -> None:
            write_sparse_store(path, _SEGMENTS, GIB, 64 << 10, Layout(1, _QUEUES, 8))

        return fleet_of(folder, "long", SPARSE, write)

    def wide() -> list[str]:
        def write(path: str) -> None:
            make_store(path, "mid", _TINY_LOG, _SEGMENT, queue_file_size=_QUEUE_FILE)

        return fleet_of(folder, "wide", SPARSE, write)

    def planned() -> Constants:
        listed = "\n".join(small())
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.scale", "--load", "plan"],
            cwd=ROOT,
            input=listed,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        return {f"{options.small} small stores": json.loads(done.stdout)}

    yield "log: by GiB", lambda: measure_log(large(), small()[0], out, rounds)
    yield "fleet: by store", lambda: measure_fleet(small(), out, rounds)
    yield "sparse: by segment and queue", lambda: measure_shape(small()[0], sparse(), wide(), out, rounds)
    yield "requests to object storage", lambda: measure_requests(folder)
    yield "plan of Spark, in the driver", planned
    yield "spark, local[2]", lambda: measure_spark(large()[0], small(), out)


def main(arguments: list[str] | None = None) -> None:
    """Measure the constants, and print them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale")
    parser.add_argument("stores", metavar="STORE", nargs="*", help="of about 1 GiB; default: two are made")
    parser.add_argument("--only", metavar="REGEX", type=re.compile, default=re.compile("."), help="sections, by title")
    parser.add_argument("--keep", metavar="DIR", help="make the stores in this folder, and reuse them")
    parser.add_argument("--small", type=int, default=MANY, help=f"small stores, more than {FEW}; default {MANY}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--load", choices=("count", "noop", "plan"), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.load:
        stores = sys.stdin.read().split("\n")
        if options.load == "plan":
            print(json.dumps(plan(stores)))
        else:
            load(options.load, stores)
        return
    print(describe_machine())
    with ExitStack() as stack:
        folder = Path(options.keep or stack.enter_context(tempfile.TemporaryDirectory(prefix="rmqinspect-"))).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        measured: dict[str, Constants] = {}
        for title, measure in sections(options, folder, stack):
            if options.only.search(title):
                measured[title] = measure()
                print_rows(title, *_rows(measured[title]))
    print_extrapolated(measured)


if __name__ == "__main__":
    main()
