"""Process settings: keep freed memory, allow many open files."""

import ctypes
import sys
from contextlib import suppress
from functools import cache

# Parameters of mallopt(3).
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3
_KEEP = 32 << 20  # the largest threshold that mallopt takes


@cache  # malloc's settings are the process's, not the thread's
def keep_freed_memory() -> None:
    """Make malloc keep the memory of one window's columns for those of the next.

    By default glibc returns blocks of this size to the system at once, and page faults then take up
    to two thirds of the time of building columns. Does nothing without glibc.
    """
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for parameter in (_TRIM_THRESHOLD, _MMAP_THRESHOLD, _TOP_PAD):
            mallopt(parameter, _KEEP if parameter != _TOP_PAD else _KEEP >> 3)


def open_many_files() -> None:
    """Raise the soft limit of open files to the hard limit."""
    try:
        import resource
    except ImportError:  # not on Windows
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(ValueError, OSError):  # macOS rejects the hard limit it reports
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
