"""How the C library treats freed memory, told once per process that works window by window."""

import ctypes
import sys

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
