"""`--lost-at-start`: the records that the next start of a broker gives up, for the commands that have filters.

options -> the start that is meant -> the walk of each store, told on stderr -> a filter for its rows
"""

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import click

from rmqinspect.cli.options import PATH, ReadingOptions, SourceOptions, count_jobs
from rmqinspect.cli.parameters import option, option_group, release_option
from rmqinspect.cli.terminal import LONG_READ, Progress, least_time
from rmqinspect.commands import quote_path
from rmqinspect.system.uri import shown
from rmqinspect.text import describe_size, group_digits

if TYPE_CHECKING:
    from rmqinspect.forecast.lost_records import LostAtStart
    from rmqinspect.forecast.outcome import InReplica
    from rmqinspect.store.model import Store
    from rmqinspect.tables.filters import Selection
    from rmqinspect.tables.lost_records import AskedStart, LostRecords


NEXT_STARTS = "next_starts"


def exit_option() -> Any:
    """Return the field for how the broker stopped."""
    return option(
        "--exit",
        type=click.Choice(("clean", "unclean")),
        help="Take the last stop for clean or unclean. Default: unclean if the file abort is there.",
    )


def is_clean(word: str | None) -> bool | None:
    """Return what `--exit` says; None: as the file `abort` says."""
    return None if word is None else word == "clean"


@option_group
class LostOptions:
    """What the next start gives up."""

    lost_at_start: bool = option(
        "--lost-at-start",
        is_flag=True,
        help="Records that the next start of the broker gives up, as forecast counts them: to save them before it.",
    )
    broker_version: str | None = release_option()
    exit: str | None = exit_option()
    not_in: str | None = option(
        "--not-in",
        type=PATH,
        metavar="REPLICA",
        help="With --lost-at-start: only records that another store has neither at their place nor by their id.",
    )

    @property
    def asked_start(self) -> "AskedStart | None":
        """The start that is meant; None: any record."""
        from rmqinspect.tables.lost_records import AskedStart

        return AskedStart(self.broker_version, is_clean(self.exit)) if self.lost_at_start else None

    @property
    def start(self) -> "AskedStart":
        """The start that the table `next_starts` is about."""
        from rmqinspect.tables.lost_records import AskedStart

        return AskedStart(self.broker_version, is_clean(self.exit))

    def refuse_unused(self, tables: Collection[str | None] = ()) -> None:
        """Refuse what belongs to `--lost-at-start`, or to one of the tables asked for, without it.

        :raises click.UsageError: it is given.
        """
        starts = self.lost_at_start or NEXT_STARTS in tables
        if (self.broker_version or self.exit) and not starts:
            raise click.UsageError("--broker-version and --exit belong to --lost-at-start, or to --table next_starts.")
        if self.not_in and not self.lost_at_start:
            raise click.UsageError("--not-in belongs to --lost-at-start.")


def save_command(
    source: SourceOptions,
    release: str | None,
    stop: str | None,
    not_in: str | None = None,
) -> str:
    """Return the command that saves what a start gives up, as a shell reads it; None: what `forecast` assumed, too.

    `not_in`: only what the store there has not.
    """
    words = ["rmqinspect", "decode", *map(quote_path, source.words_for(map(shown, source.paths))), "--lost-at-start"]
    words += ["--broker-version", release] if release is not None else []
    words += ["--exit", stop] if stop is not None else []
    words += ["--not-in", quote_path(shown(not_in))] if not_in is not None else []
    return " ".join((*words, *(["-o", "lost.parquet"] if not_in is None else ["-f", "jsonl"])))


def compare_with(
    store: "Store", lost: "LostRecords", path: str, jobs: int, progress: Progress
) -> "tuple[InReplica, LostRecords]":
    """Return what the store at a path has of the lost records of another one, and which it has not.

    :raises NotAStore: nothing of a store is there.
    :raises Unreadable: it cannot be listed.
    """
    from msgspec.structs import replace

    from rmqinspect.forecast.replica import compare_lost
    from rmqinspect.store.discover import open_store

    other = open_store((path,))
    progress.total += sum(segment.size for segment in other.segments)
    return compare_lost(store, lost, replace(other, name=shown(path)), jobs, progress)


def find_lost(
    store: "Store", selection: "Selection", arguments: ReadingOptions
) -> "tuple[Selection, LostAtStart | None]":
    """Return the filters of one store, with what its next start gives up, and how it was told; None: not asked for.

    The start is walked for it, which may read much. The store has what its RocksDB databases hold.

    :raises Unreadable: what a start does cannot be told.
    """
    if selection.lost_at_start is None:
        return selection, None
    from msgspec.structs import replace

    from rmqinspect.forecast.lost_records import lost_at_start, with_lost

    with Progress(0, arguments.progress, quiet=arguments.quiet) as progress:

        def announce(size: int, why: str) -> None:
            if size > max(progress.total, LONG_READ):
                progress.remark(f"up to {describe_size(size)} to read: {why}{least_time(size)}")
            progress.total = max(progress.total, size)

        found = lost_at_start(store, selection.lost_at_start, count_jobs(arguments), progress, announce)
        if isinstance(arguments, LostOptions) and arguments.not_in is not None:
            beside, missing = compare_with(store, found.records, arguments.not_in, count_jobs(arguments), progress)
            told = f"{found.told}; not in {beside.name}: {group_digits(beside.missing)}"
            found = replace(found, records=missing, told=told, unread=(*found.unread, *beside.unread))
    return with_lost(selection, found.records), found
