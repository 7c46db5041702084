"""Which process holds the lock of a store."""

import fcntl
import os
import struct
import sys
from contextlib import suppress

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
    """Return the pid of the process that holds the store's lock, None without one, or where that cannot be seen."""
    try:
        return _holder(store)
    except (OSError, Unreadable):
        return None


def running_broker(store: Store, unread: list[str]) -> int | None:
    """Return the pid of the broker that runs on a store: it holds the lock, or still loads and recovers.

    It opens `lock` first of all, and takes the lock when all is loaded, which may be minutes later.
    Source: DefaultMessageStore#<init>, #load, #start; 4.2.0 to 5.5.0. `unread` gets why it cannot be told.
    """
    try:
        holder = _holder(store)
        return _opener(store) if holder is None else holder
    except (OSError, Unreadable) as error:
        unread.append(f"{error}: whether a broker runs on this store is not known")
        return None


def _holder(store: Store) -> int | None:
    """Ask for the lock without taking it (F_GETLK): a broker would notice a lock taken by us.

    Source: DefaultMessageStore#start (FileChannel#tryLock on byte 0 of `lock`).
    """
    locks = store.of_kind("lock")
    if not locks or not sees_locks(store):
        return None
    query = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
    with open_file(locks[0]) as reader:
        answer = fcntl.fcntl(reader.fileno(), fcntl.F_GETLK, query)
    kind, _, _, _, pid = _FLOCK.unpack(answer)
    return None if kind == fcntl.F_UNLCK else int(pid)


def _opener(store: Store) -> int | None:
    """Return the pid of a Java process that has the lock's file open, as far as its files can be seen."""
    locks = store.of_kind("lock")
    if not locks or not sees_locks(store):
        return None
    own = os.stat(locks[0].path)
    for process in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):  # it has ended, or is another user's
            with open(f"/proc/{process}/comm", "rb") as name:
                if name.read() != b"java\n":
                    continue
            for number in os.listdir(f"/proc/{process}/fd"):
                with suppress(OSError):  # it is closed meanwhile
                    if os.path.samestat(os.stat(f"/proc/{process}/fd/{number}"), own):
                        return int(process)
    return None
