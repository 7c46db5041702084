"""Message traces of real clients: the table, field by field as their decoder reads it, and the lives of messages."""

import json
import re
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rmqinspect.codec.message_id import offset_place
from rmqinspect.find import plan, ways
from rmqinspect.find.life import LifeTracer
from rmqinspect.find.traces import TRACES, trace_topics
from rmqinspect.rocksdb.unpack import unpacked
from rmqinspect.store.discover import open_store
from rmqinspect.store.model import Store
from rmqinspect.store.reader import FileReader
from rmqinspect.tables.log import message_rows
from rmqinspect.tables.request import Request
from tests.support import traced
from tests.support.command import Run, runner
from tests.support.samples import ROOT, sample

Row = dict[str, Any]
FILES = "files-5.3.3"
STATES = {"X0": "COMMIT_MESSAGE", "X1": "ROLLBACK_MESSAGE", "X2": "UNKNOW"}

run = runner(after=("-j", "1"))


def rows_of(store: Store, request: Request | None = None) -> list[Row]:
    """Return the table, `client_timestamp` in ms."""
    found: list[Row] = pa.Table.from_batches(TRACES.rows(store, request or Request()), TRACES.schema).to_pylist()
    for row in found:
        time = row["client_timestamp"]
        row["client_timestamp"] = None if time is None else round(time.timestamp() * 1000)
    return found


@pytest.fixture(params=traced.NAMES)
def name(request: pytest.FixtureRequest) -> str:
    """The name of each store."""
    chosen: str = request.param
    return chosen


@pytest.fixture
def store(name: str) -> Iterator[Store]:
    """The store of that name, with its queues."""
    with unpacked(open_store([str(traced.store(name))])) as opened:
        yield opened


def test_each_field_is_what_the_decoder_of_the_client_reads(name: str, store: Store) -> None:
    found: dict[int, list[Row]] = {}
    for row in rows_of(store):
        found.setdefault(row["physical_offset"], []).append(row)
    records = traced.truth(name)["records"]
    assert sorted(found) == sorted(record["physical_offset"] for record in records)
    for record in records:
        rows = found[record["physical_offset"]]
        expected = [traced.told(context) for context in record["contexts"]]
        assert [{column: row[column] for column in one} for row, one in zip(rows, expected, strict=True)] == expected
        assert [row["number"] for row in rows] == list(range(len(rows)))
        for row in rows:
            place = row["trace_topic"], row["trace_queue_id"], row["trace_queue_offset"]
            assert place == (record["topic"], record["queue_id"], record["queue_offset"])
            assert (row["born_host"], row["status"]) == (record["born_host"], "ok")
            assert row["store_timestamp"] == datetime.fromtimestamp(record["store_timestamp"] / 1000, UTC)
    assert name != "files-4.9.7" or any(record["compressed"] for record in records)


def test_the_stores_have_what_clients_can_trace(name: str) -> None:
    contexts = [context for record in traced.truth(name)["records"] for context in record["contexts"]]
    types = {"Pub", "SubBefore", "SubAfter", "EndTransaction"} | (
        {"Recall"} if traced.release_of(name) > (5,) else set()
    )
    assert {context["TraceType"] for context in contexts} == types
    assert {traced.RESULTS[one["ContextCode"]] for one in contexts} == {"SUCCESS", "EXCEPTION", "RETURNNULL", "FAILED"}
    assert max(one["RetryTimes"] for one in contexts) > 0
    assert any("," in one["MsgId"] for one in contexts)


def test_a_life_says_what_producers_and_consumers_say(name: str, store: Store) -> None:
    truth, untraced = traced.truth(name), {"g_untraced", "PG_plain"}
    consumed: dict[str, list[Row]] = {}
    for row in truth["consumed"]:
        consumed.setdefault(row["msg_id"], []).append(row)
    batches = 0
    with LifeTracer(store) as tracer:
        assert set(tracer.traces.topics) == {"RMQ_SYS_TRACE_TOPIC", "audit_trace"}
        for place, sent, together in _sent(store, truth):
            life = tracer.trace(place)
            assert not [remark for remark in life.remarks if "trace" in remark]
            rows = consumed.get(life.record.properties["UNIQ_KEY"], ())
            told = Counter(_consumption(row) for row in rows if row["group"] not in untraced)
            if life.others:  # the messages of a batch share their id
                told = Counter({one: number // (1 + len(life.others)) for one, number in told.items()})
                batches += 1
            assert Counter(_traced(one) for one in life.traces if one.kind == "consumed") == told, sent
            sending = [(one.group, one.success, one.messages) for one in life.traces if one.kind == "sent"]
            assert sending == ([] if sent["group"] in untraced else [(sent["group"], True, together)]), sent
            ends = [(one.transaction_state, one.from_check) for one in life.traces if one.kind == "ended"]
            own = [state for state, from_check in ends if not from_check]
            assert own == ([STATES[sent["keys"]]] if sent["group"] == "PG_tx" else []), sent
            # A busy broker asked for others, too; the producer answers all checks alike.
            assert {state for state, from_check in ends if from_check} <= {"COMMIT_MESSAGE"}
            assert sent["keys"] != "X2" or ("COMMIT_MESSAGE", True) in ends
    assert batches == (5 if name.endswith("5.3.3") else 0)


def _sent(store: Store, truth: Mapping[str, Any]) -> Iterator[tuple[int, Row, int]]:
    """Yield (place, what the producer was told, messages sent together) of each message."""
    columns = frozenset({"physical_offset", "msg_id"})
    batches = list(message_rows(store, Request(columns=columns)))
    rows = pa.Table.from_batches(batches).select(sorted(columns)).to_pylist()
    firsts = {row["msg_id"]: row["physical_offset"] for row in reversed(rows)}
    for sent in truth["sent"]:
        places = [offset_place(one) for one in (sent["offset_msg_id"] or "").split(",")]
        for place in places:
            yield firsts[sent["msg_id"]] if place is None else place, sent, len(places)


def _consumption(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return row["group"], row["reconsume_times"], row["outcome"] == "success"


def _traced(one: Any) -> tuple[Any, ...]:
    return one.group, one.reconsume_times, one.success


def test_only_trace_topics_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store([str(traced.store(FILES))])
    whole = rows_of(store)
    monkeypatch.setattr(ways, "SMALL_LOG", 0)
    monkeypatch.setattr(ways, "SHARE", 1)
    monkeypatch.setattr(ways, "NEAR", 0)
    monkeypatch.setattr(plan, "NEAR", 0)
    read: list[int] = []
    request = Request(on_records=lambda records, _: read.append(records))
    assert rows_of(store, request) == whole
    assert 0 < sum(read) < sum(1 for _ in all_records(store)) / 2


def all_records(store: Store) -> Iterator[int]:
    """Yield the places of all records."""
    for batch in message_rows(store, Request(columns=frozenset({"physical_offset"}))):
        yield from batch.column("physical_offset").to_pylist()


def test_a_store_without_traces_is_not_read_for_them() -> None:
    remarks: list[str] = []
    before = FileReader.bytes_read
    assert rows_of(open_store([str(sample("healthy-5.5.0"))]), Request(on_remark=remarks.append)) == []
    assert FileReader.bytes_read - before < 150_000 and len(remarks) == 1


def test_topics_are_found_by_what_they_hold_and_by_their_name(tmp_path: Path) -> None:
    root = traced.store(FILES)
    assert trace_topics(open_store([str(root)])) == ("RMQ_SYS_TRACE_TOPIC", "audit_trace")
    log = open_store([str(root / "commitlog")])
    assert {row["trace_topic"] for row in rows_of(log)} == {"RMQ_SYS_TRACE_TOPIC"}
    asked = rows_of(log, Request(trace_topics=("audit_trace",)))
    assert {row["trace_topic"] for row in asked} == {"RMQ_SYS_TRACE_TOPIC", "audit_trace"}
    assert asked == rows_of(open_store([str(root)]))


def test_damage_is_a_row(tmp_path: Path) -> None:
    root = tmp_path / "store"
    shutil.copytree(traced.store(FILES), root)
    whole = rows_of(open_store([str(root)]))
    victim = next(row for row in whole if row["type"] == "SubAfter")
    segment = next(
        path
        for path in sorted((root / "commitlog").iterdir(), reverse=True)
        if int(path.name) <= victim["physical_offset"]
    )
    raw = bytearray(segment.read_bytes())
    at = raw.index(b"SubAfter", victim["physical_offset"] - int(segment.name))
    raw[at : at + 3] = b"Dub"
    segment.write_bytes(raw)
    store = open_store([str(root)])
    changed = [row for row in rows_of(store) if row not in whole]
    assert {row["physical_offset"] for row in changed} == {victim["physical_offset"]}
    assert {row["status"] for row in changed} == {"body_crc"}
    assert "DubAfter" in {row["type"] for row in changed}


def test_the_screen_says_who_sent_and_who_consumed(run: Run) -> None:
    root = str(traced.store(FILES))
    _, text, told = run("find", root, "-k", "P0")
    lines = [line.strip() for line in text.splitlines()]
    assert any("sent by PG_traced" in line and line.endswith(": success, from 127.0.0.1") for line in lines)
    assert any("consumed by g_flaky" in line and ": failed" in line for line in lines)
    assert any("consumed by g_flaky" in line and "retry 1: success" in line for line in lines)
    assert not any(line.startswith("passed") for line in lines)  # the traces say more
    assert text.count("life   ") == 1 and "hits of message traces, whose keys name it" in told
    _, text, _ = run("find", root, "-k", "U0")
    assert "none in RMQ_SYS_TRACE_TOPIC, audit_trace" in text
    _, text, _ = run("find", root, "-k", "P0", "--redact", "hosts")
    assert "127.0.0.1" not in text.partition("life")[2]


def test_a_document_has_the_traces(run: Run) -> None:
    root = str(traced.store(FILES))
    _, text, _ = run("find", root, "-k", "P1", "-f", "json")
    (life,) = json.loads(text)["lives"]
    assert [(one["kind"], one["success"], one["result"]) for one in life["traces"] if one["group"] == "g_flaky"] == [
        ("consumed", False, "EXCEPTION"),
        ("consumed", True, "SUCCESS"),
    ]


def test_the_recipe_tells_what_a_group_did_not_consume(run: Run) -> None:
    page = (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8").partition("## Was it consumed?")[2]
    (query,) = re.findall(r'rmqinspect sql "(.*?)" STORE', page.partition("\n## ")[0], re.DOTALL)
    _, text, _ = run("sql", query.replace("'orders'", "'Payments'"), str(traced.store(FILES)), "-f", "jsonl")
    (row,) = map(json.loads, text.splitlines())
    assert (row["keys"], row["group"]) == (["P3"], "g_flaky")  # sent to the dead letters


def test_decode_has_the_table_and_masks_it(run: Run) -> None:
    root = str(traced.store(FILES))
    status, text, _ = run("decode", root, "--table", "traces", "-f", "jsonl", "--redact", "hosts,keys")
    assert status == 0 and "127.0.0.1" not in text and "7F000001" not in text and '"P0"' not in text
    _, text, _ = run("decode", root, "--table", "traces", "-k", "P0", "-f", "jsonl")
    assert {json.loads(line)["type"] for line in text.splitlines()} == {"Pub", "SubBefore", "SubAfter"}
