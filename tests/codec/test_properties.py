"""Property texts of many records at once are split as each alone would be, and as the broker does."""

import random
from itertools import accumulate, pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rmqinspect.codec.properties import Items, split_properties
from rmqinspect.schemas.message import WELL_KNOWN
from tests.support.building import properties_text
from tests.support.loop_ways import loop_way

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


def split(raw: bytes, starts: list[int], ends: list[int]) -> tuple[list[Pairs], Items]:
    """Return the pairs of each text, and all that `split_properties` says."""
    items = split_properties(np.frombuffer(raw, np.uint8), np.array(starts, np.int64), np.array(ends, np.int64))
    places = zip(*(column.tolist() for column in _places(items)), strict=True)
    pairs = [(raw[a:b], raw[c:d]) for a, b, c, d in places]
    borders = items.firsts.tolist()
    assert borders[0] == 0
    assert borders[-1] == len(pairs)
    return [pairs[first:end] for first, end in pairwise(borders)], items


def _places(items: Items) -> tuple[np.ndarray, ...]:
    return items.name_starts, items.name_ends, items.value_starts, items.value_ends


def check(texts: list[bytes]) -> None:
    """Split texts that lie apart from each other, and compare all that is said of them with the broker's rules."""
    between = b"\x02x\x01"
    raw = between + between.join(texts) + between
    ends = list(accumulate(len(between) + len(text) for text in texts))
    starts = [end - len(text) for end, text in zip(ends, texts, strict=True)]
    found, items = split(raw, starts, ends)
    expected = [by_the_broker(text) for text in texts]
    assert found == [pairs for pairs, _ in expected]
    assert items.malformed.tolist() == [malformed for _, malformed in expected]
    assert items.beyond_ascii.tolist() == [max(text, default=0) >= 0x80 for text in texts]
    numbers = [(number, item) for number, (pairs, _) in enumerate(expected) for item in range(len(pairs))]
    assert items.record.tolist() == [number for number, _ in numbers]
    assert items.replaced.tolist() == [
        found[number][item][0] in [name for name, _ in found[number][item + 1 :]] for number, item in numbers
    ]
    for name in WELL_KNOWN:
        values = [dict(pairs).get(name) for pairs in found]  # of equal names the last one
        assert [items.value_of(name, number) for number in range(len(texts))] == values
        assert ((items.of(name) < items.firsts[1:]) & (items.of(name) >= -1)).all()
        present = items.of(name) >= 0
        assert items.record[items.of(name)[present]].tolist() == np.flatnonzero(present).tolist()


NAMES = st.sampled_from([b"TAGS", b"KEYS", b"UNIQ_KEY", b"TAGT", b"a", b"bc", b"\xff", b"\x00"])
PIECES = st.sampled_from([b"\x01", b"\x02"]) | NAMES
TEXTS = st.lists(
    st.lists(PIECES, max_size=12).map(b"".join)
    | st.lists(st.tuples(NAMES, NAMES).map(b"\x01".join), max_size=9).map(b"\x02".join),
    max_size=6,
)


@pytest.mark.parametrize("mode", ["uncompiled", "compiled"])
@settings(deadline=None)  # the first example compiles
@given(texts=TEXTS)
@example(texts=[])
@example(texts=[b""])
@example(texts=[b"", b"a\x01b\x02", b""])
@example(texts=[b"a\x01b", b"c\x01d"])
@example(texts=[b"a\x01b\x02c", b"\x02d\x01e"])
@example(texts=[b"a", b"\x01b\x02"])
@example(texts=[b"a\x01b\x02a\x01c", b"a\x01b", b"TAGS\x01b\x02a\x01\x02TAGS\x01d"])
def test_many_texts_are_split_as_each_alone(mode: str, texts: list[bytes]) -> None:
    with loop_way(mode):
        check(texts)


def test_more_names_than_hashes_are_told_apart() -> None:
    names = [b"%d" % number for number in range(3000)]
    random.Random(1).shuffle(names)
    check([b"\x02".join(name + b"\x01v" for name in names), b"\x02".join(name + b"\x01w" for name in names[:40] * 2)])


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
    check([text])
    check([b"x\x01y\x02", text, b"x\x01y"])


@pytest.mark.parametrize("mode", ["uncompiled", "compiled"])
@pytest.mark.parametrize(
    ("start", "end", "inside"),
    [(-3, 5, b"a\x01b\x02c"), (4, 99, b"c\x01d"), (5, 2, b""), (99, 120, b""), (-9, -5, b"")],
)
def test_a_text_ends_where_the_bytes_do(mode: str, start: int, end: int, inside: bytes) -> None:
    with loop_way(mode):
        found, items = split(b"a\x01b\x02c\x01d", [start, 0], [end, 3])
    assert (found[0], items.malformed.tolist()) == (by_the_broker(inside)[0], [by_the_broker(inside)[1], False])
    assert found[1] == [(b"a", b"b")]


@pytest.mark.parametrize("ended", [True, False])
def test_built_texts_are_split_into_what_they_were_built_of(ended: bool) -> None:
    properties = {"TAGS": "标签", "KEYS": "a b", "n": "v=1;w=2"}
    text = properties_text(properties, ended=ended)
    [found], items = split(text, [0], [len(text)])
    assert {name.decode(): value.decode() for name, value in found} == properties
    assert not items.malformed.any()
