"""Why a search found nothing: each reason, by the evidence of stores that show it."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from rmqinspect.find import REASONS
from rmqinspect.find.near import NearKeys, distance
from tests.support import oracle
from tests.support.broken_disk import broken_disk
from tests.support.building import fill, lay, pad, write_segment
from tests.support.command import Run, runner
from tests.support.samples import sample

find = runner("find", after=("-j", "1", "-f", "json", "-q"))

FLIPPED, ZEROED = sample("flipped-bit-5.3.3"), sample("zeroed-page-4.7.1")
ZONE = ("--queue", "0", "--queue-offset")


def misses(answer: tuple[int, str, str]) -> list[tuple[str | None, str, str]]:
    """Return (reading, reason, text) of each miss."""
    found: list[dict[str, Any]] = json.loads(answer[1])["misses"]
    assert {miss["reason"] for miss in found} <= REASONS.keys()
    return [(miss["reading"], miss["reason"], miss["text"]) for miss in found]


def offset_id(place: int, host: str = "7F000001") -> str:
    """Return the offset msg id of a place in a store of the samples."""
    return f"{host}00005597{place:016X}"


@pytest.mark.parametrize(
    ("store", "question", "reason", "text"),
    [
        (
            "retention-4.9.7",
            ("--id", "7F0000010000597F0000000000000165"),
            "EXPIRED",
            "130.7 kB below the first segment",
        ),
        (
            "retention-4.9.7",
            ("--offset", "357"),
            "EXPIRED",
            "the log begins at 131 072, 2026-11-21T08:38:48.459Z",
        ),
        ("retention-4.9.7", ("-t", "OrderOld", *ZONE, "0"), "EXPIRED", "queue 0 of OrderOld has no message"),
        ("retention-4.9.7", ("--until", "2026-11-21"), "EXPIRED", "nothing is here that was stored before"),
        (
            "retention-4.9.7",
            ("-t", "BasketEvents", "-k", "K121"),
            "EXPIRED",
            "an index entry with its hash leads there",
        ),
        ("retention-4.9.7", ("--since", "2027-01-01"), "BEYOND THE END", "the last record was stored at"),
        ("retention-4.9.7", ("-t", "OrderOld", *ZONE, "99"), "BEYOND THE END", "its next is 20"),
        ("retention-4.9.7", ("-t", "PalletLog", "--queue", "9", "--queue-offset", "3"), "NOT THERE", "queues 0, 1, 2"),
        ("seg_missing_first-4.2.0-c", ("--offset", "357"), "BEFORE THE LOG", "below the first segment"),
        ("seg_missing_first-5.2.0-h", ("--offset", "357"), "BEFORE THE LOG", "below the first segment"),
        ("none-5.3.3-r", ("--offset", "357"), "EXPIRED", "below the first segment"),
        ("seg_missing_mid-4.9.7-c", ("--offset", "140000"), "DAMAGED RANGE", "missing: 131 072 to 196 608"),
        ("seg_missing_mid-4.9.7-c", ("-k", "nothing"), "DAMAGED RANGE", "1 gap of 65 536 bytes may have held it"),
        (
            "main-5.5.0",
            ("-t", "FleetLater", "-k", "user-9"),
            "FILTERED",
            "bound for FleetLater, is excluded by --topic",
        ),
        ("main-5.5.0", ("-k", "work-2", "--tag", "other"), "FILTERED", "is excluded by --tag"),
    ],
    ids=str,
)
def test_the_first_reason_that_holds_is_told(
    find: Run, store: str, question: tuple[str, ...], reason: str, text: str
) -> None:
    family: oracle.Family = "broker" if store in oracle.cases("broker") else "crash"
    answer = find(oracle.store(family, store), *question)
    assert answer[0] == (3 if reason == "DAMAGED RANGE" else 5)
    _, found, words = misses(answer)[0]
    assert (found, text in words) == (reason, True), words


@pytest.mark.parametrize(
    ("question", "told"),
    [
        (offset_id(230_000), [("offset msg id", "BEYOND THE END"), ("msg id", "NOT THERE")]),
        (offset_id(0, "C0A80101"), [("offset msg id", "OTHER BROKER"), ("msg id", "NOT THERE")]),
        (offset_id(16), [("offset msg id", "NOT THERE"), ("msg id", "NOT THERE")]),
        ("FD0000000000000000000000000000026EF74E0E2F2A68E338910FFF", [("msg id", "NOT THERE")]),
        ("no id at all", [("msg id", "NOT THERE")]),
    ],
)
def test_an_id_is_tried_as_both_kinds(find: Run, question: str, told: list[tuple[str, str]]) -> None:
    answer = find(FLIPPED, "--id", question)
    assert answer[0] == (3 if ("offset msg id", "BEYOND THE END") in told else 5)  # this broker gave the id
    assert [(reading, reason) for reading, reason, _ in misses(answer)] == told


def test_what_lies_in_a_gap_is_said(find: Run) -> None:
    """A lost page of zeros took message 21 of a queue, whose unit still leads there."""
    ((_, reason, text),) = misses(find(ZEROED, "-t", "one", *ZONE, "21"))
    assert reason == "DAMAGED RANGE"
    assert "its unit leads there: physical offset 208 874 lies in a record that is cut or damaged" in text
    assert misses(find(ZEROED, "--offset", "212992"))[0][1] == "DAMAGED RANGE"


def test_what_cannot_be_read_is_status_4(find: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with broken_disk(monkeypatch, lambda path: path.name.endswith("065536"), 8192, 16384):
        status, out, err = find(FLIPPED, "-k", "nothing")
        found = find(FLIPPED, "-k", "K95", "--no-life")
    assert status == 4
    assert err
    document = json.loads(out)
    assert (document["complete"], document["misses"][0]["reason"]) == (False, "UNREAD")
    assert document["stores"][0]["unread"]
    # It lies elsewhere, and the index leads there; more of that key may lie in what was not read.
    assert (found[0], len(json.loads(found[1])["rows"]), json.loads(found[1])["complete"]) == (4, 1, False)


def test_a_queue_that_cannot_be_read_is_searched_in_the_log(find: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    question = ("-t", "orders", "--queue", "1", "--queue-offset")
    with broken_disk(monkeypatch, lambda path: "consumequeue" in path.parts, 0, 1 << 20):
        assert find(FLIPPED, *question, "8", "--no-life")[0] == 0
        answer = find(FLIPPED, *question, "99")
    assert answer[0] == 4  # no record has that place, and whether the queue goes so far is not known
    ((_, reason, text),) = misses(answer)
    assert (reason, "nor could its units be read: " in text) == ("UNREAD", True)


def test_an_interrupted_document_is_whole(find: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(self: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("rmqinspect.find.finding.Finding.misses", interrupt)
    status, out, _ = find(FLIPPED, "-k", "K95")
    assert status == 130
    document = json.loads(out)
    assert (len(document["rows"]), document["complete"]) == (1, False)


def test_a_prepared_record_is_in_no_queue(find: Run, tmp_path: Path) -> None:
    half = {"queue_id": 3, "queue_offset": 0, "sys_flag": 4, "properties": {"KEYS": "K1"}}
    write_segment(tmp_path / "commitlog", pad(lay([{}, half, {}]), 4096))
    ((_, reason, text),) = misses(find(tmp_path, "-t", "TopicTest", "--queue", "3", "--queue-offset", "0"))
    assert (reason, "is prepared: such records get no queue unit" in text) == ("NOT IN A QUEUE", True)
    (life,) = json.loads(find(tmp_path, "-k", "K1")[1])["lives"]
    assert life["reach"]["reason"] == "NOT IN A QUEUE"


def test_a_hit_below_its_queue_is_out_of_reach(find: Run, tmp_path: Path) -> None:
    """The first file of a queue was lost: its messages are in the log, and no group can pull them."""
    store = oracle.copy("crash", "base-5.3.3-clean", tmp_path)
    folder = next(path for path in sorted((store / "consumequeue").glob("*/*")) if len(list(path.iterdir())) > 1)
    first, second = sorted(folder.iterdir())[:2]
    first.unlink()
    question = ("-t", folder.parent.name, "--queue", folder.name, "--queue-offset", "0")
    status, out, _ = find(store, *question)
    assert status == 0
    (life,) = json.loads(out)["lives"]
    assert life["reach"]["reason"] == "OUTSIDE THE GROUP'S REACH"
    assert f"begins at {int(second.name) // 20}" in life["reach"]["text"]


def test_files_without_their_neighbours_expire_nothing(find: Run) -> None:
    loose = oracle.store("broker", "retention-4.9.7") / "commitlog" / f"{196_608:020}"
    ((_, reason, text),) = misses(find(loose, "--offset", "100"))
    assert (reason, text) == (
        "NOT THERE",
        "physical offset 100 is not in the files given, which hold 196 608 to 262 144",
    )
    ((_, reason, text),) = misses(find(FLIPPED / "index", "-k", "K95"))
    assert (reason, text) == ("NOT THERE", "no commit log was given, so no record was searched")


def test_a_later_life_of_a_file_is_not_the_log(find: Run, tmp_path: Path) -> None:
    """Behind the blank record that ends a segment may lie older records."""
    log = fill(lay([{"body": b"new"}]), 4096, junk=lay([{"body": b"old"}], base=200)[: 4096 - 300])
    write_segment(tmp_path / "commitlog", log)
    ((_, reason, _),) = misses(find(tmp_path, "--offset", "2000"))
    assert reason in ("NOT THERE", "BEYOND THE END")


# --- what is near ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "key", "expected"),
    [
        ("K95", "k95", 0),
        ("K95", "K96", 1),
        ("K95", "K9", 1),
        ("order-7411", "order-4711", 2),
        ("order-4711-2", "order-4711", 3),
        ("K95", "K95", None),
        ("K95", "Z11", None),
        ("K95000", "K95", 3),
        ("K95", "K95000", None),
        ("A", "B", None),
        ("", "B", None),
    ],
)
def test_a_key_is_near_if_it_differs_little(text: str, key: str, expected: int | None) -> None:
    assert distance(text, key) == expected


def test_near_keys_are_the_nearest_of_all_records(find: Run) -> None:
    (miss,) = json.loads(find(FLIPPED, "-t", "orders", "-k", "K98")[1])["misses"]
    assert miss["near"][:2] == ["K97 (TopicA)", "K95 (orders)"]
    assert NearKeys("K98").texts(str) == []


def test_ids_of_the_same_process_and_similar_topics_are_near(find: Run) -> None:
    (miss,) = json.loads(find(FLIPPED, "--id", "FD0000000000000000000000000000026EF74E0E2F2A68E338910FFF")[1])["misses"]
    process = "FD0000000000000000000000000000026EF74E0E2F2A68E33891"
    assert miss["near"] == [
        f"{process}006C at 99 002",
        "FD0000000000000000000000000000026EF74E0E2F2A68E33892006D at 99 208",
    ]
    (miss,) = json.loads(find(FLIPPED, "-t", "order", "-k", "K95")[1])["misses"]
    assert (miss["reason"], miss["near"]) == ("FILTERED", [])
    (miss,) = json.loads(find(FLIPPED, "-t", "order")[1])["misses"]
    assert miss["near"][0] == "topic orders"


def test_what_is_something_else_is_said(find: Run) -> None:
    (miss,) = json.loads(find(FLIPPED, "--id", "K97")[1])["misses"]
    assert miss["instead"] == ["-k K97 finds record 96 253 (TopicA queue 0 offset 25)"]
    (miss,) = json.loads(find(FLIPPED, "-k", offset_id(0))[1])["misses"]
    assert miss["instead"] == [f"--id {offset_id(0)} finds record 0 (TopicA queue 0 offset 0)"]
    (miss,) = json.loads(find(FLIPPED, "-k", "K1 K2")[1])["misses"]
    assert miss["instead"] == ["a key holds no space, which stands between keys: -k K1 -k K2"]


@pytest.mark.parametrize("words", ["hosts", "keys", "hosts,keys"])
def test_redaction_holds_for_misses(find: Run, words: str) -> None:
    questions = ("--id", offset_id(0, "C0A80101")) if "hosts" in words else ("-k", "K98")
    status, out, _ = find(FLIPPED, *questions, "--redact", words)
    assert status == 5
    for secret in ("C0A80101", "192.168", "127.0.0.1", "7F0000") if "hosts" in words else ("K98", "K97"):
        assert secret not in out


def test_a_place_in_the_part_of_a_segment_that_is_cut_off(find: Run, tmp_path: Path) -> None:
    shutil.copytree(FLIPPED, tmp_path / "store")
    first = min((tmp_path / "store" / "commitlog").iterdir())
    os.truncate(first, 40_000)
    ((_, reason, text),) = misses(find(tmp_path / "store", "--offset", "50000"))
    assert reason == "DAMAGED RANGE"
    assert f"in the part of commitlog/{first.name} that is cut off, behind 40 000" in text
