"""Stores without queue files, in which one record contradicts the order of those around it in its queue."""

import shutil
from pathlib import Path

import pytest

from rmqinspect.rescue.sequences import Sequences, read_sequences
from rmqinspect.rescue.sources import judge_source
from rmqinspect.store.discover import open_store
from tests.broker.damages import Damage, damage
from tests.rescue.test_salvage import salvage, sound_records
from tests.support import oracle

BASE = "base-5.3.3-clean"
_AMID, _LAST = (0, 40), (-1, -1)  # segment, record: 2 of TopicA/1, and the last one of orders/0


def without_queues(folder: Path, field: str, value: str, record: tuple[int, int]) -> Path:
    store = oracle.copy("crash", BASE, folder)
    shutil.rmtree(store / "consumequeue")
    damage(store, Damage("set_field", {"segment": record[0], "record": record[1], "field": field, "value": value}))
    return store


@pytest.mark.parametrize(
    ("field", "value"), [("queue_offset", "^4"), ("queue_offset", "+1000000"), ("queue_id", "^1"), ("sys_flag", "^4")]
)
def test_the_order_of_a_queue_proves_what_a_record_was(field: str, value: str, tmp_path: Path) -> None:
    made, records = salvage(tmp_path / "new", without_queues(tmp_path / "store", field, value, _AMID))
    assert made.holds
    assert made.is_complete
    assert [row.field for row in made.receipt.repaired] == [field.upper().replace("_", "")]
    assert records == sound_records(open_store([str(oracle.store("crash", BASE))]))


@pytest.mark.parametrize(
    ("field", "value", "record"),
    [("queue_offset", "^4", _AMID), ("queue_offset", "+1000000", _LAST), ("sys_flag", "^12", _AMID)],
)
def test_what_has_no_proof_is_left_aside(field: str, value: str, record: tuple[int, int], tmp_path: Path) -> None:
    store = without_queues(tmp_path / "store", field, value, record)
    made, records = salvage(tmp_path / "new", store, repairs=field == "sys_flag")
    assert made.holds
    (aside,) = made.receipt.aside
    assert "contradicts" in aside.why
    before = sound_records(open_store([str(store)]))
    assert records == {place: raw for place, raw in before.items() if place != aside.start}


def test_a_hole_in_a_queue_is_no_reason_not_to_make_a_store(tmp_path: Path) -> None:
    """Nothing says that a last record which skips offsets is wrong; a bridge says that its store is salvaged."""
    made, records = salvage(tmp_path / "new", without_queues(tmp_path / "store", "queue_offset", "+4", _LAST))
    assert made.holds
    assert len(made.receipt.bridged) == 1
    assert len(records) == len(sound_records(open_store([str(oracle.store("crash", BASE))])))


def test_records_at_their_offsets_are_not_in_doubt(tmp_path: Path) -> None:
    store = without_queues(tmp_path / "store", "flag", "+1", _AMID)
    assert salvage(tmp_path / "new", store)[0].is_complete
    opened = open_store([str(store)])
    source = judge_source("one", opened, opened.segment_size or 0, jobs=1, release=None, progress=lambda size: None)
    assert read_sequences(source) == Sequences()
