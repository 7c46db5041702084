"""The next start in short, on the screen and in the report."""

import pytest
from msgspec.structs import replace

from rmqinspect.forecast.outcome import Forecast, GroupStart, Losses, Outcome, QueueOutcome, Refusal, Rejected, Verdict
from rmqinspect.forecast.words import LOOK_FOR
from rmqinspect.store.discover import open_store
from rmqinspect.verify.next_start import VERSION_FIELDS, start_document, start_lines, start_words
from rmqinspect.verify.result import VerifyOptions
from rmqinspect.verify.run import verify_and_forecast
from tests.support import oracle

LOSES = Outcome(
    "5.3.3",
    "5.2.0 to 5.3.3",
    clean_exit=False,
    verdict=Verdict.LOSES,
    scan_start=0,
    end_offset=97187,
    rejected=Rejected(97187, "body_crc", "commitlog/65536", 31651),
    deleted_segments=[131072, 196608, 262144],
    deleted_index_files=["3"],
    losses=Losses(messages=145, by_topic={"A": 100, "B": 45}),
)
SAFE = Outcome("5.5.0", "5.5.0", clean_exit=False, verdict=Verdict.SAFE, end_offset=217698)
REFUSES = Outcome(
    "5.3.3",
    "5.3.3",
    clean_exit=True,
    verdict=Verdict.REFUSES,
    refusal=Refusal("commitlog/0", "wrong_length", "commitlog/0 has 7 bytes", "move commitlog/0"),
)


def test_one_outcome() -> None:
    assert start_lines(Forecast([LOSES]), 217698) == [
        "STARTS, LOSES DATA with 5.2.0 to 5.3.3: 145 records",
        "the log would end at 97 187 of 217 698: BODYCRC does not match the body",
        "3 segments, 1 index file deleted",
        "do first: save what it loses: decode --lost-at-start",
    ]
    assert start_lines(Forecast([SAFE]), None) == ["STARTS, LOSES NOTHING MORE with 5.5.0"]
    conf = "index files of 100 slots and 250 entries, but broker.conf makes them 5000000 and 20000000: set …"
    assert start_lines(Forecast([replace(SAFE, conf_notes=[conf])]), None)[1:] == [conf]


def test_outcomes_that_differ_are_all_listed_behind_the_worst() -> None:
    found = Forecast([LOSES, SAFE])
    assert start_words(found) == "STARTS, LOSES DATA with 5.2.0 to 5.3.3: 145 records"
    assert start_lines(found, None) == [
        "STARTS, LOSES DATA at worst: the version is not certain",
        "STARTS, LOSES DATA with 5.2.0 to 5.3.3: 145 records; "
        "the log would end at 97 187: BODYCRC does not match the body; 3 segments, 1 index file deleted",
        "STARTS, LOSES NOTHING MORE with 5.5.0",
        "do first: save what it loses: decode --lost-at-start",
    ]


def test_what_all_releases_do_stands_there_once() -> None:
    newer = replace(LOSES, release="5.5.0", era="5.4.0 to 5.5.0", deleted_index_files=[])
    assert start_lines(Forecast([LOSES, newer]), None) == [
        "STARTS, LOSES DATA: the version is not certain",
        "STARTS, LOSES DATA with 5.2.0 to 5.3.3: 145 records; 3 segments, 1 index file deleted",
        "STARTS, LOSES DATA with 5.4.0 to 5.5.0: 145 records; 3 segments deleted",
        "the log would end at 97 187: BODYCRC does not match the body",
        "do first: save what it loses: decode --lost-at-start",
    ]


def test_a_release_that_cannot_read_the_records_of_a_newer_one() -> None:
    rejected = Rejected(42327, "v2", "commitlog/0", 42327)
    back = replace(LOSES, release="4.7.1", era="4.7.1", end_offset=42327, rejected=rejected, deleted_segments=[])
    line = "4.7.1 cannot read V2 records: the log would end at 42 327 of 310 743"
    assert line in start_lines(Forecast([back]), 310743)


def test_a_broker_that_does_not_start() -> None:
    assert start_lines(Forecast([REFUSES]), 0) == [
        "WILL NOT START with 5.3.3: commitlog/0",
        "commitlog/0 has 7 bytes",
        "remedy: move commitlog/0",
    ]


def test_what_was_not_counted_is_said() -> None:
    found = Forecast([replace(LOSES, losses=Losses(), groups=[], losses_counted=False, cuts_records=True)])
    assert start_words(found) == "STARTS, LOSES DATA with 5.2.0 to 5.3.3: records not counted"
    document = start_document(found, 217698)
    assert document is not None
    assert document.versions[0]["lost_messages"] is document.versions[0]["lost_by_topic"] is None
    assert document.verdict == document.versions[0]["verdict"] == "STARTS, LOSES DATA"


def test_an_uncounted_start_that_seems_safe_has_no_verdict() -> None:
    found = Forecast([replace(SAFE, losses_counted=False)])
    words = "STARTS with 5.5.0; what consumers lose by it was not counted"
    assert start_words(found) == words
    first = "do first: count it with forecast before any start: rmqinspect forecast"
    assert start_lines(found, None) == [words, f"{first} STORE"]
    assert start_lines(found, None, stores=["a b", "--base", "8"])[1:] == [f"{first} 'a b' --base 8"]
    document = start_document(found, None)
    assert document is not None
    assert document.verdict is document.versions[0]["verdict"] is None
    assert document.do_first is not None
    assert document.do_first.action == "find out"


def test_the_object_of_the_report() -> None:
    document = start_document(Forecast([LOSES, SAFE], version_from="from content"), 217698)
    assert document is not None
    assert document.verdict == "STARTS, LOSES DATA"
    assert document.lines == start_lines(Forecast([LOSES, SAFE]), 217698)
    assert (document.log_end, document.versions_from) == (217698, "from content")
    assert [tuple(version) for version in document.versions] == [VERSION_FIELDS] * 2
    first = document.versions[0]
    assert (first["end_offset"], first["lost_messages"], first["starts"]) == (97187, 145, True)
    assert first["rejected"] == {
        "physical_offset": 97187,
        "rule": "body_crc",
        "file": "commitlog/65536",
        "position": 31651,
    }
    assert start_document(None, 5) is None


def test_missing_units_that_come_back_and_those_that_do_not_are_told_apart() -> None:
    queue = QueueOutcome("TopicA", 0, 0, 0, 0, 225, added=225)
    healed = replace(SAFE, queues=[queue])
    missing = {"CQ-MISSING": 225}
    verdict = "STARTS, LOSES NOTHING MORE with 5.5.0"
    assert start_lines(Forecast([healed]), None, missing) == [
        verdict,
        "heals: 225 of 225 missing queue units come back",
    ]
    assert start_lines(Forecast([healed]), None) == [verdict, "heals: 225 queue units come back"]
    assert start_lines(Forecast([SAFE]), None, missing) == [
        verdict,
        "already lost: 225 records of the log have no queue unit, and get none",
    ]


def test_what_is_lost_already_stands_in_the_block() -> None:
    damaged = replace(SAFE, holes=[(65536, 131072)], units_without_record=1, deleted_segments=[8], empty_segments=[8])
    groups = [GroupStart("a", (("TopicA", 0),), 2, 30, 5), GroupStart("b", (("TopicA", 0),), 0, 1, 0)]
    counts = {"CL-CRC-BODY": 2, "CL-CRC-RECORD": 1, "CL-MAGIC": 1}
    assert start_lines(Forecast([replace(damaged, groups=groups)]), None, counts)[1:] == [
        "1 empty segment deleted",
        "groups: 2 groups may skip up to 31 new messages; 1 group may get 5 messages again; "
        "1 group had not consumed 2 lost messages",
        f"already lost: no segment holds 65 536 to 131 072 of the log: {LOOK_FOR}; "
        "at least 1 queue unit leads to no record; "
        "1 damaged place in the log; 2 records with a wrong CRC",
        f"do first: {LOOK_FOR}",
    ]


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("seg_missing_mid-4.9.7-c", f"already lost: no segment holds 131 072 to 196 608 of the log: {LOOK_FOR}"),
        ("cq_lost-4.9.7-h", "heals: 236 of 236 missing queue units come back"),
        (
            "cq_queue_lost-5.2.0-c",
            "consumers: 50 messages of the log (TopicA 50): no queue leads to them after this start",
        ),
        ("cq_last_file_lost-5.3.3-h", "heals: 11 of 11 missing queue units come back"),
        ("cq_tail_zero_all-5.3.3-c", "heals: 14 of 65 missing queue units come back"),
        ("cq_extra_beyond-5.4.0-c", "already lost: at least 1 queue unit leads to no record"),
        ("flip_body_old-5.5.0-c", "already lost: 1 record with a wrong CRC"),
        (
            "magic_third-5.5.0-h",
            "consumers: 7 messages of the log (TopicA 7): a pull jumps over them, behind damage",
        ),
    ],
)
def test_damage_that_a_start_does_not_make_worse_stands_beside_the_verdict(name: str, line: str) -> None:
    truth = oracle.truth("crash", name)
    store = open_store([str(oracle.store("crash", name))])
    found = verify_and_forecast(store, VerifyOptions(broker_version=truth["opened_by"]))
    document = start_document(found.next_start, found.log_end, found.findings.counts)
    assert document is not None
    loses = line.startswith("consumers") or name == "cq_tail_zero_all-5.3.3-c"  # units that no start makes again
    assert document.verdict == ("STARTS, LOSES DATA" if loses else "STARTS, LOSES NOTHING MORE")
    assert found.verdict == "DAMAGED"
    assert line in document.lines
    if line.startswith("heals"):  # the broker served so many units more than the files held
        loaded, served = (truth[state]["queues"] for state in ("after_load", "after_dispatch"))
        units = sum(
            len((old if new["units"] == "same_as_after_load" else new)["units"])
            for old, new in zip(loaded, served, strict=True)
        )
        assert line.startswith(f"heals: {units - found.units} of ")
