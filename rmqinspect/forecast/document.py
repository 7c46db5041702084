"""A forecast as one JSON document: the struct of each of its objects, and where their values come from.

docs/forecast.md lists the fields as they are here. Their order is that of the document.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, tzinfo
from operator import attrgetter
from typing import Annotated, Any

from rmqinspect.broker.acknowledged import Acknowledged, acknowledged_words
from rmqinspect.broker.unread import Unread
from rmqinspect.document import AnyPart, Part, Row, as_object, means, page_rows
from rmqinspect.forecast.advice import FirstStep, choice_cost, first_step
from rmqinspect.forecast.outcome import (
    STARTING,
    Again,
    Alternative,
    Forecast,
    GroupBeyond,
    InReplica,
    LevelStart,
    Outcome,
    Rejected,
    SetBack,
    TimerStart,
    TransactionStart,
    Verdict,
)
from rmqinspect.forecast.words import NOT_RECEIVED, already_lost
from rmqinspect.times import format_millis
from rmqinspect.version import tool_name

SCHEMA_VERSION = 2
"""Of the document; 2 since 2.0.0: the verdict counts what consumers get, not only what a start deletes."""


def is_told(outcome: Outcome) -> bool:
    """Return whether a start was walked to its end: else nothing of it was counted."""
    return outcome.verdict not in (Verdict.UNKNOWN, Verdict.RUNS)


def starts(outcome: Outcome) -> bool | None:
    """Return whether the broker starts; None if it cannot be told, or one runs already."""
    return outcome.verdict in STARTING if is_told(outcome) else None


# --- its fields ---------------------------------------------------------------------------------


class Head(Part, frozen=True):
    """What stands in front of the worst outcome."""

    schema_version: Annotated[int, means("of the document")]
    tool: Annotated[str, means("name and version of the program")]
    complete: Annotated[
        bool, means("whether all that had to be read could be; false where it cannot be told, or a broker runs")
    ]
    do_first: Annotated[FirstStep, means("what to do first, by what each choice costs")]


class RefusalPart(Part, frozen=True):
    """Why the broker does not start."""

    file: Annotated[str, means("relative to the store")]
    rule: Annotated[str, means("a [rule](eras.md), or one that holds in all releases")]
    why: Annotated[str, means("in words")]
    remedy: Annotated[str, means("what makes it start; `instead` has its price, and that of other ways")]


class QueuePart(Part, frozen=True):
    """A queue before and after the start."""

    topic: Annotated[str, means("topic of the queue")]
    queue_id: Annotated[int, means("its number")]
    min_offset_before: Annotated[int, means("queue offsets, as a broker would give them now")]
    max_offset_before: Annotated[int, means("one behind the last")]
    min_offset_after: Annotated[int, means("when the broker serves")]
    max_offset_after: Annotated[int, means("one behind the last, then")]
    cut_units: Annotated[int, means("units that are there and are cut off")]
    added_units: Annotated[int, means("units that this start appends")]
    given_twice: Annotated[int, means("queue offsets that are taken, and that the broker gives out again")]


class WayPart(Part, frozen=True):
    """Another way to start."""

    way: Annotated[str, means("in words")]
    verdict: Annotated[str, means("of this way")]
    lost_messages: Annotated[int, means("of this way")]
    better: Annotated[bool, means("than the start that the document is about")]
    broker_version: Annotated[str, means("of the broker to start")]
    clean_exit: Annotated[bool, means("false: with the file `abort`")]
    scan_start_base: Annotated[int | None, means("of this way")]
    moved: list[Annotated[str, means("files and folders to move out of the store before")]]
    lengths: dict[str, Annotated[int, means("files to cut, or to fill with zeros, to so many bytes")]]
    renamed: dict[str, Annotated[str, means("files to rename, and their new names")]]
    settings: dict[str, Annotated[str, means("lines to put into broker.conf")]]
    costs: list[Annotated[str, means("what this gives up beside messages")]]
    unreachable_messages: Annotated[int, means("of this way")]
    healed_units: Annotated[int, means("of this way")]
    bits: list[Annotated[SetBack, means("bytes of which one bit was flipped, with proof, to set back")]]
    loses: Annotated[str, means("what this way costs, in words")]
    copied: dict[str, Annotated[str, means("files to copy, and the names of their copies")]]
    delay_levels: dict[
        str, Annotated[int, means("levels, and their offsets to set in `config/delayOffset.json` before")]
    ]
    tool: Annotated[str | None, means("`rebuild` or `salvage`: the command that makes the store to start; else null")]


class GroupQueuePart(Part, frozen=True):
    """A queue of a consumer group."""

    topic: Annotated[str, means("topic of the queue")]
    queue_id: Annotated[int, means("its number")]


class GroupPart(Part, frozen=True):
    """What the start means to a consumer group."""

    group: Annotated[str, means("its name")]
    queues: list[Annotated[GroupQueuePart, means("those in which the start means something to it")]]
    unconsumed: Annotated[int, means("of the messages that are gone then, those that it has not consumed")]
    skips: Annotated[int, means("new messages that it does not get, at most")]
    again: Annotated[int, means("messages that it gets a second time, if it asks before the queues have grown")]


class LostQueuePart(Part, frozen=True):
    """A queue of records in a sample of the log that have no unit."""

    topic: Annotated[str, means("topic of the queue")]
    queue_id: Annotated[int, means("its number")]
    given_twice: Annotated[int, means("queue offsets of its records that the broker gives out again, at least")]


class StepPart(Part, frozen=True):
    """A step of the start."""

    step: Annotated[
        str,
        means("`load`, `queues`, `index`, `start`, `scan`, `dispatch`, `cut`, `reput`, `minimum`, `config`"),
    ]
    text: Annotated[str, means("what was decided")]
    inputs: dict[str, Annotated[int | str, means("what it was decided from, by name")]]
    source: Annotated[str, means("class and method of the broker")]


class SalvagePart(Part, frozen=True):
    """What a salvage would give."""

    broker_version: Annotated[str, means("release for which the new store would be written")]
    lost_offsets: Annotated[int, means("queue offsets whose messages are lost, with what lies aside")]
    aside: Annotated[int, means("places that cannot be saved: a record, or what is left of some")]
    aside_bytes: Annotated[int, means("their bytes")]
    repaired: Annotated[int, means("fields that are repaired, each with its proof")]
    inexact: Annotated[int, means("of these, store times that are not known exactly")]
    refused: Annotated[str | None, means("why `salvage` refuses, and the numbers are 0; null if it does not")]


class ReplicaPart(Part, frozen=True):
    """What another store has of the lost records."""

    store: Annotated[str, means("as it was given")]
    there_messages: Annotated[int, means("lost records that it has")]
    by_id: Annotated[int, means("of these, those that stand elsewhere in its log: found by their unique ids")]
    missing_messages: Annotated[int, means("lost records that it has not")]
    not_looked_for: Annotated[int, means("of these, those too many whose ids were not looked for")]
    there_by_topic: dict[str, Annotated[int, means("records that it has")]]
    missing_by_topic: dict[str, Annotated[int, means("records that it has not")]]
    list: Annotated[str | None, means("the command that lists those that it has not")]


class AcknowledgedPart(Part, frozen=True):
    """What a broker had acknowledged, and the log does not hold any more."""

    messages: Annotated[int, means("at least")]
    by_topic: dict[str, Annotated[int, means("at least, of topics whose queues prove it")]]
    span_ms: Annotated[int | None, means("from the last record that is here to the newest proof; null: not known")]
    proofs: list[Annotated[str, means("files that prove it")]]
    words: Annotated[str, means("all of it in a sentence")]


class UnreadPart(Part, frozen=True):
    """What lies where the broker does not look."""

    file: Annotated[str, means("relative to the store")]
    holds: Annotated[str, means("what it holds")]
    words: Annotated[str, means("what it means, in a sentence")]
    remedy: Annotated[str, means("what makes the broker read it")]


class OutcomePart(Part, frozen=True, kw_only=True):
    """What a start of one release does."""

    verdict: Annotated[str, means(", ".join(f"`{verdict}`" for verdict in Verdict))]
    starts: Annotated[bool | None, means("null: it cannot be told, or a broker runs")]
    broker_version: Annotated[str | None, means("the release whose start was worked out; null if none was")]
    era: Annotated[str | None, means("all releases that do the same")]
    clean_exit: Annotated[bool, means("whether the start takes the last stop for a clean one")]
    scan_start_base: Annotated[int | None, means("base of the segment where the scan of the log begins")]
    rejected: Annotated[
        Rejected | None,
        means("what ends the scan, where a record is expected; null at the ordinary end of a log"),
    ]
    min_offset: Annotated[int | None, means("of the log after the start; -1 without a segment")]
    end_offset: Annotated[int | None, means("where the log ends after the start")]
    segments_after: list[Annotated[int, means("bases of the segments that are left")]]
    deleted_segments: list[Annotated[int, means("bases of the segments that are deleted")]]
    lost_messages: Annotated[
        int | None,
        means(
            "records at or behind the new end, each once; null, as the next three: it cannot be told, or a broker runs"
        ),
    ]
    lost_intact: Annotated[int | None, means("those of them that are whole on disk now")]
    lost_units: Annotated[int | None, means("queue units that are cut off")]
    lost_bytes: Annotated[int | None, means("of the lost records")]
    first_lost_timestamp: Annotated[str | None, means("store time of the first lost record")]
    last_lost_timestamp: Annotated[str | None, means("of the last one")]
    lost_by_topic: dict[str, Annotated[int, means("lost records by topic")]]
    queues: list[Annotated[QueuePart, means("all queues before and after")]]
    index_files_after: list[Annotated[str, means("names of the index files that stay")]]
    deleted_index_files: list[Annotated[str, means("names of those that are deleted")]]
    deleted_files: list[Annotated[str, means("all files that are deleted, relative to the store")]]
    refusal: Annotated[RefusalPart | None, means("why the broker does not start")]
    config_from_backup: list[Annotated[str, means("configuration files whose `.bak` is read instead")]]
    assumptions: list[Annotated[str, means("settings that were assumed")]]
    instead: list[
        Annotated[
            WayPart,
            means(
                "every other choice of a start, worked out, with what it would lose; none where nothing is lost and no"
                " file is in the way"
            ),
        ]
    ]
    notes: list[Annotated[str, means("what else is to be known")]]
    cannot_tell: Annotated[str | None, means("why it cannot be told")]
    unreachable_messages: Annotated[
        int, means("messages that stay in the log, and to which no unit of their queue leads: no consumer gets them")
    ]
    lost_bytes_by_topic: dict[str, Annotated[int, means("bytes of lost records by topic")]]
    new_index_files: Annotated[int, means("index files that this start makes")]
    index_entries_behind: Annotated[int, means("entries of index files that stay, and point behind the new end")]
    groups_beyond: list[
        Annotated[GroupBeyond, means("consumer groups whose offset ends beyond the new maximum of a queue")]
    ]
    ignored_files: list[Annotated[str, means("files that the broker does not load, and leaves")]]
    decisions: list[Annotated[StepPart, means("the steps of the start, in order, as `--explain` shows them")]]
    already_lost: list[Annotated[str, means("what is gone before the start, as far as it reads that")]]
    healed_units: Annotated[int, means("queue units that are missing now, and come back")]
    empty_segments: list[Annotated[int, means("of the deleted segments those without a record")]]
    proofs: list[Annotated[str, means("of `STARTS EMPTY`: what proves the log or the queues that are not there")]]
    groups: list[Annotated[GroupPart, means("what it means to consumer groups, the worst first")]]
    copies: Annotated[
        int,
        means("records that are given up, too, and are copies of others that stand in their place: no messages"),
    ]
    lock_holder: Annotated[
        int | None,
        means(
            "the process that holds the lock of the store, or has its file open; 0 or less: it cannot be seen from here"
        ),
    ]
    lost_queues: list[
        Annotated[LostQueuePart, means("queues of records in a sample of the log that have no unit, and get none")]
    ]
    save: Annotated[str | None, means("the command that saves the lost records before the start; null without any")]
    replica: Annotated[ReplicaPart | None, means("what the store of `--replica` has of them; null without one")]
    salvage: Annotated[SalvagePart | None, means("what a new store by `salvage` would have; null without `--salvage`")]
    unreachable_by_topic: dict[str, Annotated[int, means("of `unreachable_messages`, those whose topic is known")]]
    wrong_messages: Annotated[int, means("queue units by which a pull returns another record than their own, or none")]
    wrong_by_topic: dict[str, Annotated[int, means("the same by topic of the queue")]]
    jumped_messages: Annotated[int, means("sound messages that a pull jumps over, because they stand behind damage")]
    jumped_by_topic: dict[str, Annotated[int, means("the same by topic")]]
    skipped_messages: Annotated[
        int, means("new messages that groups do not get, at most: their offsets lie beyond the queues' new ends")
    ]
    in_no_queue: dict[
        str, Annotated[int, means("records of a topic that has no queue, and of which nothing proves that it had one")]
    ]
    undelivered_messages: Annotated[
        int, means("delayed messages that the broker never delivers, at most: the sums of `delay_levels` and `timer`")
    ]
    delay_levels: list[Annotated[LevelStart, means("delay levels that pass messages over, or deliver some again")]]
    timer: Annotated[TimerStart | None, means("where the timer goes on; null where it goes on as it stopped")]
    transactions: Annotated[
        TransactionStart | None,
        means("half messages whose check goes on elsewhere; null where there are none"),
    ]
    again: Annotated[Again | None, means("messages that come a second time; null: nothing was counted")]
    unread: list[Annotated[UnreadPart, means("what lies only where the broker of `broker.conf` does not look")]]
    judged: Annotated[
        bool, means("whether all records of the log were compared with the queues; else a sample of it was")
    ]
    acknowledged: Annotated[
        AcknowledgedPart | None, means("what lay behind the end of the log, and is gone before the start")
    ]


MISSED = tuple(f"{name}_messages" for name, *_ in NOT_RECEIVED)
"""Fields with the numbers of messages that consumers do not get, but for those that the start deletes."""

_AT_RISK = ("lost_messages", *MISSED)


def messages_at_risk(outcome: Mapping[str, Any]) -> int:
    """Return `Outcome.at_risk` of an outcome's document; what was not counted is 0."""
    return sum(outcome.get(name) or 0 for name in _AT_RISK)


VERSIONS = "versions"
"""The last field of the root, where releases differ: the documents of all outcomes, without the fields of `Head`."""


def listed_fields() -> Iterator[Row]:
    """Yield path, type and meaning of every field, in the order of the document."""
    yield from page_rows(Head)
    yield from page_rows(OutcomePart)
    yield Row(f"{VERSIONS}[]", "object", "where releases differ: the fields above from `verdict` on, for each outcome")
    yield Row("run", "object", "[who, where and with what](report.md#the-run)")


# --- their values -------------------------------------------------------------------------------

_COUNTED = ("messages", "intact", "units", "bytes")
_QUEUE = attrgetter(
    *("topic", "queue_id", "min_before", "max_before", "min_after", "max_after", "cut", "added", "given_twice")
)


Saving = Callable[[Outcome], str | None]
"""Gives the command that saves what an outcome loses."""


def document(
    forecast: Forecast, zone: tzinfo = UTC, saving: Saving | None = None, listing: str | None = None
) -> dict[str, Any]:
    """Return the document: the worst outcome, and where releases differ all of them under `versions`.

    `listing` is the command for what the other store has not.
    """
    worst = forecast.worst
    head = Head(SCHEMA_VERSION, tool_name(), not forecast.unread and is_told(worst), first_step(forecast))
    told = as_object(head) | outcome_document(worst, zone, forecast.instead, saving)
    if forecast.replica is not None:
        told["replica"] = as_object(_replica(forecast.replica, listing))
    if forecast.salvage is not None:
        told["salvage"] = as_object(_part(SalvagePart, forecast.salvage, broker_version=forecast.salvage.release))
    if len(forecast.outcomes) > 1:
        told[VERSIONS] = [
            outcome_document(outcome, zone, forecast.instead if outcome is worst else (), saving)
            for outcome in forecast.outcomes
        ]
    return told


def outcome_document(
    outcome: Outcome, zone: tzinfo = UTC, instead: Sequence[Alternative] = (), saving: Saving | None = None
) -> dict[str, Any]:
    """Return the document of one outcome."""
    losses, does_start = outcome.losses, starts(outcome)
    first, last = (
        None if time is None else format_millis(time, zone) for time in (losses.first_timestamp, losses.last_timestamp)
    )
    part = _part(
        OutcomePart,
        outcome,
        verdict=outcome.verdict.value,
        starts=does_start,
        broker_version=outcome.release or None,
        era=outcome.era or None,
        scan_start_base=outcome.scan_start,
        min_offset=outcome.min_offset if does_start else None,
        end_offset=outcome.end_offset if does_start else None,
        **{f"lost_{name}": getattr(losses, name) if is_told(outcome) else None for name in _COUNTED},
        first_lost_timestamp=first,
        last_lost_timestamp=last,
        lost_by_topic=losses.by_topic,
        queues=[QueuePart(*_QUEUE(queue)) for queue in outcome.queues],
        refusal=outcome.refusal and _part(RefusalPart, outcome.refusal),
        instead=list(map(_way, instead)),
        cannot_tell=outcome.unknown,
        unreachable_messages=outcome.unreachable,
        wrong_messages=outcome.wrong,
        jumped_messages=outcome.jumped,
        skipped_messages=outcome.skipped,
        undelivered_messages=outcome.undelivered,
        again=outcome.again if outcome.losses_counted and is_told(outcome) else None,
        unread=[_unread(one) for one in outcome.unread],
        acknowledged=outcome.acknowledged and _acknowledged(outcome.acknowledged),
        lost_bytes_by_topic=losses.bytes_by_topic,
        decisions=[_part(StepPart, step, inputs=dict(step.inputs)) for step in outcome.decisions],
        already_lost=already_lost(outcome),
        groups=[
            _part(GroupPart, group, queues=[GroupQueuePart(*queue) for queue in group.queues])
            for group in outcome.groups
        ],
        copies=losses.copies,
        lost_queues=[LostQueuePart(*queue) for queue in outcome.lost_queues],
        save=None if saving is None else saving(outcome),
        replica=None,
        salvage=None,
    )
    return as_object(part)


def _acknowledged(found: Acknowledged) -> AcknowledgedPart:
    return AcknowledgedPart(
        found.messages,
        dict(found.by_topic),
        found.span,
        list(found.proofs),
        acknowledged_words(found),
    )


def _unread(one: Unread) -> UnreadPart:
    return UnreadPart(one.file, one.holds, str(one), one.remedy)


def _replica(found: InReplica, listing: str | None) -> ReplicaPart:
    topics = dict(found.by_topic), dict(found.missing_by_topic)
    return ReplicaPart(found.name, found.there, found.by_id, found.missing, found.not_looked_for, *topics, listing)


def _way(way: Alternative) -> WayPart:
    outcome, remedy = way.outcome, way.remedy
    return WayPart(
        way=way.way,
        verdict=outcome.verdict.value,
        lost_messages=outcome.losses.messages,
        better=way.is_better,
        broker_version=outcome.release,
        clean_exit=outcome.clean_exit,
        scan_start_base=outcome.scan_start,
        moved=list(remedy.moved),
        lengths=dict(remedy.lengths),
        renamed=dict(remedy.renamed),
        settings=dict(remedy.settings),
        costs=list(remedy.costs),
        unreachable_messages=outcome.unreachable,
        healed_units=outcome.healed_units,
        bits=list(remedy.bits),
        loses=choice_cost(way),
        copied=dict(remedy.copied),
        delay_levels={str(level): offset for level, _, offset in remedy.levels},
        tool=way.tool or None,
    )


def _part(kind: type[AnyPart], of: Any, **others: Any) -> AnyPart:
    """Return an object whose values are the attributes of the same names, but for `others`."""
    same = {name: getattr(of, name) for name in kind.__struct_fields__ if name not in others}
    return kind(**same, **others)
