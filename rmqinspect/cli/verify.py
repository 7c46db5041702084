"""`rmqinspect verify`: all checks of a level, the byte account, one verdict, an exit status."""

import json
import sys
import textwrap
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import click

from rmqinspect.account import Account
from rmqinspect.checks.codes import BY_CODE, CODES, LEVELS
from rmqinspect.checks.findings import Finding, next_command
from rmqinspect.cli.options import (
    FORMAT_NAMES,
    choose_format,
    count_jobs,
    look_options,
    source_options,
    talk_options,
    use_colour,
    verdict_options,
)
from rmqinspect.cli.progress import Progress
from rmqinspect.cli.status import ExitStatus
from rmqinspect.errors import NotAStore
from rmqinspect.report import iso_time, report_document
from rmqinspect.store import Store, open_store
from rmqinspect.text import count, describe_duration, describe_size, escape, group_digits
from rmqinspect.verify import Outcome, Wish, splits_to_read, verify

_ANNOUNCE = 1 << 30  # reading more than this is announced
_SEGMENT_ROWS = 20  # with more segments, those with nothing to tell become one row
_WIDTH = 100
_INDENT = 13
_COLOURS = {"error": "red", "warning": "yellow", "info": "cyan"}
_COLUMNS = ("segment", "size", "records", "bytes", "filler", "zeros", "unknown")


def _check_codes(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    codes = tuple(code.strip().upper() for text in value for code in text.split(","))
    for code in codes:
        if code not in BY_CODE:
            raise click.BadParameter(f"{escape(code)} is no code; --list-checks has them all", ctx, param)
    return codes


def _list_checks(ctx: click.Context, _: click.Parameter, asked: bool) -> None:
    if asked and not ctx.resilient_parsing:
        width = max(len(code.code) for code in CODES)
        for code in CODES:
            click.echo(f"{code.code:{width}}  {code.severity:7}  {code.level:8}  {code.rule}")
        ctx.exit()


@click.command("verify")
@click.argument("paths", metavar="STORE...", nargs=-1)
@click.option("--level", type=click.Choice(LEVELS), default="standard", show_default=True,
              help="quick: names, sizes, checkpoint, last segment; standard: every record; deep: all there is.")
@click.option("--check", "check", multiple=True, metavar="CODE", callback=_check_codes, help="Look for these only.")
@click.option("--skip", multiple=True, metavar="CODE", callback=_check_codes, help="Do not look for these.")
@click.option("--list-checks", is_flag=True, is_eager=True, expose_value=False, callback=_list_checks,
              help="Print every code, its severity, level and rule.")
@click.option("--max-findings", type=click.IntRange(min=1), default=1000, show_default=True, metavar="N",
              help="Rows kept of each code; the counts stay exact.")
@click.option("--report", type=click.Path(dir_okay=False), metavar="FILE", help="Everything as one JSON document.")
@click.option("-f", "--format", "format_", type=click.Choice(FORMAT_NAMES),
              help="Default: the screen. Other formats: the table of findings, the verdict on stderr.")
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="Findings into a new file.")
@verdict_options
@source_options
@look_options
@talk_options
def command(**options: Any) -> int:
    """Is the commit log whole? Where is it not? Reads only; ends with one line of verdict.

    \b
    Exit status: 0 whole, 3 damage (--fail-on says from which severity on), 4 not everything could
    be read, 130 interrupted.

    \b
    Examples:
      rmqinspect verify STORE
      rmqinspect verify STORE --level quick
      rmqinspect verify STORE --report evidence.json
      rmqinspect verify 00000000001073741824
    """  # fmt: skip
    started = datetime.now(UTC)
    paths: tuple[str, ...] = options["paths"]
    format_ = choose_format(options)
    store = open_store(paths, config=options["config"], base=options["base"])
    if not store.segments and store.place != "store":
        raise NotAStore(f"{name_of(paths, store)}: no commit log in it, and verify judges nothing else yet")
    wish = Wish(options["level"], _codes(options), options["max_findings"], count_jobs(options))
    outcome = _verify(store, wish, options, format_)
    # The folder inside an archive's extra level may be the store: name what was given.
    name = name_of(paths, store)
    if options["report"]:
        _write_report(options["report"], report_document(outcome, name, started, sys.argv[1:]), store.paths)
    if format_ != "table" or options["output"]:
        _write_table(outcome, format_, options, name)
        if not options["quiet"]:
            click.echo(_verdict_line(outcome), err=True)
    elif not options["quiet"]:
        colour = use_colour(options["color"])
        for line in _screen(outcome, name, colour):
            click.echo(line, color=colour)
    return _status(outcome, options["fail_on"])


def name_of(paths: Sequence[str], store: Store) -> str:
    """Return what the user called the store."""
    return paths[0] if paths else store.name


def _codes(options: dict[str, Any]) -> frozenset[str]:
    chosen = frozenset(options["check"]) or frozenset(BY_CODE)
    return chosen - frozenset(options["skip"])


def _verify(store: Store, wish: Wish, options: dict[str, Any], format_: str) -> Outcome:
    size = sum(split.end - split.start for split in splits_to_read(store, wish.level))
    begin = time.monotonic()
    with Progress(size, options["progress"], quiet=options["quiet"]) as progress:
        parts = [f"{describe_size(size)} in {count(len(store.segments), 'segment')}"]
        for number, noun in ((_queues(store), "queue"), (len(store.index_files), "index file")):
            if number:
                parts.append(count(number, noun))
        progress.remark(f"{', '.join(parts)}; level {wish.level}")
        if size > _ANNOUNCE and wish.level != "quick":
            quick = sum(split.end - split.start for split in splits_to_read(store, "quick"))
            progress.remark(f"all of it is read; --level quick reads {describe_size(quick)}")
        for remark in store.remarks if options["verbose"] else ():
            progress.remark(remark)

        def quick_done(findings: list[Finding]) -> None:
            errors = sum(finding.severity == "error" and finding.code != "ST-IO" for finding in findings)
            if size > _ANNOUNCE or errors:
                took = describe_duration(time.monotonic() - begin)
                progress.remark(f"names and sizes done in {took}: {count(errors, 'error')}")

        return verify(store, wish, quick_done, progress)


def _queues(store: Store) -> int:
    return len({(file.topic, file.queue_id) for file in store.queue_files if file.kind != "ext_queue"})


def _status(outcome: Outcome, fail_on: str) -> ExitStatus:
    if outcome.interrupted_at is not None:
        return ExitStatus.INTERRUPTED
    if fail_on != "never":
        if outcome.errors or (fail_on == "warning" and outcome.warnings):
            return ExitStatus.DAMAGE
        if outcome.unread:
            return ExitStatus.UNREADABLE
    return ExitStatus.DONE


def _write_table(outcome: Outcome, format_: str, options: dict[str, Any], name: str) -> None:
    from rmqinspect.checks.table import SCHEMA, finding_batches
    from rmqinspect.output import View, open_writer

    view = View(zone=options["zone"], colour=use_colour(options["color"], options["output"]))
    with open_writer(format_, SCHEMA, options["output"], view=view, evidence=outcome.store.paths) as writer:
        writer.complete = outcome.complete
        for batch in finding_batches(outcome.findings, name):
            writer.write(batch)


def _write_report(path: str, document: dict[str, Any], evidence: Sequence[str]) -> None:
    from rmqinspect.output import open_destination

    with open_destination(path, evidence) as out:
        out.write((json.dumps(document, ensure_ascii=False, indent=1) + "\n").encode("utf-8", "backslashreplace"))


# --- the screen -----------------------------------------------------------------------------------


def _screen(outcome: Outcome, name: str, colour: bool) -> Iterator[str]:
    store = outcome.store
    if not store.neighbours:
        yield from _given(outcome)
    shown = [finding for finding in outcome.findings.rows if finding.code != "ST-UNCHECKED"]
    for finding in shown:
        yield from _finding_lines(finding, name, colour)
    if outcome.findings.left_out:
        yield f"{'':{_INDENT}}and {group_digits(outcome.findings.left_out)} more: --max-findings shows them"
    if shown:
        yield ""
    if outcome.accounts:
        yield from _account_lines(outcome)
    unchecked = [finding for finding in outcome.findings.rows if finding.code == "ST-UNCHECKED"]
    parts = (f"{row.message.split(' were', 1)[0]} ({_files(row)})" for row in unchecked)
    yield from _label("not checked", "; ".join(parts))
    if not store.neighbours:
        yield from _label("not given", "the segments before and after, queues, index, checkpoint, config: not judged")
    yield _verdict_line(outcome)


def _files(finding: Finding) -> str:
    return f"{count(finding.count, 'file')}, {describe_size(finding.length or 0)}"


def _label(label: str, text: str) -> Iterator[str]:
    if text:
        yield from textwrap.wrap(
            escape(text), _WIDTH, initial_indent=f"{label:{_INDENT}}", subsequent_indent=" " * _INDENT,
            break_long_words=False, break_on_hyphens=False,
        )  # fmt: skip


def _given(outcome: Outcome) -> Iterator[str]:
    store = outcome.store
    words = []
    for segment in store.segments:
        what = "DLedger data file" if segment.kind == "dledger" else "commit-log segment"
        words.append(f"one {what}, base {group_digits(segment.base)}")
    yield from _label("given", "; ".join(words) or f"one file of kind {store.place}")


def _finding_lines(finding: Finding, name: str, colour: bool) -> Iterator[str]:
    code = BY_CODE[finding.code]
    where = _where(finding)
    severity = f"{finding.severity:8}"
    if colour:
        severity = click.style(severity, fg=_COLOURS[finding.severity])
    head = f"{finding.code:{max(_INDENT, len(finding.code) + 1)}}{severity} "
    yield head + escape(where or finding.message)
    details = []
    if (record := _record(finding)) is not None:
        details.append(record)
    if where:
        details.append(finding.message)
    if finding.count > 1 and finding.code != "CL-STALE-TAIL":
        details.append(f"{group_digits(finding.count)} alike, one behind the other")
    if finding.expected is not None or finding.found is not None:
        pairs = (("expected", finding.expected), ("found", finding.found))
        details.append(", ".join(f"{label} {value}" for label, value in pairs if value is not None))
    for detail in details:
        yield from _label("", detail)
    if code.broker_effect and finding.severity != "info":
        yield from (" " * _INDENT + line for line in _wrap("broker  ", code.broker_effect))
    command_next = next_command(finding, name)
    if command_next and finding.severity != "info":
        yield " " * _INDENT + "next    " + escape(command_next)


def _wrap(label: str, text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH - _INDENT, initial_indent=label, subsequent_indent=" " * len(label))


def _where(finding: Finding) -> str:
    where = finding.file or ""
    if finding.severity == "info" and finding.offset is None:
        return ""
    if where and finding.offset is not None:
        where += f" at {group_digits(finding.offset)} ({finding.offset:#x})"
        if finding.length:
            where += f", {group_digits(finding.length)} bytes"
    return where


def _record(finding: Finding) -> str | None:
    if finding.topic is None or finding.physical_offset is None:
        return None
    text = f"record {group_digits(finding.physical_offset)}: {finding.topic} queue {finding.queue_id}"
    text += f" offset {finding.queue_offset}"
    if finding.keys:
        text += f", key {finding.keys.split(' ')[0]}"
    if (moment := iso_time(finding.timestamp)) is not None:
        text += f", {moment}"
    return text


def _account_lines(outcome: Outcome) -> Iterator[str]:
    rows: list[tuple[str, ...]] = [(*_COLUMNS, "")]
    accounts = outcome.accounts
    quiet: list[Account] = []
    troubled = {finding.file for finding in outcome.findings.rows if finding.severity != "info"}
    for account in accounts:
        tells = account.segment.name in troubled or account.gap_bytes["unknown"] or account is accounts[-1]
        if len(accounts) > _SEGMENT_ROWS and not tells:
            quiet.append(account)
            continue
        rows += _quiet_row(quiet)
        quiet = []
        rows.append(_account_row(str(account.segment.base), [account], _damaged(outcome, account)))
    rows += _quiet_row(quiet)
    if len(accounts) > 1:
        adds_up = all(account.total == account.segment.size for account in accounts)
        rows.append(_account_row("all", accounts, "adds up" if adds_up else "read in part"))
    widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS))]
    for row in rows:
        numbers = (cell.rjust(width) for cell, width in zip(row[1:-1], widths[1:], strict=True))
        yield "  ".join([row[0].ljust(widths[0]), *numbers, row[-1]]).rstrip()


def _quiet_row(accounts: list[Account]) -> list[tuple[str, ...]]:
    if not accounts:
        return []
    label = f"{accounts[0].segment.base} to …: {count(len(accounts), 'segment')}"
    return [_account_row(label, accounts, "")]


def _account_row(label: str, accounts: Sequence[Account], remark: str) -> tuple[str, ...]:
    numbers = [
        sum(account.segment.size for account in accounts),
        sum(account.records for account in accounts),
        sum(account.record_bytes for account in accounts),
        *(sum(account.gap_bytes[kind] for account in accounts) for kind in ("filler", "zeros", "unknown")),
    ]
    return (label, *map(group_digits, numbers), remark)


def _damaged(outcome: Outcome, account: Account) -> str:
    rows = [row for row in outcome.findings.rows if row.file == account.segment.name and row.severity == "error"]
    number = sum(row.count for row in rows)
    return count(number, "error") if number else ""


def _verdict_line(outcome: Outcome) -> str:
    records = sum(account.records for account in outcome.accounts)
    scope = ", for this file only" if not outcome.store.neighbours and len(outcome.store.segments) == 1 else ""
    left_out = len(BY_CODE) - len(outcome.wish.codes)
    if left_out:
        scope += f", {len(outcome.wish.codes)} of {len(BY_CODE)} checks"
    words = f"{outcome.verdict} at level {outcome.wish.level}{scope}: {count(outcome.errors, 'error')}, "
    words += f"{count(outcome.warnings, 'warning')} in {count(records, 'record')}; {_read(outcome)}"
    return f"{'VERDICT':{_INDENT}}{words}"


def _read(outcome: Outcome) -> str:
    size = sum(segment.size for segment in outcome.store.segments)
    if outcome.interrupted_at is not None:
        done = sum(account.total for account in outcome.accounts)
        return f"interrupted at {done * 100 // max(size, 1)} %, physical offset {group_digits(outcome.interrupted_at)}"
    if outcome.unread:
        return f"{count(len(outcome.unread), 'place')} could not be read"
    if not outcome.store.segments:
        return "there is no commit log"
    return "all bytes read" if outcome.log_read else "the end of the log read"
