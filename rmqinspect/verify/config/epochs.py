"""The epochs of the log in controller mode: ST-CONFIG for `epochFileCheckpoint`.

Source: CheckpointFile#read, EpochFileCache; RocketMQ 5.0.0 to 5.5.0; aux 9.6.
"""

import re
import zlib
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from rmqinspect.config.json_files import key_number
from rmqinspect.errors import Unreadable
from rmqinspect.store.model import StoreFile
from rmqinspect.store.reader import open_file
from rmqinspect.verify.findings import Finding, unread_finding

_LINE_END = re.compile(rb"\r\n|\n|\r")
_LONGEST_EPOCHS = 16 << 20  # half a million changes of the master
_CRC_MASK = 0x7FFFFFFF  # UtilAll#crc32


def check_epochs(main: StoreFile | None, backup: StoreFile | None) -> Iterator[Finding]:
    """Yield ST-CONFIG when a broker cannot read the file, and ST-IO when the system cannot."""
    try:
        trouble = _trouble(main) if main else None
        if main is None or trouble is None:
            return
        good = backup is not None and _trouble(backup) is None
    except Unreadable as error:
        yield unread_finding(error)
        return
    backed = "is good" if good else "is missing or not good either"
    yield Finding(
        "ST-CONFIG",
        f"the epochs of the log: {trouble.reason}; {trouble.then.format(backed)}",
        file=main.name,
        offset=trouble.offset,
        length=main.size - trouble.offset,
    )


# What a broker does: only an IOException makes it ask for the .bak, a number that is none ends the start.
_ASKS = "a broker asks for the .bak, which {}"
_FAILS = "the start ends with an exception and asks for no .bak, which {}"
_TAKES = "a broker takes them as they are and asks for no .bak, which {}"


class _Trouble(NamedTuple):
    reason: str
    offset: int
    then: str


def _trouble(file: StoreFile) -> _Trouble | None:
    """Return what is wrong with a copy, None when it is good.

    :raises Unreadable: the system reports an I/O error.
    """
    with open_file(file) as reader:
        raw = reader.read(0, _LONGEST_EPOCHS)
    try:
        raw.decode()
    except UnicodeDecodeError as error:
        return _Trouble("they are no text", error.start, _ASKS)
    ends = [0, *(match.end() for match in _LINE_END.finditer(raw))]
    if ends[-1] < len(raw):
        ends.append(len(raw))
    lines = [raw[start:end].rstrip(b"\r\n").decode() for start, end in pairwise(ends)]
    heads = [key_number(line) for line in lines[:2]]
    for number in range(2):
        if number >= len(heads) or heads[number] is None:
            return _Trouble(f"line {number + 1} is no number", ends[min(number, len(ends) - 1)], _FAILS)
    epochs: list[tuple[int, int, int]] = []
    for start, line in zip(ends[2:], lines[2:], strict=False):
        parts = line.rstrip("-").split("-")
        if len(parts) != 2:
            continue  # fromLine passes over it, and the count does not fit
        epoch, begin = key_number(parts[0]), key_number(parts[1], 64)
        if epoch is None or begin is None:
            return _Trouble(f"{line[:40]!r} is no epoch and offset", start, _FAILS)
        epochs.append((epoch, begin, start))
    if len(epochs) != heads[0]:
        return _Trouble(f"the first line says {heads[0]}, and there are {len(epochs)}", 0, _ASKS)
    if heads[1] and heads[1] not in _checksums(lines[2:]):
        return _Trouble("the CRC32 of the lines does not match", ends[2], _ASKS)
    for (before, began, _), (epoch, begin, start) in pairwise(epochs):
        if epoch <= before or begin < began:
            return _Trouble("epochs or their offsets do not rise", start, _TAKES)
    return None


def _checksums(lines: list[str]) -> set[int]:
    """Return the CRC32 of the lines with the line end of each platform."""
    return {zlib.crc32("".join(line + end for line in lines).encode()) & _CRC_MASK for end in ("\n", "\r\n")}
