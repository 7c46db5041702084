"""The rules of a start as data: every release has one value for each, and every value is said in words."""

from dataclasses import fields
from itertools import pairwise

import pytest

from rmqinspect.broker.eras import Rules, eras
from rmqinspect.broker.start_rules import DELAY_RULES, PULL_RULES, RULES, TIME_RULES, Rule, first_release, values_of
from rmqinspect.broker.version_estimate import OLDEST, RELEASES

ERAS = (
    "4.0.0",
    "4.1.0",
    "4.2.0 to 4.3.1",
    "4.3.2 to 4.4.0",
    "4.5.0",
    "4.5.1",
    "4.5.2",
    "4.6.0 to 4.9.0",
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


def test_one_row_for_each_rule() -> None:
    assert [rule.name for rule in RULES] == [field.name for field in fields(Rules)]


@pytest.mark.parametrize("rule", (*RULES, *PULL_RULES, *TIME_RULES, *DELAY_RULES), ids=lambda rule: rule.name)
def test_values_of_a_rule(rule: Rule) -> None:
    since = [RELEASES.index(release) for release, _ in rule.values]
    values = [value for _, value in rule.values]
    assert rule.values[0][0] == OLDEST
    assert since == sorted(set(since))
    assert all(before != after for before, after in pairwise(values))
    assert set(rule.means) == set(values)
    assert "#" in rule.source


def test_the_first_release_with_a_value() -> None:
    assert (first_release("size_fits", True), first_release("wrong_length", "ignore")) == ("5.3.2", "4.0.0")


def test_the_values_of_one_release() -> None:
    assert values_of(TIME_RULES, "5.1.1") == {
        "within": True,
        "by_change": False,
        "boundary": False,
        "batch_boundary": False,
        "rocksdb": "nearest",
    }
    with pytest.raises(ValueError):
        values_of(PULL_RULES, "5.1.99")


def test_eras() -> None:
    assert tuple(str(era) for era in eras()) == ERAS
