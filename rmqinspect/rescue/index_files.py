"""Index files under construction: every key put as a broker puts it, so that they are equal byte by byte.

    key's hash % slots -> slot -> newest entry -> the one before it in the same slot -> ... -> 0
    header: begin and end of the entries, in ms and bytes; used slots; the next free entry

A file is full with its last entry. The next one is made for the record that follows, whether that has keys or not, and
begins with the end of the full one in its header: the seconds of its first entry count from there.

The slots of the file under construction are held in memory, 4 bytes each; entries are written as they come.

Source: IndexService#buildIndex, #getAndCreateLastIndexFile, IndexFile#putKey, IndexHeader; RocketMQ 4.0.0 to 5.5.0.
"""

import os
from datetime import UTC, datetime, timedelta

import numpy as np

from rmqinspect.broker.dispatch import Dispatched
from rmqinspect.broker.version_estimate import RELEASES
from rmqinspect.codec.layout import dtype_of
from rmqinspect.index.geometry import Geometry
from rmqinspect.loops.arrays import Int32s
from rmqinspect.loops.pointer_rows import END_PLACE, END_TIME, ENTRY_COUNT
from rmqinspect.loops.pointers import put_keys
from rmqinspect.schemas.index import IndexEntry, IndexHeader, IndexSlot
from rmqinspect.system.output_file import as_refusal

_HEADER, _SLOT, _ENTRY = dtype_of(IndexHeader), dtype_of(IndexSlot), dtype_of(IndexEntry)
_COUNTS_SLOTS = "4.7.1"  # up to 4.7.0 hashSlotCount counts entries: IndexFile#putKey
_SLOT_STEP = 1 << 18  # slots written at a time; where all are empty, a hole stays
_MILLI = timedelta(milliseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_NAMED = 253_402_300_799_999  # ms: the end of the year 9999


class IndexFiles:
    """The index files of a store; records are added in the order of the log."""

    def __init__(self, folder: str, geometry: Geometry, release: str) -> None:
        self.folder, self.geometry = folder, geometry
        self.files = self.entries = 0
        self._until = 0  # end time of the files that were finished, the latest, ms
        self._counts_slots = int(RELEASES.index(release) >= RELEASES.index(_COUNTS_SLOTS))
        self._heads = np.zeros(0, np.int32)
        self._state = np.zeros(6, np.int64)
        self._descriptor = -1
        self._name = ""  # of the newest file

    def add(self, records: Dispatched) -> None:
        """Put the keys of some records.

        :raises Refused: a file cannot be written.
        """
        if not len(records):
            return
        if self._descriptor < 0 or self._is_full:
            self._begin(int(records.store_timestamp[0]))
        keys = len(records.key_record)
        previous, seconds = np.empty(keys, np.int32), np.empty(keys, np.int32)
        done = 0
        while done < keys:
            if self._is_full:
                self._begin(int(records.store_timestamp[records.key_record[done]]))
            number = int(self._state[ENTRY_COUNT])
            behind = put_keys(
                done,
                records.key_hash,
                records.key_record,
                records.physical_offset,
                records.store_timestamp,
                self.geometry.entries,
                self._counts_slots,
                self._heads,
                previous,
                seconds,
                self._state,
            )
            self._write_entries(number, records, slice(done, behind), previous, seconds)
            done = behind
        if self._is_full and keys and records.key_record[-1] < len(records) - 1:
            self._begin(int(records.store_timestamp[records.key_record[-1] + 1]))

    @property
    def _is_full(self) -> bool:
        return bool(self._state[ENTRY_COUNT] >= self.geometry.entries)

    def _write_entries(self, number: int, records: Dispatched, keys: slice, previous: Int32s, seconds: Int32s) -> None:
        entries = np.empty(keys.stop - keys.start, _ENTRY)
        entries["key_hash"] = records.key_hash[keys]
        entries["physical_offset"] = records.physical_offset[records.key_record[keys]]
        entries["time_diff"], entries["previous"] = seconds[keys], previous[keys]
        self._put(entries.tobytes(), self.geometry.entry_position(number))
        self.entries += len(entries)

    @property
    def until(self) -> int:
        """Latest end time of a file, ms; 0 without entries."""
        return max(self._until, int(self._state[END_TIME]))

    def _begin(self, time: int) -> None:
        """Make a new file, at a time (ms) which gives it its name."""
        end_time, end_place = int(self._state[END_TIME]), int(self._state[END_PLACE])
        if self._descriptor >= 0:
            self._until = self.until
            self.finish()
        self._heads = np.zeros(self.geometry.slots, np.int32)
        self._state[:] = max(0, end_time), max(0, end_time), max(0, end_place), max(0, end_place), 0, 1
        name = _name_at(time)
        if name <= self._name:  # two in one millisecond, or a clock that was set back
            name = f"{int(self._name) + 1:017d}"
        self._name = name
        self._descriptor = self._make(os.path.join(self.folder, name))
        self.files += 1

    def _make(self, path: str) -> int:
        """Make a file, and return its descriptor."""
        with as_refusal(path):
            os.makedirs(self.folder, exist_ok=True)
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            os.ftruncate(descriptor, self.geometry.size)
        return descriptor

    def finish(self) -> None:
        """Write header and slots of the last file, and close it."""
        if self._descriptor < 0:
            return
        header = np.zeros(1, _HEADER)
        for name, value in zip(_HEADER.names or (), self._state.tolist(), strict=True):
            header[name] = value
        if self._state[ENTRY_COUNT] <= 1:
            header["index_count"] = 0  # written with the first entry
        self._put(header.tobytes(), 0)
        for first in range(0, len(self._heads), _SLOT_STEP):
            heads = self._heads[first : first + _SLOT_STEP]
            if heads.any():
                self._put(heads.astype(_SLOT["entry"]).tobytes(), self.geometry.slot_position(first))
        os.close(self._descriptor)
        self._descriptor = -1

    def _put(self, raw: bytes, position: int) -> None:
        view = memoryview(raw)
        with as_refusal(os.path.join(self.folder, self._name)):
            while view:
                done = os.pwrite(self._descriptor, view, position)
                view, position = view[done:], position + done


class CountedIndexFiles(IndexFiles):
    """The same without files: what a run would write is only counted."""

    def _make(self, _path: str) -> int:
        return os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)


def _name_at(time: int) -> str:
    """Return the name of an index file that is made at a time, ms: yyyyMMddHHmmssSSS, here in UTC."""
    moment = _EPOCH + min(max(0, time), _LAST_NAMED) * _MILLI
    return f"{moment:%Y%m%d%H%M%S}{moment.microsecond // 1000:03d}"
