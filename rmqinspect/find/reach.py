"""Whether consumers can get a record that is in the log: by its queue unit, and the minimum of its queue."""

from rmqinspect.consumequeue.units import queue_ends
from rmqinspect.errors import Unreadable
from rmqinspect.find.life import Life
from rmqinspect.find.places import Found
from rmqinspect.find.reasons import NOT_IN_QUEUE, OUT_OF_REACH
from rmqinspect.store.model import Store
from rmqinspect.text import group_digits


def out_of_reach(store: Store, life: Life) -> Found | None:
    """Return why no group can pull the record of a life; None if one can, or nothing is known of its queue."""
    record = life.record
    units = [unit for unit in life.units if (unit.topic, unit.queue_id) == (record.topic, record.queue_id)]
    if not units or any(unit.state in ("present", "unknown") for unit in units):
        return None
    try:
        ends = list(queue_ends(store, [(record.topic, record.queue_id)]))
    except Unreadable:
        return None
    lowest = min((end.min_offset for end in ends), default=0)
    queue = f"{record.topic} queue {record.queue_id}"
    if units[0].state == "missing" and record.queue_offset < lowest:
        begins = f"{queue} begins at {group_digits(lowest)}"
        return Found(OUT_OF_REACH, f"{begins}, behind this record's offset {group_digits(record.queue_offset)}")
    return Found(NOT_IN_QUEUE, f"{queue} has no unit for it: {units[0].detail}")
