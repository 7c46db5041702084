"""What of a store a broker does not read, by its settings: topics, groups, offsets, segments that lie elsewhere.

    settings                              read, in this order; what comes later is taken over where it is newer
    (none)                                config/topics.json, subscriptionGroup.json, consumerOffset.json
    enableLmq                             offsets: config/lmqConsumerOffset.json
    storeType=defaultRocksDB              databases config/topics, subscriptionGroups, consumerOffsets; then the files
    useSingleRocksDBForAllConfigs besides database config/metadata, then these
    configManagerVersion=v2               database config/rdb

A broker whose settings were changed, or that is of an older release, begins without what lies elsewhere, and says
nothing of it. Without a broker.conf the files were written by a broker with the same settings, and nothing is told.
Segments in a folder that storePathCommitLog does not name: `store.log_paths`.

Source: BrokerController#BrokerController, LmqConsumerOffsetManager#configFilePath, RocksDBConsumerOffsetManager#load,
#merge, #migrateFromSeparateRocksDBs, ConsumerOffsetManagerV2#load; RocketMQ 4.0.0 to 5.5.0.
"""

from collections.abc import Iterator, Mapping
from operator import attrgetter
from typing import NamedTuple

from rmqinspect.broker.eras import rules_of_start
from rmqinspect.broker.groups import is_own_topic, is_system_group
from rmqinspect.broker.start_rules import Rules
from rmqinspect.broker.version_estimate import estimate_version
from rmqinspect.config.json_files import ConfigDocument, consumer_offsets_of, read_copy
from rmqinspect.config.shapes import KINDS
from rmqinspect.consumequeue.bounds import last_places
from rmqinspect.store.log_paths import LOG, named_folders
from rmqinspect.store.model import LAST_BASE, Oddity, Segment, Store, StoreFile
from rmqinspect.text import count, group_digits

TOPICS, GROUPS, OFFSETS, LIGHT_OFFSETS = (
    "topics.json",
    "subscriptionGroup.json",
    "consumerOffset.json",
    "lmqConsumerOffset.json",
)
_DIGITS = 20  # of a segment's name
_LISTED = 4
_DATABASES = {TOPICS: "topics", GROUPS: "subscriptionGroups", OFFSETS: "consumerOffsets"}
_SINGLE, _V2 = "metadata", "rdb"
_FOLDERS = (*_DATABASES.values(), _SINGLE, _V2)
_TABLES = {TOPICS: "topicConfigTable", GROUPS: "subscriptionGroupTable"}
_WITHOUT = {kind.name: kind.without for kind in KINDS}


class Unread(NamedTuple):
    """What lies only where a broker does not read it."""

    document: str  # of config/: the name of its file; "" for segments
    file: str  # where it lies: a file or a folder, relative to the store
    instead: str  # what the broker reads, which lacks it
    setting: str  # why, in words: a line of broker.conf, or one that is not in it
    holds: str  # in words: "the offsets of 8 groups"
    start: str  # how the broker starts, a clause
    # The remedy: a file or folder and its copy, relative to the store; None: other settings.
    copy: tuple[str, str] | None = None

    @property
    def remedy(self) -> str:
        """What to do before a start, a clause."""
        if self.copy is not None:
            return f"copy {self.copy[0]} to {self.copy[1]} before the start"
        return f"start the broker with the settings that wrote {self.file}"

    def __str__(self) -> str:
        """Return what a start makes of it, in a sentence."""
        return (
            f"{self.setting}: the broker reads {self.instead}, not {self.file}, which has {self.holds}: "
            f"it starts {self.start}"
        )


class _Keeping(NamedTuple):
    """What broker.conf says of where things are kept, as one release understands it."""

    light: bool
    rocksdb: bool
    single: bool
    v2: bool
    merges: bool


def unread_by_writer(store: Store) -> list[Unread]:
    """Return what the broker that broker.conf describes does not read, by the youngest release that may have written.

    :raises Unreadable: a file cannot be read.
    """
    if not store.has_conf:
        return []
    return unread(store, rules_of_start(estimate_version(store, last_places(store, []), None).high))


def unread(store: Store, rules: Rules) -> list[Unread]:
    """Return what the broker that broker.conf describes does not read; nothing without a broker.conf.

    :raises Unreadable: a file cannot be read.
    """
    return [*_unread_config(store, rules), *unread_log(store)] if store.has_conf else []


def unread_log(store: Store) -> Iterator[Unread]:
    """Yield the folders of a plain log that are not read, and hold segments that those that are read lack."""
    folders = [folder.path for folder in named_folders(store.settings)]
    for oddity in store.of_broker("not_read"):
        if oddity.place == (LOG,) and (alone := segments_in(store, oddity)):
            some = ", ".join(group_digits(segment.base) for segment in alone[:_LISTED])
            more = f" and {len(alone) - _LISTED} more" if len(alone) > _LISTED else ""
            yield Unread(
                "",
                oddity.name,
                " and ".join(folders),
                "storePathCommitLog does not name it",
                f"the {'segment' if len(alone) == 1 else 'segments'} at {some}{more}",
                f"without {'it' if len(alone) == 1 else 'them'}",
                (f"{oddity.name}/*", folders[0]),
            )


def segments_in(store: Store, oddity: Oddity) -> list[Segment]:
    """Return the files of a folder that is not read as segments by base, where the log has none of that base."""
    bases = {segment.base for segment in store.segments}
    files = (file for file in store.of_kind("other") if file.name.rpartition("/")[0] == oddity.name)
    named = ((file, file.name.rpartition("/")[2]) for file in files if file.size)
    found = [
        Segment(file.path, file.name, file.size, "segment", int(name))
        for file, name in named
        if len(name) == _DIGITS and name.isascii() and name.isdecimal() and int(name) <= LAST_BASE
    ]
    return sorted((one for one in found if one.base not in bases), key=attrgetter("base"))


def _unread_config(store: Store, rules: Rules) -> Iterator[Unread]:
    keeping = _keeping(store.settings, rules)
    for document in (TOPICS, GROUPS, OFFSETS):
        read = list(_places_read(document, keeping))
        others = [place for place in _places(document) if place not in read and _is_there(store, document, place)]
        if not others:
            continue
        known: dict[object, int] = {}
        for place in read:
            known |= _entries(store, document, place)
        for place in others:
            missing = _missing(_entries(store, document, place), known)
            if missing:
                yield _told(document, place, read, missing, known, keeping, store, rules)
                break


def _keeping(conf: Mapping[str, str], rules: Rules) -> _Keeping:
    rocksdb = conf.get("storeType", "").lower() == "defaultrocksdb" and rules.rocksdb_config != "absent"
    return _Keeping(
        light=_is_on(conf, "enableLmq") and rules.light_queues,
        rocksdb=rocksdb,
        single=rocksdb and rules.single_rocksdb and _is_on(conf, "useSingleRocksDBForAllConfigs"),
        v2=conf.get("configManagerVersion", "").lower() == "v2" and rules.config_v2,
        merges=rules.rocksdb_config == "merged",
    )


def _is_on(conf: Mapping[str, str], name: str) -> bool:
    return conf.get(name, "").lower() == "true"


def _places_read(document: str, keeping: _Keeping) -> Iterator[str]:
    """Yield the places of a document that are read: the name of a file, or of a database's folder."""
    if keeping.v2:
        yield _V2
        return
    if not keeping.rocksdb:
        yield LIGHT_OFFSETS if document == OFFSETS and keeping.light else document
        return
    if keeping.single:
        yield _SINGLE
    yield _DATABASES[document]
    if keeping.merges:
        yield document


def _places(document: str) -> tuple[str, ...]:
    light = (LIGHT_OFFSETS,) if document == OFFSETS else ()
    return (document, *light, _DATABASES[document], _SINGLE, _V2)


def _is_there(store: Store, document: str, place: str) -> bool:
    if place in _FOLDERS:
        return (place, document) in store.unpacked_config
    return any(name in store.config_files for name in (place, f"{place}.bak"))


def _entries(store: Store, document: str, place: str) -> dict[object, int]:
    """Return what a place holds of a document; nothing where it is not there, or cannot be read."""
    files = (
        [store.unpacked_config.get((place, document))]
        if place in _FOLDERS
        else [store.config_files.get(place), store.config_files.get(f"{place}.bak")]
    )
    for file in files:
        if file is not None and file.size <= store.max_config and (read := _read(file, document, store)).source:
            return _of(read, document)
    return {}


def _read(file: StoreFile, document: str, store: Store) -> ConfigDocument:
    return read_copy(file, document, store.max_config)


def _of(read: ConfigDocument, document: str) -> dict[object, int]:
    if document == OFFSETS:
        return {(one.group, one.topic, one.queue_id): one.offset for one in consumer_offsets_of(read, [])}
    is_own = is_own_topic if document == TOPICS else is_system_group
    return {name: 0 for name in read.table(_TABLES[document]) if not is_own(name)}


def _missing(held: Mapping[object, int], known: Mapping[object, int]) -> list[object]:
    """Return what a place holds that others lack, or have older."""
    return [name for name, offset in held.items() if offset > known.get(name, -1)]


def _told(
    document: str,
    place: str,
    read: list[str],
    missing: list[object],
    known: Mapping[object, int],
    keeping: _Keeping,
    store: Store,
    rules: Rules,
) -> Unread:
    """Return what is said of the entries of one place that a start is without."""
    older = [name for name in missing if name in known]
    if document == OFFSETS:
        groups = {name[0] for name in missing if isinstance(name, tuple)}
        holds = f"{'newer' if older else 'the'} offsets of {count(len(groups), 'group')}"
    else:
        holds = count(len(missing), "topic" if document == TOPICS else "consumer group")
    start = _WITHOUT[document]
    if older:
        start = "with older consumer offsets: these groups get messages again"
    elif known:
        start = f"without {holds}"
    pair = place in (OFFSETS, LIGHT_OFFSETS) and read[0] in (OFFSETS, LIGHT_OFFSETS)
    name = place if place in store.config_files else f"{place}.bak"
    return Unread(
        document,
        f"config/{place if place in _FOLDERS else name}",
        " and ".join(f"config/{one}" for one in read),
        _setting(place, keeping, store.settings, rules),
        holds,
        start,
        (f"config/{name}", f"config/{read[0]}") if pair else None,
    )


def _setting(place: str, keeping: _Keeping, conf: Mapping[str, str], rules: Rules) -> str:
    """Return why a place is not read."""
    if keeping.v2:
        return "configManagerVersion=v2"
    if keeping.rocksdb and place not in (_SINGLE, _V2):
        return "storeType=defaultRocksDB"
    if place in (OFFSETS, LIGHT_OFFSETS):
        unknown = _is_on(conf, "enableLmq") and not rules.light_queues
        off = "this release does not know enableLmq" if unknown else "enableLmq is not on"
        return "enableLmq=true" if keeping.light else off
    if place == _SINGLE:
        return "useSingleRocksDBForAllConfigs is not on"
    if place == _V2:
        return "configManagerVersion is not v2"
    return "storeType is not defaultRocksDB"
