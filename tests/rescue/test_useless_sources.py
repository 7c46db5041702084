"""A source of no use is named, and the others are used; how large segments are, where no store says it."""

import os
import shutil
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqinspect.errors import NotAStore, Refused
from rmqinspect.rescue import segment_size
from rmqinspect.rescue.given import open_sources
from rmqinspect.rescue.segment_size import DEFAULT, choose_segment_size
from rmqinspect.schemas import message
from rmqinspect.schemas.places import place_of
from rmqinspect.store.discover import open_store
from tests.rescue.test_salvage import sound_records
from tests.support import command
from tests.support.command import Run
from tests.support.samples import sample
from tests.support.sampling import rare

run = command.runner("salvage", after=("-j", "1"))

SIZE = 65536
SEGMENTS = [f"{base:020}" for base in range(0, 4 * SIZE, SIZE)]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return shutil.copytree(sample("healthy-5.5.0"), tmp_path / "store")


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(path))


def _loop(path: Path) -> None:
    path.mkdir()
    (path / "commitlog").symlink_to(path)
    (path / "again").symlink_to(".")


def _hole(path: Path) -> None:
    with open(path, "wb") as file:
        file.truncate(1 << 40)


USELESS: dict[str, Callable[[Path], object]] = {
    "empty": Path.touch,
    "text": lambda path: path.write_text("not a log\n" * 100),
    "zeros": lambda path: path.write_bytes(bytes(SIZE)),
    "00000000000000000000": lambda path: path.write_bytes(bytes(SIZE)),
    "00000000000000065536": Path.touch,
    "fifo": _fifo,
    "socket": _socket,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "circle": lambda path: path.symlink_to(path.name),
    "folder": Path.mkdir,
    "loop": _loop,
    "00000000000000131072": Path.mkdir,
    "a terabyte": _hole,
    "00000000000000196608": _hole,
    "two\nlines\x1b[2J": lambda path: path.write_text("text"),
}


def test_what_is_of_no_use_is_named_and_the_others_are_used(run: Run, store: Path, tmp_path: Path) -> None:
    folder = tmp_path / "useless"
    folder.mkdir()
    for name, make in USELESS.items():
        make(folder / name)
    began = time.monotonic()
    names = [str(folder / name) for name in USELESS]
    status, out, err = run(store, *names, "--dry-run")
    assert (status, err) == (0, "")
    # Six notes are on the screen, all in the receipt.
    assert out.count("not used:") >= 5
    assert "\x1b" not in out
    status, _, _ = run(store, *names, "-o", tmp_path / "new")
    assert status == 0
    receipt = (tmp_path / "new.receipt.json").read_text()
    assert receipt.count("not used: ") == len(USELESS)
    assert time.monotonic() - began < 60


@pytest.mark.parametrize("name", ["empty", "text", "fifo", "folder", "circle", "a terabyte", "00000000000000196608"])
def test_alone_it_is_an_error_in_one_line(run: Run, tmp_path: Path, name: str) -> None:
    USELESS[name](tmp_path / name)
    status, _, err = run(tmp_path / name, "-o", tmp_path / "new")
    assert status == 4
    assert len(err.splitlines()) == 1
    assert not (tmp_path / "new").exists()


def test_images_of_no_use_are_named(run: Run, store: Path, tmp_path: Path) -> None:
    names = ["empty", "text", "fifo", "circle", "a terabyte"]
    for name in names:
        USELESS[name](tmp_path / name)
    paths = [str(tmp_path / name) for name in names]
    segment = shutil.copy(store / "commitlog" / SEGMENTS[0], tmp_path / "image")
    status, _, err = run("--carve", segment, *paths, "-o", tmp_path / "new")
    assert (status, len(err.splitlines())) == (0, 1)
    assert (tmp_path / "new.receipt.json").read_text().count("not used: ") == len(names)
    assert run("--carve", store, *paths, "--dry-run")[0] == 0
    assert run("--carve", paths[1], "--dry-run")[0] == 4
    assert run("--carve", paths[2], "--dry-run")[0] == 4


def test_a_path_that_does_not_exist_is_an_error(run: Run, store: Path, tmp_path: Path) -> None:
    assert run(store, tmp_path / "absent", "--dry-run")[0] == 4


def test_a_file_that_may_not_be_read_is_named(
    run: Run, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(store / "commitlog" / SEGMENTS[0], tmp_path / "secret")
    own = os.open

    def refuse(path: str, *arguments: int, **others: int) -> int:
        if str(path) == str(tmp_path / "secret"):
            raise PermissionError(13, "Permission denied")
        return own(path, *arguments, **others)

    monkeypatch.setattr(os, "open", refuse)
    status, out, _ = run(store, tmp_path / "secret", "--dry-run")
    assert status == 0
    assert "not used:" in out
    assert "Permission denied" in out


@pytest.mark.parametrize("segment", SEGMENTS[1::2])
def test_a_segment_of_a_terabyte_is_read_as_far_as_it_reaches(
    run: Run, store: Path, tmp_path: Path, segment: str
) -> None:
    os.truncate(store / "commitlog" / segment, 1 << 40)
    began = time.process_time()
    assert run(store, "-o", tmp_path / "new")[0] == 0
    assert time.process_time() - began < 20
    for name in SEGMENTS:
        assert (tmp_path / "new/commitlog" / name).read_bytes() == (
            sample("healthy-5.5.0") / "commitlog" / name
        ).read_bytes()


@pytest.mark.parametrize("missing", [40, rare(1000)])
def test_a_row_of_missing_segments_is_bridged_by_holes(run: Run, store: Path, tmp_path: Path, missing: int) -> None:
    last = store / "commitlog" / SEGMENTS[3]
    raw, further = bytearray(last.read_bytes()), missing * SIZE
    for place in sound_records(open_store([str(store)])):
        if place >= 3 * SIZE:
            at = place - 3 * SIZE + place_of(message.Message, "physical_offset")
            raw[at : at + 8] = (place + further).to_bytes(8, "big")
    last.unlink()
    (store / f"commitlog/{3 * SIZE + further:020}").write_bytes(raw)
    began = time.process_time()
    assert run(store, "-o", tmp_path / "new")[0] == 3
    assert time.process_time() - began < 20
    written = list((tmp_path / "new/commitlog").iterdir())
    assert len(written) == missing + 4
    assert sum(path.stat().st_blocks * 512 for path in written) < 4 * SIZE + missing * 3 * 4096


def test_a_segment_that_cannot_be_opened_is_lost_and_named(run: Run, store: Path, tmp_path: Path) -> None:
    away = (store / "commitlog" / SEGMENTS[1]).rename(tmp_path / "away")
    (store / "commitlog" / SEGMENTS[1]).symlink_to(away)
    assert run(store, "--dry-run")[0] == 3
    status, out, _ = run(store, "-o", tmp_path / "new")
    assert status == 3
    assert f"not used: commitlog/{SEGMENTS[1]}: a link to" in " ".join(out.split())
    assert "lost  " in out
    # With the file that the link leads to, all is there.
    status, _, _ = run(store, away, "-o", tmp_path / "whole")
    assert status == 0


@pytest.mark.parametrize("name", ["7", "00000000000000000099"])
def test_a_file_of_zeros_with_a_name_within_a_segment_is_not_used(
    run: Run, store: Path, tmp_path: Path, name: str
) -> None:
    (store / "commitlog" / name).write_bytes(bytes(SIZE // 2))
    status, out, err = run(store, "-o", tmp_path / "new")
    assert (status, f"not used: commitlog/{name}: no record is in it" in out) == (0, True), err
    assert [path.name for path in sorted((tmp_path / "new/commitlog").iterdir())] == SEGMENTS


def test_room_is_that_of_holes_and_not_of_their_length(run: Run, store: Path, tmp_path: Path) -> None:
    (store / "config").mkdir(exist_ok=True)
    _hole(store / "config/topics.json.old")
    assert run(store, "-o", tmp_path / "new", "-q")[0] == 0


# --- the size of a segment ------------------------------------------------------------------------------


def _loose(store: Path, *names: str, cut: int | None = None) -> list[tuple[str, str]]:
    """Return segments as sources, under names that say nothing; `cut`: their length."""
    found = []
    for name in names:
        path = store.parent / f"part{names.index(name)}"
        path.write_bytes((store / "commitlog" / name).read_bytes()[:cut])
        found.append((path.name, str(path)))
    return found


def test_a_blank_record_says_where_a_segment_ends_though_the_file_was_cut(store: Path) -> None:
    whole = (store / "commitlog" / SEGMENTS[0]).read_bytes()
    assert whole.rstrip(b"\0")[-4:] == bytes.fromhex("cbd43194")  # the magic of the blank record
    size, _, notes = choose_segment_size(open_sources(_loose(store, SEGMENTS[0], cut=len(whole.rstrip(b"\0"))), {}))
    assert size == SIZE
    assert "the blank record in" in notes[0]


def test_a_file_ends_where_the_next_one_begins(store: Path) -> None:
    given = open_sources(_loose(store, SEGMENTS[1], SEGMENTS[2]), {})
    size, _, notes = choose_segment_size(given)
    assert size == SIZE
    assert "ends where the next file begins" in notes[0]


def test_cut_files_are_as_long_as_their_distance(store: Path) -> None:
    given = open_sources(_loose(store, SEGMENTS[0], SEGMENTS[1], SEGMENTS[2], cut=20_000), {})
    assert choose_segment_size(given)[0] == SIZE


def test_a_single_cut_file_of_a_large_log_has_the_default(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_size, "DEFAULT", SIZE)
    size, _, notes = choose_segment_size(open_sources(_loose(store, SEGMENTS[1], cut=20_001), {}))
    assert size == SIZE
    assert "default" in notes[0]
    assert DEFAULT == 1 << 30


def test_the_configuration_wins(store: Path, tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("mappedFileSizeCommitLog=131072\n")
    given = open_sources(_loose(store, SEGMENTS[0]), {"config": str(conf)})
    assert choose_segment_size(given) == (131072, given, [])
    conf.write_text(f"mappedFileSizeCommitLog={1 << 31}\n")
    with pytest.raises(Refused, match="a broker takes no more than"):
        choose_segment_size(open_sources(_loose(store, SEGMENTS[0]), {"config": str(conf)}))


def test_a_store_with_segments_of_another_size_is_not_used(store: Path, tmp_path: Path) -> None:
    other = tmp_path / "other/commitlog"
    other.mkdir(parents=True)
    (other / SEGMENTS[0]).write_bytes((store / "commitlog" / SEGMENTS[0]).read_bytes()[:1000])
    (other / f"{1000:020}").write_bytes(bytes(1000))
    given = open_sources([("store", str(store)), ("other", str(other.parent))], {})
    size, used, notes = choose_segment_size(given)
    assert (size, [name for name, _ in used]) == (SIZE, ["store"])
    assert notes[0].startswith("not used: other")


def test_files_without_a_byte_have_no_size(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / SEGMENTS[0]).touch()
    with pytest.raises(NotAStore, match="not known"):
        choose_segment_size(open_sources([("store", str(tmp_path))], {}))
