"""Compiling kernels with numba, which nothing else imports, and the cache of what was compiled.

A kernel is compiled as a copy of its function, in which each inlined function that it calls is compiled, too. The copy
is kept as machine code under a hash of all it follows from: instructions, constants, types, and
the same of what it calls.

The cache is in NUMBA_CACHE_DIR, else in `rmqinspect` in XDG_CACHE_HOME (~/.cache). A folder that can only be read is
read; where nothing can be kept, each process compiles for itself. What lies there is executed, so a folder that
others may write to is not used; and nothing is ever written into evidence, so one inside a store is not, either.

Its files are loaded without numba, which takes a third of a second of CPU time to load what it compiled before
(measured: `info` of a sample 0.92 s with numba's own cache, 0.58 s with this one), LLVM alone a twentieth. numba's
cache also executes pickled files, and asks for no owner, link or size. So the machine code of a kernel is kept as an
object file of our own, and llvmlite, the part of numba that holds LLVM, links and calls it.

    first run     numba compiles -> the function's LLVM code, without its Python wrappers -> object file
    later runs    object file -> linked by LLVM -> called through ctypes, which holds no lock

A function of numba takes a place for the result, one for an exception, and its arguments; of an array these are:
owner, Python object (both none here), items, bytes of an item, address, length and stride of each dimension. It returns
0 if all went well. What does not look like this, or needs any function but C's own, is not kept: numba calls it.

A file begins with its own name, which says what it was compiled from, for which LLVM and which processor; the types of
its parameters; the name of the function; and a checksum of all. One that is damaged, was renamed, is no regular
file, or that another user than this one and root may have written, is as good as none: it is never linked.
"""

import ctypes
import hashlib
import os
import re
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, cached_property
from types import CodeType, FunctionType, ModuleType
from typing import Annotated, Any, NamedTuple, get_args, get_origin

import numpy as np

from rmqinspect.schemas import ROOT_FOLDERS
from rmqinspect.system import filesystem

MAGIC = "rmqinspect kernel 2"
_MOST = 4 << 20  # bytes of a file; the largest kernel takes a twentieth
_OF_PYTHON = ("_ZN7cpython", "cfunc.")  # how numba's names of wrappers begin


class Parameter(NamedTuple):
    """A parameter of a kernel: an int, or an array of a type and a number of dimensions."""

    dtype: np.dtype[Any] | None = None
    dimensions: int = 0
    written: bool = False

    @classmethod
    def of(cls, hint: Any) -> "Parameter":
        """Return what an annotation says."""
        if hint is int:
            return cls()
        array, *notes = get_args(hint) if get_origin(hint) is Annotated else (hint,)
        dtype = np.dtype(get_args(get_args(array)[1])[0])
        return cls(dtype, 2 if "two dimensions" in notes else 1, "written" in notes)

    def type_for(self, numba: Any) -> Any:
        """Return its type for numba."""
        if self.dtype is None:
            return numba.int64
        return numba.types.Array(numba.from_dtype(self.dtype), self.dimensions, "C", readonly=not self.written)

    @property
    def words(self) -> int:
        """Arguments of the compiled function."""
        return 5 + 2 * self.dimensions if self.dtype is not None else 1

    def words_of(self, value: Any) -> list[int]:
        """Return those arguments.

        :raises TypeError: an array is of another type.
        """
        if self.dtype is None:
            number = int(value)
            if not -(1 << 63) <= number < 1 << 63:
                raise OverflowError(f"{number} has more than 64 bits")
            return [number]
        flags = value.flags
        if value.dtype != self.dtype or value.ndim != self.dimensions or not flags.c_contiguous:
            raise TypeError(f"an array of {value.dtype} with {value.ndim} dimensions, where {self} is asked for")
        if self.written and not flags.writeable:
            raise TypeError("an array that cannot be written to")
        address = value.__array_interface__["data"][0]
        return [0, 0, value.size, value.itemsize, address, *value.shape, *value.strides]


class Loaded:
    """A compiled function; its arguments are checked, since machine code trusts them."""

    def __init__(self, address: int, parameters: Sequence[Parameter], *, has_result: bool) -> None:
        words = [ctypes.c_int64] * sum(parameter.words for parameter in parameters)
        self._function = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, *words)(address)
        self._parameters = tuple(parameters)
        self._has_result = has_result

    def __call__(self, *arguments: Any) -> int | None:
        """Call the function.

        :raises TypeError: an array is not of the type of its parameter.
        :raises RuntimeError: the function failed; with NUMBA_BOUNDSCHECK, an index is outside of its array.
        """
        result, failure = ctypes.c_int64(), ctypes.c_void_p()
        words: list[int] = []
        for parameter, value in zip(self._parameters, arguments, strict=True):
            words += parameter.words_of(value)
        if self._function(ctypes.addressof(result), ctypes.addressof(failure), *words):
            raise RuntimeError("a compiled loop failed")
        return result.value if self._has_result else None


# --- files --------------------------------------------------------------------------------------


def load(path: str, parameters: Sequence[Parameter], *, has_result: bool) -> Loaded | None:
    """Return the function that `save` kept at a path, None without one that can be used here."""
    with suppress(ImportError, OSError, RuntimeError, ValueError):
        path = _path_here(path)
        head, name, checksum, code = _read(path).split(b"\n", 3)
        if head != _head(path, parameters, has_result=has_result) or checksum != _checksum(head, name, code):
            return None
        address = _engine().link(code, name.decode())
        return Loaded(address, parameters, has_result=has_result) if address else None
    return None


def save(path: str, llvm: str, name: str, parameters: Sequence[Parameter], *, has_result: bool) -> None:
    """Keep a function as an object file, if it can be used without numba.

    `llvm`: what numba compiled, as text, with the function `name` in it.

    :raises OSError: it cannot be written.
    """
    code = _without_wrappers(llvm)
    if not _stands_alone(code, name, parameters):
        return
    with suppress(RuntimeError):
        content, path = _engine().compile(code), _path_here(path)
        head = _head(path, parameters, has_result=has_result)
        _write(path, b"\n".join((head, name.encode(), _checksum(head, name.encode(), content), content)))


def _head(path: str, parameters: Sequence[Parameter], *, has_result: bool) -> bytes:
    """Return the first line of a file: what it is, its name, and what the function takes and returns."""
    kinds = (
        f"{one.dtype}{one.dimensions}{'w' * one.written}" if one.dtype is not None else "int" for one in parameters
    )
    return f"{MAGIC} {os.path.basename(path)} ({', '.join(kinds)}){' -> int' * has_result}".encode()


def _read(path: str) -> bytes:
    """Return a file of the cache.

    :raises OSError: there is none; it is a link.
    :raises ValueError: it is no regular file, too large, or others may have written it.
    """
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        status = os.fstat(file.fileno())
        own = status.st_uid in (os.geteuid(), 0) and not status.st_mode & 0o022  # images are made by root
        if not stat.S_ISREG(status.st_mode) or not own or status.st_size > _MOST:
            raise ValueError(path)
        return file.read(_MOST)


def _write(path: str, content: bytes) -> None:
    """Write a file: another process sees all of it or nothing, and a failure leaves nothing behind."""
    number, name = tempfile.mkstemp(dir=os.path.dirname(path))
    try:
        with open(number, "wb") as file:
            file.write(content)
        os.replace(name, path)
    except BaseException:  # also where Ctrl-C comes in between
        with suppress(OSError):
            os.unlink(name)
        raise


def _checksum(head: bytes, name: bytes, code: bytes) -> bytes:
    return hashlib.sha256(b"\n".join((head, name, code))).hexdigest().encode()


def _path_here(path: str) -> str:
    return f"{path}.{_engine().identity}.o"


def _without_wrappers(llvm: str) -> str:
    """Return LLVM code without the functions by which Python and C call the others."""
    return "".join(part for part in _parts(llvm) if not _name_of(part).startswith(_OF_PYTHON))


def _parts(llvm: str) -> list[str]:
    """Return the definitions of functions, and what is between them."""
    return re.split(r"(?m)^(?=define )|(?<=^}\n)", llvm)


def _name_of(definition: str) -> str:
    found = re.match(r'define .*?@(?:"([^"]+)"|([\w.$]+))\(', definition)
    return (found[1] or found[2]) if found else ""


def _stands_alone(code: str, name: str, parameters: Sequence[Parameter]) -> bool:
    """Whether code has the function, with the arguments that it is given, and needs nothing from elsewhere."""
    parts = [part for part in _parts(code) if part.startswith("define ")]
    head = next((part.partition("\n")[0] for part in parts if _name_of(part) == name), "")
    if len(re.findall(r"%arg\.", head)) != sum(parameter.words for parameter in parameters):
        return False
    outside = re.findall(r"(?m)^declare .*@([\w.$]+)\(", code) + re.findall(r"(?m)^@([\w.$]+) = external ", code)
    names = [one for one in outside if not one.startswith("llvm.")]
    return not any(f"@{one}" in part for one in names for part in parts)


# --- LLVM ---------------------------------------------------------------------------------------


class _Engine:
    """LLVM in this process: makes and links machine code for this processor."""

    def __init__(self) -> None:
        import llvmlite
        from llvmlite import binding

        with suppress(RuntimeError, DeprecationWarning):  # needed by older releases, refused by newer ones
            binding.initialize()
        binding.initialize_native_target()
        binding.initialize_native_asmprinter()
        self._binding = binding
        # numba's own variables: an image is made for any processor.
        processor = os.environ.get("NUMBA_CPU_NAME") or binding.get_host_cpu_name()
        features = "" if processor == "generic" else binding.get_host_cpu_features().flatten()
        features = os.environ.get("NUMBA_CPU_FEATURES", features)
        # As numba has it. On x86 LLVM links code that is relative to its own place wrongly once there are several.
        relocation = "static" if binding.get_default_triple().startswith("x86") else "default"
        self._machine = binding.Target.from_default_triple().create_target_machine(
            cpu=processor, features=features, opt=3, reloc=relocation, codemodel="jitdefault", jit=True
        )
        self._linker = binding.create_mcjit_compiler(binding.parse_assembly(""), self._machine)
        kind = f"{relocation} {llvmlite.__version__} {binding.llvm_version_info} {processor} {features}"
        self.identity = hashlib.sha256(kind.encode()).hexdigest()[:12]

    def compile(self, llvm: str) -> bytes:
        code: bytes = self._machine.emit_object(self._binding.parse_assembly(llvm))
        return code

    def link(self, code: bytes, name: str) -> int:
        self._linker.add_object_file(self._binding.ObjectFileRef.from_data(code))
        self._linker.finalize_object()
        address: int = self._linker.get_function_address(name)
        return address


_engine: Callable[[], _Engine] = cache(_Engine)


MODE = "RMQINSPECT_COMPILE"
MODES = ("auto", "always", "never")
BOUNDS = "NUMBA_BOUNDSCHECK"  # numba's own: each index is compared with its array

# numba counts references to arrays by default: 20 ns in every call of an inlined function, more than most of them do.
OPTIONS = {"nogil": True, "_nrt": False}

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

    def __init__(self, inlined: Mapping[FunctionType, Native | FunctionType]) -> None:
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
    def _folder(self) -> tuple[str | None, str]:
        return _cache_folder(os.environ.get("NUMBA_CACHE_DIR", ""))

    def wanted(self) -> bool:
        pays = self.spent > _WORTH or self.expected >= LARGE
        return self.mode == "always" or (self.mode == "auto" and pays)

    def compile(self, function: FunctionType) -> Any:
        if (os.environ.get("NUMBA_DISABLE_JIT") or "0") != "0":
            self._give_up("NUMBA_DISABLE_JIT is set")
            return None
        place = self._place(function)
        parameters = [Parameter.of(hint) for name, hint in function.__annotations__.items() if name != "return"]
        has_result = function.__annotations__["return"] is not None
        if place is not None and (loaded := load(place, parameters, has_result=has_result)) is not None:
            return loaded
        if self._numba is None and not self._load():
            return None

        began = time.monotonic()
        timer = threading.Timer(max(0.0, PATIENCE - self._slow), self._tell)
        timer.daemon = True
        timer.start()
        try:
            native = self._jit(function, parameters)
        finally:
            timer.cancel()
            self._slow += time.monotonic() - began

        if place is not None and native is not None:
            ((signature, code),) = native.inspect_llvm().items()
            name = native.overloads[signature].fndesc.llvm_func_name
            try:
                save(place, code, name, parameters, has_result=has_result)
            except OSError as error:
                self._keep_none(f"{os.path.dirname(place)}: {error.strerror}")
        return native

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
        return True

    def _keep_none(self, why: str) -> None:
        remark = f"compiled loops are not kept, each run compiles them: {why}"
        if remark not in self.remarks:
            self.remarks.append(remark)

    def _jit(self, function: FunctionType, parameters: list[Parameter]) -> Any:
        numba = self._numba
        assert numba is not None
        arguments = tuple(parameter.type_for(numba) for parameter in parameters)
        try:
            return self._copy_of(function, numba.njit([arguments], **OPTIONS))
        except Exception as error:  # noqa: BLE001  its compiler, and LLVM below it, raise errors of any kind
            self._give_up(f"{function.__name__}: {type(error).__name__}: {error}")
            return None

    def _place(self, function: FunctionType) -> str | None:
        """Return where in the cache a function is, without the ending: one place per content. None without a cache."""
        folder, why = self._folder
        if folder is not None and _is_evidence(folder):  # asked each time: another store may have been opened
            folder, why = None, f"{folder} lies in a store, where nothing is ever written"
        if folder is None:
            self._keep_none(why)
            return None
        content = [
            os.environ.get(BOUNDS, ""),
            MAGIC,  # releases side by side would write over each other's files in every run
            repr(OPTIONS),
            *(part for way in (Compiling._native_of, Compiling._jit) for part in _code_of(way.__code__)),
            *self._content(function),
        ]
        digest = hashlib.sha256("\n".join(content).encode()).hexdigest()[:16]
        return os.path.join(folder, digest)

    def _copy_of(self, function: FunctionType, jit: Callable[..., Any]) -> Any:
        """Return a compiled copy of a function, whose globals are compiled where it calls them."""
        names = {"__name__": function.__module__, "__builtins__": function.__globals__["__builtins__"]}
        for name, value in _globals_of(function):
            names[name] = self._native_of(value) if isinstance(value, FunctionType) else value
        return jit(FunctionType(function.__code__, names, function.__name__, function.__defaults__))

    def _native_of(self, function: FunctionType) -> Any:
        """Return the compiled twin of an inlined function."""
        assert self._numba is not None
        if function not in self._natives:
            twin = self._twin_of(function)
            if isinstance(twin, Native):
                self._natives[function] = twin.make(self._numba)
            else:
                self._natives[function] = self._copy_of(twin, self._numba.njit(inline="always", **OPTIONS))
        return self._natives[function]

    def _twin_of(self, function: FunctionType) -> Native | FunctionType:
        """Return what is compiled where an inlined function is called: mostly itself."""
        twin = self._inlined[function]
        return function if isinstance(twin, Native) and os.environ.get(BOUNDS) and not twin.keeps_bounds else twin

    def _content(self, function: FunctionType) -> Iterator[str]:
        """Yield everything that the compiled code of a function follows from."""
        yield from _code_of(function.__code__)
        yield repr(function.__annotations__)
        for name, value in _globals_of(function):
            yield name
            if not isinstance(value, FunctionType):
                yield repr(value)
                continue
            twin = self._twin_of(value)
            if isinstance(twin, Native):
                yield from _code_of(getattr(twin.make, "func", twin.make).__code__)
                yield repr(getattr(twin.make, "keywords", ""))
            else:
                yield from self._content(twin)


def _globals_of(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield the globals that a function uses: constants and inlined functions."""
    for name in sorted(set(function.__code__.co_names)):
        if name in function.__globals__:
            yield name, function.__globals__[name]


def _code_of(code: CodeType) -> Iterator[str]:
    yield code.co_code.hex()
    for constant in code.co_consts:
        yield from _code_of(constant) if isinstance(constant, CodeType) else [repr(constant)]


def _cache_folder(given: str) -> tuple[str | None, str]:
    """Return the folder of the cache, made where it is missing; None where there is none, and why."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    folder = given or os.path.join(home, "rmqinspect")
    # A user without a home has it at "~", a folder below the current one, which may be a store.
    if not given and not os.path.isabs(folder):
        return None, "no folder for them in NUMBA_CACHE_DIR, XDG_CACHE_HOME or ~/.cache"
    folder = os.path.realpath(folder)  # checked and used: no link leads elsewhere later
    if _is_evidence(folder):
        return None, f"{folder} lies in a store, where nothing is ever written"
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        open_to = next((place for place in _upwards(folder) if _others_may_write(place)), None)
    except OSError as error:
        return None, f"{folder}: {error.strerror}"
    return (folder, "") if open_to is None else (None, f"others may write to {open_to}")


def _upwards(folder: str) -> Iterator[str]:
    """Yield a folder and all folders above it."""
    yield folder
    while (above := os.path.dirname(folder)) != folder:
        yield (folder := above)


def _is_evidence(folder: str) -> bool:
    """Whether a folder lies in a store, one that was opened or any other."""
    return any(
        place in filesystem.evidence or any(os.path.isdir(os.path.join(place, name)) for name in ROOT_FOLDERS)
        for place in _upwards(folder)
    )


def _others_may_write(folder: str) -> bool:
    """Whether anybody but this user and root may put other files into a folder, or exchange those that it has."""
    status = os.stat(folder)
    if status.st_uid not in (os.geteuid(), 0):
        return True
    return bool(status.st_mode & 0o022) and not status.st_mode & stat.S_ISVTX  # as /tmp: each removes only their own
