"""Offsets that are older than the messages they are asked about, by their file's time and by what groups gave back."""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqinspect.broker.offset_age import OffsetAge, offset_age
from rmqinspect.config.json_files import read_consumer_offsets
from rmqinspect.find.consumers import Consumers
from rmqinspect.store.discover import open_store
from rmqinspect.tables.group_positions import ends_of
from rmqinspect.tables.request import Request
from rmqinspect.verify.group_offsets import check_age
from tests.support.command import Run, runner
from tests.support.outcome_stores import copy_of_case, outcome_store

run = runner()

LAST = 1_795_827_399_674  # store time of the last message of s10
OFFSETS = "config/consumerOffset.json"


def age_of(root: Path) -> OffsetAge:
    store = open_store([str(root)])
    entries, _ = read_consumer_offsets(store)
    found = offset_age(store, entries, ends_of(store, Request()), LAST)
    assert found is not None
    return found


def change(root: Path, offset: Callable[[int], int], older_by: int = 0) -> None:
    """Change all consumer offsets, and the time of their file by seconds."""
    path = root / OFFSETS
    times = path.stat().st_mtime - older_by
    text = path.read_text()
    path.write_text(re.sub(r"(\d+):(\d+)(?=[,}\s])", lambda match: f"{match[1]}:{offset(int(match[2]))}", text))
    os.utime(path, (times, times))


def test_the_offsets_of_a_killed_broker_are_not_old() -> None:
    found = age_of(outcome_store("s10"))
    assert (found.is_old, found.contradictions) == (False, ())
    assert check_age(open_store([str(outcome_store("s10"))]), LAST) is not None
    assert list(check_age(open_store([str(outcome_store("s10"))]), LAST)) == []


def test_offsets_of_a_backup_are_old_by_the_time_of_their_file(run: Run, tmp_path: Path) -> None:
    root = copy_of_case("s10", tmp_path / "case")
    change(root, lambda offset: 0, older_by=3600)
    found = age_of(root)
    assert found.is_old
    assert found.written is not None
    assert 3_600_000 < LAST - found.written < 3_610_000
    codes = [row.message for row in check_age(open_store([str(root)]), LAST)]
    assert codes[0].startswith("the consumer offsets are 60 min older than the newest message")
    _, out, _ = run("groups", root)
    text = " ".join(out.split())
    assert "these offsets are 60 min older than the last message" in text
    assert "delivers it again, at most" in text


def test_a_file_whose_offsets_passed_newer_messages_has_only_lost_its_time(tmp_path: Path) -> None:
    root = copy_of_case("s10", tmp_path / "case")
    change(root, lambda offset: offset, older_by=3600)
    found = age_of(root)
    assert not found.is_old
    assert found.written is not None
    assert LAST - found.written < 10_000


def test_where_all_files_have_lost_their_times_nothing_is_old(tmp_path: Path) -> None:
    root = copy_of_case("s10", tmp_path / "case")
    change(root, lambda offset: 0, older_by=3600)
    for segment in (root / "commitlog").iterdir():
        os.utime(segment, (0, 0))
    assert not age_of(root).is_old


def test_what_a_group_gave_back_proves_that_it_was_further(tmp_path: Path) -> None:
    root = copy_of_case("s01", tmp_path / "case")
    store = open_store([str(root)])
    entries, _ = read_consumer_offsets(store)
    newest = 1_795_826_444_997
    assert offset_age(store, entries, ends_of(store, Request()), newest).contradictions == ()  # type: ignore[union-attr]
    change(root, lambda offset: offset // 2)
    findings = list(check_age(open_store([str(root)]), newest))
    told = {(row.topic, row.queue_id): row.message for row in findings}
    assert {row.code for row in findings} == {"ST-GROUP-OLD"}
    assert set(told) == {("shipments", 0), ("shipments", 1)}
    assert (
        "resumes at 402, but %RETRY%shipping has offset 626 that it gave back: at least 225 messages"
        in told["shipments", 0]
        or "%DLQ%shipping has offset 626" in told["shipments", 0]
    )


@pytest.mark.parametrize(("stored", "known"), [(LAST - 60_000, True), (LAST, False)])
def test_offsets_know_nothing_of_messages_that_are_newer(stored: int, known: bool) -> None:
    consumers = Consumers(open_store([str(outcome_store("s10"))]))
    [workers] = [one for one in consumers.of("jobs", 0, 10_000, stored) if one.group == "workers"]
    assert not workers.passed
    assert (workers.as_of is None) == known


def test_find_says_what_the_offsets_cannot_know(run: Run) -> None:
    _, out, _ = run(
        "decode", outcome_store("s10"), "-t", "orders", "-f", "jsonl", "--columns", "physical_offset,queue_id"
    )
    place = json.loads(out.splitlines()[-1])["physical_offset"]
    _, out, _ = run("find", outcome_store("s10"), "--offset", str(place))
    text = " ".join(out.split())
    assert "billing: the offsets are of 2026-11-28T00:56:36Z, the message of 2026-11-28T00:56:3" in text
    assert "not passed" not in text


def test_find_says_not_passed_where_the_offsets_are_newer(run: Run, tmp_path: Path) -> None:
    root = copy_of_case("s10", tmp_path / "case")
    os.utime(root / OFFSETS, (LAST // 1000 + 5, LAST // 1000 + 5))
    _, out, _ = run("decode", root, "-t", "orders", "-f", "jsonl", "--columns", "physical_offset,queue_id")
    place = json.loads(out.splitlines()[-1])["physical_offset"]
    _, out, _ = run("find", root, "--offset", str(place))
    assert "the offsets are of" not in out
    assert "not passed" in out
