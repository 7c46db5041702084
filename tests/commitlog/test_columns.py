"""The loops over records: alike compiled and uncompiled on damaged windows; queues are followed as simple code does."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqinspect.commitlog.queue_offsets import QueueOffsets
from rmqinspect.commitlog.records import Records
from rmqinspect.loops.record_rows import COLUMNS, SLACK
from rmqinspect.loops.records import follow
from rmqinspect.schemas.dledger import EntryHead
from rmqinspect.schemas.message import SysFlag
from tests.support.building import PRODUCER_V6, lay, record, various
from tests.support.loop_ways import loop_way

PLACE = 0x40001000
PLAIN = lay([*various(5), {"crc": True}, {"born_host": PRODUCER_V6}, {"topic": "t" * 300}], PLACE)
WRAPPED = lay(various(6), PLACE, dledger=True)
CHANGES = st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 255)), max_size=4)


def window(raw: bytes, lead: int, at: int, starts: Sequence[int]) -> list[object]:
    """Return all that the loops say of a window: the chain from `at` on, and what stands at some places."""
    memory = memoryview(raw + bytes(SLACK))
    rows = np.zeros((20, len(COLUMNS)), np.int64)
    count = follow(np.frombuffer(memory, np.uint8), at, len(raw), lead, rows)
    chain = Records(memory, PLACE, rows[:count])
    found: list[object] = [count, rows[:count].tolist(), chain.body_crcs.tolist(), chain.record_crcs.tolist()]
    some = Records.at(memory, PLACE, np.array(starts, np.int64))
    found += [some.rows.tolist(), some.are_sound(len(raw)).tolist()]
    queues = QueueOffsets()
    numbers = queues.number(chain)
    return [*found, numbers.tolist(), queues.follow(chain, numbers), queues.queues, queues.ends()]


@pytest.mark.parametrize(("raw", "lead"), [(PLAIN, 0), (WRAPPED, EntryHead.sizeof())], ids=["plain", "wrapped"])
@settings(max_examples=150, deadline=None)
@given(changes=CHANGES, at=st.integers(0, 300), starts=st.lists(st.integers(0, len(WRAPPED)), max_size=3))
def test_damaged_windows_are_read_alike_both_ways(
    raw: bytes, lead: int, changes: list[tuple[int, int]], at: int, starts: list[int]
) -> None:
    changed = bytearray(raw)
    for place, value in changes:
        changed[place % len(changed)] = value
    places = [min(start, len(changed)) for start in starts]
    found = []
    for mode in ("compiled", "uncompiled"):
        with loop_way(mode):
            found += [window(bytes(changed), lead, begin, places) for begin in (0, at)]
    assert found[:2] == found[2:]


@settings(max_examples=150, deadline=None)
@given(raw=st.binary(max_size=600), at=st.integers(0, 600))
def test_random_bytes_are_read_alike_both_ways(raw: bytes, at: int) -> None:
    found = []
    for mode in ("compiled", "uncompiled"):
        with loop_way(mode):
            found.append(window(raw, 0, min(at, len(raw)), [min(at, len(raw))]))
    assert found[0] == found[1]


Sent = tuple[str, int, int, int]  # topic, queue id, queue offset, sysFlag

SENT = st.tuples(
    st.sampled_from(["a", "orders", "orders-2", "orders-3", "t" * 9]),
    st.integers(0, 2),
    st.one_of(st.integers(0, 4), st.sampled_from([2**63 - 1, 2**63 - 2])),
    st.sampled_from([0, 0, 0, int(SysFlag.TRANSACTION_PREPARED)]),
)


def jumps_of(sent: Sequence[Sent]) -> tuple[list[tuple[str, int, int, int]], list[int]]:
    """Return (topic, queue id, expected, found) of each jump, and which jumps were undone, one record after another."""
    nexts: dict[tuple[str, int], int] = {}
    last_jump: dict[tuple[str, int], tuple[int, int]] = {}  # of queues whose last record jumped: expected, number
    jumps: list[tuple[str, int, int, int]] = []
    undone: list[int] = []
    for topic, queue_id, offset, flags in sent:
        if flags:
            continue
        queue = topic, queue_id
        wanted, before = nexts.get(queue, offset), last_jump.pop(queue, None)
        nexts[queue] = min(offset + 1, 2**63 - 1)
        if offset == wanted:
            continue
        if before is not None and offset == min(before[0] + 1, 2**63 - 1):
            undone.append(before[1])
        elif before is None or offset != before[0]:
            last_jump[queue] = wanted, len(jumps)
            jumps.append((topic, queue_id, wanted, offset))
    return jumps, undone


@pytest.mark.parametrize("mode", ["compiled", "uncompiled"])
@settings(max_examples=100, deadline=None)
@given(sent=st.lists(SENT, max_size=12), border=st.integers(0, 12))
def test_queues_are_followed_as_one_record_after_another(mode: str, sent: list[Sent], border: int) -> None:
    queues = QueueOffsets()
    jumps = []
    at = PLACE
    places = []
    with loop_way(mode):
        for part in (sent[:border], sent[border:]):  # two windows
            pieces = [
                record(at, topic=topic, queue_id=queue_id, queue_offset=offset, sys_flag=flags)
                for topic, queue_id, offset, flags in part
            ]
            raw, start = b"".join(pieces), at
            rows = np.zeros((20, len(COLUMNS)), np.int64)
            memory = memoryview(raw + bytes(SLACK))
            count = follow(np.frombuffer(memory, np.uint8), 0, len(raw), 0, rows)
            assert count == len(part)
            records = Records(memory, start, rows[:count])
            numbers = queues.number(records)
            assert [queues.queues[number] for number in numbers.tolist()] == [(t.encode(), q) for t, q, _, _ in part]
            found = queues.follow(records, numbers)
            jumps += [(jump.queue[0].decode(), jump.queue[1], jump.expected, jump.found) for jump in found]
            places += [start + jump.position for jump in found]
            at += len(raw)
    expected, undone = jumps_of(sent)
    assert jumps == expected
    assert queues.ends().undone == {places[number] for number in undone}
