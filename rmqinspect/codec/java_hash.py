"""Java's string hash of texts as they stand in a file, for kernels: index keys and tags.

    hash(c[0] … c[n-1]) = sum of c[i] * 31^(n-1-i), modulo 2^32, over UTF-16 code units
    hash(a + b)         = goes on with b from hash(a)

By the second line the prefix `topic#` of index keys is hashed once per topic. Hashes are carried as unsigned numbers;
`as_int` gives what Java shows. `codec.java` does the same for one decoded text, without numpy; a test compares the two.
"""

# mypy: disable-error-code="no-any-return"

from rmqinspect.codec.kernels import Bytes, inlined

_32_BITS, _SIGN = 0xFFFFFFFF, 0x80000000
_31_2, _31_3, _31_4 = 31**2, 31**3, 31**4  # below 2^20, so a product with 32 bits stays within 63
_ASCII_END = 0x80
_REPLACEMENT = 0xFFFD
_FIRST_PAIR = 0x10000  # code points from here on are two UTF-16 units
_HIGH, _LOW = 0xD800, 0xDC00


@inlined
def java_hash(raw: Bytes, start: int, end: int, before: int) -> int:
    """Return the hash, below 2^32, of a text with the hash `before` and the UTF-8 text `raw[start:end]` behind it.

    The range lies inside of `raw`. Invalid UTF-8 is replaced as by Java's `new String(bytes, UTF_8)`.
    """
    # `+ 0` makes a byte a number of 64 bits: the compiler gives a variable one type.
    hashed, at = before, start
    while at + 4 <= end and (raw[at] | raw[at + 1] | raw[at + 2] | raw[at + 3]) < _ASCII_END:
        four = raw[at] * _31_3 + raw[at + 1] * _31_2 + raw[at + 2] * 31 + raw[at + 3]
        hashed = (hashed * _31_4 + four) & _32_BITS
        at += 4
    while at < end:
        size, code = 1, raw[at] + 0
        if code >= _ASCII_END:
            decoded = _decode(raw, at, end)
            size, code = decoded & 7, decoded >> 3
        if code >= _FIRST_PAIR:
            hashed = (hashed * 31 + _HIGH + ((code - _FIRST_PAIR) >> 10)) & _32_BITS
            code = _LOW + (code & 0x3FF)
        hashed = (hashed * 31 + code) & _32_BITS
        at += size
    return hashed


def hash_of(text: bytes) -> int:
    """Return the hash of one UTF-8 text, below 2^32."""
    return java_hash(text, 0, len(text), 0)  # type: ignore[arg-type]


@inlined
def as_int(hashed: int) -> int:
    """Return a hash as the signed int that Java shows."""
    return (hashed ^ _SIGN) - _SIGN


@inlined
def index_hash_of(hashed: int) -> int:
    """Return what an index file stores for a key's hash. Source: IndexFile#indexKeyHashMethod."""
    # Math.abs leaves the smallest int negative; the broker makes it 0.
    return 0 if hashed == _SIGN else abs(as_int(hashed))


@inlined
def _decode(raw: Bytes, at: int, end: int) -> int:
    """Return eight times a code point, plus the number of its bytes at `at`, where a byte above ASCII stands.

    Bytes that begin a character and do not end it are one replacement together. So are the three of a surrogate,
    where Unicode recommends three. Source: sun.nio.cs.UTF_8, java.lang.String#decodeUTF8_UTF16.
    """
    lead = raw[at] + 0
    if lead < 0xC2 or lead > 0xF4:
        return _REPLACEMENT << 3 | 1
    second = raw[at + 1] + 0 if at + 1 < end else 0
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
    third = raw[at + 2] + 0 if at + 2 < end else 0
    if third & 0xC0 != 0x80:
        return _REPLACEMENT << 3 | 2
    if lead < 0xF0:
        code = (lead & 0x0F) << 12 | (second & 0x3F) << 6 | third & 0x3F
        return (_REPLACEMENT if _HIGH <= code < 0xE000 else code) << 3 | 3
    fourth = raw[at + 3] + 0 if at + 3 < end else 0
    if fourth & 0xC0 != 0x80:
        return _REPLACEMENT << 3 | 3
    return ((lead & 0x07) << 18 | (second & 0x3F) << 12 | (third & 0x3F) << 6 | fourth & 0x3F) << 3 | 4
