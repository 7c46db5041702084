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
from pathlib import Path

ROOT = Path(__file__).parents[1]

_SAMPLE_SECONDS = 0.05
_SET_CHILD_SUBREAPER = 36  # of prctl(2)


@dataclass(frozen=True, slots=True)
class Cost:
    """What one run cost."""

    wall: float  # seconds
    cpu: float  # seconds, of all cores together
    memory: int | None = None  # bytes at the peak; None where nobody looked


def run_here(function: Callable[[], None]) -> Cost:
    """Run a function in this process; the threads it starts count."""
    cpu, wall = time.process_time(), time.perf_counter()
    function()
    return Cost(time.perf_counter() - wall, time.process_time() - cpu)


def run_process(command: Sequence[str], watch: bool = False, stdin: bytes = b"") -> Cost:
    """Run a whole process from the checkout's top, its output thrown away.

    Wall ends with the process, CPU with the last of its family. Watching the memory costs time of its own.

    :raises RuntimeError: its exit status is not 0; the text has what it said.
    """
    with tempfile.TemporaryFile() as asked, tempfile.TemporaryFile() as said, _adopting_orphans():
        asked.write(stdin)
        asked.seek(0)
        start = time.perf_counter()
        child = subprocess.Popen(
            command, cwd=ROOT, stdin=asked, stdout=subprocess.DEVNULL, stderr=said, process_group=0
        )
        try:
            with peak_memory(child.pid, watch) as peak:
                _, status, used = os.wait4(child.pid, 0)
            wall = time.perf_counter() - start
            child.returncode = os.waitstatus_to_exitcode(status)
            cpu = used.ru_utime + used.ru_stime + _wait_for_orphans(child.pid)
        finally:
            if child.returncode is None:
                os.killpg(child.pid, signal.SIGKILL)
        if child.returncode:
            said.seek(0)
            words = said.read().decode("utf-8", "replace")[-2000:]
            raise RuntimeError(f"{' '.join(command)} ended with status {child.returncode}\n{words}")
    return Cost(wall, cpu, max(peak, default=None))


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


def _wait_for_orphans(group: int) -> float:
    """Wait for what is left of a process group, and return the CPU seconds it used."""
    seconds = 0.0
    while True:
        try:
            _, _, used = os.wait4(-group, 0)
        except ChildProcessError:
            return seconds
        seconds += used.ru_utime + used.ru_stime


@contextmanager
def peak_memory(group: int, watch: bool = True) -> Iterator[list[int]]:
    """Watch how many bytes a process group holds until the block ends; give the samples."""
    samples: list[int] = []
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(_SAMPLE_SECONDS):
            samples.append(_held_by(group))

    thread = threading.Thread(target=look, daemon=True)
    if watch and os.path.exists("/proc/self/smaps_rollup"):
        thread.start()
    try:
        yield samples
    finally:
        ended.set()
        if thread.ident is not None:
            thread.join()


def _held_by(group: int) -> int:
    """Return the sum of the proportional set sizes, in which a page that two share counts once."""
    held = 0
    for place in Path("/proc").glob("[0-9]*"):
        try:
            # "pid (name) state parent group …", where the name may hold anything, a parenthesis too.
            if int((place / "stat").read_bytes().rpartition(b")")[2].split()[2]) != group:
                continue
            lines = (place / "smaps_rollup").read_bytes().splitlines()
        except OSError:  # it has just ended
            continue
        held += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(b"Pss:"))
    return held
