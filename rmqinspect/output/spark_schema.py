"""The schema of a Parquet file as Spark writes it into the footer: Spark shows the comments of columns only from there.

Source: Spark's `ParquetFileFormat#readSchemaFromFooter` and `DataType#json`.
"""

import json
from typing import Any

import pyarrow as pa

KEY = "org.apache.spark.sql.parquet.row.metadata"

_NAMES = {
    pa.string(): "string",
    pa.binary(): "binary",
    pa.bool_(): "boolean",
    pa.int8(): "byte",
    pa.int32(): "integer",
    pa.int64(): "long",
    pa.float64(): "double",
}


def spark_schema(schema: pa.Schema) -> str:
    """Return the schema as Spark's JSON, with `doc` of each field as its comment."""
    return json.dumps(_type(pa.struct(list(schema))), separators=(",", ":"))


def _type(type_: pa.DataType) -> Any:
    if pa.types.is_struct(type_):
        return {"type": "struct", "fields": [_field(field) for field in type_]}
    if pa.types.is_list(type_):
        return {"type": "array", "elementType": _type(type_.value_type), "containsNull": True}
    if pa.types.is_map(type_):
        of_entry = {"keyType": _type(type_.key_type), "valueType": _type(type_.item_type), "valueContainsNull": True}
        return {"type": "map", **of_entry}
    # All times are instants.
    return "timestamp" if pa.types.is_timestamp(type_) else _NAMES[type_]


def _field(field: pa.Field) -> dict[str, Any]:
    doc = (field.metadata or {}).get(b"doc", b"").decode()
    notes = {"comment": doc} if doc else {}
    return {"name": field.name, "type": _type(field.type), "nullable": field.nullable, "metadata": notes}
