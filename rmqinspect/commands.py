"""The commands that a finding, a screen or an explanation recommends.

A template is a command line with `{store}` and further names in braces; `fill_command` puts in values as a shell
reads them. Templates with nothing known about the store show placeholders: `rmqinspect show STORE --at OFFSET`.
What is in brackets is optional: `choose_parts` leaves it out where its values are not known.
"""

import re
import shlex
from collections.abc import Collection, Sequence
from string import Formatter

VERIFY = "rmqinspect verify {store}"
DECODE = "rmqinspect decode {store}"
DECODE_TOPIC = "rmqinspect decode {store} -t {topic}"
UNCONSUMED = "rmqinspect groups {store} --unconsumed {group}"
USAGE = "rmqinspect usage {store}"
USAGE_BY = USAGE + " --by queue,size,segment -n 20"
EXPLAIN = "rmqinspect explain {what}"
FIND_ID = "rmqinspect find {store} --id {id}"
GROUPS = "rmqinspect groups {store}"
FORECAST = "rmqinspect forecast {store}"
SHOW = "rmqinspect show {store} --at {at}"

_ESCAPED = re.compile(r"\\x[0-9a-f]{2}")
_SPECIAL = re.compile(r"\\(?!x)|'")

PLACEHOLDERS = {"store": "STORE", "at": "OFFSET", "topic": "TOPIC", "queue": "N", "file": "FILE", "group": "GROUP"}
"""What a template shows for a value that is not known."""


def fill_command(template: str, stores: Sequence[str] = (), **values: str | int) -> str:
    """Return a template as a command: paths and values quoted for a shell, placeholders for what is missing."""
    known = {name: shlex.quote(str(value)) for name, value in values.items()}
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


def quote_path(path: str) -> str:
    """Quote a path as `text.name_text` writes it: bash reads its escapes in `$'…'`."""
    if not _ESCAPED.search(path):
        return shlex.quote(path)
    return "$'" + _SPECIAL.sub(r"\\\g<0>", path) + "'"
