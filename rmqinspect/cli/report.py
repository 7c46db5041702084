"""`rmqinspect report`: one page about stores, for a browser and for people who were not there.

    stores    -> the run of `verify`, with a `PageFold` beside it -> documents -> page
    --from    -> reports that `verify` wrote                      -> documents -> page

The log is read once. Several stores are read side by side, and the page begins with a row for each.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from rmqinspect.cli import ExitStatus
from rmqinspect.cli.fleet import Answer, ask_each, evidence_of, status_of_all, worst_first
from rmqinspect.cli.lost import save_command
from rmqinspect.cli.options import (
    count_jobs,
    given_stores,
)
from rmqinspect.cli.session import refuse_early
from rmqinspect.cli.terminal import Progress
from rmqinspect.cli.verbs.report import ReportArguments
from rmqinspect.cli.verify import name_of, run_checks, told
from rmqinspect.cli.verify_written import status_of_report
from rmqinspect.document import as_object
from rmqinspect.errors import NotAStore
from rmqinspect.fleet.given import Given
from rmqinspect.fleet.summary import StoreRow, row_of_report, worst_start
from rmqinspect.system.interrupt import interrupted_once
from rmqinspect.text import escape
from rmqinspect.verify.custody import Watch
from rmqinspect.verify.findings import redact_rows
from rmqinspect.verify.report import Report, read_reports
from rmqinspect.verify.result import VerifyOptions
from rmqinspect.verify.run import can_verify

if TYPE_CHECKING:
    from rmqinspect.forecast.outcome import Forecast, Outcome


def run(arguments: ReportArguments) -> int:
    """Do what `report` is asked for, and return the exit status."""
    if arguments.from_report is not None:
        refuse_early(arguments.output, [arguments.from_report])
        answers = _of_written(arguments, arguments.from_report)
        return _write(answers, arguments, (), several=len(answers) > 1)
    given = given_stores(arguments)
    if len(given) > 1:
        import rmqinspect.page.documents
        import rmqinspect.page.sums  # noqa: F401  once, before processes are forked

        evidence = evidence_of(given)
        refuse_early(arguments.output, evidence)
        return _write(ask_each(arguments, given, _ask), arguments, evidence, several=True)
    with ExitStack() as copies:
        answer, evidence = _told(arguments, given[0], copies)
        return _write([answer], arguments, evidence, several=False)


# --- of stores --------------------------------------------------------------------------------------------


def _ask(arguments: ReportArguments, given: Given) -> Answer:
    """Return what is told of one of several stores."""
    with ExitStack() as copies:
        answer, _ = _told(arguments, given, copies)
    return answer


def _told(arguments: ReportArguments, given: Given, copies: ExitStack) -> tuple[Answer, list[str]]:
    """Return what is told of a store, and the paths of its evidence.

    :raises KeyboardInterrupt: Ctrl-C, while the files were listed; later the page says how far the log was read.
    """
    from rmqinspect.page.documents import documents_of
    from rmqinspect.page.sums import PageFold
    from rmqinspect.rocksdb.unpack import unpacked
    from rmqinspect.tables.request import Request

    started = datetime.now(UTC)
    jobs = count_jobs(arguments)
    options = VerifyOptions(jobs=jobs, broker_version=arguments.broker_version, fold=PageFold, instead=True)
    with interrupted_once():
        listed = given.open(**arguments.opening)
        if not can_verify(listed):
            raise NotAStore(
                f"{name_of(given.paths, listed)}: contains nothing to verify by itself: give the whole store"
            )
        refuse_early(arguments.output, listed.paths)
        watch = Watch(listed) if arguments.hash else None
        store = copies.enter_context(unpacked(listed, arguments.unpacking))
        outcome, custody = run_checks(store, watch, options, arguments)
        report = told(outcome, custody, arguments, name_of(given.paths, listed), started)
    document = as_object(report)
    row = row_of_report(listed.name, store, document)
    status = status_of_report(report, arguments.fail_on)
    with interrupted_once(), Progress(0, arguments.progress, quiet=arguments.quiet) as progress:
        request = Request(
            jobs=jobs,
            on_unreadable=lambda message: progress.complain(f"not read: {message}"),
            on_remark=progress.remark,
        )
        saving = partial(_saving, arguments, outcome.next_start)
        documents = documents_of(str(given.name or report.run.store), outcome, document, request, saving)
    if documents["interrupted"]:
        status = ExitStatus.INTERRUPTED
    return Answer(row, status, documents), list(listed.paths)


def _saving(arguments: ReportArguments, forecast: "Forecast | None", outcome: "Outcome") -> str | None:
    """Return the command that saves what a start loses; None where it loses no record."""
    if not outcome.losses.messages:
        return None
    worst = forecast is not None and outcome is forecast.worst
    return save_command(arguments, arguments.broker_version or (None if worst else outcome.release), None)


# --- of a report ------------------------------------------------------------------------------------------


def _of_written(arguments: ReportArguments, path: str) -> list[Answer]:
    """Return what a report that `verify` wrote tells of its stores, or of those that are named.

    :raises click.BadParameter: it is no report, or has no store of that name.
    """
    try:
        found = read_reports(path)
    except ValueError as error:
        raise click.BadParameter(escape(str(error)), param_hint="--from") from error
    names: Sequence[str | None] = arguments.paths or tuple(found)
    for name in names:
        if name not in found:
            known = ", ".join(escape(one) for one in found if one is not None) or "that of one store, without a name"
            raise click.BadParameter(f"no store {escape(str(name))!r} in it; there are: {known}", param_hint="--from")
    return [_written(arguments, name, found[name]) for name in dict.fromkeys(names)]


def _written(arguments: ReportArguments, name: str | None, report: Report | str) -> Answer:
    from msgspec.structs import replace

    from rmqinspect.page.documents import written_documents

    if isinstance(report, str):
        return Answer(StoreRow(store=str(name), error=report), ExitStatus.UNREADABLE)
    if arguments.redact is not None:
        report = replace(report, findings=redact_rows(report.findings, arguments.redact))
    document = as_object(report)
    called = name or report.run.store
    documents = written_documents(called, document, worst_start(document["next_start"]))
    return Answer(row_of_report(called, None, document), status_of_report(report, arguments.fail_on), documents)


# --- the page ---------------------------------------------------------------------------------------------


def _write(
    answers: Sequence[Answer], arguments: ReportArguments, evidence: Sequence[str], *, several: bool
) -> ExitStatus:
    """Write the page, its digest on stderr; return the exit status of the worst store."""
    import hashlib

    from rmqinspect.output import open_destination
    from rmqinspect.page.render import render

    order = sorted(answers, key=worst_first)
    stores: list[Any] = [answer.document for answer in order if answer.document is not None]
    rows = [{**as_object(answer.row), "gone": answer.row.gone} for answer in order] if several else []
    words = arguments.redact.words if arguments.redact else ()
    page = render(stores, rows, arguments.zone, datetime.now(UTC), words).encode("utf-8", "backslashreplace")
    with open_destination(arguments.output, evidence) as out:
        out.write(page)
    if arguments.output not in (None, "-") and not arguments.quiet:
        click.echo(f"{escape(str(arguments.output))}  sha256 {hashlib.sha256(page).hexdigest()}", err=True)
    return status_of_all(answers)
