"""`rmqinspect verify --against`: names, sizes and digests of all files, compared with those in a report."""

from collections import Counter

import click

from rmqinspect.cli import ExitStatus, exit_status
from rmqinspect.cli.options import count_jobs, given_stores
from rmqinspect.cli.pager import as_answer
from rmqinspect.cli.terminal import LONG_READ, Progress, Screen, least_time
from rmqinspect.cli.verbs.verify import AgainstOptions
from rmqinspect.system.interrupt import interrupt_no_more, interrupted_once
from rmqinspect.text import count, describe_size, escape, group_digits
from rmqinspect.verify.custody import Custody, CustodyChange, Record, Watch
from rmqinspect.verify.report import read_record

_SCREEN = Screen(indent=9)


def compare_with_report(options: AgainstOptions, report: str) -> ExitStatus:
    """Compare names, sizes and digests of all files with a report, print the differences, return the status."""
    given = given_stores(options)
    if len(given) > 1:
        raise click.UsageError(f"--against is about one store: {group_digits(len(given))} are given.")
    try:
        record = read_record(report)
    except ValueError as error:
        raise click.BadParameter(escape(str(error)), param_hint="--against") from error
    with interrupted_once():
        try:
            watch = Watch(given[0].open(**options.opening))
        except KeyboardInterrupt:
            _print([], "INCOMPLETE: interrupted while the files were listed", quiet=options.quiet)
            return ExitStatus.INTERRUPTED
        now, interrupted = _take_digests(watch, record, options)
    for line in (*now.unread, *(f"{change.file}: changed while it was read: {change.what}" for change in now.changed)):
        click.echo(escape(line), err=True)
    differences = record.differences(now)
    words, failed = _result(record, now, differences), len(now.unread) + len(now.changed)
    if interrupted:
        read = f"{group_digits(len(now.digests))} of {count(len(record.comparable(watch.before)), 'file')}"
        words = f"INCOMPLETE: interrupted, {read} read: {words}"
    elif failed:
        words = f"INCOMPLETE: {count(failed, 'place')} unreadable or changed meanwhile: {words}"
    _print(differences, words, quiet=options.quiet)
    if interrupted:
        return ExitStatus.INTERRUPTED
    return exit_status(options.fail_on, damaged=differences, unread=failed)


def _print(differences: list[CustodyChange], words: str, *, quiet: bool) -> None:
    if quiet:
        return
    for change in differences:
        for line in _SCREEN.rows(change.kind, f"{change.file}: {change.what}"):
            click.echo(line)
    with as_answer():
        click.echo(escape(words))


def _take_digests(watch: Watch, record: Record, options: AgainstOptions) -> tuple[Custody, bool]:
    """Return the state of the files now, and whether Ctrl-C came before all digests were taken."""
    names = record.comparable(watch.before)
    size = sum(watch.before.exhibits[name].file.size for name in names)
    interrupted = False
    with Progress(size, options.progress, quiet=options.quiet) as progress:
        if size > LONG_READ:
            words = f"{count(len(names), 'file')}, {describe_size(size)} to read: their digests are compared"
            progress.remark(f"{words}{least_time(size)}. A report without digests is compared by sizes and times alone")
        try:
            watch.take_digests(names, count_jobs(options)).wait(progress)
        except KeyboardInterrupt:
            interrupted = True
        interrupt_no_more()
        return watch.conclude(), interrupted


def _result(record: Record, now: Custody, differences: list[CustodyChange]) -> str:
    """Return the last line: equal or different, from how many files, recorded when."""
    files, moment = count(len(record.files), "file"), record.run.ended.split(".")[0].rstrip("Z") + "Z"
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
