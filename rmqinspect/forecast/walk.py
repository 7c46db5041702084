"""One start of one release, walked without a broker: load, recovery, dispatch, and what is left.

    load           files of each folder                      -> the broker does not start, or goes on
    index          load; after an unclean exit delete those newer than the checkpoint
    queues         read the units of the last three files of each -> how far the queues reach
    start segment  from where the log is scanned
    scan           record by record, to the first that is refused -> the new end
    dispatch       of scanned records, into queues and index
    cut            queues and log at the new end
    reput          of records that no queue has yet
    minimum        of each queue

The procedure is the same for all releases. Where they differ it asks `Rules`; nothing here knows a release. Everything
that is read is in `Evidence` and shared by the walks; a walk only has its own state of queues and index.

Source: DefaultMessageStore#load, #recover, #start; CommitLog#recoverNormally, #recoverAbnormally.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from rmqinspect.broker.eras import Rules
from rmqinspect.config.checkpoint import read_checkpoint
from rmqinspect.config.json_files import ConsumerOffset, read_consumer_offsets
from rmqinspect.errors import Unreadable
from rmqinspect.forecast.config_files import ConfigCopies, read_config_files
from rmqinspect.forecast.dledger import ledger_files, record_scan, recover_ledger, why_not_told
from rmqinspect.forecast.groups import groups_beyond
from rmqinspect.forecast.index_files import IndexFiles, IndexState
from rmqinspect.forecast.listing import Listing
from rmqinspect.forecast.load import Loaded, load
from rmqinspect.forecast.outcome import Decision, Outcome, Refusal, Verdict
from rmqinspect.forecast.queue_ends import QueueEnds
from rmqinspect.forecast.queues import Queues
from rmqinspect.forecast.reput import reput
from rmqinspect.forecast.scan import Batch, LogScanner, Scan
from rmqinspect.forecast.settings import Settings, settings_of
from rmqinspect.forecast.start_segment import start_segment
from rmqinspect.store.model import Segment, Store

ABORT = "abort"


Announce = Callable[[int, str], None]
"""Is told before a read how many bytes it takes at most, and what for."""


@dataclass
class Evidence:
    """What the walks of one store read, once."""

    store: Store
    jobs: int = 1
    progress: Callable[[int], None] | None = None
    announce: Announce | None = None
    unread: list[str] = field(default_factory=list)  # what the system refused to read
    _scanners: dict[tuple[str, ...], LogScanner] = field(default_factory=dict, init=False)

    @cached_property
    def settings(self) -> Settings:
        """The settings of the broker, as far as they are known."""
        return self._settings[0]

    @property
    def assumptions(self) -> Sequence[str]:
        """What was assumed about the settings."""
        return self._settings[1]

    @cached_property
    def _settings(self) -> tuple[Settings, list[str]]:
        return settings_of(self.store)

    @cached_property
    def has_abort(self) -> bool:
        """Whether the file is there by which a broker knows that it did not stop in order."""
        return any(file.name == ABORT for file in self.store.files)

    @cached_property
    def checkpoint(self) -> Mapping[str, int]:
        """The values of the checkpoint by field; empty without one."""
        try:
            return read_checkpoint(self.store, mapped=True)
        except Unreadable as error:
            self.unread.append(str(error))
            return {}

    @cached_property
    def queues(self) -> QueueEnds:
        """All queues as they are."""
        return QueueEnds.read(self.store, self.settings)

    @cached_property
    def group_offsets(self) -> Sequence[ConsumerOffset]:
        """The offsets of all groups, as far as they can be read."""
        return read_consumer_offsets(self.store)[0]

    @cached_property
    def config(self) -> ConfigCopies:
        """All files of `config/` as brokers read them."""
        return ConfigCopies(self.store)

    @cached_property
    def listing(self) -> Listing:
        """The folders of mapped files, entry by entry."""
        return Listing(self.store)

    @cached_property
    def index(self) -> IndexFiles:
        """All index files as they are."""
        return IndexFiles.read(self.store, self.settings)

    @property
    def unknown(self) -> str | None:
        """Why nothing can be told about a start; None if it can."""
        store = self.store
        if store.given != "store":
            return "not a whole store: the queues, the checkpoint and the file abort decide, too"
        if store.hides_log:
            return "the folder of the commit log cannot be listed"
        return why_not_told(store)

    def scanner(self, segments: Sequence[Segment]) -> LogScanner:
        """Return the scanner of a log that consists of these segments."""
        key = tuple(segment.path for segment in segments)
        if key not in self._scanners:
            self._scanners[key] = LogScanner(self.store, segments, self.settings, self.jobs, self.progress)
        return self._scanners[key]


def walk(evidence: Evidence, release: str, rules: Rules, *, clean: bool) -> Outcome:
    """Return what a start by the rules of a release does, apart from what is lost (`losses`)."""
    outcome = Outcome(release, release, clean)
    if evidence.unknown is not None:
        outcome.unknown = evidence.unknown
        return outcome
    outcome.assumptions = list(evidence.assumptions)
    return _Walk(evidence, rules, clean, outcome).run()


@dataclass
class _Walk:
    """The state of one walk; `outcome` is filled on the way."""

    evidence: Evidence
    rules: Rules
    clean: bool
    outcome: Outcome

    def run(self) -> Outcome:
        """Walk the start and return its outcome."""
        evidence, outcome = self.evidence, self.outcome
        config = read_config_files(evidence.store, self.rules, evidence.settings, evidence.config)
        outcome.config_from_backup, outcome.notes = config.from_backup, list(config.notes)
        outcome.decisions += config.decisions
        outcome.deleted_files += config.deleted
        if config.first is not None:
            return self._refuse(config.first)
        loaded = load(evidence.store, self.rules, evidence.settings, evidence.listing)
        outcome.decisions += loaded.decisions
        outcome.deleted_files += loaded.deleted
        outcome.ignored_files = loaded.ignored
        outcome.notes += loaded.notes
        if loaded.refusal is not None:
            return self._refuse(loaded.refusal)
        if loaded.unknown is not None:
            return self._give_up(loaded.unknown)
        if evidence.settings.store_type.lower() == "defaultrocksdb":
            return self._give_up("the queues are in RocksDB, which is not walked")
        if self.rules.ledger_scan != "absent":
            loaded = loaded._replace(segments=(*loaded.segments, *ledger_files(evidence.store)))
        index = evidence.index.load(self.rules, evidence.checkpoint, clean=self.clean)
        outcome.decisions += index.decisions
        queues = Queues(evidence.queues, self.rules, loaded.queues)
        self._decide(
            "queues",
            f"the queues reach {queues.max_physic_offset}",
            (("maxPhysicOffset", queues.max_physic_offset), ("queue_end", self.rules.queue_end)),
            "ConsumeQueue#recover",
        )
        if self._recover(loaded, queues, index):
            self._finish(loaded, queues, index)
        for refusal in (index.refusal, config.last):  # recovery has run by then
            if refusal is not None and outcome.refusal is None:
                self._refuse(refusal)
        unknown = index.unknown or config.unknown or next(iter(evidence.queues.problems), None)
        if unknown is not None and outcome.refusal is None:
            self._give_up(unknown)
        return outcome

    # --- recovery -------------------------------------------------------------------------------

    def _recover(self, loaded: Loaded, queues: Queues, index: IndexState) -> bool:
        """Recover the log and cut the queues; return whether the start goes on."""
        if not loaded.segments:
            self._recover_nothing(queues)
            return True
        if loaded.segments[0].lead:
            return self._recover_ledger(loaded.segments, queues, index)
        reached = queues.max_physic_offset
        scanner = self.evidence.scanner(loaded.segments)
        start = start_segment(
            scanner, self.rules, self.evidence.settings, self.evidence.checkpoint, reached, clean=self.clean
        )
        self.outcome.decisions.append(start.decision)
        first = loaded.segments[start.segment]
        self.outcome.scan_start = first.base
        if start.refusal is not None:
            self._refuse(start.refusal)
            return False
        if start.unknown is not None:
            self._give_up(start.unknown)
            return False
        if self.evidence.announce is not None:
            size = sum(segment.size for segment in loaded.segments[start.segment :]) - start.position
            self.evidence.announce(size, f"the start scans the log from segment {first.base} on")
        take = self._take(queues, index, first.base + start.position, reached)
        scan = scanner.scan(
            self.rules, start.segment, start.position, clean=self.clean, take=take, counted=start.counted
        )
        if not self._note_scan(scan):
            return False
        self._cut(loaded.segments, queues, reached, scan.end)
        return True

    def _recover_ledger(self, files: Sequence[Segment], queues: Queues, index: IndexState) -> bool:
        """Recover a DLedger log as its library does, and cut the queues; return whether the start goes on."""
        evidence, outcome, reached = self.evidence, self.outcome, queues.max_physic_offset
        try:
            ledger = recover_ledger(evidence.store, files, evidence.settings)
        except Unreadable as error:
            self._give_up(str(error))
            return False
        outcome.decisions.append(ledger.decision)
        outcome.scan_start, outcome.rejected, outcome.end_offset = ledger.scan_start, ledger.rejected, ledger.end
        if ledger.refusal is not None:
            self._refuse(ledger.refusal)
            return False
        if ledger.committed is not None and ledger.committed < ledger.end:
            outcome.notes.append(f"entries behind {ledger.committed} are served once the group has committed them")
        cut = ledger.end
        if not self.clean:
            try:
                found = record_scan(evidence.store, files, self.rules, evidence.settings, evidence.checkpoint, ledger)
            except Unreadable as error:
                self._give_up(str(error))
                return False
            if found is not None:
                scanner, first = found
                take = self._take(queues, index, files[first].base, reached)
                scan = scanner.scan(self.rules, first, 0, clean=False, take=take)
                if scan.unreadable is not None:
                    self._give_up(scan.unreadable)
                    return False
                cut = scan.end
        if reached >= cut:
            queues.truncate(cut)
        self._decide(
            "cut",
            f"the log at {ledger.end}; the queues "
            + (f"are cut at {cut}" if reached >= cut else f"end in front of {cut} and are left as they are"),
            (("maxPhysicOffset", reached), ("end", cut), ("ledger_scan", self.rules.ledger_scan)),
            "DLedgerCommitLog#recover, #dledgerRecoverNormally, #dledgerRecoverAbnormally",
        )
        self._delete_behind(files, ledger.end)
        return True

    def _recover_nothing(self, queues: Queues) -> None:
        """Without a segment the queues are destroyed, or kept, and the log begins at 0."""
        kept = self.clean and self.rules.clean_without_log == "keep"
        if not kept:
            queues.destroy()
        self._decide(
            "cut",
            f"no segment is loaded: all queues are {'kept' if kept else 'deleted'}, and the log begins at 0",
            (("segments", 0), ("clean_without_log", self.rules.clean_without_log)),
            "CommitLog#recoverNormally, #recoverAbnormally",
        )

    def _take(self, queues: Queues, index: IndexState, begin: int, reached: int) -> Callable[[Batch], None] | None:
        """Return what dispatches the records of the scan; None where the scan dispatches nothing."""
        if not self.clean:
            behind = None
        elif self.rules.clean_dispatch == "behind_queues":
            behind = reached
        else:
            return None

        def take(batch: Batch) -> None:
            for _ in batch.mismatched:
                index.dispatch_unknown()
            queues.dispatch(batch, behind)
            offsets = batch.records.physical_offset
            index.dispatch(batch.records if behind is None else batch.records.select(offsets > behind))

        self.outcome.dispatch_start = begin if behind is None else behind + 1
        what = "each record" if behind is None else f"records whose PHYSICALOFFSET is above {behind}"
        self._decide("dispatch", f"{what} of the scan", (("maxPhysicOffset", reached),), "CommitLog#recoverNormally")
        return take

    def _note_scan(self, scan: Scan) -> bool:
        """Keep where and why the scan ended; return whether the start goes on."""
        outcome = self.outcome
        outcome.rejected = scan.rejected
        outcome.end_offset = scan.end
        if scan.unreadable is not None:
            self._give_up(scan.unreadable)
            return False
        if scan.killed is not None:
            where = scan.killed
            why = (
                f"the record at {where.physical_offset} says a size that a heap of 1 GiB does not hold "
                "(OutOfMemoryError); a larger heap would cut the log there"
            )
            self._refuse(Refusal(where.file, where.rule, why, "start a release that compares the size: 5.3.2 or later"))
            return False
        why = f"refused: {scan.rejected.rule}" if scan.rejected else "no record follows"
        self._decide("scan", f"ends at {scan.end}: {why}", (("end", scan.end),), "CommitLog#checkMessageAndReturnSize")
        return True

    def _cut(self, segments: Sequence[Segment], queues: Queues, reached: int, end: int) -> None:
        """Cut the log at the end of the scan, and the queues where the rules say so."""
        if self.rules.queue_cut == "unclean_always":
            cut_queues, compared = not self.clean, reached
        else:
            compared = reached if self.rules.queue_cut_end == "before_dispatch" else queues.max_physic_offset
            cut_queues = compared >= end
        if cut_queues:
            queues.truncate(end)
        self._decide(
            "cut",
            f"the log at {end}; the queues are {'cut there too' if cut_queues else 'left as they are'}",
            (("maxPhysicOffset", compared), ("end", end), ("queue_cut", self.rules.queue_cut)),
            "MappedFileQueue#truncateDirtyFiles, ConsumeQueue#truncateDirtyLogicFiles",
        )
        self._delete_behind(segments, end)

    def _delete_behind(self, segments: Sequence[Segment], end: int) -> None:
        for segment in segments:
            if segment.base > end:
                self.outcome.deleted_segments.append(segment.base)
                self.outcome.deleted_files.append(segment.name)

    # --- start ----------------------------------------------------------------------------------

    def _finish(self, loaded: Loaded, queues: Queues, index: IndexState) -> None:
        """Dispatch what no queue has, correct the minimum of queues, and describe what is left."""
        outcome = self.outcome
        segments = [segment for segment in loaded.segments if segment.base not in outcome.deleted_segments]
        outcome.segments_after = [segment.base for segment in segments]
        outcome.min_offset = segments[0].base if segments else -1
        size = self.evidence.settings.mapped_file_size_commit_log
        outcome.end_offset = _end_of_log(segments, outcome.end_offset, size)
        if segments and not self._reput(segments, queues, index):
            return
        if outcome.dispatch_start is not None and outcome.dispatch_start >= outcome.end_offset:
            outcome.dispatch_start = None  # nothing lies behind it
        refusal = queues.correct_minimum(outcome.min_offset)
        outcome.queues = queues.outcomes(range(max(0, outcome.min_offset), outcome.end_offset))
        outcome.unreachable = sum(queue.unreachable for queue in outcome.queues)
        outcome.groups_beyond = groups_beyond(self.evidence.group_offsets, outcome.queues)
        outcome.deleted_files += queues.deleted_files
        outcome.deleted_files += index.deleted
        outcome.index_files_after, outcome.deleted_index_files = map(_last_names, (index.after, index.deleted))
        outcome.new_index_files = index.new
        outcome.index_entries_behind = index.entries_behind(outcome.end_offset)
        if refusal is not None:
            self._refuse(refusal)

    def _reput(self, segments: Sequence[Segment], queues: Queues, index: IndexState) -> bool:
        """Dispatch from where the queues end, if this release does; return whether the start goes on."""
        settings, end = self.evidence.settings, self.outcome.end_offset
        if self.rules.reput_from == "log_end" and not settings.recheck_reput_offset_from_cq:
            return True
        begin = max(queues.max_physic_offset, self.outcome.min_offset, 0)
        self._decide(
            "reput",
            f"dispatch goes on at {begin}, the end of the queues" if begin < end else "nothing is left to dispatch",
            (("maxPhysicOffset", queues.max_physic_offset), ("end", end)),
            "DefaultMessageStore#start, ReputMessageService#doReput",
        )

        if begin < end:
            self.outcome.dispatch_start = min(begin, self.outcome.dispatch_start or begin)

        def take(batch: Batch) -> None:
            queues.dispatch(batch)
            index.dispatch(batch.records)

        stuck = reput(self.evidence.store, segments, self.rules, settings, begin, end, take)
        if stuck is not None:
            why = f"dispatch does not get past {stuck}, and the start waits for it forever"
            self._refuse(Refusal("commitlog", "reput", why, "restore the segment that is missing there"))
        return stuck is None

    def _refuse(self, refusal: Refusal) -> Outcome:
        self.outcome.refusal, self.outcome.verdict = refusal, Verdict.REFUSES
        return self.outcome

    def _give_up(self, why: str) -> Outcome:
        self.outcome.unknown, self.outcome.verdict = why, Verdict.UNKNOWN
        return self.outcome

    def _decide(self, step: str, text: str, inputs: tuple[tuple[str, str | int], ...], source: str) -> None:
        self.outcome.decisions.append(Decision(step, text, inputs, source))


def _end_of_log(segments: Sequence[Segment], end: int, size: int) -> int:
    """Return the maximum offset that the broker gives: the write position of the last file that is left.

    Source: MappedFileQueue#truncateDirtyFiles, #getMaxOffset.
    """
    if not segments:
        return 0
    base = segments[-1].base
    return base + end % size if base <= end < base + size else base + size


def _last_names(paths: Sequence[str]) -> list[str]:
    return [path.rpartition("/")[2] for path in paths]
