"""The report of `verify` as one JSON document: two runs on the same files differ only in `run`.

docs/report.md has every field.
"""

import platform
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from rmqinspect.times import format_micros, format_millis, to_micros
from rmqinspect.verify.codes import CODES
from rmqinspect.verify.custody import Custody
from rmqinspect.verify.reported import SCHEMA_VERSION
from rmqinspect.verify.result import VerifyResult
from rmqinspect.verify.scope import given, interruption, not_checked, not_given, summary
from rmqinspect.verify.start_summary import start_document
from rmqinspect.version import tool_name


def report_document(
    result: VerifyResult, store: str, started: datetime, arguments: list[str], custody: Custody | None = None
) -> dict[str, Any]:
    """Return the report: verdict, byte account per segment, findings, inputs, and what the run was.

    `store` is the path as given; the commands in `next` name it. Without `custody` no later run can be
    compared with the report.
    """
    return {
        "schema_version": SCHEMA_VERSION,
        "verdict": result.verdict,
        "level": result.options.level,
        "complete": result.complete,
        "errors": result.errors,
        "warnings": result.warnings,
        "counts": dict(sorted(result.findings.counts.items())),
        "findings_left_out": result.findings.suppressed,
        "checks": [code.code for code in CODES if code.code in result.options.codes],
        "findings": [asdict(row) for row in result.rows(store)],
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
                "first_store_timestamp": _time(account.first_timestamp),
                "last_store_timestamp": _time(account.last_timestamp),
            }
            for account in result.accounts
        ],
        "queue_units": {"read": result.units, "lead_to_their_record": result.joined_units},
        "index_entries": {"lead_to_their_record": result.joined_entries},
        "loss": _loss(result),
        "broker_version": _broker_version(result),
        "unread": result.unread,
        "inputs": [
            {"file": file.name, "size": file.size, "kind": file.kind}
            for file in sorted(result.store.files, key=lambda file: file.name)
        ],
        "inferred": list(result.store.remarks),
        "custody": custody and custody.document(),
        "summary": summary(result, custody),
        "given": given(result.store),
        "not_given": not_given(result.store),
        "not_checked": not_checked(result),
        "interrupted": interruption(result),
        "next_start": start_document(result.next_start, result.log_end),
        "run": {
            "tool": tool_name(),
            "python": platform.python_version(),
            "store": store,
            "arguments": arguments,
            "jobs": result.options.jobs,
            "started": format_micros(to_micros(started)),
            "ended": format_micros(to_micros(datetime.now(UTC))),
        },
    }


def _loss(result: VerifyResult) -> dict[str, Any] | None:
    loss = result.loss
    if not loss:
        return None
    return {
        "summary": str(loss),
        "messages": dict(sorted(loss.messages.items())),
        "index_entries": loss.entries,
        "newest_store_timestamp": _time(loss.newest),
        "last_store_timestamp": _time(loss.last),
    }


def _broker_version(result: VerifyResult) -> dict[str, Any] | None:
    versions = result.versions
    if versions is None:
        return None
    why = [versions.contradiction] if versions.contradiction else []
    return {"assumed": str(versions), "why": [*why, *versions.clues], "contradiction": versions.contradiction or None}


def _time(millis: int | None) -> str | None:
    return None if millis is None else format_millis(millis)
