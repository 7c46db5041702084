"""Large stores that tasks plan and finish: the files and the manifest of those that are planned here."""

import json
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rmqinspect.errors import BadOption, NotAStore
from rmqinspect.export.apart import StoreToPlan
from rmqinspect.export.job import Engine, Work, WorkRead, local_engine, plan_by_tasks, run_export, run_part
from rmqinspect.export.part import ExportSpec
from rmqinspect.export.plan import HowToRead, StorePlan
from rmqinspect.export.request import FINDINGS, ExportRequest
from rmqinspect.export.shared import notes_of
from rmqinspect.export.target import FRESH, Target
from rmqinspect.tables import TABLES
from rmqinspect.tables.filters import Selection
from tests.support import oracle
from tests.support.exporting import case_store as opened
from tests.support.exporting import export, names
from tests.support.sampling import sampled

WISH = ExportRequest((*TABLES, FINDINGS), file_size=1 << 17)
HOW = HowToRead(Selection())
BROKERS = ("main-5.3.3", "dledger-4.9.7", "rocksdb-5.3.3")
CASES = ("flip_body_third-4.7.1-c", "seg_missing_mid-4.9.7-c", "log_dir_lost-5.3.3-c", "torn_last-5.2.0-h")
STORES: tuple[tuple[oracle.Family, str], ...] = (
    *(("broker", name) for name in BROKERS),
    *(("crash", name) for name in CASES),
)


def sent(engine: Engine, log: list[Work]) -> Engine:
    """Return an engine that pickles what goes out and what comes back, as Spark does."""

    def run(parts: Sequence[Work], spec: ExportSpec) -> Any:
        for part in parts:
            log.append(part)
            answer: WorkRead = run_part(pickle.loads(pickle.dumps(part)), pickle.loads(pickle.dumps(spec)))
            yield pickle.loads(pickle.dumps(answer))

    return Engine(engine.name, engine.description, run)


def plans_of(works: Sequence[StoreToPlan], spec: ExportSpec, engine: Engine) -> list[StorePlan]:
    return [answer.plan for answer in plan_by_tasks(works, spec, engine) if answer.plan is not None]


@pytest.mark.parametrize(("family", "name"), sampled(STORES, 2))
def test_the_files_and_the_manifest_are_the_same(tmp_path: Path, family: oracle.Family, name: str) -> None:
    store, log = opened(family, name), list[Work]()
    expected = export(tmp_path / "here", [store], WISH)
    engine = sent(local_engine(1), log)
    spec = ExportSpec(str(tmp_path / "apart"), "0ab1", WISH)
    (plan,) = plans_of([StoreToPlan(store.name, store.paths[0], HOW)], spec, engine)
    assert not plan.store.queue_files
    target = Target(spec.target, FRESH, list(store.paths))
    target.begin()
    outcome = run_export([plan], spec, engine)
    target.commit(outcome.manifest, outcome.names)
    found, wanted = (json.loads(one.manifest.as_json()) | {"run": None} for one in (outcome, expected))
    assert found == wanted
    assert names(tmp_path / "apart") == names(tmp_path / "here")
    for file in names(tmp_path / "here"):
        assert (tmp_path / "apart" / file).read_bytes() == (tmp_path / "here" / file).read_bytes(), file
    assert [type(work).__name__ for work in log].count("StoreToFinish") == 1
    assert notes_of(plan.paths, plan.releases)["store_paths"] == store.paths[0]


def test_what_comes_back_of_a_store_says_nothing_of_its_queues(tmp_path: Path) -> None:
    """A plan of messages takes the driver some bytes a part."""
    store = opened("broker", "main-5.3.3")
    spec = ExportSpec(str(tmp_path / "lake"), "0ab1", ExportRequest(file_size=1 << 17))
    (plan,) = plans_of([StoreToPlan("S", store.paths[0], HOW)], spec, local_engine(1))
    assert len(store.queue_files) > 20
    assert len(pickle.dumps(plan)) < 4000 + 1000 * len(plan.parts)


def test_a_store_that_cannot_be_read_is_left_out_or_ends_it(tmp_path: Path) -> None:
    spec = ExportSpec(str(tmp_path / "lake"), "0ab1", WISH)
    with pytest.raises(NotAStore, match="no such file"):
        plans_of([StoreToPlan("gone", str(tmp_path / "gone"), HOW)], spec, local_engine(1))
    skipping = HowToRead(Selection(), skips=True)
    store = opened("broker", "main-5.3.3")
    works = [StoreToPlan("gone", str(tmp_path / "gone"), skipping), StoreToPlan("S", store.paths[0], skipping)]
    gone, there = plan_by_tasks(works, spec, local_engine(1))
    assert gone.plan is None and gone.skipped is not None and gone.skipped.name == "gone"
    assert there.plan is not None and there.skipped is None


def test_a_log_is_not_cut_into_crumbs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmqinspect.export.plan.MOST_PARTS", 2)
    store = opened("broker", "main-5.3.3")
    spec = ExportSpec(str(tmp_path / "lake"), "0ab1", WISH)
    with pytest.raises(BadOption, match="the limit is 2"):
        plans_of([StoreToPlan("S", store.paths[0], HOW)], spec, local_engine(1))
