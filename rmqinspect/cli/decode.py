"""`rmqinspect decode`: the rows of any table, of a store or of one file in it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from rmqinspect.cli.completion import complete_tables
from rmqinspect.cli.options import PATH, choose_format
from rmqinspect.cli.parameters import argument, option, takes
from rmqinspect.cli.selection import SelectionOptions, UnconsumedOptions, read_selection, with_offsets
from rmqinspect.cli.table_rows import MessageOptions, RowsOptions, print_rows
from rmqinspect.errors import NotAStore
from rmqinspect.store.file_type import words_of_file, words_of_kind
from rmqinspect.system.uri import shown
from rmqinspect.text import count, escape

if TYPE_CHECKING:
    from rmqinspect.store.model import Store
    from rmqinspect.tables.table import Table


# Kind of the given path -> table; every other kind is read for its messages.
_TABLE_OF_PLACE = {
    "queue": "queue_units",
    "batch_queue": "queue_units",
    "index": "index_entries",
    "checkpoint": "checkpoint",
}
_TABLE_OF_CONFIG = {
    "topics.json": "topics",
    "consumerOffset.json": "groups",
    "subscriptionGroup.json": "subscription_groups",
    "delayOffset.json": "delay_offsets",
}


@dataclass(frozen=True, kw_only=True)
class DecodeArguments(RowsOptions, MessageOptions, SelectionOptions, UnconsumedOptions):
    """What `decode` is asked for."""

    paths: tuple[str, ...] = argument("PATH...", type=PATH)
    table: str | None = option(
        "--table",
        metavar="NAME",
        shell_complete=complete_tables,
        help="messages, segments, gaps, queues, queue_units, index_files, index_entries, groups, topics, "
        "subscription_groups, checkpoint, … Default: by the kind of PATH; messages for a store.",
    )


@click.command("decode")
@takes(DecodeArguments)
def command(arguments: DecodeArguments) -> int:
    """Print the rows of a store, or of any one file in it; the kind of file is detected.

    Several stores are printed as one table, with the column `store` first. Damage is a row with a
    status; after all rows are written it ends the command with exit status 3.

    \b
    Examples:
      rmqinspect decode STORE -t orders -n 5
      rmqinspect decode STORE --offset 96253..97955 -f jsonl --columns keys,status
      rmqinspect decode STORE/index -f csv
      rmqinspect decode STORE --since last-5m -o rows.parquet
    """
    choose_format(arguments)  # a usage error comes before anything is read

    from rmqinspect.store.discover import open_stores

    stores = open_stores(arguments.paths, **arguments.opening)
    table = _choose_table(arguments.table, stores)
    with with_offsets(stores, arguments, arguments.unpacking) as whole:
        return print_rows(whole, table, arguments, read_selection(arguments))


def _choose_table(name: str | None, stores: "list[Store]") -> "Table":
    from rmqinspect.tables import TABLES

    name = name or _table_of(stores[0])
    if name not in TABLES:
        names = ", ".join(TABLES)
        raise click.BadParameter(f"no table {escape(name)!r}; there are: {names}", param_hint="--table")
    return TABLES[name]


def _table_of(store: "Store") -> str:
    if store.given == "config":
        names = {name.removesuffix(".bak") for name in store.config_files}
        if len(names) != 1:
            return "topics"
        name = names.pop()
        if words := words_of_file(name):
            raise NotAStore(f"{name}: {words}")
        if name not in _TABLE_OF_CONFIG:
            known = ", ".join(_TABLE_OF_CONFIG)
            raise NotAStore(f"{name}: no table shows this configuration file; there are tables of {known}")
        return _TABLE_OF_CONFIG[name]
    if words := words_of_kind(store.given):
        files = f"{count(len(store.files), 'file')}, {count(sum(file.size for file in store.files), 'byte')}"
        raise NotAStore(f"{shown(store.paths[0])} ({files}): {words}")
    return _TABLE_OF_PLACE.get(store.given, "messages")
