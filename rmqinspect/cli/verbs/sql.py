"""Options and help of `sql`."""

import click

from rmqinspect.cli.help_page import Command
from rmqinspect.cli.options import (
    BodyOptions,
    LookOptions,
    NamedSourceOptions,
    OutputOptions,
    ReadingOptions,
    RedactOptions,
)
from rmqinspect.cli.parameters import argument, option, option_group, size_option, takes
from rmqinspect.cli.verbs import run


@option_group
class SqlArguments(OutputOptions, RedactOptions, BodyOptions, LookOptions, NamedSourceOptions, ReadingOptions):
    """What `sql` is asked for."""

    query: str = argument("SQL", nargs=1)
    scan: bool = option(
        "--scan",
        is_flag=True,
        help="Read the whole log for a look-up, too: by id, key, queue offset or time.",
    )
    memory: int = size_option("--memory", "1GiB", "Memory of DuckDB; what does not fit goes to temporary files.")


@click.command("sql", cls=Command)
@takes(SqlArguments)
def command(arguments: SqlArguments) -> int:
    """Ask a question in SQL: one SELECT over the tables of stores, in DuckDB's dialect.

    The tables are those of decode and findings, with the column store first. SQL - reads the query
    from stdin. Nothing but the stores is read, and nothing but the output is written.

    \b
    Examples:
      rmqinspect sql "SELECT topic, count(*) FROM messages GROUP BY ALL" STORE
      rmqinspect sql "FROM messages WHERE list_contains(keys, 'K1')" STORE
      rmqinspect sql "FROM next_starts WHERE may_be_writer" a=STORE b=STORE
      rmqinspect sql "DESCRIBE messages" STORE
    """
    return run("sql", arguments)
