"""Damaged stores that were salvaged are served by real brokers: a sample of the random run, see `mutations`.

`mutations.jsonl` has a line for each sort of case that was wrong once (`mutations --keep`), and was mended.
"""

from pathlib import Path

import pytest

from tests.broker.random_cases import Case, case_of
from tests.rescue.mutations import play, random_mutation
from tests.support.real_brokers import RELEASES, RealBrokers
from tests.support.sampling import sampled

pytestmark = pytest.mark.broker

FOUND = [case_of(line) for line in (Path(__file__).parent / "mutations.jsonl").read_text().splitlines()]
RANDOM = [random_mutation(22, number, release) for number in range(10) for release in RELEASES]


@pytest.mark.parametrize("case", [*sampled(FOUND, 4), *sampled(RANDOM, 13)], ids=Case.line)
def test_what_is_salvaged_is_served(case: Case, tmp_path: Path, real_brokers: RealBrokers) -> None:
    assert play(case, real_brokers, tmp_path).wrong == []
