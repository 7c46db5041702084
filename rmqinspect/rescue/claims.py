"""Which bytes of which log the records of an image claim; copies of a record, and rivals for its place.

Each record says where in its broker's log it stood. Records that follow each other in the image and in their log are
one run, so a whole segment is one row, whatever it holds:

    run      log [start, end)   place in an image   store time of its first and last records

Runs are kept in layers. The first holds, for each byte of a log, the record that was found first; a later record for
the same bytes is compared with it, byte by byte. Equal: a copy, and nothing is kept. Different: a rival, kept in the
next layer, where its own copies are found.

    layer 0   |======== 10.0.0.1, a ========|   |== b ==|
    layer 1        |== c ==|                                c and a say two things about one range of one log

Each store host has claims of its own: its number stands in front of the offset in every key. A key is
origin << 56 | physical offset, a place is image << 48 | position. Where a record of one host is followed, in the image
and in its log, by one of another, both wrote one log: a broker whose address has changed, or a replica that became the
master. Such hosts are `linked`.

Invariants: the runs of one layer do not overlap; memory follows the number of runs, not that of records; each record is
compared with at most MOST_LAYERS others. What is a rival of so many is not kept, and counted.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np

from rmqinspect.codec.arrays import Bools, Ints
from rmqinspect.rescue.carve import FoundRecords
from rmqinspect.schemas import message
from rmqinspect.schemas.message import SysFlag

MOST_LAYERS = 4
MOST_ORIGINS = 127  # hosts that are told apart; all others share a number
_MOST_ROUNDS = 8  # records for the same bytes in one window
_OFFSET_BITS, _POSITION_BITS = 56, 48
_OFFSETS, _POSITIONS = (1 << _OFFSET_BITS) - 1, (1 << _POSITION_BITS) - 1
_AT_ONCE = 4 << 20  # bytes compared at once

# A clock may be set back a little; more begins another run. As `commitlog.scan` tells an earlier life.
OLDER_MS = 1000

# What became of a record.
NEW, COPY, RIVAL, CROWDED, NOWHERE = range(5)

NO_PLACE = -1


class Runs(NamedTuple):
    """Rows of runs, by key."""

    starts: Ints
    ends: Ints
    places: Ints
    firsts: Ints  # store time, ms, of the first record
    lasts: Ints  # and of the last one

    def take(self, which: Ints | Bools | slice) -> "Runs":
        """Return some of them."""
        return Runs(*(column[which] for column in self))

    def joined(self) -> "Runs":
        """Return the same with those joined that follow each other in log and image, and whose times do not go back."""
        if len(self.starts) < 2:
            return self
        follows = (self.starts[1:] == self.ends[:-1]) & (self.firsts[1:] >= self.lasts[:-1] - OLDER_MS)
        follows &= self.places[1:] - self.places[:-1] == self.starts[1:] - self.starts[:-1]
        begins = np.flatnonzero(np.concatenate(([True], ~follows)))
        last = np.append(begins[1:], len(self.starts)) - 1
        return Runs(self.starts[begins], self.ends[last], self.places[begins], self.firsts[begins], self.lasts[last])


_NONE = Runs(*(np.zeros(0, np.int64) for _ in Runs._fields))


def _concatenate(parts: "list[Runs]") -> Runs:
    return Runs(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


class Layer:
    """Runs that do not overlap, found by key. Sorted parts, each at least twice as long as the next one."""

    def __init__(self) -> None:
        self._parts: list[Runs] = []

    def add(self, runs: Runs) -> None:
        """Add runs, which overlap none of the layer's and not each other."""
        self._parts.append(runs.take(np.argsort(runs.starts, kind="stable")).joined())
        while len(self._parts) > 1 and len(self._parts[-2].starts) < 2 * len(self._parts[-1].starts):
            last = self._parts.pop()
            both = _concatenate([self._parts.pop(), last])
            self._parts.append(both.take(np.argsort(both.starts, kind="stable")).joined())

    def runs(self) -> Runs:
        """Return all runs, ascending."""
        both = _concatenate([_NONE, *self._parts])
        return both.take(np.argsort(both.starts, kind="stable")).joined()

    def overlapped(self, starts: Ints, ends: Ints) -> Bools:
        """Return which ranges share a byte with a run."""
        hit = np.zeros(len(starts), np.bool_)
        for part in self._parts:
            last = np.searchsorted(part.starts, ends, "left") - 1
            hit |= (last >= 0) & (part.ends[last] > starts)
        return hit

    def places(self, starts: Ints, ends: Ints) -> Ints:
        """Return where in the images the bytes of each range stand that one run holds whole; else NO_PLACE."""
        found = np.full(len(starts), NO_PLACE)
        for part in self._parts:
            last = np.searchsorted(part.starts, starts, "right") - 1
            whole = (last >= 0) & (part.ends[last] >= ends)
            found[whole] = part.places[last[whole]] + starts[whole] - part.starts[last[whole]]
        return found


class Claims:
    """All records that count, of all images, by the bytes of the logs that they claim."""

    def __init__(self, read: Callable[[int, int, int], bytes]) -> None:
        """Take what returns bytes of an image: `read(image, position, size)`."""
        self.layers: list[Layer] = []
        self.origins: list[bytes] = []  # address and port as stored
        self.linked: set[tuple[int, int]] = set()  # numbers of hosts that wrote one log
        self.crowded = 0  # records that are rivals of MOST_LAYERS others
        self._read = read
        self._numbers: dict[bytes, int] = {}
        self._last: tuple[int, int, int] | None = None  # where the last record ends, in images and log, and whose it is

    def take(self, image: int, records: FoundRecords) -> tuple[Ints, Ints]:
        """Add records that count; return for each what became of it, and where its original, or its rival, stands."""
        count = len(records)
        outcomes, others = np.full(count, NEW), np.full(count, NO_PLACE)
        own, sizes = records.physical_offset, records.total_size
        outcomes[(own < 0) | (own > _OFFSETS - (1 << 32))] = NOWHERE
        origins, places = self._origins_of(records), (image << _POSITION_BITS) | records.positions
        self._link(origins, places, own, sizes)
        keys = (origins << _OFFSET_BITS) | own
        left = np.flatnonzero(outcomes == NEW)
        if self._is_new(keys[left], sizes[left]):
            self._keep(0, left, keys, sizes, places, records)
            return outcomes, others
        rounds = 0
        while len(left):
            # Of records for the same bytes one after the other: they may be copies of each other.
            turn = left if rounds == _MOST_ROUNDS else left[_apart(keys[left], sizes[left])]
            left = np.setdiff1d(left, turn, assume_unique=True)
            self._settle(turn, keys, sizes, places, records, outcomes, others, keep=rounds < _MOST_ROUNDS)
            rounds += 1
        self.crowded += int(np.count_nonzero(outcomes == CROWDED))
        return outcomes, others

    def _link(self, origins: Ints, places: Ints, own: Ints, sizes: Ints) -> None:
        """Note hosts whose records follow each other in image and log."""
        last = self._last or (NO_PLACE, NO_PLACE, MOST_ORIGINS)
        ends = np.concatenate(([last[0]], places + sizes)), np.concatenate(([last[1]], own + sizes))
        before = np.concatenate(([last[2]], origins))
        other = (before[:-1] != origins) & (ends[0][:-1] == places) & (ends[1][:-1] == own)
        self.linked |= set(zip(before[:-1][other].tolist(), origins[other].tolist(), strict=True))
        if len(own):
            self._last = int(ends[0][-1]), int(ends[1][-1]), int(origins[-1])

    def _is_new(self, keys: Ints, sizes: Ints) -> bool:
        """Whether none of some records shares a byte of a log with another one: nearly always."""
        if not len(keys):
            return True
        order = np.argsort(keys, kind="stable")
        starts, ends = keys[order], keys[order] + sizes[order]
        if (starts[1:] < ends[:-1]).any():
            return False
        return not self.layers or not self.layers[0].overlapped(starts, ends).any()

    def _settle(
        self,
        rows: Ints,
        keys: Ints,
        sizes: Ints,
        places: Ints,
        records: FoundRecords,
        outcomes: Ints,
        others: Ints,
        *,
        keep: bool,
    ) -> None:
        """Find the layer of records that do not overlap each other: where one is their original, or none is there."""
        for number in range(MOST_LAYERS):
            if number == len(self.layers):
                self.layers.append(Layer())
            layer, ends = self.layers[number], keys[rows] + sizes[rows]
            taken = layer.overlapped(keys[rows], ends)
            if keep:
                self._keep(number, rows[~taken], keys, sizes, places, records)
            else:
                outcomes[rows[~taken]] = CROWDED
            rows = rows[taken]
            found = layer.places(keys[rows], keys[rows] + sizes[rows])
            equal = self._are_equal(records.select(rows), found)
            others[rows[equal]], outcomes[rows[equal]] = found[equal], COPY
            rows, found = rows[~equal], found[~equal]
            if number == 0:
                others[rows] = found
            outcomes[rows] = RIVAL
            if not len(rows):
                return
        outcomes[rows] = CROWDED

    def _keep(self, layer: int, rows: Ints, keys: Ints, sizes: Ints, places: Ints, records: FoundRecords) -> None:
        """Add records to a layer, as runs."""
        if not len(rows):
            return
        if layer == len(self.layers):
            self.layers.append(Layer())
        times = records.field("store_timestamp")[rows]
        runs = Runs(keys[rows], keys[rows] + sizes[rows], places[rows], times, times)
        self.layers[layer].add(runs.joined())

    def _are_equal(self, records: FoundRecords, places: Ints) -> Bools:
        """Return which records are, byte by byte, what stands at some places; NO_PLACE is equal to nothing."""
        equal = np.zeros(len(records), np.bool_)
        shifts = places - records.positions
        rows = np.flatnonzero(places != NO_PLACE)
        starts, sizes = records.starts, records.total_size
        first = 0
        while first < len(rows):
            # Those that lie together here and there are read together.
            behind = first + 1
            while (
                behind < len(rows)
                and shifts[rows[behind]] == shifts[rows[first]]
                and starts[rows[behind]] + sizes[rows[behind]] - starts[rows[first]] <= _AT_ONCE
            ):
                behind += 1
            group = rows[first:behind]
            low, high = int(starts[group[0]]), int(starts[group[-1]] + sizes[group[-1]])
            place = int(places[group[0]])
            there = self._read(place >> _POSITION_BITS, place & _POSITIONS, high - low)
            here = records.raw[low:high]
            if bytes(here) == there:
                equal[group] = True
            else:
                for row in group.tolist():
                    start, end = int(starts[row]) - low, int(starts[row] + sizes[row]) - low
                    equal[row] = bytes(here[start:end]) == there[start:end]
            first = behind
        return equal

    def _origins_of(self, records: FoundRecords) -> Ints:
        """Return the number of each record's store host and port."""
        hosts, wide = records.field("store_host"), records.sys_flag & SysFlag.STOREHOSTADDRESS_V6 != 0
        found = np.full(len(records), MOST_ORIGINS)
        for layout, rows in ((message.HostV4, np.flatnonzero(~wide)), (message.HostV6, np.flatnonzero(wide))):
            if len(rows):
                # Eight bytes are compared as a number: much faster, and nearly always they are all one host's.
                size: int = layout.sizeof()
                values = records.gather(np.dtype(np.int64 if size == 8 else (np.void, size)), hosts[rows])
                distinct, inverse = np.unique(values, return_inverse=True)
                found[rows] = np.array([self._number_of(one.tobytes()) for one in distinct])[inverse]
        return found

    def _number_of(self, host: bytes) -> int:
        if host not in self._numbers and len(self.origins) < MOST_ORIGINS:
            self._numbers[host] = len(self.origins)
            self.origins.append(host)
        return self._numbers.get(host, MOST_ORIGINS)

    def runs(self) -> Iterator[tuple[list[int], Runs]]:
        """Yield the hosts of each log, that of most bytes first, and its runs; starts and ends are physical offsets."""
        of_hosts = {origin: runs for origin in range(MOST_ORIGINS + 1) if len((runs := self._runs_of(origin)).starts)}
        for together in _connected(of_hosts, self.linked):
            together.sort(key=lambda origin: -int((of_hosts[origin].ends - of_hosts[origin].starts).sum()))
            yield together, _concatenate([of_hosts[origin] for origin in together])

    def _runs_of(self, origin: int) -> Runs:
        """Return the runs of one host, of all layers, the first layer first."""
        low, high = origin << _OFFSET_BITS, (origin << _OFFSET_BITS) + _OFFSETS
        parts = [_NONE]
        for layer in self.layers:
            runs = layer.runs()
            first, behind = (int(np.searchsorted(runs.starts, key)) for key in (low, high))
            parts.append(runs.take(slice(first, behind)))
        both = _concatenate(parts)
        return both._replace(starts=both.starts - low, ends=both.ends - low)


def _connected(origins: Iterable[int], links: Iterable[tuple[int, int]]) -> list[list[int]]:
    """Return the numbers in groups: those that links connect, ascending by the first of each."""
    group_of = {origin: [origin] for origin in origins}
    for one, other in sorted(links):
        if one in group_of and other in group_of and group_of[one] is not group_of[other]:
            group_of[one].extend(group_of[other])
            for member in group_of[other]:
                group_of[member] = group_of[one]
    return list({id(group): group for group in group_of.values()}.values())


def image_and_position(place: int) -> tuple[int, int]:
    """Return what a place means: the number of the image, and the position in it."""
    return place >> _POSITION_BITS, place & _POSITIONS


def _apart(keys: Ints, sizes: Ints) -> Ints:
    """Return indexes of records that do not overlap each other: of those for one place the first."""
    order = np.argsort(keys, kind="stable")
    starts, ends = keys[order], keys[order] + sizes[order]
    reach = np.concatenate(([-1], np.maximum.accumulate(ends)[:-1]))
    chosen: Ints = np.sort(order[starts >= reach])
    return chosen
