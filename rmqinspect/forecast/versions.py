"""The forecast for one release, for those that may have written the store, or for all.

A walk is made for each era of the releases asked for; all of them share what is read. Neighbouring eras whose outcomes
are the same become one. What is lost is counted once for each end of the log that a walk comes to.
"""

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from itertools import groupby

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from rmqinspect.broker.eras import Era, rules_of_start
from rmqinspect.broker.version_estimate import RELEASES, estimate
from rmqinspect.broker.version_evidence import OtherWriter, gather, names_in, other_writer
from rmqinspect.codec.arrays import distinct
from rmqinspect.commitlog.missing import missing_in
from rmqinspect.errors import Unreadable
from rmqinspect.forecast.deliveries import note_deliveries
from rmqinspect.forecast.evidence import Announce, Evidence
from rmqinspect.forecast.fed_scan import FedScan
from rmqinspect.forecast.feed import NO_FEED, Feed
from rmqinspect.forecast.group_starts import note_groups
from rmqinspect.forecast.instead import other_ways, remedied, same_answer
from rmqinspect.forecast.log_records import JUDGED, LogRecords, log_size
from rmqinspect.forecast.losses import LossCounter, LossFold, count_named, given_up, units_given_up
from rmqinspect.forecast.outcome import (
    COSTS,
    NO_REMEDY,
    STARTING,
    Alternative,
    Forecast,
    Outcome,
    Remedy,
    Verdict,
    note_unread,
)
from rmqinspect.forecast.queues import Led
from rmqinspect.forecast.reach import Judge, Reach
from rmqinspect.forecast.record_fold import Queue
from rmqinspect.forecast.repairs import levels_set_back, repairs
from rmqinspect.forecast.settled import OtherUnits
from rmqinspect.forecast.verdicts import (
    doubled_files,
    note_given_twice,
    note_gone,
    note_lost_queues,
    note_proofs,
    note_units,
    verdict_of,
)
from rmqinspect.forecast.walk import Start, Walks
from rmqinspect.store.model import Store
from rmqinspect.store.reader import lock_holder, running_broker
from rmqinspect.topics import is_system_topic

_OTHERS = ("other topic", "no topic")  # kinds of `broker.drain.Wrong`: the message of another place
_TOGETHER = 6  # walks side by side: each keeps some 20 MB of units that it has written

_AS_COPIED = (
    "a second broker cuts the log and deletes files in its recovery, before it finds the lock taken; what a start does "
    "to the files as they are now: forecast --as-copied (with --exit clean: after an orderly stop)"
)


class ForecastRequest(Struct, frozen=True):
    """What is asked for."""

    release: str | None = None  # None: those that may have written the store
    all_versions: bool = False
    clean_exit: bool | None = None  # None: as the file `abort` says
    count_losses: bool = True  # False: what lies behind the new end is not counted
    as_copied: bool = False  # walk the files as they are, though a broker runs on them
    instead: bool = False  # price the other ways to start, if this one is not safe
    instead_if_judged: bool = False  # the same, but only where the records of the log are compared with the queues
    jobs: int = 1
    progress: Callable[[int], None] | None = None
    announce: Announce | None = None  # of each scan of the log


def forecast(store: Store, request: ForecastRequest) -> Forecast:
    """Return what the next start does to a store."""
    return Forecaster(store, request).finish()


class Forecaster:
    """A forecast in two steps: starts are walked up to their scans of the log, and from there to their ends."""

    def __init__(self, store: Store, request: ForecastRequest) -> None:
        """Read what decides where the scans begin."""
        self._store, self._request = store, request
        self._lock_unread: list[str] = []
        self._holder = running_broker(store, self._lock_unread)
        self._walks: Walks | None = None
        if self._holder is not None and not request.as_copied:
            return
        read = request.jobs, request.progress, request.announce
        self._evidence = Evidence(store, *read, records=LogRecords(*read))
        self._releases, self._version_from, self._other, self._writer = _releases(store, self._evidence, request)
        clean = not self._evidence.has_abort if request.clean_exit is None else request.clean_exit
        self._evidence.other_writer = self._other is not None
        self._teller = Teller(self._evidence, request)
        self._eras = list(_one_of_each_era(self._releases))
        self._clean = clean
        self._walks = self._teller.begin(self._eras[:_TOGETHER], clean=clean)

    @property
    def feed(self) -> Feed:
        """What another reader of the log can feed."""
        if self._walks is None:
            return NO_FEED
        return self._evidence.records.feed(self._store, self._scans, asks=self._teller.is_asked)

    @property
    def _scans(self) -> Sequence[FedScan]:
        return () if self._walks is None else tuple(self._walks.fed.values())

    def finish(self) -> Forecast:
        """Return the forecast."""
        if self._walks is None:
            assert self._holder is not None
            return _of_running(self._holder)
        store, evidence = self._store, self._evidence
        if self._teller.judges and not any(scan.took for scan in self._scans):
            evidence.records.read(store, self._scans)  # unless another reader has fed all
        outcomes = self._teller.end(self._walks)
        for first in range(_TOGETHER, len(self._eras), _TOGETHER):
            more = self._teller.begin(self._eras[first : first + _TOGETHER], clean=self._clean)
            outcomes += self._teller.end(more)
        merged = list(_merged(outcomes, self._releases))
        found = Forecast(merged, version_from=self._version_from, unread=evidence.unread, writer=self._writer)
        found.unread.extend(self._lock_unread)
        for outcome in found.outcomes if self._holder is not None else ():
            outcome.lock_holder = self._holder
            locked = lock_holder(store) is not None
            has = "holds the lock of the store" if locked else "has the file lock of the store open"
            outcome.notes.append(f"a process {has}: this is about the files as they are now")
        if self._other is not None:
            found.other_writer = self._other.about_starts
            for outcome in found.outcomes:
                outcome.assumptions.append(found.other_writer)
        for outcome in found.outcomes:
            if outcome.verdict in STARTING:
                outcome.gone_first = evidence.gone_first
                outcome.acknowledged = evidence.acknowledged
                outcome.pops_again = evidence.unacknowledged if self._request.count_losses else None
        # What cannot be read is asked of the disk again by each choice, and a failing disk takes long to refuse.
        is_short = self._teller.is_short and not evidence.unread
        asks = self._request.instead or (self._request.instead_if_judged and is_short)
        if asks and (found.worst.verdict in COSTS or found.worst.blocked_by is not None):
            found.instead = self._other_ways(found.worst)
        return found

    def _note_readers(self, outcome: Outcome) -> None:
        """Note what a start means to groups, and to what the broker delivers by itself."""
        note_groups(outcome, self._evidence)
        note_deliveries(outcome, self._evidence)

    def _other_ways(self, worst: Outcome) -> list[Alternative]:
        tellers = {NO_REMEDY: self._teller}

        def after(remedy: Remedy) -> Teller:
            if remedy not in tellers:
                remade = dataclasses.replace(self._evidence, store=remedied(self._store, remedy))
                tellers[remedy] = Teller(remade, self._request, self._store)
            return tellers[remedy]

        store = self._store
        repaired = repairs(
            worst,
            self._evidence,
            self._teller.judge(),
            is_sound=self._evidence.records.is_sound and not missing_in(store) and not store.doubles,
            is_ledger=any(segment.kind != "segment" for segment in store.segments),
            note_readers=self._note_readers,
        )
        edited = list(levels_set_back(worst))
        return other_ways(worst, store, after, list(repaired), edited, best_only=not self._request.instead)


def _of_running(holder: int) -> Forecast:
    """Return the forecast for a store that a broker runs on: nothing is worked out.

    A second broker loads and recovers first, and so cuts the log and deletes files; only then it tries to take the
    lock, and fails. Source: BrokerController#initialize (DefaultMessageStore#load, #recover), BrokerController#start
    (DefaultMessageStore#start: "Lock failed,MQ already started"); the same in 4.2.0, 4.9.7, 5.3.3 and 5.5.0.
    """
    why = "a broker runs on this store"
    return Forecast([Outcome("", "", False, Verdict.RUNS, unknown=why, notes=[_AS_COPIED], lock_holder=holder)])


def _releases(
    store: Store, evidence: Evidence, request: ForecastRequest
) -> tuple[Sequence[str], str, OtherWriter | None, str]:
    """Return the releases, why these, who else wrote the store, and who wrote it.

    Of given releases the third is told by the names of its files alone, and the fourth is empty.
    """
    if request.all_versions:
        return RELEASES, "all", other_writer(names_in(store)), ""
    if request.release is not None:
        return (request.release,), "given", other_writer(names_in(store)), ""
    found = estimate(gather(store, *evidence.samples, []))
    return found.releases, ", ".join(found.clues), found.other, str(found.other or found)


def _one_of_each_era(releases: Sequence[str]) -> Iterable[str]:
    """Yield the last release of each run with equal rules."""
    for _, run in groupby(releases, key=rules_of_start):
        *_, last = run
        yield last


def _merged(outcomes: Sequence[Outcome], releases: Sequence[str]) -> Iterable[Outcome]:
    """Yield one outcome for each run of neighbours that are the same, named by all of its releases."""
    first = releases[0]
    for _, run in groupby(outcomes, key=same_answer):
        *_, last = run
        yield replace(last, era=str(Era(first, last.release)))
        following = releases.index(last.release) + 1
        if following < len(releases):
            first = releases[following]


class Teller:
    """Walks the starts of one store, and prices them."""

    def __init__(self, evidence: Evidence, request: ForecastRequest, store: Store | None = None) -> None:
        """Take what is walked; `store` as it is now, where that is what a remedy makes of it."""
        self._evidence = evidence
        self._store = store or evidence.store
        self._counts = request.count_losses
        self._losses = LossCounter(evidence.store, evidence.jobs, evidence.progress, evidence.unread)
        self._judge: Judge | None = None
        self._drained: dict[tuple[object, ...], tuple[int, int, int]] = {}
        self.is_asked = request.count_losses and not evidence.other_writer  # what consumers get of the records is

    @property
    def judges(self) -> bool:
        """Whether the records of the log are compared with the queues: those of a log that is not long, or was read."""
        records = self._evidence.records
        return self.is_asked and not records.is_too_large and (records.are_known or self.is_short)

    @cached_property
    def is_short(self) -> bool:
        """Whether a log is so short that it is read whole for this alone."""
        evidence = self._evidence
        return log_size(evidence.store) <= JUDGED or log_size(evidence.store, evidence.log_end.end) <= JUDGED

    def tell_all(self, releases: Sequence[str], *, clean: bool) -> list[Outcome]:
        """Return the outcomes of starts of some releases, in their order; neighbours that are the same are one."""
        eras = list(_one_of_each_era(releases))
        outcomes: list[Outcome] = []
        for first in range(0, len(eras), _TOGETHER):
            outcomes += self.end(self.begin(eras[first : first + _TOGETHER], clean=clean))
        return list(_merged(outcomes, releases))

    def begin(self, releases: Sequence[str], *, clean: bool) -> Walks:
        """Walk starts of some releases up to their scans of the log."""
        return Walks([self._start(release) for release in releases], clean=clean)

    def end(self, walks: Walks) -> list[Outcome]:
        """Walk these starts to their ends, and price them."""
        return [self._priced(outcome) for outcome in walks.finish()]

    def tell(self, release: str, clean: bool) -> Outcome:
        """Return the outcome of a start of one release after a clean or an unclean exit."""
        return self.end(self.begin([release], clean=clean))[0]

    def _start(self, release: str) -> Start:
        rules = rules_of_start(release)
        return Start(self._evidence.of_release(rules), release, rules)

    def _priced(self, outcome: Outcome) -> Outcome:
        """Return an outcome with what it costs, and its verdict."""
        outcome.losses_counted = self._counts
        if outcome.refusal is not None or outcome.unknown is not None:
            outcome.verdict = verdict_of(outcome, cuts_records=False)
            return outcome
        store = self._evidence.store
        if self._counts:
            fold = LossFold()
            for part in (self._losses.behind(outcome.end_offset), *self._given_up):
                fold.join(part)
            outcome.losses = fold.losses()
            count_named(store, outcome.queues, fold.gaps, outcome.losses, self._evidence.unread)
            note_given_twice(outcome, fold)
        cuts = bool(outcome.losses.messages) if self._counts else self._loses_any(outcome)
        outcome.cuts_records = cuts
        outcome.doubled = doubled_files(store, outcome.segments_after)
        outcome.judged = self.judges and self._note_reach(outcome)
        outcome.sampled = self.is_asked and not outcome.judged
        if not outcome.judged and self._store is not store:
            outcome.unreachable += units_given_up(self._store, store, outcome, self._evidence.unread)
        note_units(outcome)
        if self._counts or not cuts:
            note_gone(outcome)
        outcome.holes = [(hole.start, hole.end) for hole in missing_in(self._evidence.store)]
        outcome.lost_queues = self._evidence.lost_queues(outcome)
        note_lost_queues(outcome)
        note_proofs(outcome, self._evidence, cuts_records=cuts)
        note_groups(outcome, self._evidence)
        if self._counts:
            note_deliveries(outcome, self._evidence)
        outcome.verdict = verdict_of(outcome, cuts_records=cuts)
        return outcome

    def _note_reach(self, outcome: Outcome) -> bool:
        """Note what consumers do not get of the records that stay; return whether that is known."""
        led, outcome.led = outcome.led or {}, None
        log = range(max(0, outcome.min_offset), outcome.end_offset)
        try:
            reach = self._reach(led, log, partial(self._evidence.knows_queue, outcome))
        except Unreadable as error:
            note_unread(self._evidence.unread, str(error))
            return False
        if reach is None:
            return False
        outcome.unreachable_by_topic = dict(reach.unreachable)
        outcome.unreachable = sum(outcome.unreachable_by_topic.values())
        outcome.in_no_queue = dict(reach.in_no_queue)
        outcome.next_offsets = reach.next_offsets
        self._note_drained(outcome, reach)
        for queue in outcome.queues:
            behind = reach.next_offsets.get((queue.topic, queue.queue_id), 0)
            queue.given_twice = max(queue.given_twice, behind - queue.max_after)
        return True

    def _reach(self, led: Mapping[Queue, Led], log: range, is_known: Callable[[str, int], bool]) -> Reach | None:
        """Return what consumers do not get; None where that takes another read of a long log.

        :raises Unreadable: units cannot be read.
        """
        records = self._evidence.records
        for is_last in (False, True):
            try:
                if self._judge is None:
                    self._judge = Judge(records.of(self._evidence.store))
                return self._judge.reach(led, log, is_known)
            except OtherUnits:
                if is_last or not self.is_short:
                    return None
                self._judge = None
                records.read_anew(self._evidence.store)
        return None

    def judge(self) -> Judge | None:
        """Return what compares the records of the log with queues; None where they are not known."""
        if self._judge is None and self.judges:
            try:
                self._judge = Judge(self._evidence.records.of(self._evidence.store))
            except Unreadable as error:
                note_unread(self._evidence.unread, str(error))
        return self._judge

    def _note_drained(self, outcome: Outcome, reach: Reach) -> None:
        """Note what consumers get wrong, and what they jump over, where units lead to no sound record."""
        ends = {(queue.topic, queue.queue_id): (queue.min_after, queue.max_after) for queue in outcome.queues}
        wrong, jumped, others = Counter[str](), Counter[str](), Counter[str]()
        for name, one in reach.queues.items():
            key = name, one.doubtful, ends.get(name), outcome.end_offset, self._like[outcome.release]
            # The broker reads its own topics record by record.
            if one.doubtful and name in ends and not is_system_topic(name[0]):
                if key not in self._drained:
                    self._drained[key] = self._drain(outcome, *name, one.doubtful, *ends[name])
                for counts, number in zip((wrong, jumped, others), self._drained[key], strict=True):
                    counts[name[0]] += number
        outcome.wrong_by_topic, outcome.jumped_by_topic = dict(+wrong), dict(+jumped)
        outcome.wrong, outcome.jumped, outcome.others = wrong.total(), jumped.total(), others.total()

    def _drain(
        self, outcome: Outcome, topic: str, queue_id: int, doubtful: Sequence[int], begin: int, end: int
    ) -> tuple[int, int, int]:
        """Return how many messages of a queue are wrong, jumped over, and another one of the topic."""
        from rmqinspect.broker.client import OTHER_RECORD  # only units that are in doubt are drained
        from rmqinspect.broker.consumer_queue import ConsumerLog, open_queue
        from rmqinspect.broker.drain import drain

        store, wrong, jumped, others = self._evidence.store, 0, 0, 0
        queue = open_queue(store, topic, queue_id)
        if queue is None:
            return 0, 0, 0
        try:
            with queue:
                log = ConsumerLog(store, outcome.end_offset)
                offsets = distinct(np.array(doubtful, np.int64))
                for trouble in drain(queue, log, outcome.release, offsets, begin=begin, end=end):
                    wrong += sum(one.kind in _OTHERS for one in trouble.wrong)
                    others += sum(one.kind == OTHER_RECORD for one in trouble.wrong)
                    jumped += len(trouble.jumped)
        except Unreadable as error:
            note_unread(self._evidence.unread, str(error))
        return wrong, jumped, others

    @cached_property
    def _like(self) -> dict[str, int]:
        """By release, the number of those whose brokers and clients go on alike behind damage."""
        from rmqinspect.broker.drain import alike

        return {release: number for number, releases in enumerate(alike()) for release in releases}

    @cached_property
    def _given_up(self) -> list[LossFold]:
        """The sums of each segment that a remedy takes out of the log."""
        taken = given_up(self._store, self._evidence.store, self._evidence.unread)
        return [self._losses.of_segment(segment, first) for segment, first in taken]

    def _loses_any(self, outcome: Outcome) -> bool:
        """Return whether a start gives up a record, where they are not counted."""
        for fold in self._losses.beginnings_behind(outcome.end_offset):
            losses = fold.losses()
            count_named(self._evidence.store, outcome.queues, fold.gaps, losses, self._evidence.unread)
            if losses.messages:
                return True
        return False
