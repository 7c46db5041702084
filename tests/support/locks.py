"""Other processes that hold the lock of a store, as a broker does, or have its file open, as one that still loads."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# What Java's FileChannel#tryLock(0, 1, false) is: a POSIX lock on the first byte.
HOLD = "file = open(sys.argv[1], 'r+b'); fcntl.lockf(file, fcntl.LOCK_EX, 1, 0)"
FLOCK = "file = open(sys.argv[1], 'rb'); fcntl.flock(file, fcntl.LOCK_EX); file.close()"
OPEN = "file = open(sys.argv[1], 'rb')"


@contextmanager
def other_process(code: str, path: Path, *words: str, program: str | Path = sys.executable) -> Iterator[int]:
    """Run Python code on a file in another process, which then waits until the block ends; yield its pid."""
    code = f"import fcntl, sys; {code}; print(flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [program, "-c", code, path, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as running:
        assert running.stdin is not None and running.stdout is not None
        assert running.stdout.readline() == b"\n"
        yield running.pid
        running.stdin.close()
