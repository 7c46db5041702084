"""What is read for the rows of a table, and how they are written: all that stays the same meanwhile."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, partial
from typing import TYPE_CHECKING

import click

from rmqinspect.cli.options import (
    BodyOptions,
    JobOptions,
    LookOptions,
    OutputOptions,
    RedactOptions,
    RocksdbOptions,
    SourceOptions,
    TalkOptions,
    VerdictOptions,
    refuse_equal_names,
)
from rmqinspect.cli.parameters import option
from rmqinspect.cli.selection import TimeOptions, with_times
from rmqinspect.errors import Unreadable
from rmqinspect.text import escape

if TYPE_CHECKING:
    import pyarrow as pa

    from rmqinspect.find.plan import LookUp
    from rmqinspect.store.model import Store
    from rmqinspect.tables.filters import Selection
    from rmqinspect.tables.table import Table


@dataclass(frozen=True, kw_only=True)
class RowsOptions(
    OutputOptions,
    RedactOptions,
    LookOptions,
    SourceOptions,
    RocksdbOptions,
    JobOptions,
    VerdictOptions,
    TalkOptions,
):
    """How the rows of a table are read and written."""

    limit: int | None = option("-n", "--limit", type=click.IntRange(min=0), metavar="N", help="At most N rows.")
    columns: str | None = option("--columns", metavar="A,B|all", help="Columns, in this order.")


@dataclass(frozen=True, kw_only=True)
class MessageOptions(BodyOptions):
    """How messages are read and written."""

    body: str | None = option(
        "--body",
        type=click.Choice(("full", "preview", "none")),
        help="How much of each body. Default: preview in the table format, else full.",
    )
    scan: bool = option(
        "--scan",
        is_flag=True,
        help="Read the whole log for a look-up, too: by id, key, queue offset or time.",
    )


@dataclass(frozen=True, slots=True)
class StoreRead:
    """What is read of one store."""

    store: "Store"
    selection: "Selection"
    look_up: "LookUp | None"  # what of the log the filters ask for; None: all of the table
    remarks: tuple[str, ...] = ()  # on the files that a filter is read from
    unread: tuple[str, ...] = ()  # what a filter needs and could not be read

    def size(self, table: "Table", *, scan: bool) -> int:
        """Return the bytes to read."""
        from rmqinspect.tables.sources import bytes_to_read

        if self.look_up is None or scan:
            return bytes_to_read(self.store, table, self.selection.offsets)
        return self.look_up.size


@dataclass(frozen=True, slots=True)
class RowsPlan:
    reads: list[StoreRead]
    table: "Table"
    shown_schema: "pa.Schema"
    selection: "Selection"  # without times: `last` is another time in each store
    arguments: RowsOptions
    body: str  # full, preview, none
    cut: bool  # bodies are cut here; the table format cuts, and marks it, by itself
    scan: bool  # read all for a look-up, too
    wanted: frozenset[str]  # columns that are shown or compared
    size: int  # bytes to read
    filters: bool  # whether rows are left out

    def shape(self, batch: "pa.RecordBatch", store: "Store") -> "pa.RecordBatch":
        """Return selected rows as they are written: columns, redaction, bodies."""
        import pyarrow as pa

        from rmqinspect.output import cut_bodies

        shown = self.shown_schema.names
        if "store" in shown and "store" not in batch.schema.names:
            names = pa.repeat(store.name, batch.num_rows)
            batch = batch.add_column(0, _with_store(batch.schema).field(0), names)
        batch = batch.select(shown)
        if self.body == "none" and "body" in shown:
            position = shown.index("body")
            empty = pa.nulls(batch.num_rows, batch.schema.field(position).type)
            batch = batch.set_column(position, batch.schema.field(position), empty)
        elif self.cut:
            batch = cut_bodies(batch)
        return self.arguments.redact.mask(batch) if self.arguments.redact else batch


def make_plan(
    stores: "Sequence[Store]", table: "Table", arguments: RowsOptions, selection: "Selection", format_: str
) -> RowsPlan:
    """Return the plan.

    :raises click.UsageError: an option does not fit the table or the stores.
    """
    schema = _with_store(table.schema) if len(stores) > 1 else table.schema
    shown = _choose_columns(arguments.columns, table, schema, format_)
    # The times are only checked here; each store resolves `last` by itself.
    selection = _with_times(selection, arguments, lambda: 0)
    if missing := selection.missing_columns(schema):
        raise click.UsageError(f"The table {table.name} has no column for {missing[0]}.")
    refuse_equal_names([store.name for store in stores])

    asked = arguments.body if isinstance(arguments, MessageOptions) else None
    body = asked or ("preview" if format_ == "table" else "full")
    scan = isinstance(arguments, MessageOptions) and arguments.scan
    compared = selection.columns(table.schema)
    wanted = {*shown, *compared, "status", "kind"} & set(table.schema.names)
    if body == "none" and "body" not in compared:
        wanted.discard("body")
    now = datetime.now(UTC)
    reads = [_plan_read(store, table, selection, arguments, now) for store in stores]
    return RowsPlan(
        reads,
        table,
        schema.empty_table().select(shown).schema,
        selection,
        arguments,
        body,
        cut=body == "preview" and format_ != "table",
        scan=scan,
        wanted=frozenset(wanted),
        size=sum(read.size(table, scan=scan) for read in reads),
        filters=bool(compared),
    )


def _plan_read(
    store: "Store", table: "Table", selection: "Selection", arguments: RowsOptions, now: datetime
) -> StoreRead:
    from rmqinspect.find.keys import known_topics
    from rmqinspect.find.plan import plan_look_up
    from rmqinspect.find.unconsumed import with_unconsumed
    from rmqinspect.tables.sources import last_store_time

    look_up = None
    selection, of_group = with_unconsumed(store, selection)
    try:
        selection = _with_times(selection, arguments, cache(partial(last_store_time, store)), now)
        look_up = plan_look_up(store, selection) if table.name == "messages" else None
        if look_up is not None and selection.topics:
            # Records of a topic may lie elsewhere than where a look-up reads.
            selection.topics_seen.update(known_topics(store))
    except Unreadable:
        pass  # the scan meets it again, and reports it
    if of_group is None:
        return StoreRead(store, selection, look_up)
    return StoreRead(store, selection, look_up, of_group.remarks, of_group.unread)


def _with_times(
    selection: "Selection", arguments: RowsOptions, last: Callable[[], int | None], now: datetime | None = None
) -> "Selection":
    return with_times(selection, arguments, last, now) if isinstance(arguments, TimeOptions) else selection


def _with_store(schema: "pa.Schema") -> "pa.Schema":
    import pyarrow as pa

    return schema.insert(0, pa.field("store", pa.string(), metadata={"doc": "which of the stores given"}))


def _choose_columns(text: str | None, table: "Table", schema: "pa.Schema", format_: str) -> list[str]:
    names: list[str] = schema.names
    if text == "all" or (text is None and format_ != "table"):
        return names
    if text is None:
        return [name for name in names if name not in table.schema.names] + list(table.brief)
    chosen = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in chosen if name not in names]
    if unknown or not chosen:
        problem = f"no column {escape(unknown[0])!r} in {table.name}" if unknown else "no column given"
        raise click.BadParameter(f"{problem}; there are: {', '.join(names)}", param_hint="--columns")
    return list(dict.fromkeys(chosen))
