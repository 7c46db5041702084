"""`rmqinspect transactions`: what became of half messages; which wait, and what will happen to them."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING

import click

from rmqinspect.broker.transactions import STATES
from rmqinspect.cli.options import NamedSourceOptions, choose_format, count_jobs, open_named
from rmqinspect.cli.parameters import option, takes
from rmqinspect.cli.progress import LONG_READ, Progress, least_time
from rmqinspect.cli.rows_plan import RowsOptions
from rmqinspect.cli.selection import TimeOptions, TopicNameOptions, with_times
from rmqinspect.cli.status import ExitStatus
from rmqinspect.cli.table_rows import print_rows, read_view, tell_unmatched
from rmqinspect.text import count, describe_size

if TYPE_CHECKING:
    from rmqinspect.find.transaction_summary import TransactionSummary
    from rmqinspect.store.model import Store
    from rmqinspect.tables.filters import Selection

_ROWS = 20  # pending transactions on the screen


@dataclass(frozen=True, kw_only=True)
class TransactionsArguments(NamedSourceOptions, RowsOptions, TopicNameOptions, TimeOptions):
    """What `transactions` is asked for."""

    states: tuple[str, ...] = option(
        "--state", multiple=True, type=click.Choice(STATES), help="State; repeatable. Default: all."
    )


@click.command("transactions")
@takes(TransactionsArguments)
def command(arguments: TransactionsArguments) -> int:
    """Show what became of half messages: pending, committed, rolled back or given up.

    The screen counts them by producer group and real topic, and lists the pending ones, oldest first:
    -n says how many, --state others. With --columns, and in other formats: the rows of the table
    transactions. -t takes real topics; --since and --until compare when the newest copy was stored.

    \b
    Examples:
      rmqinspect transactions STORE
      rmqinspect transactions STORE --state pending --state given_up -n 100
      rmqinspect transactions STORE -t orders --since -2h -f csv
    """
    format_ = choose_format(arguments)

    from rmqinspect.tables.filters import Selection
    from rmqinspect.tables.transactions import TRANSACTIONS, transaction_rows

    stores = open_named(arguments)
    states = arguments.states or STATES
    selection = Selection(topics=arguments.topics, cells=(("state", arguments.states),) if arguments.states else ())
    if format_ == "table" and arguments.columns is None:
        return _Screens(stores, arguments, selection).print()
    table = replace(TRANSACTIONS, rows=partial(transaction_rows, states=states))
    return print_rows(stores, table, arguments, selection)


class _Screens:
    """The screens of some stores, and what was met on the way to them."""

    def __init__(self, stores: "list[Store]", arguments: TransactionsArguments, selection: "Selection") -> None:
        with_times(selection, arguments, lambda: 0)  # a time that cannot be parsed is an error before anything is read
        self.stores, self.arguments, self.selection = stores, arguments, selection
        self.lost = self.unread = False

    def print(self) -> int:
        """Print a screen for each store, and return the exit status."""
        from rmqinspect.cli.transactions_screen import TransactionScreen
        from rmqinspect.output import open_destination
        from rmqinspect.tables.sources import bytes_to_read
        from rmqinspect.tables.transactions import TRANSACTIONS

        arguments = self.arguments
        evidence = [path for store in self.stores for path in store.paths]
        size = sum(bytes_to_read(store, TRANSACTIONS) for store in self.stores)
        view = read_view(arguments, "full")
        limit = _ROWS if arguments.limit is None else arguments.limit
        with (
            Progress(size, arguments.progress, quiet=arguments.quiet) as progress,
            open_destination(arguments.output, evidence) as out,
        ):
            if size > LONG_READ:
                progress.remark(f"{describe_size(size)} to read: commit records lie in all topics{least_time(size)}")
            for number, summary in enumerate(self._read(progress)):
                screen = TransactionScreen(summary, arguments.states, arguments, view, limit)
                progress.clear()  # stdout and stderr may be the same terminal
                screen.print(out, heading=len(self.stores) > 1, first=number == 0)
            unmatched = tell_unmatched(self.selection, progress)
        if self.lost and arguments.fail_on != "never":
            return ExitStatus.DAMAGE
        if self.unread:
            return ExitStatus.UNREADABLE
        return ExitStatus.NOTHING_FOUND if unmatched else ExitStatus.DONE

    def _read(self, progress: Progress) -> "Iterator[TransactionSummary]":
        """Yield the transactions of each store."""
        from rmqinspect.errors import Unreadable
        from rmqinspect.find.transaction_summary import TransactionSummary
        from rmqinspect.rocksdb.unpack import unpacked
        from rmqinspect.tables.sources import last_store_time, unread_places
        from rmqinspect.tables.table import Request
        from rmqinspect.tables.transactions import TRANSACTIONS, read_transactions

        def complain(text: str) -> None:
            self.unread = True
            progress.complain(text)

        for given in self.stores:
            with unpacked(given, self.arguments.unpacking, TRANSACTIONS.databases) as store:
                for remark in store.remarks[0 if self.arguments.verbose else len(given.remarks) :]:
                    progress.remark(f"{store.name}: {remark}")
                for message in unread_places(store, (TRANSACTIONS.name,)):
                    complain(message)
                gaps: list[tuple[int, int]] = []
                request = Request(
                    jobs=count_jobs(self.arguments),
                    progress=progress,
                    on_gap=lambda kind, start, end, gaps=gaps: gaps.append((start, end)),  # type: ignore[misc]
                    on_unreadable=complain,
                    on_remark=progress.remark,
                )
                selection = with_times(self.selection, self.arguments, cache(partial(last_store_time, store)))
                try:
                    found = read_transactions(store, request)
                except Unreadable as error:
                    complain(str(error))
                    continue
                if gaps:
                    self.lost = True
                    places = count(len(set(gaps)), "range")
                    progress.remark(f"{store.name}: {places} of the log without records (decode --table gaps)")
                yield TransactionSummary(found, selection)
