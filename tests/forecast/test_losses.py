"""What is lost behind a new end of the log, against what the writer put there."""

import shutil
import struct
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from rmqinspect.forecast.instead import without_files
from rmqinspect.forecast.losses import LossCounter, count_named, units_given_up
from rmqinspect.forecast.outcome import Losses, Outcome, QueueOutcome, Verdict
from rmqinspect.forecast.versions import ForecastRequest, forecast
from rmqinspect.forecast.words import already_lost
from rmqinspect.schemas.message import MAGIC_BLANK
from rmqinspect.store.discover import open_store
from rmqinspect.topics import is_system_topic
from tests.broker.damages import change_file, set_field, swap_files
from tests.support import oracle
from tests.support.broken_disk import broken_disk
from tests.support.consumer_judge import sound_places

UNDAMAGED = [name for name in oracle.cases("crash") if name.startswith("base-")]


def records(put: dict[str, Any]) -> int:
    """Return how many records a put has made: one for each message of a client's batch."""
    return len(put.get("items", [put]))


@pytest.mark.parametrize("name", UNDAMAGED[::3])
@pytest.mark.parametrize("share", [0.0, 0.5, 0.9])
def test_all_records_at_or_behind_an_end_are_lost_once(name: str, share: float) -> None:
    puts = [put for put in oracle.puts(name) if put["status"] == "PUT_OK"]
    first = puts[int(len(puts) * share)]
    lost = [put for put in puts if put["phys"] >= first["phys"]]
    unread: list[str] = []
    fold = LossCounter(open_store([str(oracle.store("crash", name))]), 2, None, unread).behind(first["phys"])
    losses = fold.losses()
    assert losses.messages == losses.intact == sum(map(records, lost))
    assert losses.by_topic == by_topic(lost)
    assert losses.bytes == sum(put["size"] for put in lost)
    assert losses.end == lost[-1]["phys"] + lost[-1]["size"]
    assert (losses.first_timestamp, losses.last_timestamp) == (lost[0]["store_timestamp"], lost[-1]["store_timestamp"])
    assert not unread


def by_topic(puts: list[dict[str, Any]]) -> Counter[str]:
    """Return the number of records of each topic."""
    counts: Counter[str] = Counter()
    for put in puts:
        counts[put["topic"]] += records(put)
    return counts


def test_nothing_is_lost_behind_the_end_of_an_undamaged_log() -> None:
    name = UNDAMAGED[0]
    end = max(put["phys"] + put["size"] for put in oracle.puts(name) if put["status"] == "PUT_OK")
    fold = LossCounter(open_store([str(oracle.store("crash", name))]), 1, None, []).behind(end)
    assert fold.losses().messages == 0
    assert fold.next_offsets == {}


def test_the_refused_record_counts_and_is_not_intact() -> None:
    store = open_store([str(oracle.store("crash", "flip_body_third-5.3.3-h"))])
    end = oracle.truth("crash", "flip_body_third-5.3.3-h")["after_load"]["max_phy"]
    losses = LossCounter(store, 1, None, []).behind(end).losses()
    assert (losses.messages, losses.intact) == (145, 144)


def test_the_next_offset_of_a_queue_is_behind_its_highest() -> None:
    store = open_store([str(oracle.store("crash", "flip_body_third-5.3.3-h"))])
    fold = LossCounter(store, 1, None, []).behind(97187)
    assert fold.next_offsets[b"TopicA", 0] == 51


def test_counting_behind_several_ends_gives_what_counting_behind_each_gives() -> None:
    name = UNDAMAGED[-1]
    store = open_store([str(oracle.store("crash", name))])
    ends = [put["phys"] for put in oracle.puts(name) if put["status"] == "PUT_OK"][::40]
    shared = LossCounter(store, 1, None, [])
    for end in [*ends[1::2], *ends[::2]]:
        alone = LossCounter(store, 1, None, []).behind(end)
        assert shared.behind(end).losses() == alone.losses()
        assert shared.behind(end).next_offsets == alone.next_offsets


# --- what the broker's own store class returned ---------------------------------------------------------------

GIVEN = sorted({*oracle.cases("crash")[::14], "cq_last_file_zeroed-4.7.1-c"})


@pytest.mark.parametrize("name", GIVEN)
def test_what_no_consumer_gets_is_what_the_broker_did_not_return(name: str) -> None:
    """Each queue was read by the release that opened the store, after its dispatch, from its minimum on."""
    truth, store = oracle.truth("crash", name), open_store([str(oracle.store("crash", name))])
    outcome = forecast(store, ForecastRequest(truth["opened_by"])).worst
    if "after_dispatch" not in truth:  # the start did not come so far
        assert outcome.verdict is Verdict.REFUSES
        return
    log = range(max(0, truth["after_dispatch"]["min_phy"]), truth["after_dispatch"]["max_phy"])
    returned = {(of["topic"], of["queue_id"], place) for of in truth["messages"] for _, place, *_ in of["found"]}
    sound = sound_places(store)
    got = {one[:3] for one in sound if (*one[:2], one.physical_offset) in returned}
    missed = Counter[str]()
    for one, messages in sound.items():
        # Of two records with one queue offset a unit can lead to one.
        if one.physical_offset in log and one[:3] not in got:
            missed[one.topic] += messages
    told = {topic: number for topic, number in outcome.unreachable_by_topic.items() if not is_system_topic(topic)}
    assert told == +missed
    if missed.total():
        assert outcome.verdict in (Verdict.LOSES, Verdict.EMPTY)


# --- a record whose magic became that of a blank record -------------------------------------------------------


def told(store: Path, release: str = "5.5.0", *, count_losses: bool = True) -> Outcome:
    """Return what a release does to a store."""
    request = ForecastRequest(release=release, count_losses=count_losses)
    return forecast(open_store([str(store)]), request).worst


@pytest.mark.parametrize("record", [0, 7, -1])
def test_what_stands_behind_a_forged_end_of_file_is_lost_where_the_log_is_cut_there(
    record: int, tmp_path: Path
) -> None:
    """5.5.0 ends its log there: tests/broker/found.jsonl has such a store."""
    name = "base-5.5.0-clean"
    store = oracle.copy("crash", name, tmp_path)
    set_field(store, segment=-1, record=record, field="magic", value=f"={MAGIC_BLANK}")
    outcome = told(store)
    lost = [put for put in oracle.puts(name) if put["status"] == "PUT_OK" and put["phys"] >= outcome.end_offset]
    assert outcome.rejected is not None and outcome.rejected.rule == "blank_size"
    assert outcome.verdict is told(store, count_losses=False).verdict is Verdict.LOSES
    # The forged record is none of those that are whole; without a unit nothing else names it.
    assert (outcome.losses.messages, outcome.losses.intact) == (sum(map(records, lost)), sum(map(records, lost)) - 1)
    assert outcome.losses.by_topic == by_topic(lost)
    assert outcome.losses.bytes == sum(put["size"] for put in lost)


def test_nothing_is_lost_behind_a_forged_end_of_file_where_the_log_goes_on(tmp_path: Path) -> None:
    store = oracle.copy("crash", "base-5.5.0-clean", tmp_path)
    set_field(store, segment=-2, record=5, field="magic", value=f"={MAGIC_BLANK}")
    assert (told(store).verdict, told(store).losses.messages) == (Verdict.SAFE, 0)


# --- copies -------------------------------------------------------------------------------------------------


def test_copies_of_records_that_stay_are_no_messages(tmp_path: Path) -> None:
    """4.9.7 scans from the third last segment on, to the zeros in front of the copy."""
    name = "base-4.9.7-clean"
    store = oracle.copy("crash", name, tmp_path)
    change_file(store, folder="commitlog", file=-1, how="next_copy")
    last = int(sorted((store / "commitlog").iterdir())[-2].name)
    copied = sum(records(put) for put in oracle.puts(name) if put["status"] == "PUT_OK" and put["phys"] >= last)
    outcome = told(store, "4.9.7")
    assert copied > 0
    assert (outcome.losses.messages, outcome.losses.copies, outcome.verdict) == (0, copied, Verdict.SAFE)


def test_records_in_exchanged_segments_are_no_copies(tmp_path: Path) -> None:
    store = oracle.copy("crash", "base-5.5.0-clean", tmp_path)
    change_file(store, folder="commitlog", file=-1, how="next_copy")
    swap_files(store, folder="commitlog", file=0, other=-2)
    counted = LossCounter(open_store([str(store)]), 1, None, []).behind(0).losses()
    # The copy of what was the last segment now has its original nowhere: both segments that were exchanged do not
    # hold what they say.
    assert counted.copies == 0


def overwrite(store: Path, segment: int, by: int) -> None:
    files = sorted((store / "commitlog").iterdir())
    files[segment].write_bytes(files[by].read_bytes())


@pytest.mark.parametrize(
    ("release", "segment", "by"), [("4.7.1", -1, -2), ("4.7.1", -2, -3), ("5.2.0", -1, -2), ("5.5.0", -1, -2)]
)
def test_what_a_copy_has_overwritten_is_lost_already(release: str, segment: int, by: int, tmp_path: Path) -> None:
    name = f"base-{release}-clean"
    store = oracle.copy("crash", name, tmp_path)
    assert (told(store, release).misplaced, already_lost(told(store, release))) == (0, [])
    bases = [int(path.name) for path in sorted((store / "commitlog").iterdir())]
    overwrite(store, segment, by)
    ends = [*bases[1:], 1 << 62]
    copied = sum(
        records(put)
        for put in oracle.puts(name)
        if put["status"] == "PUT_OK" and bases[by] <= put["phys"] < ends[len(bases) + by]
    )
    outcome = told(store, release)
    # Units of what was overwritten may lead to records of other queues now.
    missed = outcome.not_received or outcome.skipped
    assert outcome.verdict is (Verdict.LOSES if missed else Verdict.SAFE)
    assert (outcome.losses.messages, outcome.misplaced) == (0, copied)
    text = f"at least {copied} records lie elsewhere than PHYSICALOFFSET says: they were copied or moved over"
    assert any(line.startswith(text) for line in already_lost(outcome))


@pytest.mark.parametrize("name", ["phys_last-4.7.1-h", "phys_last-5.3.3-c"])
def test_a_damaged_offset_is_told_as_one(name: str) -> None:
    outcome = told(oracle.store("crash", name), oracle.truth("crash", name)["opened_by"])
    (text,) = already_lost(outcome)
    assert text.startswith("at least 1 record lies elsewhere") and text.endswith("or the field is damaged")


def test_exchanged_segments_do_not_hold_what_belongs_in_their_place(tmp_path: Path) -> None:
    store = oracle.copy("crash", "base-5.2.0-clean", tmp_path)
    swap_files(store, folder="commitlog", file=-3, other=-2)
    assert told(store, "5.2.0").misplaced > 0


def test_filler_is_no_message_that_a_remedy_gives_up(tmp_path: Path) -> None:
    """Filler points at 0, where the log begins; a size of 2147483647 alone is a damaged unit of a message."""
    root = tmp_path / "store"
    filler, unit = struct.pack(">qiq", 0, 2**31 - 1, 0), struct.pack(">qiq", 100, 50, 7)
    damaged = struct.pack(">qiq", 150, 2**31 - 1, 7)
    for name, content in (("commitlog", bytes(1000)), ("consumequeue/TopicA/0", filler + unit + damaged)):
        (root / name).mkdir(parents=True)
        (root / name / f"{0:020}").write_bytes(content)
    store = open_store([str(root)])
    (file,) = store.queue_files
    left = without_files(store, [file.name])
    outcome = Outcome("5.3.3", "5.3.3", clean_exit=True, min_offset=0, end_offset=1000)
    assert units_given_up(store, left, outcome, []) == 2


# --- what cannot be read ------------------------------------------------------------------------------------


@pytest.mark.parametrize("folder", ["commitlog/00000000000000000000", "consumequeue/TopicA"])
def test_what_cannot_be_read_of_a_record_that_only_its_unit_names_is_said(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "base-5.5.0-halt"
    root = oracle.copy("crash", name, tmp_path)
    puts = [put for put in oracle.puts(name) if put["status"] == "PUT_OK" and put["topic"] == "TopicA"]
    place, size = puts[0]["phys"], puts[0]["size"]
    set_field(root, segment=0, record=0, field="magic", value="=1")
    store = open_store([str(root)])
    losses, unread = Losses(), []  # type: ignore[var-annotated]
    queues = [QueueOutcome("TopicA", queue_id, 0, 9, 0, 0, cut=9) for queue_id in range(4)]
    with broken_disk(monkeypatch, lambda path: folder in str(path), 0, 1 << 30):
        count_named(store, queues, [(place - 1, place + size)], losses, unread)  # it does not begin where the gap does
    assert unread
    assert losses.messages == 0


def test_copies_and_given_up_units_that_cannot_be_read_are_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = oracle.copy("crash", "base-4.9.7-clean", tmp_path)
    change_file(root, folder="commitlog", file=-1, how="next_copy")
    store, unread = open_store([str(root)]), []  # type: ignore[var-annotated]
    last = sorted((root / "commitlog").iterdir())[-2].name
    with broken_disk(monkeypatch, lambda path: path.name == last, 0, 1 << 30):
        LossCounter(store, 1, None, unread).behind(int(last) + 1)
    assert unread
    outcome, unread = Outcome("5.3.3", "5.3.3", clean_exit=True, min_offset=0, end_offset=1 << 30), []
    left = without_files(store, ["consumequeue/TopicA"])
    with broken_disk(monkeypatch, lambda path: "consumequeue" in str(path), 0, 1 << 30):
        assert units_given_up(store, left, outcome, unread) == 0
    assert unread


def test_a_record_that_says_it_has_no_size_ends(tmp_path: Path) -> None:
    """A unit leads to it, so that it is counted already."""
    root = oracle.copy("crash", "base-5.3.3-clean", tmp_path)
    shutil.rmtree(root / "index")
    set_field(root, -1, -1, "total_size", "=0")
    outcome = forecast(open_store([str(root)]), ForecastRequest("5.3.3", instead=False)).worst
    assert outcome.losses.messages == 1
