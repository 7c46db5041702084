"""Compiled kernels as files of machine code, loaded without numba.

numba takes half a second of CPU time to load what it compiled before, LLVM alone a twentieth: so the machine code of
a kernel is kept as an object file of our own, and llvmlite, the part of numba that holds LLVM, links and calls it.

    first run     numba compiles -> the function's LLVM code, without its Python wrappers -> object file
    later runs    object file -> linked by LLVM -> called through ctypes, which holds no lock

A function of numba takes a place for the result, one for an exception, and its arguments; of an array these are:
owner, Python object (both none here), items, bytes of an item, address, length and stride of each dimension. It returns
0 if all went well. What does not look like this, or needs any function but C's own, is not kept: numba calls it.

A file begins with the name of the function and a checksum of the rest; one that is damaged, or of another user
than this one and root, is as good as none. Its name says which LLVM and which processor it is for.
"""

import ctypes
import hashlib
import os
import re
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple

import numpy as np

_MAGIC = b"rmqinspect kernel 1"
_OF_PYTHON = ("_ZN7cpython", "cfunc.")  # how numba's names of wrappers begin


class Parameter(NamedTuple):
    """A parameter of a kernel: an int, or an array of a type and a number of dimensions."""

    dtype: np.dtype[Any] | None = None
    dimensions: int = 0
    written: bool = False

    @property
    def words(self) -> int:
        """Arguments of the compiled function."""
        return 5 + 2 * self.dimensions if self.dtype is not None else 1


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
        :raises RuntimeError: the function failed.
        """
        result, failure = ctypes.c_int64(), ctypes.c_void_p()
        words: list[int] = []
        for parameter, value in zip(self._parameters, arguments, strict=True):
            if parameter.dtype is None:
                words.append(_word(value))
            else:
                words += _array(parameter, value)
        if self._function(ctypes.addressof(result), ctypes.addressof(failure), *words):
            raise RuntimeError("a compiled loop failed")
        return result.value if self._has_result else None


def _word(value: Any) -> int:
    number = int(value)
    if not -(1 << 63) <= number < 1 << 63:
        raise OverflowError(f"{number} has more than 64 bits")
    return number


def _array(parameter: Parameter, value: Any) -> list[int]:
    flags = value.flags
    if value.dtype != parameter.dtype or value.ndim != parameter.dimensions or not flags.c_contiguous:
        raise TypeError(f"an array of {value.dtype} with {value.ndim} dimensions, where {parameter} is asked for")
    if parameter.written and not flags.writeable:
        raise TypeError("an array that cannot be written to")
    address = value.__array_interface__["data"][0]
    return [0, 0, value.size, value.itemsize, address, *value.shape, *value.strides]


# --- files --------------------------------------------------------------------------------------


def load(path: str, parameters: Sequence[Parameter], *, has_result: bool) -> Loaded | None:
    """Return the function that `save` kept at a path, None without one that can be used here."""
    with suppress(ImportError, OSError, RuntimeError, ValueError):
        path = _path_here(path)
        with open(path, "rb") as file:
            if os.fstat(file.fileno()).st_uid not in (os.geteuid(), 0):  # images are made by root
                return None
            magic, name, checksum, code = file.read().split(b"\n", 3)
        if magic != _MAGIC or checksum != _checksum(name, code):
            return None
        address = _engine().link(code, name.decode())
        return Loaded(address, parameters, has_result=has_result) if address else None
    return None


def save(path: str, llvm: str, name: str, parameters: Sequence[Parameter]) -> None:
    """Keep a function as an object file, if it can be used without numba.

    `llvm`: what numba compiled, as text, with the function `name` in it.

    :raises OSError: it cannot be written.
    """
    code = _without_wrappers(llvm)
    if not _stands_alone(code, name, parameters):
        return
    with suppress(RuntimeError):
        content = _engine().compile(code)
        head = b"\n".join((_MAGIC, name.encode(), _checksum(name.encode(), content), b""))
        _write(_path_here(path), head + content)


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


def _checksum(name: bytes, code: bytes) -> bytes:
    return hashlib.sha256(name + b"\n" + code).hexdigest().encode()


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
