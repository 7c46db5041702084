"""What an interrupted export has finished, so that the same command with --resume goes on behind it.

    .NAME.RUN.ATTEMPT.part    files of a part, complete (object storage: NAME)
    .NAME.RUN.DIGEST.done     its result, written when all its files are complete

Invariants:
- A part is taken over only if it would be written again byte for byte: DIGEST is that of the request, the range, and
  size and time of modification of each segment, all as they were before the part was read and after it.
- What a broker still writes to, and what could not be read, is never taken over: the part behind the log's end, and
  parts with unread ranges, have no record.
- Records are as little trusted as any file: one that was cut or changed does not have its own digest and counts as
  absent, and only classes of results are made from it.
"""

import hashlib
import io
import json
import pickle
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from rmqinspect.errors import RmqinspectError
from rmqinspect.export.part import ExportSpec, LogPartRead, Part, PartRead, write_part
from rmqinspect.export.request import LogPart, filters
from rmqinspect.output import SCHEMA_VERSION
from rmqinspect.system.filesystem import stat
from rmqinspect.system.output_folder import open_folder
from rmqinspect.version import tool_name


def record_name(part: LogPart, run: str, digest: str) -> str:
    """Return the name of a part's record, relative to the export's folder."""
    return f"messages/.{part.name}.{run}.{digest}.done"


def part_digest(part: LogPart, spec: ExportSpec) -> str | None:
    """Return what a part's files follow from, as 32 hex digits; None if that cannot be known."""
    inputs = []
    for split in part.splits:
        try:
            status = stat(split.segment.path)
        except (OSError, RmqinspectError):
            return None
        inputs.append([split.segment.path, status.st_size, status.st_mtime, split.start, split.end, repr(split.entry)])
    selection = spec.selection(part.store)
    facts: list[Any] = [SCHEMA_VERSION, tool_name(), spec.request.as_document(), filters(selection)]
    facts += [dict(spec.notes.get(part.store, {})), part.name, part.writes, part.cold, inputs]
    return hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()[:32]


def write_recorded(part: Part, spec: ExportSpec) -> PartRead:
    """Write a part, and a record of it if another run may take it over.

    :raises Refused: a file cannot be written.
    """
    if not isinstance(part, LogPart) or part.is_tail or not spec.records:
        return write_part(part, spec)
    before = part_digest(part, spec)
    result = write_part(part, spec)
    assert isinstance(result, LogPartRead)
    if before is not None and not any(read.unread for read in result.reads) and part_digest(part, spec) == before:
        content = pickle.dumps(result, protocol=5)
        raw = hashlib.sha256(content).digest() + content
        open_folder(spec.target).write(record_name(part, spec.run, before), raw)
    return result


def finished_parts(parts: Sequence[Any], spec: ExportSpec) -> dict[int, PartRead]:
    """Return the results of an earlier run, by the number of their part: of those whose files are all there.

    :raises Refused: the folder cannot be listed.
    """
    folder = open_folder(spec.target)
    there = set(folder.names())
    records = {name.rsplit(".", 2)[1]: name for name in there if name.endswith(".done")}
    found: dict[int, PartRead] = {}
    for number, part in enumerate(parts if records else ()):
        if not isinstance(part, LogPart) or part.is_tail:
            continue
        digest = part_digest(part, spec)
        if digest in records:
            with suppress(RmqinspectError):
                result = _read_record(folder.read(records[digest]))
                if result is not None and all(file.written_as in there for file in result.files):
                    found[number] = replace(result, part=part)
    return found


# What a record of another version, or of somebody else, may end in.
_NO_RESULT = (pickle.UnpicklingError, EOFError, ImportError, LookupError, AttributeError, TypeError, ValueError)


class _Results(pickle.Unpickler):
    """Makes results of parts, and nothing else."""

    _others: Mapping[tuple[str, str], Callable[..., Any]] = {
        ("collections", "Counter"): Counter,
        ("collections", "defaultdict"): defaultdict,
    }

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        if (module_name, global_name) in self._others:
            return self._others[module_name, global_name]
        if module_name.split(".")[0] == "rmqinspect":
            found = super().find_class(module_name, global_name)
            if isinstance(found, type):
                return found
        if module_name.startswith("numpy") and global_name in ("dtype", "ndarray", "_frombuffer", "_reconstruct"):
            return super().find_class(module_name, global_name)
        if module_name.split(".")[0] == "msgspec" and global_name == "rebuild":  # structs with fields by keyword only
            return super().find_class(module_name, global_name)
        raise pickle.UnpicklingError(f"{module_name}.{global_name}")


def _read_record(raw: bytes) -> LogPartRead | None:
    digest, content = raw[:32], raw[32:]
    if hashlib.sha256(content).digest() != digest:
        return None
    try:
        result = _Results(io.BytesIO(content)).load()
    except _NO_RESULT:
        return None
    return result if isinstance(result, LogPartRead) else None
