"""Findings without values of messages, for `verify --redact`.

A finding may quote any value: the byte of a flipped bit, a key that no record has, a host. Its place stays, and what
its code says about all findings of its kind.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import TypeVar

from rmqinspect.tables.redact import Redaction
from rmqinspect.verify.codes import BY_CODE
from rmqinspect.verify.findings import Finding, FindingRow

# They quote names of files and errors of the system only.
_QUOTE_NOTHING = frozenset({"ST-IO", "ST-UNCHECKED"})


Row = TypeVar("Row", Finding, FindingRow)


def redact_findings(rows: Iterable[Row], redaction: Redaction) -> list[Row]:
    """Return masked findings. Only of a finished run: its parts are computed from what findings quote."""
    return [_redacted(row, redaction) for row in rows]


def _redacted(finding: Row, redaction: Redaction) -> Row:
    keys = " ".join(filter(None, map(redaction.one_key, (finding.keys or "").split(" ")))) or None
    if finding.code in _QUOTE_NOTHING:
        return replace(finding, keys=keys)
    # A report may have codes of a later version.
    rule = BY_CODE[finding.code].rule if finding.code in BY_CODE else "hidden by --redact"
    return replace(finding, message=rule, counted=False, expected=None, found=None, keys=keys)
