"""A start is told of a whole store only: what to say of parts of one."""

from rmqinspect.forecast.outcome import Forecast, Outcome, Verdict
from rmqinspect.store.model import Store

_WHAT_DECIDES = "abort (how the last stop is taken), checkpoint, consumequeue and index"


def only_parts(store: Store) -> str | None:
    """Return why a start cannot be told where loose files or folders were given; None for a store."""
    if store.given == "store":
        return None
    given = store.given.replace("_", " ")
    return f"only parts of a store were given ({given}): what a start does also depends on {_WHAT_DECIDES}"


def of_parts(store: Store) -> Forecast | None:
    """Return the forecast for parts of a store, which needs no walk; None for a store."""
    why = only_parts(store)
    if why is None:
        return None
    notes = ["what can be told: whether these parts are whole (verify), and what they hold (decode)"]
    return Forecast([Outcome("", "", clean_exit=True, verdict=Verdict.UNKNOWN, unknown=why, notes=notes)])
