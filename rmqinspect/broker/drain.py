"""A whole queue as a consumer drains it: what it gets that is wrong, and what it never gets.

    units     . . . . . . x . . . | . . . . . . . . . . | . . .          x: leads to no sound record of its place
    pulls     ------------------>   ------------------>   ----
                          ^^^^^^^ what a client or the broker leaves out

A consumer asks from the queue's minimum on, each time behind what was given. Only a pull that reaches a doubtful unit
is looked into: between them the pulls follow from the sizes of the units alone. Where pulls begin decides what is left
out behind a record that cannot be decoded, so a group that goes on elsewhere may lose others, at most as many as one
pull gives.

Source: DefaultMessageStore#getMessage, PullAPIWrapper#processPullResult; RocketMQ 4.0.0 to 5.5.0.
"""

from collections.abc import Iterator, Sequence
from itertools import chain, compress, groupby
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from rmqinspect.broker.client import RIGHT, received
from rmqinspect.broker.consumer_queue import ConsumerLog, ConsumerQueue, ReadableLog
from rmqinspect.broker.pull import SYSTEM_ERROR, Answer, Limits, Pull, Subscription, Unit, pull
from rmqinspect.broker.read_rules import ClientRules, PullRules
from rmqinspect.broker.version_estimate import RELEASES
from rmqinspect.codec.arrays import Ints

PULL_COUNT = 32
"""Messages: `pullBatchSize` of a push consumer."""

_MOST_SIZES = 1 << 20  # units whose sizes are held at once
_ALL = Subscription.parse("*")


class Wrong(NamedTuple):
    """What a consumer gets that is not the message of its place."""

    queue_offset: int  # of the unit in whose bytes it begins
    kind: str  # of `client.WRONG`
    topic: str  # that it says


class Trouble(NamedTuple):
    """A pull that gives something wrong, or leaves out a sound message."""

    offset: int
    next_offset: int
    wrong: tuple[Wrong, ...]
    jumped: tuple[int, ...]  # queue offsets of sound units whose messages the consumer never gets
    stuck: bool = False  # each pull there fails: the group never gets beyond


def drain(
    queue: ConsumerQueue,
    log: ConsumerLog,
    release: str,
    doubtful: Ints,
    *,
    begin: int | None = None,
    end: int | None = None,
    count: int = PULL_COUNT,
    limits: Limits | None = None,
) -> Iterator[Trouble]:
    """Yield the pulls with trouble, in order; without a doubtful unit nothing is read.

    `doubtful`: ascending, the queue offsets of units that do not lead to a sound record of their place. `begin`, `end`:
    the queue's minimum and maximum, where a start changes those that its files have. `count`: messages of a pull.

    :raises Unreadable: a file of the queue, or of the log, cannot be read.
    """
    low, high = queue.ends(release)
    low, high = low if begin is None else begin, high if end is None else min(end, high)
    if not ((low <= doubtful) & (doubtful < high)).any():
        return
    drained = _Drained(queue, log, release, Pull(low, count, _ALL, limits or Limits()), doubtful, low, high)
    with log.opened() as bytes_of_log:
        yield from drained.troubles(bytes_of_log)


def alike(releases: Sequence[str] = RELEASES) -> tuple[tuple[str, ...], ...]:
    """Return the releases, those together whose brokers answer every pull alike and whose clients decode alike."""
    return tuple(tuple(run) for _, run in groupby(releases, lambda one: (PullRules(one), ClientRules(one))))


class _Drained:
    """One queue, as one release drains it."""

    def __init__(
        self, queue: ConsumerQueue, log: ConsumerLog, release: str, asked: Pull, doubtful: Ints, low: int, high: int
    ) -> None:
        self._queue, self._log, self._release, self._asked = queue, log, release, asked
        self._doubtful = doubtful
        self.kind = queue.kind
        self._ends = low, high
        self._rules = PullRules(release)

    def troubles(self, bytes_of_log: ReadableLog) -> Iterator[Trouble]:
        """Yield the pulls with trouble."""
        at, high = self._ends
        while (mark := self._next_doubtful(at)) is not None and mark < high:
            at = self._pull_that_reaches(mark, at)
            answer = pull(self, self._log, replace(self._asked, offset=at), self._release)
            if answer.status == SYSTEM_ERROR:
                yield Trouble(at, at, (), (), stuck=True)
                return
            trouble = self._trouble(at, answer, bytes_of_log)
            if trouble.wrong or trouble.jumped:
                yield trouble
            if answer.next_offset <= at:
                return
            at = answer.next_offset

    def _next_doubtful(self, offset: int) -> int | None:
        which = int(np.searchsorted(self._doubtful, offset))
        return int(self._doubtful[which]) if which < len(self._doubtful) else None

    def _pull_that_reaches(self, mark: int, at: int) -> int:
        """Return where the pull begins that gives or passes over the unit at `mark`; those before it are all right."""
        if self._queue.kind == "batch_queue":
            return self._by_asking(mark, at)
        while at < mark:
            sizes = self._queue.sizes_from(at, min(mark - at + 1, _MOST_SIZES))
            if at + len(sizes) <= mark and len(sizes) < _MOST_SIZES:  # the file ends, and so does a pull
                at += len(sizes)
                if not len(sizes):
                    break
                continue
            last = int(self._begins(sizes)[-1])
            at += last
            if at - last + len(sizes) > mark or not last:
                break
        return at

    def _begins(self, sizes: Ints) -> Ints:
        """Return where pulls begin among units that can all be given."""
        count = min(self._asked.count - (self._asked.count > 1 and self._rules.one_less), self._asked.limits.messages)
        most = self._asked.limits.size
        if int(sizes.max()) * count <= most:
            return np.arange(0, len(sizes), count)
        ends = np.cumsum(sizes)
        begins, at, before = [], 0, 0
        while at < len(sizes):
            begins.append(at)
            fits = int(np.searchsorted(ends, before + most, "right"))
            at = min(at + count, max(fits, at + 1))
            before = int(ends[at - 1])
        return np.array(begins)

    def _by_asking(self, mark: int, at: int) -> int:
        """Return the same, pull by pull: of batches."""
        while at < mark:
            following = pull(self, self._log, replace(self._asked, offset=at), self._release).next_offset
            if not at < following <= mark:
                break
            at = following
        return at

    def _trouble(self, at: int, answer: Answer, bytes_of_log: ReadableLog) -> Trouble:
        units, sound = answer.units, self._are_sound(answer.units)
        queue = self._queue.topic, self._queue.queue_id
        got = received(units, sound, queue, bytes_of_log, self._release)
        right = {one.unit for one in got if one.kind == RIGHT}
        others = [one for one in got if one.kind != RIGHT]
        wrong = tuple(Wrong(units[one.unit].queue_offset, one.kind, one.topic or "") for one in others)
        missed = [unit for number, unit in enumerate(units) if sound[number] and number not in right]
        missed += compress(answer.passed, self._are_sound(answer.passed))
        offsets = (range(max(unit.queue_offset, at), unit.queue_offset + unit.messages) for unit in missed)
        return Trouble(at, answer.next_offset, wrong, tuple(sorted(chain.from_iterable(offsets))))

    def _are_sound(self, units: Sequence[Unit]) -> list[bool]:
        offsets = np.array([unit.queue_offset for unit in units], np.int64)
        return [bool(one) for one in ~np.isin(offsets, self._doubtful)]

    # --- the queue after the start --------------------------------------------------------------------

    def ends(self, release: str) -> tuple[int, int]:
        """Return (minimum, maximum)."""
        del release
        return self._ends

    def units_from(self, queue_offset: int) -> Iterator[Unit] | None:
        """Return the units from one that holds an offset to the end of its file."""
        return self._queue.units_from(queue_offset)

    def behind_file(self, queue_offset: int) -> int:
        """Return where a broker goes on that cannot read the file with an offset."""
        return self._queue.behind_file(queue_offset)
