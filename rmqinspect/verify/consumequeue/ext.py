"""Ext consume queues by themselves: EX-SIZE.

Whether a queue unit's address points to an ext unit is judged with the queue unit (`verify.consumequeue.tags`).

Source: ConsumeQueueExt#recover, #putAndFlush; RocketMQ 4.1.0 to 5.5.0.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from rmqinspect.codec.layout import dtype_of, place_of
from rmqinspect.errors import Unreadable
from rmqinspect.schemas.consumequeue import EXT_END_OF_FILE, ExtHead
from rmqinspect.store.model import QueueFile
from rmqinspect.store.reader import FileReader, open_file
from rmqinspect.verify.findings import Finding, unread_finding

_HEAD = dtype_of(ExtHead)
WINDOW_SIZE = 1 << 20  # bytes per read
_SIZE = _HEAD["size"]


@dataclass(slots=True)
class ExtSurvey:
    """Result of reading all ext files."""

    findings: list[Finding] = field(default_factory=list)  # at most one per file: the units behind it cannot be found
    units: int = 0
    unread: list[Finding] = field(default_factory=list)  # ST-IO


def survey_ext(files: Sequence[QueueFile]) -> ExtSurvey:
    """Follow the sizes of the units of each file; return the units and what breaks the walk."""
    survey = ExtSurvey()
    for file in files:
        try:
            with open_file(file) as reader:
                _follow(reader, file, survey)
        except Unreadable as error:
            survey.unread.append(unread_finding(error))
    return survey


def _follow(reader: FileReader, file: QueueFile, survey: ExtSurvey) -> None:
    """Step from unit to unit. Runs of units of one size, as nearly all are, take one step."""
    start, raw = 0, reader.read(0, WINDOW_SIZE)
    at = 0  # position in the window
    while True:
        if at + _HEAD.itemsize > len(raw) and start + len(raw) < reader.size:
            start, at = start + at, 0
            raw = reader.read(start, WINDOW_SIZE)
        left = len(raw) - at
        size = int(np.frombuffer(raw, _SIZE, 1, at)[0]) if left >= _SIZE.itemsize else 0
        if size == 0 or size == EXT_END_OF_FILE:
            return  # end of the written part, or of a full file
        if size < _HEAD.itemsize or start + at + size > reader.size:
            survey.findings.append(_finding(file, start + at, None, size))
            return
        if size > left:
            start, at = start + at, 0
            raw = reader.read(start, max(WINDOW_SIZE, size))
            continue
        heads = np.ndarray((left // size,), _HEAD, raw, at, (size,)) if left >= size else np.empty(0, _HEAD)
        alike = (heads["size"] == size) & (heads["bitmap_size"] == size - _HEAD.itemsize)
        count = len(alike) if alike.all() else int(np.argmin(alike))
        if count == 0:
            bitmap = int(heads["bitmap_size"][0])
            survey.findings.append(_finding(file, start + at, _HEAD.itemsize + bitmap, size))
            return
        survey.units += count
        at += count * size


def _finding(file: QueueFile, position: int, expected: int | None, found: int) -> Finding:
    what = "the length of its bitmap" if expected is not None else "the file"
    return Finding(
        "EX-SIZE",
        f"the ext unit's size does not fit {what}: startup truncates the file here if it scans it",
        file=file.name,
        offset=position + place_of(ExtHead, "size"),
        length=_SIZE.itemsize,
        topic=file.topic,
        queue_id=file.queue_id,
        expected=None if expected is None else str(expected),
        found=str(found),
    )
