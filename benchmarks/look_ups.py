"""Measures look-ups as processes, on a log that is large, sparse and true: every pointer leads to its record.

    python -m benchmarks.look_ups [--segments 100] [--keep DIR] [--rounds 5]

Each segment of 1 GiB begins with some MiB of records and ends in a blank record over a hole, so that 100 GiB take a few
hundred MiB on disk. A look-up cannot tell: it reads what it would read of a full log, except where it walks.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from subprocess import DEVNULL, run

from benchmarks.make_store import write_sparse_store
from rmqinspect.store.discover import open_store
from rmqinspect.tables.log import messages_in
from rmqinspect.tables.table import Request
from rmqinspect.times import format_micros

_SEGMENT_SIZE = 1 << 30
_USED = 3 << 20  # bytes of records at the beginning of each segment


def questions(store: str) -> Iterator[tuple[str, list[str]]]:
    """Yield (name, options) of look-ups for a record in the middle of the log."""
    segments = open_store([store]).segments
    segment = segments[len(segments) // 2]
    batch = next(messages_in([segment], Request(offsets=(segment.base + _USED // 2, segment.end))))
    row = batch.slice(0, 1).to_pylist()[0]
    queue = ["-t", row["topic"], "--queue", str(row["queue_id"]), "--queue-offset", str(row["queue_offset"])]
    since = int(row["store_timestamp"].timestamp() * 1_000_000)
    yield "--id, offset", ["--id", row["offset_msg_id"]]
    yield "--id, producer's", ["--id", row["msg_id"]]
    yield "-k", ["-k", row["keys"][0]]
    yield "-k -t", ["-k", row["keys"][0], "-t", row["topic"]]
    yield "-k, no hit", ["-k", "no such key"]
    yield "--queue-offset", queue
    yield "100 ms", ["--since", format_micros(since), "--until", format_micros(since + 100_000)]
    yield "a minute", ["--since", format_micros(since), "--until", format_micros(since + 60_000_000)]


def measure(store: str, rounds: int) -> None:
    """Print the median wall time of each look-up."""
    print("| look-up | s | way |\n|---|---|---|")
    for name, options in questions(store):
        command = [sys.executable, "-m", "rmqinspect", "decode", store, *options, "-f", "jsonl"]
        times, said = [], ""
        for _ in range(rounds):
            begin = time.perf_counter()
            said = run(command, stdout=DEVNULL, stderr=-1, text=True, check=False).stderr
            times.append(time.perf_counter() - begin)
        way = next((line for line in said.splitlines() if line.startswith("read ")), "")
        print(f"| {name} | {statistics.median(times):.2f} | {way} |")


def main(arguments: list[str] | None = None) -> None:
    """Make a store if there is none yet, and measure."""
    parser = argparse.ArgumentParser(prog="benchmarks.look_ups", description=__doc__)
    parser.add_argument("--segments", type=int, default=100)
    parser.add_argument("--keep", help="make the store in this folder, and reuse it")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args(arguments)
    with ExitStack() as stack:
        folder = options.keep or stack.enter_context(tempfile.TemporaryDirectory())
        store = os.path.join(folder, f"sparse-{options.segments}")
        if not os.path.exists(store):
            write_sparse_store(store, options.segments, _SEGMENT_SIZE, _USED)
        measure(store, options.rounds)


if __name__ == "__main__":
    main()
