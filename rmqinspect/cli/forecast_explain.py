"""`forecast --explain`: every decision of a walk, what it was decided from, and where the rule was read."""

from collections.abc import Iterator

from rmqinspect.cli.labelled import Screen
from rmqinspect.forecast.outcome import Decision, Forecast
from rmqinspect.text import group_digits

_SCREEN = Screen(indent=11, lead=2)


def walk_lines(forecast: Forecast) -> Iterator[str]:
    """Yield the decisions of each outcome, in the order in which the start comes to them."""
    for outcome in forecast.outcomes:
        word = "clean" if outcome.clean_exit else "unclean"
        yield f"walk of {outcome.release} after {'a' if outcome.clean_exit else 'an'} {word} exit"
        step = ""
        for decision in outcome.decisions:
            yield from _SCREEN.rows("" if decision.step == step else decision.step, decision.text)
            yield from _SCREEN.rows("", _inputs(decision))
            step = decision.step
        yield ""


def _inputs(decision: Decision) -> str:
    """Return what a decision was made from, and where the rule was read."""
    inputs = ", ".join(
        f"{name} {group_digits(value) if isinstance(value, int) else value}" for name, value in decision.inputs
    )
    return f"from {inputs} ({decision.source})" if inputs else f"({decision.source})"
