"""What can be explained by its name, and how values are described that people type or paste.

The texts are in names.toml, those of the fields in fields.toml: message properties, topics, magic numbers, files of a
store, the words of rmqinspect, numbers made of bits, and the fields of the layouts, whose offsets and sizes come from
`schemas`.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from rmqinspect.codec.java import java_string_hash
from rmqinspect.commands import fill_command
from rmqinspect.find import REASONS
from rmqinspect.prose import load_prose
from rmqinspect.schemas import checkpoint, consumequeue, dledger, index, message
from rmqinspect.schemas.message import HEADS, SysFlag
from rmqinspect.show.record import sys_flag_words
from rmqinspect.store import without_rows
from rmqinspect.text import count, describe_offset, escape, group_digits
from rmqinspect.times import format_millis
from rmqinspect.topics import SCHEDULE_TOPIC
from rmqinspect.verify.codes import Eras

Describe = Callable[[str], str]
"""Describes a value, given as typed. `ValueError` with a sentence: not a value of this kind."""


class Explanation(Struct, frozen=True):
    """One explanation; the fields are those of the JSON rows."""

    kind: str  # code, field, property, bit, number, topic, log line, word
    name: str
    where: str  # severity and level; layout, offset and size; the RocketMQ class that logs it
    meaning: str
    values: tuple[tuple[str, str], ...] = ()  # (value as given, its meaning)
    effect: str = ""  # what a broker makes of it, in short
    cause: str = ""
    eras: Eras = ()  # by version; for a log line: what is different or misleading
    logged: tuple[str, ...] = ()  # lines of a broker's log that accompany it
    next: tuple[str, ...] = ()  # commands
    see: tuple[str, ...] = ()  # names that can be explained, too
    do: str = ""  # what a person has to do


class Named(Struct, frozen=True):
    """A field, property, bit, number, topic or word that can be looked up by name."""

    kind: str
    name: str  # RocketMQ's own
    where: str
    meaning: str
    also: tuple[str, ...] = ()  # other names: of the column, the layout, the getter
    describe: Describe | None = None
    eras: Eras = ()
    next: tuple[str, ...] = ()
    see: tuple[str, ...] = ()


# Defaults of MessageStoreConfig, which nearly all stores use.
_DEFAULT_SEGMENT = 1 << 30
_DEFAULT_QUEUE_FILE = 300_000 * consumequeue.QueueUnit.sizeof()

# MessageStoreConfig#messageDelayLevel.
_DELAY_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"

# September 2001, in ms. Hashes have 32 bits, so no legal tags code lies between them and this.
_FIRST_DELIVERY_TIME = 10**12

# Tags of the broker's own messages: transaction op messages and POP.
_BROKER_TAGS = {java_string_hash(tag): tag for tag in ("d", "ck", "ack", "bAck")}

MAGICS = {
    message.MAGIC_V1: "a record (V1)",
    message.MAGIC_V2: "a record whose topic length takes two bytes (V2, 5.1.0 and later)",
    message.MAGIC_BLANK: "a blank record: the segment ends here",
}


def number(text: str, bits: int = 64) -> int:
    """Return a number, decimal or 0x hex, as a signed Java integer of `bits`; it may be written unsigned.

    :raises ValueError: not a number, or it does not fit into `bits`.
    """
    try:
        value = int(text.strip().rstrip(".,;:)]"), 0)
    except ValueError:
        raise ValueError(f"'{escape(text[:80])}' is not a number; write 28 or 0x1c") from None
    if not -(1 << bits - 1) <= value < 1 << bits:
        raise ValueError(f"{escape(text[:80])} does not fit into {bits} bits")
    return value - (1 << bits) if value >> bits - 1 == 1 else value


def sys_flag(text: str) -> str:
    """Name the bits of SYSFLAG that are set."""
    value = number(text, 32)
    return f"{value & 0xFFFFFFFF:#x} is {sys_flag_words(value)}"


def magic(text: str) -> str:
    """Say what four bytes at the offset of a magic are, or look like."""
    value = number(text, 32)
    raw = value.to_bytes(4, "big", signed=True)
    shown = f"{value & 0xFFFFFFFF:#010x} ({value})"
    if value in MAGICS:
        return f"{shown} is {MAGICS[value]}"
    if value == 0:
        return "zeros: the unused end of a segment, or a page that was never written"
    if all(0x20 <= byte < 0x7F for byte in raw):
        return f"{shown} is text, '{raw.decode()}': the bytes of a body or of properties, read as a head, or other text"
    for known in MAGICS:
        if ((value ^ known) & 0xFFFFFFFF).bit_count() == 1:
            return f"{shown} is one flipped bit away from {known & 0xFFFFFFFF:#010x}, {MAGICS[known]}"
    return f"{shown} is not a magic; the bytes are {raw.hex(' ')}"


def entry_magic(text: str) -> str:
    """Name the kind of a DLedger entry."""
    value = number(text, 32)
    names = dict(zip(dledger.ENTRY_MAGICS, ("an entry", "a no-op", "a configuration change"), strict=True))
    names[dledger.ENTRY_MAGIC_BLANK] = "a blank: the file ends here"
    return f"{value} is {names.get(value, 'not a magic of a DLedger entry')}"


def time(text: str) -> str:
    """Return the time that a number of milliseconds stands for."""
    value = number(text)
    if value == 0:
        return "0: never set"
    return format_millis(value) or f"{value} lies outside the years 1 to 9999: not a time in ms"


def crc(text: str) -> str:
    """Say whether a number can be a stored CRC."""
    value = number(text, 32)
    if value < 0:
        return f"{value} has its top bit set, which a stored CRC never has: damaged"
    return f"{value} ({value:#010x})" + ("; also the CRC of an empty body" if value == 0 else "")


def total_size(text: str) -> str:
    """Say whether a record can have this size."""
    value = number(text, 32)
    if value <= message.FIXED_SIZE:
        return f"{value} is too small: head and lengths take {message.FIXED_SIZE} bytes, and a topic at least one"
    return f"{count(value, 'byte')} ({value:#x})"


def physical_offset(text: str) -> str:
    """Return segment and position of a physical offset in a log of default segments."""
    value = number(text)
    if value < 0:
        return f"{value} is negative: unset, or damaged"
    base, position = value - value % _DEFAULT_SEGMENT, value % _DEFAULT_SEGMENT
    place = f"; with segments of 1 GiB: {base:020} at {describe_offset(position)}" if base else ""
    return describe_offset(value) + place


def queue_offset(text: str) -> str:
    """Return file and position of a queue offset's unit in a queue of default files."""
    value = number(text)
    if value < 0:
        return f"{value} is negative: unset, or damaged"
    position = value * consumequeue.QueueUnit.sizeof()
    base = position - position % _DEFAULT_QUEUE_FILE
    return f"with queue files of the default size its unit is in {base:020} at {group_digits(position - base)}"


def queue_position(text: str) -> str:
    """Return the unit that begins at a byte of a queue: log lines give queue positions in bytes."""
    value = number(text)
    unit, rest = divmod(value, consumequeue.QueueUnit.sizeof())
    return f"{count(value, 'byte')}: unit {group_digits(unit)}" + (f" and {rest} bytes" if rest else "")


def unit_size(text: str) -> str:
    """Name the kind of queue unit that has this size."""
    value = number(text, 32)
    if value == consumequeue.PRE_BLANK_SIZE:
        return "filler before a queue's first message (pre-blank), not a message"
    if value <= 0:
        return f"{value}: an unused unit; the queue ends before it"
    return f"the record has {count(value, 'byte')}"


def tags_code(text: str) -> str:
    """Say which of the three kinds of tags code a value is."""
    value = number(text)
    if value <= consumequeue.EXT_ADDRESS_MAX:
        return f"an address in the ext files: position {group_digits(value - consumequeue.EXT_ADDRESS_BASE)}"
    if value >= _FIRST_DELIVERY_TIME:
        return f"a delivery time, as in {SCHEDULE_TOPIC}: {time(text)}"
    if not -(1 << 31) <= value < 1 << 31:
        return f"{value} is neither a hash, nor a time, nor an ext address: damaged"
    if value == 0:
        return "0: no tags"
    known = f"; that of the broker's own tag '{_BROKER_TAGS[value]}'" if value in _BROKER_TAGS else ""
    return f"hashCode() of the TAGS{known}"


def tags(text: str) -> str:
    """Return the tags code of a tag."""
    return f"tags code {java_string_hash(text)}"


def key_hash(text: str) -> str:
    """Return the slot of a key hash in an index file of default size."""
    value = number(text, 32)
    if value < 0:
        return f"{value} is negative: damaged"
    return f"by default in slot {group_digits(value % index.DEFAULT_SLOTS)} of {group_digits(index.DEFAULT_SLOTS)}"


def seconds(text: str) -> str:
    """Return how long after the begin time of its index file an entry was made."""
    value = number(text, 32)
    if value < 0:
        return f"{value} is negative: damaged, a key search ends here"
    return f"{count(value, 'second')} after the begin time of the file"


def delay_level(text: str) -> str:
    """Return queue and delay of a level in the default table."""
    value = number(text, 32)
    if value <= 0:
        return "no delay"
    delays = _DELAY_LEVELS.split()
    level = min(value, len(delays))
    more = f" (the highest level of the default table; {value} is treated like it)" if value > level else ""
    return f"queue {level - 1} of {SCHEDULE_TOPIC}, by default {delays[level - 1]}{more}"


def identity(text: str) -> str:
    """Name the command that decodes ids."""
    return f"run: rmqinspect id {escape(text[:80])}"


DESCRIBE: Mapping[str, Describe] = {
    describe.__name__: describe
    for describe in (
        crc,
        delay_level,
        entry_magic,
        identity,
        key_hash,
        magic,
        physical_offset,
        queue_offset,
        queue_position,
        seconds,
        sys_flag,
        tags,
        tags_code,
        time,
        total_size,
        unit_size,
    )
}
"""The functions by the names that the .toml files use."""


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
        describe=DESCRIBE[row["describe"]] if "describe" in row else None,
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
        for value, words in MAGICS.items()
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


class Bits(Struct, frozen=True):
    """A number whose bits have names."""

    name: str
    where: str
    meaning: str
    next: str  # a command
    bits: tuple[tuple[int, str, str], ...]  # mask, name, meaning
    also: tuple[str, ...] = ()

    def describe(self, text: str) -> str:
        """Name the bits that are set."""
        value = number(text, 32)
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
    describe = DESCRIBE[row["describe"]] if "describe" in row else None
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
