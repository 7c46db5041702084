"""Every word that an output of rmqinspect uses as a value, and the name of every file of a store, leads somewhere."""

import re
from collections.abc import Iterator

import pytest

from rmqinspect.broker.copies import RECORD_KINDS
from rmqinspect.broker.pull import STATUSES as PULL_STATUSES
from rmqinspect.choices import LEVELS
from rmqinspect.codec.traces import LAYOUTS, RESULTS
from rmqinspect.codec.traces import STATUSES as TRACE_STATUSES
from rmqinspect.diff.result import KINDS
from rmqinspect.explain.lookup import explain
from rmqinspect.find import REASONS
from rmqinspect.store import without_rows
from rmqinspect.store.directory import PLACES
from rmqinspect.tables import TABLES
from rmqinspect.tables.messages import STATUSES
from rmqinspect.verify.codes import CODES
from rmqinspect.verify.finding_rows import SCHEMA
from tests.support.samples import ROOT

# Columns whose values are words. Their comments list the words.
COLUMNS = {"kind", "severity", "state", "status", "transaction"}


def words_of_columns() -> Iterator[tuple[str, str]]:
    """Yield (column, word) from the comments: `ok, behind_min (messages lost), no_queue; null without queues`."""
    for name, schema in {**{name: table.schema for name, table in TABLES.items()}, "findings": SCHEMA}.items():
        for field in schema:
            if field.name in COLUMNS and (name, field.name) != ("messages", "status"):
                words = re.sub(r" \([^)]*\)", "", field.metadata[b"doc"].decode()).split(";")[0]
                for word in words.split(", "):
                    yield f"{name}.{field.name}", word.removeprefix("or ").split(":")[0]


def named_in_code(path: str, pattern: str) -> set[str]:
    """Return the words that a pattern finds in a file of the package."""
    found = set(re.findall(pattern, (ROOT / "rmqinspect" / path).read_text(encoding="utf-8")))
    assert len(found) > 2, path
    return found


OTHERS: dict[str, set[str]] = {
    "status of a message": set(STATUSES),
    "difference": set(KINDS),
    "kind of record": set(RECORD_KINDS),
    "answer to a pull": set(PULL_STATUSES),
    "message trace": {*LAYOUTS, *RESULTS[1:], *TRACE_STATUSES},
    "reason of a miss": set(REASONS),
    "level": set(LEVELS),
    "severity": {code.severity for code in CODES},
    "kind of a file": {kind for _, kind in PLACES} | {"other"},
    "file without rows": {*without_rows.NAMES, *without_rows.KINDS},
    "oddity": named_in_code("store/discover.py", r'_note\("(\w+)"'),
    "verdict": named_in_code("verify/result.py", r'"(DAMAGED|WHOLE|INCOMPLETE)'),
    "last exit": named_in_code("show/overview.py", r'"(running|unknown|unclean|clean)"'),
    "change": {"added", "gone", "changed"},
    "kind of a place": {"record", "blank", "entry", "zeros", "unknown"},
    "file": {
        pattern[0].split("*")[0].removesuffix(".[0-9]") for pattern, _ in PLACES if not pattern[0].startswith("dledger")
    },
    "file of config": {"topics.json", "consumerOffset.json", "delayOffset.json", "subscriptionGroup.json"},
}


@pytest.mark.parametrize("where", OTHERS)
def test_every_word_of_an_output_is_explained(where: str) -> None:
    assert [word for word in sorted(OTHERS[where]) if not explain(word)] == []


def test_every_word_of_a_column_is_explained() -> None:
    words = list(words_of_columns())
    assert {"no_queue", "pre_blank", "preallocated", "warning", "filler", "rollback"} <= {word for _, word in words}
    assert [found for found in words if not explain(found[1])] == []


@pytest.mark.parametrize(
    ("word", "meaning"),
    [
        ("abort", "If it exists at startup, the last exit was unclean"),
        ("no_queue", "nothing was written to it, or its folder is lost"),
        ("timercheckpoint", "config/timercheck"),
        ("epochFileCheckpoint", "the start offset of each master epoch"),
    ],
)
def test_a_word_says_what_it_is(word: str, meaning: str) -> None:
    assert any(meaning in found.meaning for found in explain(word))
    assert all(found.next for found in explain(word))


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("commitlog/00000000000000065536", ["segment"]),
        ("/data/store/consumequeue/TopicA/0/00000000000000000000", ["queue"]),
        ("00000000000000065536", ["segment", "queue"]),
        ("index/20261121084845096", ["index"]),
        ("20261121084845096", ["index"]),
        ("/data/store/config/topics.json", ["topics.json"]),
        ("commitlog/foo.bak", []),
        ("commitlog/", ["commitlog"]),
    ],
)
def test_a_file_is_known_by_its_path(path: str, names: list[str]) -> None:
    assert [found.name for found in explain(path)] == names


def test_a_name_of_20_digits_says_where_the_file_begins() -> None:
    (found,) = explain("commitlog/00000000000000065536")
    assert found.values == (("00000000000000065536", "the file begins at byte 65 536 of its log or queue"),)
