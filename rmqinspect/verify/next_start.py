"""What the next start of a broker does to the store: the forecast, as far as other commands need it.

At level quick, and in `info`, nothing is read but what the start itself would read: what lies behind a new end of the
log is not counted then.
"""

from collections.abc import Callable
from dataclasses import replace

from rmqinspect.forecast.outcome import Forecast
from rmqinspect.forecast.versions import Forecaster, ForecastRequest, forecast
from rmqinspect.store.model import Store
from rmqinspect.verify.findings import Finding
from rmqinspect.verify.result import VerifyOptions, VerifyResult
from rmqinspect.verify.run import verify


def next_start(store: Store, request: ForecastRequest) -> Forecast | None:
    """Return what the next start does to a store; None for files that are not a whole store."""
    return forecast(store, request) if _is_told(store) else None


def _is_told(store: Store) -> bool:
    return store.given == "store" and store.neighbours


def verify_and_forecast(
    store: Store,
    options: VerifyOptions,
    quick_done: Callable[[list[Finding]], None] = lambda findings: None,
    progress: Callable[[int], None] = lambda size: None,
) -> VerifyResult:
    """Check a store and forecast its next start, which takes the records that the checks have read.

    Level quick does not count what a start loses. An interrupted run has no forecast.
    """
    if not _is_told(store):
        return verify(store, options, quick_done, progress)
    counts = options.level != "quick"
    start = Forecaster(store, ForecastRequest(options.broker_version, count_losses=counts, jobs=options.jobs))
    result = verify(store, options, quick_done, progress, start.fed)
    return result if result.interrupted_at is not None else replace(result, next_start=start.finish())
