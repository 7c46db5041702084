"""What a start does to a store: the answer of one walk, and the JSON document of it.

Everything "after" is the state when the broker serves: after load, recovery, start and the dispatch that follows.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple


class Verdict(StrEnum):
    """The four answers, the worst one last."""

    SAFE = "SAFE TO START"
    LOSES = "STARTS, LOSES DATA"
    REFUSES = "WILL NOT START"
    UNKNOWN = "CANNOT TELL"


class Refusal(NamedTuple):
    """Why the broker does not start."""

    file: str  # relative to the store
    rule: str  # a name of `broker.eras.RULES`, or of a rule that holds in all releases
    why: str  # a sentence
    remedy: str  # the smallest safe one, a command or a sentence
    moves: bool = False  # the remedy is to move the file away, and no message goes with it


class Rejected(NamedTuple):
    """The first byte of the log that the scan refuses, where records are expected."""

    physical_offset: int
    rule: str  # why: a name of `forecast.check.REASONS`
    file: str
    position: int  # in the file


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


class GroupBeyond(NamedTuple):
    """A consumer group whose offset in a queue lies beyond the maximum that the queue has after the start."""

    group: str
    topic: str
    queue_id: int
    offset: int
    max_offset: int


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
    ignored_files: list[str] = field(default_factory=list)  # mapped files that load leaves aside, relative to the store
    dispatch_start: int | None = None  # physical offset; records at or behind it get units and entries again
    unreachable: int = 0  # messages that stay in the log and have no unit after the start, though they had one
    queues: list[QueueOutcome] = field(default_factory=list)  # by topic and queue id
    index_files_after: list[str] = field(default_factory=list)  # those that are there now
    new_index_files: int = 0  # made by the start, named by its clock
    deleted_index_files: list[str] = field(default_factory=list)
    index_entries_behind: int = 0  # entries of files that stay and point behind the new end
    deleted_files: list[str] = field(default_factory=list)  # all of them, relative to the store
    groups_beyond: list[GroupBeyond] = field(default_factory=list)
    config_from_backup: list[str] = field(default_factory=list)
    assumptions: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)


class Alternative(NamedTuple):
    """Another way to start, walked and priced."""

    way: str  # "the same broker without abort", "broker 5.5.0"
    outcome: Outcome
    moved: tuple[str, ...] = ()  # files and folders that are moved out of the store before, relative to it
    is_better: bool = False  # than the start that the forecast is about


@dataclass(slots=True)
class Forecast:
    """The answers for all releases that were walked; one outcome for each era whose releases answer differently."""

    outcomes: list[Outcome]  # in the order of releases
    instead: list[Alternative] = field(default_factory=list)
    version_from: str = ""  # why these releases: "given", or the clues of the estimate
    unread: list[str] = field(default_factory=list)  # what the system refused to read

    @property
    def worst(self) -> Outcome:
        """The outcome whose verdict is the worst, and of equal ones that with the most lost messages."""
        return max(self.outcomes, key=price)


_ORDER = list(Verdict)


def price(outcome: Outcome) -> tuple[int, int]:
    """Return what a start costs, for comparisons: a lower price is better."""
    without_log = outcome.losses.units if outcome.min_offset < 0 else 0
    return _ORDER.index(outcome.verdict), outcome.losses.messages + outcome.unreachable + without_log
