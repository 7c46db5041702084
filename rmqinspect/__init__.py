"""Offline, read-only inspection of Apache RocketMQ broker stores.

The front door: a few names, imported when they are first used, because Arrow is slow to import
and not every command needs it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rmqinspect.errors import NotAStore, RmqinspectError, Unreadable
    from rmqinspect.store.discover import open_store
    from rmqinspect.store.model import Store
    from rmqinspect.tables import TABLES
    from rmqinspect.tables.table import Request, Table
    from rmqinspect.verify.options import VerifyOptions
    from rmqinspect.verify.result import VerifyResult
    from rmqinspect.verify.run import verify as verify_store

# Where each name lives: module and name there. (A function called as its module would hide it.)
_HOMES = {
    "NotAStore": ("rmqinspect.errors", "NotAStore"),
    "VerifyResult": ("rmqinspect.verify.result", "VerifyResult"),
    "Request": ("rmqinspect.tables.table", "Request"),
    "RmqinspectError": ("rmqinspect.errors", "RmqinspectError"),
    "Store": ("rmqinspect.store.model", "Store"),
    "TABLES": ("rmqinspect.tables", "TABLES"),
    "Table": ("rmqinspect.tables.table", "Table"),
    "Unreadable": ("rmqinspect.errors", "Unreadable"),
    "VerifyOptions": ("rmqinspect.verify.options", "VerifyOptions"),
    "open_store": ("rmqinspect.store.discover", "open_store"),
    "verify_store": ("rmqinspect.verify.run", "verify"),
}

__all__ = [
    "TABLES",
    "NotAStore",
    "Request",
    "RmqinspectError",
    "Store",
    "Table",
    "Unreadable",
    "VerifyOptions",
    "VerifyResult",
    "open_store",
    "verify_store",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, there = _HOMES[name]
    return getattr(import_module(module), there)
