"""Compiling kernels with numba, which nothing else imports, and the cache of what was compiled.

A kernel is compiled as a copy of its function, in which each inlined function that it calls is compiled, too. The copy
is kept as machine code (`codec.machine_code`) under a hash of all it follows from: instructions, constants, types, and
the same of what it calls.

The cache is in NUMBA_CACHE_DIR, else in `rmqinspect` in XDG_CACHE_HOME (~/.cache). A folder that can only be read is
read; where nothing can be kept, each process compiles for itself.
"""

import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from types import CodeType, FunctionType, ModuleType
from typing import Annotated, Any, NamedTuple, get_args, get_origin

import numpy as np

from rmqinspect.codec import machine_code, natives

MODE = "RMQINSPECT_COMPILE"
MODES = ("auto", "always", "never")
BOUNDS = "NUMBA_BOUNDSCHECK"  # numba's own: each index is compared with its array

# Seconds of CPU time in uncompiled kernels after which compiled ones pay.
_WORTH = 0.1
LARGE = 12 << 20  # bytes of records for which they pay in any case
PATIENCE = 1.0  # seconds of compiling without a word


class Native(NamedTuple):
    """The compiled twin of an inlined function, where it is not numba's."""

    make: Callable[[Any], Any]  # given the module numba
    keeps_bounds: bool = True  # tests its indexes if numba is told to, or has none


class Compiling:
    """Whether and how this process compiles."""

    def __init__(self, inlined: Mapping[FunctionType, Native | None]) -> None:
        """Take the functions that kernels may call."""
        self._inlined = inlined
        self._natives: dict[FunctionType, Any] = {}
        mode = os.environ.get(MODE) or "auto"
        self.mode = mode if mode in MODES else "auto"
        self.spent = 0.0  # CPU seconds in uncompiled kernels
        self.expected = 0  # bytes
        self.remarks = [] if mode in MODES else [f"{MODE} is {mode!r}, none of {', '.join(MODES)}: taken as auto"]
        self.say: Callable[[str], None] | None = None
        self._numba: ModuleType | None = None
        self._slow = 0.0  # seconds of compiling so far; infinite when it was said

    @cached_property
    def _folder(self) -> str | None:
        return _cache_folder(os.environ.get("NUMBA_CACHE_DIR", ""))

    def wanted(self) -> bool:
        pays = self.spent > _WORTH or self.expected >= LARGE
        return self.mode == "always" or (self.mode == "auto" and pays)

    def compile(self, function: FunctionType) -> Any:
        if (os.environ.get("NUMBA_DISABLE_JIT") or "0") != "0":
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
            try:
                machine_code.save(kept, code, native.overloads[signature].fndesc.llvm_func_name, parameters)
            except OSError as error:
                self._keep_none(f"{self._folder}: {error.strerror}")
        return native

    def _jit_slowly(self, function: FunctionType, parameters: list[machine_code.Parameter], place: str | None) -> Any:
        """Compile a function, and say so if that takes long."""
        began = time.monotonic()
        timer = threading.Timer(max(0.0, PATIENCE - self._slow), self._tell)
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
            import numba.extending
        except Exception as error:  # noqa: BLE001  whatever a broken installation raises, the result is the same
            self._give_up(f"numba cannot be used: {error}")
            return False
        self._numba = numba
        if self._folder is None:
            self._keep_none("no folder for them in NUMBA_CACHE_DIR, XDG_CACHE_HOME or ~/.cache")
        return True

    def _keep_none(self, why: str) -> None:
        remark = f"compiled loops are not kept, each run compiles them: {why}"
        if remark not in self.remarks:
            self.remarks.append(remark)

    def _jit(self, function: FunctionType, parameters: list[machine_code.Parameter], place: str | None) -> Any:
        numba = self._numba
        assert numba is not None
        arguments = tuple(_type_of(numba, parameter) for parameter in parameters)
        # What is to become an object file must come from numba, not from its cache.
        marker = _marker(place, function) if place is not None and os.environ.get(BOUNDS) else None
        if marker is not None:
            # Reading and writing a cache may fail in any way: a full disk, a truncated file, another user's file.
            with suppress(Exception):
                return self._with_globals(numba.njit([arguments], cache=True, **natives.OPTIONS), function, marker)
        try:
            return self._with_globals(
                numba.njit([arguments], **natives.OPTIONS), function, function.__code__.co_filename
            )
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
        content = [
            bounds,
            repr(natives.OPTIONS),
            *(part for way in (Compiling._native_of, Compiling._jit) for part in _code_of(way.__code__)),
            *self._content(function),
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
        """Return the compiled twin of an inlined function."""
        assert self._numba is not None
        if function not in self._natives:
            make = self._maker_of(function)
            if make is None:
                jit = self._numba.njit(inline="always", **natives.OPTIONS)
                self._natives[function] = self._with_globals(jit, function, function.__code__.co_filename)
            else:
                self._natives[function] = make(self._numba)
        return self._natives[function]

    def _maker_of(self, function: FunctionType) -> Callable[[Any], Any] | None:
        """Return what makes the twin of an inlined function, None where its source does."""
        native = self._inlined[function]
        return None if native is None or (os.environ.get(BOUNDS) and not native.keeps_bounds) else native.make

    def _content(self, function: FunctionType) -> Iterator[str]:
        """Yield everything that the compiled code of a function follows from."""
        yield from _code_of(function.__code__)
        yield repr(function.__annotations__)
        for name, value in _globals_of(function):
            yield name
            if not isinstance(value, FunctionType):
                yield repr(value)
                continue
            yield from self._content(value)
            make = self._maker_of(value)
            yield from _code_of(getattr(make, "func", make).__code__) if make is not None else ()


def _globals_of(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield the globals that a function uses: constants and inlined functions."""
    for name in sorted(set(function.__code__.co_names)):
        if name in function.__globals__:
            yield name, function.__globals__[name]


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
