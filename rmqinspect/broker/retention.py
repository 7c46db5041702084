"""Which segments a broker deletes by their age.

    segment      0        1        2        3 (newest)
    last write   70 h     60 h     50 h     now            fileReservedTime 48: 0, 1 and 2 go; 55: 0 and 1

Source: DefaultMessageStore.CleanCommitLogService#deleteExpiredFiles, MappedFileQueue#deleteExpiredFileByTime; RocketMQ
4.0.0 to 5.5.0. The broker takes the time of a file's last modification, and deletes at a certain hour of the day
(deleteWhen), or at once where the disk is nearly full; then age does not matter.
"""

import os
from collections.abc import Iterable, Mapping, Sequence

from rmqinspect.consumequeue.bounds import QueueSummary
from rmqinspect.index.geometry import IndexFile
from rmqinspect.store.discover import setting_size
from rmqinspect.store.model import Store
from rmqinspect.store.reader import modified_at
from rmqinspect.system import filesystem
from rmqinspect.system.uri import is_remote

_FILE_RESERVED_HOURS = 72  # MessageStoreConfig#fileReservedTime

_HOUR = 3_600_000  # ms
_NS_PER_MS = 1_000_000
_COPIED_MS = 600_000  # a log whose last write is further away from its newest record has the times of a copy
_LATEST_WRITE_MS = 60_000  # a broker that is killed wrote its checkpoint at most so long before


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


# --- whether one took what lies before the log ------------------------------------------------------------


def was_cleaned(store: Store, queues: Iterable[QueueSummary], index: Sequence[IndexFile]) -> bool:
    """Return whether queues, or the index, begin within the last segment that is gone: files before were deleted.

    Within seconds a broker deletes what points only at segments that are gone: a queue that has lost its first file
    begins with what the next one points at. `queues` are all of the store; `index`: the files that have a header.
    Source: CleanConsumeQueueService#deleteExpiredFiles, IndexService#deleteExpiredFile; RocketMQ 4.0.0 to 5.5.0.
    """
    last = store.log_start - (store.segment_size or 0)
    for queue in queues:
        first, place = queue.files[0], queue.first_physical_offset
        if first.kind == "queue" and first.base and place is not None and place >= last:
            return True
    headers = [file.header for file in index[:1] if file.header is not None]
    # An index file that is gone held about as much of the log as the next one does.
    begins = [(int(one.begin_physical_offset), int(one.end_physical_offset)) for one in headers]
    return any(begin >= last and begin >= (end - begin) // 2 for begin, end in begins)


def changed_by_a_broker(store: Store, newest: int) -> bool:
    """Return whether the log's folder was last changed while a broker still wrote, where its files' times are its own.

    `newest`: store time in ms of the newest record.
    """
    segments = store.segments
    if is_remote(segments[0].path):
        return False
    written = max(map(modified_at, segments))
    if abs(written / _NS_PER_MS - newest) > _COPIED_MS:
        return False
    last = max([written, *map(modified_at, (*store.config_files.values(), *store.of_kind("checkpoint")))])
    try:
        changed = filesystem.stat(os.path.dirname(segments[0].path)).st_mtime_ns
    except OSError:
        return False
    return changed <= last + _LATEST_WRITE_MS * _NS_PER_MS
