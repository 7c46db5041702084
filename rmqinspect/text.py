"""Text for display: escaping of unsafe characters, and formatting of numbers.

Topic names, properties and bodies are untrusted. Characters that could move the cursor, change
colours or reverse the reading direction are escaped before they reach a terminal.
"""

import re
from collections.abc import Sequence

# Invisible characters, and those that change how others are displayed: controls (C0, DEL, C1), soft
# hyphen, zero-width and bidirectional marks, line and paragraph separators, tags, surrogates.
# Ranges only, so that both Python's re and Arrow's RE2 compile them.
_RANGES: tuple[tuple[int, int], ...] = (
    (0x00, 0x1F),
    (0x7F, 0x9F),
    (0xAD, 0xAD),
    (0x600, 0x605),
    (0x61C, 0x61C),
    (0x6DD, 0x6DD),
    (0x70F, 0x70F),
    (0x180E, 0x180E),
    (0x200B, 0x200F),
    (0x2028, 0x202E),
    (0x2060, 0x206F),
    (0xFEFF, 0xFEFF),
    (0xFFF9, 0xFFFB),
    (0x1BCA0, 0x1BCA3),
    (0x1D173, 0x1D17A),
    (0xE0000, 0xE0FFF),
)
_SURROGATES = (0xD800, 0xDFFF)  # never in Arrow strings, and not allowed in RE2 patterns

HOSTILE_RE2 = "".join(rf"\x{{{first:x}}}-\x{{{last:x}}}" for first, last in _RANGES)
"""The unsafe characters except surrogates, as the inside of an RE2 character class."""

_HOSTILE = re.compile("[" + "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in (*_RANGES, _SURROGATES)) + "]")

_SHORT_ESCAPES = {"\t": r"\t", "\n": r"\n", "\r": r"\r"}

_DECIMAL_UNITS = ("kB", "MB", "GB", "TB", "PB", "EB")

_WRITTEN_SIZE = re.compile(r"(\d+)\s*([kMGT]?)(i?)B?", re.ASCII | re.IGNORECASE)
_POWERS = ("", "k", "m", "g", "t")


def _escape_match(match: re.Match[str]) -> str:
    character = match.group()
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # a byte that is not UTF-8: see PEP 383
        return f"\\x{code - 0xDC00:02x}"
    if code < 0x100:
        return _SHORT_ESCAPES.get(character, f"\\x{code:02x}")
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def is_utf8(raw: bytes | memoryview) -> bool:
    """Return whether bytes are valid UTF-8."""
    try:
        str(raw, "utf-8")
    except UnicodeDecodeError:
        return False
    return True


def text_of(raw: bytes) -> str:
    r"""Return the bytes of a name as text: UTF-8, and `\xNN` for each byte that is not.

    Reversible, because a backslash before an x is written `\x5c`: each `\xNN` stands for one byte.
    """
    return raw.replace(rb"\x", rb"\x5cx").decode("utf-8", "backslashreplace")


def name_text(name: str) -> str:
    """Return a path or name as `os` functions return it, with the bytes that are not UTF-8 escaped as by `text_of`."""
    return text_of(name.encode("utf-8", "surrogateescape"))


def escape(text: str) -> str:
    r"""Return `text` with unsafe characters written as `\x1b`, `\u202e`, `\U000e0041`, `\t`, `\n` or `\r`.

    Not reversible, because a backslash is kept: use the JSON formats to recover the bytes.
    """
    if text.isprintable():
        return text
    return _HOSTILE.sub(_escape_match, text)


def escape_json(document: str) -> str:
    r"""Return JSON text with unsafe characters as `\uXXXX` (a surrogate pair above U+FFFF).

    The value is unchanged: in a document on one line such characters occur inside strings only. Add
    line ends between documents afterwards.
    """

    def utf16_escapes(match: re.Match[str]) -> str:
        units = match.group().encode("utf-16-be", "surrogatepass").hex()
        return "".join(f"\\u{units[i : i + 4]}" for i in range(0, len(units), 4))

    return document if document.isprintable() else _HOSTILE.sub(utf16_escapes, document)


def cut_utf8(raw: bytes, limit: int) -> bytes:
    """Return the first `limit` bytes, or up to three fewer to avoid splitting a UTF-8 character."""
    if len(raw) <= limit:
        return raw
    head = raw[:limit]
    try:
        head.decode()
    except UnicodeDecodeError as error:
        if error.end == limit and error.reason == "unexpected end of data":
            return head[: error.start]
    return head


def escape_bytes(raw: bytes, limit: int | None = None) -> str:
    """Return UTF-8 bytes as escaped text, others as `0x` and hex digits; cut at `limit` bytes with `…`."""
    head = raw if limit is None else cut_utf8(raw, limit)
    more = "…" if len(head) < len(raw) else ""
    try:
        return escape(head.decode()) + more
    except UnicodeDecodeError:
        return f"0x{head.hex()}{more}"


def cell_width(text: str) -> int:
    """Return the number of terminal cells of an escaped text: a CJK character takes two."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def cut_cells(text: str, width: int) -> str:
    """Return the longest head of an escaped text that fits `width` cells, at least one character."""
    if text.isascii():
        return text[:width]
    from rich.cells import chop_cells

    return chop_cells(text, width)[0] or text[:1]


def clip(text: str, width: int) -> str:
    """Return an escaped text in at most `width` cells; one that is cut ends in `…`."""
    return text if cell_width(text) <= width else f"{cut_cells(text, width - 1)}…"


def group_digits(number: int) -> str:
    """Return an integer with its digits grouped: `97 187`."""
    return f"{number:,}".replace(",", " ")


def describe_offset(offset: int) -> str:
    """Return an offset in decimal and hex: `31 651 (0x7ba3)`."""
    return f"{group_digits(offset)} ({offset:#x})"


def describe_span(start: int, end: int) -> str:
    """Return a range of offsets in decimal and hex: `94 787 to 131 072 (0x17243 to 0x20000)`."""
    return f"{group_digits(start)} to {group_digits(end)} ({start:#x} to {end:#x})"


def describe_spans(spans: Sequence[tuple[int, int]], most: int) -> str:
    """Return some ranges of offsets, of several each with its size, and at most so many."""
    if len(spans) == 1:
        return describe_span(*spans[0])
    named = (f"{count(end - start, 'byte')} from {describe_span(start, end)}" for start, end in spans[:most])
    more = f" and {group_digits(len(spans) - most)} more" if len(spans) > most else ""
    return f"{', '.join(named)}{more}"


def describe_size(size: float) -> str:
    """Return a size in decimal units: `0.3 MB`, `320.0 GB`; below 1000 exactly: `326 bytes`."""
    if size < 1000:
        return "1 byte" if size == 1 else f"{size:.0f} bytes"
    units = iter(_DECIMAL_UNITS)
    unit = next(units)
    size /= 1000
    while size >= 999.95 and (larger := next(units, None)):
        size, unit = size / 1000, larger
    return f"{size:.1f} {unit}"


def parse_size(text: str) -> int:
    """Parse a size in bytes: `65536`, `200M`, `64MiB`.

    :raises ValueError: not a size.
    """
    size = _WRITTEN_SIZE.fullmatch(text.strip())
    if not size or (size[3] and not size[2]):
        raise ValueError(f"{text!r} is not a size; write 65536, 200M or 64MiB")
    number = int(size[1])
    unit = 1024 if size[3] else 1000
    for _ in range(_POWERS.index(size[2].lower())):
        number *= unit
    return number


def describe_duration(seconds: float) -> str:
    """Return a duration in one unit: `40 s`, `3 min`, `2 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 90 * 60 else f"{seconds / 3600:.0f} h"


def count(number: int, noun: str) -> str:
    """Return a number with its noun: `1 row`, `12 345 rows`."""
    return f"{group_digits(number)} {noun}" if number == 1 else f"{group_digits(number)} {noun}s"
