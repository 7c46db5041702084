"""What lies only where the broker that broker.conf describes does not look, and what a start makes of it."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest
from msgspec.structs import replace

from rmqinspect.broker.eras import rules_of_start
from rmqinspect.broker.unread import Unread, unread, unread_by_writer
from rmqinspect.forecast.outcome import Forecast
from rmqinspect.forecast.versions import ForecastRequest, forecast
from rmqinspect.rocksdb.unpack import unpacked
from rmqinspect.store.discover import open_store
from rmqinspect.store.model import Store
from rmqinspect.verify.config import check_configs
from tests.support import oracle
from tests.support.outcome_stores import copy_of_case, outcome_conf, outcome_store
from tests.support.rocksdb import needs_rocksdict

_PLAIN, _LIGHT = "config/consumerOffset.json", "config/lmqConsumerOffset.json"
_LMQ_ON = {"enableLmq": "true"}


def _forecast(store: Store, release: str | None = None) -> Forecast:
    return forecast(store, ForecastRequest(release=release, instead=True))


def _offsets(offsets: Mapping[str, int], member: str = "offsetTable") -> str:
    return json.dumps({member: {name: {"0": offset} for name, offset in offsets.items()}})


def _store(root: Path, settings: Mapping[str, str], **files: str) -> Store:
    """Make a store of configuration files alone; names have _ for the dot."""
    for folder in ("config", "commitlog"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (root / "config" / name.replace("_", ".")).write_text(text)
    return replace(open_store([str(root)]), settings=settings, has_conf=True)


def _files(found: list[Unread]) -> list[tuple[str, str]]:
    return [(one.file, one.instead) for one in found]


def test_a_broker_with_light_queues_reads_other_offsets() -> None:
    """Real 4.9.7 and 5.3.3 start with the offsets of no group."""
    store = open_store([str(outcome_store("lmq-on"))], config=str(outcome_conf("lmq-on")))
    for release in ("4.9.7", "5.3.3"):
        start = forecast(store, ForecastRequest(release=release)).worst
        assert start.verdict == "STARTS, LOSES DATA"
        assert _files(start.unread) == [(_PLAIN, _LIGHT)]
        assert start.unread[0].holds == "the offsets of 8 groups"
        assert start.losses.messages == 0
    found = _forecast(store, "4.9.7")
    best = found.instead[0]
    assert (best.is_better, best.outcome.verdict) == (True, "STARTS, LOSES NOTHING MORE")
    assert best.remedy.copied == ((_PLAIN, _LIGHT),)
    (finding,) = (one for one in check_configs(store) if one.code == "ST-CONFIG-GONE")
    assert f"copy {_PLAIN} to {_LIGHT} before the start" in finding.message


def test_a_release_that_does_not_know_light_queues_reads_the_plain_offsets() -> None:
    store = open_store([str(outcome_store("lmq-on"))], config=str(outcome_conf("lmq-on")))
    assert forecast(store, ForecastRequest(release="4.9.2")).worst.unread == []


def test_light_queues_switched_off_again(tmp_path: Path) -> None:
    """The neighbour: what was written with enableLmq is not read without it."""
    root = copy_of_case("lmq-on", tmp_path / "case")
    for ending in ("", ".bak"):
        (root / f"{_PLAIN}{ending}").rename(root / f"{_LIGHT}{ending}")
    conf = tmp_path / "case/broker.conf"
    conf.write_text(conf.read_text().replace("enableLmq=true", "enableLmq=false"))
    found = _forecast(open_store([str(root)], config=str(conf)), "4.9.7")
    assert found.worst.verdict == "STARTS, LOSES DATA"
    (one,) = found.worst.unread
    assert (one.setting, one.copy) == ("enableLmq is not on", (_LIGHT, _PLAIN))
    assert found.instead[0].remedy.copied == ((_LIGHT, _PLAIN),)
    conf.write_text(conf.read_text().replace("enableLmq=false", "enableLmq=true"))
    assert _forecast(open_store([str(root)], config=str(conf)), "4.9.7").worst.verdict == "STARTS, LOSES NOTHING MORE"


@pytest.mark.parametrize(
    ("plain", "light", "holds"),
    [
        ({"T@g": 5, "T@h": 1}, {"T@g": 5, "T@h": 1}, None),
        ({"T@g": 5, "T@h": 1}, {"T@g": 6, "T@h": 1}, None),  # those that are not read are older
        ({"T@g": 5, "T@h": 1}, {"T@g": 4, "T@h": 1}, "newer offsets of 1 group"),
        ({"T@g": 5, "T@h": 1}, {"T@g": 5}, "the offsets of 1 group"),
    ],
)
def test_which_of_two_files_of_offsets_is_newer(
    tmp_path: Path, plain: dict[str, int], light: dict[str, int], holds: str | None
) -> None:
    files = {"consumerOffset_json": _offsets(plain), "lmqConsumerOffset_json": _offsets(light)}
    found = unread(_store(tmp_path, _LMQ_ON, **files), rules_of_start("5.5.0"))
    assert [one.holds for one in found] == ([] if holds is None else [holds])


def test_without_a_broker_conf_nothing_is_told(tmp_path: Path) -> None:
    store = _store(tmp_path, _LMQ_ON, consumerOffset_json=_offsets({"T@g": 5}))
    assert len(unread_by_writer(store)) == 1
    assert unread_by_writer(replace(store, has_conf=False)) == []
    assert unread_by_writer(replace(store, settings={})) == []


@pytest.mark.parametrize(
    ("release", "settings", "instead"),
    [
        ("4.9.8", {"storeType": "defaultRocksDB"}, None),
        ("5.2.0", {"storeType": "default"}, None),
        ("5.2.0", {"storeType": "defaultRocksDB"}, "config/consumerOffsets"),
        ("5.3.0", {"storeType": "DefaultRocksDB"}, "config/consumerOffsets"),
        ("5.3.1", {"storeType": "defaultRocksDB"}, None),  # merges the file
        ("5.3.1", {"configManagerVersion": "v2"}, None),
        ("5.3.2", {"configManagerVersion": "v2"}, "config/rdb"),
    ],
)
def test_a_store_type_chooses_where_offsets_are_read(
    tmp_path: Path, release: str, settings: dict[str, str], instead: str | None
) -> None:
    store = _store(tmp_path, settings, consumerOffset_json=_offsets({"T@g": 5}))
    found = unread(store, rules_of_start(release))
    assert _files(found) == ([] if instead is None else [(_PLAIN, instead)])


@needs_rocksdict
def test_a_configuration_in_databases_is_not_read_without_their_setting() -> None:
    with unpacked(open_store([str(oracle.store("broker", "rocksdb-5.3.3"))])) as store:
        without = replace(store, settings={}, has_conf=True)
        found = unread(without, rules_of_start("5.3.3"))
        assert _files(found)[-1] == ("config/consumerOffsets", _PLAIN)
        assert {one.setting for one in found} == {"storeType is not defaultRocksDB"}
        assert found[-1].remedy == "start the broker with the settings that wrote config/consumerOffsets"
        with_it = replace(store, settings={"storeType": "defaultRocksDB"}, has_conf=True)
        assert unread(with_it, rules_of_start("5.3.3")) == []


def _stale(root: Path, *, copied: bool) -> Store:
    """Make a store whose log was moved to another disk but for two segments."""
    case = copy_of_case("multipath", root / "case")
    if copied:
        for name in (case / "commitlog").iterdir():
            shutil.copy(name, root / "case/data2/commitlog" / name.name)
    conf = root / "case/broker.conf"
    own = f"{case}/commitlog,"
    conf.write_text(conf.read_text().replace(own, ""))
    return open_store([str(case)], config=str(conf))


def test_segments_that_stayed_in_the_old_folder_are_lost_by_the_start(tmp_path: Path) -> None:
    store = _stale(tmp_path, copied=False)
    found = _forecast(store, "4.9.7")
    (one,) = found.worst.unread
    folder = f"{tmp_path}/case/data2/commitlog"
    assert (found.worst.verdict, one.file, one.instead) == ("STARTS, LOSES DATA", "commitlog", folder)
    assert one.holds == "the segments at 0, 262 144"
    best = found.instead[0]
    assert (best.is_better, best.remedy.copied) == (True, (("commitlog/*", folder),))
    assert (best.outcome.min_offset, best.outcome.end_offset) == (0, 291_881)
    assert "CL-NOT-READ" in {finding.code for finding in check_configs(store)}


def test_a_stale_folder_whose_segments_are_all_in_the_new_one_costs_nothing(tmp_path: Path) -> None:
    store = _stale(tmp_path, copied=True)
    assert [oddity.kind for oddity in store.oddities] == ["not_read"]
    assert "CL-NOT-READ" not in {finding.code for finding in check_configs(store)}
    assert _forecast(store, "4.9.7").worst.verdict == "STARTS, LOSES NOTHING MORE"
