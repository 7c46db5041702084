"""The rows of one table, from several stores, in any format: what `decode` and the commands with a table print.

Rows go to stdout or a file; what a reader should know of them to stderr: gaps in the range read, what could not be
read, a limit that cuts. The exit status follows from the same counts.
"""

from collections import defaultdict
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from rmqinspect.cli.options import (
    BodyOptions,
    choose_format,
    count_jobs,
    terminal_width,
    use_colour,
)
from rmqinspect.cli.progress import LONG_READ, Progress, least_time
from rmqinspect.cli.rows_plan import RowsOptions, RowsPlan, StoreRead, make_plan
from rmqinspect.cli.status import ExitStatus
from rmqinspect.errors import Unreadable
from rmqinspect.statuses import SOUND
from rmqinspect.text import count, describe_size, group_digits

if TYPE_CHECKING:
    import pyarrow as pa

    from rmqinspect.output import View, Writer
    from rmqinspect.store.model import Store
    from rmqinspect.tables.filters import Selection
    from rmqinspect.tables.table import Request, Table


def print_rows(
    stores: "Sequence[Store]",
    table: "Table",
    arguments: RowsOptions,
    selection: "Selection",
) -> int:
    """Print the rows of a table that a selection chooses, and return the exit status.

    `selection` is without times: those of the arguments are added for each store.

    :raises click.UsageError: an option does not fit the table or the stores.
    """
    from rmqinspect.output import open_writer

    format_ = choose_format(arguments)
    plan = make_plan(stores, table, arguments, selection, format_)
    evidence = [path for store in stores for path in store.paths]
    with (
        Progress(plan.size, arguments.progress, quiet=arguments.quiet) as progress,
        open_writer(
            format_, plan.shown_schema, arguments.output, view=read_view(arguments, plan.body), evidence=evidence
        ) as writer,
    ):
        reading = _Reading(plan, progress)
        reading.announce()
        reading.write_rows(writer)
    return reading.conclude(talkative=format_ != "table" or bool(arguments.verbose))


def tell_unmatched(selection: "Selection", progress: Progress) -> bool:
    """Tell which topic patterns matched no topic seen, with near names; return whether there are any."""
    unmatched = selection.unmatched_topics()
    for pattern in unmatched:
        near = ", ".join(selection.near_topics(pattern))
        progress.complain(f"no topic matches {pattern}" + (f"; near: {near}" if near else ""))
    return bool(unmatched)


def read_view(arguments: RowsOptions, body: str) -> "View":
    """Return how values are shown."""
    from rmqinspect.output import PREVIEW_SIZE, View

    return View(
        zone=arguments.zone,
        colour=use_colour(arguments.color, arguments.output),
        width=terminal_width(arguments.output),
        chosen=arguments.columns is not None,
        preview=PREVIEW_SIZE if body == "preview" else None,
        redacted=arguments.redact.words if arguments.redact else (),
    )


# --- reading ----------------------------------------------------------------------------------------------


class _Reading:
    """Passes rows from the stores to the writer and counts what is reported at the end."""

    def __init__(self, plan: RowsPlan, progress: Progress) -> None:
        self.plan = plan
        self.progress = progress
        self.rows = 0
        self.bad_rows = 0
        self.more: str | None = None  # whether rows follow the limit: more exist, more may exist
        self.unreadable = 0
        # Parts of gaps in the range asked for, by store; a gap may come in several, and a part twice.
        self.gaps: dict[str, set[tuple[int, int]]] = defaultdict(set)
        self.left_out: list[str] = []  # columns for which the terminal is too narrow

    def announce(self) -> None:
        """Announce a long read before it starts; with -v also what was inferred about the files."""
        arguments = self.plan.arguments
        remarks = [remark for read in self.plan.reads for remark in read.store.remarks]
        for remark in remarks if arguments.verbose else ():
            self.progress.remark(remark)
        stops_early = arguments.limit is not None and not self.plan.filters
        if self.plan.size > LONG_READ and not stops_early:
            why = f"the table {self.plan.table.name} needs all of it"
            if not self.plan.scan and all(read.look_up is not None for read in self.plan.reads):
                why = ", ".join(dict.fromkeys(read.look_up.way for read in self.plan.reads if read.look_up is not None))
            self.progress.remark(
                f"{describe_size(self.plan.size)} to read: {why}. "
                "Cheaper: --offset A..B reads only that range, rmqinspect info reads almost nothing"
                + least_time(self.plan.size)
            )

    def write_rows(self, writer: "Writer") -> None:
        """Write all rows asked for, up to the limit."""
        limit = self.plan.arguments.limit
        with closing(self._batches()) as batches:
            for batch, shaped in batches:
                room = batch.num_rows if limit is None else limit - self.rows
                if room < batch.num_rows:
                    self.more = "more exist"
                    batch, shaped = batch.slice(0, room), shaped.slice(0, room)
                self._count(batch)
                self._forward(writer, shaped)
                if self.more is None and limit is not None and self.rows == limit:
                    self.more = self._look_ahead(batches)
                if self.more is not None:
                    break
        writer.complete = not self.unreadable
        writer.more = bool(self.more)
        self.left_out = writer.left_out

    def _forward(self, writer: "Writer", shaped: "pa.RecordBatch") -> None:
        self.progress.clear()  # stdout and stderr may be the same terminal
        writer.write(shaped)

    def _look_ahead(self, batches: "Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]") -> str | None:
        """Read one more batch after exactly `limit` rows, not more: a filter's next hit may be hours away."""
        batch, _ = next(batches, (None, None))
        if batch is None:
            return None
        return "more exist" if batch.num_rows else "more may exist"

    def _batches(self) -> "Generator[tuple[pa.RecordBatch, pa.RecordBatch], None, None]":
        """Yield (selected rows with all columns, the same rows as they are written)."""
        from rmqinspect.rocksdb.unpack import unpacked

        needed = self.plan.table.databases
        for read in self.plan.reads:
            with unpacked(read.store, self.plan.arguments.unpacking, needed) as store:
                for remark in (*store.remarks[len(read.store.remarks) :], *read.remarks):
                    self.progress.remark(f"{store.name}: {remark}")
                yield from self._batches_of(replace(read, store=store))

    def _batches_of(self, read: StoreRead) -> "Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]":
        from rmqinspect.tables.sources import unread_places

        for message in (*unread_places(read.store, (self.plan.table.name,)), *read.unread):
            self._note_unreadable(message)
        try:
            for batch in self._rows_of(read):
                rows = read.selection.select_rows(batch)
                yield rows, self.plan.shape(rows, read.store)
        except Unreadable as error:
            self._note_unreadable(str(error))

    def _rows_of(self, read: StoreRead) -> "Iterator[pa.RecordBatch]":
        from rmqinspect.find.read import planned_rows

        request = self._request(read)
        if read.look_up is None or self.plan.scan:
            return self.plan.table.rows(read.store, request)
        return planned_rows(read.store, read.look_up.to_read, request)

    def _request(self, read: StoreRead) -> "Request":
        from rmqinspect.tables.sources import range_to_read
        from rmqinspect.tables.table import Request

        arguments = self.plan.arguments
        request = Request(
            records_of=(read.selection,) if self.plan.table.name == "messages" else (),
            offsets=range_to_read(read.store, read.selection.offsets),
            jobs=count_jobs(arguments),
            columns=self.plan.wanted,
            progress=self.progress,
            on_gap=partial(self._note_gap, read),
            on_unreadable=self._note_unreadable,
            on_remark=self.progress.remark,
        )
        if not isinstance(arguments, BodyOptions):
            return request
        return replace(request, raw_body=arguments.raw_body, max_body=arguments.max_body)

    def _count(self, batch: "pa.RecordBatch") -> None:
        import pyarrow.compute as pc

        self.rows += batch.num_rows
        if "status" in batch.schema.names:
            counted = pc.value_counts(batch.column("status")).to_pylist()
            self.bad_rows += sum(row["counts"] for row in counted if row["values"] not in (None, *SOUND["status"]))

    def _note_gap(self, read: StoreRead, _kind: str, start: int, end: int) -> None:
        """Note the parts of a gap that lie in the range asked for."""
        asked = [read.selection.offsets or (start, end)] if read.look_up is None else read.look_up.spans
        overlaps = ((max(start, first), min(end, beyond)) for first, beyond in asked)
        self.gaps[read.store.name].update((first, beyond) for first, beyond in overlaps if first < beyond)

    def _note_unreadable(self, message: str) -> None:
        self.unreadable += 1
        self.progress.complain(message)

    def conclude(self, *, talkative: bool) -> int:
        """Print the totals on stderr and return the exit status."""
        from rmqinspect.tables.table import Source

        remark = self.progress.remark
        bad = f"; {group_digits(self.bad_rows)} with a status other than ok" if self.bad_rows else ""
        if self.more:
            remark(f"shown {group_digits(self.rows)}, {self.more} (-n {self.plan.arguments.limit}){bad}")
        elif talkative or bad or self.unreadable:
            remark(f"{count(self.rows, 'row')}, {'incomplete' if self.unreadable else 'complete'}{bad}")
        if self.left_out:
            remark(f"left out for lack of width: {', '.join(self.left_out)}; --columns prints any")
        for read in self.plan.reads:
            if not read.store.segments and Source.LOG in self.plan.table.scans:
                remark(f"{read.store.name}: no commit log segments: no rows of {self.plan.table.name}")
        gaps = self._merged_gaps()
        if gaps:
            size = count(sum(end - start for start, end in gaps), "byte")
            listed = "" if self.plan.table.name == "gaps" else " (--table gaps)"
            remark(f"{count(len(gaps), 'gap')} in the range read: {size} without a record{listed}")
        unmatched = not self.more and tell_unmatched(self.plan.selection, self.progress)
        missed = self._tell_look_ups()
        return self._status(nothing_found=unmatched or missed)

    def _tell_look_ups(self) -> bool:
        """Tell what was read for look-ups, and which way; return whether records were asked for and none found."""
        from rmqinspect.codec import message_id
        from rmqinspect.store.reader import FileReader

        look_ups = [read.look_up for read in self.plan.reads if read.look_up is not None]
        if not look_ups:
            return False
        scan = self.plan.scan
        ways = (
            "by a scan, as asked"
            if scan
            else "; ".join(dict.fromkeys(": ".join(filter(None, (one.way, one.told))) for one in look_ups))
        )
        size = FileReader.bytes_read
        whole = sum(read.size(self.plan.table, scan=True) for read in self.plan.reads)
        of = f" of {describe_size(whole)}" if size < whole else ""
        self.progress.remark(f"read {describe_size(size)}{of}: {ways}")
        missed = not self.rows and self.more is None and any(one.asks_for_records for one in look_ups)
        if missed:
            searched = "the whole log" if scan else "; ".join(dict.fromkeys(one.searched for one in look_ups))
            advice = "" if scan or searched == "the whole log" else " (--scan reads the whole log)"
            self.progress.complain(f"no such record; searched: {searched}{advice}")
            for key in self.plan.selection.keys:
                if message_id.decode(key):
                    self.progress.complain(f"{key} looks like a message id: --id {key}")
        return missed

    def _merged_gaps(self) -> list[tuple[int, int]]:
        from rmqinspect.index.lookup import merge

        return [gap for found in self.gaps.values() for gap in merge(found)]

    def _status(self, *, nothing_found: bool) -> ExitStatus:
        damaged = (self.bad_rows or any(self.gaps.values())) and self.plan.arguments.fail_on != "never"
        asked = any(read.look_up is not None and read.look_up.asks_for_records for read in self.plan.reads)
        if damaged and (asked or self.rows or not nothing_found):
            return ExitStatus.DAMAGE
        if self.unreadable:
            return ExitStatus.UNREADABLE
        return ExitStatus.NOTHING_FOUND if nothing_found else ExitStatus.DONE
