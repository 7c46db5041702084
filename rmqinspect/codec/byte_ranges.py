"""Byte ranges of a buffer, many at once: copied into columns, searched, read as numbers, hashed, numbered.

Copied one behind the other they are binary columns of Arrow:

raw         ...|abc|..|de|....|f|...
starts         ^      ^       ^         ends behind each
content     |abc|de|f|
offsets     0   3  5 6                  int32, one more than ranges

Hashes of texts in records are long enough to stand for them: a few bytes in place of each of millions of ids.

    hash(a + b) = goes on with b from hash(a)

Two polynomials modulo a prime, one in the upper half. Their bases differ from process to process, so that nobody can
write a store in which two texts share a hash. Of a million texts of 60 bytes, two share one by chance in less than one
of a thousand runs.

`Numbering` numbers distinct values in the order in which they appear: topics and queues, tags, hosts. A key is some
bytes and an integer. A table holds one row for each, found by a hash in a table of slots, with the bytes compared:

    slots     | 0 | 2 | 0 | 1 | ...      0, or a key's number + 1; the next free slot where several collide
    keys      | hash, start in `names`, size, integer | ...
    names     bytes of all keys, one behind the other
"""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rmqinspect.codec.arrays import Bools, Ints
from rmqinspect.codec.kernels import (
    Bytes,
    BytesOut,
    Int32s,
    Int32sOut,
    IntsOut,
    Table,
    TableOut,
    copy_bytes,
    find_bytes,
    inlined,
    kernel,
    same_bytes,
    uint32_at,
)
from rmqinspect.text import is_utf8

if TYPE_CHECKING:
    import pyarrow as pa

_BEYOND_ASCII = 0x80
_MARK, _FOLLOWING = 0xC0, 0x80  # the upper bits of a character's second byte, and of all behind it


def take_ranges(raw: Any, starts: Ints, ends: Ints) -> "pa.Array":
    """Return the byte ranges [starts, ends) of a buffer as a binary array, together below 2^31 bytes.

    The bytes are copied. What is not inside of the buffer is left out.
    """
    import pyarrow as pa  # with its first use: most commands that walk the log make no column

    content, offsets = copy_ranges(raw, starts, ends)
    return pa.Array.from_buffers(pa.binary(), len(starts), [None, pa.py_buffer(offsets), pa.py_buffer(content)])


def copy_ranges(raw: Any, starts: Ints, ends: Ints) -> tuple[Bytes, Int32s]:
    """Return the same bytes, one range behind the other, and the offsets of the ranges in them: shape (n + 1,)."""
    content = np.frombuffer(raw if raw is not None else b"", np.uint8)
    begins, offsets = np.empty(len(starts), np.int64), np.empty(len(starts) + 1, np.int32)
    size = _lay_out(len(content), np.ascontiguousarray(starts), np.ascontiguousarray(ends), begins, offsets)
    copied = np.empty(size, np.uint8)
    _copy(content, begins, offsets, copied)
    return copied, offsets


def take_values(values: "pa.Array", which: Int32s) -> "pa.Array":
    """Return the binary values or texts with some indices, null for a negative one; `values` has no nulls."""
    import pyarrow as pa

    content, borders = content_of(values)
    begins, offsets = np.empty(len(which), np.int64), np.empty(len(which) + 1, np.int32)
    copied = np.empty(_lay_out_values(len(content), borders, which, begins, offsets), np.uint8)
    _copy(content, begins, offsets, copied)
    absent = which < 0
    nulls = pa.py_buffer(np.packbits(~absent, bitorder="little")) if absent.any() else None
    return pa.Array.from_buffers(values.type, len(which), [nulls, pa.py_buffer(offsets), pa.py_buffer(copied)])


def content_of(values: "pa.Array") -> tuple[Bytes, Int32s]:
    """Return the bytes of a binary array, not copied, and the offsets of its n values in them: shape (n + 1,)."""
    _, offsets, content = values.buffers()
    borders = np.frombuffer(offsets or bytes(4), np.int32)[values.offset :][: len(values) + 1]
    return np.frombuffer(content or b"", np.uint8), borders


def are_utf8(content: Bytes, offsets: Int32s) -> Bools:
    """Return which of n texts that stand one behind the other are UTF-8; `offsets` has shape (n + 1,)."""
    valid: Bools = np.ones(len(offsets) - 1, np.bool_)
    content = content[offsets[0] : offsets[-1]]
    if int(content.max(initial=0)) < _BEYOND_ASCII:
        return valid
    # All together are UTF-8: so is each, if none begins inside of a character.
    begins = offsets[:-1] - offsets[0]
    inside = content[begins[begins < len(content)]] & _MARK == _FOLLOWING
    if inside.any() or not is_utf8(content.data):
        ends = offsets[1:] - offsets[0]
        texts = zip(begins.tolist(), ends.tolist(), strict=True)
        valid[:] = [is_utf8(content[begin:end].data) for begin, end in texts]
    return valid


@kernel
def _lay_out(size: int, starts: Ints, ends: Ints, begins: IntsOut, offsets: Int32sOut) -> int:
    """Write where each range begins in a buffer of a size, and where its copy does; return the size of all copies."""
    offset = 0  # at most 2^31, as the caller promises
    for number in range(len(starts)):
        begin = min(max(starts[number], 0), size)
        begins[number] = begin
        offsets[number] = offset
        offset += max(min(ends[number], size) - begin, 0)
    offsets[len(starts)] = offset
    return offset


@kernel
def _lay_out_values(size: int, borders: Int32s, which: Int32s, begins: IntsOut, offsets: Int32sOut) -> int:
    """The same for some of the values of a column; value i is at [borders[i], borders[i + 1])."""
    offset = 0
    for number in range(len(which)):
        value = which[number]
        begins[number] = 0
        offsets[number] = offset
        if 0 <= value < len(borders) - 1:
            begins[number] = min(max(borders[value], 0), size)
            offset += max(min(borders[value + 1], size) - begins[number], 0)
    offsets[len(which)] = offset
    return offset


@kernel
def _copy(raw: Bytes, starts: Ints, offsets: Int32s, out: BytesOut) -> None:
    """Copy the ranges laid out."""
    for number in range(len(starts)):
        start, at = starts[number], offsets[number]
        size = offsets[number + 1] - at
        if start >= 0 and at >= 0 and size > 0 and size <= len(raw) - start and size <= len(out) - at:
            copy_bytes(raw, start, start + size, out, at)


def containing(raw: Bytes, starts: Ints, ends: Ints, texts: Sequence[bytes]) -> Bools:
    """Return, shape (n,), whether each of the ranges [starts, ends) of a buffer contains one of some texts.

    What is not inside of the buffer is left out. Every range contains an empty text.
    """
    found = np.zeros(len(starts), np.uint8)
    borders = np.cumsum([0, *map(len, texts)])
    joined = np.frombuffer(b"".join(texts), np.uint8)
    _search(raw, np.ascontiguousarray(starts), np.ascontiguousarray(ends), joined, borders, found)
    return found.view(np.bool_)


@kernel
def _search(raw: Bytes, starts: Ints, ends: Ints, texts: Bytes, borders: Ints, found: BytesOut) -> None:
    """Write 1 for each range that contains a text; text i is at [borders[i], borders[i + 1]) of `texts`."""
    for row in range(len(starts)):
        start = min(max(starts[row], 0), len(raw))
        end = min(max(ends[row], start), len(raw))
        text = 0
        while found[row] == 0 and text + 1 < len(borders):
            if find_bytes(raw, start, end, texts, borders[text], borders[text + 1]) >= 0:
                found[row] = 1
            text += 1


NOT_A_NUMBER = -1

_COMMA, _ZERO = ord(","), ord("0")
_LARGEST_TENTH = (2**63 - 1 - 9) // 10  # ten times this and a digit stay within 63 bits


def read_numbers(raw: Bytes, starts: Ints, ends: Ints) -> tuple[Ints, Ints]:
    """Return (which range, its number) for each number in some ranges, as far as they are inside of the buffer.

    `12`, `1,0,` and `5,` are such lists; nothing between two commas is no number. What is no number, is negative or
    above 2^63 - 9 is NOT_A_NUMBER.
    """
    starts, ends = np.ascontiguousarray(starts), np.ascontiguousarray(ends)
    room = (int(np.clip(ends - starts, 0, len(raw)).sum()) + len(starts)) // 2 + 1  # each takes a digit and a comma
    ranges, numbers = np.empty(room, np.int64), np.empty(room, np.int64)
    count = _read(raw, starts, ends, ranges, numbers)
    return ranges[:count].copy(), numbers[:count].copy()


@kernel
def _read(raw: Bytes, starts: Ints, ends: Ints, ranges: IntsOut, numbers: IntsOut) -> int:
    """Write the numbers; return how many there are."""
    count = 0
    for row in range(len(starts)):
        at, end = max(starts[row], 0), min(ends[row], len(raw))
        while at < end:
            first, number = at, 0
            while at < end and raw[at] != _COMMA:
                digit = raw[at] - _ZERO
                if number >= 0:
                    number = number * 10 + digit if 0 <= digit <= 9 and number <= _LARGEST_TENTH else NOT_A_NUMBER
                at += 1
            if first < at and count < len(numbers):
                ranges[count], numbers[count] = row, number
                count += 1
            at += 1
    return count


_HALF = 31  # bits
_PRIME = (1 << _HALF) - 1  # a product of two remainders stays within 62 bits
_FIRST, _SECOND = (1 << 30 | int.from_bytes(os.urandom(3), "big") for _ in range(2))  # the bases

# For `mixed`: odd, and without a pattern in their bits.
_FACTOR, _STEP = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9)
_SHIFT = np.uint64(29)


def hash_texts(raw: Bytes, starts: Ints, ends: Ints, before: Ints | None = None) -> Ints:
    """Return the hash of each text `raw[start:end]`, that goes on from the hash `before`; of an empty text it is 0."""
    hashes = np.zeros(len(starts), np.int64) if before is None else before.copy()
    _hash(raw, np.ascontiguousarray(starts), np.ascontiguousarray(ends), _FIRST, _SECOND, hashes)
    return hashes


def hash_of(text: bytes, before: int = 0) -> int:
    """Return the hash of one text."""
    raw = np.frombuffer(text, np.uint8)
    return int(hash_texts(raw, np.zeros(1, np.int64), np.array([len(text)]), np.array([before]))[0])


def mixed(*parts: Ints) -> Ints:
    """Return one number for each row of several columns; it depends on their order."""
    value = np.zeros(len(parts[0]), np.uint64)
    for part in parts:
        value = (value ^ part.astype(np.uint64)) * _FACTOR + _STEP  # modulo 2^64
        value ^= value >> _SHIFT
    return value.view(np.int64)


@kernel
def _hash(raw: Bytes, starts: Ints, ends: Ints, first_base: int, second_base: int, hashes: IntsOut) -> None:
    for row in range(len(starts)):
        first, second = hashes[row] & _PRIME, hashes[row] >> _HALF
        for at in range(max(starts[row], 0), min(ends[row], len(raw))):
            first = (first * first_base + raw[at] + 1) % _PRIME
            second = (second * second_base + raw[at] + 1) % _PRIME
        hashes[row] = second << _HALF | first


# Of the finalizer of MurmurHash3.
_MIX = np.uint64(0xFF51AFD7ED558CCD)
_MIX_2 = np.uint64(0xC4CEB9FE1A85EC53)
_MIX_SHIFT = np.uint64(33)
_WORD = 8  # bytes
# Hashes differ from process to process, so that nobody can write a store whose values collide.
_SEED = np.uint64(int.from_bytes(os.urandom(_WORD), "big"))


def hash_ranges(raw: Bytes, starts: Ints, ends: Ints) -> NDArray[np.uint64]:
    """Return a hash of each range [starts, ends) of a buffer, 64 bits; 0 of an empty range, and of no other.

    Equal bytes have equal hashes in one process; different ones differ, with a chance of 2^-64 otherwise. Ranges lie
    inside of the buffer, which goes on for 7 bytes behind them.
    """
    sizes: Ints = np.maximum(ends - starts, 0)
    hashed = sizes.astype(np.uint64) ^ _SEED
    words: NDArray[Any] = np.ndarray((max(len(raw) - _WORD + 1, 0),), "<u8", raw.data, 0, (1,))
    left = np.flatnonzero(sizes)
    done = 0
    while len(left):  # once per word of the longest range
        rest = np.minimum(sizes[left] - done, _WORD).astype(np.uint64)
        word = words[starts[left] + done] << (np.uint64(64) - rest * np.uint64(8))
        hashed[left] = _mixed(hashed[left] ^ word)
        done += _WORD
        left = left[sizes[left] > done]
    hashed[(hashed == 0) & (sizes > 0)] = 1
    hashed[sizes == 0] = 0
    return hashed


def join_hashes(*hashes: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return one hash of several, in their order."""
    joined = np.zeros_like(hashes[0])
    for one in hashes:
        joined = _mixed(joined) ^ one
    return joined


def _mixed(value: NDArray[np.uint64]) -> NDArray[np.uint64]:
    value = (value ^ (value >> _MIX_SHIFT)) * _MIX
    value = (value ^ (value >> _MIX_SHIFT)) * _MIX_2
    return value ^ (value >> _MIX_SHIFT)


Key = tuple[bytes, int]

# Columns of the table of keys.
_HASH, _TEXT, _SIZE, _INTEGER = range(4)
_WIDTH = 4
_FEW = 64  # keys, at first
_LONGEST = 1 << 15  # bytes of most keys: topics and properties have a length of 16 bits

# Hashes differ from process to process, so that nobody can write a store whose values all collide.
_KEY_SEED = int.from_bytes(os.urandom(4), "big")
_KEY_FACTOR = 0x5BD1E995  # odd, and below 2^31: a product with 32 bits stays within 63
_32_BITS = 0xFFFFFFFF


@inlined
def _mix_in(value: int, more: int) -> int:
    """Return 32 bits of hash from those so far and a number."""
    value = ((value ^ more) * _KEY_FACTOR) & _32_BITS
    return value ^ (value >> 15)


@inlined
def _hash_of(raw: Bytes, start: int, end: int, integer: int, seed: int) -> int:
    """Return 32 bits of hash of a key, four bytes at a time; the last four may overlap others."""
    value = _mix_in(_mix_in(seed, (integer >> 32) & _32_BITS), (integer ^ ((end - start) << 16)) & _32_BITS)
    at = start
    if end - start < 4:
        while at < end:
            value = _mix_in(value, raw[at])
            at += 1
        return value
    while at + 4 < end:
        value = _mix_in(value, uint32_at(raw, at))
        at += 4
    return _mix_in(value, uint32_at(raw, end - 4))


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
        self._seed = _KEY_SEED  # goes along to other processes
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
