"""Options and help of `salvage`."""

import click

from rmqinspect.cli.help_page import Command
from rmqinspect.cli.new_store import NewStoreOptions, dry_run_option, output_option
from rmqinspect.cli.options import (
    CarveOptions,
    JobOptions,
    LookOptions,
    NamedSourceOptions,
    RedactOptions,
    TalkOptions,
)
from rmqinspect.cli.parameters import option, option_group, release_option, takes
from rmqinspect.cli.verbs import run


@option_group
class SalvageArguments(
    NewStoreOptions, NamedSourceOptions, CarveOptions, JobOptions, RedactOptions, LookOptions, TalkOptions
):
    """What `salvage` is asked for."""

    output: str = output_option("NEW.receipt.json and NEW.aside are written")
    prefer: str | None = option(
        "--prefer", metavar="NAME", help="The source that counts where two have different sound records at one offset."
    )
    no_repair: bool = option("--no-repair", is_flag=True, help="Repair nothing, also where it is proven.")
    dry_run: bool = dry_run_option()
    broker_version: str | None = release_option()


@click.command("salvage", cls=Command)
@takes(SalvageArguments)
def command(arguments: SalvageArguments) -> int:
    """Save what can be saved of damaged stores into a new one that a broker serves; the old ones are only read.

    A source is a store, a copy of it (a slave, a backup), a folder of segments or a single segment. Of every record the
    best copy counts: sound in any source, else repaired with proof. What remains is bridged, so that a broker passes
    over it, and lies in NEW.aside as far as it can be read. NEW is verified, and its next start worked out: it gets its
    name only if it is whole and the start loses nothing.

    Exit status: 0 all was taken over, 3 something was lost or not taken over, or the new store was not whole, 6 NEW
    exists, lies inside a source, or has no room; or two sources differ, and --prefer does not say which counts.

    With --carve each SOURCE that is no folder is searched for records, and what it holds of one log is a source.

    \b
    Examples:
      rmqinspect salvage STORE -o NEW
      rmqinspect salvage STORE --dry-run
      rmqinspect salvage master=STORE slave=OTHER -o NEW --prefer master
      rmqinspect salvage STORE 00000000001073741824.bak -o NEW --dry-run
      rmqinspect salvage STORE -o NEW --link --broker-version 4.9.7
      rmqinspect salvage STORE disk.img --carve -o NEW
    """
    return run("salvage", arguments)
