"""Exports without the command line: write, read back, and the rows that are expected."""

import secrets
from collections.abc import Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq
from msgspec.structs import replace

from rmqinspect.export.job import Engine, ExportResult, local_engine, run_export
from rmqinspect.export.manifest import Manifest
from rmqinspect.export.part import ExportSpec, schema_of
from rmqinspect.export.plan import StorePlan, plan_store, survey_store
from rmqinspect.export.request import ExportRequest, safe_name
from rmqinspect.export.target import FRESH, INCREMENTAL, Target
from rmqinspect.rocksdb.unpack import unpacked
from rmqinspect.store.discover import open_store
from rmqinspect.store.model import Store
from rmqinspect.tables import TABLES
from rmqinspect.tables.request import Request
from rmqinspect.tables.table import STORE
from tests.support import oracle


@cache
def case_store(family: oracle.Family, name: str) -> Store:
    """Open the store of a case under a name that no other case has."""
    return replace(open_store([str(oracle.store(family, name))]), name=f"{family}.{name}")


def planned(
    store: Store, request: ExportRequest, earlier: Manifest | None = None, *, replace_changed: bool = False
) -> StorePlan:
    """Plan one store as the command does."""
    return plan_store(store, survey_store(store), request, earlier, replace_changed=replace_changed)


def export(
    folder: Path,
    stores: Sequence[Store],
    request: ExportRequest,
    engine: Engine | None = None,
    mode: str = FRESH,
    *,
    replace_changed: bool = False,
) -> ExportResult:
    """Export stores as the command does, and commit."""
    target = Target(str(folder), mode, [path for store in stores for path in store.paths])
    spec = ExportSpec(target.folder.path, secrets.token_hex(4), request)
    with ExitStack() as copies:
        whole = [copies.enter_context(unpacked(store)) for store in stores]
        plans = [planned(store, request, target.earlier, replace_changed=replace_changed) for store in whole]
        target.begin()
        outcome = run_export(plans, spec, engine or local_engine(1))
    target.commit(outcome.manifest, outcome.names)
    return outcome


def add(
    folder: Path, stores: Sequence[Store], request: ExportRequest, *, replace_changed: bool = False
) -> ExportResult:
    """Export incrementally."""
    return export(folder, stores, request, mode=INCREMENTAL, replace_changed=replace_changed)


def names(folder: Path) -> list[str]:
    """Return the relative names of all Parquet files of an export."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*.parquet"))


def exported(folder: Path, store: str, table: str, request: ExportRequest) -> pa.Table:
    """Return the rows of a table of a store, in the order of the names of its files."""
    schema = schema_of(table, request)
    files = sorted((folder / table).rglob(f"{safe_name(store)}-*.parquet"))
    whole = pa.concat_tables([schema.empty_table(), *map(pq.read_table, files)])
    # Another store's name may begin with this one's.
    return whole.filter(pa.compute.equal(whole.column("store"), store)).combine_chunks()


def expected(store: Store, table: str) -> pa.Table:
    """Return the rows that `decode` shows of a table, with the column `store` in front."""
    schema = TABLES[table].schema
    with unpacked(store, only=TABLES[table].databases) as whole:
        rows = pa.Table.from_batches(list(TABLES[table].rows(whole, Request(jobs=1))), schema)
    return rows.add_column(0, STORE, [pa.array([store.name] * rows.num_rows, pa.string())])
