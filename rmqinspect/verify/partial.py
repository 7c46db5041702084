"""Results of a run that Ctrl-C may end at any moment.

A run always has a result to print, replaced by better ones as it goes on:

    nothing_judged -> quick_part (long runs only) -> verify_after -> with_custody
         0 %            names, headers, lock           everything      what changed meanwhile

Ctrl-C in between ends with the newest one, marked with the physical offset up to which the log was judged.
"""

from collections.abc import Callable
from dataclasses import replace

from rmqinspect.store.model import Store
from rmqinspect.verify.custody import Custody
from rmqinspect.verify.findings import Finding, Findings
from rmqinspect.verify.options import VerifyOptions
from rmqinspect.verify.result import VerifyResult
from rmqinspect.verify.run import verify


def log_end(store: Store) -> int:
    """Return the physical offset behind the last segment, 0 without segments."""
    return max((segment.end for segment in store.segments), default=0)


def can_verify(store: Store) -> bool:
    """Return whether a store, or a part of one, contains a file that verify judges by itself."""
    files = (store.segments, store.queue_files, store.index_files, store.config_files, store.of_kind("timer_log"))
    return store.given == "store" or any(files)


def nothing_judged(store: Store, options: VerifyOptions) -> VerifyResult:
    """Return the result of a run that is interrupted before its first check."""
    return VerifyResult(store, options, Findings(options.max_findings), interrupted_at=store.log_start)


def quick_part(store: Store, options: VerifyOptions) -> tuple[VerifyResult, bool]:
    """Run the checks of level quick; return their result, and whether Ctrl-C ended them.

    For the level that was asked for it is a partial result: no part of the log is accounted for.
    """
    quick = verify(store, replace(options, level="quick"))
    return replace(
        quick, options=options, interrupted_at=store.log_start, accounts=[]
    ), quick.interrupted_at is not None


def verify_after(before: VerifyResult, progress: Callable[[int], None]) -> VerifyResult:
    """Run all checks; return their result, or `before` with the listed findings if Ctrl-C loses the new one."""
    listed: list[Finding] = []
    try:
        return verify(before.store, before.options, listed.extend, progress)
    except KeyboardInterrupt:
        return _with_listed(before, listed)


def _with_listed(before: VerifyResult, listed: list[Finding]) -> VerifyResult:
    """Add the findings of names, sizes and lock, unless the quick part has found them already."""
    if before.findings.rows:
        return before
    findings = Findings(before.options.max_findings)
    for finding in listed:
        findings.add(finding)
    return replace(
        before,
        findings=findings,
        warnings=findings.severities["warning"],
        errors=findings.severities["error"],
    )


def interrupted(result: VerifyResult) -> VerifyResult:
    """Return a result as that of an interrupted run; one that had read the log keeps all it found."""
    return result if result.interrupted_at is not None else replace(result, interrupted_at=log_end(result.store))


def with_custody(result: VerifyResult, custody: Custody) -> VerifyResult:
    """Return a result with what could not be read for the digests, and what changed during the run."""
    unread = [*result.unread, *(line for line in custody.unread if line not in result.unread)]
    changed = [f"{change.name}: changed while it was read: {change.what}" for change in custody.changed]
    return replace(result, unread=[*unread, *changed])
