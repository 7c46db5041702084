"""CL-FIRST: segments before the log's start that no retention can have taken, and those that one may have."""

import os
import re
from pathlib import Path

import pytest

from rmqinspect.forecast.outcome import already_lost
from rmqinspect.forecast.versions import ForecastRequest, forecast
from rmqinspect.store.discover import open_store
from rmqinspect.text import group_digits
from rmqinspect.verify.findings import FindingRow
from rmqinspect.verify.next_start import verify_and_forecast
from rmqinspect.verify.result import VerifyOptions, VerifyResult
from rmqinspect.verify.run import verify
from rmqinspect.verify.start_summary import start_document
from tests.support import oracle
from tests.support.expected_findings import RETENTION, pointers

_FIRST = "commitlog/00000000000000000000"


def judge(root: Path) -> VerifyResult:
    return verify(open_store([str(root)]), VerifyOptions(jobs=1))


def first_of(root: Path) -> list[FindingRow]:
    """Return what CL-FIRST says of a store."""
    return [row for row in judge(root).findings.as_rows(str(root)) if row.code == "CL-FIRST"]


def without_times(root: Path) -> Path:
    """Give every file and folder of a store the same time, as a copy has them."""
    for path in (root, *root.rglob("*")):
        os.utime(path, (2e9, 2e9))
    return root


@pytest.mark.parametrize("name", ["main-4.7.1", "main-5.3.3", "main-5.5.0"])
def test_a_first_segment_that_a_hand_removed_is_no_retention(name: str, tmp_path: Path) -> None:
    root = oracle.copy("broker", name, tmp_path)
    (root / _FIRST).unlink()
    [found] = first_of(root)
    start = min(int(path.name) for path in (root / "commitlog").iterdir())
    gone = [row for row in oracle.truth("broker", name)["served"] if -1 < row.get("physical_offset", -1) < start]
    assert (found.severity, found.physical_offset) == ("warning", start)
    assert "below fileReservedTime (72 h)" in found.message
    messages = re.search(r"with at least ([\d ]+) messages? of", str(found.expected))
    assert messages is not None
    assert int(messages[1].replace(" ", "")) >= len(gone) > 0


def test_a_first_segment_that_is_gone_is_one_warning_whatever_it_held(tmp_path: Path) -> None:
    root = oracle.copy("broker", "main-5.3.3", tmp_path)
    before = judge(root).warnings
    (root / _FIRST).unlink()
    outcome = judge(root)
    assert (outcome.findings.counts["CL-FIRST"], outcome.warnings) == (1, before + 1)


@pytest.mark.parametrize("name", [name for name in oracle.cases("crash") if name.startswith("seg_missing_first")])
def test_as_many_messages_are_gone_as_units_point_before_the_log(name: str) -> None:
    gone = sum(row.number for row in pointers("crash", name).rows if row.code in RETENTION)
    [found] = first_of(oracle.store("crash", name))
    assert f"with at least {gone} messages of" in str(found.expected)


@pytest.mark.parametrize("name", ["retention-4.9.7", "retention-5.3.3"])
def test_a_store_that_a_broker_cleaned_needs_no_file_times(name: str, tmp_path: Path) -> None:
    assert first_of(without_times(oracle.copy("broker", name, tmp_path))) == []


def test_what_a_broker_left_before_it_stopped_is_known_by_the_time_of_the_folder(tmp_path: Path) -> None:
    """The retention of this store took two segments, and the broker stopped before it took queue and index files."""
    root = oracle.copy("crash", "none-5.3.3-r", tmp_path)
    assert first_of(root) == []
    [found] = first_of(without_times(root))
    assert "3 queue files and 1 index file that it deletes besides are there" in found.message


def test_a_log_that_never_had_a_beginning_misses_nothing(tmp_path: Path) -> None:
    """A slave that joined later: nothing points before the log."""
    root = oracle.copy("crash", "none-4.7.1-r", tmp_path)
    for folder in ("consumequeue", "index"):
        for path in sorted((root / folder).rglob("*"), reverse=True):
            path.unlink() if path.is_file() else path.rmdir()
    assert first_of(root) == []


@pytest.mark.parametrize(
    ("family", "name", "as_copied"),
    [
        ("crash", "seg_missing_first-4.2.0-c", False),
        ("crash", "seg_missing_first-5.2.0-h", True),
        ("crash", "none-5.3.3-r", False),
        ("crash", "none-5.3.3-r", True),
        ("broker", "retention-4.9.7", True),
        ("broker", "retention-5.3.3", False),
    ],
)
def test_a_forecast_says_what_verify_does(family: oracle.Family, name: str, as_copied: bool, tmp_path: Path) -> None:
    root = oracle.copy(family, name, tmp_path)
    if as_copied:
        without_times(root)
    told = [
        text for text in already_lost(forecast(open_store([str(root)]), ForecastRequest()).worst) if "before" in text
    ]
    expected = first_of(root)
    assert len(told) == len(expected)
    for text, found in zip(told, expected, strict=True):
        assert text.startswith(f"what lay before {group_digits(found.physical_offset or 0)} is gone, at least ")
        messages = re.search(r"with at least ([\d ]+) messages? of", str(found.expected))
        assert messages is not None and f"at least {messages[1]} messages" in text


def test_a_first_segment_that_a_hand_removed_is_told_before_a_start(tmp_path: Path) -> None:
    root = oracle.copy("broker", "main-5.3.3", tmp_path)
    assert forecast(open_store([str(root)]), ForecastRequest("5.3.3")).worst.gone_first == ""
    (root / _FIRST).unlink()
    outcome = verify_and_forecast(open_store([str(root)]), VerifyOptions(broker_version="5.3.3"))
    lines = start_document(outcome.next_start, outcome.log_end, outcome.findings.counts)
    assert lines is not None
    assert any("look for the missing segments before a broker is started" in line for line in lines.lines)
