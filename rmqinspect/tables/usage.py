"""The table `usage`: what takes the bytes of the log, by topic, queue, tag, producer, hour, segment, kind.

How many bytes came in when: the store times of a log, in as many steps as fit into a line.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import ip_address

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqinspect.broker.copies import RECORD_KINDS
from rmqinspect.codec.arrays import Ints
from rmqinspect.store.model import Store
from rmqinspect.tables.table import TIMESTAMP, Request, Table, column, millis, text
from rmqinspect.tables.tally import BYTES, FIRST, LAST, MESSAGES, RECORDS, Tally, joined
from rmqinspect.tables.usage_fold import (
    CONTENTS,
    HOUR,
    SMALLEST_CLASS,
    WITHOUT,
    Sample,
    Usage,
    names_of,
    read_usage,
    texts_of,
)
from rmqinspect.times import format_millis

SCHEMA = pa.schema(
    [
        column("dimension", pa.string(), "content, kind, topic, queue, tag, host, hour, size, segment"),
        column("value", pa.string(), "one of the dimension's values; null where `covers` is not value"),
        column("queue_id", pa.int32(), "of a queue, beside its topic; else null"),
        column("covers", pa.string(), "value; none: records without one; others: values that are not listed"),
        column("records", pa.int64(), "commit-log records"),
        column("messages", pa.int64(), "messages: an inner batch holds several"),
        column("bytes", pa.int64(), "whole records (TOTALSIZE); content: all bytes of the log"),
        column("share", pa.float64(), "of the bytes of all rows of the dimension, 0 to 1"),
        column("first_store_timestamp", TIMESTAMP, "lowest broker's clock"),
        column("last_store_timestamp", TIMESTAMP, "highest broker's clock"),
        column("bytes_error", pa.int64(), "how far `bytes` may be off; null: exact"),
    ]
)
BRIEF = ("dimension", "value", "queue_id", "records", "messages", "bytes", "share", "last_store_timestamp")


def usage_rows(store: Store, request: Request) -> Iterator[pa.RecordBatch]:
    """Yield the table `usage`."""
    yield from usage_batches(read_usage(store, request))


def usage_batches(usage: Usage, most: int | None = None, by: Collection[str] | None = None) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a store, dimension by dimension: times and sizes ascending, all others by their bytes.

    With `most`, of kinds, topics, queues, tags and hosts only those with the most bytes; the rest is `others`.
    With `by`, only some dimensions.
    """
    for name, tally in usage.dimensions.items():
        if len(tally.keys) and (by is None or name in by):
            yield _batch(name, tally, usage, most if name in CUT else None)


def _batch(dimension: str, tally: Tally, usage: Usage, most: int | None) -> pa.RecordBatch:
    order = _order(dimension, tally)
    order, rest = order[:most], order[len(order) if most is None else most :]
    values, queue_ids, covers = _names(dimension, tally, usage, order)
    sums, errors = tally.sums[order], _errors(tally, usage.sample)
    offs = None if errors is None else errors[order]
    others = joined(np.vstack((tally.sums[rest], tally.others)))
    if others[RECORDS]:
        sums = np.vstack((sums, others))
        values, queue_ids = (pa.concat_arrays([one, pa.nulls(1, one.type)]) for one in (values, queue_ids))
        covers = pa.concat_arrays([covers, pa.array(["others"])])
        # Of a sum, each part may be off: together at most by so much.
        offs = None if errors is None or offs is None else np.append(offs, errors[rest].sum() + tally.forgotten)
    counts = [sums[:, which] for which in (RECORDS, MESSAGES, BYTES)]
    if usage.sample is not None:
        counts = [np.rint(column * usage.sample.scale).astype(np.int64) for column in counts]
    columns = [
        pa.repeat(pa.scalar(dimension), len(sums)),
        values,
        queue_ids,
        covers,
        *map(pa.array, counts),
        pa.array(np.round(sums[:, BYTES] / max(int(sums[:, BYTES].sum()), 1), 9)),
        *(millis(sums[:, which])[0] for which in (FIRST, LAST)),
        pa.nulls(len(sums), pa.int64()) if offs is None else pa.array(offs),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _order(dimension: str, tally: Tally) -> Ints:
    """Return the keys in the order of the rows, which does not depend on the order in which they appeared."""
    keys = pa.table(
        {"first": tally.keys.integers, "name": texts_of(tally, slice(None)), "bytes": -tally.sums[:, BYTES]}
    )
    by = ("first",) if dimension in _ASCENDING else ("bytes", "name", "first")
    order: Ints = pc.sort_indices(keys, [(name, "ascending") for name in by]).to_numpy().astype(np.int64)
    return order


def _names(dimension: str, tally: Tally, usage: Usage, order: Ints) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Return the columns that say what a row is about: value, queue id, what it covers."""
    integers = tally.keys.integers[order]
    values = _VALUES[dimension](usage, tally, order).cast(pa.string())
    queue_ids = pa.array(integers.astype(np.int32)) if dimension == "queue" else pa.nulls(len(order), pa.int32())
    if dimension != "tag":
        return values, queue_ids, pa.repeat(pa.scalar("value"), len(order))
    without = pa.array(integers == WITHOUT)
    return pc.if_else(without, None, values), queue_ids, pc.if_else(without, "none", "value")


def _errors(tally: Tally, sample: Sample | None) -> Ints | None:
    """Return how far the bytes of each value may be off; None: not at all."""
    if sample is not None:
        return sample.errors(tally.sums[:, BYTES], tally.squares)
    return np.full(len(tally.keys), tally.forgotten) if tally.forgotten else None


def _listed(names: tuple[str, ...]) -> Callable[[Usage, Tally, Ints], pa.Array]:
    return lambda _, tally, order: pa.array([names[number] for number in tally.keys.integers[order].tolist()])


def _hour(number: int) -> str:
    return format_millis(number * HOUR) or str(number * HOUR)


def _size(number: int) -> str:
    return str(1 << (SMALLEST_CLASS + number))


_ASCENDING = ("content", "hour", "size", "segment")
CUT = ("kind", "topic", "queue", "tag", "host")
"""Dimensions of which the largest values are told, and the rest together."""

# Dimension -> its values as texts, in an order.
_VALUES: Mapping[str, Callable[[Usage, Tally, Ints], pa.Array]] = {
    "content": _listed(CONTENTS),
    "kind": _listed(RECORD_KINDS),
    "topic": lambda _, tally, order: names_of(tally, order),
    "queue": lambda _, tally, order: names_of(tally, order),
    "tag": lambda _, tally, order: text(texts_of(tally, order))[0],
    "host": lambda _, tally, order: pa.array([str(ip_address(one)) for one in texts_of(tally, order).to_pylist()]),
    "hour": lambda _, tally, order: pa.array(map(_hour, tally.keys.integers[order].tolist()), pa.string()),
    "size": lambda _, tally, order: pa.array(
        [str(1 << SMALLEST_CLASS + one) for one in tally.keys.integers[order].tolist()]
    ),
    "segment": lambda usage, tally, order: pa.array(
        [usage.store.segments[number].name for number in tally.keys.integers[order].tolist()], pa.string()
    ),
}
DIMENSIONS = tuple(_VALUES)

USAGE = Table("usage", SCHEMA, BRIEF, usage_rows)


_MINUTE, _HOUR, _DAY = 60_000, 3_600_000, 86_400_000  # ms
_STEPS = (
    *(_MINUTE * number for number in (1, 2, 5, 10, 15, 30)),
    *(_HOUR * number for number in (1, 2, 3, 6, 12)),
    *(_DAY * number for number in (1, 2, 7, 30, 90, 365)),
)


@dataclass(frozen=True, slots=True)
class Inflow:
    """Bytes of records by store time."""

    begin: int  # ms since 1970, a multiple of `step`
    step: int  # ms
    sizes: tuple[int, ...]  # bytes in each step

    @property
    def end(self) -> int:
        """The end of the last step, in ms."""
        return self.begin + self.step * len(self.sizes)


def inflow_of(usage: Usage, most: int) -> Inflow | None:
    """Return the bytes in at most so many steps; None without records, or where clocks were years apart."""
    times = usage.times.keys.integers
    if not len(times):
        return None
    for step in _STEPS:
        if step < usage.unit:
            continue
        numbers = times // (step // usage.unit)
        first = int(numbers.min())
        if int(numbers.max()) - first < most:
            sizes = np.zeros(int(numbers.max()) - first + 1, np.int64)
            np.add.at(sizes, numbers - first, usage.times.sums[:, BYTES])
            return Inflow(first * step, step, tuple(sizes.tolist()))
    return None
