"""The walk against whole brokers that real clients used: undamaged stores of all layouts, cleanly stopped or killed."""

import pytest
from msgspec.structs import replace

from rmqinspect.forecast.outcome import Verdict
from rmqinspect.forecast.versions import ForecastRequest, forecast
from rmqinspect.rocksdb.unpack import Unpacking, unpacked
from rmqinspect.store.discover import open_store
from tests.support import oracle
from tests.support.sampling import sampled


@pytest.mark.parametrize("name", sampled(oracle.cases("broker"), 3))
def test_a_start_of_a_whole_broker(name: str) -> None:
    truth = oracle.truth("broker", name)
    settings = {key: str(value) for key, value in truth["store"]["settings"].items()}
    store = replace(open_store([str(oracle.store("broker", name))]), settings=settings, has_conf=True)
    with unpacked(store, Unpacking(ends_only=True)) as whole:
        outcome = forecast(whole, ForecastRequest(release=truth["store"]["rocketmq_version"])).worst
    assert outcome.verdict is Verdict.SAFE
    assert (outcome.min_offset, outcome.end_offset) == (truth["store"]["min_phy"], truth["store"]["max_phy"])
    ours = {(queue.topic, queue.queue_id): (queue.min_after, queue.max_after) for queue in outcome.queues}
    theirs = {(queue["topic"], queue["queue_id"]): (queue["min"], queue["max"]) for queue in truth["queues"]}
    # 4.9.2 to 4.9.8 make queues of all delay levels in memory; the harness lists those with files.
    assert {queue: ends for queue, ends in ours.items() if ends != (0, 0) or queue in theirs} == theirs


@pytest.mark.parametrize(("release", "why"), [("5.3.3", ""), ("5.4.0", "in files and in RocksDB")])
def test_queues_that_are_written_twice(release: str, why: str) -> None:
    settings = {"rocksdbCQDoubleWriteEnable": "true"}
    store = replace(open_store([str(oracle.store("broker", "main-4.7.1"))]), settings=settings, has_conf=True)
    unknown = forecast(store, ForecastRequest(release=release)).worst.unknown or ""
    assert why in unknown
    assert bool(unknown) == bool(why)


def test_queues_in_rocksdb_that_are_not_read() -> None:
    with unpacked(open_store([str(oracle.store("broker", "rocksdb-5.4.0"))]), Unpacking(wanted=False)) as store:
        outcome = forecast(store, ForecastRequest(release="5.4.0")).worst
    assert outcome.verdict is Verdict.UNKNOWN
    assert outcome.unknown == "consumequeue: a RocksDB database, and --no-rocksdb was given"
