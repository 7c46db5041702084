"""The check of one record against CommitLog#checkMessageAndReturnSize of real releases, on damaged records."""

import base64
import gzip
import json
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest

from rmqinspect.broker.eras import rules_of_start
from rmqinspect.commitlog.records import Records
from rmqinspect.forecast.check import LARGEST_ARRAY, REASONS, Check, check_record, from_bytes
from rmqinspect.forecast.segment_run import doubt_property_crc, doubts_that_count, judge
from rmqinspect.forecast.settings import Settings
from rmqinspect.loops.record_rows import SLACK
from rmqinspect.schemas.message import MAGIC_BLANK, MAGIC_V1
from tests.support.oracle import DATA

RELEASES = ("4.2.0", "4.7.1", "4.9.7", "5.0.0", "5.1.4", "5.2.0", "5.3.3", "5.5.0")


class Case(NamedTuple):
    """Bytes that a buffer of Java held, and what the releases made of them."""

    raw: bytes  # the whole segment
    at: int  # where the record begins
    crc: bool
    read_body: bool
    settings: Settings
    answers: dict[str, list[int] | None]  # size, success, bytes parsed; None: OutOfMemoryError


@cache
def cases() -> list[Case]:
    with gzip.open(DATA / "record-checks.jsonl.gz", "rt") as lines:
        return [_case(json.loads(line)) for line in lines]


def _case(row: dict[str, Any]) -> Case:
    settings = Settings(duplication_enable=row["duplication"], force_verify_prop_crc=row["property_crc"])
    return Case(base64.b64decode(row["raw"]), row["at"], row["crc"], row["read_body"], settings, row["answers"])


@pytest.mark.parametrize("release", RELEASES)
def test_the_check_answers_as_the_broker(release: str) -> None:
    rules, reasons = rules_of_start(release), set()
    for case in cases():
        read, left = from_bytes(case.raw), len(case.raw) - case.at
        check = check_record(read, case.at, left, rules, case.settings, crc=case.crc, read_body=case.read_body)
        answer = case.answers[release]
        assert check.kills == (answer is None), case
        if answer is not None:
            size, success, parsed = answer
            assert (check.size, check.success) == (size, success), case
            assert size < 0 or check.parsed == parsed, case
        reasons.add(check.reason)
    assert reasons - {None} <= set(REASONS)
    assert len(reasons) > 8


@pytest.mark.parametrize("release", RELEASES)
def test_a_sound_record_without_a_doubt_is_valid(release: str) -> None:
    rules, vouched_for = rules_of_start(release), 0
    for forced in (False, True):
        chosen = [case for case in cases() if case.crc and case.read_body and case.settings == settings(forced)]
        whole_record = forced and rules.property_crc != "none"
        raws = [case.raw[case.at :] for case in chosen]
        starts = np.cumsum([0, *map(len, raws)])[:-1]
        records = Records.at(memoryview(b"".join(raws) + bytes(SLACK)), 0, starts)
        # What ends behind its own buffer is not sound there.
        sound = records.are_sound(int(sum(map(len, raws)))) & (records.total_size <= list(map(len, raws)))
        records = records.select(sound)
        doubts = judge(records, body_crc=not whole_record)
        if whole_record:
            doubt_property_crc(records, doubts)
        for case, doubt in zip(
            [case for case, is_sound in zip(chosen, sound, strict=True) if is_sound], doubts, strict=True
        ):
            if not doubt & int(doubts_that_count(rules)):
                answer = case.answers[release]
                assert answer is not None
                assert answer[1], (case, doubt)
                vouched_for += 1
    assert vouched_for > 40


def settings(forced: bool) -> Settings:
    return Settings(force_verify_prop_crc=forced)


# --- details that no record of those has -----------------------------------------------------------


def check(raw: bytes, release: str, left: int | None = None) -> Check:
    rules = rules_of_start(release)
    return check_record(from_bytes(raw), 0, len(raw) if left is None else left, rules, Settings(), crc=True)


def head(size: int, magic: int) -> bytes:
    return size.to_bytes(4, "big", signed=True) + magic.to_bytes(4, "big", signed=True)


@pytest.mark.parametrize(
    ("size", "until_5_3_1", "from_5_3_2"),
    [
        (100, (0, None), (0, None)),
        (101, (0, None), (-1, "size")),
        (-5, (0, None), (0, None)),
        # TOTALSIZE - 4 overflows.
        (-(2**31), (0, None), (-1, "size_negative")),
        (-(2**31) + 3, (0, None), (-1, "size_negative")),
        (-(2**31) + 4, (0, None), (0, None)),
    ],
)
def test_the_size_of_a_blank_record(size: int, until_5_3_1: object, from_5_3_2: object) -> None:
    raw = head(size, MAGIC_BLANK) + bytes(92)
    assert check(raw, "5.3.1")[::2][:2] == until_5_3_1
    assert check(raw, "5.3.2")[::2][:2] == from_5_3_2


@pytest.mark.parametrize("size", range(8))
def test_fewer_bytes_than_a_blank_record(size: int) -> None:
    assert check(bytes(size), "4.9.7").reason == check(bytes(size), "5.5.0").reason == "short"


def test_a_size_that_no_heap_holds() -> None:
    raw = head(LARGEST_ARRAY + 1, MAGIC_V1) + bytes(200)
    assert check(raw, "5.3.1").kills
    assert check(raw, "5.3.2") == Check(-1, False, "size", False, 4)
    # In a segment that has so many bytes, the later releases make the array, too.
    assert check(raw, "5.5.0", left=1 << 30).kills
