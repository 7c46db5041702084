"""Units that no file of a queue has: what depends on them is incomplete, and says which; beside it what lacks nothing.

Queue 0 of TopicA has 62 units, in files of 400 bytes: 20 units each. `healthy-4.9.7` has no consumer offsets: each test
that needs some writes them.
"""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqinspect.consumequeue.missing import missing_units
from rmqinspect.store.discover import open_store
from rmqinspect.tables.request import Request
from rmqinspect.tables.splits import split_rows, split_table
from tests.support.command import Run, runner
from tests.support.samples import sample

_FIRST, _SECOND, _THIRD, _LAST = (f"{400 * number:020}" for number in range(4))

Change = Callable[[Path], None]


def _cut(name: str, size: int) -> Change:
    return lambda queue: os.truncate(queue / name, size)


def _delete(*names: str) -> Change:
    def delete(queue: Path) -> None:
        for name in names:
            (queue / name).unlink()

    return delete


def _copy(name: str, to: str) -> Change:
    def copy(queue: Path) -> None:
        shutil.copy(queue / name, queue / to)

    return copy


def _empty(name: str) -> Change:
    def empty(queue: Path) -> None:
        (queue / name).write_bytes(b"")

    return empty


# What is done to the files of the queue, and the units that are missing then.
LACKING: dict[str, tuple[Change, tuple[int, int]]] = {
    "one deleted": (_delete(_SECOND), (20, 40)),
    "two deleted": (_delete(_SECOND, _THIRD), (20, 60)),
    "one cut at a unit's border": (_cut(_SECOND, 100), (25, 40)),
    "one cut within a unit": (_cut(_SECOND, 110), (25, 40)),
    "one emptied": (_cut(_SECOND, 0), (20, 40)),
    "the last one cut": (_cut(_LAST, 20), (61, 80)),
}
WHOLE: dict[str, Change] = {
    "untouched": lambda _: None,
    "cleaned by retention": _delete(_FIRST, _SECOND),
    "the last one cut in its zeros": _cut(_LAST, 200),
    "one more that has just been made": _empty(f"{1600:020}"),
    "a stray name": _copy(_FIRST, f"{12_345:020}"),
    "two names of one place": _copy(_SECOND, "400"),
}

run = runner()


def _made(change: Change, folder: Path) -> Path:
    store = folder / "store"
    shutil.copytree(sample("healthy-4.9.7"), store)
    change(store / "consumequeue" / "TopicA" / "0")
    return store


def _offsets(store: Path, offset: int) -> Path:
    """Let a group be at an offset of the queue."""
    (store / "config").mkdir()
    offsets = {"offsetTable": {"TopicA@readers": {"0": offset}, "orders@readers": {"0": 3}}}
    (store / "config" / "consumerOffset.json").write_text(json.dumps(offsets))
    return store


@pytest.mark.parametrize("kind", WHOLE)
def test_a_queue_that_lacks_nothing(kind: str, tmp_path: Path) -> None:
    assert missing_units(open_store([str(_made(WHOLE[kind], tmp_path))])) == []


@pytest.mark.parametrize("kind", LACKING)
def test_the_tables_of_queues_are_incomplete(kind: str, tmp_path: Path, run: Run) -> None:
    change, (first, behind) = LACKING[kind]
    store = _made(change, tmp_path)
    told: list[tuple[str, int, str]] = []
    found = open_store([str(store)])
    request = Request(on_missing=lambda *one: told.append(one))
    rows = [row for split in split_table("queue_units", found, 1000) for row in split_rows(split, request)]
    assert rows and [one[:2] for one in told] == [("TopicA", 0)]
    words = f"TopicA queue 0: units {first} to {behind} are missing"
    assert words in told[0][2]

    for table in ("queue_units", "queues"):
        status, out, err = run("decode", store, "--table", table, "-f", "json")
        assert (status, json.loads(out)["complete"]) == (3, False)
        assert words in err and "incomplete" in err
    # Another queue lacks nothing.
    status, out, _ = run("decode", store, "--table", "queue_units", "-t", "orders", "-f", "json")
    assert (status, json.loads(out)["complete"]) == (0, True)


def test_loose_files_lack_no_neighbours(tmp_path: Path) -> None:
    queue = _made(_delete(_SECOND), tmp_path) / "consumequeue" / "TopicA" / "0"
    assert missing_units(open_store([str(queue / _FIRST), str(queue / _LAST)])) == []


def test_an_export_of_queues_is_incomplete(tmp_path: Path, run: Run) -> None:
    store = _made(_delete(_SECOND), tmp_path)
    for table in ("queue_units", "queues"):
        status, _, _ = run("export", store, "--engine", "local", "--table", table, "-o", tmp_path / table)
        manifest = json.loads((tmp_path / table / "_manifest.json").read_text())
        (entry,) = manifest["stores"]
        assert (status, manifest["complete"]) == (4, False)
        assert "units 20 to 40 are missing" in entry["unread"][0]


@pytest.mark.parametrize(("offset", "status"), [(0, 3), (39, 3), (40, 0), (62, 0)])
def test_groups_that_have_still_to_get_missing_units(offset: int, status: int, tmp_path: Path, run: Run) -> None:
    store = _offsets(_made(_delete(_SECOND), tmp_path), offset)
    for words in (("groups",), ("groups", "-f", "json"), ("decode", "--table", "groups", "-f", "json")):
        found, out, err = run(*words, store)
        assert found == status, words
        assert ("units 20 to 40 are missing" in err) == (status == 3), words
        if len(words) > 1:
            assert json.loads(out)["complete"] == (status == 0)


@pytest.mark.parametrize(("offset", "status"), [(0, 3), (62, 0)])
def test_groups_whose_messages_lie_where_the_log_has_no_file(
    offset: int, status: int, tmp_path: Path, run: Run
) -> None:
    store = _offsets(_made(lambda _: None, tmp_path), offset)
    (store / "commitlog" / f"{131_072:020}").unlink()
    for words in (("groups", "-t", "TopicA"), ("groups", "-t", "TopicA", "-f", "json")):
        found, _, err = run(*words, store)
        assert found == status, words
        assert ("131 072 to 196 608 (0x20000 to 0x30000)" in err) == (status == 3), words


def test_delay_levels_whose_units_are_missing(tmp_path: Path, run: Run) -> None:
    store = _made(lambda _: None, tmp_path)
    levels = store / "consumequeue" / "SCHEDULE_TOPIC_XXXX" / "16"
    os.truncate(levels / _FIRST, 20)
    status, _, err = run("delays", store)
    assert status == 3 and "SCHEDULE_TOPIC_XXXX queue 16: units 1 to 20 are missing" in err
