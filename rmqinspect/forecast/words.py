"""A forecast in a few words: the line `VERDICT` of the command, and what other commands quote of it."""

from collections.abc import Callable

from rmqinspect.forecast.outcome import Forecast, Outcome, Refusal, Verdict
from rmqinspect.text import count


def verdict_line(forecast: Forecast) -> str:
    """Return the verdict of the worst outcome, and where releases differ, which ones it is about."""
    worst = forecast.worst
    differs = len(forecast.outcomes) > 1
    return outcome_words(worst, f" with {worst.era}" if differs else "")


def outcome_words(outcome: Outcome, releases: str = "") -> str:
    """Return the verdict of an outcome and its reason; `releases` follows the verdict."""
    reason = _REASONS[outcome.verdict](outcome)
    return f"{outcome.verdict.value}{releases}" + (f": {reason}" if reason else "")


def loss_words(outcome: Outcome) -> str:
    """Return what a start that was walked loses: `145 records`; "nothing"."""
    losses = outcome.losses
    parts = [count(losses.messages, "record")] if losses.messages else []
    if outcome.unreachable:
        parts.append(f"{count(outcome.unreachable, 'message')} out of reach for consumers")
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
