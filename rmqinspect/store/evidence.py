"""Where nothing is ever written: the paths given as evidence, and the stores around them."""

from collections.abc import Sequence

from rmqinspect.errors import Refused
from rmqinspect.store.directory import ROOT_FOLDERS
from rmqinspect.system import filesystem, uri

_LEVELS = 4  # depth of a consume-queue file below its root


def refuse_inside(path: str, evidence: Sequence[str]) -> None:
    """Check that `path` lies outside the evidence, links resolved.

    :raises Refused: it lies inside.
    """
    path = uri.local_path(path)
    real = uri.realpath(path)
    # A local path never lies in a remote store, or the other way round: saves requests.
    near = [other for other in evidence if uri.is_remote(other) == uri.is_remote(path)]
    for root in _store_roots(near):
        if uri.is_below(real, root):
            names = uri.shown(path), uri.shown(root)
            raise Refused("{}: lies inside the store {}; nothing is ever written there".format(*names))


def _store_roots(paths: Sequence[str]) -> list[str]:
    """Return the directories among `paths`, and the roots of stores above each path."""
    roots: list[str] = []
    for path in map(uri.realpath, paths):
        if filesystem.isdir(path):
            roots.append(path)
        ancestor = path
        for _ in range(_LEVELS):
            ancestor = uri.dirname(ancestor)
            if any(filesystem.isdir(uri.join(ancestor, name)) for name in ROOT_FOLDERS):
                roots.append(ancestor)
    return roots
