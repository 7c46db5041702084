"""Numbers that `loops.pointers` shares with its callers: places in units and entries, columns of its tables, bits.

A batch unit begins with the fields of a queue unit, so those of both are at the same places.
"""

from rmqinspect.schemas.consumequeue import BatchUnit, QueueUnit
from rmqinspect.schemas.index import IndexEntry
from rmqinspect.schemas.places import place_of

UNIT_SIZE: int = QueueUnit.sizeof()
PLACE, SIZE, TAGS, STORED, OFFSET, MESSAGES = (
    place_of(BatchUnit, name)
    for name in ("physical_offset", "size", "tags_code", "store_timestamp", "queue_offset", "message_count")
)
ENTRY_SIZE: int = IndexEntry.sizeof()

# Columns of the units or entries that break a rule; EXPECTED is the queue offset that the record gives.
ROW, RECORD, VERDICT, EXPECTED, UNIT_COLUMNS = range(5)
ENTRY_COLUMNS = EXPECTED  # of entries nothing is expected

DANGLING = 1
"""The bit of a verdict on what points at no record; all others of units or entries follow it."""

# --- units --------------------------------------------------------------------------------------

# Bits of a verdict. The first three hide all others: a unit of the wrong record says nothing about tags or offsets.
WRONG_QUEUE, WRONG_SIZE, NOT_ENTITLED, SHIFTED, WRONG_TAGS, WRONG_DELAY, WRONG_COUNT, WRONG_TIME = (
    DANGLING << bit for bit in range(1, 9)
)
IN_EXT = WRONG_TIME << 1  # not judged: the tags code is the address of an ext unit, which has the true one
OF_FURTHER = IN_EXT << 1  # with IN_EXT: the unit is one of multi-dispatch, which has no time of delivery
WRONG_RECORD = WRONG_QUEUE | WRONG_SIZE | NOT_ENTITLED

# Bits of a record: which units it has.
OWN_UNIT, FURTHER_UNIT, WRONG_UNIT = 1, 2, 4

# Columns of the runs of units: next row and row behind the last, what to add to a row for its queue offset, the queue,
# whether the next run is of the same queue, whether units hold times of delivery, and how many have no wrong record.
NEXT, BEHIND, SHIFT, QUEUE, GOES_ON, SCHEDULED, JOINED, RUN_COLUMNS = range(8)

# What the units of a queue add up to: positions in the array that `survey_units` goes on with.
(
    UNITS,  # of messages
    EXPIRED,  # of those, such as point before the log's start
    ZERO_BEHIND,  # or at 0, while the log begins later
    FIRST_KEPT,  # of the first that points into the log, and where it points; -1: none yet
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

# --- entries ------------------------------------------------------------------------------------

# Bits of a verdict. AT_EDGE breaks no rule: the entry is the first or one of the newest two, whose records' times the
# header's judge needs.
WRONG_KEY, WRONG_ENTRY_TIME, AT_EDGE = (DANGLING << bit for bit in range(1, 4))

KEY_BITS = 31  # of a hash: a record's number and a hash make one number
FAR = 64  # keys of a record looked at one by one; of a record with more, they are found by their hash

# Columns of a table of what is broken: row of the entry or slot in its window, and what it leads to.
BROKEN_ROW, KIND, FOUND, WANTED, MOVED, BROKEN_COLUMNS = range(6)

# What is wrong with an entry or a slot. From LINK on, it leads to another entry in use than it should.
UNWRITTEN, HASH, OUTSIDE, LOOP, HEAD_OUTSIDE, LINK, HEAD_LOST, HEAD = range(1, 9)

# Marks of an entry that may explain wrong links: of no slot, so what leads to it is wrong anyway; or it has a wrong
# link itself, or a reported one names it.
MARK_LOST, MARK_NAMED = 1, 2

# A wrong link would be right had an entry another slot: the one that was found stayed, the one expected not come.
MOVED_LEFT, MOVED_JOINED = 1, 2

# What is kept of an index file while records are put, in the order of its header.
BEGIN_TIME, END_TIME, BEGIN_PLACE, END_PLACE, USED_SLOTS, ENTRY_COUNT = range(6)
