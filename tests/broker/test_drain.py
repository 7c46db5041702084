"""A whole queue as a consumer drains it, without a broker: `test_outcomes` asks a real one."""

import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from rmqinspect.broker.consumer_queue import ConsumerLog, ConsumerQueue, open_queue
from rmqinspect.broker.drain import Trouble, Wrong, alike, drain
from rmqinspect.broker.pull import Limits
from rmqinspect.commitlog.tail import find_log_end
from rmqinspect.store.discover import open_store
from rmqinspect.store.model import Store
from tests.support.consumer_judge import Place, doubtful_units, sound_places, troubles_of
from tests.support.outcome_stores import copy_of_case, outcome_store

CASE = "s01"  # 5.3.3, a page of zeros in the middle of the log
QUEUES = [("orders", 0), ("orders", 2), ("orders", 3), ("shipments", 0), ("shipments", 1)]


@contextmanager
def asked(root: Path, topic: str, queue_id: int) -> Iterator[tuple[Store, ConsumerQueue]]:
    store = open_store([str(root)])
    queue = open_queue(store, topic, queue_id)
    assert queue is not None
    with queue:
        yield store, queue


@cache
def sound_of_case() -> Collection[Place]:
    return sound_places(open_store([str(outcome_store(CASE))]))


def log_of(store: Store) -> ConsumerLog:
    return ConsumerLog(store, find_log_end(store, []).end or 0)


def drained(root: Path, topic: str, queue_id: int, release: str = "5.3.3", **more: int) -> list[Trouble]:
    sound = sound_of_case() if root == outcome_store(CASE) else sound_places(open_store([str(root)]))
    with asked(root, topic, queue_id) as (store, queue):
        return troubles_of(store, queue, release, doubtful_units(queue, release, sound), **more)


def test_all_that_a_page_of_zeros_takes_along() -> None:
    """As a real 5.3.3 client: 44 sound ones, 21 orders and 23 shipments."""
    jumped = {
        queue: [one for trouble in drained(outcome_store(CASE), *queue) for one in trouble.jumped] for queue in QUEUES
    }
    assert {queue: (len(one), *one[:1]) for queue, one in jumped.items() if one} == {
        ("orders", 2): (12, 952),
        ("orders", 3): (9, 987),
        ("shipments", 0): (11, 481),
        ("shipments", 1): (12, 480),
    }


@pytest.mark.parametrize(
    ("count", "begin", "expected"),
    [
        (5, 949, Trouble(949, 954, (Wrong(951, "no topic", ""),), (952, 953))),
        (32, 932, Trouble(932, 964, (Wrong(951, "no topic", ""),), tuple(range(952, 964)))),
        (1, 0, Trouble(951, 952, (Wrong(951, "no topic", ""),), ())),
    ],
)
def test_how_much_depends_on_where_pulls_begin(count: int, begin: int, expected: Trouble) -> None:
    assert drained(outcome_store(CASE), "orders", 2, count=count, begin=begin) == [expected]


def test_a_client_of_4_9_makes_messages_of_zeros() -> None:
    (trouble,) = drained(outcome_store(CASE), "shipments", 1, "4.9.7")
    assert [wrong.kind for wrong in trouble.wrong] == ["no topic"] * 4
    assert trouble.jumped == tuple(range(480, 492))


def test_a_record_with_a_wrong_body_takes_nothing_along() -> None:
    assert drained(outcome_store(CASE), "orders", 0) == [Trouble(996, 1028, (Wrong(1014, "damaged", "orders"),), ())]


def test_pulls_end_where_the_size_of_a_pull_ends() -> None:
    with asked(outcome_store(CASE), "orders", 2) as (store, queue):
        log, doubtful = log_of(store), np.array([951])
        (one,) = drain(queue, log, "5.3.3", doubtful, limits=Limits(size=4096))
        # Pull after pull, each of 4 KiB at most, as a broker answers them.
        (same,) = drain(queue, log, "5.3.3", doubtful, limits=Limits(size=4096), begin=one.offset)
    assert one == same
    assert one.offset <= 951 < one.next_offset
    assert one.next_offset - one.offset < 32


def test_without_a_doubtful_unit_nothing_is_read() -> None:
    with asked(outcome_store(CASE), "orders", 2) as (store, queue):
        assert not list(drain(queue, log_of(store), "5.3.3", np.array([], np.int64)))
        assert not list(drain(queue, log_of(store), "5.3.3", np.array([951]), begin=952))
        assert not list(drain(queue, log_of(store), "5.3.3", np.array([951]), end=951))


# --- neighbours ---------------------------------------------------------------------------------------


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return copy_of_case("read-queues", tmp_path / "case")


def place_of(root: Path, queue_offset: int) -> tuple[Path, int, int]:
    """Return the segment, the place in it and the size of a record of FleetEvents 0."""
    with asked(root, "FleetEvents", 0) as (store, queue):
        unit = next(queue.units_from(queue_offset) or iter(()))
        segment = store.segment_at(unit.physical_offset)
        assert segment is not None
        return root / "commitlog" / Path(segment.path).name, unit.physical_offset - segment.base, unit.size


def overwrite(path: Path, at: int, raw: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(raw)


def test_a_magic_code_that_is_none(copy: Path) -> None:
    path, at, _ = place_of(copy, 5)
    overwrite(path, at + 4, b"\0\0\0\0")
    (older,) = drained(copy, "FleetEvents", 0, "4.9.7")
    (newer,) = drained(copy, "FleetEvents", 0, "5.3.3")
    assert (older.wrong, older.jumped) == ((Wrong(5, "damaged", "FleetEvents"),), ())
    assert newer.wrong == ()
    assert newer.jumped[:2] == (6, 7)


def test_a_body_length_that_is_too_large_takes_the_next_record_along(copy: Path) -> None:
    path, at, size = place_of(copy, 5)
    raw = path.read_bytes()
    length = int.from_bytes(raw[at + 84 : at + 88], "big")
    overwrite(path, at + 84, (length + size).to_bytes(4, "big"))
    (trouble,) = drained(copy, "FleetEvents", 0)
    assert 6 in trouble.jumped
    assert trouble.offset == 0


def test_a_segment_that_is_missing_takes_nothing_sound_along(copy: Path) -> None:
    shutil.move(place_of(copy, 0)[0], copy / "away")
    assert all(not trouble.jumped for trouble in drained(copy, "FleetEvents", 0))


def test_a_size_beyond_the_segment_takes_the_rest_of_the_segment_along(copy: Path) -> None:
    """The broker passes over all units that point into it."""
    overwrite(copy / "consumequeue" / "FleetEvents" / "0" / ("0" * 20), 20 * 3 + 8, (1 << 20).to_bytes(4, "big"))
    with asked(copy, "FleetEvents", 0) as (store, queue):
        (trouble,) = drain(queue, log_of(store), "5.3.3", np.array([3]))
    assert trouble.jumped[:2] == (4, 5)


@pytest.mark.parametrize(("size", "at"), [(63, 0), ((1 << 31) - 1, 3)])
def test_a_size_that_is_none_of_a_record_holds_the_group_for_ever(size: int, at: int, copy: Path) -> None:
    """A pull of what lies before is answered if the size alone would fill it."""
    raw = size.to_bytes(4, "big", signed=True)
    overwrite(copy / "consumequeue" / "FleetEvents" / "0" / ("0" * 20), 20 * 3 + 8, raw)
    with asked(copy, "FleetEvents", 0) as (store, queue):
        (trouble,) = drain(queue, log_of(store), "5.3.3", np.array([3]))
    assert trouble == Trouble(at, at, (), (), stuck=True)


def test_releases_that_drain_alike() -> None:
    runs = {run[0]: run[-1] for run in alike()}
    assert {"5.0.0", "5.1.0", "4.9.4"} <= runs.keys()
    assert runs["4.9.4"] == "4.9.8"
