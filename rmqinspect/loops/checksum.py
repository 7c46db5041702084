"""CRC-32: the fastest function at hand, and where it is in memory."""

import ctypes
import zlib
from collections.abc import Callable
from contextlib import suppress
from typing import Any

try:
    from isal import isal_zlib
except ImportError:  # no wheel for this machine: zlib's CRC-32 is three times slower
    isal_zlib = None  # type: ignore[assignment]

crc32: Callable[[Any], int] = (isal_zlib or zlib).crc32


def _address() -> int:
    """Return where the C function is that computes CRC-32 from (CRC before, bytes, number of bytes); 0: not found."""
    with suppress(AttributeError, OSError):
        return _address_of(ctypes.CDLL(isal_zlib.__file__).crc32_gzip_refl)
    for library in (getattr(zlib, "__file__", None), None):
        with suppress(AttributeError, OSError):
            return _address_of(ctypes.CDLL(library).crc32)
    return 0


def _address_of(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


CRC32 = _address()
"""What loops pass to `crc32_of`. A parameter of theirs, because it differs from process to process."""
