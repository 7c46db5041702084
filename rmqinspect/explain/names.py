"""Message properties, topics, magic numbers, files of a store and the words of rmqinspect, by name.

The texts are in names.toml.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from rmqinspect.commands import fill_command
from rmqinspect.explain import values
from rmqinspect.explain.entry import Named
from rmqinspect.find.reasons import REASONS
from rmqinspect.prose import load_prose
from rmqinspect.schemas import consumequeue
from rmqinspect.store import without_rows

NAMES = load_prose("rmqinspect.explain", "names.toml")
PREFIX = "beginning of topic names"

_IN_STORE = "file or folder of a store"

_SHOW = "rmqinspect show STORE --at OFFSET"
_QUEUE_UNITS = "rmqinspect decode STORE --table queue_units"
_PROPERTIES = "rmqinspect decode STORE --columns physical_offset,properties"


def _property(name: str, row: Mapping[str, Any]) -> Named:
    return Named(
        "property",
        name,
        f"message property, since {row['since']}",
        row["meaning"],
        describe=values.DESCRIBE[row["describe"]] if "describe" in row else None,
        see=row.get("see", ()),
        # A name that ends in a dot is the beginning of names.
        next=(_PROPERTIES if name.endswith(".") else f"rmqinspect decode STORE --property {name}",),
    )


def _topic(name: str, row: Mapping[str, Any]) -> Named:
    prefix = row.get("prefix", False)
    return Named(
        "topic",
        name,
        PREFIX if prefix else "the broker's own topic",
        row["meaning"],
        see=row.get("see", ()),
        next=(f"rmqinspect decode STORE -t '{name}*'" if prefix else f"rmqinspect decode STORE -t {name}",),
    )


def _word(name: str, row: Mapping[str, Any]) -> Named:
    return Named("word", name, row["where"], row["meaning"], see=row.get("see", ()), next=(row["next"],))


def _files() -> Iterator[Named]:
    """Yield the files and folders of a store; what `names.toml` lacks comes from the files that no table shows."""
    for name, row in NAMES["file"].items():
        yield Named("file", name, _IN_STORE, row["meaning"], see=row.get("see", ()), next=(row["next"],))
    for name, (meaning, command) in {**without_rows.KINDS, **without_rows.NAMES}.items():
        if name not in NAMES["file"]:
            where = _IN_STORE if name in without_rows.NAMES else "kind of a file"
            yield Named("file", name, where, meaning, next=(fill_command(command),))


PROPERTIES = tuple(_property(name, row) for name, row in NAMES["property"].items())
TOPICS = tuple(_topic(name, row) for name, row in NAMES["topic"].items())
WORDS = (
    *(_word(name, row) for name, row in NAMES["word"].items()),
    *(
        Named("word", name, "why find has no hit, or consumers do not get it", meaning, next=("rmqinspect find STORE",))
        for name, meaning in REASONS.items()
    ),
)
FILES = tuple(_files())


def _number(value: int, size: int, where: str, meaning: str, see: tuple[str, ...], command: str) -> Named:
    unsigned = value & (1 << 8 * size) - 1
    return Named(
        "number",
        f"{unsigned:#0{2 + 2 * size}x}",
        where,
        f"{meaning}; decimal {value}",
        also=(str(value), str(unsigned), f"{unsigned:0{2 * size}x}"),
        see=see,
        next=(command,),
    )


NUMBERS: tuple[Named, ...] = (
    *(
        _number(value, 4, "magic of the commit log", f"begins {words}", ("MAGICCODE",), _SHOW)
        for value, words in values.MAGICS.items()
    ),
    _number(
        consumequeue.PRE_BLANK_SIZE,
        4,
        "size in a queue unit",
        "filler (pre-blank): keeps unit numbers right in a queue that does not begin at 0; offset and tags code are 0",
        ("tagsCode", "CQ-ZERO-BEHIND"),
        _QUEUE_UNITS,
    ),
    _number(
        consumequeue.EXT_ADDRESS_MAX,
        8,
        "tags code in a queue unit",
        "from this number down a tags code is an address in the ext files: adding 2^63 gives the position",
        ("tagsCode", "EX-ADDRESS"),
        _QUEUE_UNITS,
    ),
)
