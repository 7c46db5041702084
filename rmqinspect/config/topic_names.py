"""The names of a store's topics, quickly: for shell completion, which may not wait, fail or scan."""

import os
import stat
from itertools import islice

from rmqinspect.config.json_files import read_copy
from rmqinspect.errors import RmqinspectError
from rmqinspect.store.model import MAX_CONFIG_SIZE, StoreFile
from rmqinspect.system import filesystem, uri

_LARGEST_FILE = MAX_CONFIG_SIZE  # bytes of topics.json, read in a tenth of a second; larger ones are left out
_MOST_FOLDERS = 10_000
_QUEUES = ("consumequeue", "batchconsumequeue")


def topic_names(path: str) -> set[str]:
    """Return the topics in `config/topics.json` and the folders of consume queues below a store's root.

    Empty for everything else, also for what cannot be read, and for remote stores, which would take seconds.
    """
    if uri.is_remote(path):
        return set()
    names: set[str] = set()
    for name in ("topics.json", "topics.json.bak"):
        names = _in_file(os.path.join(path, "config", name))
        if names:
            break
    for folder in _QUEUES:
        names |= _folders(os.path.join(path, folder))
    return names


def _in_file(path: str) -> set[str]:
    try:
        status = filesystem.stat(path)
        if not stat.S_ISREG(status.st_mode) or status.st_size > _LARGEST_FILE:
            return set()
        document = read_copy(StoreFile(path, path, status.st_size, "config"), "topics.json")
    except (OSError, RmqinspectError):
        return set()
    return set(document.table("topicConfigTable"))


def _folders(path: str) -> set[str]:
    try:
        entries = islice(filesystem.scandir(path), _MOST_FOLDERS)
        return {entry.name for entry in entries if entry.is_dir(follow_symlinks=False)}
    except OSError:
        return set()
