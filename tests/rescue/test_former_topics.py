"""Logs without queue files in which queues begin at 0 again: a topic that was made again, or a wrong QUEUEOFFSET.

A life is written as the queue ids of its records, in the order of the log: "0101 00" is a topic of two queues, deleted
behind four records, and made again.
"""

import json
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rmqinspect.store.discover import open_store
from tests.rescue.test_lost_ends import without_queues
from tests.rescue.test_salvage import salvage, sound_records
from tests.support.truths import records_of
from tests.support.whole_stores import WholeStore

TOPIC = "orders"


def messages(lives: str) -> list[dict[str, Any]]:
    """Return the records of a log: in each life the offsets of each queue begin at 0."""
    found: list[dict[str, Any]] = []
    for life in lives.split():
        given: dict[str, int] = {}
        for queue in life:
            offset = given[queue] = given.get(queue, -1) + 1
            properties = {"UNIQ_KEY": f"{len(found):032X}"}
            piece = {"topic": TOPIC, "queue_id": int(queue), "queue_offset": offset, "properties": properties}
            found.append(piece)
    return found


def queues_of(root: Path) -> dict[int, int]:
    """Return how many messages consumers get of each queue of the topic."""
    found: dict[int, int] = {}
    for file in open_store([str(root)]).queue_files:
        if file.topic == TOPIC:
            raw = Path(file.path).read_bytes()
            units = {raw[at : at + 20] for at in range(0, len(raw), 20)} - {bytes(20)}
            found[file.queue_id] = found.get(file.queue_id, 0) + len(units)
    return found


class Case(NamedTuple):
    lives: str
    served: dict[int, int]  # messages by queue
    aside: int = 0  # records
    wrong: int | None = None  # the record whose QUEUEOFFSET became 0
    group: int | None = None  # goes on at this offset of queue 0
    last: int | None = None  # QUEUEOFFSET of the last record, else the next one of its life


CASES = {
    "made again": Case("0101 0101", {0: 2, 1: 2}),
    "made again, more queues": Case("00 0101", {0: 2, 1: 2}),
    "made again, two queues have had no message since": Case("0101230 00", {0: 2}),
    "made again, the first queue gets one message": Case("0101 011", {0: 1, 1: 2}),
    "made again twice": Case("010123 001 00", {0: 2, 1: 1}),
    "made again, one queue": Case("0000 0", {0: 1}),
    "made again, and a group has begun": Case("0000 0", {0: 1}, group=1),
    "one message, a group has come further": Case("0000 0", {0: 4}, aside=1, group=4),
    "one message, another queue is still there": Case("0101 0", {0: 2, 1: 2}, aside=1),
    "one queue alone, another goes on": Case("0101010 001", {0: 4, 1: 4}, aside=2, last=3),
    "a wrong offset at the end": Case("01010101", {0: 3, 1: 4}, aside=1, wrong=6),
}


@pytest.mark.parametrize("name", CASES)
def test_what_begins_at_0_again(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    pieces = messages(case.lives)
    if case.last is not None:
        pieces[-1]["queue_offset"] = case.last
    if case.wrong is not None:
        pieces[case.wrong]["queue_offset"] = 0
    store = WholeStore(pieces, segment_size=16384, queue_rows=128).write(tmp_path / "store")
    shutil.rmtree(store / "consumequeue")
    (store / "config").mkdir(exist_ok=True)
    offsets = {} if case.group is None else {f"{TOPIC}@g": {"0": case.group}}
    (store / "config/consumerOffset.json").write_text(json.dumps({"offsetTable": offsets}))
    made, records = salvage(tmp_path / "new", store)
    assert made.holds
    assert queues_of(tmp_path / "new") == case.served
    assert len(made.receipt.aside) == case.aside
    assert len(records) == len(pieces) - case.aside
    assert made.is_complete is not case.aside


def test_a_zeroed_offset_of_a_broker_takes_no_other_message(tmp_path: Path) -> None:
    """The last record of one queue of four, as a 5.5.0 wrote them."""
    store, _ = without_queues(tmp_path, 0, first=False)
    messages_of = [one for record in records_of(store) for one, _ in record.messages]
    last = max(one.physical_offset for one in messages_of if (one.topic, one.queue_id) == ("TopicA", 0))
    segment = open_store([str(store)]).segment_at(last)
    assert segment is not None
    raw = bytearray(Path(segment.path).read_bytes())
    raw[last - segment.base + 20 : last - segment.base + 28] = bytes(8)
    Path(segment.path).write_bytes(raw)
    before = sound_records(open_store([str(store)]))
    made, records = salvage(tmp_path / "new", store)
    assert made.holds
    assert [one.start for one in made.receipt.aside] == [last]
    assert records == {place: raw for place, raw in before.items() if place != last}
