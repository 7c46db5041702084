"""A forecast in a few words: the line `VERDICT` of the command, and what other commands quote of it."""

from collections.abc import Callable, Sequence
from itertools import groupby

from rmqinspect.broker.eras import Era
from rmqinspect.forecast.outcome import Forecast, Outcome, Refusal, Verdict
from rmqinspect.text import count


def verdict_line(forecast: Forecast) -> str:
    """Return the verdict of the worst outcome, and where others have another one, which releases it is about."""
    worst = forecast.worst
    runs = [(words, list(run)) for words, run in groupby(forecast.outcomes, key=outcome_words)]
    words = outcome_words(worst)
    eras = [span_of(run) for said, run in runs if said == words]
    return words if len(runs) == 1 else outcome_words(worst, f" with {', '.join(eras)}")


def span_of(outcomes: Sequence[Outcome]) -> str:
    """Return the releases from the first to the last one of neighbours: `5.2.0 to 5.3.3`."""
    return str(Era(outcomes[0].era.split(" ")[0], outcomes[-1].era.split(" ")[-1]))


def outcome_words(outcome: Outcome, releases: str = "") -> str:
    """Return the verdict of an outcome and its reason; `releases` follows the verdict."""
    reason = _REASONS[outcome.verdict](outcome)
    return f"{outcome.verdict.value}{releases}" + (f": {reason}" if reason else "")


def loss_words(outcome: Outcome) -> str:
    """Return what a start that was walked loses: `145 records`; "nothing"."""
    losses = outcome.losses
    parts = [count(losses.messages, "record")] if losses.messages else []
    without_log = outcome.min_offset < 0 and losses.units
    if not outcome.losses_counted and not without_log:
        parts = ["records not counted"]
    if outcome.unreachable:
        parts.append(f"{count(outcome.unreachable, 'message')} out of reach for consumers")
    if without_log:
        parts.append(f"{count(losses.units, 'queue unit')} of a log that is not here")
    return ", ".join(parts) or "nothing"


def refusal_words(refusal: Refusal) -> str:
    """Return which file a broker refuses, and why."""
    return refusal.why if refusal.file in refusal.why else f"{refusal.file}: {refusal.why}"


_REASONS: dict[Verdict, Callable[[Outcome], str]] = {
    Verdict.SAFE: lambda _: "",
    Verdict.LOSES: loss_words,
    Verdict.REFUSES: lambda outcome: outcome.refusal.file if outcome.refusal else "",
    Verdict.UNKNOWN: lambda outcome: outcome.unknown or "",
}
