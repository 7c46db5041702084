"""The stores of an export: which are opened here, side by side if they are many, and which by their tasks.

given words -> small ones of many: a name and a path
            -> with Spark all others of many, or on object storage: planned by a job of a task a store
            -> the others: opened and surveyed, in processes, or in threads that wait for object storage
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import click
from msgspec.structs import replace

from rmqinspect.cli.options import Opening, count_jobs, given_stores, open_named
from rmqinspect.cli.verbs.export import ExportArguments
from rmqinspect.errors import NotAStore, RmqinspectError, Unreachable, Unreadable
from rmqinspect.system.uri import is_remote, local_path
from rmqinspect.text import escape

if TYPE_CHECKING:
    from rmqinspect.export.apart import StoreToPlan
    from rmqinspect.export.manifest import SkippedStore
    from rmqinspect.export.plan import HowToRead, StoreSurvey
    from rmqinspect.export.request import ExportRequest
    from rmqinspect.export.shared import SmallStore
    from rmqinspect.store.model import Store


class Opened(NamedTuple):
    """A store as it was opened; with its survey, if that was made in the same go."""

    store: "Store"
    survey: "StoreSurvey | None" = None


class Readable:
    """The stores that can be read: another one ends the export, or with --skip-unreadable is left out and noted."""

    def __init__(self, *, skips: bool) -> None:
        self._skips = skips
        self.skipped: list[SkippedStore] = []

    @contextmanager
    def or_skipped(self, name: str, paths: Sequence[str]) -> Iterator[None]:
        """Note the store if the block cannot read it.

        :raises RmqinspectError: it cannot, and such stores are not left out.
        """
        from rmqinspect.export.manifest import SkippedStore

        try:
            yield
        except (NotAStore, Unreadable, Unreachable) as error:
            if not self._skips:
                raise
            self.skipped.append(SkippedStore(name, tuple(paths), str(error)))
            click.echo(escape(f"rmqinspect: {error}; skipped"), err=True)


def find_small_stores(arguments: ExportArguments, request: "ExportRequest") -> "dict[str, SmallStore]":
    """Return the stores that need not be opened here, by name: small ones of many."""
    if request.closed_only or not _may_be_opened_by_tasks(arguments, request):
        return {}
    from rmqinspect.export.shared import find_small

    return find_small(names_and_paths(arguments), request.file_size)


def find_apart(
    arguments: ExportArguments, request: "ExportRequest", small: "Collection[str]", how: "HowToRead"
) -> "list[StoreToPlan]":
    """Return the stores that tasks of Spark plan: all of many, or of several remote ones, but the small."""
    if arguments.engine != "spark" or not _may_be_opened_by_tasks(arguments, request):
        return []
    from rmqinspect.export.apart import StoreToPlan

    return [StoreToPlan(name, path, how) for name, path in names_and_paths(arguments) if name not in small]


def _may_be_opened_by_tasks(arguments: ExportArguments, request: "ExportRequest") -> bool:
    """Whether all that a store's rows depend on is known without the others, and without what this process knows.

    What an earlier run has of a store, what a group or a start makes of it, and times that count from its last record,
    are known here only.
    """
    selection = request.selection
    asks_stores = selection.unconsumed is not None or selection.lost_at_start is not None
    from_last = any(text.startswith("last") for _, text in request.relative)
    goes_on = arguments.incremental or arguments.resume
    elsewhere = arguments.config is not None or arguments.base is not None
    return not (asks_stores or from_last or goes_on or elsewhere)


def names_and_paths(arguments: ExportArguments) -> list[tuple[str, str]]:
    """Return name and path of each store; none if some are parts of one store."""
    from rmqinspect.store.log_size import FEW

    if len(arguments.paths) <= FEW and not (arguments.paths[1:] and any(map(is_remote, arguments.paths))):
        return []
    given = given_stores(arguments)
    alone = len(given) == len(arguments.paths)
    return [(str(one.name), local_path(one.paths[0])) for one in given] if alone else []


def open_others(arguments: ExportArguments, readable: Readable, by_tasks: "Collection[str]") -> list[Opened]:
    """Open the stores that tasks do not open; many of them side by side, and surveyed.

    :raises NotAStore, Unreadable, Unreachable: one cannot be opened, and such stores are not left out.
    """
    named = [one for one in names_and_paths(arguments) if one[0] not in by_tasks]
    elsewhere = arguments.config is not None or arguments.base is not None
    if not by_tasks and (not named or elsewhere):
        return [Opened(store) for store in _open_in_turn(arguments, readable)]
    found: list[Opened] = []
    for (name, path), opened in zip(named, _side_by_side(arguments, named), strict=True):
        with readable.or_skipped(name, [path]):
            if isinstance(opened, RmqinspectError):
                raise opened
            found.append(opened)
    return found


def _open_in_turn(arguments: ExportArguments, readable: Readable) -> "list[Store]":
    if not arguments.skip_unreadable:
        return open_named(arguments)
    stores = []
    for given in given_stores(arguments):
        with readable.or_skipped(given.name or " ".join(given.words), given.paths):
            stores.append(given.open(**arguments.opening))
    return stores


def _side_by_side(arguments: ExportArguments, named: Sequence[tuple[str, str]]) -> list[Opened | RmqinspectError]:
    """Open and survey stores; return them, or why one cannot be, in their order.

    Processes for local ones: most of it is Python. Threads for those that wait for object storage, whose connections do
    not survive a fork.
    """
    from rmqinspect.fleet.run import Failed, Finished, side_by_side
    from rmqinspect.store.log_size import in_threads
    from rmqinspect.system.filesystem import evidence
    from rmqinspect.system.uri import realpath

    opening = partial(_open_and_survey, opening=arguments.opening)
    if any(is_remote(path) for path in (arguments.output, *(path for _, path in named))):
        return in_threads(opening, named)
    evidence.update(realpath(path) for _, path in named)
    found: dict[int, Opened | RmqinspectError] = {}
    with closing(side_by_side(opening, named, count_jobs(arguments))) as events:
        for event in events:
            if isinstance(event, Finished):
                found[event.number] = event.result
            elif isinstance(event, Failed):
                if event.cause is None:
                    raise RuntimeError(event.text)
                found[event.number] = event.cause(event.text)
    return [found[number] for number in range(len(named))]


def _open_and_survey(named: tuple[str, str], opening: Opening) -> Opened | RmqinspectError:
    from rmqinspect.export.plan import survey_store
    from rmqinspect.store.discover import open_store

    name, path = named
    try:
        store = replace(open_store([path], **opening), name=name)
        return Opened(store, survey_store(store))
    except (NotAStore, Unreadable, Unreachable) as error:
        return error
