"""`rebuild` from the command line: what is brought, linked, left out, refused, and what the receipt says."""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqinspect.rescue import job, sound_log
from rmqinspect.rescue.rebuild import rebuild_derived
from tests.support import command, oracle
from tests.support.building import STORED
from tests.support.samples import sample
from tests.support.whole_stores import WholeStore

run = command.runner("rebuild")

PIECES = [{"queue_id": at % 2, "properties": {"KEYS": f"k{at}", "TAGS": "t"}} for at in range(24)]
CONFIG: dict[str, Any] = {"topics.json": {"topicConfigTable": {"TopicTest": {}}}}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return WholeStore(PIECES, configs=CONFIG).write(tmp_path / "store")


@pytest.fixture
def new(tmp_path: Path) -> Path:
    return tmp_path / "new"


def receipt_of(new: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(f"{new}.receipt.json").read_text())
    return found


def files_below(folder: Path) -> Iterator[str]:
    return (path.relative_to(folder).as_posix() for path in sorted(folder.rglob("*")) if path.is_file())


def test_a_store_is_made_and_told(store: Path, new: Path, run: command.Run) -> None:
    status, out, err = run(store, "-o", new, "--broker-version", "5.3.3")
    assert status == 0
    assert "VERDICT      WHOLE" in out and "STARTS, LOSES NOTHING MORE with 5.3.3" in out
    assert "queues      2 queues, 24 units" in out
    assert f"made: {new}, {new}.receipt.json" in err
    for name in files_below(store):
        if not name.startswith(("index/", "checkpoint")):
            assert (new / name).read_bytes() == (store / name).read_bytes()
    receipt = receipt_of(new)
    assert (receipt["broker_version"], receipt["version_from"]) == ("5.3.3", "given")
    assert (receipt["derived"]["records"], receipt["derived"]["units"]) == (24, 24)
    assert receipt["verdict"] == "WHOLE" and receipt["next_start"].startswith("STARTS, LOSES NOTHING MORE")
    assert receipt["left_out"] == receipt["notes"] == []


def test_of_a_broken_store_only_the_log_counts(store: Path, new: Path, run: command.Run) -> None:
    queue = next(path for path in (store / "consumequeue").rglob("*") if path.is_file())
    whole = queue.read_bytes()
    queue.write_bytes(b"\xff" * len(whole))
    shutil.rmtree(store / "index")
    (store / "abort").touch()
    assert run(store, "-o", new)[0] == 0
    assert (new / queue.relative_to(store)).read_bytes() == whole
    assert not (new / "abort").exists()


def test_a_folder_of_segments_is_enough(store: Path, new: Path, tmp_path: Path, run: command.Run) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("mappedFileSizeCommitLog=1024\nmappedFileSizeConsumeQueue=160\nmaxHashSlotNum=7\nmaxIndexNum=24\n")
    assert run(store / "commitlog", "-o", new, "--config", conf, "--broker-version", "4.9.7")[0] == 0
    assert {path.name for path in new.iterdir()} == {"commitlog", "consumequeue", "index", "checkpoint"}
    queues = [name for name in files_below(store) if name.startswith("consumequeue/")]
    assert all((new / name).read_bytes() == (store / name).read_bytes() for name in queues)


def test_sizes_that_nothing_tells_are_the_defaults(store: Path, new: Path, run: command.Run) -> None:
    status, out, _ = run(store / "commitlog", "-o", new)
    assert status == 0 and "no queue files and index files tell their size" in out
    sizes = receipt_of(new)["geometry"]
    assert (sizes["queue_file"], sizes["index_slots"], sizes["index_entries"]) == (6_000_000, 5_000_000, 20_000_000)
    index = next((new / "index").iterdir()).stat()
    assert index.st_size == 420_000_040 and index.st_blocks * 512 < 32 << 20


@pytest.mark.parametrize(("only", "kept"), [("queues", "index"), ("index", "consumequeue")])
def test_what_is_not_asked_for_is_brought(store: Path, new: Path, run: command.Run, only: str, kept: str) -> None:
    assert run(store, "-o", new, "--only", only)[0] == 0
    names = [name for name in files_below(store) if name.startswith(f"{kept}/")]
    assert names and all((new / name).read_bytes() == (store / name).read_bytes() for name in names)
    assert {one["file"] for one in receipt_of(new)["brought"]} >= set(names)


# --- refusals -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["flip_body_last-5.1.4-c", "seg_missing_mid-4.9.7-c", "magic_third-4.9.7-c"])
def test_a_damaged_log_is_for_salvage(new: Path, run: command.Run, name: str) -> None:
    status, out, err = run(oracle.store("crash", name), "-o", new)
    assert (status, out) == (3, "")
    assert "the log is damaged, 1 error" in err and "rmqinspect salvage " in err
    assert list(new.parent.iterdir()) == []


def test_offsets_that_contradict_each_other_give_no_store(new: Path, run: command.Run) -> None:
    status, _, err = run(oracle.store("crash", "qoffset_last-5.1.4-h"), "-o", new)
    assert status == 3 and "not made: it would be DAMAGED" in err
    assert list(new.parent.iterdir()) == []


def test_a_store_without_a_log_is_refused(store: Path, new: Path, run: command.Run) -> None:
    shutil.rmtree(store / "commitlog")
    status, _, err = run(store, "-o", new)
    assert status == 4 and "there is nothing to rebuild from" in err


def test_nothing_is_overwritten(store: Path, new: Path, run: command.Run) -> None:
    new.mkdir()
    status, _, err = run(store, "-o", new)
    assert status == 6 and "already exists" in err


def test_nothing_is_written_into_the_evidence(store: Path, run: command.Run) -> None:
    status, _, err = run(store, "-o", store / "new")
    assert status == 6 and "nothing is ever written there" in err


def test_a_config_that_refuses_the_start_gives_no_store(store: Path, new: Path, run: command.Run) -> None:
    (store / "config/topics.json").write_text("{")
    (store / "config/topics.json.bak").write_text("{")
    status, _, err = run(store, "-o", new, "--broker-version", "5.3.3")
    assert status == 3 and "not made" in err
    assert not new.exists()


def test_databases_need_their_library(new: Path, run: command.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sound_log, "has_rocksdict", lambda: False)
    status, _, err = run(oracle.store("broker", "rocksdb-5.3.3"), "-o", new)
    assert status == 4 and "pip install '.[rocksdb]'" in err
    assert list(new.parent.iterdir()) == []


def test_a_source_that_changes_meanwhile_gives_no_store(
    store: Path, new: Path, run: command.Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = rebuild_derived

    def change(*arguments: Any, **named: Any) -> Any:
        with open(store / "config/topics.json", "a") as file:
            file.write(" ")
        return build(*arguments, **named)

    monkeypatch.setattr(job, "rebuild_derived", change)
    status, _, err = run(store, "-o", new)
    assert status == 6 and "config/topics.json: changed while it was read" in err
    assert not new.exists()


# --- links --------------------------------------------------------------------------------------------


def test_full_segments_are_linked_but_never_the_last(store: Path, new: Path, run: command.Run) -> None:
    names = [name for name in files_below(store) if name.startswith("commitlog/")]
    status, out, _ = run(store, "-o", new, "--link")
    assert status == 0 and "linked" in out
    how = {one["file"]: one["how"] for one in receipt_of(new)["brought"]}
    for name in names[:-1]:
        assert os.path.samefile(store / name, new / name) and how[name] == "linked"
    assert not os.path.samefile(store / names[-1], new / names[-1])
    assert (new / names[-1]).read_bytes() == (store / names[-1]).read_bytes()


def test_a_segment_behind_which_only_zeros_are_is_copied(store: Path, new: Path, run: command.Run) -> None:
    """It is the one that the broker writes to next, though a file made ahead follows."""
    names = [name for name in files_below(store) if name.startswith("commitlog/")]
    ahead = store / f"commitlog/{len(names) * 1024:020}"
    ahead.write_bytes(bytes(1024))
    assert run(store, "-o", new, "--link")[0] == 0
    for name in (names[-1], ahead.relative_to(store)):
        assert not os.path.samefile(store / name, new / name)


@pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="needs a second file system")
def test_links_over_file_systems_are_refused(store: Path, run: command.Run) -> None:
    place = Path("/dev/shm") / f"rmqinspect-test-{os.getpid()}"
    if os.stat("/dev/shm").st_dev == os.stat(store).st_dev:
        pytest.skip("one file system")
    place.mkdir()
    try:
        status, _, err = run(store, "-o", place / "new", "--link")
        assert status == 6 and "another file system" in err
        assert list(place.iterdir()) == []
    finally:
        shutil.rmtree(place)


# --- the receipt --------------------------------------------------------------------------------------


def test_digests_are_those_of_the_sources_files(store: Path, new: Path, run: command.Run) -> None:
    assert run(store, "-o", new, "--hash", "sha256")[0] == 0
    for one in receipt_of(new)["brought"]:
        assert one["sha256"] == hashlib.sha256((store / one["file"]).read_bytes()).hexdigest()


def test_what_is_left_out_is_named(store: Path, new: Path, run: command.Run) -> None:
    (store / "commitlog/.DS_Store").write_bytes(b"x")
    (store / "notes.txt").write_text("mine")
    (store / "config/elsewhere.json").symlink_to("/etc/hostname")
    status, out, _ = run(store, "-o", new)
    assert status == 0 and "left out" in out
    assert {one["file"] for one in receipt_of(new)["left_out"]} == {
        "commitlog/.DS_Store",
        "notes.txt",
        "config/elsewhere.json",
    }
    assert not any(path.is_symlink() for path in new.rglob("*"))


def test_a_receipt_holds_no_value_of_a_message(new: Path, run: command.Run) -> None:
    pieces = [{"body": b"secret-body", "properties": {"KEYS": "secret-key", "TAGS": "secret-tag"}}]
    store = WholeStore(pieces).write(new.parent / "store")
    status, out, _ = run(store, "-o", new)
    text = Path(f"{new}.receipt.json").read_text() + out
    assert status == 0 and "secret" not in text and str(STORED) in text


def test_timers_and_the_rest_of_a_store_come_along(new: Path, run: command.Run) -> None:
    root = oracle.store("broker", "main-5.3.3")
    assert run(root, "-o", new, "--broker-version", "5.3.3")[0] == 0
    for name in ("timerwheel", "config/timercheck", "config/consumerOffset.json", "compaction/position-checkpoint"):
        assert (new / name).read_bytes() == (root / name).read_bytes()


def test_quiet_prints_nothing(new: Path, run: command.Run) -> None:
    root = sample("healthy-5.5.0")
    assert run(root, "-o", new, "-q") == (0, "", "")


def test_commands_on_the_screen_name_the_new_store_as_it_will_be(store: Path, new: Path, run: command.Run) -> None:
    """It is proven in a folder that is gone when one reads them."""
    topics = {"topicConfigTable": {"TopicTest": {"topicName": "TopicTest", "readQueueNums": 1, "perm": 6}}}
    offsets = {"offsetTable": {"TopicTest@billing": {"0": 2, "1": 2}}}
    (store / "config" / "topics.json").write_text(json.dumps(topics))  # nobody is told of queue 1
    (store / "config" / "consumerOffset.json").write_text(json.dumps(offsets))
    _, out, _ = run(store, "-o", new, "--broker-version", "5.3.3")
    assert f"rmqinspect groups {new} " in out
    assert ".part" not in out
