"""The entries of a DLedger file as its recovery follows them: heads and sizes, no checksum, not the records in them.

    |head|record..|head|record..|blank      |
     magic 1, size, index + 1, term not falling, position = its own

Source: DLedgerMmapFileStore#recover; library dledger 0.1 to 0.3.2.
"""

# mypy: disable-error-code="no-any-return"

from typing import Final, NamedTuple

import numpy as np

from rmqinspect.codec.kernels import Bytes, IntsOut, int32_at, int64_at, kernel
from rmqinspect.codec.layout import place_of
from rmqinspect.schemas.dledger import ENTRY_MAGIC_BLANK, ENTRY_MAGICS, EntryHead
from rmqinspect.store.model import Segment
from rmqinspect.store.reader import open_file

HEAD: Final[int] = EntryHead.sizeof()
_WINDOW = 4 << 20
_MAGIC, _SIZE, _INDEX, _TERM, _POSITION, _BODY_SIZE = (
    place_of(EntryHead, name) for name in ("magic", "size", "index", "term", "position", "body_size")
)
MAGIC: Final = ENTRY_MAGICS[0]  # the recovery refuses all others, those of later versions of the library, too
_LAST_INDEX, _LAST_TERM, _STOP = range(3)  # of the state
_MORE, _BLANK, _ZERO, _BAD_MAGIC, _BAD_SIZE, _BAD_PLACE, _BAD_ORDER = range(7)  # why following stopped
_REASONS = {
    _ZERO: "zero",
    _BAD_MAGIC: "entry_magic",
    _BAD_SIZE: "entry_size",
    _BAD_PLACE: "entry_place",
    _BAD_ORDER: "entry_order",
}


class Entries(NamedTuple):
    """How far the entries of one file go."""

    end: int  # position behind the last good one
    is_blank: bool  # a blank stands there: they go on in the next file
    reason: str  # a code of `check.REASONS`, where nothing good stands
    last: tuple[int, int]  # index and term of the last one, -1 without any


@kernel
def _follow(raw: Bytes, filled: int, first: int, base: int, left: int, state: IntsOut) -> int:
    """Follow entries from `first` on; return where that stopped. `left`: bytes of the file from raw[0] on."""
    at = first
    while at + HEAD <= filled:
        magic, size = int32_at(raw, at + _MAGIC), int32_at(raw, at + _SIZE)
        index, term = int64_at(raw, at + _INDEX), int64_at(raw, at + _TERM)
        if magic == ENTRY_MAGIC_BLANK:
            state[_STOP] = _BLANK
            return at
        if size == 0:
            state[_STOP] = _ZERO
            return at
        if int64_at(raw, at + _POSITION) != base + at:
            state[_STOP] = _BAD_PLACE
            return at
        if int32_at(raw, at + _BODY_SIZE) != size - HEAD or size <= HEAD or size > left - at:
            state[_STOP] = _BAD_SIZE
            return at
        if magic != MAGIC:
            state[_STOP] = _BAD_MAGIC
            return at
        if (state[_LAST_INDEX] != -1 and index - 1 != state[_LAST_INDEX]) or term < state[_LAST_TERM]:
            state[_STOP] = _BAD_ORDER
            return at
        state[_LAST_INDEX] = index
        state[_LAST_TERM] = term
        at += size
    state[_STOP] = _MORE
    return at


def follow_entries(segment: Segment, last: tuple[int, int] = (-1, -1)) -> Entries:
    """Follow the entries of a file from its start; `last`: index and term of the entry before it.

    :raises Unreadable: the file cannot be opened, or the system refuses to read it.
    """
    state = np.array([*last, _MORE], np.int64)
    position = 0
    with open_file(segment) as file:
        while True:
            raw = file.read(position, _WINDOW)
            if len(raw) < HEAD:
                # An entry needs its whole head; a blank needs only its magic.
                blank = raw[_MAGIC : _MAGIC + 4] == ENTRY_MAGIC_BLANK.to_bytes(4, "big", signed=True)
                state[_STOP] = _BLANK if blank else _ZERO if not any(raw) else _BAD_SIZE
                break
            base, left = segment.base + position, file.size - position
            position += _follow(np.frombuffer(raw, np.uint8), len(raw), 0, base, left, state)
            if state[_STOP] != _MORE:
                break
    index, term, stop = state.tolist()
    return Entries(position, stop == _BLANK, _REASONS.get(stop, ""), (index, term))
