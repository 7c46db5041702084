"""File and folder names from untrusted text: deterministic, and safe on every file system."""

import hashlib
from urllib.parse import quote

# File systems allow 255 bytes. The temporary name of a range adds 74 to the store's name, a hash another 17.
_MAX_LENGTH = 160
_NULL = "__HIVE_DEFAULT_PARTITION__"  # read as null by Hive, Spark and DuckDB


def safe_name(text: str) -> str:
    """Return `text` percent-encoded; if too long for a file name, cut and followed by a hash."""
    encoded = quote(text, safe=" +,@").replace(" ", "%20")
    # Names that start with a dot or an underscore are hidden; `.` and `..` are folders.
    if encoded[:1] in (".", "_"):
        encoded = f"%{ord(encoded[0]):02X}{encoded[1:]}"
    if len(encoded) <= _MAX_LENGTH:
        return encoded
    return f"{encoded[:_MAX_LENGTH]}~{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def range_name(store: str, start: int, end: int) -> str:
    """Return the file name for the records of [start, end), physical offsets."""
    return f"{safe_name(store)}-{start:020}-{end:020}.parquet"


def numbered_name(store: str, number: int) -> str:
    """Return the file name for a part of any other table."""
    return f"{safe_name(store)}-{number:05}.parquet"


def partition_folder(column: str, value: object) -> str:
    """Return the Hive name of a partition's folder, `column=value`."""
    text = "" if value is None else str(value)
    return f"{column}={safe_name(text) if text else _NULL}"
