"""The estimate of the writer's version, against stores whose writers are known."""

import pytest
from msgspec.structs import replace

from rmqinspect.broker.version_estimate import CLUES, OLDEST, RELEASES, YOUNGEST, estimate
from rmqinspect.broker.version_evidence import Evidence
from rmqinspect.commitlog.gaps import plan_splits
from rmqinspect.commitlog.scan import RecordRun, scan_split
from rmqinspect.commitlog.tail import Sample, find_log_end
from rmqinspect.consumequeue.bounds import last_places
from rmqinspect.show.overview import overview
from rmqinspect.store.discover import open_store
from rmqinspect.store.model import Store
from tests.support import oracle
from tests.support.sampling import sampled

CASES = [(family, name) for family in ("broker", "crash") for name in oracle.cases(family)]


def opened(family: oracle.Family, name: str) -> Store:
    return open_store([str(oracle.store(family, name))])


def writer_of(family: oracle.Family, name: str) -> str:
    if family == "crash":
        return str(oracle.case(family, name)["written_by"])
    return str(oracle.truth(family, name)["store"]["rocketmq_version"])


# The widest range that is acceptable where the log has records: (low, high) by writer.
WIDEST = {
    "4.2.0": ("4.2.0", "4.7.0"),
    "4.3.2": ("4.2.0", "4.7.0"),
    "4.7.1": ("4.7.1", "4.9.0"),
    "4.9.7": ("4.9.1", "4.9.8"),
    "5.1.4": ("5.1.0", "5.1.4"),
    "5.2.0": ("5.2.0", "5.3.3"),
    "5.3.3": ("5.2.0", "5.3.3"),
    "5.4.0": ("5.4.0", "5.5.0"),
    "5.5.0": ("5.4.0", "5.5.0"),
}


@pytest.mark.parametrize(("family", "name"), sampled(CASES, 4))
def test_the_writer_lies_in_a_narrow_range(family: oracle.Family, name: str) -> None:
    facts = overview(opened(family, name))
    writer = writer_of(family, name)
    assert writer in facts.versions.releases
    assert not facts.unread
    if facts.log.end.last_record is not None:
        low, high = WIDEST[writer]
        assert RELEASES.index(low) <= RELEASES.index(facts.versions.low)
        assert RELEASES.index(facts.versions.high) <= RELEASES.index(high)


@pytest.mark.parametrize("name", [n for n in oracle.cases("crash") if n.startswith("base-")])
def test_a_bare_log_is_enough_for_a_range(name: str) -> None:
    store = open_store([str(oracle.store("crash", name) / "commitlog")])
    assert writer_of("crash", name) in overview(store).versions.releases


@pytest.mark.parametrize(("family", "name"), sampled(CASES, 4))
def test_the_last_record_is_found_with_and_without_queues(family: oracle.Family, name: str) -> None:
    store = opened(family, name)
    last = None
    for split in plan_splits(store.segments, 1 << 40):
        for event in scan_split(split):
            if isinstance(event, RecordRun) and not event.stale:
                last = event.records.base + int(event.records.starts[-1])
    for given in (last_places(store, []), []):
        found = find_log_end(store, given)
        assert found.last_record == last
        if family == "broker":
            assert found.end == oracle.truth(family, name)["store"]["max_phy"]


def test_a_walk_that_is_given_up_says_so() -> None:
    store = opened("crash", "base-5.3.3-halt")
    whole = find_log_end(store, [])
    assert not whole.goes_on
    far = find_log_end(store, [0], budget=1)
    assert far.last_record == whole.last_record  # the end was looked for again, without the hint
    lone = find_log_end(replace(store, segments=store.segments[:1]), [0], budget=1)
    assert not lone.goes_on


def evidence(**changes: object) -> Evidence:
    store = open_store([str(oracle.store("crash", "log_empty-5.2.0-c"))])
    plain = Evidence(store, Sample(), Sample(), frozenset(), frozenset(), {}, None, (), (0, 0), None)
    return replace(plain, **changes)


def test_nothing_tells_nothing() -> None:
    found = estimate(evidence())
    assert (found.low, found.high, found.clues, str(found)) == (OLDEST, YOUNGEST, (), "any version")
    assert found.releases == RELEASES


def test_clues_are_intersected_and_only_those_that_matter_are_told() -> None:
    names = frozenset({"lock", "abort.bak", "config/transactionMetrics", "timerwheel"})
    found = estimate(evidence(names=names, last=Sample(separated=5)))
    assert str(found) == "5.2.0 to 5.3.3"
    assert found.clues == ("properties end with the separator", "abort.bak", "no rocksdbstore")


def test_an_absence_gives_way_to_what_is_there() -> None:
    names = frozenset({"lock", "batchconsumequeue"})  # copied without its .bak files
    assert str(estimate(evidence(names=names))) == "5.0.0 or later"


def test_contradicting_clues_mean_several_writers() -> None:
    found = estimate(evidence(names=frozenset({"lock", "abort.bak", "rocksdbstore"}), last=Sample(unseparated=9)))
    assert (found.low, found.high) == ("5.4.0", "5.5.0")
    assert "several versions wrote in turn, the last one is meant" in found.clues


def test_every_clue_names_known_releases_in_order() -> None:
    for clue in CLUES:
        for low, high in clue.spans:
            assert RELEASES.index(low) <= RELEASES.index(high), clue.text
    assert len({clue.text for clue in CLUES}) == len(CLUES)
