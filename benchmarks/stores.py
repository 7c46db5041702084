"""The stores that are measured: given ones, or generated ones."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from benchmarks.measure import ROOT, Loop

PROFILES = ("mid", "small")  # of make_store, which needs memory to be imported

# Queues and index of a generated store take less than this share of its log.
_POINTERS_SHARE = 0.25


@dataclass(frozen=True, slots=True)
class Log:
    """The input of every peer: the used bytes of each segment, without the zeros after the last record."""

    store: str  # as it was given: a store, or only its commitlog folder
    folder: str  # of the segments
    pointed_at: bool  # the store has queues or index files
    records: int
    size: int  # bytes of all records; the unit of all GB

    @property
    def record_size(self) -> int:
        """The mean."""
        return self.size // self.records


@contextmanager
def opened(path: str) -> Iterator[tuple[Log, Loop]]:
    """Yield the log of a store, and the process of bounds.py that reads it."""
    with Loop([sys.executable, "-m", "benchmarks.bounds", path]) as bounds:
        yield Log(**bounds.ask("log")), bounds


def make(path: str, profile: str, size: int) -> None:
    """Generate a store, in another process."""
    command = [sys.executable, "-m", "benchmarks.make_store", path, "--profile", profile, "--size", str(size)]
    subprocess.run(command, cwd=ROOT, check=True)


def find_stores(
    given: Sequence[str], profiles: Sequence[str], size: int, keep: str | None, stack: ExitStack
) -> Iterator[str]:
    """Yield the stores to measure: the given ones, else one per profile.

    Generated stores are kept in the folder `keep` and used again, or removed with `stack`.
    """
    yield from map(os.path.abspath, given)
    for profile in () if given else profiles:
        folder = keep or stack.enter_context(tempfile.TemporaryDirectory(prefix="rmqinspect-"))
        os.makedirs(folder, exist_ok=True)
        path = os.path.abspath(os.path.join(folder, f"{profile}-{size}"))
        if not os.path.exists(path):
            free, needed = shutil.disk_usage(folder).free, int(size * (1 + _POINTERS_SHARE))
            if free < needed:
                raise SystemExit(f"{folder}: {free} bytes are free, {needed} are needed")
            make(path, profile, size)
        yield path
