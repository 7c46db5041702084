"""The rows that `--lost-at-start` chooses, against what the forecast counts and what recorded brokers served then."""

import json
import shlex
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from rmqinspect.broker.version_estimate import RELEASES
from rmqinspect.cli import ExitStatus
from rmqinspect.forecast.lost_records import lost_at_start, with_lost
from rmqinspect.forecast.versions import ForecastRequest, forecast
from rmqinspect.store.discover import open_store
from rmqinspect.store.model import Store
from rmqinspect.tables import TABLES
from rmqinspect.tables.filters import Selection
from rmqinspect.tables.lost_records import AskedStart
from rmqinspect.tables.request import Request
from rmqinspect.tables.sources import range_to_read
from tests.support import oracle
from tests.support.command import Run, runner
from tests.support.samples import sample
from tests.support.sampling import sampled

CASES = oracle.cases("crash")
run = runner()


def opened(name: str) -> Store:
    """Return the store of a case with the settings of its broker."""
    store = open_store([str(oracle.store("crash", name))])
    return replace(store, settings=oracle.case("crash", name)["settings"], has_conf=True)


def saved(store: Store, asked: AskedStart, *, jobs: int = 1) -> pa.Table:
    """Return the rows of the messages that a start gives up."""
    selection = with_lost(Selection(lost_at_start=asked), lost_at_start(store, asked).records)
    offsets = range_to_read(store, selection.offsets)
    request = Request(records_of=(selection,), offsets=offsets, named=selection.named, jobs=jobs)
    rows = [selection.select_rows(batch) for batch in TABLES["messages"].rows(store, request)]
    return pa.Table.from_batches(rows, TABLES["messages"].schema)


@pytest.mark.parametrize("name", sampled(CASES, 12))
def test_the_rows_are_what_the_forecast_counts_and_no_broker_served_them(name: str) -> None:
    store, truth = opened(name), oracle.truth("crash", name)
    outcome = forecast(store, ForecastRequest(release=truth["opened_by"])).worst
    rows = saved(store, AskedStart(truth["opened_by"]))
    assert Counter(rows.column("topic").to_pylist()) == outcome.losses.by_topic
    places = rows.column("physical_offset").to_pylist()
    assert places == sorted(set(places))
    if truth["load_ok"] and outcome.losses.messages:
        served = {found[1] for queue in truth["messages"] for found in queue["found"]}
        assert served.isdisjoint(places)


def writers() -> dict[str, str]:
    """Return the undamaged store that each damaged one was made of: its list of messages holds for both."""
    told = {name: oracle.case("crash", name) for name in CASES}
    bases = {
        (one["written_by"], repr(one["generator"])): name for name, one in told.items() if name.startswith("base-")
    }
    made = {name: bases.get((one["written_by"], repr(one["generator"]))) for name, one in told.items()}
    return {name: base for name, base in made.items() if base is not None and name != base}


WRITERS = writers()
DESTROYED = "zero_page_last-4.7.1-h"  # zeros over 13 records: nothing of them is left


@pytest.mark.parametrize("name", sampled([name for name in WRITERS if name != DESTROYED], 12))
def test_every_sent_message_is_before_the_end_that_the_broker_came_to_or_saved(name: str) -> None:
    truth = oracle.truth("crash", name)
    outcome = forecast(opened(name), ForecastRequest(release=truth["opened_by"])).worst
    if not outcome.losses.messages or "stray" in name:
        return
    rows = {row["physical_offset"]: row for row in saved(opened(name), AskedStart(truth["opened_by"])).to_pylist()}
    end = truth["after_load"]["max_phy"]
    lost = [put for put in oracle.puts(WRITERS[name]) if put["status"] == "PUT_OK" and put["phys"] >= end]
    assert lost
    for put in lost:
        row = rows[put["phys"]]
        assert (row["topic"], row["queue_id"]) == (put["topic"], put["queue_id"])
        assert "items" in put or row["size"] == put["size"]


@pytest.mark.parametrize("release", sampled(RELEASES, 12))
@pytest.mark.parametrize("name", ["propslen_third-4.3.2-c", "none-5.3.3-h-to-4.9.7", "stray_ds-4.3.2-c"])
def test_each_release_gives_up_its_own(name: str, release: str) -> None:
    for clean in (False, True):
        outcome = forecast(opened(name), ForecastRequest(release=release, clean_exit=clean)).worst
        rows = saved(opened(name), AskedStart(release, clean), jobs=2)
        assert Counter(rows.column("topic").to_pylist()) == outcome.losses.by_topic


# --- the commands -----------------------------------------------------------------------------------


def places_in(text: str) -> list[int]:
    """Return the physical offsets of rows as JSON lines."""
    return [json.loads(line)["physical_offset"] for line in text.splitlines()]


@pytest.mark.parametrize("name", ["flip_body_third-5.3.3-h", "propslen_third-5.3.3-h", "none-5.3.3-h-to-4.9.7"])
def test_decode_find_and_export_choose_the_same(name: str, run: Run, tmp_path: Path) -> None:
    store = oracle.store("crash", name)
    start = ("--lost-at-start", "--broker-version", "4.9.7", "--exit", "unclean")
    _, text, _ = run("forecast", store, *start[1:], "-f", "json")
    told = json.loads(text)
    status, text, remarks = run("decode", store, *start, "-f", "jsonl", "--columns", "physical_offset,topic")
    assert f"next start: {told['verdict']}" in remarks
    assert status == (ExitStatus.DAMAGE if told["lost_intact"] < told["lost_messages"] else ExitStatus.DONE)
    assert Counter(json.loads(line)["topic"] for line in text.splitlines()) == told["lost_by_topic"]
    found = run("find", store, *start, "-f", "jsonl", "--columns", "physical_offset")[1]
    assert places_in(found) == places_in(text)
    run("export", store, *start, "--engine", "local", "-o", tmp_path / "lake", "--file-size", "32KiB")
    exported = [
        place
        for file in sorted((tmp_path / "lake" / "messages").glob("*.parquet"))
        for place in pq.read_table(file).column("physical_offset").to_pylist()
    ]
    assert exported == places_in(text)


def test_other_filters_hold_as_well(run: Run) -> None:
    words = ("decode", sample("flipped-bit-5.3.3"), "-f", "jsonl", "--columns", "physical_offset")
    lost, of_topic = (places_in(run(*words, *more)[1]) for more in (["--lost-at-start"], ["-t", "TopicA"]))
    both = places_in(run(*words, "--lost-at-start", "-t", "TopicA")[1])
    assert both and both == [place for place in of_topic if place in lost]
    first = places_in(run(*words, "--lost-at-start", "--offset", f"{lost[3]}..{lost[9]}")[1])
    assert first == lost[3:9]


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("magic_third-4.9.7-c", None),
        ("size_neg_last-5.2.0-c", None),
        ("propslen_third-5.3.3-h", 97513),
        ("sysflag_v6_last-5.3.3-h", 204848),
        ("topiclen_last-5.1.4-c", 201243),  # no unit names it: the record before it ends there
    ],
)
def test_a_record_with_a_damaged_head_comes_as_it_was_with_its_status(name: str, place: int | None, run: Run) -> None:
    lost = ("decode", oracle.store("crash", name), "--lost-at-start", "-f", "jsonl")
    (row,) = (one for one in map(json.loads, run(*lost)[1].splitlines()) if one["status"] == "bad_head")
    assert place in (None, row["physical_offset"])
    before = oracle.store("crash", WRITERS[name])
    was = json.loads(run("decode", before, "--offset", row["physical_offset"], "-f", "jsonl")[1])
    assert row == was | {"status": "bad_head"}


@pytest.mark.parametrize("name", ["healthy-5.5.0", "killed-4.9.7"])
def test_a_start_that_loses_nothing_gives_no_row(name: str, run: Run) -> None:
    status, text, remarks = run("decode", sample(name), "--lost-at-start", "-f", "jsonl")
    assert (status, text) == (ExitStatus.DONE, "")
    assert "STARTS, LOSES NOTHING MORE" in remarks
    assert run("find", sample(name), "--lost-at-start")[0] == ExitStatus.NOTHING_FOUND


def test_a_start_that_is_refused_gives_up_nothing(run: Run) -> None:
    status, text, remarks = run("decode", oracle.store("crash", "stray_bak-5.5.0-h"), "--lost-at-start", "-f", "jsonl")
    assert (status, text) == (ExitStatus.DONE, "")
    assert "WILL NOT START" in remarks


def test_of_a_loose_segment_it_cannot_be_told(run: Run) -> None:
    segment = next((sample("flipped-bit-5.3.3") / "commitlog").iterdir())
    status, _, errors = run("decode", segment, "--lost-at-start")
    assert status == ExitStatus.UNREADABLE
    assert "CANNOT TELL" in errors


@pytest.mark.parametrize("command", ["decode", "find", "export"])
def test_the_options_of_a_start_need_the_start(command: str, run: Run, tmp_path: Path) -> None:
    output = ("-o", tmp_path / "lake") if command == "export" else ()
    for words in (("--exit", "clean"), ("--broker-version", "5.5.0")):
        status, _, errors = run(command, sample("healthy-5.5.0"), *words, *output)
        assert status == ExitStatus.USAGE
        assert "belong" in errors


def test_another_table_has_no_lost_records(run: Run) -> None:
    status, _, errors = run("decode", sample("healthy-5.5.0"), "--table", "queue_units", "--lost-at-start")
    assert status == ExitStatus.USAGE
    assert "no column for --lost-at-start" in errors


def test_forecast_names_the_command_that_saves_them(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a 'store'").symlink_to(sample("flipped-bit-5.3.3"))
    monkeypatch.chdir(tmp_path)
    for options in ((), ("--broker-version", "5.0.0"), ("--exit", "unclean", "--broker-version", "4.7.1")):
        _, screen, _ = run("forecast", "a 'store'", *options)
        told = json.loads(run("forecast", "a 'store'", *options, "-f", "json")[1])
        (line,) = (line for line in screen.splitlines() if line.startswith("save "))
        assert line.split(maxsplit=1)[1] == told["save"]
        program, *words = shlex.split(told["save"])
        assert program == "rmqinspect"
        assert run(*words)[0] == ExitStatus.DAMAGE
        assert pq.read_table("lost.parquet").num_rows == told["lost_messages"]
        Path("lost.parquet").unlink()
    assert json.loads(run("forecast", sample("healthy-5.5.0"), "-f", "json")[1])["save"] is None
