"""What could not be read is told as that, and nothing else: no check judges it, of verify or of diff."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqinspect.diff.stores import compare_stores
from rmqinspect.store.discover import open_store
from rmqinspect.topics import SCHEDULE_TOPIC
from rmqinspect.verify.result import VerifyOptions, VerifyResult
from rmqinspect.verify.run import verify
from tests.support import oracle
from tests.support.command import Run, runner
from tests.support.whole_stores import WholeStore

run = runner()

CONFIGS = {
    "topics.json": {"topicConfigTable": {"orders": {"topicName": "orders", "readQueueNums": 2, "writeQueueNums": 2}}},
    "topics.json.bak": {"topicConfigTable": {}},
    "consumerOffset.json": {"offsetTable": {"orders@group": {"0": 20, "1": 20}}},
    "delayOffset.json": {"offsetTable": {"3": 10}},
}
# Where files are of real stores that the small one does not have, as patterns.
REAL = {
    ("broker", "ext-4.9.7"): ["consumequeue_ext", "consumequeue_ext/*", "consumequeue_ext/*/*/*"],
    ("broker", "halt-5.1.4"): ["timerlog", "timerlog/*", "timerwheel", "config/timercheck", "config"],
    ("broker", "dledger-4.9.7"): ["dledger-*", "dledger-*/data", "dledger-*/index", "dledger-*/data/*"],
}


def small(folder: Path) -> Path:
    """Write a store in which whatever is hidden would be missed: units, entries, groups and a checkpoint."""
    pieces = [
        {"topic": "orders", "queue_id": number % 2, "properties": {"KEYS": f"k{number}", "UNIQ_KEY": f"{number:032}"}}
        for number in range(40)
    ]
    pieces += [{"topic": SCHEDULE_TOPIC, "queue_id": 2, "properties": {"DELAY": "3"}} for _ in range(10)]
    return WholeStore(pieces, configs=CONFIGS).write(folder)


def deep(store: Path, *more: Path) -> VerifyResult:
    return verify(open_store([str(store), *map(str, more)]), VerifyOptions(level="deep"))


HIDE: dict[str, Callable[[Path, Path], object]] = {
    "link": lambda path, away: path.symlink_to(away),
    "dangling": lambda path, away: path.symlink_to(away / "nowhere"),
    "special": lambda path, away: os.mkfifo(path),
}


def check_hidden(store: Path, whole: Path, path: Path, how: str, usual: VerifyResult) -> None:
    """Hide an entry of a store, and compare what is said with what is said of the whole one."""
    away = store.parent / "away"
    path.rename(away)
    HIDE[how](path, away)
    found = deep(store)
    more = found.findings.counts - usual.findings.counts
    assert more.keys() <= {"ST-IO", "ST-UNCHECKED"}
    assert (more["ST-IO"], found.loss.messages, found.loss.entries, found.complete) == (1, {}, 0, False)
    for stores in ((store, whole), (whole, store)):
        compared = compare_stores((open_store([str(stores[0])]), open_store([str(stores[1])])))
        assert compared.unread
        assert not any(compared.differences.counts.values())
    path.unlink()
    away.rename(path)


@pytest.mark.parametrize("how", HIDE)
def test_every_part_of_a_store_can_be_hidden_without_being_missed(how: str, tmp_path: Path) -> None:
    whole, store = small(tmp_path / "whole"), small(tmp_path / "store")
    usual = deep(whole)
    assert not usual.findings.severities["error"]
    for path in sorted(store.rglob("*")):
        check_hidden(store, whole, path, how, usual)


@pytest.mark.parametrize(("family", "name"), REAL)
def test_parts_that_only_some_brokers_write_can_be_hidden(family: oracle.Family, name: str, tmp_path: Path) -> None:
    store, whole = oracle.copy(family, name, tmp_path), oracle.store(family, name)
    usual = deep(whole)
    for pattern in REAL[family, name]:
        check_hidden(store, whole, min(store.glob(pattern)), "link", usual)


def test_an_unreadable_folder_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, scandir = small(tmp_path / "store"), os.scandir

    def refuse(path: str) -> object:
        if str(path).endswith("commitlog"):
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    found = deep(store)
    assert [row.message for row in found.findings.rows if row.severity == "error"] == ["not read: Permission denied"]
    assert "INCOMPLETE" in found.verdict
    assert not found.loss


def test_a_log_elsewhere_is_read_when_it_is_named(tmp_path: Path, run: Run) -> None:
    store, disk = small(tmp_path / "store"), tmp_path / "disk 2"
    (store / "commitlog").rename(disk)
    (store / "commitlog").symlink_to(disk)
    status, screen, _ = run("verify", store)
    assert status == 4
    assert f"give {disk} as a second path" in " ".join(screen.split())
    assert "lost" not in screen
    screen = run("verify", store, disk, "--level", "deep")[1]
    assert "VERDICT      WHOLE" in screen and "all bytes read" in screen


def test_a_segment_that_is_a_link_to_another_one_is_told(tmp_path: Path) -> None:
    store = small(tmp_path / "store")
    first, second, *_ = sorted((store / "commitlog").iterdir())
    second.unlink()
    second.symlink_to(first.name)
    found = deep(store)
    (row,) = (row for row in found.findings.rows if row.code == "ST-IO")
    assert row.message.startswith(f"commitlog/{second.name}: a link to {first}: not followed")
    assert {row.code for row in found.findings.rows if row.severity == "error"} == {"ST-IO"}


def test_a_link_to_what_is_listed_elsewhere_is_told(tmp_path: Path) -> None:
    store = small(tmp_path / "store")
    (store / "consumequeue" / "copy").symlink_to("orders")
    assert {oddity.kind for oddity in open_store([str(store)]).oddities} == {"link"}
