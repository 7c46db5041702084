"""The map against the documents that it is drawn from, over stores that real brokers wrote and crashes damaged."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from rmqinspect.commitlog.log_runs import KINDS
from rmqinspect.document import as_object, typed
from rmqinspect.forecast.document import document
from rmqinspect.forecast.versions import ForecastRequest
from rmqinspect.forecast.versions import forecast as next_start
from rmqinspect.picture.documents import picture_of
from rmqinspect.picture.drawing import figure, json_in_html, svg
from rmqinspect.picture.model import Picture
from rmqinspect.picture.starts import picture_of_start
from rmqinspect.store.discover import open_store
from rmqinspect.verify import run as run_module
from rmqinspect.verify.report import Report, read_reports, report_of
from rmqinspect.verify.result import VerifyOptions
from rmqinspect.verify.run import verify, verify_and_forecast
from tests.support import oracle
from tests.support.building import fill, lay, write_segment
from tests.support.command import Run, runner
from tests.support.growing import EARLIER, set_times
from tests.support.samples import NAMES, sample
from tests.support.sampling import sampled

CASES = [*(("crash", name) for name in oracle.cases("crash")), *(("broker", name) for name in oracle.cases("broker"))]
run = runner()
NO_RANGE = {"CL-NAME", "CL-SIZE", "CL-HOLE", "CL-DUPLICATE", "CL-FIRST", "DL-INDEX"}  # about files


def told(root: Path, jobs: int = 1) -> tuple[Report, dict[str, Any] | None]:
    """Return the report of a store, as read from its JSON, and the document of forecast."""
    store = replace(open_store([str(root)]), words=("STORE",))
    result = verify_and_forecast(store, VerifyOptions(jobs=jobs))
    plain = json.loads(json.dumps(as_object(report_of(result, "STORE", started=datetime.now(UTC)))))
    return typed(plain, Report), None if result.next_start is None else document(result.next_start)


@cache
def damaged() -> tuple[Report, dict[str, Any] | None]:
    return told(sample("flipped-bit-5.3.3"))


def drawn(report: Report, forecast: dict[str, Any] | None = None) -> Picture:
    picture = picture_of(report, forecast)
    assert picture is not None
    return picture


def covers(spans: list[tuple[int, int]], start: int, end: int) -> bool:
    """Whether one of some ranges has all bytes of another."""
    return any(low <= start and end <= high for low, high in spans)


def check(report: Report, forecast: dict[str, Any] | None) -> None:
    """Compare a picture with the documents."""
    picture = drawn(report, forecast)
    segments = [file for file in report.inputs if file.kind in ("segment", "dledger")]
    if picture.runs:
        assert (picture.runs[0].start, picture.runs[-1].end) == (picture.start, picture.end)
    assert all(one.end == other.start and one.start < one.end for one, other in pairwise(picture.runs))
    unread = [(run.start, run.end) for run in picture.runs if run.kind == "unread"]
    ruined = [(run.start, run.end) for run in picture.runs if run.kind == "damage"]
    for row in report.findings:
        if row.code[:3] in ("CL-", "DL-") and row.code not in NO_RANGE and row.severity == "error":
            assert row.physical_offset is not None
            assert covers([*ruined, *unread], row.physical_offset, row.physical_offset + (row.length or 1)), row
    places = [(row.physical_offset, row.length or 1) for row in report.findings]
    ranges = [(start, start + length) for start, length in places if start is not None]
    for low, high in ruined:  # and there is no other damage
        assert any(low < stop and begin < high for begin, stop in ranges), (low, high)
    sums = dict.fromkeys(KINDS, 0)
    for run in picture.runs:
        sums[run.kind] += run.end - run.start
    accounts = report.segments
    assert sums["records"] <= sum(one.record_bytes + one.filler_bytes for one in accounts)
    assert sum(sums.values()) - sums["missing"] <= sum(one.size for one in segments)
    check_start(picture, report, forecast)


def check_start(picture: Picture, report: Report, forecast: dict[str, Any] | None) -> None:
    """Compare the marks of the next start with the forecast."""
    marks: dict[str, list[tuple[int, int]]] = {}
    for mark in picture.marks:
        marks.setdefault(mark.kind, []).append((mark.start, mark.end))
    if forecast is None:
        assert not {"scan", "cut", "deleted"} & marks.keys()
        return
    bases = {strip.start: strip.end for strip in picture.strips}
    assert all(covers(marks["deleted"], base, bases[base]) for base in forecast["deleted_segments"] if base in bases)
    gone = {base for base in bases if covers(marks.get("deleted", []), base, bases[base])}
    assert gone == set(forecast["deleted_segments"]) & bases.keys()
    end, log_end = forecast["end_offset"], report.next_start and report.next_start.log_end
    if end is not None and log_end is not None and picture.start <= end < log_end:
        assert marks["cut"] == [(end, log_end)]
        assert picture.gives_up_from == end
    elif log_end is not None:
        assert "cut" not in marks
    if forecast["scan_start_base"] in bases:
        assert marks["scan"][0][0] == forecast["scan_start_base"]
    else:
        assert "scan" not in marks


@pytest.mark.parametrize(("family", "name"), sampled(CASES, 16))
def test_the_map_of_a_recorded_store_is_what_verify_and_forecast_say(family: oracle.Family, name: str) -> None:
    report, forecast = told(oracle.store(family, name))
    check(report, forecast)
    # Without the document of forecast the report says the same.
    assert drawn(report).gives_up_from == drawn(report, forecast).gives_up_from


@pytest.mark.parametrize("name", NAMES)
def test_the_map_of_a_sample_is_what_verify_and_forecast_say(name: str) -> None:
    report, forecast = told(sample(name))
    check(report, forecast)
    assert report.map is not None
    assert forecast is not None
    ends = {(queue["topic"], queue["queue_id"]): queue["max_offset_before"] for queue in forecast["queues"]}
    assert {(queue.topic, queue.queue_id): queue.max_offset for queue in report.map.queues} == ends
    store = open_store([str(sample(name))])
    alone = picture_of_start(store, next_start(store, ForecastRequest()), "STORE")
    assert alone is not None
    assert alone.gives_up_from == drawn(report, forecast).gives_up_from


def test_the_damaged_record_is_one_run_and_the_rest_is_sound() -> None:
    picture = drawn(*damaged())
    assert [(run.start, run.end) for run in picture.damaged] == [(97187, 97513)]
    assert picture.strip_at(97187) == ("commitlog/00000000000000065536", 65536, 131072)
    assert picture.codes == {97187: "CL-CRC-BODY"}
    assert picture.command(97187) == "rmqinspect show STORE --at 97187"
    assert picture.gives_up_from == 97187


@pytest.mark.parametrize("size", [700, 5000, 1 << 20])
def test_the_map_is_the_same_for_any_splits_and_threads(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    for name in ("flipped-bit-5.3.3", "zeroed-page-4.7.1"):
        whole = told(sample(name))[0].map
        with monkeypatch.context() as patch:
            patch.setattr(run_module, "SPLIT_SIZE", size)
            assert told(sample(name), jobs=3)[0].map == whole


def test_more_damage_than_findings_have_rows_is_seen_and_carried(run: Run, tmp_path: Path) -> None:
    """Fifteen hundred records with a wrong CRC, each beside a good one: no finding tells of the last of them."""
    raw = bytearray(fill(lay([{"topic": "t", "body": b"Hello"} for _ in range(3000)]), 1 << 20))
    bad, start = [], 0
    for number in range(3000):
        size = int.from_bytes(raw[start : start + 4])
        if number % 2:
            raw[raw.index(b"Hello", start)] ^= 1
            bad.append((start, start + size))
        start += size
    write_segment(tmp_path / "store" / "commitlog", bytes(raw))
    set_times(tmp_path / "store", EARLIER)
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    run("verify", tmp_path / "store", "-q", "-j", "1", "--report", first)
    run("verify", tmp_path / "store", "-q", "-j", "1", "--since", first, "--report", second)
    before, after = (read_reports(str(path))[None] for path in (first, second))
    assert isinstance(before, Report)
    assert isinstance(after, Report)
    told_of = sum(row.count for row in before.findings if row.code == "CL-CRC-BODY")
    assert (before.counts["CL-CRC-BODY"], told_of) == (1500, 1000)
    runs = [(one.start, one.end) for one in drawn(before).damaged]
    assert all(covers(runs, *span) for span in bad)
    assert len(drawn(before).runs) <= 2000
    assert after.map == before.map
    assert after.taken_over is not None
    assert after.taken_over.segments == 1


def test_what_the_level_leaves_out_is_not_read() -> None:
    store = open_store([str(sample("flipped-bit-5.3.3"))])
    result = verify_and_forecast(store, VerifyOptions("quick"))
    assert result.log_map is not None
    assert (result.log_map.runs[0].start, result.log_map.runs[0].kind) == (0, "unread")
    assert not result.log_map.queues


def test_what_ctrl_c_left_over_is_not_read() -> None:
    def stop(size: int) -> None:
        raise KeyboardInterrupt

    result = verify(open_store([str(sample("flipped-bit-5.3.3"))]), VerifyOptions(), progress=stop)
    assert result.log_map is not None
    assert [(run.start, run.end, run.kind) for run in result.log_map.runs] == [
        (0, 63425, "records"),
        (63425, 65536, "filler"),
        (65536, 327680, "unread"),
    ]


# --- what a file may say ------------------------------------------------------------------------------------


HOSTILE = '</script><img src=x onerror=alert(1)>"&\x1b[31m\u202e\u2028'


def hostile() -> Iterator[dict[str, Any]]:
    plain = as_object(damaged()[0])
    log = plain["map"]
    far = {"start": -5, "end": 1 << 62, "kind": HOSTILE, "mixed": True}
    none = {"start": 9, "end": 3, "kind": "damage", "mixed": False}
    queue = log["queues"][0] | {"topic": HOSTILE, "last_physical_offset": -(1 << 62), "max_offset": -7}
    index = log["index_files"][0] | {"file": HOSTILE, "last_physical_offset": 1 << 62}
    version = {"verdict": plain["next_start"]["verdict"], "era": HOSTILE, "end_offset": HOSTILE, "rejected": 5}
    start = plain["next_start"] | {"versions": [version | {"deleted_segments": [None, {}, -1], "lost_messages": []}]}
    yield plain | {"map": log | {"runs": [far, none, *log["runs"], far]}}
    yield plain | {"map": log | {"runs": []}}
    yield plain | {"map": log | {"queues": [queue] * 90, "index_files": [index] * 500}, "next_start": start}
    yield plain | {"map": log | {"checkpoint": log["checkpoint"] | {"physic_msg_timestamp": HOSTILE}}}
    yield plain | {"inputs": [{"file": HOSTILE, "size": -1, "kind": "segment"}], "next_start": None}
    yield plain | {"run": plain["run"] | {"store": HOSTILE}, "next_start": plain["next_start"] | {"log_end": -1}}


@pytest.mark.parametrize("number", range(6))
def test_a_report_that_was_tampered_with_breaks_neither_the_map_nor_the_page(number: int) -> None:
    from rmqinspect.picture.bar import bar

    report = typed(list(hostile())[number], Report)
    picture = drawn(report)
    for one, other in pairwise(picture.runs):
        assert one.end == other.start
    page = figure(picture, "m")
    assert "<img" not in page
    assert page.count("</script>") == 1
    assert "\x1b" not in page + bar(picture, 80)
    assert "\u202e" not in page
    assert json.loads(json_in_html(picture))["runs"] == picture.data()["runs"]
    assert svg(picture).count("<rect") < 4000


def test_a_report_of_an_earlier_version_has_no_map() -> None:
    plain = as_object(damaged()[0])
    del plain["map"]
    assert picture_of(typed(plain, Report)) is None


def test_a_terabyte_and_forty_stores_stay_small() -> None:
    gib = 1 << 30
    names = [f"commitlog/{number * gib:020}" for number in range(1000)]
    plain = as_object(damaged()[0])
    spans = [(at, at + gib - 700, "records", at + gib) for at in range(0, 1000 * gib, gib)]
    runs: list[dict[str, Any]] = [
        {"start": start, "end": end, "kind": kind, "mixed": False}
        for first, middle, sound, last in spans
        for start, end, kind in ((first, middle, sound), (middle, last, "filler"))
    ]
    runs[501:502] = [
        runs[501] | {"end": runs[501]["start"] + 1, "kind": "damage"},
        runs[501] | {"start": runs[501]["start"] + 1},
    ]
    queue, index = plain["map"]["queues"][0], plain["map"]["index_files"][0]
    queues = [queue | {"topic": f"a topic with a long name {number:05}"} for number in range(10_000)]
    files = [index | {"file": f"index/{number:017}", "last_physical_offset": gib} for number in range(800)]
    large = typed(
        plain
        | {
            "map": plain["map"] | {"runs": runs, "queues": queues, "index_files": files},
            "inputs": [{"file": name, "size": gib, "kind": "segment"} for name in names],
            "segments": [],
        },
        Report,
    )
    whole, share = picture_of(large), picture_of(large, most_runs=50)
    assert whole is not None
    assert share is not None
    assert len(whole.strips) == 1000
    assert len(figure(whole)) < 400_000
    assert 40 * len(figure(share)) < 3_000_000
    for picture in (whole, share):
        assert any(run.start <= runs[501]["start"] < run.end and run.kind == "damage" for run in picture.runs)
        assert "9 960 more queues" in figure(picture)


def test_offsets_of_groups_are_ticks_of_their_queue() -> None:
    report, _ = damaged()
    rows: list[dict[str, Any]] = [
        {"group": "g", "topic": "orders", "queue_id": 0, "consumer_offset": 3, "lag": 5},
        {"group": 7},
        {},
    ]
    picture = picture_of(report, groups=rows)
    assert picture is not None
    (queue,) = [row for row in picture.queues if row.ticks]
    assert queue.name == "orders 0"
    (tick,) = queue.ticks
    assert (tick.group, tick.offset, tick.lag) == ("g", 3, 5)
    assert queue.start < tick.place < queue.end
