"""`rmqinspect verify --against REPORT`: are the files still those of an earlier run?"""

import textwrap
from collections import Counter
from typing import Any

import click

from rmqinspect.cli.interrupt import interrupt_no_more, interrupted_once
from rmqinspect.cli.options import count_jobs
from rmqinspect.cli.progress import LONG_READ, Progress, least_time
from rmqinspect.cli.status import ExitStatus
from rmqinspect.store.discover import open_store
from rmqinspect.text import count, describe_size, escape, group_digits
from rmqinspect.verify.custody import Custody, Difference, Record, Watch
from rmqinspect.verify.report import read_record

_WIDTH = 100
INDENT = 9

# What has no meaning where no check runs.
_OF_CHECKS = {
    "report": "--report",
    "hash_": "--hash",
    "format_": "--format",
    "output": "--output",
    "check": "--check",
    "skip": "--skip",
}


def compare_with_report(options: dict[str, Any]) -> ExitStatus:
    """Compare names, sizes and digests of all files with a report, print what differs, return the status."""
    for name, option in _OF_CHECKS.items():
        if options[name]:
            raise click.UsageError(f"--against runs no checks: {option} does not go with it.")
    try:
        record = read_record(options["against"])
    except ValueError as error:
        raise click.BadParameter(escape(str(error)), param_hint="--against") from error
    with interrupted_once():
        try:
            watch = Watch(open_store(options["paths"], config=options["config"], base=options["base"]))
        except KeyboardInterrupt:
            return _say(["INCOMPLETE: interrupted while the files were listed"], ExitStatus.INTERRUPTED, options)
        now, interrupted = _take_digests(watch, record, options)
    for line in (*now.unread, *(f"{change.name}: changed while it was read: {change.what}" for change in now.changed)):
        click.echo(escape(line), err=True)
    differences = record.differences(now)
    words = _result(record, now, differences)
    if interrupted:
        whole = f"{group_digits(len(now.digests))} of {count(len(record.comparable(watch.before)), 'file')}"
        return _say(
            [*_lines(differences), f"{words}, INCOMPLETE: interrupted, {whole} read"], ExitStatus.INTERRUPTED, options
        )
    failed = len(now.unread) + len(now.changed)
    if failed:
        words += f", INCOMPLETE: {count(failed, 'place')} could not be read or changed meanwhile"
    if differences and options["fail_on"] != "never":
        status = ExitStatus.DAMAGE
    else:
        status = ExitStatus.UNREADABLE if failed else ExitStatus.DONE
    return _say([*_lines(differences), words], status, options)


def _say(lines: list[str], status: ExitStatus, options: dict[str, Any]) -> ExitStatus:
    if not options["quiet"]:
        for line in lines[:-1]:
            folded = textwrap.wrap(escape(line), _WIDTH, subsequent_indent=" " * INDENT, break_on_hyphens=False)
            click.echo("\n".join(folded))
        click.echo(escape(lines[-1]))
    return status


def _take_digests(watch: Watch, record: Record, options: dict[str, Any]) -> tuple[Custody, bool]:
    """Return what the files are now, and whether Ctrl-C came before all digests were there."""
    names = record.comparable(watch.before)
    size = sum(watch.before.exhibits[name].file.size for name in names)
    interrupted = False
    with Progress(size, options["progress"], quiet=options["quiet"]) as progress:
        if size > LONG_READ:
            words = f"{count(len(names), 'file')}, {describe_size(size)} to read: their digests are compared"
            progress.remark(f"{words}{least_time(size)}. A report without digests is compared by sizes and times alone")
        try:
            watch.take_digests(names, count_jobs(options)).wait(progress)
        except KeyboardInterrupt:
            interrupted = True
        interrupt_no_more()
        return watch.conclude(), interrupted


def _lines(differences: list[Difference]) -> list[str]:
    return [f"{change.kind:{INDENT}}{change.name}: {change.what}" for change in differences]


def _result(record: Record, now: Custody, differences: list[Difference]) -> str:
    """Return the last line: what was found, of which files, recorded when."""
    files, moment = count(len(record.files), "file"), record.moment.split(".")[0].rstrip("Z") + "Z"
    if differences:
        kinds = Counter(change.kind for change in differences)
        numbers = ", ".join(f"{group_digits(number)} {kind}" for kind, number in sorted(kinds.items()))
        return f"DIFFERENT from the {files} recorded on {moment}: {numbers}"
    words = f"{files} as recorded on {moment}: same names, sizes"
    if record.undigested == len(record.files):
        return f"{words}, times; no digests to compare"
    words += ", sha256"
    if record.undigested:
        words += f"; {group_digits(record.undigested)} without a digest: same times"
    elif touched := record.touched(now.inventory):
        words += f"; {group_digits(touched)} with another time"
    return words
