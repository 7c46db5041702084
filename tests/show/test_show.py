"""One record, every byte of it: golden bytes, real stores, damage of every kind."""

import json
import re
import time
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqinspect.cli.verbs.show import command
from rmqinspect.codec.decompress import decompress
from rmqinspect.codec.layout import FieldRow
from rmqinspect.commitlog.record_reader import RecordReader, Spot
from rmqinspect.errors import BadRecord, NothingFound
from rmqinspect.schemas import dledger, message
from rmqinspect.show.record import NOT_PARSED, describe_entry_head, describe_record, hex_lines
from rmqinspect.store.discover import open_store
from rmqinspect.text import escape
from tests.broker.damages import set_field
from tests.support import oracle
from tests.support.building import record
from tests.support.samples import sample

# 209 bytes at 0x40001000: V1, both hosts IPv4, four properties.
PLAIN = bytes.fromhex("""
    00 00 00 d1 da a3 20 a7 69 c8 65 ed 00 00 00 03
    00 00 00 00 00 00 00 00 00 00 00 2a 00 00 00 00
    40 00 10 00 00 00 00 00 00 00 01 8f 95 1f 6a 53
    c0 a8 01 0a 00 00 d0 ae 00 00 01 8f 95 1f 6a 5f
    0a 00 00 05 00 00 2a 9f 00 00 00 00 00 00 00 00
    00 00 00 00 00 00 00 0e 48 65 6c 6c 6f 20 52 6f
    63 6b 65 74 4d 51 09 54 6f 70 69 63 54 65 73 74
    00 5f 4b 45 59 53 01 4f 52 44 45 52 2d 31 30 30
    31 20 55 37 37 02 55 4e 49 51 5f 4b 45 59 01 43
    30 41 38 30 31 30 41 31 41 32 42 31 38 42 34 41
    41 43 32 36 33 41 42 46 41 35 33 30 30 30 37 02
    43 4c 55 53 54 45 52 01 44 65 66 61 75 6c 74 43
    6c 75 73 74 65 72 02 54 41 47 53 01 54 61 67 41
    02
""")

# 113 bytes at 0x40001000: body "a", topic "T", nothing but the property CRC.
WITH_CRC = bytes.fromhex("""
    00 00 00 71 da a3 20 a7 68 b7 be 43 00 00 00 03
    00 00 00 00 00 00 00 00 00 00 00 2a 00 00 00 00
    40 00 10 00 00 00 00 00 00 00 01 8f 95 1f 6a 53
    c0 a8 01 0a 00 00 d0 ae 00 00 01 8f 95 1f 6a 5f
    0a 00 00 05 00 00 2a 9f 00 00 00 00 00 00 00 00
    00 00 00 00 00 00 00 01 61 01 54 00 14 5f 5f 43
    52 43 33 32 23 01 31 38 36 38 37 33 32 30 31 30
    02
""")

# 297 bytes at 0x400010d1: V2, both hosts IPv6, property CRC.
WITH_IPV6 = (
    bytes.fromhex("""
    00 00 01 29 da a3 20 ab 69 c8 65 ed 00 00 00 00
    00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
    40 00 10 d1 00 00 00 30 00 00 01 8f 95 1f 6a 53
    20 01 0d b8 00 00 00 00 00 00 00 00 00 00 00 01
    00 00 d0 ae 00 00 01 8f 95 1f 6a 60 20 01 0d b8
    00 00 00 00 00 00 00 00 00 00 00 02 00 00 2a 9f
    00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 0e
    48 65 6c 6c 6f 20 52 6f 63 6b 65 74 4d 51 00 89
""")
    + b"%RETRY%"
    + b"g" * 120
    + b"+TopicTest\0\x1eTAGS\x01TagA\x02__CRC32#\x013257774611\x02"
)

GOLDEN = [(PLAIN, 0x40001000), (WITH_CRC, 0x40001000), (WITH_IPV6, 0x400010D1)]


def by_name(rows: list[FieldRow]) -> dict[str, FieldRow]:
    return {row.name: row for row in rows}


def tiled(rows: list[FieldRow]) -> bytes:
    """Return the bytes of the rows of depth 0, which must lie side by side."""
    raw = b""
    for row in rows:
        if row.depth == 0:
            assert row.offset == len(raw)
            raw += row.raw
    return raw


def flip(raw: bytes, byte: int, bit: int) -> bytes:
    return raw[:byte] + bytes([raw[byte] ^ 1 << bit]) + raw[byte + 1 :]


def run(*arguments: object) -> Result:
    return CliRunner().invoke(command, [str(argument) for argument in arguments], standalone_mode=False)


# --- one record ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("raw", "offset"), GOLDEN)
def test_a_whole_record_has_no_problem_and_no_unexplained_byte(raw: bytes, offset: int) -> None:
    rows = describe_record(raw + b"\0" * 7, offset)
    assert tiled(rows) == raw
    assert not [row for row in rows if row.problem]


def test_every_field_has_its_place_value_and_meaning() -> None:
    rows = by_name(describe_record(PLAIN, 0x40001000))
    assert [(row.name, row.offset, row.size) for row in rows.values()][:20] == [
        ("total_size", 0, 4),
        ("magic", 4, 4),
        ("body_crc", 8, 4),
        ("queue_id", 12, 4),
        ("flag", 16, 4),
        ("queue_offset", 20, 8),
        ("physical_offset", 28, 8),
        ("sys_flag", 36, 4),
        ("born_timestamp", 40, 8),
        ("born_host", 48, 8),
        ("store_timestamp", 56, 8),
        ("store_host", 64, 8),
        ("reconsume_times", 72, 4),
        ("prepared_transaction_offset", 76, 8),
        ("body_size", 84, 4),
        ("body", 88, 14),
        ("topic_size", 102, 1),
        ("topic", 103, 9),
        ("properties_size", 112, 2),
        ("properties", 114, 95),
    ]
    assert rows["born_timestamp"].note == "2024-05-20T08:30:15.123Z"
    assert rows["born_host"].value == "192.168.1.10:53422"
    assert rows["store_host"].note == "offset msg id 0A00000500002A9F0000000040001000"
    assert rows["body_crc"].note == "ok"
    assert (rows["KEYS"].offset, rows["KEYS"].value) == (114, "ORDER-1001 U77")
    assert rows["UNIQ_KEY"].note == "192.168.1.10 pid 6699 counter 7, client in UTC"
    assert rows["TAGS"].note == "tags code 2598919"
    assert b"".join(row.raw for row in rows.values() if row.depth == 1) == PLAIN[114:]


def test_the_record_crc_is_checked() -> None:
    assert by_name(describe_record(WITH_CRC))["__CRC32#"].note.startswith("ok: 102378681")
    damaged = by_name(describe_record(flip(WITH_CRC, 20, 2)))["__CRC32#"]
    assert damaged.problem
    assert "one flipped bit of queue_offset explains it: byte +20 bit 2 is 0x04, was 0x00" in damaged.note


def test_a_record_crc_glued_to_the_value_before_it_is_checked() -> None:
    head, tail = WITH_IPV6[:-21], WITH_IPV6[-20:]  # without the separator between
    shorter = len(head) + len(tail)
    size_at = len(head) - len(b"TAGS\x01TagA") - 2
    head = shorter.to_bytes(4, "big") + head[4:size_at] + (29).to_bytes(2, "big") + head[size_at + 2 :]
    digits = f"{zlib.crc32(head) & message.CRC_MASK:010}"[::-1].encode()
    rows = describe_record(head + tail[:9] + digits + tail[-1:])
    assert rows[-1].name == "__CRC32#"
    assert rows[-1].note.startswith("ok: ")
    assert "glued" in rows[-1].note
    assert not [row for row in rows if row.problem]


@pytest.mark.parametrize("bit", range(8))
def test_one_flipped_bit_of_the_body_is_named(bit: int) -> None:
    crc = by_name(describe_record(flip(PLAIN, 90, bit)))["body_crc"]
    assert crc.problem
    assert f"one flipped bit explains it: byte +90 bit {bit} is " in crc.note
    assert "was 0x6c 'l'" in crc.note


@pytest.mark.parametrize("bit", range(32))
def test_one_flipped_bit_of_the_stored_crc_is_named(bit: int) -> None:
    crc = by_name(describe_record(flip(PLAIN, 11 - bit // 8, bit % 8)))["body_crc"]
    assert crc.problem
    assert f"one flipped bit of the stored CRC explains it: byte +{11 - bit // 8} bit {bit % 8} is " in crc.note


def test_zeros_in_a_damaged_body_are_named() -> None:
    body = bytes(range(1, 256)) + b"\0" * 100
    head = PLAIN[:84] + len(body).to_bytes(4, "big") + body
    assert "bytes +343 to +443 are zero" in by_name(describe_record(head + PLAIN[102:]))["body_crc"].note


@pytest.mark.parametrize(
    ("sys_flag", "words"),
    [
        (0x0, "none"),
        (0x1, "COMPRESSED, compression zlib"),
        (0x109, "COMPRESSED, transaction commit, compression lz4"),
        (0x2C, "STOREHOSTADDRESS_V6, transaction rollback"),
        (0x200, "compression zstd (of no effect: not compressed)"),
        (0x501, "COMPRESSED, compression type 5, unknown"),
        (0xC0, "NEED_UNWRAP, INNER_BATCH"),
        (-0x80000000, "bits 0x80000000 without a meaning"),
    ],
)
def test_sys_flag_bits_are_words(sys_flag: int, words: str) -> None:
    raw = PLAIN[:36] + sys_flag.to_bytes(4, "big", signed=True) + PLAIN[40:]
    assert by_name(describe_record(raw))["sys_flag"].note == words


def test_a_blank_record_counts_its_filler() -> None:
    raw = bytes.fromhex("00 00 04 d2 cb d4 31 94") + b"x" * 2000
    rows = describe_record(raw)
    assert tiled(rows) == raw[:1234]
    assert rows[1].note == "blank: the segment ends here"
    assert describe_record(b"\0\0\0\5" + raw[4:])[0].problem


def test_hostile_text_is_escaped() -> None:
    raw = PLAIN.replace(b"TopicTest", b"T\x1b[31mst\x07").replace(b"TagA", b"\xe2\x80\xaeA")
    rows = by_name(describe_record(raw))
    assert rows["topic"].value == r"T\x1b[31mst\x07"
    assert rows["TAGS"].value == r"\u202eA"


def test_invalid_utf_8_and_odd_properties_are_named() -> None:
    rows = by_name(describe_record(PLAIN.replace(b"Topic", b"\xffopic").replace(b"TAGS\x01", b"TAGS.")))
    assert rows["topic"].note == "not valid UTF-8"
    assert rows["(no separator)"].problem


def test_an_inner_batch_is_split() -> None:
    item = {"magic": 0, "body_crc": 0, "flag": 0, "properties": b"KEYS\x01k\x02", "properties_size": 7}
    items = b"".join(
        message.BatchItem.build({**item, "body": body, "body_size": len(body), "total_size": 29 + len(body)})
        for body in (b"one", b"second")
    )
    raw = PLAIN[:36] + (0xC0).to_bytes(4, "big") + PLAIN[40:84] + len(items).to_bytes(4, "big")
    rows = describe_record(raw + items + b"rest" + PLAIN[102:])
    found = [(row.name, row.value, row.offset) for row in rows if row.name.startswith("item")]
    assert found == [("item 0", "one", 88), ("item 1", "second", 120)]
    cut = describe_record(raw + items[:-1] + b"\xff" + PLAIN[102:])
    assert [row.name for row in cut if row.depth == 1][:2] == ["item 0", "item 1"]
    wrong = describe_record(raw + flip(items, 35, 0) + PLAIN[102:])
    assert next(row for row in wrong if row.depth == 1 and row.problem).name == NOT_PARSED


def test_a_dledger_entry_head_is_explained() -> None:
    head = bytes.fromhex(
        "00000001 00000115 0000000000000000 0000000000000000 000000000000400000000000 00000000 00000000 000000e5"
    )
    rows = describe_entry_head(head, 0x4000)
    assert tiled(rows) == head
    assert not [row for row in rows if row.problem]
    assert [row.name for row in describe_entry_head(head, 0x5000) if row.problem] == ["position"]
    assert [row.name for row in describe_entry_head(flip(head, 7, 0)) if row.problem] == ["size"]
    assert describe_entry_head(head[:20])[-1].name == NOT_PARSED
    blank = describe_entry_head(bytes.fromhex("ffffffff 00001000"))
    assert [row.name for row in blank] == ["magic", "total_size"]


# --- damage -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("raw", "offset"), GOLDEN)
def test_every_truncation_is_described_to_its_last_byte(raw: bytes, offset: int) -> None:
    for size in range(len(raw)):
        rows = describe_record(raw[:size], offset)
        assert tiled(rows) == raw[:size]
        assert any(row.problem for row in rows)
        assert rows[-1].name == NOT_PARSED


@pytest.mark.parametrize(("raw", "offset"), GOLDEN)
def test_every_flipped_bit_is_described(raw: bytes, offset: int) -> None:
    for place in range(len(raw) * 8):
        flipped = flip(raw, place // 8, place % 8)
        rows = describe_record(flipped, offset)
        assert tiled(rows) == flipped[: len(tiled(rows))]
        if raw is not PLAIN and place // 8 < len(raw) - message.CRC32_RESERVED_SIZE:
            assert any(row.problem for row in rows), place  # the record CRC sees them all


@settings(max_examples=300)
@given(st.binary(max_size=300), st.integers(-(2**63), 2**63 - 1))
def test_any_bytes_are_described(raw: bytes, offset: int) -> None:
    assert tiled(describe_record(raw, offset)) == raw[: len(tiled(describe_record(raw, offset)))]
    describe_entry_head(raw, offset)


@settings(max_examples=300)
@given(st.sampled_from(GOLDEN), st.lists(st.tuples(st.integers(0, 296), st.binary(min_size=1, max_size=4))))
def test_any_overwritten_record_is_described(golden: tuple[bytes, int], changes: list[tuple[int, bytes]]) -> None:
    raw = bytearray(golden[0])
    for place, new in changes:
        raw[place : place + len(new)] = new
    rows = describe_record(bytes(raw), golden[1])
    assert all(escape(text) == text for row in rows for text in (row.name, row.value, row.note))


def test_a_lying_size_allocates_nothing() -> None:
    for field_at in (0, 84):
        raw = PLAIN[:field_at] + b"\x7f\xff\xff\xff" + PLAIN[field_at + 4 :]
        assert sum(row.size for row in describe_record(raw) if row.depth == 0) == len(raw)


def test_a_compressed_body_has_a_limit() -> None:
    bomb = zlib.compress(b"\0" * 10_000_000)
    assert len(decompress(bomb, "zlib", 10_000_000)) == 10_000_000
    with pytest.raises(BadRecord, match="more than 1000 bytes"):
        decompress(bomb, "zlib", 1000)


@pytest.mark.parametrize("compression", ["zlib", "lz4", "zstd"])
@given(raw=st.binary(max_size=60))
@settings(max_examples=60)
def test_any_bytes_are_decompressed_or_refused(compression: str, raw: bytes) -> None:
    with suppress(BadRecord):
        assert len(decompress(raw, compression, 1000)) <= 1000


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_arrow_decompresses_within_the_limit(compression: str) -> None:
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, compression) as stream:
        stream.write(b"x" * 3_000_000)
    raw = sink.getvalue().to_pybytes()
    assert decompress(raw, compression, 3_000_000) == b"x" * 3_000_000
    with pytest.raises(BadRecord, match="more than"):
        decompress(raw, compression, 2_999_999)
    with pytest.raises(BadRecord):
        decompress(b"\0" + raw[1:], compression, 3_000_000)


def test_hex_lines_say_what_they_leave_out() -> None:
    lines = list(hex_lines(bytes(range(0x41, 0x41 + 40)), 16, limit=1))
    assert lines == [
        "00000010  41 42 43 44 45 46 47 48  49 4a 4b 4c 4d 4e 4f 50  |ABCDEFGHIJKLMNOP|",
        "… 24 more bytes",
    ]


# --- stores -------------------------------------------------------------------------------------


def spots(root: Path) -> Iterator[tuple[str, int, int]]:
    """Yield (kind, start, end) of all that follows one another in a healthy log."""
    with RecordReader(open_store([str(root)])) as log:
        for segment in log.store.segments:
            offset = segment.base
            while offset < segment.base + segment.size:
                begins = log.opened(segment).what_begins(offset)
                if begins is None or begins[2] is None:
                    break
                yield begins[0], begins[1], begins[2]
                offset = begins[2]


def locate(root: Path, offset: int) -> Spot:
    """Return what lies at an offset."""
    with RecordReader(open_store([str(root)])) as log:
        return log.locate(offset)


@pytest.mark.parametrize(
    ("family", "name", "step"),
    [
        ("crash", "base-4.2.0-halt", 5),
        ("crash", "base-5.3.3-clean", 5),
        ("broker", "dledger-5.3.3", 11),
        ("broker", "main-5.5.0", 23),
    ],
)
def test_records_of_real_stores_are_shown_whole(family: oracle.Family, name: str, step: int) -> None:
    root = oracle.store(family, name)
    found = list(spots(root))
    assert len(found) > 200
    for number, (kind, start, end) in enumerate(found[::step]):
        at = (start, end - 1, (start + end) // 2)[number % 3]
        result = run(root, "--at", at, "-f", "json")
        assert result.return_value == 0, result.output
        document = json.loads(result.stdout)
        assert (document["kind"], document["physical_offset"], document["end"]) == (kind, start, end)
        assert not document["damaged"], document
        lines = run(root, "--at", at).stdout.splitlines()
        assert max(map(len, lines)) <= 100
        if kind == "record":
            raw = "".join(row["bytes"] for row in document["rows"] if row["depth"] == 0)
            assert len(raw) // 2 == end - start + (dledger.EntryHead.sizeof() if "dledger" in name else 0)


def test_the_queue_unit_of_a_record_is_found() -> None:
    text = run(sample("flipped-bit-5.3.3"), "--at", 97187).stdout
    assert "consumequeue/BatchTopic/1/00000000000000000000 at 260 (0x104): unit 13 -> 97187, 326" in text


@pytest.mark.parametrize("kind", ["queueid_", "topicname_"])
def test_the_unit_of_a_record_with_a_wrong_queue_is_found_in_its_own(kind: str) -> None:
    """A record that says another topic or queue id than the queue that has its unit; prepared ones have none."""
    for name in (case for case in oracle.cases("crash") if case.startswith(kind)):
        base, position = re.findall(
            r"commitlog/(\d{20}).* record at position (\d+)", oracle.case("crash", name)["damage"][0]
        )[0]
        place = int(base) + int(position)
        served = [row for queue in oracle.truth("crash", name)["messages"] for row in queue["found"] if row[1] == place]
        shown = json.loads(run(oracle.store("crash", name), "--at", place, "-f", "json").stdout)
        facts = [fact for fact in shown["facts"] if fact["name"] == "queue unit"]
        assert [fact["damage"] for fact in facts] == ([True] if served else [False])
        assert all(f"-> {place}, " in fact["text"] and "the record says" in fact["text"] for fact in facts if served)


def test_fields_that_are_cut_off_are_told_in_our_words() -> None:
    """Not in those of the library that reads them."""
    for size in (0, 2, 50, 90, 150, 200):
        row = next(row for row in describe_record(PLAIN[:size]) if row.name == NOT_PARSED)
        assert re.fullmatch(r"\w+: only \d+ of its \d+ bytes are there", row.note)
    negative = PLAIN[:102] + b"\xff" + PLAIN[103:]
    assert [row.note for row in describe_record(negative) if row.name == NOT_PARSED] == ["topic: its length is -1"]


def test_a_flipped_bit_in_a_store_is_named_and_is_exit_3() -> None:
    identity = "7F000001000055970000000000017BA3"
    for at in ("97187", "0x17ba3", "65536+31651", "0x10000+0x7ba3", identity, "97200"):
        result = run(sample("flipped-bit-5.3.3"), "--at", at)
        assert result.return_value == 3
        text = " ".join(result.stdout.split())
        assert (
            "differs: computed 949938881; one flipped bit explains it: byte 31 794 (0x7c32) bit 5 is 0x48 'H'" in text
        )
        assert "previous record 96 253 (0x177fd)" in text
        assert "next record 97 513 (0x17ce9)" in text
        assert "DAMAGED body_crc" in text


def test_an_offset_inside_of_a_record_names_it() -> None:
    text = run(sample("flipped-bit-5.3.3"), "--at", 97200).stdout
    assert "97 200 (0x17bb0) is 13 bytes into it" in text


def test_zeros_are_said_and_exit_5() -> None:
    result = run(sample("flipped-bit-5.3.3"), "--at", 250_000)
    assert result.return_value == 5
    assert "zeros from here to 262 144" in result.stdout
    assert "before        record 214 163 (0x34493) to 217 698 (0x35262)" in result.stdout


def test_a_blank_record_is_found_from_inside_of_its_filler() -> None:
    result = run(sample("flipped-bit-5.3.3"), "--at", 64_000)
    assert result.return_value == 0
    assert "blank record  63 425 (0xf7c1), 2 111 bytes" in result.stdout
    assert "segment commitlog/00000000000000065536 begins there" in result.stdout


def test_a_record_with_the_magic_of_a_blank_one_is_shown_as_a_damaged_record(tmp_path: Path) -> None:
    store = oracle.copy("crash", "base-5.5.0-clean", tmp_path)
    set_field(store, segment=-1, record=7, field="magic", value=f"={message.MAGIC_BLANK}")
    spot = locate(store, 201_489)
    assert (spot.kind, spot.start, spot.end) == ("unknown", 201_489, 201_827)
    result = run(store, "--at", 201_500)
    assert result.return_value == 3
    assert "0xcbd43194  ! that of a blank record" in result.stdout
    assert "only MAGICCODE at byte 4 885 (0x1315) was changed" in result.stdout


@pytest.mark.parametrize(("at", "match"), [(10**9, "beyond the log"), (327_680, "0 .0x0. to 327 680")])
def test_outside_of_the_log_the_range_is_named(at: int, match: str) -> None:
    with pytest.raises(NothingFound, match=match):
        locate(sample("flipped-bit-5.3.3"), at)


@pytest.mark.parametrize("at", ["K95", "1+2+3", "-5", "", "C0A8010A1A2B18B4AAC263ABFA530007", "\x1b[31m"])
def test_an_offset_that_is_none_is_wrong_usage(at: str) -> None:
    result = CliRunner().invoke(command, [str(sample("flipped-bit-5.3.3")), "--at", at])
    assert result.exit_code == 2
    assert "\x1b" not in result.stderr


def segment_of(path: Path, raw: bytes) -> Path:
    """Write a commit log with one segment at 0, and return it."""
    folder = path / "store" / "commitlog"
    folder.mkdir(parents=True)
    (folder / f"{0:020}").write_bytes(raw)
    return folder.parent


def record_at(offset: int, body: bytes = b"Hello RocketMQ") -> bytes:
    """Return PLAIN as it would lie at another offset with another body."""
    crc = zlib.crc32(body) & message.CRC_MASK
    size = len(PLAIN) - 14 + len(body)
    front = size.to_bytes(4, "big") + PLAIN[4:8] + crc.to_bytes(4, "big") + PLAIN[12:28]
    head = front + offset.to_bytes(8, "big") + PLAIN[36:84] + len(body).to_bytes(4, "big")
    return head + body + PLAIN[102:]


def test_a_record_in_the_body_of_another_one_is_not_the_logs(tmp_path: Path) -> None:
    inner = record_at(209 + 100)
    outer = record_at(209, b"." * 12 + inner + b".")
    root = segment_of(tmp_path, record_at(0) + outer + record_at(209 + len(outer)) + b"\0" * 9000)
    assert locate(root, 209 + 101).start == 209
    assert locate(root, 209 + len(outer) - 1).start == 209


@pytest.mark.parametrize("place", range(8))
def test_a_record_with_a_damaged_front_is_shown_from_where_it_begins(tmp_path: Path, place: int) -> None:
    raw = record_at(0) + flip(record_at(209), place, 6) + record_at(418) + b"\0" * 9000
    root = segment_of(tmp_path, raw)
    for at in (209, 300, 417):
        result = run(root, "--at", at, "-f", "json")
        assert result.return_value == 3
        document = json.loads(result.stdout)
        assert (document["physical_offset"], document["end"], document["previous"]) == (209, 418, 0)
        assert "Hello RocketMQ" in run(root, "--at", at, "--body", "full").stdout


def test_bytes_that_are_no_record_are_shown(tmp_path: Path) -> None:
    root = segment_of(tmp_path, record_at(0) + b"\xee" * 500 + record_at(709) + b"\0" * 9000)
    result = run(root, "--at", 300)
    assert result.return_value == 3
    assert "no record     209" in result.stdout
    assert "ee ee ee ee" in result.stdout
    assert "next          record 709" in result.stdout


def test_body_forms(tmp_path: Path) -> None:
    root = segment_of(tmp_path, record_at(0, b"abc" * 1000) + b"\0" * 9000)
    assert "abcabc" not in run(root, "--at", 0, "--body", "none").stdout
    assert "…" in run(root, "--at", 0).stdout
    full = "".join(run(root, "--at", 0, "--body", "full").stdout.split())
    assert full.count("abc") >= 1000
    whole = json.loads(run(root, "--at", 0, "-f", "json").stdout)
    assert whole["body"] == "abc" * 1000
    none = json.loads(run(root, "--at", 0, "-f", "json", "--body", "none").stdout)
    assert "body" not in none
    assert next(row for row in none["rows"] if row["name"] == "body")["bytes"] is None


def test_a_body_of_nothing_but_magics_costs_little(tmp_path: Path) -> None:
    body = b"\xda\xa3\x20\xa7" * (1 << 20)
    root = segment_of(tmp_path, record_at(0, body) + b"\0" * 9000)
    begin = time.process_time()
    assert run(root, "--at", 4_000_000, "-f", "json", "--body", "none").return_value == 0
    assert time.process_time() - begin < 5


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_no_damage_ends_in_a_traceback(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    raw = bytearray(b"".join(record_at(209 * number) for number in range(8)) + b"\0" * 500)
    for _ in range(data.draw(st.integers(0, 6))):
        at = data.draw(st.integers(0, len(raw) - 1))
        raw[at : at + 8] = data.draw(st.binary(min_size=1, max_size=8))
    cut = data.draw(st.integers(300, len(raw)))
    root = segment_of(tmp_path_factory.mktemp("damaged"), bytes(raw[:cut]))
    result = run(root, "--at", data.draw(st.integers(0, cut - 1)))
    assert result.exception is None, result.exception
    assert result.return_value in (0, 3, 5)


def test_times_are_shown_in_the_zone_asked_for(tmp_path: Path) -> None:
    properties = {"TIMER_DELIVER_MS": "1716193815123", "KEYS": "K"}
    root = segment_of(tmp_path, record(0, properties=properties) + b"\0" * 9000)
    text = run(root, "--at", 0, "--tz", "Asia/Shanghai").stdout
    assert text.count("2024-05-20T16:30:15.123+08:00") == 2  # BORNTIMESTAMP and the property
    assert "2024-05-20T08:30:15.123Z" in run(root, "--at", 0).stdout
    rows = json.loads(run(root, "--at", 0, "--tz", "+08:00", "-f", "json").stdout)["rows"]
    born = next(row for row in rows if row["name"] == "born_timestamp")
    assert (born["value"], born["note"]) == ("1716193815123", "2024-05-20T16:30:15.123+08:00")


def test_the_limit_of_a_body_is_a_size_with_a_unit(tmp_path: Path) -> None:
    body = zlib.compress(b"abc" * 1000)
    root = segment_of(tmp_path, record(0, body=body, sys_flag=message.SysFlag.COMPRESSED) + b"\0" * 9000)
    assert "decompressed from" in run(root, "--at", 0, "--max-body", "3kB").stdout
    assert "not decompressed" in run(root, "--at", 0, "--max-body", "2KiB").stdout
    with pytest.raises(click.BadParameter, match="is not a size"):
        raise run(root, "--at", 0, "--max-body", "big").exception or AssertionError
