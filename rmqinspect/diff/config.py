"""Consumer offsets and topics of two stores side by side."""

from rmqinspect.config.json_files import read_config, read_consumer_offsets
from rmqinspect.diff.differences import SIDES, Difference, only_in
from rmqinspect.diff.result import DiffResult


def compare_groups(result: DiffResult) -> None:
    """Add a difference for each consumer offset that differs or that only one store has."""
    found = []
    for side, store in zip(SIDES, result.stores, strict=True):
        offsets, problems = read_consumer_offsets(store)
        if problems and not offsets:
            result.unread += [f"{side}: {problem}" for problem in problems]
            return
        found.append({(entry.group, entry.topic, entry.queue_id): entry.offset for entry in offsets})
    a, b = found
    result.group_offsets = len(a.keys() & b.keys())
    for key in sorted(a.keys() | b.keys()):
        if a.get(key) != b.get(key):
            group, topic, queue_id = key
            in_both = key in a and key in b
            result.differences.add(
                Difference(
                    "group_offset",
                    "the group resumes at another message"
                    if in_both
                    else "the group has no offset for this queue in the other store",
                    only_in=only_in(key in a, key in b),
                    topic=topic,
                    group=group,
                    queue_id=queue_id,
                    a=str(a[key]) if key in a else None,
                    b=str(b[key]) if key in b else None,
                )
            )


def compare_topics(result: DiffResult) -> None:
    """Add a difference for each topic that only one store's topics.json has."""
    found = []
    for side, store in zip(SIDES, result.stores, strict=True):
        document = read_config(store, "topics.json")
        if document is not None and document.source is None:
            result.unread += [f"{side}: {problem}" for problem in document.problems]
            return
        found.append(set(document.table("topicConfigTable")) if document else set())
    a, b = found
    result.topics = len(a & b)
    for topic in sorted(a ^ b):
        result.differences.add(
            Difference(
                "topic_only",
                "topics.json of the other store does not have it",
                only_in=only_in(topic in a, topic in b),
                topic=topic,
            )
        )
