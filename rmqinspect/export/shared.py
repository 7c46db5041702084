"""Small stores of many: everything of each, from opening it to its entry in the manifest, is the work of one task.

                 few stores, large ones                    small ones of many
    driver       opens, surveys, plans: a list of parts    looks how large the log is: a name and a path of each
    a task       writes one part                           does all that for some stores, one after the other
    driver       adds the parts up, makes the tables       gets the finished entries

Invariants:
- The files and the manifest's entries are those of a store that the driver plans: the same code writes both.
- A task knows nothing of the others. It may run twice, as any part.
- A store that cannot be opened or planned is a result where such stores are left out; else it ends the export.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from msgspec import Struct, field
from msgspec.structs import replace

from rmqinspect.errors import NotAStore, NotInstalled, Unreachable, Unreadable
from rmqinspect.export.manifest import ExportedFile, ExportedStore, SkippedStore
from rmqinspect.export.part import ExportSpec
from rmqinspect.export.plan import HowToRead, StorePlan, plan_store, survey_store
from rmqinspect.rocksdb.unpack import INSTALL, has_rocksdict, unpacked, with_unread_databases
from rmqinspect.store.discover import open_store
from rmqinspect.store.log_size import FEW, OPENING, SMALL, in_threads, log_size
from rmqinspect.store.model import Store
from rmqinspect.store.reader import lock_holder
from rmqinspect.system.filesystem import evidence
from rmqinspect.system.uri import abspath, is_remote, realpath, shown
from rmqinspect.tables.sources import scans_log


class SmallStore(Struct, frozen=True):
    """A store that only its task opens."""

    name: str
    path: str  # as given
    size: int  # bytes of its log


class StoresPart(Struct, frozen=True):
    """Everything of some small stores."""

    stores: tuple[SmallStore, ...]
    how: HowToRead

    @property
    def size(self) -> int:
        """Bytes of log to read."""
        return sum(store.size for store in self.stores)


class FinishedStore(Struct):
    """What became of one small store: its files, under the names they were written, and its entry."""

    name: str
    entry: ExportedStore
    files: list[ExportedFile]
    names: dict[str, str]  # name of each file → name it was written under
    findings: Mapping[str, int] | None = None  # by severity
    first_bad: dict[str, int] = field(default_factory=dict)  # status → physical offset of its first row
    topics: set[str] = field(default_factory=set)  # seen by a topic filter
    remarks: list[str] = field(default_factory=list)  # for people
    holder: int | None = None  # pid of the broker that runs on it

    @property
    def unread(self) -> list[str]:
        """What could not be read."""
        return self.entry.unread


class StoresRead(Struct):
    """The result of a part of small stores."""

    part: StoresPart
    stores: list[FinishedStore] = field(default_factory=list)
    skipped: list[SkippedStore] = field(default_factory=list)


def find_small(paths: Sequence[tuple[str, str]], limit: int) -> dict[str, SmallStore]:
    """Return the stores that tasks open, by name: of more than a few those whose log has at most `limit` bytes.

    `paths` are names and paths. Whatever has no log that can be seen is left to the driver, which says why.
    """
    if len(paths) <= FEW:
        return {}
    evidence.update(realpath(path) for _, path in paths if not is_remote(path))
    sizes = in_threads(lambda named: log_size(named[1]), paths)
    limit = min(limit, SMALL)
    return {
        name: SmallStore(name, path, size)
        for (name, path), size in zip(paths, sizes, strict=True)
        if size is not None and size <= limit
    }


def share(stores: Sequence[SmallStore], how: HowToRead) -> Iterator[StoresPart]:
    """Yield parts of several stores, each about as much work as one part of a large store."""
    together: list[SmallStore] = []
    room = SMALL
    for store in stores:
        cost = OPENING + store.size
        if together and cost > room:
            yield StoresPart(tuple(together), how)
            together, room = [], SMALL
        together.append(store)
        room -= cost
    if together:
        yield StoresPart(tuple(together), how)


def notes_of(paths: Sequence[str], releases: Sequence[str]) -> dict[str, str]:
    """Return the metadata of a store's files."""
    return {"store_paths": " ".join(map(shown, paths)), "broker_versions": " ".join(releases)}


def write_stores(
    part: StoresPart, spec: ExportSpec, finish: Callable[[StorePlan, ExportSpec], FinishedStore]
) -> StoresRead:
    """Open, plan and export each store of a part; `finish` exports what is planned.

    :raises Refused: a file cannot be written.
    :raises NotAStore, Unreadable, Unreachable: a store cannot be read, and such stores are not left out.
    """
    result, how = StoresRead(part), part.how
    for small in part.stores:
        is_planned = False
        try:
            with open_in_task(small.name, small.path, how) as (listed, store):
                plan = plan_store(store, survey_store(store), spec.request, unpacking=how.unpacking)
                plan.paths = (small.path,)
                is_planned = True
                notes = {small.name: notes_of(plan.paths, plan.releases)}
                selection = dataclasses.replace(how.selection, topics_seen=set())
                done = finish(plan, replace(spec, notes=notes, selections={small.name: selection}, resumes=False))
                done.remarks = remarks_on(listed, store, spec, verbose=how.verbose)
                done.holder = lock_holder(store)
                result.stores.append(done)
        except (NotAStore, Unreadable, Unreachable) as error:
            if is_planned or not how.skips:
                raise
            result.skipped.append(SkippedStore(small.name, (small.path,), str(error)))
    return result


@contextmanager
def open_in_task(name: str, path: str, how: HowToRead) -> Iterator[tuple[Store, Store]]:
    """Give a store without and with what its databases hold, until the block ends.

    :raises NotAStore, Unreadable, Unreachable: it cannot be opened.
    :raises NotInstalled: the driver can read its databases, and this process cannot.
    """
    # The path for a process that works in another folder.
    listed = replace(open_store([abspath(path)], max_config=how.max_config), name=name)
    _expect_reader(listed, how)
    with unpacked(listed, how.unpacking, how.databases) as store:
        yield listed, store


def without_log(store: Store, tables: Sequence[str]) -> list[str]:
    """Return what to say of the tables that a store without a segment has no rows of."""
    empty = [table for table in tables if scans_log(table)] if not store.segments else []
    return [f"{store.name}: no commit log segments: no rows of {', '.join(empty)}"] if empty else []


def remarks_on(listed: Store, store: Store, spec: ExportSpec, *, verbose: bool) -> list[str]:
    """Return what is said of a store to people: with `verbose` also what was inferred."""
    of_databases = [f"{store.name}: {remark}" for remark in store.remarks[len(listed.remarks) :]]
    return [*(store.remarks if verbose else of_databases), *without_log(store, spec.request.tables)]


def _expect_reader(store: Store, how: HowToRead) -> None:
    """Check that databases which the driver could read can be read here: rows would depend on where a task runs.

    :raises NotInstalled: they cannot.
    """
    lacks = how.reads_rocksdb and not has_rocksdict() and how.unpacking.wanted is not False
    if lacks and with_unread_databases(store, how.unpacking, how.databases) is not store:
        raise NotInstalled(f"{store.name}: RocksDB needs the library rocksdict on all executors: {INSTALL}")
