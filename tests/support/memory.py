"""Peak memory, measured in a process of its own.

`ru_maxrss` does not serve: a process that has been larger before cannot exceed it, and a child inherits the
peak of the parent that it was forked from. VmHWM belongs to the address space, which a spawned process has new.
"""

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import TypeVar

Result = TypeVar("Result")


def peak_of(call: Callable[[], Result]) -> tuple[Result, int]:
    """Make a call in a fresh process; return its result and by how many bytes it raised the peak RSS.

    `call` is a `partial` of a function of a module. Imports are not counted: its module is loaded before the
    first measurement.
    """
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(_measure, call).result()


def _measure(call: Callable[[], Result]) -> tuple[Result, int]:
    before = _peak()
    result = call()
    return result, _peak() - before


def _peak() -> int:
    """Return the peak resident size of this process in bytes. Source: proc(5), VmHWM."""
    status = Path("/proc/self/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) << 10
