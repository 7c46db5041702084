"""The reader of the brokers' JSON: what fastjson writes, what crashes do to it, what strangers might do."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqinspect.codec.fastjson import MAX_DEPTH, MAX_PROBLEMS, NotJson, parse_json
from tests.support import oracle

# A whole consumerOffset.json of 4.9.8: bare keys on one line, the closing brace on the next.
PRETTY_4_9 = b"""{
\t"offsetTable":{
\t\t"TopicTest@CG":{0:5,1:5,2:5,3:5
\t\t},
\t\t"RMQ_SYS_TRANS_HALF_TOPIC@CID_RMQ_SYS_TRANS":{0:20
\t\t}
\t}
}"""
# The same table as fastjson2 writes it (5.4.0): an entry per line.
PRETTY_5_4 = b"""{
\t"offsetTable":{
\t\t"TopicTest@CG":{
\t\t\t0:5,
\t\t\t1:5,
\t\t\t2:5,
\t\t\t3:5
\t\t},
\t\t"RMQ_SYS_TRANS_HALF_TOPIC@CID_RMQ_SYS_TRANS":{
\t\t\t0:20
\t\t}
\t}
}"""


@pytest.mark.parametrize("raw", [PRETTY_4_9, PRETTY_5_4], ids=["fastjson 1", "fastjson 2"])
def test_number_keys_without_quotes_are_read(raw: bytes) -> None:
    parsed = parse_json(raw)
    assert parsed.value["offsetTable"] == {
        "TopicTest@CG": {"0": 5, "1": 5, "2": 5, "3": 5},
        "RMQ_SYS_TRANS_HALF_TOPIC@CID_RMQ_SYS_TRANS": {"0": 20},
    }
    assert parsed.problems == ()


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (b"{0:2,1:3,-1:7}", {"0": 2, "1": 3, "-1": 7}),
        (b"{true:1,false:2,null:3}", {"true": 1, "false": 2, "null": 3}),
        (b"{ 0 :\ttrue , 1\n:null}", {"0": True, "1": None}),
        (b'{"a":[1,2,{3:4}],"b":-1.5e3}', {"a": [1, 2, {"3": 4}], "b": -1500.0}),
        (b'{"s":"0:1, true:2 {"}', {"s": "0:1, true:2 {"}),
        (b'{"s":"a\\"b","t":"\\\\"}', {"s": 'a"b', "t": "\\"}),
        (b'{"a\tb":"c\x01d\ne"}', {"a\tb": "c\x01d\ne"}),
        ('{"键":"\u2028"}'.encode(), {"键": "\u2028"}),
        (b'{"p":"\\/x\\u4E2D"}', {"p": "/x中"}),
        (b'{"big":9223372036854775807,"min":-9223372036854775808}', {"big": 2**63 - 1, "min": -(2**63)}),
        (b'\xef\xbb\xbf {"a":1}', {"a": 1}),
        (b"[1,[],{}]", [1, [], {}]),
    ],
)
def test_the_dialect_is_read_as_meant(raw: bytes, value: Any) -> None:
    parsed = parse_json(raw)
    assert (parsed.value, parsed.problems) == (value, ())


def test_half_a_surrogate_pair_becomes_a_replacement_character() -> None:
    parsed = parse_json(rb'{"a":"\ud83d\ude00 \ud83d! \\ud83d","\udc00":1}')
    assert parsed.value == {"a": "😀 \ufffd! \\ud83d", "\ufffd": 1}
    json.dumps(parsed.value, ensure_ascii=False).encode()


def test_a_reference_stands_for_what_it_names() -> None:
    parsed = parse_json(
        rb'{"offsetTable":{"T@G":{0:5},"T\u002eU@G":{"$ref":"$.offsetTable.T\\@G"}},"l":[[7],{"$ref":"$.l[0]"}]}'
    )
    assert parsed.value["offsetTable"] == {"T@G": {"0": 5}, "T.U@G": {"0": 5}}
    assert parsed.value["l"] == [[7], [7]]
    assert parsed.problems == ()


@pytest.mark.parametrize("path", ["$", "..", "$.a", "$.b", "$.nowhere", "$.l[9]", "x", "", "$.l[99999999999999999999]"])
def test_a_reference_to_nothing_before_it_stays_as_written(path: str) -> None:
    parsed = parse_json(b'{"a":{"inner":{"$ref":"%s"}},"b":{},"l":[]}' % path.encode())
    assert parsed.value["a"]["inner"] == {"$ref": path}
    assert parsed.problems == (f"reference {path!r} names nothing before it",)
    json.dumps(parsed.value)  # no cycle


def test_of_a_duplicate_key_the_last_value_counts_and_it_is_told() -> None:
    parsed = parse_json(b'{0:1,"0":2,"a":3}')
    assert parsed.value == {"0": 2, "a": 3}
    assert parsed.problems == ("duplicate key '0': the last value counts",)


def test_problems_are_not_told_without_end() -> None:
    parsed = parse_json(b"[" + b",".join([b"{0:1,0:2}"] * 1000) + b"]")
    assert len(parsed.problems) == MAX_PROBLEMS


@pytest.mark.parametrize(
    ("tail", "problem"),
    [
        (b" \r\n\t", None),
        (b"\0\0\0", "3 zero bytes behind the end at byte 7 (0x7)"),
        (b'}\n{"b', "5 bytes behind the end at byte 7 (0x7)"),
        (b'"', "1 bytes behind the end at byte 7 (0x7)"),
        (b"\xff\xfe", "2 bytes behind the end at byte 7 (0x7)"),
    ],
)
def test_bytes_behind_the_end_are_told_and_do_no_harm(tail: bytes, problem: str | None) -> None:
    parsed = parse_json(b'{"a":1}' + tail)
    assert parsed.value == {"a": 1}
    assert parsed.problems == ((problem,) if problem else ())
    assert parsed.charset == "utf-8"


def test_other_charsets_are_tried_in_their_order() -> None:
    assert parse_json('{"主题":{0:1}}'.encode("gbk")).value == {"主题": {"0": 1}}
    assert parse_json('{"主题":{0:1}}'.encode("gbk")).problems == ("not UTF-8: read as gbk",)
    latin = parse_json(b'{"caf\xe9":1}')
    assert (latin.value, latin.charset) == ({"café": 1}, "iso-8859-1")


@pytest.mark.parametrize(
    ("raw", "offset"),
    [
        (b"", 0),
        (b"\0" * 64, 0),
        (b"   x", 3),
        (b"17", 0),
        (b'{"a":1', 6),
        (b'{"a":"bc', 5),
        (b'{"a":1,}', 7),
        (b"{0:1,1:2,,}", 9),
        ('{0:1,"键":,}'.encode(), 11),
        ('{"键":x}'.encode("gbk"), 6),
        (b'{"a":NaN}', 5),
        (b"{0:1]", 4),
        (b'{"a":' + b"1" * 5000 + b"}", 5),
        (b'{"a":' * (MAX_DEPTH + 1), 5 * MAX_DEPTH),
        (b"[" * 1_000_000, MAX_DEPTH),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_byte_offset(raw: bytes, offset: int) -> None:
    with pytest.raises(NotJson) as caught:
        parse_json(raw)
    assert caught.value.offset == offset
    assert f"byte {offset} ({offset:#x})" in str(caught.value)


@pytest.mark.parametrize(
    "hostile",
    [
        lambda n: b"{" + b"1" * n,
        lambda n: b"[" + b"1 " * n,
        lambda n: b"{1" + b" " * n,
        lambda n: b'{"' + b"\\" * n,
        lambda n: b'{"a":"' + b"\\u00" * n,
        lambda n: b"[" + b'"",' * n,
    ],
)
@pytest.mark.timeout(20)
def test_hostile_text_takes_time_in_proportion_to_its_length(hostile: Callable[[int], bytes]) -> None:
    with pytest.raises(NotJson):
        parse_json(hostile(300_000))


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_random_bytes_raise_nothing_else(raw: bytes) -> None:
    for text in (raw, b"{" + raw, b'{"a":{' + raw + b"}}"):
        try:
            parse_json(text)
        except NotJson as error:
            assert 0 <= error.offset <= len(text)


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@settings(deadline=None)
@given(st.dictionaries(st.text(), _VALUES))
def test_legal_json_is_read_as_by_the_strict_parser(value: dict[str, Any]) -> None:
    raw = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
    if b'"$ref"' not in raw:
        assert parse_json(raw).value == json.loads(raw)


@settings(deadline=None)
@given(st.integers(0, len(PRETTY_4_9) - 1), st.integers(0, 7))
def test_a_cut_or_a_flipped_bit_gives_a_value_or_the_one_error(position: int, bit: int) -> None:
    with pytest.raises(NotJson):
        parse_json(PRETTY_4_9[:position])
    flipped = bytearray(PRETTY_4_9)
    flipped[position] ^= 1 << bit
    try:
        parse_json(bytes(flipped))
    except NotJson as error:
        assert 0 <= error.offset <= len(flipped)


def test_every_config_file_of_real_brokers_is_read_without_a_problem() -> None:
    files: list[Path] = []
    for name in oracle.cases("broker"):
        config = oracle.store("broker", name) / "config"
        files += [*config.glob("*.json*"), *config.glob("*metrics*"), *config.glob("*Metrics*")]
        files += config.parent.glob("compaction/position-checkpoint*")
    assert len(files) > 250
    for file in files:
        parsed = parse_json(file.read_bytes())
        assert (parsed.problems, parsed.charset) == ((), "utf-8"), file
