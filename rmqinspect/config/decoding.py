"""What a broker makes of the bytes of a configuration file: read, read in part, or refused.

    bytes                                     fate
    an object of the right shape              read
    null                                      read, and nothing is in it
    []                                        the same up to 5.3.3, refused from 5.4.0 on (rule config_list)
    cut off, or zeros from a place on         refused
    zeros or blanks around it                 read
    other members, another order, indented    read
    another object, or text, behind it        refused
    a value of a wrong type                   refused
    a number, a word, a text, another list    refused
    `<nil>`, a page of HTML, a line of a log  refused
    another byte in the place of the first {  unsure: some read 9 and 0xff there
    another byte in the place of a comma      unsure: fastjson may end an object there silently
    what no damage makes: comments, 'a'       unsure

Tried with the brokers' own managers, 4.2.0 to 5.5.0.

Source: ConfigManager#load, RemotingSerializable#fromJson, `decode` of each subclass of ConfigManager.
"""

import re
from collections.abc import Mapping
from itertools import islice
from typing import Any, Literal

from msgspec import Struct, field

from rmqinspect.codec.fastjson import MAX_PROBLEMS, JsonDocument, NotJson, is_null, parse_json
from rmqinspect.config.shapes import Kind, Row, Shape, Table, faults
from rmqinspect.text import count, describe_offset

Fate = Literal["read", "list", "refused", "unsure"]

_BOM = "\ufeff".encode()
_CONTROLS = bytes(range(0x21)) + b"\x7f"  # at both ends all libraries skip them
# Neither object nor list: a text in quotes, a list that does not end, or anything that begins as no JSON value does,
# whatever follows: `<nil>`, a page of HTML, a line of a log, UTF-16. Others may be read: a comment in front, texts of
# quotes alone, a closing brace; and the file itself with another first byte.
_NO_OBJECT = re.compile(rb'"[^"\\]+"|\[.*|[^{}\[/"\'\xef].*', re.DOTALL)
# What no broker writes, and no parser of ours reads, though those of brokers may.
_EXOTIC = re.compile(rb"'|/\*|//|,\s*[}\]]")


class Decoded(Struct):
    """The content of one copy of a file, as a broker decodes it."""

    trouble: str = ""  # why it cannot be read, or is read only in part
    offset: int | None = None
    expected: str | None = None
    found: str | None = None
    count: int = 1
    empty: bool = False  # treated as missing
    ignored: bool = False  # the broker sees no error, so it does not read the .bak
    value: Mapping[str, Any] = field(default_factory=dict)
    parsed: JsonDocument | None = None
    fate: Fate = "read"  # what the brokers' JSON libraries make of the bytes; of empty ones, nothing
    doubt: str = ""  # why it is unsure what becomes of it, where nothing is wrong with it


def decode(raw: bytes, kind: Kind) -> Decoded:
    """Return what a broker makes of the bytes of a file."""
    if not raw:
        return Decoded("it is empty", empty=True, found="0 bytes")
    if not raw.strip(b"\0"):
        trouble = f"all of its {count(len(raw), 'byte')} are zero"
        return Decoded(trouble, 0, "an object", "zeros", fate="refused")
    if is_null(raw):
        return Decoded("it is null", 0, "an object", "null", ignored=True)
    try:
        parsed = parse_json(raw)
    except NotJson as error:
        return _no_json(raw, error, kind)
    made = _judge(raw, parsed, kind)
    made.parsed = parsed
    made.fate, made.doubt = _fate_of_value(parsed, kind)
    return made


def _no_json(raw: bytes, error: NotJson, kind: Kind) -> Decoded:
    end, zeros = error.offset, len(raw.rstrip(b"\0"))
    trouble = f"it is not JSON as brokers write it, from {describe_offset(end)} on: {error.reason}"
    if end <= zeros < len(raw):
        end, trouble = zeros, f"from {describe_offset(zeros)} on it is all zeros"
    return Decoded(trouble, end, found=_excerpt(raw, end), fate=_fate_of_text(raw, kind))


def _judge(raw: bytes, parsed: JsonDocument, kind: Kind) -> Decoded:
    # Zeros and white space behind the end are skipped by all versions.
    rest = parsed.behind.lstrip(b"\0 \t\r\n\f\b")
    if rest:
        end = raw.index(rest, parsed.end)
        return Decoded(f"extra bytes after its end, from {describe_offset(end)} on", end, "the end", _excerpt(raw, end))
    if (zero := raw.find(b"\0", 0, parsed.end)) >= 0:
        return Decoded(f"it has zeros inside from {describe_offset(zero)} on", zero, found="zeros")
    if parsed.dangling:
        trouble = f"its reference {parsed.dangling[0]!r} has no target"
        return Decoded(trouble, found=parsed.dangling[0], count=len(parsed.dangling))
    value = parsed.value
    if not isinstance(value, dict):
        return Decoded("it is a list", expected="an object", found="a list")
    if kind.table not in value and not kind.elsewhere.isdisjoint(value):
        return Decoded(value=value)  # that of another writer, which brokers skip
    if kind.table not in value:
        # No exception, nothing loaded: fastjson leaves the field as the constructor made it.
        found = ", ".join(value)[:80]
        return Decoded(f"it has no {kind.table}", None, kind.table, found, ignored=True, value=value)
    wrong = faults(Row(kind.members), value, "")
    first = next(wrong, None)
    if first is None:
        return Decoded(value=value)
    number = 1 + sum(1 for _ in wrong)
    return Decoded(f"{first[0]} is not {first[1]}", expected=first[1], count=number, value=value)


def _fate_of_text(raw: bytes, kind: Kind) -> Fate:
    """Return what becomes of bytes that are not JSON as brokers write it."""
    text = raw.strip(_CONTROLS)
    has_member = any(f'"{name}"'.encode() in text for name in kind.members)
    if text == _BOM or (_NO_OBJECT.fullmatch(text) and not has_member):
        return "refused"
    if not text.startswith(b"{") or _EXOTIC.search(text):
        return "unsure"
    try:
        parsed = parse_json(text)
    except NotJson as error:
        # Within the text a wrong byte may end an object silently, and what follows is lost.
        is_cut = error.offset >= len(text) or "without an end" in error.reason
        return "refused" if is_cut else "unsure"
    return _fate_of_value(parsed, kind)[0]


def _fate_of_value(parsed: JsonDocument, kind: Kind) -> tuple[Fate, str]:
    """Return what becomes of JSON: its shape counts, and what stands behind it; and why that is unsure."""
    rest = parsed.behind.strip(_CONTROLS)
    if rest:
        return ("unsure" if rest[:1] in b"/," or rest[0] > 0x7F else "refused"), ""
    value = parsed.value
    if not isinstance(value, dict):
        # fastjson2 (5.4.0) takes a list of one object for that object, unless it is empty.
        is_one = isinstance(value, list) and len(value) == 1 and isinstance(value[0], dict) and bool(value[0])
        return ("unsure" if is_one else "refused" if value else "list"), ""
    if parsed.dangling:
        return "unsure", ""
    if kind.needs_table and kind.table not in value:
        return "refused", ""
    version = value.get("dataVersion", {})
    if not isinstance(version, dict) or version.get("counter", 0) is None:
        return "unsure", ""
    # What they do not know they skip, with all that is in it: 4.2.0 to 5.5.0. fastjson2 (5.4.0) skips no object with
    # bare names, as fastjson writes numbers and booleans.
    unknown = [name for name, member in value.items() if name not in kind.members and isinstance(member, dict | list)]
    if unknown and parsed.bare_names:
        return "unsure", f"brokers do not know its {unknown[0]}"
    nothing = next((name for name in kind.members if value.get(name, kind) in (None, "")), None)
    if nothing is not None:
        return "unsure", f"its {nothing} is nothing"
    foreign = parsed.bare_names and any(_is_foreign(shape, value.get(name, {})) for name, shape in kind.members.items())
    if foreign:
        return "unsure", "an entry has none of the members that brokers know"
    wrong = [words for _, words in islice(faults(Row(kind.members), value, ""), MAX_PROBLEMS)]
    if not wrong:
        return "read", ""
    # An unknown word of an enum is null.
    return ("unsure" if all(" or " in words for words in wrong) else "refused"), ""


def _is_foreign(shape: Shape, table: Any) -> bool:
    """Whether an entry of a table of objects has none of their members: then numbers may be its names."""
    if not (isinstance(shape, Table) and isinstance(shape.of, Row) and isinstance(table, dict)):
        return False
    known = shape.of.members.keys()
    return any(isinstance(entry, dict) and entry and not known & entry.keys() for entry in table.values())


def _excerpt(raw: bytes, offset: int) -> str:
    return repr(raw[offset : offset + 12])[1:] if offset < len(raw) else "the file's end"
