"""Files that are gone, cut, of another time or under other names, and those that no retention or stop can have left so.

CL-FIRST     segments before the log's start that no retention can have taken
CQ-MISSING   queues that are gone or end short: found at every level that reads the log, one finding per queue
IX-ORDER, IX-DUPLICATE, IX-FIRST   index files under other names, twice, and without the first one
ST-CHECKPOINT   a checkpoint that is older than a stop in order leaves it
"""

import os
import re
import shutil
import struct
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from shutil import copyfile

import pytest

import rmqinspect.verify.run
from rmqinspect.schemas.consumequeue import QueueUnit
from rmqinspect.store.discover import open_store
from rmqinspect.verify.findings import Finding, FindingRow, what_to_do
from rmqinspect.verify.result import VerifyOptions, VerifyResult
from rmqinspect.verify.run import verify
from tests.support import oracle
from tests.support.building import various
from tests.support.expected_findings import RETENTION, pointers
from tests.support.whole_stores import WholeStore

# --- segments before the log's start --------------------------------------------------------------

_FIRST = "commitlog/00000000000000000000"


def judge(root: Path, level: str = "deep", jobs: int = 1) -> VerifyResult:
    return verify(open_store([str(root)]), VerifyOptions(level=level, jobs=jobs))


def first_of(root: Path) -> list[FindingRow]:
    """Return what CL-FIRST says of a store."""
    return [row for row in judge(root).findings.as_rows([str(root)], str(root)) if row.code == "CL-FIRST"]


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


# --- queues ---------------------------------------------------------------------------------------

WRITERS = ("4.3.2", "5.3.3")
QUEUE = ("TopicA", 0)
UNIT = QueueUnit.sizeof()
FILE_UNITS = 20  # mappedFileSizeConsumeQueue of these stores: 400 bytes
Queue = tuple[str, int]


def messages(version: str) -> dict[Queue, int]:
    """Return how many units each queue of the writer's own list of messages has."""
    total: Counter[Queue] = Counter()
    for put in oracle.puts(f"base-{version}-clean"):
        if put["kind"] not in ("prepared", "rollback"):
            total[str(put["topic"]), int(put["queue_id"])] += int(put["msg_num"])
    return total


def folder(root: Path, queue: Queue = QUEUE) -> Path:
    return root / "consumequeue" / queue[0] / str(queue[1])


def files(root: Path) -> list[Path]:
    return sorted(path for path in folder(root).iterdir() if any(path.read_bytes()))


def lose_both_ends(root: Path) -> None:
    for path in (files(root)[0], files(root)[-1]):
        path.unlink()


def zero_tail(root: Path) -> None:
    """Zero all units of the last two files but the first three."""
    before, last = files(root)[-2:]
    before.write_bytes(before.read_bytes()[: 3 * UNIT].ljust(FILE_UNITS * UNIT, b"\0"))
    last.write_bytes(bytes(FILE_UNITS * UNIT))


def lose_all_but_strays(root: Path) -> None:
    shutil.rmtree(root / "consumequeue")
    (root / "consumequeue").mkdir()
    (root / "consumequeue" / ".DS_Store").write_bytes(b"\0\0\0\1Bud1")


DAMAGE: dict[str, Callable[[Path], None]] = {
    "a queue is gone": lambda root: shutil.rmtree(folder(root)),
    "a topic is gone": lambda root: shutil.rmtree(folder(root).parent),
    "its first file is gone": lambda root: files(root)[0].unlink(),
    "its last file is gone": lambda root: files(root)[-1].unlink(),
    "both are gone": lose_both_ends,
    "its tail is zero": zero_tail,
    "all queues are gone": lambda root: shutil.rmtree(root / "consumequeue"),
    "all queues are gone, a desktop's file is there": lose_all_but_strays,
}


def lost(version: str, damage: str) -> dict[Queue, int]:
    """Return how many messages of each queue have no unit after a damage, from what was written."""
    written = messages(version)
    last_file = (written[QUEUE] - 1) % FILE_UNITS + 1
    by_damage: dict[str, dict[Queue, int]] = {
        "a queue is gone": {QUEUE: written[QUEUE]},
        "a topic is gone": {queue: number for queue, number in written.items() if queue[0] == QUEUE[0]},
        "its first file is gone": {QUEUE: FILE_UNITS},
        "its last file is gone": {QUEUE: last_file},
        "both are gone": {QUEUE: FILE_UNITS + last_file},
        "its tail is zero": {QUEUE: FILE_UNITS - 3 + last_file},
    }
    return by_damage.get(damage, written)


def found(root: Path, jobs: int = 1) -> list[Finding]:
    outcome = judge(root, "standard", jobs)
    rows = [row for row in outcome.findings.rows if row.severity == "error"]
    assert outcome.verdict.startswith("DAMAGED") == bool(rows)
    return rows


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("version", WRITERS)
def test_each_queue_that_lacks_an_end_is_one_finding(
    version: str, damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = oracle.copy("crash", f"base-{version}-clean", tmp_path)
    DAMAGE[damage](root)
    rows = found(root)
    assert {row.code for row in rows} == {"CQ-MISSING"}
    assert sorted((row.topic or "", row.queue_id, row.count) for row in rows) == sorted(
        (*queue, number) for queue, number in lost(version, damage).items()
    )
    monkeypatch.setattr(rmqinspect.verify.run, "SPLIT_SIZE", 4 << 10)
    assert found(root) == rows
    if damage == "both are gone":
        assert found(root, jobs=2) == rows


def test_a_unit_that_is_lost_inside_a_queue_is_named_at_level_deep_only(tmp_path: Path) -> None:
    root = oracle.copy("crash", "base-5.3.3-clean", tmp_path)
    path = files(root)[0]
    raw = bytearray(path.read_bytes())
    raw[100:120] = bytes(20)
    path.write_bytes(raw)
    assert [row.code for row in found(root)] == ["CQ-HOLE"]
    assert {row.code for row in judge(root).findings.rows if row.severity == "error"} == {"CQ-HOLE", "CQ-MISSING"}


# --- index files ----------------------------------------------------------------------------------

_STORES: tuple[tuple[oracle.Family, str], ...] = (
    ("crash", "none-4.2.0-b"),
    ("crash", "none-5.5.0-h-messageIndexSafe"),
    ("broker", "main-4.7.1"),
    ("broker", "dledger-5.3.3"),
    ("broker", "retention-5.3.3"),
)


KEYED = [{**piece, "properties": {"KEYS": f"key{number}"}} for number, piece in enumerate(various(40))]


def of_index(root: Path, level: str = "standard") -> list[Finding]:
    """Return the findings about index files."""
    return [row for row in judge(root, level).findings.rows if row.code.startswith("IX-")]


def exchange(files: list[Path]) -> None:
    first, last, aside = files[0], files[-1], files[0].with_name("aside")
    first.rename(aside)
    last.rename(first)
    aside.rename(last)


def duplicate(files: list[Path]) -> None:
    copyfile(files[0], files[0].with_name(str(int(files[0].name) + 1)))


def remove_first(files: list[Path]) -> None:
    files[0].unlink()


@pytest.mark.parametrize(("family", "name"), _STORES)
@pytest.mark.parametrize(
    ("damage", "code", "severity"),
    [
        (exchange, "IX-ORDER", "error"),
        (duplicate, "IX-DUPLICATE", "warning"),
        (remove_first, "IX-FIRST", "warning"),
    ],
)
def test_what_was_done_to_index_files_is_found(
    family: oracle.Family,
    name: str,
    damage: Callable[[list[Path]], None],
    code: str,
    severity: str,
    tmp_path: Path,
) -> None:
    root = oracle.copy(family, name, tmp_path)
    damage(sorted((root / "index").iterdir()))
    levels = ("quick", "standard") if code != "IX-FIRST" else ("standard",)
    for level in levels:
        assert {(row.code, row.severity) for row in of_index(root, level)} - {("IX-NONE", "info")} == {(code, severity)}


def test_the_records_before_the_first_file_are_counted(tmp_path: Path) -> None:
    """Those that the writer of this store put before the first entry that is left, with a key or an id."""
    root = oracle.copy("crash", "base-4.9.7-clean", tmp_path)
    gone, begins, *_ = sorted((root / "index").iterdir())
    gone.unlink()
    begin = int.from_bytes(begins.read_bytes()[16:24])
    keyed = 0
    for put in oracle.puts("base-4.9.7-clean"):
        items = put.get("items") or [put]
        if put["phys"] < begin and put["kind"] != "rollback":
            keyed += sum(bool(item.get("keys") or item.get("uniq_key")) for item in items)
    [found] = of_index(root)
    assert (found.code, found.count, found.found) == ("IX-FIRST", keyed, f"the first one begins at {begin}")


def test_an_index_that_begins_with_a_segment_was_built_anew(tmp_path: Path) -> None:
    """As by a start after an unclean stop, which deletes the files and indexes the segments that it scans."""
    root = WholeStore(KEYED, indexed_from=1024).write(tmp_path)
    assert int.from_bytes(min((root / "index").iterdir()).read_bytes()[16:24]) >= 1024
    assert of_index(root) == []


def test_an_index_that_begins_amid_a_segment_lacks_its_first_file(tmp_path: Path) -> None:
    root = WholeStore(KEYED, indexed_from=1400).write(tmp_path)
    [found] = of_index(root)
    assert (found.code, found.severity) == ("IX-FIRST", "warning")


# --- the checkpoint -------------------------------------------------------------------------------

_CLEAN: tuple[tuple[oracle.Family, str], ...] = (
    ("crash", "base-4.2.0-clean"),
    ("crash", "base-5.3.3-clean"),
    ("crash", "base-5.5.0-clean"),
    ("broker", "main-4.9.7"),
    ("broker", "main-5.4.0"),
    ("broker", "main-5.5.0"),
)


def of_checkpoint(root: Path) -> list[Finding]:
    return [row for row in judge(root, "standard").findings.rows if row.code == "ST-CHECKPOINT"]


def older(root: Path, by: int) -> Path:
    """Set the times of the checkpoint back by so many milliseconds."""
    file = root / "checkpoint"
    raw = file.read_bytes()
    file.write_bytes(struct.pack(">3q", *(time - by for time in struct.unpack(">3q", raw[:24]))) + raw[24:])
    return root


@pytest.mark.parametrize(("family", "name"), _CLEAN)
def test_a_checkpoint_of_an_hour_before_is_of_another_time(family: oracle.Family, name: str, tmp_path: Path) -> None:
    found = of_checkpoint(older(oracle.copy(family, name, tmp_path), 3_600_000))
    assert {row.severity for row in found} == {"warning"}
    # 5.5.0, which may have written the store of 5.4.0 as well, writes the time of the last thorough flush: only that of
    # the index tells.
    assert [row.offset for row in found] == ([16] if name.endswith(("5.5.0-clean", "5.4.0", "5.5.0")) else [8, 16])
    assert all("older than a stop in order leaves it" in row.message for row in found)


@pytest.mark.parametrize("name", ["base-5.3.3-halt", "base-4.2.0-halt"])
def test_a_stop_out_of_order_may_leave_any_time(name: str, tmp_path: Path) -> None:
    assert of_checkpoint(older(oracle.copy("crash", name, tmp_path), 3_600_000)) == []


def test_a_checkpoint_that_a_start_made_anew_has_no_times_yet(tmp_path: Path) -> None:
    """Of a store without messages since: all but the time of the log is 0."""
    root = oracle.copy("broker", "main-4.9.7", tmp_path)
    raw = (root / "checkpoint").read_bytes()
    (root / "checkpoint").write_bytes(raw[:8] + bytes(len(raw) - 8))
    assert of_checkpoint(root) == []


@pytest.mark.parametrize(("source", "name", "expected"), [
    (0, "30000101000000000", {"IX-DUPLICATE": "warning", "IX-ORDER": "error"}),  # its old records end every search
    (-2, "30000101000000000", {"IX-DUPLICATE": "warning", "IX-ORDER": "error"}),
    (-1, "30000101000000000", {"IX-DUPLICATE": "warning"}),  # in order, as the last file is
    (-1, "19990101000000000", {"IX-DUPLICATE": "warning"}),  # no search that finds the last file comes to it
    (0, "19990101000000000", {"IX-DUPLICATE": "warning"}),
])  # fmt: skip
@pytest.mark.parametrize("level", ["quick", "standard"])
def test_of_two_equal_files_the_one_under_a_name_of_another_time_is_to_be_moved(
    source: int, name: str, expected: dict[str, str], level: str, tmp_path: Path
) -> None:
    """Source: IndexService#queryOffset goes from the last file back, to the first that begins before the time asked."""
    root = oracle.copy("broker", "main-5.3.3", tmp_path)
    files = sorted((root / "index").iterdir())
    assert len(files) > 2
    copy = copyfile(files[source], root / "index" / name)
    found = [row for row in of_index(root, level) if row.code != "IX-NONE"]
    assert {row.code: row.severity for row in found} == expected
    to_move = files[0] if (source, name) == (0, "19990101000000000") else copy
    assert {row.file for row in found} == {f"index/{to_move.name}"}
    assert {what_to_do(row) for row in found} == {f"stop the broker, and move index/{to_move.name} out of the store"}
