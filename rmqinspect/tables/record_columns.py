"""Columns of the records that units point at, in the order of the units; null where no record is.

The columns of `messages` that come from the properties of records.

Decompression of message bodies, within a limit.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqinspect.codec.arrays import Bools, Ints
from rmqinspect.codec.byte_ranges import take_ranges, take_values
from rmqinspect.codec.decompress import BodyTooLarge, decompress
from rmqinspect.codec.properties import Items
from rmqinspect.commitlog.records import Records, records_at
from rmqinspect.errors import BadRecord
from rmqinspect.loops.arrays import Int32s
from rmqinspect.loops.text import find_words
from rmqinspect.schemas.message import WELL_KNOWN
from rmqinspect.store.model import Store
from rmqinspect.tables.table import TIMESTAMP, as_strings, column, millis, text
from rmqinspect.text import is_utf8

CHUNK_ROWS = 8192  # rows whose records are read together: their texts take a few MB


def columns_at(
    store: Store,
    places: Ints,
    sizes: Ints,
    columns_of: Callable[[Records], Mapping[str, pa.Array]],
    schema: Sequence[tuple[str, pa.DataType]],
) -> dict[str, pa.Array]:
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
    found = pa.concat_tables(taken).combine_chunks().take(pa.array(order, mask=order < 0))
    return {name: found.column(name).combine_chunks() for name, _ in schema}


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


def property_columns(records: Records) -> tuple[dict[str, pa.Array], Bools]:
    """Return the map of properties and the columns taken from single ones, and which records have invalid UTF-8."""
    items, raw = records.properties, records.bytes
    names, bad_names = text(take_ranges(raw, items.name_starts, items.name_ends))
    values, bad_values = text(take_ranges(raw, items.value_starts, items.value_ends))
    invalid: Bools = np.zeros(len(records), np.bool_)
    if (bad := bad_names | bad_values).any():
        invalid[items.record[bad]] = True

    def of(name: bytes) -> pa.Array:
        """Return a property of each record, null where absent."""
        which = items.of(name)
        return take_values(values, which) if (which >= 0).any() else pa.nulls(len(which), pa.string())

    columns = {
        "properties": _maps(items, names, values, _replaced(items, names, bad_names)),
        "msg_id": of(b"UNIQ_KEY"),
        "tags": of(b"TAGS"),
        "keys": _split_keys(values, items.of(b"KEYS")),
        "real_topic": pc.coalesce(of(b"REAL_TOPIC"), of(b"RETRY_TOPIC")),
        "real_queue_id": _number(of(b"REAL_QID"), pa.int32()),
        "deliver_timestamp": _deliver_time(of(b"TIMER_OUT_MS")),
    }
    return columns, invalid


def _replaced(items: Items, names: pa.Array, bad_names: Bools) -> Bools:
    """Return which items have a later one with the same name, as bytes or as escaped text."""
    replaced: Bools = items.replaced
    for record in np.unique(items.record[bad_names]).tolist() if bad_names.any() else ():
        later: set[str] = set()
        for item in range(int(items.firsts[record + 1]) - 1, int(items.firsts[record]) - 1, -1):
            name = names[item].as_py()
            replaced[item] = name in later
            later.add(name)
    return replaced


def _maps(items: Items, names: pa.Array, values: pa.Array, replaced: Bools) -> pa.Array:
    firsts = items.firsts
    if replaced.any():
        kept = np.flatnonzero(~replaced).astype(np.int32)
        names, values = take_values(names, kept), take_values(values, kept)
        firsts = np.searchsorted(kept, firsts).astype(np.int32)
    return pa.MapArray.from_arrays(pa.array(firsts), names, values)


def _split_keys(values: pa.Array, which: Int32s) -> pa.Array:
    """Return the words of KEYS, which spaces separate; none where there are no keys."""
    keys = take_values(values, which)
    borders = np.frombuffer(keys.buffers()[1], np.int32)
    content = np.frombuffer(keys.buffers()[2], np.uint8)
    room = (len(content) + len(which)) // 2  # a word takes a byte, and all but the last of a record a space
    starts, ends, firsts = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(len(borders), np.int32)
    count = find_words(content, borders, firsts, starts, ends)
    words = take_ranges(content, starts[:count], ends[:count])
    return pa.ListArray.from_arrays(pa.array(firsts), as_strings(words))


def _number(column: pa.Array, type_: pa.DataType) -> pa.Array:
    """Parse decimal texts; anything else, and numbers out of range, become null."""
    if column.null_count == len(column):
        return pa.nulls(len(column), type_)
    low, high = (-(2**31), 2**31 - 1) if type_ == pa.int32() else (-(2**63), 2**63 - 1)
    numbers = [int(value) if value is not None and _is_number(value) else None for value in column.to_pylist()]
    return pa.array([n if n is not None and low <= n <= high else None for n in numbers], type_)


def _is_number(value: str) -> bool:
    digits = value.removeprefix("-")
    return digits.isascii() and digits.isdecimal() and len(digits) < 20


def _deliver_time(column: pa.Array) -> pa.Array:
    numbers = _number(column, pa.int64())
    if numbers.null_count == len(numbers):
        return pa.nulls(len(numbers), TIMESTAMP)
    times, outside = millis(pc.fill_null(numbers, 0).to_numpy())
    return pc.if_else(pc.or_(pc.is_null(numbers), pa.array(outside)), pa.scalar(None, TIMESTAMP), times)


BATCH_SIZE = 16 << 20  # bytes of payloads after which a batch ends: at most these and one body are in memory

_UNDECODABLE, _TOO_LARGE = "body_undecodable", "body_too_large"


def decompress_bodies(
    bodies: pa.Array, compressed: Ints, compressions: pa.Array, limit: int
) -> tuple[pa.Array, dict[str, Ints], int]:
    """Replace compressed bodies by their payloads.

    Returns the bodies; the rows left as stored, by status; and the number of rows done. That number is smaller than
    `len(bodies)` where the payloads of one batch would grow too large: the caller passes the rest again.

    Source: CompressorFactory; zlib (RFC 1950), lz4 frame, zstd frame.
    """
    replaced = np.zeros(len(bodies), np.bool_)
    payloads = []
    problems: dict[str, list[int]] = {_UNDECODABLE: [], _TOO_LARGE: []}
    done, size = len(bodies), 0
    for number in compressed.tolist():
        if size > BATCH_SIZE:
            done = number
            break
        body = bodies[number].as_py()
        if not body:  # MessageDecoder#decode ignores the flag of an empty body
            continue
        compression = compressions[number].as_py()
        if compression is None:  # unknown type bits
            problems[_UNDECODABLE].append(number)
            continue
        try:
            payloads.append(decompress(body, compression, limit))
            replaced[number] = True
            size += len(payloads[-1])
        except BodyTooLarge:
            problems[_TOO_LARGE].append(number)
        except BadRecord:
            problems[_UNDECODABLE].append(number)
    by_status = {status: np.array(which, np.int64) for status, which in problems.items() if which}
    values = pa.array(payloads, pa.binary())
    payloads.clear()  # not twice beside the column they become part of
    if replaced[:done].all():
        return values, by_status, done
    whole = pc.replace_with_mask(bodies[:done], pa.array(replaced[:done]), values)
    return whole, by_status, done


def with_text_bodies(schema: pa.Schema) -> pa.Schema:
    """Return a schema whose column `body`, if there is one, is text."""
    position = schema.get_field_index("body")
    if position < 0:
        return schema
    meaning = "payload as text; null if it is not UTF-8"
    return schema.set(position, column("body", pa.string(), meaning))


def as_text_bodies(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows whose column `body`, if there is one, is text: null where the bytes are not UTF-8."""
    schema = with_text_bodies(rows.schema)
    if schema.equals(rows.schema):
        return rows
    position = schema.get_field_index("body")
    bodies = rows.column(position)
    try:
        texts = bodies.cast(pa.string())
    except pa.ArrowInvalid:
        sound = pa.array([body.is_valid and is_utf8(memoryview(body.as_buffer())) for body in bodies], pa.bool_())
        texts = pc.if_else(sound, bodies, pa.scalar(None, bodies.type)).cast(pa.string())
    return rows.set_column(position, schema.field(position), texts)
