"""A large binary value as text, in pieces: as one text it would take many times its bytes.

The pieces joined are what the code for small values writes: UTF-8 as text, anything else in base64.
"""

import base64
import codecs
import json
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from rmqinspect.text import escape_json

LARGE = 4 << 20
"""Bytes from which a value is written in pieces."""

_PIECE = 3 << 18  # bytes; base64 takes three at a time


def json_pieces(value: pa.BinaryScalar) -> tuple[str, Iterator[bytes]]:
    """Return (encoding, pieces of the content of the JSON string)."""
    raw = memoryview(value.as_buffer())
    if not _is_text(raw, None):
        return "base64", _base64(raw)
    return "utf-8", (escape_json(json.dumps(text, ensure_ascii=False))[1:-1].encode() for text in _texts(raw))


def csv_pieces(value: pa.BinaryScalar, refuse: str) -> tuple[str, Iterator[bytes]]:
    """Return (encoding, pieces of the CSV field, quotes included); text that matches `refuse` becomes base64."""
    raw = memoryview(value.as_buffer())
    if not _is_text(raw, refuse):
        return "base64", _base64(raw)
    blank = b" "[0]
    quoted = blank in (raw[0], raw[-1]) or any(not {'"', ",", "\r", "\n"}.isdisjoint(text) for text in _texts(raw))
    return "utf-8", _quoted(raw) if quoted else (text.encode() for text in _texts(raw))


def _quoted(raw: memoryview) -> Iterator[bytes]:
    yield b'"'
    for text in _texts(raw):
        yield text.replace('"', '""').encode()
    yield b'"'


def _is_text(raw: memoryview, refuse: str | None) -> bool:
    """Whether all is UTF-8, and no character matches the pattern of one character `refuse`."""
    try:
        for text in _texts(raw):
            if refuse is not None and pc.match_substring_regex(pa.array([text]), refuse)[0].as_py():
                return False
    except UnicodeDecodeError:
        return False
    return True


def _texts(raw: memoryview) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8")()
    for start in range(0, len(raw), _PIECE):
        yield decoder.decode(raw[start : start + _PIECE], final=start + _PIECE >= len(raw))


def _base64(raw: memoryview) -> Iterator[bytes]:
    return (base64.b64encode(raw[start : start + _PIECE]) for start in range(0, len(raw), _PIECE))
