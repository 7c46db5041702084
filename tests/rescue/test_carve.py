"""Records found in any bytes: real segments at odd places, cut, doubled, in pages out of order, and hostile images."""

import os
import random
import struct
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqinspect.rescue import carve
from rmqinspect.rescue.carved_rows import CARVED_TABLE, Images, open_images
from rmqinspect.store.discover import open_store
from rmqinspect.tables import TABLES
from rmqinspect.tables.request import Request
from tests.support import oracle
from tests.support.broken_disk import broken_disk
from tests.support.building import record
from tests.support.loop_ways import loop_way
from tests.support.samples import sample
from tests.support.sampling import sampled

_DICE = random.Random(22)
_PLACED = ("position", "image", "within", "copy_of", "copy_of_image", "status")


def rows_of(*images: bytes | Path, folder: Path | None = None, **request: Any) -> list[dict[str, Any]]:
    """Return the table of images, given as bytes or files."""
    paths = []
    for number, image in enumerate(images):
        if isinstance(image, bytes):
            assert folder is not None
            path = folder / f"image{number}"
            path.write_bytes(image)
            image = path
        paths.append(str(image))
    batches = CARVED_TABLE.rows(open_images(paths), Request(**request))
    return [row for batch in batches for row in batch.to_pylist()]


def noise(size: int) -> bytes:
    return _DICE.randbytes(size)


def segments_of(store: Path) -> list[bytes]:
    return [Path(segment.path).read_bytes() for segment in open_store([str(store)]).segments]


def messages_of(store: Path) -> list[dict[str, Any]]:
    return [row for batch in TABLES["messages"].rows(open_store([str(store)]), Request()) for row in batch.to_pylist()]


def statuses(rows: list[dict[str, Any]]) -> Counter[str]:
    return Counter(row["status"] for row in rows)


CASES = [("broker", name) for name in oracle.cases("broker")] + [("crash", name) for name in oracle.cases("crash")]


@pytest.mark.parametrize(("family", "name"), sampled(CASES, 24))
def test_every_record_that_decode_finds_is_carved_at_its_place(
    family: oracle.Family, name: str, tmp_path: Path
) -> None:
    store = oracle.store(family, name)
    opened = open_store([str(store)])
    image, starts = b"", {}
    for segment in opened.segments:
        image += noise(_DICE.randrange(1, 5000))
        starts[segment.base] = len(image)
        image += Path(segment.path).read_bytes().rstrip(b"\0") + bytes(4096)
    rows = {row["position"]: row for row in rows_of(image, folder=tmp_path)}
    for wanted in messages_of(store):
        holder = opened.segment_at(wanted["physical_offset"])
        assert holder is not None
        position = starts[holder.base] + wanted["physical_offset"] - holder.base
        row = rows.pop(position)
        if wanted["status"] == "offset_mismatch":
            assert row["status"] in ("carved", "rival", "copy")
            continue
        of_messages = wanted["status"] if wanted["status"] not in ("ok", "stale", "carved") else "carved"
        assert row["status"] in (of_messages, "rival", "copy")
        shown = {name: value for name, value in row.items() if name not in _PLACED}
        assert shown == {name: value for name, value in wanted.items() if name not in _PLACED}
    # What is left lies in gaps: of damaged records, or of files that are no segments' whole.
    assert all(row["status"] in ("partial", "body_crc", "carved", "copy", "rival") for row in rows.values())


def test_an_image_cut_anywhere_has_the_records_in_front_of_the_cut_and_one_partial(tmp_path: Path) -> None:
    raw = segments_of(sample("healthy-5.5.0"))[0]
    whole = rows_of(noise(3) + raw, folder=tmp_path)
    ends = [row["position"] + row["size"] for row in whole]
    for row in whole[:: len(whole) // 6]:
        for left in (20, 45, 60, 90, row["size"] - 1):
            cut = row["position"] + left
            found = rows_of((noise(3) + raw)[:cut], folder=tmp_path)
            assert [one["physical_offset"] for one in found if one["status"] == "carved"] == [
                one["physical_offset"] for one, end in zip(whole, ends, strict=True) if end <= cut
            ]
            partial = [one for one in found if one["status"] == "partial"]
            assert len(partial) == (left >= 40)
            for one in partial:
                told = {name for name, value in one.items() if value not in (None, b"")} - set(_PLACED) - {"body"}
                assert all(one[name] == row[name] for name in told - {"body_crc_ok"})
                assert ("store_timestamp" in told) == (left >= 88)


def test_a_partial_record_has_what_may_be_its_body(tmp_path: Path) -> None:
    raw = record(4096, body=b"0123456789" * 10, properties={"KEYS": "k"})
    [row] = rows_of(noise(5) + raw[:120], folder=tmp_path)
    assert (row["status"], row["body"], row["body_crc_ok"]) == ("partial", (b"0123456789" * 10)[:32], None)
    [row] = rows_of(noise(5) + raw[:-3], folder=tmp_path)
    assert (row["status"], row["body"], row["body_crc_ok"]) == ("partial", b"0123456789" * 10, True)
    [row, after] = rows_of(raw[:120] + record(9000), folder=tmp_path)
    assert (row["status"], row["body"]) == ("partial", (b"0123456789" * 10)[:32])
    assert after["status"] == "carved"


def test_what_stands_twice_is_a_copy_across_images_too(tmp_path: Path) -> None:
    raw = segments_of(sample("healthy-5.5.0"))[1]
    rows = rows_of(noise(7) + raw + noise(11) + raw, raw[:20000], folder=tmp_path)
    first = {row["physical_offset"]: row for row in rows if row["status"] == "carved"}
    copies = [row for row in rows if row["status"] == "copy"]
    assert len(copies) > len(first) and all(row["position"] < 7 + len(raw) for row in first.values())
    for row in copies:
        original = first[row["physical_offset"]]
        assert (row["copy_of"], row["copy_of_image"]) == (original["position"], original["image"])
        assert row["body"] == original["body"]


def raw_records(store: Path) -> dict[int, bytes]:
    opened = open_store([str(store)])
    segments = dict(zip((segment.base for segment in opened.segments), segments_of(store), strict=True))
    found = {}
    for row in messages_of(store):
        base = max(base for base in segments if base <= row["physical_offset"])
        at = row["physical_offset"] - base
        found[row["physical_offset"]] = segments[base][at : at + row["size"]]
    return found


def pages(*stores: Path) -> tuple[bytes, list[tuple[Path, int, bytes]]]:
    """Return the pages of logs out of order, and which page of which log stands where."""
    dealt = [
        (store, segment.base + at, raw[at : at + 4096])
        for store in stores
        for segment, raw in zip(open_store([str(store)]).segments, segments_of(store), strict=True)
        for at in range(0, len(raw), 4096)
    ]
    _DICE.shuffle(dealt)
    return b"".join(page for _, _, page in dealt), dealt


def test_two_brokers_in_pages_out_of_order_are_told_apart(tmp_path: Path) -> None:
    stores = sample("killed-4.9.7"), sample("healthy-5.5.0")
    image, dealt = pages(*stores)
    place = {(store, base): number * 4096 for number, (store, base, _) in enumerate(dealt)}
    rows = {row["position"]: row for row in rows_of(image, folder=tmp_path)}
    logs = {store: {row["physical_offset"]: row for row in messages_of(store)} for store in stores}
    records = {store: raw_records(store) for store in stores}
    whole = 0
    for store, log in logs.items():
        for offset, wanted in log.items():
            position = place[store, offset // 4096 * 4096] + offset % 4096
            raw = records[store][offset]
            if image[position : position + len(raw)] == raw:
                row = rows.pop(position)
                # Where a page ends behind it, before the next head does, nothing proves its properties.
                room = -(offset + len(raw)) % 4096
                assert row["status"] == "carved" or (row["status"] == "doubtful" and room < 36)
                assert row["body"] == wanted["body"]
                whole += 1
            elif offset % 4096 <= 4096 - 88:
                row = rows.pop(position)
                # A cut inside of the properties leaves lengths and body as they were.
                assert row["status"] in ("partial", "body_crc", "doubtful")
                assert row["queue_offset"] == wanted["queue_offset"]
    assert whole > 200
    # Heads that a page cut; a record whose first byte, which is zero, is that of another page.
    genuine = {raw for found in records.values() for raw in found.values()}
    for position, row in rows.items():
        assert row["status"] == "partial" or image[position : position + row["size"]] in genuine
    check_assembly(tmp_path / "image0", stores)


def check_assembly(image: Path, stores: tuple[Path, ...]) -> None:
    """Check that each log put together holds bytes of one store only, each in its place."""
    raw = image.read_bytes()
    with Images(open_images([str(image)]).files) as images:  # type: ignore[arg-type]
        for _ in images.found(Request()):
            pass
        assembly = images.assembly()
    contents = []
    for store in stores:
        opened = open_store([str(store)])
        contents.append({segment.base: Path(segment.path).read_bytes() for segment in opened.segments})
    assert {log.name for log in assembly.logs} >= {"127.0.0.1:22911", "127.0.0.1:21911"}
    of_stores = set()
    for log in assembly.logs:
        owners = set(range(len(stores)))
        end = 0
        for piece in log.pieces:
            assert piece.physical_offset >= end
            end = piece.end
            owners &= {
                number
                for number, segments in enumerate(contents)
                for base, content in segments.items()
                if base <= piece.physical_offset < base + len(content)
                and content[piece.physical_offset - base : piece.end - base]
                == raw[piece.position : piece.position + piece.size]
            }
        assert owners
        of_stores |= owners
    assert of_stores == set(range(len(stores)))
    assert not assembly.ambiguities


# --- windows --------------------------------------------------------------------------------------


def large_log(*sizes: int) -> tuple[bytes, list[int]]:
    raw, offsets = b"", []
    for number, size in enumerate(sizes):
        offsets.append(len(raw))
        raw += record(len(raw), body=noise(size), queue_offset=number)
    return raw, offsets


def test_records_over_the_borders_of_windows_and_larger_than_one_are_found(tmp_path: Path) -> None:
    sizes = [900_000] * 12 + [2_200_000, 100, 5_000_000, 100, 3_000_000, 7, 1_999_000, 12]
    raw, offsets = large_log(*sizes)
    for mode in ("compiled", "uncompiled"):
        with loop_way(mode):
            rows = rows_of(noise(12345) + raw + noise(99), folder=tmp_path)
            assert [row["physical_offset"] for row in rows] == offsets
            assert statuses(rows) == {"carved": len(sizes)}
            assert [len(row["body"]) for row in rows] == sizes


def test_a_record_in_a_sparse_image_of_terabytes_is_found_at_once(tmp_path: Path) -> None:
    raw, path = record(4096, body=b"\0" * 20000 + b"end"), tmp_path / "sparse"
    places = [0, 1 << 40, (1 << 40) + 123_457, 3 << 40]
    with path.open("wb") as file:
        for place in places:
            file.seek(place)
            file.write(raw[:300])  # a part of the body stays a hole
            file.seek(place + len(raw) - 300)
            file.write(raw[-300:])
        file.truncate(4 << 40)
    assert path.stat().st_blocks * 512 < 1 << 20
    rows = rows_of(path)
    assert [row["position"] for row in rows] == places
    assert [row["status"] for row in rows] == ["carved", "copy", "copy", "copy"]


def test_what_cannot_be_read_is_told_and_the_rest_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raw, offsets = large_log(*[5000] * 10)
    path, told = tmp_path / "disk", list[str]()
    path.write_bytes(raw)
    with broken_disk(monkeypatch, lambda file: file == path, 12288, 16384):
        rows = rows_of(path, on_unreadable=told.append)
    assert told == [f"{path} at 12288 (0x3000): Input/output error"]
    hit = {offset for offset in offsets if offset < 16384 and offset + 5100 > 12288}
    assert {row["physical_offset"] for row in rows if row["status"] == "carved"} == set(offsets) - hit


# --- records in records, rivals, lives --------------------------------------------------------------


def test_a_record_in_a_body_is_nested_and_no_message_twice(tmp_path: Path) -> None:
    inner = record(777, body=b"inner" + record(99, body=b"innermost"))
    rows = rows_of(noise(9) + record(0, body=b"ab" + inner + b"cd") + record(4000), folder=tmp_path)
    assert [row["status"] for row in rows] == ["carved", "nested", "nested", "carved"]
    assert rows[1]["within"] == rows[2]["within"] == 9
    assert rows[1]["body"].startswith(b"inner") and rows[2]["body"] is None  # deeper down only the head
    assert (rows[2]["physical_offset"], rows[2]["topic"]) == (99, None)


def test_a_record_that_begins_in_another_one_and_ends_behind_it_overlaps(tmp_path: Path) -> None:
    # The end of the outer record, its topic and empty properties, is a part of the inner one's body.
    end, front = b"\x01T\0\0", b"x" * 50
    inner = record(777, body=front + end + b"y" * 200)
    cut = inner.index(front) + len(front)
    outer = record(0, body=b"ab" + inner[:cut], topic="T")
    assert outer.endswith(end)
    rows = rows_of(noise(3) + outer + inner[cut + len(end) :], folder=tmp_path)
    assert [(row["status"], row["within"]) for row in rows] == [("carved", None), ("overlapping", 3)]


def test_two_records_at_one_offset_are_rivals_and_the_later_one_counts_last(tmp_path: Path) -> None:
    hour = 3_600_000
    first = [record(at * 100_000, body=b"old%d" % at, store_timestamp=10**12 + at * 1000) for at in range(5)]
    again = [record(at * 100_000, body=b"new%d" % at, store_timestamp=10**12 + hour + at * 1000) for at in (2, 3)]
    (tmp_path / "disk").write_bytes(b"".join(noise(10) + raw for raw in first + again))
    rows = rows_of(tmp_path / "disk")
    assert [row["status"] for row in rows] == ["carved"] * 5 + ["rival"] * 2
    assert [row["copy_of"] for row in rows[5:]] == [row["position"] for row in rows[2:4]]
    with Images(open_images([str(tmp_path / "disk")]).files) as images:  # type: ignore[arg-type]
        for _ in images.found(Request()):
            pass
        assembly = images.assembly()
    last, earlier = assembly.logs
    raw = (tmp_path / "disk").read_bytes()
    bodies = [raw[piece.position + 88 : piece.position + 92] for piece in last.pieces]
    assert bodies == [b"old0", b"old1", b"new2", b"new3"]
    assert (last.life, earlier.life, earlier.name) == (1, 2, f"{last.name}#2")
    assert [(one.kind, one.start) for one in assembly.ambiguities] == [
        ("rival", 200_000),
        ("rival", 300_000),
        ("earlier_life", 400_000),
    ]


def test_records_that_differ_and_have_one_time_are_not_decided(tmp_path: Path) -> None:
    (tmp_path / "disk").write_bytes(record(0, body=b"one") + noise(9) + record(0, body=b"two"))
    with Images(open_images([str(tmp_path / "disk")]).files) as images:  # type: ignore[arg-type]
        for _ in images.found(Request()):
            pass
        assembly = images.assembly()
    assert [one.kind for one in assembly.ambiguities] == ["undecided"]
    assert [len(log.pieces) for log in assembly.logs] == [1, 1]


def test_one_time_that_does_not_fit_decides_nothing(tmp_path: Path) -> None:
    times = [10**12 + 60_000 * number for number in range(9)]
    times[4] += 10**10  # a flipped bit
    pieces = [record(at * 5000, store_timestamp=one) for at, one in enumerate(times)]
    (tmp_path / "disk").write_bytes(b"".join(noise(20) + raw for raw in pieces))
    with Images(open_images([str(tmp_path / "disk")]).files) as images:  # type: ignore[arg-type]
        for _ in images.found(Request()):
            pass
        assembly = images.assembly()
    (log,) = assembly.logs
    assert [piece.physical_offset for piece in log.pieces] == [at * 5000 for at in range(9)]
    assert [(one.kind, one.start) for one in assembly.ambiguities] == [("clock", 20_000)]


def test_a_broker_whose_address_changed_has_one_log(tmp_path: Path) -> None:
    first = record(0, store_host="10.0.0.5:10911")
    second = record(len(first), store_host="[2001:db8::7]:10911", body=b"x" * 400)
    alone = record(9000, store_host="10.9.9.9:10911")
    (tmp_path / "disk").write_bytes(first + second + noise(5) + alone)
    with Images(open_images([str(tmp_path / "disk")]).files) as images:  # type: ignore[arg-type]
        for _ in images.found(Request()):
            pass
        logs = images.assembly().logs
    assert [(log.name, log.hosts) for log in logs] == [
        ("[2001:db8::7]:10911", ["[2001:db8::7]:10911", "10.0.0.5:10911"]),
        ("10.9.9.9:10911", ["10.9.9.9:10911"]),
    ]


# --- hostile images -------------------------------------------------------------------------------

_MIB = 1 << 20


def _nested(size: int) -> bytes:
    """Return records in records, as deep as it goes, each with its right CRC: the one outside is the last made."""
    head, raw = record(0), b"x"
    while len(raw) < size:
        raw = record(len(raw), body=raw)
    return raw + head


def _claims() -> bytes:
    """Return heads that claim all bytes up to one end, where the lengths of each agree."""
    size, step, claims = 2 * _MIB, 92, bytearray()
    for at in range(0, size - 400, step):
        head = bytearray(record(at)[:88].ljust(step, b"\0"))
        head[:4], head[84:88] = struct.pack(">i", size - at), struct.pack(">i", size - at - 88 - 3)
        claims += head
    return bytes(claims).ljust(size, b"\0") * 2


_RECORD = record(0, body=b"x" * 100)
HOSTILE: dict[str, Callable[[], bytes]] = {
    "zeros": lambda: bytes(8 * _MIB),
    "ones": lambda: b"\xff" * (8 * _MIB),
    "magic codes": lambda: b"\xda\xa3\x20\xa7" * (2 * _MIB),
    "first bytes of magics": lambda: b"\xda\xa3\x20" * (2 * _MIB),
    "sizes and magics": lambda: struct.pack(">ii", 200, -626843481) * _MIB,
    "lengths of 2 GB": lambda: (struct.pack(">i", 2**31 - 1) + _RECORD[4:]) * (4 * _MIB // len(_RECORD)),
    "lengths of 2 MB": lambda: (struct.pack(">i", 2 << 20) + _RECORD[4:]) * (4 * _MIB // len(_RECORD)),
    "claims of the same bytes": _claims,
    "heads only": lambda: _RECORD[:88] * (4 * _MIB // 88),
    "records for one offset": lambda: b"".join(record(0, body=b"%d" % number) for number in range(_MIB // 120)),
    "nested": lambda: _nested(100_000),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_image_takes_time_that_is_linear(name: str, tmp_path: Path) -> None:
    path, image = tmp_path / "image", HOSTILE[name]()

    def cpu(content: bytes) -> float:
        path.write_bytes(content)
        began = time.process_time()
        count = sum(batch.num_rows for batch in CARVED_TABLE.rows(open_images([str(path)]), Request()))
        assert count <= len(content) // 80
        return time.process_time() - began

    with loop_way("compiled"):
        cpu(image[: len(image) // 8])
        assert cpu(image) < 6, name


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=300), st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 255)), max_size=20))
def test_random_damage_raises_nothing(before: bytes, damage: list[tuple[int, int]]) -> None:
    raw = bytearray(before + b"".join(record(at * 500, body=bytes([at]) * (at * 30)) for at in range(12)))
    for at, value in damage:
        raw[at % len(raw)] = value
    path = Path(os.environ.get("TMPDIR", "/tmp")) / f"carve-{os.getpid()}"
    try:
        rows = rows_of_file(path, bytes(raw))
    finally:
        path.unlink()
    positions = [row["position"] for row in rows]
    assert positions == sorted(set(positions))
    claimed = 0
    for row in rows:
        if row["status"] in ("carved", "copy", "rival"):
            assert row["position"] >= claimed
            claimed = row["position"] + row["size"]


def rows_of_file(path: Path, raw: bytes) -> list[dict[str, Any]]:
    path.write_bytes(raw)
    return rows_of(path)


def test_one_search_finds_what_the_other_one_does(tmp_path: Path) -> None:
    raw = b"".join(segments_of(sample("flipped-bit-5.3.3")))
    (tmp_path / "disk").write_bytes(noise(1) + raw + b"\xda\xa3\x20\xa7" * 70000 + raw[:9000])
    with loop_way("compiled"):
        compiled = rows_of(tmp_path / "disk")
    with loop_way("uncompiled"):
        assert rows_of(tmp_path / "disk") == compiled
    assert len(raw) < carve.WINDOW
