"""The screen of `verify`: findings, byte account, what was not checked, verdict."""

import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, tzinfo
from typing import NamedTuple

import click

from rmqinspect.cli.finding_blocks import SCREEN, FindingScreen
from rmqinspect.cli.labelled import line_width, screen_height
from rmqinspect.commitlog.byte_account import ByteAccount
from rmqinspect.store.model import Store
from rmqinspect.text import count, describe_size, group_digits
from rmqinspect.verify.codes import BY_CODE, levels_up_to
from rmqinspect.verify.custody import Custody
from rmqinspect.verify.findings import Finding
from rmqinspect.verify.options import VerifyOptions
from rmqinspect.verify.partial import log_end
from rmqinspect.verify.result import VerifyResult
from rmqinspect.version import tool_name

_SEGMENT_ROWS = 20  # rows of the byte account; beyond that, sound segments share rows
_FEWEST_ROWS = 3  # on a low terminal
_OTHER_LINES = 20  # that the findings and the verdict take on a screen
_CHANGES = 20  # changed files listed; the others are counted

_COLUMNS = ("segment", "size", "records", "bytes", "filler", "zeros", "unknown")
_LEFT_OUT = ("size", "filler", "zeros", "bytes")  # of the byte account on a narrow terminal, in this order


class FinishedRun(NamedTuple):
    """A run to print and to report."""

    outcome: VerifyResult
    custody: Custody | None  # None without a report
    name: str  # of the store, as given
    report: str  # path of the report, "" without one
    started: datetime
    zone: tzinfo  # of printed times


def screen(run: FinishedRun, *, colour: bool, unfold: bool) -> list[str]:
    """Return the lines of the screen: losses, findings, byte account, what was not checked, losses again, the verdict.

    The findings are folded so that the rest fits on the screen, too, but get half of it at least.
    """
    store, loss = run.outcome.store, str(run.outcome.loss) if run.outcome.loss else ""
    before = list(_given(run.outcome)) if not store.neighbours or store.given != "store" else []
    before += SCREEN.rows("lost", loss)
    after = [*_rest(run), *SCREEN.rows("lost", loss), *_verdict_lines(run, colour=colour)]
    height = screen_height()
    room = None if unfold else max(height // 2, height - len(before) - len(after) - 2)
    found = FindingScreen(run.name, run.zone, colour, room).lines(run.outcome.findings)
    return [*before, *found, *([""] if found else []), *after]


def _rest(run: FinishedRun) -> Iterator[str]:
    """Yield the lines between the findings and the verdict."""
    outcome, store = run.outcome, run.outcome.store
    yield from _account_lines(outcome)
    yield from _joined_lines(outcome)
    yield from SCREEN.rows("interrupted", _not_read(outcome))
    if outcome.versions is not None:
        yield from SCREEN.rows("version", outcome.versions.contradiction)
    yield from SCREEN.rows("not checked", "; ".join(_unchecked(outcome)))
    yield from SCREEN.rows("not given", _not_given(store))
    if run.custody is not None and run.custody.algorithm:
        yield from _custody_lines(run.custody, run.report)
        moments = _span(run.started, datetime.now(UTC))
        yield from SCREEN.rows("run", f"{tool_name()}, {moments}, arguments in the report")


def _joined_lines(outcome: VerifyResult) -> Iterator[str]:
    """Yield how many queue units and index entries point at their record."""
    if outcome.units and outcome.store.segments and (outcome.interrupted_at is None or outcome.joined_units):
        units = f"{group_digits(outcome.joined_units)} of {count(outcome.units, 'unit')}"
        yield from SCREEN.rows("queues", f"{units} lead to their record")
    if entries := outcome.joined_entries:
        lead = "entry leads" if entries == 1 else "entries lead"
        yield from SCREEN.rows("index", f"{group_digits(entries)} {lead} to their record")


def _unchecked(outcome: VerifyResult) -> list[str]:
    """Return what was not checked, each with the option that checks it."""
    store, options = outcome.store, outcome.options
    parts = []
    if options.level != "deep" and store.given == "store" and store.segments:
        none = "" if store.queue_files else ", no consume queue files"
        parts.append(f"log -> queues, groups{none} (--level deep)")
    parts += [_unchecked_words(finding) for finding in outcome.findings.rows if finding.code == "ST-UNCHECKED"]
    too_deep = [code for code in BY_CODE if code in options.codes and _needs_deeper_level(code, options)]
    if too_deep and len(options.codes) < len(BY_CODE):
        parts.append(f"{', '.join(too_deep)} (--level {BY_CODE[too_deep[-1]].level})")
    return list(dict.fromkeys(parts))


def _not_given(store: Store) -> str:
    """Return which parts of a store were not given and so not checked, "" for a whole store."""
    if not store.neighbours and store.segments:
        return "the segments before and after, queues, index, checkpoint, config: not checked"
    if store.given == "store":
        return ""
    return f"{'queues, index, checkpoint, config' if store.segments else 'the rest of its store'}: not checked"


def _needs_deeper_level(code: str, options: VerifyOptions) -> bool:
    return BY_CODE[code].level not in levels_up_to(options.level)


def _unchecked_words(finding: Finding) -> str:
    """Return what was not checked, how much of it there is, and the option that checks it."""
    words = finding.unchecked or finding.message.removeprefix("not checked: ")
    if finding.length is None:
        return words
    size = f"{count(finding.count, 'file')}, {describe_size(finding.length)}"
    return f"{words} ({size}){f' ({finding.remedy})' if finding.remedy else ''}"


def _not_read(outcome: VerifyResult) -> str:
    """Return how far the log was read when Ctrl-C came, "" if it did not."""
    reached, segments = outcome.interrupted_at, outcome.store.segments
    if reached is None:
        return ""
    whole = sum(segment.end <= reached for segment in segments)
    words = f"segments read: {group_digits(whole)} of {group_digits(len(segments))}"
    if whole < len(segments):
        words += f"; not checked: the log from physical offset {group_digits(reached)} on, and what needs the whole log"
    return words


def _custody_lines(custody: Custody, report: str) -> Iterator[str]:
    files = f"{count(len(custody.inventory.exhibits), 'file')}, {count(custody.size, 'byte')}"
    taken = f"sha256 of {group_digits(len(custody.digests))}" if custody.undigested else "sha256"
    yield from SCREEN.rows("custody", f"{files}: {taken}, size and time of each are in {report}")
    for change in custody.changed[:_CHANGES]:
        yield from SCREEN.rows("", f"changed while it was read: {change.name}: {change.what}")
    more = len(custody.changed) - _CHANGES
    if more > 0:
        yield from SCREEN.rows("", f"and {group_digits(more)} more, all listed in the report")
    same = "" if custody.changed else "; sizes and times the same before and after the run"
    yield from SCREEN.rows("", f"opened for reading only{same}")


def _span(started: datetime, ended: datetime) -> str:
    end = f"{ended:%H:%M:%S}Z" if ended.date() == started.date() else f"{ended:%Y-%m-%dT%H:%M:%S}Z"
    return f"{started:%Y-%m-%dT%H:%M:%S}Z to {end}"


def _given(outcome: VerifyResult) -> Iterator[str]:
    store = outcome.store
    words = []
    for segment in store.segments:
        what = "DLedger data file" if segment.kind == "dledger" else "commit-log segment"
        words.append(f"one {what}, base {group_digits(segment.base)}")
    kind = store.given.replace("_", " ")
    folder = f"{kind} files, checked on their own" if store.neighbours else f"one {kind} file, checked on its own"
    yield from SCREEN.rows("given", "; ".join(words) if words and not store.neighbours else folder)


def _account_lines(outcome: VerifyResult) -> Iterator[str]:
    """Yield the table of the byte account: one row per segment, and their sum."""
    accounts = outcome.accounts
    if not accounts:
        return
    most = min(_SEGMENT_ROWS, max(_FEWEST_ROWS, screen_height() - _OTHER_LINES))
    rows: list[tuple[str, ...]] = [(*_COLUMNS, "")]
    sound: list[ByteAccount] = []
    troubled = {finding.file for finding in outcome.findings.rows if finding.severity != "info"}
    for account in accounts:
        listed = account.segment.name in troubled or account.gap_bytes["unknown"] or account is accounts[-1]
        if len(accounts) > most and not listed:
            sound.append(account)
            continue
        rows += _shared_row(sound)
        sound = []
        rows.append(_account_row(str(account.segment.base), [account], _damaged(outcome, account)))
    rows += _shared_row(sound)
    if len(accounts) > 1:
        adds_up = all(account.total == account.segment.size for account in accounts)
        rows.append(_account_row("all", accounts, "adds up" if adds_up else "partly read"))
    yield from _account_table(rows)


def _account_table(rows: list[tuple[str, ...]]) -> Iterator[str]:
    """Yield the rows in columns; on a terminal without those of `_LEFT_OUT`, one after the other, until a line fits."""
    columns = list(range(len(rows[0])))
    widths = [max(len(row[column]) for row in rows) for column in columns]
    for name in _LEFT_OUT:
        if sys.stdout.isatty() and sum(widths[column] + 2 for column in columns) - 2 > line_width():
            columns.remove(rows[0].index(name))
    label, *numbers, remark = columns
    for row in rows:
        cells = (row[column].rjust(widths[column]) for column in numbers)
        yield "  ".join([row[label].ljust(widths[label]), *cells, row[remark]]).rstrip()


def _shared_row(accounts: list[ByteAccount]) -> list[tuple[str, ...]]:
    """Return one row for all these sound segments, none for no segment."""
    if not accounts:
        return []
    label = str(accounts[0].segment.base)
    if len(accounts) > 1:
        label += f" to …: {count(len(accounts), 'segment')}"
    return [_account_row(label, accounts, "")]


def _account_row(label: str, accounts: Sequence[ByteAccount], remark: str) -> tuple[str, ...]:
    numbers = [
        sum(account.segment.size for account in accounts),
        sum(account.records for account in accounts),
        sum(account.record_bytes for account in accounts),
        *(sum(account.gap_bytes[kind] for account in accounts) for kind in ("filler", "zeros", "unknown")),
    ]
    return (label, *map(group_digits, numbers), remark)


def _damaged(outcome: VerifyResult, account: ByteAccount) -> str:
    of_file = (row for row in outcome.findings.rows if row.file == account.segment.name)
    rows = [row for row in of_file if row.severity == "error" and row.code.startswith("CL-")]
    number = sum(row.count for row in rows)
    return count(number, "error") if number else ""


def _verdict_lines(run: FinishedRun, *, colour: bool) -> Iterator[str]:
    """Yield the verdict: in one line, which scripts read, or on a terminal folded."""
    for line in SCREEN.fitted("VERDICT", _verdict(run)):
        yield click.style(line, fg=_colour(run.outcome), bold=True) if colour else line


def _colour(outcome: VerifyResult) -> str:
    if outcome.damage:
        return "red"
    return "green" if outcome.complete and not outcome.warnings else "yellow"


def verdict_line(run: FinishedRun) -> str:
    """Return the verdict in one line."""
    return SCREEN.line("VERDICT", _verdict(run))


def _verdict(run: FinishedRun) -> str:
    outcome = run.outcome
    records = sum(account.records for account in outcome.accounts)
    scope = ", for this file only" if not outcome.store.neighbours and len(outcome.store.segments) == 1 else ""
    suppressed = len(BY_CODE) - len(outcome.options.codes)
    if suppressed:
        scope += f", {len(outcome.options.codes)} of {len(BY_CODE)} checks"
    words = f"{outcome.verdict} at level {outcome.options.level}{scope}: {_errors(outcome)}, "
    words += f"{count(outcome.warnings, 'warning')} in {count(records, 'record')}; {_extent(outcome, run.custody)}"
    return words


def _errors(outcome: VerifyResult) -> str:
    """Return the number of errors, and how many of them are only something that could not be read."""
    words, unread = count(outcome.errors, "error"), outcome.errors - outcome.damage
    return f"{words} ({'' if not outcome.damage else f'{group_digits(unread)} of them '}not read)" if unread else words


def _extent(outcome: VerifyResult, custody: Custody | None) -> str:
    """Return how much was read."""
    segments = outcome.store.segments
    changed = len(custody.changed) if custody else 0
    if outcome.interrupted_at is not None:
        if outcome.interrupted_at >= log_end(outcome.store) and custody is not None and custody.undigested:
            files = f"{group_digits(len(custody.digests))} of {count(len(custody.inventory.exhibits), 'file')}"
            return f"interrupted while the digests were taken: {files}"
        return f"interrupted at physical offset {group_digits(outcome.interrupted_at)}"
    if changed:
        return f"{count(changed, 'file')} changed while being read"
    if outcome.unread:
        return "the rest was read"
    if not segments:
        return "no commit log"
    return "all bytes read" if outcome.log_read else "only the end of the log read"
