"""The bodies of message traces: what clients write of each send and each consumption, as columns.

    body      context \\2 context \\2 …             \\2 ends a context, or separates two
    context   Pub \\1 1764037200000 \\1 … \\1 true    \\1 separates its fields; the first is its type

A null is written as the text `null`, as Java appends it; such a field is null here. A tag `null` looks the same.

What differs by release, 4.4.0 (the first with traces) to 5.5.0:

    Pub              region id, group, topic, msg id, tags, keys, broker, body size, ms, message type, offset msg id,
                     success; 4.8.0 adds the client's id. Bodies older than 4.4.0 end without the offset msg id.
    SubBefore        time, region id, group, request id, msg id, retries, keys; 4.8.0 adds the client's id, which no
                     decoder but its own reads
    SubAfter         request id, msg id, ms, success, keys, result; since 4.8.0 time and group. With AccessChannel.CLOUD
                     4.9.8 and 5.1.4 to 5.5.0 leave out time and group, and up to 5.3.0 also the end of the context: the
                     next one follows in the same context, and the client's decoder fails. Here both are read.
    EndTransaction   since 4.9.0
    Recall           since 5.3.3

A batch is one Pub, whose ids are those of all its messages with commas between. SubBefore and SubAfter do not name the
topic; those of one consumption have the same request id. `ms` of a consumption is that of a message: the time of all
that the listener got at once, divided by their number. SubAfter says SUCCESS where the client had no result to tell.

Not here: a 5.x proxy and the gRPC clients write no such records. They export spans and metrics by OpenTelemetry, and
a client with an OpenTracing hook writes spans; none of these is in a store.

Source: TraceDataEncoder#encoderFromContextBean, #decoderFromTraceDataString, AsyncTraceDispatcher; RocketMQ 4.4.0 to
5.5.0.
"""

import re
from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rmqinspect.codec.arrays import Ints

MESSAGE_TYPES = ("Normal_Msg", "Trans_Msg_Half", "Trans_msg_Commit", "Delay_Msg", "Order_Msg")
"""By number. Source: MessageType."""

RESULTS = ("SUCCESS", "TIME_OUT", "EXCEPTION", "RETURNNULL", "FAILED")
"""What became of a consumption, by number. Source: ConsumeReturnType."""

TRANSACTION_STATES = ("COMMIT_MESSAGE", "ROLLBACK_MESSAGE", "UNKNOW")
"""Source: LocalTransactionState."""

# Fields behind the type, in their order; each is one of COLUMNS. All that a client's decoder needs.
_PUB = (
    *("time", "region_id", "group", "topic", "msg_id", "tags", "keys", "store_host", "body_size", "cost"),
    "message_type",
)
LAYOUTS: Mapping[str, tuple[str, ...]] = {
    "Pub": (*_PUB, "offset_msg_id", "success"),
    "SubBefore": ("time", "region_id", "group", "request_id", "msg_id", "retry_times", "keys"),
    "SubAfter": ("request_id", "msg_id", "cost", "success", "keys"),
    "EndTransaction": (
        *("time", "region_id", "group", "topic", "msg_id", "tags", "keys", "store_host", "message_type"),
        *("transaction_id", "transaction_state", "from_check"),
    ),
    "Recall": ("time", "region_id", "group", "topic", "msg_id", "success"),
}
_FURTHER: Mapping[str, tuple[str, ...]] = {
    "Pub": ("client_host",),
    "SubBefore": ("client_host",),
    "SubAfter": ("result", "time", "group"),
}
"""Fields that only some releases write."""
_OLD_PUB = (*_PUB, "success")

OK, UNKNOWN_TYPE, MALFORMED = "ok", "unknown_type", "malformed"
STATUSES = {
    OK: "all its fields are there and have values",
    UNKNOWN_TYPE: "its type is none that a client writes: the client's decoder passes over it",
    MALFORMED: "a field is missing, or has no value of its kind: the client's decoder fails",
}
"""Statuses of a context."""

_FIELD, _CONTEXT = "\x01", "\x02"
_INT = {pa.int32(): (-(2**31), 2**31 - 1), pa.int64(): (-(2**63), 2**63 - 1)}
_NUMBER = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)


def is_trace(body: bytes) -> bool:
    """Whether a body begins as that of a trace does: a type that clients write, and the end of a field."""
    return body[: body.find(b"\1") if b"\1" in body[:_LONGEST] else 0].decode("latin-1") in LAYOUTS


_LONGEST = max(map(len, LAYOUTS)) + 1


def read_contexts(bodies: pa.Array) -> tuple[Ints, dict[str, pa.Array]]:
    """Return the contexts of some bodies: the number of each one's body, ascending, and the columns COLUMNS.

    `bodies` are strings without nulls. Fields that a type does not have are null, and those without a value of their
    kind; `status` is one of STATUSES.
    """
    texts, of = _contexts(bodies)
    fields = pc.split_pattern(texts, _FIELD)
    content, borders = fields.flatten(), fields.offsets.to_numpy().astype(np.int64)
    starts, lengths = borders[:-1], _used_lengths(content, borders)
    types = content.take(pa.array(starts)) if len(starts) else pa.array([], pa.string())
    known, columns = pc.index_in(types, pa.array(list(LAYOUTS))).fill_null(-1).to_numpy(), {}
    status = np.where(known >= 0, 0, 1)
    for name, convert in COLUMNS.items():
        at = _places_of(name, known, starts, lengths)
        taken = content.take(pa.array(np.where(at < 0, 0, at), mask=at < 0))
        taken = pc.if_else(pc.equal(taken, "null"), pa.scalar(None, pa.string()), taken)
        values, bad = convert(taken)
        if name not in _TEXTS:  # a null is no number
            bad |= (at >= 0) & pc.is_null(taken).to_numpy(zero_copy_only=False)
        status[(status == 0) & bad] = 2
        columns[name] = values
    needed = np.array([len(layout) for layout in LAYOUTS.values()])[known] + 1
    needed[known == _PUB_NUMBER] = len(_OLD_PUB) + 1
    status[(status == 0) & (lengths < needed)] = 2
    columns["type"] = types
    columns["status"] = pa.array(list(STATUSES)).take(pa.array(status))
    return of, columns


_PUB_NUMBER, _SUB_AFTER = (list(LAYOUTS).index(name) for name in ("Pub", "SubAfter"))


def _contexts(bodies: pa.Array) -> tuple[pa.Array, Ints]:
    """Return the contexts of some bodies, and the number of each one's body; empty ones are none."""
    # What 5.3.0 and before write for the cloud: the next context behind the last field of a SubAfter.
    run_on = pc.match_substring_regex(bodies, _RUN_ON)
    if pc.any(run_on).as_py():
        bodies = pc.if_else(run_on, pc.replace_substring_regex(bodies, _RUN_ON, r"\1" + _CONTEXT + r"\2"), bodies)
        bodies = pc.replace_substring_regex(bodies, _RUN_ON, r"\1" + _CONTEXT + r"\2")  # those between two
    lists = pc.split_pattern(bodies, _CONTEXT)
    texts, of = lists.flatten(), pc.list_parent_indices(lists).to_numpy().astype(np.int64)
    there = pc.greater(pc.binary_length(texts), 0)
    return texts.filter(there), of[there.to_numpy(zero_copy_only=False)]


_RUN_ON = "(SubAfter(?:\x01[^\x01\x02]*){6}\x01)((?:" + "|".join(LAYOUTS) + ")\x01)"


def _used_lengths(content: pa.Array, borders: Ints) -> Ints:
    """Return how many fields each context has, without empty ones at its end, as String#split counts them."""
    filled = pc.greater(pc.binary_length(content), 0).to_numpy(zero_copy_only=False)
    last = np.maximum.accumulate(np.where(filled, np.arange(len(filled)), -1)) if len(filled) else np.zeros(0, int)
    starts, ends = borders[:-1], borders[1:]
    return np.maximum(last[ends - 1] + 1 - starts, 0) if len(starts) else np.zeros(0, np.int64)


def _places_of(name: str, known: NDArray[np.int64], starts: Ints, lengths: Ints) -> Ints:
    """Return where the field `name` of each context stands among all fields; -1 where it has none."""
    at = np.full(len(starts), -1, np.int64)
    for number, (type_, layout) in enumerate(LAYOUTS.items()):
        fields = (*layout, *_FURTHER.get(type_, ()))
        if name in fields:
            place = fields.index(name) + 1
            rows = (known == number) & (lengths > place)
            at[rows] = starts[rows] + place
    # As the client's decoder: time and group of a SubAfter count together.
    if name in ("time", "group"):
        at[(known == _SUB_AFTER) & (lengths < len(LAYOUTS["SubAfter"]) + 1 + len(_FURTHER["SubAfter"]))] = -1
    old = (known == _PUB_NUMBER) & (lengths == len(_OLD_PUB) + 1)
    if name in ("offset_msg_id", "success"):
        at[old] = starts[old] + len(_OLD_PUB) if name == "success" else -1
    return at


# --- values ---------------------------------------------------------------------------------------

_Converted = tuple[pa.Array, NDArray[np.bool_]]


def _text(values: pa.Array) -> _Converted:
    return values, np.zeros(len(values), np.bool_)


def _number(type_: pa.DataType) -> Callable[[pa.Array], _Converted]:
    """Return what reads decimal numbers; anything else becomes null and is bad. Source: Integer#parseInt."""
    low, high = _INT[type_]

    def convert(values: pa.Array) -> _Converted:
        try:
            return values.cast(type_), np.zeros(len(values), np.bool_)
        except pa.ArrowInvalid:
            texts = values.to_pylist()
        numbers = [int(text) if text is not None and _NUMBER.fullmatch(text) else None for text in texts]
        numbers = [number if number is not None and low <= number <= high else None for number in numbers]
        bad = [text is not None and number is None for text, number in zip(texts, numbers, strict=True)]
        return pa.array(numbers, type_), np.array(bad, np.bool_)

    return convert


def _boolean(values: pa.Array) -> _Converted:
    """Read true and false. A client takes all other texts for false: here they are bad."""
    lower = pc.utf8_lower(values)
    true, false = pc.equal(lower, "true"), pc.equal(lower, "false")
    bad = pc.invert(pc.or_(true, false)).fill_null(False)
    return pc.if_else(bad, pa.scalar(None, pa.bool_()), true), bad.to_numpy(zero_copy_only=False)


def _word(words: tuple[str, ...], *, by_number: bool) -> Callable[[pa.Array], _Converted]:
    """Return what reads one of some words, written as it is or as its number; others stay texts and are bad."""

    def convert(values: pa.Array) -> _Converted:
        known = pa.array(list(map(str, range(len(words)))) if by_number else list(words))
        at = pc.index_in(values, known)
        bad = pc.and_(pc.is_null(at), pc.is_valid(values))
        return pc.coalesce(pa.array(words).take(at), values), bad.to_numpy(zero_copy_only=False)

    return convert


def _keys(values: pa.Array) -> _Converted:
    """Split keys at spaces; none give an empty list, and a type without keys null."""
    words = pc.split_pattern(values, " ")
    if pc.any(pc.equal(pc.binary_length(words.flatten()), 0)).as_py():  # spaces side by side, or at an end
        texts = values.to_pylist()
        lists = [None if text is None else [word for word in text.split(" ") if word] for text in texts]
        words = pa.array(lists, pa.list_(pa.string()))
    return words, np.zeros(len(values), np.bool_)


_TEXTS = frozenset(
    {
        *("region_id", "group", "topic", "msg_id", "tags", "keys", "store_host", "offset_msg_id", "request_id"),
        *("transaction_id", "client_host"),
    }
)
"""Fields that may be null."""

COLUMNS: Mapping[str, Callable[[pa.Array], _Converted]] = {
    "time": _number(pa.int64()),  # ms since 1970, the client's clock
    "region_id": _text,
    "group": _text,
    "topic": _text,
    "msg_id": _text,
    "tags": _text,
    "keys": _keys,
    "store_host": _text,
    "body_size": _number(pa.int32()),
    "cost": _number(pa.int32()),
    "message_type": _word(MESSAGE_TYPES, by_number=True),
    "offset_msg_id": _text,
    "success": _boolean,
    "request_id": _text,
    "retry_times": _number(pa.int32()),
    "result": _word(RESULTS, by_number=True),
    "transaction_id": _text,
    "transaction_state": _word(TRANSACTION_STATES, by_number=False),
    "from_check": _boolean,
    "client_host": _text,
}
"""The fields of contexts, and what makes a column of their texts; `type` and `status` besides."""
