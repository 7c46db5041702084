"""Ranges of offsets, compared with sets of them."""

from hypothesis import given
from hypothesis import strategies as st

from rmqinspect.codec.arrays import Span, intersect, merge, uncovered

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
