"""What repairs before a start would give: priced from the counts of the start, the log is not read again.

    rebuild    takes a sound log only; every record that can have a unit has one, and each queue ends behind its last
               record: groups that are further skip what comes, where the end of the log is missing
    salvage    takes any plain log; every sound record stays, and queues keep their ends: groups skip what comes only
               where they are further than those
    levels     offsets of delay levels are set back to the first message that waits, or to the end of the queue

The first two write a new store beside the old one, and start it after an orderly stop; `salvage --dry-run` makes the
whole plan. They copy the files of `config/`: what the broker does not read stays unread, and a delay level that is
ahead of its queue stays so.

Source: `rmqinspect.rescue`.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

from rmqinspect.forecast.outcome import REBUILD, SALVAGE, Alternative, Losses, Outcome, QueueOutcome, Remedy, Verdict
from rmqinspect.forecast.verdicts import verdict_of
from rmqinspect.forecast.words import level_edits

NoteReaders = Callable[[Outcome], None]
"""Notes what a start means to groups and to what the broker delivers by itself, by the queues of its outcome."""


def repairs(
    worst: Outcome, *, has_records: bool, is_sound: bool, is_ledger: bool, note_readers: NoteReaders
) -> Iterator[Alternative]:
    """Yield what `rebuild` and `salvage` give before the start of a release, where they can be made.

    `has_records`: the log holds some that consumers can get. `is_sound`: nothing of the log is damaged or missing.
    """
    if not has_records or not (worst.judged or worst.verdict is Verdict.REFUSES):
        return
    if is_sound and worst.judged:
        rebuilt = _after(worst)
        note_readers(rebuilt)
        rebuilt.verdict = verdict_of(rebuilt, cuts_records=False)
        yield Alternative(f"{REBUILD}, then the same broker", rebuilt, tool=REBUILD)
    if not is_ledger:
        salvaged = _after(worst)
        for queue in salvaged.queues:
            queue.max_after = max(queue.max_after, queue.max_before)
        if worst.judged:  # else no queue is known
            note_readers(salvaged)
        salvaged.verdict = verdict_of(salvaged, cuts_records=False)
        yield Alternative(f"{SALVAGE}, then the same broker", salvaged, tool=SALVAGE)


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
