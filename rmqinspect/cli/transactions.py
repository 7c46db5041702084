"""`rmqinspect transactions`: what became of half messages; which wait, and what will happen to them.

The screen has counts, what will happen to pending messages, and the oldest of them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING

from rmqinspect.broker.gone import reserved_hours
from rmqinspect.broker.transactions import CHECK_MAX, PENDING, STATES
from rmqinspect.cli.decode import print_rows, read_view
from rmqinspect.cli.options import choose_format, open_named
from rmqinspect.cli.pager import as_answer
from rmqinspect.cli.selection import with_times
from rmqinspect.cli.session import Session, tell_unmatched, write_lines
from rmqinspect.cli.terminal import Screen
from rmqinspect.cli.verbs.transactions import TransactionsArguments
from rmqinspect.commands import SHOW, fill_command
from rmqinspect.rocksdb.databases import why_unknown
from rmqinspect.store.broker_conf import read_settings, setting_size
from rmqinspect.text import count, describe_duration, group_digits
from rmqinspect.times import format_micros, to_micros
from rmqinspect.topics import GIVEN_UP_TOPIC

if TYPE_CHECKING:
    from rmqinspect.codec.arrays import Ints
    from rmqinspect.find.summaries import Oldest, TransactionSummary
    from rmqinspect.output import View
    from rmqinspect.output.writer import Out
    from rmqinspect.store.model import Store
    from rmqinspect.tables.filters import Selection

_SCREEN = Screen(indent=14)
_ROWS = 20  # pending transactions on the screen
_GROUPS = 10  # producer groups and topics; -v shows all
_COLUMNS = ("physical_offset", "real_topic", "producer_group", "msg_id", "check_times", "born_timestamp", "why")
_AGES = 100 * 365 * 86_400  # seconds; a larger one is that of an odd clock


def run(arguments: TransactionsArguments) -> int:
    """Do what `transactions` is asked for, and return the exit status."""
    format_ = choose_format(arguments)

    from rmqinspect.tables.filters import Selection
    from rmqinspect.tables.transactions import TRANSACTIONS, transaction_rows

    stores = open_named(arguments)
    states = arguments.states or STATES
    selection = Selection(topics=arguments.topics, cells=(("state", arguments.states),) if arguments.states else ())
    if format_ == "table" and arguments.columns is None:
        return _print_screens(stores, arguments, selection)
    table = replace(TRANSACTIONS, rows=partial(transaction_rows, states=states))
    return print_rows(stores, table, arguments, selection)


def _print_screens(stores: "Sequence[Store]", arguments: TransactionsArguments, selection: "Selection") -> int:
    from rmqinspect.find.summaries import TransactionSummary
    from rmqinspect.output import open_destination
    from rmqinspect.tables.sources import bytes_to_read, last_store_time
    from rmqinspect.tables.transactions import TRANSACTIONS, read_transactions

    with_times(selection, arguments, lambda: 0)  # a time that cannot be parsed is an error before anything is read
    view = read_view(arguments, "full")
    printed = 0
    with (
        Session(arguments, stores, sum(bytes_to_read(store, TRANSACTIONS) for store in stores)) as session,
        open_destination(arguments.output, session.evidence) as out,
    ):
        session.announce(": commit records lie in all topics")
        for store in session.stores(TRANSACTIONS.databases, TRANSACTIONS.name):
            with session.unreadable_told():
                timed = with_times(selection, arguments, cache(partial(last_store_time, store)))
                found = read_transactions(store, session.request(store))
                screen = _Screen(TransactionSummary(found, timed), arguments, view)
                session.progress.clear()  # stdout and stderr may be the same terminal
                screen.print(out, heading=len(stores) > 1, first=not printed)
                printed += 1
        session.tell_gaps("log", " (decode --table gaps)")
        unmatched = tell_unmatched(selection, session.progress)
    return session.status(damaged=session.gaps, missed=unmatched)


# --- the screen -------------------------------------------------------------------------------------------


class _Screen:
    """The screen of one store."""

    def __init__(self, summary: "TransactionSummary", arguments: TransactionsArguments, view: "View") -> None:
        self.summary, self.found = summary, summary.found
        self.arguments, self.view = arguments, view
        self.states = arguments.states or (STATES[PENDING],)  # of those that are listed
        settings = read_settings(arguments.config) if arguments.config else {}
        self.check_max = setting_size(settings, "transactionCheckMax") or CHECK_MAX
        self.reserved_hours = reserved_hours(settings)

    def print(self, out: "Out", *, heading: bool, first: bool) -> None:
        """Write the screen; `heading`: with the name of the store."""
        name = self.found.store.name
        write_lines(out, *([] if first else [""]), *_SCREEN.rows("store", name if heading else ""))
        if len(self.summary):
            self._print_groups(out)
            self._print_listed(out)
        with as_answer():
            write_lines(out, *self._lines())

    # --- the summary ----------------------------------------------------------------------------

    def _lines(self) -> Iterator[str]:
        if len(self.summary):
            total, copies = len(self.summary), self.summary.copies
            states = self.summary.by_state().items()
            parts = [f"{group_digits(number)} {_words(state)}" for state, number in states if number]
            again = f" stored {group_digits(copies)} times" if copies != total else ""
            answer = f"{count(total, 'half message')}{again}: {', '.join(parts)}"
            yield from _SCREEN.rows("check", self._check())
            if (oldest := self.summary.oldest()) is not None:
                yield from _SCREEN.rows("oldest", self._oldest(oldest))
                yield from _SCREEN.several("what next", self._fate())
            reasons = (f"{group_digits(number)}: {words}" for number, words in self.summary.reasons())
            yield from _SCREEN.several("uncertain", reasons)
        else:
            segments = self.found.store.segments
            size = count(sum(segment.size for segment in segments), "byte")
            where = f"{count(len(segments), 'segment')}, {size}" if segments else "no commit log"
            others = len(self.found.judged.state)
            answer = "no half messages" + (" of those asked for" if others else f" ({where})")
        yield from _SCREEN.several("remarks", self.found.remarks())
        yield from _SCREEN.rows("transactions", answer)

    def _check(self) -> str:
        """Return how far the check has come in the half topic."""
        end, offset = self.summary.half_topic_end(), self.found.check_offset
        if end is None:
            return ""
        if offset is None:
            why = why_unknown(self.found.store, "consumer offsets") or "no consumer offsets given"
            return f"not known how far: {why}; the half topic ends at {group_digits(end)}"
        return f"has come to offset {group_digits(offset)} of {group_digits(end)} in the half topic"

    def _oldest(self, oldest: "Oldest") -> str:
        times = oldest.check_times
        checked = "never checked" if not times else "checked once" if times == 1 else f"checked {times} times"
        if oldest.born is None:
            return f"pending since an unknown time; {checked}"
        born = to_micros(oldest.born)
        age, last = "", self.found.last_store_timestamp
        if last is not None and 0 <= (seconds := last / 1_000 - born / 1_000_000) < _AGES:
            age = f", {describe_duration(seconds)} before the log's last record"
        return f"pending since {format_micros(born, self.view.zone)}{age}; {checked}"

    def _fate(self) -> Iterator[str]:
        """Yield what will happen to the pending messages."""
        fate = self.summary.fate(self.check_max)
        if fate.asked_again:
            again = "asked about again while a broker runs: every 30 s (60 s up to 5.1.0)"
            yield f"{group_digits(fate.asked_again)} {again}"
        if fate.given_up:
            yield f"{group_digits(fate.given_up)} given up at the next check: checked {self.check_max} times"
        if fate.left:
            yield f"{group_digits(fate.left)} left as they are: brokers up to 4.2.0 do not ask again"
        if fate.in_half_topic:
            yield (
                f"after {self.check_max} checks (transactionCheckMax), or {self.reserved_hours} hours after it was "
                f"born (fileReservedTime), a message goes to {GIVEN_UP_TOPIC}"
            )

    # --- tables ---------------------------------------------------------------------------------

    def _print_groups(self, out: "Out") -> None:
        """Write how many there are of each producer group and real topic."""
        import pyarrow as pa

        from rmqinspect.output.screen import ScreenTable
        from rmqinspect.tables.table import batch_of

        names = [pa.field(name, pa.string()) for name in ("producer_group", "real_topic")]
        schema = pa.schema([*names, *(pa.field(state, pa.int64()) for state in STATES)])
        rows = self.summary.by_origin()
        listed = rows if self.arguments.verbose else rows[:_GROUPS]
        table = ScreenTable(schema, out, self.view)
        table.write(batch_of(schema, [(group, topic, *numbers) for group, topic, numbers in listed]))
        table.finish()
        if len(rows) > len(listed):
            write_lines(out, f"{group_digits(len(rows) - len(listed))} more: -v shows all")
        write_lines(out, "")

    def _print_listed(self, out: "Out") -> None:
        """Write the transactions asked for, the oldest first."""
        listed = self.summary.rows(self.states)
        rows = listed[: _ROWS if self.arguments.limit is None else self.arguments.limit]
        if not len(listed):
            return
        if len(rows):
            self._print_rows(out, rows)
        if len(listed) > len(rows):
            words = " or ".join(map(_words, self.states))
            write_lines(out, f"{group_digits(len(listed) - len(rows))} more {words}: -n {len(listed)} shows all")
        write_lines(out, "")
        if len(rows):
            command = fill_command(SHOW, self.found.store.words, at=self.summary.place_of(int(rows[0])))
            write_lines(out, *_SCREEN.command("next", command))

    def _print_rows(self, out: "Out", rows: "Ints") -> None:
        from rmqinspect.output.screen import ScreenTable
        from rmqinspect.tables.transactions import SCHEMA, batches_of

        names = _COLUMNS if self.states == (STATES[PENDING],) else (*_COLUMNS[:4], "state", *_COLUMNS[4:])
        table = ScreenTable(SCHEMA.empty_table().select(names).schema, out, self.view)
        for batch in batches_of(self.found, rows, frozenset(names)):
            chosen = batch.select(names)
            table.write(self.arguments.redact.mask(chosen) if self.arguments.redact else chosen)
        table.finish()


def _words(state: str) -> str:
    return state.replace("_", " ")
