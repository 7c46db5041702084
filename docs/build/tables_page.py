"""`python -m docs.build.tables_page > docs/tables.md` writes the reference of all tables from their schemas."""

from collections.abc import Iterator
from textwrap import fill

import pyarrow as pa

from rmqinspect.export.part import schema_of
from rmqinspect.export.request import FINDINGS, MESSAGES, ExportRequest
from rmqinspect.tables import TABLES
from rmqinspect.tables.messages import STATUSES

_KAFKA = "messages --schema kafka"

_HEAD = """
Written by `python -m docs.build.tables_page > docs/tables.md` from the schemas that `rmqinspect decode` and
`rmqinspect export` use. Offsets are in bytes unless the name says otherwise; ranges are half-open: `end` is excluded.
Timestamps are in UTC, nearly all in whole milliseconds. Columns marked `not null` have a value in every row; any other
may be null where the store does not provide it. The comment of each column is in the schema, as `doc`, and in the
footer of Parquet files where Spark finds it. `store` is present in exports, and wherever several stores are read at
once. The types in DuckDB, pandas and Spark: [export.md](export.md#types). Example queries: [recipes.md](recipes.md).

`decode -f arrow -o rows.arrow` writes an Arrow file: `pandas.read_feather("rows.arrow")`,
`polars.read_ipc("rows.arrow")`, or `pyarrow.dataset.dataset("rows.arrow", format="arrow")`, which DuckDB queries. A
pipe gets an Arrow stream: `pyarrow.ipc.open_stream`.

On a terminal, `decode` fits a table to its width: texts are cut to 12 cells, then the widest columns are left out and
named on stderr; the first column, `status` and `kind` always stay. If less than half would be left, or with
`--columns`, each value has a line of its own. In a pipe or a file nothing is cut or left out.

Names of topics, queues, groups and files are what they are on disk, in every table, report and message. A byte of a
name that is not UTF-8 is written `\\xNN`, with two hex digits, and a backslash before an `x` as `\\x5c`: so no two
names look alike, and each `\\xNN` stands for one byte. Filters take a name as it is printed. CSV and screens also
escape characters that could control a terminal.

CSV is data for programs, and keeps every value: a cell that begins with `=`, `+`, `-` or `@` is what a producer sent,
and a spreadsheet that opens the file may take it for a formula. There, import columns as text, or open Parquet.
"""

# The meaning of a row of each table, and what its columns cannot say.
ROWS = {
    "messages": f"""
One row per record of the commit log, in physical order. Every record has a row, including half messages and the records
that end them, retries, dead letters, delayed and timer messages in their system topics, and the broker's own records.
An inner batch is one row: its body is the encoded items, `properties` has `INNER_NUM`.

`status` is `ok` or the first that applies of {", ".join(f"`{status}`" for status in STATUSES[1:])};
`rmqinspect explain STATUS` explains each. Text that is not UTF-8 (`invalid_utf8`) is escaped as names are. A time
outside the years 1 to 9999 is null.
""",
    "segments": "One row per file of the commit log, and one per hole between two of them (`missing`).",
    "gaps": """
One row per range of the commit log without records. `filler` is normal, and so are `zeros` at the end of the log.
`unknown` (unexplained bytes), `missing` (absent files), and `zeros` that records follow, are lost data.
""",
    "queues": """
One row per topic and queue, in files or in [RocksDB](rocksdb.md). `records` and `shift` need a scan of the whole
log: `export` fills them, `decode` does not.
""",
    "queue_units": """
One row per used unit of the consume queues, light queues (`%LMQ%…`) included. A record may have several units: one in
its own queue, and one in each light queue it was sent to. Queues in [RocksDB](rocksdb.md) are included.
""",
    "index_files": "One row per index file.",
    "index_entries": """
One row per entry of the index files. A record has one entry for its msg id, one for each key, and since 5.4.0 one for
its tags.
""",
    "groups": """
One row per consumer group, topic and queue of `config/consumerOffset.json`, or of `config/lmqConsumerOffset.json`. A
group has no row for a queue it never committed an offset for, and none at all if its offsets are kept on the client
(broadcasting). `no_queue`: the queue has no files, as before its first message; with the offset of a queue that must
have had some the status is `beyond_max`. `no_queue` and `behind_min` do not change the exit status. `lag` and the
offsets of groups that pop say how far they popped, not what they acknowledged: [groups](groups.md).
""",
    "topics": "One row per topic of `config/topics.json`. The log may hold records of topics deleted since.",
    "subscription_groups": "One row per consumer group of `config/subscriptionGroup.json`.",
    "checkpoint": "One row per field of the file `checkpoint`.",
    "delay_offsets": "One row per delay level of `config/delayOffset.json`.",
    "delays": """
One row per delayed message whose record is still in the log: of delay levels, by level and queue offset, then of the
timer. A message that the timer stored again before it was due has a row for each record; all but the newest are
`rolled`. `overdue`: due before the last activity of the broker, and not delivered. `lost`: passed by the broker without
a record of its id in its topic, or waiting without its record. `delete_mark`: deletes another message, which is then
`cancelled`. `unknown`: a copy may have stood where the log is damaged, or a record of its id was sent at another time.
The whole log is read, for the delivered copies. `physical_offset` and `delivered_physical_offset` join with `messages`.
""",
    "rocksdb_entries": """
One row per timer message and per half message in `rocksdbstore/`, where a broker of 5.4.0 or later keeps them with
`timerRocksDBEnable` and `transRocksDBEnable`: [rocksdb.md](rocksdb.md). Timer messages come first, by time; half
messages by physical offset. A delivered timer message stays for half an hour at least, as `done`; a half message goes
when it is committed, rolled back or given up. `physical_offset` joins with `messages`.
""",
    "timer_units": """
One row per unit of the timer log (`timerlog/`, 5.0.0 and later), in its order: what waits in the timer wheel, and what
has fired, until its file is deleted. A message has a unit for each time that it was put into the wheel. `in_wheel` is
false where a broker does not find the unit on its way from the slot's last unit back: the wheel is older than the unit,
lost, or was used again two weeks later, or a link is damaged. `physical_offset` joins with `messages`.
""",
    "usage": """
What takes the bytes of the log: one row per value of each dimension. The rows of `content` are all bytes of the log's
files: records, records not selected, filler, zeros, unknown. The rows of any other dimension are all selected records,
each once:

| dimension | a value is |
|---|---|
| `kind` | normal, half, commit, rollback, op, delayed, timer, retry, dlq, pop (checkpoints and acks), system |
| `topic`, `queue` | the stored topic, for a queue with `queue_id` |
| `tag` | the tag; `covers` none: records without a tag |
| `host` | the producer's address |
| `hour` | the beginning of an hour of the broker's clock, UTC |
| `size` | records of up to so many bytes, and of more than half of it |
| `segment` | a file of the log |

A dimension keeps up to 262,144 values. Of more, those with the fewest bytes become one row, `covers` others; then
`bytes_error` says by how much other rows may be too small. The sum of all rows is exact all the same. With `usage
--sample` all numbers are estimates, and `bytes_error` is half of their 95 % interval.
""",
    "traces": """
One row per context of a message trace: what a client with tracing switched on wrote of a message that it sent (`Pub`),
began to consume (`SubBefore`), consumed (`SubAfter`), of the end of a transaction, and of a recall. A message consumed
once has two rows of one `request_id`; each retry has two more. The records are those of `RMQ_SYS_TRACE_TOPIC`, of
`rmq_sys_TRACE_DATA_…`, of each topic whose first record begins as a trace does, and of `decode --trace-topic NAME`; of
a log without queues only those with a known name. What is not traced may have happened all the same: tracing is the
client's choice, a batch of traces is lost with its client, and a full buffer drops them. A null is written as the text
`null`, and is a null here.

`status`: `malformed` where a field is missing or is no value of its kind, so that the decoder of the clients fails,
with what can be read of it; `unknown_type` for another type than these; else that of the record, as in `messages`. A
record without a context is one row. Proxies and gRPC clients (5.x) send spans and metrics elsewhere: none of them is
in a store.
`physical_offset` joins with `messages`, and so does `msg_id`, but for batches.
""",
    "transactions": """
One row per half message, with all its copies: a broker stores a half message again at each check. The rows are in the
order of the newest copies, which `physical_offset` and `queue_offset` are about. `pending`: the broker will ask the
producer. `committed`, `rolled_back`: what the producer decided. `given_up`: checked too often, or too old; moved to
`TRANS_CHECK_MAX_TIME_TOPIC`. `outcome_unknown`: the check has gone past it, and nothing tells what was decided. `why`
says what makes a state uncertain. More in [transactions.md](transactions.md).
""",
    "stores": """
One row per store: what `info` says of it, without a full scan. `next_start` is told where that reads little, else it
is null; `next_starts` always has it. Of a part of a store, columns say what that part says.
""",
    "next_starts": """
One row per store and release: what the start of that release would do, as [forecast](forecast.md) tells it. All
releases are worked out, or the one of `--broker-version`. `may_be_writer` marks those that may have written the store:
the worst of their rows is what `forecast` answers. Releases of one `era` answer alike. Where no start can be worked
out, because a broker runs or only a part of a store was given, one row without a release says why.
""",
    FINDINGS: """
One row per problem that `rmqinspect verify` finds at its default level. Only `export` and the Spark data source have
this table; on the screen it is `verify -f table`. All codes: [findings.md](findings.md).
""",
    _KAFKA: """
The rows of `messages` with the columns of Spark's Kafka source, and `store`. Columns without a counterpart are dropped:
physical offset, hosts, ids, `status`. Usage: [export.md](export.md#as-kafka-messages).
""",
}


def page() -> str:
    """Return the page in Markdown."""
    overview = " · ".join(f"[{name}](#{name.replace(' ', '-')})" for name in ROWS)
    sections = ("\n".join(_section(name)) for name in ROWS)
    return "\n\n".join(["# The tables", _wrapped(_HEAD), _wrapped(overview), *sections]) + "\n"


def schemas() -> dict[str, pa.Schema]:
    """Return the schema of each section of the page, `store` first."""
    plain = {name: schema_of(name, ExportRequest()) for name in (*TABLES, FINDINGS)}
    return plain | {_KAFKA: schema_of(MESSAGES, ExportRequest(schema="kafka"))}


def type_words(type_: pa.DataType) -> str:
    """Return the name of a type on the page: its Arrow name, except for timestamps, which are all alike."""
    if pa.types.is_timestamp(type_):
        return "timestamp"
    if pa.types.is_list(type_):
        return f"list<{type_words(type_.value_type)}>"
    if pa.types.is_struct(type_):
        return f"struct<{', '.join(f'{part.name}: {type_words(part.type)}' for part in type_)}>"
    return str(type_)


def column_words(field: pa.Field) -> str:
    """Return the type of a column on the page, and whether it is never null."""
    return type_words(field.type) + ("" if field.nullable else " not null")


def _section(name: str) -> Iterator[str]:
    yield f"## {name}\n\n{_wrapped(ROWS[name])}\n"
    yield "| column | type | meaning |"
    yield "|---|---|---|"
    for field in schemas()[name]:
        yield f"| `{field.name}` | `{column_words(field)}` | {field.metadata[b'doc'].decode()} |"


def _wrapped(text: str) -> str:
    paragraphs = text.strip().split("\n\n")
    return "\n\n".join(fill(one, 120, break_long_words=False, break_on_hyphens=False) for one in paragraphs)


if __name__ == "__main__":
    print(page(), end="")
