"""A start that verify feeds with the records that it reads comes to what the start comes to alone."""

from pathlib import Path

from rmqinspect.forecast.versions import ForecastRequest, forecast
from rmqinspect.rescue.bridge import bridge
from rmqinspect.store.discover import open_store
from rmqinspect.verify.result import VerifyOptions
from rmqinspect.verify.run import verify_and_forecast
from tests.support.building import STORED
from tests.support.truths import records_of
from tests.support.whole_stores import WholeStore


def test_a_bridge_before_the_blank_record_of_a_segment_ends_no_scan(tmp_path: Path) -> None:
    size = 4096
    root = WholeStore([{"body": bytes(100)} for _ in range(60)], size, queue_rows=100).write(tmp_path / "store")
    last = max(one.physical_offset for one in records_of(root) if one.physical_offset < size)
    path = root / "commitlog" / f"{0:020}"
    raw = bytearray(path.read_bytes())
    raw[last:] = bytes(size - last)
    for offset, written in bridge(last, size, size, STORED):
        raw[offset : offset + len(written)] = written
    path.write_bytes(raw)
    store = open_store([str(root)])
    # Verify does not count bridges as records: what it has read does not say where the log ends.
    fed = verify_and_forecast(store, VerifyOptions("deep")).next_start
    alone = forecast(store, ForecastRequest()).worst
    assert fed is not None
    assert (fed.worst.end_offset, fed.worst.verdict) == (alone.end_offset, alone.verdict)
    assert alone.end_offset > size
