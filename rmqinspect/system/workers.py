"""Threads that compute results in task order, with bounded memory.

    tasks      0  1  2  3  4  5 …     a free thread takes the next
    waiting    0: c   1: d e   2: f   what each task has yielded and nobody has taken
    results    a b c | d e … | f …    taken in the order of the tasks

All that waits has a common room: a thread that is ahead waits until something is taken. The first task whose results
are not all taken may always add one, so nobody waits for ever.

Threads, because the work releases the interpreter's lock: reads, compiled loops, numpy, Arrow, CRC.

They share one budget of reads (`--read-rate`), for hosts where a broker uses the same disk: `bound_reads` sets it, and
`store.reader` pays for every read.

They end when nobody waits for their results any more. Python cannot interrupt a thread, so each asks by itself: at
every read of evidence (`store.reader`), every wait, and every result it hands over. `Stopped` then unwinds it like any
exception, and closes its files. The main thread is never stopped like this: Ctrl-C interrupts its reads and waits by
itself. It waits for threads in steps: a signal that arrives while it is about to sleep is seen when it wakes.

Settings of the process: keep freed memory, allow many open files.
"""

import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import Future

STEP = 0.1
"""Seconds between two looks of who waits for a thread: whether it was stopped, whether a signal has come."""

Task = TypeVar("Task")
Item = TypeVar("Item")
Result = TypeVar("Result")


def default_jobs() -> int:
    """Return the default number of threads: the cores available to this process, at most 4."""
    return min(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1, 4)


def run_ordered(function: Callable[[Task], Result], tasks: Sequence[Task], jobs: int) -> Generator[Result, None, None]:
    """Yield `function(task)` for each task, in order, computed by `jobs` threads; at most `jobs` results wait.

    One job runs in the calling thread. What a task raises is raised in its place. Closing the generator ends the
    threads at their next read.
    """

    def only(task: Task) -> Generator[Result, None, None]:
        yield function(task)

    with closing(stream_ordered(only, tasks, jobs, lambda _: 1, jobs)) as streams:
        for results in streams:
            yield from results


def stream_ordered(
    function: Callable[[Task], Generator[Item, None, None]],
    tasks: Sequence[Task],
    jobs: int,
    size_of: Callable[[Item], int],
    room: int,
) -> Generator[Iterator[Item], None, None]:
    """Yield an iterator over `function(task)` for each task, in order, computed by `jobs` threads.

    Items wait to be taken up to a size of `room` altogether. Who asks for the next iterator has done with the one
    before: what is left of it is not computed. Otherwise as `run_ordered`.
    """
    jobs = min(jobs, len(tasks))
    if jobs <= 1:
        for task in tasks:
            with closing(function(task)) as items:
                yield items
        return
    threads = _Threads(function, tasks, size_of, room)
    try:
        threads.start(jobs)
        for number in range(len(tasks)):
            yield threads.items_of(number)
    finally:
        threads.stop()


class _Waiting(Generic[Item]):
    """What one task has yielded and nobody has taken."""

    # No struct: every `--help` imports this module, and msgspec is needed by none.
    def __init__(self) -> None:
        self.items: deque[tuple[Item, int]] = deque()  # with sizes
        self.ended = False
        self.error: BaseException | None = None  # what ended it


class _Threads(Generic[Task, Item]):
    def __init__(
        self,
        function: Callable[[Task], Generator[Item, None, None]],
        tasks: Sequence[Task],
        size_of: Callable[[Item], int],
        room: int,
    ) -> None:
        self._function, self._tasks, self._size_of, self._room = function, tasks, size_of, room
        self._waiting = [_Waiting[Item]() for _ in tasks]
        self._held = 0  # size of all that waits
        self._begun = 0  # tasks that a thread has taken
        self._first = 0  # the task whose items are taken now
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._threads: list[threading.Thread] = []

    def start(self, jobs: int) -> None:
        for number in range(jobs):
            # Daemons: should a second Ctrl-C interrupt the wait for their end, the process ends all the same.
            thread = threading.Thread(target=self._work, name=f"worker-{number}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def stop(self) -> None:
        """End the threads, and wait for them."""
        self._stopped.set()
        with self._lock:
            self._changed.notify_all()
        for thread in self._threads:
            if thread.ident is not None:  # it was started
                thread.join()

    # --- in the calling thread --------------------------------------------------------------------

    def items_of(self, number: int) -> Iterator[Item]:
        """Return the items of the next task; the tasks before it are done with."""
        with self._lock:
            for waiting in self._waiting[self._first : number]:
                self._held -= sum(size for _, size in waiting.items)
                waiting.items.clear()
                waiting.error = None
            self._first = number
            self._changed.notify_all()
        return self._take(self._waiting[number])

    def _take(self, waiting: _Waiting[Item]) -> Iterator[Item]:
        while True:
            with self._lock:
                while not waiting.items and not waiting.ended:
                    self._changed.wait(STEP)
                if not waiting.items:
                    break
                item, size = waiting.items.popleft()
                self._held -= size
                self._changed.notify_all()
            yield item
            del item  # not beside the next one
        if waiting.error is not None:
            raise waiting.error

    # --- in the threads ---------------------------------------------------------------------------

    def _work(self) -> None:
        with stopped_by(self._stopped):
            while (number := self._next_task()) is not None:
                error: BaseException | None = None
                try:
                    with closing(self._function(self._tasks[number])) as items:
                        for item in items:
                            self._add(number, item)
                            del item
                except Stopped:
                    pass
                except BaseException as raised:  # noqa: BLE001  raised again where the results are taken
                    error = raised
                self._end(number, error)

    def _next_task(self) -> int | None:
        with self._lock:
            if self._stopped.is_set() or self._begun == len(self._tasks):
                return None
            self._begun += 1
            return self._begun - 1

    def _add(self, number: int, item: Item) -> None:
        """Add an item when there is room.

        :raises Stopped: nobody will take it.
        """
        size, waiting = self._size_of(item), self._waiting[number]
        with self._lock:
            while self._held + size > self._room and not (number <= self._first and not waiting.items):
                if self._stopped.is_set():
                    raise Stopped
                self._changed.wait()
            if self._stopped.is_set() or number < self._first:
                raise Stopped
            waiting.items.append((item, size))
            self._held += size
            self._changed.notify_all()

    def _end(self, number: int, error: BaseException | None) -> None:
        with self._lock:
            waiting = self._waiting[number]
            waiting.ended = True
            waiting.error = error if number >= self._first else None
            self._changed.notify_all()


# Parameters of mallopt(3).
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3
_KEEP = 32 << 20  # the largest threshold that mallopt takes


@cache  # malloc's settings are the process's, not the thread's
def keep_freed_memory() -> None:
    """Make malloc keep the memory of one window's columns for those of the next.

    By default glibc returns blocks of this size to the system at once, and page faults then take up
    to two thirds of the time of building columns. Does nothing without glibc.
    """
    if not sys.platform.startswith("linux"):
        return
    import ctypes  # each help text imports this module

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for parameter in (_TRIM_THRESHOLD, _MMAP_THRESHOLD, _TOP_PAD):
            mallopt(parameter, _KEEP if parameter != _TOP_PAD else _KEEP >> 3)


def open_many_files() -> None:
    """Raise the soft limit of open files to the hard limit."""
    try:
        import resource
    except ImportError:  # not on Windows
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(ValueError, OSError):  # macOS rejects the hard limit it reports
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class Stopped(BaseException):
    """Nobody waits for what this thread computes. No Exception: no handler on the way takes it for a failure."""


class _Thread(threading.local):
    event: threading.Event | None = None  # stops this thread


_thread = _Thread()


@contextmanager
def stopped_by(event: threading.Event | None) -> Iterator[None]:
    """Let an event stop this thread until the block ends; None: nothing stops it, for what must be finished."""
    before, _thread.event = _thread.event, event
    try:
        yield
    finally:
        _thread.event = before


def check() -> None:
    """Return unless this thread is to end.

    :raises Stopped: it is.
    """
    event = _thread.event
    if event is not None and event.is_set():
        raise Stopped


def sleep(seconds: float) -> None:
    """Sleep.

    :raises Stopped: this thread is to end; at once.
    """
    event = _thread.event
    if event is None:
        time.sleep(seconds)
    elif event.wait(seconds):
        raise Stopped


def wait_for(future: "Future[Any]", seconds: float | None) -> None:
    """Wait until a future is done, at most so many seconds; None: without limit.

    :raises Stopped: this thread is to end; soon.
    """
    from concurrent.futures import wait  # loads logging; each help text imports this module

    end = float("inf") if seconds is None else time.monotonic() + seconds
    while not future.done() and (left := end - time.monotonic()) > 0:
        check()
        wait((future,), min(left, STEP))


# Unused budget that may be caught up: sleeps are inexact, and reads alternate with computing.
_CREDIT = 0.05  # seconds


class ReadRate:
    """A rate in bytes per second."""

    def __init__(
        self, rate: int, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = sleep
    ) -> None:
        self.rate = rate
        self._clock = clock
        self._sleep = sleep
        self._paid_until = 0.0
        self._lock = threading.Lock()

    def pay(self, size: int) -> None:
        """Sleep until `size` bytes just read fit into the rate."""
        with self._lock:
            now = self._clock()
            until = self._paid_until = max(now - _CREDIT, self._paid_until) + size / self.rate
        if until > now:
            self._sleep(until - now)


_bound: ReadRate | None = None


def bound_reads(bound: ReadRate | None) -> None:
    """Limit the reads of this process from now on; None removes the limit."""
    global _bound
    _bound = bound


def read_bound() -> ReadRate | None:
    """Return this process's limit, None without one."""
    return _bound
