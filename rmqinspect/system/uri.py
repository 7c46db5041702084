"""Paths and URIs as text: split, join and display them; no file system is accessed."""

import os
import re
from urllib.parse import unquote

from rmqinspect.text import name_text

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")


# Java writes a local URI with one slash (java.io.File#toURI), the standard with three.
_LOCAL = re.compile(r"file:(?://(?:localhost)?(?=/)|(?=/[^/]))", re.IGNORECASE)


# A secret key may contain an unencoded slash; digits before a slash are a port.
_PASSWORD = re.compile(r"(://[^/@:]*):(?:[^/@]*|(?!\d{1,5}/).*)@", re.DOTALL)


def local_path(path: str) -> str:
    """Return the local path of a `file:` URI; any other path or URI unchanged."""
    local = _LOCAL.match(path)
    return unquote(path[local.end() :]) if local else path


def is_remote(path: str) -> bool:
    """Whether a path is a URI other than `file:`."""
    return _URI.match(path) is not None and not _LOCAL.match(path)


def _split_options(path: str) -> tuple[str, str]:
    """Return (location, options): a URI's options (`?region=…`) begin at its last question mark."""
    if not is_remote(path) or "?" not in path:
        return path.rstrip("/") if is_remote(path) else path, ""
    location, mark, options = path.rpartition("?")
    return location.rstrip("/"), mark + options


_AZURE = "abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH"
# Scheme → what its place is, and how such a URI is written.
_SHAPES = {
    **dict.fromkeys(("s3", "s3a", "s3n"), ("bucket", "s3://BUCKET/PATH")),
    **dict.fromkeys(("gs", "gcs"), ("bucket", "gs://BUCKET/PATH")),
    "hdfs": ("host", "hdfs://HOST:PORT/PATH"),
    **dict.fromkeys(("abfs", "abfss"), ("account", _AZURE)),
}
_NO_PORT = re.compile(r":(?!\d{1,5}$)(?![^\[]*\])")  # not in [::1]


def misshapen(scheme: str, place: str, path: str) -> str:
    """Return why a URI leads nowhere, and how it would be written; "" if nothing is wrong with its shape.

    `place` is what stands between the slashes: `user:key@bucket`, `host:port`. Without one, `hdfs:` has its default.
    """
    what, example = _SHAPES.get(scheme.lower(), ("", ""))
    credentials, at, host = place.rpartition("@")
    why = ""
    if not what:
        return ""
    if not host and (at or what != "host"):
        why = f"no {what}"
    elif re.search(r"\s", host):
        why = f"a {what} has no blanks"
    elif what == "host" and (host.startswith(":") or _NO_PORT.search(host)):
        why = "no host" if host.startswith(":") else "a port that is no number"
    elif what == "account":
        why = _wrong_in_azure(credentials, host, path)
    return f"{why}: {example}" if why else ""


def _wrong_in_azure(container: str, host: str, path: str) -> str:
    """Arrow takes `CONTAINER@ACCOUNT.dfs…/PATH`, `ACCOUNT.blob…/CONTAINER/PATH`, and ACCOUNT[:KEY]@HOST:PORT/CONTAINER.

    Source: Arrow's AzureOptions::FromUri. Its form `ACCOUNT@CONTAINER` is refused: Spark reads the same the other way.
    """
    account, dot, domain = host.partition(".")
    if "@" in container:
        return "two @"
    if not account or not (dot or ":" in host):
        return "no account with its domain"
    of_storage = domain.startswith(("dfs.", "blob."))
    in_front = of_storage and domain.startswith("dfs.") and container.partition(":")[0]
    return "" if in_front or path.strip("/") else "no container"


def join(folder: str, name: str) -> str:
    """Return the path or URI of `name` (or `folder/name`) in a folder."""
    if not is_remote(folder):
        return os.path.join(folder, name)
    location, options = _split_options(folder)
    # A key with a question mark needs options behind it, if empty ones.
    return f"{location}/{name}{options or ('?' if '?' in name else '')}"


def basename(path: str) -> str:
    """Return the last component; for a URI without a path, its bucket or host."""
    location, _ = _split_options(path)
    return os.path.basename(location)


def dirname(path: str) -> str:
    """Return the parent of a path or URI; a root is its own parent."""
    if not is_remote(path):
        return os.path.dirname(path)
    location, options = _split_options(path)
    above = location.rpartition("/")[0]
    return location + options if above.endswith("/") else above + options


def abspath(path: str) -> str:
    """Return an absolute path; a URI unchanged."""
    path = local_path(path)
    return path if is_remote(path) else os.path.abspath(path)


def realpath(path: str) -> str:
    """Return a path with all links resolved; a URI without a slash at its end."""
    return "".join(_split_options(path)) if is_remote(path) else os.path.realpath(path)


def relpath(path: str, folder: str) -> str:
    """Return a path relative to a folder above it."""
    if not is_remote(folder):
        return os.path.relpath(path, folder)
    return _split_options(path)[0].removeprefix(_split_options(folder)[0]).lstrip("/")


def is_below(path: str, folder: str) -> bool:
    """Whether a real path is a folder or lies below it; one bucket name at two services counts as the same."""
    inner, outer = _identity(path), _identity(folder)
    return inner == outer or inner.startswith(outer.rstrip(os.sep) + os.sep)


def _identity(path: str) -> str:
    """Return a path or URI without options, credentials and spellings of the scheme."""
    return re.sub(r"^s3[an]://", "s3://", re.sub(r"://[^/@]*:…@", "://", shown(path)))


def shown(path: str) -> str:
    """Return a path or URI for display: without options and password, as valid text."""
    location, _ = _split_options(path)
    return name_text(_PASSWORD.sub(r"\1:…@", location) if is_remote(path) else path)


def without_secrets(text: str) -> str:
    """Return a command-line argument with its URI as `shown`: `URI`, `--option=URI`, `NAME=URI`."""
    before, equals, path = text.partition("=")
    if equals and "://" not in before and is_remote(path):
        return f"{before}={shown(path)}"
    return shown(text)
