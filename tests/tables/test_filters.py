"""Which rows the filter options let through, and how people write offsets, hosts and times."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pytest

from rmqinspect.codec.message_id import offset_msg_id
from rmqinspect.tables.filters import Selection, parse_bytes, parse_host, parse_range
from rmqinspect.times import format_micros, parse_time, parse_zone
from rmqinspect.topics import is_system_topic

T0 = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)
MICROS = int(T0.timestamp()) * 1_000_000

SCHEMA = pa.schema(
    [
        ("physical_offset", pa.int64()),
        ("topic", pa.string()),
        ("queue_id", pa.int32()),
        ("queue_offset", pa.int64()),
        ("msg_id", pa.string()),
        ("offset_msg_id", pa.string()),
        ("tags", pa.string()),
        ("keys", pa.list_(pa.string())),
        ("born_timestamp", pa.timestamp("us", "UTC")),
        ("store_timestamp", pa.timestamp("us", "UTC")),
        ("born_host", pa.string()),
        ("born_port", pa.int32()),
        ("body", pa.binary()),
        ("properties", pa.map_(pa.string(), pa.string())),
    ]
)


def offset_id(offset: int) -> str:
    return offset_msg_id(bytes([127, 0, 0, 1]), 10911, offset)


def row(n: int, **changes: Any) -> dict[str, Any]:
    return {
        "physical_offset": 100 * n,
        "topic": ("orders", "Orders", "%RETRY%g", "SCHEDULE_TOPIC_XXXX")[n % 4],
        "queue_id": n % 2,
        "queue_offset": n // 2,
        "msg_id": f"ABCDEF{n:02d}",
        "offset_msg_id": offset_id(n * 100),
        "tags": ("TagA", None)[n % 2],
        "keys": [f"K{n}", "all"][: n % 3],
        "born_timestamp": T0 + timedelta(hours=1, seconds=n),
        "store_timestamp": T0 + timedelta(seconds=n),
        "born_host": ("10.0.0.1", "::1")[n % 2],
        "born_port": n,
        "body": (b"caf\xc3\xa9 au lait", b"\xff\x00tea", None)[n % 3],
        "properties": [("color", "red"), ("n", str(n))][n % 2 :],
        **changes,
    }


BATCH = pa.RecordBatch.from_pylist([row(n) for n in range(8)], SCHEMA)


def chosen(**options: Any) -> list[int]:
    """The numbers of the rows chosen, of the whole batch and of a slice of it."""
    selection = Selection(**options)
    numbers = [offset // 100 for offset in selection.select_rows(BATCH).column(0).to_pylist()]
    sliced = [offset // 100 for offset in selection.select_rows(BATCH.slice(3, 4)).column(0).to_pylist()]
    assert sliced == [n for n in numbers if 3 <= n < 7]
    return numbers


@pytest.mark.parametrize(
    ("options", "numbers"),
    [
        ({}, [0, 1, 2, 3, 4, 5, 6, 7]),
        ({"topics": ("orders",)}, [0, 4]),
        ({"topics": ("?rders",)}, [0, 1, 4, 5]),
        ({"topics": ("orders", "%RETRY%*")}, [0, 2, 4, 6]),
        ({"system_topics": False}, [0, 1, 2, 4, 5, 6]),
        ({"queue_id": 1, "queue_offsets": (1, 3)}, [3, 5]),
        ({"offsets": (100, 101)}, [1]),
        ({"offsets": (150, 1 << 63)}, [2, 3, 4, 5, 6, 7]),
        ({"tags": ("TagA", "TagB")}, [0, 2, 4, 6]),
        ({"keys": ("all", "K1")}, [1, 2, 5]),
        ({"keys": ("K",)}, []),
        ({"ids": ("abcdef03", offset_id(500).lower())}, [3, 5]),
        ({"ids": (offset_id(501),)}, []),
        ({"properties": (("color", None),)}, [0, 2, 4, 6]),
        ({"properties": (("color", "red"), ("n", "4"))}, [4]),
        ({"properties": (("color", "blue"),)}, []),
        ({"body_text": "é au"}, [0, 3, 6]),
        ({"body_text": "tea"}, [1, 4, 7]),
        ({"body_text": "\udcff"}, [1, 4, 7]),  # a byte of the command line that is not UTF-8
        ({"body_bytes": b"\xff\0t"}, [1, 4, 7]),
        ({"since": MICROS + 2_000_000, "until": MICROS + 4_000_000}, [2, 3]),
        ({"until": MICROS + 1}, [0]),
        ({"since": MICROS + 3_607_000_000, "time_column": "born_timestamp"}, [7]),
        ({"host": ("::1", None)}, [1, 3, 5, 7]),
        ({"host": ("10.0.0.1", 4)}, [4]),
        ({"topics": ("orders",), "tags": ("TagA",), "offsets": (1, 1000)}, [4]),
    ],
)
def test_a_filter_keeps_exactly_its_rows(options: dict[str, Any], numbers: list[int]) -> None:
    assert chosen(**options) == numbers


def test_a_row_with_null_in_a_filtered_column_is_left_out() -> None:
    nulls = pa.RecordBatch.from_pylist([{}], SCHEMA)
    for options in (
        {"topics": ("*",)},
        {"offsets": (0, 9)},
        {"ids": ("A",)},
        {"keys": ("A",)},
        {"properties": (("A", None),)},
        {"body_text": "A"},
        {"since": 0},
        {"until": 1 << 60},
        {"host": ("10.0.0.1", None)},
    ):
        assert Selection(**options).select_rows(nulls).num_rows == 0


def test_a_range_overlaps_gaps_and_segments() -> None:
    gaps = pa.record_batch({"start": [0, 100, 200], "end": [100, 200, 300]})
    assert Selection(offsets=(150, 200)).select_rows(gaps).column("start").to_pylist() == [100]
    segments = pa.record_batch({"base": [0, 100], "file_size": [100, 100]})
    assert Selection(offsets=(99, 100)).select_rows(segments).column("base").to_pylist() == [0]


def test_a_batch_queue_unit_is_found_by_each_of_its_messages() -> None:
    units = pa.record_batch(
        {"queue_offset": pa.array([0, 8], pa.int64()), "message_count": pa.array([8, 2], pa.int32())}
    )
    assert Selection(queue_offsets=(7, 8)).select_rows(units).column(0).to_pylist() == [0]
    assert Selection(queue_offsets=(8, 9)).select_rows(units).column(0).to_pylist() == [8]


def test_a_table_names_the_filters_it_cannot_answer() -> None:
    schema = pa.schema([("topic", pa.string()), ("perm", pa.int32())])
    selection = Selection(topics=("a",), keys=("k",), since=1)
    assert selection.missing_columns(schema) == ["--key", "--since, --until"]
    assert selection.columns(schema) == {"topic"}
    assert selection.missing_columns(SCHEMA) == []
    assert selection.columns(SCHEMA) == {"topic", "keys", "store_timestamp"}


def test_a_pattern_that_met_no_topic_is_remembered_with_near_names() -> None:
    selection = Selection(topics=("order", "%RETRY%*"), tags=("none",))
    assert selection.select_rows(BATCH).num_rows == 0
    assert selection.unmatched_topics() == ["order"]
    assert selection.near_topics("order") == ["orders"]
    assert selection.near_topics("zzz") == []


@pytest.mark.parametrize(
    ("text", "range_"),
    [
        ("525", (525, 526)),
        ("96253..97955", (96253, 97955)),
        ("0x10..", (16, 1 << 63)),
        ("..97 187", (0, 97187)),
        ("1_000", (1000, 1001)),
    ],
)
def test_a_range_is_half_open_and_one_number_is_itself(text: str, range_: tuple[int, int]) -> None:
    assert parse_range(text) == range_


@pytest.mark.parametrize("text", ["", "x", "5..4", "-1", "1...3", str(1 << 63)])
def test_what_is_no_range_is_an_error(text: str) -> None:
    with pytest.raises(ValueError):
        parse_range(text)


@pytest.mark.parametrize("text", ["7B2269", "0x7b 22 69", " 7b 2269 "])
def test_bytes_are_hex_digits(text: str) -> None:
    assert parse_bytes(text) == b'{"i'


@pytest.mark.parametrize("text", ["", "7", "0x", "{i", "7b 2 269"])
def test_what_is_no_bytes_is_an_error(text: str) -> None:
    with pytest.raises(ValueError):
        parse_bytes(text)


def test_a_host_is_read_as_the_tables_print_it() -> None:
    assert parse_host("10.0.0.1:9876") == ("10.0.0.1", 9876)
    assert parse_host("[2001:DB8::0001]:1") == ("2001:db8::1", 1)
    assert parse_host("2001:db8:0::1") == ("2001:db8::1", None)
    with pytest.raises(ValueError):
        parse_host("broker-a")


def test_system_topics_are_the_brokers_own() -> None:
    assert is_system_topic("rmq_sys_wheel_timer")
    assert is_system_topic("TBW102")
    assert not is_system_topic("%DLQ%group")


NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def read_time(text: str, zone: str = "UTC", last: int | None = MICROS) -> str:
    return format_micros(parse_time(text, parse_zone(zone), lambda: NOW, lambda: last))


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("2022-03-02T02:04:22.123Z", "2022-03-02T02:04:22.123Z"),
        ("2022-03-02T10:04:22+08:00", "2022-03-02T02:04:22.000Z"),
        ("2022-03-02", "2022-03-02T00:00:00.000Z"),
        ("2022-03-02 02:04", "2022-03-02T02:04:00.000Z"),
        ("1646186662123", "2022-03-02T02:04:22.123Z"),
        ("2022-03-02#02:04:22:123", "2022-03-02T02:04:22.123Z"),
        ("now", "2026-11-21T12:00:00.000Z"),
        ("-2h", "2026-11-21T10:00:00.000Z"),
        ("-1h30m", "2026-11-21T10:30:00.000Z"),
        ("now-1d", "2026-11-20T12:00:00.000Z"),
        ("last", "2026-11-21T08:00:00.000Z"),
        ("last-5m", "2026-11-21T07:55:00.000Z"),
    ],
)
def test_a_time_is_read_in_each_form(text: str, time: str) -> None:
    assert read_time(text) == time


def test_a_time_without_a_zone_is_read_in_the_given_one() -> None:
    assert read_time("2022-03-02T10:04:22", "Asia/Shanghai") == "2022-03-02T02:04:22.000Z"
    assert read_time("2022-03-02#10:04:22:000", "+08:00") == "2022-03-02T02:04:22.000Z"


@pytest.mark.parametrize(
    "text", ["", "yesterday", "5m", "last+5m", "1646186662", "2022-13-01", "-999999999w", "9" * 30]
)
def test_what_is_no_time_is_an_error(text: str) -> None:
    with pytest.raises(ValueError):
        format_micros(parse_time(text, UTC, lambda: NOW, lambda: None))


def test_last_needs_a_record() -> None:
    with pytest.raises(ValueError, match="last record"):
        read_time("last", last=None)


def test_a_zone_that_is_unknown_is_an_error() -> None:
    assert parse_zone("-05:30") == timezone(-timedelta(hours=5, minutes=30))
    for name in ("Mars/Olympus", "+99:00", "", "../etc/passwd"):
        with pytest.raises(ValueError):
            parse_zone(name)


def test_a_time_at_the_edge_of_the_calendar_is_printed() -> None:
    edge = int((datetime.max.replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds()) * 1_000_000
    assert format_micros(edge - 1_000_000, parse_zone("+08:00")).startswith("9999-12-31T23:59:5")
