"""Loops over what points at records: queue units and index entries, by themselves and side by side with the records.

    record of the log      the next unit of its queue
    100  orders/0          100     right
    220  orders/1          220     right
    340  orders/0          341     not the record's: its own is searched for, and the two are judged
    520  orders/0          520     right

A unit that points too far ahead holds up those after it: their records are searched for as well. Every unit is judged
by the same rules; what breaks one is written down with the bits of its verdict, which `verify` words. So are entries,
which come in the order of records and keys:

    keys of records    a1 a2 b1 b2 b3 c1 ...
    entries            a1 a2 b1 b3 xx c1 ...      b2 has no entry; xx leads to a record without such a key

Source: ConsumeQueue#putMessagePositionInfo, #recover, #correctMinOffset, #fillPreBlank, BatchConsumeQueue,
IndexFile#putKey, #selectPhyOffset.
"""

# mypy: disable-error-code="no-any-return"

try:
    import cython
except ImportError:  # where nothing is compiled
    from rmqinspect.loops.uncompiled import cython

from rmqinspect.loops.pointer_rows import (
    AT_EDGE,
    BEGIN_PLACE,
    BEGIN_TIME,
    BEHIND,
    BROKEN_ROW,
    COUNT,
    DANGLING,
    DEVIATIONS,
    DISORDER,
    END_PLACE,
    END_TIME,
    ENTRY_COUNT,
    ENTRY_SIZE,
    EXPECTED,
    EXPIRED,
    FAR,
    FIRST_KEPT,
    FIRST_PLACE,
    FOUND,
    FURTHER_UNIT,
    GOES_ON,
    HASH,
    HOLE,
    IN_EXT,
    INVALID,
    JOINED,
    KEY_BITS,
    KIND,
    LAST_PLACE,
    LAST_TIME,
    LAST_USED,
    LINK,
    LOOP,
    MARK_LOST,
    MARK_NAMED,
    MAX_OFFSET,
    MESSAGES,
    MOVED,
    MOVED_JOINED,
    MOVED_LEFT,
    NEXT,
    NEXT_OFFSET,
    NOT_ENTITLED,
    OF_FURTHER,
    OFFSET,
    OUTSIDE,
    OWN_UNIT,
    PLACE,
    QUEUE,
    RECORD,
    ROW,
    RUNS,
    SCHEDULED,
    SHIFT,
    SHIFTED,
    SIZE,
    SPLIT,
    STORED,
    TAGS,
    UNIT_SIZE,
    UNITS,
    UNKNOWN,
    UNWRITTEN,
    USED_SLOTS,
    VERDICT,
    WANTED,
    WRONG_COUNT,
    WRONG_DELAY,
    WRONG_ENTRY_TIME,
    WRONG_KEY,
    WRONG_QUEUE,
    WRONG_RECORD,
    WRONG_SIZE,
    WRONG_TAGS,
    WRONG_TIME,
    WRONG_UNIT,
    ZERO_BEHIND,
)
from rmqinspect.schemas.consumequeue import EXT_ADDRESS_MAX, PRE_BLANK_SIZE
from rmqinspect.schemas.index import IndexEntry
from rmqinspect.schemas.places import place_of

if cython.compiled:
    pass  # pointers.pxd has them
else:
    from rmqinspect.loops.arrays import Bytes, BytesOut, Int32s, Int32sOut, Ints, IntsOut, TableOut
    from rmqinspect.loops.loads import int16_at, int32_at, int64_at
    from rmqinspect.loops.uncompiled import take_arrays

COMPILED: bool = cython.compiled

_FIRST_LONG, _LAST_LONG, _MAX_INT = -(2**63), 2**63 - 1, 2**31 - 1  # Java's
_32_BITS = 0xFFFFFFFF
_SECOND = 1000  # ms
_MOST_PER_UNIT = 2  # deviations: a hole before it, and one of the others
_STRANGE, _OWN, _FURTHER = range(3)  # what a queue is to a record
_NEAR = 4  # keys looked at one by one from the next one on
_ENTRY_PLACE, _ENTRY_HASH, _ENTRY_SECONDS, _ENTRY_PREVIOUS = (
    place_of(IndexEntry, name) for name in ("physical_offset", "key_hash", "time_diff", "previous")
)


def is_filler(place: int, size: int, tags: int) -> bool:
    """Return whether a unit is pre-blank filler: what a broker writes as such. Of arrays see `units.filler_units`.

    A size of 2147483647 alone is a damaged unit of a message. No reader of a broker tells filler from other units:
    recovery accepts it, and getMessage finds no record where it points. Source: ConsumeQueue#fillPreBlank, #recover.
    """
    return size == PRE_BLANK_SIZE and place == 0 and tags == 0


def split_of(borders: Ints | Int32s, place: int) -> int:
    """Return the number of the last border at or before a physical offset, -1 without one."""
    low, high = 0, len(borders)
    while low < high:
        middle = (low + high) // 2
        if borders[middle] <= place:
            low = middle + 1
        else:
            high = middle
    return low - 1


def start_at(starts: Ints, place: int) -> int:
    """Return the number of the record that starts at a physical offset, -1 without one; `starts` ascend."""
    at = split_of(starts, place)
    return at if at >= 0 and starts[at] == place else -1


def cut_at_borders(offsets: Ints, borders: Ints, runs: TableOut) -> int:
    """Fill `runs` with (split, first row, last row); return how many there are, also those without room."""
    with cython.nogil:
        count, low, high = 0, 0, -1  # offsets [low, high] are of the last run's split; at first there is none
        for row in range(len(offsets)):
            if not low <= offsets[row] <= high:
                split = split_of(borders, offsets[row])
                low = borders[split] if split >= 0 else _FIRST_LONG
                high = borders[split + 1] - 1 if split + 1 < len(borders) else _LAST_LONG
                if count < len(runs):
                    runs[count, 0], runs[count, 1] = split, row
                count += 1
            if 0 < count <= len(runs):
                runs[count - 1, 2] = row
        return count


def survey_units(
    raw: Bytes,
    unit_size: int,
    row: int,
    behind: int,
    first: int,
    borders: Ints,
    log_start: int,
    totals: IntsOut,
    runs: TableOut,
    deviations: TableOut,
) -> int:
    """Add rows [row, behind) of a window to `totals`; return the row to go on with, if `deviations` is full.

    `first`: number of the window's first row in the queue; `borders` as `cut_runs` has them. `runs` gets rows of
    (split, first row, last row), of the window's rows. `deviations` gets rows of (kind, row, value):

        HOLE     number of the first unused row in the queue; how many
        INVALID  row of the window
        COUNT    row of the window; the queue offset that a batch unit should begin with
    """
    with cython.nogil:
        low = high = 0  # what the split of the unit before holds; at first not known
        split, last_used, units, max_offset = totals[SPLIT], totals[LAST_USED], totals[UNITS], totals[MAX_OFFSET]
        last_place, last_time, disorder = totals[LAST_PLACE], totals[LAST_TIME], totals[DISORDER]
        count, found, next_offset = totals[RUNS], totals[DEVIATIONS], totals[NEXT_OFFSET]
        reached = totals[FIRST_KEPT] >= 0
        behind = min(behind, len(raw) // unit_size)
        row = max(row, 0)
        # Rows and their numbers are below 2^60, for a file's name is a Java long of bytes.
        while row < behind and found + _MOST_PER_UNIT <= len(deviations):
            at, number, row = row * unit_size, first + row, row + 1
            place, size, tags = int64_at(raw, at + PLACE), int32_at(raw, at + SIZE), int64_at(raw, at + TAGS)
            offset, messages, time = number, 1, 0
            used = place | size | tags
            if unit_size > UNIT_SIZE:
                offset, messages = int64_at(raw, at + OFFSET), int16_at(raw, at + MESSAGES)
                time = int64_at(raw, at + STORED)
                for byte in range(at + UNIT_SIZE, at + unit_size):
                    used |= raw[byte]
            if used == 0:
                continue
            if last_used != UNKNOWN and number - last_used > 1:
                deviations[found, 0], deviations[found, 1] = HOLE, last_used + 1
                deviations[found, 2] = number - last_used - 1
                found += 1
            last_used = number
            if place < 0 or size <= 0 or offset < 0 or messages <= 0:
                deviations[found, 0], deviations[found, 1] = INVALID, row - 1
                found += 1
                continue
            max_offset = offset + min(messages, _LAST_LONG - offset)
            if is_filler(place, size, tags):
                continue
            units += 1
            if not reached:
                reached = place >= log_start
                if reached:
                    totals[FIRST_KEPT], totals[FIRST_PLACE] = offset, place
                elif place == 0:
                    totals[ZERO_BEHIND] += 1
                else:
                    totals[EXPIRED] += 1
            if place <= last_place or time < last_time:
                disorder = 1
            last_place, last_time = place, time
            if unit_size > UNIT_SIZE:
                if next_offset != UNKNOWN and next_offset != offset:
                    deviations[found, 0], deviations[found, 1] = COUNT, row - 1
                    deviations[found, 2] = next_offset
                    found += 1
                next_offset = max_offset
            if place < low or place >= high:
                border = split_of(borders, place)
                low = borders[border] if border >= 0 else 0
                high = borders[border + 1] if border + 1 < len(borders) else _LAST_LONG
                if border != split:
                    split = border
                    if 0 <= count < len(runs):
                        runs[count, 0], runs[count, 1] = split, row - 1
                    count += 1
            if 0 < count <= len(runs):
                runs[count - 1, 2] = row - 1
        totals[SPLIT], totals[LAST_USED], totals[UNITS], totals[MAX_OFFSET] = split, last_used, units, max_offset
        totals[LAST_PLACE], totals[LAST_TIME], totals[DISORDER] = last_place, last_time, disorder
        totals[RUNS], totals[DEVIATIONS], totals[NEXT_OFFSET] = count, found, next_offset
        return row


def step_units(
    raw: Bytes,
    unit_size: int,
    low: int,
    most: int,
    by_recovery: int,
    own_queue: Ints,
    queue: Int32s,
    physical_offset: Ints,
    size: Int32s,
    queue_offset: Ints,
    tags_code: Int32s,
    store_timestamp: Ints,
    messages: Int32s,
    entitled: Bytes,
    delayed: Bytes,
    queues: int,
    further: Ints,
    further_offset: Ints,
    has_further: BytesOut,
    run_of: IntsOut,
    runs: TableOut,
    has_unit: BytesOut,
    wrong: TableOut,
) -> int:
    """Judge the units of messages that point at [low, most]; return how many break a rule.

    `queue` to `delayed` are columns of the records, `own_queue` numbers their queues as `runs` do, and `run_of` has the
    run that each is at, -1: none. `further`, ascending, are record * `queues` + queue of the units by multi-dispatch.
    `by_recovery`: delayed messages may have the hash of their tags. `has_unit` and `has_further` are marked.
    """
    with cython.nogil:
        count = record = rest = 0
        while record < len(has_unit) or rest < len(runs):
            # The next unit of the record's queue; behind the last record, the next of those that are left.
            in_step = record < len(has_unit)
            own, run = -1, rest
            if in_step:
                own, run = queue[record], -1
                if 0 <= own < len(run_of):
                    run = run_of[own]
                if run < 0 or run >= len(runs):
                    record += 1
                    continue
            row = runs[run, NEXT]
            at = row * unit_size
            if row < 0 or row >= runs[run, BEHIND] or at + unit_size > len(raw):
                if in_step:
                    run_of[own] = run + 1 if runs[run, GOES_ON] else -1
                else:
                    rest += 1
                continue
            if not is_judged(raw, at, unit_size, low, most):
                runs[run, NEXT] = row + 1
                continue
            place = int64_at(raw, at + PLACE)
            if in_step and place > physical_offset[record]:
                record += 1
                continue
            runs[run, NEXT] = row + 1
            at_hand = in_step and place == physical_offset[record]
            hit = record if at_hand else start_at(physical_offset, place)
            expected, verdict = 0, DANGLING
            if 0 <= hit < len(has_unit):
                relation, expected, of_record = _OWN, queue_offset[hit], -1
                of_hit = queue[hit]
                if not at_hand and not (0 <= of_hit < len(own_queue) and own_queue[of_hit] == runs[run, QUEUE]):
                    key = hit * queues + runs[run, QUEUE]
                    of_record, relation = split_of(further, key - 1) + 1, _STRANGE
                    if of_record < len(further) and further[of_record] == key:
                        relation, expected = _FURTHER, further_offset[of_record]
                verdict = _judge_unit(
                    raw,
                    at,
                    unit_size,
                    row + runs[run, SHIFT],
                    relation,
                    expected,
                    runs[run, SCHEDULED],
                    by_recovery,
                    size[hit],
                    tags_code[hit],
                    store_timestamp[hit],
                    messages[hit],
                    entitled[hit],
                    delayed[hit],
                )
                if verdict & WRONG_RECORD:
                    has_unit[hit] = has_unit[hit] | WRONG_UNIT
                else:
                    runs[run, JOINED] += 1
                    if relation == _OWN:
                        has_unit[hit] = has_unit[hit] | OWN_UNIT
                    else:
                        has_unit[hit] = has_unit[hit] | FURTHER_UNIT
                        has_further[of_record] = 1
            if verdict == 0 and at_hand:
                record += 1
            if verdict != 0 and count < len(wrong):
                wrong[count, ROW], wrong[count, RECORD], wrong[count, VERDICT] = row, hit, verdict
                wrong[count, EXPECTED] = expected
                count += 1
        return count


def is_judged(raw: Bytes, at: int, unit_size: int, low: int, most: int) -> bool:
    """Return whether a unit is of a message and points at [low, most]."""
    place, size = int64_at(raw, at + PLACE), int32_at(raw, at + SIZE)
    if place < low or place > most or size <= 0:
        return False
    if unit_size > UNIT_SIZE and (int64_at(raw, at + OFFSET) < 0 or int16_at(raw, at + MESSAGES) <= 0):
        return False
    return not is_filler(place, size, int64_at(raw, at + TAGS))


def _judge_unit(
    raw: Bytes,
    at: int,
    unit_size: int,
    offset: int,
    relation: int,
    expected: int,
    scheduled: int,
    by_recovery: int,
    size: int,
    tags_code: int,
    stored: int,
    messages: int,
    entitled: int,
    delayed: int,
) -> int:
    """Return the verdict on a unit with a queue offset, by the record that it points at.

    `relation` is that of the unit's queue to the record, `expected` the queue offset that the record has in it.
    """
    if relation == _STRANGE:
        return WRONG_QUEUE
    if int32_at(raw, at + SIZE) != size:
        return WRONG_SIZE
    if relation == _OWN and entitled == 0:
        return NOT_ENTITLED
    tags = int64_at(raw, at + TAGS)
    if tags <= EXT_ADDRESS_MAX:
        verdict = IN_EXT if relation == _OWN else IN_EXT | OF_FURTHER
    else:
        has_delay = scheduled != 0 and delayed != 0 and relation == _OWN
        verdict = judge_tags(tags, tags_code, stored, has_delay, by_recovery)
    if unit_size > UNIT_SIZE:
        offset = int64_at(raw, at + OFFSET)
        time = int64_at(raw, at + STORED)
        if time != 0 and int16_at(raw, at + MESSAGES) != messages:
            verdict |= WRONG_COUNT
        if time != 0 and time != stored:
            verdict |= WRONG_TIME
    if offset != expected:
        verdict |= SHIFTED
    return verdict


def judge_tags(tags: int, tags_code: int, stored: int, has_delay: int, by_recovery: int) -> int:
    """Return the verdict on a tags code; with a delay it is the time of delivery.

    A recovery may have given delayed messages the hash of their tags. The table of delays is a setting, which is not in
    the store; but a delay is whole seconds, and no single flipped bit of the time keeps it so.
    """
    if tags == tags_code and (by_recovery != 0 or not has_delay):
        return 0
    if not has_delay:
        return WRONG_TAGS
    if tags <= stored or (stored < 0 and tags > _LAST_LONG + stored):
        return WRONG_DELAY
    return 0 if (tags - stored) % _SECOND == 0 else WRONG_DELAY


def judge_all_tags(
    tags: Ints,
    record: Ints,
    has_delay: Bytes,
    by_recovery: int,
    tags_code: Int32s,
    store_timestamp: Ints,
    verdict: IntsOut,
) -> None:
    """Add the verdicts on tags codes that were read from ext units, of the records with these numbers."""
    with cython.nogil:
        for at in range(min(len(tags), len(record), len(has_delay), len(verdict))):
            if 0 <= record[at] < len(tags_code):
                code, stored = tags_code[record[at]], store_timestamp[record[at]]
                verdict[at] = verdict[at] | judge_tags(tags[at], code, stored, has_delay[at] != 0, by_recovery)


def is_written(raw: Bytes, at: int) -> bool:
    """Whether the entry at a position holds anything but zeros. Others were never written, or are lost."""
    held = 0
    for place in range(at, at + ENTRY_SIZE):
        held |= raw[place]
    return held != 0


def java_seconds(begin: int, stored: int) -> int:
    """Return the seconds that a put writes into its entry, given the times of the file's header and of the record, ms.

    Java's division truncates; negative becomes 0, and so does all when the file has no begin. A difference of more than
    a long wraps around. Source: IndexFile#putKey.
    """
    if begin <= 0:
        return 0
    if stored < _FIRST_LONG + begin:
        return _MAX_INT
    return min(max(0, (stored - begin) // 1000), _MAX_INT)


def _key_at(
    key: int, most: int, place: int, key_hash: int, places: Ints, key_record: Int32s, key_hashes: Int32s
) -> int:
    """Return the first of `most` keys, from number `key` on, of the record at a place with a hash; -1 if none is."""
    for at in range(key, min(key + most, len(key_record), len(key_hashes))):
        if key_hashes[at] == key_hash and 0 <= key_record[at] < len(places) and places[key_record[at]] == place:
            return at
    return -1


def step_entries(
    raw: Bytes,
    low: int,
    last: int,
    begin: int,
    first: int,
    newest: int,
    places: Ints,
    times: Ints,
    key_record: Int32s,
    key_hashes: Int32s,
    sorted_keys: Ints,
    key_order: Ints,
    has_entry: BytesOut,
    found: TableOut,
    counts: IntsOut,
) -> None:
    """Judge each entry that points at [low, last], and mark the keys that have one.

    `counts` gets how many have a verdict, rows of `found`, and how many point at a record with their key.

    `first` is the number of the first entry, `newest` that of the file's newest. `begin` is the time of the file's
    header; negative: not to be compared. `sorted_keys` and `key_order` find a key of a record with more than FAR.
    """
    with cython.nogil:
        key, count, known = 0, 0, 0
        for row in range(min(len(raw) // ENTRY_SIZE, len(found))):
            at, number, verdict, record = row * ENTRY_SIZE, first + row, 0, -1
            place, key_hash = int64_at(raw, at + _ENTRY_PLACE), int32_at(raw, at + _ENTRY_HASH)
            if place < low or place > last or (place == 0 and not is_written(raw, at)):
                continue
            this = _key_at(key, _NEAR, place, key_hash, places, key_record, key_hashes)
            if this < 0:
                record = start_at(places, place)
                this = _key_at(
                    split_of(key_record, record - 1) + 1, FAR, place, key_hash, places, key_record, key_hashes
                )
                if this < 0 and record >= 0 and key_hash >= 0:
                    wanted = (record << KEY_BITS) | key_hash
                    of_key = split_of(sorted_keys, wanted - 1) + 1
                    if of_key < len(key_order) and sorted_keys[of_key] == wanted:
                        this = key_order[of_key]
            if 0 <= this < len(has_entry) and key_record[this] < len(times):
                key, record = this + 1, key_record[this]
                has_entry[this] = 1
                known += 1
                seconds = int32_at(raw, at + _ENTRY_SECONDS)
                # The first entry of a file counts its seconds from the end of the file before it, if it was created
                # when that one was full: any number will do.
                if begin >= 0 and seconds != java_seconds(begin, times[record]) and (number > 1 or seconds < 0):
                    verdict = WRONG_ENTRY_TIME
                if begin >= 0 and (number == 1 or newest - 1 <= number <= newest):
                    verdict |= AT_EDGE
            else:
                verdict = WRONG_KEY if record >= 0 else DANGLING
            if verdict:
                found[count, ROW], found[count, RECORD], found[count, VERDICT] = row, record, verdict
                count += 1
        counts[0], counts[1] = count, known


def follow_chains(
    raw: Bytes, first: int, slots: int, low: int, newest: int, heads: Int32sOut, marks: BytesOut, broken: TableOut
) -> int:
    """Follow the chains through entries, the first of which has the number `first`; return the broken ones' number.

    `low`: of the slot of heads[0]. Numbers of entries and slots are below 2^31.
    """
    with cython.nogil:
        count, rows = 0, min(len(raw) // ENTRY_SIZE, len(marks) - first, len(broken))
        for row in range(rows):
            at, number, kind, expected = row * ENTRY_SIZE, first + row, 0, 0
            key_hash, previous = int32_at(raw, at + _ENTRY_HASH), int32_at(raw, at + _ENTRY_PREVIOUS)
            if key_hash < 0:
                kind = HASH
            elif key_hash | previous == 0 and not is_written(raw, at):
                kind = UNWRITTEN
            else:
                slot = key_hash % slots - low
                if slot < 0 or slot >= len(heads):
                    continue
                expected = heads[slot]
                heads[slot] = number
                if previous == expected:
                    continue
                kind = OUTSIDE if previous < 0 or previous > newest else LOOP if previous >= number else LINK
            marks[number] = marks[number] | (MARK_NAMED if kind > HASH else MARK_LOST)
            if kind > HASH or low == 0:  # entries of no slot are reported once, in the first pass
                broken[count, BROKEN_ROW], broken[count, KIND] = row, kind
                broken[count, FOUND], broken[count, WANTED] = previous, expected
                count += 1
        return count


def explain_links(marks: BytesOut, broken: TableOut) -> None:
    """Take the kind from links that follow from a marked entry, and mark what the others name."""
    with cython.nogil:
        for row in range(len(broken)):
            found, expected, moved = broken[row, FOUND], broken[row, WANTED], broken[row, MOVED]
            if broken[row, KIND] < LINK or not (0 <= found < len(marks) and 0 <= expected < len(marks)):
                continue
            lost = (marks[found] | marks[expected]) & MARK_LOST
            left, joined = (
                marks[found] & MARK_NAMED and moved & MOVED_LEFT,
                marks[expected] & MARK_NAMED and moved & MOVED_JOINED,
            )
            if lost or left or joined:
                broken[row, KIND] = 0
                continue
            if found:
                marks[found] = marks[found] | MARK_NAMED
            if expected:
                marks[expected] = marks[expected] | MARK_NAMED


def count_keys(entries: int, state: IntsOut, places: Ints, times: Ints, keys: Ints, at: int) -> int:
    """Put the keys of records from one on; return 2^32 * record + key where the file is full, else all records.

    `at` is where to go on, in the same form.
    """
    with cython.nogil:
        record, key = at >> 32, at & _32_BITS
        while record < len(places) and record < len(times) and record < len(keys):
            if key == 0 and state[ENTRY_COUNT] >= entries:
                return record << 32
            if key > 0 or places[record] >= state[END_PLACE]:
                while key < keys[record]:
                    if state[ENTRY_COUNT] >= entries:
                        return record << 32 | key
                    if state[ENTRY_COUNT] <= 1:
                        state[BEGIN_PLACE] = places[record]
                        state[BEGIN_TIME] = times[record]
                    state[ENTRY_COUNT] += 1
                    state[END_PLACE] = places[record]
                    state[END_TIME] = times[record]
                    key += 1
            key = 0
            record += 1
        return len(places) << 32


def put_keys(
    first: int,
    hashes: Int32s,
    records: Int32s,
    places: Ints,
    times: Ints,
    capacity: int,
    counts_slots: int,
    heads: Int32sOut,
    previous: Int32sOut,
    seconds: Int32sOut,
    state: IntsOut,
) -> int:
    """Put keys from number `first` on, as many as the file has room for; return the number of the next one.

    `previous` and `seconds` get a value for each key, `heads` has one for each slot. `counts_slots`: 0 or 1.
    """
    with cython.nogil:
        for key in range(first, min(len(hashes), len(records), len(previous), len(seconds))):
            if state[ENTRY_COUNT] >= capacity:
                return key
            record = records[key]
            time, place = times[record], places[record]
            slot = hashes[key] % len(heads)
            before = heads[slot]
            previous[key] = before
            seconds[key] = java_seconds(state[BEGIN_TIME], time)
            heads[slot] = state[ENTRY_COUNT]
            if state[ENTRY_COUNT] <= 1:
                state[BEGIN_PLACE], state[BEGIN_TIME] = place, time
            if before == 0 or counts_slots == 0:
                state[USED_SLOTS] += 1
            state[ENTRY_COUNT] += 1
            state[END_PLACE], state[END_TIME] = place, time
        return len(hashes)


if cython.compiled:
    pass
else:
    take_arrays(__name__)
