"""The `broker` lines of findings, against outcomes that say what a start does."""

import pytest
from msgspec.structs import replace

from rmqinspect.forecast.outcome import Forecast, Losses, Outcome, QueueOutcome, Refusal
from rmqinspect.verify.broker_lines import PLACES, BrokerLines, join_eras
from rmqinspect.verify.codes import BY_CODE
from rmqinspect.verify.findings import Finding

# Four segments of 100 bytes are left; the scan began at 200 and ended at 350, two segments behind are deleted.
CUT = Outcome(
    "5.3.3",
    "5.2.0 to 5.3.3",
    clean_exit=False,
    scan_start=200,
    end_offset=350,
    dispatch_start=200,
    segments_after=[0, 100, 200, 300],
    deleted_segments=[400, 500],
    deleted_files=["commitlog/400", "commitlog/500", "consumequeue/A/0/600", "index/3"],
    losses=Losses(messages=145, by_topic={"A": 100, "B": 45}),
    queues=[
        QueueOutcome("A", 0, 0, 50, 10, 42, cut=10, added=2, stays=40, given_twice=8),
        QueueOutcome("B", 0, 0, 9, 0, 0, cut=9, given_twice=9),
    ],
    index_files_after=["2"],
    deleted_index_files=["3"],
)


def line(finding: Finding, *outcomes: Outcome) -> str | None:
    return BrokerLines(Forecast(list(outcomes or (CUT,)))).line(finding)


def in_log(at: int, code: str = "CL-MAGIC", **more: object) -> Finding:
    return replace(Finding(code, "", "", f"commitlog/{at // 100 * 100}", at % 100, 1, at), **more)


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        (150, "not read by this start: its scan begins behind it, at segment 200"),
        (200, "read by this start, and not noticed"),
        (350, "this start ends the log here: 145 messages of 2 topics from here on are lost"),
        (360, "not read by this start: the log ends before it, at 350"),
        (420, "deleted by this start with its segment: it ends the log before it, at 350"),
    ],
)
def test_a_place_in_the_log(at: int, expected: str) -> None:
    assert line(in_log(at)) == expected


def test_a_run_of_findings_in_which_the_log_ends() -> None:
    words = line(in_log(340, length=30, count=3))
    assert words == (
        "this start ends the log at 350, within these bytes: 145 messages of 2 topics from here on are lost"
    )


def test_losses_that_are_none_or_were_not_counted() -> None:
    assert (
        line(in_log(350), replace(CUT, losses=Losses()))
        == "this start ends the log here: no record of the log is cut off"
    )
    words = line(in_log(350), replace(CUT, losses_counted=False))
    assert words == "this start ends the log here: what is lost by it was not counted"


def test_a_place_before_the_scan_that_dispatch_reads() -> None:
    words = line(in_log(150), replace(CUT, dispatch_start=100))
    assert words == "not scanned by this start, which begins at segment 200; its dispatch reads it"


def test_a_segment_that_is_not_loaded() -> None:
    few = replace(CUT, segments_after=[0], deleted_segments=[], ignored_files=["commitlog/100", "commitlog/200"])
    assert line(in_log(120), few) == "not read by this start: its segment is not loaded"
    assert line(Finding("CL-SIZE", "", file="commitlog/100"), few) == "not loaded by this start, with 1 other file"


def test_a_hole_has_no_segment_that_could_be_loaded() -> None:
    hole = Finding("CL-HOLE", "", file="commitlog/250", physical_offset=250, length=50)
    words = "not noticed by this start: it goes on with the segment behind it"
    assert line(hole) == f"{words}; {BY_CODE['CL-HOLE'].client}"


def test_what_clients_get_follows_where_the_damage_stays() -> None:
    words = line(in_log(210, "CL-CRC-BODY"))
    assert words == f"read by this start, and not noticed; {BY_CODE['CL-CRC-BODY'].client}"
    assert BY_CODE["CL-CRC-BODY"].client not in (line(in_log(350, "CL-CRC-BODY")) or "")


def test_eras_that_differ_are_named() -> None:
    young = replace(CUT, release="5.5.0", era="5.5.0", scan_start=300, dispatch_start=300)
    assert line(in_log(210), CUT, young) == (
        "5.2.0 to 5.3.3: read by this start, and not noticed; "
        "5.5.0: not read by this start: its scan begins behind it, at segment 300"
    )
    assert line(in_log(310), CUT, young) == "read by this start, and not noticed"


def test_neighbouring_eras_are_joined() -> None:
    eras = ["5.2.0 to 5.3.1", "5.3.2 to 5.3.3", "5.4.0", "5.5.0"]
    assert join_eras(eras, [0, 1]) == "5.2.0 to 5.3.3"
    assert join_eras(eras, [0, 1, 3]) == "5.2.0 to 5.3.3, 5.5.0"
    assert join_eras(eras, [2]) == "5.4.0"


def unit(at: int, topic: str = "A", number: int = 1) -> Finding:
    return Finding(
        "CQ-HOLE", "", file=f"consumequeue/{topic}/0/0", topic=topic, queue_id=0, queue_offset=at, count=number
    )


@pytest.mark.parametrize(
    ("finding", "expected"),
    [
        (unit(5), "kept by this start, before the queue's minimum 10: not served"),
        (unit(20), "kept by this start as it is"),
        (
            unit(41),
            "this start cuts the queue at 40 and writes 2 units behind that, 10 units lost; "
            "it goes on at 42: 8 queue offsets given out twice",
        ),
        (
            unit(38, number=4),
            "this start cuts the queue at 40 and writes 2 units behind that, 10 units lost; "
            "it goes on at 42: 8 queue offsets given out twice; the units before that are kept as they are",
        ),
        (
            unit(3, "B"),
            "this start empties the queue, 9 units lost; the queue starts again at 0: 9 queue offsets given out twice",
        ),
        (replace(unit(3), file="consumequeue/A/0/600"), "this start deletes the file of the unit"),
    ],
)
def test_a_unit_of_a_queue(finding: Finding, expected: str) -> None:
    assert line(finding) == expected


@pytest.mark.parametrize(
    ("finding", "expected"),
    [
        (
            Finding("CQ-BEHIND", "", physical_offset=210, topic="A", queue_id=0, queue_offset=40, count=2),
            "this start adds 2 units to the queue, which then ends at 42; "
            "it goes on at 42: 8 queue offsets given out twice",
        ),
        (
            Finding("CQ-BEHIND", "", physical_offset=210, topic="C", queue_id=0, queue_offset=0),
            "this start adds no unit to the queue",
        ),
        (
            Finding("CQ-BEHIND", "", physical_offset=350, topic="A", queue_id=0, queue_offset=44),
            "this start ends the log here: 145 messages of 2 topics from here on are lost",
        ),
        (
            Finding("CQ-BEHIND", "", physical_offset=410, topic="A", queue_id=0, queue_offset=44),
            "deleted by this start with its segment: it ends the log before it, at 350",
        ),
    ],
)
def test_records_without_a_unit(finding: Finding, expected: str) -> None:
    assert line(finding) == expected


def test_index_files() -> None:
    assert line(Finding("IX-SIZE", "", file="index/2")) == "this start keeps the file as it is"
    again = "and indexes again only records from 200 on"
    assert line(Finding("IX-SIZE", "", file="index/3")) == f"this start deletes the file, {again}"
    nothing = replace(CUT, dispatch_start=None)
    assert line(Finding("IX-SIZE", "", file="index/3"), nothing) == (
        "this start deletes the file, and indexes nothing again"
    )


def test_a_broker_that_does_not_start() -> None:
    refusal = Refusal("commitlog/100", "wrong_length", "its length is 7, not 100", "remove it")
    refused = replace(CUT, refusal=refusal)
    assert line(Finding("CL-SIZE", "", file="commitlog/100"), refused) == (
        "the broker does not start: its length is 7, not 100"
    )
    assert line(in_log(350), refused) == "the broker does not start, because of commitlog/100"
    deleted = Finding("CQ-SIZE", "", file="consumequeue/A/0/600")
    assert line(deleted, refused) == "deleted by this start, which then fails"


def test_what_cannot_be_told() -> None:
    assert line(in_log(350), replace(CUT, unknown="the queues are in RocksDB")) == (
        "cannot be told: the queues are in RocksDB"
    )


def test_the_files_that_a_start_looks_for() -> None:
    abort, checkpoint = Finding("ST-ABORT", "", file="abort"), Finding("ST-CHECKPOINT", "", file="checkpoint")
    scan = "its scan begins at segment 200"
    assert line(abort) == f"this start counts as unclean: {scan}, and it deletes 1 index file"
    assert line(checkpoint) == f"used by this start: {scan}"
    clean = replace(CUT, clean_exit=True)
    assert line(checkpoint, clean) == "not used by this start: the last stop counts as clean"
    config = Finding("ST-CONFIG", "", file="config/topics.json")
    assert line(config) is None
    backup = replace(CUT, config_from_backup=["config/topics.json"])
    assert line(config, backup) == "this start reads topics.json.bak in its place"


def test_without_a_forecast_there_is_no_line() -> None:
    assert BrokerLines(None).line(in_log(350, "CL-CRC-BODY")) is None


def test_every_rule_is_of_a_code_that_is_there() -> None:
    assert PLACES.keys() <= BY_CODE.keys()
