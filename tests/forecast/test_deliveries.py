"""What a broker delivers by itself after a start: delay levels, timer, pops; and its check of transactions.

What is right was read in the sources and measured with real brokers (`data/outcome/README.md`).
"""

import json
import re
import struct
from itertools import pairwise
from pathlib import Path

import pytest

from rmqinspect import open_store
from rmqinspect.broker.eras import rules_of_start
from rmqinspect.broker.own_rules import DelayRules
from rmqinspect.broker.version_estimate import RELEASES
from rmqinspect.forecast.advice import Action, first_step
from rmqinspect.forecast.outcome import REBUILD, SALVAGE, Forecast, TransactionStart, Verdict
from rmqinspect.forecast.versions import ForecastRequest, forecast
from rmqinspect.forecast.words import delay_words, level_edits, transaction_words
from tests.support.outcome_stores import copy_of_case, outcome_conf, outcome_store


def _told(root: Path, release: str, config: Path | None = None) -> Forecast:
    store = open_store(str(root), config=None if config is None else str(config))
    return forecast(store, ForecastRequest(release, instead=True))


def _set_levels(root: Path, **levels: int) -> None:
    """Write a delayOffset.json: the offset of level 9 is `_9`."""
    table = {level.removeprefix("_"): offset for level, offset in levels.items()}
    (root / "config" / "delayOffset.json").write_text(json.dumps({"offsetTable": table}))


def _set_timercheck(root: Path, fired: int, offset: int) -> None:
    path = root / "config" / "timercheck"
    raw = bytearray(path.read_bytes())
    raw[:8] = struct.pack(">q", fired)
    raw[16:32] = struct.pack(">qq", offset, offset)
    path.write_bytes(raw)


# --- delay levels -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("release", "passed", "skips"),
    [
        ("4.9.1", {9: 1, 10: 1}, {1: 25_477_418, 2: 33_284_115, 9: 499, 16: 7}),
        ("4.9.2", {9: 1, 10: 1}, {}),
        ("5.3.3", {9: 1, 10: 1}, {}),
    ],
)
def test_what_a_level_ahead_of_its_queue_never_delivers_depends_on_the_release(
    release: str, passed: dict[int, int], skips: dict[int, int]
) -> None:
    found = _told(outcome_store("delay-offset-beyond"), release)
    levels = found.worst.delay_levels
    assert {level.level: level.passed for level in levels if level.passed} == passed
    assert {level.level: level.skips for level in levels if level.skips} == skips
    assert (found.worst.verdict, found.worst.undelivered) == (Verdict.LOSES, sum(passed.values()) + sum(skips.values()))
    best = found.instead[0]
    assert (best.is_better, best.outcome.verdict) == (True, Verdict.SAFE)
    assert {level: offset for level, _, offset in best.remedy.levels}.items() >= {9: 0, 10: 0}.items()
    # They copy delayOffset.json as it is.
    assert not any(way.is_better for way in found.instead if way.tool)


@pytest.mark.parametrize(
    ("levels", "passed", "again"),
    [
        ({"_1": 5, "_2": 3, "_3": 2}, {}, {}),
        ({"_1": 2, "_2": 3, "_3": 0}, {}, {1: 3, 3: 2}),
        ({"_1": 5, "_2": 3, "_3": 2, "_9": 1}, {9: 1}, {}),
        ({}, {}, {1: 5, 2: 3, 3: 2}),
    ],
)
def test_levels_behind_deliver_again_and_levels_ahead_pass_over(
    levels: dict[str, int], passed: dict[int, int], again: dict[int, int | None], tmp_path: Path
) -> None:
    root = copy_of_case("delay-offset-beyond", tmp_path / "case")
    _set_levels(root, **levels)
    worst = _told(root, "4.9.7").worst
    assert {level.level: level.passed for level in worst.delay_levels if level.passed} == passed
    assert {level.level: level.again for level in worst.delay_levels if level.again} == again
    assert worst.verdict is (Verdict.LOSES if passed else Verdict.SAFE)
    assert worst.again.delay_levels == sum(filter(None, again.values()))


def test_delivered_copies_behind_a_lost_end_are_no_loss_of_the_start() -> None:
    """The log ends 12.4 s before the newest proof: what levels had delivered in that time has no copy in the log."""
    worst = _told(outcome_store("s08"), "5.3.3").worst
    assert (worst.verdict, worst.undelivered) == (Verdict.SAFE, 0)
    assert sum(level.copies_gone for level in worst.delay_levels) == 20
    assert level_edits(worst.delay_levels) == "1 set to 21, 2 set to 6, 3 set to 6, 4 set to 0"
    assert any("20 messages of delay levels 1, 2, 3 and 4 are gone" in line for line in delay_words(worst))


def test_one_walk_speaks_for_releases_that_deliver_alike() -> None:
    for before, release in pairwise(RELEASES):
        if rules_of_start(before) == rules_of_start(release):
            rules, others = DelayRules(before), DelayRules(release)
            assert (rules.level_beyond, rules.timer_beyond) == (others.level_beyond, others.timer_beyond)


# --- the timer ----------------------------------------------------------------------------------


def test_a_clock_ahead_is_set_back_first_and_loses_nothing(tmp_path: Path) -> None:
    found = _told(outcome_store("timer-clock"), "5.3.3")
    timer, first = found.worst.timer, first_step(found)
    assert timer is not None
    assert (timer.stuck, timer.until) == (3, "2050-11-01T08:30:00.000Z")
    assert (found.worst.verdict, first.action) == (Verdict.SAFE, Action.CLOCK)
    assert first.text.endswith("then start it")
    root = copy_of_case("timer-clock", tmp_path / "case")
    (root / "config" / "timercheck").unlink()
    assert _told(root, "5.3.3").worst.again.timers == 67  # 8 of users, the others are acknowledgements of pops


@pytest.mark.parametrize(("release", "skips"), [("5.1.4", 33), ("5.3.2", 0), ("4.9.7", 0)])
def test_an_offset_beyond_the_timers_queue_passes_over_what_comes(release: str, skips: int, tmp_path: Path) -> None:
    root = copy_of_case("timer-clock", tmp_path / "case")
    _set_timercheck(root, 1_795_250_987_202, 100)
    worst = _told(root, release).worst
    assert worst.undelivered == skips  # its queue ends at 67; 4.9.7 has no timer
    assert (worst.verdict is Verdict.LOSES) >= bool(skips)


def test_an_unclean_stop_hands_out_again_what_its_files_do_not_say_yet() -> None:
    """Each is an upper bound: delayOffset.json is written every 10 s, timercheck every second."""
    again = _told(outcome_store("s10"), "5.5.0").worst.again
    assert (again.groups, again.delay_levels, again.timers, again.pops) == (0, 20, 8, 32)


# --- transactions -------------------------------------------------------------------------------


def test_the_check_of_transactions_is_no_group_of_users() -> None:
    worst = _told(outcome_store("s02"), "4.9.7").worst
    assert {group.group: group.skips for group in worst.groups} == {
        "billing": 578,
        "books": 93,
        "mailer": 34,
        "shipping": 135,  # 14 of them in its retry topic
    }
    assert worst.transactions == TransactionStart(236, 129)
    assert re.match(r"up to 236 new half messages not checked back, .* committed twice", transaction_words(worst))


# --- what a repair does not bring back ----------------------------------------------------------


def test_a_new_store_does_not_make_a_broker_read_other_files() -> None:
    found = _told(outcome_store("lmq-on"), "4.9.7", outcome_conf("lmq-on"))
    tools = {way.tool: (way.outcome.verdict, way.is_better) for way in found.instead if way.tool}
    assert tools == {REBUILD: (Verdict.LOSES, False), SALVAGE: (Verdict.LOSES, False)}
    best = found.instead[0]
    assert best.remedy.copied == (("config/consumerOffset.json", "config/lmqConsumerOffset.json"),)


def test_a_salvaged_store_lets_a_group_skip_that_is_ahead_of_all_units(tmp_path: Path) -> None:
    """Queues keep the ends that units prove; an offset of another store lies beyond those, too."""
    root = copy_of_case("s02", tmp_path / "case")
    path = root / "config" / "consumerOffset.json"
    path.write_text(re.sub(r'("orders@billing":\{[^}]*"?0"?:)\d+', r"\g<1>100000", path.read_text(), count=1))
    found = _told(root, "4.9.7")
    salvaged = next(way for way in found.instead if way.tool == SALVAGE)
    assert salvaged.outcome.verdict is Verdict.LOSES
    assert 90_000 < salvaged.outcome.skipped < 100_000
