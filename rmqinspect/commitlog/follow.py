"""Following record sizes: one window's part of the chain, as columns.

A chain is followed from record to record: read a size, add it, read the next. In Python that costs more
than all columns of the record together. So some records further on are found by their own offsets, and
the chain is followed from all of them at once, one step of every part per numpy call:

    window   |r|r|r|r|r|r|r|r|r|r|r|r|r|r|r|r|r|r|r|r|
    begins    ^         ^         ^         ^            found by magic and own offset
    step 1      ^         ^         ^         ^          begins + sizes there
    step 2        ^         ^         ^         ^

Where each part ends exactly where the next one begins, the parts are the chain. Where one does not,
what follows it is dropped: a begin may be a record inside of a body.

Nothing is believed yet: sizes are read unsigned, so a part only moves forward. `next_batch` then keeps
the records up to the first that is not sound.
"""

from itertools import repeat

import numpy as np

from rmqinspect.codec.arrays import Ints
from rmqinspect.codec.layout import place_of
from rmqinspect.commitlog.records import Records
from rmqinspect.commitlog.window import Window
from rmqinspect.schemas import dledger, message

# Batch size: 5,000 records' columns fit in L2; smaller batches are dominated by call overhead.
BATCH_RECORDS = 5000
BATCH_SIZE = 256 << 10  # bytes of the first batch, and of every batch at least
_PARTS = 96  # parts of a batch that are followed at once
PART_SIZE = 4096  # bytes of a part at least
FEW_PARTS = 8  # below this the loop in Python is faster
STEPS = 8  # steps between two tests whether all parts have ended

_MAGIC = place_of(message.HEADS[False, False], "magic")
_PHYSICAL_OFFSET = place_of(message.HEADS[False, False], "physical_offset")
_ENTRY_SIZE = place_of(dledger.EntryHead, "size")
_ENTRY_BODY_SIZE = place_of(dledger.EntryHead, "body_size")


class Follower:
    """Follows the chain through a window, a batch of records at a time."""

    def __init__(self, window: Window, window_size: int) -> None:
        self._window = window
        self._lead = window.reader.lead
        self._most = 2 * window_size  # bytes of a batch
        self._batch_size = BATCH_SIZE

    def next_batch(self, position: int) -> Records:
        """Return the records of the chain from a position on; none where the first one is not sound.

        They are proved by magic, size and lengths; of a DLedger file also by the sizes of their entries.
        """
        window, lead = self._window, self._lead
        batch = min(self._batch_size, self._most, window.reader.size - position)
        # Spare room: the mean size of records changes a little from batch to batch.
        at = window.need(position, batch, spare=min(batch // 8, self._most - batch))
        starts = self._follow(at + lead)
        records = window.records(starts)
        sound = records.are_sound(window.filled)
        if lead:
            entries = starts - lead
            body = window.int32[entries + _ENTRY_BODY_SIZE]
            sound &= (body == records.total_size) & (window.int32[entries + _ENTRY_SIZE] == records.total_size + lead)
            sound &= np.isin(window.int32[entries], dledger.ENTRY_MAGICS)
        if not sound.all():
            records = records.select(slice(int(np.argmin(sound))))
        if len(records):
            followed = int(records.ends[-1] - records.starts[0])
            self._batch_size = max(followed // len(records) * BATCH_RECORDS, BATCH_SIZE)
        return records

    def _follow(self, at: int) -> Ints:
        """Return the indexes that the sizes lead to, from a record at `at` as far as a batch goes."""
        last = min(self._window.filled - message.FIXED_SIZE, at + self._batch_size)
        begins = self._find_begins(at, last)
        if len(begins) < FEW_PARTS:
            return self._follow_one(at, last)
        ends = np.append(begins[1:], last + 1)
        most = int((ends - begins).max()) // message.FIXED_SIZE + 1  # records a part can have
        steps, position, uint32 = [begins], begins, self._window.uint32
        while len(steps) <= most and (position < ends).any():
            for _ in range(STEPS):
                position = position + uint32[position]
                if self._lead:
                    position += self._lead
                # Behind the last start nothing is followed: any value there will do.
                np.minimum(position, last + 1, out=position)
                steps.append(position)
        places = np.array(steps)
        inside = places < ends
        counts = np.count_nonzero(inside, axis=0)
        reached = places[np.minimum(counts, len(places) - 1), np.arange(len(begins))]
        broken = np.flatnonzero(reached[:-1] != begins[1:])
        if len(broken):
            inside[:, int(broken[0]) + 1 :] = False
        starts: Ints = places.T[inside.T]
        return starts

    def _follow_one(self, at: int, last: int) -> Ints:
        """Follow the sizes one by one: large records, of which a batch holds few."""
        starts: list[int] = []
        size_at = self._window.uint32.item
        # A size of 0 is stopped by the number of records there can be.
        for _ in repeat(None, max(0, last - at) // message.FIXED_SIZE + 1):
            if at > last:
                break
            starts.append(at)
            at += size_at(at) + self._lead
        return np.array(starts, np.int64)

    def _find_begins(self, at: int, last: int) -> Ints:
        """Return `at` and the indexes of some records behind it, up to `last`, that have their own offset."""
        window = self._window
        step = max((last - at) // _PARTS, PART_SIZE)
        find, magic = window.buffer.find, message.MAGIC_PREFIX
        # -1, nothing found in a part, becomes an index before `at` and is dropped.
        found = [find(magic, begin + _MAGIC, begin + step) for begin in range(at + step, last - _MAGIC, step)]
        places = np.array(found, np.int64) - _MAGIC
        places = places[(places > at) & (places <= last)]
        own = window.int64[places + _PHYSICAL_OFFSET] == window.physical_offset + places
        return np.concatenate(([at], places[own]))
