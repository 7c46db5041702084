"""Every real store gives exactly the findings that what was done to it leads to, however it is read."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

import rmqinspect.scan
import rmqinspect.verify
from rmqinspect.report import report_document
from rmqinspect.store import open_store
from rmqinspect.verify import Outcome, Wish, verify
from tests import oracle
from tests.expected_findings import DEVIATIONS, Expected, expected, in_order

FAMILIES: tuple[oracle.Family, ...] = ("crash", "broker")
CASES = [(family, name) for family in FAMILIES for name in oracle.cases(family)]
# By a setting, or by a version that does not know the long topics of a later one.
CUT_WITHOUT_DAMAGE = (
    "none-4.7.1-h-to-4.3.2", "none-5.2.0-g-forceVerifyPropCRC", "none-5.3.3-c-forceVerifyPropCRC",
    "none-5.3.3-h-to-4.9.7", "none-5.4.0-g-forceVerifyPropCRC",
)  # fmt: skip
# What only a whole store shows.
STORE_CODES = ("ST-CHECKPOINT", "ST-ABORT")


def found(outcome: Outcome) -> list[Expected]:
    """Return what was found in the columns that are compared, sorted; ST-UNCHECKED left out."""
    rows = [
        Expected(row.code, row.severity, row.file, row.offset, row.physical_offset, row.count)
        for row in outcome.findings.rows
        if row.code != "ST-UNCHECKED"
    ]
    return sorted(rows, key=in_order)


def check(path: Path, jobs: int = 1) -> Outcome:
    return verify(open_store([str(path)]), Wish(jobs=jobs))


def report(outcome: Outcome) -> dict[str, object]:
    """Return the whole report but what differs between two runs."""
    document = report_document(outcome, "STORE", datetime.now(UTC), [])
    del document["run"]
    return document


@pytest.mark.parametrize(("family", "name"), CASES)
def test_a_store_has_the_findings_of_its_damage_and_no_others(family: oracle.Family, name: str) -> None:
    outcome = check(oracle.store(family, name))
    assert found(outcome) == expected(family, name)
    assert outcome.complete
    assert all(account.total == account.segment.size for account in outcome.accounts)


@pytest.mark.parametrize("name", oracle.cases("broker"))
def test_a_store_that_nobody_damaged_is_whole(name: str) -> None:
    assert check(oracle.store("broker", name)).verdict == "WHOLE"


@pytest.mark.parametrize("name", [name for name in oracle.cases("crash") if not oracle.is_damaged(name)])
def test_a_store_that_only_ended_is_whole(name: str) -> None:
    assert check(oracle.store("crash", name)).verdict == "WHOLE"


def test_every_deviation_is_a_case_and_deviates(monkeypatch: pytest.MonkeyPatch) -> None:
    assert DEVIATIONS.keys() <= set(oracle.cases("crash"))
    listed = {name: expected("crash", name) for name in DEVIATIONS}
    monkeypatch.setattr("tests.expected_findings.DEVIATIONS", {})
    assert [name for name in DEVIATIONS if expected("crash", name) == listed[name]] == []


@pytest.mark.parametrize(("split_size", "look_back"), [(8 << 10, 6 << 20), (5_003, 16 << 10)])
def test_small_splits_find_the_same(monkeypatch: pytest.MonkeyPatch, split_size: int, look_back: int) -> None:
    """The second pair looks back too little for the largest records: that costs a search, not an answer."""
    monkeypatch.setattr(rmqinspect.verify, "_SPLIT_SIZE", split_size)
    monkeypatch.setattr(rmqinspect.scan, "LOOK_BACK", look_back)
    different = {}
    for family, name in CASES:
        now = found(check(oracle.store(family, name)))
        if now != expected(family, name):
            different[name] = now
    assert not different


# Each kind of thing that one split leaves to the judge of the whole log, and two stores without damage.
SEVERAL_PROCESSES = (
    "main-5.3.3", "dledger-5.3.3", "base-5.4.0-halt", "qoffset_last-5.1.4-h", "queueid_third-5.2.0-c",
    "storets_last-5.5.0-c", "zero_page_last-4.7.1-h", "torn_last-5.2.0-h", "seg_missing_mid-4.9.7-c",
)  # fmt: skip


@pytest.mark.parametrize("name", SEVERAL_PROCESSES)
def test_two_processes_find_the_same_in_the_same_order(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    path = next(oracle.store(family, case) for family, case in CASES if case == name)
    alone = check(path)
    monkeypatch.setattr(rmqinspect.verify, "_SPLIT_SIZE", 16 << 10)
    monkeypatch.setattr(rmqinspect.verify, "_WORTH_PROCESSES", 0)
    together = check(path, jobs=2)
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
            if finding.code not in STORE_CODES
        ]
        if (now := found(check(folder))) != sorted(inside, key=in_order):
            different[name] = now
    assert not different


def test_where_a_broker_cut_the_log_something_is_found_there_or_before() -> None:
    """Independent of how the damage was described: a start that lost records had a reason."""
    missed = []
    for name in oracle.cases("crash"):
        truth, outcome = oracle.truth("crash", name), check(oracle.store("crash", name))
        reached = max((account.end for account in outcome.accounts if account.end is not None), default=0)
        end = truth["after_load"]["max_phy"]
        if not truth["load_ok"] or name in CUT_WITHOUT_DAMAGE or end >= reached:
            continue
        reasons = [row for row in outcome.findings.rows if row.code.startswith("CL-") and row.severity != "info"]
        if not any((row.physical_offset or 0) <= end for row in reasons):
            missed.append((name, end, reached))
    assert not missed
