"""Every code that `verify` can report, in one table: `--list-checks` and the documentation print it.

Codes are stable; scripts depend on them.
"""

from dataclasses import dataclass

# `quick` is part of `standard`, and `standard` of `deep`.
LEVELS = ("quick", "standard", "deep")


@dataclass(frozen=True, slots=True)
class Code:
    """One thing that can be found."""

    code: str
    severity: str  # error: lost, wrong, or a reader gets wrong answers; warning: suspicious; info
    level: str  # the lowest level that looks for it
    rule: str
    broker_effect: str | None  # what a start or a consumer makes of it
    next: str | None  # a command; {store} and {at} are filled in


_SHOW = "rmqinspect show {store} --at {at}"
_GAPS = "rmqinspect decode {store} --table gaps"
_SEGMENTS = "rmqinspect decode {store} --table segments"

CODES: tuple[Code, ...] = (
    Code(
        "CL-NAME", "error", "quick",
        "an entry of the commitlog folder that is no 20-digit base",
        "up to 4.4.0 and in 4.9.2 loading stops at it, and all that sorts behind is ignored; "
        "4.5.0 and later refuse to start, folders excepted from 5.1.0 on",
        None,
    ),
    Code(
        "CL-SIZE", "error", "quick",
        "a segment whose length is not the store's segment size",
        "up to 4.4.0 and in 4.9.2 loading stops at it; other versions refuse to start, "
        "but 5.1.3 and later delete an empty last file",
        None,
    ),
    Code(
        "CL-HOLE", "error", "quick",
        "a segment is missing between two others",
        "not noticed at a start; the messages in it are gone",
        _SEGMENTS,
    ),
    Code(
        "CL-DUPLICATE", "error", "quick",
        "the same base in two paths",
        "both are loaded, and which one is read is chance",
        _SEGMENTS,
    ),
    Code(
        "CL-MAGIC", "error", "standard",
        "the chain of records reaches bytes that are neither record, blank record nor zero tail",
        "a start that scans this segment ends the log here and deletes the segments behind it",
        _GAPS,
    ),
    Code(
        "CL-LENGTH", "error", "standard",
        "the lengths inside a record do not add up to its size, or a field runs past it",
        "a start that scans this segment ends the log here and deletes the segments behind it",
        _SHOW,
    ),
    Code(
        "CL-OFFSET", "error", "standard",
        "a record's own physical offset is not its place: a stale or misplaced record",
        "not noticed at a start; consume queue and index get the wrong offset if it is dispatched again",
        _SHOW,
    ),
    Code(
        "CL-CRC-BODY", "error", "standard",
        "the body's CRC does not match",
        "a start that scans this segment ends the log here and deletes the segments behind it",
        _SHOW,
    ),
    Code(
        "CL-CRC-RECORD", "error", "standard",
        "the whole-record CRC (property __CRC32#) does not match",
        "with forceVerifyPropCRC a start ends the log here; otherwise not noticed",
        _SHOW,
    ),
    Code(
        "CL-BLANK-SIZE", "warning", "standard",
        "a blank record whose size is not the number of bytes left",
        "up to 5.3.1 not noticed; 5.3.2 and later end the log here when it is larger",
        _SHOW,
    ),
    Code(
        "CL-TORN-TAIL", "error", "standard",
        "the log ends in a record cut off or half zero",
        "a start ends the log before it, which is what a start is for",
        _SHOW,
    ),
    Code(
        "CL-ZERO-INSIDE", "error", "standard",
        "zeros, then valid records again: pages were lost",
        "a start that scans this segment ends the log here and deletes the segments behind it",
        _GAPS,
    ),
    Code(
        "CL-STALE-TAIL", "warning", "standard",
        "valid records behind the log's end from an earlier life of the file",
        "a start may take them for the log again if the place where they begin is reached exactly",
        _SHOW,
    ),
    Code(
        "CL-QUEUE-OFFSET", "warning", "standard",
        "queue offsets of one queue repeat or skip, and no gap lies between",
        "consumers may see a message twice or miss one when the queue is built again",
        _SHOW,
    ),
    Code(
        "CL-TIME", "info", "standard",
        "store time runs backwards by more than a second",
        "searches by time may miss messages around it",
        None,
    ),
    Code(
        "CL-FIELD", "warning", "standard",
        "a field out of its domain: port, queue id, compression type, topic, properties",
        "not noticed at a start; clients may fail on the message",
        _SHOW,
    ),
    Code("ST-ABORT", "info", "quick", "the abort file is there: unclean stop, or the broker runs", None, None),
    Code(
        "ST-RUNNING", "warning", "quick",
        "another process holds the store's lock",
        "the files may change while they are read",
        None,
    ),
    Code(
        "ST-UNCHECKED", "info", "quick",
        "a part of the store that was not checked",
        None,
        None,
    ),
    Code(
        "ST-CHECKPOINT", "warning", "quick",
        "the checkpoint is unreadable, or newer than the newest record",
        "an unclean start chooses by it where to begin; a wrong one costs time or messages",
        "rmqinspect decode {store} --table checkpoint",
    ),
    Code(
        "ST-IO", "error", "quick",
        "the system could not read something: it was skipped, the verdict is incomplete",
        None,
        None,
    ),
)  # fmt: skip

BY_CODE = {code.code: code for code in CODES}


def levels_up_to(level: str) -> tuple[str, ...]:
    """Return the levels whose checks `level` includes."""
    return LEVELS[: LEVELS.index(level) + 1]
