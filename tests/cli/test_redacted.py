"""With all words of `--redact`, no command prints a sensitive value of the messages: searched for in all its output.

In CI some stores that hold all kinds of values; `RMQINSPECT_ALL_STORES=1 pytest tests/cli/test_redacted.py` takes all.
"""

import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqinspect.store.discover import open_store
from rmqinspect.tables import TABLES
from rmqinspect.tables.redact import REDACTABLE
from rmqinspect.tables.request import Request
from tests.support import oracle
from tests.support.command import Run, runner
from tests.support.sampling import rare, sampled

run = runner()

STORES = ("main-5.4.0", "ext-5.3.3", "main-4.7.1")
ALL = [name for name in oracle.cases("broker") if not name.startswith("rocks")]
HOSTS = ("born_host", "store_host", "msg_id", "offset_msg_id")
_TELLING = 6  # characters: shorter values, such as `true`, stand anywhere
# What may be shown: names of topics and groups, and what brokers write themselves.
_NAMES = re.compile(r"%\w+%|TOPIC|GROUP|CLUSTER|REGION|BROKER|^\d+$|^\d+ \d+", re.ASCII)


@pytest.mark.parametrize("name", [*sampled(STORES, 3), *(rare(name) for name in ALL if name not in STORES)])
def test_no_sensitive_value_is_printed(run: Run, tmp_path: Path, name: str) -> None:
    store = oracle.store("broker", name)
    rows = [
        row
        for one in TABLES["messages"].rows(open_store([str(store)]), Request(raw_body=True))
        for row in one.to_pylist()
    ]
    values = sensitive(rows)
    assert len(values) > 100
    places = [row["physical_offset"] for row in rows]
    ids = [row["msg_id"] for row in rows if row["msg_id"] and row["keys"] and row["topic"].isalnum()]
    for words in _commands(store, places, ids[0], tmp_path):
        _, out, err = run(*words, "--redact", ",".join(REDACTABLE))
        said = f"{out}\n{err}".replace(ids[0], "")  # the id that is asked for
        shown = [value for value in values if value in said]
        assert not shown, (words, shown[:5])


def _commands(store: Path, places: list[int], msg_id: str, out: Path) -> Iterator[list[str]]:
    yield from (["decode", str(store), "--table", table, "-f", "jsonl"] for table in TABLES)
    yield from (["decode", str(store), "--table", table, "-n", "40"] for table in TABLES)
    segments = [str(path) for path in sorted((store / "commitlog").iterdir())]
    yield from (["decode", "--carve", *segments, "-f", format_] for format_ in ("table", "jsonl", "csv"))
    for verb in ("groups", "delays", "transactions", "usage", "verify"):
        yield from ([verb, str(store), "-f", format_] for format_ in ("table", "json"))
    yield ["report", str(store)]
    yield from (["sql", f"FROM {table}", str(store), "-f", "jsonl"] for table in TABLES)
    yield ["sql", f"SELECT * FROM messages WHERE msg_id = '{msg_id}'", str(store), "-f", "json"]
    yield ["rebuild", str(store), "-o", str(out / "new")]
    yield ["salvage", str(store), "-o", str(out / "saved")]
    for format_ in ("table", "json"):
        yield ["find", str(store), "--id", msg_id, "-f", format_]
        yield ["diff", str(store), str(store), "-f", format_]
        step = max(1, len(places) // 12)
        yield from (["show", str(store), "--at", str(place), "-f", format_] for place in places[::step])
    yield ["find", str(store), "--scan", "--life", "-f", "json", "-n", "30"]


def sensitive(rows: list[dict[str, Any]]) -> list[str]:
    """Return what the words of `--redact` promise to hide: bodies, keys, tags, values of properties, hosts and ids."""
    found: set[str] = set()
    names = {row[name] for row in rows for name in ("topic", "real_topic") if row[name]}
    for row in rows:
        properties = dict(row["properties"] or ())
        names |= {value for name, value in properties.items() if _NAMES.search(name)}
        found |= {str(row[name]) for name in HOSTS if row[name]}
        found |= {*(row["keys"] or ()), row["tags"] or "", *properties.values()}
        found.add((row["body"] or b"")[:24].decode("utf-8", "replace"))
    telling = (value for value in found if value and len(value) >= _TELLING and not _NAMES.search(value))
    crcs = {crc for row in rows if row["body"] for crc in checksums(row["body"])}
    return [*crcs, *(value for value in telling if not any(value in name for name in names if name))]


def checksums(body: bytes) -> set[str]:
    """Return the body's checksum as records have it, decimal and hex; none that may be a place in the log."""
    crc = zlib.crc32(body) & 0x7FFFFFFF
    return {str(crc), f"{crc:08x}"} if crc > 1 << 24 else set()
