"""Real brokers judge what consumers get of the kept stores whose right answer is about messages.

Each store is started as it is, or after the command that mends it, and drained. The numbers are those of the broker and
of its client; what `broker.drain` foresees has to be the same.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from rmqinspect.broker.client import DAMAGED, OTHER_RECORD
from rmqinspect.broker.consumer_queue import open_queue
from rmqinspect.forecast.versions import ForecastRequest, forecast
from rmqinspect.store.discover import open_store
from rmqinspect.topics import LMQ_PREFIX, is_system_topic
from tests.support import command
from tests.support.consumer_judge import (
    Counted,
    Place,
    count_what_consumers_get,
    doubtful_units,
    foretold,
    opened,
    settings_of,
    sound_places,
    troubles_of,
)
from tests.support.outcome_stores import copy_of_case
from tests.support.real_brokers import RealBrokers

pytestmark = pytest.mark.broker

run = command.runner()

MOVED = "moved"  # files that are in the way, as advised

NONE: Mapping[str, int] = {}
ALL_RIGHT = Counted(NONE, NONE, NONE, NONE, NONE, NONE)


class Case(NamedTuple):
    """A store, who starts it, after what, and what comes of it."""

    name: str
    release: str
    before: str  # a command of this tool that makes a new store, or what its advice is, or nothing
    counted: Counted


_BEHIND = {"billing": 578, "books": 93, "mailer": 34, "shipping": 135}
_JUMPED = {"orders": 21, "shipments": 23}
_GONE = {"CourierLog": 177, "FleetEvents": 106, "OrderGone": 10}
_AHEAD = {"g_all_1": 106, "g_half_1": 82, "g_sql_1": 177, "g_tag_1": 106}
# At the places of lost messages salvage lets their neighbours come, so that the offsets of groups stay right.
_KEPT = {
    "%DLQ%shipping": 4,
    "%RETRY%shipping": 20,
    "audit": 74,
    "jobs": 67,
    "orders": 580,
    "reminders": 52,
    "shipments": 121,
    "tx-orders": 93,
}
_KEPT_S12B = {
    "%RETRY%shipping": 45,
    "audit": 125,
    "jobs": 129,
    "orders": 1089,
    "reminders": 147,
    "shipments": 291,
    "tx-orders": 74,
}

CASES = [
    # A page of zeros in the middle of the log.
    Case("s01", "5.3.3", "", ALL_RIGHT._replace(wrong={"orders": 2}, jumped=_JUMPED)),
    Case("s01", "4.9.7", "", ALL_RIGHT._replace(wrong={"orders": 11, "shipments": 28}, jumped=_JUMPED)),
    # The newest two segments are gone: groups stand behind the end of their queues, but after a salvage.
    Case("s02", "4.9.7", "", ALL_RIGHT._replace(skipped=_BEHIND)),
    Case("s02", "4.9.7", "salvage", ALL_RIGHT._replace(again=_KEPT)),
    # A consume queue of yesterday: rebuilding before the start gives all.
    Case("s03", "5.3.3", "", ALL_RIGHT._replace(unreachable={"orders": 3041}, skipped={"billing": 2632})),
    Case("s03", "5.3.3", "rebuild", ALL_RIGHT),
    # Topics that topics.json does not name.
    Case("topics-gone", "5.3.3", "", ALL_RIGHT._replace(unreachable=_GONE, skipped=_AHEAD)),
    Case("s02", "4.9.7", "rebuild --set-offsets", ALL_RIGHT),
    # A file of zeros that begins where another one does.
    Case("multipath-dup", "4.9.7", MOVED, ALL_RIGHT._replace(unreachable={"InvoiceGone": 10})),
    # Queues in files, read by a broker that keeps them in RocksDB. The record at the log's first byte is beyond reach.
    Case("files-to-rocksdb", "5.3.3", "", ALL_RIGHT._replace(unreachable={"LedgerOld": 1, "QuoteBcq": 9})),
]
MORE = [
    Case("files-to-rocksdb", "5.3.3", "salvage", ALL_RIGHT._replace(again={"QuoteBcq": 13})),
    # A middle segment that was cut at a record's border.
    Case("s12b", "5.3.3", "salvage", ALL_RIGHT._replace(again=_KEPT_S12B)),
    Case("multipath", "4.9.7", "", ALL_RIGHT._replace(unreachable={"InvoiceGone": 10})),
    # An offset of a light queue that was given out twice.
    Case("lmq-duplicate", "5.1.4", "", ALL_RIGHT._replace(unreachable={"PaymentGone": 10})),
    Case("s01", "5.5.0", "", ALL_RIGHT._replace(wrong={"orders": 2}, jumped=_JUMPED)),
    Case("s02", "5.3.3", "", ALL_RIGHT._replace(skipped=_BEHIND)),
    Case("s03", "5.5.0", "", ALL_RIGHT._replace(unreachable={"orders": 4269}, skipped={"billing": 3860})),
    Case("s08", "5.3.3", "", ALL_RIGHT),
    Case("topics-gone", "5.3.3", "rebuild", ALL_RIGHT),
    # A topic that was deleted: its records are in no queue.
    Case("read-queues", "5.3.3", "", ALL_RIGHT._replace(unreachable={"OrderGone": 10})),
]


@pytest.mark.parametrize(
    "case",
    [*CASES, *(pytest.param(case, marks=pytest.mark.all_cases) for case in MORE)],
    ids=lambda case: "-".join(case[:3]),
)
def test_consumers_get(case: Case, tmp_path: Path, real_brokers: RealBrokers, run: command.Run) -> None:
    root = copy_of_case(case.name, tmp_path / "case")
    settings: Mapping[str, str] = settings_of(root)
    sound = sound_places(opened(root, settings))
    if case.before == MOVED:
        move_away(root, case.release, settings)
    elif case.before:
        root, settings = mended(run, case, root, settings)
    told, start = foreseen(root, case.release, sound), foretold(root, case.release, settings)
    counted = count_what_consumers_get(real_brokers, case.release, root, sound, settings)
    assert counted == case.counted
    if settings.get("storeType") != "defaultRocksDB":  # there no file has units to drain
        assert (counted.wrong, counted.jumped, counted.again) == told[:3]
    others = +(Counter(counted.wrong) - Counter(told[3]))
    assert counted._replace(wrong=others, again={}) == start


@pytest.mark.all_cases
def test_offsets_that_were_given_out_twice(tmp_path: Path, real_brokers: RealBrokers, run: command.Run) -> None:
    """A start with a queue of yesterday, and three messages sent to each: salvage keeps the earlier ones in queues."""
    root = copy_of_case("s03", tmp_path / "case")
    settings: Mapping[str, str] = settings_of(root)
    put = [("orders", queue_id) for queue_id in range(4) for _ in range(3)]
    answer = real_brokers.ask("5.3.3", "open", root, settings, serve=True, put=put, end=True)
    later = {place for status, place, _ in answer["put"] if status == "PUT_OK"}
    sound = sound_places(opened(root, settings))
    assert len(later) == 12 and later <= {place.physical_offset for place in sound}

    status, _, told = run("rebuild", str(root), "-o", str(tmp_path / "rebuilt"), "--broker-version", "5.3.3")
    assert status == 3
    assert "12 records of orders queue 0" in told and "a broker gave them out again" in told
    new, own = mended(run, Case("s03", "5.3.3", "salvage", ALL_RIGHT), root, settings)
    kept = {place: number for place, number in sound_places(opened(new, own)).items() if place in sound}
    assert {place.physical_offset for place in sound.keys() - kept.keys()} == later
    assert count_what_consumers_get(real_brokers, "5.3.3", new, kept, own) == ALL_RIGHT


def move_away(root: Path, release: str, settings: Mapping[str, str]) -> None:
    """Move away what the best way to start the store begins with."""
    best = forecast(opened(root, settings), ForecastRequest(release, instead=True)).instead[0]
    assert best.is_better and best.moved
    for name in best.moved:
        (root / name).unlink()


def mended(run: command.Run, case: Case, root: Path, settings: Mapping[str, str]) -> tuple[Path, Mapping[str, str]]:
    """Return the new store that a command makes, and its settings."""
    new, conf = root.parent / "new", root.parent / "own.conf"
    own = {name: value for name, value in settings.items() if not name.startswith("storePath")}
    conf.write_text("".join(f"{name}={value}\n" for name, value in own.items()))
    verb, *options = case.before.split()
    status, out, err = run(
        verb, str(root), "-o", str(new), "--broker-version", case.release, "--config", str(conf), *options
    )
    assert new.is_dir(), (status, out, err)
    return new, own


def foreseen(root: Path, release: str, sound: Collection[Place]) -> tuple[Mapping[str, int], ...]:
    """Return by topic what draining gives that is wrong, what it leaves out, gives again, and gives damaged."""
    store = open_store([str(root)])
    wrong, jumped, again, damaged = (Counter[str]() for _ in range(4))
    for topic, queue_id in sorted({(file.topic, file.queue_id) for file in store.queue_files}):
        is_users = not is_system_topic(topic) and not topic.startswith(LMQ_PREFIX)
        queue = None if not is_users else open_queue(store, topic, queue_id)
        if queue is None:
            continue
        with queue:
            for trouble in troubles_of(store, queue, release, doubtful_units(queue, release, sound)):
                others = sum(one.kind == OTHER_RECORD for one in trouble.wrong)
                wrong[topic] += len(trouble.wrong) - others
                again[topic] += others
                damaged[topic] += sum(one.kind == DAMAGED for one in trouble.wrong)
                jumped[topic] += len(trouble.jumped)
    return +wrong, +jumped, +again, +damaged
