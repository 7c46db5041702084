"""Properties of many records at once, as columns of positions; nothing is copied.

    name 01 value 02 name 01 value 02     the last 02 is optional

Rules, as in the broker: items are separated by 02, and empty items are ignored. The first 01 of an
item ends its name; the value may contain more. An item without a value is ignored; one without 01
or without a name is malformed. Of items with the same name the last one counts.

Source: MessageDecoder#string2messageProperties, 4.9.1 and later; names: MessageConst.
"""

import numpy as np
from msgspec import Struct

from rmqinspect.codec.arrays import Bools
from rmqinspect.loops.arrays import Bytes, Int32s, Ints
from rmqinspect.loops.text import hash_of_name, split_items
from rmqinspect.loops.text_rows import NAME_HASHES
from rmqinspect.schemas.message import WELL_KNOWN

_SMALLEST = 4  # bytes of an item: a name, 01, a value, 02; the last one of a text may be without 02


class Items(Struct, frozen=True):
    """The k well-formed items of n records in text order, as positions in `raw`."""

    raw: Bytes
    name_starts: Ints
    name_ends: Ints
    value_ends: Ints
    firsts: Int32s  # shape (n + 1,): record i has the items firsts[i] to firsts[i + 1]
    replaced: Bools  # shape (k,): a later item of the record has the same name
    malformed: Bools  # shape (n,): the record has a malformed item
    beyond_ascii: Bools  # shape (n,): its text has bytes above 0x7f
    known: Int32s  # shape (names, n): the last item of each name of WELL_KNOWN in each record, -1 without

    @property
    def value_starts(self) -> Ints:
        """Where each value begins: behind the 01 that ends the name."""
        return self.name_ends + 1

    @property
    def record(self) -> Ints:
        """The record of each item."""
        return np.repeat(np.arange(len(self.malformed)), np.diff(self.firsts))

    def of(self, name: bytes) -> Int32s:
        """Return the item of each record with a name of WELL_KNOWN, -1 without; of equal names the last one."""
        item: Int32s = self.known[WELL_KNOWN.index(name)]
        return item

    def find(self, name: bytes) -> Int32s:
        """Return the item of each record with any name, -1 without; of equal names the last one.

        Looks at all items: for few records, and names that are not in WELL_KNOWN.
        """
        found = np.full(len(self.malformed), -1, np.int32)
        same = np.flatnonzero(self.name_ends - self.name_starts == len(name))
        for place, byte in enumerate(name):
            same = same[self.raw[self.name_starts[same] + place] == byte]
        found[self.record[same]] = same
        return found

    def value_of(self, name: bytes, record: int) -> bytes | None:
        """Return the value of a name of WELL_KNOWN in one record."""
        item = self.of(name)[record]
        return None if item < 0 else self.raw[self.name_ends[item] + 1 : self.value_ends[item]].tobytes()


def split_properties(raw: Bytes, starts: Ints, ends: Ints) -> Items:
    """Return the items of n records; record i has the text `raw[starts[i]:ends[i]]`, as far as that is inside."""
    count, starts, ends = len(starts), np.ascontiguousarray(starts), np.ascontiguousarray(ends)
    # An item has at least four bytes, but for the last one of a text. Memory that is not written to costs nothing.
    room = (int(np.clip(ends - starts, 0, len(raw)).sum()) + count) // _SMALLEST
    name_starts, name_ends, value_ends = (np.empty(room, np.int64) for _ in range(3))
    firsts, known = np.empty(count + 1, np.int32), np.full((len(WELL_KNOWN), count), -1, np.int32)
    replaced, malformed, high = (np.zeros(size, np.uint8) for size in (room, count, count))
    same_hash = np.empty(room, np.int32), np.full(NAME_HASHES, -1, np.int32)
    found = split_items(
        *(raw, starts, ends, *_NAMES, *same_hash, name_starts, name_ends, value_ends, firsts, replaced),
        *(malformed, high, known),
    )
    return Items(
        raw,
        name_starts[:found],
        name_ends[:found],
        value_ends[:found],
        firsts,
        replaced[:found].view(np.bool_),
        malformed.view(np.bool_),
        high.view(np.bool_),
        known,
    )


def _lay_out(names: tuple[bytes, ...]) -> tuple[Bytes, Ints, Ints]:
    """Return the names one behind the other, where each starts, and the number of the name with each hash or -1."""
    raw = np.frombuffer(b"".join(names), np.uint8)
    at = np.cumsum([0, *map(len, names)])
    by_hash = np.full(NAME_HASHES, -1, np.int64)
    for number, name in enumerate(names):
        by_hash[hash_of_name(memoryview(name), 0, len(name))] = number  # type: ignore[arg-type]
    assert np.count_nonzero(by_hash >= 0) == len(names), "two well-known names share a hash"
    return raw, at, by_hash


_NAMES = _lay_out(WELL_KNOWN)
