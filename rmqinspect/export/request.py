"""What is asked of an export: all that decides which rows stand in which file."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rmqinspect.tables.filters import Selection
from rmqinspect.tables.redact import Redaction

FILE_SIZE = 256 << 20
"""Bytes of log in one file unless told: some ten thousand to a million records."""

MESSAGES, FINDINGS = "messages", "findings"
# Tables that are made of what reading the log tells.
OF_THE_LOG = frozenset({"segments", "gaps", "queues"})

SCHEMAS = ("native", "kafka")
PARTITIONS = ("topic", "day", "queue_id", "store")


@dataclass(frozen=True)
class ExportRequest:
    """What is asked of an export; picklable, and the same for all of its processes."""

    tables: tuple[str, ...] = (MESSAGES,)
    file_size: int = FILE_SIZE
    schema: str = "native"  # of SCHEMAS
    partition_by: tuple[str, ...] = ()  # of PARTITIONS
    selection: Selection = field(default_factory=Selection)
    redaction: Redaction | None = None
    raw_body: bool = False
    max_body: int = 64 << 20
    closed_only: bool = False
    relative: tuple[tuple[str, str], ...] = ()  # since, until as they were given, where they move with time or store

    def as_document(self) -> dict[str, Any]:
        """Return what an incremental export must find unchanged. A key of --redact is told by a hash of it."""
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
    """Return the filters in use by their names."""
    plain = Selection()
    names = [name for name in selection.__dataclass_fields__ if name != "topics_seen"]
    used = {name: getattr(selection, name) for name in names}
    return {name: _listed(value) for name, value in used.items() if value != getattr(plain, name)}


def _listed(value: Any) -> Any:
    return [_listed(one) for one in value] if isinstance(value, tuple) else value


def _redacted(redaction: Redaction | None) -> Mapping[str, str | None]:
    if redaction is None:
        return {}
    return {
        word: None if key is None else hashlib.sha256(b"rmqinspect key " + key).hexdigest()[:16]
        for word, key in sorted(redaction.keys.items())
    }
