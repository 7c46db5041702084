"""Measures `rmqinspect sql` as a process, each query right after the command that answers the same question.

    python -m benchmarks.sql STORE [--rounds 5] [--only REGEX]

STORE is one of `benchmarks.questions --keep DIR` (mid-1073741824): 1 GiB of records of 1.26 KB, 20 topics. README.md
explains the table.
"""

import argparse
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.questions import RMQINSPECT, Question, in_process, measure
from benchmarks.rounds import describe_machine

_BY_TOPIC = "SELECT topic, count(*) FROM messages GROUP BY ALL"
_MEMORY = ("--memory", "500MB")
_MOST_MEMORY = 800  # MB

_KEY = """
from rmqinspect.store.discover import open_store
from rmqinspect.tables.log import messages_in
from rmqinspect.tables.table import Request
segments = open_store([store]).segments
segment = segments[len(segments) // 2]
batch = next(messages_in([segment], Request(offsets=(segment.base, segment.end))))
print(next(row["keys"][0] for row in batch.to_pylist() if row["keys"]))
"""


def queries(store: str) -> Iterator[Question]:
    """Yield the queries with their peers, and what they may cost of these."""
    key = in_process(f"store = {store!r}\n{_KEY}").strip()
    by_key = f"FROM messages WHERE list_contains(keys, '{key}')"
    find = ["find", store, "-k", key, "--no-life", "-f", "jsonl", "-q"]
    for jobs in ("1", "2"):
        usage = [*RMQINSPECT, "usage", store, "-j", jobs, "-q"]
        yield Question(f"count by topic, -j {jobs}", ["sql", _BY_TOPIC, store, "-j", jobs], usage, ratio=1.2)
    yield Question("by key", ["sql", by_key, store, "-f", "jsonl"], [*RMQINSPECT, *find], ratio=1.2)
    decode = [*RMQINSPECT, "decode", store, "-f", "csv", "--columns", "topic,body_size,keys", "-q"]
    sort = "SELECT topic, body_size, keys FROM messages ORDER BY body_size, keys"
    yield Question("sort all", ["sql", sort, store, "-f", "csv", *_MEMORY], decode, memory=_MOST_MEMORY)
    bodies = "SELECT physical_offset FROM messages ORDER BY md5(body) LIMIT 5"
    yield Question("hash of all bodies", ["sql", bodies, store, *_MEMORY], decode, memory=_MOST_MEMORY)


def main(arguments: list[str] | None = None) -> None:
    """Measure the queries over a store."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sql")
    parser.add_argument("store", metavar="STORE")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", metavar="REGEX", type=re.compile, default=re.compile("."), help="by name")
    options = parser.parse_args(arguments)
    print(describe_machine() + "\n")
    with tempfile.TemporaryDirectory(prefix="rmqinspect-") as cache:
        asked = [one for one in queries(options.store) if options.only.search(one.name)]
        measure(asked, options.rounds, Path(cache))


if __name__ == "__main__":
    main()
