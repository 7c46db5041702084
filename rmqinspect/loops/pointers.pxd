# The types of loops/pointers.py, for C.

cimport cython

from rmqinspect.loops.arrays cimport Bytes, BytesOut, Int32s, Int32sOut, Ints, IntsOut, TableOut, i64
from rmqinspect.loops.loads cimport int16_at, int32_at, int64_at

cdef i64 _32_BITS
cdef i64 AT_EDGE, BEGIN_PLACE, BEGIN_TIME, BEHIND, BROKEN_ROW, COUNT, DANGLING, DEVIATIONS, DISORDER, END_PLACE
cdef i64 END_TIME, ENTRY_COUNT, ENTRY_SIZE, EXPECTED, EXPIRED, EXT_ADDRESS_MAX, FAR, FIRST_KEPT, FIRST_PLACE
cdef i64 FOUND, FURTHER_UNIT, GOES_ON, HASH, HOLE, INVALID, IN_EXT, JOINED, KEY_BITS, KIND, LAST_PLACE, LAST_TIME
cdef i64 LAST_USED, LINK, LOOP, MARK_LOST, MARK_NAMED, MAX_OFFSET, MESSAGES, MOVED, MOVED_JOINED, MOVED_LEFT
cdef i64 NEXT, NEXT_OFFSET, NOT_ENTITLED, OFFSET, OF_FURTHER, OUTSIDE, OWN_UNIT, PLACE, PRE_BLANK_SIZE, QUEUE
cdef i64 RECORD, ROW, RUNS, SCHEDULED, SHIFT, SHIFTED, SIZE, SPLIT, STORED, TAGS, UNITS, UNIT_SIZE, UNKNOWN
cdef i64 UNWRITTEN, USED_SLOTS, VERDICT, WANTED, WRONG_COUNT, WRONG_DELAY, WRONG_ENTRY_TIME, WRONG_KEY
cdef i64 WRONG_QUEUE, WRONG_RECORD, WRONG_SIZE, WRONG_TAGS, WRONG_TIME, WRONG_UNIT, ZERO_BEHIND, _ENTRY_HASH
cdef i64 _ENTRY_PLACE, _ENTRY_PREVIOUS, _ENTRY_SECONDS, _FIRST_LONG, _FURTHER, _LAST_LONG, _MAX_INT
cdef i64 _MOST_PER_UNIT, _NEAR, _OWN, _SECOND, _STRANGE

ctypedef fused Ascending:
    Ints
    Int32s

cpdef bint is_filler(i64 place, i64 size, i64 tags) noexcept nogil

@cython.locals(low=i64, high=i64, middle=i64)
cdef i64 split_of(Ascending borders, i64 place) noexcept nogil

@cython.locals(at=i64)
cpdef i64 start_at(Ints starts, i64 place) noexcept nogil

@cython.locals(row=i64, count=i64, low=i64, high=i64, split=i64)
cpdef i64 cut_at_borders(Ints offsets, Ints borders, TableOut runs) except ? -1

@cython.locals(low=i64, high=i64, reached=i64, split=i64, last_used=i64, units=i64, max_offset=i64, last_place=i64, last_time=i64, disorder=i64, count=i64, found=i64, next_offset=i64, used=i64, at=i64, number=i64, place=i64, size=i64, tags=i64, offset=i64, messages=i64, time=i64, byte=i64, border=i64)
cpdef i64 survey_units(Bytes raw, i64 unit_size, i64 row, i64 behind, i64 first, Ints borders, i64 log_start, IntsOut totals, TableOut runs, TableOut deviations) except ? -1

@cython.locals(count=i64, record=i64, rest=i64, in_step=i64, row=i64, at=i64, place=i64, at_hand=i64, hit=i64, own=i64, run=i64, expected=i64, verdict=i64, of_hit=i64, relation=i64, of_record=i64, key=i64)
cpdef i64 step_units(Bytes raw, i64 unit_size, i64 low, i64 most, i64 by_recovery, Ints own_queue, Int32s queue, Ints physical_offset, Int32s size, Ints queue_offset, Int32s tags_code, Ints store_timestamp, Int32s messages, Bytes entitled, Bytes delayed, i64 queues, Ints further, Ints further_offset, BytesOut has_further, IntsOut run_of, TableOut runs, BytesOut has_unit, TableOut wrong) except ? -1

@cython.locals(place=i64, size=i64)
cpdef bint is_judged(Bytes raw, i64 at, i64 unit_size, i64 low, i64 most) noexcept nogil

@cython.locals(tags=i64, verdict=i64, has_delay=i64, time=i64)
cdef i64 _judge_unit(Bytes raw, i64 at, i64 unit_size, i64 offset, i64 relation, i64 expected, i64 scheduled, i64 by_recovery, i64 size, i64 tags_code, i64 stored, i64 messages, i64 entitled, i64 delayed) noexcept nogil

cpdef i64 judge_tags(i64 tags, i64 tags_code, i64 stored, i64 has_delay, i64 by_recovery) noexcept nogil

@cython.locals(at=i64, code=i64, stored=i64)
cpdef void judge_all_tags(Ints tags, Ints record, Bytes has_delay, i64 by_recovery, Int32s tags_code, Ints store_timestamp, IntsOut verdict) except *

@cython.locals(held=i64, place=i64)
cpdef bint is_written(Bytes raw, i64 at) noexcept nogil

cpdef i64 java_seconds(i64 begin, i64 stored) noexcept nogil

@cython.locals(at=i64)
cdef i64 _key_at(i64 key, i64 most, i64 place, i64 key_hash, Ints places, Int32s key_record, Int32s key_hashes) noexcept nogil

@cython.locals(row=i64, key=i64, count=i64, known=i64, this=i64, at=i64, number=i64, verdict=i64, record=i64, place=i64, key_hash=i64, seconds=i64, wanted=i64, of_key=i64)
cpdef void step_entries(Bytes raw, i64 low, i64 last, i64 begin, i64 first, i64 newest, Ints places, Ints times, Int32s key_record, Int32s key_hashes, Ints sorted_keys, Ints key_order, BytesOut has_entry, TableOut found, IntsOut counts) except *

@cython.locals(row=i64, count=i64, rows=i64, at=i64, number=i64, kind=i64, expected=i64, key_hash=i64, previous=i64, slot=i64)
cpdef i64 follow_chains(Bytes raw, i64 first, i64 slots, i64 low, i64 newest, Int32sOut heads, BytesOut marks, TableOut broken) except ? -1

@cython.locals(row=i64, lost=i64, found=i64, expected=i64, moved=i64, left=i64, joined=i64)
cpdef void explain_links(BytesOut marks, TableOut broken) except *

@cython.locals(record=i64, key=i64)
cpdef i64 count_keys(i64 entries, IntsOut state, Ints places, Ints times, Ints keys, i64 at) except ? -1

@cython.locals(key=i64, record=i64, slot=i64, before=i64, time=i64, place=i64)
cpdef i64 put_keys(i64 first, Int32s hashes, Int32s records, Ints places, Ints times, i64 capacity, i64 counts_slots, Int32sOut heads, Int32sOut previous, Int32sOut seconds, IntsOut state) except ? -1
