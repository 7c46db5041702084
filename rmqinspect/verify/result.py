"""What a run of `verify` found.

What a run of `verify` is asked to do.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from rmqinspect.broker.version_estimate import VersionEstimate
from rmqinspect.commitlog.byte_account import ByteAccount
from rmqinspect.forecast.outcome import Forecast
from rmqinspect.store.model import Store
from rmqinspect.text import count
from rmqinspect.verify.broker_lines import BrokerLines
from rmqinspect.verify.codes import BY_CODE, DEFAULT_LEVEL
from rmqinspect.verify.findings import FindingRow, Findings
from rmqinspect.verify.loss import Loss


@dataclass(frozen=True, slots=True)
class VerifyOptions:
    """The level, codes and limits of a run."""

    level: str = DEFAULT_LEVEL
    codes: frozenset[str] = frozenset(BY_CODE)
    max_findings: int = 1000  # rows per code; counts stay exact
    jobs: int = 1  # threads
    broker_version: str | None = None  # a release of version_estimate.RELEASES; None: estimated from the store


@dataclass(slots=True)
class VerifyResult:
    """Findings in file order, the byte account and the verdict: the same for any number of threads."""

    store: Store
    options: VerifyOptions
    findings: Findings
    accounts: list[ByteAccount] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)  # what could not be read, one line each
    interrupted_at: int | None = None  # physical offset up to which the log was read
    log_read: bool = True  # False: the level reads only the end of the log
    warnings: int = 0
    errors: int = 0  # damage, and what could not be read
    versions: VersionEstimate | None = None  # whose rules were applied; None at level quick
    loss: Loss = field(default_factory=Loss)
    joined_units: int = 0  # queue units that point at their record
    joined_entries: int = 0  # index entries that point at a record with their key
    units: int = 0  # of messages, in all queues
    log_end: int | None = None  # physical offset behind the last record; None: not known
    next_start: Forecast | None = None  # None: not a whole store, or nobody has asked

    @property
    def complete(self) -> bool:
        """Whether everything the level covers was read."""
        return not self.unread and self.interrupted_at is None

    @property
    def verdict(self) -> str:
        """WHOLE, `WHOLE, n WARNINGS` or DAMAGED; when not all was read, `INCOMPLETE: 3 % read, no damage so far`."""
        warnings = f", {self.warnings} WARNING{'S' if self.warnings > 1 else ''}" if self.warnings else ""
        if self.complete:
            return "DAMAGED" if self.damage else f"WHOLE{warnings}"
        return f"INCOMPLETE: {self._extent()}, {'DAMAGED' if self.damage else f'no damage so far{warnings}'}"

    @property
    def damage(self) -> int:
        """How many errors are damage, and not only something that could not be read."""
        return self.errors - self.findings.counts["ST-IO"]

    def rows(self, store: str) -> Iterator[FindingRow]:
        """Yield the findings, each with what the next start does there; `store` is the path in their commands."""
        return self.findings.as_rows(store, BrokerLines(self.next_start).line)

    def _extent(self) -> str:
        """Return how much of the log was read, or how many places were not."""
        if self.interrupted_at is None:
            return f"{count(len(self.unread), 'place')} not read"
        done = sum(account.total for account in self.accounts)
        return f"{done * 100 // max(sum(segment.size for segment in self.store.segments), 1)} % read"
