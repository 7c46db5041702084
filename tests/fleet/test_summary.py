"""A row of a store is made of its documents, and says what the screens of that store say."""

from collections.abc import Iterator
from typing import Any

import pytest

from rmqinspect.fleet.summary import StoreRow, badness, costs, row_of_forecast, row_of_info, row_of_report
from rmqinspect.forecast.advice import Action
from rmqinspect.forecast.document import document
from rmqinspect.forecast.outcome import Verdict
from rmqinspect.forecast.versions import ForecastRequest, forecast
from rmqinspect.show.overview import overview
from rmqinspect.store.discover import open_store
from tests.support import oracle
from tests.support.sampling import sampled


def stores() -> Iterator[tuple[oracle.Family, str]]:
    """Yield all stores that brokers wrote."""
    for family in ("crash", "broker", "rust"):
        for name in oracle.cases(family):
            yield family, name


@pytest.mark.parametrize(("family", "name"), sampled(stores(), 40))
def test_the_row_of_a_forecast_is_that_of_its_worst_outcome(family: oracle.Family, name: str) -> None:
    store = open_store([str(oracle.store(family, name))])
    found = forecast(store, ForecastRequest(instead=True))
    row = row_of_forecast(name, store, found, document(found))
    worst = found.worst
    assert (row.store, row.next_start, row.error) == (name, worst.verdict.value, None)
    assert row.size_bytes == sum(file.size for file in store.files)
    assert row.do_first
    facts = overview(store)
    assert (row.writer, row.stopped) == (str(facts.versions.other or facts.versions), facts.stop.state)
    if worst.verdict in (Verdict.SAFE, Verdict.LOSES, Verdict.EMPTY):
        lost = worst.losses.messages + worst.not_received + worst.skipped
        # Of a start that begins anew nobody knows how many messages there were.
        assert row.gone == (None if worst.verdict is Verdict.EMPTY and not lost else lost)
    assert costs(row) == (worst.verdict in (Verdict.LOSES, Verdict.REFUSES, Verdict.EMPTY))


def start(verdict: Verdict, **more: Any) -> dict[str, Any]:
    """Return a version of `next_start` of a document."""
    return {
        "verdict": verdict.value,
        "lost_messages": 0,
        "unreachable_messages": 0,
        "already_lost": [],
        "proofs": ["3 index files"],
        "refusal": {"remedy": "move checkpoint to a place outside of the store"},
        "cannot_tell": "the queues are in RocksDB",
        **more,
    }


def report(*codes: str, complete: bool = True, **more: Any) -> dict[str, Any]:
    """Return what a row takes of a report."""
    action = more.pop("action", Action.START)
    next_start = start(Verdict(more.pop("verdict", Verdict.SAFE)), **more)
    return {
        "verdict": "DAMAGED" if codes else "WHOLE",
        "complete": complete,
        "inputs": [{"size": 3}, {"size": 4}],
        "broker_version": {"assumed": "5.3.3", "why": []},
        "findings": [{"code": code, "severity": "error"} for code in codes],
        "next_start": {
            "verdict": next_start["verdict"],
            "versions": [next_start],
            "do_first": {"action": action, "text": action},
        },
    }


@pytest.mark.parametrize(
    ("found", "first"),
    [
        (report(), "nothing"),
        (report("CL-CRC-BODY", "CQ-MISSING"), "salvage: the log is damaged"),
        (report("CL-HOLE", action=Action.LOOK), Action.LOOK),
        (report("CL-TORN-TAIL"), "start it: only its last record is torn"),
        (report("CQ-MISSING", "IX-CHAIN"), "rebuild: the log is sound, what follows from it is not"),
        (report("ST-CONFIG"), "read its findings"),
        (report("ST-IO", complete=False), "make all of it readable"),
        (report("CL-CRC-BODY", verdict=Verdict.LOSES, action=Action.SALVAGE), Action.SALVAGE),
        (report(verdict=Verdict.LOSES, action=Action.REBUILD), Action.REBUILD),
        (report("CL-TORN-TAIL", verdict=Verdict.LOSES, action=Action.SAVE), Action.SAVE),
        (report("CQ-MISSING", verdict=Verdict.REFUSES, action=Action.REMEDY), Action.REMEDY),
        (report(verdict=Verdict.RUNS, action=Action.LEAVE), Action.LEAVE),
    ],
)
def test_what_to_do_first_follows_from_the_report(found: dict[str, Any], first: str) -> None:
    row = row_of_report("a", None, found)
    assert str(row.do_first).startswith(first)
    assert (row.size_bytes, row.writer, row.stopped) == (7, "5.3.3", None)


def test_another_program_is_named_as_the_writer() -> None:
    found = report() | {"broker_version": {"assumed": "5.5.0 or later", "why": ["odd", "rocketmq-rust: timer-v2"]}}
    assert row_of_report("a", None, found).writer == "rocketmq-rust"


def test_a_part_of_a_store_has_no_next_start() -> None:
    found = report() | {"next_start": None}
    assert row_of_report("a", None, found).next_start is None
    facts = overview(open_store([str(oracle.store("crash", "base-5.3.3-halt") / "commitlog")]))
    plain = {"next_start": None, "total_bytes": 7, "stop": {"state": "unknown"}}
    assert row_of_info("a", facts, plain).do_first == "verify"


def test_the_worst_start_is_first_and_of_equal_ones_that_with_more_messages() -> None:
    rows = [
        StoreRow(store="safe", next_start=Verdict.SAFE.value, messages_lost=0),
        StoreRow(store="few", next_start=Verdict.LOSES.value, messages_lost=2),
        StoreRow(store="unknown", error="gone"),
        StoreRow(store="many", next_start=Verdict.LOSES.value, messages_lost=1, unreachable_messages=9),
        StoreRow(store="empty", next_start=Verdict.EMPTY.value),
    ]
    order = [row.store for row in sorted(rows, key=badness, reverse=True)]
    assert order == ["empty", "many", "few", "safe", "unknown"]
