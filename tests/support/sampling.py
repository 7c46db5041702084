"""Some of many cases: a run takes a share of a long list that is always the same one, `--all-cases` takes the whole.

For lists that repeat one rule on many stores; a rule of its own is always run.
"""

from collections.abc import Iterable
from typing import Any

import pytest

_LONG = (8, 24)  # cases


def sampled(cases: Iterable[Any], every: int) -> list[Any]:
    """Return arguments of `parametrize`: each `every`th case is always run, the others with `--all-cases`.

    Of a list that is not short half as many are, of a long one a third.
    """
    cases = list(cases)
    step = every * (1 + sum(len(cases) > length for length in _LONG))
    return [case if number % step == 0 else rare(case) for number, case in enumerate(cases)]


def rare(case: Any) -> Any:
    """Return a case that only `--all-cases` runs. A plain tuple has a value for each argument."""
    values = case if type(case) is tuple else (case,)
    return pytest.param(*values, marks=pytest.mark.all_cases)
