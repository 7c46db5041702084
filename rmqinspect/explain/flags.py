"""Bits, and the words that rmqinspect itself uses for what it finds.

Source: MessageSysFlag, TopicSysFlag, PermName, RunningFlags, TimerMessageStore.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rmqinspect.explain import values
from rmqinspect.explain.entry import Named
from rmqinspect.schemas.message import SysFlag

_SHOW = "rmqinspect show STORE --at OFFSET"
_MESSAGES = "rmqinspect decode STORE --columns physical_offset,topic,status"
_GAPS = "rmqinspect decode STORE --table gaps"
_TOPICS = "rmqinspect decode STORE --table topics"
_INFO = "rmqinspect info STORE"

# The names and values are those of SysFlag; what each means to a reader stands here.
SYS_FLAG_BITS: Mapping[SysFlag, str] = {
    SysFlag.COMPRESSED: "the body is compressed: zlib, unless the compression bits say otherwise",
    SysFlag.MULTI_TAGS: "TAGS holds several tags; makes no difference to the tags code",
    SysFlag.TRANSACTION_PREPARED: "with 0x8 clear: a prepared message of the scheme up to 4.2.0, without queue unit; "
    "with 0x8 set: a rollback. From 4.3.0 on half messages have neither",
    SysFlag.TRANSACTION_COMMIT: "with 0x4 clear: a committed message, PREPAREDTRANSACTIONOFFSET leads to its half "
    "message; with 0x4 set: a rollback, without queue unit",
    SysFlag.BORNHOST_V6: "the producer's address has 16 bytes, so all behind it lies 12 bytes later (4.6.0); older "
    "brokers ignore the bit and misread the record",
    SysFlag.STOREHOSTADDRESS_V6: "the broker's address has 16 bytes, so all behind it lies 12 bytes later (4.6.0); "
    "older brokers ignore the bit and misread the record",
    SysFlag.NEED_UNWRAP: "the client has to unwrap an inner batch (5.0.0)",
    SysFlag.INNER_BATCH: "the body is an inner batch: several messages in one record, which has one unit in a batch "
    "consume queue (5.0.0)",
    SysFlag.COMPRESSION_BIT_0: "lowest of three bits: 1 lz4, 2 zstd, 3 zlib, 0 not given, which means zlib; 4 to 7 "
    "make the Java client throw (4.9.4). Without COMPRESSED they mean nothing",
    SysFlag.COMPRESSION_BIT_1: "middle one of the three compression bits, see COMPRESSION_BIT_0",
    SysFlag.COMPRESSION_BIT_2: "highest of the three compression bits, see COMPRESSION_BIT_0",
}


@dataclass(frozen=True, slots=True)
class Bits:
    """A number whose bits have names of their own."""

    name: str
    also: tuple[str, ...]
    where: str
    meaning: str
    bits: Mapping[int, tuple[str, str]]  # mask -> (name, meaning)
    command: str

    def words(self, text: str) -> str:
        """Say which bits are set."""
        value = values.number(text, 32)
        names = [name for mask, (name, _) in self.bits.items() if value & mask]
        if rest := value & ~sum(self.bits) & 0xFFFFFFFF:
            names.append(f"bits {rest:#x} without a meaning")
        return f"{value} is {', '.join(names) or 'none'}"


RUNNING_FLAGS = Bits(
    "flagBits",
    ("runningFlags",),
    "RunningFlags, a number in log lines",
    "why a running broker takes or gives no messages",
    {
        1: ("NOT_READABLE", "reading was switched off"),
        2: ("NOT_WRITEABLE", "an I/O error in a flush (5.4.0 and later with enableRunningFlagsInFlush)"),
        4: ("WRITE_LOGICS_QUEUE_ERROR", "a queue unit could not be written in 30 tries"),
        8: ("WRITE_INDEX_FILE_ERROR", "an index file could not be made"),
        16: ("DISK_FULL", "the disk of the commit log is full"),
        32: ("FENCED", "controller mode: the broker has no role (5.x)"),
        64: ("LOGIC_DISK_FULL", "the disk of the consume queues is full (5.x)"),
    },
    _INFO,
)

_BITS = (
    RUNNING_FLAGS,
    Bits(
        "perm",
        (),
        "topic configuration",
        "what a topic allows; 6 is the usual value",
        {
            4: ("PERM_READ", "consumers may read"),
            2: ("PERM_WRITE", "producers may write"),
            1: ("PERM_INHERIT", "new topics take their configuration from this one"),
            8: ("PERM_PRIORITY", "priority"),
        },
        _TOPICS,
    ),
    Bits(
        "topicSysFlag",
        (),
        "topic configuration",
        "how a topic is used over several units of a system",
        {1: ("FLAG_UNIT", "unit"), 2: ("FLAG_UNIT_SUB", "unit-sub")},
        _TOPICS,
    ),
    Bits(
        "timerMagic",
        ("timerlog magic",),
        "timer log unit, at 12, 4 bytes",
        "what a unit of the timer log is for",
        {
            1: ("MAGIC_DEFAULT", "a message"),
            2: ("MAGIC_ROLL", "due later than the wheel reaches: will be put back when its slot comes"),
            4: ("MAGIC_DELETE", "deletes another timer message of the same slot; is not delivered"),
        },
        "rmqinspect decode STORE -t rmq_sys_wheel_timer",
    ),
)


def bits() -> Iterator[Named]:
    """Yield the numbers that consist of bits, and each of their bits."""
    for flag, meaning in SYS_FLAG_BITS.items():
        yield Named("bit", str(flag.name), f"SYSFLAG, {flag:#x}", meaning, see=("SYSFLAG",), next=(_SHOW,))
    for table in _BITS:
        names = tuple(name for name, _ in table.bits.values())
        yield Named(
            "field",
            table.name,
            table.where,
            table.meaning,
            also=table.also,
            words=table.words,
            see=names,
            next=(table.command,),
        )
        for mask, (name, meaning) in table.bits.items():
            where = f"{table.name}, {mask:#x}"
            yield Named("bit", name, where, meaning, see=(table.name,), next=(table.command,))


def _word(name: str, where: str, meaning: str, command: str, see: tuple[str, ...] = ()) -> Named:
    return Named("word", name, where, meaning, see=see, next=(command,))


_VERDICT, _STATUS, _KIND = "verdict of verify", "column status of decode", "column kind of the table gaps"

WORDS: tuple[Named, ...] = (
    _word("WHOLE", _VERDICT, "nothing at or above a warning, in what the level reads", "rmqinspect verify STORE"),
    _word(
        "DAMAGED",
        _VERDICT,
        "something is lost, or a reader of it gets wrong answers; each error says where",
        "rmqinspect verify STORE --report evidence.json",
    ),
    _word(
        "INCOMPLETE",
        _VERDICT,
        "something could not be read, or the run was interrupted: it was not judged",
        "rmqinspect verify STORE",
        ("ST-IO",),
    ),
    _word("ok", _STATUS, "nothing is wrong with the record", _MESSAGES),
    _word("body_crc", _STATUS, "the body's CRC does not match", _SHOW, ("CL-CRC-BODY",)),
    _word("record_crc", _STATUS, "the property __CRC32# does not match", _SHOW, ("CL-CRC-RECORD",)),
    _word("body_undecodable", _STATUS, "the body says that it is compressed and cannot be decompressed", _SHOW),
    _word("body_too_large", _STATUS, "the body would be larger than --max-body when decompressed", _SHOW),
    _word("offset_mismatch", _STATUS, "the record names another physical offset than its place", _SHOW, ("CL-OFFSET",)),
    _word("length_mismatch", _STATUS, "the record's lengths do not add up", _SHOW, ("CL-LENGTH",)),
    _word("invalid_utf8", _STATUS, "topic or properties are no UTF-8", _SHOW, ("CL-FIELD",)),
    _word("bad_properties", _STATUS, "an item of the properties has no name, or no separator", _SHOW, ("CL-FIELD",)),
    _word("bad_timestamp", _STATUS, "a time outside of the years 1 to 9999", _SHOW),
    _word("carved", _STATUS, "a whole record behind a gap: found by search, not by following the chain", _GAPS),
    _word(
        "stale",
        _STATUS,
        "a whole record behind the log's end, from an earlier life of the file",
        _SHOW,
        ("CL-STALE-TAIL",),
    ),
    _word("filler", _KIND, "what a blank record covers at the end of a full segment: no damage", _GAPS),
    _word(
        "zeros",
        _KIND,
        "zeros: the unused end of the last segment, or lost pages where records follow",
        _GAPS,
        ("CL-ZERO-INSIDE",),
    ),
    _word("unknown", _KIND, "bytes that nothing explains", _GAPS, ("CL-MAGIC",)),
    _word("missing", _KIND, "no file covers this range of the log", _GAPS, ("CL-HOLE",)),
)
