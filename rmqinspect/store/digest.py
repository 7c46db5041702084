"""The SHA-256 of files of the evidence: the content in pieces, holes as the zeros they read as."""

import hashlib
from collections.abc import Iterator

from rmqinspect.store.model import StoreFile
from rmqinspect.store.reader import FileReader, open_file

_CHUNK = 1 << 20  # bytes per read: hashing them takes much longer than switching threads
_ZEROS = memoryview(bytes(_CHUNK))


def content_of(reader: FileReader) -> Iterator[memoryview]:
    """Yield the content of a file in pieces, each valid until the next; less if it became shorter meanwhile.

    :raises Unreadable: an I/O error.
    """
    buffer = memoryview(bytearray(min(_CHUNK, reader.size)))
    at = 0
    while at < reader.size:
        # A hole reads as zeros: given, not read.
        hole = min(reader.next_allocated(at) - at, _CHUNK)
        raw = _ZEROS[:hole] if hole else buffer[: reader.read_into(buffer[: reader.size - at], at)]
        if not raw:
            return
        yield raw
        at += len(raw)


def sha256_of(file: StoreFile) -> str:
    """Return the digest of a file in hex.

    :raises Unreadable: it cannot be read to its end.
    """
    digest = hashlib.sha256()
    with open_file(file) as reader:
        for raw in content_of(reader):
            digest.update(raw)
    return digest.hexdigest()
