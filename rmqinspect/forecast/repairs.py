"""What `rebuild` and `salvage` before a start would give: priced from the counts of the start, nothing is read again.

    rebuild    takes a sound log only; every record that can have a unit has one, and each queue ends behind its last
               record: groups that are further skip what comes, where the end of the log is missing
    salvage    takes any plain log; every sound record stays, queues keep their ends, so that no group skips anything

Both write a new store beside the old one, and start it after an orderly stop. `salvage --dry-run` makes the whole plan.

Source: `rmqinspect.rescue`.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

from rmqinspect.forecast.outcome import REBUILD, SALVAGE, Alternative, Losses, Outcome, QueueOutcome, Verdict

NoteGroups = Callable[[Outcome], None]
"""Notes what a start means to groups, by the queues of its outcome."""


def repairs(
    worst: Outcome, *, has_records: bool, is_sound: bool, is_ledger: bool, note_groups: NoteGroups
) -> Iterator[Alternative]:
    """Yield what `rebuild` and `salvage` give before the start of a release, where they can be made.

    `has_records`: the log holds some that consumers can get. `is_sound`: nothing of the log is damaged or missing.
    """
    if not has_records or not (worst.judged or worst.verdict is Verdict.REFUSES):
        return
    if is_sound and worst.judged:
        rebuilt = _after(worst)
        ends = dict(worst.next_offsets)
        for queue in rebuilt.queues:
            queue.max_after = max(queue.max_after, ends.pop((queue.topic, queue.queue_id), 0))
        rebuilt.queues += [QueueOutcome(*name, 0, 0, 0, end) for name, end in ends.items()]
        note_groups(rebuilt)
        rebuilt.verdict = Verdict.LOSES if rebuilt.skipped else Verdict.SAFE
        yield Alternative(f"{REBUILD}, then the same broker", rebuilt, tool=REBUILD)
    if not is_ledger:
        salvaged = _after(worst)
        salvaged.verdict = Verdict.SAFE
        yield Alternative(f"{SALVAGE}, then the same broker", salvaged, tool=SALVAGE)


def _after(worst: Outcome) -> Outcome:
    """Return the outcome of a start of a new store that has all sound records of this one, in queues."""
    return Outcome(
        worst.release,
        worst.era,
        clean_exit=True,
        min_offset=max(worst.min_offset, 0),
        end_offset=max(worst.end_offset, worst.losses.end or 0),
        losses=Losses(),
        queues=[replace(queue, cut=0, added=0, unreachable=0, given_twice=0) for queue in worst.queues],
        judged=True,
        acknowledged=worst.acknowledged,
    )
