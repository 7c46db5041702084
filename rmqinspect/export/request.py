"""The request of an export: everything that decides which rows go to which file."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rmqinspect.tables.filters import Selection
from rmqinspect.tables.redact import Redaction

FILE_SIZE = 256 << 20
"""Default for the bytes of log in one file: some ten thousand to a million records."""

MESSAGES, FINDINGS = "messages", "findings"
# Tables that are computed while the log is read.
LOG_TABLES = frozenset({"segments", "gaps", "queues", "usage"})

SCHEMAS = ("native", "kafka")
PARTITIONS = ("topic", "day", "queue_id", "store")


@dataclass(frozen=True)
class ExportRequest:
    """What to export, and how. Picklable; the same for all parts of an export."""

    tables: tuple[str, ...] = (MESSAGES,)
    file_size: int = FILE_SIZE
    schema: str = "native"  # of SCHEMAS
    partition_by: tuple[str, ...] = ()  # of PARTITIONS
    selection: Selection = field(default_factory=Selection)
    redaction: Redaction | None = None
    raw_body: bool = False
    max_body: int = 64 << 20
    closed_only: bool = False
    relative: tuple[tuple[str, str], ...] = ()  # since and until as given, where they are relative: `-2h`, `last-5m`

    def as_document(self) -> dict[str, Any]:
        """Return what must be equal for --incremental. A key of --redact appears as a hash."""
        return {
            "tables": list(self.tables),
            "file_size": self.file_size,
            "schema": self.schema,
            "partition_by": list(self.partition_by),
            "filters": _filters(self.selection) | dict(self.relative),
            "redacted": _redacted(self.redaction),
            "raw_body": self.raw_body,
            "max_body": self.max_body,
        }


def _filters(selection: Selection) -> dict[str, Any]:
    """Return the filters in use, by name."""
    plain = Selection()
    # `in_queues` follows from `queue_offsets`, `unconsumed_in` from `unconsumed` and the store.
    hidden = ("topics_seen", "in_queues", "unconsumed_in")
    names = [name for name in selection.__dataclass_fields__ if name not in hidden]
    values = {name: getattr(selection, name) for name in names}
    return {name: _as_list(value) for name, value in values.items() if value != getattr(plain, name)}


def _as_list(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    return [_as_list(one) for one in value] if isinstance(value, tuple) else value


def _redacted(redaction: Redaction | None) -> Mapping[str, str | None]:
    if redaction is None:
        return {}
    return {
        word: None if key is None else hashlib.sha256(b"rmqinspect key " + key).hexdigest()[:16]
        for word, key in sorted(redaction.keys.items())
    }
