"""What the bytes of a record contain if its row passes a filter: other records need no columns.

    filter                          part         contains
    --tag urgent                    properties   urgent
    --property color=red            properties   color 01 red
    --id, a producer's              properties   the id as given, or with the other hex digits
    --host 10.0.0.1                 born_host    0A 00 00 01
    --body-contains café            body         63 61 66 C3 A9

A record that contains it may still fail: the tag may stand in a key. One that does not may pass for the reasons in
`Needles`, and if its body is compressed.
"""

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

_ESCAPED = r"\x"  # may stand for a byte that is not UTF-8: `text_of`


@dataclass(frozen=True, slots=True)
class Needles:
    """Texts of which the records that pass a filter contain at least one, and what passes without."""

    part: Literal["born_host", "properties", "body"]  # of the record
    texts: tuple[bytes, ...]
    places: tuple[int, ...] = ()  # physical offsets of records that may pass without


def of_values(values: Iterable[str], before: str = "", places: tuple[int, ...] = ()) -> tuple[Needles, ...]:
    """Return what properties contain that have one of some values, as tables print them; `before` precedes each.

    Nothing for a value with an escape: it may be printed so, or stand for a byte.
    """
    texts = tuple(before + value for value in values)
    if any(_ESCAPED in text for text in texts):
        return ()
    # Not UTF-8 itself: no record has it.
    return (Needles("properties", tuple(text.encode("utf-8", "surrogatepass") for text in texts), places),)


def of_body(content: bytes) -> tuple[Needles, ...]:
    """Return what a record contains whose body contains some bytes."""
    return (Needles("body", (content,)),)


def of_host(address: str) -> tuple[Needles, ...]:
    """Return what a record contains that comes from an address, as tables print it."""
    return (Needles("born_host", (ipaddress.ip_address(address).packed,)),)
