"""`python -m docs.build.tables_page > docs/tables.md` writes the page about all tables from their schemas."""

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
`rmqinspect export` use. Offsets are bytes unless the name says otherwise; ranges are half-open: `end` is the first one
behind. Timestamps are in UTC, most of them of whole milliseconds. Any column may be null where the evidence does not
say. `store` stands in exports, and wherever several stores are read at once. What the types are in DuckDB, pandas and
Spark: [export.md](export.md#types). Questions put to the tables: [recipes.md](recipes.md).
"""

# What one row of each table is, and what the columns alone cannot say.
ROWS = {
    "messages": f"""
One row per record of the commit log, in physical order. Everything that is a record has its row: also half messages and
what ended them, retries, dead letters, delayed and timer messages in their system topics, and what a broker keeps for
itself. An inner batch is one row: its body is the encoded items, `properties` has `INNER_NUM`.

`status` is `ok` or the first that holds of {", ".join(f"`{status}`" for status in STATUSES[1:])};
`rmqinspect explain STATUS` says what each means. A text that was no UTF-8 has U+FFFD in place of the bytes that were
none. A time outside of the years 1 to 9999 is null.
""",
    "segments": "One row per file of the commit log, and one per hole between two of them (`missing`).",
    "gaps": """
One row per range of the commit log that is no record. `filler`, and `zeros` at the end of the log, are normal.
Lost are `unknown`, bytes that nothing explains, and `missing`, files that are not there.
""",
    "queues": """
One row per topic and queue that has files; queues that live in RocksDB have none. `records` and `shift` follow from a
scan of the whole log: `export` fills them, `decode` does not.
""",
    "queue_units": """
One row per used unit of the consume queues, light queues (`%LMQ%…`) included. One record may have several units: of its
own queue, and of each light queue it was sent to. Queues that live in RocksDB have no row.
""",
    "index_files": "One row per index file.",
    "index_entries": """
One row per entry of the index files. A record has one for its msg id and one for each key, from 5.4.0 on also one for
its tags.
""",
    "groups": """
One row per consumer group, topic and queue of `config/consumerOffset.json`, or of `config/lmqConsumerOffset.json`. A
group that never committed an offset of a queue has no row for it, nor has one that keeps its offsets on the client
(broadcasting).
""",
    "topics": "One row per topic of `config/topics.json`. The log may hold records of topics that were deleted since.",
    "subscription_groups": "One row per consumer group of `config/subscriptionGroup.json`.",
    "checkpoint": "One row per field of the file `checkpoint`.",
    "delay_offsets": "One row per delay level of `config/delayOffset.json`.",
    FINDINGS: """
One row per problem that `rmqinspect verify` finds at level standard. Only `export` has this table; on the screen it is
`verify -f table`. Every code is explained in [findings.md](findings.md).
""",
    _KAFKA: """
The rows of `messages` with the columns of Spark's source for Kafka, and `store`. What has no place there is left out:
physical offset, hosts, ids, `status`. How to read it: [export.md](export.md#as-kafka-messages).
""",
}


def page() -> str:
    """Return the page in Markdown."""
    overview = " · ".join(f"[{name}](#{name.replace(' ', '-')})" for name in ROWS)
    sections = ("\n".join(_section(name)) for name in ROWS)
    return "\n\n".join(["# The tables", _wrapped(_HEAD), _wrapped(overview), *sections]) + "\n"


def schemas() -> dict[str, pa.Schema]:
    """Return the schema of each section of the page, the column `store` in front."""
    plain = {name: schema_of(name, ExportRequest()) for name in (*TABLES, FINDINGS)}
    return plain | {_KAFKA: schema_of(MESSAGES, ExportRequest(schema="kafka"))}


def type_words(type_: pa.DataType) -> str:
    """Return what the page calls a type: its Arrow name, but for the one kind of timestamps there is."""
    if pa.types.is_timestamp(type_):
        return "timestamp"
    if pa.types.is_list(type_):
        return f"list<{type_words(type_.value_type)}>"
    if pa.types.is_struct(type_):
        return f"struct<{', '.join(f'{part.name}: {type_words(part.type)}' for part in type_)}>"
    return str(type_)


def _section(name: str) -> Iterator[str]:
    yield f"## {name}\n\n{_wrapped(ROWS[name])}\n"
    yield "| column | type | meaning |"
    yield "|---|---|---|"
    for field in schemas()[name]:
        yield f"| `{field.name}` | `{type_words(field.type)}` | {field.metadata[b'doc'].decode()} |"


def _wrapped(text: str) -> str:
    paragraphs = text.strip().split("\n\n")
    return "\n\n".join(fill(one, 120, break_long_words=False, break_on_hyphens=False) for one in paragraphs)


if __name__ == "__main__":
    print(page(), end="")
