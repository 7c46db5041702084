"""Joins of columns, compared with loops over lists; ranges of offsets, compared with sets of them."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rmqinspect.codec.arrays import (
    ABSENT,
    Groups,
    Ints,
    Keyed,
    Span,
    distinct,
    find,
    find_range,
    first_rule,
    intersect,
    is_among,
    merge,
    take,
    uncovered,
)

SMALL = st.integers(0, 5)
KEYS = st.lists(SMALL, max_size=20)
PAIRS = st.lists(st.tuples(SMALL, st.integers(0, 12)), max_size=20)


def ints(values: list[int]) -> Ints:
    return np.array(values, np.int64)


@given(KEYS, KEYS)
def test_find_returns_the_first_equal_row(rows: list[int], wanted: list[int]) -> None:
    rows.sort()
    expected = [rows.index(one) if one in rows else ABSENT for one in wanted]
    assert find(ints(rows), ints(wanted)).tolist() == expected
    assert take(ints(rows), ints(expected), 7).tolist() == [one if one in rows else 7 for one in wanted]


@given(KEYS, KEYS)
@example([], [])
@example(list(range(5000, 0, -1)), [1, 1, 5000, 5001])  # so many that numpy's own way is taken
def test_distinct_values_and_members_are_those_of_numpy(values: list[int], some: list[int]) -> None:
    assert distinct(ints(values)).tolist() == sorted(set(values))
    assert is_among(ints(values), ints(some)).tolist() == [one in some for one in values]
    assert is_among(ints(values), some).tolist() == [one in some for one in values]


@given(st.lists(st.integers(0, 30), max_size=8, unique=True), st.lists(st.integers(-2, 40), max_size=12))
def test_a_place_lies_in_the_range_that_starts_last_before_it(borders: list[int], places: list[int]) -> None:
    borders.sort()
    starts, ends = borders[::2][: len(borders) // 2], borders[1::2]
    expected = [
        next((number for number, one in enumerate(zip(starts, ends, strict=True)) if place in range(*one)), ABSENT)
        for place in places
    ]
    assert find_range(ints(starts), ints(ends), ints(places)).tolist() == expected


@given(PAIRS, PAIRS)
def test_places_are_looked_up_by_key(rows: list[tuple[int, int]], wanted: list[tuple[int, int]]) -> None:
    keyed = Keyed(ints([key for key, _ in rows]), ints([place for _, place in rows]))
    keys, behind = ints([key for key, _ in wanted]), ints([place for _, place in wanted])
    places = [sorted(place for other, place in rows if other == key) for key, _ in wanted]
    later = [[place for place in of_key if place > at] for of_key, (_, at) in zip(places, wanted, strict=True)]
    assert keyed.has(keys).tolist() == [bool(of_key) for of_key in places]
    assert keyed.count(keys).tolist() == [len(of_key) for of_key in places]
    assert keyed.first(keys).tolist() == [of_key[0] if of_key else ABSENT for of_key in places]
    assert keyed.last(keys).tolist() == [of_key[-1] if of_key else ABSENT for of_key in places]
    first, number = keyed.behind(keys, behind)
    assert first.tolist() == [of_key[0] if of_key else ABSENT for of_key in later]
    assert number.tolist() == [len(of_key) for of_key in later]


@given(KEYS)
def test_rows_without_a_key_are_groups_of_their_own(keys: list[int]) -> None:
    group = Groups(np.array(keys, np.uint64))
    rows = [[row] for row, key in enumerate(keys) if key == 0]
    rows += [[row for row, other in enumerate(keys) if other == key] for key in sorted({*keys} - {0})]
    assert group.first.tolist() == [of_group[0] for of_group in rows]
    assert group.last.tolist() == [of_group[-1] for of_group in rows]
    assert group.size.tolist() == [len(of_group) for of_group in rows]
    places = np.array([row if row % 3 else ABSENT for row in range(len(keys))], np.int64)
    there = [[row for row in of_group if row % 3] for of_group in rows]
    assert group.least(places).tolist() == [of_group[0] if of_group else ABSENT for of_group in there]
    assert group.sum(np.ones(len(keys), np.int32)).tolist() == [len(of_group) for of_group in rows]


@pytest.mark.parametrize("conditions, expected", [(("10", "11"), [0, 1]), (("00", "01", "00"), [2, 1])])
def test_the_first_rule_that_holds_is_chosen(conditions: tuple[str, ...], expected: list[int]) -> None:
    masks = [np.array([letter == "1" for letter in one]) for one in conditions]
    assert first_rule(masks).tolist() == expected


SPANS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=8)


def inside(spans: list[Span]) -> set[int]:
    return {offset for span in spans for offset in range(*span)}


def is_apart(spans: list[Span]) -> bool:
    borders = [border for span in spans for border in span]
    return borders == sorted(set(borders))


@given(SPANS, SPANS)
def test_ranges_hold_what_they_held(some: list[Span], others: list[Span]) -> None:
    merged, other = merge(some), merge(others)
    assert is_apart(merged) and inside(merged) == inside(some)
    assert inside(intersect(merged, other)) == inside(some) & inside(others)
    assert inside(uncovered(merged, (5, 25))) == set(range(5, 25)) - inside(some)


def test_ranges_that_lie_near_become_one() -> None:
    assert merge([(8, 9), (0, 2), (5, 5), (4, 6)], within=2) == [(0, 9)]
    assert merge([(8, 9), (0, 2), (2, 3)]) == [(0, 3), (8, 9)]
