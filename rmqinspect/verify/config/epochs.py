"""ST-CONFIG of `epochFileCheckpoint`: the epochs of the log in controller mode.

    3            number of lines below
    1874630921   CRC32 of these lines, 0 for none
    1-0          epoch-physical offset where it begins, both ascending
    2-1073741824
    3-1610612736

Source: CheckpointFile#read, EpochFileCache; RocketMQ 5.0.0 to 5.5.0.
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
    """Yield ST-CONFIG if a broker cannot read the file, ST-IO if the system cannot."""
    try:
        trouble = _trouble(main) if main else None
        if main is None or trouble is None:
            return
        good = backup is not None and _trouble(backup) is None
    except Unreadable as error:
        yield unread_finding(error)
        return
    backed = "is good" if good else "is missing or damaged too"
    yield Finding(
        "ST-CONFIG",
        f"the epochs of the log: {trouble.reason}; {trouble.then.format(backed)}",
        file=main.name,
        offset=trouble.offset,
        length=main.size - trouble.offset,
    )


# An IOException makes the broker read the .bak; a NumberFormatException ends its startup.
_ASKS = "a broker reads the .bak, which {}"
_FAILS = "startup ends with an exception and does not read the .bak, which {}"
_TAKES = "a broker uses them as they are and does not read the .bak, which {}"


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
        return _Trouble("they are not UTF-8 text", error.start, _ASKS)
    ends = [0, *(match.end() for match in _LINE_END.finditer(raw))]
    if ends[-1] < len(raw):
        ends.append(len(raw))
    lines = [raw[start:end].rstrip(b"\r\n").decode() for start, end in pairwise(ends)]
    heads = [key_number(line) for line in lines[:2]]
    for number in range(2):
        if number >= len(heads) or heads[number] is None:
            return _Trouble(f"line {number + 1} is not a number", ends[min(number, len(ends) - 1)], _FAILS)
    epochs: list[tuple[int, int, int]] = []
    for start, line in zip(ends[2:], lines[2:], strict=False):
        parts = line.rstrip("-").split("-")
        if len(parts) != 2:
            continue  # EpochEntry#fromLine skips it, and the count differs
        epoch, begin = key_number(parts[0]), key_number(parts[1], 64)
        if epoch is None or begin is None:
            return _Trouble(f"{line[:40]!r} is not an epoch and an offset", start, _FAILS)
        epochs.append((epoch, begin, start))
    if len(epochs) != heads[0]:
        return _Trouble(f"the first line says {heads[0]}, but there are {len(epochs)}", 0, _ASKS)
    if heads[1] and heads[1] not in _checksums(lines[2:]):
        return _Trouble("the CRC32 of the lines does not match", ends[2], _ASKS)
    for (before, began, _), (epoch, begin, start) in pairwise(epochs):
        if epoch <= before or begin < began:
            return _Trouble("epochs or their offsets do not ascend", start, _TAKES)
    return None


def _checksums(lines: list[str]) -> set[int]:
    """Return the CRC32 of the lines, with Unix and with Windows line ends."""
    return {zlib.crc32("".join(line + end for line in lines).encode()) & _CRC_MASK for end in ("\n", "\r\n")}
