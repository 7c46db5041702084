"""What a path is, which file is what, and that nothing odd in a store stops the listing."""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from rmqinspect.errors import NotAStore, Unreadable
from rmqinspect.schemas import message
from rmqinspect.schemas.places import span_of
from rmqinspect.store import directory as places
from rmqinspect.store import discover as store_module
from rmqinspect.store.directory import kind_of
from rmqinspect.store.discover import open_store, open_stores
from rmqinspect.store.model import Segment, Store
from rmqinspect.store.reader import FileReader, open_file
from rmqinspect.tables.filters import parse_offset
from tests.support import oracle
from tests.support.building import write_segment

FIRST = "0" * 20


def case(name: str = "base-5.3.3-halt") -> Path:
    return oracle.store("crash", name)


def listed(path: Path) -> Store:
    return open_store([str(path)])


def odd(store: Store) -> list[tuple[str, str]]:
    return [(oddity.kind, oddity.name) for oddity in store.oddities]


def small(root: Path) -> Path:
    """Make a store of one segment with records, and a queue."""
    (root / "commitlog").mkdir(parents=True)
    shutil.copy(case() / "commitlog" / FIRST, root / "commitlog" / FIRST)
    (root / "consumequeue" / "T" / "3").mkdir(parents=True)
    (root / "consumequeue" / "T" / "3" / FIRST).write_bytes(bytes(400))
    return root


@pytest.mark.parametrize(
    ("below", "place", "kinds"),
    [
        ("", "store", {"segment", "queue", "index", "checkpoint", "abort", "lock", "other"}),
        ("commitlog", "segment", {"segment"}),
        (f"commitlog/{FIRST}", "segment", {"segment"}),
        ("consumequeue", "queue", {"queue"}),
        ("consumequeue/TopicA", "queue", {"queue"}),
        ("consumequeue/TopicA/0", "queue", {"queue"}),
        (f"consumequeue/TopicA/0/{FIRST}", "queue", {"queue"}),
        ("index", "index", {"index"}),
        ("checkpoint", "checkpoint", {"checkpoint"}),
    ],
)
def test_a_piece_is_told_by_where_it_lies_and_by_its_bytes(below: str, place: str, kinds: set[str]) -> None:
    store = listed(case() / below)
    assert store.given == place
    assert {file.kind for file in store.files} == kinds
    assert not store.oddities


@pytest.mark.parametrize(
    ("name", "below", "place", "kinds"),
    [
        ("main-5.3.3", "config", "config", {"config"}),
        ("dledger-5.3.3", "dledger-n0/data", "dledger", {"dledger"}),
        ("main-5.3.3", "batchconsumequeue", "batch_queue", {"batch_queue"}),
        ("ext-5.3.3", "consumequeue_ext", "ext_queue", {"ext_queue"}),
    ],
)
def test_a_piece_of_a_broker_is_told(name: str, below: str, place: str, kinds: set[str]) -> None:
    store = listed(oracle.store("broker", name) / below)
    assert (store.given, {file.kind for file in store.files}) == (place, kinds)


@pytest.mark.parametrize("below", ["commitlog", f"commitlog/{FIRST}", "consumequeue/TopicA/0", "index"])
def test_a_piece_is_told_under_any_name(below: str, tmp_path: Path) -> None:
    source = case() / below
    copied = tmp_path / "evidence"
    if source.is_dir():
        shutil.copytree(source, copied)
    else:
        shutil.copy(source, copied)
    store = listed(copied)
    assert len(store.files) == (len(list(source.iterdir())) if source.is_dir() else 1)
    assert {file.kind for file in store.files} <= {"segment", "queue", "index"}


def test_a_loose_segment_knows_its_base(tmp_path: Path) -> None:
    second = sorted((case() / "commitlog").iterdir())[1]
    shutil.copy(second, tmp_path / "ticket.bin")
    [segment] = listed(tmp_path / "ticket.bin").segments
    assert segment.base == int(second.name)
    [segment] = open_store([str(tmp_path / "ticket.bin")], base=7).segments
    assert segment.base == 7


def test_no_segment_begins_where_its_bytes_would_have_no_offsets(tmp_path: Path) -> None:
    head = message.HEADS[False, False]
    record = bytearray(200)
    record[span_of(head, "magic")] = message.MAGIC_V1.to_bytes(4, "big", signed=True)
    record[span_of(head, "physical_offset")] = (2**63 - 100).to_bytes(8, "big")
    (tmp_path / "ticket.bin").write_bytes(record)
    [segment] = listed(tmp_path / "ticket.bin").segments
    assert segment.base == 0
    with pytest.raises(ValueError, match="not a physical offset"):
        parse_offset(str(2**63 - 100))


def test_an_unpacked_archive_may_have_one_more_level(tmp_path: Path) -> None:
    small(tmp_path / "dump" / "store")
    (tmp_path / "dump" / "readme.txt").write_text("hello")
    assert len(listed(tmp_path).segments) == 1
    assert listed(tmp_path).given == "store"


def test_several_stores_below_are_named_and_refused(tmp_path: Path) -> None:
    small(tmp_path / "a")
    small(tmp_path / "b")
    with pytest.raises(NotAStore, match=r"holds 2 stores \(a, b\); give one"):
        listed(tmp_path)
    assert [store.name for store in open_stores([str(tmp_path / "a"), str(tmp_path / "b")])] == ["a", "b"]


def test_several_stores_are_refused_by_their_paths(tmp_path: Path) -> None:
    paths = [str(oracle.copy("crash", "base-5.3.3-halt", tmp_path / name)) for name in ("a", "b")]
    with pytest.raises(NotAStore, match=f"several stores given, give one: {paths[0]}, {paths[1]}$"):
        open_store(paths)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: None, "no such file or directory$"),
        (lambda path: path.symlink_to("nowhere"), r"no such file or directory \(a dangling link\)"),
        (lambda path: path.mkdir(), "an empty directory"),
        (lambda path: os.mkfifo(path), "neither a directory nor a regular file"),
        (lambda path: path.write_text("hello"), r"not a file of a store \(5 bytes\)"),
        (lambda path: path.write_bytes(b"\x1f\x8b" + bytes(600)), "an archive cannot be read in place"),
    ],
)
def test_what_is_no_store_is_refused_in_one_line(make: object, message: str, tmp_path: Path) -> None:
    path = tmp_path / "given"
    assert callable(make)
    make(path)
    with pytest.raises(NotAStore, match=message):
        listed(path)


def test_a_text_named_like_a_segment_is_refused_by_itself_and_kept_in_its_folder(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    text = tmp_path / "commitlog" / FIRST
    text.write_text("not a record\n" * 100)
    with pytest.raises(NotAStore, match="named like a segment, but without a commit-log record"):
        listed(text)
    assert [segment.base for segment in listed(tmp_path).segments] == [0]


def test_a_sparse_segment_of_zeros_is_a_segment(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    path = tmp_path / "commitlog" / FIRST
    with path.open("wb") as file:
        file.truncate(1 << 30)
    for given in (path, tmp_path):
        store = listed(given)
        assert [(segment.base, segment.size) for segment in store.segments] == [(0, 1 << 30)]
        assert store.segment_size == 1 << 30


def test_stray_names_are_told_and_are_no_segments(tmp_path: Path) -> None:
    root = small(tmp_path / "s")
    for name in (".DS_Store", f"{FIRST}.bak", "123", "9" * 20, "\u0663" * 20):
        (root / "commitlog" / name).write_bytes(b"x")
    (root / "commitlog" / "folder").mkdir()
    (root / "consumequeue" / "T" / "x").mkdir()
    (root / "consumequeue" / "T" / "x" / FIRST).write_bytes(b"x")
    store = listed(root)
    assert [segment.base for segment in store.segments] == [0, 123]
    assert odd(store) == [
        ("stray", "commitlog/.DS_Store"),
        ("stray", f"commitlog/{FIRST}.bak"),
        ("stray", "commitlog/123"),
        ("stray", "commitlog/" + "9" * 20),
        ("directory", "commitlog/folder"),
        ("stray", "commitlog/" + "\u0663" * 20),
        ("directory", "consumequeue/T/x"),
    ]


def test_no_link_is_followed_out_of_the_store(tmp_path: Path) -> None:
    root = small(tmp_path / "s")
    secret = tmp_path / "secret"
    secret.write_bytes((case() / "commitlog" / FIRST).read_bytes())
    (root / "commitlog" / "00000000000000065536").symlink_to(secret)
    (root / "commitlog" / "00000000000000131072").symlink_to("nowhere")
    (root / "config").symlink_to(tmp_path)
    (root / "index").symlink_to("commitlog")
    store = listed(root)
    assert [segment.base for segment in store.segments if segment.path not in store.unopened] == [0]
    assert [segment.base for segment in store.segments] == [0, 65536, 131072], "their places are known"
    assert odd(store) == [
        ("link", "commitlog/00000000000000065536"),
        ("link", "commitlog/00000000000000131072"),
        ("link", "config"),
        ("link", f"index/{FIRST}"),
        ("link", "index/00000000000000065536"),
        ("link", "index/00000000000000131072"),
    ]


def test_a_link_within_the_store_is_followed_once(tmp_path: Path) -> None:
    root = small(tmp_path / "s")
    (root / "commitlog").rename(root / "disk2")
    (root / "commitlog").symlink_to("disk2")
    (root / "lock").symlink_to("disk2")
    store = listed(root)
    assert [segment.name for segment in store.segments] == [f"commitlog/{FIRST}"]
    assert odd(store) == [("link", "lock")]


def test_links_in_a_circle_end(tmp_path: Path) -> None:
    root = small(tmp_path / "s")
    for number in range(20):
        (root / "commitlog" / f"up{number}").symlink_to("..")
    (root / "self").symlink_to("self")
    store = listed(root)
    assert len(store.files) == 2
    assert {kind for kind, _ in odd(store)} == {"link"}


def test_a_fifo_named_like_a_segment_does_not_hang(tmp_path: Path) -> None:
    root = small(tmp_path / "s")
    os.mkfifo(root / "commitlog" / "00000000000000065536")
    assert odd(listed(root)) == [("special", "commitlog/00000000000000065536")]
    assert odd(listed(root / "commitlog")) == [("special", "00000000000000065536")]


def test_what_cannot_be_listed_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = small(tmp_path / "s")
    real = os.scandir

    def refuse(path: str) -> object:
        if os.path.basename(path) == "T":
            raise PermissionError(13, "Permission denied", path)
        return real(path)

    monkeypatch.setattr(os, "scandir", refuse)
    store = listed(root)
    assert odd(store) == [("unreadable", "consumequeue/T")]
    assert store.oddities[0].detail == "Permission denied"
    with pytest.raises(Unreadable, match="Permission denied"):
        listed(root / "consumequeue" / "T")


def test_a_file_that_goes_while_it_is_listed_is_no_oddity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = small(tmp_path / "s")
    rows_below = places.rows_below

    def remove(rows: object, depth: int, name: str) -> object:
        if name == FIRST and depth == 1:
            (root / "commitlog" / FIRST).unlink()
        return rows_below(rows, depth, name)  # type: ignore[arg-type]

    monkeypatch.setattr(store_module, "rows_below", remove)
    assert not listed(root).oddities
    assert not listed(root).segments


def test_the_size_of_segments_is_inferred_and_said(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    for base, size in ((0, 1000), (1000, 1000), (3000, 1000), (4000, 20)):
        (tmp_path / "commitlog" / f"{base:020}").write_bytes(bytes(size))
    store = listed(tmp_path)
    assert (store.segment_size, store.remarks) == (1000, ("segment size 1000: the length of the files",))
    (tmp_path / "broker.conf").write_text("mappedFileSizeCommitLog = 500\n")
    store = open_store([str(tmp_path)], config=str(tmp_path / "broker.conf"))
    assert (store.segment_size, store.remarks) == (500, ())


def test_names_that_are_no_text_are_listed(tmp_path: Path) -> None:
    root = small(tmp_path / "s")
    with open(os.fsencode(root) + b"/commitlog/\xff\x1b[31m", "wb"):
        pass
    assert odd(listed(root)) == [("stray", "commitlog/\\xff\x1b[31m")]


@pytest.mark.parametrize(
    ("place", "kind"),
    [
        (("commitlog", FIRST), "segment"),
        (("consumequeue",), "queue"),
        (("consumequeue", "CURRENT"), "queue"),
        (("dledger-n0", "index", "x"), "dledger_index"),
        (("timerwheel.17",), "timer_wheel"),
        (("compaction", "compactionCq", "T", "0", "1"), "compaction_queue"),
        (("logs", "x"), "other"),
    ],
)
def test_the_table_of_places_says_what_lies_where(place: tuple[str, ...], kind: str) -> None:
    assert kind_of(place) == kind


def test_reading_is_counted(tmp_path: Path) -> None:
    store = listed(small(tmp_path / "s"))
    before = FileReader.bytes_read
    with open_file(store.segments[0]) as reader:
        assert len(reader.read(0, 1000)) == 1000
        assert reader.read(store.segments[0].size - 10, 1000) != b""
    assert FileReader.bytes_read - before == 1010


def store_of(folder: Path, ranges: Sequence[tuple[int, int]]) -> Store:
    """Return a store whose segments cover these [base, end) ranges."""
    write_segment(folder / "commitlog", bytes(8))
    segments = (Segment(f"/{base}-{end}", f"{base:020}", end - base, "segment", base) for base, end in ranges)
    return replace(open_store([str(folder)]), segments=tuple(segments))


@pytest.mark.parametrize(
    "ranges",
    [
        [],
        [(0, 100), (100, 200), (200, 300)],
        [(100, 200), (300, 400)],
        [(0, 0), (0, 100), (100, 100), (100, 150)],
        [(0, 350), (100, 200), (100, 210), (300, 400), (500, 600)],
    ],
)
def test_the_segment_at_an_offset_is_the_first_that_holds_it(tmp_path: Path, ranges: list[tuple[int, int]]) -> None:
    store = store_of(tmp_path, ranges)
    for offset in range(-50, 700, 25):
        assert store.segment_at(offset) == next((s for s in store.segments if s.base <= offset < s.end), None)
