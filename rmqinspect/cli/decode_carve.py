"""`rmqinspect decode --carve IMAGE…`: what it takes; the rows are printed as those of a store."""

from typing import TYPE_CHECKING

import click

from rmqinspect.cli.options import SourceOptions

if TYPE_CHECKING:
    from rmqinspect.store.model import Store
    from rmqinspect.tables.redact import Redaction
    from rmqinspect.tables.table import Table

# What asks for a store, by the names of the arguments, and what they are when nobody asks.
_OF_STORES = {"table": None, "base": None, "config": None, "unconsumed": None, "lost_at_start": False, "scan": False}


def open_carved(arguments: SourceOptions, redact: "Redaction | None") -> "tuple[Store, Table]":
    """Return the images as one store, and the table of their records.

    :raises click.UsageError: an option asks for what only a store has.
    :raises NotAStore: a path does not exist, or is a folder.
    :raises Unreadable: an image cannot be opened.
    """
    for name, default in _OF_STORES.items():
        if getattr(arguments, name) != default:
            raise click.UsageError(f"--{name.replace('_', '-')} is for stores; --carve reads any bytes.")
    for name in ("since", "until"):
        time = getattr(arguments, name) or ""
        if time.startswith("last"):
            raise click.UsageError(f"--{name} {time}: the records of an image have no last one.")
    from rmqinspect.rescue.carved_rows import CARVED_TABLE, NAMELESS_TABLE, open_images

    hides_hosts = redact is not None and "hosts" in redact.words
    return open_images(arguments.paths), NAMELESS_TABLE if hides_hosts else CARVED_TABLE
