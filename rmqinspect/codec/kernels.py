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

What kernels call is compiled from Python, too, but for three kinds of instructions: each `make_...` returns the
compiled twin of a function, whose source says what it does. Loads written in Python, also with indexes that cannot be
negative, make the walk along the chain of records four times slower. Measured: of 1 GiB of records of 0.36 KB,
`verify` takes 0.8 to 1 s of CPU time longer without the loads and `places_of` (2.6 s with them). The C function that
computes CRC-32 cannot be called otherwise. Nothing else was worth a tenth of a second.
"""

import ctypes
import sys
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

from rmqinspect.codec.arrays import Bytes as Bytes
from rmqinspect.codec.arrays import Ints as Ints
from rmqinspect.codec.compiling import OPTIONS, Compiling, Native

BLOCK = 32  # bytes that `places_of` compares at once


def make_load(numba: Any, bits: int, *, signed: bool) -> Any:
    """Return a compiled function that loads a big-endian number of an array of bytes."""
    from llvmlite import ir

    number, word = ir.IntType(bits), ir.IntType(64)

    @numba.extending.intrinsic  # type: ignore[untyped-decorator]
    def load(_: Any, raw: Any, at: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            array = context.make_array(signature.args[0])(context, builder, arguments[0])
            place = builder.bitcast(builder.gep(array.data, [arguments[1]]), number.as_pointer())
            value = builder.load(place, align=1)
            if sys.byteorder == "little":
                value = builder.bswap(value)
            if bits == 64:
                return value
            return builder.sext(value, word) if signed else builder.zext(value, word)

        return numba.int64(raw, numba.int64), generate

    @numba.njit(**OPTIONS)  # type: ignore[untyped-decorator]
    def number_at(raw: Any, at: int) -> Any:
        return load(raw, at)

    return number_at


def make_places_of(numba: Any) -> Any:
    """Return `places_of` as a compiled function that compares all bytes at once."""
    from llvmlite import ir

    byte, word = ir.IntType(8), ir.IntType(64)
    block = ir.VectorType(byte, BLOCK)

    @numba.extending.intrinsic  # type: ignore[untyped-decorator]
    def places_in_block(_: Any, raw: Any, at: Any, first: Any, count: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            array = context.make_array(signature.args[0])(context, builder, arguments[0])
            place = builder.bitcast(builder.gep(array.data, [arguments[1]]), block.as_pointer())
            # Of a number in each byte: into the first, from where all others take it.
            firsts, counts = (
                builder.shuffle_vector(
                    builder.insert_element(ir.Constant(block, ir.Undefined), builder.trunc(number, byte), word(0)),
                    ir.Constant(block, ir.Undefined),
                    ir.Constant(ir.VectorType(ir.IntType(32), BLOCK), [0] * BLOCK),
                )
                for number in arguments[2:]
            )
            # A byte below the first wraps around, and is no smaller than the count.
            found = builder.icmp_unsigned("<", builder.sub(builder.load(place, align=1), firsts), counts)
            return builder.zext(builder.bitcast(found, ir.IntType(BLOCK)), word)

        return numba.int64(raw, numba.int64, numba.int64, numba.int64), generate

    @numba.njit(inline="always", **OPTIONS)  # type: ignore[untyped-decorator]
    def places_of(raw: Any, at: int, first: int, count: int) -> Any:
        if at + BLOCK <= len(raw):
            return places_in_block(raw, at, first, count)
        bits = 0
        for place in range(at, len(raw)):
            if first <= raw[place] < first + count:
                bits |= 1 << (place - at)
        return bits

    return places_of


def make_crc32_of(numba: Any) -> Any:
    """Return `crc32_of` as a compiled function: a call of the C function at an address."""
    from llvmlite import ir

    word = ir.IntType(64)

    @numba.extending.intrinsic  # type: ignore[untyped-decorator]
    def call(_: Any, address: Any, start: Any, size: Any) -> Any:
        # Both libraries' functions take and return 32 bits in places, in registers of 64: only the low ones count.
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            address, start, size = arguments
            function = builder.inttoptr(address, ir.FunctionType(word, [word] * 3).as_pointer())
            return builder.and_(builder.call(function, [word(0), start, size]), word(0xFFFFFFFF))

        return numba.int64(numba.int64, numba.int64, numba.int64), generate

    @numba.njit(**OPTIONS)  # type: ignore[untyped-decorator]
    def crc32_of(address: int, raw: Any, start: int, size: int) -> Any:
        return call(address, raw.ctypes.data + start, size)

    return crc32_of


# mypy: disable-error-code="no-any-return"
# An item of an array is Any for the type checker.


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

_inlined: dict[FunctionType, Native | FunctionType] = {}  # what kernels may call, and what is compiled in its place
_compiling = Compiling(_inlined)
_lock = threading.RLock()


def inlined(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Mark a plain function as one that kernels may call."""
    assert isinstance(function, FunctionType)
    _inlined[function] = function
    return function


def inlined_as(
    twin: Native | Callable[..., Any],
) -> Callable[[Callable[Parameters, Result]], Callable[Parameters, Result]]:
    """Mark a function as one that kernels may call, and that is compiled as `twin`: another one, or LLVM's code."""

    def mark(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
        assert isinstance(function, FunctionType) and isinstance(twin, Native | FunctionType)
        _inlined[function] = twin
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
        if not self.is_ready():
            return self._run_plain(arguments)
        result: Result = self._native(*arguments)  # type: ignore[misc]
        return result

    def is_ready(self) -> bool:
        """Whether calls run compiled from now on; compiles the function where that is wanted."""
        if _compiling.mode == "never":
            return False
        return self._native is not None or (_compiling.wanted() and self.compile())

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
    return Native(partial(make_load, bits=bits, signed=signed), keeps_bounds=False)


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


@inlined_as(Native(make_places_of, keeps_bounds=False))
def places_of(raw: Bytes, at: int, first: int, count: int) -> int:
    """Return which of the 32 bytes from a position on, as far as the array goes, are one of `count` from `first` on.

    Bit 0 is the first byte. With 1 and 2, the separators of properties: b"ab\x01c\x02" gives 0b10100.
    """
    bits = 0
    for place in range(at, min(at + BLOCK, len(raw))):
        if first <= raw[place] < first + count:
            bits |= 1 << (place - at)
    return bits


@inlined
def lowest_bit(bits: int) -> int:
    """Return the number of the lowest bit that is set; one of the low 32 is."""
    number = 0
    if bits & 0xFFFF == 0:
        number, bits = 16, bits >> 16
    if bits & 0xFF == 0:
        number, bits = number + 8, bits >> 8
    if bits & 0xF == 0:
        number, bits = number + 4, bits >> 4
    if bits & 0x3 == 0:
        number, bits = number + 2, bits >> 2
    return number if bits & 1 else number + 1


@inlined
def _find_in_blocks(raw: Bytes, start: int, end: int, texts: Bytes, first: int, beyond: int) -> int:
    """Do what `find_bytes` does: where the first and the last byte of the text agree, compare the rest.

    text               t ....... l
    block at     |? ? ? t ? ? ? ?|          32 places where it may begin
    block behind         |? ? ? l ? ? ? ?|  the same places, moved by its size less one
    """
    distance = beyond - first - 1
    if distance < 0:
        return start
    at = start
    while at + distance < end:
        bits = places_of(raw, at, texts[first], 1) & places_of(raw, at + distance, texts[beyond - 1], 1)
        while bits != 0:
            place = at + lowest_bit(bits)
            bits &= bits - 1
            if place + distance >= end:
                return -1
            same = 1
            while same < distance and raw[place + same] == texts[first + same]:
                same += 1
            if same >= distance:
                return place
        at += BLOCK
    return -1


@inlined_as(_find_in_blocks)
def find_bytes(raw: Bytes, start: int, end: int, texts: Bytes, first: int, beyond: int) -> int:
    """Return where `texts[first:beyond]` stands first in `raw[start:end]`, as an index of `raw`; -1 where nowhere.

    Both ranges are inside.
    """
    at = bytes(raw[start:end]).find(texts[first:beyond])
    return start + at if at >= 0 else -1


@inlined
def _copy_each(raw: Bytes, start: int, end: int, out: BytesOut, at: int) -> None:
    for number in range(end - start):
        out[at + number] = raw[start + number]


@inlined_as(_copy_each)
def copy_bytes(raw: Bytes, start: int, end: int, out: BytesOut, at: int) -> None:
    """Copy `raw[start:end]` to `out[at:]`; both places are inside."""
    out[at : at + end - start] = raw[start:end]


@inlined_as(Native(make_crc32_of))
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
