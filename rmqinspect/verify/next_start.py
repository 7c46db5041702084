"""What the next start of a broker does to the store: the forecast, as far as other commands need it.

At level quick, and in `info`, nothing is read but what the start itself would read: what lies behind a new end of the
log is not counted then.
"""

from dataclasses import replace

from rmqinspect.forecast.outcome import Forecast
from rmqinspect.forecast.versions import ForecastRequest, forecast
from rmqinspect.store.model import Store
from rmqinspect.verify.result import VerifyResult


def next_start(store: Store, request: ForecastRequest) -> Forecast | None:
    """Return what the next start does to a store; None for files that are not a whole store."""
    if store.given != "store" or not store.neighbours:
        return None
    return forecast(store, request)


def with_next_start(result: VerifyResult) -> VerifyResult:
    """Return a result with what the next start does; level quick does not count what is lost."""
    options = result.options
    request = ForecastRequest(options.broker_version, count_losses=options.level != "quick", jobs=options.jobs)
    return replace(result, next_start=next_start(result.store, request))
