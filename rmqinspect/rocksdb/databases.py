"""Which RocksDB databases a store has, and what each of them holds.

Sources: RocksDBConsumeQueueStore, RocksDBConfigManager, ConfigStorage, MessageRocksDBStorage; RocketMQ 5.1.4 to 5.5.0.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from rmqinspect.store.model import Place, Store, StoreFile
from rmqinspect.system import uri

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


@dataclass(frozen=True, slots=True)
class Database:
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
