"""Two faults in one record, or in two that follow each other: each is repaired by its own witness."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from rmqinspect.rescue.sources import read_log
from rmqinspect.store.discover import open_store
from tests.rescue.test_salvage import salvage
from tests.support import oracle
from tests.support.building import STORED, lay, pad, write_segment

Flip = tuple[int, int]  # physical offset, bit

HALT: tuple[oracle.Family, str] = ("crash", "base-5.3.3-halt")
FIRST, SECOND = 11_906, 12_151  # records that follow each other; the first has a key and a unit
BODY_CRC, QUEUE_OFFSET, STORE_TIME = 8, 27, 56


def damaged(family: oracle.Family, name: str, folder: Path, flips: Sequence[Flip]) -> Path:
    """Return a copy of a recorded store with some bits flipped."""
    store = oracle.copy(family, name, folder)
    for place, bit in flips:
        segment = open_store([str(store)]).segment_at(place)
        assert segment is not None
        path = Path(segment.path)
        raw = bytearray(path.read_bytes())
        raw[place - segment.base] ^= 1 << bit
        path.write_bytes(raw)
    return store


@pytest.mark.parametrize(
    ("case", "flips", "fields"),
    [
        (HALT, [(FIRST + BODY_CRC, 0), (FIRST + STORE_TIME, 1)], ["BODYCRC", "STORETIMESTAMP"]),
        (HALT, [(FIRST + QUEUE_OFFSET, 1), (FIRST + STORE_TIME, 1)], ["QUEUEOFFSET", "STORETIMESTAMP"]),
        # Neither is between the times of its neighbours, of which one is wrong.
        (HALT, [(FIRST + STORE_TIME, 1), (SECOND + STORE_TIME + 2, 0)], ["STORETIMESTAMP"] * 2),
        (("broker", "main-5.4.0"), [(123_277 + 84, 4), (123_277 + 264, 2)], ["BODYLEN", "__CRC32#"]),
        (("broker", "main-5.1.4"), [(274_520 + 39, 2), (274_520 + 192, 4)], ["SYSFLAG", "PROPERTIES"]),
    ],
)
def test_each_fault_is_repaired(
    case: tuple[oracle.Family, str], flips: list[Flip], fields: list[str], tmp_path: Path
) -> None:
    made, _ = salvage(tmp_path / "new", damaged(*case, tmp_path, flips))
    assert [row.field for row in made.receipt.repaired] == fields
    whole, new = (open_store([str(path)]) for path in (oracle.store(*case), tmp_path / "new"))
    assert read_log(new, flips[0][0] - 300, 1000) == read_log(whole, flips[0][0] - 300, 1000)
    assert made.holds


def with_step(folder: Path, step: int, at: int, damaged_one: int | None = None) -> tuple[Path, bytes]:
    """Return a store before whose record `at` the clock was set back by `step` seconds, and its sound log."""
    times = [STORED + 1000 * number - (1000 * step if number >= at else 0) for number in range(24)]
    message = {"topic": "T", "body": b"x" * 40}
    whole = lay([message | {"queue_offset": number, "store_timestamp": time} for number, time in enumerate(times)])
    raw = bytearray(whole)
    if damaged_one is not None:
        raw[whole.index(times[damaged_one].to_bytes(8, "big")) - STORE_TIME + 95] ^= 1  # a bit of its body
    write_segment(folder / "store" / "commitlog", pad(bytes(raw), 8192))
    return folder / "store", whole


@pytest.mark.parametrize("step", [10, 70, 600])
@pytest.mark.parametrize("damaged_one", [11, 12])  # the last record before the step, and the first behind it
def test_the_time_of_a_repaired_record_stays_where_the_clock_was_set_back(
    step: int, damaged_one: int, tmp_path: Path
) -> None:
    store, whole = with_step(tmp_path, step, 12, damaged_one)
    made, _ = salvage(tmp_path / "new", store)
    assert [row.field for row in made.receipt.repaired] == ["BODY"]
    assert read_log(open_store([str(tmp_path / "new")]), 0, len(whole)) == whole


@pytest.mark.parametrize("step", [10, 600, 90_000])
@pytest.mark.parametrize("at", [1, 4, 12, 20, 22])
def test_no_time_of_a_sound_log_is_changed_where_the_clock_was_set_back(step: int, at: int, tmp_path: Path) -> None:
    store, whole = with_step(tmp_path, step, at)
    made, _ = salvage(tmp_path / "new", store)
    assert not made.receipt.repaired
    assert read_log(open_store([str(tmp_path / "new")]), 0, len(whole)) == whole


def test_properties_that_are_no_text_are_left_aside(tmp_path: Path) -> None:
    """Brokers write them as UTF-8; of bytes that are not, more may be wrong than shows."""
    made, _ = salvage(tmp_path / "new", damaged(*HALT, tmp_path, [(11_229 + 283, 7)]))
    assert [row.start for row in made.receipt.aside] == [11_229]
    assert made.holds
