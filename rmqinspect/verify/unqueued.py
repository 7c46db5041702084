"""CQ-NO-TOPIC: records of topics that have no queue, and that topics.json does not name.

    records of a topic   g g g g                 no unit leads to any of them, in no queue of the topic
    consumer offsets     group-a: 2              somebody consumed from it: lost, or deleted by a release before 5.0.0
                         none                    nobody knows it any more: deleted on purpose

No consumer gets any of them, so they are told however they came about. Where topics.json names the topic, its records
are CQ-MISSING.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from rmqinspect.broker.lost_topics import Committed, committed_in, is_strong
from rmqinspect.config.json_files import read_consumer_offsets
from rmqinspect.store.model import Store
from rmqinspect.text import count
from rmqinspect.verify.findings import Finding, place_in_log
from rmqinspect.verify.queue_join import Missing

_NAMED = 4  # topics and groups that a message names


def check_unqueued(store: Store, runs: Sequence[Missing], releases: Sequence[str]) -> Iterator[Finding]:
    """Yield CQ-NO-TOPIC: one for the topics that groups have offsets in, one for the others.

    `runs`: records that are entitled to a unit, of topics without a queue and not in topics.json.
    """
    if not runs:
        return
    entries, _ = read_consumer_offsets(store)
    committed = committed_in(entries, {run.topic for run in runs})
    proven = [run for run in runs if run.topic in committed]
    if proven:
        yield _proven(store, proven, committed, releases)
    if others := [run for run in runs if run.topic not in committed]:
        yield _unknown(store, others)


def _proven(store: Store, runs: Sequence[Missing], committed: Committed, releases: Sequence[str]) -> Finding:
    groups = sorted({group for groups in committed.values() for group in groups})
    left = _unconsumed(runs, committed)
    if left:
        named = [f"{group} had not consumed {number}" for group, number in left.most_common(_NAMED)]
        more = [f"{count(len(left) - _NAMED, 'group')} more"] if len(left) > _NAMED else []
        behind = f" ({', '.join([*named, *more])})"
    else:
        behind = " (and nothing left to consume)"
    why = "deleted on purpose, or lost with topics.json, as on a replica that took over an empty list"
    if not is_strong(releases):
        why = "deleted on purpose (before 5.0.0 that leaves the offsets), or lost with topics.json"
    have = "has offsets" if len(groups) == 1 else "have offsets"
    what = f"{count(len(groups), 'group')} {have} there{behind}: {why}"
    topic = runs[0].topic
    return _finding(
        store,
        runs,
        what,
        do=f"unless they were deleted on purpose: name {_topics_in_words(runs)} in config/topics.json again (a copy of "
        "it, or the file of another broker of the cluster), and rebuild the queues before the broker is started: "
        "a start as it is gives new messages the offsets from 0 on, and groups skip those below their own",
        topic=topic,
    )


def _unknown(store: Store, runs: Sequence[Missing]) -> Finding:
    what = "no group has an offset there: as after a topic was deleted on purpose"
    return _finding(store, runs, what, severity="info", topic=runs[0].topic)


def _finding(
    store: Store, runs: Sequence[Missing], what: str, *, topic: str, severity: str = "", do: str = ""
) -> Finding:
    first = min(runs, key=lambda run: run.low)
    messages, topics = sum(run.messages for run in runs), len({run.topic for run in runs})
    are, no = ("is", "its topic is") if messages == 1 else ("are", "the topic is")
    if topics > 1:
        no = "the topics are"
    return Finding(
        "CQ-NO-TOPIC",
        f"{count(messages, 'message')} {are} in no queue: {_topics_in_words(runs, numbers=True)}; {no} not in "
        f"topics.json; {what}",
        severity=severity,
        **place_in_log(store, first.low),
        topic=topic,
        queue_id=first.queue_id if topic == first.topic else None,
        expected="a queue",
        found="none",
        timestamp=first.first_timestamp,
        do=do,
    )


def _topics_in_words(runs: Sequence[Missing], *, numbers: bool = False) -> str:
    messages: Counter[str] = Counter()
    for run in runs:
        messages[run.topic] += run.messages
    ordered = messages.most_common()
    named = [f"{topic} {number}" if numbers else topic for topic, number in ordered[:_NAMED]]
    more = [f"{count(len(ordered) - _NAMED, 'more topic')}"] if len(ordered) > _NAMED else []
    return ", ".join([*named, *more])


def _unconsumed(runs: Sequence[Missing], committed: Mapping[str, Mapping[str, Mapping[int, int]]]) -> Counter[str]:
    """Return how many of the messages each group had not consumed; queues without its offset count as nothing."""
    by_queue: dict[tuple[str, int], list[Missing]] = defaultdict(list)
    for run in runs:
        by_queue[run.topic, run.queue_id].append(run)
    left: Counter[str] = Counter()
    for topic, groups in committed.items():
        for group, offsets in groups.items():
            for queue_id, offset in offsets.items():
                for run in by_queue[topic, queue_id]:
                    left[group] += max(0, run.queue_offset + run.messages - max(offset, run.queue_offset))
    return +left
