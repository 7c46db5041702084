"""Records whose own topic, queue id or store timestamp was changed, as what points at them proves.

No checksum covers the head of a record, and a changed field is first noticed elsewhere: in the record behind it, in
the unit or in the index entries that lead to it. Those are sound, so the record is reported and they are not.

    unit 10 of orders/0  ---->  record: orders/1, offset 10       the record was of orders/0: CQ-MISMATCH alone
    record 11 of orders/0       "skips ahead", follows from it
    entries: 1 s         ---->  record: one hour later            its time was changed: CL-TIME alone

Where store timestamps run backwards, and which record is out of line there: CL-TIME.

    time     |        high                 . .     .                     . . high
             |   . .      low . .               low                              low . .
             |  alone too new              alone too old              the clock was set back
             |
             +-- log

The append lock makes one record follow the other, so only a clock that was set back makes times run backwards.
A time that was changed on disk leaves its neighbours in line.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from rmqinspect.codec.arrays import Ints, distinct
from rmqinspect.commitlog.queue_offsets import Jump
from rmqinspect.damage.patterns import explain_difference, flip_words, one_flip
from rmqinspect.tables.capped_list import CappedList
from rmqinspect.text import text_of
from rmqinspect.topics import SCHEDULE_TOPIC
from rmqinspect.verify.findings import Finding
from rmqinspect.verify.plan import QueueName


class Misnamed(NamedTuple):
    """A record of another queue than the one whose unit, at the record's queue offset, has its place and size."""

    place: int  # physical offset of the record
    queue_offset: int
    queue: QueueName  # of the unit
    named: QueueName  # by the record

    def explains(self, place: int, jump: Jump) -> bool:
        """Whether a jump of queue offsets at `place` only follows from the wrong name."""
        queue = text_of(jump.queue[0]), jump.queue[1]
        if queue == self.queue:
            return place > self.place and jump.expected == self.queue_offset
        follows = place > self.place and jump.expected == self.queue_offset + 1
        return queue == self.named and (place == self.place or follows)

    @property
    def message(self) -> str:
        """What is wrong with the record."""
        (topic, queue_id), (named_topic, named_id) = self.queue, self.named
        if topic == named_topic:
            what, why = "queue id", explain_difference(queue_id, named_id, 32)
        else:
            what, why = (
                "topic" if queue_id == named_id else "topic and queue id",
                _flipped_letter(topic.encode(), named_topic.encode()),
            )
        return f"the unit agrees with its record but for the {what}, which was changed in the record" + (
            f"; {why}" if why else ""
        )


class WrongTime(NamedTuple):
    """A record whose store timestamp is not the one that its index entries hold."""

    place: int  # physical offset
    time: int  # that the record holds, ms
    indexed: int  # that its entries hold, ms: within a second


def _flipped_letter(expected: bytes, found: bytes) -> str | None:
    at = one_flip(found, expected) if len(found) == len(expected) else None
    if at is None:
        return None
    return f"one flipped bit explains it: {flip_words(f'byte +{at} of the topic', expected[at], found[at])}"


def misnamed_records(candidates: Iterable[Misnamed]) -> dict[int, Misnamed]:
    """Return the records that are misnamed, by place.

    Where several are of one queue and name one other, the folder of the queue may have been renamed or copied.
    """
    every = list(candidates)
    pairs = Counter((one.queue, one.named) for one in every)
    return {one.place: one for one in every if pairs[one.queue, one.named] == 1}


def without_followers(
    findings: Iterable[Finding], misnamed: Mapping[int, Misnamed], misdated: frozenset[int]
) -> Iterator[Finding]:
    """Yield the findings of units and entries, but those that only follow from a wrong field of their record."""
    for finding in findings:
        wrong = misnamed.get(finding.physical_offset) if finding.physical_offset is not None else None
        if wrong is not None and finding.code == "CQ-MISMATCH":
            yield replace(finding, message=wrong.message)
        elif wrong is not None and finding.code == "IX-KEY" and wrong.queue[0] != wrong.named[0]:
            continue  # the hash is that of the true topic and the key
        elif finding.physical_offset in misdated and _is_of_time(finding):
            continue
        else:
            yield finding


def is_step(finding: Finding) -> bool:
    """Whether a finding only says where times run backwards, not which record is wrong."""
    return finding.code == "CL-TIME" and finding.severity == "info"


def _is_of_time(finding: Finding) -> bool:
    """Whether a finding compares the record's store timestamp; a delayed message's tags code is counted from it."""
    return finding.code == "IX-TIME" or (finding.code == "CQ-TAG" and finding.topic == SCHEDULE_TOPIC)


def wrong_times(places: Ints, times: Ints, records: Ints, indexed: Ints) -> Iterator[WrongTime]:
    """Yield the records that are wrong, of those that differ from their index entries.

    `places` and `times` (ms) are columns of all records in log order; `records` and `indexed` (ms, within a second)
    of all entries that differ, each with the number of its record. The entries are right where they agree and fit
    between the record's neighbours better than its own time does.
    """
    for record in distinct(records).tolist():
        held = indexed[records == record]
        if len(held) and (held == held[0]).all():
            right, own = int(held[0]), int(times[record])
            neighbours = times[max(0, record - 1) : record].tolist(), times[record + 1 : record + 2].tolist()
            off, own_off = _off_line(right, right + 999, *neighbours), _off_line(own, own, *neighbours)
            if off < own_off or (off == 0 and len(held) > 1):
                yield WrongTime(int(places[record]), own, right)


def _off_line(low: int, high: int, before: Sequence[int], after: Sequence[int]) -> int:
    """Return how many ms [low, high] is off the line of its neighbours, of which one may be unknown."""
    if before and after:
        return max(before[0] - high, low - after[0], 0)
    near = [*before, *after]
    return max(near[0] - high, low - near[0], 0) if near else 0


# Clocks are often set back a little; from a second on, searches by time go wrong.
BACKWARDS_MS = 1000


class Stamp(NamedTuple):
    """The store timestamp of one record."""

    place: int  # physical offset
    time: int  # ms


class TimeStep(Struct, frozen=True):
    """Two neighbours whose times run backwards, and what stands before and behind them; None: unknown, or nothing."""

    before: int | None  # ms
    high: Stamp
    low: Stamp
    after: int | None  # ms

    @property
    def places(self) -> frozenset[int]:
        """The physical offsets of both."""
        return frozenset((self.high.place, self.low.place))

    @property
    def odd(self) -> Stamp | None:
        """The record that alone is out of line, while its neighbours are close to each other; None where none is."""
        close = max(BACKWARDS_MS, (self.high.time - self.low.time) // 100)
        high = self.before is not None and 0 <= self.low.time - self.before <= close
        low = self.after is not None and 0 <= self.after - self.high.time <= close
        return None if high == low else self.high if high else self.low


class SplitTimes(Struct):
    """What one split shows: its steps, and the records that the neighbouring splits compare with their own."""

    steps: list[TimeStep] = field(default_factory=list)
    first: list[Stamp] = field(default_factory=list)  # up to two, unless a gap precedes them
    last: list[Stamp] = field(default_factory=list)  # up to two, behind the last gap
    gap: bool = False  # a gap lies in the split


class TimeSteps:
    """Follows the store timestamps through the windows of one split."""

    def __init__(self, limit: int) -> None:
        """`limit` bounds the steps."""
        self._steps = CappedList[TimeStep, str](limit, lambda step: "CL-TIME")
        self.suppressed = self._steps.suppressed
        self._times = SplitTimes(self._steps.rows)

    def forget(self) -> None:
        """Forget the last records: a gap may have held any number."""
        self._times.last = []
        self._times.gap = True

    def follow(self, places: Ints, times: Ints, *, ascend: bool) -> None:
        """Take the records of the next window: physical offsets and times in ms.

        `ascend`: no time is before that of the record before it, also not the first one.
        """
        edge = self._times.last
        if len(self._times.first) < 2 and not self._times.gap:
            self._times.first += _stamps(places[:2], times[:2])[: 2 - len(self._times.first)]
        if edge:
            _see_after(self._steps.rows, edge[-1], int(times[0]))
        if ascend:
            self._times.last = (edge + _stamps(places[-2:], times[-2:]))[-2:]
            return
        if edge:
            places = np.concatenate(([stamp.place for stamp in edge], places))
            times = np.concatenate(([stamp.time for stamp in edge], times))
        back = np.flatnonzero(times[:-1] - times[1:] > BACKWARDS_MS)
        back = back[back >= len(edge) - 1]  # the others are known
        for at in self._steps.admit("CL-TIME", back.tolist()):
            high, low = _stamps(places[at : at + 2], times[at : at + 2])
            before = int(times[at - 1]) if at else None
            after = int(times[at + 2]) if at + 2 < len(times) else None
            self._steps.add(TimeStep(before, high, low, after))
        self._times.last = _stamps(places[-2:], times[-2:])

    def result(self) -> SplitTimes:
        """Return what was seen."""
        return self._times


class LogTimes:
    """The steps of the whole log, from the results of its splits in log order."""

    def __init__(self, limit: int) -> None:
        self._steps = CappedList[TimeStep, str](limit, lambda step: "CL-TIME")
        self.suppressed = self._steps.suppressed
        self.steps = self._steps.rows
        self._last: list[Stamp] = []

    def forget(self) -> None:
        """Forget the last records: what follows does not continue them."""
        self._last = []

    def take(self, split: SplitTimes) -> None:
        """Take the next split's times."""
        steps = split.steps
        if self._last and split.first:
            last, first = self._last[-1], split.first[0]
            _see_after(self.steps, last, first.time)
            steps = [replace(step, before=last.time) if step.high == first else step for step in steps]
            if last.time - first.time > BACKWARDS_MS:
                before = self._last[0].time if len(self._last) > 1 else None
                after = split.first[1].time if len(split.first) > 1 else None
                # Not capped: at most one per split.
                self.steps.append(TimeStep(before, last, first, after))
        self._steps.extend(steps)
        self._last = split.last if split.gap else (self._last + split.last)[-2:]


def _stamps(places: Ints, times: Ints) -> list[Stamp]:
    return [Stamp(int(place), int(time)) for place, time in zip(places, times, strict=True)]


def _see_after(steps: list[TimeStep], last: Stamp, time: int) -> None:
    """Complete the last step if it ended in `last`, the newest record so far: `time` follows it."""
    if steps and steps[-1].low == last and steps[-1].after is None:
        steps[-1] = replace(steps[-1], after=time)
