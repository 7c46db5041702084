"""One walk over the units of a queue: totals, the runs that point into one split, and what deviates."""

from rmqinspect.codec.kernels import Bytes, Ints, IntsOut, TableOut, int16_at, int32_at, int64_at, kernel
from rmqinspect.consumequeue.unit_bytes import MESSAGES, OFFSET, PLACE, SIZE, STORED, TAGS, UNIT_SIZE, is_filler
from rmqinspect.verify.runs import split_of

# What the units of a queue add up to: positions in the array that `survey_units` goes on with.
(
    UNITS,  # of messages
    EXPIRED,  # of those, such as point before the log's start
    ZERO_BEHIND,  # or at 0, while the log begins later
    MIN_OFFSET,  # of the first that points into the log, and where it points; -1: none yet
    FIRST_PLACE,
    MAX_OFFSET,  # behind the last valid unit
    LAST_PLACE,  # that the last unit of a message points at; -1: none yet
    LAST_TIME,  # its store time; 0 for units without one
    DISORDER,  # 1: a unit points at or before the record of the unit before it, or is older
    LAST_USED,  # number of the last used row in the queue
    NEXT_OFFSET,  # that the next batch unit must begin with
    SPLIT,  # that the last run points into
    RUNS,  # found so far, also those for which the table has no room
    DEVIATIONS,  # in the table
    TOTALS,
) = range(15)

UNKNOWN = -2  # LAST_USED, NEXT_OFFSET or SPLIT: nothing to compare with

HOLE, INVALID, COUNT = range(3)  # kinds of deviations

_MOST_PER_UNIT = 2  # deviations: a hole before it, and one of the others
_LAST_OFFSET = 2**63 - 1


@kernel
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
    low = high = 0  # what the split of the unit before holds; at first not known
    split, last_used, units, max_offset = totals[SPLIT], totals[LAST_USED], totals[UNITS], totals[MAX_OFFSET]
    last_place, last_time, disorder = totals[LAST_PLACE], totals[LAST_TIME], totals[DISORDER]
    count, found, next_offset = totals[RUNS], totals[DEVIATIONS], totals[NEXT_OFFSET]
    reached = totals[MIN_OFFSET] >= 0
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
        max_offset = offset + min(messages, _LAST_OFFSET - offset)
        if is_filler(place, size, tags):
            continue
        units += 1
        if not reached:
            reached = place >= log_start
            if reached:
                totals[MIN_OFFSET], totals[FIRST_PLACE] = offset, place
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
            high = borders[border + 1] if border + 1 < len(borders) else _LAST_OFFSET
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
