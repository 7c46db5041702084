"""Differences without values of messages, for `diff --redact`."""

from dataclasses import replace

from rmqinspect.diff.offset_content import OffsetContent, describe_row
from rmqinspect.diff.result import DiffResult
from rmqinspect.tables.redact import Redaction

_HIDDEN = "hidden"


def redact_result(result: DiffResult, redaction: Redaction) -> None:
    """Mask the keys of the records at the first difference, and the tags codes of queue units, in place."""
    if result.at_first is not None:
        a, b = (_content(content, redaction) for content in result.at_first)
        result.at_first = a, b
    if redaction.hides("tags"):
        rows = result.differences.rows
        rows[:] = [replace(row, a=_HIDDEN, b=_HIDDEN) if row.what == "queue_units" else row for row in rows]


def _content(content: OffsetContent, redaction: Redaction) -> OffsetContent:
    if not content.row:
        return content
    row = {**content.row, "keys": [key for key in map(redaction.one_key, content.row["keys"] or ()) if key]}
    return replace(content, text=describe_row(row), row=row)
