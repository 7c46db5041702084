"""Sound records that only a source has which does not count: what a choice costs.

    chosen      |aaaaaaaaaaaaaaa|AAAAAAAAAAAAAAA|
    other       |aaaaaaaaaaaaaaa|BBBBBBBBB|          it differs from here on: the records of B are in no new log
    log         |aaaaaaaaaaaaaaa|AAAAAAAAAAAAAAA|

A source does not count from where it differs from one that counts more (`--prefer`), or at all: its segments have
another size, or it is the log of another broker in the same images.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter

import numpy as np

from rmqinspect.codec.layout import walk_fields
from rmqinspect.commitlog.gaps import plan_splits
from rmqinspect.commitlog.records import Records
from rmqinspect.commitlog.scan import RecordRun, scan_split
from rmqinspect.rescue.log_plan import LogPlan, Lost
from rmqinspect.rescue.salvage_receipt import NotChosen
from rmqinspect.rescue.sources import Range, Source, read_log
from rmqinspect.schemas.message import Message
from rmqinspect.store.model import Store
from rmqinspect.system.uri import shown

_SPLIT_SIZE = 16 << 20
_EVERYWHERE = 1 << 62

OnlyThere = tuple[str, Lost]
"""Name of a source, and a record that only it has."""


def only_in_others(log: LogPlan, sources: Sequence[Source], unused: Iterable[tuple[str, Store]]) -> Iterator[OnlyThere]:
    """Yield the sound records that a planned log does not have, because their source does not count there.

    `unused`: sources of which nothing counts.
    """
    for source in sources:
        if source.taken_until is not None:
            ranges = [
                Range(max(one.start, source.taken_until), one.end)
                for one in source.sound
                if one.end > source.taken_until
            ]
            yield from _only_in(source.name, source.store, ranges, log, sources)
    for name, store in unused:
        yield from _only_in(name, store, [Range(0, _EVERYWHERE)], log, sources)


class NotChosenCount:
    """Counts such records by source and topic."""

    def __init__(self) -> None:
        self._ranges: dict[str, Range] = {}
        self._topics: dict[str, Counter[str]] = {}

    def take(self, source: str, one: Lost) -> None:
        """Count a record of a source."""
        known = self._ranges.get(source, Range(one.start, one.end))
        self._ranges[source] = Range(min(known.start, one.start), max(known.end, one.end))
        self._topics.setdefault(source, Counter())[one.topic or ""] += 1

    def rows(self, paths: Mapping[str, str]) -> list[NotChosen]:
        """Return the rows of the receipt; `paths`: where each source lies."""
        return [
            NotChosen(name, shown(paths[name]), *self._ranges[name], topics.total(), dict(sorted(topics.items())))
            for name, topics in self._topics.items()
        ]


def _only_in(
    name: str, store: Store, ranges: Sequence[Range], log: LogPlan, sources: Sequence[Source]
) -> Iterator[OnlyThere]:
    why = f"sound, but only in {name}, which was not chosen"
    for one in ranges:
        for split in plan_splits(store.segments, _SPLIT_SIZE):
            part = split.clipped(one.start, one.end)
            for event in () if part is None else scan_split(part):
                if not isinstance(event, RecordRun) or event.stale:
                    continue
                for start, raw in _sound(event.records):
                    if _planned(log, sources, start, len(raw)) != raw:
                        yield name, _described(start, raw, why)


def _sound(records: Records) -> Iterator[tuple[int, bytes]]:
    """Yield place and bytes of the records that prove themselves."""
    good = records.body_crc_ok & (records.physical_offset == records.places) & (records.record_crcs != 1)
    for row in np.flatnonzero(good).tolist():
        yield int(records.places[row]), bytes(records.raw[records.starts[row] : records.ends[row]])


def _planned(log: LogPlan, sources: Sequence[Source], start: int, size: int) -> bytes:
    """Return the bytes that a planned log has at a place, up to the end of a piece; none where a bridge stands."""
    at = bisect_right(log.pieces, start, key=attrgetter("start")) - 1
    piece = log.pieces[at] if at >= 0 else None
    if piece is None or piece.bridge or start >= piece.end:
        return b""
    if piece.raw is not None:
        return piece.raw[start - piece.start :][:size]
    assert piece.source is not None, "what is no bridge is copied, or has bytes of its own"
    return read_log(sources[piece.source].store, start, min(size, piece.end - start))


def _described(start: int, raw: bytes, why: str) -> Lost:
    fields = walk_fields(Message.subcons, raw, start)
    queue_id, queue_offset = fields.number("queue_id"), fields.number("queue_offset")
    return Lost(start, start + len(raw), why, None, fields.topic, queue_id, queue_offset, True, fields)
