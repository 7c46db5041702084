"""The fields of the layouts. The texts are in fields.toml; offsets and sizes come from the layouts in `schemas`."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

from rmqinspect.explain.entry import Named
from rmqinspect.explain.values import DESCRIBE
from rmqinspect.prose import load_prose
from rmqinspect.schemas import checkpoint, consumequeue, dledger, index, message
from rmqinspect.schemas.message import HEADS
from rmqinspect.text import count

_SHOW = "rmqinspect show STORE --at OFFSET"
_QUEUE_UNITS = "rmqinspect decode STORE --table queue_units"
_INDEX_FILES = "rmqinspect decode STORE --table index_files"
_INDEX_ENTRIES = "rmqinspect decode STORE --table index_entries"
_CHECKPOINT = "rmqinspect decode STORE --table checkpoint"


def _load() -> Mapping[str, Mapping[str, Named]]:
    """Return the fields of each section by their names in the layout."""
    document = load_prose("rmqinspect.explain", "fields.toml")
    return {section: {name: _field(row) for name, row in rows.items()} for section, rows in document.items()}


def _field(row: Mapping[str, Any]) -> Named:
    describe = DESCRIBE[row["describe"]] if "describe" in row else None
    return Named(kind="field", where="", **dict(row) | {"describe": describe})


_FIELDS = _load()

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
