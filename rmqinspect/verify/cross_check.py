"""Queues, index and timer log against the commit log, once all splits were checked.

A split is checked together with all that points into it. Whatever needs the whole log, or both neighbours of a
split border, comes here:

    split 0   split 1   split 2            CrossJudge
    |-------|---------|-------|  results   missing units, missing keys     missing.py
                                --------->  dangling pointers, loss        loss.py
                                            shifted units                  here
                                            chain of DLedger entries       commitlog/dledger.py
                                            order of units                 consumequeue/order.py

Invariants:
- Results arrive in log order; the findings do not depend on where splits were cut.
- Rows are capped while they are collected; counts stay exact.

Units of a queue that are out of order: CQ-ORDER and BQ-ORDER.

Physical offsets must ascend along a queue. Where they do not, one of three units is the outlier: the one whose
removal lets the others ascend.

    100  200  900  300  400      900 is reported: 200, 300 ascend without it
    100  200   50  300  400       50 is reported

Units that are wrong otherwise are left out: a dangling unit says nothing about its neighbours. So this runs last,
and only for queues that do not ascend.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from msgspec.structs import replace

from rmqinspect.codec.arrays import Ints
from rmqinspect.codec.layout import dtype_of
from rmqinspect.config.json_files import read_checkpoint
from rmqinspect.consumequeue.bounds import queue_files_of
from rmqinspect.consumequeue.units import LAYOUTS, message_mask, read_units, unit_numbers, unit_times
from rmqinspect.errors import Unreadable
from rmqinspect.store.model import QueueFile, Store
from rmqinspect.store.reader import open_file
from rmqinspect.system import uri
from rmqinspect.tables.capped_list import CappedList
from rmqinspect.text import count
from rmqinspect.times import time_words
from rmqinspect.verify.codes import WRONG_UNITS
from rmqinspect.verify.dledger import ChainEnds, join_chains
from rmqinspect.verify.findings import MERGED_ROWS, Finding, Found, capped_findings, place_in_log
from rmqinspect.verify.index_header import index_time
from rmqinspect.verify.index_join import IndexResult
from rmqinspect.verify.loss import DanglingJudge, MissingEntries, MissingUnits
from rmqinspect.verify.pointers import Joined
from rmqinspect.verify.queue_join import Shift, UnitResult, capped_shifts
from rmqinspect.verify.queue_survey import QueueSurvey
from rmqinspect.verify.salvaged import SalvagedUnits, batch_gap, bridges_of
from rmqinspect.verify.split import SplitResult, joined_unindexed
from rmqinspect.verify.unqueued import check_unqueued
from rmqinspect.verify.whole_log import LogSummary, finding_at
from rmqinspect.verify.wrong_records import Misnamed, Stamp, WrongTime, is_step, misnamed_records, without_followers

Spans = Sequence[tuple[int, int]]  # [start, end) in bytes of a file

_CARRIED = 3  # units of the window before: an outlier is judged with its two neighbours


def find_disorder(files: Sequence[QueueFile], wrong: Mapping[str, Spans]) -> Iterator[Finding]:
    """Yield the units of a queue that are out of order, without those in the `wrong` spans of its files.

    Files that cannot be read are skipped: the survey has reported them.
    """
    carried = np.empty((5, 0), np.int64)  # rows: physical offset, time in ms, number of the file, row, queue offset
    reported: set[tuple[int, int]] = set()
    for number, file in enumerate(files):
        try:
            with open_file(file) as reader:
                for row, units in read_units(reader, file.kind):
                    messages = np.flatnonzero(message_mask(units))
                    messages = messages[~_within(row + messages, wrong.get(file.name, ()), units.dtype.itemsize)]
                    offsets, _ = unit_numbers(file, row, units)
                    times, nothing = unit_times(units[messages]), np.zeros_like(messages)
                    columns = (
                        units["physical_offset"][messages],
                        nothing if times is None else times,
                        nothing + number,
                        row + messages,
                        offsets[messages],
                    )
                    lead = carried.shape[1]
                    window = np.concatenate((carried, np.stack(columns).astype(np.int64)), axis=1)
                    for at in _outliers(window[0], window[1], lead):
                        place, _, of_file, unit, offset = window[:, at].tolist()
                        if (of_file, unit) not in reported:
                            reported.add((of_file, unit))
                            before = int(window[0, at - 1]) if at else None
                            yield _finding(files[of_file], unit, offset, place, before)
                    carried = window[:, -_CARRIED:]
        except Unreadable:
            carried = carried[:, :0]


def _within(rows: Ints, spans: Spans, size: int) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return which rows begin in one of the spans."""
    inside = np.zeros(len(rows), np.bool_)
    for start, end in spans:
        inside |= (rows * size >= start) & (rows * size < end)
    return inside


def _outliers(places: Ints, times: Ints, lead: int) -> Iterator[int]:
    """Yield the outliers among consecutive units; those before `lead` were judged in the window before."""
    wrong = (places[1:] <= places[:-1]) | (times[1:] < times[:-1])
    for at in (np.flatnonzero(wrong) + 1).tolist():
        if at < lead:
            continue
        healed = at >= 2 and places[at - 2] < places[at]
        goes_on = at + 1 < len(places) and places[at + 1] > places[at - 1]
        yield at - 1 if healed and not goes_on else at


def _finding(file: QueueFile, row: int, offset: int, place: int, before: int | None) -> Finding:
    """Return a finding about a unit that points at `place`, the one before it at `before`."""
    behind = before is not None and place > before
    what = "the unit points at or before the record of the previous unit"
    if behind:
        what = "the unit points behind the record of the next unit"
    size = dtype_of(LAYOUTS[file.kind]).itemsize
    batch = file.kind == "batch_queue"
    if batch:
        what = "physical offsets or store times of batch units do not ascend here"
    return Finding(
        "BQ-ORDER" if batch else "CQ-ORDER",
        f"the queue is out of order: {what}",
        file=file.name,
        offset=row * size,
        length=size,
        topic=file.topic,
        queue_id=file.queue_id,
        queue_offset=offset,
        expected=None if before is None or behind else f"behind {before}",
        found=str(place),
    )


_MOST_RUNS = 100_000  # over all splits; overflow is merged


class CrossJudge:
    """Judges queues, index and timer log of one store against its commit log, from the results of the splits."""

    def __init__(
        self,
        store: Store,
        surveys: Sequence[QueueSurvey],
        *,
        deep: bool,
        elsewhere: bool,
        index_begin: int | None,
        limit: int,
        releases: Sequence[str] = (),
    ) -> None:
        """Prepare for a store whose queues were surveyed.

        `deep`: report every record without a unit. `elsewhere`: newer units may be in RocksDB, which was not read.
        `index_begin`: physical offset of the first index entry, if it is known. `limit`: rows of a code that are shown.
        `releases`: those that may have written the store.
        """
        self._store, self._surveys, self._deep = store, surveys, deep
        self._index_begin = index_begin or 0
        self._releases = releases
        self._kept = capped_findings(MERGED_ROWS * limit)
        self.suppressed = self._kept.suppressed
        self.unread: list[Finding] = []  # ST-IO
        self.joined_units = self.joined_entries = 0
        self.edge_times: dict[tuple[int, int], Stamp] = {}  # of index entries: see IndexResult
        self._wrong_times: list[WrongTime] = []
        self._misnamed: list[Misnamed] = []
        self.missing_units = MissingUnits(
            store, surveys, checkpoint_time(store, "logics_msg_timestamp"), elsewhere=elsewhere, releases=releases
        )
        self._missing_entries = MissingEntries()
        self.dangling = DanglingJudge(self.missing_units, whole_log=not _is_loose(store))
        self._shifts = capped_shifts(_MOST_RUNS)
        # Their overflow is merged: what is suppressed counts as an error.
        self._notes = CappedList[Finding, str](MERGED_ROWS * limit, lambda note: note.code, merge=_merged_notes)
        self._noted: dict[str, list[tuple[int, int]]] = defaultdict(list)
        self._bridged = False
        self._chains: list[ChainEnds] = []
        self._unindexed: tuple[int, int, int] | None = None  # as SplitResult has it
        self._before_index: tuple[int, int, int] | None = None
        self._begins_amid = False  # the last segment with records before the index goes on with records in it

    # --- results of the splits ------------------------------------------------------------------

    def take(self, result: SplitResult) -> None:
        """Take the next split's result."""
        for joined in result.joined:
            self.take_joined(joined)
        self._unindexed = joined_unindexed(self._unindexed, result.unindexed)
        self._before_index = joined_unindexed(self._before_index, result.before_index)
        if result.before_index is not None:
            self._begins_amid = result.split.segment.end > self._index_begin
        if (chain := result.chain) is not None:
            self._take_found(chain)
            chain.findings = []
            self._chains.append(chain)

    def take_joined(self, joined: Joined) -> None:
        """Take what points into the next split, or outside of all splits."""
        self._take_found(joined)
        self.dangling.take(joined.dangling)
        if isinstance(joined, UnitResult):
            self.joined_units += joined.joined
            self._shifts.extend(joined.shifts)
            self.missing_units.take(joined)
            self._misnamed += joined.misnamed
        elif isinstance(joined, IndexResult):
            self.joined_entries += joined.joined
            self.edge_times.update(joined.edge_times)
            self._wrong_times += joined.wrong_times
            self._missing_entries.take(joined)

    def _take_found(self, found: Found) -> None:
        self._kept.extend(found.findings)
        self.suppressed.update(found.suppressed)
        self.unread += found.unread

    def _without_index(self) -> Iterator[Finding]:
        """Yield IX-FIRST and IX-NONE.

        An index that begins with a segment was built anew: a start that scans from there deletes all files that are
        newer than the checkpoint's index time.
        """
        if self._before_index is not None and self._begins_amid:
            records, first, timestamp = self._before_index
            yield Finding(
                "IX-FIRST",
                f"keys of {count(records, 'record')} before the first index file are in none: key look-ups miss them",
                **place_in_log(self._store, first),
                count=records,
                counted=True,
                expected=f"an index file that begins at {first}",
                found=f"the first one begins at {self._index_begin}",
                timestamp=timestamp,
            )
        if self._unindexed is None:
            return
        records, first, timestamp = self._unindexed
        proof = _index_proof(self._store, timestamp)
        why = "messageIndexEnable=false since then, or files are gone" if proof else "or messageIndexEnable=false"
        writes = _index_setting(self._store)
        if writes is not None:
            proof = "messageIndexEnable=true in broker.conf" if writes else ""
            why = "files are gone, or it was false then" if writes else "broker.conf switches the index off"
        yield Finding(
            "IX-NONE",
            f"keys of {count(records, 'record')} since {time_words(timestamp)} are in no index file: key look-ups miss "
            f"them ({why})",
            severity="" if proof else "info",
            **place_in_log(self._store, first),
            count=records,
            counted=True,
            expected=f"an index file, because of {proof}" if proof else None,
            found="none" if proof else None,
            timestamp=timestamp,
        )

    # --- at the end of the log ------------------------------------------------------------------

    def finish(self, log: Sequence[Finding], summary: LogSummary) -> list[Finding]:
        """Return `log`, whose gaps now say what they held, and all findings of what points into the log."""
        sees_end = summary.end is not None
        self.missing_units.settle(summary.restarts, sees_end=sees_end)
        self._kept.extend(self.missing_units.findings(sees_end=sees_end, deep=self._deep))
        if self._deep and sees_end:
            self._kept.extend(check_unqueued(self._store, self.missing_units.without_topic, self._releases))
        log, dangling = self.dangling.finish(log, summary)
        salvaged, bridges = SalvagedUnits(self._store), bridges_of(log)
        self._bridged = bool(bridges)
        for finding in dangling:
            note = salvaged.nowhere(finding) or salvaged.timers(finding, bridges)
            self._kept.add(finding) if note is None else self._take_note(note)
        notes, shifts = salvaged.copies(self._shifts.rows) if self._bridged else ([], self._shifts.rows)
        for note in notes:
            self._take_note(note)
        self._kept.extend(_shift_findings(shifts))
        self._kept.extend(self._missing_entries.findings())
        self._kept.extend(self._without_index())
        self._kept.extend(join_chains(self._chains, unclean=bool(self._store.of_kind("abort"))))
        self._take_surveys()
        return self._without_followers(log, summary)

    def _take_note(self, note: Finding) -> None:
        """Take a note about units that salvage has written: nothing is wrong with them, however many they are."""
        assert note.file is not None and note.offset is not None
        self._notes.add(note)
        self._noted[note.file].append((note.offset, note.offset + (note.length or 1)))

    @property
    def misnamed(self) -> dict[int, Misnamed]:
        """Return the records that name the wrong queue, by physical offset."""
        return misnamed_records(self._misnamed)

    def _without_followers(self, log: Sequence[Finding], summary: LogSummary) -> list[Finding]:
        """Return all findings, and those of the records whose times the index contradicts."""
        wrong = [one for one in self._wrong_times if one.place not in summary.misdated]
        misdated = summary.misdated | {one.place for one in wrong}
        steps = [step.low.place for step in summary.time_steps if not misdated.isdisjoint(step.places)]
        self.edge_times = {key: stamp for key, stamp in self.edge_times.items() if stamp.place not in misdated}
        return [
            *(finding for finding in log if not (is_step(finding) and finding.physical_offset in steps)),
            *without_followers(self._without_noted(), self.misnamed, misdated),
            *self._notes.rows,
            *(
                finding_at(
                    self._store,
                    one.place,
                    "CL-TIME",
                    "the store timestamp is not the one in the index entries of the record",
                    f"{time_words(one.indexed)} and less than 1 s",
                    time_words(one.time),
                    severity="error",
                )
                for one in wrong
            ),
        ]

    def _without_noted(self) -> list[Finding]:
        """Return what was kept, but for what else there is to say about batch units that have a note."""
        noted = {(file, start) for file, spans in self._noted.items() for start, _ in spans}
        return [one for one in self._kept.rows if one.code != "BQ-COUNT" or (one.file, one.offset) not in noted]

    def _take_surveys(self) -> None:
        """Add the findings of the surveys, and the disorder of each queue without units that are wrong anyway."""
        wrong: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for file, spans in self._noted.items():
            wrong[file] += spans
        _mark_wrong_units(self._kept.rows, wrong)
        for survey, files in zip(self._surveys, queue_files_of(self._store), strict=True):
            self.suppressed.update(survey.suppressed)
            self._kept.extend(map(batch_gap, survey.findings) if self._bridged else survey.findings)
            if not survey.ascends:
                _mark_wrong_units(survey.findings, wrong)
                self._kept.extend(find_disorder(files, wrong))


def _mark_wrong_units(findings: Iterable[Finding], wrong: dict[str, list[tuple[int, int]]]) -> None:
    """Add the byte ranges of wrong units to those of their files."""
    for finding in findings:
        if finding.code in WRONG_UNITS and finding.file and finding.offset is not None:
            wrong[finding.file].append((finding.offset, finding.offset + (finding.length or 1)))


def _merged_notes(note: Finding, other: Finding) -> Finding:
    return replace(note, count=note.count + other.count, counted=True)


def _shift_findings(shifts: Iterable[Shift]) -> Iterator[Finding]:
    """Yield CQ-SHIFT; runs that continue each other across splits are one."""
    runs: list[Shift] = []
    for shift in sorted(_by_unit(shifts), key=lambda s: (s.topic, s.queue_id, s.unit)):
        last = runs[-1] if runs else None
        if last is not None and _continues(last, shift):
            runs[-1] = last._replace(units=last.units + shift.units)
        else:
            runs.append(shift)
    for run in runs:
        by = f"{abs(run.by)} {'after' if run.by > 0 else 'before'}"
        what = f"the unit's queue offset is {by} its record's"
        if run.units > 1:
            what = f"{run.units} units from queue offset {run.unit} on are {by} their records' queue offsets"
        yield Finding(
            "CQ-SHIFT",
            what,
            file=run.file,
            offset=run.position,
            physical_offset=run.physical_offset,
            topic=run.topic,
            queue_id=run.queue_id,
            queue_offset=run.unit,
            count=run.units,
            counted=run.units > 1,
            expected=str(run.unit - run.by),
            found=str(run.unit),
        )


def _by_unit(shifts: Iterable[Shift]) -> Iterator[Shift]:
    """Yield the shifts, each unit by itself where several lead to one record: each is another number of places off."""
    size = dtype_of(LAYOUTS["queue"]).itemsize
    for shift in shifts:
        for at in range(shift.units if shift.one_record else 0):
            unit, position = shift.unit + at, shift.position + at * size
            yield shift._replace(position=position, unit=unit, units=1, by=shift.by + at, one_record=False)
        if not shift.one_record:
            yield shift


def _continues(last: Shift, shift: Shift) -> bool:
    same = (last.topic, last.queue_id, last.by) == (shift.topic, shift.queue_id, shift.by)
    return same and last.unit + last.units == shift.unit


# --- the store --------------------------------------------------------------------------------------


def _index_proof(store: Store, first: int) -> str:
    """Return what proves that the broker wrote an index, in words; `first`: store time in ms of the first record.

    The checkpoint has an index time once a file was full, and the broker never deletes its newest index file; but a
    start after an unclean stop deletes what is newer than that time.
    Source: IndexService#flush, #deleteExpiredFile, #load; RocketMQ 4.0.0 to 5.5.0.
    """
    if store.index_files:
        return "the older index files"
    time = index_time(store)
    if store.of_kind("abort") and time < first:
        return ""
    return f"the index time of the checkpoint, {time_words(time)}" if time > 0 else ""


def _index_setting(store: Store) -> bool | None:
    """Return whether the broker.conf says that index files are written, None where no file was given.

    Source: MessageStoreConfig#messageIndexEnable, #indexFileWriteEnable (5.4.0 to 5.5.0), both true by default.
    """
    if not store.has_conf:
        return None
    names = ("messageIndexEnable", "indexFileWriteEnable")
    return all(store.settings.get(name, "true").lower() == "true" for name in names)


def checkpoint_time(store: Store, name: str) -> int:
    """Return a store time in ms of the checkpoint; 0 if it has none."""
    try:
        return read_checkpoint(store).get(name, 0)
    except Unreadable:
        return 0


def _is_loose(store: Store) -> bool:
    """Whether segments were given one by one: what lies before and behind them was not."""
    paths = {uri.realpath(path) for path in store.paths}
    return any(segment.path in paths for segment in store.segments)
