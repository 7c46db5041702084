"""Every other way to start a broker on a store, walked and priced.

    the other exit      without the file `abort`, or with one          one walk
    other releases      each era that costs something else             a walk for each era
    a bit set back      that ends the log, and is proven               a walk of the store as it would be
    remedies            what makes a start that is refused possible    a walk of the store as it would be
    files in the way    moved, where a folder has to be                a walk after each exit
    combinations        a remedy, the other exit, a newer release      as long as none loses nothing

Each is walked by the same procedure as the start that was asked about; the files of a remedy are walked as it would
leave them, and nothing is written (`remedied`). What a remedy itself gives up is part of its price. A way is better if
its verdict is, or if it loses fewer messages at the same verdict, and if its release is not an older one; of ways that
cost the same that comes first which brings back more units. The others are named, too, so that nobody tries them. Of
combinations only those are, that are better than all before them.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import groupby
from operator import attrgetter
from typing import Protocol, TypeVar

import numpy as np
from msgspec.structs import replace

from rmqinspect.broker.eras import rules_of_start
from rmqinspect.broker.unread import segments_in
from rmqinspect.broker.version_estimate import RELEASES
from rmqinspect.commitlog.missing import doubles_of
from rmqinspect.commitlog.record_reader import RecordReader
from rmqinspect.consumequeue.units import message_mask, read_units
from rmqinspect.errors import Unreadable
from rmqinspect.forecast.evidence import ABORT
from rmqinspect.forecast.losses import segments_of
from rmqinspect.forecast.outcome import (
    NO_REMEDY,
    REBUILD,
    SALVAGE,
    SERVING,
    Alternative,
    Outcome,
    Refusal,
    Remedy,
    SetBack,
    Verdict,
    price,
)
from rmqinspect.forecast.settings import fitting_lines, spelled
from rmqinspect.forecast.shelf import SIMPLE
from rmqinspect.forecast.words import span_of
from rmqinspect.schemas.consumequeue import QueueUnit
from rmqinspect.store.model import QueueFile, Segment, Store, StoreFile
from rmqinspect.store.reader import open_file
from rmqinspect.text import describe_offset, group_digits

File = TypeVar("File", bound=StoreFile)

_MOST_STEPS = 5  # refusals that are remedied one after the other


class Walks(Protocol):
    """Walks the starts of one store."""

    def tell(self, release: str, clean: bool) -> Outcome:
        """Return the outcome of a start of one release after a clean or an unclean exit."""

    def tell_all(self, releases: Sequence[str], *, clean: bool) -> list[Outcome]:
        """Return the outcomes of some releases, in their order; neighbours that are the same are one."""


After = Callable[[Remedy], Walks]
"""Walks the store as it is after a remedy."""


def other_ways(
    worst: Outcome,
    store: Store | None,
    after: After,
    repaired: Sequence[Alternative] = (),
    edited: Sequence[Alternative] = (),
    *,
    best_only: bool = False,
) -> list[Alternative]:
    """Return the other ways to start, the best one first; without a store no file is looked into for its name.

    `repaired` are those by `rebuild` and `salvage`, `edited` those by an edit of a configuration file: both are
    compared with the others. `best_only`: other releases are walked only where they can be the best choice.
    """
    plain = after(NO_REMEDY)
    ways = [*edited, _other_exit(worst, store, after)]
    ways += (_way(worst, outcome, remedy) for remedy, outcome in _unblocked(worst, after))
    ways += (_way(worst, outcome, remedy) for remedy, outcome in _with_bits_set_back(worst, store, after))
    ways += (_way(worst, outcome, remedy) for remedy, outcome in _with_all_read(worst, after))
    ways += (_way(worst, outcome, remedy) for remedy, outcome in _without_spare_doubles(worst, store, after))
    eras: list[Outcome] = []
    if not (best_only and _is_free([*ways, *repaired], worst)):
        eras = plain.tell_all(RELEASES, clean=worst.clean_exit)
        ways += _other_releases(worst, eras)
    refused = worst if worst.refusal else replace(worst, refusal=_refused_by_others(worst, eras))
    ways += (_way(worst, outcome, remedy) for remedy, outcome in _remedies(refused, store, after))
    for way in _combinations(worst, eras, store, after) if eras else ():
        known = [other for other in ways if not _is_older(other.outcome, worst)]
        if _is_free(known, worst):
            break
        if all(_rank(way, worst) < _rank(other, worst) for other in known):
            ways.append(way)
    judged = [_judged(way, worst, [worst, *(other.outcome for other in ways)]) for way in ways]
    least = min((price(way.outcome) for way in repaired), default=None)
    for way in repaired:
        # The new store of one is as much work as that of the other: the dearer one is never advised.
        is_better = _is_better(way.outcome, worst) and price(way.outcome) == least
        judged.append(way._replace(is_better=is_better))
    return sorted(judged, key=lambda way: (not way.is_better, _rank(way, worst)))


def _is_free(ways: Iterable[Alternative], worst: Outcome) -> bool:
    """Whether one of the ways loses nothing, and gives nothing up beside."""
    return any(
        way.outcome.verdict is Verdict.SAFE and not way.remedy.costs and not _is_older(way.outcome, worst)
        for way in ways
    )


def _rank(way: Alternative, worst: Outcome) -> tuple[object, ...]:
    """Return the order of choices: what it costs, how much work it is, what it brings back, what it changes."""
    return (
        price(way.outcome),
        # A store that was served by another release does not always go back to its own one.
        way.outcome.release != worst.release,
        ("", REBUILD, SALVAGE).index(way.tool),
        -_units_after(way.outcome),
        len(way.remedy.costs),
        # Lines of broker.conf, or another exit, are less than a change of files.
        len(way.remedy.steps) - len(way.remedy.settings),
    )


def _judged(way: Alternative, worst: Outcome, outcomes: Iterable[Outcome]) -> Alternative:
    """Return a way with what is known once all are walked: another that ends there may bring back more units."""
    log = way.outcome.min_offset, way.outcome.end_offset
    most = max(_units_after(one) for one in outcomes if (one.min_offset, one.end_offset) == log)
    return way._replace(is_better=_is_better(way.outcome, worst), units_missed=most - _units_after(way.outcome))


def _units_after(outcome: Outcome) -> int:
    """Return how many units all queues have after a start: those that stay, and those that come back."""
    return sum(queue.max_after - queue.min_after for queue in outcome.queues)


def _is_better(outcome: Outcome, worst: Outcome) -> bool:
    """Whether a start is better than the worst: the broker serves, and at a lower price."""
    unblocks = worst.blocked_by is not None and outcome.blocked_by is None and price(outcome) == price(worst)
    works = outcome.verdict in SERVING and not outcome.doubled
    return works and (price(outcome) < price(worst) or unblocks) and not _is_older(outcome, worst)


def _is_older(outcome: Outcome, worst: Outcome) -> bool:
    """Whether a release is older than all that answer as the worst does: it may not read what those have written."""
    return RELEASES.index(outcome.release) < RELEASES.index(worst.era.split(" ")[0])


# --- one change ---------------------------------------------------------------------------------


def _other_exit(worst: Outcome, store: Store | None, after: After) -> Alternative:
    without_abort = _without_abort(worst, store)
    return _way(worst, after(without_abort).tell(worst.release, not worst.clean_exit), without_abort)


def _without_abort(worst: Outcome, store: Store | None) -> Remedy:
    """Return what gives a clean exit beside a walk after one: a folder `abort` stays in the way of the file."""
    is_folder = store is not None and not worst.clean_exit and store.has_folder(ABORT)
    return Remedy(moved=(ABORT,)) if is_folder else NO_REMEDY


def _unblocked(worst: Outcome, after: After) -> Iterator[tuple[Remedy, Outcome]]:
    """Yield what moves files out of the way of queues, and what a start does then, after each exit."""
    remedy, outcome = NO_REMEDY, worst
    while outcome.blocked_by is not None and len(remedy.moved) < _MOST_STEPS:
        remedy = remedy.then(Remedy(moved=(outcome.blocked_by,)))
        outcome = after(remedy).tell(worst.release, worst.clean_exit)
    if remedy.moved:
        yield remedy, outcome
        yield remedy, after(remedy).tell(worst.release, not worst.clean_exit)


def _with_bits_set_back(worst: Outcome, store: Store | None, after: After) -> Iterator[tuple[Remedy, Outcome]]:
    """Yield the flipped bits that end the log one after the other, set back, and what a start does then."""
    if worst.rejected is None:
        return
    from rmqinspect.damage.flipped_bit import flipped_bit  # most logs are sound

    remedy, outcome = NO_REMEDY, worst
    while store is not None and outcome.rejected is not None and len(remedy.bits) < _MOST_STEPS:
        segment = store.segment_at(outcome.rejected.physical_offset)
        flip = None if segment is None else flipped_bit(segment, outcome.rejected.physical_offset)
        if segment is None or flip is None:
            break
        remedy = remedy.then(Remedy(bits=(SetBack(segment.name, *flip),)))
        outcome = after(remedy).tell(worst.release, worst.clean_exit)
    if remedy.bits:
        yield remedy, outcome


def _with_all_read(worst: Outcome, after: After) -> Iterator[tuple[Remedy, Outcome]]:
    """Yield what makes the broker read all that lies where it does not look, and what a start does then."""
    remedy = Remedy(copied=tuple(one.copy for one in worst.unread if one.copy is not None))
    if remedy.copied:
        yield remedy, after(remedy).tell(worst.release, worst.clean_exit)


def _without_spare_doubles(worst: Outcome, store: Store | None, after: After) -> Iterator[tuple[Remedy, Outcome]]:
    """Yield what moves away segments that begin where another one does and hold nothing of their own, and a start."""
    if store is None:
        return
    try:
        doubles = list(doubles_of(store.segments))
    except Unreadable:
        return
    # Where both have bytes of their own, nobody knows which one is right.
    if doubles and all(double.differs_at is None for double in doubles):
        remedy = Remedy(moved=tuple(double.file.name for double in doubles))
        yield remedy, after(remedy).tell(worst.release, worst.clean_exit)


def _other_releases(worst: Outcome, eras: Iterable[Outcome]) -> Iterator[Alternative]:
    """Yield the releases that cost something else, or start elsewhere; neighbours that do not differ in it as one."""
    for _, run in groupby(eras, key=lambda one: (_costs(one), one.healed_units)):
        alike = list(run)
        if _costs(alike[-1]) != _costs(worst):
            age = "older " if _is_older(alike[-1], worst) else ""
            yield Alternative(f"{age}broker {span_of(alike)}", replace(alike[-1], era=span_of(alike)))


def _costs(outcome: Outcome) -> tuple[object, ...]:
    return price(outcome), outcome.scan_start, outcome.end_offset, outcome.refusal


def _remedies(
    refused: Outcome, store: Store | None, after: After, done: Remedy = NO_REMEDY
) -> Iterator[tuple[Remedy, Outcome]]:
    """Yield what makes a start possible that is refused, and what it does then: one remedy, or several in a row."""
    if refused.refusal is None:
        return
    for more in _remedies_of(refused, refused.refusal, store):
        if set(more.steps) & set(done.steps):
            continue  # it was done, and did not help
        remedy = done.then(more)
        outcome = after(remedy).tell(refused.release, refused.clean_exit)
        if outcome.verdict is not Verdict.REFUSES:
            yield remedy, outcome
        elif len(remedy.steps) < _MOST_STEPS:
            yield from _remedies(outcome, store, after, remedy)


def _refused_by_others(worst: Outcome, eras: Iterable[Outcome]) -> Refusal | None:
    """Return why other releases refuse a file that this one ignores, with all behind it (4.0.0 to 4.4.0, 4.9.2)."""
    refusals = (outcome.refusal for outcome in eras if outcome.refusal is not None)
    found = next((refusal for refusal in refusals if refusal.file in worst.ignored_files), None)
    if found is None:
        return None
    rules = rules_of_start(worst.release)
    return found._replace(settings=tuple((spelled(name, rules), value) for name, value in found.settings))


def _remedies_of(refused: Outcome, refusal: Refusal, store: Store | None) -> Iterator[Remedy]:
    costs = (refusal.costs,) if refusal.costs else ()
    if refusal.settings and refusal.rule == "wrong_length" and store is not None:
        # All that broker.conf lacks at once: with one of several lines the next start is refused again, or empty.
        lines = dict(fitting_lines(store, rules_of_start(refused.release)))
        yield Remedy(settings=tuple({**dict(refusal.settings), **lines}.items()))
    elif refusal.settings:
        yield Remedy(settings=refusal.settings)
    name = _own_name(refusal.file, store) if store is not None and refusal.moves else None
    if name is not None:
        yield Remedy(renamed=((refusal.file, name),))
    if refusal.length is not None:
        yield Remedy(lengths=((refusal.file, refusal.length),))
    if refusal.moves or refusal.length is not None:
        yield Remedy(moved=(*refusal.moves_also, refusal.file), costs=costs)


# --- several changes ----------------------------------------------------------------------------


def _combinations(worst: Outcome, eras: Iterable[Outcome], store: Store | None, after: After) -> Iterator[Alternative]:
    """Yield remedies with the other exit, newer releases with remedies, and newer releases with the other exit."""
    other = not worst.clean_exit
    without_abort = _without_abort(worst, store)
    plain = after(without_abort)
    newer = RELEASES[RELEASES.index(worst.release) + 1 :]
    refused = [outcome for outcome in eras if outcome.release in newer]
    if worst.verdict is Verdict.REFUSES:
        refused.insert(0, plain.tell(worst.release, other))
    # After an unclean exit the newest release is walked alone: older ones may have to scan all of the log.
    others = plain.tell_all(newer if other else newer[-1:], clean=other) if newer else []
    for outcome in (*refused, *others):
        if outcome.verdict is Verdict.REFUSES:
            done = without_abort if outcome.clean_exit is other else NO_REMEDY
            yield from (_way(worst, then, remedy) for remedy, then in _remedies(outcome, store, after, done))
        elif outcome.clean_exit is other:
            yield _way(worst, outcome, without_abort)


def _way(worst: Outcome, outcome: Outcome, remedy: Remedy = NO_REMEDY) -> Alternative:
    """Return a way to start, named by what it changes."""
    who = "the same broker" if outcome.release == worst.release else f"broker {outcome.era}"
    # A walk after an unclean exit has a file abort, whatever was moved away.
    replaced = ABORT in remedy.moved and not outcome.clean_exit
    moved = " and ".join(name for name in remedy.moved if not (replaced and name == ABORT))
    parts = [f"with {moved} moved out of the store"] if moved else []
    parts += ["with an empty file in the place of the folder abort"] if replaced else []
    parts += [f"with {name} brought to {group_digits(length)} bytes" for name, length in remedy.lengths]
    parts += [f"with {name} renamed to {new}" for name, new in remedy.renamed]
    parts += [f"with {name} copied to {new}" for name, new in remedy.copied]
    parts += [f"with {name}={value}" for name, value in remedy.settings]
    parts += [f"with a flipped bit of {bit.file} at {describe_offset(bit.position)} set back" for bit in remedy.bits]
    if outcome.clean_exit != worst.clean_exit and ABORT not in remedy.moved:
        parts.append("without the file abort" if outcome.clean_exit else "with an empty file abort")
    return Alternative(" ".join((who, ", ".join(parts))).strip(), outcome, remedy)


# --- answers that are the same ------------------------------------------------------------------

_OF_THE_RELEASE = ("release", "era", "clean_exit", "decisions", "assumptions", "conf_notes", "notes", "led")


def same_answer(outcome: Outcome) -> str:
    """Return what two outcomes have in common if they are the same answer."""
    values = attrgetter(*(name for name in Outcome.__struct_fields__ if name not in _OF_THE_RELEASE))
    return repr(values(outcome))


# --- the store after a remedy -------------------------------------------------------------------


def remedied(store: Store, remedy: Remedy) -> Store:
    """Return a store as a remedy leaves it. Nothing is written: files have other lengths or bytes, or are not there."""
    lengths, names = dict(remedy.lengths), dict(remedy.renamed)

    def resized(file: File) -> File:
        if bits := tuple((bit.position, bit.was) for bit in remedy.bits if bit.file == file.name):
            file = replace(file, set_back=bits)
        length = lengths.get(file.name)
        return file if length is None else replace(file, size=length, length=length)

    left = _with_copied_segments(store, {name for name, _ in remedy.copied})
    left = without_files(left, (*remedy.moved, *names))
    renamed = [_renamed(file, names[file.name], store) for file in store.files if file.name in names]
    segments = [*left.segments, *(file for file in renamed if isinstance(file, Segment))]
    queue_files = [*left.queue_files, *(file for file in renamed if isinstance(file, QueueFile))]
    return replace(
        left,
        files=tuple(map(resized, (*left.files, *renamed))),
        segments=tuple(map(resized, sorted(segments, key=attrgetter("base")))),
        queue_files=tuple(map(resized, sorted(queue_files, key=attrgetter("topic", "queue_id", "kind", "base")))),
        index_files=tuple(map(resized, left.index_files)),
        checkpoint=resized(left.checkpoint) if left.checkpoint else None,
        config_files={**left.config_files, **_copies(left, remedy)},
        settings={**left.settings, **dict(remedy.settings)},
    )


def _copies(store: Store, remedy: Remedy) -> dict[str, StoreFile]:
    """Return the copies of configuration files that a remedy makes, by their names in config/."""
    files = {file.name: file for file in store.config_files.values()}
    made = (replace(files[name], name=copy) for name, copy in remedy.copied if name in files)
    return {file.name.rpartition("/")[2]: file for file in made}


def _with_copied_segments(store: Store, copied: Collection[str]) -> Store:
    """Return a store with the segments of folders that broker.conf does not name, once they are copied."""
    avoided = [oddity for oddity in store.of_broker("not_read") if f"{oddity.name}/*" in copied]
    added = {segment.path: segment for oddity in avoided for segment in segments_in(store, oddity)}
    if not added:
        return store
    return replace(
        store,
        files=tuple(added.get(file.path, file) for file in store.files),
        segments=tuple(sorted((*store.segments, *added.values()), key=attrgetter("base"))),
        oddities=tuple(oddity for oddity in store.oddities if oddity not in avoided),
    )


def _renamed(file: StoreFile, name: str, store: Store) -> StoreFile:
    """Return a file of a store under its own name, as a segment or a queue's file."""
    folder, _, number = name.rpartition("/")
    if store.lies_in_log(file):
        return Segment(file.path, name, file.size, "segment", int(number))
    _, topic, queue_id = folder.split("/")
    return QueueFile(file.path, name, file.size, "queue", topic, int(queue_id), int(number))


def _own_name(name: str, store: Store) -> str | None:
    """Return the name that a segment or a queue's file should have by what it holds, if the store has no such file."""
    folder, known = name.rpartition("/")[0], {file.name for file in store.files}
    for file in store.files:
        if file.name != name or not file.size:
            continue
        if store.lies_in_log(file):
            base = next((segment.base for segment in segments_of(store, [name], [])), -1)
        else:
            base = _base_in_queue(file, store) if folder.startswith("consumequeue/") else -1
        own = f"{folder}/{base:020}"
        if base >= 0 and base % file.size == 0 and own not in known:
            return own
    return None


def _base_in_queue(file: StoreFile, store: Store) -> int:
    """Return where in its queue a file begins, in bytes, by QUEUEOFFSET of its first record; -1: that is not known."""
    with suppress(Unreadable), open_file(file) as reader:
        for row, units in read_units(reader, SIMPLE):
            for at in np.flatnonzero(message_mask(units))[:1].tolist():
                offset = int(units["physical_offset"][at])
                with RecordReader(store) as log:
                    record = log.identity_at(offset)
                unit = QueueUnit.sizeof()
                return -1 if record is None else (record.queue_offset - row - at) * unit
    return -1


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
