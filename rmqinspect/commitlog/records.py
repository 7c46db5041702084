"""The records of one window of commit log, as columns.

A `Records` holds the window's bytes and the indexes where records start. Each column is computed on
first use, for all records at once: heads in one gather, variable fields by arithmetic on positions.

    raw      ...|head····|body......|topic|properties|head····|...
    starts       ^                                    ^
    columns       total_size, magic, ...   body_starts, body_ends, topic_starts, ...

Positions are bytes from the window's start. Nothing is checked on the way: in a damaged record a column
holds what its bytes say, and reads never leave the window. `are_sound` tells which records to believe.
"""

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rmqinspect.codec.arrays import Bools, Ints
from rmqinspect.codec.layout import dtype_of
from rmqinspect.schemas import message
from rmqinspect.schemas.message import SysFlag

try:
    from isal.isal_zlib import crc32
except ImportError:  # no wheel for this machine: zlib's is three times slower
    from zlib import crc32


# Bytes behind the end of every window: the views below read a whole head from any index in it.
SLACK = 256

_FEW = 64  # records; for fewer, importing Arrow costs more than it saves
_LONG = 512  # bytes of a mean body; from here on copying costs more than slicing
_INLINE = 12  # bytes that an Arrow binary view holds itself

_HEADS = {hosts: dtype_of(head) for hosts, head in message.HEADS.items()}
_FRONT_FIELDS = frozenset(field.name for field in message.FRONT)
_INT32, _INT64, _INT16, _INT8 = (np.dtype(code) for code in (">i4", ">i8", ">i2", ">i1"))
_V6 = SysFlag.BORNHOST_V6 | SysFlag.STOREHOSTADDRESS_V6
_CRC32_NAME = int.from_bytes(message.CRC32_NAME, "big", signed=True)
_CRC32_LEAD = message.CRC32_NAME + bytes([message.NAME_VALUE_SEPARATOR])
_CRC32_END = bytes([message.PROPERTY_SEPARATOR])


class Records:
    """Columns of n records: each an array of shape (n,) in log order."""

    def __init__(self, raw: memoryview, base: int, starts: Ints) -> None:
        """Take a window whose first byte has physical offset `base`, `SLACK` bytes included."""
        self.raw = raw
        self.base = base
        self.starts = starts

    @classmethod
    def of_one(cls, raw: bytes, physical_offset: int) -> "Records":
        """Return the record at the beginning of some bytes; `physical_offset` is that of the first one."""
        return cls(memoryview(raw + bytes(SLACK)), physical_offset, np.zeros(1, np.int64))

    def __len__(self) -> int:
        return len(self.starts)

    def select(self, which: Any) -> "Records":
        """Return the records that an index, a slice or a mask picks."""
        return Records(self.raw, self.base, self.starts[which])

    def view(self, dtype: np.dtype[Any]) -> NDArray[Any]:
        """Return the window as values of `dtype` at every byte position, unaligned."""
        return np.ndarray((len(self.raw) - dtype.itemsize + 1,), dtype, self.raw, 0, (1,))

    def gather(self, dtype: np.dtype[Any], starts: Ints) -> NDArray[Any]:
        """Return one struct of `dtype` from each position.

        Copied as plain bytes: numpy copies a struct with fields field by field, twenty times slower.
        """
        return self.view(np.dtype((np.void, dtype.itemsize)))[starts].view(dtype)

    # --- the head -------------------------------------------------------------------------------

    @cached_property
    def sys_flag(self) -> Ints:
        """SYSFLAG, which also determines the size of the head."""
        return self._front["sys_flag"].astype(np.int64)

    @cached_property
    def _front(self) -> NDArray[Any]:
        # One copy of the common head serves all fields; those before the hosts are the same in every layout.
        return self.gather(_HEADS[False, False], self.starts)

    @cached_property
    def hosts(self) -> list[tuple[tuple[bool, bool], NDArray[Any] | None]]:
        """((born host is IPv6, store host is IPv6), which records or None for all) of each layout that occurs."""
        flags = self.sys_flag & _V6
        if not flags.any():
            return [((False, False), None)]
        born, store = (flags & SysFlag.BORNHOST_V6) != 0, (flags & SysFlag.STOREHOSTADDRESS_V6) != 0
        groups = ((hosts, np.flatnonzero((born == hosts[0]) & (store == hosts[1]))) for hosts in _HEADS)
        return [(hosts, which) for hosts, which in groups if len(which)]

    def host_groups(self) -> Iterator[tuple[tuple[bool, bool], NDArray[Any] | None, NDArray[Any]]]:
        """Yield (hosts, which records, their heads in the layout of these hosts); hosts as in `hosts`."""
        for hosts, which in self.hosts:
            if which is None:
                yield hosts, None, self._front
            else:
                yield hosts, which, self.gather(_HEADS[hosts], self.starts[which])

    def field(self, *names: str) -> Ints:
        """Return an integer field of the head, int64; `field("born_host", "port")` is a field of a host."""
        if names[0] in _FRONT_FIELDS:
            return self._front[names[0]].astype(np.int64)
        column: Ints = np.empty(len(self), np.int64)
        for _, which, heads in self.host_groups():
            for name in names:
                heads = heads[name]
            column[slice(None) if which is None else which] = heads
        return column

    @cached_property
    def total_size(self) -> Ints:
        """TOTALSIZE."""
        return self.field("total_size")

    @cached_property
    def ends(self) -> Ints:
        """Where each record ends by its TOTALSIZE."""
        return self.starts + self.total_size

    @cached_property
    def magic(self) -> Ints:
        """MAGICCODE."""
        return self.field("magic")

    @cached_property
    def physical_offset(self) -> Ints:
        """The field PHYSICALOFFSET, which in an intact record equals `base + starts`."""
        return self.field("physical_offset")

    @cached_property
    def body_size(self) -> Ints:
        """BODYLEN; negative only in a damaged record."""
        return self.field("body_size")

    # --- the variable part ----------------------------------------------------------------------

    @cached_property
    def body_starts(self) -> Ints:
        """Where each body begins: behind the head, whose size depends on the hosts."""
        if self.hosts[0][1] is None:
            return self.starts + _HEADS[self.hosts[0][0]].itemsize
        heads: Ints = np.empty(len(self), np.int64)
        for hosts, which in self.hosts:
            heads[which] = _HEADS[hosts].itemsize
        return self.starts + heads

    @cached_property
    def body_ends(self) -> Ints:
        """Where each body ends and the topic length stands. A negative length counts as 0."""
        return self.body_starts + np.maximum(self.body_size, 0)

    @cached_property
    def _topic(self) -> tuple[Ints, Ints]:
        # A damaged BODYLEN can point anywhere: read inside of the window; `lengths_agree` judges.
        at = np.minimum(self.body_ends, len(self.raw) - SLACK)
        size = self.view(_INT8)[at].astype(np.int64)
        begin = at + 1
        if (self.magic == message.MAGIC_V2).any():
            wide = np.flatnonzero(self.magic == message.MAGIC_V2)
            size[wide] = self.view(_INT16)[at[wide]]
            begin[wide] += 1
        return begin, begin + size  # a negative size stays: it is damage

    @property
    def topic_starts(self) -> Ints:
        """Where each topic begins."""
        return self._topic[0]

    @property
    def topic_ends(self) -> Ints:
        """Where each topic ends and the length of the properties stands."""
        return self._topic[1]

    @cached_property
    def properties_starts(self) -> Ints:
        """Where the properties begin."""
        return self.topic_ends + _INT16.itemsize

    @cached_property
    def properties_ends(self) -> Ints:
        """Where the properties end by their own length. A negative length counts as 0."""
        at = np.clip(self.topic_ends, 0, len(self.raw) - SLACK)
        sizes: Ints = np.maximum(self.view(_INT16)[at], 0)
        return self.properties_starts + sizes

    @cached_property
    def lengths_agree(self) -> Bools:
        """Whether the lengths of body, topic and properties add up to TOTALSIZE.

        Source: the last test of CommitLog#checkMessageAndReturnSize.
        """
        inside = self.body_ends < self.ends
        agree: Bools = inside & (self.topic_starts <= self.topic_ends) & (self.properties_ends == self.ends)
        return agree

    def are_sound(self, filled: int) -> Bools:
        """Return whether each record has a magic, a plausible size and lengths that agree.

        `filled`: the window's valid bytes; a record that goes on behind them is not sound.
        """
        magic = self.magic
        sound: Bools = (magic == message.MAGIC_V1) | (magic == message.MAGIC_V2)
        sound &= (self.total_size >= message.FIXED_SIZE) & (self.ends <= filled)
        sound &= self.lengths_agree
        return sound

    # --- checksums ------------------------------------------------------------------------------

    def body_crcs(self) -> Ints:
        """Return the CRC-32 of each stored body, masked as the broker stores it: one C call per body."""
        if len(self) < _FEW or int((self.body_ends - self.body_starts).sum()) > len(self) * _LONG:
            spans = zip(self.body_starts.tolist(), self.body_ends.tolist(), strict=True)
            # One slice at a time: thousands alive at once make Python's garbage collector run again and again.
            crcs: Iterator[int] = (crc32(self.raw[start:end]) for start, end in spans)
        else:
            crcs = map(crc32, self._body_objects())
        return np.fromiter(crcs, np.int64, len(self)) & message.CRC_MASK

    def _body_objects(self) -> list[bytes]:
        """Return each stored body as bytes; Arrow makes them several times as fast as slicing does.

        An Arrow binary view is 16 bytes: length, first four bytes, number of the buffer, place in it.
        """
        import pyarrow as pa  # slow to import

        size = self.body_ends - self.body_starts
        views = np.empty((len(self), 4), np.int32)
        views[:, 0] = size
        views[:, 1] = self.view(np.dtype("<i4"))[self.body_starts]
        views[:, 2] = 0
        views[:, 3] = self.body_starts
        short = np.flatnonzero(size <= _INLINE)
        if len(short):  # these stand in the view itself
            inline = views.view(np.uint8).reshape(len(self), 16)
            inline[short, 4:] = (
                self.view(np.dtype((np.void, _INLINE)))[self.body_starts[short]]
                .view(np.uint8)
                .reshape(len(short), _INLINE)
            )
            inline[short, 4:] *= np.arange(_INLINE) < size[short, None]
        buffers = [None, pa.py_buffer(views), pa.py_buffer(self.raw)]
        bodies: list[bytes] = (
            pa.Array.from_buffers(pa.binary_view(), len(self), buffers).to_numpy(zero_copy_only=False).tolist()
        )
        return bodies

    @cached_property
    def body_crc_ok(self) -> Bools:
        """Whether BODYCRC is right. The broker does not test it for an empty body."""
        ok: Bools = self.field("body_crc") == self.body_crcs()
        return ok

    @cached_property
    def has_record_crc(self) -> Bools:
        """Whether the record ends in the property `__CRC32#` (5.2.0 and later), by its fixed place."""
        room = (self.properties_ends - self.properties_starts) >= message.CRC32_RESERVED_SIZE
        present: Bools = room & (self.view(_INT64)[self.ends - message.CRC32_RESERVED_SIZE] == _CRC32_NAME)
        return present

    def record_crc_ok(self) -> Bools:
        """Return whether the whole-record CRC is right; False also where there is none.

        Source: CommitLog#checkMessageAndReturnSize with forceVerifyPropCRC, 5.2.0.
        """
        ok: Bools = np.zeros(len(self), np.bool_)
        for number in np.flatnonzero(self.has_record_crc):
            start, end = int(self.starts[number]), int(self.ends[number])
            covered = end - message.CRC32_RESERVED_SIZE
            tail = bytes(self.raw[covered:end])
            digits = tail.removeprefix(_CRC32_LEAD).removesuffix(_CRC32_END)
            sound = len(digits) == message.CRC32_DIGITS and digits.isdigit()
            stored = int(digits[::-1]) if sound else -1  # least significant digit first
            ok[number] = stored == crc32(self.raw[start:covered]) & message.CRC_MASK
        return ok
