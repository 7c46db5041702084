"""The load phase: which files a start takes, ignores and deletes, and which ones make it refuse.

    before all            lock; config/timercheck, timerwheel (rule timer): a folder in their place, a wrong length
    commitlog/            -> consumequeue/*/*/ (and consumequeue_ext) -> batchconsumequeue/*/*/    first refusal ends it
    behind the queues     compaction/compactionLog/TOPIC/QUEUE/ and compactionCq/TOPIC/QUEUE/    rule compaction_logs
                          checkpoint: a folder in its place
    behind recovery       abort: a folder in its place                                           rule abort_folder
                          timerlog/                                                              rule timer

The entries of a folder of mapped files are taken in the order of their names; for each, the first row that fits
decides:

    a folder                          skipped, or taken for a file of another length   rule folder_entry
    empty, and the last entry         deleted, or a file of another length             rule empty_last_file
    of another length                 it and all behind it ignored, or refused         rule wrong_length
    its name is no Java long          refused
    anything else                     loaded

A file that is too short is no trouble where it is mapped: its end is zeros then. All folders are listed once, and
loaded by the rules of each release.

Source: DefaultMessageStore#load, #loadConsumeQueue, #shutdown, ConsumeQueueStore#load, MappedFileQueue#load, #doLoad,
MultiPathMappedFileQueue#load, MappedFile#init, StoreCheckpoint, #createTempFile, TimerCheckpoint, TimerWheel,
TimerLog#load, CompactionStore#load, CompactionLog.TopicPartitionLog#init, #sanityCheck; RocketMQ 4.0.0 to 5.5.0.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from rmqinspect.broker.gone import TOPICS, emptied_config, gone_config
from rmqinspect.broker.start_rules import Rules
from rmqinspect.codec.java import java_number
from rmqinspect.commands import quote_path
from rmqinspect.forecast.config_files import BATCH_TYPE, SIMPLE_TYPE, topic_types, types_unknown
from rmqinspect.forecast.outcome import Decision, Refusal
from rmqinspect.forecast.queues import QueueName
from rmqinspect.forecast.settings import Setting, Settings
from rmqinspect.schemas.timer import WHEEL_SLOTS, WheelSlot
from rmqinspect.store.log_paths import SPLITTER
from rmqinspect.store.model import LAST_BASE, Oddity, Place, QueueFile, Segment, Store, StoreFile
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
            why = f"the name of {entry.shown} is no number (NumberFormatException), though its length is right"
            return found._replace(refusal=Refusal.till_moved(entry.shown, "file_name", why))
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
        return Refusal.till_moved(entry.shown, "wrong_length", why)
    what = "fill it with zeros" if entry.size < size else "cut it"
    command = f"truncate -s {size} {quote_path(entry.shown)}"
    remedy = f"copy {entry.shown}, then {what} to its full length: {command}"
    return Refusal(entry.shown, "wrong_length", why, remedy, length=size)


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
        return Refusal.till_moved("config", "file_type", why)
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
    return Refusal.till_moved(name, "file_type", why)


def abort_refusal(store: Store, rules: Rules) -> Refusal | None:
    """Return why a start fails where it writes `abort`, behind recovery."""
    refusal = folder_refusal(store, "abort") if rules.abort_folder == "refuse" else None
    return refusal and refusal._replace(
        rule="abort_folder", remedy="put an empty file in the place of the folder abort"
    )


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


KINDS = {"consumequeue": "queue", "batchconsumequeue": "batch_queue", "consumequeue_ext": "ext_queue"}
"""The kind of the files in each folder of queues."""


class QueueFolder(NamedTuple):
    """The folder of a queue."""

    entries: Sequence[Entry]
    alike: tuple[QueueFile, ...] | None  # all its entries in their order, where they are files of one length

    def has_only(self, size: int) -> bool:
        """Whether all its entries are files of a length: every release loads all of them."""
        return self.alike is not None and (not self.alike or self.alike[0].size == size)


class Listing:
    """What the load phase lists; `unread` says what could not be listed."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.unread: list[str] = []

    @cached_property
    def log(self) -> list[Entry]:
        """The entries of the commit log."""
        return list(_log_entries(self._store))

    @cached_property
    def topic_types(self) -> Mapping[str, str]:
        """The type of the queues of each topic that has one."""
        return topic_types(self._store)

    @cached_property
    def types_unknown(self) -> str | None:
        """Why the type of a topic may be another one than `topic_types` has, None if it is that."""
        return types_unknown(self._store)

    @cached_property
    def topics_gone(self) -> bool:
        """Whether topics.json, which has the types, is gone, or holds no topic."""
        return TOPICS in gone_config(self._store) or TOPICS in emptied_config(self._store)

    @cached_property
    def queues(self) -> Mapping[str, Mapping[tuple[str, int], QueueFolder]]:
        """The queues of each folder of `KINDS`, sorted, each with the folder that its number names."""
        folders = {place: _folder(entries) for place, entries in self._folders().items()}
        found: dict[str, dict[tuple[str, int], QueueFolder]] = {root: {} for root in KINDS}
        for root, topic, name in sorted(folders):
            queue_id = java_number(name, 32)
            if queue_id is not None:
                own = folders.get((root, topic, str(queue_id)), QueueFolder((), ()))
                found[root][topic, queue_id] = own
        return found

    def _folders(self) -> dict[Place, list[Entry]]:
        store = self._store
        found: dict[Place, list[Entry]] = {place: [] for place in store.queue_folders}
        roots = {kind: root for root, kind in KINDS.items()}
        unopened = store.unopened
        for file in store.queue_files:
            if file.noted is None:
                # A folder of another name with the same number is another folder: 01 beside 1.
                above = file.name.rsplit("/", 2)[-2:-1]
                place = (roots[file.kind], file.topic, *(above if len(above) == 1 else [str(file.queue_id)]))
                found.setdefault(place, []).append(entry_of(file, unopened))
        self._add_oddities(found)
        return found

    def _add_oddities(self, found: dict[Place, list[Entry]]) -> None:
        store = self._store
        odd = [oddity for oddity in store.oddities if oddity.place and oddity.place[0] in KINDS]
        known = {file.path for file in store.queue_files} if odd else set()
        files = {file.path: file for file in store.files} if odd else {}
        for oddity in odd:
            root, *below = oddity.place
            if len(below) == 3 and oddity.path not in known:
                entry = odd_entry(oddity, files.get(oddity.path))
                found.setdefault((root, below[0], below[1]), []).append(entry)
            elif len(below) == 2 and oddity.kind == "stray":
                found.setdefault((root, below[0], below[1]), [])  # a file: a queue without files
            elif len(below) < 3 and oddity.is_unread:
                self.unread.append(f"{oddity.name}: {oddity.detail}")


def _folder(entries: Sequence[Entry]) -> QueueFolder:
    entries = sorted(entries, key=lambda entry: entry.name)
    files = tuple(entry.file for entry in entries if isinstance(entry.file, QueueFile) and not entry.unread)
    is_alike = len(files) == len(entries) and len({file.size for file in files}) <= 1
    return QueueFolder(entries, files if is_alike and all(entry.name.isascii() for entry in entries) else None)


def _log_entries(store: Store) -> Iterator[Entry]:
    segments = [file for file in store.segments if file.kind == "segment"]
    for file in segments:
        yield entry_of(file, store.unopened)
    known = {file.path for file in segments}
    sizes = {file.path: file for file in store.files} if store.oddities else {}
    for oddity in store.oddities:
        if len(oddity.place) == 2 and oddity.place[0] == "commitlog" and oddity.path not in known:
            yield odd_entry(oddity, sizes.get(oddity.path))


_SOURCE = "MappedFileQueue#doLoad"
_ONE_FOLDER = (
    "storePathCommitLog is a list of folders, which this release takes for the name of one: it reads no segment"
)
ABORT_DELETED = "the failed start deletes abort: the next start counts as one after a clean exit"


class Loaded(NamedTuple):
    """What a start loads."""

    segments: tuple[Segment, ...]  # in the broker's order
    queues: Mapping[QueueName, tuple[QueueFile, ...]]  # all queues, those without a file, too; files in its order
    ignored: list[str]  # files that stay on disk and are not part of the log or a queue, relative to the store
    deleted: list[str]  # files, relative to the store
    refusal: Refusal | None
    unknown: str | None  # why it cannot be told whether the start loads these files
    decisions: list[Decision]
    notes: list[str]


# --- a whole store --------------------------------------------------------------------------------------


def load(store: Store, rules: Rules, settings: Settings, listing: Listing | None = None) -> Loaded:
    """Return what a start loads of a store: its commit log, then its queues.

    `listing` is the store's, for callers who ask for several releases.
    """
    listing = listing or Listing(store)
    name = "mapped_file_size_commit_log"
    one_folder = rules.log_paths == "one" and SPLITTER in store.settings.get("storePathCommitLog", "")
    entries = [] if one_folder else listing.log
    log = load_folder(entries, settings.mapped_file_size_commit_log, rules, settings.fitting(name, rules))
    segments = tuple(map(_as_segment, log.loaded))
    found = Loaded(segments, {}, [], [], log.refusal, log.unknown, [], [])
    _note(found, log, "commitlog", len(segments))
    if one_folder:
        found.notes.append(_ONE_FOLDER)
    if store.hides_log:
        found = found._replace(unknown="the folder of the commit log could not be listed")
    if not found.refusal and not settings.has_rocksdb_queues:
        found = _load_queues(listing, rules, settings, found)
    if not found.refusal:
        refusal, unknown = load_compaction(store, rules, settings)
        found = found._replace(refusal=refusal, unknown=found.unknown or unknown)
    if found.refusal and deletes_abort(store, rules, settings, len(found.segments)):
        found.deleted.append("abort")
        found.notes.append(ABORT_DELETED)
    return found


def deletes_abort(store: Store, rules: Rules, settings: Settings, segments: int) -> bool:
    """Whether a start that fails with so many segments loaded deletes `abort` in its shutdown.

    It does where it is no byte behind in dispatch.
    """
    is_even = not segments or settings.flush_disk_type == "SYNC_FLUSH"
    return rules.failed_start == "shutdown" and bool(store.of_kind("abort")) and is_even


def _note(found: Loaded, folder: Folder, name: str, files: int) -> None:
    found.ignored.extend(entry.shown for entry in folder.ignored)
    found.deleted.extend(entry.shown for entry in folder.deleted)
    if folder.refusal:
        text = f"the start ends here: {folder.refusal.why}"
        found.decisions.append(Decision("load", text, (("file", folder.refusal.file),), _SOURCE))
    elif name == "commitlog" or folder.ignored or folder.deleted:
        inputs = (("loaded", files), ("ignored", len(folder.ignored)), ("deleted", len(folder.deleted)))
        found.decisions.append(Decision("load", f"{name}: {count(files, 'file')} loaded", inputs, _SOURCE))


def _as_segment(entry: Entry) -> Segment:
    if isinstance(entry.file, Segment):
        return entry.file
    assert entry.file is not None, entry.shown
    return Segment(entry.file.path, entry.shown, entry.size, "segment", int(entry.name))


# --- queues ---------------------------------------------------------------------------------------------


def _load_queues(listing: Listing, rules: Rules, settings: Settings, found: Loaded) -> Loaded:
    folders = listing.queues
    if listing.unread:
        found = found._replace(unknown=found.unknown or listing.unread[0])
    compared = rules.queue_types == "compared"
    types = listing.topic_types if compared else {}
    queues: dict[QueueName, tuple[QueueFile, ...]] = {}
    plan = [("consumequeue", SIMPLE_TYPE, "mapped_file_size_consume_queue")]
    if compared:  # such queues came in the same release
        plan.append(("batchconsumequeue", BATCH_TYPE, "mapper_file_size_batch_consume_queue"))
    exts = folders["consumequeue_ext"] if settings.enable_consume_queue_ext else {}
    for root, expected, size in plan:
        for (topic, queue_id), folder in folders[root].items():
            name = KINDS[root], topic, queue_id
            own = types.get(topic, SIMPLE_TYPE)
            if compared and own != expected and listing.types_unknown:
                text = f"the type of topic {topic} is not known: {listing.types_unknown}"
                found = found._replace(unknown=found.unknown or text)
            elif compared and own != expected:
                wrong = _wrong_type(f"{root}/{topic}/{queue_id}", topic, expected, own, gone=listing.topics_gone)
                return _refused(found, wrong, queues)
            parts = [(folder, size, root)]
            if root == "consumequeue" and (topic, queue_id) in exts:
                parts.append((exts[topic, queue_id], "mapped_file_size_consume_queue_ext", "consumequeue_ext"))
            for part, setting, top in parts:
                length: int = getattr(settings, setting)
                if part.has_only(length):
                    queues.setdefault(name, part.alike or ())
                    continue
                made = load_folder(part.entries, length, rules, settings.fitting(setting, rules))
                files = tuple(_as_queue_file(entry, name) for entry in made.loaded)
                if any(after.base <= before.base for before, after in pairwise(files)) or any(
                    f.base < 0 for f in files
                ):
                    found.notes.append(
                        f"{top}/{topic}/{queue_id}: files with names that no broker gives ({files[0].base}, …): the "
                        "offsets of this queue after the start are not sure"
                    )
                queues.setdefault(name, files)
                _note(found, made, f"{top}/{topic}/{queue_id}", len(made.loaded))
                if made.refusal:
                    return _refused(found, made.refusal, queues)
                found = found._replace(unknown=found.unknown or made.unknown)
    text = f"queues: {count(len(queues), 'queue')} loaded"
    found.decisions.append(Decision("load", text, (("queues", len(queues)),), "ConsumeQueueStore#load"))
    return found._replace(queues=queues)


def _refused(found: Loaded, refusal: Refusal, queues: Mapping[QueueName, tuple[QueueFile, ...]]) -> Loaded:
    """Return what was loaded up to a refused queue. Which queues come before it is up to the file system."""
    if refusal.rule == "queue_types":
        found.decisions.append(Decision("load", refusal.why, (("folder", refusal.file),), "queueTypeShouldBe"))
    empty = [name for name in found.deleted if "consumequeue" in name]
    if empty:
        found.notes.append(f"deleted before, if the file system lists them first: {', '.join(empty[:3])}")
    return found._replace(refusal=refusal, queues=queues, deleted=[name for name in found.deleted if name not in empty])


def _wrong_type(place: str, topic: str, expected: str, own: str, *, gone: bool) -> Refusal:
    """Return the refusal of a folder; `gone`: the types of topics are gone with topics.json."""
    why = f"{place} is a folder of type {expected}, but the type of topic {topic} is {own}"
    remedy = f"move {place} to a place outside of the store"
    if gone:
        why += ", the default: config/topics.json is gone"
        remedy = (
            "restore config/topics.json from a backup, a slave, or another broker of the cluster; "
            f"only if there is none: {remedy}"
        )
    return Refusal(place, "queue_types", why, remedy, moves=True)


def _as_queue_file(entry: Entry, queue: QueueName) -> QueueFile:
    if isinstance(entry.file, QueueFile):
        return entry.file
    assert entry.file is not None, entry.shown
    kind, topic, queue_id = queue
    return QueueFile(entry.file.path, entry.shown, entry.size, kind, topic, queue_id, int(entry.name))
