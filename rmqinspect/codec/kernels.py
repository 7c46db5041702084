"""Loops over bytes: plain Python, compiled where that pays.

A kernel is a function over byte arrays, int64 arrays and ints that fills arrays its caller made. Its source runs in
two ways, with equal results:

    uncompiled   arrays become memoryviews, so each value is a Python int     about 20 µs per record, ready at once
    compiled     by numba to machine code that holds no lock                  about 0.2 µs, once it is there

A process begins uncompiled. When its kernels have taken a tenth of a second, or a large log is opened (`expect`), they
are compiled, or loaded from the user's cache (`codec.compiling`): a small store never waits for a compiler. Without
numba everything stays uncompiled. RMQINSPECT_COMPILE decides otherwise: `always`, `never`; `auto` is the default.

Rules of a kernel, by which both ways are equal and hostile bytes harmless:
- it makes no array, also no slice of one, and calls nothing but `@inlined` functions;
- a comparison in front of each index proves that it is inside: neither way finds a negative one;
- every sum stays within 64 bits: sizes are below 2^31, positions below 2^63 - 2^32;
- no number of a layout is written in it: `layout.place_of` computes them, as constants of the module.
"""

# mypy: disable-error-code="no-any-return"
# An item of an array is Any for the type checker.

import ctypes
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from types import FunctionType
from typing import Annotated, Any, Generic, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from rmqinspect.codec import natives
from rmqinspect.codec.arrays import Bytes as Bytes
from rmqinspect.codec.arrays import Ints as Ints
from rmqinspect.codec.compiling import Compiling, Native
from rmqinspect.codec.natives import BLOCK as BLOCK  # for the callers of `separators_at`

try:
    from isal import isal_zlib
except ImportError:  # no wheel for this machine: zlib's CRC-32 is three times slower
    isal_zlib = None  # type: ignore[assignment]

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

# What a kernel's parameters are, for both type checker and compiler: it writes to none but `...Out`.
Int32s = NDArray[np.int32]
BytesOut = Annotated[NDArray[np.uint8], "written"]
IntsOut = Annotated[NDArray[np.int64], "written"]
Int32sOut = Annotated[NDArray[np.int32], "written"]
Table = Annotated[NDArray[np.int64], "two dimensions"]  # one column of int64 per row
TableOut = Annotated[NDArray[np.int64], "two dimensions", "written"]
Int32Table = Annotated[NDArray[np.int32], "two dimensions"]
ByteTableOut = Annotated[NDArray[np.uint8], "two dimensions", "written"]
Int32TableOut = Annotated[NDArray[np.int32], "two dimensions", "written"]

_inlined: dict[FunctionType, Native | None] = {}  # what kernels may call; None: numba compiles the source
_compiling = Compiling(_inlined)
_lock = threading.RLock()


def inlined(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Mark a plain function as one that kernels may call."""
    return inlined_as(None)(function)


def inlined_as(native: Native | None) -> Callable[[Callable[Parameters, Result]], Callable[Parameters, Result]]:
    """Mark a function as one that kernels may call, and that is compiled as `native`."""

    def mark(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
        assert isinstance(function, FunctionType)
        _inlined[function] = native
        return function

    return mark


class Kernel(Generic[Parameters, Result]):
    """A function that runs uncompiled, or compiled."""

    def __init__(self, function: Callable[Parameters, Result]) -> None:
        assert isinstance(function, FunctionType)
        self.function = function
        self.__doc__ = function.__doc__
        self._native: Callable[..., Any] | None = None

    def __call__(self, *arguments: Parameters.args, **named: Parameters.kwargs) -> Result:
        """Run the function on arrays and ints; arguments are positional.

        Arrays are C-contiguous, of the types in the function's annotations.
        """
        if _compiling.mode == "never" or (self._native is None and not (_compiling.wanted() and self.compile())):
            return self._run_plain(arguments)
        result: Result = self._native(*arguments)  # type: ignore[misc]
        return result

    def _run_plain(self, arguments: tuple[Any, ...]) -> Result:
        began = time.thread_time()
        result: Result = self.function(*map(_as_view, arguments))
        _compiling.spent += time.thread_time() - began
        return result

    def compile(self) -> bool:
        """Compile the function, or load it from the cache; return whether that was possible."""
        with _lock:
            if self._native is None and _compiling.wanted():  # no longer, if another thread could not
                self._native = _compiling.compile(self.function)
        return self._native is not None


def _as_view(value: Any) -> Any:
    return value.data if isinstance(value, np.ndarray) else value


def kernel(function: Callable[Parameters, Result]) -> Kernel[Parameters, Result]:
    """Make a kernel of a function; its annotations are `int`, and the types of arrays above."""
    return Kernel(function)


# --- what every kernel needs --------------------------------------------------------------------


def _load(bits: int, *, signed: bool) -> Native:
    """Return one load: numba would load and test byte after byte."""
    return Native(partial(natives.make_load, bits=bits, signed=signed), keeps_bounds=False)


@inlined
def byte_at(raw: Bytes, at: int) -> int:
    """Return a signed 8-bit integer."""
    return (raw[at] ^ 0x80) - 0x80


@inlined_as(_load(16, signed=True))
def int16_at(raw: Bytes, at: int) -> int:
    """Return a big-endian signed 16-bit integer."""
    return (((raw[at] << 8) | raw[at + 1]) ^ 0x8000) - 0x8000


@inlined_as(_load(32, signed=False))
def uint32_at(raw: Bytes, at: int) -> int:
    """Return a big-endian unsigned 32-bit integer."""
    return (raw[at] << 24) | (raw[at + 1] << 16) | (raw[at + 2] << 8) | raw[at + 3]


@inlined_as(_load(32, signed=True))
def int32_at(raw: Bytes, at: int) -> int:
    """Return a big-endian signed 32-bit integer."""
    return (uint32_at(raw, at) ^ 0x80000000) - 0x80000000


@inlined_as(_load(64, signed=True))
def int64_at(raw: Bytes, at: int) -> int:
    """Return a big-endian signed 64-bit integer."""
    return (int32_at(raw, at) << 32) | uint32_at(raw, at + 4)


@inlined
def same_bytes(one: Bytes, first: int, other: Bytes, second: int, size: int) -> bool:
    """Whether `size` bytes are the same in two places, eight at a time; the last eight may overlap others."""
    at = 0
    if size < 8:
        if size > 0 and first + 8 <= len(one) and second + 8 <= len(other):
            return (int64_at(one, first) ^ int64_at(other, second)) >> (64 - 8 * size) == 0
        while at < size and one[first + at] == other[second + at]:
            at += 1
        return at == size
    while at + 8 < size:
        if int64_at(one, first + at) != int64_at(other, second + at):
            return False
        at += 8
    return int64_at(one, first + size - 8) == int64_at(other, second + size - 8)


@inlined_as(Native(natives.make_separators_at, keeps_bounds=False))
def separators_at(raw: Bytes, at: int) -> int:
    """Return which of the 32 bytes from a position on, as far as the array goes, are 1 or 2; bit 0 is the first."""
    bits = 0
    for place in range(at, min(at + BLOCK, len(raw))):
        if raw[place] == 1 or raw[place] == 2:
            bits |= 1 << (place - at)
    return bits


@inlined_as(Native(natives.make_lowest_bit))
def lowest_bit(bits: int) -> int:
    """Return the number of the lowest bit that is set; one is."""
    number = 0
    while not (bits >> number) & 1:
        number += 1
    return number


@inlined_as(Native(natives.make_find_bytes))
def find_bytes(raw: Bytes, start: int, end: int, texts: Bytes, first: int, beyond: int) -> int:
    """Return where `texts[first:beyond]` stands first in `raw[start:end]`, as an index of `raw`; -1 where nowhere.

    Both ranges are inside.
    """
    at = bytes(raw[start:end]).find(texts[first:beyond])
    return start + at if at >= 0 else -1


@inlined_as(Native(natives.make_copy_bytes))
def copy_bytes(raw: Bytes, start: int, end: int, out: BytesOut, at: int) -> None:
    """Copy `raw[start:end]` to `out[at:]`; both places are inside.

    What lies behind the copy in `out` may change, too: copy in ascending order.
    """
    out[at : at + end - start] = raw[start:end]


@inlined_as(Native(natives.make_prefetch))
def prefetch(numbers: Int32sOut, at: int) -> None:
    """Let the processor load an item, which is inside, while a kernel does other things; for use soon.

    For arrays larger than the caches that are read in no order: without it, each item is waited for.
    """


@inlined_as(Native(natives.make_crc32_of))
def crc32_of(address: int, raw: Bytes, start: int, size: int) -> int:
    """Return the CRC-32 of `size` bytes from a position; `address` is CRC32."""
    return _crc32(raw[start : start + size])


_crc32: Callable[[Any], int] = (isal_zlib or zlib).crc32


def _crc32_address() -> int:
    """Return where the C function is that computes CRC-32 from (CRC before, bytes, number of bytes)."""
    with suppress(AttributeError, OSError):
        return _address(ctypes.CDLL(isal_zlib.__file__).crc32_gzip_refl)
    for library in (getattr(zlib, "__file__", None), None):
        with suppress(AttributeError, OSError):
            return _address(ctypes.CDLL(library).crc32)
    return 0


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


CRC32 = _crc32_address()
"""What kernels pass to `crc32_of`. A parameter of theirs, because it differs from process to process."""


# --- whether to compile -------------------------------------------------------------------------


def expect(size: int) -> None:
    """Say that so many bytes are going to be read: with many, nothing runs uncompiled first."""
    _compiling.expected = max(_compiling.expected, size)


def remarks() -> list[str]:
    """Return why loops that should be compiled are not, or not kept; nothing where all is well."""
    return _compiling.remarks


def on_compiling(say: Callable[[str], None] | None) -> None:
    """Set what is called, from any thread, when compiling takes long."""
    _compiling.say = say


@contextmanager
def compile_mode(mode: str) -> Iterator[None]:
    """Compile `always`, `never` or `auto` until the block ends; for tests and measurements."""
    before, _compiling.mode = _compiling.mode, mode
    try:
        yield
    finally:
        _compiling.mode = before
