"""`rmqinspect export`: tables of whole stores as Parquet files, all of them or none.

arguments -> ExportRequest -> plan of each store -> engine writes parts -> commit -> screen
                                                Ctrl-C, an error: what was written is removed
"""

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import cache, partial
from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from rmqinspect.cli.export_run import ExportRun
from rmqinspect.cli.export_stores import Readable, find_apart, find_small_stores, names_and_paths, open_others
from rmqinspect.cli.lost import find_lost
from rmqinspect.cli.selection import read_selection, with_times
from rmqinspect.cli.terminal import Progress
from rmqinspect.cli.verbs.export import ExportArguments
from rmqinspect.errors import NotInstalled, Refused, Unreadable
from rmqinspect.export.request import FINDINGS, MESSAGES, ExportRequest
from rmqinspect.text import escape

if TYPE_CHECKING:
    from rmqinspect.export.apart import StoreToPlan
    from rmqinspect.export.plan import HowToRead, StorePlan, StoreSurvey
    from rmqinspect.export.shared import SmallStore
    from rmqinspect.export.target import Target
    from rmqinspect.rocksdb.unpack import Unpacking
    from rmqinspect.store.model import Store
    from rmqinspect.tables.filters import Selection


def run(arguments: ExportArguments) -> int:
    """Do what `export` is asked for, and return the exit status."""
    from rmqinspect.rocksdb.unpack import unpacked

    _refuse_contradictions(arguments)
    arguments = dataclasses.replace(arguments, engine=_choose_engine(arguments))
    started = datetime.now(UTC)
    request = _make_request(arguments)
    readable = Readable(skips=arguments.skip_unreadable)
    small = find_small_stores(arguments, request)
    apart = find_apart(arguments, request, small, _how_to_read(arguments, request, started))
    listed = open_others(arguments, readable, {*small, *(store.name for store in apart)})
    surveys: dict[str, StoreSurvey] = {}
    with ExitStack() as copies:
        stores = []
        for store, survey in listed:
            with readable.or_skipped(store.name, store.paths):
                whole = copies.enter_context(unpacked(store, _unpacking(arguments, request), _databases(request)))
                stores.append(whole)
                if survey is not None and whole is store:
                    surveys[store.name] = survey
                if not arguments.quiet and not arguments.verbose:  # -v shows all remarks
                    for remark in whole.remarks[len(store.remarks) :]:
                        click.echo(escape(f"{store.name}: {remark}"), err=True)
        return _export(stores, surveys, request, arguments, started, readable, small, apart)


def _how_to_read(arguments: ExportArguments, request: ExportRequest, started: datetime) -> "HowToRead":
    """Return what tasks that open stores have in common."""
    from rmqinspect.export.plan import HowToRead

    return HowToRead(
        with_times(request.selection, arguments, lambda: 0, started),
        _unpacking(arguments, request),
        _databases(request),
        arguments.max_config,
        arguments.skip_unreadable,
        bool(arguments.verbose),
    )


def _unpacking(arguments: ExportArguments, request: ExportRequest) -> "Unpacking":
    """Return how RocksDB databases are unpacked: filters may need queues that the tables do not."""
    from rmqinspect.tables.sources import unpacking_for

    selection = request.selection
    filtered = selection.unconsumed is not None or selection.lost_at_start is not None
    return arguments.unpacking if filtered else unpacking_for(request.tables, arguments.unpacking)


def _databases(request: ExportRequest) -> Collection[str] | None:
    """Return which RocksDB databases are read; None: all."""
    from rmqinspect.tables.sources import databases_of

    filtered_by = () if request.selection.unconsumed is None else ("groups",)
    tables = (*request.tables, *filtered_by)
    if request.selection.lost_at_start is not None:
        return None  # a start reads them all
    return None if FINDINGS in tables else {name for table in tables for name in databases_of(table)}


def _export(
    stores: "list[Store]",
    surveys: "Mapping[str, StoreSurvey]",
    request: ExportRequest,
    arguments: ExportArguments,
    started: datetime,
    readable: Readable,
    small: "Mapping[str, SmallStore]",
    apart: "Sequence[StoreToPlan]",
) -> int:
    selections = _select(stores, request, arguments, readable)
    stores = [store for store in stores if store.name in selections]

    from rmqinspect.export.shared import share
    from rmqinspect.export.target import Target

    by_tasks: list[SmallStore | StoreToPlan] = [*small.values(), *apart]
    evidence = [path for store in stores for path in store.paths] + [store.path for store in by_tasks]
    mode = "incremental" if arguments.incremental else "overwrite" if arguments.overwrite else "fresh"
    target = Target(arguments.output, mode, evidence, resumes=arguments.resume)
    plans = _plan(stores, surveys, request, target, arguments, readable)
    if not plans and not by_tasks and readable.skipped:
        raise Unreadable("no store could be read")
    shared = list(share(list(small.values()), _how_to_read(arguments, request, started)))
    order = [name for name, _ in names_and_paths(arguments)] if by_tasks else [plan.store.name for plan in plans]
    size = sum(plan.size for plan in plans) + sum(part.size for part in shared)
    with Progress(size, arguments.progress, quiet=arguments.quiet) as progress:
        skipped = readable.skipped
        run = ExportRun(plans, request, selections, target, arguments, progress, started, skipped, shared, order, apart)
        return run.go()


def _refuse_contradictions(arguments: ExportArguments) -> None:
    if arguments.all and arguments.tables:
        raise click.UsageError("--all and --table contradict each other.")
    if arguments.overwrite and arguments.incremental:
        raise click.UsageError("--overwrite and --incremental contradict each other.")
    if arguments.overwrite and arguments.resume:
        raise click.UsageError("--overwrite and --resume contradict each other.")
    if arguments.replace_changed and not arguments.incremental:
        raise click.UsageError("--replace-changed needs --incremental.")
    if arguments.master and arguments.engine == "local":
        raise click.UsageError("--master needs --engine spark.")
    if arguments.read_rate is not None and (arguments.engine == "spark" or arguments.master):
        raise click.UsageError("--read-rate limits this process only: it needs --engine local.")
    if arguments.incremental and arguments.unconsumed is not None:
        raise click.UsageError(
            "--incremental and --unconsumed contradict each other: what a group has not consumed changes."
        )
    if arguments.incremental and arguments.lost_at_start:
        raise click.UsageError("--incremental and --lost-at-start contradict each other: what a start loses changes.")
    arguments.refuse_unused(_tables(arguments))
    if arguments.incremental and (relative := _relative_times(arguments)):
        raise click.UsageError(f"--incremental needs a fixed --{relative[0][0]}: an absolute time.")


def _choose_engine(arguments: ExportArguments) -> str:
    """Return the engine: for auto Spark, unless it is not there or cannot do what is asked for; a remark says why.

    :raises NotInstalled: Spark is asked for and not there.
    """
    if arguments.engine == "local":
        return "local"
    insists = arguments.engine == "spark" or arguments.master is not None
    if not insists and arguments.read_rate is not None:
        _remark(arguments, "engine local: --read-rate limits this process only")
        return "local"
    from rmqinspect.spark.session import WITHOUT, check_spark

    try:
        check_spark(arguments.master)
    except NotInstalled as error:
        if insists:
            raise
        _remark(arguments, f"{str(error).removesuffix(f'; {WITHOUT}')}. Engine local: the files are the same")
        return "local"
    return "spark"


def _remark(arguments: ExportArguments, text: str) -> None:
    if not arguments.quiet:
        click.echo(escape(text), err=True)


def _relative_times(arguments: ExportArguments) -> tuple[tuple[str, str], ...]:
    """Return those of --since and --until that are relative (`-2h`, `last-5m`, `now`), by name."""
    given = [("since", arguments.since), ("until", arguments.until)]
    return tuple((name, text) for name, text in given if text and not text[:1].isdigit())


def _tables(arguments: ExportArguments) -> tuple[str, ...]:
    """Return the names of the tables asked for, which may not exist."""
    from rmqinspect.tables import TABLES

    return (*TABLES, FINDINGS) if arguments.all else tuple(dict.fromkeys(arguments.tables)) or (MESSAGES,)


def _make_request(arguments: ExportArguments) -> ExportRequest:
    from rmqinspect.tables import TABLES

    known = [*TABLES, FINDINGS]
    asked = _tables(arguments)
    for name in asked:
        if name not in known:
            raise click.BadParameter(f"no table {escape(name)!r}; there are: {', '.join(known)}", param_hint="--table")
    # An incremental export may name the tables in another order.
    tables = tuple(name for name in known if name in asked)
    if MESSAGES not in tables:
        of_messages = {
            "--partition-by": arguments.partition_by,
            "--raw-body": arguments.raw_body,
            "--body": arguments.body == "text",
        }
        for name, given in of_messages.items():
            if given:
                raise click.UsageError(f"{name} is for the table messages.")
    if arguments.body == "text" and arguments.schema == "kafka":
        raise click.UsageError("--body text is for --schema native: the value of a Kafka message is bytes.")
    relative = _relative_times(arguments)
    names = dict(relative)
    absolute = dataclasses.replace(
        arguments,
        since=None if "since" in names else arguments.since,
        until=None if "until" in names else arguments.until,
    )
    return ExportRequest(
        tables=tables,
        file_size=arguments.file_size,
        schema=arguments.schema,
        partition_by=arguments.partition_by,
        selection=with_times(read_selection(arguments), absolute, lambda: 0),
        redaction=arguments.redact,
        raw_body=arguments.raw_body,
        text_bodies=arguments.body == "text",
        max_body=arguments.max_body,
        closed_only=arguments.closed_only,
        relative=relative,
        start=arguments.start,
    )


def _select(
    stores: "Sequence[Store]", request: ExportRequest, arguments: ExportArguments, readable: Readable
) -> "dict[str, Selection]":
    """Return the selection by store name: `last` is another time in each store."""
    from rmqinspect.export.part import schema_of
    from rmqinspect.find.consumers import expect_group
    from rmqinspect.tables.sources import last_store_time

    now = datetime.now(UTC)
    with_times(request.selection, arguments, lambda: 0, now)  # reports a time that cannot be parsed before any work
    if request.selection.unconsumed is not None:
        expect_group(stores, request.selection.unconsumed)
    selections = {}
    for store in stores:
        with readable.or_skipped(store.name, store.paths):
            selection = _of_store(store, request, arguments)
            selections[store.name] = with_times(selection, arguments, cache(partial(last_store_time, store)), now)
    timed = (
        next(iter(selections.values()), request.selection)
        if arguments.since is None and arguments.until is None
        else dataclasses.replace(request.selection, since=0)
    )
    for table in request.tables:
        plain = replace(request, schema="native")  # rows are selected before their conversion
        if missing := timed.missing_columns(schema_of(table, plain)):
            raise click.UsageError(f"The table {table} has no column for {missing[0]}.")
    return selections


def _of_store(store: "Store", request: ExportRequest, arguments: ExportArguments) -> "Selection":
    """Return the filters of a store: with what a group has not consumed there, or the next start gives up.

    :raises Unreadable: the group's offsets, or a queue, cannot be read; or it cannot be told what the start does.
    """
    from rmqinspect.find.consumers import with_unconsumed

    selection, of_group = with_unconsumed(store, request.selection)
    if of_group is not None and of_group.unread:
        raise Unreadable(of_group.unread[0])
    selection, of_start = find_lost(store, selection, arguments)
    if of_start is not None:
        _remark(arguments, f"{store.name}: {of_start.told}")
        for message in of_start.unread:
            raise Unreadable(message)
    return selection


def _plan(
    stores: "Sequence[Store]",
    surveys: "Mapping[str, StoreSurvey]",
    request: ExportRequest,
    target: "Target",
    arguments: ExportArguments,
    readable: Readable,
) -> "list[StorePlan]":
    from rmqinspect.export.plan import expect_few_parts, plan_store, survey_store

    earlier = target.earlier
    if earlier is not None and earlier.request != request.as_document():
        asked = request.as_document()
        changed = [name for name in asked if earlier.request.get(name) != asked[name]]
        raise Refused(
            f"{arguments.output}: the export there was made with different {', '.join(changed) or 'options'}; "
            "its rows and new ones would not fit together. --overwrite replaces it"
        )
    expect_few_parts(stores, request.file_size)
    plans = []
    for store in stores:
        with readable.or_skipped(store.name, store.paths):
            plans.append(
                plan_store(
                    store,
                    surveys.get(store.name) or survey_store(store),
                    request,
                    earlier,
                    replace_changed=arguments.replace_changed,
                    unpacking=_unpacking(arguments, request),
                )
            )
    return plans
