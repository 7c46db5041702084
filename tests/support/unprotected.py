"""Flips of single bits, and the bits of a commit log whose flip cannot be detected: name and reason.

Nothing in the format protects them, or only a neighbour that is missing. `test_bit_flips` checks the list in
both directions: every undetected bit is listed, and every listed name has one.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple


class Bit(NamedTuple):
    """One bit of a file, and what it is part of."""

    name: str
    path: Path
    position: int  # of its byte
    bit: int  # 0 is the lowest


def flip_each(bits: Iterable[Bit], is_silent: Callable[[], bool]) -> tuple[Counter[str], set[str]]:
    """Flip bits, one at a time; return how many of each name, and the names of those of which a flip was silent."""
    flipped, silent = Counter[str](), set[str]()
    for name, path, position, bit in bits:
        with path.open("r+b", buffering=0) as file:
            file.seek(position)
            (octet,) = file.read(1)
            for value in (octet ^ 1 << bit, octet):
                file.seek(position)
                file.write(bytes([value]))
                if value != octet:
                    flipped[name] += 1
                    silent |= {name} if is_silent() else set()
    return flipped, silent


UNPROTECTED = {
    # No checksum covers the head of a record, and any value of these is possible.
    "flag": "the user's own number",
    "born_timestamp": "the producer's clock may be wrong by any time",
    "born_host.address": "any address is possible",
    "born_host.port, low half": "any of 65536 ports is possible",
    "store_host.address": "any address is possible; a log may have been written by several brokers",
    "store_host.port, low half": "any of 65536 ports is possible",
    "reconsume_times": "any number is possible",
    "prepared_transaction_offset": "only a commit means something by it, and its half message may be gone",
    "sys_flag 0x1": "compressed: the body is not unpacked to see whether it is",
    "sys_flag 0x2": "several tags: nothing depends on it",
    "sys_flag 0x8": "committed: a message may be one without a trace of its half",
    "sys_flag 0x40": "an inner batch that is to be unwrapped: nothing in the log depends on it",
    "sys_flag 0x80": "inner batch: one without INNER_NUM counts as one message",
    "sys_flag 0x100 to 0x400": "how a body was compressed; means nothing for one that is not",
    "sys_flag above": "bits without a meaning yet",
    # Store times show a flip by their order alone.
    "store_timestamp, below 1024 ms": "clocks are set back a little now and then, and a second is no jump",
    "store_timestamp, first of the log": "no record before it could seem newer",
    "store_timestamp, last of the log": "no record behind it could seem older",
    # What queue a record belongs to shows in the numbers of the record behind it and before it.
    "queue_id, first of its queue": "the queue seems to begin one record later, and another one with this record",
    "queue_id, last of its queue": "the queue seems to end one record earlier",
    "topic, first of its queue": "as its queue id, where the letter is still a letter of topics",
    "topic, last of its queue": "as its queue id",
    "sys_flag 0x4, first of its queue": "prepared: its queue offset, now said not to count, is 0 as it should be",
    "sys_flag 0x4, last of its queue": "prepared: the queue seems to end one record earlier",
    # Property texts have no checksum (but see __CRC32#), and any name and value is possible.
    "properties, names and values": "any text is possible",
    "properties, 02 behind a value": "a value may hold any byte: the next property is taken for a part of it",
    "properties_size, sign, without properties": "a negative length counts as none, for a broker too",
    "body_size, sign, without a body": "a negative length counts as none, for a broker too",
    "__CRC32#, its name": "the record seems to be one of the many that have no CRC",
    # Not part of the log.
    "behind a blank record": "bytes there are not defined: some versions leave old messages in them",
}
