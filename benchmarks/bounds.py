"""What no reader and no export does without, measured in a process of its own, which may take memory.

    python -m benchmarks.bounds STORE

reads requests from stdin, one a line, and answers each with a line of JSON:

    log                   where the log is, and what it holds
    read THREADS [CRC]    read the log into one buffer per thread; CRC: `zlib` or `isal`, of each filled buffer
    write FOLDER          write the table `messages` from memory as one Parquet file, in one thread
    rows                  decode the rows of that table in one thread, and discard them
"""

import json
import os
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict
from functools import cached_property
from threading import Thread

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.measure import Cost, run_here
from benchmarks.stores import Log
from rmqinspect.store.discover import open_store
from rmqinspect.tables import TABLES
from rmqinspect.tables.request import Request

_BUFFER_SIZE = 4 << 20
_PIECE_SIZE = 64 << 20  # bytes a reading thread takes at a time
_MESSAGES = TABLES["messages"]

_CHECKSUMS: dict[str, Callable[[memoryview], int]] = {"zlib": zlib.crc32}
with suppress(ImportError):  # no wheel for this machine
    from isal import isal_zlib

    _CHECKSUMS["isal"] = isal_zlib.crc32


class Bounds:
    """A store, and the work that every reader of it has to do."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.store = open_store([path])

    def log(self) -> Log:
        """Return what the log holds.

        :raises SystemExit: it has no records.
        """
        records = size = 0
        for batch in self._batches("physical_offset", "size"):
            records += batch.num_rows
            size += sum(batch.column("size").to_pylist())
        if not records:
            raise SystemExit(f"{self.path}: no records")
        pointed_at = bool(self.store.queue_files or self.store.index_files)
        return Log(self.path, os.path.dirname(self.store.segments[0].path), pointed_at, records, size)

    @cached_property
    def ends(self) -> list[tuple[str, int]]:
        """(segment, end of its last record)."""
        ends = {segment.path: 0 for segment in self.store.segments}
        for batch in self._batches("physical_offset", "size"):
            last = batch.num_rows - 1
            end = batch.column("physical_offset")[last].as_py() + batch.column("size")[last].as_py()
            segment = next(segment for segment in self.store.segments if segment.base < end <= segment.end)
            ends[segment.path] = end - segment.base
        return list(ends.items())

    @cached_property
    def table(self) -> pa.Table:
        """The whole table."""
        return pa.Table.from_batches(self._batches(), _MESSAGES.schema).combine_chunks()

    def _batches(self, *columns: str) -> Iterator[pa.RecordBatch]:
        return _MESSAGES.rows(self.store, Request(columns=frozenset(columns or _MESSAGES.schema.names)))

    def read(self, threads: int, checksum: Callable[[memoryview], int] | None) -> Cost:
        """Read the log into one buffer per thread."""
        pieces = iter(
            [
                (path, start, min(start + _PIECE_SIZE, end))
                for path, end in self.ends
                for start in range(0, end, _PIECE_SIZE)
            ]
        )  # shared by the threads
        workers = [Thread(target=_read_pieces, args=(pieces, checksum)) for _ in range(threads)]

        def work() -> None:
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()

        return run_here(work)

    def write(self, folder: str) -> Cost:
        """Write the table with pyarrow's defaults except the compression, which is the one of exports."""
        table, place = self.table, os.path.join(folder, "table.parquet")
        return run_here(lambda: pq.write_table(table, place, compression="zstd", compression_level=1))

    def rows(self) -> Cost:
        """Decode the rows and discard them."""
        return run_here(lambda: [None for _ in self._batches()].clear())

    def answer(self, what: str, *details: str) -> Log | Cost:
        """Do what a request asks for."""
        match what:
            case "log":
                return self.log()
            case "read":
                return self.read(int(details[0]), _CHECKSUMS[details[1]] if details[1:] else None)
            case "write":
                return self.write(" ".join(details))
            case "rows":
                return self.rows()
        raise SystemExit(f"no request: {what}")


def _read_pieces(pieces: Iterable[tuple[str, int, int]], checksum: Callable[[memoryview], int] | None) -> None:
    view = memoryview(bytearray(_BUFFER_SIZE))
    for path, start, end in pieces:
        file = os.open(path, os.O_RDONLY)
        while start < end and (size := os.preadv(file, [view[: end - start]], start)):
            if checksum:
                checksum(view[:size])
            start += size
        os.close(file)


def main(path: str) -> None:
    """Answer the requests on stdin."""
    pa.set_cpu_count(1)
    bounds = Bounds(path)
    for line in sys.stdin:
        print(json.dumps(asdict(bounds.answer(*line.split()))), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
