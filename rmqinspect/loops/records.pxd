# The types of loops/records.py, for C.

cimport cython

from rmqinspect.loops.arrays cimport ByteTableOut, Bytes, Int32Table, Int32TableOut, Ints, IntsOut, Table, TableOut, i64
from rmqinspect.loops.loads cimport byte_at, crc32_of, find_bytes, int16_at, int32_at, int64_at, same_bytes
from rmqinspect.loops.text cimport as_int, index_hash_of, java_hash

cdef i64 ASKED_BATCHES, ASKED_ID_MARKS, ASKED_INDEX_KEYS, ASKED_KEY_COUNTS, ASKED_REAL_TOPICS, ASKED_TAG_KEYS
cdef i64 AT_BASE, AT_DELAY, AT_NUMBER, AT_TOPIC, BAD_MAGIC, BAD_ORDER, BAD_PLACE, BAD_SIZE, BLANK, BODY_CRC
cdef i64 BODY_END, BODY_SIZE, BODY_START, BORN_HOST, BORN_PORT, BORN_TIMESTAMP, END, FIELD_RULE, FIRST_OFFSET
cdef i64 FIRST_PLACE, FLAG, JUMPED, JUMP_END, JUMP_PLACE, JUMP_WANTED, KEY, LAST_INDEX, LAST_PLACE, LAST_PORT
cdef i64 LAST_TERM, MAGIC, MARKED, MARKED_ID, MORE, NEXT_OFFSET, NO_CRC, OFFSET_RULE, PHYSICAL_OFFSET, PLAIN
cdef i64 PREPARED_OFFSET, PROPERTIES_END, PROPERTIES_START, QUEUE_ID, QUEUE_OFFSET, RECONSUME_TIMES, RIGHT_CRC
cdef i64 SLACK, START, STOP, STORE_HOST, STORE_PORT, STORE_TIMESTAMP, SUM_BYTES, SUM_FIRST, SUM_LAST
cdef i64 SUM_MESSAGES, SUM_RECORDS, SYS_FLAG, TAG, TAGGED, TIME_RULE, TOPIC_END, TOPIC_START, TOTAL_SIZE
cdef i64 TO_DELAYED, TO_ENTITLED, TO_HAS_TAGS, TO_KEY_COUNT, TO_KEY_HASH, TO_KEY_RECORD, TO_MESSAGES
cdef i64 TO_PHYSICAL_OFFSET, TO_QUEUE, TO_QUEUE_OFFSET, TO_REAL_TOPIC, TO_SIZE, TO_SOUND, TO_STORE_TIMESTAMP
cdef i64 TO_TAGS_CODE, UNIQUE, UNKNOWN_OFFSET, WRONG_CRC, ZERO, _ABSENT, _BASE_DIGITS, _BODY_CRC, _BODY_CRC_BIT
cdef i64 _BODY_SIZE, _BORN_HOST, _BORN_TIMESTAMP, _BORN_V6, _BRIDGE_FLAG, _COMMIT, _COMPRESSION_MASK
cdef i64 _COMPRESSION_SHIFT, _CRC32_DIGITS, _CRC32_NAME, _CRC32_NAME_SIZE, _CRC32_SIZE, _CRC_MASK, _DELAY
cdef i64 _DELAY_BIT, _DELAY_DIGITS, _END_OF_ITEM, _ENTRY_BLANK, _ENTRY_BODY_SIZE, _ENTRY_HEAD, _ENTRY_INDEX
cdef i64 _ENTRY_MAGIC, _ENTRY_MAGIC_1, _ENTRY_POSITION, _ENTRY_SIZE, _ENTRY_TERM, _FIRST_ENTRY_MAGIC, _FIXED_SIZE
cdef i64 _FLAG, _HEAD_SIZE, _INNER_BIT, _INNER_NUM, _IPV6_BIT, _IPV6_FLAGS, _KEYS, _LAST_COMPRESSION
cdef i64 _LAST_ENTRY_MAGIC, _LAST_OFFSET, _MAGIC, _NUMBER_DIGITS, _ODD, _PHYSICAL_OFFSET, _PLAIN_NUMBER, _PORT_V4
cdef i64 _PORT_V6, _PREPARED_OFFSET, _PROPERTIES_SIZE, _QUEUE_ID, _QUEUE_OFFSET, _REAL, _RECONSUME_TIMES
cdef i64 _ROLLED_BACK, _SEPARATOR, _SPACE, _STORE_HOST, _STORE_TIMESTAMP, _STORE_V6, _SYS_FLAG, _TAGS
cdef i64 _TOPIC_SIZE_V1, _TOPIC_SIZE_V2, _TOTAL_SIZE, _TRANSACTION_MASK, _UNCOUNTED, _UNIQ_KEY, _V1, _V2, _V2_BIT
cdef i64 _WIDER, _ZERO

@cython.locals(flags=i64, behind_born=i64, behind_store=i64, body_size=i64, last=i64, body_end=i64, topic_size_at=i64, topic_end=i64, properties_size=i64, born_v6=i64, store_v6=i64, total_size=i64, magic=i64, topic_size=i64, topic_start=i64)
cdef void _read_record(Bytes raw, i64 at, TableOut rows, i64 row) noexcept nogil

@cython.locals(magic=i64, end=i64)
cdef bint _is_sound(Table rows, i64 row, i64 filled) noexcept nogil

@cython.locals(magic=i64, total_size=i64)
cdef bint _is_wrapped(Bytes raw, i64 entry, i64 lead, Table rows, i64 row) noexcept nogil

@cython.locals(count=i64)
cpdef i64 follow(Bytes raw, i64 at, i64 filled, i64 lead, TableOut rows) except ? -1

@cython.locals(row=i64)
cpdef i64 first_bridge(Table rows, i64 start) except ? -1

@cython.locals(row=i64)
cpdef void read_records(Bytes raw, Ints starts, TableOut rows) except *

@cython.locals(row=i64)
cpdef void judge_soundness(Table rows, i64 filled, IntsOut sound) except *

@cython.locals(row=i64, start=i64, end=i64)
cpdef void body_crcs(i64 address, Bytes raw, Table rows, IntsOut crcs) except *

@cython.locals(count=i64, row=i64, at=i64, digits=i64, sound=i64, stored=i64, place=i64, right=i64, start=i64, end=i64, digit=i64)
cpdef i64 record_crcs(i64 address, Bytes raw, Table rows, IntsOut found) except ? -1

@cython.locals(broken=i64, row=i64, ports=i64, kind=i64, places=i64, time=i64)
cpdef i64 broken_rules(Table rows, i64 base, i64 before) except ? -1

cdef i64 _plus(i64 offset, i64 steps) noexcept nogil

@cython.locals(found=i64, back=i64, row=i64, step=i64, queue=i64, offset=i64, place=i64, wanted=i64, jumped=i64)
cpdef i64 follow_queues(Table rows, Ints numbers, Ints steps, i64 base, i64 after_gap, TableOut queues, TableOut jumps, IntsOut undone) except ? -1

@cython.locals(row=i64, value=i64, time=i64)
cpdef void add_to_sums(Table rows, Ints messages, Ints numbers, TableOut sums) except *

cpdef bint has_queue_unit(i64 sys_flag) noexcept nogil

@cython.locals(at=i64, count=i64, key=i64, most=i64, transaction=i64, item=i64, tags=i64, words=i64, number=i64, prefix=i64, hashed=i64, stop=i64, start=i64, end=i64)
cpdef i64 dispatch(i64 asked, Bytes raw, i64 base, Table rows, Int32Table known, Ints name_ends, Ints value_ends, Ints queues, Table prefixes, Bytes sound, i64 first, IntsOut used, TableOut numbers, Int32TableOut smaller, ByteTableOut flags, Int32TableOut keys, ByteTableOut kinds) except ? -1

@cython.locals(at=i64, number=i64, before=i64)
cdef i64 _count_words(Bytes raw, i64 start, i64 end) noexcept nogil

cdef i64 _add_key(Int32TableOut keys, ByteTableOut kinds, i64 key, i64 record, i64 hashed, i64 kind) noexcept nogil

@cython.locals(number=i64, at=i64, digit=i64)
cdef i64 _small_number(Bytes raw, i64 start, i64 end) noexcept nogil

@cython.locals(row=i64, doubt=i64, size=i64, is_delayed=i64, number=i64, body=i64, body_end=i64, stored=i64, start=i64, end=i64, topic=i64, topic_end=i64, base=i64)
cpdef void doubt_records(i64 address, Bytes raw, Table rows, Bytes texts, i64 body_crc, IntsOut doubts) except *

@cython.locals(found=i64, at=i64, last=i64, plain=i64)
cdef i64 _number_after(Bytes raw, i64 start, i64 end, Bytes texts, i64 first, i64 beyond, i64 digits) noexcept nogil

@cython.locals(at=i64, magic=i64, size=i64, index=i64, term=i64)
cpdef i64 follow_dledger(Bytes raw, i64 filled, i64 first, i64 base, i64 left, IntsOut state) except ? -1
