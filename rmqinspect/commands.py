"""The commands that a finding, a screen or an explanation recommends.

A template is a command line with `{store}` and further names in braces; `fill_command` puts in values as a shell
reads them. Templates with nothing known about the store show placeholders: `rmqinspect show STORE --at OFFSET`.
"""

import re
import shlex
from collections.abc import Sequence

VERIFY = "rmqinspect verify {store}"
DECODE = "rmqinspect decode {store}"
DECODE_TOPIC = "rmqinspect decode {store} -t {topic}"
SHOW = "rmqinspect show {store} --at {at}"

_ESCAPED = re.compile(r"\\x[0-9a-f]{2}")
_SPECIAL = re.compile(r"\\(?!x)|'")

PLACEHOLDERS = {"store": "STORE", "at": "OFFSET", "topic": "TOPIC", "queue": "N"}
"""What a template shows for a value that is not known."""


def fill_command(template: str, stores: Sequence[str] = (), **values: str | int) -> str:
    """Return a template as a command: paths and values quoted for a shell, placeholders for what is missing."""
    known = {name: shlex.quote(str(value)) for name, value in values.items()}
    if stores:
        known["store"] = " ".join(map(_quote_path, stores))
    return template.format_map(PLACEHOLDERS | known)


def _quote_path(path: str) -> str:
    """Quote a path as `text.name_text` writes it: a shell reads its escapes in `$'…'`."""
    if not _ESCAPED.search(path):
        return shlex.quote(path)
    return "$'" + _SPECIAL.sub(r"\\\g<0>", path) + "'"
