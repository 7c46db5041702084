"""Loops over the records of the log: a row of numbers for each record, checksums, what is dispatched, what is doubted.

    raw      ...|head····|body......|topic|properties|head····|...
    rows         start, total_size, magic, ..., body_start, ...     int64, one row for each record

`follow` walks the chain as the broker does at its start: it reads a record, judges it, and goes on where it ends.
Nothing else of a record is believed on the way: in a damaged one a column holds what its bytes say.

Invariants: `raw` goes on for SLACK bytes after any place where a record may begin, which is more than the longest
head; after the head, a place is compared with that limit before it is read. Places stay within 33 bits: an index of a
window and one length, of the record or its body, are below 2^31; the lengths of topic and properties have 16 bits.

Source: CommitLog#checkMessageAndReturnSize.
"""

# mypy: disable-error-code="no-any-return"

try:
    import cython
except ImportError:  # where nothing is compiled
    from rmqinspect.loops.uncompiled import cython

from rmqinspect.loops.record_rows import (
    ASKED_BATCHES,
    ASKED_ID_MARKS,
    ASKED_INDEX_KEYS,
    ASKED_KEY_COUNTS,
    ASKED_REAL_TOPICS,
    ASKED_TAG_KEYS,
    AT_BASE,
    AT_DELAY,
    AT_NUMBER,
    AT_TOPIC,
    BAD_MAGIC,
    BAD_ORDER,
    BAD_PLACE,
    BAD_SIZE,
    BLANK,
    BODY_CRC,
    BODY_END,
    BODY_SIZE,
    BODY_START,
    BORN_HOST,
    BORN_PORT,
    BORN_TIMESTAMP,
    END,
    FIELD_RULE,
    FIRST_OFFSET,
    FIRST_PLACE,
    FLAG,
    JUMP_END,
    JUMP_PLACE,
    JUMP_WANTED,
    JUMPED,
    KEY,
    LAST_INDEX,
    LAST_PLACE,
    LAST_PORT,
    LAST_TERM,
    MAGIC,
    MARKED,
    MARKED_ID,
    MORE,
    NEXT_OFFSET,
    NO_CRC,
    OFFSET_RULE,
    PHYSICAL_OFFSET,
    PLAIN,
    PREPARED_OFFSET,
    PROPERTIES_END,
    PROPERTIES_START,
    QUEUE_ID,
    QUEUE_OFFSET,
    RECONSUME_TIMES,
    RIGHT_CRC,
    SLACK,
    START,
    STOP,
    STORE_HOST,
    STORE_PORT,
    STORE_TIMESTAMP,
    SUM_BYTES,
    SUM_FIRST,
    SUM_LAST,
    SUM_MESSAGES,
    SUM_RECORDS,
    SYS_FLAG,
    TAG,
    TAGGED,
    TIME_RULE,
    TO_DELAYED,
    TO_ENTITLED,
    TO_HAS_TAGS,
    TO_KEY_COUNT,
    TO_KEY_HASH,
    TO_KEY_RECORD,
    TO_MESSAGES,
    TO_PHYSICAL_OFFSET,
    TO_QUEUE,
    TO_QUEUE_OFFSET,
    TO_REAL_TOPIC,
    TO_SIZE,
    TO_SOUND,
    TO_STORE_TIMESTAMP,
    TO_TAGS_CODE,
    TOPIC_END,
    TOPIC_START,
    TOTAL_SIZE,
    UNIQUE,
    UNKNOWN_OFFSET,
    WRONG_CRC,
    ZERO,
    Doubt,
)
from rmqinspect.schemas import dledger, message
from rmqinspect.schemas.message import WELL_KNOWN, SysFlag
from rmqinspect.schemas.places import place_of

if cython.compiled:
    pass  # records.pxd has them
else:
    from rmqinspect.loops.arrays import Bytes, ByteTableOut, Int32Table, Int32TableOut, Ints, IntsOut, Table, TableOut
    from rmqinspect.loops.loads import byte_at, crc32_of, find_bytes, int16_at, int32_at, int64_at, same_bytes
    from rmqinspect.loops.text import as_int, index_hash_of, java_hash
    from rmqinspect.loops.uncompiled import take_arrays

COMPILED: bool = cython.compiled

_HEAD = message.HEADS[False, False]
(
    _TOTAL_SIZE,
    _MAGIC,
    _BODY_CRC,
    _QUEUE_ID,
    _FLAG,
    _QUEUE_OFFSET,
    _PHYSICAL_OFFSET,
    _SYS_FLAG,
    _BORN_TIMESTAMP,
    _BORN_HOST,
    _STORE_TIMESTAMP,
    _STORE_HOST,
    _RECONSUME_TIMES,
    _PREPARED_OFFSET,
    _BODY_SIZE,
) = (place_of(_HEAD, field.name) for field in _HEAD.subcons)
_HEAD_SIZE = _HEAD.sizeof()
_PORT_V4, _PORT_V6 = (place_of(host, "port") for host in (message.HostV4, message.HostV6))
_WIDER = message.HostV6.sizeof() - message.HostV4.sizeof()  # what an IPv6 host moves all after it
_BORN_V6, _STORE_V6 = int(SysFlag.BORNHOST_V6), int(SysFlag.STOREHOSTADDRESS_V6)
_V1, _V2 = message.RECORD_MAGICS
_FIXED_SIZE = message.FIXED_SIZE
_TOPIC_SIZE_V1, _TOPIC_SIZE_V2 = 1, 2  # bytes of the topic's length
_PROPERTIES_SIZE = _FIXED_SIZE - _HEAD_SIZE - _TOPIC_SIZE_V1  # of that of the properties

_CRC_MASK = message.CRC_MASK
_CRC32_SIZE = message.CRC32_RESERVED_SIZE
_CRC32_NAME = int.from_bytes(message.CRC32_NAME, "big", signed=True)
_CRC32_NAME_SIZE, _CRC32_DIGITS = len(message.CRC32_NAME), message.CRC32_DIGITS
_SEPARATOR, _END_OF_ITEM = message.NAME_VALUE_SEPARATOR, message.PROPERTY_SEPARATOR
_SPACE, _ZERO = ord(" "), ord("0")  # a space: MessageConst.KEY_SEPARATOR
_BRIDGE_FLAG, _ROLLED_BACK = message.BRIDGE_FLAG, message.TRANSACTION_MASK
_TRANSACTION_MASK, _COMMIT = message.TRANSACTION_MASK, int(SysFlag.TRANSACTION_COMMIT)
_UNCOUNTED = int(SysFlag.TRANSACTION_PREPARED)  # the bit that prepared and rollback records share
_COMPRESSION_MASK, _COMPRESSION_SHIFT = message.COMPRESSION_MASK, message.COMPRESSION_SHIFT
_LAST_COMPRESSION = len(message.COMPRESSIONS) - 1
_LAST_OFFSET = 2**63 - 1

_UNIQ_KEY, _KEYS, _TAGS, _REAL, _DELAY, _INNER_NUM = map(
    WELL_KNOWN.index, (b"UNIQ_KEY", b"KEYS", b"TAGS", b"REAL_TOPIC", b"DELAY", b"INNER_NUM")
)

_DELAY_DIGITS, _NUMBER_DIGITS, _BASE_DIGITS = 9, 4, 18  # that always fit into an int, a short, a long
_IPV6_FLAGS = int(SysFlag.BORNHOST_V6 | SysFlag.STOREHOSTADDRESS_V6)
_BODY_CRC_BIT, _V2_BIT, _IPV6_BIT = int(Doubt.BODY_CRC), int(Doubt.V2), int(Doubt.IPV6)
_DELAY_BIT, _INNER_BIT = int(Doubt.DELAY), int(Doubt.INNER)
_ABSENT, _PLAIN_NUMBER, _ODD = range(3)

_ENTRY_HEAD = dledger.EntryHead.sizeof()
_ENTRY_MAGIC, _ENTRY_SIZE, _ENTRY_INDEX, _ENTRY_TERM, _ENTRY_POSITION, _ENTRY_BODY_SIZE = (
    place_of(dledger.EntryHead, name) for name in ("magic", "size", "index", "term", "position", "body_size")
)
_FIRST_ENTRY_MAGIC, _LAST_ENTRY_MAGIC = min(dledger.ENTRY_MAGICS), max(dledger.ENTRY_MAGICS)
_ENTRY_MAGIC_1 = dledger.ENTRY_MAGICS[0]  # the recovery refuses those of later versions of the library, too
_ENTRY_BLANK = dledger.ENTRY_MAGIC_BLANK


def _read_record(raw: Bytes, at: int, rows: TableOut, row: int) -> None:
    """Write what stands at `at`, which is at most len(raw) - SLACK."""
    flags = int32_at(raw, at + _SYS_FLAG)
    born_v6, store_v6 = flags & _BORN_V6, flags & _STORE_V6
    behind_born = at + (_WIDER if born_v6 else 0)
    behind_store = behind_born + (_WIDER if store_v6 else 0)
    total_size, magic = int32_at(raw, at + _TOTAL_SIZE), int32_at(raw, at + _MAGIC)
    body_size = int32_at(raw, behind_store + _BODY_SIZE)
    rows[row, START] = at
    rows[row, TOTAL_SIZE] = total_size
    rows[row, MAGIC] = magic
    rows[row, BODY_CRC] = int32_at(raw, at + _BODY_CRC)
    rows[row, QUEUE_ID] = int32_at(raw, at + _QUEUE_ID)
    rows[row, FLAG] = int32_at(raw, at + _FLAG)
    rows[row, QUEUE_OFFSET] = int64_at(raw, at + _QUEUE_OFFSET)
    rows[row, PHYSICAL_OFFSET] = int64_at(raw, at + _PHYSICAL_OFFSET)
    rows[row, SYS_FLAG] = flags
    rows[row, BORN_TIMESTAMP] = int64_at(raw, at + _BORN_TIMESTAMP)
    rows[row, BORN_HOST] = at + _BORN_HOST
    rows[row, BORN_PORT] = int32_at(raw, at + _BORN_HOST + (_PORT_V6 if born_v6 else _PORT_V4))
    rows[row, STORE_TIMESTAMP] = int64_at(raw, behind_born + _STORE_TIMESTAMP)
    rows[row, STORE_HOST] = behind_born + _STORE_HOST
    rows[row, STORE_PORT] = int32_at(raw, behind_born + _STORE_HOST + (_PORT_V6 if store_v6 else _PORT_V4))
    rows[row, RECONSUME_TIMES] = int32_at(raw, behind_store + _RECONSUME_TIMES)
    rows[row, PREPARED_OFFSET] = int64_at(raw, behind_store + _PREPARED_OFFSET)
    rows[row, BODY_SIZE] = body_size
    rows[row, END] = at + total_size
    rows[row, BODY_START] = behind_store + _HEAD_SIZE
    # A damaged length can point anywhere: what stands there is read inside of the window, and judged later.
    last = len(raw) - SLACK
    body_end = behind_store + _HEAD_SIZE + max(body_size, 0)
    topic_size_at = min(body_end, last)
    if magic == _V2:
        topic_size, topic_start = int16_at(raw, topic_size_at), topic_size_at + _TOPIC_SIZE_V2
    else:
        topic_size, topic_start = byte_at(raw, topic_size_at), topic_size_at + _TOPIC_SIZE_V1
    topic_end = topic_start + topic_size  # a negative size stays: it is damage
    properties_size = int16_at(raw, min(max(topic_end, 0), last))
    rows[row, BODY_END] = body_end
    rows[row, TOPIC_START] = topic_start
    rows[row, TOPIC_END] = topic_end
    rows[row, PROPERTIES_START] = topic_end + _PROPERTIES_SIZE
    rows[row, PROPERTIES_END] = topic_end + _PROPERTIES_SIZE + max(properties_size, 0)


def _is_sound(rows: Table, row: int, filled: int) -> bool:
    """Whether a row has a magic, a plausible size, and lengths that add up to it; `filled`: where the bytes end."""
    magic, end = rows[row, MAGIC], rows[row, END]
    if magic != _V1 and magic != _V2:
        return False
    if rows[row, TOTAL_SIZE] < _FIXED_SIZE or end > filled:
        return False
    if rows[row, BODY_END] >= end or rows[row, TOPIC_START] > rows[row, TOPIC_END]:
        return False
    return rows[row, PROPERTIES_END] == end


def _is_wrapped(raw: Bytes, entry: int, lead: int, rows: Table, row: int) -> bool:
    """Whether the DLedger entry head at `entry` agrees with the record behind it."""
    magic, total_size = int32_at(raw, entry + _ENTRY_MAGIC), rows[row, TOTAL_SIZE]
    if magic < _FIRST_ENTRY_MAGIC or magic > _LAST_ENTRY_MAGIC:
        return False
    if int32_at(raw, entry + _ENTRY_BODY_SIZE) != total_size:
        return False
    return int32_at(raw, entry + _ENTRY_SIZE) == total_size + lead


def follow(raw: Bytes, at: int, filled: int, lead: int, rows: TableOut) -> int:
    """Write a row for each record of the chain from the index `at` on, as many as `rows` holds; return their number.

    Ends in front of the first one that is not sound, or that goes on behind `filled`, where the window's bytes end.
    `lead`: bytes of DLedger entry head before each record.
    """
    with cython.nogil:
        count = 0
        # A sound record ends behind its begin, and at most at `filled`: the walk only moves forward.
        while count < len(rows) and at + lead + _FIXED_SIZE <= filled:
            _read_record(raw, at + lead, rows, count)
            if not _is_sound(rows, count, filled):
                break
            if lead > 0 and not _is_wrapped(raw, at, lead, rows, count):
                break
            at = rows[count, END]
            count += 1
        return count


def first_bridge(rows: Table, start: int) -> int:
    """Return the first row from `start` on that is a bridge, else the number of rows.

    A bridge is what `rmqinspect salvage` writes over a gap: FLAG and the type rollback, as `schemas.message` says.
    """
    with cython.nogil:
        for row in range(start, len(rows)):
            if rows[row, FLAG] == _BRIDGE_FLAG and rows[row, SYS_FLAG] == _ROLLED_BACK:
                return row
        return len(rows)


def read_records(raw: Bytes, starts: Ints, rows: TableOut) -> None:
    """Write a row for what stands at each of some indexes, at most len(raw) - SLACK."""
    with cython.nogil:
        for row in range(len(starts)):
            _read_record(raw, starts[row], rows, row)


def judge_soundness(rows: Table, filled: int, sound: IntsOut) -> None:
    """Write 1 for each row that is sound, else 0; see `_is_sound`."""
    with cython.nogil:
        for row in range(len(rows)):
            sound[row] = 1 if _is_sound(rows, row, filled) else 0


def body_crcs(address: int, raw: Bytes, rows: Table, crcs: IntsOut) -> None:
    """Write the CRC-32 of each stored body, masked as the broker stores it."""
    with cython.nogil:
        for row in range(len(rows)):
            start, end = min(rows[row, BODY_START], len(raw)), min(rows[row, BODY_END], len(raw))
            crcs[row] = crc32_of(address, raw, start, end - start) & _CRC_MASK


def record_crcs(address: int, raw: Bytes, rows: Table, found: IntsOut) -> int:
    """Write whether each record's property `__CRC32#` is there and right; return how many are there.

    It is the last property, of fixed size: name, separator, ten digits with the least significant first, separator.
    Source: CommitLog#checkMessageAndReturnSize with forceVerifyPropCRC, 5.2.0.
    """
    with cython.nogil:
        count = 0
        for row in range(len(rows)):
            start, end = rows[row, START], rows[row, END]
            at = end - _CRC32_SIZE
            found[row] = NO_CRC
            if rows[row, PROPERTIES_END] - rows[row, PROPERTIES_START] < _CRC32_SIZE or at < start or end > len(raw):
                continue
            if int64_at(raw, at) != _CRC32_NAME:
                continue
            digits = at + _CRC32_NAME_SIZE + 1
            sound = raw[digits - 1] == _SEPARATOR and raw[digits + _CRC32_DIGITS] == _END_OF_ITEM
            stored = 0  # below 10^10
            for place in range(_CRC32_DIGITS):
                digit = raw[digits + _CRC32_DIGITS - 1 - place] - _ZERO
                sound = sound and 0 <= digit <= 9
                stored = stored * 10 + digit
            right = sound and stored == crc32_of(address, raw, start, at - start) & _CRC_MASK
            found[row] = RIGHT_CRC if right else WRONG_CRC
            count += 1
        return count


def broken_rules(rows: Table, base: int, before: int) -> int:
    """Return which rules some record breaks, nearly always none; `before`: store timestamp of the record before."""
    with cython.nogil:
        broken = 0
        for row in range(len(rows)):
            if rows[row, PHYSICAL_OFFSET] != base + rows[row, START]:
                broken |= OFFSET_RULE
            ports = rows[row, BORN_PORT] | rows[row, STORE_PORT]
            kind = (rows[row, SYS_FLAG] & _COMPRESSION_MASK) >> _COMPRESSION_SHIFT
            places = 0 <= rows[row, QUEUE_OFFSET] <= LAST_PLACE and rows[row, QUEUE_ID] >= 0
            if not places or not 0 <= ports <= LAST_PORT or kind > _LAST_COMPRESSION:
                broken |= FIELD_RULE
            time = rows[row, STORE_TIMESTAMP]
            if time < before:
                broken |= TIME_RULE
            before = time
        return broken


def _plus(offset: int, steps: int) -> int:
    return offset + steps if offset <= _LAST_OFFSET - steps else _LAST_OFFSET


def follow_queues(
    rows: Table,
    numbers: Ints,
    steps: Ints,
    base: int,
    after_gap: int,
    queues: TableOut,
    jumps: TableOut,
    undone: IntsOut,
) -> int:
    """Write (row, queue, expected, found) of each jump; return jumps * 2^32 + places of jumps that were undone.

    `steps`: how many offsets each record takes, empty where all take one.

    One damaged number, or one record that strayed in from another queue, makes two jumps: away and back. Only the
    first is written; the next record of the queue may undo it.
    """
    with cython.nogil:
        found = back = 0
        for row in range(len(rows)):
            if rows[row, SYS_FLAG] & _UNCOUNTED:
                continue
            queue, offset, place = numbers[row], rows[row, QUEUE_OFFSET], base + rows[row, START]
            step = steps[row] if len(steps) > 0 else 1
            wanted, jumped = queues[queue, NEXT_OFFSET], queues[queue, JUMPED]
            queues[queue, NEXT_OFFSET] = _plus(offset, step)
            queues[queue, JUMPED] = 0
            if wanted == UNKNOWN_OFFSET:
                if after_gap == 0 and queues[queue, FIRST_PLACE] < 0:
                    queues[queue, FIRST_OFFSET] = offset
                    queues[queue, FIRST_PLACE] = place
            elif offset != wanted:
                if jumped and offset == queues[queue, JUMP_END]:
                    undone[back] = queues[queue, JUMP_PLACE]
                    back += 1
                elif not jumped or offset != queues[queue, JUMP_WANTED]:
                    queues[queue, JUMPED] = 1
                    queues[queue, JUMP_WANTED] = wanted
                    queues[queue, JUMP_END] = _plus(wanted, step)
                    queues[queue, JUMP_PLACE] = place
                    jumps[found, 0] = row
                    jumps[found, 1] = queue
                    jumps[found, 2] = wanted
                    jumps[found, 3] = offset
                    found += 1
        return (found << 32) | back


def add_to_sums(rows: Table, messages: Ints, numbers: Ints, sums: TableOut) -> None:
    """Add each record to the sums of its value; without `messages` each is one."""
    with cython.nogil:
        for row in range(min(len(rows), len(numbers))):
            value, time = numbers[row], rows[row, STORE_TIMESTAMP]
            if 0 <= value < len(sums):
                sums[value, SUM_RECORDS] += 1
                sums[value, SUM_MESSAGES] += messages[row] if row < len(messages) else 1
                sums[value, SUM_BYTES] += rows[row, TOTAL_SIZE]
                sums[value, SUM_FIRST] = min(sums[value, SUM_FIRST], time)
                sums[value, SUM_LAST] = max(sums[value, SUM_LAST], time)


def has_queue_unit(sys_flag: int) -> bool:
    """Return whether records get queue units: not prepared and rolled back ones.

    Source: CommitLogDispatcherBuildConsumeQueue#dispatch.
    """
    return sys_flag & _TRANSACTION_MASK in (0, _COMMIT)


def dispatch(
    asked: int,
    raw: Bytes,
    base: int,
    rows: Table,
    known: Int32Table,
    name_ends: Ints,
    value_ends: Ints,
    queues: Ints,
    prefixes: Table,
    sound: Bytes,
    first: int,
    used: IntsOut,
    numbers: TableOut,
    smaller: Int32TableOut,
    flags: ByteTableOut,
    keys: Int32TableOut,
    kinds: ByteTableOut,
) -> int:
    """Add the records from `first` on; return the first one for which there is no room, else their number.

    Items are those of `codec.properties`, which proved that they are inside of `raw`; `queues` are rows of `prefixes`.
    """
    with cython.nogil:
        count, key = used[0], used[1]
        for at in range(first, len(rows)):
            tags, words = known[_TAGS, at], known[_KEYS, at]
            most = 3  # UNIQ_KEY in both forms, and TAGS
            if words >= 0:
                most += (value_ends[words] - name_ends[words]) // 2  # words of one byte, with a space between
            if count >= numbers.shape[1] or key + most > keys.shape[1]:
                used[0], used[1] = count, key
                return at
            transaction = rows[at, SYS_FLAG] & _TRANSACTION_MASK
            numbers[TO_PHYSICAL_OFFSET, count] = base + rows[at, START]
            smaller[TO_SIZE, count] = rows[at, TOTAL_SIZE]
            smaller[TO_QUEUE, count] = queues[at]
            numbers[TO_QUEUE_OFFSET, count] = rows[at, QUEUE_OFFSET]
            numbers[TO_STORE_TIMESTAMP, count] = rows[at, STORE_TIMESTAMP]
            smaller[TO_TAGS_CODE, count] = 0
            if tags >= 0:
                smaller[TO_TAGS_CODE, count] = as_int(java_hash(raw, name_ends[tags] + 1, value_ends[tags], 0))
            smaller[TO_MESSAGES, count] = 1
            item = known[_INNER_NUM, at]
            if asked & ASKED_BATCHES and item >= 0:
                smaller[TO_MESSAGES, count] = _small_number(raw, name_ends[item] + 1, value_ends[item])
            smaller[TO_REAL_TOPIC, count] = 0
            item = known[_REAL, at]
            if asked & ASKED_REAL_TOPICS and item >= 0:
                smaller[TO_REAL_TOPIC, count] = as_int(java_hash(raw, name_ends[item] + 1, value_ends[item], 0))
            flags[TO_ENTITLED, count] = has_queue_unit(transaction)
            flags[TO_SOUND, count] = sound[at]
            flags[TO_DELAYED, count] = known[_DELAY, at] >= 0
            flags[TO_HAS_TAGS, count] = tags >= 0 and transaction != _TRANSACTION_MASK
            smaller[TO_KEY_COUNT, count] = 0
            if asked & ASKED_KEY_COUNTS and transaction != _TRANSACTION_MASK:
                number = 1 if known[_UNIQ_KEY, at] >= 0 else 0
                if words >= 0:
                    number += _count_words(raw, name_ends[words] + 1, value_ends[words])
                smaller[TO_KEY_COUNT, count] = number
            if asked & ASKED_INDEX_KEYS and transaction != _TRANSACTION_MASK:  # rollback has both bits
                prefix, item = prefixes[queues[at], PLAIN], known[_UNIQ_KEY, at]
                if item >= 0:
                    hashed = java_hash(raw, name_ends[item] + 1, value_ends[item], prefix)
                    key = _add_key(keys, kinds, key, count, hashed, UNIQUE)
                    if asked & ASKED_ID_MARKS:
                        hashed = java_hash(raw, name_ends[item] + 1, value_ends[item], prefixes[queues[at], MARKED])
                        key = _add_key(keys, kinds, key, count, hashed, MARKED_ID)
                if words >= 0:
                    start, end = name_ends[words] + 1, value_ends[words]
                    for stop in range(start, end + 1):
                        if stop == end or raw[stop] == _SPACE:
                            if start < stop:
                                key = _add_key(keys, kinds, key, count, java_hash(raw, start, stop, prefix), KEY)
                            start = stop + 1
                if asked & ASKED_TAG_KEYS and tags >= 0:
                    hashed = java_hash(raw, name_ends[tags] + 1, value_ends[tags], prefixes[queues[at], TAGGED])
                    key = _add_key(keys, kinds, key, count, hashed, TAG)
            count += 1
        used[0], used[1] = count, key
        return len(rows)


def _count_words(raw: Bytes, start: int, end: int) -> int:
    """Return the number of words in a text, between spaces."""
    number, before = 0, _SPACE
    for at in range(start, end):
        if before == _SPACE and raw[at] != _SPACE:
            number += 1
        before = raw[at]
    return number


def _add_key(keys: Int32TableOut, kinds: ByteTableOut, key: int, record: int, hashed: int, kind: int) -> int:
    """Add a key, for which there is room; return the number of keys."""
    keys[TO_KEY_RECORD, key] = record
    keys[TO_KEY_HASH, key] = index_hash_of(hashed)
    kinds[0, key] = kind
    return key + 1


def _small_number(raw: Bytes, start: int, end: int) -> int:
    """Return a decimal number of at most five digits; 1 for any other text."""
    number = 0 if end - start < 6 else -1
    for at in range(start, end):
        digit = raw[at] - _ZERO
        number = 10 * number + digit if 0 <= digit <= 9 and number >= 0 else -1
    return number if number >= 0 else 1


def doubt_records(address: int, raw: Bytes, rows: Table, texts: Bytes, body_crc: int, doubts: IntsOut) -> None:
    """Write the doubts of each row; all rows are sound, so every place of theirs is inside."""
    with cython.nogil:
        for row in range(len(rows)):
            doubt = 0
            body, body_end = rows[row, BODY_START], rows[row, BODY_END]
            if body_crc != 0 and body < body_end:
                stored = rows[row, BODY_CRC]
                if crc32_of(address, raw, body, body_end - body) & _CRC_MASK != stored:
                    doubt |= _BODY_CRC_BIT
            if rows[row, MAGIC] == _V2:
                doubt |= _V2_BIT
            if rows[row, SYS_FLAG] & _IPV6_FLAGS != 0:
                doubt |= _IPV6_BIT
            start, end = rows[row, PROPERTIES_START], rows[row, PROPERTIES_END]
            topic, topic_end = rows[row, TOPIC_START], rows[row, TOPIC_END]
            size = topic_end - topic
            is_delayed = size == len(texts) - AT_TOPIC and same_bytes(raw, topic, texts, AT_TOPIC, size)
            if is_delayed and _number_after(raw, start, end, texts, AT_DELAY, AT_NUMBER, _DELAY_DIGITS) == _ODD:
                doubt |= _DELAY_BIT
            number = _number_after(raw, start, end, texts, AT_NUMBER, AT_BASE, _NUMBER_DIGITS)
            if number != _ABSENT:
                base = _number_after(raw, start, end, texts, AT_BASE, AT_TOPIC, _BASE_DIGITS)
                if base != _ABSENT and (number == _ODD or base == _ODD):
                    doubt |= _INNER_BIT
            doubts[row] = doubt


def _number_after(raw: Bytes, start: int, end: int, texts: Bytes, first: int, beyond: int, digits: int) -> int:
    """Say whether `texts[first:beyond]`, a name and its separator, is in a text, and always before a plain number.

    A plain number has at most so many ASCII digits, and then its item ends.
    """
    found = _ABSENT
    at = find_bytes(raw, start, end, texts, first, beyond)
    while at >= 0:
        at += beyond - first
        last = at
        while last < end and last - at <= digits and 0 <= raw[last] - _ZERO <= 9:
            last += 1
        plain = at < last <= at + digits and (last == end or raw[last] == _END_OF_ITEM)
        if not plain:
            return _ODD
        found = _PLAIN_NUMBER
        at = find_bytes(raw, last, end, texts, first, beyond)
    return found


def follow_dledger(raw: Bytes, filled: int, first: int, base: int, left: int, state: IntsOut) -> int:
    """Follow entries from `first` on; return where that stopped. `left`: bytes of the file from raw[0] on."""
    with cython.nogil:
        at = first
        while at + _ENTRY_HEAD <= filled:
            magic, size = int32_at(raw, at + _ENTRY_MAGIC), int32_at(raw, at + _ENTRY_SIZE)
            index, term = int64_at(raw, at + _ENTRY_INDEX), int64_at(raw, at + _ENTRY_TERM)
            if magic == _ENTRY_BLANK:
                state[STOP] = BLANK
                return at
            if size == 0:
                state[STOP] = ZERO
                return at
            if int64_at(raw, at + _ENTRY_POSITION) != base + at:
                state[STOP] = BAD_PLACE
                return at
            if int32_at(raw, at + _ENTRY_BODY_SIZE) != size - _ENTRY_HEAD or size <= _ENTRY_HEAD or size > left - at:
                state[STOP] = BAD_SIZE
                return at
            if magic != _ENTRY_MAGIC_1:
                state[STOP] = BAD_MAGIC
                return at
            if (state[LAST_INDEX] != -1 and index - 1 != state[LAST_INDEX]) or term < state[LAST_TERM]:
                state[STOP] = BAD_ORDER
                return at
            state[LAST_INDEX] = index
            state[LAST_TERM] = term
            at += size
        state[STOP] = MORE
        return at


if cython.compiled:
    pass
else:
    take_arrays(__name__)
