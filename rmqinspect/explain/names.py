"""What can be looked up by its name: the texts are in names.toml, those of the fields in fields.toml.

Message properties, topics, magic numbers, files of a store, the words of rmqinspect, numbers made of bits, and the
fields of the layouts, whose offsets and sizes come from `schemas`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from rmqinspect.commands import fill_command
from rmqinspect.explain import entry as values
from rmqinspect.explain.entry import Named
from rmqinspect.find.reasons import REASONS
from rmqinspect.prose import load_prose
from rmqinspect.schemas import checkpoint, consumequeue, dledger, index, message
from rmqinspect.schemas.message import HEADS, SysFlag
from rmqinspect.store import file_type as without_rows
from rmqinspect.text import count

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


# --- bits -----------------------------------------------------------------------------------------

# Names and values are those of SysFlag.
SYS_FLAG_BITS: Mapping[SysFlag, str] = {SysFlag[name]: meaning for name, meaning in NAMES["sys_flag"].items()}


@dataclass(frozen=True, slots=True)
class Bits:
    """A number whose bits have names."""

    name: str
    where: str
    meaning: str
    next: str  # a command
    bits: tuple[tuple[int, str, str], ...]  # mask, name, meaning
    also: tuple[str, ...] = ()

    def describe(self, text: str) -> str:
        """Name the bits that are set."""
        value = values.number(text, 32)
        names = [name for mask, name, _ in self.bits if value & mask]
        if rest := value & ~sum(mask for mask, _, _ in self.bits) & 0xFFFFFFFF:
            names.append(f"bits {rest:#x} without a meaning")
        return f"{value} is {', '.join(names) or 'none'}"


_BITS = tuple(Bits(name=name, **row) for name, row in NAMES["bits"].items())
(RUNNING_FLAGS,) = (table for table in _BITS if table.name == "flagBits")


def bits() -> Iterator[Named]:
    """Yield the numbers made of bits, and each of their bits."""
    for flag, meaning in SYS_FLAG_BITS.items():
        yield Named("bit", str(flag.name), f"SYSFLAG, {flag:#x}", meaning, see=("SYSFLAG",), next=(_SHOW,))
    for table in _BITS:
        names = tuple(name for _, name, _ in table.bits)
        yield Named(
            "field",
            table.name,
            table.where,
            table.meaning,
            also=table.also,
            describe=table.describe,
            see=names,
            next=(table.next,),
        )
        for mask, name, meaning in table.bits:
            yield Named("bit", name, f"{table.name}, {mask:#x}", meaning, see=(table.name,), next=(table.next,))


# --- fields ---------------------------------------------------------------------------------------

_INDEX_FILES = "rmqinspect decode STORE --table index_files"
_INDEX_ENTRIES = "rmqinspect decode STORE --table index_entries"
_CHECKPOINT = "rmqinspect decode STORE --table checkpoint"


def _field(row: Mapping[str, Any]) -> Named:
    describe = values.DESCRIBE[row["describe"]] if "describe" in row else None
    return Named(kind="field", where="", **dict(row) | {"describe": describe})


# Of each section by their names in the layout.
_FIELDS: Mapping[str, Mapping[str, Named]] = {
    section: {name: _field(row) for name, row in rows.items()}
    for section, rows in load_prose("rmqinspect.explain", "fields.toml").items()
}

# (what it is a field of, the layout, its fields, the command that shows values)
LAYOUTS: tuple[tuple[str, Any, Mapping[str, Named], str], ...] = (
    ("commit-log record", message.Message, _FIELDS["record"], _SHOW),
    ("blank record", message.Blank, _FIELDS["blank"], _SHOW),
    ("consume queue unit", consumequeue.QueueUnit, _FIELDS["queue_unit"], _QUEUE_UNITS),
    ("batch consume queue unit", consumequeue.BatchUnit, _FIELDS["batch_unit"], _QUEUE_UNITS),
    ("ext unit", consumequeue.ExtHead, _FIELDS["ext_unit"], _QUEUE_UNITS),
    ("index header", index.IndexHeader, _FIELDS["index_header"], _INDEX_FILES),
    ("index slot", index.IndexSlot, _FIELDS["index_slot"], _INDEX_ENTRIES),
    ("index entry", index.IndexEntry, _FIELDS["index_entry"], _INDEX_ENTRIES),
    ("checkpoint", checkpoint.Checkpoint, _FIELDS["checkpoint"], _CHECKPOINT),
    ("DLedger entry", dledger.EntryHead, _FIELDS["entry"], _SHOW),
    ("DLedger index unit", dledger.EntryIndexUnit, _FIELDS["entry_index_unit"], _SHOW),
)


def layout_fields() -> Iterator[Named]:
    """Yield every field of every layout, with its offset."""
    for label, layout, table, command in LAYOUTS:
        for name, place in _places(layout):
            field = table[name]
            yield replace(field, where=f"{label}, {place}", also=(*field.also, name), next=(command,))


def _places(layout: Any) -> Iterator[tuple[str, str]]:
    """Yield (field, place): offset and size where they are fixed, then the field before it."""
    fixed = HEADS[False, False] if layout is message.Message else layout
    names = [field.name for field in fixed.subcons]
    at = 0
    for field in fixed.subcons:
        size = field.sizeof()
        moves = fixed is not layout and "born_host" in names[: names.index(field.name)]
        yield field.name, f"at {at}{' if both hosts are IPv4' if moves else ''}, {count(size, 'byte')}"
        at += size
    for before, field in pairwise(layout.subcons[len(names) - 1 :]):
        yield field.name, f"after {before.name}"
