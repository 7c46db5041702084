"""A limit on read throughput (`--read-rate`), for hosts where a broker uses the same disk.

One budget is shared by all processes and threads of a run: `bound_reads` sets it, `workers` passes
it to its processes, and `store.reader` pays for every read.
"""

import time
from collections.abc import Callable

from rmqinspect.errors import Refused

# Unused budget that may be caught up: sleeps are inexact, and reads alternate with computing.
_CREDIT = 0.05  # seconds
# A process killed while holding the lock never releases it: proceed without.
LOCK_TIMEOUT = 1.0  # seconds


class ReadRate:
    """A rate in bytes per second, shared with every process that gets this object at its start.

    :raises Refused: the system has no shared memory or semaphores.
    """

    def __init__(
        self, rate: int, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self.rate = rate
        self._clock = clock  # must be system-wide
        self._sleep = sleep
        from multiprocessing import get_context  # slow to import, and rarely needed

        try:
            self._paid_until = get_context("forkserver").Value("d", 0.0)
        except (ImportError, OSError) as error:
            raise Refused(f"--read-rate: processes cannot share a counter on this system: {error}") from error

    def pay(self, size: int) -> None:
        """Sleep until `size` bytes just read fit into the rate."""
        now = self._clock()
        lock = self._paid_until.get_lock()
        owned = lock.acquire(timeout=LOCK_TIMEOUT)
        try:
            paid = self._paid_until.get_obj()  # without its lock, which `value` alone would take
            until = max(now - _CREDIT, paid.value) + size / self.rate
            paid.value = until
        finally:
            if owned:
                lock.release()
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
