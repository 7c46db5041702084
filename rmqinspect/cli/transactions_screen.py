"""The screen of `transactions`: counts, what will happen to pending messages, and the oldest of them."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from rmqinspect.broker.retention import reserved_hours
from rmqinspect.broker.transactions import CHECK_MAX, PENDING, STATES
from rmqinspect.cli.labelled import Screen
from rmqinspect.cli.rows_plan import RowsOptions
from rmqinspect.codec.arrays import Ints
from rmqinspect.commands import SHOW, fill_command
from rmqinspect.find.transaction_summary import Oldest, TransactionSummary
from rmqinspect.output import View
from rmqinspect.output.screen import ScreenTable
from rmqinspect.store.broker_conf import read_settings, setting_size
from rmqinspect.tables.arrow import batch_of
from rmqinspect.tables.transactions import SCHEMA, batches_of
from rmqinspect.text import count, describe_duration, group_digits
from rmqinspect.times import format_micros, to_micros
from rmqinspect.topics import GIVEN_UP_TOPIC

if TYPE_CHECKING:
    from rmqinspect.output.writer import Out

_SCREEN = Screen(indent=14)
_GROUPS = 10  # producer groups and topics; -v shows all
_COLUMNS = ("physical_offset", "real_topic", "producer_group", "msg_id", "check_times", "born_timestamp", "why")
_AGES = 100 * 365 * 86_400  # seconds; a larger one is that of an odd clock
_COUNTS = pa.schema(
    [
        pa.field("producer_group", pa.string()),
        pa.field("real_topic", pa.string()),
        *(pa.field(state, pa.int64()) for state in STATES),
    ]
)


class TransactionScreen:
    """The screen of one store. `states`: which transactions are listed, the pending ones by default."""

    def __init__(
        self, summary: TransactionSummary, states: Sequence[str], arguments: RowsOptions, view: View, limit: int
    ) -> None:
        self.summary, self.found = summary, summary.found
        self.arguments, self.view, self.limit = arguments, view, limit
        self.states = states or [STATES[PENDING]]
        settings = read_settings(arguments.config) if arguments.config else {}
        self.check_max = setting_size(settings, "transactionCheckMax") or CHECK_MAX
        self.reserved_hours = reserved_hours(settings)

    def print(self, out: "Out", *, heading: bool, first: bool) -> None:
        """Write the screen; `heading`: with the name of the store."""
        name = self.found.store.name
        _write(out, [*([] if first else [""]), *(_SCREEN.rows("store", name) if heading else ()), *self._lines()])
        if len(self.summary):
            self._print_groups(out)
            self._print_listed(out)

    # --- the summary ----------------------------------------------------------------------------

    def _lines(self) -> Iterator[str]:
        if len(self.summary):
            yield from _SCREEN.rows("transactions", self._counts())
            yield from _SCREEN.rows("check", self._check())
            if (oldest := self.summary.oldest()) is not None:
                yield from _SCREEN.rows("oldest", self._oldest(oldest))
                yield from _SCREEN.several("what next", self._fate())
            reasons = (f"{group_digits(number)}: {words}" for number, words in self.summary.reasons())
            yield from _SCREEN.several("uncertain", reasons)
        else:
            yield from _SCREEN.rows("transactions", self._none())
        yield from _SCREEN.several("remarks", self.found.remarks())

    def _counts(self) -> str:
        total, copies = len(self.summary), self.summary.copies
        parts = [
            f"{group_digits(number)} {_words(state)}" for state, number in self.summary.by_state().items() if number
        ]
        again = f" stored {group_digits(copies)} times" if copies != total else ""
        return f"{count(total, 'half message')}{again}: {', '.join(parts)}"

    def _none(self) -> str:
        store = self.found.store
        if len(self.found.judged.state):
            return "no half messages of those asked for"
        size = sum(segment.size for segment in store.segments)
        where = f"{count(len(store.segments), 'segment')}, {count(size, 'byte')}" if store.segments else "no commit log"
        return f"no half messages ({where})"

    def _check(self) -> str:
        """Return how far the check has come in the half topic."""
        end, offset = self.summary.half_topic_end(), self.found.check_offset
        if end is None:
            return ""
        if offset is None:
            return f"not known how far: no consumer offsets given; the half topic ends at {group_digits(end)}"
        return f"has come to offset {group_digits(offset)} of {group_digits(end)} in the half topic"

    def _oldest(self, oldest: Oldest) -> str:
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
        rows = self.summary.by_origin()
        shown = rows if self.arguments.verbose else rows[:_GROUPS]
        _write(out, [""])
        table = ScreenTable(_COUNTS, out, self.view)
        table.write(batch_of(_COUNTS, [(group, topic, *numbers) for group, topic, numbers in shown]))
        table.finish()
        if len(rows) > len(shown):
            _write(out, [f"{group_digits(len(rows) - len(shown))} more: -v shows all"])

    def _print_listed(self, out: "Out") -> None:
        """Write the transactions asked for, the oldest first."""
        listed = self.summary.rows(self.states)
        rows = listed[: self.limit]
        lines = []
        if len(rows):
            _write(out, [""])
            self._print_rows(out, rows)
            lines = ["", *_SCREEN.command("next", self._show(int(rows[0])))]
        if len(listed) > len(rows):
            words = " or ".join(map(_words, self.states))
            lines.insert(0, f"{group_digits(len(listed) - len(rows))} more {words}: -n {len(listed)} shows all")
        _write(out, lines)

    def _print_rows(self, out: "Out", rows: Ints) -> None:
        names = _COLUMNS if self.states == [STATES[PENDING]] else (*_COLUMNS[:4], "state", *_COLUMNS[4:])
        table = ScreenTable(SCHEMA.empty_table().select(names).schema, out, self.view)
        for batch in batches_of(self.found, rows, frozenset(names)):
            shown = batch.select(names)
            table.write(self.arguments.redact.mask(shown) if self.arguments.redact else shown)
        table.finish()

    def _show(self, row: int) -> str:
        return fill_command(SHOW, self.found.store.paths, at=self.summary.place_of(row))


def _words(state: str) -> str:
    return state.replace("_", " ")


def _write(out: "Out", lines: Sequence[str]) -> None:
    out.write("".join(f"{line}\n" for line in lines).encode())
