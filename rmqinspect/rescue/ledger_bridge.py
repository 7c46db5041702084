"""Bridges of a DLedger log: as many entries as were lost, each around a bridge of the commit log.

    entry 7|????????????????????????|entry 11     8, 9 and 10 are lost
    entry 7|8 bridge|9 bridge|10 bri|entry 11     three entries share the room
    entry 7|?????????????????| next file          the same, then the blank that ends a file
    entry 7|8|9|10|blank.....|

The library follows entries by their heads: the index of each is that of the one before plus 1, the term does not fall,
the position is its own. So what is lost has to be counted; the entries around a gap say how many there were. The
broker then reads the record in each entry, and passes over a bridge as it does in a plain log.

Source: DLedgerMmapFileStore#recover, DLedgerEntryCoder#encode, MmapFileList#preAppend; DLedgerCommitLog
#checkMessageAndReturnSize.
"""

from collections.abc import Iterator

from msgspec import Struct

from rmqinspect.rescue.bridge import SMALLEST, USUAL, Write, bridge_record
from rmqinspect.schemas.dledger import ENTRY_MAGIC_BLANK, ENTRY_MAGICS, EntryBlank, EntryHead

HEAD: int = EntryHead.sizeof()
BLANK: int = EntryBlank.sizeof()
SMALLEST_ENTRY: int = HEAD + SMALLEST
_USUAL_ENTRY = HEAD + USUAL


class Entries(Struct, frozen=True):
    """Consecutive entries that stand in the place of lost ones."""

    index: int  # of the first
    count: int
    term: int


def most_entries(start: int, end: int, segment_end: int) -> int:
    """Return how many entries have room in [start, end), physical offsets in one segment."""
    room = end - start - (BLANK if end == segment_end else 0)
    return max(0, room) // SMALLEST_ENTRY


def ledger_bridge(start: int, end: int, segment_end: int, entries: Entries, timestamp: int) -> Iterator[Write]:
    """Yield what to write over [start, end), physical offsets in one segment, in order; all between is zeros.

    :raises ValueError: there is no room for so many entries, or none would stand before the next one.
    """
    at_end = end == segment_end
    if entries.count > most_entries(start, end, segment_end) or (not entries.count and not at_end):
        raise ValueError(f"{entries.count} entries do not fit into {end - start} bytes")
    room = end - start - (BLANK if at_end else 0)
    size = room // entries.count if entries.count else 0
    usual = at_end and size >= _USUAL_ENTRY
    for number in range(entries.count):
        if usual:
            size = _USUAL_ENTRY
        elif number == entries.count - 1:
            size = end - start - (BLANK if at_end else 0)
        yield start, _head(start, size, entries.index + number, entries.term)
        yield from bridge_record(start + HEAD, size - HEAD, timestamp)
        start += size
    if at_end:
        yield start, EntryBlank.build({"magic": ENTRY_MAGIC_BLANK, "total_size": end - start})


def _head(place: int, size: int, index: int, term: int) -> bytes:
    head: bytes = EntryHead.build(
        {
            "magic": ENTRY_MAGICS[0],
            "size": size,
            "index": index,
            "term": term,
            "position": place,
            "channel": 0,
            "chain_crc": 0,
            "body_crc": 0,
            "body_size": size - HEAD,
        }
    )
    return head
