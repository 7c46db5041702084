"""What stands first on a page, for every verdict of a start: the sentence, and what to do now."""

from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from rmqinspect.document import as_object
from rmqinspect.forecast.advice import Action
from rmqinspect.forecast.document import document
from rmqinspect.forecast.outcome import Verdict
from rmqinspect.forecast.versions import ForecastRequest, forecast
from rmqinspect.forecast.words import LOOK_FOR
from rmqinspect.page.story import Story, tell
from rmqinspect.store.discover import open_store
from rmqinspect.verify.report import report_of
from rmqinspect.verify.result import VerifyOptions
from rmqinspect.verify.run import verify
from tests.support.samples import sample


@pytest.fixture(scope="module")
def whole() -> dict[str, Any]:
    """The documents of a store without damage."""
    store = open_store([str(sample("healthy-4.9.7"))])
    report = report_of(
        verify(replace(store, words=("/mnt/store",)), VerifyOptions()), "/mnt/store", started=datetime.now(UTC)
    )
    told = document(forecast(store, ForecastRequest()))
    return {"store": "store", "from_report": False, "report": as_object(report), "forecast": told, "unread": []}


def story(whole: dict[str, Any], report: dict[str, Any] | None = None, **start: Any) -> Story:
    return tell({**whole, "report": whole["report"] | (report or {}), "forecast": whole["forecast"] | start}, UTC)


def steps(told: Story) -> str:
    return " ".join(f"{step.text} {step.command or ''}" for step in told.steps)


def test_a_whole_store_may_be_started(whole: dict[str, Any]) -> None:
    told = story(whole)
    assert (told.tone, told.start) == ("good", "A broker that is started now loses nothing.")
    assert steps(told).strip() == "The broker may be started."


def test_missing_segments_are_looked_for_first(whole: dict[str, Any]) -> None:
    (first,) = story(whole, do_first={"action": Action.LOOK, "text": LOOK_FOR}).steps
    assert first.text == "Look for the missing segments before a broker is started."


def test_the_cheapest_choice_comes_before_the_others(whole: dict[str, Any]) -> None:
    told = story(
        whole,
        verdict=Verdict.LOSES.value,
        unreachable_messages=3041,
        unreachable_by_topic={"orders": 3041},
        do_first={"action": Action.REBUILD, "text": "rebuild it before any start: loses nothing"},
        instead=[
            {"way": way, "better": True, "lost_messages": 0, "loses": "loses nothing"} for way in ("rebuild", "salvage")
        ],
    )
    said = steps(told)
    assert "Rebuild it before any start: loses nothing. rmqinspect rebuild /mnt/store -o NEW" in said
    assert said.index("Rebuild it") < said.index(
        "Other choices that cost less than this start: salvage (loses nothing)."
    )
    assert "may be started" not in said
    (whose,) = (answer.sentences for answer in told.answers if answer.question == "Whose messages?")
    assert "orders" in whose[0]


def test_acknowledged_messages_behind_the_end_are_told(whole: dict[str, Any]) -> None:
    words = "acknowledged messages of the 12.4 s behind its last record, how many is not known, are not in the log"
    told = story(whole, acknowledged={"words": words}, do_first={"action": Action.LOOK, "text": "look on a replica"})
    (lost,) = (answer.sentences for answer in told.answers if answer.question == "What is lost?")
    assert lost == [f"Already lost, and no start brings it back: {words}."]
    assert steps(told).strip() == "Look on a replica."


def test_where_releases_differ_the_worst_one_says_why(whole: dict[str, Any]) -> None:
    lines = [f"{Verdict.LOSES} at worst", f"{Verdict.SAFE} with 1", f"{Verdict.LOSES} with 2"]
    told = story(whole, {"next_start": {"lines": lines}}, verdict=Verdict.LOSES.value, lost_messages=1)
    why = next(answer for answer in told.answers if answer.question == "Why?")
    assert why.sentences[0] == f"{Verdict.LOSES} with 2."


def test_a_start_that_loses_something_comes_last(whole: dict[str, Any]) -> None:
    told = story(
        whole,
        verdict=Verdict.LOSES.value,
        lost_messages=1200,
        lost_by_topic={"b": 200, "a": 1000},
        unreachable_messages=3,
        save="rmqinspect decode …",
        groups=[{"group": "g", "unconsumed": 7, "skips": 2, "again": 0, "queues": []}],
    )
    assert told.tone == "bad"
    start = told.start.replace("\N{NO-BREAK SPACE}", " ")
    assert start == (
        "A broker that is started now loses 1 200 messages of 2 topics for good and leaves 3 messages where no consumer"
        " gets them."
    )
    whose = next(answer for answer in told.answers if answer.question == "Whose messages?")
    assert [one.replace("\N{NO-BREAK SPACE}", " ") for one in whose.sentences] == [
        "Of the topics a (1 000), b (200).",
        "Consumer groups that had not consumed them: g (7).",
        "After that start these groups skip new messages, at most so many: g (2).",
    ]
    assert steps(told).startswith("Do not start the broker yet")
    assert "cp -a --sparse=always /mnt/store COPY" in steps(told)
    assert "rmqinspect decode …" in steps(told)


def test_a_start_that_begins_empty(whole: dict[str, Any]) -> None:
    told = story(whole, verdict=Verdict.EMPTY.value, proofs=["3 index files", "the checkpoint"])
    assert "begins empty" in told.start
    assert "Find what is missing" in steps(told)
    assert any("3 index files, the checkpoint" in one for answer in told.answers for one in answer.sentences)


def test_a_broker_that_does_not_start(whole: dict[str, Any]) -> None:
    refusal = {"file": "config/topics.json", "rule": "x", "why": "is no JSON", "remedy": "take the copy"}
    told = story(whole, verdict=Verdict.REFUSES.value, refusal=refusal)
    assert told.start == "A broker does not start on this store: config/topics.json is in its way."
    assert "What makes it start: take the copy." in steps(told)
    assert any("config/topics.json: is no JSON." in answer.sentences for answer in told.answers)


def test_a_broker_that_runs_and_one_of_which_nothing_can_be_told(whole: dict[str, Any]) -> None:
    told = story(whole, verdict=Verdict.RUNS.value, cannot_tell="a broker runs on this store")
    assert told.tone == "warn"
    assert told.start == "A broker runs on this store now."
    assert "second broker" in steps(told)
    told = story(whole, verdict=Verdict.UNKNOWN.value, cannot_tell="queues were not read")
    assert "cannot be told: queues were not read." in told.start
    assert "Do not start the broker before this is known." in steps(told)


def test_a_remote_store_is_not_copied_with_cp(whole: dict[str, Any]) -> None:
    run = whole["report"]["run"] | {"store": "s3://bucket/store"}
    told = story(whole, {"run": run}, verdict=Verdict.LOSES.value, lost_messages=1, lost_by_topic={"a": 1})
    assert "cp -a" not in steps(told)


def test_what_was_not_read_is_not_called_whole(whole: dict[str, Any]) -> None:
    told = story(whole, {"complete": False, "unread": ["x"]})
    assert told.tone == "warn"
    assert told.store == "Not all could be read. What was read shows no damage."
    assert "Make all of the store readable" in steps(told)
    assert story(whole, {"warnings": 2}).store.startswith(
        "Nothing that is here is damaged, but something is suspicious"
    )
    assert story(whole, {"given": "queue files"}).store.startswith("What was given of a store is whole")
