"""What `import rmqinspect` does for programs and notebooks: open a store, read its tables, ask the questions.

Each function takes a store of `open_store` and reads it only; nothing is ever written into it. What lies in RocksDB is
unpacked by each for itself, unless `unpacked` has done it. docs/python.md tells more.
"""

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches

import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from rmqinspect import notebook
from rmqinspect.choices import DEFAULT_LEVEL, LEVELS
from rmqinspect.errors import BadOption, Unreadable
from rmqinspect.find.finding import Finding, Target
from rmqinspect.find.plan import plan_look_up
from rmqinspect.forecast.evidence import of_parts
from rmqinspect.forecast.outcome import Forecast
from rmqinspect.forecast.versions import ForecastRequest, forecast
from rmqinspect.rocksdb.unpack import Unpacking
from rmqinspect.rocksdb.unpack import unpacked as unpacked_store
from rmqinspect.store import discover
from rmqinspect.store.model import Store
from rmqinspect.tables import TABLES
from rmqinspect.tables.filters import Selection
from rmqinspect.tables.log import MESSAGES_TABLE
from rmqinspect.tables.request import Request
from rmqinspect.tables.sources import range_to_read, unread_places
from rmqinspect.tables.table import QUEUE_DATABASES
from rmqinspect.verify.result import VerifyOptions, VerifyResult
from rmqinspect.verify.run import verify_and_forecast

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def open_store(*paths: str | os.PathLike[str], config: str | None = None, base: int | None = None) -> Store:
    """Return the store at a path, or made of the files and folders of one store at several.

    `config` names its broker.conf; `base` is the physical offset of a loose segment whose name is no offset. Paths may
    be URIs: `s3://bucket/store`. Little is read.

    :raises NotAStore: there is no store, or more than one.
    :raises Unreadable: a path cannot be listed or read.
    :raises BadOption: `config` is malformed.

    >>> import rmqinspect
    >>> store = rmqinspect.open_store("samples/healthy-4.9.7")
    >>> store.name, len(store.segments), len(store.index_files)
    ('healthy-4.9.7', 4, 3)
    """
    return discover.open_store([os.fspath(path) for path in paths], config=config, base=base)


def unpacked(store: Store, folder: str | None = None) -> AbstractContextManager[Store]:
    """Give a store, in a `with` block, with what its RocksDB databases hold; needs the extra `rocksdb`.

    They are copied below `folder`, by default the system's folder for temporary files, and read there; at the end of
    the block the copy is removed. Without it each function does so for itself, and again. A store without such
    databases is given as it is.

    :raises NotInstalled: there are such databases, and no library that reads them.
    :raises Refused: `folder` lies inside the store.

    >>> import rmqinspect
    >>> with rmqinspect.unpacked(rmqinspect.open_store("samples/healthy-4.9.7")) as store:
    ...     rmqinspect.read_table(store, "queues").read_all().num_rows
    12
    """
    return unpacked_store(store, Unpacking(wanted=True, folder=folder))


def read_table(
    store: Store,
    name: str = "messages",
    *,
    columns: Sequence[str] | None = None,
    offsets: tuple[int, int] | None = None,
    on_unreadable: Callable[[str], None] | None = None,
    jobs: int = 1,
) -> pa.RecordBatchReader:
    """Return a reader of a table of TABLES, batch by batch: `read_all()` makes an Arrow table, `read_pandas()` a frame.

    `columns`: these, in this order; columns that are not needed are not read. `offsets`: of tables of the log, records
    that begin in this range of physical offsets [start, end). Damaged records are rows with another `status` than `ok`.

    `on_unreadable` gets a line for everything that cannot be read, and the rest is read; without it, that is raised by
    the reader.

    :raises BadOption: there is no such table or column.
    :raises Unreadable: from the reader, while it reads: part of what the table needs cannot be read.

    >>> import rmqinspect
    >>> store = rmqinspect.open_store("samples/flipped-bit-5.3.3")
    >>> rows = rmqinspect.read_table(store, columns=["topic", "status"]).read_all()
    >>> rows.num_rows, [row for row in rows.to_pylist() if row["status"] != "ok"]
    (263, [{'topic': 'BatchTopic', 'status': 'body_crc'}])
    """
    if name not in TABLES:
        raise BadOption(f"no table {name!r}{_nearest(name, list(TABLES))}")
    table = TABLES[name]
    names: list[str] = table.schema.names
    chosen = names if columns is None else list(columns)
    for one in chosen:
        if one not in names:
            raise BadOption(f"no column {one!r} in {name}{_nearest(one, names)}")
    used = None if columns is None else frozenset(chosen) | ({"physical_offset"} & set(names))
    request = Request(columns=used, jobs=jobs, on_unreadable=on_unreadable)

    def batches() -> Iterator[pa.RecordBatch]:
        with _whole(store, table.databases) as whole:
            for line in unread_places(whole, (name,)):
                request.tell_unread(Unreadable(line))
            for batch in table.rows(whole, replace(request, offsets=range_to_read(whole, offsets))):
                rows = batch if offsets is None else Selection(offsets=offsets).select_rows(batch)
                yield rows.select(chosen)

    return pa.RecordBatchReader.from_batches(pa.schema([table.schema.field(one) for one in chosen]), batches())


class FoundMessages(Struct, frozen=True):
    """What `find_messages` found, or why there is nothing.

    >>> import rmqinspect
    >>> store = rmqinspect.open_store("samples/healthy-4.9.7")
    >>> found = rmqinspect.find_messages(store, key="no such key")
    >>> found.rows.num_rows, len(found.misses), found.unread
    (0, 1, [])
    """

    rows: pa.Table  # of the table `messages`
    misses: list[str]  # why there are none; empty with a hit
    unread: list[str]  # what could not be read: with any, a miss proves nothing
    more: bool  # whether `limit` ended the search

    def _repr_html_(self) -> str:
        names = ("physical_offset", "topic", "queue_id", "queue_offset", "keys", "store_timestamp", "status")
        few = self.rows.select(names).slice(0, notebook.MOST_ROWS).to_pylist()
        shown = ([row[name] if name != "keys" else " ".join(row[name] or ()) for name in names] for row in few)
        listed = notebook.table(names, shown, self.rows.num_rows) if few else ""
        facts = [("missing", text) for text in self.misses] + [("not read", text) for text in self.unread]
        return notebook.heading(f"messages found: {self.rows.num_rows}") + notebook.labelled(facts) + listed


def find_messages(
    store: Store,
    *,
    msg_id: str | None = None,
    key: str | None = None,
    topic: str | None = None,
    queue_id: int | None = None,
    queue_offset: int | None = None,
    body_contains: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    limit: int | None = None,
    jobs: int = 1,
) -> FoundMessages:
    """Return the messages that fit all that is given, and why there are none.

    Index and queues are used where they lead, else the log is read. `topic` may be a shell pattern, `msg_id` of either
    kind. Times are store times, `until` is excluded; without a zone they are UTC. At most `limit` rows.

    :raises Unreadable: a queue that leads to the message cannot be read.

    >>> import rmqinspect
    >>> store = rmqinspect.open_store("samples/healthy-4.9.7")
    >>> found = rmqinspect.find_messages(store, topic="orders", queue_id=0, queue_offset=1)
    >>> found.rows.select(["topic", "queue_id", "queue_offset"]).to_pylist()
    [{'topic': 'orders', 'queue_id': 0, 'queue_offset': 1}]
    """
    selection = Selection(
        ids=() if msg_id is None else (msg_id,),
        keys=() if key is None else (key,),
        keys_name_ids=True,
        topics=() if topic is None else (topic,),
        queue_id=queue_id,
        queue_offsets=None if queue_offset is None else (queue_offset, queue_offset + 1),
        in_queues=queue_offset is not None,
        body_text=body_contains,
        since=_micros(since),
        until=_micros(until),
    )
    with _whole(store, QUEUE_DATABASES) as whole:
        unread = tuple(unread_places(whole, ("messages",)))
        target = Target(whole, selection, plan_look_up(whole, selection), Request(jobs=jobs), unread)
        search = Finding([target], selection, limit)
        rows = pa.Table.from_batches([rows for _, rows in search.hits()], MESSAGES_TABLE.schema)
        misses = [miss.text for miss in search.misses()]
        return FoundMessages(rows, misses, search.unread, search.more is not None)


def verify_store(
    store: Store, level: str = DEFAULT_LEVEL, *, broker_version: str | None = None, jobs: int = 1
) -> VerifyResult:
    """Return the result of all checks of a level, `quick`, `standard` or `deep`, and of a whole store its next start.

    `broker_version`: the release whose rules apply; by default estimated from the store. Ctrl-C ends the reading, not
    the result, which is then not `complete`; nor is it where something could not be read.

    :raises BadOption: there is no such level.

    >>> import rmqinspect
    >>> store = rmqinspect.open_store("samples/flipped-bit-5.3.3")
    >>> [(found.code, found.severity, found.physical_offset) for found in rmqinspect.verify_store(store).findings]
    [('CL-CRC-BODY', 'error', 97187), ('ST-ABORT', 'info', None)]
    """
    if level not in LEVELS:
        raise BadOption(f"no level {level!r}; there are: {', '.join(LEVELS)}")
    with _whole(store) as whole:
        result = verify_and_forecast(whole, VerifyOptions(level=level, broker_version=broker_version, jobs=jobs))
    return replace(result, store=store)  # what was unpacked is gone


def forecast_start(
    store: Store, broker_version: str | None = None, *, clean_exit: bool | None = None, jobs: int = 1
) -> Forecast:
    """Return what the next start of a broker does to a store, nothing started: `worst` is the worst of all releases.

    `broker_version`: the release that starts; by default each that may have written the store. `clean_exit`: how the
    broker stopped; by default as the file `abort` says. Of parts of a store the verdict is CANNOT TELL.

    >>> import rmqinspect
    >>> start = rmqinspect.forecast_start(rmqinspect.open_store("samples/healthy-4.9.7"))
    >>> start.worst.verdict.value
    'STARTS, LOSES NOTHING MORE'
    """
    if (parts := of_parts(store)) is not None:
        return parts
    with _whole(store) as whole:
        return forecast(whole, ForecastRequest(broker_version, clean_exit=clean_exit, instead=True, jobs=jobs))


def _whole(store: Store, only: Collection[str] | None = None) -> AbstractContextManager[Store]:
    """Give a store with what its databases hold, as far as they can be read; one that was unpacked as it is."""
    return nullcontext(store) if store.unpacked else unpacked_store(store, only=only)


def _nearest(word: str, known: Sequence[str]) -> str:
    near = get_close_matches(word, known, n=1)
    return f"; nearest: {near[0]}" if near else f"; there are: {', '.join(known)}"


def _micros(time: datetime | None) -> int | None:
    """Return microseconds since 1970."""
    if time is None:
        return None
    return ((time if time.tzinfo else time.replace(tzinfo=UTC)) - _EPOCH) // timedelta(microseconds=1)
