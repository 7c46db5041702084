"""What a salvage brings beside the log, as it is: configuration, timer, compaction and the rest of a store's files.

    broken JSON             its sound .bak stands in its place, or it is left out
    cannot be read          left out
    broken, does not fit    left out again, once the proof of the new store says so (`broken_files`)

Invariant: what is left out is in the receipt, with the reason.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress

from rmqinspect.config.json_files import read_copy
from rmqinspect.errors import Unreadable
from rmqinspect.rescue.job import RebuildJob
from rmqinspect.rescue.new_store import COPIED
from rmqinspect.rescue.receipt import Brought, LeftOut
from rmqinspect.store.model import StoreFile
from rmqinspect.system.output_file import as_refusal


class FilesJob(RebuildJob):
    """A job with the files beside the log as its part."""

    _max_config: int  # bytes of a JSON file that is read
    _notes: list[str]  # for the receipt

    def _choose_others(self) -> Iterator[tuple[StoreFile, str]]:
        """Yield (file, name in the new store) of what is brought as it is; a broken JSON file is its sound `.bak`."""
        others = list(self._others())
        by_name = {name: file for file, name in others}
        for file, name in others:
            if not name.startswith("config/") or not name.endswith((".json", ".json.bak")):
                yield file, name
                continue
            plain = name.removesuffix(".bak")
            if self._is_sound_json(file, plain):
                yield file, name
                continue
            backup = by_name.get(f"{plain}.bak") if name == plain else None
            if backup is not None and self._is_sound_json(backup, plain):
                self._notes.append(f"{name} is broken: its sound .bak stands in its place")
                yield backup, name
            else:
                self._left_out.append(LeftOut(file.name, "no JSON that a broker reads"))
                if name == plain:
                    self._notes.append(f"{name} is broken, and has no sound .bak: the new store has none")

    def _is_sound_json(self, file: StoreFile, name: str) -> bool:
        read = read_copy(file, os.path.basename(name), self._max_config)
        return read.source is not None and not read.problems

    def _write_others(self) -> None:
        for file, name in self._choose_others():
            try:
                self._bring(file, name)
            except Unreadable as error:
                with suppress(FileNotFoundError):
                    os.unlink(self._new.path_of(name))
                self._left_out.append(LeftOut(file.name, str(error)))
                self._notes.append(f"{error}: the new store does not have it")
        self._name_left_out()

    def _plan_others(self) -> None:
        """Note what would be brought and left out, without writing anything."""
        for file, name in self._choose_others():
            self._brought.append(Brought(name, file.size, COPIED))
            self._paths.append(file.path)
        self._name_left_out()

    def _name_left_out(self) -> None:
        """Note what is not in the new store because it is no file of one, or cannot be read."""
        for oddity in self._store.oddities:
            if oddity.is_unread:
                self._left_out.append(LeftOut(oddity.name, oddity.detail))
        for file in self._store.files:
            if file.kind == "other" and file.path not in self._paths:
                self._left_out.append(LeftOut(file.name, "no file of a store"))

    def _leave_out(self, names: tuple[str, ...], why: str) -> list[str]:
        """Note that files whose names begin so are not in the new store after all; return their names."""
        both = list(zip(self._brought, self._paths, strict=True))
        gone = [one.file for one, _ in both if one.file.startswith(names)]
        self._left_out += (LeftOut(file, why) for file in gone)
        kept = [(one, path) for one, path in both if not one.file.startswith(names)]
        self._brought, self._paths = [one for one, _ in kept], [path for _, path in kept]
        return gone

    def _discard(self, names: tuple[str, ...], why: str) -> None:
        """Take files out of the new store whose names begin so, and their folder if it is one that is named."""
        for file in self._leave_out(names, why):
            with as_refusal(file, "removed"):
                os.unlink(self._new.path_of(file))
        for name in names:
            if name.endswith("/"):
                shutil.rmtree(os.path.join(self._new.folder, name), ignore_errors=True)
