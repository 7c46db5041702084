"""Consume queues against the log: what each code shows, and what is close to it and no damage."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import rmqinspect.verify.run
from rmqinspect.codec.java import java_string_hash
from rmqinspect.schemas.consumequeue import BatchUnit, QueueUnit
from rmqinspect.schemas.message import SysFlag
from rmqinspect.store.discover import open_store
from rmqinspect.topics import SCHEDULE_TOPIC
from rmqinspect.verify.findings import Finding
from rmqinspect.verify.result import VerifyOptions, VerifyResult
from rmqinspect.verify.run import verify
from tests.support.building import STORED
from tests.support.whole_stores import WholeStore

UNIT = QueueUnit.sizeof()
Change = Callable[[Path], None]


def message(number: int, **more: Any) -> dict[str, Any]:
    properties = {"UNIQ_KEY": f"{number:032X}", "KEYS": f"key{number}", "TAGS": f"tag{number % 3}"}
    return {"topic": "orders", "properties": properties | more.pop("properties", {}), **more}


def many(count: int = 20) -> list[dict[str, Any]]:
    """Messages of orders 0 and 1 and of payments 0, in turn."""
    return [message(n, topic="payments" if n % 3 == 2 else "orders", queue_id=int(n % 3 == 1)) for n in range(count)]


def judge(folder: Path, level: str = "deep", **options: Any) -> VerifyResult:
    return verify(open_store([str(folder)]), VerifyOptions(level=level, **options))


def reported(outcome: VerifyResult) -> list[tuple[str, int | None, int]]:
    """Return (code, queue offset, count) of what was found, but for the index and unread parts."""
    rows = [row for row in outcome.findings.rows if not row.code.startswith(("IX-", "ST-"))]
    return [(row.code, row.queue_offset, row.count) for row in rows]


def only(outcome: VerifyResult, code: str) -> Finding:
    (row,) = [row for row in outcome.findings.rows if row.code == code]
    return row


def queue_file(folder: Path, topic: str = "orders", queue_id: int = 0, number: int = 0) -> Path:
    return sorted((folder / "consumequeue" / topic / str(queue_id)).iterdir())[number]


def units(path: Path) -> list[Any]:
    raw = path.read_bytes()
    return [QueueUnit.parse(raw[at : at + UNIT]) for at in range(0, len(raw), UNIT)]


def put(path: Path, row: int, **fields: int) -> None:
    """Change fields of a unit; without any, zero it."""
    raw = bytearray(path.read_bytes())
    old = QueueUnit.parse(raw[row * UNIT : (row + 1) * UNIT])
    new = QueueUnit.build({**old, **fields}) if fields else bytes(UNIT)
    raw[row * UNIT : (row + 1) * UNIT] = new
    path.write_bytes(raw)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return WholeStore(many()).write(tmp_path / "store")


# --- what must stay silent ------------------------------------------------------------------------

LIGHT = {"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b", "INNER_MULTI_QUEUE_OFFSET": "0,0"}
DELAYED = {"DELAY": "3", "REAL_TOPIC": "orders", "REAL_QID": "0"}

HEALTHY: dict[str, WholeStore] = {
    "messages of three queues": WholeStore(many()),
    "a log that begins later, with units that retention left": WholeStore(many(), base=4096),
    "a queue whose first message has a high offset: pre-blanks before it": WholeStore(
        [message(n, queue_offset=13 + n) for n in range(5)]
    ),
    "prepared and rolled-back messages, which have no unit": WholeStore(
        [
            message(0),
            message(1, sys_flag=int(SysFlag.TRANSACTION_PREPARED), queue_offset=0),
            message(2, sys_flag=int(SysFlag.TRANSACTION_PREPARED | SysFlag.TRANSACTION_COMMIT), queue_offset=0),
            message(3, sys_flag=int(SysFlag.TRANSACTION_COMMIT)),
        ]
    ),
    "light queues, whose records have another topic": WholeStore(
        [message(0), message(1, properties=LIGHT), message(2)]
    ),
    "delayed messages, whose units hold times of delivery": WholeStore(
        [message(n, topic=SCHEDULE_TOPIC, queue_id=2, properties=DELAYED) for n in range(3)]
    ),
    "wrapped topics": WholeStore(
        [message(0, topic="%RETRY%group"), message(1, topic="%DLQ%group")],
        configs={"consumerOffset.json": {"offsetTable": {}}, "subscriptionGroup.json": {"subscriptionGroupTable": {}}},
    ),
    "messages without tags and keys": WholeStore([{"topic": "orders"}, {"topic": "orders", "body": b""}]),
    "an identity twice, as retries leave it": WholeStore([message(1), message(1)]),
    "an unclean stop with all dispatched": WholeStore(many(), abort=True),
    "a store whose tags are indexed": WholeStore(many(), tag_keys=True),
}


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_store_is_silent(name: str, tmp_path: Path) -> None:
    outcome = judge(HEALTHY[name].write(tmp_path / "store"))
    assert [row for row in outcome.findings.rows if row.severity != "info"] == []
    assert reported(outcome) == []
    assert outcome.joined_units == outcome.units > 0


def test_multi_dispatched_messages_of_some_topics_have_one_unit_only(tmp_path: Path) -> None:
    pieces = [message(0, topic=topic, properties=LIGHT) for topic in ("%RETRY%group", "rmq_sys_wheel_timer")]
    stored = WholeStore([{**piece, "properties": piece["properties"]} for piece in pieces])
    folder = stored.write(tmp_path / "store")
    for light in (folder / "consumequeue").glob("%LMQ%*"):
        for path in sorted(light.rglob("*"), reverse=True):
            path.unlink() if path.is_file() else path.rmdir()
        light.rmdir()
    assert reported(judge(folder)) == []


def test_a_lite_queue_that_expired_is_silent_and_another_light_queue_is_not(tmp_path: Path) -> None:
    for name, expected in (("%LMQ%$parent$lite", []), ("%LMQ%plain", [("CQ-MISSING", 0, 1)])):
        pairs = {"INNER_MULTI_DISPATCH": name, "INNER_MULTI_QUEUE_OFFSET": "0"}
        folder = WholeStore([message(0, properties=pairs)]).write(tmp_path / name.strip("%"))
        queue_file(folder, name).unlink()
        (folder / "consumequeue" / name / "0").rmdir()
        (folder / "consumequeue" / name).rmdir()
        assert reported(judge(folder)) == expected


def test_a_topic_that_was_deleted_needs_no_units(tmp_path: Path) -> None:
    topics = {"topics.json": {"topicConfigTable": {"orders": {}}, "dataVersion": {"counter": 1}}}
    folder = WholeStore(many(), configs=topics).write(tmp_path / "store")
    for path in (folder / "consumequeue" / "payments" / "0").iterdir():
        path.unlink()
    assert reported(judge(folder)) == [("CQ-NO-TOPIC", None, 1)]  # one line, info
    # With a single unit left it was not deleted.
    folder = WholeStore(many(), configs=topics).write(tmp_path / "other")
    put(queue_file(folder, "payments"), 0)
    assert ("CQ-MISSING", 0, 1) in reported(judge(folder))


# --- each code, and what is near it -------------------------------------------------------------


def zero_tail(folder: Path) -> None:
    for row in range(2, 7):
        put(queue_file(folder), row)


def shift(folder: Path) -> None:
    path = queue_file(folder)
    path.write_bytes(path.read_bytes()[UNIT:] + bytes(UNIT))


def empty(folder: Path) -> None:
    queue_file(folder).write_bytes(b"")


def cut(folder: Path) -> None:
    queue_file(folder).write_bytes(queue_file(folder).read_bytes()[:-3])


def swap(folder: Path) -> None:
    path, rows = queue_file(folder), units(queue_file(folder))
    put(path, 2, **{key: rows[3][key] for key in ("physical_offset", "size", "tags_code")})
    put(path, 3, **{key: rows[2][key] for key in ("physical_offset", "size", "tags_code")})


def move(by: int, row: int = 3) -> Change:
    def change(folder: Path) -> None:
        path = queue_file(folder)
        put(path, row, physical_offset=units(path)[row].physical_offset + by)

    return change


def to_other_queue(folder: Path) -> None:
    other = units(queue_file(folder, "payments"))[1]
    put(queue_file(folder), 3, physical_offset=other.physical_offset, size=other.size, tags_code=other.tags_code)


# orders/0 has 7 of the 20 messages, in a file of 8 units.
DAMAGE: dict[str, tuple[Change, list[tuple[str, int | None, int]]]] = {
    "a unit that leads into a record": (move(1), [("CQ-MISSING", 3, 1), ("CQ-DANGLING", 3, 1)]),
    "a unit that leads behind the log": (move(1 << 40), [("CQ-MISSING", 3, 1), ("CQ-BEYOND", 3, 1)]),
    "a unit with a negative offset": (move(-1 << 40), [("CQ-MISSING", 3, 1), ("CQ-DANGLING", 3, 1)]),
    "a unit of another queue's message": (
        to_other_queue,
        [("CQ-MISSING", 3, 1), ("CQ-MISMATCH", 3, 1)],
    ),
    "a unit with another size": (lambda f: put(queue_file(f), 3, size=100), [("CQ-MISMATCH", 3, 1)]),
    "a unit with a size of 0": (lambda f: put(queue_file(f), 3, size=0), [("CQ-MISSING", 3, 1), ("CQ-DANGLING", 3, 1)]),
    "a unit with other tags": (lambda f: put(queue_file(f), 3, tags_code=7), [("CQ-TAG", 3, 1)]),
    "a unit that is zero": (lambda f: put(queue_file(f), 3), [("CQ-MISSING", 3, 1), ("CQ-HOLE", 3, 1)]),
    "first units that are zero": (lambda f: put(queue_file(f), 0), [("CQ-MISSING", 0, 1), ("CQ-HOLE", 0, 1)]),
    "last units that are zero": (zero_tail, [("CQ-MISSING", 2, 5)]),
    "units that stand one place too early": (shift, [("CQ-MISSING", 0, 1), ("CQ-SHIFT", 0, 6)]),
    "two units that changed places": (swap, [("CQ-ORDER", 3, 1), ("CQ-SHIFT", 2, 1), ("CQ-SHIFT", 3, 1)]),
    "a file that is gone": (lambda f: queue_file(f).unlink(), [("CQ-MISSING", 0, 7)]),
    "a file that is cut": (cut, [("CQ-SIZE", None, 1)]),
    "a file that is empty": (empty, [("CQ-MISSING", 0, 7), ("CQ-SIZE", None, 1)]),
}
AT_ENDS = (
    "first units that are zero",
    "last units that are zero",
    "units that stand one place too early",
    "a file that is gone",
    "a file that is empty",
)


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_to_a_queue_is_told_once_with_its_place(name: str, folder: Path) -> None:
    change, expected = DAMAGE[name]
    change(folder)
    assert reported(judge(folder)) == expected
    # Inside a queue, what needs the log's side is for level deep.
    shallow = [row for row in expected if row[0] != "CQ-MISSING" or name in AT_ENDS]
    assert reported(judge(folder, "standard")) == shallow
    sizes = [row for row in expected if row[0] == "CQ-SIZE"]
    assert reported(judge(folder, "quick")) == sizes


@pytest.mark.parametrize("name", DAMAGE)
def test_splits_of_any_size_find_the_same(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    DAMAGE[name][0](folder)
    expected = judge(folder)
    for size in (64, 500):
        monkeypatch.setattr(rmqinspect.verify.run, "SPLIT_SIZE", size)
        assert judge(folder).findings.rows == expected.findings.rows


def test_a_lone_wrong_unit_says_where_its_record_stands_and_which_bit_flipped(folder: Path) -> None:
    place = units(queue_file(folder))[3].physical_offset
    move(1 << 40)(folder)
    found = only(judge(folder), "CQ-BEYOND")
    assert (found.expected, found.found) == (str(place), str(place + (1 << 40)))
    assert "one flipped bit explains it: bit 40 of 64 is 1, was 0" in found.message
    assert not judge(folder).loss, "the record is there: nothing is lost"


def test_a_missing_file_between_two_others_is_a_hole(tmp_path: Path) -> None:
    folder = WholeStore([message(n) for n in range(20)]).write(tmp_path / "store")
    queue_file(folder, number=1).unlink()
    outcome = judge(folder)
    assert reported(outcome) == [("CQ-MISSING", 8, 8), ("CQ-HOLE", 8, 8)]
    assert only(outcome, "CQ-HOLE").found == "no file"


def test_units_behind_the_log_are_one_row_a_file_and_one_summary(tmp_path: Path) -> None:
    folder = WholeStore(many(40), segment_size=2048).write(tmp_path / "store")
    last = sorted((folder / "commitlog").iterdir())[-1]
    last.unlink()
    outcome = judge(folder)
    rows = [row for row in outcome.findings.rows if row.code == "CQ-BEYOND"]
    assert len(rows) == len({row.file for row in rows})
    lost = sum(row.count for row in rows)
    assert lost == outcome.units - outcome.joined_units > 3
    assert str(outcome.loss).startswith(f"at least {lost} messages of ")
    assert "were in queues but are not in the log" in str(outcome.loss)


def test_units_into_a_hole_of_the_log_are_its_witnesses(tmp_path: Path) -> None:
    folder = WholeStore(many(40), segment_size=2048).write(tmp_path / "store")
    sorted((folder / "commitlog").iterdir())[1].unlink()
    outcome = judge(folder)
    lost = outcome.units - outcome.joined_units
    assert lost > 3
    assert reported(outcome) == [("CL-HOLE", None, 1)]
    assert f"; the queues say: {lost} messages of orders " in only(outcome, "CL-HOLE").message
    assert only(outcome, "CL-HOLE").message.endswith(" lie here")
    assert not outcome.loss


def test_after_an_unclean_stop_the_newest_records_are_not_missing_yet(tmp_path: Path) -> None:
    stored = WholeStore(many(), dispatched=15, abort=True)
    folder = stored.write(tmp_path / "store")
    outcome = judge(folder)
    assert reported(outcome) == [("CQ-BEHIND", None, 5)]
    assert outcome.verdict == "WHOLE"
    # A clean stop leaves nothing behind.
    clean = judge(replace(stored, abort=False).write(tmp_path / "clean"))
    assert sum(count for code, _, count in reported(clean) if code == "CQ-MISSING") == 5
    assert clean.verdict.startswith("DAMAGED")


def test_a_hole_before_the_newest_unit_is_missing_after_an_unclean_stop_too(tmp_path: Path) -> None:
    folder = WholeStore(many(), dispatched=15, abort=True).write(tmp_path / "store")
    put(queue_file(folder), 2)
    assert reported(judge(folder)) == [("CQ-MISSING", 2, 1), ("CQ-BEHIND", None, 5), ("CQ-HOLE", 2, 1)]


def test_what_the_checkpoint_says_was_flushed_is_not_behind(tmp_path: Path) -> None:
    """An unclean start reads from the checkpoint on: what lies before it stays without a unit."""
    folder = WholeStore(many(), abort=True).write(tmp_path / "store")
    for path in (folder / "consumequeue").rglob("0*"):
        if path.is_file():
            path.unlink()
    codes = {code for code, _, _ in reported(judge(folder))}
    assert "CQ-MISSING" in codes


def test_expired_units_and_offset_0_are_one_info_row_each(tmp_path: Path) -> None:
    folder = WholeStore(many(40), segment_size=2048).write(tmp_path / "store")
    sorted((folder / "commitlog").iterdir())[0].unlink()
    outcome = judge(folder)
    (first, _, number), *expired = reported(outcome)
    assert first == "CL-FIRST"  # a warning: the messages were too young for a retention
    assert [code for code, _, _ in expired] == ["CQ-EXPIRED", "CQ-ZERO-BEHIND"]
    assert number == 1
    assert sum(count for _, _, count in expired) == outcome.units - outcome.joined_units
    assert outcome.verdict == "WHOLE, 1 WARNING"


# --- tags, delays, batches ----------------------------------------------------------------------


def delayed(tmp_path: Path) -> tuple[Path, Path]:
    pieces = [message(n, topic=SCHEDULE_TOPIC, queue_id=2, properties=DELAYED) for n in range(4)]
    folder = WholeStore(pieces).write(tmp_path / "store")
    return folder, queue_file(folder, SCHEDULE_TOPIC, 2)


@pytest.mark.parametrize("bit", [0, 3, 9, 20, 40, 62])
def test_a_delay_that_is_not_of_whole_seconds_is_told(bit: int, tmp_path: Path) -> None:
    folder, path = delayed(tmp_path)
    put(path, 1, tags_code=units(path)[1].tags_code ^ 1 << bit)
    assert only(judge(folder), "CQ-TAG").queue_offset == 1


def test_delays_of_another_table_are_silent(tmp_path: Path) -> None:
    folder, path = delayed(tmp_path)
    for row in range(4):
        put(path, row, tags_code=units(path)[row].tags_code + 7_000 * row)
    assert reported(judge(folder)) == []


def test_a_record_of_the_schedule_topic_without_a_level_has_the_hash_of_its_tags(tmp_path: Path) -> None:
    pieces = [message(n, topic=SCHEDULE_TOPIC, queue_id=2) for n in range(2)]
    folder = WholeStore(pieces).write(tmp_path / "store")
    path = queue_file(folder, SCHEDULE_TOPIC, 2)
    for row in range(2):
        put(path, row, tags_code=java_string_hash(f"tag{row}"))
    assert reported(judge(folder)) == []


def test_the_plain_hash_of_a_delayed_message_depends_on_the_version(tmp_path: Path) -> None:
    folder, path = delayed(tmp_path)
    put(path, 1, tags_code=java_string_hash("tag1"))
    for version, expected in (("4.9.7", []), ("5.3.3", []), ("4.7.1", [("CQ-TAG", 1, 1)])):
        assert reported(judge(folder, broker_version=version)) == expected


# --- overlaps, lost places, what cannot be read -----------------------------------------------------


def test_a_segment_in_two_paths_has_its_units_once(folder: Path, tmp_path: Path) -> None:
    (folder / "commitlog" / "copy").mkdir()
    first = sorted((folder / "commitlog").glob("0*"))[0]
    other = tmp_path / "more" / "commitlog"
    other.mkdir(parents=True)
    (folder / "commitlog" / "copy").rmdir()
    (other / first.name).write_bytes(first.read_bytes())
    outcome = verify(open_store([str(folder), str(other)]), VerifyOptions(level="deep"))
    assert {row.code for row in outcome.findings.rows if row.severity != "info"} <= {"CL-DUPLICATE", "CL-QUEUE-OFFSET"}
    assert outcome.joined_units == outcome.units


def test_a_segment_that_is_too_long_does_not_end_the_reading(tmp_path: Path) -> None:
    folder = WholeStore(many(40), segment_size=2048).write(tmp_path / "store")
    paths = sorted((folder / "commitlog").iterdir())
    paths[0].write_bytes(paths[0].read_bytes() + bytes(700))
    outcome = judge(folder)
    assert len(outcome.accounts) == len(paths)
    assert {row.code for row in outcome.findings.rows} == {"CL-SIZE"}
    assert outcome.joined_units == outcome.units


def test_records_of_a_topic_before_it_was_made_again_need_no_units(tmp_path: Path) -> None:
    old, new = [message(n) for n in range(5)], [message(10 + n, queue_offset=n) for n in range(3)]
    folder = WholeStore([*old, *new]).write(tmp_path / "store")
    path = queue_file(folder)
    rows = path.read_bytes()
    path.write_bytes(rows[5 * UNIT : 8 * UNIT].ljust(len(rows), b"\0"))
    outcome = judge(folder)
    assert outcome.verdict == "WHOLE"
    assert reported(outcome) == [("CL-QUEUE-OFFSET", 0, 1)]


def test_names_of_properties_that_look_like_others_are_not_taken_for_them(tmp_path: Path) -> None:
    odd = 0x9E3779B97F4A7C15
    for wanted in (b"KEYS", b"TAGS", b"UNIQ_KEY", b"INNER_MULTI_QUEUE_OFFSET"):
        number = (int.from_bytes(wanted[:8].ljust(8, b"\0"), "little") * odd + len(wanted) - 8) * pow(odd, -1, 1 << 64)
        name = (number % (1 << 64)).to_bytes(8, "little")
        text = name + b"\1" + b"1" + b"\2"
        folder = WholeStore([{"topic": "orders", "properties": text}]).write(tmp_path / wanted.decode())
        assert [code for code, _, _ in reported(judge(folder)) if code != "CL-FIELD"] == []


INNER = int(SysFlag.INNER_BATCH | 0x40)


def batch_store(folder: Path, **changes: int) -> Path:
    """Two inner batches of 3 and 2 messages; `changes` are of the second unit."""
    pieces = [
        message(
            n,
            topic="bulk",
            queue_offset=base,
            sys_flag=INNER,
            properties={"INNER_NUM": str(number), "INNER_BASE": str(base)},
        )
        for n, (base, number) in enumerate(((0, 3), (3, 2)))
    ]
    stored = WholeStore(pieces)
    stored.write(folder)
    home = folder / "batchconsumequeue" / "bulk" / "0"
    home.mkdir(parents=True)
    plain = units(queue_file(folder, "bulk"))
    raw = b""
    for row, unit, base, number in ((0, plain[0], 0, 3), (1, plain[1], 3, 2)):
        fields = {
            "physical_offset": unit.physical_offset,
            "size": unit.size,
            "tags_code": unit.tags_code,
            "store_timestamp": STORED + row,
            "queue_offset": base,
            "message_count": number,
            "compacted_offset": -1,
            "reserved": 0,
        }
        raw += BatchUnit.build({**fields, **(changes if row else {})})
    (home / f"{0:020}").write_bytes(raw.ljust(8 * BatchUnit.sizeof(), b"\0"))
    queue_file(folder, "bulk").unlink()
    (folder / "consumequeue" / "bulk" / "0").rmdir()
    (folder / "consumequeue" / "bulk").rmdir()
    return folder


BATCH_DAMAGE: dict[str, tuple[dict[str, int], set[str]]] = {
    "none": ({}, set()),
    "another count": ({"message_count": 3}, {"BQ-COUNT"}),
    "another base": ({"queue_offset": 4}, {"BQ-COUNT", "CQ-SHIFT"}),
    "an earlier time": ({"store_timestamp": STORED - 1}, {"CQ-MISMATCH"}),
    "a later time": ({"store_timestamp": STORED + 5}, {"CQ-MISMATCH"}),
    "the first record again": ({"physical_offset": 0}, {"CQ-SHIFT", "CQ-MISSING"}),
    "an offset inside a record": ({"physical_offset": 9}, {"CQ-DANGLING", "CQ-MISSING"}),
}


@pytest.mark.parametrize("name", BATCH_DAMAGE)
def test_batch_units(name: str, tmp_path: Path) -> None:
    changes, expected = BATCH_DAMAGE[name]
    assert {code for code, _, _ in reported(judge(batch_store(tmp_path / "store", **changes)))} >= expected
    if not expected:
        assert reported(judge(tmp_path / "store")) == []


def test_batch_units_that_changed_places(tmp_path: Path) -> None:
    folder = batch_store(tmp_path / "store")
    path = next((folder / "batchconsumequeue").rglob("0" * 20))
    raw, size = path.read_bytes(), BatchUnit.sizeof()
    path.write_bytes(raw[size : 2 * size] + raw[:size] + raw[2 * size :])
    assert {code for code, _, _ in reported(judge(folder))} == {"BQ-ORDER", "BQ-COUNT"}


# --- many and few ---------------------------------------------------------------------------------


def test_ten_thousand_bad_units_are_few_rows_with_exact_counts(tmp_path: Path) -> None:
    folder = WholeStore(many(3)).write(tmp_path / "store")
    row = QueueUnit.build({"physical_offset": 1 << 40, "size": 100, "tags_code": 0})
    queue_file(folder).write_bytes(row * 10_000)
    outcome = judge(folder, "standard", max_findings=5)
    assert outcome.findings.counts["CQ-BEYOND"] == 10_000
    assert sum(row.code == "CQ-BEYOND" for row in outcome.findings.rows) == 1
    assert all(sum(row.code == code for row in outcome.findings.rows) <= 5 for code in outcome.findings.counts)


def test_a_queue_folder_without_its_log_is_judged_by_itself(folder: Path) -> None:
    put(queue_file(folder), 3)
    outcome = judge(folder / "consumequeue" / "orders" / "0", "standard")
    assert reported(outcome) == [("CQ-HOLE", 3, 1)]
