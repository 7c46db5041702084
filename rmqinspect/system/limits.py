"""What a process asks of the system for itself: to keep freed memory, to open many files."""

import ctypes
import sys
from contextlib import suppress

# Parameters of mallopt(3).
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3
_KEEP = 32 << 20  # the largest threshold that mallopt takes


def keep_freed_memory() -> None:
    """Let malloc keep what the columns of one window leave for the columns of the next.

    glibc gives blocks of this size back to the system at once, and the next window pays for fresh
    pages: up to two thirds of the time of the columns. Without glibc nothing happens.
    """
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for parameter in (_TRIM_THRESHOLD, _MMAP_THRESHOLD, _TOP_PAD):
            mallopt(parameter, _KEEP if parameter != _TOP_PAD else _KEEP >> 3)


def open_many_files() -> None:
    """Let this process open as many files at a time as it is allowed to, not only as many as is usual."""
    try:
        import resource
    except ImportError:  # not on Windows
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(ValueError, OSError):  # macOS has a limit below the one it tells
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
