"""The rules for names, sizes, the lock and the checkpoint: the quick phase of verify.

Entries that do not belong where they are: CL-NAME, CQ-NAME, IX-NAME.

What they do to a broker depends on its version, so the releases that may have written the store decide the severity.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from msgspec import Struct

from rmqinspect.broker.acknowledged import Acknowledged, acknowledged_words
from rmqinspect.broker.eras import (
    Entry,
    among_queues,
    among_topics,
    in_dledger,
    in_index,
    in_mapped_files,
    in_words,
    severity_of,
)
from rmqinspect.codec.layout import Container, parse
from rmqinspect.commitlog.missing import absent_in, doubles_of
from rmqinspect.consumequeue.units import usual_sizes
from rmqinspect.errors import Unreadable
from rmqinspect.index.geometry import reread_index_file
from rmqinspect.rocksdb.databases import CONFIG, ENTRIES, QUEUES, Database, databases, unread_databases, used_databases
from rmqinspect.rocksdb.unpack import INSTALL, has_rocksdict
from rmqinspect.schemas import checkpoint
from rmqinspect.schemas.places import place_of
from rmqinspect.store.model import Oddity, Place, Segment, Store, StoreFile
from rmqinspect.store.reader import lock_holder, open_file
from rmqinspect.text import count, group_digits
from rmqinspect.times import time_words
from rmqinspect.verify.codes import levels_up_to
from rmqinspect.verify.findings import Finding, unread_finding

# A checkpoint may be this much newer than the newest record: the broker reads its clock twice.
CHECKPOINT_SKEW_MS = 1000
_OF_MASTER = "master_flushed_offset"
_QUEUED, _INDEXED = "logics_msg_timestamp", "index_msg_timestamp"


class _Part(Struct, frozen=True):
    """A part of a store that a level does not read."""

    kind: str  # of its files
    what: str
    costs: str  # what is not judged then
    level: str | None  # the lowest that reads it
    holds: str = ""  # of a RocksDB database: what it holds


_PARTS = (
    _Part("queue", "consume queues", "queue -> log", "standard"),
    _Part("batch_queue", "batch consume queues", "queue -> log", "standard"),
    _Part("ext_queue", "ext consume queues", "ext addresses", "standard"),
    _Part("dledger_index", "DLedger index", "index against entries", "standard"),
    _Part("index", "index files", "key search against the log", "deep"),
    _Part("timer_log", "timer log", "pending timer messages", "deep"),
    _Part("timer_wheel", "timer wheel", "pending timer messages", "deep"),
    _Part("rocksdb", "consume queues in RocksDB", "queue -> log, log -> queue", "standard", QUEUES),
    _Part("rocksdb", "configuration in RocksDB", "topics, groups", "standard", CONFIG),
    _Part("rocksdb", "timer messages in RocksDB", "pending timer messages", "deep", ENTRIES),
    _Part("rocksdb", "half messages and index in RocksDB", "pending transactions, key search", None, ENTRIES),
    _Part("rocksdb", "other RocksDB databases", "everything kept in them", None),
    _Part("compaction_log", "compaction logs", "compacted topics", None),
    _Part("compaction_queue", "compaction queues", "compacted topics", None),
)


_OPENED = ("abort", "checkpoint", "config/timercheck", "lock", "timerwheel")
_FOLDERS = ("config", "consumequeue", "index")


def check_files(store: Store) -> Iterator[Finding]:
    """Yield the findings about names, sizes and the lock of the store."""
    yield from _check_sizes(store)
    for hole in absent_in(store):
        yield Finding(
            "CL-HOLE",
            "a segment is missing: a later one is there",
            file=_name_beside(store, hole.start),
            physical_offset=hole.start,
            length=hole.end - hole.start,
            expected=f"a file {hole.start:020}",
            found="none",
        )
    yield from _check_doubles(store)
    yield from _check_lock(store)
    yield from _check_types(store)
    for oddity in store.unread_entries:
        yield Finding("ST-IO", f"not read: {oddity.detail}", file=oddity.name)


def _check_doubles(store: Store) -> Iterator[Finding]:
    try:
        for file, read, place in doubles_of(store.segments):
            more = ", and all that this one holds"
            if place is not None:
                more = f", and is read; they differ at physical {group_digits(place)} ({place:#x})"
            yield Finding(
                "CL-DUPLICATE",
                f"duplicate base offset: {read.name} has the same{more}",
                file=file.name,
                physical_offset=file.base,
            )
    except Unreadable as error:
        yield unread_finding(error)


def _name_beside(store: Store, base: int) -> str:
    """Return the name of a missing segment, in the folder of the one before it."""
    before = max((segment for segment in store.segments if segment.base < base), key=lambda segment: segment.base)
    folder, slash, _ = before.name.rpartition("/")
    return f"{folder}{slash}{base:020}"


def _check_sizes(store: Store) -> Iterator[Finding]:
    size = store.segment_size
    for segment in store.segments:
        if segment.size == 0 or (size is not None and segment.size != size):
            yield Finding(
                "CL-SIZE",
                "the segment's length differs from the store's segment size",
                file=segment.name,
                physical_offset=segment.base,
                expected=None if size is None else str(size),
                found=str(segment.size),
            )


def _check_types(store: Store) -> Iterator[Finding]:
    """Yield a finding for each folder in the place of a file that a broker opens, and for files in that of a folder."""
    files = [name for name in _OPENED if store.has_folder(*name.split("/"))]
    folders = [name for name in _FOLDERS if store.given == "store" and store.has_file(name)]
    for name in (*files, *folders):
        found, expected = ("folder", "file") if name in files else ("file", "folder")
        yield Finding(
            "ST-TYPE",
            f"a {found} lies in the place of a {expected}",
            file=name,
            expected=f"a {expected}",
            found=f"a {found}",
        )


def _check_lock(store: Store) -> Iterator[Finding]:
    aborts, holder = store.of_kind("abort"), lock_holder(store)
    if holder is not None:
        yield Finding(
            "ST-RUNNING",
            f"a broker is running on this store (pid {holder} holds the lock): files may change while they are read",
            file="lock",
            found=f"pid {holder}",
        )
    if aborts:
        what = "abort file present, and nobody holds the lock: unclean shutdown"
        if holder is not None:
            what = "abort file present: the broker is running"
        yield Finding("ST-ABORT", what, file=aborts[0].name)


_LONGEST_LEAD = 24 * 3_600_000  # ms; a time that leads by more is that of a wrong clock: `broker.acknowledged`
_WRONG_CLOCK = "the clock was wrong, the log lost its end, or the checkpoint is that of another store"


def check_checkpoint(
    store: Store, last_timestamp: int | None, log_end: int, queued: int | None = None
) -> Iterator[Finding]:
    """Yield ST-CHECKPOINT, given the store time of the newest record and the end of the log.

    A missing checkpoint is reported for whole stores only. `queued`: store time in ms of the newest record with a unit,
    None where a stop may leave an older one in the checkpoint.
    """
    file = store.checkpoint
    if file is None:
        if store.given == "store" and store.segments and not store.hides("checkpoint"):
            yield Finding(
                "ST-CHECKPOINT",
                "no checkpoint: startup after an unclean shutdown scans the log from its beginning",
                file="checkpoint",
                expected=f"{checkpoint.CHECKPOINT_SIZE} bytes",
                found="no file",
                absent=True,
            )
        return
    yield from _check_length(file)
    try:
        with open_file(file) as reader:
            raw = reader.read(0, checkpoint.CHECKPOINT_SIZE)
    except Unreadable as error:
        yield unread_finding(error)
        return
    used = checkpoint.Checkpoint.sizeof()
    # The broker writes the times of its records at each stop, and every minute.
    if file.size and not any(raw) and last_timestamp is not None:
        what = "the checkpoint is all zeros: startup after an unclean shutdown scans the log as without one"
        yield _of_checkpoint(file, what, 0, len(raw), "times of the newest records", "zeros")
        return
    yield from _check_rest(file, raw[used:], used)
    if last_timestamp is not None or store.given == "store":  # else the log was not given
        # The broker maps the file to its full length: missing bytes read as zeros.
        fields = parse(checkpoint.Checkpoint, raw[:used].ljust(used, b"\0"), lambda: file.name)
        for part in checkpoint.Checkpoint.subcons:
            yield from _check_field(
                file,
                part.name,
                int(fields[part.name]),
                last_timestamp,
                log_end,
                copied=bool(store.of_kind("abort")),
            )
        if store.given == "store" and not store.of_kind("abort"):
            yield from _check_age(file, fields, {_QUEUED: queued, _INDEXED: _full_index(store)})


def _of_checkpoint(
    file: StoreFile, what: str, offset: int, length: int, expected: str, found: str, severity: str = ""
) -> Finding:
    return Finding(
        "ST-CHECKPOINT",
        what,
        severity=severity,
        file=file.name,
        offset=offset,
        length=length,
        expected=expected,
        found=found,
    )


def _place_of(name: str) -> tuple[int, int]:
    """Return offset and length of a field of the checkpoint."""
    return place_of(checkpoint.Checkpoint, name), getattr(checkpoint.Checkpoint, name).sizeof()


def _check_age(file: StoreFile, fields: Container, known: Mapping[str, int | None]) -> Iterator[Finding]:
    """Yield ST-CHECKPOINT for a time that is older than `known` to be dispatched, by field.

    A stop in order writes the checkpoint last. Each put of a unit sets the time of the queues; of two index files, the
    first was full, and its flush sets that of the index. 0 is that of a checkpoint that a start made anew.

    Source: ConsumeQueue#putMessagePositionInfoWrapper, IndexService#flush, DefaultMessageStore#shutdown.
    """
    for name, newest in known.items():
        offset, size = _place_of(name)
        value = int(fields[name])
        if newest is not None and 0 < value < newest - CHECKPOINT_SKEW_MS and offset + size <= file.size:
            yield _of_checkpoint(
                file,
                f"a time is older than a stop in order leaves it: {name}; the checkpoint is of another time or store, "
                "or the file abort was removed",
                offset,
                size,
                f"at least {time_words(newest)}",
                time_words(value),
            )


def _full_index(store: Store) -> int | None:
    """Return the end time (ms) of the newest index file that another one follows, None without one."""
    headers = []
    for file in store.index_files:
        with suppress(Unreadable):  # `check_index_files` tells
            index = reread_index_file(file, geometry=None)  # to find out its geometry would take a megabyte of each
            headers += [index.header] if index.entries else []
    ends = sorted((int(one.begin_physical_offset), int(one.end_timestamp)) for one in headers if one is not None)
    return ends[-2][1] if len(ends) > 1 else None


def _check_length(file: StoreFile) -> Iterator[Finding]:
    if file.size == checkpoint.CHECKPOINT_SIZE:
        return
    short = file.size < checkpoint.CHECKPOINT_SIZE
    yield Finding(
        "ST-CHECKPOINT",
        f"wrong checkpoint length: {'missing fields read as 0' if short else 'bytes after the first page are ignored'}",
        file=file.name,
        expected=f"{checkpoint.CHECKPOINT_SIZE} bytes",
        found=f"{file.size} bytes",
    )


def _check_field(
    file: StoreFile, name: str, value: int, last_timestamp: int | None, log_end: int, *, copied: bool
) -> Iterator[Finding]:
    """Yield ST-CHECKPOINT for a field that is negative or ahead of the log; `copied`: maybe while the broker wrote."""
    is_time = name in checkpoint.TIMESTAMP_FIELDS
    limit = log_end
    if is_time:
        limit = last_timestamp + CHECKPOINT_SKEW_MS if last_timestamp is not None else 0
    # A slave keeps its master's offset, which it may not have reached.
    if value >= 0 and (value <= limit or name == _OF_MASTER):
        return
    # The name stands behind the colon: fields in the same state are one block on the screen.
    noun = "a time" if is_time else "an offset"
    if value < 0:
        what = f"{noun} is negative: {name}"
    elif last_timestamp is None:
        what = f"{noun} is set, but the log has no record: {name}; stored messages are lost"
    elif is_time:
        gone = acknowledged_words(Acknowledged(log_end, 1, {}, last_timestamp, value, ("the checkpoint",), copied))
        why = f"unless the checkpoint was changed, {gone}" if value <= last_timestamp + _LONGEST_LEAD else _WRONG_CLOCK
        what = f"{noun} is newer than the newest record: {name}; {why}"
    else:
        what = f"{noun} is past the end of the log: {name}"
    newest = "no record" if last_timestamp is None else time_words(last_timestamp)
    yield _of_checkpoint(
        file,
        what,
        *_place_of(name),
        f"at most {newest if is_time else log_end}",
        time_words(value) if is_time else str(value),
        severity="error" if last_timestamp is None and value > 0 else "",
    )


def _check_rest(file: StoreFile, raw: bytes, start: int) -> Iterator[Finding]:
    """Yield ST-CHECKPOINT for bytes that all known versions leave zero: a later version may use them."""
    rest = raw.rstrip(b"\0")
    if rest:
        first = len(rest) - len(rest.lstrip(b"\0"))
        what = "nonzero bytes after the last known field: written by a later version, or damaged"
        found = f"bytes {raw[first : first + 8].hex(' ')}"
        yield _of_checkpoint(file, what, start + first, len(rest) - first, "zeros", found, severity="info")


def list_unchecked(store: Store, level: str) -> Iterator[Finding]:
    """Yield ST-UNCHECKED for each part of the store that the level does not read."""
    for part in _PARTS:
        files, remedy, covered = _unchecked_files(store, part, level)
        if files:
            yield Finding(
                "ST-UNCHECKED",
                f"not checked: {part.what}, {count(len(files), 'file')}; not judged: {part.costs}"
                + (f" ({remedy})" if remedy else ""),
                file=files[0].name.split("/")[0],
                length=sum(file.size for file in files),
                count=len(files),
                unchecked=part.what,
                remedy=remedy,
                covered=covered,
            )


def _unchecked_files(store: Store, part: _Part, level: str) -> tuple[list[StoreFile], str, bool]:
    """Return the files of a part that were not read, what would read them, and whether the level covers them."""
    deeper = part.level if part.level not in levels_up_to(level) else None
    remedy = f"--level {deeper}" if deeper else ""
    if part.kind != "rocksdb":
        return (store.of_kind(part.kind) if deeper or not part.level else []), remedy, False
    if not part.holds:
        known = {file.path for database in databases(store) for file in database.files}
        return [file for file in store.of_kind("rocksdb") if file.path not in known], "", False
    if part.holds == ENTRIES and (deeper or not part.level):
        return [file for one in used_databases(store) if one.holds == part.holds for file in one.files], remedy, False
    unread = unread_databases(store, part.holds)
    covered = bool(unread) and not deeper and not _failed(store, unread)
    if covered:
        remedy = "--rocksdb" if has_rocksdict() else INSTALL
    in_files = any(file.kind == "queue" and file.noted is None for file in store.queue_files)
    if not unread and part.holds == QUEUES and in_files:
        # The same queues are in files, which count.
        unread = [one for one in databases(store) if one.holds == QUEUES]
    return [file for database in unread for file in database.files], remedy, covered


def _failed(store: Store, unread: Sequence[Database]) -> bool:
    """Whether it was tried to read all of these."""
    tried = {oddity.place for oddity in store.oddities if oddity.kind == "unreadable"}
    return all(database.place in tried for database in unread)


def segments_for_quick(store: Store) -> list[Segment]:
    """Return the last segment with data, and the preallocated ones behind it."""
    chosen: list[Segment] = []
    for segment in reversed(store.log_files):
        chosen.insert(0, segment)
        try:
            with open_file(segment) as reader:
                if any(reader.read(0, 8)):
                    break
        except Unreadable:
            break
    return chosen


_MOVE_IT = "copy the store, then move {file} out of {folder}"


class _Rule(NamedTuple):
    """What is wrong at a place, and what startups make of it."""

    code: str
    what: str
    expected: str
    fate: Callable[[str, Entry], str]


_SEGMENTS = _Rule("CL-NAME", "not a commit-log segment", "a file named with 20 digits", in_mapped_files)
_QUEUE_FILES = _Rule("CQ-NAME", "not a file of a queue", "a file named with 20 digits", in_mapped_files)
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
        found=f"the folder {own}" if entry.is_folder else own,
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
