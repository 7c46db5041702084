"""The report of verify as one JSON document: two runs on the same files differ in `run` alone."""

import platform
from datetime import UTC, datetime
from typing import Any

from rmqinspect.checks.codes import CODES
from rmqinspect.verify import Outcome
from rmqinspect.version import tool_version

# A minor change adds fields at the end, a major one renames.
SCHEMA_VERSION = 1


def report_document(outcome: Outcome, store: str, started: datetime, arguments: list[str]) -> dict[str, Any]:
    """Return the report: verdict, byte account per segment, findings, inputs, and what the run was.

    `store` is the path as given; the commands in `next` name it.
    """
    return {
        "schema_version": SCHEMA_VERSION,
        "verdict": outcome.verdict,
        "level": outcome.wish.level,
        "complete": outcome.complete,
        "errors": outcome.errors,
        "warnings": outcome.warnings,
        "counts": dict(sorted(outcome.findings.counts.items())),
        "findings_left_out": outcome.findings.left_out,
        "checks": [code.code for code in CODES if code.code in outcome.wish.codes],
        "findings": list(outcome.findings.as_rows(store)),
        "segments": [
            {
                "base": account.segment.base,
                "file": account.segment.name,
                "file_size": account.segment.size,
                "records": account.records,
                "record_bytes": account.record_bytes,
                "filler_bytes": account.gap_bytes["filler"],
                "zero_bytes": account.gap_bytes["zeros"],
                "unknown_bytes": account.gap_bytes["unknown"],
                "first_store_timestamp": iso_time(account.first_timestamp),
                "last_store_timestamp": iso_time(account.last_timestamp),
            }
            for account in outcome.accounts
        ],
        "unread": outcome.unread,
        "inputs": [
            {"file": file.name, "size": file.size, "kind": file.kind}
            for file in sorted(outcome.store.files, key=lambda file: file.name)
        ],
        "inferred": list(outcome.store.remarks),
        "run": {
            "tool": f"rmqinspect {tool_version()}",
            "python": platform.python_version(),
            "store": store,
            "arguments": arguments,
            "jobs": outcome.wish.jobs,
            "started": started.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "ended": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        },
    }


def iso_time(millis: int | None) -> str | None:
    """Return milliseconds as ISO 8601 in UTC, None where there is no such time."""
    if millis is None or not -62135596800000 <= millis < 253402300800000:
        return None
    seconds, rest = divmod(millis, 1000)
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S") + f".{rest:03}Z"
