"""Look-ups by a plan find what a scan of the whole log finds, in every store that real brokers wrote.

Half of the stores are damaged: their index files, queues and segments lead astray, or nowhere. And what a look-up of
`decode` and `show` prints, and with which exit status it ends.
"""

import json
import random
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rmqinspect.find import plan, ways
from rmqinspect.find.plan import plan_look_up, planned_rows
from rmqinspect.store.discover import open_store
from rmqinspect.store.model import Store
from rmqinspect.store.reader import FileReader
from rmqinspect.tables.filters import Selection
from rmqinspect.tables.log import message_rows
from rmqinspect.tables.messages import SCHEMA as MESSAGES
from rmqinspect.tables.request import Request
from tests.support import oracle
from tests.support.command import Run, runner
from tests.support.samples import sample

COLUMNS = frozenset(
    {
        "physical_offset",
        "topic",
        "queue_id",
        "queue_offset",
        "msg_id",
        "offset_msg_id",
        "keys",
        "store_timestamp",
        "transaction",
        "status",
    }
)
RECORDS = 4  # of each store that could be asked for
QUESTIONS = 2  # asked of each store
TOPICS = 2  # of each store that are asked for

Rows = list[tuple[int, str]]
Gaps = set[tuple[int, int]]


class Scanned:
    """A store, read once as a whole."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.gaps: list[tuple[str, int, int]] = []
        request = Request(columns=COLUMNS, on_gap=self._take)
        self.batches = list(message_rows(store, request))
        self.rows: list[dict[str, Any]] = [
            row for batch in self.batches for row in batch.select(sorted(COLUMNS)).to_pylist()
        ]

    def _take(self, kind: str, start: int, end: int) -> None:
        self.gaps.append((kind, start, end))

    def questions(self, chance: random.Random) -> Iterator[Selection]:
        """Yield look-ups of every kind for some records, and for what is not there."""
        for row in chance.sample(self.rows, min(RECORDS, len(self.rows))):
            yield Selection(ids=(row["offset_msg_id"],))
            if row["msg_id"]:
                yield Selection(ids=(row["msg_id"],))
            yield from (Selection(keys=(key,)) for key in row["keys"][:1])
            yield from (Selection(keys=(key,), topics=(row["topic"],)) for key in row["keys"][-1:])
            yield from self._in_queue(row["topic"], row["queue_id"], row["queue_offset"])
            if row["store_timestamp"] is not None:
                since = int(row["store_timestamp"].timestamp() * 1_000_000)
                yield Selection(since=since, until=since + 100_000)
        for _, start, end in self.gaps[:RECORDS]:
            if self.store.segments:
                yield Selection(ids=(f"7F00000100002A9F{(start + end) // 2:016X}",))
        if self.rows:
            yield Selection(keys=("no such key",))

    def _in_queue(self, topic: str, queue_id: int, offset: int) -> Iterator[Selection]:
        if topic and not any(sign in topic for sign in "*?[") and queue_id >= 0 and 0 <= offset < 2**40:
            for beyond in (offset + 1, offset + 5):
                yield Selection(topics=(topic,), queue_id=queue_id, queue_offsets=(offset, beyond), in_queues=True)

    def in_queues(self, rows: Rows) -> Rows:
        """Return the rows that belong in a queue. A bare message store, unlike a broker, keeps others in any topic."""
        outside = {row["physical_offset"] for row in self.rows if row["transaction"] in ("prepared", "rollback")}
        return [row for row in rows if row[0] not in outside]

    def topics(self, chance: random.Random) -> Iterator[Selection]:
        """Yield a few questions for topics, for one queue of one, and for a time."""
        records = sorted({(row["topic"], row["queue_id"]) for row in self.rows if row["topic"]})
        for topic, queue_id in chance.sample(records, min(TOPICS, len(records))):
            if not any(sign in topic for sign in "*?["):
                times = [
                    row["store_timestamp"] for row in self.rows if row["topic"] == topic and row["store_timestamp"]
                ]
                since = int(chance.choice(times).timestamp() * 1_000_000) if times else None
                yield chance.choice(
                    [
                        Selection(topics=(topic,)),
                        Selection(topics=(topic,), queue_id=queue_id),
                        Selection(topics=(topic,), since=since),
                    ]
                )


def clip(gaps: list[tuple[str, int, int]], spans: tuple[tuple[int, int], ...]) -> Gaps:
    """Return the bytes of lost records in some spans."""
    return {
        (max(start, first), min(end, last))
        for _, start, end in gaps
        for first, last in spans
        if max(start, first) < min(end, last)
    }


def ask(scanned: Scanned, selection: Selection) -> tuple[tuple[Rows, Gaps], tuple[Rows, Gaps]]:
    """Return (rows and gaps by the plan, rows and gaps by the scan)."""
    look_up = plan_look_up(scanned.store, selection)
    assert look_up is not None
    gaps: list[tuple[str, int, int]] = []
    request = Request(columns=COLUMNS, on_gap=lambda kind, start, end: gaps.append((kind, start, end)))
    planned = _select(selection, list(planned_rows(scanned.store, look_up.to_read, request)))
    return (planned, clip(gaps, look_up.spans)), (
        _select(selection, scanned.batches),
        clip(scanned.gaps, look_up.spans),
    )


def _select(selection: Selection, batches: list[pa.RecordBatch]) -> Rows:
    found = (selection.select_rows(batch) for batch in batches)
    return [(row["physical_offset"], row["status"]) for rows in found for row in rows.to_pylist()]


@contextmanager
def reading_by_units() -> Iterator[None]:
    """Have small logs of message stores read by units too, and no two records as one."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("SMALL_LOG", 0), ("SHARE", 1), ("NEAR", 0), ("may_lack_units", lambda *_: False)):
            patch.setattr(ways, name, value)
        patch.setattr(plan, "NEAR", 0)
        yield


@pytest.mark.parametrize("family", ["crash", "broker"])
def test_a_plan_finds_what_a_scan_finds(family: oracle.Family, all_cases: bool) -> None:
    chance = random.Random(20)
    different = []
    by_units = 0
    for name in oracle.cases(family)[:: 1 if all_cases else 12]:
        scanned = Scanned(open_store([str(oracle.store(family, name))]))
        questions = list(scanned.questions(chance))
        for selection in chance.sample(questions, min(QUESTIONS, len(questions))):
            planned, expected = ask(scanned, selection)
            if planned != expected:
                different.append((name, selection, planned, expected))
        with reading_by_units():
            for selection in scanned.topics(chance):
                look_up = plan_look_up(scanned.store, selection)
                if look_up is not None and "by the units of" in look_up.way:
                    by_units += 1
                    planned, expected = ask(scanned, selection)
                    if (scanned.in_queues(planned[0]), planned[1]) != (scanned.in_queues(expected[0]), expected[1]):
                        different.append((name, selection, planned, expected))
    assert different == []
    assert by_units > (20 if all_cases else 1)


LIGHT = [
    (name, row)
    for name in ("lmq-4.9.7", "lmq-5.3.3")
    for row in oracle.truth("broker", name)["served"]
    if row["topic"].startswith("%LMQ%")
]


def test_every_unit_of_a_light_queue_leads_to_the_record_that_the_broker_serves(all_cases: bool) -> None:
    """The record's head names another topic and queue; its properties name the light queue."""
    for name, row in LIGHT[:: 1 if all_cases else 5]:
        store = open_store([str(oracle.store("broker", name))])
        offset = row["queue_offset"]
        queue = Selection(topics=(row["topic"],), queue_id=0, queue_offsets=(offset, offset + 1))
        keyed = Selection(topics=(row["topic"],), ids=(row["msg_id"],))
        for selection in (queue, keyed, Selection(topics=(row["topic"],)), Selection(topics=("%LMQ%*",), queue_id=0)):
            plan = plan_look_up(store, selection)
            request = Request(columns=COLUMNS | selection.columns(MESSAGES), records_of=(selection,))
            batches = message_rows(store, request) if plan is None else planned_rows(store, plan.to_read, request)
            found = [
                place for batch in batches for place in selection.select_rows(batch)["physical_offset"].to_pylist()
            ]
            assert row["physical_offset"] in found
            assert selection is not queue or found == [row["physical_offset"]]
            assert not selection.unmatched_topics()
    assert len(LIGHT) == 69 + 72


def test_a_light_queue_has_no_message_at_another_offset() -> None:
    store = open_store([str(oracle.store("broker", "lmq-5.3.3"))])
    for chosen in ({"queue_id": 1}, {"queue_offsets": (1000, 1001)}):
        selection = Selection(topics=("%LMQ%fleet-1",), **chosen)
        request = Request(columns=COLUMNS | selection.columns(MESSAGES))
        assert not any(selection.select_rows(batch).num_rows for batch in message_rows(store, request))


def test_an_entry_that_leads_before_the_logs_start_is_an_entry(tmp_path: Path) -> None:
    root = oracle.copy("broker", "main-5.3.3", tmp_path)
    store = open_store([str(root)])
    rows = [row for row in Scanned(store).rows if row["physical_offset"] < store.segments[0].end and row["msg_id"]]
    (root / store.segments[0].name).unlink()
    plan = plan_look_up(open_store([str(root)]), Selection(ids=(rows[-1]["msg_id"],)))
    assert plan is not None
    assert plan.way == "by a scan, for the index leads before the log's start"
    assert plan.told.startswith("5 index files, 1 candidate;")


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
        assert "It arrived; its record is destroyed. Its queue unit leads there: physical offset 208 874 lies in" in err
        assert "--at 208874" in err
        assert "no such record" not in err
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
        (("-k", "nothing"), 5, "It is not in this log, all of which was read. (no record has the key nothing)"),
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


find = runner("find", after=("-j", "1"))
found_by_key = runner("decode", after=("-j", "1"))

# Case -> how many keys only a scan finds, and what is said of the files.
CASES = {
    "idx_dir-4.9.7-c": (0, "3 index files, "),  # a folder among the files
    "idx_empty-5.1.4-c": (0, "1 of 2 index files, "),  # a file of no bytes
    "idx_header_zero-5.4.0-h": (1, "3 of 4 index files, "),
    "idx_long-4.2.0-c": (0, "3 index files, "),
    "idx_lost-4.9.7-h": (0, "no index files; scanned: "),
    "idx_trunc-5.2.0-c": (1, "2 of 3 index files, "),
}
KEYS = 4


def keys_of(store: Path) -> dict[str, list[int]]:
    """Return some keys all over the log, and the places of all records with them."""
    places: dict[str, list[int]] = {}
    for batch in message_rows(open_store([str(store)]), Request()):
        for place, keys in zip(*(batch.column(name).to_pylist() for name in ("physical_offset", "keys")), strict=True):
            for key in set(keys):
                places.setdefault(key, []).append(place)
    names = list(places)
    return {name: places[name] for name in names[:: -(-len(names) // KEYS)]}


@pytest.mark.parametrize("name", CASES)
def test_a_key_is_found_without_a_sound_index(find: Run, name: str) -> None:
    store = oracle.store("crash", name)
    size = sum(segment.size for segment in open_store([str(store)]).segments)
    scans = 0
    for key, places in keys_of(store).items():
        status, out, err = find(store, "-k", key, "-f", "jsonl")
        assert status == 0
        assert [int(place) for place in re.findall(r'"physical_offset":(\d+)', out)] == places
        assert CASES[name][1] in err
        if err.startswith("by a scan, for "):
            scans += 1
            assert f"scanned: physical 0 to {size:,}".replace(",", " ") in err
        else:
            assert re.search(r"by the index: .*; scanned, for they do not cover it: physical [\d ]+ to [\d ]+", err)
    assert scans >= CASES[name][0]


def test_decode_says_so_too(found_by_key: Run) -> None:
    _, out, err = found_by_key(oracle.store("crash", "idx_lost-4.9.7-h"), "-k", "K6")
    assert out.splitlines()[1].split()[0] == "5153"
    assert ": by a scan, for there is no usable index: no index files; scanned: physical 0 to " in err
