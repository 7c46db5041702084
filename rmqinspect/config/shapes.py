"""The shape of each configuration file: what a broker's JSON decoder accepts, and what a file says twice.

Later versions add members, so unknown members are not checked; fastjson ignores them too. What decoding accepts
was tried with the brokers' own managers, 4.2.0 to 5.5.0.

Source: the fields of each subclass of ConfigManager.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from msgspec import Struct

from rmqinspect.config.json_files import integer, key_number

# --- shapes --------------------------------------------------------------------------------------


class Leaf(Struct, frozen=True):
    """A value that fastjson accepts for a Java field."""

    words: str
    fits: Callable[[Any], bool]


class Table(Struct, frozen=True):
    """A map whose entries all have one shape."""

    of: "Shape"
    key_bits: int | None = None  # of keys that are numbers
    named: str | None = None  # the member of an entry that repeats its key


class Row(Struct, frozen=True):
    """An object by its members; unknown ones are not checked."""

    members: Mapping[str, "Shape"]


class List(Struct, frozen=True):
    """A list whose values all have one shape."""

    of: "Shape"


Shape = Leaf | Table | Row | List


def _number(bits: int) -> Leaf:
    return Leaf(f"a number of {bits} bits", lambda value: value is None or integer(_as_number(value), bits) is not None)


def _as_number(value: Any) -> Any:
    """Return the number that fastjson makes of a value: it drops fractions and parses strings."""
    if isinstance(value, str):
        return key_number(value, 64)
    # A float cannot be an infinity here: "NaN" and "Infinity" are not JSON.
    return int(value) if isinstance(value, float) and abs(value) < 2**64 else value


# Null leaves a field as the constructor made it.
_INT, _LONG = _number(32), _number(64)
_COUNTER = Leaf(_LONG.words, lambda value: value is not None and _LONG.fits(value))  # an AtomicLong
_FLAG = Leaf("true or false", lambda value: isinstance(value, bool | int) or value in (None, "true", "false"))
_TEXT = Leaf("a text", lambda value: value is None or isinstance(value, str | bool | int | float))
_TEXTS = Table(_TEXT)


def _one_of(*words: str) -> Leaf:
    return Leaf(" or ".join(words), lambda value: value is None or value in words)


def _row(*members: tuple[Shape, str]) -> Row:
    """Return an object; each shape has the names of the members that are of it."""
    return Row({name: shape for shape, names in members for name in names.split()})


_VERSION = _row((_LONG, "stateVersion timestamp"), (_COUNTER, "counter"))
_OFFSETS = Table(Table(_LONG, key_bits=32))  # topic@group -> queue -> offset
_COUNTS = Table(_row((_LONG, "count timeStamp")))
_TOPIC = _row(
    (_TEXT, "topicName"),
    (_INT, "readQueueNums writeQueueNums perm topicSysFlag"),
    (_one_of("SINGLE_TAG", "MULTI_TAG"), "topicFilterType"),
    (_FLAG, "order"),
    (_TEXTS, "attributes"),
)
_GROUP = _row(
    (_TEXT, "groupName"),
    (_FLAG, "consumeEnable consumeFromMinEnable consumeBroadcastEnable consumeMessageOrderly"),
    (_FLAG, "notifyConsumerIdsChangedEnable"),
    (_INT, "retryQueueNums retryMaxTimes groupSysFlag consumeTimeoutMinute"),
    (_LONG, "brokerId whichBrokerWhenConsumeSlowly"),
    (_row((_one_of("EXPONENTIAL", "CUSTOMIZED"), "type")), "groupRetryPolicy"),
    (_TEXTS, "attributes"),
)
_FILTER = _row(
    (_TEXT, "consumerGroup topic expression expressionType"),
    (_LONG, "bornTime deadTime clientVersion"),
    (_FLAG, "dead"),
    (_row((_INT, "bitNum"), (List(_INT), "bitPos")), "bloomFilterData"),
)
_ORDER = _row(
    (_LONG, "popTime i l cm"),
    (_TEXT, "a"),
    (List(_LONG), "o"),
    (Table(_LONG, key_bits=64), "ot"),
    (Table(_INT, key_bits=64), "oc"),
)
_MODE = _row((_TEXT, "topic consumerGroup"), (_INT, "popShareQueueNum"), (_one_of("PULL", "POP"), "mode"))
_MAPPING_ITEM = _row(
    (_INT, "gen queueId"),
    (_TEXT, "bname"),
    (_LONG, "logicOffset startOffset endOffset timeOfStart timeOfEnd"),
)
_MAPPING = _row(
    (_TEXT, "topic bname scope"),
    (_LONG, "epoch"),
    (_INT, "totalQueues"),
    (_FLAG, "dirty"),
    (Table(_INT, key_bits=32), "currIdMap"),
    (Table(List(_MAPPING_ITEM), key_bits=32), "hostedQueues"),
)


class Kind(Struct, frozen=True):
    """One configuration file: its content, when it is saved, how a broker starts without it."""

    name: str
    table: str  # its main member; a file without it is useless
    members: Mapping[str, Shape]
    saved: str
    without: str  # "the broker starts …"
    needed: bool = True  # startup fails if neither the file nor its .bak can be decoded
    folder: str = "config"
    needs_table: bool = False  # a file that is read, and lacks the main member, is refused
    free_text: bool = False  # has text of users, in the platform's charset up to 4.9.8
    elsewhere: frozenset[str] = frozenset()  # members of rocketmq-rust's own shape, which brokers skip


_OFFSET_FILE: Mapping[str, Shape] = {
    "dataVersion": _VERSION,
    "offsetTable": _OFFSETS,
    "pullOffsetTable": _OFFSETS,
    "groupTopicMap": Table(List(_TEXT)),
}
# Source: ConsumerManageProcessor#queryConsumerOffset, 4.2.0 to 5.5.0: a queue's minimum of 0, and its first message in
# memory; since 5.0.0 not for clients that ask with setZeroIfNotFound=false.
_NO_OFFSETS = (
    "without consumer offsets: each group begins at 0 in a queue that begins at 0 and is still in memory, else where "
    "its clients' setting says"
)
_AT_CHANGE = "saved at each change"
_EVERY_5_S, _EVERY_10_S = "saved every 5 s", "saved every 10 s"
_SEGMENTS = Table(Table(_row((_LONG, "baseOffset size")), key_bits=64))

KINDS = (
    Kind(
        "topics.json",
        "topicConfigTable",
        {"dataVersion": _VERSION, "topicConfigTable": Table(_TOPIC, named="topicName")},
        _AT_CHANGE,
        "without its topics",
    ),
    Kind(
        "subscriptionGroup.json",
        "subscriptionGroupTable",
        {
            "dataVersion": _VERSION,
            "forbiddenTable": Table(Table(_INT)),
            "subscriptionGroupTable": Table(_GROUP, named="groupName"),
        },
        _AT_CHANGE,
        "without its consumer groups",
    ),
    Kind("consumerOffset.json", "offsetTable", _OFFSET_FILE, _EVERY_5_S, _NO_OFFSETS),
    Kind(
        "lmqConsumerOffset.json",
        "offsetTable",
        {**_OFFSET_FILE, "lmqOffsetTable": Table(_LONG)},
        _EVERY_5_S,
        _NO_OFFSETS,
    ),
    Kind(
        "delayOffset.json",
        "offsetTable",
        {"dataVersion": _VERSION, "offsetTable": Table(_LONG, key_bits=32)},
        _EVERY_10_S,
        "at the oldest delayed message of each level: messages are delivered again",
    ),
    Kind(
        "consumerFilter.json",
        "filterDataByTopic",
        {
            "filterDataByTopic": Table(
                Row({"topic": _TEXT, "groupFilterData": Table(_FILTER, named="consumerGroup")}), named="topic"
            )
        },
        _EVERY_10_S,
        "without the filters of groups that are not online",
        free_text=True,
    ),
    Kind(
        "consumerOrderInfo.json",
        "table",
        {"table": Table(Table(_ORDER, key_bits=32))},
        _EVERY_10_S,
        "without the state of ordered POP consumers: messages are delivered again",
    ),
    Kind(
        "topicQueueMapping.json",
        "topicQueueMappingInfoMap",
        {"dataVersion": _VERSION, "topicQueueMappingInfoMap": Table(_MAPPING, named="topic")},
        _AT_CHANGE,
        "without its static topics",
        needs_table=True,
    ),
    Kind(
        "messageRequestMode.json",
        "messageRequestModeMap",
        {"messageRequestModeMap": Table(Table(_MODE, named="consumerGroup"))},
        _AT_CHANGE,
        "with all groups in the default request mode",
        needed=False,
    ),
    Kind(
        "timermetrics",
        "timingCount",
        {"dataVersion": _VERSION, "timingCount": _COUNTS},
        "saved every second",
        "without its count of pending timer messages",
    ),
    Kind(
        "transactionMetrics",
        "transactionCount",
        {"dataVersion": _VERSION, "transactionCount": _COUNTS},
        "saved every 3 to 10 s",
        "without its count of open transactions",
        needed=False,
        elsewhere=frozenset({"version", "generation", "topics"}),  # TransactionMetricsCheckpoint, 1.0.0
    ),
    Kind(
        "tieredStoreMetadata.json",
        "queueMetadataTable",
        {
            "topicSerialNumber": _LONG,
            "topicMetadataTable": Table(_row((_LONG, "topicId"), (_TEXT, "topic"), (_INT, "status")), named="topic"),
            "queueMetadataTable": Table(Table(_row((_LONG, "minOffset maxOffset")), key_bits=32)),
            "commitLogFileSegmentTable": _SEGMENTS,
            "consumeQueueFileSegmentTable": _SEGMENTS,
            "indexFileSegmentTable": _SEGMENTS,
        },
        _AT_CHANGE,
        "without knowing what it has in tiered storage",
        needed=False,
    ),
    Kind(
        "position-checkpoint",
        "queueOffsetMap",
        {"queueOffsetMap": Table(_LONG)},
        "saved after each compaction",
        "compaction at the beginning of each queue",
        needed=False,
        folder="compaction",
    ),
)


def faults(shape: Shape, value: Any, path: str) -> Iterator[tuple[str, str]]:
    """Yield (path, what should be there) for everything that a broker's decoder would reject."""
    match shape:
        case Leaf(words, fits):
            if not fits(value):
                yield path, words
        case List(of) if isinstance(value, list):
            for number, entry in enumerate(value):
                yield from faults(of, entry, f"{path}[{number}]")
        case Row(members) if isinstance(value, dict):
            for name in _members_in(value, members):
                yield from faults(members[name], value[name], f"{path}.{name}" if path else name)
        case Table() if isinstance(value, dict):
            for key, entry in value.items():
                yield from _entry_faults(shape, key, entry, f"{path}.{key}")
        case _:
            yield path, "a list" if isinstance(shape, List) else "an object"


def _members_in(value: Mapping[str, Any], members: Mapping[str, Shape]) -> list[str]:
    """Return the known members of an object in its own order: that of a set changes from run to run."""
    return [name for name in value if name in members]


def _entry_faults(table: Table, key: str, entry: Any, path: str) -> Iterator[tuple[str, str]]:
    if table.key_bits and key_number(key, table.key_bits) is None:
        yield path, f"a number of {table.key_bits} bits as the key"
    elif entry is None:
        yield path, "a value"  # a ConcurrentHashMap accepts no null
    elif not (isinstance(table.of, Leaf) and table.of.fits(entry)):
        yield from faults(table.of, entry, path)


def misnamed(shape: Shape, value: Any, path: str) -> Iterator[tuple[str, str]]:
    """Yield (path, own name) for entries whose own name is not their key; the value must have its shape."""
    match shape:
        case Row(members):
            for name in _members_in(value, members):
                yield from misnamed(members[name], value[name], f"{path}.{name}" if path else name)
        case Table(of, _, named) if isinstance(of, Row | Table):
            for key, entry in value.items():
                if named and entry.get(named, key) != key:
                    yield f"{path}.{key}", str(entry[named])
                yield from misnamed(of, entry, f"{path}.{key}")


def renamed(shape: Shape, value: Any, path: str) -> Iterator[tuple[str, str]]:
    """Yield (path, member) for unknown names that are one flipped bit away from a member that is missing.

    Later versions and other builds add members, so an unknown name alone is not damage.
    """
    match shape:
        case Row(members):
            missing = [member for member in members if member not in value]
            for name in value:
                for member in missing if name not in members else ():
                    if _is_one_bit_off(name, member):
                        yield f"{path}.{name}" if path else name, member
            for name in _members_in(value, members):
                yield from renamed(members[name], value[name], f"{path}.{name}" if path else name)
        case Table(of) if not isinstance(of, Leaf):
            for key, entry in value.items():
                yield from renamed(of, entry, f"{path}.{key}")


def _is_one_bit_off(name: str, member: str) -> bool:
    pairs = zip(name, member, strict=False)
    different = [ord(one) ^ ord(other) for one, other in pairs if one != other]
    return len(name) == len(member) and len(different) == 1 and different[0].bit_count() == 1
