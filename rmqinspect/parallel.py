"""Work on many tasks in a few processes, results in the order of the tasks."""

import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ProcessPoolExecutor
from itertools import islice
from typing import TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")

# Results wait for their turn; more of them than this per process would only cost memory.
_AHEAD = 2


def default_jobs() -> int:
    """Return how many processes a command uses unless told: the cores this one may use, at most 4."""
    return min(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1, 4)


def run_ordered(
    function: Callable[[Task], Result], tasks: Iterable[Task], jobs: int, preload: str
) -> Generator[Result, None, None]:
    """Yield `function(task)` for each task, in order, computed by `jobs` processes.

    With one job everything happens in this process. `function` and the tasks are pickled;
    `preload` names the module that the processes import once for all. Closing the iterator ends
    the processes; Ctrl-C reaches this process alone.
    """
    if jobs <= 1:
        yield from map(function, tasks)
        return
    # Not fork: a forked copy of a process with threads (numpy's, Arrow's) may hang.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([preload])
    pool = ProcessPoolExecutor(jobs, mp_context=context, initializer=_leave_interrupt_to_parent)
    remaining, pending = iter(tasks), deque[Future[Result]]()
    try:
        pending.extend(pool.submit(function, task) for task in islice(remaining, jobs * _AHEAD))
        while pending:
            result = pending.popleft().result()
            pending.extend(pool.submit(function, task) for task in islice(remaining, 1))
            yield result
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _leave_interrupt_to_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


