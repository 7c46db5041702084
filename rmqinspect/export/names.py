"""File and folder names made of what strangers wrote: safe on every file system, and the same every time."""

import hashlib
from urllib.parse import quote

# Characters of a name made of a value: file systems allow 255 bytes, and the unfinished file of a range has 74 more
# than the store's name, which the hash of one that was cut makes 17 longer.
_LONGEST = 160
_NULL = "__HIVE_DEFAULT_PARTITION__"  # what Hive, Spark and DuckDB take for null


def safe_name(text: str) -> str:
    """Return `text` percent-encoded; cut, with a hash behind it, where that is too long for a file name."""
    encoded = quote(text, safe=" +,@").replace(" ", "%20")
    # A name of dots alone, or one that begins with a dot or an underscore, is hidden or means a folder.
    if encoded[:1] in (".", "_"):
        encoded = f"%{ord(encoded[0]):02X}{encoded[1:]}"
    if len(encoded) <= _LONGEST:
        return encoded
    return f"{encoded[:_LONGEST]}~{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def range_name(store: str, start: int, end: int) -> str:
    """Return the name of the file with the records of a range of the log, [start, end) in physical offsets."""
    return f"{safe_name(store)}-{start:020}-{end:020}.parquet"


def numbered_name(store: str, number: int) -> str:
    """Return the name of a part of a table that is no range of the log."""
    return f"{safe_name(store)}-{number:05}.parquet"


def partition_folder(column: str, value: object) -> str:
    """Return `column=value`, as Hive names the folder of a partition."""
    text = "" if value is None else str(value)
    return f"{column}={safe_name(text) if text else _NULL}"
