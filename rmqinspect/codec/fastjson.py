"""The JSON dialect of fastjson, which brokers write.

fastjson does not quote map keys that are numbers or booleans, writes control characters unescaped,
and replaces an object it has already written by a reference. `parse_json` therefore works in steps:

    bytes      -> text             the first of CHARSETS that decodes them
    text       -> JSON             one pass over the tokens quotes bare keys and finds the value's end
    JSON       -> dict or list     Python's json
    references -> their targets    `_References`

Damage after a crash (a truncated end, bytes after the value, duplicate keys) is reported with its
byte offset.

Source: fastjson 1.2.83, fastjson2 2.0.43, as shipped with RocketMQ 4.0.0 to 5.5.0.
"""

import json
import re
from collections.abc import Sequence
from io import StringIO
from itertools import accumulate
from typing import Any

from msgspec import Struct

from rmqinspect.errors import BadRecord

# Brokers nest at most six levels; Python's parser fails near 1000.
MAX_DEPTH = 100
# Java writes at most 20 digits; Python refuses more than 4300, without an offset.
MAX_DIGITS = 400
# Problems listed per text: bounds memory for a file full of duplicate keys.
MAX_PROBLEMS = 20
# Values that references may copy per text; real files copy a handful.
MAX_REPEATED = 1 << 20

# 4.x writes the platform's charset: UTF-8 nearly everywhere, GBK on a Chinese Windows.
# ISO-8859-1 decodes anything, so it is last.
CHARSETS = ("utf-8", "gbk", "iso-8859-1")

# The relevant tokens. Possessive repeats: no backtracking over long runs of digits or blanks in hostile text.
_TOKEN = re.compile(
    r"""(?P<string>"[^"\\]*+(?:\\.[^"\\]*+)*+")
      | (?P<open>[{\[])
      | (?P<close>[}\]])
      | (?P<bare>-?\d++|true|false|null)(?P<is_key>\s*+:)?
      | (?P<wrong>"|NaN|-?Infinity)""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)
# Escapes in text order, so that no backslash is consumed twice. A lone surrogate is no character
# and cannot be encoded in any output.
_ESCAPE = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?P<lone>\\u[dD][89a-fA-F][0-9a-fA-F]{2})|\\.",
    re.DOTALL,
)
_PATH_STEP = re.compile(r"\.((?:[^.\[\\]|\\.)+)|\[(\d{1,9})\]", re.DOTALL)


class NotJson(BadRecord):
    """The text is not valid even in fastjson's dialect; `offset` is the byte where parsing failed."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(f"not JSON at byte {offset} ({offset:#x}): {reason}")
        self.offset = offset
        self.reason = reason


class JsonDocument(Struct, frozen=True):
    """A value, and the problems of its text."""

    value: Any  # dict or list; all keys are strings
    charset: str
    end: int  # byte offset after the value
    behind: bytes  # bytes after the value, stripped of white space
    duplicates: tuple[str, ...]  # keys repeated in one object; at most MAX_PROBLEMS
    dangling: tuple[str, ...]  # paths of unresolvable references; at most MAX_PROBLEMS
    fractions: tuple[str, ...]  # non-integer numbers, which no broker writes; at most MAX_PROBLEMS
    bare_names: bool  # a name stands without quotes, as only fastjson writes it

    @property
    def problems(self) -> tuple[str, ...]:
        """Problems as text."""
        found = [f"duplicate key {name!r}: the last value counts" for name in self.duplicates]
        found += [f"reference {path!r} names nothing before it" for path in self.dangling]
        if self.behind:
            kind = "" if self.behind.strip(b"\0") else " zero"
            found.append(f"{len(self.behind)}{kind} bytes behind the end at byte {self.end} ({self.end:#x})")
        if self.charset != CHARSETS[0]:
            found.append(f"not UTF-8: read as {self.charset}")
        return tuple(found[:MAX_PROBLEMS])


_BOM = "\ufeff".encode()


def is_null(raw: bytes) -> bool:
    """Return whether a text is `null`, which fastjson reads as no object."""
    return raw.removeprefix(_BOM).strip(b" \t\r\n") == b"null"


def parse_json(raw: bytes) -> JsonDocument:
    """Parse the object or array at the start of `raw`.

    The last value of a duplicate key counts, as in fastjson. An unresolvable reference is kept as
    written. Both are reported as problems, and so are bytes after the value.

    :raises NotJson: there is no object or array, or it is truncated or nests deeper than MAX_DEPTH.
    """
    text, charset = _decode(raw)
    duplicates: list[str] = []
    fractions: list[str] = []
    start = 1 if text.startswith("\ufeff") else 0
    start += len(text) - start - len(text[start:].lstrip(" \t\r\n"))
    byte_of = _ByteOffsets(text, charset)
    if text[start : start + 1] not in ("{", "["):
        raise NotJson(byte_of(start), "no object or array begins here")
    quoted, end = _quote_bare_keys(text, start, byte_of)
    references: list[dict[str, Any]] = []

    def build(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        members = dict(pairs)
        if len(members) != len(pairs) and len(duplicates) < MAX_PROBLEMS:
            duplicates.append(_first_duplicate(pairs))
        if len(members) == 1 and isinstance(members.get("$ref"), str):
            references.append(members)
        return members

    def build_fraction(digits: str) -> float:
        if len(fractions) < MAX_PROBLEMS:
            fractions.append(digits)
        return float(digits)

    try:
        value = json.JSONDecoder(object_pairs_hook=build, parse_float=build_fraction, strict=False).decode(quoted)
    except json.JSONDecodeError as error:
        raise NotJson(byte_of(_before_quoting(text, start, error.pos)), error.msg) from error
    bare_names = len(quoted) > end - start
    del quoted  # several times this size are in use, so it counts
    resolver = _References(value)
    if references:
        resolver.resolve(value)
    where = byte_of(end)
    behind = raw[where:].strip(b" \t\r\n")
    problems = tuple(duplicates), tuple(resolver.dangling), tuple(fractions)
    return JsonDocument(value, charset, where, behind, *problems, bare_names)


class _ByteOffsets:
    """Maps a position in the decoded text to a byte offset; used for errors only."""

    def __init__(self, text: str, charset: str) -> None:
        self.text, self.charset = text, charset

    def __call__(self, position: int) -> int:
        return len(self.text[:position].encode(self.charset))


def _decode(raw: bytes) -> tuple[str, str]:
    for charset in CHARSETS:
        try:
            return raw.decode(charset), charset
        except UnicodeDecodeError as error:
            if charset != CHARSETS[0]:
                continue
            # Garbage after a complete value does not affect the value's charset.
            sound = raw[: error.start].decode(charset)
            if end := _end_of_value(sound):
                return sound[:end] + "\ufffd", charset
    raise AssertionError("ISO-8859-1 decodes every byte")


def _end_of_value(text: str) -> int:
    """Return the position after the first value of `text`, 0 if the value has no end."""
    depth = 0
    for token in _TOKEN.finditer(text):
        if token["open"]:
            depth += 1
        elif token["close"]:
            depth -= 1
            if depth <= 0:
                return token.end()
        elif token["wrong"]:
            return 0
    return 0


def _quote_bare_keys(text: str, start: int, byte_of: _ByteOffsets) -> tuple[str, int]:
    """Return (standard JSON of the value at `start`, end of the value in `text`)."""
    written = StringIO()  # compact: a list of the parts would take ten times the text
    depth, copied, end = 0, start, 0
    for token in _TOKEN.finditer(text, start):
        if token["open"]:
            depth += 1
            if depth > MAX_DEPTH:
                raise NotJson(byte_of(token.start()), f"nested deeper than {MAX_DEPTH} levels")
        elif token["close"]:
            depth -= 1
            if depth == 0:
                end = token.end()
                break
        elif token["wrong"]:
            reason = "a string without an end" if token["wrong"] == '"' else "not a number of JSON"
            raise NotJson(byte_of(token.start()), reason)
        elif token["bare"]:
            if len(token["bare"]) > MAX_DIGITS:
                raise NotJson(byte_of(token.start()), f"a number of {len(token['bare'])} digits")
            if token["is_key"]:
                written.write(f'{text[copied : token.start("bare")]}"{token["bare"]}"')
                copied = token.end("bare")
        elif "\\u" in token["string"]:
            written.write(
                text[copied : token.start()]
                + _ESCAPE.sub(lambda one: r"\ufffd" if one["lone"] else one[0], token["string"])
            )
            copied = token.end()
    if not end:
        raise NotJson(byte_of(len(text)), "the text ends within the value")
    written.write(text[copied:end])
    return written.getvalue(), end


def _before_quoting(text: str, start: int, position: int) -> int:
    """Return the position in `text` of a position in the JSON that `_quote_bare_keys` makes of it."""
    quotes = 0
    for token in _TOKEN.finditer(text, start):
        if token["is_key"]:
            for quote in (token.start("bare"), token.end("bare")):
                if quote - start + quotes >= position:
                    return start + position - quotes
                quotes += 1
    return start + position - quotes


def _first_duplicate(pairs: Sequence[tuple[str, Any]]) -> str:
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            return name
        seen.add(name)
    return ""


class _References:
    """Replaces references by their targets; unresolvable ones go to `dangling`.

    fastjson writes an object in full at its first occurrence, so a valid reference points back to a
    complete value: only those are in `sizes`. This excludes cycles, and the sizes bound what a small
    text can expand to (MAX_REPEATED).
    """

    def __init__(self, root: Any) -> None:
        self.root = root
        self.sizes: dict[int, int] = {}  # values in each complete object or array, by id()
        self.left = MAX_REPEATED
        self.dangling: list[str] = []

    def resolve(self, node: Any) -> int:
        """Resolve all references in `node`; return how many values it holds then."""
        members = list(node.items()) if isinstance(node, dict) else list(enumerate(node))
        size = 1 + len(members)
        for name, child in members:
            if not isinstance(child, dict | list):
                continue
            if isinstance(child, dict) and len(child) == 1 and isinstance(child.get("$ref"), str):
                size += self._put(node, name, child["$ref"])
            else:
                self.sizes[id(child)] = self.resolve(child)
                size += self.sizes[id(child)]
        return size

    def _put(self, node: Any, name: Any, path: str) -> int:
        target = _at_path(self.root, path)
        size = self.sizes.get(id(target))
        if size is not None and size <= self.left:
            self.left -= size
            node[name] = target
            return size
        if len(self.dangling) < MAX_PROBLEMS:
            self.dangling.append(path)
        return 0


def _at_path(root: Any, path: str) -> Any:
    """Return the value at a fastjson path, None without one: `$.offsetTable.T\\@G`, `$.a[2]`."""
    steps = list(_PATH_STEP.finditer(path, 1))
    ends = list(accumulate((len(step[0]) for step in steps), initial=1))
    if not path.startswith("$") or ends[-1] != len(path):
        return None
    node = root
    for step in steps:
        if step[1] is not None and isinstance(node, dict):
            node = node.get(re.sub(r"\\(.)", r"\1", step[1], flags=re.DOTALL))
        elif step[2] is not None and isinstance(node, list) and int(step[2]) < len(node):
            node = node[int(step[2])]
        else:
            return None
    return node
