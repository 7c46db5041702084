"""Where queues begin and end: the answers of real brokers, and the same from every command."""

import random
import struct
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from rmqinspect.broker.eras import rules_of_start, searches_minimum
from rmqinspect.broker.pull import Pull, Subscription
from rmqinspect.consumequeue.bounds import queue_end, queue_ends, queue_files_of, survey_queues
from rmqinspect.consumequeue.units import read_units
from rmqinspect.diff.queues import compare_queues
from rmqinspect.find.pull_answers import asked_queue
from rmqinspect.forecast.queues import QueueEnds
from rmqinspect.forecast.settings import settings_of
from rmqinspect.schemas.consumequeue import PRE_BLANK_SIZE
from rmqinspect.show.overview import overview
from rmqinspect.store.discover import open_store
from rmqinspect.store.model import QueueFile
from rmqinspect.store.reader import FileReader, open_file
from rmqinspect.tables.group_positions import ends_of
from rmqinspect.tables.pointers import QUEUE_UNITS, QUEUES
from rmqinspect.tables.request import Request
from rmqinspect.verify.result import VerifyOptions
from rmqinspect.verify.run import verify
from tests.broker.damages import queues_of, set_units
from tests.support import oracle
from tests.support.pull_answers import answer_to
from tests.support.sampling import sampled
from tests.support.side_tables import CUT, FILE_QUEUES, UNDAMAGED, broker, crash, rows, units_of, write

Ends = dict[tuple[str, int], tuple[int, int]]


# --- real brokers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FILE_QUEUES)
def test_a_broker_names_the_same_ends(name: str) -> None:
    store, truth = broker(name), oracle.truth("broker", name)
    expected = {(row["topic"], row["queue_id"]): (row["min"], row["max"]) for row in truth["queues"]}
    for found in (queue_ends, survey_queues):
        ends = {
            (one.topic, one.queue_id): (one.min_offset, one.max_offset) for one in found(store, searches_minimum(store))
        }
        assert ends and ends == {name: expected[name] for name in ends}


def test_where_all_records_are_gone_the_minimum_is_0_up_to_4_9_8() -> None:
    ends = {
        one.topic: one for one in queue_ends(broker("retention-4.9.7"), searches_minimum(broker("retention-4.9.7")))
    }
    gone = [one for one in ends.values() if one.first_kept == one.max_offset]
    assert [(one.min_offset, one.max_offset) for one in gone if one.max_offset == 20] == [(0, 20)]


def test_a_store_names_the_same_ends_after_load_where_that_leaves_the_queue_alone() -> None:
    """A load cuts queues and adds to them: then their maximum is another, and nothing is to be compared."""
    compared: Counter[bool] = Counter()
    for name in oracle.cases("crash"):
        truth = oracle.truth("crash", name)
        if not truth["load_ok"]:
            continue
        store = crash(name)
        searches = rules_of_start(truth["opened_by"]).minimum == "search"
        loaded = {(row["topic"], row["queue_id"]): row for row in truth["after_load"]["queues"]}
        for files in queue_files_of(store):
            row = loaded[files[0].topic, files[0].queue_id]
            ends = queue_end(files, store.log_start, lambda searches=searches: searches)  # type: ignore[misc]
            compared[ends.max_offset == row["max_offset"]] += 1
            if ends.max_offset == row["max_offset"]:
                assert ends.min_offset == row["min_offset"], (name, files[0].name)
            else:
                assert (
                    name not in UNDAMAGED or name in CUT or oracle.case("crash", name)["base_variant"] not in "cLr"
                ), name
    assert compared == {True: 1736, False: 542}


# --- the rules ----------------------------------------------------------------------------------------


def minima(root: Path, places: list[int], log_start: int, *, first: int = 0) -> tuple[int, int]:
    """Return the minimum of a queue as 4.x and as 5.x find it; its file begins at the offset `first`."""
    raw = units_of(*((place, PRE_BLANK_SIZE if place == 0 else 100, 0) for place in places))
    write(root, f"consumequeue/T/0/{first * 20:020}", raw.ljust(20 * 20, b"\0"))
    write(root, f"commitlog/{log_start:020}", bytes(100))
    store = open_store([str(root)])
    scanned, searched = (next(iter(queue_ends(store, lambda rule=rule: rule))) for rule in (False, True))  # type: ignore[misc]
    assert scanned.max_offset == searched.max_offset == first + len(places)
    return scanned.min_offset, searched.min_offset


@pytest.mark.parametrize(
    ("first", "places", "log_start", "expected"),
    [
        (20, [0, 0, 500, 700, 900], 600, (23, 23)),
        (20, [0, 0, 500, 700, 900], 0, (20, 21)),  # with the log's first segment, filler counts as a message
        (20, [0, 0, 500], 600, (0, 23)),  # all are gone
        (0, [500, 100, 700], 400, (0, 0)),  # the first unit is enough
        (0, [100, 700, 200, 300, 800], 600, (1, 4)),  # 5.x meets the damaged unit only by chance
        (0, [], 0, (0, 0)),
        (20, [], 0, (0, 0)),
    ],
)
def test_the_minimum_by_release(
    first: int, places: list[int], log_start: int, expected: tuple[int, int], tmp_path: Path
) -> None:
    """Source: ConsumeQueue#correctMinOffset, 4.9.7 and 5.3.3, followed by hand."""
    assert minima(tmp_path, places, log_start, first=first) == expected


@pytest.mark.parametrize(("hole", "expected"), [(None, 100), (15, 100), (75, 75), (82, 82)])
def test_the_maximum_is_where_reading_of_the_last_three_files_stops(
    hole: int | None, expected: int, tmp_path: Path
) -> None:
    """Source: ConsumeQueue#recover."""
    units = [(100 * number + 1, 100, 0) if number != hole else (0, 0, 0) for number in range(100)]
    for start in range(0, 100, 20):
        write(tmp_path, f"consumequeue/T/0/{start * 20:020}", units_of(*units[start : start + 20]))
    write(tmp_path, f"commitlog/{0:020}", bytes(100))
    [queue] = queue_ends(open_store([str(tmp_path)]), lambda: True)
    assert (queue.max_offset, queue.units) == (expected, 100 if hole is None else 99)


# --- one answer ---------------------------------------------------------------------------------------

_BASES = (
    "base-4.2.0-clean",
    "none-4.7.1-r",
    "base-4.9.7-clean",
    "base-5.1.4-clean",
    "none-5.3.3-r",
    "base-5.4.0-clean",
)
_HOWS = ("zero", "garbage", "blank", "no_size", "most_size", "negative_offset", "far_offset", "first_offset")


@pytest.mark.parametrize("seed", sampled(range(96), 5))
def test_all_commands_name_the_same_ends_of_a_damaged_store(seed: int, tmp_path: Path) -> None:
    chance = random.Random(f"ends {seed}")
    root = oracle.copy("crash", _BASES[seed % len(_BASES)], tmp_path)
    for queue in range(len(queues_of(root))):
        if chance.random() < 0.5:
            place = chance.choice((0, -1)), chance.randrange(20), chance.choice((1, 1, 3))
            set_units(root, queue, *place, chance.choice(_HOWS))
    store = open_store([str(root)])
    table = rows(QUEUES, store)
    expected: Ends = {(row["topic"], row["queue_id"]): (row["min_offset"], row["max_offset"]) for row in table}

    assert {name: (one.min_offset, one.max_offset) for name, one in ends_of(store, Request()).items()} == expected
    before = QueueEnds.read(store, settings_of(store)[0]).before
    assert {name[1:]: (one.min_offset, one.max_offset) for name, one in before.items()} == expected
    for diff in compare_queues((store, store)):
        assert diff.is_same
        for one in diff.ends:
            assert one is not None
            assert (one.min_offset, one.max_offset) == expected[diff.topic, diff.queue_id]
    for name, ends in expected.items():
        with asked_queue(store, *name, None) as asked:
            answer = answer_to(asked.pull(Pull(0, 1, Subscription.parse("*")))[-1])
            assert (answer.min_offset, answer.max_offset) == ends
    facts, units = overview(store).queues, sum(row["units"] for row in table)
    assert facts.units == units == verify(store, VerifyOptions()).units
    assert facts.deepest is not None
    assert (facts.deepest.min_offset, facts.deepest.max_offset) == expected[facts.deepest.topic, facts.deepest.queue_id]


def test_a_unit_of_the_size_of_filler_is_a_damaged_unit_of_a_message(tmp_path: Path) -> None:
    """Filler has the place 0 and no tags, too. Source: ConsumeQueue#fillPreBlank."""
    root = oracle.copy("crash", "base-5.3.3-clean", tmp_path)
    whole = crash("base-5.3.3-clean")
    set_units(root, 0, 0, 5, 1, "most_size")
    store = open_store([str(root)])
    assert [diff.differing for diff in compare_queues((whole, store)) if not diff.is_same] == [1]
    assert overview(store).queues.units == overview(whole).queues.units == verify(store, VerifyOptions()).units
    assert Counter(row["kind"] for row in rows(QUEUE_UNITS, store)) == {"message": overview(whole).queues.units}


# --- how much is read ---------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [0, 3, 700_000])
def test_of_a_sparse_file_its_extents_are_read_and_all_units_are_seen(tmp_path: Path, at: int) -> None:
    """Units at the start, and others that begin at row `at`, in a file that is preallocated to 20 MB."""
    path = tmp_path / "consumequeue" / "t" / "0" / f"{0:020d}"
    path.parent.mkdir(parents=True)
    unit = struct.pack(">qiq", 100, 100, 7)
    with path.open("wb") as file:
        file.truncate(20_000_000)
        for row in (0, at):
            file.seek(row * len(unit))
            file.write(unit * 5_000)
    before = FileReader.bytes_read
    with open_file(QueueFile(str(path), path.name, 20_000_000, "queue", "t", 0, 0)) as reader:
        found = [row + number for row, units in read_units(reader, "queue") for number in np.flatnonzero(units["size"])]
        assert found == sorted({*range(5_000), *range(at, at + 5_000)})
        assert FileReader.bytes_read - before <= reader.allocated + 4 * len(unit)
