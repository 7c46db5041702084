"""Which process holds the lock of a store."""

import fcntl
import os
import struct
import sys

from rmqinspect.errors import Unreadable
from rmqinspect.store.model import Store
from rmqinspect.store.reader import open_file
from rmqinspect.system import uri

# struct flock of 64-bit Linux: type, whence, start, length, pid.
_FLOCK = struct.Struct("hhqqi")


def sees_locks(store: Store) -> bool:
    """Whether `lock_holder` can find a lock: on Linux, and not on a remote file system."""
    return sys.platform.startswith("linux") and not any(map(uri.is_remote, store.paths))


def lock_holder(store: Store) -> int | None:
    """Return the pid of the process that holds the store's lock, None without one.

    F_GETLK queries the lock without taking it; a broker would notice a lock taken by us.
    Source: DefaultMessageStore#start (FileChannel#tryLock on byte 0 of `lock`).
    """
    locks = store.of_kind("lock")
    if not locks or not sees_locks(store):
        return None
    query = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
    try:
        with open_file(locks[0]) as reader:
            answer = fcntl.fcntl(reader.fileno(), fcntl.F_GETLK, query)
    except (OSError, Unreadable):
        return None
    kind, _, _, _, pid = _FLOCK.unpack(answer)
    return None if kind == fcntl.F_UNLCK else int(pid)
