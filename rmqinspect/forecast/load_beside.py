"""What is loaded beside log, queues and index, and can refuse a start: compaction logs and the timer log.

    behind the queues     compaction/compactionLog/TOPIC/QUEUE/ and compactionCq/TOPIC/QUEUE/    rule compaction_logs
    behind the store      timerlog/                                                              rule timer

Source: CompactionStore#load, CompactionLog.TopicPartitionLog#init, #sanityCheck, TimerLog#load; RocketMQ 5.0.0
to 5.5.0.
"""

from rmqinspect.broker.eras import Rules
from rmqinspect.codec.java_numbers import java_number
from rmqinspect.forecast.mapped_files import Entry, Folder, entry_of, load_folder
from rmqinspect.forecast.outcome import Refusal
from rmqinspect.forecast.settings import Settings
from rmqinspect.store.model import Store

_LOG, _QUEUE = "compaction/compactionLog/", "compaction/compactionCq/"


def load_timer_log(store: Store, rules: Rules, settings: Settings) -> Folder:
    """Return what a start makes of the files of the timer log; of none where it has no timer."""
    files = store.of_kind("timer_log") if rules.timer and settings.timer_wheel_enable else []
    return load_folder([entry_of(file, store.unopened) for file in files], settings.mapped_file_size_timer_log, rules)


def load_compaction(store: Store, rules: Rules, settings: Settings) -> tuple[Refusal | None, str | None]:
    """Return why the compaction logs refuse a start, or why that cannot be told."""
    if not (rules.compaction_logs and settings.enable_compaction):
        return None, None
    logs, queues = (
        _folders(store, kind, root) for kind, root in (("compaction_log", _LOG), ("compaction_queue", _QUEUE))
    )
    for place, entries in sorted(logs.items()):
        if java_number(place.rpartition("/")[2], 32) is None:
            why = f"{_LOG}{place} is no number of a queue (NumberFormatException)"
            return Refusal(
                _LOG + place, "compaction_logs", why, f"move {_LOG}{place} to a place outside of the store"
            ), None
        if place not in queues:
            continue  # logged, and not loaded
        log = load_folder(entries, settings.compaction_mapped_file_size, rules)
        queue = load_folder(queues[place], settings.compaction_cq_mapped_file_size, rules)
        refusal = log.refusal or queue.refusal or _mismatch(place, log, queue)
        if refusal or log.unknown or queue.unknown:
            return refusal, log.unknown or queue.unknown
    return None, None


def _folders(store: Store, kind: str, root: str) -> dict[str, list[Entry]]:
    """Return the entries of all folders of compaction logs or their queues, by topic/queue."""
    found: dict[str, list[Entry]] = {}
    for file in store.of_kind(kind):
        place = file.name.rpartition("/")[0].rpartition(root)[2]
        found.setdefault(place, []).append(entry_of(file, store.unopened))
    return found


def _mismatch(place: str, log: Folder, queue: Folder) -> Refusal | None:
    """Return the refusal of a log and a queue whose files have not the same names."""
    logs, queues = ({entry.name for entry in folder.loaded} for folder in (log, queue))
    for root, one, other in ((_LOG, logs, queues), (_QUEUE, queues, logs)):
        if alone := sorted(one - other):
            file = f"{root}{place}/{alone[0]}"
            why = f"{file} has no file of the same name beside it in {_QUEUE if root == _LOG else _LOG}{place}"
            return Refusal(file, "compaction_logs", why, f"move {file} to a place outside of the store")
    return None
