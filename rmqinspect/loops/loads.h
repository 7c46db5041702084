/* What loops need that is more than C's arithmetic: numbers of the file's byte order, 32 bytes compared at once, and
   calls of C functions. loops/loads.py is the same in Python; tests/loops/test_loads.py compares the two.

   Nothing is checked here: loops/loads.pxd checks indexes, where RMQ_CHECK_BOUNDS is 1. */

#ifndef RMQINSPECT_LOADS_H
#define RMQINSPECT_LOADS_H

#include <stdint.h>
#include <string.h>

#ifndef RMQ_CHECK_BOUNDS
#define RMQ_CHECK_BOUNDS 0
#endif

/* Compilers make one load and one byte swap of each. */

static inline uint32_t rmq_uint32(const unsigned char *raw) {
    return (uint32_t)raw[0] << 24 | (uint32_t)raw[1] << 16 | (uint32_t)raw[2] << 8 | raw[3];
}

static inline long long rmq_int16(const unsigned char *raw) {
    return (int16_t)((uint16_t)raw[0] << 8 | raw[1]);
}

static inline long long rmq_int64(const unsigned char *raw) {
    return (int64_t)((uint64_t)rmq_uint32(raw) << 32 | rmq_uint32(raw + 4));
}

/* A bit for each of 32 bytes that is one of `count` from `first` on; bit 0 is the first byte. */

#if defined(__SSE2__)

#include <emmintrin.h>

static inline uint32_t rmq_among(const unsigned char *raw, unsigned char first, unsigned char count) {
    const __m128i firsts = _mm_set1_epi8((char)first), most = _mm_set1_epi8((char)(count - 1));
    /* A byte below the first wraps around, and is larger than the most. */
    const __m128i low = _mm_sub_epi8(_mm_loadu_si128((const __m128i *)raw), firsts);
    const __m128i high = _mm_sub_epi8(_mm_loadu_si128((const __m128i *)(raw + 16)), firsts);
    const uint32_t low_bits = (uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(_mm_min_epu8(low, most), low));
    const uint32_t high_bits = (uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(_mm_min_epu8(high, most), high));
    return low_bits | high_bits << 16;
}

#else

static inline uint32_t rmq_among(const unsigned char *raw, unsigned char first, unsigned char count) {
    uint32_t bits = 0;
    for (int at = 0; at < 32; at++)
        bits |= (uint32_t)((unsigned char)(raw[at] - first) < count) << at;
    return bits;
}

#endif

/* Where `size` bytes of `text` stand first in `raw[start:end]`, -1 where nowhere: where the first and the last byte of
   the text agree, the rest is compared.

   text               t ....... l
   block at     |? ? ? t ? ? ? ?|          32 places where it may begin
   block after          |? ? ? l ? ? ? ?|  the same places, moved by its size less one */

static inline long long rmq_find(const unsigned char *raw, long long start, long long end, const unsigned char *text,
                                 long long size) {
    const long long distance = size - 1;
    long long at = start;
    if (distance < 0)
        return start;
    for (; at + distance + 32 <= end; at += 32) {
        uint32_t bits = rmq_among(raw + at, text[0], 1) & rmq_among(raw + at + distance, text[distance], 1);
        for (; bits != 0; bits &= bits - 1) {
            const long long place = at + __builtin_ctz(bits);
            if (memcmp(raw + place, text, (size_t)size) == 0)
                return place;
        }
    }
    for (; at + distance < end; at++)
        if (raw[at] == text[0] && memcmp(raw + at, text, (size_t)size) == 0)
            return at;
    return -1;
}

/* CRC-32 by the C function at an address: it takes the CRC before, bytes, and their number. The libraries' functions
   take and return 32 bits in places, in registers of 64: only the low ones count. Where none was found, bit by bit. */

static inline long long rmq_crc32(long long address, const unsigned char *raw, long long size) {
    typedef uint64_t (*function)(uint64_t, const unsigned char *, uint64_t);
    uint32_t crc = 0xFFFFFFFFu;
    if (address != 0)
        return (long long)(((function)(intptr_t)address)(0, raw, (uint64_t)size) & 0xFFFFFFFFu);
    for (long long at = 0; at < size; at++) {
        crc ^= raw[at];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (0xEDB88320u & (0u - (crc & 1)));
    }
    return (long long)(crc ^ 0xFFFFFFFFu);
}

static inline long long rmq_lowest_bit(long long bits) {
    return __builtin_ctzll((unsigned long long)bits);
}

#endif
