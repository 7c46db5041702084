"""What the process that opens a database is told, and the files that it leaves.

Source of the column families: RocksDBConfigManager, RocksDBTopicConfigManager, RocksDBSubscriptionGroupManager,
RocksDBConsumerOffsetManager (broker.config.v1); RocketMQ 5.1.4 to 5.5.0.
"""

import json
from dataclasses import dataclass
from typing import Any, TextIO

INDEX = "index.jsonl"  # it exists once all of the database is read
PROCESS_OUTPUT = "output.txt"  # stdout and stderr: tracebacks, messages of the library


@dataclass(frozen=True, slots=True)
class Job:
    """One database to read. `index` gets a line of JSON for each file written, and the totals."""

    reads: str  # of readers.READERS: queues, ends, config, config_v2, entries
    copy: str  # folder of the database
    folder: str  # where to write
    name: str = ""  # of the database's folder in the store, its last part
    log_start: int = 0  # physical offset


# JSON file of the configuration -> the member that holds its table.
TABLE_OF_DOCUMENT = {
    "topics.json": "topicConfigTable",
    "subscriptionGroup.json": "subscriptionGroupTable",
    "consumerOffset.json": "offsetTable",
}

# Documents of rocksdbstore.
ENTRIES, TIMER_UNITS, CHECKPOINTS = "entries.jsonl", "timer_units", "checkpoints.json"
INDEX_CHECKPOINT = "index"  # in CHECKPOINTS: the highest physical offset in the index

# Document of a database of queues: what its column family `offset` says.
QUEUE_OFFSETS = "queue_offsets.json"


def write_line(index: TextIO, line: dict[str, Any]) -> None:
    """Add a line to the index."""
    index.write(json.dumps(line) + "\n")
