"""How old consumer offsets are, and how many messages come again if a broker starts with another copy of them.

A broker writes consumerOffset.json every five seconds and keeps the file before it as `.bak`, so between both lies
what the groups consumed in that time. Without a good file it loads the copy.

Source: ConfigManager#load, ConsumerOffsetManager, BrokerController (flushConsumerOffsetInterval); RocketMQ 4.0.0 to
5.5.0.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rmqinspect.config.json_files import (
    OFFSET_FILES,
    ConfigDocument,
    ConsumerOffset,
    consumer_offsets_of,
    integer,
    modified_at,
    read_config,
)
from rmqinspect.store.model import Store

_LARGEST = 2 << 20  # bytes of a copy that is compared; parsed it takes ten times as much


@dataclass(frozen=True, slots=True)
class OffsetCopy:
    """Another copy of a file, against the one that is used."""

    file: str
    behind: int  # messages that its groups consume again
    ahead: int  # messages that they have consumed by it, and not by the one used


@dataclass(frozen=True, slots=True)
class OffsetFile:
    """A file of consumer offsets; times in ms."""

    file: str  # the copy that is used
    is_copy: bool  # not the file itself: that is missing, or cannot be read
    written: int | None  # the file's time; None for one in RocksDB, and one that is gone
    version_time: int | None  # of its dataVersion, which changes with every 500th commit at most
    copies: tuple[OffsetCopy, ...]


def offset_files(store: Store, entries: Sequence[ConsumerOffset]) -> Iterator[OffsetFile]:
    """Yield the files of consumer offsets that a store has; `entries` are the offsets that are used."""
    used = {(entry.group, entry.topic, entry.queue_id): entry.offset for entry in entries}
    for name in OFFSET_FILES:
        document = read_config(store, name)
        if document is None or document.source is None:
            continue
        of_files = document.source in store.config_files.values()
        yield OffsetFile(
            document.source.name,
            of_files and document.source.name.rpartition("/")[2] != name,
            modified_at(document.source) // 1_000_000 or None if of_files else None,
            integer(document.table("dataVersion").get("timestamp")),
            tuple(
                _compare(copy, used)
                for file, copy in zip(document.others, document.other_copies(), strict=True)
                if file.size <= _LARGEST
            ),
        )


def _compare(copy: ConfigDocument, used: dict[tuple[str, str, int], int]) -> OffsetCopy:
    behind = ahead = 0
    for entry in consumer_offsets_of(copy, []):
        difference = used.get((entry.group, entry.topic, entry.queue_id), entry.offset) - entry.offset
        behind += max(0, difference)
        ahead += max(0, -difference)
    return OffsetCopy(copy.source.name if copy.source else copy.name, behind, ahead)
