"""The tables as views of DuckDB: a scan reads the columns and rows that the query needs, batch by batch.

    view -> DuckDB asks for a scan: columns, filter -> stores, one after the other -> rows -> filter -> batches

A view is a dataset to DuckDB, which calls `scanner`, and takes what it yields as a stream. DuckDB's threads pull it,
one at a time; a scan that nobody reads to its end is closed with its stream.

Invariants:
- A scan applies the whole filter: DuckDB does not apply it again.
- What is left out unread, no row of it passes the filter; `--scan` leaves nothing out.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset
from msgspec import Struct, field
from msgspec.structs import replace

from rmqinspect.codec.arrays import Span
from rmqinspect.errors import Unreadable
from rmqinspect.find.plan import LookUp, plan_look_up, planned_rows
from rmqinspect.sql.pushed import Pushed, keys_in, pushed
from rmqinspect.sql.statement import MESSAGES
from rmqinspect.store.model import Store
from rmqinspect.tables import TABLES
from rmqinspect.tables.filters import Selection
from rmqinspect.tables.redact import Redaction
from rmqinspect.tables.request import Request
from rmqinspect.tables.sources import bytes_to_read, range_to_read
from rmqinspect.tables.table import ALL_DATABASES, Source, Table

FINDINGS = "findings"
NAMES = (*TABLES, FINDINGS)
"""The views."""

_STORE = pa.field("store", pa.string(), metadata={"doc": "which of the stores given"})
# Of `messages`, whatever is asked for: a wrong CRC is told, and costs nothing more than the walk.
_ALWAYS = frozenset({"body_crc_ok"})


def _findings(store: Store, request: Request) -> Iterator[pa.RecordBatch]:
    from rmqinspect.verify.result import VerifyOptions, finding_batches
    from rmqinspect.verify.run import verify_and_forecast

    result = verify_and_forecast(store, VerifyOptions(jobs=request.jobs))
    for message in result.unread:
        request.tell_unread(Unreadable(message))
    yield from finding_batches(result)


def table_of(name: str) -> Table:
    """Return the table of a view."""
    if name == FINDINGS:
        from rmqinspect.verify.finding_rows import SCHEMA

        return Table(FINDINGS, SCHEMA, (), _findings, tuple(Source), databases=ALL_DATABASES)
    return TABLES[name]


class Evidence(Protocol):
    """The stores that are read, and who listens to what is met on the way."""

    @property
    def names(self) -> Sequence[str]:
        """The names of the stores, in the order in which they are read."""

    def opened(self, name: str, table: Table) -> Store:
        """Return a store with what its databases hold; it stays open to the end of the query."""

    def request(self, store: Store, spans: Sequence[Span] | None) -> Request:
        """Return a request for rows that tells what is met, of the log in some spans; None: anywhere."""

    def unreadable_told(self) -> AbstractContextManager[None]:
        """End the block at what cannot be read, and tell it."""

    def told(self, table: Table, size: int, look_up: LookUp | None, store: Store) -> None:
        """Take how much of a table of a store is about to be read, and by which way."""

    def met(self, table: Table, rows: pa.RecordBatch) -> None:
        """Take rows that pass the filter, with all columns that were read."""


class Reading(Struct, frozen=True):
    """How the tables are read."""

    evidence: Evidence
    redaction: Redaction | None = None
    raw_body: bool = False
    max_body: int = 64 << 20
    scan: bool = False  # read all, whatever the query asks for
    keys: tuple[str, ...] = ()  # of which all messages have one
    failures: list[BaseException] = field(default_factory=list)  # that ended a scan


class View(pyarrow.dataset.Dataset):  # type: ignore[misc] # pyarrow has no types
    """A table of all stores, `store` first. Only DuckDB knows it: nothing of a dataset is here but schema and scan."""

    def __init__(self, name: str, reading: Reading) -> None:
        self._table, self._reading = table_of(name), reading
        self._schema = self._table.schema.insert(0, _STORE)

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return self._schema

    def scanner(self, columns: Sequence[str] | None = None, filter: pc.Expression | None = None, **_: Any) -> "_Scan":
        """Return a scan for some columns of the rows that pass a filter."""
        names = self._schema.names if columns is None else list(columns)
        schema = pa.schema([pa.field(name, self._schema.field(name).type) for name in names])
        return _Scan(schema, lambda: self._batches(schema, filter))

    def _batches(self, schema: pa.Schema, expression: pc.Expression | None) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._selected(schema, expression)
        except GeneratorExit:
            raise
        except BaseException as error:
            self._reading.failures.append(error)  # DuckDB has a text of it only
            raise

    def _selected(self, schema: pa.Schema, expression: pc.Expression | None) -> Iterator[pa.RecordBatch]:
        reading, table = self._reading, self._table
        asked = pushed(expression)
        needed = frozenset(self._schema.names if asked.columns is None else {*schema.names, *asked.columns})
        for name in reading.evidence.names:
            if asked.stores is not None and name not in asked.stores and not reading.scan:
                continue
            for batch in self._rows(reading.evidence.opened(name, table), asked, needed):
                rows = batch if reading.redaction is None else reading.redaction.mask(batch)
                if "store" in needed:
                    rows = rows.add_column(0, _STORE, pa.repeat(pa.scalar(name, pa.string()), rows.num_rows))
                for passed in _passing(rows, expression):
                    reading.evidence.met(table, passed)
                    yield pa.RecordBatch.from_arrays([passed.column(one) for one in schema.names], schema=schema)

    def _rows(self, store: Store, asked: Pushed, needed: frozenset[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one store, and maybe some that do not pass."""
        reading, table = self._reading, self._table
        selection, look_up = Selection(), None
        if table.name == MESSAGES and not reading.scan:
            selection = asked.selection(masked=reading.redaction is not None)
            selection = keys_in(selection, reading.keys if reading.redaction is None else ())
            look_up = _look_up(store, selection)
        offsets = range_to_read(store, selection.offsets)
        of_filters = selection.columns(table.schema) | (_ALWAYS if table.name == MESSAGES else {"status", "kind"})
        columns = (needed | of_filters) & frozenset(table.schema.names)
        spans = look_up.spans if look_up is not None else [selection.offsets] if selection.offsets else None
        request = replace(
            reading.evidence.request(store, spans),
            records_of=(selection,) if selection != Selection() else (),
            offsets=offsets,
            raw_body=reading.raw_body,
            max_body=reading.max_body,
            columns=columns,
        )
        size = bytes_to_read(store, table, selection.offsets) if look_up is None else look_up.size
        reading.evidence.told(table, size, look_up, store)
        with reading.evidence.unreadable_told():
            if look_up is None:
                yield from table.rows(store, request)
            else:
                yield from planned_rows(store, look_up.to_read, request)


class _Scan(Struct, frozen=True):
    """What DuckDB takes the stream of a scan from."""

    schema: pa.Schema
    batches: Callable[[], Iterator[pa.RecordBatch]]

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the stream."""
        return pa.RecordBatchReader.from_batches(self.schema, self.batches())


def _look_up(store: Store, selection: Selection) -> LookUp | None:
    """Return what of the log to read, None: all that the offsets leave."""
    try:
        return plan_look_up(store, selection)
    except Unreadable:
        return None  # the scan meets it again, and reports it


def _passing(rows: pa.RecordBatch, expression: pc.Expression | None) -> Iterator[pa.RecordBatch]:
    """Yield the rows that pass."""
    if expression is None or not rows.num_rows:
        yield rows
    else:
        yield from pa.Table.from_batches([rows]).filter(expression).to_batches()
