"""How much log a store has, without opening it: one listing of a folder, or two for DLedger.

What many stores are shared out by: small ones are opened by whoever reads them, not by whoever plans.
"""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase
from typing import TypeVar

from rmqinspect.errors import RmqinspectError
from rmqinspect.system.filesystem import scandir
from rmqinspect.system.uri import is_remote, join

FEW = 8
"""More stores than this are many."""

SMALL = 64 << 20
"""Bytes of the log of a store that is not worth being cut."""

OPENING = 4 << 20
"""What opening a store costs, as bytes of log that are read in that time."""

_THREADS = 32  # they wait for disks and object storage

Task = TypeVar("Task")
Done = TypeVar("Done")


def in_threads(function: Callable[[Task], Done], tasks: Sequence[Task]) -> list[Done]:
    """Return what a function that waits for files says of each task, in their order; it may raise."""
    if not tasks:
        return []
    with ThreadPoolExecutor(min(_THREADS, len(tasks))) as pool:
        return list(pool.map(function, tasks))


def log_size(root: str) -> int | None:
    """Return the bytes that the log of the store at a path takes, or None: no folder there has a log that can be seen.

    Holes are not counted, where the file system says what they are.
    """
    try:
        names = ["commitlog"]
        if not is_remote(root):
            folders = [entry.name for entry in scandir(root) if entry.is_dir()]
            names = [name for name in folders if name == "commitlog"]
            names += [f"{name}/data" for name in folders if fnmatchcase(name, "dledger-*")]
        sizes = [_size(entry.stat()) for name in names for entry in scandir(join(root, name))]
    except (OSError, RmqinspectError):
        return None
    return sum(sizes) if sizes else None


def _size(status: os.stat_result) -> int:
    blocks = getattr(status, "st_blocks", None)  # of local files
    return status.st_size if blocks is None else min(status.st_size, blocks * 512)
