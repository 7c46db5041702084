"""The loops over bytes stay inside of their arrays and of 64 bits, on damaged stores too; and what would see if not."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from rmqinspect.loops.arrays import BytesOut, Ints, TableOut
from tests.properties.mutate import run
from tests.support import oracle
from tests.support.samples import NAMES, sample
from tests.support.sampling import sampled
from tests.support.strict import strict_loops, strictly

STORES: list[tuple[oracle.Family, str]] = [
    ("broker", "main-5.5.0"),
    ("broker", "ext-4.9.7"),
    ("broker", "dledger-4.9.7"),
    ("broker", "halt-5.1.4"),
    ("crash", "size_huge_third-4.7.1-c"),
    ("crash", "queueid_third-4.3.2-h"),
]
QUESTIONS = (["usage"], ["transactions"], ["delays"], ["find", "--body-contains", "row"])


@pytest.mark.parametrize("name", sampled((*(name for _, name in STORES), *NAMES), 20))
def test_all_indexes_and_sums_are_sound(name: str, tmp_path: Path) -> None:
    families = {known: family for family, known in STORES}
    store = str(oracle.store(families[name], name) if name in families else sample(name))
    for command in (["verify", "--level", "deep"], ["decode"], ["decode", "--table", "queue_units"], *QUESTIONS):
        words = [command[0], store, *command[1:], "-f", "csv", "-j", "1"]
        plain = run(words, tmp_path / "out")
        with strict_loops():
            assert run(words, tmp_path / "out") == plain


def touch(numbers: Ints, raw: BytesOut, table: TableOut, at: int) -> int:
    raw[at] = 1
    raw[at : at + 2] = raw[at - 1 : at + 1]
    table[at, 0] = numbers[at] + numbers[at]
    return at


strict_touch = strictly(touch)


def arrays(number: int = 1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return np.full(3, number, np.int64), np.zeros(3, np.uint8), np.zeros((3, 1), np.int64)


@pytest.mark.parametrize(
    "call",
    [
        lambda: strict_touch(*arrays(), -1),
        lambda: strict_touch(*arrays(), 3),
        lambda: strict_touch(*arrays(), 0),  # the slice from -1 on
        lambda: strict_touch(*arrays(), 2),  # the slice to 4
        lambda: strict_touch(*arrays(2**62), 1),  # the sum
        lambda: strict_touch(arrays()[0].astype(np.int32), *arrays()[1:], 1),
        lambda: strict_touch(*arrays()[:2], np.zeros((3, 3), np.int64).T, 1),
    ],
)
def test_what_is_not_sound_is_seen(call: Callable[[], int]) -> None:
    with pytest.raises(AssertionError):
        call()
    assert strict_touch(*arrays(), 1) == 1
