"""Large stores of many, or on object storage: a task plans each, tasks write its parts, and a task finishes it.

    driver        a name and a path of each store
    a task        opens, surveys and plans one store         -> its parts, or why it cannot be read
    driver        tells what that takes, refuses what cannot be
    tasks         write the parts, as of any store
    driver        adds the parts up
    a task        opens the store again, makes the tables that follow from the sum -> the entry of the manifest

Invariants:
- The files and the manifest's entry are those of a store that the driver plans: the same code writes both.
- Of the store itself the driver holds its log, which the parts are made of, and nothing of its queues.
- A task that finishes a store may run twice, as any part.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from msgspec import Struct
from msgspec.structs import replace

from rmqinspect.errors import NotAStore, Unreachable, Unreadable
from rmqinspect.export.manifest import SkippedStore
from rmqinspect.export.part import ExportSpec
from rmqinspect.export.plan import (
    ByTask,
    HowToRead,
    StorePlan,
    estimate_size,
    expect_few_parts,
    not_read,
    plan_store,
    survey_store,
)
from rmqinspect.export.shared import open_in_task, remarks_on
from rmqinspect.export.store_result import StoreResult
from rmqinspect.store.model import Store
from rmqinspect.store.reader import lock_holder


class StoreToPlan(Struct, frozen=True):
    """A store that only its task opens."""

    name: str
    path: str  # as given
    how: HowToRead


class PlannedStore(Struct):
    """What a task says of a store: its plan, or why there is none."""

    work: StoreToPlan
    plan: StorePlan | None = None
    skipped: SkippedStore | None = None


class StoreToFinish(Struct, frozen=True):
    """A store whose parts are written: the sum of their results."""

    result: StoreResult
    how: HowToRead


def plan_in_task(work: StoreToPlan, spec: ExportSpec) -> PlannedStore:
    """Open, survey and plan a store.

    :raises NotAStore, Unreadable, Unreachable: it cannot be read, and such stores are not left out.
    :raises BadOption: it would be cut into too many parts.
    """
    how = work.how
    try:
        with open_in_task(work.name, work.path, how) as (listed, store):
            expect_few_parts([store], spec.request.file_size)
            plan = plan_store(store, survey_store(store), spec.request, unpacking=how.unpacking)
            plan.paths = (work.path,)
            told = remarks_on(listed, store, spec, verbose=how.verbose)
            plan.by_task = ByTask(
                how,
                tuple(told),
                lock_holder(store),
                tuple(not_read(plan, spec.request.tables)),
                estimate_size([plan]),
                len({file.topic for file in store.queue_files}),
                len({file.queue_id for file in store.queue_files}),
            )
            plan.store = _only_log(store)
            return PlannedStore(work, plan)
    except (NotAStore, Unreadable, Unreachable) as error:
        if not how.skips:
            raise
        return PlannedStore(work, skipped=SkippedStore(work.name, (work.path,), str(error)))


@contextmanager
def whole_again(work: StoreToFinish) -> Iterator[StoreResult]:
    """Give the sum of a store's parts with the store itself, opened in this process, until the block ends.

    :raises NotAStore, Unreadable, Unreachable: it can no longer be read.
    """
    result = work.result
    (path,) = result.plan.paths
    with open_in_task(result.name, path, work.how) as (_, store):
        result.plan.store = store
        result.usage.store = store
        yield result


def _only_log(store: Store) -> Store:
    """Return a store that is small to send. Its side parts may have a whole one: what was unpacked of it is gone."""
    return replace(
        store,
        files=(),
        queue_files=(),
        index_files=(),
        config_files={},
        oddities=(),
        queue_folders=frozenset(),
        unpacked_config={},
        remarks=(),
    )
