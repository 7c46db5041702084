"""What a look-up of `decode` prints, and with which exit status it ends."""

import json
import re
from pathlib import Path

import pytest

from rmqinspect.find import ways
from rmqinspect.store.reader import FileReader
from tests.support import oracle
from tests.support.command import Run, runner
from tests.support.samples import sample

decode = runner("decode", after=("-f", "jsonl", "--columns", "physical_offset,topic,queue_id,queue_offset", "-j", "1"))
show = runner("show")

HEALTHY = sample("healthy-5.5.0")
# Of the sample: a record with a key and both ids, the third of its log.
OFFSET, TOPIC, KEY = 2306, "TopicA", "K2"
OFFSET_ID, CLIENT_ID = "7F000001000055970000000000000902", "FD000000000000000000000000000002750C4E0E2F2A68E373DD0001"


def offsets(out: str) -> list[int]:
    """Return the physical offsets of the rows printed."""
    return [json.loads(line)["physical_offset"] for line in out.splitlines()]


@pytest.mark.parametrize(
    ("way", "question"),
    [
        ("by the offset in the id", ("--id", OFFSET_ID)),
        ("by the index", ("--id", CLIENT_ID.lower())),
        ("by the index", ("-k", KEY)),
        ("by the index", ("-k", KEY, "-t", TOPIC)),
        ("by the queue's units", ("-t", TOPIC, "--queue", "0", "--queue-offset", "0")),
    ],
)
def test_the_way_taken_is_said(decode: Run, way: str, question: tuple[str, ...]) -> None:
    status, out, err = decode(HEALTHY, *question)
    assert (status, offsets(out)) == (0, [OFFSET])
    assert re.search(rf": {way}(: 3 index files, 1 candidate; scanned, for they do not cover it: physical .*)?\n", err)
    scanned = decode(HEALTHY, *question, "--scan")
    assert scanned[:2] == (status, out)
    assert ": by a scan, as asked\n" in scanned[2]


@pytest.mark.parametrize("times", [(), ("--since", "2000-01-01", "--until", "2100-01-01")])
def test_a_topic_is_read_by_its_units_where_that_pays(
    decode: Run, monkeypatch: pytest.MonkeyPatch, times: tuple[str, ...]
) -> None:
    store = oracle.store("broker", "main-5.5.0")
    scanned = decode(store, "-t", "OrderLog", *times)
    assert "by the units" not in scanned[2]  # the log is small
    monkeypatch.setattr(ways, "SMALL_LOG", 0)
    monkeypatch.setattr(ways, "NEAR", 0)
    monkeypatch.setattr(FileReader, "bytes_read", 0)  # by the tests before
    status, out, err = decode(store, "-t", "OrderLog", *times)
    assert (status, out) == scanned[:2]
    assert out
    assert "MB: by the units of OrderLog\n" in err
    assert "by the units" not in decode(store, "-t", "VoucherOld", *times)[2]  # most of the log is behind its units


def test_an_id_of_another_place_finds_nothing(decode: Run) -> None:
    beyond = OFFSET_ID[:-8] + "7FFFFFFF"
    for question in (("--id", beyond), ("--id", beyond, "--scan")):
        status, out, err = decode(HEALTHY, *question)
        assert (status, out) == (5, "")
        assert err.count("no such record; searched: ") == 1


def test_no_hit_says_what_was_searched(decode: Run) -> None:
    status, out, err = decode(HEALTHY, "-t", TOPIC, "--queue", "0", "--queue-offset", "999")
    assert (status, out) == (5, "")
    assert "searched: queue 0 of TopicA, which has units from 0 to 54" in err


def test_a_key_that_looks_like_an_id_is_said_to(decode: Run) -> None:
    status, _, err = decode(HEALTHY, "-k", OFFSET_ID)
    assert status == 5
    assert f"{OFFSET_ID} looks like a message id: --id {OFFSET_ID}" in err


def test_a_record_in_a_gap_is_damage_but_a_gap_elsewhere_is_not(decode: Run) -> None:
    """A lost page of zeros took message 21 of a queue; 20 and 22 stand on both sides of it."""
    store = sample("zeroed-page-4.7.1")
    for way in ((), ("--scan",)):
        status, out, err = decode(store, "-t", "one", "--queue", "0", "--queue-offset", "21", *way)
        assert (status, out) == (3, "")
        assert "1 gap in the range read: 4 293 bytes without a record" in err
        assert "no such record" in err
        assert decode(store, "-t", "one", "--queue", "0", "--queue-offset", "20", *way)[0] == 0


def test_without_an_index_the_log_is_read(decode: Run, tmp_path: Path) -> None:
    loose = [str(path) for path in sorted((HEALTHY / "commitlog").iterdir())]
    status, out, err = decode(*loose, "-k", KEY)
    assert (status, offsets(out)) == (0, [OFFSET])
    assert ": by a scan, for there is no usable index: no index files; scanned: physical 0 to 262 144\n" in err


@pytest.mark.parametrize(
    "question",
    [
        ("--id", OFFSET_ID),
        ("--id", CLIENT_ID),
        ("-k", KEY),
        ("-k", KEY, "-t", TOPIC),
        ("-t", TOPIC, "--queue", "0", "--queue-offset", "0"),
    ],
)
def test_show_takes_every_name_of_a_record(show: Run, question: tuple[str, ...]) -> None:
    status, out, _ = show(HEALTHY, *question)
    assert status == 0
    assert "(0x902)" in out.splitlines()[0]


def test_show_names_the_records_that_share_a_key(show: Run) -> None:
    status, out, err = show(sample("zeroed-page-4.7.1"), "-k", "U13")
    assert (status, out) == (2, "")
    assert "Several records, found by the index; show one of them: --at " in err


@pytest.mark.parametrize(
    ("question", "status", "text"),
    [
        (("-k", "nothing"), 5, "no such record; searched: the whole log"),
        ((), 2, "Name one record: "),
        (("--at", "0", "-k", "K1"), 2, "Name one record: "),
        (("--queue-offset", "1", "-t", "TopicA"), 2, "needs all of -t, --queue and --queue-offset"),
    ],
)
def test_show_asks_for_one_record(show: Run, question: tuple[str, ...], status: int, text: str) -> None:
    answer = show(HEALTHY, *question)
    assert answer[:2] == (status, "")
    assert text in answer[2]


def test_a_record_behind_an_entry_head_is_found_by_its_own_offset(decode: Run) -> None:
    store = oracle.store("broker", "dledger-5.3.3")
    for asked in oracle.truth("broker", "dledger-5.3.3")["queries_by_offset"]:
        place = asked["physical_offset"]
        assert decode(store, "--offset", str(place))[:2] == (0, decode(store, "--id", asked["offset_msg_id"])[1])
        assert offsets(decode(store, "--offset", str(place))[1]) == [place]
