"""Remote files through pyarrow.fs, with the types and errors of local files.

A URI is `scheme://place/path?options`. As in the cloud vendors' tools, the path is not decoded: an
object's key is written as it is, also for a consume queue of the topic `%RETRY%group`.

Arrow's calls block in C++, where Ctrl-C cannot interrupt them. Each runs in its own thread, and the
caller waits for it in Python (`start`, `result_of`).
"""

import errno
import os
import re
import stat as modes
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import lru_cache
from threading import Thread, local
from typing import Any, NamedTuple, TypeVar
from urllib.parse import parse_qsl, unquote

import pyarrow as pa
from msgspec import Struct
from pyarrow import fs

from rmqinspect.errors import NotAStore, Unreachable
from rmqinspect.system import hdfs
from rmqinspect.system import remote_errors as errors
from rmqinspect.system import workers as stopping
from rmqinspect.system.uri import join, misshapen, shown

Answer = TypeVar("Answer")

# Spark's scheme → Arrow's.
_SCHEMES = {"s3a": "s3", "s3n": "s3"}
_AZURE = ("abfs", "abfss")
_PARTS = re.compile(r"(?P<scheme>[^:/]+)://(?P<place>[^/?]*)(?P<path>/.*?)?(?:\?(?P<options>[^?]*))?", re.DOTALL)

# Timeouts: a dead service is reported within half a minute, by its library if that is in time: it knows why.
_CONNECT_TIMEOUT = 5.0  # seconds
_REQUEST_TIMEOUT = 8.0  # seconds without a byte
_ATTEMPTS = 3
_RETRY_LIMIT = 10  # seconds, Google Cloud Storage; its last attempt begins up to 10 seconds later
_FIRST_PATIENCE = 22.0  # seconds for a service's first answer, unless the URI has limits of its own
_OWN_LIMITS = ("connect_timeout", "request_timeout", "max_attempts", "retry_limit_seconds")
# Limit per call: some file systems have no timeouts, and a slow trickle of bytes resets them.
_PATIENCE = 300.0  # seconds
_GOOGLE_PATIENCE = 28.0  # seconds; its library waits two minutes for the next byte, and has no option for it here


class Location(NamedTuple):
    """A file system, and a path on it."""

    filesystem: Any  # pyarrow.fs.FileSystem
    path: str  # for an object store: bucket and key


def open_remote(uri: str) -> Location:
    """Return the location of a URI; each file system is opened once per process.

    :raises NotAStore: malformed, an unknown file system, or an unknown option.
    :raises Unreachable: the remote file system does not answer.
    """
    parts = _PARTS.fullmatch(uri)
    if parts is None or not (parts["place"] or parts["path"]):
        raise NotAStore(f"{shown(uri)}: a URI without a place or a path")
    if ":" in parts["place"] and "@" not in parts["place"] and "@" in (parts["path"] or ""):
        raise NotAStore(f"{shown(uri)}: a slash in a key or a password must be written %2F")
    if why := misshapen(parts["scheme"], parts["place"], parts["path"] or ""):
        raise NotAStore(f"{shown(uri)}: {why}")
    scheme = parts["scheme"].lower()
    filesystem, base = _open(_SCHEMES.get(scheme, scheme), parts["place"], parts["options"] or "")
    path = (parts["path"] or "").strip("/")
    base = base.rstrip("/")
    if scheme in _AZURE and not base:  # the container is in the path
        return Location(filesystem, path)
    return Location(filesystem, f"{base}/{path}" if path or not base else base)


@lru_cache
def _open(scheme: str, place: str, options: str) -> tuple[Any, str]:
    head = f"{scheme}://{place}"
    if scheme == "s3":
        return result_of(start(_open_s3, place, options), head, patience=_patience(head, options))
    if scheme in hdfs.SCHEMES:
        if lack := hdfs.missing():
            raise NotAStore(f"{shown(head)}: Hadoop's client is not complete here: {lack}")
        if not place and scheme == "hdfs" and not hdfs.has_default():
            raise NotAStore(f"{shown(head)}: no host, and no fs.defaultFS in a core-site.xml of CLASSPATH")
        hdfs.prepare()
    if scheme in ("gs", "gcs") and "retry_limit_seconds" not in options:
        options = "&".join(filter(None, (options, f"retry_limit_seconds={_RETRY_LIMIT}")))
    try:
        opening = start(fs.FileSystem.from_uri, f"{head}/?{options}" if options else f"{head}/")
        patience = _patience(head, options)
        answer: tuple[Any, str] = opening.result(patience)
    except TimeoutError as error:
        raise Unreachable(f"{shown(head)}: {errors.no_answer(patience)}") from error
    except OSError as error:
        raise Unreachable(f"{shown(head)}: {errors.one_line(error)}") from error
    except pa.ArrowException as error:
        raise NotAStore(f"{shown(head)}: {errors.one_line(error)}") from error
    return answer


# Options of Arrow's S3 URIs, and the timeouts, which Arrow takes as arguments only.
_S3_OPTIONS: dict[str, Callable[[str], Any]] = {
    "region": str,
    "scheme": str,
    "endpoint_override": str,
    "tls_ca_file_path": str,
    "anonymous": lambda word: word.lower() == "true",
    "force_virtual_addressing": lambda word: word.lower() == "true",
    "connect_timeout": float,
    "request_timeout": float,
    "max_attempts": int,
}


def _open_s3(place: str, query: str) -> tuple[Any, str]:
    """Open `s3://place?query`. Credentials come from the URI, else from the environment.

    Source: Arrow's S3Options::FromUri, which has no timeouts.
    """
    credentials, _, bucket = place.rpartition("@")
    options: dict[str, Any] = {"connect_timeout": _CONNECT_TIMEOUT, "request_timeout": _REQUEST_TIMEOUT}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name not in _S3_OPTIONS:
            raise NotAStore(f"s3://{bucket}: no such option: {name}; there are {', '.join(_S3_OPTIONS)}")
        try:
            options[name] = _S3_OPTIONS[name](value)
        except ValueError as error:
            raise NotAStore(f"s3://{bucket}: {name}={value} is not a number") from error
    if credentials:
        options["access_key"], _, options["secret_key"] = map(unquote, credentials.partition(":"))
    variables = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
    endpoint = options.get("endpoint_override") or next(filter(None, map(os.environ.get, variables)), "")
    if endpoint:
        scheme, _, host = endpoint.rpartition("://")
        options["endpoint_override"] = host.rstrip("/")
        options |= {"scheme": scheme} if scheme else {}
    if not options.get("region") and not any(map(os.environ.get, ("AWS_REGION", "AWS_DEFAULT_REGION"))):
        # Services other than Amazon's have no regions, but a signature needs one.
        options["region"] = "us-east-1" if endpoint else fs.resolve_s3_region(bucket)
    strategy = fs.AwsStandardS3RetryStrategy(max_attempts=options.pop("max_attempts", _ATTEMPTS))
    return fs.S3FileSystem(retry_strategy=strategy, **options), bucket


# --- calls -----------------------------------------------------------------------------------------


def start(function: Callable[..., Answer], *arguments: Any) -> "Future[Answer]":
    """Call a function in a thread of its own, which ends with the call."""
    future: Future[Answer] = Future()

    def work() -> None:
        try:
            future.set_result(function(*arguments))
        except BaseException as error:  # noqa: BLE001 raised again by result_of
            future.set_exception(error)

    Thread(target=work, name="remote", daemon=True).start()
    return future


def result_of(
    future: "Future[Answer]", uri: str, offset: int | None = None, patience: float | None = _PATIENCE
) -> Answer:
    """Return the result of a call to Arrow; waits `patience` seconds, None for no limit.

    :raises OSError: no such file, or access denied; as for a local file.
    :raises Unreachable: any other error; the message has file and offset.
    :raises Stopped: nobody waits for what this thread reads or writes.
    """
    if uri.startswith(errors.GOOGLE) and not _has_own_limits(uri):
        patience = _GOOGLE_PATIENCE if patience is None else min(patience, _GOOGLE_PATIENCE)
    stopping.wait_for(future, patience)
    try:
        return future.result(0)
    except (OSError, pa.ArrowException) as error:
        if found := errors.of_one_file(error):
            raise found from error
        words = errors.one_line(error) if future.done() else errors.no_answer(patience)
        where = "" if offset is None else f" at {offset} ({offset:#x})"
        raise Unreachable(f"{shown(uri)}{where}: {words}{errors.without_credentials(uri)}") from error


def _ask(uri: str, function: Callable[..., Answer], *arguments: Any) -> Answer:
    future = start(function, *arguments)
    try:
        answer = result_of(future, uri, patience=_patience(uri, uri))
    except OSError:
        _awaited[_place(uri)] = float("inf")  # an answer, too
        raise
    _awaited[_place(uri)] = float("inf")
    return answer


_awaited: dict[str, float] = {}  # place of a URI -> until when its service is given time for the first answer


def _patience(uri: str, options: str) -> float:
    """Return how long a call is waited for: all until a service's first answer together have `_FIRST_PATIENCE`."""
    if _has_own_limits(options):
        return _PATIENCE
    now = time.monotonic()
    return min(_PATIENCE, max(0.0, _awaited.setdefault(_place(uri), now + _FIRST_PATIENCE) - now))


def _has_own_limits(options: str) -> bool:
    return any(f"{name}=" in options for name in _OWN_LIMITS)


def _place(uri: str) -> str:
    return uri.split("/", 3)[2]


# --- files and folders -----------------------------------------------------------------------------


class Entry(Struct, frozen=True):
    """A file or a folder, with the methods of `os.DirEntry`; there are no links."""

    name: str
    path: str
    status: os.stat_result

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        """Whether it is a folder."""
        return modes.S_ISDIR(self.status.st_mode)

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        """Whether it is a file."""
        return modes.S_ISREG(self.status.st_mode)

    def is_symlink(self) -> bool:
        """Whether it is a link."""
        return False

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        """Return the status as listed."""
        return self.status


def _status(info: Any) -> os.stat_result:
    is_file = info.type == fs.FileType.File
    mode = (modes.S_IFREG | 0o444) if is_file else (modes.S_IFDIR | 0o555)
    nanoseconds = info.mtime_ns or 0
    seconds = nanoseconds // 1_000_000_000
    numbers = (mode, 0, 0, 1, 0, 0, (info.size or 0) if is_file else 0, seconds, seconds, seconds)
    return os.stat_result(numbers, {"st_mtime_ns": nanoseconds})


class _Memo(local):
    """What this thread has asked within `asking_once`: folders by URI."""

    folders: "dict[str, list[Entry]] | None" = None


_memo = _Memo()
_FOLDER = fs.FileInfo("", fs.FileType.Directory)


@contextmanager
def asking_once() -> Iterator[None]:
    """List each folder once in this thread until the block ends: what opens a store looks at its root several times."""
    before, _memo.folders = _memo.folders, {}
    try:
        yield
    finally:
        _memo.folders = before


def stat(uri: str) -> os.stat_result:
    """Return the status of a URI.

    :raises OSError: no such file, or access denied.
    :raises Unreachable: the remote file system does not answer.
    """
    filesystem, path = open_remote(uri)
    if _memo.folders is not None and filesystem.type_name == "s3":
        # One request where Arrow makes two for a folder; the entries are asked for next.
        with suppress(FileNotFoundError, NotADirectoryError):
            if scandir(uri):
                return _status(_FOLDER)
    info = _ask(uri, filesystem.get_file_info, path)
    if info.type == fs.FileType.NotFound:
        if filesystem.type_name == "hdfs":  # which Arrow says of every failure
            _ask(uri, filesystem.get_file_info, fs.FileSelector(path))
        raise FileNotFoundError(errno.ENOENT, errors.NO_FILE)
    return _status(info)


def scandir(uri: str) -> list[Entry]:
    """Return a folder's entries, sorted by name.

    :raises OSError: no such folder, or access denied.
    :raises Unreachable: the remote file system does not answer.
    """
    folders = _memo.folders if _memo.folders is not None else {}
    if uri not in folders:
        folders[uri] = sorted(_list(uri, recursive=False)[""], key=lambda entry: entry.name)
    return folders[uri]


def _list(uri: str, *, recursive: bool) -> dict[str, list[Entry]]:
    """Return the entries of a folder, and of those below it, by the folder's relative path."""
    filesystem, root = open_remote(uri)
    found: dict[str, list[Entry]] = defaultdict(list)
    seen: set[tuple[str, object]] = set()
    for info in _ask(uri, filesystem.get_file_info, fs.FileSelector(root, recursive=recursive)):
        inner = info.path[len(root) :].strip("/")
        folder, _, name = inner.rpartition("/")
        if (inner, info.type) in seen:
            continue  # a key with two slashes yields its folder twice
        seen.add((inner, info.type))
        if name not in ("", ".", ".."):  # possible as keys, not as file names
            found[folder].append(Entry(name, join(uri, inner), _status(info)))
    return found


listed: list[Callable[[str], None]] = []
"""Who is told that a tree is listed: what was known of files in it is old."""


class Tree:
    """The tree below a URI, listed in one go; or a single file."""

    def __init__(self, root: str) -> None:
        for tell in listed:
            tell(root)
        own = stat(root)
        self._statuses = {root: own}
        self._entries: dict[str, list[Entry]] = {}
        if modes.S_ISDIR(own.st_mode):
            for folder, entries in _list(root, recursive=True).items():
                self._entries[join(root, folder) if folder else root] = sorted(entries, key=lambda entry: entry.name)
                self._statuses |= {entry.path: entry.status for entry in entries}

    def scandir(self, folder: str) -> Sequence[Entry]:
        """Return a folder's entries, sorted by name."""
        return self._entries.get(folder, ())

    def lstat(self, path: str) -> os.stat_result:
        """Return the status of a path.

        :raises FileNotFoundError: it was not listed.
        """
        if path not in self._statuses:
            raise FileNotFoundError(errno.ENOENT, errors.NO_FILE)
        return self._statuses[path]


def read(uri: str) -> bytes:
    """Return a whole file.

    :raises OSError: there is none, or access is denied.
    :raises Unreachable: the remote file system does not answer.
    """
    filesystem, path = open_remote(uri)

    def fetch() -> bytes:
        with filesystem.open_input_file(path) as file:
            raw: bytes = file.readall()
            return raw

    return result_of(start(fetch), uri, 0)
