"""Record batches as machine-readable text: JSON lines, a JSON document, CSV.

    columns -> Arrow array of texts per column -> Arrow joins them into one text per row -> its buffer is written

Python handles single values only where a text needs escapes or a body is not text.

A `binary` value is text if it is valid UTF-8, else base64. The column `<name>_encoding` next to it says `utf-8` or
`base64`, and is null where the value is.
"""

import base64
import codecs
import json
from collections.abc import Callable, Iterator
from datetime import UTC, tzinfo
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from rmqinspect.output.writer import SCHEMA_VERSION, Out, View, Writer, split_batch
from rmqinspect.system.run import with_run
from rmqinspect.text import HOSTILE_RE2, escape, escape_json, is_utf8
from rmqinspect.times import format_micros
from rmqinspect.version import tool_name

LARGE = 4 << 20
"""Bytes from which a value is written in pieces."""

_PIECE = 3 << 18  # bytes; base64 takes three at a time

# Small enough for prompt output and for memory: a slice of control characters takes thirty times its bytes, as Python
# escapes them and Arrow joins the texts.
_SLICE_ROWS = 8192
_SLICE_SIZE = LARGE

# 64-bit codes are JSON strings: addresses of ext units exceed 2^53, which JavaScript cannot hold.
_JSON_STRING_COLUMNS = frozenset({"tags_code", "ext_tags_code"})

_JSON_SPECIAL = rf'["\\{HOSTILE_RE2}]'
_CSV_SPECIAL = r'^$|[",\r\n]|^ | $'
_HOSTILE = f"[{HOSTILE_RE2}]"
# Control characters except tab and line ends, and bidirectional controls.
_HOSTILE_BODY = r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x{9f}\x{61c}\x{200e}\x{200f}\x{2028}-\x{202e}\x{2066}-\x{2069}]"


def _join(*pieces: pa.Array | str) -> pa.Array:
    return pc.binary_join_element_wise(*pieces, "")


def _mask(array: pa.Array, pattern: str) -> pa.Array:
    return pc.fill_null(pc.match_substring_regex(array, pattern), False)


def timestamp_texts(array: pa.Array, zone: tzinfo) -> pa.Array:
    """Return timestamps as ISO 8601 with milliseconds, `Z` or the zone's offset; null stays null."""
    if zone is UTC:
        # Cast to a type without zone: works without a zone database. Arrow's strftime takes ten times as long.
        millis = array.cast(pa.timestamp("us")).cast(pa.timestamp("ms"), safe=False)
        return _join(pc.binary_replace_slice(millis.cast(pa.string()), 10, 11, "T"), "Z")
    micros = array.cast(pa.timestamp("us")).cast(pa.int64()).to_pylist()
    return pa.array([None if at is None else format_micros(at, zone) for at in micros], pa.string())


def _binary_texts(array: pa.Array, refuse: str | None = None) -> tuple[pa.Array, pa.Array]:
    """Return (texts, encodings) of a binary array.

    UTF-8 that matches the pattern `refuse` becomes base64 as well.
    """
    array = array.cast(pa.binary())
    try:
        array.cast(pa.string())
        odd = pa.repeat(False, len(array))
    except pa.ArrowInvalid:
        odd = pa.array([not is_utf8(raw or b"") for raw in array.to_pylist()])
    if refuse is not None:
        odd = pc.or_(odd, _mask(pc.if_else(odd, b"", array).cast(pa.string()), refuse))
    if pc.any(odd).as_py():
        coded = [base64.b64encode(raw) for raw in array.filter(odd).to_pylist()]
        array = pc.replace_with_mask(array, odd, pa.array(coded, pa.binary()))
    encodings = pc.if_else(array.is_valid(), pc.if_else(odd, "base64", "utf-8"), pa.scalar(None, pa.string()))
    return array.cast(pa.string()), encodings


def _json_strings(array: pa.Array) -> pa.Array:
    special = _mask(array, _JSON_SPECIAL)
    if pc.any(special).as_py():
        odd = array.filter(special).to_pylist()
        written = [escape_json(json.dumps(text, ensure_ascii=False))[1:-1] for text in odd]
        array = pc.replace_with_mask(array, special, pa.array(written, pa.string()))
    return _join('"', array, '"')


def _spans(array: pa.Array) -> tuple[pa.Array, int, int]:
    """Return the offsets of a list or map array, starting at 0, and the range of its children (first, length)."""
    first, last = array.offsets[0].as_py(), array.offsets[-1].as_py()
    return pc.subtract(array.offsets, pa.scalar(first, pa.int32())), first, last - first


# Types whose values JSON has as Arrow prints them.
_PRINTED = (pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)


def _json_values(array: pa.Array, zone: tzinfo) -> pa.Array:
    """Return every value as JSON text; null is `null`."""
    type_ = array.type
    if pa.types.is_null(type_):
        return pa.repeat("null", len(array))
    if pa.types.is_dictionary(type_):
        return _json_values(array.dictionary_decode(), zone)
    if any(is_one(type_) for is_one in _PRINTED):
        texts = array.cast(pa.string())
        if pa.types.is_floating(type_):  # JSON has neither
            texts = pc.if_else(pc.is_finite(array), texts, pa.scalar(None, pa.string()))
    elif pa.types.is_timestamp(type_):
        texts = _join('"', timestamp_texts(array, zone), '"')
    elif pa.types.is_string(type_) or pa.types.is_large_string(type_):
        texts = _json_strings(array.cast(pa.string()))
    elif pa.types.is_binary(type_) or pa.types.is_large_binary(type_):
        texts = _json_strings(_binary_texts(array)[0])
    elif pa.types.is_map(type_):
        offsets, first, length = _spans(array)
        names = _json_values(array.keys.slice(first, length), zone)
        items = _json_values(array.items.slice(first, length), zone)
        texts = _enclose(array, "{", offsets, _join(names, ":", items), "}")
    elif pa.types.is_list(type_):
        offsets, first, length = _spans(array)
        items = _json_values(array.values.slice(first, length), zone)
        texts = _enclose(array, "[", offsets, items, "]")
    else:
        raise TypeError(f"no JSON form for {type_}")
    return pc.fill_null(texts, "null")


def _enclose(array: pa.Array, opening: str, offsets: pa.Array, members: pa.Array, closing: str) -> pa.Array:
    joined = pc.binary_join(pa.ListArray.from_arrays(offsets, members), ",")
    return pc.if_else(array.is_valid(), _join(opening, joined, closing), pa.scalar(None, pa.string()))


def _json_columns(batch: pa.RecordBatch, zone: tzinfo) -> Iterator[tuple[str, pa.Array]]:
    for name, array in zip(batch.schema.names, batch.columns, strict=True):
        if pa.types.is_binary(array.type):
            texts, encodings = _binary_texts(array)
            yield name, pc.fill_null(_json_strings(texts), "null")
            yield f"{name}_encoding", _json_values(encodings, zone)
        elif name in _JSON_STRING_COLUMNS:
            yield name, _json_values(array.cast(pa.string()), zone)
        else:
            yield name, _json_values(array, zone)


def json_objects(batch: pa.RecordBatch, zone: tzinfo, before: str = "", after: str = "") -> pa.Array:
    """Return one compact JSON object per row, with the texts `before` and `after` it."""
    pieces: list[pa.Array | str] = []
    opening = f"{before}{{"
    for name, texts in _json_columns(batch, zone):
        pieces += [f"{opening}{escape_json(json.dumps(name, ensure_ascii=False))}:", texts]
        opening = ","
    return _join(*pieces, f"}}{after}")


def _json_pieces(batch: pa.RecordBatch, zone: tzinfo, before: str = "", after: str = "") -> Iterator[bytes]:
    """Yield the object of one row, a large binary value in pieces."""
    opening = f"{before}{{"
    for name in batch.schema.names:
        column = batch.select([name])
        if _is_large(column.column(0)):
            encoding, pieces = _json_content(column.column(0)[0])
            label = escape_json(json.dumps(name, ensure_ascii=False))
            yield f'{opening}{label}:"'.encode()
            yield from pieces
            yield f'",{label[:-1]}_encoding":"{encoding}"'.encode()
        else:
            members = json_objects(column, zone)[0].as_py()[1:-1]
            yield f"{opening}{members}".encode()
        opening = ","
    yield f"}}{after}".encode()


def _is_large(array: pa.Array) -> bool:
    """Whether the binary value of one row is written in pieces."""
    return pa.types.is_binary(array.type) and array[0].is_valid and len(array[0].as_buffer()) > LARGE


def _csv_texts(array: pa.Array, zone: tzinfo) -> pa.Array:
    type_ = array.type
    if pa.types.is_timestamp(type_):
        return timestamp_texts(array, zone)
    if pa.types.is_nested(type_):
        return pc.if_else(array.is_valid(), _json_values(array, zone), pa.scalar(None, pa.string()))
    texts = array.cast(pa.string())
    hostile = _mask(texts, _HOSTILE)
    if pc.any(hostile).as_py():
        escaped = [escape(text) for text in texts.filter(hostile).to_pylist()]
        texts = pc.replace_with_mask(texts, hostile, pa.array(escaped, pa.string()))
    return texts


def _csv_columns(batch: pa.RecordBatch, zone: tzinfo) -> Iterator[tuple[str, pa.Array]]:
    for name, array in zip(batch.schema.names, batch.columns, strict=True):
        if pa.types.is_binary(array.type):
            texts, encodings = _binary_texts(array, _HOSTILE_BODY)
            yield name, texts
            yield f"{name}_encoding", encodings
        else:
            yield name, _csv_texts(array, zone)


def _csv_quoted(texts: pa.Array) -> pa.Array:
    """Quote texts that need it, and the empty text, which would read as null."""
    special = _mask(texts, _CSV_SPECIAL)
    if pc.any(special).as_py():
        texts = pc.if_else(special, _join('"', pc.replace_substring(texts, '"', '""'), '"'), texts)
    return pc.fill_null(texts, "")


def csv_lines(batch: pa.RecordBatch, zone: tzinfo) -> pa.Array:
    """Return one CSV line per row, with its line end."""
    pieces: list[pa.Array | str] = []
    for _, texts in _csv_columns(batch, zone):
        pieces += [_csv_quoted(texts), ","]
    return _join(*pieces[:-1], "\n")


def _csv_pieces(batch: pa.RecordBatch, zone: tzinfo) -> Iterator[bytes]:
    """Yield the line of one row, a large binary value in pieces."""
    end = ""
    for name in batch.schema.names:
        column = batch.select([name])
        yield end.encode()
        if _is_large(column.column(0)):
            encoding, pieces = _csv_content(column.column(0)[0], _HOSTILE_BODY)
            yield from pieces
            yield f",{encoding}".encode()
        else:
            yield csv_lines(column, zone)[0].as_py()[:-1].encode()
        end = ","
    yield b"\n"


# --- a large binary value as text, in pieces: as one text it would take many times its bytes ----------------------
# The pieces joined are what the code for small values writes: UTF-8 as text, anything else in base64.


def _json_content(value: pa.BinaryScalar) -> tuple[str, Iterator[bytes]]:
    """Return (encoding, pieces of the content of the JSON string)."""
    raw = memoryview(value.as_buffer())
    if not _is_plain(raw, None):
        return "base64", _in_base64(raw)
    return "utf-8", (escape_json(json.dumps(text, ensure_ascii=False))[1:-1].encode() for text in _texts(raw))


def _csv_content(value: pa.BinaryScalar, refuse: str) -> tuple[str, Iterator[bytes]]:
    """Return (encoding, pieces of the CSV field, quotes included); text that matches `refuse` becomes base64."""
    raw = memoryview(value.as_buffer())
    if not _is_plain(raw, refuse):
        return "base64", _in_base64(raw)
    blank = b" "[0]
    quoted = blank in (raw[0], raw[-1]) or any(not {'"', ",", "\r", "\n"}.isdisjoint(text) for text in _texts(raw))
    return "utf-8", _quoted(raw) if quoted else (text.encode() for text in _texts(raw))


def _quoted(raw: memoryview) -> Iterator[bytes]:
    yield b'"'
    for text in _texts(raw):
        yield text.replace('"', '""').encode()
    yield b'"'


def _is_plain(raw: memoryview, refuse: str | None) -> bool:
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


def _in_base64(raw: memoryview) -> Iterator[bytes]:
    return (base64.b64encode(raw[start : start + _PIECE]) for start in range(0, len(raw), _PIECE))


# --- the writers ------------------------------------------------------------------------------------------


def _write_rows(
    out: Out,
    batch: pa.RecordBatch,
    texts_of: Callable[[pa.RecordBatch], pa.Array],
    pieces_of: Callable[[pa.RecordBatch], Iterator[bytes]],
    skip: int = 0,
) -> None:
    """Write the rows of a batch as texts, without the first `skip` bytes; one with a large value in pieces."""
    for rows in split_batch(batch, _SLICE_ROWS, _SLICE_SIZE):
        if rows.num_rows == 1 and any(map(_is_large, rows.columns)):
            for piece in pieces_of(rows):
                out.write(piece[skip:])
                skip = 0
        else:
            texts = texts_of(rows)
            size = pc.sum(pc.binary_length(texts)).as_py()
            out.write(memoryview(texts.buffers()[2])[skip:size])
            skip = 0


class JsonLines(Writer):
    """One JSON object per line."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Write the batch and flush."""
        zone = self.view.zone
        texts, pieces = partial(json_objects, zone=zone, after="\n"), partial(_json_pieces, zone=zone, after="\n")
        _write_rows(self.out, batch, texts, pieces)
        self.out.flush()

    def finish(self) -> None:
        """Do nothing: lines need no end."""


class JsonDocument(Writer):
    """One JSON object with the rows as a list, followed by `complete`, `more` and `run`."""

    def __init__(self, schema: pa.Schema, out: Out, view: View) -> None:
        super().__init__(schema, out, view)
        head: dict[str, object] = {"schema_version": SCHEMA_VERSION, "tool": tool_name()}
        if view.redacted:
            head["redacted"] = list(view.redacted)
        out.write(json.dumps(head, separators=(",", ":"))[:-1].encode() + b',"rows":[')
        self._empty = True

    def write(self, batch: pa.RecordBatch) -> None:
        """Write the rows, one per line."""
        zone = self.view.zone
        texts, pieces = partial(json_objects, zone=zone, before=",\n"), partial(_json_pieces, zone=zone, before=",\n")
        _write_rows(self.out, batch, texts, pieces, skip=1 if self._empty else 0)
        self._empty = self._empty and not batch.num_rows

    def finish(self) -> None:
        """Close the list and add `complete`, `more` and the run."""
        tail = json.dumps(with_run({"complete": self.complete, "more": self.more}), separators=(",", ":"))
        self.out.write(f"{'' if self._empty else chr(10)}],{tail[1:]}\n".encode())


class CsvRows(Writer):
    r"""CSV with a header line.

    CSV has no escapes: hostile characters in texts become `\x1b` and the like, lists and maps become JSON, and a body
    with control characters other than tab and line ends becomes base64.
    """

    def __init__(self, schema: pa.Schema, out: Out, view: View) -> None:
        super().__init__(schema, out, view)
        names: list[str] = []
        for field in schema:
            names += [field.name, f"{field.name}_encoding"] if pa.types.is_binary(field.type) else [field.name]
        out.write(",".join(names).encode() + b"\n")

    def write(self, batch: pa.RecordBatch) -> None:
        """Write the batch and flush."""
        zone = self.view.zone
        _write_rows(self.out, batch, partial(csv_lines, zone=zone), partial(_csv_pieces, zone=zone))
        self.out.flush()

    def finish(self) -> None:
        """Do nothing: lines need no end."""
