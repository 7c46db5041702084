"""The JSON files of `config/` and their backup copies; the values of the checkpoint file.

A broker rewrites each file every few seconds and keeps the previous version as a copy. A store with
its configuration in RocksDB has none of them.

Source: ConfigManager, MixAll#string2File, ConsumerOffsetManager, ScheduleMessageService;
RocketMQ 4.0.0 to 5.5.0.

The names of a store's topics, quickly: for shell completion, which may not wait, fail or scan.
"""

import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from rmqinspect.codec.fastjson import MAX_PROBLEMS, NotJson, is_null, parse_json
from rmqinspect.errors import RmqinspectError, Unreadable
from rmqinspect.schemas.checkpoint import Checkpoint
from rmqinspect.store.model import MAX_CONFIG_SIZE, Store, StoreFile
from rmqinspect.store.reader import modified_at, open_file
from rmqinspect.system import filesystem, uri
from rmqinspect.text import describe_size

_NUMBER = re.compile(r"-?\d{1,20}", re.ASCII)  # int() accepts more than Java's parseLong


class ConfigDocument(Struct, frozen=True):
    """The best copy of a configuration file."""

    name: str  # file name without `.bak` or `.tmp`
    value: Mapping[str, Any]  # empty if no copy can be read
    source: StoreFile | None  # None if no copy can be read
    problems: tuple[str, ...]
    others: tuple[StoreFile, ...] = ()  # other readable copies

    def table(self, name: str) -> Mapping[str, Any]:
        """Return the member `name` if it is an object, else an empty one."""
        member = self.value.get(name)
        return member if isinstance(member, dict) else {}

    def other_copies(self) -> Iterator["ConfigDocument"]:
        """Yield the other readable copies, each read when its turn comes."""
        return (read_copy(file, self.name) for file in self.others)


def read_config(store: Store, name: str) -> ConfigDocument | None:
    """Return the newest readable copy of a configuration file; None if the store has no copy.

    Copies are the file, its `.tmp` (up to 5.0.0) and its `.bak`. If all readable copies have a
    dataVersion the highest counts, else the file itself, else the one modified last. A broker only
    takes the file, or `.bak` if the file is missing or unreadable. Copies unpacked from RocksDB count as `_choose`
    says. If one is larger than the limit, none is read: it may be the one that counts.
    """
    copies = [file for file in store.config_files.values() if file.name.rpartition("/")[2] in _copy_names(name)]
    copies += [file for (_, document), file in store.unpacked_config.items() if document == name]
    for file in copies:
        if file.size > store.max_config:
            return ConfigDocument(name, {}, None, (too_large(file, store.max_config),))
    return _choose(_read_from_files(store, name), _read_unpacked(store, name))


def too_large(file: StoreFile, limit: int) -> str:
    """Say why a file was not read."""
    return (
        f"{file.name} was not read: it has {describe_size(file.size)}, and --max-config allows {describe_size(limit)}"
    )


def _copy_names(name: str) -> tuple[str, ...]:
    return name, f"{name}.tmp", f"{name}.bak"


def _read_from_files(store: Store, name: str) -> ConfigDocument | None:
    files = store.config_files
    copies = [files[one] for one in _copy_names(name) if one in files]
    if not copies:
        return None
    readable: list[ConfigDocument] = []
    problems: list[str] = []
    for copy in reversed(copies):  # the file itself last: mostly it is the best one, and then it is read once
        document = read_copy(copy, name, store.max_config)
        problems[:0] = [f"{copy.name}: {problem}" for problem in document.problems]
        if document.source:
            # Of the others only the version is kept: two tables of a large broker would take too much memory.
            readable.insert(0, replace(document, value={"dataVersion": document.table("dataVersion")}))
    if name not in store.config_files:
        problems.append(f"{name} is missing: only {', '.join(copy.name for copy in copies)}")
    if not readable:
        return ConfigDocument(name, {}, None, tuple(problems))
    best, *others = _newest_first(readable)
    if best.source:
        best = document if document.source == best.source else read_copy(best.source, name, store.max_config)
    if best.source and best.source.name != copies[0].name:
        problems.append(f"{best.source.name} is used instead of {copies[0].name}")
    return replace(best, problems=tuple(problems), others=tuple(other.source for other in others if other.source))


# --- copies in RocksDB ----------------------------------------------------------------------------------

_ALL_IN_ONE, _V2 = "metadata", "rdb"  # folders of databases; the others have one for each document


def _read_unpacked(store: Store, name: str) -> dict[str, ConfigDocument]:
    """Return the readable copies in RocksDB, by the name of the database's folder."""
    files = {folder: file for (folder, document), file in store.unpacked_config.items() if document == name}
    found = {folder: read_copy(file, name) for folder, file in files.items()}
    return {folder: document for folder, document in found.items() if document.source}


def _choose(in_files: ConfigDocument | None, unpacked: Mapping[str, ConfigDocument]) -> ConfigDocument | None:
    """Return the configuration as a broker that uses RocksDB loads it.

    Files, and databases of the older layout, are merged into the database where the counter of their dataVersion is
    greater. Source: RocksDBTopicConfigManager#merge, #migrateFromSeparateRocksDBs, from 5.3.1 on. A broker with
    configManagerVersion=v2 reads `config/rdb` alone; whether it did so last, only the times tell.
    """
    first = {folder: document for folder, document in unpacked.items() if folder != _V2}
    chosen = first.pop(_ALL_IN_ONE, None)
    for other in (*first.values(), in_files):
        if other is not None:
            chosen = other if chosen is None else _merge(chosen, other)
    v2 = unpacked.get(_V2)
    if v2 is not None and (chosen is None or not chosen.source or _changed(v2) >= _changed(chosen)):
        return v2
    return chosen


def _merge(base: ConfigDocument, other: ConfigDocument) -> ConfigDocument:
    """Return `base`, with the entries of `other` if its counter is greater."""
    if not other.source or _counter(other) <= _counter(base):
        return base
    note = f"{other.source.name} has the greater dataVersion: its entries count"
    value = {
        name: {**base.table(name), **member} if isinstance(member, dict) and name != "dataVersion" else member
        for name, member in {**base.value, **other.value}.items()
    }
    return replace(other, value=value, problems=(*base.problems, *other.problems, note))


def _counter(document: ConfigDocument) -> int:
    return integer(document.table("dataVersion").get("counter")) or 0


def _changed(document: ConfigDocument) -> int:
    return integer(document.table("dataVersion").get("timestamp")) or 0


def read_copy(file: StoreFile, name: str, limit: int = MAX_CONFIG_SIZE) -> ConfigDocument:
    """Return one copy of the configuration file `name`, of which at most `limit` bytes are read."""

    def unusable(problem: str) -> ConfigDocument:
        return ConfigDocument(name, {}, None, (problem,))

    if file.size == 0:
        return unusable("empty")
    try:
        with open_file(file) as reader:
            raw = reader.read(0, limit)
        if is_null(raw):  # read, and nothing is in it: the .bak is not looked at
            return ConfigDocument(name, {}, file, ("it is null",))
        parsed = parse_json(raw)
    except (NotJson, Unreadable) as error:
        return unusable(str(error))
    if not isinstance(parsed.value, dict):
        return unusable("a list, not an object")
    return ConfigDocument(name, parsed.value, file, parsed.problems)


def _newest_first(documents: Sequence[ConfigDocument]) -> list[ConfigDocument]:
    """Return readable copies, newest first; stable."""
    if all(_version(document) for document in documents):
        return sorted(documents, key=lambda document: _version(document) or (), reverse=True)
    return sorted(documents, key=_by_file, reverse=True)


def _by_file(document: ConfigDocument) -> tuple[bool, int]:
    file = document.source
    if file is None:
        return False, 0
    return os.path.basename(file.name) == document.name, modified_at(file)


def _version(document: ConfigDocument) -> tuple[int, ...] | None:
    """Return (state version, counter, timestamp). Source: DataVersion#compare."""
    version = document.table("dataVersion")
    if not version:
        return None
    return tuple(integer(version.get(name)) or 0 for name in ("stateVersion", "counter", "timestamp"))


def integer(value: Any, bits: int = 64) -> int | None:
    """Return a value if it is a signed integer of `bits` bits, else None; a JSON boolean is not."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    return value if whole and -(1 << (bits - 1)) <= value < 1 << (bits - 1) else None


def key_number(key: str, bits: int = 32) -> int | None:
    """Return a table's key as a signed integer of `bits` bits, None if it is none."""
    return integer(int(key), bits) if _NUMBER.fullmatch(key) else None


# --- consumer offsets and delay offsets ----------------------------------------------------------


OFFSET_FILES = ("consumerOffset.json", "lmqConsumerOffset.json")


@dataclass(frozen=True, slots=True, order=True)
class ConsumerOffset:
    """A consumer group's position in a queue."""

    group: str
    topic: str
    queue_id: int
    offset: int  # the next queue offset to consume
    file: str = field(default="", compare=False)  # the copy it comes from


def read_consumer_offsets(store: Store) -> tuple[list[ConsumerOffset], tuple[str, ...]]:
    """Return the consumer offsets, sorted, and the problems of their files.

    With enableLmq a broker writes lmqConsumerOffset.json instead of consumerOffset.json, which may
    remain: entries of the former take precedence.
    """
    found: list[ConsumerOffset] = []
    problems: list[str] = []
    for name in OFFSET_FILES:
        document = read_config(store, name)
        if document is None:
            continue
        problems += document.problems
        found += consumer_offsets_of(document, problems)
        del document
    found.sort(key=lambda entry: (entry.group, entry.topic, entry.queue_id))
    # The sort is stable: of several entries of one queue the last one counts.
    by_queue = {(entry.group, entry.topic, entry.queue_id): entry for entry in found}
    return list(by_queue.values()), tuple(problems[:MAX_PROBLEMS])


def consumer_offsets_of(document: ConfigDocument, problems: list[str]) -> Iterator[ConsumerOffset]:
    """Yield the consumer offsets of a document, taking them out of it; problems are added."""
    names: dict[str, str] = {}  # one text for the many entries of a group or topic
    file = document.source.name if document.source else document.name
    for member, queues_of in (("offsetTable", _queues), ("lmqOffsetTable", _light_queue)):
        # Taken out one by one: the table of a large broker takes many times the bytes of its file.
        for key, value in _taken(document.table(member)):
            # Topic and group names cannot contain "@"; a third part marks a proxy's broadcast consumer.
            topic, group = (names.setdefault(part, part) for part in key.partition("@")[::2])
            for queue, queue_id, offset in queues_of(value):
                number = integer(offset)
                if queue_id is None or number is None or not group:
                    problems.append(f"{document.name}: no consumer offset: {key!r} {queue}{offset!r}"[:200])
                else:
                    yield ConsumerOffset(group, topic, queue_id, number, file)


def _taken(table: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the members of a parsed table, removing each."""
    members = table if isinstance(table, dict) else {}
    for name in list(members):
        yield name, members.pop(name)


def _queues(value: Any) -> Iterator[tuple[str, int | None, Any]]:
    for queue, offset in value.items() if isinstance(value, dict) else [(str(value), None)]:
        yield f"{queue!r} ", key_number(queue), offset


def _light_queue(value: Any) -> Iterator[tuple[str, int | None, Any]]:
    yield "", 0, value


def read_delay_offsets(store: Store) -> ConfigDocument | None:
    """Return delayOffset.json; if its table is empty, a copy with entries.

    A broker that fails to load its store still writes this file, empty, without having read it
    (5.4.0). The previous copy then has the actual state.
    """
    document = read_config(store, "delayOffset.json")
    if document is None or document.table("offsetTable"):
        return document
    for other in document.other_copies():
        if other.table("offsetTable") and other.source:
            note = f"{document.name}: an empty table, a trace of a failed start; {other.source.name} is used"
            return replace(other, problems=(*document.problems, note))
    return document


_LARGEST_FILE = MAX_CONFIG_SIZE  # bytes of topics.json, read in a tenth of a second; larger ones are left out
_MOST_FOLDERS = 10_000
_QUEUES = ("consumequeue", "batchconsumequeue")


def topic_names(path: str) -> set[str]:
    """Return the topics in `config/topics.json` and the folders of consume queues below a store's root.

    Empty for everything else, also for what cannot be read, and for remote stores, which would take seconds.
    """
    if uri.is_remote(path):
        return set()
    names: set[str] = set()
    for name in ("topics.json", "topics.json.bak"):
        names = _in_file(os.path.join(path, "config", name))
        if names:
            break
    for folder in _QUEUES:
        names |= _folders(os.path.join(path, folder))
    return names


def _in_file(path: str) -> set[str]:
    try:
        status = filesystem.stat(path)
        if not stat.S_ISREG(status.st_mode) or status.st_size > _LARGEST_FILE:
            return set()
        document = read_copy(StoreFile(path, path, status.st_size, "config"), "topics.json")
    except (OSError, RmqinspectError):
        return set()
    return set(document.table("topicConfigTable"))


def _folders(path: str) -> set[str]:
    try:
        entries = islice(filesystem.scandir(path), _MOST_FOLDERS)
        return {entry.name for entry in entries if entry.is_dir(follow_symlinks=False)}
    except OSError:
        return set()


def read_checkpoint(store: Store, *, mapped: bool = False) -> dict[str, int]:
    """Return the stored values by field, in file order; empty without a checkpoint file.

    A truncated file yields its complete fields; `mapped` gives all of them as a broker reads them, which first extends
    the file with zeros. Fields newer than the broker's version are 0.

    :raises Unreadable: the file cannot be read.
    """
    if store.checkpoint is None:
        return {}
    size = Checkpoint.sizeof()
    with open_file(store.checkpoint) as reader:
        raw = reader.read(0, size)
    values = Checkpoint.parse(raw.ljust(size, b"\0"))
    names = [field.name for field in Checkpoint.subcons]
    whole = len(names) if mapped else len(raw) // (size // len(names))  # all fields are of one size
    return {name: values[name] for name in names[:whole]}


def write_queues(store: Store) -> Mapping[str, int]:
    """Return writeQueueNums of each topic in topics.json."""
    document = read_config(store, "topics.json")
    table = document.table("topicConfigTable") if document else {}
    numbers = {topic: config.get("writeQueueNums") for topic, config in table.items() if isinstance(config, dict)}
    return {topic: number for topic, number in numbers.items() if isinstance(number, int)}
