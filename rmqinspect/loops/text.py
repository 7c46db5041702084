"""Loops over texts in a buffer: found, copied, compared, hashed, numbered, split into items and words.

Ranges are [start, end) of the buffer; what is not inside of it is left out.
"""

# mypy: disable-error-code="no-any-return"

try:
    import cython
except ImportError:  # where nothing is compiled
    from rmqinspect.loops.uncompiled import cython

from rmqinspect.loops.text_rows import BLOCK, KEY_HASH, KEY_INTEGER, KEY_SIZE, KEY_TEXT, NAME_HASHES, NOT_A_NUMBER
from rmqinspect.schemas import message
from rmqinspect.schemas.places import span_of

if cython.compiled:
    pass  # text.pxd has them
else:
    from rmqinspect.loops.arrays import (
        Bytes,
        BytesOut,
        Int32s,
        Int32sOut,
        Int32TableOut,
        Ints,
        IntsOut,
        Table,
        TableOut,
    )
    from rmqinspect.loops.loads import (
        copy_bytes,
        find_bytes,
        lowest_bit,
        places_of,
        same_bytes,
        uint32_at,
    )
    from rmqinspect.loops.uncompiled import take_arrays

COMPILED: bool = cython.compiled

_COMMA, _SPACE, _ZERO = ord(","), ord(" "), ord("0")
_LARGEST_TENTH = (2**63 - 1 - 9) // 10  # ten times this and a digit stay within 63 bits
_NAME_VALUE_SEPARATOR = message.NAME_VALUE_SEPARATOR
_BEYOND_ASCII = 0x80
_OWN_OFFSET = span_of(message.HEADS[False, False], "physical_offset")
_OWN_OFFSET_SIZE = _OWN_OFFSET.stop - _OWN_OFFSET.start

_32_BITS, _SIGN = 0xFFFFFFFF, 0x80000000

# Java's string hash.
_31_2, _31_3, _31_4 = 31**2, 31**3, 31**4  # below 2^20, so a product with 32 bits stays within 63
_REPLACEMENT = 0xFFFD
_FIRST_PAIR = 0x10000  # code points from here on are two UTF-16 units
_HIGH, _LOW = 0xD800, 0xDC00

# The hash of two polynomials, and that of keys.
_HALF = 31  # bits
_PRIME = (1 << _HALF) - 1  # a product of two remainders stays within 62 bits
_KEY_FACTOR = 0x5BD1E995  # odd, and below 2^31: a product with 32 bits stays within 63


def java_hash(raw: Bytes, start: int, end: int, before: int) -> int:
    """Return the hash, below 2^32, of a text with the hash `before` and the UTF-8 text `raw[start:end]` behind it.

    The range lies inside of `raw`. Invalid UTF-8 is replaced as by Java's `new String(bytes, UTF_8)`.
    """
    hashed, at = before, start
    while at + 4 <= end and (raw[at] | raw[at + 1] | raw[at + 2] | raw[at + 3]) < _BEYOND_ASCII:
        four = raw[at] * _31_3 + raw[at + 1] * _31_2 + raw[at + 2] * 31 + raw[at + 3]
        hashed = (hashed * _31_4 + four) & _32_BITS
        at += 4
    while at < end:
        size, code = 1, raw[at]
        if code >= _BEYOND_ASCII:
            decoded = _decode(raw, at, end)
            size, code = decoded & 7, decoded >> 3
        if code >= _FIRST_PAIR:
            hashed = (hashed * 31 + _HIGH + ((code - _FIRST_PAIR) >> 10)) & _32_BITS
            code = _LOW + (code & 0x3FF)
        hashed = (hashed * 31 + code) & _32_BITS
        at += size
    return hashed


def as_int(hashed: int) -> int:
    """Return a hash as the signed int that Java shows."""
    return (hashed ^ _SIGN) - _SIGN


def index_hash_of(hashed: int) -> int:
    """Return what an index file stores for a key's hash. Source: IndexFile#indexKeyHashMethod."""
    # Math.abs leaves the smallest int negative; the broker makes it 0.
    return 0 if hashed == _SIGN else abs(as_int(hashed))


def _decode(raw: Bytes, at: int, end: int) -> int:
    """Return eight times a code point, plus the number of its bytes at `at`, where a byte above ASCII stands.

    Bytes that begin a character and do not end it are one replacement together. So are the three of a surrogate,
    where Unicode recommends three. Source: sun.nio.cs.UTF_8, java.lang.String#decodeUTF8_UTF16.
    """
    lead = raw[at]
    if lead < 0xC2 or lead > 0xF4:
        return _REPLACEMENT << 3 | 1
    second = raw[at + 1] if at + 1 < end else 0
    low, high = 0x80, 0xBF
    if lead == 0xE0:
        low = 0xA0
    elif lead == 0xF0:
        low = 0x90
    elif lead == 0xF4:
        high = 0x8F
    if second < low or second > high:
        return _REPLACEMENT << 3 | 1
    if lead < 0xE0:
        return ((lead & 0x1F) << 6 | second & 0x3F) << 3 | 2
    third = raw[at + 2] if at + 2 < end else 0
    if third & 0xC0 != 0x80:
        return _REPLACEMENT << 3 | 2
    if lead < 0xF0:
        code = (lead & 0x0F) << 12 | (second & 0x3F) << 6 | third & 0x3F
        return (_REPLACEMENT if _HIGH <= code < 0xE000 else code) << 3 | 3
    fourth = raw[at + 3] if at + 3 < end else 0
    if fourth & 0xC0 != 0x80:
        return _REPLACEMENT << 3 | 3
    return ((lead & 0x07) << 18 | (second & 0x3F) << 12 | (third & 0x3F) << 6 | fourth & 0x3F) << 3 | 4


def lay_out(size: int, starts: Ints, ends: Ints, begins: IntsOut, offsets: Int32sOut) -> int:
    """Write where each range begins in a buffer of a size, and where its copy does; return the size of all copies."""
    with cython.nogil:
        offset = 0  # at most 2^31, as the caller promises
        for number in range(len(starts)):
            begin = min(max(starts[number], 0), size)
            begins[number] = begin
            offsets[number] = offset
            offset += max(min(ends[number], size) - begin, 0)
        offsets[len(starts)] = offset
        return offset


def lay_out_values(size: int, borders: Int32s, which: Int32s, begins: IntsOut, offsets: Int32sOut) -> int:
    """The same for some of the values of a column; value i is at [borders[i], borders[i + 1])."""
    with cython.nogil:
        offset = 0
        for number in range(len(which)):
            value = which[number]
            begins[number] = 0
            offsets[number] = offset
            if 0 <= value < len(borders) - 1:
                begins[number] = min(max(borders[value], 0), size)
                offset += max(min(borders[value + 1], size) - begins[number], 0)
        offsets[len(which)] = offset
        return offset


def copy_laid_out(raw: Bytes, starts: Ints, offsets: Int32s, out: BytesOut) -> None:
    """Copy the ranges laid out."""
    with cython.nogil:
        for number in range(len(starts)):
            start, at = starts[number], offsets[number]
            size = offsets[number + 1] - at
            if start >= 0 and at >= 0 and size > 0 and size <= len(raw) - start and size <= len(out) - at:
                copy_bytes(raw, start, start + size, out, at)


def search_ranges(raw: Bytes, starts: Ints, ends: Ints, texts: Bytes, borders: Ints, found: BytesOut) -> None:
    """Write 1 for each range that contains a text; text i is at [borders[i], borders[i + 1]) of `texts`."""
    with cython.nogil:
        for row in range(len(starts)):
            start = min(max(starts[row], 0), len(raw))
            end = min(max(ends[row], start), len(raw))
            text = 0
            while found[row] == 0 and text + 1 < len(borders):
                if find_bytes(raw, start, end, texts, borders[text], borders[text + 1]) >= 0:
                    found[row] = 1
                text += 1


def write_numbers(raw: Bytes, starts: Ints, ends: Ints, ranges: IntsOut, numbers: IntsOut) -> int:
    """Write the numbers; return how many there are."""
    with cython.nogil:
        count = 0
        for row in range(len(starts)):
            at, end = max(starts[row], 0), min(ends[row], len(raw))
            while at < end:
                first, number = at, 0
                while at < end and raw[at] != _COMMA:
                    digit = raw[at] - _ZERO
                    if number >= 0:
                        number = number * 10 + digit if 0 <= digit <= 9 and number <= _LARGEST_TENTH else NOT_A_NUMBER
                    at += 1
                if first < at and count < len(numbers):
                    ranges[count], numbers[count] = row, number
                    count += 1
                at += 1
        return count


def write_hashes(raw: Bytes, starts: Ints, ends: Ints, first_base: int, second_base: int, hashes: IntsOut) -> None:
    with cython.nogil:
        for row in range(len(starts)):
            first, second = hashes[row] & _PRIME, hashes[row] >> _HALF
            for at in range(max(starts[row], 0), min(ends[row], len(raw))):
                first = (first * first_base + raw[at] + 1) % _PRIME
                second = (second * second_base + raw[at] + 1) % _PRIME
            hashes[row] = second << _HALF | first


def _mix_in(value: int, more: int) -> int:
    """Return 32 bits of hash from those so far and a number."""
    value = ((value ^ more) * _KEY_FACTOR) & _32_BITS
    return value ^ (value >> 15)


def _hash_of_key(raw: Bytes, start: int, end: int, integer: int, seed: int) -> int:
    """Return 32 bits of hash of a key, four bytes at a time; the last four may overlap others."""
    value = _mix_in(_mix_in(seed, (integer >> 32) & _32_BITS), (integer ^ ((end - start) << 16)) & _32_BITS)
    at = start
    if end - start < 4:
        while at < end:
            value = _mix_in(value, raw[at])
            at += 1
        return value
    while at + 4 < end:
        value = _mix_in(value, uint32_at(raw, at))
        at += 4
    return _mix_in(value, uint32_at(raw, end - 4))


def number_keys(
    seed: int,
    raw: Bytes,
    starts: Ints,
    ends: Ints,
    integers: Ints,
    first: int,
    slots: IntsOut,
    keys: TableOut,
    names: BytesOut,
    used: IntsOut,
    numbers: IntsOut,
) -> int:
    """Write the number of each key from row `first` on; return the row where a table was too small.

    `used` holds how many keys there are, and how many bytes of names; at least half of the slots, whose number is a
    power of two, are free. What is not inside of `raw` is left out.
    """
    with cython.nogil:
        for row in range(first, len(starts)):
            start = min(max(starts[row], 0), len(raw))
            size, integer = max(min(ends[row], len(raw)) - start, 0), integers[row]
            hashed = _hash_of_key(raw, start, start + size, integer, seed)
            slot = hashed & (len(slots) - 1)
            while slots[slot] > 0:
                key = slots[slot] - 1
                alike = keys[key, KEY_HASH] == hashed and keys[key, KEY_INTEGER] == integer
                if alike and keys[key, KEY_SIZE] == size and same_bytes(raw, start, names, keys[key, KEY_TEXT], size):
                    break
                slot = (slot + 1) & (len(slots) - 1)
            if slots[slot] == 0:
                key, text = used[0], used[1]
                if key == len(keys) or text + size > len(names):
                    return row
                slots[slot] = key + 1
                copy_bytes(raw, start, start + size, names, text)
                keys[key, KEY_HASH] = hashed
                keys[key, KEY_TEXT] = text
                keys[key, KEY_SIZE] = size
                keys[key, KEY_INTEGER] = integer
                used[0], used[1] = key + 1, text + size
            numbers[row] = slots[slot] - 1
        return len(starts)


def fill_slots(keys: Table, count: int, slots: IntsOut) -> None:
    """Write the numbers of the first keys into empty slots."""
    with cython.nogil:
        for key in range(min(count, len(keys))):
            slot = keys[key, KEY_HASH] & (len(slots) - 1)
            while slots[slot] > 0:
                slot = (slot + 1) & (len(slots) - 1)
            slots[slot] = key + 1


def split_items(
    raw: Bytes,
    starts: Ints,
    ends: Ints,
    names: Bytes,
    names_at: Ints,
    names_by_hash: Ints,
    earlier: Int32sOut,
    newest: Int32sOut,
    name_starts: IntsOut,
    name_ends: IntsOut,
    value_ends: IntsOut,
    firsts: Int32sOut,
    replaced: BytesOut,
    malformed: BytesOut,
    high: BytesOut,
    known: Int32TableOut,
) -> int:
    """Fill the columns of `Items`; return the number of items.

    `newest[hash]` is the newest item with a hash of its name, `earlier[item]` the one before it. Items of
    other records are left in both, and recognized by their numbers.
    """
    with cython.nogil:
        count = 0
        for record in range(len(starts)):
            first = count
            firsts[record] = first
            start, end = max(starts[record], 0), min(ends[record], len(raw))
            middle = -1  # of the item that begins at `start`: where its first 01 stands
            block, bits, highest = start, 0, 0
            if start < end:
                bits, highest = (
                    places_of(raw, start, _NAME_VALUE_SEPARATOR, 2),
                    places_of(raw, start, _BEYOND_ASCII, _BEYOND_ASCII),
                )
            while start < end:
                while bits == 0 and block + BLOCK < end:
                    high[record] |= highest != 0
                    block += BLOCK
                    bits, highest = (
                        places_of(raw, block, _NAME_VALUE_SEPARATOR, 2),
                        places_of(raw, block, _BEYOND_ASCII, _BEYOND_ASCII),
                    )
                at = min(block + lowest_bit(bits), end) if bits != 0 else end
                bits &= bits - 1
                if at < end and raw[at] == _NAME_VALUE_SEPARATOR:
                    middle = at if middle < 0 else middle
                    continue
                if start < middle and middle + 1 < at:
                    name_starts[count], name_ends[count], value_ends[count] = start, middle, at
                    hashed = hash_of_name(raw, start, middle)
                    number = names_by_hash[hashed]
                    if number >= 0 and _same_ranges(raw, start, middle, names, names_at[number], names_at[number + 1]):
                        if known[number, record] >= 0:
                            replaced[known[number, record]] = 1
                        known[number, record] = count
                    else:
                        other = newest[hashed]
                        earlier[count] = other
                        newest[hashed] = count
                        while other >= first:
                            if _same_ranges(raw, start, middle, raw, name_starts[other], name_ends[other]):
                                replaced[other] = 1
                                break
                            other = earlier[other]
                    count += 1
                elif start < at and middle <= start:
                    malformed[record] = 1
                start, middle = at + 1, -1  # `end` is far from the largest integer
            # The last block may go on behind the text.
            inside = 1  # a variable: in C, a number that is written down has 32 bits
            inside = (inside << max(min(end - block, BLOCK), 0)) - 1
            high[record] |= highest & inside != 0
        firsts[len(starts)] = count
        return count


def hash_of_name(raw: Bytes, start: int, end: int) -> int:
    """Return a number below NAME_HASHES for a name of at least one byte: cheap, and few names in use share one."""
    size = end - start
    return (size * 89 + raw[start] * 37 + raw[start + (size >> 1)] * 13 + raw[end - 1]) & (NAME_HASHES - 1)


def _same_ranges(raw: Bytes, start: int, end: int, others: Bytes, other_start: int, other_end: int) -> bool:
    """Return whether two ranges hold the same bytes; both lie inside of their arrays."""
    return end - start == other_end - other_start and same_bytes(raw, start, others, other_start, end - start)


def find_places(raw: Bytes, start: int, end: int, prefix: Bytes, places: IntsOut) -> int:
    """Write where a text stands in `raw[start:end]`, as many places as there is room for; return their number.

    Fast only where it is compiled: 8 GB/s of random bytes, where a regular expression makes 2.
    """
    with cython.nogil:
        count = 0
        while count < len(places):
            start = find_bytes(raw, start, end, prefix, 0, len(prefix))
            if start < 0:
                break
            places[count] = start
            start += 1
            count += 1
        return count


def write_ids(
    raw: Bytes, hosts: Ints, sizes: Ints, places: Ints, digits: Bytes, offsets: Int32sOut, out: BytesOut
) -> None:
    """Write the hex digits of `sizes` bytes at `hosts`, and of PHYSICALOFFSET at `places`, for each record."""
    with cython.nogil:
        at = 0
        for row in range(len(hosts)):
            offsets[row] = at
            at = _write_hex(raw, hosts[row], sizes[row], digits, out, at)
            at = _write_hex(raw, places[row], _OWN_OFFSET_SIZE, digits, out, at)
        offsets[len(hosts)] = at


def _write_hex(raw: Bytes, start: int, size: int, digits: Bytes, out: BytesOut, at: int) -> int:
    """Write two digits for each of some bytes, as far as they are inside; return where they end."""
    if start >= 0 and size <= len(raw) - start and 2 * size <= len(out) - at:
        for place in range(start, start + size):
            out[at] = digits[raw[place] >> 4]
            out[at + 1] = digits[raw[place] & 15]
            at += 2
    return at


def find_words(raw: Bytes, borders: Int32s, firsts: Int32sOut, starts: IntsOut, ends: IntsOut) -> int:
    """Write the words of each text, and the number of its first one; return how many there are.

    Text i is at [borders[i], borders[i + 1]). `starts` and `ends` have room for all words.
    """
    with cython.nogil:
        count = 0
        for row in range(len(borders) - 1):
            firsts[row] = count
            at, end = max(borders[row], 0), min(borders[row + 1], len(raw))
            while at < end:
                start = at
                while at < end and raw[at] != _SPACE:
                    at += 1
                if start < at and count < len(starts):
                    starts[count], ends[count] = start, at
                    count += 1
                at += 1
        firsts[len(borders) - 1] = count
        return count


if cython.compiled:
    pass
else:
    take_arrays(__name__)
