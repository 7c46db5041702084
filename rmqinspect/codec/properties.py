"""Properties of many records at once, as columns of positions.

    name 01 value 02 name 01 value 02     the last 02 is optional

Rules, as in the broker: items are separated by 02, and empty items are ignored. The first 01 of an
item ends its name; the value may contain more. An item without a value is ignored; one without 01
or without a name is malformed.

Nearly all texts strictly alternate 01 and 02: `_split_alternating` splits these in one pass, and
`split_properties` handles the rest.

Source: MessageDecoder#string2messageProperties, 4.9.1 and later.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rmqinspect.codec.arrays import FIBONACCI, Bytes, Ints
from rmqinspect.schemas.message import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR


@dataclass(frozen=True, slots=True)
class Items:
    """The well-formed items in text order: positions, and the record of each."""

    record: Ints
    name_starts: Ints
    name_ends: Ints
    value_starts: Ints
    value_ends: Ints
    malformed: Ints  # record of each malformed item, ascending
    firsts: Ints  # shape (n + 1,): record i has the items firsts[i] to firsts[i + 1]


def split_properties(text: Bytes, offsets: Ints) -> Items:
    """Return the items of n records; `offsets` has shape (n + 1,).

    Record i has the properties `text[offsets[i]:offsets[i + 1]]`.
    """
    alternating = _split_alternating(text, offsets)
    if alternating is not None:
        return alternating
    item_ends = np.flatnonzero(text == PROPERTY_SEPARATOR)
    lasts = offsets[1:][np.diff(offsets) > 0]
    unended = lasts[text[lasts - 1] != PROPERTY_SEPARATOR]
    if len(unended):
        # After an item that ends with 02 the next begins behind it; after one that ends with its text,
        # right there, even if the next text begins with 02.
        skipped = np.repeat((1, 0), (len(item_ends), len(unended)))
        item_ends = np.concatenate((item_ends, unended))
        order = np.lexsort((skipped, item_ends))
        item_ends = item_ends[order]
        starts = np.concatenate(([0], item_ends[:-1] + skipped[order[:-1]]))
    else:
        starts = np.concatenate(([0], item_ends[:-1] + 1))
    if not len(item_ends):
        none = np.empty(0, np.int64)
        return Items(none, none, none, none, none, none, np.zeros(len(offsets), np.int64))
    middles = np.flatnonzero(text == NAME_VALUE_SEPARATOR)
    if len(middles) == len(starts) and ((starts < middles) & (middles + 1 < item_ends)).all():
        firsts = np.searchsorted(starts, offsets)
        return Items(_records_of(firsts), starts, middles, middles + 1, item_ends, starts[:0], firsts)
    middle = np.append(middles, len(text))[np.searchsorted(middles, starts)]
    bad = (starts < item_ends) & ((middle == starts) | (middle >= item_ends))
    # Clients write an empty tag as an empty value, and the broker reads it as no tag.
    sound = (starts < middle) & (middle + 1 < item_ends)
    starts, middle, item_ends, bad_starts = starts[sound], middle[sound], item_ends[sound], starts[bad]
    firsts = np.searchsorted(starts, offsets)
    malformed = np.searchsorted(offsets, bad_starts, "right") - 1
    return Items(_records_of(firsts), starts, middle, middle + 1, item_ends, malformed, firsts)


def _split_alternating(text: Bytes, offsets: Ints) -> Items | None:
    """Split texts that strictly alternate name 01 value 02; None if any does not."""
    separators = np.flatnonzero(text <= PROPERTY_SEPARATOR)
    middles, ends = separators[0::2], separators[1::2]
    lasts = offsets[1:][offsets[1:] > offsets[:-1]] - 1
    if len(middles) != len(ends) or (text[middles] != NAME_VALUE_SEPARATOR).any():
        return None
    if (text[ends] != PROPERTY_SEPARATOR).any() or (text[lasts] != PROPERTY_SEPARATOR).any():
        return None
    starts = np.concatenate(([0], ends[:-1] + 1)) if len(ends) else ends
    if not ((starts < middles) & (middles + 1 < ends)).all():
        return None
    firsts = np.searchsorted(starts, offsets)
    return Items(_records_of(firsts), starts, middles, middles + 1, ends, starts[:0], firsts)


def _records_of(firsts: Ints) -> Ints:
    counts = np.diff(firsts)
    return np.repeat(np.arange(len(counts)), counts)


_WORD = np.dtype("<u8")


# Masks that keep the bytes of a name of 0 to 8 bytes; longer names fill the word.
_MASKS = np.array([(1 << 8 * size) - 1 for size in range(_WORD.itemsize + 1)], np.uint64)


def _cut(words: NDArray[np.uint64], lengths: Ints) -> NDArray[np.uint64]:
    """Return the words with the bytes after their names cleared."""
    return words & _MASKS[np.minimum(lengths, _WORD.itemsize)]


def _hash_names(heads: NDArray[np.uint64], lengths: Ints) -> NDArray[np.uint64]:
    """Return a hash per name, from its length and its first eight bytes."""
    return heads * FIBONACCI + lengths.astype(np.uint64)


class PropertyTexts:
    """The properties of n records, for lookups by name; no Python object per item."""

    def __init__(self, text: Bytes, offsets: Ints) -> None:
        """`text` and `offsets` as in `split_properties`."""
        self.raw: Bytes = np.concatenate((text, np.zeros(_WORD.itemsize, np.uint8)))
        self.items = split_properties(text, offsets)
        words = np.ndarray((len(text) + 1,), _WORD, self.raw, 0, (1,))
        lengths = self.items.name_ends - self.items.name_starts
        # Length and first eight bytes of each name, and a hash of both.
        self._lengths, self._heads = lengths, _cut(words[self.items.name_starts], lengths)
        self._names = _hash_names(self._heads, lengths)

    def find(self, name: bytes) -> tuple[Ints, Ints, Ints]:
        """Return (record, value start, value end) of each record with the property, ascending.

        The last value of a repeated name counts. Positions are in `self.raw`.
        """
        head = np.frombuffer(name[: _WORD.itemsize].ljust(_WORD.itemsize, b"\0"), _WORD)
        found = np.flatnonzero(self._names == _hash_names(head, np.array([len(name)]))[0])
        found = found[(self._lengths[found] == len(name)) & (self._heads[found] == head[0])]
        rest = np.frombuffer(name[_WORD.itemsize :], np.uint8)
        if len(rest) and len(found):
            begins = self.items.name_starts[found] + _WORD.itemsize
            found = found[(self.raw[begins[:, None] + np.arange(len(rest))] == rest).all(axis=1)]
        record = self.items.record[found]
        if len(record) > 1:
            last = np.append(record[1:] != record[:-1], True)
            found, record = found[last], record[last]
        return record, self.items.value_starts[found], self.items.value_ends[found]
