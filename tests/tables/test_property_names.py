"""Names that are looked at once for each sequence of them say what a look at each record says."""

from itertools import accumulate

import numpy as np
import pyarrow as pa
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rmqinspect.tables.property_names import PropertyNames

NAMES = ("a", "b", "ab", "ba", "aab")


@settings(max_examples=300, deadline=None)
@given(st.lists(st.lists(st.sampled_from(NAMES), max_size=4), min_size=1, max_size=6))
@example([[]])
@example([["a", "ba"], ["ab", "a"]])  # the same bytes, other names
@example([["a", "b"], ["ab"]])
@example([["a", "b"], ["a", "b"], [], ["b", "a"]])
@example([["a", "a"], ["b", "a"], ["a", "a", "a"]])
def test_sequences_say_what_each_record_says(records: list[list[str]]) -> None:
    flat = [name for record in records for name in record]
    firsts = np.array([0, *accumulate(map(len, records))], np.int64)
    texts = pa.array(flat, pa.string())
    names = PropertyNames(texts.cast(pa.binary()), texts, firsts)
    for name in NAMES:
        expected = [
            first + len(record) - 1 - record[::-1].index(name) if name in record else None
            for first, record in zip(firsts.tolist(), records, strict=False)
        ]
        found = names.find(name)
        if found is None:
            assert set(expected) == {None}
        else:
            assert pa.array(found[0], mask=found[1]).to_pylist() == expected
    kept = [
        first + place
        for first, record in zip(firsts.tolist(), records, strict=False)
        for place, name in enumerate(record)
        if name not in record[place + 1 :]
    ]
    last = names.last_of_each
    assert (list(range(len(flat))) if last is None else last.tolist()) == kept
    assert (last is None) == (len(kept) == len(flat))
