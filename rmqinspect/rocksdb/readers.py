"""Reads databases in a process of its own: `python -m rmqinspect.rocksdb.readers JOBS`.

RocksDB may end the process that opens a damaged database, or allocate without bound: both may cost this process
only. It writes what it reads as files of the kinds that stores without RocksDB have, and an index of them.
"""

import json
import os
import resource
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from typing import TextIO, cast

from rmqinspect.rocksdb.config_reader import write_config, write_config_v2
from rmqinspect.rocksdb.entry_reader import write_entries
from rmqinspect.rocksdb.job import INDEX, QUEUE_OFFSETS, Job, write_line
from rmqinspect.rocksdb.queue_reader import Chunk, find_ends, read_end, write_offsets, write_queues

_CHUNK = 1 << 16  # entries per read
_OPEN_FILES = 64
_MAX_MEMORY = 4 << 30  # address space


def main(jobs: str) -> None:
    """Read the databases named in the file `jobs`, one after the other; the first failure ends the process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (_MAX_MEMORY, _MAX_MEMORY))
    with open(jobs, encoding="utf-8") as lines:
        for job in (Job(**json.loads(line)) for line in lines):
            _read(job)


def _read(job: Job) -> None:
    part = os.path.join(job.folder, INDEX + ".part")
    with open(part, "w", encoding="ascii") as index:
        READERS[job.reads](_Families(job.copy), job, index)
    os.rename(part, os.path.join(job.folder, INDEX))


class _Families:
    """The column families of a database that is open for reading."""

    def __init__(self, copy: str) -> None:
        from rocksdict import AccessType, Options, Rdict

        # Not the options in the folder: they name paths of the broker's host.
        options = Options(raw_mode=True)
        options.set_max_open_files(_OPEN_FILES)
        self.names = Rdict.list_cf(copy, options)
        families = {name: Options(raw_mode=True) for name in self.names}
        access = AccessType.read_only(error_if_log_file_exist=False)
        self._database = Rdict(copy, options=options, column_families=families, access_type=access)

    def chunks(self, name: str) -> Iterator[Chunk]:
        """Yield the items of a column family, none if there is no such family.

        At a block that RocksDB cannot read, rocksdict ends its items as if there were no more: only RocksDB's own
        iterator says whether anything follows.
        """
        if name not in self.names:
            return
        family = self._database.get_column_family(name)
        items, last = iter(family.items()), None
        while chunk := cast(Chunk, tuple(islice(items, _CHUNK))):
            last = chunk[-1][0]
            yield chunk
        rest = family.iter()
        if last is None:
            rest.seek_to_first()
        else:
            rest.seek(last)
            rest.next()
        rest.status()  # raises RocksDB's error
        if rest.valid():
            raise EOFError("the entries end before the database does")

    def items(self, name: str) -> Iterator[tuple[bytes, bytes]]:
        """Yield the items of a column family one by one."""
        return chain.from_iterable(self.chunks(name))

    def get(self, key: bytes, name: str = "default") -> bytes | None:
        """Return a value of a column family, None if there is no such family or key."""
        if name not in self.names:
            return None
        value: bytes | None = self._database.get_column_family(name).get(key)
        return value


def _read_queues(families: _Families, job: Job, index: TextIO) -> None:
    totals = write_queues(families.chunks("default"), job.folder, index)
    for key, value in families.items("offset"):
        end = read_end(key, value)
        if end is None:
            totals["malformed"] += 1
        elif end:
            write_line(index, end)
    write_line(index, totals)
    _write_offsets(families, job, index, with_units=True)


def _read_ends(families: _Families, job: Job, index: TextIO) -> None:
    for line in find_ends(families.items("offset"), families.get, job.log_start):
        write_line(index, line)
    _write_offsets(families, job, index, with_units=False)


def _write_offsets(families: _Families, job: Job, index: TextIO, *, with_units: bool) -> None:
    def get(key: bytes) -> bytes | None:
        return families.get(key, "offset")

    write_offsets(families.items("offset"), get, os.path.join(job.folder, QUEUE_OFFSETS), with_units=with_units)
    write_line(index, {"document": QUEUE_OFFSETS})


READERS: dict[str, Callable[[_Families, Job, TextIO], None]] = {
    "queues": _read_queues,
    "ends": _read_ends,
    "config": lambda families, job, index: write_config(job.name, families.names, families.items, job.folder, index),
    "config_v2": lambda families, job, index: write_config_v2(families.items("default"), job.folder, index),
    "entries": lambda families, job, index: write_entries(families.items, families.get, job.folder, index),
}


def _arguments(given: Sequence[str]) -> str:
    (jobs,) = given
    return jobs


if __name__ == "__main__":
    main(_arguments(sys.argv[1:]))
