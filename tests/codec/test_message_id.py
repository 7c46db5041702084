"""Message ids say what the broker and the clients put into them."""

import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from rmqinspect.cli import group
from rmqinspect.codec import message_id as ids
from rmqinspect.codec.java import find_flipped_bits, index_hash, index_key, java_string_hash, masked_crc32
from tests.support import oracle

OFFSET_ID = "0A00000500002A9F0000000040001000"
CLIENT_ID = "C0A8010A1A2B18B4AAC263ABFA530007"
BORN = datetime(2024, 5, 20, 8, 30, 15, 135_000, tzinfo=UTC)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(group, ["id", *arguments])


def test_an_offset_msg_id_names_broker_and_offset() -> None:
    first, second = ids.decode(OFFSET_ID)
    assert first == ids.OffsetId(OFFSET_ID, "10.0.0.5", 10911, 0x40001000)
    assert not first.doubts
    assert isinstance(second, ids.ClientId)
    assert second.doubts


def test_a_client_id_names_process_and_time() -> None:
    first, second = ids.decode(CLIENT_ID.lower())
    assert first == ids.ClientId(CLIENT_ID, "192.168.1.10", 6699, 0x18B4AAC2, 1672215123, 7)
    assert not first.doubts
    assert isinstance(second, ids.OffsetId)
    assert second.doubts


def test_an_offset_msg_id_with_ipv6_is_built_and_read() -> None:
    address = bytes.fromhex("20010db8000000000000000000000002")
    text = ids.offset_msg_id(address, 10911, 0x400010D1)
    assert text == "20010DB800000000000000000000000200002A9F00000000400010D1"
    assert ids.decode(text)[0] == ids.OffsetId(text, "2001:db8::2", 10911, 0x400010D1)


def test_a_grpc_id_names_the_second() -> None:
    (reading,) = ids.decode("01AABBCCDDEEFF1A2B0657BF8F00000002")
    assert isinstance(reading, ids.GrpcId)
    assert not reading.doubts
    assert (reading.mac, reading.pid, reading.sequence) == ("aa:bb:cc:dd:ee:ff", 0x1A2B, 2)
    assert reading.instant == datetime(2021, 1, 1, tzinfo=UTC) + timedelta(seconds=0x0657BF8F)
    assert ids.decode("02" + reading.text[2:])[0].doubts


@pytest.mark.parametrize("text", ["", "K95", "0A", OFFSET_ID[:-1], OFFSET_ID + "0000", "G" * 32, "٣" * 32])
def test_other_text_is_no_id(text: str) -> None:
    assert ids.decode(text) == ()


@given(st.binary(max_size=64))
def test_any_bytes_are_read_or_refused(raw: bytes) -> None:
    for reading in ids.decode(raw.hex()):
        assert reading.text == raw.hex().upper()
        assert isinstance(reading.doubts, tuple)


@given(st.binary(min_size=4, max_size=4), st.integers(1, 65535), st.integers(0, 2**63 - 1))
def test_every_id_a_broker_makes_has_one_plausible_reading(address: bytes, port: int, offset: int) -> None:
    first, *others = ids.decode(ids.offset_msg_id(address, port, offset))
    assert first == ids.OffsetId(first.text, ids.address_text(address), port, offset)
    assert not first.doubts
    assert all(other.doubts for other in others)


def test_time_in_month_is_unsigned() -> None:
    (reading, *_) = ids.decode(CLIENT_ID[:20] + f"{31 * 86_400_000 - 1:08X}" + CLIENT_ID[28:])
    assert isinstance(reading, ids.ClientId)
    assert not reading.doubts
    last = datetime(2024, 5, 31, 23, 59, 59, 999_000, tzinfo=UTC)
    assert ids.instant_in_month(reading, 2024, 5, UTC) == last


def test_the_nearest_month_comes_first() -> None:
    reading = ids.decode(CLIENT_ID)[0]
    assert isinstance(reading, ids.ClientId)
    instants = ids.instants_around(reading, BORN, UTC)
    assert instants[0] == datetime(2024, 5, 20, 8, 30, 15, 123_000, tzinfo=UTC)
    assert {instant.month for instant in instants} == {4, 5, 6}
    assert ids.instants_around(reading, datetime(1, 1, 1, tzinfo=UTC), UTC)
    assert ids.instants_around(reading, datetime(9999, 12, 31, tzinfo=UTC), UTC)


@given(
    st.datetimes(datetime(1990, 1, 1), datetime(2100, 1, 1)),
    st.integers(-12 * 4, 14 * 4),
    st.integers(0, 5000),
)
def test_the_born_timestamp_shows_the_clients_zone(local: datetime, quarters: int, later: int) -> None:
    zone = timezone(timedelta(minutes=15 * quarters))
    made = local.replace(microsecond=0, tzinfo=zone)
    into = made - made.replace(day=1, hour=0, minute=0, second=0)
    millis = into // timedelta(milliseconds=1)
    reading = ids.ClientId("", "192.0.2.1", 1, 0, millis, 0)
    assert ids.client_zone(reading, made + timedelta(milliseconds=later)) == zone


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("20010db8000000000001000000000001", "2001:db8::1:0:0:1"),
        ("00000000000000000000ffffc0000201", "::ffff:192.0.2.1"),
        ("00000000000000000000000000000000", "::"),
        ("c0000201", "192.0.2.1"),
    ],
)
def test_addresses_are_written_as_rfc_5952_says(raw: str, text: str) -> None:
    assert ids.address_text(bytes.fromhex(raw)) == text


def test_ids_of_a_real_broker_are_plausible_and_lead_to_their_record() -> None:
    seen = 0
    for put in oracle.puts("base-5.3.3-clean"):
        for text in ids.split_batch(put.get("msg_id") or ""):
            reading = ids.decode(text)[0]
            assert isinstance(reading, ids.OffsetId)
            assert not reading.doubts
            seen += 1
    assert seen > 200


# --- the command --------------------------------------------------------------------------------


def test_both_readings_are_shown() -> None:
    result = run(OFFSET_ID)
    assert result.exit_code == 0
    assert "as offset msg id: plausible" in result.stdout
    assert "10.0.0.5:10911" in result.stdout
    assert "1073745920 (0x40001000)" in result.stdout
    assert "not plausible" in result.stdout


def test_an_anchor_gives_the_month() -> None:
    result = run(CLIENT_ID, "--anchor", "2024-05-20T08:30:15.135Z")
    assert "2024-05-20T08:30:15.123Z" in result.stdout
    assert "0.012 s before the anchor" in result.stdout


def test_a_year_and_month_give_one_candidate() -> None:
    result = run(CLIENT_ID, "--year-month", "2024-05", "--tz", "Asia/Shanghai", "-f", "json")
    row = json.loads(result.stdout)["rows"][0]
    assert row["candidates"] == ["2024-05-20T00:30:15.123Z"]


def test_a_batch_is_several_ids() -> None:
    result = run(f"{OFFSET_ID},{CLIENT_ID}", "-f", "json")
    assert {row["id"] for row in json.loads(result.stdout)["rows"]} == {OFFSET_ID, CLIENT_ID}


@pytest.mark.parametrize(
    "arguments",
    [
        ["K95"],
        ["x\x1b[31m"],
        [","],
        [OFFSET_ID + ",K95"],
        [CLIENT_ID, "--anchor", "soon"],
        [CLIENT_ID, "--tz", "Nowhere/Land"],
        [CLIENT_ID, "--tz", "../../etc/passwd"],
        [CLIENT_ID, "--year-month", "2024-13"],
        [CLIENT_ID, "--year-month", "2024-05", "--anchor", "1716193815135"],
    ],
)
def test_wrong_usage_is_exit_2(arguments: list[str]) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "\x1b" not in result.stderr


def test_the_error_names_the_forms_accepted() -> None:
    assert ids.ID_FORMS in run("K95").stderr


def test_no_heavy_library_is_imported() -> None:
    code = (
        "import sys; from rmqinspect.cli import main; status = main(['id', sys.argv[1]]); "
        "heavy = {'numpy', 'pyarrow', 'pyspark', 'rich'} & set(sys.modules); "
        "sys.exit(f'{status} {heavy}' if status or heavy else 0)"
    )
    arguments = [sys.executable, "-c", code, OFFSET_ID]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# --- hashes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "number"),
    [("", 0), ("TagA", 2598919), ("polygenelubricants", -(2**31)), ("中\U0001f600", 21005392)],
)
def test_java_hashes_utf_16_code_units(text: str, number: int) -> None:
    assert java_string_hash(text) == number


@pytest.mark.parametrize(
    ("key", "number"),
    [("ORDER-1001", 1559435041), ("U77", 85105843), (CLIENT_ID, 1385150910), ("T#TagA", 1311325016)],
)
def test_index_hashes_are_those_of_the_broker(key: str, number: int) -> None:
    assert index_hash(index_key("TopicTest", key)) == number


def test_the_smallest_java_int_has_index_hash_0() -> None:
    assert index_hash("polygenelubricants") == 0


@given(st.binary(min_size=1, max_size=3000), st.data())
def test_a_flipped_bit_is_found(raw: bytes, draw: st.DataObject) -> None:
    byte, bit = draw.draw(st.integers(0, len(raw) - 1)), draw.draw(st.integers(0, 7))
    flipped = bytearray(raw)
    flipped[byte] ^= 1 << bit
    stored, computed = masked_crc32(raw), masked_crc32(flipped)
    assert (byte, bit) in find_flipped_bits(len(raw), stored, computed)


def test_two_flipped_bits_are_not_one() -> None:
    raw = bytes(range(200))
    flipped = bytearray(raw)
    flipped[3] ^= 4
    flipped[150] ^= 1
    assert find_flipped_bits(len(raw), masked_crc32(raw), masked_crc32(flipped)) == []
    assert find_flipped_bits(len(raw), 5, 5) == []
    assert find_flipped_bits(0, 5, 6) == []
