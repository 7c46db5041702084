"""A function over many stores side by side: a process for each, a few at a time, and none that ends the run.

    tasks      0  1  2  3  4  5 …       an idle process takes the next
    processes  |--0--|--3--|-----4…      as many as there are jobs, forked once: what is imported and compiled
               |-----1-----x  |--5…     is there in all of them
    events     Read Told Finished(0) …   as they come, not in the order of the tasks

Processes, not threads: most of what a forecast or a summary does is Python, which runs in one thread at a time. And a
process may die of what it reads, or of memory: then this store failed, and another process takes the next one.

A process reads one store at a time, so at most `jobs` of them are open. Bytes that it reads are told five times a
second; what it prints on stderr is told line by line. Ctrl-C reaches all processes of a terminal: those here ignore
it, and are ended by who waits for them, in their own time, so that private copies of databases are removed.
"""

import io
import multiprocessing
import os
import signal
import sys
import threading
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from types import FrameType
from typing import Any, NamedTuple, NoReturn, TypeAlias, TypeVar

from msgspec import Struct

from rmqinspect.errors import RmqinspectError, Unreadable
from rmqinspect.store.reader import FileReader
from rmqinspect.system.no_pandas import hide_pandas
from rmqinspect.system.workers import ReadRate, bound_reads, read_bound

Task = TypeVar("Task")

_BEAT = 0.2  # seconds between two counts of bytes
_PATIENCE = 5.0  # seconds for a process to end by itself


class Finished(NamedTuple):
    """What the function returned for a task."""

    number: int
    result: Any


class Failed(NamedTuple):
    """Why it returned nothing."""

    number: int
    cause: type[RmqinspectError] | None  # None: a bug
    text: str


class Told(NamedTuple):
    """A line that it printed on stderr."""

    number: int
    line: str


class Read(NamedTuple):
    """Bytes that a process has read since it said so last."""

    size: int


Event: TypeAlias = Finished | Failed | Told | Read


def side_by_side(
    function: Callable[[Task], Any], tasks: Sequence[Task], jobs: int, *, fork: bool = True
) -> Generator[Event, None, None]:
    """Yield what becomes of `function(task)` for each task, computed by `jobs` processes.

    One event for each task is `Finished` or `Failed`. Closing the generator ends the processes. They share
    `--read-rate`. Results are pickled. Without `fork`, and where there is none, each process begins anew: for libraries
    whose threads a fork would leave behind, such as clients of object storage; then the function and the tasks are
    pickled, too.
    """
    forks = fork and sys.platform.startswith("linux")
    workers: list[_Worker] = []
    waiting = deque(range(len(tasks)))
    jobs = max(1, min(jobs, len(tasks)))

    def start() -> _Worker:
        return _Worker.start(function, tasks, jobs, [worker.pipe for worker in workers], forks=forks)

    try:
        for _ in range(jobs if tasks else 0):
            worker = start()
            workers.append(worker)
            worker.take(waiting.popleft())
        while workers:
            for pipe in wait([worker.pipe for worker in workers]):
                worker = next(one for one in workers if one.pipe is pipe)
                event = worker.event()
                yield event
                if not isinstance(event, (Finished, Failed)):
                    continue
                if not worker.is_alive or not waiting:
                    workers.remove(worker)
                    worker.stop()
                if waiting:
                    if not worker.is_alive:
                        worker = start()
                        workers.append(worker)
                    worker.take(waiting.popleft())
    finally:
        for worker in workers:
            worker.end()
        for worker in workers:
            worker.stop()


class _Worker(Struct):
    """A process, as the one that waits for it sees it."""

    process: BaseProcess
    pipe: Connection
    number: int = -1  # the task that it is at
    is_alive: bool = True

    @classmethod
    def start(
        cls,
        function: Callable[[Task], Any],
        tasks: Sequence[Task],
        jobs: int,
        others: Sequence[Connection],
        *,
        forks: bool,
    ) -> "_Worker":
        context: Any = multiprocessing.get_context("fork" if forks else "spawn")
        here, there = context.Pipe()
        bound = read_bound()
        rate = None if bound is None else max(1, bound.rate // jobs)
        # What a fork inherits and must not hold: a pipe whose end nobody else closes would never end.
        inherited = [*others, here] if forks else []
        process = context.Process(target=_work, args=(function, tasks, there, inherited, rate), daemon=True)
        try:
            _hold_interrupts(signal.SIG_BLOCK)  # until the process ignores them
            with warnings.catch_warnings():
                # Threads of libraries, such as those of BLAS, which take care of forks by themselves.
                warnings.simplefilter("ignore", DeprecationWarning)
                process.start()
        finally:
            _hold_interrupts(signal.SIG_UNBLOCK)
        there.close()
        return cls(process, here)

    def take(self, number: int) -> None:
        """Give the process a task."""
        self.number = number
        with suppress(OSError):  # it has died: `event` says so
            self.pipe.send(number)

    def event(self) -> Event:
        """Return the next thing that the process tells."""
        try:
            told: Event = self.pipe.recv()
            return told
        except (EOFError, OSError):
            self.is_alive = False
            self.process.join()
            code = self.process.exitcode or 0
            if code == -signal.SIGKILL:
                return Failed(self.number, Unreadable, "the process that read it was killed: out of memory?")
            what = signal.strsignal(-code) if code < 0 else f"status {code}"
            return Failed(self.number, None, f"the process that read it ended: {what}")

    def end(self) -> None:
        """Ask the process to end now."""
        if self.process.is_alive():
            self.process.terminate()

    def stop(self) -> None:
        """Wait until the process has ended, which it does without further tasks."""
        with suppress(OSError):
            self.pipe.send(None)
        self.process.join(_PATIENCE)
        if self.process.exitcode is None:
            self.process.kill()
            self.process.join()
        self.pipe.close()
        self.process.close()


# --- in the processes -----------------------------------------------------------------------------


def _work(
    function: Callable[[Any], Any],
    tasks: Sequence[Any],
    pipe: Connection,
    inherited: Sequence[Connection],
    rate: int | None,
) -> None:
    for other in inherited:
        other.close()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _end)
    _hold_interrupts(signal.SIG_UNBLOCK)
    hide_pandas()
    bound_reads(None if rate is None else ReadRate(rate))
    try:
        _take_tasks(function, tasks, pipe)
    finally:
        if any(thread.name == "remote" for thread in threading.enumerate()):
            os._exit(0)  # Arrow would wait for pending requests to a remote file system


def _take_tasks(function: Callable[[Any], Any], tasks: Sequence[Any], pipe: Connection) -> None:
    outgoing = _Outgoing(pipe)
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):  # nobody waits any more
        while (number := pipe.recv()) is not None:
            sys.stderr = _Lines(outgoing, number)
            try:
                outgoing.send(Finished(number, function(tasks[number])))
            except (BrokenPipeError, ConnectionResetError):
                raise
            except RmqinspectError as error:
                outgoing.send(Failed(number, type(error), str(error)))
            except Exception as error:  # noqa: BLE001  a line of its own, never the end of the run
                if os.environ.get("RMQINSPECT_DEBUG"):
                    traceback.print_exc()
                outgoing.send(Failed(number, None, f"this is a bug: {type(error).__name__}: {error}"))
    outgoing.is_open = False


def _hold_interrupts(how: int) -> None:
    """Block Ctrl-C in this thread, or let it through; on Windows nothing is done."""
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(how, [signal.SIGINT])


def _end(number: int, _: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)


class _Outgoing:
    """The pipe to who waits; beside what is sent, it tells the bytes that are read."""

    def __init__(self, pipe: Connection) -> None:
        self.is_open = True
        self._pipe = pipe
        self._lock = threading.RLock()  # a signal may end the main thread while it sends
        self._told = FileReader.bytes_read
        threading.Thread(target=self._beat, daemon=True).start()

    def send(self, event: Event) -> None:
        with self._lock:
            self._tell_bytes()
            self._pipe.send(event)

    def _tell_bytes(self) -> None:
        if size := FileReader.bytes_read - self._told:
            self._told += size
            self._pipe.send(Read(size))

    def _beat(self) -> None:
        pause = threading.Event()
        while self.is_open and not pause.wait(_BEAT):
            with suppress(OSError), self._lock:
                self._tell_bytes()


class _Lines(io.TextIOBase):
    """A stderr whose lines are told."""

    def __init__(self, outgoing: _Outgoing, number: int) -> None:
        self._outgoing, self._number = outgoing, number
        self._begun = ""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        *lines, self._begun = (self._begun + text).split("\n")
        for line in lines:
            self._outgoing.send(Told(self._number, line))
        return len(text)

    def fileno(self) -> int:
        raise io.UnsupportedOperation(os.strerror(9))
