"""Run something and say what it cost: wall seconds, CPU seconds, and the most memory it held.

Of a process it is always the whole family. That takes care: the workers of `rmqinspect` are children of a
fork server, which outlives their parent and would take their CPU seconds with it.
"""

import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]

_SAMPLE_SECONDS = 0.05
_SET_CHILD_SUBREAPER = 36  # of prctl(2)


@dataclass(frozen=True, slots=True)
class Cost:
    """What one run cost."""

    wall: float  # seconds
    cpu: float  # seconds, of all cores together
    memory: int | None = None  # bytes at the peak; None where nobody looked
    jvm: int | None = None  # bytes that Java held at its peak, which are none of `memory`; None where it had no part


def run_here(function: Callable[[], None]) -> Cost:
    """Run a function in this process; the threads it starts count."""
    cpu, wall = time.process_time(), time.perf_counter()
    function()
    return Cost(time.perf_counter() - wall, time.process_time() - cpu)


def run_process(command: Sequence[str], watch: bool = False, stdin: bytes = b"", scattered: bool = False) -> Cost:
    """Run a whole process from the checkout's top, its output thrown away.

    Wall ends with the process, CPU with the last of its family. Watching the memory costs time of its own.
    The family is a process group or, where that is `scattered`, all that this process has begotten: Spark's
    workers make a group of their own.

    :raises RuntimeError: its exit status is not 0; the text has what it said.
    """
    others = _children()
    with tempfile.TemporaryFile() as asked, tempfile.TemporaryFile() as said, _adopting_orphans():
        asked.write(stdin)
        asked.seek(0)
        start = time.perf_counter()
        child = subprocess.Popen(
            command, cwd=ROOT, stdin=asked, stdout=subprocess.DEVNULL, stderr=said, process_group=0
        )
        try:
            with _watch(_held_by_descendants if scattered else partial(_held_by_group, child.pid), watch) as samples:
                _, status, used = os.wait4(child.pid, 0)
            wall = time.perf_counter() - start
            child.returncode = os.waitstatus_to_exitcode(status)
            cpu = used.ru_utime + used.ru_stime
            cpu += _wait_for_others(others) if scattered else _wait_for_group(child.pid)
        finally:
            if child.returncode is None:
                os.killpg(child.pid, signal.SIGKILL)
        if child.returncode:
            said.seek(0)
            words = said.read().decode("utf-8", "replace")[-2000:]
            raise RuntimeError(f"{' '.join(command)} ended with status {child.returncode}\n{words}")
    memory, jvm = (max(held, default=None) for held in zip(*samples, strict=True)) if samples else (None, None)
    return Cost(wall, cpu, memory, jvm or None)


@contextmanager
def _adopting_orphans() -> Iterator[None]:
    """Be the parent of every descendant whose own parent ends, so that it can be waited for."""
    if not sys.platform.startswith("linux"):
        yield
        return
    library = ctypes.CDLL(None)
    library.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        library.prctl(_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def _wait_for_group(group: int) -> float:
    """Wait for what is left of a process group and return the CPU seconds it used."""
    seconds = 0.0
    while True:
        try:
            _, _, used = os.wait4(-group, 0)
        except ChildProcessError:
            return seconds
        seconds += used.ru_utime + used.ru_stime


def _wait_for_others(known: set[int]) -> float:
    """Wait for all children but those that are known and return the CPU seconds they used."""
    seconds = 0.0
    while left := _children() - known:
        _, _, used = os.wait4(min(left), 0)
        seconds += used.ru_utime + used.ru_stime
    return seconds


def _children() -> set[int]:
    return {pid for pid, process in _processes().items() if process.parent == os.getpid()}


class Held(NamedTuple):
    """How many bytes processes hold: proportional set sizes, in which a page that two share counts once."""

    others: int
    jvm: int = 0


@contextmanager
def peak_memory(group: int, watch: bool = True) -> Iterator[list[int]]:
    """Watch how many bytes a process group holds until the block ends; give the samples."""
    sums: list[int] = []
    with _watch(partial(_held_by_group, group), watch) as samples:
        yield sums
    sums += map(sum, samples)


@contextmanager
def _watch(look: Callable[[], Held], watch: bool) -> Iterator[list[Held]]:
    samples: list[Held] = []
    ended = threading.Event()

    def look_on() -> None:
        while not ended.wait(_SAMPLE_SECONDS):
            samples.append(look())

    thread = threading.Thread(target=look_on, daemon=True)
    if watch and os.path.exists("/proc/self/smaps_rollup"):
        thread.start()
    try:
        yield samples
    finally:
        ended.set()
        if thread.ident is not None:
            thread.join()


class _Process(NamedTuple):
    name: bytes
    parent: int
    group: int


def _processes() -> dict[int, _Process]:
    found = {}
    for place in Path("/proc").glob("[0-9]*"):
        try:
            # "pid (name) state parent group …", where the name may hold anything, a parenthesis too.
            front, _, fields = (place / "stat").read_bytes().rpartition(b")")
        except OSError:  # it has just ended
            continue
        found[int(place.name)] = _Process(front.partition(b"(")[2], *map(int, fields.split()[1:3]))
    return found


def _held_by_group(group: int) -> Held:
    return Held(sum(_held_by(pid) for pid, process in _processes().items() if process.group == group))


def _held_by_descendants() -> Held:
    processes, held, fresh = _processes(), [0, 0], {os.getpid()}
    while fresh:
        fresh = {pid for pid, process in processes.items() if process.parent in fresh}
        for pid in fresh:
            held[processes[pid].name == b"java"] += _held_by(pid)
    return Held(*held)


def _held_by(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_bytes().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(b"Pss:"))
