# The types of loops/text.py, for C.

cimport cython

from rmqinspect.loops.arrays cimport Bytes, BytesOut, Int32TableOut, Int32s, Int32sOut, Ints, IntsOut, Table, TableOut, i64
from rmqinspect.loops.loads cimport copy_bytes, find_bytes, lowest_bit, places_of, same_bytes, uint32_at

cdef i64 BLOCK, KEY_HASH, KEY_INTEGER, KEY_SIZE, KEY_TEXT, NAME_HASHES, NOT_A_NUMBER, _31_2, _31_3, _31_4
cdef i64 _32_BITS, _BEYOND_ASCII, _COMMA, _FIRST_PAIR, _HALF, _HIGH, _KEY_FACTOR, _LARGEST_TENTH, _LOW
cdef i64 _NAME_VALUE_SEPARATOR, _OWN_OFFSET_SIZE, _PRIME, _REPLACEMENT, _SIGN, _SPACE, _ZERO

@cython.locals(hashed=i64, at=i64, four=i64, size=i64, code=i64, decoded=i64)
cpdef i64 java_hash(Bytes raw, i64 start, i64 end, i64 before) noexcept nogil

cpdef i64 as_int(i64 hashed) noexcept nogil

cpdef i64 index_hash_of(i64 hashed) noexcept nogil

@cython.locals(lead=i64, second=i64, third=i64, fourth=i64, low=i64, high=i64, code=i64)
cdef i64 _decode(Bytes raw, i64 at, i64 end) noexcept nogil

@cython.locals(offset=i64, number=i64, begin=i64)
cpdef i64 lay_out(i64 size, Ints starts, Ints ends, IntsOut begins, Int32sOut offsets) except ? -1

@cython.locals(offset=i64, number=i64, value=i64)
cpdef i64 lay_out_values(i64 size, Int32s borders, Int32s which, IntsOut begins, Int32sOut offsets) except ? -1

@cython.locals(number=i64, size=i64, start=i64, at=i64)
cpdef void copy_laid_out(Bytes raw, Ints starts, Int32s offsets, BytesOut out) except *

@cython.locals(row=i64, start=i64, end=i64, text=i64)
cpdef void search_ranges(Bytes raw, Ints starts, Ints ends, Bytes texts, Ints borders, BytesOut found) except *

@cython.locals(count=i64, row=i64, at=i64, end=i64, first=i64, number=i64, digit=i64)
cpdef i64 write_numbers(Bytes raw, Ints starts, Ints ends, IntsOut ranges, IntsOut numbers) except ? -1

@cython.locals(row=i64, at=i64, first=i64, second=i64)
cpdef void write_hashes(Bytes raw, Ints starts, Ints ends, i64 first_base, i64 second_base, IntsOut hashes) except *

cdef i64 _mix_in(i64 value, i64 more) noexcept nogil

@cython.locals(value=i64, at=i64)
cdef i64 _hash_of_key(Bytes raw, i64 start, i64 end, i64 integer, i64 seed) noexcept nogil

@cython.locals(row=i64, start=i64, hashed=i64, slot=i64, size=i64, integer=i64, key=i64, alike=i64, text=i64)
cpdef i64 number_keys(i64 seed, Bytes raw, Ints starts, Ints ends, Ints integers, i64 first, IntsOut slots, TableOut keys, BytesOut names, IntsOut used, IntsOut numbers) except ? -1

@cython.locals(key=i64, slot=i64)
cpdef void fill_slots(Table keys, i64 count, IntsOut slots) except *

@cython.locals(count=i64, record=i64, first=i64, middle=i64, start=i64, end=i64, block=i64, bits=i64, highest=i64, at=i64, hashed=i64, number=i64, other=i64, inside=i64)
cpdef i64 split_items(Bytes raw, Ints starts, Ints ends, Bytes names, Ints names_at, Ints names_by_hash, Int32sOut earlier, Int32sOut newest, IntsOut name_starts, IntsOut name_ends, IntsOut value_ends, Int32sOut firsts, BytesOut replaced, BytesOut malformed, BytesOut high, Int32TableOut known) except ? -1

@cython.locals(size=i64)
cpdef i64 hash_of_name(Bytes raw, i64 start, i64 end) noexcept nogil

cdef bint _same_ranges(Bytes raw, i64 start, i64 end, Bytes others, i64 other_start, i64 other_end) noexcept nogil

@cython.locals(count=i64)
cpdef i64 find_places(Bytes raw, i64 start, i64 end, Bytes prefix, IntsOut places) except ? -1

@cython.locals(at=i64, row=i64)
cpdef void write_ids(Bytes raw, Ints hosts, Ints sizes, Ints places, Bytes digits, Int32sOut offsets, BytesOut out) except *

@cython.locals(place=i64)
cdef i64 _write_hex(Bytes raw, i64 start, i64 size, Bytes digits, BytesOut out, i64 at) noexcept nogil

@cython.locals(count=i64, row=i64, at=i64, end=i64, start=i64)
cpdef i64 find_words(Bytes raw, Int32s borders, Int32sOut firsts, IntsOut starts, IntsOut ends) except ? -1
