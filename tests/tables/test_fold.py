"""Folds of the log take exactly the records of `messages`, in order, and tell the same of what is not there."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import numpy as np
import pytest

import rmqinspect.tables.read_log
from rmqinspect.commitlog.scan import RecordRun
from rmqinspect.store.discover import open_store
from rmqinspect.store.model import Store
from rmqinspect.tables.log import MESSAGES_TABLE
from rmqinspect.tables.read_log import fold_log
from rmqinspect.tables.request import Request
from tests.support.side_tables import broker, crash
from tests.tables.test_messages import as_table

CASES = ("main-5.3.3", "dledger-4.9.7", "zero_page_last-4.7.1-h", "seg_missing_mid-4.9.7-c", "magic_third-5.5.0-h")


@dataclass(slots=True)
class Offsets:
    """Where records stand, and of each third queue the message ids."""

    places: list[int] = field(default_factory=list)
    ids: dict[int, str] = field(default_factory=dict)

    def take(self, run: RecordRun) -> None:
        self.places += (run.records.base + run.records.starts).tolist()
        some = run.records.select(np.flatnonzero(run.records.field("queue_id") % 3 == 0))
        for number, start in enumerate(some.starts.tolist()):
            if (value := some.properties.value_of(b"UNIQ_KEY", number)) is not None:
                self.ids[some.base + start] = value.decode()

    def join(self, following: Self) -> None:
        self.places += following.places
        self.ids |= following.ids


def read(store: Store, offsets: tuple[int, int] | None = None, jobs: int = 1) -> tuple[Offsets, list[object]]:
    """Return the fold of a store, and what was told."""
    told: list[object] = []
    tell = told.append
    request = Request(
        offsets=offsets, jobs=jobs, progress=tell, on_gap=lambda *gap: told.append(gap), on_unreadable=tell
    )
    folded = fold_log(store, request, Offsets)
    read_bytes = sum(size for size in told if isinstance(size, int))
    return folded, [*(one for one in told if not isinstance(one, int)), read_bytes]


def messages(store: Store, offsets: tuple[int, int] | None = None) -> tuple[Offsets, list[object]]:
    """Return the same from the table `messages`."""
    told: list[object] = []
    rows = as_table(MESSAGES_TABLE, store, Request(offsets=offsets, on_gap=lambda *gap: told.append(gap)))
    some = [row for row in rows.to_pylist() if row["queue_id"] % 3 == 0 and row["msg_id"] is not None]
    start, end = offsets or (0, 1 << 62)
    size = sum(max(0, min(one.end, end) - max(one.base, start)) for one in store.segments)
    ids = {row["physical_offset"]: row["msg_id"] for row in some}
    return Offsets(rows["physical_offset"].to_pylist(), ids), [*told, size]


@pytest.mark.parametrize("name", CASES)
def test_a_fold_takes_the_records_of_messages(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = broker(name) if name.startswith(("main", "dledger")) else crash(name)
    expected = messages(store)
    assert expected[0].places and expected[0].ids
    assert read(store) == expected
    monkeypatch.setattr(rmqinspect.tables.read_log, "SPLIT_SIZE", 40_009)
    assert read(store, jobs=3) == expected
    middle = (store.segments[0].base + 1, expected[0].places[-3])
    assert read(store, middle, jobs=2) == messages(store, middle)


def test_a_file_that_cannot_be_opened_is_told(tmp_path: Path) -> None:
    whole = broker("main-5.3.3")
    folder = tmp_path / "store" / "commitlog"
    folder.mkdir(parents=True)
    for segment in whole.segments:
        (folder / f"{segment.base:020}").write_bytes(Path(segment.path).read_bytes())
    store = open_store((str(tmp_path / "store"),))
    Path(store.segments[1].path).unlink()
    folded, told = read(store, jobs=2)
    lost = range(store.segments[1].base, store.segments[1].end)
    assert folded.places == [place for place in messages(whole)[0].places if place not in lost]
    assert any(str(one).startswith(f"commitlog/{lost.start:020}") for one in told)
