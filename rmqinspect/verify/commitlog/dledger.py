"""The entries that wrap the records of a DLedger log, and their index: DL-POSITION, DL-TERM, DL-INDEX.

Entries are numbered without gaps, their terms never fall, each knows its own place, and the index has
a unit for each. `EntryChain` follows the entries of a split, `join_chains` goes on from split to split.
Entries without a record (no-op, configuration change) and the blank that ends a file are stepped over.
Behind anything else nothing is known and nothing told: it is a finding of the commit log.

Entries behind the committed index are judged like the others: nothing in them says that they were not
committed.

Source: DLedgerMmapFileStore#recover, DLedgerEntryCoder, MmapFileList#append; library dledger 0.2 to 0.4.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from rmqinspect.codec.arrays import Bools, Ints, groups
from rmqinspect.codec.layout import dtype_of, parse
from rmqinspect.commitlog.records import Records
from rmqinspect.errors import BadRecord, Unreadable
from rmqinspect.schemas.dledger import ENTRY_MAGIC_BLANK, ENTRY_MAGICS, EntryBlank, EntryHead, EntryIndexUnit
from rmqinspect.store.model import Segment, StoreFile
from rmqinspect.store.reader import FileReader, open_file
from rmqinspect.verify.findings import Finding, capped_findings, unread_finding

Heads = np.ndarray[Any, np.dtype[Any]]

_HEAD_SIZE: int = EntryHead.sizeof()
_UNIT_SIZE: int = EntryIndexUnit.sizeof()
_WORDS = _UNIT_SIZE // 8

# A new leader writes one entry without a record: more in one place are no work of a broker.
_MOST_STEPS = 1000
# Where the numbers of entries are in disorder, so many runs of a batch are looked up in the index.
_MOST_RUNS = 64
# The place of a unit is a Java long; sums with it stay one.
_LAST_INDEX = (1 << 62) // _UNIT_SIZE
_NONE = -(1 << 63)  # no index of an entry

GOOD, WRONG, MISSING = range(3)  # an index unit


@dataclass(frozen=True, slots=True)
class Entry:
    """What a neighbour must know of an entry."""

    index: int
    term: int
    position: int  # physical offset of its head


@dataclass(slots=True)
class ChainEnds:
    """What the entries of a split told, and how they begin and end. It travels between processes."""

    segment: Segment
    first: Entry | None = None  # of those that wrap a record
    last: Entry | None = None
    # Where the entry behind the last one begins, and its index: blank and no-op entries are stepped over.
    next_position: int = -1
    next_index: int = _NONE
    other_index: int = _NONE  # the same if it is the last entry's index that is wrong
    entries: int = 0
    # The second entry's jump, not told yet: the entry before the split says which of the two is wrong.
    second: Finding | None = None
    before_second: int = _NONE
    findings: list[Finding] = field(default_factory=list)
    suppressed: Counter[str] = field(default_factory=Counter)  # more findings of a code, not kept
    unread: list[Finding] = field(default_factory=list)  # ST-IO
    unindexed: Finding | None = None  # the last entries, where the index has no unit for them: not told yet


class EntryChain:
    """Follows the entries of one split, given the records that they wrap."""

    def __init__(self, segment: Segment, index_files: Iterable[StoreFile], limit: int) -> None:
        """Take the store's files of kind `dledger_index`, none where they were not given.

        `limit` bounds the findings of a code.
        """
        self.segment = segment
        self.index_files = _by_base(index_files)
        self.kept = capped_findings(limit)
        self.ends = ChainEnds(segment, findings=self.kept.rows, suppressed=self.kept.suppressed)

    def take(self, records: Records) -> None:
        """Take the records of a stretch of the chain, in log order; none that are stale.

        What is taken begins where the last one ended, or behind entries without a record: across
        anything else no rule holds.
        """
        if not len(records):
            return
        heads = records.gather(dtype_of(EntryHead), records.starts - _HEAD_SIZE)
        place = records.base + records.starts - _HEAD_SIZE
        index, term = heads["index"].astype(np.int64), heads["term"].astype(np.int64)
        self._judge_positions(heads, place)
        follows = self._step_to(int(place[0]))
        disorder = self._judge_indexes(place, index, follows)
        self._judge_terms(place, term, follows)
        self._judge_units(heads, place, index, np.flatnonzero(~disorder))
        self._note(place, index, term, records.base + int(records.ends[-1]))

    def finish(self) -> ChainEnds:
        """Return what is told, when all records of the split were taken."""
        if self.ends.last is not None:
            self._step_to(None)
        return self.ends

    def _note(self, place: Ints, index: Ints, term: Ints, end: int) -> None:
        ends = self.ends
        if ends.first is None:
            ends.first = Entry(int(index[0]), int(term[0]), int(place[0]))
        ends.last = Entry(int(index[-1]), int(term[-1]), int(place[-1]))
        ends.next_position, ends.next_index = end, min(int(index[-1]), _LAST_INDEX) + 1
        ends.entries += len(place)

    # --- what stands between two records --------------------------------------------------------

    def _step_to(self, position: int | None) -> bool:
        """Step over entries without a record and a blank; return whether that leads to `position`.

        None: as far as they go.
        """
        ends = self.ends
        if ends.last is None or ends.next_position == position:
            return ends.last is not None
        try:
            with open_file(self.segment) as reader:
                for _ in range(_MOST_STEPS):
                    if ends.next_position == position or (size := self._skipped_size(reader)) == 0:
                        break
                    ends.next_position += size
        except Unreadable as error:
            self._note_unread(error)
        return ends.next_position == position

    def _skipped_size(self, reader: FileReader) -> int:
        """Return the size of the blank or the entry without a record where the next entry should begin; else 0."""
        at = self.ends.next_position - self.segment.base
        raw = reader.read(at, _HEAD_SIZE)
        left = reader.size - at
        try:
            blank = parse(EntryBlank, raw, lambda: self.segment.name)
            if blank.magic == ENTRY_MAGIC_BLANK:
                return left if blank.total_size == left else 0
            head = parse(EntryHead, raw, lambda: self.segment.name)
        except BadRecord:  # the file ends here
            return 0
        sound = head.position == self.ends.next_position and head.size == _HEAD_SIZE + head.body_size
        if head.magic not in ENTRY_MAGICS[1:] or not sound or not _HEAD_SIZE <= head.size <= left:
            return 0
        self.ends.next_index += 1
        self.ends.other_index += self.ends.other_index != _NONE
        return int(head.size)

    # --- rules ----------------------------------------------------------------------------------

    def _judge_positions(self, heads: Heads, place: Ints) -> None:
        own = heads["position"].astype(np.int64)
        for at in self.kept.admit("DL-POSITION", np.flatnonzero(own != place).tolist()):
            self._report(
                "DL-POSITION",
                "the entry's own position is not its place: a start that reads it ends the log here",
                int(place[at]),
                str(place[at]),
                str(own[at]),
            )

    def _judge_indexes(self, place: Ints, index: Ints, follows: bool) -> Bools:
        """Tell entries whose index is not the one behind the last; return which have a wrong one.

        One damaged index makes two jumps, away and back: only the first is told.
        """
        ends = self.ends
        expected = np.concatenate(([ends.next_index if follows else index[0]], index[:-1] + 1))
        jumps = index != expected
        # What the index is if it is the one before it that is wrong.
        healed = np.concatenate(([ends.other_index if follows else _NONE], expected[:-1] + 1))
        healed[1:][~jumps[:-1]] = _NONE
        wrong: Bools = jumps & (index != healed)
        ends.other_index = min(int(expected[-1]), _LAST_INDEX) + 1 if wrong[-1] else _NONE
        if ends.last is None and wrong[1:2].any():
            ends.before_second = int(index[1]) - 1
            want, found = f"index {expected[1]}", f"index {index[1]}"
            ends.second = _entry_finding(self.segment, "DL-TERM", _JUMP, int(place[1]), want, found)
            wrong[0], reported = True, np.flatnonzero(wrong[2:]) + 2
        else:
            reported = np.flatnonzero(wrong)
        for at in self.kept.admit("DL-TERM", reported.tolist()):
            self._report("DL-TERM", _JUMP, int(place[at]), f"index {expected[at]}", f"index {index[at]}")
        return wrong

    def _judge_terms(self, place: Ints, term: Ints, follows: bool) -> None:
        last = self.ends.last
        before = np.concatenate(([last.term if last is not None and follows else term[0]], term[:-1]))
        for at in self.kept.admit("DL-TERM", np.flatnonzero(term < before).tolist()):
            self._report("DL-TERM", _FALL, int(place[at]), f"term {before[at]} or higher", f"term {term[at]}")

    def _judge_units(self, heads: Heads, place: Ints, index: Ints, rows: Ints) -> None:
        """Compare the index units of the entries at `rows` with them."""
        rows = rows[(index[rows] >= 0) & (index[rows] < _LAST_INDEX)]
        wanted = np.zeros(len(place), dtype_of(EntryIndexUnit))
        for name in ("magic", "size", "index", "term"):
            wanted[name] = heads[name]
        wanted["position"] = place
        for first, behind in groups(index[rows] - np.arange(len(rows)))[:_MOST_RUNS]:
            run = rows[first:behind]
            try:
                for file, at, start, units in _read_units(self.index_files, int(index[run[0]]), len(run)):
                    self._compare(file, at, units, wanted[run[start : start + len(units)]])
            except Unreadable as error:
                self._note_unread(error)

    def _compare(self, file: StoreFile, at: int, units: Heads, wanted: Heads) -> None:
        """Compare consecutive units that begin at byte `at` of an index file."""
        words, right = (np.frombuffer(some.tobytes(), np.int64).reshape(-1, _WORDS) for some in (units, wanted))
        state = np.where((words == right).all(axis=1), GOOD, np.where(words.any(axis=1), WRONG, MISSING))
        if state.any() and not self.kept.room("DL-INDEX"):
            self.kept.suppressed["DL-INDEX"] += int(np.count_nonzero(state))
            return
        for first, behind in groups(state):
            if state[first] == GOOD:
                self._flush()
                continue
            what, expected, found = _explain_unit(units[first], wanted[first])
            finding = Finding(
                "DL-INDEX",
                what,
                file=file.name,
                offset=at + first * _UNIT_SIZE,
                length=(behind - first) * _UNIT_SIZE,
                physical_offset=int(wanted["position"][first]),
                count=behind - first,
                expected=expected,
                found=found,
            )
            if state[first] == MISSING:
                self._hold(finding)
            else:
                self._flush()
                self.kept.add(finding)

    # --- reporting ------------------------------------------------------------------------------

    def _hold(self, finding: Finding) -> None:
        """Hold entries without a unit back: if none with one follows up to the log's end, a start adds them."""
        held = self.ends.unindexed
        if held is not None and (held.file, (held.offset or 0) + (held.length or 0)) == (finding.file, finding.offset):
            length = (held.length or 0) + (finding.length or 0)
            self.ends.unindexed = replace(held, length=length, count=held.count + finding.count)
            return
        self._flush()
        self.ends.unindexed = finding

    def _flush(self) -> None:
        if self.ends.unindexed is not None:
            self.kept.add(self.ends.unindexed)
            self.ends.unindexed = None

    def _report(self, code: str, what: str, position: int, expected: str, found: str) -> None:
        self.kept.add(_entry_finding(self.segment, code, what, position, expected, found))

    def _note_unread(self, error: Unreadable) -> None:
        finding = unread_finding(error)
        if finding not in self.ends.unread:
            self.ends.unread.append(finding)


def join_chains(chains: Iterable[ChainEnds], *, unclean: bool) -> Iterator[Finding]:
    """Yield what only neighbours tell, given the ends of all splits in log order.

    Entries without an index unit at the log's end are normal after an `unclean` stop; all others were
    held back for this.
    """
    chains = list(chains)
    before: ChainEnds | None = None
    for chain in chains:
        if chain.first is None:
            continue
        wrong = False
        if before is not None and before.next_position == chain.first.position:
            wrong = chain.first.index not in (before.next_index, before.other_index)
            yield from _judge_first(before, chain, wrong_index=wrong)
            if wrong and chain.entries == 1:
                behind = chain.next_index - min(chain.first.index, _LAST_INDEX)
                chain = replace(chain, other_index=before.next_index + behind)
        if chain.second is not None and not (wrong and before and chain.before_second == before.next_index):
            yield chain.second
        before = chain
    at_end = unclean
    for chain in reversed(chains):
        if chain.unindexed is not None:
            yield replace(chain.unindexed, severity="info") if at_end else chain.unindexed
        at_end &= (chain.unindexed.count if chain.unindexed is not None else 0) == chain.entries


def _judge_first(before: ChainEnds, chain: ChainEnds, *, wrong_index: bool) -> Iterator[Finding]:
    """Judge the first entry of a split, which stands where the last one before it leads."""
    first, last = chain.first, before.last
    if first is None or last is None:
        return
    if wrong_index:
        expected, found = f"index {before.next_index}", f"index {first.index}"
        yield _entry_finding(chain.segment, "DL-TERM", _JUMP, first.position, expected, found)
    if first.term < last.term:
        expected, found = f"term {last.term} or higher", f"term {first.term}"
        yield _entry_finding(chain.segment, "DL-TERM", _FALL, first.position, expected, found)


_JUMP = "the entry's index does not follow the one before it: a start that reads it ends the log here"
_FALL = "the entry's term is lower than the one before it: a start that reads it ends the log here"


def _entry_finding(segment: Segment, code: str, what: str, position: int, expected: str, found: str) -> Finding:
    return Finding(
        code,
        what,
        file=segment.name,
        offset=position - segment.base,
        length=_HEAD_SIZE,
        physical_offset=position,
        expected=expected,
        found=found,
    )


def _explain_unit(unit: Heads, wanted: Heads) -> tuple[str, str | None, str]:
    """Return (message, expected, found) of an index unit that is not its entry's."""
    names = [name for name in unit.dtype.names or () if unit[name] != wanted[name]]
    if not any(unit[name] for name in unit.dtype.names or ()):
        return "the index has no unit for this entry: a read by index misses it", None, "zeros"
    return (
        f"the index unit of this entry has another {', '.join(names)}: a read by index misses the entry",
        ", ".join(f"{name} {wanted[name]}" for name in names),
        ", ".join(f"{name} {unit[name]}" for name in names),
    )


# --- the index ----------------------------------------------------------------------------------


def _by_base(files: Iterable[StoreFile]) -> list[tuple[int, StoreFile]]:
    """Return (byte of the index where it begins, file), ascending; what has no number is none of it."""
    named = ((file.name.rpartition("/")[2], file) for file in files)
    numbered = [(int(name), file) for name, file in named if name.isascii() and name.isdecimal()]
    possible = [(base, file) for base, file in numbered if base <= _LAST_INDEX * _UNIT_SIZE]
    return sorted(possible, key=lambda item: item[0])


def _read_units(
    files: Sequence[tuple[int, StoreFile]], index: int, count: int
) -> Iterator[tuple[StoreFile, int, int, Heads]]:
    """Yield (file, byte in it, number of the first unit, units) of the `count` units from `index` on.

    The unit of entry i is at byte 32 * i of the files together. Older files are deleted, others were not
    given: their units are left out.

    :raises Unreadable: the system reports an I/O error.
    """
    low, high = index * _UNIT_SIZE, (index + count) * _UNIT_SIZE
    for base, file in files:
        # A unit lies in one file: what a wrong name or length cuts is none.
        start = max(low, -(-base // _UNIT_SIZE) * _UNIT_SIZE)
        end = min(high, (base + file.size) // _UNIT_SIZE * _UNIT_SIZE)
        if start < end:
            with open_file(file) as reader:
                raw = reader.read(start - base, end - start)
            units = np.frombuffer(raw, dtype_of(EntryIndexUnit), len(raw) // _UNIT_SIZE)
            yield file, start - base, (start - low) // _UNIT_SIZE, units
