"""Which segments a broker deletes by their age.

    segment      0        1        2        3 (newest)
    last write   70 h     60 h     50 h     now            fileReservedTime 48: 0, 1 and 2 go; 55: 0 and 1

Source: DefaultMessageStore.CleanCommitLogService#deleteExpiredFiles, MappedFileQueue#deleteExpiredFileByTime; RocketMQ
4.0.0 to 5.5.0. The broker takes the time of a file's last modification, and deletes at a certain hour of the day
(deleteWhen), or at once where the disk is nearly full; then age does not matter.
"""

from collections.abc import Mapping, Sequence

from rmqinspect.store.broker_conf import setting_size

_FILE_RESERVED_HOURS = 72  # MessageStoreConfig#fileReservedTime

_HOUR = 3_600_000  # ms


def reserved_hours(settings: Mapping[str, str]) -> int:
    """Return the hours that a broker with these settings keeps its files, and its half messages."""
    return setting_size(settings, "fileReservedTime") or _FILE_RESERVED_HOURS


def expired_segments(last_writes: Sequence[int | None], now: int, hours: float) -> int:
    """Return how many of the oldest segments are deleted; the last one never is.

    `last_writes` and `now` are in ms; what follows a segment that is not yet old enough, or of unknown age, stays.
    """
    count = 0
    for written in last_writes[:-1]:
        if written is None or now < written + hours * _HOUR:
            break
        count += 1
    return count
