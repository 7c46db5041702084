"""Numbers as Java parses them, and as its sums wrap."""

import pytest

from rmqinspect.codec.java import java_number, wrapped_int, wrapped_long


@pytest.mark.parametrize(
    ("text", "bits", "number"),
    [
        ("0", 32, 0),
        ("+7", 32, 7),
        ("-2147483648", 32, -(2**31)),
        ("2147483648", 32, None),
        ("9223372036854775807", 64, 2**63 - 1),
        ("0" * 400 + "1", 16, 1),
        ("-32769", 16, None),
        ("٣", 32, 3),
        ("\N{MATHEMATICAL BOLD DIGIT ONE}", 32, None),
        ("1_0", 32, None),
        (" 1", 32, None),
        ("-", 32, None),
        ("", 32, None),
        ("9" * 5000, 64, None),
    ],
)
def test_numbers_as_java_parses_them(text: str, bits: int, number: int | None) -> None:
    assert java_number(text, bits) == number


def test_sums_wrap() -> None:
    assert wrapped_int(2**31) == -(2**31)
    assert wrapped_long(2**63 - 1 + 3) == -(2**63) + 2
    assert (wrapped_int(-5), wrapped_long(7)) == (-5, 7)
