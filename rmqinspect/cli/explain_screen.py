"""What `rmqinspect explain` prints of one explanation, on a screen and in JSON."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import click

from rmqinspect.cli.labelled import Screen
from rmqinspect.explain.entry import Explanation
from rmqinspect.verify.codes import ALL

SCREEN = Screen(indent=13)
_NAMES = Screen(indent=0)


def explanation_row(explanation: Explanation) -> dict[str, Any]:
    """Return an explanation as a JSON object."""
    row = asdict(explanation)
    row["values"] = [{"value": value, "meaning": meaning} for value, meaning in explanation.values]
    row["eras"] = [{"versions": versions, "effect": effect} for versions, effect in explanation.eras]
    return row


def name_lines(name: str, colour: bool) -> Iterator[str]:
    """Yield the name of what is explained, folded, as a heading."""
    for line in _NAMES.rows("", name):
        yield click.style(line, bold=True) if colour else line


def explanation_lines(explanation: Explanation) -> Iterator[str]:
    """Yield everything but the name, each part under its label."""
    yield from SCREEN.rows(explanation.kind, explanation.where)
    yield from SCREEN.rows("means", explanation.meaning)
    yield from SCREEN.several("here", (_joined(value, meaning) for value, meaning in explanation.values))
    yield from SCREEN.rows("cause", explanation.cause)
    yield from SCREEN.rows("broker", explanation.effect)
    effects = (effect if versions == ALL else f"{versions}: {effect}" for versions, effect in explanation.eras)
    yield from SCREEN.several("note" if explanation.kind == "log line" else "versions", effects)
    yield from SCREEN.several("logged as", explanation.logged)
    yield from SCREEN.rows("do", explanation.do)
    for number, command in enumerate(explanation.next):
        yield from SCREEN.command("" if number else "next", command)
    yield from SCREEN.rows("explain too", ", ".join(explanation.see))


def _joined(value: str, meaning: str) -> str:
    if not meaning or meaning.startswith(value):
        return meaning or value
    return f"{value}: {meaning}"
