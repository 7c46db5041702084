"""Offline, read-only inspection of Apache RocketMQ broker stores.

The public names, each imported on first use: Arrow is slow to import, and many commands do without.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rmqinspect.errors import NotAStore, RmqinspectError, Unreadable
    from rmqinspect.rocksdb.unpack import Unpacking, unpacked
    from rmqinspect.store.discover import open_store
    from rmqinspect.store.model import Store
    from rmqinspect.tables import TABLES
    from rmqinspect.tables.table import Request, Table
    from rmqinspect.verify.result import VerifyOptions, VerifyResult
    from rmqinspect.verify.run import verify as verify_store

# Public name → (module, name there). `verify_store`, because a name `verify` would hide the package.
_HOMES = {
    "NotAStore": ("rmqinspect.errors", "NotAStore"),
    "VerifyResult": ("rmqinspect.verify.result", "VerifyResult"),
    "Request": ("rmqinspect.tables.table", "Request"),
    "RmqinspectError": ("rmqinspect.errors", "RmqinspectError"),
    "Store": ("rmqinspect.store.model", "Store"),
    "TABLES": ("rmqinspect.tables", "TABLES"),
    "Table": ("rmqinspect.tables.table", "Table"),
    "Unreadable": ("rmqinspect.errors", "Unreadable"),
    "VerifyOptions": ("rmqinspect.verify.result", "VerifyOptions"),
    "Unpacking": ("rmqinspect.rocksdb.unpack", "Unpacking"),
    "open_store": ("rmqinspect.store.discover", "open_store"),
    "unpacked": ("rmqinspect.rocksdb.unpack", "unpacked"),
    "verify_store": ("rmqinspect.verify.run", "verify"),
}

__all__ = [
    "TABLES",
    "NotAStore",
    "Request",
    "RmqinspectError",
    "Store",
    "Table",
    "Unpacking",
    "Unreadable",
    "VerifyOptions",
    "VerifyResult",
    "open_store",
    "unpacked",
    "verify_store",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, there = _HOMES[name]
    return getattr(import_module(module), there)
