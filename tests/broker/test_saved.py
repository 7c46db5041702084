"""What `--lost-at-start` saves, and the flipped bit set back, against real store classes that start the store."""

import random
import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace

from rmqinspect.store.discover import open_store
from rmqinspect.tables.lost_records import AskedStart
from tests.broker.damages import Damage, damage
from tests.broker.property_run import play_ways
from tests.broker.random_cases import Case
from tests.forecast.test_lost_at_start import saved
from tests.support import oracle
from tests.support.real_brokers import RELEASES, RealBrokers
from tests.support.sampling import sampled

pytestmark = pytest.mark.broker

BASES = [name for name in oracle.cases("crash") if name.startswith("base-") and name.split("-")[1] in RELEASES]
BYTES = (1, 5, 7, 30, 85, 90, 100, 110, 120)  # of a record: lengths, magic, its places, the body


@pytest.mark.parametrize("base", sampled(BASES, 5))
def test_a_message_is_before_the_end_that_the_broker_comes_to_or_saved(
    base: str, real_brokers: RealBrokers, tmp_path: Path
) -> None:
    chance, settings, release = random.Random(base), oracle.case("crash", base)["settings"], base.split("-")[1]
    flips = [
        {"segment": segment, "record": chance.randrange(40), "byte": chance.choice(BYTES), "bit": chance.randrange(8)}
        for segment in (-2, -3)
    ]
    case = Case(base, tuple(Damage("flip_bit", flip) for flip in flips), {}, release)
    (tmp_path / "ways").mkdir()
    assert play_ways(case, real_brokers, tmp_path / "ways").differences == []
    store = oracle.copy("crash", base, tmp_path)
    for one in case.damages:
        damage(store, one)
    opened = replace(open_store([str(store)]), settings=settings, has_conf=True)
    places = set(saved(opened, AskedStart(release)).column("physical_offset").to_pylist())
    answer = real_brokers.open_store(release, shutil.copytree(store, tmp_path / "started"), settings)
    if answer.serves is None:
        assert not places
        return
    sent = {put["phys"] for put in oracle.puts(base) if put["status"] == "PUT_OK"}
    assert {place for place in sent if place >= answer.serves.end_offset} <= places
    assert all(place >= answer.serves.end_offset for place in places)
