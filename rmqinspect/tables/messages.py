"""The table `messages`: one row per commit-log record, built window by window.

Which records of a run may pass the filters, by their bytes alone: columns are made of these only.
"""

import sys
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from ipaddress import ip_address

import numpy as np
import pyarrow as pa
from msgspec.structs import replace

from rmqinspect.codec.arrays import Bools, Ints
from rmqinspect.codec.byte_ranges import containing, take_ranges, take_values
from rmqinspect.commitlog.records import Records
from rmqinspect.commitlog.scan import RecordRun
from rmqinspect.loops.record_rows import NO_CRC, RIGHT_CRC
from rmqinspect.loops.text import write_ids
from rmqinspect.schemas import message
from rmqinspect.schemas.message import SysFlag
from rmqinspect.schemas.places import place_of, span_of
from rmqinspect.tables.filters import Selection
from rmqinspect.tables.queue_ranges import Needles
from rmqinspect.tables.record_columns import decompress_bodies, property_columns
from rmqinspect.tables.request import Request
from rmqinspect.tables.table import TIMESTAMP, batch_with, column, millis, name_column, pick, repeat

ADDRESS_V4, ADDRESS_V6 = (place_of(host, "port") for host in (message.HostV4, message.HostV6))


def candidates(run: RecordRun, request: Request) -> RecordRun:
    """Return the records of a run that may pass all filters, and one of each topic that a filter has yet to see.

    With the damaged ones, if the request says so.
    """
    records = run.records
    passed, shown = np.ones(len(records), np.bool_), np.zeros(len(records), np.bool_)
    for selection in request.records_of:
        if selection.topics or not selection.system_topics:
            taken, unseen = _by_topic(records, selection)
            passed &= taken
            shown[unseen] = True
        for needles in selection.needles:
            left = np.flatnonzero(passed)
            passed[left] = _may_pass(records, left, needles, raw_body=request.raw_body)
    passed |= shown
    if request.with_damaged:
        passed |= ~records.body_crc_ok
    if passed.all():
        return run
    return replace(run, records=records.select(passed), carved=run.carved and bool(passed[0]))


def _by_topic(records: Records, selection: Selection) -> tuple[Bools, Ints]:
    """Return which records have a topic that passes, and the first record of each topic that was not seen."""
    names, _ = name_column(take_ranges(records.bytes, records.topic_starts, records.topic_ends))
    coded = names.dictionary_encode()
    topics, numbers = coded.dictionary.to_pylist(), coded.indices.to_numpy()
    taken: Bools = np.array([selection.takes_topic(topic) for topic in topics], np.bool_)[numbers]
    first: Ints = np.zeros(0, np.int64)
    if unseen := selection.unseen_of(topics):
        first = np.unique(numbers, return_index=True)[1][[topic in unseen for topic in topics]]
    return taken, first


def _may_pass(records: Records, which: Ints, needles: Needles, *, raw_body: bool) -> Bools:
    """Return which of some records contain a needle in its part, or may pass without."""
    match needles.part:
        case "body":
            starts, ends = records.body_starts, records.body_ends
        case "properties":
            starts, ends = records.properties_starts, records.properties_ends
        case "born_host":
            starts = records.field("born_host")
            ends = starts + np.where(records.sys_flag & SysFlag.BORNHOST_V6, ADDRESS_V6, ADDRESS_V4)
    passed = containing(records.bytes, starts[which], ends[which], needles.texts)
    if needles.part == "body" and not raw_body:
        passed |= records.sys_flag[which] & SysFlag.COMPRESSED != 0
    if needles.places:
        passed |= np.isin(records.places[which], needles.places)
    return passed


_TEXTS = pa.map_(pa.string(), pa.string())

SCHEMA = pa.schema(
    [
        column(
            "physical_offset",
            pa.int64(),
            "where the record starts in the commit log (file base + position)",
            filled=True,
        ),
        column("size", pa.int32(), "whole record, bytes (TOTALSIZE)", filled=True),
        column("topic", pa.string(), "stored topic"),
        column("queue_id", pa.int32(), "queue number in the stored topic", filled=True),
        column("queue_offset", pa.int64(), "logical offset in the queue, as stored in the record", filled=True),
        column("msg_id", pa.string(), "UNIQ_KEY, the id the producer's SendResult shows as msgId; null if none"),
        column("offset_msg_id", pa.string(), "store host + port + physical offset, upper-case hex (32 or 56 digits)"),
        column("tags", pa.string(), "TAGS, as the producer set them; null if none"),
        column("keys", pa.list_(pa.string()), "KEYS split at spaces; empty list if none"),
        column("real_topic", pa.string(), "where a wrapped record (delay, timer, half, retry) is bound for"),
        column("real_queue_id", pa.int32(), "the queue a wrapped record is bound for, where it says so"),
        column("deliver_timestamp", TIMESTAMP, "when a timer record falls due (TIMER_OUT_MS); null with a delay level"),
        column("born_timestamp", TIMESTAMP, "producer's clock"),
        column("store_timestamp", TIMESTAMP, "broker's clock"),
        column("born_host", pa.string(), "producer address, dotted IPv4 or RFC 5952 IPv6"),
        column("born_port", pa.int32(), "producer port"),
        column("store_host", pa.string(), "broker address"),
        column("store_port", pa.int32(), "broker port"),
        column("flag", pa.int32(), "a number of the producer's own; brokers do not look at it", filled=True),
        column("sys_flag", pa.int32(), "bits as stored; some have columns of their own", filled=True),
        column("transaction", pa.string(), "none, prepared, commit, rollback (sys_flag bits 2-3)", filled=True),
        column("compression", pa.string(), "zlib, lz4, zstd; null when bit 0 is clear"),
        column("reconsume_times", pa.int32(), "how often a consumer sent it back before", filled=True),
        column("prepared_transaction_offset", pa.int64(), "physical offset of a commit's half message", filled=True),
        column("version", pa.int8(), "1 or 2, from the magic code", filled=True),
        column("body_size", pa.int32(), "bytes of the body as stored, compressed or not", filled=True),
        column("body_crc_ok", pa.bool_(), "stored CRC equals CRC-32 of the stored body, masked", filled=True),
        column("record_crc_ok", pa.bool_(), "the same of the whole record (property __CRC32#); null without"),
        column("body", pa.binary(), "payload as a consumer receives it (decompressed), or as stored on request"),
        column("properties", _TEXTS, "all properties; of a duplicate name the last wins, as in the broker"),
        column("status", pa.string(), "ok, or the problem that is told first", filled=True),
    ]
)

_NO_ROWS = pa.RecordBatch.from_pylist([], SCHEMA)

BRIEF = (
    "physical_offset",
    "topic",
    "queue_id",
    "queue_offset",
    "store_timestamp",
    "tags",
    "keys",
    "size",
    "status",
)

# In order of precedence: of several problems the first one is the status.
STATUSES = (
    "ok",
    "bad_head",
    "body_crc",
    "record_crc",
    "body_undecodable",
    "body_too_large",
    "offset_mismatch",
    "length_mismatch",
    "invalid_utf8",
    "bad_properties",
    "bad_timestamp",
    "carved",
    "stale",
)

_PORT = message.HostV4.sizeof() - ADDRESS_V4
_OWN_OFFSET = span_of(message.HEADS[False, False], "physical_offset")
_OWN_OFFSET_AT, _OWN_OFFSET_SIZE = _OWN_OFFSET.start, _OWN_OFFSET.stop - _OWN_OFFSET.start
_DIGITS = np.frombuffer(b"0123456789ABCDEF", np.uint8)


def message_batches(run: RecordRun, request: Request) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one run of records, of those that may pass the filters.

    All bytes are copied; the window may be reused. One batch, maybe without rows, unless bodies become very large.
    Columns not in `request.columns` may be null.
    """
    rest = candidates(run, request) if request.records_of else run
    if not len(rest.records):
        yield _NO_ROWS
    while len(rest.records):
        batch = _message_batch(rest, request)
        rest = replace(rest, records=rest.records.select(slice(batch.num_rows, None)), carved=False)
        yield batch
        del batch  # not beside the next one


def _message_batch(run: RecordRun, request: Request) -> pa.RecordBatch:
    """Return the first rows of a run, nearly always all."""
    records = run.records
    wanted = request.columns or frozenset(SCHEMA.names)
    bodies: pa.Array | None = None
    problems: dict[str, Ints] = {}
    compressed = np.flatnonzero(0 if request.raw_body else records.sys_flag & SysFlag.COMPRESSED)
    if "body" in wanted or ("status" in wanted and len(compressed)):
        bodies = take_ranges(records.bytes, records.body_starts, records.body_ends)
        if len(compressed):
            bodies, problems, done = decompress_bodies(bodies, compressed, _compression(records), request.max_body)
            records = records if done == len(records) else records.select(slice(done))
    status = _Status(len(records))
    for name, which in problems.items():
        status.mark(name, which)
    columns, outside = head_columns(records, wanted)
    status.mark("bad_timestamp", outside)
    if not wanted.isdisjoint({"body_crc_ok", "status"}):
        columns["body_crc_ok"] = pa.array(records.body_crc_ok)
        status.mark("body_crc", ~records.body_crc_ok)
    status.mark("offset_mismatch", records.physical_offset != records.places)
    columns["record_crc_ok"] = _record_crc(records, status)
    if not wanted.isdisjoint({"topic", "status"}):
        columns["topic"], invalid = name_column(take_ranges(records.bytes, records.topic_starts, records.topic_ends))
        status.mark("invalid_utf8", invalid)
    if not wanted.isdisjoint(_OF_PROPERTIES):
        status.mark("bad_properties", records.properties.malformed)
        of_properties, invalid = property_columns(records)
        status.mark("invalid_utf8", invalid)
        columns |= of_properties
    if bodies is not None:
        columns["body"] = bodies
    if run.named:
        status.mark("bad_head", slice(None))
    if run.stale:
        status.mark("stale", slice(None))
    if run.carved:
        status.mark("carved", slice(0, 1))
    columns["status"] = status.column()
    return batch_with(SCHEMA, columns, len(records))


def head_columns(records: Records, wanted: frozenset[str]) -> tuple[dict[str, pa.Array], Bools]:
    """Return the columns that heads hold, as far as they are wanted, and which heads have a time out of the years 1 to
    9999, as far as that is of interest.
    """
    columns = {name: make(records) for name, make in _OF_HEADS.items() if name in wanted}
    outside: Bools = np.zeros(len(records), np.bool_)
    for name in ("born_timestamp", "store_timestamp"):
        if name in wanted or "status" in wanted:
            columns[name], odd = millis(records.field(name))
            outside |= odd
    return columns if wanted.isdisjoint(_OF_HOSTS) else columns | _hosts(records, wanted), outside


class _Status:
    """Per row, the problem that comes first in STATUSES."""

    def __init__(self, count: int) -> None:
        self.worst = np.zeros(count, np.int8)

    def mark(self, name: str, which: Bools | Ints | slice) -> None:
        if isinstance(which, np.ndarray) and which.dtype == np.bool_ and not which.any():
            return  # nearly always
        number = STATUSES.index(name)
        now = self.worst[which]
        self.worst[which] = np.where((now == 0) | (now > number), number, now)

    def column(self) -> pa.Array:
        return pick(STATUSES, self.worst)


def _int32(column: Ints) -> pa.Array:
    return pa.array(column.astype(np.int32))


def _compression(records: Records) -> pa.Array:
    kinds = (records.sys_flag & message.COMPRESSION_MASK) >> message.COMPRESSION_SHIFT
    known = ((records.sys_flag & SysFlag.COMPRESSED) != 0) & (kinds < len(message.COMPRESSIONS))
    if not known.any():
        return pa.nulls(len(records), pa.string())
    return pick(message.COMPRESSIONS, np.where(known, kinds, -1))


def _record_crc(records: Records, status: _Status) -> pa.Array:
    present, ok = records.record_crcs != NO_CRC, records.record_crcs == RIGHT_CRC
    if not present.any():
        return pa.nulls(len(records), pa.bool_())
    status.mark("record_crc", present & ~ok)
    return pa.array(ok, mask=~present)


def _number_column(name: str, records: Records) -> pa.Array:
    return _int32(records.field(name))


def _long_column(name: str, records: Records) -> pa.Array:
    return pa.array(records.field(name))


_OF_HEADS: dict[str, Callable[[Records], pa.Array]] = {
    "physical_offset": lambda records: pa.array(records.places),
    "size": lambda records: _int32(records.total_size),
    "version": lambda records: pa.array(np.where(records.magic == message.MAGIC_V2, 2, 1).astype(np.int8)),
    "body_size": lambda records: _int32(records.body_size),
    "sys_flag": lambda records: _int32(records.sys_flag),
    "transaction": lambda records: pick(
        message.TRANSACTIONS, (records.sys_flag & message.TRANSACTION_MASK) >> message.TRANSACTION_SHIFT
    ),
    "compression": _compression,
    **{name: partial(_number_column, name) for name in ("queue_id", "flag", "reconsume_times")},
    **{name: partial(_long_column, name) for name in ("queue_offset", "prepared_transaction_offset")},
}
_OF_HOSTS = frozenset({"born_host", "born_port", "store_host", "store_port", "offset_msg_id"})
# Columns that properties are parsed for; a status tells that they are malformed.
_OF_PROPERTIES = frozenset(
    {
        *("properties", "msg_id", "tags", "keys", "real_topic", "real_queue_id", "deliver_timestamp"),
        "status",
    }
)


# --- hosts ----------------------------------------------------------------------------------------


def _hosts(records: Records, wanted: frozenset[str]) -> dict[str, pa.Array]:
    """Return addresses and ports, and the offset message ids, which contain the store host."""
    sizes = {
        side: np.where(records.sys_flag & bit, ADDRESS_V6, ADDRESS_V4)
        for side, bit in (("born", SysFlag.BORNHOST_V6), ("store", SysFlag.STOREHOSTADDRESS_V6))
    }
    result: dict[str, pa.Array] = {}
    for side in sizes:
        result[f"{side}_host"] = _addresses(records, records.field(f"{side}_host"), sizes[side])
        result[f"{side}_port"] = _int32(records.field(f"{side}_port"))
    if "offset_msg_id" in wanted:
        result["offset_msg_id"] = _offset_ids(records, records.field("store_host"), sizes["store"] + _PORT)
    return result


def _addresses(records: Records, starts: Ints, sizes: Ints) -> pa.Array:
    """Return addresses as text; few are distinct."""
    raw = take_ranges(records.bytes, starts, starts + sizes)
    if raw.buffers()[2].size == len(raw) * ADDRESS_V4:  # Arrow encodes integers faster than byte strings
        numbers = np.frombuffer(raw.buffers()[2], np.int32)
        if numbers.min() == numbers.max():  # nearly always, of the store host
            return repeat(_address(numbers[:1].tobytes()), len(raw))
        coded = pa.array(numbers).dictionary_encode()
        values = [number.to_bytes(ADDRESS_V4, sys.byteorder, signed=True) for number in coded.dictionary.to_pylist()]
    else:
        coded = raw.dictionary_encode()
        values = coded.dictionary.to_pylist()
    return take_values(pa.array(map(_address, values), pa.string()), coded.indices.to_numpy())


@lru_cache(maxsize=1 << 16)
def _address(content: bytes) -> str:
    return str(ip_address(content))


def _offset_ids(records: Records, hosts: Ints, sizes: Ints) -> pa.Array:
    """Return the hex digits of each store host, address and port, and of the field PHYSICALOFFSET."""
    count = len(records)
    offsets, digits = np.empty(count + 1, np.int32), np.empty(2 * int((sizes + _OWN_OFFSET_SIZE).sum()), np.uint8)
    places = np.ascontiguousarray(records.starts + _OWN_OFFSET_AT)
    write_ids(records.bytes, np.ascontiguousarray(hosts), sizes, places, _DIGITS, offsets, digits)
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(digits))
