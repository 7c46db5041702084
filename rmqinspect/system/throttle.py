"""A bound on how fast a run reads: for hosts where a broker works on the same disk.

There is one budget for all processes and threads of a run. `bound_reads` sets it, the processes of
`parallel` are given it, and `store.FileReader` pays for what it reads.
"""

import time
from collections.abc import Callable

from rmqinspect.errors import Refused

# What was not used of the last moments may be made good: a sleep is never exact, and a check works between reads.
_CREDIT = 0.05  # seconds
# A process that is ended while it holds the lock never lets go of it.
LOCK_TIMEOUT = 1.0  # seconds


class ReadRate:
    """Bytes per second, shared with every process that this object is handed to at its start.

    :raises Refused: the system has no memory or no semaphore to share.
    """

    def __init__(
        self, rate: int, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self.rate = rate
        self._clock = clock  # the same for all processes of a machine
        self._sleep = sleep
        from multiprocessing import get_context  # slow to import, and rarely needed

        try:
            self._paid_until = get_context("forkserver").Value("d", 0.0)
        except (ImportError, OSError) as error:
            raise Refused(f"--read-rate: the system lets processes share no number: {error}") from error

    def pay(self, raw: int) -> None:
        """Wait until bytes that were just read fit into the rate."""
        now = self._clock()
        lock = self._paid_until.get_lock()
        owned = lock.acquire(timeout=LOCK_TIMEOUT)
        try:
            paid = self._paid_until.get_obj()  # without its lock, which `value` alone would take
            until = max(now - _CREDIT, paid.value) + raw / self.rate
            paid.value = until
        finally:
            if owned:
                lock.release()
        if until > now:
            self._sleep(until - now)


_bound: ReadRate | None = None


def bound_reads(bound: ReadRate | None) -> None:
    """Let this process read within a bound from now on; None takes it away."""
    global _bound
    _bound = bound


def read_bound() -> ReadRate | None:
    """Return the bound of this process, None where there is none."""
    return _bound
