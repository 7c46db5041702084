"""Ext consume queues: sizes of their units, and addresses that lead to them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from rmqinspect.schemas.consumequeue import EXT_ADDRESS_BASE, EXT_END_OF_FILE, ExtHead, ExtUnit
from rmqinspect.verify.result import VerifyResult
from tests.support import oracle
from tests.support.whole_stores import WholeStore
from tests.verify.test_queue_checks import judge, many, put, queue_file, reported, units

HEAD = ExtHead.sizeof()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A store whose queue orders/0 keeps its tags codes in ext units, every second one with a bitmap."""
    root = WholeStore(many()).write(tmp_path / "store")
    path, raw = queue_file(root), b""
    for row, unit in enumerate(units(path)):
        if not unit.size:
            break
        put(path, row, tags_code=EXT_ADDRESS_BASE + len(raw))
        bitmap = bytes(14 * (row % 2))
        raw += ExtUnit.build(
            {
                "size": HEAD + len(bitmap),
                "tags_code": unit.tags_code,
                "store_timestamp": 0,
                "bitmap_size": len(bitmap),
                "bitmap": bitmap,
            }
        )
    home = root / "consumequeue_ext" / "orders" / "0"
    home.mkdir(parents=True)
    (home / f"{0:020}").write_bytes(raw.ljust(1000, b"\0"))
    return root


def ext_file(folder: Path) -> Path:
    return folder / "consumequeue_ext" / "orders" / "0" / f"{0:020}"


def write(path: Path, at: int, raw: bytes) -> None:
    old = path.read_bytes()
    path.write_bytes(old[:at] + raw + old[at + len(raw) :])


def codes(outcome: VerifyResult) -> list[str]:
    return sorted({code for code, _, _ in reported(outcome)})


def address(offset: int, row: int = 1) -> Callable[[Path], None]:
    return lambda folder: put(queue_file(folder), row, tags_code=EXT_ADDRESS_BASE + offset)


DAMAGE: dict[str, tuple[Callable[[Path], None], list[str]]] = {
    "nothing": (lambda folder: None, []),
    "an end mark where the next unit would not fit": (
        lambda folder: write(ext_file(folder), 900, EXT_END_OF_FILE.to_bytes(2, "big", signed=True)),
        [],
    ),
    "a unit too small": (lambda folder: write(ext_file(folder), 0, b"\0\x05"), ["EX-ADDRESS", "EX-SIZE"]),
    "a unit larger than its file": (lambda folder: write(ext_file(folder), 0, b"\x7f\xff"), ["EX-ADDRESS", "EX-SIZE"]),
    "a negative size": (lambda folder: write(ext_file(folder), 0, b"\x80\0"), ["EX-ADDRESS", "EX-SIZE"]),
    "a bitmap that is longer than the unit": (
        lambda folder: write(ext_file(folder), HEAD + 18, b"\0\x0f"),
        ["EX-ADDRESS", "EX-SIZE"],
    ),
    "other tags in a unit": (lambda folder: write(ext_file(folder), 2, b"\0" * 7 + b"\x09"), ["CQ-TAG"]),
    "an address into a unit": (address(HEAD + 1), ["EX-ADDRESS"]),
    "an address behind all units": (address(990), ["EX-ADDRESS"]),
    "an address of no file": (address(1 << 40), ["EX-ADDRESS"]),
    "the plain hash, where the ext unit could not be put": (
        lambda folder: put(queue_file(folder), 0, tags_code=plain(folder)),
        [],
    ),
}


def plain(folder: Path) -> int:
    """Return the tags code in the first ext unit."""
    return int(ExtHead.parse(ext_file(folder).read_bytes()[:HEAD]).tags_code)


@pytest.mark.parametrize("name", DAMAGE)
def test_ext_units_and_their_addresses(name: str, folder: Path) -> None:
    change, expected = DAMAGE[name]
    change(folder)
    assert codes(judge(folder)) == expected
    assert codes(judge(folder, "standard")) == expected


def test_many_units_in_many_windows_are_followed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import rmqinspect.verify.queue_survey

    for window in (HEAD, 64, 100):
        monkeypatch.setattr(rmqinspect.verify.queue_survey, "WINDOW_SIZE", window)
        assert codes(judge(folder)) == []


@pytest.mark.parametrize("name", ["ext-4.9.7", "ext-5.3.3"])
def test_brokers_ext_queues_are_silent(name: str) -> None:
    outcome = judge(oracle.store("broker", name))
    assert outcome.verdict == "WHOLE"
    assert outcome.joined_units == outcome.units


def test_lost_ext_files_are_told_and_a_damaged_hash_is_not_taken_for_an_address(folder: Path, tmp_path: Path) -> None:
    ext_file(folder).unlink()
    assert codes(judge(folder)) == ["EX-ADDRESS"]
    other = WholeStore(many()).write(tmp_path / "other")
    put(queue_file(other), 2, tags_code=EXT_ADDRESS_BASE)
    assert codes(judge(other)) == ["CQ-TAG"]
