"""Compressed message bodies → payloads, within a limit."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rmqinspect.decompress import BodyTooLarge, decompress
from rmqinspect.errors import BadRecord

Ints = NDArray[np.int64]

_UNDECODABLE, _TOO_LARGE = "body_undecodable", "body_too_large"


def decompress_bodies(
    bodies: pa.Array, compressed: Ints, compressions: pa.Array, limit: int
) -> tuple[pa.Array, dict[str, Ints]]:
    """Replace the compressed bodies by their payloads.

    Returns the bodies, and which rows stayed as stored, by the status that says why.
    Source: CompressorFactory; zlib (RFC 1950), lz4 frame, zstd frame.
    """
    replaced = np.zeros(len(bodies), np.bool_)
    payloads = []
    problems: dict[str, list[int]] = {_UNDECODABLE: [], _TOO_LARGE: []}
    for number in compressed.tolist():
        body = bodies[number].as_py()
        if not body:  # MessageDecoder#decode asks for a body before it asks for the flag
            continue
        compression = compressions[number].as_py()
        if compression is None:  # type bits that no reader knows
            problems[_UNDECODABLE].append(number)
            continue
        try:
            payloads.append(decompress(body, compression, limit))
            replaced[number] = True
        except BodyTooLarge:
            problems[_TOO_LARGE].append(number)
        except BadRecord:
            problems[_UNDECODABLE].append(number)
    marked = {status: np.array(which, np.int64) for status, which in problems.items() if which}
    return pc.replace_with_mask(bodies, pa.array(replaced), pa.array(payloads, pa.binary())), marked
