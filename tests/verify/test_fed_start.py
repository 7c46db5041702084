"""The next start in `verify` takes what the checks have read, and has the same answer as `forecast`.

Neither reads the log twice.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.make_store import make_store
from rmqinspect.errors import Unreadable
from rmqinspect.forecast.segment_run import RunWalk
from rmqinspect.forecast.versions import ForecastRequest, forecast
from rmqinspect.store.discover import open_store
from rmqinspect.store.model import Store, StoreFile
from rmqinspect.store.reader import FileReader
from rmqinspect.verify.result import VerifyOptions
from rmqinspect.verify.run import verify_and_forecast
from tests.support import oracle
from tests.support.outcome_stores import outcome_store
from tests.support.samples import ROOT
from tests.support.sampling import sampled

CASES = [*(("crash", name) for name in oracle.cases("crash")), *(("broker", name) for name in oracle.cases("broker"))]


@pytest.mark.parametrize(("family", "name"), sampled(CASES, 16))
def test_the_start_in_verify_is_that_of_forecast(family: Any, name: str) -> None:
    store = open_store([str(oracle.store(family, name))])
    found = verify_and_forecast(store, VerifyOptions(level="standard", jobs=2)).next_start
    asked = forecast(store, ForecastRequest())
    assert found is not None
    assert found.outcomes == asked.outcomes


@pytest.mark.parametrize("release", ["4.2.0", "4.9.7", "5.3.3", "5.5.0"])
@pytest.mark.parametrize("end", ["clean", "halt"])
def test_a_sound_log_is_not_read_again(release: str, end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    walked: list[int] = []

    class Counted(RunWalk):
        def __init__(self, *arguments: Any) -> None:
            walked.append(1)
            super().__init__(*arguments)

    monkeypatch.setattr("rmqinspect.forecast.scan.RunWalk", Counted)
    store = open_store([str(oracle.store("crash", f"base-{release}-{end}"))])
    assert verify_and_forecast(store, VerifyOptions(level="standard")).next_start is not None
    forecast(store, ForecastRequest())
    assert not walked
    forecast(store, ForecastRequest(count_losses=False))  # reads no more than the start itself
    assert walked


SAMPLES = ROOT / "samples"
SIZE = 16 << 20
EDGES = 8 << 20  # bytes: samples of its first and last records, the search for its end, and windows that overlap


@pytest.fixture(scope="module")
def sizeable(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sizeable") / "store"
    make_store(str(path), "mid", SIZE)
    return path


@pytest.fixture
def log_bytes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes of each read of a segment, from now on."""
    found: list[int] = []
    read_into = FileReader.read_into
    opened = FileReader.__init__

    def note_name(self: Any, file: StoreFile) -> None:
        self.is_segment = file.name.startswith("commitlog/")
        opened(self, file)

    def count(self: Any, buffer: bytearray | memoryview, offset: int) -> int:
        done = read_into(self, buffer, offset)
        if self.is_segment:
            found.append(done)
        return done

    monkeypatch.setattr(FileReader, "__init__", note_name)
    monkeypatch.setattr(FileReader, "read_into", count)
    return found


def verify_at(level: str) -> Callable[[Store], object]:
    return lambda store: verify_and_forecast(store, VerifyOptions(level=level, jobs=2))


@pytest.mark.parametrize(
    "ask",
    [verify_at("standard"), verify_at("deep"), lambda store: forecast(store, ForecastRequest(jobs=2))],
    ids=["standard", "deep", "forecast"],
)
def test_no_byte_of_the_log_is_read_twice(ask: Callable[[Store], object], sizeable: Path, log_bytes: list[int]) -> None:
    ask(open_store([str(sizeable)]))
    assert SIZE <= sum(log_bytes) < SIZE + EDGES


def test_a_damaged_body_that_no_start_meets_is_read_once(sizeable: Path, log_bytes: list[int]) -> None:
    first = sizeable / "commitlog" / f"{0:020}"
    raw = first.read_bytes()
    try:
        with first.open("r+b") as file:  # the start scans the last three segments
            file.seek(raw.index(b'{"', SIZE // 8))  # a body
            file.write(b"\0")
        result = verify_and_forecast(open_store([str(sizeable)]), VerifyOptions(level="standard"))
    finally:
        first.write_bytes(raw)
    assert result.verdict == "DAMAGED"
    assert sum(log_bytes) < SIZE + EDGES


def test_a_queue_that_cannot_be_read_any_more_ends_the_start_and_no_check(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise Unreadable("Input/output error", "consumequeue/TopicA/0/00000000000000000000")

    monkeypatch.setattr("rmqinspect.forecast.queues.Queues.dispatch", refuse)
    store = open_store([str(oracle.store("crash", "base-4.9.7-halt"))])
    result = verify_and_forecast(store, VerifyOptions(level="standard"))
    assert (result.verdict, result.interrupted_at) == ("WHOLE", None)
    assert result.next_start is not None
    assert result.next_start.outcomes == forecast(store, ForecastRequest()).outcomes
    assert result.next_start.worst.unknown is not None


# s01: units that lead to nothing; s03: queues without their ends; topics-gone: queues without a unit; 97187: a cut log.
@pytest.mark.parametrize("name", ["s01", "s03", "topics-gone", "flipped-bit-5.3.3"])
def test_the_verdict_of_a_long_log_is_as_exact_in_verify(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store([str(SAMPLES / name if name[:1] == "f" else outcome_store(name))])
    exact = forecast(store, ForecastRequest()).outcomes
    assert all(outcome.judged and outcome.not_received + outcome.losses.messages for outcome in exact)
    monkeypatch.setattr("rmqinspect.forecast.versions.JUDGED", 0)
    found = verify_and_forecast(store, VerifyOptions(level="standard", jobs=2)).next_start
    assert found is not None
    assert found.outcomes == exact
    assert all(outcome.sampled and not outcome.judged for outcome in forecast(store, ForecastRequest()).outcomes)


def test_of_too_many_records_without_a_unit_a_sample_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store([str(outcome_store("topics-gone"))])
    monkeypatch.setattr("rmqinspect.forecast.versions.JUDGED", 0)
    monkeypatch.setattr("rmqinspect.forecast.record_fold.MOST", 282)
    found = verify_and_forecast(store, VerifyOptions(level="standard")).next_start
    assert found is not None
    assert all(outcome.sampled and not outcome.judged for outcome in found.outcomes)
