"""Work on many tasks in a few processes, results in the order of the tasks.

Process k of n takes the tasks k, k + n, k + 2n … and sends each result through a pipe of its own;
the parent reads the pipes in turn. So results come in order, a process that is ahead waits in its
pipe, and nothing piles up. Large buffers inside a result (Arrow's) travel beside the pickle and are
copied into and out of the pipe, nowhere else.
"""

import fcntl
import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from rmqinspect.errors import RmqinspectError
from rmqinspect.system.throttle import ReadRate, bound_reads, read_bound

Task = TypeVar("Task")
Result = TypeVar("Result")

_PIPE_SIZE = 1 << 20  # what an ordinary user may ask for on Linux


class WorkerLost(RmqinspectError):
    """A process ended without an answer: killed, or out of memory."""


def default_jobs() -> int:
    """Return how many processes a command uses unless told: the cores this one may use, at most 4."""
    return min(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1, 4)


def run_ordered(
    function: Callable[[Task], Result], tasks: Sequence[Task], jobs: int, preload: str
) -> Generator[Result, None, None]:
    """Yield `function(task)` for each task, in order, computed by `jobs` processes.

    With one job everything happens in this process. `function` and the tasks are pickled;
    `preload` names the module that the processes import once for all. Closing the generator ends
    the processes; Ctrl-C reaches this process alone. They share this process's bound on reading.

    :raises WorkerLost: a process ended without an answer.
    """
    jobs = min(jobs, len(tasks))
    if jobs <= 1:
        for task in tasks:  # not map: a StopIteration in a task would look like the end
            yield function(task)
        return
    # Not fork: a forked copy of a process with threads (numpy's, Arrow's) may hang.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([preload])
    processes, pipes = [], []
    try:
        for number in range(jobs):
            ours, theirs = context.Pipe(duplex=False)
            _widen(ours)
            work = (theirs, function, tasks[number::jobs], read_bound())
            process = context.Process(target=_work, args=work, daemon=True)
            with _uninterrupted():
                process.start()
            theirs.close()
            processes.append(process)
            pipes.append(ours)
        for number in range(len(tasks)):
            outcome = _receive(pipes[number % jobs])
            if isinstance(outcome, RmqinspectError):
                raise outcome
            yield outcome
    finally:
        for pipe in pipes:
            pipe.close()
        for process in processes:
            process.terminate()
            process.join()


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Hold Ctrl-C back: what is started meanwhile inherits that, and its imports end in no traceback."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # it is started too, and lets Ctrl-C through when it is
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _widen(pipe: Connection) -> None:
    """Give a pipe a larger buffer where the system can: fewer switches between the processes."""
    if hasattr(fcntl, "F_SETPIPE_SZ"):
        with suppress(OSError):
            fcntl.fcntl(pipe.fileno(), fcntl.F_SETPIPE_SZ, _PIPE_SIZE)


def _work(pipe: Connection, function: Callable[[Any], Any], tasks: Sequence[Any], bound: ReadRate | None) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what Ctrl-C means
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    bound_reads(bound)
    try:
        for task in tasks:
            _send(pipe, function(task))
    except BrokenPipeError:
        return  # nobody waits any more
    except RmqinspectError as error:
        _send(pipe, error)


def _send(pipe: Connection, outcome: Any) -> None:
    buffers: list[pickle.PickleBuffer] = []
    head = pickle.dumps(outcome, protocol=5, buffer_callback=buffers.append)
    views = [buffer.raw() for buffer in buffers]
    pipe.send_bytes(pickle.dumps((head, [len(view) for view in views])))
    for view in views:
        while len(view):
            view = view[os.write(pipe.fileno(), view) :]


def _receive(pipe: Connection) -> Any:
    try:
        head, sizes = pickle.loads(pipe.recv_bytes())
        buffers = [_read_exactly(pipe.fileno(), size) for size in sizes]
    except EOFError as error:
        raise WorkerLost("a worker process ended without an answer (killed, or out of memory?)") from error
    return pickle.loads(head, buffers=buffers)


def _read_exactly(descriptor: int, size: int) -> bytearray:
    raw = bytearray(size)
    view = memoryview(raw)
    while len(view):
        count = os.readv(descriptor, [view])
        if not count:
            raise EOFError
        view = view[count:]
    return raw
