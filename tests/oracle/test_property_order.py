"""The order of properties is a writer's own: what is told of delays, transactions and lives does not rest on it."""

from pathlib import Path
from typing import Any

import pytest

from rmqinspect.commitlog.gaps import Split
from rmqinspect.commitlog.scan import RecordRun, scan_split
from rmqinspect.find.life import trace_life
from rmqinspect.store.discover import open_store
from rmqinspect.store.model import Store
from rmqinspect.tables.delays import DELAYS
from rmqinspect.tables.groups import GROUPS
from rmqinspect.tables.log import MESSAGES_TABLE
from rmqinspect.tables.transactions import TRANSACTIONS
from tests.support import oracle
from tests.support.sampling import sampled
from tests.support.side_tables import broker, rows

NAMES = ("main-5.3.3", "halt-4.9.7")
LIVES = 12


def reversed_properties(root: Path) -> int:
    """Write the properties of each record in the other order; return of how many. Their CRC does not cover them."""
    changed = 0
    for segment in open_store([str(root)]).segments:
        raw = bytearray(Path(segment.path).read_bytes())
        for event in scan_split(Split(segment, 0, segment.size), 1 << 20):
            if not isinstance(event, RecordRun):
                continue
            found = event.records
            shift = found.base - segment.base
            for start, end in zip(found.properties_starts.tolist(), found.properties_ends.tolist(), strict=True):
                text = bytes(raw[start + shift : end + shift])
                items = [item for item in text.split(b"\x02") if item]
                names = {item.partition(b"\x01")[0] for item in items}
                if len(names) == len(items) > 1 and b"__CRC32#" not in names:
                    other = b"\x02".join(reversed(items)) + b"\x02" * text.endswith(b"\x02")
                    assert len(other) == len(text)
                    raw[start + shift : end + shift] = other
                    changed += 1
        Path(segment.path).write_bytes(raw)
    return changed


def without_order(row: dict[str, Any]) -> dict[str, Any]:
    return row | {"properties": dict(row["properties"])} if "properties" in row else row


@pytest.mark.parametrize("name", sampled(NAMES, 2))
def test_tables_and_lives_are_the_same_in_another_order(name: str, tmp_path: Path) -> None:
    before = broker(name)
    after = reorder(name, tmp_path)
    for table in (DELAYS, TRANSACTIONS, GROUPS, MESSAGES_TABLE):
        assert [*map(without_order, rows(table, before))] == [*map(without_order, rows(table, after))], table.name
    places = [row["physical_offset"] for row in rows(MESSAGES_TABLE, before)]
    for place in places[:: max(1, len(places) // LIVES)]:
        assert told(before, place) == told(after, place)


def reorder(name: str, folder: Path) -> Store:
    root = oracle.copy("broker", name, folder)
    assert reversed_properties(root) > 100
    return open_store([str(root)])


def told(store: Store, place: int) -> list[Any]:
    life = trace_life(store, place)
    kinds = [(step.physical_offset, step.copy) for step in life.steps]
    return [kinds, life.transaction, life.cancelled_by, life.others, life.stored_twice, life.entries, life.remarks]
