"""Which queues a store must have had files of.

A queue gets its files with its first message, so one without files is usually one that nothing was written to.
"""

from rmqinspect.config.json_files import integer, read_config
from rmqinspect.rocksdb.databases import QUEUES, unread_databases
from rmqinspect.store.model import Store
from rmqinspect.topics import SCHEDULE_TOPIC


class ExpectedQueues:
    """Which queues without files must have had some, if a consumer offset lies behind their start."""

    def __init__(self, store: Store) -> None:
        document = read_config(store, "topics.json")
        self._store = store
        self._with_files = {(file.topic, file.queue_id) for file in store.queue_files if file.kind != "ext_queue"}
        self._topics = document.table("topicConfigTable") if document else {}
        # After retention, or on a slave that joined later, a queue may be absent: its records are before the log.
        # Nothing is known of queues in a RocksDB that was not read, or that were not given.
        unread = unread_databases(store, QUEUES)
        self._all_known = store.given == "store" and not store.log_start and not unread

    def was_read(self, topic: str, queue_id: int) -> bool:
        """Return whether the files of a queue, if it has any, were given and could be read."""
        absent = bool(self._with_files) and (topic, queue_id) not in self._with_files
        return absent and not self._store.hides_queue(topic, queue_id)

    def had_files(self, topic: str, queue_id: int) -> bool:
        """Return whether a queue with consumer offsets should exist: not that of a deleted topic."""
        if not self._all_known or self._store.hides_queue(topic, queue_id):
            return False
        if topic == SCHEDULE_TOPIC:
            return True
        settings = self._topics.get(topic)
        if not isinstance(settings, dict):
            return False
        # A topic with fewer queues than before keeps the offsets of the others.
        numbers = (integer(settings.get(name), 32) or 0 for name in ("readQueueNums", "writeQueueNums"))
        return queue_id < max(numbers)
