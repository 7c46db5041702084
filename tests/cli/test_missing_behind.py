"""Files that are missing behind the last one: nothing but queue units and the index's header lead there."""

import json
import os
import shutil
from pathlib import Path

import pytest

from rmqinspect.broker.behind_files import missing_behind
from rmqinspect.codec.arrays import Span
from rmqinspect.store.discover import open_store
from rmqinspect.tables.request import Request
from rmqinspect.tables.splits import split_rows, split_table
from tests.support.command import Run, runner
from tests.support.outcome_stores import copy_of_case, outcome_store
from tests.support.samples import sample

SIZE = 65_536
LOG_END = 234_507

run = runner()


def _store(tmp_path: Path, *, segments: int, cut: int | None = None, folders: tuple[str, ...] = ()) -> Path:
    """Return the sample with so many segments, the last of which is cut, and without some folders."""
    store = tmp_path / "store"
    shutil.copytree(sample("healthy-4.9.7"), store)
    for number in range(segments, 4):
        (store / "commitlog" / f"{SIZE * number:020}").unlink()
    if cut is not None:
        os.truncate(store / "commitlog" / f"{SIZE * (segments - 1):020}", cut)
    for folder in folders:
        shutil.rmtree(store / folder)
    return store


@pytest.mark.parametrize(
    ("segments", "cut", "folders", "expected"),
    [
        (4, None, (), []),
        (3, None, (), [(3 * SIZE, LOG_END)]),
        (1, 40_000, (), [(40_000, LOG_END)]),  # nothing says how long the only file should be
        (1, 40_000, ("index",), [(40_000, LOG_END)]),
        (3, None, ("consumequeue",), [(3 * SIZE, 234_210)]),  # the header names where the record begins
        (3, None, ("consumequeue", "index"), []),
    ],
)
def test_units_and_the_index_lead_behind_the_last_file(
    segments: int, cut: int | None, folders: tuple[str, ...], expected: list[Span], tmp_path: Path
) -> None:
    store = open_store([str(_store(tmp_path, segments=segments, cut=cut, folders=folders))])
    assert [(gap.start, gap.end) for gap in missing_behind(store)] == expected


def test_a_damaged_unit_and_loose_files_prove_nothing(tmp_path: Path) -> None:
    store = _store(tmp_path, segments=4)
    unit = store / "consumequeue" / "orders" / "0" / f"{0:020}"
    raw = bytearray(unit.read_bytes())
    raw[18 * 20 + 2] ^= 1  # the last unit of the queue leads far away
    unit.write_bytes(raw)
    assert missing_behind(open_store([str(store)])) == []

    (store / "commitlog" / f"{3 * SIZE:020}").unlink()
    loose = [str(store / "commitlog" / f"{SIZE * number:020}") for number in range(3)]
    assert missing_behind(open_store(loose)) == []


_GAP = (3_670_016, 4_574_475)  # of the case s02, whose newest two segments were deleted


def test_what_reads_the_whole_log_is_incomplete(tmp_path: Path, run: Run) -> None:
    store = outcome_store("s02")
    words = f"({_GAP[0]:#x} to {_GAP[1]:#x})"
    for command in (
        ("decode", "-f", "json", "--columns", "physical_offset"),
        ("decode", "-f", "json", "--table", "gaps"),
        ("sql", "-f", "json", "SELECT count(*) FROM messages"),
        ("usage", "-f", "json", "--by", "kind"),
        ("groups", "-f", "json"),
    ):
        status, out, err = run(*command, store)
        assert (status, json.loads(out)["complete"]) == (3, False), command
        assert words in err, command

    status, out, _ = run("find", store, "-k", "no-such-key", "--scan", "--evidence", tmp_path / "proof.json")
    flat = " ".join(out.split())
    assert status == 3 and "NOT THERE" not in out
    assert "904 459 bytes of the log are missing" in flat and words in flat and "1 533 acknowledged messages" in flat
    proof = json.loads((tmp_path / "proof.json").read_text())
    assert not proof["complete"] and proof["stores"][0]["gaps"] == [{"start": _GAP[0], "end": _GAP[1]}]

    gaps: list[tuple[str, int, int]] = []
    request = Request(on_gap=lambda *gap: gaps.append(gap))
    for split in split_table("messages", open_store([str(store)]), 1 << 20):
        for _ in split_rows(split, request):
            pass
    assert gaps == [("missing", *_GAP)]


def test_a_range_that_ends_before_is_complete(run: Run) -> None:
    words = ("decode", outcome_store("s02"), "-f", "json", "--columns", "topic", "--offset", f"0..{_GAP[0]}")
    status, out, _ = run(*words)
    assert (status, json.loads(out)["complete"]) == (0, True)


def test_bytes_that_were_not_written_are_not_missing(tmp_path: Path) -> None:
    """In s08 units lead behind the last record, too, but into the zeros of a file that is there."""
    store = copy_of_case("s08", tmp_path / "case")
    assert missing_behind(open_store([str(store)])) == []
