"""Results of a query as the formats take them: types that rows of tables do not have become texts, or plainer types.

Parquet and Arrow keep the types of DuckDB; texts for people and programs have numbers, texts, bytes, times, lists and
maps of these. Anything else is its JSON, or what Python prints of it.

Each column has a name of its own: a join of two tables has `store` twice, and neither an object in JSON nor most
readers of Parquet can have that. The second is `store_1`, as DuckDB names it in a table made of the query.

Equal rows are equal bytes: DuckDB leaves in the place of a number that is null what its memory held, and an Arrow file
would have it, another digest in each run. There are zeros.
"""

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rmqinspect.tables.table import TIMESTAMP

_WIDEST = 32
"""Bytes of the widest number, a decimal256."""


def written_schema(schema: pa.Schema, *, texts: bool) -> pa.Schema:
    """Return the columns as they are written; `texts`: to a format of texts."""
    types = (_plain(one.type) if texts else _kept(one.type) for one in schema)
    return pa.schema([pa.field(name, type_) for name, type_ in zip(_distinct(schema.names), types, strict=True)])


def as_written(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return rows with the types of `written_schema`."""
    pairs = zip(batch.columns, schema, strict=True)
    arrays = [_zeroed(_converted(array, field.type)) for array, field in pairs]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _distinct(names: Sequence[str]) -> list[str]:
    """Return names of which no two are equal, whether their case counts or not."""
    taken = {name.casefold() for name in names}
    met: set[str] = set()
    distinct = []
    for name in names:
        one, number = name, 0
        while one.casefold() in met or (number and one.casefold() in taken):
            number += 1
            one = f"{name}_{number}"
        met.add(one.casefold())
        distinct.append(one)
    return distinct


def _kept(type_: pa.DataType) -> pa.DataType:
    """Return a type that files of any reader have."""
    if pa.types.is_timestamp(type_) and type_.tz is not None:
        return TIMESTAMP
    return pa.string() if pa.types.is_null(type_) or pa.types.is_interval(type_) else type_


def _plain(type_: pa.DataType) -> pa.DataType:
    types = pa.types
    if types.is_timestamp(type_) and type_.tz is not None:
        return TIMESTAMP
    if types.is_boolean(type_) or types.is_integer(type_) or types.is_floating(type_) or types.is_decimal(type_):
        return type_
    if types.is_string(type_) or types.is_binary(type_):
        return type_
    if types.is_large_binary(type_):
        return pa.binary()
    if types.is_map(type_) and type_.key_type == pa.string() and _plain(type_.item_type) == type_.item_type:
        return type_
    if types.is_list(type_) and _plain(type_.value_type) == type_.value_type:
        return type_
    return pa.string()


def _converted(array: pa.Array, type_: pa.DataType) -> pa.Array:
    if array.type == type_:
        return array
    if pa.types.is_dictionary(array.type):
        return _converted(array.dictionary_decode(), type_)
    if type_ != pa.string() or pa.types.is_large_string(array.type) or pa.types.is_string_view(array.type):
        return array.cast(type_)
    return pa.array([None if value is None else _text(value) for value in array.to_pylist()], type_)


def _zeroed(array: pa.Array) -> pa.Array:
    """Return an array with zeros in the places of numbers, times and truth values that are null."""
    type_ = array.type
    if not array.null_count or not (pa.types.is_primitive(type_) or pa.types.is_decimal(type_)):
        return array
    zero = pa.Array.from_buffers(type_, 1, [None, pa.py_buffer(bytes(_WIDEST))])[0]
    buffers = [pc.is_valid(array).buffers()[1], pc.fill_null(array, zero).buffers()[1]]
    return pa.Array.from_buffers(type_, len(array), buffers, array.null_count)


def _text(value: Any) -> str:
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False, default=str, separators=(",", ":"))
    return str(value)
