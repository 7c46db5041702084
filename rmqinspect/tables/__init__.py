"""A store as tables: each a fixed Arrow schema and a stream of record batches."""

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmqinspect.tables.table import Table

# Name -> module and constant. What some tables are made of lies on floors above: here are only their names.
_PLACES = {
    "messages": ("rmqinspect.tables.log", "MESSAGES_TABLE"),
    "segments": ("rmqinspect.tables.log", "SEGMENTS_TABLE"),
    "gaps": ("rmqinspect.tables.log", "GAPS_TABLE"),
    "queues": ("rmqinspect.tables.pointers", "QUEUES"),
    "queue_units": ("rmqinspect.tables.pointers", "QUEUE_UNITS"),
    "index_files": ("rmqinspect.tables.pointers", "INDEX_FILES"),
    "index_entries": ("rmqinspect.tables.pointers", "INDEX_ENTRIES"),
    "groups": ("rmqinspect.tables.groups", "GROUPS"),
    "topics": ("rmqinspect.tables.config", "TOPICS"),
    "subscription_groups": ("rmqinspect.tables.config", "SUBSCRIPTION_GROUPS"),
    "checkpoint": ("rmqinspect.tables.config", "CHECKPOINT"),
    "delay_offsets": ("rmqinspect.tables.config", "DELAY_OFFSETS"),
    "delays": ("rmqinspect.tables.delays", "DELAYS"),
    "rocksdb_entries": ("rmqinspect.tables.config", "ROCKSDB_ENTRIES"),
    "timer_units": ("rmqinspect.tables.pointers", "TIMER_UNITS"),
    "usage": ("rmqinspect.tables.usage", "USAGE"),
    "traces": ("rmqinspect.find.traces", "TRACES"),
    "transactions": ("rmqinspect.tables.transactions", "TRANSACTIONS"),
    "stores": ("rmqinspect.show.stores", "STORES"),
    "next_starts": ("rmqinspect.forecast.starts", "NEXT_STARTS"),
}


class _Tables(Mapping[str, "Table"]):
    """Every table by its name; `schema` has the columns, each with its meaning as `doc`.

    >>> import rmqinspect
    >>> list(rmqinspect.TABLES)[:4]
    ['messages', 'segments', 'gaps', 'queues']
    >>> rmqinspect.TABLES["queues"].schema.field("topic").type
    DataType(string)

    Imports the module of a table when it is asked for: a command needs one or two of them.
    """

    def __getitem__(self, name: str) -> "Table":
        module, constant = _PLACES[name]
        table: Table = getattr(import_module(module), constant)
        return table

    def __contains__(self, name: object) -> bool:
        return name in _PLACES

    def __iter__(self) -> Iterator[str]:
        return iter(_PLACES)

    def __len__(self) -> int:
        return len(_PLACES)


TABLES = _Tables()
