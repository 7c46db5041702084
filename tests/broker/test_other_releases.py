"""Forecast and real stores agree on what a release does to a store that another release wrote and left."""

from itertools import product
from pathlib import Path

import pytest

from tests.broker.property_run import document_of, play
from tests.broker.random_cases import Case
from tests.support import oracle
from tests.support.broker_answers import differences
from tests.support.real_brokers import RELEASES, RealBrokers
from tests.support.sampling import sampled

pytestmark = pytest.mark.broker

# Damages whose end differs most between releases; a recorded answer has one release each.
STORES = (
    "base-5.5.0-halt",  # records of version 2, which end the log for 4.9.7
    "cq_last_file_zeroed-5.4.0-h",
    "cq_lost-5.3.3-r",
    "flip_body_9th-5.4.0-LH",
    "idx_stray-4.9.7-c",
    "phys_last-4.7.1-h",
    "seg_zero_len_last-5.1.4-h",
    "size_huge_third-5.4.0-h",  # out of memory up to 5.3.1; the index file is gone by then
    "stray_bak-5.4.0-h",
    "zero_page_last-4.7.1-h",
)


# Each store with some releases, each release with some stores.
@pytest.mark.parametrize(("store", "release"), sampled(product(STORES, RELEASES), 7))
def test_forecast_says_what_another_release_does(
    store: str, release: str, tmp_path: Path, real_brokers: RealBrokers
) -> None:
    assert play(Case(store, (), {}, release), real_brokers, tmp_path).differences == []


@pytest.mark.parametrize(("release", "exits"), sampled(product(RELEASES, ["clean", "unclean"]), 3))
def test_forecast_says_what_a_start_does_to_a_store_of_another_writer(
    exits: str, release: str, tmp_path: Path, real_brokers: RealBrokers
) -> None:
    store = oracle.copy("rust", "clean-1.0.0", tmp_path)
    settings = oracle.truth("rust", "clean-1.0.0")["settings"]
    if exits == "unclean":
        (store / "abort").touch()
    told = document_of(store, settings, release, tmp_path)
    assert differences(told, real_brokers.open_store(release, store, settings)) == []
