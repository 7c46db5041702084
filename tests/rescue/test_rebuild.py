"""What is written where the log asks for something that no undamaged sample has."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rmqinspect.codec.layout import dtype_of
from rmqinspect.errors import Refused
from rmqinspect.index.geometry import Geometry, read_index_files
from rmqinspect.rescue.rebuild import INDEX, QUEUES, Plan, Rebuilt, rebuild_derived
from rmqinspect.schemas.checkpoint import Checkpoint
from rmqinspect.schemas.consumequeue import EXT_ADDRESS_BASE, BatchUnit, ExtHead, QueueUnit
from rmqinspect.store.discover import open_store
from rmqinspect.topics import SCHEDULE_TOPIC
from tests.support.building import STORED
from tests.support.whole_stores import WholeStore

ROWS = 4  # units of a queue file
PLAN = Plan("5.3.3", queue_file=ROWS * 20, index=Geometry(5, 8), delays=(1000, 5000))
FILLER = (0, 0x7FFFFFFF, 0)
EMPTY = (0, 0, 0)


def log_of(folder: Path, pieces: Sequence[dict[str, Any]], base: int = 0) -> Path:
    """Write a log alone."""
    made = WholeStore(pieces, base=base, dispatched=0).write(folder / "whole")
    (folder / "new").mkdir()
    (made / "commitlog").rename(folder / "new/commitlog")
    return folder / "new"


def rebuilt(folder: Path, plan: Plan = PLAN, **more: Any) -> Rebuilt:
    return rebuild_derived(str(folder), plan, **more)


def units_of(folder: Path, topic: str = "TopicTest", queue_id: int = 0) -> dict[str, list[tuple[int, int, int]]]:
    """Return the units of each file of a queue, by its name without zeros in front."""
    files = sorted((folder / "consumequeue" / topic / str(queue_id)).iterdir())
    return {file.name.lstrip("0"): np.fromfile(file, dtype_of(QueueUnit)).tolist() for file in files}


def places(folder: Path, **queue: Any) -> list[int]:
    """Return where the units of a queue point, its files one behind the other."""
    return [unit[0] for units in units_of(folder, **queue).values() for unit in units if unit[1]]


def test_filler_stands_before_the_first_unit(tmp_path: Path) -> None:
    folder = log_of(tmp_path, [{"queue_offset": 6}, {"queue_offset": 7}, {"queue_offset": 8}], base=1024)
    result = rebuilt(folder)
    files = units_of(folder)
    assert list(files) == ["80", "160"]
    assert files["80"][:2] == [FILLER, FILLER] and files["160"][1:] == [EMPTY] * 3
    assert files["80"][2][0] == 1024
    assert (result.queues["TopicTest", 0].first, result.queues["TopicTest", 0].end) == (6, 9)


def test_a_hole_gets_copies_of_the_next_unit(tmp_path: Path) -> None:
    folder = log_of(tmp_path, [{"queue_offset": 0}, {"queue_offset": 3}, {"queue_offset": 4}])
    result = rebuilt(folder)
    first, *copies, last = places(folder)
    assert copies == [copies[0]] * 3 and first < copies[0] < last
    assert result.queues["TopicTest", 0].copies == 2
    assert result.notes == [
        "TopicTest queue 0: 2 queue offsets without a record: "
        "a neighbour's unit stands there, whose message comes again"
    ]


def test_lost_offsets_get_the_unit_of_the_next_record_else_of_the_one_before(tmp_path: Path) -> None:
    folder = log_of(tmp_path, [{"queue_offset": 2}, {"queue_offset": 5}])
    lost = {("TopicTest", 0): np.array([1, 3, 4, 6, 7]), ("gone", 0): np.array([0])}
    result = rebuilt(folder, lost=lost)
    files = units_of(folder)
    assert list(files) == ["", "80"] and files[""][0] == FILLER
    units = [unit for file in files.values() for unit in file]
    one, two = units[2], units[5]
    assert units == [FILLER, one, one, two, two, two, two, two]
    assert result.queues.keys() == {("TopicTest", 0)}


def test_a_hole_that_no_log_has_is_refused(tmp_path: Path) -> None:
    folder = log_of(tmp_path, [{"queue_offset": 0}, {"queue_offset": 1 << 40}])
    with pytest.raises(Refused, match="no log that a broker wrote has such a hole"):
        rebuilt(folder)


@pytest.mark.parametrize("offset", [-1, 2**63 - 1])
def test_an_offset_that_no_queue_has_is_refused(tmp_path: Path, offset: int) -> None:
    folder = log_of(tmp_path, [{"queue_offset": offset}])
    with pytest.raises(Refused, match="no queue can have"):
        rebuilt(folder)


def test_the_second_record_at_an_offset_gets_no_unit(tmp_path: Path) -> None:
    folder = log_of(tmp_path, [{"queue_offset": at} for at in (0, 1, 1, 2)])
    result = rebuilt(folder)
    assert len(places(folder)) == 3 and result.queues["TopicTest", 0].left_out == 1
    assert "1 record with a queue offset that an earlier one has" in result.notes[0]


def test_a_topic_that_was_made_again_begins_at_0(tmp_path: Path) -> None:
    folder = log_of(tmp_path, [{"queue_offset": at} for at in (0, 1, 2, 3, 4, 0, 1)])
    result = rebuilt(folder)
    files = units_of(folder)
    assert list(files) == [""] and files[""][2:] == [EMPTY, EMPTY]
    assert result.queues["TopicTest", 0].restarts == 1


def test_prepared_and_rolled_back_records_get_no_units(tmp_path: Path) -> None:
    flags = (0x0, 0x4, 0x8, 0xC)
    folder = log_of(tmp_path, [{"sys_flag": flag, "properties": {"KEYS": "a"}} for flag in flags])
    rebuilt(folder)
    assert len(places(folder)) == 2
    (index,) = read_index_files(open_store([str(folder)]))
    assert index.entries == 3  # but for the rolled back one


def test_delayed_messages_have_their_time_as_tags_code(tmp_path: Path) -> None:
    levels = ("1", "2", "9", "0", "x")
    pieces = [{"topic": SCHEDULE_TOPIC, "properties": {"DELAY": level, "TAGS": "a"}} for level in levels]
    folder = log_of(tmp_path, pieces)
    rebuilt(folder)
    tags = [unit[2] for units in units_of(folder, SCHEDULE_TOPIC).values() for unit in units if unit[1]]
    assert tags == [STORED + 1000, STORED + 1 + 5000, STORED + 2 + 5000, ord("a"), ord("a")]


def test_an_index_file_that_is_full_has_a_successor_that_begins_with_its_end(tmp_path: Path) -> None:
    keys = [{"KEYS": "a b c d"}, {"KEYS": "e f g"}, {}, {"KEYS": "h"}]
    folder = log_of(
        tmp_path, [{"properties": one, "store_timestamp": STORED + 5000 * at} for at, one in enumerate(keys)]
    )
    result = rebuilt(folder)
    first, second = read_index_files(open_store([str(folder)]))
    assert first.header is not None and second.header is not None
    assert (first.entries, second.entries, result.entries) == (7, 1, 8)
    raw = Path(second.file.path).read_bytes()
    assert second.header.begin_timestamp == STORED + 15_000
    assert int.from_bytes(raw[40 + 5 * 4 + 20 + 12 :][:4], "big") == 10  # seconds behind the end of the full one
    # Not that of the full file: an unclean start would delete the newer one.
    assert result.checkpoint["index_msg_timestamp"] == STORED + 15_000


def test_a_full_file_gets_a_successor_for_a_record_without_keys(tmp_path: Path) -> None:
    folder = log_of(tmp_path, [{"properties": {"KEYS": "a b c d e f g"}}, {}])
    rebuilt(folder)
    first, second = read_index_files(open_store([str(folder)]))
    assert first.header is not None and second.header is not None
    assert second.entries == 0 and second.header.begin_timestamp == first.header.end_timestamp


@pytest.mark.parametrize(("release", "used"), [("4.7.0", 3), ("4.7.1", 1)])
def test_up_to_4_7_0_the_index_counts_entries_as_slots(tmp_path: Path, release: str, used: int) -> None:
    folder = log_of(tmp_path, [{"properties": {"KEYS": "a a a"}}])
    rebuilt(folder, Plan(release, index=Geometry(5, 8)))
    (index,) = read_index_files(open_store([str(folder)]))
    assert index.header is not None and index.header.hash_slot_count == used


@pytest.mark.parametrize(("release", "entries"), [("5.3.3", 1), ("5.4.0", 2)])
def test_tags_are_keys_from_5_4_0_on(tmp_path: Path, release: str, entries: int) -> None:
    folder = log_of(tmp_path, [{"properties": {"KEYS": "a", "TAGS": "t"}}])
    assert rebuilt(folder, Plan(release, index=Geometry(5, 8))).entries == entries


def test_light_queues_get_units(tmp_path: Path) -> None:
    light = {"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b,../c", "INNER_MULTI_QUEUE_OFFSET": "5,0,0"}
    folder = log_of(tmp_path, [{"queue_id": 3, "properties": light}])
    rebuilt(folder)
    assert places(folder, topic="%LMQ%a")[-1] == places(folder, topic="%LMQ%b")[0] == 0
    assert {path.name for path in (folder / "consumequeue").iterdir()} == {"%LMQ%a", "%LMQ%b", "TopicTest"}
    assert not (folder / "c").exists()


def test_a_topic_that_is_no_folder_gets_no_units(tmp_path: Path) -> None:
    folder = log_of(tmp_path, [{"topic": "../../out"}, {"topic": ".."}, {"topic": "a\0b"}, {"topic": "good"}])
    result = rebuilt(folder)
    assert [path.name for path in (folder / "consumequeue").iterdir()] == ["good"]
    assert len(result.notes) == 3 and not (tmp_path / "out").exists()


def test_batches_are_found_by_the_offsets_they_hold(tmp_path: Path) -> None:
    batch = {"sys_flag": 0xC0, "properties": {"INNER_NUM": "3", "INNER_BASE": "0"}, "queue_offset": 0}
    folder = log_of(tmp_path, [batch, {"queue_offset": 3}])
    result = rebuilt(folder, Plan("5.3.3", batch_file=92, batch_topics=frozenset(["TopicTest"])))
    (file,) = (folder / "batchconsumequeue/TopicTest/0").iterdir()
    one, two = np.fromfile(file, dtype_of(BatchUnit)).tolist()
    assert one[4:] == (0, 3, -1, 0) and two[4:] == (3, 1, -1, 0) and one[3] == STORED
    assert (result.queues["TopicTest", 0].end, (folder / "consumequeue").exists()) == (4, False)


def test_ext_units_roll_over_to_the_next_file(tmp_path: Path) -> None:
    folder = log_of(tmp_path, [{"properties": {"TAGS": "a"}}] * 3)
    rebuilt(folder, Plan("5.3.3", queue_file=80, ext_file=50))
    tags = [unit[2] - EXT_ADDRESS_BASE for unit in units_of(folder)[""] if unit[1]]
    assert tags == [0, 20, 50]
    first, second = sorted((folder / "consumequeue_ext/TopicTest/0").iterdir())
    assert (first.name.lstrip("0"), second.name.lstrip("0")) == ("", "50")
    raw = first.read_bytes()
    assert np.frombuffer(raw, dtype_of(ExtHead), 2).tolist() == [
        (20, ord("a"), STORED, 0),
        (20, ord("a"), STORED + 1, 0),
    ]
    assert raw[40:] == b"\xff\xff" + bytes(8)


@pytest.mark.parametrize(
    ("release", "fields"), [("4.9.7", (0, 0)), ("5.1.1", (1, 0)), ("5.4.0", (1, 0)), ("5.5.0", (1, 1))]
)
def test_the_checkpoint_has_the_fields_of_the_release(tmp_path: Path, release: str, fields: tuple[int, int]) -> None:
    folder = log_of(tmp_path, [{}, {}])
    rebuilt(folder, Plan(release, what=frozenset([QUEUES])))
    last = places(folder)[-1]
    raw = (folder / "checkpoint").read_bytes()
    found = Checkpoint.parse(raw)
    assert len(raw) == 4096
    assert found.physic_msg_timestamp == found.logics_msg_timestamp == STORED + 1
    assert (found.confirm_phy_offset, found.logics_physical_offset) == tuple(last * field for field in fields)


def test_only_what_is_asked_for_is_written(tmp_path: Path) -> None:
    folder = log_of(tmp_path, [{"properties": {"KEYS": "a"}}])
    rebuilt(folder, Plan("5.3.3", what=frozenset([INDEX])))
    assert {path.name for path in folder.iterdir()} == {"commitlog", "index", "checkpoint"}


def test_a_queue_file_has_the_time_of_its_newest_unit(tmp_path: Path) -> None:
    folder = log_of(tmp_path, [{}] * 6)
    rebuilt(folder)
    times = [path.stat().st_mtime_ns for path in sorted((folder / "consumequeue/TopicTest/0").iterdir())]
    assert times == [(STORED + 3) * 1_000_000, (STORED + 5) * 1_000_000]


def test_what_is_there_is_not_written_over(tmp_path: Path) -> None:
    folder = log_of(tmp_path, [{}])
    (folder / "index").mkdir()
    with pytest.raises(Refused, match="exists already"):
        rebuilt(folder)


@pytest.mark.parametrize("jobs", [1, 3])
def test_threads_change_nothing(tmp_path: Path, jobs: int) -> None:
    pieces = [{"queue_id": at % 3, "properties": {"KEYS": f"k{at}", "TAGS": "t"}} for at in range(60)]
    folder = log_of(tmp_path, pieces)
    rebuilt(folder, jobs=jobs)
    whole = WholeStore(pieces, queue_rows=ROWS).write(tmp_path / "expected")
    for path in (whole / "consumequeue").rglob("*"):
        if path.is_file():
            assert (folder / path.relative_to(whole)).read_bytes() == path.read_bytes()
