"""The tables as a Spark data source: `spark.read.format("rocketmq").option("table", …).load([path, …])`.

A partition is a split of a table, or some small stores: paths and numbers. Its task opens the files itself and yields
record batches with the table's fixed schema, `store` first. The rows are those of `rmqinspect decode`, wherever the
splits begin and end.
"""

import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial, reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkException
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StructField, StructType

from rmqinspect.errors import BadOption, DamageFound, Unreadable
from rmqinspect.export.request import FINDINGS, MESSAGES
from rmqinspect.forecast.lost_records import lost_at_start, with_lost
from rmqinspect.rocksdb.unpack import unpacked, with_unread_databases
from rmqinspect.spark.options import SCHEMAS, Hints, Settings, read_options
from rmqinspect.spark.planning import Load, Named, RangeTask, SplitTask, StoresTask, tasks_of
from rmqinspect.statuses import SOUND
from rmqinspect.store.log_size import in_threads
from rmqinspect.store.model import Store
from rmqinspect.tables.filters import Range, Selection
from rmqinspect.tables.record_columns import as_text_bodies
from rmqinspect.tables.request import Request
from rmqinspect.tables.sources import databases_of, range_to_read, unread_places
from rmqinspect.tables.splits import Origin, TableSplit, default_split_size, split_rows, split_table
from rmqinspect.tables.table import STORE
from rmqinspect.verify.result import VerifyOptions, finding_batches
from rmqinspect.verify.run import verify_and_forecast

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NO_STREAM = (
    "rocketmq is no stream: it reads files as they are. Use spark.read; for what is new since an earlier run, "
    "rmqinspect export --incremental"
)


class RocketMQDataSource(DataSource):
    """Stores as tables. The options: `rmqinspect.spark.options.OPTIONS`."""

    parallelism: int | None = None  # how many tasks run at a time, where `register` could ask

    def __init__(self, options: dict[str, str]) -> None:
        """Parse the options.

        :raises BadOption: one of them is unknown or malformed.
        """
        super().__init__(options)
        self.settings = read_options(options)

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return "rocketmq"

    def schema(self) -> StructType:
        """Return the columns, the same for all stores."""
        return StructType([_spark_field(field) for field in self.settings.documented()])

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of one load.

        :raises BadOption: Spark was given another schema.
        """
        given, own = ([(field.name, field.dataType) for field in one] for one in (schema, self.schema()))
        if given != own:
            raise BadOption(f"the schema of {self.settings.table} is fixed; the option columns selects from it")
        kind = PushingReader if self.settings.pushdown else Reader
        return kind(self.settings, self.parallelism)

    def streamReader(  # noqa: N802 pyspark's name
        self, schema: StructType
    ) -> DataSourceStreamReader:
        """Return what refuses `spark.readStream`; pyspark's own error is about its classes."""
        return _NoStream()


def register(session: "SparkSession") -> None:
    """Make the format `rocketmq` known to a session, with how many tasks its cluster runs at a time.

    Spark plans a load in a process that does not know that; without it the driver's processors count.
    """
    known = None
    with suppress(AttributeError, PySparkException):  # Spark Connect has no context
        known = session.sparkContext.defaultParallelism

    class Registered(RocketMQDataSource):
        parallelism = known

    # A class made here goes to that process by value, with what it knows.
    session.dataSource.register(Registered)


_WHOLE = 1 << 62  # bytes: no file is cut


class _NoStream(DataSourceStreamReader):
    """What pyspark asks for the beginning of a stream; where there is no reader it fails in its own code."""

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 pyspark's name
        """Refuse.

        :raises BadOption: always.
        """
        raise BadOption(NO_STREAM)

    def read(self, partition: InputPartition) -> Iterator[tuple[object, ...]]:
        """Refuse, too: pyspark takes no reader without it."""
        raise BadOption(NO_STREAM)


class Reader(DataSourceReader):
    """Plans the partitions of a load in the driver; reads one partition per task."""

    def __init__(self, settings: Settings, workers: int | None = None) -> None:
        """`workers` tasks run at a time; None: as many as this machine has processors."""
        self.settings = settings
        self.hints = Hints()
        self._workers = workers or os.cpu_count() or 1

    def partitions(self) -> Sequence[InputPartition]:
        """Cut stores into splits, or say which tasks open them (rmqinspect.spark.planning).

        :raises NotAStore: a path holds no part of a store.
        :raises Unreadable: a path or a queue file cannot be read.
        """
        now, named = datetime.now(UTC), self.hints.stores
        # Only of a broker.conf without a path the name is not known yet.
        stores = [store for store in self.settings.stores if named is None or store[0] in ("", *named)]
        load = Load(self.settings.table, now, self.settings.split_size, self._workers, self._is_known_to_tasks)
        tasks = list(tasks_of(stores, load, partial(self._cut, now)))
        # Without partitions Spark would read one that is None.
        return tasks or [StoresTask((), now)]

    @property
    def _is_known_to_tasks(self) -> bool:
        """Whether all tasks of a store would choose the same rows, and cheaply: the driver finds what a start loses."""
        times = (self.settings.since or "", self.settings.until or "")
        return self.settings.selection.lost_at_start is None and not any(time.startswith("last") for time in times)

    def _cut(self, now: datetime, stores: Sequence[Named]) -> Iterator[list[SplitTask]]:
        """Open stores, and yield the splits of each."""
        opened = in_threads(lambda store: store[1].open(), stores)
        sizes = [segment.size for store in opened for segment in store.segments]
        split_size = self.settings.split_size or default_split_size(sizes, self._workers)
        for (name, origin), store in zip(stores, opened, strict=True):
            name = name or store.name
            wanted = self.hints.stores is None or name in self.hints.stores
            yield self._splits_of(name, store, origin, split_size, now) if wanted else []

    def _splits_of(
        self, name: str, store: Store, origin: Origin, split_size: int, now: datetime, *, tells: bool = True
    ) -> list[SplitTask]:
        if tells:
            self._report_oddities(with_unread_databases(store, origin.unpacking, databases_of(self.settings.table)))
        since, until = self.settings.times(store, now)
        selection = self._of_store(store, origin)
        splits = self._splits(store, origin, split_size, selection.offsets)
        return [SplitTask(name, split, since, until, selection.lost) for split in splits]

    def _of_store(self, store: Store, origin: Origin) -> Selection:
        """Return the filters for a store, with what its next start gives up, if that is asked for."""
        selection = self.settings.selection
        if selection.lost_at_start is None:
            return selection
        with unpacked(store, origin.unpacking) as whole:
            found = lost_at_start(whole, selection.lost_at_start)
        for message in found.unread:
            self._warn(f"{store.name}: {message}")
        return with_lost(selection, found.records)

    def _splits(self, store: Store, origin: Origin, split_size: int, wanted: Range | None) -> list[TableSplit]:
        table, hinted = self.settings.table, self.hints.selection.offsets
        if table == FINDINGS:
            return [TableSplit(FINDINGS, origin)]
        offsets = wanted or hinted
        if wanted and hinted:
            offsets = max(wanted[0], hinted[0]), min(wanted[1], hinted[1])
        return split_table(table, store, split_size, origin, range_to_read(store, offsets))

    def _report_oddities(self, store: Store) -> None:
        """Warn about entries that are never read: links, and anything that is not a regular file."""
        for line in unread_places(store, (self.settings.table,)):
            self._warn(f"{store.name}: {line}")

    def _warn(self, message: str) -> None:
        if self.settings.failfast:
            raise Unreadable(message)
        warnings.warn(message, stacklevel=1)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a partition.

        :raises DamageFound: damage, in mode FAILFAST.
        :raises Unreadable: a file cannot be opened or, in mode FAILFAST, not be read completely.
        """
        if isinstance(partition, SplitTask):
            yield from self._rows_of(partition)
            return
        if isinstance(partition, RangeTask):
            yield from self._rows_in(partition)
            return
        assert isinstance(partition, StoresTask)
        for name, origin in partition.stores:
            for split in self._splits_of(name, origin.open(), origin, _WHOLE, partition.now):
                yield from self._rows_of(split)

    def _rows_in(self, task: RangeTask) -> Iterator[pa.RecordBatch]:
        name, origin = task.store
        tells = task.start == 0  # the others would tell the same
        for split in self._splits_of(name, origin.open(), origin, task.split_size, task.now, tells=tells):
            if task.holds(split.split):
                yield from self._rows_of(split)

    def _rows_of(self, task: SplitTask) -> Iterator[pa.RecordBatch]:
        times = replace(self.settings.selection, since=task.since, until=task.until)
        if task.lost is not None:
            times = with_lost(times, task.lost)
        selections = [times, self.hints.selection]
        strict = _Strictness(task.store, times.offsets) if self.settings.failfast else None
        for batch in self._batches(task.split, selections, strict):
            rows = reduce(lambda rows, selection: selection.select_rows(rows), selections, batch)
            if strict is not None:
                strict.check(rows)
            if rows.num_rows:
                yield self._shape(rows, task.store)

    def _batches(
        self, split: TableSplit, selections: list[Selection], strict: "_Strictness | None"
    ) -> Iterator[pa.RecordBatch]:
        settings, schema = self.settings, SCHEMAS[self.settings.table]
        if split.table == FINDINGS:
            with split.origin.opened(None) as store:
                result = verify_and_forecast(store, VerifyOptions(level=settings.level))
            for message in result.unread if strict is not None else ():
                raise Unreadable(message)
            return finding_batches(result)

        def refuse_missing(topic: str, queue_id: int, message: str) -> None:
            if strict is not None and all(one.wants_queue(topic, queue_id) for one in selections):
                strict.refuse(message)

        wanted = {*settings.columns, "status", "kind"}.union(*(one.columns(schema) for one in selections))
        if strict is not None:
            wanted.update(_PLACES)
        return split_rows(
            split,
            Request(
                records_of=tuple(selections) if split.table == MESSAGES else (),
                offsets=selections[0].offsets,
                named=selections[0].named,
                start=settings.start,
                raw_body=settings.raw_body,
                max_body=settings.max_body,
                columns=frozenset(wanted & set(schema.names)),
                on_gap=None if strict is None else strict.refuse_gap,
                on_missing=refuse_missing,
                on_unreadable=None if strict is None else strict.refuse_unreadable,
            ),
        )

    def _shape(self, rows: pa.RecordBatch, store: str) -> pa.RecordBatch:
        columns = self.settings.columns
        if "store" in columns:
            rows = rows.add_column(0, STORE, pa.repeat(pa.scalar(store), rows.num_rows))
        rows = rows.select(columns)
        if self.settings.redaction is not None:
            rows = self.settings.redaction.mask(rows)
        if self.settings.text_bodies:
            rows = as_text_bodies(rows)
        return pa.RecordBatch.from_arrays(rows.columns, schema=self.settings.schema)


class PushingReader(Reader):
    """A reader with filter pushdown.

    A separate class, because Spark rejects every load of a reader with `pushFilters` unless
    `spark.sql.python.filterPushdown.enabled` is set, and by default it is not.
    """

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:  # noqa: N802
        """Use filters to read less; Spark still applies all of them."""
        self.hints = reduce(Hints.add, filters, self.hints)
        return filters


class _Strictness:
    """Mode FAILFAST: raises for everything that makes `decode` exit with 3 or 4."""

    def __init__(self, store: str, offsets: tuple[int, int] | None) -> None:
        self._store = store
        self._offsets = offsets or (0, 1 << 63)

    def check(self, rows: pa.RecordBatch) -> None:
        """Raise for rows that show damage."""
        for column, sound in SOUND.items():
            if column in rows.schema.names:
                values = rows.column(column)
                bad = rows.filter(pc.and_not(pc.is_valid(values), pc.is_in(values, pa.array(sound))))
                if bad.num_rows:
                    self.refuse(_describe(bad, column))

    def refuse_gap(self, kind: str, start: int, end: int) -> None:
        """Raise for a range that lost its records."""
        first, beyond = self._offsets
        if start < beyond and first < end:
            self.refuse(f"{kind}: no record at physical offsets {start}..{end}")

    def refuse_unreadable(self, message: str) -> None:
        """Raise for a file that cannot be read."""
        raise Unreadable(f"{self._store}: {message}")

    def refuse(self, what: str) -> None:
        """Raise for what is damaged or missing."""
        raise DamageFound(f"{self._store}: {what} (mode=FAILFAST)")


_PLACES = ("code", "file", "offset", "physical_offset", "group", "topic", "queue_id")
"""Columns that say where a bad row is."""


def _describe(rows: pa.RecordBatch, column: str) -> str:
    """Describe the first of some bad rows."""
    row = rows.slice(0, 1).to_pylist()[0]
    places = [f"{name} {row[name]}" for name in _PLACES if row.get(name) is not None]
    return f"{column} {row[column]}: " + ", ".join(places)


def _spark_field(field: pa.Field) -> StructField:
    comment: dict[str, Any] = {"comment": (field.metadata or {}).get(b"doc", b"").decode()}
    return StructField(field.name, from_arrow_type(field.type), field.nullable, comment)
