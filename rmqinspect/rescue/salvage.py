"""One `salvage`: sources judged, one log put together, written, its derived files anew; proven, then named.

    sources     judged by verify           what is sound, damaged, of an earlier life        sources.py
    log         put together               copied, repaired, bridged; the rest aside         log_plan.py, repair.py
    NEW         segments without a change  linked, reflinked or copied; the others written   here
                config, timer              copied if sound                                   other_files.py
                queues, index, checkpoint  from NEW's own log                                rebuild.py
                                           verify and forecast: WHOLE, loses nothing

Invariants: as `NewStore`: the evidence is only read, NEW gets its name whole or not at all. What is not in NEW is in
the receipt; what can be read of it lies in NEW.aside.
"""

import os
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from typing import Any, BinaryIO

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from rmqinspect.broker.start_rules import Rules
from rmqinspect.codec.arrays import Ints
from rmqinspect.config.json_files import read_config
from rmqinspect.document import as_object
from rmqinspect.errors import NotAStore, Refused
from rmqinspect.forecast.words import verdict_line
from rmqinspect.rescue import salvage_receipt as document
from rmqinspect.rescue.aside import write_aside
from rmqinspect.rescue.bridge import LARGEST, bridge
from rmqinspect.rescue.broken_files import TIMER, Broken, broken_files
from rmqinspect.rescue.job import QUEUE_DATABASES, RebuildRequest, derived
from rmqinspect.rescue.ledger_bridge import ledger_bridge
from rmqinspect.rescue.ledger_plan import LedgerPlanner
from rmqinspect.rescue.ledger_state import ledger_of, mend_state
from rmqinspect.rescue.log_plan import Kept, LogPlan, Planner
from rmqinspect.rescue.lost_queues import end_with_bridge, find_lost_beginnings, find_lost_queues, planned_records
from rmqinspect.rescue.new_store import COPIED, LINKED, NewStore
from rmqinspect.rescue.not_chosen import NotChosenCount, OnlyThere, only_in_others
from rmqinspect.rescue.other_files import FilesJob
from rmqinspect.rescue.queue_files import HoleTooLarge, LostQueues
from rmqinspect.rescue.ranges import copy_range, write_at
from rmqinspect.rescue.readable import can_read, take_unreadable
from rmqinspect.rescue.rebuild import Plan, Rebuilt, count_derived, rebuild_derived
from rmqinspect.rescue.receipt import SCHEMA_VERSION, Brought
from rmqinspect.rescue.salvage_rows import aside_row, blank_row, kept_units, lost_offsets, repairs, source_row
from rmqinspect.rescue.second_look import contradicted_in, has_copies, read_order, suspect, take_all_out
from rmqinspect.rescue.segment_size import choose_segment_size
from rmqinspect.rescue.sound_log import refuse_unread_databases
from rmqinspect.rescue.sources import Composite, Range, Source, judge_source
from rmqinspect.rescue.timer_files import move_off_bridges, timers_of, without_timers
from rmqinspect.rocksdb.unpack import unpacked
from rmqinspect.store.discover import open_store
from rmqinspect.store.model import CarvedSegment, Segment, Store
from rmqinspect.store.reader import open_file, running_broker
from rmqinspect.system import uri
from rmqinspect.system.output_file import as_refusal
from rmqinspect.system.run import describe_run
from rmqinspect.text import count, group_digits
from rmqinspect.times import format_micros, to_micros
from rmqinspect.verify.custody import Watch
from rmqinspect.verify.result import VerifyResult
from rmqinspect.version import tool_name

_MOST_NAMED = 3  # topics
_MOST_LISTED = 100_000  # lost queue offsets of one hole
_LOOKS = 8  # at a store that is whole: what the first one contradicts is repaired, then not taken over
_ATTEMPTS = 3  # at files beside the log that fit
_BRIDGE_ON_DISK = 8192  # bytes: its head and its end in a page each, its body a hole


class SalvageRequest(Struct, frozen=True):
    """What is asked for."""

    target: str
    release: str | None = None  # None: estimated
    prefer: str | None = None  # name of the source that counts where two differ
    repairs: bool = True
    link: bool = False
    digests: bool = False
    dry_run: bool = False
    config: str | None = None  # a broker.conf
    max_config: int = 13 << 20
    jobs: int = 1
    notes: tuple[str, ...] = ()  # about the sources, for the receipt


class Salvaged(Struct):
    """What was made; not named yet."""

    receipt: document.SalvageReceipt
    proof: VerifyResult | None  # None: a dry run
    holds: bool  # WHOLE, and its start loses nothing; of a dry run, nothing speaks against it

    @property
    def is_complete(self) -> bool:
        """Whether nothing was lost or not taken over, and every repair is exact."""
        receipt = self.receipt
        lost = receipt.aside or receipt.lost_offsets or receipt.not_chosen
        return not lost and all(row.exact for row in receipt.repaired)


class SalvageJob(FilesJob):
    """The steps of one run, and what they hand on."""

    def __init__(
        self,
        given: Sequence[tuple[str, Store]],
        request: SalvageRequest,
        new: NewStore,
        advance: Callable[[int], None],
        note: Callable[[str], None],
        unused: Sequence[tuple[str, Store]] = (),
    ) -> None:
        """Take the sources by name, and a place that was claimed and is entered; `unused` sources do not count."""
        given = sorted(given, key=lambda one: one[0] != request.prefer)
        whole = next((store for _, store in given if store.given == "store"), given[0][1])
        super().__init__(
            whole,
            RebuildRequest(
                request.target,
                request.release,
                None,
                request.link,
                request.digests,
                request.config,
                request.max_config,
                request.jobs,
            ),
            new,
            advance,
            note,
        )
        self._asked, self._given, self._max_config = request, list(given), request.max_config
        self._unused = list(unused)  # of which nothing is taken
        self._not_chosen: list[document.NotChosen] = []
        self._notes: list[str] = list(request.notes)
        self._timers: document.Timers | None = None  # what becomes of the timer's files
        self._ledger: str | None = None  # folder of a DLedger log, in the new store
        self._copies = ExitStack()  # of what the sources keep in RocksDB

    def salvage(self) -> Salvaged:
        """Build the store up to where it could get its name.

        :raises Refused: two sources differ, and none is preferred; a broker runs on one; NEW cannot be written.
        :raises NotAStore: no record is sound in any source.
        :raises Unreadable: a source keeps something in RocksDB, and the library is not installed.
        """
        with ExitStack() as self._copies:
            return self._salvage()

    def _salvage(self) -> Salvaged:
        for _, store in self._given:
            if (holder := running_broker(store, [])) is not None:
                raise Refused(f"{store.name}: a broker runs on this store (pid {holder}): copy it, or stop the broker")
            refuse_unread_databases(store)
        self._ledger = ledger_of([store for _, store in self._given])
        watches = [Watch(store) for store in self._distinct()]
        size, used, said = choose_segment_size(self._given)
        self._unused += (one for one in self._given if one not in used)
        self._given = used
        self._notes += said
        self._notes += self._whose_files()
        self._store = replace(self._store, segment_size=size)
        sources = self._judge(size)
        release, why = self._choose_release()
        composite = Composite(sources)
        if composite.conflicts and self._asked.prefer is None:
            first = composite.conflicts[0]
            raise Refused(
                f"{first.first} and {first.second} differ from physical offset {first.offset} on, and both are sound"
                " there: they are no copies of one log any more; --prefer NAME says which one counts"
            )
        if not any(map(composite.holds_records, composite.pieces)):
            raise NotAStore("no source has a sound record: there is nothing to save")
        self._notes += (f"not used: {one.store.name}: no record in it is sound" for one in sources if not one.sound)
        refused = list(take_unreadable(composite, Rules(release)))
        if refused:
            self._notes.append(
                f"{group_digits(len(refused))} messages are not taken over that RocketMQ {release} cannot read: topics "
                f"of more than 127 bytes need 5.1.0, IPv6 hosts 4.6.0; --broker-version names a later one"
            )
        plan, assumed = self._plan(release)
        self._notes += [*assumed, *self._below_root(), *self._untyped(sources)]
        digests, misplaced, marked = self._digests(watches), set[int](), False
        outliers = read_order(sources, repairs=self._asked.repairs)
        if not any(source.store.queue_files for source in sources):
            # Nothing else could speak for them: behind them no record of their queue would be served.
            misplaced |= {place for places in outliers.values() for place in places}
            refused += take_all_out(composite, sources, misplaced)
        for attempt in range(_LOOKS):
            reads = partial(can_read, Rules(release))
            kind = Planner if self._ledger is None else LedgerPlanner
            planner = kind(composite, size, repairs=self._asked.repairs, refused=refused, reads=reads)
            log = planner.make()
            self._notes += planner.notes
            lost = lost_offsets([one for one in log.lost if one.start not in misplaced])
            # Where units of no record may lead in a DLedger log was not tried with brokers.
            find = find_lost_beginnings if self._ledger else find_lost_queues
            queues = find(log, sources, lost, self._store)
            if marked:
                end_with_bridge(log, sources)
            proof = None
            files: dict[int, str] = {}
            try:
                if self._asked.dry_run:
                    rebuilt = self._foresee(log, sources, plan, lost, queues)
                    break
                self._check_space(log, sources)
                rebuilt, proof, files = self._write(log, sources, plan, release, lost, queues)
            except HoleTooLarge as error:
                taken = take_all_out(composite, sources, [error.place])
                if not taken or attempt + 1 == _LOOKS:
                    raise
                refused += taken
                misplaced.add(error.place)  # the queue offset that it says is no other one's, either
                self._begin_again()
                continue
            # Records that only the new store contradicts: what is around them was damaged before. They are repaired
            # if they can be, else not taken over.
            odd = contradicted_in(proof, outliers)
            # A hole in a queue where the log has none: a bridge says that this is the work of a salvage.
            unmarked = bool(proof.damage) and not (marked or log.bridged or self._ledger) and has_copies(rebuilt)
            if attempt + 1 == _LOOKS or not (odd or unmarked):
                break
            marked |= unmarked
            if attempt == 0:
                suspect(sources, odd)
            else:
                misplaced |= odd.intersection(place for places in outliers.values() for place in places)
                refused += take_all_out(composite, sources, odd)
                # What was repaired, and is contradicted all the same.
                repaired = [one for one, _ in log.repaired if one.place in odd]
                refused += (Range(one.place - one.lead, one.place + len(one.raw)) for one in repaired)
            self._begin_again()
        self._refuse_changes(watches)
        if log.in_doubt:
            self._notes.append(
                f"{count(log.in_doubt, 'record')} kept though a queue unit or an index entry has other tags or keys: "
                "which of them was damaged is not known; the new queues and index are as the records say"
            )
        receipt = self._receipt(sources, composite, log, lost, release, why, digests, files, rebuilt, proof)
        start = None if proof is None else proof.next_start
        holds = proof is None or (not proof.damage and proof.complete and start is not None and start.worst.keeps_all)
        return Salvaged(receipt, proof, holds)

    # --- sources --------------------------------------------------------------------------------

    def _distinct(self) -> Iterator[Store]:
        seen: set[tuple[str, ...]] = set()
        for _, store in self._given:
            if store.paths not in seen:
                seen.add(store.paths)
                yield store

    def _judge(self, size: int) -> list[Source]:
        """Return the sources, judged, in the order in which they count."""
        whole = [
            (name, self._copies.enter_context(unpacked(store, only=QUEUE_DATABASES))) for name, store in self._given
        ]
        return [
            judge_source(name, store, size, jobs=self._asked.jobs, release=self._asked.release, progress=self._advance)
            for name, store in whole
        ]

    def _untyped(self, sources: Sequence[Source]) -> Iterator[str]:
        """Yield what becomes of batch queues whose topics nobody knows: a broker takes them for plain ones."""
        files = (file for source in sources for file in source.store.queue_files if file.kind == "batch_queue")
        topics = sorted({file.topic for file in files})
        if topics and read_config(self._store, "topics.json") is None:
            more = f" and {len(topics) - _MOST_NAMED} more" if len(topics) > _MOST_NAMED else ""
            yield (
                f"no topics.json can be read, by which a broker knows that {', '.join(topics[:_MOST_NAMED])}{more} had "
                "batch queues: they become plain ones, with offsets inside of batches that lead to no message. Look "
                "for topics.json and salvage again: put into the new store it keeps a broker from starting"
            )

    # --- the log --------------------------------------------------------------------------------

    def _check_space(self, log: LogPlan, sources: Sequence[Source]) -> None:
        whole = [segment for base, pieces in log.segments() if (segment := self._unchanged(log, base, pieces, sources))]
        if self._asked.link:
            for segment in whole:
                if self._may_link(log, segment) and not self._new.can_link(segment):
                    raise Refused(f"{segment.name}: on another file system than the new store: it cannot be linked")
        shared = set(whole) if self._new.shares_blocks(whole) else {one for one in whole if self._may_link(log, one)}
        written = sum(piece.end - piece.start for piece in log.pieces if not piece.bridge)
        written -= sum(segment.size for segment in shared)
        # Of what goes aside the bytes, and rows that hold its bodies once more.
        aside = 2 * sum({one.start: one.end - one.start for one in log.lost if one.source is not None}.values())
        bridges = sum(-(-(one.end - one.start) // LARGEST) for one in log.bridged) * _BRIDGE_ON_DISK
        others = sum(max(0, one.end - (one.taken_until or one.end)) for one in sources)
        others += sum(segment.size for _, store in self._unused for segment in store.segments)
        self._new.check_room(max(0, written) + bridges + aside + others + self._room_of_others() + log.size)

    def _may_link(self, log: LogPlan, segment: Segment) -> bool:
        return self._asked.link and segment.base + log.size < log.end

    def _unchanged(self, log: LogPlan, base: int, pieces: Sequence[Kept], sources: Sequence[Source]) -> Segment | None:
        """Return the segment of a source that is this one of the plan, byte for byte; None without one."""
        numbers = {piece.source for piece in pieces}
        if len(numbers) != 1 or any(piece.raw is not None or piece.bridge for piece in pieces):
            return None
        (number,) = numbers
        source = sources[number]  # type: ignore[index]
        segment = next((one for one in source.store.segments if one.base == base), None)
        if (
            segment is None
            or segment.size != log.size
            or segment.length is not None
            or isinstance(segment, CarvedSegment)
        ):
            return None
        if pieces[-1].end < base + log.size:
            # The log ends here: behind it nothing may stand but zeros.
            behind = (one for one in source.damaged if one.end > pieces[-1].end and one.start < base + log.size)
            if source.end > pieces[-1].end or any(behind) or pieces[-1].end != log.end:
                return None
        return segment

    def _write_log(self, log: LogPlan, sources: Sequence[Source]) -> None:
        for base, pieces in log.segments():
            name = f"{self._ledger or 'commitlog'}/{base:020d}"
            segment = self._unchanged(log, base, pieces, sources)
            if segment is not None:
                self._bring(segment, name, link=self._may_link(log, segment))
                continue
            with self._new.create(name, log.size) as out:
                for piece in pieces:
                    self._write_piece(out, piece, base, log.size, sources)

    def _write_piece(self, out: BinaryIO, piece: Kept, base: int, size: int, sources: Sequence[Source]) -> None:
        if piece.bridge:
            place, entries = (piece.start, piece.end, base + size), piece.entries
            if entries is None:
                writes = bridge(*place, piece.timestamp)
            else:
                writes = ledger_bridge(*place, entries, piece.timestamp)
            for offset, raw in writes:
                write_at(out, offset - base, raw)
        elif piece.raw is not None:
            write_at(out, piece.start - base, piece.raw)
        elif piece.source is not None:
            store = sources[piece.source].store
            segment = store.segment_at(piece.start)
            assert segment is not None, "a sound byte lies in a segment"
            with open_file(segment) as reader:
                copy_range(reader, piece.start - segment.base, piece.end - segment.base, out, piece.start - base)
        self._advance(piece.end - piece.start)

    def _write(
        self,
        log: LogPlan,
        sources: Sequence[Source],
        plan: Plan,
        release: str,
        lost: dict[tuple[str, int], list[int]],
        queues: LostQueues,
    ) -> tuple[Rebuilt, VerifyResult, dict[int, str]]:
        """Write all of the new store, and verify it."""
        self._write_log(log, sources)
        self._write_others()
        moved = move_off_bridges(open_store([self._new.folder]), log.bridged)
        self._timers = timers_of(self._whole_of(sources).store, log.bridged, moved)
        if self._ledger is not None and log.last_entry is not None:
            self._notes += mend_state(self._new, self._ledger, *log.last_entry)
        files = write_aside(self._new, log.lost, sources, self._only_in_others(log, sources))
        rebuilt, proof = self._derive(plan, release, lost, queues, self._whole_of(sources))
        return rebuilt, proof, files

    def _foresee(
        self,
        log: LogPlan,
        sources: Sequence[Source],
        plan: Plan,
        lost: dict[tuple[str, int], list[int]],
        queues: LostQueues,
    ) -> Rebuilt:
        """Note what `_write` would bring and leave out, and return what it would write anew."""
        whole = self._whole_of(sources)
        for base, pieces in log.segments():
            segment = self._unchanged(log, base, pieces, sources)
            if segment is not None:
                how = LINKED if self._may_link(log, segment) else COPIED
                self._brought.append(Brought(f"{self._ledger or 'commitlog'}/{base:020d}", segment.size, how))
                self._paths.append(segment.path)
        self._plan_others()
        for _ in self._only_in_others(log, sources):
            pass
        self._timers = timers_of(whole.store, log.bridged)
        for one in broken_files(whole.result, {one.file for one in self._brought}, log.bridged):
            self._leave_out(one.names, one.why)
            self._note_broken(one, whole)
        offsets = {queue: np.array(some, np.int64) for queue, some in lost.items()}
        records = planned_records(log, sources)
        return count_derived(records, plan, lost=offsets, queues=queues, progress=self._advance)

    def _only_in_others(self, log: LogPlan, sources: Sequence[Source]) -> Iterator[OnlyThere]:
        """Yield the sound records that only a source has which does not count there; when done, they are counted."""
        counted = NotChosenCount()
        for one in only_in_others(log, sources, self._unused):
            counted.take(*one)
            yield one
        paths = {name: store.paths[0] for name, store in (*self._given, *self._unused)}
        self._not_chosen = counted.rows(paths)

    def _whose_files(self) -> Iterator[str]:
        """Yield whose configuration and other files count, where several sources have some."""
        stores = [name for name, store in self._given if store.given == "store" and store.config_files]
        if len(stores) > 1:
            name = next(name for name, store in self._given if store.paths == self._store.paths)
            yield f"configuration, timer and all else beside the log are those of {name}"

    def _whole_of(self, sources: Sequence[Source]) -> Source:
        """Return the source whose files beside the log count."""
        return next((one for one in sources if one.store.paths == self._store.paths), sources[0])

    def _note_broken(self, broken: Broken, whole: Source) -> None:
        """Note what it means that some files are left out."""
        self._notes.append(broken.note)
        if broken.names == TIMER and self._timers is not None:
            self._timers = without_timers(self._timers, whole.store, broken.why)

    def _begin_again(self) -> None:
        """Take away what was written."""
        if not self._asked.dry_run:
            with as_refusal(self._new.folder, "emptied"):
                for folder in (self._new.folder, self._new.make_aside()):
                    shutil.rmtree(folder)
                os.mkdir(self._new.folder)
        self._brought, self._paths, self._left_out = [], [], []
        self._notes = list(dict.fromkeys(self._notes))

    def _derive(
        self,
        plan: Plan,
        release: str,
        lost: dict[tuple[str, int], list[int]],
        queues: LostQueues,
        whole: Source,
    ) -> tuple[Rebuilt, VerifyResult]:
        """Write the derived files, and verify all; what is brought and broken, or does not fit, goes out again."""
        offsets: dict[tuple[str, int], Ints] = {queue: np.array(some, np.int64) for queue, some in lost.items()}
        rebuilt = rebuild_derived(
            self._new.folder,
            plan,
            lost=offsets,
            queues=queues,
            jobs=self._asked.jobs,
            progress=self._advance,
        )
        proof = self._prove(release)
        for _ in range(_ATTEMPTS):
            broken = broken_files(proof, {one.file for one in self._brought})
            if not broken:
                break
            for one in broken:
                self._discard(one.names, one.why)
                self._note_broken(one, whole)
            proof = self._prove(release)
        return rebuilt, proof

    # --- what came of it --------------------------------------------------------------------------

    def _digests(self, watches: Sequence[Watch]) -> list[document.Digest]:
        found: list[document.Digest] = []
        for watch in watches:
            digests = watch.take_digests(watch.before.exhibits if self._asked.digests else (), self._asked.jobs)
            digests.wait(self._advance)
            custody = watch.conclude()
            self._refuse_change(custody)
            for name, exhibit in sorted(watch.before.exhibits.items()):
                found.append(document.Digest(name, exhibit.file.size, custody.digests.get(name)))
        return found

    @staticmethod
    def _refuse_change(custody: Any) -> None:
        if custody.changed:
            change = custody.changed[0]
            raise Refused(f"{change.file}: changed while it was read: {change.what}; nothing is kept")

    def _refuse_changes(self, watches: Sequence[Watch]) -> None:
        for watch in watches:
            self._refuse_change(watch.conclude())

    def _receipt(
        self,
        sources: Sequence[Source],
        composite: Composite,
        log: LogPlan,
        lost: dict[tuple[str, int], list[int]],
        release: str,
        why: str,
        digests: list[document.Digest],
        aside: dict[int, str],
        rebuilt: Rebuilt,
        proof: VerifyResult | None,
    ) -> document.SalvageReceipt:
        taken: dict[int, int] = defaultdict(int)
        for piece in log.pieces:
            if piece.source is not None and piece.raw is None:
                taken[piece.source] += piece.end - piece.start
        start = None if proof is None else proof.next_start
        return document.SalvageReceipt(
            schema_version=SCHEMA_VERSION,
            tool=tool_name(),
            command="salvage",
            store=uri.shown(self._asked.target),
            dry_run=self._asked.dry_run,
            started=format_micros(to_micros(self._started)),
            ended=format_micros(to_micros(datetime.now(UTC))),
            broker_version=release,
            version_from=why,
            sources=[source_row(source, taken[number]) for number, source in enumerate(sources)],
            files=digests,
            log_start=log.pieces[0].start,
            log_end=log.end,
            kept_bytes=sum(taken.values()),
            repaired=[*repairs(log, sources), *map(blank_row, log.blanks)],
            bridged=[document.Bridged(*one) for one in log.bridged],
            aside=[aside_row(one, sources, aside) for one in log.lost],
            not_chosen=self._not_chosen,
            lost_offsets=list(self._lost_offsets(lost, rebuilt)),
            timers=self._timers,
            brought=self._brought,
            left_out=self._left_out,
            derived=derived(rebuilt),
            notes=[*self._notes, *rebuilt.notes],
            verdict=None if proof is None else proof.verdict,
            next_start=None if start is None else verdict_line(start),
            run=as_object(describe_run()),
        )

    def _lost_offsets(self, lost: dict[tuple[str, int], list[int]], rebuilt: Rebuilt) -> Iterator[document.LostOffsets]:
        """Yield the lost queue offsets of every queue that has some: what is known, and what has copies of a unit."""
        found = {queue: set(offsets) for queue, offsets in lost.items()}
        for queue, written in rebuilt.queues.items():
            if written.copies and written.vacant is None:
                listed = found.setdefault(queue, set())
                listed.update(*(copied[:_MOST_LISTED] for copied in written.copied))
        for queue, offsets in sorted(found.items()):
            yield document.LostOffsets(*queue, kept_units(rebuilt, queue), sorted(offsets))
