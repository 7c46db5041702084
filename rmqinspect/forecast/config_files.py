"""The JSON files of `config/` as a start reads them.

Source: ConfigManager#load, #loadBak, QueueTypeUtils#getCQType; RocketMQ 4.0.0 to 5.5.0.
"""

from collections.abc import Mapping

from rmqinspect.config.json_files import read_config
from rmqinspect.store.model import Store

SIMPLE, BATCH = "SimpleCQ", "BatchCQ"  # values of the topic attribute queue.type; SimpleCQ is its default
_TYPE = "queue.type"


def topic_types(store: Store) -> Mapping[str, str]:
    """Return the type of the queues of each topic that has one in topics.json."""
    document = read_config(store, "topics.json")
    found: dict[str, str] = {}
    for topic, config in document.table("topicConfigTable").items() if document else ():
        attributes = config.get("attributes") if isinstance(config, dict) else None
        if isinstance(attributes, dict) and isinstance(own := attributes.get(_TYPE), str):
            found[topic] = own
    return found
