"""Look-ups by a plan find what a scan of the whole log finds, in every store that real brokers wrote.

Half of the stores are damaged: their index files, queues and segments lead astray, or nowhere.
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rmqinspect.find import plan, ways
from rmqinspect.find.plan import plan_look_up, planned_rows
from rmqinspect.store.discover import open_store
from rmqinspect.store.model import Store
from rmqinspect.tables.filters import Selection
from rmqinspect.tables.log import message_rows
from rmqinspect.tables.messages import SCHEMA as MESSAGES
from rmqinspect.tables.table import Request
from tests.support import oracle

COLUMNS = frozenset(
    {
        "physical_offset",
        "topic",
        "queue_id",
        "queue_offset",
        "msg_id",
        "offset_msg_id",
        "keys",
        "store_timestamp",
        "transaction",
        "status",
    }
)
RECORDS = 4  # of each store that could be asked for
QUESTIONS = 2  # asked of each store
TOPICS = 2  # of each store that are asked for

Rows = list[tuple[int, str]]
Gaps = set[tuple[int, int]]


class Scanned:
    """A store, read once as a whole."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.gaps: list[tuple[str, int, int]] = []
        request = Request(columns=COLUMNS, on_gap=self._take)
        self.batches = list(message_rows(store, request))
        self.rows: list[dict[str, Any]] = [
            row for batch in self.batches for row in batch.select(sorted(COLUMNS)).to_pylist()
        ]

    def _take(self, kind: str, start: int, end: int) -> None:
        self.gaps.append((kind, start, end))

    def questions(self, chance: random.Random) -> Iterator[Selection]:
        """Yield look-ups of every kind for some records, and for what is not there."""
        for row in chance.sample(self.rows, min(RECORDS, len(self.rows))):
            yield Selection(ids=(row["offset_msg_id"],))
            if row["msg_id"]:
                yield Selection(ids=(row["msg_id"],))
            yield from (Selection(keys=(key,)) for key in row["keys"][:1])
            yield from (Selection(keys=(key,), topics=(row["topic"],)) for key in row["keys"][-1:])
            yield from self._in_queue(row["topic"], row["queue_id"], row["queue_offset"])
            if row["store_timestamp"] is not None:
                since = int(row["store_timestamp"].timestamp() * 1_000_000)
                yield Selection(since=since, until=since + 100_000)
        for _, start, end in self.gaps[:RECORDS]:
            if self.store.segments:
                yield Selection(ids=(f"7F00000100002A9F{(start + end) // 2:016X}",))
        if self.rows:
            yield Selection(keys=("no such key",))

    def _in_queue(self, topic: str, queue_id: int, offset: int) -> Iterator[Selection]:
        if topic and not any(sign in topic for sign in "*?[") and queue_id >= 0 and 0 <= offset < 2**40:
            for beyond in (offset + 1, offset + 5):
                yield Selection(topics=(topic,), queue_id=queue_id, queue_offsets=(offset, beyond), in_queues=True)

    def in_queues(self, rows: Rows) -> Rows:
        """Return the rows that belong in a queue. A bare message store, unlike a broker, keeps others in any topic."""
        outside = {row["physical_offset"] for row in self.rows if row["transaction"] in ("prepared", "rollback")}
        return [row for row in rows if row[0] not in outside]

    def topics(self, chance: random.Random) -> Iterator[Selection]:
        """Yield a few questions for topics, for one queue of one, and for a time."""
        records = sorted({(row["topic"], row["queue_id"]) for row in self.rows if row["topic"]})
        for topic, queue_id in chance.sample(records, min(TOPICS, len(records))):
            if not any(sign in topic for sign in "*?["):
                times = [
                    row["store_timestamp"] for row in self.rows if row["topic"] == topic and row["store_timestamp"]
                ]
                since = int(chance.choice(times).timestamp() * 1_000_000) if times else None
                yield chance.choice(
                    [
                        Selection(topics=(topic,)),
                        Selection(topics=(topic,), queue_id=queue_id),
                        Selection(topics=(topic,), since=since),
                    ]
                )


def clip(gaps: list[tuple[str, int, int]], spans: tuple[tuple[int, int], ...]) -> Gaps:
    """Return the bytes of lost records in some spans."""
    return {
        (max(start, first), min(end, last))
        for _, start, end in gaps
        for first, last in spans
        if max(start, first) < min(end, last)
    }


def ask(scanned: Scanned, selection: Selection) -> tuple[tuple[Rows, Gaps], tuple[Rows, Gaps]]:
    """Return (rows and gaps by the plan, rows and gaps by the scan)."""
    look_up = plan_look_up(scanned.store, selection)
    assert look_up is not None
    gaps: list[tuple[str, int, int]] = []
    request = Request(columns=COLUMNS, on_gap=lambda kind, start, end: gaps.append((kind, start, end)))
    planned = _select(selection, list(planned_rows(scanned.store, look_up.to_read, request)))
    return (planned, clip(gaps, look_up.spans)), (
        _select(selection, scanned.batches),
        clip(scanned.gaps, look_up.spans),
    )


def _select(selection: Selection, batches: list[pa.RecordBatch]) -> Rows:
    found = (selection.select_rows(batch) for batch in batches)
    return [(row["physical_offset"], row["status"]) for rows in found for row in rows.to_pylist()]


@contextmanager
def reading_by_units() -> Iterator[None]:
    """Have small logs of message stores read by units too, and no two records as one."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("SMALL_LOG", 0), ("SHARE", 1), ("NEAR", 0), ("may_lack_units", lambda *_: False)):
            patch.setattr(ways, name, value)
        patch.setattr(plan, "NEAR", 0)
        yield


@pytest.mark.parametrize("family", ["crash", "broker"])
def test_a_plan_finds_what_a_scan_finds(family: oracle.Family, all_cases: bool) -> None:
    chance = random.Random(20)
    different = []
    by_units = 0
    for name in oracle.cases(family)[:: 1 if all_cases else 4]:
        scanned = Scanned(open_store([str(oracle.store(family, name))]))
        questions = list(scanned.questions(chance))
        for selection in chance.sample(questions, min(QUESTIONS, len(questions))):
            planned, expected = ask(scanned, selection)
            if planned != expected:
                different.append((name, selection, planned, expected))
        with reading_by_units():
            for selection in scanned.topics(chance):
                look_up = plan_look_up(scanned.store, selection)
                if look_up is not None and "by the units of" in look_up.way:
                    by_units += 1
                    planned, expected = ask(scanned, selection)
                    if (scanned.in_queues(planned[0]), planned[1]) != (scanned.in_queues(expected[0]), expected[1]):
                        different.append((name, selection, planned, expected))
    assert different == []
    assert by_units > (20 if all_cases else 5)


LIGHT = [
    (name, row)
    for name in ("lmq-4.9.7", "lmq-5.3.3")
    for row in oracle.truth("broker", name)["served"]
    if row["topic"].startswith("%LMQ%")
]


def test_every_unit_of_a_light_queue_leads_to_the_record_that_the_broker_serves(all_cases: bool) -> None:
    """The record's head names another topic and queue; its properties name the light queue."""
    for name, row in LIGHT[:: 1 if all_cases else 5]:
        store = open_store([str(oracle.store("broker", name))])
        offset = row["queue_offset"]
        queue = Selection(topics=(row["topic"],), queue_id=0, queue_offsets=(offset, offset + 1))
        keyed = Selection(topics=(row["topic"],), ids=(row["msg_id"],))
        for selection in (queue, keyed, Selection(topics=(row["topic"],)), Selection(topics=("%LMQ%*",), queue_id=0)):
            plan = plan_look_up(store, selection)
            request = Request(columns=COLUMNS | selection.columns(MESSAGES), records_of=(selection,))
            batches = message_rows(store, request) if plan is None else planned_rows(store, plan.to_read, request)
            found = [
                place for batch in batches for place in selection.select_rows(batch)["physical_offset"].to_pylist()
            ]
            assert row["physical_offset"] in found
            assert selection is not queue or found == [row["physical_offset"]]
            assert not selection.unmatched_topics()
    assert len(LIGHT) == 69 + 72


def test_a_light_queue_has_no_message_at_another_offset() -> None:
    store = open_store([str(oracle.store("broker", "lmq-5.3.3"))])
    for chosen in ({"queue_id": 1}, {"queue_offsets": (1000, 1001)}):
        selection = Selection(topics=("%LMQ%fleet-1",), **chosen)
        request = Request(columns=COLUMNS | selection.columns(MESSAGES))
        assert not any(selection.select_rows(batch).num_rows for batch in message_rows(store, request))


def test_an_entry_that_leads_before_the_logs_start_is_an_entry(tmp_path: Path) -> None:
    root = oracle.copy("broker", "main-5.3.3", tmp_path)
    store = open_store([str(root)])
    rows = [row for row in Scanned(store).rows if row["physical_offset"] < store.segments[0].end and row["msg_id"]]
    (root / store.segments[0].name).unlink()
    plan = plan_look_up(open_store([str(root)]), Selection(ids=(rows[-1]["msg_id"],)))
    assert plan is not None
    assert plan.way == "by a scan, for the index leads before the log's start"
    assert plan.told.startswith("5 index files, 1 candidate;")
