"""Everything that is measured: the commands of rmqinspect, each with its start-up, and what they are compared with.

README.md says what each peer is.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from benchmarks.broker import WARM_UP, build, command
from benchmarks.measure import ROOT, Cost, Loop, run_process
from benchmarks.stores import Log
from rmqinspect.errors import RmqinspectError

WARM_JVM, COLD_JVM = "JVM loop, warm", "JVM loop, cold process"
FLOOR = "floor"
HELP, SAMPLE = "--help", "verify of a sample"

# Name -> module and arguments; {jobs} is the number of threads, for Spark that of local[N].
COMMANDS = {
    "verify": "rmqinspect verify {log} --level standard -q -j {jobs}",
    "verify deep": "rmqinspect verify {store} --level deep -q -j {jobs}",
    "derived": "benchmarks.derived {store} {out} {jobs}",
    "rebuild": "rmqinspect rebuild {store} --link -q -j {jobs} -o {out}",
    "salvage": "rmqinspect salvage {store} --link -q -j {jobs} -o {out}",
    "decode": "rmqinspect decode {log} -f arrow -q -j {jobs}",
    "export": "rmqinspect export {store} --engine local -q -j {jobs} -o {out}",
    "spark": "rmqinspect export {store} --engine spark --master local[{jobs}] -q -o {out}",
    "source count": "benchmarks.spark_source count {store} local[{jobs}]",
    "source parquet": "benchmarks.spark_source parquet {store} local[{jobs}] {out}",
}
_OF_WHOLE = ("verify deep", "derived", "rebuild", "salvage")
_OF_SPARK = ("spark", "source count", "source parquet")
_OF_NO_STORE = {HELP: "rmqinspect --help", SAMPLE: f"rmqinspect verify {ROOT / 'samples' / 'healthy-5.5.0'}"}
_JOBS = (1, 2)


@dataclass(frozen=True, slots=True)
class Peer:
    """One row of the table."""

    name: str
    run: Callable[[Path], Cost]  # told an empty folder of its own
    start_up: str | None = None  # the peer that measures this one's start-up
    reads: bool = True  # False: does not read the log


@dataclass(frozen=True, slots=True)
class _Command:
    """A command line, and what it reads."""

    words: str
    log: Log
    cache: Path  # folder of bytecode: the user's is neither used nor changed
    jobs: int = 1

    def run(self, folder: Path) -> Cost:
        """Run the command; what it writes is in `folder`."""
        values = {"log": self.log.folder, "store": self.log.store, "jobs": self.jobs, "out": folder / "out"}
        words = [word.format_map(values) for word in self.words.split()]
        # Whatever the machine's settings are: an installed package has its bytecode.
        environment = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(self.cache)}
        return run_process([sys.executable, "-m", *words], environment)


def plan_peers(log: Log, tiny: Log, bounds: Loop, cache: Path, *, spark: bool) -> Iterator[Peer]:
    """Yield every peer except the JVM. Peers that a goal compares follow each other.

    `tiny` is a store so small that hardly anything is read; `cache` is an empty folder.
    """
    for threads in _JOBS:
        for crc in ("", "zlib", "isal"):
            name = f"read, {f'CRC by {crc}, ' if crc else ''}{threads} thread{'s'[: threads > 1]}"
            yield Peer(name, _asking(bounds, f"read {threads} {crc}"))
    for name, words in COMMANDS.items():
        if (name in _OF_WHOLE and not log.pointed_at) or (name in _OF_SPARK and not spark):
            continue
        if name == "export":
            yield Peer(FLOOR, lambda folder: Cost(**bounds.ask(f"write {folder}")))
            yield Peer("rows", _asking(bounds, "rows"))
        for jobs in _JOBS:
            yield Peer(f"{name} -j {jobs}", _Command(words, log, cache, jobs).run, start_up_of(name))
        yield Peer(start_up_of(name), _Command(words, tiny, cache).run, reads=False)
    for name, words in _OF_NO_STORE.items():
        yield Peer(name, _Command(words, tiny, cache).run, reads=False)


def plan_jvm(log: Log, scratch: Path, stack: ExitStack) -> Iterator[Peer]:
    """Yield the JVM peers; the warm JVM ends with `stack`.

    :raises NoJavaError: this machine cannot run them.
    """
    build()
    for name in ("warm", "cold"):
        (scratch / name).mkdir()
    loop = stack.enter_context(Loop(command(log.folder, scratch / "warm"), WARM_UP))

    def run_warm(_: Path) -> Cost:
        answer = loop.ask()
        if answer["records"] != log.records:
            raise RuntimeError(f"the JVM walked {answer['records']} records of {log.records}: is the store damaged?")
        return Cost(answer["wall"], answer["cpu"])

    yield Peer(WARM_JVM, run_warm)
    yield Peer(COLD_JVM, lambda _: run_process(command(log.folder, scratch / "cold"), stdin=b"\n"))


def start_up_of(name: str) -> str:
    """Return the name of the peer that measures the start-up of a command."""
    return f"{name}, start-up"


def _asking(bounds: Loop, request: str) -> Callable[[Path], Cost]:
    return lambda _: Cost(**bounds.ask(request))


def without_spark() -> str | None:
    """Return why Spark cannot be measured on this machine, None if it can."""
    from rmqinspect.spark.session import check_spark

    try:
        check_spark("local[2]")
    except RmqinspectError as error:
        return str(error)
    return None
