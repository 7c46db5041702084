"""New stores where broker.conf has parts of the store in other folders: all are below the root of the new one."""

from pathlib import Path

import pytest

from rmqinspect.rescue.job import RebuildJob, RebuildRequest
from rmqinspect.rescue.new_store import NewStore
from rmqinspect.store.discover import open_store
from tests.rescue.test_salvage import salvage
from tests.support import command
from tests.support.outcome_stores import outcome_conf, outcome_store

NOTE = "all of the new store is below its root: take storePathCommitLog out of broker.conf"

run = command.runner("rebuild")


def test_a_log_in_two_folders_is_salvaged_into_one(tmp_path: Path) -> None:
    made, records = salvage(tmp_path / "new", outcome_store("multipath"), config=str(outcome_conf("multipath")))
    assert made.holds
    assert made.is_complete
    assert len(records) == 750
    assert any(note.startswith(NOTE) for note in made.receipt.notes)


def test_a_log_in_two_folders_is_rebuilt_into_one(tmp_path: Path) -> None:
    conf, source, target = str(outcome_conf("multipath")), outcome_store("multipath"), tmp_path / "new"
    request = RebuildRequest(str(target), "4.9.7", config=conf)
    with NewStore(str(target), [str(source)]) as new:
        store = open_store([str(source)], config=conf)
        made = RebuildJob(store, request, new, lambda size: None, lambda note: None).go()
    assert made.is_complete
    assert made.receipt.notes[0].startswith(NOTE)


@pytest.mark.parametrize("options", [[], ["--dry-run"]])
def test_queues_that_contradict_themselves_are_not_rebuilt(
    options: list[str], tmp_path: Path, run: command.Run
) -> None:
    """A dry run ends as the run does: of batches in RocksDB the offsets between them have no unit of their own."""
    conf = str(outcome_conf("files-to-rocksdb"))
    status, _, told = run(outcome_store("files-to-rocksdb"), "-o", tmp_path / "new", "--config", conf, *options)
    assert status == 3
    assert ("would not be made" in told) is bool(options)
    assert not (tmp_path / "new").exists()
