"""`python -m docs.build.kaitai` writes schemas/*.ksy: the layouts of schemas/ in the language of Kaitai Struct.

A .ksy file has a type for each layout, made by walking its construct object, and above them the shape of a whole file,
which no construct object has: units to the end, or entries of which each tells by its first bytes what it is. So a hex
editor that knows Kaitai shows a file, and its compiler makes readers in a dozen languages.

A construct without a counterpart in Kaitai is a TypeError: what cannot be said is not written.
tests/codec/test_kaitai.py compiles all of them and compares what they read with what rmqinspect reads.
"""

from collections.abc import Iterator, Mapping
from enum import IntFlag
from pathlib import Path
from typing import Any, NamedTuple

import yaml  # type: ignore[import-untyped]
from construct import Bytes, FormatField, IfThenElse, Struct

from docs.build.layouts import NUMBERS, condition, expression, fields_of, type_name
from rmqinspect.schemas import checkpoint, consumequeue, dledger, index, message, messageid, rocksdb, timer
from rmqinspect.schemas.places import place_of

FOLDER = Path(__file__).parents[2] / "schemas"

_HEAD = "# Written by `python -m docs.build.kaitai` from the layouts in this folder. Do not edit.\n"


class Format(NamedTuple):
    """One .ksy file."""

    name: str
    title: str
    files: str  # which files of a store are so
    says: str  # what the layouts do not say
    layouts: tuple[Any, ...]  # in the order of the page; each is a type of its own
    shape: Mapping[str, Any]  # of the whole file, in Kaitai's words; empty: bytes that stand in other places
    source: str


def _units(layout: Any, name: str = "units") -> dict[str, Any]:
    """Return the shape of a file that holds nothing but units of one size; a unit that is cut is not read."""
    unit = {"id": name, "type": type_name(layout), "repeat": "expr", "repeat-expr": f"_io.size / {layout.sizeof()}"}
    return {"seq": [unit]}


def _entries(ahead: Mapping[str, tuple[int, str]], least: int, kinds: Mapping[str, tuple[Any, str]]) -> dict[str, Any]:
    """Return the shape of a file of entries of several kinds, up to the first that is not of the first kind.

    `ahead`: the numbers by which the kinds are told apart, with position and type, all in the first `least` bytes.
    `kinds`: the layout of each, and the condition by which it is there.
    """
    instances: dict[str, Any] = {
        name: {"pos": f"_io.pos + {position}" if position else "_io.pos", "type": number}
        for name, (position, number) in ahead.items()
    }
    sequence = []
    for kind, (layout, met) in kinds.items():
        instances[f"is_{kind}"] = {"value": met}
        name = layout if isinstance(layout, str) else type_name(layout)
        sequence.append({"id": kind, "type": name, "if": f"is_{kind}"})
    last = "The last is the blank that ends the file, or empty: nothing was written there yet, or nothing readable."
    entries = {
        "id": "entries",
        "type": "entry",
        "if": f"_io.size >= {least}",
        "repeat": "until",
        "repeat-until": f"not _.is_{next(iter(kinds))} or _io.size - _io.pos < {least}",
        "doc": last,
    }
    return {"seq": [entries], "types": {"entry": {"seq": sequence, "instances": instances}}}


# What no construct has: the head of an entry, and the record that it wraps.
_LEDGER_ENTRY = "ledger_entry"
_LEDGER_TYPE = {
    "seq": [
        {"id": "head", "type": "entry_head"},
        {
            "id": "body",
            "size": "head.body_size",
            "type": {"switch-on": "head.magic", "cases": {dledger.ENTRY_MAGICS[0]: "message"}},
            "doc": "Of an entry of another kind: bytes.",
        },
    ]
}

FORMATS = (
    Format(
        "commitlog",
        "RocketMQ commit log",
        "`commitlog/*`",
        "Records one after the other, each of the length that it says. The length of the topic has one byte in records "
        "of the first version, and two in those of the second (5.1.0): `magic` tells which. A host has 4 or "
        "16 bytes of address, told by two bits of `sys_flag`. A blank record fills what is left of a file; a file that "
        "is not full ends in zeros.",
        (message.Message, message.HostV4, message.HostV6, message.Blank, message.BatchItem),
        _entries(
            {"magic_ahead": (place_of(message.Blank, "magic"), "s4")},
            message.Blank.sizeof(),
            {
                "record": (message.Message, " or ".join(f"magic_ahead == {magic}" for magic in message.RECORD_MAGICS)),
                "blank": (message.Blank, f"magic_ahead == {message.MAGIC_BLANK}"),
            },
        ),
        "CommitLog.DefaultAppendMessageCallback#doAppend, MessageExtEncoder, CommitLog#checkMessageAndReturnSize",
    ),
    Format(
        "consumequeue",
        "RocketMQ consume queue",
        "`consumequeue/TOPIC/QUEUE/*`",
        "The n-th unit of a queue is its message n: a file's name is the position of its first byte in the queue.",
        (consumequeue.QueueUnit,),
        _units(consumequeue.QueueUnit),
        "ConsumeQueue",
    ),
    Format(
        "consumequeue_ext",
        "RocketMQ consume queue, ext units",
        "`consumequeue_ext/TOPIC/QUEUE/*`",
        "Units of different length. A size of -1 ends the file, 0 is not written yet.",
        (consumequeue.ExtUnit,),
        _entries({"size_ahead": (0, "s2")}, 2, {"unit": (consumequeue.ExtUnit, "size_ahead > 0")}),
        "ConsumeQueueExt",
    ),
    Format(
        "batchconsumequeue",
        "RocketMQ batch consume queue",
        "`batchconsumequeue/TOPIC/QUEUE/*`, and the queues of compaction topics",
        "One unit for each record, which may hold several messages.",
        (consumequeue.BatchUnit,),
        _units(consumequeue.BatchUnit),
        "BatchConsumeQueue",
    ),
    Format(
        "index",
        "RocketMQ key index",
        "`index/*`",
        "A header, hash slots, entries. How many slots and entries there are is not written in the file: they are "
        f"settings, by default {index.DEFAULT_SLOTS:,} slots (maxHashSlotNum) and {index.DEFAULT_ENTRIES:,} entries "
        "(maxIndexNum). Entry 0 is never used.",
        (index.IndexHeader, index.IndexSlot, index.IndexEntry),
        {
            "params": [
                {"id": "num_slots", "type": "u4", "doc": "maxHashSlotNum of the broker"},
                {"id": "num_entries", "type": "u4", "doc": "maxIndexNum of the broker"},
            ],
            "seq": [
                {"id": "header", "type": "index_header"},
                {"id": "slots", "type": "index_slot", "repeat": "expr", "repeat-expr": "num_slots"},
                {"id": "entries", "type": "index_entry", "repeat": "expr", "repeat-expr": "num_entries"},
            ],
        },
        "IndexHeader, IndexFile",
    ),
    Format(
        "checkpoint",
        "RocketMQ checkpoint",
        "`checkpoint`",
        f"The first bytes of a page of {checkpoint.CHECKPOINT_SIZE:,}; the rest is zero. A field that a release does "
        "not know is zero, too.",
        (checkpoint.Checkpoint,),
        {"seq": [{"id": "fields", "type": "checkpoint"}]},
        "StoreCheckpoint",
    ),
    Format(
        "timerlog",
        "RocketMQ timer log",
        "`timerlog/*` (5.0.0)",
        "Units of one size; a blank fills what is left of a file.",
        (timer.TimerUnit, timer.TimerBlank),
        _entries(
            {"size_ahead": (0, "s4"), "magic_ahead": (place_of(timer.TimerBlank, "magic"), "s4")},
            timer.TimerBlank.sizeof(),
            {
                "unit": (timer.TimerUnit, f"size_ahead == {timer.UNIT_SIZE} and magic_ahead != {timer.BLANK_MAGIC}"),
                "blank": (timer.TimerBlank, f"magic_ahead == {timer.BLANK_MAGIC}"),
            },
        ),
        "TimerLog",
    ),
    Format(
        "timerwheel",
        "RocketMQ timer wheel",
        "`timerwheel` (5.0.0)",
        f"{timer.WHEEL_SLOTS:,} slots, one for each second of two weeks with the default of `timerPrecisionMs`. A slot "
        "of zeros is empty.",
        (timer.WheelSlot,),
        _units(timer.WheelSlot, "slots"),
        "Slot, TimerWheel",
    ),
    Format(
        "timercheck",
        "RocketMQ timer checkpoint",
        "`config/timercheck` (5.0.0)",
        "The first bytes of a page; the rest is zero.",
        (timer.TimerCheck,),
        {"seq": [{"id": "fields", "type": "timer_check"}]},
        "TimerCheckpoint",
    ),
    Format(
        "dledger",
        "DLedger log",
        "`dledger-NAME/data/*`",
        "Entries that each wrap one record of the commit log; the records' own physical offsets count the heads in "
        "front of them. The two integers of the blank stand the other way round than in the commit log.",
        (dledger.EntryHead, dledger.EntryBlank, message.Message, message.HostV4, message.HostV6),
        _entries(
            {"magic_ahead": (0, "s4")},
            dledger.EntryBlank.sizeof(),
            {
                "ledger": (_LEDGER_ENTRY, " or ".join(f"magic_ahead == {magic}" for magic in dledger.ENTRY_MAGICS)),
                "blank": (dledger.EntryBlank, f"magic_ahead == {dledger.ENTRY_MAGIC_BLANK}"),
            },
        ),
        "DLedgerEntryCoder, DLedgerMmapFileStore",
    ),
    Format(
        "dledger_index",
        "DLedger index",
        "`dledger-NAME/index/*`",
        "The unit of entry n lies at n times its size.",
        (dledger.EntryIndexUnit,),
        _units(dledger.EntryIndexUnit),
        "DLedgerMmapFileStore",
    ),
    Format(
        "message_id",
        "Message ids of RocketMQ",
        "the bytes behind the hex digits of an id",
        "Which kind an id is, its length and its first bytes tell: see `rmqinspect id`. The numbers in clients' ids "
        "are unsigned.",
        (
            *(messageid.OffsetIdV4, messageid.OffsetIdV6),
            *(messageid.ClientIdV4, messageid.ClientIdV6, messageid.GrpcClientId),
        ),
        {},
        "MessageDecoder#createMessageId, MessageClientIDSetter; MessageIdCodec of rocketmq-clients",
    ),
    Format(
        "rocksdb",
        "Keys and values in RocksDB",
        "`consumequeue_rocksdb` (5.2.0), `rocksdbstore` (5.4.0), `config/rdb` (5.3.2)",
        "A key is what its types say, with names between them: `key_head`, topic, `unit_key_tail`. The files "
        "themselves are those of RocksDB.",
        tuple(one for one in vars(rocksdb).values() if isinstance(one, Struct)),
        {},
        "RocksDBConsumeQueueTable, RocksDBConsumeQueueOffsetTable, TimerRocksDBRecord, TransRocksDBRecord, "
        "ConfigHelper",
    ),
)

_FLAGS: dict[str, type[IntFlag]] = {"sys_flag": message.SysFlag}
"""Fields whose bits have names, by the name of the field."""


def file_of(one: Format) -> str:
    """Return the text of a .ksy file."""
    about = f"{one.says.replace('`', '')}\n\nFiles: {one.files.replace('`', '')}. Source: {one.source}.\n"
    document: dict[str, Any] = {
        "meta": {"id": f"rocketmq_{one.name}", "title": one.title, "license": "Apache-2.0", "endian": "be"},
        "doc": about,
    }
    types = {type_name(layout): _type(layout) for layout in one.layouts}
    if dledger.EntryHead in one.layouts:
        types = {_LEDGER_ENTRY: _LEDGER_TYPE, **types}
    document |= {**one.shape, "types": {**one.shape.get("types", {}), **types}}
    text: str = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=110)
    return _HEAD + text


def _type(layout: Any) -> dict[str, Any]:
    """Return a layout as a type."""
    fields = fields_of(layout)
    instances = {
        flag.name.lower(): {"value": f"({field.name} & {flag.value}) != 0"}
        for field in fields
        for flag in _FLAGS.get(field.name, ())
        if flag.name
    }
    return {"seq": [dict(_attribute(*field)) for field in fields]} | ({"instances": instances} if instances else {})


def _attribute(name: str, part: Any, meaning: str, broker_name: str) -> Iterator[tuple[str, Any]]:
    yield "id", name
    if broker_name and broker_name != name:
        yield "-orig-id", broker_name
    match part:
        case IfThenElse():
            cases = {"true": type_of(part.thensubcon), "false": type_of(part.elsesubcon)}
            yield "type", {"switch-on": condition(part.condfunc), "cases": cases}
        case Bytes():
            yield "size", part.length if isinstance(part.length, int) else expression(part.length)
        case _:
            yield "type", type_of(part)
    if meaning:
        yield "doc", meaning


def type_of(part: Any) -> str:
    """Return the name of the type of an integer or a layout.

    :raises TypeError: it has none in Kaitai.
    """
    match part:
        case FormatField() if part.fmtstr[0] == ">" and part.fmtstr[1:] in NUMBERS:
            return NUMBERS[part.fmtstr[1:]]
        case Struct():
            return type_name(part)
    raise TypeError(f"no Kaitai type for {part!r}")


if __name__ == "__main__":
    for written in FORMATS:
        (FOLDER / f"{written.name}.ksy").write_text(file_of(written), encoding="utf-8")
