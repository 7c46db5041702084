"""CQ-NO-TOPIC: records of topics that have no queue, and that topics.json does not name."""

import json
import re
import shutil
from pathlib import Path

import pytest

from rmqinspect.broker.lost_topics import always_exists, committed_in, is_strong
from rmqinspect.config.json_files import ConsumerOffset
from rmqinspect.store.discover import open_store
from rmqinspect.verify.findings import Finding
from rmqinspect.verify.result import VerifyOptions
from rmqinspect.verify.run import verify
from tests.support import oracle
from tests.support.command import Run, runner
from tests.support.outcome_stores import copy_of_case, outcome_store

run = runner()

GONE = ("FleetEvents", "CourierLog")


def findings(root: Path, version: str | None = None) -> list[Finding]:
    result = verify(open_store([str(root)]), VerifyOptions(broker_version=version))
    return [row for row in result.findings if row.code in ("CQ-NO-TOPIC", "CQ-MISSING")]


def without_offsets(root: Path, *topics: str) -> None:
    path = root / "config/consumerOffset.json"
    document = json.loads(_quoted(path.read_text()))
    table = document["offsetTable"]
    document["offsetTable"] = {key: value for key, value in table.items() if key.partition("@")[0] not in topics}
    path.write_text(json.dumps(document))


def _quoted(text: str) -> str:
    """Return a file of fastjson as JSON: it leaves the quotes of numbers as names out."""
    return re.sub(r"([{,]\s*)(\d+):", r'\1"\2":', text)


def test_topics_that_are_lost_with_their_queues_are_a_warning_with_records_topics_and_groups() -> None:
    lost, deleted = findings(outcome_store("topics-gone"))
    assert (lost.code, lost.severity) == ("CQ-NO-TOPIC", "warning")
    assert lost.message.startswith("283 messages are in no queue: CourierLog 177, FleetEvents 106; ")
    assert "4 groups have offsets there (g_half_1 had not consumed 95)" in lost.message
    assert "config/topics.json" in lost.do
    assert "rebuild the queues before the broker is started" in lost.do
    # This one was deleted by command, which took the offsets in it.
    assert (deleted.code, deleted.severity) == ("CQ-NO-TOPIC", "info")
    assert "10 messages are in no queue: OrderGone 10" in deleted.message


def test_of_a_topic_without_offsets_nobody_can_tell(tmp_path: Path) -> None:
    root = copy_of_case("topics-gone", tmp_path / "case")
    without_offsets(root, "CourierLog")
    others, lost = findings(root)
    assert "106 messages are in no queue: FleetEvents 106" in lost.message
    assert "187 messages are in no queue: CourierLog 177, OrderGone 10" in others.message
    assert others.severity == "info"


def test_where_topics_json_names_them_their_units_are_missing(tmp_path: Path) -> None:
    root = copy_of_case("topics-gone", tmp_path / "case")
    path = root / "config/topics.json"
    document = json.loads(path.read_text())
    for topic in GONE:
        document["topicConfigTable"][topic] = {"topicName": topic, "readQueueNums": 4, "writeQueueNums": 4, "perm": 6}
    path.write_text(json.dumps(document))
    found = findings(root)
    assert sum(row.count for row in found if row.code == "CQ-MISSING" and row.topic in GONE) == 283
    assert [row.severity for row in found if row.code == "CQ-NO-TOPIC"] == ["info"]


def test_an_older_release_leaves_the_offsets_of_deleted_topics_behind(tmp_path: Path) -> None:
    root = tmp_path / "store"
    shutil.copytree(oracle.store("broker", "main-4.9.7"), root)
    [deleted] = findings(root)
    assert (deleted.severity, deleted.queue_id is not None) == ("info", True)
    offsets = root / "config/consumerOffset.json"
    topic = oracle.truth("broker", "main-4.9.7")["names"]["topics"]["deleted"]
    offsets.write_text(offsets.read_text().replace('"offsetTable":{', f'"offsetTable":{{"{topic}@billing":{{0:3}},', 1))
    [told] = findings(root)
    assert told.severity == "warning"
    assert "1 group has offsets there (billing had not consumed 2)" in told.message
    assert "before 5.0.0 that leaves the offsets" in told.message


def test_the_brokers_own_topics_always_exist(tmp_path: Path) -> None:
    root = tmp_path / "store"
    shutil.copytree(oracle.store("broker", "main-5.3.3"), root)
    path = root / "config/topics.json"
    document = json.loads(path.read_text())
    document["topicConfigTable"].pop("rmq_sys_wheel_timer", None)
    path.write_text(json.dumps(document))
    shutil.rmtree(root / "consumequeue/rmq_sys_wheel_timer")
    missing = [row for row in findings(root) if row.topic == "rmq_sys_wheel_timer"]
    assert missing
    assert {row.code for row in missing} == {"CQ-MISSING"}


@pytest.mark.parametrize(
    ("topic", "releases", "answer"),
    [
        ("RMQ_SYS_TRANS_HALF_TOPIC", ("4.7.1",), True),
        ("RMQ_SYS_TRANS_OP_HALF_TOPIC", ("4.7.1",), False),
        ("RMQ_SYS_TRANS_OP_HALF_TOPIC", ("4.9.2", "5.3.3"), True),
        ("RMQ_SYS_TRANS_OP_HALF_TOPIC", ("4.8.0", "4.9.2"), False),
        ("rmq_sys_REVIVE_LOG_c", ("5.0.0",), True),
        ("orders", ("5.0.0",), False),
    ],
)
def test_which_topics_always_exist(topic: str, releases: tuple[str, ...], answer: bool) -> None:
    assert always_exists(topic, releases) == answer


def test_what_committed_offsets_prove() -> None:
    entries = [
        ConsumerOffset("g", "T", 0, 5, "f"),
        ConsumerOffset("g", "T", 1, 0, "f"),
        ConsumerOffset("CID_RMQ_SYS_TRANS", "T", 0, 5, "f"),
        ConsumerOffset("g", "U", 0, 5, "f"),
    ]
    assert committed_in(entries, {"T"}) == {"T": {"g": {0: 5}}}
    assert (is_strong(["5.0.0", "5.5.0"]), is_strong(["4.9.8", "5.0.0"]), is_strong([])) == (True, False, False)


def test_groups_says_no_queue_and_never_lag_0(run: Run) -> None:
    status, out, _ = run("groups", outcome_store("topics-gone"))
    lines = {tuple(line.split()[:2]): line for line in out.splitlines() if line.startswith("g_")}
    for group, topic in (("g_half_1", "CourierLog"), ("g_all_1", "FleetEvents"), ("g_sql_1", "CourierLog")):
        assert "no queue" in lines[group, topic]
    assert "14 offsets of 4 groups stand in queues of a topic that is not there" in " ".join(out.split())
    assert status == 0
    _, out, _ = run("groups", outcome_store("topics-gone"), "-f", "jsonl", "--status", "no_queue")
    rows = [json.loads(line) for line in out.splitlines()]
    assert {row["lag"] for row in rows if row["topic"] in GONE} == {None}


def test_a_group_at_0_in_a_queue_that_nobody_wrote_to_has_lag_0(run: Run, tmp_path: Path) -> None:
    root = copy_of_case("topics-gone", tmp_path / "case")
    without_offsets(root, *GONE)
    offsets = root / "config/consumerOffset.json"
    offsets.write_text(offsets.read_text().replace('"offsetTable": {', '"offsetTable": {"New@fresh": {"0": 0},', 1))
    _, out, _ = run("groups", root, "-v")
    assert "no queue" not in out
    assert "stand in queues of a topic" not in out


def test_the_report_says_no_queue_and_no_lag(run: Run, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    run("report", outcome_store("topics-gone"), "-o", page)
    text = re.sub(r"<[^>]+>", " ", page.read_text())
    assert "Of 4 groups queues are gone: how far they are behind is not known." in text
    assert re.search(r"g_half_1\s+CourierLog\s.*?no queue", text, re.DOTALL)
    assert "283 messages are in no queue" in text
