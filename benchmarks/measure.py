"""Measures wall seconds, CPU seconds and peak memory of a function or of a whole process tree.

The worker processes of `rmqinspect` are children of a fork server that outlives the main process. To count their CPU
seconds, this process adopts orphans (PR_SET_CHILD_SUBREAPER) and waits for them, too.
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
    """The cost of one run."""

    wall: float  # seconds
    cpu: float  # seconds, of all cores together
    memory: int | None = None  # bytes at the peak; None: not sampled
    jvm: int | None = None  # bytes of Java at its peak, not included in `memory`; None: no Java


def run_here(function: Callable[[], None]) -> Cost:
    """Run a function in this process; its threads are included."""
    cpu, wall = time.process_time(), time.perf_counter()
    function()
    return Cost(time.perf_counter() - wall, time.process_time() - cpu)


def run_process(command: Sequence[str], watch: bool = False, stdin: bytes = b"", scattered: bool = False) -> Cost:
    """Run a whole process from the top of the checkout and discard its output.

    Wall time ends with the process, CPU time with the last of its descendants. `watch` samples memory, which costs
    time. Descendants are found by process group; `scattered` finds them by parent, because Spark's workers form a
    group of their own.

    :raises RuntimeError: the exit status is not 0; the text has what the process wrote to stderr.
    """
    others = _children()
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as messages, _adopting_orphans():
        given.write(stdin)
        given.seek(0)
        start = time.perf_counter()
        child = subprocess.Popen(
            command, cwd=ROOT, stdin=given, stdout=subprocess.DEVNULL, stderr=messages, process_group=0
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
            messages.seek(0)
            text = messages.read().decode("utf-8", "replace")[-2000:]
            raise RuntimeError(f"{' '.join(command)} ended with status {child.returncode}\n{text}")
    memory, jvm = (max(held, default=None) for held in zip(*samples, strict=True)) if samples else (None, None)
    return Cost(wall, cpu, memory, jvm or None)


@contextmanager
def _adopting_orphans() -> Iterator[None]:
    """Adopt every descendant whose parent ends, so that it can be waited for."""
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
    """Wait for the remaining processes of a group and return their CPU seconds."""
    seconds = 0.0
    while True:
        try:
            _, _, used = os.wait4(-group, 0)
        except ChildProcessError:
            return seconds
        seconds += used.ru_utime + used.ru_stime


def _wait_for_others(known: set[int]) -> float:
    """Wait for all children except the known ones and return their CPU seconds."""
    seconds = 0.0
    while left := _children() - known:
        _, _, used = os.wait4(min(left), 0)
        seconds += used.ru_utime + used.ru_stime
    return seconds


def _children() -> set[int]:
    return {pid for pid, process in _processes().items() if process.parent == os.getpid()}


class Held(NamedTuple):
    """Memory of processes in bytes: proportional set sizes, in which a shared page counts once."""

    others: int
    jvm: int = 0


@contextmanager
def peak_memory(group: int, watch: bool = True) -> Iterator[list[int]]:
    """Sample the bytes held by a process group until the block ends; yields the list of samples."""
    sums: list[int] = []
    with _watch(partial(_held_by_group, group), watch) as samples:
        yield sums
    sums += map(sum, samples)


@contextmanager
def _watch(sample: Callable[[], Held], watch: bool) -> Iterator[list[Held]]:
    samples: list[Held] = []
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(_SAMPLE_SECONDS):
            samples.append(sample())

    thread = threading.Thread(target=run, daemon=True)
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
            # "pid (name) state parent group …"; the name may hold anything, even a parenthesis.
            front, _, fields = (place / "stat").read_bytes().rpartition(b")")
        except OSError:  # the process has just ended
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
