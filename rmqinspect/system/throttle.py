"""A limit on read throughput (`--read-rate`), for hosts where a broker uses the same disk.

One budget is shared by all threads: `bound_reads` sets it, and `store.reader` pays for every read.
"""

import threading
import time
from collections.abc import Callable

from rmqinspect.system import stopping

# Unused budget that may be caught up: sleeps are inexact, and reads alternate with computing.
_CREDIT = 0.05  # seconds


class ReadRate:
    """A rate in bytes per second."""

    def __init__(
        self, rate: int, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = stopping.sleep
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
