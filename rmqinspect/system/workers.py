"""A process pool that yields results in task order with bounded memory.

    tasks    0 1 2 3 4 5 …       process k of n takes tasks k, k + n, k + 2n …
    pipes    A: 0 2 4   B: 1 3 5
    parent   A B A B …           reads the pipes in turn, so results come in order

A process that is ahead blocks on its full pipe: nothing queues up. Large buffers of a result
(Arrow's) bypass the pickle (protocol 5) and are copied only into and out of the pipe.
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
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar

from rmqinspect.errors import RmqinspectError, WorkerKilled
from rmqinspect.system.throttle import ReadRate, bound_reads, read_bound

Task = TypeVar("Task")
Result = TypeVar("Result")

_PIPE_SIZE = 1 << 20  # the limit for unprivileged users on Linux
_PATIENCE = 5.0  # seconds for a process that has closed its pipe to end


class WorkerLost(RmqinspectError):
    """A worker process ended without a result."""


def default_jobs() -> int:
    """Return the default number of processes: the cores available to this process, at most 4."""
    return min(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1, 4)


def run_ordered(
    function: Callable[[Task], Result], tasks: Sequence[Task], jobs: int, preload: str
) -> Generator[Result, None, None]:
    """Yield `function(task)` for each task, in order, computed by `jobs` processes.

    One job runs in this process. `function` and the tasks are pickled; `preload` names the module
    that the fork server imports once. Closing the generator ends the processes. Only this process
    handles Ctrl-C. All share this process's `--read-rate`.

    :raises WorkerKilled: a process was killed.
    :raises WorkerLost: a process ended without a result.
    """
    jobs = min(jobs, len(tasks))
    if jobs <= 1:
        for task in tasks:  # not map(): a StopIteration raised by a task would end it
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
            try:
                outcome = _receive(pipes[number % jobs])
            except EOFError as error:
                raise _lost(processes[number % jobs]) from error
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
    """Block Ctrl-C: processes started meanwhile inherit the mask, so that it never interrupts their imports."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # started first, because starting it unblocks Ctrl-C
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _widen(pipe: Connection) -> None:
    """Enlarge a pipe's buffer where possible: fewer context switches."""
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
        return  # the parent has stopped reading
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
    """Return the next outcome of a process.

    :raises EOFError: it has ended before that.
    """
    head, sizes = pickle.loads(pipe.recv_bytes())
    return pickle.loads(head, buffers=[_read_exactly(pipe.fileno(), size) for size in sizes])


def _lost(process: BaseProcess) -> RmqinspectError:
    """Return why a process has ended before its last result."""
    process.join(_PATIENCE)
    if (process.exitcode or 0) < 0:
        name = signal.Signals(-process.exitcode).name  # type: ignore[operator]
        return WorkerKilled(f"a worker process was killed ({name}): if memory ran out, -j 1 needs less")
    return WorkerLost("a worker process ended without a result")


def _read_exactly(descriptor: int, size: int) -> bytearray:
    raw = bytearray(size)
    view = memoryview(raw)
    while len(view):
        count = os.readv(descriptor, [view])
        if not count:
            raise EOFError
        view = view[count:]
    return raw
