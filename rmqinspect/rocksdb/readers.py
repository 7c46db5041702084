"""Reads databases in a process of its own: `python -m rmqinspect.rocksdb.readers JOBS`.

RocksDB may end the process that opens a damaged database, or allocate without bound: both may cost this process
only. It writes what it reads as files of the kinds that stores without RocksDB have, and an index of them.

Configuration in RocksDB, written as the JSON files that brokers without it keep.

    config/topics, subscriptionGroups, consumerOffsets    key: a name; value: JSON     5.1.4+
    config/metadata                                       a column family for each     5.4.0+
    config/rdb                                            binary keys                  5.3.2+

Source: RocksDBConfigManager and the managers of broker.config.v1 and broker.config.v2; RocketMQ 5.1.4 to 5.5.0.

Timer and half messages in RocksDB, written as lines of JSON and as units of a timer log.

    column family timer    messages that wait for their time, and delivered ones   -> ENTRIES_FILE, TIMER_UNITS
    column family trans    half messages that wait for commit or rollback          -> ENTRIES_FILE
    both                   how far the broker has come                             -> CHECKPOINTS

Source: MessageRocksDBStorage, TimerRocksDBRecord, TransRocksDBRecord; RocketMQ 5.4.0 and 5.5.0.
"""

import json
import os
import resource
import signal
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import chain, islice
from typing import Any, TextIO, cast

from rmqinspect.codec.fastjson import NotJson, parse_json
from rmqinspect.codec.layout import parse
from rmqinspect.errors import BadRecord
from rmqinspect.rocksdb.databases import (
    CHECKPOINTS,
    ENTRIES_FILE,
    INDEX,
    INDEX_CHECKPOINT,
    QUEUE_OFFSETS,
    TABLE_OF_DOCUMENT,
    TIMER_UNITS,
    Entry,
    Job,
    write_line,
)
from rmqinspect.rocksdb.queue_reader import Chunk, find_ends, read_end, write_offsets, write_queues
from rmqinspect.schemas import rocksdb as layouts
from rmqinspect.schemas.timer import NO_UNIT, UNIT_SIZE, TimerUnit
from rmqinspect.text import text_of

Items = Iterable[tuple[bytes, bytes]]
ConfigEntry = tuple[str, Any]  # of a table: a name and what is kept of it

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

    def take(self, entries: Iterable[ConfigEntry | None]) -> None:
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


def _entry(key: bytes, value: bytes, *, unwrap: bool) -> ConfigEntry | None:
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


def _entry_v2(key: bytes, value: bytes) -> ConfigEntry | None:
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


_TIME_SIZE, _OFFSET_SIZE = layouts.TimerKeyHead.sizeof(), layouts.HalfKeyHead.sizeof()


def write_entries(
    items: Callable[[str], Items], get: Callable[[bytes, str], bytes | None], folder: str, index: TextIO
) -> None:
    """Write what a database holds; `items` returns those of a column family, `get` one value of it."""
    checkpoint = _number(get(layouts.TIMELINE_CHECKPOINT, "timer"))
    malformed = 0
    with (
        open(os.path.join(folder, ENTRIES_FILE), "w", encoding="ascii") as lines,
        open(os.path.join(folder, TIMER_UNITS), "wb") as units,
    ):
        for entry in chain(_timers(items("timer"), checkpoint), _halves(items("trans"))):
            if entry is None:
                malformed += 1
                continue
            lines.write(json.dumps(entry) + "\n")
            if entry.deliver_timestamp is not None:
                units.write(_unit(entry))
    keys = [*((key, "timer") for key in layouts.TIMER_KEYS), *((key, "trans") for key in layouts.HALF_KEYS)]
    found = {key.decode(): get(key, family) for key, family in sorted(keys)}
    found[INDEX_CHECKPOINT] = get(layouts.LAST_HALF, "default")  # the same key in each column family
    with open(os.path.join(folder, CHECKPOINTS), "w", encoding="ascii") as checkpoints:
        json.dump({name: _number(value) for name, value in found.items() if value is not None}, checkpoints)
    write_line(index, {"document": TIMER_UNITS})
    write_line(index, {"document": CHECKPOINTS})
    write_line(index, {"document": ENTRIES_FILE, "malformed": malformed})


def _number(value: bytes | None) -> int:
    """Return a checkpoint, 0 without one: nothing was delivered yet."""
    if value is None or len(value) != layouts.NumberValue.sizeof():
        return 0
    return int(layouts.NumberValue.parse(value).number)


def _timers(items: Items, checkpoint: int) -> Iterator[Entry | None]:
    """Yield the entries of timer messages by time; None for a malformed one."""
    for key, value in items:
        if key in layouts.TIMER_KEYS:
            continue
        if len(key) <= _TIME_SIZE or len(value) != layouts.TimerValue.sizeof():
            yield None
            continue
        due = int(layouts.TimerKeyHead.parse(key).deliver_timestamp)
        found = layouts.TimerValue.parse(value)
        if due <= 0 or found.record_size <= 0 or found.physical_offset < 0:
            yield None
            continue
        state = "done" if due < checkpoint else "waiting"
        yield Entry("timer", state, int(found.physical_offset), int(found.record_size), text_of(key[_TIME_SIZE:]), due)


def _halves(items: Items) -> Iterator[Entry | None]:
    """Yield the entries of half messages by physical offset; None for a malformed one."""
    for key, value in items:
        if key in layouts.HALF_KEYS:
            continue
        before, *names = key[_OFFSET_SIZE:].split(layouts.HALF_KEY_SEPARATOR, 2)
        if before or len(names) != 2 or not all(names) or len(value) != layouts.HalfValue.sizeof():
            yield None
            continue
        place = int(layouts.HalfKeyHead.parse(key).physical_offset)
        found = layouts.HalfValue.parse(value)
        if place < 0 or found.record_size <= 0 or found.check_times < 0:
            yield None
            continue
        topic, transaction = map(text_of, names)
        size, checks = int(found.record_size), int(found.check_times)
        yield Entry("half", "waiting", place, size, transaction, None, topic, checks)


def _unit(entry: Entry) -> bytes:
    """Return the unit that a broker without timerRocksDBEnable would have; the hash of its topic is not known."""
    unit: bytes = TimerUnit.build(
        {
            "size": UNIT_SIZE,
            "previous": NO_UNIT,
            "magic": 1,
            "enqueue_timestamp": entry.deliver_timestamp,
            "delay": 0,
            "physical_offset": entry.physical_offset,
            "record_size": entry.size,
            "real_topic_hash": 0,
            "reserved": 0,
        }
    )
    return unit


_CHUNK = 1 << 16  # entries per read
_OPEN_FILES = 64
_MAX_MEMORY = 4 << 30  # address space


def main(jobs: str) -> None:
    """Read the databases named in the file `jobs`, one after the other; the first failure ends the process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (_MAX_MEMORY, _MAX_MEMORY))
    with open(jobs, encoding="utf-8") as lines:
        for job in (Job(**json.loads(line)) for line in lines):
            _read(job)


def _read(job: Job) -> None:
    part = os.path.join(job.folder, INDEX + ".part")
    with open(part, "w", encoding="ascii") as index:
        READERS[job.reads](_Families(job.copy), job, index)
    os.rename(part, os.path.join(job.folder, INDEX))


class _Families:
    """The column families of a database that is open for reading."""

    def __init__(self, copy: str) -> None:
        from rocksdict import AccessType, Options, Rdict

        # Not the options in the folder: they name paths of the broker's host.
        options = Options(raw_mode=True)
        options.set_max_open_files(_OPEN_FILES)
        self.names = Rdict.list_cf(copy, options)
        families = {name: Options(raw_mode=True) for name in self.names}
        access = AccessType.read_only(error_if_log_file_exist=False)
        self._database = Rdict(copy, options=options, column_families=families, access_type=access)

    def chunks(self, name: str) -> Iterator[Chunk]:
        """Yield the items of a column family, none if there is no such family.

        At a block that RocksDB cannot read, rocksdict ends its items as if there were no more: only RocksDB's own
        iterator says whether anything follows.
        """
        if name not in self.names:
            return
        family = self._database.get_column_family(name)
        items, last = iter(family.items()), None
        while chunk := cast(Chunk, tuple(islice(items, _CHUNK))):
            last = chunk[-1][0]
            yield chunk
        rest = family.iter()
        if last is None:
            rest.seek_to_first()
        else:
            rest.seek(last)
            rest.next()
        rest.status()  # raises RocksDB's error
        if rest.valid():
            raise EOFError("the entries end before the database does")

    def items(self, name: str) -> Iterator[tuple[bytes, bytes]]:
        """Yield the items of a column family one by one."""
        return chain.from_iterable(self.chunks(name))

    def get(self, key: bytes, name: str = "default") -> bytes | None:
        """Return a value of a column family, None if there is no such family or key."""
        if name not in self.names:
            return None
        value: bytes | None = self._database.get_column_family(name).get(key)
        return value


def _read_queues(families: _Families, job: Job, index: TextIO) -> None:
    totals = write_queues(families.chunks("default"), job.folder, index)
    for key, value in families.items("offset"):
        end = read_end(key, value)
        if end is None:
            totals["malformed"] += 1
        elif end:
            write_line(index, end)
    write_line(index, totals)
    _write_offsets(families, job, index, with_units=True)


def _read_ends(families: _Families, job: Job, index: TextIO) -> None:
    for line in find_ends(families.items("offset"), families.get, job.log_start):
        write_line(index, line)
    _write_offsets(families, job, index, with_units=False)


def _write_offsets(families: _Families, job: Job, index: TextIO, *, with_units: bool) -> None:
    def get(key: bytes) -> bytes | None:
        return families.get(key, "offset")

    write_offsets(families.items("offset"), get, os.path.join(job.folder, QUEUE_OFFSETS), with_units=with_units)
    write_line(index, {"document": QUEUE_OFFSETS})


READERS: dict[str, Callable[[_Families, Job, TextIO], None]] = {
    "queues": _read_queues,
    "ends": _read_ends,
    "config": lambda families, job, index: write_config(job.name, families.names, families.items, job.folder, index),
    "config_v2": lambda families, job, index: write_config_v2(families.items("default"), job.folder, index),
    "entries": lambda families, job, index: write_entries(families.items, families.get, job.folder, index),
}


if __name__ == "__main__":
    main(*sys.argv[1:])
