"""What a start means to consumer groups, and to stores whose log or queues are gone."""

import re
import shutil
from itertools import pairwise
from pathlib import Path

import pytest
from msgspec.structs import replace

from rmqinspect.broker.eras import rules_of_start
from rmqinspect.broker.pull import NO_MESSAGE_IN_QUEUE, OFFSET_OVERFLOW_BADLY, OFFSET_TOO_SMALL, following_offset
from rmqinspect.broker.version_estimate import RELEASES
from rmqinspect.forecast.outcome import GroupStart, Outcome, Verdict
from rmqinspect.forecast.versions import ForecastRequest, forecast
from rmqinspect.forecast.words import LOOK_FOR, already_lost, group_words, outcome_words, reach_words, unit_words
from rmqinspect.store.discover import open_store
from tests.support import oracle
from tests.support.pull_answers import pull_answers
from tests.support.samples import sample

MISSING = re.compile("seg_missing_(mid|prev|last)")
_OUTSIDE = (OFFSET_OVERFLOW_BADLY, OFFSET_TOO_SMALL, NO_MESSAGE_IN_QUEUE)


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole broker's store of 4.9.7."""
    return oracle.copy("broker", "main-4.9.7", tmp_path_factory.mktemp("main"))


@pytest.fixture
def store(healthy: Path, tmp_path: Path) -> Path:
    """A copy of it to change."""
    return Path(shutil.copytree(healthy, tmp_path / "store"))


def outcome_of(store: Path, release: str = "4.9.7") -> Outcome:
    return forecast(open_store([str(store)]), ForecastRequest(release)).worst


def set_offset(store: Path, topic: str, group: str, queue_id: int, offset: int) -> None:
    """Add the offset of another group; the broker writes queue ids without quotes."""
    path = store / "config" / "consumerOffset.json"
    entry = f'"offsetTable":{{"{topic}@{group}":{{{queue_id}:{offset}}},'
    path.write_text(path.read_text().replace('"offsetTable":{', entry, 1))


# --- groups ---------------------------------------------------------------------------------------------


def test_a_group_goes_on_where_real_brokers_sent_it() -> None:
    rows = [(answers.version, row) for answers in pull_answers() for row in answers.pulls if row.status in _OUTSIDE]
    assert {row.status for _, row in rows} == set(_OUTSIDE)
    for release, row in rows:
        assert following_offset(row.offset, row.min_offset, row.max_offset, release) == row.next_offset


def test_one_walk_speaks_for_releases_that_send_groups_to_the_same_offset() -> None:
    for before, release in pairwise(RELEASES):
        if rules_of_start(before) == rules_of_start(release):
            assert following_offset(9, 0, 5, before) == following_offset(9, 0, 5, release)


@pytest.fixture
def cut(store: Path) -> Path:
    """The store without its last segment: the queues of PalletEvents end at 20 of 21 to 23 messages."""
    (store / "commitlog" / f"{262144:020}").unlink()
    return store


@pytest.mark.parametrize(("release", "again"), [("4.9.3", 20), ("4.9.4", 0), ("5.3.3", 0)])
def test_what_a_group_beyond_the_end_gets_depends_on_the_release(cut: Path, release: str, again: int) -> None:
    ends = {(queue.topic, queue.queue_id): queue for queue in outcome_of(cut, release).queues}
    queue = ends["PalletEvents", 0]
    assert (queue.min_after, queue.max_after) == (0, 20)
    set_offset(cut, "PalletEvents", "ahead", 0, 23)
    set_offset(cut, "PalletEvents", "behind", 0, 5)
    outcome = outcome_of(cut, release)
    groups = {group.group: group for group in outcome.groups}
    assert groups["ahead"] == GroupStart("ahead", (("PalletEvents", 0),), 0, 3, again)
    assert groups["behind"] == GroupStart("behind", (("PalletEvents", 0),), queue.max_before - 20, 0, 0)
    assert outcome.verdict is Verdict.LOSES  # new messages, which the group skips
    cut_units = sum(queue.cut for queue in ends.values())
    assert already_lost(outcome) == [f"at least {cut_units} queue units lead to no record"]


def test_a_group_of_a_queue_that_is_not_there_is_beyond_its_end(store: Path) -> None:
    assert not outcome_of(store).groups
    assert not outcome_of(store).groups_beyond
    set_offset(store, "PalletEvents", "other", 77, 9)
    set_offset(store, "deleted topic", "other", 0, 9)
    (group,) = outcome_of(store).groups
    assert group == GroupStart("other", (("PalletEvents", 77),), 0, 9, 0)


def test_the_sentence_of_a_group() -> None:
    group = GroupStart("g", (("TopicA", 0),), 1, 31, 20)
    assert group_words(group) == (
        "gets 20 messages again if it asks at once, else skips up to 31 new ones; "
        "of the lost messages 1 was not consumed by it"
    )
    assert group_words(group._replace(again=0, unconsumed=0)) == "skips up to 31 new messages"


# --- what is gone ---------------------------------------------------------------------------------------


def gone(store: Path, *names: str) -> Outcome:
    """Return the outcome without some folders and files."""
    for name in names:
        path = store / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    return outcome_of(store)


def zero(folder: Path) -> None:
    """Fill all files of a folder with zeros."""
    for file in folder.rglob("0*"):
        if file.is_file():
            file.write_bytes(bytes(file.stat().st_size))


def test_each_file_that_proves_a_log_is_named(store: Path) -> None:
    outcome = gone(store, "commitlog")
    assert outcome.verdict is Verdict.EMPTY
    assert outcome.proofs == ["740 queue units", "5 index files", "8 consumer groups", "the checkpoint"]
    assert outcome_words(outcome).endswith("8 consumer groups and the checkpoint prove")
    for name, left in (
        ("checkpoint", ["740 queue units", "5 index files", "8 consumer groups"]),
        ("index", ["740 queue units", "8 consumer groups"]),
        ("config", ["740 queue units"]),
    ):
        assert gone(store, name).proofs == left
    zero(store / "consumequeue")
    assert (outcome_of(store).verdict, outcome_of(store).proofs) == (Verdict.SAFE, [])


def test_queues_of_zeros_prove_no_log_but_groups_do(store: Path) -> None:
    zero(store / "consumequeue")
    outcome = gone(store, "commitlog", "index", "checkpoint")
    assert (outcome.verdict, outcome.proofs) == (Verdict.EMPTY, ["8 consumer groups"])
    assert len(outcome.groups) == 7  # without the check of transactions


def test_queues_that_no_start_makes_again_are_a_start_without_queues(store: Path) -> None:
    outcome = forecast(open_store([str(store)]), ForecastRequest("5.2.0")).worst
    assert outcome.verdict is Verdict.SAFE
    shutil.rmtree(store / "consumequeue")
    found = forecast(open_store([str(store)]), ForecastRequest("5.2.0", instead=True))
    assert found.worst.verdict is Verdict.EMPTY
    assert outcome_words(found.worst).startswith("STARTS EMPTY: no queue leads to the ")
    (better, *_) = found.instead
    assert (better.outcome.verdict, better.is_better) == (Verdict.SAFE, True)


def test_a_way_that_starts_empty_is_never_better() -> None:
    name = str(oracle.store("crash", "log_only_zero_len-5.1.4-c"))
    found = forecast(open_store([name]), ForecastRequest("4.7.1", instead=True))
    assert found.worst.verdict is Verdict.REFUSES
    assert {way.outcome.verdict for way in found.instead} >= {Verdict.EMPTY}
    assert not any(way.is_better for way in found.instead if way.outcome.verdict is Verdict.EMPTY)


@pytest.mark.parametrize(
    "name", [name for name in oracle.cases("crash") if re.match("seg_missing_(mid|prev|last)", name)]
)
def test_what_was_lost_before_stands_beside_the_verdict(name: str) -> None:
    store = open_store([str(oracle.store("crash", name))])
    release = oracle.truth("crash", name)["opened_by"]
    whole = forecast(replace(store, settings=oracle.case("crash", name)["settings"]), ForecastRequest(release)).worst
    hole = f"no segment holds 131 072 to 196 608 of the log: {LOOK_FOR}"
    assert whole.verdict is Verdict.SAFE
    assert already_lost(whole) == [hole] if "last" not in name else already_lost(whole)[0].endswith("lead to no record")


def test_an_empty_segment_that_is_deleted_is_named_as_empty() -> None:
    killed = outcome_of(sample("killed-4.9.7"))
    assert killed.deleted_segments == killed.empty_segments == [262144]
    flipped = outcome_of(sample("flipped-bit-5.3.3"), "5.3.3")
    assert (flipped.deleted_segments, flipped.empty_segments) == ([131072, 196608, 262144], [])


@pytest.mark.parametrize("release", [None, "4.9.7"])
def test_queues_that_are_gone_and_stay_so_are_told_by_a_sample_of_the_log(store: Path, release: str | None) -> None:
    def told(*, count: bool) -> Outcome:
        return forecast(open_store([str(store)]), ForecastRequest(release, count_losses=count)).worst

    assert told(count=True).verdict is told(count=False).verdict is Verdict.SAFE
    schedule = store / "consumequeue" / "SCHEDULE_TOPIC_XXXX"
    for topic in (store / "consumequeue").iterdir():
        if topic != schedule:
            shutil.rmtree(topic)
    counted, sampled = told(count=True), told(count=False)
    assert counted.verdict is sampled.verdict is Verdict.LOSES
    assert counted.unreachable == sum(counted.unreachable_by_topic.values()) > 100
    assert {queue.topic for queue in sampled.lost_queues} <= set(counted.unreachable_by_topic)
    (words,) = reach_words(sampled)
    assert words.startswith("records of ") and words.endswith("have no queue unit, by a sample of the log")
    assert already_lost(counted) == already_lost(sampled) == []


def test_a_way_that_brings_back_all_units_stands_before_one_that_brings_back_some() -> None:
    # The folder of all queues is gone; 261 records of the log are entitled to a unit, as `verify` counts.
    name = str(oracle.store("crash", "cq_lost-5.2.0-c"))
    found = forecast(open_store([name]), ForecastRequest("5.2.0", instead=True))
    told = [(way.outcome.clean_exit, *unit_words(way)) for way in found.instead if way.is_better and not way.tool]
    assert told == [(True, "heals 261 units"), (False, "heals 111 units, at least 150 stay missing")]
