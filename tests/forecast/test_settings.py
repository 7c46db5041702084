"""Settings of a start: broker.conf first, then the files, then the defaults."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from rmqinspect.broker.eras import rules_of_start
from rmqinspect.forecast.outcome import Verdict
from rmqinspect.forecast.settings import Settings, contradictions, settings_of
from rmqinspect.forecast.versions import ForecastRequest, forecast
from rmqinspect.rocksdb.unpack import Unpacking, unpacked
from rmqinspect.store.discover import open_store
from rmqinspect.store.model import Store
from tests.support import oracle


def _store(name: str, **conf: str) -> Store:
    return replace(open_store([str(oracle.store("crash", name))]), settings=conf, has_conf=bool(conf))


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
    assert settings_of(replace(store, has_conf=True))[0].store_type == "default"


@pytest.mark.parametrize("ends_only", [False, True])
def test_queues_that_were_unpacked_from_rocksdb_say_it_too(ends_only: bool) -> None:
    with unpacked(open_store([str(oracle.store("broker", "rocksdb-5.3.3"))]), Unpacking(ends_only=ends_only)) as store:
        assert settings_of(store)[0].has_rocksdb_queues


def test_without_files_the_defaults_count() -> None:
    empty = replace(_store("base-5.3.3-halt"), segment_size=None, queue_files=(), index_files=(), files=())
    assert settings_of(empty)[0] == replace(
        Settings(), compaction_cq_mapped_file_size=10_485_746, compaction_mapped_file_size=104_857_460
    )


@pytest.mark.parametrize(
    ("conf", "release", "remedy"),
    [
        ({}, "4.5.2", "set mappedFileSizeCommitLog=65536 in broker.conf"),
        ({"mappedFileSizeCommitLog": "65536"}, "5.5.0", "set mappedFileSizeConsumeQueue=400 in broker.conf"),
        ({"mappedFileSizeCommitLog": "131072"}, "5.5.0", "set mappedFileSizeCommitLog=65536 in broker.conf"),
        ({"mapedFileSizeCommitLog": "65536"}, "5.5.0", "set mappedFileSizeCommitLog=65536 in broker.conf"),
        ({"mappedFileSizeCommitLog": "65536"}, "4.5.1", "set mapedFileSizeCommitLog=65536 in broker.conf"),
    ],
)
def test_a_size_that_broker_conf_does_not_say_is_the_default(conf: dict[str, str], release: str, remedy: str) -> None:
    """Real stores of 4.9.7 to 5.5.0 refuse; 4.5.1 and earlier read the other names."""
    store = replace(_store("base-5.3.3-halt", **conf), has_conf=True)
    outcome = forecast(store, ForecastRequest(release=release)).worst
    assert outcome.refusal is not None
    assert (outcome.refusal.rule, outcome.refusal.remedy) == ("wrong_length", remedy)


def test_up_to_4_4_a_log_of_another_size_is_left_aside() -> None:
    """4.3.2 did so: it starts with an empty log."""
    store = replace(_store("base-4.3.2-clean"), has_conf=True)
    outcome = forecast(store, ForecastRequest(release="4.3.2")).worst
    assert (outcome.refusal, outcome.min_offset, outcome.end_offset) == (None, -1, 0)
    assert outcome.verdict is Verdict.EMPTY
    assert {segment.name for segment in store.segments} < set(outcome.ignored_files)
    assert outcome.notes[0] == (
        "segments of 65 536 bytes, but broker.conf makes them 1 073 741 824: set mapedFileSizeCommitLog=65536 there"
    )


def test_up_to_4_4_queues_of_another_size_are_left_aside() -> None:
    """4.3.2 did so after a clean exit: no queue leads to the log, and queue offsets begin at 0 again."""
    store = _store("base-4.3.2-clean", mapedFileSizeCommitLog="65536")
    outcome = forecast(store, ForecastRequest(release="4.3.2")).worst
    assert outcome.verdict is Verdict.EMPTY
    assert all(queue.max_after == 0 for queue in outcome.queues)


def test_a_size_of_broker_conf_that_the_names_contradict_is_not_brought_to_the_files(tmp_path: Path) -> None:
    """Files of a size that they do not have in broker.conf, and that their bases say, are not filled with zeros."""
    conf = tmp_path / "broker.conf"
    conf.write_text("mappedFileSizeCommitLog=1073741824\nmappedFileSizeConsumeQueue=400\n")
    store = open_store([str(oracle.store("crash", "base-5.3.3-halt"))], config=str(conf))
    (outcome,) = forecast(store, ForecastRequest(release="5.3.3")).outcomes
    assert outcome.refusal is not None
    assert outcome.refusal.remedy == "set mappedFileSizeCommitLog=65536 in broker.conf"
    # One file alone fits its name at any size: it may have been cut.
    alone = replace(store, segments=store.segments[:1])
    (outcome,) = forecast(alone, ForecastRequest(release="5.3.3")).outcomes
    assert outcome.refusal is not None
    assert "fill it with zeros" in outcome.refusal.remedy


@pytest.mark.parametrize("release", ["4.3.2", "4.9.7"])
def test_the_lines_that_broker_conf_lacks_come_before_another_broker(release: str) -> None:
    """4.9.2 leaves queue files of another size aside and makes them anew: it loses nothing, and heals nothing more."""
    store = _store(f"base-{release}-clean", brokerName="a")
    best = forecast(store, ForecastRequest(release=release, instead=True)).instead[0]
    assert best.outcome.release == release
    assert best.remedy.settings
    assert (best.outcome.verdict, best.units_missed, best.is_better) == (Verdict.SAFE, 0, True)


def test_index_files_of_another_geometry_are_told() -> None:
    conf = {"mappedFileSizeCommitLog": "65536", "mappedFileSizeConsumeQueue": "400", "maxIndexNum": "250"}
    outcome = forecast(_store("base-5.3.3-halt", **conf), ForecastRequest(release="5.3.3")).worst
    assert outcome.refusal is None
    assert any("set maxHashSlotNum=100 and maxIndexNum=250 there" in note for note in outcome.notes)
    fitting = _store("base-5.3.3-halt", **conf, maxHashSlotNum="100")
    assert not any("maxHashSlotNum" in note for note in forecast(fitting, ForecastRequest(release="5.3.3")).worst.notes)


def test_queues_in_rocksdb_are_asked_for_in_broker_conf() -> None:
    store = replace(open_store([str(oracle.store("broker", "rocksdb-5.3.3"))]), has_conf=True)
    settings = settings_of(store)[0]
    notes = list(contradictions(store, settings, rules_of_start("5.3.3")))
    assert "queues in RocksDB, which broker.conf does not say: set storeType=defaultRocksDB there" in notes


def test_a_dledger_log_is_asked_for_in_broker_conf() -> None:
    """4.9.7, 5.3.3 and 5.5.0 without enableDLegerCommitLog begin an empty log, and delete the queues."""
    store = open_store([str(oracle.store("broker", "dledger-5.3.3"))])
    conf = {"mappedFileSizeTimerLog": "1048576", "mappedFileSizeConsumeQueue": "6000"}
    outcome = forecast(replace(store, settings=conf, has_conf=True), ForecastRequest(release="5.3.3")).worst
    assert (outcome.verdict, outcome.end_offset) == (Verdict.EMPTY, 0)
    assert "a DLedger log, which broker.conf does not say: set enableDLegerCommitLog=true there" in outcome.notes
    conf["enableDLegerCommitLog"] = "true"
    asked = forecast(replace(store, settings=conf, has_conf=True), ForecastRequest(release="5.3.3")).worst
    assert asked.verdict is not Verdict.EMPTY


@pytest.mark.parametrize(
    ("release", "line", "note"),
    [
        ("5.5.0", "storePathConsumeQueue=/fast/cq", "the broker takes consumequeue below storePathRootDir"),
        ("5.5.0", "abortFile=/fast/abort", "the broker takes abort below storePathRootDir"),
        ("5.5.0", "storePathIndex=/data/store/./index/", ""),  # where it is anyway
        ("4.9.7", "storePathCommitlog=/fast/log", "no release knows this name"),
        ("4.9.7", "storePathCommitLog=/fast/log", ""),
        ("4.9.1", "readOnlyCommitLogStorePaths=/old/log", "has no effect before 4.9.2"),
        ("4.9.2", "readOnlyCommitLogStorePaths=/old/log", ""),
        ("4.9.3", "storePathDLedgerCommitLog=/fast/log", "has no effect before 4.9.4"),
        ("4.9.4", "storePathDLedgerCommitLog=/fast/log", ""),
        ("4.9.8", "storePathEpochFile=/fast/epoch", "has no effect before 5.0.0"),
        ("5.1.0", "storePathBrokerIdentity=/fast/id", "has no effect before 5.1.1"),
        ("5.1.1", "storePathBrokerIdentity=/fast/id", ""),
        ("5.5.0", "brokerName=storePathIndex", ""),
    ],
)
def test_paths_that_a_release_does_not_know(release: str, line: str, note: str) -> None:
    """MixAll#properties2Object takes what MessageStoreConfig of the release has a setter for."""
    name, _, path = line.partition("=")
    sizes = {"mappedFileSizeCommitLog": "65536", "mappedFileSizeConsumeQueue": "400"}
    sizes |= {"maxHashSlotNum": "100", "maxIndexNum": "250"}
    conf = {"storePathRootDir": "/data/store", name: path, **sizes}
    store = _store("base-5.3.3-halt", **conf)
    notes = list(contradictions(store, settings_of(store)[0], rules_of_start(release)))
    told = [text for text in notes if text.startswith(f"{name} in broker.conf")]
    assert [text.endswith(note) for text in told] == ([True] if note else []), notes
