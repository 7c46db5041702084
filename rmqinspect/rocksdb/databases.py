"""Which RocksDB databases a store has, what each of them holds, and what was unpacked of it.

    Database -> Job, for the process that opens it -> its files -> Entry, TimerCheckpoints, QueueOffsets

Sources: RocksDBConsumeQueueStore, RocksDBConfigManager, ConfigStorage, MessageRocksDBStorage; of the column families:
RocksDBConfigManager, RocksDBTopicConfigManager, RocksDBSubscriptionGroupManager, RocksDBConsumerOffsetManager
(broker.config.v1); RocketMQ 5.1.4 to 5.5.0.
"""

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, TextIO

from msgspec import Struct

from rmqinspect.schemas.rocksdb import LAST_HALF, SCAN_CHECKPOINT, TIMELINE_CHECKPOINT
from rmqinspect.store.model import Place, Store, StoreFile
from rmqinspect.system import uri
from rmqinspect.text import text_of

QUEUES, CONFIG, ENTRIES = "queues", "config", "entries"

# Folder of a database -> what it holds. No other is read.
# consumequeue_rocksdb: since 5.5.0, with useSeparateStorePathForRocksdbCQ. config/metadata: since 5.4.0, with
# useSingleRocksDBForAllConfigs. config/rdb: since 5.3.2, with configManagerVersion=v2. rocksdbstore: since 5.4.0, with
# timerRocksDBEnable, transRocksDBEnable or indexRocksDBEnable; without them it is made all the same, and stays unused.
HOLDS: dict[Place, str] = {
    ("consumequeue",): QUEUES,
    ("consumequeue_rocksdb",): QUEUES,
    ("config", "topics"): CONFIG,
    ("config", "subscriptionGroups"): CONFIG,
    ("config", "consumerOffsets"): CONFIG,
    ("config", "metadata"): CONFIG,
    ("config", "rdb"): CONFIG,
    ("rocksdbstore",): ENTRIES,
}

# The files that RocksDB needs to open a database for reading. All others are logs, locks and options.
_TABLE = re.compile(r"\d+\.(sst|blob)", re.ASCII)
_STATE = re.compile(r"CURRENT|MANIFEST-\d+|\d+\.log", re.ASCII)
_MARKS = re.compile(r"CURRENT|MANIFEST-\d+", re.ASCII)  # of a folder that is a database, even a damaged one


class Database(Struct, frozen=True):
    """A folder of a store that RocksDB wrote."""

    place: Place
    files: tuple[StoreFile, ...]

    @property
    def name(self) -> str:
        """The folder below the store's root, as `config/topics`."""
        return "/".join(self.place)

    @property
    def holds(self) -> str:
        """What it holds: one of HOLDS."""
        return HOLDS[self.place]

    @property
    def tables(self) -> list[StoreFile]:
        """Files that RocksDB never changes after it has written them."""
        return [file for file in self.files if _TABLE.fullmatch(_basename(file))]

    @property
    def state(self) -> list[StoreFile]:
        """Files that say which tables count, and what is in none of them yet."""
        return [file for file in self.files if _STATE.fullmatch(_basename(file))]

    @property
    def is_unused(self) -> bool:
        """Whether it is one that every broker makes, and nothing was ever written to it."""
        begun = any(_basename(file).startswith("MANIFEST") for file in self.files)
        written = self.tables or any(file.size for file in self.state if _basename(file).endswith(".log"))
        return self.holds == ENTRIES and begun and not written


def databases(store: Store) -> list[Database]:
    """Return the databases of a store that can be read, by folder."""
    found = (Database(place, tuple(_files_in(store, place))) for place in HOLDS)
    return [one for one in found if any(_MARKS.fullmatch(_basename(file)) for file in one.files)]


def used_databases(store: Store) -> list[Database]:
    """Return the databases of a store that were ever written to."""
    return [one for one in databases(store) if not one.is_unused]


def unread_databases(store: Store, holds: str) -> list[Database]:
    """Return the databases that hold something and were not unpacked."""
    return [one for one in used_databases(store) if one.holds == holds and one.place not in store.unpacked]


# What a store may keep in databases -> names of their folders, and where files hold it otherwise.
_KEEPS: dict[str, tuple[tuple[str, ...], Place]] = {
    "queues": (("consumequeue", "consumequeue_rocksdb"), ("consumequeue",)),
    "consumer offsets": (("consumerOffsets", "metadata", "rdb"), ("config", "consumerOffset.json")),
    "topics": (("topics", "metadata", "rdb"), ("config", "topics.json")),
}


def why_unknown(store: Store, what: str, *place: str) -> str | None:
    """Return why nothing can be said of queues, consumer offsets or topics that a store does not show; None if it can.

    `place`: below the folder, such as topic and queue. What is not read is neither there nor absent.
    """
    folders, files = _KEEPS[what]
    if any(one.place[-1] in folders and one.place not in store.unpacked for one in used_databases(store)):
        return f"{what} are in RocksDB, which is not read"
    return f"{what} could not be read" if store.hides(*files, *place) else None


def _files_in(store: Store, place: Place) -> Iterable[StoreFile]:
    # A name lacks the folder that was given by itself; behind a link, a path has another folder.
    return (
        file
        for file in store.of_kind("rocksdb")
        if place in (_parents(file.name, len(place)), _parents(file.path, len(place)))
    )


def _parents(path: str, depth: int) -> Place:
    return tuple(path.split("/")[-depth - 1 : -1])


def _basename(file: StoreFile) -> str:
    return uri.basename(file.path)


INDEX = "index.jsonl"  # it exists once all of the database is read
PROCESS_OUTPUT = "output.txt"  # stdout and stderr: tracebacks, messages of the library


class Job(Struct, frozen=True):
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
ENTRIES_FILE, TIMER_UNITS, CHECKPOINTS = "entries.jsonl", "timer_units", "checkpoints.json"
INDEX_CHECKPOINT = "index"  # in CHECKPOINTS: the highest physical offset in the index

# Document of a database of queues: what its column family `offset` says.
QUEUE_OFFSETS = "queue_offsets.json"


def write_line(index: TextIO, line: dict[str, Any]) -> None:
    """Add a line to the index."""
    index.write(json.dumps(line) + "\n")


_FOLDER = "rocksdbstore"


class Entry(NamedTuple):
    """One entry: the record of a message that waits in the commit log."""

    kind: str  # timer, half
    state: str  # waiting, done
    physical_offset: int
    size: int  # of the record, bytes
    msg_id: str  # UNIQ_KEY; of a half message its transaction id
    deliver_timestamp: int | None = None  # ms; of a timer message
    real_topic: str | None = None  # of a half message
    check_times: int | None = None  # of a half message


def entries_file(store: Store) -> StoreFile | None:
    """Return the file with the entries of a store, None if none were unpacked."""
    return store.unpacked_config.get((_FOLDER, ENTRIES_FILE))


def timer_units_file(store: Store) -> StoreFile | None:
    """Return the entries of timer messages as units of a timer log, None if none were unpacked."""
    return store.unpacked_config.get((_FOLDER, TIMER_UNITS))


class TimerCheckpoints(NamedTuple):
    """How far the timer in RocksDB has come."""

    timeline: int  # ms; what is due before it was delivered
    scan: int  # next queue offset of the timer's topic to take; 0: it was never used


def read_timer_checkpoints(store: Store) -> TimerCheckpoints | None:
    """Return the checkpoints of the timer, None if none were unpacked."""
    numbers = _checkpoints(store)
    if numbers is None:
        return None
    return TimerCheckpoints(*(numbers.get(key.decode(), 0) for key in (TIMELINE_CHECKPOINT, SCAN_CHECKPOINT)))


def last_half(store: Store) -> int | None:
    """Return the highest physical offset of a half message that the broker has entered, None without one."""
    return (_checkpoints(store) or {}).get(LAST_HALF.decode())


def last_indexed(store: Store) -> int | None:
    """Return the highest physical offset that the broker has entered into its index in RocksDB, None without one."""
    return (_checkpoints(store) or {}).get(INDEX_CHECKPOINT)


def _checkpoints(store: Store) -> dict[str, int] | None:
    file = store.unpacked_config.get((_FOLDER, CHECKPOINTS))
    if file is None:
        return None
    with open(file.path, encoding="ascii") as content:
        numbers: dict[str, int] = json.load(content)
    return numbers


def read_entries(store: Store) -> Iterator[Entry]:
    """Yield the entries: timer messages by time, then half messages by physical offset."""
    file = entries_file(store)
    if file is not None:
        with open(file.path, encoding="ascii") as lines:
            for line in lines:
                yield Entry(*json.loads(line))


UNITS_NEEDED = "the units of the queues in RocksDB decide, and only their ends were read"

Queue = tuple[str, int]  # topic, queue id


class End(NamedTuple):
    """The first or last message of a queue."""

    physical_offset: int
    queue_offset: int


class QueueOffsets(NamedTuple):
    """The column family `offset`. Source: RocksDBConsumeQueueOffsetTable."""

    checkpoint: int  # MAX_PHYSICAL_OFFSET_CHECKPOINT: physical offset behind the newest dispatched record; 0: none
    maxima: dict[Queue, End]
    minima: dict[Queue, End]
    with_units: bool  # the units of the queues were unpacked, too
    folder: str  # of the database, relative to the store


def read_queue_offsets(store: Store) -> QueueOffsets | None:
    """Return what was unpacked of the database of queues, None if nothing was."""
    for place in (place for place, holds in HOLDS.items() if holds == QUEUES):
        file = store.unpacked_config.get((place[-1], QUEUE_OFFSETS))
        if file is not None:
            with open(file.path, encoding="ascii") as content:
                document = json.load(content)
            found: dict[str, dict[Queue, End]] = {"max": {}, "min": {}}
            for end in document["ends"]:
                queue = text_of(bytes.fromhex(end["topic"])), end["queue_id"]
                found[end["which"]][queue] = End(end["physical_offset"], end["queue_offset"])
            return QueueOffsets(
                document["checkpoint"], found["max"], found["min"], document["with_units"], "/".join(place)
            )
    return None
