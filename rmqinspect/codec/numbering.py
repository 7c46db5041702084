"""Numbers for distinct values, in the order in which they appear: of topics and queues, tags, hosts.

A key is some bytes and an integer. A table holds one row for each, found by a hash in a table of slots, with the
bytes compared:

    slots     | 0 | 2 | 0 | 1 | ...      0, or a key's number + 1; the next free slot where several collide
    keys      | hash, start in `names`, size, integer | ...
    names     bytes of all keys, one behind the other
"""

import os

import numpy as np

from rmqinspect.codec.arrays import Ints
from rmqinspect.codec.kernels import (
    Bytes,
    BytesOut,
    IntsOut,
    Table,
    TableOut,
    copy_bytes,
    inlined,
    kernel,
    same_bytes,
    uint32_at,
)

Key = tuple[bytes, int]

# Columns of the table of keys.
_HASH, _TEXT, _SIZE, _INTEGER = range(4)
_WIDTH = 4
_FEW = 64  # keys, at first
_LONGEST = 1 << 15  # bytes of most keys: topics and properties have a length of 16 bits

# Hashes differ from process to process, so that nobody can write a store whose values all collide.
_SEED = int.from_bytes(os.urandom(4), "big")
_FACTOR = 0x5BD1E995  # odd, and below 2^31: a product with 32 bits stays within 63
_32_BITS = 0xFFFFFFFF


@inlined
def _mixed(value: int, more: int) -> int:
    """Return 32 bits of hash from those so far and a number."""
    value = ((value ^ more) * _FACTOR) & _32_BITS
    return value ^ (value >> 15)


@inlined
def _hash_of(raw: Bytes, start: int, end: int, integer: int, seed: int) -> int:
    """Return 32 bits of hash of a key, four bytes at a time; the last four may overlap others."""
    value = _mixed(_mixed(seed, (integer >> 32) & _32_BITS), (integer ^ ((end - start) << 16)) & _32_BITS)
    at = start
    if end - start < 4:
        while at < end:
            value = _mixed(value, raw[at])
            at += 1
        return value
    while at + 4 < end:
        value = _mixed(value, uint32_at(raw, at))
        at += 4
    return _mixed(value, uint32_at(raw, end - 4))


@kernel
def _number(
    seed: int,
    raw: Bytes,
    starts: Ints,
    ends: Ints,
    integers: Ints,
    first: int,
    slots: IntsOut,
    keys: TableOut,
    names: BytesOut,
    used: IntsOut,
    numbers: IntsOut,
) -> int:
    """Write the number of each key from row `first` on; return the row where a table was too small.

    `used` holds how many keys there are, and how many bytes of names; at least half of the slots, whose number is a
    power of two, are free. What is not inside of `raw` is left out.
    """
    for row in range(first, len(starts)):
        start = min(max(starts[row], 0), len(raw))
        size, integer = max(min(ends[row], len(raw)) - start, 0), integers[row]
        hashed = _hash_of(raw, start, start + size, integer, seed)
        slot = hashed & (len(slots) - 1)
        while slots[slot] > 0:
            key = slots[slot] - 1
            alike = keys[key, _HASH] == hashed and keys[key, _INTEGER] == integer
            if alike and keys[key, _SIZE] == size and same_bytes(raw, start, names, keys[key, _TEXT], size):
                break
            slot = (slot + 1) & (len(slots) - 1)
        if slots[slot] == 0:
            key, text = used[0], used[1]
            if key == len(keys) or text + size > len(names):
                return row
            slots[slot] = key + 1
            copy_bytes(raw, start, start + size, names, text)
            keys[key, _HASH] = hashed
            keys[key, _TEXT] = text
            keys[key, _SIZE] = size
            keys[key, _INTEGER] = integer
            used[0], used[1] = key + 1, text + size
        numbers[row] = slots[slot] - 1
    return len(starts)


class Numbering:
    """The numbers of the keys seen so far."""

    def __init__(self) -> None:
        self._seed = _SEED  # goes along to other processes
        self._used = np.zeros(2, np.int64)  # keys, bytes of names
        self._keys = np.zeros((_FEW, _WIDTH), np.int64)
        self._names = np.empty(_FEW * 32, np.uint8)
        self._slots = np.zeros(2 * _FEW, np.int64)

    def __len__(self) -> int:
        return int(self._used[0])

    @property
    def names(self) -> Bytes:
        """The bytes of all keys."""
        return self._names[: self._used[1]]

    @property
    def starts(self) -> Ints:
        """Where the bytes of each key begin in `names`."""
        return self._keys[: len(self), _TEXT]

    @property
    def sizes(self) -> Ints:
        """The number of bytes of each key."""
        return self._keys[: len(self), _SIZE]

    @property
    def integers(self) -> Ints:
        """The integer of each key."""
        return self._keys[: len(self), _INTEGER]

    def number(self, raw: Bytes, starts: Ints, ends: Ints, integers: Ints) -> Ints:
        """Return the number of each key `raw[start:end]`, integer; adds those not seen before."""
        numbers = np.empty(len(starts), np.int64)
        starts, ends, integers = (np.ascontiguousarray(column) for column in (starts, ends, integers))
        done = 0
        while True:
            tables = self._slots, self._keys, self._names
            done = _number(self._seed, raw, starts, ends, integers, done, *tables, self._used, numbers)
            if done == len(starts):
                return numbers
            self._grow(int(ends[done] - starts[done]))

    def number_of(self, other: "Numbering") -> Ints:
        """Return the number here of each key of another numbering; adds those not seen before."""
        return self.number(other.names, other.starts, other.starts + other.sizes, other.integers)

    def keys_from(self, first: int) -> list[Key]:
        """Return the keys from a number on."""
        rows = self._keys[first : len(self), _TEXT:].tolist()
        return [(self._names[text : text + size].tobytes(), integer) for text, size, integer in rows]

    def _grow(self, size: int) -> None:
        """Double the table that is too small for one more key of this size."""
        if len(self) < len(self._keys):
            self._names = np.concatenate((self._names, np.empty(len(self._names) + max(size, _LONGEST), np.uint8)))
            return
        self._keys = np.concatenate((self._keys, np.zeros_like(self._keys)))
        self._slots = np.zeros(2 * len(self._keys), np.int64)
        _fill_slots(self._keys, len(self), self._slots)


@kernel
def _fill_slots(keys: Table, count: int, slots: IntsOut) -> None:
    """Write the numbers of the first keys into empty slots."""
    for key in range(min(count, len(keys))):
        slot = keys[key, _HASH] & (len(slots) - 1)
        while slots[slot] > 0:
            slot = (slot + 1) & (len(slots) - 1)
        slots[slot] = key + 1
