"""`python -m docs.build.eras_page > docs/eras.md` writes the rules of a start, release by release."""

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from rmqinspect.broker.eras import Era, eras, rules_of_start
from rmqinspect.broker.rules import Rule, Value, rules_in
from rmqinspect.broker.start_rules import Rules
from rmqinspect.broker.version_estimate import RELEASES

_PAGE = """\
# What a start does, release by release

Written by `python -m docs.build.eras_page > docs/eras.md` from the rules that `rmqinspect forecast` walks.

A broker decides at every start what it loads, where its log ends, and what it deletes. RocketMQ changed these rules
often. Each rule was read in the source of all releases from {oldest} to {youngest}; releases in a row with the same
rules are one era. The first tables hold the rules that differ within 4.x and within 5.x, a column for each era, named
after its first release. Below, each rule says what it decides, what its values mean, and where it was read.

{tables}

## The rules

{rules}
"""
_LINES = (("4.x", "4."), ("5.x", "5."))


def page() -> str:
    """Return the page in Markdown."""
    tables = "\n\n".join(
        f"## {name}\n\n{_by_era([era for era in eras() if era.first.startswith(prefix)])}" for name, prefix in _LINES
    )
    rules = "\n\n".join(map(_section, rules_in(Rules)))
    return _PAGE.format(oldest=RELEASES[0], youngest=RELEASES[-1], tables=tables, rules=rules)


def _by_era(columns: Sequence[Era]) -> str:
    """Return the rules that differ between these eras, a row each; an unchanged value is not repeated."""
    lines = ["| rule | " + " | ".join(era.first for era in columns) + " |", "|---|" + "---|" * len(columns)]
    for rule in rules_in(Rules):
        values = [getattr(rules_of_start(era.first), rule.name) for era in columns]
        if len(set(values)) > 1:
            cells = [""] * len(values)
            for value, run in groupby(enumerate(values), key=lambda cell: cell[1]):
                cells[next(run)[0]] = _literal(value)
            lines.append(f"| [{rule.name}](#{rule.name}) | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _section(rule: Rule[Any]) -> str:
    lines = [
        f"### {rule.name}",
        "",
        f"{rule.decides[0].upper()}{rule.decides[1:]}.",
        "",
        "| releases | value | meaning |",
        "|---|---|---|",
    ]
    firsts = [RELEASES.index(since) for since, _ in rule.values]
    for (since, value), end in zip(rule.values, [*firsts[1:], len(RELEASES)], strict=True):
        lines.append(f"| {Era(since, RELEASES[end - 1])} | {_literal(value)} | {rule.means[value]} |")
    return "\n".join([*lines, "", f"Source: {rule.source}."])


def _literal(value: Value) -> str:
    return value if isinstance(value, str) else {True: "yes", False: "no"}[value]


if __name__ == "__main__":
    print(page(), end="")
