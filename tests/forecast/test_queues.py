"""What a start does to consume queues, against the real brokers' queues after they loaded damaged stores."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rmqinspect.broker.eras import Rules, rules_of_start
from rmqinspect.commitlog.columns import SLACK
from rmqinspect.commitlog.records import Records
from rmqinspect.config.checkpoint import read_checkpoint
from rmqinspect.forecast.queues import Queues, QueueTable
from rmqinspect.forecast.settings import settings_of
from rmqinspect.schemas.message import RECORD_MAGICS
from rmqinspect.store.discover import open_store
from rmqinspect.store.model import Segment, Store
from tests.support import oracle

CASES = [
    "base-4.2.0-halt",
    "base-5.4.0-clean",
    "cq_mid_zero-5.4.0-h",
    "cq_shift-5.3.3-h",
    "cq_tail_zero_all-4.9.7-c",
    "cq_tail_zero_all-5.5.0-c",
    "torn_last-4.3.2-h-to-4.7.1",
    "torn_last-5.2.0-h",
    "zero_page_last-5.4.0-c",
]


@pytest.mark.parametrize("name", CASES)
def test_queues_are_those_of_the_broker(name: str) -> None:
    truth, case = oracle.truth("crash", name), oracle.case("crash", name)
    rules, store = rules_of_start(case["opened_by"]), open_store([str(oracle.store("crash", name))])
    loaded = truth["after_load"]
    queues = started(store, rules, loaded["max_phy"], clean=not truth["abort_before"])

    assert ends_of(queues) == ends_in(loaded)
    removed = {name for name in truth["files_after_load"]["removed"] if name.startswith("consumequeue/")}
    assert set(queues.deleted_files) == removed


def ends_of(queues: Queues) -> dict[tuple[str, int], tuple[int, int]]:
    return {(end.topic, end.queue_id): (end.min_after, end.max_after) for end in queues.outcomes()}


def ends_in(state: dict[str, Any]) -> dict[tuple[str, int], tuple[int, int]]:
    return {(end["topic"], end["queue_id"]): (end["min_offset"], end["max_offset"]) for end in state["queues"]}


# --- the walk, as far as the queues need it, for logs that end where the broker said --------------


def started(store: Store, rules: Rules, end: int, *, clean: bool) -> Queues:
    """Return the queues after the load of a store whose log was found to end at `end`."""
    queues = QueueTable.read(store, settings_of(store)[0]).recover(rules)
    before = queues.max_physic_offset
    batches = Batches()
    if not clean or rules.clean_dispatch == "behind_queues":
        for segment in store.segments[_first(store, rules, before, clean=clean) :]:
            queues.dispatch(batches.of(segment, end), before if clean else None)
    if rules.queue_cut_end == "after_dispatch":
        before = queues.max_physic_offset
    if before >= end if rules.queue_cut == "at_or_behind" else not clean:
        queues.truncate(end)
    queues.correct_minimum(store.log_start)
    return queues


class Batches:
    """Segments read record by record, by TOTALSIZE alone."""

    def __init__(self) -> None:
        self.queues: list[tuple[str, int]] = []
        self._numbers: dict[tuple[str, int], int] = {}

    def of(self, segment: Segment, end: int) -> Any:
        with open(segment.path, "rb") as file:
            raw = file.read() + bytes(SLACK)
        starts, at = [], 0
        while segment.base + at < end and int.from_bytes(raw[at + 4 : at + 8], "big", signed=True) in RECORD_MAGICS:
            starts.append(at)
            at += int.from_bytes(raw[at : at + 4], "big")
        records = Records.at(memoryview(raw), segment.base, np.array(starts, np.int64))
        topics = zip(records.topic_starts.tolist(), records.topic_ends.tolist(), strict=True)
        keys = [
            (raw[first:behind].decode(), queue_id)
            for (first, behind), queue_id in zip(topics, records.field("queue_id").tolist(), strict=True)
        ]
        numbers = [self._numbers.setdefault(key, len(self._numbers)) for key in keys]
        self.queues[:] = self._numbers
        return SimpleNamespace(records=records, numbers=np.array(numbers, np.int64), queues=self.queues)


def _first(store: Store, rules: Rules, queues_end: int, *, clean: bool) -> int:
    """Return the segment where the scan begins; the rules of a first record that these cases need."""
    checkpoint, segments = read_checkpoint(store), store.segments
    oldest = min(checkpoint.get("physic_msg_timestamp", 0), checkpoint.get("logics_msg_timestamp", 0)) - 3000
    for number in range(len(segments) - 1, -1, -1):
        head = Batches().of(segments[number], segments[number].base + 1).records
        if not len(head) or (clean and number == 0):
            continue
        time = int(head.field("store_timestamp")[0])
        if clean and segments[number].base <= queues_end:
            return number
        if not clean and time <= (
            checkpoint["logics_msg_timestamp"] if rules.record_times == "logics_offset" else oldest
        ):
            return number
    return 0
