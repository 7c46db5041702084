"""The screen of `verify`: findings, byte account, what was not checked, the next start, verdict.

It is printed from a report: that of the run, written or not, or that of an earlier run.

The findings on the screen of `verify`: one block per code and cause, together at most a screen long.

    CQ-MISSING   error    18 records of the queue have no unit: consumers never receive them
                 commitlog/00000000000000000000 at 0 (0x0)
                 record 0: orders queue 0 offset 0, 2026-11-21T08:48:14.026Z
                 expected queue offset 0 to 17, found no unit
                 also TopicA queue 0 offset 0 (59)
                 2 shown, 236 in all; -v shows each
                 broker  startup after an unclean shutdown adds units only for the part of the log it scans
                 next    rmqinspect show STORE --at 0
                 explain rmqinspect explain CQ-MISSING

The first finding of a block is shown in full, some others in a line each. With more blocks than fit, all become
shorter (`_SHAPES`); at last only the worst are shown. `-v` makes every finding its own block.
"""

import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import tzinfo
from typing import NamedTuple

import click
from msgspec import Struct

from rmqinspect.cli.log_bar import bar_lines
from rmqinspect.cli.terminal import Screen, columns, fold, line_width, pad, screen_height
from rmqinspect.cli.verify_since import lines_of
from rmqinspect.commands import EXPLAIN, fill_command
from rmqinspect.forecast.outcome import Verdict
from rmqinspect.text import cell_width, count, describe_spans, escape, group_digits
from rmqinspect.times import format_micros, to_micros
from rmqinspect.verify.codes import OF_UNITS
from rmqinspect.verify.custody import ReportedCustody
from rmqinspect.verify.findings import Finding, FindingRow, moment
from rmqinspect.verify.report import Report, ReportedRun, SegmentAccount

SCREEN = Screen(indent=13)
_PLACES = Screen(indent=SCREEN.indent, cut=True)  # names of topics may be wider than a line
_DETAIL = Screen(indent=8, lead=SCREEN.indent, cut=True)

_COLOURS = {"error": "red", "warning": "yellow", "info": "cyan"}
_WORST_FIRST = ("error", "warning", "info")

_EFFECTS = 3  # different things that a start does at the findings of one block
_NO_EFFECT = "nothing is known of it"

# More causes of one code than these are one block: what differs is then a name, not the cause.
_CAUSES = 3


class _Shape(NamedTuple):
    """How much of each block is printed."""

    others: int  # findings beside the first, in a line each
    advice: bool  # what a broker does, and how to learn more
    places: bool  # where, expected and found
    action: bool  # what to do and to run next


_SHAPES = (
    _Shape(others=3, advice=True, places=True, action=True),
    _Shape(others=1, advice=True, places=True, action=True),
    _Shape(others=0, advice=False, places=True, action=True),
    _Shape(others=0, advice=False, places=False, action=True),
    _Shape(others=0, advice=False, places=False, action=False),
)
# The shapes of the worst findings and of the others, tried in this order until all fit the screen.
_STEPS = ((0, 0), (1, 1), (1, 2), (1, 4), (2, 4), (3, 4), (4, 4))


class Block(NamedTuple):
    """Findings of one code and one cause."""

    findings: list[FindingRow]
    total: int  # with those that have no row

    @property
    def first(self) -> FindingRow:
        """The finding that is shown in full."""
        return self.findings[0]


class FindingScreen(Struct, frozen=True):
    """How the findings of a run are printed."""

    zone: tzinfo  # of printed times
    colour: bool
    height: int | None  # lines that all findings may take; None: each finding is shown

    def lines(self, report: Report) -> list[str]:
        """Return the lines of all findings but ST-UNCHECKED, in file order, folded if there is a height."""
        rows = [finding for finding in report.findings if finding.code != "ST-UNCHECKED"]
        more = []
        if report.findings_left_out:
            number = group_digits(report.findings_left_out)
            more = [SCREEN.line("", f"and {number} more: --max-findings shows them")]
        if self.height is None:
            return self._lines([Block([finding], finding.count) for finding in rows], (0, 0)) + more
        blocks = _blocks(rows, report.counts)
        for step in _STEPS:
            lines = self._lines(blocks, step) + more
            if len(lines) <= self.height:
                return lines
        return self._worst(blocks, self.height)

    def _worst(self, blocks: list[Block], height: int) -> list[str]:
        """Return a headline of each block, errors first, as many as fit."""
        worst = sorted(blocks, key=lambda block: _WORST_FIRST.index(block.first.severity))
        lines: list[str] = []
        for number, block in enumerate(worst):
            more = self._lines([block], _STEPS[-1])
            if number and len(lines) + len(more) >= height:
                left = count(len(worst) - number, "more kind")
                lines.append(SCREEN.line("", f"and {left} of findings: -v shows all"))
                break
            lines += more
        return lines

    def _lines(self, blocks: list[Block], step: tuple[int, int]) -> list[str]:
        worst = min((_WORST_FIRST.index(block.first.severity) for block in blocks), default=0)
        last = {block.first.code: number for number, block in enumerate(blocks)}
        lines: list[str] = []
        for number, block in enumerate(blocks):
            first = block.first
            shape = _SHAPES[step[first.severity != _WORST_FIRST[worst]]]
            lines += _headline(first, self.colour)
            if shape.places:
                lines += self._places(block, shape.others)
            elif block.total > 1 and not (first.counted and block.total == first.count):
                lines.append(SCREEN.line("", f"{group_digits(block.total)} in all"))
            if first.severity == "info":
                continue
            if shape.advice:
                lines += _broker_lines(block.findings)
            if shape.action:
                lines += _DETAIL.rows("do", first.do or "")
                lines += _DETAIL.command("next", first.next or "")
            if shape.advice and last[first.code] == number:
                lines += _DETAIL.command("explain", fill_command(EXPLAIN, what=first.code))
        return lines

    def _places(self, block: Block, others: int) -> Iterator[str]:
        """Yield where the first finding is and what it is about, some others, and how many there are."""
        first, *rest = block.findings
        pairs = (("expected", first.expected), ("found", first.found))
        values = ", ".join(f"{label} {value}" for label, value in pairs if value is not None)
        for detail in (where(first), _record(first, self.zone), values):
            yield from _PLACES.rows("", detail)
        for finding in rest[:others]:
            number = f" ({group_digits(finding.count)})" if finding.count > 1 else ""
            yield from _PLACES.rows("", f"also {_queue(finding) or where(finding) or finding.message}{number}")
        shown = 1 + len(rest[:others])
        if block.total > shown and not (first.counted and block.total == first.count):
            total = f"{group_digits(block.total)} in all"
            if len(block.findings) > shown:
                total = f"{shown} shown, {total}; -v shows each"
            yield from SCREEN.rows("", total)


def _broker_lines(findings: Sequence[FindingRow]) -> Iterator[str]:
    """Yield what the next start does at the first finding, and what else it does at the others of a block."""
    kinds: dict[str, list[str]] = {}
    for finding in findings:
        words = finding.broker_effect or _NO_EFFECT
        kinds.setdefault(re.sub(r"\d+", "", words), []).append(words)
    texts: list[str] = []
    for effects in kinds.values():
        example = ", for example" if len(set(effects)) > 1 else ""
        texts.append(f"at {group_digits(len(effects))} more{example}: {effects[0]}" if texts else effects[0])
    if texts == [_NO_EFFECT]:
        return
    for number, text in enumerate(texts[:_EFFECTS]):
        yield from _DETAIL.rows("" if number else "broker", text)
    if len(texts) > _EFFECTS:
        yield from _DETAIL.rows("", f"{count(len(texts) - _EFFECTS, 'other effect')}: -v shows each")


def where(finding: Finding | FindingRow) -> str:
    """Return the file and range of a finding, "" for a remark about the whole store."""
    place = finding.file or ""
    if finding.severity == "info" and finding.offset is None:
        return ""
    if place and finding.offset is not None:
        place += f" at {group_digits(finding.offset)} ({finding.offset:#x})"
        if finding.length:
            place += f", {group_digits(finding.length)} bytes"
    return place


def _blocks(rows: Sequence[FindingRow], counts: Mapping[str, int]) -> list[Block]:
    """Return the findings by code, severity and cause, in the order in which each was found first.

    `counts` is the number of findings of each code, with those that have no row: they are in its last block.
    """
    causes: dict[tuple[str, str], set[str]] = {}
    for finding in rows:
        causes.setdefault((finding.code, finding.severity), set()).add(_cause(finding))
    blocks: dict[tuple[str, str, str], list[FindingRow]] = {}
    without_row = Counter(counts)
    for finding in rows:
        kind = (finding.code, finding.severity)
        cause = _cause(finding) if len(causes[kind]) <= _CAUSES else ""
        blocks.setdefault((*kind, cause), []).append(finding)
        without_row[finding.code] -= finding.count
    last = {code: key for key in blocks for code in key[:1]}
    return [
        Block(block, sum(row.count for row in block) + (without_row[key[0]] if last[key[0]] == key else 0))
        for key, block in blocks.items()
    ]


def _cause(finding: FindingRow) -> str:
    """Return what the message says before its details, without the numbers in it."""
    message = finding.message
    for name in (finding.topic, finding.file):
        message = message.replace(name, "") if name else message
    return re.sub(r"\d+", "", re.split("[;:]", message)[0])


def _headline(finding: FindingRow, colour: bool) -> Iterator[str]:
    """Yield the lines of code, severity and message."""
    label = pad(finding.code, max(SCREEN.indent, len(finding.code) + 1))
    severity, width = f"{finding.severity:8} ", line_width()
    room = width - len(label) - len(severity)
    first, *rest = fold(escape(finding.message), width - SCREEN.indent, room, cut=True)
    yield f"{label}{click.style(severity, fg=_COLOURS[finding.severity]) if colour else severity}{first}"
    yield from (f"{'':{SCREEN.indent}}{line}" for line in rest)


def _record(finding: FindingRow, zone: tzinfo) -> str:
    """Return the record or queue unit that a finding is about, "" without one."""
    queue = _queue(finding)
    if not queue or finding.physical_offset is None:
        return queue
    if finding.code in OF_UNITS:
        return f"unit of {queue}, points at {group_digits(finding.physical_offset)}"
    text = f"record {group_digits(finding.physical_offset)}: {queue}"
    if finding.keys:
        text += f", key {finding.keys.split(' ')[0]}"
    if finding.store_timestamp is not None:
        text += f", {format_micros(to_micros(moment(finding.store_timestamp)), zone)}"
    return text


def _queue(finding: FindingRow) -> str:
    """Return the queue of a finding and the offset in it, "" without one."""
    if finding.topic is None:
        return ""
    offset = "" if finding.queue_offset is None else f" offset {finding.queue_offset}"
    return f"{finding.topic} queue {finding.queue_id}{offset}"


_SEGMENT_ROWS = 20  # rows of the byte account; beyond that, sound segments share rows
_FEWEST_ROWS = 3  # on a low terminal
_OTHER_LINES = 20  # that the findings and the verdict take on a screen
_CHANGES = 20  # changed files listed; the others are counted

_COLUMNS = ("segment", "size", "records", "bytes", "filler", "zeros", "unknown")
_SUMS = ("file_size", "records", "record_bytes", "filler_bytes", "zero_bytes", "unknown_bytes")  # of an account
_LEFT_OUT = ("size", "filler", "zeros", "bytes")  # of the byte account on a narrow terminal, in this order


START_COLOURS: dict[str, str] = {
    Verdict.SAFE: "green",
    Verdict.LOSES: "red",
    Verdict.EMPTY: "red",
    Verdict.REFUSES: "red",
    Verdict.UNKNOWN: "yellow",
    Verdict.RUNS: "yellow",
}


class Look(Struct, frozen=True):
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
    after = [*_bar_lines(report, colour=look.colour), *_rest(report, path), *SCREEN.rows("lost", lost)]
    after += _start_lines(report, colour=look.colour)
    # The verdict is one line, which scripts read, or on a terminal folded.
    colour = "red" if report.damage else "green" if report.complete and not report.warnings else "yellow"
    verdict = SCREEN.fitted("VERDICT", report.summary)
    after += [click.style(line, fg=colour, bold=True) for line in verdict] if look.colour else verdict
    height = screen_height()
    room = None if look.unfold else max(height // 2, height - len(before) - len(after) - 2)
    found = FindingScreen(look.zone, look.colour, room).lines(report)
    return [*before, *found, *([""] if found else []), *after]


def _bar_lines(report: Report, *, colour: bool) -> Iterator[str]:
    """Yield the log as one row, on a terminal."""
    if sys.stdout.isatty():
        from rmqinspect.picture.documents import picture_of

        yield from bar_lines(picture_of(report), SCREEN, "log", colour=colour)


def _rest(report: Report, path: str) -> Iterator[str]:
    """Yield the lines between the findings and the verdict."""
    yield from _account_lines(report)
    yield from _joined_lines(report)
    for number, words in enumerate(lines_of(report.taken_over) if report.taken_over is not None else ()):
        yield from SCREEN.rows("" if number else "since", words)
    yield from SCREEN.rows("interrupted", report.interrupted or "")
    if report.broker_version is not None:
        yield from SCREEN.rows("version", report.broker_version.contradiction or "")
    yield from SCREEN.rows("not checked", "; ".join(report.not_checked))
    yield from SCREEN.rows("not given", report.not_given or "")
    if report.custody is not None and report.custody.algorithm:
        yield from _custody_lines(report.custody, path)
        yield from SCREEN.several("not proved", report.not_proved or ())
        yield from SCREEN.rows("run", f"{report.run.tool}, {_span(report.run)}, arguments in the report")


def _joined_lines(report: Report) -> Iterator[str]:
    """Yield how many queue units and index entries point at their record."""
    units, entries = report.queue_units, report.index_entries.lead_to_their_record
    if units.read and report.segments and (report.interrupted is None or units.lead_to_their_record):
        lead = f"{group_digits(units.lead_to_their_record)} of {count(units.read, 'queue unit')}"
        yield from SCREEN.rows("queues", f"{lead} match a record of the log; a queue unit says where a record lies")
    if entries:
        words = "entry matches" if entries == 1 else "entries match"
        yield from SCREEN.rows("index", f"{group_digits(entries)} {words} a record of the log")


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
    return f"{started:%Y-%m-%dT%H:%M:%S}Z to {ended:%Y-%m-%dT%H:%M:%S}Z"


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
        errors = sum(
            row.count
            for row in report.findings
            if row.file == account.file and row.severity == "error" and row.code.startswith("CL-")
        )
        rows.append(_account_row(str(account.base), [account], count(errors, "error") if errors else ""))
    rows += _shared_row(sound)
    if len(accounts) > 1:
        adds_up = all(account.adds_up for account in accounts)
        rows.append(_account_row("all", accounts, "all bytes counted" if adds_up else "partly read"))
    yield from _account_table(rows)
    missing = [(run.start, run.end) for run in report.map.runs if run.kind == "missing"] if report.map else []
    if missing:
        size = count(sum(end - start for start, end in missing), "byte")
        yield from SCREEN.rows("missing", f"{size} that no file has: {describe_spans(missing, _FEWEST_ROWS)}")


def _account_table(rows: list[tuple[str, ...]]) -> Iterator[str]:
    """Yield the rows in columns; on a terminal without those of `_LEFT_OUT`, one after the other, until a line fits."""
    for name in _LEFT_OUT:
        width = sum(max(map(cell_width, column)) + 2 for column in zip(*rows, strict=True)) - 2
        if sys.stdout.isatty() and width > line_width():
            left = rows[0].index(name)
            rows = [(*row[:left], *row[left + 1 :]) for row in rows]
    yield from columns(rows, f"<{'>' * (len(rows[0]) - 2)}<")


def _shared_row(accounts: list[SegmentAccount]) -> list[tuple[str, ...]]:
    """Return one row for all these sound segments, none for no segment."""
    if not accounts:
        return []
    label = str(accounts[0].base)
    if len(accounts) > 1:
        label += f" to …: {count(len(accounts), 'segment')}"
    return [_account_row(label, accounts, "")]


def _account_row(label: str, accounts: Sequence[SegmentAccount], remark: str) -> tuple[str, ...]:
    sums = (sum(getattr(account, name) for account in accounts) for name in _SUMS)
    return (label, *map(group_digits, sums), remark)


def _start_lines(report: Report, *, colour: bool) -> Iterator[str]:
    """Yield what the next start of a broker does; its verdict comes first."""
    if report.next_start is None:
        return
    for number, text in enumerate(report.next_start.lines):
        for line in SCREEN.rows("" if number else "NEXT START", text):
            styled = colour and not number
            start_colour = START_COLOURS.get(report.next_start.verdict or "")
            yield click.style(line, fg=start_colour, bold=True) if styled else line


def verdict_line(report: Report) -> str:
    """Return the verdict in one line."""
    return SCREEN.line("VERDICT", report.summary)
