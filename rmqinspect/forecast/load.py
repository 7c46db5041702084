"""The load phase: which files a start takes, ignores and deletes, and which ones make it refuse.

    commitlog/ -> consumequeue/*/*/ (and consumequeue_ext) -> batchconsumequeue/*/*/    the first refusal ends it

Every such folder is loaded as `mapped_files` says.

Source: DefaultMessageStore#load, #loadConsumeQueue, #shutdown, ConsumeQueueStore#load; RocketMQ 4.0.0 to 5.5.0.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from rmqinspect.broker.eras import Rules
from rmqinspect.forecast.config_files import BATCH, SIMPLE, topic_types
from rmqinspect.forecast.load_beside import load_compaction
from rmqinspect.forecast.mapped_files import Entry, Folder, entry_of, java_number, load_folder, odd_entry
from rmqinspect.forecast.outcome import Decision, Refusal
from rmqinspect.forecast.settings import Settings
from rmqinspect.store.lock import lock_holder
from rmqinspect.store.model import Place, QueueFile, Segment, Store
from rmqinspect.text import count

QueueName = tuple[str, str, int]  # kind of its files, topic, queue id

_SOURCE = "MappedFileQueue#doLoad"


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


def load(store: Store, rules: Rules, settings: Settings) -> Loaded:
    """Return what a start loads of a store: its commit log, then its queues."""
    log = load_folder(_log_entries(store), settings.mapped_file_size_commit_log, rules)
    segments = tuple(map(_as_segment, log.loaded))
    found = Loaded(segments, {}, [], [], log.refusal, log.unknown, [], [])
    _note(found, log, "commitlog", len(segments))
    if (holder := lock_holder(store)) is not None:
        found.notes.append(f"process {holder} holds the lock: this is about the files as they are now")
    if store.hides_log:
        found = found._replace(unknown="the folder of the commit log could not be listed")
    if not found.refusal and settings.store_type != "defaultRocksDB":
        found = _load_queues(store, rules, settings, found)
    if not found.refusal:
        refusal, unknown = load_compaction(store, rules, settings)
        found = found._replace(refusal=refusal, unknown=found.unknown or unknown)
    if found.refusal and rules.failed_start == "shutdown":
        _shut_down(store, settings, found)
    return found


def _shut_down(store: Store, settings: Settings, found: Loaded) -> None:
    """Delete `abort` as the shutdown of a store does that did not start: it is no byte behind in dispatch."""
    if store.of_kind("abort") and (not found.segments or settings.flush_disk_type == "SYNC_FLUSH"):
        found.deleted.append("abort")
        found.notes.append("the failed start deletes abort: the next start counts as one after a clean exit")


def _note(found: Loaded, folder: Folder, name: str, files: int) -> None:
    found.ignored.extend(entry.shown for entry in folder.ignored)
    found.deleted.extend(entry.shown for entry in folder.deleted)
    if folder.refusal:
        text = f"the start ends here: {folder.refusal.why}"
        found.decisions.append(Decision("load", text, (("file", folder.refusal.file),), _SOURCE))
    elif name == "commitlog" or folder.ignored or folder.deleted:
        inputs = (("loaded", files), ("ignored", len(folder.ignored)), ("deleted", len(folder.deleted)))
        found.decisions.append(Decision("load", f"{name}: {count(files, 'file')} loaded", inputs, _SOURCE))


def _log_entries(store: Store) -> Iterator[Entry]:
    segments = [file for file in store.segments if file.kind == "segment"]
    for file in segments:
        yield entry_of(file, store.unopened)
    known = {file.path for file in segments}
    sizes = {file.path: file for file in store.files} if store.oddities else {}
    for oddity in store.oddities:
        if len(oddity.place) == 2 and oddity.place[0] == "commitlog" and oddity.path not in known:
            yield odd_entry(oddity, sizes.get(oddity.path))


def _as_segment(entry: Entry) -> Segment:
    if isinstance(entry.file, Segment):
        return entry.file
    assert entry.file is not None, entry.shown
    return Segment(entry.file.path, entry.shown, entry.size, "segment", int(entry.name))


# --- queues ---------------------------------------------------------------------------------------------

_KINDS = {"consumequeue": "queue", "batchconsumequeue": "batch_queue", "consumequeue_ext": "ext_queue"}


class _QueueFolders:
    """The folders of all queues, each with its entries."""

    def __init__(self, store: Store) -> None:
        self.entries: dict[Place, list[Entry]] = {place: [] for place in store.queue_folders}
        self.unread: list[str] = []
        roots = {kind: root for root, kind in _KINDS.items()}
        unopened = store.unopened
        for file in store.queue_files:
            if file.noted is None:
                # A folder of another name with the same number is another folder: 01 beside 1.
                above = file.name.rsplit("/", 2)[-2:-1]
                place = (roots[file.kind], file.topic, *(above if len(above) == 1 else [str(file.queue_id)]))
                self.entries.setdefault(place, []).append(entry_of(file, unopened))
        self._add_oddities(store)

    def _add_oddities(self, store: Store) -> None:
        odd = [oddity for oddity in store.oddities if oddity.place and oddity.place[0] in _KINDS]
        known = {file.path for file in store.queue_files} if odd else set()
        files = {file.path: file for file in store.files} if odd else {}
        for oddity in odd:
            root, *below = oddity.place
            if len(below) == 3 and oddity.path not in known:
                self.entries.setdefault((root, below[0], below[1]), []).append(
                    odd_entry(oddity, files.get(oddity.path))
                )
            elif len(below) == 2 and oddity.kind == "stray":
                self.entries.setdefault((root, below[0], below[1]), [])  # a file: a queue without files
            elif len(below) < 3 and oddity.is_unread:
                self.unread.append(f"{oddity.name}: {oddity.detail}")

    def queues(self, root: str) -> dict[tuple[str, int], Sequence[Entry]]:
        """Return the queues of a folder of the store, each with the entries of the folder that its number names."""
        found: dict[tuple[str, int], Sequence[Entry]] = {}
        for own, topic, name in self.entries:
            queue_id = java_number(name, 32) if own == root else None
            if queue_id is not None:
                found[topic, queue_id] = self.entries.get((root, topic, str(queue_id)), ())
        return found


def _load_queues(store: Store, rules: Rules, settings: Settings, found: Loaded) -> Loaded:
    folders = _QueueFolders(store)
    if folders.unread:
        found = found._replace(unknown=found.unknown or folders.unread[0])
    compared = rules.queue_types == "compared"
    types = topic_types(store) if compared else {}
    queues: dict[QueueName, tuple[QueueFile, ...]] = {}
    plan = [("consumequeue", SIMPLE, settings.mapped_file_size_consume_queue)]
    if compared:  # such queues came in the same release
        plan.append(("batchconsumequeue", BATCH, settings.mapper_file_size_batch_consume_queue))
    exts = folders.queues("consumequeue_ext") if settings.enable_consume_queue_ext else {}
    for root, expected, size in plan:
        for (topic, queue_id), entries in sorted(folders.queues(root).items()):
            own = types.get(topic, SIMPLE)
            place = f"{root}/{topic}/{queue_id}"
            if compared and own != expected:
                refusal = _wrong_type(place, topic, expected, own)
                found.decisions.append(Decision("load", refusal.why, (("folder", place),), "queueTypeShouldBe"))
                return _refused(found, refusal, queues)
            folder = load_folder(entries, size, rules)
            name = _KINDS[root], topic, queue_id
            queues[name] = tuple(_as_queue_file(entry, name) for entry in folder.loaded)
            _note(found, folder, place, len(folder.loaded))
            if root == "consumequeue" and (ext := exts.get((topic, queue_id))) and not folder.refusal:
                folder = load_folder(ext, settings.mapped_file_size_consume_queue_ext, rules)
                _note(found, folder, f"consumequeue_ext/{topic}/{queue_id}", len(folder.loaded))
            if folder.refusal:
                return _refused(found, folder.refusal, queues)
            found = found._replace(unknown=found.unknown or folder.unknown)
    text = f"queues: {count(len(queues), 'queue')} loaded"
    found.decisions.append(Decision("load", text, (("queues", len(queues)),), "ConsumeQueueStore#load"))
    return found._replace(queues=queues)


def _refused(found: Loaded, refusal: Refusal, queues: Mapping[QueueName, tuple[QueueFile, ...]]) -> Loaded:
    """Return what was loaded up to a refused queue. Which queues come before it is up to the file system."""
    empty = [name for name in found.deleted if "consumequeue" in name]
    if empty:
        found.notes.append(f"deleted before, if the file system lists them first: {', '.join(empty[:3])}")
    return found._replace(refusal=refusal, queues=queues, deleted=[name for name in found.deleted if name not in empty])


def _wrong_type(place: str, topic: str, expected: str, own: str) -> Refusal:
    why = f"{place} is a folder of type {expected}, but the type of topic {topic} is {own}"
    return Refusal(place, "queue_types", why, f"move {place} to a place outside of the store")


def _as_queue_file(entry: Entry, queue: QueueName) -> QueueFile:
    if isinstance(entry.file, QueueFile):
        return entry.file
    assert entry.file is not None, entry.shown
    kind, topic, queue_id = queue
    return QueueFile(entry.file.path, entry.shown, entry.size, kind, topic, queue_id, int(entry.name))
