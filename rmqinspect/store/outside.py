"""Where nothing is ever written: the paths given as evidence, the stores around them, and what their links lead to.

    given      /case/view/commitlog   a link to /disk/log
    evidence   /case/view             around the link: a store's root, by its folders
               /disk/log              behind the link
               /disk2/segments        behind links below: a segment that is kept elsewhere
    the same   /mnt/log               another mount of /disk/log, or of a folder in it

A path is compared by its name with all links resolved, by the identity of the folders above it (device and inode),
and by its place on its file system, which a bind mount does not change.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import NamedTuple

from rmqinspect.errors import Refused
from rmqinspect.schemas import ROOT_FOLDERS
from rmqinspect.system import filesystem, uri

_LEVELS = 4  # depth of a consume-queue file below its root
_MOST_LINKS = 40  # on the way to a file, as for the kernel
_MOST_ENTRIES = 100_000  # of the folders of a store, among which links are looked for
_LOG_FOLDERS = ("commitlog", "data")
_MOUNTS = "/proc/self/mountinfo"


class _Spot(NamedTuple):
    """Where a path lies on its file system, whichever mount it is reached through."""

    device: str
    path: str


def refuse_inside(path: str, evidence: Sequence[str]) -> None:
    """Check that `path`, which need not exist, lies outside of the evidence, whichever links or mounts lead there.

    :raises Refused: it lies inside.
    """
    path = uri.local_path(path)
    real = uri.realpath(path)
    # A local path never lies in a remote store, or the other way round: saves requests.
    near = [other for other in evidence if uri.is_remote(other) == uri.is_remote(path)]
    roots = list(dict.fromkeys(_roots(near)))
    above = set() if uri.is_remote(path) else set(_identities_above(real))
    mounts = [] if uri.is_remote(path) or not roots else _mounts()
    spot = _spot(real, mounts)
    for root in roots:
        other = _spot(root, mounts)
        same_mount = spot is not None and other is not None and spot.device == other.device
        if (
            uri.is_below(real, root)
            or _identity(root) in above
            or (same_mount and spot is not None and other is not None and uri.is_below(spot.path, other.path))
        ):
            names = uri.shown(path), uri.shown(root)
            raise Refused("{}: lies inside the store {}; nothing is ever written there".format(*names))


def _roots(paths: Sequence[str]) -> Iterator[str]:
    """Yield the folders among `paths`, the stores around each path, and what links below them lead to."""
    for given in map(uri.local_path, paths):
        if uri.is_remote(given):
            yield from _with_stores_around(uri.realpath(given))
            continue
        real = os.path.realpath(given)
        for link in islice(_links_on_the_way(os.path.abspath(given)), _MOST_LINKS):
            yield from _stores_around(link)
        yield from _with_stores_around(real)
        for target in _link_targets(real):
            yield from _with_stores_around(target)


def _with_stores_around(path: str) -> Iterator[str]:
    if filesystem.isdir(path):
        yield path
    yield from _stores_around(path)


def _stores_around(path: str) -> Iterator[str]:
    """Yield the folders above a path that are the root of a store."""
    for _ in range(_LEVELS):
        path = uri.dirname(path)
        if any(filesystem.isdir(uri.join(path, name)) for name in ROOT_FOLDERS):
            yield path


def _links_on_the_way(path: str) -> Iterator[str]:
    """Yield each link that leads to a path, each by its own real name."""
    left, at = path.split(os.sep)[::-1], os.sep
    while left:
        part = left.pop()
        if part in ("", "."):
            continue
        if part == "..":
            at = os.path.dirname(at)
            continue
        own = os.path.join(at, part)
        target = None
        with suppress(OSError):  # no link
            target = os.readlink(own)
        if target is None:
            at = own
            continue
        yield own
        at = os.sep if target.startswith(os.sep) else at
        left += target.split(os.sep)[::-1]


def _link_targets(root: str) -> Iterator[str]:
    """Yield what links in the place of a store's folders and segments lead to, of a segment the folder.

    Not a folder around the store itself: a link to "/" would leave no place to write to.
    """
    for folder in (root, *(os.path.join(root, name) for name in _LOG_FOLDERS)):
        try:
            with os.scandir(folder) as listed:
                links = [entry for entry in islice(listed, _MOST_ENTRIES) if entry.is_symlink()]
        except OSError:  # no folder, or not to be listed
            continue
        for link in links:
            target = os.path.realpath(link.path)
            is_segment = link.name.isdecimal() and os.path.isfile(target)
            if is_segment or link.name in ROOT_FOLDERS or link.name.startswith("dledger-"):
                target = os.path.dirname(target) if is_segment else target
                if os.path.isdir(target) and not uri.is_below(root, target):
                    yield target


# --- the same folder by another name --------------------------------------------------------------


def _identity(path: str) -> tuple[int, int] | None:
    if not uri.is_remote(path):
        with suppress(OSError):
            status = os.stat(path)
            return status.st_dev, status.st_ino
    return None


def _identities_above(path: str) -> Iterator[tuple[int, int]]:
    """Yield device and inode of a path, where it exists, and of the folders above it."""
    while True:
        if (identity := _identity(path)) is not None:
            yield identity
        if path == os.path.dirname(path):
            return
        path = os.path.dirname(path)


def _mounts() -> list[tuple[str, str, str]]:
    """Return (mount point, device, folder of the file system that is mounted there), those made last in front."""
    try:
        with open(_MOUNTS, "rb") as file:
            lines = os.fsdecode(file.read()).splitlines()
    except OSError:  # another system than Linux
        return []
    # 36 35 98:0 /folder /mount/point rw,noatime ...: proc(5). A blank in a name is \040.
    rows = [line.split(" ") for line in reversed(lines)]
    return [(_unescaped(row[4]), row[2], _unescaped(row[3])) for row in rows if len(row) > 4]


def _unescaped(name: str) -> str:
    for code in (" ", "\t", "\n", "\\"):
        name = name.replace(f"\\{ord(code):03o}", code)
    return name


def _spot(path: str, mounts: Sequence[tuple[str, str, str]]) -> _Spot | None:
    """Return where a real path lies on its file system; None where that is not known."""
    if uri.is_remote(path):
        return None
    around = [mount for mount in mounts if path == mount[0] or path.startswith(mount[0].rstrip(os.sep) + os.sep)]
    if not around:
        return None
    point, device, folder = max(around, key=lambda mount: len(mount[0]))
    return _Spot(device, os.path.normpath(os.path.join(folder, os.path.relpath(path, point))))
