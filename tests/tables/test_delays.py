"""The table `delays`: against what brokers' clients sent and got, and against damaged and small stores."""

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import rmqinspect.tables.delays
import rmqinspect.tables.read_log
from rmqinspect.rocksdb.unpack import has_rocksdict, unpacked
from rmqinspect.schemas.consumequeue import QueueUnit
from rmqinspect.schemas.timer import UNIT_SIZE
from rmqinspect.store.model import Store
from rmqinspect.tables.config import DELAY_OFFSETS
from rmqinspect.tables.delays import DELAYS, DelayChoice, delays_table
from rmqinspect.tables.read_log import fold_log
from rmqinspect.tables.request import Request
from tests.support import oracle
from tests.support.building import lay, pad, record
from tests.support.sampling import sampled
from tests.support.side_tables import BROKERS, ROCKSDB, broker, milliseconds, rows, rows_of_broker, store_of, write

WAITING = delays_table(DelayChoice(waiting=True))
# Their timers were stopped in order, so what timermetrics counts is what waits.
STOPPED = tuple(
    name for name in BROKERS if oracle.truth("broker", name)["timer"] and not name.startswith(("halt-", "rocksopt-"))
)
WAIT_STATES = {"pending", "overdue"}
NEEDS_ROCKSDICT = {*ROCKSDB, "rocksopt-5.5.0"}


def delays_of(store: Store, choice: DelayChoice | None = None) -> list[dict[str, Any]]:
    with unpacked(store) as whole:
        return rows(DELAYS if choice is None else delays_table(choice), whole)


def by_place(found: Iterable[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    return {row["physical_offset"]: row for row in found}


def expected_state(sent: dict[str, Any]) -> str:
    """Return the state of a message that a client sent, as the client and its consumer saw it."""
    told = {"delivered": "delivered", "pending": "pending", "recalled": "cancelled", "never delivered": "delete_mark"}
    return told.get(sent["expected"]) or ("cancelled" if sent["cancel_worked"] else "delivered")


# --- as brokers did it ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BROKERS)
def test_states_are_those_that_clients_saw(name: str) -> None:
    if name in NEEDS_ROCKSDICT and not has_rocksdict():
        pytest.skip("rocksdict is not installed")
    all_sent = oracle.truth("broker", name)["sent"]
    found = delays_of(broker(name))
    places = by_place(found)
    assert len(places) == len(found)
    sent = [message for message in all_sent if message["kind"] in ("delay", "timer", "timer-cancel")]
    assert len(sent) >= 8
    for message in sent:
        row = places[int(message["offset_msg_id"][-16:], 16)]
        assert row["state"] == expected_state(message), message
        assert row["deliveries"] == message["observed_copies_in_topic"], message
        assert row["msg_id"] == message["msg_id"]
        assert row["keys"] == message.get("keys", "").split()
        assert (row["real_topic"], row["real_queue_id"]) == (message["topic"], message["queue_id"])
        assert row["queue_offset"] == message["queue_offset"]
        assert row["level"] == message.get("delay_level")
        assert row["source"] == _source(name, message)
        assert row["deletes"] == message.get("client_properties", {}).get("TIMER_DEL_UNIQKEY")
    assert {row["state"] for row in found} <= {"pending", "delivered", "cancelled", "delete_mark"}


def _source(name: str, message: dict[str, Any]) -> str:
    timer = "rocksdb_timer" if name == "rocksopt-5.5.0" else "timer"
    return "level" if message["kind"] == "delay" else timer


@pytest.mark.parametrize("name", ["main-4.7.1", "ext-4.9.7", "dledger-5.3.3", "main-5.4.0", "rocksopt-5.5.0"])
def test_copies_are_where_the_broker_served_them(name: str) -> None:
    """Retried messages, too, whose copies have the id of their originals."""
    if name in NEEDS_ROCKSDICT and not has_rocksdict():
        pytest.skip("rocksdict is not installed")
    served = by_place([row for row in oracle.truth("broker", name)["served"] if "physical_offset" in row])
    for row in delays_of(broker(name)):
        if row["state"] == "delivered":
            copy = served[row["delivered_physical_offset"]]
            assert (copy["topic"], copy["msg_id"]) == (row["real_topic"], row["msg_id"])
            assert copy["store_timestamp"] >= milliseconds(row["due_timestamp"])
            assert copy["reconsume_times"] == row["reconsume_times"]


@pytest.mark.parametrize("name", sampled(BROKERS, 4))
def test_what_waits_is_the_same_without_a_pass_over_the_log(name: str) -> None:
    if name in NEEDS_ROCKSDICT and not has_rocksdict():
        pytest.skip("rocksdict is not installed")
    store = broker(name)
    everything, waiting = by_place(delays_of(store)), by_place(delays_of(store, DelayChoice(waiting=True)))
    # A broker that was killed may have an order to delete in its wheel that has fired.
    waits = {place for place, row in everything.items() if row["state"] in WAIT_STATES}
    assert waits == {place for place, row in waiting.items() if row["state"] in WAIT_STATES}
    for place, row in waiting.items():
        assert row == everything[place] | {"deliveries": None}


@pytest.mark.parametrize("name", [name for name in BROKERS if name not in ROCKSDB])
def test_as_many_wait_as_delay_offsets_say(name: str) -> None:
    told = {row["level"]: row["pending"] for row in rows_of_broker(DELAY_OFFSETS, name)}
    waiting = Counter(row["level"] for row in rows_of_broker(WAITING, name) if row["level"] is not None)
    assert {level: waiting[level] for level in told} == told


@pytest.mark.parametrize("name", STOPPED)
def test_as_many_pop_messages_wait_as_the_broker_counted(name: str) -> None:
    """Of users' topics the count is wrong: an order to delete lowers it whether it has an effect or not."""
    counted = oracle.truth("broker", name)["timer"]["timing_count"]
    waiting = Counter(row["real_topic"] for row in rows_of_broker(WAITING, name) if row["system"])
    assert waiting == {topic: count for topic, count in counted.items() if topic.startswith("rmq_sys_")}


# --- damaged ----------------------------------------------------------------------------------------


def states(root: Path) -> dict[int, str]:
    return {row["physical_offset"]: row["state"] for row in rows(DELAYS, store_of(root))}


@pytest.fixture(name="timers")
def _timers(tmp_path: Path) -> Path:
    return oracle.copy("broker", "main-5.3.3", tmp_path)


def test_a_lost_wheel_is_built_again_from_the_timer_log(timers: Path) -> None:
    before = states(timers)
    (timers / "timerwheel").unlink()
    assert states(timers) == before


def test_what_the_timer_log_lost_is_taken_from_the_topic_again(timers: Path) -> None:
    before = states(timers)
    (log,) = (timers / "timerlog").iterdir()
    raw = log.read_bytes()
    log.write_bytes(pad(raw[: 3 * UNIT_SIZE], len(raw)))
    assert states(timers) == before


def test_without_the_timer_log_what_waited_is_lost(timers: Path) -> None:
    before = by_place(rows(DELAYS, store_of(timers)))
    (log,) = (timers / "timerlog").iterdir()
    log.unlink()
    for place, row in by_place(rows(DELAYS, store_of(timers))).items():
        was = before[place]
        waited = was["level"] is None and was["state"] == "pending"
        assert row["state"] == ("lost" if waited else was["state"])
        assert row["reason"] == ("the broker has passed it, and the log holds no delivered copy" if waited else None)


def test_units_that_neither_the_wheel_nor_startup_finds_are_lost(timers: Path) -> None:
    """The units stand in a file before those that startup reads, and the wheel is gone."""
    before = states(timers)
    (log,) = (timers / "timerlog").iterdir()
    raw = log.read_bytes()
    cut = 100 * UNIT_SIZE
    for number in range(3):
        (log.parent / f"{number * cut:020}").write_bytes(raw[:cut] if number == 0 else bytes(cut))
    check = timers / "config" / "timercheck"
    fields = bytearray(check.read_bytes())
    fields[8:16] = (2 * cut).to_bytes(8, "big")
    check.write_bytes(fields)
    assert states(timers) == before
    (timers / "timerwheel").unlink()
    found = rows(DELAYS, store_of(timers))
    lost = [row for row in found if row["state"] == "lost"]
    assert {row["physical_offset"] for row in lost} == {
        row["physical_offset"] for row in found if before[row["physical_offset"]] == "pending" and row["level"] is None
    }
    assert {row["reason"] for row in lost} == {
        "no slot of the wheel leads to its unit, and startup does not put it in again"
    }


@pytest.mark.parametrize("copy", ["delayOffset.json", "delayOffset.json.bak"])
def test_an_empty_table_of_delay_offsets_leaves_the_copy(timers: Path, copy: str) -> None:
    before = states(timers)
    (timers / "config" / copy).write_text('{"offsetTable":{}}')
    assert states(timers) == before


def test_without_delay_offsets_copies_tell_what_was_delivered(timers: Path) -> None:
    before = states(timers)
    for file in (timers / "config").glob("delayOffset*"):
        file.unlink()
    assert states(timers) == before
    # Without a look at the log only what is due later waits for certain.
    waiting = {row["physical_offset"] for row in rows(WAITING, store_of(timers))}
    assert waiting == {place for place, state in before.items() if state == "pending"}


def test_without_queues_the_timer_log_still_leads_to_what_waits(timers: Path) -> None:
    before = by_place(rows(DELAYS, store_of(timers)))
    (queue,) = (timers / "consumequeue" / "rmq_sys_wheel_timer" / "0").iterdir()
    queue.unlink()
    found = by_place(row for row in rows(DELAYS, store_of(timers)) if row["level"] is None)
    assert {place for place, row in before.items() if row["level"] is None and row["state"] == "pending"} == set(found)
    assert all(row == before[place] | {"queue_offset": None} for place, row in found.items())


def test_a_record_that_is_gone_is_lost_and_copies_in_damage_are_unknown(timers: Path) -> None:
    before = by_place(rows(DELAYS, store_of(timers)))
    waiting = next(row for row in before.values() if row["state"] == "pending" and row["source"] == "timer")
    done = [row for row in before.values() if row["state"] == "delivered" and row["level"] is not None]
    last = max(done, key=lambda row: row["delivered_physical_offset"])
    for place, size in ((waiting["physical_offset"], waiting["size"]), (last["delivered_physical_offset"], 100)):
        erase(timers, place, size)
    found = by_place(rows(DELAYS, store_of(timers), Request(on_gap=lambda *gap: None)))
    gone = found[waiting["physical_offset"]]
    assert (gone["state"], gone["reason"]) == ("lost", "its record is gone: the broker passes it over")
    assert gone["due_timestamp"] == waiting["due_timestamp"]
    assert gone["real_topic"] is None
    assert found[last["physical_offset"]]["state"] == "unknown"


def erase(root: Path, place: int, size: int) -> None:
    files = sorted((root / "commitlog").iterdir())
    file = max(file for file in files if int(file.name) <= place)
    raw = bytearray(file.read_bytes())
    raw[place - int(file.name) : place - int(file.name) + size] = bytes(size)
    file.write_bytes(raw)


def test_the_queue_alone_tells_when_messages_are_due(timers: Path, tmp_path: Path) -> None:
    before = [row for row in rows(DELAYS, store_of(timers)) if row["level"] is not None and row["state"] == "pending"]
    (tmp_path / "parts").mkdir()
    (timers / "consumequeue").rename(tmp_path / "parts" / "consumequeue")
    choice = DelayChoice(waiting=True, at=milliseconds(before[0]["due_timestamp"]))
    found = delays_of(store_of(tmp_path / "parts"), choice)
    told = {row["physical_offset"]: (row["due_timestamp"], row["state"]) for row in found if row["level"] is not None}
    assert {row["physical_offset"]: (row["due_timestamp"], "pending") for row in before}.items() <= told.items()


# --- small stores -----------------------------------------------------------------------------------

STORED = 1_700_000_000_000
SECOND = 1000


def delayed(name: str, level: int = 3, **fields: Any) -> dict[str, Any]:
    """Return a record that waits for 10 s."""
    properties = {"UNIQ_KEY": name, "DELAY": str(level), "REAL_TOPIC": "orders", "REAL_QID": "1"}
    return {
        "topic": "SCHEDULE_TOPIC_XXXX",
        "queue_id": level - 1,
        "store_timestamp": STORED,
        "properties": properties,
    } | fields


def delivered(name: str, level: int = 3, **fields: Any) -> dict[str, Any]:
    return delayed(name, level) | {"topic": "orders", "queue_id": 1, "store_timestamp": STORED + 10 * SECOND} | fields


def small_store(
    root: Path, *records: dict[str, Any], offsets: dict[int, int] | None = None, later: int = 60, delay: int = 10
) -> Store:
    """Write records, the queue of level 3, delay offsets, and a last record `later` seconds after the first."""
    last = {"topic": "other", "store_timestamp": STORED + later * SECOND}
    raw = lay([*records, last])
    write(root, f"commitlog/{0:020}", pad(raw, 1 << 16))
    units, at = [], 0
    for fields in records:
        size = len(record(**fields))
        if fields["topic"] == "SCHEDULE_TOPIC_XXXX" and fields["queue_id"] == 2:
            due = fields["store_timestamp"] + delay * SECOND
            units.append(QueueUnit.build({"physical_offset": at, "size": size, "tags_code": due}))
        at += size
    write(root, f"consumequeue/SCHEDULE_TOPIC_XXXX/2/{0:020}", pad(b"".join(units), 6000))
    if offsets is not None:
        write(root, "config/delayOffset.json", json.dumps({"offsetTable": offsets}).encode())
    return store_of(root)


def shown(store: Store, choice: DelayChoice | None = None) -> list[tuple[Any, ...]]:
    found = delays_of(store, choice)
    return [(row["msg_id"], row["state"], row["deliveries"]) for row in found]


def test_messages_without_a_copy_are_lost_and_those_not_passed_overdue(tmp_path: Path) -> None:
    messages = [delayed(name) for name in "abcd"]
    store = small_store(tmp_path, *messages, delivered("a"), delivered("d"), offsets={3: 2})
    assert shown(store) == [("a", "delivered", 1), ("b", "lost", 0), ("c", "overdue", 0), ("d", "delivered", 1)]
    assert shown(store, DelayChoice(waiting=True)) == [("c", "overdue", None), ("d", "overdue", None)]


def test_now_is_the_last_activity_unless_a_time_is_given(tmp_path: Path) -> None:
    store = small_store(tmp_path, delayed("a"), offsets={}, later=9)
    assert shown(store) == [("a", "pending", 0)]
    assert shown(store, DelayChoice(at=STORED + 10 * SECOND)) == [("a", "pending", 0)]
    assert shown(store, DelayChoice(at=STORED + 10 * SECOND + 1)) == [("a", "overdue", 0)]


@pytest.mark.parametrize(
    ("fields", "state"),
    [
        ({"topic": "payments"}, "lost"),
        ({"properties": {"UNIQ_KEY": "b", "DELAY": "3"}}, "lost"),
        ({"properties": {}}, "lost"),
        # The same id, but sent or sent back at another time.
        ({"reconsume_times": 1}, "unknown"),
        ({"born_timestamp": 1}, "unknown"),
        # The same message: what else a copy says is up to its writer.
        ({"properties": {"UNIQ_KEY": "a", "DELAY": "4"}}, "delivered"),
        ({"properties": {"UNIQ_KEY": "a"}}, "delivered"),
        ({"properties": {"REAL_TOPIC": "orders", "WAIT": "false", "UNIQ_KEY": "a", "REAL_QID": "1"}}, "delivered"),
        ({"properties": {"UNIQ_KEY": "a", "x": "1"}, "queue_id": 3}, "delivered"),
    ],
)
def test_lost_is_what_has_no_record_of_its_id_in_its_topic(tmp_path: Path, fields: dict[str, Any], state: str) -> None:
    store = small_store(tmp_path, delayed("a"), delivered("a", **fields), offsets={3: 1})
    (row,) = delays_of(store)
    assert row["state"] == state
    assert (row["delivered_physical_offset"] is not None) == (state == "delivered")
    assert (row["reason"] is None) == (state == "delivered")


@pytest.mark.parametrize(
    ("fields", "state"),
    [({}, "delivered"), ({"body": b"another"}, "lost"), ({"born_timestamp": 1}, "lost"), ({"topic": "other"}, "lost")],
)
def test_without_an_id_body_and_born_time_tell_the_copy(tmp_path: Path, fields: dict[str, Any], state: str) -> None:
    original = delayed("a", properties={"DELAY": "3", "REAL_TOPIC": "orders", "REAL_QID": "1"}, body=b"one")
    copy = delivered("a", properties={"x": "1"}, body=b"one") | fields
    assert shown(small_store(tmp_path, original, copy, offsets={3: 1})) == [(None, state, int(state == "delivered"))]


def test_a_copy_of_another_writer_proves_a_delivery_that_no_offset_tells(tmp_path: Path) -> None:
    """Its offsets are written every few seconds: a kill leaves old ones."""
    copy = delivered("b", properties={"UNIQ_KEY": "b"})
    records = [delivered("a", properties={"UNIQ_KEY": "a"}), delayed("a"), delayed("b"), copy]
    assert shown(small_store(tmp_path, *records, offsets={3: 0})) == [("a", "overdue", 0), ("b", "delivered", 1)]


def test_a_second_pass_tells_nothing_twice(tmp_path: Path) -> None:
    store = small_store(tmp_path, delayed("a"), delivered("b"), delayed("c"), offsets={3: 2})
    erase(tmp_path, len(lay([delayed("a")])), 20)
    told: list[Any] = []
    request = Request(on_gap=lambda *gap: told.append(gap), on_unreadable=told.append, on_remark=told.append)
    assert [row["state"] for row in rows(DELAYS, store_of(tmp_path), request)] == ["unknown", "lost"]
    assert len(told) == len(set(told))
    assert store.segments


@pytest.mark.parametrize("copied", [True, False])
def test_for_what_is_due_the_log_is_read_again_from_that_time_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, copied: bool
) -> None:
    """Another writer's copy, without the level, is found behind the first records of about that time."""
    before = [{"topic": "other", "store_timestamp": STORED - 300 * SECOND}] * 40
    copies = [delivered("a", properties={"UNIQ_KEY": "a"})] if copied else []
    waits = delayed("a", store_timestamp=STORED - 400 * SECOND)
    store = small_store(tmp_path, waits, *before, *copies, offsets={3: 0}, delay=400)
    asked: list[tuple[int, int] | None] = []

    def fold(store: Store, request: Request, new: Any) -> Any:
        asked.append(request.offsets)
        return fold_log(store, request, new)

    monkeypatch.setattr(rmqinspect.tables.read_log, "SPLIT_SIZE", 1 << 10)
    monkeypatch.setattr(rmqinspect.tables.delays, "fold_log", fold)
    assert [state for _, state, _ in shown(store)] == ["delivered" if copied else "overdue"]
    first, again = asked
    assert first is None and again is not None
    assert len(lay([delayed("a"), *before[:20]])) < again[0] <= len(lay([delayed("a"), *before]))


def test_a_copy_stands_behind_its_original(tmp_path: Path) -> None:
    """The same message, delayed again: each has the copies that follow it."""
    records = [delivered("a"), delayed("a"), delivered("a"), delivered("a")]
    assert shown(small_store(tmp_path, *records, offsets={3: 1})) == [("a", "delivered", 2)]
    assert [row["delivered_physical_offset"] for row in delays_of(store_of(tmp_path))] == [len(lay(records[:2]))]


def test_a_copy_needs_neither_real_topic_nor_a_level_of_its_own(tmp_path: Path) -> None:
    """The RocksDB timer leaves REAL_TOPIC out."""
    copy = delivered("a", properties={"UNIQ_KEY": "a", "DELAY": "3"})
    assert shown(small_store(tmp_path, delayed("a"), copy, offsets={3: 1})) == [("a", "delivered", 1)]


def test_what_retention_took_before_it_was_due_is_lost(tmp_path: Path) -> None:
    store = small_store(tmp_path, *[delayed(name) for name in "ab"], offsets={3: 1})
    (segment,) = store.segments
    raw = Path(segment.path).read_bytes()
    Path(segment.path).unlink()
    write(
        tmp_path,
        f"commitlog/{1 << 16:020}",
        pad(lay([{"topic": "other", "store_timestamp": STORED}], 1 << 16), len(raw)),
    )
    (row,) = delays_of(store_of(tmp_path))
    assert (row["queue_offset"], row["state"]) == (1, "lost")
    assert row["reason"] == "its record is gone: the broker passes it over"


# --- orders to delete -------------------------------------------------------------------------------


def order(form: str, name: str, out: int, **fields: Any) -> dict[str, Any]:
    return (
        timed(f"order-{name}", out)
        | {
            "properties": timed("", out)["properties"]
            | {"UNIQ_KEY": f"order-{name}", "TIMER_DEL_UNIQKEY": f"orders+{name}" if form == "topic" else name}
        }
        | fields
    )


def timed(name: str, out: int, **fields: Any) -> dict[str, Any]:
    properties = {"UNIQ_KEY": name, "TIMER_OUT_MS": str(out), "REAL_TOPIC": "orders", "REAL_QID": "1"}
    return {"topic": "rmq_sys_wheel_timer", "store_timestamp": STORED, "properties": properties} | fields


SOON, LATER = STORED + 10 * SECOND, STORED + 100 * SECOND


def timer_store(root: Path, *records: dict[str, Any]) -> Store:
    """Write records; none of the timer's topic is taken into the wheel yet."""
    last = {"topic": "other", "store_timestamp": STORED + 60 * SECOND}
    write(root, f"commitlog/{0:020}", pad(lay([*records, last]), 1 << 16))
    units, at = [], 0
    for fields in records:
        size = len(record(**fields))
        if fields["topic"] == "rmq_sys_wheel_timer":
            units.append(QueueUnit.build({"physical_offset": at, "size": size, "tags_code": 0}))
        at += size
    write(root, f"consumequeue/rmq_sys_wheel_timer/0/{0:020}", pad(b"".join(units), 6000))
    write(root, "config/timercheck", bytes(4096))
    return store_of(root)


@pytest.mark.parametrize("form", ["plain", "topic"])
@pytest.mark.parametrize("choice", [None, DelayChoice(waiting=True)])
def test_an_order_deletes_what_falls_due_with_it(tmp_path: Path, form: str, choice: DelayChoice | None) -> None:
    """The version is not known: either form may have an effect."""
    store = timer_store(tmp_path, timed("a", LATER), timed("b", LATER), order(form, "a", LATER), order(form, "b", SOON))
    assert [state for _, state, _ in shown(store, choice)] == ["cancelled", "pending", "delete_mark", "delete_mark"]


@pytest.mark.parametrize(("failed", "other"), [("plain", "topic"), ("topic", "plain")])
def test_a_form_of_order_that_had_no_effect_is_not_obeyed(tmp_path: Path, failed: str, other: str) -> None:
    done = timed("a", SOON), order(failed, "a", SOON), timed("a", SOON, topic="orders")
    waiting = timed("b", LATER), order(failed, "b", LATER), timed("c", LATER), order(other, "c", LATER)
    found = {name: state for name, state, _ in shown(timer_store(tmp_path, *done, *waiting))}
    assert {name: found[name] for name in "abc"} == {"a": "delivered", "b": "pending", "c": "cancelled"}


def test_the_newest_of_rolled_messages_waits(tmp_path: Path) -> None:
    again = {"properties": timed("a", LATER)["properties"] | {"TIMER_ROLL_TIMES": "1"}}
    store = timer_store(tmp_path, timed("a", LATER), timed("a", LATER, **again))
    assert [(row["state"], row["roll_times"]) for row in delays_of(store)] == [("rolled", None), ("pending", 1)]
