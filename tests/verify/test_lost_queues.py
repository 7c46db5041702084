"""Queues that are gone or end short: found at every level that reads the log, one finding per queue."""

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

import rmqinspect.verify.run
from rmqinspect.schemas.consumequeue import QueueUnit
from rmqinspect.store.discover import open_store
from rmqinspect.verify.findings import Finding
from rmqinspect.verify.result import VerifyOptions
from rmqinspect.verify.run import verify
from tests.support import oracle

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
    outcome = verify(open_store([str(root)]), VerifyOptions(level="standard", jobs=jobs))
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
    deep = verify(open_store([str(root)]), VerifyOptions(level="deep"))
    assert {row.code for row in deep.findings.rows if row.severity == "error"} == {"CQ-HOLE", "CQ-MISSING"}
