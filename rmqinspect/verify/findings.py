"""Findings: what a check reports, folded so that ten million alike are one row."""

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace

from rmqinspect.verify.codes import BY_CODE


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem, or several alike. The fields are the columns of the table `findings`."""

    code: str
    message: str
    severity: str = ""  # the code's own unless a check knows better
    file: str | None = None
    offset: int | None = None  # position in that file
    length: int | None = None
    physical_offset: int | None = None
    topic: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    count: int = 1
    expected: str | None = None
    found: str | None = None
    # What the screen shows besides; not columns.
    timestamp: int | None = None  # store time of the record, ms
    keys: str | None = None

    def __post_init__(self) -> None:
        if not self.severity:
            object.__setattr__(self, "severity", BY_CODE[self.code].severity)


COLUMNS = (
    "code",
    "severity",
    "file",
    "offset",
    "length",
    "physical_offset",
    "topic",
    "queue_id",
    "queue_offset",
    "count",
    "expected",
    "found",
    "message",
    "broker_effect",
    "next",
)


# What says that something was not judged is never left out.
_ALWAYS_TOLD = frozenset({"ST-UNCHECKED", "ST-IO"})


class Kept:
    """Findings as they come: so many rows of each code, and how many more there were.

    What is kept for a later judgement (rows that fold, rows that turn out to be another's witness)
    needs more room than what is shown in the end.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.rows: list[Finding] = []
        self.suppressed: Counter[str] = Counter()
        self._counts: Counter[str] = Counter()

    def add(self, finding: Finding) -> None:
        """Keep a finding while there is room for its code; else count it."""
        if self.take(finding.code, 1):
            self.rows.append(finding)
        else:
            self.suppressed[finding.code] += finding.count

    def extend(self, findings: Iterable[Finding]) -> None:
        """Keep findings in their order."""
        for finding in findings:
            self.add(finding)

    def take(self, code: str, number: int) -> int:
        """Return how many of `number` rows there is room for, which are then taken; nothing is counted."""
        taken = min(number, self.limit - self._counts[code])
        self._counts[code] += taken
        return taken

    def some(self, code: str, which: Sequence[int]) -> Sequence[int]:
        """Return as many of some rows as there is room for, for `rows`; count the others."""
        taken = self.take(code, len(which))
        self.suppressed[code] += len(which) - taken
        return which[:taken]


class Findings:
    """Collects findings in file order; folds neighbours that are alike; keeps totals exact.

    `limit` bounds the rows of one code, never the counts; `left_out` counts the findings without a row.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.rows: list[Finding] = []
        self.counts: dict[str, int] = {}  # by code
        self.severities: dict[str, int] = {}
        self._kept: dict[str, int] = {}
        self.suppressed = 0

    def add(self, finding: Finding) -> None:
        """Take a finding; one that repeats the last row (code, file, kind of message) is folded into it."""
        self.counts[finding.code] = self.counts.get(finding.code, 0) + finding.count
        self.severities[finding.severity] = self.severities.get(finding.severity, 0) + finding.count
        last = self.rows[-1] if self.rows else None
        if last is not None and _alike(last, finding):
            self.rows[-1] = replace(last, count=last.count + finding.count, length=_span(last, finding))
            return
        if self._kept.get(finding.code, 0) >= self.limit and finding.code not in _ALWAYS_TOLD:
            self.suppressed += finding.count
            return
        self._kept[finding.code] = self._kept.get(finding.code, 0) + 1
        self.rows.append(finding)

    def add_counts(self, suppressed: dict[str, int]) -> None:
        """Count findings of which no row was kept."""
        for code, count in suppressed.items():
            if not count:
                continue
            self.counts[code] = self.counts.get(code, 0) + count
            severity = BY_CODE[code].severity
            self.severities[severity] = self.severities.get(severity, 0) + count
            self.suppressed += count

    def as_rows(self, store: str) -> Iterator[dict[str, object]]:
        """Yield one dictionary per row with the columns of `COLUMNS`; `store` goes into the commands."""
        for finding in self.rows:
            code = BY_CODE[finding.code]
            row = asdict(finding)
            row["broker_effect"] = code.broker_effect
            row["next"] = next_command(finding, store)
            yield {name: row[name] for name in COLUMNS}


def next_command(finding: Finding, store: str) -> str | None:
    """Return the command to run next on `store`, as a shell reads it."""
    template = BY_CODE[finding.code].next
    if template and "{at}" in template and finding.physical_offset is None:
        return None
    return template and template.format(store=shlex.quote(store), at=finding.physical_offset)


def _alike(last: Finding, finding: Finding) -> bool:
    return (
        (last.code, last.severity, last.file) == (finding.code, finding.severity, finding.file)
        and last.offset is not None
        and last.length is not None
        and finding.offset == last.offset + last.length
    )


def _span(last: Finding, finding: Finding) -> int | None:
    return None if last.length is None or finding.length is None else last.length + finding.length
