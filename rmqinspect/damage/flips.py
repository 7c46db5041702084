"""Flipped bits in words. Memory and disks flip single bits; one that explains everything is named."""

from rmqinspect.text import describe_offset


def byte_words(value: int) -> str:
    """Return a byte in hex, and the character that it is: `0x48 'H'`."""
    return f"{value:#04x} {chr(value)!r}" if 0x20 <= value < 0x7F else f"{value:#04x}"


def place_words(at: int, position: int | None) -> str:
    """Return which byte is meant: `byte 31 794 (0x7c32)`, of the file, or `byte +143`, of the record.

    `at` counts from the record's first byte, which is byte `position` of the file; None if unknown.
    """
    return f"byte +{at}" if position is None else f"byte {describe_offset(position + at)}"


def flip_words(place: str, was: int, now: int) -> str:
    """Return which bit of a byte is flipped: `byte 31 794 (0x7c32) bit 5 is 0x48 'H', was 0x68 'h'`."""
    bit = (was ^ now).bit_length() - 1
    return f"{place} bit {bit} is {byte_words(now)}, was {byte_words(was)}"


def one_flip(found: bytes, expected: bytes) -> int | None:
    """Return the number of the byte in which two values of one field differ by one bit; None if they differ otherwise.

    :raises ValueError: their lengths differ.
    """
    changes = [(at, now ^ was) for at, (now, was) in enumerate(zip(found, expected, strict=True)) if now != was]
    return changes[0][0] if len(changes) == 1 and changes[0][1].bit_count() == 1 else None


def explain_difference(expected: int, found: int, width: int) -> str | None:
    """Return a clause on the one bit in which two integers of `width` bits differ; None if they differ otherwise."""
    change = (expected ^ found) & (1 << width) - 1
    if change.bit_count() != 1:
        return None
    bit = change.bit_length() - 1
    now = found >> bit & 1
    return f"one flipped bit explains it: bit {bit} of {width} is {now}, was {1 - now}"
