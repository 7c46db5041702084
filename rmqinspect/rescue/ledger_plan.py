"""What the salvaged log of a DLedger group holds at which offset: as `log_plan`, entry by entry.

    chain     |17 18 19|          |22 23 24|         |25 26 .. blank|      sound entries that belong together
    hole               |????|?????|
      walk             |20  |bridge                                         repaired: its record, or its head
    counted                  21                                             22 - 20 - 1: one entry was lost here

What is lost is counted by the entries around it, and a bridge gets as many entries (`ledger_bridge`). What does not
belong to the chain (`ledger_chain`) is no part of the log: a damaged head is put right, an earlier life stays out.

Repaired with proof, beside what `repair` proves of a record: the fields of an entry's head. Magic, size, position and
size of the body are those of the record in it; the index is the one that the entry before leaves, or that behind;
the term is that of both.

Invariants: those of `log_plan`; and the indexes of the entries that are written count up, through bridges, too.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter

from msgspec import Struct
from msgspec.structs import replace

from rmqinspect.codec.layout import walk_fields
from rmqinspect.damage.patterns import one_flip
from rmqinspect.damage.single_field import LOOK_AHEAD
from rmqinspect.errors import Refused
from rmqinspect.rescue.ledger_bridge import BLANK, HEAD, SMALLEST_ENTRY, Entries, most_entries
from rmqinspect.rescue.ledger_chain import Run, choose_chain, fits, joined, parts_of, runs_of
from rmqinspect.rescue.ledger_index import LedgerIndex
from rmqinspect.rescue.log_plan import UNREADABLE, Kept, Lost, Planner
from rmqinspect.rescue.repair import Change, Repaired, proves, repair_record
from rmqinspect.rescue.sources import CUT, Composite, Piece, Range, read_log
from rmqinspect.schemas import message
from rmqinspect.schemas.dledger import ENTRY_MAGIC_BLANK, ENTRY_MAGICS, EntryBlank, EntryHead
from rmqinspect.schemas.places import place_of, span_of
from rmqinspect.text import group_digits

_START, _END = attrgetter("start"), attrgetter("end")
_NAMES = {
    "magic": "the entry's magic",
    "size": "the entry's size",
    "index": "the entry's index",
    "term": "the entry's term",
    "position": "the entry's position",
    "body_size": "the entry's body size",
}
_FROM_INDEX = "the unit of the DLedger index that leads here"
_FROM_RECORD = "that of the record in the entry, which proves itself"


class _Around(Struct, frozen=True):
    """The entries around a place, None at an end of the log."""

    before: Run | None
    after: Run | None


class LedgerPlanner(Planner):
    """Makes the plan of a DLedger log from what the sources have sound."""

    def __init__(
        self,
        composite: Composite,
        size: int,
        *,
        repairs: bool,
        refused: Sequence[Range] = (),
        reads: Callable[[bytes], bool] = lambda record: True,
    ) -> None:
        """As for `Planner`; `refused` are entries. What does not belong to the chain is taken out of `composite`.

        :raises Refused: entries without a record, as no released broker writes them.
        """
        for source in composite.sources:
            for filler in source.fillers:
                if filler.end % size:
                    raise Refused(f"{source.name}: an entry without a record at {filler.start}: no release reads it")
        runs = list(joined(runs_of(composite, size)))
        self._known = choose_chain(runs, size)
        if not self._known:
            raise Refused("no entry of the DLedger log is sound")
        self._index = LedgerIndex([source.store for source in composite.sources])
        self._distrust_last()
        self._chain = tuple(self._known)
        told = list(self._keep_chain(composite, runs))
        super().__init__(composite, size, repairs=repairs, refused=refused, reads=reads)
        self.notes += told

    def _keep_chain(self, composite: Composite, runs: Sequence[Run]) -> Iterator[str]:
        """Leave the chain alone in the sound bytes, and the blanks of its files; yield what is told of that."""
        last, kept = self._known[-1], set(self._known)
        if behind := sum(run.count for run in runs if run not in kept and run.start >= last.end):
            what = "their indexes do not follow that of the entry before"
            yield f"entries that stand behind {group_digits(last.end)}: {group_digits(behind)}; {what}"
        pieces: list[Piece] = []
        for number, source in enumerate(composite.sources):
            blanks = [filler for filler in source.fillers if filler.start <= last.end]
            wanted = sorted([*(Range(run.start, run.end) for run in self._known), *blanks])
            for piece in composite.pieces:
                at = bisect_right(wanted, piece.start, key=_END) if piece.source == number else len(wanted)
                while at < len(wanted) and wanted[at].start < piece.end:
                    low, high = max(wanted[at].start, piece.start), min(wanted[at].end, piece.end)
                    pieces.append(Piece(low, high, number))
                    at += 1
        composite.pieces = list(_touching(sorted(pieces)))

    def _distrust_last(self) -> None:
        """Take a last entry out of the chain of which the index knows another term: nothing behind it shows that."""
        if len(self._known) > 1 and self._known[-1].count == 1:
            last = self._known[-1]
            unit = self._index.unit_at(last.start, self._known[-2], None)
            same = unit is not None and (unit.index, unit.size) == (last.index, last.end - last.start)
            if same and unit is not None and unit.term != last.term:
                self._known.pop()

    def _find_holes(self) -> Iterator[Range]:
        # Behind the chain nothing is known to have followed: `_take_tail` looks there.
        for hole in super()._find_holes():
            if hole.start < self._composite.end:
                yield hole

    # --- holes ------------------------------------------------------------------------------------

    def _around(self, start: int, end: int) -> _Around:
        """Return the known entries that end and begin next to [start, end)."""
        before = bisect_right(self._known, start, key=_END) - 1
        after = bisect_left(self._known, end, key=_START)
        return _Around(
            self._known[before] if before >= 0 else None, self._known[after] if after < len(self._known) else None
        )

    def _take_blank(self, at: int, end: int, segment_end: int) -> bool:
        """Mend the blank that ends a file: no entry is missing there, or it is one but for one bit."""
        around = self._around(at, end)
        if end != segment_end or end - at < BLANK or around.before is None:
            return False
        right = EntryBlank.build({"magic": ENTRY_MAGIC_BLANK, "total_size": end - at})
        raw = next((read_log(source.store, at, BLANK) for _, source in self._holding(at)), b"")
        follow = around.after is not None and around.after.index == around.before.last + 1
        if not follow or around.before.end != at:
            is_near = around.after is None and len(raw) == BLANK and one_flip(raw, right) is not None
            if not is_near:
                return False
        if raw != right:
            proof = "the indexes of the entries around it follow each other" if follow else "the bytes left in the file"
            found = raw if len(raw) == BLANK else bytes(BLANK)
            self.plan.blanks.append(
                Change("blank", at, found, right, proof if follow else "the bytes left in the file")
            )
        self.plan.pieces.append(Kept(at, end, None, right))
        return True

    def _repair_at(self, place: int, end: int, segment_end: int) -> int | None:
        """Repair the entry that begins at a place; return its size."""
        for number, source in self._holding(place) if self._repairs else ():
            damage = source.damage_at(place)
            if damage is not None and damage.kind == CUT:
                continue
            raw = read_log(source.store, place, min(LOOK_AHEAD, segment_end - place))
            if len(raw) < SMALLEST_ENTRY:
                continue
            for size in self._sizes(raw, place, end):
                body = raw[HEAD : HEAD + size]
                found = Repaired(place + HEAD, body, ())
                if not proves(body, place + HEAD):
                    unit = self._units.believed(place + HEAD, body[: message.FIXED_SIZE])
                    fixed = repair_record(body, place + HEAD, segment_end - place - HEAD, size, unit)
                    if fixed is None or len(fixed.raw) != size:
                        continue
                    found = fixed
                entry = self._entry(raw[:HEAD], found, end)
                if entry is None:
                    continue
                if not self._reads(found.raw):
                    self._refused[place] = place + len(entry.raw)
                    return None
                self._take_repaired(entry, number)
                self._note_known(entry)
                return len(entry.raw)
        return None

    def _sizes(self, raw: bytes, place: int, end: int) -> list[int]:
        """Return what the size of the record at a place may be: the entry's head, the record, the next one say it."""
        head = EntryHead.parse(raw[:HEAD])
        own = int.from_bytes(raw[HEAD : HEAD + 4], "big", signed=True)
        said = [head.size - HEAD, head.body_size, own, self._next_place(place, end) - place - HEAD]
        most = min(len(raw), end - place) - HEAD
        return list(dict.fromkeys(size for size in said if message.FIXED_SIZE < size <= most))

    def _entry(self, head: bytes, record: Repaired, end: int) -> Repaired | None:
        """Return a sound record with the head of its entry, put right; None where nothing proves what it was."""
        place, size = record.place - HEAD, len(record.raw)
        behind = place + HEAD + size
        around = self._around(place, behind)
        before, after = around.before, around.after
        found, unit = EntryHead.parse(head), self._index.unit_at(place, *self._bounds(place, behind))
        right = {"magic": ENTRY_MAGICS[0], "size": size + HEAD, "position": place, "body_size": size}
        proofs = dict.fromkeys(right, _FROM_RECORD)
        if before is not None and before.end == place:
            index, proofs["index"] = before.last + 1, "the entry before it has the index before"
        elif after is not None and after.start == behind:
            index, proofs["index"] = after.index - 1, "the entry behind it has the next index"
        elif unit is not None:
            index, proofs["index"] = unit.index, _FROM_INDEX
        else:
            index = found.index
        low = 0 if before is None else before.term
        high = max(low, found.term) if after is None else after.term
        if low == high:
            term, proofs["term"] = low, "the term of the entries around it"
        elif unit is not None and unit.index == index and low <= unit.term <= high:
            term, proofs["term"] = unit.term, _FROM_INDEX
        elif low <= found.term <= high:
            term = found.term
        else:
            return None
        right |= {"index": index, "term": term}
        run = Run(place, behind, index, 1, term)
        if not self._fits(run, before, after):
            return None
        changed, changes = bytearray(head), []
        for name, value in right.items():
            span = _span(name)
            raw = value.to_bytes(span.stop - span.start, "big", signed=True)
            if raw != head[span]:
                changes.append(Change(_NAMES[name], place_of(EntryHead, name), head[span], raw, proofs[name]))
                changed[span] = raw
        # The entry of an earlier life may stand where the next one would: more than one bit is no flip.
        is_far = any(one.field == _NAMES["index"] and one.bit is None for one in changes)
        if after is None and is_far and (unit is None or unit.index != index):
            return None
        moved = tuple(change._replace(at=change.at + HEAD) for change in record.changes)
        return Repaired(place, bytes(changed) + record.raw, (*changes, *moved), HEAD)

    def _fits(self, run: Run, before: Run | None, after: Run | None) -> bool:
        size = self.plan.size
        if before is not None and not fits(before.end, run.start, run.index - before.last - 1, size):
            return False
        return after is None or fits(run.end, after.start, after.index - run.index - 1, size)

    def _note_known(self, entry: Repaired) -> None:
        head = EntryHead.parse(entry.raw[:HEAD])
        run = Run(entry.place, entry.place + len(entry.raw), head.index, 1, head.term)
        self._known.insert(bisect_left(self._known, run.start, key=_START), run)

    def _next_place(self, place: int, end: int) -> int:
        """Return where behind a place the next entry may begin."""
        places = [end, max(place + 1, super()._next_place(place + HEAD, end + HEAD) - HEAD)]
        places += [place + size for _, source in self._holding(place) for size in self._claimed(source.store, place)]
        places += self._index.following(place, *self._bounds(place, end))
        # A queue unit or a frame leads to a record, whose entry begins before it; at the hole's end none does.
        return min(one for one in places if place < one <= end)

    def _bounds(self, start: int, end: int) -> tuple[Run | None, Run | None]:
        """Return the runs of the chain around [start, end): what was repaired between them is none."""
        before, after = bisect_right(self._chain, start, key=_END), bisect_left(self._chain, end, key=_START)
        return self._chain[before - 1] if before else None, self._chain[after] if after < len(self._chain) else None

    def _claimed(self, store: object, place: int) -> Iterator[int]:
        """Yield the size of the entry at a place, if its head agrees with itself."""
        raw = read_log(store, place, HEAD)  # type: ignore[arg-type]
        if len(raw) == HEAD:
            head = EntryHead.parse(raw)
            sizes = head.size == head.body_size + HEAD >= SMALLEST_ENTRY
            if sizes and head.position == place and head.magic == ENTRY_MAGICS[0]:
                yield head.size

    def _describe(self, start: int, end: int) -> Lost:
        found = super()._describe(start + HEAD, end) if end - start > HEAD else super()._describe(start, end)
        why = UNREADABLE if start in self._refused else found.why
        return replace(found, start=start, end=end, why=why)

    # --- behind the last sound entry ----------------------------------------------------------------

    def _take_tail(self) -> None:
        at, size = self.plan.end, self.plan.size
        while True:
            segment_end = at - at % size + size
            found = self._repair_at(at, segment_end - BLANK, segment_end)
            if found is None:
                break
            at += found
        end = self._end_of_tail(at)
        for part in parts_of(at, end, size):
            self._walk(part)

    def _end_of_tail(self, end: int) -> int:
        before = self._known[-1]
        end = max([end, *(unit.position + unit.size for unit in self._index.behind(before, end, self.plan.size))])
        for _, source in self._holding(end):
            raw = read_log(source.store, end, HEAD)
            fits_behind = len(raw) == HEAD and EntryHead.parse(raw).index == before.last + 1
            for size in self._claimed(source.store, end) if fits_behind else ():
                if end % self.plan.size + size <= self.plan.size - BLANK:
                    end += size
        found = super()._end_of_tail(end)
        # A bridge has to hold an entry.
        return found if found - end >= SMALLEST_ENTRY or found == end else end

    # --- bridges ----------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Give each bridge its entries: as many as are missing between those around it."""
        settled: list[Kept] = []
        stretch: list[Kept] = []
        for piece in [*self.plan.pieces, None]:
            if piece is not None and piece.bridge:
                stretch.append(piece)
                continue
            if stretch and (piece is None or self._holds_entries(piece)):
                settled += self._counted(stretch)
                stretch = []
            elif stretch and piece is not None:
                # A blank behind lost entries, before more of them.
                stretch.append(piece)
                continue
            if piece is not None and piece.start < piece.end:
                settled.append(piece)
        self.plan.pieces = settled
        bridged = [one.entries.index + one.entries.count - 1 for one in settled if one.entries and one.entries.count]
        self.plan.last_entry = max([self._known[-1].last, *bridged]), self._known[-1].term

    def _holds_entries(self, piece: Kept) -> bool:
        at = bisect_right(self._known, piece.start, key=_END)
        return at < len(self._known) and self._known[at].start < piece.end

    def _counted(self, stretch: list[Kept]) -> Iterator[Kept]:
        """Yield the pieces between two known entries, the bridges among them with their entries.

        :raises Refused: the entries around them leave room for others than there can have been.
        """
        start, end, size = stretch[0].start, stretch[-1].end, self.plan.size
        around = self._around(start, end)
        before, after = around.before, around.after
        bridges = [piece for piece in stretch if piece.bridge]
        rooms = [most_entries(one.start, one.end, one.start - one.start % size + size) for one in bridges]
        least = [
            int(one.end % size != 0 or one.start % size == 0 or (before is not None and before.end != start))
            for one in bridges
        ]
        told = [sum(1 for lost in self.plan.lost if one.start <= lost.start < one.end) for one in bridges]
        counts = [min(room, max(low, some)) for room, low, some in zip(rooms, least, told, strict=True)]
        missing = sum(counts)
        if before is not None and after is not None:
            missing = after.index - before.last - 1
        elif after is not None:
            missing = after.index if start == 0 else min(missing, after.index)
        for number in (*range(len(counts)), *range(len(counts) - 1, -1, -1)):
            change = missing - sum(counts)
            counts[number] = max(least[number], min(rooms[number], counts[number] + change))
        if sum(counts) != missing:
            raise Refused(
                f"{group_digits(missing)} entries are missing between physical offsets {group_digits(start)} and "
                f"{group_digits(end)}, and there is no room for them: a file there is of another log; leave it out"
            )
        known = before or after
        assert known is not None, "a plan has an entry"
        index = before.last + 1 if before is not None else known.index - missing
        timestamp = self._time_of(known)
        for piece in stretch:
            if piece.bridge:
                number = counts.pop(0)
                yield replace(piece, entries=Entries(index, number, known.term), timestamp=timestamp)
                index += number
            else:
                yield piece

    def _time_of(self, run: Run) -> int:
        """Return the store time in ms of the first record of some entries."""
        piece = next(one for one in self.plan.pieces if one.start <= run.start + HEAD < one.end)
        raw = self._bytes_of(piece, run.start + HEAD, min(piece.end, run.start + HEAD + 128))
        return walk_fields(message.Message.subcons, raw).number("store_timestamp")


def _touching(pieces: Iterable[Piece]) -> Iterator[Piece]:
    """Yield pieces, those joined that touch and are of one source."""
    last: Piece | None = None
    for piece in pieces:
        if last is not None and (last.end, last.source) == (piece.start, piece.source):
            last = last._replace(end=piece.end)
            continue
        if last is not None:
            yield last
        last = piece
    if last is not None:
        yield last


def _span(name: str) -> slice:
    return span_of(EntryHead, name)
