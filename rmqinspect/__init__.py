"""Offline, read-only inspection of Apache RocketMQ broker stores.

The front door: a few names, imported when they are first used, because Arrow is slow to import
and not every command needs it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rmqinspect.errors import NotAStore, RmqinspectError, Unreadable
    from rmqinspect.store import Store, open_store
    from rmqinspect.tables import TABLES
    from rmqinspect.tables.table import Request, Table
    from rmqinspect.verify import Outcome, Wish
    from rmqinspect.verify import verify as verify_store

# Where each name lives: module and name there. (A function called as its module would hide it.)
_HOMES = {
    "NotAStore": ("rmqinspect.errors", "NotAStore"),
    "Outcome": ("rmqinspect.verify", "Outcome"),
    "Request": ("rmqinspect.tables.table", "Request"),
    "RmqinspectError": ("rmqinspect.errors", "RmqinspectError"),
    "Store": ("rmqinspect.store", "Store"),
    "TABLES": ("rmqinspect.tables", "TABLES"),
    "Table": ("rmqinspect.tables.table", "Table"),
    "Unreadable": ("rmqinspect.errors", "Unreadable"),
    "Wish": ("rmqinspect.verify", "Wish"),
    "open_store": ("rmqinspect.store", "open_store"),
    "verify_store": ("rmqinspect.verify", "verify"),
}

__all__ = [
    "TABLES",
    "NotAStore",
    "Outcome",
    "Request",
    "RmqinspectError",
    "Store",
    "Table",
    "Unreadable",
    "Wish",
    "open_store",
    "verify_store",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, there = _HOMES[name]
    return getattr(import_module(module), there)
