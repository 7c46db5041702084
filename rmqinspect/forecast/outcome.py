"""What a start does to a store: the answer of one walk, and those of all releases together.

Everything "after" is the state when the broker serves: after load, recovery, start and the dispatch that follows.
"""

from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, NamedTuple

from msgspec import Struct, field

from rmqinspect import notebook
from rmqinspect.broker.acknowledged import Acknowledged
from rmqinspect.broker.unread import Unread
from rmqinspect.document import Part, means


class Verdict(StrEnum):
    """What the next start does, the worst one last."""

    SAFE = "STARTS, LOSES NOTHING MORE"
    LOSES = "STARTS, LOSES DATA"
    REFUSES = "WILL NOT START"
    EMPTY = "STARTS EMPTY"  # without the log or the queues that other files prove; a refused start loses none of it
    UNKNOWN = "CANNOT TELL"
    RUNS = "A BROKER RUNS ON THIS STORE"


SERVING = (Verdict.SAFE, Verdict.LOSES)
STARTING = (Verdict.SAFE, Verdict.LOSES, Verdict.EMPTY)
"""The answers for a broker that serves in the end."""

COSTS = (Verdict.LOSES, Verdict.REFUSES, Verdict.EMPTY)
"""Those that another way to start may better."""


class Refusal(NamedTuple):
    """Why the broker does not start."""

    file: str  # relative to the store
    rule: str  # a name of `broker.start_rules.Rules`, or of a rule that holds in all releases
    why: str  # a sentence
    remedy: str  # what makes it start, a command or a sentence; `Forecast.instead` has its price
    moves: bool = False  # the remedy is to move the file away
    length: int | None = None  # bytes: the remedy is to cut the file to them, or to fill it with zeros
    settings: tuple[tuple[str, str], ...] = ()  # the remedy is these lines of broker.conf
    costs: str = ""  # what the remedy gives up beside messages, a clause
    moves_also: tuple[str, ...] = ()  # files that the remedy moves away besides

    @classmethod
    def till_moved(cls, file: str, rule: str, why: str) -> "Refusal":
        """Return a refusal that ends once the file is moved away."""
        return cls(file, rule, why, f"move {file} to a place outside of the store", moves=True)

    @classmethod
    def till_off(cls, file: str, rule: str, why: str, setting: str) -> "Refusal":
        """Return a refusal that ends once a setting is off."""
        remedy = f"set {setting}=false in broker.conf"
        return cls(file, rule, why, remedy, settings=((setting, "false"),))


class Rejected(Part, frozen=True):
    """The first byte of the log that the scan refuses, where records are expected."""

    physical_offset: Annotated[int, means("of the first byte that is refused")]
    rule: Annotated[str, means("what it breaks, such as `body_crc`")]  # a name of `forecast.check.REASONS`
    file: Annotated[str, means("the segment")]
    position: Annotated[int, means("in the file")]


class Decision(NamedTuple):
    """One step of the walk, for `--explain`."""

    step: str  # load, queues, index, checkpoint, start, scan, dispatch, cut, reput, minimum, config
    text: str  # what was decided, a sentence
    inputs: tuple[tuple[str, str | int], ...]  # names and values that it was decided from
    source: str  # class#method


class QueueOutcome(Struct):
    """A queue before and after the start. Offsets are queue offsets; the maximum is one behind the last."""

    topic: str
    queue_id: int
    min_before: int
    max_before: int
    min_after: int
    max_after: int
    cut: int = 0  # units that were there and are not any more
    added: int = 0  # units that this start appends
    stays: int = 0  # queue offset: units before it stay as they are; those from it on are gone, or are written again
    unreachable: int = 0  # records that stay in the log, and whose unit is gone
    given_twice: int = 0  # queue offsets that records behind the new end, or without a unit, have taken already


class Losses(Struct):
    """What lies at or behind the new end of the log and is given up, each record once."""

    messages: int = 0
    end: int | None = None  # physical offset behind the last of them
    intact: int = 0
    units: int = 0
    bytes: int = 0
    first_timestamp: int | None = None  # ms
    last_timestamp: int | None = None
    by_topic: dict[str, int] = field(default_factory=dict)
    bytes_by_topic: dict[str, int] = field(default_factory=dict)
    units_by_topic: dict[str, int] = field(default_factory=dict)
    first_by_topic: dict[str, int] = field(default_factory=dict)  # ms
    copies: int = 0  # records given up whose original stands in its place: no messages, and not among them
    turns: list[tuple[int, bool]] = field(default_factory=list)  # (place, lost): from it on records are lost, or not
    named: list[tuple[int, int]] = field(default_factory=list)  # (place, size) of those that only units name


class GroupBeyond(Part, frozen=True, order=True):
    """A consumer group whose offset in a queue lies beyond the maximum that the queue has after the start."""

    group: Annotated[str, means("its name")]
    topic: Annotated[str, means("topic of the queue")]
    queue_id: Annotated[int, means("its number")]
    offset: Annotated[int, means("of the group")]
    max_offset: Annotated[int, means("of the queue after the start")]


class GroupStart(NamedTuple):
    """What a start means to a consumer group, over all queues where it means anything; numbers of messages."""

    group: str
    queues: tuple[tuple[str, int], ...]  # topic, queue id
    unconsumed: int  # of those that are gone after the start, the ones that it has not consumed
    skips: int  # new ones that it does not get, at most: they take queue offsets before its own
    again: int  # that it gets a second time, if it asks before the queues have grown beyond its offsets


class TransactionStart(Part, frozen=True):
    """What the broker's check of transactions makes of its offsets, which lie beyond the new ends of its queues."""

    unchecked: Annotated[
        int,
        means(
            "new half messages that are not checked back, at most: those whose producers neither commit nor roll back "
            "stay undecided"
        ),
    ]
    again: Annotated[
        int,
        means(
            "decided half messages that are checked back once more, at most: a producer that commits again sends twice"
        ),
    ]


class LevelStart(Part, frozen=True):
    """Where a delay level goes on, of those that pass messages over or deliver some again."""

    level: Annotated[int, means("from 1")]
    offset: Annotated[int, means("in delayOffset.json; 0 without one")]
    next_offset: Annotated[int, means("where it goes on after the start")]
    max_offset: Annotated[int, means("of its queue then")]
    passed: Annotated[int, means("messages that wait, and that it never delivers: it goes on behind them")]
    copies_gone: Annotated[
        int, means("the same where the log has lost its end: their delivered copies may have stood there, and are gone")
    ]
    skips: Annotated[int, means("new messages that it never delivers, at most: its queue has to grow to its offset")]
    again: Annotated[int | None, means("messages that it delivers again, at most; null: not known")]
    set_back: Annotated[
        int | None, means("what to set in delayOffset.json, so that it passes nothing over; null where it does not")
    ]


class TimerStart(Part, frozen=True):
    """Where the timer goes on, where it passes messages over, delivers some again, or its clock ran ahead."""

    skips: Annotated[int, means("new timer messages that it never takes, at most: its offset lies beyond its queue")]
    again: Annotated[
        int | None,
        means("messages that it delivers again, at most, acknowledgements of pops among them; null: not known"),
    ]
    stuck: Annotated[int, means("messages that wait for a time before that of its clock: not delivered until then")]
    until: Annotated[str | None, means("the time of its clock, where that ran ahead of the log")]
    set_back: Annotated[
        int | None, means("what to set the clock in timercheck to, ms; null where it did not run ahead")
    ]


class Again(Part, frozen=True):
    """Messages that come a second time, at most; null: not known."""

    groups: Annotated[int, means("to groups, whose offsets lie beyond the new ends of queues")]
    queues: Annotated[int, means("by units of other places that lead to them")]
    delay_levels: Annotated[int | None, means("because delayOffset.json is older than the log")]
    timers: Annotated[int | None, means("because timercheck is older than the log")]
    pops: Annotated[int | None, means("popped, and not acknowledged")]


class LostQueue(NamedTuple):
    """A queue of records that a sample of the log holds, and that have no unit after a start, nor had one before."""

    topic: str
    queue_id: int
    given_twice: int  # at least: offsets that these records have, and that the broker gives out again


class Outcome(Struct):
    """The answer for one release (or an era: all of its releases answer the same)."""

    release: str
    era: str  # "5.2.0 to 5.3.1"
    clean_exit: bool
    verdict: Verdict = Verdict.UNKNOWN
    refusal: Refusal | None = None
    unknown: str | None = None  # why it cannot be told
    scan_start: int | None = None  # base of the segment
    rejected: Rejected | None = None
    min_offset: int = -1  # of the log, as the broker says it: -1 without segments
    end_offset: int = 0
    segments_after: list[int] = field(default_factory=list)  # bases
    deleted_segments: list[int] = field(default_factory=list)
    losses: Losses = field(default_factory=Losses)
    losses_counted: bool = True  # False: nobody has asked for them
    cuts_records: bool = False  # records lie behind the new end of the log
    ignored_files: list[str] = field(default_factory=list)  # mapped files that load leaves aside, relative to the store
    blocked_by: str | None = None  # a file in the place of the folder of queues, relative to the store
    dispatch_start: int | None = None  # physical offset; records at or behind it get units and entries again
    unreachable: int = 0  # messages that stay in the log, and to which no unit of their queue leads after the start
    unreachable_by_topic: dict[str, int] = field(default_factory=dict)  # of those whose topic is known
    wrong: int = 0  # units by which a pull returns another record than its own, or what is none
    wrong_by_topic: dict[str, int] = field(default_factory=dict)
    jumped: int = 0  # sound messages that a consumer never gets, though units lead to them: they stand behind damage
    jumped_by_topic: dict[str, int] = field(default_factory=dict)
    others: int = 0  # units by which a pull returns another message of the same topic, which comes at its own, too
    in_no_queue: dict[str, int] = field(default_factory=dict)  # records by topic: nothing proves that they had a queue
    judged: bool = False  # all records of the log were compared with the queues; else a sample was
    sampled: bool = False  # only a sample was, for the log is long
    next_offsets: dict[tuple[str, int], int] = field(default_factory=dict)  # of queues, by the records of the log
    acknowledged: Acknowledged | None = None  # what lay behind the end of the log, gone before the start
    doubled: tuple[
        str, ...
    ] = ()  # files of the log that stay and begin at one place: dispatch does not get beyond them
    led: Mapping[tuple[str, int], Any] | None = None  # `queues.Led`, until it is priced
    queues: list[QueueOutcome] = field(default_factory=list)  # by topic and queue id
    index_files_after: list[str] = field(default_factory=list)  # those that are there now
    new_index_files: int = 0  # made by the start, named by its clock
    deleted_index_files: list[str] = field(default_factory=list)
    index_entries_behind: int = 0  # entries of files that stay and point behind the new end
    deleted_files: list[str] = field(default_factory=list)  # all of them, relative to the store
    groups_beyond: list[GroupBeyond] = field(default_factory=list)
    config_from_backup: list[str] = field(default_factory=list)
    lost_config: list[str] = field(default_factory=list)  # files of config/ that were there, and no copy can be read
    assumptions: list[str] = field(default_factory=list)
    conf_notes: list[str] = field(default_factory=list)
    # Those of `notes` that NEXT START has, too: broker.conf and the files do not agree, files in the place of folders.
    notes: list[str] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    proofs: list[str] = field(default_factory=list)  # nouns: what proves a log, or queues, that the broker is without
    holes: list[tuple[int, int]] = field(default_factory=list)  # physical offsets that no segment holds, already now
    units_without_record: int = 0  # at least: of those that are cut, the ones whose record is gone already
    empty_segments: list[int] = field(default_factory=list)  # of those that are deleted
    groups: list[GroupStart] = field(default_factory=list)  # the worst first
    transactions: TransactionStart | None = None
    delay_levels: list[LevelStart] = field(default_factory=list)
    timer: TimerStart | None = None
    pops_again: int | None = 0  # popped, and not acknowledged; None: not known
    lost_queues: list[LostQueue] = field(default_factory=list)
    gone_first: str = ""  # what lay before the log, and no retention can have taken
    misplaced: int = 0  # records of the scan that stay, and whose PHYSICALOFFSET is another place: copied, or moved
    unread: list[Unread] = field(default_factory=list)  # what lies only where the broker does not look
    lock_holder: int | None = None  # process id; 0 or less: a process invisible from here; None: none

    @property
    def skipped(self) -> int:
        """How many new messages groups do not get, at most: their offsets lie beyond the queues' new ends."""
        return sum(group.skips for group in self.groups)

    @property
    def keeps_all(self) -> bool:
        """Whether the broker starts, and every message of the log is delivered; groups may skip new ones."""
        lost = self.cuts_records or self.not_received or self.loses_unknown or self.unread or self.doubled
        return self.verdict in SERVING and not lost

    @property
    def loses_unknown(self) -> bool:
        """Whether records of some queues get no unit, and nobody has counted them."""
        return not self.judged and bool(self.lost_queues)

    @property
    def not_received(self) -> int:
        """How many messages consumers do not get that this start does not delete: out of reach, wrong, jumped over."""
        return self.unreachable + self.wrong + self.jumped

    @property
    def undelivered(self) -> int:
        """How many delayed messages the broker never delivers, at most: those that wait, and new ones."""
        levels = sum(level.passed + level.skips for level in self.delay_levels)
        return levels + (self.timer.skips if self.timer is not None else 0)

    @property
    def at_risk(self) -> int:
        """How many messages consumers do not get after this start, new ones that are skipped included."""
        return self.losses.messages + self.not_received + self.skipped + self.undelivered

    @property
    def again(self) -> Again:
        """How many messages come a second time, at most."""
        levels = [level.again for level in self.delay_levels]
        return Again(
            groups=sum(group.again for group in self.groups),
            queues=self.others,
            delay_levels=None if None in levels else sum(filter(None, levels)),
            timers=self.timer.again if self.timer is not None else 0,
            pops=self.pops_again,
        )

    @property
    def healed_units(self) -> int:
        """How many units come back that queues miss now, beside those that are cut."""
        return sum(max(0, queue.added - queue.cut) for queue in self.queues)


class SetBack(Part, frozen=True):
    """A byte of which one bit was flipped, with proof, and what it was before."""

    file: Annotated[str, means("relative to the store")]
    position: Annotated[int, means("of the byte, in the file")]
    found: Annotated[int, means("its value now")]
    was: Annotated[int, means("its value before")]


class Remedy(NamedTuple):
    """What is done to a store before a start, or to its broker.conf. Names are relative to the store."""

    moved: tuple[str, ...] = ()  # files and folders that go to a place outside of it
    lengths: tuple[tuple[str, int], ...] = ()  # files that are cut, or filled with zeros, to so many bytes
    renamed: tuple[tuple[str, str], ...] = ()  # files, and their new names
    settings: tuple[tuple[str, str], ...] = ()  # lines of broker.conf
    costs: tuple[str, ...] = ()  # what this gives up beside messages
    bits: tuple[SetBack, ...] = ()  # flipped bits that are set back
    copied: tuple[tuple[str, str], ...] = ()  # files, and the names of their copies
    levels: tuple[tuple[int, int, int], ...] = ()  # delay levels: their offsets in delayOffset.json now, and then

    @property
    def steps(self) -> tuple[object, ...]:
        """What is done, one after the other."""
        return (*self.moved, *self.lengths, *self.renamed, *self.settings, *self.bits, *self.copied, *self.levels)

    def then(self, more: "Remedy") -> "Remedy":
        """Return a remedy followed by another one."""
        return Remedy(
            self.moved + more.moved,
            self.lengths + more.lengths,
            self.renamed + more.renamed,
            self.settings + more.settings,
            self.costs + more.costs,
            self.bits + more.bits,
            self.copied + more.copied,
            self.levels + more.levels,
        )


NO_REMEDY = Remedy()


REBUILD, SALVAGE = "rebuild", "salvage"


class Alternative(NamedTuple):
    """Another way to start, walked and priced."""

    way: str  # "the same broker without abort", "broker 5.5.0"
    outcome: Outcome
    remedy: Remedy = NO_REMEDY  # done before
    is_better: bool = False  # than the start that the forecast is about
    units_missed: int = 0  # queue units that do not come back, though another way to the same log brings them back
    tool: str = ""  # REBUILD or SALVAGE: the command that makes the store which is started

    @property
    def moved(self) -> tuple[str, ...]:
        """Files and folders that are moved out of the store before, relative to it."""
        return self.remedy.moved


class InReplica(Struct):
    """What another store has of the records that a start gives up."""

    name: str
    by_topic: Counter[str] = field(default_factory=Counter)  # records that it has
    missing_by_topic: Counter[str] = field(default_factory=Counter)  # and that it has not
    by_id: int = 0  # of those that it has, the ones that stand elsewhere in its log
    not_looked_for: int = 0  # of those that it has not: so many are missing at their place that ids were not looked for
    unread: list[str] = field(default_factory=list)  # what could not be read

    @property
    def there(self) -> int:
        """How many it has."""
        return self.by_topic.total()

    @property
    def missing(self) -> int:
        """How many it has not."""
        return self.missing_by_topic.total()


class SalvagePrice(Struct, frozen=True):
    """What a new store by `salvage` would have lost; the start of that one loses nothing more."""

    release: str  # for which it would be written
    lost_offsets: int  # queue offsets whose messages are lost
    aside: int  # places that could not be saved: a record, or what was left of some
    aside_bytes: int
    repaired: int  # fields that would be repaired
    inexact: int  # of these, store times that are known roughly
    refused: str | None = None  # why there would be none


class Forecast(Struct):
    """The answers for all releases that were walked; one outcome for each era whose releases answer differently.

    >>> import rmqinspect
    >>> start = rmqinspect.forecast_start(rmqinspect.open_store("samples/flipped-bit-5.3.3"), "5.3.3")
    >>> start.worst.verdict.value, start.worst.losses.messages, start.worst.clean_exit
    ('STARTS, LOSES DATA', 145, False)
    """

    outcomes: list[Outcome]  # in the order of releases
    instead: list[Alternative] = field(default_factory=list)
    version_from: str = ""  # why these releases: "given", or the clues of the estimate
    unread: list[str] = field(default_factory=list)  # what the system refused to read
    replica: InReplica | None = None  # what another store has of what the worst outcome loses
    salvage: SalvagePrice | None = None  # if it was asked for
    other_writer: str = ""  # what it means that no release of RocketMQ wrote the store
    writer: str = ""  # who wrote it, by its content: releases, or another program; "" where the release was given

    @property
    def worst(self) -> Outcome:
        """The outcome whose verdict is the worst, and of equal ones that with the most lost messages."""
        return max(self.outcomes, key=price)

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the verdict, and a row for each era that answers differently."""
        names = ("releases", "verdict", "end of the log", "messages at risk", "why not")
        rows = (
            (
                one.era or one.release,
                one.verdict.value,
                one.end_offset if one.verdict in STARTING else None,
                one.at_risk if one.losses_counted and one.verdict in STARTING else None,
                one.refusal.why if one.refusal is not None else one.unknown,
            )
            for one in self.outcomes
        )
        return notebook.heading(self.worst.verdict.value) + notebook.table(names, rows, len(self.outcomes))


_ORDER = list(Verdict)


def price(outcome: Outcome) -> tuple[int, int]:
    """Return what a start costs, for comparisons: a lower price is better."""
    without_log = outcome.losses.units if outcome.min_offset < 0 else 0
    # A broker that cannot work on its log loses all that is still to come.
    return _ORDER.index(outcome.verdict), outcome.at_risk + without_log + (_ALL_TO_COME if outcome.doubled else 0)


_ALL_TO_COME = 1 << 62  # messages: more than any log holds


def note_unread(unread: list[str], *texts: str) -> None:
    """Note what could not be read, each once."""
    unread += [text for text in dict.fromkeys(texts) if text not in unread]
