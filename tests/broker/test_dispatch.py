"""What is dispatched for many records at once is what the rules say of each alone."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqinspect.broker import dispatch
from rmqinspect.broker.dispatch import DIFFERENCES, Dispatched, Dispatcher
from rmqinspect.codec.java import index_hash, index_key, java_string_hash
from rmqinspect.commitlog.queue_offsets import QueueOffsets
from rmqinspect.commitlog.records import Records
from rmqinspect.loops.record_rows import KEY, SLACK, TAG, UNIQUE
from tests.support.building import lay
from tests.support.loop_ways import loop_way

BASE = 1 << 40
TRANSACTIONS = st.sampled_from([0, 0x4, 0x8, 0xC])
VALUES = st.sampled_from(["TagA", "标签", "1", "12345", "100000", "-3", "a b", " a  bc ", "x" * 40, "😀 é", " "])
NAMES = st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "REAL_TOPIC", "DELAY", "INNER_NUM", "other"])
PIECES = st.fixed_dictionaries(
    {
        "topic": st.sampled_from(["TopicTest", "Other", "主题"]),
        "queue_id": st.integers(0, 2),
        "queue_offset": st.integers(0, 1 << 40),
        "sys_flag": TRANSACTIONS,
        "store_timestamp": st.integers(0, 1 << 43),
        "properties": st.dictionaries(NAMES, VALUES, max_size=6),
    }
)


def dispatched(runs: Sequence[Sequence[dict[str, Any]]], **asked: Any) -> tuple[Dispatched, list[int]]:
    """Return the columns of some runs of records, and where each record lies."""
    queues, dispatcher, places = QueueOffsets(), Dispatcher(**asked), list[int]()
    for run in runs:
        raw = lay(run, BASE)
        starts = np.cumsum([0, *(len(lay([piece])) for piece in run)], dtype=np.int64)[:-1]
        records = Records.at(memoryview(raw + bytes(SLACK)), BASE, starts)
        sound = np.arange(len(run)) % 2 == 0
        dispatcher.take(records, queues.number(records), queues.queues, sound)
        places += (BASE + starts).tolist()
    return dispatcher.columns(queues.queues), places


def number(text: str) -> int:
    return int(text) if text.isdigit() and len(text) < 6 else 1


def keys_of(piece: dict[str, Any]) -> list[tuple[int, int]]:
    """Return (hash, kind) of each index key of a record."""
    properties, topic = piece["properties"], piece["topic"]
    if piece["sys_flag"] == 0xC:
        return []
    texts = [(properties[name], kind) for name, kind in (("UNIQ_KEY", UNIQUE),) if name in properties]
    texts += [(word, KEY) for word in properties.get("KEYS", "").split(" ") if word]
    texts += [("T#" + properties["TAGS"], TAG)] if "TAGS" in properties else []
    return [(index_hash(index_key(topic, text)), kind) for text, kind in texts]


@pytest.mark.parametrize("mode", ["uncompiled", "compiled"])
@settings(deadline=None, max_examples=50)  # the first example compiles
@given(runs=st.lists(st.lists(PIECES, max_size=5), max_size=3), room=st.integers(1, 3))
def test_columns_say_of_each_record_what_the_rules_say(mode: str, runs: list[list[dict[str, Any]]], room: int) -> None:
    with loop_way(mode), pytest.MonkeyPatch.context() as patch:
        patch.setattr(dispatch, "_FEW", room)
        found, places = dispatched(runs, keys=True, real_topics=True)
    pieces = [piece for run in runs for piece in run]
    properties = [piece["properties"] for piece in pieces]
    assert found.physical_offset.tolist() == places
    assert found.size.tolist() == [len(lay([piece])) for piece in pieces]
    assert [found.queues[queue] for queue in found.queue] == [(p["topic"].encode(), p["queue_id"]) for p in pieces]
    for name in ("queue_offset", "store_timestamp"):
        assert getattr(found, name).tolist() == [piece[name] for piece in pieces]
    for name, column in (("TAGS", found.tags_code), ("REAL_TOPIC", found.real_topic)):
        assert column.tolist() == [java_string_hash(texts.get(name, "")) for texts in properties]
    assert found.messages.tolist() == [number(texts.get("INNER_NUM", "")) for texts in properties]
    assert found.delayed.tolist() == ["DELAY" in texts for texts in properties]
    assert found.entitled.tolist() == [piece["sys_flag"] in (0, 0x8) for piece in pieces]
    assert found.sound.tolist() == [at % 2 == 0 for run in runs for at in range(len(run))]
    keys = [(at, *key) for at, piece in enumerate(pieces) for key in keys_of(piece)]
    assert list(zip(found.key_record, found.key_hash, found.key_kind, strict=True)) == keys


@pytest.mark.parametrize("mode", ["uncompiled", "compiled"])
def test_what_is_not_asked_for_is_not_there(mode: str) -> None:
    properties = {"KEYS": "a b", "TAGS": "t", "REAL_TOPIC": "r", "INNER_NUM": "3"}
    with loop_way(mode):
        bare, _ = dispatched([[{"properties": properties}]], keys=False, rules=())
        old, _ = dispatched([[{"properties": properties}]], keys=True, rules=set(DIFFERENCES) - {"tag_keys"})
    assert (bare.real_topic.tolist(), bare.messages.tolist(), len(bare.key_hash)) == ([0], [1], 0)
    assert old.key_kind.tolist() == [KEY, KEY]
    assert old.messages.tolist() == [3]


def test_a_record_of_as_many_keys_as_its_properties_hold() -> None:
    words = " ".join("k" * 16_000)
    found, _ = dispatched([[{"properties": {"KEYS": words}}] * 3], keys=True)
    assert found.key_record.tolist() == [at for at in range(3) for _ in range(16_000)]
    assert set(found.key_hash.tolist()) == {index_hash(index_key("TopicTest", "k"))}
