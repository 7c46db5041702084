"""Which of the records with one UNIQ_KEY are copies of one message.

    its origin is a copy         ORIGIN_MESSAGE_ID, PREPAREDTRANSACTIONOFFSET
    the same body                and no origin that says otherwise
    another body                 a copy only where all records with the id can be of one message

Records of one client batch may share the id of the batch (4.8.0 to 5.3.3): they lie side by side, with the same store
time, and are different messages even if their bodies are the same.
"""

from collections.abc import Sequence
from itertools import pairwise

from rmqinspect.broker.copies import NO_COPIES
from rmqinspect.find.life_records import Step
from rmqinspect.schemas.dledger import EntryHead

_FIRST = frozenset({"sent", "half"})  # what a producer stores


def family(start: Step, steps: Sequence[Step]) -> tuple[list[Step], list[Step]]:
    """Return (copies of the message of `start`, other messages with its id), each ascending as `steps` are."""
    by_place = {step.physical_offset: step for step in steps}
    mates = _batch_mates(steps)
    one_message = len({step.body for step in steps if step.copy.kind in _FIRST}) <= 1
    members = {start.physical_offset: start}
    while True:
        rest = [step for step in steps if step.physical_offset not in members]
        joining = next((step for step in rest if _is_linked(step, members)), None) or next(
            (step for step in rest if _is_alike(step, members, by_place, mates, one_message=one_message)), None
        )
        if joining is None:
            break
        members[joining.physical_offset] = joining
    copies = [step for step in steps if step.physical_offset in members]
    return copies, [step for step in steps if step.physical_offset not in members]


def stored_twice(copies: Sequence[Step]) -> list[Step]:
    """Return the records of a message that a producer stored again, as after a timeout: all but the first."""
    return [step for step in copies if step.copy.kind == "sent"][1:]


def _is_linked(step: Step, members: dict[int, Step]) -> bool:
    """Whether a record names one of the others, or one of them names it."""
    if step.copy.kind == "timer_cancel":
        return any(cancels(step, member) for member in members.values())
    named = any(step.physical_offset in member.named for member in members.values())
    return named or not step.named.isdisjoint(members)


def _is_alike(
    step: Step, members: dict[int, Step], by_place: dict[int, Step], mates: list[set[int]], *, one_message: bool
) -> bool:
    """Whether a record that names none of the others is a copy all the same."""
    if step.copy.kind in NO_COPIES or step.copy.kind == "timer_cancel":
        return False
    if not step.named.isdisjoint(by_place):  # a copy of another
        return False
    if any(step.physical_offset in group and not group.isdisjoint(members) for group in mates):
        return False
    return one_message or any(step.body == member.body for member in members.values())


def cancels(step: Step, member: Step) -> bool:
    """Whether a record takes another off the timer wheel: it names the UNIQ_KEY, in 5.3.2 behind `topic+`.

    Source: TimerMessageStore#doPut, TimerMessageStore#buildDeleteKey.
    """
    named = step.properties.get("TIMER_DEL_UNIQKEY", "")
    key = member.properties.get("UNIQ_KEY")
    return member.copy.kind == "timer" and key is not None and key in (named, named.partition("+")[2])


def _batch_mates(steps: Sequence[Step]) -> list[set[int]]:
    """Return the places of records that were stored side by side, at the same time, in one queue."""
    groups: list[set[int]] = []
    for before, step in pairwise(steps):
        side_by_side = 0 <= step.physical_offset - before.end <= EntryHead.sizeof()
        same = all((one.copy.kind, *_of_batch(one)) == ("sent", *_of_batch(before)) for one in (before, step))
        if side_by_side and same:
            if not groups or before.physical_offset not in groups[-1]:
                groups.append({before.physical_offset})
            groups[-1].add(step.physical_offset)
    return groups


def _of_batch(step: Step) -> tuple[object, ...]:
    """Return what the records of one batch have in common."""
    return step.topic, step.queue_id, step.store_timestamp
