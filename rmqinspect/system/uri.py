"""Paths and URIs as text: split, join and show them, without asking any file system."""

import os
import re
from urllib.parse import unquote

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")


# Java writes a local URI with one slash (java.io.File#toURI), the standard with three.
_LOCAL = re.compile(r"file:(?://(?:localhost)?(?=/)|(?=/[^/]))", re.IGNORECASE)


# A secret key may hold a slash that nobody has encoded; a number before one is a port.
_PASSWORD = re.compile(r"(://[^/@:]*):(?:[^/@]*|(?!\d{1,5}/).*)@", re.DOTALL)


def local_path(path: str) -> str:
    """Return what a `file:` URI means on this machine; every other path and URI as it is."""
    local = _LOCAL.match(path)
    return unquote(path[local.end() :]) if local else path


def is_remote(path: str) -> bool:
    """Whether a path is a URI that is none of this machine."""
    return _URI.match(path) is not None and not _LOCAL.match(path)


def _halves(path: str) -> tuple[str, str]:
    """Split a URI before its options (`?region=…`), which begin at the last question mark; a path has none."""
    if not is_remote(path) or "?" not in path:
        return path.rstrip("/") if is_remote(path) else path, ""
    location, mark, options = path.rpartition("?")
    return location.rstrip("/"), mark + options


def join(folder: str, name: str) -> str:
    """Return the path or URI of what is called `name` (or `folder/name`) in a folder."""
    if not is_remote(folder):
        return os.path.join(folder, name)
    location, options = _halves(folder)
    # A key may hold a question mark: then there are options, if only none.
    return f"{location}/{name}{options or ('?' if '?' in name else '')}"


def basename(path: str) -> str:
    """Return the last component: of a URI without a path, its bucket or host."""
    location, _ = _halves(path)
    return os.path.basename(location)


def dirname(path: str) -> str:
    """Return the folder of a path or URI; of what has none above it, itself."""
    if not is_remote(path):
        return os.path.dirname(path)
    location, options = _halves(path)
    above = location.rpartition("/")[0]
    return location + options if above.endswith("/") else above + options


def abspath(path: str) -> str:
    """Return a path that means the same whatever the working directory is; a URI does already."""
    path = local_path(path)
    return path if is_remote(path) else os.path.abspath(path)


def realpath(path: str) -> str:
    """Return a path with all links followed; a URI has none, and loses a slash at its end."""
    return "".join(_halves(path)) if is_remote(path) else os.path.realpath(path)


def relpath(path: str, folder: str) -> str:
    """Return the way from a folder to what lies below it."""
    if not is_remote(folder):
        return os.path.relpath(path, folder)
    return _halves(path)[0].removeprefix(_halves(folder)[0]).lstrip("/")


def is_below(path: str, folder: str) -> bool:
    """Whether a real path is a folder or lies in it; in doubt (one name at two services) it does."""
    inner, outer = _identity(path), _identity(folder)
    return inner == outer or inner.startswith(outer.rstrip(os.sep) + os.sep)


def _identity(path: str) -> str:
    """Return a path or URI without what says only how to come there."""
    return re.sub(r"^s3[an]://", "s3://", re.sub(r"://[^/@]*:…@", "://", shown(path)))


def shown(path: str) -> str:
    """Return a path or URI for people: without its options, and without a password."""
    location, _ = _halves(path)
    return _PASSWORD.sub(r"\1:…@", location) if is_remote(path) else path


def without_secrets(text: str) -> str:
    """Return an argument of the command line with the URI in it as `shown` has it: `--option=URI`, `NAME=URI`."""
    before, equals, path = text.partition("=")
    if equals and "://" not in before and is_remote(path):
        return f"{before}={shown(path)}"
    return shown(text)
