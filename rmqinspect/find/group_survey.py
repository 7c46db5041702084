"""What an operator asks about consumer groups, of one store: who is how far behind, and what nobody consumes.

Source: ConsumerOffsetManager, ConsumerProgressSubCommand; RocketMQ 4.0.0 to 5.5.0.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from rmqinspect.broker.group_topics import is_own_topic, is_system_group, kind_of, own_name, owner_of
from rmqinspect.broker.pop_state import PopCount
from rmqinspect.commitlog.store_timestamps import StoreTimes
from rmqinspect.config.json_files import read_consumer_offsets
from rmqinspect.consumequeue.units import QueueSummary
from rmqinspect.find.offset_files import OffsetFile, offset_files
from rmqinspect.store.model import Store
from rmqinspect.tables.groups import Position, ends_of, pop_counts, positions, times_of
from rmqinspect.tables.pop_notes import pop_queues
from rmqinspect.tables.table import Request
from rmqinspect.topics import DLQ_PREFIX, LMQ_PREFIX, RETRY_PREFIX


@dataclass(slots=True)
class GroupTopic:
    """A group and one topic: sums over its queues, in messages."""

    group: str
    topic: str
    kind: str
    positions: list[Position]
    lag: int = 0
    lost: int = 0
    beyond: int = 0  # by which offsets lie behind their queue's end
    pops: PopCount | None = None  # None where nothing was popped
    oldest_unconsumed: int | None = None  # microseconds; with `inflow` after `add_times`
    inflow: int | None = None  # messages an hour

    @property
    def weight(self) -> int:
        """How much there is to tell."""
        return self.lag + self.lost + self.beyond


@dataclass(frozen=True, slots=True)
class TopicContent:
    """A topic that no group consumes."""

    topic: str
    group: str | None  # whose retry or dead-letter topic it is
    queues: int
    messages: int
    newest: tuple[int, int] | None  # (physical offset, size) of the last record


@dataclass(slots=True)
class GroupSurvey:
    """The answer for one store."""

    lines: list[GroupTopic] = field(default_factory=list)  # most to tell first, the broker's own groups last
    dead_letters: list[TopicContent] = field(default_factory=list)
    retries: list[TopicContent] = field(default_factory=list)  # without an offset of their group
    unconsumed: list[TopicContent] = field(default_factory=list)  # no group has an offset there
    lag: int = 0  # of all groups, also those that are not in `lines`
    queues: int = 0  # of the store
    light_queues: int = 0  # with messages, and without an offset
    files: list[OffsetFile] = field(default_factory=list)
    problems: tuple[str, ...] = ()  # of the files of the offsets
    readable: bool = True  # whether there are offsets
    last_time: int | None = None  # store time of the last message of any queue, ms
    topics: set[str] = field(default_factory=set)  # of all queues and offsets
    groups: set[str] = field(default_factory=set)  # with an offset, without what follows it for broadcast consumers


Wanted = Callable[[Position], bool]


def survey_groups(store: Store, request: Request, wanted: Wanted) -> GroupSurvey:
    """Return how far the groups are; `wanted` chooses the positions that are shown, and of topics what is in none.

    The store has what its RocksDB databases hold. Times are not read but for the last one: `add_times`.

    :raises Unreadable: a queue cannot be read, and there is no `request.on_unreadable`.
    """
    entries, problems = read_consumer_offsets(store)
    queues = ends_of(store, request)
    noted = pop_queues(store)
    pops = pop_counts(store, entries, {queue: ends for queue, ends in queues.items() if queue in noted}, request)
    found = GroupSurvey(problems=problems, readable=bool(entries))
    found.queues = len(queues)
    found.topics = {topic for topic, _ in queues} | {entry.topic for entry in entries}
    everyone = list(positions(entries, queues, store))
    found.lag = sum(max(0, position.lag or 0) for position in everyone)
    lines = groupby(filter(wanted, everyone), lambda one: (one.entry.group, one.entry.topic))
    found.lines = [_line(*names, list(some), pops) for names, some in lines]
    found.lines.sort(key=lambda line: (line.kind == "system", -line.weight))
    _add_topics(found, queues, {(entry.topic, entry.queue_id) for entry in entries if not is_system_group(entry.group)})
    found.groups = {own_name(entry.group) for entry in entries}
    found.retries, found.dead_letters = (
        [replace(one, group=owner_of(one.topic, found.groups, found.topics)) for one in some]
        for some in (found.retries, found.dead_letters)
    )
    found.files = list(offset_files(store, entries))
    found.last_time = _last_time(store, queues.values())
    return found


def _line(group: str, topic: str, some: list[Position], pops: Mapping[tuple[str, str, int], PopCount]) -> GroupTopic:
    line = GroupTopic(group, topic, kind_of(group, topic), some)
    for position in some:
        lag = position.lag or 0
        line.lag += max(0, lag)
        line.beyond += max(0, -lag)
        line.lost += position.lost or 0
        count = pops.get((group, topic, position.entry.queue_id))
        if count is not None:
            line.pops = line.pops or PopCount()
            line.pops.add(count)
    return line


def _add_topics(
    found: GroupSurvey, queues: Mapping[tuple[str, int], QueueSummary], consumed: set[tuple[str, int]]
) -> None:
    """Add what no group consumes: topics without an offset, that are not the broker's."""
    of_topic: dict[str, list[QueueSummary]] = defaultdict(list)
    for (topic, _), ends in queues.items():
        of_topic[topic].append(ends)
    known = {topic for topic, _ in consumed}
    for topic, some in sorted(of_topic.items()):
        content = _content(topic, some)
        if topic in known or not content.messages:
            continue
        if topic.startswith(DLQ_PREFIX):
            found.dead_letters.append(content)
        elif topic.startswith(LMQ_PREFIX):
            found.light_queues += len(some)
        elif not is_own_topic(topic):
            found.unconsumed.append(content)
        elif topic.startswith(RETRY_PREFIX):
            found.retries.append(content)


def _content(topic: str, some: Sequence[QueueSummary]) -> TopicContent:
    lasts = [(ends.last_physical_offset, ends.last_size) for ends in some]
    newest = max(((place, size) for place, size in lasts if place is not None and size is not None), default=None)
    return TopicContent(topic, None, len(some), sum(ends.max_offset - ends.min_offset for ends in some), newest)


def _last_time(store: Store, queues: Iterable[QueueSummary]) -> int | None:
    newest = _content("", list(queues)).newest
    with StoreTimes(store) as times:
        return None if newest is None else times.at(*newest)


def add_times(store: Store, lines: Iterable[GroupTopic], request: Request) -> None:
    """Add the oldest unconsumed message and the inflow to some lines: records of every queue are read for it."""
    for line in lines:
        times = times_of(store, line.positions, request)
        line.oldest_unconsumed = min((one.oldest_unconsumed for one in times if one.oldest_unconsumed), default=None)
        inflows = [one.inflow for one in times if one.inflow is not None]
        line.inflow = sum(inflows) if inflows else None
