"""`verify --since REPORT`: which files are as an earlier run saw them, and what is taken over from it.

    earlier report            files now                     this run
    custody: size, time  ---  the same                      its result is taken over (`verify.carry`)
                              longer, its old rows the same  read; the splits it led into are taken over
                              anything else                 read, and so is each split that it leads into
                              not there any more            its facts leave the report

A time says nothing about a write in the last moments before the earlier run: a page that is written through a memory
mapping again, while it is dirty, keeps its time. So a file is the same only if its time was a minute old then.

A file whose bytes changed while its size and time did not is not noticed: that is what `--reread` is for.
"""

import hashlib
import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Annotated, Protocol

import numpy as np
from msgspec import Struct

from rmqinspect.codec.arrays import Bools, Ints
from rmqinspect.commitlog.gaps import Split
from rmqinspect.consumequeue.bounds import queue_files_of
from rmqinspect.document import Part, means
from rmqinspect.errors import Unreadable
from rmqinspect.forecast.fed_scan import FedPart
from rmqinspect.index.geometry import IndexFile
from rmqinspect.store.model import QueueFile, Segment, Store, StoreFile
from rmqinspect.store.reader import open_file
from rmqinspect.times import format_nanos
from rmqinspect.verify.carry import (
    FORMAT,
    Inputs,
    Prefix,
    SegmentStates,
    decode_split,
    prefixes_of,
    rows_used,
    same_rows,
    unpack_splits,
)
from rmqinspect.verify.carry_surveys import KeptSurveys, map_borders
from rmqinspect.verify.custody import CustodyFile, Inventory, ReportedCustody
from rmqinspect.verify.findings import moment
from rmqinspect.verify.index_survey import IndexSurvey
from rmqinspect.verify.plan import CrossPlan
from rmqinspect.verify.queue_survey import QueueSurvey
from rmqinspect.verify.split import CheckLimits, SplitResult
from rmqinspect.verify.survey import Surveys

_SETTLED = timedelta(minutes=1)  # a broker flushes its files within 1 s, the thorough flush is every 10 to 60 s
_HEAD = 4096  # bytes by which a segment is known
_HEADS = 16  # segments that are compared
_MOST_UNPACKED = 2 << 30  # bytes of all states together: those of 10 TB of log take some 200 MB

# --- in the report ------------------------------------------------------------------------------------


class ResumeSegment(Part, frozen=True):
    """What the next run takes over of a segment."""

    file: Annotated[str, means("name relative to the store")]
    head: Annotated[str | None, means("digest of its first 4 KiB, by which a store is known; null: they are zeros")]
    state: Annotated[
        str | None,
        means(
            "the results of its splits: Base64 of a zlib stream of MessagePack, at most a 64th of the segment's size "
            "or 64 KiB; null: it is read again"
        ),
    ]


class Resume(Part, frozen=True):
    """From what `verify --since` goes on."""

    format: Annotated[int, means("of the states: 1")]
    max_findings: Annotated[int, means("`--max-findings` of the run")]
    broker_version: Annotated[str | None, means("`--broker-version` of the run")]
    segments: Annotated[list[ResumeSegment], means("in log order")]
    surveys: Annotated[str, means("what was read in queue and index files, encoded as `state`")]
    checksum: Annotated[str, means("BLAKE2b digest of all states")]


class Reread(Part, frozen=True):
    """The part that was read again although nothing spoke for a change."""

    share: Annotated[str, means("as `--reread` asked for it")]
    seed: Annotated[int, means("of the random choice")]
    files: Annotated[list[str], means("the files that were read again, by name")]
    differ: Annotated[list[str], means("those of them that are not what the earlier run saw, by name")]


class TakenOver(Part, frozen=True):
    """What was taken over from an earlier report."""

    report: Annotated[str, means("its file as given")]
    sha256: Annotated[str, means("SHA-256 of that file")]
    ended: Annotated[str, means("when its run ended, ISO 8601 in UTC")]
    segments: Annotated[int, means("segments of which nothing was read")]
    bytes: Annotated[int, means("bytes of log that were not read")]
    queues: Annotated[int, means("queues of which nothing was read")]
    index_files: Annotated[int, means("index files of which nothing was read")]
    changed: Annotated[
        list[str],
        means("files that were there and did not only grow, by name: what leads to or from them was read again"),
    ]
    gone: Annotated[int, means("files of the earlier run that are not there any more")]
    reread: Annotated[Reread | None, means("what `--reread` took again; null without it")]


class Share(Struct, frozen=True):
    """The part of the unchanged files that is read again."""

    text: str = "0%"
    percent: float = 0
    seed: int = 0

    def choose(self, names: Sequence[str]) -> list[str]:
        """Return the files that are read again, of files of one kind: at least one."""
        number = min(len(names), math.ceil(len(names) * self.percent / 100))
        return random.Random(self.seed).sample(sorted(names), number)


class Asked(Protocol):
    """What a run was asked for, as far as a later one has to be asked for the same."""

    @property
    def max_findings(self) -> int:
        """Rows per code."""

    @property
    def broker_version(self) -> str | None:
        """A release; None: estimated from the store."""


class Earlier(Struct, frozen=True):
    """An earlier report, as far as a run goes on from it."""

    path: str
    sha256: str
    started: str
    ended: str
    custody: ReportedCustody
    resume: Resume
    full: frozenset[str] = frozenset()  # segments that another one with records followed

    def check(self, store: Store) -> None:
        """Compare the store with that of the report.

        :raises ValueError: it is another one, or the states are damaged.
        """
        if self.resume.checksum != checksum_of(self.resume.segments, self.resume.surveys):
            raise ValueError(f"{self.path}: its section `resume` is damaged, or was changed")
        heads = {one.file: one.head for one in self.resume.segments if one.head is not None}
        common = [segment for segment in store.segments if segment.name in heads][:_HEADS]
        if heads and not common:
            raise ValueError(f"{self.path}: the report of another store: none of its segments is here")
        if common and all(_head_of(segment) != heads[segment.name] for segment in common):
            raise ValueError(f"{self.path}: the report of another store: {common[0].name} begins with other bytes")


def _head_of(segment: Segment) -> str | None:
    try:
        with open_file(segment) as reader:
            raw = reader.read(0, _HEAD)
    except Unreadable:
        return None
    return hashlib.blake2b(raw, digest_size=16).hexdigest() if any(raw) else None


def checksum_of(segments: Iterable[ResumeSegment], surveys: str) -> str:
    """Return the checksum of what a report carries."""
    digest = hashlib.blake2b(digest_size=16)
    for text in (*(f"{one.file}\0{one.head}\0{one.state}\0" for one in segments), surveys):
        digest.update(text.encode("utf-8", "backslashreplace"))
    return digest.hexdigest()


# --- the run ------------------------------------------------------------------------------------------


@dataclass
class Memory:
    """What a run takes over from an earlier one, and keeps for the next. Its methods may run in any thread."""

    store: Store
    inventory: Inventory  # before the first byte was read
    earlier: Earlier | None = None
    share: Share = field(default_factory=Share)
    same: frozenset[str] = frozenset()  # files that are as the earlier run saw them, and not read again
    reread: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._known: Mapping[str, CustodyFile] = {}
        self._heads: dict[str, str | None] = {}
        self._old = KeptSurveys()
        self._inputs: Inputs | None = None
        self._altered: dict[str, Bools] = {}
        self._changed: set[str] = set()
        self._differ: set[str] = set()
        self._other_queues: frozenset[tuple[str, int]] = frozenset()
        self._prefixes: dict[str, Prefix] = {}
        self._keep = SegmentStates()
        self._splits: dict[tuple[str, int], bytes] = {}  # by name of the segment and start of the split
        self._taken: dict[str, int] = {}  # segments: bytes taken over
        self._queues = self._index_files = 0
        self._mapping: Ints | None = None
        self._log_start = self.store.log_start
        if self.earlier is not None:
            self._compare(self.earlier)

    def _compare(self, earlier: Earlier) -> None:
        """Find out which files are as they were, and choose those that are read again.

        :raises ValueError: what the report carries cannot be read.
        """
        self._known = {file.file: file for file in earlier.custody.files}
        settled = moment(earlier.started) - _SETTLED
        moved = {change.file for change in earlier.custody.changed}
        same = set()
        for name, exhibit in self.inventory.exhibits.items():
            was = self._known.get(name)
            if was is None or was.size != exhibit.file.size or was.mtime != format_nanos(exhibit.mtime_ns):
                continue
            if name not in moved and moment(was.mtime[:26].rstrip("Z") + "+00:00") <= settled:
                same.add(name)
        store = self.store
        kinds: list[Sequence[StoreFile]] = [store.segments, store.queue_files, store.index_files]
        chosen = (self.share.choose([file.name for file in files if file.name in same]) for files in kinds)
        self.reread = sorted(name for names in chosen for name in names)
        self.same = frozenset(same.difference(self.reread))
        unpacked = 0
        for one in earlier.resume.segments:
            if one.state is not None and (one.file in self.same or one.file in self.reread):
                raws = unpack_splits(one.state)
                self._splits |= {(one.file, start): raw for start, raw in raws}
                unpacked += sum(len(raw) for _, raw in raws)
            if unpacked > _MOST_UNPACKED:
                raise ValueError(f"{earlier.path}: states of more than {_MOST_UNPACKED >> 30} GiB")
        self._heads = {one.file: one.head for one in earlier.resume.segments}
        self._old = KeptSurveys.unpack(earlier.resume.surveys)

    @property
    def digests(self) -> dict[str, str]:
        """The SHA-256 of the files that are not read, by name, as far as the earlier report has them."""
        return {name: file.sha256 for name, file in self._known.items() if file.sha256 and name in self.same}

    # --- surveys --------------------------------------------------------------------------------

    def map_log(self, borders: Ints) -> None:
        """Take the physical offsets where the splits of this run begin."""
        self._mapping = map_borders(self._old.borders, borders.tolist())

    def queue(self, files: Sequence[QueueFile]) -> QueueSurvey | None:
        """Return the survey of a queue that is as it was; None: it has to be read."""
        if self._mapping is None or not all(file.name in self.same for file in files):
            return None
        kept = self._old.queues.get(files[0].name)
        found = None if kept is None else kept.survey(files, self._mapping, self._old.log_start, self._log_start)
        self._queues += found is not None
        return found

    def index_file(self, index: IndexFile) -> IndexSurvey | None:
        """Return the survey of an index file that is as it was; None: it has to be read."""
        if self._mapping is None or index.file.name not in self.same:
            return None
        kept = self._old.index.get(index.file.name)
        found = None if kept is None else kept.survey(index, self._mapping, self._old.log_start, self._log_start)
        self._index_files += found is not None
        return found

    # --- the log --------------------------------------------------------------------------------

    def plan(self, plan: CrossPlan | None, limits: CheckLimits) -> None:
        """Take what the splits are checked against, before the first of them is."""
        self._inputs = Inputs(plan, limits)
        if plan is None:
            return
        of_queues, of_index = rows_used(plan)
        queues = [(file, 0, rows) for file, rows in zip(plan.queue_files, of_queues.tolist(), strict=True)]
        index = [
            (one.file, 0 if one.geometry is None else one.geometry.entry_position(0), rows)
            for one, rows in zip(plan.index, of_index.tolist(), strict=True)
        ]
        for kind, files in (("unit", queues), ("entry", index)):
            altered = np.zeros(len(files), np.bool_)
            for number, (file, begin, rows) in enumerate(files):
                altered[number] = self._is_altered(file, begin, rows)
            self._altered[kind] = altered
        if self.earlier is not None:
            names = frozenset(plan.queues.names)
            others = {queue for queue, ext in plan.ext_files.items() if any(one.name not in self.same for one in ext)}
            self._other_queues = names.symmetric_difference(self._old.names) | others

    def _is_altered(self, file: StoreFile, begin: int, rows: int) -> bool:
        """Note the digest of a file's rows; return whether the rows that were there are others now."""
        was = self._old.prefixes.get(file.name)
        if file.name in self.same and was is not None and was.rows == rows:
            self._prefixes[file.name] = was
            return False
        before = min(rows, was.rows) if was is not None else rows
        then, now = prefixes_of(file, begin, before, rows)
        if now is not None:
            self._prefixes[file.name] = now
        if file.name not in self._known:
            return False  # a new one: its rows are new
        same = was is not None and then == was
        if not same:
            (self._differ if file.name in self.reread else self._changed).add(file.name)
        return not same

    def known(self, split: Split, is_enough: Callable[[FedPart | None], bool]) -> SplitResult | None:
        """Return the result of a split whose segment and inputs are as they were; None: it has to be read.

        `is_enough` gets what stands for its records, and says whether the scan of a start needs no more.
        """
        segment = split.segment
        if split.entry is not None or self._inputs is None or segment.name not in self.same:
            return None
        # Entries of DLedger are compared with units of its index, of which any may be new.
        units = self.store.of_kind("dledger_index") if segment.kind == "dledger" else []
        if any(file.name not in self.same for file in units):
            return None
        try:
            kept = decode_split(self._splits.get((segment.name, split.start), b""))
            kept.check(split)
            if not is_enough(kept.fed) or not self._other_queues.isdisjoint(kept.names):
                return None
            if not same_rows(self._inputs.files_of(split), self._altered) or kept.inputs != self._inputs.digest(split):
                return None
        except (ValueError, Unreadable):  # a state that nobody wrote, or a timer log that cannot be read: read it
            return None
        return kept.result(split, self._inputs.plan)

    # --- for the next run -----------------------------------------------------------------------

    def take(self, result: SplitResult) -> None:
        """Take the result of the next split, in log order, before it is judged."""
        if self._inputs is None:
            return
        split, name = result.split, result.split.segment.name
        was = self._splits.get((name, split.start))
        raw = self._keep.take(result, self._inputs, was if result.is_taken_over else None)
        if result.is_taken_over:
            self._taken[name] = self._taken.get(name, 0) + split.end - split.start
        if name in self.reread and was is not None and raw is not None and raw != was and _same_inputs(raw, was):
            self._differ.add(name)

    def resume(self, surveys: Surveys, plan: CrossPlan | None, options: Asked) -> Resume:
        """Return what the next run needs, when the log was read."""
        self._keep.finish()
        states = self._keep.states
        heads = {name: head for name, head in self._heads.items() if name in self.same}
        heads |= {segment.name: _head_of(segment) for segment in self.store.segments if segment.name not in heads}
        segments = [ResumeSegment(one.name, heads[one.name], states.get(one.name)) for one in self.store.segments]
        kept = KeptSurveys(log_start=self._log_start, prefixes=self._prefixes)
        if plan is not None:
            kept.borders, kept.names = list(plan.log.borders), list(plan.queues.names)
            kept.take(surveys, list(queue_files_of(self.store)))
        text = kept.pack()
        checksum = checksum_of(segments, text)
        return Resume(FORMAT, options.max_findings, options.broker_version, segments, text, checksum)

    def taken_over(self) -> TakenOver | None:
        """Return what was taken over; None without an earlier report."""
        earlier = self.earlier
        if earlier is None:
            return None
        sizes = {segment.name: segment.size for segment in self.store.segments}
        changed = {name for name in earlier.full if name in sizes and name not in self.same and name not in self.reread}
        reread = None
        if self.share.percent:
            reread = Reread(self.share.text, self.share.seed, self.reread, sorted(self._differ))
        return TakenOver(
            report=earlier.path,
            sha256=earlier.sha256,
            ended=earlier.ended,
            segments=sum(size == sizes.get(name) for name, size in self._taken.items()),
            bytes=sum(self._taken.values()),
            queues=self._queues,
            index_files=self._index_files,
            changed=sorted(changed | self._changed),
            gone=len(self._known.keys() - self.inventory.exhibits.keys()),
            reread=reread,
        )


def _same_inputs(raw: bytes, was: bytes) -> bool:
    try:
        return decode_split(raw).inputs == decode_split(was).inputs
    except ValueError:
        return True
