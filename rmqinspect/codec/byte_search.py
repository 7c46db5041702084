"""Which of many byte ranges contain a text: a search that needs no copy of them."""

from collections.abc import Sequence

import numpy as np

from rmqinspect.codec.arrays import Bools
from rmqinspect.codec.kernels import Bytes, BytesOut, Ints, find_bytes, kernel


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
