"""Java's string hash of many texts at once, for index keys and tags.

    hash(c[0] … c[n-1]) = sum of c[i] * 31^(n-1-i), modulo 2^32
    hash(a + b)         = hash(a) * 31^len(b) + hash(b)

By the first line, texts of equal length are hashed by one matrix-vector product. By the second, the
prefix `topic#` of index keys is hashed once per topic instead of once per key.

`codec.hashes` does the same for one value; a test compares the two.
"""

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmqinspect.codec.arrays import Bytes, Ints
from rmqinspect.codec.hashes import java_string_hash

Hashes = NDArray[np.int32]

# Bytes of text per step: as 32-bit integers they take 1 MiB, which fits in L2.
_BLOCK = 1 << 18
_ASCII_END = 0x80
_TABLE_SIZE = 4096


class TextHashes(NamedTuple):
    """Hashes of n texts, and their lengths in UTF-16 code units, as in Java."""

    hashes: Hashes
    lengths: Ints


def java_string_hashes(raw: Bytes, starts: Ints, ends: Ints) -> Hashes:
    """Return Java's `String.hashCode()` of the UTF-8 texts [starts, ends) of `raw`, shape (n,)."""
    return hash_texts(raw, starts, ends).hashes


def hash_texts(raw: Bytes, starts: Ints, ends: Ints) -> TextHashes:
    """Return the hashes and the UTF-16 lengths of the UTF-8 texts [starts, ends) of `raw`.

    The ranges may be in any order and overlap. Invalid UTF-8 becomes U+FFFD, as in the broker.
    """
    lengths = ends - starts
    units = lengths.copy()
    hashes = np.zeros(len(starts), np.int32)
    wide = []  # numbers of texts that are not ASCII
    for which in _groups(lengths):
        block = _gather(raw, starts[which], int(lengths[which[0]]))
        hashes[which] = _hash_block(block)
        if block.max() >= _ASCII_END:
            wide += which[block.max(axis=1) >= _ASCII_END].tolist()
    decoded: dict[bytes, tuple[int, int]] = {}
    for at in wide:
        text = bytes(raw[starts[at] : ends[at]])
        if text not in decoded:
            decoded[text] = _hash_decoded(text)
        hashes[at], units[at] = decoded[text]
    return TextHashes(hashes, units)


def powers_of_31(lengths: Ints) -> NDArray[np.uint32]:
    """Return 31^length modulo 2^32 for each length, shape (n,); lengths are not negative."""
    longest = int(lengths.max(initial=0))
    if longest < _TABLE_SIZE:
        return _power_table()[lengths]
    powers, square = np.ones(len(lengths), np.uint32), 31
    for bit in range(longest.bit_length()):
        powers *= np.where(lengths >> bit & 1, np.uint32(square), np.uint32(1))
        square = square * square & 0xFFFFFFFF
    return powers


@cache
def _power_table() -> NDArray[np.uint32]:
    """Return the powers for all common lengths."""
    powers = np.full(_TABLE_SIZE, 31, np.uint32)
    powers[0] = 1
    return np.multiply.accumulate(powers, dtype=np.uint32)


def joined_hashes(prefix_hashes: int | Hashes, hashes: Hashes, lengths: Ints) -> Hashes:
    """Return the hashes of prefix + text; `hashes` and UTF-16 `lengths` are those of the texts.

    `prefix_hashes` is one hash, or one per text.
    """
    prefix = np.asarray(prefix_hashes, np.int32).astype(np.uint32)
    return (prefix * powers_of_31(lengths) + hashes.astype(np.uint32)).view(np.int32)


def index_hashes(hashes: Hashes) -> Hashes:
    """Return the index hashes of texts from their Java hashes. Source: IndexFile#indexKeyHashMethod."""
    # The absolute value of the smallest int is itself, in numpy as in Java; the broker makes it 0.
    return np.maximum(np.abs(hashes), np.int32(0))


def _groups(lengths: Ints) -> Iterator[Ints]:
    """Yield numbers of texts of equal length, at most a block at a time; skips empty texts."""
    if not len(lengths):
        return
    if (lengths == lengths[0]).all():  # typical of ids
        groups = [np.arange(len(lengths))]
    else:
        order = np.argsort(lengths, kind="stable")
        groups = np.split(order, np.flatnonzero(np.diff(lengths[order])) + 1)
    for group in groups:
        length = int(lengths[group[0]])
        rows = max(1, _BLOCK // max(length, 1))
        for first in range(0, len(group) if length else 0, rows):
            yield group[first : first + rows]


def _gather(raw: Bytes, starts: Ints, length: int) -> Bytes:
    """Return `length` bytes from each start, shape (n, length)."""
    text = np.dtype((np.void, length))
    view = np.ndarray((len(raw) - length + 1,), text, np.ascontiguousarray(raw), 0, (1,))
    return view[starts].view(np.uint8).reshape(len(starts), length)


def _hash_block(block: Bytes) -> Hashes:
    """Return the hashes of the rows of `block`, shape (n, length), as texts of one byte per character."""
    hashes = np.zeros(len(block), np.int32)
    for first in range(0, block.shape[1], _BLOCK):
        piece = block[:, first : first + _BLOCK]
        length = piece.shape[1]
        powers = powers_of_31(np.arange(length - 1, -1, -1))
        sums = np.einsum("ij,j->i", piece.astype(np.uint32), powers).view(np.int32)
        hashes = joined_hashes(hashes, sums, np.full(len(block), length))
    return hashes


def _hash_decoded(raw: bytes) -> tuple[int, int]:
    """Return hash and UTF-16 length of one text that is not ASCII."""
    text = raw.decode("utf-8", "replace")
    return java_string_hash(text), len(text) + sum(character > "\uffff" for character in text)
