"""Files of `config/` that are gone with their copies, or hold nothing, though others prove that they held something.

    file                    was there, because of
    topics.json             queues of users' topics
    consumerOffset.json     groups of subscriptionGroup.json, or what groups gave back (queues of %RETRY%, %DLQ%),
                            where the broker ran long enough for a first save, or stopped in order
    subscriptionGroup.json  groups with consumer offsets, or that gave something back
    delayOffset.json        queues of SCHEDULE_TOPIC_XXXX, where the broker ran long enough for a first save
    timercheck              files of the timer log, which is made later. It has no .bak, and what it lacks is read as 0

A running broker saves offsets every 5 and 10 s, for the first time after 10 s, topics and groups at each change, all of
them into one folder. So a file is called gone where another one of the folder is there. Where none is, a store class
may have run without a broker, and even with queues of %RETRY% and SCHEDULE_TOPIC_XXXX: then queues of topics that only
a broker's processors write (%DLQ%, transactions, rmq_sys_*) prove the folder. A broker that was killed in its first
10 s has topics and queues, and no file of offsets; up to 4.9.2, one that was stopped then has consumerOffset.json only.

It ran longer where another file of offsets is left, and where a queue of %RETRY% has units: a message that a consumer
gives back comes again after 10 s at the earliest (level 3). An orderly stop always saves the offsets of consumers.

Source: BrokerController#initializeBrokerScheduledTasks, #shutdown, TopicConfigManager, SubscriptionGroupManager,
ScheduleMessageService#start, #shutdown, SendMessageProcessor#consumerSendMsgBack, MixAll#string2File; RocketMQ 4.0.0
to 5.5.0. TimerCheckpoint, TimerMessageStore#recover; 5.0.0 to 5.5.0.

Which segments a broker deletes by their age.

    segment      0        1        2        3 (newest)
    last write   70 h     60 h     50 h     now            fileReservedTime 48: 0, 1 and 2 go; 55: 0 and 1

Source: DefaultMessageStore.CleanCommitLogService#deleteExpiredFiles, MappedFileQueue#deleteExpiredFileByTime; RocketMQ
4.0.0 to 5.5.0. The broker takes the time of a file's last modification, and deletes at a certain hour of the day
(deleteWhen), or at once where the disk is nearly full; then age does not matter.
"""

import os
from collections.abc import Iterable, Mapping, Sequence

from rmqinspect.broker.groups import is_own_topic, is_system_group
from rmqinspect.config.json_files import OFFSET_FILES, read_config, read_consumer_offsets, read_copy
from rmqinspect.config.shapes import KINDS
from rmqinspect.consumequeue.bounds import QueueSummary
from rmqinspect.index.geometry import IndexFile
from rmqinspect.schemas.places import place_of
from rmqinspect.schemas.timer import TimerCheck
from rmqinspect.store.broker_conf import setting_size
from rmqinspect.store.model import Store
from rmqinspect.store.reader import modified_at
from rmqinspect.system import filesystem
from rmqinspect.system.uri import is_remote
from rmqinspect.text import count, group_digits
from rmqinspect.topics import DLQ_PREFIX, LMQ_PREFIX, RETRY_PREFIX, SCHEDULE_TOPIC, TIMER_TOPIC, is_system_topic

TOPICS, GROUPS, DELAYS = "topics.json", "subscriptionGroup.json", "delayOffset.json"
TIMERCHECK = "timercheck"
OFFSETS = OFFSET_FILES[0]

_ENDS = ("", ".bak", ".tmp")
_TIMED = (
    *OFFSET_FILES,
    "consumerFilter.json",
    "consumerOrderInfo.json",
)  # saved by timers that start before the delays'
_IN_ROCKSDB = {TOPICS, GROUPS, OFFSETS}  # what storeType=defaultRocksDB or configManagerVersion=v2 keeps there


_TABLES = {TOPICS: "topicConfigTable", GROUPS: "subscriptionGroupTable", DELAYS: "offsetTable", OFFSETS: "offsetTable"}
_LARGEST_EMPTY = 4096  # bytes of a file that holds no entry
_TIMERCHECK_SIZE = place_of(TimerCheck, "state_version")  # bytes that a start reads


def emptied_config(store: Store) -> Mapping[str, str]:
    """Return what the .bak of a file holds, in words, by the name of the file, which a broker reads and holds no entry.

    A broker that fails to load its store saves delayOffset.json so, without having read it (5.4.0).
    """
    found: dict[str, str] = {}
    for name, table in _TABLES.items():
        file, backup = store.config_files.get(name), store.config_files.get(f"{name}.bak")
        if file is None or backup is None or file.size > _LARGEST_EMPTY or backup.size > store.max_config:
            continue
        own = read_copy(file, name)
        if own.source is not None and not own.table(table):
            entries = len(read_copy(backup, name, store.max_config).table(table))
            if entries:
                found[name] = f"{group_digits(entries)} of {table} in its .bak"
    return found


def gone_config(store: Store) -> Mapping[str, str]:
    """Return what proves that a file was there, in words, by the name of the file that is gone."""
    if store.given != "store" or not store.neighbours or not (store.config_files or _had_broker(store)):
        return {}
    in_rocksdb = any(file.name.startswith("config/") for file in store.of_kind("rocksdb"))
    found: dict[str, str] = {}
    for name, proof in ((TOPICS, _topics), (OFFSETS, _offsets), (GROUPS, _groups), (DELAYS, _delays)):
        if not (in_rocksdb and name in _IN_ROCKSDB) and _is_gone(store, name) and (words := proof(store)):
            found[name] = words
    if words := _timer_log(store):
        found[TIMERCHECK] = words
    return found


def how_gone(store: Store, name: str) -> str:
    """Return what is left of a file that `gone_config` has: of timercheck maybe too few bytes."""
    file = store.config_files.get(name)
    return "is gone" if file is None else f"is cut off: {count(file.size, 'byte')} of {_TIMERCHECK_SIZE}"


def start_without(name: str) -> str:
    """Return how a broker starts without a file that `gone_config` has."""
    if name == TIMERCHECK:
        return f"with the first message of {TIMER_TOPIC}: timer messages that were delivered are delivered again"
    return next(kind.without for kind in KINDS if kind.name == name)


def _had_broker(store: Store) -> bool:
    """Whether queues are left of topics that a store class writes only for a broker."""
    topics = {file.topic for file in store.queue_files} - {SCHEDULE_TOPIC}
    return any(topic.startswith(DLQ_PREFIX) or is_system_topic(topic) for topic in topics)


def _is_gone(store: Store, name: str) -> bool:
    """Whether no copy of a file is left, and others of its folder are."""
    names = OFFSET_FILES if name == OFFSETS else (name,)  # with enableLmq, the second is written in place of the first
    if any(one + end in store.config_files for one in names for end in _ENDS):
        return False
    return not any(store.hides("config", one) for one in names)


def _topics(store: Store) -> str:
    queues = {file.topic for file in store.queue_files if not is_own_topic(file.topic)}
    return _some("topic", "with queues", queues)


def _offsets(store: Store) -> str:
    if store.config_files:
        saved_delays = any(DELAYS + end in store.config_files for end in _ENDS)
        stopped = store.checkpoint is not None and not store.of_kind("abort")
        if not (saved_delays or stopped or _ran_long(store)):
            return ""
    document = read_config(store, GROUPS)
    groups = document.table("subscriptionGroupTable") if document else ()
    return _some("group", f"in {GROUPS}", filter(_is_users, groups)) or _given_back(store)


def _timer_log(store: Store) -> str:
    check, files = store.config_files.get(TIMERCHECK), [file for file in store.of_kind("timer_log") if file.size]
    if not files or store.hides("config", TIMERCHECK) or (check is not None and check.size >= _TIMERCHECK_SIZE):
        return ""
    return f"{count(len(files), 'file')} of the timer log"


def _groups(store: Store) -> str:
    groups = {entry.group for entry in read_consumer_offsets(store)[0]}
    return _some("group", "with consumer offsets", filter(_is_users, groups)) or _given_back(store)


def _is_users(group: str) -> bool:
    return not is_system_group(group) and not group.startswith(LMQ_PREFIX)


def _given_back(store: Store) -> str:
    topics = {file.topic for file in store.queue_files if file.topic.startswith((RETRY_PREFIX, DLQ_PREFIX))}
    return _some("topic", "of what groups gave back", topics)


def _delays(store: Store) -> str:
    saved_twice = any(name + ".bak" in store.config_files for name in _TIMED)
    if store.config_files and not (saved_twice or _ran_long(store)):
        return ""
    levels = {file.queue_id + 1 for file in store.queue_files if file.topic == SCHEDULE_TOPIC}
    return f"{count(len(levels), 'delay level')} with queues" if levels else ""


def _ran_long(store: Store) -> bool:
    """Whether a broker ran for more than 10 s: what a group gave back has come again."""
    return any(file.topic.startswith(RETRY_PREFIX) for file in store.queue_files)


def _some(noun: str, what: str, names: Iterable[str]) -> str:
    """Return how many there are, and the first of them; nothing without any."""
    ordered = sorted(names)
    if not ordered:
        return ""
    more = ", …" if len(ordered) > 1 else ""
    return f"{count(len(ordered), noun)} {what}: {ordered[0]}{more}"


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


_TIERED = ("config/tieredStoreMetadata.json", "tiered_index_file")


def tiered_files(store: Store) -> tuple[str, ...]:
    """Return the file and the folder that a broker with tiered storage leaves; none without.

    What a retention deletes here may still be in the backend of the tiered storage, which is not read. Source:
    DefaultMetadataStore#configFilePath, IndexStoreService#FILE_DIRECTORY_NAME; RocketMQ 5.1.0 to 5.5.0.
    """
    names = {file.name for file in store.files}
    return tuple(
        one
        for one in _TIERED
        if any(name == one or name == f"{one}.bak" or name.startswith(f"{one}/") for name in names)
    )


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
