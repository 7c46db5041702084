"""What other files prove behind the end of a log. The answers are those of the harnesses that made the stores."""

import shutil
import struct
from pathlib import Path

import pytest

from rmqinspect import open_store
from rmqinspect.broker.acknowledged import Acknowledged, acknowledged_behind, acknowledged_words
from rmqinspect.commitlog.tail import find_log_end
from rmqinspect.config.json_files import ConsumerOffset
from rmqinspect.consumequeue.bounds import queue_ends
from tests.support import oracle
from tests.support.outcome_stores import copy_of_case, outcome_store

_DAY = 24 * 3_600_000  # ms


def _told(root: Path, offsets: tuple[ConsumerOffset, ...] = ()) -> Acknowledged | None:
    store = open_store(str(root))
    queues = list(queue_ends(store, lambda: True))
    places = [queue.last_physical_offset for queue in queues if queue.last_physical_offset is not None]
    return acknowledged_behind(store, find_log_end(store, places), queues, offsets)


def _set_time(root: Path, lead: int, case: str) -> None:
    """Let physicMsgTimestamp of the checkpoint lead the newest record by so many ms, the others be 0."""
    newest = find_log_end(open_store(str(outcome_store(case))), []).last_timestamp
    assert newest is not None
    (root / "checkpoint").write_bytes(struct.pack(">qqq", newest + lead, 0, 0).ljust(4096, b"\0"))


def test_checkpoint_tells_the_time_that_a_full_disk_has_cost() -> None:
    found = _told(outcome_store("s08"))
    assert found is not None
    assert (found.messages, found.span, found.proofs) == (1, 12_351, ("the checkpoint",))
    assert acknowledged_words(found).startswith("acknowledged messages of the 12.4 s behind its last record, how many")


def test_units_behind_the_end_are_counted() -> None:
    """The queues of the store were whole when its two newest segments were deleted."""
    found = _told(outcome_store("s02"))
    assert found is not None
    assert (found.messages, found.by_topic["orders"], found.by_topic["shipments"]) == (1533, 580, 121)
    assert (found.span, found.may_be_copy) == (12_489, False)


@pytest.mark.parametrize("name", ["s01", "s03", "s10", "topics-gone", "tiered", "lmq-on"])
def test_whole_ends_prove_nothing(name: str) -> None:
    assert _told(outcome_store(name)) is None


@pytest.mark.parametrize("name", ["base-4.7.1-halt", "base-5.5.0-clean", "cp_future-4.7.1-c"])
def test_a_checkpoint_of_another_time_proves_nothing(name: str) -> None:
    assert _told(oracle.store("crash", name)) is None


@pytest.mark.parametrize(("lead", "proves"), [(900, False), (1100, True), (_DAY, True), (_DAY + 1, False)])
def test_a_time_alone_proves_up_to_a_day(tmp_path: Path, lead: int, proves: bool) -> None:
    root = copy_of_case("s08", tmp_path / "case")
    shutil.rmtree(root / "index")
    _set_time(root, lead, "s08")
    assert (_told(root) is not None) is proves


def test_offsets_count_only_beside_units_behind_the_end() -> None:
    """A group ahead of a queue that ends within the log has its offset of a former life, or of a lost queue."""
    ahead = ConsumerOffset("billing", "orders", 0, 1 << 20)
    assert _told(outcome_store("s03"), (ahead,)) is None
    plain, more = _told(outcome_store("s02")), _told(outcome_store("s02"), (ahead,))
    assert plain is not None
    assert more is not None
    assert more.messages > plain.messages
    assert more.proofs == ("1 533 queue units", plain.proofs[1], "offsets of 1 topic")
