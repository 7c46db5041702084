"""A folder of mapped files, as a start loads it.

Its entries are taken in the order of their names; for each, the first row that fits decides:

    a folder                          skipped, or taken for a file of another length   rule folder_entry
    empty, and the last entry         deleted, or a file of another length             rule empty_last_file
    of another length                 it and all behind it ignored, or refused         rule wrong_length
    its name is no Java long          refused
    anything else                     loaded

Source: MappedFileQueue#load, #doLoad, MultiPathMappedFileQueue#load, MappedFile#init; RocketMQ 4.0.0 to 5.5.0.

What is loaded beside log, queues and index, and can refuse a start.

    before all            lock; config/timercheck, timerwheel (rule timer): a folder in their place, a wrong length
    behind the queues     compaction/compactionLog/TOPIC/QUEUE/ and compactionCq/TOPIC/QUEUE/    rule compaction_logs
                          checkpoint: a folder in its place
    behind recovery       abort: a folder in its place                                           rule abort_folder
                          timerlog/                                                              rule timer

A file that is too short is no trouble where it is mapped: its end is zeros then.

Source: DefaultMessageStore, StoreCheckpoint, #createTempFile, TimerCheckpoint, TimerWheel, CompactionStore#load,
CompactionLog.TopicPartitionLog#init, #sanityCheck, TimerLog#load; RocketMQ 4.0.0 to 5.5.0.
"""

from collections.abc import Iterable
from typing import NamedTuple

from rmqinspect.broker.start_rules import Rules
from rmqinspect.codec.java import java_number
from rmqinspect.commands import quote_path
from rmqinspect.forecast.outcome import Refusal
from rmqinspect.forecast.settings import Setting, Settings
from rmqinspect.schemas.timer import WHEEL_SLOTS, WheelSlot
from rmqinspect.store.model import LAST_BASE, Oddity, Store, StoreFile
from rmqinspect.text import count, group_digits


class Entry(NamedTuple):
    """An entry of a folder of mapped files."""

    name: str  # in its folder
    shown: str  # relative to the store
    size: int  # bytes
    is_folder: bool = False
    file: StoreFile | None = None
    unread: str = ""  # why its length is not known


class Folder(NamedTuple):
    """What a start makes of the entries of one folder of mapped files."""

    loaded: list[Entry]
    ignored: list[Entry]
    deleted: list[Entry]
    refusal: Refusal | None = None
    unknown: str | None = None  # why it cannot be told; what is loaded is a guess then


def entry_of(file: StoreFile, unopened: frozenset[str]) -> Entry:
    """Return a file as an entry of its folder; `unopened` has the paths of files whose size is guessed."""
    unread = "the file could not be opened" if file.path in unopened else ""
    return Entry(file.name.rpartition("/")[2], file.name, file.size, file=file, unread=unread)


def odd_entry(oddity: Oddity, file: StoreFile | None) -> Entry:
    """Return what does not belong into a folder as an entry of it; `file`, where it is one."""
    name = oddity.place[-1]
    if oddity.kind == "directory":
        return Entry(name, oddity.name, 0, is_folder=True)
    if file is not None:
        return Entry(name, oddity.name, file.size, file=file)
    # File#length is 0 for a link that leads nowhere, and for what is no file.
    unread = "" if oddity.kind == "special" or "dangling" in oddity.detail else oddity.detail
    return Entry(name, oddity.name, 0, unread=unread)


def load_folder(entries: Iterable[Entry], size: int, rules: Rules, fits: Setting | None = None) -> Folder:
    """Return what a start makes of a folder of mapped files, each of which must have `size` bytes.

    `fits`: what broker.conf ought to say, where the files of the store have another size.
    """
    ordered = sorted(entries, key=lambda entry: entry.name.encode("utf-16-be", "surrogatepass"))
    found = Folder([], [], [])
    for number, entry in enumerate(ordered):
        if entry.is_folder and rules.folder_entry == "skip":
            found.ignored.append(entry)
        elif entry.unread:
            return found._replace(unknown=f"{entry.shown}: {entry.unread}")
        elif (
            not entry.is_folder and not entry.size and number == len(ordered) - 1 and rules.empty_last_file == "delete"
        ):
            found.deleted.append(entry)
        elif entry.is_folder or entry.size != size:
            if rules.wrong_length == "ignore":
                found.ignored.extend(ordered[number:])
                return found
            return found._replace(refusal=_wrong_length(entry, size, fits))
        elif (base := java_number(entry.name, 64)) is None:
            return found._replace(refusal=_no_number(entry))
        elif abs(base) > LAST_BASE:  # sums with it wrap
            return found._replace(unknown=f"{entry.shown}: a file that begins at the impossible offset {base}")
        else:
            found.loaded.append(entry)
    return found


def _wrong_length(entry: Entry, size: int, fits: Setting | None) -> Refusal:
    if entry.is_folder:
        why = f"{entry.shown} is a folder among mapped files"
    else:
        why = f"{entry.shown} has {count(entry.size, 'byte')}, the setting says {group_digits(size)}"
    if fits is not None and not entry.is_folder and entry.size == fits.value:
        line = (fits.name, str(fits.value))
        return Refusal(entry.shown, "wrong_length", why, f"set {fits} in broker.conf", settings=(line,))
    if entry.is_folder or not entry.size or java_number(entry.name, 64) is None:
        remedy = f"move {entry.shown} to a place outside of the store"
        return Refusal(entry.shown, "wrong_length", why, remedy, moves=True)
    what = "fill it with zeros" if entry.size < size else "cut it"
    command = f"truncate -s {size} {quote_path(entry.shown)}"
    remedy = f"copy {entry.shown}, then {what} to its full length: {command}"
    return Refusal(entry.shown, "wrong_length", why, remedy, length=size)


def _no_number(entry: Entry) -> Refusal:
    why = f"the name of {entry.shown} is no number (NumberFormatException), though its length is right"
    return Refusal(entry.shown, "file_name", why, f"move {entry.shown} to a place outside of the store", moves=True)


_TIMER_LOG = "mapped_file_size_timer_log"
_LOG, _QUEUE = "compaction/compactionLog/", "compaction/compactionCq/"


WHEEL_SIZE: int = WHEEL_SLOTS * WheelSlot.sizeof()
_TIMER = "config/timercheck", "timerwheel"  # in the order of their opening
# TimerMessageStore#recover goes through so many timer log files at least, and makes the wheel of them.
_REPLAYED_FILES = 2


def open_refusal(store: Store, rules: Rules, settings: Settings) -> Refusal | None:
    """Return why a start fails before it loads anything."""
    has_timer = rules.timer and settings.timer_wheel_enable
    for name in ("lock", *(_TIMER if has_timer else ())):
        if refusal := folder_refusal(store, name):
            return refusal
    if has_timer and store.has_file("config"):
        why = "config is a file, so that config/timercheck cannot be made"
        return Refusal("config", "file_type", why, "move config to a place outside of the store", moves=True)
    wheel = next((file for file in store.of_kind("timer_wheel") if file.name == _TIMER[-1]), None)
    if not has_timer or wheel is None or wheel.size in (0, WHEEL_SIZE):
        return None
    why = f"timerwheel has {count(wheel.size, 'byte')}, a broker expects {group_digits(WHEEL_SIZE)}"
    remedy = "move timerwheel to a place outside of the store: the broker makes it again of the last timer log files"
    moves = len(store.of_kind("timer_log")) <= _REPLAYED_FILES
    return Refusal(wheel.name, "timer", why, remedy, moves=moves)


def folder_refusal(store: Store, name: str) -> Refusal | None:
    """Return why a start fails where it opens a file, and a folder is in its place."""
    if not store.has_folder(*name.split("/")):
        return None
    why = f"{name} is a folder in the place of a file"
    return Refusal(name, "file_type", why, f"move {name} to a place outside of the store", moves=True)


def abort_refusal(store: Store, rules: Rules) -> Refusal | None:
    """Return why a start fails where it writes `abort`, behind recovery."""
    refusal = folder_refusal(store, "abort") if rules.abort_folder == "refuse" else None
    return refusal and refusal._replace(
        rule="abort_folder", remedy="put an empty file in the place of the folder abort"
    )


def load_timer_log(store: Store, rules: Rules, settings: Settings) -> Folder:
    """Return what a start makes of the files of the timer log; of none where it has no timer."""
    files = store.of_kind("timer_log") if rules.timer and settings.timer_wheel_enable else []
    entries, fits = [entry_of(file, store.unopened) for file in files], settings.fitting(_TIMER_LOG, rules)
    return load_folder(entries, settings.mapped_file_size_timer_log, rules, fits)


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
