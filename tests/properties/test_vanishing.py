"""One file that cannot be read, or that retention removes meanwhile, takes neither tables nor exports with it."""

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from rmqinspect.store import reader
from rmqinspect.store.discover import open_store
from rmqinspect.store.model import StoreFile
from rmqinspect.tables import TABLES
from rmqinspect.tables.request import Request
from tests.properties.test_hidden import small
from tests.support.command import Run, runner

run = runner()

FILES = {
    "queue_units": "consumequeue/orders/0/*",
    "queues": "consumequeue/orders/0/*",
    "groups": "consumequeue/orders/0/*",
    "delay_offsets": "consumequeue/SCHEDULE_TOPIC_XXXX/2/*",
    "index_files": "index/*",
    "index_entries": "index/*",
    "messages": "commitlog/*",
    "segments": "commitlog/*",
    "gaps": "commitlog/*",
}


def _link(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/null")


def _rows(store: Path, table: str) -> int:
    request = Request(on_unreadable=lambda message: None)
    return sum(batch.num_rows for batch in TABLES[table].rows(open_store([str(store)]), request))


@pytest.mark.parametrize("table", FILES)
def test_a_table_without_one_file_is_incomplete(table: str, tmp_path: Path, run: Run) -> None:
    store = small(tmp_path / "store")
    whole = _rows(store, table)
    path = min(store.glob(FILES[table]))
    _link(path)
    status, written, errors = run("decode", store, "--table", table, "-f", "json")
    document = json.loads(written)
    assert (status in (3, 4), document["complete"]) == (True, False)
    assert errors.count(f"{path.relative_to(store)}: ") == 1
    assert len(document["rows"]) == _rows(store, table)
    assert 0 < len(document["rows"]) <= whole


@pytest.mark.parametrize("pattern", sorted(set(FILES.values())))
def test_an_export_without_one_file_is_published(pattern: str, tmp_path: Path, run: Run) -> None:
    store, out = small(tmp_path / "store"), tmp_path / "out"
    path = min(store.glob(pattern))
    _link(path)
    assert run("export", store, "--all", "--engine", "local", "-o", out)[0] in (3, 4)
    manifest = json.loads((out / "_manifest.json").read_text())
    (entry,) = manifest["stores"]
    assert not entry["complete"]
    assert any(str(path.relative_to(store)) in message for message in entry["unread"])
    assert pq.read_table(out / "queues").num_rows == 3 - pattern.startswith("consumequeue")


@pytest.mark.parametrize("table", ["queues", "groups"])
def test_a_queue_that_loses_its_oldest_file_meanwhile_has_a_row(
    table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = small(tmp_path / "store")
    path = min(store.glob("consumequeue/orders/0/*"))
    opened = open_store([str(store)])
    init: Callable[..., None] = reader.FileReader.__init__

    def remove_first(self: reader.FileReader, file: StoreFile) -> None:
        path.unlink(missing_ok=True)
        init(self, file)

    monkeypatch.setattr(reader.FileReader, "__init__", remove_first)
    notes: list[str] = []
    (batch,) = TABLES[table].rows(opened, Request(on_unreadable=notes.append))
    row = next(row for row in batch.to_pylist() if (row["topic"], row["queue_id"]) == ("orders", 0))
    assert (row["min_offset"], row["max_offset"]) == (8, 20)
    assert {note.split(": ", 1)[1] for note in notes} == {"No such file or directory"}
