"""A changed head of a record, which no checksum covers: the record is named, and its neighbours are not blamed."""

import random
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rmqinspect.commitlog import scan
from rmqinspect.store.discover import open_store
from rmqinspect.verify import run
from rmqinspect.verify.findings import Finding
from rmqinspect.verify.result import VerifyOptions
from tests.support import oracle
from tests.support.expected_findings import settings
from tests.support.slow_pointers import NONE, Record, read_log

NAME = "base-4.3.2-halt"
HOUR = 3_600_000
BORN_V6 = 0x10
Change = Callable[[bytearray, int, Record], None]


def _later(raw: bytearray, at: int, record: Record, by: int = HOUR) -> None:
    (flags,) = struct.unpack_from(">i", raw, at + 36)
    struct.pack_into(">q", raw, at + (68 if flags & BORN_V6 else 56), record.store_timestamp + by)


def _earlier(raw: bytearray, at: int, record: Record) -> None:
    _later(raw, at, record, -HOUR)


def _other_queue(raw: bytearray, at: int, record: Record) -> None:
    struct.pack_into(">i", raw, at + 12, record.queue_id + 1)


def _other_topic(raw: bytearray, at: int, record: Record) -> None:
    topic = record.topic.encode()
    raw[raw.index(topic, at + 88, at + record.size) + len(topic) - 1] = ord("Z")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("store")
    yield oracle.copy("crash", NAME, folder)
    shutil.rmtree(folder)


def findings(root: Path, level: str = "deep") -> list[Finding]:
    rows = run.verify(open_store([str(root)]), VerifyOptions(level=level)).findings.rows
    return [row for row in rows if row.code not in ("ST-ABORT", "ST-UNCHECKED")]


@pytest.mark.parametrize("level", ["standard", "deep"])
@pytest.mark.parametrize(
    ("change", "code"),
    [(_later, "CL-TIME"), (_earlier, "CL-TIME"), (_other_queue, "CQ-MISMATCH"), (_other_topic, "CQ-MISMATCH")],
)
def test_one_finding_names_the_record_that_was_changed(
    store: Path, change: Change, code: str, level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = [one for one in read_log(store, settings("crash", NAME)).records.values() if one.transaction == NONE]
    chosen = random.Random(f"{change} {level}").sample(records[2:-2], 1)
    if level == "deep":  # only the index knows about these
        chosen += [one for one in (records[0], records[-1]) if code == "CL-TIME" and "KEYS" in one.properties]
    for record in chosen:
        # Splits of one or a few records: what follows from the change may lie in another one.
        monkeypatch.setattr(run, "SPLIT_SIZE", random.Random(record.size).choice((700, 5_003, 1 << 26)))
        monkeypatch.setattr(scan, "LOOK_BACK", 6 << 20)
        path = max(one for one in (store / "commitlog").iterdir() if int(one.name) <= record.physical_offset)
        sound = path.read_bytes()
        raw = bytearray(sound)
        change(raw, record.physical_offset - int(path.name), record)
        path.write_bytes(raw)
        try:
            found = findings(store, level)
        finally:
            path.write_bytes(sound)
        assert [(one.code, one.severity, one.physical_offset) for one in found] == [
            (code, "error", record.physical_offset)
        ], record


def test_a_clock_that_was_set_back_names_no_record(tmp_path: Path) -> None:
    """Only where it went back, as an info: all records from there on are older."""
    root = oracle.copy("crash", "base-5.5.0-halt", tmp_path)
    records = list(read_log(root, settings("crash", "base-5.5.0-halt")).records.values())
    step = records[len(records) // 2]
    for path in (root / "commitlog").iterdir():
        raw = bytearray(path.read_bytes())
        for record in records:
            at = record.physical_offset - int(path.name)
            if record.physical_offset >= step.physical_offset and 0 <= at < len(raw):
                _earlier(raw, at, record)
        path.write_bytes(raw)
    found = findings(root, "standard")
    assert [(one.code, one.severity, one.physical_offset) for one in found if one.code == "CL-TIME"] == [
        ("CL-TIME", "info", step.physical_offset)
    ]
