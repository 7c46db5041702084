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
from rmqinspect.loops.arrays import Bytes, Int32s
from rmqinspect.loops.text import (
    copy_laid_out,
    fill_slots,
    lay_out,
    lay_out_values,
    number_keys,
    search_ranges,
    write_hashes,
    write_numbers,
)
from rmqinspect.loops.text_rows import KEY_COLUMNS, KEY_INTEGER, KEY_SIZE, KEY_TEXT
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
    size = lay_out(len(content), np.ascontiguousarray(starts), np.ascontiguousarray(ends), begins, offsets)
    copied = np.empty(size, np.uint8)
    copy_laid_out(content, begins, offsets, copied)
    return copied, offsets


def take_values(values: "pa.Array", which: Int32s) -> "pa.Array":
    """Return the binary values or texts with some indices, null for a negative one; `values` has no nulls."""
    import pyarrow as pa

    content, borders = content_of(values)
    begins, offsets = np.empty(len(which), np.int64), np.empty(len(which) + 1, np.int32)
    copied = np.empty(lay_out_values(len(content), borders, which, begins, offsets), np.uint8)
    copy_laid_out(content, begins, offsets, copied)
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


def containing(raw: Bytes, starts: Ints, ends: Ints, texts: Sequence[bytes]) -> Bools:
    """Return, shape (n,), whether each of the ranges [starts, ends) of a buffer contains one of some texts.

    What is not inside of the buffer is left out. Every range contains an empty text.
    """
    found = np.zeros(len(starts), np.uint8)
    borders = np.cumsum([0, *map(len, texts)])
    joined = np.frombuffer(b"".join(texts), np.uint8)
    search_ranges(raw, np.ascontiguousarray(starts), np.ascontiguousarray(ends), joined, borders, found)
    return found.view(np.bool_)


def read_numbers(raw: Bytes, starts: Ints, ends: Ints) -> tuple[Ints, Ints]:
    """Return (which range, its number) for each number in some ranges, as far as they are inside of the buffer.

    `12`, `1,0,` and `5,` are such lists; nothing between two commas is no number. What is no number, is negative or
    above 2^63 - 9 is NOT_A_NUMBER.
    """
    starts, ends = np.ascontiguousarray(starts), np.ascontiguousarray(ends)
    room = (int(np.clip(ends - starts, 0, len(raw)).sum()) + len(starts)) // 2 + 1  # each takes a digit and a comma
    ranges, numbers = np.empty(room, np.int64), np.empty(room, np.int64)
    count = write_numbers(raw, starts, ends, ranges, numbers)
    return ranges[:count].copy(), numbers[:count].copy()


_FIRST, _SECOND = (1 << 30 | int.from_bytes(os.urandom(3), "big") for _ in range(2))  # the bases

# For `mixed`: odd, and without a pattern in their bits.
_FACTOR, _STEP = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9)
_SHIFT = np.uint64(29)


def hash_texts(raw: Bytes, starts: Ints, ends: Ints, before: Ints | None = None) -> Ints:
    """Return the hash of each text `raw[start:end]`, that goes on from the hash `before`; of an empty text it is 0."""
    hashes = np.zeros(len(starts), np.int64) if before is None else before.copy()
    write_hashes(raw, np.ascontiguousarray(starts), np.ascontiguousarray(ends), _FIRST, _SECOND, hashes)
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

_FEW = 64  # keys, at first
_LONGEST = 1 << 15  # bytes of most keys: topics and properties have a length of 16 bits

# Hashes differ from process to process, so that nobody can write a store whose values all collide.
_KEY_SEED = int.from_bytes(os.urandom(4), "big")


class Numbering:
    """The numbers of the keys seen so far."""

    def __init__(self) -> None:
        self._seed = _KEY_SEED  # goes along to other processes
        self._used = np.zeros(2, np.int64)  # keys, bytes of names
        self._keys = np.zeros((_FEW, KEY_COLUMNS), np.int64)
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
        return self._keys[: len(self), KEY_TEXT]

    @property
    def sizes(self) -> Ints:
        """The number of bytes of each key."""
        return self._keys[: len(self), KEY_SIZE]

    @property
    def integers(self) -> Ints:
        """The integer of each key."""
        return self._keys[: len(self), KEY_INTEGER]

    def number(self, raw: Bytes, starts: Ints, ends: Ints, integers: Ints) -> Ints:
        """Return the number of each key `raw[start:end]`, integer; adds those not seen before."""
        numbers = np.empty(len(starts), np.int64)
        starts, ends, integers = (np.ascontiguousarray(column) for column in (starts, ends, integers))
        done = 0
        while True:
            tables = self._slots, self._keys, self._names
            done = number_keys(self._seed, raw, starts, ends, integers, done, *tables, self._used, numbers)
            if done == len(starts):
                return numbers
            self._grow(int(ends[done] - starts[done]))

    def number_of(self, other: "Numbering") -> Ints:
        """Return the number here of each key of another numbering; adds those not seen before."""
        return self.number(other.names, other.starts, other.starts + other.sizes, other.integers)

    def keys_from(self, first: int) -> list[Key]:
        """Return the keys from a number on."""
        rows = self._keys[first : len(self), KEY_TEXT:].tolist()
        return [(self._names[text : text + size].tobytes(), integer) for text, size, integer in rows]

    def _grow(self, size: int) -> None:
        """Double the table that is too small for one more key of this size."""
        if len(self) < len(self._keys):
            self._names = np.concatenate((self._names, np.empty(len(self._names) + max(size, _LONGEST), np.uint8)))
            return
        self._keys = np.concatenate((self._keys, np.zeros_like(self._keys)))
        self._slots = np.zeros(2 * len(self._keys), np.int64)
        fill_slots(self._keys, len(self), self._slots)
