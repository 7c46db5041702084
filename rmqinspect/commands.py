"""The commands that a finding, a screen or an explanation recommends.

A template is a command line with `{store}` and further names in braces; `fill_command` puts in values as a shell
reads them. Templates with nothing known about the store show placeholders: `rmqinspect show STORE --at OFFSET`.
What is in brackets is optional: `choose_parts` leaves it out where its values are not known.
"""

import re
import shlex
from collections.abc import Collection, Sequence
from string import Formatter

from rmqinspect.text import escape

VERIFY = "rmqinspect verify {store}"
DECODE = "rmqinspect decode {store}"
DECODE_RANGE = "rmqinspect decode {store} --offset {start}..{end}"
DECODE_TOPIC = "rmqinspect decode {store} -t {topic}"
UNCONSUMED = "rmqinspect groups {store} --unconsumed {group}"
USAGE = "rmqinspect usage {store}"
USAGE_BY = USAGE + " --by queue,size,segment -n 20"
EXPLAIN = "rmqinspect explain {what}"
FIND_ID = "rmqinspect find {store} --id {id}"
GROUPS = "rmqinspect groups {store}"
FORECAST = "rmqinspect forecast {store}"
REBUILD = "rmqinspect rebuild {store} -o NEW"
REBUILD_OFFSETS = "rmqinspect rebuild {store} -o NEW --set-offsets"
SALVAGE = "rmqinspect salvage {store} -o NEW"
REBUILD_STORE = "rmqinspect rebuild {store} -o NEW"
SAVE = "rmqinspect decode {store} --lost-at-start -o lost.parquet"
SHOW = "rmqinspect show {store} --at {at}"

_ESCAPED_BYTE = re.compile(rb"\\x([0-9a-f]{2})")

PLACEHOLDERS = {"store": "STORE", "at": "OFFSET", "topic": "TOPIC", "queue": "N", "file": "FILE", "group": "GROUP"}
"""What a template shows for a value that is not known."""


def fill_command(template: str, stores: Sequence[str] = (), **values: str | int) -> str:
    """Return a template as a command: paths and values quoted for a shell, placeholders for what is missing."""
    known = {name: quote(str(value)) for name, value in values.items()}
    if stores:
        known["store"] = " ".join(map(quote_path, stores))
    if "file" in values:
        known["file"] = quote_path(str(values["file"]))
    return choose_parts(template).format_map(PLACEHOLDERS | known)


def placeholders(template: str) -> set[str]:
    """Return the names in braces."""
    return {name for _, name, _, _ in Formatter().parse(template) if name}


def choose_parts(template: str, known: Collection[str] = tuple(PLACEHOLDERS)) -> str:
    """Return a template without brackets: with the parts whose names are all known, without the others."""
    return re.sub(r"\[(.*?)\]", lambda part: part[1] if placeholders(part[1]) <= set(known) else "", template)


def quote(text: str) -> str:
    r"""Quote a text for bash; unsafe characters byte by byte, `$'\x1b'`: no screen, pipe or paste alters it then."""
    return shlex.quote(text) if escape(text) == text else _quote_bytes(_raw(text))


def quote_path(path: str) -> str:
    r"""Quote a path as `text.name_text` writes it: each of its `\xNN` is a byte of the name."""
    raw, escapes = _ESCAPED_BYTE.subn(lambda digits: bytes.fromhex(digits[1].decode()), _raw(path))
    return _quote_bytes(raw) if escapes else quote(path)


def _quote_bytes(raw: bytes) -> str:
    r"""Return a word in ANSI-C quotes, without `\u`: bash writes that as the locale says."""
    text = raw.decode("utf-8", "surrogateescape").replace("\\", r"\\").replace("'", r"\'")
    safe = (char if escape(char) == char else "".join(f"\\x{byte:02x}" for byte in _raw(char)) for char in text)
    return f"$'{''.join(safe)}'"


def _raw(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
