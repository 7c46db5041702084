"""What findings say about damage: the right cause where the bytes prove it, and nothing where they do not."""

import random
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqinspect.commitlog.gaps import Gap, merge_gaps
from rmqinspect.damage.diagnose import explain_damage, explain_gap
from rmqinspect.damage.misplaced import explain_body_crc, explain_own_offset, explain_record_crc
from rmqinspect.damage.patterns import explain_difference
from rmqinspect.schemas import message
from rmqinspect.schemas.dledger import EntryHead
from rmqinspect.store.discover import open_store
from rmqinspect.store.model import Segment, Store
from rmqinspect.store.reader import FileReader
from tests.support import oracle
from tests.support.building import STORED, blank, fields_of, fill, lay, pad, record, various
from tests.support.scanning import scan
from tests.support.side_tables import crash

SIZE = 64 << 10
NOISE = random.Random(4).randbytes(SIZE)
LINES = b"".join(b"2024-05-20 11:%02d:07 WARN BrokerController - lagging\n" % number for number in range(60)) * 40


def groups(segment: Segment) -> Iterator[tuple[int, int]]:
    """Yield [start, end) of each gap that is damage, as verify tells them."""
    gaps = [gap for gap in merge_gaps(scan(segment).gaps, segment.base + segment.size) if gap.kind != "filler"]
    group: list[Gap] = []
    for gap in [*gaps, None]:
        if group and (gap is None or gap.start != group[-1].end):
            while group and group[-1].kind == "zeros" and group[-1].end == segment.base + segment.size:
                group.pop()
            if group:
                yield group[0].start, group[-1].end
            group = []
        if gap is not None:
            group.append(gap)


def explained(store: Store) -> list[str | None]:
    """Return the cause of every gap of a store's log."""
    return [explain_gap(store, segment, *gap) for segment in store.segments for gap in groups(segment)]


# --- what real damage was -----------------------------------------------------------------------

FIELDS = {
    "MAGICCODE of the record": "MAGICCODE",
    "magic of the first record": "MAGICCODE",
    "magic of the blank record": "MAGICCODE of the blank record",
    "TOTALSIZE": "TOTALSIZE",
    "PROPERTIESLEN": "PROPERTIESLEN",
    "topic length": "the topic's length",
    "SYSFLAG bit 4": "SYSFLAG",
}


def reported(name: str) -> list[str]:
    """Return what has to be said about a case, from how it was made (`case.json`)."""
    answers = []
    for words in oracle.case("crash", name)["damage"]:
        field = next((field for part, field in FIELDS.items() if part in words), None)
        place = re.match(r"commitlog/\d{20} at offset (\d+) \((\d+) bytes?\)", words)
        if place is None:
            continue
        at, size = int(place[1]), int(place[2])
        if field is not None:
            answers.append(_field_words(field, at, size, words))
        elif "page zeroed" in words:
            answers.append(f"a page of zeros: 4 096 bytes at byte {_grouped(at)} ({at:#x})")
        elif "second half of the last record zeroed" in words:
            answers.append("torn write: only the first ")
    return answers


def _field_words(field: str, at: int, size: int, words: str) -> str:
    change = re.search(r"(-?\d+) -> (-?\d+)$", words)
    if change is None:
        magic = 0xCBD43194 if "blank" in field else 0xDAA320A7
        return f"only {field} at byte {_grouped(at)} ({at:#x}) was changed: {magic:#x} would fit, not 0x00000000"
    was, now = (int(number).to_bytes(size, "big", signed=True) for number in change.groups())
    flips = [(number, a ^ b) for number, (a, b) in enumerate(zip(was, now, strict=True)) if a != b]
    if len(flips) == 1 and flips[0][1].bit_count() == 1:
        byte, bit = at + flips[0][0], flips[0][1].bit_length() - 1
        return f"one flipped bit of {field} explains it: byte {_grouped(byte)} ({byte:#x}) bit {bit} is "
    return f"only {field} at byte {_grouped(at)} ({at:#x}) was changed: {change[1]} would fit, not {change[2]}"


def _grouped(number: int) -> str:
    return f"{number:,}".replace(",", " ")


EXPLAINED = [name for name in oracle.cases("crash") if reported(name) and not name.startswith("zero_page_last-5.4.0")]


@pytest.mark.parametrize("name", EXPLAINED)
def test_the_cause_is_what_was_done_to_the_store(name: str) -> None:
    found = explained(crash(name))
    for said, answer in zip(found, reported(name), strict=True):
        assert said is not None
        assert said.startswith(answer)


def test_every_kind_of_damage_inside_the_log_was_seen() -> None:
    kinds = {kind.rsplit("_", 1)[0] for name in EXPLAINED for kind in oracle.case("crash", name)["damage_kinds"]}
    assert kinds >= {
        "magic",
        "blank",
        "first_rec",
        "size_small",
        "size_neg",
        "propslen",
        "topiclen",
        "sysflag_v6",
        "zero_page",
        "torn",
    }
    assert len(EXPLAINED) >= 33


def test_a_page_lost_within_one_body_is_told_of_its_record() -> None:
    store = crash("zero_page_last-5.4.0-c")
    segment = next(segment for segment in store.segments if segment.name.endswith("196608"))
    raw = Path(segment.path).read_bytes()[14_805 : 14_805 + 9_170]
    assert explain_body_crc(raw, 14_805, 211_413) == "a page of zeros: 4 096 bytes at byte 16 384 (0x4000)"


@pytest.mark.parametrize("name", [name for name in oracle.cases("crash") if name.startswith("phys_")])
def test_a_changed_own_offset_is_told(name: str) -> None:
    (words,) = oracle.case("crash", name)["damage"]
    match = re.match(r"commitlog/(\d{20}) .*at position (\d+): (\d+) -> (\d+)$", words)
    assert match is not None
    base, position, was, now = map(int, match.groups())
    store = crash(name)
    segment = next(segment for segment in store.segments if segment.base == base)
    said = explain_own_offset(store, segment, base + position)
    if (was ^ now).bit_count() == 1:
        assert said == "one flipped bit of PHYSICALOFFSET explains it: byte 20 572 (0x505c) bit 1 is 0x02, was 0x00"
    else:
        assert said == "only PHYSICALOFFSET was changed: the record behind it lies at its own place"


# --- gaps made by hand ----------------------------------------------------------------------------

Change = Callable[[bytearray], None]


def log(root: Path, *segments: bytes | bytearray, first: int = 0, kind: str = "commitlog") -> Store:
    """Write segments, the first one under the base `first`, and open them as a store."""
    folder = root / kind
    folder.mkdir(parents=True)
    for number, raw in enumerate(segments):
        (folder / f"{first + number * SIZE:020}").write_bytes(raw)
    return open_store([str(root)])


def whole_segment(base: int = 0, size: int = 304, *, dledger: bool = False) -> bytes:
    """Return a segment that is nearly full of records with bodies of about `size` bytes."""
    count = SIZE // (size + 180)
    pieces = [
        {"body": b"%08d" % number * (size // 8), "queue_offset": number, "properties": {"KEYS": f"k{number}"}}
        for number in range(count)
    ]
    return pad(lay(pieces, base, dledger=dledger), SIZE)


def put(at: int, raw: bytes) -> Change:
    def change(segment: bytearray) -> None:
        segment[at : at + len(raw)] = raw

    return change


def starts_of(raw: bytes | bytearray) -> list[int]:
    return [hit.start() - 4 for hit in re.finditer(rb"\xda\xa3\x20\xa7", raw)]


def damaged(root: Path, *changes: Change, raw: bytes | None = None) -> str | None:
    """Return what is said of the one gap that changes to a segment make."""
    segment = bytearray(whole_segment() if raw is None else raw)
    for change in changes:
        change(segment)
    (said,) = explained(log(root, segment))
    return said


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (put(8192, bytes(4096)), "a page of zeros: 4 096 bytes at byte 8 192 (0x2000)"),
        (put(8192, bytes(12288)), "3 pages of zeros: 12 288 bytes at byte 8 192 (0x2000)"),
        (put(8704, bytes(1024)), "2 sectors of zeros: 1 024 bytes at byte 8 704 (0x2200)"),
        (put(8192, b"\xff" * 4096), "a page of 0xff bytes: 4 096 bytes at byte 8 192 (0x2000)"),
        (put(8888, bytes(1500)), r"zeros from byte 8 8\d\d \(0x22\w\w\) to 10 [34]\d\d \(0x28\w\w\)"),
        (put(8888, b"\xaa" * 1500), r"0xaa bytes from byte 8 8\d\d \(0x22\w\w\) to 10 388 \(0x2894\)"),
        (put(8192, LINES[:4000]), r"text, .*, stands where the next record must begin: '.*'"),
        (put(8192, NOISE[:4000]), "the bytes look random: encrypted or compressed data was written over it"),
        (put(8192, b"\x1f\x8b\x08" + NOISE[:2000]), r"gzip data was written over it, from byte 8 192 \(0x2000\) on"),
    ],
)
def test_what_stands_there_instead_is_told(tmp_path: Path, change: Change, said: str) -> None:
    found = damaged(tmp_path, change)
    assert found is not None
    assert re.fullmatch(said if "\\" in said or ".*" in said else re.escape(said), found)


def test_text_at_the_beginning_is_quoted_and_escaped(tmp_path: Path) -> None:
    raw = whole_segment()
    start = starts_of(raw)[20]
    said = damaged(tmp_path, put(start, b"\x1b[2J <b>Order</b> " + LINES[:3000]))
    assert said == "text was written over it: it begins with '\\x1b[2J <b>Order</b> 2024-05-20 11:00:07 WA…'"


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (LINES[:3000], "a body of text"),
        (NOISE[:3000], "a compressed body"),
        (bytes(3000), "a body of zeros"),
        (b"\xff" * 3000, "a body of one byte"),
        (b"\x1f\x8b\x08" + NOISE[:3000], "a body that is a gzip file"),
        (record(77, body=b"a record that was sent on"), "a body that is a record"),
    ],
)
def test_a_body_is_not_taken_for_the_cause(tmp_path: Path, body: bytes, why: str) -> None:
    """Two fields of the record's frame are wrong, so its repair is not proven; what it carried is innocent."""
    raw = lay([{"body": b"before"}, {"body": body}, {"body": b"behind"}])
    start = starts_of(raw)[1]
    change = bytearray(raw)
    change[start + 3] ^= 0x55
    change[start + 4] ^= 0x55
    assert damaged(tmp_path, raw=pad(bytes(change), SIZE)) is None, why


def test_a_repaired_frame_wins_over_the_look_of_its_body(tmp_path: Path) -> None:
    raw = lay([{"body": b"before"}, {"body": bytes(20_000)}, {"body": b"behind"}])
    start = starts_of(raw)[1]
    said = damaged(tmp_path, put(start + 4, b"\xdb"), raw=pad(raw, SIZE))
    assert said is not None
    assert said.startswith("one flipped bit of MAGICCODE explains it: byte ")
    assert said.endswith("bit 0 is 0xdb, was 0xda; the record: TopicTest queue 0 offset 0")


def test_a_gap_without_a_mark_is_not_explained(tmp_path: Path) -> None:
    raw = whole_segment()
    start = starts_of(raw)[9]
    junk = bytes(number * 7 % 251 * (number % 3 > 0) for number in range(60))
    assert damaged(tmp_path, put(start, junk)) is None


@pytest.mark.parametrize("written", [8, 22, 40, 100, 700])
def test_a_torn_write_is_told_by_how_far_it_came(tmp_path: Path, written: int) -> None:
    raw = lay([{"body": b"before"}]) + b""
    last = record(len(raw), body=b"x" * 20_000)
    said = damaged(tmp_path, raw=pad(raw + last[:written], SIZE))
    assert said is not None
    found = re.fullmatch(
        r"torn write: only the first (\d+) of the record's 20 1\d\d bytes are there, zeros follow", said
    )
    assert found is not None
    assert written - 10 <= int(found[1]) <= written  # the last bytes written may have been zeros


def test_a_torn_write_names_the_border_where_it_stopped(tmp_path: Path) -> None:
    raw = lay([{"body": b"before"}])
    last = record(len(raw), body=b"x" * 20_000)
    said = damaged(tmp_path, raw=pad((raw + last)[:8192], SIZE))
    assert said is not None
    assert said.endswith("zeros follow from the border of a page on")


def test_a_record_over_older_bytes_is_a_torn_write(tmp_path: Path) -> None:
    """The file was used before: a page of the newer record was never written, older records show through."""
    old = lay([{"body": b"old" * 40, "store_timestamp": STORED - 50_000, "properties": {"KEYS": "a"}}] * 20)
    begun = record(0, body=b"new" * 500, store_timestamp=STORED)
    said = damaged(tmp_path, raw=pad(begun[:1000] + old[1000:], SIZE))
    assert said is not None
    assert said.startswith("torn write: the record has 1 600 bytes, but ")
    assert "an older record begins" in said


def test_a_newer_record_within_an_older_one_is_no_torn_write(tmp_path: Path) -> None:
    old = lay([{"body": b"old" * 40, "store_timestamp": STORED + 50_000, "properties": {"KEYS": "a"}}] * 20)
    begun = record(0, body=b"new" * 500, store_timestamp=STORED)
    assert damaged(tmp_path, raw=pad(begun[:1000] + old[1000:], SIZE)) is None


# --- misplaced records ----------------------------------------------------------------------------


@pytest.mark.parametrize("distance", [-8192, 8192, 5000, -7777])
def test_a_shifted_copy_is_told_with_its_distance(tmp_path: Path, distance: int) -> None:
    raw = whole_segment()
    at = 20_480
    copied = raw[at - distance : at - distance + 4096]
    said = damaged(tmp_path, put(at, copied))
    assert said is not None
    found = re.fullmatch(
        r"shifted copy: (\d+) whole records ([\d ]+) bytes (behind|before) their place, "
        r"physical offset ([\d ]+) \(0x\w+\), and stand there too",
        said,
    )
    assert found is not None
    assert int(found[2].replace(" ", "")) == abs(distance)
    assert found[3] == ("behind" if distance > 0 else "before")
    assert int(found[4].replace(" ", "")) in starts_of(raw)
    assert int(found[1]) >= 7


def test_what_moved_away_does_not_stand_at_its_place(tmp_path: Path) -> None:
    raw = whole_segment()
    moved = raw[:12_288] + bytes(4096) + raw[16_384:32_768] + raw[12_288:16_384] + raw[36_864:]
    found = explained(log(tmp_path, moved))
    assert found[0] == "a page of zeros: 4 096 bytes at byte 12 288 (0x3000)"
    assert found[1] is not None
    assert found[1].startswith("shifted copy: ")
    assert found[1].endswith("where they do not stand")


def test_another_segments_data_names_the_segment(tmp_path: Path) -> None:
    first, second = whole_segment(), bytearray(whole_segment(SIZE, 200))
    second[8192:12_288] = first[8192:12_288]
    (said,) = explained(log(tmp_path, fill(first.rstrip(b"\0"), SIZE), second))
    assert said is not None
    assert re.fullmatch(
        r"another segment's data: \d whole records belonging at physical offset 8 \d\d\d \(0x2\w\w\w\) "
        r"\(commitlog/00000000000000000000\), and stand there too",
        said,
    )


def test_data_of_a_segment_that_is_gone_is_told(tmp_path: Path) -> None:
    raw = bytearray(whole_segment(4 * SIZE, 200))
    raw[8192:12_288] = whole_segment()[8192:12_288]
    (said,) = explained(log(tmp_path, raw, first=4 * SIZE))
    assert said is not None
    assert re.match(r"data of a segment that is not here: \d whole records belonging at physical offset 8 \d", said)


def test_records_from_two_places_are_no_copy(tmp_path: Path) -> None:
    raw = whole_segment()
    mixed = raw[8192:10_240] + raw[30_000:32_048]
    said = damaged(tmp_path, put(20_480, mixed))
    assert said is not None
    assert re.match(r"data of several places: \d whole records, the first one belongs at physical offset 8 \d", said)


@pytest.mark.parametrize(("distance", "told_of"), [(40 * 512, True), (40_000, False)])
def test_the_beginning_of_a_misplaced_record_is_enough(tmp_path: Path, distance: int, told_of: bool) -> None:
    """A page of another place holds the head of a large record, and no whole one."""
    raw = bytearray(whole_segment(size=808))
    stray = record(10_000 + distance, body=bytes(range(1, 200)) * 50)[:2288]
    raw[8192:12_288] = bytes(range(1, 17)) * 113 + stray
    said = explained(log(tmp_path, raw))[0]
    assert (said is not None and said.startswith("bytes of another place: at byte 10 000 (0x2710)")) == told_of
    assert not told_of or f"belongs at physical offset {_grouped(10_000 + distance)}" in str(said)
    assert told_of or said is None


# --- DLedger --------------------------------------------------------------------------------------


def test_damage_in_a_dledger_file_is_explained_too(tmp_path: Path) -> None:
    raw = bytearray(whole_segment(dledger=True))
    records = starts_of(raw)
    raw[records[5] - EntryHead.sizeof() + 7] ^= 4
    raw[records[20] + 3] ^= 0x55
    raw[40_960:45_056] = bytes(4096)
    (tmp_path / "dledger-n0" / "data").mkdir(parents=True)
    (tmp_path / "dledger-n0" / "data" / f"{0:020}").write_bytes(raw)
    entry_said, record_said, page_said = explained(open_store([str(tmp_path)]))
    assert entry_said is not None
    assert record_said is not None
    assert entry_said.startswith("one flipped bit of the entry's size explains it: ")
    assert record_said.startswith("only TOTALSIZE at byte ")
    assert page_said == "a page of zeros: 4 096 bytes at byte 40 960 (0xa000)"


# --- bodies ---------------------------------------------------------------------------------------

AT = 3 * 4096 - 500  # where the record lies in its file


def said_of(now: bytes, was: bytes, *, at: int = AT, **piece: Any) -> str | None:
    """Return what is said of a record whose body became another one of the same length."""
    assert len(now) == len(was)
    raw = record(at, body=was, **piece)
    start = raw.index(was)
    return explain_body_crc(raw[:start] + now + raw[start + len(was) :], at, at)


def test_a_lost_page_in_a_body_is_told() -> None:
    was = NOISE[:10_000]
    now = was[:412] + bytes(4096) + was[412 + 4096 :]
    assert said_of(now, was) == "a page of zeros: 4 096 bytes at byte 12 288 (0x3000)"
    # Zeros that no page border explains may be the sender's.
    assert said_of(b"\1" + (now[:200] + bytes(3000) + now[3200:])[1:-1] + b"\1", was) is None


@pytest.mark.parametrize("where", [0, 77, 299])
def test_one_changed_byte_is_told(where: int) -> None:
    was = NOISE[:300]
    now = was[:where] + bytes([was[where] ^ 0x3C]) + was[where + 1 :]
    place = AT + 88 + where
    said = said_of(now, was)
    assert said is not None
    assert said.startswith(f"one changed byte explains it: byte {_grouped(place)} ({place:#x}) is {now[where]:#04x}")
    assert f", was {was[where]:#04x}" in said


def test_bodies_that_tell_nothing_are_not_explained() -> None:
    was = NOISE[:300]
    assert said_of(was[:100] + b"!!" + was[102:], was) is None
    assert said_of(LINES[:300], was) is None
    assert said_of(NOISE[300:600], was) is None
    assert explain_body_crc(b"", 0, 0) is None
    assert explain_body_crc(record(0, body=b""), 0, 0) is None
    assert explain_body_crc(record(0, body=was)[:200], 0, 0) is None


def test_an_older_record_that_shows_through_is_told() -> None:
    was = NOISE[:5_000]
    inside = AT + 88 + 1_000
    old = record(inside, body=b"old")
    now = was[:1_000] + old + was[1_000 + len(old) :]
    where = f"at byte {_grouped(inside)} ({inside:#x}) another record begins"
    assert said_of(now, was) == f"older bytes: {where}, at its own place, so the file held it before"


@pytest.mark.parametrize(("distance", "told_of"), [(512 * 9, True), (4096, True), (1_000, False)])
def test_records_of_another_place_are_told_by_whole_sectors(distance: int, told_of: bool) -> None:
    was = NOISE[:5_000]
    stray = record(AT + 88 + 1_000 + distance, body=b"stray")
    said = said_of(was[:1_000] + stray + was[1_000 + len(stray) :], was)
    assert (said is not None and said.startswith("bytes of another place: ")) == told_of
    assert told_of or said is None


@pytest.mark.parametrize(("flags", "told_of"), [(0x1, True), (0x301, True), (0x101, False), (0, False)])
def test_text_has_no_place_in_what_zlib_compressed(flags: int, told_of: bool) -> None:
    was = zlib.compress(NOISE[:3_000].hex().encode())
    now = was[:900] + LINES[:200] + was[1_100:]
    said = said_of(now, was, sys_flag=flags)
    assert said == ("text stands in the compressed body: '" + LINES[:40].decode() + "…'" if told_of else None)


# --- the CRC of the whole record ------------------------------------------------------------------


def test_every_flipped_bit_under_the_record_crc_is_named() -> None:
    raw = record(500, crc=True, properties={"KEYS": "a", "TAGS": "b"})
    names = fields_of(raw)
    assert explain_record_crc(raw, 500) is None
    for at in range(len(raw) - message.CRC32_RESERVED_SIZE):
        bit = at % 8
        changed = raw[:at] + bytes([raw[at] ^ 1 << bit]) + raw[at + 1 :]
        said = explain_record_crc(changed, 500)
        assert said is not None
        # A length that leads nowhere leaves the fields behind it without a name.
        assert said.startswith((f"one flipped bit of {names[at]} explains it: ", "one flipped bit of the properties"))
        assert f"byte {500 + at} ({500 + at:#x}) bit {bit} is {changed[at]:#04x}" in said


def test_a_flipped_bit_of_the_stored_record_crc_is_told() -> None:
    raw = record(0, crc=True)
    at = len(raw) - 5
    was, now = raw[at], raw[at] ^ 1
    assert explain_record_crc(raw[:at] + bytes([now]) + raw[at + 1 :], 0) == (
        f"one flipped bit of the stored CRC explains it: byte {at} ({at:#x}) bit 0 is {now:#04x} {chr(now)!r}, "
        f"was {was:#04x} {chr(was)!r}"
    )
    assert explain_record_crc(raw[:20] + b"\1\1" + raw[22:], 0) is None
    assert explain_record_crc(raw[:20] + b"\1\1" + raw[22:-5] + b"x" + raw[-4:], 0) is None


# --- own offsets ----------------------------------------------------------------------------------


def offset_said(root: Path, raw: bytes, at: int, *others: bytes) -> str | None:
    store = log(root, raw, *others)
    return explain_own_offset(store, store.segments[0], at)


def test_a_copy_of_a_record_is_told_with_its_place(tmp_path: Path) -> None:
    raw = bytearray(pad(lay([{"body": b"same length %d" % number} for number in range(8)]), SIZE))
    size = starts_of(raw)[1]
    raw[5 * size : 6 * size] = raw[2 * size : 3 * size]
    assert offset_said(tmp_path, bytes(raw), 5 * size) == (
        f"a copy: the same record stands at its own place, physical offset {2 * size} ({2 * size:#x}) "
        "(commitlog/00000000000000000000)"
    )


@pytest.mark.parametrize(
    ("written_for", "said"),
    [
        (5 * SIZE, "data of a segment that is not here: "),
        (SIZE, "another segment's data (commitlog/00000000000000065536): "),
        (4096, "shifted copy: "),
    ],
)
def test_records_that_are_all_off_by_the_same_are_told(tmp_path: Path, written_for: int, said: str) -> None:
    pieces = various(20)
    found = offset_said(tmp_path, pad(lay(pieces, written_for), SIZE), 0, pad(lay(pieces[:1], SIZE), SIZE)[::-1])
    assert found == f"{said}the record behind it is {_grouped(written_for)} bytes off as well"


def test_an_own_offset_that_nothing_explains(tmp_path: Path) -> None:
    last = record(1_000, body=b"alone")
    assert offset_said(tmp_path, pad(last, SIZE), 0) is None
    assert offset_said(tmp_path / "short", last[:50], 0) is None


# --- integers -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expected", "found", "width", "said"),
    [
        (5, 4, 32, "one flipped bit explains it: bit 0 of 32 is 0, was 1"),
        (0, 1 << 33, 64, "one flipped bit explains it: bit 33 of 64 is 1, was 0"),
        (7, 7 - (1 << 63), 64, "one flipped bit explains it: bit 63 of 64 is 1, was 0"),
        (5, 5, 32, None),
        (5, 6, 32, None),
        (-1, 0, 32, None),
    ],
)
def test_integers_that_differ_in_one_bit(expected: int, found: int, width: int, said: str | None) -> None:
    assert explain_difference(expected, found, width) == said


# --- hostile bytes --------------------------------------------------------------------------------

PARTS = st.one_of(
    st.binary(max_size=300),
    st.sampled_from([b"\xda\xa3\x20\xa7", b"\xda\xa3\x20\xab", blank(100), bytes(4096), LINES[:500], NOISE[:900]]),
    st.builds(lambda at, body: record(at, body=body), st.integers(0, 1 << 40), st.binary(max_size=200)),
)


@settings(max_examples=150, deadline=None)
@given(parts=st.lists(PARTS, max_size=12), data=st.data())
def test_any_bytes_have_no_cause_or_one_printable_line(
    tmp_path_factory: pytest.TempPathFactory, parts: list[bytes], data: st.DataObject
) -> None:
    raw = b"".join(parts)
    root = tmp_path_factory.mktemp("any")
    (root / "commitlog").mkdir()
    (root / "commitlog" / f"{SIZE:020}").write_bytes(raw)
    store = open_store([str(root)])
    start = data.draw(st.integers(0, len(raw)))
    end = data.draw(st.integers(start, len(raw)))
    (segment,) = store.segments
    clauses = (
        explain_gap(store, segment, SIZE + start, SIZE + end),
        explain_damage(store, segment, SIZE + start),
        explain_own_offset(store, segment, SIZE + start),
        explain_body_crc(raw[start:end], start, start),
        explain_record_crc(raw[start:end], start),
    )
    assert all(clause is None or (clause and clause.isprintable()) for clause in clauses), clauses


def heads(count: int) -> Iterable[bytes]:
    """Yield heads that claim to reach to the end of the file, each in the body of the one before."""
    for number in range(count):
        size = (count - number) * 100
        yield record(number * 100, body=b"")[:84] + (size - 100).to_bytes(4, "big") + bytes(12)


def test_little_is_read_of_a_large_gap_and_a_crafted_one_ends_soon(tmp_path: Path) -> None:
    folder = tmp_path / "commitlog"
    folder.mkdir()
    with (folder / f"{0:020}").open("wb") as file:
        file.write(b"\1\2\3" * 100)
        file.write(b"".join(heads(5_000)))
        file.truncate(1 << 30)
    store = open_store([str(tmp_path)])
    read = FileReader.bytes_read
    assert explain_gap(store, store.segments[0], 0, 1 << 30) is None
    assert FileReader.bytes_read - read < 16 << 20


def test_a_file_that_is_gone_is_not_explained(tmp_path: Path) -> None:
    store = log(tmp_path, whole_segment())
    (tmp_path / "commitlog" / f"{0:020}").unlink()
    assert explain_gap(store, store.segments[0], 0, 100) is None
    assert explain_own_offset(store, store.segments[0], 0) is None
    assert explain_damage(store, store.segments[0], 0) is None
