"""Lives of messages as the clients and the broker of a lab store saw them, to compare traced lives with."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from rmqinspect.broker.copies import Stored, copy_of, links_of
from rmqinspect.codec.message_id import offset_place
from rmqinspect.find.life import Life
from rmqinspect.find.life_records import Step
from tests.support import oracle

Row = Mapping[str, Any]


def step(
    place: int,
    topic: str = "orders",
    properties: Mapping[str, str] | None = None,
    *,
    body: int = 1,
    time: int = 0,
    sys_flag: int = 0,
    half: int = 0,
) -> Step:
    """Return a record of 100 bytes; `half` is its PREPAREDTRANSACTIONOFFSET."""
    stored = Stored(topic, 0, sys_flag, half, {"UNIQ_KEY": "U", **(properties or {})})
    return Step(
        physical_offset=place,
        size=100,
        topic=topic,
        queue_id=0,
        queue_offset=place // 100,
        store_timestamp=time or place,
        born_timestamp=0,
        msg_id="U",
        offset_msg_id="",
        keys=(),
        sys_flag=sys_flag,
        reconsume_times=0,
        status="ok",
        properties=dict(stored.properties),
        copy=copy_of(stored),
        links=links_of(stored),
        body=(8, body),
    )


class Seen:
    """What was recorded of the messages of one broker store. Places are physical offsets."""

    def __init__(self, name: str) -> None:
        self.truth = oracle.truth("broker", name)
        self.by_place: dict[int, list[Row]] = defaultdict(list)
        self.copies: dict[tuple[str, str], set[int]] = defaultdict(set)  # by UNIQ_KEY and body
        for row in self.truth["served"]:
            if "physical_offset" in row and not row.get("from_compaction_log"):
                self.by_place[row["physical_offset"]].append(row)
                if row.get("msg_id") and "inner" not in row:
                    self.copies[row["msg_id"], row["body_sha256"]].add(row["physical_offset"])
        self.log = {row["physical_offset"] for row in self.truth["log"] if not row.get("blank")}
        self.received: list[tuple[str, Row]] = [
            (group, row) for group, rows in self.truth["received"].items() for row in rows
        ]
        self.popped: list[Row] = self.truth["pop"] or []

    def sent(self) -> Iterator[tuple[int, Row]]:
        """Yield (place, row) of each message sent, as far as the store still has it."""
        halves = {
            (row["queue_offset"], row["msg_id"]): row["physical_offset"]
            for row in self.truth["served"]
            if row["topic"].endswith("TRANS_HALF_TOPIC") and "physical_offset" in row
        }
        for row in self.truth["sent"]:
            place = offset_place(row.get("offset_msg_id") or "")
            if row["kind"] == "transaction":
                place = halves.get((row["queue_offset"], row["msg_id"]))
            if place is not None and place in self.log:
                yield place, row

    def differences(self, place: int, row: Row, life: Life) -> Iterator[str]:
        """Yield what a life, traced from the record of a sent message, does not have as it was seen."""
        yield from self._copies(place, life)
        if row["kind"] != "compaction":  # served from another log
            yield from self._queues(place, life)
        if row["kind"] in ("delay", "timer", "timer-cancel"):
            delivered = [step for step in life.steps if step.copy.kind == "delivered"]
            if len(delivered) != row["observed_copies_in_topic"]:
                yield f"delivered {len(delivered)} times, seen {row['observed_copies_in_topic']}"
        if row["kind"] == "timer" and bool(row.get("cancel_worked")) and life.cancelled_by is None:
            yield "not cancelled"
        if row["kind"] == "transaction":
            yield from self._transaction(row, life)
        yield from self._groups(life)

    def _copies(self, place: int, life: Life) -> Iterator[str]:
        own = self.by_place[place][0] if place in self.by_place else {}  # of a deleted topic
        expected = self.copies.get((own.get("msg_id", ""), own.get("body_sha256", "")), {place})
        found = {step.physical_offset for step in life.steps if step.copy.kind != "timer_cancel"} | {place}
        if not life.others and found != expected:
            yield f"copies {sorted(found)}, seen {sorted(expected)}"
        if life.others and not found <= expected:
            yield f"copies {sorted(found)}, seen {sorted(expected)} of several messages"

    def _queues(self, place: int, life: Life) -> Iterator[str]:
        seen = {(row["topic"], row["queue_id"], row["queue_offset"]) for row in self.by_place[place]}
        found = {(unit.topic, unit.queue_id, unit.queue_offset) for unit in life.units if unit.state == "present"}
        inner = any("inner" in row for row in self.by_place[place])
        if not (found <= seen if inner else found == seen):
            yield f"units {sorted(found)}, served {sorted(seen)}"

    def _transaction(self, row: Row, life: Life) -> Iterator[str]:
        (seen,) = (one for one in self.truth["transactions"] if one["msg_id"] == row["msg_id"])
        state = life.transaction.state if life.transaction else None
        if state != seen["expected_state"]:
            yield f"transaction {state}, expected {seen['expected_state']}"
        elif life.transaction and len(life.transaction.halves) != seen["half_copies_served"]:
            yield f"{len(life.transaction.halves)} half messages, seen {seen['half_copies_served']}"

    def _groups(self, life: Life) -> Iterator[str]:
        places = {step.physical_offset: step for step in life.steps}
        groups = {group.group: group for group in life.groups}
        sent_back: dict[str, int] = defaultdict(int)
        for group, row in self.received:
            step = places.get(row["commitlog_offset"])
            if step is None:
                continue
            there = row["queue_id"], row["queue_offset"], row["reconsume_times"]
            inner = step.copy.messages > 1 or "(lmq)" in group
            if there != (step.queue_id, step.queue_offset, step.reconsume_times) and not inner:
                yield f"{group} received {there}, the record is {step}"
            if group in groups and row["reconsume_times"] and step not in groups[group].steps:
                yield f"{group} received {there}, not among its steps"
            # Level -1 sends to the dead letters, 0 lets the broker choose.
            sent_back[group] += row["outcome"].startswith("reconsume_later")
        for group, times in sent_back.items():
            steps = groups[group].steps if group in groups else ()
            # Up to 4.9 the dead letter may wait for its level, too.
            waited = any((step.copy.bound_for or ("",))[0].startswith("%DLQ%") for step in steps)
            kinds = ("scheduled",) if waited else ("scheduled", "dlq")
            if times != sum(step.copy.kind in kinds for step in steps):
                yield f"{group} sent it back {times} times, its steps are {steps}"
        yield from self._pops(life, places)

    def _pops(self, life: Life, places: Mapping[int, Any]) -> Iterator[str]:
        last: dict[tuple[str, int], Row] = {}
        for row in self.popped:
            if row["commitlog_offset"] in places:
                last[row["group"], row["commitlog_offset"]] = row
        found = {(group.group, pop.physical_offset): pop for group in life.groups for pop in group.pops}
        for key, row in last.items():
            pop = found.get(key)
            if pop is None:
                yield f"no pop of {key}"
            elif pop.acknowledged != (row["outcome"] == "ack"):
                yield f"{key} acknowledged {pop.acknowledged}, its outcome was {row['outcome']}"
