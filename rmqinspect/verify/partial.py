"""Results of a run that Ctrl-C may end at any moment.

A run always has a result to print, replaced by better ones as it goes on:

    nothing_judged -> quick_part (long runs only) -> verify_after -> with_custody
         0 %            names, headers, lock           everything      what changed meanwhile

Ctrl-C in between ends with the newest one, marked with the physical offset up to which the log was judged.

What a run read and what it did not, in the words of its screen and its report.
"""

from collections.abc import Callable
from dataclasses import replace

from rmqinspect.store.model import Store
from rmqinspect.text import count, describe_size, group_digits
from rmqinspect.verify.codes import BY_CODE, levels_up_to
from rmqinspect.verify.custody import Custody
from rmqinspect.verify.findings import Finding, Findings
from rmqinspect.verify.next_start import verify_and_forecast
from rmqinspect.verify.result import VerifyOptions, VerifyResult
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
        return verify_and_forecast(before.store, before.options, listed.extend, progress)
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
    too_deep = [code for code in BY_CODE if code in options.codes and _needs_deeper_level(code, options)]
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


def _needs_deeper_level(code: str, options: VerifyOptions) -> bool:
    return BY_CODE[code].level not in levels_up_to(options.level)


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
