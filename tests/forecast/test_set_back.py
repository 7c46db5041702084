"""The way to start with a flipped bit set back: walked over the file as it would be, against a file that is so."""

import shutil
from pathlib import Path

import pytest

from rmqinspect.damage.flipped_bit import flipped_bit
from rmqinspect.forecast.instead import same_answer
from rmqinspect.forecast.outcome import Alternative, Verdict
from rmqinspect.forecast.versions import ForecastRequest, forecast
from rmqinspect.store.discover import open_store
from rmqinspect.store.model import StoreFile
from rmqinspect.store.reader import open_file
from tests.broker.damages import flip_bit, set_field
from tests.broker.property_run import carry_out
from tests.support import oracle
from tests.support.sampling import sampled


def set_back_in(store: Path, release: str) -> list[Alternative]:
    found = forecast(open_store([str(store)]), ForecastRequest(release=release, instead=True))
    return [way for way in found.instead if way.remedy.bits]


FLIPPED = [name for name in oracle.cases("crash") if name.startswith("flip_body")]


@pytest.mark.parametrize("name", sampled(FLIPPED, 3))
def test_the_way_is_what_a_start_of_the_repaired_store_does(name: str, tmp_path: Path) -> None:
    store, release = oracle.copy("crash", name, tmp_path), oracle.truth("crash", name)["opened_by"]
    before = {path: path.read_bytes() for path in (store / "commitlog").iterdir()}
    ways = set_back_in(store, release)
    rejected = forecast(open_store([str(store)]), ForecastRequest(release=release)).worst.rejected
    if rejected is None or rejected.rule != "body_crc":
        assert not ways or rejected is not None
        return
    (way,) = ways
    assert way.is_better and way.outcome.verdict is Verdict.SAFE
    assert before == {path: path.read_bytes() for path in before}, "nothing is written"
    carry_out(way, store)
    repaired = forecast(open_store([str(store)]), ForecastRequest(release=release)).worst
    assert same_answer(repaired) == same_answer(way.outcome)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("magic", "^8"),
        ("total_size", "^1024"),
        ("body_size", "^512"),
        ("properties_size", "^2"),
        ("body_crc", "^65536"),
        ("physical_offset", "^1048576"),
    ],
)
@pytest.mark.parametrize("release", ["4.9.7", "5.5.0"])
def test_a_bit_of_the_head_is_set_back_too(field: str, value: str, release: str, tmp_path: Path) -> None:
    base = f"base-{release}-halt"
    store = oracle.copy("crash", base, tmp_path)
    set_field(store, segment=-2, record=6, field=field, value=value)
    (changed,) = (
        path.name
        for path in (store / "commitlog").iterdir()
        if path.read_bytes() != (oracle.store("crash", base) / "commitlog" / path.name).read_bytes()
    )
    ways = set_back_in(store, release)
    worst = forecast(open_store([str(store)]), ForecastRequest(release=release)).worst
    if worst.rejected is None:
        assert not ways  # this release does not look at it
        return
    (way,) = ways
    carry_out(way, store)
    assert (store / "commitlog" / changed).read_bytes() == (
        oracle.store("crash", base) / "commitlog" / changed
    ).read_bytes()
    assert way.outcome.losses.messages == 0


def test_several_bits_are_set_back_one_after_the_other(tmp_path: Path) -> None:
    store = oracle.copy("crash", "base-5.3.3-halt", tmp_path)
    for record in (3, 9):
        flip_bit(store, segment=-3, record=record, byte=120, bit=2)
    (way,) = set_back_in(store, "5.3.3")
    assert len(way.remedy.bits) == 2
    assert way.outcome.verdict is Verdict.SAFE


def test_two_flipped_bits_of_one_record_are_not_set_back(tmp_path: Path) -> None:
    store = oracle.copy("crash", "base-5.3.3-halt", tmp_path)
    for byte in (120, 125):
        flip_bit(store, segment=-3, record=3, byte=byte, bit=2)
    assert set_back_in(store, "5.3.3") == []


def test_every_read_of_a_file_has_the_bytes_set_back(tmp_path: Path) -> None:
    content = bytes(range(100))
    path = tmp_path / "file"
    path.write_bytes(content)
    file = StoreFile(str(path), "file", 100, "other", set_back=((10, 0xAA), (99, 0xBB)))
    right = content[:10] + b"\xaa" + content[11:99] + b"\xbb"
    with open_file(file) as reader:
        assert reader.read(0, 100) == right
        for start in (0, 9, 10, 11, 98, 99):
            for size in (1, 2, 50):
                assert reader.read(start, size) == right[start : start + size]
    shutil.copyfile(path, tmp_path / "copy")
    assert path.read_bytes() == content


def test_a_bit_in_a_hole_is_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with path.open("wb") as sparse:
        sparse.truncate(1 << 20)
    with open_file(StoreFile(str(path), "file", 1 << 20, "other", set_back=((70_000, 1),))) as reader:
        assert reader.next_allocated(0) <= 70_000
        assert reader.read(69_999, 3) == b"\0\1\0"


def test_a_sound_record_has_no_flipped_bit() -> None:
    store = open_store([str(oracle.store("crash", "base-5.5.0-clean"))])
    assert flipped_bit(store.segments[0], 0) is None
    assert flipped_bit(store.segments[0], store.segments[0].end) is None
