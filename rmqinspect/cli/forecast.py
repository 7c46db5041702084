"""`rmqinspect forecast`: what a broker does to a store at its next start, as a screen, a document or a script.

`forecast --explain`: every decision of a walk, what it was decided from, and where the rule was read.
"""

import os
import sys
import tempfile
from collections.abc import Iterator
from datetime import tzinfo
from functools import partial
from itertools import chain, groupby
from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from rmqinspect.cli import ExitStatus
from rmqinspect.cli.lost import compare_with, is_clean, save_command
from rmqinspect.cli.options import (
    count_jobs,
    given_stores,
    use_colour,
)
from rmqinspect.cli.pager import print_answered
from rmqinspect.cli.session import document_format, json_line, print_lines, printed_to, refuse_early, tell_broker
from rmqinspect.cli.terminal import LONG_READ, Progress, Screen, least_time
from rmqinspect.cli.verbs.forecast import ForecastArguments
from rmqinspect.commands import SALVAGE, fill_command
from rmqinspect.errors import NotAStore, Refused, Unreadable
from rmqinspect.forecast.outcome import Decision, Forecast, InReplica, Outcome, SalvagePrice, Verdict
from rmqinspect.forecast.words import span_of
from rmqinspect.store.model import Store
from rmqinspect.system.output_file import METRICS_HEAD
from rmqinspect.system.run import with_run
from rmqinspect.text import describe_size, group_digits
from rmqinspect.times import format_millis

if TYPE_CHECKING:
    from rmqinspect.cli.fleet import Answer
    from rmqinspect.fleet.given import Given
    from rmqinspect.output.openmetrics import Sample

STATUSES = {
    Verdict.SAFE: ExitStatus.DONE,
    Verdict.LOSES: ExitStatus.DAMAGE,
    Verdict.EMPTY: ExitStatus.DAMAGE,
    Verdict.REFUSES: ExitStatus.DAMAGE,
    Verdict.UNKNOWN: ExitStatus.UNREADABLE,
    Verdict.RUNS: ExitStatus.UNREADABLE,
}
"""The exit status of each verdict."""

_COLOURS = {ExitStatus.DONE: "green", ExitStatus.DAMAGE: "red", ExitStatus.UNREADABLE: "yellow"}


def run(arguments: ForecastArguments) -> int:
    """Do what `forecast` is asked for, and return the exit status."""
    given = given_stores(arguments)
    format_ = _format_of(arguments)
    if format_ == "openmetrics":
        from rmqinspect.cli.metrics import check_installed, of_forecast, write_metrics

        check_installed()
    if len(given) > 1:
        return _tell_several(arguments, given, format_)
    store = given[0].open(**arguments.opening)
    refuse_early(arguments.output, store.paths, replaces=METRICS_HEAD if format_ == "openmetrics" else b"")
    found = _told(store, arguments)
    found.replica = _compared(found, store, arguments)
    if arguments.salvage:
        found.salvage = _salvaged(arguments)
    if arguments.script:
        from rmqinspect.cli.forecast_script import script
        from rmqinspect.output import open_destination

        # As bytes: a script has to keep the names of files as they are, in any locale and through any stream.
        text = script(found, store, arguments.config).encode()
        with open_destination(arguments.output, store.paths) as out:
            out.write(text)
    elif format_ == "openmetrics":
        write_metrics(of_forecast(found, store.name), arguments.output, store.paths)
    elif not arguments.quiet or arguments.format or arguments.output:
        with printed_to(arguments.output, store.paths):
            _print(found, store, arguments)
    return _status(found)


def _format_of(arguments: ForecastArguments) -> str:
    """Return table, json, jsonl or openmetrics; a script has a format of its own."""
    if arguments.format is None and (arguments.output or "").endswith(".prom") and not arguments.script:
        return "openmetrics"
    return document_format(arguments)


def _told(store: "Store", arguments: ForecastArguments) -> "Forecast":
    """Return what is told of a store."""
    from rmqinspect.rocksdb.databases import UNITS_NEEDED
    from rmqinspect.rocksdb.unpack import unpacked

    # Most starts change no queue in RocksDB: then it is enough to know where they end.
    with unpacked(store, replace(arguments.unpacking, ends_only=True)) as whole:
        found = _forecast(whole, arguments)
    if any(outcome.unknown == UNITS_NEEDED for outcome in found.outcomes):
        with unpacked(store, arguments.unpacking) as whole:
            found = _forecast(whole, arguments)
    return found


def _compared(forecast: "Forecast", store: "Store", arguments: ForecastArguments) -> "InReplica | None":
    """Return what the other store has of what the worst start loses; None where it loses no record."""
    if arguments.replica is None or not forecast.worst.losses.messages:
        return None
    from rmqinspect.forecast.lost_records import records_of

    with Progress(0, arguments.progress, quiet=arguments.quiet) as progress:
        jobs = count_jobs(arguments)
        found, _ = compare_with(store, records_of(forecast.worst), arguments.replica, jobs, progress)
        for message in found.unread:
            progress.complain(f"not read: {message}")
    forecast.unread += found.unread
    return found


def _salvaged(arguments: ForecastArguments) -> SalvagePrice:
    """Return what a salvage would give: the plan that it makes, of which nothing is written."""
    from rmqinspect.rescue.given import open_sources
    from rmqinspect.rescue.new_store import NewStore
    from rmqinspect.rescue.salvage import SalvageJob, SalvageRequest

    target = os.path.join(tempfile.gettempdir(), f"rmqinspect-{os.getpid()}")  # any name will do: it is not made
    request = SalvageRequest(
        target,
        arguments.broker_version,
        dry_run=True,
        config=arguments.config,
        max_config=arguments.max_config,
        jobs=count_jobs(arguments),
    )
    try:
        given = open_sources([(path, path) for path in arguments.paths], arguments.opening)
        log = sum(segment.size for _, store in given for segment in store.segments)
        new = NewStore(target, [path for _, store in given for path in store.paths], dry_run=True)
        with Progress(log, arguments.progress, quiet=arguments.quiet) as progress:
            receipt = SalvageJob(given, request, new, progress, progress.remark).salvage().receipt
    except (Refused, NotAStore, Unreadable) as error:
        return SalvagePrice("", 0, 0, 0, 0, 0, str(error))
    return SalvagePrice(
        receipt.broker_version,
        sum(len(one.lost) for one in receipt.lost_offsets),
        len(receipt.aside),
        sum(one.end - one.start for one in receipt.aside),
        len(receipt.repaired),
        sum(not one.exact for one in receipt.repaired),
    )


def _status(forecast: "Forecast") -> ExitStatus:
    status = STATUSES[forecast.worst.verdict]
    # What could not be read may be what the start stumbles over.
    return ExitStatus.UNREADABLE if status is ExitStatus.DONE and forecast.unread else status


# --- of several stores ---------------------------------------------------------------------------------


def _tell_several(arguments: ForecastArguments, given: "list[Given]", format_: str) -> ExitStatus:
    import rmqinspect.forecast.versions
    import rmqinspect.rocksdb.unpack
    import rmqinspect.show.overview  # noqa: F401  once, before processes are forked
    from rmqinspect.cli.fleet import (
        ask_each,
        command_about,
        evidence_of,
        print_answers,
        refuse_several,
        status_of_all,
    )

    refuse_several(arguments, given, "script", "explain", "replica", "salvage")
    as_metrics = format_ == "openmetrics"
    evidence = evidence_of(given)
    refuse_early(arguments.output, evidence, replaces=METRICS_HEAD if as_metrics else b"")
    answers = ask_each(arguments, given, partial(_ask, format_))
    if as_metrics:
        from rmqinspect.cli.metrics import of_failed, write_metrics

        told = [answer.samples or of_failed("forecast", answer.row.store) for answer in answers]
        write_metrics(chain.from_iterable(told), arguments.output, evidence)
    elif not arguments.quiet or arguments.format or arguments.output:
        screen_of, colour = command_about("forecast", arguments, given), use_colour(arguments.color, arguments.output)
        print_answers(answers, screen_of, format_, arguments.output, evidence, colour=colour)
    return status_of_all(answers)


def _ask(format_: str, arguments: ForecastArguments, given: "Given") -> "Answer":
    """Return what is told of one of several stores."""
    from rmqinspect.cli.fleet import Answer
    from rmqinspect.fleet.summary import row_of_forecast
    from rmqinspect.forecast.document import document

    store = given.open(**arguments.opening)
    found = _told(store, arguments)
    told = with_run(document(found, arguments.zone, partial(_saving, found, arguments)))
    row = row_of_forecast(store.name, store, found, told)
    samples: list[Sample] = []
    if format_ == "openmetrics":
        from rmqinspect.cli.metrics import of_forecast

        samples = list(of_forecast(found, store.name))
    return Answer(row, _status(found), told if format_ in ("json", "jsonl") else None, (), samples)


# --- the walk -------------------------------------------------------------------------------------------


def _forecast(store: "Store", arguments: ForecastArguments) -> "Forecast":
    from rmqinspect.cli.forecast_screen import alike
    from rmqinspect.forecast.evidence import of_parts
    from rmqinspect.forecast.versions import ForecastRequest, forecast

    if (parts := of_parts(store)) is not None:
        return parts
    with Progress(0, arguments.progress, quiet=arguments.quiet) as progress:
        tell_broker(store, progress.remark)
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
            clean_exit=is_clean(arguments.exit),
            jobs=count_jobs(arguments),
            progress=progress,
            announce=announce,
            as_copied=arguments.as_copied,
            instead=not arguments.all_versions,
        )
        found = forecast(store, request)
        for message in found.unread:
            progress.complain(f"not read: {message}")
        told = found.worst.verdict is not Verdict.UNKNOWN
        if told and found.worst.release and arguments.broker_version is None and not arguments.all_versions:
            clues = f"from content: {found.version_from}" if found.version_from else "no evidence in the content"
            agree = "agree" if len(alike(found)) == 1 else "differ, the worst one decides"
            progress.remark(
                f"the version is not given: by the rules of {span_of(found.outcomes)} ({clues}); the outcomes {agree}"
            )
    return found


# --- what is printed ------------------------------------------------------------------------------------


def _print(forecast: "Forecast", store: "Store", arguments: ForecastArguments) -> None:
    if document_format(arguments) != "table":
        from rmqinspect.forecast.document import document

        saving = partial(_saving, forecast, arguments)
        click.echo(json_line(with_run(document(forecast, arguments.zone, saving, _listing(arguments)))))
        return
    colour = use_colour(arguments.color, arguments.output)
    print_lines(_lines(forecast, store, arguments), colour=colour)
    from rmqinspect.cli.forecast_screen import verdict_lines

    shade = _COLOURS[_status(forecast)]
    if sys.stdout.isatty():
        from rmqinspect.cli.forecast_screen import SCREEN
        from rmqinspect.cli.log_bar import bar_lines
        from rmqinspect.picture.starts import picture_of_start

        print_lines(
            bar_lines(picture_of_start(store, forecast, store.name), SCREEN, "log", colour=colour), colour=colour
        )
    lines = (click.style(line, fg=shade, bold=True) if colour else line for line in verdict_lines(forecast))
    print_answered(lines, colour=colour)


def _lines(forecast: "Forecast", store: "Store", arguments: ForecastArguments) -> Iterator[str]:
    from rmqinspect.cli.forecast_screen import Look, era_table, screen

    if arguments.explain:
        yield from walk_lines(forecast, arguments.zone)
    if arguments.all_versions:
        yield from era_table(forecast)
    else:
        saving = partial(_saving, forecast, arguments)
        look = Look(arguments.zone, arguments.verbose > 0, saving, _listing(arguments), _salvaging(store, arguments))
        yield from screen(forecast, store, look)


def _salvaging(store: "Store", arguments: ForecastArguments) -> str | None:
    """Return the command that tells what a salvage would keep; None for a DLedger log, which it does not take."""
    if any(segment.kind == "dledger" for segment in store.segments):
        return None
    return fill_command(f"{SALVAGE} --dry-run", store.words)


def _saving(forecast: "Forecast", arguments: ForecastArguments, outcome: Outcome) -> str | None:
    """Return the command that saves what an outcome loses; None where it loses no record."""
    if not outcome.losses.messages:
        return None
    # The worst of several answers is the one that the command would find by itself.
    release = arguments.broker_version or (None if outcome is forecast.worst else outcome.release)
    return save_command(arguments, release, arguments.exit)


def _listing(arguments: ForecastArguments) -> str | None:
    """Return the command that lists what the worst outcome loses and the other store has not; None without one."""
    if arguments.replica is None:
        return None
    return save_command(arguments, arguments.broker_version, arguments.exit, not_in=arguments.replica)


_SCREEN = Screen(indent=11, lead=2, cut=True)


def walk_lines(forecast: Forecast, zone: tzinfo) -> Iterator[str]:
    """Yield the decisions of each outcome, in the order in which the start comes to them.

    A step that a release before it takes alike is only named.
    """
    told: dict[tuple[Decision, ...], str] = {}  # the decisions of a step, and the first release that takes them
    for outcome in forecast.outcomes:
        word = "clean" if outcome.clean_exit else "unclean"
        yield f"start of {outcome.release} after {'a' if outcome.clean_exit else 'an'} {word} exit"
        alike: dict[str, list[str]] = {}
        for step, run in groupby(outcome.decisions, key=lambda decision: decision.step):
            decisions = tuple(run)
            first = told.setdefault(decisions, outcome.release)
            if first != outcome.release:
                alike.setdefault(first, []).append(step)
                continue
            for number, decision in enumerate(decisions):
                yield from _SCREEN.rows("" if number else step, decision.text)
                inputs = ", ".join(_input_words(name, value, zone) for name, value in decision.inputs if name != "rule")
                source = f"({decision.source})"
                yield from _SCREEN.rows("", f"from {inputs} {source}" if inputs else source)
        for release, steps in alike.items():
            yield from _SCREEN.rows(f"as {release}", ", ".join(dict.fromkeys(steps)))
        yield ""


def _input_words(name: str, value: str | int, zone: tzinfo) -> str:
    """Return what a decision was made from: a time with its date, a rule in words, other names as RocketMQ has them."""
    from rmqinspect.broker.rules import Rule
    from rmqinspect.broker.start_rules import Rules

    rule = getattr(Rules, name, None)
    if isinstance(rule, Rule) and value in rule.means:
        return f"{rule.decides}: {rule.means[value]}"
    if not isinstance(value, int):
        return f"{name} {value}"
    time = format_millis(value, zone) if value > 0 and ("timestamp" in name or " time " in name) else None
    return f"{name} {time or group_digits(value)}"
