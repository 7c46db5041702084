"""The folder that an export goes to: claimed before anything is written, whole at the end or untouched.

Locally every file is written under a hidden name; at the end all are renamed, then `_manifest.json` and
`_SUCCESS` are written. On object storage there is no rename: files have their names as soon as they are
whole, and readers trust the manifest, which comes last.
"""

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress

from rmqinspect.errors import Refused, RmqinspectError
from rmqinspect.export.manifest import MANIFEST, SUCCESS, Manifest, read_manifest
from rmqinspect.export.wish import FINDINGS
from rmqinspect.filesystems import shown
from rmqinspect.folders import Folder, open_folder
from rmqinspect.output.destination import refuse_inside
from rmqinspect.tables import TABLES

FRESH, OVERWRITE, INCREMENTAL = "fresh", "overwrite", "incremental"

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
        self._before = self.folder.names()
        self.earlier: Manifest | None = None
        self._judge()

    def _judge(self) -> None:
        where = shown(self.path)
        foreign = [name for name in self._before if not _is_ours(name)]
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
                if name in self._before:
                    self.folder.delete(name)

    def commit(self, manifest: Manifest, names: Mapping[str, str]) -> None:
        """Make everything visible, the sign that it is whole last.

        `names` has for each new file what it was written as. What an earlier export had and this one does
        not is deleted.
        """
        wanted = {file.name for file in manifest.files}
        with suppress(ValueError):
            self._before.remove(SUCCESS)
            self.folder.delete(SUCCESS)
        for name, written_as in names.items():
            if name != written_as:
                self.folder.rename(written_as, name)
        self.folder.write(MANIFEST, manifest.as_json())
        for name in self.folder.names():
            if name not in wanted and name not in (MANIFEST, SUCCESS) and _is_ours(name):
                self.folder.delete(name)
        self._prune()
        self.folder.write(SUCCESS, b"")

    def keep(self) -> None:
        """Leave the earlier export as it was before `begin`: it has all there is."""
        if SUCCESS in self._before and self.folder.is_remote:
            self.folder.write(SUCCESS, b"")

    def abandon(self, run: str) -> None:
        """Delete what a run has written and not committed; what was there before stays."""
        before = set(self._before)
        with suppress(RmqinspectError):
            for name in self.folder.names():
                unfinished = f".{run}." in name and _UNFINISHED.fullmatch(name)
                if unfinished or (name not in before and _is_ours(name)):
                    self.folder.delete(name)
        self._prune()
        if not self._was_there and not self.folder.is_remote:
            with suppress(OSError):
                os.rmdir(self.folder.path)

    def _prune(self) -> None:
        """Remove folders that have become empty."""
        if self.folder.is_remote:
            return
        for folder, _, _ in os.walk(self.folder.path, topdown=False):
            if folder != self.folder.path:
                with suppress(OSError):
                    os.rmdir(folder)


def _is_ours(name: str) -> bool:
    last = name.rpartition("/")[2]
    of_table = name.partition("/")[0] in (*TABLES, FINDINGS)
    whole = name in (MANIFEST, SUCCESS) or (of_table and "/" in name and _PART.fullmatch(last) is not None)
    return whole or _UNFINISHED.fullmatch(last) is not None
