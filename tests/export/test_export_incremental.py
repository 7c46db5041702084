"""Exports of a store that grows, loses its first segments, or was cut and written anew."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace

from rmqinspect.commitlog.find_record import Unread
from rmqinspect.commitlog.gaps import Split
from rmqinspect.errors import Refused
from rmqinspect.export.request import MESSAGES, ExportRequest
from rmqinspect.export.target import INCREMENTAL, Target
from rmqinspect.store.discover import open_store
from rmqinspect.store.model import Store
from rmqinspect.tables.filters import Selection
from rmqinspect.tables.read_log import LogSplitRead, read_split
from tests.support.building import fill, lay, pad, various, write_segment
from tests.support.exporting import add, expected, export, exported, names, planned

SIZE = 4096
PIECES = various(100)
WISH = ExportRequest(file_size=5_000)


class Broker:
    """A log of segments of 4 KiB, written as a broker does it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.log = root / "commitlog"
        self.pieces: list[list[dict[str, Any]]] = [[]]

    def put(self, count: int, **changes: Any) -> None:
        first = sum(map(len, self.pieces))
        for piece in (PIECES * 2)[first : first + count]:
            piece = piece | changes
            base = (len(self.pieces) - 1) * SIZE
            if len(lay([*self.pieces[-1], piece], base)) > SIZE - 8:
                self.pieces.append([])
            self.pieces[-1].append(piece)
        self.write()

    def write(self) -> None:
        for number, pieces in enumerate(self.pieces):
            raw = lay(pieces, number * SIZE)
            closed = number + 1 < len(self.pieces)
            write_segment(self.log, fill(raw, SIZE) if closed else pad(raw, SIZE), number * SIZE)

    def cut(self, segments: int) -> None:
        """Forget all from a segment on, as a start of the broker may."""
        for path in sorted(self.log.iterdir())[segments:]:
            path.unlink()
        self.pieces = [*self.pieces[:segments], []]

    @property
    def store(self) -> Store:
        return replace(open_store([str(self.root)]), name="b")


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    made = Broker(tmp_path / "store")
    made.put(90)
    return made


@pytest.fixture
def lake(broker: Broker, tmp_path: Path) -> Path:
    """Return an export of the log as it is."""
    export(tmp_path / "lake", [broker.store], WISH)
    return tmp_path / "lake"


def assert_same(folder: Path, broker: Broker, request: ExportRequest = WISH) -> None:
    """Make sure that an export holds every message once, and those that were removed from the store not at all."""
    rows = exported(folder, "b", MESSAGES, request)
    order = pa.compute.sort_indices(rows.column("physical_offset"))
    assert rows.take(order).combine_chunks().equals(expected(broker.store, MESSAGES).combine_chunks())


def test_what_is_new_is_added_and_the_rest_stays(broker: Broker, lake: Path) -> None:
    first = {name: (lake / name).stat().st_mtime_ns for name in names(lake)}
    assert len(first) > 2
    broker.put(60)
    outcome = add(lake, [broker.store], WISH)
    assert set(outcome.names).isdisjoint(first)
    assert first.items() <= {name: (lake / name).stat().st_mtime_ns for name in names(lake)}.items()
    assert_same(lake, broker)
    assert outcome.manifest.rows(MESSAGES) == 150


def test_nothing_new_writes_nothing(broker: Broker, lake: Path) -> None:
    before = names(lake)
    outcome = add(lake, [broker.store], WISH)
    assert outcome.nothing_new
    assert outcome.manifest.rows(MESSAGES) == 90
    assert names(lake) == before


@pytest.mark.parametrize("steps", [(1, 1, 1), (30, 7, 50, 3), (64,)])
def test_many_small_steps_give_the_rows_of_one(steps: tuple[int, ...], tmp_path: Path) -> None:
    broker, lake = Broker(tmp_path / "store"), tmp_path / "lake"
    for step in steps:
        broker.put(step)
        add(lake, [broker.store], WISH)
    assert_same(lake, broker)


def test_an_empty_log_is_a_beginning(tmp_path: Path) -> None:
    broker, lake = Broker(tmp_path / "store"), tmp_path / "lake"
    broker.write()
    add(lake, [broker.store], WISH)
    assert exported(lake, "b", MESSAGES, WISH).num_rows == 0
    broker.put(40)
    add(lake, [broker.store], WISH)
    assert_same(lake, broker)


def test_closed_only_takes_the_open_segment_when_it_is_full(broker: Broker, tmp_path: Path) -> None:
    lake, request = tmp_path / "lake", replace(WISH, closed_only=True)
    export(lake, [broker.store], request)
    held = exported(lake, "b", MESSAGES, WISH).num_rows
    assert held == sum(map(len, broker.pieces[:-1]))
    assert add(lake, [broker.store], request).nothing_new
    broker.put(60)
    add(lake, [broker.store], request)
    assert exported(lake, "b", MESSAGES, WISH).num_rows == sum(map(len, broker.pieces[:-1])) > held
    add(lake, [broker.store], WISH)
    assert_same(lake, broker)


def test_rows_of_expired_segments_stay(broker: Broker, lake: Path) -> None:
    (broker.log / f"{0:020}").unlink()
    outcome = add(lake, [broker.store], WISH)
    assert outcome.nothing_new
    assert outcome.planned[0].plan.expired == 1
    assert exported(lake, "b", MESSAGES, WISH).num_rows == 90


@pytest.mark.parametrize("kept", [0, 1, 2])
def test_a_log_that_was_cut_and_written_anew_is_refused_and_can_be_replaced(
    kept: int, broker: Broker, lake: Path
) -> None:
    before = names(lake)
    broker.cut(kept)
    broker.put(45, topic="another")
    target = Target(str(lake), INCREMENTAL, [])
    with pytest.raises(Refused, match=f"b: segment {kept * SIZE} differs .*--replace-changed"):
        planned(broker.store, WISH, target.earlier)
    assert names(lake) == before
    add(lake, [broker.store], WISH, replace_changed=True)
    assert_same(lake, broker)


def test_a_log_that_became_shorter_is_refused_too(broker: Broker, lake: Path) -> None:
    broker.cut(1)
    broker.write()
    with pytest.raises(Refused, match="differs"):
        add(lake, [broker.store], WISH)
    add(lake, [broker.store], WISH, replace_changed=True)
    assert_same(lake, broker)


def test_a_log_that_was_cut_and_grew_less_since_is_refused_too(tmp_path: Path) -> None:
    lake, broker = tmp_path / "lake", Broker(tmp_path / "store")
    pieces = various(200)
    before = pad(lay(pieces), 1 << 17)
    write_segment(broker.log, before)
    export(lake, [broker.store], WISH)
    # Truncation erases nothing: the first and last 4 KiB are what they were.
    newer = [{"topic": "another", "store_timestamp": 1_800_000_000_000 + number} for number in range(9)]
    raw = lay([*pieces[:100], *newer])
    write_segment(broker.log, raw + before[len(raw) :])
    with pytest.raises(Refused, match="b: segment 0 differs"):
        add(lake, [broker.store], WISH)
    add(lake, [broker.store], WISH, replace_changed=True)
    assert_same(lake, broker)
    assert "another" in exported(lake, "b", MESSAGES, WISH).column("topic").to_pylist()


def test_a_log_that_was_cut_between_two_segments_is_refused_too(broker: Broker, lake: Path) -> None:
    kept = len(broker.pieces) - 1
    for path in sorted(broker.log.iterdir())[kept:]:
        path.unlink()
    with pytest.raises(Refused, match=f"b: segment {kept * SIZE} of the export of .* is gone, .*--replace-changed"):
        add(lake, [broker.store], WISH)
    outcome = add(lake, [broker.store], WISH, replace_changed=True)
    plan = outcome.planned[0].plan
    assert (plan.cut, plan.replaced, plan.expired) == ([kept * SIZE], [kept * SIZE], 0)
    assert exported(lake, "b", MESSAGES, WISH).num_rows == sum(map(len, broker.pieces[:kept]))
    assert_same(lake, broker)
    assert add(lake, [broker.store], WISH).nothing_new


def test_what_could_not_be_read_is_missed_until_it_is_read(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, bad = tmp_path / "lake", broker.store.segments[1]

    def read(split: Split, new: Any) -> Any:
        is_bad = split.segment.path == bad.path
        for item in read_split(replace(split, end=split.start) if is_bad else split, new):
            if is_bad and isinstance(item, LogSplitRead):
                item.unread.append(Unread(bad.base, bad.base + SIZE, f"{bad.name}: Input/output error"))
            yield item

    with monkeypatch.context() as patch:
        patch.setattr("rmqinspect.export.part.read_split", read)
        assert not export(lake, [broker.store], WISH).manifest.complete
    held = exported(lake, "b", MESSAGES, WISH).num_rows
    assert held == 90 - len(broker.pieces[1])
    broker.put(20)
    for _ in range(2):  # also when nothing is new
        outcome = add(lake, [broker.store], WISH)
        assert outcome.manifest.stores[0].unread == [
            f"{bad.name}: not read whole by the earlier export; --replace-changed exports it again"
        ]
    assert exported(lake, "b", MESSAGES, WISH).num_rows == held + 20
    assert add(lake, [broker.store], WISH, replace_changed=True).manifest.complete
    assert_same(lake, broker)
    assert add(lake, [broker.store], WISH).manifest.complete


def test_a_hole_in_the_log_is_no_cut(broker: Broker, lake: Path) -> None:
    (broker.log / f"{SIZE:020}").unlink()
    outcome = add(lake, [broker.store], WISH)
    assert (outcome.planned[0].plan.cut, outcome.planned[0].plan.expired) == ([], 1)
    assert exported(lake, "b", MESSAGES, WISH).num_rows == 90


def test_other_tables_are_written_again_as_a_whole(broker: Broker, tmp_path: Path) -> None:
    lake, request = tmp_path / "lake", ExportRequest((MESSAGES, "segments", "gaps"), 5_000)
    export(lake, [broker.store], request)
    broker.put(60)
    add(lake, [broker.store], request)
    assert_same(lake, broker, request)
    for table in ("segments", "gaps"):
        there = exported(lake, "b", table, request)
        here = expected(broker.store, table)
        if table == "gaps":
            there, here = there.drop_columns("witnesses"), here.drop_columns("witnesses")
        assert there.equals(here.combine_chunks())


def test_filters_hold_for_what_is_added(broker: Broker, tmp_path: Path) -> None:
    request = replace(WISH, selection=Selection(queue_id=1))
    lake = tmp_path / "lake"
    export(lake, [broker.store], request)
    broker.put(60)
    add(lake, [broker.store], request)
    rows = exported(lake, "b", MESSAGES, request)
    everything = expected(broker.store, MESSAGES)
    assert rows.num_rows == everything.filter(pa.compute.equal(everything.column("queue_id"), 1)).num_rows > 0


def test_what_is_lost_is_lost_once(tmp_path: Path) -> None:
    broker, lake = Broker(tmp_path / "store"), tmp_path / "lake"
    raw = bytearray(pad(lay(various(60)), 1 << 15))
    raw[4_000:6_000] = b"\xff" * 2_000  # over a border of files
    write_segment(broker.log, bytes(raw))
    request = ExportRequest((MESSAGES, "gaps"), 5_000, selection=Selection(offsets=(0, 3_000)))
    first = export(lake, [broker.store], request).manifest.stores[0]
    assert [(start < 4_000, end >= 6_000, kind) for start, end, kind in first.lost] == [(True, True, "unknown")]
    assert first.end == 5_000
    for _ in range(2):
        assert add(lake, [broker.store], request).manifest.stores[0].lost == first.lost


def test_a_second_store_joins_later(broker: Broker, lake: Path, tmp_path: Path) -> None:
    other = Broker(tmp_path / "other")
    other.put(20)
    outcome = add(lake, [broker.store, replace(other.store, name="c")], WISH)
    assert {name.split("/")[1][0] for name in outcome.names} == {"c"}
    assert outcome.manifest.rows(MESSAGES) == 110
