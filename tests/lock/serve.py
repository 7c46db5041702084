"""Runs commands of the rmqinspect that this interpreter has, one process for each: the far end of `tests.lock.compare`.

A request is a line of JSON on stdin: the words, the folder to run in, and the columns of a terminal, null for a pipe.
The answer is a line of JSON on stdout: exit status, stdout, stderr, and the files of the folder `out`.
Imports nothing but the standard library and the package under test, whose build is another than that of the tests.
"""

import contextlib
import fcntl
import gc
import hashlib
import json
import os
import pkgutil
import pty
import select
import signal
import struct
import sys
import tempfile
import termios
import time
from pathlib import Path
from typing import Any

import rmqinspect

LONGEST = 120.0  # seconds that a command may take

# What forks badly or takes long, and is imported by few commands.
_LATE = ("rmqinspect.spark", "rmqinspect.__main__")


def _run_child(words: list[str], folder: str, stdout: int, stderr: int) -> None:
    """Become the command; never returns."""
    os.setsid()
    null = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null, 0), (stdout, 1), (stderr, 2)):
        os.dup2(source, target)
    os.chdir(folder)
    os.environ["RMQINSPECT_PAGER"] = ""  # a terminal here has nobody who presses a key
    sys.argv = ["rmqinspect", *words]
    sys.stdin, sys.stdout, sys.stderr = (
        os.fdopen(number, mode, encoding="utf-8", errors="backslashreplace")
        for number, mode in ((0, "r"), (1, "w"), (2, "w"))
    )
    status = 70
    try:
        from rmqinspect.__main__ import main

        status = main()
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else 70
    finally:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def answer(words: list[str], folder: str, columns: int | None) -> dict[str, Any]:
    """Run one command in a process of its own and return what came of it."""
    with tempfile.TemporaryFile() as errors:
        if columns is None:
            readable, writable = os.pipe()
        else:
            readable, writable = pty.openpty()
            fcntl.ioctl(writable, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
        child = os.fork()
        if child == 0:
            _run_child(words, folder, writable, errors.fileno())
        os.close(writable)
        printed = _read_all(readable, child)
        _, ended = os.waitpid(child, 0)
        errors.seek(0)
        return {
            "status": os.waitstatus_to_exitcode(ended),
            "stdout": printed.decode(errors="backslashreplace").replace("\r\n", "\n"),
            "stderr": errors.read().decode(errors="backslashreplace"),
            "files": _files(Path(folder) / "out"),
        }


def _read_all(readable: int, child: int) -> bytes:
    """Read to the end of a pipe or a pseudo-terminal; a command that takes too long is killed."""
    parts, end = [], time.monotonic() + LONGEST
    while select.select([readable], [], [], max(0, end - time.monotonic()))[0]:
        try:
            part = os.read(readable, 1 << 20)
        except OSError:  # Linux: the last writer of a pseudo-terminal is gone
            part = b""
        if not part:
            break
        parts.append(part)
    else:
        os.kill(child, signal.SIGKILL)
    os.close(readable)
    return b"".join(parts)


def _files(out: Path) -> dict[str, str]:
    """Return the digest of every file below `out`, or of the file; the manifest of an export has its time."""
    paths = [out] if out.is_file() else [path for path in sorted(out.rglob("*")) if path.is_file()]
    return {
        str(path.relative_to(out.parent)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in paths
        if path.name != "_manifest.json"
    }


def _modules() -> list[str]:
    names = [module.name for module in pkgutil.walk_packages(rmqinspect.__path__, "rmqinspect.")]
    return [name for name in names if not name.startswith(_LATE)]


def _serve() -> None:
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    os.environ["ARROW_DEFAULT_MEMORY_POOL"] = "system"
    # Once, before the forks: a command spends most of its time on imports.
    for name in ("pyarrow.parquet", "pyarrow.dataset", *_modules()):
        with contextlib.suppress(ImportError):
            __import__(name)
    gc.freeze()
    for line in sys.stdin:
        request = json.loads(line)
        found = answer(request["words"], request["folder"], request["columns"])
        sys.__stdout__.write(json.dumps(found) + "\n")  # type: ignore[union-attr]
        sys.__stdout__.flush()  # type: ignore[union-attr]


if __name__ == "__main__":
    _serve()
