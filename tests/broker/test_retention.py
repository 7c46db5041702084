"""Which segments a broker deletes by age, as MappedFileQueue#deleteExpiredFileByTime does."""

import pytest

from rmqinspect.broker.gone import expired_segments, reserved_hours

HOUR = 3_600_000


@pytest.mark.parametrize(
    ("ages", "hours", "expected"),
    [
        ([70, 60, 50, 0], 48, 3),
        ([70, 60, 50, 0], 55, 2),
        ([70, 60, 50, 0], 60, 2),  # exactly as old
        ([70, 60, 50, 0], 71, 0),
        ([50, 70, 0], 60, 0),  # the first one that is too young stops it
        ([70, None, 60, 0], 1, 1),  # of unknown age: it may be young
        ([70], 1, 0),  # the newest file stays, whatever its age
        ([70, 70], 0, 1),
        ([], 1, 0),
    ],
)
def test_segments_go_from_the_oldest_on(ages: list[int | None], hours: float, expected: int) -> None:
    now = 1_700_000_000_000
    assert expired_segments([None if age is None else now - age * HOUR for age in ages], now, hours) == expected


@pytest.mark.parametrize(
    ("value", "hours"), [("48", 48), ("0", 72), ("\u00b2", 72), ("9" * 5000, 72), ("-1", 72), (None, 72)]
)
def test_a_setting_that_is_no_number_of_hours_leaves_the_default(value: str | None, hours: int) -> None:
    assert reserved_hours({} if value is None else {"fileReservedTime": value}) == hours
