"""How much log a store has, without opening it: one listing of a folder, or two for DLedger.

What many stores are shared out by: small ones are opened by whoever reads them, not by whoever plans.
"""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase
from typing import NamedTuple, TypeVar

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


class LogFile(NamedTuple):
    """A file in a folder of the log, by its listing."""

    name: str
    size: int
    taken: int  # bytes without holes, where the file system says what they are


def log_files(root: str) -> list[LogFile] | None:
    """Return the files of the log of the store at a path; None: no folder there has a log that can be seen."""
    try:
        names = ["commitlog"]
        if not is_remote(root):
            folders = [entry.name for entry in scandir(root) if entry.is_dir()]
            names = [name for name in folders if name == "commitlog"]
            names += [f"{name}/data" for name in folders if fnmatchcase(name, "dledger-*")]
        entries = [entry for name in names for entry in scandir(join(root, name))]
        return [_file(entry.name, entry.stat()) for entry in entries] or None
    except (OSError, RmqinspectError):
        return None


def log_size(root: str) -> int | None:
    """Return the bytes that the log of the store at a path takes without holes; None as above."""
    files = log_files(root)
    return None if files is None else sum(file.taken for file in files)


def _file(name: str, status: os.stat_result) -> LogFile:
    blocks = getattr(status, "st_blocks", None)  # of local files
    taken = status.st_size if blocks is None else min(status.st_size, blocks * 512)
    return LogFile(name, status.st_size, taken)
