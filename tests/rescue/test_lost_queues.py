"""A queue all of whose messages are lost keeps its offsets: its units lead to none, and a pull goes on behind them."""

import json
import shutil
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rmqinspect.broker.pull import Pull, Subscription
from rmqinspect.codec.layout import dtype_of
from rmqinspect.find.pull_answers import asked_queue
from rmqinspect.schemas.consumequeue import BatchUnit, QueueUnit
from rmqinspect.store.discover import open_store
from rmqinspect.verify.result import VerifyOptions
from rmqinspect.verify.run import verify
from tests.rescue.test_salvage import salvage
from tests.support import oracle
from tests.support.judge import Queue, Span, judge
from tests.support.pull_answers import answer_to
from tests.support.real_brokers import RELEASES, RealBrokers
from tests.support.rocksdb import needs_rocksdict
from tests.support.sampling import rare, sampled
from tests.support.truths import Record, records_of, truth_of
from tests.support.whole_stores import WholeStore

ROWS = 8  # units in a queue file
LOST = ("B", 0)
_UNIT = dtype_of(QueueUnit)
SETTINGS = {"mappedFileSizeConsumeQueue": ROWS * _UNIT.itemsize, "maxHashSlotNum": 7, "maxIndexNum": 24}


def pieces(count: int = 60) -> list[dict[str, Any]]:
    """Return messages of three queues, in turn."""
    queues = (("A", 0), ("A", 1), LOST)
    return [
        {
            "topic": queues[number % 3][0],
            "queue_id": queues[number % 3][1],
            "body": b"message %03d " % number + bytes(60),
            "properties": {"KEYS": f"K{number}", "UNIQ_KEY": f"U{number:05}"},
        }
        for number in range(count)
    ]


def write(folder: Path, segment_size: int, *, base: int = 0, count: int = 60) -> tuple[Path, list[Record]]:
    root = WholeStore(pieces(count), segment_size=segment_size, queue_rows=ROWS, base=base).write(folder / "store")
    return root, records_of(root)


def overwrite(root: Path, place: int, new: bytes) -> None:
    path = max(path for path in (root / "commitlog").iterdir() if int(path.name) <= place)
    raw, at = bytearray(path.read_bytes()), place - int(path.name)
    raw[at : at + len(new)] = new
    path.write_bytes(raw)


def lose(root: Path, records: Collection[Record], queue: Queue = LOST) -> int:
    """Put zeros in the place of all records of a queue; return where the queue ended."""
    of_queue = [(record, one, taken) for record in records for one, taken in record.messages if one[:2] == queue]
    for record, _, _ in of_queue:
        overwrite(root, record.physical_offset, bytes(len(record.raw)))
    return max(one.queue_offset + taken for _, one, taken in of_queue)


def forget(root: Path, queue: Queue = LOST) -> None:
    """Remove the files of a queue."""
    folder = root / "consumequeue" / queue[0] / str(queue[1])
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()


def commit(root: Path, offset: int, queue: Queue = LOST) -> None:
    """Let a group have consumed up to an offset."""
    (root / "config").mkdir(exist_ok=True)
    table = {f"{queue[0]}@group": {str(queue[1]): offset}}
    (root / "config/consumerOffset.json").write_text(json.dumps({"offsetTable": table}))
    (root / "config/topics.json").write_text(json.dumps({"topicConfigTable": {queue[0]: {"topicName": queue[0]}}}))


def units_of(root: Path, queue: Queue = LOST) -> dict[int, tuple[int, ...]]:
    """Return the units of a queue that are of messages, by queue offset."""
    found: dict[int, tuple[int, ...]] = {}
    folder = root / "consumequeue" / queue[0] / str(queue[1])
    for path in sorted(folder.iterdir()) if folder.exists() else ():
        first = int(path.name) // _UNIT.itemsize
        units = np.frombuffer(path.read_bytes(), _UNIT).tolist()
        found |= {first + row: unit for row, unit in enumerate(units) if 0 < unit[1] < 0x7FFFFFFF}
    return found


def test_the_units_of_a_lost_queue_lead_over_the_end_of_a_segment(tmp_path: Path) -> None:
    root, records = write(tmp_path, 4096)
    end, base = lose(root, records), records[-1].physical_offset // 4096 * 4096
    made, _ = salvage(tmp_path / "new", root, release="5.3.3")
    assert made.holds
    assert not made.is_complete
    assert units_of(tmp_path / "new") == dict.fromkeys(range(end), (base - 1, 2, 0))
    assert [(row.topic, row.kept, row.lost) for row in made.receipt.lost_offsets] == [("B", 0, [*range(end)])]
    assert (
        f"B queue 0: no message is left; its queue offsets 0 to {end - 1} lead to none, so that it goes on at {end}"
        in made.receipt.notes
    )
    findings = verify(open_store([str(tmp_path / "new")]), VerifyOptions("deep")).findings.rows
    noted = [(one.code, one.severity, one.count) for one in findings if one.code.startswith("CQ-")]
    assert noted and {one[:2] for one in noted} == {("CQ-DANGLING", "info")}
    assert sum(one[2] for one in noted) == end


def test_a_pull_goes_on_behind_them(tmp_path: Path) -> None:
    root, records = write(tmp_path, 4096)
    end = lose(root, records)
    salvage(tmp_path / "new", root, release="5.3.3")
    store = open_store([str(tmp_path / "new")])
    for offset in (0, 3, end - 1):
        with asked_queue(store, *LOST, None) as queue:
            answers = {
                (one.status, one.next_offset, one.max_offset)
                for one in map(answer_to, queue.pull(Pull(offset, 32, Subscription.parse("*"))))
            }
            behind = min(end, offset - offset % ROWS + ROWS)  # no pull reads over the end of a queue file
            assert answers == {("MESSAGE_WAS_REMOVING", behind, end)}


@pytest.mark.parametrize("base", [0, 1 << 16])
def test_a_log_of_one_segment_gets_a_second_one_for_them(base: int, tmp_path: Path) -> None:
    root, records = write(tmp_path, 1 << 16, base=base)
    end = lose(root, records)
    dry, _ = salvage(tmp_path / "new", root, release="5.3.3", dry_run=True)
    made, _ = salvage(tmp_path / "new", root, release="5.3.3")
    assert made.holds
    assert units_of(tmp_path / "new") == dict.fromkeys(range(end), (base + (1 << 16) - 1, 2, 0))
    names = sorted(int(path.name) for path in (tmp_path / "new/commitlog").iterdir())
    assert names == [base, base + (1 << 16)]
    assert base + (1 << 16) < made.receipt.log_end < base + (1 << 16) + 200
    assert (dry.receipt.bridged, dry.receipt.log_end) == (made.receipt.bridged, made.receipt.log_end)


def test_a_queue_with_a_message_is_none_of_them_and_adds_no_segment(tmp_path: Path) -> None:
    """The unit of the one record that is left is lost: only the log says that it is there."""
    root, records = write(tmp_path, 1 << 16)
    end = lose(root, records[:-3])
    name, at = divmod(end * _UNIT.itemsize, ROWS * _UNIT.itemsize)
    path = root / "consumequeue/B/0" / f"{name * ROWS * _UNIT.itemsize:020}"
    path.write_bytes(path.read_bytes()[:at].ljust(ROWS * _UNIT.itemsize, b"\0"))
    made, _ = salvage(tmp_path / "new", root, release="5.3.3")
    assert made.holds
    assert len([*(tmp_path / "new/commitlog").iterdir()]) == 1
    assert units_of(tmp_path / "new")[end][0] == records[-1].physical_offset
    assert all(unit[1] > 2 for unit in units_of(tmp_path / "new").values())


def test_without_its_files_the_heads_of_its_damaged_records_tell(tmp_path: Path) -> None:
    root, records = write(tmp_path, 4096)
    end = lose(root, records)
    for record in records:
        for one, _ in record.messages:
            if one.topic == "B" and 5 <= one.queue_offset < 12:
                overwrite(root, record.physical_offset, record.raw[:90] + b"?" * 8 + record.raw[98:])
    forget(root)
    made, _ = salvage(tmp_path / "new", root, release="5.3.3")
    assert made.holds
    assert end > 12
    assert [*units_of(tmp_path / "new")] == [*range(5, 12)]


def test_consumer_offsets_are_the_last_resort_and_it_says_so(tmp_path: Path) -> None:
    root, records = write(tmp_path, 4096)
    end = lose(root, records)
    forget(root)
    commit(root, end - 2)
    made, _ = salvage(tmp_path / "new", root, release="5.3.3")
    assert made.holds
    assert [*units_of(tmp_path / "new")] == [end - 3]
    assert [note for note in made.receipt.notes if f"goes on at {end - 2}; only consumer offsets say so" in note]


@pytest.mark.parametrize("named", ["B", "no-such-topic"])
def test_consumer_offsets_make_no_queue_of_a_topic_that_is_gone_or_of_a_sound_log(named: str, tmp_path: Path) -> None:
    root, records = write(tmp_path, 4096)
    if named == "no-such-topic":
        lose(root, records, ("A", 1))
    commit(root, 30, (named, 3))
    if named == "no-such-topic":
        (root / "config/topics.json").write_text('{"topicConfigTable":{}}')
    made, _ = salvage(tmp_path / "new", root, release="5.3.3")
    assert made.holds
    assert not units_of(tmp_path / "new", (named, 3))


def test_a_queue_whose_messages_have_expired_goes_on_where_it_ended(tmp_path: Path) -> None:
    root, records = write(tmp_path, 4096, count=90)
    first = sorted((root / "commitlog").iterdir())[0]
    kept = [record for record in records if record.physical_offset >= 4096]
    end = lose(root, kept)
    before = {offset: unit for offset, unit in units_of(root).items() if unit[0] < 4096}
    for path in (root / "consumequeue/B/0").iterdir():
        units = np.frombuffer(path.read_bytes(), _UNIT).copy()
        units[units["physical_offset"] >= 4096] = np.zeros(1, _UNIT)
        path.write_bytes(units.tobytes())
    first.unlink()
    made, _ = salvage(tmp_path / "new", root, release="5.3.3")
    assert made.holds
    assert end > len(before) > 1
    offset, unit = max(before.items())
    assert units_of(tmp_path / "new") == {offset: unit}
    assert [row.topic for row in made.receipt.lost_offsets] == []


def test_of_a_queue_that_is_half_lost_the_offset_of_a_group_stays_valid(tmp_path: Path) -> None:
    root, records = write(tmp_path, 4096)
    of_queue = [record for record in records if record.messages[0][0][:2] == LOST]
    end = lose(root, of_queue[len(of_queue) // 2 :])
    commit(root, end - 1)
    made, _ = salvage(tmp_path / "new", root, release="5.3.3")
    assert made.holds
    assert [*units_of(tmp_path / "new")] == [*range(end)]
    store = open_store([str(tmp_path / "new")])
    with asked_queue(store, *LOST, "5.3.3") as queue:
        (one,) = map(answer_to, queue.pull(Pull(end - 1, 32, Subscription.parse("*"))))
        assert (one.status, one.next_offset) == ("FOUND", end)


# --- units of lost messages are no damage ---------------------------------------------------------


def test_however_many_units_have_a_neighbour_s_the_store_is_whole(tmp_path: Path) -> None:
    """Of each hole there is one note; those over the limit of a code are no errors."""
    root, records = write(tmp_path, 4096, count=120)
    of_queue = [record for record in records if record.messages[0][0][:2] == LOST]
    gone = [record for number, record in enumerate(of_queue[:-1]) if number % 4]
    lose(root, gone)
    made, _ = salvage(tmp_path / "new", root, release="5.3.3")
    assert made.holds
    for limit in (1, 1000):
        options = VerifyOptions("deep", max_findings=limit)
        result = verify(open_store([str(tmp_path / "new")]), options)
        assert (result.verdict, result.findings.counts["CQ-SHIFT"]) == ("WHOLE", len(gone))
        assert {one.severity for one in result.findings.rows} == {"info"}


def test_a_hole_over_files_and_segments_is_whole(tmp_path: Path) -> None:
    root, _ = write(tmp_path, 4096, count=160)
    for path in sorted((root / "commitlog").iterdir())[1:-1]:
        path.unlink()
    made, _ = salvage(tmp_path / "new", root, release="5.3.3")
    assert made.holds
    assert max(len(row.lost) for row in made.receipt.lost_offsets) > 3 * ROWS


def test_units_that_lead_to_one_record_are_errors_where_no_bridge_stands(tmp_path: Path) -> None:
    root, _ = write(tmp_path, 4096)
    path = root / "consumequeue/B/0" / f"{0:020}"
    raw = path.read_bytes()
    path.write_bytes(raw[:20] + raw[60:80] * 2 + raw[60:])
    findings = verify(open_store([str(root)]), VerifyOptions("deep")).findings.rows
    shifted = [(one.queue_offset, one.expected, one.severity) for one in findings if one.code == "CQ-SHIFT"]
    assert shifted == [(1, "3", "error"), (2, "3", "error")]


# --- batch queues ---------------------------------------------------------------------------------


def _batches(folder: Path) -> tuple[Path, list[Record]]:
    """Return a store with a batch queue, and its records: 20 batches of three messages."""
    batches = [
        {
            "topic": "batches",
            "queue_offset": 3 * number,
            "sys_flag": 0xC0,
            "properties": {"INNER_NUM": "3", "INNER_BASE": str(3 * number)},
            "body": b"batch %03d" % number,
        }
        for number in range(20)
    ]
    topics = {"topicConfigTable": {"batches": {"topicName": "batches", "attributes": {"queue.type": "BatchCQ"}}}}
    batches.append({"topic": "other", "body": b"not lost"})
    root = WholeStore(batches, segment_size=1024, configs={"topics.json": topics}).write(folder / "log")
    shutil.rmtree(root / "consumequeue")
    salvage(folder / "store", root, release="5.3.3")
    return folder / "store", records_of(folder / "store")[:-1]


def _batch_units(root: Path) -> list[tuple[int, int, int]]:
    """Return (physical offset, first queue offset, messages) of the units of the batch queue."""
    paths = sorted((root / "batchconsumequeue/batches/0").iterdir())
    units = np.concatenate([np.fromfile(path, dtype_of(BatchUnit)) for path in paths])
    units = units[units["size"] > 0]
    return [(int(one["physical_offset"]), int(one["queue_offset"]), int(one["message_count"])) for one in units]


@pytest.mark.parametrize("gone", [(-3, None), (3, 6), (0, 2), (0, None)], ids=["end", "middle", "begin", "all"])
def test_a_batch_queue_keeps_its_offsets(gone: tuple[int, int | None], tmp_path: Path) -> None:
    root, records = _batches(tmp_path)
    before = _batch_units(root)
    assert len(before) == 20
    lost = records[slice(*gone)]
    lose(root, lost, ("batches", 0))
    made, _ = salvage(tmp_path / "new", root, release="5.3.3")
    assert made.holds
    after = _batch_units(tmp_path / "new")
    places = {record.physical_offset for record in lost}
    sound = [unit for unit in before if unit[0] not in places]
    assert [unit for unit in after if unit in sound] == sound
    assert after[-1][1] + after[-1][2] == 60
    if gone == (-3, None):
        assert after[-1] == (sound[-1][0], 51, 9)
    if gone == (0, None):
        assert [unit[1:] for unit in after] == [(offset, 1) for offset in range(60)]


# --- real brokers judge ---------------------------------------------------------------------------


def _judged(
    brokers: RealBrokers,
    release: str,
    root: Path,
    records: list[Record],
    settings: dict[str, Any],
    ends: dict[Queue, int],
    *,
    clean: bool,
) -> list[str]:
    """Salvage a store that lost all records of a queue, and return what a broker finds wrong."""
    config, new = root.parent / "broker.conf", root.parent / "new"
    config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    made, _ = salvage(new, root, release=release, config=str(config))
    assert made.holds
    truth = truth_of(records, root, release=release)
    spans = {**truth.next_offsets, **{queue: Span(end, end) for queue, end in ends.items()}}
    truth = replace(truth, next_offsets=spans)
    return judge(brokers, release, new, truth, settings, unclean=(not clean, True))


@pytest.mark.broker
@pytest.mark.parametrize(
    ("release", "which", "clean"),
    sampled([(release, which, clean) for release in RELEASES for which in (0, -1) for clean in (True, False)], 9),
)
def test_brokers_go_on_behind_a_lost_queue(
    release: str, which: int, clean: bool, real_brokers: RealBrokers, tmp_path: Path
) -> None:
    name = f"base-{release}-clean"
    root, settings = oracle.copy("crash", name, tmp_path), dict(oracle.case("crash", name)["settings"])
    records = records_of(root)
    queue = sorted({one[:2] for record in records for one, _ in record.messages})[which]
    end = lose(root, records, queue)
    assert _judged(real_brokers, release, root, records, settings, {queue: end}, clean=clean) == []


@pytest.mark.broker
@pytest.mark.parametrize(
    ("release", "base", "clean"),
    [("4.9.7", 0, False), ("5.5.0", 1 << 16, True), *map(rare, [(one, 0, way) for one in RELEASES for way in (0, 1)])],
)
def test_brokers_go_on_behind_a_lost_queue_of_a_log_of_one_segment(
    release: str, base: int, clean: bool, real_brokers: RealBrokers, tmp_path: Path
) -> None:
    root, records = write(tmp_path, 1 << 16, base=base)
    end = lose(root, records)
    settings = {"mappedFileSizeCommitLog": 1 << 16} | SETTINGS
    assert _judged(real_brokers, release, root, records, settings, {LOST: end}, clean=clean) == []


BATCHES = {
    "count": 100,
    "kinds": {"inner_batch": 1, "normal": 1},
    "batch_topics": {"batches": 2},
    "body_max": 100,
    "end": "halt",
}
OTHERS = {"mappedFileSizeCommitLog": 1 << 14, "mapperFileSizeBatchConsumeQueue": 460}


@pytest.mark.broker
@pytest.mark.parametrize(
    ("release", "gone"),
    [
        ("5.3.3", slice(-3, None)),
        *map(
            rare, [("5.3.3", slice(None)), ("5.3.3", slice(3, 5)), ("5.5.0", slice(-3, None)), ("5.1.4", slice(None))]
        ),
    ],
    ids=str,
)
def test_brokers_go_on_behind_lost_batches(
    release: str, gone: slice, real_brokers: RealBrokers, tmp_path: Path
) -> None:
    settings = OTHERS | SETTINGS
    real_brokers.write_store(release, tmp_path / "written", BATCHES, settings)
    root = shutil.copytree(tmp_path / "written", tmp_path / "store")  # the store that wrote may still hold its lock
    records = records_of(root)
    ends = {one[:2]: one.queue_offset + taken for record in records for one, taken in record.messages}
    of_queue = [record for record in records if record.messages[0][0][:2] == ("batches", 0)]
    lose(root, of_queue[gone], ("batches", 0))
    assert _judged(real_brokers, release, root, records, settings, ends, clean=False) == []


@pytest.mark.broker
@needs_rocksdict
@pytest.mark.parametrize("release", sampled(["5.3.3", "5.5.0"], 2))
def test_brokers_go_on_behind_a_lost_queue_in_rocksdb(release: str, real_brokers: RealBrokers, tmp_path: Path) -> None:
    settings = OTHERS | SETTINGS | {"storeType": "defaultRocksDB"}
    spec = {"count": 100, "kinds": {"normal": 1}, "topics": {"A": 2, "B": 1}, "settle_millis": 2500, "body_max": 100}
    real_brokers.write_store(release, tmp_path / "written", spec, settings)
    root = shutil.copytree(tmp_path / "written", tmp_path / "store")
    records = records_of(root)
    end = lose(root, records)
    assert _judged(real_brokers, release, root, records, settings, {LOST: end}, clean=False) == []


def test_without_its_topic_a_batch_queue_becomes_a_plain_one_and_that_is_said(tmp_path: Path) -> None:
    store = oracle.copy("broker", "main-5.3.3", tmp_path)
    for path in (store / "config").glob("topics.json*"):
        path.unlink()
    made, _ = salvage(tmp_path / "new", store)
    (note,) = (one for one in made.receipt.notes if "no topics.json" in one)
    assert "QuoteBcq had batch queues" in note
    assert not (tmp_path / "new/batchconsumequeue").exists()
