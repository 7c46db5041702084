"""What a run of `verify` is asked to do, what it found, and what it read, in the words of its screen and report."""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct, field

from rmqinspect import notebook
from rmqinspect.broker.version_estimate import VersionEstimate
from rmqinspect.choices import DEFAULT_LEVEL
from rmqinspect.commitlog.byte_account import ByteAccount
from rmqinspect.forecast.outcome import Forecast
from rmqinspect.forecast.words import verdict_line
from rmqinspect.store.model import Store
from rmqinspect.system.uri import shown
from rmqinspect.tables.read_log import LogFold
from rmqinspect.text import count, describe_size, group_digits
from rmqinspect.verify.broker_lines import BrokerLines
from rmqinspect.verify.codes import BY_CODE, levels_up_to
from rmqinspect.verify.custody import Custody
from rmqinspect.verify.findings import Finding, FindingRow, Findings
from rmqinspect.verify.log_map import LogMap
from rmqinspect.verify.loss import Loss
from rmqinspect.verify.since import Memory, Resume

if TYPE_CHECKING:
    import pyarrow as pa


class VerifyOptions(Struct, frozen=True):
    """The level, codes and limits of a run."""

    level: str = DEFAULT_LEVEL
    codes: frozenset[str] = frozenset(BY_CODE)
    max_findings: int = 1000  # rows per code; counts stay exact
    jobs: int = 1  # threads
    broker_version: str | None = None  # a release of version_estimate.RELEASES; None: estimated from the store
    memory: Memory | None = None  # what is taken over from an earlier run, and kept for the next
    fold: Callable[[], LogFold] | None = None  # makes what counts the records for another answer, as they are read
    instead: bool = False  # price the other ways to start, if this one is not safe


class VerifyResult(Struct):
    """Findings in file order, the byte account and the verdict: the same for any number of threads.

    >>> import rmqinspect
    >>> result = rmqinspect.verify_store(rmqinspect.open_store("samples/flipped-bit-5.3.3"))
    >>> result.verdict, result.complete, result.errors, result.warnings
    ('DAMAGED', True, 1, 0)
    >>> result.to_arrow().column("next").to_pylist()
    ['rmqinspect show samples/flipped-bit-5.3.3 --at 97187', 'rmqinspect forecast samples/flipped-bit-5.3.3']
    """

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
    log_map: LogMap | None = None  # None: nothing was judged
    resume: Resume | None = None  # None: nobody has asked, or the run was interrupted
    fold: LogFold | None = None  # of all records that were read; None: nobody has asked

    @property
    def complete(self) -> bool:
        """Whether everything the level covers was read."""
        return not self.unread and self.interrupted_at is None

    @property
    def verdict(self) -> str:
        """WHOLE, `WHOLE, n WARNINGS` or DAMAGED; when not all was read, `INCOMPLETE: 3 % read, no damage so far`.

        Configuration files alone are WHOLE CONFIG FILES: they say nothing of a store.
        """
        warnings = f", {self.warnings} WARNING{'S' if self.warnings > 1 else ''}" if self.warnings else ""
        if self.complete:
            what = " CONFIG FILES" if self.store.given == "config" and not self.store.segments else ""
            return "DAMAGED" if self.damage else f"WHOLE{what}{warnings}"
        return f"INCOMPLETE: {self._extent()}, {'DAMAGED' if self.damage else f'no damage so far{warnings}'}"

    @property
    def damage(self) -> int:
        """How many errors are damage, and not only something that could not be read."""
        return self.errors - self.findings.counts["ST-IO"]

    def rows(self, paths: Sequence[str] = ()) -> Iterator[FindingRow]:
        """Yield the findings, each with what the next start does there.

        `paths`: those that their commands name, if the store was opened by others.
        """
        stores = tuple(map(shown, paths)) or self.store.words
        root = (paths or self.store.paths)[0]
        return self.findings.as_rows(stores, shown(root), BrokerLines(self.next_start).line)

    def to_arrow(self) -> "pa.Table":
        """Return the table `findings`: a row each, with the next command and what the next start does there."""
        import pyarrow as pa  # the checks need none of it

        from rmqinspect.verify.finding_rows import SCHEMA, row_batches

        return pa.Table.from_batches(row_batches(self.rows()), SCHEMA)

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the verdict, the next start, the findings with their next commands."""
        names = ("severity", "code", "message", "file", "offset", "count", "next")
        found = list(self.rows())
        start = None if self.next_start is None else verdict_line(self.next_start)
        facts = (
            ("store", self.store.name),
            ("result", summary(self, None)),
            ("next start", start),
            ("lost", str(self.loss) if self.loss else None),
            ("not read", "; ".join(self.unread)),
        )
        rows = ([getattr(row, name) for name in names] for row in found)
        listed = notebook.table(names, rows, len(found)) if found else ""
        return notebook.heading(self.verdict) + notebook.labelled(facts) + listed

    def _extent(self) -> str:
        """Return how much of the log was read, or how many places were not."""
        if self.interrupted_at is None:
            return f"{count(len(self.unread), 'place')} not read"
        done = sum(account.total for account in self.accounts)
        return f"{done * 100 // max(sum(segment.size for segment in self.store.segments), 1)} % read"


def log_end(store: Store) -> int:
    """Return the physical offset behind the last segment, 0 without segments."""
    return max((segment.end for segment in store.segments), default=0)


def summary(result: VerifyResult, custody: Custody | None) -> str:
    """Return the verdict with its level, its numbers, and how much was read."""
    records = sum(account.records for account in result.accounts)
    scope = ", for this file only" if not result.store.neighbours and len(result.store.segments) == 1 else ""
    chosen = len(result.options.codes)
    if chosen < len(BY_CODE):
        scope += f", {chosen} of {len(BY_CODE)} checks"
    words = f"{result.verdict} at level {result.options.level}{scope}: {_errors(result)}, "
    return words + f"{count(result.warnings, 'warning')} in {count(records, 'record')}; {_extent(result, custody)}"


def given(store: Store) -> str | None:
    """Return what was given instead of a whole store, None for a store."""
    if store.neighbours and store.given == "store":
        return None
    words = []
    for segment in store.segments:
        what = "DLedger data file" if segment.kind == "dledger" else "commit-log segment"
        words.append(f"one {what}, base {group_digits(segment.base)}")
    if words and not store.neighbours:
        return "; ".join(words)
    kind = store.given.replace("_", " ")
    return f"{kind} files, checked on their own" if store.neighbours else f"one {kind} file, checked on its own"


def not_given(store: Store) -> str | None:
    """Return which parts of a store were not given and so not checked, None for a whole store."""
    if not store.neighbours and store.segments:
        return "the segments before and after, queues, index, checkpoint, config: not checked"
    if store.given == "store":
        return None
    return f"{'queues, index, checkpoint, config' if store.segments else 'the rest of its store'}: not checked"


def not_checked(result: VerifyResult) -> list[str]:
    """Return what was not checked, each with the option that checks it."""
    store, options = result.store, result.options
    parts = []
    if options.level != "deep" and store.given == "store" and store.segments:
        parts.append("log -> units, groups (--level deep)")
    parts += [_unchecked_words(finding) for finding in result.findings.rows if finding.code == "ST-UNCHECKED"]
    levels = levels_up_to(options.level)
    too_deep = [code for code, row in BY_CODE.items() if code in options.codes and row.level not in levels]
    if too_deep and len(options.codes) < len(BY_CODE):
        parts.append(f"{', '.join(too_deep)} (--level {BY_CODE[too_deep[-1]].level})")
    return list(dict.fromkeys(parts))


def interruption(result: VerifyResult) -> str | None:
    """Return how far the log was read when Ctrl-C came, None if it did not."""
    reached, segments = result.interrupted_at, result.store.segments
    if reached is None:
        return None
    whole = sum(segment.end <= reached for segment in segments)
    words = f"segments read: {group_digits(whole)} of {group_digits(len(segments))}"
    if whole < len(segments):
        words += f"; not checked: the log from physical offset {group_digits(reached)} on, and what needs the whole log"
    return words


def _unchecked_words(finding: Finding) -> str:
    """Return what was not checked, how much of it there is, and the option that checks it."""
    words = finding.unchecked or finding.message.removeprefix("not checked: ")
    if finding.length is None:
        return words
    size = f"{count(finding.count, 'file')}, {describe_size(finding.length)}"
    return f"{words} ({size}){f' ({finding.remedy})' if finding.remedy else ''}"


def _errors(result: VerifyResult) -> str:
    """Return the number of errors, and how many of them are only something that could not be read."""
    words, unread = count(result.errors, "error"), result.errors - result.damage
    return f"{words} ({'' if not result.damage else f'{group_digits(unread)} of them '}not read)" if unread else words


def _extent(result: VerifyResult, custody: Custody | None) -> str:
    """Return how much was read."""
    changed = len(custody.changed) if custody else 0
    if result.interrupted_at is not None:
        if result.interrupted_at >= log_end(result.store) and custody is not None and custody.undigested:
            files = f"{group_digits(len(custody.digests))} of {count(len(custody.inventory.exhibits), 'file')}"
            return f"interrupted while the digests were taken: {files}"
        return f"interrupted at physical offset {group_digits(result.interrupted_at)}"
    if changed:
        return f"{count(changed, 'file')} changed while being read"
    if result.unread:
        return "the rest was read"
    if not result.store.segments:
        return "no commit log"
    return "all bytes read" if result.log_read else "only the end of the log read"


def finding_batches(result: VerifyResult, paths: Sequence[str] = ()) -> Iterator["pa.RecordBatch"]:
    """Yield the rows of the table; `paths` are those of `VerifyResult.rows`."""
    from rmqinspect.verify.finding_rows import row_batches  # reads Arrow, which the checks do without

    return row_batches(result.rows(paths))
