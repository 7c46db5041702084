"""Which consumer groups have passed a message of a queue, by their offsets: whether they took it, no file says.

    queue    |  deleted  | 5  6  7  8  9 |           consumer offset 8: 7 and before are passed, 8 comes next
             0           min            max          consumer offset 2: 2 to 4 are lost to the group

Source: ConsumerOffsetManager; RocketMQ 4.0.0 to 5.5.0.

The messages that a consumer group has not consumed: what its lag counts, and what waits in its retry topics.

    queue    |  deleted   | a  b  c | d  e  f |         consumer offset at d: d to f
             0           min                 max         consumer offset below min: a to f

A retry topic that the group has no offset in is read from its beginning, as a consumer does. Offsets of other queues
that the group never committed are not known: these count as nothing, as they do for the lag.

Source: ConsumerOffsetManager, RebalancePushImpl#computePullFromWhere; RocketMQ 4.0.0 to 5.5.0.

How old consumer offsets are, and how many messages come again if a broker starts with another copy of them.

A broker writes consumerOffset.json every five seconds and keeps the file before it as `.bak`, so between both lies
what the groups consumed in that time. Without a good file it loads the copy.

Source: ConfigManager#load, ConsumerOffsetManager, BrokerController (flushConsumerOffsetInterval); RocketMQ 4.0.0 to
5.5.0.

What an operator asks about consumer groups, of one store: who is how far behind, and what nobody consumes.

Source: ConsumerOffsetManager, ConsumerProgressSubCommand; RocketMQ 4.0.0 to 5.5.0.
"""

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from functools import cached_property
from itertools import chain, groupby

from msgspec import Struct, field
from msgspec.structs import replace

from rmqinspect.broker.eras import searches_minimum
from rmqinspect.broker.groups import PopCount, is_own_topic, is_system_group, kind_of, own_name, owner_of
from rmqinspect.broker.offset_age import OffsetAge, newest_passed, offset_age, written_at
from rmqinspect.codec.arrays import merge
from rmqinspect.commitlog.missing import missing_in
from rmqinspect.commitlog.record_reader import RecordReader
from rmqinspect.config.json_files import (
    OFFSET_FILES,
    ConfigDocument,
    ConsumerOffset,
    consumer_offsets_of,
    integer,
    read_config,
    read_consumer_offsets,
)
from rmqinspect.consumequeue.bounds import QueueSummary, queue_end, queue_ends
from rmqinspect.consumequeue.units import LAYOUTS
from rmqinspect.errors import NothingFound, Unreadable
from rmqinspect.rocksdb.databases import why_unknown
from rmqinspect.store.model import QueueFile, Store
from rmqinspect.store.reader import modified_at
from rmqinspect.tables.filters import Selection
from rmqinspect.tables.group_positions import (
    Position,
    Refused,
    ends_of,
    positions,
    refused_messages,
    tell_missing_lag,
    times_of,
    waiting_in,
)
from rmqinspect.tables.pops import pop_counts, pop_queues
from rmqinspect.tables.queue_ranges import QueueRange
from rmqinspect.tables.request import Request
from rmqinspect.tables.sources import unread_places
from rmqinspect.topics import DLQ_PREFIX, LMQ_PREFIX, RETRY_PREFIX


class Passed(Struct, frozen=True):
    """How a consumer group stands to one message."""

    group: str  # with a second @ a proxy's broadcast consumer
    consumer_offset: int  # the next queue offset it consumes; of a group that pops: the next one it pops
    passed: bool  # it is before that offset
    lost: bool  # not passed, and below the queue's minimum: the group will not get it
    as_of: int | None = None  # ms: not passed then, before the message was stored, so what followed is not known


class Consumers:
    """The consumer offsets of a store, read once.

    `problems` says what is wrong with their files, `unread` why not all are known; not `given`: there are no files.

    The store has what its RocksDB databases hold (`rocksdb.unpack.unpacked`), if offsets lie there.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._offsets: dict[tuple[str, int], list[ConsumerOffset]] = defaultdict(list)
        self._searches = searches_minimum(store)
        entries, self.problems = read_consumer_offsets(store)
        self.unread = why_unknown(store, "consumer offsets")
        if self.unread is None and self.problems and not entries:
            self.unread = self.problems[0]
        names = (*store.config_files, *(name for _, name in store.unpacked_config))
        self.given = any(name.startswith(OFFSET_FILES) for name in names)
        for entry in entries:
            self._offsets[entry.topic, entry.queue_id].append(entry)
        self._minima: dict[tuple[str, int], int | None] = {}
        self._written: dict[str, int | None] = {}  # ms, by file

    def of(self, topic: str, queue_id: int, queue_offset: int, stored: int | None = None) -> list[Passed]:
        """Return every group with an offset in a queue, by name, and how it stands to a message of it.

        The queue is the one whose unit leads to the message: of a light message `%LMQ%…`, queue 0, as well as the
        record's own. `stored`: the message's store time in ms: offsets that are older do not know of it.
        """
        found = []
        for entry in self._offsets.get((topic, queue_id), ()):
            passed = queue_offset < entry.offset
            lost = not passed and queue_offset < (self._min_offset(topic, queue_id) or 0)
            as_of = None if passed or lost or stored is None else self._older_than(stored, entry.file)
            found.append(Passed(entry.group, entry.offset, passed, lost, as_of))
        return found

    def _older_than(self, stored: int, file: str) -> int | None:
        """Return when the offsets were written (ms), if that was before a message was stored; else None."""
        if file not in self._written:
            self._written[file] = written_at(self._store, file)
        written = self._written[file]
        if written is None or written >= stored:
            return None
        written = max(written, self._newest_passed)
        return written if written < stored else None

    @cached_property
    def _newest_passed(self) -> int:
        """The store time (ms) of the newest message that any offset has passed: the file is no older."""
        queues = {}
        for queue in self._offsets:
            files = self._files.get(queue)
            with suppress(Unreadable):  # what needs the queue itself says so
                if files:
                    queues[queue] = queue_end(tuple(files), self._store.log_start, self._searches)
        with RecordReader(self._store) as reader:
            return newest_passed(chain.from_iterable(self._offsets.values()), queues, reader)

    @cached_property
    def groups_of(self) -> Mapping[str, set[str]]:
        """The groups with an offset in a queue of each topic; none for other topics."""
        groups: dict[str, set[str]] = defaultdict(set)
        for (topic, _), entries in self._offsets.items():
            groups[topic].update(entry.group for entry in entries)
        return groups

    def _min_offset(self, topic: str, queue_id: int) -> int | None:
        """Return a queue's minimum, None without its files."""
        queue = topic, queue_id
        if queue not in self._minima:
            files = self._files.get(queue)
            try:
                ends = queue_end(tuple(files), self._store.log_start, self._searches) if files else None
                self._minima[queue] = None if ends is None else ends.min_offset
            except Unreadable:  # what needs the queue itself says so
                self._minima[queue] = None
        return self._minima[queue]

    @cached_property
    def _files(self) -> dict[tuple[str, int], list[QueueFile]]:
        files: dict[tuple[str, int], list[QueueFile]] = defaultdict(list)
        for file in self._store.queue_files:
            if file.kind in LAYOUTS:
                files[file.topic, file.queue_id].append(file)
        return files


class Unconsumed(Struct, frozen=True):
    """What a group has not consumed in one store."""

    known: bool  # whether the store has an offset, or a retry topic, of the group
    ranges: tuple[QueueRange, ...]
    remarks: tuple[str, ...]  # what is wrong with the files of the offsets, and another copy was read
    unread: tuple[str, ...]  # what could not be read: the ranges are not all


def unconsumed(store: Store, group: str) -> Unconsumed:
    """Return what a group has not consumed; of a proxy's broadcast consumer if its whole name is given.

    The store has what its RocksDB databases hold, if offsets or queues lie there.
    """
    entries, problems = read_consumer_offsets(store)
    offsets = {(entry.topic, entry.queue_id): entry.offset for entry in entries if entry.group == group}
    groups = {own_name(entry.group) for entry in entries} | {group}
    topics = {file.topic for file in store.queue_files}
    own = {topic for topic in topics if not topic.startswith(DLQ_PREFIX) and owner_of(topic, groups, topics) == group}
    retries = {(file.topic, file.queue_id) for file in store.queue_files if file.topic in own}
    unread: list[str] = []
    ranges = []
    for queue in queue_ends(store, lambda: True, offsets.keys() | retries, unread.append):
        first = max(offsets.get((queue.topic, queue.queue_id), 0), queue.first_kept)
        if first < queue.max_offset:
            ranges.append(QueueRange(queue.topic, queue.queue_id, first, queue.max_offset))
    remarks, missed = (problems, ()) if entries else ((), problems)
    unread += [*unread_places(store, ("groups",)), *missed]
    return Unconsumed(bool(offsets or retries), tuple(ranges), remarks, tuple(unread))


def with_unconsumed(store: Store, selection: Selection) -> tuple[Selection, Unconsumed | None]:
    """Return the selection with the ranges of this store, and what they are made of; None if it asks for no group."""
    if selection.unconsumed is None:
        return selection, None
    found = unconsumed(store, selection.unconsumed)
    return dataclasses.replace(selection, unconsumed_in=found.ranges), found


def expect_group(stores: Sequence[Store], group: str) -> None:
    """Make sure that a store has an offset, or a retry topic, of a group.

    :raises NothingFound: none has; the message names groups that are like it.
    :raises Unreadable: none has, and the consumer offsets of a store cannot be read.
    """
    if any(unconsumed(store, group).known for store in stores):
        return
    read = [read_consumer_offsets(store) for store in stores]
    groups = {entry.group for entries, _ in read for entry in entries}
    for entries, problems in read:
        if problems and not entries:
            raise Unreadable(problems[0])
    for store in stores:
        if why := why_unknown(store, "consumer offsets"):
            raise Unreadable(f"{store.name}: whether a group {group} has consumer offsets is not known: {why}")
    if not groups:
        raise NothingFound(f"no consumer offset of a group {group}: no consumer offsets were given")
    near = ", ".join(get_close_matches(group, sorted(groups), n=3, cutoff=0.5))
    raise NothingFound(f"no consumer offset of a group {group}" + (f"; near: {near}" if near else ""))


_LARGEST = 2 << 20  # bytes of a copy that is compared; parsed it takes ten times as much


class OffsetCopy(Struct, frozen=True):
    """Another copy of a file, against the one that is used."""

    file: str
    behind: int  # messages that its groups consume again
    ahead: int  # messages that they have consumed by it, and not by the one used


class OffsetFile(Struct, frozen=True):
    """A file of consumer offsets; times in ms."""

    file: str  # the copy that is used
    is_copy: bool  # not the file itself: that is missing, or cannot be read
    written: int | None  # the file's time; None for one in RocksDB, and one that is gone
    version_time: int | None  # of its dataVersion, which changes with every 500th commit at most
    copies: tuple[OffsetCopy, ...]


def offset_files(store: Store, entries: Sequence[ConsumerOffset]) -> Iterator[OffsetFile]:
    """Yield the files of consumer offsets that a store has; `entries` are the offsets that are used."""
    used = {(entry.group, entry.topic, entry.queue_id): entry.offset for entry in entries}
    for name in OFFSET_FILES:
        document = read_config(store, name)
        if document is None or document.source is None:
            continue
        of_files = document.source in store.config_files.values()
        yield OffsetFile(
            document.source.name,
            of_files and document.source.name.rpartition("/")[2] != name,
            modified_at(document.source) // 1_000_000 or None if of_files else None,
            integer(document.table("dataVersion").get("timestamp")),
            tuple(
                _compare(copy, used)
                for file, copy in zip(document.others, document.other_copies(), strict=True)
                if file.size <= _LARGEST
            ),
        )


def _compare(copy: ConfigDocument, used: dict[tuple[str, str, int], int]) -> OffsetCopy:
    behind = ahead = 0
    for entry in consumer_offsets_of(copy, []):
        difference = used.get((entry.group, entry.topic, entry.queue_id), entry.offset) - entry.offset
        behind += max(0, difference)
        ahead += max(0, -difference)
    return OffsetCopy(copy.source.name if copy.source else copy.name, behind, ahead)


_NO_END = 1 << 63


class GroupTopic(Struct):
    """A group and one topic: sums over its queues, in messages."""

    group: str
    topic: str
    kind: str
    positions: list[Position]
    lag: int = 0
    lost: int = 0
    beyond: int = 0  # by which offsets lie behind their queue's end; a queue that is not there ends at 0
    absent: int = 0  # offsets in queues that are not there, and should be
    no_queue: int = 0  # offsets in queues that are not there, of topics that the broker does not know: no lag is known
    consumed: int = 0  # messages before these offsets: at least so many were there
    not_here: int = 0  # messages of the lag whose records lie where the log has no segment
    pops: PopCount | None = None  # None where nothing was popped
    oldest_unconsumed: int | None = None  # microseconds; with `inflow` after `add_times`
    inflow: int | None = None  # messages an hour

    @property
    def weight(self) -> int:
        """How much there is to tell."""
        return self.lag + self.lost + self.beyond + self.consumed

    @property
    def has_no_queue(self) -> bool:
        """Whether none of the queues is there, and messages were consumed from them."""
        return self.no_queue == len(self.positions)


class TopicContent(Struct, frozen=True):
    """A topic that no group consumes."""

    topic: str
    group: str | None  # whose retry or dead-letter topic it is
    queues: int
    messages: int
    newest: tuple[int, int] | None  # (physical offset, size) of the last record


class GroupSurvey(Struct):
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
    age: OffsetAge | None = None  # how old the offsets are
    refused: list[Refused] = field(default_factory=list)  # messages that no consumer can read
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
    found.refused = refused_messages(store, filter(wanted, everyone))
    lines = groupby(filter(wanted, everyone), lambda one: (one.entry.group, one.entry.topic))
    found.lines = [_line(*names, list(some), pops) for names, some in lines]
    _add_not_here(found.lines, store, request)
    tell_missing_lag(store, [position for line in found.lines for position in line.positions], request)
    found.lines.sort(key=lambda line: (line.kind == "system", -line.weight))
    _add_topics(found, queues, {(entry.topic, entry.queue_id) for entry in entries if not is_system_group(entry.group)})
    found.groups = {own_name(entry.group) for entry in entries}
    found.retries, found.dead_letters = (
        [replace(one, group=owner_of(one.topic, found.groups, found.topics)) for one in some]
        for some in (found.retries, found.dead_letters)
    )
    found.files = list(offset_files(store, entries))
    found.last_time = _last_time(store, queues.values())
    found.age = offset_age(store, entries, queues, found.last_time)
    return found


def _line(group: str, topic: str, some: list[Position], pops: Mapping[tuple[str, str, int], PopCount]) -> GroupTopic:
    line = GroupTopic(group, topic, kind_of(group, topic), some)
    for position in some:
        lag = position.lag or 0
        line.lag += max(0, lag)
        absent = position.queue is None and position.status == "beyond_max"
        line.absent += absent
        if position.status == "no_queue" and position.entry.offset > 0:
            line.no_queue += 1
            line.consumed += position.entry.offset
        line.beyond += position.entry.offset if absent else max(0, -lag)
        line.lost += position.lost or 0
        count = pops.get((group, topic, position.entry.queue_id))
        if count is not None:
            line.pops = line.pops or PopCount()
            line.pops.add(count)
    return line


def _add_not_here(lines: Iterable[GroupTopic], store: Store, request: Request) -> None:
    """Add how many messages of the lag have no segment: of a whole log nothing but the ends of queues is looked at."""
    if store.given != "store" or store.hides_log:
        return
    behind = max((segment.end for segment in store.segments), default=0), _NO_END
    missing = merge([*((gap.start, gap.end) for gap in missing_in(store)), behind])
    for line in lines:
        for position in line.positions:
            line.not_here += waiting_in(missing, position, request)


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
    return TopicContent(topic, None, len(some), sum(ends.max_offset - ends.first_kept for ends in some), newest)


def _last_time(store: Store, queues: Iterable[QueueSummary]) -> int | None:
    newest = _content("", list(queues)).newest
    with RecordReader(store) as times:
        return None if newest is None else times.timestamp_of(*newest)


def add_times(store: Store, lines: Iterable[GroupTopic], request: Request) -> None:
    """Add the oldest unconsumed message and the inflow to some lines: records of every queue are read for it."""
    for line in lines:
        times = times_of(store, line.positions, request)
        line.oldest_unconsumed = min((one.oldest_unconsumed for one in times if one.oldest_unconsumed), default=None)
        inflows = [one.inflow for one in times if one.inflow is not None]
        line.inflow = sum(inflows) if inflows else None
