"""Compile the loops of rmqinspect/loops beside their sources: `python install/compile_loops.py`.

Each loop is plain Python in a `.py` file, with the C types of its names in a `.pxd` file beside it. Cython makes C of
both, a C compiler makes an extension module of that, and Python takes the extension before the source of the same
name. Without it the source runs, with the same results and much slower.

The compiler is the first of these that compiles anything: CC, cc, gcc, clang; else the one in the package `ziglang`.
The headers of Python are those of `python-headers.tar.xz`, everywhere: Debian installs Python without them. They are
what `Python.h` includes for the limited API, from CPython 3.11.7, whose licence is beside them; `pyconfig.h` is ours.
So an extension is for every CPython from 3.11 on, and one wheel serves all. Measured against the full API: loops take
the same time, a call 0.4 µs more.

RMQINSPECT_LOOPS, for builds only: `checked` compiles with bounds checks, `uncompiled` does not compile.

The package is built with this by `install/backend.py`. `stale` says whether what lies beside the sources was made of
them: a test run asks for it.
"""

import ctypes
import hashlib
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "rmqinspect" / "loops"
HEADERS = Path(__file__).with_name("python-headers.tar.xz")
STAMP = FOLDER / "extensions.sha256"  # what the extensions beside the sources were made of

PACKAGE = "rmqinspect.loops"
MODULES = ("text", "records", "pointers")
SHARED = "shared"  # what Cython needs for arrays, once for all modules: half of the time and of the size

VARIABLE = "RMQINSPECT_LOOPS"
CHECKED, UNCOMPILED = "checked", "uncompiled"

SUFFIX = ".abi3.so"
LIMITED_API = "0x030B0000"  # 3.11, the first whose limited API has buffers

_CYTHON = [sys.executable, "-m", "cython", "-3"]
# Loops keep their indexes inside arrays themselves: tests run them with every index checked.
_DIRECTIVES = {
    "binding": False,
    "boundscheck": False,
    "wraparound": False,
    "initializedcheck": False,
    "annotation_typing": False,
}
# Sums wrap around, as Cython takes for granted. Warnings would be about C that nobody wrote.
_FLAGS = ("-fPIC", "-fwrapv", "-fvisibility=hidden", "-w", "-DNDEBUG", f"-DPy_LIMITED_API={LIMITED_API}")
_LINK = {"darwin": ("-bundle", "-undefined", "dynamic_lookup")}.get(sys.platform, ("-shared", "-s"))
# For any processor of this kind: by itself it compiles for the one it runs on.
_OF_ZIG = [sys.executable, "-m", "ziglang", "cc", "-mcpu=baseline"]


class NotCompiled(Exception):
    """The loops cannot be compiled here; the text says why."""


def mode() -> str:
    """Return how to build: `checked`, `uncompiled`, or nothing for the usual way.

    :raises ValueError: the variable has another word.
    """
    word = os.environ.get(VARIABLE, "")
    if word not in ("", CHECKED, UNCOMPILED):
        raise ValueError(f"{VARIABLE} is {word!r}; known are: {CHECKED}, {UNCOMPILED}")
    return word


def compiler_of_host() -> list[str] | None:
    """Return the command of a C compiler of this machine; None if there is none that makes a library."""
    named = shlex.split(os.environ.get("CC", ""))
    for command in ([named] if named else []) + [["cc"], ["gcc"], ["clang"]]:
        if _works(command):
            return command
    return None


def _works(command: Sequence[str]) -> bool:
    """Whether a compiler finds the headers of C, and a linker."""
    if shutil.which(command[0]) is None:
        return False
    with tempfile.TemporaryDirectory() as place:
        source = Path(place, "probe.c")
        source.write_text("#include <stdlib.h>\n#include <string.h>\nint probe(void) { return 0; }\n")
        words = [*command, "-fPIC", *_LINK, str(source), "-o", str(Path(place, "probe.so"))]
        return subprocess.run(words, capture_output=True, stdin=subprocess.DEVNULL).returncode == 0


def compile_loops(out: Path) -> list[str]:
    """Write an extension of each module into a folder, and return the compiler's command.

    :raises NotCompiled: that is not possible here, or not wanted. Nothing is left in the folder then.
    """
    if mode() == UNCOMPILED:
        raise NotCompiled(f"{VARIABLE} is {UNCOMPILED}")
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        raise NotCompiled("a Python without a global lock has no limited API")
    if importlib.util.find_spec("Cython") is None:
        raise NotCompiled("Cython is not installed")
    compiler = compiler_of_host()
    if compiler is None:
        if importlib.util.find_spec("ziglang") is None:
            raise NotCompiled("there is no C compiler, and ziglang is not installed")
        compiler = _OF_ZIG
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        with tarfile.open(HEADERS) as archive:
            # A filter is new in 3.11.4.
            archive.extraction_filter = getattr(tarfile, "data_filter", lambda member, path: member)
            archive.extractall(place / "include")
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            of_arrays = pool.submit(_compile_shared, compiler, place)
            _translate(place)
            made = [of_arrays.result(), *pool.map(lambda module: _compile(module, compiler, place), MODULES)]
        for file in made:
            shutil.copyfile(file, out / file.name)
    return compiler


def _translate(place: Path) -> None:
    """Write the C of all modules into a folder: in one process, which reads what Cython knows once."""
    directives = _DIRECTIVES | {"boundscheck": mode() == CHECKED}
    options = [word for name, value in directives.items() for word in ("-X", f"{name}={value}")]
    sources = [str(FOLDER / f"{module}.py") for module in MODULES]
    _run([*_CYTHON, *options, "--shared", f"{PACKAGE}.{SHARED}", "-o", str(place), *sources], place)


def _compile_shared(compiler: Sequence[str], place: Path) -> Path:
    """Return the extension of what Cython needs for arrays."""
    source = str(place / f"{SHARED}.c")
    _run([*_CYTHON, "--module-name", f"{PACKAGE}.{SHARED}", "--generate-shared", source], place)
    return _compile(SHARED, compiler, place)


def _compile(module: str, compiler: Sequence[str], place: Path) -> Path:
    """Return the extension that a C compiler makes of a module, in a folder with its C and Python's headers."""
    made = place / f"{module}{SUFFIX}"
    flags = [*_FLAGS, "-O1" if module == SHARED else "-O3"]
    if mode() == CHECKED:
        flags.append("-DRMQ_CHECK_BOUNDS=1")
    folders = [f"-I{place / 'include'}", f"-I{FOLDER}"]
    _run([*compiler, *flags, *folders, *_LINK, str(place / f"{module}.c"), "-o", str(made)], place)
    try:
        ctypes.CDLL(str(made), os.RTLD_NOW)
    except OSError as error:
        raise NotCompiled(f"what was compiled cannot be loaded: {error}") from error
    return made


def _run(words: Sequence[str], place: Path) -> None:
    # Zig keeps what it compiles: in the folder that is removed, not in the user's home.
    settings = os.environ | {"ZIG_GLOBAL_CACHE_DIR": str(place / "zig"), "ZIG_LOCAL_CACHE_DIR": str(place / "zig")}
    try:
        ended = subprocess.run(
            words,
            cwd=FOLDER.parents[1],  # where Cython looks for the types of modules
            env=settings,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
        )
    except OSError as error:
        raise NotCompiled(f"{words[0]}: {error}") from error
    if ended.returncode != 0:
        said = (ended.stderr or ended.stdout).strip()[-2000:]
        raise NotCompiled(f"{shlex.join(words)} failed:\n{said}")


# --- beside the sources ---------------------------------------------------------------------------------


def extensions() -> list[Path]:
    """Return the extensions that lie beside the sources."""
    return sorted(FOLDER.glob("*.so"))


def compile_in_place() -> str:
    """Compile the loops beside their sources unless that has been done; return what was done, for people.

    Where that is not possible no extension is left there: an old one would run in place of its source.
    """
    if way_of_extensions() == mode():
        return "the loops are compiled already"
    for old in (*extensions(), STAMP):
        old.unlink(missing_ok=True)
    done = compile_or_say(FOLDER)
    if extensions():
        STAMP.write_text(_digest(mode()))
    return done


def compile_or_say(out: Path) -> str:
    """Write an extension of each module into a folder, or none where that is not possible; return what was done."""
    try:
        compiler = compile_loops(out)
    except (NotCompiled, OSError) as reason:  # a full disk, too
        return f"the loops are NOT compiled, and run as Python: {reason}"
    return f"the loops are compiled by: {shlex.join(compiler)}{', with bounds checks' if mode() == CHECKED else ''}"


def stale() -> bool:
    """Whether extensions lie beside the sources that were made of others."""
    return bool(extensions()) and way_of_extensions() is None


def way_of_extensions() -> str | None:
    """Return how the extensions beside the sources were compiled: a word of `mode`; None if not of these sources."""
    wanted = {f"{module}{SUFFIX}" for module in (SHARED, *MODULES)}
    if {file.name for file in extensions()} != wanted or not STAMP.exists():
        return None
    known = STAMP.read_text()
    return next((way for way in ("", CHECKED) if known == _digest(way)), None)


def _digest(way: str) -> str:
    """Return the digest of all that decides what an extension is, but for the compilers."""
    found = hashlib.sha256(f"{way} {sysconfig.get_platform()}".encode())
    for file in (Path(__file__), HEADERS, *sorted(FOLDER.glob("*.[ph]*"))):
        found.update(f"{file.name} {file.stat().st_size}\n".encode() + file.read_bytes())
    return found.hexdigest()


if __name__ == "__main__":
    print(compile_in_place())
    sys.exit(0 if extensions() else 1)
