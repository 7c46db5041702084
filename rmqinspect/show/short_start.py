"""The next start of a broker, where a summary can tell it: nothing is read for it that a store would take long for.

log up to `_COUNTED` bytes    as `forecast` does it: what consumers lose is counted, other choices are priced
longer, and it reads little   walked, nothing counted: a start that seems to lose nothing has no verdict
longer, and it reads much     None
"""

from rmqinspect.forecast.log_records import log_size
from rmqinspect.forecast.outcome import Forecast
from rmqinspect.forecast.versions import ForecastRequest
from rmqinspect.show.overview import Overview
from rmqinspect.store.model import Store
from rmqinspect.verify.next_start import next_start

# Bytes of log that are read whole. Measured: 64 MiB of records of 1.3 KB take 0.6 s of CPU.
_COUNTED = 64 << 20
_MOST_READ = 10_000_000  # bytes, whatever the size of the store: a start that reads more is not forecast here
# How often a forecast of a small store reads a byte that a start reads, at most: pages for single records and units,
# once for each run of releases. Measured on the samples.
_READS_CLEAN, _READS_UNCLEAN = 2, 16


class _TooMuch(Exception):
    """The start scans more of the log than a summary reads."""


def short_start(store: Store, facts: Overview) -> Forecast | None:
    """Return what the next start does; None if it reads much, or of no whole store.

    What it loses is counted where the log is short: see the head.
    """
    reads = _READS_CLEAN if facts.stop.state == "clean" else _READS_UNCLEAN
    # What lies behind the log's end is zeros, which nobody scans.
    unused = 0 if facts.log.end.end is None or not store.segments else store.segments[-1].end - facts.log.end.end

    def announce(size: int, why: str) -> None:
        if (size - unused) * reads > _MOST_READ:
            raise _TooMuch(why)

    if log_size(store) - unused <= _COUNTED:
        return next_start(store, ForecastRequest(instead=True))
    # Where a broker runs, the answer needs no walk.
    if facts.stop.state != "running" and facts.bytes_read + facts.start_bytes * reads > _MOST_READ:
        return None
    try:
        return next_start(store, ForecastRequest(count_losses=False, announce=announce))
    except _TooMuch:
        return None
