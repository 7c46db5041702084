"""Real brokers judge what consumers get of the kept stores whose right answer is about messages.

Each store is started as it is, or after the command that mends it, and drained. The numbers are those of the broker and
of its client; what `broker.drain` foresees has to be the same.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from rmqinspect.broker.client import OTHER_RECORD
from rmqinspect.broker.consumer_queue import open_queue
from rmqinspect.store.discover import open_store
from rmqinspect.topics import is_system_topic
from tests.support import command
from tests.support.consumer_judge import (
    Counted,
    Place,
    count_what_consumers_get,
    doubtful_units,
    sizes_of,
    sound_places,
    troubles_of,
)
from tests.support.outcome_stores import copy_of_case
from tests.support.real_brokers import RealBrokers

pytestmark = pytest.mark.broker

run = command.runner()

NONE: Mapping[str, int] = {}
ALL_RIGHT = Counted(NONE, NONE, NONE, NONE, NONE, NONE)


class Case(NamedTuple):
    """A store, who starts it, after what, and what comes of it."""

    name: str
    release: str
    before: str  # a command of this tool that makes a new store, or nothing
    counted: Counted


_BEHIND = {"billing": 578, "books": 93, "mailer": 34, "shipping": 121}
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
]
MORE = [
    Case("s01", "5.5.0", "", ALL_RIGHT._replace(wrong={"orders": 2}, jumped=_JUMPED)),
    Case("s02", "4.9.7", "rebuild", ALL_RIGHT._replace(skipped=_BEHIND)),
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
    sound, settings = sound_places(root), sizes_of(root)
    if case.before:
        root = mended(run, case, root, settings)
    told = foreseen(root, case.release, sound)
    counted = count_what_consumers_get(real_brokers, case.release, root, sound, settings)
    assert counted == case.counted
    assert (counted.wrong, counted.jumped, counted.again) == told


def mended(run: command.Run, case: Case, root: Path, settings: Mapping[str, object]) -> Path:
    """Return the new store that a command makes."""
    new, conf = root.parent / "new", root.parent / "own.conf"
    conf.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    status, out, err = run(
        case.before, str(root), "-o", str(new), "--broker-version", case.release, "--config", str(conf)
    )
    assert new.is_dir(), (status, out, err)
    return new


def foreseen(root: Path, release: str, sound: Collection[Place]) -> tuple[Mapping[str, int], ...]:
    """Return what draining gives that is wrong, what it leaves out, and what comes again, by topic."""
    store = open_store([str(root)])
    wrong, jumped, again = Counter[str](), Counter[str](), Counter[str]()
    for topic, queue_id in sorted({(file.topic, file.queue_id) for file in store.queue_files}):
        queue = None if is_system_topic(topic) else open_queue(store, topic, queue_id)
        if queue is None:
            continue
        with queue:
            for trouble in troubles_of(store, queue, release, doubtful_units(queue, release, sound)):
                others = sum(one.kind == OTHER_RECORD for one in trouble.wrong)
                wrong[topic] += len(trouble.wrong) - others
                again[topic] += others
                jumped[topic] += len(trouble.jumped)
    return +wrong, +jumped, +again
