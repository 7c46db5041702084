"""What a broker refuses a consumer with before it looks into a queue: whether a queue can be read at all.

    the broker        brokerPermission without reading                      NO_PERMISSION
    the group         none, and none is made by itself                      SUBSCRIPTION_GROUP_NOT_EXIST
                      consumeEnable=false                                   NO_PERMISSION
    the topic         not in topics.json, and none of the broker's own      TOPIC_NOT_EXIST
                      perm without reading                                  NO_PERMISSION
                      the queue is not below readQueueNums                  SYSTEM_ERROR, since 5.3.2 INVALID_PARAMETER
    group and topic   forbiddenTable, since 5.0.0                           NO_PERMISSION

The first that applies is the answer. A push or pull consumer does not even ask: the name server names it the read
queues of topics that can be read, and no others.

Source: PullMessageProcessor#processRequest, TopicConfigManager, LmqTopicConfigManager#selectTopicConfig,
SubscriptionGroupManager#findSubscriptionGroupConfig, #getForbidden, MQClientInstance#topicRouteData2TopicSubscribeInfo;
RocketMQ 4.0.0 to 5.5.0.
"""

import re
import shlex
from collections.abc import Mapping
from typing import Any, NamedTuple

from msgspec import Struct

from rmqinspect.broker.read_rules import RefusalRules
from rmqinspect.config.json_files import integer, read_config
from rmqinspect.store.model import Store
from rmqinspect.topics import LMQ_PREFIX, is_system_topic

NO_PERMISSION = "NO_PERMISSION"
TOPIC_NOT_EXIST = "TOPIC_NOT_EXIST"
SUBSCRIPTION_GROUP_NOT_EXIST = "SUBSCRIPTION_GROUP_NOT_EXIST"

_READ = 4  # PermName.PERM_READ
_DEFAULT_QUEUES = 16  # TopicConfig.defaultReadQueueNums
_FORBIDDEN_READ = 1 << 2  # by PermName.INDEX_PERM_READ
_INT = re.compile(r"\d{1,10}", re.ASCII)
_SYSTEM_GROUP = "CID_RMQ_SYS_"  # MixAll.CID_RMQ_SYS_PREFIX


class Refusal(NamedTuple):
    """The answer to a pull that is refused."""

    code: str  # name of the response code
    remark: str  # in the broker's words; without addresses, which it adds
    cure: str  # the command that makes the broker answer


class Access(Struct, frozen=True):
    """What of a broker's configuration decides whether a pull is answered."""

    topics: Mapping[str, Any]  # topicConfigTable; empty: not known
    groups: Mapping[str, Any]  # subscriptionGroupTable; empty: not known
    forbidden: Mapping[str, Any]  # by group
    settings: Mapping[str, str]

    def refusal(self, topic: str, queue_id: int, release: str, group: str | None = None) -> Refusal | None:
        """Return what a broker of a release refuses a pull with; None: it answers, or that is not known."""
        return (
            self._of_broker()
            or self._of_group(group)
            or self._of_topic(topic, queue_id, release)
            or self._of_group_and_topic(group, topic, release)
        )

    def read_queues(self, topic: str) -> int | None:
        """Return how many queues of a topic consumers are told to read, 0 if none; None where that is not known."""
        entry = self.topics.get(topic)
        if not isinstance(entry, dict):
            return 0 if self.topics and not self._has_of_itself(topic) else None
        perm, queues = integer(entry.get("perm")), _read_queues(entry)
        return 0 if perm is not None and not perm & _READ else queues

    def _of_broker(self) -> Refusal | None:
        perm = self.settings.get("brokerPermission", "").strip()
        if not _INT.fullmatch(perm) or int(perm) & _READ:
            return None
        cure = f"mqadmin updateBrokerConfig -k brokerPermission -v {int(perm) | _READ}"
        return Refusal(NO_PERMISSION, "the broker pulling message is forbidden", cure)

    def _of_group(self, group: str | None) -> Refusal | None:
        if group is None or not self.groups:
            return None
        entry = self.groups.get(group)
        if isinstance(entry, dict):
            if entry.get("consumeEnable") is False:
                cure = f"mqadmin updateSubGroup -g {shlex.quote(group)} -s true"
                return Refusal(NO_PERMISSION, f"subscription group no permission, {group}", cure)
            return None
        made = self.settings.get("autoCreateSubscriptionGroup", "true").strip().lower() == "true"
        if made or group.startswith(_SYSTEM_GROUP):
            return None
        cure = f"mqadmin updateSubGroup -g {shlex.quote(group)}"
        return Refusal(SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group [{group}] does not exist", cure)

    def _of_topic(self, topic: str, queue_id: int, release: str) -> Refusal | None:
        if not self.topics:
            return None
        entry = self.topics.get(topic)
        if not isinstance(entry, dict):
            if self._has_of_itself(topic):
                return None
            words = f"topic[{topic}] not exist, apply first please!"
            return Refusal(TOPIC_NOT_EXIST, words, _update_topic(topic, queue_id, {}))
        perm, queues = integer(entry.get("perm")), _read_queues(entry)
        cure = _update_topic(topic, queue_id, entry)
        if perm is not None and not perm & _READ:
            return Refusal(NO_PERMISSION, f"the topic[{topic}] pulling message is forbidden", cure)
        if queues is None or 0 <= queue_id < queues:
            return None
        words = f"queueId[{queue_id}] is illegal, topic:[{topic}] topicConfig.readQueueNums:[{queues}]"
        return Refusal(RefusalRules(release).illegal_queue, words, cure)

    def _of_group_and_topic(self, group: str | None, topic: str, release: str) -> Refusal | None:
        of_group = self.forbidden.get(group or "")
        bits = integer(of_group.get(topic)) if isinstance(of_group, dict) else None
        if bits is None or bits < 0 or not bits & _FORBIDDEN_READ or not RefusalRules(release).group_forbidden:
            return None
        words = f"the consumer group[{group}] is forbidden for topic[{topic}]"
        return Refusal(NO_PERMISSION, words, "forbiddenTable of subscriptionGroup.json, while the broker is stopped")

    def _has_of_itself(self, topic: str) -> bool:
        """Whether a broker has a topic without topics.json: its own ones, and light queues."""
        # Its cluster and its broker give names to two more, and to the topic of replies.
        own = {self.settings.get(name, "").strip() for name in ("brokerClusterName", "brokerName")} - {""}
        light = topic.startswith(LMQ_PREFIX)
        return light or is_system_topic(topic) or topic in own or topic.endswith("_REPLY_TOPIC")


def _read_queues(entry: Mapping[str, Any]) -> int | None:
    return integer(entry["readQueueNums"]) if "readQueueNums" in entry else _DEFAULT_QUEUES


def _update_topic(topic: str, queue_id: int, entry: Mapping[str, Any]) -> str:
    """Return the command that lets a queue of a topic be read, and leaves the rest of the topic as it is."""
    perm, read, write = (integer(entry.get(name)) or 0 for name in ("perm", "readQueueNums", "writeQueueNums"))
    read = max(read, queue_id + 1)
    return f"mqadmin updateTopic -t {shlex.quote(topic)} -r {read} -w {write or read} -p {perm | _READ if entry else 6}"


def access_of(store: Store) -> Access:
    """Read what decides whether pulls are answered: topics.json, subscriptionGroup.json, broker.conf."""
    topics, groups = read_config(store, "topics.json"), read_config(store, "subscriptionGroup.json")
    return Access(
        {} if topics is None else topics.table("topicConfigTable"),
        {} if groups is None else groups.table("subscriptionGroupTable"),
        {} if groups is None else groups.table("forbiddenTable"),
        store.settings,
    )
