"""The table `messages`: one row per commit-log record, built window by window."""

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from ipaddress import ip_address
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rmqinspect.codec.arrays import Bools, Bytes, Ints
from rmqinspect.codec.byte_ranges import take_ranges
from rmqinspect.codec.properties import Items
from rmqinspect.commitlog.columns import NO_CRC, RIGHT_CRC
from rmqinspect.commitlog.records import Records
from rmqinspect.commitlog.scan import RecordRun
from rmqinspect.schemas import message
from rmqinspect.schemas.message import SysFlag
from rmqinspect.tables.bodies import decompress_bodies
from rmqinspect.tables.columns import is_text, millis, name_column, pick, repeat, text
from rmqinspect.tables.table import TIMESTAMP, Request, column

_TEXTS = pa.map_(pa.string(), pa.string())

SCHEMA = pa.schema(
    [
        column("physical_offset", pa.int64(), "where the record starts in the commit log (file base + position)"),
        column("size", pa.int32(), "whole record, bytes (TOTALSIZE)"),
        column("topic", pa.string(), "stored topic"),
        column("queue_id", pa.int32(), "queue number in the stored topic"),
        column("queue_offset", pa.int64(), "logical offset in the queue, as stored in the record"),
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
        column("flag", pa.int32(), "a number of the producer's own; brokers do not look at it"),
        column("sys_flag", pa.int32(), "bits as stored; some have columns of their own"),
        column("transaction", pa.string(), "none, prepared, commit, rollback (sys_flag bits 2-3)"),
        column("compression", pa.string(), "zlib, lz4, zstd; null when bit 0 is clear"),
        column("reconsume_times", pa.int32(), "how often a consumer sent it back before"),
        column("prepared_transaction_offset", pa.int64(), "physical offset of a commit's half message"),
        column("version", pa.int8(), "1 or 2, from the magic code"),
        column("body_size", pa.int32(), "bytes of the body as stored, compressed or not"),
        column("body_crc_ok", pa.bool_(), "stored CRC equals CRC-32 of the stored body, masked"),
        column("record_crc_ok", pa.bool_(), "the same of the whole record (property __CRC32#); null without"),
        column("body", pa.binary(), "payload as a consumer receives it (decompressed), or as stored on request"),
        column("properties", _TEXTS, "all properties; of a duplicate name the last wins, as in the broker"),
        column("status", pa.string(), "ok, or the problem that is told first"),
    ]
)

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

# Property names on disk. Source: MessageConst.
_UNIQ_KEY, _TAGS, _KEYS = b"UNIQ_KEY", b"TAGS", b"KEYS"
_REAL_TOPIC, _REAL_QUEUE, _RETRY_TOPIC, _TIMER_OUT = b"REAL_TOPIC", b"REAL_QID", b"RETRY_TOPIC", b"TIMER_OUT_MS"

_HEX = np.frombuffer("".join(f"{value:02X}" for value in range(256)).encode(), np.uint16)


def message_batches(run: RecordRun, request: Request) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one run of records. All bytes are copied; the window may be reused.

    One batch, unless bodies become very large. Columns not in `request.columns` may be null.
    """
    rest = run
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
    if "body" in wanted or "status" in wanted:
        bodies = take_ranges(records.raw, records.body_starts, records.body_ends)
        compressed = np.flatnonzero(records.sys_flag & SysFlag.COMPRESSED)
        if len(compressed) and not request.raw_body:
            bodies, problems, done = decompress_bodies(bodies, compressed, _compression(records), request.max_body)
            records = records if done == len(records) else records.select(slice(done))
    status = _Status(len(records))
    for name, which in problems.items():
        status.mark(name, which)
    columns: dict[str, pa.Array] = {
        "physical_offset": pa.array(records.base + records.starts),
        "size": _int32(records.total_size),
        "version": pa.array(np.where(records.magic == message.MAGIC_V2, 2, 1).astype(np.int8)),
        "body_size": _int32(records.body_size),
        "sys_flag": _int32(records.sys_flag),
        "transaction": pick(
            message.TRANSACTIONS, (records.sys_flag & message.TRANSACTION_MASK) >> message.TRANSACTION_SHIFT
        ),
        "compression": _compression(records),
    }
    for name in ("queue_id", "flag", "reconsume_times"):
        columns[name] = _int32(records.field(name))
    for name in ("queue_offset", "prepared_transaction_offset"):
        columns[name] = pa.array(records.field(name))
    for name in ("born_timestamp", "store_timestamp"):
        columns[name], outside = millis(records.field(name))
        status.mark("bad_timestamp", outside)
    for name, hosts in _hosts(records, wanted).items():
        columns[name] = hosts
    if not wanted.isdisjoint({"body_crc_ok", "status"}):
        columns["body_crc_ok"] = pa.array(records.body_crc_ok)
        status.mark("body_crc", ~records.body_crc_ok)
    status.mark("offset_mismatch", records.physical_offset != records.base + records.starts)
    columns["record_crc_ok"] = _record_crc(records, status)
    columns["topic"], invalid = name_column(take_ranges(records.raw, records.topic_starts, records.topic_ends))
    status.mark("invalid_utf8", invalid)
    columns |= _property_columns(records, status)
    if bodies is not None:
        columns["body"] = bodies
    if run.stale:
        status.mark("stale", slice(None))
    if run.carved:
        status.mark("carved", slice(0, 1))
    columns["status"] = status.column()
    arrays = [columns[field.name] if field.name in columns else pa.nulls(len(records), field.type) for field in SCHEMA]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


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


# --- hosts ----------------------------------------------------------------------------------------


def _hosts(records: Records, wanted: frozenset[str]) -> dict[str, pa.Array]:
    """Return addresses and ports, and the offset message ids, which contain the store host."""
    count = len(records)
    result: dict[str, pa.Array] = {}
    for side, number in (("born_host", 0), ("store_host", 1)):
        parts, order = [], []
        for hosts, which, heads in records.host_groups():
            parts.append(_addresses(heads[side]["address"], 16 if hosts[number] else 4))
            order.append(np.arange(count) if which is None else which)
        result[side] = _in_order(parts, order)
        result[side.replace("host", "port")] = _int32(records.field(side.replace("host", "port")))
    if "offset_msg_id" in wanted:
        parts, order = [], []
        for _, which, heads in records.host_groups():
            content = [_raw(heads[name]) for name in ("store_host", "physical_offset")]
            parts.append(_hex(np.concatenate(content, axis=1)))
            order.append(np.arange(count) if which is None else which)
        result["offset_msg_id"] = _in_order(parts, order)
    return result


def _addresses(column: Bytes, width: int) -> pa.Array:
    """Return addresses of `width` bytes as text; few are distinct."""
    # Arrow encodes integers faster than byte strings.
    if width == 4:
        numbers = np.ascontiguousarray(column.view("<i4").reshape(-1))
        if len(numbers) and numbers.min() == numbers.max():
            return repeat(_address(numbers[:1].tobytes()), len(numbers))
        coded = pa.array(numbers).dictionary_encode()
        values = [number.to_bytes(4, "little", signed=True) for number in coded.dictionary.to_pylist()]
    else:
        raw = np.ascontiguousarray(column)
        fixed = pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), len(raw), [None, pa.py_buffer(raw)])
        coded = fixed.dictionary_encode()
        values = coded.dictionary.to_pylist()
    return pa.array([_address(value) for value in values], pa.string()).take(coded.indices)


@lru_cache(maxsize=1 << 16)
def _address(content: bytes) -> str:
    return str(ip_address(content))


def _in_order(parts: list[pa.Array], order: list[Ints]) -> pa.Array:
    if len(parts) == 1:
        return parts[0]
    return pa.concat_arrays(parts).take(pa.array(np.argsort(np.concatenate(order), kind="stable")))


def _raw(column: NDArray[Any]) -> Bytes:
    """Return the bytes of each value, shape (n, itemsize)."""
    plain = np.ascontiguousarray(column.view(np.dtype((np.void, column.itemsize))))
    return plain.view(np.uint8).reshape(len(column), -1)


def _hex(content: Bytes) -> pa.Array:
    """Return the bytes of each row as upper-case hex."""
    digits = _HEX.take(content)  # two digits per byte
    offsets = np.arange(0, digits.nbytes + 1, digits.itemsize * digits.shape[1], dtype=np.int32)
    return pa.StringArray.from_buffers(len(content), pa.py_buffer(offsets), pa.py_buffer(digits))


# --- properties -----------------------------------------------------------------------------------


def _property_columns(records: Records, status: _Status) -> dict[str, pa.Array]:
    """Return the map of properties, and the columns taken from single properties."""
    count = len(records)
    items = records.properties
    status.mark("bad_properties", items.malformed)
    # Separators are ASCII, so all parts of a valid text are valid.
    valid = is_text(take_ranges(records.raw, records.properties_starts, records.properties_ends))
    names, bad_names = text(take_ranges(records.raw, items.name_starts, items.name_ends), valid)
    values, bad_values = text(take_ranges(records.raw, items.value_starts, items.value_ends), valid)
    if (bad := bad_names | bad_values).any():
        status.mark("invalid_utf8", items.record[bad])

    def of(name: bytes) -> pa.Array | None:
        """Return a property of each record, null where absent; None if no record has it."""
        found = items.of(name)
        return values.take(pa.array(found, mask=found < 0)) if (found >= 0).any() else None

    texts = pa.nulls(count, pa.string())
    starts, values_kept = items.firsts, values
    replaced = _replaced(items, names, bad_names)
    if replaced.any():
        kept = np.flatnonzero(~replaced)
        names, values_kept = names.take(pa.array(kept)), values.take(pa.array(kept))
        starts = np.searchsorted(kept, starts).astype(np.int32)
    retry, real = of(_RETRY_TOPIC), of(_REAL_TOPIC)
    keys = of(_KEYS)
    return {
        "properties": pa.MapArray.from_arrays(pa.array(starts), names, values_kept),
        "msg_id": _or_nulls(of(_UNIQ_KEY), texts),
        "tags": _or_nulls(of(_TAGS), texts),
        "keys": _split_keys(keys, count),
        "real_topic": _or_nulls(retry if real is None else real if retry is None else pc.coalesce(real, retry), texts),
        "real_queue_id": _number(of(_REAL_QUEUE), count, pa.int32()),
        "deliver_timestamp": _deliver_time(of(_TIMER_OUT), count),
    }


def _replaced(items: Items, names: pa.Array, bad_names: Bools) -> Bools:
    """Return which items have a later one with the same name, as bytes or as escaped text."""
    replaced: Bools = items.replaced
    for record in np.unique(items.record[bad_names]).tolist() if bad_names.any() else ():
        later: set[str] = set()
        for item in range(int(items.firsts[record + 1]) - 1, int(items.firsts[record]) - 1, -1):
            name = names[item].as_py()
            replaced[item] = name in later
            later.add(name)
    return replaced


def _or_nulls(column: pa.Array | None, nulls: pa.Array) -> pa.Array:
    return nulls if column is None else column


def _split_keys(keys: pa.Array | None, count: int) -> pa.Array:
    if keys is None:
        return pa.ListArray.from_arrays(pa.array(np.zeros(count + 1, np.int32)), pa.array([], pa.string()))
    lists = pc.split_pattern(pc.fill_null(keys, ""), " ")
    flat, offsets = lists.values, lists.offsets.to_numpy()
    if pc.min(pc.binary_length(flat)).as_py() == 0:  # runs of spaces give empty keys, which do not count
        used = pc.greater(pc.binary_length(flat), 0).to_numpy(zero_copy_only=False)
        offsets = np.concatenate(([0], np.cumsum(used)))[offsets].astype(np.int32)
        flat = flat.filter(pa.array(used))
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), flat)


def _number(column: pa.Array | None, count: int, type_: pa.DataType) -> pa.Array:
    """Parse decimal texts; anything else, and numbers out of range, become null."""
    if column is None:
        return pa.nulls(count, type_)
    low, high = (-(2**31), 2**31 - 1) if type_ == pa.int32() else (-(2**63), 2**63 - 1)
    numbers = [int(value) if value is not None and _is_number(value) else None for value in column.to_pylist()]
    return pa.array([n if n is not None and low <= n <= high else None for n in numbers], type_)


def _is_number(value: str) -> bool:
    digits = value.removeprefix("-")
    return digits.isascii() and digits.isdecimal() and len(digits) < 20


def _deliver_time(column: pa.Array | None, count: int) -> pa.Array:
    if column is None:
        return pa.nulls(count, TIMESTAMP)
    numbers = _number(column, count, pa.int64())
    times, outside = millis(pc.fill_null(numbers, 0).to_numpy())
    return pc.if_else(pc.or_(pc.is_null(numbers), pa.array(outside)), pa.scalar(None, TIMESTAMP), times)
