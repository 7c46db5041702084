"""What runs an export: Spark, or threads of this process, with processes for small stores of many."""

import sys
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from rmqinspect.cli.terminal import Progress
from rmqinspect.fleet.run import Failed, Finished, Told, side_by_side
from rmqinspect.system.uri import is_remote

if TYPE_CHECKING:
    from rmqinspect.export.apart import StoreToPlan
    from rmqinspect.export.job import Engine, Work, WorkRead
    from rmqinspect.export.manifest import SkippedStore
    from rmqinspect.export.part import ExportSpec
    from rmqinspect.export.plan import StorePlan
    from rmqinspect.export.shared import StoresPart


@contextmanager
def open_engine(name: str, master: str | None, jobs: int, *, verbose: bool) -> "Iterator[Engine]":
    """Yield the engine of a name, until the block ends; `master` and `verbose` are about Spark, `jobs` about local."""
    if name == "spark":
        from rmqinspect.spark import spark_engine

        with spark_engine(master, verbose=verbose) as engine:
            yield engine
        return
    from rmqinspect.export.job import local_engine

    engine = local_engine(jobs)
    yield replace(engine, run=partial(_run, engine, jobs))


def plan_apart(
    stores: "Sequence[StoreToPlan]", spec: "ExportSpec", engine: "Engine", progress: Progress
) -> "tuple[list[StorePlan], list[SkippedStore]]":
    """Have tasks plan stores; return the plans, and what is left out.

    :raises NotAStore, Unreadable, Unreachable: one cannot be read, and such stores are not left out.
    """
    from rmqinspect.export.job import plan_by_tasks

    plans: list[StorePlan] = []
    skipped: list[SkippedStore] = []
    for planned in plan_by_tasks(stores, spec, engine):
        if planned.plan is not None:
            plans.append(planned.plan)
        elif planned.skipped is not None:
            skipped.append(planned.skipped)
            progress.complain(f"{planned.skipped.error}; skipped")
    return plans, skipped


def _run(engine: "Engine", jobs: int, parts: "Sequence[Work]", spec: "ExportSpec") -> "Generator[WorkRead, None, None]":
    """Run small stores, which come first, in processes: most of what is done with one is Python.

    What waits for object storage runs in threads, as all else: a connection does not survive a fork.
    """
    from rmqinspect.export.shared import StoresPart

    small = [part for part in parts if isinstance(part, StoresPart)]
    paths = [spec.target, *(store.path for part in small for store in part.stores)]
    apart = len(small) if jobs > 1 and not any(map(is_remote, paths)) else 0
    yield from _in_processes(small[:apart], spec, jobs)
    with closing(engine.run(parts[apart:], spec)) as reads:
        yield from reads


def _in_processes(parts: "Sequence[StoresPart]", spec: "ExportSpec", jobs: int) -> "Generator[WorkRead, None, None]":
    """Yield the results in the order of the parts."""
    from rmqinspect.export.job import run_part

    early: dict[int, WorkRead] = {}  # results of later parts
    number = 0
    with closing(side_by_side(partial(run_part, spec=spec), parts, jobs)) as events:
        for event in events:
            if isinstance(event, Told):
                print(event.line, file=sys.stderr)
            elif isinstance(event, Failed):
                raise (RuntimeError if event.cause is None else event.cause)(event.text)
            elif isinstance(event, Finished):
                early[event.number] = event.result
            while number in early:
                yield early.pop(number)
                number += 1
