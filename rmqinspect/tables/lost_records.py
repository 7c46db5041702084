"""The records that the next start of a broker gives up, as a filter: `--lost-at-start`.

    log      |----kept----|rejected|rec|rec|stale|rec|
                          ^ end
    turns                 (^, lost)        (^, not)(^, lost)
    named                  the rejected one, if only its queue unit says how long it is

`forecast.lost_records` says which they are; what is asked for, and the answer for one store, are all that is sent to
the tasks of an export.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rmqinspect.codec.arrays import Bools, Ints

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS = ("physical_offset", "body_crc_ok")
"""Of the table `messages` alone: a unit or an entry that points there is no record."""


class AskedStart(NamedTuple):
    """The start that is meant."""

    release: str | None = None  # None: those that may have written the store; the worst one decides
    clean_exit: bool | None = None  # None: as the file `abort` says


ANY_START = AskedStart()


@dataclass(frozen=True, slots=True)
class LostRecords:
    """Which records of one store are lost. Places are physical offsets; few numbers, however many records."""

    end: int = 0  # of the log after the start: none is lost before it
    turns: tuple[tuple[int, bool], ...] = ()  # (place, lost): what the records from there on are
    named: tuple[tuple[int, int], ...] = ()  # (place, size) of those that no walk meets

    # Of these another store has some, which do not pass: (place, there), as `turns`, and places of single ones.
    there: tuple[tuple[int, bool], ...] = ()
    elsewhere: Ints = field(default_factory=lambda: np.empty(0, np.int64), compare=False)

    def mask(self, places: Ints) -> Bools:
        """Return which of the records at some places are lost, and not in the other store."""
        lost = _in_force(self.turns, places) | np.isin(places, [place for place, _ in self.named])
        return lost & ~_in_force(self.there, places) & ~np.isin(places, self.elsewhere)


def _in_force(turns: Sequence[tuple[int, bool]], places: Ints) -> Bools:
    """Return what was said last before each place, or there; False before anything is said."""
    starts = np.array([place for place, _ in turns], np.int64)
    said = np.array([False, *(word for _, word in turns)], np.bool_)
    found: Bools = said[np.searchsorted(starts, places, "right")]
    return found


def lost_mask(lost: LostRecords | None, batch: "pa.RecordBatch", columns: Sequence[str]) -> "pa.Array":
    """Return which rows of `messages` are lost."""
    import pyarrow as pa  # what is asked for is known without it

    assert lost is not None, "which records are lost is found out before rows are read"
    return pa.array(lost.mask(batch.column(columns[0]).to_numpy(zero_copy_only=False)))
