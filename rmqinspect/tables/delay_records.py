"""What the records of delayed messages say, and the numbers that stand for them (`tables.delay_copies`)."""

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqinspect.codec.arrays import Bools, Ints
from rmqinspect.commitlog.records import Records
from rmqinspect.store.model import Store
from rmqinspect.tables.columns import millis
from rmqinspect.tables.delay_copies import LEVEL, TIME, delete_targets, identity, property_hash
from rmqinspect.tables.delay_units import DelayUnits
from rmqinspect.tables.property_columns import property_columns
from rmqinspect.tables.record_columns import columns_at, property_values
from rmqinspect.tables.table import TIMESTAMP

_COLUMNS = (
    ("real_topic", pa.string()),
    ("real_queue_id", pa.int32()),
    ("msg_id", pa.string()),
    ("keys", pa.list_(pa.string())),
    ("store_timestamp", pa.int64()),  # ms
    ("reconsume_times", pa.int32()),
    ("deliver_timestamp", TIMESTAMP),
    ("roll_times", pa.string()),
    ("deletes", pa.string()),
    ("identity", pa.int64()),
    ("plain_key", pa.int64()),  # of an order to delete it, in its two forms
    ("topic_key", pa.int64()),
)


class DelayRecords:
    """The records of some delayed messages, in their order; null or 0 where a record is gone."""

    def __init__(self, columns: pa.Table) -> None:
        self._columns = columns

    @classmethod
    def of_level(cls, store: Store, units: DelayUnits) -> "DelayRecords":
        """Read those of a delay level."""
        return cls._read(store, units, _of_level)

    @classmethod
    def of_timer(cls, store: Store, units: DelayUnits) -> "DelayRecords":
        """Read those of the timer."""
        return cls._read(store, units, _of_timer)

    @classmethod
    def _read(
        cls, store: Store, units: DelayUnits, columns_of: Callable[[Records], dict[str, pa.Array]]
    ) -> "DelayRecords":
        return cls(columns_at(store, units.places, units.sizes, columns_of, _COLUMNS))

    def column(self, name: str) -> pa.Array:
        """Return a column as the table has it."""
        return self._columns.column(name).combine_chunks()

    def has(self, name: str) -> Bools:
        """Return which records have a value; every one has an `identity`."""
        present: Bools = self._columns.column(name).is_valid().to_numpy()
        return present

    def numbers(self, name: str) -> Ints:
        """Return a column of numbers, or of times in ms."""
        column = self._columns.column(name)
        micros = pa.types.is_timestamp(column.type)
        values: Ints = pc.fill_null(column.cast(pa.int64()), 0).to_numpy()
        return values // 1000 if micros else values

    def store_timestamps(self) -> pa.Array:
        """Return when each record was stored."""
        times, _ = millis(self.numbers("store_timestamp"))
        return pc.if_else(pa.array(self.has("store_timestamp")), times, pa.scalar(None, TIMESTAMP))

    def roll_times(self) -> pa.Array:
        """Return how often the timer had stored each one again."""
        texts = self.column("roll_times")
        small = pc.match_substring_regex(texts, r"^[0-9]{1,9}$")
        return pc.if_else(small, texts, pa.scalar(None, pa.string())).cast(pa.int32())


def _of_level(records: Records) -> dict[str, pa.Array]:
    nothing = pa.nulls(len(records), pa.int64())
    return _of_record(records, LEVEL) | {"plain_key": nothing, "topic_key": nothing}


def _of_timer(records: Records) -> dict[str, pa.Array]:
    plain, with_topic = delete_targets(records, property_hash(records, b"REAL_TOPIC"))
    return _of_record(records, TIME) | {"plain_key": pa.array(plain), "topic_key": pa.array(with_topic)}


def _of_record(records: Records, wait: bytes) -> dict[str, pa.Array]:
    columns, _ = property_columns(records)
    return columns | {
        "store_timestamp": pa.array(records.field("store_timestamp")),
        "reconsume_times": pa.array(records.field("reconsume_times").astype(np.int32)),
        "roll_times": property_values(records, b"TIMER_ROLL_TIMES"),
        "deletes": property_values(records, b"TIMER_DEL_UNIQKEY"),
        "identity": pa.array(identity(records, property_hash(records, b"REAL_TOPIC"), wait)),
    }
