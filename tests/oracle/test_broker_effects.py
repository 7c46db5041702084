"""What codes.toml says of brokers in one sentence, against what brokers did with every damaged store.

A clause that was false of one store must name its condition: the versions, the setting, or what the scan of startup
reaches.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pytest

from rmqinspect.verify.codes import BY_CODE
from tests.support import oracle
from tests.support.expected_findings import Expected, expected

DAMAGED = [name for name in oracle.cases("crash") if oracle.is_damaged(name)]
# With a setting that is not the default: the last part of their names.
SPECIAL = re.compile(r"-(checkCRCOnRecover|forceVerifyPropCRC|checkCommitLogOffsetOnRecover)$")
CONDITION = re.compile(r"\b(if|unless|except|up to|may|maybe|with|without|else|in \d)\b|\d\.\d|scan that")
ENDS_THE_LOG = ("CL-MAGIC", "CL-CRC-BODY", "CL-ZERO-INSIDE", "CL-LENGTH")


class Store(NamedTuple):
    """What a broker did with a store."""

    name: str
    loaded: bool
    clean: bool
    version: tuple[int, ...]
    end: int  # of the log, after load
    removed: tuple[str, ...]  # files, at load
    left: tuple[int, ...]  # bases of the segments after load
    segments: tuple[int, ...]  # before


def store_of(name: str) -> Store:
    truth: Mapping[str, Any] = oracle.truth("crash", name)
    after = truth["after_load"]
    files = dict(truth["files_before"])
    segments = [int(file[-20:]) for file, size in files.items() if re.fullmatch(r"commitlog/\d{20}", file) and size]
    return Store(
        name,
        truth["load_ok"],
        not truth["abort_before"],
        tuple(int(number) for number in truth["opened_by"].split(".")),
        after["max_phy"],
        tuple(truth["files_after_load"]["removed"]),
        tuple(base for base, *_ in after["commitlog_files"]),
        tuple(segments),
    )


def _ends_the_log(store: Store, finding: Expected) -> bool:
    return store.loaded and store.end == finding.physical_offset


def _deletes_segments(store: Store, finding: Expected) -> bool:
    return store.loaded and all(base <= (finding.physical_offset or 0) for base in store.left)


def _removes(folder: str) -> Callable[[Store, Expected], bool]:
    return lambda store, finding: any(file.startswith(folder) for file in store.removed)


# A claim as a regular expression, and whether it was true of a store with a finding.
CLAIMS: tuple[tuple[str, Callable[[Store, Expected], bool]], ...] = (
    (r"log ends here|ends the log here|truncates the log here", _ends_the_log),
    (r"later segments are deleted|deletes all later", _deletes_segments),
    (r"not start|ends startup", lambda store, finding: not store.loaded),
    (r"\bnot noticed at startup|notices? nothing", lambda store, finding: store.loaded),
    (r"truncates the queue|queue files are deleted", _removes("consumequeue/")),
    (r"deletes? index files|deletes it", _removes("index/")),
    (r"delete an empty last file", _removes("commitlog/")),
)


def false_clauses(effect: str, store: Store, finding: Expected) -> list[str]:
    """Return the clauses that are not true of a store and name no condition."""
    return [
        clause
        for clause in effect.split(";")
        for claim, holds in CLAIMS
        if re.search(claim, clause) and not holds(store, finding) and not CONDITION.search(clause)
    ]


def test_every_clause_is_true_of_every_store_or_names_its_condition() -> None:
    wrong = {
        (name, finding.code): clauses
        for name in DAMAGED
        for finding in expected("crash", name)
        if (clauses := false_clauses(BY_CODE[finding.code].broker_effect, store_of(name), finding))
    }
    assert not wrong


@pytest.mark.parametrize(
    ("name", "effect"),
    [
        ("flip_body_third-5.3.3-c", "the log ends here and all later segments are deleted"),
        ("seg_missing_last-4.7.1-h", "startup leaves it; the broker does not start"),
        ("size_huge_third-4.7.1-c", "not noticed at startup"),
    ],
)
def test_a_clause_that_is_false_is_seen(name: str, effect: str) -> None:
    finding = next(one for one in expected("crash", name) if one.code.startswith(("CL", "CQ")))
    assert false_clauses(effect, store_of(name), finding)


def is_excepted(store: Store, finding: Expected) -> bool:
    """Whether the sentence of CL-LENGTH makes an exception for a store."""
    only_v6 = any("SYSFLAG bit 4" in words for words in oracle.case("crash", store.name)["damage"])
    data = store.version <= (4, 3, 1) and not store.clean
    return finding.code == "CL-LENGTH" and (data or (only_v6 and store.version < (4, 6, 0)))


def test_the_log_ends_at_damage_that_the_scan_reaches_and_only_there() -> None:
    """The condition of the sentences is the right one: whether the scan begins at or before the damage."""
    seen = {True: 0, False: 0}
    for name in DAMAGED:
        store, findings = store_of(name), expected("crash", name)
        damage = [one for one in findings if one.code in ENDS_THE_LOG]
        described = oracle.case("crash", name)["expectation_from_document"]
        start = re.search(r"scan starts at (\d{20})", described)
        if not damage or not store.loaded or start is None or SPECIAL.search(name) or is_excepted(store, damage[0]):
            continue
        place = damage[0].physical_offset or 0
        reached = int(start[1]) <= place
        assert (store.end == place) == reached, name
        assert not reached or all(base <= place for base in store.left), name
        seen[reached] += 1
    assert min(seen.values()) >= 5


def test_a_startup_that_keeps_index_files_is_a_clean_one_or_finds_them_old() -> None:
    for name in DAMAGED:
        store = store_of(name)
        if store.loaded and store.clean:
            assert not any(file.startswith("index/") for file in store.removed), name
        elif store.loaded and any(one.code == "IX-BEYOND" for one in expected("crash", name)):
            assert any(file.startswith("index/") for file in store.removed), name


def test_units_behind_the_log_stay_only_in_the_versions_that_are_named() -> None:
    cases = 0
    for name in DAMAGED:
        store = store_of(name)
        if not store.loaded or not any(one.code == "CQ-BEYOND" for one in expected("crash", name)):
            continue
        queues = oracle.truth("crash", name)["after_load"]["queues"]
        stay = any(place >= store.end for queue in queues for _, place, size, _ in queue["units"] if size > 0)
        named = store.clean and store.version <= ((4, 4, 0) if not store.segments else (4, 3, 1))
        assert stay == named, name
        cases += 1
    assert cases > 10
