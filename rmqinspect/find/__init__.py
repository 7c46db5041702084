"""Look-ups: which few bytes of a log hold the records that a filter asks for, and why there may be none.

The reasons stand here, where they cost nothing to import; the words never vary.
"""

BEFORE = "BEFORE THE LOG"
EXPIRED = "EXPIRED"
BEYOND = "BEYOND THE END"
DAMAGED = "DAMAGED RANGE"
UNREAD = "UNREAD"
OTHER_BROKER = "OTHER BROKER"
FILTERED = "FILTERED"
NOT_IN_QUEUE = "NOT IN A QUEUE"
OUT_OF_REACH = "OUTSIDE THE GROUP'S REACH"
NOT_THERE = "NOT THERE"

REASONS = {
    BEFORE: "the place lies before the first segment, or the start of the queue: what was there is gone; an index "
    "entry, or the time in the id, may say so as well",
    EXPIRED: "the same, and queues, index or the log's folder are as a retention leaves them",
    BEYOND: "the place lies behind the last record of the log, or the last unit of the queue",
    DAMAGED: "the place lies in a gap, or the searched range has gaps that may have held the record",
    UNREAD: "something that had to be read for the answer could not be read",
    OTHER_BROKER: "the address in the offset msg id is not that of the broker that stored this log",
    FILTERED: "the record exists, and another filter of the question excludes it",
    NOT_IN_QUEUE: "the record is in the log, but no queue leads to it: prepared, rolled back, or without a unit",
    OUT_OF_REACH: "the record is in the log, but below the minimum of its queue: no group can pull it",
    NOT_THERE: "no record that was read answers the question",
}
"""Each reason, and what it means."""
