"""The rules of a start as data: every release has one value for each, and every value is said in words."""

import ast
from itertools import pairwise
from typing import Any

import pytest

from rmqinspect.broker.eras import eras
from rmqinspect.broker.own_rules import DelayRules, TopicRules
from rmqinspect.broker.read_rules import PullRules, TimeRules
from rmqinspect.broker.rules import Rule, rules_in
from rmqinspect.broker.start_rules import Rules
from rmqinspect.broker.version_estimate import OLDEST, RELEASES
from tests.support.samples import ROOT

ERAS = (
    "4.0.0",
    "4.1.0",
    "4.2.0 to 4.3.1",
    "4.3.2 to 4.4.0",
    "4.5.0",
    "4.5.1",
    "4.5.2",
    "4.6.0 to 4.8.0",
    "4.9.0",
    "4.9.1",
    "4.9.2",
    "4.9.3",
    "4.9.4 to 4.9.8",
    "5.0.0",
    "5.1.0",
    "5.1.1",
    "5.1.2",
    "5.1.3 to 5.1.4",
    "5.2.0",
    "5.3.0",
    "5.3.1",
    "5.3.2 to 5.3.3",
    "5.4.0",
    "5.5.0",
)


TABLES = (Rules, PullRules, TimeRules, TopicRules, DelayRules)


@pytest.mark.parametrize("rule", [rule for table in TABLES for rule in rules_in(table)], ids=lambda rule: rule.name)
def test_values_of_a_rule(rule: Rule[Any]) -> None:
    since = [RELEASES.index(release) for release, _ in rule.values]
    values = [value for _, value in rule.values]
    assert rule.values[0][0] == OLDEST
    assert since == sorted(set(since))
    assert all(before != after for before, after in pairwise(values))
    assert set(rule.means) == set(values)
    assert "#" in rule.source


def test_every_value_that_is_asked_for_is_one_of_its_rule() -> None:
    known = {rule.name: set(rule.means) for table in TABLES for rule in rules_in(table)}
    asked = set()
    for file in sorted((ROOT / "rmqinspect").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Compare) and isinstance(node.left, ast.Attribute) and node.left.attr in known:
                values = [one.value for one in ast.walk(node.comparators[0]) if isinstance(one, ast.Constant)]
                asked |= {(node.left.attr, value) for value in values if isinstance(value, str)}
    assert len(asked) > 30
    assert {(name, value) for name, value in asked if value not in known[name]} == set()


def test_the_first_release_with_a_value() -> None:
    assert (Rules.size_fits.since(True), Rules.wrong_length.since("ignore")) == ("5.3.2", "4.0.0")


def test_the_values_of_one_release() -> None:
    rules = TimeRules("5.1.1")
    assert (rules.within, rules.by_change, rules.boundary, rules.rocksdb) == (True, False, False, "nearest")
    assert TimeRules("5.1.1", boundary=True).boundary
    with pytest.raises(ValueError):
        PullRules("5.1.99")


def test_eras() -> None:
    assert tuple(str(era) for era in eras()) == ERAS
