"""Forecast and real stores agree on starts of stores whose queues are in RocksDB."""

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.broker.damages import flip_bit, leave_abort
from tests.broker.situations import SIZES, SPEC
from tests.support import command
from tests.support.real_brokers import RealBrokers
from tests.support.rocksdb import needs_rocksdict
from tests.support.sampling import sampled

pytestmark = [pytest.mark.broker, needs_rocksdict]

run = command.runner("forecast")

SETTINGS = {**SIZES, "storeType": "defaultRocksDB"}
TOPICS = {"TopicA": 4, "orders": 2, "SCHEDULE_TOPIC_XXXX": 18}
BEHIND = {**SPEC, "stop_dispatch": 20}  # the last records have no unit


def _cut_early(root: Path) -> None:
    """Let a log of one segment end in its 40th record."""
    for segment in sorted((root / "commitlog").iterdir())[1:]:
        segment.unlink()
    flip_bit(root, 0, 40, 100, 1)


def _kill_and_cut(root: Path) -> None:
    leave_abort(root, "")
    _cut_early(root)


CASES: Mapping[str, tuple[Mapping[str, object], Callable[[Path], None]]] = {
    "cut": (SPEC, _cut_early),  # the queues go back
    "cut_unclean": (SPEC, _kill_and_cut),  # dispatch takes them back
    "behind": (BEHIND, lambda root: None),
}


@pytest.mark.parametrize(
    ("release", "name"), sampled([("5.3.3", "cut"), ("5.4.0", "behind"), ("5.5.0", "cut_unclean")], 3)
)
def test_queues_after_a_start(
    release: str, name: str, tmp_path: Path, real_brokers: RealBrokers, run: command.Run
) -> None:
    spec, damage = CASES[name]
    store, conf = tmp_path / "store", tmp_path / "broker.conf"
    real_brokers.write_store(release, store, spec, SETTINGS)
    copy = shutil.copytree(store, tmp_path / "copy")  # the store that wrote may still hold its lock
    damage(copy)
    conf.write_text("".join(f"{key}={value}\n" for key, value in SETTINGS.items()))
    told = json.loads(run(copy, "--config", conf, "--broker-version", release, "-f", "json")[1])
    serves = real_brokers.open_store(release, copy, SETTINGS, TOPICS).serves
    assert serves is not None
    assert (told["min_offset"], told["end_offset"]) == (serves.min_offset, serves.end_offset)
    ours = {
        (row["topic"], row["queue_id"]): (row["min_offset_after"], row["max_offset_after"]) for row in told["queues"]
    }
    theirs = {queue: tuple(bounds) for queue, bounds in serves.queues.items() if tuple(bounds) != (0, 0)}
    assert {queue: bounds for queue, bounds in ours.items() if bounds != (0, 0)} == theirs
    assert theirs
