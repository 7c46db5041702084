"""The harness of real stores: it says again what was recorded, and what it writes is a store."""

from pathlib import Path

import pytest

from tests.support import oracle
from tests.support.broker_answers import recorded_answer
from tests.support.real_brokers import RELEASES, RealBrokers
from tests.support.sampling import sampled

pytestmark = pytest.mark.broker

# For each release a cut log, a start that is refused, and index files or queues that change.
CASES = (
    "none-4.9.7-LH-messageIndexSafe",
    "seg_zero_len_last-4.9.7-c",
    "none-5.3.3-h-to-4.9.7",
    "flip_body_old-5.1.4-h",
    "seg_short1_last-5.1.4-c",
    "cq_lost-5.1.4-c-recheckReputOffsetFromCq",
    "magic_last-5.3.3-c",
    "idx_dir-5.3.3-c",
    "stray_ds-5.3.3-h",
    "cq_lost-5.4.0-L-commitLogRecoverMaxNum",
    "size_huge_third-5.4.0-h",
    "two_zero_len-5.4.0-c",
    "none-5.5.0-h-enableAcceleratedRecovery",
    "stray_bak-5.5.0-h",
    "magic_third-5.5.0-h",
)

SMALL = {
    "mappedFileSizeCommitLog": 65536,
    "mappedFileSizeConsumeQueue": 400,
    "maxHashSlotNum": 100,
    "maxIndexNum": 250,
}


@pytest.mark.parametrize("name", sampled(CASES, 3))  # one of each release
def test_a_fresh_answer_is_the_recorded_one(name: str, tmp_path: Path, real_brokers: RealBrokers) -> None:
    case = oracle.case("crash", name)
    root = oracle.copy("crash", name, tmp_path)
    fresh, recorded = real_brokers.open_store(case["opened_by"], root, case["settings"]), recorded_answer(name)
    assert fresh.failure == recorded.failure
    assert fresh.loaded == recorded.loaded
    assert fresh.serves == recorded.serves
    assert fresh.deleted_files == recorded.deleted_files


def test_out_of_memory_is_a_start_that_fails(tmp_path: Path, real_brokers: RealBrokers) -> None:
    """The release of the case is older; the rule holds to this day where a body of 2 GB is to be read."""
    name = "size_huge_third-4.7.1-c"
    root = oracle.copy("crash", name, tmp_path)
    answer = real_brokers.open_store("4.9.7", root, oracle.case("crash", name)["settings"])
    assert answer.failure is not None and answer.failure.startswith("load: java.lang.OutOfMemoryError")
    assert real_brokers.open_store("4.9.7", oracle.copy("crash", "base-4.9.7-halt", tmp_path / "next"), SMALL).starts


@pytest.mark.parametrize("release", sampled(RELEASES, 4))
def test_a_store_that_was_halted_is_written_on(release: str, tmp_path: Path, real_brokers: RealBrokers) -> None:
    first = real_brokers.write_store(release, tmp_path, {"count": 60, "end": "halt", "settle_millis": 0}, SMALL)
    second = real_brokers.write_store(
        release, tmp_path, {"count": 40, "seed": 2, "end": "halt", "stop_dispatch": 10, "settle_millis": 0}, SMALL
    )
    assert (len(first.records), len(second.records), first.refused, second.refused) == (60, 40, (), ())
    assert second.records[0].physical_offset == first.end_offset
    answer = real_brokers.open_store(release, tmp_path, SMALL)
    assert answer.serves is not None
    assert answer.serves.end_offset == second.end_offset
    last = {(record.topic, record.queue_id): record.queue_offset for record in first.records + second.records}
    assert {key for key, bounds in answer.serves.queues.items() if bounds.maximum} == set(last)
    assert all(answer.serves.queues[key].maximum > offset for key, offset in last.items())


def test_a_topic_with_batch_queues_is_written_and_found_again(tmp_path: Path, real_brokers: RealBrokers) -> None:
    spec = {"count": 40, "kinds": {"inner_batch": 1}, "batch_topics": {"batches": 1}, "end": "halt", "settle_millis": 0}
    written = real_brokers.write_store("5.3.3", tmp_path, spec, SMALL)
    assert {(record.kind, record.topic) for record in written.records} == {("inner_batch", "batches")}
    answer = real_brokers.open_store("5.3.3", tmp_path, SMALL)
    assert answer.serves is not None
    # Two to five messages in each record: queue offsets count messages.
    assert answer.serves.queues["batches", 0].maximum > written.records[-1].queue_offset + 1 > 80
