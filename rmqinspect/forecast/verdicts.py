"""The verdict of a start that was walked, and what follows from its numbers alone.

deleted, out of reach, wrong, jumped over, skipped     STARTS, LOSES DATA
without the log or the queues that other files prove   STARTS EMPTY
none of these                                          STARTS, LOSES NOTHING MORE
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from rmqinspect.forecast.evidence import Evidence
from rmqinspect.forecast.losses import LossFold
from rmqinspect.forecast.outcome import Outcome, Verdict
from rmqinspect.store.model import Store
from rmqinspect.text import count, text_of

_CHECKPOINT_TIMES = ("physic_msg_timestamp", "logics_msg_timestamp", "index_msg_timestamp")
_LOG_ELSEWHERE = "the log is not here: if it lies in another folder (storePathCommitLog), give that one, too"
_SERVES_NOTHING = (
    "no queue{} leads to what the log holds: consumers get none of it, and queue offsets begin at 0 again; after an "
    "unclean exit (with a file abort) a start makes queues of the part of the log that it scans"
)


def verdict_of(outcome: Outcome, *, cuts_records: bool) -> Verdict:
    """Return the verdict of a start from what it does; `cuts_records`: records lie behind the new end of the log."""
    if outcome.unknown is not None:
        return Verdict.UNKNOWN
    if outcome.refusal is not None:
        return Verdict.REFUSES
    if outcome.proofs:
        return Verdict.EMPTY
    loses = (
        cuts_records,
        outcome.not_received,
        outcome.skipped,
        outcome.undelivered,
        outcome.loses_unknown,
        outcome.unread,
        outcome.doubled,
    )
    return Verdict.LOSES if any(loses) else Verdict.SAFE


def doubled_files(store: Store, bases: Sequence[int]) -> tuple[str, ...]:
    """Return the names of segments that begin where another one does, if all of them stay.

    A broker finds the file of an offset by counting from the first one. Where the last file is there twice it writes
    into one and dispatches from the other: measured with 4.9.7 and 5.3.3, new messages get no queue unit.

    Source: MappedFileQueue#findMappedFileByOffset, DefaultMessageStore.ReputMessageService#doReput.
    """
    twice = {base for base, number in Counter(bases).items() if number > 1}
    return tuple(segment.name for segment in store.segments if segment.base in twice)


def note_proofs(outcome: Outcome, evidence: Evidence, *, cuts_records: bool) -> None:
    """Note what proves a log, or queues, that the broker begins without, and what that means."""
    outcome.proofs = list(_proofs(outcome, evidence, cuts_records=cuts_records))
    if outcome.min_offset < 0 and outcome.proofs and not cuts_records:
        outcome.notes.append(_LOG_ELSEWHERE)
    if outcome.proofs and 0 <= outcome.min_offset < outcome.end_offset:
        which = "" if _serves_nothing(outcome) else " of consumequeue"
        outcome.notes.append(_SERVES_NOTHING.format(which))


def _proofs(outcome: Outcome, evidence: Evidence, *, cuts_records: bool) -> Iterator[str]:
    """Yield what proves a log, or queues, that the broker begins without; nothing where it has them.

    Queues that are left beside those that are gone lead to none of what a sample of the log holds, or are batch queues.
    A log of one empty segment may have lost all others to retention: only units that point into it prove more.
    """
    units = outcome.losses.units
    if _serves_nothing(outcome):
        yield f"{count(outcome.end_offset - outcome.min_offset, 'byte')} of log"
    elif outcome.min_offset >= 0:
        if outcome.min_offset < outcome.end_offset and evidence.none_leads(outcome):
            yield f"records of {count(len(outcome.lost_queues), 'queue')}"
        elif outcome.min_offset == outcome.end_offset and units and not cuts_records:
            yield count(units, "queue unit")
    else:
        index_files = len(outcome.index_files_after) + len(outcome.deleted_index_files)
        units = units or sum(queue.max_before - queue.min_before for queue in outcome.queues)
        groups = {entry.group for entry in evidence.group_offsets if entry.offset > 0}
        for number, what in (
            (len(evidence.store.segments) * cuts_records, "segment"),
            (units, "queue unit"),
            (index_files, "index file"),
            (len(groups), "consumer group"),
        ):
            if number:
                yield count(number, what)
        if any(evidence.checkpoint.get(name, 0) > 0 for name in _CHECKPOINT_TIMES):
            yield "the checkpoint"


def _serves_nothing(outcome: Outcome) -> bool:
    """Whether the log holds something, and no queue leads to it."""
    return 0 <= outcome.min_offset < outcome.end_offset and all(
        queue.min_after >= queue.max_after for queue in outcome.queues
    )


def note_gone(outcome: Outcome) -> None:
    """Note which cut units lead to no record now, and which deleted segments hold none; `losses` are counted.

    A unit that is put at another queue offset is cut and added.
    """
    losses = outcome.losses
    put_again = sum(min(queue.cut, queue.added) for queue in outcome.queues)
    if outcome.min_offset >= 0:
        outcome.units_without_record = max(0, losses.units - losses.messages - outcome.unreachable - put_again)
    if outcome.rejected is None:
        outcome.empty_segments = [base for base in outcome.deleted_segments if base >= (losses.end or 0)]


def note_units(outcome: Outcome) -> None:
    """Note how many units are cut off, in all and by topic."""
    losses = outcome.losses
    for queue in outcome.queues:
        if queue.cut:
            losses.units += queue.cut
            losses.units_by_topic[queue.topic] = losses.units_by_topic.get(queue.topic, 0) + queue.cut


def note_given_twice(outcome: Outcome, fold: LossFold) -> None:
    """Note for each queue how many offsets that are taken the broker gives out again."""
    taken = {(text_of(topic), queue_id): offset for (topic, queue_id), offset in fold.next_offsets.items()}
    for queue in outcome.queues:
        highest = max(queue.max_before, taken.get((queue.topic, queue.queue_id), 0))
        queue.given_twice = max(0, highest - queue.max_after)


def note_lost_queues(outcome: Outcome) -> None:
    """Note for each queue whose end is lost how many offsets of its records the broker gives out again."""
    lost = {queue[:2]: queue.given_twice for queue in outcome.lost_queues}
    for queue in outcome.queues:
        queue.given_twice = max(queue.given_twice, lost.get((queue.topic, queue.queue_id), 0))
