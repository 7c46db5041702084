"""The codes that `verify` reports. Their texts are in codes.toml, whose head describes the columns.

Codes by the part they play when findings are put together.
"""

import posixpath
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct

from rmqinspect.choices import LEVELS
from rmqinspect.commands import REBUILD, SALVAGE, fill_command
from rmqinspect.prose import load_prose

ALL = "all"
"""In the place of versions: 4.0.0 to 5.5.0."""

Eras = tuple[tuple[str, str], ...]
"""What brokers do, as (versions, effect); versions are `all`, or single ones and `A to B`, with commas."""


class Code(Struct, frozen=True):
    """One row of codes.toml."""

    code: str
    severity: str  # error, warning or info
    level: str  # the lowest level that runs the check
    rule: str  # what is wrong
    broker_effect: str  # what startup or a consumer makes of it, in short
    next: str  # a command; {store} and {at} are filled in
    cause: str  # how it comes about
    eras: Eras  # what a broker of each version does
    client: str = ""  # what a client gets as long as a start leaves it as it is
    do: str = ""  # what a person has to do, "" if nothing; {file} and {folder} are filled in
    mend: str = ""  # a name of `MENDS`, "" if no command mends it


def _load() -> Iterator[Code]:
    """Yield the rows; `Code` refuses unknown and missing columns with a TypeError."""
    document = load_prose("rmqinspect.verify", "codes.toml")
    shared: dict[str, Eras] = document["shared"]
    for code, row in document["codes"].items():
        yield Code(code=code, **row | {"eras": _expand(row["eras"], shared)})


def _expand(rows: tuple[Any, ...], shared: dict[str, Eras]) -> Eras:
    """Put the rows of [shared] where their name stands."""
    return tuple(era for row in rows for era in (shared[row] if isinstance(row, str) else (row,)))


CODES = tuple(_load())
BY_CODE = {code.code: code for code in CODES}

MENDS = {
    "rebuild": (REBUILD, "it makes queues and index again from a sound log"),
    "salvage": (
        SALVAGE,
        "it saves what is sound into a new store, and keeps the queue offsets of the groups",
    ),
}
"""The commands that mend, and what they do."""

NO_MEND = "none"
"""In the place of a name of `MENDS`: nothing that is here mends it."""

BEFORE_START = (
    "before the broker is started: it would give these queue offsets to new messages, unless it adds units here itself"
)
"""When to mend a queue that ends before the log does. Source: ConsumeQueue#getMaxOffsetInQueue, the next offset."""

FIND_LOG = "look for the segments of the log: on a disk that is not mounted, on replicas, in backups"
"""What to do where queues are left and no record is."""

COPY_AGAIN = (
    "if these files were copied while the broker ran, copy them again: the broker stopped, or the queues first and the "
    "log last"
)
"""What to do about a copy whose files are of different times."""


def fill_mend(name: str, stores: Sequence[str] = ()) -> str:
    """Return the command of a row of `MENDS` and what it does, "" for no name."""
    if not name:
        return ""
    command, words = MENDS[name]
    return f"run {fill_command(command, stores)}: {words}"


def fill_do(template: str, file: str | None = None) -> str:
    """Return what a person has to do about a file, or without one in general; the file's name may hold braces."""
    if not file:
        file, folder = "the file", "its folder"
    else:
        folder = posixpath.dirname(file) or "."
    # Not `format`: names from the store stand in some templates, and may hold braces.
    return template.replace("{folder}", folder).replace("{file}", file)


def levels_up_to(level: str) -> tuple[str, ...]:
    """Return the levels whose checks `level` includes."""
    return LEVELS[: LEVELS.index(level) + 1]


# Findings that say what was not judged always get a row.
NEVER_CAPPED = frozenset({"ST-UNCHECKED", "ST-IO"})

# Findings about records that stand among those of the log (CL-), by physical offset.
OF_RECORDS = frozenset({"CQ-MISSING", "CQ-NO-TOPIC", "CQ-BEHIND", "IX-MISSING", "IX-FIRST", "IX-NONE"})

# Gaps of the log: a pointer into one shows what it held and is no finding of its own.
GAPS = frozenset({"CL-MAGIC", "CL-LENGTH", "CL-BLANK-INSIDE", "CL-TORN-TAIL", "CL-ZERO-INSIDE", "CL-HOLE"})

# Findings about queue units: their physical offset is where the unit points.
OF_UNITS = frozenset(
    {"CQ-DANGLING", "CQ-BEYOND", "CQ-MISMATCH", "CQ-TAG", "CQ-SHIFT", "CQ-ORDER", "BQ-COUNT", "BQ-ORDER", "EX-ADDRESS"}
)

# Queue units so wrong that their order means nothing.
WRONG_UNITS = frozenset({"CQ-DANGLING", "CQ-BEYOND", "CQ-MISMATCH"})

# Findings whose expected and found values are one field of so many bits: one flipped bit may explain them.
FIELD_BITS = {
    "CQ-DANGLING": 64,
    "CQ-BEYOND": 64,
    "CQ-MISMATCH": 32,
    "CQ-TAG": 64,
    "BQ-COUNT": 64,
}
