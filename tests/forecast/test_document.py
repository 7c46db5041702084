"""The document of a forecast, and the other ways to start, on outcomes made by hand."""

import os
import shutil
from collections import Counter
from datetime import timedelta, timezone
from pathlib import Path

import pytest
from msgspec.structs import replace

from rmqinspect.broker.acknowledged import Acknowledged
from rmqinspect.broker.unread import Unread
from rmqinspect.forecast.document import document, listed_fields, starts
from rmqinspect.forecast.instead import other_ways, remedied, without_files
from rmqinspect.forecast.outcome import (
    NO_REMEDY,
    Alternative,
    Forecast,
    InReplica,
    LevelStart,
    Losses,
    Outcome,
    Remedy,
    SalvagePrice,
    SetBack,
    TimerStart,
    TransactionStart,
    Verdict,
)
from rmqinspect.forecast.versions import ForecastRequest, forecast
from rmqinspect.forecast.words import verdict_line
from rmqinspect.store.discover import open_store
from rmqinspect.store.reader import open_file
from tests.support.documents import fields
from tests.support.outcomes import LOSES, REFUSAL, REFUSES, SAFE, Told, after
from tests.support.samples import sample

SEGMENTS = [0, 65536, 131072, 196608, 262144]
_BY_NAME = ("instead[].lengths", "instead[].renamed", "instead[].settings")
_OF_REPLICA = ("replica.there_by_topic", "replica.missing_by_topic")
_FREE = ("lost_by_topic", "lost_bytes_by_topic", "decisions[].inputs", *_BY_NAME, *_OF_REPLICA)


def test_every_field_is_listed_and_has_its_type() -> None:
    ways = other_ways(LOSES, None, after(Told(SAFE, (SAFE,))))
    ways.append(Alternative("another", SAFE, Remedy(bits=(SetBack("commitlog/0", 7, 0x48, 0x68),))))
    refused = other_ways(REFUSES, None, after(Told(REFUSES)))
    types = {"text": str, "number": int, "boolean": bool, "object": dict, "null": type(None)}
    listed = {path: kind for path, kind, _ in listed_fields()}
    met = set()
    replica = InReplica("b", Counter({"TopicA": 140}), Counter({"TopicA": 5}))
    salvage = SalvagePrice("5.3.3", 0, 1, 200, 2, 0)
    behind = Acknowledged(100, 3, {}, 1000, 2000, ("3 queue units",), may_be_copy=True)
    loses = replace(
        LOSES,
        acknowledged=behind,
        delay_levels=[LevelStart(9, 500, 1, 1, 1, 0, 0, 0, 0)],
        timer=TimerStart(0, 2, 3, "2050-11-01T08:30:00.000Z", 7),
        transactions=TransactionStart(3, 2),
        unread=[Unread("", "old/commitlog", "commitlog", "storePathCommitLog", "2 segments", "without them")],
    )
    whole = Forecast([loses, SAFE], ways, replica=replica, salvage=salvage)
    for made in (whole, Forecast([REFUSES], refused, unread=["config"])):
        for path, value in fields(document(made), _FREE):
            if path.startswith(("versions[].", "decisions[].inputs.")):
                continue
            names = {path, f"{path}[]", f"{path}.*"} & listed.keys()
            assert len(names) == 1, path
            (name,) = names
            met.add(name)
            if name == path:
                assert isinstance(value, tuple(types[kind] for kind in listed[name].split(" or "))), path
    met |= {"versions[]", "run"}  # `run` is added where a document is written
    assert met >= {name for name in listed if not name.endswith(".*")}


def test_the_document_is_that_of_the_worst_outcome_and_holds_all() -> None:
    told = document(Forecast([LOSES, SAFE]), timezone(timedelta(hours=8)))
    assert list(told)[:5] == ["schema_version", "tool", "complete", "do_first", "verdict"]
    assert told["complete"] is True
    assert told["rejected"]["rule"] == "body_crc"
    assert told["first_lost_timestamp"].endswith("+08:00")
    assert [one["verdict"] for one in told["versions"]] == ["STARTS, LOSES DATA", "STARTS, LOSES NOTHING MORE"]
    assert "versions" not in document(Forecast([SAFE]))
    assert document(Forecast([SAFE], unread=["a file"]))["complete"] is False


def test_a_broker_that_does_not_start_has_no_end_of_the_log() -> None:
    told = document(Forecast([REFUSES]))
    assert (told["starts"], told["min_offset"], told["end_offset"]) == (False, None, None)
    assert told["refusal"]["remedy"] == REFUSAL.remedy
    assert document(Forecast([replace(REFUSES, verdict=Verdict.UNKNOWN)]))["starts"] is None


def test_the_verdict_names_the_releases_where_they_differ() -> None:
    assert verdict_line(Forecast([LOSES])) == "STARTS, LOSES DATA: 145 records, 31 new messages skipped by groups"
    assert verdict_line(Forecast([LOSES, SAFE])) == (
        "STARTS, LOSES DATA with 5.2.0 to 5.3.3: 145 records, 31 new messages skipped by groups"
    )
    assert verdict_line(Forecast([SAFE])) == "STARTS, LOSES NOTHING MORE"
    assert verdict_line(Forecast([REFUSES])) == "WILL NOT START: index/1x"


def test_a_refusal_hides_no_loss_of_other_releases() -> None:
    """Nothing is lost by a start that is refused: the verdict is that of the release that begins empty."""
    empty = replace(SAFE, era="4.9.2", verdict=Verdict.EMPTY, min_offset=-1, proofs=["2 segments"])
    both = Forecast([empty, REFUSES, SAFE])
    assert both.worst is empty
    assert verdict_line(both) == (
        "STARTS EMPTY with 4.9.2 (WILL NOT START with 5.1.4): without the log that 2 segments prove"
    )
    assert verdict_line(Forecast([REFUSES, LOSES])) == (
        "WILL NOT START with 5.1.4 (STARTS, LOSES DATA with 5.2.0 to 5.3.3): index/1x"
    )
    assert document(both)["verdict"] == "STARTS EMPTY"


def test_whether_a_broker_starts_where_one_runs_is_not_known() -> None:
    assert [starts(replace(SAFE, verdict=verdict)) for verdict in Verdict] == [True, True, False, True, None, None]


def test_other_ways_are_priced_and_the_best_comes_first() -> None:
    other = replace(LOSES, release="4.9.7", era="4.0.0 to 5.0.0", losses=Losses(254))
    again = replace(LOSES, release="5.3.2", era="5.2.0 to 5.3.2")
    ways = other_ways(LOSES, None, after(Told(replace(SAFE, end_offset=1), (other, again, SAFE))))
    assert [(way.way, way.is_better, way.outcome.clean_exit) for way in ways] == [
        ("the same broker without the file abort", True, True),
        ("broker 5.5.0", True, False),
        ("older broker 4.0.0 to 5.0.0", False, False),
    ]


def test_an_older_release_is_never_the_better_way() -> None:
    older = replace(SAFE, release="4.4.0", era="4.0.0 to 4.4.0")
    ways = other_ways(LOSES, None, after(Told(LOSES, (older,))))
    assert ("older broker 4.0.0 to 4.4.0", False) in [(way.way, way.is_better) for way in ways]


def test_files_that_a_start_refuses_are_moved_one_after_the_other() -> None:
    second = replace(REFUSES, refusal=REFUSAL._replace(file="config/topics.json"))

    def walks(remedy: Remedy) -> Told:
        return Told((REFUSES, second, SAFE)[len(remedy.moved)])

    ways = other_ways(REFUSES, None, walks)
    assert ways[0].moved == ("index/1x", "config/topics.json")
    assert ways[0].is_better
    stuck = other_ways(REFUSES, None, after(Told(REFUSES), REFUSES))
    assert [way.moved for way in stuck] == [()]
    kept = replace(REFUSES, refusal=REFUSAL._replace(moves=False))
    assert [way.moved for way in other_ways(kept, None, after(Told(kept)))] == [()]


def test_every_remedy_of_a_refusal_is_walked_and_the_cheapest_comes_first() -> None:
    refused = replace(REFUSES, refusal=REFUSAL._replace(moves=False, length=100))

    def walks(remedy: Remedy) -> Told:
        return Told(refused if remedy == NO_REMEDY else LOSES if remedy.lengths else SAFE)

    ways = other_ways(refused, None, walks)
    assert [(way.way, way.is_better) for way in ways][:2] == [
        ("the same broker with index/1x moved out of the store", True),
        ("the same broker with index/1x brought to 100 bytes", True),
    ]


def test_a_file_that_is_ignored_gets_the_remedy_of_the_releases_that_refuse_it() -> None:
    ignoring = replace(LOSES, release="4.4.0", era="4.4.0", ignored_files=["index/1x"])
    refused = replace(REFUSES, release="5.5.0", era="5.5.0", refusal=REFUSAL._replace(moves=False, length=100))
    plain = Told(ignoring, (replace(refused, clean_exit=ignoring.clean_exit),))
    assert other_ways(ignoring, None, after(plain))[0].way == "the same broker with index/1x brought to 100 bytes"


def test_a_remedy_that_costs_more_than_messages_comes_behind_one_that_does_not() -> None:
    refused = replace(REFUSES, refusal=REFUSAL._replace(length=100, costs="starts without its groups"))
    ways = other_ways(refused, None, after(Told(refused)))
    assert [way.remedy.costs for way in ways[:2]] == [(), ("starts without its groups",)]


@pytest.mark.parametrize("clean", [True, False])
def test_a_remedy_is_combined_with_the_other_exit_and_a_newer_release_until_nothing_is_lost(clean: bool) -> None:
    refused = replace(REFUSES, release="5.1.4", refusal=REFUSAL, clean_exit=clean)
    newest = replace(refused, release="5.5.0", era="5.5.0")

    class Walks(Told):
        def tell(self, release: str, clean: bool) -> Outcome:
            known = SAFE if release == "5.5.0" and self.outcome is LOSES else self.outcome
            return replace(known, release=release, era=release, clean_exit=clean)

    plain = Walks(refused, (newest,))
    ways = other_ways(refused, None, lambda remedy: plain if remedy == NO_REMEDY else Walks(LOSES))
    assert ways[0].way == "broker 5.5.0 with index/1x moved out of the store"
    assert (ways[0].outcome.verdict, ways[0].is_better) == (Verdict.SAFE, True)
    assert ways[1].way == "the same broker with index/1x moved out of the store"


def test_a_store_after_a_remedy_is_read_as_it_would_be_and_is_not_written(tmp_path: Path) -> None:
    root = tmp_path / "store"
    shutil.copytree(sample("flipped-bit-5.3.3"), root)
    first, last = (path.name for path in sorted((root / "commitlog").iterdir())[:: len(SEGMENTS) - 1])
    size = (root / "commitlog" / first).stat().st_size
    queue = root / "consumequeue" / "TopicA" / "0"
    os.truncate(root / "commitlog" / last, 100)
    (root / "commitlog" / first).rename(root / "commitlog" / "x.old")
    (queue / sorted(os.listdir(queue))[1]).rename(queue / "y")
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    store = open_store([str(root)])
    remedy = Remedy(
        lengths=((f"commitlog/{last}", size),),
        renamed=(
            ("commitlog/x.old", f"commitlog/{first}"),
            ("consumequeue/TopicA/0/y", f"consumequeue/TopicA/0/{400:020}"),
        ),
    )
    after = remedied(store, remedy)
    assert [segment.base for segment in after.segments] == SEGMENTS
    assert 400 in [file.base for file in after.queue_files if (file.topic, file.queue_id) == ("TopicA", 0)]
    with open_file(after.segments[-1]) as reader:
        assert reader.size == after.segments[-1].size == size
        assert reader.read(0, size) == (root / "commitlog" / last).read_bytes().ljust(size, b"\0")
        assert reader.read(size - 5, 10) == bytes(5)
        assert reader.next_allocated(200) == size
    with open_file(replace(after.segments[0], length=10)) as reader:
        assert reader.read(0, 100) == (root / "commitlog" / "x.old").read_bytes()[:10]
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before


def test_files_get_the_names_that_their_records_say(tmp_path: Path) -> None:
    root = tmp_path / "store"
    shutil.copytree(sample("flipped-bit-5.3.3"), root)
    (root / "commitlog" / f"{65536:020}").rename(root / "commitlog" / "x.old")
    found = forecast(open_store([str(root)]), ForecastRequest(release="5.3.3", instead=True))
    assert dict(found.instead[0].remedy.renamed) == {"commitlog/x.old": f"commitlog/{65536:020}"}
    queue = root / "consumequeue" / "TopicA" / "0"
    (root / "commitlog" / "x.old").rename(root / "commitlog" / f"{65536:020}")
    (queue / f"{400:020}").rename(queue / "y")
    found = forecast(open_store([str(root)]), ForecastRequest(release="5.3.3", instead=True))
    assert dict(found.instead[0].remedy.renamed) == {"consumequeue/TopicA/0/y": f"consumequeue/TopicA/0/{400:020}"}


def test_a_store_without_files_has_lost_them_everywhere() -> None:
    store = open_store([str(sample("flipped-bit-5.3.3"))])
    left = without_files(store, ["checkpoint", "consumequeue/TopicA", "commitlog/00000000000000000000"])
    assert left.checkpoint is None
    assert {file.topic for file in store.queue_files} - {file.topic for file in left.queue_files} == {"TopicA"}
    assert [segment.base for segment in left.segments] == [segment.base for segment in store.segments][1:]
    assert not {file.name for file in left.files} & {"checkpoint", "commitlog/00000000000000000000"}
