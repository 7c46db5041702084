"""Which offset is named for a time: the rule alone, on queues that are described here."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from rmqinspect.broker.offset_by_time import (
    BOUNDARIES,
    LOWER,
    UPPER,
    TimedFile,
    goes_by_change,
    knows_boundary,
    offset_by_time,
)


@dataclass
class DescribedQueue:
    """A queue whose record n lies at n * 100 and has a time."""

    times: list[int]
    first: int = 0
    rows: int = 100  # in a file
    changed: list[int] = field(default_factory=list)  # by file
    kind: str = "queue"
    log_start: int = 0

    def ends(self, release: str) -> tuple[int, int]:
        """Return minimum and maximum."""
        del release
        end = self.first + len(self.times)
        return self.first, self.offset_of(end) if self.kind == "batch_queue" else end

    def timed_files(self) -> list[TimedFile]:
        """Return the files."""
        end = self.first + len(self.times)
        begins = range(self.first, end, self.rows)
        changed: Sequence[int | None] = self.changed or [None] * len(begins)
        return [TimedFile(begin, min(begin + self.rows, end), at) for begin, at in zip(begins, changed, strict=True)]

    def place(self, row: int) -> int | None:
        """Return a physical offset."""
        return row * 100 if self.first <= row < self.first + len(self.times) else None

    def time(self, row: int) -> int:
        """Return a time."""
        return self.times[row - self.first] if self.place(row) is not None else -1

    def offset_of(self, row: int) -> int:
        """Return a queue offset: each unit has three messages."""
        return row * 3


TIMES = [10, 20, 20, 30]


@pytest.mark.parametrize(
    ("moment", "lower", "upper"), [(5, 0, 0), (10, 0, 0), (15, 1, 0), (20, 1, 2), (25, 3, 2), (30, 3, 3), (31, 4, 3)]
)
@pytest.mark.parametrize(("kind", "release"), [("queue", "5.1.4"), ("queue", "5.5.0"), ("rocksdb", "5.3.3")])
def test_boundaries(kind: str, release: str, moment: int, lower: int, upper: int) -> None:
    queue = DescribedQueue(TIMES, kind=kind)
    assert [offset_by_time(queue, moment, boundary, release) for boundary in BOUNDARIES] == [lower, upper]


@pytest.mark.parametrize(("kind", "release"), [("queue", "4.9.7"), ("queue", "5.1.0"), ("rocksdb", "5.2.0")])
@pytest.mark.parametrize(("moment", "nearest"), [(5, 0), (14, 0), (15, 0), (16, 1), (25, 2), (26, 3), (99, 3)])
def test_the_nearest_message(kind: str, release: str, moment: int, nearest: int) -> None:
    for boundary in BOUNDARIES:
        assert offset_by_time(DescribedQueue(TIMES, kind=kind), moment, boundary, release) == nearest


def test_files_are_chosen_by_their_last_change_up_to_5_1_0() -> None:
    queue = DescribedQueue(list(range(0, 60, 10)), rows=2, changed=[15, 35, 55])
    assert offset_by_time(queue, 35, LOWER, "4.9.7") == 3
    copied = DescribedQueue(queue.times, rows=2, changed=[9999, 9999, 9999])
    assert offset_by_time(copied, 35, LOWER, "4.9.7") == 1
    assert offset_by_time(copied, 35, LOWER, "5.1.1") == 4
    unknown = DescribedQueue(queue.times, rows=2)
    assert offset_by_time(unknown, 0, LOWER, "4.9.7") == 4


def test_the_result_lies_within_the_queue_from_5_0_0_on() -> None:
    # Nothing of the chosen file is left in the log: one byte before the file is before the queue.
    queue = DescribedQueue([10, 20], first=7, log_start=1 << 40)
    assert offset_by_time(queue, 15, LOWER, "4.9.7") == 6
    assert offset_by_time(queue, 15, LOWER, "5.0.0") == 7
    assert offset_by_time(DescribedQueue(TIMES, first=7), 5, UPPER, "5.3.3") == 7
    assert offset_by_time(DescribedQueue(TIMES, first=7, kind="rocksdb"), 5, UPPER, "5.3.3") == 0


def test_a_record_that_cannot_be_read_leads_to_the_beginning() -> None:
    queue = DescribedQueue([10, 20, -1, 30, 40, 50])
    assert offset_by_time(queue, 30, LOWER, "4.9.7") == 0
    assert offset_by_time(queue, 30, LOWER, "5.3.3") == 0


def test_batches_go_by_the_times_of_their_units() -> None:
    queue = DescribedQueue(TIMES, kind="batch_queue", rows=2)
    found = [offset_by_time(queue, moment, LOWER, "5.3.3") for moment in (5, 10, 15, 20, 25, 30, 40)]
    assert found == [0, 0, 3, 6, 9, 9, 9]


def test_no_queue_and_an_empty_one() -> None:
    for release in ("4.2.0", "5.1.0", "5.5.0"):
        assert offset_by_time(None, 5, LOWER, release) == 0
        for kind in ("queue", "rocksdb"):
            assert offset_by_time(DescribedQueue([], kind=kind), 5, LOWER, release) == 0


def test_what_a_release_knows() -> None:
    assert [knows_boundary(release) for release in ("4.9.8", "5.1.3", "5.1.4", "5.5.0")] == [False, False, True, True]
    assert [goes_by_change(release) for release in ("4.9.8", "5.1.0", "5.1.1", "5.5.0")] == [True, True, False, False]
