"""The folder that an export goes to: claimed before anything is written, whole at the end or untouched.

Locally every file is written under a hidden name; at the end all are renamed, then `_manifest.json` and
`_SUCCESS` are written. On object storage there is no rename: files have their names as soon as they are
whole, and readers trust the manifest, which comes last.
"""

import os
import re
import shutil
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from rmqinspect.errors import Refused, RmqinspectError
from rmqinspect.export.manifest import MANIFEST, SUCCESS, Manifest, read_manifest
from rmqinspect.export.request import FINDINGS
from rmqinspect.system.output_file import refuse_inside
from rmqinspect.system.output_folder import Folder, open_folder
from rmqinspect.system.uri import shown
from rmqinspect.tables import TABLES

FRESH, OVERWRITE, INCREMENTAL = "fresh", "overwrite", "incremental"

_FOLDERS = (*TABLES, FINDINGS)

# Names that exports make, and nothing else does: parts (whole, or left by one that was killed), and two more.
_PART = re.compile(r"\.?[^/]*-(\d{20}-\d{20}|\d{5})\.parquet(\.[0-9a-f]+\.[0-9a-f]+\.part)?")
_UNFINISHED = re.compile(r".*\.parquet\.[0-9a-f]+\.[0-9a-f]+\.part|.*\._(manifest\.json|SUCCESS)\.[0-9a-f]+\.part")


class Target:
    """The folder of one export; nothing of it is changed before `commit`."""

    def __init__(self, path: str, mode: str, evidence: Sequence[str]) -> None:
        """Claim a folder: new or empty, or with an earlier export that may be replaced or added to.

        :raises Refused: something else is there, or it lies inside of a store.
        """
        self.path, self.mode = path, mode
        self.folder: Folder = open_folder(path)
        refuse_inside(self.folder.path, evidence)
        if not self.folder.is_remote and self.folder.exists() and not os.path.isdir(self.folder.path):
            raise Refused(f"{shown(path)}: exists already and is no folder")
        self._was_there = self.folder.exists()
        self._before = set(self.folder.names())
        self._made: set[str] = set()  # names that `commit` has given
        self._is_whole = False
        self.earlier: Manifest | None = None
        self._judge()

    def _judge(self) -> None:
        where = shown(self.path)
        foreign = sorted(name for name in self._before if not _is_ours(name))
        if foreign:
            raise Refused(f"{where}: holds {foreign[0]}, which is of no export; nothing is written beside it")
        whole = SUCCESS in self._before and MANIFEST in self._before
        if self._before and self.mode == FRESH:
            what = "an export is there already: --overwrite replaces it, --incremental adds what is new"
            raise Refused(f"{where}: {what if whole else 'an unfinished export is there: --overwrite replaces it'}")
        if self.mode == INCREMENTAL and self._before:
            if not whole:
                raise Refused(f"{where}: an unfinished export is there: --overwrite replaces it")
            self.earlier = read_manifest(self.folder.read(MANIFEST), f"{where}/{MANIFEST}")

    @property
    def free(self) -> int | None:
        """Bytes that are free where it lies, None where that cannot be known."""
        if self.folder.is_remote:
            return None
        place = os.path.abspath(self.folder.path)
        while not os.path.exists(place):
            place = os.path.dirname(place)
        return shutil.disk_usage(place).free

    def begin(self) -> None:
        """Take the signs of wholeness away where files are replaced as they are written."""
        if self.folder.is_remote:
            for name in (SUCCESS, *((MANIFEST,) if self.mode == OVERWRITE else ())):
                self._delete_earlier(name)

    def commit(self, manifest: Manifest, names: Mapping[str, str]) -> None:
        """Make everything visible, the sign that it is whole last.

        `names` has for each new file what it was written as. What an earlier export had and this one does
        not is deleted.

        :raises Refused: another run has finished an export there meanwhile, or a file cannot be written.
        """
        if self._is_taken(set(self.folder.names())):
            raise Refused(f"{shown(self.path)}: another export was finished there meanwhile")
        wanted = {file.name for file in manifest.files}
        with _signals_held_back():
            self._delete_earlier(SUCCESS)
            for name, written_as in names.items():
                if name != written_as:
                    self.folder.rename(written_as, name)
                    self._made.add(name)
            self._write(MANIFEST, manifest.as_json())
            for name in self.folder.names():
                if name not in wanted and name not in (MANIFEST, SUCCESS) and _is_ours(name):
                    self.folder.delete(name)
            self._prune()
            self._write(SUCCESS, b"")
            self._is_whole = True

    def keep(self) -> None:
        """Leave the earlier export as it was before `begin`: it has all there is."""
        if self.folder.is_remote:
            self.folder.write(SUCCESS, b"")
        self._is_whole = True

    def abandon(self, run: str) -> None:
        """Delete what a run has written and not committed; what was there before stays, and what others made."""
        if self._is_whole:
            return
        with suppress(RmqinspectError):
            names = set(self.folder.names())
            made = self._made
            if self.folder.is_remote and not self._is_taken(names):
                made = {name for name in names if _is_ours(name)}
            for name in sorted(names):
                unfinished = f".{run}." in name and _UNFINISHED.fullmatch(name)
                if unfinished or (name in made and name not in self._before):
                    self.folder.delete(name)
        self._prune()
        if not self._was_there and not self.folder.is_remote:
            with suppress(OSError):
                os.rmdir(self.folder.path)

    def _is_taken(self, names: set[str]) -> bool:
        """Whether another run has put an export there since this one claimed the folder."""
        return not names.isdisjoint({MANIFEST, SUCCESS} - self._before - self._made)

    def _write(self, name: str, raw: bytes) -> None:
        self.folder.write(name, raw)
        self._made.add(name)

    def _delete_earlier(self, name: str) -> None:
        if name in self._before:
            self._before.remove(name)
            self.folder.delete(name)

    def _prune(self) -> None:
        """Remove folders of tables that have become empty."""
        for table in () if self.folder.is_remote else _FOLDERS:
            for folder, _, _ in os.walk(os.path.join(self.folder.path, table), topdown=False):
                with suppress(OSError):
                    os.rmdir(folder)


@contextmanager
def _signals_held_back() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM wait for the end: a commit takes moments, and half of one is of no use.

    Not `pthread_sigmask`: a signal that another thread gets is answered in the main thread all the same.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda number, _: came.append(number)) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
    for one in came[:1]:
        signal.raise_signal(one)


def _is_ours(name: str) -> bool:
    last = name.rpartition("/")[2]
    of_table = name.partition("/")[0] in _FOLDERS
    whole = name in (MANIFEST, SUCCESS) or (of_table and "/" in name and _PART.fullmatch(last) is not None)
    return whole or _UNFINISHED.fullmatch(last) is not None
