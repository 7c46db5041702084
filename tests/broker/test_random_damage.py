"""Forecast and real stores agree: in every situation, and on what the property run has found.

`found.jsonl` has a line for each sort of case that differed once (`property_run --keep`), and was mended; and cases of
the families "forged" and "copied". `ways.jsonl` has stores that a start refuses: remedies are carried out on copies.
"""

from pathlib import Path

import pytest

from tests.broker.property_run import play, play_ways
from tests.broker.random_cases import Case, case_of
from tests.broker.situations import SITUATIONS
from tests.support.real_brokers import RELEASES, RealBrokers
from tests.support.sampling import rare, sampled

pytestmark = pytest.mark.broker

FOUND, WAYS = (
    [case_of(line) for line in (Path(__file__).parent / name).read_text().splitlines()]
    for name in ("found.jsonl", "ways.jsonl")
)
# Each situation with one of the releases, in turn; the property run has all of them.
IN_TURN = [
    Case(name, (), {}, releases[number % len(releases)])
    for number, (name, situation) in enumerate(SITUATIONS.items())
    for releases in [RELEASES[RELEASES.index(situation.since) :]]
]


# RocketMQ tries for 30 seconds to make a file below a file.
SLOW = (("replace", {"name": "consumequeue/TopicA", "how": "file"}),)
QUICK, LONG = ([case for case in (*FOUND, *IN_TURN) if (case.damages == SLOW) is slow] for slow in (False, True))


@pytest.mark.parametrize("case", [*sampled(QUICK, 3), *map(rare, LONG)], ids=Case.line)
def test_forecast_says_what_the_broker_does(case: Case, tmp_path: Path, real_brokers: RealBrokers) -> None:
    assert play(case, real_brokers, tmp_path).differences == []


@pytest.mark.parametrize("case", sampled(WAYS, 3), ids=Case.line)
def test_every_other_way_to_start_does_what_its_forecast_says(
    case: Case, tmp_path: Path, real_brokers: RealBrokers
) -> None:
    assert play_ways(case, real_brokers, tmp_path).differences == []
