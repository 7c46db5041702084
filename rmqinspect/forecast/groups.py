"""Groups whose offset a start leaves beyond the end of its queue.

Such a group gets nothing until the queue has grown past its offset, or the broker sets it back: what is written there
meanwhile is never consumed. Source: ConsumerOffsetManager, PullMessageProcessor; RocketMQ 4.0.0 to 5.5.0.
"""

from collections.abc import Sequence

from rmqinspect.config.json_files import ConsumerOffset
from rmqinspect.forecast.outcome import GroupBeyond, QueueOutcome


def groups_beyond(offsets: Sequence[ConsumerOffset], queues: Sequence[QueueOutcome]) -> list[GroupBeyond]:
    """Return the groups beyond the new maximum of a queue, by group, topic and queue id."""
    ends = {(queue.topic, queue.queue_id): queue.max_after for queue in queues}
    found = [
        GroupBeyond(entry.group, entry.topic, entry.queue_id, entry.offset, end)
        for entry in offsets
        if (end := ends.get((entry.topic, entry.queue_id))) is not None and entry.offset > end
    ]
    return sorted(found)
