"""One walk through index entries and the keys of the records of a split, side by side.

Where the two are out of step it searches, and goes on from what it found.

    keys of records    a1 a2 b1 b2 b3 c1 ...
    entries            a1 a2 b1 b3 xx c1 ...      b2 has no entry; xx is odd: no key is at hand for it
"""

from rmqinspect.codec.kernels import Bytes, BytesOut, Int32s, Ints, IntsOut, inlined, int32_at, int64_at, kernel
from rmqinspect.codec.layout import place_of
from rmqinspect.schemas.index import IndexEntry
from rmqinspect.verify.index.entries import ENTRY_SIZE, MAX_INT, is_written
from rmqinspect.verify.runs import split_of

_PLACE, _HASH, _SECONDS = (place_of(IndexEntry, name) for name in ("physical_offset", "key_hash", "time_diff"))
_NEAR, _FAR = 4, 64  # keys looked at from the next one on, and from a record's first one on


@inlined
def _key_at(
    key: int, most: int, place: int, key_hash: int, places: Ints, key_record: Int32s, key_hashes: Int32s
) -> int:
    """Return the first of `most` keys, from number `key` on, of the record at a place with a hash; -1 if none is."""
    for at in range(key, min(key + most, len(key_record), len(key_hashes))):
        if key_hashes[at] == key_hash and 0 <= key_record[at] < len(places) and places[key_record[at]] == place:
            return at
    return -1


@kernel
def find_keys(
    raw: Bytes,
    low: int,
    last: int,
    begin: int,
    sure: int,
    unsure: int,
    places: Ints,
    times: Ints,
    key_record: Int32s,
    key_hashes: Int32s,
    has_entry: BytesOut,
    odd: IntsOut,
) -> int:
    """Find the key of each entry that points at [low, last]; return of how many, and mark those keys.

    The rows of all others come to the front of `odd`, behind their number: without a key at hand, outside of the rows
    [sure, unsure), or of another time than the record; `begin` is the time of the file's header, negative: not to be
    compared.
    """
    key, known, count = 0, 0, 0
    for row in range(min(len(raw) // ENTRY_SIZE, len(odd) - 1)):
        at = row * ENTRY_SIZE
        place, key_hash = int64_at(raw, at + _PLACE), int32_at(raw, at + _HASH)
        if place < low or place > last or (place == 0 and not is_written(raw, at)):
            continue
        found = _key_at(key, _NEAR, place, key_hash, places, key_record, key_hashes)
        if found < 0:
            first = split_of(key_record, split_of(places, place) - 1) + 1
            found = _key_at(first, _FAR, place, key_hash, places, key_record, key_hashes)
        if 0 <= found < len(has_entry) and key_record[found] < len(times):
            key = found + 1
            stored = times[key_record[found]]
            # The difference of two positive numbers; negative times are judged elsewhere.
            seconds = min((stored - begin) // 1000, MAX_INT) if 0 < begin < stored else 0
            fits = begin < 0 or (stored >= 0 and int32_at(raw, at + _SECONDS) == seconds)
            if fits and sure <= row < unsure:
                has_entry[found] = 1
                known += 1
                continue
        count += 1
        odd[count] = row
    odd[0] = count
    return known
