"""What a start does to a store: the answer of one walk, and the JSON document of it.

Everything "after" is the state when the broker serves: after load, recovery, start and the dispatch that follows.

A forecast in a few words: the line `VERDICT` of the command, and what other commands quote of it.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import groupby
from typing import Annotated, Any, Final, NamedTuple

from rmqinspect import notebook
from rmqinspect.broker.acknowledged import Acknowledged
from rmqinspect.broker.eras import Era
from rmqinspect.broker.unread import Unread
from rmqinspect.document import Part, means
from rmqinspect.text import clip, count, group_digits
from rmqinspect.topics import is_system_topic


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


@dataclass(slots=True)
class QueueOutcome:
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


@dataclass(slots=True)
class Losses:
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


class LostQueue(NamedTuple):
    """A queue of records that a sample of the log holds, and that have no unit after a start, nor had one before."""

    topic: str
    queue_id: int
    given_twice: int  # at least: offsets that these records have, and that the broker gives out again


@dataclass(slots=True)
class Outcome:
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
    in_no_queue: dict[str, int] = field(default_factory=dict)  # records by topic: nothing proves that they had a queue
    judged: bool = False  # all records of the log were compared with the queues; else a sample was
    sampled: bool = False  # only a sample was, for the log is long
    next_offsets: dict[tuple[str, int], int] = field(default_factory=dict)  # of queues, by the records of the log
    acknowledged: Acknowledged | None = None  # what lay behind the end of the log, gone before the start
    doubled: tuple[
        str, ...
    ] = ()  # files of the log that stay and begin at one place: dispatch does not get beyond them
    led: Mapping[tuple[str, int], Any] | None = field(default=None, compare=False)  # `queues.Led`, until it is priced
    queues: list[QueueOutcome] = field(default_factory=list)  # by topic and queue id
    index_files_after: list[str] = field(default_factory=list)  # those that are there now
    new_index_files: int = 0  # made by the start, named by its clock
    deleted_index_files: list[str] = field(default_factory=list)
    index_entries_behind: int = 0  # entries of files that stay and point behind the new end
    deleted_files: list[str] = field(default_factory=list)  # all of them, relative to the store
    groups_beyond: list[GroupBeyond] = field(default_factory=list)
    config_from_backup: list[str] = field(default_factory=list)
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
    def at_risk(self) -> int:
        """How many messages consumers do not get after this start, new ones that groups skip included."""
        return self.losses.messages + self.not_received + self.skipped

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

    @property
    def steps(self) -> tuple[object, ...]:
        """What is done, one after the other."""
        return (*self.moved, *self.lengths, *self.renamed, *self.settings, *self.bits, *self.copied)

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


@dataclass(slots=True)
class InReplica:
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


@dataclass(frozen=True, slots=True)
class SalvagePrice:
    """What a new store by `salvage` would have lost; the start of that one loses nothing more."""

    release: str  # for which it would be written
    lost_offsets: int  # queue offsets whose messages are lost
    aside: int  # places that could not be saved: a record, or what was left of some
    aside_bytes: int
    repaired: int  # fields that would be repaired
    inexact: int  # of these, store times that are known roughly
    refused: str | None = None  # why there would be none


@dataclass(slots=True)
class Forecast:
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
        names = ("releases", "verdict", "end of the log", "lost messages", "why not")
        rows = (
            (
                one.era or one.release,
                one.verdict.value,
                one.end_offset if one.verdict in STARTING else None,
                one.losses.messages if one.losses_counted and one.verdict in STARTING else None,
                one.refusal.why if one.refusal is not None else one.unknown,
            )
            for one in self.outcomes
        )
        return notebook.heading(verdict_line(self)) + notebook.table(names, rows, len(self.outcomes))


_ORDER = list(Verdict)


def price(outcome: Outcome) -> tuple[int, int]:
    """Return what a start costs, for comparisons: a lower price is better."""
    without_log = outcome.losses.units if outcome.min_offset < 0 else 0
    messages = outcome.losses.messages + outcome.not_received + outcome.skipped
    # A broker that cannot work on its log loses all that is still to come.
    return _ORDER.index(outcome.verdict), messages + without_log + (_ALL_TO_COME if outcome.doubled else 0)


_ALL_TO_COME = 1 << 62  # messages: more than any log holds


def note_unread(unread: list[str], *texts: str) -> None:
    """Note what could not be read, each once."""
    unread += [text for text in dict.fromkeys(texts) if text not in unread]


_QUEUES = ("consumequeue/", "batchconsumequeue/")
LOOK_FOR = "look for the missing segments before a broker is started"
_LISTED = 4  # ranges that are named; the others are counted


def verdict_line(forecast: Forecast) -> str:
    """Return the verdict of the worst outcome, and where releases differ, with which of them it is that.

    Other verdicts of starts that cost something follow: `STARTS EMPTY with 4.9.2 (WILL NOT START with 5.3.3): …`.
    """
    worst = forecast.worst
    runs = [(words, list(run)) for words, run in groupby(forecast.outcomes, key=outcome_words)]
    words = outcome_words(worst)
    if len(runs) == 1:
        return words
    eras: dict[Verdict, list[str]] = {}
    for said, run in runs:
        verdict = run[0].verdict
        if said == words or (verdict is not worst.verdict and verdict in COSTS):
            eras.setdefault(verdict, []).append(span_of(run))
    releases = f" with {', '.join(eras.pop(worst.verdict))}"
    others = "; ".join(f"{verdict} with {', '.join(spans)}" for verdict, spans in eras.items())
    return outcome_words(worst, f"{releases} ({others})" if others else releases)


def span_of(outcomes: Sequence[Outcome]) -> str:
    """Return the releases from the first to the last one of neighbours: `5.2.0 to 5.3.3`."""
    return str(Era(outcomes[0].era.split(" ")[0], outcomes[-1].era.split(" ")[-1]))


_TOPIC_WIDTH = 40  # cells of a topic in a sentence


def topic_words(by_topic: Mapping[str, int]) -> str:
    """Return topics with their numbers, the largest first: `orders 3 041, shipments 23 and 4 more topics`."""
    ordered = sorted(by_topic, key=lambda topic: (-by_topic[topic], topic))
    more = len(ordered) - _LISTED
    named = ", ".join(f"{clip(topic, _TOPIC_WIDTH)} {group_digits(by_topic[topic])}" for topic in ordered[:_LISTED])
    return named + (f" and {count(more, 'more topic')}" if more > 0 else "")


def reach_words(outcome: Outcome) -> Iterator[str]:
    """Yield in sentences what consumers do not get of what stays in the log."""
    for number, by_topic, noun, what in (
        (outcome.unreachable, outcome.unreachable_by_topic, "message", "no queue leads to {them} after this start"),
        (outcome.wrong, outcome.wrong_by_topic, "message", "a pull returns another record, or what is none"),
        (outcome.jumped, outcome.jumped_by_topic, "message", "a pull jumps over {them}, behind damage"),
    ):
        if number:
            named = f" ({topic_words(by_topic)})" if by_topic else ""
            yield f"{count(number, noun)} of the log{named}: {what.format(them='it' if number == 1 else 'them')}"
    if outcome.doubled:
        files = " and ".join(outcome.doubled)
        yield f"{files} begin at one place: new messages get no queue unit, and no consumer gets them"
    if outcome.loses_unknown:
        queues = count(len(outcome.lost_queues), "queue")
        topics = topic_words(Counter(queue.topic for queue in outcome.lost_queues))
        yield f"records of {queues} (queues by topic: {topics}) have no queue unit, by a sample of the log"
    if outcome.sampled:
        yield (
            "the log is long: a sample of its beginning and its end was compared with the queues; "
            "verify --level deep compares all of it"
        )


def no_queue_words(outcome: Outcome) -> str:
    """Return in a sentence what lies in the log, and nothing proves a queue of."""
    if not outcome.in_no_queue:
        return ""
    number = sum(outcome.in_no_queue.values())
    topics = topic_words(outcome.in_no_queue)
    whose = "its topic was" if len(outcome.in_no_queue) == 1 else "their topics were"
    return (
        f"{count(number, 'record')} ({topics}) in no queue, and not in topics.json: {whose} deleted, or lost with the "
        "metadata; rebuild makes the queues, topics.json has to name the topics"
    )


def outcome_words(outcome: Outcome, releases: str = "") -> str:
    """Return the verdict of an outcome and its reason; `releases` follows the verdict, or who runs."""
    if is_uncounted(outcome):
        return f"STARTS{releases}; {NOT_COUNTED}"
    reason = _REASONS[outcome.verdict](outcome)
    if outcome.verdict is Verdict.RUNS:
        releases = f" (pid {outcome.lock_holder})" if (outcome.lock_holder or 0) > 0 else ""
    return f"{outcome.verdict.value}{releases}" + (f": {reason}" if reason else "")


NOT_COUNTED: Final = "what consumers lose by it was not counted"
"""What stands behind `STARTS` where nothing was counted."""


def is_uncounted(outcome: Outcome) -> bool:
    """Return whether a start cuts no record, and nobody has asked what consumers get after it: that is no verdict."""
    return outcome.verdict is Verdict.SAFE and not outcome.losses_counted


def loss_words(outcome: Outcome) -> str:
    """Return what a start that was walked loses: `145 records`; "nothing"."""
    losses = outcome.losses
    parts = [count(losses.messages, "record")] if losses.messages else []
    without_log = outcome.min_offset < 0 and losses.units
    if not outcome.losses_counted and not without_log and outcome.cuts_records:
        parts = ["records not counted"]
    for number, noun, what in (
        (outcome.unreachable, "message", "out of reach for consumers"),
        (outcome.wrong, "message", "returned wrong"),
        (outcome.jumped, "message", "jumped over behind damage"),
        (outcome.skipped, "new message", "skipped by groups"),
    ):
        if number:
            parts.append(f"{count(number, noun)} {what}")
    if outcome.loses_unknown and outcome.verdict is Verdict.LOSES:
        parts.append(f"records of {count(len(outcome.lost_queues), 'queue')} out of reach, not counted")
    parts += [f"{one.holds} in {one.file}, which it does not read" for one in outcome.unread]
    if outcome.doubled:
        parts.append("all new messages, for none reaches a queue")
    if without_log:
        parts.append(f"{count(losses.units, 'queue unit')} of a log that is not here")
    return ", ".join(parts) or "nothing"


def empty_words(outcome: Outcome) -> str:
    """Return what a broker begins without, and what proves it."""
    if 0 <= outcome.min_offset < outcome.end_offset:
        return f"no queue leads to the {outcome.proofs[0]}"
    return f"without the log that {proof_words(outcome)}"


def proof_words(outcome: Outcome) -> str:
    """Return what proves the log that is not there: `3 index files and the checkpoint prove`."""
    *others, last = outcome.proofs
    if others:
        return f"{', '.join(others)} and {last} prove"
    return f"{last} {'prove' if last.endswith('s') else 'proves'}"


def already_lost(outcome: Outcome, missing: int = 0) -> list[str]:
    """Return what is gone before the start, as far as that is known; `missing`: records without a queue unit now."""
    texts = [outcome.gone_first] if outcome.gone_first else []
    if holes := outcome.holes:
        named = [f"{group_digits(start)} to {group_digits(end)}" for start, end in holes[:_LISTED]]
        more = f" and {count(len(holes) - _LISTED, 'more range')}" if len(holes) > _LISTED else ""
        texts.append(f"no segment holds {', '.join(named)}{more} of the log: {LOOK_FOR}")
    if number := outcome.misplaced:
        lie, were = ("lies", "it was") if number == 1 else ("lie", "they were")
        texts.append(
            f"at least {count(number, 'record')} {lie} elsewhere than PHYSICALOFFSET says: {were} copied or moved over "
            "what was there, or the field is damaged"
        )
    if number := outcome.units_without_record:
        texts.append(f"at least {count(number, 'queue unit')} {'leads' if number == 1 else 'lead'} to no record")
    # Where units are cut, those that are added may be theirs; records behind the new end are lost by this start.
    left = missing - outcome.healed_units
    if (
        left > 0
        and not outcome.judged
        and not outcome.losses.messages
        and not any(queue.cut and queue.added for queue in outcome.queues)
    ):
        has, gets = ("has", "gets") if left == 1 else ("have", "get")
        texts.append(f"{count(left, 'record')} of the log {has} no queue unit, and {gets} none")
    if outcome.lost_queues and outcome.verdict is Verdict.EMPTY and not missing:  # else they are lost by this start
        own = {topic: topic.startswith("%") or is_system_topic(topic) for topic, *_ in outcome.lost_queues}
        topics = sorted(own, key=lambda topic: (own[topic], topic))  # those of users first
        first = ", ".join(topics[:_LISTED]) + (f" and {len(topics) - _LISTED} more" if len(topics) > _LISTED else "")
        of = f"of {count(len(outcome.lost_queues), 'queue')} of topic{'s' if len(topics) > 1 else ''} {first}"
        texts.append(f"records {of} have no queue unit, by a sample of the log: verify counts them")
    again = sum(queue.given_twice for queue in outcome.lost_queues)
    if again and outcome.verdict is Verdict.EMPTY:
        texts.append(f"at least {group_digits(again)} of their queue offsets will be used again")
    return texts


def healed_words(outcome: Outcome, missing: int = 0) -> str:
    """Return how many of the units come back that queues miss; `missing`: how many they do, 0 if that is not known."""
    healed = outcome.healed_units
    if not healed:
        return ""
    of_all = f"{group_digits(healed)} of {count(missing, 'missing queue unit')}"
    units = of_all if healed <= missing else count(healed, "queue unit")
    return f"{units} {'comes' if healed == 1 else 'come'} back"


def unit_words(way: Alternative) -> list[str]:
    """Return how many queue units a way brings back, and how many not, as far as another way shows it; or nothing."""
    healed, missed = way.outcome.healed_units, way.units_missed
    if not (healed or missed) or way.outcome.verdict not in SERVING:
        return []
    stay = f", at least {group_digits(missed)} {'stays' if missed == 1 else 'stay'} missing" if missed else ""
    return [f"heals {count(healed, 'unit')}{stay}"]


def deleted_words(outcome: Outcome) -> list[str]:
    """Return how many files of each kind the start deletes: `1 empty segment`, `6 queue files`."""
    empty = len(outcome.empty_segments)
    queue_files = sum(file.startswith(_QUEUES) for file in outcome.deleted_files)
    kinds = (
        (len(outcome.deleted_segments) - empty, "segment"),
        (empty, "empty segment"),
        (queue_files, "queue file"),
        (len(outcome.deleted_index_files), "index file"),
    )
    return [count(number, what) for number, what in kinds if number]


def group_words(group: GroupStart) -> str:
    """Return in one sentence what a start means to a consumer group."""
    parts = []
    if group.again:
        again = f"gets {count(group.again, 'message')} again if it asks at once"
        parts.append(f"{again}, else skips up to {count(group.skips, 'new one')}")
    elif group.skips:
        parts.append(f"skips up to {count(group.skips, 'new message')}")
    if group.unconsumed:
        were = "was" if group.unconsumed == 1 else "were"
        parts.append(f"of the lost messages {group_digits(group.unconsumed)} {were} not consumed by it")
    return "; ".join(parts)


def consumer_words(outcome: Outcome) -> str:
    """Return what a start means to all consumer groups."""
    kinds = (
        ("may skip up to", [group.skips for group in outcome.groups], "new message"),
        ("may get", [group.again for group in outcome.groups], "message"),
        ("had not consumed", [group.unconsumed for group in outcome.groups], "lost message"),
    )
    parts = []
    for verb, numbers, what in kinds:
        if total := sum(numbers):
            ending = " again" if what == "message" else ""
            groups = count(sum(map(bool, numbers)), "group")
            parts.append(f"{groups} {verb} {count(total, what)}{ending}")
    return "; ".join(parts)


def refusal_words(refusal: Refusal) -> str:
    """Return which file a broker refuses, and why."""
    return refusal.why if refusal.file in refusal.why else f"{refusal.file}: {refusal.why}"


_REASONS: dict[Verdict, Callable[[Outcome], str]] = {
    Verdict.SAFE: lambda outcome: "by a sample of the log" if outcome.sampled else "",
    Verdict.LOSES: loss_words,
    Verdict.EMPTY: empty_words,
    Verdict.REFUSES: lambda outcome: outcome.refusal.file if outcome.refusal else "",
    Verdict.UNKNOWN: lambda outcome: outcome.unknown or "",
    Verdict.RUNS: lambda _: "do not start another",
}
