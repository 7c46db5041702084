"""Messages that a broker has acknowledged, and that lay behind the end of the log: gone before any start.

    log           |rec|rec|rec|                      ends here; its newest record was stored at 12:00:00
    checkpoint                      12:00:12         a broker writes the store times of records into it, never others
    queue units    -> -> -> -> ->                    two of them lead behind the end
    index file            ...begin, end...           its header names the newest record that it has an entry of

A broker makes a unit, an entry or a time of the checkpoint of a record that its log has. Where the log has it no
more, a producer may have got SEND_OK for what is gone. All numbers are lower bounds: of a time alone nothing is known
but that one record had it.

What proves nothing:

    a time that leads by up to a second          the clock was corrected by little while the broker ran
    a time that a record near the end has        the clock was set back: later records have earlier times
    a time alone that leads by more than a day   a wrong clock, or the checkpoint of another store; by a year: damage
    a single unit more than a segment away       a damaged unit
    a DLedger log                                its end is that of what its group has committed
    a log whose end was not reached              the budget of the search, or an I/O error

A group's offset proves a message of its queue only where a topic that is deleted takes its offsets with it (5.0.0 on):
callers give the offsets that count.

Files that were copied while the broker wrote, the log first, look alike: nothing is lost where they come from.

Source: StoreCheckpoint, CommitLog.FlushRealTimeService, ConsumeQueue#putMessagePositionInfoWrapper, IndexService#flush,
IndexHeader; RocketMQ 4.0.0 to 5.5.0.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from rmqinspect.codec.arrays import Units
from rmqinspect.codec.layout import dtype_of
from rmqinspect.commitlog.tail import LogEnd
from rmqinspect.config.json_files import ConsumerOffset, read_checkpoint
from rmqinspect.consumequeue.bounds import QueueSummary
from rmqinspect.consumequeue.units import LAYOUTS, message_mask
from rmqinspect.errors import Unreadable
from rmqinspect.index.geometry import reread_index_file
from rmqinspect.schemas.checkpoint import TIMESTAMP_FIELDS
from rmqinspect.store.model import QueueFile, Store
from rmqinspect.store.reader import open_file
from rmqinspect.text import count, describe_duration

_SKEW = 1000  # ms
_LONGEST = 366 * 24 * 3_600_000  # ms
_LONGEST_ALONE = 24 * 3_600_000  # ms
_EXACT = 90_000  # ms: shorter spans are shown with a tenth of a second
_WINDOW = 1 << 16  # units that are looked at one by one


class Acknowledged(NamedTuple):
    """What lay behind the end of the log; numbers are lower bounds."""

    end: int  # physical offset: where the log ends now
    messages: int  # at least 1
    by_topic: Mapping[str, int]  # of those whose topic is known
    last_timestamp: int | None  # ms, store time of the newest record that is here; None: there is none
    until: int | None  # ms, the newest store time behind the end; None: none is known
    proofs: tuple[str, ...]  # nouns: "the checkpoint", "1,533 queue units"
    may_be_copy: bool  # there was no orderly stop: the files may have been copied while the broker wrote

    @property
    def span(self) -> int | None:
        """How much time the missing end covers, in ms; None if no time is known."""
        if self.until is None or self.last_timestamp is None:
            return None
        return self.until - self.last_timestamp


def acknowledged_behind(
    store: Store, log: LogEnd, queues: Sequence[QueueSummary], offsets: Iterable[ConsumerOffset] = ()
) -> Acknowledged | None:
    """Return what other files prove behind the end of a log; None where they prove nothing.

    Read are the checkpoint, the header of the newest index file and the newest units of each queue.
    """
    if log.end is None or log.goes_on or log.unread or not _is_plain(store):
        return None
    by_topic, units, far = _units_behind(queues, log.end)
    until = _newest_time(store, log, _LONGEST if units else _LONGEST_ALONE)
    if until is None and (not units or (units == 1 and far >= log.end + (store.segment_size or 0))):
        return None
    proofs = [count(units, "queue unit")] if units else []
    if until is not None:
        proofs.append(until.proof)
    if by_topic and (ahead := Counter(_consumed_ahead(queues, offsets))):
        by_topic += ahead
        proofs.append(f"offsets of {count(len(ahead), 'topic')}")
    return Acknowledged(
        log.end,
        max(1, by_topic.total()),
        dict(by_topic),
        log.last_timestamp,
        None if until is None else until.time,
        tuple(proofs),
        may_be_copy=store.has_file("abort"),
    )


def acknowledged_words(found: Acknowledged) -> str:
    """Return in a sentence what is gone, of which span of time, and what proves it."""
    *others, last = found.proofs
    prove = (
        f"{', '.join(others)} and {last} prove" if others else f"{last} {'prove' if last.endswith('s') else 'proves'}"
    )
    later = "" if found.span is None else f" of the {_seconds(found.span)} behind its last record"
    if found.by_topic:
        what = f"at least {count(found.messages, 'acknowledged message')}{later}"
        are = "is" if found.messages == 1 else "are"
    else:
        what, are = f"acknowledged messages{later}, how many is not known,", "are"
    copy = "; if the files were copied while the broker ran, copy them again" if found.may_be_copy else ""
    return f"{what} {are} not in the log: {prove} it{copy}"


def _seconds(span: int) -> str:
    """Return a span in ms as `12.4 s`, a long one as `3 min`."""
    return f"{span / 1000:.1f} s" if span < _EXACT else describe_duration(span / 1000)


def _is_plain(store: Store) -> bool:
    return store.given == "store" and all(segment.kind == "segment" for segment in store.segments)


# --- times --------------------------------------------------------------------------------------------


class _Time(NamedTuple):
    """A store time of a record that is not in the log, and what has it."""

    time: int  # ms
    proof: str


def _newest_time(store: Store, log: LogEnd, most: int) -> _Time | None:
    """Return the newest time that no record of the log has, and that leads by `most` ms at most."""
    if log.last_timestamp is None:
        return None
    newest = max(log.last_timestamp, log.newest_timestamp or 0)
    known = (time for time in _times(store, log) if newest + _SKEW < time.time <= newest + most)
    return max(known, default=None)


def _times(store: Store, log: LogEnd) -> Iterator[_Time]:
    with suppress(Unreadable):  # `verify` tells
        for name, value in read_checkpoint(store).items():
            if name in TIMESTAMP_FIELDS:
                yield _Time(value, "the checkpoint")
    for file in store.index_files[-1:]:
        with suppress(Unreadable):
            header = reread_index_file(file, geometry=None).header
            if header is not None and log.end is not None and header.end_physical_offset >= log.end:
                yield _Time(int(header.end_timestamp), "the index")


# --- units and offsets --------------------------------------------------------------------------------


def _units_behind(queues: Sequence[QueueSummary], end: int) -> tuple[Counter[str], int, int]:
    """Return messages by topic whose units lead behind an end, how many units these are, and how far one leads."""
    by_topic: Counter[str] = Counter()
    units, far = 0, -1
    for queue in queues:
        place = queue.last_physical_offset
        if place is None or place < end:
            continue
        far = max(far, place)
        with suppress(Unreadable):  # `verify` tells
            number, messages = newest_units(queue, end)
            units += number
            by_topic[queue.topic] += messages
    return by_topic, units, far


def newest_units(queue: QueueSummary, end: int) -> tuple[int, int]:
    """Return how many units of a queue lead behind an end, and how many messages they hold; at least one.

    :raises Unreadable: an I/O error.
    """
    units = messages = 0
    for file in reversed(queue.files):
        rows, before, found = _rows_behind(queue, file, end)
        units += rows
        messages += found
        if before:
            break
    return max(1, units), max(1, messages)


def _rows_behind(queue: QueueSummary, file: QueueFile, end: int) -> tuple[int, int, int]:
    """Return units of a file that lead behind an end, how many lie before them, and the messages of the former."""
    layout = dtype_of(LAYOUTS[file.kind])
    total = file.size // layout.itemsize
    if file.kind != "batch_queue":
        total = min(total, max(0, queue.max_offset - file.base // layout.itemsize))
    with open_file(file) as reader:

        def units_at(row: int, number: int = 1) -> Units:
            raw = reader.read(row * layout.itemsize, number * layout.itemsize)
            return np.frombuffer(raw, layout, len(raw) // layout.itemsize)

        low, high = 0, total
        while low < high:  # units ascend, and zeros follow them
            middle = (low + high) // 2
            unit = units_at(middle)
            if message_mask(unit).any() and unit["physical_offset"][0] < end:
                low = middle + 1
            else:
                high = middle
        number = messages = 0
        for first in range(low, total, _WINDOW):
            some = units_at(first, min(_WINDOW, total - first))
            some = some[message_mask(some) & (some["physical_offset"] >= end)]
            number += len(some)
            messages += int(some["message_count"].sum()) if file.kind == "batch_queue" else len(some)
            if not len(some):
                break
    return number, low, messages


def _consumed_ahead(queues: Sequence[QueueSummary], offsets: Iterable[ConsumerOffset]) -> Mapping[str, int]:
    """Return by topic how many messages groups have consumed that no unit of their queue leads to."""
    highest: dict[tuple[str, int], int] = {}
    for entry in offsets:
        queue = entry.topic, entry.queue_id
        highest[queue] = max(entry.offset, highest.get(queue, 0))
    ahead: Counter[str] = Counter()
    for summary in queues:
        more = highest.get((summary.topic, summary.queue_id), 0) - summary.max_offset
        if more > 0:
            ahead[summary.topic] += more
    return ahead
