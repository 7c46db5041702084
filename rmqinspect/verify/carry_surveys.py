"""What a report carries of queue and index files: their surveys, as long as a file stays the same.

A survey says which rows of a file point into which split. Splits are numbered from the log's start, so the numbers
move when retention takes segments: they are looked up by the physical offsets that a split holds.

    borders of the earlier run   0     64k    128k   192k    256k (end)
    borders of this run                       128k   192k    256k    320k (end)
    its numbers there            -1    -1     0      1       unknown: the end was open

A survey is taken over if each of its rows points into a split that is the same now, or before the log, and if the new
start of the log changes nothing in it. The file itself was compared before (`verify.since`).
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise

import msgspec
import numpy as np
from msgspec import Struct, field

from rmqinspect.codec.arrays import Ints
from rmqinspect.codec.layout import dtype_of
from rmqinspect.consumequeue.units import LAYOUTS
from rmqinspect.index.geometry import IndexFile
from rmqinspect.store.model import QueueFile
from rmqinspect.verify.carry import Prefix, encode, pack, unpack
from rmqinspect.verify.findings import Finding
from rmqinspect.verify.index_survey import IndexSurvey
from rmqinspect.verify.queue_survey import QueueSurvey
from rmqinspect.verify.survey import Surveys

_UNKNOWN = -2
_COLUMNS = 4  # of runs
_BEFORE = -1  # the number of what lies before the log


def map_borders(old: Sequence[int], new: Sequence[int]) -> Ints:
    """Return the numbers that the splits of an earlier run have now, shape (len(old) + 1,), from number -1 on.

    -2: not known, because a split is cut otherwise, or was the open end of the log.
    """
    begins = {border: number for number, border in enumerate(new)}
    start = new[0] if new else 0
    mapped = np.full(len(old) + 1, _UNKNOWN, np.int64)
    if not old or old[0] <= start:
        mapped[0] = _BEFORE
    for number, (begin, end) in enumerate(pairwise(old)):
        now = begins.get(begin)
        if end <= start:
            mapped[number + 1] = _BEFORE
        elif now is not None and now + 1 < len(new) and new[now + 1] == end:
            mapped[number + 1] = now
    return mapped


class KeptRuns(msgspec.Struct, array_like=True, frozen=True):
    """Runs as `plan.Runs` has them: differences from row to row, which compress well."""

    raw: bytes

    @classmethod
    def of(cls, runs: Ints) -> "KeptRuns":
        """Return runs as they are kept."""
        return cls(np.diff(runs, axis=0, prepend=np.zeros((1, _COLUMNS), np.int64)).astype("<i8").tobytes())

    def runs(self, mapping: Ints, most_rows: Sequence[int]) -> Ints | None:
        """Return the runs with the numbers of this run, None if a row points where that is not known.

        `most_rows`: how many rows each file may hold, by its number.
        """
        if len(self.raw) % (8 * _COLUMNS):
            return None
        rows = np.cumsum(np.frombuffer(self.raw, "<i8").reshape(-1, _COLUMNS), axis=0, dtype=np.int64)
        if not len(rows):
            return rows
        split, file, first, count = rows.T
        known = (split >= _BEFORE) & (split + 1 < len(mapping)) & (file >= 0) & (file < len(most_rows))
        if not known.all():
            return None
        most = np.array(most_rows, np.int64)[file]
        if not ((first >= 0) & (count > 0) & (first <= most) & (count <= most - first)).all():
            return None
        rows[:, 0] = mapping[split + 1]
        return None if (rows[:, 0] == _UNKNOWN).any() else rows


class KeptQueue(msgspec.Struct, array_like=True):
    """The survey of a queue."""

    files: list[str]
    runs: KeptRuns
    numbers: tuple[bool, int, int, int, int, int, int | None, int | None]
    findings: list[Finding]
    suppressed: dict[str, int]

    @classmethod
    def of(cls, survey: QueueSurvey, files: Sequence[QueueFile]) -> "KeptQueue":
        """Return what is kept of a survey."""
        numbers = survey.ascends, survey.units, survey.expired, survey.zero_behind, survey.first_kept, survey.max_offset
        places = survey.first_physical_offset, survey.last_physical_offset
        names = [file.name for file in files]
        return cls(names, KeptRuns.of(survey.runs), (*numbers, *places), survey.findings, dict(survey.suppressed))

    def survey(self, files: Sequence[QueueFile], mapping: Ints, was_start: int, start: int) -> QueueSurvey | None:
        """Return the survey of the same files, None if it has to be made again."""
        ascends, _, expired, zero_behind, _, _, first_place, _ = self.numbers
        if self.files != [file.name for file in files]:
            return None
        above = ascends and not expired and not zero_behind and (first_place is None or first_place >= start)
        size = dtype_of(LAYOUTS[files[0].kind]).itemsize
        runs = self.runs.runs(mapping, [file.size // size for file in files])
        if runs is None or not (start == was_start or (above and start >= was_start)):
            return None
        first = files[0]
        return QueueSurvey(
            first.topic,
            first.queue_id,
            first.kind,
            runs,
            *self.numbers,
            findings=self.findings,
            suppressed=Counter(self.suppressed),
        )


class KeptIndex(msgspec.Struct, array_like=True):
    """The survey of an index file."""

    file: str
    geometry: tuple[int, int] | None  # which may be known from other files
    runs: KeptRuns
    used: int
    places: tuple[int | None, int | None, int | None]  # first, last, lowest
    times_reported: bool
    findings: list[Finding]
    suppressed: dict[str, int]

    @classmethod
    def of(cls, survey: IndexSurvey) -> "KeptIndex":
        """Return what is kept of a survey."""
        places = survey.first_physical_offset, survey.last_physical_offset, survey.lowest
        kept = KeptRuns.of(survey.runs)
        found, used = survey.index, survey.used_entries
        told = survey.times_reported, survey.findings, dict(survey.suppressed)
        return cls(found.file.name, _geometry(found), kept, used, places, *told)

    def survey(self, index: IndexFile, mapping: Ints, was_start: int, start: int) -> IndexSurvey | None:
        """Return the survey of the same file, None if it has to be made again."""
        first, last, lowest = self.places
        runs = self.runs.runs(mapping, [index.last_entry + 1])
        # IX-DANGLING depends on where the log begins.
        dangles = "IX-DANGLING" in self.suppressed or any(one.code == "IX-DANGLING" for one in self.findings)
        limit = min(first or 0, start)
        above = start >= was_start and not dangles and (lowest is None or lowest >= limit)
        if runs is None or not 0 <= self.used <= index.last_entry or not (start == was_start or above):
            return None
        if self.geometry != _geometry(index):
            return None
        return IndexSurvey(
            index,
            runs,
            self.used,
            first,
            last,
            self.times_reported,
            lowest,
            findings=self.findings,
            suppressed=Counter(self.suppressed),
        )


def _geometry(index: IndexFile) -> tuple[int, int] | None:
    return None if index.geometry is None else (index.geometry.slots, index.geometry.entries)


class _Wire(msgspec.Struct, array_like=True):
    borders: list[int]
    log_start: int
    names: list[tuple[str, int]]
    queues: list[KeptQueue]
    index: list[KeptIndex]
    prefixes: dict[str, Prefix]


class KeptSurveys(Struct):
    """The surveys of a run, and the digests of the rows of each file."""

    borders: list[int] = field(default_factory=list)  # physical offsets where its splits began
    log_start: int = 0
    names: list[tuple[str, int]] = field(default_factory=list)  # of all queues with files
    queues: dict[str, KeptQueue] = field(default_factory=dict)  # by name of the first file
    index: dict[str, KeptIndex] = field(default_factory=dict)
    prefixes: dict[str, Prefix] = field(default_factory=dict)

    def take(self, surveys: Surveys, queues: Iterable[Sequence[QueueFile]]) -> None:
        """Take the surveys of a run, but those of files that could not be read in full."""
        for survey, files in zip(surveys.queues, queues, strict=True):
            if not survey.unread:
                self.queues[files[0].name] = KeptQueue.of(survey, files)
        for found in surveys.index:
            if not found.unread:
                self.index[found.index.file.name] = KeptIndex.of(found)

    def pack(self) -> str:
        """Return all as the text of a state."""
        parts = [*self.queues.values()], [*self.index.values()], self.prefixes
        return pack(encode(_Wire(self.borders, self.log_start, self.names, *parts)))

    @classmethod
    def unpack(cls, text: str) -> "KeptSurveys":
        """Return the surveys of a state.

        :raises ValueError: the text is none.
        """
        try:
            wire = msgspec.msgpack.decode(unpack(text), type=_Wire)
        except (KeyError, TypeError, OverflowError, RecursionError) as error:
            raise ValueError(str(error)) from error
        queues = {kept.files[0]: kept for kept in wire.queues if kept.files}
        index = {kept.file: kept for kept in wire.index}
        return cls(wire.borders, wire.log_start, wire.names, queues, index, wire.prefixes)
