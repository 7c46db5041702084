"""The settings of a broker that a start depends on: from broker.conf, else from the files, else the broker's default.

    mappedFileSizeCommitLog = 65536        broker.conf       read as Java reads it: MixAll#properties2Object
    (not in it)                            1073741824        MessageStoreConfig, whatever length the files have
    (no broker.conf given)                 the files' size   a broker that wrote them had it

What the answer rests on, other than broker.conf, is said in words.

Source: MixAll#properties2Object, MessageStoreConfig, BrokerConfig; RocketMQ 4.0.0 to 5.5.0.
"""

from collections.abc import Callable, Iterator, Mapping
from os.path import join, normpath
from typing import Any, NamedTuple

from msgspec import Struct, field
from msgspec.structs import fields, replace

from rmqinspect.broker.delays import DEFAULT_LEVELS
from rmqinspect.broker.start_rules import Rules
from rmqinspect.codec.java import java_number
from rmqinspect.consumequeue.units import usual_sizes
from rmqinspect.index.geometry import Geometry, read_index_files
from rmqinspect.rocksdb.databases import last_half, last_indexed, read_timer_checkpoints
from rmqinspect.schemas.consumequeue import BatchUnit, QueueUnit
from rmqinspect.store.discover import infer_segment_size
from rmqinspect.store.log_paths import ROOT_SETTING
from rmqinspect.store.model import Store
from rmqinspect.text import group_digits

_UNIT_SIZE: int = QueueUnit.sizeof()
_BATCH_UNIT_SIZE: int = BatchUnit.sizeof()
_ROCKSDB = "defaultRocksDB"  # StoreType#DEFAULT_ROCKSDB
_LEAST_TIMES = 5  # a compaction log is at least so many times as long as its queue
# Newest index files that are asked for their slots and entries: the current one may be nearly empty.
_ASKED_INDEX_FILES = 3


class Settings(Struct, frozen=True):
    """Values by name; sizes are bytes. Names in broker.conf are the same in camelCase (`SPELLINGS` has exceptions)."""

    mapped_file_size_commit_log: int = 1 << 30
    mapped_file_size_consume_queue: int = 6_000_000  # rounded up to whole units
    mapper_file_size_batch_consume_queue: int = 13_800_000
    mapped_file_size_consume_queue_ext: int = 48 << 20
    mapped_file_size_timer_log: int = 100 << 20
    compaction_mapped_file_size: int = 100 << 20
    compaction_cq_mapped_file_size: int = 10 << 20
    max_hash_slot_num: int = 5_000_000
    max_index_num: int = 20_000_000
    check_crc_on_recover: bool = True
    force_verify_prop_crc: bool = False
    check_commit_log_offset_on_recover: bool = False
    commit_log_recover_max_num: int = 10
    message_index_enable: bool = True
    message_index_safe: bool = False
    index_file_write_enable: bool = True
    index_rocks_db_enable: bool = False
    timer_rocks_db_enable: bool = False
    trans_rocks_db_enable: bool = False
    trans_write_origin_trans_half_enable: bool = True
    enable_accelerated_recovery: bool = False
    recheck_reput_offset_from_cq: bool = False
    duplication_enable: bool = False
    enable_controller_mode: bool = False
    enable_multi_dispatch: bool = False
    enable_lmq: bool = False
    enable_consume_queue_ext: bool = False
    rocksdb_cq_double_write_enable: bool = False
    enable_d_leger_commit_log: bool = False
    timer_wheel_enable: bool = True
    enable_compaction: bool = True
    store_type: str = "default"
    config_manager_version: str = "v1"
    flush_disk_type: str = "ASYNC_FLUSH"
    broker_role: str = "ASYNC_MASTER"
    message_delay_level: str = DEFAULT_LEVELS
    found_sizes: Mapping[str, int] = field(default_factory=dict)  # that the files tell, by the names above

    @property
    def has_rocksdb_queues(self) -> bool:
        """Whether the queues are in RocksDB. Source: MessageStoreConfig#isEnableRocksDBStore."""
        return self.store_type.lower() == _ROCKSDB.lower()

    @property
    def is_slave(self) -> bool:
        """Whether the broker copies another one. Source: BrokerRole#SLAVE."""
        return self.broker_role.upper() == "SLAVE"

    @property
    def has_safe_index(self) -> bool:
        """Whether recovery goes back to what the index has. Source: MessageStoreConfig#isMessageIndexSafe."""
        return self.message_index_enable and self.message_index_safe

    def fitting(self, name: str, rules: Rules) -> "Setting | None":
        """Return the line of broker.conf that fits the files, where a size is another one; None where it fits."""
        found = self.found_sizes.get(name)
        return None if found in (None, getattr(self, name)) else Setting(_spelling(name, rules), found or 0)


class Setting(NamedTuple):
    """A line of broker.conf."""

    name: str
    value: int

    def __str__(self) -> str:
        return f"{self.name}={self.value}"


SPELLINGS: Mapping[str, tuple[str, ...]] = {
    "mapped_file_size_commit_log": ("mappedFileSizeCommitLog", "mapedFileSizeCommitLog"),
    "mapped_file_size_consume_queue": ("mappedFileSizeConsumeQueue", "mapedFileSizeConsumeQueue"),
    "index_rocks_db_enable": ("indexRocksDBEnable",),
    "timer_rocks_db_enable": ("timerRocksDBEnable",),
    "trans_rocks_db_enable": ("transRocksDBEnable",),
    "rocksdb_cq_double_write_enable": ("rocksdbCQDoubleWriteEnable",),
    "check_crc_on_recover": ("checkCRCOnRecover",),
    "force_verify_prop_crc": ("forceVerifyPropCRC",),
    "enable_d_leger_commit_log": ("enableDLegerCommitLog",),
}
"""Names in broker.conf that are not the camelCase of ours, or of which there are several."""

_SIZE_NAMES = {"maped": "mapedFileSize", "mapped": "mappedFileSize"}
"""How the two settings of `SPELLINGS` that have two names begin, by the rule `size_names`."""

_PATH_SETTINGS = {
    ROOT_SETTING: "log",
    "storePathCommitLog": "log",
    "readOnlyCommitLogStorePaths": "read_only",
    "storePathDLedgerCommitLog": "ledger",
    "storePathEpochFile": "epoch",
    "storePathBrokerIdentity": "identity",
}
"""Settings that name places of a store, and since which value of the rule `path_settings` they are known."""

_NEVER_KNOWN = {
    "storePathConsumeQueue": "consumequeue",
    "storePathIndex": "index",
    "storeCheckpoint": "checkpoint",
    "abortFile": "abort",
}
"""Settings that many a broker.conf has, and no release: the places in the root that the broker takes all the same."""

_PATH = "storepath"  # how the names of others begin, in whatever spelling

_ROCKSDB_QUEUES = ("consumequeue/", "consumequeue_rocksdb/")  # folders of databases

_SIZES = {
    "mapped_file_size_commit_log": ("segments", "segment"),
    "mapped_file_size_consume_queue": ("queue files", "queue"),
    "mapper_file_size_batch_consume_queue": ("batch queue files", "batch_queue"),
    "mapped_file_size_consume_queue_ext": ("ext queue files", "ext_queue"),
    "mapped_file_size_timer_log": ("timer log files", "timer_log"),
    "compaction_mapped_file_size": ("compaction logs", "compaction_log"),
    "compaction_cq_mapped_file_size": ("compaction queue files", "compaction_queue"),
}
"""Settings that the length of files tells: the words for these files, and their kind."""


def settings_of(store: Store) -> tuple[Settings, list[str]]:
    """Return the settings of a store, and what was assumed, as texts for people.

    With a broker.conf, what it does not say is the broker's default, whatever the files say.
    """
    sizes = _found_sizes(store)
    if store.has_conf:
        settings = _in_whole_units(replace(Settings(), **dict(_given(store.settings))))
        return replace(settings, found_sizes=sizes), []
    found: dict[str, Any] = dict(sizes)
    assumed = []
    if sizes:
        parts = ", ".join(f"{_SIZES[name][0]} of {size} bytes" for name, size in sizes.items())
        assumed.append(f"file sizes as found: {parts}")
    geometry = _index_geometry(store)
    if geometry is None:
        assumed.append(
            "no index file tells its slots and entries, the default counts: this matters only for the number of "
            "new index files"
        )
    else:
        found |= {"max_hash_slot_num": geometry.slots, "max_index_num": geometry.entries}
        assumed.append(f"index files as found: {geometry.slots} slots, {geometry.entries} entries")
    if _has_rocksdb_files(store):
        found["store_type"] = _ROCKSDB
        assumed.append(f"storeType={_ROCKSDB}, because the queues are in RocksDB")
    assumed.append("all other settings: the broker's default (no broker.conf was given)")
    found |= _given(store.settings)  # of a remedy
    settings = _in_whole_units(replace(Settings(), **found))
    log = sizes.get("compaction_mapped_file_size", settings.compaction_mapped_file_size)
    return replace(settings, compaction_mapped_file_size=log), assumed


def as_read_by(store: Store, rules: Rules) -> Store:
    """Return a store with the settings of its broker.conf that a release knows; the same store, if that is all."""
    others = [start for value, start in _SIZE_NAMES.items() if value != rules.size_names]
    unknown = [start + what for start in others for what in ("CommitLog", "ConsumeQueue")]
    conf = {name: value for name, value in store.settings.items() if name not in unknown}
    return store if dict(_given(conf)) == dict(_given(store.settings)) else replace(store, settings=conf)


def fitting_lines(store: Store, rules: Rules) -> Iterator[tuple[str, str]]:
    """Yield the lines of broker.conf, name and value, with which the files of a store have the lengths that it says."""
    settings, _ = settings_of(as_read_by(store, rules))
    for name in _SIZES:
        if fits := settings.fitting(name, rules):
            yield fits.name, str(fits.value)
    found = _index_geometry(replace(store, settings={})) if store.has_conf else None
    if found is not None and found != Geometry(settings.max_hash_slot_num, settings.max_index_num):
        yield from (("maxHashSlotNum", str(found.slots)), ("maxIndexNum", str(found.entries)))


def contradictions(store: Store, settings: Settings, rules: Rules) -> Iterator[str]:
    """Yield where a broker.conf and the files of a store do not agree, and what to write into it."""
    for name, (words, _) in _SIZES.items():
        if fits := settings.fitting(name, rules):
            size = f"{words} of {group_digits(fits.value)} bytes"
            yield f"{size}, but broker.conf makes them {group_digits(getattr(settings, name))}: set {fits} there"
    made = Geometry(settings.max_hash_slot_num, settings.max_index_num)
    if store.has_conf and any(file.size != made.size for file in store.index_files[-_ASKED_INDEX_FILES:]):
        found = _index_geometry(replace(store, settings={}))
        if found is not None and found != made:
            yield (
                f"index files of {found.slots} slots and {found.entries} entries, but broker.conf makes them "
                f"{made.slots} and {made.entries}: the broker finds no key in them, and writes over what they hold; "
                f"set maxHashSlotNum={found.slots} and maxIndexNum={found.entries} there"
            )
    if store.has_conf and not settings.has_rocksdb_queues and _has_rocksdb_files(store):
        yield f"queues in RocksDB, which broker.conf does not say: set storeType={_ROCKSDB} there"
    if store.has_conf and not settings.enable_d_leger_commit_log and store.of_kind("dledger"):
        yield "a DLedger log, which broker.conf does not say: set enableDLegerCommitLog=true there"
    if store.has_conf:
        yield from _unread_entries(store, settings, rules)
        yield from _idle_paths(store.settings, rules)


def _unread_entries(store: Store, settings: Settings, rules: Rules) -> Iterator[str]:
    """Yield what was kept in rocksdbstore, and is not read there with this broker.conf, or by this release.

    Source: TimerMessageRocksDBStore, TransactionalMessageRocksDBService, DefaultMessageStore#queryMessage; 5.4.0.
    """
    timer = read_timer_checkpoints(store)
    kept = (
        (timer is not None and timer.scan > 0, "timer_rocks_db_enable", "timer messages", "those that wait there stay"),
        (last_half(store) is not None, "trans_rocks_db_enable", "half messages", "open ones are not checked back"),
        # With index files beside it, keys are looked up there.
        (
            last_indexed(store) is not None and not store.index_files,
            "index_rocks_db_enable",
            "an index",
            "no key in it is found",
        ),
    )
    for is_kept, name, noun, meaning in kept:
        if is_kept and not rules.rocksdb_store:
            yield f"{noun} in RocksDB, which is read since {Rules.rocksdb_store.since(True)}: {meaning}"
        elif is_kept and not getattr(settings, name):
            yield (
                f"{noun} in RocksDB, which broker.conf does not say: {meaning}; set {_spelling(name, rules)}=true there"
            )


def _idle_paths(conf: Mapping[str, str], rules: Rules) -> Iterator[str]:
    """Yield the settings in broker.conf that seem to name a place of the store, and that a release does not know."""
    known = [value for _, value in Rules.path_settings.values]
    for name, path in conf.items():
        since, place = _PATH_SETTINGS.get(name), _NEVER_KNOWN.get(name)
        if since is not None:
            if known.index(since) > known.index(rules.path_settings):
                yield f"{name} in broker.conf has no effect before {Rules.path_settings.since(since)}"
        elif place is None and name.lower().startswith(_PATH):
            yield f"{name} in broker.conf has no effect: no release knows this name"
        # Many a broker.conf has these with the very place that the broker takes.
        elif place is not None and normpath(path) != normpath(join(conf.get(ROOT_SETTING, ""), place)):
            yield (
                f"{name} in broker.conf has no effect: no release knows this name, the broker takes {place} below "
                f"{ROOT_SETTING}"
            )


def _in_whole_units(settings: Settings) -> Settings:
    """Return settings with the sizes that a broker makes of those that it was given.

    The length of a compaction log is a multiple of that of its queue. Source: CompactionLog#getCompactionLogSize.
    """
    queue = max(settings.compaction_cq_mapped_file_size // _BATCH_UNIT_SIZE, 1) * _BATCH_UNIT_SIZE
    times, rest = divmod(settings.compaction_mapped_file_size, queue)
    if not 0 < rest < queue // 2:
        times += 1
    return replace(
        settings,
        mapped_file_size_consume_queue=-(-settings.mapped_file_size_consume_queue // _UNIT_SIZE) * _UNIT_SIZE,
        compaction_cq_mapped_file_size=queue,
        compaction_mapped_file_size=max(times, _LEAST_TIMES) * queue,
    )


def _given(conf: Mapping[str, str]) -> Iterator[tuple[str, Any]]:
    """Yield (name, value) of the settings in a broker.conf that a broker takes; others keep their default."""
    for one in fields(Settings):
        parse = _PARSERS.get(type(one.default))
        for spelling in SPELLINGS.get(one.name, (_camel_case(one.name),)):
            if parse is not None and spelling in conf:
                value = parse(conf[spelling])
                is_size = one.name in _SIZES or one.name in ("max_hash_slot_num", "max_index_num")
                if value is not None and not (is_size and isinstance(value, int) and value <= 0):
                    yield one.name, value
                    break


def spelled(name: str, rules: Rules) -> str:
    """Return the name by which a release knows a setting that any release knows as `name`."""
    return next((_spelling(own, rules) for own, known in SPELLINGS.items() if name in known), name)


def _spelling(name: str, rules: Rules) -> str:
    """Return the name of a setting in the broker.conf of a release."""
    known = SPELLINGS.get(name, (_camel_case(name),))
    own = _SIZE_NAMES[rules.size_names]
    return next((spelling for spelling in known if spelling.startswith(own)), known[0])


def _camel_case(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(part.capitalize() for part in others)


# What Java makes of a text: a number that is none, where Integer#parseInt throws, leaves the broker its default; as a
# switch, everything but "true" is false (Boolean#parseBoolean).
_PARSERS: Mapping[type, Callable[[str], int | bool | str | None]] = {
    int: lambda text: java_number(text, 32),
    bool: lambda text: text.lower() == "true",
    str: str,
}


def _found_sizes(store: Store) -> dict[str, int]:
    """Return the sizes that the files tell, by the name of the setting."""
    found = {**usual_sizes(store), "segment": _segment_size(store)}
    for kind in ("timer_log", "compaction_log", "compaction_queue"):
        sizes = [file.size for file in store.of_kind(kind) if file.size]
        found[kind] = max(sizes, key=sizes.count, default=None)
    return {name: size for name, (_, kind) in _SIZES.items() if (size := found.get(kind))}


def _segment_size(store: Store) -> int | None:
    """Return the size of segments by their names and lengths, where the one of broker.conf contradicts the names."""
    told, bases = store.segment_size, [segment.base for segment in store.segments]
    if not told or all(base % told == 0 for base in bases):
        return told
    found = infer_segment_size(store.segments, {}, [])
    whole = sum(segment.size == found for segment in store.segments)
    fits = found and whole * 2 > len(bases) and all(base % found == 0 for base in bases)
    return found if fits else told


def _has_rocksdb_files(store: Store) -> bool:
    """Whether the queues are in RocksDB, and none in files: with both, a broker writes both (double write)."""
    databases = (file.name for file in store.of_kind("rocksdb"))
    in_files = any(file.noted is None for file in store.queue_files)
    return not in_files and any(name.startswith(_ROCKSDB_QUEUES) for name in databases)


def _index_geometry(store: Store) -> Geometry | None:
    """Return slots and entries of the newest index files that tell; None if none does."""
    for file in reversed(store.index_files[-_ASKED_INDEX_FILES:]):
        for index in read_index_files(store, unread=[], files=[file]):
            if index.geometry and index.entries:
                return index.geometry
    return None
