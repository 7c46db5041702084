"""The JSON files of `config/` as a start reads them: from the file, from its .bak, or not at all.

    file                   .bak                     the start
    readable               any                      reads the file
    missing, empty         readable                 reads the .bak
    missing, empty         missing, empty           goes on without
    unreadable             readable                 reads the .bak
    unreadable             missing, empty           goes on without
    not readable           unreadable               is refused

Most of them are read before the store is loaded: then a refused start has changed nothing else. delayOffset.json and
timermetrics, and the timer log, are read behind recovery from some release on: then the log is cut already.

Source: ConfigManager#load, #loadBak, BrokerController#initialize, #initializeMetadata, QueueTypeUtils#getCQType;
RocketMQ 4.0.0 to 5.5.0.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property

from msgspec import Struct, field

from rmqinspect.broker.gone import OFFSETS, emptied_config, gone_config
from rmqinspect.broker.start_rules import Rules
from rmqinspect.broker.unread import Unread, unread
from rmqinspect.config.decoding import Fate, decode
from rmqinspect.config.json_files import OFFSET_FILES, read_config, too_large
from rmqinspect.config.shapes import KINDS, Kind
from rmqinspect.errors import Unreadable
from rmqinspect.forecast.outcome import Decision, Refusal
from rmqinspect.forecast.settings import Settings
from rmqinspect.rocksdb.databases import why_unknown
from rmqinspect.store.model import Store
from rmqinspect.store.reader import open_file

SIMPLE_TYPE, BATCH_TYPE = "SimpleCQ", "BatchCQ"  # values of the topic attribute queue.type; SimpleCQ is its default
_TYPE = "queue.type"

_SOURCE = "ConfigManager#load, #loadBak"
_KINDS = {kind.name: kind for kind in KINDS}
_DELAYS = "delayOffset.json"
_MAIN = ("topics.json", "consumerOffset.json", "subscriptionGroup.json")
"""Files whose content a broker has in RocksDB with storeType=defaultRocksDB or configManagerVersion=v2."""
_FIRST: Mapping[str, tuple[str, ...]] = {
    "three": _MAIN,
    "filters": (*_MAIN, "consumerFilter.json"),
    "orders": ("topics.json", "topicQueueMapping.json", *_MAIN[1:], "consumerFilter.json", "consumerOrderInfo.json"),
}
"""Files that are read before the store is loaded, in the broker's order, by the rule `config_files`."""


class ConfigStart(Struct):
    """What a start does to the files of `config/`."""

    from_backup: list[str] = field(default_factory=list)  # names of files whose .bak is read
    deleted: list[str] = field(default_factory=list)  # files, relative to the store
    deleted_last: list[str] = field(default_factory=list)  # those that are deleted behind recovery
    first: Refusal | None = None  # before the store is loaded
    last: Refusal | None = None  # behind recovery
    unknown: str | None = None  # why it cannot be told whether the start goes on
    unread: list[Unread] = field(default_factory=list)  # what lies only where the broker does not look
    lost: list[str] = field(default_factory=list)  # names of files that were there, and no copy can be read
    notes: list[str] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)


class ConfigCopies:
    """What becomes of each copy of each file: read once, for all releases."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._known: dict[str, tuple[Fate | None, str]] = {}

    @cached_property
    def gone(self) -> Mapping[str, str]:
        """Files that are gone, and what proves that they were there."""
        return gone_config(self.store)

    @cached_property
    def emptied(self) -> Mapping[str, str]:
        """Files that hold nothing, and what their copies hold."""
        return emptied_config(self.store)

    def fate(self, kind: Kind, ending: str, rules: Rules) -> tuple[Fate | None, str]:
        """Return what becomes of one copy of a file, and what is wrong with it; None for a missing or empty one."""
        name = kind.name + ending
        if name not in self._known:
            self._known[name] = _fate(self.store, kind, ending)
        fate, trouble = self._known[name]
        if fate == "list":
            fate = "read" if rules.config_list == "read" else "refused"
        return fate, trouble


def read_config_files(
    store: Store,
    rules: Rules,
    settings: Settings,
    copies: ConfigCopies | None = None,
    timer_log: Refusal | None = None,
) -> ConfigStart:
    """Return which files of `config/` a start reads from their .bak, and which refuse it.

    `copies` are the store's, for callers who ask for several releases; `timer_log`: why that refuses the start, before
    the files behind recovery are read.
    """
    copies = copies or ConfigCopies(store)
    start = ConfigStart(unread=unread(store, rules))
    first = list(_FIRST[rules.config_files])
    last: list[str] = []
    (first if rules.schedule_offsets == "first" else last).append(_DELAYS)
    if rules.timer and settings.timer_wheel_enable:
        last.insert(0, "timermetrics")
    if settings.has_rocksdb_queues or settings.config_manager_version.lower() == "v2":
        first = [name for name in first if name not in _MAIN]
    start.first = _read_all(copies, rules, settings, first, start)
    if start.first is None:
        first_deleted, start.deleted = start.deleted, []
        start.last = timer_log or _read_all(copies, rules, settings, last, start)
        start.deleted, start.deleted_last = first_deleted, start.deleted
    return start


def _read_all(
    copies: ConfigCopies, rules: Rules, settings: Settings, names: Sequence[str], start: ConfigStart
) -> Refusal | None:
    for name in names:
        if name == "consumerOffset.json" and settings.enable_lmq and rules.light_queues:
            name = "lmqConsumerOffset.json"
        if (refusal := _read(copies, rules, _KINDS[name], start)) is not None:
            return refusal
    return None


def _read(copies: ConfigCopies, rules: Rules, kind: Kind, start: ConfigStart) -> Refusal | None:
    """Read a file, or its .bak; return why this refuses the start."""
    own, trouble = copies.fate(kind, "", rules)
    if own == "read":
        if trouble:
            start.notes.append(f"{kind.name}: {trouble}: the broker starts {kind.without}")
        elif proof := copies.emptied.get(kind.name):
            start.notes.append(f"{kind.name} holds nothing ({proof}): the broker starts {kind.without}")
            start.lost.append(kind.name)
        return None
    backup, why = copies.fate(kind, ".bak", rules)
    file = f"config/{kind.name}"
    if "unsure" in (own, backup):
        _doubt(start, kind, own, backup, trouble if own == "unsure" else why)
        return None
    if trouble and rules.config_file == "delete" and not copies.store.has_folder("config", kind.name):
        start.deleted.append(file)
    inputs = (("file", trouble or "missing"), ("bak", why or ("missing" if backup is None else "readable")))
    if backup == "read":
        start.from_backup.append(kind.name)
        start.decisions.append(Decision("config", f"{kind.name} is read from its .bak", inputs, _SOURCE))
    elif backup == "refused":
        text = f"neither {kind.name} nor its .bak can be read"
        start.decisions.append(Decision("config", text, inputs, _SOURCE))
        both = own is not None
        moved = "copy both, then move both" if both else f"copy {file}.bak, then move it"
        remedy = (
            f"restore {file} from a backup, a slave or another broker of the cluster; only if there is none: {moved} "
            f"to a place outside of the store: the broker starts {kind.without}"
        )
        return Refusal(
            f"{file}.bak",
            "config_file",
            f"{text}: {why}",
            remedy,
            moves=True,
            costs=f"starts {kind.without}",
            moves_also=(file,) if both else (),
        )
    elif trouble:
        text = f"{kind.name} cannot be read and has no .bak: the broker starts {kind.without}"
        start.decisions.append(Decision("config", text, inputs, _SOURCE))
        start.notes.append(text)
        start.lost.append(kind.name)
    elif proof := copies.gone.get(OFFSETS if kind.name in OFFSET_FILES else kind.name):
        start.notes.append(f"{kind.name} is gone ({proof}): the broker starts {kind.without}")
        start.lost.append(kind.name)
    return None


def _doubt(start: ConfigStart, kind: Kind, own: Fate | None, backup: Fate | None, trouble: str) -> None:
    """Note a file that brokers may or may not read."""
    text = f"{kind.name}: {trouble}: it is not known whether a broker reads it"
    if backup == "read":
        start.notes.append(f"{text}, or its .bak")
    elif own == "unsure" and backup is None:
        start.notes.append(f"{text}, or starts {kind.without}")
    else:
        start.unknown = start.unknown or text


def _fate(store: Store, kind: Kind, ending: str) -> tuple[Fate | None, str]:
    if store.has_folder("config", kind.name + ending):
        return "refused", "it is a folder"
    file = store.config_files.get(kind.name + ending)
    if file is None:
        hidden = store.hides("config", kind.name + ending)
        return ("unsure", "it cannot be opened") if hidden else (None, "")
    if file.size > store.max_config:
        return "unsure", too_large(file, store.max_config)
    try:
        with open_file(file) as reader:
            found = decode(reader.read(0, store.max_config), kind)
    except Unreadable as error:
        return "unsure", str(error)
    doubt = found.doubt if found.fate == "unsure" else ""
    return (None if found.empty else found.fate), found.trouble or doubt


def types_unknown(store: Store) -> str | None:
    """Return why `topic_types` may lack a topic, None if it has all that a broker knows.

    Of a file that is empty, or that no broker can read, a broker knows none.
    """
    document = read_config(store, "topics.json")
    if document is None or document.source is None:
        for fate, why in (_fate(store, _KINDS["topics.json"], ending) for ending in ("", ".bak")):
            if fate == "unsure":
                return why
    return why_unknown(store, "topics")


def topic_types(store: Store) -> Mapping[str, str]:
    """Return the type of the queues of each topic that has one in topics.json."""
    document = read_config(store, "topics.json")
    found: dict[str, str] = {}
    for topic, config in document.table("topicConfigTable").items() if document else ():
        attributes = config.get("attributes") if isinstance(config, dict) else None
        if isinstance(attributes, dict) and isinstance(own := attributes.get(_TYPE), str):
            found[topic] = own
    return found
