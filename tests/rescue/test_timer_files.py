"""The timer's files in a salvaged store: kept where the broker passes over what is lost, else left out; and said.

A unit that leads to the first byte of a bridge would have the bridge delivered as a message: it is moved on by a byte.
"""

import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rmqinspect.rescue.salvage import Salvaged
from rmqinspect.schemas.timer import UNIT_SIZE, TimerUnit
from rmqinspect.store.discover import open_store
from rmqinspect.verify.result import VerifyOptions
from rmqinspect.verify.run import verify
from tests.rescue.test_salvage import salvage, sound_records
from tests.support import oracle
from tests.support.outcome_stores import copy_of_case

_LOG = "timerlog/00000000000000000000"
_TIMERS = ("timerwheel", "timerlog/", "config/timercheck")


def _both(folder: Path, store: Path) -> tuple[Salvaged, Salvaged]:
    """Return what a dry run says, and what was made."""
    said, _ = salvage(folder / "dry", store, dry_run=True)
    made, _ = salvage(folder / "new", store)
    assert made.holds
    return said, made


def _same(said: Salvaged, made: Salvaged) -> None:
    """A dry run says all that the run does, but for how files are brought, and what only the new store shows."""
    apart = {"store", "dry_run", "started", "ended", "brought", "timers", "aside", "verdict", "next_start", "run"}
    one, two = (msgspec.structs.asdict(salvaged.receipt) for salvaged in (said, made))
    assert [name for name in one if name not in apart and one[name] != two[name]] == []
    assert [row.file for row in said.receipt.brought] == [row.file for row in made.receipt.brought]
    assert [(row.start, row.why) for row in said.receipt.aside] == [(row.start, row.why) for row in made.receipt.aside]
    assert said.receipt.timers is not None and made.receipt.timers is not None
    assert msgspec.structs.replace(said.receipt.timers, moved=made.receipt.timers.moved) == made.receipt.timers


def _units(store: Path) -> list[Any]:
    raw = (store / _LOG).read_bytes()
    units = (TimerUnit.parse(raw[at : at + UNIT_SIZE]) for at in range(0, len(raw) - UNIT_SIZE, UNIT_SIZE))
    return [unit for unit in units if unit.size == UNIT_SIZE]


def _damage_record(store: Path, place: int, at: int = 80) -> None:
    """Make a record beyond repair: several bytes of its body change."""
    size = min(path.stat().st_size for path in (store / "commitlog").iterdir())
    path = store / "commitlog" / f"{place - place % size:020d}"
    raw = bytearray(path.read_bytes())
    for step in range(6):
        raw[place % size + at + 4 + step * 2] ^= 0x5A
    path.write_bytes(raw)


def test_one_lost_timer_message_leaves_wheel_and_log_in_place(tmp_path: Path) -> None:
    store = copy_of_case("s01", tmp_path / "case")
    said, made = _both(tmp_path, store)
    _same(said, made)
    timers = made.receipt.timers
    assert timers is not None
    assert (timers.kept, timers.lost, timers.moved, timers.again) == (True, 1, 0, None)
    for name in ("timerwheel", _LOG, "config/timercheck"):
        assert (tmp_path / "new" / name).read_bytes() == (store / name).read_bytes()


@pytest.mark.parametrize("which", [3, -1])
def test_a_unit_that_would_lead_to_a_bridge_is_moved_on(tmp_path: Path, which: int) -> None:
    store = oracle.copy("broker", "main-5.3.3", tmp_path)
    units = _units(store)
    lost = units[which]
    _damage_record(store, lost.physical_offset)
    said, made = _both(tmp_path, store)
    _same(said, made)
    timers = made.receipt.timers
    assert timers is not None
    assert (timers.kept, timers.lost, timers.moved) == (True, 1, 1)
    assert [row.start for row in made.receipt.bridged] == [lost.physical_offset]
    after = _units(tmp_path / "new")
    assert after[which] == dict(lost) | {"physical_offset": lost.physical_offset + 1}
    assert [one for one in after if one != after[which]] == [one for one in units if one != lost]
    # Without the byte verify would call it damage.
    raw = bytearray((tmp_path / "new" / _LOG).read_bytes())
    at = raw.index((lost.physical_offset + 1).to_bytes(8, "big"))
    raw[at : at + 8] = lost.physical_offset.to_bytes(8, "big")
    (tmp_path / "new" / _LOG).write_bytes(raw)
    found = verify(open_store([str(tmp_path / "new")]), VerifyOptions("deep")).findings.rows
    assert [one.severity for one in found if one.code == "TM-CHAIN"] == ["error"]


def test_a_record_of_another_topic_that_is_lost_leaves_the_timer_alone(tmp_path: Path) -> None:
    store = oracle.copy("broker", "main-5.3.3", tmp_path)
    places = {unit.physical_offset for unit in _units(store)}
    place = next(place for place, raw in sorted(sound_records(open_store([str(store)])).items()) if place not in places)
    _damage_record(store, place)
    made, _ = salvage(tmp_path / "new", store)
    timers = made.receipt.timers
    assert made.holds and timers is not None
    assert (timers.kept, timers.lost, timers.moved) == (True, 0, 0)


def test_a_broken_chain_leaves_wheel_and_log_out_and_says_what_comes_again(tmp_path: Path) -> None:
    store = oracle.copy("broker", "main-5.3.3", tmp_path)
    path, units = store / _LOG, _units(store)
    raw = bytearray(path.read_bytes())
    chained = next(number for number, unit in enumerate(units) if unit.previous >= 0)
    raw[chained * UNIT_SIZE + 4 : chained * UNIT_SIZE + 12] = (7).to_bytes(8, "big")
    path.write_bytes(raw)
    said, made = _both(tmp_path, store)
    _same(said, made)
    timers = made.receipt.timers
    assert timers is not None and not timers.kept and timers.why is not None and "TM-CHAIN" in timers.why
    assert timers.again and timers.again <= len(units)
    assert not any((tmp_path / "new" / name).exists() for name in _TIMERS if not name.endswith("/"))


def test_a_store_without_timer_messages_says_nothing_of_them(tmp_path: Path) -> None:
    store = oracle.copy("broker", "main-5.3.3", tmp_path)
    shutil.rmtree(store / "timerlog")
    (store / "timerwheel").unlink()
    (store / "config/timercheck").unlink()
    made, _ = salvage(tmp_path / "new", store, dry_run=True)
    assert made.receipt.timers is None
