"""Consume queues in RocksDB, as queue files beside those of the store."""

from contextlib import ExitStack
from dataclasses import replace
from tempfile import TemporaryDirectory

from rmqinspect.consumequeue.rocksdb import NoRocksdict, unpack_queues
from rmqinspect.errors import Unreadable
from rmqinspect.store.model import Store
from rmqinspect.text import count


def with_unpacked_queues(store: Store, copies: ExitStack) -> tuple[Store, str]:
    """Return the store with the queues of its RocksDB as queue files, and what of them is unreadable ("": nothing).

    The files are in a temporary folder that `copies` removes. A queue that is in both forms is taken from RocksDB.

    :raises NoRocksdict: the library that reads RocksDB is not installed.
    """
    if not any(file.name.startswith("consumequeue") for file in store.of_kind("rocksdb")):
        return store, ""
    folder = copies.enter_context(TemporaryDirectory(prefix="rmqinspect-"))
    try:
        unpacked = unpack_queues(store, folder)
    except NoRocksdict:
        raise
    except Unreadable as error:
        return store, str(error).replace(folder, "the copy")
    if not unpacked.files:
        return store, "consumequeue: its RocksDB contains no queue, as after the loss of its newest files"
    names = {(file.topic, file.queue_id) for file in unpacked.files}
    others = [file for file in store.queue_files if file.kind != "queue" or (file.topic, file.queue_id) not in names]
    merged = sorted((*unpacked.files, *others), key=lambda file: (file.topic, file.queue_id, file.kind, file.base))
    malformed = unpacked.malformed
    unread = f"consumequeue: its RocksDB has {count(malformed, 'key')} of no queue" if malformed else ""
    return replace(store, queue_files=tuple(merged)), unread
