"""Findings without values of messages, for `verify --redact`.

A finding may quote any value: the byte of a flipped bit, a key that no record has, a host. Its place stays, and what
its code says about all findings of its kind.
"""

from dataclasses import replace

from rmqinspect.tables.redact import Redaction
from rmqinspect.verify.codes import BY_CODE
from rmqinspect.verify.findings import Finding, Findings

# They quote names of files and errors of the system only.
_QUOTE_NOTHING = frozenset({"ST-IO", "ST-UNCHECKED"})


def redact_findings(findings: Findings, redaction: Redaction) -> None:
    """Mask the rows of findings in place. Only a finished run: its parts are computed from what findings quote."""
    findings.rows[:] = [_redacted(row, redaction) for row in findings.rows]


def _redacted(finding: Finding, redaction: Redaction) -> Finding:
    keys = " ".join(filter(None, map(redaction.one_key, (finding.keys or "").split(" "))))
    if finding.code in _QUOTE_NOTHING:
        return replace(finding, keys=keys or None)
    rule = BY_CODE[finding.code].rule
    return replace(finding, message=rule, counted=False, expected=None, found=None, keys=keys or None)
