"""What a report carries for the next run: the results of unchanged files, so that these need not be read again.

A run judges a store from the results of its parts, in log order (`verify.run`):

    split of the log     + rows that point into it     -> SplitResult    kept, with a digest of what it was made from
    index file, queue                                  -> its survey     kept, as long as its file is the same
    whole log, order, loss, checkpoint, groups         -> findings       judged anew by every run, from all results

So a later run puts the kept results in the place of those it would compute, and judges as if it had read everything.
Invariants:

- A result is taken over only where all that it depends on is the same: the bytes of its file (size and time), and
  the digest of its inputs: which rows of which files point into the split, the ranges that the index covers, and the
  rules (`Inputs`). Everything else is read. A result with something unreadable is never kept.
- The rows of a queue or index file that grew are the same if the digest of those that were there is (`Prefix`).
- What is decoded is checked: types, checksum, places inside the segment. Nothing of it is executed or opened.
- The state of a segment is bounded by its size (`room_for`); a segment whose state is larger is read again.
"""

import base64
import hashlib
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from typing import Any, get_origin

import msgspec
import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from rmqinspect.codec.arrays import Bools, Ints, distinct
from rmqinspect.codec.layout import dtype_of
from rmqinspect.commitlog.byte_account import ByteAccount
from rmqinspect.commitlog.gaps import Borders, Gap, Split
from rmqinspect.commitlog.log_runs import FoldedRanges, Range
from rmqinspect.commitlog.queue_offsets import Jump, QueueEnds
from rmqinspect.consumequeue.units import LAYOUTS
from rmqinspect.errors import Unreadable
from rmqinspect.forecast.fed_scan import FedPart
from rmqinspect.schemas.index import IndexEntry
from rmqinspect.schemas.timer import UNIT_SIZE as TIMER_UNIT_SIZE
from rmqinspect.store.model import QueueFile, Segment, StoreFile
from rmqinspect.store.reader import open_file
from rmqinspect.verify.dledger import ChainEnds
from rmqinspect.verify.findings import Finding
from rmqinspect.verify.index_join import IndexResult
from rmqinspect.verify.plan import CrossPlan, QueueName
from rmqinspect.verify.pointers import Joined
from rmqinspect.verify.queue_join import UnitResult
from rmqinspect.verify.split import CheckLimits, SplitResult
from rmqinspect.verify.wrong_records import SplitTimes

FORMAT = 1
"""Of the states in a report: another one is not read."""

_DIGEST_SIZE = 16
_CHUNK = 1 << 20
_MOST_UNPACKED = 256 << 20  # bytes of one state
_SHARE, _LEAST_ROOM = 64, 64 << 10

Runs = Mapping[str, Sequence[tuple[str, int, int]]]


def digest_of(*parts: bytes) -> bytes:
    """Return a digest of byte strings, wherever one ends and the next begins."""
    digest = hashlib.blake2b(digest_size=_DIGEST_SIZE)
    for part in parts:
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.digest()


def room_for(segment: Segment) -> int:
    """Return how many bytes the packed state of a segment may take."""
    return max(_LEAST_ROOM, segment.size // _SHARE)


# --- what a result depends on -------------------------------------------------------------------------


class Inputs:
    """What the results of the splits depend on, besides the bytes of their segments."""

    def __init__(self, plan: CrossPlan | None, limits: CheckLimits) -> None:
        """`plan`: None where nothing that points into the log is read."""
        self.plan = plan
        self._rules = msgspec.msgpack.encode([limits.per_code, sorted(limits.codes), *_rules(plan)])

    @cached_property
    def _names(self) -> dict[str, Ints]:
        """Digests of the names of the files of each kind, by number of the file; and what their rows depend on."""
        plan = self.plan
        assert plan is not None
        index = [
            repr((one.file.name, None if one.header is None else int(one.header.begin_timestamp), timed, one.geometry))
            for one, timed in zip(plan.index, plan.timed, strict=True)
        ]
        return {
            "unit": _as_numbers(file.name for file in plan.queue_files),
            "entry": _as_numbers(index),
            "timer": _as_numbers(file.name for file in plan.timer_files),
        }

    def files_of(self, split: Split) -> Iterator[tuple[str, int]]:
        """Yield (kind, number) of each file whose rows point into a split."""
        number = None if self.plan is None else self.plan.number_of(split)
        if self.plan is not None and number is not None:
            for kind, runs in self.plan.runs.items():
                for file in distinct(runs.rows_of_split(number)[:, 1]).tolist():
                    yield kind, file

    def digest(self, split: Split) -> bytes:
        """Return a digest of all that the result of a split depends on.

        :raises Unreadable: a timer unit cannot be read.
        """
        plan = self.plan
        number = None if plan is None else plan.number_of(split)
        if plan is None or number is None:
            return digest_of(self._rules, b"alone")
        low, high = plan.range_of(number)
        ranges = [low, high]
        for place in (*(plan.index_range or ()), plan.index_begin, plan.index_end):
            # Where a range begins or ends outside of the split is of no interest.
            ranges.append(0 if place is None else min(max(place, low - 1), high))
        parts = []
        for kind, runs in plan.runs.items():
            rows = runs.rows_of_split(number)
            parts += [kind.encode(), self._names[kind][rows[:, 1]].tobytes(), rows[:, 2:].tobytes()]
        for file, first, rows_ in plan.runs_of("timer", number):
            parts.append(_timer_bytes(plan.timer_files[file], first, rows_))
        if split.segment.kind == "dledger":
            parts += [repr((file.name, file.size)).encode() for file in plan.entry_index]
        return digest_of(self._rules, np.array(ranges, np.int64).tobytes(), *parts)


def _rules(plan: CrossPlan | None) -> list[object]:
    if plan is None:
        return []
    return [
        plan.deep,
        plan.whole,
        plan.elsewhere,
        plan.index_complete,
        plan.needs_records,
        [bool(plan.timer_files), plan.index_range is None, plan.index_begin is None, plan.index_end is None],
        sorted(plan.may_hold),
        sorted(plan.unread),
        sorted(plan.unread_topics),
        sorted(plan.hidden_ext),
    ]


def _as_numbers(texts: Iterable[str]) -> Ints:
    """Return a digest of each text, as one number."""
    raw = b"".join(hashlib.blake2b(text.encode("utf-8", "backslashreplace"), digest_size=8).digest() for text in texts)
    return np.frombuffer(raw, np.int64)


def _timer_bytes(file: StoreFile, first: int, rows: int) -> bytes:
    """Return a digest of the rows of a timer log, which are few: what waits in the wheel."""
    with open_file(file) as reader:
        return digest_of(reader.read(first * TIMER_UNIT_SIZE, rows * TIMER_UNIT_SIZE))


# --- the rows of a file that grew ---------------------------------------------------------------------


class Prefix(msgspec.Struct, array_like=True, frozen=True):
    """The rows of a file up to the last that points into the log, by their digest."""

    rows: int
    digest: bytes


def row_size(file: StoreFile) -> int:
    """Return the size of a row of a queue file or an index file."""
    return dtype_of(LAYOUTS[file.kind]).itemsize if isinstance(file, QueueFile) else dtype_of(IndexEntry).itemsize


def prefixes_of(file: StoreFile, begin: int, *rows: int) -> list[Prefix | None]:
    """Return the digests of the rows from a position on, of as many rows as each of `rows` says, which ascend.

    None where they cannot be read.
    """
    digest, at, found = hashlib.blake2b(digest_size=_DIGEST_SIZE), begin, list[Prefix | None]()
    try:
        with open_file(file) as reader:
            for number in rows:
                end = begin + number * row_size(file)
                while at < end and (raw := reader.read(at, min(_CHUNK, end - at))):
                    digest.update(raw)
                    at += len(raw)
                found.append(Prefix(number, digest.digest()) if at >= end else None)
    except Unreadable:
        pass
    return [*found, *[None] * (len(rows) - len(found))]


def rows_used(plan: CrossPlan) -> tuple[Ints, Ints]:
    """Return behind which row no row of a file points into the log: of each queue file, and of each index file."""
    counts = []
    for kind, number in (("unit", len(plan.queue_files)), ("entry", len(plan.index))):
        used = np.zeros(number, np.int64)
        rows = plan.runs[kind].rows if kind in plan.runs else np.empty((0, 4), np.int64)
        np.maximum.at(used, rows[:, 1], rows[:, 2] + rows[:, 3])
        counts.append(used)
    return counts[0], counts[1]


# --- the result of a split ----------------------------------------------------------------------------


class KeptSplit(msgspec.Struct, array_like=True, kw_only=True):
    """The result of a split without its segment, and of what it was made."""

    start: int
    end: int
    inputs: bytes
    names: list[QueueName]  # of the queues of its records
    records: int
    record_bytes: int
    gaps: list[Gap]
    times_of: tuple[int | None, int | None]  # ms, of the first and the last record
    reach: tuple[int | None, int | None]  # physical offsets: of the first record, behind the last
    findings: list[Finding]
    suppressed: dict[str, int]
    stale: list[tuple[int, int, int]]
    jumps: list[tuple[int, Jump]]
    ends: QueueEnds
    set_back: list[tuple[int, int]]
    times: SplitTimes
    borders: Borders
    newest: int | None
    unindexed: tuple[int, int, int] | None
    before_index: tuple[int, int, int] | None
    units: UnitResult | None
    entries: IndexResult | None
    timers: Joined | None
    edges: list[tuple[str, int]]  # (name of the index file, entry) of `entries.edge_times`, in its order
    chain: ChainEnds | None
    fed: FedPart | None
    damaged: tuple[int, list[Range]] = (0, [])  # `bits` and ranges of `SplitResult.damaged`

    @classmethod
    def of(cls, result: SplitResult, inputs: bytes, plan: CrossPlan | None) -> "KeptSplit | None":
        """Return what a later run needs of a result, None for one that is not whole."""
        found = [*result.joined, *([] if result.chain is None else [result.chain])]
        if result.borders is None or result.unread or any(part.unread for part in found):
            return None
        entries = next((part for part in result.joined if isinstance(part, IndexResult)), None)
        account, edges = result.account, [] if entries is None else list(entries.edge_times)
        others = [part for part in result.joined if not isinstance(part, UnitResult | IndexResult)]
        chain = result.chain
        if chain is not None:  # where the store lies is of no interest
            chain = replace(chain, segment=replace(chain.segment, path=""))
        return cls(
            start=result.split.start,
            end=result.split.end,
            inputs=inputs,
            names=sorted(result.names),
            records=account.records,
            record_bytes=account.record_bytes,
            gaps=account.gaps,
            times_of=(account.first_timestamp, account.last_timestamp),
            reach=(account.begin, account.end),
            findings=result.findings,
            suppressed=dict(result.suppressed),
            stale=result.stale,
            jumps=result.jumps,
            ends=result.ends,
            set_back=result.set_back,
            times=result.times,
            borders=result.borders,
            newest=result.newest,
            unindexed=result.unindexed,
            before_index=result.before_index,
            units=next((part for part in result.joined if isinstance(part, UnitResult)), None),
            entries=entries,
            timers=others[0] if others else None,
            edges=[] if plan is None else [(plan.index[file].file.name, entry) for file, entry in edges],
            chain=chain,
            fed=result.fed if result.dispatched is None else FedPart.of(result.dispatched, result.doubts),
            damaged=(result.damaged.bits, list(result.damaged)),
        )

    def result(self, split: Split, plan: CrossPlan | None) -> SplitResult:
        """Return the result for a split of this run, which has the same inputs."""
        account = ByteAccount(split.segment, self.records, self.record_bytes, self.gaps, *self.times_of, *self.reach)
        joined: list[Joined] = [part for part in (self.units, self.entries, self.timers) if part is not None]
        if self.entries is not None and plan is not None:
            numbers = {index.file.name: number for number, index in enumerate(plan.index)}
            stamps = zip(self.edges, self.entries.edge_times.values(), strict=True)
            self.entries.edge_times = {(numbers[name], at): stamp for (name, at), stamp in stamps if name in numbers}
        if self.chain is not None:
            self.chain.segment = split.segment
        damaged = FoldedRanges()
        damaged.extend(min(self.damaged[0], 63), self.damaged[1])
        return SplitResult(
            split,
            account,
            self.findings,
            Counter(self.suppressed),
            [],
            self.stale,
            self.jumps,
            self.ends,
            self.set_back,
            self.times,
            self.borders,
            self.newest,
            self.unindexed,
            self.before_index,
            joined,
            self.chain,
            names=frozenset(self.names),
            fed=self.fed,
            is_taken_over=True,
            damaged=damaged,
        )

    def check(self, split: Split) -> None:
        """Look at the places that the judgement goes to.

        :raises ValueError: one lies outside of the segment.
        """
        segment = split.segment
        stamps = [*self.times.first, *self.times.last]
        stamps += [stamp for step in self.times.steps for stamp in (step.high, step.low)]
        wrong = [] if self.entries is None else self.entries.wrong_times
        places = [stamp.place for stamp in stamps] + [one.place for one in wrong] + [gap.start for gap in self.gaps]
        places += [place for place, _ in (*self.jumps, *self.set_back)]
        places += [place for place in self.reach if place is not None]
        places += [place for start, end, _ in self.damaged[1] for place in (start, end)]
        if not all(segment.base <= place <= segment.end for place in places):
            raise ValueError("a place outside of its segment")
        fits = 0 <= self.records <= self.record_bytes <= segment.size
        if not fits or (split.start, split.end) != (self.start, self.end):
            raise ValueError("a split of another segment")


def _to_wire(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value)} is not kept")


def _from_wire(kind: Any, value: Any) -> Any:
    if (get_origin(kind) or kind) is Counter and isinstance(value, dict):
        return Counter(value)
    raise ValueError(f"{kind} is not kept")


_ENCODER = msgspec.msgpack.Encoder(enc_hook=_to_wire)


@cache  # made with its first use, for which it reads the types of all that is kept
def _decoder() -> msgspec.msgpack.Decoder[KeptSplit]:
    return msgspec.msgpack.Decoder(KeptSplit, dec_hook=_from_wire)


def encode(value: Any) -> bytes:
    """Return a kept result, or a list of encoded ones, as bytes."""
    return _ENCODER.encode(value)


def decode_split(raw: bytes) -> KeptSplit:
    """Return a kept result of a split.

    :raises ValueError: the bytes are not one.
    """
    try:
        return _decoder().decode(raw)
    except (KeyError, TypeError, OverflowError, RecursionError) as error:
        raise ValueError(str(error)) from error


def pack(raw: bytes) -> str:
    """Return bytes as the text of a state."""
    return base64.b64encode(zlib.compress(raw, 6)).decode("ascii")


def unpack(text: str) -> bytes:
    """Return the bytes of a state.

    :raises ValueError: it is none, or one that no run writes.
    """
    try:
        inflate = zlib.decompressobj()
        raw = inflate.decompress(base64.b64decode(text, validate=True), _MOST_UNPACKED)
    except zlib.error as error:
        raise ValueError(str(error)) from error
    if not inflate.eof:
        raise ValueError("a state is cut short, or larger than any that is written")
    return raw


def unpack_splits(text: str) -> list[tuple[int, bytes]]:
    """Return the encoded results of a segment's splits, each with its start in the segment.

    :raises ValueError: the text is no such state.
    """
    return msgspec.msgpack.decode(unpack(text), type=list[tuple[int, bytes]])


def _kept_bytes(result: SplitResult, inputs: Inputs) -> bytes | None:
    try:
        kept = KeptSplit.of(result, inputs.digest(result.split), inputs.plan)
    except Unreadable:
        return None
    return None if kept is None else encode(kept)


class SegmentStates(Struct):
    """Collects the states of segments, split by split in log order."""

    states: dict[str, str] = field(default_factory=dict)  # by name of the segment
    _segment: Segment | None = None
    _splits: list[tuple[int, bytes]] = field(default_factory=list)

    def take(self, result: SplitResult, inputs: Inputs, known: bytes | None) -> bytes | None:
        """Take the result of the next split before it is judged; return what is kept of it, `known` if it was."""
        segment = result.split.segment
        if self._segment is not segment:
            self.finish()
            self._segment = segment
        raw = known if known is not None else _kept_bytes(result, inputs)
        if raw is not None:
            self._splits.append((result.split.start, raw))
        return raw

    def finish(self) -> None:
        """Keep the state of the segment that was read."""
        if self._segment is not None and self._splits:
            state = pack(encode(self._splits))
            if len(state) <= room_for(self._segment):
                self.states[self._segment.name] = state
        self._segment, self._splits = None, []


def same_rows(numbers: Iterable[tuple[str, int]], altered: Mapping[str, Bools]) -> bool:
    """Whether none of some files, (kind, number), is among those whose rows are not what they were."""
    return not any(kind in altered and altered[kind][file] for kind, file in numbers)
