"""Decompression of one body, with a limit on its size."""

import zlib

from rmqinspect.errors import BadRecord


class BodyTooLarge(BadRecord):
    """The decompressed body would exceed the limit."""


_CHUNK = 1 << 20  # bytes per read, so that the limit also bounds memory
_LARGEST = (1 << 31) - 1  # bytes of a Java array: a broker and its clients cannot hold a larger body


def decompress(body: bytes, compression: str, limit: int) -> bytes:
    """Return the decompressed body; `compression` is zlib, lz4 (frame format) or zstd.

    :raises BadRecord: the stream is malformed or truncated.
    :raises BodyTooLarge: it has more than `limit` bytes.
    """
    limit = min(limit, _LARGEST)
    raw = _zlib(body, limit) if compression == "zlib" else _by_arrow(body, compression, limit)
    if len(raw) > limit:
        raise BodyTooLarge(f"more than {limit} bytes after decompression")
    return raw


def _zlib(body: bytes, limit: int) -> bytes:
    stream = zlib.decompressobj()
    try:
        raw = stream.decompress(body, limit + 1)
    except zlib.error as error:
        raise BadRecord(f"zlib: {error}") from error
    if not stream.eof and len(raw) <= limit:
        raise BadRecord("zlib: the stream ends too early")
    return raw


def _by_arrow(body: bytes, compression: str, limit: int) -> bytes:
    # Slow to import, and rarely needed.
    import pyarrow as pa

    raw = bytearray()
    try:
        with pa.CompressedInputStream(pa.BufferReader(body), compression) as stream:
            while len(raw) <= limit and (chunk := stream.read(min(_CHUNK, limit + 1))):
                raw += chunk
    except (OSError, pa.ArrowException) as error:
        raise BadRecord(f"{compression}: {error}") from error
    return bytes(raw)
