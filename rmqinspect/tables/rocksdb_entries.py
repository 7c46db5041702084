"""The table `rocksdb_entries`: timer and half messages that a broker keeps in `rocksdbstore/`.

Source: TimerRocksDBRecord, TransRocksDBRecord; RocketMQ 5.4.0 and 5.5.0.
"""

from collections.abc import Iterator

import pyarrow as pa

from rmqinspect.rocksdb.entries import Entry, read_entries
from rmqinspect.store.model import Store
from rmqinspect.tables.arrow import batches_of
from rmqinspect.tables.table import STORE_DATABASE, TIMESTAMP, Request, Table, column
from rmqinspect.times import millis_to_micros

SCHEMA = pa.schema(
    [
        column("kind", pa.string(), "timer, or half (of a transaction)"),
        column("state", pa.string(), "waiting; done: a timer message due before the timeline checkpoint of the broker"),
        column("physical_offset", pa.int64(), "of the record that waits"),
        column("size", pa.int32(), "of that record, bytes"),
        column("msg_id", pa.string(), "UNIQ_KEY; of a half message its transaction id, which is the same"),
        column("deliver_timestamp", TIMESTAMP, "when a timer message falls due (TIMER_OUT_MS)"),
        column("real_topic", pa.string(), "where a half message is bound for"),
        column("check_times", pa.int32(), "how often the producer of a half message was asked"),
    ]
)


def _rows(store: Store, _request: Request) -> Iterator[pa.RecordBatch]:
    yield from batches_of(SCHEMA, (_with_time(entry) for entry in read_entries(store)))


def _with_time(entry: Entry) -> Entry:
    due = entry.deliver_timestamp
    return entry if due is None else entry._replace(deliver_timestamp=millis_to_micros(due))


ROCKSDB_ENTRIES = Table("rocksdb_entries", SCHEMA, tuple(SCHEMA.names), _rows, scans=(), databases=(STORE_DATABASE,))
