"""Every recorded damaged store is salvaged, and a real broker serves all of it that was sound, start after start."""

from collections import Counter
from pathlib import Path

import pytest

from tests.rescue.mutations import run
from tests.support import oracle
from tests.support.judge import judge
from tests.support.real_brokers import RELEASES, RealBrokers
from tests.support.sampling import rare
from tests.support.truths import truth_of_damaged

pytestmark = pytest.mark.broker

# With this setting a broker takes none of the records that a store has, sound as they are.
_REFUSES = "forceVerifyPropCRC"
# Nothing is left to be saved.
_NOTHING = ("log_dir_lost", "log_empty", "log_only_zero_len")
DAMAGED = [
    name
    for name in oracle.cases("crash")
    if oracle.is_damaged(name)
    and _REFUSES not in oracle.case("crash", name)["settings"]
    and not name.startswith(_NOTHING)
]
ALL = [(name, release) for name in DAMAGED for release in ("4.7.1", "5.2.0", *RELEASES)]
# One of each release, the store written by it; never the same kind of damage twice.
FEW = {
    (name, oracle.case("crash", name)["written_by"]): None
    for release in RELEASES
    for name in [one for one in DAMAGED if oracle.case("crash", one)["written_by"] == release][7::20][:1]
}


# A record of a version that the release cannot read is repaired: it has to go aside all the same.
FOUND = [("size_large_last-5.2.0-h", "4.9.7")]


@pytest.mark.parametrize(("name", "release"), [case if case in FEW or case in FOUND else rare(case) for case in ALL])
def test_sound_records_are_served(name: str, release: str, real_brokers: RealBrokers, tmp_path: Path) -> None:
    root, new = oracle.store("crash", name), tmp_path / "new"
    settings = dict(oracle.case("crash", name)["settings"])
    config = tmp_path / "broker.conf"
    config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    status, said = run("salvage", root, "-o", new, "--broker-version", release, "--config", config)
    assert new.exists(), (status, said[-2000:])
    truth = truth_of_damaged(root, new, release=release)
    assert judge(real_brokers, release, new, truth, settings, unclean=(True, True)) == []


def test_the_few_are_one_of_each_release() -> None:
    assert Counter(release for _, release in FEW) == Counter(RELEASES)
