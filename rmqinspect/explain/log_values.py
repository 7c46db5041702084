"""Describes values that only lines of a broker's log have: threads, shares of a disk, statuses.

log_lines.toml names the functions in its column `describe`.
"""

import re
from collections.abc import Callable, Mapping

from rmqinspect.text import count, escape

# DefaultMessageStore.CleanCommitLogService, MessageStoreConfig#getDiskMaxUsedSpaceRatio: the default levels. The two
# higher ones are set by properties of the JVM, since 5.0.0 by the settings, too.
_FORCIBLY, _FULL = 85, 90


def disk_used(text: str) -> str:
    """Say what retention does at this share of a disk.

    Source: DefaultMessageStore.CleanCommitLogService#isSpaceToDelete.

    :raises ValueError: not a number.
    """
    percent = _percent(text)
    if percent is None:
        return _NOT_MEASURED + ": retention runs as if the disk were too full, and deletes expired files only"
    if percent > _FORCIBLY:
        return (
            f"{percent} %, above diskSpaceCleanForciblyRatio ({_FORCIBLY} by default): files that have not expired are"
            " deleted, too"
        )
    return (
        f"{percent} %, not above diskSpaceCleanForciblyRatio ({_FORCIBLY} by default): only expired files are deleted"
    )


def disk_full(text: str) -> str:
    """Say whether this share of a disk makes a broker refuse messages.

    :raises ValueError: not a number.
    """
    percent = _percent(text)
    if percent is None:
        return _NOT_MEASURED
    if percent == _FULL:
        return f"{percent} %, at diskSpaceWarningLevelRatio ({_FULL} by default): full if the exact share is above it"
    if percent > _FULL:
        return f"{percent} %, above diskSpaceWarningLevelRatio ({_FULL} by default): this disk is full"
    return f"{percent} %, not above diskSpaceWarningLevelRatio ({_FULL} by default): this disk is not the reason"


_NOT_MEASURED = "not measured, the folder is not there"


def _percent(text: str) -> int | None:
    """Return a share such as 0.82 as percent, None for the -1 of a folder that does not exist."""
    if not re.fullmatch(r"-?\d{1,3}(\.\d{1,20})?", text.strip(), re.ASCII):
        raise ValueError(f"'{escape(text[:80])}' is not a share of a disk")
    share = float(text)
    return None if share < 0 else round(share * 100)


def bytes_behind(text: str) -> str:
    """Say what a number of bytes means that a slave lacks.

    Source: DefaultMessageStore#slaveFallBehindMuch: the end of the master's log minus what the slave acknowledged.
    """
    number = int(text)
    if number < 0:
        return (
            f"{number}: below 0. The slave has acknowledged an offset beyond the end of the master's log, so its log is"
            " another one, or the master lost the end of its own"
        )
    return "nothing" if number == 0 else count(number, "byte")


# The beginnings of names of threads -> whose work it is. A broker in a container has its own name before them.
_THREADS: tuple[tuple[str, str], ...] = (
    ("AdminBrokerThread", "a command of an administrator, or of a tool"),
    ("StoreScheduledThread", "retention"),
    ("CleanCommitLogService", "retention"),
    ("DiskCheckScheduledThread", "the check of the disks"),
    ("ScheduleMessageTimerThread", "the delivery of delay levels: the offset of a level (delayOffset.json)"),
    ("BrokerControllerScheduledThread", "a regular task of the broker; on a slave it takes over the master's settings"),
    ("PullMessageThread", "a pull or a pop of a consumer"),
    ("ReputMessageService", "the dispatch of the log to queues and index"),
    ("ShutdownHook", "an orderly shutdown"),
    ("main", "the start of the broker"),
)


def thread(text: str) -> str:
    """Say whose work a thread does; "" if that is not known."""
    return next((words for name, words in _THREADS if name in text), "")


_GET_STATUSES: Mapping[str, str] = {
    "OFFSET_OVERFLOW_ONE": "the position is exactly at the end of the queue: harmless, there is nothing new",
    "OFFSET_OVERFLOW_BADLY": "the position lies beyond the end of the queue: the queue lost its end, or was made again",
    "OFFSET_TOO_SMALL": "the position lies below the minimum of the queue: what lay between is gone",
    "OFFSET_FOUND_NULL": "no file of the queue holds the position",
    "MESSAGE_WAS_REMOVING": "the queue entries are there, and none of their records is in the log",
    "NO_MATCHED_LOGIC_QUEUE": "the queue does not exist",
}


def get_status(text: str) -> str:
    """Say what a status of DefaultMessageStore#getMessage means for the reader's position; "" if not known."""
    return _GET_STATUSES.get(text.upper(), "")


LOG_DESCRIBE: Mapping[str, Callable[[str], str]] = {
    describe.__name__: describe for describe in (bytes_behind, disk_full, disk_used, get_status, thread)
}
"""The functions by the names that log_lines.toml uses."""
