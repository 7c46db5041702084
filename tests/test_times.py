"""Milliseconds and nanoseconds as text, up to the borders of the years 1 and 9999."""

from datetime import timedelta, timezone

import pytest

from rmqinspect.times import END_MILLI, FIRST_MILLI, format_millis, format_nanos, format_seconds, millis_to_micros


@pytest.mark.parametrize(
    ("millis", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
        (FIRST_MILLI, "0001-01-01T00:00:00.000Z"),
        (FIRST_MILLI - 1, None),
        (END_MILLI - 1, "9999-12-31T23:59:59.999Z"),
        (END_MILLI, None),
        (-(2**63), None),
    ],
)
def test_a_time_has_text_in_the_years_1_to_9999_only(millis: int, text: str | None) -> None:
    assert format_millis(millis) == text
    assert millis_to_micros(millis) == (None if text is None else millis * 1000)


def test_a_time_is_given_in_the_zone_asked_for() -> None:
    assert format_millis(0, timezone(timedelta(hours=8))) == "1970-01-01T08:00:00.000+08:00"


def test_a_time_to_the_second_keeps_its_zone() -> None:
    assert format_seconds(-1) == "1969-12-31T23:59:59Z"
    assert format_seconds(999, timezone(timedelta(hours=8))) == "1970-01-01T08:00:00+08:00"
    assert format_seconds(END_MILLI) is None


def test_nanoseconds_stay_exact() -> None:
    assert format_nanos(1_795_250_926_708_123_456) == "2026-11-21T08:48:46.708123456Z"
    assert format_nanos(-1) == "1969-12-31T23:59:59.999999999Z"
    assert format_nanos(END_MILLI * 1_000_000 + 7) == "253402300800.000000007"
