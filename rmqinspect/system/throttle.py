"""A limit on read throughput (`--read-rate`), for hosts where a broker uses the same disk.

One budget is shared by all threads: `bound_reads` sets it, and `store.reader` pays for every read.

Ends threads whose results nobody waits for any more.

Python cannot interrupt a thread, so each asks by itself: at every read of evidence (`store.reader`), every wait, and
every result it hands over. `Stopped` then unwinds it like any exception, and closes its files. The main thread is never
stopped like this: Ctrl-C interrupts its reads and waits by itself.
"""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from typing import Any

_STEP = 0.1  # seconds between two looks while a thread waits for a future


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
    if _thread.event is None:
        wait((future,), seconds)
        return
    end = float("inf") if seconds is None else time.monotonic() + seconds
    while not future.done() and (left := end - time.monotonic()) > 0:
        check()
        wait((future,), min(left, _STEP))


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
