"""What consumers see of a queue, compared with what real brokers served, refused and named for times."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest

from rmqinspect.broker.consumer_queue import ConsumerLog, ConsumerQueue, open_queue
from rmqinspect.broker.offset_by_time import LOWER, goes_by_change, offset_by_time
from rmqinspect.broker.pull import FOUND, Pull, Subscription, pull
from rmqinspect.commitlog.tail import find_log_end
from rmqinspect.rocksdb.unpack import unpacked
from rmqinspect.store.discover import open_store
from rmqinspect.store.model import Store
from tests.support import oracle
from tests.support.pull_answers import Answers, pull_answers
from tests.support.rocksdb import needs_rocksdict

IN_ROCKSDB = ("rocksdb-5.3.3", "rocksdb-5.4.0")
# Undamaged, killed before the last units were written, without the log's first segments, and with damage that a
# start leaves alone.
CRASHES = (
    "base-4.2.0-halt",
    "base-4.3.2-clean",
    "none-4.7.1-r",
    "abort_removed-4.9.7-b",
    "seg_missing_mid-4.9.7-c",
    "base-5.1.4-halt",
    "none-5.3.3-r",
    "base-5.5.0-clean",
)


@contextmanager
def opened(root: Path) -> Iterator[Store]:
    with unpacked(open_store([str(root)]), only=("consumequeue", "consumequeue_rocksdb")) as store:
        yield store


class Asked:
    """A store, asked as a broker of one release would be."""

    def __init__(self, store: Store, release: str, log_end: int | None = None) -> None:
        self.store, self.release = store, release
        self.log = ConsumerLog(store, log_end or find_log_end(store, []).end or 0)
        self._opened = ExitStack()
        self.queue = cache(self._open)

    def __enter__(self) -> "Asked":
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def _open(self, topic: str, queue_id: int) -> ConsumerQueue | None:
        queue = open_queue(self.store, topic, queue_id)
        return None if queue is None else self._opened.enter_context(queue)

    def ends(self, row: dict[str, Any]) -> tuple[int, int] | None:
        queue = self.queue(row["topic"], row["queue_id"])
        return None if queue is None else queue.ends(self.release)

    def pull(self, topic: str, queue_id: int, offset: int, count: int = 1, expression: str | None = None):  # type: ignore[no-untyped-def]
        asked = Pull(offset, count, Subscription.parse(expression))
        return pull(self.queue(topic, queue_id), self.log, asked, self.release)

    def time(self, topic: str, queue_id: int, moment: int, boundary: str = LOWER) -> int:
        return offset_by_time(self.queue(topic, queue_id), moment, boundary, self.release)


@pytest.mark.parametrize("name", [name for name in oracle.cases("broker") if name not in IN_ROCKSDB])
def test_brokers(name: str) -> None:
    compare_with_broker(name)


@needs_rocksdict
@pytest.mark.parametrize("name", IN_ROCKSDB)
def test_brokers_with_rocksdb(name: str) -> None:
    compare_with_broker(name)


def compare_with_broker(name: str) -> None:
    truth = oracle.truth("broker", name)
    with (
        opened(oracle.store("broker", name)) as store,
        Asked(store, truth["store"]["rocketmq_version"], truth["store"]["max_phy"]) as asked,
    ):
        for row in truth["queues"]:
            assert asked.ends(row) == (row["min"], row["max"]), row
        for row in truth["served"]:
            if row.get("from_compaction_log"):
                continue  # copies of the records, in files that are not read
            offset = row.get("requested_offset", row["queue_offset"])
            answer = asked.pull(row["topic"], row["queue_id"], offset)
            assert answer.status == row.get("status", FOUND), row
            place = row.get("cq_physical_offset", row.get("physical_offset"))
            assert [unit.physical_offset for unit in answer.units] == ([place] if answer.status == FOUND else []), row
        for row in truth["queries"]["offset_by_time"] if "queries" in truth else truth["offset_by_time"]:
            assert asked.time(row["topic"], row["queue_id"], row["timestamp"]) == row["offset"], row


@pytest.mark.parametrize("name", CRASHES)
def test_stores_after_a_start_that_changed_nothing(name: str) -> None:
    """Compare the queues whose units are the same before and after the start."""
    truth = oracle.truth("crash", name)
    compared = 0
    state = truth["after_dispatch"]
    messages = {(row["topic"], row["queue_id"]): row for row in truth["messages"]}
    with Asked(open_store([str(oracle.store("crash", name))]), truth["opened_by"], state["max_phy"]) as asked:
        assert state["min_phy"] == asked.store.log_start
        for row in state["queues"]:
            queue = asked.queue(row["topic"], row["queue_id"])
            if queue is None or units_of(queue, row) != units_after(truth, row):
                continue
            compared += 1
            assert asked.ends(row) == (row["min_offset"], row["max_offset"]), row
            expected = messages[row["topic"], row["queue_id"]]
            found, not_found = pull_everything(partial(asked.pull, row["topic"], row["queue_id"]), queue, row)
            assert found == [[place, size] for _, place, size, _ in expected["found"]]
            assert not_found == expected.get("not_found", [])
    assert compared


def units_of(queue: ConsumerQueue, row: dict[str, Any]) -> list[list[int]] | None:
    """Return [queue offset, physical offset, size] of the units in the files; None if the queue ends elsewhere."""
    found: list[list[int]] = []
    offset = row["min_offset"]
    if queue.summary.max_offset != row["max_offset"]:
        return None
    while offset < row["max_offset"]:
        units = list(queue.units_from(offset) or ())
        if not units:
            break
        found += [[unit.queue_offset, unit.physical_offset, unit.size] for unit in units]
        offset = units[-1].queue_offset + 1
    return found


def units_after(truth: dict[str, Any], row: dict[str, Any]) -> list[list[int]]:
    units = row["units"]
    if units == "same_as_after_load":
        same = (one for one in truth["after_load"]["queues"] if queue_key(one) == queue_key(row))
        units = next(same)["units"]
    return [unit[:3] for unit in units]


def queue_key(row: dict[str, Any]) -> tuple[str, int]:
    return row["topic"], row["queue_id"]


def pull_everything(ask: Any, queue: ConsumerQueue, row: dict[str, Any]) -> tuple[list[list[int]], list[list[Any]]]:
    """Pull one message at a time from the minimum on, as the lab did."""
    found, not_found, offset = [], [], row["min_offset"]
    while offset < queue.summary.max_offset:
        answer = ask(offset)
        if answer.status == FOUND:
            found += [[unit.physical_offset, unit.size] for unit in answer.units]
        else:
            not_found.append([offset, answer.status, answer.next_offset])
        offset = max(answer.next_offset, offset + 1)
    return found, not_found


@pytest.mark.parametrize(
    "answers", [one for one in pull_answers() if one.family and "rocksdb" not in one.case], ids=str
)
def test_questions_that_no_truth_has(answers: Answers, tmp_path: Path) -> None:
    compare_answers(answers, tmp_path)


@needs_rocksdict
@pytest.mark.parametrize("answers", [one for one in pull_answers() if "rocksdb" in one.case], ids=str)
def test_questions_to_rocksdb_that_no_truth_has(answers: Answers, tmp_path: Path) -> None:
    compare_answers(answers, tmp_path)


def compare_answers(answers: Answers, folder: Path) -> None:
    root = oracle.store(answers.family, answers.case)
    if answers.without is not None or goes_by_change(answers.version):
        root = changed_copy(answers, folder)
    with opened(root) as store, Asked(store, answers.version) as asked:
        for row in answers.pulls:
            got = asked.pull(*row[:5])
            ends = (got.units[0].physical_offset, got.units[-1].physical_offset) if got.units else (None, None)
            assert (got.status, got.next_offset, got.min_offset, got.max_offset, len(got.units), *ends) == row[5:], row
        for moment in answers.times:
            assert asked.time(*moment[:3], moment.boundary or LOWER) == moment.offset, moment


def changed_copy(answers: Answers, folder: Path) -> Path:
    """Return a copy as it was asked: a queue file less, and each changed half a second after a whole one."""
    root = oracle.copy(answers.family, answers.case, folder)
    if answers.without is not None:
        sorted((root / answers.without).iterdir())[1].unlink()
    for path in (root / "consumequeue").rglob("0*"):
        changed = path.stat().st_mtime_ns + 500_000_000
        os.utime(path, ns=(changed, changed))
    return root
