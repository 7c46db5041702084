"""The judge of rescued stores: it finds nothing wrong with what real brokers wrote, and what is wrong where it is.

Bridges are made by hand here: a record that is gone has a filler in its place (a rollback record that nobody reads),
and its queue offset has the unit of a neighbour.
"""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from rmqinspect.schemas.consumequeue import QueueUnit
from rmqinspect.schemas.message import TRANSACTION_MASK
from tests.support import oracle
from tests.support.building import record
from tests.support.judge import judge
from tests.support.real_brokers import RELEASES, RealBrokers
from tests.support.sampling import sampled
from tests.support.truths import Record, records_of, truth_of

pytestmark = pytest.mark.broker

UNIT = QueueUnit.sizeof()
LOST = (0, 7, 8, 9, -1)  # the first record, three in a row, the last

Unit = Callable[[bytes, int], bytes]
"""From the units of a queue file and the number of the lost one to what stands there."""


def next_unit(units: bytes, lost: int) -> bytes:
    after = units[(lost + 1) * UNIT : (lost + 2) * UNIT]
    return after if any(after) else units[(lost - 1) * UNIT : lost * UNIT]


def same_unit(units: bytes, lost: int) -> bytes:
    return units[lost * UNIT : (lost + 1) * UNIT]


def no_unit(units: bytes, lost: int) -> bytes:
    return bytes(UNIT)


def base(release: str, folder: Path) -> tuple[Path, list[Record], dict[str, object]]:
    name = f"base-{release}-clean"
    root = oracle.copy("crash", name, folder)
    return root, records_of(root), dict(oracle.case("crash", name)["settings"])


def bridge(root: Path, records: Sequence[Record], lost: Sequence[int], unit: Unit) -> None:
    """Put a filler in the place of each lost record, and `unit` into its place in its queue."""
    sizes = sorted(int(path.name) for path in (root / "commitlog").iterdir())
    for one in (records[number] for number in sorted(lost, key=lambda number: -number % len(records))):
        base = max(start for start in sizes if start <= one.physical_offset)
        overwrite(root / "commitlog" / f"{base:020}", one.physical_offset - base, filler(one))
        for message, _ in one.messages:
            home = root / "consumequeue" / message.topic / str(message.queue_id)
            path, at = queue_file(home, message.queue_offset * UNIT)
            overwrite(path, at, unit(path.read_bytes(), at // UNIT))


def filler(lost: Record) -> bytes:
    stored = int.from_bytes(lost.raw[56:64], "big")
    head = len(record(topic=b"", body=b""))
    return record(
        lost.physical_offset,
        topic=b"",
        body=bytes(len(lost.raw) - head),
        sys_flag=TRANSACTION_MASK,
        store_timestamp=stored,
    )


def queue_file(home: Path, at: int) -> tuple[Path, int]:
    start = max(int(path.name) for path in home.iterdir() if int(path.name) <= at)
    return home / f"{start:020}", at - start


def overwrite(path: Path, at: int, new: bytes) -> None:
    raw = bytearray(path.read_bytes())
    raw[at : at + len(new)] = new
    path.write_bytes(raw)


@pytest.mark.parametrize("release", sampled(RELEASES, 4))
def test_stores_of_brokers_are_right(release: str, real_brokers: RealBrokers, tmp_path: Path) -> None:
    root, records, settings = base(release, tmp_path)
    truth = truth_of(records)
    assert len(truth.messages) > 200
    assert judge(real_brokers, release, root, truth, settings) == []


@pytest.mark.parametrize("release", sampled(RELEASES, 2))
def test_bridged_stores_are_right(release: str, real_brokers: RealBrokers, tmp_path: Path) -> None:
    root, records, settings = base(release, tmp_path)
    bridge(root, records, LOST, next_unit)
    truth = truth_of(records, root)
    assert len(truth.maybe) >= len(LOST) - 1  # a rollback record is no message
    assert judge(real_brokers, release, root, truth, settings) == []


@pytest.mark.parametrize(
    ("unit", "said"),
    [
        (same_unit, "messages come with other bytes"),  # the filler is served
        (no_unit, "do not come"),  # the queue ends there
    ],
)
def test_a_wrong_unit_is_found(unit: Unit, said: str, real_brokers: RealBrokers, tmp_path: Path) -> None:
    root, records, settings = base("5.3.3", tmp_path)
    bridge(root, records, (40, 41, 42), unit)
    wrong = judge(real_brokers, "5.3.3", root, truth_of(records, root), settings, unclean=(True,), puts=False)
    assert any(said in text for text in wrong), wrong


def test_a_log_that_is_cut_and_an_index_without_entries_are_found(real_brokers: RealBrokers, tmp_path: Path) -> None:
    root, records, settings = base("5.3.3", tmp_path)
    last = records[-1].physical_offset
    path = max((root / "commitlog").iterdir(), key=lambda path: int(path.name) if int(path.name) <= last else -1)
    overwrite(path, last - int(path.name), b"\0\0\0\0")
    shutil.rmtree(root / "index")
    wrong = judge(real_brokers, "5.3.3", root, truth_of(records), settings, unclean=(False,))
    assert any("do not come" in text or "ends at" in text for text in wrong)
    assert any("does not find" in text for text in wrong)
