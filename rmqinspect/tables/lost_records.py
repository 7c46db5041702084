"""The records that the next start of a broker gives up, as a filter: `--lost-at-start`.

    log      |----kept----|rejected|rec|rec|stale|rec|
                          ^ end
    turns                 (^, lost)        (^, not)(^, lost)
    named                  the rejected one, if only its queue unit says how long it is

`forecast.lost_records` says which they are; what is asked for, and the answer for one store, are all that is sent to
the tasks of an export.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from rmqinspect.codec.arrays import Bools, Ints

COLUMNS = ("physical_offset", "body_crc_ok")
"""Of the table `messages` alone: a unit or an entry that points there is no record."""


class AskedStart(NamedTuple):
    """The start that is meant."""

    release: str | None = None  # None: those that may have written the store; the worst one decides
    clean_exit: bool | None = None  # None: as the file `abort` says


@dataclass(frozen=True, slots=True)
class LostRecords:
    """Which records of one store are lost. Places are physical offsets; few numbers, however many records."""

    end: int = 0  # of the log after the start: none is lost before it
    turns: tuple[tuple[int, bool], ...] = ()  # (place, lost): what the records from there on are
    named: tuple[tuple[int, int], ...] = ()  # (place, size) of those that no walk meets

    def mask(self, places: Ints) -> Bools:
        """Return which of the records at some places are lost."""
        if not self.turns:
            return np.isin(places, [place for place, _ in self.named])
        starts = np.array([place for place, _ in self.turns], np.int64)
        lost = np.array([False, *(lost for _, lost in self.turns)], np.bool_)
        found: Bools = lost[np.searchsorted(starts, places, "right")]
        return found | np.isin(places, [place for place, _ in self.named])


def lost_mask(lost: LostRecords | None, batch: pa.RecordBatch, columns: Sequence[str]) -> pa.Array:
    """Return which rows of `messages` are lost."""
    assert lost is not None, "which records are lost is found out before rows are read"
    return pa.array(lost.mask(batch.column(columns[0]).to_numpy(zero_copy_only=False)))
