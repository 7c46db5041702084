"""Real stores as Parquet: every table of every case has the rows that decode shows, however it was exported."""

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rmqinspect.export.job import local_engine
from rmqinspect.export.request import FINDINGS, MESSAGES, ExportRequest
from rmqinspect.tables import TABLES
from rmqinspect.tables.request import Request
from tests.support import oracle
from tests.support.exporting import case_store, expected, export, exported, names
from tests.support.sampling import rare, sampled

Case = tuple[oracle.Family, str]

ALL: list[Case] = [("crash", name) for name in oracle.cases("crash")]
ALL += [("broker", name) for name in oracle.cases("broker")]
UNDAMAGED = [one for one in ALL if one[0] == "broker" or not oracle.is_damaged(one[1])]
SOME: list[Case] = [
    ("crash", "seg_missing_mid-4.9.7-c"),
    ("crash", "flip_body_third-4.7.1-c"),
    ("broker", "main-5.5.0"),
    ("broker", "dledger-5.3.3"),
]
# Every kind of file, and of damage that leaves other rows: all other cases of ALL are like one of these.
FEW: list[Case] = [
    *SOME,
    ("crash", "base-4.2.0-halt"),
    ("crash", "cq_mid_zero-5.4.0-h"),
    ("crash", "cq_lost-5.3.3-L"),
    ("crash", "idx_trunc-5.2.0-c"),
    ("crash", "log_dir_lost-5.3.3-c"),
    ("crash", "seg_long_mid-5.3.3-h"),
    ("crash", "size_huge_third-5.4.0-h"),
    ("crash", "stray_ds-5.5.0-h"),
    ("crash", "zero_page_last-4.7.1-h"),
    ("broker", "compaction-5.3.3"),
    ("broker", "ext-4.9.7"),
    ("broker", "halt-5.1.4"),
    ("broker", "lmq-5.3.3"),
    ("broker", "retention-4.9.7"),
    ("broker", "rocksdb-5.4.0"),
    ("broker", "rocksopt-5.5.0"),
]
# Known only to who reads the log: decode leaves them empty.
COUNTED = {"gaps": ["witnesses"], "queues": ["records", "shift"]}
EVERYTHING = tuple(TABLES)


def groups(cases: list[Case], size: int) -> list[list[Case]]:
    return [cases[start : start + size] for start in range(0, len(cases), size)]


def assert_exported(folder: Path, cases: list[Case], request: ExportRequest) -> None:
    for case in cases:
        store = case_store(*case)
        for table in request.tables:
            there = exported(folder, store.name, table, request).drop_columns(COUNTED.get(table, []))
            here = expected(store, table).drop_columns(COUNTED.get(table, []))
            assert there.schema.equals(here.schema), (case, table)
            assert there.equals(here.combine_chunks()), (case, table)


FEWER = FEW[::3]
REST = [case for case in ALL if case not in FEWER]


@pytest.mark.parametrize("cases", [FEWER, *map(rare, groups(REST, 30))], ids=lambda cases: cases[0][1])
def test_all_tables_of_every_case_are_exported(cases: list[Case], tmp_path: Path) -> None:
    request = ExportRequest(EVERYTHING)
    export(tmp_path / "lake", [case_store(*case) for case in cases], request)
    assert_exported(tmp_path / "lake", cases, request)


@pytest.mark.parametrize("cases", sampled(groups(ALL[::7], 12), 3), ids=lambda cases: cases[0][1])
def test_borders_anywhere_change_no_row(cases: list[Case], tmp_path: Path) -> None:
    # 23 000 is less than a segment, and no record ends there.
    request = ExportRequest((MESSAGES, "gaps", "segments"), 23_000)
    outcome = export(tmp_path / "lake", [case_store(*case) for case in cases], request)
    assert_exported(tmp_path / "lake", cases, request)
    assert len(outcome.manifest.files) > 3 * len(cases)


@pytest.mark.all_cases
def test_neither_threads_nor_a_rerun_change_names_or_rows(tmp_path: Path) -> None:
    request = ExportRequest((*EVERYTHING, FINDINGS), 50_000)
    stores = [case_store(*case) for case in SOME]
    manifests = [
        export(tmp_path / name, stores, request, local_engine(jobs)).manifest
        for name, jobs in (("one", 1), ("again", 1), ("three", 3))
    ]
    assert names(tmp_path / "one") == names(tmp_path / "again") == names(tmp_path / "three")
    for name in names(tmp_path / "one"):
        one, again, three = ((tmp_path / run / name).read_bytes() for run in ("one", "again", "three"))
        assert one == again == three, name
    for manifest in manifests:
        manifest.run = {}
    assert manifests[0].as_json() == manifests[1].as_json() == manifests[2].as_json()


def rows(case: Case, table: str) -> list[dict[str, Any]]:
    store = case_store(*case)
    batches = list(TABLES[table].rows(store, Request(jobs=1, on_unreadable=list[str]().append)))
    return list(pa.Table.from_batches(batches, TABLES[table].schema).to_pylist())


def test_records_and_shift_of_a_queue_are_what_its_broker_numbered(tmp_path: Path) -> None:
    request = ExportRequest(("queues",))
    export(tmp_path / "lake", [case_store(*case) for case in UNDAMAGED], request)
    equal = behind = 0
    for case in UNDAMAGED:
        store = case_store(*case)
        pointed = expected(store, "queue_units").to_pylist()
        kept = Counter((u["topic"], u["queue_id"]) for u in pointed if u["physical_offset"] >= store.log_start)
        for queue in exported(tmp_path / "lake", store.name, "queues", request).to_pylist():
            if queue["kind"] != "file" or queue["topic"].startswith("%LMQ%"):
                continue  # an inner batch has several offsets; records of an LMQ carry another topic
            # A broker may keep a minimum below the first unit whose record is left: retention deleted the others.
            units = kept[queue["topic"], queue["queue_id"]]
            equal += queue["records"] == units and queue["shift"] in ((0,) if units else (0, None))
            behind += queue["records"] > units and queue["shift"] is None
            assert queue["records"] >= units, (case, queue)
            assert queue["records"] > units or queue["shift"] == 0 or not units, (case, queue)
    assert equal > 1000
    assert behind > 10  # of brokers that were killed before their queues were written


def test_witnesses_of_a_gap_are_the_units_that_point_into_it(tmp_path: Path) -> None:
    cases: list[Case] = [one for one in ALL if one[1].startswith(("seg_missing", "seg_zero", "zero_page", "size_"))]
    request = ExportRequest(("gaps",))
    export(tmp_path / "lake", [case_store(*case) for case in cases], request)
    seen = 0
    for case in cases:
        places = {unit["physical_offset"] for unit in rows(case, "queue_units") if unit["size"] > 0}
        for gap in exported(tmp_path / "lake", case_store(*case).name, "gaps", request).to_pylist():
            inside = sum(gap["start"] <= place < gap["end"] for place in places)
            assert gap["witnesses"] == inside, (case, gap)
            seen += inside
    assert seen > 300


def test_findings_are_those_of_verify(tmp_path: Path) -> None:
    from rmqinspect.verify.result import VerifyOptions as Checks
    from rmqinspect.verify.run import verify

    request = ExportRequest((FINDINGS,))
    outcome = export(tmp_path / "lake", [case_store(*case) for case in SOME], request)
    reported = {"error": 0, "warning": 0, "info": 0}
    for case in SOME:
        store = case_store(*case)
        found = exported(tmp_path / "lake", store.name, FINDINGS, request)
        verdict = verify(store, Checks())
        assert found.column("code").to_pylist() == [row.code for row in verdict.findings.as_rows([], "")]
        for severity in reported:
            reported[severity] += verdict.findings.severities.get(severity, 0)
    assert outcome.manifest.findings == reported
    assert reported["error"] > 0
