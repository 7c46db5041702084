"""The life of a message, as producers, consumers and the broker of real stores saw it."""

import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from rmqinspect.errors import NothingFound
from rmqinspect.find.life import LifeTracer, trace_life
from rmqinspect.rocksdb.unpack import unpacked
from rmqinspect.store.discover import open_store
from tests.support import oracle
from tests.support.building import lay, pad, write_segment
from tests.support.lives import Row, Seen
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
    places = [place for place, _ in Seen(name).sent()][::7]
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
