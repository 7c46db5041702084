"""Bits of a small log, flipped one at a time: `verify` says something, or the bit is known to be unprotectable.

By default some bits of each name are flipped; `pytest tests/properties/test_bit_flips.py --every-bit` flips all.
"""

import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rmqinspect.verify.run
from rmqinspect.commitlog.gaps import Split
from rmqinspect.store.discover import open_store
from rmqinspect.verify.plan import CrossPlan
from rmqinspect.verify.result import VerifyOptions
from rmqinspect.verify.run import verify
from rmqinspect.verify.split import CheckLimits, SplitResult, check_split
from tests.support.building import (
    BROKER_V6,
    PRODUCER_V6,
    STORED,
    fill,
    lay,
    pad,
    record,
    write_segment,
)
from tests.support.unprotected import UNPROTECTED, Bit, flip_each, names_of_segment

LONG_TOPIC = "%RETRY%" + 60 * "g" + "+" + 62 * "t"  # longer than 127: a V2 record
TAGGED = {"KEYS": "k", "TAGS": "a"}


def _pieces(*pieces: dict[str, Any], first: int) -> list[dict[str, Any]]:
    """Give the records store times, a millisecond apart."""
    return [{"store_timestamp": STORED + at} | piece for at, piece in enumerate(pieces, first)]


# Two queues of four and three records, and one of a V2 topic with two; every shape a record can have.
SEGMENTS = (
    _pieces(
        {"queue_id": 0, "queue_offset": 0, "properties": TAGGED},
        {"queue_id": 1, "queue_offset": 0, "born_host": PRODUCER_V6, "store_host": BROKER_V6},
        {"queue_id": 0, "queue_offset": 1, "properties": TAGGED},
        {"queue_id": 1, "queue_offset": 1, "body": zlib.compress(b"hello"), "sys_flag": 1, "properties": TAGGED},
        {"topic": LONG_TOPIC, "queue_offset": 0},
        first=0,
    ),
    _pieces(
        {"queue_id": 0, "queue_offset": 2, "crc": True, "properties": TAGGED},
        {"topic": LONG_TOPIC, "queue_offset": 1, "properties": TAGGED},
        {"queue_id": 1, "queue_offset": 2, "body": b"", "born_host": PRODUCER_V6, "properties": TAGGED},
        {"queue_id": 0, "queue_offset": 3, "properties": TAGGED},
        first=5,
    ),
)
SIZE = 784

# Fields whose flips show in the queue offsets of the neighbours in the queue.
QUEUE_FIELDS = ("queue_id", "topic", "sys_flag 0x4")


# Of each name so many bits are flipped, and of what is left each with a number that this divides: no multiple of 8, for
# all bits of a byte to have their turn.
ALL_UP_TO, EVERY = 32, 7


def bits_of_segment(number: int, path: Path) -> Iterator[Bit]:
    """Yield every bit of a segment with its name, and its record's place in queue or log where that matters."""
    raw, sizes = path.read_bytes(), [len(record(0, **piece)) for piece in SEGMENTS[number]]
    pieces = [piece for piece, size in zip(SEGMENTS[number], sizes, strict=True) for _ in range(size)]
    for position, names in enumerate(names_of_segment(raw, sizes)):
        for bit, name in enumerate(names):
            if name in QUEUE_FIELDS:
                name += _place_in_queue(pieces[position])
            elif name == "store_timestamp":
                name += _place_in_log(pieces[position])
            yield Bit(name, path, position, bit)


def _place_in_queue(piece: dict[str, Any]) -> str:
    queue = [other for other in (*SEGMENTS[0], *SEGMENTS[1]) if _queue(other) == _queue(piece)]
    return ", first of its queue" if piece is queue[0] else ", last of its queue" if piece is queue[-1] else ""


def _queue(piece: dict[str, Any]) -> tuple[Any, Any]:
    return piece.get("topic"), piece.get("queue_id")


def _place_in_log(piece: dict[str, Any]) -> str:
    return ", first of the log" if piece is SEGMENTS[0][0] else ", last of the log" if piece is SEGMENTS[1][-1] else ""


def some(bits: list[Bit]) -> Iterator[Bit]:
    seen = Counter[str]()
    for bit in bits:
        seen[bit.name] += 1
        if seen[bit.name] <= ALL_UP_TO or seen[bit.name] % EVERY == 0:
            yield bit


def test_every_flipped_bit_is_found_or_known_to_be_unprotectable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config
) -> None:
    contents = fill(lay(SEGMENTS[0]), SIZE), pad(lay(SEGMENTS[1], SIZE), SIZE)
    assert [len(raw) for raw in contents] == [SIZE, SIZE]
    segments = [write_segment(tmp_path / "commitlog", raw, at * SIZE) for at, raw in enumerate(contents)]
    store = open_store([str(tmp_path / "commitlog")])
    untouched: dict[int, SplitResult] = {}
    touched = -1

    def check_once(split: Split, limits: CheckLimits, plan: CrossPlan | None) -> SplitResult:
        """The segment that no bit was flipped in is read once for all."""
        if split.segment.base == touched:
            return check_split(split, limits, plan)
        if split.segment.base not in untouched:
            untouched[split.segment.base] = check_split(split, limits, plan)
        return untouched[split.segment.base]

    monkeypatch.setattr(rmqinspect.verify.run, "check_split", check_once)
    assert verify(store, VerifyOptions()).findings.rows == []

    flipped, unnoticed = Counter[str](), set[str]()
    for number, segment in enumerate(segments):
        touched = segment.base
        bits = list(bits_of_segment(number, Path(segment.path)))
        assert len(bits) == SIZE * 8
        chosen = bits if pytestconfig.getoption("--every-bit") else some(bits)
        found = flip_each(chosen, lambda: not verify(store, VerifyOptions()).findings.rows)
        flipped, unnoticed = flipped + found[0], unnoticed | found[1]

    assert flipped.total() > SIZE
    assert UNPROTECTED.keys() <= flipped.keys(), "a name of the list that no bit has"
    assert unnoticed - UNPROTECTED.keys() == set(), "unnoticed, and not on the list"
    assert UNPROTECTED.keys() - unnoticed == set(), "on the list, but always found"
