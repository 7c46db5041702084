"""What the salvaged log holds at which offset: sound bytes, repaired records, bridges; and what is not taken over.

    sources   |sssssssssssss|????????????????????|ssssssssss|??????????????| zeros
    holes                   |                    |          |              |
      walk                  |repaired|  ?  |repaired|       |repaired|  ?
    plan      |copied       |raw     |bridge|raw |copied    |raw     | the log ends here

A hole is walked from place to place where a record may begin: its first byte, the places that queue units name, and
frames that stand at their own offset. What no source repairs there is bridged; a tail is not, unless a message is
known to have been there: then its queue offset and its physical offset are not given to another one.

Invariants: pieces of the plan ascend and touch, from the first segment's base to the log's end; each lies in one
segment; every sound byte of `Composite` is in one, but for a record that the gap behind it contradicts.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

from msgspec import Struct, field
from msgspec.structs import replace

from rmqinspect.codec.layout import ParsedFields, walk_fields
from rmqinspect.commitlog.record_reader import OpenSegment, RecordReader
from rmqinspect.damage.single_field import LOOK_AHEAD, find_repair
from rmqinspect.errors import Refused, Unreadable
from rmqinspect.rescue.bridge import SMALLEST, SMALLEST_AT_END
from rmqinspect.rescue.contradicted import OF_TEXTS, Contradicted
from rmqinspect.rescue.ledger_bridge import Entries
from rmqinspect.rescue.repair import Change, Repaired, proves, repair_record
from rmqinspect.rescue.sources import CUT, Composite, Range, Source, read_log
from rmqinspect.rescue.units import Units
from rmqinspect.schemas import message
from rmqinspect.text import group_digits

UNREADABLE = "a record that the broker of this release cannot read: a long topic, or IPv6 hosts"
_CONTRADICTED = "what is around it contradicts it"
_HEAD = 128  # bytes: the head of any record
_FIRST_TIME = 1 << 40  # ms: 2004, before the first broker
_BLANK: int = message.Blank.sizeof()
_MOST_MISSING = 4096  # segments between two that are there
_MOST_STEPS = 200_000  # places of one hole that are looked at: crafted bytes may be nothing but heads


class Lost(Struct, frozen=True):
    """What could not be saved: bytes [start, end) of the log, as far as a message of it can be told."""

    start: int
    end: int
    why: str
    source: int | None  # whose bytes go aside; None: no source has any
    topic: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    certain: bool = False  # its unit, or lengths that add up, say which message it was
    fields: ParsedFields | None = None


class Kept(Struct, frozen=True):
    """Bytes [start, end) of the plan."""

    start: int
    end: int
    source: int | None = None  # copied from it
    raw: bytes | None = None  # or these
    bridge: bool = False  # or a bridge
    timestamp: int = 0  # of a bridge, ms
    entries: Entries | None = None  # of a bridge of a DLedger log


class LogPlan(Struct):
    """The log that is written."""

    size: int  # bytes of a segment
    pieces: list[Kept] = field(default_factory=list)
    repaired: list[tuple[Repaired, int]] = field(default_factory=list)  # and the number of the source
    blanks: list[Change] = field(default_factory=list)  # blank records that were mended
    lost: list[Lost] = field(default_factory=list)
    in_doubt: int = 0  # records whose keys or tags the index or a unit contradicts: which is right is not known
    last_entry: tuple[int, int] | None = None  # index and term of that of a DLedger log

    @property
    def end(self) -> int:
        """Physical offset behind the last byte."""
        return self.pieces[-1].end if self.pieces else 0

    @property
    def bridged(self) -> list[Range]:
        """The bridges."""
        return [Range(piece.start, piece.end) for piece in self.pieces if piece.bridge]

    def segments(self) -> Iterator[tuple[int, list[Kept]]]:
        """Yield (base, pieces) of each segment, from the first to that in which the log ends."""
        for number, pieces in groupby(self.pieces, lambda piece: piece.start // self.size):
            yield number * self.size, list(pieces)


class Planner:
    """Makes the plan from what the sources have sound."""

    def __init__(
        self,
        composite: Composite,
        size: int,
        *,
        repairs: bool,
        refused: Sequence[Range] = (),
        reads: Callable[[bytes], bool] = lambda record: True,
    ) -> None:
        """`refused`: sound records that the broker cannot read; they are no part of the composite any more.

        `reads`: whether the broker can read a record that was repaired.
        """
        self._reads = reads
        self._composite, self._sources = composite, composite.sources
        self._repairs = repairs
        self._refused = {one.start: one.end for one in refused}
        self.plan = LogPlan(size)
        self.notes: list[str] = []  # for the receipt
        self._begin = composite.pieces[0].start - composite.pieces[0].start % size
        self._holes = list(self._find_holes())
        suspects = [Range(place, place + 1) for source in self._sources for place in source.suspects]
        tail = [Range(composite.end, 2**62)]
        self._units = Units(self._sources, [*self._holes, *suspects, *tail])
        self._contradicted = Contradicted(self._sources, self._units)

    def make(self) -> LogPlan:
        """Return the plan."""
        holes = iter([*self._holes, None])
        hole = next(holes)
        for piece in self._cut_at_segments():
            while hole is not None and hole.start < piece.start:
                self._walk(hole)
                hole = next(holes)
            self._keep(piece)
        while hole is not None:
            self._walk(hole)
            hole = next(holes)
        self._take_tail()
        self._settle()
        return self.plan

    # --- what is sound ----------------------------------------------------------------------------

    def _find_holes(self) -> Iterator[Range]:
        """Yield what no source has sound, from the first segment's base to the last sound byte, cut at segments."""
        at, size = self._begin, self.plan.size
        ends = [source.end if source.taken_until is None else source.taken_until for source in self._sources]
        last = max(self._composite.end, *(end for end in ends))
        for start, end in [*((one.start, one.end) for one in self._composite.pieces), (last, last)]:
            if (start - at) // size > _MOST_MISSING:
                raise Refused(
                    f"{group_digits((start - at) // size)} segments are missing between physical offsets "
                    f"{group_digits(at)} and {group_digits(start)}: a file there is of another log; leave it out"
                )
            while at < start:
                border = min(start, at - at % size + size)
                yield Range(at, border)
                at = border
            at = max(at, end)

    def _cut_at_segments(self) -> Iterator[Kept]:
        size = self.plan.size
        for start, end, source in self._composite.pieces:
            at = start
            while at < end:
                border = min(end, at - at % size + size)
                yield Kept(at, border, source)
                at = border

    def _keep(self, piece: Kept) -> None:
        """Keep sound bytes; records in them whose heads a unit contradicts are repaired."""
        assert piece.source is not None
        source, at = self._sources[piece.source], piece.start
        fields = walk_fields(message.Message.subcons, self._bytes_of(piece, at, min(piece.end, at + _HEAD)), at)
        if fields.number("magic") in message.RECORD_MAGICS and fields.number("store_timestamp") < _FIRST_TIME:
            source.suspects.setdefault(at, "CL-TIME")  # no record before it says so
        suspects = sorted(place for place in source.suspects if piece.start <= place < piece.end)
        for place in suspects if self._repairs else ():
            repaired = self._contradicted.repair(source, place)
            denied = None if repaired else self._units.denied(read_log(source.store, place, _HEAD), place)
            if denied is not None and at <= place and (end := place + denied.size) <= piece.end:
                why = "its SYSFLAG is damaged: its queue has a unit that leads here"
                what = denied.topic, denied.queue_id, denied.queue_offset, True
                self.plan.pieces += [Kept(at, place, piece.source), Kept(place, end, bridge=True)][at == place :]
                self.plan.lost.append(Lost(place, end, why, piece.source, *what))
                at = end
                continue
            if repaired is None or not at <= place <= piece.end - len(repaired.raw):
                self.plan.in_doubt += source.suspects[place] in OF_TEXTS
                continue
            if at < place:
                self.plan.pieces.append(Kept(at, place, piece.source))
            self._take_repaired(repaired, piece.source)
            at = place + len(repaired.raw)
        if at < piece.end:
            self.plan.pieces.append(Kept(at, piece.end, piece.source))

    def _take_repaired(self, repaired: Repaired, source: int) -> None:
        self.plan.repaired.append((repaired, source))
        place = repaired.place
        self.plan.pieces.append(Kept(place, place + len(repaired.raw), source, repaired.raw))

    # --- holes ------------------------------------------------------------------------------------

    def _walk(self, hole: Range) -> None:
        """Repair what can be, from place to place where a record may begin; the rest is lost."""
        at = hole.start
        segment_end = at - at % self.plan.size + self.plan.size
        for _ in range(_MOST_STEPS):
            if at >= hole.end:
                return
            if self._take_blank(at, hole.end, segment_end):
                return
            following = self._refused.get(at)
            if following is None:
                size = self._repair_at(at, hole.end, segment_end)
                if size is not None:
                    at += size
                    continue
                following = self._refused.get(at, min(self._next_place(at, hole.end), hole.end))
            self._lose(at, following)
            at = following
        if at < hole.end:
            self._lose(at, hole.end)

    def _holding(self, place: int) -> Iterator[tuple[int, Source]]:
        """Yield the sources that have bytes at a place which they do not prove, and which are no older life's."""
        for number, source in enumerate(self._sources):
            if source.taken_until is not None and place >= source.taken_until:
                continue
            segment = source.store.segment_at(place)
            damage = source.damage_at(place)
            if segment is not None and (damage is None or damage.kind not in ("stale", "bridge")):
                yield number, source

    def _repair_at(self, place: int, end: int, segment_end: int) -> int | None:
        """Repair the record that begins at a place, from the first source that has enough of it; return its size."""
        for number, source in self._holding(place) if self._repairs else ():
            damage = source.damage_at(place)
            if damage is not None and damage.kind == CUT:
                continue
            raw = read_log(source.store, place, min(LOOK_AHEAD, segment_end - place))
            unit = self._units.believed(place, raw[: message.FIXED_SIZE])
            found = repair_record(raw, place, segment_end - place, end - place, unit)
            if found is None and damage is not None and damage.kind == "record":
                found = self._contradicted.repair_text(_frame(raw, place)[0], place, unit)
            elif found is not None:
                found = self._contradicted.with_rest(found, source, unit)
            if found is None and proves(*_frame(raw, place)):
                found = Repaired(place, _frame(raw, place)[0], ())  # sound, though its source could not be walked to it
            if found is not None and place + len(found.raw) <= end:
                if not self._reads(found.raw):
                    self._refused[place] = place + len(found.raw)
                    return None
                self._take_repaired(found, number)
                return len(found.raw)
        return None

    def _take_blank(self, place: int, end: int, segment_end: int) -> bool:
        """Mend the blank record that ends a segment, if it is one but for its size or its magic."""
        if end != segment_end:
            return False
        for _, source in self._holding(place):
            raw = read_log(source.store, place, _BLANK)
            damage = source.damage_at(place)
            repair = find_repair(raw, place, segment_end - place, wraps=False, end=end - place)
            if (damage is not None and damage.kind == "blank") or (repair is not None and repair.topic is None):
                right = message.Blank.build({"total_size": segment_end - place, "magic": message.MAGIC_BLANK})
                self.plan.blanks.append(
                    Change("blank record", place, raw, right, "the bytes that are left in the segment")
                )
                self.plan.pieces.append(Kept(place, end, None, right))
                return True
        return False

    def _next_place(self, place: int, end: int) -> int:
        """Return where behind a place the next record may begin: a unit leads there, or a frame stands there."""
        places = [end]
        following = self._units.following(place)
        if following is not None:
            places.append(following)
        for _, source in self._holding(place):
            segment = source.store.segment_at(place)
            if segment is None:
                continue
            try:
                opened = OpenSegment(segment)
            except Unreadable:
                continue
            try:
                frame = opened.next_frame(place + 1, end)
            except Unreadable:
                frame = None
            finally:
                opened.file.close()
            if frame is not None:
                places.append(frame.start)
        return min(places)

    def _lose(self, start: int, end: int) -> None:
        """Note what is lost in [start, end), and bridge it."""
        self.plan.lost.append(self._describe(start, end))
        last = self.plan.pieces[-1] if self.plan.pieces else None
        size = self.plan.size
        if (
            last is not None
            and last.bridge
            and last.end == start
            and last.start - last.start % size == start - start % size
        ):
            self.plan.pieces[-1] = Kept(last.start, end, bridge=True)
        else:
            self.plan.pieces.append(Kept(start, end, bridge=True))

    def _describe(self, start: int, end: int) -> Lost:
        unit = self._units.at(start)
        found: Lost | None = None
        for number, source in self._holding(start):
            raw = read_log(source.store, start, min(end - start, LOOK_AHEAD))
            if not any(raw):
                continue
            damage = source.damage_at(start)
            code = "" if damage is None else damage.code
            fields = walk_fields(message.Message.subcons, raw, start)
            in_place = fields.number("physical_offset") == start and fields.number("magic") in message.RECORD_MAGICS
            whole = in_place and fields.reason is None and fields.number("total_size") == end - start
            refused = _CONTRADICTED if self._reads(raw) else UNREADABLE
            why = {
                "CL-CRC-BODY": "the body's CRC does not match",
                "CL-CRC-RECORD": "the record's CRC does not match",
                "CL-FIELD": "a field has a value that no broker writes",
                CUT: "its last properties are zeros",
            }
            found = Lost(
                start,
                end,
                refused if start in self._refused else why.get(code, "no record proves itself here"),
                number,
                fields.topic if whole else None,
                fields.number("queue_id") if whole else None,
                fields.number("queue_offset") if whole else None,
                whole,
                fields if in_place else None,
            )
            break
        if found is None:
            missing = not any(source.store.segment_at(start) for source in self._sources)
            found = Lost(start, end, "no source has this part of the log" if missing else "zeros", None)
        if unit is not None:
            found = replace(found, topic=unit.topic, queue_id=unit.queue_id, queue_offset=unit.queue_offset)
            found = replace(found, certain=True)
        return found

    # --- behind the last sound byte ---------------------------------------------------------------

    def _take_tail(self) -> None:
        """Repair what follows the log's end as far as it proves itself; bridge messages that are known to be lost."""
        at, size = self.plan.end, self.plan.size
        while self._is_damaged(at):
            segment_end = at - at % size + size
            found = self._repair_at(at, segment_end - _BLANK, segment_end)
            if found is None:
                break
            at += found
        end = self._end_of_tail(at)
        while at < end:
            border = min(end, at - at % size + size)
            if border % size and border - at < SMALLEST:
                return
            self._walk(Range(at, border))
            at = border

    def _end_of_tail(self, end: int) -> int:
        """Return where the messages end that are known to have followed the log's end, each near the one before it."""
        size = self.plan.size
        for _, source in self._holding(end):
            fields = walk_fields(message.Message.subcons, read_log(source.store, end, LOOK_AHEAD), end)
            claimed = fields.number("total_size")
            torn = fields.number("magic") in message.RECORD_MAGICS and fields.number("physical_offset") == end
            if torn and message.FIXED_SIZE < claimed <= min(LOOK_AHEAD, size - _BLANK - end % size):
                end += claimed
        for place in self._units.places[bisect_left(self._units.places, self.plan.end) :]:
            # A damaged unit may point anywhere: between two messages lies at most a larger one, or a segment's end.
            if place > end + LOOK_AHEAD and place != end - end % size + size:
                break
            unit = self._units.at(place)
            if unit is not None and message.FIXED_SIZE < unit.size <= min(LOOK_AHEAD, size - _BLANK - place % size):
                end = max(end, place + unit.size)
        return end

    def _is_damaged(self, place: int) -> bool:
        found = (source.damage_at(place) for source in self._sources)
        return any(one is not None and one.kind == "gap" for one in found)

    # --- bridges ----------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Give each bridge its time, and room: what is too small for one takes in the record before it."""
        pieces, settled = self.plan.pieces, []
        for number, piece in enumerate(pieces):
            piece = pieces[number]
            if not piece.bridge:
                if piece.start < piece.end:
                    settled.append(piece)
                continue
            at_end = piece.end % self.plan.size == 0
            start = piece.start
            needed = SMALLEST_AT_END if at_end else SMALLEST
            while piece.end - start < needed:
                if settled and settled[-1].end == start and start % self.plan.size:
                    start = self._start_of_last(settled, start)
                elif number + 1 < len(pieces) and pieces[number + 1].start == piece.end:
                    piece = Kept(start, self._take_first(pieces, number + 1), bridge=True)
                else:
                    break
            time = self._time_behind(pieces[number + 1 :]) or self._time_before(settled) or 0
            settled.append(Kept(start, piece.end, bridge=True, timestamp=time))
        self.plan.pieces = settled

    def _start_of_last(self, settled: list[Kept], start: int) -> int:
        """Take the last record out of what was kept: a broker leaves no such gap behind a record."""
        last = settled[-1]
        if last.raw is not None or last.source is None:
            settled.pop()
            begin = last.start
        else:
            source = self._sources[last.source]
            with RecordReader(source.store) as log:
                near = next(log.opened(source.store.segment_at(start - 1)).frames_before(start), None)  # type: ignore[arg-type]
            begin = last.start if near is None else max(near.start, last.start)
            settled.pop()
            if last.start < begin:
                settled.append(Kept(last.start, begin, last.source))
        fields = walk_fields(message.Message.subcons, self._bytes_of(last, begin, start), begin)
        self.plan.lost.append(
            Lost(
                begin,
                start,
                "the record ends where no other begins, so that its sizes are wrong",
                last.source,
                fields.topic,
                fields.number("queue_id"),
                fields.number("queue_offset"),
                True,
                fields,
            )
        )
        return begin

    def _take_first(self, pieces: list[Kept], number: int) -> int:
        """Take the first record out of what follows the beginning of a segment; return where it ends."""
        following = pieces[number]
        fields = walk_fields(message.Message.subcons, self._bytes_of(following, following.start, following.end))
        size = fields.number("total_size")
        end = following.start + size if message.FIXED_SIZE < size < following.end - following.start else following.end
        if following.source is not None:
            why = "nothing can stand before it in its segment, so that its place is wrong"
            lost = Lost(following.start, end, why, following.source, fields.topic, fields=fields)
            self.plan.lost.append(lost)
        pieces[number] = replace(following, start=end, raw=None if following.raw is None else following.raw[size:])
        return end

    def _bytes_of(self, piece: Kept, start: int, end: int) -> bytes:
        if piece.raw is not None:
            return piece.raw[start - piece.start : end - piece.start]
        return b"" if piece.source is None else read_log(self._sources[piece.source].store, start, end - start)

    def _time_behind(self, pieces: Sequence[Kept]) -> int | None:
        for piece in pieces[:4]:
            if not piece.bridge:
                fields = walk_fields(
                    message.Message.subcons, self._bytes_of(piece, piece.start, min(piece.end, piece.start + _HEAD))
                )
                if fields.number("magic") in message.RECORD_MAGICS:
                    return fields.number("store_timestamp")
        return None

    def _time_before(self, settled: Sequence[Kept]) -> int | None:
        for piece in reversed(settled[-4:]):
            if piece.raw is not None and len(piece.raw) > _BLANK:
                return walk_fields(message.Message.subcons, piece.raw).number("store_timestamp")
            if piece.source is not None and piece.raw is None:
                store = self._sources[piece.source].store
                segment = store.segment_at(piece.end - 1)
                if segment is None:
                    continue
                with RecordReader(store) as log:
                    near = next(log.opened(segment).frames_before(piece.end), None)
                if near is not None:
                    return near.head.store_timestamp
        return None


def _frame(raw: bytes, place: int) -> tuple[bytes, int]:
    """Return the bytes of the record that some bytes begin with, as far as its size is believed, and its place."""
    size = int.from_bytes(raw[:4], "big", signed=True)
    return (raw[:size] if message.FIXED_SIZE < size <= len(raw) else b"\0" * message.FIXED_SIZE), place
