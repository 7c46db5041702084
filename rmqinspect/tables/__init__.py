"""A store as tables: each a fixed Arrow schema and a stream of record batches."""

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmqinspect.tables.table import Table

# Name -> module and constant.
_PLACES = {
    "messages": ("log", "MESSAGES_TABLE"),
    "segments": ("log", "SEGMENTS_TABLE"),
    "gaps": ("log", "GAPS_TABLE"),
    "queues": ("queues", "QUEUES"),
    "queue_units": ("queues", "QUEUE_UNITS"),
    "index_files": ("index", "INDEX_FILES"),
    "index_entries": ("index", "INDEX_ENTRIES"),
    "groups": ("groups", "GROUPS"),
    "topics": ("config", "TOPICS"),
    "subscription_groups": ("config", "SUBSCRIPTION_GROUPS"),
    "checkpoint": ("checkpoint", "CHECKPOINT"),
    "delay_offsets": ("config", "DELAY_OFFSETS"),
    "delays": ("delays", "DELAYS"),
    "rocksdb_entries": ("rocksdb_entries", "ROCKSDB_ENTRIES"),
    "timer_units": ("timer_units", "TIMER_UNITS"),
    "usage": ("usage", "USAGE"),
    "transactions": ("transactions", "TRANSACTIONS"),
}


class _Tables(Mapping[str, "Table"]):
    """Imports the module of a table when it is asked for: a command needs one or two of them."""

    def __getitem__(self, name: str) -> "Table":
        module, constant = _PLACES[name]
        table: Table = getattr(import_module(f"rmqinspect.tables.{module}"), constant)
        return table

    def __contains__(self, name: object) -> bool:
        return name in _PLACES

    def __iter__(self) -> Iterator[str]:
        return iter(_PLACES)

    def __len__(self) -> int:
        return len(_PLACES)


TABLES = _Tables()
