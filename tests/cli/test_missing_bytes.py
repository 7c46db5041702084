"""What no file has is a gap, in every command that says complete, all, none or not there: a table of both.

The sample's log is 0 to 262 144, in segments of 65 536. Its second one is cut, emptied or deleted, or its last one is
cut; beside them stand stores that only look alike, whose logs lack nothing.
"""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import rmqinspect
from rmqinspect.codec.arrays import Span, merge
from rmqinspect.commitlog.missing import absent_in, log_range, missing_in
from rmqinspect.store.discover import open_store
from rmqinspect.tables.request import Request
from rmqinspect.tables.splits import split_rows, split_table
from rmqinspect.text import group_digits
from tests.support.command import Run, runner
from tests.support.outcome_stores import outcome_store
from tests.support.samples import sample

SIZE = 65_536
BORDER = 94_787  # a record begins there, in the second segment
LAST_BORDER = 214_182  # in the last one
LOG_END = 234_507
_SECOND, _LAST = f"{SIZE:020}", f"{3 * SIZE:020}"


def _cut(name: str, size: int) -> Callable[[Path], None]:
    return lambda log: os.truncate(log / name, size)


def _delete(name: str) -> Callable[[Path], None]:
    return lambda log: (log / name).unlink()


def _add(name: str, size: int) -> Callable[[Path], None]:
    def add(log: Path) -> None:
        with (log / name).open("ab") as file:
            file.write(bytes(size))

    return add


# What is done to the log, and the range that is a gap then.
GAPS: dict[str, tuple[Callable[[Path], None], Span]] = {
    "cut at a record's border": (_cut(_SECOND, BORDER - SIZE), (BORDER, 2 * SIZE)),
    "cut within a record": (_cut(_SECOND, BORDER - SIZE + 49), (BORDER, 2 * SIZE)),
    "emptied": (_cut(_SECOND, 0), (SIZE, 2 * SIZE)),
    "deleted": (_delete(_SECOND), (SIZE, 2 * SIZE)),
    "the last one cut at a record's border": (_cut(_LAST, LAST_BORDER - 3 * SIZE), (LAST_BORDER, 4 * SIZE)),
}

# Logs that lack no record.
WHOLE: dict[str, Callable[[Path], None]] = {
    "untouched": lambda _: None,
    "the last one cut in its zeros": _cut(_LAST, LOG_END - 3 * SIZE + 4096),
    "cut in its blank record": _cut(_SECOND, SIZE - 1),
    "a file that was just made": _add(f"{4 * SIZE:020}", 0),
    "a file that was preallocated": _add(f"{4 * SIZE:020}", SIZE),
    "cleaned by retention": _delete(f"{0:020}"),
    "zeros behind a full segment": _add(_SECOND, 4096),
}

run = runner()


def _made(kind: str, change: Callable[[Path], None], folder: Path) -> Path:
    store = folder / "store"
    shutil.copytree(sample("healthy-4.9.7"), store)
    change(store / "commitlog")
    return store


@pytest.fixture(params=GAPS)
def lacking(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, Span]:
    """Return a store, and the range of its log that is a gap."""
    change, gap = GAPS[request.param]
    return _made(request.param, change, tmp_path), gap


@pytest.fixture(params=WHOLE)
def whole(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Return a store whose log lacks nothing."""
    return _made(request.param, WHOLE[request.param], tmp_path)


# Command, status with a gap. Its answer is a JSON document with `complete`; stderr names the gap.
READERS = (
    (("decode", "-f", "json", "--columns", "physical_offset"), 3),
    (("decode", "-f", "json", "--table", "segments"), 3),
    (("decode", "-f", "json", "--table", "gaps"), 3),
    (("sql", "-f", "json", "SELECT count(*) FROM messages"), 3),
    (("usage", "-f", "json", "--by", "topic"), 3),
)
SCREENS = ("transactions", "delays", "usage")  # stderr names the gap
_NONE = "no-such-key"


def _words(start: int, end: int) -> str:
    return f"({start:#x} to {end:#x})"


def test_what_is_read_to_the_end_is_incomplete(lacking: tuple[Path, Span], run: Run) -> None:
    store, gap = lacking
    for words, expected in READERS:
        status, out, err = run(*words, store)
        assert (status, json.loads(out)["complete"]) == (expected, False), words
        assert _words(*gap) in err and "complete" not in err.replace("incomplete", ""), words
    for command in SCREENS:
        status, _, err = run(command, store)
        assert status == 3 and _words(*gap) in err, command


def test_a_miss_says_that_the_gap_may_have_held_it(lacking: tuple[Path, Span], tmp_path: Path, run: Run) -> None:
    store, gap = lacking
    status, out, _ = run("find", store, "-k", _NONE, "--scan")
    assert status == 3 and "DAMAGED" in out and "incomplete: 1 gap" in out and "NOT THERE" not in out
    assert _words(*gap) in " ".join(out.split())

    status, out, _ = run("find", store, "-k", _NONE, "--scan", "-f", "json", "--evidence", tmp_path / "proof.json")
    found, proof = json.loads(out), json.loads((tmp_path / "proof.json").read_text())
    assert (found["complete"], found["stores"][0]["complete"], proof["complete"]) == (False, False, False)
    expected = [{"start": gap[0], "end": gap[1]}]
    assert found["stores"][0]["gaps"] == proof["stores"][0]["gaps"] == expected
    assert any("`gaps`" in words for words in proof["does_not_prove"])

    status, _, err = run("show", store, "--at", gap[1] - 1)
    assert status == 3 and _words(*gap)[-8:] in err
    assert any(
        _words(*gap) in miss for miss in rmqinspect.find_messages(rmqinspect.open_store(store), key=_NONE).misses
    )


def test_an_export_is_incomplete(lacking: tuple[Path, Span], tmp_path: Path, run: Run) -> None:
    store, gap = lacking
    status, out, _ = run("export", store, "--engine", "local", "-o", tmp_path / "lake")
    manifest = json.loads((tmp_path / "lake" / "_manifest.json").read_text())
    (entry,) = manifest["stores"]
    assert (status, manifest["complete"], entry["complete"]) == (3, False, False)
    assert merge((lost["start"], lost["end"]) for lost in entry["lost"]) == [gap]
    assert "incomplete for physical" in out and "VERDICT   DAMAGED" in out

    # Of a range in front of the gap all is there.
    status, _, _ = run("export", store, "--engine", "local", "-o", tmp_path / "front", "--offset", f"0..{gap[0]}")
    manifest = json.loads((tmp_path / "front" / "_manifest.json").read_text())
    assert (status, manifest["complete"], manifest["stores"][0]["complete"]) == (0, True, True)


def test_splits_tell_the_same_gaps_once(lacking: tuple[Path, Span]) -> None:
    store, gap = lacking
    for table in ("messages", "gaps"):
        gaps: list[tuple[str, int, int]] = []
        request = Request(on_gap=lambda *gap, gaps=gaps: gaps.append(gap))
        for split in split_table(table, open_store([str(store)]), 20_000):
            for _ in split_rows(split, request):
                pass
        told = [(start, end) for _, start, end in gaps]
        assert merge(told) == [gap] and sum(end - start for start, end in told) == gap[1] - gap[0]


def test_one_of_several_stores_is_named(lacking: tuple[Path, Span], run: Run) -> None:
    store, gap = lacking
    words = ("decode", f"good={sample('healthy-4.9.7')}", f"bad={store}", "-f", "json", "--columns", "topic")
    status, out, err = run(*words)
    assert (status, json.loads(out)["complete"]) == (3, False)
    assert "bad: 1 gap in the range read" in err and _words(*gap) in err and "good: " not in err


def test_a_range_without_the_gap_is_complete(lacking: tuple[Path, Span], run: Run) -> None:
    store, gap = lacking
    status, out, _ = run("decode", store, "-f", "json", "--offset", f"0..{gap[0]}", "--columns", "topic")
    assert (status, json.loads(out)["complete"]) == (0, True)


def test_a_log_that_lacks_no_record_is_complete(whole: Path, tmp_path: Path, run: Run) -> None:
    for words, _ in READERS:
        status, out, _ = run(*words, whole)
        assert (status, json.loads(out)["complete"]) == (0, True), words
    status, out, _ = run("find", whole, "-k", _NONE, "--scan")
    assert status == 5 and "NOT THERE" in out and "complete: no gap" in out
    run("export", whole, "--engine", "local", "-o", tmp_path / "lake")
    assert json.loads((tmp_path / "lake" / "_manifest.json").read_text())["complete"]


def test_loose_files_lack_no_neighbours(tmp_path: Path, run: Run) -> None:
    store = _made("", _delete(_SECOND), tmp_path)
    loose = [store / "commitlog" / name for name in (f"{0:020}", f"{2 * SIZE:020}")]
    status, out, _ = run("decode", *loose, "-f", "json", "--columns", "topic")
    assert (status, json.loads(out)["complete"]) == (0, True)

    # The size of a segment is known from the first: the second ends too early, whatever lay between them.
    os.truncate(loose[1], 20_000)
    status, out, _ = run("decode", *loose, "-f", "json", "--columns", "topic")
    assert (status, json.loads(out)["complete"]) == (3, False)


def test_the_account_tells_absent_files_from_short_ones(tmp_path: Path) -> None:
    store = _made("", _cut(_SECOND, 1000), tmp_path)
    (store / "commitlog" / f"{2 * SIZE:020}").unlink()
    found = open_store([str(store)])
    assert [(gap.start, gap.end, gap.reason) for gap in missing_in(found)] == [
        (SIZE + 1000, 2 * SIZE, "short_file"),
        (2 * SIZE, 3 * SIZE, None),
    ]
    assert [gap.start for gap in absent_in(found)] == [2 * SIZE]
    assert log_range(found) == (0, 4 * SIZE)


def test_a_real_middle_segment_that_was_cut_between_two_records(tmp_path: Path, run: Run) -> None:
    """The record of order-1797 began at 1 726 020, in the 808 270 bytes that are missing.

    Behind the last file, too, messages are missing, to which 1 522 queue units lead.
    """
    store = outcome_store("s12b")
    gap, behind = (1_288_882, 2_097_152), (3_145_728, 4_271_408)
    status, out, _ = run("find", store, "-k", "order-1797", "--evidence", tmp_path / "proof.json")
    flat = " ".join(out.split())
    assert status == 3 and "DAMAGED" in out and "NOT THERE" not in out
    assert "2 gaps of 1 933 950 bytes may have held it: 808 270 bytes from 1 288 882 to 2 097 152" in flat
    assert _words(*gap) in flat and _words(*behind) in flat
    proof = json.loads((tmp_path / "proof.json").read_text())
    gaps = [{"start": start, "end": end} for start, end in (gap, behind)]
    assert (proof["complete"], proof["stores"][0]["gaps"]) == (False, gaps)

    status, _, err = run("decode", store, "-v", "--columns", "topic", "-o", tmp_path / "rows.csv")
    assert status == 3 and "3 394 rows, incomplete" in err and "808 270 bytes" in err

    status, out, _ = run("export", store, "--engine", "local", "-o", tmp_path / "lake")
    assert status == 3 and "incomplete for physical 0 to" in out and "808 270 bytes" in out

    status, out, _ = run("find", store, "-k", "order-3")  # a hit elsewhere is sound
    assert status in (0, 4), out


def test_verify_counts_what_no_file_has_beside_the_bytes_of_the_files(lacking: tuple[Path, Span], run: Run) -> None:
    store, _ = lacking
    (gap,) = missing_in(open_store([str(store)]))
    _, out, _ = run("verify", store)
    flat = " ".join(out.split())
    assert f"missing {group_digits(gap.end - gap.start)} bytes that no file has" in flat
    assert _words(gap.start, gap.end) in flat
