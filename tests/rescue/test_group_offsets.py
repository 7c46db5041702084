"""rebuild and the groups: who would not get new messages is said before anything is written, with what mends it."""

import json
from pathlib import Path
from typing import Any

import pytest

from rmqinspect.cli import ExitStatus
from rmqinspect.config.json_files import read_consumer_offsets
from rmqinspect.rescue.group_offsets import positions_of, without_record
from rmqinspect.store.discover import open_store
from tests.support import oracle
from tests.support.command import Run, runner
from tests.support.outcome_stores import copy_of_case, outcome_store
from tests.support.whole_stores import WholeStore

run = runner("rebuild")

_TOPICS = {"topicConfigTable": {"TopicTest": {"topicName": "TopicTest", "readQueueNums": 1, "writeQueueNums": 1}}}


def _store(folder: Path, offsets: dict[str, Any], *, rows: int = 6, topics: Any = _TOPICS) -> Path:
    """Return a store of one queue, whose messages end at `rows`, with consumer offsets."""
    files = {"consumerOffset.json": {"offsetTable": offsets}} | ({} if topics is None else {"topics.json": topics})
    return WholeStore([{"body": b"%d" % at} for at in range(rows)], configs=files).write(folder / "store")


def _receipt(new: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(f"{new}.receipt.json").read_text())
    return found


def test_groups_that_would_skip_are_named_before_anything_is_written(tmp_path: Path, run: Run) -> None:
    """As two segments are gone, the queues of real brokers end below their groups: salvage keeps the ends."""
    status, out, err = run(outcome_store("s02"), "-o", tmp_path / "new")
    assert status == ExitStatus.DAMAGE
    assert not list(tmp_path.iterdir())
    assert "billing 578" in out and "shipping 135" in out  # of it 121 of shipments, 14 of its retry topic
    assert "orders@billing: 0: 816 -> 666, 1: 849 -> 692, 2: 828 -> 683, 3: 805 -> 679" in " ".join(out.split())
    better = out.index("rmqinspect salvage")
    assert better < out.index("--set-offsets")
    assert "not made" in err


def test_offsets_are_set_back_on_demand_and_nothing_else_changes(tmp_path: Path, run: Run) -> None:
    store = _store(tmp_path, {"TopicTest@ahead": {"0": 9}, "TopicTest@lags": {"0": 4}, "gone@ahead": {"0": 7}})
    assert run(store, "-o", tmp_path / "new")[0] == ExitStatus.DAMAGE
    assert run(store, "-o", tmp_path / "new", "--set-offsets")[0] == ExitStatus.DONE
    offsets = {
        (one.topic, one.group): one.offset for one in read_consumer_offsets(open_store([str(tmp_path / "new")]))[0]
    }
    assert offsets == {("TopicTest", "ahead"): 6, ("TopicTest", "lags"): 4, ("gone", "ahead"): 7}
    (row,) = _receipt(tmp_path / "new")["offsets_beyond"]
    assert (row["group"], row["offset"], row["end"], row["is_set"]) == ("ahead", 9, 6, True)
    before = json.loads((store / "config/consumerOffset.json").read_text())
    assert before["offsetTable"]["TopicTest@ahead"] == {"0": 9}


def test_a_group_at_the_end_of_its_queue_skips_nothing(tmp_path: Path, run: Run) -> None:
    store = _store(tmp_path, {"TopicTest@level": {"0": 6}})
    status, out, _ = run(store, "-o", tmp_path / "new")
    assert status == ExitStatus.DONE
    assert "would not get" not in out
    assert _receipt(tmp_path / "new")["offsets_beyond"] == []


def test_queues_of_yesterday_make_no_group_skip(tmp_path: Path, run: Run) -> None:
    """The log has what the queues lack: before a start a rebuild is exact."""
    status, out, _ = run(outcome_store("s03"), "--dry-run")
    assert status == ExitStatus.DONE
    assert "would not get" not in out and "17 211 units" in out


def test_what_units_show_is_not_read_from_the_log(tmp_path: Path) -> None:
    store = open_store([str(oracle.store("broker", "main-5.3.3"))])
    assert positions_of(store)
    assert without_record(store, positions_of(store)) == []


def test_without_topics_json_the_topics_to_name_are_listed(tmp_path: Path, run: Run) -> None:
    store = _store(tmp_path, {"TopicTest@g": {"0": 4}}, topics=None)
    status, out, err = run(store, "-o", tmp_path / "new")
    assert status == ExitStatus.DAMAGE
    assert "names TopicTest (1 queue)" in " ".join(out.split())
    assert "contradict" not in out + err and "salvage" not in err
    assert (tmp_path / "new/consumequeue/TopicTest/0").is_dir()
    assert _receipt(tmp_path / "new")["unnamed_topics"] == {"TopicTest": 1}


def test_batches_need_topics_json_to_be_rebuilt(tmp_path: Path, run: Run) -> None:
    store = copy_of_case("topics-gone", tmp_path / "case")
    for name in ("topics.json", "topics.json.bak"):
        (store / "config" / name).unlink(missing_ok=True)
    status, _, err = run(store, "-o", tmp_path / "new")
    assert status == ExitStatus.DAMAGE
    assert "topics.json is gone" in err and "QuoteBcq" in err and "salvage" not in err
    assert [path.name for path in tmp_path.iterdir()] == ["case"]


def test_a_topic_that_was_deleted_is_not_asked_for(tmp_path: Path, run: Run) -> None:
    """No group has an offset in it; with one it was not deleted."""
    topics = {"topicConfigTable": {"Other": {"topicName": "Other"}}}
    store = _store(tmp_path, {}, topics=topics)
    assert run(store, "-o", tmp_path / "deleted")[0] == ExitStatus.DONE
    (store / "config/consumerOffset.json").write_text('{"offsetTable":{"TopicTest@g":{0:4}}}')
    assert run(store, "-o", tmp_path / "new")[0] == ExitStatus.DAMAGE


def test_a_dry_run_says_what_the_run_does_and_writes_nothing(tmp_path: Path, run: Run) -> None:
    store = oracle.copy("broker", "main-4.9.7", tmp_path)
    status, said, _ = run(store, "--dry-run")
    assert status == ExitStatus.DONE
    assert [path.name for path in tmp_path.iterdir()] == ["store"]
    assert run(store, "-o", tmp_path / "NEW")[0] == ExitStatus.DONE
    made = run(store, "-o", tmp_path / "again")[1]
    head = said.partition("\n\n")[0].splitlines()[2:]
    assert head and [line for line in head if line not in made and "brought" not in line] == []


def test_offsets_given_out_twice_are_the_reason_of_a_refusal(tmp_path: Path, run: Run) -> None:
    """As a broker does that started with the queue of yesterday."""
    pieces = [{"queue_offset": at, "body": b"%d" % at} for at in (0, 1, 2, 3, 4, 5, 3, 4, 5, 6)]
    store = WholeStore(pieces, configs={"topics.json": _TOPICS}).write(tmp_path / "store")
    status, _, err = run(store, "-o", tmp_path / "new")
    assert status == ExitStatus.DAMAGE
    assert "3 records of TopicTest queue 0 have queue offsets that earlier ones have" in err
    assert f"rmqinspect salvage {store}" in err


@pytest.mark.parametrize("words", [("--only", "index"), ("--only", "index", "--dry-run")])
def test_queues_that_are_brought_keep_their_ends(tmp_path: Path, run: Run, words: tuple[str, ...]) -> None:
    store = _store(tmp_path, {"TopicTest@ahead": {"0": 6}})
    assert run(store, "-o", tmp_path / "new", *words)[0] == ExitStatus.DONE
