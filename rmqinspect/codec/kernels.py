"""Loops over bytes: plain Python, compiled where that pays. The only importer of numba.

A kernel is a function over byte arrays, int64 arrays and ints that fills arrays its caller made. Its source runs in
two ways, with equal results:

    uncompiled   arrays become memoryviews, so each value is a Python int     about 20 µs per record, ready at once
    compiled     by numba to machine code that holds no lock                  about 0.2 µs, after half a second

A process begins uncompiled. When its kernels have taken as much time as loading numba would, they are compiled, or
loaded from the user's cache: a small store never pays for numba, and nobody has to say how large a store is. Who knows
how much will be read says so (`expect`), and saves that time. Without numba everything stays uncompiled.
RMQINSPECT_COMPILE decides otherwise: `always`, `never`; `auto` is the default.

Rules of a kernel, by which both ways are equal and hostile bytes harmless:
- it makes no array, also no slice of one, and calls nothing but `@inlined` functions;
- a comparison in front of each index proves that it is inside: neither way finds a negative one;
- every sum stays within 64 bits: sizes are below 2^31, positions below 2^63 - 2^32;
- no number of a layout is written in it: `layout.place_of` computes them, as constants of the module.

The cache is in NUMBA_CACHE_DIR, else in `rmqinspect` in XDG_CACHE_HOME (~/.cache), in a folder per version of the
kernels. numba keeps apart other releases of itself and other processors. A folder that cannot be written to means that
each process compiles for itself.
"""

# mypy: disable-error-code="no-any-return"
# An item of an array is Any for the type checker.

import ctypes
import hashlib
import os
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from types import CodeType, FunctionType, ModuleType
from typing import Annotated, Any, Generic, ParamSpec, TypeVar, get_args, get_origin

import numpy as np
from numpy.typing import NDArray

from rmqinspect.codec import machine_code

try:
    from isal import isal_zlib
except ImportError:  # no wheel for this machine: zlib's CRC-32 is three times slower
    isal_zlib = None  # type: ignore[assignment]

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

# What a kernel's parameters are, for both type checker and compiler: it writes to none but `...Out`.
Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]
Int32s = NDArray[np.int32]
BytesOut = Annotated[NDArray[np.uint8], "written"]
IntsOut = Annotated[NDArray[np.int64], "written"]
Int32sOut = Annotated[NDArray[np.int32], "written"]
Table = Annotated[NDArray[np.int64], "two dimensions"]  # one column of int64 per row
TableOut = Annotated[NDArray[np.int64], "two dimensions", "written"]
Int32Table = Annotated[NDArray[np.int32], "two dimensions"]
ByteTableOut = Annotated[NDArray[np.uint8], "two dimensions", "written"]
Int32TableOut = Annotated[NDArray[np.int32], "two dimensions", "written"]

MODE = "RMQINSPECT_COMPILE"
BOUNDS = "NUMBA_BOUNDSCHECK"  # numba's own: each index is compared with its array

# Seconds of CPU time in uncompiled kernels after which compiled ones pay: about what loading them takes.
_WORTH = 0.1
_LARGE = 12 << 20  # bytes of records for which they pay in any case
BLOCK = 32  # bytes that `separators_at` compares at once
_PATIENCE = 1.0  # seconds of compiling without a word

# numba counts references to arrays by default: 20 ns in every call of an inlined function, more than most of them do.
_OPTIONS = {"nogil": True, "_nrt": False}

_inlined: dict[FunctionType, Any] = {}  # function -> how it is compiled; None: not yet
_lock = threading.RLock()


def inlined(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Mark a plain function as one that kernels may call."""
    assert isinstance(function, FunctionType)
    _inlined[function] = None
    return function


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


@inlined
def byte_at(raw: Bytes, at: int) -> int:
    """Return a signed 8-bit integer."""
    return (raw[at] ^ 0x80) - 0x80


@inlined
def int16_at(raw: Bytes, at: int) -> int:
    """Return a big-endian signed 16-bit integer."""
    return (((raw[at] << 8) | raw[at + 1]) ^ 0x8000) - 0x8000


@inlined
def uint32_at(raw: Bytes, at: int) -> int:
    """Return a big-endian unsigned 32-bit integer."""
    return (raw[at] << 24) | (raw[at + 1] << 16) | (raw[at + 2] << 8) | raw[at + 3]


@inlined
def int32_at(raw: Bytes, at: int) -> int:
    """Return a big-endian signed 32-bit integer."""
    return (uint32_at(raw, at) ^ 0x80000000) - 0x80000000


@inlined
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


@inlined
def separators_at(raw: Bytes, at: int) -> int:
    """Return which of the 32 bytes from a position on, as far as the array goes, are 1 or 2; bit 0 is the first."""
    bits = 0
    for place in range(at, min(at + BLOCK, len(raw))):
        if raw[place] == 1 or raw[place] == 2:
            bits |= 1 << (place - at)
    return bits


@inlined
def lowest_bit(bits: int) -> int:
    """Return the number of the lowest bit that is set; one is."""
    number = 0
    while not (bits >> number) & 1:
        number += 1
    return number


# Compiled as one load each, with the bits and the sign of the number; numba would load and test byte after byte.
_LOADS: dict[Any, tuple[int, bool]] = {
    int16_at: (16, True),
    uint32_at: (32, False),
    int32_at: (32, True),
    int64_at: (64, True),
}


@inlined
def copy_bytes(raw: Bytes, start: int, end: int, out: BytesOut, at: int) -> None:
    """Copy `raw[start:end]` to `out[at:]`; both places are inside.

    What lies behind the copy in `out` may change, too: copy in ascending order.
    """
    out[at : at + end - start] = raw[start:end]


@inlined
def prefetch(numbers: Int32sOut, at: int) -> None:
    """Let the processor load an item, which is inside, while a kernel does other things; for use soon.

    For arrays larger than the caches that are read in no order: without it, each item is waited for.
    """


@inlined
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


# --- compiling ----------------------------------------------------------------------------------


class _Compiling:
    """Whether and how this process compiles."""

    def __init__(self) -> None:
        self.mode = os.environ.get(MODE, "auto")
        self.spent = 0.0  # CPU seconds in uncompiled kernels
        self.expected = 0  # bytes
        self.remarks: list[str] = []
        self.say: Callable[[str], None] | None = None
        self._numba: ModuleType | None = None
        self._slow = 0.0  # seconds of compiling so far; infinite when it was said

    @cached_property
    def _folder(self) -> str | None:
        return _cache_folder(os.environ.get("NUMBA_CACHE_DIR", ""))

    def wanted(self) -> bool:
        pays = self.spent > _WORTH or self.expected >= _LARGE
        return self.mode == "always" or (self.mode == "auto" and pays)

    def compile(self, function: FunctionType) -> Callable[..., Any] | None:
        if os.environ.get("NUMBA_DISABLE_JIT", "0") != "0":
            self._give_up("NUMBA_DISABLE_JIT is set")
            return None
        place = self._place(function)
        parameters = [_parameter(hint) for name, hint in function.__annotations__.items() if name != "return"]
        has_result = function.__annotations__["return"] is not None
        # With bounds checks an exception must reach Python, which numba knows how to do.
        kept = None if os.environ.get(BOUNDS) else place
        if kept is not None and (loaded := machine_code.load(kept, parameters, has_result=has_result)) is not None:
            return loaded
        if self._numba is None and not self._load():
            return None
        native = self._jit_slowly(function, parameters, place)
        if kept is not None and native is not None:
            ((signature, code),) = native.inspect_llvm().items()
            machine_code.save(kept, code, native.overloads[signature].fndesc.llvm_func_name, parameters)
        return native

    def _jit_slowly(self, function: FunctionType, parameters: list[machine_code.Parameter], place: str | None) -> Any:
        """Compile a function, and say so if that takes long."""
        began = time.monotonic()
        timer = threading.Timer(max(0.0, _PATIENCE - self._slow), self._tell)
        timer.daemon = True
        timer.start()
        try:
            return self._jit(function, parameters, place)
        finally:
            timer.cancel()
            self._slow += time.monotonic() - began

    def _tell(self) -> None:
        if self.say is not None and self._slow != float("inf"):
            self._slow = float("inf")
            self.say("compiling (once)")

    def _give_up(self, why: str) -> None:
        self.remarks.append(f"loops are not compiled, and slow: {why}")
        self.mode = "never"

    def _load(self) -> bool:
        try:
            import numba
        except Exception as error:  # noqa: BLE001  whatever a broken installation raises, the result is the same
            self._give_up(f"numba cannot be used: {error}")
            return False
        self._numba = numba
        if self._folder is None or not os.access(self._folder, os.W_OK | os.X_OK):
            self.remarks.append(
                "compiled loops are not kept, each run compiles them: "
                "no folder for them in NUMBA_CACHE_DIR, XDG_CACHE_HOME or ~/.cache"
            )
        return True

    def _jit(
        self, function: FunctionType, parameters: list[machine_code.Parameter], place: str | None
    ) -> Callable[..., Any] | None:
        numba = self._numba
        assert numba is not None
        arguments = tuple(_type_of(numba, parameter) for parameter in parameters)
        # What is to become an object file must come from numba, not from its cache.
        marker = _marker(place, function) if place is not None and os.environ.get(BOUNDS) else None
        if marker is not None:
            # Reading and writing a cache may fail in any way: a full disk, a truncated file, another user's file.
            with suppress(Exception):
                return self._with_globals(numba.njit([arguments], cache=True, **_OPTIONS), function, marker)
        try:
            return self._with_globals(numba.njit([arguments], **_OPTIONS), function, function.__code__.co_filename)
        except Exception as error:  # noqa: BLE001  as above
            self._give_up(f"{function.__name__}: {type(error).__name__}: {error}")
            return None

    def _place(self, function: FunctionType) -> str | None:
        """Return where in the cache a function is, without the ending: one place per content. None without a cache.

        numba would ask whether the source has changed, but not whether a constant or an inlined function has.
        """
        if self._folder is None:
            return None
        bounds = os.environ.get(BOUNDS, "")
        ways = (
            _native_load,
            _native_prefetch,
            _native_separators,
            _native_lowest_bit,
            _native_copy,
            _native_crc32,
            _Compiling._native_of,
            _Compiling._jit,
        )
        content = [
            bounds,
            repr(_OPTIONS),
            *(part for way in ways for part in _code_of(way.__code__)),
            *_content(function),
        ]
        digest = hashlib.sha256("\n".join(content).encode()).hexdigest()[:16]
        return os.path.join(self._folder, digest)

    def _with_globals(self, jit: Callable[..., Any], function: FunctionType, filename: str) -> Any:
        """Return a compiled copy of a function, whose globals are compiled where it calls them."""
        code = function.__code__.replace(co_filename=filename)
        names = {"__name__": function.__module__, "__builtins__": function.__globals__["__builtins__"]}
        for name, value in _globals_of(function):
            names[name] = self._native_of(value) if isinstance(value, FunctionType) else value
        return jit(FunctionType(code, names, function.__name__, function.__defaults__))

    def _native_of(self, function: FunctionType) -> Any:
        assert self._numba is not None
        if _inlined[function] is None:
            if function is crc32_of:
                native = _native_crc32(self._numba)
            elif function is copy_bytes:
                native = _native_copy(self._numba)
            elif function is lowest_bit:
                native = _native_lowest_bit(self._numba)
            elif function is separators_at and not os.environ.get(BOUNDS):
                native = _native_separators(self._numba)
            elif function is prefetch:
                native = _native_prefetch(self._numba)
            elif function in _LOADS and not os.environ.get(BOUNDS):
                native = _native_load(self._numba, *_LOADS[function])
            else:
                jit = self._numba.njit(inline="always", **_OPTIONS)
                native = self._with_globals(jit, function, function.__code__.co_filename)
            _inlined[function] = native
        return _inlined[function]


_compiling = _Compiling()


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


def _globals_of(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield the globals that a function uses: constants and inlined functions."""
    for name in sorted(set(_names_in(function.__code__))):
        if name in function.__globals__:
            yield name, function.__globals__[name]


def _names_in(code: CodeType) -> Iterator[str]:
    yield from code.co_names


def _content(function: FunctionType) -> Iterator[str]:
    """Yield everything that the compiled code of a function follows from."""
    yield from _code_of(function.__code__)
    yield repr(function.__annotations__)
    for name, value in _globals_of(function):
        yield name
        yield from _content(value) if isinstance(value, FunctionType) else [repr(value)]


def _code_of(code: CodeType) -> Iterator[str]:
    yield code.co_code.hex()
    for constant in code.co_consts:
        yield from _code_of(constant) if isinstance(constant, CodeType) else [repr(constant)]


def _marker(place: str, function: FunctionType) -> str | None:
    """Return a file beside which numba caches a function, None where it cannot be made."""
    path = f"{place}.py"
    try:
        if not os.path.exists(path):
            with open(path, "x") as file:
                file.write(f"# {function.__module__}.{function.__qualname__}\n")
    except FileExistsError:
        pass  # another process was faster
    except OSError:
        return None
    return path


def _cache_folder(given: str) -> str | None:
    """Return the folder of the cache, made where it is missing; None where that cannot be."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    folder = given or os.path.join(home, "rmqinspect")
    # A user without a home has it at "~", a folder below the current one, which may be a store.
    if not given and not os.path.isabs(folder):
        return None
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
    except OSError:
        return None
    return folder


def _parameter(hint: Any) -> machine_code.Parameter:
    """Return what an annotation says."""
    if hint is int:
        return machine_code.Parameter()
    array, *notes = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    dtype = np.dtype(get_args(get_args(array)[1])[0])
    return machine_code.Parameter(dtype, 2 if "two dimensions" in notes else 1, "written" in notes)


def _type_of(numba: Any, parameter: machine_code.Parameter) -> Any:
    """Return the type of a parameter for numba."""
    if parameter.dtype is None:
        return numba.int64
    item = numba.from_dtype(parameter.dtype)
    return numba.types.Array(item, parameter.dimensions, "C", readonly=not parameter.written)


def _native_load(numba: Any, bits: int, signed: bool) -> Any:
    """Return a compiled function that loads a big-endian number of an array of bytes."""
    from llvmlite import ir
    from numba.extending import intrinsic

    number, word = ir.IntType(bits), ir.IntType(64)

    @intrinsic  # type: ignore[untyped-decorator]
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

    @numba.njit(**_OPTIONS)  # type: ignore[untyped-decorator]
    def number_at(raw: Any, at: int) -> Any:
        return load(raw, at)

    return number_at


def _native_separators(numba: Any) -> Any:
    """Return `separators_at` as a compiled function that compares all bytes at once."""
    from llvmlite import ir
    from numba.extending import intrinsic

    word, block = ir.IntType(64), ir.VectorType(ir.IntType(8), BLOCK)

    @intrinsic  # type: ignore[untyped-decorator]
    def separators_in_block(_: Any, raw: Any, at: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            array = context.make_array(signature.args[0])(context, builder, arguments[0])
            place = builder.bitcast(builder.gep(array.data, [arguments[1]]), block.as_pointer())
            one, two = (ir.Constant(block, [value] * BLOCK) for value in (1, 2))
            # 1 or 2, less one, is 0 or 1.
            found = builder.icmp_unsigned("<", builder.sub(builder.load(place, align=1), one), two)
            return builder.zext(builder.bitcast(found, ir.IntType(BLOCK)), word)

        return numba.int64(raw, numba.int64), generate

    @numba.njit(inline="always", **_OPTIONS)  # type: ignore[untyped-decorator]
    def separators_at(raw: Any, at: int) -> int:
        if at + BLOCK <= len(raw):
            return separators_in_block(raw, at)
        bits = 0
        for place in range(at, len(raw)):
            if raw[place] == 1 or raw[place] == 2:
                bits |= 1 << (place - at)
        return bits

    return separators_at


def _native_lowest_bit(numba: Any) -> Any:
    """Return `lowest_bit` as a compiled function of one instruction."""
    from llvmlite import ir
    from numba.extending import intrinsic

    @intrinsic  # type: ignore[untyped-decorator]
    def trailing_zeros(_: Any, bits: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.cttz(arguments[0], ir.IntType(1)(0))

        return numba.int64(numba.int64), generate

    @numba.njit(inline="always", **_OPTIONS)  # type: ignore[untyped-decorator]
    def lowest_bit(bits: int) -> int:
        return trailing_zeros(bits)

    return lowest_bit


def _native_prefetch(numba: Any) -> Any:
    """Return `prefetch` as a compiled function: one instruction."""
    from llvmlite import ir
    from numba.extending import intrinsic

    flag = ir.IntType(32)
    to_write, keep, data = flag(1), flag(3), flag(1)  # of LLVM's instruction

    @intrinsic  # type: ignore[untyped-decorator]
    def fetch(_: Any, numbers: Any, at: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            array = context.make_array(signature.args[0])(context, builder, arguments[0])
            place = builder.bitcast(builder.gep(array.data, [arguments[1]]), ir.IntType(8).as_pointer())
            kind = ir.FunctionType(ir.VoidType(), [place.type, flag, flag, flag])
            function = builder.module.declare_intrinsic("llvm.prefetch", [place.type], kind)
            builder.call(function, [place, to_write, keep, data])
            return context.get_dummy_value()

        return numba.none(numbers, numba.int64), generate

    @numba.njit(**_OPTIONS)  # type: ignore[untyped-decorator]
    def prefetch(numbers: Any, at: int) -> None:
        fetch(numbers, at)

    return prefetch


def _native_crc32(numba: Any) -> Any:
    """Return `crc32_of` as a compiled function: a call of the C function at an address."""
    from llvmlite import ir
    from numba.extending import intrinsic

    word = ir.IntType(64)

    @intrinsic  # type: ignore[untyped-decorator]
    def call(_: Any, address: Any, start: Any, size: Any) -> Any:
        # Both libraries' functions take and return 32 bits in places, in registers of 64: only the low ones count.
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            address, start, size = arguments
            function = builder.inttoptr(address, ir.FunctionType(word, [word] * 3).as_pointer())
            return builder.and_(builder.call(function, [word(0), start, size]), word(0xFFFFFFFF))

        return numba.int64(numba.int64, numba.int64, numba.int64), generate

    @numba.njit(**_OPTIONS)  # type: ignore[untyped-decorator]
    def crc32_of(address: int, raw: Any, start: int, size: int) -> Any:
        return call(address, raw.ctypes.data + start, size)

    return crc32_of


_BLOCK = 16  # bytes that processors copy at once


def _native_copy(numba: Any) -> Any:
    """Return `copy_bytes` as a compiled function: numba's own loop takes five times as long."""
    from llvmlite import ir
    from numba.extending import intrinsic

    byte, word = ir.IntType(8), ir.IntType(64)

    def copier(size: int | None) -> Any:
        """Return a function that copies `size` bytes from address to address; None: as many as it is told."""

        @intrinsic  # type: ignore[untyped-decorator]
        def copy(_: Any, out: Any, start: Any, length: Any) -> Any:
            def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
                *addresses, length = arguments
                places = [builder.inttoptr(address, byte.as_pointer()) for address in addresses]
                kinds = [place.type for place in places] + [word]
                function = builder.module.declare_intrinsic("llvm.memcpy", kinds)
                builder.call(function, [*places, length if size is None else word(size), ir.IntType(1)(0)])
                return context.get_dummy_value()

            return numba.void(numba.int64, numba.int64, numba.int64), generate

        return copy

    copy_many, copy_block = copier(None), copier(_BLOCK)

    @numba.njit(**_OPTIONS)  # type: ignore[untyped-decorator]
    def copy_bytes(raw: Any, start: int, end: int, out: Any, at: int) -> None:
        size = end - start
        if size > 0:
            raw[start], raw[end - 1], out[at], out[at + size - 1]  # checks the bounds, where numba is told to
        to, begin = out.ctypes.data + at, raw.ctypes.data + start
        if size <= 2 * _BLOCK and start + 2 * _BLOCK <= len(raw) and at + 2 * _BLOCK <= len(out):
            copy_block(to, begin, 0)
            copy_block(to + _BLOCK, begin + _BLOCK, 0)
        else:
            copy_many(to, begin, size)

    return copy_bytes
