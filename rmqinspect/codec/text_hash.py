"""Hashes of texts in records, long enough to stand for them: a few bytes in place of each of millions of ids.

    hash(a + b) = goes on with b from hash(a)

Two polynomials modulo a prime, one in the upper half. Their bases differ from process to process, so that nobody can
write a store in which two texts share a hash. Of a million texts of 60 bytes, two share one by chance in less than one
of a thousand runs.
"""

import os

import numpy as np

from rmqinspect.codec.arrays import Ints
from rmqinspect.codec.kernels import Bytes, IntsOut, kernel

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
