"""The records of one window of commit log, as columns.

A `Records` holds the window's bytes and one row of numbers for each record (`commitlog.columns`), in log order.
Positions are bytes from the window's start.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rmqinspect.codec.arrays import Bools, Bytes, Ints
from rmqinspect.codec.kernels import CRC32
from rmqinspect.codec.lazy import lazy
from rmqinspect.codec.properties import Items, split_properties
from rmqinspect.commitlog import columns
from rmqinspect.commitlog.columns import COLUMNS, SLACK


class Records:
    """Columns of n records: each an array of shape (n,) in log order."""

    def __init__(self, raw: memoryview, base: int, rows: Ints) -> None:
        """Take a window whose first byte has physical offset `base`, `SLACK` bytes included, and rows of it."""
        self.raw = raw
        self.base = base
        self.rows = rows

    @classmethod
    def at(cls, raw: memoryview, base: int, starts: Ints) -> "Records":
        """Return what stands at some positions, whatever it is; `raw` goes on for SLACK bytes behind each."""
        rows = np.empty((len(starts), len(COLUMNS)), np.int64)
        columns.read_records(np.frombuffer(raw, np.uint8), starts, rows)
        return cls(raw, base, rows)

    @classmethod
    def of_one(cls, raw: bytes, physical_offset: int) -> "Records":
        """Return the record at the beginning of some bytes; `physical_offset` is that of the first one."""
        return cls.at(memoryview(raw + bytes(SLACK)), physical_offset, np.zeros(1, np.int64))

    def __len__(self) -> int:
        return len(self.rows)

    def select(self, which: Any) -> "Records":
        """Return the records that a slice, a mask or an array of indexes picks."""
        return Records(self.raw, self.base, self.rows[which])

    @lazy
    def bytes(self) -> Bytes:
        """The window, SLACK bytes included."""
        return np.frombuffer(self.raw, np.uint8)

    def gather(self, dtype: np.dtype[Any], starts: Ints) -> NDArray[Any]:
        """Return one struct of `dtype` from each position."""
        return self.view(np.dtype((np.void, dtype.itemsize)))[starts].view(dtype)

    def view(self, dtype: np.dtype[Any]) -> NDArray[Any]:
        """Return the window as values of `dtype` at every byte position, unaligned."""
        return np.ndarray((len(self.raw) - dtype.itemsize + 1,), dtype, self.raw, 0, (1,))

    # --- columns --------------------------------------------------------------------------------

    def field(self, name: str) -> Ints:
        """Return one of COLUMNS; fields have the names of the layout, ports are `born_port` and `store_port`."""
        return self.rows[:, COLUMNS.index(name)]

    @property
    def starts(self) -> Ints:
        """Where each record begins."""
        return self.rows[:, columns.START]

    @property
    def ends(self) -> Ints:
        """Where each record ends by its TOTALSIZE."""
        return self.rows[:, columns.END]

    @property
    def total_size(self) -> Ints:
        """TOTALSIZE."""
        return self.rows[:, columns.TOTAL_SIZE]

    @property
    def magic(self) -> Ints:
        """MAGICCODE."""
        return self.rows[:, columns.MAGIC]

    @property
    def physical_offset(self) -> Ints:
        """The field PHYSICALOFFSET, which in an intact record equals `base + starts`."""
        return self.rows[:, columns.PHYSICAL_OFFSET]

    @property
    def sys_flag(self) -> Ints:
        """SYSFLAG, which also determines the size of the head."""
        return self.rows[:, columns.SYS_FLAG]

    @property
    def body_size(self) -> Ints:
        """BODYLEN; negative only in a damaged record."""
        return self.rows[:, columns.BODY_SIZE]

    @property
    def body_starts(self) -> Ints:
        """Where each body begins: behind the head, whose size depends on the hosts."""
        return self.rows[:, columns.BODY_START]

    @property
    def body_ends(self) -> Ints:
        """Where each body ends and the topic length stands. A negative length counts as 0."""
        return self.rows[:, columns.BODY_END]

    @property
    def topic_starts(self) -> Ints:
        """Where each topic begins."""
        return self.rows[:, columns.TOPIC_START]

    @property
    def topic_ends(self) -> Ints:
        """Where each topic ends and the length of the properties stands."""
        return self.rows[:, columns.TOPIC_END]

    @property
    def properties_starts(self) -> Ints:
        """Where the properties begin."""
        return self.rows[:, columns.PROPERTIES_START]

    @property
    def properties_ends(self) -> Ints:
        """Where the properties end by their own length. A negative length counts as 0."""
        return self.rows[:, columns.PROPERTIES_END]

    @lazy
    def properties(self) -> Items:
        """The properties of all records, as positions in the window."""
        return split_properties(self.bytes, self.properties_starts, self.properties_ends)

    # --- judgement ------------------------------------------------------------------------------

    def are_sound(self, filled: int) -> Bools:
        """Return whether each record has a magic, a plausible size, and lengths that add up to it.

        `filled`: the window's valid bytes; a record that goes on behind them is not sound.
        """
        sound = np.empty(len(self), np.int64)
        columns.judge_soundness(self.rows, filled, sound)
        ok: Bools = sound != 0
        return ok

    @lazy
    def body_crcs(self) -> Ints:
        """The CRC-32 of each stored body, masked as the broker stores it."""
        crcs = np.empty(len(self), np.int64)
        columns.body_crcs(CRC32, self.bytes, self.rows, crcs)
        return crcs

    @lazy
    def body_crc_ok(self) -> Bools:
        """Whether BODYCRC is right. The broker does not test it for an empty body."""
        ok: Bools = self.rows[:, columns.BODY_CRC] == self.body_crcs
        return ok

    @lazy
    def record_crcs(self) -> Ints:
        """NO_CRC, WRONG_CRC or RIGHT_CRC of `commitlog.columns`, for the property `__CRC32#` (5.2.0 and later)."""
        found = np.empty(len(self), np.int64)
        columns.record_crcs(CRC32, self.bytes, self.rows, found)
        return found
