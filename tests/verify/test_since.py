"""`verify --since`: a run that goes on from an earlier one has the report of a run that reads everything."""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import pytest

from rmqinspect.document import as_object
from rmqinspect.store.discover import open_store
from rmqinspect.verify import run as run_module
from rmqinspect.verify.carry import encode, pack, unpack_splits
from rmqinspect.verify.codes import BY_CODE
from rmqinspect.verify.custody import Watch
from rmqinspect.verify.report import read_earlier, report_of
from rmqinspect.verify.result import VerifyOptions
from rmqinspect.verify.run import verify_and_forecast, with_custody
from rmqinspect.verify.since import Memory, ResumeSegment, Share, checksum_of
from tests.support import oracle
from tests.support.growing import EARLIER, LATER, as_it_was, record_starts, set_times
from tests.support.sampling import sampled

CASES = [*(("crash", name) for name in oracle.cases("crash")), *(("broker", name) for name in oracle.cases("broker"))]
# `resume` may keep the numbers of splits that a new run joins, and what a start needed then.
OWN = "run", "taken_over", "resume"


LOG = "none-5.4.0-L"
NOTHING = Share()


def report(root: Path, since: Path | None = None, share: Share = NOTHING, level: str = "deep") -> dict[str, Any]:
    """Verify a store, maybe from an earlier report on, and return its report."""
    started = datetime.now(UTC)
    store = open_store([str(root)])
    watch = Watch(store)
    options = VerifyOptions(level, frozenset(BY_CODE), jobs=2)
    earlier = None
    if since is not None:
        earlier = read_earlier(str(since), options)
        earlier.check(store)
    memory = Memory(store, watch.before, earlier, share)
    result = verify_and_forecast(store, VerifyOptions(level, frozenset(BY_CODE), jobs=2, memory=memory))
    custody = watch.conclude()
    found = as_object(report_of(with_custody(result, custody), "STORE", custody, started=started))
    loaded: dict[str, Any] = json.loads(json.dumps(found))
    return loaded


def written(root: Path, path: Path, **options: Any) -> Path:
    path.write_text(json.dumps(report(root, **options)))
    return path


def compared(document: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in document.items() if name not in OWN}


@pytest.mark.parametrize(("family", "name"), sampled(CASES, 24))
def test_a_store_that_grew_has_the_report_of_a_full_run(
    family: Any, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_module, "SPLIT_SIZE", 48 << 10)
    later = oracle.copy(family, name, tmp_path)
    starts = record_starts(later)
    since = None
    for step, part in enumerate((0.4, 0.8)):
        if not starts:
            break
        root = as_it_was(later, tmp_path / f"step{step}", starts[int(len(starts) * part)])
        since = written(root, tmp_path / f"{step}.json", since=since)
    full, found = report(later), report(later, since=since)
    assert compared(found) == compared(full)


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store of many segments, whose files are long settled."""
    monkeypatch.setattr(run_module, "SPLIT_SIZE", 16 << 10)
    root = oracle.copy("crash", LOG, tmp_path)
    set_times(root, EARLIER)
    return root


def flip(path: Path, at: int) -> None:
    """Flip a bit of a file, and keep its time."""
    raw, status = bytearray(path.read_bytes()), path.stat()
    raw[at] ^= 1
    path.write_bytes(raw)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def body_of(root: Path, number: int) -> tuple[Path, int]:
    """Return the file of a record, and a position in its body."""
    place = record_starts(root)[number]
    segment = open_store([str(root)]).segment_at(place)
    assert segment is not None
    return Path(segment.path), place - segment.base + 90


def test_nothing_is_read_of_a_store_that_is_as_it_was(log: Path, tmp_path: Path) -> None:
    first = written(log, tmp_path / "first.json")
    found = report(log, since=first)
    taken = found["taken_over"]
    assert taken["segments"] == len(found["segments"])
    assert taken["bytes"] == sum(one["file_size"] for one in found["segments"])
    assert (taken["changed"], taken["gone"], taken["reread"]) == ([], 0, None)
    assert taken["sha256"] == hashlib.sha256(first.read_bytes()).hexdigest()
    assert compared(found) == compared(json.loads(first.read_bytes()))
    assert taken["queues"] > 0
    assert taken["index_files"] > 0


@pytest.mark.parametrize("level", ["standard", "deep"])
def test_evidence_that_is_as_it_was_is_not_opened(
    level: str, log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = written(log, tmp_path / "first.json", level=level)

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("read again")

    monkeypatch.setattr("rmqinspect.verify.run.check_split", refuse)
    monkeypatch.setattr("rmqinspect.verify.survey.survey_queue", refuse)
    monkeypatch.setattr("rmqinspect.verify.survey.survey_index", refuse)
    assert compared(report(log, since=first, level=level)) == compared(json.loads(first.read_bytes()))


def test_damage_of_the_earlier_run_is_still_reported(log: Path, tmp_path: Path) -> None:
    flip(*body_of(log, 5))
    first = written(log, tmp_path / "first.json")
    found = report(log, since=first)
    assert found["counts"]["CL-CRC-BODY"] == 1
    assert compared(found) == compared(report(log))


def test_new_damage_in_an_old_segment_is_found_by_its_time(log: Path, tmp_path: Path) -> None:
    first = written(log, tmp_path / "first.json")
    path, at = body_of(log, 5)
    flip(path, at)
    os.utime(path, (LATER, LATER))
    found = report(log, since=first)
    assert found["counts"]["CL-CRC-BODY"] == 1
    assert found["taken_over"]["changed"] == ["commitlog/" + path.name]
    assert compared(found) == compared(report(log))


def test_damage_with_a_kept_time_is_found_by_reading_again(log: Path, tmp_path: Path) -> None:
    first = written(log, tmp_path / "first.json")
    path, at = body_of(log, 5)
    flip(path, at)
    assert "CL-CRC-BODY" not in report(log, since=first)["counts"]  # by design: size and time are the same
    found = report(log, since=first, share=Share("100%", 100, 1))
    assert found["counts"]["CL-CRC-BODY"] == 1
    assert found["taken_over"]["reread"]["differ"] == ["commitlog/" + path.name]
    assert compared(found) == compared(report(log))


@pytest.mark.parametrize("keeps_time", [True, False])
def test_a_unit_that_changed_leads_to_the_split_of_its_record(keeps_time: bool, log: Path, tmp_path: Path) -> None:
    first = written(log, tmp_path / "first.json")
    file = max(open_store([str(log)]).queue_files, key=lambda one: os.stat(one.path).st_size)
    flip(Path(file.path), 11)  # of the size
    if not keeps_time:
        os.utime(file.path, (LATER, LATER))
    share = Share("100%", 100, 1) if keeps_time else NOTHING
    found = report(log, since=first, share=share)
    assert found["counts"]["CQ-MISMATCH"] == 1
    assert compared(found) == compared(report(log))
    reread = found["taken_over"]["reread"]
    assert file.name in (reread["differ"] if keeps_time else found["taken_over"]["changed"])


def test_facts_of_segments_that_retention_took_leave_the_report(log: Path, tmp_path: Path) -> None:
    flip(*body_of(log, 5))
    first = written(log, tmp_path / "first.json")
    segments = open_store([str(log)]).segments
    for segment in segments[:3]:
        Path(segment.path).unlink()
    found = report(log, since=first)
    assert "CL-CRC-BODY" not in found["counts"]
    assert found["taken_over"]["gone"] == 3
    assert found["taken_over"]["segments"] >= len(segments) - 4
    assert compared(found) == compared(report(log))


def test_a_segment_that_became_shorter_is_read_again(log: Path, tmp_path: Path) -> None:
    first = written(log, tmp_path / "first.json")
    path = Path(open_store([str(log)]).segments[2].path)
    os.truncate(path, 20_000)
    os.utime(path, (EARLIER, EARLIER))
    found = report(log, since=first)
    assert "CL-SIZE" in found["counts"]
    assert found["taken_over"]["changed"] == ["commitlog/" + path.name]
    assert compared(found) == compared(report(log))


def test_a_queue_that_is_gone_is_noticed(log: Path, tmp_path: Path) -> None:
    first = written(log, tmp_path / "first.json")
    shutil.rmtree(Path(open_store([str(log)]).queue_files[0].path).parent)
    assert compared(report(log, since=first)) == compared(report(log))


def test_what_was_written_in_the_last_minute_before_the_run_is_read_again(log: Path, tmp_path: Path) -> None:
    path = Path(open_store([str(log)]).segments[0].path)
    os.utime(path)
    first = written(log, tmp_path / "first.json")
    taken = report(log, since=first)["taken_over"]
    assert taken["segments"] == len(open_store([str(log)]).segments) - 1


def changed(path: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    document = json.loads(path.read_bytes())
    change(document)
    path.write_text(json.dumps(document))
    return path


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda report: report.update(resume=None), "nothing to go on from"),
        (lambda report: report.update(level="standard"), "--level was standard, and is deep"),
        (lambda report: report["checks"].pop(), "--check and --skip"),
        (lambda report: report["run"].update(tool="rmqinspect 99.0"), "rmqinspect 99.0 wrote"),
        (lambda report: report["resume"].update(format=2), "wrote what it carries"),
        (lambda report: report["resume"].update(max_findings=7), "--max-findings was 7"),
        (lambda report: report["resume"].update(surveys="AAAA"), "damaged, or was changed"),
        (lambda report: report["resume"].update(format="x"), "Expected `int`"),
    ],
)
def test_a_report_of_another_kind_is_refused(change: Any, why: str, log: Path, tmp_path: Path) -> None:
    first = changed(written(log, tmp_path / "first.json"), change)
    with pytest.raises(ValueError, match=re.escape(why)) as refused:
        report(log, since=first)
    assert "\n" not in str(refused.value)


def test_the_report_of_another_store_is_refused(log: Path, tmp_path: Path) -> None:
    first = written(log, tmp_path / "first.json")
    other = oracle.copy("crash", "base-4.9.7-clean", tmp_path / "other")
    with pytest.raises(ValueError, match="the report of another store"):
        report(other, since=first)


@pytest.mark.parametrize("seed", range(8))
def test_a_forged_state_ends_no_run(seed: int, log: Path, tmp_path: Path) -> None:
    random = Random(seed)
    first = written(log, tmp_path / "first.json", level="standard")

    def forge(document: dict[str, Any]) -> None:
        resume = document["resume"]
        one = random.choice(resume["segments"])
        raws = []
        for start, raw in unpack_splits(one["state"]):
            bad = bytearray(raw)
            for _ in range(random.choice((1, 1, 3))):
                bad[random.randrange(len(bad))] = random.randrange(256)
            raws.append((start, bytes(bad)))
        one["state"] = pack(encode(raws))
        segments = [ResumeSegment(**one) for one in resume["segments"]]
        resume["checksum"] = checksum_of(segments, resume["surveys"])

    found = report(log, since=changed(first, forge), level="standard")
    assert found["verdict"]
