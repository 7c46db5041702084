"""Rows of `messages`, gaps and sums of segments, against what real brokers wrote, served and found."""

import hashlib
import re
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from msgspec.structs import replace

import rmqinspect.commitlog.scan
import rmqinspect.tables.read_log
from rmqinspect.codec.properties import split_properties
from rmqinspect.schemas.dledger import EntryHead
from rmqinspect.schemas.message import COMPRESSIONS, CRC_MASK, BatchItem, SysFlag
from rmqinspect.store.discover import open_store
from rmqinspect.store.model import Store
from rmqinspect.tables.log import GAPS_TABLE, MESSAGES_TABLE, SEGMENTS_TABLE
from rmqinspect.tables.messages import SCHEMA
from rmqinspect.tables.request import Request
from rmqinspect.tables.table import Table
from rmqinspect.verify.codes import GAPS as CODES_OF_GAPS
from rmqinspect.verify.result import VerifyOptions
from rmqinspect.verify.run import verify
from tests.support import oracle
from tests.support.building import lay, write_segment
from tests.support.sampling import sampled
from tests.support.scanning import host, scan, shown
from tests.support.side_tables import BROKERS, UNDAMAGED, broker, crash, milliseconds, rows

CRASHES = oracle.cases("crash")
BASES = tuple(name for name in CRASHES if name.startswith("base-"))
CASES: tuple[tuple[oracle.Family, str], ...] = (
    *(("crash", name) for name in CRASHES),
    *(("broker", name) for name in BROKERS),
)

# getMessage gives the bytes that a queue unit points to and does not look at them. These are all the
# messages that a broker found and that have no row, with the reason. (case, physical offset, size):
DAMAGED, ZERO_UNIT, NAMELESS = "the record that was damaged", "a unit of zeros", "a unit of a topic without a name"
FOUND_WITHOUT_ROW = {
    ("magic_third-5.5.0-h", 95790, 322): DAMAGED,
    ("size_small_end-4.2.0-h", 199279, 242): DAMAGED,
    ("size_small_third-5.4.0-c", 86799, 256): DAMAGED,
    ("sysflag_v6_last-4.3.2-h", 200363, 219): DAMAGED,
    ("cq_last_file_zeroed-4.7.1-c", 0, 0): ZERO_UNIT,
    ("cq_last_file_zeroed-5.3.3-c", 0, 0): ZERO_UNIT,
    ("cq_tail_zero_all-5.5.0-c", 0, 0): ZERO_UNIT,
    # Up to 4.3.1 a record whose lengths disagree is dispatched all the same, without its fields.
    ("size_small_end-4.2.0-h", 0, 211): NAMELESS,
}

# Served rows that have no record in the commit log: of expired messages, and of compacted topics.
WITHOUT_RECORD = {"compaction-5.3.3": 13, "retention-4.9.7": 40}

# Damage of one record -> the status of its row, or the reason of the gap in its place.
STATUS_OF = {"flip_body": "body_crc", "phys": "offset_mismatch", "phys_far": "offset_mismatch"}
REASON_OF = {
    "magic": "magic",
    "first_rec": "zero",
    "propslen": "length",
    "size_big200k": "cut",
    "size_huge": "cut",
    "size_large": "length",
    "size_neg": "size",
    "size_small": "length",
    "sysflag_v6": "length",
    "topiclen": "length",
}


# --- brokers with clients -------------------------------------------------------------------------


@pytest.mark.parametrize("name", BROKERS)
def test_rows_are_the_records_the_broker_serves(name: str) -> None:
    ours = rows_by_offset(broker(name))
    stored = rows_by_offset(broker(name), Request(raw_body=True))
    truth = oracle.truth("broker", name)
    served = [*truth["served"], *truth["unserved_records"]]
    # The broker said why there is none, or answered from the compaction log, which is another file.
    recorded = [row for row in served if "physical_offset" in row and not row.get("from_compaction_log")]
    assert len(served) - len(recorded) == WITHOUT_RECORD.get(name, 0)
    for said in recorded:
        row = ours[said["physical_offset"]]
        body, stored_body = row["body"], stored[said["physical_offset"]]["body"]
        assert shown(row) == {
            "topic": said.get("record_topic", said.get("topic")),
            "queue_id": said.get("record_queue_id", said.get("queue_id")),
            "queue_offset": said.get("record_queue_offset", said.get("queue_offset")),
            "size": said["store_size"],
            "msg_id": said.get("msg_id"),
            "offset_msg_id": said["offset_msg_id"],
            "tags": said.get("tags"),
            "keys": said.get("keys", "").split(),
            "flag": said["flag"],
            "sys_flag": said["sys_flag"],
            "reconsume_times": said["reconsume_times"],
            "prepared_transaction_offset": said["prepared_transaction_offset"],
            "born_timestamp": said["born_timestamp"],
            "store_timestamp": said["store_timestamp"],
            "born": host(said["born_host"]),
            "store": host(said["store_host"]),
            "properties": said["properties"],
        }
        assert (len(body), hashlib.sha256(body).hexdigest()) == (said["body_size"], said["body_sha256"])
        assert (row["body_size"], zlib.crc32(stored_body) & CRC_MASK) == (len(stored_body), said["body_crc"])
        # What the decoder of a newer client unpacked it marks as unpacked.
        assert row["compression"] is not None or "sys_flag_as_decoded" not in said
        assert row["compression"] is not None or body == stored_body
        for name_of_real, of in (("real_topic", "REAL_TOPIC"), ("real_queue_id", "REAL_QID")):
            if of in said["properties"]:
                assert str(row[name_of_real]) == said["properties"][of]
        assert (row["status"], row["body_crc_ok"]) == ("ok", True)


@pytest.mark.parametrize("name", BROKERS)
def test_the_log_is_walked_as_the_broker_walks_it(name: str) -> None:
    store, log = broker(name), oracle.truth("broker", name)["log"]
    ours = rows_by_offset(store)
    records = [said for said in log if not said.get("blank")]
    assert list(ours) == [said["physical_offset"] for said in records]
    for said in records:
        row = ours[said["physical_offset"]]
        for column in ("size", "topic", "queue_id", "queue_offset", "sys_flag", "prepared_transaction_offset"):
            assert row[column] == said[column]
        assert milliseconds(row["store_timestamp"]) == said["store_timestamp"]
    gaps = rows(GAPS_TABLE, store)
    blanks = [(said["physical_offset"], said["physical_offset"] + said["size"]) for said in log if said.get("blank")]
    assert [(gap["start"], gap["end"]) for gap in gaps if gap["kind"] == "filler"] == blanks
    assert {gap["kind"] for gap in gaps} <= {"filler", "zeros"}
    assert {gap["reason"] for gap in gaps} == {None}


def test_all_three_compressions_occur_in_brokers() -> None:
    found = Counter(row["compression"] for name in BROKERS for row in rows(MESSAGES_TABLE, broker(name)))
    assert found.keys() == {None, *COMPRESSIONS}


def test_an_inner_batch_is_one_row_whose_body_holds_the_items() -> None:
    batches = items = 0
    for name in BROKERS:
        inner = {
            said["physical_offset"]: said["inner"] for said in oracle.truth("broker", name)["served"] if "inner" in said
        }
        ours = rows_by_offset(broker(name)) if inner else {}
        for physical_offset, said in inner.items():
            row = ours[physical_offset]
            assert row["sys_flag"] & SysFlag.INNER_BATCH
            assert dict(row["properties"])["INNER_NUM"] == str(len(said))
            found = list(batch_items(row["body"]))
            batches, items = batches + 1, items + len(found)
            for number, (item, theirs) in enumerate(zip(found, said, strict=True)):
                assert row["queue_offset"] + number == theirs["queue_offset"]
                assert item.flag == theirs["flag"]
                assert item.body_size == theirs["body_size"]
                assert hashlib.sha256(item.body).hexdigest() == theirs["body_sha256"]
                # The client gives an item the batch's own name for it, if it has none.
                assert properties(item.properties).items() <= theirs["properties"].items()
    assert (batches, items) == (25, 114)


# --- stores without clients: what was put, what was found ------------------------------------------


@pytest.mark.parametrize("name", BASES)
def test_rows_are_the_puts_of_the_writer(name: str) -> None:
    ours = rows_by_offset(crash(name))
    expected = [one for put in oracle.puts(name) for one in single_puts(put)]
    assert sorted(one["phys"] for one in expected) == list(ours)
    for one in expected:
        row = ours[one["phys"]]
        assert (row["topic"], row["queue_id"]) == (one["topic"], one["queue_id"])
        assert (row["queue_offset"], row["offset_msg_id"]) == (one["queue_offset"], one["msg_id"])
        assert (row["msg_id"], row["tags"]) == (one["uniq_key"], one["tags"])
        assert row["keys"] == (one["keys"] or "").split()
        assert row["body_size"] == one["body_len"]
        assert row["body_crc_ok"]
        if row["compression"] is None:
            assert zlib.crc32(row["body"]) & CRC_MASK == one["body_crc"]
        for column in ("size", "sys_flag", "flag", "reconsume_times", "prepared_transaction_offset"):
            assert row[column] == one.get(column, row[column])
        assert milliseconds(row["born_timestamp"]) == one.get("born_timestamp", milliseconds(row["born_timestamp"]))
        stored = milliseconds(row["store_timestamp"])
        if one["kind"] == "batch" and name.startswith(("base-4.2", "base-4.3", "base-4.7")):
            # They encode a batch before they take the lock, and answer with the time in the lock.
            assert one["store_timestamp"] - 100 < stored <= one["store_timestamp"]
        else:
            assert stored == one["store_timestamp"]
        transaction = {"prepared": "prepared", "commit": "commit", "rollback": "rollback"}.get(one["kind"], "none")
        assert row["transaction"] == transaction
        assert row["version"] == (2 if one["kind"] == "long-topic" else 1)
        assert (":" in row["store_host"]) == bool(row["sys_flag"] & SysFlag.STOREHOSTADDRESS_V6)


@pytest.mark.parametrize(
    "name", sampled(sorted(CRASHES, key=lambda name: all(name != case for case, *_ in FOUND_WITHOUT_ROW)), 2)
)
def test_every_message_the_broker_found_is_a_row(name: str) -> None:
    store = crash(name)
    ours = {row["physical_offset"]: row["size"] for row in rows(MESSAGES_TABLE, store, BARE)}
    unknown = {gap["start"] for gap in rows(GAPS_TABLE, store) if gap["kind"] == "unknown"}
    found = [message for queue in oracle.truth("crash", name).get("messages", ()) for message in queue["found"]]
    for _, physical_offset, size, crc in found:
        assert zlib.crc32(raw(store, physical_offset, size)) == crc
        reason = FOUND_WITHOUT_ROW.get((name, physical_offset, size))
        if reason is None:
            assert ours[physical_offset] == size
        elif reason == DAMAGED:
            assert physical_offset in unknown
    assert len(ours) >= len({message[1] for message in found}) - len(unknown)


@pytest.mark.parametrize("name", UNDAMAGED)
def test_records_of_undamaged_stores_are_ok(name: str) -> None:
    store = crash(name)
    found = rows(MESSAGES_TABLE, store)
    assert {row["status"] for row in found} == {"ok"}
    with_crc = oracle.case("crash", name)["base_variant"] in ("p", "ph", "g", "gh")
    assert {row["record_crc_ok"] for row in found} == ({True} if with_crc else {None})
    assert {gap["kind"] for gap in rows(GAPS_TABLE, store)} <= {"filler", "zeros"}


def damaged_records() -> Iterator[tuple[str, str, int]]:
    """Yield (case, kind of damage, physical offset of the record) where one record was damaged."""
    for name in CRASHES:
        described = oracle.case("crash", name)
        kinds = {kind.rsplit("_", 1)[0] for kind in described["damage_kinds"]} & (STATUS_OF | REASON_OF).keys()
        for text in described["damage"] if kinds else ():
            if at := re.match(r"commitlog/(\d{20}) at offset (\d+) ", text):
                # "at offset" is the place of the field, unless the text says where the record begins.
                position = re.search(r"position (\d+)", text) or re.search(r"offset (\d+)", text)
                assert position is not None
                place = 0 if "first_rec" in kinds else int(position[1])
                yield name, *kinds, int(at[1]) + place


@pytest.mark.parametrize(("name", "kind", "physical_offset"), list(damaged_records()))
def test_a_damaged_record_is_told_where_it_stands(name: str, kind: str, physical_offset: int) -> None:
    store = crash(name)
    if kind in STATUS_OF:
        reported = {
            row["physical_offset"]: row["status"] for row in rows(MESSAGES_TABLE, store) if row["status"] != "ok"
        }
        assert reported == {physical_offset: STATUS_OF[kind]}
        return
    gaps = [gap for gap in rows(GAPS_TABLE, store) if gap["kind"] == "unknown"]
    assert [(gap["start"], gap["reason"]) for gap in gaps] == [(physical_offset, REASON_OF[kind])]
    # The next record proves itself, and no other is lost.
    carved = [row["physical_offset"] for row in rows(MESSAGES_TABLE, store) if row["status"] == "carved"]
    assert carved == [gaps[0]["end"]]


# --- nothing is left out, and nothing depends on how the work is split -----------------------------


@pytest.mark.parametrize(("family", "name"), sampled(CASES, 6))
def test_every_byte_of_every_segment_is_accounted_for(family: oracle.Family, name: str) -> None:
    store = broker(name) if family == "broker" else crash(name)
    gaps = rows(GAPS_TABLE, store)
    for segment in rows(SEGMENTS_TABLE, store):
        start, end = segment["base"], segment["base"] + segment["file_size"]
        inside = [gap for gap in gaps if start <= gap["start"] < end and gap["kind"] != "missing"]
        sums = Counter({"records": segment["record_bytes"]})
        for gap in inside:
            sums[gap["kind"]] += gap["end"] - gap["start"]
        heads = EntryHead.sizeof() * segment["records"] if name.startswith("dledger-") else 0
        assert sums["filler"] + heads == segment["filler_bytes"]
        assert sums["zeros"] == segment["zero_bytes"]
        assert sums["unknown"] == segment["unknown_bytes"]
        assert sums.total() + heads == segment["file_size"]


@pytest.mark.parametrize(("family", "name"), sampled(CASES, 6))
def test_splits_and_windows_change_nothing(family: oracle.Family, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = broker(name) if family == "broker" else crash(name)
    # Far enough to see a record of every split's neighbourhood; the largest have 36 kB.
    monkeypatch.setattr(rmqinspect.commitlog.scan, "LOOK_BACK", 40_000)
    for segment in store.segments:
        whole = scan(segment)
        parts = scan(segment, split_size=20_011, window_size=9_000)
        assert (parts.records, parts.gaps) == (whole.records, whole.gaps)
        assert parts.account.gap_bytes == whole.account.gap_bytes


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize(
    "name", ["zero_page_last-4.7.1-h", "seg_missing_mid-4.9.7-c", "magic_third-5.5.0-h", "torn_last-5.2.0-h", "none"]
)
def test_the_bytes_without_records_are_those_that_verify_counts(
    name: str, jobs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Zeros between records held records, too; those behind the last record did not."""
    monkeypatch.setattr(rmqinspect.tables.read_log, "SPLIT_SIZE", 10_007)
    store = crash(name if name in CRASHES else "base-5.5.0-halt")
    findings = verify(store, VerifyOptions()).findings.rows
    expected = sum(finding.length or 0 for finding in findings if finding.code in CODES_OF_GAPS)
    for table in (MESSAGES_TABLE, GAPS_TABLE, SEGMENTS_TABLE):
        lost: list[tuple[str, int, int]] = []
        as_table(table, store, Request(jobs=jobs, on_gap=lambda *gap, lost=lost: lost.append(gap)))
        assert sum(end - start for _, start, end in lost) == expected


@pytest.mark.parametrize("name", ["zero_page_last-4.7.1-h", "seg_missing_mid-4.9.7-c", "magic_third-5.5.0-h"])
def test_two_threads_say_what_one_says(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert name in CRASHES
    monkeypatch.setattr(rmqinspect.tables.read_log, "SPLIT_SIZE", 10_007)
    store = crash(name)
    for which in (MESSAGES_TABLE, GAPS_TABLE, SEGMENTS_TABLE):
        assert as_table(which, store, Request(jobs=2)) == as_table(which, store, Request(jobs=1))


def test_a_range_of_offsets_gives_the_records_that_start_in_it() -> None:
    store = broker("main-5.3.3")
    whole = as_table(MESSAGES_TABLE, store, Request())
    offsets = whole["physical_offset"].to_pylist()
    ranges = ((0, 1), (1, 2000), (offsets[10], offsets[20]), (offsets[10] + 1, offsets[400] + 1), (1 << 40, 1 << 41))
    for start, end in ranges:
        part = as_table(MESSAGES_TABLE, store, Request(offsets=(start, end)))
        first, last = np.searchsorted(offsets, (start, end))
        assert part == whole.slice(first, last - first)


@pytest.mark.parametrize("column", SCHEMA.names)
def test_a_column_asked_for_alone_is_the_same(column: str) -> None:
    store = broker("halt-5.3.3")
    alone = as_table(MESSAGES_TABLE, store, Request(columns=frozenset({column})))
    assert alone.schema.equals(SCHEMA)
    assert alone[column] == whole_of_halt()[column]


# --- how the truths are read ----------------------------------------------------------------------

BARE = Request(columns=frozenset({"physical_offset", "size"}))


def test_of_equal_names_the_last_one_counts_also_of_those_that_are_written_alike(tmp_path: Path) -> None:
    """A byte that is not UTF-8 is written as an escape, which may be a name of its own."""
    texts = [b"a\x01b\x02TAGS\x01t\x02a\x01c\x02TAGS\x01u", rb"\xff=b,a=c,%s=d,a=e" % b"\xff", b"a\x01b\x02"]
    texts[1] = texts[1].replace(b"=", b"\x01").replace(b",", b"\x02")
    segment = write_segment(tmp_path, lay([{"properties": text} for text in texts]))
    found = rows(MESSAGES_TABLE, open_store([segment.path]))
    assert [row["properties"] for row in found] == [
        [("a", "c"), ("TAGS", "u")],
        [(r"\xff", "d"), ("a", "e")],
        [("a", "b")],
    ]
    assert [row["tags"] for row in found] == ["u", None, None]


def rows_by_offset(store: Store, request: Request | None = None) -> dict[int, dict[str, Any]]:
    return {row["physical_offset"]: row for row in rows(MESSAGES_TABLE, store, request)}


def as_table(which: Table, store: Store, request: Request) -> pa.Table:
    return pa.Table.from_batches(list(which.rows(store, request)), which.schema).combine_chunks()


def whole_of_halt() -> pa.Table:
    return as_table(MESSAGES_TABLE, broker("halt-5.3.3"), replace(Request(), columns=None))


def single_puts(put: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the messages of a put: itself, or what a batch held, each with its own offsets and id."""
    whole = {name: value for name, value in put.items() if name != "size" or "items" not in put}
    for number, (msg_id, item) in enumerate(zip(put["msg_id"].split(","), put.get("items", [put]), strict=True)):
        place = {"phys": int(msg_id[-16:], 16), "queue_offset": put["queue_offset"] + number, "msg_id": msg_id}
        yield whole | item | place


def raw(store: Store, physical_offset: int, size: int) -> bytes:
    for segment in store.segments:
        if segment.base <= physical_offset < segment.base + segment.size:
            with Path(segment.path).open("rb") as file:
                file.seek(physical_offset - segment.base)
                return file.read(size)
    raise KeyError(physical_offset)


def batch_items(body: bytes) -> Iterator[Any]:
    while body:
        item = BatchItem.parse(body)
        yield item
        body = body[item.total_size :]


def properties(text: bytes) -> dict[str, str]:
    content = np.frombuffer(text, np.uint8)
    items = split_properties(content, np.array([0], np.int64), np.array([len(content)], np.int64))
    places = zip(items.name_starts, items.name_ends, items.value_starts, items.value_ends, strict=True)
    return {text[a:b].decode(): text[c:d].decode() for a, b, c, d in places}
