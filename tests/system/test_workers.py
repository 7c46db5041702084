"""Threads that compute in parallel: order, bounds, errors, and how they end."""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path

import pytest

from rmqinspect.cli import ExitStatus
from rmqinspect.errors import Unreadable
from rmqinspect.store.model import StoreFile
from rmqinspect.store.reader import FileReader, open_file
from rmqinspect.system import workers
from rmqinspect.system.workers import ReadRate, bound_reads, run_ordered, stream_ordered
from tests.support.samples import ROOT, sample

HEALTHY = sample("healthy-5.5.0")
LONG = 30.0  # seconds that nothing here takes


@pytest.fixture(autouse=True)
def all_threads_end() -> Iterator[None]:
    yield
    bound_reads(None)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("worker-")]


def letters(word: str) -> Generator[str, None, None]:
    yield from word


@pytest.mark.parametrize("jobs", [1, 2, 3, 20])
def test_results_come_in_the_order_of_the_tasks(jobs: int) -> None:
    def late(number: int) -> int:
        time.sleep(0.002 * (number % 3 == 0))
        return number * 2

    assert list(run_ordered(late, range(12), jobs)) == list(range(0, 24, 2))
    words = ["ab", "", "cde", "f"]
    # A room of nothing: only the first task's items go through, one by one.
    for room in (0, 2, 100):
        taken = [list(items) for items in stream_ordered(letters, words, jobs, lambda _: 1, room)]
        assert taken == [list(word) for word in words]
    assert list(run_ordered(late, [], jobs)) == []


def test_as_many_tasks_run_at_once_as_there_are_threads() -> None:
    together = threading.Barrier(3, timeout=LONG)
    assert list(run_ordered(lambda number: together.wait() >= 0 and number, range(6), 3)) == list(range(6))


def test_who_is_ahead_waits() -> None:
    begun: list[int] = []

    def note(number: int) -> int:
        begun.append(number)
        return number

    results = run_ordered(note, range(100), 2)
    assert next(results) == 0
    time.sleep(0.05)
    # One was taken; two wait, and each thread holds another.
    assert len(begun) <= 5
    assert list(results) == list(range(1, 100))


def test_what_waits_has_a_common_room() -> None:
    made: list[tuple[int, int]] = []

    def sizes(number: int) -> Generator[int, None, None]:
        for step in range(50):
            made.append((number, step))
            yield 10

    streams = stream_ordered(sizes, range(3), 3, lambda size: size, 100)
    first = next(streams)
    assert next(first) == 10
    time.sleep(0.05)
    # Ten wait, one was taken, and each of three threads holds another.
    assert len(made) <= 14
    assert len(list(first)) == 49
    assert [len(list(items)) for items in streams] == [50, 50]


def test_the_rest_of_a_task_is_not_computed_once_the_next_one_is_asked_for() -> None:
    made: list[int] = []

    def count(number: int) -> Generator[int, None, None]:
        for step in range(1000):
            made.append(number)
            yield step

    streams = stream_ordered(count, range(3), 2, lambda _: 1, 10)
    next(next(streams))
    assert list(next(streams)) == list(range(1000))
    assert list(next(streams)) == list(range(1000))
    assert made.count(0) < 100


@pytest.mark.parametrize("jobs", [1, 2])
def test_an_error_is_raised_in_its_place(jobs: int) -> None:
    def fail(number: int) -> Generator[int, None, None]:
        yield number
        if number == 2:
            raise Unreadable("file 2: Input/output error", "file 2", 7)

    streams = stream_ordered(fail, range(5), jobs, lambda _: 1, 10)
    assert [list(next(streams)) for _ in range(2)] == [[0], [1]]
    third = next(streams)
    assert next(third) == 2
    with pytest.raises(Unreadable, match="file 2") as raised:
        next(third)
    assert (raised.value.file, raised.value.offset) == ("file 2", 7)
    # Who wants to may go on.
    assert [list(items) for items in streams] == [[3], [4]]
    with pytest.raises(ZeroDivisionError):
        list(run_ordered(lambda number: 1 // (3 - number), range(5), jobs))


def test_closing_ends_the_threads_at_their_next_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(1 << 20))
    file = StoreFile(str(tmp_path / "file"), "file", 1 << 20, "other")
    closed = threading.Semaphore(0)

    def read_on(_: int) -> int:
        try:
            with open_file(file) as reader:
                while True:
                    reader.read(0, 10)
        finally:
            closed.release()

    results = run_ordered(lambda number: read_on(number) if number else number, range(3), 2)
    assert next(results) == 0
    results.close()
    assert closed.acquire(timeout=LONG)


def test_closing_wakes_threads_that_sleep_for_the_rate(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(100))
    file = StoreFile(str(tmp_path / "file"), "file", 100, "other")
    bound_reads(ReadRate(1))  # a read of 100 bytes sleeps for 100 seconds
    reading = threading.Semaphore(0)

    def read(number: int) -> int:
        if number:
            reading.release()
            with open_file(file) as reader:
                reader.read(0, 100)
        return number

    results = run_ordered(read, range(3), 2)
    assert next(results) == 0
    assert reading.acquire(timeout=LONG)
    begin = time.monotonic()
    results.close()
    assert time.monotonic() - begin < LONG


def wait_for_a_worker() -> None:
    list(run_ordered(signal_without_waking, range(2), 2))


def wait_for_a_future() -> None:
    future: Future[int] = Future()
    threading.Thread(target=lambda: future.set_result(signal_without_waking(0))).start()
    workers.wait_for(future, None)


def signal_without_waking(number: int) -> int:
    """Let Ctrl-C arrive in this thread: the main thread sleeps on, as where a signal comes just before its sleep."""
    time.sleep(0.1)
    signal.pthread_kill(threading.get_ident(), signal.SIGINT)
    caught.wait(LONG)
    return number


caught = threading.Event()


@pytest.mark.parametrize("wait", [wait_for_a_worker, wait_for_a_future])
def test_ctrl_c_that_does_not_wake_the_main_thread_is_seen_soon(wait: Callable[[], None]) -> None:
    def interrupt(_: int, __: object) -> None:
        caught.set()
        raise KeyboardInterrupt

    caught.clear()
    before, begin = signal.signal(signal.SIGINT, interrupt), time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt):
            wait()
    finally:
        signal.signal(signal.SIGINT, before)
    assert time.monotonic() - begin < LONG / 2


def test_every_byte_counts_once_however_many_threads_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(1000))
    file = StoreFile(str(tmp_path / "file"), "file", 1000, "other")

    def read(_: int) -> int:
        with open_file(file) as reader:
            return sum(len(reader.read(at, 10)) for at in range(0, 1000, 10))

    before, interval = FileReader.bytes_read, sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        total = sum(run_ordered(read, range(40), 4))
    finally:
        sys.setswitchinterval(interval)
    assert FileReader.bytes_read - before == total == 40_000


# --- commands ---------------------------------------------------------------------------------------------

# Threads that come to the third segment sleep there, as they would at a very low rate.
_SLEEPS = """
import sys, threading
from rmqinspect.store.reader import FileReader
from rmqinspect.system import workers
from rmqinspect.system.workers import ReadRate

read_into, slow = FileReader.read_into, ReadRate(1)

def read_slowly(self, buffer, offset):
    if threading.current_thread().name.startswith("worker-") and self.file.name.endswith("/00000000000000131072"):
        print("asleep", file=sys.stderr, flush=True)
        slow.pay(3600)
    return read_into(self, buffer, offset)

FileReader.read_into = read_slowly
from rmqinspect.__main__ import main
sys.exit(main())
"""
COMMANDS = {
    "decode": ("-f", "jsonl"),
    "verify": ("--level", "standard"),
    "export": ("-o", "{out}", "--engine", "local", "--file-size", "64K"),
}


@contextmanager
def command_that_sleeps(*words: str) -> Iterator["subprocess.Popen[str]"]:
    """Run a command on a store of five segments, in two threads; kill it if it does not end."""
    command = [sys.executable, "-c", _SLEEPS, *words, str(HEALTHY), "-j", "2"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("command", COMMANDS)
def test_ctrl_c_wakes_the_threads_of_a_command(command: str, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    with command_that_sleeps(command, *(word.format(out=folder) for word in COMMANDS[command])) as process:
        assert process.stderr is not None
        while "asleep" not in process.stderr.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=LONG)
    assert process.returncode == ExitStatus.INTERRUPTED
    assert "INCOMPLETE" in out if command == "verify" else "interrupted" in err
    assert "Traceback" not in err
    assert not folder.exists()


def test_a_reader_that_has_seen_enough_wakes_the_threads() -> None:
    with command_that_sleeps("decode", "-f", "jsonl") as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.wait(timeout=LONG) == ExitStatus.DONE
        assert "Traceback" not in process.stderr.read()


def test_a_full_stderr_is_no_bug() -> None:
    command = [sys.executable, "-m", "rmqinspect", "verify", str(sample("flipped-bit-5.3.3"))]
    with open("/dev/full", "w") as full:
        ended = subprocess.run(command, stdout=subprocess.PIPE, stderr=full, check=False)
    assert ended.returncode == ExitStatus.UNREADABLE
