"""What a forecast says that rebuild and salvage give, against what they make of recorded stores."""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rmqinspect.broker.groups import is_system_group
from rmqinspect.config.json_files import read_consumer_offsets
from rmqinspect.errors import DamageFound
from rmqinspect.forecast.outcome import REBUILD, SALVAGE, Verdict
from rmqinspect.forecast.versions import ForecastRequest, forecast
from rmqinspect.rescue.job import RebuildJob, RebuildRequest
from rmqinspect.rescue.new_store import NewStore
from rmqinspect.store.discover import open_store
from tests.rescue.test_salvage import salvage
from tests.support import oracle
from tests.support.outcome_stores import outcome_conf, outcome_store
from tests.support.sampling import rare


class Case(NamedTuple):
    """A store, and the release that is to start it."""

    name: str
    release: str
    has_conf: bool = False


CASES: list[Any] = [
    Case("files-to-rocksdb", "5.3.3", has_conf=True),
    Case("first_rec_last-4.7.1-h", "4.7.1"),
    rare(Case("s01", "5.3.3")),
    rare(Case("s02", "4.9.7")),
    rare(Case("s03", "5.3.3")),
    rare(Case("s12b", "5.3.3")),
    rare(Case("topics-gone", "5.3.3")),
    rare(Case("lmq-on", "4.9.7", has_conf=True)),
    rare(Case("multipath-dup", "4.9.7", has_conf=True)),
    rare(Case("cq_last_file_zeroed-4.2.0-c", "4.2.0")),
    rare(Case("cq_queue_lost-5.5.0-h", "5.5.0")),
    rare(Case("cq_lost-5.4.0-L-commitLogRecoverMaxNum", "5.4.0")),
    rare(Case("none-5.3.3-h-to-4.9.7", "4.9.7")),
]


@contextmanager
def given(case: Case, folder: Path) -> Iterator[tuple[Path, str | None]]:
    """Give a store, and its broker.conf."""
    if "-5." not in case.name and "-4." not in case.name:
        yield outcome_store(case.name), str(outcome_conf(case.name)) if case.has_conf else None
        return
    conf = folder / "broker.conf"
    settings = oracle.case("crash", case.name)["settings"]
    conf.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    yield oracle.store("crash", case.name), str(conf)


@pytest.mark.parametrize("case", CASES)
def test_a_new_store_costs_what_the_forecast_says(case: Case, tmp_path: Path) -> None:
    with given(case, tmp_path) as (root, conf):
        found = forecast(open_store([str(root)], config=conf), ForecastRequest(case.release, instead=True))
        assert found.worst.verdict is not Verdict.SAFE
        told = {way.tool: way.outcome for way in found.instead if way.tool}
        safe = {tool for tool, outcome in told.items() if outcome.verdict is Verdict.SAFE}

        assert (REBUILD in safe) is rebuilds(case.release, root, conf, tmp_path / "rebuilt")
        made, _ = salvage(tmp_path / "salvaged", root, commit=False, release=case.release, config=conf)
        is_readable = not any("cannot read" in one.why for one in made.receipt.aside)
        assert (SALVAGE in safe) is (made.holds and is_readable)
        if SALVAGE in safe:
            lost = {(one.topic, one.queue_id): one.lost for one in made.receipt.lost_offsets}
            groups = {group.group: group.again for group in told[SALVAGE].groups}
            assert groups == come_again(root, lost)


def rebuilds(release: str, root: Path, conf: str | None, target: Path) -> bool:
    """Return whether rebuild makes a store."""
    request = RebuildRequest(str(target), release, config=conf)
    try:
        with NewStore(str(target), [str(root)]) as new:
            store = open_store([str(root)], config=conf)
            made = RebuildJob(store, request, new, lambda size: None, lambda note: None).go()
    except DamageFound:
        return False
    return made.proof is not None and made.holds


def come_again(root: Path, lost: Mapping[tuple[str, int], list[int]]) -> dict[str, int]:
    """Return how many neighbours of lost messages each group of users gets, by its offsets."""
    numbers = Counter[str]()
    for one in read_consumer_offsets(open_store([str(root)]))[0]:
        if not is_system_group(one.group):
            numbers[one.group] += sum(offset >= one.offset for offset in lost.get((one.topic, one.queue_id), ()))
    return dict(+numbers)
