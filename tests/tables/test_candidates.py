"""Filters leave out records by their bytes: the same rows pass as of all records."""

import random
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rmqinspect.schemas.message import SysFlag
from rmqinspect.store.discover import open_store
from rmqinspect.store.model import Segment, Store
from rmqinspect.tables.filters import Selection
from rmqinspect.tables.log import message_rows, messages_in
from rmqinspect.tables.messages import SCHEMA
from rmqinspect.tables.request import Request
from tests.support import oracle
from tests.support.building import Piece, lay, write_segment
from tests.support.sampling import sampled

# Damage in the log, and layouts: IPv6, compressed bodies, DLedger, batches of messages, odd names.
CASES = [
    *(("crash", name) for name in oracle.cases("crash")[5::40]),
    *(("broker", name) for name in oracle.cases("broker")[1::5]),
]


def read(rows: Iterator[pa.RecordBatch], selection: Selection) -> tuple[pa.Table, list[str], list[str]]:
    """Return the rows that pass, the topics that match none, and what is near to the first."""
    table = pa.Table.from_batches([selection.select_rows(batch) for batch in rows], SCHEMA)
    unmatched = selection.unmatched_topics()
    return table, unmatched, [name for topic in unmatched for name in selection.near_topics(topic)]


def both_ways(store: Store, options: dict[str, Any], **request: Any) -> list[Any]:
    """Return what is read with all records, and with candidates only."""
    return [_read_store(store, Selection(**options), early, request) for early in (False, True)]


def _read_store(store: Store, selection: Selection, early: bool, request: dict[str, Any]) -> list[Any]:
    told: list[Any] = []
    asked = Request(
        records_of=(selection,) if early else (),
        on_gap=lambda *gap: told.append(gap),
        on_unreadable=told.append,
        **request,
    )
    return [*read(message_rows(store, asked), selection), told]


def selections(rows: list[dict[str, Any]], dice: random.Random, count: int) -> Iterator[dict[str, Any]]:
    """Yield options of selections about values of some rows, and about others that are like them."""
    for _ in range(count):
        filters = dict(options for row in dice.sample(rows, 1) for options in _options(row, dice))
        names = dice.sample(sorted(filters), dice.choice((1, 1, 1, 2, 3)))
        yield {name: filters[name] for name in names}


def _options(row: dict[str, Any], dice: random.Random) -> Iterator[tuple[str, Any]]:
    def altered(text: str) -> str:
        return dice.choice((text, text, text, text + "x", text[1:], text.swapcase()))

    yield "topics", (altered(row["topic"]), row["topic"][:2] + "*")[: dice.randint(1, 2)]
    yield "system_topics", False
    yield "host", (dice.choice((row["born_host"], "10.9.8.7", "::1")), dice.choice((None, row["born_port"])))
    yield "ids", (dice.choice((row["offset_msg_id"], row["offset_msg_id"].lower(), (row["msg_id"] or "none").lower())),)
    if row["tags"] is not None:
        yield "tags", (altered(row["tags"]), "other")
    if row["keys"]:
        yield "keys", ("other", altered(dice.choice(row["keys"])))
    if row["properties"]:
        name, value = dice.choice(row["properties"])
        yield "properties", ((name, dice.choice((None, altered(value)))),)
    if body := row["body"]:
        start = dice.randrange(len(body))
        yield "body_bytes", body[start : start + dice.choice((1, 3, 40))]
        yield "body_text", altered(body[start : start + 9].decode("utf-8", "replace"))


def check(store: Store, seed: str, count: int) -> None:
    rows = [row for batch in message_rows(store, Request(on_unreadable=lambda _: None)) for row in batch.to_pylist()]
    dice = random.Random(seed)
    for options in selections(rows, dice, count) if rows else ():
        more = dice.choice(({}, {}, {"jobs": 2}, {"raw_body": True}))
        plain, early = both_ways(store, options, **more)
        assert early == plain, (options, more)


@pytest.mark.parametrize(("family", "name"), sampled(CASES, 2))
def test_the_rows_of_a_real_store_are_the_same(family: oracle.Family, name: str, all_cases: bool) -> None:
    check(open_store([str(oracle.store(family, name))]), name, 12 if all_cases else 4)


ODD_TEXTS = (b"a\xffb", rb"a\xffb", rb"a\x5cxffb", "é".encode(), "\ufffd".encode(), b"\xc3", b"", b"A", b"x" * 300)


@pytest.fixture
def odd(tmp_path: Path) -> Segment:
    """A log with what is printed otherwise than it is stored, and compressed bodies."""
    compressed = {"sys_flag": int(SysFlag.COMPRESSED)}
    pieces: list[Piece] = [{"topic": b"t" + text, "body": text} for text in ODD_TEXTS if len(text) < 120]
    for text in ODD_TEXTS:
        items = {b"TAGS": text, b"KEYS": b"k " + text, b"UNIQ_KEY": text, b"color": text, text: b"v"}
        pieces.append({"properties": b"".join(name + b"\1" + value + b"\2" for name, value in items.items())})
        pieces.append({"body": zlib.compress(b"some " + text), **compressed})
        pieces.append({"body": b"not zlib " + text, **compressed})
    pieces.append({"born_host": "[2001:db8::7]:5", "body": bytes([192, 168, 1, 10])})
    return write_segment(tmp_path, lay(pieces))


@pytest.mark.parametrize("raw_body", [False, True])
def test_the_rows_of_odd_texts_are_the_same(odd: Segment, raw_body: bool) -> None:
    found = 0
    for text in [*ODD_TEXTS, b"color", b"not there"]:
        for shown in dict.fromkeys(text.decode("utf-8", how) for how in ("replace", "ignore", "backslashreplace")):
            for options in (
                {"tags": (shown,)},
                {"keys": (shown,)},
                {"ids": (shown,)},
                {"properties": ((shown, None),)},
                {"properties": (("color", shown), (shown, "v"))},
                {"topics": ("t" + shown,)},
                {"body_text": shown},
                {"body_bytes": text or b"\0"},
                {"host": ("2001:db8::7", None), "body_bytes": b"\xc0"},
            ):
                selection = Selection(**options)
                plain = read(messages_in([odd], Request(raw_body=raw_body)), selection)
                early = replace(selection, topics_seen=set())
                assert read(messages_in([odd], Request(records_of=(early,), raw_body=raw_body)), early) == plain, (
                    options
                )
                found += plain[0].num_rows
    assert found > 100


def test_a_needle_saves_the_columns_of_other_records(odd: Segment) -> None:
    selection = Selection(tags=("A",))
    batches = list(messages_in([odd], Request(records_of=(selection,))))
    assert (
        sum(batch.num_rows for batch in batches) < 10 < sum(batch.num_rows for batch in messages_in([odd], Request()))
    )


def test_a_record_that_was_carved_says_so_only_itself(tmp_path: Path) -> None:
    """The first record behind a gap is marked; if a filter leaves it out, no other is."""
    segment = write_segment(tmp_path, lay([{"body": b"a"}, b"?" * 40, {"body": b"b"}, {"body": b"c"}]))
    for text, status in (("b", "carved"), ("c", "ok")):
        selection = Selection(body_text=text)
        (row,) = read(messages_in([segment], Request(records_of=(selection,))), selection)[0].to_pylist()
        assert row["status"] == status
