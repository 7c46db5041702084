"""`rmqinspect decode`: the rows of any table, of a store or of one file in it; other commands print theirs so, too.

    options -> RowsPlan: what is read of each store, and how rows are written -> print_rows -> exit status

Rows go to stdout or a file; what a reader should know of them to stderr: gaps in the range read, what could not be
read, a limit that cuts. The exit status follows from the same counts.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, suppress
from datetime import UTC, datetime
from functools import cache, partial
from typing import TYPE_CHECKING

import click
from msgspec import Struct
from msgspec.structs import replace

from rmqinspect.cli import ExitStatus
from rmqinspect.cli.lost import LostOptions, find_lost
from rmqinspect.cli.options import (
    BodyOptions,
    choose_format,
    open_named,
    terminal_width,
    use_colour,
)
from rmqinspect.cli.selection import TimeOptions, TraceOptions, read_selection, with_times
from rmqinspect.cli.session import Session, tell_unmatched, with_offsets
from rmqinspect.cli.verbs.decode import DecodeArguments, MessageOptions, RowsOptions
from rmqinspect.commands import SHOW, fill_command
from rmqinspect.errors import Unreadable
from rmqinspect.text import describe_size, escape, group_digits

if TYPE_CHECKING:
    import pyarrow as pa

    from rmqinspect.find.plan import LookUp
    from rmqinspect.output import View, Writer
    from rmqinspect.store.model import Store
    from rmqinspect.tables.filters import Selection
    from rmqinspect.tables.request import Request
    from rmqinspect.tables.table import Table


# --- the plan ---------------------------------------------------------------------------------------------


class StoreRead(Struct, frozen=True):
    """What is read of one store."""

    store: "Store"
    selection: "Selection"
    look_up: "LookUp | None"  # what of the log the filters ask for; None: all of the table
    remarks: tuple[str, ...] = ()  # on the files that a filter is read from
    unread: tuple[str, ...] = ()  # what a filter needs and could not be read

    def size(self, table: "Table", *, scan: bool) -> int:
        """Return the bytes to read."""
        from rmqinspect.tables.sources import bytes_to_read

        if self.look_up is None or scan:
            return bytes_to_read(self.store, table, self.selection.offsets)
        return self.look_up.size


class RowsPlan(Struct, frozen=True):
    """All that stays the same while rows are read and written."""

    reads: list[StoreRead]
    table: "Table"
    shown_schema: "pa.Schema"
    selection: "Selection"  # without times: `last` is another time in each store
    arguments: RowsOptions
    body: str  # full, text, preview, none
    cut: bool  # bodies are cut here; the table format cuts, and marks it, by itself
    scan: bool  # read all for a look-up, too
    wanted: frozenset[str]  # columns that are shown or compared
    size: int  # bytes to read
    filters: bool  # whether rows are left out

    def shape(self, batch: "pa.RecordBatch", store: "Store") -> "pa.RecordBatch":
        """Return selected rows as they are written: columns, redaction, bodies."""
        import pyarrow as pa

        from rmqinspect.output import cut_bodies
        from rmqinspect.tables.record_columns import as_text_bodies
        from rmqinspect.tables.table import STORE

        shown = self.shown_schema.names
        if "store" in shown and "store" not in batch.schema.names:
            names = pa.repeat(store.name, batch.num_rows)
            batch = batch.add_column(0, STORE, names)
        batch = batch.select(shown)
        if self.body == "none" and "body" in shown:
            position = shown.index("body")
            empty = pa.nulls(batch.num_rows, batch.schema.field(position).type)
            batch = batch.set_column(position, batch.schema.field(position), empty)
        elif self.cut:
            batch = cut_bodies(batch)
        elif self.body == "text":
            batch = as_text_bodies(batch)
        return self.arguments.redact.mask(batch) if self.arguments.redact else batch


def make_plan(
    stores: "Sequence[Store]", table: "Table", arguments: RowsOptions, selection: "Selection", format_: str
) -> RowsPlan:
    """Return the plan.

    :raises click.UsageError: an option does not fit the table or the stores.
    """
    from rmqinspect.tables.record_columns import with_text_bodies
    from rmqinspect.tables.table import with_store

    schema = with_store(table.schema) if len(stores) > 1 or format_ == "openmetrics" else table.schema
    shown = _choose_columns(arguments.columns, table, schema, format_)
    # The times are only checked here; each store resolves `last` by itself.
    selection = _with_times(selection, arguments, lambda: 0)
    if missing := selection.missing_columns(schema):
        raise click.UsageError(f"The table {table.name} has no column for {missing[0]}.")
    asked = arguments.body if isinstance(arguments, MessageOptions) else None
    body = asked or ("preview" if format_ == "table" else "full")
    scan = isinstance(arguments, MessageOptions) and arguments.scan
    compared = selection.columns(table.schema)
    wanted = {*shown, *compared, "status", "kind"} & set(table.schema.names)
    if body == "none" and "body" not in compared:
        wanted.discard("body")
    now = datetime.now(UTC)
    reads = [_plan_read(store, table, selection, arguments, now) for store in stores]
    schema = schema.empty_table().select(shown).schema
    return RowsPlan(
        reads,
        table,
        with_text_bodies(schema) if body == "text" else schema,
        selection,
        arguments,
        body,
        cut=body == "preview" and format_ != "table",
        scan=scan,
        wanted=frozenset(wanted),
        size=sum(read.size(table, scan=scan) for read in reads),
        filters=bool(compared),
    )


def _plan_read(
    store: "Store", table: "Table", selection: "Selection", arguments: RowsOptions, now: datetime
) -> StoreRead:
    from rmqinspect.find.consumers import with_unconsumed
    from rmqinspect.find.plan import known_topics, plan_look_up
    from rmqinspect.tables.sources import last_store_time

    look_up = None
    selection, of_group = with_unconsumed(store, selection)
    selection, of_start = find_lost(store, selection, arguments)
    try:
        selection = _with_times(selection, arguments, cache(partial(last_store_time, store)), now)
        look_up = plan_look_up(store, selection) if table.name == "messages" else None
        if look_up is not None and selection.topics:
            # Records of a topic may lie elsewhere than where a look-up reads.
            selection.topics_seen.update(known_topics(store))
    except Unreadable:
        pass  # the scan meets it again, and reports it
    remarks, unread = ((), ()) if of_group is None else (of_group.remarks, of_group.unread)
    if of_start is not None:
        remarks, unread = (*remarks, of_start.told), (*unread, *of_start.unread)
    return StoreRead(store, selection, look_up, remarks, unread)


def _with_times(
    selection: "Selection", arguments: RowsOptions, last: Callable[[], int | None], now: datetime | None = None
) -> "Selection":
    return with_times(selection, arguments, last, now) if isinstance(arguments, TimeOptions) else selection


def _choose_columns(text: str | None, table: "Table", schema: "pa.Schema", format_: str) -> list[str]:
    names: list[str] = schema.names
    if text == "all" or (text is None and format_ != "table"):
        return names
    if text is None:
        return [name for name in names if name not in table.schema.names] + list(table.brief)
    chosen = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in chosen if name not in names]
    if unknown or not chosen:
        problem = f"no column {escape(unknown[0])!r} in {table.name}" if unknown else "no column given"
        raise click.BadParameter(f"{problem}; there are: {', '.join(names)}", param_hint="--columns")
    return list(dict.fromkeys(chosen))


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


# --- the rows ---------------------------------------------------------------------------------------------


def print_rows(stores: "Sequence[Store]", table: "Table", arguments: RowsOptions, selection: "Selection") -> int:
    """Print the rows of a table that a selection chooses, and return the exit status.

    `selection` is without times: those of the arguments are added for each store.

    :raises click.UsageError: an option does not fit the table or the stores.
    """
    from rmqinspect.output import open_writer

    format_ = choose_format(arguments)
    plan = make_plan(stores, table, arguments, selection, format_)
    names = tuple(store.name for store in stores)
    view = replace(read_view(arguments, plan.body), sound=table.sound, stores=names)
    with (
        Session(arguments, stores, plan.size) as session,
        open_writer(format_, plan.shown_schema, arguments.output, view=view, evidence=session.evidence) as writer,
    ):
        reading = _Reading(plan, session)
        reading.announce()
        reading.write_rows(writer)
    reading.tell_totals(talkative=format_ != "table" or bool(arguments.verbose))
    return reading.conclude()


class _Reading:
    """Passes rows from the stores to the writer and counts what is reported at the end."""

    def __init__(self, plan: RowsPlan, session: Session) -> None:
        self.plan, self.session = plan, session
        self.rows = 0
        self.bad_rows = 0
        self.more: str | None = None  # whether rows follow the limit: more exist, more may exist
        self.left_out: list[str] = []  # columns for which the terminal is too narrow
        self.look_ups = [read.look_up for read in plan.reads if read.look_up is not None]

    def announce(self) -> None:
        """Announce a long read before it starts."""
        from rmqinspect.store.model import IMAGE

        plan = self.plan
        if plan.arguments.limit is not None and not plan.filters:
            return  # it stops early
        if plan.reads[0].store.given == IMAGE:
            self.session.announce(": all of an image is searched, but for its holes")
            return
        why = f"the table {plan.table.name} needs all of it"
        if not plan.scan and len(self.look_ups) == len(plan.reads):
            why = ", ".join(dict.fromkeys(look_up.way for look_up in self.look_ups))
        self.session.announce(
            f": {why}. Cheaper: --offset A..B reads only that range, rmqinspect info reads almost nothing"
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
                self.session.progress.clear()  # stdout and stderr may be the same terminal
                writer.write(shaped)
                if self.more is None and limit is not None and self.rows == limit:
                    self.more = self._look_ahead(batches)
                if self.more is not None:
                    break
        if not self.rows and self.more is None and self.plan.table.name == "messages":
            self._tell_unread_queues()
        writer.complete = self.session.complete
        writer.more = bool(self.more)
        self.left_out = writer.left_out

    def _tell_unread_queues(self) -> None:
        """Tell in which stores the queue that was asked for was not read: what is not found is not absent."""
        from rmqinspect.find.plan import why_not_known

        for read in self.plan.reads:
            if why := why_not_known(read.store, read.selection):
                self.session.complain(f"{read.store.name}: no such record in the log; not known: {why}")

    def _look_ahead(self, batches: "Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]") -> str | None:
        """Read one more batch after exactly `limit` rows, not more: a filter's next hit may be hours away."""
        batch, _ = next(batches, (None, None))
        if batch is None:
            return None
        return "more exist" if batch.num_rows else "more may exist"

    def _batches(self) -> "Generator[tuple[pa.RecordBatch, pa.RecordBatch], None, None]":
        """Yield (selected rows with all columns, the same rows as they are written)."""
        from rmqinspect.find.plan import planned_rows

        session, table = self.session, self.plan.table
        for read, store in zip(self.plan.reads, session.stores(table.databases, table.name), strict=True):
            for remark in read.remarks:
                session.progress.remark(f"{store.name}: {remark}")
            for message in read.unread:
                session.complain(message)
            request = self._request(replace(read, store=store))
            with session.unreadable_told():
                for batch in (
                    table.rows(store, request)
                    if read.look_up is None or self.plan.scan
                    else planned_rows(store, read.look_up.to_read, request)
                ):
                    rows = read.selection.select_rows(batch)
                    yield rows, self.plan.shape(rows, store)

    def _request(self, read: StoreRead) -> "Request":
        from rmqinspect.tables.lost_records import ANY_START
        from rmqinspect.tables.sources import range_to_read

        arguments = self.plan.arguments
        request = self.session.request(
            read.store,
            records_of=(read.selection,) if self.plan.table.name in ("messages", "groups") else (),
            offsets=range_to_read(read.store, read.selection.offsets),
            named=read.selection.named,
            columns=self.plan.wanted,
            trace_topics=arguments.trace_topics if isinstance(arguments, TraceOptions) else (),
            start=arguments.start if isinstance(arguments, LostOptions) else ANY_START,
            on_gap=partial(self._note_gap, read),
            on_missing=partial(self._note_missing, read),
        )
        if not isinstance(arguments, BodyOptions):
            return request
        return replace(request, raw_body=arguments.raw_body, max_body=arguments.max_body)

    def _count(self, batch: "pa.RecordBatch") -> None:
        import pyarrow.compute as pc

        self.rows += batch.num_rows
        if "status" in batch.schema.names:
            counted = pc.value_counts(batch.column("status")).to_pylist()
            sound = (None, *self.plan.table.sound)
            self.bad_rows += sum(row["counts"] for row in counted if row["values"] not in sound)

    def _note_gap(self, read: StoreRead, _kind: str, start: int, end: int) -> None:
        """Note the parts of a gap that lie in the range asked for."""
        from rmqinspect.find.ways import gaps_asked, whole_log

        asked = (read.selection.offsets or (start, end),) if read.look_up is None else read.look_up.spans
        self.session.gaps[read.store.name].update(gaps_asked((start, end), asked, whole_log(read.store)))

    def _note_missing(self, read: StoreRead, topic: str, queue_id: int, message: str) -> None:
        """Note what is missing of the queues asked for."""
        if read.selection.wants_queue(topic, queue_id):
            self.session.note_missing(read.store.name, topic, queue_id, message)

    def tell_totals(self, *, talkative: bool) -> None:
        """Print the totals on stderr."""
        from rmqinspect.tables.table import Source

        remark = self.session.progress.remark
        bad = f"; {group_digits(self.bad_rows)} damaged (status not ok)" if self.bad_rows else ""
        if self.more:
            remark(f"shown {group_digits(self.rows)}, {self.more} (-n {self.plan.arguments.limit}){bad}")
        else:
            self.session.tell_rows(self.rows, bad, talkative=talkative)
        if self.left_out:
            remark(f"left out for lack of width: {', '.join(self.left_out)}; --columns prints any")
        for read in self.plan.reads:
            if not read.store.segments and Source.LOG in self.plan.table.scans:
                remark(f"{read.store.name}: no commit log segments: no rows of {self.plan.table.name}")
        listed = "" if self.plan.table.name == "gaps" else " (--table gaps)"
        self.session.tell_gaps("range read", listed)

    def conclude(self) -> ExitStatus:
        """Tell what was not found; return the exit status."""
        unmatched = not self.more and tell_unmatched(self.plan.selection, self.session.progress)
        missed = self._tell_look_ups() or unmatched
        asked = any(one.asks_for_records for one in self.look_ups)
        damaged = bool(self.bad_rows) or any(self.session.gaps.values())
        return self.session.status(damaged=damaged and (asked or self.rows or not missed), missed=missed)

    def _tell_look_ups(self) -> bool:
        """Tell what was read for look-ups, and which way; return whether records were asked for and none found."""
        from rmqinspect.codec import message_id
        from rmqinspect.store.reader import FileReader

        look_ups, progress = self.look_ups, self.session.progress
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
        progress.remark(f"read {describe_size(size)}{of}: {ways}")
        missed = not self.rows and self.more is None and any(one.asks_for_records for one in look_ups)
        if missed and not self._tell_destroyed():
            searched = "the whole log" if scan else "; ".join(dict.fromkeys(one.searched for one in look_ups))
            advice = "" if scan or searched == "the whole log" else " (--scan reads the whole log)"
            for answer in list(self._of_gaps()) or ["no such record; searched"]:
                progress.complain(f"{answer}: {searched}{advice}")
            for key in self.plan.selection.keys:
                if message_id.decode(key):
                    progress.complain(f"{key} looks like a message id: --id {key}")
        return missed

    def _of_gaps(self) -> Iterator[str]:
        """Yield for each store with a gap in what was searched that it may have held the record."""
        from rmqinspect.find.answers import may_have_arrived

        for read in self.plan.reads:
            if gaps := self.session.gaps[read.store.name]:
                head = f"{read.store.name}: " if len(self.plan.reads) > 1 else ""
                yield f"{head}{may_have_arrived(read.store, gaps)} Searched"

    def _tell_destroyed(self) -> bool:
        """Tell of destroyed records whose queue offset was asked for; return whether there are any."""
        from rmqinspect.find.answers import ARRIVED, proven
        from rmqinspect.find.misses import destroyed_records

        told = False
        for read in self.plan.reads:
            with suppress(Unreadable):  # told where the rows were read
                for found in destroyed_records(read.store, read.selection):
                    told = True
                    answer = proven(ARRIVED, found.reason, found.fate)
                    show = "" if found.place is None else f": {_show(read.store, found.place)}"
                    self.session.progress.complain(f"{answer} Its queue unit leads there: {found.text}{show}")
        return told


def _show(store: "Store", place: int) -> str:
    return fill_command(SHOW, store.words, at=place)


# --- the command ------------------------------------------------------------------------------------------


def run(arguments: DecodeArguments) -> int:
    """Do what `decode` is asked for, and return the exit status."""
    choose_format(arguments)  # a usage error comes before anything is read
    arguments.refuse_unused((arguments.table,))
    if arguments.carve:
        from rmqinspect.cli.decode_carve import open_carved

        images, carved = open_carved(arguments, arguments.redact)
        return print_rows([images], carved, arguments, read_selection(arguments))

    from rmqinspect.tables import TABLES
    from rmqinspect.tables.sources import table_of

    stores = open_named(arguments)
    name = arguments.table or table_of(stores[0])
    if name not in TABLES:
        raise click.BadParameter(f"no table {escape(name)!r}; there are: {', '.join(TABLES)}", param_hint="--table")
    with with_offsets(stores, arguments, arguments.unpacking) as whole:
        return print_rows(whole, TABLES[name], arguments, read_selection(arguments))
