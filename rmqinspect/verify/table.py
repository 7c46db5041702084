"""The table `findings`: what verify returns, as Arrow.

Findings without values of messages, for `verify --redact`.

A finding may quote any value: the byte of a flipped bit, a key that no record has, a host. Its place stays, and what
its code says about all findings of its kind.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import msgspec
import pyarrow as pa

from rmqinspect.tables.redact import Redaction
from rmqinspect.tables.table import column
from rmqinspect.verify.codes import BY_CODE
from rmqinspect.verify.findings import Finding, FindingRow
from rmqinspect.verify.result import VerifyResult

SCHEMA = pa.schema(
    [
        column("code", pa.string(), "stable id; `rmqinspect verify --list-checks` has them all"),
        column("severity", pa.string(), "error, warning, info"),
        column("file", pa.string(), "relative to the store"),
        column("offset", pa.int64(), "position in that file"),
        column("length", pa.int64(), "bytes concerned"),
        column("physical_offset", pa.int64(), "commit-log offset where it applies"),
        column("topic", pa.string(), "topic of the record concerned"),
        column("queue_id", pa.int32(), "its queue"),
        column("queue_offset", pa.int64(), "its logical offset in the queue"),
        column("count", pa.int64(), "1, or how many alike were folded into this row"),
        column("expected", pa.string(), "what should be there, short"),
        column("found", pa.string(), "what is there, short"),
        column("message", pa.string(), "what it is and why it matters"),
        column("broker_effect", pa.string(), "what the next start does there, and what a client gets if it stays"),
        column("next", pa.string(), "the command to run next"),
        column("do", pa.string(), "what a person has to do, null if nothing"),
    ]
)


def finding_batches(result: VerifyResult, store: str) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the table; `store` is the path that the commands in `next` name."""
    return row_batches(result.rows(store))


def row_batches(rows: Iterable[FindingRow]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the table, from a run or from its report."""
    if columns := [row.columns() for row in rows]:
        yield pa.RecordBatch.from_pylist(columns, schema=SCHEMA)


# They quote names of files and errors of the system only.
_QUOTE_NOTHING = frozenset({"ST-IO", "ST-UNCHECKED"})


def redact_findings(rows: Iterable[Finding], redaction: Redaction) -> list[Finding]:
    """Return masked findings. Only of a finished run: its parts are computed from what findings quote."""
    return [replace(row, **_masked(row, redaction)) for row in rows]


def redact_rows(rows: Iterable[FindingRow], redaction: Redaction) -> list[FindingRow]:
    """Return masked findings of a report."""
    return [msgspec.structs.replace(row, **_masked(row, redaction)) for row in rows]


def _masked(finding: Finding | FindingRow, redaction: Redaction) -> dict[str, Any]:
    """Return the fields that are replaced, with their values."""
    keys = " ".join(filter(None, map(redaction.one_key, (finding.keys or "").split(" ")))) or None
    if finding.code in _QUOTE_NOTHING:
        return {"keys": keys}
    # A report may have codes of a later version.
    rule = BY_CODE[finding.code].rule if finding.code in BY_CODE else "hidden by --redact"
    return {"message": rule, "counted": False, "expected": None, "found": None, "keys": keys}
