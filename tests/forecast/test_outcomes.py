"""What consumers get after a start: stores whose files are whole, or nearly so, and whose start loses messages.

The numbers are those of real brokers that were started on them and drained (`data/outcome/README.md`).
"""

import shutil
from pathlib import Path

import pytest

from rmqinspect import open_store
from rmqinspect.forecast.evidence import Evidence
from rmqinspect.forecast.outcome import REBUILD, SALVAGE, Forecast, Outcome, Verdict
from rmqinspect.forecast.versions import ForecastRequest, forecast
from tests.support.outcome_stores import copy_of_case, outcome_conf, outcome_store


def _told(root: Path, release: str | None = None, config: Path | None = None) -> Forecast:
    store = open_store(str(root), config=None if config is None else str(config))
    return forecast(store, ForecastRequest(release, instead=True))


def _first(found: Forecast) -> str:
    """Return the tool of the way that is advised, "" for none."""
    return next((way.tool for way in found.instead if way.is_better), "")


def test_a_queue_from_a_backup_leaves_its_messages_out_of_reach() -> None:
    found = _told(outcome_store("s03"))
    worst = found.worst
    assert (worst.verdict, worst.unreachable_by_topic) == (Verdict.LOSES, {"orders": 3041})
    assert {group.group for group in worst.groups if group.skips} == {"billing"}
    assert _first(found) == REBUILD
    rebuilt = next(way for way in found.instead if way.tool == REBUILD)
    assert (rebuilt.outcome.verdict, rebuilt.outcome.skipped) == (Verdict.SAFE, 0)


def test_a_log_without_its_end_lets_groups_skip_and_salvage_keeps_their_offsets() -> None:
    found = _told(outcome_store("s02"), "4.9.7")
    skips = {group.group: group.skips for group in found.worst.groups if group.skips}
    assert found.worst.verdict is Verdict.LOSES
    assert skips["billing"] == 578
    assert found.worst.deleted_segments == []
    assert _first(found) == SALVAGE
    tools = {way.tool: (way.outcome.skipped, way.is_better) for way in found.instead if way.tool}
    assert tools == {REBUILD: (found.worst.skipped, False), SALVAGE: (0, True)}


def test_behind_a_page_of_zeros_a_consumer_jumps_over_sound_messages() -> None:
    worst = _told(outcome_store("s01")).worst
    assert (worst.verdict, worst.jumped_by_topic) == (Verdict.LOSES, {"orders": 21, "shipments": 23})
    assert worst.wrong_by_topic == {"orders": 1}  # a message without topic and keys
    assert worst.losses.messages == worst.unreachable == 0


def test_a_full_disk_has_cost_what_no_start_brings_back() -> None:
    found = _told(outcome_store("s08"))
    assert found.worst.verdict is Verdict.SAFE
    assert found.worst.acknowledged is not None
    assert found.worst.acknowledged.span == 12_351


def test_a_minimum_rises_over_batches() -> None:
    worst = _told(outcome_store("files-to-rocksdb"), "5.3.3", outcome_conf("files-to-rocksdb")).worst
    assert (worst.verdict, worst.unreachable_by_topic["QuoteBcq"]) == (Verdict.LOSES, 9)


def test_offsets_of_groups_prove_queues_whose_topics_are_gone() -> None:
    worst = _told(outcome_store("topics-gone"), "5.3.3").worst
    assert (worst.verdict, worst.unreachable_by_topic) == (Verdict.LOSES, {"CourierLog": 177, "FleetEvents": 106})
    assert worst.in_no_queue == {"OrderGone": 10}  # that topic was deleted


@pytest.mark.parametrize("release", ["4.9.7", "5.3.3"])
def test_a_second_file_without_a_record_is_moved_away(release: str) -> None:
    found = _told(outcome_store("multipath-dup"), release, outcome_conf("multipath-dup"))
    best = found.instead[0]
    assert (found.worst.verdict, best.is_better, best.outcome.verdict) == (Verdict.LOSES, True, Verdict.SAFE)
    assert best.moved == ("../data2/commitlog/00000000000000262144",)
    assert not any(way.is_better for way in found.instead if way.outcome.doubled)


@pytest.mark.parametrize("name", ["s10", "read-queues", "tiered"])
def test_whole_stores_lose_nothing(name: str) -> None:
    worst = _told(outcome_store(name)).worst
    assert (worst.verdict, worst.not_received, worst.skipped) == (Verdict.SAFE, 0, 0)


# --- neighbours -------------------------------------------------------------------------------------


def test_a_queue_that_is_gone_is_out_of_reach_alone(tmp_path: Path) -> None:
    """After an unclean exit the start scans from the first segment on, and makes the queue again; not after a stop."""
    root = copy_of_case("s10", tmp_path / "case")
    shutil.rmtree(root / "consumequeue" / "jobs")
    assert _told(root, "5.3.3").worst.unreachable == 0
    (root / "abort").unlink()
    found = _told(root, "5.1.4")
    assert list(found.worst.unreachable_by_topic) == ["jobs"]
    assert found.worst.verdict is Verdict.LOSES
    assert found.instead[0].outcome.verdict is Verdict.SAFE


def test_topics_gone_without_offsets_is_a_deletion(tmp_path: Path) -> None:
    root = copy_of_case("topics-gone", tmp_path / "case")
    for file in (root / "config").glob("consumerOffset.json*"):
        file.write_text('{"offsetTable":{}}')
    worst = _told(root, "5.3.3").worst
    assert worst.verdict is Verdict.SAFE
    assert worst.in_no_queue == {"CourierLog": 177, "FleetEvents": 106, "OrderGone": 10}


@pytest.mark.parametrize(("release", "proves"), [("4.9.8", False), ("5.0.0", True)])
def test_offsets_prove_a_queue_where_a_deletion_deletes_them(release: str, proves: bool) -> None:
    store = open_store(str(outcome_store("topics-gone")))
    outcome = Outcome(release, release, clean_exit=True)
    assert Evidence(store).knows_queue(outcome, "FleetEvents", 0) is proves
    assert not Evidence(store).knows_queue(outcome, "OrderGone", 0)


@pytest.mark.parametrize(("name", "verdict"), [("-1", Verdict.UNKNOWN), ("-6000", Verdict.SAFE)])
def test_a_queue_file_off_the_grid_of_units_is_no_traceback(name: str, verdict: Verdict, tmp_path: Path) -> None:
    """At -6000 units fit; at -1 a queue of zeros would go on in the middle of one."""
    root = copy_of_case("s10", tmp_path / "case")
    (root / "consumequeue" / "jobs" / "0" / name).write_bytes(bytes(6000))
    worst = _told(root, "5.5.0").worst
    if verdict is Verdict.UNKNOWN:
        assert (worst.verdict, worst.unknown is not None) == (verdict, True)
        assert f"consumequeue/jobs/0/{name}" in str(worst.unknown)
    else:
        assert worst.unknown is None
