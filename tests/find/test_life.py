"""The life of a message, as producers, consumers and the broker of real stores saw it, and what no store has."""

import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from rmqinspect.broker.transactions import Surroundings
from rmqinspect.codec.layout import ParsedFields
from rmqinspect.errors import NothingFound
from rmqinspect.find.life import LifeTracer, family, stored_twice, trace_life, transaction_of, with_deliveries
from rmqinspect.find.life_records import LifeRecords, Step
from rmqinspect.rocksdb.unpack import unpacked
from rmqinspect.store.discover import open_store
from tests.support import oracle
from tests.support.building import lay, pad, write_segment
from tests.support.lives import Row, Seen, step
from tests.support.outcome_stores import outcome_store
from tests.support.samples import sample
from tests.support.sampling import sampled

OF_EACH_KIND = 2  # messages of a store that are traced


def telling(seen: Seen) -> Iterator[tuple[int, Row]]:
    """Yield a few messages of each kind that a store has: by how they were sent, and by what became of them."""
    retried = {row["msg_id"]: group for group, row in seen.received if row["reconsume_times"]}
    popped = {row["msg_id"]: f"{row['group']} {row['outcome']}" for row in seen.popped}
    states = {row["msg_id"]: row["expected_state"] for row in seen.truth["transactions"] or ()}
    taken: Counter[tuple[str | None, ...]] = Counter()
    for place, row in seen.sent():
        names = (row["kind"], *(known.get(row.get("msg_id", "")) for known in (retried, popped, states)))
        taken[names] += 1
        if taken[names] <= OF_EACH_KIND:
            yield place, row


@pytest.mark.parametrize(
    "name",
    ["main-4.7.1", "main-5.3.3", "halt-5.5.0", "lmq-4.9.7", "dledger-5.3.3", "rocksdb-5.4.0", "retention-4.9.7"],
)
def test_a_life_is_what_clients_and_broker_saw(name: str) -> None:
    seen = Seen(name)
    different: list[str] = []
    with ExitStack() as stack:
        store = stack.enter_context(unpacked(open_store([str(oracle.store("broker", name))])))
        tracer = stack.enter_context(LifeTracer(store))
        for place, row in telling(seen):
            life = tracer.trace(place)
            assert life.searched.not_read == ()
            different += [f"{place} {row['kind']}: {words}" for words in seen.differences(place, row, life)]
    assert different == []


@pytest.mark.parametrize("name", sampled(["lmq-5.3.3", "main-5.3.3", "halt-5.5.0", "main-4.7.1"], 2))
def test_lives_that_are_prepared_together_are_those_of_each_record(name: str) -> None:
    store = open_store([str(oracle.store("broker", name))])
    places = [place for place, _ in Seen(name).sent()][::21]
    with LifeTracer(store) as together:
        for number in range(0, len(places), 20):
            together.prepare(places[number : number + 20])
            for place in places[number : number + 20]:
                assert together.trace(place) == trace_life(store, place)


def test_a_topic_with_a_compaction_log_may_not_be_served_from_its_queue() -> None:
    store = open_store([str(oracle.store("broker", "compaction-5.3.3"))])
    with LifeTracer(store) as tracer:
        for place, row in Seen("compaction-5.3.3").sent():
            told = [remark for remark in tracer.trace(place).remarks if "COMPACTION" in remark]
            assert bool(told) == (row["kind"] == "compaction")


@pytest.fixture
def retried() -> tuple[str, int]:
    """Return a store, and the place of a message in it that became a dead letter."""
    return "halt-4.9.7", next(place for place, row in Seen("halt-4.9.7").sent() if row.get("keys") == "work-2")


@pytest.mark.parametrize("many", [200, 0], ids=["all retry topics", "those of groups with an offset"])
def test_a_life_is_the_same_from_each_of_its_records(
    retried: tuple[str, int], many: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rmqinspect.find.life_records._MANY_TOPICS", many)
    store = open_store([str(oracle.store("broker", retried[0]))])
    with LifeTracer(store) as tracer:
        life = tracer.trace(retried[1])
        assert [step.copy.kind for step in life.steps] == ["sent", "scheduled", "retry", "dlq"]
        for step in life.steps:
            again = tracer.trace(step.physical_offset)
            assert (again.record, again.steps, again.groups) == (step, life.steps, life.groups)
        with pytest.raises(NothingFound, match="no record begins"):
            tracer.trace(retried[1] + 1)


def test_without_an_index_the_log_is_read_and_what_was_not_read_is_told(
    retried: tuple[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = oracle.copy("broker", retried[0], tmp_path)
    whole = trace_life(open_store([str(root)]), retried[1])
    assert {file for entry in whole.entries for file in entry.files} != set()
    shutil.rmtree(root / "index")
    life = trace_life(open_store([str(root)]), retried[1])
    assert life.steps == whole.steps
    assert len(life.entries) == len(whole.entries)
    assert {(entry.files, entry.detail) for entry in life.entries} == {((), "no index files given")}
    assert life.searched.not_read == ()
    # Less than up to the next record is read: its retries are not found by their id.
    monkeypatch.setattr("rmqinspect.find.life_records.MOST_READ", 10)
    life = trace_life(open_store([str(root)]), retried[1])
    assert [step.physical_offset for step in life.steps] == [retried[1]]
    assert life.searched.not_read[0][0] == 0
    assert trace_life(open_store([str(root)]), retried[1], everything=True).steps == whole.steps


def test_a_unit_that_is_lost_or_leads_elsewhere_is_told(retried: tuple[str, int], tmp_path: Path) -> None:
    root = oracle.copy("broker", retried[0], tmp_path)
    (unit,) = trace_life(open_store([str(root)]), retried[1]).units
    assert (unit.state, unit.detail) == ("present", "")
    assert unit.file is not None
    assert unit.position is not None
    file = root / unit.file
    raw = bytearray(file.read_bytes())
    raw[unit.position : unit.position + 20] = bytes(20)
    file.write_bytes(raw)
    (lost,) = trace_life(open_store([str(root)]), retried[1]).units
    assert (lost.state, lost.detail) == ("missing", "not written")
    raw[unit.position : unit.position + 20] = raw[unit.position - 20 : unit.position]
    file.write_bytes(raw)
    (wrong,) = trace_life(open_store([str(root)]), retried[1]).units
    assert wrong.state == "wrong"
    assert "not here" in wrong.detail
    shutil.rmtree(root / "consumequeue")
    (unknown,) = trace_life(open_store([str(root)]), retried[1]).units
    assert (unknown.state, unknown.detail) == ("unknown", "no consume queues given")


def test_records_without_an_id_are_joined_by_what_they_name(tmp_path: Path) -> None:
    """Clients of other languages may set no UNIQ_KEY: nothing is indexed, and the log is read."""
    first = lay([{}])
    origin = {"ORIGIN_MESSAGE_ID": f"7F00000100002A9F{0:016X}", "RETRY_TOPIC": "TopicTest"}
    pieces: list[dict[str, Any]] = [
        {},
        {"topic": "%RETRY%g", "properties": origin},
        {"topic": "%DLQ%g", "properties": origin},
        {"properties": {"UNIQ_KEY": "U", **origin}},
        {},
    ]
    write_segment(tmp_path / "commitlog", pad(lay(pieces), 4096))
    store = open_store([str(tmp_path)])
    life = trace_life(store, 0)
    assert [step.copy.kind for step in life.steps] == ["sent", "retry", "dlq"]
    retry = trace_life(store, len(first))
    assert retry.steps == life.steps
    assert life.entries == ()
    assert [(unit.state, unit.detail) for unit in life.units] == [("unknown", "no consume queues given")]


def places(steps: list[Step]) -> list[int]:
    return [one.physical_offset for one in steps]


def origin(place: int) -> dict[str, str]:
    return {"ORIGIN_MESSAGE_ID": f"7F0000010000597F{place:016X}"}


def test_what_a_producer_sent_again_is_the_same_message_stored_twice() -> None:
    steps = [step(0), step(500), step(900, "%RETRY%g", origin(500))]
    copies, others = family(steps[0], steps)
    assert places(copies) == [0, 500, 900]
    assert others == []
    assert places(stored_twice(copies)) == [500]


def test_records_of_one_batch_are_different_messages_even_with_the_same_body() -> None:
    batch = [step(0, time=7), step(100, time=7), step(200, body=2, time=7)]
    retry = step(900, "%RETRY%g", origin(100))
    for start, copies in ((0, [0]), (1, [100, 900]), (2, [200])):
        found, others = family(batch[start], [*batch, retry])
        assert places(found) == copies
        assert sorted(places(found) + places(others)) == [0, 100, 200, 900]
    assert places(family(retry, [*batch, retry])[0]) == [100, 900]


def test_another_body_is_another_message_unless_only_one_was_sent() -> None:
    steps = [step(0), step(500, body=2), step(900, "%RETRY%g_orders", {"1ST_POP_TIME": "1"}, body=2)]
    assert places(family(steps[0], steps)[0]) == [0]
    assert places(family(steps[2], steps)[0]) == [500, 900]
    # A client that sends a dead letter itself may compress the body in another way.
    steps = [step(0), step(900, "%DLQ%g", body=2)]
    assert places(family(steps[0], steps)[0]) == [0, 900]


def test_a_record_that_cancels_belongs_to_the_message_it_names() -> None:
    timer = {"TIMER_OUT_MS": "5000", "REAL_TOPIC": "orders"}
    waiting = step(0, "rmq_sys_wheel_timer", timer)
    for named, belongs in (("U", True), ("orders+U", True), ("V", False)):
        cancel = step(300, "rmq_sys_wheel_timer", {**timer, "TIMER_DEL_UNIQKEY": named}, body=2)
        assert places(family(waiting, [waiting, cancel])[0]) == ([0, 300] if belongs else [0])


def test_a_delivered_record_needs_not_say_so() -> None:
    waits = step(0, "SCHEDULE_TOPIC_XXXX", {"DELAY": "3", "REAL_TOPIC": "orders", "REAL_QID": "0"})
    copies = with_deliveries([waits, step(500), step(900)])
    assert [one.copy.kind for one in copies] == ["scheduled", "delivered", "delivered"]
    assert copies[1].copy.level == copies[0].copy.level
    assert stored_twice(copies) == []


@pytest.mark.parametrize("change", [{"born_timestamp": 1}, {"topic": "other"}, {"queue_id": 5}])
def test_what_was_sent_at_another_time_or_elsewhere_is_no_delivery(change: dict[str, object]) -> None:
    waits = step(0, "SCHEDULE_TOPIC_XXXX", {"DELAY": "3", "REAL_TOPIC": "orders", "REAL_QID": "0"})
    sent = replace(step(500), **change)
    assert [one.copy.kind for one in with_deliveries([waits, sent])] == ["scheduled", "sent"]
    assert [one.copy.kind for one in with_deliveries([step(500), waits])] == ["sent", "scheduled"]


HALF = {"REAL_TOPIC": "orders", "REAL_QID": "0", "TRAN_MSG": "true"}
PREPARED, COMMIT, ROLLBACK = 0x4, 0x8, 0xC


class NoOps(LifeRecords):
    """Records of a store, with no op record behind any half message."""

    all_searched = True

    def behind(self, topic: str, place: int, most: int) -> tuple[Iterator[ParsedFields], bool]:
        return iter(()), self.all_searched


@pytest.fixture
def records() -> NoOps:
    return NoOps(open_store([str(sample("healthy-5.5.0"))]))


@pytest.mark.parametrize(
    ("steps", "state", "decided_by"),
    [
        ([step(0, sys_flag=PREPARED)], "pending", None),
        ([step(0, sys_flag=PREPARED), step(500, sys_flag=COMMIT)], "committed", 500),
        ([step(200, sys_flag=PREPARED), step(500, sys_flag=ROLLBACK, half=200, body=0)], "rolled_back", 500),
        ([step(500, sys_flag=COMMIT, half=200)], "committed", 500),
        ([step(500, "TRANS_CHECK_MAX_TIME_TOPIC", HALF)], "given_up", None),
    ],
    ids=["4.2, undecided", "4.2, committed", "4.2, rolled back", "expired half", "expired half, given up"],
)
def test_records_in_the_life_decide(records: NoOps, steps: list[Step], state: str, decided_by: int | None) -> None:
    copies, others = family(steps[0], steps)
    assert others == []
    found = transaction_of(records, Surroundings(check_offset=None), copies)
    assert found is not None
    assert (found.state, found.commit or found.op) == (state, decided_by)


def test_where_not_all_op_records_were_searched_that_is_the_doubt(records: NoOps) -> None:
    half = step(500, "RMQ_SYS_TRANS_HALF_TOPIC", HALF)
    found = transaction_of(records, Surroundings(check_offset=0), [half])
    assert found is not None
    assert (found.state, found.why) == ("pending", None)
    records.all_searched = False
    found = transaction_of(records, Surroundings(check_offset=0), [half])
    assert found is not None
    assert found.why is not None
    assert "later ones were not searched" in found.why
    assert transaction_of(records, Surroundings(check_offset=0), [step(0)]) is None


def test_a_pop_before_the_first_revival_is_told_by_the_timer() -> None:
    """job-219 was popped and never acknowledged; the broker was killed within its first minute of pops."""
    with unpacked(open_store([str(outcome_store("s10"))])) as store:
        life = trace_life(store, 208_099)
    [workers] = [group for group in life.groups if group.group == "workers"]
    [pop] = workers.pops
    assert (pop.acknowledged, pop.visible_again - pop.pop_time) == (False, 60_000)
