"""Columns of random and damaged records: the same from compiled and uncompiled loops, and as Python would take them."""

from ipaddress import ip_address
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqinspect.codec.message_id import offset_msg_id
from rmqinspect.store.discover import open_store
from rmqinspect.tables.log import MESSAGES_TABLE
from rmqinspect.tables.request import Request
from tests.support.building import lay, various, write_segment
from tests.support.loop_ways import loop_way

PARTS = st.sampled_from(
    ["UNIQ_KEY\x01", "KEYS\x01", "TAGS\x01", "REAL_TOPIC\x01", "\x01", "\x02", "\x02", " ", "key", "ö"]
)
TEXTS = st.lists(PARTS, max_size=15).map(lambda parts: "".join(parts).encode())


def rows(raw: bytes, mode: str) -> pa.Table:
    with TemporaryDirectory() as folder, loop_way(mode):
        store = open_store([write_segment(Path(folder), raw).path])
        return pa.Table.from_batches(list(MESSAGES_TABLE.rows(store, Request())), MESSAGES_TABLE.schema)


@settings(max_examples=60, deadline=None)
@given(
    texts=st.lists(TEXTS, min_size=1, max_size=8),
    changes=st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 255)), max_size=6),
)
def test_compiled_and_uncompiled_rows_are_the_same(texts: list[bytes], changes: list[tuple[int, int]]) -> None:
    first: dict[str, Any] = {}  # stays whole: a store begins with a record
    pieces = [first, *({**piece, "properties": text} for piece, text in zip(various(8), texts, strict=False))]
    raw, safe = bytearray(lay(pieces)), len(lay([first]))
    for at, value in changes:
        raw[safe + at % (len(raw) - safe)] = value
    compiled = rows(bytes(raw), "compiled")
    compiled.validate(full=True)
    assert compiled == rows(bytes(raw), "uncompiled")


@settings(max_examples=50, deadline=None)
@given(texts=st.lists(TEXTS, min_size=1, max_size=8))
def test_columns_are_the_values_of_the_map(texts: list[bytes]) -> None:
    found = rows(lay([{"properties": text} for text in texts]), "uncompiled").to_pylist()
    for row in found:
        properties = dict(row["properties"])
        assert len(properties) == len(row["properties"])
        assert row["msg_id"] == properties.get("UNIQ_KEY")
        assert row["tags"] == properties.get("TAGS")
        assert row["keys"] == [key for key in properties.get("KEYS", "").split(" ") if key]
        assert row["real_topic"] == properties.get("REAL_TOPIC", properties.get("RETRY_TOPIC"))


def test_ids_name_the_store_host_of_either_width_and_the_place() -> None:
    for row in rows(lay(various(4)), "uncompiled").to_pylist():
        address = ip_address(row["store_host"]).packed
        assert row["offset_msg_id"] == offset_msg_id(address, row["store_port"], row["physical_offset"])
