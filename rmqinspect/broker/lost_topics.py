"""Topics whose queues are gone: which were lost, and which were deleted on purpose.

    topics.json     orders                          the broker knows it: its queues have to be there
    consumer offset -              payments 29      somebody consumed from it: it had queues
    log             orders         payments, old    payments was lost or deleted; of old nobody knows any more

The broker's own topics always exist: a broker makes them again, and deletes none of them. Up to 4.8.0 the op topic went
with the unused topics. Deleting a topic deletes the consumer offsets in it since 5.0.0: an offset that is left then
proves that nobody deleted the topic by command. Older releases leave them behind.

Source: TopicValidator#isSystemTopic, DefaultMessageStore#cleanUnusedTopic, AdminBrokerProcessor#deleteTopic,
ConsumerOffsetManager#cleanOffsetByTopic; RocketMQ 4.0.0 to 5.5.0.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from rmqinspect.broker.groups import is_system_group
from rmqinspect.broker.own_rules import TopicRules
from rmqinspect.config.json_files import ConsumerOffset
from rmqinspect.topics import OP_TOPIC, is_system_topic

Committed = Mapping[str, Mapping[str, Mapping[int, int]]]  # topic -> group -> queue id -> next offset to consume


def always_exists(topic: str, releases: Iterable[str]) -> bool:
    """Return whether each of these releases, or a later one, keeps the queues of a topic that topics.json lacks."""
    if not is_system_topic(topic):
        return False
    return topic != OP_TOPIC or all(TopicRules(release).keeps_op_topic for release in releases)


def committed_in(entries: Iterable[ConsumerOffset], topics: Collection[str]) -> Committed:
    """Return the offsets of consumer groups in some topics, without the broker's own groups and those at 0."""
    found: dict[str, dict[str, dict[int, int]]] = defaultdict(lambda: defaultdict(dict))
    for entry in entries:
        if entry.topic in topics and entry.offset > 0 and not is_system_group(entry.group):
            found[entry.topic][entry.group][entry.queue_id] = entry.offset
    return {topic: dict(groups) for topic, groups in found.items()}


def is_strong(releases: Sequence[str]) -> bool:
    """Return whether a committed offset proves that a topic was not deleted by command."""
    return bool(releases) and all(TopicRules(release).deletes_offsets for release in releases)
