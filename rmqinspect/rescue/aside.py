"""What could not be saved, beside the new store: rows with all that can be read, and the bytes.

NEW.aside/messages.parquet          a row for each place: what its head says, as far as it can be read;
                                    and each sound record that only a source has which was not chosen
NEW.aside/00000000000000097187.bin  the bytes of the log from that physical offset on
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rmqinspect.codec.layout import ParsedFields
from rmqinspect.rescue.log_plan import Lost
from rmqinspect.rescue.new_store import NewStore
from rmqinspect.rescue.not_chosen import OnlyThere
from rmqinspect.rescue.ranges import write_at
from rmqinspect.rescue.sources import Source, read_log
from rmqinspect.system.output_file import as_refusal

_STEP = 4 << 20  # bytes per read

SCHEMA = pa.schema(
    [
        ("physical_offset", pa.int64()),
        ("size", pa.int64()),
        ("status", pa.string()),
        ("source", pa.string()),
        ("file", pa.string()),
        ("topic", pa.string()),
        ("queue_id", pa.int32()),
        ("queue_offset", pa.int64()),
        ("store_timestamp", pa.timestamp("ms", "UTC")),
        ("born_timestamp", pa.timestamp("ms", "UTC")),
        ("sys_flag", pa.int32()),
        ("flag", pa.int32()),
        ("reconsume_times", pa.int32()),
        ("prepared_transaction_offset", pa.int64()),
        ("properties", pa.map_(pa.string(), pa.string())),
        ("body", pa.binary()),
    ]
)
_NUMBERS = ("sys_flag", "flag", "reconsume_times", "prepared_transaction_offset")


def write_aside(
    new: NewStore, lost: Sequence[Lost], sources: Sequence[Source], others: Iterator[OnlyThere]
) -> dict[int, str]:
    """Write what is lost beside the new store; return the names of the files with bytes, by physical offset.

    `others`: sound records of sources that were not chosen; they are taken one by one.

    :raises Refused: it cannot be written.
    """
    first = next(others, None)
    if not lost and first is None:
        return {}
    folder, files = new.make_aside(), {}
    rows: list[dict[str, Any]] = []
    for one in sorted(lost, key=lambda one: one.start):
        source = None if one.source is None else sources[one.source]
        name = None
        if source is not None:
            name = f"{one.start:020d}.bin"
            path = os.path.join(folder, name)
            if not os.path.exists(path):
                _write_bytes(path, source, one.start, one.end)
            files[one.start] = name
        rows.append(_row(one, None if source is None else source.name, name))
    path = os.path.join(folder, "messages.parquet")
    with as_refusal(path), open(path, "xb") as out, pq.ParquetWriter(out, SCHEMA) as table:
        table.write_table(pa.Table.from_pylist(rows, SCHEMA))
        for some in _batched([] if first is None else chain([first], others)):
            table.write_table(pa.Table.from_pylist([_row(one, name, None) for name, one in some], SCHEMA))
    return files


def _batched(rows: Iterable[OnlyThere]) -> Iterator[list[OnlyThere]]:
    """Yield rows in lists whose records take a bounded number of bytes."""
    some: list[OnlyThere] = []
    size = 0
    for row in rows:
        some.append(row)
        size += row[1].end - row[1].start
        if size >= _STEP:
            yield some
            some, size = [], 0
    if some:
        yield some


def _write_bytes(path: str, source: Source, start: int, end: int) -> None:
    """Write bytes of a source's log, long zeros as holes; what the system refuses to read is zeros."""
    with as_refusal(path), open(path, "xb") as out:
        out.truncate(end - start)
        for at in range(start, end, _STEP):
            raw = read_log(source.store, at, min(_STEP, end - at))
            if raw.strip(b"\0"):
                write_at(out, at - start, raw)


def _row(lost: Lost, source: str | None, file: str | None) -> dict[str, Any]:
    row: dict[str, Any] = {
        "physical_offset": lost.start,
        "size": lost.end - lost.start,
        "status": lost.why,
        "source": source,
        "file": file,
        "topic": lost.topic,
        "queue_id": lost.queue_id,
        "queue_offset": lost.queue_offset,
    }
    fields = lost.fields
    if fields is None:
        return row
    row |= {name: fields.number(name) for name in _NUMBERS if name in fields.fields}
    row |= {name: _time(fields, name) for name in ("store_timestamp", "born_timestamp")}
    row["topic"] = row["topic"] or fields.topic or None
    for name in ("queue_id", "queue_offset"):
        if row[name] is None and name in fields.fields:
            row[name] = fields.number(name)
    row["properties"] = list(fields.properties.items())
    if "body" in fields.fields:
        row["body"] = bytes(fields.fields["body"].value)
    return row


_LAST_TIME = 1 << 52  # ms: what Arrow prints


def _time(fields: ParsedFields, name: str) -> int | None:
    value = fields.number(name)
    return value if name in fields.fields and abs(value) < _LAST_TIME else None
