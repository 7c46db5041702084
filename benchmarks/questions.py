"""Measures the commands that answer questions, as processes: find, groups, transactions, delays, usage, forecast.

    python -m benchmarks.questions [--keep DIR] [--rounds 5] [--only REGEX] [--log STORE] [--segments 100]

Three stores, made in DIR unless they are there, every pointer true:

    sparse     100 segments of 1 GiB, 160 queues: each segment begins with some MiB of records and ends in a blank
               record over a hole, so that 100 GiB take a few hundred MiB on disk. A look-up cannot tell: it reads
               what it would read of a full log, except where it walks
    queues     the same with 10,000 queues, each with a consumer group, half messages and delayed messages
    log        1 GiB of records of 1.26 KB; or the store given with --log

Each question is measured right after what it is compared with: a Python that imports numpy and pyarrow, or grep over
the same segments. README.md explains the tables.
"""

import argparse
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import NamedTuple

from benchmarks.measure import Cost, run_process
from benchmarks.rounds import describe_machine, spread

_SEGMENT_SIZE = 1 << 30
_USED = 3 << 20  # bytes of records at the beginning of each segment
_MANY = "topics=1250, queues=8, distinct=1, system=True"

RMQINSPECT = [sys.executable, "-m", "rmqinspect"]
# What a question is compared with.
BARE = [sys.executable, "-c", "import numpy, pyarrow.compute"]

_MOST_MEMORY = 300  # MB, whatever the store holds
_NOWHERE = "no such text anywhere"


class Question(NamedTuple):
    """A command, what it is compared with, and its limits; None: no limit."""

    name: str
    words: list[str]
    peer: list[str]
    wall: float | None = None  # seconds
    memory: float | None = None  # MB
    size: int = 0  # bytes of log that it reads, for a rate
    rate: float | None = None  # GB per CPU second
    ratio: float | None = None  # of CPU seconds to those of its peer


def in_process(code: str) -> str:
    """Run Python code in a process of its own, for this one has to stay small; return what it prints."""
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "out")
        run_process([sys.executable, "-c", f"import sys; sys.stdout = open({out!r}, 'w')\n{code}"])
        return Path(out).read_text(encoding="utf-8")


def make_stores(folder: str, segments: int) -> Iterator[str]:
    """Yield the three stores, each made if it is not there."""
    for name, call in (
        (f"sparse-{segments}", f"write_sparse_store(path, {segments}, {_SEGMENT_SIZE}, {_USED})"),
        (f"queues-{segments}", f"write_sparse_store(path, {segments}, {_SEGMENT_SIZE}, {_USED}, Layout({_MANY}))"),
        (f"mid-{_SEGMENT_SIZE}", f"make_store(path, 'mid', {_SEGMENT_SIZE})"),
    ):
        path = os.path.join(folder, name)
        if not os.path.exists(path):
            in_process(f"from benchmarks.make_store import *\npath = {path!r}\n{call}")
        yield path


# A record in the middle of a store's log: options, one line each.
_OPTIONS = """
from rmqinspect.store.discover import open_store
from rmqinspect.tables.log import messages_in
from rmqinspect.tables.table import Request
from rmqinspect.times import format_micros
segments = open_store([store]).segments
segment = segments[len(segments) // 2]
batch = next(batch for batch in messages_in([segment], Request(offsets=(segment.base + skip, segment.end))))
row = next(row for row in batch.to_pylist() if row["real_topic"] is None)
since = int(row["store_timestamp"].timestamp() * 1_000_000)
for words in (
    ["--id", row["offset_msg_id"]],
    ["--id", row["msg_id"]],
    ["-k", row["keys"][0]],
    ["-k", row["keys"][0], "-t", row["topic"]],
    ["-k", "no such key"],
    ["-t", row["topic"], "--queue", str(row["queue_id"]), "--queue-offset", str(row["queue_offset"])],
    ["--since", format_micros(since), "--until", format_micros(since + 100_000)],
):
    print("\\t".join(words))
"""
_NAMES = ("--id, offset", "--id, producer's", "-k", "-k -t", "-k, no hit", "--queue-offset", "100 ms")


def look_ups(store: str, label: str, *, large: bool) -> Iterator[Question]:
    """Yield look-ups for a record in the middle of a log."""
    lines = in_process(f"store, skip = {store!r}, {_USED // 2}\n{_OPTIONS}").splitlines()
    for name, line in zip(_NAMES, lines, strict=True):
        options = line.split("\t")
        # A key that is in no index is looked for in a log of 1 GiB.
        wall = None if name == "100 ms" or (name == "-k, no hit" and not large) else 0.5
        yield Question(f"find {name}, {label}", ["find", store, *options, "-f", "jsonl"], BARE, wall)
        if large:
            yield Question(f"decode {name}, {label}", ["decode", store, *options, "-f", "jsonl"], BARE, wall)


def searches(store: str) -> Iterator[Question]:
    """Yield searches of a whole log, on one thread."""
    folder = os.path.join(store, "commitlog")
    segments = [os.path.join(folder, name) for name in sorted(os.listdir(folder))]
    size = sum(os.path.getsize(path) for path in segments)
    grep = ["grep", "-c", "-a", "-F", _NOWHERE, *segments]
    for name, text in (("nowhere", _NOWHERE), ("common first letters", '"order":x'), ("one letter", "~")):
        words = ["--body-contains", text, "-j", "1", "-f", "jsonl"]
        yield Question(f"find --body-contains, {name}", ["find", store, *words], grep, size=size, rate=1.5)
        if name == "nowhere":
            yield Question(f"decode --body-contains, {name}", ["decode", store, *words], grep, size=size, rate=1.5)
    for option in ("--tag", "-k", "--id"):
        words = [option, "nowhere", "--scan", "-j", "1", "-f", "jsonl"]
        yield Question(f"decode {option} --scan, nowhere", ["decode", store, *words], BARE, size=size)


def summaries(store: str) -> Iterator[Question]:
    """Yield what is answered about a whole store."""
    yield Question("groups", ["groups", store], BARE, wall=2, memory=_MOST_MEMORY)
    yield Question(
        "decode --table groups", ["decode", store, "--table", "groups", "-f", "csv"], BARE, memory=_MOST_MEMORY
    )
    yield Question("delays", ["delays", store], BARE, memory=_MOST_MEMORY)
    yield Question("delays --pending", ["delays", store, "--pending"], BARE, memory=_MOST_MEMORY)
    yield Question("transactions", ["transactions", store], BARE, memory=_MOST_MEMORY)
    yield Question("forecast", ["forecast", store], BARE, wall=2, memory=_MOST_MEMORY)
    yield Question("forecast --all-versions", ["forecast", store, "--all-versions"], BARE, memory=_MOST_MEMORY)
    yield Question("usage", ["usage", store, "-j", "1"], BARE, memory=_MOST_MEMORY)
    yield Question("usage -j 2", ["usage", store, "-j", "2"], BARE, memory=_MOST_MEMORY)
    yield Question("usage --sample", ["usage", store, "--sample"], BARE, memory=_MOST_MEMORY)


def measure(questions: list[Question], rounds: int, cache: Path) -> None:
    """Measure all in turn, after a round that fills the caches, and print a row for each."""
    # Whatever the machine's settings are: an installed package has its bytecode.
    environment = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(cache)}

    def run(words: list[str]) -> Cost:
        return run_process(words, environment, may_fail=True)

    costs: dict[str, list[tuple[Cost, Cost]]] = {one.name: [] for one in questions}
    for number in range(rounds + 1):
        for one in questions:
            pair = run(one.peer), run([*RMQINSPECT, *one.words, "-q"])
            if number:
                costs[one.name].append(pair)
    print("| question | wall s: min / median / max | CPU s | CPU / peer | GB per CPU s | peak MB | goal |")
    print("|---|---|---|---|---|---|---|")
    for one in questions:
        print(f"| {one.name} | {' | '.join(_cells(one, costs[one.name]))} |")


def _cells(question: Question, pairs: list[tuple[Cost, Cost]]) -> list[str]:
    own = [cost for _, cost in pairs]
    if own[0].status == 2:  # click's status for what it does not know
        return ["no such command", "", "", "", "", ""]
    wall, cpu = median(cost.wall for cost in own), median(cost.cpu for cost in own)
    ratio = median(cost.cpu / max(peer.cpu, 0.001) for peer, cost in pairs)
    memory, rate = max(cost.memory or 0 for cost in own) / 1e6, question.size / cpu / 1e9
    goals = [
        _goal("≤ {} s", question.wall, wall, most=True),
        _goal("≥ {} GB/s", question.rate, rate, most=False),
        _goal("≤ {} MB", question.memory, memory, most=True),
        _goal("≤ {} x", question.ratio, ratio, most=True),
    ]
    speed = f"{rate:.2f}" if question.size else ""
    status = f"status {own[0].status}: " if own[0].status not in (0, 3, 5) else ""
    walls = spread(cost.wall for cost in own)
    return [f"{status}{walls}", f"{cpu:.2f}", f"{ratio:.1f}", speed, f"{memory:.0f}", ", ".join(filter(None, goals))]


def _goal(words: str, limit: float | None, value: float, *, most: bool) -> str:
    if limit is None:
        return ""
    reached = value <= limit if most else value >= limit
    return words.format(limit) + ("" if reached else " **missed**")


def main(arguments: list[str] | None = None) -> None:
    """Make the stores if there are none yet, and measure."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.questions")
    parser.add_argument("--segments", type=int, default=100, help="of the two large stores; default 100")
    parser.add_argument("--keep", metavar="DIR", help="make the stores in this folder, and reuse them")
    parser.add_argument("--log", metavar="STORE", help="search this store instead of a generated one")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", metavar="REGEX", type=re.compile, default=re.compile("."), help="by name")
    options = parser.parse_args(arguments)
    print(describe_machine() + "\n")
    with ExitStack() as stack:
        folder = options.keep or stack.enter_context(tempfile.TemporaryDirectory(prefix="rmqinspect-"))
        cache = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rmqinspect-")))
        sparse, queues, log = make_stores(folder, options.segments)
        log = options.log or log
        large = f"{options.segments} GiB"
        every = [*look_ups(sparse, large, large=True), *look_ups(log, "1 GiB", large=False)]
        every += [*searches(log), *summaries(queues)]
        measure([one for one in every if options.only.search(one.name)], options.rounds, cache)


if __name__ == "__main__":
    main()
