"""Structured damage through all commands: `python -m tests.properties.mutate --seconds 60 --seed 1`.

A round copies a small store, changes fields, ends, names or kinds of its files at the borders of its records, units
and entries, and runs some commands on it in this process. Each must end by itself, with a documented status, write
output that parses, and leave the evidence as it is. Some rounds run the loops over bytes with all indexes and sums
checked, some uncompiled and compiled, with equal output. A failure prints the round; `--round N` runs that one alone.
"""

import argparse
import contextlib
import csv
import io
import json
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from construct import ConstructError

from rmqinspect.choices import LEVELS
from rmqinspect.cli import ExitStatus, main
from rmqinspect.codec.layout import dtype_of
from rmqinspect.schemas import checkpoint, consumequeue, dledger, index, message, timer
from rmqinspect.store.discover import open_store
from rmqinspect.store.model import StoreFile
from rmqinspect.tables import TABLES
from tests.support import oracle
from tests.support.building import fields_of
from tests.support.documents import PAGE_RUN, RUN
from tests.support.loop_ways import loop_way
from tests.support.samples import NAMES, sample
from tests.support.strict import strict_loops

LONGEST = 30  # seconds that a command may take
FORMATS = ("table", "jsonl", "json", "csv", "parquet", "arrow")
STATUSES = {ExitStatus.DONE, ExitStatus.DAMAGE, ExitStatus.UNREADABLE, ExitStatus.NOTHING_FOUND}
# Beside the samples: batch and ext queues, DLedger, timers.
BROKERS = ("main-5.1.4", "ext-4.9.7", "dledger-4.9.7", "halt-5.1.4")
LAYOUTS = {
    "queue": consumequeue.QueueUnit,
    "batch_queue": consumequeue.BatchUnit,
    "ext_queue": consumequeue.ExtHead,
    "timer_log": timer.TimerUnit,
    "timer_wheel": timer.WheelSlot,
    "checkpoint": checkpoint.Checkpoint,
    "dledger_index": dledger.EntryIndexUnit,
}
_MOST_FIELDS = 4000  # of a file, from its start
_MOST_READ = 1 << 20  # bytes of a file that are looked at for fields
_TEXT = re.compile(rb"-?\d+|[{}\[\]:,]|\"[^\"]*\"")
_NAMES = ("\udcff", "9" * 20, "0" * 20, "-1", "x\n", "\x1b[31m", str(2**63 - 1), "٣" * 20, "\\x41", "a" * 200)
# What is asked of a store; some of it is in one or another.
_GROUPS = ("g_half_1", "g_retry_1", "CID_RMQ_SYS_TRANS", "nobody")
_QUEUES = (("TopicA", "0"), ("orders", "1"), ("SCHEDULE_TOPIC_XXXX", "2"), ("%RETRY%g_retry_1", "0"), ("nobody", "7"))
_QUESTIONS = (
    ("-k", "K95"),
    ("-k", "work-2"),
    ("-t", "orders", "-k", "K3"),
    ("--id", "7F000001000055970000000000000902"),
    ("--id", "7F0000016C955FFD2B2768E3312102E5"),
    ("-t", "orders", "--queue", "0", "--queue-offset", "2..5"),
    ("--body-contains", "row"),
    ("--tag", "TagA", "--since", "2026-11-21T08:48:41"),
)


_QUERIES = (
    "FROM {0}",
    "SELECT count(*) FROM {0}",
    "SELECT topic, count(*) FROM messages WHERE store_timestamp > '2026-11-21T08:48:41Z' GROUP BY ALL ORDER BY ALL",
    "FROM messages WHERE list_contains(keys, 'K95') OR queue_offset BETWEEN 2 AND 5",
    "FROM messages WHERE topic = 'orders' AND queue_id = 0 AND queue_offset BETWEEN 2 AND 5",
    "FROM messages JOIN queue_units USING (physical_offset) ORDER BY ALL",
)


class Span(NamedTuple):
    """A field: its bytes in the file."""

    start: int
    end: int


class TooLong(BaseException):
    """A command took longer than LONGEST. No OSError, which commands handle."""


# --- where the fields are ---------------------------------------------------------------------------------


def spans_of(file: StoreFile, raw: bytes) -> list[Span]:
    """Return the fields of the records, units or entries at the start of a file."""
    find = {"segment": _of_records, "dledger": _of_records, "index": _of_index, "config": _of_text}.get(file.kind)
    layout = LAYOUTS.get(file.kind)
    found = find(raw) if find else _repeated(layout, raw, 0) if layout is not None else _of_text(raw)
    some = [span for _, span in zip(range(_MOST_FIELDS), found, strict=False)]
    return some or [Span(0, min(8, len(raw)))]


@cache
def _parts(layout: Any) -> tuple[Span, ...]:
    fields = (dtype_of(layout).fields or {}).values()
    return tuple(Span(place[1], place[1] + place[0].itemsize) for place in fields)


def _repeated(layout: Any, raw: bytes, start: int) -> Iterator[Span]:
    size = dtype_of(layout).itemsize
    for at in range(start, len(raw) - size + 1, size):
        if any(raw[at : at + size]):
            yield from (Span(at + part.start, at + part.end) for part in _parts(layout))


def _of_records(raw: bytes) -> Iterator[Span]:
    at = 0
    while at + 8 <= len(raw):
        size, magic = (int.from_bytes(raw[at + place : at + place + 4], "big", signed=True) for place in (0, 4))
        if magic not in message.RECORD_MAGICS or not message.FIXED_SIZE <= size <= len(raw) - at:
            following = raw.find(message.MAGIC_V1.to_bytes(4, "big", signed=True), at + 8)
            yield from (Span(at, at + 4), Span(at + 4, at + 8))
            if following < 0:
                return
            at = following - 4
            continue
        yield from _of_record(raw[at : at + size], at)
        at += size


def _of_record(raw: bytes, place: int) -> Iterator[Span]:
    try:
        names = fields_of(raw)
    except (AssertionError, ConstructError):  # damaged already, in a sample
        yield from (Span(place + part.start, place + part.end) for part in _parts(message.HEADS[False, False]))
        return
    for _, octets in groupby(names):
        length = len(list(octets))
        yield Span(place, place + length)
        place += length


def _of_index(raw: bytes) -> Iterator[Span]:
    yield from _parts(index.IndexHeader)
    header = dtype_of(index.IndexHeader).itemsize
    yield from _repeated(index.IndexSlot, raw, header)
    yield from _repeated(index.IndexEntry, raw, header)


def _of_text(raw: bytes) -> Iterator[Span]:
    return (Span(*match.span()) for match in _TEXT.finditer(raw))


# --- what is done to them ---------------------------------------------------------------------------------


def set_field(chance: random.Random, raw: bytearray, spans: Sequence[Span]) -> str:
    """Set a field to an interesting number, or flip one of its bits."""
    span = chance.choice(spans)
    old, size = bytes(raw[span.start : span.end]), span.end - span.start
    number = int.from_bytes(old, "big", signed=True)
    top = 1 << (8 * size - 1)
    choices = (0, -1, 1, -top, top - 1, number + 1, number - 1, -number, chance.randrange(-top, top))
    new = chance.choice((*choices, number ^ 1 << chance.randrange(8 * size), number ^ 1 << chance.randrange(8 * size)))
    raw[span.start : span.end] = (new & (2 * top - 1)).to_bytes(size, "big")
    return f"field {span.start} to {span.end}: {old[:16].hex()} to {bytes(raw[span.start : span.end])[:16].hex()}"


def cut(chance: random.Random, raw: bytearray, spans: Sequence[Span]) -> str:
    """End the file at a border."""
    at = chance.choice(chance.choice(spans))
    del raw[at:]
    return f"cut at {at}"


def lengthen(chance: random.Random, raw: bytearray, spans: Sequence[Span]) -> str:
    """Append zeros, noise, or a copy of the start."""
    size = chance.choice((1, 3, 8, 20, 46, 4096))
    raw += chance.choice((bytes(size), chance.randbytes(size), bytes(raw[:size])))
    return f"lengthened by {size}"


def zero(chance: random.Random, raw: bytearray, spans: Sequence[Span]) -> str:
    """Zero what lies between two borders."""
    start, end = sorted((chance.choice(spans).start, chance.choice(spans).end))
    raw[start:end] = bytes(end - start)
    return f"zeros from {start} to {end}"


def duplicate(chance: random.Random, raw: bytearray, spans: Sequence[Span]) -> str:
    """Repeat what lies between two borders; the rest moves behind it or is overwritten."""
    start, end = sorted((chance.choice(spans).start, chance.choice(spans).end))
    part, moves = raw[start : min(end, start + (1 << 16))], chance.random() < 0.5
    raw[end : end if moves else end + len(part)] = part
    return f"{start} to {end} repeated"


CHANGES: tuple[Callable[[random.Random, bytearray, Sequence[Span]], str], ...] = (
    *[set_field] * 6,
    cut,
    lengthen,
    zero,
    duplicate,
)


def change_bytes(chance: random.Random, path: Path, file: StoreFile) -> str:
    """Change a file a few times, sparing holes behind what is read."""
    with path.open("r+b") as stream:
        raw = bytearray(stream.read(_MOST_READ))
        size, whole = len(raw), path.stat().st_size <= _MOST_READ
        spans = spans_of(file, bytes(raw)) if raw else []
        done = []
        for _ in range(chance.choice((1, 1, 2, 5)) if spans else 0):
            fitting = [span for span in spans if span.end <= len(raw)]
            if fitting:
                done.append(chance.choice(CHANGES)(chance, raw, fitting))
        stream.seek(0)
        stream.write(raw if whole else raw[:size])
        if whole:
            stream.truncate()
    return f"{file.name}: {'; '.join(done)}"


def change_name(chance: random.Random, path: Path, file: StoreFile) -> str:
    """Rename a file or the folder that holds it, or put something else in its place."""
    if chance.random() < 0.3 and path.parent.name != "store":
        path = path.parent
    how = chance.choice(("rename", "link", "folder", "pipe", "gone"))
    name = chance.choice(_NAMES)
    target = path.with_name(name)
    if how == "rename" and not target.exists():
        path.rename(target)
        return f"{file.name}: {path.name} renamed to {name!r}"
    away = path.parents[len(path.parts) - 1 - path.parts.index("store")] / "away"
    path.rename(away)
    if how == "link":
        path.symlink_to(away)
    elif how == "folder":
        path.mkdir()
    elif how == "pipe":
        os.mkfifo(path)
    return f"{file.name}: {path.name} replaced: {how}"


# --- the commands -----------------------------------------------------------------------------------------


def commands(chance: random.Random, store: Path, whole: Path, changed: Path, out: Path) -> list[list[str]]:
    """Return some commands, most with a structured output to `out`."""
    at = str(chance.choice((0, chance.randrange(1 << 17), 2**63 - 1)))
    table, format_, level = (chance.choice(tuple(names)) for names in (TABLES, FORMATS, LEVELS))
    report = str(out.with_name("report"))
    every = [
        ["decode", str(store), "--table", table, "-f", format_, "-o", str(out)],
        ["decode", str(store), "--table", chance.choice(("messages", "queue_units", "index_entries")), "-f", format_],
        ["decode", str(store), "-f", format_, "-t", "*e*", "--key", "k1", "-o", str(out)],
        ["decode", str(store), "-f", "table", "--body", "full"],
        ["verify", str(store), "--level", level, "-f", format_, "-o", str(out)],
        ["verify", str(store), "--level", level, "--report", report, "--hash", "sha256"],
        ["report", str(store), "-o", str(out)],
        ["info", str(store)],
        ["info", str(store), "-f", "json"],
        ["show", str(store), "--at", at],
        ["show", str(store), "--at", at, "-f", "json"],
        ["diff", str(store), str(whole)],
        ["diff", str(whole), str(store), "-f", format_, "-o", str(out)],
        *([name, str(store), "-f", format_, "-o", str(out)] for name in ("groups", "transactions", "delays", "usage")),
        *([name, str(store), "-v"] for name in ("groups", "transactions", "delays", "usage")),
        ["delays", str(store), "--pending"],
        ["usage", str(store), "--sample", "--retention", "1h"],
        ["sql", chance.choice(_QUERIES).format(table), str(store), "-f", format_, "-o", str(out)],
        ["groups", str(store), "--unconsumed", chance.choice(_GROUPS), "-f", format_],
        ["find", str(store), *chance.choice(_QUESTIONS), "-f", format_, "-o", str(out)],
        ["find", str(store), *chance.choice(_QUESTIONS), "-n", "8", "--life"],
        ["find", str(store), "--offset", at],
        ["find", str(store), "--pull", *chance.choice(_QUEUES), at, "-f", chance.choice(("table", "json"))],
        ["find", str(store), "--offset-by-time", *chance.choice(_QUEUES), "2026-11-21T08:48:41"],
        ["forecast", str(store), "-f", "json", "--all-versions", "-o", str(out)],
        ["forecast", str(store), "--exit", chance.choice(("clean", "unclean")), "-v"],
        ["forecast", str(store), chance.choice(("--explain", "--script"))],
        ["export", str(store), "--all", "--engine", "local", "-j", "1", "-o", str(out.with_name("exported"))],
    ]
    if os.path.lexists(changed):
        every += [["verify", str(changed), "--level", "deep"], ["decode", str(changed), "-f", format_, "-o", str(out)]]
    always = ["verify", str(store), "--level", "deep", "-f", chance.choice(FORMATS), "-o", str(out)]
    return [always, *chance.sample(every, 7)]


def run_by_turns(number: int, words: list[str], out: Path) -> None:
    """Run one command as it is, with suspicion, or uncompiled and compiled; raises what `run` raises."""
    match number % 3:
        case 0:
            run(words, out)
        case 1:
            with strict_loops():
                run(words, out)
        case 2:
            with loop_way("uncompiled"):
                plain = run(words, out)
            empty(out.parent)
            with loop_way("compiled"):
                assert run(words, out) == plain, "compiled, the output is another"


def empty(folder: Path) -> None:
    """Make a folder that is there and empty."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()


def run(words: list[str], out: Path) -> tuple[int, bytes]:
    """Run one command and return its status and output; raises an AssertionError, or what it raised, if it is wrong."""
    stdout, stderr = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    hook, handlers = sys.excepthook, {one: signal.getsignal(one) for one in (signal.SIGHUP, signal.SIGTERM)}
    signal.setitimer(signal.ITIMER_REAL, LONGEST)
    try:
        with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
            status = main(words)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        sys.excepthook = hook
        for number, handler in handlers.items():
            signal.signal(number, handler)
    errors = stderr.buffer.getvalue().decode()
    assert "this is a bug" not in errors, errors
    assert status in STATUSES, (status, errors)
    written = stdout.buffer.getvalue()
    format_ = words[words.index("-f") + 1] if "-f" in words else "table"
    if "-o" in words and words[0] != "export":
        written = out.read_bytes() if out.exists() else b""
    if written:
        parse(format_, written)
    for folder in out.parent.glob("exported"):
        for path in (*folder.rglob("*.parquet"), *folder.rglob("*.json")):
            parse("parquet" if path.suffix == ".parquet" else "json", path.read_bytes())
    if "--report" in words and status != ExitStatus.UNREADABLE:
        json.loads(out.with_name("report").read_text())
        return status, b""  # the screen has the digest of the report, in which the time is
    if words[0] == "report":
        return status, re.sub(PAGE_RUN.encode(), b"", written, flags=re.DOTALL)
    return status, re.sub(RUN.encode(), b"", written) if "json" in format_ else written


def parse(format_: str, written: bytes) -> None:
    """Read a whole output as its readers would."""
    match format_:
        case "json":
            json.loads(written)
        case "jsonl":
            for line in written.decode().splitlines():
                json.loads(line)
        case "csv":
            rows = list(csv.reader(io.StringIO(written.decode(), newline="")))
            assert len({len(row) for row in rows}) == 1, "rows of different lengths"
        case "parquet":
            pq.read_table(io.BytesIO(written)).validate(full=True)
        case "arrow":
            is_file = written.startswith(b"ARROW1")
            (pa.ipc.open_file if is_file else pa.ipc.open_stream)(io.BytesIO(written)).read_all().validate(full=True)
        case _:
            written.decode()


# --- rounds -----------------------------------------------------------------------------------------------


def look(store: Path) -> dict[str, tuple[int, int]]:
    """Return size and time of everything in a store."""
    found = {}
    for path in (store, *store.rglob("*")):
        status = path.lstat()
        found[str(path)] = status.st_size, status.st_mtime_ns
    return found


def play(seed: int, number: int, place: Path) -> list[str]:
    """Play one round in an empty folder; return its failures, one text each."""
    chance = random.Random(f"{seed}/{number}")
    if chance.random() < 0.6:
        whole = sample(chance.choice(NAMES))
        shutil.copytree(whole, place / "store")
    else:
        name = chance.choice(BROKERS)
        whole = oracle.store("broker", name)
        oracle.copy("broker", name, place)
    store = place / "store"
    files = [file for file in open_store([str(store)]).files if file.size]
    kind = chance.choice(sorted({file.kind for file in files}))
    file = chance.choice([file for file in files if file.kind == kind])
    path = Path(file.path)
    what = (change_name if chance.random() < 0.1 else change_bytes)(chance, path, file)
    before, failures = look(store), []
    for words in commands(chance, store, whole, path, place / "out" / "rows"):
        empty(place / "out")
        try:
            run_by_turns(number, words, place / "out" / "rows")
            assert look(store) == before, "the evidence changed"
        except (Exception, TooLong, SystemExit):  # noqa: BLE001 (any is a failure)
            failures.append(f"--seed {seed} --round {number}\n{what}\n{' '.join(words)}\n{traceback.format_exc()}")
    return failures


def _end_command(*_: object) -> None:
    raise TooLong


def play_for(seconds: float, seed: int, first: int = 0, most: int | None = None) -> tuple[int, list[str]]:
    """Play rounds until the time is over; return their number and the failures."""
    end, number, failures = time.monotonic() + seconds, first, list[str]()
    handler = signal.signal(signal.SIGALRM, _end_command)
    try:
        while time.monotonic() < end and (most is None or number < first + most):
            with tempfile.TemporaryDirectory(prefix="mutate-") as place:
                for failure in play(seed, number, Path(place)):
                    print(failure, flush=True)
                    failures.append(failure)
            number += 1
    finally:
        signal.signal(signal.SIGALRM, handler)
    return number - first, failures


def _main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, help="default: a random one, which is printed")
    parser.add_argument("--round", type=int, help="only this one")
    given = parser.parse_args()
    seed = random.SystemRandom().randrange(1 << 32) if given.seed is None else given.seed
    print(f"seed {seed}", flush=True)
    rounds, failures = play_for(given.seconds, seed, given.round or 0, None if given.round is None else 1)
    print(f"seed {seed}: {rounds} rounds, {len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(_main())
