"""The folder of an export: claimed before anything is written, committed at the end or left untouched.

A local folder, over time (object storage has no rename: its column differs):

    step      local folder                                  object storage
    claim     must be new, empty, or hold an export         the same
    begin     nothing                                       delete _SUCCESS; when overwriting also _manifest.json
    write     hidden files `.NAME.RUN.ATTEMPT.part`         NAME, complete as soon as it is visible
    commit 1  delete _SUCCESS
           2  rename each new file to NAME                  nothing
           3  write _manifest.json                          the same
           4  delete files that the manifest does not list  the same
           5  write _SUCCESS                                the same

Invariants:
- Readers trust the manifest, not the listing: a file counts if `_manifest.json` lists it and `_SUCCESS` exists.
- Between commit 1 and 5 there is no `_SUCCESS`, so an interrupted commit is an unfinished export and never a mixture
  that looks complete. SIGINT, SIGHUP and SIGTERM wait for the end of the commit.
- Only names that an export makes are ever deleted; a folder with any other file is refused.
- `abandon` removes what this run wrote and did not commit, and nothing that was there before; with --resume it leaves
  all of it to the next run (export/resume).
- A folder where another run has committed since the claim is refused, by the presence of its manifest. Two runs that
  write at the same time are not told apart otherwise.
"""

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress

from rmqinspect.errors import Refused, RmqinspectError
from rmqinspect.export.manifest import MANIFEST, SUCCESS, Manifest, read_manifest
from rmqinspect.export.request import FINDINGS
from rmqinspect.store.outside import refuse_inside
from rmqinspect.system.output_file import signals_deferred
from rmqinspect.system.output_folder import Folder, open_folder
from rmqinspect.system.uri import shown
from rmqinspect.tables import TABLES

FRESH, OVERWRITE, INCREMENTAL = "fresh", "overwrite", "incremental"

_FOLDERS = (*TABLES, FINDINGS)

_UNFINISHED_EXPORT = "an unfinished export exists: --resume goes on with it, --overwrite replaces it"

# File names that only exports make: parts, complete or left by a killed run, and the two marker files.
_PART = re.compile(r"\.?[^/]*-(\d{20}-\d{20}|\d{5})\.parquet(\.[0-9a-f]+\.[0-9a-f]+\.part)?")
_UNFINISHED = re.compile(
    r".*\.parquet\.[0-9a-f]+\.[0-9a-f]+\.(part|done(\.[0-9a-f]+\.part)?)|.*\._(manifest\.json|SUCCESS)\.[0-9a-f]+\.part"
)


class Target:
    """The folder of one export."""

    def __init__(self, path: str, mode: str, evidence: Sequence[str], *, resumes: bool = False) -> None:
        """Claim a folder: new, empty, or with an earlier export that `mode` may replace or extend.

        `evidence` are the paths of the stores. With `resumes` it may be unfinished, and `abandon` leaves it so.

        :raises Refused: the folder holds something else, or lies inside a store.
        """
        self.path, self.mode, self.resumes = path, mode, resumes
        self.folder: Folder = open_folder(path)
        refuse_inside(self.folder.path, evidence)
        if not self.folder.is_remote and self.folder.exists() and not os.path.isdir(self.folder.path):
            raise Refused(f"{shown(path)}: already exists and is not a folder")
        self._existed = self.folder.exists()
        self._before = set(self.folder.names())
        self._made: set[str] = set()  # final names that `commit` has created
        self._is_settled = False
        self.earlier: Manifest | None = None
        self._check()

    def _check(self) -> None:
        where = shown(self.path)
        foreign = sorted(name for name in self._before if not _is_ours(name))
        if foreign:
            raise Refused(f"{where}: contains {foreign[0]}, which no export wrote: refused")
        complete = SUCCESS in self._before and MANIFEST in self._before
        if self._before and self.mode == FRESH and not (self.resumes and SUCCESS not in self._before):
            what = "an export exists: --overwrite replaces it, --incremental adds what is new"
            raise Refused(f"{where}: {what if complete else _UNFINISHED_EXPORT}")
        if self.mode == INCREMENTAL and self._before:
            if not complete:
                raise Refused(f"{where}: {_UNFINISHED_EXPORT}")
            self.earlier = read_manifest(self.folder.read(MANIFEST), f"{where}/{MANIFEST}")

    @property
    def free(self) -> int | None:
        """Free bytes on its file system; None on object storage."""
        if self.folder.is_remote:
            return None
        parent = os.path.abspath(self.folder.path)
        while not os.path.exists(parent):
            parent = os.path.dirname(parent)
        return shutil.disk_usage(parent).free

    def begin(self) -> None:
        """On object storage delete the markers: files are replaced as they are written."""
        if self.folder.is_remote:
            for name in (SUCCESS, *((MANIFEST,) if self.mode == OVERWRITE else ())):
                self._delete_earlier(name)

    def commit(self, manifest: Manifest, names: Mapping[str, str]) -> None:
        """Make the export visible, `_SUCCESS` last; delete files of an earlier export that `manifest` does not list.

        `names` maps each new file to the name it was written under.

        :raises Refused: another run has committed to the folder meanwhile, or a file cannot be written.
        """
        if self._is_taken(set(self.folder.names())):
            raise Refused(f"{shown(self.path)}: another export was committed there meanwhile")
        wanted = {file.name for file in manifest.files}
        with signals_deferred():
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
            self._is_settled = True

    def keep(self) -> None:
        """Restore the earlier export as it was before `begin`: there is nothing new."""
        if self.folder.is_remote:
            self.folder.write(SUCCESS, b"")
        self._is_settled = True

    def abandon(self, run: str) -> None:
        """Delete what a run has written and not committed; earlier files, and those of other runs, stay."""
        if self._is_settled or self.resumes:
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
        if not self._existed and not self.folder.is_remote:
            with suppress(OSError):
                os.rmdir(self.folder.path)

    def _is_taken(self, names: set[str]) -> bool:
        """Whether another run has committed since this one claimed the folder."""
        return not names.isdisjoint({MANIFEST, SUCCESS} - self._before - self._made)

    def _write(self, name: str, raw: bytes) -> None:
        self.folder.write(name, raw)
        self._made.add(name)

    def _delete_earlier(self, name: str) -> None:
        if name in self._before:
            self._before.remove(name)
            self.folder.delete(name)

    def _prune(self) -> None:
        """Remove empty folders of tables and partitions."""
        for table in () if self.folder.is_remote else _FOLDERS:
            for folder, _, _ in os.walk(os.path.join(self.folder.path, table), topdown=False):
                with suppress(OSError):
                    os.rmdir(folder)


def _is_ours(name: str) -> bool:
    last = name.rpartition("/")[2]
    of_table = name.partition("/")[0] in _FOLDERS
    finished = name in (MANIFEST, SUCCESS) or (of_table and "/" in name and _PART.fullmatch(last) is not None)
    return finished or _UNFINISHED.fullmatch(last) is not None
