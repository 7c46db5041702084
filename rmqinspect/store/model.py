"""A store and its files, as data; nothing here touches the file system."""

from bisect import bisect_right
from collections.abc import Mapping
from functools import cached_property
from itertools import accumulate
from operator import eq
from typing import NamedTuple

from msgspec import Struct, field

from rmqinspect import notebook
from rmqinspect.schemas.dledger import EntryHead

Place = tuple[str, ...]  # path components below a store's root; () is the root

# Offsets are Java longs; leaves room for a file's own bytes.
LAST_BASE = 2**63 - 2**40

IMAGE = "image"
"""The kind of a file that is no part of a store, and may hold records anywhere."""


class _Remedied(Struct, frozen=True, kw_only=True):
    """How a file would be with a remedy that a forecast walks."""

    length: int | None = None  # cut, or filled with zeros, to so many bytes; None: as it is
    set_back: tuple[tuple[int, int], ...] = ()  # some bytes set back: (position, value)


class StoreFile(_Remedied, frozen=True):
    """One regular file of the evidence."""

    path: str  # real path or URI, where it is opened
    name: str  # shown to people: relative to the given path, with "/"
    size: int  # bytes, when the store was listed
    kind: str  # a kind of directory.PLACES, or "other"


class Segment(StoreFile, frozen=True):
    """A commit-log file; of kind "dledger" when each record sits behind a DLedger entry head."""

    base: int  # physical offset of its first byte

    @property
    def end(self) -> int:
        """Physical offset just past its last byte."""
        return self.base + self.size

    @property
    def lead(self) -> int:
        """Bytes in front of each record: the size of a DLedger entry head, else 0."""
        return EntryHead.sizeof() if self.kind == "dledger" else 0


class Fragment(Struct, frozen=True):
    """Bytes of a segment, as they stand in an image."""

    start: int  # in the segment
    size: int
    image: StoreFile
    position: int  # in the image


class CarvedSegment(Segment, frozen=True, kw_only=True):
    """A segment that is no file: fragments of images, ascending and apart, and zeros between them.

    Its path is that of no file, and no other segment's.
    """

    fragments: tuple[Fragment, ...] = ()


class NotedEnds(Struct, frozen=True):
    """Where a queue in RocksDB begins and ends, as the broker has noted it."""

    min_offset: int | None  # None: as its units say
    max_offset: int
    last_physical_offset: int | None = None  # known where the units were not read


class QueueFile(StoreFile, frozen=True):
    """A consume-queue, batch-queue or ext-queue file."""

    topic: str
    queue_id: int
    base: int  # byte offset in the queue, from the file name
    noted: NotedEnds | None = None  # of a queue in RocksDB, which was unpacked into this file


class Folder(NamedTuple):
    """A path that was listed: a store's root, a part of one, or a folder of the log that broker.conf names."""

    real: str  # real path or URI; of a file, too
    place: Place
    shown: str  # prefix of the names of its files


class Oddity(Struct, frozen=True):
    """A directory entry that does not fit its place in the store."""

    # stray, directory, link, special, unreadable, rocksdb (a database that was not asked for), absent (a folder that
    # broker.conf names), not_read (by the broker that broker.conf describes)
    kind: str
    name: str
    detail: str
    path: str
    place: Place

    @property
    def is_unread(self) -> bool:
        """Whether it may hide files that were therefore not read."""
        return self.kind in ("unreadable", "link", "special", "absent")


MAX_CONFIG_SIZE = 13 << 20
"""Bytes of the largest configuration file that is read, unless `--max-config` says another size: parsed as a whole, it
takes ten times its size in memory."""


class Store(Struct, frozen=True, dict=True):
    """The files of one store, or of loose parts of one.

    >>> import rmqinspect
    >>> store = rmqinspect.open_store("samples/healthy-4.9.7")
    >>> store.given, store.log_start, store.segments[-1].name
    ('store', 0, 'commitlog/00000000000000196608')
    >>> sorted({queue.topic for queue in store.queue_files})[:2]
    ['%RETRY%groupX', 'BatchTopic']
    """

    name: str
    paths: tuple[str, ...]
    given: str  # what was given: "store", or the kind of its first loose part
    files: tuple[StoreFile, ...]
    segments: tuple[Segment, ...]  # by base; of one base those with most in them first
    segment_size: int | None
    queue_files: tuple[QueueFile, ...]
    index_files: tuple[StoreFile, ...]
    checkpoint: StoreFile | None
    config_files: Mapping[str, StoreFile]
    oddities: tuple[Oddity, ...]
    queue_folders: frozenset[Place] = frozenset()  # (consumequeue, topic, name), of empty folders, too
    settings: Mapping[str, str] = field(default_factory=dict)
    has_conf: bool = False  # the settings are those of a broker.conf: what it does not say is the broker's default
    remarks: tuple[str, ...] = ()  # inferred values, for people
    unpacked: frozenset[Place] = frozenset()  # folders of the RocksDB databases that were unpacked
    # (folder's last name, name of the file) -> what was unpacked from RocksDB, but queues
    unpacked_config: Mapping[tuple[str, str], StoreFile] = field(default_factory=dict)
    max_config: int = MAX_CONFIG_SIZE  # bytes; larger configuration files are not read
    folders: tuple[Folder, ...] = ()  # that were listed, in the order of `paths`
    words: tuple[str, ...] = ()  # what names it in a command: paths as they were given, `--config` and its like
    neighbours: bool = True  # False for loose files: absent files were not given, rather than lost

    def of_kind(self, kind: str) -> list[StoreFile]:
        """Return the files of one kind, in listing order."""
        return [file for file in self.files if file.kind == kind]

    @cached_property
    def unread_entries(self) -> tuple[Oddity, ...]:
        """Entries that may hide files and are none themselves: a file that cannot be opened is in `unopened`."""
        return tuple(oddity for oddity in self.oddities if oddity.is_unread and oddity.path not in self.unopened)

    @cached_property
    def unopened(self) -> frozenset[str]:
        """The paths of files that were listed, but not opened: their sizes are guessed."""
        paths = {file.path for file in self.files}
        return frozenset(oddity.path for oddity in self.oddities if oddity.is_unread and oddity.path in paths)

    @property
    def hides_log(self) -> bool:
        """Whether a folder of the commit log could not be listed: nothing that needs the log can be judged."""
        return self.hidden_log is not None

    @property
    def hidden_log(self) -> Oddity | None:
        """The first folder of the commit log that could not be listed, None if all were."""
        return next((oddity for oddity in self.unread_entries if _is_log(oddity.place)), None)

    def of_broker(self, kind: str) -> list[Oddity]:
        """Return what broker.conf says of folders: those that are `absent`, or `not_read`."""
        return [oddity for oddity in self.oddities if oddity.kind == kind]

    def lies_in_log(self, file: StoreFile) -> bool:
        """Whether a file lies in a folder of the plain log, whatever its name."""
        return file.path in self._in_log

    @cached_property
    def _in_log(self) -> frozenset[str]:
        strays = (oddity.path for oddity in self.oddities if len(oddity.place) == 2 and oddity.place[0] == "commitlog")
        return frozenset((*(one.path for one in self.segments if one.kind == "segment"), *strays))

    def has_folder(self, *place: str) -> bool:
        """Whether a folder lies in the place of a file."""
        return any(oddity.kind == "directory" and oddity.place == place for oddity in self.oddities)

    def has_file(self, name: str) -> bool:
        """Whether a regular file lies at a place, such as that of a folder."""
        return any(file.name == name for file in self.files)

    def hides_queue(self, topic: str, queue_id: int) -> bool:
        """Whether files of a queue could not be listed or opened."""
        return any(self.hides(folder, topic, str(queue_id)) for folder in ("consumequeue", "batchconsumequeue"))

    def hides(self, *place: str) -> bool:
        """Whether files at a place, below it, or of a folder around it could not be read."""
        return any(all(map(eq, hidden, place)) for hidden in self._unread_places)

    @property
    def log_start(self) -> int:
        """Physical offset of the first byte of the log; 0 without segments."""
        return self.segments[0].base if self.segments else 0

    @cached_property
    def log_files(self) -> tuple[Segment, ...]:
        """The segments that the log is read from: of several with one base the first, which has most in it."""
        by_base: dict[int, Segment] = {}
        for segment in self.segments:
            by_base.setdefault(segment.base, segment)
        return tuple(by_base.values())

    @cached_property
    def doubles(self) -> tuple[Segment, ...]:
        """The segments that the log is not read from: another one has their base."""
        read = {segment.path for segment in self.log_files}
        return tuple(segment for segment in self.segments if segment.path not in read)

    def segment_at(self, physical_offset: int) -> Segment | None:
        """Return the segment that holds the byte at a physical offset, None where no segment does.

        Segments overlap where one is longer than the distance to the next base; the first one counts.
        """
        number = bisect_right(self._reaches, physical_offset)
        if number == len(self.segments) or physical_offset < self.segments[number].base:
            return None
        return self.segments[number]

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        last = self.segments[-1] if self.segments else None
        log = f"{self.log_start} to {last.end}" if last else None
        queues = {(queue.topic, queue.queue_id) for queue in self.queue_files}
        fields: tuple[tuple[str, object], ...] = (
            ("path", ", ".join(self.paths)),
            ("given", self.given.replace("_", " ")),
            ("segments", len(self.segments)),
            ("physical offsets", log),
            ("topics with queues", len({topic for topic, _ in queues})),
            ("queues", len(queues)),
            ("index files", len(self.index_files)),
            ("configuration files", len(self.config_files)),
            ("remarks", "; ".join(self.remarks)),
            ("out of place", "; ".join(f"{odd.name}: {odd.detail}" for odd in self.oddities)),
        )
        return notebook.heading(self.name) + notebook.labelled(fields)

    @cached_property
    def _unread_places(self) -> tuple[Place, ...]:
        return tuple(oddity.place for oddity in self.oddities if oddity.is_unread)

    @cached_property
    def _reaches(self) -> list[int]:
        """For each segment, the highest end of it and all before it: ascending even where segments overlap."""
        return list(accumulate((segment.end for segment in self.segments), max))


def _is_log(place: Place) -> bool:
    """Whether a place is that of a folder with segments, or of one around it."""
    return place in ((), ("commitlog",)) or (place[0].startswith("dledger-") and place[1:] in ((), ("data",)))
