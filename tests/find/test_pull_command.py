"""`find --pull` and `find --offset-by-time`: what is printed, and with which exit status."""

import json
from pathlib import Path
from typing import Any

import pytest

from rmqinspect.cli import ExitStatus
from rmqinspect.codec.java import java_string_hash
from tests.support import oracle
from tests.support.command import Run, runner
from tests.support.outcome_stores import outcome_store
from tests.support.samples import sample
from tests.support.whole_stores import WholeStore

run = runner()
STORE = str(sample("flipped-bit-5.3.3"))


def document(run: Run, *arguments: str) -> dict[str, Any]:
    status, out, err = run("find", *arguments, "-f", "json")
    assert status == ExitStatus.DONE, err
    parsed: dict[str, Any] = json.loads(out)
    assert parsed["complete"] is True
    return parsed


def test_messages_that_a_consumer_gets(run: Run) -> None:
    found = document(run, STORE, "--pull", "orders", "1", "0", "-n", "4", "--broker-version", "5.3.3")
    assert found["asked"] == {"topic": "orders", "queue_id": 1, "offset": 0, "count": 4, "tags": []}
    [row] = found["rows"]
    assert (row["status"], row["next_offset"], row["releases"]) == ("FOUND", 4, ["5.3.3"])
    assert [message["queue_offset"] for message in row["messages"]] == [0, 1, 2, 3]
    assert row["messages"][0] == {
        "queue_offset": 0,
        "physical_offset": 525,
        "size": 200,
        "store_timestamp": "2026-11-21T08:48:39.908Z",
        "tags": "TagA",
        "keys": ["K2"],
        "status": "ok",
        "client": "keeps",
    }


def test_another_tag_with_the_same_hash(run: Run) -> None:
    assert java_string_hash("UBgA") == java_string_hash("TagA")
    [row] = document(run, STORE, "--pull", "orders", "1", "0", "--tag", "UBgA || TagB")["rows"]
    clients = {(message["tags"], message["client"]) for message in row["messages"]}
    assert clients == {("TagA", "drops"), ("TagB", "keeps")}
    dropped = sum(message["client"] == "drops" for message in row["messages"])
    assert f"drops {dropped} of them: another tag with the same hash" in row["then"]
    assert row["filtered"] + len(row["messages"]) == row["next_offset"]
    assert document(run, STORE, "--pull", "orders", "1", "0", "--tag", "UBgA", "--tag", "TagB")["rows"] == [row]


def test_releases_that_answer_differently_have_an_answer_each(run: Run) -> None:
    root = str(oracle.store("broker", "retention-4.9.7"))
    rows = document(run, root, "--pull", "ParcelOne", "0", "400")["rows"]
    assert [(row["releases"][0], row["releases"][-1], row["next_offset"]) for row in rows] == [
        ("4.9.1", "4.9.3", 0),
        ("4.9.4", "4.9.8", 330),
    ]
    assert "consumes 330 messages there again" in rows[0]["then"]
    _, screen, _ = run("find", root, "--pull", "ParcelOne", "0", "400")
    assert "OFFSET_OVERFLOW_BADLY, next offset 0  (4.9.1 to 4.9.3)" in screen
    assert "OFFSET_OVERFLOW_BADLY, next offset 330  (4.9.4 to 4.9.8)" in screen


@pytest.mark.parametrize(
    ("queue", "offset", "answer", "then"),
    [
        ("PalletLog", 9, "OFFSET_TOO_SMALL, next offset 28", "19 offsets below it cannot be consumed any more"),
        ("PalletLog", 52, "OFFSET_OVERFLOW_ONE, next offset 52", "until a message arrives"),
        ("OrderOld", 1, "MESSAGE_WAS_REMOVING, next offset 20", "asks again at once, from offset 20"),
        ("NoSuchTopic", 3, "REFUSED, TOPIC_NOT_EXIST", "to have it answer: mqadmin updateTopic -t NoSuchTopic"),
    ],
)
def test_why_and_what_then(run: Run, queue: str, offset: int, answer: str, then: str) -> None:
    root = str(oracle.store("broker", "retention-4.9.7"))
    status, out, _ = run("find", root, "--pull", queue, "0", str(offset), "--broker-version", "4.9.7")
    printed = " ".join(out.split())
    assert answer in printed
    assert then in printed
    exists = queue != "NoSuchTopic"
    assert status == (ExitStatus.DONE if exists else ExitStatus.NOTHING_FOUND)
    assert exists != ("no such queue in the store" in printed)
    assert exists != ("topic[NoSuchTopic] not exist, apply first please!" in printed)


def test_topics_that_a_broker_serves_otherwise(run: Run, tmp_path: Path) -> None:
    topics = {"TopicTest": {"readQueueNums": 2, "perm": 6, "attributes": {"cleanup.policy": "COMPACTION"}}}
    store = WholeStore([{}, {"queue_id": 1}], configs={"topics.json": {"topicConfigTable": topics}})
    root = store.write(tmp_path / "S")
    found = document(run, str(root), "--pull", "TopicTest", "1", "0")
    assert found["rows"][0]["status"] == "FOUND"
    assert [note["text"].split(":")[0] for note in found["notes"]] == ["the topic has cleanup policy COMPACTION"]


def test_several_stores_and_redaction(run: Run) -> None:
    stores = f"a={STORE}", f"b={sample('healthy-4.9.7')}"
    rows = document(run, *stores, "--pull", "orders", "0", "500")["rows"]
    assert list(dict.fromkeys(row["store"] for row in rows)) == ["a", "b"]
    _, screen, _ = run("find", *stores, "--pull", "orders", "0", "500")
    assert [line for line in screen.splitlines() if line.startswith("store")] == ["store         a", "store         b"]
    found = document(run, STORE, "--pull", "orders", "1", "0", "-n", "1", "--redact", "keys,tags")
    assert found["redacted"] == ["keys", "tags"]
    assert "K2" not in json.dumps(found)


def test_a_damaged_record_is_given_all_the_same(run: Run) -> None:
    status, out, _ = run("find", STORE, "--pull", "BatchTopic", "1", "12", "-f", "json")
    assert status == ExitStatus.DAMAGE
    statuses = [message["status"] for message in json.loads(out)["rows"][0]["messages"]]
    assert statuses.count("body_crc") == 1


# --- what cannot be read ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("queue", "release", "code", "remark", "cure"),
    [
        (
            ("FleetEvents", "3"),
            "5.3.3",
            "INVALID_PARAMETER",
            "queueId[3] is illegal, topic:[FleetEvents] topicConfig.readQueueNums:[2]",
            "mqadmin updateTopic -t FleetEvents -r 4 -w 2 -p 6",
        ),
        (
            ("FleetEvents", "2"),
            "4.9.7",
            "SYSTEM_ERROR",
            "queueId[2] is illegal, topic:[FleetEvents] topicConfig.readQueueNums:[2]",
            "mqadmin updateTopic -t FleetEvents -r 3 -w 2 -p 6",
        ),
        (
            ("CourierLog", "0"),
            "5.3.3",
            "NO_PERMISSION",
            "the topic[CourierLog] pulling message is forbidden",
            "mqadmin updateTopic -t CourierLog -r 3 -w 3 -p 6",
        ),
        # Without permission the broker does not even look at the queue id.
        (
            ("CourierLog", "9"),
            "5.3.3",
            "NO_PERMISSION",
            "the topic[CourierLog] pulling message is forbidden",
            "mqadmin updateTopic -t CourierLog -r 10 -w 3 -p 6",
        ),
    ],
)
def test_the_refusal_is_the_answer(
    run: Run, queue: tuple[str, str], release: str, code: str, remark: str, cure: str
) -> None:
    ask = "--pull", *queue, "4", "--broker-version", release, "-f", "json"
    status, out, _ = run("find", str(outcome_store("read-queues")), *ask)
    assert status == ExitStatus.NOTHING_FOUND
    [row] = json.loads(out)["rows"]
    assert (row["status"], row["code"], row["why"], row["cure"]) == ("REFUSED", code, remark, cure)
    assert (row["messages"], row["next_offset"]) == ([], 4)


def test_a_refusal_says_what_lies_there(run: Run) -> None:
    status, out, _ = run("find", str(outcome_store("read-queues")), "--pull", "FleetEvents", "3", "4")
    printed = " ".join(out.split())
    assert status == ExitStatus.NOTHING_FOUND
    assert "REFUSED, INVALID_PARAMETER (5.3.2 to 5.3.3)" in printed
    assert "no consumer gets the 25 messages of the queue as long as the broker refuses" in printed


def test_its_neighbours_are_answered(run: Run) -> None:
    found = document(run, str(outcome_store("read-queues")), "--pull", "FleetEvents", "1", "4", "-n", "2")
    assert {row["status"] for row in found["rows"]} == {"FOUND"}


def test_a_group_that_may_not_consume(run: Run, tmp_path: Path) -> None:
    groups = {
        "subscriptionGroupTable": {"closed": {"consumeEnable": False}, "open": {}},
        "forbiddenTable": {"open": {"TopicTest": 4}},
    }
    store = WholeStore([{}], configs={"subscriptionGroup.json": groups})
    root = str(store.write(tmp_path / "S"))
    ask = root, "--pull", "TopicTest", "0", "0", "--broker-version", "5.3.3"
    assert document(run, *ask)["rows"][0]["status"] == "FOUND"
    assert document(run, *ask, "--group", "new")["rows"][0]["status"] == "FOUND"  # it is made
    for group, remark in (
        ("closed", "subscription group no permission, closed"),
        ("open", "the consumer group[open] is forbidden for topic[TopicTest]"),
    ):
        status, out, _ = run("find", *ask, "--group", group, "-f", "json")
        [row] = json.loads(out)["rows"]
        assert (status, row["code"], row["why"]) == (ExitStatus.NOTHING_FOUND, "NO_PERMISSION", remark)
    older = document(run, *ask[:-1], "4.9.7", "--group", "open")
    assert older["rows"][0]["status"] == "FOUND"  # forbiddenTable is read since 5.0.0
    (tmp_path / "c.conf").write_text("autoCreateSubscriptionGroup=false\n")
    _, out, _ = run("find", *ask, "--group", "new", "-f", "json", "--config", str(tmp_path / "c.conf"))
    assert json.loads(out)["rows"][0]["code"] == "SUBSCRIPTION_GROUP_NOT_EXIST"
    (tmp_path / "c.conf").write_text("brokerPermission=2\n")
    _, out, _ = run("find", *ask, "-f", "json", "--config", str(tmp_path / "c.conf"))
    assert json.loads(out)["rows"][0]["why"] == "the broker pulling message is forbidden"


# --- over damage --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("offset", "count", "gets", "next_offset", "missed"),
    [
        (949, 5, 3, 954, [952, 953]),
        (932, 32, 20, 964, [*range(952, 964)]),
        (951, 1, 1, 952, []),  # alone it takes nothing with it
        (949, 2, 2, 951, []),  # and it is not reached
    ],
)
def test_a_client_reads_no_further_than_a_record_that_it_cannot_decode(
    run: Run, offset: int, count: int, gets: int, next_offset: int, missed: list[int]
) -> None:
    ask = "--pull", "orders", "2", str(offset), "-n", str(count), "--broker-version", "5.3.3", "-f", "json"
    status, out, _ = run("find", str(outcome_store("s01")), *ask)
    [row] = json.loads(out)["rows"]
    assert (row["status"], row["next_offset"], row["missed"]) == ("FOUND", next_offset, missed)
    assert f"the consumer gets {gets} message" in row["then"]
    clients = {one["queue_offset"]: one["client"] for one in row["messages"]}
    assert [one for one, client in clients.items() if client == "misses"] == missed
    assert clients.get(951, "no topic") == "no topic"
    assert status == (ExitStatus.DAMAGE if 951 in clients else ExitStatus.DONE)


def test_with_a_tag_the_client_drops_what_has_none(run: Run) -> None:
    ask = "--pull", "orders", "2", "949", "-n", "5", "--tag", "paid", "--broker-version", "5.3.3", "-f", "json"
    [row] = json.loads(run("find", str(outcome_store("s01")), *ask)[1])["rows"]
    assert row["wrong"] == 0


def test_offset_by_time(run: Run) -> None:
    name = "main-5.5.0"
    root = str(oracle.store("broker", name))
    truth = oracle.truth("broker", name)
    row = truth.get("queries", truth)["offset_by_time"][0]
    asked = row["topic"], str(row["queue_id"]), str(row["timestamp"])
    found = document(run, root, "--offset-by-time", *asked)
    assert {one["offset"] for one in found["rows"]} == {row["offset"]}
    assert found["notes"] == []
    version = ("--broker-version", "5.5.0")
    upper = document(run, root, "--offset-by-time", asked[0], asked[1], "0", "--boundary", "upper", *version)
    assert upper["rows"][0]["offset"] == 0
    assert f"offset        {row['offset']}" in run("find", root, "--offset-by-time", *asked)[1]


def test_what_an_offset_for_a_time_depends_on(run: Run) -> None:
    root = str(oracle.store("broker", "retention-4.9.7"))
    found = document(run, root, "--offset-by-time", "PalletLog", "0", "last-1m", "--boundary", "lower")
    assert [note["text"][:12] for note in found["notes"]] == ["up to 5.1.0 ", "a boundary i"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("--pull", "orders", "1", "0", "--offset-by-time", "orders", "1", "0"),
        ("--pull", "orders", "1", "0", "--boundary", "lower"),
        ("--pull", "orders", "1", "0", "-t", "orders"),
        ("--pull", "orders", "1", "0", "--since", "now"),
        ("--pull", "orders", "1", "0", "-f", "csv"),
        ("--pull", "orders", "1", "0", "-n", "0"),
        ("--group", "billing", "-k", "K1"),
        ("--group", "billing", "--offset-by-time", "orders", "1", "0"),
        ("--pull", "orders", "1", "0", "--tag", "||"),
        ("--pull", "orders", "x", "0"),
        ("--offset-by-time", "orders", "1", "noon"),
        ("--offset-by-time", "orders", "1", "0", "--tag", "A"),
        ("--boundary", "lower"),
        ("--broker-version", "5.5.0", "-k", "K1"),
    ],
)
def test_options_that_do_not_fit(run: Run, arguments: tuple[str, ...]) -> None:
    status, out, _ = run("find", STORE, *arguments)
    assert status == ExitStatus.USAGE
    assert not out


def test_without_a_log_nothing_is_said(run: Run) -> None:
    status, _, err = run("find", f"{STORE}/consumequeue", "--pull", "orders", "1", "0")
    assert status == ExitStatus.NOTHING_FOUND
    assert "no commit log given" in err
