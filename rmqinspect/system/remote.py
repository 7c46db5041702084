"""Remote files through pyarrow.fs, with the types and errors of local files.

A URI is `scheme://place/path?options`. As in the cloud vendors' tools, the path is not decoded: an
object's key is written as it is, also for a consume queue of the topic `%RETRY%group`.

Arrow's calls block in C++, where Ctrl-C cannot interrupt them. Each runs in its own thread, and the
caller waits for it in Python (`start`, `result_of`).

Ranged reads of one remote file, with read-ahead for sequential access.

A request to an object store takes tens of milliseconds whatever its size, and one connection uses
only part of the bandwidth. Sequential reads are served from chunks requested in advance; scattered
small reads from a cache of blocks.

    reads   |--- a ---|--- b ---|                 each begins within or at the end of the one before
    chunks  [    n    ][   n+1   ][  n+2   ][  n+3   ]
                                  requested ahead

Memory per reader: AHEAD + 1 chunks, 16 MiB.
"""

import errno
import os
import re
import stat as modes
import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from functools import lru_cache
from threading import Thread
from typing import Any, NamedTuple, TypeVar
from urllib.parse import parse_qsl, unquote

import pyarrow as pa
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


@dataclass(frozen=True, slots=True)
class Entry:
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


def stat(uri: str) -> os.stat_result:
    """Return the status of a URI.

    :raises OSError: no such file, or access denied.
    :raises Unreachable: the remote file system does not answer.
    """
    filesystem, path = open_remote(uri)
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
    return sorted(_list(uri, recursive=False)[""], key=lambda entry: entry.name)


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


class Tree:
    """The tree below a URI, listed in one go; or a single file."""

    def __init__(self, root: str) -> None:
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


CHUNK = 4 << 20
AHEAD = 3
# Bytes read in sequence before read-ahead begins.
_WALK = 1 << 20
# Smallest request: a header and the data next to it often share a block.
BLOCK = 64 << 10
_BLOCKS = 16
# Seconds that closing waits for pending requests; a stalled server is left to the timeouts.
_CLOSING = 2.0


class ReadAhead:
    """The bytes of a remote file. Not thread-safe.

    :raises OSError: no such file, or access denied.
    :raises Unreachable: the remote file system does not answer.
    """

    def __init__(self, uri: str) -> None:
        self._uri = uri
        filesystem, path = open_remote(uri)
        self._file = result_of(start(filesystem.open_input_file, path), uri)
        self.size: int = self._file.size()
        self._last = (0, 0)  # range of the previous read
        self._walked = 0  # bytes read in sequence
        self._chunks: dict[int, Future[bytes]] = {}  # by number; pending or complete
        self._dropped: set[Future[bytes]] = set()  # pending, no longer needed
        self._blocks: OrderedDict[int, bytes] = OrderedDict()
        self._failure: OSError | None = None

    def close(self) -> None:
        """Close the file and drop pending requests."""
        pending = [*self._chunks.values(), *self._dropped]
        self._chunks.clear()
        self._dropped.clear()
        self._blocks.clear()
        wait(pending, timeout=_CLOSING)
        self._file.close()

    def read_into(self, view: memoryview, offset: int) -> int:
        """Fill `view` from `offset` on; return the bytes read, fewer only at the file's end.

        :raises OSError: no such file any more, or access denied; also on every later call.
        :raises Unreachable: the remote file system does not answer; the message has the offset.
        """
        if self._failure is not None:
            raise self._failure
        end = min(offset + len(view), self.size)
        at = offset
        try:
            self._look_ahead(offset, end)
            while at < end:
                raw = self._part(at, end)
                if not raw:
                    break  # the file was truncated
                view[at - offset : at - offset + len(raw)] = raw
                at += len(raw)
        except OSError as error:
            self._failure = error
            raise
        return max(0, at - offset)

    def _look_ahead(self, offset: int, end: int) -> None:
        """Request the next chunks of a sequential reader, and drop those behind it."""
        began, ended = self._last
        # A scan window repeats the cut-off record at the end of the previous one.
        is_sequential = began < offset <= ended
        self._walked = self._walked + end - max(offset, ended) if is_sequential else end - offset
        self._last = (offset, end)
        first, last = offset // CHUNK, (end - 1) // CHUNK
        wanted = range(first, last + AHEAD + 1) if is_sequential and self._walked >= _WALK else range(0)
        for number in [number for number in self._chunks if number not in wanted]:
            self._dropped.add(self._chunks.pop(number))
        self._dropped = {future for future in self._dropped if not future.done()}
        for number in wanted:
            if number not in self._chunks and number * CHUNK < self.size:
                self._chunks[number] = start(self._file.read_at, min(CHUNK, self.size - number * CHUNK), number * CHUNK)

    def _part(self, at: int, end: int) -> bytes | memoryview:
        """Return bytes from `at` on, at most up to `end`."""
        number, inside = divmod(at, CHUNK)
        if number in self._chunks:
            chunk = result_of(self._chunks[number], self._uri, at)
            return memoryview(chunk)[inside : inside + end - at]
        if end - at < BLOCK:
            number, inside = divmod(at, BLOCK)
            return memoryview(self._block(number))[inside : inside + end - at]
        return self._fetch(at, end - at)

    def _block(self, number: int) -> bytes:
        if number not in self._blocks:
            self._blocks[number] = self._fetch(number * BLOCK, min(BLOCK, self.size - number * BLOCK))
            if len(self._blocks) > _BLOCKS:
                self._blocks.popitem(last=False)
        self._blocks.move_to_end(number)
        return self._blocks[number]

    def _fetch(self, offset: int, size: int) -> bytes:
        raw: bytes = result_of(start(self._file.read_at, size, offset), self._uri, offset)
        return raw
