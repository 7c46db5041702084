"""One test of what a record is, in two forms: on plain bytes for one place, by columns for many."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqinspect.codec.record_proof import find_magics, read_head, trailer_size
from rmqinspect.commitlog.find_record import find_in_place
from rmqinspect.commitlog.records import Records
from rmqinspect.loops.record_rows import SLACK
from tests.support.building import PRODUCER_V6, lay, record, various

PLACE = 0x40001000
RECORDS = [
    record(PLACE, properties={"KEYS": "a"}),
    record(PLACE, topic="t" * 300, born_host=PRODUCER_V6),
    record(PLACE, topic=b"", body=b""),
    record(PLACE, crc=True, store_host=PRODUCER_V6),
]


def proven_size(raw: bytes) -> int | None:
    """Return the size of the record at the beginning of some bytes, by the tests for one place."""
    head = read_head(raw)
    if head is None or head.size > len(raw):
        return None
    behind = trailer_size(head, raw[head.body_end :])
    return head.size if behind is not None and head.body_end + behind == head.size else None


def size_by_columns(raw: bytes) -> int | None:
    one = Records.at(memoryview(raw + bytes(SLACK)), PLACE, np.zeros(1, np.int64))
    return int(one.total_size[0]) if one.are_sound(len(raw))[0] else None


@settings(max_examples=300, deadline=None)
@given(
    raw=st.sampled_from(RECORDS),
    changes=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=3),
    cut=st.integers(0, 30),
)
def test_both_forms_agree_on_damaged_records(raw: bytes, changes: list[tuple[int, int]], cut: int) -> None:
    changed = bytearray(raw[: len(raw) - cut])
    for at, value in changes:
        changed[at % len(changed)] = value
    assert proven_size(bytes(changed)) == size_by_columns(bytes(changed))


def test_whole_records_prove_themselves() -> None:
    assert [proven_size(raw) for raw in RECORDS] == [len(raw) for raw in RECORDS]


def test_a_candidate_is_in_its_place_or_only_a_magic() -> None:
    log = lay(various(5), PLACE)
    strays = record(7) + log
    starts = [at for at in find_magics(strays) if at >= len(record(7))]
    assert list(find_magics(strays)) == [0, *starts]
    assert list(find_in_place(strays, PLACE - len(record(7)))) == starts
    assert list(find_magics(strays, 1)) == starts
    assert len(starts) == 5


def test_a_magic_in_the_first_bytes_begins_nothing() -> None:
    assert list(find_magics(record(0)[4:])) == []
    assert list(find_in_place(record(0)[2:], 0)) == []
