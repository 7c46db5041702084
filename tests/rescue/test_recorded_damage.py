"""Every recorded damaged store is salvaged, and a real broker serves all of it that was sound, start after start."""

from collections import Counter
from pathlib import Path

import pytest

from tests.rescue.recorded_run import Recorded, damaged_cases, judged, sound_cases
from tests.support import oracle
from tests.support.real_brokers import RELEASES, RealBrokers
from tests.support.sampling import rare

pytestmark = pytest.mark.broker

ALL = damaged_cases()
# One of each release, the store written by it; never the same kind of damage twice.
FEW = [
    one
    for release in RELEASES
    for one in [one for one in ALL if one.release == oracle.case("crash", one.name)["written_by"] == release][7::20][:1]
]
# A record of a version that the release cannot read is repaired: it has to go aside all the same.
FOUND = [Recorded("crash", "size_large_last-5.2.0-h", "4.9.7")]
# What whole brokers wrote: the offsets of their groups stay valid.
SOUND = [Recorded("broker", "lmq-5.3.3", "5.3.3")]


@pytest.mark.parametrize(
    "case", [one if one in (*FEW, *FOUND, *SOUND) else rare(one) for one in (*ALL, *sound_cases())], ids="-".join
)
def test_sound_records_are_served(case: Recorded, real_brokers: RealBrokers, tmp_path: Path) -> None:
    assert judged(case, real_brokers, tmp_path).wrong == []


def test_the_few_are_one_of_each_release() -> None:
    assert Counter(one.release for one in FEW) == Counter(RELEASES)
