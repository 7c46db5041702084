"""Which segment a start scans first, and why, by rule, checkpoint and settings."""

from pathlib import Path
from typing import Any

import pytest

from rmqinspect.broker.eras import rules_of_start
from rmqinspect.config.json_files import read_checkpoint
from rmqinspect.forecast.scan import LogScanner
from rmqinspect.forecast.settings import Settings
from rmqinspect.forecast.start_segment import Start, start_segment
from rmqinspect.store.discover import open_store
from rmqinspect.store.model import Store
from tests.support import oracle


def long_store() -> Store:
    """Return an undamaged store of at least twelve segments."""
    names = (name for name in oracle.cases("crash") if oracle.case("crash", name)["base_variant"].startswith("L"))
    return open_store([str(oracle.store("crash", next(name for name in names if not oracle.is_damaged(name))))])


def first_times(store: Store) -> list[int]:
    """Return STORETIMESTAMP of the first record of each segment; 0 where none is."""
    times = []
    for segment in store.segments:
        raw = Path(segment.path).read_bytes()[:80]
        at = 68 if raw[39] & 0x10 else 56
        times.append(int.from_bytes(raw[at : at + 8], "big"))
    return times


def start(
    release: str, clean: bool, queues_end: int = -1, checkpoint: dict[str, int] | None = None, **given: Any
) -> Start:
    store, settings, rules = long_store(), Settings(**given), rules_of_start(release)
    scanner = LogScanner(store, store.segments, settings)
    values = read_checkpoint(store) if checkpoint is None else checkpoint
    return start_segment(scanner, rules, settings, values, queues_end, clean=clean)


def used() -> int:
    """Return the number of segments that begin with a record."""
    times = first_times(long_store())
    return times.index(0) if 0 in times else len(times)


def test_the_long_store_is_long_enough() -> None:
    assert len(long_store().segments) > used() > 10


@pytest.mark.parametrize("release", ["4.0.0", "4.9.7", "5.3.1"])
def test_the_third_last_segment(release: str) -> None:
    assert start(release, clean=True).segment == len(long_store().segments) - 3


@pytest.mark.parametrize(("shift", "found"), [(-1, 6), (0, 7), (1, 7)])
def test_the_segment_by_the_end_of_the_queues(shift: int, found: int) -> None:
    base = long_store().segments[7].base
    assert start("5.3.3", clean=True, queues_end=base + shift).segment == found
    assert start("5.5.0", clean=True, queues_end=base + shift).segment == found


def test_the_first_segment_without_queues() -> None:
    assert start("5.3.3", clean=True).segment == 0
    # 5.4.0 and later look at ten segments, or at as many as the settings say.
    count = len(long_store().segments)
    assert start("5.4.0", clean=True).segment == count - 10
    assert start("5.4.0", clean=True, commit_log_recover_max_num=4).segment == count - 4
    assert start("5.4.0", clean=True, commit_log_recover_max_num=-1).segment == count - 10
    assert start("5.4.0", clean=True, commit_log_recover_max_num=99).segment == 0


@pytest.mark.parametrize(("release", "margin"), [("4.2.0", 3000), ("5.3.3", 3000), ("5.4.0", 3000), ("5.5.0", 0)])
def test_the_segment_by_the_checkpoint(release: str, margin: int) -> None:
    time = first_times(long_store())[used() - 3] + margin
    times = {"physic_msg_timestamp": time, "logics_msg_timestamp": time, "index_msg_timestamp": 0}
    found = start(release, clean=False, checkpoint=times)
    assert first_times(long_store())[found.segment] <= time - margin
    assert first_times(long_store())[found.segment + 1] > time - margin
    # One millisecond earlier the segment does not match any more.
    earlier = {name: value - 1 for name, value in times.items()}
    assert start(release, clean=False, checkpoint=earlier).segment < found.segment
    # With messageIndexSafe the index counts, too, and it says that nothing was indexed.
    lowest = len(long_store().segments) - 10 if release >= "5.4" else 0
    assert start(release, clean=False, checkpoint=times, message_index_safe=True).segment == lowest


def test_the_segment_by_the_offset_that_the_checkpoint_has() -> None:
    noted = long_store().segments[8].base
    checkpoint = {"logics_physical_offset": noted, "logics_msg_timestamp": 1, "physic_msg_timestamp": 1}
    assert start("5.5.0", clean=False, checkpoint=checkpoint).segment == 8
    # 5.4.0 does not know that field: nothing matches.
    assert start("5.4.0", clean=False, checkpoint=checkpoint).segment == len(long_store().segments) - 10


def test_every_segment_is_said_with_the_reason() -> None:
    base = long_store().segments[used() - 3].base
    decision = start("5.5.0", clean=True, queues_end=base).decision
    said = {str(text) for name, text in decision.inputs if name.startswith("commitlog/")}
    assert "taken: its first record passes" in said
    assert any("PHYSICALOFFSET" in text and "behind" in text for text in said)


# --- enableAcceleratedRecovery ----------------------------------------------------------------------


def accelerated(release: str, clean: bool, noted: int, **given: Any) -> Start:
    checkpoint = {"logics_physical_offset": noted, "physic_msg_timestamp": 1, "logics_msg_timestamp": 1}
    return start(release, clean, checkpoint=checkpoint, enable_accelerated_recovery=True, **given)


def test_an_accelerated_start_begins_where_the_queues_end() -> None:
    base = long_store().segments[8].base
    found = accelerated("5.5.0", clean=False, noted=base + 1000)
    assert (found.segment, found.position, found.counted) == (8, 1000, 1000)
    assert accelerated("5.5.0", clean=True, noted=base + 1000, queues_end=base + 1000).position == 0
    assert accelerated("5.4.0", clean=False, noted=base + 1000).position == 0
    assert accelerated("5.3.3", clean=False, noted=base + 1000).position == 0


def test_an_accelerated_start_without_a_noted_offset_ends_at_once() -> None:
    refusal = accelerated("5.5.0", clean=False, noted=0).refusal
    assert refusal is not None
    assert (refusal.file, refusal.rule) == ("checkpoint", "accelerated_start")
    assert accelerated("5.5.0", clean=True, noted=0).refusal is None


def test_an_accelerated_start_behind_its_segment_ends_at_once() -> None:
    last = long_store().segments[-1]
    refusal = accelerated("5.5.0", clean=False, noted=last.end + 1).refusal
    assert refusal is not None
    assert "behind the segment" in refusal.why


def test_5_4_0_counts_from_a_place_before_the_segment() -> None:
    count = len(long_store().segments)
    base = long_store().segments[count - 10].base
    found = accelerated("5.4.0", clean=True, noted=0, queues_end=base - 500, store_type="defaultRocksDB")
    assert (found.segment, found.position, found.counted) == (count - 10, 0, -500)
    found = accelerated("5.4.0", clean=False, noted=0, queues_end=base + 500, store_type="defaultRocksDB")
    assert (found.segment, found.position, found.counted) == (count - 10, 500, 500)
