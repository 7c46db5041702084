"""Hashes of many byte ranges at once, to compare texts without a Python object for each."""

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rmqinspect.codec.arrays import Bytes, Ints

# Of the finalizer of MurmurHash3.
_MIX = np.uint64(0xFF51AFD7ED558CCD)
_MIX_2 = np.uint64(0xC4CEB9FE1A85EC53)
_SHIFT = np.uint64(33)
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
    value = (value ^ (value >> _SHIFT)) * _MIX
    value = (value ^ (value >> _SHIFT)) * _MIX_2
    return value ^ (value >> _SHIFT)
