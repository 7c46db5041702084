"""What the commands that read stores have in common: unpack, tell, read, and the exit status that follows.

with Session(arguments, stores, size) as session, printed_to(arguments.output, session.evidence):
    for store in session.stores(GROUPS.databases, GROUPS.name):     # what cannot be read was told
        session.show(lines_of(survey(store, session.request())), colour=colour)
return session.status(damaged=session.gaps, missed=tell_unmatched(selection, session.progress))
"""

import hashlib
import json
import os
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, redirect_stdout
from functools import partial
from io import StringIO
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

import click

from rmqinspect.cli import ExitStatus, exit_status
from rmqinspect.cli.options import (
    DocumentOptions,
    DocumentsOptions,
    LookOptions,
    ReadingOptions,
    count_jobs,
    use_colour,
)
from rmqinspect.cli.pager import for_a_reader_that_may_leave, print_answered
from rmqinspect.cli.selection import SelectionOptions, UnconsumedOptions, read_selection
from rmqinspect.cli.terminal import LONG_READ, Progress, least_time
from rmqinspect.errors import Refused, Unreadable
from rmqinspect.system.run import with_run
from rmqinspect.text import count, describe_size, describe_spans, escape_json
from rmqinspect.version import tool_name

if TYPE_CHECKING:
    import pyarrow as pa

    from rmqinspect.output.writer import Out
    from rmqinspect.rocksdb.unpack import Unpacking
    from rmqinspect.store.model import Store
    from rmqinspect.tables.filters import Selection
    from rmqinspect.tables.request import Request

Entered = TypeVar("Entered")

_NAMED = 3  # gaps that a line names


class Session:
    """The stores that a command reads one after the other, what it says on stderr, and what decides its status."""

    def __init__(self, arguments: ReadingOptions, given: "Sequence[Store]", size: int = 0) -> None:
        """Read the stores `given`; `size` bytes of them, for the progress."""
        self.arguments, self.given = arguments, given
        self.progress = Progress(size, arguments.progress, quiet=arguments.quiet)
        self.unread: list[str] = []  # a message for everything that could not be read
        self.gaps: dict[str, set[tuple[int, int]]] = defaultdict(set)  # of the log, by store; one may come in parts
        self.missing: dict[str, None] = {}  # a message for each range of a queue that no file has
        self._shown = False
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self.enter(self.progress)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def enter(self, context: AbstractContextManager[Entered]) -> Entered:
        """Enter a context until the session ends."""
        return self._stack.enter_context(context)

    @property
    def evidence(self) -> list[str]:
        """The paths that no output may lie in."""
        return [path for store in self.given for path in store.paths]

    # --- reading ------------------------------------------------------------------------------

    def announce(self, why: str) -> None:
        """Announce a long read before it starts: why it is, and what would be cheaper."""
        size = self.progress.total
        if size > LONG_READ:
            self.progress.remark(f"{describe_size(size)} to read{why}{least_time(size)}")

    def stores(self, databases: Collection[str], *tables: str) -> "Iterator[Store]":
        """Yield each store as `opened` does, until the next one or the end of the session."""

        def each() -> "Generator[Store, None, None]":
            for given in self.given:
                with self.opened(given, databases, *tables) as store:
                    yield store

        return self.enter(closing(each()))

    @contextmanager
    def opened(self, given: "Store", databases: Collection[str], *tables: str) -> "Iterator[Store]":
        """Give a store with what its RocksDB `databases` hold, and tell what of `tables` cannot be read.

        Also told is what was inferred about its files: with -v all of it, else what came with the databases.
        """
        from rmqinspect.rocksdb.unpack import unpacked
        from rmqinspect.tables.sources import unpacking_for, unread_places

        with unpacked(given, unpacking_for(tables, self.arguments.unpacking), databases) as store:
            for remark in store.remarks if self.arguments.verbose else store.remarks[len(given.remarks) :]:
                self.progress.remark(f"{store.name}: {remark}")
            for message in unread_places(store, tables):
                self.complain(message)
            yield store

    def request(self, store: "Store", **asked: Any) -> "Request":
        """Return a request for a table of a store: `asked`, and that whatever is met on the way is noted here."""
        from rmqinspect.tables.request import Request

        met: dict[str, Any] = {
            "jobs": count_jobs(self.arguments),
            "progress": self.progress,
            "on_gap": partial(self._note_gap, store.name),
            "on_missing": partial(self.note_missing, store.name),
            "on_unreadable": self.complain,
            "on_remark": self.progress.remark,
        }
        return Request(**{**met, **asked})

    def _note_gap(self, store: str, _kind: str, start: int, end: int) -> None:
        self.gaps[store].add((start, end))

    def note_missing(self, store: str, _topic: str, _queue_id: int, message: str) -> None:
        """Tell a range of a queue that no file has, once: the answer is incomplete."""
        message = f"{store}: {message}" if len(self.given) > 1 else message
        if message not in self.missing:
            self.missing[message] = None
            self.progress.remark(message)

    @contextmanager
    def unreadable_told(self) -> Iterator[None]:
        """End the block at what cannot be read, and tell it."""
        try:
            yield
        except Unreadable as error:
            self.complain(str(error))

    def complain(self, message: str) -> None:
        """Tell what could not be read: the answer is incomplete."""
        self.unread.append(message)
        self.progress.complain(message)

    # --- what came of it ----------------------------------------------------------------------

    def show(self, lines: Iterable[str], *, colour: bool) -> None:
        """Print the screen of a store, the answer last, with a blank line behind that of another."""
        self.progress.clear()  # stdout and stderr may be the same terminal
        if self._shown:
            click.echo()
        self._shown = True
        print_screen(lines, colour=colour)

    @property
    def complete(self) -> bool:
        """Whether all that was asked for is there and was read: no gap of a log, no queue file missing."""
        return not self.unread and not self.missing and not any(self.gaps.values())

    def tell_rows(self, rows: int, bad: str, *, talkative: bool) -> None:
        """Print how many rows were written, and whether they are all; `bad` says what is wrong with some."""
        if talkative or bad or not self.complete:
            state = "complete" if self.complete else "incomplete"
            self.progress.remark(f"{count(rows, 'row')}, {state}{bad}")

    def tell_gaps(self, where: str, listed: str = "") -> None:
        """Print the ranges of each log that have no record; `where` says of what, `listed` what has all of them."""
        from rmqinspect.codec.arrays import merge

        for store, found in self.gaps.items():
            gaps = merge(found)
            if not gaps:
                continue
            head = f"{store}: " if len(self.given) > 1 else ""
            size = count(sum(end - start for start, end in gaps), "byte")
            named = describe_spans(gaps, _NAMED)
            gaps_ = count(len(gaps), "gap")
            self.progress.remark(f"{head}{gaps_} in the {where}: {size} without a record: {named}{listed}")

    def status(self, *, damaged: object, missed: object) -> ExitStatus:
        """Return the exit status, from what was found damaged, could not be read, or was asked for and not found."""
        damaged = damaged or self.missing
        return exit_status(self.arguments.fail_on, damaged=damaged, unread=self.unread, missed=missed)


@contextmanager
def with_offsets(
    stores: "Sequence[Store]", options: UnconsumedOptions | SelectionOptions, unpacking: "Unpacking"
) -> "Iterator[Sequence[Store]]":
    """Give the stores with what some filters need of their RocksDB databases, until the block ends.

    These are queue offsets, `--unconsumed` and `--lost-at-start`.

    :raises NothingFound: no store has an offset of the group.
    """
    selection = read_selection(options) if isinstance(options, SelectionOptions) else None
    group = options.unconsumed if isinstance(options, UnconsumedOptions) else None
    in_queue = selection is not None and selection.needs_queues
    walks = selection is not None and selection.lost_at_start is not None
    if group is None and not in_queue and not walks:
        yield stores
        return
    from rmqinspect.find.consumers import expect_group
    from rmqinspect.rocksdb.unpack import unpacked
    from rmqinspect.tables.groups import GROUPS
    from rmqinspect.tables.table import QUEUE_DATABASES

    with ExitStack() as copies:
        databases = None if walks else QUEUE_DATABASES if group is None else GROUPS.databases
        whole = [copies.enter_context(unpacked(store, unpacking, databases)) for store in stores]
        if group is not None:
            expect_group(whole, group)
        yield whole


def tell_unmatched(selection: "Selection", progress: Progress) -> bool:
    """Tell which topic patterns matched no topic seen, with near names; return whether there are any."""
    unmatched = selection.unmatched_topics()
    for pattern in unmatched:
        near = ", ".join(selection.near_topics(pattern))
        progress.complain(f"no topic matches {pattern}" + (f"; near: {near}" if near else ""))
    return bool(unmatched)


# A label in the left column of a screen.
_LABEL = re.compile(r"\S.{0,12}?(?=  )")


def document_format(options: DocumentOptions) -> str:
    """Return table or json, or jsonl where a command has it: -f, else the suffix of the -o file."""
    known = ("json", "jsonl") if isinstance(options, DocumentsOptions) else ("json",)
    suffix = os.path.splitext(options.output or "")[1].lower().removeprefix(".")
    return options.format or (suffix if suffix in known else "table")


def refuse_early(path: str | None, evidence: Sequence[str], *, replaces: bytes = b"") -> None:
    """Refuse at once what `open_destination` would refuse after hours of reading.

    :raises Refused: the file exists, or lies inside the evidence.
    """
    from rmqinspect.store.outside import refuse_inside
    from rmqinspect.system.output_file import local_file, may_replace, sums_path

    if path not in (None, "-"):
        path = local_file(path)
        refuse_inside(path, evidence)
        if os.path.isfile(path) and not may_replace(path, replaces):
            raise Refused(f"{path}: exists already; nothing is overwritten")
        sums_path(path)


@contextmanager
def printed_to(path: str | None, evidence: Sequence[str] = ()) -> Iterator[None]:
    """Write what the block prints to a new file, which appears when it ends without an error; None: to stdout.

    :raises Refused: the file exists, lies inside the evidence, or cannot be written.
    """
    if path in (None, "-"):
        yield
        return
    from rmqinspect.output import open_destination

    with open_destination(path, evidence) as out:
        with redirect_stdout(StringIO()) as printed:
            yield
        out.write(printed.getvalue().encode("utf-8", "backslashreplace"))


def json_line(document: Mapping[str, Any]) -> str:
    """Return a JSON document as one line, with what could harm a terminal escaped."""
    return escape_json(json.dumps(document, ensure_ascii=False))


def document_of(*, complete: bool = True, **parts: Any) -> dict[str, Any]:
    """Return a JSON document: its head, then `parts`, and the run."""
    return with_run({"schema_version": 1, "tool": tool_name(), "complete": complete, **parts})


def print_document(*, complete: bool = True, **parts: Any) -> None:
    """Print one JSON document in a line: its head, then `parts`, and the run."""
    click.echo(json_line(document_of(complete=complete, **parts)))


def write_document(document: Mapping[str, Any], path: str, evidence: Sequence[str]) -> str:
    """Write a JSON document, one value a line, to a new file, and return its digest.

    :raises Refused: the file exists, lies inside the evidence, or cannot be written.
    """
    from rmqinspect.output import open_destination

    raw = (json.dumps(document, ensure_ascii=False, indent=1) + "\n").encode("utf-8", "backslashreplace")
    with open_destination(path, evidence) as out:
        out.write(raw)
    return hashlib.sha256(raw).hexdigest()


def write_lines(out: "Out", *lines: str) -> None:
    """Write the lines of a screen between tables, which go to `out` as bytes."""
    out.write("".join(f"{line}\n" for line in lines).encode())


def print_lines(lines: Iterable[str], *, colour: bool) -> None:
    """Print the lines of a screen, their labels in bold if it is coloured."""
    with for_a_reader_that_may_leave():
        for line in _labelled(lines, colour=colour):
            click.echo(line, color=colour)


def print_screen(lines: Iterable[str], *, colour: bool) -> None:
    """Print the lines of a screen whose last one is the answer, as `print_lines` does."""
    print_answered(_labelled(lines, colour=colour), colour=colour)


def _labelled(lines: Iterable[str], *, colour: bool) -> Iterator[str]:
    for line in lines:
        if colour and (label := _LABEL.match(line)):
            head = click.style(label[0], bold=True, fg="red" if label[0] == "DAMAGED" else None)
            line = head + line[label.end() :]
        yield line


def write_table(
    format_: str,
    schema: "pa.Schema",
    batches: "Iterable[pa.RecordBatch]",
    path: str | None,
    look: LookOptions,
    *,
    complete: bool,
    evidence: Sequence[str],
) -> None:
    """Write the rows of a result to the file `path`, None: to stdout.

    :raises Refused: the output exists, lies inside the evidence, or cannot be written.
    """
    from rmqinspect.output import View, open_writer

    view = View(zone=look.zone, colour=use_colour(look.color, path))
    with open_writer(format_, schema, path, view=view, evidence=evidence) as writer:
        writer.complete = complete
        for batch in batches:
            writer.write(batch)


def tell_broker(store: "Store", remark: Callable[[str], None], name: str = "") -> None:
    """Warn of a broker that runs on a store, which is `name` in the remark."""
    from rmqinspect.store.reader import lock_holder

    tell_holder(lock_holder(store), remark, name)


def tell_holder(holder: int | None, remark: Callable[[str], None], name: str = "") -> None:
    """Warn of the broker of a pid, None: there is none, that runs on a store, which is `name` in the remark."""
    if holder is not None:
        told = f"a broker runs on this store (pid {holder} holds the lock): the files may change while they are read"
        remark(f"{name}: {told}" if name else told)
