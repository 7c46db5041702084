"""One compressed body, with a limit on what it may become."""

import zlib

from rmqinspect.errors import BadRecord


class BodyTooLarge(BadRecord):
    """The body would exceed the limit after decompression."""


_CHUNK = 1 << 20  # bytes asked for at a time, so that the limit bounds the memory


def decompress(body: bytes, compression: str, limit: int) -> bytes:
    """Return a zlib, lz4 (frame) or zstd body as its producer gave it.

    :raises BadRecord: it is no such stream, ends too early; `BodyTooLarge` beyond `limit` bytes.
    """
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
    # Slow to import, and needed for these two only.
    import pyarrow as pa

    raw = bytearray()
    try:
        with pa.CompressedInputStream(pa.BufferReader(body), compression) as stream:
            while len(raw) <= limit and (chunk := stream.read(min(_CHUNK, limit + 1))):
                raw += chunk
    except (OSError, pa.ArrowException) as error:
        raise BadRecord(f"{compression}: {error}") from error
    return bytes(raw)
