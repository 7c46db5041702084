"""The log of several sources as one: which bytes of it are sound, and in which source.

Each source (`rescue.given`) is judged by `verify`; its log is then what stands at which physical offset:

    a     |sssssssssssss|damaged|ssssssssss|(end)          s: sound records and blank records
    b                |sssssssssssssssssssssssssssssss|(end)
    both  |aaaaaaaaaaaaa|bbbbbbb|aaaaaaaaaa|bbbbbbbbb|

The first source that has a place sound gives it; where two have it, their bytes are compared. Two that differ are no
copies of one log any more (a replica that went its own way): of the one that counts less nothing is taken from the
first difference on, and which of them counts has to be said.

Invariants:
- Nothing is taken from a place that its own source does not prove: chain, lengths, PHYSICALOFFSET, CRC.
- Records of an earlier life, behind the end of a log, are never taken.
- What stands at an offset stays there: no record is moved.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import NamedTuple, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from rmqinspect.commitlog.find_record import LenientReader
from rmqinspect.commitlog.gaps import BRIDGED
from rmqinspect.commitlog.record_reader import RecordReader
from rmqinspect.errors import Unreadable
from rmqinspect.rescue.repair import Change, ends_in_zeros
from rmqinspect.schemas import dledger, message
from rmqinspect.schemas.places import place_of
from rmqinspect.store.model import Store
from rmqinspect.store.reader import open_file
from rmqinspect.text import group_digits
from rmqinspect.verify.findings import Finding
from rmqinspect.verify.result import VerifyOptions, VerifyResult
from rmqinspect.verify.run import VerifyRun

_BLANK: int = message.Blank.sizeof()
_SIZE: int = message.Blank.total_size.sizeof()
CUT = "cut"  # of a record: its frame and its body prove themselves, but its last properties were zeroed
_COMPARED = 4 << 20  # bytes read of two sources at a time
_MOST_FINDINGS = 100_000  # records of one kind of damage that are listed for repair

# Findings about one record that is wrong by itself: nothing of it is taken as it is.
_WRONG_RECORDS = ("CL-CRC-BODY", "CL-CRC-RECORD", "CL-OFFSET", "CL-FIELD")
_WRONG_FIELDS = ("negative queue id", "impossible ", "the topic is empty", "the properties are not")  # of CL-FIELD
# Findings by which a record's head may be wrong, as what points at it says.
_SUSPECTS = ("CQ-MISMATCH", "CQ-SHIFT", "CQ-TAG", "CL-QUEUE-OFFSET", "CL-TIME", "IX-TIME", "IX-KEY")


class Range(NamedTuple):
    """Bytes [start, end) of the log, physical offsets."""

    start: int
    end: int


class Damage(NamedTuple):
    """A record, or a gap, that its source does not prove."""

    start: int
    end: int
    kind: str  # "record": a frame with a wrong field or body; "gap", "stale", "blank", CUT
    code: str = ""  # of `verify`; of a gap "", of a cut record CUT


class Source(Struct):
    """One source, judged."""

    name: str
    store: Store
    result: VerifyResult
    sound: list[Range]
    damaged: list[Damage]
    fillers: list[Range]  # blank records and what they cover
    end: int  # behind the last record or blank record that is sound
    suspects: dict[int, str] = field(default_factory=dict)  # physical offset of a record -> code
    renamed: list[tuple[str, int]] = field(default_factory=list)  # file, its base by its records
    taken_until: int | None = None  # from there on it differs from a source that counts more
    last_place: int = 0  # physical offset of the last record, roughly
    jumped: set[tuple[str, int]] = field(default_factory=set)  # queues, by topic and id, whose offsets do not count up
    unqueued: set[tuple[str, int, int]] = field(default_factory=set)  # sound records without a unit: queue and offset
    proven: dict[int, Change] = field(default_factory=dict)  # what the order of the records proves: `sequences`

    def damage_at(self, place: int) -> Damage | None:
        """Return the damage that covers a place, None without one."""
        at = bisect_right(self.damaged, place, key=attrgetter("start")) - 1
        return self.damaged[at] if at >= 0 and place < self.damaged[at].end else None


class Conflict(NamedTuple):
    """Two sources with sound records that differ at one offset."""

    offset: int
    first: str  # names of the sources; the first one counts more
    second: str


class Piece(NamedTuple):
    """Bytes [start, end) of the log that a source has sound."""

    start: int
    end: int
    source: int  # its number


# --- judged ---------------------------------------------------------------------------------------


def judge_source(
    name: str, store: Store, size: int, *, jobs: int, release: str | None, progress: Callable[[int], None]
) -> Source:
    """Verify a source, and return what of its log is sound; `size`: bytes that a segment should have."""
    # A segment of another length is judged as far as it should reach: behind lies nothing of the log.
    cut = [replace(one, size=min(one.size, size), length=size) if one.size > size else one for one in store.segments]
    store = replace(store, segments=tuple(cut), segment_size=size)
    run = VerifyRun(
        store, VerifyOptions("deep", max_findings=_MOST_FINDINGS, jobs=jobs, broker_version=release), progress
    )
    run.quick()
    run.survey()
    run.read_log()
    result = run.result()
    return _source(name, store, run, result, size)


def _source(name: str, store: Store, run: VerifyRun, result: VerifyResult, size: int) -> Source:
    damaged: list[Damage] = []
    fillers: list[Range] = []
    if result.interrupted_at is not None:
        raise KeyboardInterrupt
    wrong = Counter(finding.code for finding in run.found if finding.code in (*_WRONG_RECORDS, "DL-POSITION"))
    if max(wrong.values(), default=0) >= _MOST_FINDINGS:
        # What is not listed would count as sound.
        raise Unreadable(f"{store.name}: {group_digits(_MOST_FINDINGS)} damaged records and more: too many to list")
    known: list[Range] = []  # of each segment, up to where something of the log stands
    ends = [account.end for account in run.log.accounts if account.end is not None]
    last_record = max(ends, default=store.log_start)
    for state in run.log.segments:
        segment = state.account.segment
        for gap in state.account.merged_gaps():
            if gap.kind == "filler" and gap.reason != BRIDGED:
                filler = Range(gap.start, gap.end)
                if gap.end == segment.end and not segment.lead:
                    # A file that was cut lacks some padding only: the blank record says where the segment ends.
                    filler = Range(gap.start, segment.base + size)
                    at = gap.start + (place_of(dledger.EntryBlank, "total_size") if segment.lead else 0)
                    said = int.from_bytes(read_log(store, at, _SIZE), "big", signed=True)
                    if said != filler.end - filler.start:
                        damaged.append(Damage(*filler, "blank"))
                fillers.append(filler)
                known.append(filler)
        damaged += [Damage(parts[0].start, parts[-1].end, "gap") for parts in state.gaps()]
        damaged += [
            Damage(gap.start, gap.end, "bridge") for gap in state.account.merged_gaps() if gap.reason == BRIDGED
        ]
        damaged += [Damage(start, end, "stale") for start, end, _ in state.stale]
        if segment.size:
            known.append(Range(segment.base, segment.end))
    suspects: dict[int, str] = {}
    jumped: set[tuple[str, int]] = set()
    unqueued: set[tuple[str, int, int]] = set()
    for finding in run.found:
        place = finding.physical_offset
        if finding.code == "CL-QUEUE-OFFSET" and finding.topic is not None and finding.queue_id is not None:
            jumped.add((finding.topic, finding.queue_id))
        if finding.code == "CQ-MISSING" and finding.count == 1 and finding.queue_offset is not None:
            unqueued.add((finding.topic or "", finding.queue_id or 0, finding.queue_offset))
        if place is None:
            continue
        lead = 0 if (segment_there := store.segment_at(place)) is None else segment_there.lead
        if finding.code in _WRONG_RECORDS and finding.length and is_wrong(finding):
            # In a DLedger log its entry is damaged: nothing else can stand in it.
            damaged.append(Damage(place - lead, place + finding.length, "record", finding.code))
        elif finding.code == "DL-POSITION" and (size := _entry_size(store, place)):
            damaged.append(Damage(place, place + size, "record", finding.code))
        elif finding.code in _SUSPECTS and finding.count == 1:
            suspects.setdefault(place, finding.code)
    places = {last_record, *(one.start for one in damaged if one.kind == "gap")}
    damaged += filter(None, (_cut_record(store, place) for place in sorted(places)))
    damaged, known = _sorted_apart(damaged), _joined(known)
    end = max([last_record, *(filler.end for filler in fillers if filler.start == last_record)])
    sound = list(_without(known, damaged, end))
    suspects = {place: code for place, code in suspects.items() if any(_reaching_into(sound, place, place + 1))}
    found = Source(name, store, result, sound, damaged, sorted(fillers), end, suspects, last_place=last_record)
    found.jumped, found.unqueued = jumped, unqueued
    return found


def _cut_record(store: Store, end: int) -> Damage | None:
    """Return the record that ends at a place if its last properties were zeroed together with what follows.

    A lost page begins in it, or it was torn while it was written: neither lengths nor BODYCRC notice that.
    """
    segment = store.segment_at(end - 1)
    if segment is None:
        return None
    try:
        with RecordReader(store) as log:
            frame = next(log.opened(segment).frames_before(end), None)
            raw = None if frame is None or frame.end != end else log.content_at(frame.start)
    except Unreadable:
        return None
    if frame is None or raw is None or not ends_in_zeros(raw) or any(read_log(store, end, 1)):
        return None
    return Damage(frame.start - segment.lead, end, CUT, CUT)


def _entry_size(store: Store, place: int) -> int:
    """Return the size of the DLedger entry at a place, whose record the chain leads through."""
    at = place + place_of(dledger.EntryHead, "size")
    return int.from_bytes(read_log(store, at, _SIZE), "big", signed=True)


def is_wrong(finding: Finding) -> bool:
    """Whether a finding about a record says that it cannot be served as it is: CL-FIELD is about oddities, too."""
    return finding.code != "CL-FIELD" or finding.message.startswith(_WRONG_FIELDS)


def _sorted_apart(damaged: Iterable[Damage]) -> list[Damage]:
    """Return damage in order, none over another; a record with two faults is there once."""
    apart: list[Damage] = []
    for one in sorted(damaged):
        if apart and one.start < apart[-1].end:
            if one.end > apart[-1].end:
                apart[-1] = apart[-1]._replace(end=one.end)
            continue
        apart.append(one)
    return apart


def _joined(ranges: Iterable[Range]) -> list[Range]:
    joined: list[Range] = []
    for one in sorted(ranges):
        if joined and one.start <= joined[-1].end:
            joined[-1] = Range(joined[-1].start, max(joined[-1].end, one.end))
        else:
            joined.append(one)
    return joined


_Part = TypeVar("_Part", Range, Damage, Piece)


def _reaching_into(parts: Sequence[_Part], start: int, end: int) -> Iterator[_Part]:
    """Yield those of ascending parts, each apart, that reach into [start, end); in logarithmic time to the first."""
    for number in range(bisect_right(parts, start, key=attrgetter("end")), len(parts)):
        if parts[number].start >= end:
            return
        yield parts[number]


def _without(known: Sequence[Range], damaged: Sequence[Damage], end: int) -> Iterator[Range]:
    """Yield what is left of ranges without the damage in them, up to an end; both ascend, each apart."""
    for whole in known:
        at = whole.start
        for one in _reaching_into(damaged, *whole):
            if at < min(one.start, end):
                yield Range(at, min(one.start, end))
            at = max(at, one.end)
        if at < min(whole.end, end):
            yield Range(at, min(whole.end, end))


# --- put together ---------------------------------------------------------------------------------


class Composite:
    """The sound bytes of all sources together, in the order in which the sources count."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self.sources = sources
        self.pieces: list[Piece] = []  # ascending, apart
        self.conflicts: list[Conflict] = []
        for number in range(len(sources)):
            self._add(number)

    @property
    def end(self) -> int:
        """The physical offset behind the last sound byte; 0 without any."""
        return self.pieces[-1].end if self.pieces else 0

    def _add(self, number: int) -> None:
        source = self.sources[number]
        limit = self._first_difference(number)
        if limit is not None:
            source.taken_until = limit
        added: list[Piece] = []
        for start, end in source.sound:
            end = end if limit is None else min(end, limit)
            at = start
            for piece in _reaching_into(self.pieces, start, end):
                if at < piece.start:
                    added.append(Piece(at, piece.start, number))
                at = piece.end
            if at < end:
                added.append(Piece(at, end, number))
        self.pieces = sorted([*self.pieces, *added])

    def holds_records(self, piece: Piece) -> bool:
        """Whether a piece is more than the padding of a segment."""
        fillers = self.sources[piece.source].fillers
        at = bisect_right(fillers, piece.start, key=attrgetter("start")) - 1
        return at < 0 or piece.end > fillers[at].end

    def take_out(self, taken: Range) -> bool:
        """Take a range that lies in one piece out of the sound bytes; return whether it did."""
        at = bisect_right(self.pieces, taken.start, key=attrgetter("start")) - 1
        if at < 0 or taken.end > self.pieces[at].end:
            return False
        piece = self.pieces[at]
        parts = [piece._replace(end=taken.start), piece._replace(start=taken.end)]
        self.pieces[at : at + 1] = [part for part in parts if part.start < part.end]
        return True

    def _first_difference(self, number: int) -> int | None:
        """Return where the first record begins that a source has otherwise than those before it; None: nowhere."""
        source = self.sources[number]
        for start, end in source.sound:
            for piece in _reaching_into(self.pieces, start, end):
                low, high = max(start, piece.start), min(end, piece.end)
                at = self._compare(low, high, number, piece.source)
                if at is not None:
                    self.conflicts.append(Conflict(at, self.sources[piece.source].name, source.name))
                    return _record_around(source, at)
        return None

    def _compare(self, low: int, high: int, number: int, other: int) -> int | None:
        """Return the first offset in [low, high) where two sources differ; the padding of a blank record is nothing."""
        pairs = (self.sources[number], self.sources[other])
        skipped = [
            Damage(filler.start + _BLANK, filler.end, "blank")
            for source in pairs
            for filler in _reaching_into(source.fillers, low, high)
        ]
        for start, end in _without([Range(low, high)], _sorted_apart(skipped), high):
            for at in range(start, end, _COMPARED):
                size = min(_COMPARED, end - at)
                one, two = (read_log(source.store, at, size) for source in pairs)
                if one != two:
                    return at + next(i for i in range(size) if one[i : i + 1] != two[i : i + 1])
        return None


def _record_around(source: Source, offset: int) -> int:
    with RecordReader(source.store) as log:
        spot = log.locate(offset)
    if spot.kind == "record" and spot.segment.lead:
        return spot.start - spot.segment.lead
    return spot.start


def read_log(store: Store, offset: int, size: int) -> bytes:
    """Return bytes of a store's log, within one segment; fewer where its file ends.

    What the system refuses to read is zeros; none are returned where the file cannot be opened.
    """
    segment = store.segment_at(offset)
    if segment is None:
        return b""
    try:
        with open_file(segment) as reader:
            return LenientReader(reader, segment).read(offset - segment.base, size)
    except Unreadable:
        return b""
