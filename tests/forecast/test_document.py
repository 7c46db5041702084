"""The document of a forecast, and the other ways to start, on outcomes made by hand."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta, timezone

from rmqinspect.forecast.document import document, listed_fields
from rmqinspect.forecast.instead import Tell, other_ways, without_files
from rmqinspect.forecast.outcome import Forecast, Losses, Verdict
from rmqinspect.forecast.words import verdict_line
from rmqinspect.store.discover import open_store
from tests.support.documents import fields
from tests.support.outcomes import LOSES, REFUSAL, REFUSES, SAFE, told_of
from tests.support.samples import sample

_FREE = ("lost_by_topic", "lost_bytes_by_topic", "decisions[].inputs")


def test_every_field_is_listed_and_has_its_type() -> None:
    ways = other_ways(LOSES, told_of(SAFE), lambda: [SAFE], lambda _: told_of(SAFE))
    refused = other_ways(REFUSES, told_of(REFUSES), list, lambda _: told_of(SAFE))
    types = {"text": str, "number": int, "boolean": bool, "object": dict, "null": type(None)}
    listed = {path: kind for path, kind, _ in listed_fields()}
    met = set()
    for forecast in (Forecast([LOSES, SAFE], ways), Forecast([REFUSES], refused, unread=["config"])):
        for path, value in fields(document(forecast), _FREE):
            if path.startswith(("versions[].", "decisions[].inputs.")):
                continue
            names = {path, f"{path}[]", f"{path}.*"} & listed.keys()
            assert len(names) == 1, path
            (name,) = names
            met.add(name)
            if name == path:
                assert isinstance(value, tuple(types[kind] for kind in listed[name].split(", "))), path
    assert met | {"versions[]"} >= {name for name in listed if not name.endswith(".*")}


def test_the_document_is_that_of_the_worst_outcome_and_holds_all() -> None:
    told = document(Forecast([LOSES, SAFE]), timezone(timedelta(hours=8)))
    assert list(told)[:4] == ["schema_version", "tool", "complete", "verdict"]
    assert told["complete"] is True
    assert told["rejected"]["rule"] == "body_crc"
    assert told["first_lost_timestamp"].endswith("+08:00")
    assert [one["verdict"] for one in told["versions"]] == ["STARTS, LOSES DATA", "SAFE TO START"]
    assert "versions" not in document(Forecast([SAFE]))
    assert document(Forecast([SAFE], unread=["a file"]))["complete"] is False


def test_a_broker_that_does_not_start_has_no_end_of_the_log() -> None:
    told = document(Forecast([REFUSES]))
    assert (told["starts"], told["min_offset"], told["end_offset"]) == (False, None, None)
    assert told["refusal"]["remedy"] == REFUSAL.remedy
    assert document(Forecast([replace(REFUSES, verdict=Verdict.UNKNOWN)]))["starts"] is None


def test_the_verdict_names_the_releases_where_they_differ() -> None:
    assert verdict_line(Forecast([LOSES])) == "STARTS, LOSES DATA: 145 records"
    assert verdict_line(Forecast([LOSES, SAFE])) == "STARTS, LOSES DATA with 5.2.0 to 5.3.3: 145 records"
    assert verdict_line(Forecast([SAFE])) == "SAFE TO START"
    assert verdict_line(Forecast([REFUSES])) == "WILL NOT START: index/1x"


def test_other_ways_are_priced_and_the_best_comes_first() -> None:
    other = replace(LOSES, release="4.9.7", era="4.0.0 to 5.0.0", losses=Losses(254))
    again = replace(LOSES, release="5.3.2", era="5.2.0 to 5.3.2")
    ways = other_ways(
        LOSES, told_of(replace(SAFE, end_offset=1)), lambda: [other, again, SAFE], lambda _: told_of(SAFE)
    )
    assert [(way.way, way.is_better, way.outcome.clean_exit) for way in ways] == [
        ("the same broker without the file abort", True, True),
        ("broker 5.5.0", True, False),
        ("older broker 4.0.0 to 5.0.0", False, False),
    ]


def test_an_older_release_is_never_the_better_way() -> None:
    older = replace(SAFE, release="4.4.0", era="4.0.0 to 4.4.0")
    ways = other_ways(LOSES, told_of(LOSES), lambda: [older], lambda _: told_of(LOSES))
    assert ("older broker 4.0.0 to 4.4.0", False) in [(way.way, way.is_better) for way in ways]


def test_files_that_a_start_refuses_are_moved_one_after_the_other() -> None:
    second = replace(REFUSES, refusal=REFUSAL._replace(file="config/topics.json"))

    def without(moved: Sequence[str]) -> Tell:
        return told_of(second if len(moved) == 1 else SAFE)

    ways = other_ways(REFUSES, told_of(REFUSES), list, without)
    assert ways[0].moved == ("index/1x", "config/topics.json")
    assert ways[0].is_better
    stuck = other_ways(REFUSES, told_of(REFUSES), list, lambda _: told_of(REFUSES))
    assert [way.moved for way in stuck] == [()]
    kept = replace(REFUSES, refusal=REFUSAL._replace(moves=False))
    assert [way.moved for way in other_ways(kept, told_of(kept), list, lambda _: told_of(SAFE))] == [()]


def test_a_store_without_files_has_lost_them_everywhere() -> None:
    store = open_store([str(sample("flipped-bit-5.3.3"))])
    left = without_files(store, ["checkpoint", "consumequeue/TopicA", "commitlog/00000000000000000000"])
    assert left.checkpoint is None
    assert {file.topic for file in store.queue_files} - {file.topic for file in left.queue_files} == {"TopicA"}
    assert [segment.base for segment in left.segments] == [segment.base for segment in store.segments][1:]
    assert not {file.name for file in left.files} & {"checkpoint", "commitlog/00000000000000000000"}
