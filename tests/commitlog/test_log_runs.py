"""Runs of bytes: painted they cover the log, folded they are few and hide no damage, however the log was cut."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from rmqinspect.commitlog.log_runs import KINDS, FoldedRanges, Run, folded, painted

RUNS = st.builds(
    lambda start, size, kind: Run(start, start + size, kind),
    st.integers(-5, 60),
    st.integers(1, 20),
    st.sampled_from(sorted(KINDS)),
)
LAYERS = st.lists(st.lists(RUNS, max_size=8), max_size=4)


def byte_kinds(runs: list[Run], start: int, end: int) -> list[str]:
    """Return the kind of each byte, of runs that cover [start, end)."""
    found = [run.kind for run in runs for _ in range(run.start, run.end)]
    assert [run.start for run in runs[1:]] == [run.end for run in runs[:-1]]
    assert not runs or (runs[0].start, runs[-1].end) == (start, end)
    assert len(found) == end - start
    return found


@given(LAYERS, st.integers(0, 20), st.integers(20, 60))
def test_each_byte_is_what_the_last_layer_says_that_knows_it(layers: list[list[Run]], start: int, end: int) -> None:
    worst = list(KINDS)
    wanted = []
    for byte in range(start, end):
        told = [[run.kind for run in layer if run.start <= byte < run.end] for layer in layers]
        known = [kinds for kinds in told if kinds]
        wanted.append(max(known[-1], key=worst.index) if known else "missing")
    runs = painted(layers, start, end)
    assert byte_kinds(runs, start, end) == wanted
    assert all(one.kind != other.kind for one, other in pairwise(runs))


@given(LAYERS, st.integers(1, 12))
def test_folded_runs_are_few_and_damage_stays_damage(layers: list[list[Run]], most: int) -> None:
    runs = painted(layers, 0, 60)
    few = folded(runs, most)
    kinds, before = byte_kinds(few, 0, 60), byte_kinds(runs, 0, 60)
    assert len(few) <= max(most, 3)  # a cell may have a run that crosses its border
    assert all(now == "damage" for now, was in zip(kinds, before, strict=True) if was == "damage")
    exact = [run for run in few if not run.mixed]
    assert all(before[run.start : run.end] == [run.kind] * (run.end - run.start) for run in exact)


def test_one_damaged_byte_in_many_runs_is_neither_lost_nor_grown() -> None:
    segment = 1 << 30
    layers = [[Run(0, 1000 * segment, "records")]]
    layers += [[Run(number * segment - 70, number * segment, "filler") for number in range(1, 1001)]]
    layers += [[Run(number * segment + 5, number * segment + 6, "damage") for number in range(1, 1000, 2)]]
    runs = folded(painted(layers, 0, 1000 * segment), 1500)
    assert len(runs) <= 1500
    damaged = [run for run in runs if run.kind == "damage"]
    assert sum(run.end - run.start for run in damaged) < 1000 * 4096
    for number in range(1, 1000, 2):
        assert any(run.start <= number * segment + 5 < run.end for run in damaged)


@given(st.lists(st.integers(1, 30), min_size=1, max_size=60), st.integers(1, 8), st.integers(1, 59))
def test_folded_ranges_are_the_same_wherever_the_log_was_cut(gaps: list[int], most: int, cut: int) -> None:
    ranges, at = [], 0
    for number, gap in enumerate(gaps):
        ranges.append((at + gap, at + gap + number % 3 + 1))
        at = ranges[-1][1]
    whole, first, second, joined = (FoldedRanges(most) for _ in range(4))
    for number, (start, end) in enumerate(ranges):
        whole.add(start, end)
        (first if number < cut else second).add(start, end)
    for part in (first, second):
        joined.extend(part.bits, part)
    assert list(joined) == list(whole)
    assert len(list(whole)) <= most
    for start, end in ranges:
        assert any(low <= start and end <= high for low, high, _ in whole)
    for low, high, mixed in whole:
        inside = sum(end - start for start, end in ranges if low <= start and end <= high)
        assert mixed == (inside < high - low)
