"""What repairs before a start would give: priced from the records of the log and the counts of the start.

    rebuild    takes a sound log only, whose queues have each offset once; every record that can have a unit has one,
               and each queue ends behind its last record: groups that are further skip what comes, where the end of
               the log is missing
    salvage    takes any plain log; every sound record stays, and queues reach as far as their units and, where
               something is damaged, as their groups; where a record is lost its neighbour comes again
    levels     offsets of delay levels are set back to the first message that waits, or to the end of the queue

The first two write a new store beside the old one, and start it after an orderly stop. They copy the files of
`config/`: what the broker does not read stays unread, and a delay level that is ahead of its queue stays so.
`salvage --dry-run` makes the whole plan: it repairs records, too, so that no more comes again than is said here.

Source: `rmqinspect.rescue`.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from operator import attrgetter, itemgetter

from msgspec.structs import replace

from rmqinspect.broker.groups import is_system_group
from rmqinspect.forecast.evidence import Evidence
from rmqinspect.forecast.outcome import (
    REBUILD,
    SALVAGE,
    Alternative,
    GroupStart,
    Losses,
    Outcome,
    QueueOutcome,
    Remedy,
    Verdict,
)
from rmqinspect.forecast.reach import Judge
from rmqinspect.forecast.record_fold import Queue
from rmqinspect.forecast.verdicts import verdict_of
from rmqinspect.forecast.words import level_edits

_MOST_COPIES = 1 << 24  # messages of a queue: as many offsets without a record salvage fills at most

NoteReaders = Callable[[Outcome], None]
"""Notes what a start means to groups and to what the broker delivers by itself, by the queues of its outcome."""


def repairs(
    worst: Outcome,
    evidence: Evidence,
    judge: Judge | None,
    *,
    is_sound: bool,
    is_ledger: bool,
    note_readers: NoteReaders,
) -> Iterator[Alternative]:
    """Yield what `rebuild` and `salvage` give before the start of a release, where they can be made.

    `judge` has the records of the log, None where they are not known. `is_sound`: nothing of the log is damaged,
    missing, or there twice.
    """
    has_records = judge is None or judge.has_records
    if not has_records or not (worst.judged or worst.verdict is Verdict.REFUSES):
        return
    if is_sound and worst.rejected is not None:
        return  # a record that this release cannot read: it leaves the new store where it leaves this one
    if is_sound and worst.judged and judge is not None and judge.is_steady(_batch_topics(evidence)):
        rebuilt = _after(worst)
        note_readers(rebuilt)
        rebuilt.verdict = verdict_of(rebuilt, cuts_records=False)
        yield Alternative(f"{REBUILD}, then the same broker", rebuilt, tool=REBUILD)
    if not is_ledger:
        salvaged = _after(worst)
        if not worst.judged:  # a start that is refused has no queues
            salvaged.queues = [
                QueueOutcome(topic, queue_id, ends.min_offset, ends.max_offset, ends.min_offset, ends.max_offset)
                for (_, topic, queue_id), ends in sorted(evidence.queues.before.items(), key=itemgetter(0))
            ]
        reached = _reached(evidence) if not is_sound or worst.unreachable else {}
        for queue in salvaged.queues:
            queue.max_after = max(queue.max_after, queue.max_before, reached.get((queue.topic, queue.queue_id), 0))
        note_readers(salvaged)
        if judge is not None:
            _note_copies(salvaged, evidence, judge)
        salvaged.verdict = verdict_of(salvaged, cuts_records=False)
        yield Alternative(f"{SALVAGE}, then the same broker", salvaged, tool=SALVAGE)


def _batch_topics(evidence: Evidence) -> Collection[str]:
    """Return the topics whose queues have units that hold several offsets: in RocksDB none has."""
    return () if evidence.settings.has_rocksdb_queues else evidence.queues.batch_topics


def _reached(evidence: Evidence) -> Mapping[Queue, int]:
    """Return the highest offset of a group in each queue."""
    found: dict[Queue, int] = {}
    for entry in evidence.group_offsets:
        name = entry.topic, entry.queue_id
        found[name] = max(entry.offset, found.get(name, 0))
    return found


def _note_copies(salvaged: Outcome, evidence: Evidence, judge: Judge) -> None:
    """Add to the groups of users what comes to them again: at the places of lost messages stand their neighbours."""
    ends = {(queue.topic, queue.queue_id): queue.max_after for queue in salvaged.queues}
    copies: dict[str, Counter[Queue]] = defaultdict(Counter)
    for entry in evidence.group_offsets:
        name = entry.topic, entry.queue_id
        end = ends.get(name, 0)
        if 0 <= entry.offset < end <= entry.offset + _MOST_COPIES and not is_system_group(entry.group):
            copies[entry.group][name] += judge.without_record(name, entry.offset, end)
    groups = {group.group: group for group in salvaged.groups}
    for group, numbers in copies.items():
        if numbers.total():
            known = groups.get(group, GroupStart(group, (), 0, 0, 0))
            queues = tuple(sorted({*known.queues, *+numbers}))
            groups[group] = known._replace(queues=queues, again=known.again + numbers.total())
    salvaged.groups = sorted(groups.values(), key=attrgetter("unconsumed", "skips", "again"), reverse=True)


def levels_set_back(worst: Outcome) -> Iterator[Alternative]:
    """Yield the start with the offsets of delay levels set back that pass messages over, if there are any."""
    ahead = [level for level in worst.delay_levels if level.passed or level.skips]
    if not ahead:
        return
    edits = [(level.level, level.offset, level.set_back) for level in ahead if level.set_back is not None]
    repaired = replace(worst, delay_levels=[level for level in worst.delay_levels if level not in ahead])
    repaired.verdict = verdict_of(repaired, cuts_records=repaired.cuts_records)
    what = "delay level" if len(edits) == 1 else "delay levels"
    way = f"the same broker with {what} {level_edits(ahead)} in config/delayOffset.json"
    yield Alternative(way, repaired, Remedy(levels=tuple(edits)))


def _after(worst: Outcome) -> Outcome:
    """Return the outcome of a start of a new store that has all sound records of this one, in queues."""
    ends = dict(worst.next_offsets)
    queues = [replace(queue, cut=0, added=0, unreachable=0, given_twice=0) for queue in worst.queues]
    for queue in queues:
        queue.max_after = max(queue.max_after, ends.pop((queue.topic, queue.queue_id), 0))
    queues += [QueueOutcome(*name, 0, 0, 0, end) for name, end in ends.items()]
    return Outcome(
        worst.release,
        worst.era,
        clean_exit=True,
        min_offset=max(worst.min_offset, 0),
        end_offset=max(worst.end_offset, worst.losses.end or 0),
        losses=Losses(),
        queues=queues,
        judged=True,
        unread=worst.unread,
        acknowledged=worst.acknowledged,
    )
