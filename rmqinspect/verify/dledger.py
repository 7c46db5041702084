"""The entries that wrap the records of a DLedger log, and their index: DL-POSITION, DL-TERM, DL-INDEX.

    data    | head record | head record | no-op | head record | blank |    index +1 from entry to entry, terms never
              index 7       index 8       9       index 10                 fall, each head holds its own position
    index   | unit 7      | unit 8      | 9     | unit 10     |            one unit for each entry

`EntryChain` follows the entries of a split, `join_chains` joins the splits. Invariants:

- Entries without a record (no-op, configuration change) and the blank that ends a file are stepped over. Across
  anything else no rule holds: it is a finding of the commit log.
- One damaged index makes two jumps, away and back; only the first is reported. At a split border the entry before
  the split decides which of two entries is wrong, so that finding is kept back (`second`).
- Entries at the log's end without an index unit are normal after an unclean shutdown, so they are kept back too
  (`unindexed`).
- Uncommitted entries are judged like the others: nothing in an entry says that it was not committed.

Source: DLedgerMmapFileStore#recover, DLedgerEntryCoder, MmapFileList#append; library dledger 0.2 to 0.4.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from rmqinspect.codec.arrays import Bools, Ints, groups
from rmqinspect.codec.layout import dtype_of, parse
from rmqinspect.commitlog.records import Records
from rmqinspect.errors import BadRecord, Unreadable
from rmqinspect.schemas.dledger import ENTRY_MAGIC_BLANK, ENTRY_MAGICS, EntryBlank, EntryHead, EntryIndexUnit
from rmqinspect.store.model import Segment, StoreFile
from rmqinspect.store.reader import FileReader, open_file
from rmqinspect.verify.findings import Finding, Found, capped_findings, place_in, unread_finding

Heads = np.ndarray[Any, np.dtype[Any]]

_HEAD_SIZE: int = EntryHead.sizeof()
_UNIT_SIZE: int = EntryIndexUnit.sizeof()
_WORDS = _UNIT_SIZE // 8

# A new leader writes one entry without a record; so many in one place are not a broker's work.
_MOST_STEPS = 1000
# Where entry indexes are in disorder, only so many runs of a batch are looked up in the index files.
_MOST_RUNS = 64
# A unit's position is a Java long, and sums with it must stay one.
_LAST_INDEX = (1 << 62) // _UNIT_SIZE
_NONE = -(1 << 63)  # not an entry's index

GOOD, WRONG, MISSING = range(3)  # an index unit


class Entry(Struct, frozen=True):
    """What its neighbours must know of an entry."""

    index: int
    term: int
    position: int  # physical offset of its head


class ChainEnds(Found):
    """The findings of a split's entries, and how these begin and end."""

    segment: Segment
    first: Entry | None = None  # of those that wrap a record
    last: Entry | None = None
    # Where the entry after the last one begins, and its index, blanks and entries without a record stepped over.
    next_position: int = -1
    next_index: int = _NONE
    other_index: int = _NONE  # the same index if it is the last entry's that is wrong
    entries: int = 0
    # The second entry's jump, kept back: the entry before the split decides which of the two is wrong.
    second: Finding | None = None
    before_second: int = _NONE
    unindexed: Finding | None = None  # the last entries without an index unit, kept back


class EntryChain:
    """Follows the entries of one split, given the records that they wrap."""

    def __init__(self, segment: Segment, index_files: Iterable[StoreFile], limit: int) -> None:
        """`index_files`: of kind `dledger_index`, empty where not given. `limit`: findings kept of a code."""
        self.segment = segment
        self.index_files = _by_base(index_files)
        self.kept = capped_findings(limit)
        self.ends = ChainEnds(segment, findings=self.kept.rows, suppressed=self.kept.suppressed)

    def take(self, records: Records) -> None:
        """Take the next run of records, in log order, without stale ones."""
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
        """Return the ends, when all records of the split were taken."""
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

        With None, step as far as they go.
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
        """Return the size of the blank or entry without a record that stands next, 0 if none does."""
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
                "the entry's stored position is not where it stands: startup truncates the log here if it scans it",
                int(place[at]),
                str(place[at]),
                str(own[at]),
            )

    def _judge_indexes(self, place: Ints, index: Ints, follows: bool) -> Bools:
        """Report entries whose index does not follow the previous one; return which have a wrong index."""
        ends = self.ends
        expected = np.concatenate(([ends.next_index if follows else index[0]], index[:-1] + 1))
        jumps = index != expected
        # The index if the previous entry's is the wrong one.
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
        """Compare the entries at `rows` with their index units."""
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
        """Keep entries without a unit back: startup adds their units if no entry with one follows."""
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
    """Yield the findings that were kept back, and those of split borders, given the ends of all splits in log order.

    Entries at the log's end without an index unit are info after an `unclean` shutdown.
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
    """Judge the first entry of a split that continues the one before."""
    first, last = chain.first, before.last
    if first is None or last is None:
        return
    if wrong_index:
        expected, found = f"index {before.next_index}", f"index {first.index}"
        yield _entry_finding(chain.segment, "DL-TERM", _JUMP, first.position, expected, found)
    if first.term < last.term:
        expected, found = f"term {last.term} or higher", f"term {first.term}"
        yield _entry_finding(chain.segment, "DL-TERM", _FALL, first.position, expected, found)


_JUMP = "the entry's index does not follow the previous entry's: startup truncates the log here if it scans it"
_FALL = "the entry's term is lower than the previous entry's: startup truncates the log here if it scans it"


def _entry_finding(segment: Segment, code: str, what: str, position: int, expected: str, found: str) -> Finding:
    return Finding(
        code,
        what,
        **place_in(segment, position),
        length=_HEAD_SIZE,
        expected=expected,
        found=found,
    )


def _explain_unit(unit: Heads, wanted: Heads) -> tuple[str, str | None, str]:
    """Return (message, expected, found) of an index unit that is not its entry's."""
    names = [name for name in unit.dtype.names or () if unit[name] != wanted[name]]
    if not any(unit[name] for name in unit.dtype.names or ()):
        return "the index has no unit for this entry: reads by index miss it", None, "zeros"
    return (
        f"the index unit of this entry has a wrong {', '.join(names)}: reads by index miss the entry",
        ", ".join(f"{name} {wanted[name]}" for name in names),
        ", ".join(f"{name} {unit[name]}" for name in names),
    )


# --- the index ----------------------------------------------------------------------------------


def _by_base(files: Iterable[StoreFile]) -> list[tuple[int, StoreFile]]:
    """Return (byte of the whole index where it begins, file), ascending; only files whose name is a number."""
    named = ((file.name.rpartition("/")[2], file) for file in files)
    numbered = [(int(name), file) for name, file in named if name.isascii() and name.isdecimal()]
    possible = [(base, file) for base, file in numbered if base <= _LAST_INDEX * _UNIT_SIZE]
    return sorted(possible, key=lambda item: item[0])


def _read_units(
    files: Sequence[tuple[int, StoreFile]], index: int, count: int
) -> Iterator[tuple[StoreFile, int, int, Heads]]:
    """Yield (file, byte in it, number of the first unit, units) of the `count` units from `index` on.

    The unit of entry i is unit i of the files together. Files that were deleted or not given are left out.

    :raises Unreadable: the system reports an I/O error.
    """
    low, high = index * _UNIT_SIZE, (index + count) * _UNIT_SIZE
    for base, file in files:
        # A unit does not cross files: one that a wrong name or length cuts is none.
        start = max(low, -(-base // _UNIT_SIZE) * _UNIT_SIZE)
        end = min(high, (base + file.size) // _UNIT_SIZE * _UNIT_SIZE)
        if start < end:
            with open_file(file) as reader:
                raw = reader.read(start - base, end - start)
            units = np.frombuffer(raw, dtype_of(EntryIndexUnit), len(raw) // _UNIT_SIZE)
            yield file, start - base, (start - low) // _UNIT_SIZE, units
