"""Columns of the records that units point at, in the order of the units; null where no record is."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from rmqinspect.codec.arrays import Ints
from rmqinspect.codec.byte_ranges import take_ranges, take_values
from rmqinspect.codec.properties import WELL_KNOWN
from rmqinspect.commitlog.records import Records
from rmqinspect.commitlog.records_at import records_at
from rmqinspect.store.model import Store
from rmqinspect.tables.columns import text

CHUNK_ROWS = 8192  # rows whose records are read together: their texts take a few MB


def columns_at(
    store: Store,
    places: Ints,
    sizes: Ints,
    columns_of: Callable[[Records], Mapping[str, pa.Array]],
    schema: Sequence[tuple[str, pa.DataType]],
) -> pa.Table:
    """Return columns of the records at some physical offsets; `columns_of` makes those of some of them.

    Their `base` says nothing.
    """
    taken = [pa.schema(schema).empty_table()]
    order = np.full(len(places), -1, np.int64)
    count = 0
    for which, records in records_at(store, places, sizes, joined=True):
        order[which] = np.arange(count, count + len(which))
        count += len(which)
        columns = columns_of(records)
        taken.append(pa.table([columns[name] for name, _ in schema], pa.schema(schema)))
    return pa.concat_tables(taken).combine_chunks().take(pa.array(order, mask=order < 0))


def property_values(records: Records, name: bytes) -> pa.Array:
    """Return the value of a property in each record as text, null without."""
    items = records.properties
    which = items.of(name) if name in WELL_KNOWN else items.find(name)
    if not (which >= 0).any():
        return pa.nulls(len(which), pa.string())
    some = np.flatnonzero(which >= 0)
    values, _ = text(take_ranges(items.raw, items.value_starts[which[some]], items.value_ends[which[some]]))
    order = np.full(len(which), -1, np.int32)
    order[some] = np.arange(len(some))
    return take_values(values, order)
