"""Offline, read-only inspection of Apache RocketMQ broker stores.

The names in `__all__` are public: they stay as they are until version 2. Everything else, also what the modules of this
package hold under names without an underscore, is private and may change with any release; what these names return is
public as far as docs/python.md names it. Each name is imported on first use: Arrow is slow to import, and many commands
do without.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rmqinspect.api import (
        FoundMessages,
        find_messages,
        forecast_start,
        open_store,
        read_table,
        unpacked,
        verify_store,
    )
    from rmqinspect.errors import NotAStore, RmqinspectError, Unreadable
    from rmqinspect.forecast.outcome import Forecast
    from rmqinspect.store.model import Store
    from rmqinspect.tables import TABLES
    from rmqinspect.verify.findings import Finding
    from rmqinspect.verify.result import VerifyResult

# Public name → its module. `verify_store`, because a name `verify` would hide the package.
_HOMES = {
    "TABLES": "tables",
    "Finding": "verify.findings",
    "Forecast": "forecast.outcome",
    "FoundMessages": "api",
    "NotAStore": "errors",
    "RmqinspectError": "errors",
    "Store": "store.model",
    "Unreadable": "errors",
    "VerifyResult": "verify.result",
    "find_messages": "api",
    "forecast_start": "api",
    "open_store": "api",
    "read_table": "api",
    "unpacked": "api",
    "verify_store": "api",
}

__all__ = [
    "TABLES",
    "Finding",
    "Forecast",
    "FoundMessages",
    "NotAStore",
    "RmqinspectError",
    "Store",
    "Unreadable",
    "VerifyResult",
    "find_messages",
    "forecast_start",
    "open_store",
    "read_table",
    "unpacked",
    "verify_store",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    """Return what completion in a notebook offers."""
    return sorted({*globals(), *__all__})
