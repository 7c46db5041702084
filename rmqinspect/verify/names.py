"""Entries that do not belong where they are: CL-NAME, CQ-NAME, IX-NAME.

What they do to a broker depends on its version, so the releases that may have written the store decide the severity.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from rmqinspect.broker.strays import (
    Entry,
    among_queues,
    among_topics,
    in_dledger,
    in_index,
    in_mapped_files,
    in_words,
    severity_of,
)
from rmqinspect.consumequeue.sizes import usual_sizes
from rmqinspect.store.model import Oddity, Place, Store
from rmqinspect.verify.findings import Finding

_MOVE_IT = "copy the store, then move {file} out of {folder}"


class _Rule(NamedTuple):
    """What is wrong at a place, and what startups make of it."""

    code: str
    what: str
    expected: str
    fate: Callable[[str, Entry], str]


_SEGMENTS = _Rule("CL-NAME", "not a commit-log segment", "20 digits", in_mapped_files)
_QUEUE_FILES = _Rule("CQ-NAME", "not a file of a queue", "20 digits", in_mapped_files)
# The first component of a place, and how many components: the rule of an entry there.
_RULES: Mapping[tuple[str, int], _Rule] = {
    ("commitlog", 2): _SEGMENTS,
    ("dledger", 3): _SEGMENTS._replace(fate=in_dledger),
    **{
        (folder, depth): rule
        for folder in ("consumequeue", "batchconsumequeue", "consumequeue_ext")
        for depth, rule in (
            (2, _Rule("CQ-NAME", "not a topic", "the folder of a topic", among_topics)),
            (3, _Rule("CQ-NAME", "not a queue", "the folder of a queue, named with its number", among_queues)),
            (4, _QUEUE_FILES),
        )
    },
    ("index", 2): _Rule("IX-NAME", "not an index file", "a file named with a number", in_index),
}
_KINDS = {"consumequeue": "queue", "batchconsumequeue": "batch_queue", "consumequeue_ext": "ext_queue"}


def has_strays(store: Store) -> bool:
    """Whether anything does not belong where it is."""
    return any(_rule_of(oddity) for oddity in store.oddities) or any(_misfits(store))


def check_names(store: Store, releases: Sequence[str]) -> Iterator[Finding]:
    """Yield a finding for every entry that a startup of `releases` would not expect."""
    sizes: dict[Place, int] = {}
    names: dict[Place, list[str]] = {}  # of the store's own files, by folder
    lengths = {file.path: file.size for file in store.files}
    for file in store.files:
        if file.kind != "other":
            names.setdefault(_folder_of(file.name), []).append(file.name.rpartition("/")[2])
    strays = [(oddity, rule) for oddity in store.oddities if (rule := _rule_of(oddity)) is not None]
    odd = {oddity.name for oddity, _ in strays}
    for oddity, rule in strays:
        own, folder = oddity.place[-1], _folder_of(oddity.name)
        beside = [name.rpartition("/")[2] for name in odd if _folder_of(name) == folder]
        size = lengths.get(oddity.path, 0)
        sizes.setdefault(folder, _usual_size(store, oddity.place))
        entry = Entry(
            is_folder=oddity.kind == "directory",
            is_number=own.removeprefix("-").isdecimal(),
            is_empty=size == 0,
            fits=size == sizes[folder] > 0,
            hides=any(name > own for name in names.get(folder, [])),
            is_last=all(name <= own for name in (*names.get(folder, []), *beside)),
        )
        yield _finding(rule, oddity.name, oddity.detail, own, releases, entry)
    for name in _misfits(store):
        detail = "its number is no multiple of the files' length"
        entry = Entry(is_folder=False, is_number=True, fits=True)
        yield _finding(_QUEUE_FILES, name, detail, name.rpartition("/")[2], releases, entry)


def _finding(rule: _Rule, name: str, detail: str, own: str, releases: Sequence[str], entry: Entry) -> Finding:
    fates = [rule.fate(release, entry) for release in releases]
    severity = severity_of(fates)
    return Finding(
        rule.code,
        f"{own} is {rule.what}: {detail}; {in_words(releases, fates)}",
        severity=severity,
        file=name,
        expected=rule.expected,
        found=own,
        do="" if severity == "info" else _MOVE_IT,
    )


def _rule_of(oddity: Oddity) -> _Rule | None:
    if oddity.is_unread or not oddity.place:
        return None
    root = oddity.place[0]
    return _RULES.get(("dledger" if root.startswith("dledger-") else root, len(oddity.place)))


def _folder_of(name: str) -> Place:
    return tuple(name.split("/")[:-1])


def _usual_size(store: Store, place: Place) -> int:
    """Return the length of the files that belong into the folder of a place; 0: not known."""
    if place[0] in _KINDS:
        return usual_sizes(store).get(_KINDS[place[0]], 0)
    return (store.segment_size or 0) if place[0] != "index" else 0


def _misfits(store: Store) -> Iterator[str]:
    """Yield the names of queue files that lie between the places where files of the queue begin."""
    sizes = usual_sizes(store)
    for kind, usual in sizes.items():
        files = [file for file in store.queue_files if file.kind == kind and file.noted is None]
        fitting = [file for file in files if file.size == usual]
        # A single file may have been cut: its length says nothing.
        if len(fitting) > 1:
            yield from (file.name for file in fitting if file.base % usual)
