"""Decompression of message bodies, within a limit."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqinspect.codec.arrays import Ints
from rmqinspect.codec.decompress import BodyTooLarge, decompress
from rmqinspect.errors import BadRecord

BATCH_SIZE = 16 << 20  # bytes of payloads after which a batch ends: at most these and one body are in memory

_UNDECODABLE, _TOO_LARGE = "body_undecodable", "body_too_large"


def decompress_bodies(
    bodies: pa.Array, compressed: Ints, compressions: pa.Array, limit: int
) -> tuple[pa.Array, dict[str, Ints], int]:
    """Replace compressed bodies by their payloads.

    Returns the bodies; the rows left as stored, by status; and the number of rows done. That number is smaller than
    `len(bodies)` where the payloads of one batch would grow too large: the caller passes the rest again.

    Source: CompressorFactory; zlib (RFC 1950), lz4 frame, zstd frame.
    """
    replaced = np.zeros(len(bodies), np.bool_)
    payloads = []
    problems: dict[str, list[int]] = {_UNDECODABLE: [], _TOO_LARGE: []}
    done, size = len(bodies), 0
    for number in compressed.tolist():
        if size > BATCH_SIZE:
            done = number
            break
        body = bodies[number].as_py()
        if not body:  # MessageDecoder#decode ignores the flag of an empty body
            continue
        compression = compressions[number].as_py()
        if compression is None:  # unknown type bits
            problems[_UNDECODABLE].append(number)
            continue
        try:
            payloads.append(decompress(body, compression, limit))
            replaced[number] = True
            size += len(payloads[-1])
        except BodyTooLarge:
            problems[_TOO_LARGE].append(number)
        except BadRecord:
            problems[_UNDECODABLE].append(number)
    by_status = {status: np.array(which, np.int64) for status, which in problems.items() if which}
    values = pa.array(payloads, pa.binary())
    payloads.clear()  # not twice beside the column they become part of
    if replaced[:done].all():
        return values, by_status, done
    whole = pc.replace_with_mask(bodies[:done], pa.array(replaced[:done]), values)
    return whole, by_status, done
