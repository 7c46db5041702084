"""What differs by release, as tables: one attribute says one rule, for all releases.

    class Rules                          what a start does
        queue_end = Rule(…, (("4.0.0", "start"), ("4.5.0", "end")), …)

    Rules("4.4.0").queue_end             "start"
    Rules.queue_end.since("end")         "4.5.0"

The tables: `start_rules` what a start does, `read_rules` what consumers are answered, `own_rules` what becomes of what
the broker keeps for itself.
"""

from collections.abc import Mapping
from typing import Any, Generic, TypeVar, overload

from rmqinspect.broker.version_estimate import RELEASES

Value = str | bool
AnyValue = TypeVar("AnyValue", str, bool)

_YES_NO: Mapping[Any, str] = {True: "yes", False: "no"}


class Rule(Generic[AnyValue]):
    """One rule: what it decides, where it was read, its values, each with the first release that has it, in words.

    Of a class that is the rule; of the rules of a release, its value there.
    """

    name: str

    def __init__(
        self,
        decides: str,
        source: str,
        values: tuple[tuple[str, AnyValue], ...],
        means: Mapping[AnyValue, str] = _YES_NO,
    ) -> None:
        """Take all that is known of it but its name, which is that of the attribute."""
        self.decides, self.source = decides, source
        self.values: tuple[tuple[str, AnyValue], ...] = values
        self.means: Mapping[AnyValue, str] = means

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, of_release: None, owner: type) -> "Rule[AnyValue]": ...
    @overload
    def __get__(self, of_release: "RuleSet", owner: type) -> AnyValue: ...
    def __get__(self, of_release: "RuleSet | None", owner: type) -> "Rule[AnyValue] | AnyValue":
        return self  # the values of a release lie in front of it, in its own dictionary

    def since(self, value: AnyValue) -> str:
        """Return the first release that has a value, which some have."""
        return next(since for since, own in self.values if own == value)


class RuleSet:
    """The values that rules have in one release, as attributes."""

    def __init__(self, release: str, **others: Value) -> None:
        """Take the values of a release, but for `others`.

        :raises ValueError: no such release.
        """
        known = RELEASES.index(release)
        for rule in rules_in(type(self)):
            own = [value for since, value in rule.values if RELEASES.index(since) <= known][-1]
            vars(self)[rule.name] = others.get(rule.name, own)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(tuple(vars(self).values()))


def rules_in(table: type[RuleSet]) -> tuple[Rule[Any], ...]:
    """Return the rules of a table, in order."""
    return tuple(rule for rule in vars(table).values() if isinstance(rule, Rule))
