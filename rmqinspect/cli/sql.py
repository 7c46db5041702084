"""`rmqinspect sql`: a query over the tables of one or several stores, as views in DuckDB.

    query -> DuckDB -> scans of views: only the columns and rows that it needs -> rows of the result -> writer

What decides the exit status is met in the scans, as in `decode`: damaged rows that the query reads, ranges without
records, what could not be read.
"""

import sys
import threading
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import click

from rmqinspect.cli.options import (
    choose_format,
    count_jobs,
    open_named,
    terminal_width,
    use_colour,
)
from rmqinspect.cli.session import Session
from rmqinspect.cli.terminal import LONG_READ
from rmqinspect.cli.verbs.sql import SqlArguments
from rmqinspect.errors import NotInstalled
from rmqinspect.text import describe_size, group_digits

if TYPE_CHECKING:
    import pyarrow as pa

    from rmqinspect.codec.arrays import Span
    from rmqinspect.find.plan import LookUp
    from rmqinspect.output import View
    from rmqinspect.sql.engine import Result
    from rmqinspect.store.model import Store
    from rmqinspect.tables.request import Request
    from rmqinspect.tables.table import Table

_INSTALL = "pip install '.[sql]' in a clone of rmqinspect"


def run(arguments: SqlArguments) -> int:
    """Do what `sql` is asked for, and return the exit status."""
    format_ = choose_format(arguments)
    if find_spec("duckdb") is None:
        raise NotInstalled(f"sql needs the library duckdb: {_INSTALL}")
    from rmqinspect.sql.engine import Limits, answered
    from rmqinspect.sql.views import Reading

    text = _query(arguments)
    stores = open_named(arguments)
    limits = Limits(arguments.memory, count_jobs(arguments), _zone_name(arguments))
    with Session(arguments, stores) as session:
        evidence = _Evidence(session)
        reading = Reading(evidence, arguments.redact, arguments.raw_body, arguments.max_body, arguments.scan)
        with answered(text, reading, limits, session.evidence) as result:
            rows = _write(result, format_, arguments, session)
        evidence.tell_totals(rows, talkative=format_ != "table" or bool(arguments.verbose))
        damaged = bool(evidence.bad_rows) or any(session.gaps.values())
        return session.status(damaged=damaged, missed=False)


def _query(arguments: SqlArguments) -> str:
    """Return the text of the query.

    :raises click.UsageError: it is not UTF-8.
    """
    text = sys.stdin.buffer.read().decode("utf-8", "surrogateescape") if arguments.query == "-" else arguments.query
    if not text.isprintable() and any("\ud800" <= char <= "\udfff" for char in text):
        raise click.UsageError("The query is not UTF-8.")
    return text


def _zone_name(arguments: SqlArguments) -> str:
    """Return the zone of times in a query that have none, as DuckDB names it."""
    zone = arguments.zone
    return zone.key if isinstance(zone, ZoneInfo) else "UTC"


def _write(result: "Result", format_: str, arguments: SqlArguments, session: Session) -> int:
    """Write the rows of a result; return how many."""
    from rmqinspect.output import open_writer
    from rmqinspect.sql.result import as_written, written_schema

    schema = written_schema(result.schema, texts=format_ not in ("parquet", "arrow"))
    rows = 0
    view = _view(arguments)
    with open_writer(format_, schema, arguments.output, view=view, evidence=session.evidence) as writer:
        for batch in result.batches:
            rows += batch.num_rows
            session.progress.clear()  # stdout and stderr may be the same terminal
            writer.write(as_written(batch, schema))
        writer.complete = session.complete
    return rows


def _view(arguments: SqlArguments) -> "View":
    from rmqinspect.output import View

    return View(
        zone=arguments.zone,
        colour=use_colour(arguments.color, arguments.output),
        width=terminal_width(arguments.output),
        chosen=True,
        redacted=arguments.redact.words if arguments.redact else (),
    )


class _Evidence:
    """The stores of a session, as scans read them; DuckDB's threads call, one at a time."""

    def __init__(self, session: Session) -> None:
        from rmqinspect.store.reader import FileReader

        self.names = [store.name for store in session.given]
        self.bad_rows = 0
        self._session = session
        self._reader, self._read = FileReader, FileReader.bytes_read  # before
        self._given = {store.name: store for store in session.given}
        self._opened: dict[tuple[str, str], Store] = {}
        self._ways: Counter[str] = Counter()
        self._whole = 0  # bytes of what was read, if it had been read from end to end
        self._lock = threading.RLock()

    def opened(self, name: str, table: "Table") -> "Store":
        """Return a store with what its databases hold; it stays open to the end of the session."""
        with self._lock:
            if (name, table.name) not in self._opened:
                context = self._session.opened(self._given[name], table.databases, table.name)
                self._opened[name, table.name] = self._session.enter(context)
            return self._opened[name, table.name]

    def request(self, store: "Store", spans: "Sequence[Span] | None") -> "Request":
        """Return a request that notes what is met here; gaps as far as they lie in some spans."""
        return self._session.request(store, on_gap=partial(self._note_gap, store.name, spans))

    def unreadable_told(self) -> AbstractContextManager[None]:
        """End the block at what cannot be read, and tell it."""
        return self._session.unreadable_told()

    def told(self, table: "Table", size: int, look_up: "LookUp | None", store: "Store") -> None:
        """Announce a long read before it starts, and note its way."""
        from rmqinspect.tables.sources import bytes_to_read

        progress = self._session.progress
        progress.total += size
        self._whole += bytes_to_read(store, table)
        if look_up is not None:
            self._ways[look_up.way] += 1
        if size > LONG_READ:
            self._session.progress.remark(f"{describe_size(size)} to read of {store.name}: {table.name}")

    def met(self, table: "Table", rows: "pa.RecordBatch") -> None:
        """Count rows whose status is not ok."""
        import pyarrow.compute as pc

        if "status" in rows.schema.names and rows.num_rows:
            counted = pc.value_counts(rows.column("status")).to_pylist()
            sound = (None, *table.sound)
            self.bad_rows += sum(row["counts"] for row in counted if row["values"] not in sound)

    def tell_totals(self, rows: int, *, talkative: bool) -> None:
        """Print on stderr what was read, and what of it is damaged."""
        session = self._session
        bad = f"; {group_digits(self.bad_rows)} damaged among those read (status not ok)" if self.bad_rows else ""
        session.tell_rows(rows, bad, talkative=talkative)
        session.tell_gaps("range read", " (gaps)")
        if self._ways:
            read = self._reader.bytes_read - self._read
            of = f" of {describe_size(self._whole)}" if read < self._whole else ""
            session.progress.remark(f"read {describe_size(read)}{of}: {', '.join(self._ways)}")

    def _note_gap(self, store: str, spans: "Sequence[Span] | None", _kind: str, start: int, end: int) -> None:
        asked = [(start, end)] if spans is None else spans
        overlaps = ((max(start, first), min(end, beyond)) for first, beyond in asked)
        self._session.gaps[store].update((first, beyond) for first, beyond in overlaps if first < beyond)
