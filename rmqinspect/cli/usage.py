"""`rmqinspect usage`: what takes the bytes of the log, and what a retention would free."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache, partial
from typing import TYPE_CHECKING

import click

from rmqinspect.cli.documents import printed_to
from rmqinspect.cli.options import (
    choose_format,
    count_jobs,
    open_named,
    use_colour,
)
from rmqinspect.cli.parameters import takes
from rmqinspect.cli.progress import LONG_READ, Progress, least_time
from rmqinspect.cli.selection import with_times
from rmqinspect.cli.status import ExitStatus
from rmqinspect.cli.usage_options import UsageArguments
from rmqinspect.errors import Unreadable
from rmqinspect.text import count, describe_size, escape

if TYPE_CHECKING:
    import pyarrow as pa

    from rmqinspect.store.model import Store
    from rmqinspect.tables.filters import Selection
    from rmqinspect.tables.table import Request
    from rmqinspect.tables.usage_fold import Usage


@click.command("usage")
@takes(UsageArguments)
def command(arguments: UsageArguments) -> int:
    """Show what takes the bytes of the log: by topic, queue, tag, producer, hour, kind, segment.

    Also what a retention would free, and what consumer groups would lose by it. Numbers are exact
    unless --sample is given.

    \b
    Examples:
      rmqinspect usage STORE
      rmqinspect usage STORE --retention 48h --retention 24h
      rmqinspect usage STORE --by tag,host -t orders --since -2h
      rmqinspect usage STORE --sample 1GiB
      rmqinspect usage STORE -f csv -o usage.csv
    """
    format_ = choose_format(arguments)

    stores = open_named(arguments)
    selection = _read_selection(arguments)
    with_times(selection, arguments, lambda: 0)  # checks the times; each store resolves `last` by itself
    size = sum(_size(store, arguments) for store in stores)
    with Progress(size, arguments.progress, quiet=arguments.quiet) as progress:
        _announce(stores, size, arguments, progress)
        reading = _Reading(arguments, selection, progress)
        with _sink(format_, stores, arguments, reading) as show:
            for store in stores:
                reading.read(store, show)
        return reading.conclude()


def _read_selection(arguments: UsageArguments) -> "Selection":
    from rmqinspect.tables.filters import Selection

    return Selection(topics=arguments.topics, queue_id=arguments.queue_id, system_topics=arguments.system_topics)


def _size(store: "Store", arguments: UsageArguments) -> int:
    whole = sum(segment.size for segment in store.segments)
    return whole if arguments.sample is None else min(whole, arguments.sample)


def _announce(stores: "Sequence[Store]", size: int, arguments: UsageArguments, progress: Progress) -> None:
    for remark in (remark for store in stores for remark in store.remarks) if arguments.verbose else ():
        progress.remark(remark)
    if size > LONG_READ:
        cheaper = "" if arguments.sample is not None else ". Cheaper: --sample estimates from a part of it"
        progress.remark(f"{describe_size(size)} to read: exact sums need all of it{cheaper}{least_time(size)}")


Show = Callable[["Store", "Usage", "Request"], None]


@contextmanager
def _sink(format_: str, stores: "Sequence[Store]", arguments: UsageArguments, reading: "_Reading") -> Iterator[Show]:
    """Yield what shows the sums of a store: as a screen, or as rows."""
    evidence = [path for store in stores for path in store.paths]
    if format_ == "table":
        from rmqinspect.cli.usage_screen import print_usage

        with printed_to(arguments.output, evidence):
            yield partial(print_usage, arguments=arguments, colour=use_colour(arguments.color, arguments.output))
        return
    from rmqinspect.output import View, open_writer

    view = View(zone=arguments.zone, redacted=arguments.redact.words if arguments.redact else ())
    schema = _schema(several=len(stores) > 1)
    with open_writer(format_, schema, arguments.output, view=view, evidence=evidence) as writer:

        def write(store: "Store", usage: "Usage", _: "Request") -> None:
            for batch in arguments.shown_rows(usage, arguments.limit):
                writer.write(batch if len(stores) == 1 else _named(batch, store))

        yield write
        writer.complete = not reading.unreadable


def _schema(*, several: bool) -> "pa.Schema":
    import pyarrow as pa

    from rmqinspect.tables.usage import SCHEMA

    name = pa.field("store", pa.string(), metadata={"doc": "which of the stores given"})
    return SCHEMA.insert(0, name) if several else SCHEMA


def _named(batch: "pa.RecordBatch", store: "Store") -> "pa.RecordBatch":
    import pyarrow as pa

    return batch.add_column(0, _schema(several=True).field(0), pa.repeat(store.name, batch.num_rows))


@dataclass
class _Reading:
    """Reads the stores, and counts what is told at the end."""

    arguments: UsageArguments
    selection: "Selection"
    progress: Progress
    unreadable: int = 0
    records: int = 0
    gaps: dict[str, set[tuple[int, int]]] = field(default_factory=lambda: defaultdict(set))  # by store

    def read(self, store: "Store", show: Show) -> None:
        """Read and show one store."""
        from rmqinspect.rocksdb.unpack import unpacked
        from rmqinspect.tables.sources import unread_places
        from rmqinspect.tables.table import CONFIG_DATABASES, QUEUE_DATABASES, Request

        needed = ("config/consumerOffsets", "config/topics", *CONFIG_DATABASES, *QUEUE_DATABASES)
        with unpacked(store, self.arguments.unpacking, needed) as whole:
            for message in unread_places(whole, ("usage",)):
                self.complain(message)
            if not whole.segments:
                self.progress.remark(f"{whole.name}: no commit log segments: nothing to count")
            request = Request(
                jobs=count_jobs(self.arguments),
                progress=self.progress,
                on_gap=lambda _, start, end: self.gaps[whole.name].add((start, end)),
                on_unreadable=self.complain,
                on_remark=self.progress.remark,
            )
            usage = self._sums(whole, request)
            self.records += usage.records
            self.progress.clear()  # stdout and stderr may be the same terminal
            show(whole, usage, replace(request, progress=None))

    def _sums(self, store: "Store", request: "Request") -> "Usage":
        from rmqinspect.tables.sample import plan_sample
        from rmqinspect.tables.sources import last_store_time
        from rmqinspect.tables.usage import DIMENSIONS
        from rmqinspect.tables.usage_fold import choice_of, read_usage

        selection = self.selection
        try:
            selection = with_times(selection, self.arguments, cache(partial(last_store_time, store)), datetime.now(UTC))
        except Unreadable as error:
            self.complain(str(error))
        sample = None
        if self.arguments.sample is not None:
            sample = plan_sample(store.segments, self.arguments.sample)
            if sample is None and store.segments:
                self.progress.remark(f"{store.name}: the log is so small that all of it is read: exact")
        return read_usage(store, request, choice_of(selection), self.arguments.by or DIMENSIONS, sample)

    def complain(self, message: str) -> None:
        """Tell what could not be read."""
        self.unreadable += 1
        self.progress.complain(message)

    def conclude(self) -> ExitStatus:
        """Tell of gaps and of topics that are not there; return the exit status."""
        from rmqinspect.index.lookup import merge

        gaps = [gap for found in self.gaps.values() for gap in merge(found)]
        if gaps:
            size = count(sum(end - start for start, end in gaps), "byte")
            self.progress.remark(f"{count(len(gaps), 'gap')} in the log: {size} without a record (--table gaps)")
        unmatched = self.selection.unmatched_topics()
        for pattern in unmatched:
            near = ", ".join(self.selection.near_topics(pattern))
            self.progress.complain(f"no topic matches {escape(pattern)}" + (f"; near: {near}" if near else ""))
        if gaps and self.arguments.fail_on != "never" and (self.records or not unmatched):
            return ExitStatus.DAMAGE
        if self.unreadable:
            return ExitStatus.UNREADABLE
        return ExitStatus.NOTHING_FOUND if unmatched else ExitStatus.DONE
