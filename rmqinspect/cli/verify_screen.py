"""The screen of `verify`: findings, byte account, what was not checked, verdict."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, tzinfo
from typing import NamedTuple

import click

from rmqinspect.cli.labelled import WIDTH, Screen, fold, pad
from rmqinspect.commitlog.byte_account import ByteAccount
from rmqinspect.store.model import Store
from rmqinspect.text import count, describe_size, escape, group_digits
from rmqinspect.times import format_millis
from rmqinspect.verify.code_groups import OF_UNITS
from rmqinspect.verify.codes import BY_CODE, levels_up_to
from rmqinspect.verify.custody import Custody
from rmqinspect.verify.findings import Finding, next_command, what_to_do
from rmqinspect.verify.options import VerifyOptions
from rmqinspect.verify.partial import log_end
from rmqinspect.verify.result import VerifyResult
from rmqinspect.version import tool_name

SCREEN = Screen(indent=13)
_DETAIL = Screen(indent=8, lead=SCREEN.indent)

_SEGMENT_ROWS = 20  # rows of the byte account; beyond that, sound segments share rows
_CHANGES = 20  # changed files listed; the others are counted

_COLOURS = {"error": "red", "warning": "yellow", "info": "cyan"}

_COLUMNS = ("segment", "size", "records", "bytes", "filler", "zeros", "unknown")


class FinishedRun(NamedTuple):
    """A run to print and to report."""

    outcome: VerifyResult
    custody: Custody | None  # None without a report
    name: str  # of the store, as given
    report: str  # path of the report, "" without one
    started: datetime
    zone: tzinfo  # of printed times


def screen(run: FinishedRun, colour: bool) -> Iterator[str]:
    """Yield the lines of the screen: findings, byte account, joins, what was not checked, the verdict."""
    outcome, store = run.outcome, run.outcome.store
    if not store.neighbours or store.given != "store":
        yield from _given(outcome)
    yield from SCREEN.rows("lost", str(outcome.loss) if outcome.loss else "")
    shown = [finding for finding in outcome.findings.rows if finding.code != "ST-UNCHECKED"]
    for finding in shown:
        yield from _finding_lines(finding, run, colour)
    if outcome.findings.suppressed:
        yield SCREEN.line("", f"and {group_digits(outcome.findings.suppressed)} more: --max-findings shows them")
    if shown:
        yield ""
    yield from _account_lines(outcome)
    yield from _joined_lines(outcome)
    yield from SCREEN.rows("interrupted", _not_read(outcome))
    yield from SCREEN.rows("not checked", "; ".join(_unchecked(outcome)))
    yield from SCREEN.rows("not given", _not_given(store))
    if run.custody is not None and run.custody.algorithm:
        yield from _custody_lines(run.custody, run.report)
        moments = _span(run.started, datetime.now(UTC))
        yield from SCREEN.rows("run", f"{tool_name()}, {moments}, arguments in the report")
    yield verdict_line(run)


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


def _finding_lines(finding: Finding, run: FinishedRun, colour: bool) -> Iterator[str]:
    """Yield what is wrong, where, at which record, with which values; then what a broker does and what to do next."""
    code = BY_CODE[finding.code]
    yield from _headline(finding, colour)
    details = [where(finding), _record(finding, run.zone) or ""]
    if finding.count > 1 and not finding.counted:
        details.append(f"{group_digits(finding.count)} in all")
    pairs = (("expected", finding.expected), ("found", finding.found))
    details.append(", ".join(f"{label} {value}" for label, value in pairs if value is not None))
    for detail in details:
        yield from SCREEN.rows("", detail)
    if finding.severity == "info":
        return
    if code.broker_effect:
        yield from _DETAIL.rows("broker", code.broker_effect)
    if action := what_to_do(finding):
        yield from _DETAIL.rows("do", action)
    if command_next := next_command(finding, run.name):
        yield _DETAIL.line("next", command_next)


def _headline(finding: Finding, colour: bool) -> Iterator[str]:
    """Yield the lines of code, severity and message."""
    label = pad(finding.code, max(SCREEN.indent, len(finding.code) + 1))
    severity = f"{finding.severity:8} "
    first, *rest = fold(escape(finding.message), WIDTH - SCREEN.indent, WIDTH - len(label) - len(severity))
    yield f"{label}{click.style(severity, fg=_COLOURS[finding.severity]) if colour else severity}{first}"
    yield from (f"{'':{SCREEN.indent}}{line}" for line in rest)


def where(finding: Finding) -> str:
    """Return the file and range of a finding, "" for a remark about the whole store."""
    place = finding.file or ""
    if finding.severity == "info" and finding.offset is None:
        return ""
    if place and finding.offset is not None:
        place += f" at {group_digits(finding.offset)} ({finding.offset:#x})"
        if finding.length:
            place += f", {group_digits(finding.length)} bytes"
    return place


def _record(finding: Finding, zone: tzinfo) -> str | None:
    """Return the record or queue unit that a finding is about, None without one."""
    if finding.topic is None:
        return None
    if finding.physical_offset is None:
        place = "" if finding.queue_offset is None else f" offset {finding.queue_offset}"
        return f"{finding.topic} queue {finding.queue_id}{place}"
    queue = f"{finding.topic} queue {finding.queue_id} offset {finding.queue_offset}"
    if finding.code in OF_UNITS:
        return f"unit of {queue}, points at {group_digits(finding.physical_offset)}"
    text = f"record {group_digits(finding.physical_offset)}: {queue}"
    if finding.keys:
        text += f", key {finding.keys.split(' ')[0]}"
    if finding.timestamp is not None and (stored := format_millis(finding.timestamp, zone)) is not None:
        text += f", {stored}"
    return text


def _account_lines(outcome: VerifyResult) -> Iterator[str]:
    """Yield the table of the byte account: one row per segment, and their sum."""
    accounts = outcome.accounts
    if not accounts:
        return
    rows: list[tuple[str, ...]] = [(*_COLUMNS, "")]
    sound: list[ByteAccount] = []
    troubled = {finding.file for finding in outcome.findings.rows if finding.severity != "info"}
    for account in accounts:
        listed = account.segment.name in troubled or account.gap_bytes["unknown"] or account is accounts[-1]
        if len(accounts) > _SEGMENT_ROWS and not listed:
            sound.append(account)
            continue
        rows += _shared_row(sound)
        sound = []
        rows.append(_account_row(str(account.segment.base), [account], _damaged(outcome, account)))
    rows += _shared_row(sound)
    if len(accounts) > 1:
        adds_up = all(account.total == account.segment.size for account in accounts)
        rows.append(_account_row("all", accounts, "adds up" if adds_up else "partly read"))
    widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS))]
    for row in rows:
        numbers = (cell.rjust(width) for cell, width in zip(row[1:-1], widths[1:], strict=True))
        yield "  ".join([row[0].ljust(widths[0]), *numbers, row[-1]]).rstrip()


def _shared_row(accounts: list[ByteAccount]) -> list[tuple[str, ...]]:
    """Return one row for several sound segments, none for no segment."""
    if not accounts:
        return []
    label = f"{accounts[0].segment.base} to …: {count(len(accounts), 'segment')}"
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


def verdict_line(run: FinishedRun) -> str:
    """Return the last line of the screen."""
    outcome = run.outcome
    records = sum(account.records for account in outcome.accounts)
    scope = ", for this file only" if not outcome.store.neighbours and len(outcome.store.segments) == 1 else ""
    suppressed = len(BY_CODE) - len(outcome.options.codes)
    if suppressed:
        scope += f", {len(outcome.options.codes)} of {len(BY_CODE)} checks"
    words = f"{outcome.verdict} at level {outcome.options.level}{scope}: {_errors(outcome)}, "
    words += f"{count(outcome.warnings, 'warning')} in {count(records, 'record')}; {_extent(outcome, run.custody)}"
    return SCREEN.line("VERDICT", words)


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
        return f"{count(len(outcome.unread), 'place')} could not be read"
    if not segments:
        return "no commit log"
    return "all bytes read" if outcome.log_read else "only the end of the log read"
