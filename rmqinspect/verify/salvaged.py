"""Units as salvage writes or leaves them for lost messages: no damage, but a note.

    queue   a neighbour is left      a copy of its unit                                   CQ-SHIFT, info
            no message is left       all lead over the end of a segment, to 2 bytes       CQ-DANGLING, info
            in a batch queue         none; at its end a copy that holds other messages    BQ-COUNT, CQ-SHIFT, info
    timer   anywhere                 it leads into a bridge, not to its first byte        TM-CHAIN, info

So a queue keeps its offsets, and a pull neither ends there nor passes over what follows. What a timer reads inside of a
bridge is no record: it tries three times, and goes on with the next unit of the slot. The first byte of a bridge it
would take for a message.

Source: TimerMessageStore#getMessageByCommitOffset, .TimerDequeueGetMessageService#run, MessageDecoder#decode; RocketMQ
5.0.0 to 5.5.0. TimerMessageRocksDBStore#getMessageByCommitOffset; 5.4.0 to 5.5.0.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter

import numpy as np
from msgspec.structs import replace

from rmqinspect.codec.arrays import Units
from rmqinspect.codec.layout import dtype_of
from rmqinspect.consumequeue.units import LAYOUTS
from rmqinspect.errors import Unreadable
from rmqinspect.rocksdb.databases import timer_units_file
from rmqinspect.schemas.consumequeue import NOWHERE_SIZE, BatchUnit
from rmqinspect.schemas.message import RECORD_MAGICS, Message
from rmqinspect.schemas.places import place_of
from rmqinspect.schemas.timer import UNIT_SIZE, TimerUnit
from rmqinspect.store.model import QueueFile, Store, StoreFile
from rmqinspect.store.reader import open_file
from rmqinspect.verify.findings import Finding
from rmqinspect.verify.queue_join import Shift

_WINDOW = 1 << 20  # bytes of a queue file that are looked at together
_MAGIC_AT: int = place_of(Message, "magic")
_MAGIC_SIZE: int = Message.magic.sizeof()

Bridge = tuple[int, int]
"""Physical offsets [start, end) of bytes that salvage has bridged."""


class SalvagedUnits:
    """The units of a store that salvage may have written."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._segment_size = store.segment_size
        self._files: dict[tuple[str, int], list[QueueFile]] = defaultdict(list)
        self._by_name: dict[str, QueueFile] = {}
        for file in store.queue_files:
            if file.kind == "queue":
                self._files[file.topic, file.queue_id].append(file)
            if file.kind in LAYOUTS:
                self._by_name[file.name] = file

    def copies(self, shifts: Iterable[Shift]) -> tuple[list[Finding], list[Shift]]:
        """Return notes about the units that are copies of their neighbour's, and the shifts that are none.

        Copies begin behind the record's own unit, or end before it.
        """
        notes: list[Finding] = []
        others: list[Shift] = []
        for chain in _chains(sorted(shifts, key=lambda shift: (shift.topic, shift.queue_id, shift.unit))):
            if self._are_copies(chain):
                notes += map(self._note, chain)
            else:
                others += chain
        return notes, others

    def _are_copies(self, chain: Sequence[Shift]) -> bool:
        first, last = chain[0], chain[-1]
        file = self._by_name.get(first.file)
        if file is not None and file.kind == "batch_queue":
            return len(chain) == first.units == 1 and self._is_batch_copy(first, file)
        own, end = first.unit - first.by, last.unit + last.units
        if own not in (first.unit - 1, end):
            return False
        units = {self._unit(first.topic, first.queue_id, offset) for offset in (first.unit, end - 1, own)}
        return len(units) == 1 and None not in units

    def _unit(self, topic: str, queue_id: int, offset: int) -> bytes | None:
        size = dtype_of(LAYOUTS["queue"]).itemsize
        for file in self._files[topic, queue_id]:
            if file.base <= offset * size < file.base + file.size:
                return _read(file, offset * size - file.base, size)
        return None

    def _is_batch_copy(self, shift: Shift, file: QueueFile) -> bool:
        """Whether a batch unit is that before it but for the messages, which follow those of the other."""
        layout = dtype_of(BatchUnit)
        if shift.position >= layout.itemsize:
            raw = _read(file, shift.position - layout.itemsize, 2 * layout.itemsize)
        else:
            before = next((one for one in self._by_name.values() if _goes_on(one, file)), None)
            last = None if before is None else _read(before, before.size - layout.itemsize, layout.itemsize)
            own = _read(file, shift.position, layout.itemsize)
            raw = None if last is None or own is None else last + own
        if raw is None or len(raw) < 2 * layout.itemsize:
            return False
        before_it, unit = np.frombuffer(raw, layout).astype(np.dtype([(n, np.int64) for n in layout.names or ()]))
        same = all(before_it[name] == unit[name] for name in ("physical_offset", "size", "tags_code"))
        return same and bool(unit["queue_offset"] == before_it["queue_offset"] + before_it["message_count"])

    def _note(self, shift: Shift) -> Finding:
        what = "the unit of a lost message: it leads to its neighbour in the queue, as salvage writes it"
        if shift.units > 1:
            what = (
                f"{shift.units} units of lost messages from queue offset {shift.unit} on: they lead to their neighbour "
                "in the queue, as salvage writes them"
            )
        size = dtype_of(LAYOUTS[self._by_name[shift.file].kind]).itemsize
        return Finding(
            "CQ-SHIFT",
            what,
            severity="info",
            file=shift.file,
            offset=shift.position,
            length=shift.units * size,
            physical_offset=shift.physical_offset,
            topic=shift.topic,
            queue_id=shift.queue_id,
            queue_offset=shift.unit,
            count=shift.units,
            counted=shift.units > 1,
            expected=str(shift.unit - shift.by),
            found=str(shift.unit),
        )

    def nowhere(self, finding: Finding) -> Finding | None:
        """Return a note, if a finding is about the units of a queue without a message; else None."""
        if finding.code != "CQ-DANGLING" or not self._lead_nowhere(finding):
            return None
        return replace(
            finding,
            message="the units of lost messages: they lead over the end of a segment, so that a pull passes over them, "
            "as salvage writes them where it has saved no message of a queue",
            severity="info",
            expected=None,
            found=None,
        )

    def _lead_nowhere(self, finding: Finding) -> bool:
        """Whether all units of a finding lead from the last byte of a segment into the next one."""
        file, start, size = self._by_name.get(finding.file or ""), finding.offset, finding.length
        place = finding.physical_offset
        if file is None or start is None or size is None or place is None or not self._segment_size:
            return False
        layout = dtype_of(LAYOUTS[file.kind])
        end = min(start + size, file.size)
        if (place + 1) % self._segment_size or size % layout.itemsize:
            return False
        step = _WINDOW // layout.itemsize * layout.itemsize
        for at in range(start, end, step):
            raw = _read(file, at, min(step, end - at))
            if raw is None:
                return False
            units = np.frombuffer(raw, layout, len(raw) // layout.itemsize)
            is_place, is_size = units["physical_offset"] == place, units["size"] == NOWHERE_SIZE
            if not bool((is_place & is_size & (units["tags_code"] == 0)).all()):
                return False
        return True

    def timers(self, finding: Finding, bridges: Sequence[Bridge]) -> Finding | None:
        """Return a note, if a finding is about timer units that all lead into bridges; else None."""
        units = self._timer_units(finding) if finding.code == "TM-CHAIN" and bridges else None
        if units is None or not all(self._is_passed_over(int(place), bridges) for place in units["physical_offset"]):
            return None
        what = "the timer unit of a lost message: it leads into a bridge, and the broker passes over it"
        if len(units) > 1:
            what = f"{len(units)} timer units of lost messages: they lead into bridges, and the broker passes over them"
        return replace(finding, message=what, severity="info", expected=None, found=None)

    def _timer_units(self, finding: Finding) -> Units | None:
        """Return the units that a finding is about; None where it is about something else, or they cannot be read."""
        files = [file for file in self._store.of_kind("timer_log") if file.name == finding.file]
        in_rocksdb = timer_units_file(self._store)
        if in_rocksdb is not None and in_rocksdb.name == finding.file:
            files.append(in_rocksdb)
        size = finding.length or 0
        if not files or finding.offset is None or finding.count * UNIT_SIZE != size:
            return None
        raw = _read(files[0], finding.offset, size)
        return None if raw is None or len(raw) < size else np.frombuffer(raw, dtype_of(TimerUnit))

    def _is_passed_over(self, place: int, bridges: Sequence[Bridge]) -> bool:
        """Whether a timer that reads at a place finds no record there: it lies in a bridge, and none begins there."""
        at = bisect_right(bridges, place, key=itemgetter(0)) - 1
        segment = self._store.segment_at(place)
        if at < 0 or place >= bridges[at][1] or segment is None:
            return False
        magic = _read(segment, place - segment.base + _MAGIC_AT, _MAGIC_SIZE)
        return magic is not None and int.from_bytes(magic, "big", signed=True) not in RECORD_MAGICS


def bridges_of(log: Iterable[Finding]) -> list[Bridge]:
    """Return the bridges that the findings about a log name, ascending."""
    return sorted(
        (one.physical_offset, one.physical_offset + (one.length or 1))
        for one in log
        if one.code == "CL-BRIDGED" and one.physical_offset is not None
    )


def batch_gap(finding: Finding) -> Finding:
    """Return a note for a batch unit that begins behind the end of the one before: between them messages are lost.

    Any other finding is returned as it is.
    """
    expected, found = finding.expected, finding.found
    if finding.code != "BQ-COUNT" or expected is None or found is None or int(found) <= int(expected):
        return finding
    what = "the messages before this batch unit are lost: a batch queue has no units for them, as salvage writes it"
    return replace(finding, message=what, severity="info")


def _chains(shifts: Iterable[Shift]) -> Iterator[list[Shift]]:
    """Yield the shifts, those of neighbours that lead to one record together: a queue goes on in its next file."""
    chain: list[Shift] = []
    for shift in shifts:
        last = chain[-1] if chain else None
        if last is not None and (
            (last.topic, last.queue_id, last.physical_offset) != (shift.topic, shift.queue_id, shift.physical_offset)
            or last.unit + last.units != shift.unit
        ):
            yield chain
            chain = []
        chain.append(shift)
    if chain:
        yield chain


def _goes_on(before: QueueFile, file: QueueFile) -> bool:
    same = (before.kind, before.topic, before.queue_id) == (file.kind, file.topic, file.queue_id)
    return same and before.base + before.size == file.base


def _read(file: StoreFile, at: int, size: int) -> bytes | None:
    try:
        with open_file(file) as reader:
            return reader.read(at, size)
    except Unreadable:
        return None
