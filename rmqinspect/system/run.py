"""Who ran this, where, when and with what: the object `run` that every document ends with.

    begin(...)      once, when a command starts: its words, what it reads and writes, whose case it is
    describe_run()  whenever a document is written: that, and host, user, versions, the tool's own digest

Two runs on the same files differ in `run` only: all that depends on the day, the machine or the person is in it, and
nothing that is a fact about the evidence. With `--redact` it names no host, no user and no path, and of the command
line the options without their values: a value may be a key that is looked for.

The digest of the tool is that of a list which coreutils can make, in the folder that holds the package:

    find -L rmqinspect -type f ! -path '*/__pycache__/*' | LC_ALL=C sort | xargs -d '\\n' sha256sum | sha256sum
"""

import os
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Annotated, Any, NamedTuple

from rmqinspect.document import Part, as_object, means
from rmqinspect.system import filesystem
from rmqinspect.system.uri import abspath, local_path, shown, without_secrets
from rmqinspect.text import name_text
from rmqinspect.times import format_micros, to_micros
from rmqinspect.version import tool_name

_PACKAGE = "rmqinspect"
_LIBRARIES = ("click", "construct", "duckdb", "msgspec", "numpy", "pyarrow", "pyspark", "rocksdict")
_MASK = "(hidden)"


class Run(Part, frozen=True, kw_only=True):
    """What may differ between two runs on the same files."""

    tool: Annotated[str, means("`rmqinspect` and its version")]
    python: Annotated[str, means("Python version")]
    arguments: Annotated[list[str], means("the words of the command line; with `--redact` the options alone")]
    started: Annotated[str, means("ISO 8601 in UTC")]
    ended: Annotated[str, means("ISO 8601 in UTC")]
    case: Annotated[str | None, means("`--case`")] = None
    examiner: Annotated[str | None, means("`--examiner`")] = None
    host: Annotated[str | None, means("name of the machine; null with `--redact`")] = None
    user: Annotated[str | None, means("name of the user, or the number without one; null with `--redact`")] = None
    system: Annotated[str | None, means("operating system, its release and the processor")] = None
    time_zone: Annotated[str | None, means("of the machine: offset and name. Times in a document are in UTC")] = None
    folder: Annotated[str | None, means("the folder it ran in; null with `--redact`")] = None
    stores: Annotated[tuple[str, ...], means("absolute paths of what was read; empty with `--redact`")] = ()
    outputs: Annotated[tuple[str, ...], means("absolute paths of what was written; empty with `--redact`")] = ()
    access_times: Annotated[
        str | None,
        means(
            "`kept`: all files were opened with O_NOATIME; `may have changed`: for some the system did not allow it; "
            "null: no local file was opened"
        ),
    ] = None
    libraries: Annotated[
        dict[str, Annotated[str, means("version of this library")]] | None, means("the main libraries that were loaded")
    ] = None
    loops: Annotated[str | None, means("`compiled`, or `uncompiled` and slow; null: no record was read")] = None
    tool_sha256: Annotated[str | None, means("SHA-256 of the list of the tool's own files and their digests")] = None


class _Begun(NamedTuple):
    """What a command knows when it starts."""

    started: datetime
    arguments: Sequence[str] = ()
    stores: Sequence[str] = ()
    outputs: Sequence[str] = ()
    case: str | None = None
    examiner: str | None = None
    redacted: bool = False


_begun = _Begun(datetime.now(UTC))  # for those who call from Python


def begin(
    stores: Sequence[str] = (),
    outputs: Sequence[str] = (),
    *,
    case: str | None = None,
    examiner: str | None = None,
    redacted: bool = False,
) -> None:
    """Note that a command starts that reads some paths and writes others; nothing is opened."""
    global _begun  # a process runs one command at a time; forked ones inherit it
    filesystem.opened.clear()
    words = tuple(sys.argv[1:])
    _begun = _Begun(datetime.now(UTC), words, tuple(stores), tuple(outputs), case, examiner, redacted)


def describe_run(stores: Sequence[str] | None = None, started: datetime | None = None, *, written: bool = True) -> Run:
    """Return the object `run`, with the time now as its end.

    `stores` are the paths that were read, and `started` is when that began, where a command reads one store of several.
    What is not `written` into a document has no digest of the tool and no versions, its own among them: they take as
    long as a small store.
    """
    import platform  # every command begins a run, and few describe one

    hidden = _begun.redacted
    paths = _begun.stores if stores is None else stores
    return Run(
        tool=tool_name() if written else _PACKAGE,
        python=platform.python_version(),
        arguments=[_masked(word) if hidden else name_text(without_secrets(word)) for word in _begun.arguments],
        started=format_micros(to_micros(started or _begun.started)),
        ended=format_micros(to_micros(datetime.now(UTC))),
        case=_begun.case,
        examiner=_begun.examiner,
        host=None if hidden else name_text(platform.node()),
        user=None if hidden else _user(),
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        time_zone=time.strftime("%z %Z"),
        folder=None if hidden else _absolute("."),
        stores=() if hidden else tuple(map(_absolute, paths)),
        outputs=() if hidden else tuple(map(_absolute, _begun.outputs)),
        access_times=filesystem.access_times(),
        libraries=dict(_versions()) if written else None,
        loops=_way_of_loops() if written else None,
        tool_sha256=tool_digest() if written else None,
    )


def with_run(document: dict[str, Any]) -> dict[str, Any]:
    """Return a document with `run` at its end."""
    return {**document, "run": as_object(describe_run())}


def _masked(word: str) -> str:
    """Return a word of the command line without what may be a value: `--key=K`, `-kK` and `K` hide K."""
    if not word.startswith("-") or word == "-":
        return _MASK
    name, equals, _ = word.partition("=") if word.startswith("--") else (word[:2], word[2:], "")
    return f"{name_text(name)}{_MASK if equals else ''}"


def _user() -> str:
    import pwd

    number = os.geteuid()
    try:
        return name_text(pwd.getpwuid(number).pw_name)
    except KeyError:  # as in a container that knows no names
        return str(number)


def _absolute(path: str) -> str:
    """Return the absolute path of a file or URI, without secrets; links stay what they are."""
    try:
        return shown(abspath(local_path(path)))
    except OSError:  # the folder we are in is gone
        return shown(path)


def _versions() -> Iterator[tuple[str, str]]:
    from importlib import metadata  # loads email and zipfile

    for name in _LIBRARIES:
        if name in sys.modules:
            try:
                yield name, metadata.version(name)
            except metadata.PackageNotFoundError:  # on the path, and not installed
                yield name, str(getattr(sys.modules[name], "__version__", "unknown"))


def _way_of_loops() -> str | None:
    """Return how the loops over bytes run, if this process has loaded any: the ground imports nothing above it."""
    loaded = f"{_PACKAGE}.loops.records" in sys.modules
    return sys.modules[f"{_PACKAGE}.loops"].way() if loaded else None


# --- the tool itself ------------------------------------------------------------------------------------


@cache
def tool_digest() -> str | None:
    """Return the digest of the tool's own files; None where it is not made of files."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if not os.path.isdir(package):
        return None
    import hashlib

    return hashlib.sha256(b"".join(_lines(package))).hexdigest()


def _lines(package: str) -> Iterator[bytes]:
    """Yield the lines that `sha256sum` prints of all files of the package, by name."""
    import hashlib

    names = []
    for folder, inside, files in os.walk(package, followlinks=True):
        inside[:] = [name for name in inside if name != "__pycache__"]
        names += [os.path.join(folder, name) for name in files]
    for path in sorted(names, key=os.fsencode):
        with open(path, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        yield f"{digest}  {_PACKAGE}{path[len(package) :]}\n".encode("utf-8", "surrogateescape")
