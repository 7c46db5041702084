"""Consumer offsets and topics of two stores side by side."""

from array import array
from collections.abc import Iterator
from heapq import merge
from itertools import groupby, repeat
from operator import itemgetter

from rmqinspect.config.json_files import ConsumerOffset, read_config, read_consumer_offsets
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
        found.append(_Columns(offsets))
    result.group_offsets = 0
    both = merge(*(side.rows(number) for number, side in enumerate(found)))
    for (group, topic, queue_id), same in groupby(both, itemgetter(0, 1, 2)):
        offsets_of = {number: offset for *_, number, offset in same}
        a, b = offsets_of.get(0), offsets_of.get(1)
        in_both = a is not None and b is not None
        result.group_offsets += in_both
        if a != b:
            result.differences.add(
                Difference(
                    "group_offset",
                    "the group resumes at another message"
                    if in_both
                    else "the group has no offset for this queue in the other store",
                    only_in=only_in(a is not None, b is not None),
                    topic=topic,
                    group=group,
                    queue_id=queue_id,
                    a=None if a is None else str(a),
                    b=None if b is None else str(b),
                )
            )


class _Columns:
    """The consumer offsets of one store, sorted, in a quarter of the memory of the rows."""

    def __init__(self, offsets: list[ConsumerOffset]) -> None:
        """Take sorted rows; the list is empty afterwards."""
        self._groups: list[str] = []
        self._topics: list[str] = []
        self._queue_ids, self._offsets = array("q"), array("q")
        offsets.reverse()
        while offsets:
            entry = offsets.pop()
            self._groups.append(entry.group)
            self._topics.append(entry.topic)
            self._queue_ids.append(entry.queue_id)
            self._offsets.append(entry.offset)

    def rows(self, side: int) -> Iterator[tuple[str, str, int, int, int]]:
        """Yield (group, topic, queue id, side, offset), sorted."""
        return zip(self._groups, self._topics, self._queue_ids, repeat(side), self._offsets, strict=False)


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
