"""JSON as the brokers write it, which is not always JSON.

fastjson leaves numbers and booleans that are map keys without quotes, puts raw control characters
into strings, and writes an object that it met before as a reference. So the text is walked once,
bare keys get their quotes, and Python's own parser does the rest. What a crash does to such a file
(an end cut off, bytes behind the end, a second copy of a key) is reported, with its byte offset.

Source: fastjson 1.2.83, fastjson2 2.0.43, as shipped with RocketMQ 4.0.0 to 5.5.0.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from rmqinspect.errors import BadRecord

# No file of a broker nests deeper than six levels; Python's parser would give up near 1000.
MAX_DEPTH = 100
# Java writes at most 20 digits; Python refuses more than 4300, without saying where.
MAX_DIGITS = 400
# Problems of one text that are told one by one; a file of duplicate keys must not fill the memory.
MAX_PROBLEMS = 20
# Values that references of one text may repeat; real ones repeat a handful.
MAX_REPEATED = 1 << 20

# 4.x writes the platform's charset: UTF-8 nearly everywhere, GBK on a Chinese Windows.
# ISO-8859-1 decodes anything, so it comes last.
CHARSETS = ("utf-8", "gbk", "iso-8859-1")

# All that can stand outside of strings and matters here. Possessive repeats: hostile text must
# not make the search try every split of a long run of digits or blanks.
_TOKEN = re.compile(
    r"""(?P<string>"[^"\\]*+(?:\\.[^"\\]*+)*+")
      | (?P<open>[{\[])
      | (?P<close>[}\]])
      | (?P<bare>-?\d++|true|false|null)(?P<is_key>\s*+:)?
      | (?P<wrong>"|NaN|-?Infinity)""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)
# Escapes in reading order, so that a backslash is never taken twice. A lone half of a surrogate
# pair is no character and cannot leave this program in any output.
_ESCAPE = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?P<lone>\\u[dD][89a-fA-F][0-9a-fA-F]{2})|\\.",
    re.DOTALL,
)
_PATH_STEP = re.compile(r"\.((?:[^.\[\\]|\\.)+)|\[(\d{1,9})\]", re.DOTALL)


class NotJson(BadRecord):
    """The text cannot be read even with tolerance; `offset` is the byte where that shows."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(f"not JSON at byte {offset} ({offset:#x}): {reason}")
        self.offset = offset
        self.reason = reason


@dataclass(frozen=True, slots=True)
class JsonDocument:
    """A value, and what was odd about its text."""

    value: Any  # dict or list; all keys are strings
    charset: str
    end: int  # byte offset behind the value
    behind: bytes  # what stands there, without white space around it
    duplicates: tuple[str, ...]  # keys that one object has twice; at most MAX_PROBLEMS, as the next
    dangling: tuple[str, ...]  # paths of references that name nothing before them
    fractions: tuple[str, ...]  # numbers that are no integers, which no broker writes; at most MAX_PROBLEMS

    @property
    def problems(self) -> tuple[str, ...]:
        """What was odd, in words."""
        found = [f"duplicate key {name!r}: the last value counts" for name in self.duplicates]
        found += [f"reference {path!r} names nothing before it" for path in self.dangling]
        if self.behind:
            kind = "" if self.behind.strip(b"\0") else " zero"
            found.append(f"{len(self.behind)}{kind} bytes behind the end at byte {self.end} ({self.end:#x})")
        if self.charset != CHARSETS[0]:
            found.append(f"not UTF-8: read as {self.charset}")
        return tuple(found[:MAX_PROBLEMS])


def parse_json(raw: bytes) -> JsonDocument:
    """Read the object or array at the beginning of `octets`.

    Of a duplicate key the last value stays, as in fastjson. A reference that cannot be resolved
    stays as it is written. Both are problems, and so are bytes behind the end.

    :raises NotJson: there is no object or array, or it is cut, or nests deeper than MAX_DEPTH.
    """
    text, charset = _decode(raw)
    duplicates: list[str] = []
    fractions: list[str] = []
    start = 1 if text.startswith("\ufeff") else 0
    start += len(text) - start - len(text[start:].lstrip(" \t\r\n"))
    byte_of = _ByteOffsets(text, charset)
    if text[start : start + 1] not in ("{", "["):
        raise NotJson(byte_of(start), "no object or array begins here")
    quoted, end, insertions = _quote_bare_keys(text, start, byte_of)
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
        quotes = sum(1 for position in insertions if position < error.pos)
        raise NotJson(byte_of(start + error.pos - quotes), error.msg) from error
    resolver = _References(value)
    if references:
        resolver.resolve(value)
    where = byte_of(end)
    behind = raw[where:].strip(b" \t\r\n")
    return JsonDocument(value, charset, where, behind, tuple(duplicates), tuple(resolver.dangling), tuple(fractions))


class _ByteOffsets:
    """Turns a position in the decoded text into a byte offset; only errors need it."""

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
            # Garbage behind a whole value says nothing about the charset of the value.
            sound = raw[: error.start].decode(charset)
            if end := _end_of_value(sound):
                return sound[:end] + "\ufffd", charset
    raise AssertionError("ISO-8859-1 decodes every byte")


def _end_of_value(text: str) -> int:
    """Return the position behind the first value of `text`, 0 when it does not end here."""
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


def _quote_bare_keys(text: str, start: int, byte_of: _ByteOffsets) -> tuple[str, int, list[int]]:
    """Return (legal JSON of the value at `start`, end of the value in `text`, inserted positions).

    The positions are those of the inserted quotes in the returned text.
    """
    pieces: list[str] = []
    quotes: list[int] = []  # positions in text, each twice
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
                pieces += text[copied : token.start("bare")], '"', token["bare"], '"'
                quotes += token.start("bare"), token.end("bare")
                copied = token.end("bare")
        elif "\\u" in token["string"]:
            pieces += text[copied : token.start()], _ESCAPE.sub(_whole_character, token["string"])
            copied = token.end()
    if not end:
        raise NotJson(byte_of(len(text)), "the text ends within the value")
    pieces.append(text[copied:end])
    insertions = [position - start + before for before, position in enumerate(quotes)]
    return "".join(pieces), end, insertions


def _whole_character(escape: re.Match[str]) -> str:
    return r"\ufffd" if escape["lone"] else escape[0]


def _first_duplicate(pairs: Sequence[tuple[str, Any]]) -> str:
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            return name
        seen.add(name)
    return ""


class _References:
    """Puts the objects that references name in the references' places; the rest goes to `dangling`.

    fastjson writes an object out at its first occurrence, so a reference points backwards, to
    something that has ended: `sizes` holds what has, in values. That also keeps the result free of
    cycles, and MAX_REPEATED from being a small text that says a large one a million times.
    """

    def __init__(self, root: Any) -> None:
        self.root = root
        self.sizes: dict[int, int] = {}  # by id
        self.left = MAX_REPEATED
        self.dangling: list[str] = []

    def resolve(self, node: Any) -> int:
        """Resolve all references in `node` and return how many values it holds then."""
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
    """Return what a fastjson path names, None if there is nothing: `$.offsetTable.T\\@G`, `$.a[2]`."""
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
