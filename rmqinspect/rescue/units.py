"""The queue units of the sources that lead to places in question, and whether their queue agrees with them.

A unit says which record should stand where: size, queue and queue offset of a message that is damaged or lost. A unit
may be damaged as well, and a queue may have been shifted by a unit that was lost or written twice:

    offset     17     18     19     20
    unit      rec17   rec18  rec19  rec20      right: the neighbours lead to records of their offsets
    unit      rec17   zeros  rec18  rec20      shifted: the record at 19 says 18, and 18 is a hole
    unit      rec16   rec18                    a unit was lost: between the two records lies another one of the queue
    unit      rec17   zeros  zeros  bytes      bytes that are no unit, though a broker would take them for one
"""

from bisect import bisect_right
from collections.abc import Sequence

import numpy as np

from rmqinspect.codec.arrays import Bools, Ints
from rmqinspect.codec.arrays import Units as Rows
from rmqinspect.codec.layout import dtype_of, walk_fields
from rmqinspect.commitlog.gaps import plan_splits
from rmqinspect.commitlog.record_reader import RecordReader
from rmqinspect.commitlog.records import Records
from rmqinspect.commitlog.scan import RecordRun, scan_split
from rmqinspect.consumequeue.units import LAYOUTS, message_mask, messages_in, unit_times
from rmqinspect.errors import Unreadable
from rmqinspect.rescue.repair import MOST_QUEUES, Unit
from rmqinspect.rescue.sources import Range, Source
from rmqinspect.schemas import message
from rmqinspect.schemas.message import TRANSACTION_MASK, SysFlag
from rmqinspect.store.model import Store
from rmqinspect.store.reader import open_file
from rmqinspect.topics import LMQ_PREFIX

_MOST_BETWEEN = 64 << 20  # bytes from one record of a queue to the next that are searched for others
_LOOKED_AT = 1 << 20  # bytes of a queue file behind a hole


class Units:
    """The queue units of all sources that lead into the places in question."""

    def __init__(self, sources: Sequence[Source], ranges: Sequence[Range]) -> None:
        self._found: dict[int, set[Unit]] = {}
        self._sources = sources
        known = (file.queue_id for source in sources for file in source.store.queue_files)
        self._no_queue = 1 + max(known, default=0)  # queue ids from here on are no broker's
        self._no_queue = max(self._no_queue, MOST_QUEUES)
        ordered = sorted(ranges)
        starts, ends = (np.array([one[at] for one in ordered], np.int64) for at in (0, 1))
        for source in sources if ordered else ():
            middles: dict[tuple[str, int], float] = {}
            for file in source.store.queue_files:
                if file.kind == "ext_queue" or file.topic.startswith(LMQ_PREFIX):
                    continue
                try:
                    for offsets, units in messages_in(file):
                        places, times = units["physical_offset"].astype(np.int64), unit_times(units)
                        at = np.searchsorted(starts, places, "right") - 1
                        middle = middles.get((file.topic, file.queue_id), -1)
                        likely = are_likely(offsets, units, source.store.segment_size, middle)
                        middles[file.topic, file.queue_id] = max(middle, middle_of(units))
                        inside = (at >= 0) & (places < ends[at]) & likely
                        for row in np.flatnonzero(inside).tolist():
                            unit = units[row]
                            if (file.topic, file.queue_id, int(offsets[row])) in source.unqueued:
                                continue  # its message stands elsewhere: where it leads is what is wrong
                            self._add(
                                Unit(
                                    file.topic,
                                    file.queue_id,
                                    int(offsets[row]),
                                    int(places[row]),
                                    int(unit["size"]),
                                    int(unit["tags_code"]),
                                    stored=None if times is None else int(times[row]),
                                )
                            )
                except Unreadable:
                    continue
        self.places = sorted(self._found)

    def _add(self, unit: Unit) -> None:
        self._found.setdefault(unit.place, set()).add(unit)

    def at(self, place: int) -> Unit | None:
        """Return the one unit that leads to a place, None without one, or where several disagree."""
        units = self._found.get(place, ())
        return next(iter(units)) if len(units) == 1 else None

    def following(self, place: int) -> int | None:
        """Return the next place behind one that a unit leads to, None without one."""
        at = bisect_right(self.places, place)
        return self.places[at] if at < len(self.places) else None

    def confirmed(self, unit: Unit, said: int, queue_id: int) -> Unit:
        """Return a unit with whether its queue agrees that its record, which says queue offset `said`, is here.

        Its neighbours must lead to records of their offsets, on the right side of it; at an end of the queue there is
        one neighbour only. The unit at `said` must lead to a record that says the same, or lie beyond the queue or
        before the log: a hole there means that units were shifted. A queue of one message has no neighbours: there the
        queue id that the record says, `queue_id`, must be one that no store has, or its folder may have been renamed.
        """
        sides = [self._judge(unit, unit.queue_offset + step) for step in (-1, 1)]
        other = "end" if said == unit.queue_offset else self._judge(unit, said)
        sure = "right" in sides and "wrong" not in sides and other in ("right", "end", "expired")
        if sides == ["end", "end"]:
            sure = other == "end" and not 0 <= queue_id < self._no_queue
        sure = sure and not self._has_between(unit)
        return unit._replace(confirmed=sure, both=sides.count("right") == 2 or ("end" in sides and other == "end"))

    def believed(self, place: int, head: bytes) -> Unit | None:
        """Return the one unit that leads to a place; None where its queue was shifted, as its neighbours show.

        `head`: that of the damaged record there, whose queue offset the unit contradicts then.
        """
        unit, fields = self.at(place), walk_fields(message.Message.subcons, head, place)
        said = fields.number("queue_offset")
        if unit is None or said == unit.queue_offset:
            return unit
        sides = [self._judge(unit, unit.queue_offset + step) for step in (-1, 1)]
        is_shifted = "wrong" in sides and ("right" not in sides or self._has_between(unit))
        return None if is_shifted else unit

    def denied(self, head: bytes, place: int) -> Unit | None:
        """Return the unit of a record whose SYSFLAG says that no queue has it: prepared, or rolled back.

        None without one, and where its queue does not agree.
        """
        unit, fields = self.at(place), walk_fields(message.Message.subcons, head, place)
        kind = fields.number("sys_flag") & TRANSACTION_MASK
        if unit is None or kind in (0, int(SysFlag.TRANSACTION_COMMIT)):
            return None
        said = self.confirmed(unit, fields.number("queue_offset"), fields.number("queue_id"))
        return unit if said.confirmed else None

    def _has_between(self, unit: Unit) -> bool:
        """Whether the log has a record of the queue between this one and that of the unit before it, or may have."""
        for source in self._sources:
            before = _unit_at(source.store, unit.topic, unit.queue_id, unit.queue_offset - 1)
            if before is None or before == _HOLE or not 0 <= unit.place - before <= _MOST_BETWEEN:
                continue
            for split in plan_splits(source.store.segments, _MOST_BETWEEN):
                part = split.clipped(before, unit.place)
                for event in () if part is None else scan_split(part):
                    if isinstance(event, RecordRun) and _has_queue(event.records, unit, before):
                        return True
            return False
        return unit.queue_offset > 0

    def _judge(self, unit: Unit, offset: int) -> str:
        """Return whether the unit at another offset of the queue leads to its own record.

        `right` or `wrong`; `end` where the queue has no such unit, `lost` where no record proves itself there,
        `expired` where it lay before the log's begin.
        """
        for source in self._sources:
            found = _unit_at(source.store, unit.topic, unit.queue_id, offset)
            if found is None:
                continue
            in_order = (found - unit.place) * (offset - unit.queue_offset) > 0
            if found == _HOLE:
                return "wrong"
            if source.store.segments and found < source.store.segments[0].base:
                return "expired" if in_order else "wrong"
            with RecordReader(source.store) as log:
                identity = log.identity_at(found)
            if identity is None:
                return "lost"
            named = (identity.topic, identity.queue_id, identity.queue_offset)
            is_own = named == (unit.topic, unit.queue_id, offset)
            return "right" if is_own and in_order else "wrong"
        return "end"


def are_likely(offsets: Ints, units: Rows, segment_size: int | None, middle: float) -> Bools:
    """Return which of some valid units, in the order of their queue, are not just bytes that were written over zeros.

    Of a unit behind zeros the record has to fit into its segment, and to lie behind that of the unit before it; what
    follows another unit is one, damaged or not. None is if half of them lead to places up to `middle`, the median of
    the units before them: their file is a copy of one that has other queue offsets.
    """
    size, place = units["size"].astype(np.int64), units["physical_offset"].astype(np.int64)
    if middle_of(units) <= middle:
        return np.zeros(len(units), np.bool_)
    fits = (size >= message.FIXED_SIZE) & (np.diff(place, prepend=-1) > 0)
    if segment_size:
        fits &= place % segment_size + size <= segment_size
    follows = np.diff(offsets, prepend=-2) == 1
    likely: Bools = fits | follows
    return likely


def middle_of(units: Rows) -> float:
    """Return the median of the places that some units lead to."""
    return float(np.median(units["physical_offset"])) if len(units) else -1.0


_HOLE = -1


def _has_queue(records: Records, unit: Unit, before: int) -> bool:
    """Whether some records hold one of a unit's queue that lies between the unit's and that at `before`."""
    inside = (records.places > before) & (records.places < unit.place) & (records.field("queue_id") == unit.queue_id)
    # Prepared and rolled-back messages are of a queue, but have no place in it.
    inside &= (records.sys_flag & TRANSACTION_MASK) != int(SysFlag.TRANSACTION_PREPARED)
    inside &= (records.sys_flag & TRANSACTION_MASK) != TRANSACTION_MASK
    topic = unit.topic.encode()
    rows = np.flatnonzero(inside & (records.topic_ends - records.topic_starts == len(topic)))
    return any(bytes(records.raw[records.topic_starts[row] : records.topic_ends[row]]) == topic for row in rows)


def unit_place(store: Store, topic: str, queue_id: int, offset: int) -> int | None:
    """Return the physical offset that the unit of a queue offset leads to; None without a unit of a message there."""
    place = _unit_at(store, topic, queue_id, offset)
    return None if place == _HOLE else place


def _unit_at(store: Store, topic: str, queue_id: int, offset: int) -> int | None:
    """Return where the unit of a queue offset leads; `_HOLE` for zeros between units, None behind the last one."""
    size = dtype_of(LAYOUTS["queue"]).itemsize
    for file in store.queue_files:
        same = (file.topic, file.queue_id, file.kind) == (topic, queue_id, "queue")
        # A file that was cut off may end within a unit.
        if not same or not file.base <= offset * size <= file.base + file.size - size:
            continue
        try:
            with open_file(file) as reader:
                at = offset * size - file.base
                units = np.frombuffer(reader.read(at, size), dtype_of(LAYOUTS["queue"]))
                if len(units) and message_mask(units)[0]:
                    return int(units["physical_offset"][0])
                behind = reader.read(reader.next_allocated(at), _LOOKED_AT)
                return _HOLE if any(behind) else None
        except Unreadable:
            return None
    return None
