"""Which folders of a log a broker.conf names, where they are on this machine, and what lies elsewhere."""

import os
import shutil
from pathlib import Path

import pytest

from rmqinspect import verify_store
from rmqinspect.broker.eras import rules_of_start
from rmqinspect.forecast.versions import ForecastRequest, forecast
from rmqinspect.store.discover import open_store
from rmqinspect.store.log_paths import NamedFolder, named_folders, named_ledgers
from rmqinspect.store.model import Oddity, Store
from tests.support.outcome_stores import copy_of_case, outcome_conf, outcome_store

_SIZE = 4096
_FIRST, _SECOND, _THIRD = (f"{base:020}" for base in (0, _SIZE, 2 * _SIZE))


def _store(root: Path, *own: str, **folders: tuple[str, ...]) -> Path:
    """Make the folders of a log: segments of zeros; `own` are those in the folder commitlog of the root."""
    (root / "store/consumequeue").mkdir(parents=True)
    for folder, names in {"store/commitlog": own, **folders}.items():
        for name in names:
            (root / folder).mkdir(parents=True, exist_ok=True)
            (root / folder / name).write_bytes(bytes(_SIZE))
    return root / "store"


def _open(root: Path, **settings: str) -> Store:
    conf = root / "broker.conf"
    conf.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return open_store([str(root / "store")], config=str(conf))


def _names(store: Store) -> list[str]:
    return [segment.name for segment in store.segments]


def _said(store: Store) -> list[tuple[str, str]]:
    return [(oddity.kind, oddity.name) for oddity in store.oddities]


@pytest.mark.parametrize(
    ("named", "read_only", "folders"),
    [
        (None, "/c", []),
        ("/a", "/c", ["/a"]),  # without the separator it is a MappedFileQueue, which asks for nothing else
        ("/a,/b", None, ["/a", "/b"]),
        ("/a,/b", "/c,/a", ["/a", "/b", "/c"]),
        ("/a,", "/c", ["/a", "/c"]),
        ("/a, /b", None, ["/a", " /b"]),
        (",", None, []),
    ],
)
def test_the_folders_that_a_broker_conf_names(named: str | None, read_only: str | None, folders: list[str]) -> None:
    settings = {"storePathCommitLog": named, "readOnlyCommitLogStorePaths": read_only}
    found = named_folders({name: value for name, value in settings.items() if value is not None})
    assert [folder.path for folder in found] == folders


def test_a_dledger_log_has_folders_of_its_own() -> None:
    settings = {"enableDLegerCommitLog": "true", "dLegerSelfId": "n1", "storePathDLedgerCommitLog": "/a,/b"}
    place = ("dledger-n1", "data")
    assert named_ledgers(settings) == [NamedFolder("storePathDLedgerCommitLog", path, place) for path in ("/a", "/b")]
    assert named_ledgers({**settings, "enableDLegerCommitLog": "false"}) == []


def test_a_log_in_two_folders_is_whole() -> None:
    conf = str(outcome_conf("multipath"))
    store = open_store([str(outcome_store("multipath"))], config=conf)
    own, other = "commitlog", "../data2/commitlog"
    assert _names(store) == [f"{own}/{0:020}", f"{other}/{131_072:020}", f"{own}/{262_144:020}"]
    assert not store.oddities
    assert verify_store(store).verdict == "WHOLE"
    start = forecast(store, ForecastRequest(release="4.9.7")).worst
    assert (start.end_offset, start.min_offset, start.segments_after) == (291_881, 0, [0, 131_072, 262_144])


def test_a_release_before_4_9_2_takes_the_list_for_one_name() -> None:
    store = open_store([str(outcome_store("multipath"))], config=str(outcome_conf("multipath")))
    assert [rules_of_start(release).log_paths for release in ("4.9.1", "4.9.2")] == ["one", "several"]
    start = forecast(store, ForecastRequest(release="4.9.1", count_losses=False)).worst
    assert start.segments_after == []
    assert any("takes for the name of one" in note for note in start.notes)


def test_two_files_of_one_base_have_the_names_of_their_folders() -> None:
    conf = str(outcome_conf("multipath-dup"))
    store = open_store([str(outcome_store("multipath-dup"))], config=conf)
    twice = f"{262_144:020}"
    assert _names(store)[2:] == [f"commitlog/{twice}", f"../data2/commitlog/{twice}"]  # the one with records first
    (finding,) = (one for one in verify_store(store).findings if one.code == "CL-DUPLICATE")
    said = f"{finding.file} {finding.message} {finding.found}".replace(f"../data2/commitlog/{twice}", "the other one")
    assert "the other one" in said
    assert f"commitlog/{twice}" in said


def test_a_copy_brings_its_folders_along(tmp_path: Path) -> None:
    """The paths are those of another host; beside the copy lie folders of the same names."""
    _store(tmp_path, _FIRST, **{"disk2/commitlog": (_SECOND,)})
    settings = {"storePathRootDir": "/data/store", "storePathCommitLog": "/data/store/commitlog,/mnt/disk2/commitlog"}
    store = _open(tmp_path, **settings)
    assert _names(store) == [f"commitlog/{_FIRST}", f"../disk2/commitlog/{_SECOND}"]
    assert store.remarks[:2] == (
        "storePathCommitLog=/data/store/commitlog: commitlog beside this store was taken for it",
        "storePathCommitLog=/mnt/disk2/commitlog: ../disk2/commitlog beside this store was taken for it",
    )


def test_the_folders_of_the_original_are_not_those_of_its_copy(tmp_path: Path) -> None:
    original, copy = tmp_path / "original", tmp_path / "copy"
    root = _store(original, _FIRST, disk=(_SECOND,))
    shutil.copytree(root, copy / "store")
    named = f"{root}/commitlog,{original}/disk"
    store = _open(copy, storePathRootDir=str(root), storePathCommitLog=named)
    assert _names(store) == [f"commitlog/{_FIRST}"]
    assert _said(store) == [("absent", f"{original}/disk")]
    assert _names(_open(original, storePathRootDir=str(root), storePathCommitLog=named))[1:] == [f"../disk/{_SECOND}"]


def test_a_folder_that_is_not_here_leaves_the_log_unknown(tmp_path: Path) -> None:
    copy_of_case("multipath", tmp_path / "case")
    shutil.rmtree(tmp_path / "case/data2")
    store = open_store([str(tmp_path / "case/store")], config=str(tmp_path / "case/broker.conf"))
    assert store.hides_log
    assert _said(store) == [("absent", f"{tmp_path}/case/data2/commitlog")]
    start = forecast(store, ForecastRequest(release="4.9.7")).worst
    assert start.verdict == "CANNOT TELL"
    assert str(start.unknown).startswith(f"{tmp_path}/case/data2/commitlog: storePathCommitLog names this folder")
    assert "INCOMPLETE" in verify_store(store).verdict.upper()


def test_a_folder_that_is_not_here_can_be_given(tmp_path: Path) -> None:
    _store(tmp_path, _FIRST, **{"elsewhere/commitlog": (_SECOND,)})
    conf = tmp_path / "broker.conf"
    conf.write_text("storePathRootDir=/data/store\nstorePathCommitLog=/data/store/commitlog,/disk2/commitlog\n")
    store = open_store([str(tmp_path / "store"), str(tmp_path / "elsewhere/commitlog")], config=str(conf))
    assert _names(store) == [f"commitlog/{_FIRST}", f"../elsewhere/commitlog/{_SECOND}"]
    assert not store.oddities


def test_the_root_s_own_folder_is_not_read_where_others_are_named(tmp_path: Path) -> None:
    root = _store(tmp_path, _FIRST, _SECOND, disk=(_THIRD,))
    store = _open(tmp_path, storePathRootDir=str(root), storePathCommitLog=f"{tmp_path}/disk")
    assert _names(store) == [f"../disk/{_THIRD}"]
    why = f"2 files that a broker does not read: storePathCommitLog names {tmp_path}/disk"
    assert store.oddities == (Oddity("not_read", "commitlog", why, f"{root}/commitlog", ("commitlog",)),)
    assert not store.hides_log
    assert [file.name for file in store.of_kind("other")] == [f"commitlog/{_FIRST}", f"commitlog/{_SECOND}"]


def test_the_root_s_own_folder_without_files_is_nothing_to_tell(tmp_path: Path) -> None:
    root = _store(tmp_path, disk=(_FIRST,))
    (root / "commitlog").mkdir()
    assert _said(_open(tmp_path, storePathRootDir=str(root), storePathCommitLog=f"{tmp_path}/disk")) == []


def test_folders_within_the_root_s_own(tmp_path: Path) -> None:
    root = _store(tmp_path, **{"store/commitlog/a": (_FIRST,), "store/commitlog/b": (_SECOND,)})
    store = _open(tmp_path, storePathRootDir=str(root), storePathCommitLog=f"{root}/commitlog/a,{root}/commitlog/b")
    assert _names(store) == [f"commitlog/a/{_FIRST}", f"commitlog/b/{_SECOND}"]
    assert not store.oddities


def test_a_link_in_the_root_to_the_folder_that_is_named(tmp_path: Path) -> None:
    root = _store(tmp_path, disk=(_FIRST,))
    (root / "commitlog").symlink_to(tmp_path / "disk")
    store = _open(tmp_path, storePathRootDir=str(root), storePathCommitLog=f"{tmp_path}/disk")
    assert [os.path.basename(name) for name in _names(store)] == [_FIRST]
    assert not store.hides_log


def test_a_blank_beside_a_comma_belongs_to_the_name(tmp_path: Path) -> None:
    root = _store(tmp_path, _FIRST, disk=(_SECOND,))
    store = _open(tmp_path, storePathRootDir=str(root), storePathCommitLog=f"{root}/commitlog, {tmp_path}/disk")
    assert _names(store) == [f"commitlog/{_FIRST}"]
    (oddity,) = store.oddities
    assert (oddity.kind, oddity.name) == ("absent", f" {tmp_path}/disk")
    assert "a blank beside this name" in oddity.detail


def test_a_copy_with_its_log_in_the_usual_place(tmp_path: Path) -> None:
    """Who copies a log of another disk puts it where a log usually is."""
    _store(tmp_path, _FIRST)
    store = _open(tmp_path, storePathRootDir="/data/store", storePathCommitLog="/disk2/rocketmq")
    assert (_names(store), store.oddities) == ([f"commitlog/{_FIRST}"], ())
    assert store.remarks[0] == "storePathCommitLog=/disk2/rocketmq: commitlog beside this store was taken for it"


def test_the_dledger_log_of_another_member_is_not_read(tmp_path: Path) -> None:
    root = _store(tmp_path, **{"store/dledger-n0/data": (_FIRST,)})
    store = _open(tmp_path, storePathRootDir=str(root), enableDLegerCommitLog="true", dLegerSelfId="n1")
    assert _names(store) == []
    assert [oddity.detail for oddity in store.oddities] == [
        "1 file that a broker does not read: dLegerSelfId makes the broker read dledger-n1"
    ]
    own = _open(tmp_path, storePathRootDir=str(root), enableDLegerCommitLog="true", dLegerSelfId="n0")
    assert (_names(own), own.oddities) == ([f"dledger-n0/data/{_FIRST}"], ())


def test_a_dledger_log_elsewhere(tmp_path: Path) -> None:
    root = _store(tmp_path, **{"store/dledger-n0/data": (_FIRST,), "entries": (_SECOND,)})
    named = {"enableDLegerCommitLog": "true", "dLegerSelfId": "n0", "storePathDLedgerCommitLog": f"{tmp_path}/entries"}
    store = _open(tmp_path, storePathRootDir=str(root), **named)
    assert [(segment.name, segment.kind) for segment in store.segments] == [(f"../entries/{_SECOND}", "dledger")]
    assert _said(store) == [("not_read", "dledger-n0/data")]
