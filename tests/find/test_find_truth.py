"""What `find` finds in the stores of real brokers: what clients sent, and what the broker's own queries returned."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from rmqinspect.find.finding import Finding, Target
from rmqinspect.find.life import LIFE_DATABASES
from rmqinspect.find.misses import Miss
from rmqinspect.find.plan import plan_look_up
from rmqinspect.rocksdb.unpack import unpacked
from rmqinspect.store.discover import open_store
from rmqinspect.store.model import Store
from rmqinspect.tables.filters import Selection
from rmqinspect.tables.request import Request
from tests.support import oracle
from tests.support.rocksdb import needs_rocksdict
from tests.support.sampling import sampled

# A few of each era and layout; all 26 were compared once, with every query and every message.
STORES = (
    "halt-4.7.1",
    "lmq-4.9.7",
    "dledger-5.3.3",
    "ext-5.3.3",
    "main-5.5.0",
    pytest.param("rocksdb-5.4.0", marks=needs_rocksdict),
)
COLUMNS = frozenset({"physical_offset", "topic", "queue_id", "queue_offset", "msg_id", "offset_msg_id", "keys"})
QUERIES, MESSAGES = 6, 10  # of each store
# Their records wait in a topic of the broker, and are bound for the one they were sent to.
WAITING = ("delay", "timer", "timer-cancel", "transaction")


@contextmanager
def opened(name: str) -> Iterator[Store]:
    """Open a store, what its databases hold included."""
    with unpacked(open_store([str(oracle.store("broker", name))]), only=LIFE_DATABASES) as store:
        yield store


def search(store: Store, **filters: Any) -> tuple[list[int], list[Miss]]:
    """Return the places of all hits, and the misses."""
    selection = Selection(**filters)
    target = Target(store, selection, plan_look_up(store, selection), Request(columns=COLUMNS | {"transaction"}))
    finding = Finding([target], selection)
    places = [place for _, rows in finding.hits() for place in rows.column("physical_offset").to_pylist()]
    return sorted(set(places)), list(finding.misses())


def some(rows: Sequence[Any], number: int) -> Sequence[Any]:
    """Return some rows, evenly spread."""
    return rows[:: -(-len(rows) // number)] if rows else rows


@pytest.mark.parametrize("name", STORES)
def test_queries_by_key_and_offset_return_what_the_broker_returned(name: str) -> None:
    truth = oracle.truth("broker", name)
    # With times a broker compares seconds, of index entries; without, it returns up to so many.
    queries = [one for one in truth["queries_by_key"] if not one["begin"] and len(one["hits"]) < one["max_num"]]
    with opened(name) as store:
        for query in some(queries, QUERIES):
            exact = sorted({hit["physical_offset"] for hit in query["hits"] if hit["exact"]})
            topics, text = (query["topic"],), query["key"]
            assert sorted(search(store, topics=topics, keys=(text,), keys_name_ids=True)[0]) == exact, query
        for query in truth["queries_by_offset"]:
            place = query["physical_offset"]
            places, misses = search(store, offsets=(place, place + 1))
            assert (places, bool(misses)) == (([place], False) if query["found"] else ([], True))
            if query["found"]:
                assert search(store, ids=(query["offset_msg_id"],))[0] == [place]


@pytest.mark.parametrize("name", sampled(STORES, 2))
def test_every_message_is_found_by_its_ids_and_keys(name: str) -> None:
    sent = oracle.truth("broker", name)["sent"]
    kinds = {kind: [one for one in sent if one["kind"] == kind] for kind in {one["kind"] for one in sent}}
    with opened(name) as store:
        for message in (one for rows in kinds.values() for one in some(rows, -(-MESSAGES // len(kinds)))):
            place = int(message["offset_msg_id"][-16:], 16) if message.get("offset_msg_id") else None
            ids = [message.get(field) for field in ("msg_id", "client_uniq_key", "offset_msg_id")]
            for text in filter(None, ids):
                assert place in (None, *search(store, ids=(text,))[0]), (message["kind"], text)
            for key in (message.get("keys") or "").split():
                places, misses = search(store, topics=(message["topic"],), keys=(key,))
                if message["kind"] in WAITING and misses:
                    assert f"bound for {message['topic']}, is excluded by --topic" in misses[0].text
                else:
                    assert message["kind"] in WAITING or place in (None, *places), (message["kind"], key)


@pytest.mark.parametrize("name", sampled(["retention-4.9.7", "retention-5.3.3"], 2))
def test_messages_that_retention_deleted_are_expired(name: str) -> None:
    with opened(name) as store:
        gone = [
            one
            for one in oracle.truth("broker", name)["sent"]
            if one.get("offset_msg_id") and int(one["offset_msg_id"][-16:], 16) < store.log_start
        ]
        assert len(gone) > MESSAGES
        for message in some(gone, MESSAGES):
            for field in ("msg_id", "offset_msg_id"):
                places, misses = search(store, ids=(message[field],))
                assert (places, misses[0].reason) == ([], "EXPIRED"), message


def test_what_a_broker_finds_by_key_in_a_damaged_index_is_found() -> None:
    """And more: a broker that starts on such a store deletes index files, and cuts the log at the first bad record."""
    cases = [name for name in oracle.cases("crash") if name.startswith("idx_")]
    assert len(cases) > 10
    for name in cases:
        found = [one for one in oracle.truth("crash", name).get("keys", ()) if one["query_offsets"]]
        store = open_store([str(oracle.store("crash", name))])
        for one in found[:1]:
            topics, text = (one["topic"],), one["key"]
            places = {*search(store, topics=topics, keys=(text,))[0], *search(store, topics=topics, ids=(text,))[0]}
            assert places >= set(one["query_offsets"]), (name, one)
