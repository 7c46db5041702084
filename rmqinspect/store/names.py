"""Names that a user gives to stores: `NAME=STORE`."""

import os

from rmqinspect.system.uri import abspath, basename
from rmqinspect.text import name_text


def split_name(text: str) -> tuple[str | None, str]:
    """Parse `NAME=STORE` as (name, path), and anything else as (None, path).

    A name has no "/" and no ":", so a URI with "=" has none. An existing path is a path.
    """
    name, _, path = text.partition("=")
    if not name or not path or "/" in name or ":" in name or os.path.lexists(text):
        return None, text
    return name, path


def name_store(text: str) -> tuple[str, str]:
    """Parse `NAME=STORE` or `STORE` as (name, path); the default name is the last component of the path."""
    name, path = split_name(text)
    return name_text(name or basename(abspath(path))), path
