"""The next start in `verify` takes what the checks have read, and has the same answer as `forecast`."""

from typing import Any

import pytest

from rmqinspect.errors import Unreadable
from rmqinspect.forecast.segment_run import RunWalk
from rmqinspect.forecast.versions import ForecastRequest, forecast
from rmqinspect.store.discover import open_store
from rmqinspect.verify.result import VerifyOptions
from rmqinspect.verify.run import verify_and_forecast
from tests.support import oracle
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
    forecast(store, ForecastRequest())
    assert walked
    walked.clear()
    assert verify_and_forecast(store, VerifyOptions(level="standard")).next_start is not None
    assert not walked


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
