"""`rmqinspect delays`: which messages still wait for their time, and what became of the others."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from rmqinspect.cli.delays_screen import delay_lines
from rmqinspect.cli.documents import print_line, printed_to
from rmqinspect.cli.options import (
    NamedSourceOptions,
    choose_format,
    count_jobs,
    open_named,
    use_colour,
)
from rmqinspect.cli.parameters import option, takes
from rmqinspect.cli.progress import LONG_READ, Progress, least_time
from rmqinspect.cli.rows_plan import RowsOptions
from rmqinspect.cli.selection import TimeOptions, with_times
from rmqinspect.cli.status import ExitStatus
from rmqinspect.cli.table_rows import print_rows, tell_unmatched
from rmqinspect.system.uri import shown
from rmqinspect.text import describe_size, escape
from rmqinspect.times import parse_time

if TYPE_CHECKING:
    from rmqinspect.store.model import Store
    from rmqinspect.tables.delays import DelayChoice
    from rmqinspect.tables.filters import Selection

_SHOWN = 5  # messages of each kind on the screen
_STATES = ("pending", "overdue", "delivered", "cancelled", "rolled", "lost", "delete_mark", "unknown")


@dataclass(frozen=True, kw_only=True)
class DelaysArguments(NamedSourceOptions, RowsOptions, TimeOptions):
    """What `delays` is asked for."""

    pending: bool = option(
        "--pending", is_flag=True, help="Only what still waits: queues, timer and single records are read, not the log."
    )
    topics: tuple[str, ...] = option("-t", "--topic", multiple=True, metavar="GLOB", help="Real topic; repeatable.")
    states: tuple[str, ...] = option("--state", multiple=True, type=click.Choice(_STATES), help="State; repeatable.")
    since: str | None = option("--since", metavar="TIME", help="Due from TIME on; forms of TIME as in decode.")
    until: str | None = option("--until", metavar="TIME", help="Due before TIME.")
    at: str | None = option(
        "--at", metavar="TIME", help="What is due before TIME is overdue. Default: the last activity of the broker."
    )
    system_topics: bool | None = option(
        "--system-topics/--no-system-topics",
        default=None,
        help="With messages to the broker's own topics, such as acks of pop. Default: not on the screen.",
    )
    limit: int | None = option(
        "-n", "--limit", type=click.IntRange(min=0), metavar="N", help="At most N rows; on the screen, of each kind."
    )


@click.command("delays")
@takes(DelaysArguments)
def command(arguments: DelaysArguments) -> int:
    """Show delayed messages: of delay levels, of the timer, and of the timer in RocksDB.

    The screen counts them by level and topic; other formats print the rows of the table `delays`. The whole log is
    read, for the delivered copies, unless --pending is given.

    \b
    Examples:
      rmqinspect delays STORE --pending
      rmqinspect delays STORE -t orders --state lost -f jsonl
      rmqinspect delays STORE --since last --until 2026-11-21T10:00Z -o due.csv
    """
    format_ = choose_format(arguments)

    from rmqinspect.tables.delays import DelayChoice, delays_table
    from rmqinspect.tables.filters import Selection

    on_screen = format_ == "table" and arguments.columns is None
    choice = DelayChoice(
        waiting=arguments.pending,
        at=_read_at(arguments),
        states=frozenset(arguments.states),
        system=arguments.system_topics is not False,
    )
    selection = Selection(time_column="due_timestamp", topics=arguments.topics)
    stores = open_named(arguments)
    if not on_screen:
        return print_rows(stores, delays_table(choice), arguments, selection)
    return _print_screens(stores, choice, arguments, selection)


def _read_at(arguments: DelaysArguments) -> int | None:
    """Return --at in ms."""
    if arguments.at is None:
        return None
    try:
        return parse_time(arguments.at, arguments.zone, lambda: datetime.now(UTC), lambda: None) // 1000
    except ValueError as error:
        raise click.BadParameter(escape(str(error)), param_hint="--at") from error


def _print_screens(
    stores: "Sequence[Store]", choice: "DelayChoice", arguments: DelaysArguments, selection: "Selection"
) -> int:
    from rmqinspect.rocksdb.unpack import unpacked
    from rmqinspect.tables.delays import delays_table
    from rmqinspect.tables.sources import bytes_to_read

    table = delays_table(choice)
    size = sum(bytes_to_read(store, table) for store in stores)
    colour = use_colour(arguments.color, arguments.output)
    with Progress(size, arguments.progress, quiet=arguments.quiet) as progress:
        screens = _Screens(arguments, choice, selection, progress)
        if size > LONG_READ and not choice.waiting:
            progress.remark(
                f"{describe_size(size)} to read, for the delivered copies. Cheaper: --pending{least_time(size)}"
            )
        with printed_to(arguments.output, [path for store in stores for path in store.paths]):
            for number, store in enumerate(stores):
                with unpacked(store, arguments.unpacking, table.databases) as whole:
                    path = shown(arguments.paths[number]) if arguments.paths else store.name
                    lines = screens.lines(whole, path)
                progress.clear()
                if number:
                    click.echo()
                for line in lines:
                    print_line(line, colour=colour)
    return screens.status()


class _Screens:
    """The screens of some stores, and what was wrong with these."""

    def __init__(
        self, arguments: DelaysArguments, choice: "DelayChoice", selection: "Selection", progress: Progress
    ) -> None:
        self.arguments, self.choice, self.selection, self.progress = arguments, choice, selection, progress
        self.damaged = self.unreadable = False

    def lines(self, store: "Store", path: str) -> list[str]:
        """Read a store, and return the lines of its screen; `path` is for commands."""
        from rmqinspect.find.delay_summary import DelaySummary
        from rmqinspect.tables.delays import Delays
        from rmqinspect.tables.sources import unread_places
        from rmqinspect.tables.table import Request

        for message in unread_places(store, ("delays",)):
            self._complain(message)
        request = Request(
            jobs=count_jobs(self.arguments),
            progress=self.progress,
            on_gap=self._note_gap,
            on_unreadable=self._complain,
            on_remark=self.progress.remark,
        )
        most = _SHOWN if self.arguments.limit is None else self.arguments.limit
        summary = DelaySummary(most, with_system=self.arguments.system_topics is True)
        delays = Delays(store, request, self.choice)
        selection = with_times(self.selection, self.arguments, lambda: delays.sources.now * 1000 or None)
        for batch in delays.rows():
            summary.take(selection.select_rows(batch))
        return list(delay_lines(summary, delays, path, self.arguments.zone))

    def _note_gap(self, _kind: str, _start: int, _end: int) -> None:
        self.damaged = True

    def _complain(self, message: str) -> None:
        self.unreadable = True
        self.progress.complain(message)

    def status(self) -> ExitStatus:
        """Tell of topics that are not there; return the exit status."""
        unmatched = tell_unmatched(self.selection, self.progress)
        if self.damaged and self.arguments.fail_on != "never":
            return ExitStatus.DAMAGE
        if self.unreadable:
            return ExitStatus.UNREADABLE
        return ExitStatus.NOTHING_FOUND if unmatched else ExitStatus.DONE
