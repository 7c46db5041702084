"""`--lost-at-start`: the records that the next start of a broker gives up, for the commands that have filters.

options -> the start that is meant -> the walk of each store, told on stderr -> a filter for its rows
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from rmqinspect.cli.options import ReadingOptions, SourceOptions, count_jobs, release_option
from rmqinspect.cli.parameters import option
from rmqinspect.cli.terminal import LONG_READ, Progress, least_time
from rmqinspect.commands import quote_path
from rmqinspect.system.uri import shown
from rmqinspect.text import describe_size

if TYPE_CHECKING:
    from rmqinspect.forecast.lost_records import LostAtStart
    from rmqinspect.store.model import Store
    from rmqinspect.tables.filters import Selection
    from rmqinspect.tables.lost_records import AskedStart


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


@dataclass(frozen=True, kw_only=True)
class LostOptions:
    """What the next start gives up."""

    lost_at_start: bool = option(
        "--lost-at-start",
        is_flag=True,
        help="Records that the next start of the broker gives up, as forecast counts them: to save them before it.",
    )
    broker_version: str | None = release_option()
    exit: str | None = exit_option()

    @property
    def asked_start(self) -> "AskedStart | None":
        """The start that is meant; None: any record."""
        from rmqinspect.tables.lost_records import AskedStart

        return AskedStart(self.broker_version, is_clean(self.exit)) if self.lost_at_start else None

    def refuse_unused(self) -> None:
        """Refuse what belongs to `--lost-at-start` without it.

        :raises click.UsageError: it is given.
        """
        if not self.lost_at_start and (self.broker_version or self.exit):
            raise click.UsageError("--broker-version and --exit belong to --lost-at-start.")


def save_command(source: SourceOptions, release: str | None, stop: str | None, output: str = "lost.parquet") -> str:
    """Return the command that saves what a start gives up, as a shell reads it; None: what `forecast` assumed, too."""
    words = ["rmqinspect", "decode", *map(quote_path, map(shown, source.paths))]
    words += ["--config", quote_path(shown(source.config))] if source.config is not None else []
    words.append("--lost-at-start")
    words += ["--broker-version", release] if release is not None else []
    words += ["--exit", stop] if stop is not None else []
    return " ".join((*words, "-o", quote_path(output)))


def find_lost(
    store: "Store", selection: "Selection", arguments: ReadingOptions
) -> "tuple[Selection, LostAtStart | None]":
    """Return the filters of one store, with what its next start gives up, and how it was told; None: not asked for.

    The start is walked for it, which may read much. The store has what its RocksDB databases hold.

    :raises Unreadable: what a start does cannot be told.
    """
    if selection.lost_at_start is None:
        return selection, None
    from rmqinspect.forecast.lost_records import lost_at_start, with_lost

    with Progress(0, arguments.progress, quiet=arguments.quiet) as progress:

        def announce(size: int, why: str) -> None:
            if size > max(progress.total, LONG_READ):
                progress.remark(f"up to {describe_size(size)} to read: {why}{least_time(size)}")
            progress.total = max(progress.total, size)

        found = lost_at_start(store, selection.lost_at_start, count_jobs(arguments), progress, announce)
    return with_lost(selection, found.records), found
