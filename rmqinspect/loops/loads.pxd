# loops/loads.py in C, for the other modules of this folder: each compiles these functions into itself.

from libc.string cimport memcmp, memcpy

from rmqinspect.loops.arrays cimport Bytes, BytesOut, i64


cdef extern from "loads.h" nogil:
    enum:
        RMQ_CHECK_BOUNDS
    unsigned int rmq_uint32(const unsigned char *raw)
    i64 rmq_int16(const unsigned char *raw)
    i64 rmq_int64(const unsigned char *raw)
    unsigned int rmq_among(const unsigned char *raw, unsigned char first, unsigned char count)
    i64 rmq_find(const unsigned char *raw, i64 start, i64 end, const unsigned char *text, i64 size)
    i64 rmq_crc32(i64 address, const unsigned char *raw, i64 size)
    i64 rmq_lowest_bit(i64 bits)


cdef inline bint is_inside(i64 size, i64 start, i64 end) noexcept nogil:
    """Whether [start, end) lies inside of so many bytes. Asked in the checked build only."""
    if not RMQ_CHECK_BOUNDS or 0 <= start <= end <= size:
        return True
    with gil:
        raise IndexError(f"[{start}, {end}) of {size} bytes")


cdef inline i64 byte_at(Bytes raw, i64 at) noexcept nogil:
    return <signed char>raw[at]


cdef inline i64 int16_at(Bytes raw, i64 at) noexcept nogil:
    return rmq_int16(&raw[at]) if is_inside(raw.shape[0], at, at + 2) else 0


cdef inline i64 uint32_at(Bytes raw, i64 at) noexcept nogil:
    return rmq_uint32(&raw[at]) if is_inside(raw.shape[0], at, at + 4) else 0


cdef inline i64 int32_at(Bytes raw, i64 at) noexcept nogil:
    return <int>rmq_uint32(&raw[at]) if is_inside(raw.shape[0], at, at + 4) else 0


cdef inline i64 int64_at(Bytes raw, i64 at) noexcept nogil:
    return rmq_int64(&raw[at]) if is_inside(raw.shape[0], at, at + 8) else 0


cdef inline bint same_bytes(Bytes one, i64 first, Bytes other, i64 second, i64 size) noexcept nogil:
    if size <= 0:
        return size == 0
    if not is_inside(one.shape[0], first, first + size) or not is_inside(other.shape[0], second, second + size):
        return False
    return memcmp(&one[first], &other[second], size) == 0


cdef inline i64 places_of(Bytes raw, i64 at, i64 first, i64 count) noexcept nogil:
    cdef i64 place, bits = 0
    if at + 32 <= raw.shape[0]:
        return rmq_among(&raw[at], <unsigned char>first, <unsigned char>count)
    for place in range(at, raw.shape[0]):
        if first <= raw[place] < first + count:
            bits |= <i64>1 << (place - at)
    return bits


cdef inline i64 lowest_bit(i64 bits) noexcept nogil:
    return rmq_lowest_bit(bits)


cdef inline i64 find_bytes(Bytes raw, i64 start, i64 end, Bytes texts, i64 first, i64 beyond) noexcept nogil:
    if start >= end or first >= beyond:
        return start if first >= beyond else -1
    if not is_inside(raw.shape[0], start, end) or not is_inside(texts.shape[0], first, beyond):
        return -1
    return rmq_find(&raw[0], start, end, &texts[first], beyond - first)


cdef inline void copy_bytes(Bytes raw, i64 start, i64 end, BytesOut out, i64 at) noexcept nogil:
    if start < end and is_inside(raw.shape[0], start, end) and is_inside(out.shape[0], at, at + end - start):
        memcpy(&out[at], &raw[start], end - start)


cdef inline i64 crc32_of(i64 address, Bytes raw, i64 start, i64 size) noexcept nogil:
    if size <= 0 or not is_inside(raw.shape[0], start, start + size):
        return 0
    return rmq_crc32(address, &raw[start], size)
