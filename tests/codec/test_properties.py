"""Property texts of many records at once are split as one text would be, and as the broker does."""

from itertools import accumulate

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rmqinspect.codec.properties import split_properties
from tests.support.building import properties_text

Pairs = list[tuple[bytes, bytes]]


def by_the_broker(text: bytes) -> tuple[Pairs, bool]:
    """Return the properties of one text, and whether an item of it is malformed.

    Written after MessageDecoder#string2messageProperties of 4.9.1 and later, which skips an item
    that is malformed or has no value.
    """
    pairs, malformed = [], False
    for item in text.split(b"\x02"):
        at = item.find(b"\x01")
        if 0 < at < len(item) - 1:
            pairs.append((item[:at], item[at + 1 :]))
        elif item and at <= 0:
            malformed = True
    return pairs, malformed


def split(texts: list[bytes]) -> tuple[list[Pairs], list[int]]:
    """Return what `split_properties` says: pairs per text, and which texts have a malformed item."""
    raw = b"".join(texts)
    offsets = np.array([0, *accumulate(map(len, texts))], np.int64)
    items = split_properties(np.frombuffer(raw, np.uint8), offsets)
    found: list[Pairs] = [[] for _ in texts]
    places = (items.record, items.name_starts, items.name_ends, items.value_starts, items.value_ends)
    for record, a, b, c, d in zip(*(place.tolist() for place in places), strict=True):
        found[record].append((raw[a:b], raw[c:d]))
    assert (np.diff(items.record) >= 0).all()
    assert (np.diff(items.malformed) >= 0).all()
    return found, sorted(set(items.malformed.tolist()))


PIECES = st.sampled_from([b"\x01", b"\x02", b"a", b"bc", b"\xff"])
TEXTS = st.lists(st.lists(PIECES, max_size=12).map(b"".join), max_size=6)


@settings(max_examples=400, deadline=None)
@given(TEXTS)
@example([])
@example([b""])
@example([b"", b"a\x01b\x02", b""])
@example([b"a\x01b", b"c\x01d"])
@example([b"a\x01b\x02c", b"\x02d\x01e"])
@example([b"a", b"\x01b\x02"])
@example([b"a\x01\x01\x02", b"b\x02"])
def test_many_texts_are_split_as_each_alone(texts: list[bytes]) -> None:
    expected = [by_the_broker(text) for text in texts]
    found, malformed = split(texts)
    assert found == [pairs for pairs, _ in expected]
    assert malformed == [number for number, (_, bad) in enumerate(expected) if bad]


@pytest.mark.parametrize(
    ("text", "pairs", "malformed"),
    [
        (b"", [], False),
        (b"\x02", [], False),
        (b"\x02\x02", [], False),
        (b"a\x01b\x02", [(b"a", b"b")], False),
        (b"a\x01b", [(b"a", b"b")], False),
        (b"a\x01b\x02\x02c\x01d\x02", [(b"a", b"b"), (b"c", b"d")], False),
        (b"a\x01b\x01c\x02", [(b"a", b"b\x01c")], False),
        (b"a\x01\x01\x02", [(b"a", b"\x01")], False),
        # A client that sets no tag but an empty one: the broker serves none.
        (b"TAGS\x01\x02a\x01b\x02", [(b"a", b"b")], False),
        (b"a\x01", [], False),
        (b"a\x02", [], True),
        (b"\x01a\x02", [], True),
        (b"\x01\x02", [], True),
        (b"a\x01b\x02c", [(b"a", b"b")], True),
        (b"a\x01b\x02a\x01c\x02", [(b"a", b"b"), (b"a", b"c")], False),
        # 4.8.0 to 4.9.2 join the properties of a batch and of its items without a separator.
        (b"a\x01bWAIT\x01true\x02", [(b"a", b"bWAIT\x01true")], False),
    ],
)
def test_an_item_is_a_property_or_malformed(text: bytes, pairs: Pairs, malformed: bool) -> None:
    assert by_the_broker(text) == (pairs, malformed)
    assert split([text]) == ([pairs], [0] * malformed)
    assert split([b"x\x01y\x02", text, b"x\x01y"]) == ([[(b"x", b"y")], pairs, [(b"x", b"y")]], [1] * malformed)


@pytest.mark.parametrize("ended", [True, False])
def test_built_texts_are_split_into_what_they_were_built_of(ended: bool) -> None:
    properties = {"TAGS": "标签", "KEYS": "a b", "n": "v=1;w=2"}
    [found], malformed = split([properties_text(properties, ended=ended)])
    assert {name.decode(): value.decode() for name, value in found} == properties
    assert not malformed
