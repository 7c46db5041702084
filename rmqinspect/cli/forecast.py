"""`rmqinspect forecast`: what a broker does to a store at its next start, as a screen, a document or a script."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import click

from rmqinspect.cli.documents import document_format, print_line, printed_to
from rmqinspect.cli.options import (
    DocumentOptions,
    JobOptions,
    LookOptions,
    RocksdbOptions,
    SourceOptions,
    TalkOptions,
    count_jobs,
    use_colour,
)
from rmqinspect.cli.parameters import option, takes
from rmqinspect.cli.progress import LONG_READ, Progress, least_time, running_broker
from rmqinspect.cli.release import release_option
from rmqinspect.cli.status import ExitStatus
from rmqinspect.forecast.outcome import Verdict
from rmqinspect.text import describe_size, escape_json

if TYPE_CHECKING:
    from rmqinspect.forecast.outcome import Forecast
    from rmqinspect.store.model import Store

STATUSES = {
    Verdict.SAFE: ExitStatus.DONE,
    Verdict.LOSES: ExitStatus.DAMAGE,
    Verdict.REFUSES: ExitStatus.DAMAGE,
    Verdict.UNKNOWN: ExitStatus.UNREADABLE,
}
"""The exit status of each verdict."""

_COLOURS = {ExitStatus.DONE: "green", ExitStatus.DAMAGE: "red", ExitStatus.UNREADABLE: "yellow"}


@dataclass(frozen=True, kw_only=True)
class ForecastArguments(DocumentOptions, LookOptions, SourceOptions, RocksdbOptions, JobOptions, TalkOptions):
    """What `forecast` is asked for."""

    broker_version: str | None = release_option()
    all_versions: bool = option(
        "--all-versions", is_flag=True, help="Walk the start of every release; one line for each answer."
    )
    exit: str | None = option(
        "--exit",
        type=click.Choice(("clean", "unclean")),
        help="Take the last stop for clean or unclean. Default: unclean if the file abort is there.",
    )
    explain: bool = option(
        "--explain", is_flag=True, help="Show every decision of the start, its inputs, and the class it was read from."
    )
    script: bool = option(
        "--script",
        is_flag=True,
        help="Print a shell script instead: copy the store, and each way to start with its forecast. Runs nothing.",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.all_versions and self.broker_version:
            raise click.UsageError("--all-versions walks every release: --broker-version cannot be combined with it.")
        if self.script and (self.all_versions or self.explain or self.format):
            raise click.UsageError("--script prints a script: --all-versions, --explain and -f cannot be combined.")


@click.command("forecast")
@takes(ForecastArguments)
def command(arguments: ForecastArguments) -> int:
    """Tell what a broker does to a store at its next start: will it start, and what will be gone?

    Without --broker-version every release that may have written the store is walked; where they differ
    all are shown, and the worst one decides. Nothing is started and nothing is changed.

    Exit status: 0 safe to start, 3 the start loses data or the broker does not start, 4 it cannot be told.

    \b
    Examples:
      rmqinspect forecast STORE
      rmqinspect forecast STORE --broker-version 5.3.3 --config broker.conf
      rmqinspect forecast STORE --all-versions
      rmqinspect forecast STORE --explain
      rmqinspect forecast STORE --script -o start.sh
      rmqinspect forecast STORE -q && systemctl start rocketmq
    """
    from rmqinspect.rocksdb.queue_offsets import UNITS_NEEDED
    from rmqinspect.rocksdb.unpack import unpacked
    from rmqinspect.store.discover import open_store

    store = open_store(arguments.paths, **arguments.opening)
    # Most starts change no queue in RocksDB: then it is enough to know where they end.
    with unpacked(store, replace(arguments.unpacking, ends_only=True)) as whole:
        found = _forecast(whole, arguments)
    if any(outcome.unknown == UNITS_NEEDED for outcome in found.outcomes):
        with unpacked(store, arguments.unpacking) as whole:
            found = _forecast(whole, arguments)
    if arguments.script or not arguments.quiet or arguments.format or arguments.output:
        with printed_to(arguments.output, store.paths):
            _print(found, store, arguments)
    return _status(found)


def _status(forecast: "Forecast") -> ExitStatus:
    status = STATUSES[forecast.worst.verdict]
    # What could not be read may be what the start stumbles over.
    return ExitStatus.UNREADABLE if status is ExitStatus.DONE and forecast.unread else status


# --- the walk -------------------------------------------------------------------------------------------


def _forecast(store: "Store", arguments: ForecastArguments) -> "Forecast":
    from rmqinspect.forecast.parts import of_parts
    from rmqinspect.forecast.versions import ForecastRequest, forecast
    from rmqinspect.store.lock import lock_holder

    if (parts := of_parts(store)) is not None:
        return parts
    with Progress(0, arguments.progress, quiet=arguments.quiet) as progress:
        holder = lock_holder(store)
        if holder is not None:
            progress.remark(running_broker(holder))
        for remark in store.remarks if arguments.verbose else ():
            progress.remark(remark)

        def announce(size: int, why: str) -> None:
            # Several walks read the same, once: the longest one counts.
            if size > max(progress.total, LONG_READ):
                progress.remark(f"up to {describe_size(size)} to read: {why}{least_time(size)}")
            progress.total = max(progress.total, size)

        request = ForecastRequest(
            release=arguments.broker_version,
            all_versions=arguments.all_versions,
            clean_exit=None if arguments.exit is None else arguments.exit == "clean",
            jobs=count_jobs(arguments),
            progress=progress,
            announce=announce,
            instead=not arguments.all_versions,
        )
        found = forecast(store, request)
        for message in found.unread:
            progress.complain(f"not read: {message}")
        if arguments.broker_version is None and not arguments.all_versions:
            progress.remark(_walked(found))
    if holder is not None:
        for outcome in found.outcomes:
            outcome.notes.append("describes the files as they are now: a broker runs on this store")
    return found


def _walked(forecast: "Forecast") -> str:
    """Return which releases were walked, and why these."""
    from rmqinspect.cli.forecast_screen import alike
    from rmqinspect.forecast.words import span_of

    span = span_of(forecast.outcomes)
    clues = f"from content: {forecast.version_from}" if forecast.version_from else "no evidence in the content"
    agree = "the outcomes agree" if len(alike(forecast)) == 1 else "the outcomes differ, the worst one decides"
    return f"the version is not given: walked for {span} ({clues}); {agree}"


# --- what is printed ------------------------------------------------------------------------------------


def _print(forecast: "Forecast", store: "Store", arguments: ForecastArguments) -> None:
    if arguments.script:
        from rmqinspect.cli.forecast_script import script

        click.echo(script(forecast, store), nl=False)
        return
    if document_format(arguments) == "json":
        from rmqinspect.forecast.document import document

        told = document(forecast, arguments.zone)
        click.echo(escape_json(json.dumps(told, ensure_ascii=False)))
        return
    colour = use_colour(arguments.color, arguments.output)
    for line in _lines(forecast, store, arguments):
        print_line(line, colour=colour)
    from rmqinspect.cli.forecast_screen import verdict_lines

    shade = _COLOURS[_status(forecast)]
    for line in verdict_lines(forecast):
        click.echo(click.style(line, fg=shade, bold=True) if colour else line, color=colour)


def _lines(forecast: "Forecast", store: "Store", arguments: ForecastArguments) -> Iterator[str]:
    from rmqinspect.cli.forecast_explain import walk_lines
    from rmqinspect.cli.forecast_screen import Look, era_table, screen

    if arguments.explain:
        yield from walk_lines(forecast)
    if arguments.all_versions:
        yield from era_table(forecast)
    else:
        yield from screen(forecast, store, Look(arguments.zone, queues=arguments.verbose > 0))
