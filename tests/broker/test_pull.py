"""What a master answers to a pull: the rule alone, on queues that are described here."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from rmqinspect.broker.pull import (
    FOUND,
    MESSAGE_WAS_REMOVING,
    NO_MATCHED_MESSAGE,
    NO_MESSAGE_IN_QUEUE,
    OFFSET_FOUND_NULL,
    OFFSET_OVERFLOW_BADLY,
    OFFSET_OVERFLOW_ONE,
    OFFSET_TOO_SMALL,
    SYSTEM_ERROR,
    Answer,
    Limits,
    Pull,
    Subscription,
    Unit,
    pull,
)
from rmqinspect.codec.java import java_string_hash
from tests.support.pull_answers import Answers, pull_answers

ALL = Subscription.parse("*")
SEGMENT = 1000  # bytes


@dataclass
class DescribedQueue:
    """A queue of one file whose record n lies at n * size."""

    low: int
    high: int
    size: int = 100
    tags: dict[int, int | None] = field(default_factory=dict)  # by queue offset
    sizes: dict[int, int] = field(default_factory=dict)  # of single records, by queue offset
    default_tags: int = 0
    kind: str = "queue"
    messages: int = 1  # in each unit
    has_file: bool = True

    def ends(self, release: str) -> tuple[int, int]:
        """Return minimum and maximum."""
        del release
        return self.low, self.high

    def units_from(self, queue_offset: int) -> Iterator[Unit] | None:
        """Return the units from one on."""
        first = queue_offset - queue_offset % self.messages
        return (
            (
                Unit(
                    at,
                    self.messages,
                    at * self.size,
                    self.sizes.get(at, self.size),
                    self.tags.get(at, self.default_tags),
                )
                for at in range(first, self.high, self.messages)
            )
            if self.has_file
            else None
        )

    def _tags_of(self, queue_offset: int) -> int | None:
        return self.tags.get(queue_offset, self.default_tags)

    def behind_file(self, queue_offset: int) -> int:
        """Return where the next file begins."""
        return queue_offset + 20 - queue_offset % 20


@dataclass
class DescribedLog:
    """A log that begins and ends somewhere."""

    start: int = 0
    end: int = 1 << 40

    def is_readable(self, physical_offset: int, size: int) -> bool:
        """Whether it holds these bytes."""
        return size >= 0 and self.start <= physical_offset and physical_offset + size <= self.end

    def place_in_segment(self, physical_offset: int) -> int | None:
        """Return the distance from the begin of the segment."""
        return physical_offset % SEGMENT if physical_offset >= 0 else None

    def behind_segment(self, physical_offset: int) -> int:
        """Return where the next segment begins."""
        return physical_offset + SEGMENT - physical_offset % SEGMENT


def ask(queue: DescribedQueue | None, offset: int, release: str, *, count: int = 32, log: DescribedLog | None = None):  # type: ignore[no-untyped-def]
    answer = pull(queue, log or DescribedLog(), Pull(offset, count, ALL), release)
    return answer.status, answer.next_offset, len(answer.units)


@pytest.mark.parametrize("release", ["4.0.0", "4.9.3", "4.9.4", "5.0.0", "5.5.0"])
def test_offsets_outside_of_the_queue(release: str) -> None:
    queue = DescribedQueue(10, 20)
    assert ask(queue, 9, release) == (OFFSET_TOO_SMALL, 10, 0)
    assert ask(queue, -1, release) == (OFFSET_TOO_SMALL, 10, 0)
    assert ask(queue, 20, release) == (OFFSET_OVERFLOW_ONE, 20, 0)
    assert ask(queue, 21, release) == (OFFSET_OVERFLOW_BADLY, 20, 0)
    assert ask(DescribedQueue(0, 0), 7, release) == (NO_MESSAGE_IN_QUEUE, 0, 0)
    assert ask(None, 7, release) == (NO_MESSAGE_IN_QUEUE, 0, 0)
    assert ask(DescribedQueue(0, 50, has_file=False), 27, release) == (OFFSET_FOUND_NULL, 40, 0)


@pytest.mark.parametrize(("release", "next_offset"), [("4.2.0", 0), ("4.9.3", 0), ("4.9.4", 20), ("5.0.0", 20)])
def test_an_offset_far_behind_a_queue_that_begins_at_0(release: str, next_offset: int) -> None:
    assert ask(DescribedQueue(0, 20), 21, release) == (OFFSET_OVERFLOW_BADLY, next_offset, 0)


@pytest.mark.parametrize("answers", [one for one in pull_answers() if one.case == "long"], ids=str)
def test_how_far_is_scanned_equals_a_real_store(answers: Answers) -> None:
    """17,000 messages with the tag `common` in one file."""
    queue = DescribedQueue(0, 17_000, answers.size, default_tags=java_string_hash("common"))
    for row in answers.pulls:
        asked = Pull(row.offset, row.asked, Subscription.parse(row.expression))
        got = pull(queue, DescribedLog(), asked, answers.version)
        assert (got.status, got.next_offset, len(got.units)) == (row.status, row.next_offset, row.given), row


def test_units_behind_an_unreadable_record_are_passed_over_to_the_next_segment() -> None:
    queue, log = DescribedQueue(0, 30), DescribedLog(start=1000)
    answer = pull(queue, log, Pull(3, 2, ALL), "5.3.3")
    assert (answer.status, answer.next_offset, len(answer.passed)) == (FOUND, 12, 7)
    assert [unit.queue_offset for unit in answer.units] == [10, 11]
    assert ask(queue, 3, "5.3.3", log=DescribedLog(start=4000)) == (MESSAGE_WAS_REMOVING, 30, 0)
    assert ask(queue, 28, "5.3.3", log=DescribedLog(end=2850)) == (MESSAGE_WAS_REMOVING, 30, 0)


def test_4_x_passes_over_unreadable_units_although_it_has_enough() -> None:
    queue, log = DescribedQueue(0, 30), DescribedLog(end=950)
    assert ask(queue, 0, "4.9.7", count=9, log=log) == (FOUND, 9, 9)
    # The tenth is not readable, and the eleventh no longer fits: it lies in the next segment.
    assert ask(queue, 0, "4.9.7", count=20, log=log)[:2] == (FOUND, 30)


@pytest.mark.parametrize("size", [0, 63, -1])
def test_a_size_that_is_none_of_a_record_fails_the_whole_pull(size: int) -> None:
    queue = DescribedQueue(0, 30, sizes={4: size})
    answer = pull(queue, DescribedLog(), Pull(0, 32, ALL), "5.3.3")
    assert (answer.status, answer.next_offset, answer.units) == (SYSTEM_ERROR, 0, ())
    assert answer.failing is not None
    assert answer.failing.queue_offset == 4
    assert ask(queue, 0, "5.3.3", count=4) == (FOUND, 4, 4)  # a pull that ends before it


def test_of_several_messages_4_0_and_4_1_give_one_less() -> None:
    queue = DescribedQueue(0, 50)
    assert [ask(queue, 0, "4.1.0", count=count)[2] for count in (1, 2, 3, 32)] == [1, 1, 2, 31]
    assert [ask(queue, 0, "4.2.0", count=count)[2] for count in (1, 2, 3, 32)] == [1, 2, 3, 32]


def test_limits_of_a_broker() -> None:
    queue = DescribedQueue(0, 50)

    def given(count: int, limits: Limits) -> int:
        return len(pull(queue, DescribedLog(), Pull(0, count, ALL, limits), "5.5.0").units)

    assert given(64, Limits()) == 32
    assert given(64, Limits(messages=40)) == 40
    assert given(64, Limits(size=350)) == 3
    assert given(64, Limits(size=1)) == 1  # the first message is always given
    settings = {"maxTransferCountOnMessageInMemory": " 7 ", "maxTransferBytesOnMessageInMemory": "many"}
    assert Limits.from_settings(settings) == Limits(messages=7)
    for odd in ("9" * 5000, str(1 << 31), "\u00b2", "-1"):
        assert Limits.from_settings({"maxTransferCountOnMessageInMemory": odd}) == Limits()


def test_a_batch_is_given_whole_or_not() -> None:
    queue = DescribedQueue(0, 40, kind="batch_queue", messages=4)
    answer = pull(queue, DescribedLog(), Pull(6, 10, ALL), "5.3.3")
    assert [unit.queue_offset for unit in answer.units] == [4, 8]
    assert answer.next_offset == 12


@pytest.mark.parametrize(("release", "next_offset"), [("5.2.0", 5), ("5.4.0", 5), ("5.5.0", 30)])
def test_of_rocksdb_up_to_5_4_no_more_units_are_read_than_asked_for(release: str, next_offset: int) -> None:
    asked = Pull(0, 5, Subscription.parse("rare"))
    answer = pull(DescribedQueue(0, 30, kind="rocksdb"), DescribedLog(), asked, release)
    assert (answer.status, answer.next_offset, answer.filtered) == (NO_MATCHED_MESSAGE, next_offset, next_offset)


def test_subscriptions() -> None:
    for everything in (None, "", "*"):
        assert Subscription.parse(everything) == ALL
    assert Subscription.parse(" A ||B|| ||\tC").tags == {"A", "B", "C"}
    assert Subscription.parse("* || A").tags == {"*", "A"}  # a star counts alone only
    for nothing in ("||", " ", " || "):
        with pytest.raises(ValueError, match="names no tag"):
            Subscription.parse(nothing)


def test_a_broker_compares_hashes_and_a_client_tags() -> None:
    subscription = Subscription.parse("AaAa || other")
    assert java_string_hash("BBBB") == java_string_hash("AaAa")
    assert subscription.takes(java_string_hash("BBBB"))
    assert not subscription.keeps("BBBB")
    assert subscription.keeps("AaAa")
    assert not subscription.keeps(None)
    assert ALL.keeps(None)
    assert not subscription.takes(0)
    assert subscription.takes(java_string_hash("other") + (5 << 32))  # only the low 32 bits count
    assert subscription.takes(None)  # the address of an ext unit that is lost


def test_what_is_filtered_is_told() -> None:
    wanted = java_string_hash("A")
    queue = DescribedQueue(0, 6, tags={1: wanted, 4: wanted})
    answer = pull(queue, DescribedLog(), Pull(0, 32, Subscription.parse("A")), "4.9.7")
    assert answer == Answer(FOUND, 6, 0, 6, answer.units, filtered=4)
    assert [unit.queue_offset for unit in answer.units] == [1, 4]
