"""Eras: runs of releases that start a store by the same rules (`broker.start_rules`).

    rule            4.0.0 ...... 4.5.0 ........ 5.3.2 .... 5.4.0 ....
    clean_start     third last segment          queue end  whole first record
    queue_end       start        end

And what they make of odd entries. The commit log and every queue are folders of mapped files, loaded in the order of
their names by one method. For each entry that does not belong there the first rule that applies decides:

    a folder                    5.1.0 and later: skipped; before: an entry of another length
    empty, and sorts last       5.1.3 and later: deleted
    of another length           up to 4.4.0 and in 4.9.2: nothing that sorts behind it is loaded; others do not start
    no number                   startup fails
    a number                    loaded as if it belonged there

Source: MappedFileQueue#load, #doLoad, MappedFile#init, IndexService#load, ConsumeQueueStore#load,
DefaultMessageStore#load and #loadConsumeQueue; RocketMQ 4.0.0 to 5.5.0. Seen on real brokers of nine versions.
"""

from collections.abc import Callable, Sequence
from functools import cache
from itertools import groupby
from typing import NamedTuple

from msgspec import Struct

from rmqinspect.broker.start_rules import Rules
from rmqinspect.broker.version_estimate import RELEASES, estimate_version
from rmqinspect.consumequeue.bounds import last_places
from rmqinspect.store.model import Store


@cache
def rules_of_start(release: str) -> Rules:
    """Return the rules that hold in a release.

    :raises ValueError: no such release.
    """
    return Rules(release)


def searches_minimum(store: Store) -> Callable[[], bool]:
    """Return whether the release that wrote a store last looks for a queue's minimum by halves, once it is asked."""

    @cache
    def ask() -> bool:
        return rules_of_start(estimate_version(store, last_places(store, []), None).high).minimum == "search"

    return ask


class Era(NamedTuple):
    """A run of releases, both ends included, that start a store by the same rules."""

    first: str
    last: str

    def __str__(self) -> str:
        return self.first if self.first == self.last else f"{self.first} to {self.last}"


@cache
def eras() -> tuple[Era, ...]:
    """Return all eras in order."""
    runs = [list(run) for _, run in groupby(RELEASES, key=rules_of_start)]
    return tuple(Era(run[0], run[-1]) for run in runs)


SKIPPED = "skipped"
DELETED = "deleted"
HIDES = "hides"
REFUSED = "refused"
MISPLACED = "misplaced"
BLOCKS = "blocks"

WORDS = {
    SKIPPED: "startup skips it",
    DELETED: "startup deletes it",
    HIDES: "no file that sorts behind it is loaded",
    REFUSED: "the broker does not start",
    MISPLACED: "it is loaded as if it belonged there",
    BLOCKS: "startup skips it, but no queue of this number can be made in its place",
}

_HARMLESS = (SKIPPED, DELETED)
# Some releases of a range that forgive an entry leave open what the broker in question does; one of many does not.
_MOSTLY = 2 / 3


class Entry(Struct, frozen=True):
    """An entry that does not belong where it is."""

    is_folder: bool
    is_number: bool  # its name
    is_empty: bool = False
    fits: bool = False  # as long as the files of its folder
    hides: bool = False  # files of the store sort behind it
    is_last: bool = False  # nothing at all does


def in_mapped_files(release: str, entry: Entry) -> str:
    """Return what a startup of a release makes of an entry among segments or the files of a queue."""
    rules = rules_of_start(release)
    if entry.is_folder and rules.folder_entry == "skip":
        return SKIPPED
    if entry.is_empty and entry.is_last and not entry.is_folder and rules.empty_last_file == "delete":
        return DELETED
    if entry.fits and not entry.is_folder:
        return MISPLACED if entry.is_number else REFUSED
    if rules.wrong_length == "ignore":
        return HIDES if entry.hides else SKIPPED
    return REFUSED


def in_index(release: str, entry: Entry) -> str:
    """Return what a startup of a release makes of an entry among the index files."""
    if not entry.is_number:
        return SKIPPED
    if not entry.is_folder:
        return MISPLACED
    if rules_of_start(release).index_folder == "refuse":
        return REFUSED
    return HIDES if entry.hides else SKIPPED


def in_dledger(release: str, entry: Entry) -> str:
    """Return what a startup makes of an entry among the files of DLedger. Source: MmapFileList#load."""
    return MISPLACED if entry.fits and entry.is_number else REFUSED


def among_queues(release: str, entry: Entry) -> str:
    """Return what a startup makes of a file in the place of a queue, or a folder whose name is no queue's."""
    return BLOCKS if entry.is_number and not entry.is_folder else SKIPPED


def among_topics(release: str, entry: Entry) -> str:
    """Return what a startup makes of a file in the place of a topic."""
    return SKIPPED


def severity_of(fates: Sequence[str]) -> str:
    """Return the severity of what releases make of an entry, each of which may be the broker's."""
    harmed = sum(fate not in (*_HARMLESS, BLOCKS) for fate in fates)
    if harmed:
        return "error" if harmed >= _MOSTLY * len(fates) else "warning"
    return "warning" if BLOCKS in fates else "info"


def in_words(releases: Sequence[str], fates: Sequence[str]) -> str:
    """Return what releases make of an entry; where they differ, which of them do what."""
    if len(set(fates)) == 1:
        return WORDS[fates[0]]
    parts = [
        (fate, [release for release, _ in group])
        for fate, group in groupby(zip(releases, fates, strict=True), lambda pair: pair[1])
    ]
    by_fate = {
        fate: ", ".join(_range(group) for other, group in parts if other == fate) for fate in dict.fromkeys(fates)
    }
    return "; ".join(f"{where}: {WORDS[fate]}" for fate, where in by_fate.items())


def _range(releases: Sequence[str]) -> str:
    return releases[0] if len(releases) == 1 else f"{releases[0]} to {releases[-1]}"
