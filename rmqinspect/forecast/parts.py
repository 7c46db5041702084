"""A start is told of a whole store only: what to say of parts of one."""

from rmqinspect.forecast.outcome import Forecast, Outcome, Verdict
from rmqinspect.store.model import Store

_WHAT_DECIDES = "abort (how the last stop is taken), checkpoint, consumequeue and index"


def of_parts(store: Store) -> Forecast | None:
    """Return that it cannot be told what a start does, where loose files or folders were given; None for a store."""
    if store.given == "store":
        return None
    given = store.given.replace("_", " ")
    why = f"only parts of a store were given ({given}): what a start does also depends on {_WHAT_DECIDES}"
    notes = ["what can be told: whether these parts are whole (verify), and what they hold (decode)"]
    return Forecast([Outcome("", "", clean_exit=True, verdict=Verdict.UNKNOWN, unknown=why, notes=notes)])
