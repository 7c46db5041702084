"""Rules that changed from release to release: what changed in which, and what holds in one."""

from collections.abc import Mapping, Sequence
from typing import Any

from rmqinspect.broker.version_estimate import RELEASES

Changes = Sequence[tuple[str, Mapping[str, Any]]]
"""(release, what it changed), in the order of releases; the first names every rule."""


def rules_of(changes: Changes, release: str) -> dict[str, Any]:
    """Return the rules that hold in a release, by name.

    :raises ValueError: no such release.
    """
    known = RELEASES.index(release)
    holds: dict[str, Any] = {}
    for since, changed in changes:
        if RELEASES.index(since) <= known:
            holds |= changed
    return holds
