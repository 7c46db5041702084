"""ST-GROUP-OFFSET and ST-GROUP-LOST, and all the offsets that look like them and are healthy."""

import json
import random
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqinspect.broker.eras import searches_minimum
from rmqinspect.consumequeue.bounds import survey_queues
from rmqinspect.store.discover import open_store
from rmqinspect.store.model import Store
from rmqinspect.verify.findings import Finding
from rmqinspect.verify.group_offsets import Ends, check_groups
from tests.support import oracle
from tests.support.side_tables import BROKERS, ROCKSDB, broker, store_of, write

ENDS: Ends = {("T", 0): (5, 8), ("T", 1): (0, 3)}
OFFSETS = "config/consumerOffset.json"


def ends_of(store: Store) -> Ends:
    queues = survey_queues(store, searches_minimum(store))
    return {(queue.topic, queue.queue_id): (queue.first_kept, queue.max_offset) for queue in queues}


def config(root: Path, offsets: Mapping[str, Any], topics: Mapping[str, int] | None = None) -> None:
    """Write consumer offsets by topic@group, and topics by their number of queues."""
    write(root, OFFSETS, json.dumps({"offsetTable": offsets}).encode())
    if topics is not None:
        entries = {name: {"readQueueNums": count, "writeQueueNums": 1} for name, count in topics.items()}
        write(root, "config/topics.json", json.dumps({"topicConfigTable": entries}).encode())


def found(root: Path, ends: Ends | None = ENDS, pending: Mapping[tuple[str, int], int] | None = None) -> list[Finding]:
    return list(check_groups(store_of(root), ends, pending))


# --- what real brokers say ------------------------------------------------------------------------


@pytest.mark.parametrize("name", BROKERS)
def test_the_groups_that_a_broker_finds_beyond_or_behind_are_found_and_no_others(name: str) -> None:
    truth, store = oracle.truth("broker", name), broker(name)
    minima = {(row["topic"], row["queue_id"]): row["min"] for row in truth["queues"]}
    beyond, lost = set(), set()
    for row in truth["groups"] if name not in ROCKSDB else ():
        queue = row["topic"], row["queue_id"]
        if (row.get("diff") or 0) < 0:
            beyond.add((row["group"], *queue))
        # 4.9.7 says 0 for a queue of which everything is expired.
        elif row["offset"] < minima.get(queue, 0) and not row["group"].startswith("CID_RMQ_SYS_"):
            lost.add((row["group"], *queue))
    if name == "retention-4.9.7":
        lost |= {("g_half_1", "OrderOld", 0), ("g_half_1", "OrderOld", 1)}
    findings = list(check_groups(store, ends_of(store) or None))
    of_code = {
        code: {(row.message.split()[1], row.topic, row.queue_id) for row in findings if row.code == code}
        for code in ("ST-GROUP-OFFSET", "ST-GROUP-LOST")
    }
    assert of_code == {"ST-GROUP-OFFSET": beyond, "ST-GROUP-LOST": lost}
    assert beyond == set()  # no broker store is damaged
    assert bool(lost) == name.startswith("retention")


@pytest.mark.parametrize("name", ["main-4.9.7", "main-5.5.0", "lmq-5.3.3", "dledger-5.3.3"])
def test_a_queue_that_lost_its_end_is_found_for_every_group_that_was_there(name: str) -> None:
    store, rows = broker(name), oracle.truth("broker", name)["groups"]
    ends = dict.fromkeys(ends_of(store), (0, 1))
    beyond = {
        (row["group"], row["topic"], row["queue_id"], row["offset"])
        for row in rows
        if row["offset"] > 1 and (row["topic"], row["queue_id"]) in ends
    }
    findings = list(check_groups(store, ends))
    assert len(beyond) > 10
    assert {(row.message.split()[1], row.topic, row.queue_id, row.queue_offset) for row in findings} == beyond
    assert {(row.code, row.severity) for row in findings} == {("ST-GROUP-OFFSET", "warning")}
    source = "config/lmqConsumerOffset.json" if name.startswith("lmq") else OFFSETS
    assert {row.file for row in findings} == {source}


# --- beyond the end -------------------------------------------------------------------------------


def test_an_offset_behind_the_end_is_told(tmp_path: Path) -> None:
    config(tmp_path, {"T@orders-group": {0: 9, 1: 3}})
    [finding] = found(tmp_path)
    assert (finding.code, finding.severity, finding.file) == ("ST-GROUP-OFFSET", "warning", OFFSETS)
    assert (finding.topic, finding.queue_id, finding.queue_offset) == ("T", 0, 9)
    assert (finding.expected, finding.found) == ("at most 8", "9")
    assert "group orders-group resumes at 9, but its queue ends at 8" in finding.message


@pytest.mark.parametrize(("pending", "expected"), [({}, 1), ({("T", 1): 9}, 1), ({("T", 0): 1}, 0), ({("T", 0): 5}, 0)])
def test_what_the_next_start_adds_belongs_to_the_queue(
    tmp_path: Path, pending: Mapping[tuple[str, int], int], expected: int
) -> None:
    config(tmp_path, {"T@G": {0: 9}})
    assert len(found(tmp_path, pending=pending)) == expected


@pytest.mark.parametrize("offset", [5, 7, 8])
def test_offsets_within_the_queue_and_its_end_are_silent(tmp_path: Path, offset: int) -> None:
    config(tmp_path, {"T@G": {0: offset}, "T@CID_RMQ_SYS_TRANS": {0: offset}, "T@G@broadcast-1": {0: offset}})
    assert found(tmp_path) == []


def test_groups_of_the_broker_and_of_light_queues_are_judged_like_others(tmp_path: Path) -> None:
    lmq = {
        "offsetTable": {"T@CID_RMQ_SYS_REVIVE_GROUP": {0: 9}},
        "lmqOffsetTable": {"%LMQ%a@%LMQ%a": 4, "%LMQ%b@%LMQ%b": 4, "%LMQ%gone@%LMQ%gone": 4},
    }
    write(tmp_path, "config/lmqConsumerOffset.json", json.dumps(lmq).encode())
    ends = {**ENDS, ("%LMQ%a", 0): (0, 3), ("%LMQ%b", 0): (0, 4)}
    assert [(row.topic, row.file) for row in found(tmp_path, ends)] == [
        ("%LMQ%a", "config/lmqConsumerOffset.json"),
        ("T", "config/lmqConsumerOffset.json"),
    ]


# --- queues without files -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("topics", "offsets", "expected"),
    [
        ({"U": 2}, {"U@G": {0: 7, 1: 1}}, [("U", 0), ("U", 1)]),
        ({"%RETRY%G": 1}, {"%RETRY%G@G": {0: 2}}, [("%RETRY%G", 0)]),
        # A queue that never had a message has no folder.
        ({"U": 2, "%RETRY%G": 1}, {"U@G": {0: 0}, "%RETRY%G@G": {0: 0}}, []),
        # Deleted topics leave their groups' offsets behind; 4.x loses the op topic that way.
        ({"T": 2}, {"U@G": {0: 7}, "RMQ_SYS_TRANS_OP_HALF_TOPIC@CID_RMQ_SYS_TRANS": {0: 12}}, []),
        # The topic was made smaller: it has two queues now.
        ({"U": 2}, {"U@G": {2: 7}}, []),
        # Which topics there are is not known.
        (None, {"U@G": {0: 7}}, []),
    ],
)
def test_a_queue_without_files(
    tmp_path: Path, topics: Mapping[str, int] | None, offsets: Mapping[str, Any], expected: list[tuple[str, int]]
) -> None:
    config(tmp_path, offsets, topics)
    findings = found(tmp_path)
    assert [(row.topic, row.queue_id) for row in findings] == expected
    assert all((row.code, row.expected) == ("ST-GROUP-OFFSET", "at most 0") for row in findings)
    assert all("but its queue has no files" in row.message for row in findings)


def test_a_lost_queue_that_the_next_start_makes_again_is_silent(tmp_path: Path) -> None:
    config(tmp_path, {"U@G": {0: 7}}, {"U": 1})
    assert found(tmp_path, pending={("U", 0): 7}) == []
    assert [row.expected for row in found(tmp_path, pending={("U", 0): 6})] == ["at most 6"]


@pytest.mark.parametrize("folder", ["consumequeue", "consumequeue_rocksdb"])
def test_a_queue_that_may_be_in_rocksdb_is_not_known(tmp_path: Path, folder: str) -> None:
    config(tmp_path, {"U@G": {0: 7}, "T@G": {0: 9}}, {"U": 1, "T": 1})
    write(tmp_path, f"{folder}/CURRENT", b"MANIFEST-000004\n")
    assert [row.topic for row in found(tmp_path)] == ["T"]


def test_configuration_in_rocksdb_hides_no_queue(tmp_path: Path) -> None:
    config(tmp_path, {"U@G": {0: 7}}, {"U": 1})
    write(tmp_path, "config/metadata/CURRENT", b"MANIFEST-000004\n")
    write(tmp_path, "rocksdbstore/CURRENT", b"MANIFEST-000004\n")
    assert [row.topic for row in found(tmp_path)] == ["U"]


def test_a_log_that_begins_later_need_not_have_every_queue(tmp_path: Path) -> None:
    """A new slave begins with the master's last segment, and has the master's offsets."""
    config(tmp_path, {"U@G": {0: 7}, "T@G": {0: 9}}, {"U": 1, "T": 1})
    write(tmp_path, "commitlog/00000000000000016384", bytes(16384))
    assert [row.topic for row in found(tmp_path)] == ["T"]


@pytest.mark.parametrize("ends", [None, {}])
def test_without_any_queue_there_is_nothing_to_compare_with(tmp_path: Path, ends: Ends | None) -> None:
    config(tmp_path, {"T@G": {0: 9}}, {"T": 1})
    assert found(tmp_path, ends) == []


def test_of_pieces_no_queue_is_missed(tmp_path: Path) -> None:
    config(tmp_path, {"U@G": {0: 7}, "T@G": {0: 9}}, {"U": 1, "T": 1})
    store = open_store([str(tmp_path / "config")])
    assert [row.topic for row in check_groups(store, ENDS)] == ["T"]


# --- before the start -----------------------------------------------------------------------------


def test_an_offset_that_retention_overtook_is_info(tmp_path: Path) -> None:
    config(tmp_path, {"T@G": {0: 4, 1: 0}, "T@never": {0: 0}, "T@odd": {0: -7}, "T@CID_RMQ_SYS_TRANS": {0: 1}})
    findings = found(tmp_path)
    assert [(row.code, row.severity, row.queue_offset) for row in findings] == [
        ("ST-GROUP-LOST", "info", 4),
        ("ST-GROUP-LOST", "info", 0),
        ("ST-GROUP-LOST", "info", -7),
    ]
    assert findings[0].message == "group G resumes at 4, but its queue begins at 5: 1 message gone before delivery"
    assert "5 messages gone" in findings[1].message
    assert "5 messages gone" in findings[2].message
    assert findings[0].expected == "at least 5"


# --- whatever stands in the files -----------------------------------------------------------------

JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["0", "1", "T@G", "T", "readQueueNums"]), inner)
    ),
    max_leaves=8,
)


@settings(max_examples=80, deadline=None)
@given(st.dictionaries(st.sampled_from(["offsetTable", "lmqOffsetTable", "topicConfigTable"]), JUNK))
def test_any_document_raises_nothing(document: dict[str, Any]) -> None:
    with TemporaryDirectory() as folder:
        for name in ("consumerOffset", "lmqConsumerOffset", "topics"):
            write(Path(folder), f"config/{name}.json", json.dumps(document).encode())
        assert {row.code for row in found(Path(folder))} <= {"ST-GROUP-OFFSET", "ST-GROUP-LOST"}


def test_no_mutation_raises(tmp_path: Path) -> None:
    dice = random.Random(4)
    raw = (oracle.store("broker", "main-5.3.3") / OFFSETS).read_bytes()
    codes = set()
    for _ in range(150):
        damaged = bytearray(raw)
        damaged[dice.randrange(len(damaged))] = dice.randrange(256)
        write(tmp_path, OFFSETS, bytes(damaged))
        codes |= {row.code for row in found(tmp_path)}
    assert codes <= {"ST-GROUP-OFFSET", "ST-GROUP-LOST"}
