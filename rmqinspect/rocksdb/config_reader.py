"""Configuration in RocksDB, written as the JSON files that brokers without it keep.

    config/topics, subscriptionGroups, consumerOffsets    key: a name; value: JSON     5.1.4+
    config/metadata                                       a column family for each     5.4.0+
    config/rdb                                            binary keys                  5.3.2+

Source: RocksDBConfigManager and the managers of broker.config.v1 and broker.config.v2; RocketMQ 5.1.4 to 5.5.0.
"""

import json
import os
from collections.abc import Callable, Collection, Iterable
from typing import Any, TextIO

from rmqinspect.codec.fastjson import NotJson, parse_json
from rmqinspect.codec.layout import parse
from rmqinspect.errors import BadRecord
from rmqinspect.rocksdb.job import TABLE_OF_DOCUMENT, write_line
from rmqinspect.schemas import rocksdb as layouts

Items = Iterable[tuple[bytes, bytes]]
Entry = tuple[str, Any]  # of a table: a name and what is kept of it

_OFFSETS = "consumerOffset.json"

# Column family -> (its document, the column family of its version), by the name of the database's folder.
_FAMILIES = {
    "topics": {"default": ("topics.json", "kvDataVersion")},
    "subscriptionGroups": {"default": ("subscriptionGroup.json", "kvDataVersion")},
    "consumerOffsets": {"default": (_OFFSETS, "kvDataVersion")},
    "metadata": {
        "topic": ("topics.json", "topicVersion"),
        "subscriptionGroup": ("subscriptionGroup.json", "subscriptionGroupVersion"),
        "consumerOffset": (_OFFSETS, "consumerOffsetVersion"),
    },
}


class _Document:
    """A JSON file that is written entry by entry: tables may have millions."""

    def __init__(self, folder: str, name: str) -> None:
        self.name = name
        self.malformed = 0
        self._file = open(os.path.join(folder, name), "w", encoding="ascii")  # noqa: SIM115 closed by close
        self._file.write(f'{{"{TABLE_OF_DOCUMENT[name]}":{{')
        self._between = ""

    def take(self, entries: Iterable[Entry | None]) -> None:
        """Write entries; None is a malformed one."""
        for entry in entries:
            if entry is None:
                self.malformed += 1
            else:
                name, value = entry
                self._file.write(f"{self._between}{json.dumps(name)}:{json.dumps(value)}")
                self._between = ",\n"

    def close(self, version: dict[str, Any], index: TextIO) -> None:
        """End the file and add it to the index."""
        self._file.write(f'}},"dataVersion":{json.dumps(version)}}}')
        self._file.close()
        write_line(index, {"document": self.name, "malformed": self.malformed})


def write_config(
    database: str, names: Collection[str], items: Callable[[str], Items], folder: str, index: TextIO
) -> None:
    """Write the documents of a database of the first form; `database` is the name of its folder.

    `items` returns those of a column family, of which there are `names`.
    """
    for family, (name, version_family) in _FAMILIES[database].items():
        if family not in names:
            continue
        document = _Document(folder, name)
        document.take(_entry(key, value, unwrap=name == _OFFSETS) for key, value in items(family))
        versions = (_object(value) for _, value in items(version_family)) if version_family in names else iter(())
        document.close(next((one for one in versions if one is not None), {}), index)


def _entry(key: bytes, value: bytes, *, unwrap: bool) -> Entry | None:
    found = _object(value)
    if found is None or not key:
        return None
    return key.decode("utf-8", "replace"), found.get("offsetTable", {}) if unwrap else found


def _object(raw: bytes) -> dict[str, Any] | None:
    try:
        value = parse_json(raw).value
    except NotJson:
        return None
    return value if isinstance(value, dict) else None


# --- the second form --------------------------------------------------------------------------------

_DOCUMENTS = {
    layouts.CONSUMER_OFFSETS: _OFFSETS,
    layouts.TOPICS: "topics.json",
    layouts.SUBSCRIPTION_GROUPS: "subscriptionGroup.json",
}


def write_config_v2(items: Items, folder: str, index: TextIO) -> None:
    """Write the documents of the database `config/rdb`, whose keys are sorted by table."""
    documents = {table: _Document(folder, name) for table, name in _DOCUMENTS.items()}
    versions: dict[int, dict[str, int]] = {}
    offsets = _OffsetsOfPair(documents[layouts.CONSUMER_OFFSETS])
    for key, value in items:
        try:
            head = parse(layouts.ConfigKeyHead, key, lambda: "key")
            document = documents.get(head.table)
            if document is None or head.prefix != layouts.CONFIG_PREFIX:
                continue
            if head.record == layouts.RECORD_DATA_VERSION:
                versions[head.table] = _version(value)
            elif head.table == layouts.CONSUMER_OFFSETS:
                offsets.take(key, value)
            else:
                document.take([_entry_v2(key, value)])
        except BadRecord:
            documents[layouts.CONSUMER_OFFSETS].malformed += 1
    offsets.close()
    for table, document in documents.items():
        document.close(versions.get(table, {}), index)


def _version(value: bytes) -> dict[str, int]:
    found = parse(layouts.ConfigDataVersion, value, lambda: "data version")
    return {"stateVersion": found.state_version, "timestamp": found.timestamp, "counter": found.counter}


def _entry_v2(key: bytes, value: bytes) -> Entry | None:
    name = parse(layouts.ConfigKey, key, lambda: "key").name
    head = parse(layouts.ConfigValueHead, value, lambda: "value")
    if head.serialization != layouts.JSON_TEXT:
        return None
    return _entry(name, value[layouts.ConfigValueHead.sizeof() :], unwrap=False)


class _OffsetsOfPair:
    """Joins the offsets of a group in a topic, which come together, into one entry."""

    def __init__(self, document: _Document) -> None:
        self._document = document
        self._pair = ""
        self._queues: dict[str, int] = {}

    def take(self, key: bytes, value: bytes) -> None:
        """Take the next offset.

        :raises BadRecord: it is malformed.
        """
        parts = parse(layouts.ConsumerOffsetKey, key, lambda: "key")
        offset = parse(layouts.ConsumerOffsetValue, value, lambda: "value").queue_offset
        if {parts.group_separator, parts.topic_separator} != {layouts.SEPARATOR}:
            raise BadRecord("not the key of a consumer offset")
        pair = b"@".join((parts.topic, parts.group)).decode("utf-8", "replace")
        if pair != self._pair:
            self.close()
            self._pair = pair
        self._queues[str(parts.queue_id)] = int(offset)

    def close(self) -> None:
        """Write the entry of the last group and topic."""
        if self._queues:
            self._document.take([(self._pair, self._queues)])
        self._queues = {}
