"""A layout walked field by field over bytes that may be damaged or end too early."""

import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from construct import Construct, ConstructError

from rmqinspect.schemas.message import SysFlag


@dataclass(frozen=True, slots=True)
class FieldRow:
    """One field of a record. Rows of depth 0 tile the record; rows below tile the row they explain."""

    name: str  # as in the layout; of a property: its own name
    offset: int  # from the record's first byte
    raw: bytes
    value: str  # for people, escaped
    note: str = ""  # what the value means, escaped
    problem: bool = False  # the note tells of damage
    depth: int = 0

    @property
    def size(self) -> int:
        """Bytes of the field."""
        return len(self.raw)


@dataclass(frozen=True, slots=True)
class Field:
    """One parsed field of a layout: half-open range from the first byte, and construct's value."""

    name: str
    start: int
    end: int
    value: Any


@dataclass(frozen=True)
class ParsedFields:
    """A layout's fields as far as they could be parsed, and the bytes they came from."""

    raw: bytes
    physical_offset: int | None  # where the first byte lies, if known
    fields: Mapping[str, Field]
    reason: str | None  # why the walk stopped; None when every field was parsed

    def number(self, name: str) -> int:
        """Return the value of an integer field, 0 when the walk did not come to it."""
        field = self.fields.get(name)
        return int(field.value) if field is not None else 0

    @property
    def end(self) -> int:
        """Where the last parsed field ends."""
        return max((field.end for field in self.fields.values()), default=0)

    @property
    def compressed(self) -> bool:
        """Whether a record's body is compressed."""
        return bool(self.number("sys_flag") & SysFlag.COMPRESSED)

    @property
    def body(self) -> bytes | None:
        """A record's body as stored, None when the walk did not come to it."""
        field = self.fields.get("body")
        return None if field is None else bytes(field.value)


def walk_fields(
    fields: Iterable[Construct],
    content: bytes,
    physical_offset: int | None = None,
    start: int = 0,
    known: Mapping[str, Any] | None = None,
) -> ParsedFields:
    """Parse named fields one after the other from `start` on, as far as they go; never raises.

    `known` holds the values of earlier fields that these refer to.
    """
    stream, values = io.BytesIO(content), dict(known or {})
    stream.seek(start)
    found: dict[str, Field] = {}
    for field in fields:
        begin = stream.tell()
        try:
            value = field.parse_stream(stream, **values)
        except ConstructError as error:
            reason = f"{field.name}: {str(error).splitlines()[-1].strip()}"
            return ParsedFields(content, physical_offset, found, reason)
        values[field.name] = value
        found[field.name] = Field(field.name, begin, stream.tell(), value)
    return ParsedFields(content, physical_offset, found, None)
