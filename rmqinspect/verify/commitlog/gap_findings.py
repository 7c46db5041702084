"""Findings about the gaps of the log: bytes of a segment that are neither records nor filler.

Parts of a gap touch; one gap is one finding, named by what its first unknown byte breaks:

    record | magic? | zeros ... | record      CL-MAGIC, CL-LENGTH: bytes that are no record
    record | zeros .............| record      CL-ZERO-INSIDE: lost pages
    record | half a record | zeros to the end CL-TORN-TAIL
    record | zeros to the end                 preallocated, no finding
    record | blank of a wrong size            CL-BLANK-SIZE
    record | the same over a record | record  CL-BLANK-INSIDE
    record | gap | older records              CL-STALE-TAIL
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from rmqinspect.codec.layout import place_of, span_of
from rmqinspect.commitlog.byte_account import ByteAccount
from rmqinspect.commitlog.gaps import REASONS, ZERO_RUN, Gap
from rmqinspect.damage.diagnose import explain_gap
from rmqinspect.errors import Unreadable
from rmqinspect.schemas import dledger, message
from rmqinspect.store.model import Segment, Store
from rmqinspect.store.reader import open_file
from rmqinspect.verify.findings import Finding

_EXPLAINED = 200  # findings whose cause is searched for in the bytes
# Size and magic of a record or an entry stand where they stand in a blank record of the same kind of file.
_BLANKS = {"segment": message.Blank, "dledger": dledger.EntryBlank}
_HEAD: int = message.Blank.sizeof()

_CODE_OF_REASON = {
    "magic": "CL-MAGIC",
    "zero": "CL-MAGIC",
    "short": "CL-MAGIC",
    "size": "CL-LENGTH",
    "length": "CL-LENGTH",
    "cut": "CL-LENGTH",
    "entry": "CL-LENGTH",
    "blank_size": "CL-BLANK-INSIDE",
}


@dataclass(slots=True)
class SegmentState:
    """What the splits of one segment add up to."""

    segment: Segment
    account: ByteAccount
    stale: list[tuple[int, int, int]] = field(default_factory=list)  # [start, end), records of an earlier life

    def gaps(self) -> list[list[Gap]]:
        """Return the gaps that are no filler, parts that touch together."""
        return list(_touching(self.account.merged_gaps()))


class Causes:
    """Searches the bytes for the cause of damage, for so many findings that all of it stays fast."""

    def __init__(self) -> None:
        self._explained = 0

    def explain(self, search: Callable[[], str | None]) -> str:
        """Return the likely cause as the end of a message, "" if none shows."""
        self._explained += 1
        why = search() if self._explained <= _EXPLAINED else None
        return f"; {why}" if why else ""


class GapJudge:
    """Judges the gaps of each segment of a store."""

    def __init__(self, store: Store, causes: Causes) -> None:
        self._store, self._causes = store, causes

    def findings(self, state: SegmentState, *, more_follows: bool) -> Iterator[Finding]:
        """Yield the findings of a segment; `more_follows`: a later segment has records."""
        for gap in state.account.merged_gaps():
            if gap.reason == "blank_size" and gap.kind == "filler":
                yield from self._judge_blank(state.segment, gap)
        stale_from = {start for start, _, _ in state.stale}
        for parts in state.gaps():
            at_end = parts[-1].end == state.segment.end and not more_follows
            if parts[-1].end in stale_from:
                yield _stale_tail(state, parts[0].start, parts[-1].end)
            elif not _is_preallocated(parts, at_end) and not _is_unread(parts):
                yield self._judge_gap(state.segment, parts, at_end)

    def _judge_gap(self, segment: Segment, parts: list[Gap], at_end: bool) -> Finding:
        start, stop, unknown = parts[0].start, parts[-1].end, _unknown(parts)
        reason = unknown[0].reason or "magic" if unknown else "zero"
        head = self._read(segment, start, _HEAD)
        lost_pages = any(part.kind == "zeros" and part.end - part.start >= ZERO_RUN for part in parts)
        after = "up to the segment's end" if stop == segment.end else "the log continues after it"
        if not unknown:
            code, what = "CL-ZERO-INSIDE", "zeros inside the log: pages were lost"
        elif at_end and parts[0].kind == "unknown" and self._is_torn(segment, start, unknown[-1].end):
            code, what = "CL-TORN-TAIL", f"the last record is incomplete: {REASONS[reason]}"
            stop, after = unknown[-1].end, "nothing follows"
        elif _is_blank_without_magic(head, segment.end - start):
            code, what = "CL-MAGIC", "the blank record that ends this segment has a damaged magic"
        elif lost_pages and not at_end:
            code, what = "CL-ZERO-INSIDE", f"zeros inside the log: pages were lost; {REASONS[reason]}"
        else:
            code, what = _CODE_OF_REASON[reason], REASONS[reason]
        why = self._causes.explain(lambda: explain_gap(self._store, segment, start, stop)) if unknown else ""
        return Finding(
            code,
            f"{what}; {after}{why}",
            file=segment.name,
            offset=start - segment.base,
            length=stop - start,
            physical_offset=start,
            expected="a record or a blank record",
            found=f"bytes {head.hex(' ')}" if head else None,
        )

    def _is_torn(self, segment: Segment, start: int, written: int) -> bool:
        """Whether a record begins at `start`, and the bytes at the log's end stop before it would."""
        wraps = segment.kind == "dledger"
        raw = self._read(segment, start, min(_HEAD, written - start))
        magic = message.MAGIC_PREFIX if not wraps else dledger.ENTRY_MAGICS[0].to_bytes(4, "big")
        size = _stored_size(segment, raw)
        plausible = message.FIXED_SIZE <= size <= segment.end - start or len(raw) < _HEAD
        begun = raw[place_of(_BLANKS[segment.kind], "magic") :][: len(magic)]
        return magic.startswith(begun.rstrip(b"\0")) and plausible and start + size > written

    def _judge_blank(self, segment: Segment, gap: Gap) -> Iterator[Finding]:
        stored = _stored_size(segment, self._read(segment, gap.start, _HEAD))
        left = segment.end - gap.start
        # In a file of a wrong length the blank record is right about the length that the file should have.
        if self._store.segment_size is not None and stored == segment.base + self._store.segment_size - gap.start:
            return
        yield Finding(
            "CL-BLANK-SIZE",
            "the blank record's size is not the number of bytes left in the file",
            file=segment.name,
            offset=gap.start - segment.base,
            length=_HEAD,
            physical_offset=gap.start,
            expected=str(left),
            found=str(stored),
        )

    def _read(self, segment: Segment, start: int, size: int) -> bytes:
        try:
            with open_file(segment) as reader:
                return reader.read(start - segment.base, size)
        except Unreadable:
            return b""


def _touching(gaps: Iterable[Gap]) -> Iterator[list[Gap]]:
    """Yield the gaps that are not filler, those that touch together."""
    group: list[Gap] = []
    for gap in gaps:
        if group and (gap.kind == "filler" or gap.start != group[-1].end):
            yield group
            group = []
        if gap.kind != "filler":
            group.append(gap)
    if group:
        yield group


def _unknown(parts: Iterable[Gap]) -> list[Gap]:
    return [part for part in parts if part.kind == "unknown" and part.reason != "unreadable"]


def _is_unread(parts: Iterable[Gap]) -> bool:
    """Whether nothing is known of a gap: ST-IO reports it."""
    return any(part.reason == "unreadable" for part in parts) and not _unknown(parts)


def _is_preallocated(parts: Iterable[Gap], at_end: bool) -> bool:
    """Whether a gap is the preallocated rest of a segment: zeros follow the last record."""
    return at_end and not _unknown(parts)


def _stored_size(segment: Segment, head: bytes) -> int:
    """Return the size that a record, an entry or a blank record beginning with `head` claims."""
    return int.from_bytes(head[span_of(_BLANKS[segment.kind], "total_size")], "big", signed=True)


def _is_blank_without_magic(head: bytes, left: int) -> bool:
    """Whether the size of a blank record stands here, but not its magic."""
    if len(head) < _HEAD or left > 1 << 30:
        return False
    return int.from_bytes(head[span_of(message.Blank, "total_size")], "big") == left


def _stale_tail(state: SegmentState, start: int, first: int) -> Finding:
    records, end = 0, first
    for begin, stop, count in state.stale:
        if begin == end:
            records, end = records + count, stop
    return Finding(
        "CL-STALE-TAIL",
        f"{records} valid records after the log's end, older than the record before them: left from an earlier "
        f"life of this file; the first is at {first}",
        file=state.segment.name,
        offset=start - state.segment.base,
        length=end - start,
        physical_offset=start,
        count=records,
        counted=True,
    )
