"""What a start does to the index files: load, deletion after an unclean exit, and the entries of dispatched records.

    index/20240520163015123    loaded, in the order of the names
          20240520170000456    end time > checkpoint's index time, unclean exit: deleted
          .DS_Store            no number: skipped
          1/                   a folder whose name is a number: loading stops, or it is refused   rule index_folder

A dispatched record, whatever its keys, makes a new file where there is none or the last one is full; its name is the
time of the start. Records in front of the last file's end offset give no entries. Files are never cut.

Source: IndexService#load, #buildIndex, #putKey, #getAndCreateLastIndexFile, IndexFile#putKey, IndexHeader#load;
RocketMQ 4.0.0 to 5.5.0.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
from msgspec import Struct, field

from rmqinspect.broker.start_rules import Rules
from rmqinspect.codec.arrays import Ints
from rmqinspect.codec.java import java_number
from rmqinspect.codec.layout import dtype_of
from rmqinspect.errors import Unreadable
from rmqinspect.forecast.batch import Batch
from rmqinspect.forecast.outcome import Decision, Refusal, note_unread
from rmqinspect.forecast.settings import Settings
from rmqinspect.index.geometry import Geometry, read_entries
from rmqinspect.loops.pointer_rows import END_PLACE, END_TIME, USED_SLOTS
from rmqinspect.loops.pointers import count_keys
from rmqinspect.schemas.index import IndexHeader
from rmqinspect.store.model import Store, StoreFile
from rmqinspect.store.reader import open_file
from rmqinspect.text import count

_HEADER_SIZE: int = IndexHeader.sizeof()
_WINDOW = 1 << 16  # entries read at a time

INDEX_IS_FILE = (
    "index is a file, so that no index file can be made for new messages (IllegalMonitorStateException): move it to a "
    "place outside of the store"
)


class Header(NamedTuple):
    """The values of an index file that a start reads and changes."""

    name: str  # of the file; empty for one that the start makes
    begin_timestamp: int  # ms
    end_timestamp: int
    begin_physical_offset: int
    end_physical_offset: int
    index_count: int  # next free entry; the first is 1

    @classmethod
    def of(cls, name: str, state: Ints) -> "Header":
        """Return the header that `count_keys` left."""
        return cls(name, *np.delete(state, USED_SLOTS).tolist())

    def state(self) -> Ints:
        """Return the values as `count_keys` takes them: a forecast counts no slots."""
        return np.insert(np.array(self[1:], np.int64), USED_SLOTS, 0)


class IndexState(Struct):
    """The index files of a broker that started: change it with `dispatch`."""

    settings: Settings
    tag_keys: bool
    is_file: bool  # the folder of index files is a file: none can be made
    loaded: list[tuple[StoreFile, Header]]
    deleted: list[str]  # names relative to the store
    not_loaded: list[str]  # files that stay, though the broker does not know them
    refusal: Refusal | None = None  # recovery still runs in front of it
    unknown: str | None = None
    decisions: list[Decision] = field(default_factory=list)
    made: list[Header] = field(default_factory=list)  # new files that are full
    stuck: Refusal | None = None  # why dispatch fails
    _state: Ints | None = None  # of the last file, loaded or new
    _is_new: bool = False

    def __post_init__(self) -> None:
        if self.loaded:
            self._state = self.loaded[-1][1].state()

    @property
    def new(self) -> int:
        """How many files the start made."""
        return len(self.made) + self._is_new

    @property
    def after(self) -> list[str]:
        """The names of the files that are there now and stay, relative to the store."""
        return [file.name for file, _ in self.loaded] + self.not_loaded

    @property
    def headers(self) -> list[Header]:
        """The headers of the broker's index files, oldest first."""
        known = [header for _, header in self.loaded]
        if self._state is None:
            return known
        name = "" if self._is_new else known.pop().name
        return [*known, *self.made, Header.of(name, self._state)]

    def dispatch(self, batch: Batch) -> None:
        """Put the keys of dispatched records, in log order."""
        records = batch.records
        if len(records) and self._writes():
            places, times = map(np.ascontiguousarray, (records.physical_offset, records.field("store_timestamp")))
            self._put(places, times, batch.index_keys(tags=self.tag_keys))

    def dispatch_unknown(self) -> None:
        """Put what is dispatched for bytes that are no record: no key, but a file, if none has room."""
        if self._writes():
            nothing = np.zeros(1, np.int64)
            self._put(nothing, nothing, nothing)

    def _writes(self) -> bool:
        writes = self.settings.message_index_enable and self.settings.index_file_write_enable
        return writes and not self.unknown and not self.stuck

    def _put(self, places: Ints, times: Ints, keys: Ints) -> None:
        entries = self.settings.max_index_num
        if entries < 2:
            self.unknown = f"maxIndexNum is {entries}: no index file has room for an entry, and dispatch never ends"
            return
        at = 0
        if self._state is None:
            self._make()
        while self._state is not None:
            at = count_keys(entries, self._state, places, times, keys, at)
            if at >> 32 == len(places):
                return
            self._make()

    def _make(self) -> None:
        """Make a new file; its header begins with the end of the full one.

        Where that fails, getAndCreateLastIndexFile unlocks what it has not locked, and throws.
        """
        if self.is_file:
            why = "index is a file, so that no index file can be made: dispatch fails (IllegalMonitorStateException)"
            self.stuck = Refusal.till_moved("index", "file_type", why)
            return
        place = time = 0
        if self._state is not None:
            place, time = max(0, int(self._state[END_PLACE])), max(0, int(self._state[END_TIME]))
            full = Header.of("", self._state)
            if self._is_new:
                self.made.append(full)
            else:
                file, header = self.loaded[-1]
                self.loaded[-1] = file, full._replace(name=header.name)
        self._state, self._is_new = Header("", time, time, place, place, 1).state(), True

    def entries_behind(self, end: int, unread: list[str]) -> int:
        """Return how many entries of files that stay point at or behind the new end of the log.

        Entries ascend: what is older than the first one in front of the end is not read.

        A file that cannot be read any more counts as none, and is noted in `unread`.
        """
        found = 0
        for file, header in reversed(self.loaded):
            if header.end_physical_offset < end:
                break
            try:
                found += _entries_behind(file, self.settings, end)
            except Unreadable as error:
                note_unread(unread, str(error))
        return found


def _entries_behind(file: StoreFile, settings: Settings, end: int) -> int:
    geometry = Geometry(settings.max_hash_slot_num, settings.max_index_num)
    if geometry.size != file.size:
        return 0  # where its entries lie is not known
    found = 0
    with open_file(file) as reader:
        used = min(_read_header(file.name, reader.read(0, _HEADER_SIZE)).index_count, geometry.entries)
        for high in range(used, 1, -_WINDOW):
            low = max(1, high - _WINDOW)
            behind = int(np.count_nonzero(read_entries(reader, geometry, low, high - low)["physical_offset"] >= end))
            found += behind
            if behind < high - low:
                break
    return found


class _Entry(NamedTuple):
    name: str  # in its folder
    shown: str
    file: StoreFile | None  # None: a folder
    header: Header | None
    unread: str = ""


class IndexFiles:
    """The entries of the folder of index files, their headers read once."""

    def __init__(self, settings: Settings, entries: list[_Entry], *, is_file: bool = False) -> None:
        self.settings = settings
        self._is_file = is_file
        self._entries = sorted(entries, key=lambda entry: entry.name.encode("utf-16-be", "surrogatepass"))

    @classmethod
    def read(cls, store: Store, settings: Settings) -> "IndexFiles":
        """Read the header of each file; what cannot be read is noted."""
        files = (_entry(store, file) for file in store.index_files)
        return cls(settings, [*files, *_odd_entries(store)], is_file=store.has_file("index"))

    def load(self, rules: Rules, checkpoint: Mapping[str, int], *, clean: bool) -> IndexState:
        """Return the index files as a start loads them; after an unclean exit it deletes some."""
        limit = checkpoint.get("index_msg_timestamp", 0)
        loaded: list[tuple[StoreFile, Header]] = []
        deleted: list[str] = []
        refusal = unknown = None
        stopped: list[_Entry] = []
        entries = iter([entry for entry in self._entries if java_number(entry.name, 64) is not None])
        for entry in entries:
            if entry.unread:
                unknown = f"{entry.shown}: {entry.unread}"
                stopped = [entry, *entries]
            elif entry.file is None or entry.header is None:
                refusal = _folder_refusal(entry) if rules.index_folder == "refuse" else None
                stopped = [entry, *entries]
            elif not clean and entry.header.end_timestamp > limit:
                deleted.append(entry.shown)
            else:
                loaded.append((entry.file, entry.header))
        text = f"index files: {count(len(loaded), 'file')} loaded, {len(deleted)} deleted"
        inputs = (("exit", "clean" if clean else "unclean"), ("index_msg_timestamp", limit))
        decisions = [Decision("index", text, inputs, "IndexService#load")]
        not_loaded = [entry.shown for entry in stopped if entry.file]
        known = self.settings, rules.tag_keys, self._is_file
        return IndexState(*known, loaded, deleted, not_loaded, refusal, unknown, decisions)


def _folder_refusal(entry: _Entry) -> Refusal:
    why = f"{entry.shown} is a folder, and its name is a number: the broker opens it as an index file"
    return Refusal.till_moved(entry.shown, "index_folder", why)


def _entry(store: Store, file: StoreFile) -> _Entry:
    name = file.name.rpartition("/")[2]
    try:
        if file.path in store.unopened:
            raise Unreadable("the file could not be opened", file.name)
        with open_file(file) as reader:
            return _Entry(name, file.name, file, _read_header(file.name, reader.read(0, _HEADER_SIZE)))
    except Unreadable as error:
        return _Entry(name, file.name, file, None, str(error))


def _odd_entries(store: Store) -> Iterator[_Entry]:
    known = {file.path for file in store.index_files}
    files = {file.path: file for file in store.files} if store.oddities else {}
    for oddity in store.oddities:
        if len(oddity.place) != 2 or oddity.place[0] != "index" or oddity.path in known:
            continue
        if oddity.kind == "directory":
            yield _Entry(oddity.place[-1], oddity.name, None, None)
        elif oddity.kind == "stray" and oddity.path in files:
            yield _entry(store, files[oddity.path])  # "-1" is a number to Java
        else:
            yield _Entry(oddity.place[-1], oddity.name, files.get(oddity.path), None, oddity.detail)


def _read_header(name: str, raw: bytes) -> Header:
    """Read the header of a file as it is once mapped: a shorter file goes on with zeros."""
    values = np.frombuffer(raw.ljust(_HEADER_SIZE, b"\0"), dtype_of(IndexHeader))[0]
    header = Header(name, *(int(values[field]) for field in Header._fields[1:]))
    return header._replace(index_count=max(1, header.index_count))
