"""Two faults in one record, or in two that follow each other: each is repaired by its own witness."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from rmqinspect.rescue.sources import read_log
from rmqinspect.store.discover import open_store
from tests.rescue.test_salvage import salvage
from tests.support import oracle

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


def test_properties_that_are_no_text_are_left_aside(tmp_path: Path) -> None:
    """Brokers write them as UTF-8; of bytes that are not, more may be wrong than shows."""
    made, _ = salvage(tmp_path / "new", damaged(*HALT, tmp_path, [(11_229 + 283, 7)]))
    assert [row.start for row in made.receipt.aside] == [11_229]
    assert made.holds
