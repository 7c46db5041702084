"""Loops over index files: what they say of hostile bytes is what the rules say, compiled or not."""

from bisect import bisect_right
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from rmqinspect.index.geometry import Geometry
from rmqinspect.loops import pointer_rows as walk
from rmqinspect.loops.pointers import java_seconds, step_entries
from rmqinspect.schemas.index import IndexEntry
from rmqinspect.verify.index_survey import IndexSurvey, survey_index
from rmqinspect.verify.plan import NO_RUNS, cut_runs
from rmqinspect.verify.pointers import DANGLING
from tests.support.loop_ways import loop_way
from tests.support.strict import strict_loops
from tests.verify.test_index_checks import BEGIN, random_file

LAST = 2**63 - 1
Outcome = TypeVar("Outcome")


def each_way(run: Callable[[], Outcome]) -> Outcome:
    """Return what is the same compiled, uncompiled, and with every index and sum checked."""
    with loop_way("compiled"):
        compiled = run()
    with loop_way("uncompiled"):
        assert run() == compiled
    with strict_loops():
        assert run() == compiled
    return compiled


# --- chains -------------------------------------------------------------------------------------

damage = st.lists(st.tuples(st.integers(0, 2**16), st.sampled_from([1, 4, 20, 60]), st.binary(max_size=2)), max_size=6)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=40)
@given(slots=st.integers(1, 30), entries=st.integers(1, 150), places=damage, cut=st.integers(0, 300))
def test_a_survey_is_the_same_each_way(
    slots: int, entries: int, places: list[tuple[int, int, bytes]], cut: int, tmp_path: Path
) -> None:
    geometry = Geometry(slots, entries + 2)
    writer = random_file(geometry, entries, seed=slots)
    for at, size, filled in places:
        at %= len(writer.raw)
        size = min(size, len(writer.raw) - at)
        writer.raw[at : at + size] = filled.ljust(size, b"\0")[:size]
    if cut < len(writer.raw) - 40 and cut % 5 == 0:
        del writer.raw[len(writer.raw) - cut :]
    index, borders = writer.index(tmp_path), np.array([0, 3000, 9000], np.int64)

    def survey() -> tuple[IndexSurvey, list[list[int]]]:
        found = survey_index(index, borders, 1000)
        return replace(found, runs=NO_RUNS.rows), found.runs.tolist()

    found, _ = each_way(survey)
    assert bool(found.findings) <= bool(places or cut % 5 == 0)


# --- runs ---------------------------------------------------------------------------------------

offsets = st.one_of(st.integers(-3, 30), st.sampled_from([-(2**63), LAST]))


@settings(deadline=None)
@given(
    places=st.lists(offsets, max_size=90) | st.lists(st.integers(0, 30), max_size=90).map(sorted),
    borders=st.lists(st.integers(0, 25), max_size=6).map(sorted),
)
def test_runs_hold_each_row_with_its_split(places: list[int], borders: list[int]) -> None:
    runs = each_way(lambda: cut_runs(0, 0, np.array(places, np.int64), np.array(borders, np.int64)).tolist())
    for row, place in enumerate(places):
        split = bisect_right(borders, place) - 1
        assert any(number == split and first <= row < first + rows for number, _, first, rows in runs)
    assert {run[0] for run in runs} == {bisect_right(borders, place) - 1 for place in places}
    if places == sorted(places):
        assert sum(run[3] for run in runs) == len(places)


# --- entries and keys ---------------------------------------------------------------------------

records = st.lists(
    st.tuples(st.integers(1, 3), st.sampled_from([0, 1, 999, 5000, -1, LAST]), st.lists(st.integers(0, 5), max_size=6)),
    max_size=6,
)
fields = {
    "key_hash": st.integers(-1, 6),
    "physical_offset": st.one_of(st.integers(0, 12), st.sampled_from([-1, LAST])),
    "time_diff": st.sampled_from([0, 0, 4, 2**31 - 1, -1]),
    "previous": st.just(0),
}


@pytest.mark.parametrize("ascending", [False, True])
@settings(deadline=None)
@given(
    data=st.data(),
    log=records,
    begin=st.sampled_from([-1, 0, 1, 1000, LAST]),
    ends=st.tuples(st.integers(0, 3), st.integers(4, 14)),
    first=st.integers(1, 4),
    newest=st.integers(1, 30),
    more_keys=st.booleans(),
)
def test_the_verdict_on_an_entry_is_that_of_the_rules(
    ascending: bool,
    data: Any,
    log: list[Any],
    begin: int,
    ends: tuple[int, int],
    first: int,
    newest: int,
    more_keys: bool,
) -> None:
    if more_keys and log:  # more than are looked at one by one
        log = [*log, (1, 0, [*range(10, 10 + walk.FAR), 3, 4])]
    places = np.cumsum([step for step, _, _ in log], dtype=np.int64)
    times = np.array([time for _, time, _ in log], np.int64)
    key_record = np.repeat(np.arange(len(log), dtype=np.int32), [len(hashes) for _, _, hashes in log])
    key_hashes = np.array([key_hash for _, _, hashes in log for key_hash in hashes], np.int32)
    numbers = (key_record.astype(np.int64) << walk.KEY_BITS) | key_hashes
    order = np.argsort(numbers, kind="stable")
    keys = list(zip(places[key_record].tolist(), key_hashes.tolist(), strict=True))
    written = st.sampled_from(keys).map(lambda key: {"physical_offset": key[0], "key_hash": key[1]}) if keys else None
    entry = st.fixed_dictionaries(fields)
    good = st.tuples(entry, written).map(lambda both: {**both[0], **both[1]}) if written is not None else entry
    entries: list[dict[str, int]] = data.draw(st.lists(good | entry, max_size=24))
    if ascending:
        entries.sort(key=lambda entry: entry["physical_offset"])
    raw = np.frombuffer(b"".join(map(IndexEntry.build, entries)), np.uint8)
    # Keys in order are only needed for records with many.
    nothing = np.empty(0, np.int64)
    sorted_keys, key_order = (numbers[order], order) if more_keys else (nothing, nothing)
    low, last = ends

    def step() -> tuple[int, list[list[int]], list[int]]:
        has_entry, counts = np.zeros(len(key_record), np.uint8), np.zeros(2, np.int64)
        found = np.zeros((len(entries), walk.ENTRY_COLUMNS), np.int64)
        step_entries(
            raw,
            low,
            last,
            begin,
            first,
            newest,
            places,
            times,
            key_record,
            key_hashes,
            sorted_keys,
            key_order,
            has_entry,
            found,
            counts,
        )
        return int(counts[1]), found[: counts[0]].tolist(), np.flatnonzero(has_entry).tolist()

    known, found, marked = each_way(step)
    starts, good_rows, verdicts = places.tolist(), [], []
    for row, one in enumerate(entries):
        place, key_hash = one["physical_offset"], one["key_hash"]
        if not ends[0] <= place <= ends[1] or not any(one.values()):
            continue
        record = starts.index(place) if place in starts else -1
        verdict = DANGLING if record < 0 else walk.WRONG_KEY
        if (place, key_hash) in keys:
            good_rows.append((place, key_hash))
            number, verdict = first + row, 0
            if begin >= 0 and not _fits(one["time_diff"], begin, int(times[record]), is_first=number == 1):
                verdict |= walk.WRONG_ENTRY_TIME
            if begin >= 0 and number in (1, newest - 1, newest):
                verdict |= walk.AT_EDGE
        if verdict:
            verdicts.append([row, record, verdict])
    assert known == len(good_rows)
    assert found == verdicts
    assert {keys[key] for key in marked} == set(good_rows)


def _fits(seconds: int, begin: int, stored: int, *, is_first: bool) -> bool:
    """Whether a time is right; a file's first entry may have any. Source: IndexFile#putKey."""
    expected = min(max(0, (stored - begin) // 1000), 2**31 - 1) if begin > 0 else 0
    return seconds == expected or (is_first and seconds >= 0)


@pytest.mark.parametrize(
    ("later", "begin", "seconds"),
    [
        (999, BEGIN, 0),  # a second is the resolution
        (1000, BEGIN, 1),
        (-5000, BEGIN, 0),  # the clock was set back
        (10**13, BEGIN, 2**31 - 1),
        (7000, 0, 0),  # a file without a begin
        (-(2**63) - BEGIN, BEGIN, 2**31 - 1),  # Java's difference wraps around
        (2**63 - 1 - BEGIN, 2**63 - 1, 0),
    ],
)
def test_the_seconds_of_an_entry_are_those_of_its_record(later: int, begin: int, seconds: int) -> None:
    assert java_seconds(begin, BEGIN + later) == seconds
