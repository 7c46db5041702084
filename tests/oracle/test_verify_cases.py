"""Every real store gives exactly the findings that what was done to it leads to, however it is read."""

import re
import sys
from pathlib import Path

import pytest

import rmqinspect.commitlog.scan
import rmqinspect.verify.run
from rmqinspect.document import as_object
from rmqinspect.rocksdb.unpack import has_rocksdict, unpacked
from rmqinspect.store.discover import open_store
from rmqinspect.verify.report import report_of
from rmqinspect.verify.result import VerifyOptions, VerifyResult
from rmqinspect.verify.run import verify
from tests.support import oracle
from tests.support.expected_findings import DEVIATIONS, NAMED_BY_UNIT, Expected, expected, in_order, pointers, settings
from tests.support.sampling import sampled
from tests.support.side_tables import CUT

FAMILIES: tuple[oracle.Family, ...] = ("crash", "broker")
CASES = [(family, name) for family in FAMILIES for name in oracle.cases(family)]
LEVELS = ("deep", "standard")
MILLISECONDS = re.compile(r"\b1[78]\d{11}\b")  # of the years 2023 to 2030


def found(outcome: VerifyResult) -> list[Expected]:
    """Return what was found in the columns that are compared, sorted; ST-UNCHECKED left out."""
    rows = [
        Expected(row.code, row.severity, row.file, row.offset, row.physical_offset, row.count)
        for row in outcome.findings.rows
        if row.code != "ST-UNCHECKED"
    ]
    return sorted(rows, key=in_order)


def check(path: Path, level: str = "deep", jobs: int = 1) -> VerifyResult:
    with unpacked(open_store([str(path)])) as store:
        return verify(store, VerifyOptions(level=level, jobs=jobs))


def can_read(name: str, level: str = "deep") -> bool:
    """Say whether all that a level covers is read here: of these stores, only with the extra."""
    return has_rocksdict() or not name.startswith("rocksdb-" if level == "standard" else ("rocksdb-", "rocksopt-"))


def report(outcome: VerifyResult) -> dict[str, object]:
    """Return the whole report but what differs between two runs."""
    document = as_object(report_of(outcome, "STORE"))
    del document["run"]
    return document


@pytest.mark.parametrize(
    ("family", "name", "level"),
    [*sampled(((*case, "deep") for case in CASES), 2), *sampled(((*case, "standard") for case in CASES), 6)],
)
def test_a_store_has_the_findings_of_its_damage_and_no_others(family: oracle.Family, name: str, level: str) -> None:
    outcome, slow = check(oracle.store(family, name), level), pointers(family, name)
    assert found(outcome) == expected(family, name, level)
    assert outcome.complete == can_read(name, level)
    assert all(account.total == account.segment.size for account in outcome.accounts)
    assert dict(outcome.loss.messages) == slow.lost, "only messages that the log does not hold are called lost"
    texts = [text for row in outcome.findings.rows for text in (row.message, row.expected, row.found) if text]
    assert not list(filter(MILLISECONDS.search, texts)), "times are told as times"
    for start, messages in slow.witnesses.items():
        if level == "deep" or any(unit.physical_offset == start for unit in slow.units):  # else only the index knows
            words = " ".join(row.message for row in outcome.findings.rows if row.physical_offset == start)
            assert re.findall(r"; the (?:queues? says?|index says): (\d+) message", words) == [str(messages)]
    if level == "deep" and (family == "broker" or not oracle.is_damaged(name)):
        assert not [finding for finding in expected(family, name) if finding.severity != "info"]
        assert outcome.verdict == "WHOLE" if can_read(name) else outcome.verdict.startswith("INCOMPLETE: ")
        if settings(family, name).file_queues:
            # All units at or behind the log's start are joined: every rule of who is entitled agrees with brokers.
            assert outcome.joined_units == slow.live > 0
    if family == "crash" and name not in CUT:
        # Independent of how the damage was described: a start that lost records had a reason there or before.
        end = oracle.truth("crash", name)["after_load"]["max_phy"]
        reached = max((account.end for account in outcome.accounts if account.end is not None), default=0)
        reasons = [row for row in outcome.findings.rows if row.code.startswith("CL-") and row.severity != "info"]
        lost = oracle.truth("crash", name)["load_ok"] and end < reached
        assert not lost or any((row.physical_offset or 0) <= end for row in reasons)


def test_a_wrong_time_is_told_as_a_time() -> None:
    rows = check(oracle.store("crash", "storets_last-5.5.0-c")).findings.rows
    assert any("T08:4" in f"{row.message} {row.expected} {row.found}" for row in rows)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", ["rocksdb-5.3.3", "rocksdb-5.4.0", "rocksopt-5.5.0"])
def test_without_the_extra_no_store_with_databases_is_whole(
    name: str, level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    outcome = check(oracle.store("broker", name), level)
    assert found(outcome) == expected("broker", name, level)
    assert outcome.complete == can_read(name, level)
    assert outcome.verdict.startswith("WHOLE" if can_read(name, level) else "INCOMPLETE: ")


def test_every_deviation_is_a_case_and_deviates(monkeypatch: pytest.MonkeyPatch) -> None:
    assert DEVIATIONS.keys() <= set(oracle.cases("crash"))
    listed = {name: expected("crash", name) for name in DEVIATIONS}
    monkeypatch.setattr("tests.support.expected_findings.DEVIATIONS", {})
    assert [name for name in DEVIATIONS if expected("crash", name) == listed[name]] == []


@pytest.mark.parametrize(
    ("name", "version"), [("base-5.4.0-clean", "4.7.1"), ("base-4.7.1-clean", "5.5.0"), ("base-5.3.3-clean", "4.2.0")]
)
def test_a_wrong_version_that_is_named_is_contradicted_and_makes_no_findings(name: str, version: str) -> None:
    options = VerifyOptions(level="deep", broker_version=version)
    outcome = verify(open_store([str(oracle.store("crash", name))]), options)
    assert found(outcome) == []
    assert outcome.versions is not None
    assert outcome.versions.contradiction.startswith(f"{version} was asked for, but the store contradicts it: ")


# Split size, look-back, and cases in groups that several workers can share; each kind of damage is in some. The second
# pair looks back too little for the largest records: that costs a search, not an answer.
SMALL_SPLITS = sampled([(8 << 10, 6 << 20, CASES[first::12]) for first in (0, 3, 6, 9)], 2)
SMALL_SPLITS += sampled([(5_003, 16 << 10, CASES[first::12]) for first in (1, 7)], 2)


@pytest.mark.parametrize(("split_size", "look_back", "cases"), SMALL_SPLITS)
def test_small_splits_find_the_same(
    monkeypatch: pytest.MonkeyPatch, split_size: int, look_back: int, cases: list[tuple[oracle.Family, str]]
) -> None:
    monkeypatch.setattr(rmqinspect.verify.run, "SPLIT_SIZE", split_size)
    monkeypatch.setattr(rmqinspect.commitlog.scan, "LOOK_BACK", look_back)
    different = {}
    for family, name in cases:
        now = found(check(oracle.store(family, name)))
        if now != expected(family, name):
            different[name] = now
    assert not different


# Each kind of thing that one split leaves to the judge of the whole store, and two stores without damage.
SEVERAL_THREADS = (
    "main-5.3.3",
    "dledger-5.3.3",
    "lmq-5.3.3",
    "retention-4.9.7",
    "base-5.4.0-halt",
    "none-5.4.0-b",
    "qoffset_last-5.1.4-h",
    "queueid_third-5.2.0-c",
    "topicname_last-5.2.0-h",
    "storets_last-5.5.0-c",
    "zero_page_last-4.7.1-h",
    "torn_last-5.2.0-h",
    "seg_missing_mid-4.9.7-c",
    "seg_zero_content-5.4.0-c",
    "cq_lost-5.3.3-L",
    "cq_shift-5.3.3-h",
    "idx_trunc-5.2.0-c",
)


@pytest.mark.parametrize("name", SEVERAL_THREADS)
def test_two_threads_find_the_same_in_the_same_order(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    family = next(family for family, case in CASES if case == name)
    alone = check(oracle.store(family, name))
    monkeypatch.setattr(rmqinspect.verify.run, "SPLIT_SIZE", 4 << 10)
    together = check(oracle.store(family, name), jobs=2)
    assert together.findings.rows == alone.findings.rows
    assert report(together) == report(alone)


def test_the_folder_of_the_log_alone_shows_the_damage_of_the_log() -> None:
    different = {}
    for name in oracle.cases("crash"):
        folder = oracle.store("crash", name) / "commitlog"
        if not folder.is_dir() or not any(folder.iterdir()):
            continue
        inside = [
            finding._replace(file=finding.file.removeprefix("commitlog/") if finding.file else None)
            for finding in expected("crash", name)
            if finding.code.startswith("CL-") and finding.code != "CL-FIRST"  # queues and index tell that
        ]
        reported = found(check(folder))
        if any(field in words for words in oracle.case("crash", name)["damage"] for field in NAMED_BY_UNIT):
            # Without the unit, only the record behind tells that one is missing in the queue.
            reported = [finding for finding in reported if finding.code != "CL-QUEUE-OFFSET"]
        # Without the rest of the store, more versions may have written it: a stray may count less.
        now, inside = (
            [f._replace(severity="" if f.code == "CL-NAME" else f.severity) for f in findings]
            for findings in (reported, sorted(inside, key=in_order))
        )
        if now != inside:
            different[name] = now
    assert not different
