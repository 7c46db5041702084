"""Real stores open what `salvage` made of a damaged DLedger log: they lead the group, serve what was sound, go on."""

import socket
from pathlib import Path

import pytest

from tests.rescue.mutations import run
from tests.support import oracle
from tests.support.judge import judge
from tests.support.ledgers import SIZE, damages, entries_of
from tests.support.real_brokers import RELEASES, RealBrokers
from tests.support.sampling import rare
from tests.support.truths import records_of, truth_of

pytestmark = pytest.mark.broker

OLD, NEW = "dledger-4.9.7", "dledger-5.3.3"
STORES = {OLD: ("4.7.1", "5.2.0", *RELEASES), NEW: ("5.1.4", "5.2.0", "5.3.3", "5.4.0", "5.5.0")}
DAMAGES = tuple(damages(entries_of(oracle.store("broker", OLD))))
FEW = {
    (OLD, "over the end of a segment", "4.9.7"),
    (NEW, "page", "5.5.0"),
}
ALL = [(store, name, release) for store, releases in STORES.items() for name in DAMAGES for release in releases]


@pytest.mark.parametrize(("store", "name", "release"), [case if case in FEW else rare(case) for case in ALL])
def test_a_salvaged_ledger_is_served(
    store: str, name: str, release: str, real_brokers: RealBrokers, tmp_path: Path
) -> None:
    root, new = oracle.copy("broker", store, tmp_path), tmp_path / "new"
    records = records_of(root)
    damages(entries_of(root))[name](root)
    status, said = run("salvage", root, "-o", new, "--broker-version", release)
    assert new.exists(), (status, said[-2000:])
    truth = truth_of(records, root, release=release)
    # From 5.2.0 on a start after an unclean exit cuts the queues of every DLedger log too early: forecast says so.
    unclean = (False, release < "5.2")
    assert judge(real_brokers, release, new, truth, settings(), unclean=unclean) == []


def settings() -> dict[str, object]:
    """Return the settings of the recorded stores, of a group of one on a free port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return {
        "enableDLegerCommitLog": True,
        "dLegerGroup": "broker-a",
        "dLegerSelfId": "n0",
        "dLegerPeers": f"n0-127.0.0.1:{port}",
        "mappedFileSizeCommitLog": SIZE,
        "mappedFileSizeConsumeQueue": 6000,
        "mappedFileSizeTimerLog": 1 << 20,
        "maxHashSlotNum": 100,
        "maxIndexNum": 400,
        "fileReservedTime": 1 << 20,
    }
