"""Settings of a start: broker.conf first, then the files, then the defaults."""

from dataclasses import replace

import pytest

from rmqinspect.forecast.settings import Settings, settings_of
from rmqinspect.rocksdb.unpack import Unpacking, unpacked
from rmqinspect.store.discover import open_store
from rmqinspect.store.model import Store
from tests.support import oracle


def _store(name: str, **conf: str) -> Store:
    return replace(open_store([str(oracle.store("crash", name))]), settings=conf)


@pytest.mark.parametrize("name", ["base-5.3.3-halt", "base-4.2.0-clean", "flip_body_12th-4.9.7-LH"])
def test_sizes_are_those_the_broker_wrote_the_files_with(name: str) -> None:
    known = oracle.case("crash", name)["settings"]
    settings, assumed = settings_of(_store(name))
    assert settings.mapped_file_size_commit_log == int(known["mappedFileSizeCommitLog"])
    assert settings.mapped_file_size_consume_queue == int(known["mappedFileSizeConsumeQueue"])
    assert (settings.max_hash_slot_num, settings.max_index_num) == (100, 250)
    assert assumed[0].startswith("file sizes as found: segments of ")
    assert assumed[-1].startswith("all other settings: the broker's default")


@pytest.mark.parametrize(
    ("conf", "field", "value"),
    [
        ({"mappedFileSizeCommitLog": "131072"}, "mapped_file_size_commit_log", 131072),
        ({"mapedFileSizeConsumeQueue": "401"}, "mapped_file_size_consume_queue", 420),
        ({"checkCRCOnRecover": "FALSE"}, "check_crc_on_recover", False),
        ({"messageIndexSafe": "True"}, "message_index_safe", True),
        ({"messageIndexSafe": "yes"}, "message_index_safe", False),
        ({"commitLogRecoverMaxNum": "-1"}, "commit_log_recover_max_num", -1),
        ({"commitLogRecoverMaxNum": "many"}, "commit_log_recover_max_num", 10),
        ({"commitLogRecoverMaxNum": "3000000000"}, "commit_log_recover_max_num", 10),
        ({"indexRocksDBEnable": "true"}, "index_rocks_db_enable", True),
        ({"storeType": "defaultRocksDB"}, "store_type", "defaultRocksDB"),
        # compaction-5.3.3 has files of 5520 bytes by these settings.
        (
            {"compactionMappedFileSize": "4600", "compactionCqMappedFileSize": "960"},
            "compaction_mapped_file_size",
            5520,
        ),
        ({"compactionMappedFileSize": "100", "compactionCqMappedFileSize": "93"}, "compaction_mapped_file_size", 460),
    ],
)
def test_broker_conf_is_read_as_a_broker_reads_it(conf: dict[str, str], field: str, value: object) -> None:
    settings, assumed = settings_of(_store("base-5.3.3-halt", **conf))
    assert getattr(settings, field) == value
    assert not any("no broker.conf" in text for text in assumed)


def test_queues_in_rocksdb_say_the_type_of_the_store() -> None:
    store = open_store([str(oracle.store("broker", "rocksdb-5.4.0"))])
    settings, assumed = settings_of(store)
    assert settings.store_type == "defaultRocksDB"
    assert "storeType=defaultRocksDB, because the queues are in RocksDB" in assumed
    assert settings_of(replace(store, settings={"storeType": "default"}))[0].store_type == "default"


@pytest.mark.parametrize("ends_only", [False, True])
def test_queues_that_were_unpacked_from_rocksdb_say_it_too(ends_only: bool) -> None:
    with unpacked(open_store([str(oracle.store("broker", "rocksdb-5.3.3"))]), Unpacking(ends_only=ends_only)) as store:
        assert settings_of(store)[0].has_rocksdb_queues


def test_without_files_the_defaults_count() -> None:
    empty = replace(_store("base-5.3.3-halt"), segment_size=None, queue_files=(), index_files=(), files=())
    assert settings_of(empty)[0] == replace(
        Settings(), compaction_cq_mapped_file_size=10_485_746, compaction_mapped_file_size=104_857_460
    )
