"""What the walks of one store read: everything once, when it is first asked for.

A start is told of a whole store only: what to say of parts of one.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from rmqinspect.broker.acknowledged import Acknowledged, acknowledged_behind
from rmqinspect.broker.delay_levels import DELAY_OFFSETS, DelayLevels, offsets_in
from rmqinspect.broker.eras import rules_of_start
from rmqinspect.broker.gone import TIMERCHECK, TOPICS, changed_by_a_broker, reserved_hours, was_cleaned
from rmqinspect.broker.groups import is_system_group
from rmqinspect.broker.start_rules import Rules
from rmqinspect.commitlog.tail import LogEnd, Sample, find_log_end, sample_edges
from rmqinspect.config.json_files import (
    ConsumerOffset,
    read_checkpoint,
    read_config,
    read_consumer_offsets,
    write_queues,
)
from rmqinspect.errors import Unreadable
from rmqinspect.forecast.config_files import ConfigCopies
from rmqinspect.forecast.dledger import ledger_files, why_not_told
from rmqinspect.forecast.index_files import IndexFiles
from rmqinspect.forecast.load import Listing
from rmqinspect.forecast.log_records import LogRecords
from rmqinspect.forecast.outcome import Forecast, LostQueue, Outcome, Verdict, note_unread
from rmqinspect.forecast.queues import QueueEnds
from rmqinspect.forecast.queues_in_rocksdb import RocksdbTable
from rmqinspect.forecast.scan import LogScanner
from rmqinspect.forecast.settings import Settings, as_read_by, settings_of
from rmqinspect.forecast.shelf import BATCH, UNITS
from rmqinspect.forecast.words import LOOK_FOR
from rmqinspect.index.geometry import read_index_files
from rmqinspect.rocksdb.databases import CONFIG, ENTRIES, QUEUES, last_half, last_indexed, unread_databases
from rmqinspect.store.model import Segment, Store
from rmqinspect.tables.group_positions import ends_of
from rmqinspect.tables.pops import pop_counts, pop_queues
from rmqinspect.tables.request import Request
from rmqinspect.text import count, group_digits, text_of
from rmqinspect.timer.log import (
    TimerLog,
    count_in_slots,
    current_wheel,
    find_precision,
    read_timercheck,
    timer_log_files,
)
from rmqinspect.topics import OP_TOPIC, SCHEDULE_TOPIC, is_system_topic

_WHAT_DECIDES = "abort (how the last stop is taken), checkpoint, consumequeue and index"


def only_parts(store: Store) -> str | None:
    """Return why a start cannot be told where loose files or folders were given; None for a store."""
    if store.given == "store":
        return None
    given = store.given.replace("_", " ")
    return f"only parts of a store were given ({given}): what a start does also depends on {_WHAT_DECIDES}"


def of_parts(store: Store) -> Forecast | None:
    """Return the forecast for parts of a store, which needs no walk; None for a store."""
    why = only_parts(store)
    if why is None:
        return None
    notes = ["what can be told: whether these parts are whole (verify), and what they hold (decode)"]
    return Forecast([Outcome("", "", clean_exit=True, verdict=Verdict.UNKNOWN, unknown=why, notes=notes)])


ABORT = "abort"
_HIDDEN_LOG = "the folder of the commit log cannot be listed"
_MOST_POPS = 1 << 11  # checkpoints and acks of pops that are read, half a second
_HOUR = 3_600_000  # ms
_LEVELS = 1 << 31  # queues of the schedule topic, whose number is not in topics.json: any
_KEPT = {"schedule": (SCHEDULE_TOPIC,), "op": (SCHEDULE_TOPIC, OP_TOPIC)}  # by `Rules.kept_topics`
_WHOLE = ("checkpoint", "index", "timerlog", "timerwheel")  # a start depends on whether they are there


class TimerPlace(NamedTuple):
    """Where the timer goes on: all 0 without a timercheck."""

    fired: int  # ms; slots of the wheel before it have fired
    taken: int  # queue offset behind what it had taken of its topic
    next_offset: int  # from which on it takes it now


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
    other_writer: bool = False  # no release of RocketMQ wrote the store
    records: LogRecords = field(default_factory=LogRecords)  # of the log, by queue; those of other choices, too
    _scanners: dict[tuple[str, ...], LogScanner] = field(default_factory=dict, init=False)
    _others: dict[str, "Evidence"] = field(default_factory=dict, init=False)

    def of_release(self, rules: Rules) -> "Evidence":
        """Return what the walks of a release read: another, where it does not know all names in broker.conf."""
        store = as_read_by(self.store, rules)
        if store is self.store:
            return self
        return self._others.setdefault(rules.size_names, replace(self, store=store))

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
        return self.store.has_file(ABORT) or self.store.has_folder(ABORT)  # File#exists

    @cached_property
    def checkpoint(self) -> Mapping[str, int]:
        """The values of the checkpoint by field; empty without one."""
        try:
            return read_checkpoint(self.store, mapped=True)
        except Unreadable as error:
            self.unread.append(str(error))
            return {}

    @cached_property
    def config(self) -> ConfigCopies:
        """All files of `config/` as brokers read them."""
        return ConfigCopies(self.store)

    @cached_property
    def listing(self) -> Listing:
        """The folders of mapped files, entry by entry."""
        return Listing(self.store)

    @cached_property
    def queues(self) -> QueueEnds:
        """All queues as they are."""
        return QueueEnds.read(self.store, self.settings)

    @cached_property
    def rocksdb_queues(self) -> RocksdbTable | str:
        """The queues in RocksDB as they are; why they are not known, if they were not read."""
        if why := self._unread(QUEUES):
            return why
        return RocksdbTable.read(self.store, self.settings, self.topics)

    def asked_beside(self, rules: Rules) -> tuple[list[int | None], str | None]:
        """Return how far indexes and transactions in RocksDB are, where a start asks them; or why it is not known."""
        settings, all_stores = self.settings, rules.dispatch_from == "all_stores"
        asks_transactions = settings.trans_rocks_db_enable and (
            all_stores or not settings.trans_write_origin_trans_half_enable
        )
        asked: list[int | None] = []
        if rules.unclean_start != "record" or not (settings.index_rocks_db_enable or asks_transactions):
            return asked, None
        if settings.index_rocks_db_enable:
            asked.append(last_indexed(self.store))
        if asks_transactions:
            asked.append(last_half(self.store))
        return asked, self._unread(ENTRIES)

    def _unread(self, holds: str) -> str | None:
        """Return why a database was not read that holds something; None if it was, or there is none."""
        for database in unread_databases(self.store, holds):
            known = [oddity.detail for oddity in self.store.oddities if oddity.place == database.place]
            why = f"{database.name}: {known[0] if known else 'a RocksDB database, which was not read'}"
            if why not in self.unread:
                self.unread.append(why)
            return why
        return None

    @cached_property
    def group_offsets(self) -> Sequence[ConsumerOffset]:
        """The offsets of all groups, as far as they can be read."""
        return read_consumer_offsets(self.store)[0]

    @cached_property
    def log_end(self) -> LogEnd:
        """Where the log ends: bounded reads."""
        return find_log_end(self.store, self.queues.last_offsets)

    @cached_property
    def samples(self) -> tuple[Sample, Sample]:
        """Samples of the log's first and last records: bounded reads."""
        return sample_edges(self.store, self.log_end.sample, [])

    @cached_property
    def gone_first(self) -> str:
        """What lay before the log and no retention can have taken, in words; CL-FIRST of verify, by bounded reads.

        Against a retention speak files that point at nothing else, which it deletes, too, or a last message that was
        younger than fileReservedTime at the newest record.
        """
        store, start, newest = self.store, self.store.log_start, self.log_end.last_timestamp
        if not start or store.given != "store" or newest is None:
            return ""
        queues = self.queues.summaries
        gone = [max(0, queue.units - max(0, queue.max_offset - queue.first_kept)) for queue in queues]
        index = [file for file in read_index_files(store, []) if file.entries]
        headers = [file.header for file in index if file.header is not None]
        before = [header for header in headers if header.begin_physical_offset < start]
        last = max((header.end_timestamp for header in before if header.end_physical_offset < start), default=0)
        last = max(last, max((header.begin_timestamp for header in before), default=0))
        left = any(header.end_physical_offset < start for header in before[: len(index) - 1])
        for queue, units in zip(queues, gone, strict=True):
            size = UNITS.get(queue.files[0].kind, 1)
            left |= any((file.base - queue.files[0].base) // size <= units for file in queue.files[1:])
        is_young = 0 <= newest - last < reserved_hours(store.settings) * _HOUR
        if not (left or is_young) or not (any(gone) or before):
            return ""
        if was_cleaned(store, queues, index) or changed_by_a_broker(store, newest):
            return ""
        held = f", at least {count(sum(gone), 'message')}" if any(gone) else ""
        return f"what lay before {group_digits(start)} is gone{held}, but not as a retention takes it: {LOOK_FOR}"

    def lost_queues(self, outcome: Outcome) -> list[LostQueue]:
        """Return the queues of sampled records that have no unit after a start, and had none.

        Not those of a deleted topic, nor of queues that were not read, nor of a store that another program wrote.
        """
        if self.other_writer or self.store.given != "store" or outcome.min_offset < 0 or self._unread(QUEUES):
            return []
        queues = {(queue.topic, queue.queue_id): queue for queue in outcome.queues}
        with_units = {queue.topic for queue in outcome.queues if queue.max_before or queue.max_after}
        behind: dict[tuple[str, int], int] = {}  # the highest queue offset met
        found = set()
        for (topic, queue_id), place, queue_offset in self._sampled:
            name = text_of(topic), queue_id
            if not outcome.min_offset <= place < outcome.end_offset or self.store.hides_queue(*name):
                continue
            behind[name] = max(queue_offset + 1, behind.get(name, 0))
            queue = queues.get(name)
            if queue is not None and (queue.max_before or queue.max_after):
                # A unit behind the record's is of a later record: the topic was deleted, and made again.
                last = self.queues.last_of(*name)
                if last is not None and last < place and queue_offset >= queue.max_after:
                    found.add(name)
            elif self._is_known(outcome, *name, with_units):
                found.add(name)
        ends = {name: queues[name].max_after if name in queues else 0 for name in found}
        return [LostQueue(*name, max(0, behind[name] - ends[name])) for name in sorted(found)]

    def none_leads(self, outcome: Outcome) -> bool:
        """Whether no queue of `consumequeue` leads to a record of its own after a start, by a sample, and some had to.

        Batch queues have a folder of their own, and may be left.
        """
        leading = {(queue.topic, queue.queue_id) for queue in outcome.queues if queue.min_after < queue.max_after}
        leading -= {(topic, queue_id) for kind, topic, queue_id in self.queues.before if kind == BATCH}
        inside = (
            (text_of(topic), queue_id)
            for (topic, queue_id), place, _ in self._sampled
            if outcome.min_offset <= place < outcome.end_offset
        )
        return bool(outcome.lost_queues) and leading.isdisjoint(inside)

    def _is_known(self, outcome: Outcome, topic: str, queue_id: int, with_units: Collection[str]) -> bool:
        """Whether the broker has a queue without a unit, as far as is known: its topic may have been deleted."""
        if not self._had_topics or self._is_kept(outcome, topic):
            return True
        if not self.topics:
            return topic in with_units
        return queue_id < self.topics.get(topic, _LEVELS if topic == SCHEDULE_TOPIC else 0)

    def knows_queue(self, outcome: Outcome, topic: str, queue_id: int) -> bool:
        """Whether the broker has, or had, a queue that has no unit after a start.

        Since 5.0.0 the offsets of a deleted topic are deleted, too: there they prove a queue.
        """
        queues = [queue for queue in outcome.queues if queue.max_before or queue.max_after]
        if any((queue.topic, queue.queue_id) == (topic, queue_id) for queue in queues):
            return True
        if self._is_known(outcome, topic, queue_id, {queue.topic for queue in queues}):
            return True
        return self.is_proven(outcome.release, topic, queue_id)

    def is_proven(self, release: str, topic: str, queue_id: int) -> bool:
        """Whether an offset of a group of users proves a queue."""
        return rules_of_start(release).deleted_offsets and (topic, queue_id) in self._consumed

    @staticmethod
    def _is_kept(outcome: Outcome, topic: str) -> bool:
        """Whether a topic is the broker's own, and no deletion of another one deletes its queues."""
        kept = rules_of_start(outcome.release).kept_topics
        return is_system_topic(topic) if kept == "system" else topic in _KEPT[kept]

    @cached_property
    def _consumed(self) -> frozenset[tuple[str, int]]:
        """The queues in which groups of users have an offset."""
        return frozenset(
            (entry.topic, entry.queue_id)
            for entry in self.group_offsets
            if entry.offset > 0 and not is_system_group(entry.group)
        )

    @cached_property
    def delay_offsets(self) -> Mapping[int, int]:
        """The next queue offset of each delay level, as a broker reads it."""
        return offsets_in(read_config(self.store, DELAY_OFFSETS))

    @cached_property
    def levels(self) -> DelayLevels:
        """The queues of the delay levels."""
        return DelayLevels(self.store, self.log_end.newest_timestamp)

    @cached_property
    def timer_goes_on(self) -> TimerPlace | None:
        """Where the timer goes on, by timercheck; None if that cannot be read."""
        try:
            check = read_timercheck(self.store.config_files.get(TIMERCHECK))
            taken, master = int(check.last_timer_queue_offset), int(check.master_timer_queue_offset)
            return TimerPlace(int(check.last_read_timestamp), taken, min(taken, master))
        except Unreadable as error:
            note_unread(self.unread, str(error))
            return None

    def fired_again(self, fired: int) -> int | None:
        """Return how many timer messages lie in slots from a time (ms) to that of the newest record, at most.

        They may have fired since timercheck was written. None: the wheel cannot be read.
        """
        wheel, newest = current_wheel(self.store.files), self.log_end.newest_timestamp
        if wheel is None or newest is None or newest < fired:
            return 0
        try:
            precision = find_precision(self.store.settings, TimerLog(timer_log_files(self.store.files)), ())
            return count_in_slots(wheel, fired // precision, newest // precision)
        except Unreadable as error:
            note_unread(self.unread, str(error))
            return None

    @cached_property
    def stuck_timers(self) -> int:
        """How many timer messages wait for a time before that of the timer's clock, which ran ahead."""
        from rmqinspect.tables.delays import count_stuck  # a table, which few starts need

        return count_stuck(self.store)

    @cached_property
    def unacknowledged(self) -> int | None:
        """How many messages were popped, and not acknowledged; None: what tells it cannot be read, or is too much."""
        failed: list[str] = []
        too_many: list[str] = []
        request = Request(on_unreadable=failed.append, on_remark=too_many.append)
        queues = pop_queues(self.store)
        if not queues:
            return 0
        ends = ends_of(self.store, request, queues)
        counts = pop_counts(self.store, self.group_offsets, ends, request, _MOST_POPS)
        note_unread(self.unread, *failed)
        return None if failed or too_many else sum(one.in_flight + one.awaiting_revive for one in counts.values())

    @cached_property
    def acknowledged(self) -> Acknowledged | None:
        """What lay behind the end of the log, and a broker had acknowledged."""
        return acknowledged_behind(self.store, self.log_end, self.queues.summaries)

    @cached_property
    def _had_topics(self) -> bool:
        """Whether there is a topics.json, or was: a store class that ran alone has none, and deletes no topic."""
        store = self.store
        return (
            TOPICS in self.config.gone
            or store.hides("config", TOPICS)
            or read_config(store, TOPICS) is not None
            or bool(unread_databases(store, CONFIG))
        )

    @property
    def in_the_way(self) -> list[str]:
        """Names of files that lie where folders of queues have to be, of topics that are known: the outermost first."""
        files = self.queues.files_for_folders
        known = {text_of(topic) for (topic, _), *_ in self._sampled} | set(self.topics) if files else set()
        return [
            "/".join(place)
            for place in sorted(files, key=lambda place: (len(place), place))
            if len(place) == 1 or (place[1] in known and all(map(str.isdecimal, place[2:])))
        ]

    @property
    def _sampled(self) -> Iterator[tuple[tuple[bytes, int], int, int]]:
        """Yield (topic and queue id, physical offset, queue offset) of the last sampled record of each queue.

        And of the first one, whose queue offset is not known: -1.
        """
        for sample in self.samples:
            for queue, place in sample.queues.items():
                yield queue, place, -1
            for queue, (place, queue_offset) in sample.last.items():
                yield queue, place, queue_offset

    @cached_property
    def topics(self) -> Mapping[str, int]:
        """The write queues of each topic in topics.json."""
        return write_queues(self.store)

    @cached_property
    def index(self) -> IndexFiles:
        """All index files as they are."""
        return IndexFiles.read(self.store, self.settings)

    @property
    def unknown(self) -> str | None:
        """Why nothing can be told about a start; None if it can."""
        store = self.store
        if (parts := only_parts(store)) is not None:
            return parts
        if (hidden := store.hidden_log) is not None:
            return f"{hidden.name}: {hidden.detail}" if hidden.kind == "absent" else _HIDDEN_LOG
        for name in _WHOLE:
            if store.hides(name):
                return f"{name} could not be read"
        return why_not_told(store)

    @cached_property
    def ledger(self) -> tuple[Segment, ...]:
        """The data files of the DLedger log that a start reads; none for a plain one."""
        is_asked_for = self.settings.enable_d_leger_commit_log or not self.store.has_conf
        return ledger_files(self.store) if is_asked_for else ()

    def scanner(self, segments: Sequence[Segment]) -> LogScanner:
        """Return the scanner of a log that consists of these segments."""
        key = tuple(segment.path for segment in segments)
        if key not in self._scanners:
            self._scanners[key] = LogScanner(self.store, segments, self.settings, self.jobs, self.progress)
        return self._scanners[key]
