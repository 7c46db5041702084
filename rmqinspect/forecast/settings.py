"""The settings of a broker that a start depends on: from broker.conf, else the broker's default, else the files.

Source: MessageStoreConfig, BrokerConfig; RocketMQ 4.0.0 to 5.5.0.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields

from rmqinspect.store.model import Store


@dataclass(frozen=True, slots=True)
class Settings:
    """Values by name; sizes are bytes. Names in broker.conf are the same in camelCase (`SPELLINGS` has exceptions)."""

    mapped_file_size_commit_log: int = 1 << 30
    mapped_file_size_consume_queue: int = 6_000_000  # rounded up to whole units
    mapper_file_size_batch_consume_queue: int = 13_800_000
    max_hash_slot_num: int = 5_000_000
    max_index_num: int = 20_000_000
    check_crc_on_recover: bool = True
    force_verify_prop_crc: bool = False
    check_commit_log_offset_on_recover: bool = False
    commit_log_recover_max_num: int = 10
    message_index_enable: bool = True
    message_index_safe: bool = False
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
    store_type: str = "default"
    flush_disk_type: str = "ASYNC_FLUSH"
    broker_role: str = "ASYNC_MASTER"
    message_delay_level: str = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"


SPELLINGS: Mapping[str, tuple[str, ...]] = {
    "mapped_file_size_commit_log": ("mappedFileSizeCommitLog", "mapedFileSizeCommitLog"),
    "mapped_file_size_consume_queue": ("mappedFileSizeConsumeQueue", "mapedFileSizeConsumeQueue"),
}
"""Names in broker.conf that are not the camelCase of ours, or of which there are several."""


def settings_of(store: Store) -> tuple[Settings, list[str]]:
    """Return the settings of a store, and what was assumed, as texts for people."""
    raise NotImplementedError(store, fields(Settings))
