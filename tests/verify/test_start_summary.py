"""The next start in short, on the screen and in the report."""

from dataclasses import replace

from rmqinspect.forecast.outcome import Forecast, Losses, Outcome, Refusal, Rejected, Verdict
from rmqinspect.verify.start_summary import VERSION_FIELDS, start_document, start_lines, start_words

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
    ]
    assert start_lines(Forecast([SAFE]), None) == ["SAFE TO START with 5.5.0"]


def test_outcomes_that_differ_are_all_listed_behind_the_worst() -> None:
    found = Forecast([LOSES, SAFE])
    assert start_words(found) == "STARTS, LOSES DATA with 5.2.0 to 5.3.3: 145 records"
    assert start_lines(found, None) == [
        "STARTS, LOSES DATA at worst: the version is not certain",
        "STARTS, LOSES DATA with 5.2.0 to 5.3.3: 145 records; "
        "the log would end at 97 187: BODYCRC does not match the body; 3 segments, 1 index file deleted",
        "SAFE TO START with 5.5.0",
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
    found = Forecast([replace(LOSES, losses=Losses(), losses_counted=False)])
    assert start_words(found) == "STARTS, LOSES DATA with 5.2.0 to 5.3.3: records not counted"
    document = start_document(found, 217698)
    assert document is not None
    assert document["versions"][0]["lost_messages"] is document["versions"][0]["lost_by_topic"] is None


def test_the_object_of_the_report() -> None:
    document = start_document(Forecast([LOSES, SAFE], version_from="from content"), 217698)
    assert document is not None
    assert document["verdict"] == "STARTS, LOSES DATA"
    assert document["lines"] == start_lines(Forecast([LOSES, SAFE]), 217698)
    assert (document["log_end"], document["versions_from"]) == (217698, "from content")
    assert [tuple(version) for version in document["versions"]] == [VERSION_FIELDS] * 2
    first = document["versions"][0]
    assert (first["end_offset"], first["lost_messages"], first["starts"]) == (97187, 145, True)
    assert first["rejected"] == {
        "physical_offset": 97187,
        "rule": "body_crc",
        "file": "commitlog/65536",
        "position": 31651,
    }
    assert start_document(None, 5) is None
