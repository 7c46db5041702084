"""Runs of the command line that end in their middle: `python -m tests.rescue.faults HOW POINTS FOLDER WORD…`.

Each run is a fork of this process. At one of its system calls, chosen by chance, it is killed, interrupted, or told
that the disk is full. Printed is a JSON line for each: status, stderr, and the names in FOLDER afterwards. A first run,
which loads what is needed, and a last one are left alone. HOW:

    kill, interrupt, terminate   SIGKILL, SIGINT or SIGTERM before the call
    full                         the call fails with ENOSPC, if it makes or opens something in FOLDER to write to it
    limit                        no file may grow beyond a size
    race                         several runs at the same moment
"""

import errno
import json
import os
import random
import resource
import shutil
import signal
import sys
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from rmqinspect.cli import main

_SIGNALS = {"kill": signal.SIGKILL, "interrupt": signal.SIGINT, "terminate": signal.SIGTERM}
_MAKING = ("open", "os.mkdir", "os.rename", "os.link", "os.truncate")
_CALLS = (*_MAKING, "os.remove", "os.rmdir", "os.listdir", "os.scandir", "fcntl.flock", "fcntl.ioctl")
_RUNS_AT_ONCE = 4


def play(how: str, points: int, folder: Path, words: list[str]) -> None:
    """Play runs that end at so many points, then one that is left alone."""
    chance = random.Random(f"{how}/{words}")
    main(words)
    _forget(folder)
    if how == "race":
        for _ in range(points):
            _tell(folder, _at_once(words))
        return
    if how == "limit":
        for size in (10, 300, 5000, 65535):
            _tell(folder, [_fork(words, partial(resource.setrlimit, resource.RLIMIT_FSIZE, (size, size)))])
    else:
        counted: list[int] = []
        reader, writer = os.pipe()
        _fork(words, lambda: _at_call(how, folder, lambda number: os.write(writer, b"."), lambda number: True))
        os.close(writer)
        while part := os.read(reader, 1 << 16):
            counted.append(len(part))
        _forget(folder)
        for point in sorted(chance.sample(range(sum(counted)), min(points, sum(counted)))):
            _tell(folder, [_fork(words, partial(_at_call, how, folder, _fault(how), point.__eq__))])
    _forget(folder)
    _tell(folder, [_fork(words, lambda: None)])


def _at_call(how: str, folder: Path, act: Callable[[int], Any], when: Callable[[int], bool]) -> None:
    """Act before a call of this process; `when` is asked with the number of each."""
    number = 0

    def look(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal number
        if event not in (_MAKING if how == "full" else _CALLS):
            return
        if how == "full":
            makes = arguments[2] & (os.O_WRONLY | os.O_RDWR) if event == "open" else not os.path.isdir(arguments[0])
            if not makes or not any(isinstance(one, str) and one.startswith(f"{folder}/") for one in arguments):
                return
        number += 1
        if when(number - 1):
            act(number - 1)

    sys.addaudithook(look)


def _fault(how: str) -> Callable[[int], None]:
    def fault(_: int) -> None:
        if how == "full":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.kill(os.getpid(), _SIGNALS[how])

    return fault


def _fork(words: list[str], prepare: Callable[[], object]) -> tuple[int, str]:
    """Run the command in a fork; return its status, of a killed one minus the signal, and its stderr."""
    return _wait(*_start(words, prepare))


def _start(words: list[str], prepare: Callable[[], object]) -> tuple[int, int]:
    reader, writer = os.pipe()
    child = os.fork()
    if child:
        os.close(writer)
        return child, reader
    os.dup2(writer, 2)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.argv = ["rmqinspect", *words]
    status = 1
    try:
        prepare()
        status = main(words)
    except SystemExit as ended:
        status = int(ended.code or 0)
    except Exception:  # noqa: BLE001  a fork must not go on as the test run: the trace is printed, and it ends
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def _wait(child: int, reader: int) -> tuple[int, str]:
    said = b""
    while part := os.read(reader, 1 << 16):
        said += part
    os.close(reader)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), said.decode()


def _at_once(words: list[str]) -> list[tuple[int, str]]:
    waiting, go = os.pipe()

    def wait() -> None:
        os.close(go)
        os.read(waiting, 1)  # until all other ends are closed

    children = [_start(words, wait) for _ in range(_RUNS_AT_ONCE)]
    os.close(waiting)
    os.close(go)
    return [_wait(*child) for child in children]


def _tell(folder: Path, ended: list[tuple[int, str]]) -> None:
    names = sorted(path.name for path in folder.iterdir())
    print(json.dumps({"ended": ended, "names": names}), flush=True)
    if any(not name.startswith(".") for name in names):
        _forget(folder)


def _forget(folder: Path) -> None:
    for path in folder.iterdir():
        if path.name.startswith("."):
            continue
        shutil.rmtree(path) if path.is_dir() else path.unlink()


if __name__ == "__main__":
    play(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4:])
