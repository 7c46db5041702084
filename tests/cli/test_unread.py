"""No answer is made of something that was not read: it is incomplete, with exit status 4, and says what is missing.

Every command takes a stand here: what of a store it needs, for each way to ask it.
"""

import json
import re
import shutil
import sys
from collections.abc import Set
from itertools import product
from pathlib import Path
from typing import NamedTuple

import pytest

from rmqinspect.cli import VERBS
from rmqinspect.errors import Unreadable
from rmqinspect.store.discover import open_store
from rmqinspect.tables import TABLES
from rmqinspect.tables.request import Request
from rmqinspect.verify.result import VerifyOptions
from rmqinspect.verify.run import verify
from tests.support import oracle
from tests.support.command import Run, runner
from tests.support.sampling import sampled

run = runner()

QUEUES, OFFSETS, TOPICS, GROUPS, ENTRIES = "queues", "offsets", "topics", "groups", "entries"
# Store -> what it keeps in RocksDB; half messages are in the log of all of them.
KEEPS = {
    "rocksdb-5.3.3": {QUEUES, OFFSETS, TOPICS, GROUPS},
    "rocksdb-5.4.0": {QUEUES, OFFSETS, TOPICS, GROUPS},
    "rocksopt-5.5.0": {ENTRIES},
}
FOLDERS = {
    "consumequeue": QUEUES,
    "config/consumerOffsets": OFFSETS,
    "config/topics": TOPICS,
    "config/subscriptionGroups": GROUPS,
    "rocksdbstore": ENTRIES,
}


class Ask(NamedTuple):
    """A way to ask a command. Words in capitals stand for what is in the store."""

    words: str
    needs: Set[str] = frozenset()
    otherwise: int = 0  # the exit status where all of it is read
    says: str = ""  # where it is not read, though the status is the same: the record itself is all there


ASKS: dict[str, list[Ask]] = {
    "info": [Ask("STORE", {*FOLDERS.values()}), Ask("STORE -f json", {*FOLDERS.values()})],
    "decode": [
        *(
            Ask(f"STORE --table {name} -f json", {FOLDERS[one] for one in table.databases if one in FOLDERS})
            for name, table in TABLES.items()
        ),
        Ask("STORE -t TOPIC --queue QUEUE --queue-offset OFFSET"),
        Ask("STORE -t TOPIC --queue QUEUE --queue-offset 99999 -f json", {QUEUES}, 5),
        Ask("STORE -t TOPIC --queue QUEUE --queue-offset 99999 --scan", {QUEUES}, 5),
        Ask("STORE -t %LMQ%nobody", {QUEUES}, 5),
        Ask("STORE -k nobody", otherwise=5),
        Ask("STORE --unconsumed GROUP -f json", {OFFSETS, QUEUES, TOPICS}),
    ],
    "find": [
        Ask("STORE --id ID", {QUEUES, OFFSETS, TOPICS}),
        Ask("STORE --id ID -f json", {QUEUES, OFFSETS, TOPICS}),
        Ask("STORE -t TOPIC --queue QUEUE --queue-offset OFFSET --life", {QUEUES, OFFSETS, TOPICS}),
        Ask("STORE --id ID --no-life"),
        Ask("STORE --id ID -f csv"),
        Ask("STORE -t TOPIC --queue QUEUE --queue-offset 99999", {QUEUES}, 5),
        Ask("STORE -t %LMQ%nobody", {QUEUES}, 5),
        Ask("STORE -k nobody", otherwise=5),
        Ask("STORE --pull TOPIC QUEUE OFFSET", {QUEUES}),
        Ask("STORE --pull TOPIC QUEUE OFFSET -f json", {QUEUES}),
        Ask("STORE --offset-by-time TOPIC QUEUE now -f json", {QUEUES}),
    ],
    "transactions": [Ask("STORE", {OFFSETS, ENTRIES}), Ask("STORE -f json", {OFFSETS, ENTRIES})],
    "delays": [Ask("STORE", {QUEUES, ENTRIES}), Ask("STORE -f json", {QUEUES, ENTRIES})],
    "groups": [
        Ask("STORE", {OFFSETS, QUEUES, TOPICS}),
        Ask("STORE -f json", {OFFSETS, QUEUES, TOPICS}),
        Ask("STORE --unconsumed GROUP -f json", {OFFSETS, QUEUES, TOPICS}),
    ],
    "usage": [Ask("STORE", {OFFSETS, QUEUES}), Ask("STORE -f json")],
    "verify": [
        Ask("STORE", {*FOLDERS.values()}),
        Ask("STORE -f json", {*FOLDERS.values()}),
        Ask("STORE --level standard", {QUEUES, OFFSETS, TOPICS, GROUPS}),
        Ask("STORE --level quick"),
    ],
    "forecast": [Ask("STORE", {QUEUES}), Ask("STORE -f json", {QUEUES})],
    "report": [Ask("STORE", {*FOLDERS.values()})],
    "rebuild": [Ask("STORE -o OUT", {*FOLDERS.values()})],
    "salvage": [Ask("STORE -o OUT", {*FOLDERS.values()})],
    "sql": [
        Ask("FROM/**/groups STORE -f json", {OFFSETS, QUEUES, TOPICS}),
        Ask("SELECT/**/count(*)FROM/**/queue_units STORE -f json", {QUEUES}),
        Ask("SELECT/**/count(*)FROM/**/messages STORE -f json"),
    ],
    "export": [
        Ask("STORE --all --engine local -o OUT", {*FOLDERS.values()}),
        Ask("STORE --table messages --engine local -o OUT"),
    ],
    "show": [
        Ask("STORE --id ID", says="queues are in RocksDB, which is not read"),
        Ask("STORE -t TOPIC --queue QUEUE --queue-offset 99999", {QUEUES}, 5),
    ],
    "diff": [
        Ask("STORE STORE", {QUEUES, OFFSETS, TOPICS}),
        Ask("STORE STORE -f json", {QUEUES, OFFSETS, TOPICS}),
    ],
    "id": [],  # no store
    "explain": [],
}

# What is said of something that is not there, or that is all there.
FALSE = re.compile(
    r"VERDICT +(WHOLE|SAME)|no such queue|none has an offset|no group has an offset|no (consume queue|consumer offsets)"
    r"|in no queue|in the queues and| 0 groups"
)


def test_every_command_takes_a_stand() -> None:
    assert list(ASKS) == list(VERBS)


@pytest.mark.parametrize(("verb", "name"), sampled(product([verb for verb, asks in ASKS.items() if asks], KEEPS), 2))
def test_without_the_extra_nothing_is_made_of_what_rocksdb_keeps(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, verb: str, name: str
) -> None:
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    store = oracle.store("broker", name)
    named = {"STORE": str(store), **_named(store)}
    for number, ask in enumerate(ASKS[verb]):
        words = [named.get(word, word) for word in ask.words.replace("OUT", str(tmp_path / str(number))).split()]
        status, out, err = run(verb, *words)
        missing = ask.needs & KEEPS[name]
        assert status == (4 if missing else ask.otherwise), (words, out, err)
        said = " ".join(f"{out} {err}".split())
        if missing:
            assert re.search("RocksDB.*(not read|needs the library)|not checked.*RocksDB", said), (words, said)
            assert "INCOMPLETE" in said or verb != "verify"
            assert not FALSE.search(said), (words, said)
        elif KEEPS[name] != {ENTRIES}:
            assert ask.says in said
        if "-f json" in ask.words and out:
            assert json.loads(out)["complete"] is not bool(missing), words


def _named(store: Path) -> dict[str, str]:
    """Return what words in capitals stand for: a message of the store that a producer sent, and a group."""
    rows = (row for one in TABLES["messages"].rows(open_store([str(store)]), Request()) for row in one.to_pylist())
    row = next(row for row in rows if row["topic"].isalnum() and row["keys"] and row["transaction"] == "none")
    columns = {"TOPIC": "topic", "QUEUE": "queue_id", "OFFSET": "queue_offset", "ID": "msg_id"}
    return {word: str(row[name]) for word, name in columns.items()} | {"GROUP": "CID_RMQ_SYS_REVIVE_GROUP"}


@pytest.mark.parametrize("name", [name for name, keeps in KEEPS.items() if QUEUES in keeps])
def test_python_is_told_of_databases_that_were_not_read(name: str) -> None:
    store = open_store([str(oracle.store("broker", name))])
    assert not verify(store, VerifyOptions()).complete
    with pytest.raises(Unreadable, match=r"consumequeue: not read: RocksDB, which rmqinspect\.unpacked\(store\) reads"):
        list(TABLES["queues"].rows(store, Request()))
    told: list[str] = []
    assert not list(TABLES["queues"].rows(store, Request(on_unreadable=told.append)))
    assert len(told) == 1
    assert list(TABLES["messages"].rows(store, Request()))


@pytest.mark.parametrize("words", ["find STORE -k no-such-key", "transactions STORE", "delays STORE", "decode STORE"])
@pytest.mark.parametrize(("proof", "status"), [("queues", 4), ("index", 4), ("", 0)])
def test_a_log_that_is_not_here_is_not_an_empty_one(
    words: str, proof: str, status: int, run: Run, tmp_path: Path
) -> None:
    whole = oracle.store("broker", "main-5.3.3")
    for folder in ("config", "consumequeue", "index"):
        if folder in ("config", "consumequeue" if proof == "queues" else proof):
            shutil.copytree(whole / folder, tmp_path / folder)
    (tmp_path / "commitlog").mkdir()
    verb, _, *others = words.split()
    found, printed, said = run(verb, tmp_path, *others)
    assert found == (status or (5 if verb == "find" else 0))
    assert ("the log is not here" in said) == bool(proof)
    assert verb != "find" or ("UNREAD" in said + printed) == bool(proof)
    if verb == "find" and proof:
        (scope,) = json.loads(run(verb, tmp_path, *others, "-f", "json")[1])["stores"]
        assert (scope["whole"], scope["complete"]) == (False, False)
