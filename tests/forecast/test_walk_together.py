"""Starts of several releases that are walked side by side come to what each comes to alone, and read the log once."""

import pytest
from msgspec.structs import replace

from rmqinspect.broker.eras import rules_of_start
from rmqinspect.broker.version_estimate import RELEASES
from rmqinspect.forecast.evidence import Evidence
from rmqinspect.forecast.walk import Start, walk, walk_all
from rmqinspect.store.discover import open_store
from tests.support import oracle
from tests.support.samples import sample
from tests.support.sampling import sampled


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "unclean"])
@pytest.mark.parametrize("case", sampled(oracle.cases("crash"), 27))
def test_starts_walked_together_are_the_starts_walked_alone(case: str, clean: bool) -> None:
    store = open_store([str(oracle.store("crash", case))])
    rules = {release: rules_of_start(release) for release in RELEASES[::3]}
    shared = Evidence(store)
    together = walk_all([Start(shared.of_release(of), release, of) for release, of in rules.items()], clean=clean)
    for found, (release, of) in zip(together, rules.items(), strict=True):
        alone = walk(Evidence(store).of_release(of), release, of, clean=clean)
        # What `led` leads to is objects of the walk.
        assert replace(found, led=None) == replace(alone, led=None), release


def test_the_log_is_read_once_for_releases_with_different_rules() -> None:
    store = open_store([str(sample("healthy-5.5.0"))])
    scanned: list[int] = []
    evidence = Evidence(store, progress=scanned.append)
    starts = [Start(evidence, release, rules_of_start(release)) for release in ("5.1.0", "5.1.4", "5.3.3")]
    walk_all(starts, clean=False)
    together = sum(scanned)
    scanned.clear()
    walk(Evidence(store, progress=scanned.append), *starts[0][1:], clean=False)
    assert len({start.rules for start in starts}) == 3
    assert together == sum(scanned) > 0
