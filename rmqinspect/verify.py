"""All checks of a level on one store, one outcome."""

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial

from rmqinspect.account import Account
from rmqinspect.checks.codes import CODES, levels_up_to
from rmqinspect.checks.commitlog import CheckLimits, SplitResult, check_split
from rmqinspect.checks.findings import Finding, Findings
from rmqinspect.checks.log_judge import LogJudge
from rmqinspect.checks.store_files import check_checkpoint, check_files, list_unchecked, segments_for_quick
from rmqinspect.parallel import run_ordered
from rmqinspect.resync import Unread
from rmqinspect.scan import Split, plan_splits, redo_where_borders_differ
from rmqinspect.store import Store
from rmqinspect.text import count

# Large enough that looking back at its start is nothing, small enough that all processes end together.
_SPLIT_SIZE = 64 << 20
# Below this a second process costs more than it brings.
_WORTH_PROCESSES = 128 << 20


@dataclass(frozen=True, slots=True)
class Wish:
    """What is asked of verify."""

    level: str = "standard"
    codes: frozenset[str] = frozenset(code.code for code in CODES)
    max_findings: int = 1000  # rows per code; counts stay exact
    jobs: int = 1


@dataclass(slots=True)
class Outcome:
    """What verify found. `findings` are in file order, the same for any number of processes."""

    store: Store
    wish: Wish
    findings: Findings
    accounts: list[Account] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)  # one line each
    interrupted_at: int | None = None  # physical offset up to which the log was read
    log_read: bool = True  # False when the level reads only the end of the log
    warnings: int = 0
    errors: int = 0  # damage; what could not be read is in `unread`

    @property
    def complete(self) -> bool:
        """Whether everything the level asks for was read."""
        return not self.unread and self.interrupted_at is None

    @property
    def verdict(self) -> str:
        """WHOLE, `WHOLE, n WARNINGS` or DAMAGED, then `, INCOMPLETE` where it holds."""
        if self.errors:
            words = "DAMAGED"
        elif self.warnings:
            words = f"WHOLE, {self.warnings} WARNING{'S' if self.warnings > 1 else ''}"
        else:
            words = "WHOLE"
        return words if self.complete else words + ", INCOMPLETE"


def verify(
    store: Store,
    wish: Wish,
    quick_done: Callable[[list[Finding]], None] = lambda findings: None,
    progress: Callable[[int], None] = lambda size: None,
) -> Outcome:
    """Check a store at a level, reading only.

    `quick_done` is told what names, sizes and lock show, before the log is read; `progress` is
    told how many more bytes of log were read. Ctrl-C ends the reading, not the outcome.
    """
    listed = list(check_files(store))
    quick = list(_wanted(listed, wish))
    quick_done(quick)
    judge = LogJudge(store)
    splits = splits_to_read(store, wish.level)
    interrupted_at: int | None = None
    results = _check_splits(splits, wish)
    reached = splits[0].segment.base + splits[0].start if splits else 0
    try:
        with closing(results):
            for result in results:
                judge.take(result)
                reached = result.split.segment.base + result.split.end
                progress(result.split.end - result.split.start)
    except KeyboardInterrupt:
        interrupted_at = reached
    found = quick + list(_wanted(judge.finish(), wish))
    found += [_unread_finding(store, unread) for unread in judge.unread]
    ends = [account.end for account in judge.accounts if account.end is not None]
    # The newest record may lie in what was not read.
    if interrupted_at is None and not any(unread.end > max(ends, default=0) for unread in judge.unread):
        log_end = max([*ends, *(segment.base + segment.size for segment in store.segments)], default=0)
        found += _wanted(check_checkpoint(store, judge.last_timestamp, log_end), wish)
    found += _wanted(list_unchecked(store), wish)
    outcome = Outcome(store, wish, Findings(wish.max_findings), judge.accounts, interrupted_at=interrupted_at)
    for finding in sorted(found, key=_in_file_order):
        outcome.findings.add(finding)
    outcome.findings.add_counts(judge.left_out)
    # What was not read makes the verdict incomplete, whichever findings were asked for.
    unread = {id(finding): finding.message for finding in (*listed, *found) if finding.code == "ST-IO"}
    outcome.unread = list(unread.values())
    outcome.warnings = outcome.findings.severities.get("warning", 0)
    outcome.errors = outcome.findings.severities.get("error", 0) - outcome.findings.counts.get("ST-IO", 0)
    outcome.log_read = wish.level != "quick"
    return outcome


def splits_to_read(store: Store, level: str) -> list[Split]:
    """Return the parts of the log that a level reads."""
    return plan_splits(segments_for_quick(store) if level == "quick" else store.segments, _SPLIT_SIZE)


def _check_splits(splits: list[Split], wish: Wish) -> Generator[SplitResult, None, None]:
    looked_for = {code.code for code in CODES if code.level in levels_up_to("standard")}
    check = partial(check_split, limits=CheckLimits(wish.max_findings, frozenset(looked_for & wish.codes)))
    size = sum(split.end - split.start for split in splits)
    jobs = wish.jobs if size > _WORTH_PROCESSES else 1
    with closing(run_ordered(check, splits, jobs, preload="rmqinspect.checks.commitlog")) as results:
        yield from redo_where_borders_differ(
            results, lambda result: result.split, lambda result: result.borders, check
        )


def _wanted(findings: Iterable[Finding], wish: Wish) -> Iterator[Finding]:
    return (finding for finding in findings if finding.code in wish.codes)


def _in_file_order(finding: Finding) -> tuple[int, int, str, str]:
    """The log first, by physical offset; then the store's other files by name."""
    in_log = finding.code.startswith("CL-")
    return (0 if in_log else 1, (finding.physical_offset or 0) if in_log else 0, finding.file or "", finding.code)


def _unread_finding(store: Store, unread: Unread) -> Finding:
    segment = next((s for s in store.segments if s.base <= unread.start < s.base + s.size), None)
    return Finding(
        "ST-IO", f"{unread.message}; {count(unread.end - unread.start, 'byte')} not read",
        file=segment.name if segment else None, offset=unread.start - segment.base if segment else None,
        length=unread.end - unread.start, physical_offset=unread.start,
    )  # fmt: skip
