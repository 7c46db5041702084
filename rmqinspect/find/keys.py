"""Keys and producers' ids to places in the log, by the index.

An entry holds the hash of `topic#key`, so the topic must be known: the one asked for, or all that the store's
files name, and those of some records that the index points at. Every hit is proven in its record, which is read.
Where the index does not speak for a part of the log, that part is read as well.
"""

from collections.abc import Mapping, Sequence

from rmqinspect.codec.hashes import index_hash, index_key
from rmqinspect.config.json_files import read_config
from rmqinspect.find.spans import Log, Way, place_span, whole_log
from rmqinspect.index.geometry import IndexFile
from rmqinspect.index.lookup import Found, Span, look_up, merge, sample_places, uncovered, usable_files
from rmqinspect.store.model import Store
from rmqinspect.text import count, describe_size, group_digits

# The log of a key that the index does not know is read where that takes seconds: a damaged key, or one of a topic
# that no file names any more, is found by reading alone.
CONFIRMED = 1 << 30
_TOLD = 3  # ranges that are listed


def known_topics(store: Store) -> set[str]:
    """Return the topics that the store's files name."""
    topics = {file.topic for file in store.queue_files}
    for name, table in (("topics.json", "topicConfigTable"), ("consumerOffset.json", "offsetTable")):
        document = read_config(store, name)
        for one in () if document is None else (document, *document.other_copies()):
            topics.update(key.partition("@")[0] for key in one.table(table))
    return topics


def by_index(store: Store, topics: Sequence[str] | None, keys: Mapping[str, Sequence[str]]) -> Way:
    """Return how to find the records with one of some keys; each may be written in several ways.

    `topics` are those asked for, None for all.
    """
    whole, found = whole_log(store), entries_of(store, topics, keys)
    spans: list[Span] = []
    for places in found.places.values():
        hits = [place_span(store, place) for place in places if whole[0] <= place < whole[1]]
        spans += hits if hits or whole[1] - whole[0] > CONFIRMED else [whole]
    spans = merge([*spans, *uncovered(found.covered, whole)])
    told = _tell(store, found, [whole] if spans == [whole] else uncovered(found.covered, whole), whole)
    return Way(_name(spans, whole, found), spans, _describe(spans, whole, found), told=told)


def entries_of(store: Store, topics: Sequence[str] | None, keys: Mapping[str, Sequence[str]]) -> Found:
    """Return what the index knows about some keys, each of which may be written in several ways."""
    files = usable_files(store)
    with Log(store) as log:
        searched = set(topics) if topics is not None else known_topics(store) | topics_met(files, log)
        return look_up(
            files,
            {key: [index_hash(index_key(topic, one)) for topic in searched for one in keys[key]] for key in keys},
            log.follows,
        )


def topics_met(files: Sequence[IndexFile], log: Log) -> set[str]:
    """Return the topics of records all over the index: those of a topic that was deleted are still in the log."""
    identities = (log.identity_at(place) for place in sample_places(files))
    return {identity.topic for identity in identities if identity is not None}


def _tell(store: Store, found: Found, scanned: Sequence[Span], whole: Span) -> str:
    """Return what the index had to say, its files and candidates, and which ranges of the log were scanned."""
    told = _tell_files(store, found)
    if not scanned:
        return told
    ranges = ", ".join(f"{group_digits(start)} to {group_digits(end)}" for start, end in scanned[:_TOLD])
    more = f" and {count(len(scanned) - _TOLD, 'more range')}" if len(scanned) > _TOLD else ""
    why = "" if list(scanned) == [whole] else ", for they do not cover it"
    return f"{told}; scanned{why}: physical {ranges}{more}"


def _tell_files(store: Store, found: Found) -> str:
    if not found.files:
        files = count(len(store.index_files), "index file")
        return f"none of {files} is usable" if store.index_files else "no index files"
    places = {place for places in found.places.values() for place in places}
    usable = f" of {group_digits(len(store.index_files))}" if found.files < len(store.index_files) else ""
    told = f"{group_digits(found.files)}{usable} index files" if usable else count(found.files, "index file")
    return f"{told}, {count(len(places), 'candidate')}"


def _name(spans: Sequence[Span], whole: Span, found: Found) -> str:
    if not found.files:
        return "by a scan, for there is no usable index"
    return "by a scan, for the index has no such key" if list(spans) == [whole] else "by the index"


def _describe(spans: Sequence[Span], whole: Span, found: Found) -> str:
    """Return where was searched, for a question without a hit."""
    if list(spans) == [whole]:
        return "the whole log"
    read = describe_size(sum(end - start for start, end in spans))
    return f"{count(found.files, 'index file')}, and the {read} of the log that they do not cover"
