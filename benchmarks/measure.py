"""Measures wall seconds, CPU seconds and peak memory of whole processes.

Spark's JVM and its Python workers may outlive the process that started them. To count their CPU seconds, this process
adopts orphans (PR_SET_CHILD_SUBREAPER) and waits for them, too.

The system lets the peak of a process begin with that of the process that started it. So the process that measures has
to stay small; what needs memory runs in a process of its own, see `Loop`.
"""

import ctypes
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

ROOT = Path(__file__).parents[1]

_SET_CHILD_SUBREAPER = 36  # of prctl(2)
_MAXRSS_UNIT = 1 if sys.platform == "darwin" else 1024  # bytes, of getrusage(2)


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one run."""

    wall: float  # seconds
    cpu: float  # seconds, of all cores and processes together
    memory: int | None = None  # bytes: the largest resident set of one process; None: not known
    status: int = 0  # exit status


def run_here(function: Callable[[], Any]) -> Cost:
    """Run a function in this process; its threads are included."""
    cpu, wall = time.process_time(), time.perf_counter()
    function()
    return Cost(time.perf_counter() - wall, time.process_time() - cpu)


def run_process(
    command: Sequence[str], environment: Mapping[str, str] | None = None, stdin: bytes = b"", *, may_fail: bool = False
) -> Cost:
    """Run a whole process from the top of the checkout and discard its output.

    Wall time ends with the process, CPU time with the last of its descendants. `environment` is added to that of this
    process.

    :raises RuntimeError: the exit status is not 0, unless it `may_fail`; the text has what it wrote to stderr.
    """
    known = _children()
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as messages, _adopting_orphans():
        given.write(stdin)
        given.seek(0)
        start = time.perf_counter()
        child = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, **(environment or {})},
            stdin=given,
            stdout=subprocess.DEVNULL,
            stderr=messages,
            process_group=0,
        )
        try:
            _, status, used = os.wait4(child.pid, 0)
            wall = time.perf_counter() - start
            child.returncode = os.waitstatus_to_exitcode(status)
            all_used = [used, *_wait_for(lambda: _children() - known)]
        finally:
            if child.returncode is None:
                os.killpg(child.pid, signal.SIGKILL)
        if child.returncode and not may_fail:
            messages.seek(0)
            text = messages.read().decode("utf-8", "replace")[-2000:]
            raise RuntimeError(f"{' '.join(command)} ended with status {child.returncode}\n{text}")
    cpu = sum(used.ru_utime + used.ru_stime for used in all_used)
    return Cost(wall, cpu, max(used.ru_maxrss for used in all_used) * _MAXRSS_UNIT, child.returncode)


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


def _wait_for(left: Callable[[], set[int]]) -> Iterator[Any]:
    """Wait until no child is left and yield the resources that each used."""
    while children := left():
        yield os.wait4(min(children), 0)[2]


def _children() -> set[int]:
    """Return the children of this process; without /proc none."""
    found = set()
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # the process has just ended
            # "pid (name) state parent …"; the name may hold anything, even a parenthesis.
            _, parent, *_ = (place / "stat").read_bytes().rpartition(b")")[2].split()
            if int(parent) == os.getpid():
                found.add(int(place.name))
    return found


class Loop:
    """A process that keeps running and does what each line on its stdin asks for; it answers with a line of JSON."""

    def __init__(self, command: Sequence[str], warm_up: int = 0) -> None:
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, process_group=0
        )
        for _ in range(warm_up):
            self.ask()

    def __enter__(self) -> "Loop":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate()

    def ask(self, request: str = "") -> dict[str, Any]:
        """Return the answer to a request of one line.

        :raises RuntimeError: the process has ended.
        """
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(f"{request}\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self._process.args!r} has ended; its messages are above")
        answer: dict[str, Any] = json.loads(line)
        return answer
