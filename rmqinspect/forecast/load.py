"""The load phase: which files a start takes, ignores and deletes, and which ones make it refuse.

    commitlog/ -> consumequeue/*/*/ (and consumequeue_ext) -> batchconsumequeue/*/*/    the first refusal ends it

Every such folder is loaded as `mapped_files` says.

Source: DefaultMessageStore#load, #loadConsumeQueue, #shutdown, ConsumeQueueStore#load; RocketMQ 4.0.0 to 5.5.0.
"""

from collections.abc import Mapping
from typing import NamedTuple

from rmqinspect.broker.eras import Rules
from rmqinspect.forecast.config_files import BATCH, SIMPLE
from rmqinspect.forecast.listing import KINDS, Listing
from rmqinspect.forecast.load_beside import load_compaction
from rmqinspect.forecast.mapped_files import Entry, Folder, load_folder
from rmqinspect.forecast.outcome import Decision, Refusal
from rmqinspect.forecast.queue_ends import QueueName
from rmqinspect.forecast.settings import Settings
from rmqinspect.store.lock import lock_holder
from rmqinspect.store.model import QueueFile, Segment, Store
from rmqinspect.text import count

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


def load(store: Store, rules: Rules, settings: Settings, listing: Listing | None = None) -> Loaded:
    """Return what a start loads of a store: its commit log, then its queues.

    `listing` is the store's, for callers who ask for several releases.
    """
    listing = listing or Listing(store)
    log = load_folder(listing.log, settings.mapped_file_size_commit_log, rules)
    segments = tuple(map(_as_segment, log.loaded))
    found = Loaded(segments, {}, [], [], log.refusal, log.unknown, [], [])
    _note(found, log, "commitlog", len(segments))
    if (holder := lock_holder(store)) is not None:
        found.notes.append(f"process {holder} holds the lock: this is about the files as they are now")
    if store.hides_log:
        found = found._replace(unknown="the folder of the commit log could not be listed")
    if not found.refusal and not settings.has_rocksdb_queues:
        found = _load_queues(listing, rules, settings, found)
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
    plan = [("consumequeue", SIMPLE, settings.mapped_file_size_consume_queue)]
    if compared:  # such queues came in the same release
        plan.append(("batchconsumequeue", BATCH, settings.mapper_file_size_batch_consume_queue))
    exts = folders["consumequeue_ext"] if settings.enable_consume_queue_ext else {}
    for root, expected, size in plan:
        for (topic, queue_id), folder in folders[root].items():
            name = KINDS[root], topic, queue_id
            own = types.get(topic, SIMPLE)
            if compared and own != expected:
                return _refused(found, _wrong_type(f"{root}/{topic}/{queue_id}", topic, expected, own), queues)
            parts = [(folder, size, root)]
            if root == "consumequeue" and (topic, queue_id) in exts:
                parts.append((exts[topic, queue_id], settings.mapped_file_size_consume_queue_ext, "consumequeue_ext"))
            for part, length, top in parts:
                if part.has_only(length):
                    queues.setdefault(name, part.alike or ())
                    continue
                made = load_folder(part.entries, length, rules)
                queues.setdefault(name, tuple(_as_queue_file(entry, name) for entry in made.loaded))
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


def _wrong_type(place: str, topic: str, expected: str, own: str) -> Refusal:
    why = f"{place} is a folder of type {expected}, but the type of topic {topic} is {own}"
    return Refusal(place, "queue_types", why, f"move {place} to a place outside of the store")


def _as_queue_file(entry: Entry, queue: QueueName) -> QueueFile:
    if isinstance(entry.file, QueueFile):
        return entry.file
    assert entry.file is not None, entry.shown
    kind, topic, queue_id = queue
    return QueueFile(entry.file.path, entry.shown, entry.size, kind, topic, queue_id, int(entry.name))
