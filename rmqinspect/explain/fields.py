"""The fields of the layouts, message properties, numbers with a meaning, and topics.

A field's place and size come from its layout in `schemas`. "since" is the first release that knows it.
Source: core 2, 4, 5, 6; aux 4, 9; MessageConst.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

from rmqinspect.explain import values
from rmqinspect.explain.entry import Named, Words
from rmqinspect.schemas import checkpoint, consumequeue, dledger, index, message
from rmqinspect.schemas.message import HEADS
from rmqinspect.topics import SCHEDULE_TOPIC

_SHOW = "rmqinspect show STORE --at OFFSET"
_QUEUE_UNITS = "rmqinspect decode STORE --table queue_units"
_INDEX_FILES = "rmqinspect decode STORE --table index_files"
_INDEX_ENTRIES = "rmqinspect decode STORE --table index_entries"
_CHECKPOINT = "rmqinspect decode STORE --table checkpoint"


def _field(
    name: str, meaning: str, words: Words | None = None, also: tuple[str, ...] = (), see: tuple[str, ...] = ()
) -> Named:
    return Named("field", name, "", meaning, also=also, words=words, see=see)


RECORD: Mapping[str, Named] = {
    "total_size": _field(
        "TOTALSIZE",
        "the whole record, this field included; the next record begins behind it",
        values.total_size,
        ("storeSize", "msgSize", "size"),
        ("CL-LENGTH",),
    ),
    "magic": _field(
        "MAGICCODE",
        "says that a record begins here, and in which of two forms; a broker that finds none here ends the log",
        values.magic,
        see=("CL-MAGIC", "0xdaa320a7"),
    ),
    "body_crc": _field(
        "BODYCRC",
        "CRC-32 of the body as stored (compressed, if it is), without its top bit; 0 and not checked where there is no "
        "body. Head, topic and properties have no checksum, unless the property __CRC32# is there",
        values.crc,
        see=("CL-CRC-BODY", "__CRC32#"),
    ),
    "queue_id": _field("QUEUEID", "number of the queue in the stored topic; of a delayed message its level minus 1"),
    "flag": _field("FLAG", "the user's; a broker does not interpret it"),
    "queue_offset": _field(
        "QUEUEOFFSET",
        "number of the message in its queue, given under a lock; 0 in prepared and rollback records, which have no "
        "queue unit. A message's place in the queue is its unit's place, not this number, should they differ",
        values.queue_offset,
        ("cqOffset", "logicOffset"),
        ("CQ-SHIFT", "CL-QUEUE-OFFSET"),
    ),
    "physical_offset": _field(
        "PHYSICALOFFSET",
        "where the record's first byte lies in the log: base of the segment (its name) and position. Brokers do not "
        "compare it with the place, but queue units and index entries are made from it",
        values.physical_offset,
        ("commitLogOffset", "phyOffset", "offsetPy"),
        ("CL-OFFSET",),
    ),
    "sys_flag": _field(
        "SYSFLAG",
        "bits about the body, the transaction and the form of the two hosts",
        values.sys_flag,
        see=("COMPRESSED", "MULTI_TAGS", "TRANSACTION_PREPARED", "BORNHOST_V6", "INNER_BATCH", "COMPRESSION_BIT_0"),
    ),
    "born_timestamp": _field("BORNTIMESTAMP", "ms on the producer's clock, when it sent the message", values.time),
    "born_host": _field("BORNHOST", "the producer's address (4 bytes, or 16 with BORNHOST_V6) and port (4 bytes)"),
    "store_timestamp": _field(
        "STORETIMESTAMP",
        "ms on the broker's clock, taken under the append lock: does not run backwards unless the clock does",
        values.time,
        see=("CL-TIME",),
    ),
    "store_host": _field(
        "STOREHOST",
        "the address and port of the broker that took the message (16 bytes of address with STOREHOSTADDRESS_V6); on a "
        "slave still the master's. With the physical offset it makes the offset msg id",
    ),
    "reconsume_times": _field("RECONSUMETIMES", "how often consumers gave the message back", also=("reconsumeTime",)),
    "prepared_transaction_offset": _field(
        "PREPAREDTRANSACTIONOFFSET",
        "of a commit record the physical offset of its half message, else 0; a committed message with a delay has 0 in "
        "the copy that was delivered",
        values.physical_offset,
        see=("TRANSACTION_COMMIT",),
    ),
    "body_size": _field("BODYLEN", "length of the body as stored; 0 or less counts as none", also=("bodyLength",)),
    "body": _field("BODY", "as the client sent it; compressed where COMPRESSED is set", see=("COMPRESSED",)),
    "topic_size": _field(
        "TOPICLEN", "length of the topic in bytes; one byte in V1 records, two in V2", also=("topicLength",)
    ),
    "topic": _field(
        "TOPIC",
        "where the message is stored; delayed, timer, half and retried messages lie in the broker's own topics and "
        "name their real one in a property",
        see=("REAL_TOPIC", "RETRY_TOPIC"),
    ),
    "properties_size": _field(
        "PROPERTIESLEN", "length of the properties in bytes, at most 32 767", also=("propertiesLength",)
    ),
    "properties": _field(
        "PROPERTIES",
        "name 01 value 02 name 01 value 02 …, in UTF-8; of a name that comes twice brokers take the last value. Ends "
        "in 02 when written by 4.9.0 and earlier or 5.2.0 and later, in between not",
        also=("propertiesString",),
        see=("KEYS", "TAGS", "UNIQ_KEY"),
    ),
}

BLANK: Mapping[str, Named] = {
    "total_size": _field(
        "TOTALSIZE",
        "all bytes that are left in the file, these 8 included; 5.3.2 and later refuse a larger number, earlier ones "
        "do not look at it",
        see=("CL-BLANK-SIZE",),
    ),
    "magic": _field("MAGICCODE", "0xcbd43194; what follows it has no meaning", values.magic),
}

QUEUE_UNIT: Mapping[str, Named] = {
    "physical_offset": _field(
        "offset",
        "where the record begins in the log",
        values.physical_offset,
        ("physicalOffset", "offsetPy", "commitLogOffset"),
        ("CQ-DANGLING", "CQ-BEYOND"),
    ),
    "size": _field(
        "size",
        "the record's total size; 0 in a unit that is not used, 2147483647 in filler before a queue's first message",
        values.unit_size,
        ("sizePy", "unitSize"),
        ("0x7fffffff", "CQ-MISMATCH", "CQ-HOLE"),
    ),
    "tags_code": _field(
        "tagsCode",
        f"hash of the TAGS, by which the broker filters; in {SCHEDULE_TOPIC} the time of delivery in ms; with ext "
        "files an address in them",
        values.tags_code,
        see=("CQ-TAG", "EX-ADDRESS", "TAGS"),
    ),
}

BATCH_UNIT: Mapping[str, Named] = {
    "physical_offset": _field(
        "offset",
        "where the record begins in the log; -1 ends a full file of a compaction queue",
        values.physical_offset,
        ("physicalOffset", "offsetPy"),
    ),
    "size": _field("size", "the record's total size", also=("sizePy",)),
    "tags_code": _field("tagsCode", "hash of the TAGS; 0 for inner batches", values.tags_code),
    "store_timestamp": _field("storeTimestamp", "the record's store time, ms", values.time, see=("BQ-ORDER",)),
    "queue_offset": _field(
        "msgBaseOffset",
        "queue offset of the first message",
        also=("queueOffset", "baseOffset"),
        see=("BQ-COUNT", "INNER_BASE"),
    ),
    "message_count": _field(
        "batchSize",
        "how many messages the record holds",
        also=("messageCount", "batchNum"),
        see=("BQ-COUNT", "INNER_NUM"),
    ),
    "compacted_offset": _field("compactedOffset", "-1: none"),
    "reserved": _field("reserved", "0"),
}

EXT_UNIT: Mapping[str, Named] = {
    "size": _field("size", "the whole ext unit: 20 bytes and the bitmap; -1 ends a file", see=("EX-SIZE",)),
    "tags_code": _field(
        "tagsCode", "what the queue unit would hold: hash of the TAGS, or time of delivery", values.tags_code
    ),
    "store_timestamp": _field("msgStoreTime", "the record's store time, ms", values.time, ("storeTimestamp",)),
    "bitmap_size": _field("bitMapSize", "length of the filter bitmap behind it, 0 or (by default) 14 bytes"),
}

INDEX_HEADER: Mapping[str, Named] = {
    "begin_timestamp": _field(
        "beginTimestamp",
        "store time of the first entry, ms; entries count seconds from it",
        values.time,
        see=("IX-HEADER",),
    ),
    "end_timestamp": _field(
        "endTimestamp",
        "store time of the last entry, ms. After an unclean stop a start deletes the file when this is newer than the "
        "checkpoint's indexMsgTimestamp",
        values.time,
        see=("IX-HEADER", "indexMsgTimestamp"),
    ),
    "begin_physical_offset": _field(
        "beginPhyOffset", "physical offset of the first entry's record", values.physical_offset, ("beginPhyoffset",)
    ),
    "end_physical_offset": _field(
        "endPhyOffset",
        "physical offset of the last entry's record; records before it are not indexed any more",
        values.physical_offset,
        ("endPhyoffset",),
        ("IX-BEYOND",),
    ),
    "hash_slot_count": _field(
        "hashSlotCount", "number of slots in use; up to 4.7.0 it counts entries instead", see=("IX-HEADER",)
    ),
    "index_count": _field(
        "indexCount",
        "number of the next free entry; the first entry is 1, so entries are 1 to indexCount minus 1",
        see=("IX-HEADER",),
    ),
}

INDEX_SLOT: Mapping[str, Named] = {
    "entry": _field("slotValue", "number of the newest entry of this slot, 0 for none", see=("IX-CHAIN",)),
}

INDEX_ENTRY: Mapping[str, Named] = {
    "key_hash": _field(
        "keyHash",
        "hash of topic#key, never negative; the slot is this modulo the number of slots",
        values.key_hash,
        see=("IX-KEY",),
    ),
    "physical_offset": _field(
        "phyOffset",
        "where the record begins in the log",
        values.physical_offset,
        ("physicalOffset", "phyOffsetRead"),
        ("IX-DANGLING", "IX-BEYOND"),
    ),
    "time_diff": _field(
        "timeDiff",
        "whole seconds from the file's beginTimestamp to the record's store time; wrong in the first entry "
        "of a file that follows a full one",
        values.seconds,
        see=("IX-TIME",),
    ),
    "previous": _field(
        "prevIndex",
        "number of the next older entry of the same slot, 0 at the end of the chain",
        also=("preIndexNo", "prevIndexRead", "nextIndexOffset"),
        see=("IX-CHAIN",),
    ),
}

CHECKPOINT: Mapping[str, Named] = {
    "physic_msg_timestamp": replace(
        _field(
            "physicMsgTimestamp",
            "store time of the newest record known to be flushed to the log, ms. The lower of this and "
            "logicsMsgTimestamp, minus 3 s, chooses where an unclean start begins to read",
            values.time,
            see=("ST-CHECKPOINT",),
        ),
        eras=(("4.0.0 to 4.5.2", "never set on a slave: an unclean start reads the whole log"),),
    ),
    "logics_msg_timestamp": replace(
        _field(
            "logicsMsgTimestamp",
            "store time of the newest record in the consume queues, ms",
            values.time,
            see=("ST-CHECKPOINT",),
        ),
        eras=(
            ("5.0.0 to 5.4.0", "can be ahead of the queues on disk, because it is saved every second"),
            ("5.5.0", "up to 60 s old even after a clean stop, 0 when the broker ran for less than a minute"),
        ),
    ),
    "index_msg_timestamp": _field(
        "indexMsgTimestamp",
        "end time of the newest index file that was full and flushed, ms; 0 until one was full. After an unclean stop "
        "all index files that end later are deleted",
        values.time,
        see=("endTimestamp", "ST-ABORT"),
    ),
    "master_flushed_offset": replace(
        _field("masterFlushedOffset", "flushed offset of the master", values.physical_offset),
        eras=(("5.0.0 to 5.5.0", "written"),),
    ),
    "confirm_phy_offset": replace(
        _field(
            "confirmPhyOffset",
            "up to where records are confirmed; without controller mode, after a recovery, the start (not the end) of "
            "the last valid record",
            values.physical_offset,
        ),
        eras=(("5.1.1 to 5.5.0", "written"),),
    ),
    "logics_physical_offset": replace(
        _field(
            "logicsPhysicalOffset",
            "start of the last record that was in a file queue before the last thorough flush of the queues began; 0: "
            "never written",
            values.physical_offset,
            see=("ST-CHECKPOINT",),
        ),
        eras=(("5.5.0", "written; after an unclean stop it decides which segment a start begins with"),),
    ),
}

ENTRY: Mapping[str, Named] = {
    "magic": _field("magic", "1 entry, 2 no-op, 3 configuration change; -1 ends the file", values.entry_magic),
    "size": _field("size", "this head and the body", see=("DL-POSITION",)),
    "index": _field("index", "number of the entry, from 0, without gaps", see=("DL-TERM",)),
    "term": _field("term", "number of the leader's term; never falls", see=("DL-TERM",)),
    "position": _field(
        "pos",
        "physical offset of this entry; its record begins 48 bytes later",
        values.physical_offset,
        ("position",),
        ("DL-POSITION",),
    ),
    "channel": _field("channel", "0"),
    "chain_crc": _field("chainCrc", "0: the library does not compute it"),
    "body_crc": _field("bodyCrc", "0: the library does not compute it; the record inside has its own"),
    "body_size": _field("bodySize", "length of the body, which is one whole record"),
}

ENTRY_INDEX_UNIT: Mapping[str, Named] = {
    "magic": _field("magic", "the same as in the entry", values.entry_magic),
    "position": _field("pos", "physical offset of the entry", values.physical_offset, ("position",), ("DL-INDEX",)),
    "size": _field("size", "the whole entry", see=("DL-INDEX",)),
    "index": _field("index", "number of the entry; its unit lies at 32 times this", see=("DL-INDEX",)),
    "term": _field("term", "term of the entry", see=("DL-INDEX",)),
}

# (what it is a field of, the layout, its fields, where to see values)
LAYOUTS: tuple[tuple[str, Any, Mapping[str, Named], str], ...] = (
    ("commit-log record", message.Message, RECORD, _SHOW),
    ("blank record", message.Blank, BLANK, _SHOW),
    ("consume queue unit", consumequeue.QueueUnit, QUEUE_UNIT, _QUEUE_UNITS),
    ("batch consume queue unit", consumequeue.BatchUnit, BATCH_UNIT, _QUEUE_UNITS),
    ("ext unit", consumequeue.ExtHead, EXT_UNIT, _QUEUE_UNITS),
    ("index header", index.IndexHeader, INDEX_HEADER, _INDEX_FILES),
    ("index slot", index.IndexSlot, INDEX_SLOT, _INDEX_ENTRIES),
    ("index entry", index.IndexEntry, INDEX_ENTRY, _INDEX_ENTRIES),
    ("checkpoint", checkpoint.Checkpoint, CHECKPOINT, _CHECKPOINT),
    ("DLedger entry", dledger.EntryHead, ENTRY, _SHOW),
    ("DLedger index unit", dledger.EntryIndexUnit, ENTRY_INDEX_UNIT, _SHOW),
)


def layout_fields() -> Iterator[Named]:
    """Yield every field of every layout, with its place."""
    for label, layout, table, command in LAYOUTS:
        for name, place in _places(layout):
            field = table[name]
            yield replace(field, where=f"{label}, {place}", also=(*field.also, name), next=(command,))


def _places(layout: Any) -> Iterator[tuple[str, str]]:
    """Yield (field, where it lies): position and size as far as they are fixed, then what it follows."""
    fixed = HEADS[False, False] if layout is message.Message else layout
    names = [field.name for field in fixed.subcons]
    at = 0
    for field in fixed.subcons:
        size = field.sizeof()
        moves = fixed is not layout and "born_host" in names[: names.index(field.name)]
        place = f"at {at}{' when both hosts are IPv4' if moves else ''}"
        yield field.name, f"{place}, {size} byte{'s' if size > 1 else ''}"
        at += size
    for before, field in pairwise(layout.subcons[len(names) - 1 :]):
        yield field.name, f"behind {before.name}"
