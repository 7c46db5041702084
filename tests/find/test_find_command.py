"""What `find` prints for hits and misses, in each format, and with which exit status it ends."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from rmqinspect.schemas.message import MAGIC_BLANK
from tests.broker.damages import set_field
from tests.support import oracle
from tests.support.command import Run, runner
from tests.support.samples import sample

find = runner("find", after=("-j", "1"))
decode = runner("decode", after=("-j", "1"))

FLIPPED = sample("flipped-bit-5.3.3")
HEALTHY = sample("healthy-5.5.0")
OFFSET, TOPIC, KEY = 2306, "TopicA", "K2"  # of the healthy sample: the third record of its log
OFFSET_ID, CLIENT_ID = "7F000001000055970000000000000902", "FD000000000000000000000000000002750C4E0E2F2A68E373DD0001"


def document(answer: tuple[int, str, str]) -> dict[str, Any]:
    """Return the JSON document that was printed."""
    found: dict[str, Any] = json.loads(answer[1])
    return found


@pytest.mark.parametrize(
    ("question", "way"),
    [
        (("--id", OFFSET_ID), "by the offset in the id"),
        (("--id", CLIENT_ID.lower()), "by the index"),
        (("-k", KEY), "by the index"),
        (("-t", TOPIC, "--queue", "0", "--queue-offset", "0"), "by the queue's units"),
        (("--offset", str(OFFSET)), "by a scan"),
        (("-k", KEY, "--scan"), "by a scan"),
    ],
    ids=str,
)
def test_a_hit_is_a_row_and_the_way_is_said(find: Run, question: tuple[str, ...], way: str) -> None:
    status, out, err = find(HEALTHY, *question)
    assert status == 0
    assert out.splitlines()[1].split()[:4] == [str(OFFSET), TOPIC, "0", "0"]
    assert err.startswith(way)


@pytest.mark.parametrize("format_", ["jsonl", "csv", "parquet", "arrow"])
def test_rows_are_those_of_decode(find: Run, decode: Run, tmp_path: Path, format_: str) -> None:
    written = []
    for number, run in enumerate((find, decode)):
        file = tmp_path / f"{number}.{format_}"
        assert run(FLIPPED, "-t", "orders", "-f", format_, "-o", file)[0] == 0
        written.append(pq.read_table(file) if format_ == "parquet" else file.read_bytes())
    assert written[0] == written[1]


def test_commas_join_the_ids_of_a_batch(find: Run) -> None:
    answer = find(HEALTHY, "--id", f"{OFFSET_ID},{CLIENT_ID}", "-f", "json")
    assert answer[0] == 0
    assert [row["physical_offset"] for row in document(answer)["rows"]] == [OFFSET]
    assert f"{OFFSET_ID}: found as offset msg id" in answer[2]
    assert f"{CLIENT_ID}: found as msg id" in answer[2]


def test_several_stores_give_one_answer(find: Run) -> None:
    """A message of one broker of a cluster: the row says where, each store says how it was searched."""
    found = document(find(FLIPPED.parent, HEALTHY.parent, "--id", CLIENT_ID, "-f", "json"))
    assert [row["store"] for row in found["rows"]] == [HEALTHY.parent.name]
    assert [(one["name"], one["hits"], one["complete"]) for one in found["stores"]] == [
        (FLIPPED.parent.name, 0, True),
        (HEALTHY.parent.name, 1, True),
    ]
    assert found["misses"] == []
    status, out, err = find(FLIPPED.parent, HEALTHY.parent, "--id", CLIENT_ID)
    assert (status, out.split()[0]) == (0, "store")
    assert f"{HEALTHY.parent.name}: by the index: " in err


@pytest.mark.parametrize(
    "question", [("--body-contains", "nowhere"), ("--body-bytes", "00ff00ff"), ("--tag", "nowhere")]
)
def test_a_miss_by_bytes_tells_of_all_records(find: Run, question: tuple[str, ...]) -> None:
    """No row is made of most records: they are counted, and a damaged body may have lost what was asked for."""
    status, out, err = find(FLIPPED, *question)
    assert (status, err) == (5, "by a scan; 263 records read\n")
    said = " ".join(out.split())
    assert "263 records, 2026-11-21T08:48:39.819Z to 2026-11-21T08:48:46.708Z; complete" in said
    assert "1 record with status body_crc" in said


def test_stores_of_one_name_are_named_apart(find: Run) -> None:
    for given, names in (
        ((FLIPPED, HEALTHY), [f"{path.parent.name}/store" for path in (FLIPPED, HEALTHY)]),
        ((f"a={FLIPPED}", f"b={HEALTHY}"), ["a", "b"]),
    ):
        found = document(find(*given, "-k", "K95", "-f", "json"))
        assert [one["name"] for one in found["stores"]] == names
    status, _, err = find(f"a={FLIPPED}", f"a={HEALTHY}", "-k", "K95")
    assert status == 2
    assert "Give NAME=STORE" in err


def test_a_miss_is_explained_for_each_store(find: Run) -> None:
    status, out, _ = find(FLIPPED.parent, HEALTHY.parent, "-k", "nothing")
    assert status == 5
    assert [line.split()[0] for line in out.splitlines() if line[0] != " "] == [
        "store",
        "answer",
        "NOT",
        "searched",
    ] * 2


def test_one_question_of_several_without_an_answer_is_status_5(find: Run) -> None:
    status, out, _ = find(HEALTHY, "-k", KEY, "-k", "nothing")
    assert status == 5
    assert "answer          -k nothing: It is not in this log, all of which was read.\n" in out
    assert "NOT THERE       -k nothing: no record has the key nothing\n" in out
    assert f"{OFFSET}  {TOPIC}" in out


def test_a_damaged_hit_is_status_3_unless_it_may_not_fail(find: Run) -> None:
    assert find(FLIPPED, "-k", "B98_0")[0] == 3
    assert find(FLIPPED, "-k", "B98_0", "--fail-on", "never")[0] == 0


def test_a_limit_says_that_it_cuts_and_explains_nothing(find: Run) -> None:
    status, out, err = find(FLIPPED, "-k", "nothing", "-k", "K95", "-n", "1", "--scan", "--no-life")
    assert (status, len(out.splitlines())) == (0, 2)
    assert "shown 1, more may exist (-n 1)" in err


def test_misses_of_row_formats_go_to_stderr(find: Run) -> None:
    status, out, err = find(FLIPPED, "-k", "nothing", "-f", "jsonl", "-q")
    assert (status, out) == (5, "")
    assert err.startswith("answer          It is not in this log, all of which was read; 1 record of it is damaged.\n")
    assert "\nNOT THERE       no record has the key nothing\n" in err


def test_fifty_six_digits_are_an_id_of_ipv6(find: Run) -> None:
    """The store of a broker with clients of IPv6: ids of both kinds."""
    store = oracle.store("broker", "main-5.5.0")
    sent = [one for one in oracle.truth("broker", "main-5.5.0")["sent"] if len(one.get("offset_msg_id") or "") == 56]
    assert sent
    for one in sent[:2]:
        for text in (one["msg_id"], one["offset_msg_id"]):
            assert find(store, "--id", text, "-f", "jsonl")[0] == 0


def test_a_record_with_the_magic_of_a_blank_one_is_damage_and_no_filler(find: Run, tmp_path: Path) -> None:
    store = oracle.copy("crash", "base-5.5.0-clean", tmp_path)
    set_field(store, segment=-1, record=7, field="magic", value=f"={MAGIC_BLANK}")
    for question in (("--offset", "201489"), ("-t", "TopicA", "--queue", "0", "--queue-offset", "44")):
        said = "".join(find(store, *question)[1:])
        assert "DAMAGED RANGE" in said
        assert "blank" not in said
