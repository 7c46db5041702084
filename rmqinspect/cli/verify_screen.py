"""The screen of `verify`: findings, byte account, what was not checked, the next start, verdict.

It is printed from a report: that of the run, written or not, or that of an earlier run.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import tzinfo

import click

from rmqinspect.cli.finding_blocks import SCREEN, FindingScreen
from rmqinspect.cli.labelled import line_width, screen_height
from rmqinspect.text import count, group_digits
from rmqinspect.verify.reported import Report, ReportedCustody, ReportedRun, SegmentAccount, moment

_SEGMENT_ROWS = 20  # rows of the byte account; beyond that, sound segments share rows
_FEWEST_ROWS = 3  # on a low terminal
_OTHER_LINES = 20  # that the findings and the verdict take on a screen
_CHANGES = 20  # changed files listed; the others are counted

_COLUMNS = ("segment", "size", "records", "bytes", "filler", "zeros", "unknown")
_LEFT_OUT = ("size", "filler", "zeros", "bytes")  # of the byte account on a narrow terminal, in this order


START_COLOURS = {
    "SAFE TO START": "green",
    "STARTS, LOSES DATA": "red",
    "WILL NOT START": "red",
    "CANNOT TELL": "yellow",
}


@dataclass(frozen=True, slots=True)
class Look:
    """How a screen is printed."""

    zone: tzinfo  # of times
    colour: bool
    unfold: bool  # each finding by itself


def screen(report: Report, path: str, look: Look) -> list[str]:
    """Return the lines of the screen: losses, findings, byte account, what was not checked, losses again, the verdict.

    `path` is the file of the report. The findings are folded so that the rest fits on the screen, too, but get half
    of it at least.
    """
    lost = report.loss.summary if report.loss else ""
    before = [*SCREEN.rows("given", report.given or ""), *SCREEN.rows("lost", lost)]
    after = [*_rest(report, path), *SCREEN.rows("lost", lost), *_start_lines(report, colour=look.colour)]
    after += _verdict_lines(report, colour=look.colour)
    height = screen_height()
    room = None if look.unfold else max(height // 2, height - len(before) - len(after) - 2)
    found = FindingScreen(look.zone, look.colour, room).lines(report)
    return [*before, *found, *([""] if found else []), *after]


def _rest(report: Report, path: str) -> Iterator[str]:
    """Yield the lines between the findings and the verdict."""
    yield from _account_lines(report)
    yield from _joined_lines(report)
    yield from SCREEN.rows("interrupted", report.interrupted or "")
    if report.broker_version is not None:
        yield from SCREEN.rows("version", report.broker_version.contradiction or "")
    yield from SCREEN.rows("not checked", "; ".join(report.not_checked))
    yield from SCREEN.rows("not given", report.not_given or "")
    if report.custody is not None and report.custody.algorithm:
        yield from _custody_lines(report.custody, path)
        yield from SCREEN.rows("run", f"{report.run.tool}, {_span(report.run)}, arguments in the report")


def _joined_lines(report: Report) -> Iterator[str]:
    """Yield how many queue units and index entries point at their record."""
    units, entries = report.queue_units, report.index_entries.lead_to_their_record
    if units.read and report.segments and (report.interrupted is None or units.lead_to_their_record):
        lead = f"{group_digits(units.lead_to_their_record)} of {count(units.read, 'unit')}"
        yield from SCREEN.rows("queues", f"{lead} lead to their record")
    if entries:
        words = "entry leads" if entries == 1 else "entries lead"
        yield from SCREEN.rows("index", f"{group_digits(entries)} {words} to their record")


def _custody_lines(custody: ReportedCustody, path: str) -> Iterator[str]:
    digests = sum(file.sha256 is not None for file in custody.files)
    size = sum(file.size for file in custody.files)
    taken = "sha256" if digests == len(custody.files) else f"sha256 of {group_digits(digests)}"
    files = f"{count(len(custody.files), 'file')}, {count(size, 'byte')}"
    yield from SCREEN.rows("custody", f"{files}: {taken}, size and time of each are in {path}")
    for change in custody.changed[:_CHANGES]:
        yield from SCREEN.rows("", f"changed while it was read: {change.file}: {change.what}")
    more = len(custody.changed) - _CHANGES
    if more > 0:
        yield from SCREEN.rows("", f"and {group_digits(more)} more, all listed in the report")
    same = "" if custody.changed else "; sizes and times the same before and after the run"
    yield from SCREEN.rows("", f"opened for reading only{same}")


def _span(run: ReportedRun) -> str:
    started, ended = moment(run.started), moment(run.ended)
    end = f"{ended:%H:%M:%S}Z" if ended.date() == started.date() else f"{ended:%Y-%m-%dT%H:%M:%S}Z"
    return f"{started:%Y-%m-%dT%H:%M:%S}Z to {end}"


def _account_lines(report: Report) -> Iterator[str]:
    """Yield the table of the byte account: one row per segment, and their sum."""
    accounts = report.segments
    if not accounts:
        return
    most = min(_SEGMENT_ROWS, max(_FEWEST_ROWS, screen_height() - _OTHER_LINES))
    rows: list[tuple[str, ...]] = [(*_COLUMNS, "")]
    sound: list[SegmentAccount] = []
    troubled = {finding.file for finding in report.findings if finding.severity != "info"}
    for account in accounts:
        listed = account.file in troubled or account.unknown_bytes or account is accounts[-1]
        if len(accounts) > most and not listed:
            sound.append(account)
            continue
        rows += _shared_row(sound)
        sound = []
        rows.append(_account_row(str(account.base), [account], _damaged(report, account)))
    rows += _shared_row(sound)
    if len(accounts) > 1:
        adds_up = all(account.adds_up for account in accounts)
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


def _shared_row(accounts: list[SegmentAccount]) -> list[tuple[str, ...]]:
    """Return one row for all these sound segments, none for no segment."""
    if not accounts:
        return []
    label = str(accounts[0].base)
    if len(accounts) > 1:
        label += f" to …: {count(len(accounts), 'segment')}"
    return [_account_row(label, accounts, "")]


def _account_row(label: str, accounts: Sequence[SegmentAccount], remark: str) -> tuple[str, ...]:
    numbers = (
        sum(account.file_size for account in accounts),
        sum(account.records for account in accounts),
        sum(account.record_bytes for account in accounts),
        sum(account.filler_bytes for account in accounts),
        sum(account.zero_bytes for account in accounts),
        sum(account.unknown_bytes for account in accounts),
    )
    return (label, *map(group_digits, numbers), remark)


def _damaged(report: Report, account: SegmentAccount) -> str:
    of_file = (row for row in report.findings if row.file == account.file)
    number = sum(row.count for row in of_file if row.severity == "error" and row.code.startswith("CL-"))
    return count(number, "error") if number else ""


def _start_lines(report: Report, *, colour: bool) -> Iterator[str]:
    """Yield what the next start of a broker does; its verdict comes first."""
    if report.next_start is None:
        return
    for number, text in enumerate(report.next_start.lines):
        for line in SCREEN.rows("" if number else "NEXT START", text):
            styled = colour and not number
            yield click.style(line, fg=START_COLOURS.get(report.next_start.verdict), bold=True) if styled else line


def _verdict_lines(report: Report, *, colour: bool) -> Iterator[str]:
    """Yield the verdict: in one line, which scripts read, or on a terminal folded."""
    for line in SCREEN.fitted("VERDICT", report.summary):
        yield click.style(line, fg=_colour(report), bold=True) if colour else line


def _colour(report: Report) -> str:
    if report.damage:
        return "red"
    return "green" if report.complete and not report.warnings else "yellow"


def verdict_line(report: Report) -> str:
    """Return the verdict in one line."""
    return SCREEN.line("VERDICT", report.summary)
