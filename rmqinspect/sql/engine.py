"""One query in DuckDB: a database in memory that sees the views, and nothing else.

DuckDB may open no file, load no extension and keep its settings to itself; what does not fit into its memory goes to a
folder of its own, which is removed at the end. It runs in a thread, so that Ctrl-C is heard while it works.
"""

import contextlib
import queue
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import duckdb
import pyarrow as pa
from msgspec import Struct, field
from msgspec.structs import replace

from rmqinspect.errors import BadOption, Refused
from rmqinspect.sql.statement import one_select, wanted_keys
from rmqinspect.sql.views import NAMES, Reading, View, table_of
from rmqinspect.store.outside import refuse_inside
from rmqinspect.system.workers import STEP
from rmqinspect.tables.table import with_store

_ROWS = 16_384  # in a batch of the result
_WAITING = 2  # batches that wait for the writer
_SPILL = "100GiB"  # most that goes to temporary files

# Settings of the database. `lock_configuration` comes last: no query changes any.
_CLOSED = {
    "enable_external_access": False,
    "autoload_known_extensions": False,
    "autoinstall_known_extensions": False,
    "allow_community_extensions": False,
    "python_enable_replacements": False,
    "enable_object_cache": False,
}


class Limits(Struct, frozen=True):
    """What a query may take."""

    memory: int  # bytes, of DuckDB
    threads: int
    zone: str = "UTC"  # of times in the query that have none


class Result(Struct):
    """The rows of a query."""

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]


@contextmanager
def answered(text: str, reading: Reading, limits: Limits, evidence: Sequence[str]) -> Iterator[Result]:
    """Give the result of a query, which runs until the block ends.

    :raises BadOption: the text is not one SELECT, or DuckDB refuses it.
    :raises Refused: the folder for temporary files lies inside the evidence, or is full.
    """
    refuse_inside(tempfile.gettempdir(), evidence)
    with (
        tempfile.TemporaryDirectory(prefix="rmqinspect-sql-", ignore_cleanup_errors=True) as folder,
        contextlib.closing(_connect(limits, folder)) as connection,
        _explained(reading),
    ):
        text = one_select(connection, text)
        reading = replace(reading, keys=wanted_keys(connection, text))
        # The modules of a table are imported for it.
        named = [name for name in NAMES if name in text.casefold()]
        for name in named or NAMES:
            connection.register(name, View(name, reading))
            if "comment" in text.casefold():
                _comment(connection, name)
        running = _Running(connection, text)
        try:
            yield Result(running.schema(), running.batches())
        finally:
            running.end()


def _comment(connection: duckdb.DuckDBPyConnection, name: str) -> None:
    """Tell what each column of a view is, for who asks duckdb_columns() for its comment."""
    for column in with_store(table_of(name).schema):
        words = (column.metadata or {}).get(b"doc", b"").decode().replace("'", "''")
        connection.execute(f"COMMENT ON COLUMN {name}.\"{column.name}\" IS '{words}'").fetchall()


def _connect(limits: Limits, folder: str) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(
        ":memory:",
        config={
            **_CLOSED,
            "memory_limit": f"{limits.memory}B",
            "threads": limits.threads,
            "temp_directory": folder,
            "max_temp_directory_size": _SPILL,
        },
    )
    connection.execute("SET TimeZone = ?", [limits.zone]).fetchall()
    connection.execute("SET lock_configuration = true").fetchall()
    return connection


@contextmanager
def _explained(reading: Reading) -> Iterator[None]:
    """Turn what DuckDB says into one line; what ended a scan comes first."""
    try:
        yield
    except duckdb.Error as error:
        for failure in reading.failures:
            raise failure from None
        raise _in_a_line(error) from error


def _in_a_line(error: duckdb.Error) -> BadOption | Refused:
    said = " ".join(str(error).partition("\n\n")[0].split())
    if isinstance(error, duckdb.OutOfMemoryException):
        return Refused(f"the query needs more memory or room than it may take (--memory): {said}")
    if isinstance(error, duckdb.PermissionException):
        return BadOption(f"a query reads the stores given, and nothing else: {said}")
    return BadOption(said)


_END = None


class _Running(Struct):
    """A query in its thread. What it yields waits in a short queue."""

    connection: duckdb.DuckDBPyConnection
    text: str
    _queue: "queue.Queue[Any]" = field(default_factory=lambda: queue.Queue(_WAITING))
    _stopped: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def schema(self) -> pa.Schema:
        """Start the query and return the columns of its result."""
        self._thread = threading.Thread(target=self._run, name="duckdb", daemon=True)
        self._thread.start()
        schema: pa.Schema = self._next()
        return schema

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows."""
        while (batch := self._next()) is not _END:
            yield batch

    def end(self) -> None:
        """Stop the query, if it still runs."""
        self._stopped.set()
        while self._thread is not None and self._thread.is_alive():
            self.connection.interrupt()
            with contextlib.suppress(queue.Empty):
                self._queue.get_nowait()
            self._thread.join(0.05)

    def _next(self) -> Any:
        found = self._taken()
        if isinstance(found, BaseException):
            raise found
        return found

    def _taken(self) -> Any:
        while True:
            with contextlib.suppress(queue.Empty):
                return self._queue.get(timeout=STEP)

    def _run(self) -> None:
        try:
            relation = self.connection.sql(self.text)
            # Releases before 2.0 call it by another name.
            read = getattr(relation, "to_arrow_reader", None) or relation.fetch_arrow_reader
            reader = read(_ROWS)
            self._put(reader.schema)
            for batch in reader:
                self._put(batch)
                if self._stopped.is_set():
                    break
            self._put(_END)
        except BaseException as error:  # noqa: BLE001 it goes on in the thread that reads the result
            self._put(error)

    def _put(self, item: Any) -> None:
        while not self._stopped.is_set():
            with contextlib.suppress(queue.Full):
                self._queue.put(item, timeout=STEP)
                return
