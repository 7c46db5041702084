"""Real stores open what `rebuild` made of a log alone: they serve what they served before, and go on where it ends."""

import shutil
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import pytest

from rmqinspect.store.discover import open_store
from rmqinspect.verify.result import VerifyOptions
from rmqinspect.verify.run import verify
from tests.broker.damages import leave_abort
from tests.broker.situations import SIZES, SPEC
from tests.support import command
from tests.support.broker_answers import QueueBounds
from tests.support.real_brokers import RELEASES, RealBrokers
from tests.support.rocksdb import needs_rocksdict
from tests.support.sampling import sampled

pytestmark = pytest.mark.broker

run = command.runner("rebuild")

# Written by, rebuilt for and opened by.
PAIRS = [
    *((release, release) for release in RELEASES),
    *((old, new) for old, new in pairwise(RELEASES)),
    ("4.7.1", "4.7.1"),
    ("4.3.2", "4.3.2"),
    ("5.2.0", "5.2.0"),
]

OLD_NAMES = {name.replace("mapped", "maped"): value for name, value in SIZES.items() if name.startswith("mapped")}


@pytest.mark.parametrize(("writer", "release"), sampled(PAIRS, 4))
def test_a_log_alone_becomes_a_store_that_serves(
    writer: str, release: str, tmp_path: Path, real_brokers: RealBrokers, run: command.Run
) -> None:
    written, sizes = tmp_path / "written", {**SIZES, **OLD_NAMES} if writer == "4.3.2" else SIZES
    real_brokers.write_store(writer, written, SPEC, sizes)
    before = bounds(real_brokers, release, shutil.copytree(written, tmp_path / "copy"), sizes)
    new = rebuilt(run, written / "commitlog", tmp_path, release, sizes)

    assert bounds(real_brokers, release, new, sizes, halt=True) == before
    leave_abort(new, "")
    assert bounds(real_brokers, release, new, sizes, halt=True) == before

    more = real_brokers.write_store(release, new, {**SPEC, "seed": 7, "count": 40}, sizes)
    assert not more.refused
    for record in more.records:
        if record.kind not in ("prepared", "rollback"):  # they have no place in a queue
            first = before.get((record.topic, record.queue_id), QueueBounds(0, 0)).maximum
            assert record.queue_offset >= first
    result = verify(open_store([str(new)]), VerifyOptions("deep", broker_version=release))
    assert not result.damage, [finding.message for finding in result.findings.rows]


@needs_rocksdict
@pytest.mark.parametrize("release", sampled(("5.3.3", "5.4.0", "5.5.0"), 3))
def test_queues_go_back_into_rocksdb(release: str, tmp_path: Path, real_brokers: RealBrokers, run: command.Run) -> None:
    settings = {**SIZES, "storeType": "defaultRocksDB"}
    topics = {"TopicA": 4, "orders": 2, "BatchTopic": 4, "SCHEDULE_TOPIC_XXXX": 18}
    written = tmp_path / "written"
    real_brokers.write_store(release, written, SPEC, settings)
    before = bounds(real_brokers, release, shutil.copytree(written, tmp_path / "copy"), settings, topics)
    new = rebuilt(run, written / "commitlog", tmp_path, release, settings)
    assert bounds(real_brokers, release, new, settings, topics) == before


def rebuilt(run: command.Run, log: Path, folder: Path, release: str, settings: Mapping[str, str]) -> Path:
    """Rebuild a store from a folder of segments."""
    new, conf = folder / "new", folder / "broker.conf"
    conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    status, _, told = run(log, "-o", new, "--broker-version", release, "--config", conf)
    assert status == 0, told
    return new


def bounds(
    brokers: RealBrokers,
    release: str,
    store: Path,
    settings: Mapping[str, str],
    topics: Mapping[str, int] | None = None,
    *,
    halt: bool = False,
) -> dict[tuple[str, int], QueueBounds]:
    """Return the bounds of the queues that a real store serves, but for those without messages."""
    answer = brokers.open_store(release, store, settings, topics, halt=halt)
    assert answer.serves is not None, answer.failure
    return {queue: found for queue, found in answer.serves.queues.items() if found.maximum}
