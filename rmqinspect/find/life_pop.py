"""What became of a message that groups have popped: acknowledged, or not yet.

Checkpoints and acks lie on the timer wheel first, and in the revive topic when they are due. Those behind the message
are read, up to a bound: a group pops a message after it was stored.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from rmqinspect.broker.copies import Stored, copy_of
from rmqinspect.broker.pop_state import Ack, Checkpoint, PopStates, read_body
from rmqinspect.codec.fastjson import NotJson, parse_json
from rmqinspect.codec.fields import ParsedFields
from rmqinspect.find.life_records import LifeRecords, Step
from rmqinspect.topics import REVIVE_PREFIX, TIMER_TOPIC

MOST_NOTES = 2000  # records of a topic that are searched behind the message
_LONGEST = 1 << 16  # bytes of a checkpoint or ack


@dataclass(frozen=True, slots=True)
class MessagePop:
    """The last pop of a message by a group. Times are ms."""

    group: str
    physical_offset: int  # of the record that was popped
    pop_time: int
    visible_again: int  # unless it is acknowledged before
    acknowledged: bool
    pops: int  # how often, as far as it was searched


def pops_of(records: LifeRecords, steps: Sequence[Step]) -> tuple[list[MessagePop], bool]:
    """Return the pops of some records; and whether all checkpoints and acks behind the first record were searched.

    :raises Unreadable: an I/O error.
    """
    topics = {file.topic for file in records.store.queue_files if file.topic.startswith(REVIVE_PREFIX)}
    if not topics or not steps:
        return [], True
    states, complete = PopStates(), True
    first = min(step.physical_offset for step in steps)
    for topic in (TIMER_TOPIC, *sorted(topics)):
        found, all_of_them = records.behind(topic, first, MOST_NOTES)
        complete = complete and all_of_them
        for record in found:
            note = _note_of(record)
            if note is not None:
                states.add(note)
    return [
        MessagePop(
            group,
            step.physical_offset,
            popped.checkpoint.pop.pop_time,
            popped.checkpoint.revive_time,
            popped.acked,
            popped.pops,
        )
        for step in steps
        for group, popped in states.of_message(step.topic, step.queue_id, step.queue_offset).items()
    ], complete


def _note_of(record: ParsedFields) -> Checkpoint | Ack | None:
    stored = Stored(record.topic, record.number("queue_id"), 0, 0, record.properties)
    body = record.body
    if copy_of(stored).kind not in ("checkpoint", "ack") or body is None or len(body) > _LONGEST:
        return None
    try:
        parsed = parse_json(body).value
    except NotJson:
        return None
    return read_body(parsed) if isinstance(parsed, dict) else None
