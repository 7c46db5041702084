"""Forecast and real stores agree: in every situation, and on what the property run has found.

`found.jsonl` has a line for each sort of case that differed once (`property_run --keep`), and was mended.
"""

from pathlib import Path

import pytest

from tests.broker.property_run import play
from tests.broker.random_cases import Case, case_of
from tests.broker.situations import SITUATIONS
from tests.support.real_brokers import RELEASES, RealBrokers

pytestmark = pytest.mark.broker

FOUND = [case_of(line) for line in (Path(__file__).parent / "found.jsonl").read_text().splitlines()]
# Each situation with one of the releases, in turn; the property run has all of them.
IN_TURN = [
    Case(name, (), {}, releases[number % len(releases)])
    for number, (name, situation) in enumerate(SITUATIONS.items())
    for releases in [RELEASES[RELEASES.index(situation.since) :]]
]


@pytest.mark.parametrize("case", [*FOUND, *IN_TURN], ids=Case.line)
def test_forecast_says_what_the_broker_does(case: Case, tmp_path: Path, real_brokers: RealBrokers) -> None:
    assert play(case, real_brokers, tmp_path).differences == []
