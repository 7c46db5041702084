"""What became of a message that groups have popped: acknowledged, or not yet.

A pop writes a checkpoint, each acknowledgement a record that names the checkpoint. Both lie on the timer wheel first,
and in the revive topic when they are due; a longer invisible time is a new checkpoint, and an ack of the old one.

Source: PopMessageProcessor, AckMessageProcessor, ChangeInvisibleTimeProcessor, PopReviveService; RocketMQ 5.0.0 to
5.5.0. Aside from `enablePopBufferMerge`, and from ordered pops, which write neither.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rmqinspect.broker.copies import Stored, copy_of
from rmqinspect.codec.fields import ParsedFields
from rmqinspect.find.life_records import LifeRecords, Step
from rmqinspect.topics import REVIVE_PREFIX, TIMER_TOPIC

MOST_NOTES = 2000  # records of a topic that are searched behind the message
_LONGEST = 1 << 16  # bytes of a checkpoint or ack: a pop takes 32 messages

# Names in the JSON, and those that are declared as alternatives. Source: PopCheckPoint, AckMsg, BatchAckMsg.
_NAMES = {
    "t": "topic",
    "q": "queueId",
    "c": "consumerGroup",
    "so": "startOffset",
    "pt": "popTime",
    "it": "invisibleTime",
    "n": "num",
    "d": "queueOffsetDiff",
    "bm": "bitMap",
    "ao": "ackOffset",
    "aol": "ackOffsetList",
}

Queue = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Pop:
    """The last pop of a message by a group. Times are ms."""

    group: str
    physical_offset: int  # of the record that was popped
    pop_time: int
    visible_again: int  # unless it is acknowledged before
    acknowledged: bool
    pops: int  # how often, as far as it was searched


@dataclass(slots=True)
class _Notes:
    """Checkpoints and acks of some queues. The key of an ack names its checkpoint."""

    checkpoints: dict[tuple[Any, ...], dict[str, Any]] = field(default_factory=dict)
    acks: set[tuple[Any, ...]] = field(default_factory=set)

    def take(self, kind: str, note: Mapping[str, Any]) -> None:
        key = _key(note)
        if kind == "checkpoint":
            self.checkpoints.setdefault(key, dict(note))
        else:
            acked = note.get("aol") if isinstance(note.get("aol"), list) else [note.get("ao")]
            self.acks.update((*key, offset) for offset in acked or ())


def pops_of(records: LifeRecords, steps: Sequence[Step]) -> tuple[list[Pop], bool]:
    """Return the pops of some records, by group; and whether all notes behind the first record were searched.

    :raises Unreadable: an I/O error.
    """
    topics = {file.topic for file in records.store.queue_files if file.topic.startswith(REVIVE_PREFIX)}
    if not topics or not steps:
        return [], True
    notes, complete = _Notes(), True
    first = min(step.physical_offset for step in steps)
    for topic in (TIMER_TOPIC, *sorted(topics)):
        found, all_of_them = records.behind(topic, first, MOST_NOTES)
        complete = complete and all_of_them
        for record in found:
            kind = _kind(record)
            note = _parse(record.body) if kind in ("checkpoint", "ack") else None
            if note is not None:
                notes.take(kind, note)
    pops = (_last_pop(notes, step, group) for step in steps for group in _groups(notes, step))
    return [pop for pop in pops if pop is not None], complete


def _kind(record: ParsedFields) -> str:
    return copy_of(Stored(record.topic, record.number("queue_id"), 0, 0, record.properties)).kind


def _parse(body: bytes | None) -> dict[str, Any] | None:
    """Return a note under its short names, None for what is none."""
    try:
        parsed = json.loads(body[:_LONGEST]) if body else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(parsed, dict):
        return None
    note = {short: parsed.get(short, parsed.get(long)) for short, long in _NAMES.items()}
    numbers = (note[name] for name in ("q", "so", "pt"))
    texts = (note[name] for name in ("t", "c"))
    sound = all(isinstance(number, int) for number in numbers) and all(isinstance(text, str) for text in texts)
    return note if sound else None


def _key(note: Mapping[str, Any]) -> tuple[Any, ...]:
    return note["t"], note["q"], note["c"], note["so"], note["pt"]


def _offsets(checkpoint: Mapping[str, Any]) -> list[int]:
    """Return the queue offsets of the messages that were popped. Source: PopCheckPoint#ackOffsetByIndex."""
    start, differences, number = checkpoint["so"], checkpoint["d"], checkpoint["n"]
    if isinstance(differences, list) and differences:
        return [start + one for one in differences if isinstance(one, int)]
    return list(range(start, start + min(number, 64))) if isinstance(number, int) else []


def _groups(notes: _Notes, step: Step) -> Iterable[str]:
    queue = step.topic, step.queue_id
    return dict.fromkeys(sorted(key[2] for key in notes.checkpoints if key[:2] == queue))


def _last_pop(notes: _Notes, step: Step, group: str) -> Pop | None:
    queue, offset = (step.topic, step.queue_id, group), step.queue_offset
    pops = [
        (key, checkpoint)
        for key, checkpoint in notes.checkpoints.items()
        if key[:3] == queue and offset in _offsets(checkpoint)
    ]
    if not pops:
        return None
    key, checkpoint = max(pops, key=lambda pop: int(pop[1]["pt"]))
    merged, invisible = checkpoint["bm"], checkpoint["it"]
    bit = _offsets(checkpoint).index(offset)
    in_memory = isinstance(merged, int) and bool(merged >> bit & 1)
    return Pop(
        group,
        step.physical_offset,
        checkpoint["pt"],
        checkpoint["pt"] + (invisible if isinstance(invisible, int) else 0),
        (*key, offset) in notes.acks or in_memory,
        len(pops),
    )
