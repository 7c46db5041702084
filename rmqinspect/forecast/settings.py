"""The settings of a broker that a start depends on: from broker.conf, else from the files, else the broker's default.

    mappedFileSizeCommitLog = 65536        broker.conf       read as Java reads it: MixAll#properties2Object
    (not given)                            the files' size   a broker that wrote them had it
    (no files)                             1073741824        MessageStoreConfig

What the answer rests on, other than broker.conf, is said in words.

Source: MixAll#properties2Object, MessageStoreConfig, BrokerConfig; RocketMQ 4.0.0 to 5.5.0.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from rmqinspect.codec.java_numbers import java_number
from rmqinspect.consumequeue.sizes import usual_sizes
from rmqinspect.index.geometry import Geometry, configured_geometry, read_index_files
from rmqinspect.schemas.consumequeue import BatchUnit, QueueUnit
from rmqinspect.store.model import Store

_UNIT_SIZE: int = QueueUnit.sizeof()
_BATCH_UNIT_SIZE: int = BatchUnit.sizeof()
_ROCKSDB = "defaultRocksDB"  # StoreType#DEFAULT_ROCKSDB
_LEAST_TIMES = 5  # a compaction log is at least so many times as long as its queue
# Newest index files that are asked for their slots and entries: the current one may be nearly empty.
_ASKED_INDEX_FILES = 3


@dataclass(frozen=True, slots=True)
class Settings:
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
    message_delay_level: str = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"

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


SPELLINGS: Mapping[str, tuple[str, ...]] = {
    "mapped_file_size_commit_log": ("mappedFileSizeCommitLog", "mapedFileSizeCommitLog"),
    "mapped_file_size_consume_queue": ("mappedFileSizeConsumeQueue", "mapedFileSizeConsumeQueue"),
    "index_rocks_db_enable": ("indexRocksDBEnable",),
    "trans_rocks_db_enable": ("transRocksDBEnable",),
    "rocksdb_cq_double_write_enable": ("rocksdbCQDoubleWriteEnable",),
    "check_crc_on_recover": ("checkCRCOnRecover",),
    "force_verify_prop_crc": ("forceVerifyPropCRC",),
    "enable_d_leger_commit_log": ("enableDLegerCommitLog",),
}
"""Names in broker.conf that are not the camelCase of ours, or of which there are several."""

_ROCKSDB_QUEUES = ("consumequeue/", "consumequeue_rocksdb/")  # folders of databases

_SIZES = {
    "segments": "mapped_file_size_commit_log",
    "queue files": "mapped_file_size_consume_queue",
    "batch queue files": "mapper_file_size_batch_consume_queue",
    "ext queue files": "mapped_file_size_consume_queue_ext",
    "timer log files": "mapped_file_size_timer_log",
    "compaction logs": "compaction_mapped_file_size",
    "compaction queue files": "compaction_cq_mapped_file_size",
}
"""Settings that the length of files tells, by the words for the files."""


def settings_of(store: Store) -> tuple[Settings, list[str]]:
    """Return the settings of a store, and what was assumed, as texts for people."""
    given = dict(_given(store.settings))
    found: dict[str, Any] = {name: size for name, size in _found_sizes(store).items() if name not in given}
    assumed = []
    if found:
        words = {field: word for word, field in _SIZES.items()}
        parts = ", ".join(f"{words[name]} of {size} bytes" for name, size in found.items())
        assumed.append(f"file sizes as found: {parts}")
    slots = {name: value for name, value in given.items() if name in ("max_hash_slot_num", "max_index_num")}
    if len(slots) < 2:
        geometry = _index_geometry(store)
        if geometry is None:
            assumed.append(
                "no index file tells its slots and entries, the default counts: this matters only for the number of "
                "new index files"
            )
        else:
            found |= {"max_hash_slot_num": geometry.slots, "max_index_num": geometry.entries}
            if configured_geometry(store) is None:
                assumed.append(f"index files as found: {geometry.slots} slots, {geometry.entries} entries")
    if "store_type" not in given and _has_rocksdb_queues(store):
        found["store_type"] = _ROCKSDB
        assumed.append(f"storeType={_ROCKSDB}, because the queues are in RocksDB")
    if not store.settings:
        assumed.append("all other settings: the broker's default (no broker.conf was given)")
    values: dict[str, Any] = {**found, **given}
    settings = replace(Settings(), **values)
    units = -(-settings.mapped_file_size_consume_queue // _UNIT_SIZE)
    settings = replace(settings, mapped_file_size_consume_queue=units * _UNIT_SIZE)
    queue, log = _compaction_sizes(settings)
    if "compaction_mapped_file_size" in found:
        log = settings.compaction_mapped_file_size
    return replace(settings, compaction_cq_mapped_file_size=queue, compaction_mapped_file_size=log), assumed


def _compaction_sizes(settings: Settings) -> tuple[int, int]:
    """Return the lengths of the files of a compaction queue, of whole units, and of its log, a multiple of that.

    Source: CompactionLog#getCompactionLogSize.
    """
    queue = max(settings.compaction_cq_mapped_file_size // _BATCH_UNIT_SIZE, 1) * _BATCH_UNIT_SIZE
    times, rest = divmod(settings.compaction_mapped_file_size, queue)
    if times < _LEAST_TIMES:
        return queue, _LEAST_TIMES * queue
    return queue, (times if 0 < rest < queue // 2 else times + 1) * queue


def _given(conf: Mapping[str, str]) -> Iterator[tuple[str, Any]]:
    """Yield (name, value) of the settings in a broker.conf that a broker takes; others keep their default."""
    for field in fields(Settings):
        for spelling in SPELLINGS.get(field.name, (_camel_case(field.name),)):
            if spelling in conf:
                value = _PARSERS[type(field.default)](conf[spelling])
                is_size = field.name in _SIZES.values() or field.name in ("max_hash_slot_num", "max_index_num")
                if value is not None and not (is_size and isinstance(value, int) and value <= 0):
                    yield field.name, value
                    break


def _camel_case(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(part.capitalize() for part in others)


def _int(text: str) -> int | None:
    """Read a number as Integer#parseInt does; None where it throws, and the broker keeps its default."""
    return java_number(text, 32)


def _boolean(text: str) -> bool:
    """Read a switch as Boolean#parseBoolean does: everything but "true" is false."""
    return text.lower() == "true"


_PARSERS: Mapping[type, Callable[[str], int | bool | str | None]] = {int: _int, bool: _boolean, str: str}


def _found_sizes(store: Store) -> dict[str, int]:
    """Return the sizes that the files tell, by the name of the setting."""
    queues = usual_sizes(store)
    found = {
        "segments": store.segment_size,
        "queue files": queues.get("queue"),
        "batch queue files": queues.get("batch_queue"),
        "ext queue files": queues.get("ext_queue"),
        "timer log files": _usual_size(store, "timer_log"),
        "compaction logs": _usual_size(store, "compaction_log"),
        "compaction queue files": _usual_size(store, "compaction_queue"),
    }
    return {_SIZES[word]: size for word, size in found.items() if size}


def _usual_size(store: Store, kind: str) -> int | None:
    sizes = [file.size for file in store.of_kind(kind) if file.size]
    return max(sizes, key=sizes.count, default=None)


def _has_rocksdb_queues(store: Store) -> bool:
    """Whether the queues are in RocksDB, and none in files: with both, a broker writes both (double write)."""
    databases = (file.name for file in store.of_kind("rocksdb"))
    in_files = any(file.noted is None for file in store.queue_files)
    return not in_files and any(name.startswith(_ROCKSDB_QUEUES) for name in databases)


def _index_geometry(store: Store) -> Geometry | None:
    """Return slots and entries of the newest index files that tell; None if none does."""
    if configured := configured_geometry(store):
        return configured
    for file in reversed(store.index_files[-_ASKED_INDEX_FILES:]):
        for index in read_index_files(store, unread=[], files=[file]):
            if index.geometry and index.entries:
                return index.geometry
    return None
