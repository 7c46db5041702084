"""Tables of queues, index and configuration: their cases, their rows, and small stores."""

from datetime import datetime
from pathlib import Path
from typing import Any

from rmqinspect.rocksdb.unpack import unpacked
from rmqinspect.schemas.consumequeue import QueueUnit
from rmqinspect.store.discover import open_store
from rmqinspect.store.model import Store
from rmqinspect.tables.request import Request
from rmqinspect.tables.table import BATCH_ROWS, Table
from tests.support import oracle

BROKERS = oracle.cases("broker")
# Their queues and most of their configuration live in RocksDB, which only the extra reads.
ROCKSDB = tuple(name for name in BROKERS if name.startswith("rocksdb-"))
FILE_QUEUES = tuple(name for name in BROKERS if name not in ROCKSDB)

UNDAMAGED = tuple(name for name in oracle.cases("crash") if not oracle.is_damaged(name))
# Undamaged stores whose log the broker truncates: by a setting, or by a version that does not know V2 records.
# Their queues are truncated with the log.
CUT = {
    "none-4.7.1-h-to-4.3.2",
    "none-5.2.0-g-forceVerifyPropCRC",
    "none-5.3.3-c-forceVerifyPropCRC",
    "none-5.3.3-h-to-4.9.7",
    "none-5.4.0-g-forceVerifyPropCRC",
}


def rows(table: Table, store: Store, request: Request | None = None) -> list[dict[str, Any]]:
    """Return the rows of a table; assert that every batch is valid, not empty, and has the table's schema."""
    found = []
    for batch in table.rows(store, request or Request()):
        batch.validate(full=True)
        assert batch.schema.equals(table.schema, check_metadata=True)
        assert 0 < batch.num_rows <= BATCH_ROWS
        found += batch.to_pylist()
    return found


def broker(name: str) -> Store:
    return open_store([str(oracle.store("broker", name))])


def rows_of_broker(table: Table, name: str) -> list[dict[str, Any]]:
    """Return the rows of a table of a broker's store, with what it keeps in RocksDB where the extra is installed."""
    with unpacked(broker(name), only=table.databases) as store:
        return rows(table, store)


def crash(name: str) -> Store:
    return open_store([str(oracle.store("crash", name))])


def milliseconds(moment: datetime | None) -> int:
    return 0 if moment is None else round(moment.timestamp() * 1000)


def write(root: Path, name: str, raw: bytes) -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(raw)
    return path


def store_of(root: Path) -> Store:
    (root / "commitlog").mkdir(exist_ok=True)
    return open_store([str(root)])


def units_of(*units: tuple[int, int, int]) -> bytes:
    names = ("physical_offset", "size", "tags_code")
    return b"".join(QueueUnit.build(dict(zip(names, unit, strict=True))) for unit in units)
