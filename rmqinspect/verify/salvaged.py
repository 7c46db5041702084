"""Queue units as salvage writes them for lost messages: no damage, but a note.

    a neighbour is left      a copy of its unit                                   CQ-SHIFT, info
    no message is left       all lead over the end of a segment, to 2 bytes       CQ-DANGLING, info

So a queue keeps its offsets, and a pull neither ends there nor passes over what follows.
"""

from collections import defaultdict
from dataclasses import replace

import numpy as np

from rmqinspect.codec.layout import dtype_of
from rmqinspect.consumequeue.units import LAYOUTS
from rmqinspect.errors import Unreadable
from rmqinspect.schemas.consumequeue import NOWHERE_SIZE
from rmqinspect.store.model import QueueFile, Store
from rmqinspect.store.reader import open_file
from rmqinspect.verify.findings import Finding
from rmqinspect.verify.queue_join import Shift

_WINDOW = 1 << 20  # bytes of a queue file that are looked at together


class SalvagedUnits:
    """The units of a store that salvage may have written."""

    def __init__(self, store: Store) -> None:
        self._segment_size = store.segment_size
        self._files: dict[tuple[str, int], list[QueueFile]] = defaultdict(list)
        self._by_name: dict[str, QueueFile] = {}
        for file in store.queue_files:
            if file.kind == "queue":
                self._files[file.topic, file.queue_id].append(file)
            if file.kind in LAYOUTS:
                self._by_name[file.name] = file

    def are_copies(self, shift: Shift) -> bool:
        """Whether each unit of a shift is that of the record it points at, and all between are the same."""
        if shift.units > 1:
            return False
        own = shift.unit - shift.by
        first, last = min(shift.unit, own), max(shift.unit, own)
        units = {self._unit(shift.topic, shift.queue_id, offset) for offset in {first, (first + last) // 2, last}}
        return len(units) == 1 and None not in units

    def _unit(self, topic: str, queue_id: int, offset: int) -> bytes | None:
        size = dtype_of(LAYOUTS["queue"]).itemsize
        for file in self._files[topic, queue_id]:
            if file.base <= offset * size < file.base + file.size:
                try:
                    with open_file(file) as reader:
                        return reader.read(offset * size - file.base, size)
                except Unreadable:
                    return None
        return None

    def judged(self, finding: Finding) -> Finding:
        """Return a finding about dangling units: a note, if they are those of a queue without a message."""
        if finding.code != "CQ-DANGLING" or not self._lead_nowhere(finding):
            return finding
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
        try:
            with open_file(file) as reader:
                for at in range(start, end, step):
                    raw = reader.read(at, min(step, end - at))
                    units = np.frombuffer(raw, layout, len(raw) // layout.itemsize)
                    is_place, is_size = units["physical_offset"] == place, units["size"] == NOWHERE_SIZE
                    if not bool((is_place & is_size & (units["tags_code"] == 0)).all()):
                        return False
        except Unreadable:
            return False
        return True
