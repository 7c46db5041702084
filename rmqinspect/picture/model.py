"""The picture of a store as numbers: the log from end to end, what marks it, and what leads into it.

    |-- segment --|-- segment --|-- segment --|-- segment --|     strips
    ############X##############################.............      runs: what the bytes are
         |== the next start scans ==|== gives up ==|              marks
      |---- queue orders 0 -----|      group offsets as ticks     queues
    |-- index file --|-- index file --|                           index files

Everything lies on one axis: physical offsets. `documents` makes a picture, `bar` and `drawing` show it; picture.js
draws the same from its data, which a page holds as JSON.
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from msgspec import Struct, field

from rmqinspect.commands import SHOW, fill_command
from rmqinspect.commitlog.log_runs import KINDS, Run
from rmqinspect.text import count, group_digits

MOST_QUEUES = 40  # that are drawn, those with the most units; the others are one row
MOST_TICKS = 200  # group offsets that are drawn
MOST_INDEX = 200  # index files; more are drawn as neighbours in one

MARKS = {
    "scan": "the next start reads this",
    "cut": "the next start gives this up",
    "deleted": "the next start deletes these segments",
    "end": "the log ends here",
    "new_end": "after the next start the log ends here",
    "time": "time of the checkpoint",
}
"""What marks the log, and what it means."""

TIMES = {
    "physic_msg_timestamp": "of the log",
    "logics_msg_timestamp": "of the queues",
    "index_msg_timestamp": "of the index",
}


class Strip(NamedTuple):
    """A segment: bytes [start, end) of the log."""

    file: str
    start: int
    end: int


class Mark(NamedTuple):
    """A place of the log, or bytes [start, end) of it."""

    kind: str  # of MARKS
    start: int
    end: int  # as `start`: a place
    text: str


class Tick(NamedTuple):
    """The offset of a consumer group in a queue."""

    group: str
    offset: int  # queue offset
    place: int  # physical offset, about: between the first and the last record of the queue, by their numbers
    lag: int | None


class QueueRow(NamedTuple):
    """A queue: its units point to records between `start` and `end`."""

    name: str
    min_offset: int
    max_offset: int
    units: int
    start: int
    end: int
    ticks: tuple[Tick, ...] = ()


class IndexRow(NamedTuple):
    """An index file: its entries point to records between `start` and `end`."""

    file: str
    entries: int
    start: int
    end: int


class Item(NamedTuple):
    """What is drawn in a lane: a bar over [start, end), or a tick where both are the same."""

    start: int
    end: int
    kind: str  # of MARKS, or index, queue, tick
    text: str


class Lane(NamedTuple):
    """A row below the log."""

    label: str
    items: tuple[Item, ...]


class Picture(Struct, frozen=True, dict=True):
    """The picture of one store. The runs cover [start, end) without gap or overlap."""

    store: str  # as given
    start: int = 0
    end: int = 0
    strips: Sequence[Strip] = ()
    runs: Sequence[Run] = ()
    marks: Sequence[Mark] = ()
    queues: Sequence[QueueRow] = ()
    queues_left_out: int = 0
    index_files: Sequence[IndexRow] = ()
    codes: Mapping[int, str] = field(default_factory=dict)  # start of a damaged run -> codes of its findings
    gives_up_from: int | None = None  # physical offset where the next start cuts the log; None: it does not
    log_end: int | None = None  # behind the last record; None: not known
    words: Sequence[str] = ()  # what names the store in a command

    @cached_property
    def _bases(self) -> list[int]:
        return [strip.start for strip in self.strips]

    @property
    def damaged(self) -> list[Run]:
        """The damaged runs."""
        return [run for run in self.runs if run.kind == "damage"]

    def strip_at(self, place: int) -> Strip | None:
        """Return the segment that has a physical offset, None without one."""
        number = bisect_right(self._bases, place) - 1
        return self.strips[number] if number >= 0 and place < self.strips[number].end else None

    def command(self, place: int) -> str:
        """Return the command that shows what is at a physical offset."""
        return fill_command(SHOW, self.words or [self.store], at=place)

    def lanes(self) -> list[Lane]:
        """Return what is drawn below the log, from top to bottom."""
        lanes = []
        for kinds, label in (
            (("scan",), "next start: reads"),
            (("cut", "new_end"), "next start: gives up"),
            (("deleted",), "next start: deletes segments"),
            (("end",), "end of the log"),
            *((("time", words), f"time of the checkpoint {words}") for words in TIMES.values()),
        ):
            marks = [
                mark for mark in self.marks if mark.kind in kinds and (mark.kind != "time" or kinds[1] in mark.text)
            ]
            if marks:
                lanes.append(Lane(label, tuple(Item(mark.start, mark.end, mark.kind, mark.text) for mark in marks)))
        if self.index_files:
            lanes.append(Lane("index files", tuple(_index_items(self.index_files))))
        lanes += [Lane(f"queue {row.name}", tuple(_queue_items(row))) for row in self.queues]
        return lanes

    def data(self) -> dict[str, Any]:
        """Return what picture.js draws from, as `json.dumps` takes it. Texts are as they are: escape them."""
        kinds = list(KINDS)
        return {
            "store": self.store,
            "start": self.start,
            "end": self.end,
            "command": self.command(0).removesuffix("0"),
            "kinds": [[kind, words] for kind, words in KINDS.items()],
            "strips": list(_strip_rows(self.strips)),
            "stops": list(MARKS),  # kinds of items that a reader goes to one after the other
            # `mixed` only where it is true.
            "runs": [[run.start, run.end, kinds.index(run.kind), *([1] if run.mixed else [])] for run in self.runs],
            "codes": {str(start): codes for start, codes in self.codes.items()},
            "lanes": [[lane.label, [list(item) for item in lane.items]] for lane in self.lanes()],
            "left_out": self.left_out,
        }

    @property
    def left_out(self) -> str:
        """What is not drawn, "" if all is."""
        return f"{count(self.queues_left_out, 'more queue')} not drawn" if self.queues_left_out else ""


def _strip_rows(strips: Sequence[Strip]) -> Iterator[list[Any]]:
    """Yield [start, size, number of segments of this size that follow each other], and the name if it is another."""
    row: list[Any] = []
    for start, end, file in ((strip.start, strip.end, strip.file) for strip in strips):
        usual = file == f"commitlog/{start:020}"
        if usual and len(row) == 3 and (row[0] + row[1] * row[2], row[1]) == (start, end - start):
            row[2] += 1
            continue
        if row:
            yield row
        row = [start, end - start, 1, *([] if usual else [file])]
    if row:
        yield row


def _index_items(rows: Sequence[IndexRow]) -> Iterator[Item]:
    """Yield the index files, neighbours as one where there are very many."""
    step = -(-len(rows) // MOST_INDEX)
    for number in range(0, len(rows), step):
        some = rows[number : number + step]
        start, end = min(row.start for row in some), max(row.end for row in some)
        name = some[0].file if len(some) == 1 else f"{some[0].file} and {count(len(some) - 1, 'more file')}"
        entries = sum(row.entries for row in some)
        yield Item(start, end, "index", f"{name}: entries: {group_digits(entries)}")


def _queue_items(row: QueueRow) -> Iterator[Item]:
    span = f"offsets {group_digits(row.min_offset)} to {group_digits(row.max_offset)}"
    yield Item(row.start, row.end, "queue", f"queue {row.name}: {span}, {count(row.units, 'unit')}")
    for tick in row.ticks:
        lag = "" if tick.lag is None else f", lag {group_digits(tick.lag)}"
        words = f"group {tick.group} in queue {row.name}: offset {group_digits(tick.offset)}{lag}; the place is about"
        yield Item(tick.place, tick.place, "tick", words)
