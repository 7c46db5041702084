"""Every other way to start a broker on a store, walked and priced.

    the other exit      without the file `abort`, or with one          one walk
    other releases      each era that costs something else             a walk for each era
    files moved away    those that a release refuses to start with     a walk of the store without them

Each is walked by the same procedure as the start that was asked about. A way is better if its verdict is, or if it
loses fewer messages at the same verdict, and if its release is not an older one; the others are named, too, so that
nobody tries them.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from operator import attrgetter

from rmqinspect.broker.version_estimate import RELEASES
from rmqinspect.forecast.outcome import Alternative, Outcome, Verdict, price
from rmqinspect.forecast.words import span_of
from rmqinspect.store.model import Store

Tell = Callable[[str, bool], Outcome]
"""Walks a start: of a release, after a clean (or an unclean) exit."""

_MOST_MOVED = 5  # files that a start may refuse one after the other


def other_ways(
    worst: Outcome,
    tell: Tell,
    eras: Callable[[], Iterable[Outcome]],
    tell_without: Callable[[Sequence[str]], Tell],
) -> list[Alternative]:
    """Return the other ways to start, the best one first.

    `eras` are the outcomes of all releases after the same exit, one for each answer; `tell_without` walks the store
    without some files.
    """
    ways = [*_other_exit(worst, tell), *_other_releases(worst, eras()), *_without_files(worst, tell_without)]
    judged = [
        way._replace(is_better=price(way.outcome) < price(worst) and not _is_older(way.outcome, worst)) for way in ways
    ]
    return sorted(judged, key=lambda way: price(way.outcome))


def _is_older(outcome: Outcome, worst: Outcome) -> bool:
    """Whether a release is older than all that answer as the worst does: it may not read what those have written."""
    return RELEASES.index(outcome.release) < RELEASES.index(worst.era.split(" ")[0])


def _other_exit(worst: Outcome, tell: Tell) -> Iterator[Alternative]:
    way = "the same broker with an empty file abort" if worst.clean_exit else "the same broker without the file abort"
    yield Alternative(way, tell(worst.release, not worst.clean_exit))


def _other_releases(worst: Outcome, eras: Iterable[Outcome]) -> Iterator[Alternative]:
    """Yield the releases that cost something else, or start elsewhere; neighbours that do not differ in it as one."""
    for costs, run in groupby(eras, key=_costs):
        alike = list(run)
        if costs != _costs(worst):
            age = "older " if _is_older(alike[-1], worst) else ""
            yield Alternative(f"{age}broker {span_of(alike)}", replace(alike[-1], era=span_of(alike)))


def _costs(outcome: Outcome) -> tuple[object, ...]:
    return price(outcome), outcome.scan_start, outcome.end_offset, outcome.refusal


def _without_files(worst: Outcome, tell_without: Callable[[Sequence[str]], Tell]) -> Iterator[Alternative]:
    """Yield the start without the files that a release refuses, where there is such a start.

    Only files that hold no message are moved.
    """
    moved: list[str] = []
    outcome = worst
    while outcome.verdict is Verdict.REFUSES and len(moved) < _MOST_MOVED:
        if outcome.refusal is None or not outcome.refusal.moves or outcome.refusal.file in moved:
            return
        moved.append(outcome.refusal.file)
        outcome = tell_without(moved)(worst.release, worst.clean_exit)
    if moved and outcome.verdict is not Verdict.REFUSES:
        names = " and ".join(moved)
        yield Alternative(f"the same broker with {names} moved out of the store", outcome, tuple(moved))


_OF_THE_RELEASE = ("release", "era", "clean_exit", "decisions", "assumptions", "notes")


def same_answer(outcome: Outcome) -> str:
    """Return what two outcomes have in common if they are the same answer."""
    values = attrgetter(*(name for name in Outcome.__dataclass_fields__ if name not in _OF_THE_RELEASE))
    return repr(values(outcome))


def without_files(store: Store, names: Sequence[str]) -> Store:
    """Return a store as it is once some files and folders are moved away; names are relative to it."""

    def stays(name: str) -> bool:
        return not any(name == moved or name.startswith(f"{moved}/") for moved in names)

    return replace(
        store,
        files=tuple(file for file in store.files if stays(file.name)),
        segments=tuple(file for file in store.segments if stays(file.name)),
        queue_files=tuple(file for file in store.queue_files if stays(file.name)),
        index_files=tuple(file for file in store.index_files if stays(file.name)),
        checkpoint=store.checkpoint if store.checkpoint and stays(store.checkpoint.name) else None,
        config_files={name: file for name, file in store.config_files.items() if stays(file.name)},
        oddities=tuple(oddity for oddity in store.oddities if stays(oddity.name)),
        queue_folders=frozenset(place for place in store.queue_folders if stays("/".join(place))),
    )
