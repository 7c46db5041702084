"""Numbers as Java parses them, and as its sums and casts wrap."""

import unicodedata


def java_number(text: str, bits: int) -> int | None:
    """Return a text as a signed integer of so many bits: a sign, then digits of any script; None where Java throws.

    Source: Long#parseLong, Integer#parseInt, Short#parseShort.
    """
    digits = text[1:] if text[:1] in ("+", "-") else text
    # Character#digit of a char: digits outside of the Basic Multilingual Plane are two chars, and none.
    if not digits or any(unicodedata.decimal(char, None) is None or ord(char) > 0xFFFF for char in digits):
        return None
    negative = text[0] == "-"
    value, limit = 0, (1 << (bits - 1)) - (not negative)
    for char in digits:
        value = value * 10 + unicodedata.decimal(char)
        if value > limit:
            return None
    return -value if negative else value


def wrapped_int(value: int) -> int:
    """Return the low 32 bits of a number as an int."""
    return ((value + (1 << 31)) & ((1 << 32) - 1)) - (1 << 31)


def wrapped_long(value: int) -> int:
    """Return the low 64 bits of a number as a long."""
    return ((value + (1 << 63)) & ((1 << 64) - 1)) - (1 << 63)
